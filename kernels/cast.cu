// Quantization of a whole tensor by one scale: given (delayed scaling), or chosen from the tensor's own amax (current scaling).
//
// Options (-D): IN F16, BF16 (default), F32;  FORMAT E4M3 (default), E5M2;  EACH eights a thread (4);  RULE, M the format's
// largest finite value:
//   GIVEN the scale is given: amax = max |x|, NaN dropped; code = Qsat(RN32(x * scale)); scale_inv = RN32(1 / scale)
//   TE Transformer Engine's current scaling: s = RN32(M / amax), FLT_MAX for Inf; amax 0 or Inf: 1. POW2 1: mantissa cleared
//   TORCHAO float8: s = RN32(M / max(f64(amax), 1e-12)), the division in f64; NaN wins in amax
//   TORCHAO_INFERENCE: scale_inv = RN_IN(RN32(amax / M)), code = Qsat(RN32(x / scale_inv)); NaN wins in amax
// All but GIVEN are two launches, `tensor_amax` and `cast`, with nothing for the host to wait for: every block of the second computes
// the scale from amax again.
//
// tensor_amax(const void* x, float* amax, long long n): raises amax[0], which the host sets to 0. grid ceil(n / (8*EACH*256)), block 256.
// cast(const void* x, u8* codes, const float* scale, float* amax, float* scale_inv, const float* noop, long long n)
//   GIVEN: scale[1] or null (1); amax[1] raised to max |x|, or null; the others: scale unused, amax[1] as tensor_amax left it.
//   scale_inv[1] written by block 0, or null. noop[0] == 1: nothing is written at all (GIVEN); null is 0.
//   x 16-byte aligned, codes 8-byte aligned, any n > 0. grid ceil(n / (8*EACH*256)), block 256.
#include "common/scale_rule.cuh"

#ifndef IN
#define IN BF16
#endif
#ifndef FORMAT
#define FORMAT E4M3
#endif
#ifndef EACH
#define EACH 4
#endif
constexpr int THREADS = 256;

/// Where the thread's eight number `i` begins: the block's eights of one step are neighbours.
__device__ __forceinline__ long long eight_at(int i) { return 8 * (((long long)blockIdx.x * EACH + i) * THREADS + threadIdx.x); }

/// The thread's elements; past the end zeros.
__device__ __forceinline__ void load_all(Eight<IN> (&v)[EACH], const void* x, long long n) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const long long at = eight_at(i);
        if (at + 8 <= n) v[i].load(x, at);
        else v[i].load_some(x, at, n - at);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) tensor_amax(const void* x, float* amax, long long n) {
    __shared__ u32 shared[THREADS / 32];
    Eight<IN> v[EACH];
    load_all(v, x, n);
    Largest<IN, NAN_WINS> largest;
#pragma unroll
    for (int i = 0; i < EACH; i++) largest.take(v[i]);
    raise_amax(amax, largest.bits(), shared);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cast(const void* x, u8* codes, const float* scale, float* amax, float* scale_inv, const float* noop, long long n) {
    __shared__ u32 shared[THREADS / 32];
    __shared__ Scale chosen;
    Eight<IN> v[EACH];
    load_all(v, x, n);
    if (RULE == GIVEN && noop && *noop == 1.0f) return;
    if (threadIdx.x == 0) chosen = RULE == GIVEN ? Scale::given(scale_or_one(scale)) : scale_of<IN, FORMAT>(*amax);
    __syncthreads();
    const Scale s = chosen;
    Largest<IN, false> largest;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const long long at = eight_at(i);
        if (RULE == GIVEN) largest.take(v[i]);
        const uint2 eight = s.codes<FORMAT>(v[i]);
        if (at + 8 <= n) store8(codes + at, eight);
        else store_some(codes, at, eight, n - at);
    }
    if (RULE == GIVEN) raise_amax(amax, largest.bits(), shared);
    if (scale_inv && blockIdx.x == 0 && threadIdx.x == 0) *scale_inv = s.inverse;
}
