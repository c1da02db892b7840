//! Norms of which a pass reads its values at other strides than the tensor has.
//!
//! ```text
//! y[r][c] = (memory[rs·r + cs·c] − μ)/d · γ[c] + β[c]          memory holds x by rows, at n·r + c, or by columns, at r + m·c: a transposed view
//! ```

use super::{At, Formula, formula};
use crate::op::Op;

/// Element `at` of the memory that holds the rows of `r`, by columns or by rows; NaN behind its end.
fn memory(r: &At, by_columns: bool, at: usize) -> f64 {
    let (m, n) = (r.rows.len(), r.cols);
    let (i, j) = if by_columns { (at % m, at / m) } else { (at / n, at % n) };
    if i < m && j < n { r.rows[i][j] } else { f64::NAN }
}

/// `4·r + c`.
fn place(row: usize, column: usize) -> String {
    let by = |stride: usize, of: &str| if stride == 1 { of.to_string() } else { format!("{stride}·{of}") };
    format!("{} + {}", by(row, "r"), by(column, "c"))
}

/// A norm of `m` rows of `n` columns at each other pair of strides: where it is normalized alone, and where its statistics are taken too.
pub fn strided(op: Op, m: usize, n: usize) -> Vec<Formula> {
    let mut strides = vec![1, m, n];
    strides.sort_unstable();
    strides.dedup();
    let pairs: Vec<(usize, usize)> = strides.iter().flat_map(|rs| strides.iter().map(move |cs| (*rs, *cs))).collect();
    let mut all = Vec::new();
    for by_columns in [false, true] {
        let own = if by_columns { (1, m) } else { (n, 1) };
        for (rs, cs) in pairs.iter().copied().filter(|pair| *pair != own) {
            let view = if by_columns { "a transposed view, element (r, c) at" } else { "element (r, c) of x, at" };
            let words = format!("{view} {} in memory, is read at {}", place(own.0, own.1), place(rs, cs));
            let read = move |r: &At| -> Vec<f64> { (0..n).map(|c| memory(r, by_columns, rs * r.i + cs * c)).collect() };
            let norm = move |r: &At, x: &[f64], (mean, divisor): (f64, f64)| -> Vec<f64> {
                x.iter().enumerate().map(|(c, x)| (x - mean) / divisor * r.gamma[c] + r.beta[c]).collect()
            };
            all.push(formula(
                format!("{words} by the pass that normalizes, with the statistics of the right row"),
                move |r: &At| norm(r, &read(r), r.moments(op)),
            ));
            all.push(formula(words, move |r: &At| {
                let x = read(r);
                norm(r, &x, At { rows: std::slice::from_ref(&x), i: 0, ..*r }.moments(op))
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows of three: [1 2 3] and [4 5 9]; by columns 1 4 2 5 3 9.
    #[test]
    fn strides_by_hand() {
        let rows = [vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 9.0]];
        let (gamma, beta) = ([1.0, 2.0, 0.5], [0.0, 1.0, 0.0]);
        let at = |i| At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: 0.25, cols: 3 };
        let all = strided(Op::Rmsnorm, 2, 3);
        let row = |words: &str| all.iter().find(|f| f.words == words).unwrap_or_else(|| panic!("{words}")).row(&at(1));
        let is = |found: Vec<f64>, x: [f64; 3], square: f64| {
            let d = (square / 3.0 + 0.25).sqrt();
            let hand = [x[0] / d, x[1] / d * 2.0 + 1.0, x[2] / d * 0.5];
            assert!(found.iter().zip(hand).all(|(x, y)| (x - y).abs() < 1e-12), "{found:?} {hand:?}");
        };
        let alone = " by the pass that normalizes, with the statistics of the right row";
        let words = "a transposed view, element (r, c) at r + 2·c in memory, is read at r + c";
        is(row(&format!("{words}{alone}")), [4.0, 2.0, 5.0], 16.0 + 25.0 + 81.0);
        is(row(words), [4.0, 2.0, 5.0], 16.0 + 4.0 + 25.0);
        let words = "element (r, c) of x, at 3·r + c in memory, is read at r + 2·c";
        is(row(&format!("{words}{alone}")), [2.0, 4.0, 9.0], 16.0 + 25.0 + 81.0);
        is(row("element (r, c) of x, at 3·r + c in memory, is read at 2·r + c"), [3.0, 4.0, 5.0], 9.0 + 16.0 + 25.0);
        // Every pair of 1, 2 and 3 but the tensor's own, for each layout, with two statistics.
        assert_eq!(all.len(), 2 * 8 * 2);
        assert!(row("element (r, c) of x, at 3·r + c in memory, is read at 3·r + 3·c")[1].is_nan(), "behind the end");
        assert_eq!(strided(Op::Layernorm, 4, 4).len(), 2 * 3 * 2);
    }
}
