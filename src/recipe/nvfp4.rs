//! NVFP4: e2m1 codes, an e4m3 scale for 16 elements, an f32 scale for the tensor.
//!
//! Sources: TransformerEngine, `transformer_engine/common/cast/nvfp4/core_nvfp4.cuh` and
//! `transformer_engine/pytorch/custom_recipes/reference_nvfp4.py`; torchao, `torchao/prototype/mx_formats/nvfp4_tensor.py`.

use super::tiles::{self, Nan};
use super::{Quantized, Recipe, mx};
use crate::quant::{Level, QTensorParts};
use crate::{Format, Granularity, Overflow, QTensor, Result, Rounding, Tensor};

fn e4m3(x: f32) -> f32 {
    let code = Format::E4m3.encode(f64::from(x), Rounding::NearestEven, Overflow::Saturate);
    Format::E4m3.decode(code) as f32
}

/// `fmin(x, FLT_MAX)`: a NaN becomes FLT_MAX.
fn at_most_max(x: f32) -> f32 {
    x.min(f32::MAX)
}

/// TransformerEngine NVFP4 (no random Hadamard transform, no stochastic rounding); 16×16 (weights) is shared with the transpose:
///
/// ```text
/// S = min(RN32(2688 / A), FLT_MAX), A the tensor's amax; S = 1 where A = 0 or S = 0 (A = Inf)
/// D = RN32(1/S)                                             global_scale_inv
/// b = Q_e4m3(min(RN32(amax · RN32(S · RN32(1/6))), FLT_MAX))  scale_inv of the tile
/// E = min(RN32(1 / RN32(b · D)), FLT_MAX)                   scale of the tile
/// q = e2m1(clamp(RN32(x·E), ±6))
/// ```
/// amax drops NaN; a NaN element becomes +6 (PTX `cvt.rn.satfinite.e2m1x2`).
pub fn te_nvfp4(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let granularity = recipe.granularity()?;
    let amax = tiles::amax(x, granularity, Nan::Ignored);
    let tensor_amax = amax.iter().fold(0f32, |m, a| m.max(*a));
    let global = at_most_max(448.0 * 6.0 / tensor_amax);
    let global = if tensor_amax == 0.0 || global == 0.0 { 1.0 } else { global };
    let global_scale_inv = 1.0 / global;
    let per_six = global * (1.0f32 / 6.0);
    let scale_inv: Vec<f32> = amax.iter().map(|a| e4m3(at_most_max(a * per_six))).collect();
    let scale: Vec<f32> = scale_inv.iter().map(|b| at_most_max(1.0 / (b * global_scale_inv))).collect();
    finish(recipe, x, granularity, scale, scale_inv, global_scale_inv, amax, None)
}

/// torchao NVFP4, 1×16, two levels:
///
/// ```text
/// t = RN32(A / 2688), A the tensor's amax                   global_scale_inv
/// b = Q_e4m3(clamp(RN32(RN32(amax / 6) / t), 2^-6, 448))    scale_inv of the tile
/// E = RN32(RN32(1 / t) / b)                                 scale of the tile
/// q = e2m1(clamp(RN32(x·E), ±6))
/// ```
/// NaN propagates through every step; a zero tensor gives t = 0 and so NaN.
pub fn ao_nvfp4(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let granularity = recipe.granularity()?;
    let amax = tiles::amax(x, granularity, Nan::Propagates);
    let tensor_amax = amax.iter().fold(0f32, |m, a| if *a > m || a.is_nan() { *a } else { m });
    let tensor_scale = tensor_amax / 2688.0;
    // f32::clamp keeps NaN, as torch.clamp.
    let scale_inv: Vec<f32> = amax.iter().map(|a| e4m3((a / 6.0 / tensor_scale).clamp(exp2m6(), 448.0))).collect();
    let scale: Vec<f32> = scale_inv.iter().map(|b| 1.0 / tensor_scale / b).collect();
    let nan_code = mx::torchao_nan_code(recipe.format);
    finish(recipe, x, granularity, scale, scale_inv, tensor_scale, amax, nan_code)
}

/// finfo(float8_e4m3fn).tiny.
fn exp2m6() -> f32 {
    tiles::exp2(-6)
}

#[allow(clippy::too_many_arguments)]
fn finish(
    recipe: &Recipe,
    x: &Tensor,
    granularity: Granularity,
    scale: Vec<f32>,
    scale_inv: Vec<f32>,
    global_scale_inv: f32,
    amax: Vec<f32>,
    nan_code: Option<u8>,
) -> Result<Quantized> {
    let codes = tiles::encode_scaled(recipe.format, Overflow::Saturate, x, granularity, &scale, nan_code)?;
    let level = Some(Level::whole(global_scale_inv));
    let q = QTensor::new(QTensorParts { level, ..tiles::parts(recipe, x, codes, scale_inv)? })?;
    Ok(Quantized { q, scale: Some(scale), amax })
}
