// The f64 reference of a large product, d = A·B^T + bias and sum |a||b| + |bias|, from operands as they lie on the device: f32 values, or FP8
// or integer codes with a scale, or a zero point and a scale, a tile. The bits of the CPU's `op::gemm` and of `gemm_f64.cu`, which says what those are.
//
// The plain sums: lane l of 16 holds the products of k = l mod 16 in ascending k, no fma; the lanes are added in pairs. Here the lanes are
// products of their own, one after the other, so that what a thread reads is used eight and four times. They come in the order of the
// reversed bits of l (0, 8, 4, 12, …): then the sums that are still to be added to others are a stack of four. A zero more at the end of a
// lane changes no bit: a sum that begins with +0 is never -0.
//
// Where the terms cancel, the exact sum: every factor is an integer times 2^low, cut into parts of WIDTH bits. Sums of products of two parts
// are integers below 2^53, so the tensor cores' f64 adds them without a rounding; what they give is added in pairs of doubles. Scales meet these
// sums, so there is one of each pair of parts and each run of K inside which no scale changes.
//
// contract reference_width: block 256, any grid; args values const float*; count u64; found int[3]: the largest exponent, minus the lowest
//          exponent of a bit that is set (both from -100000 before), whether a value is not finite (0 before).
// Factors: values const float* or null; codes const u8* or null, `pitch` a row; table const double[256]; unit const double* [tiles] or null; minus const
//          double* [tiles] or null: what is taken from a code before its unit;
//          rows, k int, from first_row and first_k on; pitch, tile_rows, tile_cols, grid_cols int: the tiles of units, from row 0 and k 0 on
// contract reference_lanes: block 256; grid {ceil(K/128), padded/32}; args of Factors; lanes double[16, depth, padded]; padded, depth int
// contract reference_digits: block 256; grid {padded, ceil(pitch/256)}; args of Factors, without their units; digits double[padded, pitch];
//          pitch, low, shift, width int: the bits shift.. of value/2^low, with its sign
// contract reference_sums: block 256; smem SUMS_SHARED; grid {padded_b/64, padded_a/128}; args lanes of a, of b; bias const double* or null;
//          d, magnitude double[M, N]; m, n, depth (a multiple of 8), padded_a (of 128), padded_b (of 128) int
// contract reference_exact: block 256; smem EXACT_SHARED; grid {ceil(N/128), ceil(M/128)}; args Factors of a, of b, whose units do not change in the run;
//          digits of a, of b, padded to 128 rows; high, low double[M, N]; pitch, begin, length (multiples of 8: the run of K), exponent int;
//          first int: 1 nothing is there yet
// contract reference_mend: block 256, any grid; args high, low, magnitude double[M, N]; bias double[N] or null; d double[M, N]; m, n, k int
#include "common/gemm_types.cuh"
#include "common/pairs.cuh"

constexpr int LANES = 16;

__device__ __forceinline__ int exponent_of(float x) { return (int)(__float_as_uint(x) >> 23 & 0xff) - 127; }

extern "C" __global__ void reference_width(const float* values, u64 count, int* found) {
    int top = -100000, low = -100000, special = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        const u32 bits = __float_as_uint(values[i]), fraction = bits & 0x7fffff, field = bits >> 23 & 0xff;
        if (field == 255) special = 1;
        if (field == 0 && fraction == 0) continue;
        const u32 significand = field ? fraction | 0x800000 : fraction;
        const int unit = (field ? (int)field : 1) - 150;
        top = max(top, unit + 31 - __clz(significand));
        low = max(low, -(unit + __ffs(significand) - 1));
    }
    top = __reduce_max_sync(~0u, top);
    low = __reduce_max_sync(~0u, low);
    special = __reduce_max_sync(~0u, special);
    if (threadIdx.x % 32 == 0) {
        atomicMax(found, top);
        atomicMax(found + 1, low);
        if (special) atomicMax(found + 2, 1);
    }
}

/// One side of the product.
struct Factors {
    const float* values;
    const u8* codes;
    const double* table;
    const double* unit;
    const double* minus;
    int rows;
    int k;
    int first_row;
    int first_k;
    int pitch;
    int tile_rows;
    int tile_cols;
    int grid_cols;

    /// Without its unit.
    __device__ __forceinline__ double at(int row, int at_k) const {
        const u64 place = (u64)(first_row + row) * pitch + first_k + at_k;
        const double x = values ? (double)values[place] : table[codes[place]];
        return minus ? __dsub_rn(x, minus[tile_of(row, at_k)]) : x;
    }
    __device__ __forceinline__ int tile_of(int row, int at_k) const {
        return (first_row + row) / tile_rows * grid_cols + (first_k + at_k) / tile_cols;
    }
    __device__ __forceinline__ double unit_at(int row, int at_k) const { return unit ? unit[tile_of(row, at_k)] : 1.0; }
};

/// How many k lie in the lane at a place of the order of reversed bits, and which lane it is.
__device__ __forceinline__ int reversed(int place) { return (int)(__brev((u32)place) >> 28); }

extern "C" __global__ void __launch_bounds__(256)
    reference_lanes(const Factors of, double* lanes, int padded, int depth) {
    __shared__ double tile[32][129];
    const int k0 = blockIdx.x * 128, row0 = blockIdx.y * 32;
    for (int i = threadIdx.x; i < 32 * 128; i += 256) {
        const int row = row0 + i / 128, at = k0 + i % 128;
        double x = 0.0;
        if (row < of.rows && at < of.k) {
            x = of.at(row, at);
            if (of.unit) x = __dmul_rn(x, of.unit_at(row, at));
        }
        tile[i / 128][i % 128] = x;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * 128; i += 256) {
        const int at = k0 + i / 32, j = at / LANES;
        if (j < depth) lanes[((u64)reversed(at % LANES) * depth + j) * padded + row0 + i % 32] = tile[i % 32][i / 32];
    }
}

extern "C" __global__ void __launch_bounds__(256)
    reference_digits(const Factors of, double* digits, int pitch, int low, int shift, int width) {
    const int at = blockIdx.y * 256 + threadIdx.x, row = blockIdx.x;
    if (at >= pitch) return;
    double digit = 0.0;
    if (row < of.rows && at < of.k) {
        const double x = of.at(row, at);
        const long long whole = (long long)__dmul_rn(fabs(x), __longlong_as_double((long long)(1023 - low) << 52));
        digit = (double)(whole >> shift & ((1ll << width) - 1));
        if (x < 0.0) digit = -digit;
    }
    digits[(u64)row * pitch + at] = digit;
}

__device__ __forceinline__ void copy16(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void arrived() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/// Rows of A and of B of a block, outputs of a thread, k of a stage.
constexpr int SUMS_M = 128, SUMS_N = 64, EACH_M = 8, EACH_N = 4, SUMS_DEPTH = 8, SUMS_STAGES = 4;

extern "C" __global__ void __launch_bounds__(256, 1)
    reference_sums(const double* a, const double* b, const double* bias, double* d, double* magnitude, int m, int n, int depth, int padded_a,
                   int padded_b) {
    extern __shared__ __align__(16) double shared[];
    constexpr int STAGE = SUMS_DEPTH * (SUMS_M + SUMS_N);
    const int row0 = blockIdx.y * SUMS_M, col0 = blockIdx.x * SUMS_N, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const int stages = LANES * depth / SUMS_DEPTH, of_lane = depth / SUMS_DEPTH;
    const auto load = [&](int stage) {
        if (stage < stages) {
            double* to = shared + stage % SUMS_STAGES * STAGE;
            for (int i = threadIdx.x; i < SUMS_DEPTH * SUMS_M / 2; i += 256) {
                const int line = i / (SUMS_M / 2), at = i % (SUMS_M / 2) * 2;
                copy16(smem_address(to + line * SUMS_M + at), a + (u64)(stage * SUMS_DEPTH + line) * padded_a + row0 + at);
            }
            to += SUMS_DEPTH * SUMS_M;
            for (int i = threadIdx.x; i < SUMS_DEPTH * SUMS_N / 2; i += 256) {
                const int line = i / (SUMS_N / 2), at = i % (SUMS_N / 2) * 2;
                copy16(smem_address(to + line * SUMS_N + at), b + (u64)(stage * SUMS_DEPTH + line) * padded_b + col0 + at);
            }
        }
        commit();
    };
    double sum[EACH_M][EACH_N] = {}, size[EACH_M][EACH_N] = {};
    // What waits for the lanes that follow.
    double stack[4][2 * EACH_M * EACH_N];
    for (int i = 0; i < SUMS_STAGES - 1; i++) load(i);
    for (int stage = 0, lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < of_lane; i++, stage++) {
            arrived<SUMS_STAGES - 2>();
            __syncthreads();
            load(stage + SUMS_STAGES - 1);
            const double* x = shared + stage % SUMS_STAGES * STAGE;
            const double* y = x + SUMS_DEPTH * SUMS_M;
#pragma unroll 2
            for (int line = 0; line < SUMS_DEPTH; line++) {
                double u[EACH_M], v[EACH_N];
#pragma unroll
                for (int r = 0; r < EACH_M; r += 2) {
                    const double2 two = *(const double2*)(x + line * SUMS_M + ty * EACH_M + r);
                    u[r] = two.x, u[r + 1] = two.y;
                }
#pragma unroll
                for (int c = 0; c < EACH_N; c += 2) {
                    const double2 two = *(const double2*)(y + line * SUMS_N + c / 2 * 32 + tx * 2);
                    v[c] = two.x, v[c + 1] = two.y;
                }
#pragma unroll
                for (int r = 0; r < EACH_M; r++)
#pragma unroll
                    for (int c = 0; c < EACH_N; c++) {
                        const double p = __dmul_rn(u[r], v[c]);
                        sum[r][c] = __dadd_rn(sum[r][c], p);
                        size[r][c] = __dadd_rn(size[r][c], fabs(p));
                    }
            }
        }
        int level = 0;
        for (int left = lane; left & 1; left >>= 1, level++)
#pragma unroll
            for (int r = 0; r < EACH_M; r++)
#pragma unroll
                for (int c = 0; c < EACH_N; c++) {
                    sum[r][c] = __dadd_rn(stack[level][r * EACH_N + c], sum[r][c]);
                    size[r][c] = __dadd_rn(stack[level][(EACH_M + r) * EACH_N + c], size[r][c]);
                }
        if (lane + 1 == LANES) break;
#pragma unroll
        for (int r = 0; r < EACH_M; r++)
#pragma unroll
            for (int c = 0; c < EACH_N; c++) {
                stack[level][r * EACH_N + c] = sum[r][c];
                stack[level][(EACH_M + r) * EACH_N + c] = size[r][c];
                sum[r][c] = size[r][c] = 0.0;
            }
    }
#pragma unroll
    for (int r = 0; r < EACH_M; r++)
#pragma unroll
        for (int c = 0; c < EACH_N; c++) {
            const int row = row0 + ty * EACH_M + r, col = col0 + c / 2 * 32 + tx * 2 + c % 2;
            if (row >= m || col >= n) continue;
            const double with = bias ? bias[col] : 0.0;
            d[(u64)row * n + col] = __dadd_rn(sum[r][c], with);
            magnitude[(u64)row * n + col] = __dadd_rn(size[r][c], fabs(with));
        }
}

/// c += a (16 rows, 8 k) · b (8 k, 8 columns): row lane/4 (+8), k lane%4 (+4), column lane/4; of c columns lane%4*2 and the next.
__device__ __forceinline__ void multiply(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+d"(c[i % 2 * 2]), "+d"(c[i % 2 * 2 + 1])
                     : "d"(a[i]), "d"(b[i / 2]));
#endif
}

/// Rows of each side of a block; k of a stage; the pitch of a row in shared memory: eight lanes of 8 bytes fall into as many banks.
constexpr int EXACT_TILE = 128, EXACT_DEPTH = 8, EXACT_PITCH = 12, EXACT_STAGES = 4;

extern "C" __global__ void __launch_bounds__(256, 1)
    reference_exact(const Factors of_a, const Factors of_b, const double* a, const double* b, double* high, double* low, int pitch, int begin,
                    int length, int exponent, int first) {
    extern __shared__ __align__(16) double shared[];
    constexpr int STAGE = 2 * EXACT_TILE * EXACT_PITCH;
    const int row0 = blockIdx.y * EXACT_TILE, col0 = blockIdx.x * EXACT_TILE, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * 64, warp_col = warp % 4 * 32, stages = length / EXACT_DEPTH, m = of_a.rows, n = of_b.rows;
    const auto load = [&](int stage) {
        if (stage < stages) {
            double* to = shared + stage % EXACT_STAGES * STAGE;
#pragma unroll
            for (int i = threadIdx.x; i < 2 * EXACT_TILE * 4; i += 256) {
                const int line = i / 4, at = i % 4 * 2;
                const double* from = line < EXACT_TILE ? a + (u64)(row0 + line) * pitch : b + (u64)(col0 + line - EXACT_TILE) * pitch;
                copy16(smem_address(to + line * EXACT_PITCH + at), from + begin + stage * EXACT_DEPTH + at);
            }
        }
        commit();
    };
    double c[4][4][4] = {};
    for (int i = 0; i < EXACT_STAGES - 1; i++) load(i);
    for (int stage = 0; stage < stages; stage++) {
        arrived<EXACT_STAGES - 2>();
        __syncthreads();
        load(stage + EXACT_STAGES - 1);
        const double* x = shared + stage % EXACT_STAGES * STAGE + (warp_row + lane / 4) * EXACT_PITCH + lane % 4;
        const double* y = shared + stage % EXACT_STAGES * STAGE + (EXACT_TILE + warp_col + lane / 4) * EXACT_PITCH + lane % 4;
        double u[4][4], v[4][2];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int q = 0; q < 4; q++) u[i][q] = x[(i * 16 + q % 2 * 8) * EXACT_PITCH + q / 2 * 4];
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int q = 0; q < 2; q++) v[j][q] = y[j * 8 * EXACT_PITCH + q * 4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) multiply(c[i][j], u[i], v[j]);
    }
    const double unit = __longlong_as_double((long long)(1023 + exponent) << 52);
    const int first_row = row0 + warp_row + lane / 4, first_col = col0 + warp_col + lane % 4 * 2;
    double unit_b[4][2];
#pragma unroll
    for (int j = 0; j < 8; j++) unit_b[j / 2][j % 2] = of_b.unit_at(min(first_col + j / 2 * 8 + j % 2, n - 1), begin);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int row = first_row + i / 2 * 16 + i % 2 * 8;
        if (row >= m) break;
        const double unit_a = __dmul_rn(of_a.unit_at(row, begin), unit);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int col = first_col + j / 2 * 8 + j % 2;
            if (col >= n) continue;
            const u64 at = (u64)row * n + col;
            // Two scales of f32 and a power of two: their product is a double.
            const double here = c[i / 2][j / 2][i % 2 * 2 + j % 2], s = __dmul_rn(unit_a, unit_b[j / 2][j % 2]), p = __dmul_rn(here, s);
            const Pair scaled{p, __fma_rn(here, s, -p)}, sum = first ? scaled : add_pairs({high[at], low[at]}, scaled);
            high[at] = sum.high;
            low[at] = sum.low;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    reference_mend(const double* high, const double* low, const double* magnitude, const double* bias, double* d, int m, int n, int k) {
    const double errors = __dmul_rn(__dadd_rn((double)k, 4.0), 1.0 / (1ll << 53));
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < (u64)m * n; at += (u64)gridDim.x * blockDim.x) {
        if (!(__dmul_rn(errors, magnitude[at]) > __dmul_rn(1.0 / (1ll << 34), fabs(d[at])))) continue;
        Pair sum{high[at], low[at]};
        if (bias) sum = add_pairs(sum, {bias[at % n], 0.0});
        d[at] = sum.high;
    }
}
