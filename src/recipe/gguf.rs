//! GGUF's Q4_K: super-blocks of eight groups of 32, a scale and a minimum of six bits each under two f16.
//!
//! Source: llama.cpp 01243c5 (July 2026), `ggml/src/ggml-quants.c` (`quantize_row_q4_K_ref`, `make_qkx2_quants`, `nearest_int`), in f32 without
//! contraction: each operation rounds, sums run in the order of the elements. A super-block or group that K leaves short is one of fewer
//! elements; the source refuses it. NaN, which an assertion of the source rules out, gives the code 0.

use super::tiles::{self, Nan};
use super::{Quantized, Recipe};
use crate::quant::{Level, QTensorParts};
use crate::tensor::round_to;
use crate::{Format, Granularity, QTensor, Result, Tensor, Zero};

/// Groups of a super-block, and elements of a group.
const GROUPS: usize = 8;
const GROUP: usize = 32;
/// Steps of the search for a group's scale, a tenth of a code each.
const STEPS: u32 = 20;
/// The largest code of an element, and of a scale.
const CODES: f32 = 15.0;
const SCALES: f32 = 63.0;

/// The low mantissa bits of f + 1.5·2²³: the nearest integer, ties to even, while |f| < 2²²; 0 for NaN.
fn nearest_int(f: f32) -> i32 {
    if f.is_nan() { 0 } else { ((f + 12_582_912.0).to_bits() & 0x7f_ffff) as i32 - 0x40_0000 }
}
fn code(f: f32) -> u8 {
    nearest_int(f).clamp(0, CODES as i32) as u8
}

/// A group's affine fit: x ≈ scale·code + min, min ≤ 0.
struct GroupFit {
    scale: f32,
    min: f32,
    codes: Vec<u8>,
}

impl GroupFit {
    /// The least of `Σ w·(scale·code + min − x)²`, `w = √(Σx²/n) + |x|`, over the codes `round((x − min)·(14 + i/10)/(max − min))`, i ≤ 20, with
    /// scale and min by least squares of each, min the best so far; and over the codes of the plain range.
    fn of(x: &[f32]) -> Self {
        let size = (x.iter().fold(0.0, |sum, x| sum + x * x) / x.len() as f32).sqrt();
        let w: Vec<f32> = x.iter().map(|x| size + x.abs()).collect();
        let (mut min, mut max) = (x[0], x[0]);
        let (mut sum_w, mut sum_x) = (w[0], w[0] * x[0]);
        for (x, w) in x.iter().zip(&w).skip(1) {
            min = if *x < min { *x } else { min };
            max = if *x > max { *x } else { max };
            sum_w += w;
            sum_x += w * x;
        }
        min = if min > 0.0 { 0.0 } else { min };
        if max == min {
            return Self { scale: 0.0, min, codes: vec![0; x.len()] };
        }
        let codes = |inverse: f32, min: f32| x.iter().map(|x| code(inverse * (x - min))).collect::<Vec<u8>>();
        let error = |fit: &GroupFit| {
            let square = |(x, code): (&f32, &u8)| {
                let e = fit.scale * f32::from(*code) + fit.min - x;
                e * e
            };
            x.iter().zip(&fit.codes).map(square).zip(&w).fold(0.0, |sum, (e, w)| sum + w * e)
        };
        let inverse = CODES / (max - min);
        let mut best = Self { scale: 1.0 / inverse, min, codes: codes(inverse, min) };
        let mut least = error(&best);
        for i in 0..=STEPS {
            let codes = codes((-1.0 + 0.1 * i as f32 + CODES) / (max - best.min), best.min);
            let (mut l, mut l2, mut xl) = (0f32, 0f32, 0f32);
            for ((x, w), code) in x.iter().zip(&w).zip(&codes) {
                let c = f32::from(*code);
                l += w * c;
                l2 += w * c * c;
                xl += w * c * x;
            }
            let d = sum_w * l2 - l * l;
            if !(d > 0.0) {
                continue;
            }
            let (scale, min) = ((sum_w * xl - sum_x * l) / d, (l2 * sum_x - l * xl) / d);
            let (scale, min) = if min > 0.0 { (xl / l2, 0.0) } else { (scale, min) };
            let fit = Self { scale, min, codes };
            let found = error(&fit);
            if found < least {
                (best, least) = (fit, found);
            }
        }
        best
    }
}

/// Six-bit numbers over one f16: the largest is 63, the unit RN16(largest/63).
fn six_bits(values: impl Iterator<Item = f32> + Clone) -> (Vec<f32>, f32) {
    let largest = values.clone().fold(0.0, |most, x| if x > most { x } else { most });
    let inverse = if largest > 0.0 { SCALES / largest } else { 0.0 };
    let bits = |x: f32| f32::from((nearest_int(inverse * x) as u8).min(SCALES as u8));
    (values.map(bits).collect(), round_to(Format::F16, largest / SCALES))
}

/// uint4 codes, uint6 scales under f16, minima of six bits under a second f16: `x̂ = d·scale·code − dmin·minimum`.
pub fn q4_k(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let (mut codes, mut scale_inv, mut zero) = (Vec::new(), Vec::new(), Vec::new());
    let mut level = Level { granularity: Granularity::Group(GROUPS), format: Format::F16, scale_inv: Vec::new(), zero: None };
    let mut level_zero = Vec::new();
    for block in (0..x.rows()).flat_map(|i| x.row(i).chunks(GROUPS * GROUP)) {
        let fits: Vec<GroupFit> = block.chunks(GROUP).map(GroupFit::of).collect();
        let (scales, d) = six_bits(fits.iter().map(|f| f.scale));
        let (minima, dmin) = six_bits(fits.iter().map(|f| -f.min));
        for (((fit, x), scale), minimum) in fits.into_iter().zip(block.chunks(GROUP)).zip(&scales).zip(&minima) {
            let (step, least) = (d * scale, dmin * minimum);
            // Codes of a step that is nothing stay those of the fit.
            codes.extend(if step == 0.0 { fit.codes } else { x.iter().map(|x| code((x + least) / step)).collect() });
        }
        scale_inv.extend(scales);
        zero.extend(minima);
        level.scale_inv.push(d);
        level_zero.push(-dmin);
    }
    let (zero, level) = (Zero::Additive { zero, mid: 0 }, Some(Level { zero: Some(level_zero), ..level }));
    let q = QTensor::new(QTensorParts { zero, level, ..tiles::parts(recipe, x, codes, scale_inv)? })?;
    Ok(Quantized { q, scale: None, amax: tiles::amax(x, recipe.granularity()?, Nan::Propagates) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two values of one code determine no scale and minimum, and their equations divide by 0: the plain range stays.
    #[test]
    fn a_group_of_one_code_keeps_the_scale_of_its_range() {
        let largest = 1.0 + 2.0 / 1024.0;
        let fit = GroupFit::of(&[1.0, largest]);
        assert_eq!((fit.scale, fit.min, fit.codes), (1.0 / (CODES / largest), 0.0, vec![15, 15]));
    }
}
