//! torchao affine quantization of weights, and tinygemm's form with a zero point in real units. All arithmetic is in the
//! input's dtype, each operation rounded to it.
//!
//! Source: torchao, `torchao/quantization/quant_primitives.py` (`choose_qparams_affine`, `quantize_affine`) with the eps of
//! `torchao/quantization/quant_api.py` (int8 and int4 weights: the f32 eps; tinygemm: 1e-6). Divisions are divisions, as on
//! the CPU; PyTorch on CUDA divides by a host scalar with a product by its f32 reciprocal.

use super::tiles::{self, Nan};
use super::{Quantized, Recipe};
use crate::quant::QTensorParts;
use crate::tensor::round_to;
use crate::{Format, QTensor, Result, Tensor, Zero};

/// How minimum and maximum become scale and zero point; see [`choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    Symmetric,
    SymmetricNoClipping,
    Asymmetric,
}

/// The free parameters of integer affine quantization.
#[derive(Clone, Copy, Debug)]
pub struct AffineRule {
    pub mapping: Mapping,
    pub qmin: i32,
    pub qmax: i32,
    /// Smallest scale, rounded to the input's dtype.
    pub eps: f32,
}

/// The scale (before the cast to what it is stored in) and zero point of one tile, each operation rounded to `dtype`:
///
/// ```text
/// mn = min(min x, 0), mx = max(max x, 0)                         (NaN stays)
/// Symmetric             max(−mn, mx) / ((qmax − qmin)/2)         zero (qmax + qmin + 1)/2 toward 0
/// SymmetricNoClipping   smin = mn/qmin, smax = mx/qmax; smin if smin > smax else smax      same zero
/// Asymmetric            (mx − mn)/(qmax − qmin)                  zero clamp(qmin − round(mn/scale), qmin, qmax)
/// scale = max(scale, eps) before it is used                      (NaN stays)
/// ```
pub fn choose(dtype: Format, min: f32, max: f32, rule: &AffineRule) -> (f32, i32) {
    let rn = |v: f32| round_to(dtype, v);
    let mn = if min > 0.0 { 0.0 } else { min };
    let mx = if max < 0.0 { 0.0 } else { max };
    let (qmin, qmax) = (rule.qmin as f32, rule.qmax as f32);
    let scale = match rule.mapping {
        Mapping::Symmetric => rn(torch_max(-mn, mx) / ((qmax - qmin) / 2.0)),
        Mapping::SymmetricNoClipping => {
            let (smin, smax) = (rn(mn / qmin), rn(mx / qmax));
            if smin > smax { smin } else { smax }
        }
        Mapping::Asymmetric => rn(rn(mx - mn) / (qmax - qmin)),
    };
    let eps = rn(rule.eps);
    let scale = if scale < eps { eps } else { scale };
    let zero = match rule.mapping {
        Mapping::Asymmetric => rn(qmin - rn(mn / scale).round_ties_even()).clamp(qmin, qmax) as i32,
        _ => (rule.qmax + rule.qmin + 1) / 2,
    };
    (scale, zero)
}

/// `torch.max` of two: a NaN wins.
fn torch_max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// PyTorch's result dtype of an operation on two tensors of these dtypes.
pub(super) fn promote(a: Format, b: Format) -> Format {
    if a == b { a } else { Format::F32 }
}

/// An integer code, two's complement in the low bits; NaN gives 0.
pub(super) fn integer_code(format: Format, value: f32, qmin: i32, qmax: i32) -> u8 {
    let n = value.clamp(qmin as f32, qmax as f32) as i32;
    (n & ((1 << format.bits()) - 1)) as u8
}

/// `q = clamp(round(x · (1/scale)) + zero, qmin, qmax)`: the reciprocal rounded to the scale's dtype, product and sum to the
/// promoted dtype, ties to even. With f16 scales below 2^-16 the reciprocal is Inf: 0·Inf is NaN (code 0), the rest ±Inf.
pub(super) fn quantize(recipe: &Recipe, x: &Tensor, rule: &AffineRule, with_zero: bool) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let (dtype, granularity) = (x.dtype(), recipe.granularity()?);
    let scale_dtype = recipe.spec()?.scale_format(dtype);
    let qparams: Vec<(f32, i32)> = tiles::min_max(x, granularity)
        .into_iter()
        .map(|(min, max)| choose(dtype, min, max, rule))
        .map(|(scale, zero)| (round_to(scale_dtype, scale), zero))
        .collect();
    let op = promote(dtype, scale_dtype);
    let codes = tiles::encode(x, granularity, |tile, part, codes| {
        let (scale, zero) = qparams[tile];
        let reciprocal = round_to(scale_dtype, 1.0 / scale);
        for (code, v) in codes.iter_mut().zip(part) {
            let steps = round_to(op, v * reciprocal).round_ties_even();
            // The sum is rounded too: up to 256 it is exact in every dtype, and beyond it clips either way.
            *code = integer_code(recipe.format, steps + zero as f32, rule.qmin, rule.qmax);
        }
    });
    let zero = match with_zero {
        true => Zero::Integer(qparams.iter().map(|p| p.1).collect()),
        false => Zero::None,
    };
    let scale_inv = qparams.iter().map(|p| p.0).collect();
    finish(recipe, x, codes, scale_inv, zero)
}

pub(super) fn finish(recipe: &Recipe, x: &Tensor, codes: Vec<u8>, scale_inv: Vec<f32>, zero: Zero) -> Result<Quantized> {
    let q = QTensor::new(QTensorParts { zero, ..tiles::parts(recipe, x, codes, scale_inv)? })?;
    Ok(Quantized { q, scale: None, amax: tiles::amax(x, recipe.granularity()?, Nan::Propagates) })
}

fn weights(recipe: &Recipe, x: &Tensor, mapping: Mapping) -> Result<Quantized> {
    let (qmin, qmax) = (recipe.format.min_finite() as i32, recipe.format.max_finite() as i32);
    let rule = AffineRule { mapping, qmin, qmax, eps: f32::EPSILON };
    let with_zero = mapping == Mapping::Asymmetric || recipe.format == Format::Uint4;
    quantize(recipe, x, &rule, with_zero)
}

/// SYMMETRIC, full range of the format: int4 divides by 7.5, so +amax is 7.5 steps, rounds to 8 and clips to 7. int4 with
/// the whole row as group is the weight of W4A8 (`int8_dynamic_activation_int4_weight`). uint4 has the zero point 8.
pub fn affine_sym(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    weights(recipe, x, Mapping::Symmetric)
}
/// SYMMETRIC_NO_CLIPPING_ERR.
pub fn affine_symnc(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    weights(recipe, x, Mapping::SymmetricNoClipping)
}
/// ASYMMETRIC with an integer zero point; zero is kept exactly.
pub fn affine_asym(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    weights(recipe, x, Mapping::Asymmetric)
}

/// tinygemm (`int4_weight_only`): uint4, zero point in real units, scale and zero in bf16:
///
/// ```text
/// scale = max((max − min)/15, 1e-6), zero = min + scale·8      in the input's dtype, then both to bf16
/// q = clamp(round((x − (zero − scale·8)) / scale), 0, 15)       zero − scale·8 in bf16, the rest in the promoted dtype
/// ```
/// Minimum and maximum are the plain ones (zero is not preserved).
pub fn tinygemm(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let granularity = recipe.granularity()?;
    let (dtype, bf16) = (x.dtype(), Format::Bf16);
    let rn = |v: f32| round_to(dtype, v);
    let (mut scale_inv, mut zero) = (Vec::new(), Vec::new());
    for (min, max) in tiles::min_max(x, granularity) {
        let scale = rn(rn(max - min) / 15.0);
        let scale = if scale < rn(1e-6) { rn(1e-6) } else { scale };
        scale_inv.push(round_to(bf16, scale));
        zero.push(round_to(bf16, rn(min + rn(scale * 8.0))));
    }
    let op = promote(dtype, bf16);
    let codes = tiles::encode(x, granularity, |tile, part, codes| {
        let scale = scale_inv[tile];
        let low = round_to(bf16, zero[tile] - round_to(bf16, scale * 8.0));
        for (code, v) in codes.iter_mut().zip(part) {
            let steps = round_to(op, round_to(op, v - low) / scale).round_ties_even();
            *code = integer_code(recipe.format, steps, 0, 15);
        }
    });
    finish(recipe, x, codes, scale_inv, Zero::Additive { zero, mid: recipe.spec()?.mid })
}
