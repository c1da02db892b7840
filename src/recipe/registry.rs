//! The const list of recipes.

use super::device::{Mapping, Rule, TokenRule};
use super::*;

use Format::{E2m1, E2m3, E3m2, E4m3, E4m3Fnuz, E5m2, E5m2Fnuz, Int4, Int8, Nf4, Uint4};

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
const AO_HQQ: &str = "torchao 36027d82d (after v0.18) quantization/quant_primitives.py";
const AO_INFERENCE: &str = "torchao v0.18 quantization/quant_primitives.py";
const AO_API: &str = "torchao v0.8 (e1d79bcb1) quantization/quant_api.py";
const DEEPGEMM: &str = "DeepGEMM 54e2261 deep_gemm/utils/math.py";
const BITSANDBYTES: &str = "bitsandbytes v0.50.2 backends/default/ops.py";
const LLAMA_CPP: &str = "llama.cpp 01243c5 ggml/src/ggml-quants.c";
const AUTOAWQ: &str = "AutoAWQ v0.2.9 awq/quantize/quantizer.py, white calibration inputs";

type Quantize = fn(&Recipe, &Tensor) -> Result<Quantized>;

const TENSOR: Granularity = Granularity::Tensor;
const ROW: Granularity = Granularity::Row;
const fn line(n: usize) -> Granularity {
    Granularity::Group(n)
}
const fn square(n: usize) -> Granularity {
    Granularity::Block { rows: n, cols: n }
}

/// A recipe with f32 scales, computed in f32, of each tile by itself.
const fn fixed(
    name: &'static str,
    granularity: Granularity,
    formats: &'static [Format],
    source: &'static str,
    quantize: Quantize,
    help: &'static str,
) -> RecipeSpec {
    RecipeSpec {
        name,
        source,
        help,
        formats,
        granularity: Some(granularity),
        default_group: None,
        scale_format: Dtype::Fixed(Format::F32),
        mid: 0,
        separable: !matches!(granularity, Granularity::Tensor),
        history: false,
        computed_in: Dtype::Fixed(Format::F32),
        fitted: false,
        takes_f16: true,
        device: None,
        quantize,
    }
}

/// An affine recipe of torchao: a free group, all in the input's dtype.
const fn affine(
    name: &'static str,
    default_group: Option<usize>,
    formats: &'static [Format],
    source: &'static str,
    quantize: Quantize,
    help: &'static str,
) -> RecipeSpec {
    let scale_format = Dtype::OfInput;
    RecipeSpec {
        granularity: None,
        default_group,
        scale_format,
        computed_in: Dtype::OfInput,
        ..fixed(name, ROW, formats, source, quantize, help)
    }
}

impl RecipeSpec {
    const fn stored_in(self, scale_format: Dtype) -> Self {
        Self { scale_format, ..self }
    }
    const fn e8m0(self) -> Self {
        self.stored_in(Dtype::Fixed(Format::E8m0))
    }
    /// e4m3 scales under an f32 scale of the whole tensor.
    const fn two_levels(self) -> Self {
        Self { separable: false, ..self.stored_in(Dtype::Fixed(Format::E4m3)) }
    }
    const fn scale_rule(self, rule: Rule, pow2: bool) -> Self {
        Self { device: Some(DeviceRule::Scale { rule, pow2 }), ..self }
    }
    const fn mx(self, rule: Rule) -> Self {
        self.scale_rule(rule, true)
    }
    const fn no_f16(self) -> Self {
        Self { takes_f16: false, ..self }
    }
    const fn token(self, scale_format: Dtype, rule: TokenRule) -> Self {
        Self { scale_format, computed_in: Dtype::OfInput, device: Some(DeviceRule::Token(rule)), ..self }
    }
    const fn mapping(self, mapping: Mapping) -> Self {
        Self { device: Some(DeviceRule::Affine(mapping)), ..self }
    }
    const fn about(self, mid: i32) -> Self {
        Self { mid, ..self }
    }
}

/// Every recipe.
#[rustfmt::skip]
pub const RECIPES: &[RecipeSpec] = &[
    RecipeSpec { history: true, ..fixed("te_delayed", TENSOR, FP8, "TransformerEngine v2.20 (d0067d0) common/recipe/delayed_scaling.cu", delayed::te_delayed,
        "per tensor, scale from the amaxes of earlier steps (here: three quarters of the rows)") },
    fixed("te_current", TENSOR, FP8, TE_CURRENT, current::te_current, "per tensor, scale M/amax").scale_rule(Rule::Te, false),
    fixed("te_current_pow2", TENSOR, FP8, TE_CURRENT, current::te_current_pow2,
        "per tensor, scale M/amax rounded down to a power of two").scale_rule(Rule::Te, true),
    fixed("te_block_1x128", line(128), FP8, TE_VECTOR, current::te_block, "1×128, power-of-two scales").scale_rule(Rule::Te, true),
    fixed("te_block_1x128_fp32", line(128), FP8, TE_VECTOR, current::te_block_fp32, "1×128, f32 scales").scale_rule(Rule::Te, false),
    fixed("te_block_128x128", square(128), FP8, TE_SQUARE, current::te_block, "128×128, power-of-two scales").scale_rule(Rule::Te, true),
    fixed("te_block_128x128_fp32", square(128), FP8, TE_SQUARE, current::te_block_fp32, "128×128, f32 scales").scale_rule(Rule::Te, false),
    fixed("te_mxfp8", line(32), FP8, TE_MXFP8, mx::te_mxfp8, "1×32, e8m0 scales rounded up (32×1: of the transposed tensor)").e8m0().mx(Rule::TeMxfp8),
    fixed("te_mxfp8_32x32", square(32), FP8, TE_MXFP8, mx::te_mxfp8, "32×32, e8m0 scales rounded up").e8m0().mx(Rule::TeMxfp8),
    fixed("te_nvfp4", line(16), &[E2m1], TE_NVFP4, nvfp4::te_nvfp4, "1×16, e4m3 scales under an f32 scale of the tensor").two_levels().mx(Rule::TeNvfp4),
    fixed("te_nvfp4_16x16", square(16), &[E2m1], TE_NVFP4, nvfp4::te_nvfp4,
        "16×16, e4m3 scales under an f32 scale of the tensor").two_levels().mx(Rule::TeNvfp4),
    fixed("float8_tensorwise", TENSOR, FP8_ALL, AO_FLOAT8, float8::float8, "per tensor, eps 1e-12").scale_rule(Rule::Torchao, false),
    fixed("float8_rowwise", ROW, FP8_ALL, AO_FLOAT8, float8::float8_pow2, "per row, power-of-two scales").scale_rule(Rule::Torchao, true),
    fixed("float8_rowwise_gw_hp", ROW, FP8_ALL, AO_FLOAT8, float8::float8,
        "per row, f32 scales (rowwise_with_gw_hp of v0.11)").scale_rule(Rule::Torchao, false),
    fixed("float8_inference", TENSOR, FP8_ALL, AO_INFERENCE, float8::inference,
        "per tensor, scale_inv amax/M in the input's dtype, elements divided").scale_rule(Rule::TorchaoInference, false),
    fixed("float8_inference_row", ROW, FP8_ALL, AO_INFERENCE, float8::inference,
        "per row, scale_inv amax/M in the input's dtype, elements divided").scale_rule(Rule::TorchaoInference, false),
    fixed("mx_floor", line(32), MX, AO_MX, mx::mx_floor, "1×32, exponent of amax rounded down: the top of the range clips").e8m0().no_f16().mx(Rule::MxFloor),
    fixed("mx_ceil", line(32), MX, AO_MX, mx::mx_ceil, "1×32, exponent of amax rounded up").e8m0().no_f16().mx(Rule::MxCeil),
    fixed("mx_even", line(32), MX, AO_MX, mx::mx_even, "1×32, exponent of amax after rounding its mantissa to the format's").e8m0().no_f16().mx(Rule::MxEven),
    fixed("mx_rceil", line(32), MX, AO_MX, mx::mx_rceil, "1×32, amax/M rounded up to a power of two").e8m0().no_f16().mx(Rule::MxRceil),
    fixed("mx_floor_v018", line(32), MX, AO_MX_V018, mx::mx_floor_v018, "mx_floor as released: another byte 0, amax Inf and NaN").e8m0().no_f16(),
    fixed("mx_ceil_v018", line(32), MX, AO_MX_V018, mx::mx_ceil_v018, "mx_ceil as released: another byte 0, amax Inf and NaN").e8m0().no_f16(),
    fixed("mx_even_v018", line(32), MX, AO_MX_V018, mx::mx_even_v018, "mx_even as released: another byte 0, amax near 2^128, Inf and NaN").e8m0().no_f16(),
    fixed("mx_rceil_v018", line(32), MX, AO_MX_V018, mx::mx_rceil_v018, "mx_rceil as released, by log2: ulps above a power of two count as it").e8m0().no_f16(),
    fixed("ao_nvfp4", line(16), &[E2m1], "torchao v0.17, v0.18 prototype/mx_formats/nvfp4_tensor.py", nvfp4::ao_nvfp4,
        "1×16, e4m3 scales of at least 2^-6 under an f32 scale of the tensor").two_levels().no_f16().mx(Rule::TorchaoNvfp4),
    fixed("deepseek_1x128", line(128), &[E4m3], DEEPGEMM, deepseek::deepseek, "1×128, f32 scales, amax at least 1e-4").scale_rule(Rule::Deepgemm, false),
    fixed("deepseek_1x128_ue8m0", line(128), &[E4m3], DEEPGEMM, deepseek::deepseek, "1×128, scales rounded up to powers of two").e8m0().scale_rule(Rule::Deepgemm, true),
    fixed("deepseek_128x128", square(128), &[E4m3], DEEPGEMM, deepseek::deepseek, "128×128, f32 scales").scale_rule(Rule::Deepgemm, false),
    fixed("deepseek_128x128_ue8m0", square(128), &[E4m3], DEEPGEMM, deepseek::deepseek, "128×128, scales rounded up to powers of two").e8m0().scale_rule(Rule::Deepgemm, true),
    affine("affine_sym", None, INTEGERS, AO_PRIMITIVES, affine::affine_sym, "amax/((qmax−qmin)/2): int4 divides by 7.5, +amax clips").mapping(Mapping::Symmetric),
    affine("affine_symnc", None, INTEGERS, AO_PRIMITIVES, affine::affine_symnc, "larger of min/qmin and max/qmax: nothing clips").mapping(Mapping::SymmetricNoClip),
    affine("affine_asym", None, INTEGERS, AO_PRIMITIVES, affine::affine_asym, "(max−min)/(qmax−qmin), integer zero point").mapping(Mapping::Asymmetric),
    affine("tinygemm", Some(128), &[Uint4], AO_PRIMITIVES, affine::tinygemm, "uint4, bf16 scale and zero point in real units")
        .stored_in(Dtype::Fixed(Format::Bf16)).about(8).mapping(Mapping::Tinygemm),
    // The iteration stops by the error of the whole tensor.
    RecipeSpec { separable: false, fitted: true, ..affine("hqq", Some(128), &[Uint4], AO_HQQ, hqq::hqq,
        "uint4, zero point fitted by half-quadratic iterations (not bit-portable upstream)").stored_in(Dtype::Fixed(Format::F32)).about(8) },
    RecipeSpec { computed_in: Dtype::Fixed(Format::F16), fitted: true, ..affine("awq", Some(128), &[Uint4], AUTOAWQ, awq::awq,
        "uint4, f16 scales, integer zero point, range clipped where the squared error is least") }.stored_in(Dtype::Fixed(Format::F16)),
    RecipeSpec { fitted: true, ..fixed("gguf_q4_k", line(32), &[Uint4], LLAMA_CPP, gguf::q4_k,
        "uint4, 1×32, scales and minima of six bits under two f16 of 1×256, fitted by least squares") }.stored_in(Dtype::Fixed(Format::Uint6)),
    RecipeSpec { granularity: None, default_group: Some(64), ..fixed("bnb_nf4", ROW, &[Nf4], BITSANDBYTES, bitsandbytes::nf4,
        "NormalFloat: the nearest of 16 values, absmax of each block in f32") },
    fixed("int8_token_sym", ROW, &[Int8], AO_API, int8_token::symmetric, "per token, ±127, f32 scale").token(Dtype::Fixed(Format::F32), TokenRule::InF32),
    fixed("int8_token_asym", ROW, &[Int8], AO_API, int8_token::int8_token_asym,
        "per token, −128…127, integer zero point, arithmetic in f64").token(Dtype::Fixed(Format::F32), TokenRule::Shifted),
    fixed("int8_token_reduced", ROW, &[Int8], AO_API, int8_token::symmetric,
        "per token, ±127, scale in the input's dtype (f32 for f16)").token(Dtype::OfInputNotF16, TokenRule::OwnType),
    fixed("int8_token_reduced_cutlass", ROW, &[Int8], AO_API, int8_token::symmetric,
        "per token, ±127, scale in the input's dtype, f16 included (W4A8)").token(Dtype::OfInput, TokenRule::OwnType),
];
