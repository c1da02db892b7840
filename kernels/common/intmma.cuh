// Warp-level tensor-core products, 16-bit arithmetic two at a time, asynchronous copies: thin wrappers, no system header.
//
// Fragments (PTX ISA, mma.m16n8k16 / m16n8k32), g = lane/4, t = lane%4; an .f16/.bf16 register holds 2 neighbours in k, an .s8
// register 4, w of them:
//   A 16 x k: a0 row g, k = w*t.. ; a1 row g+8, the same k; a2 row g, k = 4*w + w*t.. ; a3 row g+8, the same k
//   B k x 8:  b0 k = w*t.. ; b1 k = 4*w + w*t.. ; column g
//   C 16 x 8: c0 c1 row g, columns 2t, 2t+1; c2 c3 row g+8
#pragma once
#include "common/gemm_types.cuh"
using s8 = signed char;
using s32 = int;

/// c = T(16, 25, 23 RZ)(c + 16 products) on sm_90 (docs/tensor-cores.md 2), f16 operands.
__device__ __forceinline__ void mma_f16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_bf16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
/// c += 32 products, exact modulo 2^32.
__device__ __forceinline__ void mma_s8(s32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two 16-bit numbers a register, each result rounded once to nearest even. Every operation is an fma, so that sm_89 has it too:
// a*1 + c is RN(a + c), a*b + (-0) is RN(a*b) with the product's own sign of zero.
constexpr u32 F16_ONE = 0x3c003c00u, BF16_ONE = 0x3f803f80u, MINUS_ZERO = 0x80008000u;
__device__ __forceinline__ u32 fma_f16(u32 a, u32 b, u32 c) {
    u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ u32 fma_bf16(u32 a, u32 b, u32 c) {
    u32 d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ u32 twice(u16 x) { return (u32)x * 0x10001u; }

// One 16-bit number and f32.
__device__ __forceinline__ float f16_to_f32(u16 x) {
    float d;
    asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(x));
    return d;
}
// By the conversion of two: the conversion of one has an eighth of its rate.
__device__ __forceinline__ u16 f32_to_f16(float x) { return (u16)pack_f16(x, 0.0f); }
__device__ __forceinline__ u16 f32_to_bf16(float x) { return (u16)pack_bf16(x, 0.0f); }
/// An element of type F16, BF16 or F32.
template <int T>
__device__ __forceinline__ float load_as(const void* p, long long i) {
    if (T == F32) return ((const float*)p)[i];
    const u16 x = ((const u16*)p)[i];
    return T == F16 ? f16_to_f32(x) : bf16_to_f32(x);
}
template <int T>
__device__ __forceinline__ void store_as(void* p, long long i, float v) {
    if (T == F32) ((float*)p)[i] = v;
    else ((u16*)p)[i] = T == F16 ? f32_to_f16(v) : f32_to_bf16(v);
}
/// x rounded to F16, BF16, or kept (F32).
template <int T>
__device__ __forceinline__ float round_to(float x) {
    return T == F16 ? f16_to_f32(f32_to_f16(x)) : T == BF16 ? bf16_to_f32(f32_to_bf16(x)) : x;
}

/// 16 bytes read once: around L1.
__device__ __forceinline__ uint4 load_stream(const void* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
/// 16 bytes from global to shared memory; only `bytes` of them are read, the rest is zero.
__device__ __forceinline__ void copy16(u32 to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }
