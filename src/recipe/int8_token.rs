//! torchao's dynamic int8 activation quantization, one scale a token (row).
//!
//! Source: torchao, `torchao/quantization/quant_api.py` (`_int8_asymm_per_token_quant`, `_int8_symm_per_token_quant`,
//! `_int8_symm_per_token_reduced_range_quant`, `_int8_symm_per_token_reduced_range_quant_cutlass`) over
//! `torchao/quantization/quant_primitives.py`.

use super::affine::{self, AffineRule, Mapping};
use super::tiles;
use super::{Quantized, Recipe};
use crate::{Granularity, Result, Tensor, Zero};

/// Scale chosen in the input's dtype with that dtype's eps (2^-10, 2^-7, 2^-23) and kept as float64, zero point int64:
/// `q = clamp(round(x · (1/scale)) + zero, −128, 127)` in f64. Every scale is a value of the input's dtype.
pub fn int8_token_asym(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let dtype = x.dtype();
    let eps = x.dtype().ulp(1.0) as f32;
    let rule = AffineRule { mapping: Mapping::Asymmetric, qmin: -128, qmax: 127, eps };
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
    affine::finish(recipe, x, codes, scale_inv, Zero::Integer(zero))
}

/// ±127, eps 1e-5; the scale is stored in f32 (sym), in the input's dtype but for f16 (reduced), or in the input's dtype (reduced,
/// CUTLASS: W4A8). An f16 row with f16 scales and amax below about 1.94e-3 has a reciprocal of Inf, so its zeros are NaN (code 0) and the
/// rest ±127.
pub fn symmetric(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    let rule = AffineRule { mapping: Mapping::Symmetric, qmin: -127, qmax: 127, eps: 1e-5 };
    affine::quantize(recipe, x, &rule, false)
}
