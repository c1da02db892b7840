// From f32 accumulators to outputs, for every FP8 GEMM: scales, bias, rounding, FP8 output with amax.
//
// Options (-D), the same words in every GEMM file:
//   A_E5M2, B_E5M2  0 e4m3 (default), 1 e5m2
//   OUT             BF16 (default), F16, F32, E4M3, E5M2
//   SCALES          BY_TENSOR (default), BY_ROW of A and row of B, LINE_SQUARE (A 1x128 and B 128x128), LINE_LINE (A 1x128 and B 1x128)
//   SCALES_FIRST    blocks: 0 y = fma(RN32(P*sa), sb, y) (Transformer Engine, default), 1 y = fma(RN32(sa*sb), P, y) (DeepGEMM).
//                   cuBLASLt 13 on an H200: LINE_SQUARE is 1, LINE_LINE is 0, every bit (docs/tuning/gemm.md)
//   PROMOTE         0 one accumulator chain over K (default), 1 every 128 of K a fresh chain, added by RN32; blocks imply it
//   BIAS            0 none (default), 1 f32[N]
//
// v per output element, acc the f32 accumulator (docs/tensor-cores.md 1):
//   BY_TENSOR: RN32(acc * RN32(sa*sb));  BY_ROW: RN32(sb * RN32(sa*acc));  blocks: acc (scaled block by block)
//   then, with BIAS, v = RN32(v + bias[n]).
// bf16, f16, f32: d = RN(v). FP8: amax = max |v| (NaN ignored), d = Qsat(RN32(v*scale_d)), scale_inv_d = RN32(1/scale_d).
#pragma once
#include "common/gemm_types.cuh"

#ifndef OUT
#define OUT BF16
#endif
#ifndef SCALES
#define SCALES BY_TENSOR
#endif
#ifndef SCALES_FIRST
#define SCALES_FIRST 0
#endif
#ifndef PROMOTE
#define PROMOTE 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
constexpr bool BLOCK_SCALED = SCALES >= LINE_SQUARE, PROMOTED = PROMOTE || BLOCK_SCALED, FP8_OUT = is_fp8(OUT);
constexpr int OUT_BYTES = OUT == F32 ? 4 : FP8_OUT ? 1 : 2;

/// Where the results go and what scales them; all pointers in global memory.
struct Epilogue {
    void* d;               // row-major, `ldd` elements a row
    const float* scale_a;  // scale_inv of A: [1], or [M] by row, or 1x128: element (m, k/128) at (k/128)*sa_k + m
    const float* scale_b;  // scale_inv of B: [1], or [N] by row, or 1x128: (n, k/128) at (k/128)*sb_k + n, or 128x128:
                           // (n/128, k/128) at (n/128)*sb_row + (k/128)*sb_k
    const float* bias;     // [N]; unused without BIAS
    const float* scale_d;  // [1], FP8 output only
    float* amax_d;         // [1], FP8 output only: raised to max |v| if that is larger; the host sets it to 0 before
    float* scale_inv_d;    // [1], FP8 output only
    int ldd, sa_k, sb_row, sb_k;
};

/// One output tile: where its operands start and which part of it exists.
struct Work {
    int a_row, b_row;  // first rows of the operands
    int k0, k1;        // range of K, k0 a multiple of 16; k0 == k1: the outputs are +0
    int head;          // how many codes from k0 on belong to another group and count as zero
    int rows, cols;    // how many rows and columns of the tile exist (may be <= 0)
    int sa0, sb0;      // first row of the scales (not BY_TENSOR)
    long long d0;      // element offset of the tile's corner in D
};

/// v of one accumulator; `sa` is RN32(sa*sb) for BY_TENSOR.
__device__ __forceinline__ float scaled(float acc, float sa, float sb, float bias) {
    float v = acc;
    if (SCALES == BY_TENSOR) v = __fmul_rn(acc, sa);
    if (SCALES == BY_ROW) v = __fmul_rn(sb, __fmul_rn(sa, acc));
    if (BIAS) v = __fadd_rn(v, bias);
    return v;
}

/// Adds the partial sum of one 128-block of K to the running sum.
__device__ __forceinline__ float promoted(float y, float partial, float sa, float sb) {
    if (!BLOCK_SCALED) return __fadd_rn(y, partial);
    if (!SCALES_FIRST) return __fmaf_rn(__fmul_rn(partial, sa), sb, y);
    return __fmaf_rn(__fmul_rn(sa, sb), partial, y);
}

__device__ __forceinline__ float bias_at(const Epilogue& e, int n) { return BIAS ? e.bias[n] : 0.0f; }

/// Two neighbouring 16-bit or 8-bit outputs; `scale_d` is used for FP8 only.
__device__ __forceinline__ u32 pack_pair(float lo, float hi, float scale_d) {
    if (OUT == BF16) return pack_bf16(lo, hi);
    if (OUT == F16) return pack_f16(lo, hi);
    if (OUT == E4M3) return pack_e4m3(__fmul_rn(lo, scale_d), __fmul_rn(hi, scale_d));
    return pack_e5m2(__fmul_rn(lo, scale_d), __fmul_rn(hi, scale_d));
}

/// Writes one output by itself (edges).
__device__ __forceinline__ void store_one(const Epilogue& e, long long index, float v, float scale_d) {
    if (OUT == F32) {
        ((float*)e.d)[index] = v;
    } else {
        u32 bits = pack_pair(v, 0.0f, scale_d);
        if (OUT_BYTES == 2) ((u16*)e.d)[index] = (u16)bits;
        if (OUT_BYTES == 1) ((u8*)e.d)[index] = (u8)bits;
    }
}

/// The warp's largest |v| joins amax_d; exact and independent of order, since non-negative floats order as integers.
__device__ __forceinline__ void raise_amax(const Epilogue& e, float amax) {
    for (int step = 16; step; step /= 2) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, step));
    if ((threadIdx.x & 31) == 0) atomicMax((int*)e.amax_d, __float_as_int(amax));
}

/// One thread of the grid calls this once.
__device__ __forceinline__ void write_scale_inv(const Epilogue& e) { *e.scale_inv_d = __frcp_rn(*e.scale_d); }

/// What a warp's epilogue needs from global memory, fetched before the tile's sum so that nothing waits for it afterwards.
template <int N>
struct Scales {
    float sa[2];                          // BY_TENSOR: RN32(sa*sb) twice; BY_ROW: of rows lane/4 and lane/4 + 8
    float sb[SCALES == BY_ROW ? N / 32 : 1];    // BY_ROW: of columns lane, lane + 32, ...

    __device__ __forceinline__ void fetch(const Epilogue& e, const Work& w, int row0) {
        if (SCALES != BY_ROW) return;
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int h = 0; h < 2; h++) sa[h] = row0 + lane / 4 + 8 * h < w.rows ? __ldg(e.scale_a + w.sa0 + row0 + lane / 4 + 8 * h) : 0.0f;
#pragma unroll
        for (int i = 0; i < N / 32; i++) sb[i] = 32 * i + lane < w.cols ? __ldg(e.scale_b + w.sb0 + 32 * i + lane) : 0.0f;
    }
};

/// Scales, rounds and writes a warp's 16 rows (from row `row0` of the tile) of N columns, `acc` in wgmma's layout, by way of
/// 2048 bytes of shared memory at `buffer`, so that whole 128-byte pieces of rows are written. `amax` rises to the largest |v|
/// (FP8 output). `columns`: 4*N bytes of shared memory for the column scales (BY_ROW).
template <int N>
__device__ __forceinline__ void store_rows(const float (&acc)[N / 2], const Epilogue& e, const Work& w, const Scales<N>& scales, float scale_d, float& amax,
                                           int row0, u32 buffer, u32 columns) {
    constexpr int PITCH = 128, PIECES = 8;                             // bytes, and 16-byte pieces, of a row in the buffer
    constexpr int COLS = PITCH / OUT_BYTES, EACH = COLS / PIECES;  // columns a pass, elements of a piece
    const int lane = threadIdx.x & 31, r0 = lane / 4;
    if (row0 >= w.rows) return;

    const bool empty = w.k0 == w.k1;
    if (SCALES == BY_ROW) {
#pragma unroll
        for (int i = 0; i < N / 32; i++) asm volatile("st.shared.f32 [%0], %1;" ::"r"(columns + (32 * i + lane) * 4), "f"(scales.sb[i]) : "memory");
        __syncwarp();
    }
    const bool whole = (e.ldd * OUT_BYTES) % 16 == 0 && ((u64)e.d & 15) == 0;

#pragma unroll
    for (int pass = 0; pass < N / COLS; pass++) {
        u32 pair[2][2];  // 16-bit outputs of columns group j, j + 1: rows r0, r1
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            const int col = pass * COLS + 8 * j + 2 * (lane % 4);
            float v[2][2], sb[2] = {0.0f, 0.0f};
            if (SCALES == BY_ROW) asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(sb[0]), "=f"(sb[1]) : "r"(columns + col * 4));
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const bool exists = col + c < w.cols;
                const float bias = BIAS && exists ? bias_at(e, w.b_row + col + c) : 0.0f;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float x = acc[(pass * COLS / 8 + j) * 4 + 2 * h + c];
                    v[h][c] = empty ? 0.0f : scaled(x, scales.sa[h], sb[c], bias);
                    if (FP8_OUT && exists && row0 + r0 + 8 * h < w.rows) amax = fmaxf(amax, fabsf(v[h][c]));
                }
            }
            if (OUT == F32) {
                const int piece = 2 * j + (lane % 4) / 2;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int r = r0 + 8 * h;
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(buffer + r * PITCH + ((piece ^ (r & 7)) * 16) + (lane & 1) * 8),
                                 "f"(v[h][0]), "f"(v[h][1])
                                 : "memory");
                }
            } else if (OUT_BYTES == 2) {
                pair[j & 1][0] = pack_pair(v[0][0], v[0][1], scale_d);
                pair[j & 1][1] = pack_pair(v[1][0], v[1][1], scale_d);
                if (j & 1) {
                    const int r = lane % 16, piece = j - 1 + lane / 16;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                                     buffer + r * PITCH + ((piece ^ (r & 7)) * 16)),
                                 "r"(pair[0][0]), "r"(pair[0][1]), "r"(pair[1][0]), "r"(pair[1][1])
                                 : "memory");
                }
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int r = r0 + 8 * h;
                    asm volatile("st.shared.u16 [%0], %1;" ::"r"(buffer + r * PITCH + (((j / 2) ^ (r & 7)) * 16) + (j & 1) * 8 + (lane % 4) * 2),
                                 "h"((u16)pack_pair(v[h][0], v[h][1], scale_d))
                                 : "memory");
                }
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * PIECES / 32; i++) {
            const int r = (i * 32 + lane) / PIECES, piece = (i * 32 + lane) % PIECES, col = pass * COLS + piece * EACH;
            uint4 bits;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                         : "r"(buffer + r * PITCH + ((piece ^ (r & 7)) * 16)));
            u8* at = (u8*)e.d + (w.d0 + (long long)(row0 + r) * e.ldd + col) * OUT_BYTES;
            if (row0 + r >= w.rows) continue;
            if (whole && col + EACH <= w.cols) {
                *(uint4*)at = bits;
            } else {
                const u32 word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
                for (int x = 0; x < EACH; x++) {
                    const u32 part = word[x * OUT_BYTES / 4] >> (8 * (x * OUT_BYTES % 4));
                    if (col + x >= w.cols) break;
                    if (OUT_BYTES == 4) ((u32*)at)[x] = part;
                    if (OUT_BYTES == 2) ((u16*)at)[x] = (u16)part;
                    if (OUT_BYTES == 1) at[x] = (u8)part;
                }
            }
        }
        __syncwarp();
    }
}
