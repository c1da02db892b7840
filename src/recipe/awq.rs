//! AWQ's weights: uint4 with an integer zero point, f16 scales, and the range of each group clipped where that errs least.
//!
//! Source: AutoAWQ, `awq/quantize/quantizer.py` (`pseudo_quantize_tensor`, `_compute_best_clip`), `awq/quantize/scale.py`
//! (`apply_clip`) and `awq/modules/linear/gemm.py` (`from_linear`). The weights are f16 (`.half()`), each operation rounded to it.
//!
//! The source searches the clip by a layer's calibration inputs. Here they are the unit vectors of a group, so the error of a group is
//! the mean of its elements' squares; the sum of at most 2^13 of them is exact in f64, so no order of summation is part of the result.
//! AWQ's other search, of a scale for each column of K from the activations' magnitudes, changes the weights before they come here.

use super::affine::{finish, integer_code};
use super::tiles;
use super::{Quantized, Recipe};
use crate::tensor::round_to;
use crate::{Format, Result, Tensor, Zero};

/// Steps of the search, a twentieth of the largest magnitude each: down to 0.55 of it.
const SHRINKS: u32 = 10;
const GRID: f64 = 20.0;

fn rn(x: f32) -> f32 {
    round_to(Format::F16, x)
}

/// Scale and zero point of a group.
struct Group {
    scale: f32,
    zero: f32,
}

impl Group {
    /// `s = RN(max(RN(max − min), 1e-5) / 15)`, `z = clamp(−round(RN(min / s)), 0, 15)`.
    fn of(w: &[f32]) -> Self {
        let (min, max) = tiles::extent(tiles::EMPTY, w);
        let range = rn(max - min);
        let least = rn(1e-5);
        let scale = rn(if range < least { least } else { range } / 15.0);
        Self { scale, zero: (-rn(min / scale).round_ties_even()).clamp(0.0, 15.0) }
    }
    /// `clamp(RN(round(RN(w / s)) + z), 0, 15)`; NaN stays.
    fn steps(&self, w: f32) -> f32 {
        rn(rn(w / self.scale).round_ties_even() + self.zero).clamp(0.0, 15.0)
    }
    fn value(&self, steps: f32) -> f32 {
        rn((steps - self.zero) * self.scale)
    }
}

/// w between ±c; NaN bounds leave it.
fn clipped(w: &[f32], c: f32) -> Vec<f32> {
    let one = |w: &f32| {
        if *w > c {
            c
        } else if *w < -c {
            -c
        } else {
            *w
        }
    };
    w.iter().map(one).collect()
}

/// The largest magnitude kept: of `RN(amax · (1 − i/20))`, i < 10, the first whose mean of `RN(RN(ŵ − w)²)` is least in f16.
fn best_clip(w: &[f32]) -> f32 {
    let largest = w.iter().fold(0f32, |m, w| if w.abs() > m || w.is_nan() { w.abs() } else { m });
    let (mut best, mut least) = (largest, f32::INFINITY);
    for i in 0..SHRINKS {
        let c = rn(largest * (1.0 - f64::from(i) / GRID) as f32);
        let kept = clipped(w, c);
        let group = Group::of(&kept);
        let square = |(kept, w): (&f32, &f32)| {
            let e = rn(group.value(group.steps(*kept)) - w);
            f64::from(rn(e * e))
        };
        let error = rn((kept.iter().zip(w).map(square).sum::<f64>() / w.len() as f64) as f32);
        if error < least {
            (best, least) = (c, error);
        }
    }
    best
}

/// uint4 codes of the clipped weights, f16 scales, integer zero points.
pub fn awq(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let (mut scale_inv, mut zero) = (Vec::new(), Vec::new());
    let codes = tiles::encode(x, recipe.granularity()?, |_, part, codes| {
        let w: Vec<f32> = part.iter().map(|v| rn(*v)).collect();
        let w = clipped(&w, best_clip(&w));
        let group = Group::of(&w);
        for (code, w) in codes.iter_mut().zip(&w) {
            *code = integer_code(recipe.format, group.steps(*w), 0, 15);
        }
        scale_inv.push(group.scale);
        zero.push(group.zero as i32);
    });
    finish(recipe, x, codes, scale_inv, Zero::Integer(zero))
}
