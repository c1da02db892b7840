//! Sums of a row by vectors whose loop steps by a number of columns that is not the vector's: the remainder behind whole chunks, or all of the row.
//!
//! ```text
//! lane l reads columns H + s·l … H + s·l + V − 1, s < V         right: H + V·l; H the columns of whole chunks, l all vectors that there are
//! V = 4, s = 1:  columns from H on are in 1, 2, 3, 4, 4, …, 4, 3, 2, 1 sums, and the rest of the row in none
//! ```

use super::{Add, Row};

/// Columns of a vector, and lanes of a chunk.
const VECTORS: [usize; 4] = [2, 4, 8, 16];
const LANES: [usize; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// How often each of `n` columns is in a sum, in words.
pub fn counts(n: usize) -> Vec<(String, Vec<f64>)> {
    let mut all = Vec::new();
    for v in VECTORS {
        let mut heads: Vec<usize> = LANES.iter().map(|lanes| n / (lanes * v) * (lanes * v)).collect();
        heads.push(0);
        heads.sort_unstable();
        heads.dedup();
        // Of one vector there is no step.
        for head in heads.into_iter().filter(|head| (n - head) / v >= 2) {
            let vectors = (n - head) / v;
            for step in [1usize, 2, 4, 8].into_iter().filter(|s| *s < v) {
                let mut times = vec![0.0; n];
                // What is no whole vector is read one by one.
                times[..head].fill(1.0);
                times[head + vectors * v..].fill(1.0);
                for l in 0..vectors {
                    times[head + step * l..head + step * l + v].iter_mut().for_each(|t| *t += 1.0);
                }
                let (from, to) = (head + step * (vectors - 1) + v, head + vectors * v);
                let behind = if head == 0 { String::new() } else { format!(" behind column {}", head - 1) };
                let words = format!(
                    "its vectors of {v} columns{behind} at a step of {step} instead of {v}: columns {from} … {} are in no sum, those before them in \
                     up to {}",
                    to - 1,
                    v / step
                );
                all.push((words, times));
            }
        }
    }
    all
}

/// Sums of squares of such loops.
pub(super) fn sums(table: &[Row], what: &str, add: &mut Add) {
    let n = table[0].squares.len();
    for (words, times) in counts(n) {
        let sum = |i: usize| table[i].squares.iter().zip(&times).map(|(x, t)| x * t).sum::<f64>();
        add(format!("the {what} reads {words}"), &|i| sum(i) / n as f64);
    }
}

/// Means of such loops.
pub(super) fn means(rows: &[Vec<f64>], add: &mut Add) {
    let n = rows[0].len();
    for (words, times) in counts(n) {
        let sum = |i: usize| rows[i].iter().zip(&times).map(|(x, t)| x * t).sum::<f64>();
        add(format!("the mean reads {words}"), &|i| sum(i) / n as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::norms::by_hand::{COLS, EPS, beta, gamma, said};
    use crate::op::Op;

    #[test]
    fn columns_of_vectors_that_overlap_are_counted() {
        let of = |n: usize, words: &str| {
            let found = counts(n).into_iter().find(|(w, _)| w.starts_with(words)).map(|(_, times)| times);
            found.unwrap_or_else(|| panic!("{words}"))
        };
        // Two vectors and two columns that are no vector.
        assert_eq!(of(10, "its vectors of 4 columns at a step of 1"), [1.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(of(10, "its vectors of 4 columns at a step of 2"), [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
        let behind =
            of(80, "its vectors of 4 columns behind column 63 at a step of 1 instead of 4: columns 71 … 79 are in no sum");
        assert!(behind[..64].iter().all(|t| *t == 1.0), "{behind:?}");
        assert_eq!(behind[64..], [1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    /// Behind 64 of 96 columns, in vectors of two that begin one column apart.
    #[test]
    fn a_norm_whose_remainder_is_read_by_the_lane_is_named() {
        let times = |j: usize| match j {
            0..=64 | 80 => 1.0,
            65..=79 => 2.0,
            _ => 0.0,
        };
        let by = |op: Op, times: &dyn Fn(usize) -> f64| {
            said(op, &|rows, i, j| {
                let x = &rows[i];
                let sum = |of: &dyn Fn(f64) -> f64| (0..COLS).map(|j| times(j) * of(x[j])).sum::<f64>() / COLS as f64;
                let layer = op == Op::Layernorm;
                let m = if layer { sum(&|x| x) } else { 0.0 };
                (x[j] - m) / (sum(&|x| (x - m).powi(2)) + EPS).sqrt() * gamma(j) + if layer { beta(j) } else { 0.0 }
            })
        };
        let words = by(Op::Layernorm, &times);
        let of = "vectors of 2 columns behind column 63 at a step of 1 instead of 2: columns 81 … 95 are in no sum";
        assert!(words.contains(&format!("the mean reads its {of}")), "{words}");
        assert!(words.contains(&format!("the variance reads its {of}")), "{words}");
        let words = by(Op::Rmsnorm, &times);
        assert!(words.contains(&format!("the mean square reads its {of}")), "{words}");
        // Columns that are counted in another way are no such loop.
        let words = by(Op::Layernorm, &|j| if j % 3 == 0 { 2.0 * times(j) } else { times(j) });
        assert!(!words.contains("at a step of"), "{words}");
    }
}
