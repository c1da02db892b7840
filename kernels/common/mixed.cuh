// Integer weights to f16 or bf16 in registers, as the mixed-input GEMMs define them (mixed_gemm.cu): options WEIGHT INT4, UINT4, INT8;
// IN F16, BF16; ZERO NONE, ADDITIVE, INTEGER_8; MID.
#pragma once
#include "common/int4.cuh"

#ifndef WEIGHT
#define WEIGHT INT4
#endif
#ifndef IN
#define IN F16
#endif
#ifndef ZERO
#define ZERO NONE
#endif
#ifndef MID
#define MID 0
#endif

__device__ __forceinline__ u32 fma16(u32 x, u32 y, u32 z) { return IN == F16 ? fma_f16(x, y, z) : fma_bf16(x, y, z); }
__device__ __forceinline__ u32 integer16(int i) { return twice(IN == F16 ? f32_to_f16((float)i) : f32_to_bf16((float)i)); }
__device__ __forceinline__ void mma16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    if (IN == F16) mma_f16(c, a0, a1, a2, a3, b0, b1);
    else mma_bf16(c, a0, a1, a2, a3, b0, b1);
}
/// RN(q*s), and + z.
__device__ __forceinline__ u32 scaled(u32 q, u32 s, u32 z) {
    const u32 w = fma16(q, s, MINUS_ZERO);
    return ZERO == ADDITIVE ? fma16(w, IN == F16 ? F16_ONE : BF16_ONE, z) : w;
}
/// What is taken off the codes: an integer zero point is the upper half of `scale`.
__device__ __forceinline__ int minus_of(u32 scale) { return ZERO == INTEGER_8 ? (s32)scale >> 16 : ZERO == ADDITIVE ? MID : 0; }

/// The weights of a word of eight 4-bit codes, pairs (0, 4), (1, 5), (2, 6), (3, 7) of its nibbles. `scale`: the scale, in the upper half
/// the zero point.
__device__ __forceinline__ void word_to_weights(u32 (&w)[4], u32 word, u32 scale) {
    const u32 s = __byte_perm(scale, 0, 0x1010), z = __byte_perm(scale, 0, 0x3232);
    const int offset = (WEIGHT == INT4 ? 8 : 0) + minus_of(scale);
    u32 q[4];
    nibbles_to_16bit<IN == BF16, WEIGHT == INT4>(q, word, integer16(-(IN == F16 ? 1024 : 128) - offset), integer16(-64 - offset));
#pragma unroll
    for (int h = 0; h < 4; h++) w[h] = scaled(q[h], s, z);
}
