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

/// The bits of CUDA's tanhf, without its test for where 1 - 2/(e^2x + 1) rounds to 1 (it does so by itself).
__device__ __forceinline__ float tanh_of(float x) {
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(fabsf(x), 2.8853900432586669922f)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(__fadd_rn(e, 1.0f)));
    const float square = __fmul_rn(x, x);
    float p = __fmaf_rn(square, __uint_as_float(0x3c80f082), -0.052303962409496307373f);
    p = __fmaf_rn(square, p, 0.1331529766321182251f);
    p = __fmul_rn(square, __fmaf_rn(square, p, -0.33332768082618713379f));
    const float far = copysignf(__fmaf_rn(r, -2.0f, 1.0f), x), near = __fmaf_rn(x, p, x);
    // Both, then one of them: in branches of its own the compiler fetches every constant anew.
    asm("{.reg .pred p; setp.ge.f32 p, %1, 0f3F19999A; selp.f32 %0, %2, %3, p;}" : "=f"(e) : "f"(fabsf(x)), "f"(far), "f"(near));
    return e;
}

/// act(x); NaN gives 0 for relu and srelu.
template <int F>
__device__ __forceinline__ float act(float x) {
    if (F == GELU) {
        const float inner = __fadd_rn(0.79788456f, __fmul_rn(__fmul_rn(0.03567741f, x), x));
        return __fmul_rn(x, __fmaf_rn(0.5f, tanh_of(__fmul_rn(x, inner)), 0.5f));  // half of a number is exact
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
        // RN(RN(x/2 RN(RN(1 - RN(t t)) poly)) + RN(1 + t)/2): halves are exact, so 1 - t t is halved in x's place and the last in a fused step.
        const float t = tanh_of(__fmul_rn(__fmul_rn(0.79788456f, x), __fadd_rn(1.0f, __fmul_rn(__fmul_rn(0.044715f, x), x))));
        const float poly = __fadd_rn(0.79788456f, __fmul_rn(__fmul_rn(0.1070322243f, x), x));
        const float first = __fmul_rn(x, __fmul_rn(__fmaf_rn(-0.5f, __fmul_rn(t, t), 0.5f), poly));
        return __fmaf_rn(0.5f, __fadd_rn(1.0f, t), first);
    }
    if (F == SILU || F == QGELU) {
        const float z = F == SILU ? x : __fmul_rn(1.702f, x), s = sigmoid(z);
        return __fadd_rn(__fmul_rn(z, sigmoid_slope(s)), s);
    }
    if (F == RELU) return x > 0.0f ? 1.0f : 0.0f;
    return fmaxf(__fmul_rn(2.0f, x), 0.0f);
}
