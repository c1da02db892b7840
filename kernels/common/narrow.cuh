// Codes of formats that sm_90 has no conversion to, and scales in e8m0 and e4m3, by integer arithmetic.
// Formats: E4M3, E5M2 (hardware), E2M1, E2M3, E3M2.
#pragma once
#include "common/fp8_cast.cuh"

/// Of a format: bits of mantissa, exponent bias, largest finite value.
__host__ __device__ constexpr int mantissa_of(int f) { return f == E4M3 || f == E2M3 ? 3 : f == E2M1 ? 1 : 2; }
__host__ __device__ constexpr int bias_of(int f) { return f == E4M3 ? 7 : f == E5M2 ? 15 : f == E3M2 ? 3 : 1; }
__host__ __device__ constexpr float max_of(int f) { return f == E4M3 ? 448.0f : f == E5M2 ? 57344.0f : f == E2M1 ? 6.0f : f == E2M3 ? 7.5f : 28.0f; }
/// Exponent of the largest value.
__host__ __device__ constexpr int emax_of(int f) { return f == E4M3 ? 8 : f == E5M2 ? 15 : f == E3M2 ? 4 : 2; }

/// e2m3, e3m2 of a product p, nearest even, saturating; NaN (which a product has without sign) to +max. With m bits of mantissa
/// and e the exponent of p, at least the smallest normal's, adding 2^(e - m + 23) rounds |p| to n steps of 2^(e-m), and
/// (e - emin) * 2^m + n is the code: the first term is that number's own exponent, shifted. Left out is OFFSET, for the sum of several.
template <int F>
struct Narrow {
    static constexpr int M = mantissa_of(F), SHIFT = 23 - M, SIGN = 5;
    static constexpr u32 OFFSET = (u32)(150 - M + 1 - bias_of(F)) << M;
    __device__ __forceinline__ static u32 code(float p) {
        const float a = fminf(fabsf(p), max_of(F));
        const u32 magic = (__float_as_uint(fmaxf(a, __uint_as_float((u32)(128 - bias_of(F)) << 23))) & INFINITE) + ((u32)SHIFT << 23);
        const u32 steps = __float_as_uint(__fadd_rn(a, __uint_as_float(magic))) - magic;
        return steps + (magic >> SHIFT) + ((__float_as_uint(p) >> 31) << SIGN);
    }
    /// Four codes, one a byte.
    __device__ __forceinline__ static u32 four(float a, float b, float c, float d) {
        return code(a) + (code(b) << 8) + (code(c) << 16) + (code(d) << 24) - OFFSET * 0x01010101u;
    }
};

/// e2m1 as above. Its values are 0 to 4 in halves, ones and twos (below 2, below 4, above): of |p| rounded in each of the three, by adding it
/// to 2^23, the smallest number of steps is the code.
template <>
struct Narrow<E2M1> {
    static constexpr u32 OFFSET = 0x4b000000;  // 2^23
    __device__ __forceinline__ static float steps(float p) {
        const float a = fabsf(p);
        const float low = fminf(__fmaf_rn(a, 2.0f, 8388608.0f), __fadd_rn(a, 8388610.0f));
        return fminf(low, fminf(__fmaf_rn(a, 0.5f, 8388612.0f), 8388615.0f));
    }
    __device__ __forceinline__ static u32 code(float p) { return __float_as_uint(steps(p)) | (__float_as_uint(p) >> 31) << 3; }
    __device__ __forceinline__ static u32 byte_of(float a, float b, float c, float d, int byte) {
        const u32 from = byte | (4 + byte) << 4;
        return __byte_perm(__byte_perm(__float_as_uint(a), __float_as_uint(b), from), __byte_perm(__float_as_uint(c), __float_as_uint(d), from), 0x5410);
    }
    __device__ __forceinline__ static u32 four(float a, float b, float c, float d) {
        return byte_of(steps(a), steps(b), steps(c), steps(d), 0) | (byte_of(a, b, c, d, 3) >> 4 & 0x08080808u);
    }
    /// Eight codes, two a byte, the even one low.
    __device__ __forceinline__ static u32 nibbles(const float (&p)[8]) {
        const u32 even = byte_of(steps(p[0]), steps(p[2]), steps(p[4]), steps(p[6]), 0), odd = byte_of(steps(p[1]), steps(p[3]), steps(p[5]), steps(p[7]), 0);
        const u32 signs = (byte_of(p[0], p[2], p[4], p[6], 3) >> 4 & 0x08080808u) | (byte_of(p[1], p[3], p[5], p[7], 3) & 0x80808080u);
        return even + (odd << 4) | signs;
    }
};

/// A code of any of the formats in the low byte.
template <int F>
__device__ __forceinline__ u32 any_code(float v) {
    return is_fp8(F) ? fp8_pair<F>(v, 0.0f) & 0xff : Narrow<F>::code(v) - Narrow<F>::OFFSET;
}

/// e8m0 rounded up: the byte of the smallest power of two that is at least v >= 0; Inf 254, NaN 255, zero 0 (cvt.rp.satfinite.ue8m0).
__device__ __forceinline__ u32 e8m0_up(float v) {
    const u32 bits = __float_as_uint(v);
    if (v != v) return 255;
    const u32 exponent = bits >> 23, fraction = bits & 0x7fffffu;
    const u32 up = exponent == 0 ? fraction > 0x400000u : fraction != 0;
    return min(exponent + up, 254u);
}
/// The value of an e8m0 byte.
__device__ __forceinline__ float e8m0_value(u32 byte) { return __uint_as_float(byte == 255 ? MAGNITUDE : byte == 0 ? 0x400000u : byte << 23); }
/// 2^(127 - byte), the reciprocal.
__device__ __forceinline__ float e8m0_reciprocal(u32 byte) { return e8m0_value(byte == 255 ? 255 : 254 - byte); }

/// The value of an e4m3 code.
__device__ __forceinline__ float e4m3_value(u32 code) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)code));
    return f16_to_f32((u16)pair);
}
