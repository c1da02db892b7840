// Bulk copies (TMA) from global to shared memory: two-dimensional tiles, and plain rows of bytes.
//
// Every map here is made by cuTensorMapEncodeTiled with: data type UINT8, rank 2, dims {K, rows}, strides {row pitch in
// bytes}, box {128, box rows}, element strides {1, 1}, no interleave, SWIZZLE_128B, L2 promotion 256B, out-of-bounds
// fill zero. The base address, the row pitch and the coordinate in K must be multiples of 16 bytes
// (an odd coordinate stops the kernel with an illegal instruction, seen on an H200).
#pragma once
#include "common/gemm_types.cuh"

/// Fetches the descriptor itself.
__device__ __forceinline__ void tma_prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Copies the box at (k, row) to `dst` (1024-byte aligned) and adds its bytes to barrier `bar`; outside parts are zero.
__device__ __forceinline__ void tma_load(u32 dst, const TensorMap* map, int k, int row, u32 bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
        "l"(map), "r"(k), "r"(row), "r"(bar)
        : "memory");
}

/// The same, to the same offsets of every block whose bit is set in `mask`, each block's own barrier counting the bytes.
__device__ __forceinline__ void tma_load_multicast(u32 dst, const TensorMap* map, int k, int row, u32 bar, u16 mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
        "[%4], %5;" ::"r"(dst),
        "l"(map), "r"(k), "r"(row), "r"(bar), "h"(mask)
        : "memory");
}

/// Copies `bytes` (a multiple of 16) from 16-byte aligned `src` to 16-byte aligned `dst`, counted by barrier `bar`.
__device__ __forceinline__ void bulk_load(u32 dst, const void* src, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src), "r"(bytes),
                 "r"(bar)
                 : "memory");
}
