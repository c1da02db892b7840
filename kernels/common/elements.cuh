// Rows of values in f32 to what a kernel writes, eight neighbours at a time: FP8 codes by a scale, or f16, bf16, f32.
//
// IN: F16, BF16, F32. OUT: those, E4M3, E5M2. A row of `cols` elements is ceil(cols / 8) eights, the last one short;
// eights of whole rows (cols % 8 == 0) are read and written 16 bytes at a time, others element by element.
#pragma once
#include "common/fp8_cast.cuh"

/// One eight of a row: where it starts in its row-major matrix, and how many of it exist (at most 0: none).
struct Place {
    long long at;
    int count;
    bool whole;  // all eight, at a multiple of 8

    template <int T>
    __device__ __forceinline__ void load(Eight<T>& x, const void* from) const {
        if (whole) x.load(from, at);
        else x.load_some(from, at, count);
    }
    /// Q(RN32(v * scale)) with saturation, or RN(v).
    template <int O>
    __device__ __forceinline__ void store(void* d, const float (&v)[8], float scale) const {
        if constexpr (is_fp8(O)) {
            const uint2 codes = fp8_eight<O>(v, scale);
            if (whole) store8((u8*)d + at, codes);
            else store_some((u8*)d, at, codes, count);
        } else if constexpr (O == F32) {
            if (whole) {
#pragma unroll
                for (int i = 0; i < 8; i += 4) {
                    const u32 w[4] = {__float_as_uint(v[i]), __float_as_uint(v[i + 1]), __float_as_uint(v[i + 2]), __float_as_uint(v[i + 3])};
                    store16((float*)d + at + i, make_uint4(w[0], w[1], w[2], w[3]));
                }
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    if (i < count) ((float*)d)[at + i] = v[i];
                }
            }
        } else {
            u32 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) w[i] = O == BF16 ? pack_bf16(v[2 * i], v[2 * i + 1]) : pack_f16(v[2 * i], v[2 * i + 1]);
            if (whole) {
                store16((u16*)d + at, make_uint4(w[0], w[1], w[2], w[3]));
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    if (i < count) ((u16*)d)[at + i] = (u16)(w[i / 2] >> (16 * (i & 1)));
                }
            }
        }
    }
};

/// The larger of `amax` and |v|, NaN dropped. Elements that do not exist must be 0.
__device__ __forceinline__ float larger_of(float amax, const float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) amax = larger(amax, v[i]);
    return amax;
}
