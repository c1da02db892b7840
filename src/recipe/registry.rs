//! The const list of recipes.

use super::*;

use Format::{E2m1, E2m3, E3m2, E4m3, E4m3Fnuz, E5m2, E5m2Fnuz, Int4, Int8, Uint4};

const FP8: &[Format] = &[E4m3, E5m2];
const FP8_ALL: &[Format] = &[E4m3, E5m2, E4m3Fnuz, E5m2Fnuz];
const MX: &[Format] = &[E4m3, E5m2, E2m3, E3m2, E2m1];
const INTEGERS: &[Format] = &[Int8, Int4, Uint4];

const TE_CURRENT: &str = "TransformerEngine v2.20 (d0067d0) common/recipe/current_scaling.cu";
const TE_VECTOR: &str = "TransformerEngine v2.20 (d0067d0) common/transpose/quantize_transpose_vector_blockwise.cu";
const TE_SQUARE: &str = "TransformerEngine v2.20 (d0067d0) common/transpose/quantize_transpose_square_blockwise.cu";
const TE_MXFP8: &str = "TransformerEngine v2.20 (d0067d0) common/cast/mxfp8/quantize_mxfp8.cuh";
const TE_NVFP4: &str = "TransformerEngine v2.20 (d0067d0) common/cast/nvfp4/core_nvfp4.cuh";
const AO_FLOAT8: &str = "torchao v0.11 to v0.18 float8/float8_utils.py";
const AO_MX: &str = "torchao 36027d82d (after v0.18) prototype/mx_formats/mx_tensor.py";
const AO_MX_V018: &str = "torchao v0.12 to v0.18 prototype/mx_formats/mx_tensor.py";
const AO_PRIMITIVES: &str = "torchao v0.8 (e1d79bcb1) quantization/quant_primitives.py";
const AO_INFERENCE: &str = "torchao v0.18 quantization/quant_primitives.py";
const AO_API: &str = "torchao v0.8 (e1d79bcb1) quantization/quant_api.py";
const DEEPGEMM: &str = "DeepGEMM 54e2261 deep_gemm/utils/math.py";

type Quantize = fn(&Recipe, &Tensor) -> Result<Quantized>;

const fn fixed(
    name: &'static str,
    family: &'static str,
    source: &'static str,
    formats: &'static [Format],
    quantize: Quantize,
    help: &'static str,
) -> RecipeSpec {
    RecipeSpec { name, family, source, help, formats, free_group: false, default_group: None, quantize }
}

const fn grouped(
    name: &'static str,
    family: &'static str,
    formats: &'static [Format],
    default_group: Option<usize>,
    quantize: Quantize,
    help: &'static str,
) -> RecipeSpec {
    RecipeSpec { name, family, source: AO_PRIMITIVES, help, formats, free_group: true, default_group, quantize }
}

/// Every recipe.
#[rustfmt::skip]
pub const RECIPES: &[RecipeSpec] = &[
    fixed("te_delayed", "te_delayed", "TransformerEngine v2.20 (d0067d0) common/recipe/delayed_scaling.cu", FP8, delayed::te_delayed,
        "per tensor, scale from the amaxes of earlier steps (here: three quarters of the rows)"),
    fixed("te_current", "te_current", TE_CURRENT, FP8, current::te_current, "per tensor, scale M/amax"),
    fixed("te_current_pow2", "te_current", TE_CURRENT, FP8, current::te_current_pow2,
        "per tensor, scale M/amax rounded down to a power of two"),
    fixed("te_block_1x128", "te_block", TE_VECTOR, FP8, current::te_block_1x128, "1×128, power-of-two scales"),
    fixed("te_block_1x128_fp32", "te_block", TE_VECTOR, FP8, current::te_block_1x128_fp32, "1×128, f32 scales"),
    fixed("te_block_128x128", "te_block", TE_SQUARE, FP8, current::te_block_128x128, "128×128, power-of-two scales"),
    fixed("te_block_128x128_fp32", "te_block", TE_SQUARE, FP8, current::te_block_128x128_fp32, "128×128, f32 scales"),
    fixed("te_mxfp8", "mx", TE_MXFP8, FP8, mx::te_mxfp8, "1×32, e8m0 scales rounded up (32×1: of the transposed tensor)"),
    fixed("te_mxfp8_32x32", "mx", TE_MXFP8, FP8, mx::te_mxfp8_32x32, "32×32, e8m0 scales rounded up"),
    fixed("te_nvfp4", "nvfp4", TE_NVFP4, &[E2m1], nvfp4::te_nvfp4, "1×16, e4m3 scales under an f32 scale of the tensor"),
    fixed("te_nvfp4_16x16", "nvfp4", TE_NVFP4, &[E2m1], nvfp4::te_nvfp4_16x16,
        "16×16, e4m3 scales under an f32 scale of the tensor"),
    fixed("float8_tensorwise", "float8", AO_FLOAT8, FP8_ALL, float8::float8_tensorwise, "per tensor, eps 1e-12"),
    fixed("float8_rowwise", "float8", AO_FLOAT8, FP8_ALL, float8::float8_rowwise, "per row, power-of-two scales"),
    fixed("float8_rowwise_gw_hp", "float8", AO_FLOAT8, FP8_ALL, float8::float8_rowwise_gw_hp,
        "per row, f32 scales (rowwise_with_gw_hp of v0.11)"),
    fixed("float8_inference", "float8", AO_INFERENCE, FP8_ALL, float8::float8_inference,
        "per tensor, scale_inv amax/M in the input's dtype, elements divided"),
    fixed("float8_inference_row", "float8", AO_INFERENCE, FP8_ALL, float8::float8_inference_row,
        "per row, scale_inv amax/M in the input's dtype, elements divided"),
    fixed("mx_floor", "mx", AO_MX, MX, mx::mx_floor, "1×32, exponent of amax rounded down: the top of the range clips"),
    fixed("mx_ceil", "mx", AO_MX, MX, mx::mx_ceil, "1×32, exponent of amax rounded up"),
    fixed("mx_even", "mx", AO_MX, MX, mx::mx_even, "1×32, exponent of amax after rounding its mantissa to the format's"),
    fixed("mx_rceil", "mx", AO_MX, MX, mx::mx_rceil, "1×32, amax/M rounded up to a power of two"),
    fixed("mx_floor_v018", "mx", AO_MX_V018, MX, mx::mx_floor_v018, "mx_floor as released: another byte 0, amax Inf and NaN"),
    fixed("mx_ceil_v018", "mx", AO_MX_V018, MX, mx::mx_ceil_v018, "mx_ceil as released: another byte 0, amax Inf and NaN"),
    fixed("mx_even_v018", "mx", AO_MX_V018, MX, mx::mx_even_v018, "mx_even as released: another byte 0, amax near 2^128, Inf and NaN"),
    fixed("mx_rceil_v018", "mx", AO_MX_V018, MX, mx::mx_rceil_v018, "mx_rceil as released, by log2: ulps above a power of two count as it"),
    fixed("ao_nvfp4", "nvfp4", "torchao v0.17, v0.18 prototype/mx_formats/nvfp4_tensor.py", &[E2m1], nvfp4::ao_nvfp4,
        "1×16, e4m3 scales of at least 2^-6 under an f32 scale of the tensor"),
    fixed("deepseek_1x128", "deepseek", DEEPGEMM, &[E4m3], deepseek::deepseek_1x128, "1×128, f32 scales, amax at least 1e-4"),
    fixed("deepseek_1x128_ue8m0", "deepseek", DEEPGEMM, &[E4m3], deepseek::deepseek_1x128_ue8m0,
        "1×128, scales rounded up to powers of two"),
    fixed("deepseek_128x128", "deepseek", DEEPGEMM, &[E4m3], deepseek::deepseek_128x128, "128×128, f32 scales"),
    fixed("deepseek_128x128_ue8m0", "deepseek", DEEPGEMM, &[E4m3], deepseek::deepseek_128x128_ue8m0,
        "128×128, scales rounded up to powers of two"),
    grouped("affine_sym", "affine", INTEGERS, None, affine::affine_sym, "amax/((qmax−qmin)/2): int4 divides by 7.5, +amax clips"),
    grouped("affine_symnc", "affine", INTEGERS, None, affine::affine_symnc, "larger of min/qmin and max/qmax: nothing clips"),
    grouped("affine_asym", "affine", INTEGERS, None, affine::affine_asym, "(max−min)/(qmax−qmin), integer zero point"),
    grouped("tinygemm", "affine", &[Uint4], Some(128), affine::tinygemm, "uint4, bf16 scale and zero point in real units"),
    grouped("hqq", "affine", &[Uint4], Some(128), hqq::hqq, "uint4, zero point fitted by half-quadratic iterations (not bit-portable upstream)"),
    fixed("int8_token_sym", "int8_token", AO_API, &[Int8], int8_token::int8_token_sym, "per token, ±127, f32 scale"),
    fixed("int8_token_asym", "int8_token", AO_API, &[Int8], int8_token::int8_token_asym,
        "per token, −128…127, integer zero point, arithmetic in f64"),
    fixed("int8_token_reduced", "int8_token", AO_API, &[Int8], int8_token::int8_token_reduced,
        "per token, ±127, scale in the input's dtype (f32 for f16)"),
    fixed("int8_token_reduced_cutlass", "int8_token", AO_API, &[Int8], int8_token::int8_token_reduced_cutlass,
        "per token, ±127, scale in the input's dtype, f16 included (W4A8)"),
];
