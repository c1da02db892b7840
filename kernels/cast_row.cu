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
//   at r*pitch_row + g*pitch_group (row-major: ceil(cols/128), 1; as cuBLAS reads them: 1, rows rounded up to 4). 8 groups
//   for 16 lanes. grid ceil(rows*ceil(cols/128) / 128), block 256.
// cast_row_naive, cast_line_naive: the same arguments, a thread a row (group), grid ceil(count/256), block 256: the definitions.
// x 16-byte, codes 8-byte aligned; rows, cols > 0; groups below 2^31. Columns that are no multiple of 8 are read one by one.
#include "common/eight_rows.cuh"
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
    typedef EightRows<LANES> Rows;
    constexpr int STEP = THREADS / LANES;
    const int groups = ceil_div(cols, GROUP), count = rows * groups, first = (int)blockIdx.x * 8 * STEP + (int)threadIdx.x / LANES;
    // Group i of the thread is `first + i*STEP`: the eights of a step are neighbours.
    const auto start = [&](int at) { return (long long)(at / groups) * cols; };
    const auto column = [&](int at) { return at % groups * GROUP + 8 * (int)(threadIdx.x % LANES); };
    Eight<IN> v[8];
    Largest<IN, NAN_WINS> largest[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = first + i * STEP;
        if (at < count) load_eight(v[i], x, start(at), column(at), cols);
        else v[i].zero();
    }
#pragma unroll
    for (int i = 0; i < 8; i++) largest[i].take(v[i]);
    Rows::reduce(largest);
    const Scale mine = scale_of<IN, FORMAT>(__uint_as_float(largest[0].bits()));
    const int own = first + Rows::first() * STEP;
    if (Rows::writes() && own < count) scale_inv[(long long)(own / groups) * pitch_row + (long long)(own % groups) * pitch_group] = mine.inverse;
    const float scale[1] = {RULE == 3 ? mine.inverse : mine.scale};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = first + i * STEP;
        const float s = Rows::of(scale, i);
        if (at < count) store_eight(codes, Scale{s, s}.codes<FORMAT>(v[i]), start(at), column(at), cols);
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
