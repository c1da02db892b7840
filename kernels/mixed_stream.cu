// D[M,N] = dequantized(W)[M,K] . X[N,K]^T for few tokens (16 at most): int4 or uint4 weights times f16 or bf16.
//
// Weights as in mixed_gemm.cu. Products and sums: K is cut into blocks of 128, the blocks into slices of 4. A slice's f32 sum starts at +0
// and takes, block by block, 8 steps c = T(16, 25, 23 RZ)(c, products) (docs/tensor-cores.md 1, sm_90); step j of block b takes, for t = 0..3,
// k = 128 b + 32 t + 4 j + {0, 1, 2, 3} (k >= K: zeros). Then, in f32 to nearest even: sum = slice 0 + slice 1 + ... in this order,
// v = RN32(sum + f32(bias[m])) if bias is given, D = RN(v). The order of N never matters.
//
// A cluster of SPLIT CTAs holds ROWS rows of W: CTA r has slices r*WARPS_K .. of K, warp (i, j) its 32 rows i of slice j. X is the 16 x 16
// operand of the tensor cores, 8 rows of W the other. A warp asks for two tokens of its slice of X first, by bulk copies: behind the weights
// they would come last. Its weights it copies itself. The warps of a CTA's first slice ask for one block before X is there and for the rest after
// it, those of the second slice as those of the first begin to multiply: so the sums of the first travel while the second multiplies.
// Sums of slices meet, as fragments, in the CTA that owns the rows, counted by its barrier, and are added in slice order.
//
// A launch may be programmatically dependent on the one before it: nothing is read or written before that one has ended.
//
// Options (-D): WEIGHT INT4, UINT4; IN, ZERO, MID as in mixed_gemm.cu;  SHIFT log2 of the group size, 5 to 9 (9: 512 and more);
//   WARPS_M (8), WARPS_K (2);  SPLIT (1, 2, 4, 8).
//
// contract mixed_stream(const u8* w, const u16* x, const u16* bias, u16* d, int M, int N, int K, long long d_row, long long d_col)
//   arch   sm_90 and later
//   w      as mixed_stream_reorder writes it;  x [N, K] row-major, 16-byte aligned;  bias [M] or null;  d: element (m, n) at m*d_row + n*d_col
//   grid   (SPLIT * ceil(M / ROWS)), ROWS = 32 WARPS_M;  block 32 WARPS_M WARPS_K
//   smem   WARPS_K*(32768 + WARPS_M*CHUNK) + 8*WARPS_M*WARPS_K + 16 dynamic, CHUNK = 8192 + (ZERO ? 128 : 64)*(512 >> SHIFT)
//   refuse N > 16; ceil(K/512) > SPLIT*WARPS_K; and what mixed_gemm.cu refuses
// mixed_stream_reorder(w, scale, zero, out, M, K, group_shift, scale_row): thread per 16 bytes of out, grid ceil(n/256), block 256,
//   n = ceil(M/32)*ceil(K/512)*CHUNK/16. scale (and zero): element (m, group) at m*scale_row + group; group_shift up to 30. 32 rows i and
//   k 512 s .. are at (i*ceil(K/512) + s)*CHUNK: the scales, u16 [32][512 >> SHIFT], if ZERO the zero points as 16 bits in the same order, and the
//   codes of blocks 0 to 3. Codes of a block:
//   16 bytes of row 8 r + g, k = 32 t .. + 31 at (r*32 + 4 g + t)*16, in every word code j as nibble j / 2 + 4 (j % 2): nibbles that come out of it
//   together, i and i + 4, are neighbours in X. int4 has its top bit flipped. Words are then turned left by 3 bits for f16 without zero points
//   (small_weights). Beyond M and K codes and scales are the bytes of zeros.
#include "common/mbarrier.cuh"
#include "common/mixed.cuh"
#include "common/tma.cuh"

#ifndef WARPS_M
#define WARPS_M 8
#endif
#ifndef WARPS_K
#define WARPS_K 2
#endif
#ifndef SPLIT
#define SPLIT 8
#endif
#ifndef SHIFT
#define SHIFT 6
#endif
static_assert(WEIGHT != INT8, "4-bit weights");

constexpr int BLOCK = 128, SLICE = 4;                       // k of a block, blocks of a slice
constexpr int AHEAD = 1;                                    // blocks that a warp of the first slice asks for before X is there
constexpr int ROWS = 32 * WARPS_M, COLS = 16, WARPS = WARPS_M * WARPS_K, THREADS = 32 * WARPS;
constexpr int SLICES = SPLIT * WARPS_K, OWNED = WARPS_M / SPLIT;  // warps of rows whose sums a CTA finishes
constexpr int ENTRIES = 512 >> SHIFT, SCALE_BYTES = (ZERO ? 128 : 64) * ENTRIES;
constexpr int CODE_BYTES = 2048, CHUNK = SCALE_BYTES + SLICE * CODE_BYTES;  // codes of 32 rows of a block; weights of a warp
constexpr int X_ROW = 2 * BLOCK * SLICE, X_BYTES = COLS * X_ROW;            // a token's part of a slice; a slice's X
// Named barriers: a warp of the first slice has its first block; two of them have begun their third. Before them X of a slice is laid out: 1 and 2.
constexpr int BEGUN = 3, HALF_DONE = BEGUN + WARPS_M;
constexpr int SUM_BYTES = SLICES * OWNED * 2048;
// Shared memory: X laid out, X as it comes in and later the sums, the warps' weights, barriers.
constexpr int RAW_AT = WARPS_K * X_BYTES, W_AT = RAW_AT + WARPS_K * X_BYTES, BARS_AT = W_AT + WARPS * CHUNK;
static_assert(WARPS_M == 8 && COLS == 2 * WARPS_M, "two tokens a warp");
static_assert(WARPS_K == 2, "a first and a second slice");
static_assert(WARPS_M % SPLIT == 0 && SUM_BYTES <= WARPS_K * X_BYTES, "whole warps of sums, where X came in");

/// 16 bytes of a lane to shared memory of a CTA of the cluster, counted by its barrier.
__device__ __forceinline__ void send(u32 to, const float (&v)[4], u32 bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3]), "r"(bar)
                 : "memory");
}
__device__ __forceinline__ u32 address_in(u32 own, int rank) {
    u32 d;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d) : "r"(own), "r"(rank));
    return d;
}
/// 16 bytes of weights, and the end of what is waited for together.
__device__ __forceinline__ void copy_weights(u32 to, const u8* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void end_of_block() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most OPEN of the blocks asked for are still to come.
template <int OPEN>
__device__ __forceinline__ void wait_for_blocks() {
    asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}
/// Where in a step's 512 bytes the 16 of a lane are: neighbours of 64 bytes change places where p is odd, so that a warp that lays X out writes to
/// fewer places of a bank at once.
__device__ __forceinline__ int place(int lane, int p) { return (lane ^ (p & 1) << 2) * 16; }

/// Small scales of f16 weights without zero points take one fma a pair; words are turned for it.
constexpr bool SMALL = IN == F16 && ZERO == NONE;
constexpr int TURNED = SMALL ? 3 : 0;

/// word_to_weights, of codes as they are here.
__device__ __forceinline__ void any_weights(u32 (&w)[4], u32 word, u32 scale) {
    const u32 s = __byte_perm(scale, 0, 0x1010), z = __byte_perm(scale, 0, 0x3232);
    const int offset = (WEIGHT == INT4 ? 8 : 0) + minus_of(scale);
    if (TURNED) word = __funnelshift_r(word, word, TURNED);
    u32 q[4];
    nibbles_to_16bit<IN == BF16, false>(q, word, integer16(-(IN == F16 ? 1024 : 128) - offset), integer16(-64 - offset));
#pragma unroll
    for (int h = 0; h < 4; h++) w[h] = scaled(q[h], s, z);
}

/// A scale for small_weights: times 2^17, times 2^21, times -8 (int4), each exact.
struct Small {
    u32 s17, s21, minus;
};
__device__ __forceinline__ Small small_scale(u32 scale) {
    const u32 s = __byte_perm(scale, 0, 0x1010), s15 = fma16(s, 0x78007800u, MINUS_ZERO);
    return {fma16(s15, 0x44004400u, MINUS_ZERO), fma16(s15, 0x54005400u, MINUS_ZERO), WEIGHT == INT4 ? fma16(s, 0xc800c800u, MINUS_ZERO) : MINUS_ZERO};
}
/// The same weights where |s| < 2^-5. A nibble n at bits 3 to 6 of an f16 is the number 2^-21 n, at bits 7 to 10 (the last is the exponent's lowest,
/// whose steps are those of the subnormals) 2^-17 n. So fma(2^-17 n, 2^17 s, -8 s) is RN((n - 8) s); only the sign of a zero may differ, which no
/// product shows.
__device__ __forceinline__ void small_weights(u32 (&w)[4], u32 word, const Small& s) {
    const u32 high = __funnelshift_r(word, word, 8);
    w[0] = fma16(word & 0x00780078u, s.s21, s.minus);
    w[1] = fma16(word & 0x07800780u, s.s17, s.minus);
    w[2] = fma16(high & 0x00780078u, s.s21, s.minus);
    w[3] = fma16(high & 0x07800780u, s.s17, s.minus);
}
/// The larger magnitude of each half; a NaN stays one.
__device__ __forceinline__ u32 larger(u32 a, u32 b) {
    u32 d;
    asm("{.reg .b32 p,q; abs.f16x2 p,%1; abs.f16x2 q,%2; max.NaN.f16x2 %0,p,q;}" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters and bulk copies
extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    mixed_stream(const u8* w, const u16* x, const u16* bias, u16* d, int m, int n, int k, long long d_row, long long d_col) {
    extern __shared__ __align__(128) u8 smem[];
    // The shuffle tells the compiler that all lanes have the same: addresses of copies in uniform registers.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32, rank = blockIdx.x % SPLIT;
    const int warp_k = warp / WARPS_M, warp_m = warp % WARPS_M, cta_row = blockIdx.x / SPLIT * ROWS, warp_row = cta_row + 32 * warp_m;
    const int blocks = (k + BLOCK - 1) / BLOCK, slices = (blocks + SLICE - 1) / SLICE, slice = rank * WARPS_K + warp_k, first = slice * SLICE;
    const int count = warp_row < m ? max(0, min(SLICE, blocks - first)) : 0;
    const u32 base = shared_address(smem), bar = base + BARS_AT + 8 * warp, all_sums = base + BARS_AT + 8 * WARPS;

    // X: tokens warp_m and warp_m + 8 of the slice.
    const int k_left = k - BLOCK * first, x_bytes = 2 * max(0, min(k_left, BLOCK * SLICE));
    const int tokens = x_bytes ? (warp_m < n) + (warp_m + 8 < n) : 0;
    const int raw_at = RAW_AT + (warp_k * COLS + warp_m) * X_ROW;
    const u8* chunk = w + ((long long)(warp_row / 32) * slices + slice) * CHUNK + lane * 16;
    const u8* weights_at = smem + W_AT + warp * CHUNK;
    const u32 weights_to = base + W_AT + warp * CHUNK + lane * 16;
    const auto ask = [&](int i) {
        if (i < count) {
            if (i == 0)
#pragma unroll
                for (int at = 0; at < SCALE_BYTES; at += 512)
                    if (at + lane * 16 < SCALE_BYTES) copy_weights(weights_to + at, chunk + at);
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const int at = SCALE_BYTES + i * CODE_BYTES + r * 512;
                copy_weights(weights_to + at, chunk + at);
            }
        }
        end_of_block();
    };
    const bool leads = warp_k == 0;       // of the first slice; warp + WARPS_M follows
    const int before = leads ? AHEAD : 0;  // blocks asked for before X is there
    if (lane == 0) {
        mbarrier_init(bar, 1);
        if (warp == 0) mbarrier_init(all_sums, 1);
        mbarrier_init_fence();
        if (warp == 0) mbarrier_expect(all_sums, SUM_BYTES);
        mbarrier_expect(bar, tokens * x_bytes);
        const u16* from = x + (long long)warp_m * k + BLOCK * first;
        asm volatile("griddepcontrol.wait;" ::: "memory");  // for the launch before this one, and the warp for this lane
        if (tokens > 0) bulk_load(base + raw_at, from, x_bytes, bar);
        if (tokens > 1) bulk_load(base + raw_at + 8 * X_ROW, from + 8ll * k, x_bytes, bar);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < SLICE; i++)
        if (i < before) ask(i);
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    mbarrier_wait(bar, 0);
    if (leads) ask(AHEAD);

    // X as it came in to where a lane finds the 16 bytes of a step in one place: k = 0 1 of tokens g and g + 8, k = 2 3 of both. Beyond X zeros.
    u8* xs = smem + warp_k * X_BYTES;
#pragma unroll
    for (int j = 0; j < X_ROW / 512; j++) {
        const int i = 32 * j + lane, t = i / 4 % 4, p = i % 4;
        uint4 a = make_uint4(0, 0, 0, 0), b = a;
        if (tokens > 0 && 8 * i < k_left) a = *(const uint4*)(smem + raw_at + 16 * i);
        if (tokens > 1 && 8 * i < k_left) b = *(const uint4*)(smem + raw_at + 8 * X_ROW + 16 * i);
        u8* to = xs + (i / 16 * 4 + p) * 1024 + place(4 * warp_m + t, p);
        *(uint4*)to = make_uint4(a.x, b.x, a.y, b.y);
        *(uint4*)(to + 512) = make_uint4(a.z, b.z, a.w, b.w);
    }
    if (leads) {
#pragma unroll
        for (int i = AHEAD + 1; i < SLICE; i++) ask(i);
    }
    named_barrier(1 + warp_k, 32 * WARPS_M);
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");

    if (!leads) {
        named_barrier(BEGUN + warp_m, 64);
        ask(0);
        ask(1);
        named_barrier(HALF_DONE + warp_m / 2, 128);
        ask(2);
        ask(3);
    }

    float acc[4][4] = {};  // of 8 rows each: rows 2t, 2t + 1 of token g, then of token g + 8
#pragma unroll 1  // unrolled it is no faster, and four times the code
    for (int i = 0; i < count; i++) {
        wait_for_blocks<SLICE - 1>();
        __syncwarp();  // scales come by copies of other lanes
        end_of_block();  // of nothing, but counted
        if (leads && i == 0) named_barrier_arrive(BEGUN + warp_m, 64);
        if (leads && i == 2) named_barrier_arrive(HALF_DONE + warp_m / 2, 128);
        const bool exists = BLOCK * (first + i) + 32 * (lane % 4) < k;
        uint4 codes[4];  // of rows g, g + 8, g + 16, g + 24
        u32 scales[4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            codes[r] = *(const uint4*)(weights_at + SCALE_BYTES + i * CODE_BYTES + r * 512 + lane * 16);
            const u16* at = (const u16*)weights_at + (8 * r + lane / 4) * ENTRIES + ((BLOCK * i + 32 * (lane % 4)) >> SHIFT);
            scales[r] = exists ? ZERO ? at[0] | (u32)at[32 * ENTRIES] << 16 : at[0] : 0;
        }
        const u8* x_block = xs + 8 * i * 512;
        const auto multiply = [&](auto to_weights) {
#pragma unroll
            for (int p = 0; p < 4; p++) {
                u32 weights[4][4];  // k = 0 1, 2 3, 4 5, 6 7
#pragma unroll
                for (int r = 0; r < 4; r++) to_weights(weights[r], p == 0 ? codes[r].x : p == 1 ? codes[r].y : p == 2 ? codes[r].z : codes[r].w, r);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint4 a = *(const uint4*)(x_block + (2 * p + h) * 512 + place(lane, p));
#pragma unroll
                    for (int r = 0; r < 4; r++) mma16(acc[r], a.x, a.y, a.z, a.w, weights[r][2 * h], weights[r][2 * h + 1]);
                }
            }
        };
        bool small = false;
        if (SMALL) {
            const u32 largest = larger(larger(scales[0], scales[1]), larger(scales[2], scales[3]));
            small = __all_sync(0xffffffffu, (largest & 0xffffu) < 0x2800u);  // 2^-5
        }
        if (small) {
            Small s[4];
#pragma unroll
            for (int r = 0; r < 4; r++) s[r] = small_scale(scales[r]);
            multiply([&](u32 (&w)[4], u32 word, int r) { small_weights(w, word, s[r]); });
        } else multiply([&](u32 (&w)[4], u32 word, int r) { any_weights(w, word, scales[r]); });
    }
    if (leads && count < 1) named_barrier_arrive(BEGUN + warp_m, 64);
    if (leads && count < 3) named_barrier_arrive(HALF_DONE + warp_m / 2, 128);

    // Every slice's sum goes to the CTA that owns the rows, once all of the cluster have laid out X and set up their barriers.
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    const int owner = warp_m / OWNED;
    const u32 to = address_in(base + RAW_AT + (slice * OWNED + warp_m % OWNED) * 2048 + 16 * lane, owner), bar_there = address_in(all_sums, owner);
#pragma unroll
    for (int r = 0; r < 4; r++) send(to + 512 * r, acc[r], bar_there);
    for (int i = threadIdx.x; i < OWNED * 512; i += THREADS) {
        const int of = i / 4 % 32, r = cta_row + 32 * rank * OWNED + i / 128 * 8 + of % 4 * 2 + i % 2, c = of / 4 + i / 2 % 2 * 8;
        const bool exists = r < m && c < n;
        u16* there = d + r * d_row + c * d_col;
        const float more = bias && exists ? load_as<IN>(bias, r) : 0.0f;
        const float* at = (const float*)(smem + RAW_AT) + i;
        if (i < THREADS) mbarrier_wait(all_sums, 0);
        float v = at[0];
#pragma unroll
        for (int s = 1; s < SLICES; s++) v = __fadd_rn(v, at[s * OWNED * 512]);
        if (bias) v = __fadd_rn(v, more);
        if (exists) store_as<IN>(there, 0, v);
    }
}
#endif

extern "C" __global__ void mixed_stream_reorder(const u8* w, const u16* scale, const void* zero, uint4* out, int m, int k, int group_shift, long long scale_row) {
    const int slices = (k + BLOCK * SLICE - 1) / (BLOCK * SLICE);
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, unit = i / (CHUNK / 16);
    if (unit >= (long long)((m + 31) / 32) * slices) return;
    const int in_part = (int)(i % (CHUNK / 16)) * 16 - SCALE_BYTES, row0 = (int)(unit / slices) * 32, k0 = (int)(unit % slices) * SLICE * BLOCK;
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
            words[j / 8] |= (u32)(nibble_at<false>(w + (long long)row * (k / 2), kk + j) ^ (WEIGHT == INT4 ? 8 : 0)) << (4 * (j % 8 / 2 + 4 * (j % 2)));
        if (TURNED)
            for (u32& word : words) word = __funnelshift_l(word, word, TURNED);
    }
    out[i] = make_uint4(words[0], words[1], words[2], words[3]);
}
