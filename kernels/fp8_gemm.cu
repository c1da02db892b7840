// FP8 GEMM by wgmma (sm_90a): D[M,N] = epilogue( A[M,K] · B[N,K]^T ), e4m3 or e5m2 codes, f32 accumulation on the tensor cores.
//
// What is computed, to the bit: common/fp8_epilogue.cuh (scales, bias, rounding, FP8 output with amax and scale_inv) over
// common/fp8_pipeline.cuh (accumulation), with their -D options. `fp8_gemm_naive` is the definition: integer arithmetic only,
// no tensor core; fp8_gemm must equal it on every bit (NaN outputs: as a class where the output is f16 or bf16).
//
// contract fp8_gemm
//   arch   sm_90a (absent elsewhere)
//   block  384
//   smem   232448 dynamic
//   grid   min(P, BLOCKS * tiles), P = multiprocessors rounded down to a multiple of BLOCKS = CLUSTER ? 2 : 1 (the cluster is compiled in);
//          tiles = CLUSTER 0: ceil(M/128) * ceil(N/TILE_N), 1: ceil(M/256) * ceil(N/TILE_N), 2: ceil(M/128) * ceil(N/(2*TILE_N))
//   choose TILE_N 256, CLUSTER 1, band 16; TILE_N 128, CLUSTER 0 where ceil(M/128) * ceil(N/256) < multiprocessors
//   arg 0  map_a        CUtensorMap by value: UINT8, dims {K, M}, strides {lda}, box {128, CLUSTER == 2 ? 64 : 128}, SWIZZLE_128B,
//                       interleave none, L2 promotion 256B, out of bounds zero
//   arg 1  map_b        CUtensorMap by value: the same, dims {K, N}, strides {ldb}, box {128, CLUSTER == 1 ? TILE_N/2 : TILE_N}
//   arg 2  d            void*, [M, ldd] row-major, aligned to its element; 16-byte stores where d and ldd*size are multiples of 16
//   arg 3  scale_a      const float*: scale_inv of A, layout in common/fp8_epilogue.cuh
//   arg 4  scale_b      const float*: scale_inv of B
//   arg 5  bias         const void*, [N] bf16 or f32; null with BIAS 0
//   arg 6  scale_d      const float*, [1], FP8 output, else null
//   arg 7  amax_d       float*, [1], FP8 output, else null; the host sets 0 (or the running amax) before
//   arg 8  scale_inv_d  float*, [1], FP8 output, else null; written
//   arg 9  m int; arg 10 n int; arg 11 k int; arg 12 ldd int (elements)
//   arg 13 sa_k int; arg 14 sb_row int; arg 15 sb_k int: element strides of block scales, else 0. cuBLAS's layouts: 1x128: sa_k =
//          round_up(M, 4), sb_k = round_up(N, 4); 128x128: sb_row = round_up(ceil(K/128), 4), sb_k = 1
//   arg 16 band         int >= 1: rows of tiles (of a cluster) walked together, so that both operands' slices stay in L2
//   refuse M, N or K < 1 or > 2^31 - 512; a base of A or B, lda or ldb that is no multiple of 16 (TMA), so K % 16 when packed; ldd < N;
//          a null scale; 1x128 scales with a base that is no multiple of 16 bytes or a stride that is < M (N) or no multiple of 4
//
// contract fp8_gemm_naive
//   arch   any
//   block  {32, 8}
//   smem   0
//   grid   {ceil(N/32), ceil(M/8)}
//   args   a u8* [M, lda], b u8* [N, ldb], d, scale_a, scale_b, bias, scale_d, amax_d, scale_inv_d, m, n, k, lda, ldb, ldd, sa_k, sb_row,
//          sb_k: as above, pitches in bytes. -DMMA_SYNC=1: the accumulation of fp8_gemm_mma.cu on sm_90 instead.
#include "common/fp8_epilogue.cuh"
#include "common/fp8_model.cuh"

#ifndef MMA_SYNC
#define MMA_SYNC 0
#endif
#ifndef A_E5M2
#define A_E5M2 0
#endif
#ifndef B_E5M2
#define B_E5M2 0
#endif

extern "C" __global__ void fp8_gemm_naive(const u8* a, const u8* b, void* d, const float* scale_a, const float* scale_b, const void* bias,
                                          const float* scale_d, float* amax_d, float* scale_inv_d, int m, int n, int k, int lda, int ldb,
                                          int ldd, int sa_k, int sb_row, int sb_k) {
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    const Epilogue e{d, scale_a, scale_b, bias, scale_d, amax_d, scale_inv_d, ldd, sa_k, sb_row, sb_k};
    if (FP8_OUT && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && threadIdx.y == 0) *scale_inv_d = 1.0f / *scale_d;
    if (row >= m || col >= n) return;

    float sum = 0.0f, chain = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 32) {
        u8 x[32], y[32];
        for (int i = 0; i < 32; i++) {
            x[i] = k0 + i < k ? a[(long long)row * lda + k0 + i] : 0;
            y[i] = k0 + i < k ? b[(long long)col * ldb + k0 + i] : 0;
        }
        chain = fp8_instruction(x, y, chain, A_E5M2, B_E5M2, MMA_SYNC);
        if (PROMOTED && ((k0 + 32) % 128 == 0 || k0 + 32 >= k)) {
            const int block = k0 / 128;
            if (BLOCK_SCALED) {
                const float sa = scale_a[(long long)block * sa_k + row];
                const float sb = scale_b[(long long)block * sb_k + (SCALE == 2 ? (long long)(col / 128) * sb_row : col)];
                if (ORDER == 0) sum = __fmaf_rn(__fmul_rn(chain, sa), sb, sum);
                else sum = __fmaf_rn(__fmul_rn(sa, sb), chain, sum);
            } else {
                sum = __fadd_rn(sum, chain);
            }
            chain = 0.0f;
        }
    }
    float v = PROMOTED ? sum : chain;
    if (SCALE == 0) v = __fmul_rn(v, __fmul_rn(scale_a[0], scale_b[0]));
    if (SCALE == 1 && ORDER == 0) v = __fmul_rn(scale_b[col], __fmul_rn(scale_a[row], v));
    if (SCALE == 1 && ORDER == 1) v = __fmul_rn(scale_a[row], __fmul_rn(scale_b[col], v));
    if (BIAS) v = __fadd_rn(v, bias_at(e, col));
    if (FP8_OUT && v == v) atomicMax((int*)amax_d, __float_as_int(fabsf(v)));
    store_one(e, (long long)row * ldd + col, v, FP8_OUT ? *scale_d : 0.0f);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "common/fp8_pipeline.cuh"

/// All tiles of one product.
struct Dense {
    static constexpr bool RAGGED_K = false;
    int m, n, k, ldd, band;

    __device__ __forceinline__ void prepare(u8*) {}
    __device__ __forceinline__ bool get(int i, int rank, Work& w) const {
        const int mt = ceil_div(m, CLUSTER == 1 ? 2 * TILE_M : TILE_M), nt = ceil_div(n, CLUSTER == 2 ? 2 * TILE_N : TILE_N);
        if (i >= mt * nt) return false;
        int tm, tn;
        banded(i, mt, nt, band, tm, tn);
        if (CLUSTER == 1) tm = 2 * tm + rank;
        if (CLUSTER == 2) tn = 2 * tn + rank;
        w.a_row = w.sa0 = tm * TILE_M;
        w.b_row = w.sb0 = tn * TILE_N;
        w.k0 = 0;
        w.k1 = k;
        w.head = 0;
        w.rows = m - w.a_row;
        w.cols = n - w.b_row;
        w.d0 = (long long)w.a_row * ldd + w.b_row;
        return true;
    }
};

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(384, 1)
    fp8_gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, void* d, const float* scale_a,
             const float* scale_b, const void* bias, const float* scale_d, float* amax_d, float* scale_inv_d, int m, int n, int k, int ldd,
             int sa_k, int sb_row, int sb_k, int band) {
    const Epilogue e{d, scale_a, scale_b, bias, scale_d, amax_d, scale_inv_d, ldd, sa_k, sb_row, sb_k};
    fp8_gemm_body(map_a, map_b, e, Dense{m, n, k, ldd, band});
}
#endif
