//! How the scales of blocks were rounded to the few bits that they are stored in, and whether the stored ones made the codes.
//!
//! ```text
//! amax / max / global  ──►  by each way to round, the scale of every block         one way has to make all that are stored
//! ```
//! Powers of two have more ways, which are told elsewhere.

use super::Bundle;
use super::casts::{Cast, NEAR, Named, Range, holds};
use super::encoders::right_scales;
use crate::fault::Class;
use crate::tensor::round_to;
use crate::{Format, Overflow, Rounding};

/// Scales that are not the rule's, and how many numbers these are, at least.
const LEAST: usize = 8;
const KINDS: usize = 3;

/// A way to round: variant, words, and the code of a number.
type Way = (&'static str, &'static str, fn(Format, f64) -> f64);
const WAYS: [Way; 3] = [
    ("out.scale_nearest", "rounded to the nearest", |f, s| of(f, s, Rounding::NearestEven)),
    ("out.scale_cut", "cut", |f, s| of(f, s, Rounding::TowardZero)),
    ("out.scale_up", "rounded up", up),
];

fn of(f: Format, s: f64, by: Rounding) -> f64 {
    f.decode(f.encode(s, by, Overflow::Saturate))
}

/// The least number of a format that is not below this one, or its largest.
fn up(f: Format, s: f64) -> f64 {
    let below = of(f, s, Rounding::TowardZero);
    if below >= s {
        return below;
    }
    // Codes of positive numbers rise with them.
    f.decode(f.encode(below, Rounding::TowardZero, Overflow::Saturate) + 1).min(f.max_finite())
}

impl Cast<'_> {
    /// What is stored beside the second level, and the number that it is the rounding of.
    fn numbers(&self) -> Vec<(f64, f64)> {
        let global = self.q.global_scale_inv().map_or(1.0, f64::from);
        let max = self.q.format().max_finite() * global;
        self.q.scale_inv().iter().zip(&self.amax).map(|(s, amax)| (f64::from(*s), amax / max)).collect()
    }

    /// Scales that are rounded another way than the recipe's, beside the codes that they make.
    pub fn rounded_otherwise(&self, bundle: &Bundle) -> Option<Named> {
        let f = self.q.scale_format();
        // Wider ones are not rounded to few bits, and powers of two have rules of their own.
        (f.is_float() && f.bits() <= 16 && f.spec().mantissa > 0).then_some(())?;
        let global = self.q.global_scale_inv().map_or(1.0, f64::from);
        let right: Vec<f64> = right_scales(bundle)?.iter().map(|s| s / global).collect();
        let numbers = self.numbers();
        (right.len() == numbers.len()).then_some(())?;
        let known: Vec<usize> = (0..numbers.len()).filter(|g| numbers[*g].1 > 0.0 && numbers[*g].1.is_finite()).collect();
        let by = |way: &Way, g: usize, s: f64| {
            [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|n| ((way.2)(f, numbers[g].1 * n) - s).abs() <= NEAR * s)
        };
        let wrong: Vec<usize> =
            known.iter().copied().filter(|g| (right[*g] - numbers[*g].0).abs() > NEAR * right[*g]).collect();
        let mut kinds: Vec<u64> = wrong.iter().map(|g| numbers[*g].0.to_bits()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        (wrong.len() >= LEAST && kinds.len() >= KINDS).then_some(())?;
        let of = |of: &dyn Fn(usize) -> f64| WAYS.iter().find(|way| known.iter().all(|g| by(way, *g, of(*g))));
        let (variant, words, _) = of(&|g| numbers[g].0)?;
        // Right scales that no rounding of these numbers makes are of another global scale.
        let rule = of(&|g| right[g])?.1;
        let smaller = wrong.iter().filter(|g| numbers[**g].0 < right[**g]).count();
        let side = match smaller {
            0 => "larger".into(),
            n if n == wrong.len() => "smaller".into(),
            n => format!("others, {n} of them smaller"),
        };
        let words = format!(
            "the scales of blocks are {words} to {f} where the recipe has them {rule}: {} of {} are {side}; the codes are those of these scales",
            wrong.len(),
            numbers.len()
        );
        Some((Class::ScaleRerounded, variant, words))
    }

    /// Codes of the full scales beside scales that went through 16 bits when they were stored.
    pub fn stored_in_sixteen(&self, ranges: &[Range]) -> Option<Named> {
        let max = self.q.format().max_finite();
        let known: Vec<usize> = (0..ranges.len()).filter(|g| self.amax[*g] > 0.0 && self.stored[*g] > 0.0).collect();
        let wrong = known.iter().filter(|g| !holds(ranges[**g], self.stored[**g])).count();
        let of_amax = |g: &usize| holds(ranges[*g], self.amax[*g] / max);
        (wrong >= LEAST / 2 && self.q.level().is_none() && !self.is_pow2() && known.iter().all(of_amax)).then_some(())?;
        let cut = |s: f64| f64::from(f32::from_bits((s as f32).to_bits() & 0xffff_0000));
        let bf16 = |s: f64| f64::from(round_to(Format::Bf16, s as f32));
        let f16 = |s: f64| f64::from(round_to(Format::F16, s as f32));
        type Narrow<'n> = (&'static str, &'static str, &'n dyn Fn(f64) -> f64);
        let ways: [Narrow; 3] = [
            ("out.scale_cut", "cut to bf16", &cut),
            ("out.scale_bf16", "rounded to bf16", &bf16),
            ("out.scale_f16", "rounded to f16", &f16),
        ];
        let (variant, words, _) = ways.into_iter().find(|(_, _, by)| {
            let is = |g: &usize| {
                let s = self.amax[*g] / max;
                [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|n| by(s * n) == self.stored[*g])
            };
            known.iter().all(is)
        })?;
        let words = format!(
            "the scales are {words} where they are stored, and the codes were made with the full ones: {wrong} of {} scales did not make the codes \
             of their blocks",
            known.len()
        );
        Some((Class::ScaleRerounded, variant, words))
    }

    /// Codes of the recipe's scales beside scales that were not rounded.
    pub fn not_rounded(&self, bundle: &Bundle, ranges: &[Range]) -> Option<Named> {
        let right = right_scales(bundle)?;
        (right.len() == ranges.len()).then_some(())?;
        let max = self.q.format().max_finite();
        let near = |a: f64, b: f64| (a - b).abs() <= NEAR * b.abs();
        let known = || (0..ranges.len()).filter(|g| self.amax[*g] > 0.0);
        let codes = known().all(|g| holds(ranges[g], right[g]));
        let raw = known().all(|g| near(self.stored[g], self.amax[g] / max));
        let wrong = known().filter(|g| !holds(ranges[*g], self.stored[*g])).count();
        (codes && raw && wrong >= LEAST).then(|| {
            let words = format!(
                "the codes are those of the recipe's scales; beside them amax over {max} is stored as it was before it was rounded: {wrong} of {} \
                 scales did not make the codes of their blocks",
                ranges.len()
            );
            (Class::ScaleRerounded, "out.scale_unrounded", words)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::super::named_tests::is_named;
    use super::*;
    use crate::quant::QTensorParts;
    use crate::recipe::Recipe;
    use crate::{QTensor, Tensor};

    fn cast(recipe: &str, x: &Tensor, q: &QTensor) -> Writer {
        let mut w = Writer::new("cast");
        w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x).codes("out", q, None, None).unwrap();
        w
    }

    /// Blocks of many sizes.
    fn values() -> Tensor {
        let one = |at: u32| (at.wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0;
        let size = |at: u32| 0.2 + ((at / 16 * 29) % 61) as f32 / 13.0;
        Tensor::rounded(Format::Bf16, 32, 256, (0..32 * 256).map(|at| one(at) * size(at)).collect()).unwrap()
    }

    /// The cast by a recipe with other scales: codes of these, stored those.
    fn with(recipe: &str, x: &Tensor, codes: &dyn Fn(f64, f64) -> f64, stored: &dyn Fn(f64, f64) -> f64) -> QTensor {
        let q = recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q;
        let global = q.global_scale_inv().map_or(1.0, f64::from);
        let (f, cols) = (q.format(), q.cols());
        let mut amax = vec![0.0f64; q.scale_inv().len()];
        for (at, v) in x.data().iter().enumerate() {
            let g = &mut amax[q.scale_index(at / cols, at % cols)];
            *g = g.max(f64::from(v.abs()));
        }
        // What is rounded, and the right scale.
        let numbers: Vec<(f64, f64)> =
            q.scale_inv().iter().zip(&amax).map(|(s, amax)| (amax / f.max_finite() / global, f64::from(*s))).collect();
        let code = |at: usize| {
            let (raw, right) = numbers[q.scale_index(at / cols, at % cols)];
            f.encode(f64::from(x.data()[at]) / (codes(raw, right) * global), Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let scale_inv = numbers.iter().map(|(raw, right)| stored(*raw, *right) as f32).collect();
        let scale_format = if recipe.contains("nvfp4") { q.scale_format() } else { Format::F32 };
        let made = (0..x.data().len()).map(code).collect();
        QTensor::new(QTensorParts { codes: made, scale_inv, scale_format, ..q.into_parts() }).unwrap()
    }

    #[test]
    fn scales_that_are_rounded_another_way_are_named() {
        let x = values();
        let by = |way: usize| {
            let rounded = move |raw: f64, _: f64| (WAYS[way].2)(Format::E4m3, raw);
            cast("te_nvfp4", &x, &with("te_nvfp4", &x, &rounded, &rounded))
        };
        let rule = "where the recipe has them rounded to the nearest";
        is_named(&by(1), "scale_rerounded:out.scale_cut", &["are cut to e4m3", rule, "are smaller", "those of these scales"]);
        is_named(&by(2), "scale_rerounded:out.scale_up", &["are rounded up to e4m3", rule, "are larger"]);
    }

    #[test]
    fn codes_of_scales_before_they_are_rounded_are_named() {
        let x = values();
        let q = with("te_nvfp4", &x, &|raw, _| raw, &|_, right| right);
        let words = ["codes are made with amax over the format's maximum", "rounded afterwards"];
        is_named(&cast("te_nvfp4", &x, &q), "scale_rerounded:out.exact_scale", &words);
    }

    #[test]
    fn codes_of_rounded_scales_beside_the_unrounded_ones_are_named() {
        let x = values();
        let q = with("te_block_1x128", &x, &|_, right| right, &|raw, _| raw);
        let words = ["codes are those of the recipe's scales", "amax over 448 is stored as it was before it was rounded"];
        is_named(&cast("te_block_1x128", &x, &q), "scale_rerounded:out.scale_unrounded", &words);
    }

    #[test]
    fn the_least_number_that_is_not_below() {
        assert_eq!([1.0, 1.01, 1.125, 447.0, 500.0].map(|s| up(Format::E4m3, s)), [1.0, 1.125, 1.125, 448.0, 448.0]);
    }
}
