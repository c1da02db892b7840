// The scales of eight groups whose elements lie across LANES neighbouring lanes, an eight of each group in every lane: each lane ends
// up with the maxima of a few groups, computes their scales alone, and hands them to the others. Instead of 8*log2(LANES) shuffles and
// eight scales a lane, for 16 lanes 16 shuffles and one.
#pragma once
#include "common/fp8_cast.cuh"

template <int LANES>
struct EightRows {
    static constexpr int KEEP = LANES >= 8 ? 1 : 8 / LANES;  // groups a lane is left with

    /// The first of the groups that this lane is left with.
    __device__ __forceinline__ static int first() { return (int)(threadIdx.x % LANES) * 8 / LANES; }
    /// Whether the lane is the one that writes its groups' scales (with 16 lanes two are left with the same).
    __device__ __forceinline__ static bool writes() { return LANES <= 8 || threadIdx.x % (LANES / 8) == 0; }

    /// Halves the groups a lane holds while there are several, giving the other half to the lane `STEP` away, then joins the rest.
    template <typename Amax, int HELD, int STEP>
    __device__ __forceinline__ static void reduce(Amax (&a)[8]) {
        if constexpr (STEP > 0) {
            if constexpr (HELD > 1) {
                const bool upper = threadIdx.x & STEP;
#pragma unroll
                for (int i = 0; i < HELD / 2; i++) {
                    const u32 keep = upper ? a[HELD / 2 + i].pair : a[i].pair, give = upper ? a[i].pair : a[HELD / 2 + i].pair;
                    a[i].pair = keep;
                    a[i].take(__shfl_xor_sync(~0u, give, STEP));
                }
                reduce<Amax, HELD / 2, STEP / 2>(a);
            } else {
                a[0].take(__shfl_xor_sync(~0u, a[0].pair, STEP));
                reduce<Amax, 1, STEP / 2>(a);
            }
        }
    }
    /// From the maxima of this lane's elements of all eight to a[0 .. KEEP - 1], those of groups first() and following.
    template <typename Amax>
    __device__ __forceinline__ static void reduce(Amax (&a)[8]) {
        reduce<Amax, 8, LANES / 2>(a);
    }
    /// What the lane that is left with group `i` holds for it in mine[].
    __device__ __forceinline__ static float of(const float (&mine)[KEEP], int i) {
        return __shfl_sync(~0u, mine[i % KEEP], (int)(threadIdx.x % 32) / LANES * LANES + i * LANES / 8);
    }
};
