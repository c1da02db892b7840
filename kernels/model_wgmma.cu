// The device model in bulk: the sums that Hopper's FP8 wgmma makes, by another instruction, bf16's mma.sync.
//
// Each output is a chain of steps T(32, 13, 13 RZ) over consecutive blocks of 32 k (docs/tensor-cores.md sections 0 and 1):
//   emax = max of the exponents of the nonzero products (e_a + e_b, significands not renormalised) and of c; q = 2^(emax - 13)
//   s = sum of trunc(a*b / q) + trunc(c / q), each toward zero; c' = s*q with 13 fraction bits, toward zero; zero is +0
// `model_wgmma_naive` does that in integers, one thread an output. `model_wgmma` gets the same bits from what bf16's mma.sync is: T(16, 25, 23 RZ)
// truncates each product 25 bits below the largest exponent. So an exponent 12 above emax makes it truncate at q:
//   Eight of the 16 products of a row and a column are codes' (exact in bf16), the other eight are -M in the output's own column and 0 in the
//   others, M = 2^12 times a number of exponent emax, and c is +M: what comes back is sum of trunc(a*b / q)*q, exactly, below 2^18 q.
//   Eight times +M, eight times -M, and the chain's c: that is trunc(c / q)*q.
//   Four of the one and one of the other are a block. |s| < 33*2^15: f32 adds them exactly, and its lower bits are cut off.
// Each warp asks the tensor core whether it truncates so; where one does not, every output takes the naive way.
// The maximum of a block's exponents: every factor stands for BASE^exponent in bf16, and mma.sync adds products of these.
//   A sum of no more than SUMMED powers of BASE, SUMMED < BASE, has the largest one's exponent, whatever
//   lower bits are lost; e4m3 needs 2^8 and 32 of them, wider exponents 2^4 and 8.
// Rows with a NaN or an infinity take the naive way.
//
// -DA_E5M2, -DB_E5M2: formats (else e4m3). -DPROMOTE=1: d = RN(d + chain) each 128 of K, from +0, the chain from +0.
//
// contract model_planes  (once for A, once for B with -DSIDE_B=1, before model_wgmma)
//   arch   any
//   block  128
//   grid   {tiles, ceil(K/32)}, tiles = ceil(M/ROWS)*WARPS_M (of b: ceil(N/COLUMNS)*WARPS_N), ROWS = 32*WARPS_M, COLUMNS = 32*WARPS_N
//   args   codes const u8* [lines, pitch]; planes u8* [ceil(K/32), tiles, 4096] aligned to 16; special u8* [lines], zeroed before: 1 where a
//          line is not finite; lines, k, pitch int
//
// contract model_wgmma
//   arch   sm_90 or later (bulk copies)
//   block  32*WARPS_M*WARPS_N
//   smem   MODEL_SHARED = STAGES*(WARPS_M + WARPS_N)*4096 + 128 dynamic
//   grid   {ceil(N/COLUMNS), ceil(M/ROWS)}
//   args   planes of a, planes of b: const u8*; special of a, of b: const u8*; a, b: const u8*, the codes; d float* [M, N] aligned to 16;
//          m, n, k, pitch_a, pitch_b int
//   refuse M, N or K < 1 or > 2^31 - 512; a pitch < K
//
// contract model_wgmma_naive: block {32, 8}, grid {ceil(N/32), ceil(M/8)}; args a, b, d, m, n, k, pitch_a, pitch_b.
// contract model_scaled: block 256, any grid; args sums const float* [M, N]; scale_a float* [M]; scale_b float* [N]; y float* [M, N], of the
//          blocks before (zeroed before the first; else may be the sums themselves); m, n int; order int: 0 one scale each, RN(P*RN(a*b));
//          1 RN(RN(P*a)*b); of a block along K, added to y by fma: 2 a first, 3 b first, 4 both; 5 RN(RN(P*b)*a).
// contract model_added: block 256, any grid; args part const float*; y float*; count u64: y = RN(y + part).
// contract model_mismatches: block 256, any grid; args x const u32*, y const u32*, count u64, found u64* zeroed before: adds how many differ.
#include "common/fp8_model.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"

#ifndef PROMOTE
#define PROMOTE 0
#endif
#ifndef WARPS_M
#define WARPS_M 4
#endif
#ifndef WARPS_N
#define WARPS_N 4
#endif
#ifndef SIDE_B
#define SIDE_B 0
#endif
#ifndef STAGES
#define STAGES 6
#endif

constexpr int ROWS = 32 * WARPS_M, COLUMNS = 32 * WARPS_N, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int TM = 2, TN = 4;  // mma tiles of 16 x 8 outputs of a warp

/// The definition: one output, step by step.
__device__ __noinline__ float obvious(const u8* a, const u8* b, int k) {
    float sum = 0.0f, chain = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 32) {
        u8 x[32], y[32];
        for (int i = 0; i < 32; i++) {
            x[i] = k0 + i < k ? a[k0 + i] : 0;
            y[i] = k0 + i < k ? b[k0 + i] : 0;
        }
        if (PROMOTE && k0 % 128 == 0) {
            sum = __fadd_rn(sum, chain);
            chain = 0.0f;
        }
        chain = fp8_step(x, y, chain, A_E5M2, B_E5M2);
    }
    return PROMOTE ? __fadd_rn(sum, chain) : chain;
}

extern "C" __global__ void model_wgmma_naive(const u8* a, const u8* b, float* d, int m, int n, int k, int pitch_a, int pitch_b) {
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row < m && col < n) d[(long long)row * n + col] = obvious(a + (long long)row * pitch_a, b + (long long)col * pitch_b, k);
}

extern "C" __global__ void model_scaled(const float* sums, const float* scale_a, const float* scale_b, float* y, int m, int n, int order) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < (u64)m * n; at += (u64)gridDim.x * blockDim.x) {
        const float p = sums[at], a = scale_a[at / n], b = scale_b[at % n];
        float value;
        if (order == 0) value = __fmul_rn(p, __fmul_rn(a, b));
        else if (order == 1) value = __fmul_rn(__fmul_rn(p, a), b);
        else if (order == 2) value = __fmaf_rn(__fmul_rn(p, a), b, y[at]);
        else if (order == 3) value = __fmaf_rn(__fmul_rn(p, b), a, y[at]);
        else if (order == 4) value = __fmaf_rn(__fmul_rn(a, b), p, y[at]);
        else value = __fmul_rn(__fmul_rn(p, b), a);
        y[at] = value;
    }
}

extern "C" __global__ void model_added(const float* part, float* y, u64 count) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (u64)gridDim.x * blockDim.x) y[at] = __fadd_rn(y[at], part[at]);
}

extern "C" __global__ void model_mismatches(const u32* x, const u32* y, u64 count, u64* found) {
    u64 mine = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) mine += x[i] != y[i];
    if (mine) atomicAdd(found, mine);
}

// What the fast kernel keeps of a factor, both in bf16: its value; BASE^exponent, zero for a zero factor.
constexpr bool WIDE = A_E5M2 || B_E5M2;
constexpr int LOG_BASE = WIDE ? 4 : 8, POWER_A = WIDE ? -2 : -8, POWER_B = WIDE ? -1 : -7;
/// log2 of a sum of products, as f32's field: LOG_BASE*(exponent + HIGHER) + something below log2 BASE.
constexpr int HIGHER = (127 + POWER_A + POWER_B) / LOG_BASE;
static_assert(HIGHER * LOG_BASE == 127 + POWER_A + POWER_B, "the exponent is read by a shift");

__device__ __forceinline__ u32 power(u8 code, bool e5m2, int lowest) {
    const Decoded d = decode_fp8(code, e5m2);
    return d.significand ? (u32)(127 + lowest + LOG_BASE * d.exponent) << 7 : 0;
}

/// A code's value: its bits at f32's place are the value over 2^(127 - bias), subnormals included.
__device__ __forceinline__ u32 value(u32 code, bool e5m2) {
    const u32 bits = e5m2 ? (code & 0x7f) << 21 : (code & 0x7f) << 20;
    return __float_as_uint(__uint_as_float(bits | (code & 0x80) << 24) * __uint_as_float((e5m2 ? 127 + 112 : 127 + 120) << 23)) >> 16;
}

/// A block of 32 k of 32 lines (rows of a, or columns of b) as lanes take them. Sums do not know the order of k: lane 4 g + t has k = 8 t to 8 t + 7,
/// in words of two, of the lines g, g + 8, g + 16 and g + 24, and word i of a row meets word i of a column in one product of mma.m16n8k16.
struct Tile {
    u32 values[4][2][64];  // word; of a, of lines g + 16 h and 8 further, two neighbours; of b, of lines g + 16 h, then of those 8 further
    uint4 powers[4][32];   // of a, of lines g + 16 h and 8 further: at 2 h words 0 and 1, at 2 h + 1 words 2 and 3; of b, of lines g + 8 l
};
static_assert(sizeof(Tile) == 4096, "what the host allocates");

extern "C" __global__ void model_planes(const u8* codes, Tile* planes, u8* special, int lines, int k, int pitch) {
    constexpr bool e5m2 = SIDE_B ? B_E5M2 : A_E5M2;
    const int at = threadIdx.x / 4, lane = at % 8 * 4 + threadIdx.x % 4, line = blockIdx.x * 32 + at, eight = at / 8;
    u32 values[4] = {}, powers[4] = {};
    bool finite = true;
    for (int i = 0; i < 8; i++) {
        const int at_k = blockIdx.y * 32 + threadIdx.x % 4 * 8 + i;
        const u8 code = line < lines && at_k < k ? codes[(long long)line * pitch + at_k] : 0;
        const Decoded x = decode_fp8(code, e5m2);
        finite &= !x.nan && !x.infinite;
        values[i / 2] |= value(code, e5m2) << 16 * (i % 2);
        powers[i / 2] |= power(code, e5m2, SIDE_B ? POWER_B : POWER_A) << 16 * (i % 2);
    }
    Tile& tile = planes[(long long)blockIdx.y * gridDim.x + blockIdx.x];
    for (int i = 0; i < 4; i++) {
        tile.values[i][eight / 2][SIDE_B ? 32 * (eight % 2) + lane : 2 * lane + eight % 2] = values[i];
        ((u32*)&tile.powers[SIDE_B ? eight : eight / 2 * 2 + i / 2][lane])[SIDE_B ? i : i % 2 * 2 + eight % 2] = powers[i];
    }
    if (!finite) special[line] = 1;
}

#if __CUDA_ARCH__ >= 900
/// d = T(16, 25, 23 RZ)(c + A B^T) of 16 rows, 8 columns and 16 k.
__device__ __forceinline__ void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
/// The same of 8 k, from zeros.
__device__ __forceinline__ void mma_8(float (&d)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(b0), "f"(0.0f));
}

/// The exponents' maximum of a block as the sum of powers that tells it: x, z of words 0 and 1, 2 and 3 of two rows, y of a column.
__device__ __forceinline__ void highest(float (&top)[4], const uint4& x, const uint4& z, const uint4& y) {
    if constexpr (WIDE) {
        float d[3][4];
        mma_8(top, x.x, x.y, y.x);
        mma_8(d[0], x.z, x.w, y.y);
        mma_8(d[1], z.x, z.y, y.z);
        mma_8(d[2], z.z, z.w, y.w);
#pragma unroll
        for (int e = 0; e < 4; e++) top[e] = fmaxf(fmaxf(top[e], d[0][e]), fmaxf(d[1][e], d[2][e]));
    } else {
        const float zeros[4] = {};
        float half[4];
        mma(half, x.x, x.y, x.z, x.w, y.x, y.y, zeros);
        mma(top, z.x, z.y, z.z, z.w, y.z, y.w, half);
    }
}

/// What stands in b where eight products are M's: of slot j, this number of bf16 in column j and zero elsewhere.
__device__ __forceinline__ u32 diagonal(u32 number) {
    const int column = threadIdx.x % 32 / 4, slot = threadIdx.x % 4 * 2;
    return column == slot ? number : column == slot + 1 ? number << 16 : 0;
}
/// 1 and 2^FORCED in bf16: M is 2^FORCED above emax.
constexpr u32 FORCED = 12, ONE = 127 << 7, TO_M = (127 + FORCED) << 7, MINUS = 0x8000;
constexpr float M_TIMES = 1 << FORCED;
struct Diagonals {
    u32 up, down, minus;  // 2^FORCED, -2^FORCED, -1
};

/// A block step of 16 x 8 outputs: words of two rows, and of a column of b. c is the chains times 2^FORCED, so that no exponent is added to its own.
__device__ __forceinline__ void step(float (&c)[4], const uint2 (&x)[4], const u32 (&y)[4], const float (&top)[4], const Diagonals& diagonals) {
    float m[4], s[4][4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
        // A number of the products' largest exponent, of a block of zeros below every product's.
        const u32 largest = (__float_as_uint(top[e]) >> (WIDE ? 2 : 3)) + ((127u - HIGHER + FORCED) << 23);
        m[e] = __uint_as_float(__float_as_uint(fmaxf(fabsf(c[e]), __uint_as_float(largest))) & 0x7f800000);
    }
    const u32 m0 = __byte_perm(__float_as_uint(m[0]), __float_as_uint(m[1]), 0x7632);
    const u32 m8 = __byte_perm(__float_as_uint(m[2]), __float_as_uint(m[3]), 0x7632);
    mma(c, m0, m8, m0, m8, diagonals.up, diagonals.down, c);
#pragma unroll
    for (int i = 0; i < 4; i++) mma(s[i], x[i].x, x[i].y, m0, m8, y[i], diagonals.minus, m);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float sum = __fmaf_rn(__fadd_rn(__fadd_rn(s[0][e], s[1][e]), __fadd_rn(s[2][e], s[3][e])), M_TIMES, c[e]);
        c[e] = __uint_as_float(__float_as_uint(sum) & ~0x3ffu);
    }
}

/// Whether 3 and -3 are truncated toward zero to 2 and -2, 25 bits below 2^26.
__device__ __forceinline__ bool truncates() {
    const u32 m = 0x4c804c80, three = 0x40404040, ones = ONE * 0x10001;
    const float c[4] = {0x1p26f, 0x1p26f, 0x1p26f, 0x1p26f};
    float d[4];
    mma(d, three, three | 0x80008000, m, m, ones, diagonal(MINUS | ONE), c);
    return d[0] == 16.0f && d[1] == 16.0f && d[2] == -16.0f && d[3] == -16.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    model_wgmma(const Tile* planes_a, const Tile* planes_b, const u8* special_a, const u8* special_b, const u8* a, const u8* b, float* d, int m,
                int n, int k, int pitch_a, int pitch_b) {
    extern __shared__ __align__(128) u8 shared[];
    constexpr int TILES = WARPS_M + WARPS_N;  // of a stage: a's, then b's
    Tile* stages = (Tile*)shared;
    const u32 full = smem_address(shared + STAGES * TILES * sizeof(Tile)), empty = full + STAGES * 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp / WARPS_N, warp_n = warp % WARPS_N;
    const int line = lane / 4, piece = lane % 4, blocks = ceil_div(k, 32);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(full + i * 8, 1);
            mbarrier_init(empty + i * 8, THREADS);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    const auto load = [&](int i) {
        const u32 bar = full + i % STAGES * 8;
        Tile* to = stages + i % STAGES * TILES;
        mbarrier_wait(empty + i % STAGES * 8, (i / STAGES & 1) ^ 1);
        mbarrier_expect(bar, TILES * sizeof(Tile));
        bulk_load(smem_address(to), planes_a + ((long long)i * gridDim.y + blockIdx.y) * WARPS_M, WARPS_M * sizeof(Tile), bar);
        bulk_load(smem_address(to + WARPS_M), planes_b + ((long long)i * gridDim.x + blockIdx.x) * WARPS_N, WARPS_N * sizeof(Tile), bar);
    };

    const Diagonals diagonals = {diagonal(TO_M), diagonal(MINUS | TO_M), diagonal(MINUS | ONE)};
    float c[TM][TN][4] = {}, sum[PROMOTE ? TM : 1][TN][4] = {};
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES - 2 && i < blocks; i++) load(i);
    for (int i = 0; i < blocks; i++) {
        // The stage of a block that every warp has left two steps ago.
        if (threadIdx.x == 0 && i + STAGES - 2 < blocks) load(i + STAGES - 2);
        __syncwarp();
        mbarrier_wait(full + i % STAGES * 8, i / STAGES & 1);
        const Tile &of_a = stages[i % STAGES * TILES + warp_m], &of_b = stages[i % STAGES * TILES + WARPS_M + warp_n];
        uint2 x[TM][4];
#pragma unroll
        for (int t = 0; t < 4 * TM; t++) x[t / 4][t % 4] = *(const uint2*)&of_a.values[t % 4][t / 4][2 * lane];
#pragma unroll
        for (int j = 0; j < TN; j++) {
            u32 y[4];
#pragma unroll
            for (int word = 0; word < 4; word++) y[word] = of_b.values[word][j / 2][32 * (j % 2) + lane];
            const uint4 q = of_b.powers[j][lane];
#pragma unroll
            for (int t = 0; t < TM; t++) {
                float top[4];
                highest(top, of_a.powers[2 * t][lane], of_a.powers[2 * t + 1][lane], q);
                step(c[t][j], x[t], y, top, diagonals);
            }
        }
        // Each thread for itself: compute-sanitizer does not follow a warp's reads through one lane's arrival.
        mbarrier_arrive(empty + i % STAGES * 8);
        if (PROMOTE && (i % 4 == 3 || i + 1 == blocks)) {
#pragma unroll
            for (int t = 0; t < TM; t++)
#pragma unroll
                for (int j = 0; j < 4 * TN; j++) {
                    sum[t][j / 4][j % 4] = __fmaf_rn(c[t][j / 4][j % 4], 1 / M_TIMES, sum[t][j / 4][j % 4]);
                    c[t][j / 4][j % 4] = 0.0f;
                }
        }
    }

    const bool known = truncates();
#pragma unroll
    for (int t = 0; t < TM; t++)
#pragma unroll
        for (int j = 0; j < TN; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = blockIdx.y * ROWS + warp_m * 32 + 16 * t + e / 2 * 8 + line;
                const int q = blockIdx.x * COLUMNS + warp_n * 32 + 8 * j + 2 * piece + e % 2;
                if (r < m && q < n) d[(long long)r * n + q] = PROMOTE ? sum[t][j][e] : c[t][j][e] * (1 / M_TIMES);
            }
    for (int e = 0; e < 4 * TM * TN; e++) {
        const int r = blockIdx.y * ROWS + warp_m * 32 + e / (4 * TN) * 16 + e % 4 / 2 * 8 + line;
        const int q = blockIdx.x * COLUMNS + warp_n * 32 + e / 4 % TN * 8 + 2 * piece + e % 2;
        if (r < m && q < n && (!known || special_a[r] || special_b[q]))
            d[(long long)r * n + q] = obvious(a + (long long)r * pitch_a, b + (long long)q * pitch_b, k);
    }
}
#endif
