//! What an error is summarised by: one registry, one struct, one function.

use super::OutFormat;
use super::judged::LANES;
use super::out::Cells;
use super::quantile::{Sample, quantiles};
use crate::format::simd::best;
use crate::{Error, Result};
use std::ops::Range;

/// Which way a metric gets worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    Larger,
    Smaller,
    AwayFromZero,
    /// A fact, not a quality.
    Neither,
}

/// One entry of [`METRICS`].
pub struct Metric {
    /// CSV columns are `<error>_<name>` with error one of quantization, kernel, total.
    pub name: &'static str,
    pub unit: &'static str,
    pub help: &'static str,
    pub worse: Worse,
    pub get: fn(&ErrorStats) -> f64,
    set: fn(&mut ErrorStats, f64),
}

/// The statistics of one of the three errors, `actual − reference`, over the elements of a result.
///
/// - Sums, extremes and quantiles are over the *finite pairs* (both values finite). A pair with a NaN or an Inf counts as a
///   match only when both are NaN or both the same Inf; every other one is in `nonfinite_mismatches`, which nothing hides.
/// - Relative error is `|e| / |reference|`: ∞ where only the reference is zero; pairs where both are zero are left out of
///   its quantiles (they would pull them down in sparse data).
/// - Quantiles are nearest-rank: the ⌈p·n⌉-th smallest, so each is an error that occurred.
/// - One ULP is the output format's spacing at the reference, times |scale_inv| for a quantized output.
/// - An empty sample gives 0 (cosine 1, SQNR ∞); `finite` says that it was empty.
/// - Sums are taken over a fixed binary tree: the same bits with any number of threads.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ErrorStats {
    pub count: usize,
    pub finite: usize,
    pub nonfinite_mismatches: usize,
    pub max_abs: f64,
    pub mean_abs: f64,
    pub max_rel: f64,
    pub p50_rel: f64,
    pub p99_rel: f64,
    pub p999_rel: f64,
    pub rmse: f64,
    pub mean_signed: f64,
    pub mean_z: f64,
    pub rel_frobenius: f64,
    pub sqnr_db: f64,
    pub cosine: f64,
    pub max_ulp: f64,
    pub p50_ulp: f64,
    pub p99_ulp: f64,
    pub p999_ulp: f64,
    pub saturated: usize,
    pub flushed: usize,
    /// Row-major index of the largest absolute error; of the first non-finite mismatch where there is one.
    pub worst: Option<usize>,
}

macro_rules! metric {
    ($name:ident, $unit:literal, $worse:ident, $help:literal) => {
        Metric {
            name: stringify!($name),
            unit: $unit,
            help: $help,
            worse: Worse::$worse,
            get: |s| s.$name as f64,
            set: |s, x| s.$name = x as _,
        }
    };
}

/// Every metric, in the order of CSV columns and tables.
pub const METRICS: &[Metric] = &[
    metric!(count, "elements", Neither, "elements compared"),
    metric!(finite, "elements", Neither, "pairs in which both values are finite; the statistics are over these"),
    metric!(nonfinite_mismatches, "elements", Larger, "NaN or Inf on one side only, or different on both"),
    metric!(max_abs, "value", Larger, "largest |actual − reference|"),
    metric!(mean_abs, "value", Larger, "mean |actual − reference|"),
    metric!(max_rel, "1", Larger, "largest |actual − reference| / |reference|; inf where only the reference is zero"),
    metric!(p50_rel, "1", Larger, "median relative error, pairs of zeros left out"),
    metric!(p99_rel, "1", Larger, "99th percentile of the relative error"),
    metric!(p999_rel, "1", Larger, "99.9th percentile of the relative error"),
    metric!(rmse, "value", Larger, "root of the mean squared error"),
    metric!(mean_signed, "value", AwayFromZero, "mean of actual − reference: a bias"),
    metric!(mean_z, "standard errors", AwayFromZero, "signed mean over its standard error; beyond ±4 the bias is real"),
    metric!(rel_frobenius, "1", Larger, "‖actual − reference‖ / ‖reference‖ (Frobenius)"),
    metric!(sqnr_db, "dB", Smaller, "20·log10(‖reference‖ / ‖actual − reference‖)"),
    metric!(cosine, "1", Smaller, "cosine between actual and reference as vectors"),
    metric!(max_ulp, "ulp", Larger, "largest error in spacings of the output format at the reference"),
    metric!(p50_ulp, "ulp", Larger, "median error in spacings of the output format"),
    metric!(p99_ulp, "ulp", Larger, "99th percentile in spacings of the output format"),
    metric!(p999_ulp, "ulp", Larger, "99.9th percentile in spacings of the output format"),
    metric!(saturated, "elements", Neither, "actual values at an end of the output format's range, or beyond (Inf)"),
    metric!(flushed, "elements", Larger, "actual zeros where the reference is not zero"),
];

impl ErrorStats {
    /// Of the number of every metric, as they were written; where the worst element is, no metric says. Errors: those of `read`; a count that
    /// is no whole number.
    pub fn of_metrics(mut read: impl FnMut(&Metric) -> Result<f64>) -> Result<Self> {
        let mut stats = Self::default();
        for metric in METRICS {
            let x = read(metric)?;
            (metric.set)(&mut stats, x);
            if (metric.get)(&stats) != x && !x.is_nan() {
                return Err(Error::value(metric.name, x, "a whole number"));
            }
        }
        Ok(stats)
    }

    /// Statistics of `actual − reference`. Errors when the lengths differ.
    pub fn between(reference: &[f64], actual: &[f64], out: &OutFormat) -> Result<Self> {
        if reference.len() != actual.len() {
            let (found, expected) =
                (format!("{} actual values", actual.len()), format!("{} as in the reference", reference.len()));
            return Err(Error::shape("error statistics", found, expected));
        }
        let pairs = Pairs { reference, actual, out };
        // Leaves of the tree are counted while they are summed.
        let leaf = |of: Range<usize>| (sum_of(of.clone(), &|i| Sums::of(reference[i], actual[i])), pairs.counts(of));
        let both = |a: (Sums, Counts), b: (Sums, Counts)| (a.0.plus(b.0), a.1.then(b.1));
        let (s, counts) = tree(0..reference.len(), &leaf, &both);
        if counts.max_abs == 0.0 {
            // No pair errs: there is nothing to spread and nothing to rank.
            return Ok(Self::of_parts(actual.len(), &s, &counts, 0.0, ([0.0; 4], [0.0; 4])));
        }
        let spread = |mean: f64| tree_sum(reference.len(), &|i| Sums::of_deviation(reference[i], actual[i], mean)).square;
        let counted = (counts.relative, counts.finite);
        let quantiles = || quantiles((&Relative(&pairs), counted.0), (&Ulps(&pairs), counted.1));
        Ok(Self::of_parts(actual.len(), &s, &counts, spread(counts.mean(s.signed)), quantiles()))
    }

    /// Of what was counted and summed: `spread` is Σ (e − mean)², the quantiles are 0.5, 0.99, 0.999 and the largest, relative and in spacings.
    pub(crate) fn of_parts(count: usize, s: &Sums, counts: &Counts, spread: f64, quantiles: ([f64; 4], [f64; 4])) -> Self {
        let Counts { finite, mismatches, first_mismatch, saturated, flushed, max_abs, worst, .. } = *counts;
        let n = finite as f64;
        let per_element = |sum: f64| if finite == 0 { 0.0 } else { sum / n };
        let mean_signed = counts.mean(s.signed);
        let standard_error = (spread / (n - 1.0) / n).sqrt();
        let ([p50_rel, p99_rel, p999_rel, max_rel], [p50_ulp, p99_ulp, p999_ulp, max_ulp]) = quantiles;
        Self {
            count,
            finite,
            nonfinite_mismatches: mismatches,
            max_abs,
            mean_abs: per_element(s.abs),
            max_rel,
            p50_rel,
            p99_rel,
            p999_rel,
            rmse: per_element(s.square).sqrt(),
            mean_signed,
            // One element has no standard error: 0.
            mean_z: if mean_signed == 0.0 || finite < 2 { 0.0 } else { mean_signed / standard_error },
            rel_frobenius: if s.square == 0.0 { 0.0 } else { (s.square / s.reference).sqrt() },
            sqnr_db: if s.square == 0.0 { f64::INFINITY } else { 10.0 * (s.reference / s.square).log10() },
            cosine: match (s.reference == 0.0, s.actual == 0.0) {
                (true, true) => 1.0,
                (false, false) => s.dot / (s.reference.sqrt() * s.actual.sqrt()),
                _ => 0.0,
            },
            max_ulp,
            p50_ulp,
            p99_ulp,
            p999_ulp,
            saturated,
            flushed,
            worst: first_mismatch.or(worst),
        }
    }
}

/// What is compared, in bands that are gone through apart.
struct Pairs<'a> {
    reference: &'a [f64],
    actual: &'a [f64],
    out: &'a OutFormat,
}

/// Counts and extremes of the pairs of some consecutive bands.
#[derive(Default)]
pub(crate) struct Counts {
    pub finite: usize,
    pub mismatches: usize,
    pub first_mismatch: Option<usize>,
    pub saturated: usize,
    pub flushed: usize,
    pub max_abs: f64,
    pub worst: Option<usize>,
    /// Pairs that have a relative error.
    pub relative: usize,
}

impl Counts {
    /// Of a sum over the finite pairs; 0 where there are none.
    pub(crate) fn mean(&self, sum: f64) -> f64 {
        if self.finite == 0 { 0.0 } else { sum / self.finite as f64 }
    }
    /// Of both; `self` comes first.
    fn then(self, later: Self) -> Self {
        let larger = later.max_abs > self.max_abs;
        Self {
            finite: self.finite + later.finite,
            mismatches: self.mismatches + later.mismatches,
            first_mismatch: self.first_mismatch.or(later.first_mismatch),
            saturated: self.saturated + later.saturated,
            flushed: self.flushed + later.flushed,
            max_abs: if larger { later.max_abs } else { self.max_abs },
            worst: if larger { later.worst } else { self.worst },
            relative: self.relative + later.relative,
        }
    }
}

impl Pairs<'_> {
    fn counts(&self, of: Range<usize>) -> Counts {
        let mut c = Counts::default();
        let mut error = [0.0; LANES];
        for (run, cells) in self.out.runs(of, LANES) {
            let (r, a) = (&self.reference[run.clone()], &self.actual[run.clone()]);
            let tally = tally(cells, r, a, &mut error);
            c.finite += tally.finite as usize;
            c.saturated += tally.saturated as usize;
            c.flushed += tally.flushed as usize;
            c.relative += tally.relative as usize;
            if tally.mismatches > 0 {
                c.mismatches += tally.mismatches as usize;
                let first = || run.start + (0..r.len()).find(|i| mismatch(r[*i], a[*i])).expect("there are some");
                c.first_mismatch = c.first_mismatch.or_else(|| Some(first()));
            }
            for (i, e) in error[..r.len()].iter().enumerate() {
                if *e > c.max_abs {
                    (c.max_abs, c.worst) = (*e, Some(run.start + i));
                }
            }
        }
        c
    }
}

/// A pair with a NaN or an Inf that do not match.
#[inline(always)]
fn mismatch(r: f64, a: f64) -> bool {
    !(r.is_finite() & a.is_finite()) & !((r == a) | (r.is_nan() & a.is_nan()))
}

#[derive(Default)]
struct Tally {
    finite: u64,
    mismatches: u64,
    saturated: u64,
    flushed: u64,
    relative: u64,
}

best! {
    /// What is counted of pairs that are stored alike, and the error of each; 0 of one that is not finite.
    fn tally(cells: Cells, reference: &[f64], actual: &[f64], error: &mut [f64]) -> Tally => tally_of;
}

#[inline(always)]
fn tally_of(cells: Cells, reference: &[f64], actual: &[f64], error: &mut [f64]) -> Tally {
    match (cells.is_plain(), cells.is_float()) {
        (true, _) => tally_each(cells.as_plain(), reference, actual, error),
        (_, true) => tally_each(cells.as_float(), reference, actual, error),
        _ => tally_each(cells, reference, actual, error),
    }
}

#[inline(always)]
fn tally_each(cells: Cells, reference: &[f64], actual: &[f64], error: &mut [f64]) -> Tally {
    let mut t = Tally::default();
    for ((r, a), error) in reference.iter().zip(actual).zip(error) {
        let (r, a) = (*r, *a);
        let finite = r.is_finite() & a.is_finite();
        t.finite += u64::from(finite);
        t.mismatches += u64::from(mismatch(r, a));
        t.saturated += u64::from(cells.is_saturated(a));
        t.flushed += u64::from(finite & (a == 0.0) & (r != 0.0));
        t.relative += u64::from(finite & ((r != 0.0) | (a != 0.0)));
        *error = if finite { (a - r).abs() } else { 0.0 };
    }
    t
}

/// |e| / |reference|, pairs of zeros left out.
struct Relative<'a, 'b>(&'a Pairs<'b>);

impl Sample for Relative<'_, '_> {
    fn places(&self) -> usize {
        self.0.reference.len()
    }
    fn visit(&self, range: Range<usize>, mut see: impl FnMut(&[f64])) {
        let mut error = [0.0; LANES];
        for from in range.clone().step_by(LANES) {
            let part = from..range.end.min(from + LANES);
            let error = &mut error[..part.len()];
            relative(&self.0.reference[part.clone()], &self.0.actual[part], error);
            see(error);
        }
    }
}

best! {
    fn relative(reference: &[f64], actual: &[f64], error: &mut [f64]) => relative_each;
}

#[inline(always)]
fn relative_each(reference: &[f64], actual: &[f64], error: &mut [f64]) {
    for ((r, a), error) in reference.iter().zip(actual).zip(error) {
        let there = r.is_finite() & a.is_finite() & ((*r != 0.0) | (*a != 0.0));
        *error = if there { (a - r).abs() / r.abs() } else { f64::NAN };
    }
}

/// |e| in spacings of the output; an unusable spacing (scale_inv 0, NaN) leaves only "equal" and "not equal".
struct Ulps<'a, 'b>(&'a Pairs<'b>);

impl Sample for Ulps<'_, '_> {
    fn places(&self) -> usize {
        self.0.reference.len()
    }
    fn visit(&self, range: Range<usize>, mut see: impl FnMut(&[f64])) {
        let mut error = [0.0; LANES];
        for (run, cells) in self.0.out.runs(range, LANES) {
            let error = &mut error[..run.len()];
            ulps(cells, &self.0.reference[run.clone()], &self.0.actual[run], error);
            see(error);
        }
    }
}

best! {
    fn ulps(cells: Cells, reference: &[f64], actual: &[f64], error: &mut [f64]) => ulps_of;
}

#[inline(always)]
fn ulps_of(cells: Cells, reference: &[f64], actual: &[f64], error: &mut [f64]) {
    match (cells.is_plain(), cells.is_float()) {
        (true, _) => ulps_each(cells.as_plain(), reference, actual, error),
        (_, true) => ulps_each(cells.as_float(), reference, actual, error),
        _ => ulps_each(cells, reference, actual, error),
    }
}

#[inline(always)]
fn ulps_each(cells: Cells, reference: &[f64], actual: &[f64], error: &mut [f64]) {
    for ((r, a), error) in reference.iter().zip(actual).zip(error) {
        let e = (a - r).abs();
        let ulp = e / cells.spacing(*r);
        let ulp = if ulp.is_nan() { f64::INFINITY } else { ulp };
        let ulp = if e == 0.0 { 0.0 } else { ulp };
        *error = if r.is_finite() & a.is_finite() { ulp } else { f64::NAN };
    }
}

/// The sums over finite pairs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    pub abs: f64,
    pub square: f64,
    pub signed: f64,
    pub reference: f64,
    pub actual: f64,
    pub dot: f64,
}

impl Sums {
    /// In the order of the fields.
    pub(crate) fn from_array([abs, square, signed, reference, actual, dot]: [f64; 6]) -> Self {
        Self { abs, square, signed, reference, actual, dot }
    }
    pub(super) fn of(r: f64, a: f64) -> Self {
        if !(r.is_finite() && a.is_finite()) {
            return Self::default();
        }
        let e = a - r;
        Self { abs: e.abs(), square: e * e, signed: e, reference: r * r, actual: a * a, dot: r * a }
    }
    fn of_deviation(r: f64, a: f64, mean: f64) -> Self {
        if !(r.is_finite() && a.is_finite()) {
            return Self::default();
        }
        let e = a - r - mean;
        Self { square: e * e, ..Self::default() }
    }
    pub(crate) fn plus(self, o: Self) -> Self {
        Self {
            abs: self.abs + o.abs,
            square: self.square + o.square,
            signed: self.signed + o.signed,
            reference: self.reference + o.reference,
            actual: self.actual + o.actual,
            dot: self.dot + o.dot,
        }
    }
}

/// Σ over a fixed binary tree with leaves of 256 terms in order; the halves of a large node may run on two threads.
/// Its rounding error grows with log2(n): Higham, *Accuracy and Stability of Numerical Algorithms*, §4.2.
pub(super) fn tree_sum(n: usize, term: &(impl Fn(usize) -> Sums + Sync)) -> Sums {
    tree(0..n, &|leaf| sum_of(leaf, term), &Sums::plus)
}

/// The terms of a leaf, in order.
fn sum_of(leaf: Range<usize>, term: &impl Fn(usize) -> Sums) -> Sums {
    leaf.fold(Sums::default(), |s, i| s.plus(term(i)))
}

/// Elements of a leaf at most.
const LEAF: usize = 256;

/// Where the leaves of the tree over `n` elements begin, and the end of the last.
pub(crate) fn leaves(n: usize) -> Vec<usize> {
    fn begin(all: Range<usize>, starts: &mut Vec<usize>) {
        if all.len() <= LEAF {
            return starts.push(all.start);
        }
        let middle = all.start + all.len() / 2;
        begin(all.start..middle, starts);
        begin(middle..all.end, starts);
    }
    let mut starts = Vec::with_capacity(2 * n / LEAF + 2);
    begin(0..n, &mut starts);
    starts.push(n);
    starts
}

/// What the leaves of a tree that begin at `starts` give together.
pub(crate) fn joined<T: Send + Copy + Sync>(starts: &[usize], of_leaves: &[T], join: &(impl Fn(T, T) -> T + Sync)) -> T {
    if let [one] = of_leaves {
        return *one;
    }
    let middle = starts[0] + (starts[starts.len() - 1] - starts[0]) / 2;
    let at = starts.partition_point(|start| *start < middle);
    let left = || joined(&starts[..=at], &of_leaves[..at], join);
    let right = || joined(&starts[at..], &of_leaves[at..], join);
    let (left, right) = if of_leaves.len() > 1 << 10 { rayon::join(left, right) } else { (left(), right()) };
    join(left, right)
}

/// What `leaf` makes of at most 256 elements, joined two by two: the halves of a large node may run on two threads.
fn tree<T: Send>(all: Range<usize>, leaf: &(impl Fn(Range<usize>) -> T + Sync), join: &(impl Fn(T, T) -> T + Sync)) -> T {
    if all.len() <= LEAF {
        return leaf(all);
    }
    let middle = all.start + all.len() / 2;
    let (left, right) = (all.start..middle, middle..all.end);
    let (left, right) = if all.len() > 1 << 16 {
        rayon::join(|| tree(left, leaf, join), || tree(right, leaf, join))
    } else {
        (tree(left, leaf, join), tree(right, leaf, join))
    };
    join(left, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn stats(reference: &[f64], actual: &[f64]) -> ErrorStats {
        ErrorStats::between(reference, actual, &OutFormat::high(Format::Bf16)).unwrap()
    }

    #[test]
    fn hand_case() {
        let s = stats(&[1.0, -2.0, 0.0, 4.0], &[1.0, -2.5, 0.0, 3.0]);
        assert_eq!((s.count, s.finite, s.nonfinite_mismatches, s.worst), (4, 4, 0, Some(3)));
        assert_eq!((s.max_abs, s.mean_abs, s.max_rel, s.p50_rel), (1.0, 0.375, 0.25, 0.25));
        assert_eq!(s.rmse, (1.25f64 / 4.0).sqrt());
        assert_eq!(s.mean_signed, -0.375);
        let sd = ((0.375f64.powi(2) * 2.0 + 0.125f64.powi(2) + 0.625f64.powi(2)) / 3.0).sqrt();
        assert!((s.mean_z - -0.375 / (sd / 2.0)).abs() < 1e-12);
        assert_eq!(s.rel_frobenius, (1.25f64 / 21.0).sqrt());
        assert!((s.sqnr_db - 10.0 * (21.0f64 / 1.25).log10()).abs() < 1e-12);
        assert!((s.cosine - 18.0 / (21.0f64 * 16.25).sqrt()).abs() < 1e-12);
        // bf16 spacing at 4 is 2^-5, at 2 it is 2^-6.
        assert_eq!((s.max_ulp, s.p50_ulp), (32.0, 0.0));
    }

    #[test]
    fn nan_and_inf_are_counted_and_never_match_a_number() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let s = stats(&[nan, inf, 1.0, 1.0, inf, nan, 2.0], &[nan, inf, nan, inf, -inf, 0.0, 2.0]);
        assert_eq!((s.finite, s.nonfinite_mismatches, s.worst), (1, 4, Some(2)));
        assert_eq!((s.max_abs, s.max_ulp), (0.0, 0.0));
        let (all, finite) = (stats(&[1.0, 2.0, 3.0, 4.0], &[1.5, nan, 3.25, inf]), stats(&[1.0, 3.0], &[1.5, 3.25]));
        assert_eq!((all.mean_z, all.rmse), (finite.mean_z, finite.rmse), "of what is finite alone");
        assert_eq!(finite.mean_z, 3.0);
    }

    #[test]
    fn zero_references_zero_outputs_and_empty_samples() {
        let s = stats(&[0.0, 0.0, 1.0], &[0.0, 0.5, 0.0]);
        assert_eq!((s.max_rel, s.p50_rel, s.flushed), (f64::INFINITY, 1.0, 1));
        let zero = stats(&[0.0; 3], &[0.0; 3]);
        assert_eq!((zero.max_rel, zero.cosine, zero.sqnr_db, zero.mean_z), (0.0, 1.0, f64::INFINITY, 0.0));
        let lost = stats(&[0.0; 2], &[1.0, 1.0]);
        assert_eq!(
            (lost.cosine, lost.sqnr_db, lost.rel_frobenius, lost.mean_z),
            (0.0, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY)
        );
        assert_eq!(stats(&[], &[]).count, 0);
        assert!(ErrorStats::between(&[1.0], &[], &OutFormat::high(Format::F32)).is_err());
    }

    #[test]
    fn saturation_flush_and_ulp_of_scaled_fp8() {
        let out = OutFormat::scaled(Format::E4m3, 2.0, 0.5);
        let s = ErrorStats::between(&[300.0, 1.0, 0.0005], &[224.0, 1.125, 0.0], &out).unwrap();
        assert_eq!((s.saturated, s.flushed), (1, 1));
        // 1.0 is code value 2: spacing 0.25 · 0.5 = 0.125: one ulp.
        assert_eq!(s.p50_ulp, 1.0);
    }

    /// Sums that were taken leaf by leaf elsewhere, joined as the tree joins its own.
    #[test]
    fn leaves_are_joined_as_the_tree_joins_them() {
        for n in [1, 255, 256, 257, 1000, 65_537, 300_001] {
            let term = |i: usize| Sums { abs: (i as f64 * 0.7).sin(), ..Sums::default() };
            let starts = leaves(n);
            assert_eq!((starts[0], *starts.last().unwrap()), (0, n));
            let of_leaves: Vec<f64> = starts.windows(2).map(|w| sum_of(w[0]..w[1], &term).abs).collect();
            let all = joined(&starts, &of_leaves, &|a, b| a + b);
            assert_eq!(all.to_bits(), tree_sum(n, &term).abs.to_bits(), "{n}");
        }
    }

    #[test]
    fn the_same_bits_with_any_number_of_threads() {
        let r: Vec<f64> = (0..300_000).map(|i| (f64::from(i) * 0.7).sin() * 1e3).collect();
        let a: Vec<f64> = r.iter().map(|x| f64::from(*x as f32)).collect();
        let run = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| stats(&r, &a));
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn registry_names_are_unique_and_every_field_is_registered() {
        let s = stats(&[1.0, 2.0], &[1.5, 2.0]);
        let fields = serde_json::to_value(&s).unwrap();
        let fields: Vec<&str> = fields.as_object().unwrap().keys().map(String::as_str).filter(|k| *k != "worst").collect();
        let mut names: Vec<&str> = METRICS.iter().map(|m| m.name).collect();
        names.sort_unstable();
        assert_eq!(names, fields);
        assert_eq!((METRICS[3].get)(&s), 0.5);
    }
}
