// FP8 GEMM by mma.sync m16n8k32 (sm_89 and later): D[M,N] = epilogue( A[M,K] · B[N,K]^T ), e4m3 or e5m2 codes, f32 accumulators.
//
// Options and epilogue: common/fp8_epilogue.cuh. The accumulation depends on the architecture (docs/tensor-cores.md):
//   sm_89, sm_120  native QMMA: per 32 of K two steps c = T(16, 13, 13 RZ)(c, 16 products), k ascending (sm_120: T(32, 25, 23 RZ))
//   sm_90, sm_100  no FP8 instruction: ptxas unpacks to f16 and, per 32 of K, computes t = T(16, 25, 23 RZ)(0, products with
//                  k mod 4 in {0, 1}), t' = T(16, 25, 23 RZ)(t, products with k mod 4 in {2, 3}), c = RN32(c + t'). Nearly f32
//                  accuracy at less than half of wgmma's rate: use fp8_gemm.cu for speed there.
// One chain over K from +0; with PROMOTE (or block scales) one chain per 128 of K, added as in `promoted`.
//
// contract fp8_gemm_mma
//   arch   sm_89 and later
//   block  256
//   smem   98304 dynamic
//   grid   ceil(M/128) * ceil(N/128)
//   args   a u8* [M, lda], b u8* [N, ldb], d, scale_a, scale_b, bias, scale_d, amax_d, scale_inv_d, m, n, k, lda, ldb, ldd, sa_k, sb_row,
//          sb_k, band (int): as in fp8_gemm.cu, pitches of A and B in bytes
//   refuse M, N or K < 1; K, lda, ldb or a base of A or B that is no multiple of 16; d not aligned to two elements; ldd < N; a null scale
#include "common/fp8_epilogue.cuh"

#if A_E5M2
#define MMA_A "e5m2"
#else
#define MMA_A "e4m3"
#endif
#if B_E5M2
#define MMA_B "e5m2"
#else
#define MMA_B "e4m3"
#endif

constexpr int TILE = 128, STEP = 128, STAGES = 3;  // outputs a side, codes of K a step
constexpr u32 OPERAND_BYTES = TILE * STEP;
static_assert(STAGES * 2 * OPERAND_BYTES == 98304, "the contract's shared memory");

/// 16 bytes from global to shared memory, or 16 zero bytes.
__device__ __forceinline__ void copy_16(u32 to, const u8* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

/// Four 8 x 16-byte matrices; lane l names row l % 8 of matrix l / 8 and receives bytes 4*(l%4).. of row l/4 of each.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/// c += A[16, 32] · B[8, 32]^T: lane l holds rows l/4, l/4 + 8 and columns 2*(l%4), 2*(l%4) + 1.
__device__ __forceinline__ void mma_16x8x32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." MMA_A "." MMA_B ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Byte offset of 16-byte piece `piece` of row `row` in an operand tile: swizzled, so that 8 rows hit 32 different banks.
__device__ __forceinline__ u32 offset_of(int row, int piece) { return row * STEP + ((piece ^ (row & 7)) * 16); }

/// The 128 rows from `row0` and 128 codes from `k0`, zero outside.
__device__ __forceinline__ void load_operand(u32 to, const u8* from, int row0, int rows, int k0, int k, int pitch) {
#pragma unroll
    for (int i = threadIdx.x; i < TILE * 8; i += 256) {
        const int row = i / 8, piece = i % 8;
        const bool exists = row0 + row < rows && k0 + piece * 16 < k;
        copy_16(to + offset_of(row, piece), from + (exists ? (long long)(row0 + row) * pitch + k0 + piece * 16 : 0), exists);
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
    fp8_gemm_mma(const u8* a, const u8* b, void* d, const float* scale_a, const float* scale_b, const float* bias, const float* scale_d,
                 float* amax_d, float* scale_inv_d, int m, int n, int k, int lda, int ldb, int ldd, int sa_k, int sb_row, int sb_k, int band) {
    extern __shared__ __align__(128) u8 shared[];
    const u32 base = smem_address(shared);
    const Epilogue e{d, scale_a, scale_b, bias, scale_d, amax_d, scale_inv_d, ldd, sa_k, sb_row, sb_k};
    if (FP8_OUT && blockIdx.x == 0 && threadIdx.x == 0) write_scale_inv(e);

    const int nt = ceil_div(n, TILE), mt = ceil_div(m, TILE), first = blockIdx.x / (band * nt) * band, height = min(band, mt - first);
    const int rest = blockIdx.x - first * nt, row_tile = (first + rest % height) * TILE, col_tile = rest / height * TILE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row0 = warp / 4 * 64, col0 = warp % 4 * 32;  // the warp's 64 x 32 outputs in the tile

    float acc[4][4][4] = {}, sum[4][4][4] = {};
    const int steps = ceil_div(k, STEP);
    auto load = [&](int step) {
        if (step < steps) {
            const u32 to = base + step % STAGES * 2 * OPERAND_BYTES;
            load_operand(to, a, row_tile, m, step * STEP, k, lda);
            load_operand(to + OPERAND_BYTES, b, col_tile, n, step * STEP, k, ldb);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int s = 0; s < STAGES - 1; s++) load(s);
    for (int step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        load(step + STAGES - 1);
        const u32 from_a = base + step % STAGES * 2 * OPERAND_BYTES, from_b = from_a + OPERAND_BYTES;
#pragma unroll
        for (int kk = 0; kk < 4; kk++) {
            u32 x[4][4], y[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++)  // matrices: rows 0-7 and 8-15 of codes 0-15, then of codes 16-31
                load_matrices(x[i], from_a + offset_of(row0 + 16 * i + lane % 16, 2 * kk + lane / 16));
#pragma unroll
            for (int j = 0; j < 2; j++)  // matrices: codes 0-15 and 16-31 of rows 0-7, then of rows 8-15
                load_matrices(y[j], from_b + offset_of(col0 + 16 * j + lane % 8 + lane / 16 * 8, 2 * kk + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) mma_16x8x32(acc[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
        }
        if (PROMOTED) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
#pragma unroll
                    for (int x = 0; x < 4; x++) {
                        const int row = row_tile + row0 + 16 * i + lane / 4 + x / 2 * 8, col = col_tile + col0 + 8 * j + 2 * (lane % 4) + x % 2;
                        float sa = 0.0f, sb = 0.0f;
                        if (BLOCK_SCALED && row < m) sa = __ldg(scale_a + (long long)step * sa_k + row);
                        if (BLOCK_SCALED && col < n)
                            sb = __ldg(scale_b + (long long)step * sb_k + (SCALES == LINE_SQUARE ? (long long)(col / 128) * sb_row : col));
                        sum[i][j][x] = promoted(sum[i][j][x], acc[i][j][x], sa, sb);
                        acc[i][j][x] = 0.0f;
                    }
                }
            }
        }
    }

    const float s = SCALES == BY_TENSOR ? __fmul_rn(__ldg(scale_a), __ldg(scale_b)) : 0.0f, to_codes = FP8_OUT ? __ldg(scale_d) : 0.0f;
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = row_tile + row0 + 16 * i + lane / 4 + 8 * h;
            if (row >= m) continue;
            const float sa = SCALES == BY_ROW ? __ldg(scale_a + row) : s;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int col = col_tile + col0 + 8 * j + 2 * (lane % 4);
                const long long at = (long long)row * ldd + col;
                float v[2] = {0.0f, 0.0f};
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    if (col + c >= n) continue;
                    const float sb = SCALES == BY_ROW ? __ldg(scale_b + col + c) : 0.0f;
                    v[c] = scaled(PROMOTED ? sum[i][j][2 * h + c] : acc[i][j][2 * h + c], sa, sb, bias_at(e, BIAS ? col + c : 0));
                    if (FP8_OUT) amax = fmaxf(amax, fabsf(v[c]));
                }
                if (col + 1 < n && ldd % 2 == 0) {
                    if (OUT == F32) *(float2*)((float*)d + at) = make_float2(v[0], v[1]);
                    else if (OUT_BYTES == 2) *(u32*)((u16*)d + at) = pack_pair(v[0], v[1], to_codes);
                    else *(u16*)((u8*)d + at) = (u16)pack_pair(v[0], v[1], to_codes);
                } else {
                    for (int c = 0; c < 2 && col + c < n; c++) store_one(e, at + c, v[c], to_codes);
                }
            }
        }
    }
    if (FP8_OUT) raise_amax(e, amax);
}
