//! Norms of which each part of a row has the sums so far: a reduction between lanes that is a scan, of which every lane takes its own number.
//!
//! ```text
//! column j ──► part p = (j / w) mod n ──► μ_p = Σ_{q ≤ p} Σ_q x / N,  v_p = Σ_{q ≤ p} Σ_q (x − μ_q)² / N           or of the parts from p on
//! ```

use super::{At, Formula, formula};
use crate::op::Op;

/// Columns of a part, and how many parts take turns.
const RUNS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const TURNS: [usize; 5] = [2, 4, 8, 16, 32];

/// Sums that run over the parts of a row of `n` columns.
pub fn of_parts(op: Op, n: usize) -> Vec<Formula> {
    let mut all = Vec::new();
    for (w, of) in RUNS.into_iter().flat_map(|w| TURNS.map(|of| (w, of))).filter(|(w, of)| w * of <= n) {
        for (from_last, own_mean) in [(false, true), (true, true), (false, false), (true, false)] {
            if !own_mean && op != Op::Layernorm {
                continue;
            }
            let which = if from_last { "those from its own on" } else { "those up to its own" };
            let means = if own_mean { "" } else { ", with the mean of all" };
            let words = format!(
                "column j is normalized by the sums over part (j / {w}) mod {of} and {which} alone{means}: the reduction is a scan, and every lane takes \
                 the number that it has"
            );
            all.push(formula(words, move |r: &At| {
                let part = |j: usize| j / w % of;
                let n = r.cols as f64;
                // What each part brings, summed from the first or from the last on.
                let run = |own: Vec<f64>| {
                    let mut sum = own;
                    for k in 1..of {
                        let (to, before) = if from_last { (of - 1 - k, of - k) } else { (k, k - 1) };
                        sum[to] += sum[before];
                    }
                    sum
                };
                let mut means = vec![0.0; of];
                if op == Op::Layernorm {
                    r.x().iter().enumerate().for_each(|(j, x)| means[part(j)] += x / n);
                    means = if own_mean { run(means) } else { vec![means.iter().sum(); of] };
                }
                let mut squares = vec![0.0; of];
                r.x().iter().enumerate().for_each(|(j, x)| squares[part(j)] += (x - means[part(j)]).powi(2) / n);
                let squares = run(squares);
                let one = |(j, x): (usize, &f64)| {
                    let p = part(j);
                    (x - means[p]) / (squares[p] + r.eps).sqrt() * r.gamma[j] + r.beta[j]
                };
                r.x().iter().enumerate().map(one).collect()
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 2 3 5 in two parts of neighbours: the squares so far are 5 and 39, the sums 3 and 11.
    #[test]
    fn parts_take_the_sums_so_far() {
        let rows = [vec![1.0, 2.0, 3.0, 5.0]];
        let at = At { rows: &rows, i: 0, gamma: &[1.0; 4], beta: &[0.0; 4], eps: 0.0, cols: 4 };
        let of = |op: Op, words: &str| {
            let all = of_parts(op, 4);
            all.iter().find(|f| f.words.contains(words)).unwrap_or_else(|| panic!("{words}")).row(&at)
        };
        let is = |found: Vec<f64>, hand: [f64; 4]| {
            assert!(found.iter().zip(hand).all(|(x, y)| (x - y).abs() < 1e-12), "{found:?} {hand:?}");
        };
        let (first, both) = (1.25f64.sqrt(), 9.75f64.sqrt());
        is(of(Op::Rmsnorm, "(j / 2) mod 2 and those up to"), [1.0 / first, 2.0 / first, 3.0 / both, 5.0 / both]);
        let last = 8.5f64.sqrt();
        is(of(Op::Rmsnorm, "(j / 2) mod 2 and those from"), [1.0 / both, 2.0 / both, 3.0 / last, 5.0 / last]);
        // Means 3/4 and 11/4; squares about them 1/16 + 25/16, then 1/16 + 81/16 more.
        let (first, both) = ((26.0f64 / 64.0).sqrt(), (108.0f64 / 64.0).sqrt());
        let hand = [0.25 / first, 1.25 / first, 0.25 / both, 2.25 / both];
        is(of(Op::Layernorm, "(j / 2) mod 2 and those up to its own alone: "), hand);
    }
}
