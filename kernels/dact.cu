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
//   grid ceil(rows/128) * ceil(cols/TILE_COLS), at least 1, block 2*TILE_COLS, dynamic shared memory 128*TILE_COLS times 5 (GATED_GRADIENT: 6).
//   Fewer than 2^31 elements.
// dbias(const float* sums, void* out, int bands, int cols): out[j] = RN_IN(sums[0][j] + sums[1][j] + ...), from +0 in order in f32.
//   grid ceil(cols/32), block 256.
#include "common/act.cuh"
#ifndef OP
#define OP ACTIVATION_GRADIENT
#endif
#ifndef TILE_COLS
#define TILE_COLS 64
#endif
#include "common/tile.cuh"

#ifndef ACT
#define ACT GELU
#endif
#ifndef IN
#define IN BF16
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif
#ifndef TILES
#define TILES (OP == ACTIVATION_GRADIENT ? 5 : IN == F32 ? 2 : 4)  // blocks an SM, at least
#endif

__device__ __forceinline__ float first(float g, float x, float gate) {
    const float v = __fmul_rn(act_slope<ACT>(x), g);
    return OP == ACTIVATION_GRADIENT ? v : __fmul_rn(v, gate);
}
__device__ __forceinline__ float second(float g, float x) { return __fmul_rn(g, act<ACT>(x)); }

/// Where the thread's row i of g, x and the gate (k = 0, 1, 2) waits in shared memory: 16 bytes. The row of v that the sums need takes the place
/// of g's and x's. f32 does not wait: it is read where it is used.
constexpr bool WAITS = IN != F32;
__device__ __forceinline__ u8* waiting(u8* values, int i, int k) {
    return OP == ACTIVATION_GRADIENT ? row_in<F32>(values, i) + 2 * TILE_COLS * k : row_in<BF16>(values + 2 * TILE_BYTES * k, i);
}
/// The inputs: g, x and the gate, as matrices with rows of `width` whose columns begin at `offset`.
struct Inputs {
    const void* from[3];
    int width[3], offset[3];
    static constexpr int COUNT = OP == ACTIVATION_GRADIENT ? 2 : 3;
    __device__ __forceinline__ long long at(const TilePlace& p, int i, int k) const { return (long long)(p.row() + i) * width[k] + offset[k] + p.col(); }
    /// Asks for rows 4*half to 4*half + 3 of the thread.
    __device__ __forceinline__ void ask(u8* values, const TilePlace& p, int half) const {
#pragma unroll
        for (int i = 4 * half; WAITS && i < 4 * half + 4; i++) {
            if (!p.has(i)) continue;
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                u8* to = waiting(values, i, k);
                if (p.whole()) {
                    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem_address(to)), "l"((const u8*)from[k] + 2 * at(p, i, k)) : "memory");
                } else {
                    Eight<IN> v;
                    v.load_some(from[k], at(p, i, k), p.cols - p.col());
                    *(uint4*)to = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
                }
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    /// Until the thread's rows of the half are there.
    __device__ __forceinline__ static void await(int half) {
        if (half == 0) asm volatile("cp.async.wait_group 1;" ::: "memory");
        else asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    /// The thread's row i; outside of the matrix zeros.
    __device__ __forceinline__ void take(Eight<IN>& v, u8* values, const TilePlace& p, int i, int k) const {
        if (!p.has(i)) {
            v.zero();
        } else if constexpr (WAITS) {
            const uint4 w = *(const uint4*)waiting(values, i, k);
            v.word[0] = w.x, v.word[1] = w.y, v.word[2] = w.z, v.word[3] = w.w;
        } else {
            if (p.whole()) v.load(from[k], at(p, i, k));
            else v.load_some(from[k], at(p, i, k), p.cols - p.col());
        }
    }
};

/// The thread's codes of row i, to a matrix with rows of `width` whose columns begin at `offset`.
__device__ __forceinline__ void store_row(u8* d, uint2 codes, const TilePlace& p, int i, int width, int offset) {
    if (!p.has(i)) return;
    const long long at = (long long)(p.row() + i) * width + offset + p.col();
    if (p.whole()) store8(d + at, codes);
    else store_some(d, at, codes, p.cols - p.col());
}

/// Codes of eight values; |v| joins `largest`.
__device__ __forceinline__ uint2 cast_eight(const float (&v)[8], float s, float& largest) {
#pragma unroll
    for (int j = 0; j < 8; j++) largest = larger(largest, v[j]);
    return fp8_eight<FORMAT>(v, s);
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILES)
    dact(const void* g, const void* x, u8* d, u8* t, const float* scale, float* amax, float* scale_inv, float* sums, int rows, int cols) {
    extern __shared__ __align__(16) u8 values[];
    __shared__ u32 words[TILE_THREADS / 32];
    const float s = scale_or_one(scale);
    if (blockIdx.x == 0 && threadIdx.x == 0) write_scale_inv(scale_inv, s);
    const int across = max(ceil_div(cols, TILE_COLS), 1), width = OP == ACTIVATION_GRADIENT ? cols : 2 * cols;
    const TilePlace p = {rows, cols, (int)blockIdx.x / across * TILE, (int)blockIdx.x % across * TILE_COLS};
    float largest = 0.0f;
    const Inputs in = {{g, x, x}, {cols, width, width}, {0, 0, cols}};
    in.ask(values, p, 0);
    in.ask(values, p, 1);
    if constexpr (OP == GATED_GRADIENT) {
        uint2 codes[8], codes_gate[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i % 4 == 0) in.await(i / 4);
            Eight<IN> up, a, gate;
            in.take(up, values, p, i, 0);
            in.take(a, values, p, i, 1);
            in.take(gate, values, p, i, 2);
            float v[8], w[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                v[j] = first(up[j], a[j], gate[j]);
                w[j] = second(up[j], a[j]);
            }
            codes[i] = cast_eight(v, s, largest);
            codes_gate[i] = cast_eight(w, s, largest);
            store_row(d, codes[i], p, i, width, 0);
            store_row(d, codes_gate[i], p, i, width, cols);
        }
        __syncthreads();  // the inputs' place is free
        put_turned(values, codes);
        put_turned(values + TILE_BYTES, codes_gate);
        __syncthreads();
        store_turned(t, values, p);
        store_turned(t + (long long)cols * rows, values + TILE_BYTES, p);
    } else {
        u8* turned = values + 4 * TILE_BYTES;
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            in.await(half);
            uint2 codes[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = 4 * half + i;
                Eight<IN> up, a;
                in.take(up, values, p, row, 0);
                in.take(a, values, p, row, 1);
                float v[8];
                u32 bits[8];
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    v[j] = first(up[j], a[j], 0.0f);
                    bits[j] = __float_as_uint(v[j]);
                }
                put_row<F32>(values, row, bits);
                codes[i] = cast_eight(v, s, largest);
                store_row(d, codes[i], p, row, width, 0);
            }
            put_turned_half(turned, half, codes);
        }
        __syncthreads();
        store_turned(t, turned, p);
        band_sums<F32>(sums, values, p);
    }
    raise_amax(amax, __float_as_uint(largest), words);
}

extern "C" __global__ void dbias(const float* sums, void* out, int bands, int cols) { total_of_bands<IN>(sums, out, bands, cols); }
