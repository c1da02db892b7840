// Row and column scales of each group of tokens from `offs` on the device, and FP8 codes by them: what feeds
// grouped_gemm.cu, with nothing for the host to wait for.
//
// Options (-D): IN F16, BF16, F32;  FORMAT E4M3, E5M2;  RULE, POW2 of common/scale_rule.cuh (TORCHAO);
//   WHOLE of common/tile.cuh (rows: tokens).
//
// offs (int32[groups], device): cumulative END tokens; group e holds tokens offs[e-1] .. offs[e]-1 (offs[-1] = 0), none where it does not
// grow; offs[groups-1] <= tokens. A scale is that of amax = max |x| (NaN wins) over the group's tokens of one row, of zeros where there are
// none; code = Qsat(RN32(x * scale)), scale_inv = RN32(1 / scale).
//
// group_rows(const void* x, u8* codes, float* scale_inv, const int* offs, int groups, int rows, int tokens, int pitch)
//   x [rows, tokens], tokens contiguous (one group over K: the row-wise cast of the forward product); codes [rows, pitch]; scale_inv
//   [groups, rows]. Codes of tokens past the last group are not written. grid (rows, groups), block 128.
//
// The same from x [tokens, cols] as training has it, with transposed codes [cols, pitch] and scale_inv [groups, cols], in three launches:
// group_columns_amax(const void* x, float* amax, const int* offs, int groups, int tokens, int cols)
//   raises amax[groups, cols], which the host sets to 0. grid (ceil(cols/1024), ceil(tokens/32)), block 128.
// group_columns_scale(float* amax, float* scale_inv, int n)
//   replaces amax by the scale, writes scale_inv, of n = groups*cols. grid ceil(n/128), block 128.
// group_columns(const void* x, u8* codes, const float* scale, const int* offs, int groups, int tokens, int cols, int pitch)
//   codes past the last group are 0, up to the pitch. grid ceil(tokens/128) * ceil(cols/128), block 256.
//
// Refuse: pitch < tokens or no multiple of 16; bases that are no multiples of 16; 2^31 elements or more; groups < 1.
#ifndef RULE
#define RULE TORCHAO
#endif
#include "common/scale_rule.cuh"
#include "common/tile.cuh"

#ifndef IN
#define IN BF16
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif
constexpr int THREADS = 128, BAND = 32;

__device__ __forceinline__ int group_start(const int* offs, int e) { return e ? offs[e - 1] : 0; }
/// The group of token t: the first whose end is past it; `groups` if none is.
__device__ __forceinline__ int group_of(const int* offs, int groups, int t) {
    int low = 0, high = groups;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (offs[middle] > t) high = middle;
        else low = middle + 1;
    }
    return low;
}

/// The eight at token `t` (a multiple of 8) of a row that begins at `start`, those outside from..to as zeros.
__device__ __forceinline__ Eight<IN> fetch(const void* x, long long start, int t, int from, int to, int tokens) {
    Eight<IN> v;
    if (t >= from && t + 8 <= to && tokens % 8 == 0) {
        v.load(x, start + t);
        return v;
    }
    v.zero();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (t + i < from || t + i >= to) continue;
        if (IN == F32) v.word[i % (IN == F32 ? 8 : 4)] = ((const u32*)x)[start + t + i];
        else v.word[i / 2] |= (u32)((const u16*)x)[start + t + i] << (16 * (i & 1));
    }
    return v;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    group_rows(const void* x, u8* codes, float* scale_inv, const int* offs, int groups, int rows, int tokens, int pitch) {
    __shared__ u32 shared[THREADS / 32];
    __shared__ Scale chosen;
    const int row = blockIdx.x, e = blockIdx.y, from = group_start(offs, e), to = offs[e];
    const long long start = (long long)row * tokens;
    const int first = from / 8 * 8 + 8 * threadIdx.x;
    Largest<IN, true> largest;
    for (int t = first; t < to; t += 8 * THREADS) largest.take(fetch(x, start, t, from, to, tokens));
    const u32 amax = block_max(largest.bits(), shared);
    if (threadIdx.x == 0) {
        chosen = scale_of<IN, FORMAT>(__uint_as_float(amax));
        scale_inv[(long long)e * rows + row] = chosen.inverse;
    }
    __syncthreads();
    const Scale s = chosen;
    u8* const out = codes + (long long)row * pitch;
    for (int t = first; t < to; t += 8 * THREADS) {
        const uint2 eight = s.codes<FORMAT>(fetch(x, start, t, from, to, tokens));
        if (t >= from && t + 8 <= to) {
            store8(out + t, eight);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                if (t + i >= from && t + i < to) out[t + i] = (u8)((i < 4 ? eight.x : eight.y) >> (8 * (i % 4)));
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    group_columns_amax(const void* x, float* amax, const int* offs, int groups, int tokens, int cols) {
    const int column = 8 * (blockIdx.x * THREADS + threadIdx.x), count = min(cols - column, 8), begin = blockIdx.y * BAND, last = min(tokens, begin + BAND);
    if (count <= 0) return;
    for (int e = group_of(offs, groups, begin); e < groups && group_start(offs, e) < last; e++) {
        const int from = max(begin, group_start(offs, e)), to = min(last, offs[e]);
        u32 largest[8] = {};
        for (int t0 = from; t0 < to; t0 += 8) {
            Eight<IN> v[8];
#pragma unroll
            for (int r = 0; r < 8; r++) {
                const long long at = (long long)min(t0 + r, to - 1) * cols + column;  // past the end: the last again changes nothing
                if (cols % 8 == 0) v[r].load(x, at);
                else v[r].load_some(x, at, count);
            }
#pragma unroll
            for (int i = 0; i < 64; i++) largest[i % 8] = max(largest[i % 8], __float_as_uint(v[i / 8][i % 8]) & MAGNITUDE);
        }
#pragma unroll
        for (int c = 0; c < 8; c++) {
            if (from < to && c < count) atomicMax((u32*)amax + (long long)e * cols + column + c, largest[c]);
        }
    }
}

extern "C" __global__ void group_columns_scale(float* amax, float* scale_inv, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Scale s = scale_of<IN, FORMAT>(amax[i]);
    amax[i] = s.scale;
    scale_inv[i] = s.inverse;
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    group_columns(const void* x, u8* codes, const float* scale, const int* offs, int groups, int tokens, int cols, int pitch) {
    __shared__ alignas(16) u8 turned[TILE_BYTES];
    const int across = ceil_div(cols, TILE), row0 = (int)blockIdx.x / across * TILE, col0 = (int)blockIdx.x % across * TILE;
    const TilePlace p = {tokens, cols, row0, col0};
    Eight<IN> v[8];
    load_tile(v, x, p);
    int e = group_of(offs, groups, p.row()), end = p.row();
    float s[8] = {};
    uint2 out[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int t = p.row() + i;
        if (t >= end) {
            while (e < groups && offs[e] <= t) e++;
            end = e < groups ? offs[e] : 0x7fffffff;
#pragma unroll
            for (int c = 0; c < 8; c++) s[c] = e < groups && p.col() + c < cols ? __ldg(scale + (long long)e * cols + p.col() + c) : 0.0f;
        }
        float y[8];
#pragma unroll
        for (int c = 0; c < 8; c++) y[c] = __fmul_rn(v[i][c], s[c]);
        out[i] = make_uint2(fp8_four<FORMAT>(y[0], y[1], y[2], y[3]), fp8_four<FORMAT>(y[4], y[5], y[6], y[7]));
        if (e == groups) out[i] = make_uint2(0, 0);
    }
    put_turned(turned, out);
    __syncthreads();
    store_turned(codes, turned, {pitch, cols, row0, col0});
}
