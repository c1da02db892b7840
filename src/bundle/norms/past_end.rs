//! Rows of an rmsnorm that are taken for longer ones, on into the next row: its first elements are summed too, and they are written again where this
//! row's threads come last.
//!
//! ```text
//! columns d …  =  γ·x/√(Σ over n + d elements / n + ε)          columns 0 … d − 1: the same, or x/√ of the row before times one number a column
//! ```

use super::{NEAR, Norm, SHARE};
use crate::fault::solve::segment::lines;
use crate::op::Op;

/// Rows that are wrong, and that are written by those before them, at least.
const LEAST: usize = 4;
/// Widths that rows are taken to be multiples of.
const WIDTHS: [usize; 8] = [4096, 2048, 1024, 512, 256, 128, 64, 32];
/// Rows that a width is tried on before all are.
const FEW: usize = 4;

/// How far the rows run on, in words.
pub fn explain(norm: &Norm) -> Option<String> {
    summed_too(norm).or_else(|| super::ran_over::explain(norm))
}

/// The same of rows whose squares run on too.
fn summed_too(norm: &Norm) -> Option<String> {
    let (n, count) = (norm.gamma.len(), norm.rows.len());
    // Neighbours have to be known: all rows, but for what lies behind the last.
    (norm.op == Op::Rmsnorm && norm.sampled.len() == count && count > 2 * LEAST).then_some(())?;
    let wrong = (0..count).filter(|i| norm.right[i * n..(i + 1) * n].contains(&false)).count();
    (4 * wrong >= 3 * count).then_some(())?;
    let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    let mut widths: Vec<usize> = WIDTHS.iter().map(|w| n.next_multiple_of(*w) - n).collect();
    widths.push(n.next_power_of_two() - n);
    widths.retain(|d| (8..n).contains(d));
    widths.sort_unstable();
    widths.dedup();
    widths.into_iter().find_map(|d| {
        let root = |i: usize| ((square(&norm.rows[i]) + square(&norm.rows[i + 1][..d])) / n as f64 + norm.eps).sqrt();
        let cell = |i: usize, j: usize| {
            let (low, high) = (norm.cell)(i * n + j);
            let slack = 4.0 * NEAR * norm.actual[i * n + j].abs();
            (low - slack, high + slack)
        };
        let made = |i: usize, root: f64, columns: std::ops::Range<usize>| {
            let is = |j: &usize| {
                let (y, (low, high)) = (norm.rows[i][*j] * norm.gamma[*j] / root, cell(i, *j));
                low <= y && y <= high
            };
            columns.clone().filter(is).count() as f64 >= SHARE * columns.len() as f64
        };
        (0..FEW).all(|i| made(i, root(i), d..n)).then_some(())?;
        let roots: Vec<f64> = (0..count - 1).map(root).collect();
        (0..count - 1).all(|i| made(i, roots[i], d..n)).then_some(())?;
        // The wrong elements too, however few they are in a row.
        let (mut all, mut hit) = (0usize, 0usize);
        for (i, j) in (0..count - 1).flat_map(|i| (d..n).map(move |j| (i, j))).filter(|(i, j)| !norm.right[i * n + j]) {
            (all, hit) = (all + 1, hit + usize::from(made(i, roots[i], j..j + 1)));
        }
        (hit as f64 >= SHARE * all as f64).then_some(())?;
        let over: Vec<usize> = (0..count - 1).filter(|i| !made(*i, roots[*i], 0..d)).collect();
        let words = format!("the mean square also sums the first {d} elements of the next row: rows are taken for {} columns", n + d);
        if over.is_empty() {
            return Some(words);
        }
        // What multiplies a column in the rows that are written again: one number, of what lies behind gamma.
        (over.len() >= LEAST && over[0] > 0).then_some(())?;
        let one = |j: &usize| {
            let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
            for i in &over {
                let by = norm.rows[*i][*j] / roots[i - 1];
                if by.abs() > 1e-9 {
                    let (from, to) = cell(*i, *j);
                    let ends = [from / by, to / by];
                    (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
                }
            }
            low <= high * (1.0 + 4.0 * NEAR)
        };
        let alike = (0..d).filter(one).count() as f64 >= SHARE * d as f64;
        alike.then(|| {
            let mut is = vec![false; count];
            over.iter().for_each(|i| is[*i] = true);
            format!(
                "{words}; and in rows {} columns 0 … {} are written again by the row before, which is written as long: by its divisor, and by what lies \
                 behind gamma",
                lines(&is),
                d - 1
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, gamma, rows, square, with};
    use super::*;

    /// Rows of 96 taken for 128 columns; rows `over` are written again by the one before, times numbers of `behind`.
    fn said(over: &dyn Fn(usize) -> bool, behind: &dyn Fn(usize, usize) -> f64) -> String {
        let rows = rows();
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let long = |i: usize| {
                let next = rows.get(i + 1).map_or(0.0, |x| 32.0 * square(&x[..32], 0.0));
                ((COLS as f64 * square(&rows[i], 0.0) + next) / COLS as f64 + EPS).sqrt()
            };
            if over(i) && j < 32 { rows[i][j] / long(i - 1) * behind(i, j) } else { rows[i][j] / long(i) * gamma(j) }
        };
        with(Op::Rmsnorm, &rows, &made, |norm: &Norm| explain(norm).unwrap_or_default())
    }

    #[test]
    fn rows_that_run_on_into_the_next_are_named() {
        let words = said(&|_| false, &|_, _| 0.0);
        assert_eq!(words, "the mean square also sums the first 32 elements of the next row: rows are taken for 128 columns");
        let words = said(&|i| i % 3 == 1, &|_, j| 0.7 + 0.01 * j as f64);
        assert!(
            words.contains("; and in rows 1, 4, … 22 (every third) columns 0 … 31 are written again by the row before"),
            "{words}"
        );
        assert_eq!(said(&|i| i % 3 == 1, &|i, j| 0.7 + 0.01 * (i * j) as f64), "", "numbers of their own");
    }
}
