//! What each source does at the edges: zero, subnormal, infinite and NaN amax, reciprocals that overflow, clipping by design.
//! Each test names the file whose behaviour it states.

use qassay::recipe::{Quantized, Recipe, current, deepseek, float8, mx};
use qassay::{Format, Tensor, Zero};

const BF16: Format = Format::Bf16;
const F16: Format = Format::F16;
const F32: Format = Format::F32;

fn row(dtype: Format, values: &[f32]) -> Tensor {
    Tensor::rounded(dtype, 1, values.len(), values.to_vec()).unwrap()
}
fn quantize(recipe: &str, x: &Tensor) -> Quantized {
    recipe.parse::<Recipe>().unwrap().quantize(x).unwrap()
}
fn scale(out: &Quantized) -> f32 {
    out.scale.as_ref().unwrap()[0]
}

/// TransformerEngine common/recipe/recipe_common.cuh: amax 0, Inf (and a NaN alone, which fmaxf drops) give scale 1.
#[test]
fn te_current_scale_is_one_without_a_usable_amax() {
    for values in [[0.0, -0.0], [f32::INFINITY, 1.0], [f32::NAN, f32::NAN]] {
        for name in ["te_current", "te_current_pow2", "te_block_1x128", "te_block_128x128_fp32"] {
            assert_eq!(scale(&quantize(name, &row(F32, &values))), 1.0, "{name} {values:?}");
        }
    }
    // A NaN beside numbers leaves the scale alone and becomes a NaN code; Inf saturates.
    let out = quantize("te_current", &row(F32, &[f32::NAN, 7.0]));
    assert_eq!((scale(&out), out.q.codes()), (64.0, &[0x7f, 0x7e][..]));
    assert_eq!(quantize("te_current", &row(F32, &[f32::NEG_INFINITY, 1.0])).q.codes(), [0xfe, 0x38]);
}

/// TransformerEngine common/recipe/recipe_common.cuh: an infinite M/amax becomes FLT_MAX (current scaling) …
#[test]
fn te_current_subnormal_amax() {
    let out = quantize("te_current", &row(F32, &[1e-42]));
    assert_eq!(scale(&out), f32::MAX);
    // 1/FLT_MAX is the subnormal 0x00200000 (__frcp_rn does not flush it).
    assert_eq!(out.q.scale_inv()[0].to_bits(), 0x0020_0000);
    assert_eq!(scale(&quantize("te_current_pow2", &row(F32, &[1e-42]))), 2f32.powi(127));
}

/// … and the largest finite value of the input's dtype in quantize_transpose_vector_blockwise.cu.
#[test]
fn te_block_infinite_scale_is_the_dtypes_largest() {
    let bf16_max = f32::from_bits(0x7f7f_0000);
    assert_eq!(scale(&quantize("te_block_1x128_fp32", &row(BF16, &[1e-39]))), bf16_max);
    assert_eq!(scale(&quantize("te_block_1x128_fp32", &row(F32, &[1e-39]))), f32::MAX);
    assert_eq!(scale(&quantize("te_block_1x128", &row(BF16, &[1e-39]))), 2f32.powi(127));
    // No f16 has an amax so small; the function takes any.
    assert_eq!(current::scale_of_amax(1e-39, 448.0, 0.0, 65504.0, true), 2f32.powi(15));
    assert_eq!(current::scale_of_amax(0.5, 448.0, 1.0, f32::MAX, false), 448.0, "eps 1");
    assert!(current::scale_of_amax(f32::NAN, 448.0, 1.0, f32::MAX, false) == 1.0, "NaN is not below eps");
}

/// TransformerEngine quantize_transpose_vector_blockwise.cu: the mantissa is cleared, rounding the scale down, never up.
#[test]
fn te_block_power_of_two_scales_round_down() {
    for (amax, s) in [(448.0, 1.0), (449.0, 0.5), (447.0, 1.0), (3.5, 128.0), (3.4999, 128.0), (3.51, 64.0)] {
        assert_eq!(scale(&quantize("te_block_1x128", &row(F32, &[amax]))), s, "{amax}");
    }
}

/// TransformerEngine common/util/ptx_arch_spec.cuh: rounding up, 2^-127 for zero, 2^127 for Inf; amax = M·2^k does not spill.
#[test]
fn te_mxfp8_exponents() {
    for (format, max) in [("e4m3", 448f32), ("e5m2", 57344.0)] {
        let byte = |amax: f32| {
            let out = quantize(&format!("te_mxfp8:{format}"), &row(F32, &[amax]));
            out.q.scale_inv()[0].log2() as i32 + 127
        };
        assert_eq!(byte(0.0), 0);
        assert_eq!(byte(f32::INFINITY), 254);
        assert_eq!(byte(f32::NAN), 0, "a NaN alone leaves amax 0");
        for k in -100..100 {
            assert_eq!(byte(max * 2f32.powi(k)), k + 127, "{format} {k}");
            assert_eq!(byte(f32::from_bits((max * 2f32.powi(k)).to_bits() + 2)), k + 128, "{format} {k}");
        }
    }
    // Nothing finite clips: the largest scaled value is at most M.
    for ulp in -2000i32..2000 {
        let amax = f32::from_bits((448f32.to_bits() as i32 + ulp) as u32);
        let out = quantize("te_mxfp8", &row(F32, &[amax]));
        assert!(amax * scale(&out) <= 448.0, "{amax}");
    }
    assert_eq!(mx::e8m0_reciprocal(254).to_bits(), 0x0040_0000, "the subnormal 2^-127");
    assert_eq!(mx::e8m0_reciprocal(0), 2f32.powi(127));
    assert!(mx::e8m0_reciprocal(255).is_nan());
    assert_eq!((1.0f32 / 448.0).to_bits(), 0x3b12_4925);
    assert_eq!((1.0f32 / 57344.0).to_bits(), 0x3792_4925);
}

/// TransformerEngine common/cast/nvfp4/core_nvfp4.cuh: zero tensor S = 1; zero block b = 0, E = FLT_MAX, codes 0; Inf S = 1.
#[test]
fn te_nvfp4_edges() {
    let out = quantize("te_nvfp4", &row(F32, &[0.0; 16]));
    assert_eq!((out.q.global_scale_inv(), out.q.scale_inv()[0], scale(&out)), (Some(1.0), 0.0, f32::MAX));
    assert!(out.q.codes().iter().all(|c| *c == 0));
    let mut values = [0.0; 32];
    values[..16].fill(3.0);
    let out = quantize("te_nvfp4", &row(F32, &values));
    assert_eq!(out.q.scale_inv(), [448.0, 0.0]);
    assert_eq!((out.q.codes()[0], out.q.codes()[31]), (7, 0));
    assert_eq!(quantize("te_nvfp4", &row(F32, &[f32::INFINITY, 1.0])).q.global_scale_inv(), Some(1.0));
    // 2688/amax overflows: S is FLT_MAX, D its subnormal reciprocal.
    let out = quantize("te_nvfp4", &row(F32, &[1e-38]));
    assert_eq!(out.q.global_scale_inv().map(f32::to_bits), Some(0x0020_0000));
}

/// torchao prototype/mx_formats/nvfp4_tensor.py: block scales are clamped below at finfo(e4m3).tiny = 2^-6; a zero tensor
/// divides 0 by 0.
#[test]
fn torchao_nvfp4_edges() {
    let mut values = [0.0; 32];
    values[..16].fill(3.0);
    let out = quantize("ao_nvfp4", &row(BF16, &values));
    assert_eq!(out.q.scale_inv(), [448.0, 2f32.powi(-6)]);
    assert_eq!(out.q.global_scale_inv(), Some(3.0 / 2688.0));
    let out = quantize("ao_nvfp4", &row(F32, &[0.0; 16]));
    assert!(out.q.scale_inv()[0].is_nan() && out.q.global_scale_inv() == Some(0.0));
    let f16 = "ao_nvfp4".parse::<Recipe>().unwrap().quantize(&row(F16, &[1.0]));
    assert!(f16.unwrap_err().to_string().contains("bf16 and f32 only"));
}

/// torchao float8/float8_utils.py: eps 1e-12 in an f64 division.
#[test]
fn torchao_float8_edges() {
    let zero = row(BF16, &[0.0, 0.0]);
    assert_eq!(scale(&quantize("float8_tensorwise", &zero)), 447_999_985_582_080.0);
    assert_eq!(scale(&quantize("float8_rowwise", &zero)), 2f32.powi(48));
    // amax Inf: scale 0, finite values 0, Inf·0 a NaN, scale_inv Inf.
    for name in ["float8_tensorwise", "float8_rowwise"] {
        let out = quantize(name, &row(F32, &[f32::INFINITY, -2.0, 3.0]));
        assert_eq!((scale(&out), out.q.scale_inv()[0]), (0.0, f32::INFINITY), "{name}");
        assert_eq!(out.q.codes(), [0x7f, 0x80, 0x00], "{name}");
        // amax NaN: everything is NaN.
        let out = quantize(name, &row(F32, &[f32::NAN, 1.0]));
        assert!(scale(&out).is_nan() && out.q.codes().iter().all(|c| *c & 0x7f == 0x7f), "{name}");
    }
    // f64, then f32: not the f32 division.
    let twice_rounded = (0..200_000u32)
        .map(|i| f32::from_bits(0x3f80_0000 + i * 37))
        .filter(|a| float8::scale_of_amax(*a, Format::E4m3, false) != 448.0 / a);
    assert_eq!(twice_rounded.count(), 0, "the double rounding is harmless, so both agree away from the eps");
    assert_ne!(float8::scale_of_amax(1e-13, Format::E4m3, false), 448.0 / 1e-13);
}

/// torchao float8/float8_utils.py `_round_scale_down_to_power_of_2`: log2 in f32 reaches k for the last f32 below 2^k, more of
/// them the larger |k|; the counts are those of a correctly rounded log2f.
#[test]
fn torchao_power_of_two_window() {
    for (k, window) in
        [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (8, 2), (9, 5), (16, 5), (33, 22), (64, 22), (-3, 1), (-8, 5), (-20, 11)]
    {
        let power = 2f32.powi(k);
        let below = |n: u32| float8::round_down_to_power_of_two(f32::from_bits(power.to_bits() - n));
        assert_eq!(below(0), power);
        for n in 1..=window {
            assert_eq!(below(n), power, "2^{k} less {n} ulp");
        }
        assert_eq!(below(window + 1), power / 2.0, "2^{k} less {} ulp", window + 1);
    }
    assert_eq!(float8::round_down_to_power_of_two(0.0), 0.0);
    assert!(float8::round_down_to_power_of_two(f32::NAN).is_nan());
}

/// torchao quantization/quant_primitives.py `_choose_scale_float8`: no eps, so zero amax divides 0 by 0; the scale is rounded to
/// the input's dtype.
#[test]
fn torchao_float8_inference_edges() {
    let out = quantize("float8_inference", &row(BF16, &[0.0, 0.0]));
    assert_eq!((out.q.scale_inv()[0], out.q.codes()), (0.0, &[0x7f, 0x7f][..]));
    let out = quantize("float8_inference", &row(BF16, &[1.0, -1.0]));
    assert_eq!(out.q.scale_inv()[0], 0.002_227_783_2, "RNbf(1/448)");
    assert_eq!(out.q.codes(), [0x7e, 0xfe]);
}

/// torchao prototype/mx_formats/mx_tensor.py `to_mx`.
#[test]
fn torchao_mx_exponents() {
    use mx::ScaleMode::*;
    let byte = |amax: f32, format, mode| i32::from(mx::torchao_scale_byte(amax, format, mode)) - 127;
    let e4m3 = Format::E4m3;
    // 500 = 1.95·2^8: FLOOR clips it, CEIL and RCEIL do not, EVEN rounds 1.95 to 2.
    assert_eq!([Floor, Ceil, Even, Rceil].map(|m| byte(500.0, e4m3, m)), [0, 1, 1, 1]);
    assert_eq!([Floor, Ceil, Even, Rceil].map(|m| byte(448.0, e4m3, m)), [0, 1, 0, 0]);
    assert_eq!([Floor, Ceil, Even, Rceil].map(|m| byte(256.0, e4m3, m)), [0, 0, 0, 0]);
    // EVEN: half up at e4m3's 3 bits: 1.9375 carries, the f32 below does not.
    assert_eq!(byte(1.9375 * 256.0, e4m3, Even), 1);
    assert_eq!(byte(f32::from_bits((1.9375f32 * 256.0).to_bits() - 1), e4m3, Even), 0);
    for mode in [Floor, Ceil, Even, Rceil] {
        assert_eq!(byte(0.0, e4m3, mode), -127, "{mode:?}");
        assert_eq!(byte(1e-42, e4m3, mode), -127, "{mode:?}");
        assert_eq!(byte(f32::INFINITY, e4m3, mode), 128, "{mode:?}: 255 is NaN, unlike TransformerEngine's 254");
        assert_eq!(byte(f32::NAN, e4m3, mode), 128, "{mode:?}");
    }
    // EVEN carries FLT_MAX into Inf.
    assert_eq!([Floor, Ceil, Even].map(|m| byte(f32::MAX, e4m3, m)), [119, 120, 128]);
    let out = quantize("mx_floor", &row(F32, &[500.0, 464.0, -500.0]));
    assert_eq!(out.q.codes(), [0x7e, 0x7e, 0xfe], "clipped to 448");
    let out = quantize("mx_floor:e2m1", &row(F32, &[f32::NAN, 1.0]));
    assert!(out.q.scale_inv()[0].is_nan());
    assert_eq!(out.q.codes(), [3, 3], "custom_fp_utils.py: the bits of 0x7FC00001 cut to 8 by the normal branch");
}

/// DeepGEMM deep_gemm/utils/math.py: amax at least 1e-4; ue8m0 rounds up; nothing finite reaches the NaN past 464.
#[test]
fn deepseek_edges() {
    assert_eq!(quantize("deepseek_1x128", &row(BF16, &[0.0])).q.scale_inv()[0], 1e-4 / 448.0);
    assert_eq!(quantize("deepseek_1x128_ue8m0", &row(BF16, &[0.0])).q.scale_inv()[0], 2f32.powi(-22));
    assert_eq!(deepseek::ceil_to_ue8m0(1.0), 1.0);
    assert_eq!(deepseek::ceil_to_ue8m0(1.0000001), 2.0);
    assert_eq!(deepseek::ceil_to_ue8m0(1e-45), 2f32.powi(-126), "clamped to exponent field 1");
    assert_eq!(deepseek::ceil_to_ue8m0(f32::INFINITY), 2f32.powi(127));
    let out = quantize("deepseek_1x128", &row(F32, &[f32::INFINITY, 1.0]));
    assert_eq!(out.q.codes(), [0x7f, 0x00], "Inf·0 is NaN");
    for ulp in 0..5000u32 {
        let amax = f32::from_bits(0x4000_0000 + ulp * 1677);
        assert_eq!(quantize("deepseek_1x128", &row(F32, &[amax, -amax])).q.codes(), [0x7e, 0xfe], "{amax}");
    }
}

/// torchao quantization/quant_primitives.py, SYMMETRIC int4: 7.5 steps, so +amax rounds to 8 and clips to 7; −amax is −8.
/// SYMMETRIC_NO_CLIPPING_ERR does neither.
#[test]
fn affine_int4_clips_by_design() {
    let x = row(F32, &[3.0, -3.0, 1.0]);
    let out = quantize("affine_sym:int4", &x);
    assert_eq!((out.q.scale_inv()[0], out.q.codes()), (0.4, &[7, 8, 2][..]));
    let out = quantize("affine_symnc:int4", &x);
    assert_eq!((out.q.scale_inv()[0], out.q.codes()), (3.0 / 7.0, &[7, 0x9, 2][..]));
    let out = quantize("affine_sym:uint4", &x);
    assert_eq!((out.q.zero(), out.q.codes()), (&Zero::Integer(vec![8]), &[15, 0, 10][..]));
    assert_eq!(quantize("affine_sym:int8", &row(F32, &[1.0])).q.scale_inv()[0], 1.0 / 127.5);
}

/// torchao quantization/quant_primitives.py, ASYMMETRIC: the range always holds zero, which stays exact.
#[test]
fn affine_asymmetric_keeps_zero() {
    let out = quantize("affine_asym:uint4", &row(F32, &[1.0, 4.0, 0.0]));
    assert_eq!((out.q.scale_inv()[0], out.q.zero()), (4.0 / 15.0, &Zero::Integer(vec![0])));
    assert_eq!(out.q.value(0, 2), 0.0);
    let out = quantize("affine_asym:int8", &row(F32, &[-4.0, -1.0, 0.0]));
    assert_eq!((out.q.zero(), out.q.value(0, 2)), (&Zero::Integer(vec![127]), 0.0));
    // All zero: the scale is the eps, f32's as quant_api.py passes it.
    assert_eq!(quantize("affine_asym:int8", &row(F32, &[0.0])).q.scale_inv()[0], f32::EPSILON);
}

/// torchao quantization/quant_primitives.py, tinygemm: plain minimum and maximum, bf16 scale and zero.
#[test]
fn tinygemm_zero_is_in_real_units() {
    let out = quantize("tinygemm", &row(BF16, &[1.0, 4.0]));
    let Zero::Additive { zero, mid } = out.q.zero() else { panic!("{:?}", out.q.zero()) };
    assert_eq!((out.q.scale_inv()[0], zero[0], *mid), (0.200_195_31, 2.593_75, 8), "RNbf(3/15); 1 + 8·scale is a tie, to even");
    assert_eq!(out.q.codes(), [0, 15]);
}

/// The f16 hazard (torchao quantization/quant_api.py, `_int8_symm_per_token_reduced_range_quant_cutlass`, and int4 weights in
/// f16): the scale is at least 1e-5, whose f16 reciprocal is Inf.
#[test]
fn f16_reciprocal_overflow() {
    let zeros = row(F16, &[0.0, -0.0]);
    let out = quantize("int8_token_reduced_cutlass", &zeros);
    assert_eq!(out.q.scale_inv()[0], 1.001_358e-5);
    assert_eq!(out.q.codes(), [0, 0], "0·Inf is NaN; a NaN cast to int8 is 0 on x86");
    let small = row(F16, &[1.9e-3, -1e-5, 0.0]);
    assert_eq!(quantize("int8_token_reduced_cutlass", &small).q.codes(), [127, 0x81, 0], "every nonzero value is ±Inf");
    // One step above, the reciprocal is finite.
    assert_ne!(quantize("int8_token_reduced_cutlass", &row(F16, &[1.96e-3, -1e-5, 0.0])).q.codes(), [127, 0x81, 0]);
    // A scale in f32, or bf16, is immune.
    assert_eq!(quantize("int8_token_reduced", &small).q.codes()[1], 0xff);
    assert_eq!(quantize("int8_token_sym", &small).q.codes()[1], 0xff);
    assert_ne!(quantize("int8_token_reduced_cutlass", &row(BF16, &[1.9e-3, -1e-5, 0.0])).q.codes()[1], 0x81);
    // Weights: eps is f32's.
    assert_eq!(quantize("affine_sym:int4", &row(F16, &[1e-4, -1e-6])).q.codes(), [7, 8]);
    assert_ne!(quantize("affine_sym:int4", &row(F16, &[2e-4, -1e-6])).q.codes(), [7, 8]);
}

/// torchao quantization/quant_api.py: dtypes and eps of the four activation quantizers.
#[test]
fn int8_token_scales() {
    for (name, dtype, scale_format, zero_scale) in [
        ("int8_token_sym", F16, F32, 1.001_358e-5),
        ("int8_token_reduced", F16, F32, 1.001_358e-5),
        ("int8_token_reduced", BF16, BF16, 1.001_358e-5),
        ("int8_token_reduced_cutlass", F16, F16, 1.001_358e-5),
        ("int8_token_asym", F16, F32, 2f32.powi(-10)),
        ("int8_token_asym", BF16, F32, 2f32.powi(-7)),
        ("int8_token_asym", F32, F32, 2f32.powi(-23)),
    ] {
        let out = quantize(name, &row(dtype, &[0.0, 0.0]));
        assert_eq!((out.q.scale_format(), out.q.scale_inv()[0]), (scale_format, zero_scale), "{name} {dtype}");
    }
    let out = quantize("int8_token_asym", &row(F32, &[-1.0, 3.0, 0.0]));
    assert_eq!((out.q.scale_inv()[0], out.q.zero()), (4.0 / 255.0, &Zero::Integer(vec![-64])));
    assert_eq!(out.q.codes(), [(-128i8) as u8, 127, (-64i8) as u8]);
}

/// torchao quantization/quant_primitives.py (HQQ): the fitted zero point does better than the plain one on skewed weights,
/// and a constant group, whose range is zero, has the scale capped at 2e4.
#[test]
fn hqq_fits_its_zero_point() {
    let skewed: Vec<f32> =
        (0..512).map(|i| ((i * 37 % 101) as f32 / 50.0).exp2() * if i % 50 == 0 { 3.0 } else { 0.5 }).collect();
    let x = Tensor::new(F32, 4, 128, skewed).unwrap();
    let out = quantize("hqq", &x);
    // The plain zero point of the same scale: round(−min·s) as the iteration starts.
    let (mut fitted, mut plain) = (0f64, 0f64);
    for i in 0..4 {
        let min = x.row(i).iter().copied().fold(f32::INFINITY, f32::min);
        let s = 1.0 / f64::from(out.q.scale_inv()[i]);
        let z = (-f64::from(min) * s).round();
        for (j, v) in x.row(i).iter().enumerate() {
            let v = f64::from(*v);
            fitted += (out.q.value(i, j) - v).abs();
            plain += ((v * s + z).round().clamp(0.0, 15.0) - z - v * s).abs() / s;
        }
    }
    assert!(fitted < plain, "mean error {fitted} fitted, {plain} plain");
    let out = quantize("hqq", &row(F32, &[0.5; 8]));
    assert_eq!(out.q.scale_inv()[0], 1.0 / 2e4);
}
