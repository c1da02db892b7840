//! Norms whose columns take gamma and beta by the number of their row: within a tile the lane of rows stands where that of columns belongs.
//!
//! ```text
//! column j of row i:  γ[T·(j / T) + i mod T]        T columns and rows of a tile; γ[i], where the tile is as wide as the row
//! ```

use super::{At, Formula, formula};
use crate::op::Op;

/// Columns and rows of a tile.
const TILES: [usize; 6] = [32, 16, 64, 8, 128, 256];

/// Formulas of a norm of so many rows and columns.
pub fn of_rows(op: Op, rows: usize, cols: usize) -> Vec<Formula> {
    let mut all = Vec::new();
    let tiles = TILES.into_iter().filter(|t| *t <= cols && *t <= rows).map(Some).chain((rows <= cols).then_some(None));
    for tile in tiles {
        let place = match tile {
            Some(t) => format!("{t}·(j / {t}) + i mod {t}"),
            None => "i".into(),
        };
        // Nobody knows what lies behind the last.
        let of = move |v: &[f64], i: usize, j: usize| {
            let at = tile.map_or(i, |t| j / t * t + i % t);
            v.get(at).copied().unwrap_or(f64::NAN)
        };
        let mut add = |words: String, takes_gamma: bool, takes_beta: bool| {
            all.push(formula(words, move |r: &At| {
                let (m, d) = r.moments(op);
                let gain = |j: usize| if takes_gamma { of(r.gamma, r.i, j) } else { r.gamma[j] };
                let shift = |j: usize| if takes_beta { of(r.beta, r.i, j) } else { r.beta[j] };
                r.with(m, d, gain, shift)
            }));
        };
        add(format!("column j of row i takes gamma[{place}]"), true, false);
        if op == Op::Layernorm {
            add(format!("column j of row i takes beta[{place}]"), false, true);
            add(format!("column j of row i takes gamma[{place}] and beta[{place}]"), true, true);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of 3 and −3 have mean 0 and a divisor of 3: a row is ±γ + β.
    #[test]
    fn a_tile_takes_the_lane_of_rows() {
        let rows: Vec<Vec<f64>> = (0..40).map(|_| (0..64).map(|j| if j % 2 == 0 { 3.0 } else { -3.0 }).collect()).collect();
        let gamma: Vec<f64> = (0..64).map(f64::from).collect();
        let beta: Vec<f64> = (0..64).map(|j| 1000.0 + f64::from(j)).collect();
        let all = of_rows(Op::Layernorm, 40, 64);
        let of = |words: &str, i: usize, j: usize| {
            let f = all.iter().find(|f| f.words == words).unwrap();
            f.row(&At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: 0.0, cols: 64 })[j]
        };
        // Row 35, column 50: 32 + 3 of tiles of 32, 48 + 3 of those of 16.
        assert_eq!(of("column j of row i takes gamma[32·(j / 32) + i mod 32]", 35, 50), 35.0 + 1050.0);
        assert_eq!(of("column j of row i takes beta[16·(j / 16) + i mod 16]", 35, 51), -51.0 + 1051.0);
        assert_eq!(of("column j of row i takes gamma[i] and beta[i]", 35, 51), -35.0 + 1035.0);
        assert!(!all.iter().any(|f| f.words.contains("64·")), "a tile of more rows than there are");
        assert_eq!(of_rows(Op::Rmsnorm, 40, 64).len(), 4, "tiles of 32, 16 and 8, and the row");
    }
}
