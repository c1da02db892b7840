//! What every recipe does with tiles: their amax, their minimum and maximum, their codes, and the checks of input.

use super::Recipe;
use crate::{Error, Format, Granularity, Overflow, Result, Rounding, Tensor};

/// What a maximum does with NaN.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Nan {
    /// `fmaxf`, `__hmax`, PTX `max`: a NaN loses (CUDA kernels; the running maximum starts at 0).
    Ignored,
    /// `torch.amax`: a NaN wins.
    Propagates,
}

/// Refuses a tensor without elements: no source defines the amax of nothing.
pub(super) fn check_input(recipe: &Recipe, x: &Tensor) -> Result<()> {
    if x.rows() == 0 || x.cols() == 0 {
        let what = format!("input of recipe {recipe}");
        return Err(Error::shape(what, format!("{}×{}", x.rows(), x.cols()), "at least one row and one column"));
    }
    if recipe.group == Some(0) {
        return Err(Error::value(format!("group of recipe {recipe}"), 0, "at least 1"));
    }
    if !recipe.spec()?.formats.contains(&recipe.format) {
        return Err(recipe.bad_format(recipe.format));
    }
    Ok(())
}

/// Calls `f(tile, elements)` for each row's part of each tile, rows in order, tiles of a row in order.
pub(super) fn each_part(x: &Tensor, granularity: Granularity, mut f: impl FnMut(usize, &[f32])) {
    let (tile_rows, tile_cols) = granularity.tile(x.rows(), x.cols());
    let (_, grid_cols) = granularity.grid(x.rows(), x.cols());
    for i in 0..x.rows() {
        for (j, part) in x.row(i).chunks(tile_cols).enumerate() {
            f((i / tile_rows) * grid_cols + j, part);
        }
    }
}

/// Largest magnitude of each tile, over [`Granularity::grid`]; exact in every dtype.
pub(super) fn amax(x: &Tensor, granularity: Granularity, nan: Nan) -> Vec<f32> {
    let (rows, cols) = granularity.grid(x.rows(), x.cols());
    let mut out = vec![0f32; rows * cols];
    each_part(x, granularity, |tile, part| {
        // Magnitudes order as their bit patterns; every NaN lies above Inf.
        let bits = part.iter().map(|v| v.to_bits() & 0x7fff_ffff);
        let largest = match nan {
            Nan::Ignored => bits.filter(|b| *b <= 0x7f80_0000).max().unwrap_or(0),
            Nan::Propagates => bits.max().unwrap_or(0),
        };
        out[tile] = f32::from_bits(out[tile].to_bits().max(largest));
    });
    out.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = f32::NAN);
    out
}

/// Minimum and maximum of each tile as `torch.amin`, `torch.amax`: a NaN wins.
pub(super) fn min_max(x: &Tensor, granularity: Granularity) -> Vec<(f32, f32)> {
    let (rows, cols) = granularity.grid(x.rows(), x.cols());
    let mut out = vec![(f32::INFINITY, f32::NEG_INFINITY); rows * cols];
    each_part(x, granularity, |tile, part| {
        for &v in part {
            let (low, high) = &mut out[tile];
            if v < *low || v.is_nan() {
                *low = v;
            }
            if v > *high || v.is_nan() {
                *high = v;
            }
        }
    });
    out
}

/// The codes of all elements, row-major; `f(tile, elements, codes)` fills the codes of one row's part of a tile.
pub(super) fn encode(x: &Tensor, granularity: Granularity, mut f: impl FnMut(usize, &[f32], &mut [u8])) -> Vec<u8> {
    let mut codes = vec![0u8; x.rows() * x.cols()];
    let mut at = 0;
    each_part(x, granularity, |tile, part| {
        f(tile, part, &mut codes[at..at + part.len()]);
        at += part.len();
    });
    codes
}

/// `codes[i] = format(RN32(x[i] · scale))`, nearest even.
pub(super) fn encode_scaled(format: Format, overflow: Overflow, x: &[f32], scale: f32, codes: &mut [u8]) {
    for (code, v) in codes.iter_mut().zip(x) {
        *code = format.encode(f64::from(v * scale), Rounding::NearestEven, overflow) as u8;
    }
}

/// 2^e as f32, subnormals included; `e` within −149 … 127.
pub(super) fn exp2(e: i32) -> f32 {
    crate::format::exp2i(e) as f32
}
