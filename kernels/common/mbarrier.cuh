// Shared-memory barriers (mbarrier), cluster barriers and proxy fences, one PTX instruction each (PTX ISA 8.0, sm_90).
#pragma once
#include "common/gemm_types.cuh"

/// Makes the barrier at `bar` (8 bytes, shared) complete a phase after `count` arrivals and all expected bytes.
__device__ __forceinline__ void mbarrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

/// Makes initialised barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// One arrival that also tells the barrier to wait for `bytes` copied bytes in this phase.
__device__ __forceinline__ void mbarrier_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

/// One arrival at a barrier of this block.
__device__ __forceinline__ void mbarrier_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/// One arrival at the barrier that lies at the same offset in block `rank` of the cluster. It orders nothing of this thread's
/// ordinary accesses towards that block: `.release.cluster` would cost a MEMBAR.ALL.GPU for each (1.3 times the GEMM's time).
__device__ __forceinline__ void mbarrier_arrive_at(u32 bar, u32 rank) {
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar),
        "r"(rank)
        : "memory");
}

/// Waits until the phase of this parity has completed (a fresh barrier: parity 1 has, parity 0 has not).
__device__ __forceinline__ void mbarrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(bar),
        "r"(parity)
        : "memory");
}

/// All threads of all blocks of the cluster meet.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

/// Orders this thread's ordinary shared-memory accesses before later ones of the tensor cores and the copy engine.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// `threads` threads meet at named barrier `id` (1..15).
__device__ __forceinline__ void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// The same without waiting: counts these threads towards the meeting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
