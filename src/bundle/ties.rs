//! Values of a cast that lie exactly between two codes. The hardware's conversions to 8-bit floats take the even one; a kernel that adds half a
//! step and cuts takes the one further from zero, every time.
//!
//! Only scales that are powers of two are looked at: what they divide is exact, so a tie is one in every order of the arithmetic. Formats of 4
//! bits and integers are not: kernels in use round their ties in other ways (`roundf`, comparisons).

use super::Bundle;
use crate::fault::{Class, Finding};
use crate::format::grid::ValueGrid;
use crate::job::Data;
use crate::op::Op;
use crate::quant::Zero;
use crate::{Overflow, QTensor, Tensor};

/// Ties that a rule decides otherwise than to even, at least. By chance a right kernel has none.
const LEAST: usize = 8;

/// Words, variant, and whether a tie goes to the end further from zero, by whether it is negative.
type Rule = (&'static str, &'static str, fn(bool) -> bool);
const RULES: [Rule; 4] = [
    ("away from zero", "half_away", |_| true),
    ("toward zero", "half_to_zero", |_| false),
    ("upward", "half_up", |negative| !negative),
    ("downward", "half_down", |negative| negative),
];

/// Variant and words where all ties are rounded by one rule, which is not to even.
fn rule(x: &Tensor, q: &QTensor) -> Option<(&'static str, String)> {
    let f = q.format();
    let exact = |s: f64| s > 0.0 && s.log2().fract() == 0.0;
    (f.is_fp8() && matches!(q.zero(), Zero::None) && x.data().len() == q.codes().len()).then_some(())?;
    let mut values: Vec<f64> = (0..1u32 << f.bits()).map(|c| f.decode(c)).filter(|v| v.is_finite() && *v >= 0.0).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let grid = ValueGrid::new(f, Overflow::Saturate);
    let mut fits = [true; RULES.len()];
    let (mut all, mut others) = (0usize, [0usize; RULES.len()]);
    for (at, x) in x.data().iter().enumerate() {
        let unit = q.affine(q.scale_index(at / q.cols(), at % q.cols())).unit;
        if !exact(unit) || !x.is_finite() {
            continue;
        }
        let y = f64::from(*x) / unit;
        let found = f.decode(u32::from(q.codes()[at]));
        let n = values.partition_point(|v| *v < y.abs());
        let ends = n.checked_sub(1).and_then(|below| Some((values[below], *values.get(n)?)));
        let Some((low, high)) = ends.filter(|(low, high)| y.abs() - low == high - y.abs()) else {
            // What is wrong elsewhere too is no rule of ties.
            if found != grid.nearest(y) {
                return None;
            }
            continue;
        };
        let (found, even) = (found.abs(), grid.nearest(y.abs()));
        all += 1;
        for (n, (_, _, further)) in RULES.iter().enumerate() {
            let made = if further(y < 0.0) { high } else { low };
            fits[n] &= found == made;
            others[n] += usize::from(made != even);
        }
    }
    let n = (0..RULES.len()).find(|n| fits[*n] && others[*n] >= LEAST)?;
    let words = format!(
        "all {all} values halfway between two codes are rounded {}, where {} of them have the even code on the other side: ties go to even",
        RULES[n].0, others[n]
    );
    Some((RULES[n].1, words))
}

fn of(bundle: &Bundle) -> Option<(&'static str, String)> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    // A recipe says itself how it rounds.
    (matches!(bundle.meta.op, Op::Cast | Op::CastTranspose) && bundle.meta.recipe.is_none()).then_some(())?;
    rule(bundle.a.high.as_ref()?, q)
}

/// What is wrong with the ties of a cast without a recipe.
pub(super) fn contradiction(bundle: &Bundle) -> Option<String> {
    of(bundle).map(|(_, words)| words)
}

/// The same as a finding.
pub(super) fn explain(bundle: &Bundle) -> Option<Finding> {
    of(bundle).map(|(variant, words)| Finding::solved(Class::Rounding, &format!("out.{variant}"), words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor};

    /// Multiples of 1/16 up to 8 as e4m3 with scale 1: those of odd sixteenths above 1 are ties.
    fn cast(round: impl Fn(f64, f64, f64) -> f64) -> (Tensor, QTensor) {
        let f = Format::E4m3;
        let data: Vec<f32> = (0..256).map(|n| (n as f32 - 128.0) / 16.0).collect();
        let x = Tensor::new(Format::F32, 4, 64, data).unwrap();
        let grid = ValueGrid::new(f, Overflow::Saturate);
        let code = |x: &f32| {
            let y = f64::from(*x);
            let even = grid.nearest(y);
            let step = f.ulp(y.abs());
            let low = (y.abs() / step).floor() * step;
            let value = if y.abs() - low == step / 2.0 { round(y, low, low + step) } else { even };
            f.encode(value, crate::Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let codes = x.data().iter().map(code).collect();
        (x, tensor(codes))
    }

    fn tensor(codes: Vec<u8>) -> QTensor {
        QTensor::new(QTensorParts {
            format: Format::E4m3,
            rows: 4,
            cols: 64,
            codes,
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        })
        .unwrap()
    }

    #[test]
    fn ties_by_another_rule_than_to_even_are_told() {
        let found = |of: &dyn Fn(f64, f64, f64) -> f64| {
            let (x, q) = cast(of);
            rule(&x, &q).map(|r| r.0)
        };
        assert_eq!(found(&|y, _, high| high * y.signum()), Some("half_away"));
        assert_eq!(found(&|y, low, _| low * y.signum()), Some("half_to_zero"));
        assert_eq!(found(&|y, low, high| if y < 0.0 { -low } else { high }), Some("half_up"));
        let grid = ValueGrid::new(Format::E4m3, Overflow::Saturate);
        assert_eq!(found(&|y, _, _| grid.nearest(y)), None);
        let mut one = false;
        let (x, q) = cast(|y, _, high| high * y.signum());
        let mut codes = q.codes().to_vec();
        for (at, c) in codes.iter_mut().enumerate() {
            let y = f64::from(x.data()[at]);
            if !one && f64::from(x.data()[at]) > 0.0 && grid.nearest(y) != Format::E4m3.decode(u32::from(*c)) {
                *c -= 1;
                one = true;
            }
        }
        assert_eq!(rule(&x, &tensor(codes)), None, "one tie to even: no rule");
    }
}
