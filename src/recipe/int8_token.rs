//! torchao's dynamic int8 activation quantization, one scale a token (row).
//!
//! Source: torchao, `torchao/quantization/quant_api.py` (`_int8_asymm_per_token_quant`, `_int8_symm_per_token_quant`,
//! `_int8_symm_per_token_reduced_range_quant`, `_int8_symm_per_token_reduced_range_quant_cutlass`) over
//! `torchao/quantization/quant_primitives.py`.

use super::affine::{self, Mapping, Rule};
use super::tiles;
use super::{Quantized, Recipe};
use crate::{Format, Granularity, Result, Tensor, Zero};

/// Scale chosen in the input's dtype with that dtype's eps (2^-10, 2^-7, 2^-23) and kept as float64, zero point int64:
/// `q = clamp(round(x · (1/scale)) + zero, −128, 127)` in f64. Every scale is a value of the input's dtype.
pub fn int8_token_asym(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let dtype = x.dtype();
    let eps = x.dtype().ulp(1.0) as f32;
    let rule = Rule { mapping: Mapping::Asymmetric, qmin: -128, qmax: 127, eps, scale_dtype: Format::F32 };
    let qparams: Vec<(f32, i32)> =
        tiles::min_max(x, Granularity::Row).into_iter().map(|(min, max)| affine::choose(dtype, min, max, &rule)).collect();
    let codes = tiles::encode(x, Granularity::Row, |tile, part, codes| {
        let (scale, zero) = qparams[tile];
        let reciprocal = 1.0 / f64::from(scale);
        for (code, v) in codes.iter_mut().zip(part) {
            let steps = (f64::from(*v) * reciprocal).round_ties_even() + f64::from(zero);
            // An integer within −128 … 127 after the clamp; NaN becomes 0.
            *code = steps.clamp(-128.0, 127.0) as i8 as u8;
        }
    });
    let (scale_inv, zero) = qparams.into_iter().unzip();
    affine::finish(recipe, x, Granularity::Row, Format::F32, codes, scale_inv, Zero::Integer(zero))
}

fn symmetric(recipe: &Recipe, x: &Tensor, scale_dtype: Format) -> Result<Quantized> {
    let rule = Rule { mapping: Mapping::Symmetric, qmin: -127, qmax: 127, eps: 1e-5, scale_dtype };
    affine::quantize(recipe, x, Granularity::Row, &rule, false)
}

/// ±127, eps 1e-5, scale in f32.
pub fn int8_token_sym(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    symmetric(recipe, x, Format::F32)
}
/// ±127, eps 1e-5, scale in f32 for f16 inputs, else in the input's dtype.
pub fn int8_token_reduced(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    let scale_dtype = if x.dtype() == Format::F16 { Format::F32 } else { x.dtype() };
    symmetric(recipe, x, scale_dtype)
}
/// ±127, eps 1e-5, scale in the input's dtype, f16 included (W4A8 with CUTLASS): an f16 row with amax below about 1.94e-3
/// has a reciprocal of Inf, so its zeros are NaN (code 0) and the rest ±127.
pub fn int8_token_reduced_cutlass(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    symmetric(recipe, x, x.dtype())
}
