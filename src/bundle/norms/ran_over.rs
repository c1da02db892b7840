//! Rows of a norm whose vectors run on past their end: the last one of a row also writes the first columns of the next row, by the statistics of its own.
//! Where that lands last it stays.
//!
//! ```text
//! row i + 1, columns 0 … d − 1:  y = (x − μ of row i)/(divisor of row i)·g + b        g, b: what lies behind gamma and beta, the same for all rows
//! ```

use super::{NEAR, Norm};
use crate::bundle::weights;
use crate::compare::digits;
use crate::fault::solve::segment::lines;

/// Elements of a vector.
const VECTORS: [usize; 4] = [2, 4, 8, 16];
/// Wrong elements of all, and rows of a column that one number, or two, are told by, at least.
const LEAST: usize = 8;
const ROWS: [usize; 2] = [4, 8];

/// Which columns were written by the row before, in words.
pub fn explain(norm: &Norm) -> Option<String> {
    let (n, count) = (norm.gamma.len(), norm.rows.len());
    // Neighbours have to be known.
    (norm.sampled.len() == count && count > 1 && n > 1).then_some(())?;
    let wrong = || (0..count * n).filter(|at| !norm.right[*at]);
    let last = wrong().map(|at| at % n).max()?;
    (last + 1 < VECTORS[3].min(n) && wrong().all(|at| at >= n) && wrong().count() >= LEAST).then_some(())?;
    let vector = VECTORS.into_iter().find(|v| n.next_multiple_of(*v) - n > last)?;
    let mut is_row = vec![false; count];
    wrong().for_each(|at| is_row[at / n] = true);
    let mut shown = Vec::new();
    let mut is_col = vec![false; n];
    for (c, is_col) in is_col.iter_mut().enumerate().take(last + 1) {
        let rows: Vec<usize> = (1..count).filter(|i| !norm.right[i * n + c]).collect();
        if rows.is_empty() {
            continue;
        }
        let by = |d: usize| behind(norm, c, &rows, d);
        // What the row's own statistics make is another gamma.
        let (g, b) = by(1).filter(|_| by(0).is_none())?;
        *is_col = true;
        shown.push(match norm.layer() {
            true => format!("{} and {}", digits::apart([g])[0], digits::apart([b])[0]),
            false => digits::apart([g])[0].clone(),
        });
    }
    let (mean, both) = if norm.layer() { ("mean and ", "gamma and beta") } else { ("", "gamma") };
    Some(format!(
        "in rows {} column {} is written again by the row before, whose vectors of {vector} run on past the end of its {n} columns: by its {mean}divisor, \
         and by what lies behind {both} ({})",
        lines(&is_row),
        lines(&is_col),
        shown.join(", ")
    ))
}

/// The gamma and beta that make a column of these rows by the statistics of the row so many before. `None`: there are none, or too few rows say so.
fn behind(norm: &Norm, c: usize, rows: &[usize], before: usize) -> Option<(f64, f64)> {
    let n = norm.gamma.len();
    (rows.len() >= ROWS[usize::from(norm.layer())]).then_some(())?;
    let term = |i: &usize| {
        let x = &norm.rows[i - before];
        let (low, high) = (norm.cell)(i * n + c);
        let (y, z) = (0.5 * (low + high), (norm.rows[*i][c] - norm.center(x)) / norm.divisor(x));
        (z, y, 0.5 * (high - low) + 4.0 * NEAR * y.abs() + 1e-30)
    };
    let terms: Vec<(f64, f64, f64)> = rows.iter().map(term).collect();
    if norm.layer() {
        let ((g, _), (b, _)) = weights::line(&terms)?;
        return terms.iter().all(|(z, y, half)| (g * z + b - y).abs() <= 1.5 * half).then_some((g, b));
    }
    let (mut low, mut high, mut told) = (f64::NEG_INFINITY, f64::INFINITY, 0usize);
    for (z, y, half) in terms.iter().filter(|t| t.0.abs() > 1e-9) {
        let ends = [(y - half) / z, (y + half) / z];
        (low, high, told) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])), told + 1);
    }
    (low <= high && told >= ROWS[0]).then(|| (crate::fault::solve::output::roundest(low, high), 0.0))
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, square};
    use super::*;
    use crate::op::Op;

    const WIDTH: usize = COLS - 1;

    /// What is said of rows of 95 of which some columns of rows `over` are by the statistics of row `by(i)`, times g, plus b.
    fn said(op: Op, over: &dyn Fn(usize, usize) -> bool, by: &dyn Fn(usize) -> usize, g: &dyn Fn(usize) -> f64) -> String {
        let rows: Vec<Vec<f64>> = super::super::by_hand::rows().into_iter().map(|x| x[..WIDTH].to_vec()).collect();
        let layer = op == Op::Layernorm;
        let m = |i: usize| if layer { average(&rows[i]) } else { 0.0 };
        let normal = |i: usize, of: usize, j: usize| (rows[i][j] - m(of)) / (square(&rows[of], m(of)) + EPS).sqrt();
        let (gains, betas): (Vec<f64>, Vec<f64>) = (0..WIDTH).map(|j| (gamma(j), if layer { beta(j) } else { 0.0 })).unzip();
        let ideal = |at: usize| normal(at / WIDTH, at / WIDTH, at % WIDTH) * gains[at % WIDTH] + betas[at % WIDTH];
        let made = |at: usize| match over(at / WIDTH, at % WIDTH) {
            true => normal(at / WIDTH, by(at / WIDTH), at % WIDTH) * g(at) + if layer { 0.25 } else { 0.0 },
            false => ideal(at),
        };
        let actual: Vec<f64> = (0..rows.len() * WIDTH).map(made).collect();
        let right: Vec<bool> = (0..actual.len()).map(|at| actual[at] == ideal(at)).collect();
        let cell = |at: usize| (actual[at] - 1e-7 * actual[at].abs(), actual[at] + 1e-7 * actual[at].abs());
        let sampled: Vec<usize> = (0..rows.len()).collect();
        explain(&Norm {
            op,
            rows: &rows,
            sampled: &sampled,
            gain: "gamma",
            gamma: &gains,
            beta: &betas,
            eps: EPS,
            actual: &actual,
            cell: &cell,
            right: &right,
        })
        .unwrap_or_default()
    }

    #[test]
    fn columns_that_the_row_before_wrote_are_named() {
        let odd = |i: usize, j: usize| i % 2 == 1 && j == 0;
        let words = said(Op::Rmsnorm, &odd, &|i| i - 1, &|_| 0.75);
        assert!(words.starts_with("in rows 1, 3, … 23 (every second) column 0 is written again by the row before"), "{words}");
        assert!(
            words.contains("vectors of 2 run on past the end of its 95 columns: by its divisor") && words.ends_with("(0.75)"),
            "{words}"
        );
        let words = said(Op::Layernorm, &odd, &|i| i - 1, &|_| 0.75);
        assert!(words.contains("by its mean and divisor, and by what lies behind gamma and beta (0.7"), "{words}");
        assert_eq!(said(Op::Rmsnorm, &odd, &|i| i, &|_| 0.75), "", "another gamma");
        assert_eq!(said(Op::Rmsnorm, &odd, &|i| i - 1, &|at| 0.5 + at as f64 / 1e3), "", "another number in each row");
        assert_eq!(said(Op::Rmsnorm, &|i, j| i % 2 == 1 && j == 3, &|i| i - 1, &|_| 0.75), "", "no vector is so long");
        assert_eq!(said(Op::Rmsnorm, &|i, j| i % 4 == 1 && j == 0, &|i| i - 1, &|_| 0.75), "", "six elements");
    }
}
