//! TransformerEngine current scaling, per tensor and blockwise: one function from amax to scale.
//!
//! Source: TransformerEngine, `transformer_engine/common/recipe/recipe_common.cuh` and `current_scaling.cu` (per tensor),
//! `common/transpose/quantize_transpose_{vector,square}_blockwise.cu` (1×128, 128×128).

use super::tiles::{self, Nan};
use super::{Quantized, Recipe};
use crate::{Result, Tensor};

/// The scale of an amax:
///
/// ```text
/// amax < eps: amax = eps                     (a NaN stays)
/// amax is Inf, NaN or 0: s = 1               (no power-of-two step)
/// else s = RN32(M / amax); Inf becomes `infinite`; pow2 clears the 23 mantissa bits (rounds toward 0)
/// ```
pub fn scale_of_amax(amax: f32, max_finite: f32, eps: f32, infinite: f32, pow2: bool) -> f32 {
    let amax = if amax < eps { eps } else { amax };
    if !amax.is_finite() || amax == 0.0 {
        return 1.0;
    }
    let scale = max_finite / amax;
    let scale = if scale.is_infinite() { infinite } else { scale };
    if pow2 { f32::from_bits(scale.to_bits() & !0x007f_ffff) } else { scale }
}

/// Scales are `scale_of_amax` of each tile, q = Q(RN32(x·s)) saturating, scale_inv = RN32(1/s) (`__frcp_rn`).
fn quantize(recipe: &Recipe, x: &Tensor, infinite: f32, pow2: bool) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let amax = tiles::amax(x, recipe.granularity()?, Nan::Ignored);
    let max = recipe.format.max_finite() as f32;
    let scale: Vec<f32> = amax.iter().map(|a| scale_of_amax(*a, max, 0.0, infinite, pow2)).collect();
    quantize_with_scale(recipe, x, scale, amax)
}

/// The cast that all TransformerEngine FP8 recipes share: q = Q(RN32(x·s)) saturating, scale_inv = RN32(1/s).
pub(super) fn quantize_with_scale(recipe: &Recipe, x: &Tensor, scale: Vec<f32>, amax: Vec<f32>) -> Result<Quantized> {
    let q = tiles::quantized(recipe, x, &scale, scale.iter().map(|s| 1.0 / s).collect())?;
    Ok(Quantized { q, scale: Some(scale), amax })
}

/// The largest finite value of the input's dtype: what blockwise recipes put for an infinite scale.
fn dtype_max(x: &Tensor) -> f32 {
    x.dtype().max_finite() as f32
}

/// An infinite scale (subnormal amax) becomes FLT_MAX.
pub fn te_current(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    quantize(recipe, x, f32::MAX, false)
}
/// Scale rounded down to a power of two (NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES).
pub fn te_current_pow2(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    quantize(recipe, x, f32::MAX, true)
}
/// Power-of-two scales; an infinite scale becomes the largest of the input's dtype, then a power of two. Square tiles are shared with
/// the transpose.
pub fn te_block(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    quantize(recipe, x, dtype_max(x), true)
}
/// f32 scales (NVTE_FP8_BLOCK_SCALING_FP32_SCALES).
pub fn te_block_fp32(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    quantize(recipe, x, dtype_max(x), false)
}
