// D[M,N] = dequantized(W)[M,K] . X[N,K]^T for few tokens: int4 or uint4 weights times f16 or bf16, every byte of the weights asked for at
// once by bulk copies.
//
// Weights as in mixed_gemm.cu. Products and sums: K is cut into blocks of 128, the blocks into slices of 4. A slice's f32 sum starts at +0
// and takes, block by block, 8 steps c = T(16, 25, 23 RZ)(c, products) (tensorcore.md 1, sm_90); step j of block b takes, for t = 0..3,
// k = 128 b + 32 t + 4 j + {0, 1, 2, 3} (k >= K: zeros). Then, in f32 to nearest even: sum = slice 0 + slice 1 + ... in this order,
// v = RN32(sum + f32(bias[m])) if bias is given, D = RN(v). The order of N never matters.
//
// A cluster of SPLIT CTAs holds ROWS rows of W: CTA r has slices r*WARPS_K .. of K, warp (i, j) its 32 rows i of slice j. All weights of a
// CTA fit its shared memory: nothing is waited for before everything is asked for. One more warp asks for the weights, 8 KB a warp, counted by
// two barriers a warp, one for each two blocks: a thread that asks for more than memory delivers waits, so no other thread does it.
// Sums of slices meet in the CTA that owns the row and are added in slice order.
//
// Options (-D): WEIGHT 0, 1; ACT, ZERO, MID, HIGH_FIRST as in mixed_gemm.cu;  NT 8-token tiles (1, 2);  WARPS_M, WARPS_K;  SPLIT (1, 2, 4, 8).
//
// contract mixed_stream(const uint4* w, const u16* scale, const void* zero, const u16* x, const u16* bias, u16* d, int M, int N, int K,
//                       int group_shift, long long scale_row, long long d_row, long long d_col)
//   arch   sm_90 and later
//   w      as mixed_stream_reorder writes it;  scale (and zero): element (m, group) at m*scale_row + group
//   x      [N, K] row-major, 16-byte aligned;  bias [M] or null;  d: element (m, n) at m*d_row + n*d_col
//   grid   (SPLIT * ceil(M / ROWS)), ROWS = 32 WARPS_M;  block 32 (WARPS_M WARPS_K + 1)
//   smem   WARPS_K*(ROWS*256 + NT*8192 + ROWS*NT*32) + 16*WARPS_M*WARPS_K + 8 dynamic
//   refuse N > 8 NT; ceil(K/512) > SPLIT*WARPS_K; and what mixed_gemm.cu refuses
// mixed_stream_reorder(w, out, M, K): thread per 16 bytes of out, grid ceil(n/256), block 256, n = ceil(M/16)*ceil(K/128)*64; out is n*16 bytes.
//   The pieces of mixed_reorder (mixed_gemm.cu), in every word code j as nibble j / 2 + 4 (j % 2): nibbles that come out of it together, i and
//   i + 4, are neighbours in X.
// mixed_stream_naive: the arguments of mixed_stream, w as it was before the reordering, a thread per output (grid ceil(M*N/256), block 256):
//   the definition, in integer arithmetic.
#include "common/mbarrier.cuh"
#include "common/mixed.cuh"
#include "common/mma_step.cuh"
#include "common/tma.cuh"

#ifndef NT
#define NT 2
#endif
#ifndef WARPS_M
#define WARPS_M 8
#endif
#ifndef WARPS_K
#define WARPS_K 2
#endif
#ifndef SPLIT
#define SPLIT 8
#endif
static_assert(WEIGHT != 2, "4-bit weights");

constexpr int BLOCK = 128, SLICE = 4;                       // k of a block, blocks of a slice
constexpr int ROWS = 32 * WARPS_M, COLS = 8 * NT, WARPS = WARPS_M * WARPS_K, THREADS = 32 * (WARPS + 1);
constexpr int SLICES = SPLIT * WARPS_K, OWNED = ROWS / SPLIT;
constexpr int TILE_BYTES = 1024;                            // 16 rows of a block
constexpr int W_BYTES = WARPS_K * WARPS_M * 2 * SLICE * TILE_BYTES, X_BYTES = WARPS_K * SLICE * NT * 2048;
constexpr int SUM_BYTES = SLICES * OWNED * COLS * 4;
static_assert(ROWS % SPLIT == 0 && SUM_BYTES == WARPS_K * ROWS * NT * 32, "whole rows of sums");

/// Two floats to shared memory of a CTA of the cluster, counted by its barrier.
__device__ __forceinline__ void send(u32 to, float a, float b, u32 bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(a), "f"(b), "r"(bar) : "memory");
}
__device__ __forceinline__ u32 address_in(u32 own, int rank) {
    u32 d;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d) : "r"(own), "r"(rank));
    return d;
}

/// X of the CTA's slices to where lanes find 16 bytes, the eight k of two steps, in one place: piece (block, p, tile) of lane
/// (column % 8)*4 + t. Two columns of a block a warp: neighbouring lanes read neighbouring 16 bytes.
__device__ __forceinline__ void copy_x(u32 to, const u16* x, int n, int k, int first_block) {
    constexpr int UNITS = WARPS_K * SLICE * COLS / 2;
    const int chunk = threadIdx.x % 16, odd = threadIdx.x / 16 % 2, p = chunk % 4, t = chunk / 4;
#pragma unroll
    for (int j = 0; j < (UNITS + WARPS - 1) / WARPS; j++) {
        const int unit = j * WARPS + threadIdx.x / 32, column = unit % (COLS / 2) * 2 + odd, block = unit / (COLS / 2);
        if (UNITS % WARPS && unit >= UNITS) break;
        const int kk = BLOCK * (first_block + block) + 8 * chunk;
        const bool exists = kk < k && column < n;
        copy16(to + (((block * 4 + p) * NT + column / 8) * 32 + column % 8 * 4 + t) * 16, exists ? x + (long long)column * k + kk : x, exists ? 16 : 0);
    }
}

/// Scale, and in the upper half the zero point, of a group of the row that begins at `row`.
__device__ __forceinline__ u32 load_scale(const u16* scale, const u8* zero, int group) {
    u16 s, z = 0;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(s) : "l"(scale + group));
    if (ZERO == 1) asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(z) : "l"(zero + 2 * group));
    if (ZERO == 2) asm volatile("ld.global.nc.s8 %0, [%1];" : "=h"(z) : "l"(zero + group));
    return ZERO ? s | (u32)z << 16 : s;
}

/// The weights of the CTA, asked for by one thread: the first two blocks of every warp, then the others.
__device__ __forceinline__ void ask_for_weights(const u8* w, u32 base, u32 bars, int cta_row, int first_slice, int m, int blocks) {
#pragma unroll 1
    for (int i = 0; i < 2 * WARPS; i++) {
        const int half = i / WARPS, warp = i % WARPS, first = (first_slice + warp / WARPS_M) * SLICE + 2 * half;
        const int row = cta_row + 32 * (warp % WARPS_M), tiles = max(0, min(2, (m - row + 15) / 16)), count = max(0, min(2, blocks - first));
        const u32 bar = bars + 16 * warp + 8 * half, to = base + (warp * 2 * SLICE + 2 * half) * TILE_BYTES;
        const u8* from = w + ((long long)(row / 16) * blocks + first) * TILE_BYTES;
        mbarrier_expect(bar, tiles * count * TILE_BYTES);
        if (count == 0) continue;
        if (tiles > 0) bulk_load(to, from, count * TILE_BYTES, bar);
        if (tiles > 1) bulk_load(to + SLICE * TILE_BYTES, from + (long long)blocks * TILE_BYTES, count * TILE_BYTES, bar);
    }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters and bulk copies
extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    mixed_stream(const uint4* w, const u16* scale, const void* zero, const u16* x, const u16* bias, u16* d, int m, int n, int k, int group_shift,
                 long long scale_row, long long d_row, long long d_col) {
    extern __shared__ __align__(128) u8 smem[];
    float* sums = (float*)(smem + W_BYTES + X_BYTES);       // [SLICES][OWNED][COLS]
    const u32 base = shared_address(smem), bars = base + W_BYTES + X_BYTES + SUM_BYTES, all_sums = bars + 16 * WARPS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = blockIdx.x % SPLIT;
    const int warp_k = warp / WARPS_M, warp_m = warp % WARPS_M, cta_row = blockIdx.x / SPLIT * ROWS, warp_row = cta_row + 32 * warp_m;
    const int blocks = (k + BLOCK - 1) / BLOCK, slice = rank * WARPS_K + warp_k, first = slice * SLICE;
    const int count = max(0, min(SLICE, blocks - first));
    const bool asks = warp == WARPS;

    u32 scales[SLICE][4];  // rows g, g + 8, g + 16, g + 24
    if (asks) {
        if (lane == 0) {
#pragma unroll 1
            for (int i = 0; i <= 2 * WARPS; i++) mbarrier_init(bars + 8 * i, 1);
            mbarrier_init_fence();
            mbarrier_expect(all_sums, SUM_BYTES);
        }
        __syncwarp();
        named_barrier_arrive(1, THREADS);
        if (lane == 0) ask_for_weights((const u8*)w, base, bars, cta_row, rank * WARPS_K, m, blocks);
        __syncwarp();
    } else {
        // Rows beyond M and k beyond K read a scale that exists: the first are not stored, the second count as zero below.
        const u16* row_scale[4];
        const u8* row_zero[4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const long long at = min(warp_row + lane / 4 + 8 * r, m - 1) * scale_row;
            row_scale[r] = scale + at;
            row_zero[r] = (const u8*)zero + at * (ZERO == 1 ? 2 : 1);
        }
#pragma unroll
        for (int i = 0; i < SLICE; i++) {
            const int group = min(BLOCK * (first + i) + 32 * (lane % 4), k - 1) >> group_shift;
#pragma unroll
            for (int r = 0; r < 4; r++) scales[i][r] = load_scale(row_scale[r], row_zero[r], group);
        }
        copy_x(base + W_BYTES, x, n, k, rank * WARPS_K * SLICE);
        copies_done();
        named_barrier(1, THREADS);
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");

    float acc[2][NT][4] = {};
#pragma unroll
    for (int i = 0; i < SLICE; i++) {
        if (asks || i >= count) break;
        if (i % 2 == 0) mbarrier_wait(bars + 16 * warp + 4 * i, 0);
        uint4 codes[4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            codes[r] = *(const uint4*)(smem + warp * (2 * SLICE * TILE_BYTES) + (r / 2 * SLICE + i) * TILE_BYTES + r % 2 * 512 + lane * 16);
            if (BLOCK * (first + i) + 32 * (lane % 4) >= k) scales[i][r] = 0;
        }
        const u8* xs = smem + W_BYTES + ((warp_k * SLICE + i) * 4 * NT * 32 + lane) * 16;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            u32 weights[4][4];  // k = 0 1, 2 3, 4 5, 6 7
#pragma unroll
            for (int r = 0; r < 4; r++)
                word_to_weights<false>(weights[r], p == 0 ? codes[r].x : p == 1 ? codes[r].y : p == 2 ? codes[r].z : codes[r].w, scales[i][r]);
#pragma unroll
            for (int c = 0; c < NT; c++) {
                const uint4 b = *(const uint4*)(xs + (p * NT + c) * 512);
#pragma unroll
                for (int t = 0; t < 2; t++) mma16(acc[t][c], weights[2 * t][0], weights[2 * t + 1][0], weights[2 * t][1], weights[2 * t + 1][1], b.x, b.y);
#pragma unroll
                for (int t = 0; t < 2; t++) mma16(acc[t][c], weights[2 * t][2], weights[2 * t + 1][2], weights[2 * t][3], weights[2 * t + 1][3], b.z, b.w);
            }
        }
    }

    // Every slice's sum goes to the CTA that owns the row; all have started, their barriers set up, once the cluster has met.
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int h = 0; h < 2 && !asks; h++) {
            const int r = 32 * warp_m + 16 * t + 8 * h + lane / 4, owner = r / OWNED;
            const u32 to = address_in(shared_address(sums + (slice * OWNED + r % OWNED) * COLS + lane % 4 * 2), owner), bar = address_in(all_sums, owner);
#pragma unroll
            for (int c = 0; c < NT; c++) send(to + 32 * c, acc[t][c][2 * h], acc[t][c][2 * h + 1], bar);
        }
    mbarrier_wait(all_sums, 0);
    for (int i = threadIdx.x; i < OWNED * COLS; i += THREADS) {
        const int r = cta_row + rank * OWNED + i / COLS, c = i % COLS;
        if (r >= m || c >= n) continue;
        const float* at = sums + i;
        float v = at[0];
#pragma unroll
        for (int s = 1; s < SLICES; s++) v = __fadd_rn(v, at[s * OWNED * COLS]);
        if (bias) v = __fadd_rn(v, load_as<ACT>(bias, r));
        store_as<ACT>(d, r * d_row + c * d_col, v);
    }
}
#endif

extern "C" __global__ void mixed_stream_reorder(const u8* w, uint4* out, int m, int k) {
    const int blocks = (k + BLOCK - 1) / BLOCK;
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)((m + 15) / 16) * blocks * 64) return;
    const int lane = (int)(i % 32), half = (int)(i / 32 % 2);
    const long long tile = i / 64;
    const int row = (int)(tile / blocks) * 16 + half * 8 + lane / 4, kk = (int)(tile % blocks) * BLOCK + 32 * (lane % 4);
    u32 words[4] = {};
    for (int j = 0; j < 32 && row < m && kk < k; j++) {
        const int nibble = j % 8 / 2 + 4 * (j % 2);
        words[j / 8] |= (u32)(nibble_at<false, HIGH_FIRST>(w + (long long)row * (k / 2), kk + j)) << (4 * nibble);
    }
    out[i] = make_uint4(words[0], words[1], words[2], words[3]);
}

extern "C" __global__ void mixed_stream_naive(const u8* w, const u16* scale, const void* zero, const u16* x, const u16* bias, u16* d, int m, int n, int k,
                                              int group_shift, long long scale_row, long long d_row, long long d_col) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)m * n) return;
    const int r = (int)(i / n), c = (int)(i % n), blocks = (k + BLOCK - 1) / BLOCK;
    float v = 0.0f;
    for (int slice = 0; slice * SLICE < blocks; slice++) {
        float sum = 0.0f;
        for (int b = slice * SLICE; b < min(blocks, (slice + 1) * SLICE); b++)
            for (int j = 0; j < 8; j++) {
                u16 ws[16] = {}, xs[16] = {};
                for (int e = 0; e < 16; e++) {
                    const int kk = BLOCK * b + 32 * (e / 4) + 4 * j + e % 4;
                    if (kk >= k) continue;
                    const int code = nibble_at<WEIGHT == 0, HIGH_FIRST>(w + (long long)r * (k / 2), kk);
                    ws[e] = weight_of(code, scale, zero, r * scale_row + (kk >> group_shift));
                    xs[e] = x[(long long)c * k + kk];
                }
                sum = mma_step(ws, xs, sum);
            }
        v = slice ? __fadd_rn(v, sum) : sum;
    }
    if (bias) v = __fadd_rn(v, load_as<ACT>(bias, r));
    store_as<ACT>(d, r * d_row + c * d_col, v);
}
