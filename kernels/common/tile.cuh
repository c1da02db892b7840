// A tile of 128 rows x TILE_COLS columns (128 or 64) by 2*TILE_COLS threads, written as codes and as transposed codes.
//
// Thread t holds 8 rows, from 8*(t/L), of 8 columns, from 8*(t%L), L = TILE_COLS/8: a warp reads and writes whole pieces of 16*L and 8*L bytes of
// two or four rows at a time. The transposed bytes go through shared memory, 128 bytes a column, whose 8-byte pieces are swapped by the
// column (piece ^ column/8 * (16/L)), so that neither side has bank conflicts.
//
// Options (-D): WHOLE 1 promises that cols is a multiple of 8 and rows one of 16, so that no piece is cut; 0 (default) takes any shape.
//   TILE_COLS, a source's own.
#pragma once
#include "common/fp8_cast.cuh"

#ifndef WHOLE
#define WHOLE 0
#endif

#ifndef TILE_COLS
#define TILE_COLS 128
#endif
constexpr int TILE = 128, TILE_LANES = TILE_COLS / 8, TILE_THREADS = 2 * TILE_COLS, TILE_BYTES = TILE * TILE_COLS;
static_assert(TILE_COLS == 128 || TILE_COLS == 64, "a warp has two or four rows of a tile");

/// The thread's place among those of its rows, and of its columns.
__device__ __forceinline__ int tile_x() { return (int)(threadIdx.x % (u32)TILE_LANES); }
__device__ __forceinline__ int tile_y() { return (int)(threadIdx.x / (u32)TILE_LANES); }
/// How the transposed pieces of a thread's columns are swapped.
__device__ __forceinline__ int swapped(int tx) { return tx * (16 / TILE_LANES); }

/// A matrix `rows x cols` and the thread's first row and column in it.
struct TilePlace {
    int rows, cols, row0, col0;  // row0, col0: of the tile
    __device__ __forceinline__ int row() const { return row0 + 8 * tile_y(); }
    __device__ __forceinline__ int col() const { return col0 + 8 * tile_x(); }
    /// Whether the thread's eights lie whole in the matrix and start at 16 (codes: 8) bytes.
    __device__ __forceinline__ bool whole() const { return WHOLE || (cols % 8 == 0 && col() + 8 <= cols); }
    /// Whether the thread's row i has elements.
    __device__ __forceinline__ bool has(int i) const { return row() + (WHOLE ? 0 : i) < rows && col() < cols; }
};

/// The thread's elements of `x`, row-major; outside of the matrix zeros.
template <int T>
__device__ __forceinline__ void load_tile(Eight<T> (&v)[8], const void* x, const TilePlace& p) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const long long at = (long long)(p.row() + i) * p.cols + p.col();
        if (!p.has(i)) v[i].zero();
        else if (p.whole()) v[i].load(x, at);
        else v[i].load_some(x, at, p.cols - p.col());
    }
}

/// The thread's codes, a row each, to `d`, row-major.
__device__ __forceinline__ void store_tile(u8* d, const uint2 (&codes)[8], const TilePlace& p) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const long long at = (long long)(p.row() + i) * p.cols + p.col();
        if (!p.has(i)) continue;
        if (p.whole()) store8(d + at, codes[i]);
        else store_some(d, at, codes[i], p.cols - p.col());
    }
}

/// Transposes 4 x 4 bytes: word i of the result holds byte i of each argument.
__device__ __forceinline__ void turn4(u32 (&column)[4], u32 a, u32 b, u32 c, u32 d) {
    const u32 ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140), AB = __byte_perm(a, b, 0x7362), CD = __byte_perm(c, d, 0x7362);
    column[0] = __byte_perm(ab, cd, 0x5410);
    column[1] = __byte_perm(ab, cd, 0x7632);
    column[2] = __byte_perm(AB, CD, 0x5410);
    column[3] = __byte_perm(AB, CD, 0x7632);
}

/// The thread's codes into `shared` (TILE_BYTES, 16-byte aligned), transposed. A barrier has to follow.
__device__ __forceinline__ void put_turned(u8* shared, const uint2 (&codes)[8]) {
    const int ty = tile_y(), tx = tile_x();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 low[4], high[4];
        const auto word = [&](int i) { return half ? codes[i].y : codes[i].x; };
        turn4(low, word(0), word(1), word(2), word(3));
        turn4(high, word(4), word(5), word(6), word(7));
#pragma unroll
        for (int j = 0; j < 4; j++) *(uint2*)(shared + (8 * tx + 4 * half + j) * TILE + (ty ^ swapped(tx)) * 8) = make_uint2(low[j], high[j]);
    }
}

/// Four rows of the thread's codes, from row 4*half, into `shared` as put_turned lays them.
__device__ __forceinline__ void put_turned_half(u8* shared, int half, const uint2 (&codes)[4]) {
    const int tx = tile_x();
    u8* at = shared + 8 * tx * TILE + (tile_y() ^ swapped(tx)) * 8 + 4 * half;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const auto word = [&](int i) { return k ? codes[i].y : codes[i].x; };
        u32 column[4];
        turn4(column, word(0), word(1), word(2), word(3));
#pragma unroll
        for (int j = 0; j < 4; j++) *(u32*)(at + (4 * k + j) * TILE) = column[j];
    }
}

/// The transposed codes in `shared` to `turned`, row-major `cols x rows`, in pieces of 16 bytes.
__device__ __forceinline__ void store_turned(u8* turned, const u8* shared, const TilePlace& p) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int column = TILE_THREADS / 8 * i + threadIdx.x / 8, piece = threadIdx.x % 8, swap = swapped(column / 8);
        if (p.col0 + column >= p.cols) continue;
        uint4 v = *(const uint4*)(shared + column * TILE + (piece ^ (swap / 2)) * 16);
        if (swap & 1) v = make_uint4(v.z, v.w, v.x, v.y);
        const int row = p.row0 + 16 * piece;
        u8* at = turned + (long long)(p.col0 + column) * p.rows + row;
        if (WHOLE || p.rows % 16 == 0) {
            if (row < p.rows) store16(at, v);
        } else {
            store_some(at, 0, make_uint2(v.x, v.y), p.rows - row);
            store_some(at, 8, make_uint2(v.z, v.w), p.rows - row - 8);
        }
    }
}

/// Sums of the tile's columns over bands of 64 rows, each in order from +0 in f32: band b, column c of the matrix to `sums[b * cols + c]`.
/// `shared` holds the tile's elements as put_rows has laid them, zeros outside of the matrix; a barrier is between. All threads call it.
template <int T>
__device__ __forceinline__ void band_sums(float* sums, const u8* shared, const TilePlace& p) {
    constexpr int WIDTH = T == F32 ? 1 : 2;  // columns a thread
    const int at = threadIdx.x % (TILE_COLS / WIDTH) * WIDTH, band = threadIdx.x / (TILE_COLS / WIDTH), row0 = p.row0 + 64 * band;
    // f32 of a thread's eight lie four by four, so that the writers have no bank conflicts.
    const int column = T == F32 ? at % (TILE_COLS / 2) / 4 * 8 + at / (TILE_COLS / 2) * 4 + at % 4 : at;
    if (band >= 2 || row0 >= p.rows || p.col0 + column >= p.cols) return;
    const u32* words = (const u32*)shared + (64 * band * TILE_COLS + at) / WIDTH;
    float sum[WIDTH] = {};
#pragma unroll 16
    for (int i = 0; i < 64; i++) {
        const u32 word = words[i * TILE_COLS / WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; k++) {
            const float v = T == F32    ? __uint_as_float(word)
                            : T == BF16 ? __uint_as_float(k ? word & 0xffff0000u : word << 16)
                                        : f16_to_f32((u16)(word >> (16 * k)));
            sum[k] = __fadd_rn(sum[k], v);
        }
    }
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
        if (p.col0 + column + k < p.cols) sums[(long long)(row0 / 64) * p.cols + p.col0 + column + k] = sum[k];
    }
}
/// Where the thread's row i begins in a tile of elements of T: 16 bytes, and of f32 16 more half a row on.
template <int T>
__device__ __forceinline__ u8* row_in(u8* shared, int i) { return shared + (8 * tile_y() + i) * TILE_COLS * bytes_of(T) + 16 * tile_x(); }
template <int T>
__device__ __forceinline__ void put_row(u8* shared, int i, const u32 (&word)[T == F32 ? 8 : 4]) {
    u8* row = row_in<T>(shared, i);
    *(uint4*)row = make_uint4(word[0], word[1], word[2], word[3]);
    if constexpr (T == F32) *(uint4*)(row + 2 * TILE_COLS) = make_uint4(word[4], word[5], word[6], word[7]);
}

/// out[c] = RN_T(sums[0][c] + sums[1][c] + ...), from +0 in order in f32, of 32 columns a block of 256 threads.
template <int T>
__device__ __forceinline__ void total_of_bands(const float* sums, void* out, int bands, int cols) {
    constexpr int AT_ONCE = 128;
    __shared__ float held[AT_ONCE][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
    float total = 0.0f;
    for (int from = 0; from < bands; from += AT_ONCE) {
        if (from) __syncthreads();
        float v[AT_ONCE / 8];
#pragma unroll
        for (int i = 0; i < AT_ONCE / 8; i++) {
            const int band = from + 8 * i + warp;
            v[i] = band < bands && column < cols ? sums[(long long)band * cols + column] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE / 8; i++) held[8 * i + warp][lane] = v[i];
        __syncthreads();
        if (warp) continue;
        const int count = min(bands - from, AT_ONCE);
#pragma unroll 16
        for (int i = 0; i < count; i++) total = __fadd_rn(total, held[i][lane]);
    }
    if (warp == 0 && column < cols) store_element<T>(out, column, total);
}
