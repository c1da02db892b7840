//! What each recipe says of a tile: its scale_inv, its zero point, and the value each element is scaled to.

use super::exact::{BF16, Binary, F16, F32, F64, log2_ceil, log2_floor, pow2};
use super::gguf;
use crate::recipe::Recipe;
use crate::{Format, Granularity, QTensor, Tensor, Zero};

/// What is common to a tensor.
pub(super) struct RecipeLaw<'a> {
    recipe: &'a Recipe,
    /// TransformerEngine's global NVFP4 scale.
    te_global: f64,
    pub(super) granularity: Granularity,
    pub(super) scale_format: Format,
    pub(super) global_scale_inv: Option<f64>,
    pub(super) mid: i32,
    /// The tensor's dtype.
    dtype: Binary,
    /// The largest finite value of the codes.
    max: f64,
}

/// What a tile must have.
pub(super) struct Tile {
    pub(super) scale_inv: f64,
    pub(super) zero: Option<f64>,
    pub(super) step: Step,
}

/// How an element becomes the value that is rounded to a code.
pub(super) enum Step {
    /// RN32(x·s); saturating.
    Multiply(f64),
    /// RN32(x·s); the format's own overflow.
    MultiplyNative(f64),
    /// RN32(x/σ); saturating.
    Divide(f64),
    /// clamp(RN(round(RN(x·r)) + z), low, high) in the given type.
    Affine { r: f64, zero: f64, low: f64, high: f64, op: Binary },
    /// clamp(round(RN(RN(x − low)/σ)), 0, 15).
    Tinygemm { low: f64, scale_inv: f64, op: Binary },
    /// clamp(RN16(round(RN16(c/σ)) + z), 0, 15) of c, RN16(x) between ±clip.
    Awq { clip: f64, scale_inv: f64, zero: f64 },
    /// clamp(int(RN32(inverse · RN32(x − min))), 0, 15) with GGUF's int.
    Gguf { inverse: f64, min: f64 },
    /// clamp(int(RN32(RN32(x + least)/step)), 0, 15).
    GgufAgain { least: f64, step: f64 },
    /// RN32(x·s) or RN32(x/σ) between ±1; the value of a table whose f32 midpoints are about it.
    Nf4 { by: f64, divides: bool },
    /// Within half a step, and the rounding of recovering z, of x·s + z.
    Hqq { s: f64, z: f64 },
}

impl Step {
    pub(super) fn target(&self, x: f64) -> f64 {
        match *self {
            Step::Multiply(s) | Step::MultiplyNative(s) => F32.rn(x * s),
            Step::Divide(scale_inv) => F32.rn(x / scale_inv),
            Step::Affine { r, zero, low, high, op } => clamp(op.rn(integer(op.rn(x * r)) + zero), low, high),
            Step::Tinygemm { low, scale_inv, op } => clamp(integer(op.rn(op.rn(x - low) / scale_inv)), 0.0, 15.0),
            Step::Awq { clip, scale_inv, zero } => awq_code(clamp(F16.rn(x), -clip, clip), scale_inv, zero),
            Step::Gguf { inverse, min } => gguf::four_bits(F32.rn(inverse * F32.rn(x - min))),
            Step::GgufAgain { least, step } => gguf::four_bits(F32.rn(F32.rn(x + least) / step)),
            Step::Nf4 { by, divides } => clamp(F32.rn(if divides { x / by } else { x * by }), -1.0, 1.0),
            Step::Hqq { s, z } => clamp(x * s + z, 0.0, 15.0),
        }
    }
    /// How far beyond half a step the code may lie, where the zero point is not known to the bit: four roundings to f32 of
    /// terms no larger than |x·s| + |z| + 8.
    pub(super) fn slack(&self, x: f64) -> Option<f64> {
        match *self {
            Step::Hqq { s, z } => Some(4.0 * pow2(-24) * ((x * s).abs() + 2.0 * z.abs() + 8.0)),
            _ => None,
        }
    }
    /// The code of a value by the f32 midpoints between the values of a table: how many lie below it, all for NaN.
    pub(super) fn code_by_midpoints(&self, x: f64, values: &[f64]) -> Option<usize> {
        let below = |v: &[f64]| x.is_nan() || x > F32.rn(F32.rn(v[0] + v[1]) / 2.0);
        matches!(self, Step::Nf4 { .. }).then(|| values.windows(2).filter(|v| below(v)).count())
    }
    pub(super) fn native_overflow(&self) -> bool {
        matches!(self, Step::MultiplyNative(_))
    }
}

/// Nearest integer, ties to even.
fn integer(x: f64) -> f64 {
    let low = x.floor();
    match x - low {
        d if d > 0.5 => low + 1.0,
        d if d == 0.5 && low.rem_euclid(2.0) == 1.0 => low + 1.0,
        d if d.is_nan() => x,
        _ => low,
    }
}

/// NaN stays.
pub(super) fn clamp(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

/// The elements of a tile in f64.
fn elements(x: &Tensor, granularity: Granularity, tile: usize) -> Vec<f64> {
    let (h, w) = granularity.tile(x.rows(), x.cols());
    let (_, grid_cols) = granularity.grid(x.rows(), x.cols());
    let (i0, j0) = (tile / grid_cols * h, tile % grid_cols * w);
    let at = |i: usize, j: usize| f64::from(x.data()[i * x.cols() + j]);
    let columns = j0..(j0 + w).min(x.cols());
    (i0..(i0 + h).min(x.rows())).flat_map(|i| columns.clone().map(move |j| at(i, j))).collect()
}

/// Largest magnitude, NaN skipped.
fn amax_of_numbers(v: &[f64]) -> f64 {
    v.iter().filter(|x| !x.is_nan()).fold(0.0, |m, x| if x.abs() > m { x.abs() } else { m })
}

/// Largest magnitude, NaN if there is one.
fn amax_or_nan(v: &[f64]) -> f64 {
    if v.iter().any(|x| x.is_nan()) { f64::NAN } else { amax_of_numbers(v) }
}

fn ratio(max: f64, amax: f64, infinite: f64) -> f64 {
    if amax == 0.0 || !amax.is_finite() {
        return 1.0;
    }
    let s = F32.rn(max / amax);
    if s.is_infinite() { infinite } else { s }
}

/// The e4m3 value nearest to a positive number, saturating: by search of all codes.
fn nearest_e4m3(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let mut best = (f64::INFINITY, 0);
    for code in 0..=0x7eu32 {
        let d = (Format::E4m3.decode(code) - x.min(448.0)).abs();
        if d < best.0 || (d == best.0 && code % 2 == 0) {
            best = (d, code);
        }
    }
    Format::E4m3.decode(best.1)
}

impl<'a> RecipeLaw<'a> {
    /// None: an unknown recipe, or no elements.
    pub(super) fn of(recipe: &'a Recipe, x: &Tensor) -> Option<RecipeLaw<'a>> {
        if x.data().is_empty() {
            return None;
        }
        let granularity = super::granularity(recipe)?;
        let dtype = Binary::of(x.dtype());
        let all: Vec<f64> = x.data().iter().map(|v| f64::from(*v)).collect();
        let name = recipe.name;
        let te_global = te_global(amax_of_numbers(&all));
        let global_scale_inv = match name {
            "te_nvfp4" | "te_nvfp4_16x16" => Some(F32.rn(1.0 / te_global)),
            "ao_nvfp4" => Some(F32.rn(amax_or_nan(&all) / 2688.0)),
            _ => None,
        };
        let scale_format = match name {
            _ if global_scale_inv.is_some() => Format::E4m3,
            _ if name.contains("mx") || name.ends_with("ue8m0") => Format::E8m0,
            "affine_sym" | "affine_symnc" | "affine_asym" | "int8_token_reduced_cutlass" => x.dtype(),
            "int8_token_reduced" if x.dtype() == Format::Bf16 => Format::Bf16,
            _ => Format::F32,
        };
        let scale_format = match name {
            "tinygemm" => Format::Bf16,
            "awq" => Format::F16,
            "gguf_q4_k" => Format::Uint6,
            _ => scale_format,
        };
        let mid = if matches!(name, "tinygemm" | "hqq") { 8 } else { 0 };
        let max = recipe.format.max_finite();
        Some(RecipeLaw { recipe, te_global, granularity, scale_format, global_scale_inv, mid, dtype, max })
    }

    /// The tiles in the order of the grid. `q` is read for HQQ's fitted zero point only.
    pub(super) fn tiles(&self, x: &Tensor, q: &QTensor) -> Vec<Tile> {
        if self.recipe.name == "gguf_q4_k" {
            return gguf::tiles(x).into_iter().map(|t| t.0).collect();
        }
        let (rows, cols) = self.granularity.grid(x.rows(), x.cols());
        let seen = (self.recipe.name == "te_delayed").then(|| self.delayed_scale(x));
        (0..rows * cols).map(|t| self.tile(&elements(x, self.granularity, t), seen, q, t)).collect()
    }

    /// What a tiled second level multiplies each tile's scale and zero point by; empty where there is none.
    pub(super) fn second_level(&self, x: &Tensor) -> Vec<(f64, f64)> {
        if self.recipe.name == "gguf_q4_k" { gguf::tiles(x).into_iter().map(|t| t.1).collect() } else { Vec::new() }
    }

    fn tile(&self, v: &[f64], delayed: Option<f64>, q: &QTensor, at: usize) -> Tile {
        let (numbers, torch) = (amax_of_numbers(v), amax_or_nan(v));
        let max = self.max;
        // f16 has no 2^128: the infinite scale of a blockwise recipe is the dtype's largest.
        let (flt_max, dtype_max) = (F32.largest(), self.dtype.largest());
        let down = |s: f64| if s == 1.0 { s } else { pow2(log2_floor(s)) };
        match self.recipe.name {
            "te_delayed" => reciprocal(delayed.unwrap_or(f64::NAN)),
            "te_current" => reciprocal(ratio(max, numbers, flt_max)),
            "te_current_pow2" => reciprocal(down(ratio(max, numbers, flt_max))),
            "te_block_1x128_fp32" | "te_block_128x128_fp32" => reciprocal(ratio(max, numbers, dtype_max)),
            "te_block_1x128" | "te_block_128x128" => reciprocal(down(ratio(max, numbers, dtype_max))),
            "te_mxfp8" | "te_mxfp8_32x32" => power(match F32.rn(numbers * F32.rn(1.0 / max)) {
                0.0 => Some(-127),
                d => Some(if d.is_finite() { log2_ceil(d).clamp(-127, 127) } else { 127 }),
            }),
            "mx_floor" | "mx_ceil" | "mx_even" | "mx_rceil" => power(self.torchao_exponent(torch)),
            "mx_floor_v018" | "mx_ceil_v018" | "mx_even_v018" | "mx_rceil_v018" => self.torchao_v018(torch),
            "te_nvfp4" | "te_nvfp4_16x16" => self.te_nvfp4(numbers),
            "ao_nvfp4" => {
                let t = self.global_scale_inv.unwrap_or(f64::NAN);
                let b = nearest_e4m3(clamp(F32.rn(F32.rn(torch / 6.0) / t), pow2(-6), 448.0));
                Tile { scale_inv: b, zero: None, step: Step::Multiply(F32.rn(F32.rn(1.0 / t) / b)) }
            }
            "float8_tensorwise" | "float8_rowwise_gw_hp" => reciprocal(float8_scale(max, torch)),
            "float8_rowwise" => {
                let s = float8_scale(max, torch);
                reciprocal(if s == 0.0 || s.is_nan() { s } else { pow2(F32.rn(s.log2()).floor() as i32) })
            }
            "float8_inference" | "float8_inference_row" => {
                let scale_inv = self.dtype.rn(torch / max);
                Tile { scale_inv, zero: None, step: Step::Divide(scale_inv) }
            }
            "deepseek_1x128" | "deepseek_128x128" => deepseek(torch, max, |s| s),
            "deepseek_1x128_ue8m0" | "deepseek_128x128_ue8m0" => {
                deepseek(torch, max, |s| if s.is_finite() { pow2(log2_ceil(s).max(-126)) } else { pow2(127) })
            }
            "tinygemm" => self.tinygemm(v),
            "awq" => awq(v),
            "bnb_nf4" => {
                let divisor = at_least(torch, F32.rn(1e-38));
                // A group that K leaves short is divided.
                match self.recipe.group.is_some_and(|g| v.len() < g) {
                    true => Tile { scale_inv: divisor, zero: None, step: Step::Nf4 { by: divisor, divides: true } },
                    false => {
                        let by = F32.rn(1.0 / divisor);
                        Tile { scale_inv: torch, zero: None, step: Step::Nf4 { by, divides: false } }
                    }
                }
            }
            "hqq" => {
                let (low, high) = extent(v);
                let s = F32.rn(15.0 / F32.rn(high - low));
                let s = if s > 2e4 { 2e4 } else { s };
                let scale_inv = F32.rn(1.0 / s);
                let zero = match q.zero() {
                    Zero::Additive { zero, .. } => Some(f64::from(zero[at])),
                    _ => None,
                };
                let z = zero.map_or(f64::NAN, |zero| 8.0 - zero / scale_inv);
                Tile { scale_inv, zero, step: Step::Hqq { s, z } }
            }
            _ => self.affine(v),
        }
    }

    /// The largest amax of the quarters seen, while it is finite.
    fn delayed_scale(&self, x: &Tensor) -> f64 {
        let quarter = x.rows().div_ceil(4);
        let (mut largest, mut scale) = (0f64, 1.0);
        for i in 0..x.rows().min(3 * quarter) {
            let row: Vec<f64> = x.row(i).iter().map(|v| f64::from(*v)).collect();
            largest = largest.max(amax_of_numbers(&row));
            let step_ends = (i + 1) % quarter == 0 || i + 1 == x.rows();
            if step_ends && largest > 0.0 && largest.is_finite() {
                scale = F32.rn(self.max / largest).min(F32.largest());
            }
        }
        scale
    }

    fn torchao_exponent(&self, amax: f64) -> Option<i32> {
        if !amax.is_finite() {
            return None;
        }
        if self.recipe.name == "mx_rceil" {
            let d = F32.rn(amax * F32.rn(1.0 / self.max));
            return Some(if d == 0.0 { -127 } else { log2_ceil(d).max(-127) });
        }
        if amax == 0.0 {
            return Some(-127);
        }
        let p = log2_floor(amax);
        let mantissa = self.recipe.format.spec().mantissa as i32;
        let p = match self.recipe.name {
            "mx_ceil" => log2_ceil(amax),
            // Half up at the format's mantissa: the last half step below 2^(p+1) carries.
            "mx_even" if amax >= pow2(p) * (2.0 - pow2(-mantissa - 1)) => p + 1,
            _ => p,
        };
        if self.recipe.name == "mx_even" && p > 127 {
            return None;
        }
        Some((p - log2_floor(self.max)).max(-127))
    }

    /// What torchao's releases did: no byte of NaN but for NaN, elements of byte 0 by another factor.
    fn torchao_v018(&self, amax: f64) -> Tile {
        if amax.is_nan() {
            return power(None);
        }
        let rceil = self.recipe.name == "mx_rceil_v018";
        let e = if rceil {
            let d = F32.rn(amax / self.max);
            // Inf and 0 are clamped like their logarithms.
            F32.rn(d.log2()).ceil().clamp(-127.0, 127.0) as i32
        } else {
            let p = match self.recipe.name {
                _ if amax == f64::INFINITY => 128,
                // Below emax of every format whichever exponent a subnormal rounds to: clamped.
                _ if amax < pow2(-126) => -127,
                "mx_ceil_v018" => log2_ceil(amax),
                "mx_even_v018"
                    if amax >= pow2(log2_floor(amax)) * (2.0 - pow2(-(self.recipe.format.spec().mantissa as i32) - 1)) =>
                {
                    log2_floor(amax) + 1
                }
                _ => log2_floor(amax),
            };
            (p - log2_floor(self.max)).max(-127)
        };
        let factor = match (e, rceil) {
            (-127, true) => 1.0,
            (-127, false) => pow2(126),
            _ => pow2(-e),
        };
        Tile { step: Step::Multiply(factor), ..power(Some(e)) }
    }

    fn te_nvfp4(&self, amax: f64) -> Tile {
        let d = F32.rn(1.0 / self.te_global);
        let b = nearest_e4m3(F32.rn(amax * F32.rn(self.te_global * F32.rn(1.0 / 6.0))).min(F32.largest()));
        let e = F32.rn(1.0 / F32.rn(b * d)).min(F32.largest());
        Tile { scale_inv: b, zero: None, step: Step::Multiply(e) }
    }

    fn tinygemm(&self, v: &[f64]) -> Tile {
        let (min, max) = extent(v);
        let t = self.dtype;
        let scale = at_least(t.rn(t.rn(max - min) / 15.0), t.rn(F32.rn(1e-6)));
        let zero = BF16.rn(t.rn(min + t.rn(8.0 * scale)));
        let scale_inv = BF16.rn(scale);
        let low = BF16.rn(zero - BF16.rn(8.0 * scale_inv));
        Tile { scale_inv, zero: Some(zero), step: Step::Tinygemm { low, scale_inv, op: t.with(BF16) } }
    }

    fn affine(&self, v: &[f64]) -> Tile {
        let (name, t) = (self.recipe.name, self.dtype);
        let token = name.starts_with("int8_token");
        let (low, high) = match self.recipe.format {
            Format::Int4 => (-8.0, 7.0),
            Format::Uint4 => (0.0, 15.0),
            _ if token && name != "int8_token_asym" => (-127.0, 127.0),
            _ => (-128.0, 127.0),
        };
        let eps = match name {
            "int8_token_asym" => t.eps(),
            _ if token => t.rn(F32.rn(1e-5)),
            _ => t.rn(F32.eps()),
        };
        let kept = match name {
            "int8_token_asym" => F64,
            "int8_token_sym" => F32,
            "int8_token_reduced" if t.bits() == F16.bits() => F32,
            _ => t,
        };
        let (min, max) = extent(v);
        let (min, max) = (if min > 0.0 { 0.0 } else { min }, if max < 0.0 { 0.0 } else { max });
        let asymmetric = name.ends_with("asym");
        let scale = match name {
            _ if asymmetric => t.rn(t.rn(max - min) / (high - low)),
            "affine_symnc" => {
                let (below, above) = (t.rn(min / low), t.rn(max / high));
                if below > above { below } else { above }
            }
            _ => t.rn(amax_or_nan(v) * 2.0 / (high - low)),
        };
        let scale = at_least(scale, eps);
        let zero = match asymmetric {
            true => clamp(t.rn(low - integer(t.rn(min / scale))), low, high),
            false if low == 0.0 => 8.0,
            false => 0.0,
        };
        let scale_inv = kept.rn(scale);
        let step = Step::Affine { r: kept.rn(1.0 / scale_inv), zero, low, high, op: t.with(kept) };
        // A NaN cast to an integer is 0.
        let stored = if zero.is_nan() { 0.0 } else { zero + 0.0 };
        Tile { scale_inv, zero: (asymmetric || low == 0.0).then_some(stored), step }
    }
}

fn awq_code(w: f64, scale_inv: f64, zero: f64) -> f64 {
    clamp(F16.rn(integer(F16.rn(w / scale_inv)) + zero), 0.0, 15.0)
}

/// Every tenth part of a clip is tried, by the error that its codes leave; all in f16.
fn awq(v: &[f64]) -> Tile {
    let w: Vec<f64> = v.iter().map(|x| F16.rn(*x)).collect();
    let largest = amax_or_nan(&w);
    let of = |clip: f64| {
        let (low, high) = extent(&w.iter().map(|w| clamp(*w, -clip, clip)).collect::<Vec<f64>>());
        let scale_inv = F16.rn(at_least(F16.rn(high - low), F16.rn(1e-5)) / 15.0);
        (clip, scale_inv, clamp(-integer(F16.rn(low / scale_inv)), 0.0, 15.0))
    };
    let error = |(clip, scale_inv, zero): (f64, f64, f64)| {
        let squares = w.iter().map(|w| {
            let back = F16.rn((awq_code(clamp(*w, -clip, clip), scale_inv, zero) - zero) * scale_inv);
            let e = F16.rn(back - w);
            F16.rn(e * e)
        });
        F16.rn(squares.sum::<f64>() / w.len() as f64)
    };
    let tried: Vec<_> = (0..10).map(|i| of(F16.rn(F32.rn(largest * F32.rn(1.0 - f64::from(i) / 20.0))))).collect();
    let errors: Vec<f64> = tried.iter().map(|t| error(*t)).collect();
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    let first = errors.iter().position(|e| *e == least && least < f64::INFINITY);
    let (clip, scale_inv, zero) = first.map_or_else(|| of(largest), |i| tried[i]);
    let stored = if zero.is_nan() { 0.0 } else { zero + 0.0 };
    Tile { scale_inv, zero: Some(stored), step: Step::Awq { clip, scale_inv, zero } }
}

/// TransformerEngine's global scale of an NVFP4 tensor.
fn te_global(amax: f64) -> f64 {
    if amax == 0.0 || amax.is_infinite() { 1.0 } else { F32.rn(2688.0 / amax).min(F32.largest()) }
}

/// scale_inv = RN32(1/s), q = RN32(x·s).
fn reciprocal(s: f64) -> Tile {
    Tile { scale_inv: F32.rn(1.0 / s), zero: None, step: Step::Multiply(s) }
}

/// An e8m0 scale_inv 2^e; None is NaN.
fn power(e: Option<i32>) -> Tile {
    let (scale_inv, s) = e.map_or((f64::NAN, f64::NAN), |e| (pow2(e), pow2(-e)));
    Tile { scale_inv, zero: None, step: Step::Multiply(s) }
}

fn float8_scale(max: f64, amax: f64) -> f64 {
    F32.rn(max / at_least(amax, 1e-12))
}

fn deepseek(amax: f64, max: f64, round: impl Fn(f64) -> f64) -> Tile {
    let scale_inv = round(F32.rn(at_least(amax, F32.rn(1e-4)) / max));
    Tile { scale_inv, zero: None, step: Step::MultiplyNative(F32.rn(1.0 / scale_inv)) }
}

/// The larger; NaN stays.
fn at_least(x: f64, least: f64) -> f64 {
    if x < least { least } else { x }
}

/// Minimum and maximum; both NaN if there is one.
fn extent(v: &[f64]) -> (f64, f64) {
    if v.iter().any(|x| x.is_nan()) {
        return (f64::NAN, f64::NAN);
    }
    (v.iter().copied().fold(f64::INFINITY, f64::min), v.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

#[cfg(test)]
mod tests;
