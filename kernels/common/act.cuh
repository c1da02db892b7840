// Activations and their derivatives as Transformer Engine's math.h has them: every operation of the C expression rounded
// once in f32 in the order of the language, never contracted, so that only tanhf, expf (2 ulp each) and the sigmoid's order can differ from the
// CPU model's bits.
// F is option ACT (common/options.cuh); gelu is that of tanh.
#pragma once
#include "common/options.cuh"

/// 1 / (1 + e^-x), as e/(1 + e) with e = e^-|x| for negative x: 1 + e is in [1, 2], so one Newton step from the approximate reciprocal
/// rounds as a division does, without its branches, and nothing overflows. At most one rounding more than the source's expression.
__device__ __forceinline__ float sigmoid(float x) {
    const float e = expf(-fabsf(x)), d = __fadd_rn(1.0f, e);
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    r = __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
    return x < 0.0f ? __fmul_rn(e, r) : r;
}
/// s (1 - s), s = sigmoid(x)
__device__ __forceinline__ float sigmoid_slope(float s) { return __fmul_rn(s, __fsub_rn(1.0f, s)); }

/// act(x); NaN gives 0 for relu and srelu.
template <int F>
__device__ __forceinline__ float act(float x) {
    if (F == GELU) {
        const float inner = __fadd_rn(0.79788456f, __fmul_rn(__fmul_rn(0.03567741f, x), x));
        return __fmul_rn(x, __fadd_rn(0.5f, __fmul_rn(0.5f, tanhf(__fmul_rn(x, inner)))));
    }
    if (F == SILU) return __fmul_rn(x, sigmoid(x));
    if (F == RELU) return fmaxf(x, 0.0f);
    if (F == QGELU) return __fmul_rn(x, sigmoid(__fmul_rn(1.702f, x)));
    return x > 0.0f ? __fmul_rn(x, x) : 0.0f;
}

/// act'(x)
template <int F>
__device__ __forceinline__ float act_slope(float x) {
    if (F == GELU) {
        const float t = tanhf(__fmul_rn(__fmul_rn(0.79788456f, x), __fadd_rn(1.0f, __fmul_rn(__fmul_rn(0.044715f, x), x))));
        const float poly = __fadd_rn(0.79788456f, __fmul_rn(__fmul_rn(0.1070322243f, x), x));
        const float first = __fmul_rn(__fmul_rn(0.5f, x), __fmul_rn(__fsub_rn(1.0f, __fmul_rn(t, t)), poly));
        return __fadd_rn(first, __fmul_rn(0.5f, __fadd_rn(1.0f, t)));
    }
    if (F == SILU || F == QGELU) {
        const float z = F == SILU ? x : __fmul_rn(1.702f, x), s = sigmoid(z);
        return __fadd_rn(__fmul_rn(z, sigmoid_slope(s)), s);
    }
    if (F == RELU) return x > 0.0f ? 1.0f : 0.0f;
    return fmaxf(__fmul_rn(2.0f, x), 0.0f);
}
