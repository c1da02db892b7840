// One tensor-core step of 16 products of f16 (ACT 0) or bf16 (ACT 1) in integer arithmetic (docs/tensor-cores.md 1, sm_90): the definition that the
// naive kernels use.
#pragma once
#include "common/mixed.cuh"

/// |x| as significand * 2^exponent, for f16 or bf16 bits; subnormals are not renormalised.
struct Exact {
    long long significand;
    int exponent;  // of the lowest bit
    bool negative, infinite, nan;
};
__device__ inline Exact decode16(u16 x) {
    const int mantissa = ACT == 0 ? 10 : 7, bias = ACT == 0 ? 15 : 127, top = ACT == 0 ? 31 : 255;
    const int field = (x & 0x7fff) >> mantissa, fraction = x & ((1 << mantissa) - 1);
    return {field ? fraction | 1 << mantissa : fraction, max(field, 1) - bias - mantissa, (x & 0x8000) != 0, field == top && !fraction,
            field == top && fraction};
}

/// T(16, 25, 23 RZ): all terms truncated to a multiple of 2^(emax - 25), added exactly, the sum truncated to f32.
__device__ inline float mma_step(const u16* w, const u16* x, float c) {
    const int unit = ACT == 0 ? 20 : 14;  // fraction bits of a product
    const u32 bits = __float_as_uint(c);
    const int c_exponent = max((int)(bits >> 23 & 255), 1) - 127;
    const long long c_significand = bits & 0x7f800000 ? (bits & 0x7fffff) | 0x800000 : bits & 0x7fffff;
    bool nan = c != c, plus = bits == 0x7f800000u, minus = bits == 0xff800000u;
    long long significand[16];
    int exponent[16], emax = c_significand ? max(c_exponent, -133) : -133;
    for (int i = 0; i < 16; i++) {
        const Exact p = decode16(w[i]), q = decode16(x[i]);
        significand[i] = exponent[i] = 0;
        const bool negative = p.negative != q.negative;
        if (p.nan || q.nan || (p.infinite && !q.infinite && !q.significand) || (q.infinite && !p.infinite && !p.significand)) nan = true;
        else if (p.infinite || q.infinite) (negative ? minus : plus) = true;
        else {
            significand[i] = p.significand * q.significand * (negative ? -1 : 1);
            exponent[i] = p.exponent + q.exponent + unit;
            if (significand[i]) emax = max(emax, exponent[i]);
        }
    }
    if (nan || (plus && minus)) return __uint_as_float(0x7fffffffu);
    if (plus || minus) return __uint_as_float(plus ? 0x7f800000u : 0xff800000u);
    long long sum = 0;  // units of 2^(emax - 25)
    for (int i = 0; i <= 16; i++) {
        const long long s = i < 16 ? significand[i] : (bits >> 31 ? -c_significand : c_significand);
        const int left = i < 16 ? exponent[i] - emax + 25 - unit : c_exponent - emax + 25 - 23;
        const long long size = s < 0 ? -s : s, part = left >= 0 ? size << left : left > -63 ? size >> -left : 0;
        sum += s < 0 ? -part : part;
    }
    if (!sum) return 0.0f;
    const long long size = sum < 0 ? -sum : sum;
    const int top = 63 - __clzll(size), e = top + emax - 25;
    u32 result;
    if (e > 127) result = 0x7f800000u;
    else if (e < -126) {
        const int right = -149 - (emax - 25);
        result = (u32)(right > 0 ? size >> right : size << -right);
    } else result = ((u32)(e + 127) << 23) | ((u32)(top > 23 ? size >> (top - 23) : size << (23 - top)) & 0x7fffff);
    return __uint_as_float(result | (sum < 0 ? 0x80000000u : 0));
}

/// A weight from its code, scale and zero point (mixed_gemm.cu): `at` is the group's place in both arrays.
__device__ inline u16 weight_of(int code, const u16* scale, const void* zero, long long at) {
    const float s = load_as<ACT>(scale, at);
    float y;
    if (ZERO == 2) y = round_to<ACT>((float)(code - ((const s8*)zero)[at]) * s);
    else if (ZERO == 1) y = round_to<ACT>(round_to<ACT>((float)(code - MID) * s) + load_as<ACT>(zero, at));
    else y = round_to<ACT>((float)code * s);
    return ACT == 0 ? f32_to_f16(y) : f32_to_bf16(y);
}
