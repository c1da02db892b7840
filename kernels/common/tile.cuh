// A tile of 128 x 128 elements by 256 threads, written as codes and as transposed codes.
//
// Thread t holds 8 rows, from 8*(t/16), of 8 columns, from 8*(t%16): a warp reads and writes whole 256- and 128-byte pieces of two
// rows at a time. The transposed bytes go through 16 KB of shared memory, 128 bytes a column, whose 8-byte pieces are swapped by the
// column (piece ^ column/8), so that neither side has bank conflicts.
//
// Option (-D): WHOLE 1 promises that cols is a multiple of 8 and rows one of 16, so that no piece is cut; 0 (default) takes any shape.
#pragma once
#include "common/fp8_cast.cuh"

#ifndef WHOLE
#define WHOLE 0
#endif

constexpr int TILE = 128, TILE_THREADS = 256, TILE_BYTES = TILE * TILE;

/// A matrix `rows x cols` and the thread's first row and column in it.
struct TilePlace {
    int rows, cols, row0, col0;  // row0, col0: of the tile
    __device__ __forceinline__ int row() const { return row0 + 8 * ((int)threadIdx.x / 16); }
    __device__ __forceinline__ int col() const { return col0 + 8 * ((int)threadIdx.x % 16); }
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
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 low[4], high[4];
        const auto word = [&](int i) { return half ? codes[i].y : codes[i].x; };
        turn4(low, word(0), word(1), word(2), word(3));
        turn4(high, word(4), word(5), word(6), word(7));
#pragma unroll
        for (int j = 0; j < 4; j++) *(uint2*)(shared + (8 * tx + 4 * half + j) * TILE + (ty ^ tx) * 8) = make_uint2(low[j], high[j]);
    }
}

/// The transposed codes in `shared` to `turned`, row-major `cols x rows`, in pieces of 16 bytes.
__device__ __forceinline__ void store_turned(u8* turned, const u8* shared, const TilePlace& p) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int column = 32 * i + threadIdx.x / 8, piece = threadIdx.x % 8, tx = column / 8;
        if (p.col0 + column >= p.cols) continue;
        uint4 v = *(const uint4*)(shared + column * TILE + (piece ^ (tx / 2)) * 16);
        if (tx & 1) v = make_uint4(v.z, v.w, v.x, v.y);
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

/// Bytes of shared memory of band_sums.
constexpr int SUM_BYTES = 32768;

/// Sums of the tile's columns over bands of 64 rows, each in order from +0 in f32: band b, column c of the matrix to
/// `sums[b * cols + c]`. The elements are read again, out of the L1 where a cast has just been there, and laid into `shared`
/// (SUM_BYTES, 16-byte aligned), so that a thread has a column of a band to itself. All threads call it.
template <int T>
__device__ __forceinline__ void band_sums(float* sums, u8* shared, const void* x, const TilePlace& p) {
    constexpr int ROWS = SUM_BYTES / (TILE * bytes_of(T));  // at a time: 128 or 64
    const int column = threadIdx.x % TILE, band = threadIdx.x / TILE;
    for (int from = 0; from < TILE; from += ROWS) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ROWS / 16; i++) {
            const int row = threadIdx.x / 16 + 16 * i;
            const TilePlace at = {p.rows, p.cols, p.row0 + from + row - 8 * ((int)threadIdx.x / 16), p.col0};
            Eight<T> v;
            if (at.row() >= p.rows || at.col() >= p.cols) v.zero();
            else if (at.whole()) v.load(x, (long long)at.row() * p.cols + at.col());
            else v.load_some(x, (long long)at.row() * p.cols + at.col(), p.cols - at.col());
#pragma unroll
            for (int k = 0; k < bytes_of(T) / 2; k++) {
                const uint4 words = make_uint4(v.word[4 * k], v.word[4 * k + 1], v.word[4 * k + 2], v.word[4 * k + 3]);
                *(uint4*)(shared + (row * TILE + 8 * (threadIdx.x % 16)) * bytes_of(T) + 16 * k) = words;
            }
        }
        __syncthreads();
        const int row0 = p.row0 + from + 64 * band;
        if (64 * band >= ROWS || row0 >= p.rows || p.col0 + column >= p.cols) continue;
        float sum = 0.0f;
#pragma unroll 16
        for (int i = 0; i < 64; i++) sum = __fadd_rn(sum, element<T>(shared, (64 * band + i) * TILE + column));
        sums[(long long)(row0 / 64) * p.cols + p.col0 + column] = sum;
    }
}
