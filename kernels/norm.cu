// LayerNorm and RMSNorm forward with FP8 codes, amax and scale_inv, or a 16-bit or 32-bit result, in one pass.
//
// Options (-D): OP LAYERNORM, RMSNORM;  IN type of x, gamma, beta, OUT, as common/elements.cuh;  ONE 1: the weight is RN32(gamma + 1);
//   LANES threads a row (32, or 256 up to 1024), EACH eights a thread held in registers, RESIDENT blocks a multiprocessor;
//   KEEP 1: gamma and beta of those eights too;
//   RAGGED FULL: cols is 8*LANES*EACH, EIGHTS: a multiple of 8, ANY;  STAGES 0: rows are read into registers (PREFETCH 1: the next row before
//   this one is used); 1 to 8 (sm_90, LANES over 32, RAGGED not ANY, cols <= 8*LANES*EACH): rows are copied ahead into as many places of
//   shared memory by the copy engine.
//
// Of a row of n numbers in f32, rn = RN32(1/n), each operation rounded once, sums of a thread in order, then a tree over threads:
//   LayerNorm  mean = rn * sum(x), rsigma = rsqrtf(rn * sum((x - mean)^2) + eps), v = w * (rsigma * (x - mean)) + beta
//   RMSNorm    rsigma = rsqrtf(rn * sum(x^2) + eps), v = w * (rsigma * x); squares are added by fma
// FP8: d = Qsat(RN32(v * *scale)), *amax raised to max |v| (NaN dropped; the host sets it to 0 before), *scale_inv = RN32(1 / *scale),
//   written also where there is no element; a null scale is 1, a null amax or scale_inv is skipped. Others: d = RN(v).
//
// norm_forward(const void* x, const void* gamma, const void* beta, void* d, float* mean, float* rsigma, const float* scale, float* amax,
//      float* scale_inv, int rows, int cols, float eps)
//   x, d [rows, cols] row-major, contiguous, bases at multiples of 16; gamma, beta [cols] (null beta: 0; RMSNorm: unused); mean (LayerNorm;
//   may be null), rsigma (may be null) [rows]. Columns past EACH*LANES*8 are read again for each sum.
//   grid any (rows are strided by it), block max(LANES, 256), dynamic shared memory STAGES rows of x; fewer than 2^31 elements.
#include "common/elements.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"

#ifndef OP
#define OP RMSNORM
#endif
#ifndef IN
#define IN BF16
#endif
#ifndef OUT
#define OUT E4M3
#endif
#ifndef ONE
#define ONE 0
#endif
#ifndef LANES
#define LANES 256
#endif
#ifndef EACH
#define EACH 4
#endif
#ifndef PREFETCH
#define PREFETCH 1
#endif
#ifndef RESIDENT
#define RESIDENT 3
#endif
#ifndef KEEP
#define KEEP 0
#endif
#ifndef RAGGED
#define RAGGED FULL
#endif
#ifndef STAGES
#define STAGES 0
#endif
constexpr int THREADS = LANES > 256 ? LANES : 256, ROWS = THREADS / LANES;
static_assert(LANES == 32 || ROWS == 1, "a row is a warp's or a block's");
static_assert(STAGES == 0 || (LANES > 32 && RAGGED != ANY), "the block's barrier frees a stage; the copy engine copies 16 bytes");

/// Sum over the row's threads, in each of them. Two halves of `shared` take turns, so one barrier a sum is enough.
struct Reduce {
    float (*shared)[32];
    int turn = 0;
    __device__ __forceinline__ static float warp(float v) {
#pragma unroll
        for (int step = 16; step; step /= 2) v = __fadd_rn(v, __shfl_xor_sync(~0u, v, step));
        return v;
    }
    __device__ __forceinline__ float sum(float v) {
        v = warp(v);
        if (LANES == 32) return v;
        const int lane = threadIdx.x & 31;
        if (lane == 0) shared[turn][threadIdx.x / 32] = v;
        __syncthreads();
        v = warp(lane < LANES / 32 ? shared[turn][lane] : 0.0f);
        turn ^= 1;
        return v;
    }
};

__device__ __forceinline__ float weight(float gamma) { return ONE ? __fadd_rn(gamma, 1.0f) : gamma; }
__device__ __forceinline__ float normalized(float x, float mean, float rsigma, float w, float beta) {
    if (OP == RMSNORM) return __fmul_rn(w, __fmul_rn(rsigma, x));
    return __fadd_rn(__fmul_rn(w, __fmul_rn(rsigma, __fsub_rn(x, mean))), beta);
}
/// Adds the first `count` of eight numbers (the rest are 0), or the squares of their distances from `mean`.
template <bool SQUARES>
__device__ __forceinline__ float add(float sum, const Eight<IN>& x, int count, float mean) {
    if (RAGGED == EIGHTS && OP == LAYERNORM && count == 0) return sum;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float far = OP == RMSNORM ? x[i] : __fsub_rn(x[i], mean);
        if (OP == RMSNORM || RAGGED != ANY || i < count) sum = SQUARES ? __fmaf_rn(far, far, sum) : __fadd_rn(sum, x[i]);
    }
    return sum;
}

/// Eight number `e` of a row that begins at element `start`.
__device__ __forceinline__ Place place(long long start, int e, int cols) {
    if (RAGGED == FULL) return {start + 8 * e, 8, true};
    const int count = max(min(cols - 8 * e, 8), 0);
    return {start + 8 * e, RAGGED == EIGHTS && count ? 8 : count, RAGGED == EIGHTS ? count != 0 : count == 8 && cols % 8 == 0};
}
__device__ __forceinline__ Eight<IN> fetch(const Place& p, const void* x) {
    Eight<IN> v;
    if (p.whole) v.load(x, p.at);
    else if (RAGGED == ANY) v.load_some(x, p.at, p.count);
    else v.zero();
    return v;
}
/// The thread's eights of the row that begins at element `start`.
__device__ __forceinline__ void fetch_row(Eight<IN> (&v)[EACH], long long start, int lane, int cols, const void* x) {
#pragma unroll
    for (int i = 0; i < EACH; i++) v[i] = fetch(place(start, i * LANES + lane, cols), x);
}
/// gamma or beta: from the cache that keeps them for the next row.
__device__ __forceinline__ Eight<IN> fetch_kept(const Place& p, const void* x) {
    Eight<IN> v;
    if (p.whole) {
        const uint4* from = (const uint4*)((const u8*)x + p.at * bytes_of(IN));
#pragma unroll
        for (int i = 0; i < bytes_of(IN) / 2; i++) {
            const uint4 w = __ldg(from + i);
            v.word[4 * i] = w.x, v.word[4 * i + 1] = w.y, v.word[4 * i + 2] = w.z, v.word[4 * i + 3] = w.w;
        }
    } else if (RAGGED == ANY) {
        v.load_some(x, p.at, p.count);
    } else {
        v.zero();
    }
    return v;
}

/// Rows on their way through shared memory, in the order the block takes them. One thread of the block is `first`.
struct Ring {
    u32 data, full;  // shared addresses: STAGES rows, STAGES barriers
    int bytes, stage = 0, parity = 0;
    __device__ __forceinline__ void copy(const void* x, int row, int at) const {
        mbarrier_expect(full + 8 * at, bytes);
        bulk_load(data + at * bytes, (const u8*)x + (long long)row * bytes, bytes, full + 8 * at);
    }
    __device__ __forceinline__ void start(bool first, const void* x, int row, int stride, int rows) const {
        if (first) {
            for (int i = 0; i < STAGES; i++) mbarrier_init(full + 8 * i, 1);
            mbarrier_init_fence();
            for (int i = 0; i < STAGES && row + i * stride < rows; i++) copy(x, row + i * stride, i);
        }
        __syncthreads();
    }
    /// The thread's eights of the row whose turn it is.
    __device__ __forceinline__ void take(Eight<IN> (&v)[EACH], int lane, int cols) const {
        mbarrier_wait(full + 8 * stage, parity);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int e = i * LANES + lane;
            v[i].zero();
            if (RAGGED == EIGHTS && 8 * e >= cols) continue;
#pragma unroll
            for (int j = 0; j < bytes_of(IN) / 2; j++) {
                u32(&w)[IN == F32 ? 8 : 4] = v[i].word;
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(w[4 * j]), "=r"(w[4 * j + 1]), "=r"(w[4 * j + 2]), "=r"(w[4 * j + 3])
                             : "r"(data + stage * bytes + e * 8 * bytes_of(IN) + 16 * j));
            }
        }
    }
    /// After a barrier that follows `take`: every thread has read its part, another row may come in.
    __device__ __forceinline__ void free(bool first, const void* x, int row, int stride, int rows) {
        if (first && row + (long long)STAGES * stride < rows) copy(x, row + STAGES * stride, stage);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

/// Weights of eight columns.
struct Weights {
    Eight<IN> gamma, beta;
    __device__ __forceinline__ void fetch(int e, int cols, const void* g, const void* b) {
        const Place column = place(0, e, cols);
        gamma = fetch_kept(column, g);
        if (OP == LAYERNORM && b) beta = fetch_kept(column, b);
        else beta.zero();
    }
};

/// One eight of the result; |v| joins `largest`.
__device__ __forceinline__ void write(const Place& p, const Eight<IN>& x, const Weights& w, void* d, float mean, float rsigma, float scale, float& largest) {
    if (p.count <= 0) return;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = OP == RMSNORM || RAGGED != ANY || i < p.count ? normalized(x[i], mean, rsigma, weight(w.gamma[i]), w.beta[i]) : 0.0f;
    if (is_fp8(OUT)) largest = larger_of(largest, v);
    p.store<OUT>(d, v, scale);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    norm_forward(const void* x, const void* gamma, const void* beta, void* d, float* mean_out, float* rsigma_out, const float* scale, float* amax,
         float* scale_inv, int rows, int cols, float eps) {
    __shared__ float shared[2][32];
    __shared__ u32 words[32];
    const float s = is_fp8(OUT) ? scale_or_one(scale) : 1.0f, rn = __frcp_rn((float)cols);
    if (is_fp8(OUT) && blockIdx.x == 0 && threadIdx.x == 0) write_scale_inv(scale_inv, s);
    const int lane = threadIdx.x % LANES, width = (cols + 7) / 8, stride = gridDim.x * ROWS;
    Reduce reduce{shared};
    float largest = 0.0f;
    int row = blockIdx.x * ROWS + threadIdx.x / LANES;
    extern __shared__ uint4 ring_rows[];
    __shared__ u64 ring_full[STAGES + 1];
    Ring ring{smem_address(ring_rows), smem_address(ring_full), cols * bytes_of(IN)};
    if (STAGES) ring.start(threadIdx.x == 0, x, row, stride, rows);
    Eight<IN> next[EACH];
    if (!STAGES && PREFETCH && row < rows) fetch_row(next, (long long)row * cols, lane, cols, x);
    Weights kept[KEEP ? EACH : 1];
    if (KEEP) {
#pragma unroll
        for (int i = 0; i < EACH; i++) kept[KEEP ? i : 0].fetch(i * LANES + lane, cols, gamma, beta);
    }
    for (; row < rows; row += stride) {
        const long long start = (long long)row * cols;
        Eight<IN> held[EACH];
        if (STAGES) {
            ring.take(held, lane, cols);
        } else if (PREFETCH) {
#pragma unroll
            for (int i = 0; i < EACH; i++) held[i] = next[i];
            if (row + stride < rows) fetch_row(next, start + (long long)stride * cols, lane, cols, x);
        } else {
            fetch_row(held, start, lane, cols, x);
        }
        float mean = 0.0f, sum = 0.0f;
        if (OP == LAYERNORM) {
#pragma unroll
            for (int i = 0; i < EACH; i++) sum = add<false>(sum, held[i], place(0, i * LANES + lane, cols).count, 0.0f);
            for (int e = EACH * LANES + lane; RAGGED && !STAGES && e < width; e += LANES) sum = add<false>(sum, fetch(place(start, e, cols), x), place(0, e, cols).count, 0.0f);
            mean = __fmul_rn(reduce.sum(sum), rn);
            if (STAGES) ring.free(threadIdx.x == 0, x, row, stride, rows);
            sum = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) sum = add<true>(sum, held[i], place(0, i * LANES + lane, cols).count, mean);
        for (int e = EACH * LANES + lane; RAGGED && !STAGES && e < width; e += LANES) sum = add<true>(sum, fetch(place(start, e, cols), x), place(0, e, cols).count, mean);
        const float rsigma = rsqrtf(__fadd_rn(__fmul_rn(reduce.sum(sum), rn), eps));
        if (STAGES && OP == RMSNORM) ring.free(threadIdx.x == 0, x, row, stride, rows);
        if (lane == 0) {
            if (OP == LAYERNORM && mean_out) mean_out[row] = mean;
            if (rsigma_out) rsigma_out[row] = rsigma;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int e = i * LANES + lane;
            if (!KEEP) kept[0].fetch(e, cols, gamma, beta);
            write(place(start, e, cols), held[i], kept[KEEP ? i : 0], d, mean, rsigma, s, largest);
        }
        for (int e = EACH * LANES + lane; RAGGED && !STAGES && e < width; e += LANES) {
            const Place p = place(start, e, cols);
            Weights w;
            w.fetch(e, cols, gamma, beta);
            write(p, fetch(p, x), w, d, mean, rsigma, s, largest);
        }
    }
    if (is_fp8(OUT)) raise_amax(amax, __float_as_uint(largest), words);
}
