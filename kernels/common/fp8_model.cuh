// The FP8 tensor-core step of wgmma (sm_90) in integer arithmetic, sharing nothing with wgmma.
// Source: docs/tensor-cores.md sections 0 and 1 (measured on an H200).
#pragma once
#include "common/gemm_types.cuh"

/// A code as (-1)^negative * significand * 2^(exponent - mantissa bits); subnormals are not renormalised.
struct Decoded {
    int significand, exponent;
    bool negative, infinite, nan;
};

__device__ __forceinline__ Decoded decode_fp8(u8 code, bool e5m2) {
    const int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
    const int field = (code & 0x7f) >> mantissa_bits, fraction = code & ((1 << mantissa_bits) - 1);
    Decoded d;
    d.negative = code >> 7;
    d.nan = e5m2 ? field == 31 && fraction : (code & 0x7f) == 0x7f;
    d.infinite = e5m2 && field == 31 && !fraction;
    d.significand = field ? fraction | 1 << mantissa_bits : fraction;
    d.exponent = field ? field - bias : 1 - bias;
    return d;
}

/// value * 2^exponent for an exact, normal result.
__device__ __forceinline__ float times_pow2(float value, int exponent) {
    while (exponent > 100) value *= __int_as_float((127 + 100) << 23), exponent -= 100;
    while (exponent < -100) value *= __int_as_float((127 - 100) << 23), exponent += 100;
    return value * __int_as_float((127 + exponent) << 23);
}

/// One step T(32, 13, 13 RZ): the products a[k]*b[k] and the accumulator c, each truncated to a multiple of 2^(emax - F), are added
/// exactly; the sum is truncated to O fraction bits.
/// Infinities keep their sign, opposite ones and NaN give 7fffffff. Sums stay far below f32's overflow for FP8 inputs.
__device__ inline float fp8_step(const u8* a, const u8* b, float c, bool a_e5m2, bool b_e5m2) {
    constexpr int F = 13, O = 13;
    bool nan = c != c, plus = c == __int_as_float(0x7f800000), minus = c == __int_as_float(0xff800000);
    const int shift = (a_e5m2 ? 2 : 3) + (b_e5m2 ? 2 : 3);
    const u32 c_bits = __float_as_uint(c);
    const long long c_significand = c_bits & 0x7f800000 ? (c_bits & 0x7fffff) | 0x800000 : c_bits & 0x7fffff;
    const int c_exponent = max((int)(c_bits >> 23 & 0xff), 1) - 127;
    int emax = c_significand ? c_exponent : -1000;
    long long significand[32];
    int exponent[32];
    for (int k = 0; k < 32; k++) {
        significand[k] = 0;
        exponent[k] = 0;
        Decoded x = decode_fp8(a[k], a_e5m2), y = decode_fp8(b[k], b_e5m2);
        if (x.nan || y.nan || (x.infinite && !y.infinite && y.significand == 0) || (y.infinite && !x.infinite && x.significand == 0)) {
            nan = true;
        } else if (x.infinite || y.infinite) {
            if (x.negative != y.negative) minus = true;
            else plus = true;
        } else {
            significand[k] = (x.negative != y.negative ? -1 : 1) * (long long)(x.significand * y.significand);
            exponent[k] = x.exponent + y.exponent;
            if (significand[k]) emax = max(emax, exponent[k]);
        }
    }
    if (nan || (plus && minus)) return __int_as_float(0x7fffffff);
    if (plus) return __int_as_float(0x7f800000);
    if (minus) return __int_as_float(0xff800000);
    if (emax == -1000) return 0.0f;

    long long sum = 0;  // in units of 2^(emax - F)
    for (int k = 0; k < 32; k++) {
        const int left = exponent[k] - emax + F - shift;
        const long long magnitude = significand[k] < 0 ? -significand[k] : significand[k];
        const long long part = left >= 0 ? magnitude << left : left > -40 ? magnitude >> -left : 0;
        sum += significand[k] < 0 ? -part : part;
    }
    const int left = c_exponent - emax + F - 23;
    const long long part = left >= 0 ? c_significand << left : left > -40 ? c_significand >> -left : 0;
    sum += c_bits >> 31 ? -part : part;
    if (sum == 0) return 0.0f;

    long long magnitude = sum < 0 ? -sum : sum;
    const int top = 63 - __clzll(magnitude);
    if (top > O) magnitude = magnitude >> (top - O) << (top - O);
    const float value = times_pow2((float)magnitude, emax - F);
    return sum < 0 ? -value : value;
}
