// FP8 with block scales and the transposed copy: 128x128 (one scale for both copies), or 1x128 of each copy's own rows.
//
// Options (-D): IN F16, BF16 (default), F32;  FORMAT E4M3 (default), E5M2;  RULE TE or DEEPGEMM, POW2, BLOCKS 1 (common/scale_rule.cuh);
//   WHOLE (common/tile.cuh);  SQUARE 1 (default): a scale for 128x128; 0: for 1x128 of `codes` and for 128 rows of a column, 1x128 of
//   `turned`: both copies are quantized from x, as Transformer Engine does. A cut block is a block of its own.
//
// cast_block(const void* x, u8* codes, u8* turned, float* scale_inv, float* turned_inv, int rows, int cols): codes [rows, cols], turned
//   [cols, rows] or null (casts alone). SQUARE 1: scale_inv[ceil(rows/128), ceil(cols/128)], turned_inv unused. SQUARE 0: scale_inv[rows,
//   ceil(cols/128)], turned_inv[cols, ceil(rows/128)]. grid ceil(rows/128)*ceil(cols/128), block 256.
// x 16-byte, codes 8-byte, turned 16-byte aligned; rows, cols > 0.
#include "common/eight_rows.cuh"
#include "common/scale_rule.cuh"
#include "common/tile.cuh"

#ifndef IN
#define IN BF16
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif
#ifndef SQUARE
#define SQUARE 1
#endif
#ifndef TILES
#define TILES (IN == F32 ? 1 : SQUARE ? 3 : 2)  // blocks an SM, at least
#endif
constexpr int WORDS = sizeof(Eight<IN>) / 4;
typedef Largest<IN, NAN_WINS> Amax;

struct Shared {
    alignas(16) u8 turned[TILE_BYTES];
    u32 warps[TILE_THREADS / 32];
    u32 columns[TILE_THREADS / 32][16][WORDS];  // SQUARE 0: largest of a warp's 16 rows, as Largest packs them
    float scale[TILE];                          // SQUARE 0: of the columns
    Scale chosen;
};

/// Codes of the thread's rows, each by the scale of its 128 columns.
__device__ __forceinline__ void row_codes(uint2 (&codes)[8], const Eight<IN> (&v)[8], const TilePlace& p, float* scale_inv) {
    typedef EightRows<16> Rows;
    Amax largest[8];
#pragma unroll
    for (int i = 0; i < 8; i++) largest[i].take(v[i]);
    Rows::reduce(largest);
    const Scale mine = scale_of<IN, FORMAT>(__uint_as_float(largest[0].bits()));
    const int row = p.row() + Rows::first();
    if (Rows::writes() && row < p.rows) store_scale(scale_inv + (long long)row * ceil_div(p.cols, TILE) + p.col0 / TILE, mine.inverse);
    const float scale[1] = {mine.scale};
#pragma unroll
    for (int i = 0; i < 8; i++) codes[i] = Scale{Rows::of(scale, i), 0.0f}.codes<FORMAT>(v[i]);
}

/// Codes of the thread's rows by the scales of their columns.
__device__ __forceinline__ void column_codes(uint2 (&codes)[8], const Eight<IN> (&v)[8], const TilePlace& p, float* turned_inv, Shared& shared) {
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        Amax largest;
#pragma unroll
        for (int i = 0; i < 8; i++) largest.take(v[i].word[k]);
        largest.take(__shfl_xor_sync(~0u, largest.pair, 16));
        if (threadIdx.x % 32 < 16) shared.columns[threadIdx.x / 32][threadIdx.x % 16][k] = largest.pair;
    }
    __syncthreads();
    if (threadIdx.x < TILE) {
        const int c = threadIdx.x, k = IN == F32 ? c % 8 : c % 8 / 2;
        Amax largest;
#pragma unroll
        for (int w = 0; w < TILE_THREADS / 32; w++) largest.take(shared.columns[w][c / 8][k]);
        if (IN != F32) largest.pair = c & 1 ? largest.pair >> 16 : largest.pair & 0xffff;
        const Scale s = scale_of<IN, FORMAT>(__uint_as_float(largest.bits()));
        shared.scale[c] = s.scale;
        if (p.col0 + c < p.cols) store_scale(turned_inv + (long long)(p.col0 + c) * ceil_div(p.rows, TILE) + p.row0 / TILE, s.inverse);
    }
    __syncthreads();
    float scale[8];
#pragma unroll
    for (int j = 0; j < 8; j++) scale[j] = shared.scale[8 * (threadIdx.x % 16) + j];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float q[8];
#pragma unroll
        for (int j = 0; j < 8; j++) q[j] = Scale{scale[j], 0.0f}.scaled(v[i][j]);
        codes[i] = make_uint2(fp8_four<FORMAT>(q[0], q[1], q[2], q[3]), fp8_four<FORMAT>(q[4], q[5], q[6], q[7]));
    }
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILES)
    cast_block(const void* x, u8* codes, u8* turned, float* scale_inv, float* turned_inv, int rows, int cols) {
    __shared__ Shared shared;
    const int across = ceil_div(cols, TILE), tile = blockIdx.x;
    const TilePlace p = {rows, cols, tile / across * TILE, tile % across * TILE};
    Eight<IN> v[8];
    uint2 q[8];
    load_tile(v, x, p);
    if (SQUARE) {
        Amax largest;
#pragma unroll
        for (int i = 0; i < 8; i++) largest.take(v[i]);
        const u32 amax = block_max(largest.bits(), shared.warps);
        if (threadIdx.x == 0) {
            shared.chosen = scale_of<IN, FORMAT>(__uint_as_float(amax));
            scale_inv[tile] = shared.chosen.inverse;
        }
        __syncthreads();
        const Scale s = shared.chosen;
#pragma unroll
        for (int i = 0; i < 8; i++) q[i] = s.codes<FORMAT>(v[i]);
    } else {
        row_codes(q, v, p, scale_inv);
    }
    store_tile(codes, q, p);
    if (!turned) return;
    if (!SQUARE) column_codes(q, v, p, turned_inv, shared);
    put_turned(shared.turned, q);
    __syncthreads();
    store_turned(turned, shared.turned, p);
}
