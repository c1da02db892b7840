// Gradients of activations and of gated activations, cast to FP8 with the transposed copy, and the column sums.
//
// Options (-D): OP ACTIVATION_GRADIENT v = act'(x) * g, and the sums of its columns; GATED_GRADIENT with x = [a | b], v = [(act'(a) * g) * b |
//   g * act(a)];  ACT of common/act.cuh;  IN F16, BF16, F32;  FORMAT E4M3, E5M2;  WHOLE of common/tile.cuh (cols of g).
//
// dact(const void* g, const void* x, u8* d, u8* t, const float* scale, float* amax, float* scale_inv, float* sums, int rows, int cols)
//   g [rows, cols], x [rows, WIDTH], d [rows, WIDTH], t [WIDTH, rows], WIDTH = cols (GATED_GRADIENT: 2*cols), row-major, contiguous, bases at
//   multiples of 16. d = Qsat(RN32(v * *scale)), t = d transposed, *amax raised to max |v| over all of v (both halves share it; NaN
//   dropped; the host sets it to 0 before), *scale_inv = RN32(1 / *scale), written also where there is no element; a null scale is 1, a null
//   amax or scale_inv is skipped. ACTIVATION_GRADIENT: sums [ceil(rows/64), cols], sums[b][j] = v[64b][j] + v[64b+1][j] + ..., from +0 in order in f32.
//   grid ceil(rows/128) * ceil(cols/128), at least 1, block 256. Fewer than 2^31 elements.
// dbias(const float* sums, void* out, int bands, int cols): out[j] = RN_IN(sums[0][j] + sums[1][j] + ...), from +0 in order in f32.
//   grid ceil(cols / 128), block 128.
#include "common/act.cuh"
#include "common/tile.cuh"

#ifndef OP
#define OP ACTIVATION_GRADIENT
#endif
#ifndef ACT
#define ACT GELU
#endif
#ifndef IN
#define IN BF16
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif

__device__ __forceinline__ float first(float g, float x, float gate) {
    const float v = __fmul_rn(act_slope<ACT>(x), g);
    return OP == ACTIVATION_GRADIENT ? v : __fmul_rn(v, gate);
}
__device__ __forceinline__ float second(float g, float x) { return __fmul_rn(g, act<ACT>(x)); }

/// The thread's elements from column `offset` on of a matrix with rows of `width`; outside of the tile's matrix zeros.
__device__ __forceinline__ void load_part(Eight<IN> (&v)[8], const void* x, const TilePlace& p, int width, int offset) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const long long at = (long long)(p.row() + i) * width + offset + p.col();
        if (!p.has(i)) v[i].zero();
        else if (p.whole()) v[i].load(x, at);
        else v[i].load_some(x, at, p.cols - p.col());
    }
}

/// The thread's codes, row by row, and turned through `shared`. One barrier inside, none after.
__device__ __forceinline__ void write_part(u8* d, u8* t, const uint2 (&codes)[8], const TilePlace& p, int width, int offset, u8* shared) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const long long at = (long long)(p.row() + i) * width + offset + p.col();
        if (!p.has(i)) continue;
        if (p.whole()) store8(d + at, codes[i]);
        else store_some(d, at, codes[i], p.cols - p.col());
    }
    put_turned(shared, codes);
    __syncthreads();
    store_turned(t + (long long)offset * p.rows, shared, p);
}

/// Codes of eight values; |v| joins `largest`.
__device__ __forceinline__ uint2 cast_eight(const float (&v)[8], float s, float& largest) {
#pragma unroll
    for (int j = 0; j < 8; j++) largest = larger(largest, v[j]);
    return fp8_eight<FORMAT>(v, s);
}

/// As band_sums of common/tile.cuh for values that are in registers: `v[i][j]` is row i, column j of the thread's elements (zero outside
/// of the matrix); `shared` holds 2 * TILE floats. Within a band the sum is handed from 16 rows (a warp) to the next 16.
__device__ __forceinline__ void sums_of_registers(float* sums, float* shared, const TilePlace& p, const float (&v)[8][8]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, band = warp / 4;
    float* handed = shared + band * TILE + 8 * (lane % 16);
    for (int step = 0; step < 4; step++) {
        if (warp % 4 == step) {
            float sum[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sum[j] = step ? handed[j] : 0.0f;
                if (lane < 16) {
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[j] = __fadd_rn(sum[j], v[i][j]);
                }
                sum[j] = __shfl_sync(~0u, sum[j], lane % 16);
                if (lane >= 16) {
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[j] = __fadd_rn(sum[j], v[i][j]);
                    handed[j] = sum[j];
                }
            }
        }
        __syncthreads();
    }
    const int c = threadIdx.x % TILE, b = threadIdx.x / TILE;
    if (p.col0 + c < p.cols && p.row0 + 64 * b < p.rows) sums[(long long)(p.row0 / 64 + b) * p.cols + p.col0 + c] = shared[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, IN == F32 ? 1 : 2)
    dact(const void* g, const void* x, u8* d, u8* t, const float* scale, float* amax, float* scale_inv, float* sums, int rows, int cols) {
    __shared__ alignas(16) u8 turned[TILE_BYTES];
    __shared__ float handed[2 * TILE];
    __shared__ u32 words[TILE_THREADS / 32];
    const float s = scale_or_one(scale);
    if (blockIdx.x == 0 && threadIdx.x == 0) write_scale_inv(scale_inv, s);
    const int across = max(ceil_div(cols, TILE), 1), width = OP == ACTIVATION_GRADIENT ? cols : 2 * cols;
    const TilePlace p = {rows, cols, (int)blockIdx.x / across * TILE, (int)blockIdx.x % across * TILE};
    Eight<IN> up[8], in[8];
    float largest = 0.0f;
    load_part(up, g, p, cols, 0);
    load_part(in, x, p, width, 0);
    uint2 codes[8];
    if constexpr (OP == GATED_GRADIENT) {
        Eight<IN> gate[8];
        uint2 codes_gate[8];
        load_part(gate, x, p, width, cols);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float v[8], w[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = first(up[i][j], in[i][j], gate[i][j]);
                w[j] = second(up[i][j], in[i][j]);
            }
            codes[i] = cast_eight(v, s, largest);
            codes_gate[i] = cast_eight(w, s, largest);
        }
        write_part(d, t, codes, p, width, 0, turned);
        __syncthreads();
        write_part(d, t, codes_gate, p, width, cols, turned);
    } else {
        float v[8][8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) v[i][j] = first(up[i][j], in[i][j], 0.0f);
            codes[i] = cast_eight(v[i], s, largest);
        }
        write_part(d, t, codes, p, width, 0, turned);
        sums_of_registers(sums, handed, p, v);
    }
    raise_amax(amax, __float_as_uint(largest), words);
}

extern "C" __global__ void dbias(const float* sums, void* out, int bands, int cols) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= cols) return;
    float total = 0.0f;
#pragma unroll 16
    for (int b = 0; b < bands; b++) total = __fadd_rn(total, sums[(long long)b * cols + column]);
    store_element<IN>(out, column, total);
}
