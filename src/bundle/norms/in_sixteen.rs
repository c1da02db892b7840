//! Norms of which every step is a number of 16 bits: sums, mean, variance, root, the normalized value and what follows.
//!
//! ```text
//! Σx, Σx² ──► μ = Σx/n ──► v = Σx²/n − μ², or Σ(x − μ)²/n ──► √(v + ε) ──► (x − μ)/√, or times 1/√ ──► ·γ ──► +β        every arrow a rounding
//! ```

use super::Norm;
use super::rounded::through;
use crate::bundle::moments::narrow::Way;
use crate::op::Op;

/// The share of elements that a way has to make, and columns that refuse most of them.
const SHARE: f64 = 0.98;
const FIRST: usize = 16;
/// Wrong rows, at least.
const LEAST: usize = 4;
/// Columns of a row, at most: a sum of more loses all in 16 bits.
const MOST: usize = 1 << 14;

/// How a value is divided by the root.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// By the root, which is rounded.
    Root,
    /// Times the reciprocal of the rounded root, rounded again.
    Reciprocal,
    /// Times the reciprocal, rounded once.
    Rsqrt,
}

/// One way through all steps.
#[derive(Clone, Copy)]
struct Steps {
    way: Way,
    one_pass: bool,
    by: By,
}

impl Steps {
    /// Mean and variance of a row.
    fn moments(&self, norm: &Norm, i: usize) -> (f64, f64) {
        let (x, n) = (&norm.rows[i], norm.gamma.len() as f64);
        let r = |x: f64| through(Some(self.way.format), x);
        let layer = norm.op == Op::Layernorm;
        let m = if layer { r(self.way.total(x, &|x| x) / n) } else { 0.0 };
        let v = match (layer, self.one_pass) {
            (true, true) => r(r(self.way.sum(x, 0.0) / n) - r(m * m)),
            (true, false) => r(self.way.total(x, &|x| r(x - m).powi(2)) / n),
            _ => r(self.way.sum(x, 0.0) / n),
        };
        (m, v)
    }

    /// The root of a variance, or its reciprocal.
    fn divisor(&self, v: f64, eps: f64) -> f64 {
        let r = |x: f64| through(Some(self.way.format), x);
        let square = r(v + r(eps));
        match self.by {
            By::Root => r(square.sqrt()),
            By::Reciprocal => r(1.0 / r(square.sqrt())),
            By::Rsqrt => r(1.0 / square.sqrt()),
        }
    }

    /// Whether these steps make an element.
    fn is(&self, norm: &Norm, (i, j): (usize, usize), (m, d): (f64, f64)) -> bool {
        let r = |x: f64| through(Some(self.way.format), x);
        let x = r(norm.rows[i][j] - m);
        let y = if self.by == By::Root { r(x / d) } else { r(x * d) };
        let product = y * r(norm.gamma[j]);
        let b = norm.beta[j];
        let actual = norm.actual[i * norm.gamma.len() + j];
        let (low, high) = (norm.cell)(i * norm.gamma.len() + j);
        // A product and a sum are two roundings or one.
        [r(r(product) + b), r(product + b)]
            .iter()
            .any(|y| *y == actual || y.is_nan() && actual.is_nan() || y.is_finite() && low <= *y && *y <= high)
    }

    fn words(&self, norm: &Norm, overflow: usize) -> String {
        let layer = norm.op == Op::Layernorm;
        let variance = match (layer, self.one_pass) {
            (true, true) => "the mean, the variance E[x²] − μ²",
            (true, false) => "the mean, the variance",
            _ => "their mean",
        };
        let root = match self.by {
            By::Root => "the root",
            By::Reciprocal => "the root, its reciprocal",
            By::Rsqrt => "the reciprocal of the root",
        };
        let left = if layer { "beta" } else { "0" };
        let lost = match overflow {
            0 => String::new(),
            n => format!("; sums overflow to Inf in {n} of {} rows, which come out as {left}", norm.sampled.len()),
        };
        let f = self.way.format;
        format!(
            "every step of the norm is in {f}: {}; {variance}, {root}, the normalized value and its product are, too{lost}",
            self.way.words()
        )
    }
}

/// The steps that make the wrong rows of a norm and nearly all of the others, in words.
pub fn explain(norm: &Norm) -> Option<String> {
    let n = norm.gamma.len();
    let is_wrong = |s: &usize| norm.right[s * n..(s + 1) * n].contains(&false);
    let wrong: Vec<usize> = (0..norm.sampled.len()).filter(is_wrong).map(|s| norm.sampled[s]).collect();
    (wrong.len() >= LEAST && (FIRST..=MOST).contains(&n)).then_some(())?;
    // Rows that hold numbers tell the steps.
    let some = |i: &usize| (0..n).filter(|j| ![0.0, norm.beta[*j]].contains(&norm.actual[i * n + j])).count() * 2 > n;
    let first = *wrong.iter().find(|i| some(i))?;
    let layer = norm.op == Op::Layernorm;
    for way in Way::all(n).into_iter().filter(|w| !w.cut && !w.wide) {
        for one_pass in if layer { vec![true, false] } else { vec![true] } {
            let of_first = Steps { way, one_pass, by: By::Root }.moments(norm, first);
            for by in [By::Root, By::Reciprocal, By::Rsqrt] {
                let steps = Steps { way, one_pass, by };
                let share = |i: usize, (m, v): (f64, f64), cols: usize| {
                    let d = steps.divisor(v, norm.eps);
                    (0..cols).filter(|j| steps.is(norm, (i, *j), (m, d))).count() as f64 / cols as f64
                };
                if share(first, of_first, FIRST) < 0.8 || share(first, of_first, n) < SHARE {
                    continue;
                }
                let all = |rows: &[usize]| {
                    rows.iter().map(|i| share(*i, steps.moments(norm, *i), n)).sum::<f64>() >= SHARE * rows.len() as f64
                };
                // The wrong elements too, however few they are in a row.
                let hit = |s: usize| {
                    let i = norm.sampled[s];
                    let (m, v) = steps.moments(norm, i);
                    let (d, wrong) = (steps.divisor(v, norm.eps), (0..n).filter(move |j| !norm.right[s * n + j]));
                    wrong.fold((0usize, 0usize), |(all, hit), j| (all + 1, hit + usize::from(steps.is(norm, (i, j), (m, d)))))
                };
                let hits = || {
                    let each = (0..norm.sampled.len()).filter(is_wrong).map(hit);
                    let (all, hit) = each.fold((0, 0), |(all, hit), x| (all + x.0, hit + x.1));
                    hit as f64 >= SHARE * all as f64
                };
                if all(&wrong) && all(norm.sampled) && hits() {
                    let is_lost = |i: &&usize| {
                        let d = steps.divisor(steps.moments(norm, **i).1, norm.eps);
                        if by == By::Root { d.is_infinite() } else { d == 0.0 }
                    };
                    return Some(steps.words(norm, norm.sampled.iter().filter(is_lost).count()));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, beta, gamma, rows, with};
    use super::*;
    use crate::bundle::by_hand::{bf16, f16};

    /// What is said of a norm of every step in few bits, whose row `i` has so many times the values.
    fn said(op: Op, r: fn(f64) -> f64, size: &dyn Fn(usize) -> f64) -> String {
        let rows: Vec<Vec<f64>> =
            rows().iter().enumerate().map(|(i, x)| x.iter().map(|x| r(x * size(i) + 0.25)).collect()).collect();
        let layer = op == Op::Layernorm;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let sum = |of: &dyn Fn(f64) -> f64| rows[i].iter().fold(0.0, |all, x| r(all + r(of(*x))));
            let n = COLS as f64;
            let m = if layer { r(sum(&|x| x) / n) } else { 0.0 };
            let square = r(sum(&|x| x * x) / n);
            let v = if layer { r(square - r(m * m)) } else { square };
            let d = r(r(v + r(EPS)).sqrt());
            let y = r(r(r(rows[i][j] - m) / d) * r(gamma(j)));
            if layer { r(y + beta(j)) } else { y }
        };
        with(op, &rows, &made, |norm: &Norm| explain(norm).unwrap_or_default())
    }

    #[test]
    fn norms_in_sixteen_bits_are_named() {
        let words = said(Op::Layernorm, f16, &|_| 1.0);
        assert!(
            words.starts_with("every step of the norm is in f16: squares and their sum are rounded to f16 at every step;"),
            "{words}"
        );
        assert!(words.ends_with("the variance E[x²] − μ², the root, the normalized value and its product are, too"), "{words}");
        let words = said(Op::Rmsnorm, f16, &|i| if i % 4 == 1 { 400.0 } else { 1.0 });
        assert!(
            words.contains("in f16") && words.ends_with("sums overflow to Inf in 6 of 24 rows, which come out as 0"),
            "{words}"
        );
        assert!(said(Op::Rmsnorm, bf16, &|_| 1.0).contains("every step of the norm is in bf16"));
        assert_eq!(said(Op::Layernorm, |x| x, &|_| 1.0), "", "a right one");
    }
}
