//! Microscaling (OCP MX): a power-of-two scale in e8m0 for 32 elements. TransformerEngine's MXFP8, and torchao's four ways
//! to choose the exponent.
//!
//! Sources: TransformerEngine, `transformer_engine/common/cast/mxfp8/quantize_mxfp8.cuh` and `common/util/ptx_arch_spec.cuh`;
//! torchao, `torchao/prototype/mx_formats/mx_tensor.py` and `torchao/prototype/custom_fp_utils.py`.
//!
//! torchao has two rules in use. `mx_*` follow its revision 36027d82d, after v0.18; `mx_*_v018` what the releases v0.12 to v0.18 do.
//! They differ in
//!
//! | where | 36027d82d | v0.12 … v0.18 |
//! |---|---|---|
//! | byte 0, elements times | 2^127 | 2^126 (FLOOR, CEIL, EVEN: the scale is at least f32's smallest normal number), 1 (RCEIL) |
//! | amax Inf | byte 255 | 255 − emax (FLOOR, CEIL, EVEN), 254 (RCEIL) |
//! | EVEN, where the rounded amax reaches 2^128 | byte 255 | 255 − emax |
//! | RCEIL | RN32(amax·RN32(1/M)) rounded up | ⌈RN32(log₂ RN32(amax/M))⌉: up to 22 ulp above a power of two count as that power |
//! | amax NaN, elements times | NaN | 0 (FLOOR, CEIL, EVEN: divided by Inf), NaN (RCEIL in v0.18; 2^-128 before). Byte 255 makes all of them NaN |

use super::tiles::{self, Nan};
use super::{Quantized, Recipe};
use crate::{Format, Granularity, Overflow, QTensor, Result, Rounding, Tensor};

/// 2^(127−byte), the reciprocal of an e8m0 scale as f32: 2^127 for byte 0, the subnormal 2^-127 for 254, NaN for 255.
pub fn e8m0_reciprocal(byte: u8) -> f32 {
    if byte == 255 { f32::NAN } else { tiles::exp2(127 - i32::from(byte)) }
}

/// The codes by e8m0 bytes, where `reciprocal` of a byte is what elements are multiplied by. `nan_code` stands for a NaN product of a
/// tile of byte 255 in a format that has none.
fn finish(
    recipe: &Recipe,
    x: &Tensor,
    granularity: Granularity,
    bytes: &[u8],
    reciprocal: impl Fn(u8) -> f32,
    amax: Vec<f32>,
    nan_code: Option<u8>,
) -> Result<Quantized> {
    let scale: Vec<f32> = bytes.iter().map(|b| reciprocal(*b)).collect();
    let scale_inv = bytes.iter().map(|b| Format::E8m0.decode(u32::from(*b)) as f32).collect();
    let mut codes = tiles::encode_scaled(recipe.format, Overflow::Saturate, x, granularity, &scale, None)?;
    if let Some(nan_code) = nan_code {
        let (_, grid_cols) = granularity.grid(x.rows(), x.cols());
        let (tile_rows, tile_cols) = granularity.tile(x.rows(), x.cols());
        for (i, (code, v)) in codes.iter_mut().zip(x.data()).enumerate() {
            let tile = i / x.cols() / tile_rows * grid_cols + i % x.cols() / tile_cols;
            if bytes[tile] == 255 && (v * scale[tile]).is_nan() {
                *code = nan_code;
            }
        }
    }
    let q = QTensor::new(tiles::parts(recipe, x, codes, scale_inv)?)?;
    Ok(Quantized { q, scale: Some(scale), amax })
}

/// TransformerEngine MXFP8: `e = e8m0_up(RN32(amax · RN32(1/M)))`, `q = Q(RN32(x · 2^(127−e)))` saturating. amax drops NaN; Inf gives byte 254; zero
/// gives byte 0. Rounded up, so nothing finite clips. The 32×1 copy is this on the transposed tensor; 32×32 (weights) is shared with
/// the transpose.
pub fn te_mxfp8(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let granularity = recipe.granularity()?;
    let amax = tiles::amax(x, granularity, Nan::Ignored);
    let reciprocal = 1.0 / recipe.format.max_finite() as f32;
    let byte = |a: &f32| Format::E8m0.encode(f64::from(a * reciprocal), Rounding::Up, Overflow::Saturate) as u8;
    let bytes: Vec<u8> = amax.iter().map(byte).collect();
    finish(recipe, x, granularity, &bytes, e8m0_reciprocal, amax, None)
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

/// [`torchao_scale_byte`] as torchao v0.12 to v0.18 has it; see the module. log₂ is correctly rounded here: a device's own may be an ulp
/// off, and then RCEIL one power of two higher in its window.
pub fn torchao_v018_scale_byte(amax: f32, format: Format, mode: ScaleMode) -> u8 {
    let max = format.max_finite() as f32;
    if amax.is_nan() {
        return 255;
    }
    if mode == ScaleMode::Rceil {
        let descale = f64::from(amax / max);
        return match descale {
            0.0 => 0,
            d if d.is_infinite() => 254,
            d => (ceil_of_log2(d).clamp(-127, 127) + 127) as u8,
        };
    }
    let bits = match mode {
        ScaleMode::Even => (amax.to_bits() + (1 << (22 - format.spec().mantissa))) & 0xff80_0000,
        _ => amax.to_bits(),
    };
    let field = |x: u32| (x >> 23 & 0xff) as i32 - 127;
    let up = i32::from(mode == ScaleMode::Ceil && bits & 0x7f_ffff != 0);
    ((field(bits) + up - field(max.to_bits())).clamp(-127, 128) + 127) as u8
}

/// ⌈RN32(log₂ d)⌉ of a positive number: log₂ of a number just above 2^k rounds to k itself, the further above the larger |k|.
fn ceil_of_log2(d: f64) -> i32 {
    let k = ((d.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let above = d / crate::format::exp2i(k) - 1.0;
    let log2 = f64::from(k) + above * std::f64::consts::LOG2_E * (1.0 - above / 2.0);
    k + i32::from(above >= 1e-4 || log2 as f32 != k as f32)
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

/// Which torchao; see the module.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    Revision,
    V018,
}

fn torchao_mx(recipe: &Recipe, x: &Tensor, mode: ScaleMode, version: Version) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let granularity = recipe.granularity()?;
    let amax = tiles::amax(x, granularity, Nan::Propagates);
    let byte = if version == Version::V018 { torchao_v018_scale_byte } else { torchao_scale_byte };
    let bytes: Vec<u8> = amax.iter().map(|a| byte(*a, recipe.format, mode)).collect();
    let reciprocal = |b: u8| match (b, version, mode) {
        (0, Version::V018, ScaleMode::Rceil) => 1.0,
        (0, Version::V018, _) => tiles::exp2(126),
        (255, Version::V018, ScaleMode::Floor | ScaleMode::Ceil | ScaleMode::Even) => 0.0,
        _ => e8m0_reciprocal(b),
    };
    finish(recipe, x, granularity, &bytes, reciprocal, amax, torchao_nan_code(recipe.format))
}

/// torchao MX, FLOOR (its default).
pub fn mx_floor(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Floor, Version::Revision)
}
/// torchao MX, CEIL.
pub fn mx_ceil(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Ceil, Version::Revision)
}
/// torchao MX, EVEN.
pub fn mx_even(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Even, Version::Revision)
}
/// torchao MX, RCEIL.
pub fn mx_rceil(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Rceil, Version::Revision)
}
/// torchao MX, FLOOR, of its releases v0.12 to v0.18.
pub fn mx_floor_v018(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Floor, Version::V018)
}
/// torchao MX, CEIL, of its releases v0.12 to v0.18.
pub fn mx_ceil_v018(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Ceil, Version::V018)
}
/// torchao MX, EVEN, of its releases v0.12 to v0.18.
pub fn mx_even_v018(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Even, Version::V018)
}
/// torchao MX, RCEIL, of its releases v0.12 to v0.18.
pub fn mx_rceil_v018(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    torchao_mx(recipe, x, ScaleMode::Rceil, Version::V018)
}
