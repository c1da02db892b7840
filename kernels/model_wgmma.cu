// The device model in bulk: the sums that Hopper's FP8 wgmma makes, summed on the ordinary cores; bf16 on the tensor cores finds
// exponents alone. Shares no instruction with what it judges.
//
// Each output is a chain of steps T(32, 13, 13 RZ) over consecutive blocks of 32 k (docs/tensor-cores.md sections 0 and 1):
//   emax = max of the exponents of the nonzero products (e_a + e_b, significands not renormalised) and of c; q = 2^(emax - 13)
//   s = sum of trunc(a*b / q) + trunc(c / q), each toward zero; c' = s*q with 13 fraction bits, toward zero; zero is +0
// `model_wgmma_naive` does that in integers, one thread an output. `model_wgmma` gets the same bits from two exact identities:
//   trunc(p / q) = floor(p / q) + [p < 0 and q does not divide p]
// floor: f32 holds integers below 2^24, so with acc in [2^23 q, 2^24 q), where f32's spacing is q, fma rounding down
//   (fma.rm) adds floor(p / q)*q exactly; acc starts at 1.5*2^23 q, and |sum| < 33*2^15 q never leaves that interval.
// the count: q divides p iff l_a + l_b >= log2 q, l the exponent of a factor's lowest set bit. Four products at a time, a byte each:
//   x_a + x_b + (128 - log2 q + biases) has bit 7 set iff exact; ~that & (sign_a ^ sign_b) marks what dp4a counts.
// The maximum of a block's exponents: every factor stands for BASE^exponent in bf16, and products of these are added by mma.sync (f16's own
//   instruction, not FP8's). A sum of no more than SUMMED powers of BASE, SUMMED < BASE, has the largest one's exponent, whatever
//   lower bits are lost; e4m3 needs 2^8 and 32 of them, wider exponents 2^4 and 8. The block before is summed meanwhile.
// Rows with a NaN or an infinity take the naive way.
//
// -DA_E5M2, -DB_E5M2: formats (else e4m3). -DPROMOTE=1: d = RN(d + chain) each 128 of K, from +0, the chain from +0.
//
// contract model_planes  (once for A, once for B with -DSIDE_B=1, before model_wgmma)
//   arch   any
//   block  128
//   grid   {tiles, ceil(K/32)}, tiles = ceil(M/ROWS)*WARPS_M (of b: ceil(N/COLUMNS)*WARPS_N), ROWS = 32*WARPS_M, COLUMNS = 32*WARPS_N
//   args   codes const u8* [lines, pitch]; planes u8* [ceil(K/32), tiles, 8192] aligned to 16; special u8* [lines], zeroed before: 1 where a
//          line is not finite; lines, k, pitch int
//
// contract model_wgmma
//   arch   sm_90 or later (bulk copies)
//   block  32*WARPS_M*WARPS_N
//   smem   MODEL_SHARED = STAGES*(WARPS_M + WARPS_N)*8192 + 128 dynamic
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
#define WARPS_N 2
#endif
#ifndef SIDE_B
#define SIDE_B 0
#endif
#ifndef STAGES
#define STAGES 4
#endif

constexpr int ROWS = 32 * WARPS_M, COLUMNS = 32 * WARPS_N, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int TM = 4, TN = 8;  // outputs of a thread
constexpr u32 BYTES = 0x01010101;

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

// What the fast kernel keeps of a factor: its value; BASE^exponent, zero for a zero factor; x, the exponent of its lowest set bit over the
// format's smallest (of zero so much that every test finds it divisible); its sign.
constexpr bool WIDE = A_E5M2 || B_E5M2;
constexpr int LOG_BASE = WIDE ? 4 : 8, POWER_A = WIDE ? -2 : -8, POWER_B = WIDE ? -1 : -7;
/// log2 of a sum of products, as f32's field: LOG_BASE*(exponent + HIGHER) + something below log2 BASE.
constexpr int HIGHER = (127 + POWER_A + POWER_B) / LOG_BASE;
static_assert(HIGHER * LOG_BASE == 127 + POWER_A + POWER_B, "the exponent is read by a shift");
constexpr int LOWEST = (A_E5M2 ? 16 : 9) + (B_E5M2 ? 16 : 9);
/// Bytes of the packed test: 128 - (log2 q + LOWEST), log2 q = field - 127 - 13. Of e4m3 no byte over- or underflows, so none is clamped: field is
/// 113 (a block of zeros) to 127 + 49, x at most 17 or ZERO_X.
constexpr int EXACT = 128 + 127 + 13 - LOWEST, ZERO_X = WIDE ? 63 : 54;

/// bf16(BASE^exponent) << 16 | sign << 7 | x of every code.
__device__ __forceinline__ u32 facts(u8 code, bool e5m2, int power) {
    const Decoded d = decode_fp8(code, e5m2);
    const u32 sign = (u32)d.negative << 7;
    if (!d.significand) return sign | ZERO_X;
    const int mantissa_bits = e5m2 ? 2 : 3, trailing = __ffs(d.significand) - 1;
    return (u32)(127 + power + LOG_BASE * d.exponent) << 23 | sign | (u32)(d.exponent - mantissa_bits + trailing + (e5m2 ? 16 : 9));
}

/// A code's value: its bits at f32's place are the value over 2^(127 - bias), subnormals included.
__device__ __forceinline__ float value(u32 code, bool e5m2) {
    const u32 bits = e5m2 ? (code & 0x7f) << 21 : (code & 0x7f) << 20;
    return __uint_as_float(bits | (code & 0x80) << 24) * __uint_as_float((e5m2 ? 127 + 112 : 127 + 120) << 23);
}

__device__ __forceinline__ u32 dp4a(u32 a, u32 b, u32 c) {
    u32 r;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/// A block of 32 k of 32 lines (rows of a, or of b), k outermost: neighbours in a warp read neighbouring words.
struct Tile {
    float values[32][32];
    uint4 powers[2][2][32];  // of 16 k, of a lane: of a, lines 4 g + 2 half + {0, 1}; of b, columns 16 half + 4 (g / 2) + g % 2 + {0, 2}
    u32 lowest[8][32];      // four k, a byte each
    u32 signs[8][32];
};
static_assert(sizeof(Tile) == 8192, "what the host allocates");

extern "C" __global__ void model_planes(const u8* codes, Tile* planes, u8* special, int lines, int k, int pitch) {
    constexpr bool e5m2 = SIDE_B ? B_E5M2 : A_E5M2;
    const int at = threadIdx.x % 32, octet = threadIdx.x / 32, line = blockIdx.x * 32 + at;
    Tile& tile = planes[(long long)blockIdx.y * gridDim.x + blockIdx.x];
    u32 lowest[2] = {0, 0}, signs[2] = {0, 0}, before = 0;
    // The fragments of mma.m16n8k16 (common/intmma.cuh), their rows and columns in such an order that a thread gets the sums of its own outputs.
    const int half = SIDE_B ? at / 16 : at % 4 / 2, g = SIDE_B ? at % 16 / 4 * 2 + at % 2 : at / 4;
    const int word = SIDE_B ? at % 4 / 2 * 2 + octet % 2 : octet % 2 * 2 + at % 2;
    bool finite = true;
    for (int i = 0; i < 8; i++) {
        const int at_k = blockIdx.y * 32 + octet * 8 + i;
        const u8 code = line < lines && at_k < k ? codes[(long long)line * pitch + at_k] : 0;
        const Decoded x = decode_fp8(code, e5m2);
        finite &= !x.nan && !x.infinite;
        const u32 f = facts(code, e5m2, SIDE_B ? POWER_B : POWER_A);
        tile.values[octet * 8 + i][at] = value(code, e5m2);
        if (i % 2) ((u32*)&tile.powers[octet / 2][half][4 * g + i / 2])[word] = before | (f & 0xffff0000);
        before = f >> 16;
        lowest[i / 4] |= (f & 63) << 8 * (i % 4);
        signs[i / 4] |= (f & 128) << 8 * (i % 4);
    }
    for (int half = 0; half < 2; half++) {
        tile.lowest[octet * 2 + half][at] = lowest[half];
        tile.signs[octet * 2 + half][at] = signs[half];
    }
    if (!finite) special[line] = 1;
}

#if __CUDA_ARCH__ >= 900
template <typename T>
__device__ __forceinline__ void read4(const T* from, T (&to)[4]) {
    const uint4 v = *(const uint4*)from;
    const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = *(const T*)&w[i];
}

template <typename T>
__device__ __forceinline__ void read8(const T* from, T (&to)[8]) {
    T lo[4], hi[4];
    read4(from, lo);
    read4(from + 16, hi);
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = lo[i], to[i + 4] = hi[i];
}

/// d = A B^T + c of 16 rows, 8 columns and K k.
template <int K>
__device__ __forceinline__ void sum_powers(float (&d)[4], const u32* a, const u32* b, const float (&c)[4]) {
    if constexpr (K == 16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/// Takes 16 k more of eight columns into the sums of powers, or where those would not fit into the largest sum: eighth `part` of the block's.
__device__ __forceinline__ void highest(const Tile& a, const Tile& b, int part, float (&top)[TM][TN]) {
    const int lane = threadIdx.x % 32, of_k = part / 4, nt = part % 4;
    const uint4 y = b.powers[of_k][nt / 2][lane];
    const u32 of_b[2] = {nt % 2 ? y.z : y.x, nt % 2 ? y.w : y.y};
    const float zeros[4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint4 x = a.powers[of_k][half][lane];
        const u32 of_a[4] = {x.x, x.y, x.z, x.w};
        float* row[2] = {&top[2 * half][2 * nt], &top[2 * half + 1][2 * nt]};
        const float before[4] = {row[0][0], row[0][1], row[1][0], row[1][1]};
        float sum[4];
        if constexpr (WIDE) {
            float other[4];
            sum_powers<8>(sum, of_a, of_b, zeros);
            sum_powers<8>(other, of_a + 2, of_b + 1, zeros);
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i] = fmaxf(of_k ? fmaxf(sum[i], before[i]) : sum[i], other[i]);
        } else {
            sum_powers<16>(sum, of_a, of_b, of_k ? before : zeros);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) row[i / 2][i % 2] = sum[i];
    }
}

/// One block step of the thread's outputs, rows row..row+3 of tile a by columns col..col+3 and col+16..col+19 of tile b. `top` has the
/// sums of this block's powers and leaves with the next one's.
__device__ __forceinline__ void step(const Tile& a, const Tile& b, const Tile& next_a, const Tile& next_b, int row, int col,
                                     float (&c)[TM][TN], float (&top)[TM][TN]) {
    u32 exact[TM][TN], count[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            // 2^emax by its bits; of a block of zeros below every product's.
            const u32 largest = (__float_as_uint(top[i][j]) >> (23 + (WIDE ? 2 : 3))) * (1u << 23) + ((127u - HIGHER) << 23);
            const u32 emax = __float_as_uint(fmaxf(fabsf(c[i][j]), __uint_as_float(largest)));
            // The constant term 1.5 * 2^23 q with the sign of c takes c's lower bits away, toward zero.
            const float magic = __fmul_rn(__uint_as_float((emax & 0x7f800000) | 0x400000), 1024.0f);
            const float toward = __uint_as_float(__float_as_uint(magic) | (__float_as_uint(c[i][j]) & 0x80000000));
            c[i][j] = __fadd_rn(__fsub_rn(__fadd_rz(c[i][j], toward), toward), magic);
            const int byte = EXACT - (int)(emax >> 23);
            exact[i][j] = (u32)(WIDE ? min(max(byte, 65), 128) : byte) * BYTES;
            count[i][j] = 0;
        }
#pragma unroll
    for (int four = 0; four < 8; four++) {
#pragma unroll
        for (int k = four * 4; k < four * 4 + 4; k++) {
            float x[TM], y[TN];
            read4(&a.values[k][row], x);
            read8(&b.values[k][col], y);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) c[i][j] = __fmaf_rd(x[i], y[j], c[i][j]);
        }
        highest(next_a, next_b, four, top);
        u32 xa[TM], sa[TM], xb[TN], sb[TN];
        read4(&a.lowest[four][row], xa);
        read4(&a.signs[four][row], sa);
        read8(&b.lowest[four][col], xb);
        read8(&b.signs[four][col], sb);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                const u32 inexact = ~(xa[i] + xb[j] + exact[i][j]) & (sa[i] ^ sb[j]);
                count[i][j] = dp4a(inexact, BYTES, count[i][j]);
            }
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            const u32 bits = __float_as_uint(c[i][j]) + (count[i][j] >> 7);
            const float magic = __uint_as_float((bits & 0xff800000) | 0x400000);
            c[i][j] = __uint_as_float(__float_as_uint(__fsub_rn(__uint_as_float(bits), magic)) & ~0x3ffu);
        }
}

/// Writes four finished chains, or adds them to what is there (the f32 additions of promotion, from +0), and zeroes them.
__device__ __forceinline__ void store4(float* at, int inside, bool wide, bool first, float* c) {
    if (wide && inside >= 4) {
        float4 sum = make_float4(c[0], c[1], c[2], c[3]);
        if (PROMOTE) {
            const float4 before = first ? make_float4(0, 0, 0, 0) : *(const float4*)at;
            sum = make_float4(__fadd_rn(before.x, c[0]), __fadd_rn(before.y, c[1]), __fadd_rn(before.z, c[2]), __fadd_rn(before.w, c[3]));
        }
        *(float4*)at = sum;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < inside) at[j] = PROMOTE ? __fadd_rn(first ? 0.0f : at[j], c[j]) : c[j];
    }
#pragma unroll
    for (int j = 0; j < 4; j++) c[j] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    model_wgmma(const Tile* planes_a, const Tile* planes_b, const u8* special_a, const u8* special_b, const u8* a, const u8* b, float* d, int m,
                int n, int k, int pitch_a, int pitch_b) {
    extern __shared__ __align__(128) u8 shared[];
    constexpr int TILES = WARPS_M + WARPS_N;  // of a stage: a's, then b's
    Tile* stages = (Tile*)shared;
    const u32 full = smem_address(shared + STAGES * TILES * sizeof(Tile)), empty = full + STAGES * 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp / WARPS_N, warp_n = warp % WARPS_N;
    const int row = lane / 4 * 4, col = lane % 4 * 4, blocks = ceil_div(k, 32);
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
    const auto ready = [&](int i) { mbarrier_wait(full + i % STAGES * 8, i / STAGES & 1); };
    const auto tile = [&](int i, int at) -> const Tile& { return stages[i % STAGES * TILES + at]; };

    float c[TM][TN] = {};
    const int row0 = blockIdx.y * ROWS + warp_m * 32 + row, col0 = blockIdx.x * COLUMNS + warp_n * 32 + col;
    const auto store = [&](bool first) {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = row0 + i, q = col0 + half * 16;
                store4(d + (long long)r * n + q, r < m ? n - q : 0, n % 4 == 0, first, &c[i][half * 4]);
            }
    };

    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES - 2 && i < blocks; i++) load(i);
    float top[TM][TN] = {};
    ready(0);
#pragma unroll
    for (int part = 0; part < 8; part++) highest(tile(0, warp_m), tile(0, WARPS_M + warp_n), part, top);
    for (int i = 0; i < blocks; i++) {
        // The stage of a block that every warp has left two steps ago.
        if (threadIdx.x == 0 && i + STAGES - 2 < blocks) load(i + STAGES - 2);
        __syncwarp();
        const int next = min(i + 1, blocks - 1);
        ready(next);
        step(tile(i, warp_m), tile(i, WARPS_M + warp_n), tile(next, warp_m), tile(next, WARPS_M + warp_n), row, col, c, top);
        __syncwarp();
        // Each thread for itself: compute-sanitizer does not follow a warp's reads through one lane's arrival.
        mbarrier_arrive(empty + i % STAGES * 8);
        if (PROMOTE && (i % 4 == 3 || i + 1 == blocks)) store(i < 4);
    }
    if (!PROMOTE) store(true);

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = row0 + i, q = col0 + j % 4 + j / 4 * 16;
            if (r < m && q < n && (special_a[r] || special_b[q]))
                d[(long long)r * n + q] = obvious(a + (long long)r * pitch_a, b + (long long)q * pitch_b, k);
        }
}
#endif
