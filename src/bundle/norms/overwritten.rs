//! Columns of a layernorm's rows that took a number of another reduction for their mean: the shared memory of the mean was written again before they
//! had read it, with a partial result of the variance.
//!
//! ```text
//! columns a … b of every wrong row:  y = γ·(x − s)/d + β        s: Σ over some columns of (x − μ)², of x², of x, or its mean;  d: right
//! ```

use super::segments::{CHANCE, LEAST, PARTIAL, PARTS, Part, divisor_is, mean_is};
use super::{Norm, SHARE, Weights};
use crate::fault::solve::segment::lines;

/// Wrong rows, at least.
const ROWS: usize = 4;

/// A number of some columns of a row about its mean, in words with `{}` for the columns.
type Number = (&'static str, fn(&[f64], f64) -> f64);
const NUMBERS: [Number; 6] = [
    ("the mean of the squares of {} about the mean", |x, m| x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / x.len() as f64),
    ("the sum of the squares of {} about the mean", |x, m| x.iter().map(|x| (x - m).powi(2)).sum()),
    ("the sum of the squares of {}", |x, _| x.iter().map(|x| x * x).sum()),
    ("the mean of the squares of {}", |x, _| x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64),
    ("the sum of {}", |x, _| x.iter().sum()),
    ("the mean of {} alone", |x, _| x.iter().sum::<f64>() / x.len() as f64),
];

/// Which number one part of every wrong row has for its mean, in words. `None`: the part is not the same in all, or it is no number that is known.
pub fn explain(norm: &Norm) -> Option<String> {
    let n = norm.gamma.len();
    norm.layer().then_some(())?;
    let mut is_row = vec![false; norm.rows.len()];
    let (mut first, mut end, mut rows) = (n, 0, Vec::new());
    for (s, i) in norm.sampled.iter().enumerate() {
        let right = &norm.right[s * n..(s + 1) * n];
        if let (Some(a), Some(b)) = (right.iter().position(|r| !r), right.iter().rposition(|r| !r)) {
            (first, end) = (first.min(a), end.max(b + 1));
            is_row[*i] = true;
            rows.push(*i);
        }
    }
    (rows.len() >= ROWS && end - first >= LEAST && 4 * (end - first) <= 3 * n).then_some(())?;
    let own = Weights { words: Vec::new(), gamma: norm.gamma.to_vec(), beta: norm.beta.to_vec() };
    let columns: Vec<usize> = (first..end).collect();
    let part = |i: &usize| {
        let line = norm.line(*i, &columns, &own).filter(|l| l.made.0 >= SHARE)?;
        let p = Part { row: *i, from: first, to: end, line };
        let x = &norm.rows[*i];
        (divisor_is(&p, norm.divisor(x)) && !mean_is(&p, norm.center(x))).then_some(p)
    };
    let parts = rows.iter().map(part).collect::<Option<Vec<Part>>>()?;
    let widths: Vec<usize> = (1..=PARTIAL).filter(|k| n.is_multiple_of(*k) && n / k >= LEAST).map(|k| n / k).collect();
    let candidates = NUMBERS.len() * widths.iter().map(|width| n / width).sum::<usize>();
    (chance(&parts, candidates) <= CHANCE).then_some(())?;
    let found = widths.into_iter().find_map(|width| {
        (0..n).step_by(width).find_map(|from| {
            let is = |p: &Part, of: fn(&[f64], f64) -> f64| {
                let x = &norm.rows[p.row];
                mean_is(p, of(&x[from..from + width], norm.center(x)))
            };
            let (words, _) = NUMBERS.iter().find(|(_, of)| parts.iter().all(|p| is(p, *of)))?;
            let of = if width == n { "the row".into() } else { format!("columns {from} … {}", from + width - 1) };
            Some(words.replace("{}", &of))
        })
    })?;
    let which = if rows.len() == norm.sampled.len() { "every row".to_string() } else { format!("rows {}", lines(&is_row)) };
    Some(format!(
        "{PARTS} with another mean than the rest of their row ({found}): columns {first} … {} of {which}: a buffer of the reduction is read after it \
         was overwritten",
        end - 1
    ))
}

/// How likely one of so many numbers is the mean of every part by chance: each is anywhere up to the largest of these means.
fn chance(parts: &[Part], candidates: usize) -> f64 {
    let size = parts.iter().fold(f64::MIN_POSITIVE, |m, p| m.max(p.line.mean.abs()));
    parts.iter().fold(candidates as f64, |chance, p| chance * (2.0 * p.line.off_mean / size).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::super::Line;
    use super::super::by_hand::{EPS, average, beta, gamma, rows, square, with};
    use super::*;
    use crate::op::Op;

    /// What is said where the last third of these rows has this mean.
    fn said(is: &dyn Fn(usize) -> bool, mean: &dyn Fn(&[f64], usize) -> f64) -> String {
        let rows = rows();
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let x = &rows[i];
            let m = average(x);
            let d = (square(x, m) + EPS).sqrt();
            (x[j] - if is(i) && j >= 64 { mean(x, i) } else { m }) / d * gamma(j) + beta(j)
        };
        with(Op::Layernorm, &rows, &made, |norm: &Norm| explain(norm).unwrap_or_default())
    }

    #[test]
    fn a_mean_that_is_overwritten_by_a_partial_result_is_named() {
        let words = said(&|_| true, &|x, _| square(&x[..24], average(x)));
        assert!(
            words
                .contains("(the mean of the squares of columns 0 … 23 about the mean): columns 64 … 95 of every row: a buffer"),
            "{words}"
        );
        let words = said(&|i| i % 2 == 0, &|x, _| 48.0 * square(&x[48..], average(x)));
        assert!(
            words.contains("(the sum of the squares of columns 48 … 95 about the mean): columns 64 … 95 of rows 0, 2,"),
            "{words}"
        );
        assert!(said(&|_| true, &|x, _| square(x, average(x))).contains("the mean of the squares of the row about"));
        assert_eq!(
            said(&|_| true, &|x, i| square(&x[..24], average(x)) + 0.01 * (i % 3) as f64),
            "",
            "no number that is known"
        );
        assert_eq!(said(&|i| i < 3, &|x, _| square(&x[..24], average(x))), "", "three rows");
        assert_eq!(said(&|_| false, &|x, _| average(x)), "");
    }

    /// A coarse result of few rows has a mean that one of many numbers is near to.
    #[test]
    fn the_fewer_the_rows_and_the_coarser_they_are_the_likelier_is_chance() {
        let parts = |rows: usize, off_mean: f64| -> Vec<Part> {
            let line = |row: usize| Line { p: 1.0, mean: 0.5 + 0.1 * row as f64, off_p: 0.0, off_mean, made: (1.0, 1.0) };
            (0..rows).map(|row| Part { row, from: 0, to: 32, line: line(row) }).collect()
        };
        assert!(chance(&parts(4, 1e-4), 400) < CHANCE);
        assert!(chance(&parts(4, 0.05), 400) > CHANCE);
        assert!(chance(&parts(12, 0.05), 400) < CHANCE);
    }
}
