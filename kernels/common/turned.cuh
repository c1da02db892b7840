// V neighbouring columns in a thread: numbers in, codes of STEP rows turned into 16 bytes of each transposed row. V is 1 or 4.
#pragma once
#include "common/fp8_cast.cuh"

constexpr int STEP = 16;  // rows at a time

/// V neighbouring numbers of type T as they lie in memory.
template <int T, int V>
struct Few {
    u32 word[V == 1 || T != 2 ? (V + 1) / 2 : V];
    /// From element `at`, a multiple of V.
    __device__ __forceinline__ void load(const void* x, long long at) {
        if constexpr (V == 1) {
            word[0] = T == 2 ? __ldg((const u32*)x + at) : __ldg((const u16*)x + at);
        } else if constexpr (T == 2) {
            const uint4 v = load16((const float*)x + at);
            word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
        } else {
            asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(word[0]), "=r"(word[1]) : "l"((const u16*)x + at));
        }
    }
    __device__ __forceinline__ float operator[](int i) const {
        if (T == 2) return __uint_as_float(word[i]);
        if (T == 1) return __uint_as_float(i & 1 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
        return f16_to_f32((u16)(word[i / 2] >> (16 * (i & 1))));
    }
};

/// Codes of a row: V bytes, the first column's lowest.
template <int F, int V>
__device__ __forceinline__ u32 codes_of(const float (&v)[V], float scale) {
    if constexpr (V == 1) return fp8_pair<F>(__fmul_rn(v[0], scale), 0.0f) & 0xff;
    else return fp8_four<F>(__fmul_rn(v[0], scale), __fmul_rn(v[1], scale), __fmul_rn(v[2], scale), __fmul_rn(v[3], scale));
}
template <int V>
__device__ __forceinline__ void store_codes(u8* d, long long at, u32 codes) {
    if (V == 1) d[at] = (u8)codes;
    else *(u32*)(d + at) = codes;
}

/// Codes of STEP rows of the columns, column by column.
template <int V>
struct Turned {
    u32 word[V][STEP / 4];
    /// Rows 4*quarter ... 4*quarter + 3.
    __device__ __forceinline__ void take(int quarter, const u32 (&q)[4]) {
        if constexpr (V == 1) {
            word[0][quarter] = q[0] | q[1] << 8 | q[2] << 16 | q[3] << 24;
        } else {
            const u32 a = __byte_perm(q[0], q[1], 0x5140), b = __byte_perm(q[0], q[1], 0x7362);
            const u32 c = __byte_perm(q[2], q[3], 0x5140), d = __byte_perm(q[2], q[3], 0x7362);
            word[0][quarter] = __byte_perm(a, c, 0x5410), word[1][quarter] = __byte_perm(a, c, 0x7632);
            word[2][quarter] = __byte_perm(b, d, 0x5410), word[3][quarter] = __byte_perm(b, d, 0x7632);
        }
    }
    /// To elements row ... row + count - 1 (`row` a multiple of STEP) of V rows of t from row `column` on, `pitch` apart.
    __device__ __forceinline__ void store(u8* t, int column, int row, int count, int pitch) const {
#pragma unroll
        for (int c = 0; c < V; c++) {
            u8* at = t + (long long)(column + c) * pitch + row;
            if (count == STEP && pitch % 16 == 0) {
                store16(at, make_uint4(word[c][0], word[c][1], word[c][2], word[c][3]));
            } else {
#pragma unroll
                for (int r = 0; r < STEP; r++) {
                    if (r < count) at[r] = (u8)(word[c][r / 4] >> (8 * (r % 4)));
                }
            }
        }
    }
};
