// Grouped FP8 GEMM (mixture of experts), row-wise scales, bf16 (or f16, f32) output, by wgmma (sm_90a).
//
// Groups: `offs` (int32[E], in device memory) are cumulative END rows: group g holds tokens offs[g-1] .. offs[g]-1 (offs[-1] = 0).
// It is read on the device only. A non-increasing step is an empty group; offs[E-1] <= Mtot must hold.
//
//   grouped_gemm_rows   (out = A·B_t, and grad_A with dY for A and B for B_t: the same kernel)
//     for token m of group g:  D[m, n] = RNout( RN32( sb[g,n] * RN32( sa[m] * acc ) ) ),  acc = sum over k of A[m,k] * B[g,n,k]
//     A [Mtot, K], B [E, N, K], both K-contiguous; sa [Mtot]; sb [E, N]; D [Mtot, N]. Rows from offs[E-1] on are not written.
//   grouped_gemm_tokens (grad_B: K runs over the group's tokens)
//     D[g, m, n] = RNout( RN32( sb[g,n] * RN32( sa[g,m] * acc ) ) ),  acc = sum over tokens t of group g of A[m,t] * B[n,t]
//     A = dY^T [M, Ttot], B = A^T [N, Ttot], both token-contiguous (the quantizer writes them so, per-group scales along tokens);
//     sa [E, M]; sb [E, N]; D [E, M, N] (M, N: the weight's two dimensions). An empty group writes +0, whatever its scales.
//     Any group boundary is allowed: copies start at the last multiple of 16 before the group's first token (TMA's rule), and the
//     tokens of other groups that fall into the first or last step of 128 are zeroed in shared memory, in both operands. Only the
//     row pitch must be a multiple of 16 bytes.
//   acc: the chain of common/fp8_pipeline.cuh, k counted from 0, or (tokens) from the group's start rounded down to a multiple of
//   16, zeros before the start; PROMOTE as there (PyTorch: 0).
//
// Options: OUT BF16, F16, F32, PROMOTE, A_E5M2, B_E5M2, TILE_N, CLUSTER (common/fp8_pipeline.cuh); SCALES is BY_ROW.
//
// contract grouped_gemm_rows, grouped_gemm_tokens
//   arch   sm_90a (absent elsewhere)
//   block  384
//   smem   232448 dynamic
//   grid   multiprocessors, rounded down to a multiple of CLUSTER ? 2 : 1 (the cluster is compiled in)
//   choose TILE_N 256, CLUSTER 0, band 8; TILE_N 128, CLUSTER 0 where E * ceil(Mtot/E/128) * ceil(N/256) < multiprocessors
//   arg 0  map_a    CUtensorMap by value: UINT8, dims rows: {K, Mtot}, tokens: {Ttot, M}; strides {row pitch in bytes}; box {128, 128},
//                   SWIZZLE_128B, interleave none, L2 promotion 256B, out of bounds zero
//   arg 1  map_b    CUtensorMap by value: the same, dims rows: {K, E*N}, tokens: {Ttot, N}; box {128, CLUSTER ? TILE_N/2 : TILE_N}
//   arg 2  d        void*, packed, aligned to its element; 16-byte stores where d and N*size are multiples of 16
//   arg 3  scale_a  const float*; arg 4 scale_b const float*
//   arg 5  offs     const int*, [E] in device memory
//   arg 6  groups   int, E
//   arg 7  m        int, tokens: M; rows: unused, 0
//   arg 8  n        int
//   arg 9  k        int, rows: K; tokens: unused, 0
//   arg 10 band     int >= 1, as in fp8_gemm.cu
//   refuse E < 1 or > 1024; a base or a pitch that is no multiple of 16 (TMA), so K % 16 (rows) and Ttot's pitch % 16 (tokens); a null
//          scale or offs. Any N and any group boundary is right.
#define SCALES BY_ROW
#include "common/fp8_epilogue.cuh"

static_assert(!FP8_OUT && !BIAS, "OUT is BF16, F16 or F32, and there is no bias");

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "common/fp8_pipeline.cuh"

constexpr int MAX_GROUPS = 1024;
constexpr int CLUSTER_M = BLOCKS * TILE_M;
static_assert(MAX_GROUPS * 4 <= SCHEDULE_BYTES, "the cumulative tile counts must fit");

/// Tiles of groups of rows: the cumulative count of tiles is computed by every block from `offs`, then searched.
struct Rows {
    static constexpr bool RAGGED_K = false;
    const int* offs;
    int groups, n, k, band;
    const int* ends;  // shared: tiles of groups 0..g

    __device__ __forceinline__ void prepare(u8* shared) {
        int* out = (int*)shared;
        ends = out;
        if (threadIdx.x >= 32) return;
        int total = 0;
        for (int g0 = 0; g0 < groups; g0 += 32) {
            const int g = g0 + threadIdx.x;
            int tiles = 0;
            if (g < groups) tiles = ceil_div(max(offs[g] - (g ? offs[g - 1] : 0), 0), CLUSTER_M) * ceil_div(n, TILE_N);
            for (int step = 1; step < 32; step *= 2) {
                const int before = __shfl_up_sync(~0u, tiles, step);
                if (threadIdx.x >= step) tiles += before;
            }
            if (g < groups) out[g] = total + tiles;
            total += __shfl_sync(~0u, tiles, 31);
        }
    }

    __device__ __forceinline__ bool get(int i, int rank, Work& w) const {
        if (i >= ends[groups - 1]) return false;
        int low = 0, high = groups - 1;  // the first group whose end lies past i
        while (low < high) {
            const int middle = (low + high) / 2;
            if (ends[middle] > i) high = middle;
            else low = middle + 1;
        }
        const int begin = low ? __ldg(offs + low - 1) : 0, end = __ldg(offs + low);
        int tm, tn;
        banded(i - (low ? ends[low - 1] : 0), ceil_div(end - begin, CLUSTER_M), ceil_div(n, TILE_N), band, tm, tn);
        if (CLUSTER) tm = 2 * tm + rank;
        w.a_row = w.sa0 = begin + tm * TILE_M;
        w.b_row = w.sb0 = low * n + tn * TILE_N;
        w.k0 = 0;
        w.k1 = k;
        w.head = 0;
        w.rows = end - w.a_row;
        w.cols = n - tn * TILE_N;
        w.d0 = (long long)w.a_row * n + tn * TILE_N;
        return true;
    }
};

/// Tiles of groups of K: every group has the same tiles.
struct Tokens {
    static constexpr bool RAGGED_K = true;
    const int* offs;
    int groups, m, n, band;

    __device__ __forceinline__ void prepare(u8*) {}
    __device__ __forceinline__ bool get(int i, int rank, Work& w) const {
        const int mt = ceil_div(m, CLUSTER_M), nt = ceil_div(n, TILE_N), g = i / (mt * nt);
        if (g >= groups) return false;
        int tm, tn;
        banded(i - g * mt * nt, mt, nt, band, tm, tn);
        if (CLUSTER) tm = 2 * tm + rank;
        w.a_row = tm * TILE_M;
        w.b_row = tn * TILE_N;
        w.sa0 = g * m + w.a_row;
        w.sb0 = g * n + w.b_row;
        const int begin = g ? __ldg(offs + g - 1) : 0, end = __ldg(offs + g);
        w.head = begin % 16;
        w.k0 = begin - w.head;
        w.k1 = begin < end ? end : w.k0;
        w.rows = m - w.a_row;
        w.cols = n - w.b_row;
        w.d0 = ((long long)g * m + w.a_row) * n + w.b_row;
        return true;
    }
};

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(384, 1)
    grouped_gemm_rows(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, void* d, const float* scale_a,
                      const float* scale_b, const int* offs, int groups, int, int n, int k, int band) {
    fp8_gemm_body(map_a, map_b, Epilogue{d, scale_a, scale_b, 0, 0, 0, 0, n, 0, 0, 0}, Rows{offs, groups, n, k, band, 0});
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(384, 1)
    grouped_gemm_tokens(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, void* d, const float* scale_a,
                        const float* scale_b, const int* offs, int groups, int m, int n, int, int band) {
    fp8_gemm_body(map_a, map_b, Epilogue{d, scale_a, scale_b, 0, 0, 0, 0, n, 0, 0, 0}, Tokens{offs, groups, m, n, band});
}
#endif
