// D[M,N] = dequantized(W)[M,K] . X[N,K]^T for few tokens: int4 or uint4 weights times f16 or bf16, every byte of the weights requested at
// once by bulk copies. The same weights, products, order of K, slices and bits as mixed_gemm.cu with slices of 4 blocks (512 of K); its
// mixed_naive with SPLIT * WARPS_K slices, TILED 1, is the definition.
//
// A cluster of SPLIT CTAs holds ROWS rows of W: CTA r has slices r*WARPS_K .. of K, warp (i, j) its 32 rows i of slice j. All weights of a
// CTA fit its shared memory: nothing is waited for before everything is asked for. A warp's lane 0 asks for the warp's own 8 KB, counted
// by the warp's own barriers, one for each two blocks. Sums of slices meet in the CTA that owns the row and are added in slice order.
//
// Options (-D): WEIGHT 0, 1; ACT, ZERO, MID, HIGH_FIRST as in mixed_gemm.cu;  NT 8-token tiles (1, 2);  WARPS_M, WARPS_K;  SPLIT (1, 2, 4, 8).
//
// contract mixed_stream(const uint4* w, const u16* scale, const void* zero, const u16* x, const u16* bias, u16* d, int M, int N, int K,
//                       int group_shift, long long scale_row, long long d_row, long long d_col)
//   arch   sm_90 and later
//   w      as mixed_reorder of mixed_gemm.cu writes it;  scale (and zero): element (m, group) at m*scale_row + group
//   x      [N, K] row-major, 16-byte aligned;  bias [M] or null;  d: element (m, n) at m*d_row + n*d_col
//   grid   (SPLIT * ceil(M / ROWS)), ROWS = 32 WARPS_M;  block 32 WARPS_M WARPS_K
//   smem   WARPS_K*(ROWS*256 + NT*8192 + ROWS*NT*32) + 16*WARPS_M*WARPS_K dynamic
//   refuse N > 8 NT; ceil(K/512) > SPLIT*WARPS_K; and what mixed_gemm.cu refuses
#include "common/mbarrier.cuh"
#include "common/mixed.cuh"
#include "common/tma.cuh"

#ifndef NT
#define NT 2
#endif
#ifndef WARPS_M
#define WARPS_M 4
#endif
#ifndef WARPS_K
#define WARPS_K 4
#endif
#ifndef SPLIT
#define SPLIT 4
#endif
static_assert(WEIGHT != 2, "4-bit weights");

constexpr int BLOCK = 128, SLICE = 4;                       // k of a block, blocks of a slice
constexpr int ROWS = 32 * WARPS_M, COLS = 8 * NT, THREADS = 32 * WARPS_M * WARPS_K;
constexpr int SLICES = SPLIT * WARPS_K, OWNED = ROWS / SPLIT;
constexpr int TILE_BYTES = 1024;                            // 16 rows of a block
constexpr int W_BYTES = WARPS_K * WARPS_M * 2 * SLICE * TILE_BYTES, X_BYTES = WARPS_K * SLICE * NT * 2048;
constexpr int SUM_BYTES = SLICES * OWNED * COLS * 4;
static_assert(ROWS % SPLIT == 0 && SUM_BYTES == WARPS_K * ROWS * NT * 32, "whole rows of sums");

/// X of the CTA's slices to where lanes find 16 bytes, the eight k of two steps, in one place: piece (block, p, tile) of lane
/// (column % 8)*4 + t. Two columns of a block a warp: neighbouring lanes read neighbouring 16 bytes.
__device__ __forceinline__ void copy_x(u32 to, const u16* x, int n, int k, int first_block) {
    constexpr int UNITS = WARPS_K * SLICE * COLS / 2, WARPS = THREADS / 32;
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

/// Scale, and in the upper half the zero point, of (row, k); 0 beyond M and K.
__device__ __forceinline__ u32 load_scale(const u16* scale, const void* zero, long long row_start, int k, int group_shift, bool exists) {
    u16 s = 0, z = 0;
    const long long at = row_start + (k >> group_shift);
    if (exists) {
        asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(s) : "l"(scale + at));
        if (ZERO == 1) asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(z) : "l"((const u16*)zero + at));
        if (ZERO == 2) asm volatile("ld.global.nc.s8 %0, [%1];" : "=h"(z) : "l"((const s8*)zero + at));
    }
    return ZERO ? s | (u32)z << 16 : s;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters and bulk copies
extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    mixed_stream(const uint4* w, const u16* scale, const void* zero, const u16* x, const u16* bias, u16* d, int m, int n, int k, int group_shift,
                 long long scale_row, long long d_row, long long d_col) {
    extern __shared__ __align__(128) u8 smem[];
    float* sums = (float*)(smem + W_BYTES + X_BYTES);       // [SLICES][OWNED][COLS]
    const u32 base = shared_address(smem), bars = base + W_BYTES + X_BYTES + SUM_BYTES;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = blockIdx.x % SPLIT;
    const int warp_k = warp / WARPS_M, warp_m = warp % WARPS_M, cta_row = blockIdx.x / SPLIT * ROWS, warp_row = cta_row + 32 * warp_m;
    const int blocks = (k + BLOCK - 1) / BLOCK, slice = rank * WARPS_K + warp_k, first = slice * SLICE;
    const int count = max(0, min(SLICE, blocks - first)), tiles = max(0, min(2, (m - warp_row + 15) / 16));
    const u32 own = base + warp * (2 * SLICE * TILE_BYTES), bar = bars + warp * 16;

    if (lane == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init(bar + 8, 1);
        mbarrier_init_fence();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int in_half = max(0, min(2, count - 2 * half));
            mbarrier_expect(bar + 8 * half, in_half * tiles * TILE_BYTES);
            for (int tile = 0; tile < tiles && in_half; tile++)
                bulk_load(own + (tile * SLICE + 2 * half) * TILE_BYTES,
                          (const u8*)w + ((long long)(warp_row / 16 + tile) * blocks + first + 2 * half) * TILE_BYTES, in_half * TILE_BYTES, bar + 8 * half);
        }
    }
    __syncwarp();
    copy_x(base + W_BYTES, x, n, k, rank * WARPS_K * SLICE);
    u32 scales[SLICE][4];  // rows g, g + 8, g + 16, g + 24
#pragma unroll
    for (int i = 0; i < SLICE; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int row = warp_row + lane / 4 + 8 * r, kk = BLOCK * (first + i) + 32 * (lane % 4);
            scales[i][r] = load_scale(scale, zero, row * scale_row, kk, group_shift, row < m && kk < k);
        }
    copies_done();
#if SPLIT > 1
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
    __syncthreads();

    float acc[2][NT][4] = {};
#pragma unroll
    for (int i = 0; i < SLICE; i++) {
        if (i >= count) break;
        if (i % 2 == 0) mbarrier_wait(bar + 4 * i, 0);
        uint4 codes[4];
#pragma unroll
        for (int r = 0; r < 4; r++) codes[r] = *(const uint4*)(smem + warp * (2 * SLICE * TILE_BYTES) + (r / 2 * SLICE + i) * TILE_BYTES + r % 2 * 512 + lane * 16);
        const u8* xs = smem + W_BYTES + ((warp_k * SLICE + i) * 4 * NT * 32 + lane) * 16;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            u32 weights[4][4];
#pragma unroll
            for (int r = 0; r < 4; r++)
                word_to_weights(weights[r], p == 0 ? codes[r].x : p == 1 ? codes[r].y : p == 2 ? codes[r].z : codes[r].w, scales[i][r]);
#pragma unroll
            for (int c = 0; c < NT; c++) {
                uint4 b = *(const uint4*)(xs + (p * NT + c) * 512);
                // Nibbles come out of their words as k = 0 4, 1 5, 2 6, 3 7.
                b = make_uint4(__byte_perm(b.x, b.z, 0x5410), __byte_perm(b.x, b.z, 0x7632), __byte_perm(b.y, b.w, 0x5410), __byte_perm(b.y, b.w, 0x7632));
#pragma unroll
                for (int t = 0; t < 2; t++) mma16(acc[t][c], weights[2 * t][0], weights[2 * t + 1][0], weights[2 * t][1], weights[2 * t + 1][1], b.x, b.y);
#pragma unroll
                for (int t = 0; t < 2; t++) mma16(acc[t][c], weights[2 * t][2], weights[2 * t + 1][2], weights[2 * t][3], weights[2 * t + 1][3], b.z, b.w);
            }
        }
    }

    // Every slice's sum goes to the CTA that owns the row; all have started once the first barrier is passed.
#if SPLIT > 1
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = 32 * warp_m + 16 * t + 8 * h + lane / 4;
            float* at = sums + (slice * OWNED + r % OWNED) * COLS + lane % 4 * 2;
#if SPLIT > 1
            u32 remote;
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(r / OWNED));
#pragma unroll
            for (int c = 0; c < NT; c++)
                asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote + 32 * c), "f"(acc[t][c][2 * h]), "f"(acc[t][c][2 * h + 1])
                             : "memory");
#else
#pragma unroll
            for (int c = 0; c < NT; c++) *(float2*)(at + 8 * c) = make_float2(acc[t][c][2 * h], acc[t][c][2 * h + 1]);
#endif
        }
#if SPLIT > 1
    asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
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
