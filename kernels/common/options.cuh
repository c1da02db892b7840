// The words of the options (-D), one numbering for all kernels; src/kernel/cuda/options.rs has the same numbers, and a test holds both equal.
#pragma once

/// Types of elements and formats of codes: IN, OUT, SCALE, FORMAT, WEIGHT.
enum Type { F16 = 0, BF16 = 1, F32 = 2, E4M3 = 3, E5M2 = 4, E2M1 = 5, E2M3 = 6, E3M2 = 7, INT4 = 8, UINT4 = 9, INT8 = 10 };
/// Whether the hardware converts f32 to it with saturation.
__host__ __device__ constexpr bool is_fp8(int type) { return type == E4M3 || type == E5M2; }
/// Whether two codes share a byte.
__host__ __device__ constexpr bool is_int4(int type) { return type == INT4 || type == UINT4; }

/// Activations: ACT.
enum Act { GELU = 0, SILU = 1, RELU = 2, QGELU = 3, SRELU = 4 };

/// What an elementwise kernel computes: OP.
enum Formula { ACTIVATION = 0, ACTIVATION_GRADIENT = 1, GATED = 2, GATED_GRADIENT = 3, LAYERNORM = 4, RMSNORM = 5 };

/// How the scale of floating-point codes comes about: RULE.
enum Rule {
    GIVEN = 0, TE = 1, TORCHAO = 2, TORCHAO_INFERENCE = 3, DEEPGEMM = 4,
    TE_MXFP8 = 5, MX_FLOOR = 6, MX_CEIL = 7, MX_EVEN = 8, MX_RCEIL = 9, TE_NVFP4 = 10, TORCHAO_NVFP4 = 11
};

/// How a row is quantized to int8: TOKEN.
enum TokenRule { OWN_TYPE = 0, IN_F32 = 1, SHIFTED = 2 };

/// How a group of weights is quantized to integers: MAPPING.
enum Mapping { SYMMETRIC = 0, SYMMETRIC_NO_CLIP = 1, ASYMMETRIC = 2, TINYGEMM = 3 };

/// Zero points of integer codes: ZERO.
enum ZeroPoint { NONE = 0, ADDITIVE = 1, INTEGER_8 = 2, INTEGER_32 = 3 };

/// Scales of both operands of an FP8 product: SCALES.
enum ScaleLayout { BY_TENSOR = 0, BY_ROW = 1, LINE_SQUARE = 2, LINE_LINE = 3 };

/// Lengths of a norm's rows: RAGGED.
enum Ragged { FULL = 0, EIGHTS = 1, ANY = 2 };

// The formats of both operands of an FP8 product: 0 e4m3, 1 e5m2. (Numbers of their own: the preprocessor makes instructions of them.)
#ifndef A_E5M2
#define A_E5M2 0
#endif
#ifndef B_E5M2
#define B_E5M2 0
#endif
