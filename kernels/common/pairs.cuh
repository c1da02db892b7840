// Sums of two doubles (Dekker, Knuth): twice the bits of one.
#pragma once

/// An unevaluated sum of two doubles, the second at most half a spacing of the first.
struct Pair {
    double high, low;
};

/// high + low = a + b exactly.
__device__ __forceinline__ Pair two_sum(double a, double b) {
    const double high = __dadd_rn(a, b), part = __dsub_rn(high, a);
    return {high, __dadd_rn(__dsub_rn(a, __dsub_rn(high, part)), __dsub_rn(b, part))};
}

__device__ __forceinline__ Pair add_pairs(Pair a, Pair b) {
    Pair s = two_sum(a.high, b.high);
    const Pair t = two_sum(a.low, b.low);
    s = two_sum(s.high, __dadd_rn(s.low, t.high));
    return two_sum(s.high, __dadd_rn(s.low, t.low));
}
