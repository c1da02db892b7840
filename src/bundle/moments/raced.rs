//! Sums and sums of squares of a layernorm that two reductions put into the same shared memory without a barrier between them: some warps have written
//! their sum of squares before the sums are read.
//!
//! ```text
//! μ' = (Σ_{w < k} Σx + Σ_{w ≥ k} Σx²) / n, k of every row another        v = max(0, E[x²] − μ'²)
//! ```

use super::{Written, line};
use crate::op::Op;

/// Lanes of a warp, elements of a lane at once, warps of a block.
const LANES: usize = 32;
const VECTORS: [usize; 4] = [1, 2, 4, 8];
const WARPS: [usize; 5] = [8, 4, 16, 32, 2];
/// Wrong rows, at least.
const LEAST: usize = 4;
/// How far a mean may be off, in standard deviations, and a variance, relative.
const NEAR: f64 = 2e-4;
const WIDE: f64 = 1e-3;

/// Which warps' sums are others in the means of these rows, in words.
pub(super) fn explain(op: Op, rows: &[Written]) -> Option<String> {
    let n = rows.first()?.y.len();
    (op == Op::Layernorm && rows.len() >= LEAST && n > LANES).then_some(())?;
    // The mean that was taken off, and the square of the divisor without eps.
    let solved: Vec<(f64, f64)> = (rows.iter())
        .map(|r| {
            let m = r.at.moments(op).0;
            let (p, q) = line(&r.at, r.y, m, true);
            (m - q / p, 1.0 / (p * p) - r.at.eps)
        })
        .collect();
    for v in VECTORS.into_iter().filter(|v| v * LANES < n) {
        for warps in WARPS.into_iter().filter(|w| (w - 1) * v * LANES < n) {
            for last in [true, false] {
                let cut = |r: usize| {
                    let x = rows[r].at.x();
                    let (mut sums, mut squares) = (vec![0.0; warps], vec![0.0; warps]);
                    for (j, x) in x.iter().enumerate() {
                        let w = j / (v * LANES) % warps;
                        (sums[w], squares[w]) = (sums[w] + x, squares[w] + x * x);
                    }
                    let square = squares.iter().sum::<f64>() / n as f64;
                    let (mean, variance) = solved[r];
                    let about = square + mean * (mean - 2.0 * sums.iter().sum::<f64>() / n as f64);
                    let near = |of: f64| (variance - of).abs() <= WIDE * of + 1e-5 * square;
                    (near((square - mean * mean).max(0.0)) || near(about)).then_some(())?;
                    (0..warps).find(|k| {
                        let other = |w: &usize| (w >= k) == last;
                        let sum: f64 = (0..warps).map(|w| if other(&w) { squares[w] } else { sums[w] }).sum();
                        (last || *k > 0) && (sum / n as f64 - mean).abs() <= NEAR * square.sqrt()
                    })
                };
                let cuts: Option<Vec<usize>> = (0..rows.len()).map(cut).collect();
                let Some(cuts) = cuts else { continue };
                let (low, high) = cuts.iter().fold((warps, 0), |m, k| (m.0.min(*k), m.1.max(*k)));
                let from = if low == high { format!("{low}") } else { format!("{low} to {high}, another in each row,") };
                let which = if last { format!("from warp {from} on") } else { format!("of the warps before warp {from}") };
                return Some(format!(
                    "the mean of {} rows takes sums of squares instead of sums {which} of {warps} warps of {} columns: two reductions share their \
                     memory without a barrier between them",
                    rows.len(),
                    v * LANES
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::At;
    use super::*;

    #[test]
    fn sums_of_squares_in_a_mean_are_named() {
        let value = |i: usize, j: usize| ((i * 7919 + j * 131 + i * j * 17) % 1009) as f64 / 400.0 - 0.6;
        let rows: Vec<Vec<f64>> = (0..12).map(|i| (0..256).map(|j| value(i, j)).collect()).collect();
        let (gamma, beta) = (vec![1.5; 256], vec![0.25; 256]);
        let said = |of: &dyn Fn(usize, usize, f64) -> f64| {
            let made: Vec<Vec<f64>> = (0..12)
                .map(|i| {
                    let x = &rows[i];
                    let m = x.iter().enumerate().map(|(j, x)| of(i, j, *x)).sum::<f64>() / 256.0;
                    let v = (x.iter().map(|x| x * x).sum::<f64>() / 256.0 - m * m).max(0.0);
                    x.iter().map(|x| 1.5 * (x - m) / (v + 1e-5).sqrt() + 0.25).collect()
                })
                .collect();
            let at = |i: usize| At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: 1e-5, cols: 256 };
            let all: Vec<Written> = (0..12).map(|i| Written { at: at(i), y: &made[i], cells: Vec::new() }).collect();
            explain(Op::Layernorm, &all)
        };
        let words = said(&|i, j, x| if j / 32 >= 3 + i % 4 { x * x } else { x }).unwrap();
        assert!(words.contains("from warp 3 to 6, another in each row, on of 8 warps of 32 columns"), "{words}");
        let words = said(&|_, j, x| if j / 64 < 2 { x * x } else { x }).unwrap();
        assert!(words.contains("of the warps before warp "), "{words}");
        assert_eq!(said(&|_, _, x| 1.25 * x), None);
    }
}
