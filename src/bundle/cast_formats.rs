//! Codes of a cast that another conversion makes of the same numbers: one that does not saturate, or to another format.

use super::casts::{Cast, NEAR, Named};
use crate::fault::Class;
use crate::fault::solve::output::roundest;
use crate::fault::solve::segment::where_not_all;
use crate::{Format, Overflow, Rounding};

/// Formats that may be taken for each other.
pub const FP8: [Format; 4] = [Format::E4m3, Format::E4m3Fnuz, Format::E5m2, Format::E5m2Fnuz];

impl Cast<'_> {
    /// Codes that are NaN or Inf beyond the largest, and right elsewhere.
    pub fn unsaturated(&self, y: &impl Fn(usize) -> f64) -> Option<Named> {
        let f = self.q.format();
        let native = |y: f64| f.decode(f.encode(y, Rounding::NearestEven, Overflow::Native));
        let is = |at: usize, v: f64| v == self.value(at) || v.is_nan() && self.value(at).is_nan();
        let made = |at: usize| [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|by| is(at, native(y(at) * by)));
        let finite = || (0..self.q.codes().len()).filter(|at| y(*at).is_finite());
        f.is_float().then_some(())?;
        if finite().all(made) {
            return Some((Class::OverflowWrap, "out.native", "the conversion does not saturate: NaN or Inf".into()));
        }
        // From another number on than the format's own conversion.
        let lost = |at: &usize| !self.value(*at).is_finite();
        let limit = finite().filter(lost).map(|at| y(at).abs()).fold(f64::INFINITY, f64::min);
        let below = finite().filter(|at| !lost(at)).map(|at| y(at).abs()).fold(0.0, f64::max);
        (limit.is_finite() && below < limit && below > f.max_finite()).then(|| {
            let words =
                format!("values from {} scales on become NaN or Inf; smaller ones are saturated", roundest(below, limit));
            (Class::OverflowWrap, "out.native_beyond", words)
        })
    }

    /// Negative values that round to 0 and have the sign of it, which is NaN in formats without −0; all else is right.
    pub fn negative_zeros(&self, wrong: &[usize], y: &impl Fn(usize) -> f64) -> Option<Named> {
        let f = self.q.format();
        let least = f.decode(1);
        let is = |at: &usize| {
            u32::from(self.q.codes()[*at]) == f.sign_bit()
                && self.value(*at).is_nan()
                && y(*at) <= 0.0
                && -y(*at) <= 0.5 * least * (1.0 + NEAR)
        };
        (f.is_float() && wrong.iter().all(is)).then(|| {
            let words = format!(
                "{} negative values that round to 0 are written as {:#x}, −0 of other formats, which is NaN in {f}; all other codes are right",
                wrong.len(),
                f.sign_bit()
            );
            (Class::CodecEdge, "out.negative_zero", words)
        })
    }

    /// Codes of another FP8 format, in the rows and columns of `wrong` ones. Negative numbers that it rounds to 0 are NaN in fnuz formats.
    pub fn of_format(&self, wrong: &[usize], y: &impl Fn(usize) -> f64) -> Option<Named> {
        let (own, cols) = (self.q.format(), self.q.cols());
        let made = |f: Format, at: usize| {
            let code = |y: f64| own.decode(f.encode(y, Rounding::NearestEven, Overflow::Saturate));
            let is = |v: f64| v == self.value(at) || v.is_nan() && self.value(at).is_nan();
            [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|by| is(code(y(at) * by)))
        };
        FP8.contains(&own).then_some(())?;
        let f = FP8.into_iter().filter(|f| *f != own).find(|f| wrong.iter().all(|at| made(*f, *at)))?;
        let (mut is_row, mut is_col) = (vec![false; self.q.rows()], vec![false; cols]);
        wrong.iter().for_each(|at| (is_row[at / cols], is_col[at % cols]) = (true, true));
        // A right code that this format makes otherwise is not of it.
        let inside = |at: &usize| is_row[at / cols] && is_col[at % cols] && y(*at).is_finite();
        (0..self.q.codes().len()).filter(inside).all(|at| made(f, at)).then_some(())?;
        let place = where_not_all("rows", &is_row) + &where_not_all("columns", &is_col);
        let words = format!("the codes are those of {f}, and are read as {own}{place}");
        Some((Class::BitsReinterpreted, "out.written_as", words))
    }
}
