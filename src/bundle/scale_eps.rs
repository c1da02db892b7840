//! An eps in the scales of a cast: added where codes are made and not where the scale is stored, added to the largest magnitude, or a least one.
//!
//! ```text
//! codes of x/(s + ε), s stored:   ε lies in [low − s, high − s] of every group          max(s, ε):   one number in all groups below it
//! ```

use super::casts::{Cast, NEAR, Named, Range};
use crate::compare::digits;
use crate::fault::Class;
use crate::fault::solve::output::roundest;

/// Groups that say it, at least, and how far their scales lie apart.
const LEAST: usize = 8;
const APART: f64 = 1.5;
/// How exactly an eps has to be known, relative.
const TIGHT: f64 = 0.1;

/// The one number in all of these intervals.
fn meet(all: impl Iterator<Item = Range>) -> Option<f64> {
    let (low, high) = all.fold((f64::NEG_INFINITY, f64::INFINITY), |(l, h), (from, to)| (l.max(from), h.min(to)));
    let tight = high - low <= TIGHT * low.abs().min(high.abs());
    (low <= high && low * high > 0.0 && tight).then(|| if low > 0.0 { roundest(low, high) } else { -roundest(-high, -low) })
}

/// Whether numbers lie apart: one factor would do for others.
fn apart(all: impl Iterator<Item = f64>) -> bool {
    let (low, high) = all.fold((f64::INFINITY, 0.0f64), |(l, h), x| (l.min(x), h.max(x)));
    high > APART * low
}

fn number(x: f64) -> String {
    let [n] = digits::apart([x]);
    n
}

impl Cast<'_> {
    /// Codes by scales that have an eps which those stored do not have.
    pub fn with_eps(&self, ranges: &[Range]) -> Option<Named> {
        let told = |g: &usize| ranges[*g].0 > 0.0 && ranges[*g].1.is_finite() && self.stored[*g] > 0.0;
        let known: Vec<(Range, f64)> = (0..ranges.len()).filter(told).map(|g| (ranges[g], self.stored[g])).collect();
        (known.len() >= LEAST && apart(known.iter().map(|k| k.1))).then_some(())?;
        let off = |s: f64| s * 4.0 * NEAR;
        if let Some(e) = meet(known.iter().map(|((low, high), s)| (low - s - off(*s), high - s + off(*s)))) {
            let words = match e > 0.0 {
                true => format!(
                    "codes are made with scale_inv + {0}: an eps of {0} is added to the scale that values are divided by, and not to the one stored",
                    number(e)
                ),
                false => format!(
                    "codes are made with scale_inv − {0}: an eps of {0} is in the scales stored, and not in those of the codes",
                    number(-e)
                ),
            };
            return Some((Class::RangeRule, "out.scale_eps", words));
        }
        let inverse =
            |((low, high), s): &(Range, f64)| (1.0 / high - 1.0 / s - off(1.0 / s), 1.0 / low - 1.0 / s + off(1.0 / s));
        if let Some(e) = meet(known.iter().map(inverse)).filter(|e| *e > 0.0) {
            let words =
                format!("codes are made with 1/scale_inv + {0}: an eps of {0} is added to the factor of values", number(e));
            return Some((Class::RangeRule, "out.scale_eps", words));
        }
        // A least scale, of which the others are not changed.
        let holds = |(r, s): &(Range, f64)| super::casts::holds(*r, *s);
        let (right, wrong) = known.iter().copied().partition::<Vec<(Range, f64)>, _>(holds);
        let least = meet(wrong.iter().map(|k| k.0))?;
        let is = wrong.iter().all(|k| k.1 < least) && right.iter().all(|k| k.1 >= least * (1.0 - TIGHT));
        (is && wrong.len() >= LEAST / 2 && right.len() >= LEAST / 2 && apart(wrong.iter().map(|k| k.1))).then(|| {
            let words = format!(
                "codes are made with a scale_inv of at least {}, in {} of {} groups: the scales stored have no such limit",
                number(least),
                wrong.len(),
                known.len()
            );
            // Scales that follow their values have nothing more to tell.
            let also = self.chosen(ranges).map_or(String::new(), |(_, _, words)| format!("; and {words}"));
            (Class::RangeRule, "out.scale_eps", words + &also)
        })
    }

    /// Scales of right codes that are an eps more than their largest magnitude asks for.
    pub fn of_amax_and_eps(&self) -> Option<Named> {
        let max = self.q.format().max_finite();
        let known: Vec<(f64, f64)> =
            (0..self.stored.len()).filter(|g| self.amax[*g] > 0.0).map(|g| (self.stored[g] * max, self.amax[g])).collect();
        (known.len() >= LEAST && !self.is_pow2() && apart(known.iter().map(|k| k.1))).then_some(())?;
        let e = meet(known.iter().map(|(used, amax)| (used - amax - 2.0 * NEAR * used, used - amax + 2.0 * NEAR * used)))?;
        (e > 0.0).then(|| {
            let words = format!("an eps of {} is added to amax, {} to scale_inv, of every group", number(e), number(e / max));
            (Class::RangeRule, "out.amax_eps", words)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor, Zero};

    /// What is said of 24 groups with these scales stored and these in codes, of the right one.
    fn said(stored: &dyn Fn(f64) -> f64, codes: &dyn Fn(f64) -> f64) -> (String, String) {
        let number = |n: usize| ((n * 7919 + 101) % 1009) as f64 / 1009.0 - 0.4;
        let values: Vec<f32> = (0..24 * 64).map(|n| (number(n) * (1.0 + (n / 64 % 9) as f64)) as f32).collect();
        let right = |g: usize| values[64 * g..][..64].iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs()))) / 448.0;
        let code = |at: usize| {
            let y = f64::from(values[at]) / codes(right(at / 64));
            Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let parts = QTensorParts {
            format: Format::E4m3,
            rows: 12,
            cols: 128,
            codes: (0..24 * 64).map(code).collect(),
            granularity: Granularity::Group(64),
            scale_format: Format::F32,
            scale_inv: (0..24).map(|g| stored(right(g)) as f32).collect(),
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, 12, 128, values.clone()).unwrap(), QTensor::new(parts).unwrap());
        let cast = Cast::of(&x, &q);
        let n = 24 * 64;
        let ranges = cast.ranges(0..n, Rounding::NearestEven, |at| f64::from(x.data()[at]), |at| at / 64, 24).unwrap();
        let words = |found: Option<Named>| found.map_or_else(String::new, |f| f.2);
        (words(cast.with_eps(&ranges)), words(cast.of_amax_and_eps()))
    }

    #[test]
    fn an_eps_of_codes_or_of_scales_is_told() {
        let own = |s: f64| s;
        let (words, _) = said(&own, &|s| s + 0.002);
        assert!(words.starts_with("codes are made with scale_inv + 2e-3") || words.contains("+ 0.002"), "{words}");
        let (words, _) = said(&|s| s + 0.002, &own);
        assert!(words.contains("is in the scales stored"), "{words}");
        let (words, _) = said(&own, &|s| 1.0 / (1.0 / s + 50.0));
        assert!(words.contains("1/scale_inv + 50"), "{words}");
        let (words, _) = said(&own, &|s| s.max(0.006));
        assert!(words.contains("of at least ") && words.contains(" of 24 groups"), "{words}");
        let both = |s: f64| s + 0.5 / 448.0;
        let (_, words) = said(&both, &both);
        assert!(words.starts_with("an eps of 0.5 is added to amax"), "{words}");
        assert_eq!(said(&own, &own), (String::new(), String::new()));
        assert_eq!(said(&|s| 1.5 * s, &|s| 1.5 * s), (String::new(), String::new()), "a factor");
        assert_eq!(said(&own, &|s| 1.5 * s).0, "", "a factor");
    }
}
