//! What every recipe does with tiles: their amax, their minimum and maximum, their codes, and the checks of input.

use super::{Recipe, far};
use crate::format::fast::Encoder;
use crate::parallel::{self, BAND};
use crate::quant::QTensorParts;
use crate::{Error, Format, Granularity, Overflow, QTensor, Result, Tensor, Zero};
use rayon::prelude::*;

/// What a maximum does with NaN.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Nan {
    /// `fmaxf`, `__hmax`, PTX `max`: a NaN loses (CUDA kernels; the running maximum starts at 0).
    Ignored,
    /// `torch.amax`: a NaN wins.
    Propagates,
}

/// Refuses a tensor without elements, for which no source defines an amax, and whatever the recipe's entry does not have.
pub(super) fn check_input(recipe: &Recipe, x: &Tensor) -> Result<()> {
    if x.rows() == 0 || x.cols() == 0 {
        let what = format!("input of recipe {recipe}");
        return Err(Error::shape(what, format!("{}×{}", x.rows(), x.cols()), "at least one row and one column"));
    }
    if recipe.group == Some(0) {
        return Err(Error::value(format!("group of recipe {recipe}"), 0, "at least 1"));
    }
    let spec = recipe.spec()?;
    if !spec.formats.contains(&recipe.format) {
        return Err(recipe.bad_format(recipe.format));
    }
    if x.dtype() == Format::F16 && !spec.takes_f16 {
        return Err(Error::unsupported(format!("recipe {recipe}"), "its source takes bf16 and f32 only"));
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
    if let Some(found) = far::amax(x, granularity) {
        return found;
    }
    amax_here(x, granularity, nan)
}

fn amax_here(x: &Tensor, granularity: Granularity, nan: Nan) -> Vec<f32> {
    let (tile_rows, tile_cols) = granularity.tile(x.rows(), x.cols());
    let (rows, cols) = granularity.grid(x.rows(), x.cols());
    // Magnitudes order as their bit patterns; every NaN lies above Inf.
    let largest = |part: &[f32]| {
        let bits = part.iter().map(|v| v.to_bits() & 0x7fff_ffff);
        match nan {
            Nan::Ignored => bits.map(|b| if b <= 0x7f80_0000 { b } else { 0 }).max().unwrap_or(0),
            Nan::Propagates => bits.max().unwrap_or(0),
        }
    };
    let see = |tiles: &mut [u32], row: &[f32]| {
        tiles.iter_mut().zip(row.chunks(tile_cols)).for_each(|(tile, part)| *tile = (*tile).max(largest(part)));
    };
    let mut bits = vec![0u32; rows * cols];
    // Bands of the rows that share tiles, several threads on each: what they found is the larger of both.
    let high = (BAND / x.cols().max(1)).max(1);
    let band = |tiles: &mut [u32], band: &[f32]| {
        if band.len() <= BAND {
            return band.chunks(x.cols()).for_each(|row| see(tiles, row));
        }
        let found = band.par_chunks(high * x.cols()).map(|rows| {
            let mut tiles = vec![0u32; cols];
            rows.chunks(x.cols()).for_each(|row| see(&mut tiles, row));
            tiles
        });
        let larger = |mut a: Vec<u32>, b: Vec<u32>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(b));
            a
        };
        tiles.copy_from_slice(&found.reduce(|| vec![0; cols], larger));
    };
    if cols > 0 && x.data().len() <= BAND {
        bits.chunks_mut(cols).zip(x.data().chunks(tile_rows * x.cols())).for_each(|(tiles, rows)| band(tiles, rows));
    } else if cols > 0 {
        let (together, width) = ((high / tile_rows).max(1), tile_rows * x.cols());
        parallel::chunks(&mut bits, together * cols, |n, tiles| {
            let rows = x.data()[n * together * width..].chunks(width);
            tiles.chunks_mut(cols).zip(rows).for_each(|(tiles, rows)| band(tiles, rows));
        });
    }
    bits.into_iter().map(|b| if b > 0x7f80_0000 { f32::NAN } else { f32::from_bits(b) }).collect()
}

/// Where a search for minimum and maximum starts.
pub(super) const EMPTY: (f32, f32) = (f32::INFINITY, f32::NEG_INFINITY);

/// Minimum and maximum of `values` too, as `torch.amin`, `torch.amax`: a NaN wins.
pub(super) fn extent(before: (f32, f32), values: &[f32]) -> (f32, f32) {
    values.iter().fold(before, |(low, high), v| {
        (if *v < low || v.is_nan() { *v } else { low }, if *v > high || v.is_nan() { *v } else { high })
    })
}

/// [`extent`] of each tile.
pub(super) fn min_max(x: &Tensor, granularity: Granularity) -> Vec<(f32, f32)> {
    let (rows, cols) = granularity.grid(x.rows(), x.cols());
    let mut out = vec![EMPTY; rows * cols];
    each_part(x, granularity, |tile, part| out[tile] = extent(out[tile], part));
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

/// The codes of all elements: `format(RN32(x · scale[tile]))`, nearest even. Where a scale is not finite and the format has
/// no NaN, `nan_code` (if given) stands for a NaN product.
pub(super) fn encode_scaled(
    format: Format,
    overflow: Overflow,
    x: &Tensor,
    granularity: Granularity,
    scale: &[f32],
    nan_code: Option<u8>,
) -> Result<Vec<u8>> {
    let encoder = Encoder::new(format, overflow)?;
    let (tile_rows, tile_cols) = granularity.tile(x.rows(), x.cols());
    let (_, grid_cols) = granularity.grid(x.rows(), x.cols());
    let cols = x.cols().max(1);
    let mut codes = vec![0u8; x.rows() * x.cols()];
    let row = |i: usize, codes: &mut [u8]| {
        let part = &x.data()[i * cols..][..codes.len()];
        let tiles = part.chunks(tile_cols).zip(codes.chunks_mut(tile_cols)).enumerate();
        for (j, (part, codes)) in tiles {
            let s = scale[(i / tile_rows) * grid_cols + j];
            encoder.encode_slice(part, s, codes)?;
            if let (Some(nan_code), false) = (nan_code, s.is_finite()) {
                let products = codes.iter_mut().zip(part).filter(|(_, v)| (**v * s).is_nan());
                products.for_each(|(code, _)| *code = nan_code);
            }
        }
        Ok(())
    };
    if codes.len() <= BAND {
        codes.chunks_mut(cols).enumerate().try_for_each(|(i, codes)| row(i, codes))?;
    } else {
        let high = BAND / cols + 1;
        let band =
            |n: usize, some: &mut [u8]| some.chunks_mut(cols).enumerate().try_for_each(|(i, codes)| row(n * high + i, codes));
        parallel::map_chunks(&mut codes, high * cols, band).into_iter().collect::<Result<()>>()?;
    }
    Ok(codes)
}

/// The tensor of codes `format(RN32(x · scale[tile]))`, nearest even, saturating, made where `x` lies.
pub(super) fn quantized(recipe: &Recipe, x: &Tensor, scale: &[f32], scale_inv: Vec<f32>) -> Result<QTensor> {
    if let Some(codes) = far::codes(recipe, x, scale, &scale_inv)? {
        return QTensor::elsewhere(parts(recipe, x, Vec::new(), scale_inv)?, codes, x.made());
    }
    let codes = encode_scaled(recipe.format, Overflow::Saturate, x, recipe.granularity()?, scale, None)?;
    QTensor::new(parts(recipe, x, codes, scale_inv)?)
}

/// Codes under scales as the recipe's entry has them: one level, no zero points.
pub(super) fn parts(recipe: &Recipe, x: &Tensor, codes: Vec<u8>, scale_inv: Vec<f32>) -> Result<QTensorParts> {
    Ok(QTensorParts {
        format: recipe.format,
        rows: x.rows(),
        cols: x.cols(),
        codes,
        granularity: recipe.granularity()?,
        scale_format: recipe.spec()?.scale_format(x.dtype()),
        scale_inv,
        zero: Zero::None,
        level: None,
    })
}

/// 2^e as f32, subnormals included; `e` within −149 … 127.
pub(super) fn exp2(e: i32) -> f32 {
    crate::format::exp2i(e) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rounding;

    /// The bulk path of every recipe against the definition, element by element.
    #[test]
    fn scaled_codes_are_the_definition_of_the_rounded_product() {
        let mut word = 1u32;
        let mut data: Vec<f32> = (0..4096)
            .map(|_| {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f32::from_bits(word)
            })
            .collect();
        data.extend((0..4096).map(|i| (i - 2048) as f32 / 16.0));
        let x = Tensor::new(Format::F32, 8, 1024, data).unwrap();
        let scale: Vec<f32> = (0..32).map(|i| [1.0, 0.37, 1e30, 7e-30, f32::NAN, f32::INFINITY, 0.0, 3.5][i % 8]).collect();
        let granularity = Granularity::Group(256);
        for format in [Format::E4m3, Format::E5m2, Format::E4m3Fnuz, Format::E5m2Fnuz, Format::E2m1, Format::E2m3, Format::E3m2]
        {
            for overflow in [Overflow::Saturate, Overflow::Native] {
                let codes = encode_scaled(format, overflow, &x, granularity, &scale, None).unwrap();
                for (i, v) in x.data().iter().enumerate() {
                    let product = v * scale[i / 256];
                    let want = format.encode(f64::from(product), Rounding::NearestEven, overflow) as u8;
                    assert_eq!(codes[i], want, "{format} {overflow:?} of {product:e}");
                }
            }
        }
    }

    /// Rows without an element have no groups along K.
    #[test]
    fn what_has_no_element_has_no_amax() {
        let x = Tensor::new(Format::F32, 3, 0, vec![]).unwrap();
        assert_eq!(amax(&x, Granularity::Group(32), Nan::Ignored), [0.0; 0]);
    }

    /// torchao's releases divide by Inf where amax is NaN: an infinity times 0 is NaN as a NaN is, a number is 0.
    #[test]
    fn an_infinity_beside_a_nan_has_the_code_of_a_nan() {
        let mut data = vec![1.0f32; 32];
        (data[3], data[7], data[9]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        let x = Tensor::new(Format::F32, 1, 32, data).unwrap();
        let q = "mx_floor_v018:e2m1".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        assert_eq!([3, 7, 9, 0].map(|at| q.codes()[at]), [3, 3, 3, 0]);
    }
}
