// The parts of doubles, and tests of them.
#pragma once
#include "common/gemm_types.cuh"

#define INFINITE __longlong_as_double(0x7ff0000000000000ll)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000ll)

__device__ __forceinline__ double power_of(int e) {
    return __longlong_as_double(e >= -1022 ? (long long)(e + 1023) << 52 : 1ll << (e + 1074));
}
__device__ __forceinline__ int exponent(double magnitude) { return (int)((u64)__double_as_longlong(magnitude) >> 52) - 1023; }
__device__ __forceinline__ bool finite(double x) { return x - x == 0.0; }
__device__ __forceinline__ bool nan(double x) { return x != x; }
__device__ __forceinline__ u64 bits(double x) { return (u64)__double_as_longlong(x); }
