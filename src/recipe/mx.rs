//! Microscaling (OCP MX): a power-of-two scale in e8m0 for 32 elements. TransformerEngine's MXFP8, and torchao's four ways
//! to choose the exponent.
//!
//! Sources: TransformerEngine, `transformer_engine/common/cast/mxfp8/quantize_mxfp8.cuh` and `common/util/ptx_arch_spec.cuh`;
//! torchao, `torchao/prototype/mx_formats/mx_tensor.py` and `torchao/prototype/custom_fp_utils.py`.

use super::tiles::{self, Nan};
use super::{Quantized, Recipe};
use crate::quant::QTensorParts;
use crate::{Error, Format, Granularity, Overflow, QTensor, Result, Rounding, Tensor, Zero};

/// 2^(127−byte), the reciprocal of an e8m0 scale as f32: 2^127 for byte 0, the subnormal 2^-127 for 254, NaN for 255.
pub fn e8m0_reciprocal(byte: u8) -> f32 {
    if byte == 255 { f32::NAN } else { tiles::exp2(127 - i32::from(byte)) }
}

/// `(scale, scale_inv)` over the tiles of e8m0 bytes.
fn scales(bytes: &[u8]) -> (Vec<f32>, Vec<f32>) {
    let scale = bytes.iter().map(|b| e8m0_reciprocal(*b)).collect();
    (scale, bytes.iter().map(|b| Format::E8m0.decode(u32::from(*b)) as f32).collect())
}

fn finish(
    recipe: &Recipe,
    x: &Tensor,
    granularity: Granularity,
    bytes: &[u8],
    amax: Vec<f32>,
    nan_code: Option<u8>,
) -> Result<Quantized> {
    let (scale, scale_inv) = scales(bytes);
    let codes = tiles::encode_scaled(recipe.format, Overflow::Saturate, x, granularity, &scale, nan_code)?;
    let q = QTensor::new(QTensorParts {
        format: recipe.format,
        rows: x.rows(),
        cols: x.cols(),
        codes,
        granularity,
        scale_format: Format::E8m0,
        scale_inv,
        zero: Zero::None,
        global_scale_inv: None,
    })?;
    Ok(Quantized { q, scale: Some(scale), amax })
}

/// `e = e8m0_up(RN32(amax · RN32(1/M)))`, `q = Q(RN32(x · 2^(127−e)))` saturating. amax drops NaN; Inf gives byte 254; zero
/// gives byte 0. Rounded up, so nothing finite clips.
fn te_mxfp8_tiles(recipe: &Recipe, x: &Tensor, granularity: Granularity) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let amax = tiles::amax(x, granularity, Nan::Ignored);
    let reciprocal = 1.0 / recipe.format.max_finite() as f32;
    let byte = |a: &f32| Format::E8m0.encode(f64::from(a * reciprocal), Rounding::Up, Overflow::Saturate) as u8;
    let bytes: Vec<u8> = amax.iter().map(byte).collect();
    finish(recipe, x, granularity, &bytes, amax, None)
}

/// TransformerEngine MXFP8, 1×32. The 32×1 copy is this on the transposed tensor.
pub fn te_mxfp8(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    te_mxfp8_tiles(recipe, x, Granularity::Group(32))
}
/// TransformerEngine MXFP8 with one exponent for 32×32 (weights); shared with the transpose.
pub fn te_mxfp8_32x32(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    te_mxfp8_tiles(recipe, x, Granularity::Block { rows: 32, cols: 32 })
}

/// torchao's `ScaleCalculationMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleMode {
    /// E = p − emax; values in (M, 2^(emax+1)) clip.
    Floor,
    /// E = p + \[mantissa ≠ 0\] − emax.
    Ceil,
    /// E = p(amax rounded to the format's mantissa, half up) − emax.
    Even,
    /// byte = e8m0 rounded up of RN32(amax · RN32(1/M)).
    Rceil,
}

/// The e8m0 byte of a tile's amax (f32, NaN propagated), with p the exponent field of amax less 127 (−127 for zero and
/// subnormals) and emax the exponent of the format's maximum. Non-finite gives 255. EVEN's addition may carry into Inf.
/// Without RCEIL the exponent is clamped to −127 … 128.
pub fn torchao_scale_byte(amax: f32, format: Format, mode: ScaleMode) -> u8 {
    let max = format.max_finite() as f32;
    if mode == ScaleMode::Rceil {
        let descale = amax * (1.0 / max);
        if !descale.is_finite() {
            return 255;
        }
        let (exponent, mantissa) = ((descale.to_bits() >> 23) & 0xff, descale.to_bits() & 0x7f_ffff);
        let up = if exponent == 0 { mantissa > 0x40_0000 } else { mantissa != 0 };
        return (exponent + u32::from(up)) as u8;
    }
    let rounded = match mode {
        ScaleMode::Even if !amax.is_nan() => {
            f32::from_bits((amax.to_bits() + (1 << (22 - format.spec().mantissa))) & 0xff80_0000)
        }
        _ => amax,
    };
    if !rounded.is_finite() {
        return 255;
    }
    let p = ((rounded.to_bits() >> 23) & 0xff) as i32 - 127;
    let up = i32::from(mode == ScaleMode::Ceil && rounded.to_bits() & 0x7f_ffff != 0);
    let emax = ((max.to_bits() >> 23) & 0xff) as i32 - 127;
    ((p + up - emax).clamp(-127, 128) + 127) as u8
}

/// The code that torchao's bit path (`_f32_to_fpx_unpacked`) makes of a NaN where the format has none: the quiet NaN
/// 0x7FC00001 that x86 leaves of the scale's 0x7F800001 takes the branch of normal numbers and is cut to 8 bits. Other
/// devices make other NaNs and so other codes; the scale (byte 255) makes the value NaN in any case.
pub(super) fn torchao_nan_code(format: Format) -> Option<u8> {
    match format {
        Format::E2m1 => Some(0x03),
        Format::E2m3 => Some(0x0c),
        Format::E3m2 => Some(0x0e),
        _ => None,
    }
}

fn torchao_mx(recipe: &Recipe, x: &Tensor, mode: ScaleMode) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    if x.dtype() == Format::F16 {
        return Err(Error::unsupported(format!("recipe {recipe}"), "torchao's to_mx takes bf16 and f32 only"));
    }
    let granularity = Granularity::Group(32);
    let amax = tiles::amax(x, granularity, Nan::Propagates);
    let bytes: Vec<u8> = amax.iter().map(|a| torchao_scale_byte(*a, recipe.format, mode)).collect();
    finish(recipe, x, granularity, &bytes, amax, torchao_nan_code(recipe.format))
}

/// torchao MX, FLOOR (its default).
pub fn mx_floor(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Floor)
}
/// torchao MX, CEIL.
pub fn mx_ceil(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Ceil)
}
/// torchao MX, EVEN.
pub fn mx_even(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Even)
}
/// torchao MX, RCEIL.
pub fn mx_rceil(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Rceil)
}
