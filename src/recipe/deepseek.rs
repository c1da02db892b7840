//! DeepSeek-style FP8: 1×128 activations, 128×128 weights.
//!
//! Source: DeepGEMM, `deep_gemm/utils/math.py` (`per_token_cast_to_fp8`, `per_block_cast_to_fp8`, `ceil_to_ue8m0`).

use super::tiles::{self, Nan};
use super::{Quantized, Recipe};
use crate::{Format, Overflow, QTensor, Result, Tensor};

/// The next power of two by bits: exponent + (mantissa ≠ 0), clamped to 1 … 254. Inf and NaN give 2^127.
pub fn ceil_to_ue8m0(x: f32) -> f32 {
    let bits = x.to_bits() & 0x7fff_ffff;
    let exponent = (bits >> 23) + u32::from(bits & 0x7f_ffff != 0);
    f32::from_bits(exponent.clamp(1, 254) << 23)
}

/// `A = max(amax, 1e-4)` (NaN propagates), `scale_inv = RN32(A / 448)`, rounded up to a power of two where scales are e8m0,
/// `q = e4m3(RN32(x · RN32(1/scale_inv)))` by the cast that does not saturate (nothing finite needs it: at most 448.00003).
pub fn deepseek(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let (granularity, scale_format) = (recipe.granularity()?, recipe.spec()?.scale_format(x.dtype()));
    let amax = tiles::amax(x, granularity, Nan::Propagates);
    let max = recipe.format.max_finite() as f32;
    let scale_inv: Vec<f32> = amax
        .iter()
        .map(|a| if *a < 1e-4 { 1e-4 } else { *a } / max)
        .map(|s| if scale_format == Format::E8m0 { ceil_to_ue8m0(s) } else { s })
        .collect();
    let scale: Vec<f32> = scale_inv.iter().map(|s| 1.0 / s).collect();
    let codes = tiles::encode_scaled(recipe.format, Overflow::Native, x, granularity, &scale, None)?;
    let q = QTensor::new(tiles::parts(recipe, x, codes, scale_inv)?)?;
    Ok(Quantized { q, scale: Some(scale), amax })
}
