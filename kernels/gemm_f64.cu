// The f64 reference product: d = A·B^T + bias and the magnitudes sum |a||b| + |bias| that error bounds are scaled by.
//
// The same additions in the same order as the CPU's `op::gemm`, so the same bits: lane l of 16 holds the sum over k = l mod 16 in
// ascending k, RN(sum + RN(a*b)) without fma; the lanes are added pairwise, l with l + 8, then 4, 2, 1; last the bias. Where K is no
// multiple of 16 the tail's lanes get one product more.
// A half-warp has the 16 lanes of 4x4 outputs.
//
// contract gemm_f64
//   arch   any
//   block  256
//   smem   0 dynamic
//   grid   {ceil(N/16), ceil(M/16)}
//   args   a const double* [M, K]; b const double* [N, K]; bias const double* [N] or null; d double* [M, N]; magnitude double* [M, N];
//          m, n, k int
//   refuse M, N or K < 1 or > 2^31 - 512
//
// contract gemm_f64_cancelled  (after gemm_f64)
//   Elements whose plain sum's rounding could show in an f32 of the result, (K + 4)*2^-53*magnitude > 2^-34*|d|, again: every product split
//   in two by fma, added in pairs of doubles (Dekker), rounded once. The pair is off by less than K*2^-104*magnitude, so d is the rounded
//   exact sum as the CPU's is, but where that lies so near to the middle of two doubles.
//   block  256
//   grid   any
//   args   as gemm_f64
#include "common/gemm_types.cuh"

constexpr int LANES = 16;

/// One more product on a lane.
__device__ __forceinline__ void add(double& sum, double& size, double a, double b) {
    const double p = __dmul_rn(a, b);
    sum = __dadd_rn(sum, p);
    size = __dadd_rn(size, fabs(p));
}

/// Rows of A and of B that a block holds, k of a stage, and the pitch of a row in shared memory (16 lanes of 8 bytes: no conflicts).
constexpr int TILE = 16, DEPTH = 64;

extern "C" __global__ void __launch_bounds__(256)
    gemm_f64(const double* a, const double* b, const double* bias, double* d, double* magnitude, int m, int n, int k) {
    __shared__ double rows[2 * TILE][DEPTH];  // 16 rows of A, then 16 of B
    const int lane = threadIdx.x % LANES, half_warp = threadIdx.x / LANES;
    const int row = half_warp / 4 * 4, col = half_warp % 4 * 4, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    double sum[4][4] = {}, size[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * TILE * DEPTH; i += 256) {
            const int line = i / DEPTH, at = k0 + i % DEPTH, r = line < TILE ? row0 + line : col0 + line - TILE;
            const bool inside = at < k && r < (line < TILE ? m : n);
            rows[line][i % DEPTH] = inside ? (line < TILE ? a : b)[(long long)r * k + at] : 0.0;
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < DEPTH; q += LANES) {
            // Past K nothing is added: not even +0, which would turn a sum of -0.
            if (k0 + q + lane >= k) break;
            double x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = rows[row + i][q + lane], y[i] = rows[TILE + col + i][q + lane];
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) add(sum[i][j], size[i][j], x[i], y[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            for (int width = LANES / 2; width; width /= 2) {
                sum[i][j] = __dadd_rn(sum[i][j], __shfl_down_sync(~0u, sum[i][j], width, LANES));
                size[i][j] = __dadd_rn(size[i][j], __shfl_down_sync(~0u, size[i][j], width, LANES));
            }
            const int r = row0 + row + i, q = col0 + col + j;
            if (lane == 0 && r < m && q < n) {
                const double c = bias ? bias[q] : 0.0;
                d[(long long)r * n + q] = __dadd_rn(sum[i][j], c);
                magnitude[(long long)r * n + q] = __dadd_rn(size[i][j], fabs(c));
            }
        }
}

/// An unevaluated sum of two doubles, the second at most half a spacing of the first.
struct Pair {
    double high, low;
};

/// high + low = a + b exactly.
__device__ __forceinline__ Pair two_sum(double a, double b) {
    const double high = __dadd_rn(a, b), part = __dsub_rn(high, a);
    return {high, __dadd_rn(__dsub_rn(a, __dsub_rn(high, part)), __dsub_rn(b, part))};
}

__device__ __forceinline__ Pair add_pairs(Pair a, Pair b) {
    Pair s = two_sum(a.high, b.high);
    const Pair t = two_sum(a.low, b.low);
    s = two_sum(s.high, __dadd_rn(s.low, t.high));
    return two_sum(s.high, __dadd_rn(s.low, t.low));
}

extern "C" __global__ void __launch_bounds__(256)
    gemm_f64_cancelled(const double* a, const double* b, const double* bias, double* d, const double* magnitude, int m, int n, int k) {
    const int lane = threadIdx.x % 32;
    const long long warps = (long long)gridDim.x * 8;
    for (long long at = (long long)blockIdx.x * 8 + threadIdx.x / 32; at < (long long)m * n; at += warps) {
        const double size = magnitude[at];
        const double error = __dmul_rn(__dmul_rn(__dadd_rn((double)k, 4.0), 1.0 / (1ll << 53)), size);
        if (!(error > __dmul_rn(1.0 / (1ll << 34), fabs(d[at]))) || size - size != 0.0) continue;
        const double *x = a + at / n * k, *y = b + at % n * k;
        Pair sum{0.0, 0.0};
        for (int i = lane; i < k; i += 32) {
            const double p = __dmul_rn(x[i], y[i]);
            sum = add_pairs(sum, {p, __fma_rn(x[i], y[i], -p)});
        }
        for (int width = 16; width; width /= 2) {
            const Pair other{__shfl_down_sync(~0u, sum.high, width), __shfl_down_sync(~0u, sum.low, width)};
            sum = add_pairs(sum, other);
        }
        if (lane == 0) d[at] = add_pairs(sum, {bias ? bias[at % n] : 0.0, 0.0}).high;
    }
}
