// Gradients of activations and of gated activations, cast to FP8 with the transposed copy, and the column sums (numerics.md 3.1).
//
// Options (-D): OP 0 v = act'(x) * g, and the sums of its columns; OP 1 with x = [a | b], v = [(act'(a) * g) * b | g * act(a)];
//   ACT as F of common/act.cuh;  IN 0 f16, 1 bf16, 2 f32;  FORMAT 0 e4m3, 1 e5m2;  WIDE columns a thread: 4 (cols % 4 == 0) or 1.
//
// dact(const void* g, const void* x, u8* d, u8* t, const float* scale, float* amax, float* scale_inv, float* sums, int rows, int cols)
//   g [rows, cols], x [rows, WIDTH], d [rows, WIDTH], t [WIDTH, rows], WIDTH = cols (OP 1: 2*cols), row-major, contiguous, bases at
//   multiples of 16. d = Qsat(RN32(v * *scale)), t = d transposed, *amax raised to max |v| over all of v (both halves share it; NaN
//   dropped; the host sets it to 0 before), *scale_inv = RN32(1 / *scale), written also where there is no element; a null scale is 1, a null
//   amax or scale_inv is skipped. OP 0: sums [ceil(rows/64), cols], sums[b][j] = v[64b][j] + v[64b+1][j] + ..., from +0 in order in f32.
//   grid (ceil(cols / (128*WIDE)), ceil(rows / 64)), at least (1, 1), block 128: a thread has WIDE columns of 64 rows, and their sums.
//   Fewer than 2^31 elements.
// dbias(const float* sums, void* out, int bands, int cols): out[j] = RN_IN(sums[0][j] + sums[1][j] + ...), from +0 in order in f32.
//   grid ceil(cols / 128), block 128.
// dact_naive: the arguments of dact, a thread a column, grid (ceil(cols / 128), ceil(rows / 64)), block 128: the definition.
#include "common/act.cuh"
#include "common/turned.cuh"

#ifndef OP
#define OP 0
#endif
#ifndef ACT
#define ACT 0
#endif
#ifndef IN
#define IN 1
#endif
#ifndef FORMAT
#define FORMAT 0
#endif
#ifndef WIDE
#define WIDE 4
#endif
constexpr int THREADS = 128, BAND = 64, AHEAD = 8;  // rows read before the first is used

__device__ __forceinline__ float first(float g, float x, float gate) {
    const float v = __fmul_rn(act_slope<ACT>(x), g);
    return OP == 0 ? v : __fmul_rn(v, gate);
}
__device__ __forceinline__ float second(float g, float x) { return __fmul_rn(g, act<ACT>(x)); }

extern "C" __global__ void __launch_bounds__(THREADS) dact(const void* g, const void* x, u8* d, u8* t, const float* scale, float* amax, float* scale_inv,
                                                           float* sums, int rows, int cols) {
    __shared__ u32 shared[THREADS / 32];
    const float s = scale_or_one(scale);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) write_scale_inv(scale_inv, s);
    const int column = WIDE * (blockIdx.x * THREADS + threadIdx.x), band = blockIdx.y * BAND, width = OP == 0 ? cols : 2 * cols;
    float largest = 0.0f, sum[WIDE] = {};
    if (column < cols && band < rows) {
        for (int row0 = band; row0 < min(rows, band + BAND); row0 += STEP) {
            const int count = min(rows - row0, STEP);
            Turned<WIDE> turned, turned_gate;
#pragma unroll
            for (int r0 = 0; r0 < STEP; r0 += AHEAD) {
                Few<IN, WIDE> up[AHEAD], in[AHEAD], gate[OP == 0 ? 1 : AHEAD];
#pragma unroll
                for (int r = 0; r < AHEAD; r++) {
                    const long long row = row0 + min(r0 + r, count - 1);  // past the end: the last again, not used
                    up[r].load(g, row * cols + column);
                    in[r].load(x, row * width + column);
                    if (OP == 1) gate[r].load(x, row * width + cols + column);
                }
#pragma unroll
                for (int r = 0; r < AHEAD; r += 4) {
                    u32 codes[4], codes_gate[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int k = r + i;
                        const bool exists = r0 + k < count;
                        const long long at = (long long)(row0 + r0 + k) * width + column;
                        float v[WIDE];
#pragma unroll
                        for (int c = 0; c < WIDE; c++) {
                            const float all = first(up[k][c], in[k][c], OP == 0 ? 0.0f : gate[OP == 0 ? 0 : k][c]);
                            v[c] = exists ? all : 0.0f;
                            largest = larger(largest, v[c]);
                            if (OP == 0) sum[c] = __fadd_rn(sum[c], v[c]);  // a sum from +0 is never -0: + 0 changes nothing
                        }
                        codes[i] = codes_of<FORMAT>(v, s);
                        if (exists) store_codes<WIDE>(d, at, codes[i]);
                        if constexpr (OP == 1) {
#pragma unroll
                            for (int c = 0; c < WIDE; c++) {
                                v[c] = exists ? second(up[k][c], in[k][c]) : 0.0f;
                                largest = larger(largest, v[c]);
                            }
                            codes_gate[i] = codes_of<FORMAT>(v, s);
                            if (exists) store_codes<WIDE>(d, at + cols, codes_gate[i]);
                        }
                    }
                    turned.take((r0 + r) / 4, codes);
                    if (OP == 1) turned_gate.take((r0 + r) / 4, codes_gate);
                }
            }
            turned.store(t, column, row0, count, rows);
            if (OP == 1) turned_gate.store(t, column + cols, row0, count, rows);
        }
#pragma unroll
        for (int c = 0; c < WIDE; c++) {
            if (OP == 0) sums[(long long)blockIdx.y * cols + column + c] = sum[c];
        }
    }
    raise_amax(amax, __float_as_uint(largest), shared);
}

extern "C" __global__ void dbias(const float* sums, void* out, int bands, int cols) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= cols) return;
    float total = 0.0f;
    for (int b = 0; b < bands; b++) total = __fadd_rn(total, sums[(long long)b * cols + column]);
    store_element<IN>(out, column, total);
}

extern "C" __global__ void dact_naive(const void* g, const void* x, u8* d, u8* t, const float* scale, float* amax, float* scale_inv, float* sums,
                                      int rows, int cols) {
    const float s = scale_or_one(scale);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, band = blockIdx.y * BAND, width = OP == 0 ? cols : 2 * cols;
    if (column == 0 && band == 0) write_scale_inv(scale_inv, s);
    if (column >= cols || band >= rows) return;
    float largest = 0.0f, sum = 0.0f;
    for (int row = band; row < min(rows, band + BAND); row++) {
        const long long from = (long long)row * width + column;
        const float up = element<IN>(g, (long long)row * cols + column), in = element<IN>(x, from);
        for (int half = 0; half <= OP; half++) {
            const float v = half ? second(up, in) : first(up, in, OP == 0 ? 0.0f : element<IN>(x, from + cols));
            const u8 code = (u8)fp8_pair<FORMAT>(__fmul_rn(v, s), 0.0f);
            largest = larger(largest, v);
            sum = __fadd_rn(sum, v);
            d[from + half * cols] = code;
            t[(long long)(column + half * cols) * rows + row] = code;
        }
    }
    if (OP == 0) sums[(long long)blockIdx.y * cols + column] = sum;
    if (amax) atomicMax((u32*)amax, __float_as_uint(largest));
}
