// FP8 with a scale a row, or a scale for 128 neighbours of a row (1x128), chosen from their own amax; written by rows only.
//
// Options (-D): IN 0 f16, 1 bf16 (default), 2 f32;  FORMAT 0 e4m3 (default), 1 e5m2;  RULE, POW2, BLOCKS as in common/scale_rule.cuh:
//   rows 2, 3 (torchao rowwise, inference by row);  1x128 1 with BLOCKS 1 (Transformer Engine), 4 (DeepGEMM)
// codes = Q(RN32(x * s)) (rule 3: Q(RN32(x / scale_inv))), the scale that of the group's largest magnitude; a short last group is a
// group of its own. scale_inv is written beside.
//
// cast_row(const void* x, u8* codes, float* scale_inv, int rows, int cols): scale_inv[rows]. grid rows, block 256. CHUNKS (-D, 4) times
//   2048 elements of a row stay in registers, the rest of a longer row is read twice.
// cast_line(const void* x, u8* codes, float* scale_inv, int rows, int cols, int pitch_row, int pitch_group): scale_inv of row r, group g
//   at r*pitch_row + g*pitch_group (row-major: ceil(cols/128), 1; as cuBLAS reads them: 1, rows rounded up to 4). EACH (-D, 4) groups
//   for 16 lanes. grid ceil(rows*ceil(cols/128) / (16*EACH)), block 256.
// cast_row_naive, cast_line_naive: the same arguments, a thread a row (group), grid ceil(count/256), block 256: the definitions.
// x 16-byte, codes 8-byte aligned; rows, cols > 0; groups below 2^31. Columns that are no multiple of 8 are read one by one.
#include "common/scale_rule.cuh"

#ifndef IN
#define IN 1
#endif
#ifndef FORMAT
#define FORMAT 0
#endif
#ifndef CHUNKS
#define CHUNKS 4
#endif
#ifndef EACH
#define EACH 4
#endif
constexpr int THREADS = 256, GROUP = 128, LANES = GROUP / 8;
constexpr bool NAN_WINS = RULE >= 2;

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
    Largest<IN, NAN_WINS> largest;
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

extern "C" __global__ void __launch_bounds__(THREADS)
    cast_line(const void* x, u8* codes, float* scale_inv, int rows, int cols, int pitch_row, int pitch_group) {
    const int groups = ceil_div(cols, GROUP), count = rows * groups, lane = threadIdx.x % LANES;
    const int first = (int)blockIdx.x * EACH * (THREADS / LANES) + (int)threadIdx.x / LANES;
    Eight<IN> v[EACH];
    int row[EACH], group[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = first + i * (THREADS / LANES);
        row[i] = at / groups, group[i] = at % groups;
        if (at < count) load_eight(v[i], x, (long long)row[i] * cols, group[i] * GROUP + 8 * lane, cols);
        else v[i].zero();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        Largest<IN, NAN_WINS> largest;
        largest.take(v[i]);
#pragma unroll
        for (int step = LANES / 2; step; step /= 2) largest.take(__shfl_xor_sync(~0u, largest.pair, step));
        const Scale s = scale_of<IN, FORMAT>(__uint_as_float(largest.bits()));
        if (first + i * (THREADS / LANES) >= count) continue;
        store_eight(codes, s.codes<FORMAT>(v[i]), (long long)row[i] * cols, group[i] * GROUP + 8 * lane, cols);
        if (lane == 0) scale_inv[(long long)row[i] * pitch_row + (long long)group[i] * pitch_group] = s.inverse;
    }
}

/// The `count` elements from `start` by one scale.
__device__ void cast_naive(const void* x, u8* codes, float* scale_inv, long long start, int count) {
    u32 amax = 0;
    for (int i = 0; i < count; i++) {
        const float v = element<IN>(x, start + i);
        if (NAN_WINS || v == v) amax = max(amax, __float_as_uint(v) & MAGNITUDE);
    }
    const Scale s = scale_of<IN, FORMAT>(__uint_as_float(amax));
    for (int i = 0; i < count; i++) codes[start + i] = (u8)fp8_pair<FORMAT>(s.scaled(element<IN>(x, start + i)), 0.0f);
    *scale_inv = s.inverse;
}
extern "C" __global__ void cast_row_naive(const void* x, u8* codes, float* scale_inv, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) cast_naive(x, codes, scale_inv + row, (long long)row * cols, cols);
}
extern "C" __global__ void cast_line_naive(const void* x, u8* codes, float* scale_inv, int rows, int cols, int pitch_row, int pitch_group) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, groups = ceil_div(cols, GROUP), row = at / groups, group = at % groups;
    if (row >= rows) return;
    float* inverse = scale_inv + (long long)row * pitch_row + (long long)group * pitch_group;
    cast_naive(x, codes, inverse, (long long)row * cols + group * GROUP, min(GROUP, cols - group * GROUP));
}
