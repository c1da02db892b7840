//! What a kernel writes beside its result: amax, scale_inv, column sums, norm statistics, the transposed copy. Each is exact,
//! or has an interval derived from its own arithmetic (the boundary rule of [`crate::model`], or [`amax_interval`]).

use super::Bound;
use crate::{Error, Format, Result};

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

/// The interval of amax = max |v| over the values before scaling, as f32: from `max(|d| − β)` to `max(|d| + β)`. NaNs are
/// skipped, as `fmaxf` and the atomic maximum of TransformerEngine do; nothing gives 0.
pub fn amax_interval(bound: &Bound) -> (f64, f64) {
    let both = bound.ideal().iter().zip(bound.certain()).filter(|(d, _)| !d.is_nan());
    let (low, high) = both.fold((0.0f64, 0.0f64), |(low, high), (d, r)| (low.max(d.abs() - r), high.max(d.abs() + r)));
    (f64::from(low as f32), f64::from(high as f32))
}

/// What scale_inv, kept in `format`, may be beside a scale. Both ends NaN where it has to be NaN.
///
/// Both come from one quotient r = M/amax: `scale = RN32(r)`, and scale_inv is `RN(1/scale)`, `RN(amax/M)` or `RN(amax·RN(1/M))`. With δ one
/// rounding to f32 (|δ| ≤ u = 2⁻²⁴, and half a subnormal quantum h = 2⁻¹⁵⁰ below 2⁻¹²⁶) and δ' one of scale_inv's own format (u', h'),
///
/// ```text
/// scale = r(1 + δ₁) ± h      scale_inv = (1/r)(1 + δ₂)(1 + δ₃') ± h'
/// r ∈ [(scale − h)/(1 + u), (scale + h)/(1 − u)]
/// scale_inv ∈ [(1 − u)(1 − u')/r_high − h', (1 + u)(1 + u')/r_low + h']
/// ```
///
/// Nothing further from 1/scale is the scale that the codes were made by. A scale of 0, Inf or NaN has the inverse Inf, 0 or NaN.
pub fn inverses(scale: f32, format: Format) -> (f64, f64) {
    let exact = f64::from(1.0 / scale);
    if scale == 0.0 || !scale.is_finite() {
        return (exact, exact);
    }
    let (u, h) = (2f64.powi(-24), 2f64.powi(-150));
    let own = |f: Format| (0.5 * f.ulp(1.0), 0.5 * f.ulp(0.0));
    // A scale_inv of 8 bits is a power of two or a short number by its recipe: no more than f32's rounding is known of it.
    let (u2, h2) = if matches!(format, Format::F16 | Format::Bf16) { own(format) } else { own(Format::F32) };
    let s = f64::from(scale.abs());
    let (low, high) = ((s - h) / (1.0 + u), (s + h) / (1.0 - u));
    let near = ((1.0 - u) * (1.0 - u2) / high - h2, (1.0 + u) * (1.0 + u2) / low + h2);
    // The ends are f64: outward by an ulp each. A value beyond the range of f32 is Inf there.
    let end = |x: f64| if x > f64::from(f32::MAX) { f64::INFINITY } else { x };
    let (low, high) = (near.0.next_down(), end(near.1.next_up()));
    if scale > 0.0 { (low, high) } else { (-high, -low) }
}

/// Whether a scale and a scale_inv that is kept in `format` are inverse to each other to rounding.
pub fn inverse(scale: f32, scale_inv: f32, format: Format) -> bool {
    let (low, high) = inverses(scale, format);
    let found = f64::from(scale_inv);
    (low.is_nan() && found.is_nan()) || (low <= found && found <= high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::OutFormat;

    #[test]
    fn amax_is_bracketed_and_exact_where_the_values_are() {
        let out = OutFormat::scaled(Format::E4m3, 2.0, 0.5);
        let exact = Bound::exact_output(&[1.0, -3.25, f64::NAN, 0.0], &out);
        assert_eq!(amax_interval(&exact), (3.25, 3.25));
        let loose = Bound::from_radii(vec![1.0, -3.25], vec![0.5, 0.25], vec![0.0, 0.0], &out).unwrap();
        assert_eq!(amax_interval(&loose), (3.0, 3.5));
        assert!(Check::within("amax", &[(3.0, 3.5)], &[3.1]).unwrap().passes());
        assert!(!Check::within("amax", &[(3.0, 3.5)], &[f64::NAN]).unwrap().passes());
    }

    #[test]
    fn exact_checks_name_the_first_difference() {
        let c = Check::exact("scale_inv", &[1.0, f32::NAN, 0.0], &[1.0, f32::NAN, -0.0]).unwrap();
        assert_eq!((c.violations, c.first), (1, Some((2, -0.0, (0.0, 0.0)))));
        assert!(Check::codes("transpose", &[1, 2], &[1, 2]).unwrap().passes());
        assert_eq!(Check::codes("transpose", &[1, 2], &[2, 2]).unwrap().first, Some((0, 2.0, (1.0, 1.0))));
        assert!(Check::exact("amax", &[1.0], &[]).is_err());
    }

    /// Every way in which kernels take the inverse is inside, at every magnitude; an ulp more than those is not.
    #[test]
    fn each_way_to_the_inverse_is_right_and_nothing_else() {
        let mut word = 1u32;
        for i in 0..200_000u32 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let amax = f32::from_bits(word & 0x7fff_ffff);
            let m = [448.0f32, 57344.0, 127.0, 6.0][(i % 4) as usize];
            let scale = m / amax;
            if !amax.is_finite() || scale == 0.0 || !scale.is_finite() {
                continue;
            }
            for inv in [1.0 / scale, amax / m, amax * (1.0 / m)] {
                assert!(inverse(scale, inv, Format::F32), "{amax:e}: {scale:e} and {inv:e}");
                assert!(inverse(-scale, -inv, Format::F32) && !inverse(scale, -inv, Format::F32) || inv == 0.0);
            }
            let half = crate::tensor::round_to(Format::Bf16, amax / m);
            assert!(inverse(scale, half, Format::Bf16), "{amax:e}: {scale:e} and {half:e}");
            if amax / m > 1e-30 && amax / m < 1e30 {
                for wrong in [0.5, 2.0, 1.0 + 5.0 * f32::EPSILON, 1.0 - 5.0 * f32::EPSILON] {
                    assert!(!inverse(scale, wrong / scale, Format::F32), "{wrong}: {scale:e}");
                }
            }
        }
        assert!(inverse(0.0, f32::INFINITY, Format::F32) && inverse(f32::NAN, f32::NAN, Format::F32));
        assert!(
            !inverse(1.0, f32::NAN, Format::F32) && !inverse(f32::NAN, 1.0, Format::F32) && !inverse(0.0, 1.0, Format::F32)
        );
        // The reciprocal of f32's largest number is subnormal.
        assert!(inverse(f32::MAX, f32::from_bits(0x0020_0000), Format::F32));
    }
}
