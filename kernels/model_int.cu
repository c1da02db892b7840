// The device model of integer products: what int8 × int8, int4 or uint4 must give, on the ordinary cores. Shares no instruction with what it judges.
//
// I = sum of (x - zx)(w - zw) over a run of K inside which no scale changes, modulo 2^32 as int32. Of one run: y = RN(RN(RN(I)*s_x)*s_w); of runs
// one after the other: t = fma(s_w, RN(I), t) from +0, y = RN(t*s_x).
//
// Integers: codes const u8* [rows, k]; table const int[256]: what a code stands for; scale const float*, zero const int* (or null), one a tile; rows, k,
//          tile_rows, tile_cols, grid_cols, unused int
// contract model_int: block 256; grid {ceil(N/64), ceil(M/64)}; args Integers of a, of b; ends const int* [runs]; y float* [M, N]; runs int; blocked int: 1
//          runs are added by fma; plus_zero int: 1 writes y + 0
#include "common/gemm_types.cuh"

struct Integers {
    const u8* codes;
    const int* table;
    const float* scale;
    const int* zero;
    int rows;
    int k;
    int tile_rows;
    int tile_cols;
    int grid_cols;
    int unused;

    __device__ __forceinline__ int tile(int row, int at_k) const { return row / tile_rows * grid_cols + at_k / tile_cols; }
    __device__ __forceinline__ float scale_at(int row, int at_k) const { return scale[tile(row, at_k)]; }
    __device__ __forceinline__ u32 at(int row, int at_k) const {
        return (u32)(table[codes[(u64)row * k + at_k]] - (zero ? zero[tile(row, at_k)] : 0));
    }
};

/// Rows and columns of a block, k of a step, outputs of a thread along each side.
constexpr int TILE = 64, DEPTH = 32, EACH = 4;

__device__ __forceinline__ void load(const Integers& of, u32 (&to)[DEPTH][TILE + 4], int first, int k0, int end) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
        const int row = first + i / DEPTH, at = k0 + i % DEPTH;
        to[i % DEPTH][i / DEPTH] = row < of.rows && at < end ? of.at(row, at) : 0;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    model_int(const Integers a, const Integers b, const int* ends, float* y, int runs, int blocked, int plus_zero) {
    __shared__ __align__(16) u32 xs[DEPTH][TILE + 4], ws[DEPTH][TILE + 4];
    const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, row = threadIdx.x / 16 * EACH, col = threadIdx.x % 16 * EACH;
    float t[EACH][EACH] = {};
    for (int run = 0, begin = 0; run < runs; begin = ends[run++]) {
        const int end = ends[run];
        u32 c[EACH][EACH] = {};
        for (int k0 = begin; k0 < end; k0 += DEPTH) {
            __syncthreads();
            load(a, xs, row0, k0, end);
            load(b, ws, col0, k0, end);
            __syncthreads();
#pragma unroll 8
            for (int k = 0; k < DEPTH; k++) {
                const uint4 p = *(const uint4*)&xs[k][row], q = *(const uint4*)&ws[k][col];
                const u32 u[EACH] = {p.x, p.y, p.z, p.w}, v[EACH] = {q.x, q.y, q.z, q.w};
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++) c[i][j] += u[i] * v[j];
            }
        }
        for (int i = 0; i < EACH && row0 + row + i < a.rows; i++)
            for (int j = 0; j < EACH && col0 + col + j < b.rows; j++) {
                const float sum = __int2float_rn((int)c[i][j]), s = b.scale_at(col0 + col + j, begin);
                t[i][j] = blocked ? __fmaf_rn(s, sum, t[i][j]) : __fmul_rn(__fmul_rn(sum, a.scale_at(row0 + row + i, begin)), s);
            }
    }
    for (int i = 0; i < EACH && row0 + row + i < a.rows; i++)
        for (int j = 0; j < EACH && col0 + col + j < b.rows; j++) {
            const float value = blocked ? __fmul_rn(t[i][j], a.scale_at(row0 + row + i, 0)) : t[i][j];
            y[(u64)(row0 + row + i) * b.rows + col0 + col + j] = plus_zero ? __fadd_rn(value, 0.0f) : value;
        }
}
