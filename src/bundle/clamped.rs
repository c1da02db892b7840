//! FP8 codes of a computed result that are wrong where it is large: they stop too early, do not stop, or wrap.
//!
//! ```text
//! y = result·scale      |y| beyond C  ──►  ±C, C below the largest code          beyond the largest code  ──►  NaN or Inf, or the next code modulo 256
//! ```

use super::Bundle;
use super::assay::Answer;
use crate::compare::{Verdict, digits};
use crate::fault::solve::segment::where_not_all;
use crate::fault::{Class, Finding};
use crate::job::Data;
use crate::op::Op;
use crate::{Format, Overflow, Rounding};

/// Wrong codes, at least.
const LEAST: usize = 3;

/// What happens to large values.
pub fn explain(bundle: &Bundle, found: &Answer) -> Option<Finding> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    let (judged, f) = (found.judgement(), q.format());
    let computed = !matches!(bundle.meta.op, Op::Cast | Op::CastTranspose) && found.verdict == Verdict::Fail;
    (computed && f.is_fp8() && q.scale_inv().len() == 1 && judged.actual.len() == q.codes().len()).then_some(())?;
    (judged.bound.ideal().len() == q.codes().len()).then_some(())?;
    let scale = f64::from(bundle.out.scale.unwrap_or_else(|| q.scale_inv()[0].recip()));
    let range = |at: usize| {
        let (d, radius) =
            (judged.bound.ideal()[at], judged.bound.certain()[at] * (1.0 + 1e-6) + d_slack(judged.bound.ideal()[at]));
        ((d - radius) * scale, (d + radius) * scale)
    };
    let value = |at: usize| f.decode(u32::from(q.codes()[at]));
    let code = |y: f64| f.encode(y, Rounding::NearestEven, Overflow::Saturate);
    let is_right = |at: usize| {
        let (low, high) = range(at);
        (f.decode(code(low))..=f.decode(code(high))).contains(&value(at))
    };
    let known: Vec<usize> = (0..q.codes().len()).filter(|at| judged.bound.ideal()[*at].is_finite()).collect();
    let wrong: Vec<usize> = known.iter().copied().filter(|at| !is_right(*at)).collect();
    (wrong.len() >= LEAST).then_some(())?;
    let least = wrong.iter().map(|at| range(*at)).map(|(low, high)| low.abs().max(high.abs())).fold(f64::INFINITY, f64::min);
    let (class, variant, words) =
        stops(f, &wrong, &value, &range).or_else(|| runs_on(f, &wrong, &|at| q.codes()[at], &range))?;
    // Where it is: no value as large is right between the wrong ones.
    let (rows, cols) = (q.rows(), q.cols());
    let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
    let span = |of: &dyn Fn(usize) -> usize| {
        let (first, last) = wrong.iter().fold((usize::MAX, 0), |(a, b), at| (a.min(of(*at)), b.max(of(*at))));
        first..last + 1
    };
    let (of_rows, of_cols) = (span(&|at| at / cols), span(&|at| at % cols));
    let large: Vec<usize> =
        known.iter().copied().filter(|at| is_right(*at) && range(*at).0.abs().min(range(*at).1.abs()) > least).collect();
    let (by_row, by_col) =
        (large.iter().any(|at| !of_rows.contains(&(at / cols))), large.iter().any(|at| !of_cols.contains(&(at % cols))));
    (0..rows).for_each(|i| is_row[i] = !by_row || of_rows.contains(&i));
    (0..cols).for_each(|j| is_col[j] = !by_col || of_cols.contains(&j));
    let inside = |at: &usize| is_row[at / cols] && is_col[at % cols];
    (!large.iter().any(inside)).then_some(())?;
    let place = where_not_all("rows", &is_row) + &where_not_all("columns", &is_col);
    Some(Finding::solved(class, variant, format!("{words}{place}")))
}

/// A last bit of an f64 sum.
fn d_slack(d: f64) -> f64 {
    d.abs() * 1e-12
}

type Named = (Class, &'static str, String);

/// All wrong ones are ±C, and their values are beyond it.
fn stops(f: Format, wrong: &[usize], value: &dyn Fn(usize) -> f64, range: &dyn Fn(usize) -> (f64, f64)) -> Option<Named> {
    let limit = value(wrong[0]).abs();
    let is = |at: &usize| {
        let (low, high) = range(*at);
        value(*at).abs() == limit && (if value(*at) > 0.0 { high } else { -low }) >= limit
    };
    (limit > 0.0 && limit < f.max_finite() && wrong.iter().all(is)).then(|| {
        let words = format!(
            "codes beyond {} become it, though the largest is {}: saturated too early",
            digits::apart([limit])[0],
            f.max_finite()
        );
        (Class::CodecEdge, "out.saturated_early", words)
    })
}

/// All wrong ones are what a conversion without a limit gives.
fn runs_on(f: Format, wrong: &[usize], code: &dyn Fn(usize) -> u8, range: &dyn Fn(usize) -> (f64, f64)) -> Option<Named> {
    let native = |y: f64| f.encode(y, Rounding::NearestEven, Overflow::Native) as u8;
    let between = |at: &usize, of: &dyn Fn(f64) -> u8| {
        let (low, high) = range(*at);
        let (a, b, c) = (of(low), of(high), code(*at));
        (a.min(b)..=a.max(b)).contains(&c)
    };
    let beyond = |at: &usize| range(*at).0.abs().max(range(*at).1.abs()) > f.max_finite();
    wrong.iter().all(beyond).then_some(())?;
    if wrong.iter().all(|at| between(at, &native)) {
        return Some((Class::OverflowWrap, "out.native", "the conversion does not saturate: NaN or Inf".into()));
    }
    // The bits of a wider number, cut to eight: exponents go on.
    let m = f.spec().mantissa;
    let smallest = f.decode(1 << m).log2();
    let number = |y: f64| {
        let e = y.abs().log2().floor();
        let steps = (y.abs() / (e - f64::from(m)).exp2()).round_ties_even();
        ((e - smallest) * f64::from(1u32 << m) + steps) as u32
    };
    let wraps = |at: &usize, carry: bool| {
        let (low, high) = range(*at);
        let sign = if high < 0.0 { 0x80u32 } else { 0 };
        let (from, to) = (number(low).min(number(high)), number(low).max(number(high)));
        let cut = |n: u32| (if carry { sign.wrapping_add(n) } else { sign | n & 0x7f }) as u8;
        low * high > 0.0 && (from..=to).any(|n| cut(n) == code(*at))
    };
    [true, false].into_iter().find(|carry| wrong.iter().all(|at| wraps(at, *carry))).map(|carry| {
        let sign = if carry { ", over the sign bit" } else { "" };
        let words = format!("the conversion does not saturate: codes run on past the largest finite one{sign}, and wrap");
        (Class::OverflowWrap, "out.wrapped", words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 448 is the largest of e4m3, 0x7e. Its bits go on with 480 at 0x7f, 512 at 0x80, 640 at 0x82 and 768 at 0x84: of these 8 are kept with the sign
    /// behind them, or 7 below the sign.
    #[test]
    fn codes_run_on_over_the_sign_or_below_it() {
        let values = [640.0, -640.0, 768.0];
        let of = |codes: [u8; 3]| runs_on(Format::E4m3, &[0, 1, 2], &|at| codes[at], &|at| (values[at], values[at]));
        let words = |codes: [u8; 3]| {
            of(codes).map(|(class, variant, words)| {
                assert_eq!((class, variant), (Class::OverflowWrap, "out.wrapped"));
                words
            })
        };
        let start = "the conversion does not saturate: codes run on past the largest finite one";
        assert_eq!(words([0x82, 0x02, 0x84]), Some(format!("{start}, over the sign bit, and wrap")));
        assert_eq!(words([0x02, 0x82, 0x04]), Some(format!("{start}, and wrap")));
        assert!(words([0x02, 0x82, 0x05]).is_none() && words([0x82, 0x82, 0x84]).is_none());
        assert_eq!(of([0x7f, 0xff, 0x7f]).map(|n| n.1), Some("out.native"));
        // Within the range nothing runs on.
        assert!(runs_on(Format::E4m3, &[0], &|_| 0x7f, &|_| (440.0, 441.0)).is_none());
    }

    #[test]
    fn a_sum_in_f64_is_known_to_twelve_digits() {
        assert_eq!([3.0, -3.0, 0.0].map(d_slack), [3e-12, 3e-12, 0.0]);
    }
}
