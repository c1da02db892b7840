//! A limit of scales that is not the rule's: missing, lower or higher than it has to be.
//!
//! ```text
//! rule: s = max(amax·c, R)        kernel: amax·c where that is below R, down to its own limit A;  or A where amax·c is below it
//! ```

use crate::Format;
use crate::compare::digits;

/// Groups that say it, and groups beside them whose scale is right, at least.
const LEAST: usize = 4;
/// How exactly a scale follows its amax, relative.
const NEAR: f64 = 1e-5;

/// How scales of this format differ from the rule's by a limit alone. `amax`: the largest magnitude of each block.
pub fn explain(amax: &[f64], (actual, right): (&[f64], &[f64]), f: Format) -> Option<String> {
    let is_known = |g: &usize| [amax[*g], actual[*g], right[*g]].iter().all(|x| *x > 0.0 && x.is_finite());
    let known: Vec<usize> = (0..right.len().min(actual.len()).min(amax.len())).filter(is_known).collect();
    (known.len() >= 2 * LEAST).then_some(())?;
    // An upper limit is a lower one of the reciprocals.
    [false, true].into_iter().find_map(|upper| {
        let by = |x: f64| if upper { 1.0 / x } else { x };
        let (of, rule): (Vec<f64>, Vec<f64>) = known.iter().map(|g| (by(actual[*g]), by(right[*g]))).unzip();
        let wrong: Vec<usize> = (0..known.len()).filter(|n| (of[*n] - rule[*n]).abs() > NEAR * rule[*n]).collect();
        let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
        let (own, limit) = (least(&of), least(&rule));
        let end = if upper { "most" } else { "least" };
        let [shown, lowest] = digits::apart([by(limit), by(own)]);
        (LEAST..=known.len() - LEAST).contains(&wrong.len()).then_some(())?;
        if own > limit * (1.0 + NEAR) {
            // All that are below it are at it, and are not one number by the rule.
            let several = wrong.iter().any(|n| (rule[*n] - rule[wrong[0]]).abs() > NEAR * rule[*n]);
            let is = wrong.iter().all(|n| of[*n] == own && rule[*n] < own);
            return (is && several).then(|| {
                format!("scale_inv is limited to {lowest} at {end}, in {} of {} groups; the rule has no such limit", wrong.len(), known.len())
            });
        }
        // What follows amax by the rule, and how.
        let free: Vec<usize> = (0..known.len()).filter(|n| rule[*n] > limit * (1.0 + NEAR)).collect();
        (own < limit && free.len() >= LEAST && wrong.iter().all(|n| rule[*n] == limit && of[*n] < limit)).then_some(())?;
        let ratio = |n: &usize| rule[*n] / by(amax[known[*n]]);
        let (low, high) = free.iter().map(ratio).fold((f64::INFINITY, 0.0f64), |(l, h), x| (l.min(x), h.max(x)));
        // The smallest numbers of few bits lie further apart.
        let step = if !upper && f.is_float() && f.bits() <= 8 && f.spec().mantissa > 0 { 0.5 * f.decode(1) } else { 0.0 };
        let follows = |n: &usize| {
            let m = by(amax[known[*n]]);
            let (low, high) = (low * m * (1.0 - NEAR) - step, high * m * (1.0 + NEAR) + step);
            (low <= of[*n] && of[*n] <= high) || (of[*n] == own && high < own)
        };
        let varied = wrong.iter().any(|n| of[*n] != of[wrong[0]]);
        let kept = wrong.iter().filter(|n| of[**n] == own && high * by(amax[known[**n]]) < own * (1.0 - NEAR)).count();
        ((varied || kept >= LEAST) && wrong.iter().all(follows)).then(|| {
            let instead = if kept > 0 { format!("at {lowest}") } else { format!("at {lowest} or beyond it, or nowhere") };
            format!(
                "the rule limits scale_inv to {shown} at {end}; the limit of the kernel is {instead}: {} of {} groups have the scale of their own \
                 amax beyond the rule's limit",
                wrong.len(),
                known.len()
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_not_the_rules_are_told() {
        let amax: Vec<f64> = (0..40).map(|g| (f64::from(g * 7 % 40) / 4.0 - 6.0).exp2()).collect();
        let said = |of: &dyn Fn(f64) -> f64, rule: &dyn Fn(f64) -> f64| {
            let all = |of: &dyn Fn(f64) -> f64| amax.iter().map(|m| of(*m / 448.0)).collect::<Vec<f64>>();
            explain(&amax, (&all(of), &all(rule)), Format::F32).unwrap_or_default()
        };
        let limit = 0.1 / 448.0;
        let words = said(&|s| s, &|s| s.max(limit));
        assert!(words.contains(" at least; the limit of the kernel is at ") && words.contains("or nowhere"), "{words}");
        let words = said(&|s| s.max(limit / 3.0), &|s| s.max(limit));
        assert!(words.contains("at least; the limit of the kernel is at 7.") && !words.contains("or nowhere"), "{words}");
        let words = said(&|s| s.min(0.01), &|s| s.min(0.005));
        assert!(words.contains(" at most; the limit of the kernel is at "), "{words}");
        let words = said(&|s| s.max(limit), &|s| s);
        assert!(words.contains("is limited to ") && words.ends_with("the rule has no such limit"), "{words}");
        assert_eq!(said(&|s| s, &|s| s), "");
        assert_eq!(said(&|s| if s < limit { 0.7 * s } else { s }, &|s| s.max(limit)), "", "of no amax");
    }

    /// Scales of few bits follow their amax as far as their steps let them.
    #[test]
    fn the_smallest_scales_of_few_bits_lie_apart() {
        let f = Format::E4m3;
        let round = |x: f64| f.decode(f.encode(x, crate::Rounding::NearestEven, crate::Overflow::Saturate));
        let amax: Vec<f64> = (0..60).map(|g| 0.003 * (1.0 + f64::from(g))).collect();
        let right: Vec<f64> = amax.iter().map(|m| round(*m).max(1.0 / 64.0)).collect();
        let actual: Vec<f64> = amax.iter().map(|m| round(*m)).collect();
        assert!(explain(&amax, (&actual, &right), f).is_some());
        assert!(explain(&amax, (&actual.iter().map(|a| a + 0.004).collect::<Vec<_>>(), &right), f).is_none());
    }
}
