//! Codes of a cast that are made with the exponent alone of the scales beside them, as a conversion that takes a scale in e8m0 does: the power of two below,
//! above or nearest to each.
//!
//! ```text
//! code = round(x / 2^⌊log2 s⌋), or ⌈⌉, or the nearest         s: scale_inv as it is stored, no power of two; beyond the codes: the largest, or NaN or Inf
//! ```

use super::casts::{Cast, NEAR, Named};
use crate::fault::Class;
use crate::{Overflow, Rounding};

/// Wrong codes, at least, and the share of them and of all that one way has to make.
const LEAST: usize = 16;
const SHARE: f64 = 0.98;
/// Wrong codes that refuse a way.
const FEW: usize = 64;

/// Words, and the power of two for a scale.
type Way = (&'static str, fn(f64) -> f64);
const WAYS: [Way; 3] = [
    ("below it, its exponent alone", |s| s.log2().floor().exp2()),
    ("above it", |s| s.log2().ceil().exp2()),
    ("nearest to it", |s| if s / s.log2().floor().exp2() >= 1.5 { s.log2().ceil().exp2() } else { s.log2().floor().exp2() }),
];

impl Cast<'_> {
    /// By which power of two the codes are made.
    pub fn by_exponent(&self) -> Option<Named> {
        let f = self.q.format();
        (!self.is_pow2() && self.stored.iter().all(|s| *s > 0.0 && s.is_finite())).then_some(())?;
        let x = |at: usize| f64::from(self.x.data()[at]);
        let same = |at: usize, v: f64| v == self.value(at) || v.is_nan() && self.value(at).is_nan();
        let right = |at: usize| {
            [1.0, 1.0 - NEAR, 1.0 + NEAR]
                .iter()
                .any(|n| self.nearest(x(at) / self.stored[self.group(at)] * n) == self.value(at))
        };
        let known: Vec<usize> = (0..self.q.codes().len()).filter(|at| x(*at).is_finite()).collect();
        let wrong: Vec<usize> = known.iter().copied().filter(|at| !right(*at)).collect();
        (wrong.len() >= LEAST).then_some(())?;
        let few: Vec<usize> = wrong.iter().copied().step_by(wrong.len().div_ceil(FEW)).collect();
        [Overflow::Saturate, Overflow::Native].into_iter().find_map(|overflow| {
            let by = |at: usize, way: &Way| f.decode(f.encode(x(at) / (way.1)(self.stored[self.group(at)]), Rounding::NearestEven, overflow));
            let made = |all: &[usize], way: &Way| {
                let most = ((1.0 - SHARE) * all.len() as f64) as usize;
                all.iter().filter(|at| !same(**at, by(**at, way))).take(most + 1).count() <= most
            };
            let way = WAYS.iter().find(|way| made(&few, way) && made(&wrong, way) && made(&known, way))?;
            let lost = known.iter().filter(|at| !self.value(**at).is_finite()).count();
            let beyond = match lost {
                0 => String::new(),
                n => format!("; {n} values beyond the codes become NaN or Inf"),
            };
            let words = format!(
                "codes are made with the power of two {}, of each scale_inv, which is stored as it is: {} of {} are others{beyond}",
                way.0,
                wrong.len(),
                known.len()
            );
            Some((Class::ScaleRerounded, "out.scale_exponent", words))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor, Tensor, Zero};

    /// What is said of 30 groups of 48 whose codes are made by this of their scales.
    fn said(format: Format, by: &dyn Fn(f64) -> f64, overflow: Overflow) -> String {
        let number = |n: usize| ((n * 7919 + 101) % 1009) as f64 / 1009.0 - 0.4;
        let values: Vec<f32> = (0..30 * 48).map(|n| (number(n) * (1.0 + (n / 48 * 7 % 11) as f64)) as f32).collect();
        let scale = |g: usize| values[48 * g..][..48].iter().fold(0.0f32, |m, v| m.max(v.abs())) / format.max_finite() as f32;
        let code = |at: usize| {
            format.encode(f64::from(values[at]) / by(f64::from(scale(at / 48))), Rounding::NearestEven, overflow) as u8
        };
        let parts = QTensorParts {
            format,
            rows: 15,
            cols: 96,
            codes: (0..30 * 48).map(code).collect(),
            granularity: Granularity::Group(48),
            scale_format: Format::F32,
            scale_inv: (0..30).map(scale).collect(),
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, 15, 96, values.clone()).unwrap(), QTensor::new(parts).unwrap());
        Cast::of(&x, &q).by_exponent().map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn codes_of_the_exponent_of_their_scales_are_told() {
        let words = said(Format::E4m3, &|s| s.log2().floor().exp2(), Overflow::Native);
        assert!(
            words.starts_with("codes are made with the power of two below it, its exponent alone, of each scale_inv"),
            "{words}"
        );
        assert!(words.ends_with(" values beyond the codes become NaN or Inf"), "{words}");
        let words = said(Format::E5m2, &|s| s.log2().floor().exp2(), Overflow::Saturate);
        assert!(words.contains("below it") && !words.contains("beyond"), "{words}");
        assert!(said(Format::Int8, &|s| s.log2().ceil().exp2(), Overflow::Saturate).contains("two above it"));
        assert!(said(Format::E4m3, &|s| (s.log2() - 0.585).ceil().exp2(), Overflow::Saturate).contains("nearest to it"));
    }

    #[test]
    fn other_scales_are_no_exponent() {
        assert_eq!(said(Format::E4m3, &|s| s, Overflow::Saturate), "", "right");
        assert_eq!(said(Format::E4m3, &|s| 0.7 * s, Overflow::Native), "", "a factor");
        assert_eq!(said(Format::E4m3, &|s| (0.5 * s.log2().floor()).exp2(), Overflow::Saturate), "", "another power");
    }
}
