//! A dequantization by scales that are all the same number too small or too large: what scales are stored without, as the mean of scales that are quantized
//! themselves, is not added back, or added twice.
//!
//! ```text
//! value = code · (scale_inv + d)        d: in [low − scale_inv, high − scale_inv] of every group
//! ```

use super::casts::Named;
use crate::compare::digits;
use crate::fault::Class;
use crate::fault::solve::output::roundest;

/// Groups that tell the number, at least, how far their scales lie apart, and how exactly it has to be known, relative.
const LEAST: usize = 8;
const APART: f64 = 1.5;
const TIGHT: f64 = 0.02;
/// What a product in f32 may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;

/// What is said of solved scales, low and high of every group, beside those stored.
pub fn explain(solved: &[Option<(f64, f64)>], stored: &[f64]) -> Option<Named> {
    let known: Vec<((f64, f64), f64)> = solved.iter().zip(stored).filter_map(|(r, s)| Some(((*r)?, *s))).collect();
    let (least, most) = known.iter().fold((f64::INFINITY, 0.0f64), |(l, m), k| (l.min(k.1.abs()), m.max(k.1.abs())));
    (known.len() >= LEAST && most > APART * least).then_some(())?;
    let end = |((low, high), s): &((f64, f64), f64)| {
        let slack = NEAR * (s.abs() + low.abs().max(high.abs()));
        (low - s - slack, high - s + slack)
    };
    let meet = |(l, h): (f64, f64), (from, to): (f64, f64)| (l.max(from), h.min(to));
    let (low, high) = known.iter().map(end).fold((f64::NEG_INFINITY, f64::INFINITY), meet);
    // A number that may be 0 is none; one that groups tell only loosely may be another in each.
    (low <= high && low * high > 0.0 && high - low <= TIGHT * low.abs().min(high.abs())).then_some(())?;
    let size = roundest(low.abs().min(high.abs()), low.abs().max(high.abs()));
    let [number] = digits::apart([size]);
    let words = if low < 0.0 {
        format!(
            "every scale is {number} less than the one given, the same in all {} groups: an offset of the scales (the mean that nested ones are stored \
             without) is not added back",
            known.len()
        )
    } else {
        format!(
            "every scale is {number} more than the one given, the same in all {} groups: an offset is added to them",
            known.len()
        )
    };
    Some((Class::ZpCorrection, "a.scale_offset", words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(of: impl Fn(usize, f64) -> f64, width: f64) -> String {
        let stored: Vec<f64> = (0..40).map(|g| 0.02 + (g * 7 % 13) as f64 / 100.0).collect();
        let solved: Vec<Option<(f64, f64)>> =
            (0..40).map(|g| (g % 5 != 3).then(|| (of(g, stored[g]) - width, of(g, stored[g]) + 1.5 * width))).collect();
        explain(&solved, &stored).map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn a_number_that_all_scales_lack_is_solved() {
        let words = said(|_, s| s - 0.0625, 2e-5);
        assert!(words.starts_with("every scale is 0.0625 less than the one given, the same in all 32 groups"), "{words}");
        assert!(said(|_, s| s + 0.03, 2e-5).starts_with("every scale is 0.03 more than"));
    }

    #[test]
    fn what_is_no_one_number_is_not_said() {
        assert_eq!(said(|_, s| s, 1e-4), "", "right");
        assert_eq!(said(|_, s| 0.4 * s, 1e-4), "", "a factor");
        assert_eq!(said(|g, s| s - 0.06 - 0.001 * (g % 2) as f64, 1e-4), "", "two numbers");
        assert_eq!(said(|_, s| s - 0.0625, 0.02), "", "any number near it would do");
    }
}
