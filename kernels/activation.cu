// Activations, their gradients and the gated forms: v in f32, amax, FP8 codes or a 16-bit or 32-bit result, in one pass.
//
// Options (-D): OP ACTIVATION v = act(x), ACTIVATION_GRADIENT v = act'(x) * g, GATED v = act(x[a]) * x[b] with rows [a | b];  ACT of
//   common/act.cuh;  IN, OUT as common/elements.cuh;  EACH eights a thread (4).
//
// activation(const void* x, const void* g, void* d, const float* scale, float* amax, float* scale_inv, long long rows, long long cols)
//   x [rows, cols] (GATED: [rows, 2*cols]), g [rows, cols] (of a gradient, else null), d [rows, cols], row-major, contiguous, bases at multiples of
//   16; but for GATED: rows 1, cols all elements. FP8: d = Qsat(RN32(v * *scale)), *amax raised to max |v| (NaN dropped; the host sets it to 0
//   before), *scale_inv = RN32(1 / *scale), written also where there is no element; a null scale is 1, a null amax or scale_inv is
//   skipped. Others: d = RN(v); scale, amax, scale_inv unused.
//   grid ceil(rows * ceil(cols/8) / (EACH*256)), at least 1; block 256; fewer than 2^31 elements.
#include "common/act.cuh"
#include "common/elements.cuh"

#ifndef OP
#define OP GATED
#endif
#ifndef ACT
#define ACT SILU
#endif
#ifndef IN
#define IN BF16
#endif
#ifndef OUT
#define OUT E4M3
#endif
#ifndef EACH
#define EACH 4
#endif
constexpr int THREADS = 256;

/// v of one element: x, and g or the gate.
__device__ __forceinline__ float value(float x, float y) {
    if (OP == ACTIVATION) return act<ACT>(x);
    return __fmul_rn(OP == ACTIVATION_GRADIENT ? act_slope<ACT>(x) : act<ACT>(x), y);
}

/// The scale, and its reciprocal to memory.
__device__ __forceinline__ float take_scale(const float* scale, float* scale_inv) {
    if (!is_fp8(OUT)) return 1.0f;
    const float s = scale_or_one(scale);
    if (blockIdx.x == 0 && threadIdx.x == 0) write_scale_inv(scale_inv, s);
    return s;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    activation(const void* x, const void* g, void* d, const float* scale, float* amax, float* scale_inv, long long rows, long long cols) {
    __shared__ u32 shared[THREADS / 32];
    const u32 width = (u32)((cols + 7) / 8), eights = (u32)rows * width;
    Eight<IN> a[EACH], b[OP == ACTIVATION ? 1 : EACH];
    Place out[EACH];
    const u32 start = blockIdx.x * (EACH * THREADS) + threadIdx.x;
    u32 row = OP == GATED ? start / width : 0, at = start - row * width;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 e = start + i * THREADS, col = at * 8;
        const int count = e < eights ? (int)min(cols - col, 8ll) : 0;
        const bool whole = count == 8 && (OP != GATED || cols % 8 == 0);
        out[i] = {row * cols + col, count, whole};
        const Place first = {OP == GATED ? 2 * row * cols + col : col, count, whole};
        first.load(a[i], x);
        if (OP == ACTIVATION_GRADIENT) first.load(b[i], g);
        if (OP == GATED) Place{first.at + cols, count, whole}.load(b[i], x);
        at += THREADS;
        if (OP == GATED && at >= width) row += at / width, at %= width;
    }
    const float s = take_scale(scale, scale_inv);
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = value(a[i][j], OP == ACTIVATION ? 0.0f : b[i][j]);
        if (is_fp8(OUT)) largest = larger_of(largest, v);  // v(0, 0) is 0
        out[i].store<OUT>(d, v, s);
    }
    if (is_fp8(OUT)) raise_amax(amax, __float_as_uint(largest), shared);
}
