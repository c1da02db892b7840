// The body of the sm_90a FP8 GEMMs: a persistent, warp-specialised pipeline of TMA copies and wgmma.
//
// Block: 384 threads. Warpgroup 0 produces (one thread issues the copies); warpgroups 1 and 2 consume, 64 x TILE_N outputs
// each of a 128 x TILE_N tile, 128 of K a step. Dynamic shared memory: FP8_GEMM_SMEM = 232448 bytes (STAGES x (A 16 KB,
// B TILE_N*128, block scales), 8 x 2 KB for the epilogue, barriers, the schedule's own part). __launch_bounds__(384, 1).
//
// Options: TILE_N 256 (default) or 128; CLUSTER 0 (none), 1 (default; two blocks, neighbours along M, share B by multicast).
// Grid: any even number of blocks up to the number of multiprocessors (any number with CLUSTER 0), each takes tiles until none is
// left. Cluster dimension: 2 with CLUSTER 1.
// Tensor maps (tma.cuh): A {K, rows of A}, box {128, 128}; B {K, rows of B}, box {128, CLUSTER ? TILE_N/2 : TILE_N}.
//
// Accumulation of one output, k ascending: c = +0, then c = T(32,13,13RZ)(c, 32 products) for every 32 of K (zeros past the
// end change nothing). With PROMOTED every 128 of K start again from +0 and the sum of partials goes through `promoted`.
#pragma once
#include "common/fp8_epilogue.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef TILE_N
#define TILE_N 256
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif

constexpr int TILE_M = 128, TILE_K = 128;
constexpr int BLOCKS = CLUSTER ? 2 : 1;  // blocks of a cluster
// Both warpgroups promote at once, or in turns: pays where promotion is long (measured: docs/tuning/gemm.md).
constexpr bool TURNS = BLOCK_SCALED && (SCALES == LINE_LINE || !SCALES_FIRST);
constexpr int STAGES = TILE_N == 256 ? 4 : 6;
constexpr u32 A_BYTES = TILE_M * TILE_K, B_BYTES = TILE_N * TILE_K, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr u32 SCALES_A_BYTES = TILE_M * 4, SCALES_BYTES = BLOCK_SCALED ? SCALES_A_BYTES + TILE_N * 4 : 0;  // a stage's 1x128 scales
constexpr u32 COLUMNS_BYTES = SCALES == BY_ROW ? 8 * TILE_N * 4 : 0;  // every warp's column scales
constexpr u32 EPILOGUE_BYTES = 8 * 2048, BARRIER_BYTES = 128, SCHEDULE_BYTES = 4096;
static_assert(STAGES * (STAGE_BYTES + SCALES_BYTES) + EPILOGUE_BYTES + COLUMNS_BYTES + BARRIER_BYTES + SCHEDULE_BYTES + 1024 <= 232448, "shared memory");
static_assert(STAGES * 16 <= BARRIER_BYTES, "barriers");

/// Which tile of an mt x nt grid is number `i`: bands of `band` tile rows, columns within a band, rows within a column.
__device__ __forceinline__ void banded(int i, int mt, int nt, int band, int& m, int& n) {
    const int b = i / (band * nt), first = b * band, height = min(band, mt - first), rest = i - first * nt;
    m = first + rest % height;
    n = rest / height;
}

/// Keeps codes first..last-1 of K in a stage (both operands) and zeroes the others, by the 256 consumer threads together: other
/// groups' codes lie there, and might be NaN.
__device__ __forceinline__ void keep_codes(u32 stage, int first, int last) {
    for (int row = threadIdx.x - 128; row < TILE_M + TILE_N; row += 256) {
        for (int piece = 0; piece < 8; piece++) {
            if (first <= piece * 16 && piece * 16 + 16 <= last) continue;
            const u32 at = stage + row * 128 + ((piece ^ (row & 7)) * 16);
            for (int i = 0; i < 16; i++)
                if (piece * 16 + i < first || piece * 16 + i >= last) asm volatile("st.shared.u8 [%0], %1;" ::"r"(at + i), "r"(0) : "memory");
        }
    }
    fence_async_proxy();
    named_barrier(1, 256);
}

__device__ __forceinline__ float load_shared(u32 at) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at));
    return x;
}

template <int N>
__device__ __forceinline__ void keep_in_registers(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/// Schedule: `void prepare(u8* shared)` by all threads, then `bool get(int i, int rank, Work&)`: tile number i of the block with
/// this rank in its cluster, false past the last. RAGGED_K: groups may end inside a step of K.
template <class Schedule>
__device__ __forceinline__ void fp8_gemm_body(const TensorMap& map_a, const TensorMap& map_b, const Epilogue& e, Schedule schedule) {
    extern __shared__ u8 raw[];
    const u32 stages = (smem_address(raw) + 1023) & ~1023u;
    const u32 scales = stages + STAGES * STAGE_BYTES, epilogue = scales + STAGES * SCALES_BYTES;
    const u32 columns = epilogue + EPILOGUE_BYTES, full = columns + COLUMNS_BYTES, vacant = full + 8 * STAGES;
    const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
    const u32 rank = CLUSTER ? cluster_rank() : 0;
    const int worker = blockIdx.x / BLOCKS, workers = gridDim.x / BLOCKS;

    if (threadIdx.x == 0) {
        tma_prefetch(&map_a);
        tma_prefetch(&map_b);
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(full + 8 * s, 1);
            mbarrier_init(vacant + 8 * s, BLOCK_SCALED ? 256 + 8 * (BLOCKS - 1) : 8 * BLOCKS);
        }
        mbarrier_init_fence();
        if (FP8_OUT && blockIdx.x == 0) write_scale_inv(e);
    }
    schedule.prepare(raw + (full + BARRIER_BYTES - smem_address(raw)));
    __syncthreads();
    if (CLUSTER) cluster_sync();

    int slot = 0;
    u32 parity = 0;  // of the current round through the slots
    auto advance = [&] {
        if (++slot == STAGES) slot = 0, parity ^= 1;
    };
    Work w;

    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int i = worker; schedule.get(i, rank, w); i += workers) {
                for (int k = w.k0; k < w.k1; k += TILE_K) {
                    const u32 a = stages + slot * STAGE_BYTES, b = a + A_BYTES, bar = full + 8 * slot;
                    mbarrier_wait(vacant + 8 * slot, parity ^ 1);
                    u32 bytes_a = 0, bytes_b = 0;
                    if (BLOCK_SCALED) bytes_a = 4 * max(min(TILE_M, e.sa_k - w.sa0), 0);
                    if (SCALES == LINE_LINE) bytes_b = 4 * max(min(TILE_N, e.sb_k - w.sb0), 0);
                    mbarrier_expect(bar, STAGE_BYTES + bytes_a + bytes_b);
                    const u32 to = scales + slot * SCALES_BYTES;
                    if (bytes_a) bulk_load(to, e.scale_a + (long long)(k / TILE_K) * e.sa_k + w.sa0, bytes_a, bar);
                    if (bytes_b) bulk_load(to + SCALES_A_BYTES, e.scale_b + (long long)(k / TILE_K) * e.sb_k + w.sb0, bytes_b, bar);
                    tma_load(a, &map_a, k, w.a_row, bar);
                    if (CLUSTER)
                        tma_load_multicast(b + rank * (B_BYTES / 2), &map_b, k, w.b_row + rank * (TILE_N / 2), bar, 3);
                    else
                        tma_load(b, &map_b, k, w.b_row, bar);
                    advance();
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int row0 = (threadIdx.x / 32 - 4) * 16;
        Scales<TILE_N> tile_scales;
        tile_scales.sa[0] = tile_scales.sa[1] = SCALES == BY_TENSOR ? __fmul_rn(__ldg(e.scale_a), __ldg(e.scale_b)) : 0.0f;
        const float scale_d = FP8_OUT ? __ldg(e.scale_d) : 0.0f;
        const u32 buffer = epilogue + (threadIdx.x / 32 - 4) * 2048;
        float amax = 0.0f;
        auto release = [&](int s) {
            if (BLOCK_SCALED) {  // every lane has read the stage's scales: every lane says so
                mbarrier_arrive(vacant + 8 * s);
                if (CLUSTER && lane == 0) mbarrier_arrive_at(vacant + 8 * s, rank ^ 1);
            } else {
                if (CLUSTER && lane < BLOCKS) mbarrier_arrive_at(vacant + 8 * s, lane);
                if (!CLUSTER && lane == 0) mbarrier_arrive(vacant + 8 * s);
            }
        };
        if (TURNS && group == 2) named_barrier_arrive(2, 256);
        for (int i = worker; schedule.get(i, rank, w); i += workers) {
            float acc[TILE_N / 2];
            tile_scales.fetch(e, w, row0);
            if constexpr (!PROMOTED) {
                int previous = -1;
                for (int k = w.k0; k < w.k1; k += TILE_K) {
                    mbarrier_wait(full + 8 * slot, parity);
                    const u32 stage = stages + slot * STAGE_BYTES;
                    if (Schedule::RAGGED_K && (w.k1 - k < TILE_K || (k == w.k0 && w.head))) keep_codes(stage, k == w.k0 ? w.head : 0, w.k1 - k);
                    const u64 a = wgmma_descriptor(stage + (group - 1) * 64 * 128), b = wgmma_descriptor(stage + A_BYTES);
                    wgmma_fence();
#pragma unroll
                    for (int kk = 0; kk < 4; kk++) {
#if TILE_N == 256
                        wgmma_64x256x32(acc, a + 2 * kk, b + 2 * kk, kk > 0 || k > w.k0);
#else
                        wgmma_64x128x32(acc, a + 2 * kk, b + 2 * kk, kk > 0 || k > w.k0);
#endif
                    }
                    wgmma_commit();
                    wgmma_wait<1>();
                    if (previous >= 0) release(previous);
                    previous = slot;
                    advance();
                }
                wgmma_wait<0>();
                keep_in_registers(acc);
                if (previous >= 0) release(previous);
            } else {
#pragma unroll
                for (int x = 0; x < TILE_N / 2; x++) acc[x] = 0.0f;
                float next_sb[TILE_N / 128];  // 128x128 scales, fetched a step ahead
                auto fetch_sb = [&](int k) {
#pragma unroll
                    for (int half = 0; half < TILE_N / 128; half++)
                        next_sb[half] = SCALES == LINE_SQUARE && k < w.k1 && half * 128 < w.cols
                                            ? __ldg(e.scale_b + (long long)(w.sb0 / 128 + half) * e.sb_row + (long long)(k / TILE_K) * e.sb_k)
                                            : 0.0f;
                };
                fetch_sb(w.k0);
                for (int k = w.k0; k < w.k1; k += TILE_K) {
                    float sb[TILE_N / 128], sa[2] = {0.0f, 0.0f};
#pragma unroll
                    for (int half = 0; half < TILE_N / 128; half++) sb[half] = next_sb[half];
                    fetch_sb(k + TILE_K);
                    mbarrier_wait(full + 8 * slot, parity);
                    const u32 stage = stages + slot * STAGE_BYTES, stage_scales = scales + slot * SCALES_BYTES;
                    if (Schedule::RAGGED_K && (w.k1 - k < TILE_K || (k == w.k0 && w.head))) keep_codes(stage, k == w.k0 ? w.head : 0, w.k1 - k);
                    if (BLOCK_SCALED) {
                        sa[0] = load_shared(stage_scales + (row0 + lane / 4) * 4);
                        sa[1] = load_shared(stage_scales + (row0 + lane / 4 + 8) * 4);
                    }
                    const u64 a = wgmma_descriptor(stage + (group - 1) * 64 * 128), b = wgmma_descriptor(stage + A_BYTES);
#pragma unroll
                    for (int half = 0; half < TILE_N / 128; half++) {
                        float partial[64];
                        if (TURNS) named_barrier(1 + group, 256);
                        wgmma_fence();
#pragma unroll
                        for (int kk = 0; kk < 4; kk++) wgmma_64x128x32(partial, a + 2 * kk, b + half * (128 * 128 / 16) + 2 * kk, kk > 0);
                        wgmma_commit();
                        if (TURNS) named_barrier_arrive(4 - group, 256);
                        wgmma_wait<0>();
                        keep_in_registers(partial);
                        if (SCALES != LINE_LINE && half == TILE_N / 128 - 1) release(slot);
#pragma unroll
                        for (int j = 0; j < 16; j++) {
                            float s[2] = {sb[half], sb[half]};
                            if (SCALES == LINE_LINE)
                                asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                                             : "=f"(s[0]), "=f"(s[1])
                                             : "r"(stage_scales + SCALES_A_BYTES + (half * 128 + 8 * j + 2 * (lane % 4)) * 4));
#pragma unroll
                            for (int x = 0; x < 4; x++)
                                acc[half * 64 + 4 * j + x] = promoted(acc[half * 64 + 4 * j + x], partial[4 * j + x], sa[x / 2], s[x % 2]);
                        }
                        if (SCALES == LINE_LINE && half == TILE_N / 128 - 1) release(slot);
                    }
                    advance();
                }
            }
            store_rows<TILE_N>(acc, e, w, tile_scales, scale_d, amax, row0, buffer, columns + (threadIdx.x / 32 - 4) * (COLUMNS_BYTES / 8));
        }
        if (TURNS && group == 1) named_barrier(2, 256);
        if (FP8_OUT) raise_amax(e, amax);
    }
    // A block's shared memory must outlive its neighbour's copies and arrivals into it.
    __syncwarp();
    if (CLUSTER) cluster_sync();
}
