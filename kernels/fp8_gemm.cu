// FP8 GEMM by wgmma (sm_90a): D[M,N] = epilogue( A[M,K] · B[N,K]^T ), e4m3 or e5m2 codes, f32 accumulation on the tensor cores.
//
// What is computed, to the bit: common/fp8_epilogue.cuh (scales, bias, rounding, FP8 output with amax and scale_inv) over
// common/fp8_pipeline.cuh (accumulation), with their -D options.
//
// contract fp8_gemm
//   arch   sm_90a (absent elsewhere)
//   block  384
//   smem   232448 dynamic
//   grid   min(P, BLOCKS * tiles), P = multiprocessors rounded down to a multiple of BLOCKS = CLUSTER ? 2 : 1 (the cluster is compiled in);
//          tiles = CLUSTER 0: ceil(M/128) * ceil(N/TILE_N), 1: ceil(M/256) * ceil(N/TILE_N)
//   choose TILE_N 256, CLUSTER 1, band 16; TILE_N 128, CLUSTER 0 where ceil(M/128) * ceil(N/256) < multiprocessors
//   arg 0  map_a        CUtensorMap by value: UINT8, dims {K, M}, strides {lda}, box {128, 128}, SWIZZLE_128B,
//                       interleave none, L2 promotion 256B, out of bounds zero
//   arg 1  map_b        CUtensorMap by value: the same, dims {K, N}, strides {ldb}, box {128, CLUSTER ? TILE_N/2 : TILE_N}
//   arg 2  d            void*, [M, ldd] row-major, aligned to its element; 16-byte stores where d and ldd*size are multiples of 16
//   arg 3  scale_a      const float*: scale_inv of A, layout in common/fp8_epilogue.cuh
//   arg 4  scale_b      const float*: scale_inv of B
//   arg 5  bias         const float*, [N]; null with BIAS 0
//   arg 6  scale_d      const float*, [1], FP8 output, else null
//   arg 7  amax_d       float*, [1], FP8 output, else null; the host sets 0 (or the running amax) before
//   arg 8  scale_inv_d  float*, [1], FP8 output, else null; written
//   arg 9  m int; arg 10 n int; arg 11 k int; arg 12 ldd int (elements)
//   arg 13 sa_k int; arg 14 sb_row int; arg 15 sb_k int: element strides of block scales, else 0. cuBLAS's layouts: 1x128: sa_k =
//          round_up(M, 4), sb_k = round_up(N, 4); 128x128: sb_row = round_up(ceil(K/128), 4), sb_k = 1
//   arg 16 band         int >= 1: rows of tiles (of a cluster) walked together, so that both operands' slices stay in L2
//   refuse M, N or K < 1 or > 2^31 - 512; a base of A or B, lda or ldb that is no multiple of 16 (TMA), so K % 16 when packed; ldd < N;
//          a null scale; 1x128 scales with a base that is no multiple of 16 bytes or a stride that is < M (N) or no multiple of 4
#include "common/fp8_epilogue.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "common/fp8_pipeline.cuh"

/// All tiles of one product.
struct Dense {
    static constexpr bool RAGGED_K = false;
    int m, n, k, ldd, band;

    __device__ __forceinline__ void prepare(u8*) {}
    __device__ __forceinline__ bool get(int i, int rank, Work& w) const {
        const int mt = ceil_div(m, BLOCKS * TILE_M), nt = ceil_div(n, TILE_N);
        if (i >= mt * nt) return false;
        int tm, tn;
        banded(i, mt, nt, band, tm, tn);
        if (CLUSTER) tm = 2 * tm + rank;
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
             const float* scale_b, const float* bias, const float* scale_d, float* amax_d, float* scale_inv_d, int m, int n, int k, int ldd,
             int sa_k, int sb_row, int sb_k, int band) {
    const Epilogue e{d, scale_a, scale_b, bias, scale_d, amax_d, scale_inv_d, ldd, sa_k, sb_row, sb_k};
    fp8_gemm_body(map_a, map_b, e, Dense{m, n, k, ldd, band});
}
#endif
