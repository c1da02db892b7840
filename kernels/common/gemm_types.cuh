// Fixed-width types and the conversions that the GEMM kernels share. No system header: NVRTC compiles this as it stands.
#pragma once
#include "common/options.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/// The 128 opaque bytes of a CUtensorMap, passed by value as a `const __grid_constant__` parameter.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Two f32 rounded to nearest even to bf16; `lo` goes to the low half (the lower address).
__device__ __forceinline__ u32 pack_bf16(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/// Two f32 rounded to nearest even to f16 (past 65504: infinity); `lo` goes to the low half.
__device__ __forceinline__ u32 pack_f16(float lo, float hi) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/// Two f32 rounded to nearest even to e4m3, saturating at ±448, NaN to 0x7f; `lo` goes to the low byte.
__device__ __forceinline__ u16 pack_e4m3(float lo, float hi) {
    u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
    return r;
}

/// Two f32 rounded to nearest even to e5m2, saturating at ±57344; `lo` goes to the low byte.
__device__ __forceinline__ u16 pack_e5m2(float lo, float hi) {
    u16 r;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
    return r;
}

__device__ __forceinline__ float bf16_to_f32(u16 bits) { return __uint_as_float((u32)bits << 16); }

__device__ __forceinline__ u32 smem_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
