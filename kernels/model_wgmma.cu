// The device model in bulk: the sums that Hopper's FP8 wgmma makes, on the ordinary cores. Shares no instruction with what it judges.
//
// Each output is a chain of steps T(32, 13, 13 RZ) over consecutive blocks of 32 k (tensorcore.md sections 0 and 1):
//   emax = max of the exponents of the nonzero products (e_a + e_b, significands not renormalised) and of c; q = 2^(emax - 13)
//   s = sum of trunc(a*b / q) + trunc(c / q), each toward zero; c' = s*q with 13 fraction bits, toward zero; zero is +0
// `model_wgmma_naive` does that in integers, one thread an output. `model_wgmma` gets the same bits from two exact identities:
//   trunc(p / q) = floor(p / q) + [p < 0 and q does not divide p]
// floor: f32 holds integers below 2^24, so with acc in [2^23 q, 2^24 q), where f32's spacing is q, fma rounding down
//   (fma.rm) adds floor(p / q)*q exactly; acc starts at 1.5*2^23 q, and |sum| < 33*2^15 q never leaves that interval.
// the count: q divides p iff l_a + l_b >= log2 q, l the exponent of a factor's lowest set bit. Four products at a time, a byte each:
//   x_a + x_b + (128 - log2 q + biases) has bit 7 set iff exact; ~that & (sign_a ^ sign_b) marks what dp4a counts.
// Rows with a NaN or an infinity take the naive way.
//
// -DA_E5M2, -DB_E5M2: formats (else e4m3). -DPROMOTE=1: d = RN(d + chain) each 128 of K, from +0, the chain from +0.
//
// contract model_wgmma
//   arch   any (sm_90 has the packed 16-bit maximum)
//   block  MODEL_THREADS = 32*WARPS_M*WARPS_N
//   smem   MODEL_SHARED = 2*(ROWS + COLUMNS)*256 + 2048 dynamic, ROWS = 32*WARPS_M, COLUMNS = 32*WARPS_N
//   grid   {ceil(N/COLUMNS), ceil(M/ROWS)}
//   arg 0  a  const u8*, [M, pitch_a] codes; arg 1  b  const u8*, [N, pitch_b] codes, both aligned to 8
//   arg 2  d  float*, [M, N]
//   arg 3  special  u8*, [M + N], zeroed before: scratch, 1 where a row of a (of b) is not finite
//   arg 4  m; arg 5 n; arg 6 k; arg 7 pitch_a; arg 8 pitch_b  int: codes from one row to the next
//   refuse a K or a pitch that is no multiple of 8 (a load has 8 codes); a pitch < K; M, N or K < 1 or > 2^31 - 512
//
// contract model_special: block 256, grid M + N; args a, b, special, m, n, k, pitch_a, pitch_b: writes `special`. Runs before model_wgmma.
// contract model_wgmma_naive: block {32, 8}, grid {ceil(N/32), ceil(M/8)}; args a, b, d, m, n, k, pitch_a, pitch_b. Any K and pitch.
// contract model_mismatches: block 256, any grid; args x const u32*, y const u32*, count u64, found u64* zeroed before: adds how many differ.
#include "common/fp8_model.cuh"

#ifndef A_E5M2
#define A_E5M2 0
#endif
#ifndef B_E5M2
#define B_E5M2 0
#endif
#ifndef PROMOTE
#define PROMOTE 0
#endif
#ifndef WARPS_M
#define WARPS_M 4
#endif
#ifndef WARPS_N
#define WARPS_N 3
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif

constexpr int ROWS = 32 * WARPS_M, COLUMNS = 32 * WARPS_N, LINES = ROWS + COLUMNS, THREADS = 32 * WARPS_M * WARPS_N;
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
        chain = fp8_instruction(x, y, chain, A_E5M2, B_E5M2, false);
    }
    return PROMOTE ? __fadd_rn(sum, chain) : chain;
}

extern "C" __global__ void model_wgmma_naive(const u8* a, const u8* b, float* d, int m, int n, int k, int pitch_a, int pitch_b) {
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row < m && col < n) d[(long long)row * n + col] = obvious(a + (long long)row * pitch_a, b + (long long)col * pitch_b, k);
}

extern "C" __global__ void model_special(const u8* a, const u8* b, u8* special, int m, int n, int k, int pitch_a, int pitch_b) {
    const bool of_a = (int)blockIdx.x < m;
    const u8* line = of_a ? a + (long long)blockIdx.x * pitch_a : b + (long long)(blockIdx.x - m) * pitch_b;
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        const Decoded x = decode_fp8(line[i], of_a ? A_E5M2 : B_E5M2);
        if (x.nan || x.infinite) special[blockIdx.x] = 1;
    }
}

extern "C" __global__ void model_mismatches(const u32* x, const u32* y, u64 count, u64* found) {
    u64 mine = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) mine += x[i] != y[i];
    if (mine) atomicAdd(found, mine);
}

// What the fast kernel keeps of a factor: its value; its exponent, biased so that a sum of two is f32's exponent field of their
// product's unit (0 for a zero factor: below every product's); x, the exponent of its lowest set bit over the format's smallest (63 for
// zero: zero is divisible by everything); its sign.
constexpr int EXPONENT_A = 64, EXPONENT_B = 63;
constexpr int LOWEST = (A_E5M2 ? 16 : 9) + (B_E5M2 ? 16 : 9);
/// Bytes of the packed test: 128 - (log2 q + LOWEST), log2 q = field - 127 - 13.
constexpr int EXACT = 128 + 127 + 13 - LOWEST;

/// exponent << 16 | sign << 7 | x of every code.
__device__ __forceinline__ u32 facts(u8 code, bool e5m2, int bias) {
    const Decoded d = decode_fp8(code, e5m2);
    const u32 sign = (u32)d.negative << 7;
    if (!d.significand) return sign | 63;
    const int mantissa_bits = e5m2 ? 2 : 3, trailing = __ffs(d.significand) - 1;
    return (u32)(d.exponent + bias) << 16 | sign | (u32)(d.exponent - mantissa_bits + trailing + (e5m2 ? 16 : 9));
}

/// A code's value: its bits at f32's place are the value over 2^(127 - bias), subnormals included.
__device__ __forceinline__ float value(u32 code, bool e5m2) {
    const u32 bits = e5m2 ? (code & 0x7f) << 21 : (code & 0x7f) << 20;
    return __uint_as_float(bits | (code & 0x80) << 24) * __uint_as_float((e5m2 ? 127 + 112 : 127 + 120) << 23);
}

/// max of both 16-bit halves of a + b and c; no half of a + b overflows.
__device__ __forceinline__ u32 add_max(u32 a, u32 b, u32 c) {
#if __CUDA_ARCH__ >= 900
    u32 r;
    asm("{ .reg .b32 t; add.s16x2 t, %1, %2; max.s16x2 %0, t, %3; }" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#else
    const u32 s = a + b;
    return max(s >> 16, c >> 16) << 16 | max(s & 0xffff, c & 0xffff);
#endif
}

__device__ __forceinline__ u32 dp4a(u32 a, u32 b, u32 c) {
    u32 r;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/// A block of 32 k of all lines (rows of a, then rows of b) in shared memory, k outermost: neighbours in a warp read neighbouring words.
struct Stage {
    float values[32][LINES];
    u32 exponents[16][LINES];  // two k, the lower in the low half
    u32 lowest[8][LINES];      // four k, a byte each
    u32 signs[8][LINES];
};

constexpr int OCTETS = LINES * 4;  // loads of 8 codes a block
constexpr int LOADS = (OCTETS + THREADS - 1) / THREADS;

struct Operands {
    const u8 *a, *b;
    int m, n, k, pitch_a, pitch_b, row0, col0;
};

/// This thread's codes of the block at k0; zeros outside.
__device__ __forceinline__ void fetch(const Operands& o, int k0, uint2 (&codes)[LOADS]) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int unit = threadIdx.x + i * THREADS, line = unit % LINES, k = k0 + unit / LINES * 8;
        const bool of_a = line < ROWS;
        const int row = of_a ? o.row0 + line : o.col0 + line - ROWS;
        codes[i] = make_uint2(0, 0);
        if (unit < OCTETS && k < o.k && row < (of_a ? o.m : o.n))
            codes[i] = *(const uint2*)(of_a ? o.a + (long long)row * o.pitch_a + k : o.b + (long long)row * o.pitch_b + k);
    }
}

__device__ __forceinline__ void place(Stage& stage, const u32* table, const uint2 (&codes)[LOADS]) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int unit = threadIdx.x + i * THREADS, line = unit % LINES, octet = unit / LINES;
        if (unit >= OCTETS) break;
        const bool of_a = line < ROWS, e5m2 = of_a ? A_E5M2 : B_E5M2;
        const u32* facts = table + (of_a ? 0 : 256);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 four = half ? codes[i].y : codes[i].x;
            u32 f[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u32 code = four >> 8 * j & 0xff;
                f[j] = facts[code];
                stage.values[octet * 8 + half * 4 + j][line] = value(code, e5m2);
            }
            stage.exponents[octet * 4 + half * 2][line] = __byte_perm(f[0], f[1], 0x7632);
            stage.exponents[octet * 4 + half * 2 + 1][line] = __byte_perm(f[2], f[3], 0x7632);
            const u32 bytes = __byte_perm(__byte_perm(f[0], f[1], 0x0040), __byte_perm(f[2], f[3], 0x0040), 0x5410);
            stage.lowest[octet * 2 + half][line] = bytes & 63 * BYTES;
            stage.signs[octet * 2 + half][line] = bytes & 128 * BYTES;
        }
    }
}

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

/// One block step of the thread's outputs: rows row..row+3 of the tile, columns col..col+3 and col+16..col+19.
__device__ __forceinline__ void step(const Stage& s, int row, int col, float (&c)[TM][TN]) {
    u32 top[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) top[i][j] = __float_as_uint(c[i][j]) << 1 >> 24;
#pragma unroll
    for (int k = 0; k < 16; k++) {
        u32 a[TM], b[TN];
        read4(&s.exponents[k][row], a);
        read8(&s.exponents[k][ROWS + col], b);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) top[i][j] = add_max(a[i], b[j], top[i][j]);
    }
    u32 exact[TM][TN], count[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            const u32 field = max(top[i][j] & 0xffff, top[i][j] >> 16);
            // The constant term 1.5 * 2^23 q with the sign of c takes c's lower bits away, toward zero.
            const u32 magic = (field << 23) + (10 << 23 | 0x400000);
            const float toward = __uint_as_float(magic | (__float_as_uint(c[i][j]) & 0x80000000));
            c[i][j] = __fadd_rn(__fsub_rn(__fadd_rz(c[i][j], toward), toward), __uint_as_float(magic));
            exact[i][j] = __byte_perm(min(max(EXACT - (int)field, 65), 128), 0, 0x0000);
            count[i][j] = 0;
        }
#pragma unroll
    for (int four = 0; four < 8; four++) {
#pragma unroll
        for (int k = four * 4; k < four * 4 + 4; k++) {
            float a[TM], b[TN];
            read4(&s.values[k][row], a);
            read8(&s.values[k][ROWS + col], b);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) c[i][j] = __fmaf_rd(a[i], b[j], c[i][j]);
        }
        u32 xa[TM], sa[TM], xb[TN], sb[TN];
        read4(&s.lowest[four][row], xa);
        read4(&s.signs[four][row], sa);
        read8(&s.lowest[four][ROWS + col], xb);
        read8(&s.signs[four][ROWS + col], sb);
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

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    model_wgmma(const u8* a, const u8* b, float* d, const u8* special, int m, int n, int k, int pitch_a, int pitch_b) {
    extern __shared__ __align__(16) u8 shared[];
    Stage* stages = (Stage*)shared;
    u32* table = (u32*)(shared + 2 * sizeof(Stage));
    for (int i = threadIdx.x; i < 512; i += THREADS)
        table[i] = i < 256 ? facts(i, A_E5M2, EXPONENT_A) : facts(i - 256, B_E5M2, EXPONENT_B);
    __syncthreads();

    const Operands o{a, b, m, n, k, pitch_a, pitch_b, (int)blockIdx.y * ROWS, (int)blockIdx.x * COLUMNS};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / WARPS_N * 32 + lane / 4 * 4, col = warp % WARPS_N * 32 + lane % 4 * 4;
    float c[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) c[i][j] = 0.0f;

    // Writes the finished chains, or adds them to what is there (as the f32 additions of promotion do).
    const auto store = [&](bool first) {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                const int r = o.row0 + row + i, q = o.col0 + col + j % 4 + j / 4 * 16;
                if (r < m && q < n) {
                    float* at = d + (long long)r * n + q;
                    *at = PROMOTE ? __fadd_rn(first ? 0.0f : *at, c[i][j]) : c[i][j];
                }
                c[i][j] = 0.0f;
            }
    };

    uint2 codes[LOADS];
    fetch(o, 0, codes);
    place(stages[0], table, codes);
    __syncthreads();
    const int blocks = ceil_div(k, 32);
    for (int i = 0; i < blocks; i++) {
        if (i + 1 < blocks) fetch(o, (i + 1) * 32, codes);
        step(stages[i & 1], row, col, c);
        if (PROMOTE && (i % 4 == 3 || i + 1 == blocks)) store(i < 4);
        if (i + 1 < blocks) place(stages[(i + 1) & 1], table, codes);
        __syncthreads();
    }
    if (!PROMOTE) store(true);

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = o.row0 + row + i, q = o.col0 + col + j % 4 + j / 4 * 16;
            if (r < m && q < n && (special[r] || special[m + q]))
                d[(long long)r * n + q] = obvious(a + (long long)r * pitch_a, b + (long long)q * pitch_b, k);
        }
}
