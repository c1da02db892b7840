//! Pieces of the rows of a norm that are multiplied by another number than 1/√(…). A piece is as wide as a warp or a thread's vector: a shared
//! value was read too early or too late.
//!
//! ```text
//! y_j = γ_j · (x_j − μ) · g + β_j for a piece of w columns  ──►  the interval of g  ──►  held against sums, means and roots of this row and others
//! ```

use super::formulas::At;
use crate::compare::digits;
use crate::fault::solve::segment::lines;
use crate::op::Op;

/// Widths of pieces.
const WIDTHS: [usize; 7] = [512, 256, 128, 64, 32, 16, 8];
/// Wrong pieces, at least.
const LEAST: usize = 6;
/// The share of a wrong piece's elements that one number has to make, and of wrong pieces that follow one rule.
const SHARE: f64 = 0.98;
/// Rows that a number may be from.
const FAR: isize = 2;
/// What sums in f32 may be off, relative.
const NEAR: f64 = 1e-5;

/// One wrong piece: its row, and the interval of its factor.
struct Piece {
    row: usize,
    low: f64,
    high: f64,
}

/// Rows of a norm: `at` of a row, what each of its elements may have been, and which are right.
pub struct Rows<'r, 'd> {
    pub op: Op,
    pub at: &'r dyn Fn(usize) -> At<'d>,
    pub cell: &'r dyn Fn(usize) -> (f64, f64),
    pub right: &'r [bool],
    pub rows: usize,
    pub cols: usize,
}

/// The rule that the factors of wrong pieces follow, in words. `None`: it is no such thing.
pub fn explain(r: &Rows) -> Option<String> {
    let widths = WIDTHS.into_iter().filter(|w| 2 * w <= r.cols);
    for (width, weighed) in widths.flat_map(|w| [(w, true), (w, false)]) {
        let Some(pieces) = wrong(r, width, weighed).filter(|p| p.len() >= LEAST) else { continue };
        let all = r.rows * r.cols.div_ceil(width);
        // Every piece of every row is no piece.
        if 4 * pieces.len() > 3 * all {
            continue;
        }
        let mut is_row = vec![false; r.rows];
        pieces.iter().for_each(|p| is_row[p.row] = true);
        let whole = pieces.len() == is_row.iter().filter(|x| **x).count() * r.cols.div_ceil(width);
        if whole {
            continue;
        }
        let place = format!("{} of the {all} pieces of {width} columns, in rows {}", pieces.len(), lines(&is_row));
        let named = rule(r, &pieces, width);
        // Numbers of their own without gamma are what anything else may be.
        if !weighed && named.is_none() {
            continue;
        }
        let what = named.map_or_else(
            || {
                let least = pieces.iter().map(|p| p.low).fold(f64::INFINITY, f64::min);
                let most = pieces.iter().map(|p| p.high).fold(f64::NEG_INFINITY, f64::max);
                let [least, most] = digits::apart([least, most]);
                format!("a number of their own each, from {least} to {most}, the same for all elements of a piece")
            },
            |words| match weighed {
                true => format!("{words}: a value that the pieces of a row share is read at the wrong time"),
                false => format!("{words} without gamma"),
            },
        );
        return Some(format!("{place} are multiplied by {what} instead of the reciprocal of the root"));
    }
    None
}

/// Wrong pieces of this width, where each has one factor, with gamma or without. `None`: some have not.
fn wrong(r: &Rows, width: usize, weighed: bool) -> Option<Vec<Piece>> {
    let mut all = Vec::new();
    for row in 0..r.rows {
        let at = (r.at)(row);
        let (shift, _) = at.moments(r.op);
        for from in (0..r.cols).step_by(width) {
            let to = (from + width).min(r.cols);
            let misses = (from..to).filter(|j| !r.right[row * r.cols + j]).count();
            if misses == 0 {
                continue;
            }
            // A piece is wrong as a whole, but for elements that are 0 or nearly.
            (2 * misses > to - from).then_some(())?;
            let (mut low, mut high, mut n, mut told) = (f64::NEG_INFINITY, f64::INFINITY, 0usize, 0usize);
            for j in from..to {
                let by = (at.x()[j] - shift) * if weighed { at.gamma[j] } else { 1.0 };
                let (from, to) = (r.cell)(row * r.cols + j);
                if by.abs() < 1e-30 || !(from.is_finite() && to.is_finite()) {
                    continue;
                }
                told += 1;
                let ends = [(from - at.beta[j]) / by, (to - at.beta[j]) / by];
                let (l, h) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
                if l <= h + NEAR * h.abs() {
                    (low, high, n) = (l, h, n + 1);
                }
            }
            (told >= width / 2 && n as f64 >= SHARE * told as f64).then_some(())?;
            all.push(Piece { row, low: low.min(high), high: high.max(low) });
        }
    }
    Some(all)
}

/// What all factors are, in words.
fn rule(r: &Rows, pieces: &[Piece], width: usize) -> Option<String> {
    let holds = |of: &dyn Fn(usize) -> f64| {
        let is = |p: &&Piece| {
            let x = of(p.row);
            p.low - NEAR * x.abs() <= x && x <= p.high + NEAR * x.abs()
        };
        pieces.iter().take(2).filter(is).count() == pieces.len().min(2)
            && pieces.iter().filter(is).count() as f64 >= SHARE * pieces.len() as f64
    };
    let n = r.cols as f64;
    for d in [1, -1, 0].into_iter().chain([-FAR, FAR]) {
        let row = |i: usize| (i as isize + d).rem_euclid(r.rows as isize) as usize;
        let whose = match d {
            0 => "of the row itself".to_string(),
            d if d > 0 => format!("of row i + {d}"),
            d => format!("of row i − {}", -d),
        };
        let parts = (0..r.cols).step_by(width).map(|from| (from, (from + width).min(r.cols)));
        for (from, to) in std::iter::once((0, r.cols)).chain(parts) {
            let part = if (from, to) == (0, r.cols) { String::new() } else { format!(" over columns {from} … {}", to - 1) };
            let squares = |i: usize| {
                let at = (r.at)(row(i));
                let (shift, _) = at.moments(r.op);
                at.x()[from..to].iter().map(|x| (x - shift).powi(2)).sum::<f64>()
            };
            let eps = (r.at)(0).eps;
            type Number<'n> = (&'n str, Box<dyn Fn(usize) -> f64 + 'n>);
            let numbers: [Number; 5] = [
                ("the sum of squares", Box::new(squares)),
                ("the mean square", Box::new(|i| squares(i) / n)),
                ("the root of the mean square", Box::new(|i| (squares(i) / n + eps).sqrt())),
                ("the reciprocal root", Box::new(|i| 1.0 / (squares(i) / n + eps).sqrt())),
                ("the sum", Box::new(|i| (r.at)(row(i)).x()[from..to].iter().sum())),
            ];
            if let Some((what, _)) = numbers.iter().find(|x| holds(&x.1)) {
                return Some(format!("{what} {whose}{part}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_take_a_sum_of_the_next_row_are_told() {
        let (rows, cols) = (24, 128);
        let x: Vec<Vec<f64>> =
            (0..rows).map(|i| (0..cols).map(|j| ((i * 37 + j * 11 + i * j) % 29) as f64 / 7.0 - 2.03).collect()).collect();
        let (gamma, beta) = (vec![1.5; cols], vec![0.0; cols]);
        let at = |i: usize| At { rows: &x, i, gamma: &gamma, beta: &beta, eps: 1e-6, cols };
        let hit = |i: usize, j: usize| j >= 32 && (i * 7 + j / 32).is_multiple_of(5);
        let number = |i: usize| x[(i + 1) % rows][..32].iter().map(|x| x * x).sum::<f64>();
        let found = |by: &dyn Fn(usize, usize) -> f64| {
            let y = |p: usize| x[p / cols][p % cols] * 1.5 * by(p / cols, p % cols);
            let right: Vec<bool> = (0..rows * cols).map(|p| !hit(p / cols, p % cols)).collect();
            let cell = |p: usize| (y(p) - 1e-6 * y(p).abs(), y(p) + 1e-6 * y(p).abs());
            explain(&Rows { op: Op::Rmsnorm, at: &at, cell: &cell, right: &right, rows, cols })
        };
        let words = found(&|i, j| if hit(i, j) { number(i) } else { 1.0 }).unwrap();
        assert!(
            words.contains("pieces of 32 columns") && words.contains("the sum of squares of row i + 1 over columns 0 … 31"),
            "{words}"
        );
        let words = found(&|i, j| if hit(i, j) { 0.37 + (i * 3 + j / 32) as f64 } else { 1.0 }).unwrap();
        assert!(words.contains("a number of their own each"), "{words}");
        assert_eq!(found(&|i, j| (i + j) as f64), None);
    }

    /// Threads past the end of a row write the start of the next one, with their own row's root and gamma from behind its end: 1 here.
    #[test]
    fn pieces_of_the_row_before_without_gamma_are_told() {
        let (rows, cols, eps) = (24, 128, 1e-6);
        let x: Vec<Vec<f64>> =
            (0..rows).map(|i| (0..cols).map(|j| ((i * 37 + j * 11 + i * j) % 29) as f64 / 7.0 - 2.03).collect()).collect();
        let (gamma, beta) = ((0..cols).map(|j| 0.7 + (j % 13) as f64 / 16.0).collect::<Vec<f64>>(), vec![0.0; cols]);
        let at = |i: usize| At { rows: &x, i, gamma: &gamma, beta: &beta, eps, cols };
        let hit = |i: usize, j: usize| j < 32 && i % 3 == 1;
        let root = |i: usize| 1.0 / (x[i].iter().map(|x| x * x).sum::<f64>() / cols as f64 + eps).sqrt();
        let y = |p: usize| {
            let (i, j) = (p / cols, p % cols);
            x[i][j] * if hit(i, j) { root(i - 1) } else { root(i) * gamma[j] }
        };
        let cell = |p: usize| (y(p) - 1e-6 * y(p).abs(), y(p) + 1e-6 * y(p).abs());
        let right: Vec<bool> = (0..rows * cols).map(|p| !hit(p / cols, p % cols)).collect();
        let words = explain(&Rows { op: Op::Rmsnorm, at: &at, cell: &cell, right: &right, rows, cols }).unwrap();
        // One piece of four in each of eight rows of 24.
        assert!(
            words.contains("8 of the 96 pieces of 32 columns")
                && words.contains("the reciprocal root of row i − 1 without gamma"),
            "{words}"
        );
    }

    /// Every number by its definition, of rows near and far, over all columns and over some.
    #[test]
    fn every_number_that_pieces_may_share_is_told() {
        let (rows, cols, eps) = (24, 128, 0.25);
        let x: Vec<Vec<f64>> =
            (0..rows).map(|i| (0..cols).map(|j| ((i * 37 + j * 11 + i * j) % 29) as f64 / 7.0 - 1.83).collect()).collect();
        let (gamma, beta) = (vec![1.5; cols], vec![0.0; cols]);
        let at = |i: usize| At { rows: &x, i, gamma: &gamma, beta: &beta, eps, cols };
        let hit = |i: usize, j: usize| j >= 32 && (i * 7 + j / 32).is_multiple_of(5);
        let right: Vec<bool> = (0..rows * cols).map(|p| !hit(p / cols, p % cols)).collect();
        let whose =
            [(1, "of row i + 1"), (-1, "of row i − 1"), (0, "of the row itself"), (2, "of row i + 2"), (-2, "of row i − 2")];
        for ((d, whose), (from, to)) in whose.into_iter().flat_map(|w| [(0, cols), (64, 96)].map(|part| (w, part))) {
            let part = if to == cols { String::new() } else { format!(" over columns {from} … {}", to - 1) };
            let row = |i: usize| x[(i as isize + d).rem_euclid(rows as isize) as usize][from..to].iter();
            let squares = |i: usize| row(i).map(|x| x * x).sum::<f64>();
            let mean = |i: usize| squares(i) / cols as f64;
            let numbers: [(&str, &dyn Fn(usize) -> f64); 5] = [
                ("the sum of squares", &squares),
                ("the mean square", &mean),
                ("the root of the mean square", &|i| (mean(i) + eps).sqrt()),
                ("the reciprocal root", &|i| 1.0 / (mean(i) + eps).sqrt()),
                ("the sum", &|i| row(i).sum()),
            ];
            for (what, of) in numbers {
                let y = |p: usize| x[p / cols][p % cols] * 1.5 * if right[p] { 1.0 } else { of(p / cols) };
                let cell = |p: usize| (y(p) - 1e-6 * y(p).abs(), y(p) + 1e-6 * y(p).abs());
                let words = explain(&Rows { op: Op::Rmsnorm, at: &at, cell: &cell, right: &right, rows, cols }).unwrap();
                assert!(words.contains(&format!("multiplied by {what} {whose}{part}: ")), "{what} {whose}{part}: {words}");
            }
        }
        // Where nearly every piece is wrong, it is no matter of pieces.
        let y = |p: usize| x[p / cols][p % cols] * (2.0 + (p / 32) as f64);
        let cell = |p: usize| (y(p) - 1e-6 * y(p).abs(), y(p) + 1e-6 * y(p).abs());
        let right: Vec<bool> = (0..rows * cols).map(|p| p < 32).collect();
        assert_eq!(explain(&Rows { op: Op::Rmsnorm, at: &at, cell: &cell, right: &right, rows, cols }), None);
    }
}
