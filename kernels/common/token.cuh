// int8 per token, symmetric: the arithmetic of one scale and of one code, shared by the quantizer and by w4a8.
// T, S: types of the numbers and of the scale (F16, BF16, F32); an operation on two types is in f32.
#pragma once
#include "common/intmma.cuh"

/// The larger of each 16-bit half, as unsigned integers: of magnitudes, with NaN above Inf.
__device__ __forceinline__ u32 max_pair(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
    u32 d;
    asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
#else
    return max(a & 0xffff, b & 0xffff) | max(a & 0xffff0000u, b & 0xffff0000u);
#endif
}

/// max(RN_T(amax / 127), RN_T(1e-5)); NaN stays.
template <int T>
__device__ __forceinline__ float token_scale(float amax) {
    const float scale = round_to<T>(__fdiv_rn(amax, 127.0f)), eps = round_to<T>(1e-5f);
    return scale < eps ? eps : scale;
}

/// clamp(round(RN(x * inverse)), -127, 127) in the low byte, inverse = RN_S(1 / scale); ties to even; NaN gives 0.
template <int T, int S>
__device__ __forceinline__ u32 token_code(float x, float inverse) {
    const float p = round_to<T == S ? T : F32>(__fmul_rn(x, inverse));
    // Clamping first gives the same code; 1.5 * 2^23 + p is rounded to an integer, whose low byte is the code.
    const float clamped = p != p ? 0.0f : fmaxf(fminf(p, 127.0f), -127.0f);
    return __float_as_uint(__fadd_rn(clamped, 12582912.0f));
}

__device__ __forceinline__ u32 low_bytes(u32 a, u32 b, u32 c, u32 d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}
template <int T>
__device__ __forceinline__ float low_half(u32 v) {
    return T == F16 ? f16_to_f32((u16)v) : __uint_as_float(v << 16);
}
template <int T>
__device__ __forceinline__ float high_half(u32 v) {
    return T == F16 ? f16_to_f32((u16)(v >> 16)) : __uint_as_float(v & 0xffff0000u);
}
/// Codes of four 16-bit numbers.
template <int T, int S>
__device__ __forceinline__ u32 token_code4(u32 a, u32 b, float inverse) {
    return low_bytes(token_code<T, S>(low_half<T>(a), inverse), token_code<T, S>(high_half<T>(a), inverse),
                     token_code<T, S>(low_half<T>(b), inverse), token_code<T, S>(high_half<T>(b), inverse));
}
