// From f16, bf16 or f32 in memory to FP8 codes with amax and scale_inv: what every kernel with FP8 output shares.
// Element types T: F16, BF16, F32. Code formats F: E4M3, E5M2.
//
// The rounding order is Transformer Engine's, v a value in f32:
//   amax = max |v|, NaN dropped, before scaling;  code = Qsat(RN32(v * scale));  scale_inv = RN32(1 / scale)
// A thread works on eight neighbouring values at a time: 16 bytes of f16 or bf16, 32 of f32, 8 of codes.
#pragma once
#include "common/gemm_types.cuh"

constexpr u32 MAGNITUDE = 0x7fffffffu, INFINITE = 0x7f800000u, FLT_MAX_BITS = 0x7f7fffffu;

__host__ __device__ constexpr int bytes_of(int t) { return t == F32 ? 4 : 2; }

__device__ __forceinline__ float f16_to_f32(u16 bits) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
    return r;
}

/// RN_T(v) as bits in the low half (f32: all bits).
template <int T>
__device__ __forceinline__ u32 bits_of(float v) {
    return T == F32 ? __float_as_uint(v) : (T == BF16 ? pack_bf16(v, 0.0f) : pack_f16(v, 0.0f)) & 0xffff;
}

/// 16 bytes of an input, by way of the L1 (docs/tuning/casts.md).
__device__ __forceinline__ uint4 load16(const void* p) {
    uint4 r;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
    return r;
}
/// Bytes that this kernel does not read again, first to leave the L2.
__device__ __forceinline__ void store16(void* p, uint4 v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void store8(void* p, uint2 v) { asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory"); }

/// Scales of a few lines: 1, 4 or 8 bytes, whose neighbours in 32 other blocks write. They are the last to leave the L2: what leaves before its
/// neighbours are there is read back and written again (docs/tuning/casts.md).
template <typename T>
__device__ __forceinline__ void store_scale(void* p, T v) {
    u64 stays;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(stays));
    if constexpr (sizeof(T) == 1) asm volatile("st.global.L2::cache_hint.u8 [%0], %1, %2;" ::"l"(p), "r"((u32)v), "l"(stays) : "memory");
    else if constexpr (sizeof(T) == 4) asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(p), "r"(*(const u32*)&v), "l"(stays) : "memory");
    else asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(p), "r"(v.x), "r"(v.y), "l"(stays) : "memory");
}

/// Element `at` of an array of T.
template <int T>
__device__ __forceinline__ float element(const void* x, long long at) {
    if (T == F32) return ((const float*)x)[at];
    const u16 bits = ((const u16*)x)[at];
    return T == BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}
template <int T>
__device__ __forceinline__ void store_element(void* x, long long at, float v) {
    if (T == F32) ((float*)x)[at] = v;
    else ((u16*)x)[at] = (u16)bits_of<T>(v);
}

/// Eight neighbouring elements as they lie in memory.
template <int T>
struct Eight {
    u32 word[T == F32 ? 8 : 4];

    /// All eight, from an address that is a multiple of 16 bytes.
    __device__ __forceinline__ void load(const void* x, long long at) {
        const u8* p = (const u8*)x + at * bytes_of(T);
#pragma unroll
        for (int i = 0; i < bytes_of(T) / 2; i++) {
            const uint4 v = load16(p + 16 * i);
            word[4 * i] = v.x, word[4 * i + 1] = v.y, word[4 * i + 2] = v.z, word[4 * i + 3] = v.w;
        }
    }
    /// The first `count` (any number) from any address, one at a time; the rest are zero.
    __device__ __forceinline__ void load_some(const void* x, long long at, long long count) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const u32 bits = i >= count ? 0 : T == F32 ? ((const u32*)x)[at + i] : ((const u16*)x)[at + i];
            if (T == F32) word[i] = bits;
            else word[i / 2] = i & 1 ? word[i / 2] | bits << 16 : bits;
        }
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (u32& w : word) w = 0;
    }
    __device__ __forceinline__ float operator[](int i) const {
        if (T == F32) return __uint_as_float(word[i]);
        if (T == BF16) return __uint_as_float(i & 1 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
        return f16_to_f32((u16)(word[i / 2] >> (16 * (i & 1))));
    }
};

/// The largest magnitude of elements as they lie in memory: 16-bit types two at a time. NAN_WINS false: a NaN loses (`fmaxf`); true:
/// every NaN lies above Inf and stays (torch.amax).
template <int T, bool NAN_WINS>
struct Largest {
    u32 pair = 0;

    __device__ __forceinline__ void take(u32 word) {
        const u32 size = word & (T == F32 ? MAGNITUDE : 0x7fff7fffu);
        if (T == F32) {
            pair = NAN_WINS ? max(pair, size) : __float_as_uint(fmaxf(__uint_as_float(pair), __uint_as_float(size)));
        } else if (!NAN_WINS) {
            if (T == BF16) asm("max.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(size));
            else asm("max.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(size));
        } else {
#if __CUDA_ARCH__ >= 900
            asm("max.u16x2 %0, %0, %1;" : "+r"(pair) : "r"(size));
#else
            pair = max(pair & 0xffff, size & 0xffff) | max(pair & 0xffff0000u, size & 0xffff0000u);
#endif
        }
    }
    __device__ __forceinline__ void take(const Eight<T>& x) {
#pragma unroll
        for (u32 w : x.word) take(w);
    }
    /// As the bits of an f32: magnitudes order as unsigned integers, NaN (kept as one) above all.
    __device__ __forceinline__ u32 bits() const {
        if (T == F32) return pair;
        const u32 one = max(pair & 0xffff, pair >> 16);
        return T == BF16 ? one << 16 : __float_as_uint(f16_to_f32((u16)one)) & MAGNITUDE;
    }
};

/// Larger of the magnitude `amax` and |v| of f32 values, NaN dropped.
__device__ __forceinline__ float larger(float amax, float v) { return fmaxf(amax, fabsf(v)); }

/// The largest of a warp's unsigned words, in every lane.
__device__ __forceinline__ u32 warp_max(u32 v) { return __reduce_max_sync(~0u, v); }

/// The largest of a block's unsigned words, in every thread. All threads call it; `shared` holds a word a warp and may be reused
/// after the next barrier.
__device__ __forceinline__ u32 block_max(u32 v, u32* shared) {
    const int lane = threadIdx.x & 31, warps = (blockDim.x + 31) / 32;
    v = warp_max(v);
    if (lane == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_max(lane < warps ? shared[lane] : 0);
}

/// The block's largest magnitude joins `amax` in memory: exact and independent of order. A null pointer is skipped.
__device__ __forceinline__ void raise_amax(float* amax, u32 bits, u32* shared) {
    if (!amax) return;
    bits = block_max(bits, shared);
    if (threadIdx.x == 0) atomicMax((u32*)amax, bits);
}

/// A scale in memory; a null one is 1.
__device__ __forceinline__ float scale_or_one(const float* scale) { return scale ? __ldg(scale) : 1.0f; }

/// RN32(1 / scale) to memory, if wanted. One thread of the grid calls it.
__device__ __forceinline__ void write_scale_inv(float* scale_inv, float scale) {
    if (scale_inv) *scale_inv = __frcp_rn(scale);
}

/// Two codes: Qsat of f32 values, NaN 0x7f; `lo` goes to the low byte.
template <int F>
__device__ __forceinline__ u32 fp8_pair(float lo, float hi) {
    return F == E4M3 ? pack_e4m3(lo, hi) : pack_e5m2(lo, hi);
}
template <int F>
__device__ __forceinline__ u32 fp8_four(float a, float b, float c, float d) {
    return fp8_pair<F>(a, b) | fp8_pair<F>(c, d) << 16;
}

/// The codes of eight values: Qsat(RN32(v * scale)).
template <int F, typename V>
__device__ __forceinline__ uint2 fp8_eight(const V& v, float scale) {
    float p[8];
#pragma unroll
    for (int i = 0; i < 8; i++) p[i] = __fmul_rn(v[i], scale);
    return make_uint2(fp8_four<F>(p[0], p[1], p[2], p[3]), fp8_four<F>(p[4], p[5], p[6], p[7]));
}

/// The first `count` (any number) of eight codes, one at a time, to any address.
__device__ __forceinline__ void store_some(u8* codes, long long at, uint2 eight, long long count) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i < count) codes[at + i] = (u8)((i < 4 ? eight.x : eight.y) >> (8 * (i % 4)));
    }
}
