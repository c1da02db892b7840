// D[M,N] = dequantized(X)[M,K] . dequantized(W)[N,K]^T + bias: int8 activations (a scale, and perhaps a zero point, a token) times
// int4 or uint4 weights (scales, and perhaps zero points, a channel or a group of K), on the int8 tensor cores.
//
// With brackets over group g (all of K if GROUPED 0), exact in int32:
//   bracket_g = sum_k x w - wz_ng sum_k x - xz_m sum_k w + |g| xz_m wz_ng = sum_k (x - xz_m)(w - wz_ng)
// GROUPED 0:  t1 = RN32(f32(bracket) * xs_m), t2 = RN32(t1 * ws_n), t3 = RN32(t2 + c), D = RN(t3)
// GROUPED 1:  y = +0; for g ascending y = fma32(f32(bracket_g), ws_ng, y);  t2 = RN32(y * xs_m), t3 = RN32(t2 + c), D = RN(t3)
//   c = f32(bias_n), or +0 without bias (so -0 becomes +0). f32(bracket) rounds to nearest even beyond 2^24.
// FUSED 1: x holds f16 or bf16 numbers and is quantized here exactly as int8_token with TOKEN OWN_TYPE does (int4_quant.cu; +-127, the scale in
//   X's own type, which is then xs; written to xs_out[M] as f32 by the CTAs of the first features): equal bits to the two kernels.
//
// Options (-D): UNSIGNED 0 int4, 1 uint4;  GROUPED, FUSED as above;  XZERO 1: xz int32[M];  WZERO 1: wz int8[N, groups],
//   -8..7 (int4) or 0..15 (uint4);  SCALE F16, BF16, F32 (xs and ws);  OUT F16, BF16, F32 (D and bias; FUSED: also x, F16 or BF16);
//   SMALL 1 for groups of 32 or 64;  MT 16-feature tiles a warp (1, 2), NT 8-token tiles a warp (1, 2, 4, 8), WARPS_F (features),
//   WARPS_T (tokens), WARPS_K (K) warps, STAGE 128-blocks of X a K-slice in shared memory, DEPTH blocks of weights in flight.
//
// w4a8(const void* x, const u8* w, const void* xs, const void* ws, const int* xz, const s8* wz, const void* bias, void* d, float* xs_out,
//      int M, int N, int K, int group_shift, int groups)
//   x [M,K] row-major, 16-byte aligned; w [N, K/2] packed row-major, 16-byte aligned; xs [M], ws [N, groups], row-major; bias [N] or
//   null; d [M,N] row-major. group_shift: log2 of the group size, a power of two >= 32, or 30 for one group; groups = ceil(K / G).
//   grid (ceil(N / FEATURES), ceil(M / TOKENS)), FEATURES = 16 MT WARPS_F, TOKENS = 8 NT WARPS_T; block 32 WARPS_F WARPS_T WARPS_K
//   shared memory (dynamic): WARPS_K TOKENS (128 STAGE + 16) + 4 (FEATURES + 4) TOKENS (GROUPED && WARPS_K > 1 ? groups : WARPS_K)
//     + FEATURES groups (WZERO ? 8 : 4) + 8 TOKENS + 4 FEATURES bytes. No workspace.
//   The host refuses: K % 32 != 0; K > 131040; misaligned pointers; groups of 32 or 64 without SMALL or with WARPS_K > 1; with GROUPED and
//   WARPS_K > 1, a slice of K (ceil(ceil(K/128) / WARPS_K) blocks of 128) that is not whole groups; |zero points| beyond what is said;
//   |xz| > 128; null xs (unless FUSED) or ws.
#include "common/int4.cuh"
#include "common/token.cuh"

#ifndef UNSIGNED
#define UNSIGNED 0
#endif
#ifndef GROUPED
#define GROUPED 0
#endif
#ifndef FUSED
#define FUSED 0
#endif
#ifndef XZERO
#define XZERO 0
#endif
#ifndef WZERO
#define WZERO 0
#endif
#ifndef SCALE
#define SCALE F16
#endif
#ifndef OUT
#define OUT F16
#endif
#ifndef SMALL
#define SMALL 0
#endif
#ifndef MT
#define MT 2
#endif
#ifndef NT
#define NT 2
#endif
#ifndef WARPS_F
#define WARPS_F 2
#endif
#ifndef WARPS_T
#define WARPS_T 1
#endif
#ifndef WARPS_K
#define WARPS_K 4
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef STAGE
#define STAGE DEPTH
#endif

constexpr int BLOCK = 128;  // k of a block: four tensor-core steps
constexpr int FEATURES = 16 * MT * WARPS_F, TOKENS = 8 * NT * WARPS_T, THREADS = 32 * WARPS_F * WARPS_T * WARPS_K;
constexpr int PITCH = 128 * STAGE + 16, X_BYTES = WARPS_K * TOKENS * PITCH;
constexpr int PART_PITCH = FEATURES + 4;
constexpr bool CHAIN = GROUPED && WARPS_K == 1;             // groups are scaled in registers
constexpr bool TIMES16 = !UNSIGNED && !WZERO;               // weights enter the product as 16 w

struct Problem {
    const void* x;
    const u8* w;
    const void *xs, *ws;
    const s32* xz;
    const s8* wz;
    const void* bias;
    void* d;
    float* xs_out;
    int m, n, k, group_shift, groups;
};

/// The four words of a row's block that a lane multiplies. Step j of a block takes for lane t k = 32t + 8j .. + 7 or, if SMALL, 32j + 8t.
__device__ __forceinline__ uint4 load_weights(const Problem& a, int row, int block, int lane) {
    const int t = lane % 4;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (row >= a.n) return v;
    const u8* at = a.w + (long long)row * (a.k / 2) + block * 64;
    if constexpr (SMALL) {
        u32 word[4];
#pragma unroll
        for (int j = 0; j < 4; j++) word[j] = BLOCK * block + 32 * j < a.k ? __ldg((const u32*)(at + 16 * j + 4 * t)) : 0;
        v = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
        if (BLOCK * block + 32 * t < a.k) v = load_stream(at + 16 * t);
    }
    return v;
}

/// Codes of X, or numbers quantized on the way, of one stage: token n of slice s at (s*TOKENS + n)*PITCH, zero beyond M and K.
__device__ __forceinline__ void stage_x(u8* smem, const Problem& a, int slice_blocks, int stage, const float2* token) {
    constexpr int CHUNKS = 8 * STAGE;
    for (int i = threadIdx.x; i < WARPS_K * TOKENS * CHUNKS; i += THREADS) {
        const int chunk = i % CHUNKS, n = i / CHUNKS % TOKENS, slice = i / (CHUNKS * TOKENS);
        const int in_slice = stage * STAGE + chunk / 8, m = blockIdx.y * TOKENS + n;
        const int k = BLOCK * slice * slice_blocks + BLOCK * stage * STAGE + 16 * chunk;
        const bool exists = m < a.m && k < a.k && in_slice < slice_blocks;
        const long long at = (long long)m * a.k + k;
        u8* to = smem + (slice * TOKENS + n) * PITCH + 16 * chunk;
        if constexpr (FUSED) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (exists) {
                const uint4 lo = __ldg((const uint4*)((const u16*)a.x + at)), hi = __ldg((const uint4*)((const u16*)a.x + at + 8));
                const float inverse = token[n].y;
                v = make_uint4(token_code4<OUT, OUT>(lo.x, lo.y, inverse), token_code4<OUT, OUT>(lo.z, lo.w, inverse),
                               token_code4<OUT, OUT>(hi.x, hi.y, inverse), token_code4<OUT, OUT>(hi.z, hi.w, inverse));
            }
            *(uint4*)to = v;
        } else {
            copy16(shared_address(to), exists ? (const u8*)a.x + at : (const u8*)a.x, exists ? 16 : 0);
        }
    }
    if (!FUSED) copies_done();
}

/// Scale and its reciprocal of each of the CTA's tokens; a warp a token.
__device__ __forceinline__ void choose_token_scales(const Problem& a, float2* token) {
    const int lane = threadIdx.x % 32;
    for (int n = threadIdx.x / 32; n < TOKENS; n += THREADS / 32) {
        const int m = blockIdx.y * TOKENS + n;
        if (m >= a.m) continue;
        const uint4* row = (const uint4*)((const u16*)a.x + (long long)m * a.k);
        u32 amax = 0;
#pragma unroll 4
        for (int i = lane; i < a.k / 8; i += 32) {
            const uint4 v = __ldg(row + i);
            amax = max_pair(max_pair(max_pair(max_pair(amax, v.x & 0x7fff7fffu), v.y & 0x7fff7fffu), v.z & 0x7fff7fffu), v.w & 0x7fff7fffu);
        }
        amax = max(amax & 0xffff, amax >> 16);
        amax = __reduce_max_sync(~0u, amax);
        if (lane == 0) {
            const float scale = token_scale<OUT>(OUT == F16 ? f16_to_f32((u16)amax) : bf16_to_f32((u16)amax));
            token[n] = make_float2(scale, round_to<OUT>(__fdiv_rn(1.0f, scale)));
            if (blockIdx.x == 0 && a.xs_out) a.xs_out[m] = scale;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) w4a8(const void* x, const u8* w, const void* xs, const void* ws, const s32* xz,
                                                           const s8* wz, const void* bias, void* d, float* xs_out, int m, int n, int k,
                                                           int group_shift, int groups) {
    const Problem a = {x, w, xs, ws, xz, wz, bias, d, xs_out, m, n, k, group_shift, groups};
    extern __shared__ __align__(128) u8 smem[];
    const int parts = GROUPED && !CHAIN ? groups : WARPS_K;
    s32* part = (s32*)(smem + X_BYTES);                                      // [parts][TOKENS][PART_PITCH]
    float* wscale = (float*)(part + PART_PITCH * TOKENS * parts);            // [groups][FEATURES]
    u32* wminus = (u32*)(wscale + FEATURES * groups);                        // [groups][FEATURES], in each byte (see nibbles_to_s8)
    float2* token = (float2*)(wminus + (WZERO ? FEATURES * groups : 0));     // [TOKENS]: scale, reciprocal (FUSED)
    float* c_bias = (float*)(token + TOKENS);                                // [FEATURES]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    const int f0 = warp % WARPS_F * (16 * MT), t0 = warp / WARPS_F % WARPS_T * (8 * NT), slice = warp / (WARPS_F * WARPS_T);
    const int row = blockIdx.x * FEATURES + f0 + lane / 4;
    const int blocks = (k + BLOCK - 1) / BLOCK, slice_blocks = (blocks + WARPS_K - 1) / WARPS_K;
    const int first = slice * slice_blocks, count = max(0, min(slice_blocks, blocks - first));

    uint4 ring[DEPTH][2 * MT];
#pragma unroll
    for (int i = 0; i < DEPTH; i++)
        if (i < count)
#pragma unroll
            for (int r = 0; r < 2 * MT; r++) ring[i][r] = load_weights(a, row + 8 * r, first + i, lane);
    for (int i = threadIdx.x; i < FEATURES * groups; i += THREADS) {
        const int g = i % groups, f = i / groups, j = blockIdx.x * FEATURES + f;
        wscale[g * FEATURES + f] = j < n ? load_as<SCALE>(ws, (long long)j * groups + g) : 0.0f;
        if (WZERO) wminus[g * FEATURES + f] = (j < n ? wz[(long long)j * groups + g] + (UNSIGNED ? 0 : 8) : 0) * 0x01010101u;
    }
    for (int i = threadIdx.x; i < FEATURES; i += THREADS) c_bias[i] = bias && blockIdx.x * FEATURES + i < n ? load_as<OUT>(bias, blockIdx.x * FEATURES + i) : 0.0f;
    if constexpr (FUSED) {
        choose_token_scales(a, token);
        __syncthreads();
    } else {
        for (int i = threadIdx.x; i < TOKENS; i += THREADS) token[i].x = blockIdx.y * TOKENS + i < m ? load_as<SCALE>(xs, blockIdx.y * TOKENS + i) : 0.0f;
    }

    s32 acc[MT][NT][4] = {}, ones[MT][4] = {};  // ones: the sums of weights alone, in every column
    float y[MT][NT][4] = {};
    s32 x_zero[NT][2] = {};
    if (XZERO)
#pragma unroll
        for (int c = 0; c < NT; c++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int at = blockIdx.y * TOKENS + t0 + 8 * c + 2 * t + e;
                if (at < m) x_zero[c][e] = __ldg(xz + at);
            }
    auto bracket = [&](int mt, int c, int e) {
        s32 v = acc[mt][c][e];
        if (XZERO) v -= x_zero[c][e & 1] * ones[mt][e];
        return TIMES16 ? v >> 4 : v;
    };
    // What is finished goes to part `index`: [TOKENS][PART_PITCH], int32 brackets or, with CHAIN, the bits of y.
    auto write_part = [&](int index) {
#pragma unroll
        for (int c = 0; c < NT; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int at = t0 + 8 * c + 2 * t + (e & 1);
                if (blockIdx.y * TOKENS + at >= m) continue;
#pragma unroll
                for (int mt = 0; mt < MT; mt++)
                    part[(index * TOKENS + at) * PART_PITCH + f0 + 16 * mt + e / 2 * 8 + lane / 4] = CHAIN ? __float_as_int(y[mt][c][e]) : bracket(mt, c, e);
            }
    };

    for (int stage = 0; stage * STAGE < slice_blocks; stage++) {
        if (stage) __syncthreads();
        stage_x(smem, a, slice_blocks, stage, token);
        __syncthreads();
        for (int turn = 0; turn < STAGE / DEPTH; turn++)
#pragma unroll
            for (int i = 0; i < DEPTH; i++) {
                const int in_stage = turn * DEPTH + i, block = stage * STAGE + in_stage;
                if (block >= count) break;
                const u8* xt = smem + (slice * TOKENS + t0 + lane / 4) * PITCH + in_stage * BLOCK;
#pragma unroll
                for (int half = 0; half < 2; half++) {  // steps 2 half, 2 half + 1
                    uint4 b[NT];
#pragma unroll
                    for (int c = 0; c < NT; c++) {
                        const u8* at = xt + 8 * c * PITCH;
                        if (SMALL) {
                            const uint2 one = *(const uint2*)(at + 64 * half + 8 * t), two = *(const uint2*)(at + 64 * half + 32 + 8 * t);
                            b[c] = make_uint4(one.x, one.y, two.x, two.y);
                        } else {
                            b[c] = *(const uint4*)(at + 32 * t + 16 * half);
                        }
                    }
#pragma unroll
                    for (int odd = 0; odd < 2; odd++) {
                        const int j = 2 * half + odd, kk = BLOCK * (first + block) + (SMALL ? 32 * j : 0), g = GROUPED ? kk >> group_shift : 0;
                        if (SMALL && kk >= k) break;
                        u32 first8[2 * MT], second8[2 * MT];
#pragma unroll
                        for (int r = 0; r < 2 * MT; r++) {
                            const uint4 v = ring[i][r];
                            const u32 word = j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
                            const u32 minus = WZERO ? wminus[g * FEATURES + f0 + lane / 4 + 8 * r] : 0;
                            nibbles_to_s8<!UNSIGNED, WZERO>(first8[r], second8[r], word, minus);
                            // Beyond K the weights are 0 - zero, which the zeros of X take away, but not the ones.
                            if (XZERO && WZERO && BLOCK * (first + block) + (SMALL ? 32 * j : 32 * t) >= k) first8[r] = second8[r] = 0;
                        }
#pragma unroll
                        for (int mt = 0; mt < MT; mt++) {
#pragma unroll
                            for (int c = 0; c < NT; c++)
                                mma_s8(acc[mt][c], first8[2 * mt], first8[2 * mt + 1], second8[2 * mt], second8[2 * mt + 1], odd ? b[c].z : b[c].x,
                                       odd ? b[c].w : b[c].y);
                            if (XZERO)
                                mma_s8(ones[mt], first8[2 * mt], first8[2 * mt + 1], second8[2 * mt], second8[2 * mt + 1], 0x01010101u, 0x01010101u);
                        }
                        // End of a group?
                        const int next = kk + (SMALL ? 32 : 128);
                        const bool last = SMALL ? (next >> group_shift) != g || next >= k : j == 3 && (((next >> group_shift) != g) || block + 1 == count);
                        if (GROUPED && last) {
                            if (CHAIN) {
#pragma unroll
                                for (int mt = 0; mt < MT; mt++)
#pragma unroll
                                    for (int e = 0; e < 4; e++) {
                                        const float s = wscale[g * FEATURES + f0 + 16 * mt + e / 2 * 8 + lane / 4];
#pragma unroll
                                        for (int c = 0; c < NT; c++) y[mt][c][e] = __fmaf_rn((float)bracket(mt, c, e), s, y[mt][c][e]);
                                    }
                            } else {
                                write_part(g);
                            }
#pragma unroll
                            for (int mt = 0; mt < MT; mt++)
#pragma unroll
                                for (int e = 0; e < 4; e++) {
                                    ones[mt][e] = 0;
#pragma unroll
                                    for (int c = 0; c < NT; c++) acc[mt][c][e] = 0;
                                }
                        }
                    }
                }
                if (block + DEPTH < count)
#pragma unroll
                    for (int r = 0; r < 2 * MT; r++) ring[i][r] = load_weights(a, row + 8 * r, first + block + DEPTH, lane);
            }
    }
    if (!GROUPED || CHAIN) write_part(slice);
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < TOKENS * FEATURES; i += THREADS) {
        const int f = i % FEATURES, at = i / FEATURES, j = blockIdx.x * FEATURES + f, token_m = blockIdx.y * TOKENS + at;
        if (j >= n || token_m >= m) continue;
        const float x_scale = token[at].x;
        const s32* sums = part + at * PART_PITCH + f;
        float v = 0.0f;
        if (CHAIN) {
            v = __fmul_rn(__int_as_float(sums[0]), x_scale);
        } else if (GROUPED) {
            for (int g = 0; g < groups; g++) v = __fmaf_rn((float)sums[g * TOKENS * PART_PITCH], wscale[g * FEATURES + f], v);
            v = __fmul_rn(v, x_scale);
        } else {
            s32 sum = 0;
#pragma unroll
            for (int p = 0; p < WARPS_K; p++) sum += sums[p * TOKENS * PART_PITCH];
            v = __fmul_rn(__fmul_rn((float)sum, x_scale), wscale[f]);
        }
        store_as<OUT>(d, (long long)token_m * n + j, __fadd_rn(v, c_bias[f]));
    }
}
