// Casts by one scale a tensor that also write the transposed codes: one tensor, several in a launch, and with the sums of the columns.
//
// Options (-D): IN F16, BF16 (default), F32;  FORMAT E4M3 (default), E5M2;  RULE, POW2 as in common/scale_rule.cuh, but DEEPGEMM:
//   GIVEN the scale is given (null: 1); amax[1] is raised to max |x|, NaN dropped; code = Qsat(RN32(x * scale))
//   the others: the scale is that of amax[1], which `tensor_amax` of cast.cu has computed before
// scale_inv[1] = RN32(1 / scale) (TORCHAO_INFERENCE: its own), written by the tensor's first tile. scale, amax and scale_inv serve both copies; amax
// (GIVEN) and scale_inv may be null. dbias sums x in f32: each column in bands of 64 rows in order, then the bands in order, from +0.
//
// cast_transpose(const void* x, u8* codes, u8* turned, const float* scale, float* amax, float* scale_inv, const float* noop, int rows, int
//   cols): codes [rows, cols], turned [cols, rows]. grid tiles = ceil(rows/128) * ceil(cols/TILE_COLS), block 2*TILE_COLS. noop[0] == 1: nothing is
//   written at all; null is 0.
// cast_transpose_dbias(the same, float* sums): and sums[ceil(rows/64), cols], the sums of the bands.
// multi_cast_transpose(const Matrix* list, int count): grid the sum of all tiles, block 2*TILE_COLS; Matrix.first is the tile its own begin at,
//   ascending from 0, and no matrix is empty.
// dbias_total(const float* sums, void* dbias, int bands, int cols): dbias[cols] of type IN. grid ceil(cols/32), block 256.
// WHOLE as in common/tile.cuh, for every matrix. x 16-byte, codes 8-byte, turned 16-byte aligned; rows, cols > 0, rows*cols < 2^40.
#include "common/scale_rule.cuh"
#ifndef TILE_COLS
#define TILE_COLS 64
#endif
#include "common/tile.cuh"

#ifndef IN
#define IN BF16
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif
#ifndef TILES
#define TILES ((IN == F32 || !WHOLE ? 4 : 5) * 64 / TILE_COLS)  // blocks an SM, at least
#endif

struct Matrix {
    const void* x;
    u8* codes;
    u8* turned;
    const float* scale;
    float* amax;
    float* scale_inv;
    int rows, cols, first;
};

__device__ __forceinline__ Scale scale_for(const Matrix& m) { return RULE == GIVEN ? Scale::given(scale_or_one(m.scale)) : scale_of<IN, FORMAT>(*m.amax); }

struct Shared {
    alignas(16) u8 turned[TILE_BYTES];
    u32 warps[TILE_THREADS / 32];
    Scale scale;
};

/// One tile of `m`; its elements as they are to `rows` (put_row), if there is one.
template <bool ROWS>
__device__ __forceinline__ void cast_tile(const Matrix& m, const TilePlace& p, Shared& shared, u8* rows) {
    Eight<IN> v[8];
    load_tile(v, m.x, p);
    if (threadIdx.x == 0) {
        shared.scale = scale_for(m);
        if (m.scale_inv && p.row0 == 0 && p.col0 == 0) *m.scale_inv = shared.scale.inverse;
    }
    __syncthreads();
    const Scale s = shared.scale;
    uint2 codes[8];
    Largest<IN, false> largest;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (RULE == GIVEN) largest.take(v[i]);
        if constexpr (ROWS) put_row<IN>(rows, i, v[i].word);
        codes[i] = s.codes<FORMAT>(v[i]);
    }
    store_tile(m.codes, codes, p);
    put_turned(shared.turned, codes);
    if (RULE == GIVEN && m.amax) {
        const u32 bits = warp_max(largest.bits());
        if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = bits;
    }
    __syncthreads();
    store_turned(m.turned, shared.turned, p);
    if (RULE == GIVEN && m.amax && threadIdx.x < 32) {
        const u32 bits = warp_max(threadIdx.x < TILE_THREADS / 32 ? shared.warps[threadIdx.x] : 0);
        if (threadIdx.x == 0) atomicMax((u32*)m.amax, bits);
    }
}

__device__ __forceinline__ TilePlace place(const Matrix& m, int tile) {
    const int across = ceil_div(m.cols, TILE_COLS);
    return {m.rows, m.cols, tile / across * TILE, tile % across * TILE_COLS};
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILES)
    cast_transpose(const void* x, u8* codes, u8* turned, const float* scale, float* amax, float* scale_inv, const float* noop, int rows, int cols) {
    __shared__ Shared shared;
    const Matrix m = {x, codes, turned, scale, amax, scale_inv, rows, cols, 0};
    if (noop && *noop == 1.0f) return;
    cast_tile<false>(m, place(m, blockIdx.x), shared, nullptr);
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILES) multi_cast_transpose(const Matrix* list, int count) {
    __shared__ Shared shared;
    int from = 0, to = count;  // the last whose tiles begin at or before this one
    while (to - from > 1) {
        const int middle = (from + to) / 2;
        if (list[middle].first <= (int)blockIdx.x) from = middle;
        else to = middle;
    }
    const Matrix m = list[from];
    cast_tile<false>(m, place(m, blockIdx.x - m.first), shared, nullptr);
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILES)
    cast_transpose_dbias(const void* x, u8* codes, u8* turned, const float* scale, float* amax, float* scale_inv, const float* noop, int rows, int cols,
                         float* sums) {
    __shared__ Shared shared;
    __shared__ alignas(16) u8 all_rows[TILE_BYTES * bytes_of(IN)];
    const Matrix m = {x, codes, turned, scale, amax, scale_inv, rows, cols, 0};
    if (noop && *noop == 1.0f) return;
    const TilePlace p = place(m, blockIdx.x);
    cast_tile<true>(m, p, shared, all_rows);
    band_sums<IN>(sums, all_rows, p);
}

extern "C" __global__ void dbias_total(const float* sums, void* dbias, int bands, int cols) { total_of_bands<IN>(sums, dbias, bands, cols); }
