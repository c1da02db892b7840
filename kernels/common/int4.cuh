// 4-bit codes in registers: exact conversions to f16, bf16 and int8, eight at a time. In a word, nibble i holds bits 4i..4i+3
// and code i of eight (packed low first).
#pragma once
#include "common/intmma.cuh"

/// (w & mask) ^ flip, one instruction.
__device__ __forceinline__ u32 and_xor(u32 w, u32 mask, u32 flip) {
    u32 d;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(d) : "r"(w), "r"(mask), "r"(flip));
    return d;
}

/// The eight codes of a word as four pairs of numbers q - zero, exactly: pair i holds nibbles i (low half) and i + 4.
/// f16: a nibble under the exponent of 1024 is 1024 + n (n = q + 8 if SIGNED, by flipping its top bit); 4 bits higher it is
/// 1024 + 16n, brought back by an fma with 1/16. `minus1` holds -(1024 + [8] + zero) twice, `minus16` -(64 + [8] + zero) twice.
/// bf16: 128 + n under the exponent of 128; `minus1` holds -(128 + [8] + zero) twice.
template <bool TO_BF16, bool SIGNED>
__device__ __forceinline__ void nibbles_to_16bit(u32 (&q)[4], u32 w, u32 minus1, u32 minus16) {
    if (TO_BF16) {
        const u32 flip = SIGNED ? 0x43084308u : 0x43004300u;
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] = fma_bf16(and_xor(w >> (4 * i), 0x000f000fu, flip), BF16_ONE, minus1);
    } else {
        const u32 flip1 = SIGNED ? 0x64086408u : 0x64006400u, flip16 = SIGNED ? 0x64806480u : 0x64006400u;
        const u32 sixteenth = 0x2c002c00u, high = w >> 8;
        q[0] = fma_f16(and_xor(w, 0x000f000fu, flip1), F16_ONE, minus1);
        q[1] = fma_f16(and_xor(w, 0x00f000f0u, flip16), sixteenth, minus16);
        q[2] = fma_f16(and_xor(high, 0x000f000fu, flip1), F16_ONE, minus1);
        q[3] = fma_f16(and_xor(high, 0x00f000f0u, flip16), sixteenth, minus16);
    }
}

/// Four int8 codes as two pairs of numbers q - zero, exactly, in order. f16: 1024 + (q + 128), `minus` holds -(1152 + zero) twice.
/// bf16: through f32, 2^23 + (q + 128) - (2^23 + 128 + zero); `minus` is that last f32's bits, negative.
template <bool TO_BF16>
__device__ __forceinline__ void bytes_to_16bit(u32 (&q)[2], u32 w, u32 minus) {
    const u32 n = w ^ 0x80808080u;
    if (TO_BF16) {
        const u32 exponent = 0x4b000000u;
        float f[4];
        f[0] = __fadd_rn(__uint_as_float(__byte_perm(n, exponent, 0x7440)), __uint_as_float(minus));
        f[1] = __fadd_rn(__uint_as_float(__byte_perm(n, exponent, 0x7441)), __uint_as_float(minus));
        f[2] = __fadd_rn(__uint_as_float(__byte_perm(n, exponent, 0x7442)), __uint_as_float(minus));
        f[3] = __fadd_rn(__uint_as_float(__byte_perm(n, exponent, 0x7443)), __uint_as_float(minus));
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(q[0]) : "f"(f[1]), "f"(f[0]));
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(q[1]) : "f"(f[3]), "f"(f[2]));
    } else {
        q[0] = fma_f16(__byte_perm(n, 0x64646464u, 0x4140), F16_ONE, minus);
        q[1] = fma_f16(__byte_perm(n, 0x64646464u, 0x4342), F16_ONE, minus);
    }
}

/// The eight codes of a word as int8 in the order of k. Signed without zero point: times 16 (a nibble in the upper half of a byte
/// is a signed number by itself). Else q - zero, for
/// which `minus` holds zero (unsigned) or zero + 8 (signed), 0..23, in each byte.
template <bool SIGNED, bool WITH_ZERO>
__device__ __forceinline__ void nibbles_to_s8(u32& first, u32& second, u32 w, u32 minus) {
    u32 even, odd;  // nibbles 0, 2, 4, 6 and 1, 3, 5, 7
    if (!WITH_ZERO && SIGNED) {
        even = (w << 4) & 0xf0f0f0f0u;
        odd = w & 0xf0f0f0f0u;
    } else if (!WITH_ZERO) {
        even = w & 0x0f0f0f0fu;
        odd = (w >> 4) & 0x0f0f0f0fu;
    } else {
        // Each byte 128 + n (n = q + 8 if signed) - minus: no borrow leaves it; flipping its top bit takes the 128 off.
        const u32 flip = SIGNED ? 0x88888888u : 0x80808080u;
        even = (and_xor(w, 0x0f0f0f0fu, flip) - minus) ^ 0x80808080u;
        odd = (and_xor(w >> 4, 0x0f0f0f0fu, flip) - minus) ^ 0x80808080u;
    }
    first = __byte_perm(even, odd, 0x5140);
    second = __byte_perm(even, odd, 0x7362);
}

/// Code k of a packed row.
template <bool SIGNED>
__device__ __forceinline__ int nibble_at(const u8* row, long long k) {
    const u32 n = (row[k / 2] >> (k & 1 ? 4 : 0)) & 15;
    return SIGNED ? (int)(n ^ 8) - 8 : (int)n;
}
