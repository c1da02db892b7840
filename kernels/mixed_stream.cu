// D[M,N] = dequantized(W)[M,K] . X[N,K]^T for few tokens: int4 or uint4 weights times f16 or bf16, every byte of the weights asked for at
// once by bulk copies.
//
// Weights as in mixed_gemm.cu. Products and sums: K is cut into blocks of 128, the blocks into slices of 4. A slice's f32 sum starts at +0
// and takes, block by block, 8 steps c = T(16, 25, 23 RZ)(c, products) (docs/tensor-cores.md 1, sm_90); step j of block b takes, for t = 0..3,
// k = 128 b + 32 t + 4 j + {0, 1, 2, 3} (k >= K: zeros). Then, in f32 to nearest even: sum = slice 0 + slice 1 + ... in this order,
// v = RN32(sum + f32(bias[m])) if bias is given, D = RN(v). The order of N never matters.
//
// A cluster of SPLIT CTAs holds ROWS rows of W: CTA r has slices r*WARPS_K .. of K, warp (i, j) its 32 rows i of slice j. All weights of a
// CTA fit its shared memory: nothing is waited for before everything is asked for. ASKING more warps ask for X, a row a copy, then for the
// weights, those of a block and 32 rows a copy, block after block: a thread that asks for more than memory delivers waits, so no other warp
// does it. X comes in where the sums will be and is laid out from there. Sums of slices meet in the CTA that owns the row, counted by its
// barrier, and are added in slice order.
//
// Options (-D): WEIGHT INT4, UINT4; IN, ZERO, MID as in mixed_gemm.cu;  SHIFT log2 of the group size, 5 to 9 (9: 512 and more);
//   NT 8-token tiles (1, 2);  WARPS_M, WARPS_K;  SPLIT (1, 2, 4, 8);  ASKING (4, 8: divides WARPS_M*WARPS_K).
//
// contract mixed_stream(const u8* w, const u16* x, const u16* bias, u16* d, int M, int N, int K, long long d_row, long long d_col)
//   arch   sm_90 and later
//   w      as mixed_stream_reorder writes it;  x [N, K] row-major, 16-byte aligned;  bias [M] or null;  d: element (m, n) at m*d_row + n*d_col
//   grid   (SPLIT * ceil(M / ROWS)), ROWS = 32 WARPS_M;  block 32 (WARPS_M WARPS_K + ASKING)
//   smem   WARPS_K*(WARPS_M*CHUNK + NT*8192) + max(WARPS_K*ROWS*NT*32, 8*NT*(WARPS_K*1024 + 32)) + 32*WARPS_M*WARPS_K + 16 dynamic,
//          CHUNK = 8192 + (ZERO ? 128 : 64)*(512 >> SHIFT)
//   refuse N > 8 NT; ceil(K/512) > SPLIT*WARPS_K; and what mixed_gemm.cu refuses
// mixed_stream_reorder(w, scale, zero, out, M, K, group_shift, scale_row): thread per 16 bytes of out, grid ceil(n/256), block 256,
//   n = ceil(M/32)*ceil(K/512)*CHUNK/16. scale (and zero): element (m, group) at m*scale_row + group; group_shift up to 30. 32 rows i and
//   k 512 s .. are at (i*ceil(K/512) + s)*CHUNK: the scales, u16 [32][512 >> SHIFT], if ZERO the zero points as 16 bits in the same order, and the
//   codes of blocks 0 to 3. Codes of a block:
//   16 bytes of row 8 r + g, k = 32 t .. + 31 at (r*32 + 4 g + t)*16, in every word code j as nibble j / 2 + 4 (j % 2): nibbles that come out of it
//   together, i and i + 4, are neighbours in X. Beyond M and K all is zero.
#include "common/mbarrier.cuh"
#include "common/mixed.cuh"
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
#ifndef ASKING
#define ASKING 4
#endif
#ifndef SHIFT
#define SHIFT 6
#endif
static_assert(WEIGHT != INT8, "4-bit weights");

constexpr int BLOCK = 128, SLICE = 4;                       // k of a block, blocks of a slice
constexpr int ROWS = 32 * WARPS_M, COLS = 8 * NT, WARPS = WARPS_M * WARPS_K, THREADS = 32 * (WARPS + ASKING);
constexpr int SLICES = SPLIT * WARPS_K, OWNED = ROWS / SPLIT;
constexpr int ENTRIES = 512 >> SHIFT, SCALE_BYTES = (ZERO ? 128 : 64) * ENTRIES;
constexpr int CODE_BYTES = 2048, UNIT_BYTES = SCALE_BYTES + SLICE * CODE_BYTES;  // codes of 32 rows of a block; weights of a warp
constexpr int W_BYTES = WARPS * UNIT_BYTES, X_BYTES = WARPS_K * SLICE * NT * 2048;
constexpr int SUM_BYTES = SLICES * OWNED * COLS * 4;
constexpr int X_PIECES = WARPS_K * SLICE * 4 * NT, X_ROW = 2 * BLOCK * SLICE * WARPS_K, X_PITCH = X_ROW + 32;
constexpr int TAIL_BYTES = SUM_BYTES > COLS * X_PITCH ? SUM_BYTES : COLS * X_PITCH;  // X as it comes in, then sums
static_assert(X_PIECES % WARPS == 0 && WARPS % ASKING == 0 && WARPS / ASKING * SLICE < 32, "whole pieces a warp; a lane for every barrier");
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

/// X of the CTA's slices as it comes in, a row a token (X_PITCH apart: neighbouring rows in other banks), to where lanes find 16 bytes, the
/// eight k of two steps, in one place: piece (block, p, tile) of lane (column % 8)*4 + t. A warp lays a piece at a time; beyond X it is zero.
__device__ __forceinline__ void lay_out_x(u8* to, const u8* rows, int n, int k_left) {
    const int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int j = 0; j < X_PIECES / WARPS; j++) {
        const int piece = threadIdx.x / 32 + j * WARPS, tile = piece % NT, p = piece / NT % 4, block = piece / NT / 4;
        const int column = 8 * tile + lane / 4, k = BLOCK * block + 32 * t + 8 * p;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (column < n && k < k_left) v = *(const uint4*)(rows + column * X_PITCH + 2 * k);
        *(uint4*)(to + piece * 512 + 16 * lane) = v;
    }
}

/// Where the piece of block i begins in the weights of a warp, and its size: the scales come with the first.
__device__ __forceinline__ int piece_at(int i) { return i ? SCALE_BYTES + i * CODE_BYTES : 0; }
__device__ __forceinline__ int piece_bytes(int i) { return i ? CODE_BYTES : SCALE_BYTES + CODE_BYTES; }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters and bulk copies
extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    mixed_stream(const u8* w, const u16* x, const u16* bias, u16* d, int m, int n, int k, long long d_row, long long d_col) {
    extern __shared__ __align__(128) u8 smem[];
    float* sums = (float*)(smem + W_BYTES + X_BYTES);       // [SLICES][OWNED][COLS]
    const u32 base = shared_address(smem), bars = base + W_BYTES + X_BYTES + TAIL_BYTES, all_sums = bars + 8 * SLICE * WARPS, x_there = all_sums + 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = blockIdx.x % SPLIT;
    const int warp_k = warp / WARPS_M, warp_m = warp % WARPS_M, cta_row = blockIdx.x / SPLIT * ROWS, warp_row = cta_row + 32 * warp_m;
    const int blocks = (k + BLOCK - 1) / BLOCK, slice = rank * WARPS_K + warp_k, first = slice * SLICE;
    const bool asks = warp >= WARPS;
    const int k_left = k - BLOCK * SLICE * WARPS_K * rank;  // from the CTA's first
    const int slices = (blocks + SLICE - 1) / SLICE;
    const int count = asks || warp_row >= m ? 0 : max(0, min(SLICE, blocks - first));

    if (asks) {
        constexpr int EACH = WARPS / ASKING;  // units
        const int asking = warp - WARPS;
        const auto unit_of = [&](int j) { return (asking * EACH + j) % WARPS_K * WARPS_M + (asking * EACH + j) / WARPS_K; };
        const auto asked = [&](int j, int i) {
            const int unit = unit_of(j);
            return cta_row + 32 * (unit % WARPS_M) < m && (rank * WARPS_K + unit / WARPS_M) * SLICE + i < blocks;
        };
        const int bytes = 2 * max(0, min(k_left, X_ROW / 2)), tokens = bytes ? min(n, COLS) : 0;
        if (lane < EACH * SLICE) {
            const int j = lane / SLICE, i = lane % SLICE;
            const u32 bar = bars + 8 * (WARPS * i + unit_of(j));
            mbarrier_init(bar, 1);
            mbarrier_init_fence();
            if (asked(j, i)) mbarrier_expect(bar, piece_bytes(i));
        } else if (warp == WARPS && lane == 31) {
            mbarrier_init(all_sums, 1);
            mbarrier_init(x_there, 1);
            mbarrier_init_fence();
            mbarrier_expect(all_sums, SUM_BYTES);
            mbarrier_expect(x_there, tokens * bytes);
        }
        __syncwarp();
        named_barrier(3, 32 * ASKING);
        named_barrier_arrive(2, THREADS);
        if (lane == 0) {
            for (int c = asking; c < tokens; c += ASKING)
                bulk_load(base + W_BYTES + X_BYTES + c * X_PITCH, x + (long long)c * k + (k - k_left), bytes, x_there);
#pragma unroll
            for (int i = 0; i < SLICE; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    const int unit = unit_of(j);
                    const u8* from = w + ((long long)(cta_row / 32 + unit % WARPS_M) * slices + rank * WARPS_K + unit / WARPS_M) * UNIT_BYTES;
                    if (asked(j, i)) bulk_load(base + unit * UNIT_BYTES + piece_at(i), from + piece_at(i), piece_bytes(i), bars + 8 * (WARPS * i + unit));
                }
        }
        __syncwarp();
    } else {
        named_barrier(2, THREADS);
        mbarrier_wait(x_there, 0);
        lay_out_x(smem + W_BYTES, smem + W_BYTES + X_BYTES, n, k_left);
        named_barrier(1, 32 * WARPS);
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");

    float acc[2][NT][4] = {};
#pragma unroll
    for (int i = 0; i < SLICE; i++) {
        if (i >= count) break;
        const u8* unit = smem + warp * UNIT_BYTES;
        mbarrier_wait(bars + 8 * (WARPS * i + warp), 0);
        const bool exists = BLOCK * (first + i) + 32 * (lane % 4) < k;
        uint4 codes[4];  // of rows g, g + 8, g + 16, g + 24
        u32 scales[4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            codes[r] = *(const uint4*)(unit + SCALE_BYTES + i * CODE_BYTES + r * 512 + lane * 16);
            const u16* at = (const u16*)unit + (8 * r + lane / 4) * ENTRIES + ((BLOCK * i + 32 * (lane % 4)) >> SHIFT);
            scales[r] = exists ? ZERO ? at[0] | (u32)at[32 * ENTRIES] << 16 : at[0] : 0;
        }
        const u8* xs = smem + W_BYTES + ((warp_k * SLICE + i) * 4 * NT * 32 + lane) * 16;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            u32 weights[4][4];  // k = 0 1, 2 3, 4 5, 6 7
#pragma unroll
            for (int r = 0; r < 4; r++)
                word_to_weights(weights[r], p == 0 ? codes[r].x : p == 1 ? codes[r].y : p == 2 ? codes[r].z : codes[r].w, scales[r]);
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
        if (bias) v = __fadd_rn(v, load_as<IN>(bias, r));
        store_as<IN>(d, r * d_row + c * d_col, v);
    }
}
#endif

extern "C" __global__ void mixed_stream_reorder(const u8* w, const u16* scale, const void* zero, uint4* out, int m, int k, int group_shift, long long scale_row) {
    const int slices = (k + BLOCK * SLICE - 1) / (BLOCK * SLICE);
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, unit = i / (UNIT_BYTES / 16);
    if (unit >= (long long)((m + 31) / 32) * slices) return;
    const int in_part = (int)(i % (UNIT_BYTES / 16)) * 16 - SCALE_BYTES, row0 = (int)(unit / slices) * 32, k0 = (int)(unit % slices) * SLICE * BLOCK;
    u32 words[4] = {};
    if (in_part < 0) {
        for (int j = 0; j < 8; j++) {
            const int entry = (in_part + SCALE_BYTES) / 2 + j, row = row0 + entry / ENTRIES % 32, kk = k0 + (entry % ENTRIES << SHIFT);
            if (row >= m || kk >= k) continue;
            const long long at = row * scale_row + (kk >> group_shift);
            const u16 v = entry < 32 * ENTRIES ? scale[at] : ZERO == ADDITIVE ? ((const u16*)zero)[at] : (u16)(short)((const s8*)zero)[at];
            words[j / 2] |= (u32)v << (16 * (j % 2));
        }
    } else {
        const int piece = in_part / 16, lane = piece % 32, row = row0 + 8 * (piece / 32 % 4) + lane / 4;
        const int kk = k0 + piece / 128 * BLOCK + 32 * (lane % 4);
        for (int j = 0; j < 32 && row < m && kk < k; j++)
            words[j / 8] |= (u32)nibble_at<false>(w + (long long)row * (k / 2), kk + j) << (4 * (j % 8 / 2 + 4 * (j % 2)));
    }
    out[i] = make_uint4(words[0], words[1], words[2], words[3]);
}
