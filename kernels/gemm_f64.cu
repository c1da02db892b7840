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
//   Elements whose plain sum's rounding could show in an f32 of the result, (K + 4)*2^-53*magnitude > 2^-34*|d|, again: the sum with what
//   every product (fma) and every addition (Knuth) lost, in ascending k (Dot2 of Ogita, Rump, Oishi). What was lost is at most
//   (K + 8)*2^-53*magnitude in all, and its own sum is off by at most (2K + 100)*2^-52 of that: where this could change the nearest double,
//   the element is added once more in pairs of doubles (Dekker), off by less than K*2^-104*magnitude. So d is the rounded exact sum as the
//   CPU's is, but where that lies so near to the middle of two doubles.
//   block  256
//   grid   {ceil(N/64), ceil(M/64)}
//   args   as gemm_f64
#include "common/gemm_types.cuh"
#include "common/pairs.cuh"

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

/// Rows of A and of B of a block of gemm_f64_cancelled, outputs of a thread along each side, k of a stage.
constexpr int WIDE = 64, EACH = 4, SHALLOW = 16;

/// Rounded once, of pairs.
__device__ __noinline__ double in_pairs(const double* x, const double* y, int k, double bias) {
    Pair sum{0.0, 0.0};
    for (int i = 0; i < k; i++) {
        const double p = __dmul_rn(x[i], y[i]);
        sum = add_pairs(sum, {p, __fma_rn(x[i], y[i], -p)});
    }
    return add_pairs(sum, {bias, 0.0}).high;
}

extern "C" __global__ void __launch_bounds__(256)
    gemm_f64_cancelled(const double* a, const double* b, const double* bias, double* d, const double* magnitude, int m, int n, int k) {
    // k outermost: neighbours in a warp read neighbouring columns.
    __shared__ double x[SHALLOW][WIDE + 1], y[SHALLOW][WIDE + 1];
    const int row0 = blockIdx.y * WIDE, col0 = blockIdx.x * WIDE, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    // Output (i, j) of a thread is row ty + 16 i, column tx + 16 j.
    bool wanted[EACH][EACH], any = false;
    const double errors = __dmul_rn(__dadd_rn((double)k, 4.0), 1.0 / (1ll << 53));
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int r = row0 + ty + 16 * i, q = col0 + tx + 16 * j;
            wanted[i][j] = false;
            if (r < m && q < n) {
                const double size = magnitude[(long long)r * n + q];
                wanted[i][j] = __dmul_rn(errors, size) > __dmul_rn(1.0 / (1ll << 34), fabs(d[(long long)r * n + q])) && size - size == 0.0;
            }
            any |= wanted[i][j];
        }
    if (!__syncthreads_or(any)) return;
    double sum[EACH][EACH] = {}, lost[EACH][EACH] = {};
    for (int k0 = 0; k0 < k; k0 += SHALLOW) {
        __syncthreads();
        for (int i = threadIdx.x; i < WIDE * SHALLOW; i += 256) {
            const int line = i / SHALLOW, at = i % SHALLOW;
            const bool inside = k0 + at < k;
            x[at][line] = inside && row0 + line < m ? a[(long long)(row0 + line) * k + k0 + at] : 0.0;
            y[at][line] = inside && col0 + line < n ? b[(long long)(col0 + line) * k + k0 + at] : 0.0;
        }
        __syncthreads();
#pragma unroll
        for (int at = 0; at < SHALLOW; at++) {
            double u[EACH], v[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) u[i] = x[at][ty + 16 * i], v[i] = y[at][tx + 16 * i];
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    const double p = __dmul_rn(u[i], v[j]), of_product = __fma_rn(u[i], v[j], -p);
                    const Pair s = two_sum(sum[i][j], p);
                    sum[i][j] = s.high;
                    lost[i][j] = __dadd_rn(lost[i][j], __dadd_rn(of_product, s.low));
                }
        }
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const int r = row0 + ty + 16 * i, q = col0 + tx + 16 * j;
            if (!wanted[i][j]) continue;
            const long long at = (long long)r * n + q;
            const double c = bias ? bias[q] : 0.0;
            const Pair with = two_sum(sum[i][j], c);
            const Pair whole = two_sum(with.high, __dadd_rn(lost[i][j], with.low));
            const double all = (double)k + 8.0, reach = (2.0 * k + 100.0) / (1ll << 52) * (all / (1ll << 53) * magnitude[at]);
            const bool certain = __dadd_rn(whole.high, __dadd_rn(whole.low, reach)) == whole.high &&
                                 __dadd_rn(whole.high, __dadd_rn(whole.low, -reach)) == whole.high;
            d[at] = certain ? whole.high : in_pairs(a + (long long)r * k, b + (long long)q * k, k, c);
        }
}
