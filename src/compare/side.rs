//! What a kernel writes beside its result: amax, scale_inv, column sums, norm statistics, the transposed copy. Each is exact,
//! or has an interval derived from its own arithmetic (the boundary rule of [`crate::model`], or [`amax_intervals`]).

use super::Bound;
use super::judged::bands;
use crate::{Error, Result};
use std::ops::Range;

/// One side output, judged element by element.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// `amax`, `scale_inv`, `dbias`, `transpose`, …
    pub name: &'static str,
    pub count: usize,
    pub violations: usize,
    /// Outside the probable bound only.
    pub improbable: usize,
    /// The first violation (else the first improbable one): index, what was found, what is allowed.
    pub first: Option<(usize, f64, (f64, f64))>,
    /// Largest error over its bound; 0 or ∞ for exact ones.
    pub ratio: f64,
}

impl Check {
    fn length(name: &str, expected: usize, found: usize) -> Result<()> {
        (expected == found).then_some(()).ok_or_else(|| Error::shape(name, format!("{found} values"), expected))
    }

    /// Bit for bit, NaNs as a class. Errors when the lengths differ.
    pub fn exact(name: &'static str, expected: &[f32], found: &[f32]) -> Result<Self> {
        Self::length(name, expected.len(), found.len())?;
        let differs = |e: f32, f: f32| e.to_bits() != f.to_bits() && !(e.is_nan() && f.is_nan());
        Ok(Self::of(name, expected.len(), |i| {
            let e = f64::from(expected[i]);
            differs(expected[i], found[i]).then_some((i, f64::from(found[i]), (e, e)))
        }))
    }

    /// Code for code: transposed copies.
    pub fn codes(name: &'static str, expected: &[u8], found: &[u8]) -> Result<Self> {
        Self::length(name, expected.len(), found.len())?;
        Ok(Self::of(name, expected.len(), |i| {
            let e = f64::from(expected[i]);
            (expected[i] != found[i]).then_some((i, f64::from(found[i]), (e, e)))
        }))
    }

    /// Each value inside its interval, ends included; a NaN is outside.
    pub fn within(name: &'static str, allowed: &[(f64, f64)], found: &[f64]) -> Result<Self> {
        Self::length(name, allowed.len(), found.len())?;
        Ok(Self::of(name, allowed.len(), |i| {
            let (low, high) = allowed[i];
            (!(low <= found[i] && found[i] <= high)).then_some((i, found[i], allowed[i]))
        }))
    }

    fn of(name: &'static str, count: usize, violation: impl Fn(usize) -> Option<(usize, f64, (f64, f64))>) -> Self {
        let (mut violations, mut first) = (0, None);
        for v in (0..count).filter_map(violation) {
            violations += 1;
            first = first.or(Some(v));
        }
        Self { name, count, violations, improbable: 0, first, ratio: if violations > 0 { f64::INFINITY } else { 0.0 } }
    }

    /// The amax of a bounded result: an error where it is outside the certain interval, a doubt where it is outside the probable one.
    pub fn amax(bound: &Bound, found: f32) -> Result<Self> {
        let ([certain, probable], found) = (amax_intervals(bound), [f64::from(found)]);
        let check = Self::within("amax", &[certain], &found)?;
        let likely = Self::within("amax", &[probable], &found)?;
        Ok(if check.passes() { Self { improbable: likely.violations, first: likely.first, ..check } } else { check })
    }

    /// By a bound.
    pub fn bounded(name: &'static str, bound: &Bound, found: &[f64]) -> Result<Self> {
        let j = bound.judge(found)?;
        let first = j.first_violation.or(j.first_improbable).map(|i| (i, found[i], bound.allowed(i)));
        let (violations, improbable) = (j.violations, j.improbable - j.violations);
        Ok(Self { name, count: found.len(), violations, improbable, first, ratio: j.ratio_certain })
    }

    pub fn passes(&self) -> bool {
        self.violations == 0
    }
}

/// The certain and the probable interval of amax = max |v| over the values before scaling, as f32: from `max(|d| − β)` to `max(|d| + β)`,
/// where every |v − d| ≤ β: always, or in all but one of 10⁹ tensors. NaNs are skipped, as `fmaxf` and the atomic maximum of TransformerEngine do; nothing
/// gives 0.
pub fn amax_intervals(bound: &Bound) -> [(f64, f64); 2] {
    [bound.certain(), bound.probable()].map(|radii| amax_interval(bound.ideal(), radii))
}

fn amax_interval(ideal: &[f64], radii: &[f64]) -> (f64, f64) {
    let band = |band: Range<usize>| {
        let both = ideal[band.clone()].iter().zip(&radii[band]).filter(|(d, _)| !d.is_nan());
        both.fold((0.0f64, 0.0f64), |(low, high), (d, r)| (low.max(d.abs() - r), high.max(d.abs() + r)))
    };
    let larger = |a: (f64, f64), b: (f64, f64)| (a.0.max(b.0), a.1.max(b.1));
    let (low, high) = bands(ideal.len(), band).into_iter().fold((0.0, 0.0), larger);
    (f64::from(low as f32), f64::from(high as f32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::compare::OutFormat;

    #[test]
    fn amax_is_bracketed_and_exact_where_the_values_are() {
        let out = OutFormat::scaled(Format::E4m3, 2.0, 0.5);
        let exact = Bound::exact_output(&[1.0, -3.25, f64::NAN, 0.0], &out);
        assert_eq!(amax_intervals(&exact), [(3.25, 3.25); 2]);
        let loose = Bound::from_radii(vec![1.0, -3.25], vec![0.5, 0.25], vec![0.25, 0.125], &out).unwrap();
        assert_eq!(amax_intervals(&loose), [(3.0, 3.5), (3.125, 3.375)]);
        let of = |found: f32| Check::amax(&loose, found).map(|c| (c.violations, c.improbable, c.first.map(|f| f.2))).unwrap();
        assert_eq!(of(3.125), (0, 0, None));
        assert_eq!(of(3.1), (0, 1, Some((3.125, 3.375))));
        assert_eq!([of(2.9), of(f32::NAN)], [(1, 0, Some((3.0, 3.5))); 2]);
    }

    #[test]
    fn exact_checks_name_the_first_difference() {
        let c = Check::exact("scale_inv", &[1.0, f32::NAN, 0.0], &[1.0, f32::NAN, -0.0]).unwrap();
        assert_eq!((c.violations, c.first), (1, Some((2, -0.0, (0.0, 0.0)))));
        assert!(Check::codes("transpose", &[1, 2], &[1, 2]).unwrap().passes());
        assert_eq!(Check::codes("transpose", &[1, 2], &[2, 2]).unwrap().first, Some((0, 2.0, (1.0, 1.0))));
        assert!(Check::exact("amax", &[1.0], &[]).is_err());
    }
}
