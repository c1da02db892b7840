// D[M,N] = dequantized(X)[M,K] . dequantized(W)[N,K]^T + bias as in w4a8.cu without zero points, for tens of tokens and more and a K that
// fits shared memory: weights become int8 in registers and are multiplied by wgmma.
//
// With brackets over group g (all of K if GROUP_BLOCKS 0), exact in int32: bracket_g = sum_k x w.
// GROUP_BLOCKS 0:  t1 = RN32(f32(bracket) * xs_m), t2 = RN32(t1 * ws_n), t3 = RN32(t2 + c), D = RN(t3)
// else:  y = +0; for g ascending y = fma32(f32(bracket_g), ws_ng, y);  t2 = RN32(y * xs_m), t3 = RN32(t2 + c), D = RN(t3)
//   c = f32(bias_n), or +0 without bias.
//
// Everything a CTA reads is asked for before anything is waited for; it is multiplied in PIECES of K, each as it comes. A cluster has CLUSTER
// tiles of tokens of the same features: each CTA asks for its share of their weights for all of them. A weight enters
// as 16 w: a nibble in the upper half of a byte is a signed number by itself. A word of eight codes gives its even and its odd ones, so
// each 32 bytes of X are stored as their 16 even and their 16 odd ones in the rows that wgmma reads (K-major, 128-byte swizzle).
//
// Options (-D): PHASES ceil(K / 256);  GROUP_BLOCKS group size / 128 (0: one group);  WARPGROUPS of 64 features each (1, 2);  TOKENS a CTA
//   (32, 64);  CLUSTER CTAs (1, 2, 4);  PIECES of K (divides PHASES);  SCALE F16, BF16, F32 (xs and ws);  OUT F16, BF16 (D and bias).
//
// contract w4a8_wide(const u8* x, TensorMap w, const void* xs, const void* ws, const void* bias, u16* d, int M, int N, int K, int groups)
//   arch   sm_90a
//   x      [M,K] int8 row-major, 16-byte aligned;  w: map (common/tma.cuh) of [N, K/2] int4, low-first, boxes of 64 WARPGROUPS / CLUSTER rows;
//          xs [M], ws [N, groups], bias [N] or null;  d [M,N], 16-byte aligned
//   grid   (ceil(N / (64 WARPGROUPS)), ceil(M / TOKENS) up to a multiple of CLUSTER);  block 128 WARPGROUPS
//   smem   1024 + 256 PHASES TOKENS + 8192 WARPGROUPS PHASES + 2 TOKENS (64 WARPGROUPS + 8) + 8 PIECES dynamic
//   refuse K % 32 != 0; N % 8 != 0; groups that are not ceil(K / group size); misaligned pointers
#include "common/int4.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef PHASES
#define PHASES 4
#endif
#ifndef GROUP_BLOCKS
#define GROUP_BLOCKS 0
#endif
#ifndef WARPGROUPS
#define WARPGROUPS 2
#endif
#ifndef TOKENS
#define TOKENS 32
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef PIECES
#define PIECES 2
#endif
#ifndef SCALE
#define SCALE F16
#endif
#ifndef OUT
#define OUT F16
#endif

constexpr int THREADS = 128 * WARPGROUPS, FEATURES = 64 * WARPGROUPS, BLOCKS = 2 * PHASES;
constexpr int GROUPS = GROUP_BLOCKS ? ceil_div(BLOCKS, GROUP_BLOCKS) : 1;
constexpr int D_PITCH = FEATURES + 8, W_PHASE = 128 * FEATURES;     // bytes of the weights of a phase
constexpr int SUMS = TOKENS / 2;                                    // outputs of a thread
constexpr int X_TURNS = 8 * TOKENS / THREADS, PIECE = PHASES / PIECES;  // phases of a piece
static_assert(PHASES % PIECES == 0, "pieces are whole phases");

template <int T>
struct Element {
    typedef u16 Bits;
};
template <>
struct Element<F32> {
    typedef float Bits;
};
typedef Element<SCALE>::Bits Scale;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define SUMS16(d, i) \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), "+r"(d[i + 7]), \
        "+r"(d[i + 8]), "+r"(d[i + 9]), "+r"(d[i + 10]), "+r"(d[i + 11]), "+r"(d[i + 12]), "+r"(d[i + 13]), "+r"(d[i + 14]), "+r"(d[i + 15])

/// d[64, TOKENS] = A . B^T + (accumulate ? d : 0), A in registers as mma.m16n8k32 has it, 16 rows a warp.
__device__ __forceinline__ void wgmma_s8(s32 (&d)[SUMS], const u32 (&a)[4], u64 b, int accumulate) {
#if TOKENS == 32
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, p;\n}"
        : SUMS16(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
#else
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p;\n}"
        : SUMS16(d, 0), SUMS16(d, 16)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
#endif
}
// Zero unless `exists`. Volatile, and not as read-only memory: such loads are moved to where their value is needed, past barriers.
__device__ __forceinline__ uint4 ask(const uint4* p, bool exists) {
    uint4 v;
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
                 "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
                 : "l"(p), "r"((int)exists));
    return v;
}
__device__ __forceinline__ u16 ask(const u16* p, bool exists) {
    u16 v;
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b16 %0, 0;\n@p ld.global.u16 %0, [%1];\n}" : "=&h"(v) : "l"(p), "r"((int)exists));
    return v;
}
__device__ __forceinline__ float ask(const float* p, bool exists) {
    float v;
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.f32 %0, [%1];\n}" : "=&f"(v) : "l"(p), "r"((int)exists));
    return v;
}
__device__ __forceinline__ float widen(u16 x, int type) { return type == F16 ? f16_to_f32(x) : bf16_to_f32(x); }
__device__ __forceinline__ float widen(float x, int) { return x; }
/// The sums are written by now: no read of them moves above this.
__device__ __forceinline__ void settle(s32 (&d)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; i++) asm volatile("" : "+r"(d[i])::"memory");
}
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void store16(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
extern "C" __global__ void __cluster_dims__(1, CLUSTER, 1) __launch_bounds__(THREADS) w4a8_wide(const u8* x, const __grid_constant__ TensorMap w, const Scale* xs, const Scale* ws, const u16* bias,
                                                                u16* d, int m, int n, int k, int groups) {
    extern __shared__ __align__(1024) u8 smem[];
    const u32 x_at = (shared_address(smem) + 1023) / 1024 * 1024;    // [BLOCKS][TOKENS] rows of 128 bytes, swizzled
    const u32 w_at = x_at + BLOCKS * TOKENS * 128;                   // [PHASES][FEATURES] rows of 128 bytes, swizzled
    u16* tile = (u16*)(smem + (w_at - shared_address(smem)) + PHASES * W_PHASE);  // [TOKENS][D_PITCH]
    const u32 bars = w_at + PHASES * W_PHASE + 2 * TOKENS * D_PITCH;  // [PIECES]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    const int feature0 = blockIdx.x * FEATURES, token0 = blockIdx.y * TOKENS;

    if (threadIdx.x == 0) {
        tma_prefetch(&w);
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) mbarrier_init(bars + 8 * piece, 1);
        mbarrier_init_fence();
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) mbarrier_expect(bars + 8 * piece, PIECE * W_PHASE);
        if (CLUSTER == 1)
#pragma unroll
            for (int p = 0; p < PHASES; p++) tma_load(w_at + p * W_PHASE, &w, 128 * p, feature0, bars + 8 * (p / PIECE));
    }
    __syncwarp();
    if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");

    // Of phase p a thread has 32 k of X from 256 p + x_k of row x_token (X_TURNS: the next such with THREADS added).
    uint4 xr[PHASES][X_TURNS][2];
#pragma unroll
    for (int p = 0; p < PHASES; p++)
#pragma unroll
        for (int u = 0; u < X_TURNS; u++) {
            const int i = threadIdx.x + u * THREADS, x_token = token0 + i / 4 % TOKENS, x_k = 128 * (i / (4 * TOKENS)) + 32 * (i % 4);
            const uint4* from = (const uint4*)(x + (long long)x_token * k + x_k) + 16 * p;
            const bool exists = x_token < m && 256 * p + x_k < k;
            xr[p][u][0] = ask(from, exists);
            xr[p][u][1] = ask(from + 1, exists);
        }
    // Of the thread's outputs: features row, row + 8, tokens 8 c + 2 t + {0, 1}.
    const int row = feature0 + 16 * warp + lane / 4;
    Scale w_scale[2][GROUPS], x_scale[TOKENS / 8][2];  // as they are: a conversion would wait for them
    u16 c_bias[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int f = row + 8 * h;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) w_scale[h][g] = ask(ws + (long long)f * groups + g, f < n && g < groups);
        c_bias[h] = ask(bias + f, bias && f < n);
    }
#pragma unroll
    for (int c = 0; c < TOKENS / 8; c++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int token = token0 + 8 * c + 2 * t + e;
            x_scale[c][e] = ask(xs + token, token < m);
        }

    if (CLUSTER > 1) {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // every CTA's barriers are set up
        if (threadIdx.x == 0) {
            const int row = cluster_rank() * (FEATURES / CLUSTER);
#pragma unroll
            for (int p = 0; p < PHASES; p++)
                tma_load_multicast(w_at + p * W_PHASE + 128 * row, &w, 128 * p, feature0 + row, bars + 8 * (p / PIECE), (u16)((1 << CLUSTER) - 1));
        }
        __syncwarp();
    } else {
        __syncthreads();  // no load is put off past this
    }

    s32 acc[GROUP_BLOCKS ? 2 : 1][SUMS];
    float y[SUMS] = {};
    u32 a[2][4][4];
    auto fold = [&](int g) {
        if (g >= groups) return;
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            // 16 sum * (scale / 16), where that is exact: numbers of 16 bits.
            const float s = widen(w_scale[i / 2 % 2][g], SCALE);
            y[i] = SCALE == F32 ? __fmaf_rn((float)(acc[g % 2][i] >> 4), s, y[i]) : __fmaf_rn((float)acc[g % 2][i], s * 0.0625f, y[i]);
        }
    };
    // Rows of matrices 0, 1: 0-7, 8-15 of the warp's first 16 bytes; 2, 3: of the next 16.
    const u32 rows_at = w_at + (16 * warp + lane % 16) * 128;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        if (b % (2 * PIECE) == 0) {
#pragma unroll
            for (int p = b / 2; p < b / 2 + PIECE; p++)
#pragma unroll
                for (int u = 0; u < X_TURNS; u++) {
                    const int i = threadIdx.x + u * THREADS, token = i / 4 % TOKENS, pair = 2 * (i % 4);
                    const u32 at = x_at + ((2 * p + i / (4 * TOKENS)) * TOKENS + token) * 128;
                    const uint4 lo = xr[p][u][0], hi = xr[p][u][1];
                    store16(at + 16 * (pair ^ (token % 8)), __byte_perm(lo.x, lo.y, 0x6420), __byte_perm(lo.z, lo.w, 0x6420),
                            __byte_perm(hi.x, hi.y, 0x6420), __byte_perm(hi.z, hi.w, 0x6420));
                    store16(at + 16 * ((pair + 1) ^ (token % 8)), __byte_perm(lo.x, lo.y, 0x7531), __byte_perm(lo.z, lo.w, 0x7531),
                            __byte_perm(hi.x, hi.y, 0x7531), __byte_perm(hi.z, hi.w, 0x7531));
                }
            fence_async_proxy();
            __syncthreads();
            mbarrier_wait(bars + 8 * (b / (2 * PIECE)), 0);
        }
        if (b >= 2) wgmma_wait<1>();  // block b - 2 has read its registers
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            u32 words[4];
            load_matrices(words, rows_at + b / 2 * W_PHASE + 16 * ((4 * (b % 2) + 2 * pair + lane / 16) ^ (lane % 8)));
#pragma unroll
            for (int odd = 0; odd < 2; odd++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    a[b % 2][2 * pair + odd][h] = (words[2 * odd + h] << 4) & 0xf0f0f0f0u;
                    a[b % 2][2 * pair + odd][2 + h] = words[2 * odd + h] & 0xf0f0f0f0u;
                }
        }
        const int g = GROUP_BLOCKS ? b / (GROUP_BLOCKS ? GROUP_BLOCKS : 1) : 0;
        const bool first = GROUP_BLOCKS ? b % (GROUP_BLOCKS ? GROUP_BLOCKS : 1) == 0 : b == 0;
        const u64 operand = wgmma_descriptor(x_at + b * TOKENS * 128);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma_s8(acc[g % 2], a[b % 2][j], operand + 2 * j, j > 0 || !first);
        wgmma_commit();
        if (GROUP_BLOCKS && b > 0 && first) {
            wgmma_wait<1>();
            settle(acc[(g - 1) % 2]);
            fold(g - 1);
        }
    }
    if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // what others sent has come
    wgmma_wait<0>();
    settle(acc[(GROUPS - 1) % 2]);
    if (GROUP_BLOCKS) fold(GROUPS - 1);
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int h = i / 2 % 2, c = i / 4, e = i % 2;
        const float s = widen(x_scale[c][e], SCALE);
        const float v = GROUP_BLOCKS ? __fmul_rn(y[i], s) : __fmul_rn(__fmul_rn((float)(acc[0][i] >> 4), s), widen(w_scale[h][0], SCALE));
        store_as<OUT>(tile, (8 * c + 2 * t + e) * D_PITCH + 16 * warp + lane / 4 + 8 * h, __fadd_rn(v, widen(c_bias[h], OUT)));
    }
    __syncthreads();
#pragma unroll
    for (int i = threadIdx.x; i < TOKENS * FEATURES / 8; i += THREADS) {
        const int token = i / (FEATURES / 8), f = i % (FEATURES / 8) * 8;
        if (token0 + token >= m || feature0 + f >= n) continue;
        *(uint4*)(d + (long long)(token0 + token) * n + feature0 + f) = *(const uint4*)(tile + token * D_PITCH + f);
    }
    __syncwarp();
    if (CLUSTER > 1) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // no CTA ends with copies under way
}

#endif
