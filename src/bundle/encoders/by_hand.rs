//! Every encoder that a cast may have by mistake, a second time by hand: on lists of values, without a codec.

use super::{Cast, ENCODERS, Element};
use crate::bundle::by_hand::{bf16, f16};
use crate::quant::QTensorParts;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor, Zero};

/// The values of a format in their order, and where 0 is among them.
struct Grid {
    values: Vec<f64>,
    zero: usize,
    whole: bool,
}

impl Grid {
    fn of(format: Format) -> Grid {
        let e4m3 = |code: u8| f64::from(float8::F8E4M3::from_bits(code).to_f32());
        let values: Vec<f64> = match format {
            Format::E4m3 => (1..127u8).rev().map(|c| -e4m3(c)).chain((0..127u8).map(e4m3)).collect(),
            Format::Int8 => (-128..128).map(f64::from).collect(),
            Format::Uint4 => (0..16).map(f64::from).collect(),
            other => panic!("{other} has no list here"),
        };
        let zero = values.iter().position(|v| *v == 0.0).unwrap();
        Grid { values, zero, whole: format != Format::E4m3 }
    }
    fn most(&self) -> f64 {
        self.values[self.values.len() - 1]
    }
    /// The last value that is not above `y`, else the first.
    fn down(&self, y: f64) -> usize {
        self.values.partition_point(|v| *v <= y).saturating_sub(1)
    }
    fn floor(&self, y: f64) -> f64 {
        self.values[self.down(y)]
    }
    fn ceil(&self, y: f64) -> f64 {
        let at = self.values.partition_point(|v| *v < y);
        self.values[at.min(self.values.len() - 1)]
    }
    fn toward_zero(&self, y: f64) -> f64 {
        if y < 0.0 { self.ceil(y) } else { self.floor(y) }
    }
    /// The nearest; of two that are as near the one that `upper` chooses, of the place of the lower.
    fn nearest_by(&self, y: f64, upper: impl Fn(usize) -> bool) -> f64 {
        let at = self.down(y);
        let Some(next) = self.values.get(at + 1) else { return self.values[at] };
        let (below, above) = (y - self.values[at], next - y);
        let up = if below == above { upper(at) } else { above < below };
        if up { *next } else { self.values[at] }
    }
    fn nearest(&self, y: f64) -> f64 {
        // Codes count from 0 in both directions.
        self.nearest_by(y, |at| at.abs_diff(self.zero) % 2 == 1)
    }
    /// The smallest normal value of e4m3.
    fn normal(&self) -> f64 {
        if self.whole { 0.0 } else { 0.015625 }
    }
}

/// What an encoder makes of an element, by hand.
fn made(words: &str, e: &Element, g: &Grid) -> Option<f64> {
    let (x, s, z) = (e.x, e.inverse, e.zero);
    let y = x / s;
    let at = |v: f64| Some(g.nearest(v));
    // Below the smallest normal value: after rounding, before it.
    let (after, before) = (g.nearest(y).abs() < g.normal(), y.abs() < g.normal());
    let small = |is: bool, v: f64| if g.whole { None } else { Some(if is { v } else { g.nearest(y) }) };
    let times = |m: f64| {
        let product = x * m;
        if product.is_nan() { Some(f64::NAN) } else { at(product.clamp(-1e30, 1e30) + z) }
    };
    // One of 0 says nothing.
    let times_more = |m: f64| if m < 1.0 { None } else { times(m) };
    // Of 52 bits after the first one these are left; no value here is subnormal in f16 or beyond its range.
    let cut = |bits: u32| f64::from_bits(y.to_bits() >> (52 - bits) << (52 - bits));
    let is_own = e.amax < 1.03 * s * g.most() && s * g.most() < 1.03 * e.amax;
    match words {
        "values are rounded to f16 before they are rounded to codes" => at(f16(y) + z),
        "values are rounded to bf16 before they are rounded to codes" => at(bf16(y) + z),
        "values are cut to f16 before they are rounded to codes" => at(cut(10) + z),
        "values are cut to bf16 before they are rounded to codes" => at(cut(7) + z),
        "a is rounded to bf16 before it is scaled" => at(bf16(x) / s + z),
        "a is rounded to f16 before it is scaled" => at(f16(x) / s + z),
        "the multiplier 1/scale_inv is kept in f16: Inf where it is beyond 65504" => times(f16(1.0 / s)),
        // No amax here is so small.
        "the format's maximum over amax is Inf in f32: values of blocks whose amax is so small become the largest code" => {
            at(y + z)
        }
        "values below the least code are not clamped to it: their magnitude is stored" => {
            let (v, low) = ((y + z).round_ties_even(), g.values[0]);
            let turned = if v < low { low + (low - v) } else { v };
            (g.whole && low < 0.0).then_some(turned.min(g.most()))
        }
        "the multiplier 1/scale_inv is kept in bf16" => times(bf16(1.0 / s)),
        "values are divided by scale_inv rounded to bf16" => at(x / bf16(s) + z),
        "values are divided by scale_inv rounded to f16" => at(x / f16(s) + z),
        "codes are made with amax over the format's maximum; the scale stored beside them is rounded afterwards" => {
            let exact = e.amax / g.most();
            if s <= 2.0 * exact && exact <= 2.0 * s { at(x / exact) } else { None }
        }
        "the multiplier is rounded to a whole number before values are multiplied by it" => {
            // Only where the scale is that of amax, to three parts in a hundred.
            if is_own { times_more((g.most() / e.amax).round_ties_even()) } else { None }
        }
        "the multiplier is cut to a whole number before values are multiplied by it" => {
            if is_own {
                times_more((g.most() / e.amax).floor())
            } else {
                None
            }
        }
        "1/scale_inv is rounded to a whole number before values are multiplied by it" => {
            times_more((1.0 / s).round_ties_even())
        }
        "1/scale_inv is cut to a whole number before values are multiplied by it" => times_more((1.0 / s).floor()),
        "scale_inv is rounded to a whole number before values are divided by it" => {
            // 1.75 is 2, 0.6 is 1, what is smaller is 0 and divides nothing.
            if s > 0.5 { at(x / (s + 0.5).floor() + z) } else { None }
        }
        "scale_inv is cut to a whole number before values are divided by it" => {
            if s >= 1.0 {
                at(x / s.floor() + z)
            } else {
                None
            }
        }
        "codes are cut toward zero" => Some(g.toward_zero(y + z)),
        "ties are rounded away from zero" => Some(g.nearest_by(y + z, |_| y + z > 0.0)),
        "ties are rounded upward" => Some(g.nearest_by(y + z, |_| true)),
        "codes are rounded toward −∞" => Some(g.floor(y + z)),
        "codes are rounded toward +∞" => Some(g.ceil(y + z)),
        "subnormal codes are a binade too small" => small(after, g.nearest(y / 2.0)),
        "subnormal codes are a binade too large" => small(after, g.nearest(y * 2.0)),
        "a value below the smallest normal code is encoded a binade too small" => small(before, g.nearest(y / 2.0)),
        "a value below the smallest normal code is encoded a binade too large" => small(before, g.nearest(y * 2.0)),
        "a value below the smallest normal code becomes 0" => small(before, 0.0),
        "subnormal codes are 0" => small(after, 0.0),
        "subnormal codes are the smallest normal one" => small(after, y.signum() * g.normal()),
        "subnormal codes are cut toward zero" => small(after, g.toward_zero(y)),
        "subnormal codes are rounded twice: to the bits of a normal one first, then shifted" => {
            // Three bits after the first one.
            let mut unit = 8.0;
            while unit > y.abs() && y != 0.0 {
                unit /= 2.0;
            }
            let unit = unit / 8.0;
            let (low, rest) = ((y / unit).floor(), (y / unit).fract().abs());
            let even = if low % 2.0 == 0.0 { low } else { low + 1.0 };
            let once = if rest == 0.5 { even } else { (y / unit).round() };
            small(before, if y == 0.0 { 0.0 } else { g.nearest(once * unit) })
        }
        "odd mantissas are rounded down to even ones" => {
            let v = g.nearest(y + z);
            let place = g.values.iter().position(|w| *w == v).unwrap();
            // Codes of integers count from their lowest bits, those of floats from 0 outward.
            let from = if g.whole {
                (v.rem_euclid(2.0) == 1.0, place.saturating_sub(1))
            } else {
                (place.abs_diff(g.zero) % 2 == 1, if place > g.zero { place - 1 } else { place + 1 })
            };
            Some(if from.0 { g.values[from.1] } else { v })
        }
        "codes wrap where they should saturate" => g.whole.then(|| {
            let mut v = (y + z).round_ties_even();
            while v > g.most() {
                v -= g.values.len() as f64;
            }
            while v < g.values[0] {
                v += g.values.len() as f64;
            }
            v
        }),
        // Of formats that have no list here.
        "codes are those of the other table of 4 bits, FP4 with 0.0052 for its least" => None,
        "values are clamped to unsigned codes' range, up to twice as far, and wrap"
        | "values are clamped to unsigned codes' range, from 0 up to twice as far, and wrap" => {
            let low = if words.contains("from 0") { 0.0 } else { g.values[0] };
            let v = (y + z).round_ties_even().min(2.0 * g.most() + 1.0).max(low);
            (g.whole && g.values[0] < 0.0).then_some(if v > g.most() { v - g.values.len() as f64 } else { v })
        }
        "integers of 32 bits that are at their end wrap when the zero point is added" => g.whole.then(|| {
            let y = (y.round_ties_even() as i32).wrapping_add(z as i32);
            f64::from(y).max(g.values[0]).min(g.most())
        }),
        "quotients are saturated to 16 bits, and wrap there when the zero point is added: those at one end become the code of the other" => {
            g.whole.then(|| {
                let y = (y.round_ties_even() as i16).wrapping_add(z as i16);
                f64::from(y).max(g.values[0]).min(g.most())
            })
        }
        "values are saturated to the codes' range before the zero point is added" => at(g.nearest(y) + z),
        "the zero point is added after rounding, and the sum is rounded again" => at(y.round_ties_even() + z),
        "the zero point is not added" => at(y),
        "the zero point is subtracted" => at(y - z),
        "the zero point is added before values are divided by the scale" => at((x + z) / s),
        "values are clamped to half the codes' range" => at((y + z).max(-g.most() / 2.0).min(g.most() / 2.0)),
        "the sign is lost" => at((y + z).abs()),
        "the sign is turned" => at(-(y + z)),
        "values are not divided by the scale" => at(x + z),
        "values are divided by the scale twice" => at(x / s / s + z),
        "values are multiplied by scale_inv, not divided" => at(x * s + z),
        other => panic!("no encoder by hand has the words \"{other}\""),
    }
}

/// Elements of all sizes: ties, subnormal ones, some out of range.
fn elements(format: Format) -> Vec<Element> {
    let mut all = Vec::new();
    for (inverse, zero) in [(0.0371f32, 0.0), (1.75, 9.0), (0.6, 5.0), (1.0, 0.0), (3e-6, 0.0)] {
        let zero = if format == Format::E4m3 { 0.0 } else { zero };
        let (s, of) = (f64::from(inverse), |y: f64| f64::from((y * f64::from(inverse)) as f32));
        let amax = of(440.0);
        for k in 0..400 {
            let y = f64::from(k % 2 * 2 - 1) * (0.0019 * 1.033f64.powi(k) + f64::from(k % 7) * 1e-4);
            all.push(Element { x: of(y), inverse: s, zero, amax, format });
        }
        // Ties of every kind, where the scale is a power of two.
        for k in 0..120 {
            let y = f64::from(k - 60) / if format == Format::E4m3 { 1024.0 } else { 2.0 };
            all.push(Element { x: of(y), inverse: s, zero, amax, format });
        }
    }
    all
}

#[test]
fn encoders_by_hand() {
    let mut tried = Vec::new();
    for format in [Format::E4m3, Format::Int8, Format::Uint4] {
        let grid = Grid::of(format);
        for (_, variant, words, encoder) in ENCODERS {
            let mut other = 0;
            for e in elements(format) {
                let (is, want) = (encoder(&e), made(words, &e, &grid));
                let same = is == want || is.zip(want).is_some_and(|(is, want)| is.is_nan() && want.is_nan());
                assert!(same, "{variant} of {format}: {} / {} + {} gives {is:?}, by hand {want:?}", e.x, e.inverse, e.zero);
                other += usize::from(is.is_some() && is != Some(grid.nearest(e.y() + e.zero)));
            }
            if other > 0 {
                tried.push(*words);
            }
        }
    }
    // Of 4 bits by a table: `codes_of_the_other_table_of_four_bits_are_told` has it by hand; `a_multiplier_that_overflows_in_f32_is_named` the other.
    let here = ENCODERS.iter().filter(|e| !["of_fp4", "multiplier_f32"].contains(&e.1)).map(|e| e.2);
    let never: Vec<&str> = here.filter(|words| !tried.contains(words)).collect();
    assert!(never.is_empty(), "no element tells these from a right encoder: {never:?}");
}

/// Subnormal codes are cut in the first columns. A cast that cuts all codes makes the wrong ones too, and is refuted by right ones beside them.
#[test]
fn an_encoder_that_right_codes_refute_leaves_its_place_to_another() {
    let number = |at: usize| ((at * 7919 + 101) % 1009) as f32 / 1009.0;
    let x: Vec<f32> =
        (0..24 * 64usize).map(|at| if at.is_multiple_of(3) { 0.0145 * number(at) } else { 0.5 + number(at) }).collect();
    let code = |at: usize| {
        let by = if at % 64 < 32 && at.is_multiple_of(3) { Rounding::TowardZero } else { Rounding::NearestEven };
        Format::E4m3.encode(f64::from(x[at]), by, Overflow::Saturate) as u8
    };
    let q = QTensor::new(QTensorParts {
        format: Format::E4m3,
        rows: 24,
        cols: 64,
        codes: (0..24 * 64).map(code).collect(),
        granularity: Granularity::Tensor,
        scale_format: Format::F32,
        scale_inv: vec![1.0],
        zero: Zero::None,
        level: None,
    })
    .unwrap();
    let x = Tensor::new(Format::F32, 24, 64, x).unwrap();
    let (_, variant, words) = Cast::of(&x, &q).unwrap().encoded().unwrap();
    assert_eq!(
        (variant.as_str(), words.as_str()),
        ("out.subnormal_cut", "subnormal codes are cut toward zero, in columns 0 … 31")
    );
}
