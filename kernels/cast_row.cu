// FP8 with a scale a row, chosen from the row's own amax, in one reading of the row.
//
// Options (-D): IN F16, BF16 (default), F32;  FORMAT E4M3 (default), E5M2;  RULE (common/scale_rule.cuh) TORCHAO, with POW2
//   (rowwise), or TORCHAO_INFERENCE (by row); NaN wins in amax
// codes = Qsat(RN32(x * s)) (TORCHAO_INFERENCE: Qsat(RN32(x / scale_inv))); scale_inv is written beside.
//
// cast_row(const void* x, u8* codes, float* scale_inv, int rows, int cols): scale_inv[rows]. grid rows, block 256. CHUNKS (-D, 4) times
//   2048 elements of a row stay in registers, the rest of a longer row is read twice.
// x 16-byte, codes 8-byte aligned; rows, cols > 0. Columns that are no multiple of 8 are read one by one.
#include "common/scale_rule.cuh"

#ifndef IN
#define IN BF16
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif
#ifndef CHUNKS
#define CHUNKS 4
#endif
constexpr int THREADS = 256;

/// Eight elements of the row that begins at `start`, from column `col`; zeros past its end.
__device__ __forceinline__ void load_eight(Eight<IN>& v, const void* x, long long start, int col, int cols) {
    if (cols % 8 == 0) {
        if (col < cols) v.load(x, start + col);
        else v.zero();
    } else {
        v.load_some(x, start + col, cols - col);
    }
}
__device__ __forceinline__ void store_eight(u8* codes, uint2 eight, long long start, int col, int cols) {
    if (cols % 8 == 0) {
        if (col < cols) store8(codes + start + col, eight);
    } else {
        store_some(codes, start + col, eight, cols - col);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) cast_row(const void* x, u8* codes, float* scale_inv, int rows, int cols) {
    __shared__ u32 shared[THREADS / 32];
    __shared__ Scale chosen;
    const long long start = (long long)blockIdx.x * cols;
    const int first = 8 * threadIdx.x, step = 8 * THREADS;
    Eight<IN> v[CHUNKS];
    Largest<IN, true> largest;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) load_eight(v[i], x, start, first + i * step, cols);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) largest.take(v[i]);
    for (int col = first + CHUNKS * step; col < cols; col += step) {
        Eight<IN> rest;
        load_eight(rest, x, start, col, cols);
        largest.take(rest);
    }
    const u32 amax = block_max(largest.bits(), shared);
    if (threadIdx.x == 0) {
        chosen = scale_of<IN, FORMAT>(__uint_as_float(amax));
        scale_inv[blockIdx.x] = chosen.inverse;
    }
    __syncthreads();
    const Scale s = chosen;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) store_eight(codes, s.codes<FORMAT>(v[i]), start, first + i * step, cols);
    for (int col = first + CHUNKS * step; col < cols; col += step) {
        Eight<IN> rest;
        load_eight(rest, x, start, col, cols);
        store_eight(codes, s.codes<FORMAT>(rest), start, col, cols);
    }
}
