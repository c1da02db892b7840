//! A result in codes whose values beyond the format's largest are converted as they are, not clamped: NaN, or Inf where the format has one.

use super::system::{System, Theory};
use crate::compare::OutFormat;
use crate::fault::Class;
use std::sync::Arc;

/// From where on element `at` is beyond its format; values that round to the largest are not.
fn limit(out: &OutFormat, at: usize) -> f64 {
    let (_, high) = out.range(at);
    high + 0.5 * out.spacing(at, high)
}

/// Whether an element is beyond what it is stored in.
pub fn is(s: &System, at: usize) -> bool {
    s.out.is_quantized() && s.ideal[at].abs() > limit(s.out, at)
}

/// Where some results of a product are no numbers. Beside a move of results as well. Codes of values have this in their encoders.
pub fn theory(s: &System) -> Option<Theory> {
    (!s.alone).then_some(())?;
    let n = s.rows * s.cols;
    let lost = (0..n).any(|at| s.is_wrong[at] && !s.actual[at].is_finite() && s.ideal[at].is_finite());
    (s.out.is_quantized() && lost && (0..n).any(|at| is(s, at))).then_some(())?;
    let (low, high) = s.out.range(0);
    (low.is_finite() && high > 0.0).then_some(())?;
    let f = s.out.format();
    let words = format!(
        "results beyond {f}'s largest value, {}, become NaN or Inf: they are converted without a clamp",
        f.max_finite()
    );
    let mut t = Theory::new(Class::OverflowWrap, "out", "out.native_beyond", words).bits(2.0);
    let (bias, cols, out) = (s.bias.clone(), s.cols, s.out.clone());
    t.finish = Some(Arc::new(move |i, j, v| {
        let y = v + bias.at(i, j);
        if y.abs() > limit(&out, i * cols + j) { y.signum() * f64::INFINITY } else { y }
    }));
    Some(t)
}
