// Integer quantizers, 4-bit packing, dequantize: torchao's affine arithmetic, bits equal to the CPU recipes.
// RN_T rounds to type T (F16, BF16, F32); every operation below is in f32 and then rounded to T, as torch does. Ties to even.
//
// Options (-D): IN, SCALE, OUT types F16, BF16, F32;  FORMAT INT4, UINT4, INT8, E4M3, E5M2 (the last two: dequantize only);
//   TOKEN (int8_token), MAPPING (affine_group), ZERO and MID (dequantize), as follows.
//
// int8_token(const void* x, s8* codes, void* scale, s32* zero, int rows, int K): one scale a row. grid rows, block THREADS (256)
//   TOKEN OWN_TYPE, IN_F32  amax = max |x| (NaN stays); scale = max(RN_IN(amax/127), RN_IN(1e-5)); q = clamp(round(RN_op(x * RN_s(1/scale))), -127, 127)
//     OWN_TYPE s = IN, scale is written in IN (..._reduced_range_quant_cutlass; f16 rows with amax below 1.94e-3 have an infinite reciprocal:
//     zeros give NaN, code 0, the rest +-127); IN_F32 s = f32, scale is written in f32, op = f32
//   TOKEN SHIFTED  mn = min(min x, 0), mx = max(max x, 0); scale = max(RN_IN(RN_IN(mx - mn)/255), ulp_IN(1)), written in f32;
//              zero = clamp(RN_IN(-128 - round(RN_IN(mn/scale))), -128, 127); q = clamp(round(x * (1/scale)) + zero, -128, 127) in f64
//   K % 8 == 0, 16-byte aligned x, 8-byte aligned codes. CHUNKS * 8 * THREADS numbers of a row stay in registers, the rest is read twice.
// affine_group(const void* x, u8* codes, void* scale, void* zero, int rows, int K, int group): scales [rows, ceil(K/group)]; LANES threads a
//   group (a power of two <= 32), each of which keeps HELD (even) times 8 numbers in registers and reads the rest twice: LANES = group/32,
//   HELD 4 is good. grid ceil(rows*groups*LANES/256), block 256. K % 8 == 0, group % 8 == 0, rows*groups*LANES < 2^32.
//   codes packed two a byte, row-major [rows, K/2] (INT8: [rows, K]); scale in IN (TINYGEMM: bf16); zero s8, written for ASYMMETRIC
//   and for UINT4 (TINYGEMM: bf16); a null zero is skipped. qmin..qmax is the format's range (-8..7, 0..15, -128..127).
//   MAPPING SYMMETRIC  scale = RN(max(-mn, mx) / ((qmax-qmin)/2)), z = (qmax+qmin+1)/2   SYMMETRIC_NO_CLIP  smin = RN(mn/qmin), smax = RN(mx/qmax), the larger; same z
//           ASYMMETRIC  scale = RN(RN(mx-mn)/(qmax-qmin)), z = clamp(RN(qmin - round(RN(mn/scale))), qmin, qmax);  all: scale = max(scale, RN(2^-23))
//              q = clamp(RN(round(RN(x * RN(1/scale))) + z), qmin, qmax), z = 0 for INT4, INT8 but in ASYMMETRIC
//           TINYGEMM  (UINT4) s = max(RN(RN(max-min)/15), RN(1e-6)), scale = RNbf(s), zero = RNbf(RN(min + RN(s*8))),
//              low = RNbf(zero - RNbf(scale*8)), q = clamp(round(RN_op(RN_op(x - low)/scale)), 0, 15), op bf16 if IN is, else f32
// pack4(const u8* codes, u8* packed, n bytes out), unpack4(const u8* packed, u8* codes, n bytes in): grid ceil(n/256), block 256.
// dequantize(const u8* codes, const void* scale, const void* zero, void* out, int rows, int K, int group_shift, int groups): grid
//   ceil(rows*K/8/256), block 256; scale (and zero) [rows, groups] of type SCALE; group = k >> group_shift (30: one a row); K % 8 == 0,
//   groups of at least 8. ZERO NONE RN_OUT(RN32(q * s)); ADDITIVE RN_OUT(RN32(RN_OUT(RN32((q-MID) * s)) + z)), z of type SCALE; INTEGER_8,
//   INTEGER_32 RN_OUT(RN32((q-z) * s)), z s8 or s32.
// NaN in a group makes its scale NaN and its codes 0 (zero points 0).
#include "common/int4.cuh"
#include "common/token.cuh"

#ifndef IN
#define IN BF16
#endif
#ifndef SCALE
#define SCALE BF16
#endif
#ifndef OUT
#define OUT BF16
#endif
#ifndef FORMAT
#define FORMAT INT4
#endif
#ifndef TOKEN
#define TOKEN OWN_TYPE
#endif
#ifndef MAPPING
#define MAPPING SYMMETRIC
#endif
#ifndef ZERO
#define ZERO NONE
#endif
#ifndef MID
#define MID 0
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef CHUNKS
#define CHUNKS 4
#endif
#ifndef LANES
#define LANES 4
#endif
#ifndef HELD
#define HELD 4
#endif

constexpr int QMIN = FORMAT == UINT4 ? 0 : FORMAT == INT8 ? -128 : -8, QMAX = FORMAT == UINT4 ? 15 : FORMAT == INT8 ? 127 : 7;
__device__ __forceinline__ float rn(float x) { return round_to<IN>(x); }
__device__ __forceinline__ float quiet_nan() { return __uint_as_float(0x7fffffffu); }

/// Eight neighbouring numbers.
struct Eight {
    uint4 a, b;  // b: f32 only
    __device__ __forceinline__ void load(const void* x, long long at) {
        const uint4* p = (const uint4*)((const u8*)x + at * (IN == F32 ? 4 : 2));
        a = load_stream(p);
        if (IN == F32) b = load_stream(p + 1);
    }
    /// By way of L1: a neighbour in the same 32 bytes is read by the next instruction.
    __device__ __forceinline__ void load_near(const void* x, long long at) {
        const uint4* p = (const uint4*)((const u8*)x + at * (IN == F32 ? 4 : 2));
        a = __ldg(p);
        if (IN == F32) b = __ldg(p + 1);
    }
    __device__ __forceinline__ float at(int i) const {
        const u32 w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        if (IN == F32) return __uint_as_float(w[i]);
        return i & 1 ? high_half<IN>(w[i / 2]) : low_half<IN>(w[i / 2]);
    }
};

/// Smallest, largest and largest magnitude (as bits, NaN above all).
struct Range {
    float low, high;
    u32 size;
    __device__ __forceinline__ static Range none() { return {__uint_as_float(0x7f800000u), __uint_as_float(0xff800000u), 0}; }
    __device__ __forceinline__ void take(float x) {
        low = fminf(low, x);
        high = fmaxf(high, x);
        size = ::max(size, __float_as_uint(x) & 0x7fffffffu);
    }
    __device__ __forceinline__ void join(const Range& o) {
        low = fminf(low, o.low);
        high = fmaxf(high, o.high);
        size = ::max(size, o.size);
    }
    __device__ __forceinline__ Range across(int step) const {
        Range o;
        o.low = __shfl_xor_sync(~0u, low, step);
        o.high = __shfl_xor_sync(~0u, high, step);
        o.size = __shfl_xor_sync(~0u, size, step);
        return o;
    }
    __device__ __forceinline__ bool nan() const { return size > 0x7f800000u; }
    __device__ __forceinline__ float min() const { return nan() ? quiet_nan() : low; }
    __device__ __forceinline__ float max() const { return nan() ? quiet_nan() : high; }
};

__device__ __forceinline__ float at_most_zero(float x) { return x > 0.0f ? 0.0f : x; }
__device__ __forceinline__ float at_least_zero(float x) { return x < 0.0f ? 0.0f : x; }
/// As an integer, NaN 0.
__device__ __forceinline__ int integer(float x, float low, float high) { return x != x ? 0 : (int)fminf(fmaxf(x, low), high); }

// ---- int8 per token

struct Token {
    float scale, inverse;
    double inverse64;
    int zero;
};
__device__ __forceinline__ Token choose_token(const Range& r) {
    Token t;
    t.zero = 0;
    t.inverse64 = 0.0;
    if (TOKEN != SHIFTED) {
        t.scale = token_scale<IN>(r.nan() ? quiet_nan() : __uint_as_float(r.size));
        t.inverse = round_to<TOKEN == OWN_TYPE ? IN : F32>(__fdiv_rn(1.0f, t.scale));
    } else {
        const float mn = at_most_zero(r.min()), mx = at_least_zero(r.max());
        const float eps = __uint_as_float((u32)(127 - (IN == F16 ? 10 : IN == BF16 ? 7 : 23)) << 23);
        const float scale = rn(__fdiv_rn(rn(__fadd_rn(mx, -mn)), 255.0f));
        t.scale = scale < eps ? eps : scale;
        t.zero = integer(rn(__fadd_rn(-128.0f, -rintf(rn(__fdiv_rn(mn, t.scale))))), -128.0f, 127.0f);
        t.inverse = 0.0f;
        t.inverse64 = __drcp_rn((double)t.scale);
    }
    return t;
}
__device__ __forceinline__ u32 code_of(float x, const Token& t) {
    if (TOKEN != SHIFTED) return token_code<IN, TOKEN == OWN_TYPE ? IN : F32>(x, t.inverse);
    const double steps = rint(__dmul_rn((double)x, t.inverse64)) + (double)t.zero;
    return steps != steps ? 0 : (u32)(int)fmin(fmax(steps, -128.0), 127.0);
}
__device__ __forceinline__ void store_token(const Token& t, void* scale, s32* zero, int row) {
    store_as<TOKEN == OWN_TYPE ? IN : F32>(scale, row, t.scale);
    if (TOKEN == SHIFTED) zero[row] = t.zero;
}

extern "C" __global__ void __launch_bounds__(THREADS) int8_token(const void* x, s8* codes, void* scale, s32* zero, int rows, int k) {
    __shared__ Range warps[THREADS / 32];
    const long long first = (long long)blockIdx.x * k;
    const int chunks = k / 8;
    Eight held[CHUNKS];
    Range r = Range::none();
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        if (c * THREADS + threadIdx.x < chunks) held[c].load(x, first + 8ll * (c * THREADS + threadIdx.x));
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        if (c * THREADS + threadIdx.x < chunks)
#pragma unroll
            for (int i = 0; i < 8; i++) r.take(held[c].at(i));
    for (int c = CHUNKS * THREADS + threadIdx.x; c < chunks; c += THREADS) {
        Eight v;
        v.load(x, first + 8ll * c);
#pragma unroll
        for (int i = 0; i < 8; i++) r.take(v.at(i));
    }
#pragma unroll
    for (int step = 16; step; step /= 2) r.join(r.across(step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = r;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) r.join(warps[w]);
    const Token t = choose_token(r);
    if (threadIdx.x == 0) store_token(t, scale, zero, blockIdx.x);

    auto write = [&](const Eight& v, int c) {
        u32 q[8];
#pragma unroll
        for (int i = 0; i < 8; i++) q[i] = code_of(v.at(i), t);
        *(uint2*)(codes + first + 8ll * c) = make_uint2(low_bytes(q[0], q[1], q[2], q[3]), low_bytes(q[4], q[5], q[6], q[7]));
    };
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        if (c * THREADS + threadIdx.x < chunks) write(held[c], c * THREADS + threadIdx.x);
    for (int c = CHUNKS * THREADS + threadIdx.x; c < chunks; c += THREADS) {
        Eight v;
        v.load(x, first + 8ll * c);
        write(v, c);
    }
}

// ---- groups of weights

struct Affine {
    float scale, inverse, low, zero_real;
    int zero;
};
__device__ __forceinline__ Affine choose_affine(const Range& r) {
    Affine p;
    p.inverse = p.low = p.zero_real = 0.0f;
    p.zero = (QMAX + QMIN + 1) / 2;
    if (MAPPING == TINYGEMM) {
        const float raw = rn(__fdiv_rn(rn(__fadd_rn(r.max(), -r.min())), 15.0f)), eps = rn(1e-6f), s = raw < eps ? eps : raw;
        p.scale = round_to<BF16>(s);
        p.zero_real = round_to<BF16>(rn(__fadd_rn(r.min(), rn(__fmul_rn(s, 8.0f)))));
        p.low = round_to<BF16>(__fadd_rn(p.zero_real, -round_to<BF16>(__fmul_rn(p.scale, 8.0f))));
        return p;
    }
    const float mn = at_most_zero(r.min()), mx = at_least_zero(r.max()), eps = rn(__uint_as_float(104u << 23));
    float s;
    if (MAPPING == SYMMETRIC) s = rn(__fdiv_rn(r.nan() ? quiet_nan() : fmaxf(-mn, mx), (QMAX - QMIN) / 2.0f));
    else if (MAPPING == ASYMMETRIC) s = rn(__fdiv_rn(rn(__fadd_rn(mx, -mn)), (float)(QMAX - QMIN)));
    else {
        const float from_min = rn(__fdiv_rn(mn, (float)QMIN)), from_max = rn(__fdiv_rn(mx, (float)QMAX));
        s = from_min > from_max ? from_min : from_max;
    }
    p.scale = s < eps ? eps : s;
    p.inverse = rn(__fdiv_rn(1.0f, p.scale));
    if (MAPPING == ASYMMETRIC) p.zero = integer(rn(__fadd_rn((float)QMIN, -rintf(rn(__fdiv_rn(mn, p.scale))))), QMIN, QMAX);
    return p;
}
__device__ __forceinline__ u32 code_of(float x, const Affine& p) {
    constexpr int op = IN == BF16 ? BF16 : F32;
    const float steps = MAPPING == TINYGEMM ? rintf(round_to<op>(__fdiv_rn(round_to<op>(__fadd_rn(x, -p.low)), p.scale)))
                                     : rn(__fadd_rn(rintf(rn(__fmul_rn(x, p.inverse))), (float)p.zero));
    return (u32)integer(steps, QMIN, QMAX) & (FORMAT == INT8 ? 255 : 15);
}
__device__ __forceinline__ void store_affine(const Affine& p, void* scale, void* zero, long long group) {
    store_as<MAPPING == TINYGEMM ? BF16 : IN>(scale, group, p.scale);
    if (!zero) return;
    if (MAPPING == TINYGEMM) store_as<BF16>(zero, group, p.zero_real);
    else if (MAPPING == ASYMMETRIC || FORMAT == UINT4) ((s8*)zero)[group] = (s8)p.zero;
}

/// Two neighbouring 16-bit numbers: the smaller and the larger of each half, NaN if either is.
__device__ __forceinline__ u32 min_two(u32 a, u32 b) {
    u32 d;
    if (IN == F16) asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    else asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ __forceinline__ u32 max_two(u32 a, u32 b) {
    u32 d;
    if (IN == F16) asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    else asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ __forceinline__ u32 fma_two(u32 a, u32 b, u32 c) { return IN == F16 ? fma_f16(a, b, c) : fma_bf16(a, b, c); }
__device__ __forceinline__ u32 both(float x) { return twice(IN == F16 ? f32_to_f16(x) : f32_to_bf16(x)); }

/// What a lane gathers of its group: of 16-bit numbers two at a time. The magnitude is all that SYMMETRIC needs.
struct Gathered {
    u32 low, high, size;
    Range whole;  // f32
    __device__ __forceinline__ void start(u32 first) {
        low = high = first;
        size = 0;
        whole = Range::none();
    }
    __device__ __forceinline__ void take(const Eight& v) {
        if (IN == F32) {
#pragma unroll
            for (int i = 0; i < 8; i++) whole.take(v.at(i));
            return;
        }
        const u32 w[4] = {v.a.x, v.a.y, v.a.z, v.a.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (MAPPING == SYMMETRIC) {
                size = max_pair(size, w[i] & 0x7fff7fffu);
            } else {
                low = min_two(low, w[i]);
                high = max_two(high, w[i]);
            }
        }
    }
    __device__ __forceinline__ Range range() const {
        if (IN == F32) return whole;
        Range r;
        if (MAPPING == SYMMETRIC) {
            const u32 most = ::max(size & 0xffff, size >> 16);
            r.high = low_half<IN>(most);
            r.low = -r.high;
            r.size = __float_as_uint(r.high);
            return r;
        }
        const u32 a = min_two(low, low >> 16), b = max_two(high, high >> 16);
        r.low = low_half<IN>(a);
        r.high = low_half<IN>(b);
        r.size = ::max(__float_as_uint(r.low) & 0x7fffffffu, __float_as_uint(r.high) & 0x7fffffffu);
        return r;
    }
};

/// Codes of eight numbers: packed (word.x), or a byte each.
__device__ __forceinline__ uint2 code_eight(const Eight& v, const Affine& p) {
    u32 q[8];
#pragma unroll
    for (int i = 0; i < 8; i++) q[i] = code_of(v.at(i), p);
    if (FORMAT == INT8) return make_uint2(low_bytes(q[0], q[1], q[2], q[3]), low_bytes(q[4], q[5], q[6], q[7]));
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) word |= q[i] << (4 * i);
    return make_uint2(word, 0);
}

/// The same for 16-bit numbers and 4-bit codes where nothing is NaN or Inf and the reciprocal is neither 0 nor Inf: the product rounded
/// to IN is clamped to [QMIN - zero, QMAX - zero], which are integers, so rounding afterwards gives the same; 1.5 * 2^m + p (m = 10 or 7
/// fraction bits) has the integer nearest to p, ties to even, in its low bits.
__device__ __forceinline__ u32 code_eight_16(const Eight& v, u32 inverse, u32 least, u32 most, u32 zero) {
    const u32 w[4] = {v.a.x, v.a.y, v.a.z, v.a.w}, magic = IN == F16 ? 0x66006600u : 0x43404340u;
    u32 t[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 clamped = min_two(max_two(fma_two(w[i], inverse, MINUS_ZERO), least), most);
        t[i] = (fma_two(clamped, IN == F16 ? F16_ONE : BF16_ONE, magic) + zero) & 0x000f000fu;
    }
    // Codes 0, 2 at bits 0, 8 and 1, 3 at bits 16, 24; then the upper half under the lower.
    const u32 a = t[0] | t[1] << 8, b = t[2] | t[3] << 8;
    const u32 c = a | a >> 12, d = b | b >> 12;
    return __byte_perm(c, d, 0x5410);
}

extern "C" __global__ void __launch_bounds__(256) affine_group(const void* x, u8* codes, void* scale, void* zero, int rows, int k, int group) {
    const u32 groups = (u32)(k + group - 1) / (u32)group, segment = (blockIdx.x * 256 + threadIdx.x) / LANES, row = segment / groups;
    const bool exists = row < (u32)rows;
    const int in_row = (int)(segment - row * groups), lane = threadIdx.x % LANES;
    const int begin = in_row * (group / 8), end = exists ? min(k / 8, begin + group / 8) : begin;
    const long long first = (long long)row * k;
    // Chunks of eight, in pairs: a lane has begin + 2 lane, + 1, then 2 LANES further on.
    auto chunk = [&](int i) { return begin + i / 2 * (2 * LANES) + 2 * lane + i % 2; };
    Eight held[HELD];
    Gathered gathered;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (chunk(i) < end) held[i].load_near(x, first + 8ll * chunk(i));
    // Any number of the group to start from.
    gathered.start(MAPPING != SYMMETRIC && IN != F32 && exists ? ((const u16*)x)[first + 8ll * begin] * 0x10001u : 0);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (chunk(i) < end) gathered.take(held[i]);
    for (int i = HELD; chunk(i) < end || chunk(i & ~1) < end; i++) {
        if (chunk(i) >= end) continue;
        Eight v;
        v.load_near(x, first + 8ll * chunk(i));
        gathered.take(v);
    }
    Range r = gathered.range();
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) r.join(r.across(step));
    if (!exists) return;
    const Affine p = choose_affine(r);
    if (lane == 0) store_affine(p, scale, zero, segment);
    const bool usual = IN != F32 && FORMAT != INT8 && MAPPING != TINYGEMM && r.size < 0x7f800000u && p.inverse > 0.0f && p.inverse < __uint_as_float(0x7f800000u);
    const int z = p.zero;
    const u32 inverse = both(p.inverse), least = both((float)(QMIN - z)), most = both((float)(QMAX - z)), zeros = twice((u16)z) & 0x000f000fu;
    auto write = [&](const Eight& v, int c) {
        uint2 word = make_uint2(0, 0);
        if (usual) word.x = code_eight_16(v, inverse, least, most, zeros);
        else word = code_eight(v, p);
        if (FORMAT == INT8) *(uint2*)(codes + first + 8ll * c) = word;
        else *(u32*)(codes + first / 2 + 4ll * c) = word.x;
    };
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (chunk(i) < end) write(held[i], chunk(i));
    for (int i = HELD; chunk(i) < end || chunk(i & ~1) < end; i++) {
        if (chunk(i) >= end) continue;
        Eight v;
        v.load_near(x, first + 8ll * chunk(i));
        write(v, chunk(i));
    }
}

// ---- packing

extern "C" __global__ void pack4(const u8* codes, u8* packed, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u32 a = codes[2 * i] & 15, b = codes[2 * i + 1] & 15;
    packed[i] = (u8)(b << 4 | a);
}
extern "C" __global__ void unpack4(const u8* packed, u8* codes, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    codes[2 * i] = (u8)nibble_at<false>(packed, 2 * i);
    codes[2 * i + 1] = (u8)nibble_at<false>(packed, 2 * i + 1);
}

// ---- dequantize

__device__ __forceinline__ float value_of(float code, float s, const void* zero, long long group) {
    if (ZERO == ADDITIVE) return __fadd_rn(round_to<OUT>(__fmul_rn(code - MID, s)), load_as<SCALE>(zero, group));
    if (ZERO == INTEGER_8) code -= (float)((const s8*)zero)[group];
    if (ZERO == INTEGER_32) code -= (float)((const s32*)zero)[group];
    return __fmul_rn(code, s);
}
/// Two FP8 codes to f16, exactly, by the hardware.
__device__ __forceinline__ u32 fp8_pair(u16 codes) {
    u32 d;
    if (FORMAT == E4M3) asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(codes));
    else asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(d) : "h"(codes));
    return d;
}

extern "C" __global__ void __launch_bounds__(256) dequantize(const u8* codes, const void* scale, const void* zero, void* out, int rows, int k,
                                                             int group_shift, int groups) {
    const long long i = 8 * ((long long)blockIdx.x * 256 + threadIdx.x);
    if (i >= (long long)rows * k) return;
    const long long group = i / k * groups + (int)(i % k >> group_shift);
    const float s = load_as<SCALE>(scale, group);
    float v[8];
    if (is_int4(FORMAT)) {
        const u32 word = __ldg((const u32*)(codes + i / 2));
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int n = word >> (4 * e) & 15;
            v[e] = (float)(FORMAT == INT4 ? (n ^ 8) - 8 : n);
        }
    } else {
        const uint2 w = __ldg((const uint2*)(codes + i));
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
            const u16 two = (u16)((e < 4 ? w.x : w.y) >> (8 * (e % 4)));
            if (FORMAT == INT8) {
                v[e] = (float)(s8)(two & 255);
                v[e + 1] = (float)(s8)(two >> 8);
            } else {
                const u32 pair = fp8_pair(two);
                v[e] = low_half<F16>(pair);
                v[e + 1] = high_half<F16>(pair);
            }
        }
    }
#pragma unroll
    for (int e = 0; e < 8; e++) v[e] = value_of(v[e], s, zero, group);
    if (OUT == F32) {
        ((float4*)out)[i / 4] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4*)out)[i / 4 + 1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
        u32 w[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            w[e] = OUT == F16 ? f32_to_f16(v[2 * e]) | (u32)f32_to_f16(v[2 * e + 1]) << 16 : f32_to_bf16(v[2 * e]) | (u32)f32_to_bf16(v[2 * e + 1]) << 16;
        ((uint4*)out)[i / 8] = make_uint4(w[0], w[1], w[2], w[3]);
    }
}
