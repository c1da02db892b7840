// From amax to scale: the rules of the FP8 recipes, to the bit those of src/recipe.
//
// Options (-D): POW2 0 or 1; RULE, M the largest finite value of the format (448, 57344):
//   GIVEN: scale_inv = RN32(1 / s)
//   TE (Transformer Engine): amax 0, Inf or NaN: s = 1; else s = RN32(M / amax), Inf becomes LIMIT (FLT_MAX, of blocks the largest of the
//      input's type); POW2: mantissa cleared; scale_inv = RN32(1 / s)
//   TORCHAO (float8): s = RN32(M / max(f64(amax), 1e-12)), divided in f64; POW2: exp2(floor(log2 s)) with log2 rounded to f32;
//      scale_inv = RN32(1 / s)
//   TORCHAO_INFERENCE: scale_inv = RN_IN(RN32(amax / M)); codes are of RN32(x / scale_inv)
//   DEEPGEMM: scale_inv = RN32(max(amax, 1e-4) / M); POW2: rounded up to a power of two, 2^127 for Inf and NaN; s = RN32(1 / scale_inv);
//      Inf is NaN (the cast does not saturate)
// codes are of RN32(x * s) but for TORCHAO_INFERENCE. GIVEN, TE: a NaN is dropped from amax; the others: it stays.
#pragma once
#include "common/fp8_cast.cuh"

#ifndef RULE
#define RULE GIVEN
#endif
#ifndef POW2
#define POW2 0
#endif
#ifndef BLOCKS
#define BLOCKS 0  // 1: rule TE is of blocks
#endif

/// Whether a NaN wins in an amax.
constexpr bool NAN_WINS = RULE >= TORCHAO;

template <int F>
__device__ __forceinline__ constexpr float largest_of() {
    return F == E4M3 ? 448.0f : 57344.0f;
}
/// 2^e, e within -126 ... 127.
__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float((u32)(e + 127) << 23); }

/// exp2(floor(log2 s)) with log2 rounded to f32: just below 2^k it is 2^k (float8.rs, round_down_to_power_of_two).
__device__ __forceinline__ float floor_power_of_two(float s) {
    const u32 bits = __float_as_uint(s);
    if (s == 0.0f || bits >= INFINITE) return s;
    const int floor = (int)(bits >> 23) - 127, above = floor + 1;
    const double whole = __longlong_as_double((long long)(above + 1023) << 52);
    const double u = __dadd_rn(1.0, -__ddiv_rn((double)s, whole));
    const double log2 = __dadd_rn((double)above, -__dmul_rn(__dmul_rn(u, 1.4426950408889634), __dadd_rn(1.0, __dmul_rn(u, 0.5))));
    return power_of_two(u < 1e-4 && __double2float_rn(log2) == (float)above ? above : floor);
}

/// What a value is multiplied by, and what a code is.
struct Scale {
    float scale, inverse;

    __device__ __forceinline__ static Scale given(float scale) { return {scale, __frcp_rn(scale)}; }
    /// What is rounded to a code.
    __device__ __forceinline__ float scaled(float v) const {
        if (RULE == TORCHAO_INFERENCE) return __fdiv_rn(v, inverse);
        const float p = __fmul_rn(v, scale);
        return RULE == DEEPGEMM && fabsf(p) == __uint_as_float(INFINITE) ? __uint_as_float(MAGNITUDE) : p;
    }
    template <int F, typename V>
    __device__ __forceinline__ uint2 codes(const V& v) const {
        float p[8];
#pragma unroll
        for (int i = 0; i < 8; i++) p[i] = scaled(v[i]);
        return make_uint2(fp8_four<F>(p[0], p[1], p[2], p[3]), fp8_four<F>(p[4], p[5], p[6], p[7]));
    }
};

/// The scale of an amax, of input type T and code format F.
template <int T, int F>
__device__ __forceinline__ Scale scale_of(float amax) {
    constexpr float M = largest_of<F>();
    if (RULE == TE) {
        if (amax == 0.0f || __float_as_uint(amax) >= INFINITE) return Scale::given(1.0f);
        float s = __fdiv_rn(M, amax);
        const u32 limit = !BLOCKS || T == F32 ? FLT_MAX_BITS : T == BF16 ? 0x7f7f0000u : 0x477fe000u;
        if (__float_as_uint(s) == INFINITE) s = __uint_as_float(limit);
        if (POW2) s = __uint_as_float(__float_as_uint(s) & ~0x7fffffu);
        return Scale::given(s);
    }
    if (RULE == TORCHAO) {
        const double a = (double)amax;
        const float s = __double2float_rn(__ddiv_rn((double)M, a < 1e-12 ? 1e-12 : a));
        return Scale::given(POW2 ? floor_power_of_two(s) : s);
    }
    if (RULE == TORCHAO_INFERENCE) {
        const u32 bits = bits_of<T>(__fdiv_rn(amax, M));
        const float inverse = T == F32 ? __uint_as_float(bits) : T == BF16 ? bf16_to_f32((u16)bits) : f16_to_f32((u16)bits);
        return {0.0f, inverse};
    }
    if (RULE == DEEPGEMM) {
        float inverse = __fdiv_rn(amax < 1e-4f ? 1e-4f : amax, M);
        if (POW2) {
            const u32 bits = __float_as_uint(inverse) & MAGNITUDE, exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0);
            inverse = __uint_as_float(min(max(exponent, 1u), 254u) << 23);
        }
        return {__frcp_rn(inverse), inverse};
    }
    return Scale::given(amax);
}
