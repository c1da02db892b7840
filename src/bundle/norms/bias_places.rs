//! A bias of the layer before an rmsnorm that stands at another place: added behind the norm, there alone or instead of before it. It is not stored, so it
//! is solved, one number a column.
//!
//! ```text
//! y = γ·(x − α·b)/d(x − α·b) + β·b        α: missing before the norm, β: added behind it        b_j by least squares of all rows, again with the new d
//! ```

use super::{NEAR, Norm, SHARE};
use crate::op::Op;

/// Rows for each number that is solved, at least, and steps of the solution.
const LEAST: usize = 8;
const STEPS: usize = 48;
/// Elements times steps, at most.
const WORK: usize = 1 << 24;

/// Where the bias stands, in words.
pub fn explain(norm: &Norm) -> Option<String> {
    let n = norm.gamma.len();
    let wrong = norm.right.iter().filter(|r| !**r).count();
    let rows = norm.sampled.len().min(WORK / (STEPS * n).max(1));
    let rows = &norm.sampled[..rows];
    (norm.op == Op::Rmsnorm && rows.len() >= LEAST && 2 * wrong > norm.right.len()).then_some(())?;
    let ways = [
        (
            1.0,
            1.0,
            "the bias of the layer before the norm is added behind the norm, as a beta, instead of before it: y = gamma·rms(a − b) + b",
        ),
        (0.0, 1.0, "one number a column is added behind the norm, as a beta that an rmsnorm has not: y = gamma·rms(a) + b"),
        (1.0, 0.0, "the bias of the layer before the norm is not added: y = gamma·rms(a − b)"),
    ];
    ways.into_iter().find_map(|(before, behind, words)| {
        let b = solved(norm, rows, (before, behind))?;
        // Nothing is made by a bias that is none.
        let largest = b.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let is = |i: usize, j: usize, d: f64| {
            let y = norm.gamma[j] * (norm.rows[i][j] - before * b[j]) / d + behind * b[j];
            let (low, high) = (norm.cell)(i * n + j);
            let slack = 16.0 * NEAR * (y.abs() + b[j].abs());
            low - slack <= y && y <= high + slack
        };
        let made: usize = rows
            .iter()
            .map(|i| {
                let d = divisor(norm, *i, &b, before);
                (0..n).filter(|j| is(*i, *j, d)).count()
            })
            .sum();
        (largest > 0.0 && made as f64 >= SHARE * (rows.len() * n) as f64).then(|| {
            let size = crate::compare::digits::apart([largest]);
            format!("{words}, b solved column by column, up to {}", size[0])
        })
    })
}

fn divisor(norm: &Norm, i: usize, b: &[f64], before: f64) -> f64 {
    let squares = norm.rows[i].iter().zip(b).map(|(x, b)| (x - before * b).powi(2)).sum::<f64>();
    (squares / b.len() as f64 + norm.eps).sqrt()
}

/// The number of each column that its elements agree with best.
fn solved(norm: &Norm, rows: &[usize], (before, behind): (f64, f64)) -> Option<Vec<f64>> {
    let n = norm.gamma.len();
    let mut b = vec![0.0; n];
    // Divisors that the bias is no part of are known at once.
    for _ in 0..if before == 0.0 { 1 } else { STEPS } {
        let (mut by, mut all) = (vec![0.0; n], vec![0.0; n]);
        for i in rows {
            let d = divisor(norm, *i, &b, before);
            for (j, x) in norm.rows[*i].iter().enumerate() {
                let c = behind - before * norm.gamma[j] / d;
                by[j] += c * (norm.actual[i * n + j] - norm.gamma[j] * x / d);
                all[j] += c * c;
            }
        }
        b = by.iter().zip(&all).map(|(by, all)| if *all > 0.0 { by / all } else { 0.0 }).collect();
    }
    b.iter().all(|b| b.is_finite()).then_some(b)
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{EPS, gamma, rows, square, with};
    use crate::op::Op;

    #[test]
    fn a_bias_at_another_place_is_named() {
        let b = |j: usize| ((j * 37 % 23) as f64 - 11.0) / 40.0;
        let said = |before: f64, behind: f64| {
            let made = |rows: &[Vec<f64>], i: usize, j: usize| {
                let x: Vec<f64> = rows[i].iter().enumerate().map(|(j, x)| x - before * b(j)).collect();
                x[j] / (square(&x, 0.0) + EPS).sqrt() * gamma(j) + behind * b(j)
            };
            with(Op::Rmsnorm, &rows(), &made, |norm| super::explain(norm).unwrap_or_default())
        };
        assert!(said(1.0, 1.0).contains("instead of before it: y = gamma·rms(a − b) + b"), "{}", said(1.0, 1.0));
        assert!(said(0.0, 1.0).contains("y = gamma·rms(a) + b"), "{}", said(0.0, 1.0));
        assert!(said(1.0, 0.0).contains("y = gamma·rms(a − b), b solved"), "{}", said(1.0, 0.0));
        let longer =
            |rows: &[Vec<f64>], i: usize, j: usize| 1.03 * rows[i][j] / (square(&rows[i], 0.0) + EPS).sqrt() * gamma(j);
        assert_eq!(with(Op::Rmsnorm, &rows(), &longer, super::explain), None, "no bias");
        let twice = |rows: &[Vec<f64>], i: usize, j: usize| {
            rows[i][j] / (square(&rows[i], 0.0) + EPS).sqrt() * gamma(j) + if i.is_multiple_of(2) { 0.5 } else { b(j) }
        };
        assert_eq!(with(Op::Rmsnorm, &rows(), &twice, super::explain), None, "two biases");
    }
}
