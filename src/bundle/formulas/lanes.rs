//! Norms whose statistics are those of some lanes alone, or of another axis: an exchange between lanes that leaves a step out, a reduction that runs
//! down the columns.
//!
//! ```text
//! column j ──► part (j / w) mod n ──► y = (x − Σ_part x / N) / √(Σ_part (x − μ)² / N + ε) · γ + β          N: all columns, or those of the part
//! ```

use super::{At, Formula, formula};
use crate::op::Op;
use std::sync::OnceLock;

/// Columns of a lane, or of a run of lanes, and how many parts take turns.
const RUNS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const TURNS: [usize; 5] = [2, 4, 8, 16, 32];

/// Mean and variance of some numbers whose sums are divided by `n`.
fn moments(op: Op, x: &[f64], n: f64) -> (f64, f64) {
    let m = if op == Op::Layernorm { x.iter().sum::<f64>() / n } else { 0.0 };
    (m, x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n)
}

/// Every part of a row by its own sums.
pub fn own_sums(op: Op, n: usize) -> Vec<Formula> {
    let mut all = Vec::new();
    // What is one run for each part is a head, which has its own name.
    for (w, of) in RUNS.into_iter().flat_map(|w| TURNS.map(|of| (w, of))).filter(|(w, of)| w * of <= n) {
        let part = move |j: usize| j / w % of;
        for whole in [true, false] {
            if !whole && w * of == n {
                continue;
            }
            let by = if whole { format!("all {n} columns") } else { "the columns of its part".to_string() };
            let words = format!(
                "column j is normalized by the sums over the columns with the same (j / {w}) mod {of} alone, divided by {by}: the reduction does not \
                 join these {of} parts"
            );
            all.push(formula(words, move |r: &At| {
                let (mut count, mut sum, mut square) = (vec![0.0; of], vec![0.0; of], vec![0.0; of]);
                r.x().iter().enumerate().for_each(|(j, x)| {
                    count[part(j)] += 1.0;
                    sum[part(j)] += x;
                });
                let by = |p: usize| if whole { r.cols as f64 } else { count[p] };
                let means: Vec<f64> = (0..of).map(|p| if op == Op::Layernorm { sum[p] / by(p) } else { 0.0 }).collect();
                r.x().iter().enumerate().for_each(|(j, x)| square[part(j)] += (x - means[part(j)]).powi(2));
                let table: Vec<(f64, f64)> = (0..of).map(|p| (means[p], square[p] / by(p))).collect();
                let one = |(j, x): (usize, &f64)| {
                    let (m, v) = table[part(j)];
                    (x - m) / (v + r.eps).sqrt() * r.gamma[j] + r.beta[j]
                };
                r.x().iter().enumerate().map(one).collect()
            }));
        }
    }
    all
}

/// Mean and variance down the columns, of so many rows together, and those of all elements.
pub fn other_axes(op: Op, rows: usize) -> Vec<Formula> {
    (rows > 1).then_some(()).map_or_else(Vec::new, |()| {
        let heights = std::iter::once(rows).chain((2..rows).rev().filter(|h| h.is_power_of_two() && rows.is_multiple_of(*h)));
        let column = |h: usize| {
            let which = if h == rows { format!("all {rows} rows") } else { format!("{h} rows together") };
            // Every row asks for the same numbers.
            let table: OnceLock<Vec<Vec<(f64, f64)>>> = OnceLock::new();
            formula(
                format!("mean and variance are taken down each column, over {which}, and not along the row"),
                move |r: &At| {
                    let of = |from: usize, j: usize| {
                        let x: Vec<f64> = r.rows[from..(from + h).min(r.rows.len())].iter().map(|row| row[j]).collect();
                        moments(op, &x, x.len() as f64)
                    };
                    let make = || (0..r.rows.len()).step_by(h).map(|from| (0..r.cols).map(|j| of(from, j)).collect()).collect();
                    let own = &table.get_or_init(make)[r.i / h];
                    let one = |(j, x): (usize, &f64)| (x - own[j].0) / (own[j].1 + r.eps).sqrt() * r.gamma[j] + r.beta[j];
                    r.x().iter().enumerate().map(one).collect()
                },
            )
        };
        let every: OnceLock<(f64, f64)> = OnceLock::new();
        let whole =
            formula(format!("mean and variance are those of all elements of the {rows} rows together"), move |r: &At| {
                let all = || r.rows.concat();
                let (m, v) = *every.get_or_init(|| moments(op, &all(), (r.rows.len() * r.cols) as f64));
                r.norm(m, (v + r.eps).sqrt())
            });
        heights.map(column).chain([whole]).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[Formula], words: &str, i: usize) -> Vec<f64> {
        let rows = [vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 1.0, 7.0, 2.0]];
        let at = At { rows: &rows, i, gamma: &[1.0, 2.0, 1.0, 0.5], beta: &[0.0, 0.0, 1.0, 0.0], eps: 0.25, cols: 4 };
        all.iter().find(|f| f.words.contains(words)).unwrap_or_else(|| panic!("{words}")).row(&at)
    }

    fn is(found: Vec<f64>, hand: [f64; 4]) {
        assert!(found.iter().zip(hand).all(|(x, y)| (x - y).abs() < 1e-12), "{found:?} {hand:?}");
    }

    /// 1 2 3 4: by even and odd columns the squares are 10 and 20, the sums 4 and 6.
    #[test]
    fn parts_of_a_row_by_their_own_sums() {
        let root = |v: f64| (v + 0.25f64).sqrt();
        let rms = own_sums(Op::Rmsnorm, 4);
        let (even, odd) = (root(2.5), root(5.0));
        is(of(&rms, "(j / 1) mod 2 alone, divided by all 4", 0), [1.0 / even, 4.0 / odd, 3.0 / even + 1.0, 2.0 / odd]);
        let (even, odd) = (root(5.0), root(10.0));
        is(of(&rms, "(j / 1) mod 2 alone, divided by the columns", 0), [1.0 / even, 4.0 / odd, 3.0 / even + 1.0, 2.0 / odd]);
        // Means 3/4 and 7/4; squares about them over 4: (1 + 25)/64, (25 + 81)/64.
        let layer = own_sums(Op::Layernorm, 4);
        let (first, last) = (root(26.0 / 64.0), root(106.0 / 64.0));
        let hand = [0.25 / first, 2.5 / first, 1.25 / last + 1.0, 1.125 / last];
        is(of(&layer, "(j / 2) mod 2 alone, divided by all 4", 0), hand);
        assert!(!layer.iter().any(|f| f.words.contains("(j / 2) mod 2 alone, divided by the columns")), "these are heads");
    }

    #[test]
    fn statistics_of_another_axis() {
        let all = other_axes(Op::Layernorm, 2);
        let root = |v: f64| (v + 0.25f64).sqrt();
        let hand = [2.0 / root(4.0), -1.0 / root(0.25), 2.0 / root(4.0) + 1.0, -0.5 / root(1.0)];
        is(of(&all, "down each column, over all 2 rows", 1), hand);
        let (m, v) = (25.0 / 8.0, (1.0 + 4.0 + 9.0 + 16.0 + 25.0 + 1.0 + 49.0 + 4.0) / 8.0 - 625.0 / 64.0);
        let d = root(v);
        is(of(&all, "of all elements", 0), [(1.0 - m) / d, (2.0 - m) / d * 2.0, (3.0 - m) / d + 1.0, (4.0 - m) / d * 0.5]);
        assert!(other_axes(Op::Rmsnorm, 1).is_empty());
        let groups = other_axes(Op::Rmsnorm, 12);
        assert!(groups.iter().any(|f| f.words.contains("over 4 rows together")) && groups.len() == 4);
    }
}
