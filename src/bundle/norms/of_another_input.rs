//! Rows of a norm that are not written: they hold the norm of another input, as an earlier call left it, by the same gamma and beta.
//!
//! ```text
//! z = (y − β)/γ of a row:   mean 0, mean square 1 to what eps takes      and z is no row of a, nor one in another order
//! ```

use super::{NEAR, Norm};
use crate::bundle::blank::ONLY;
use crate::fault::solve::segment::lines;

/// Rows and columns, at least.
const ROWS: usize = 3;
const COLS: usize = 32;
/// Columns of a gamma this small, against the largest, say nothing.
const SMALL: f64 = 1e-2;
/// What is lost of the mean square to eps, at most, and how far a mean may be off beyond what roundings give.
const EPS: f64 = 0.02;
const OFF: f64 = 1e-4;
/// A correlation of what is the same row, rounded otherwise.
const ALIKE: f64 = 0.98;

/// Which rows are of another input, in words. `None`: another wrong row is not, or one of them is of a row of this one.
pub fn explain(norm: &Norm) -> Option<String> {
    let n = norm.gamma.len();
    (n >= COLS && norm.sampled.len() == norm.rows.len()).then_some(())?;
    let largest = norm.gamma.iter().fold(0.0f64, |m, g| m.max(g.abs()));
    let columns: Vec<usize> = (0..n).filter(|j| norm.gamma[*j].abs() > SMALL * largest).collect();
    (2 * columns.len() > n && columns.len() >= COLS).then_some(())?;
    let wrong: Vec<bool> = (0..norm.rows.len()).map(|i| norm.right[i * n..(i + 1) * n].contains(&false)).collect();
    let count = wrong.iter().filter(|w| **w).count();
    (count >= ROWS).then_some(())?;
    let normal = |i: usize| {
        let of = |j: &usize| {
            let (low, high) = (norm.cell)(i * n + j);
            let y = 0.5 * (low + high);
            let half = 0.5 * (high - low) + NEAR * (y.abs() + norm.beta[*j].abs());
            ((y - norm.beta[*j]) / norm.gamma[*j], half / norm.gamma[*j].abs())
        };
        let z: Vec<(f64, f64)> = columns.iter().map(of).collect();
        let size = z.len() as f64;
        let (mean, square) = (z.iter().map(|z| z.0).sum::<f64>() / size, z.iter().map(|z| z.0 * z.0).sum::<f64>() / size);
        // Roundings of their own, and those of a few left-out columns.
        let off = OFF + 3.0 * (z.iter().map(|z| z.1 * z.1).sum::<f64>()).sqrt() / size + (n - columns.len()) as f64 / n as f64;
        let is_mean = !norm.layer() || mean.abs() <= off;
        (is_mean && square <= 1.0 + 2.0 * off && square >= 1.0 - EPS - 2.0 * off)
            .then(|| z.into_iter().map(|z| z.0).collect::<Vec<f64>>())
    };
    let found: Vec<Vec<f64>> = (0..norm.rows.len()).filter(|i| wrong[*i]).map(normal).collect::<Option<_>>()?;
    let own: Vec<Vec<f64>> = norm.rows.iter().map(|x| columns.iter().map(|j| x[*j]).collect()).collect();
    let sorted = |x: &[f64]| {
        let mut x = x.to_vec();
        x.sort_by(f64::total_cmp);
        x
    };
    let in_order: Vec<Vec<f64>> = own.iter().map(|x| sorted(x)).collect();
    let is_own = |z: &Vec<f64>| {
        let s = sorted(z);
        own.iter().any(|x| alike(x, z) >= ALIKE) || in_order.iter().any(|x| alike(x, &s) >= 1.0 - 1e-6)
    };
    (!found.iter().any(is_own)).then_some(())?;
    // Two such rows are not one and the same.
    (!found.windows(2).all(|z| alike(&z[0], &z[1]) >= ALIKE)).then_some(())?;
    let right: Vec<bool> = wrong.iter().map(|w| !w).collect();
    let which = match wrong.len() - count {
        0 => format!("all {count} rows"),
        _ if 2 * count > wrong.len() => format!("all rows but {}", lines(&right)),
        _ => format!("rows {}", lines(&wrong)),
    };
    let moments = if norm.layer() { "mean 0 and variance 1" } else { "mean square 1" };
    Some(format!(
        "{ONLY}{which} are not written: each has {moments} before gamma{}, and is no row of a, so it is left of another input",
        if norm.layer() { " and beta" } else { "" }
    ))
}

/// The correlation of two rows.
fn alike(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        (xx, yy, xy) = (xx + (x - mx).powi(2), yy + (y - my).powi(2), xy + (x - mx) * (y - my));
    }
    if xx > 0.0 && yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, average, beta, gamma, rows, square, with};
    use super::*;
    use crate::op::Op;

    type Other<'x> = dyn Fn(&[Vec<f64>], usize) -> Vec<f64> + 'x;

    /// What is said where wrong rows hold these numbers before gamma and beta.
    fn said(op: Op, is: &dyn Fn(usize) -> bool, other: &Other) -> String {
        let rows = rows();
        let layer = op == Op::Layernorm;
        let eps = super::super::by_hand::EPS;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            // The eps of an earlier call, whose values are large, takes nothing.
            let (x, eps) = if is(i) { (other(rows, i), 1e-6) } else { (rows[i].clone(), eps) };
            let m = if layer { average(&x) } else { 0.0 };
            (x[j] - m) / (square(&x, m) + eps).sqrt() * gamma(j) + if layer { beta(j) } else { 0.0 }
        };
        with(op, &rows, &made, |norm: &Norm| explain(norm).unwrap_or_default())
    }

    fn old(i: usize) -> Vec<f64> {
        (0..COLS).map(|j| ((i * 5003 + j * 6661 + i * j * 37) % 997) as f64 / 100.0 - 3.0).collect()
    }

    #[test]
    fn rows_of_an_earlier_input_are_told_by_their_own_statistics() {
        for op in [Op::Layernorm, Op::Rmsnorm] {
            let words = said(op, &|i| i % 4 != 2, &|_, i| old(i));
            assert!(words.starts_with("all else is right: all rows but 2, 6, … 22 (every 4th) are not written"), "{words}");
        }
        assert!(said(Op::Layernorm, &|i| i >= 18, &|_, i| old(i)).contains("rows 18 … 23 are not written"));
    }

    #[test]
    fn rows_of_this_input_are_not_left_of_another() {
        assert_eq!(
            said(Op::Layernorm, &|i| i < 9, &|rows, i| rows[i + 9].iter().map(|x| 50.0 * x).collect()),
            "",
            "another row"
        );
        let turned = |rows: &[Vec<f64>], i: usize| rows[i].iter().rev().map(|x| 50.0 * x).collect();
        assert_eq!(said(Op::Layernorm, &|i| i < 9, &turned), "", "another order");
        let rows = rows();
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let x = if i < 9 { old(i) } else { rows[i].clone() };
            let (m, d) = (average(&x), (square(&x, average(&x)) + super::super::by_hand::EPS).sqrt());
            (x[j] - m) / d * gamma(j) * if i < 9 { 1.2 } else { 1.0 } + beta(j)
        };
        assert_eq!(with(Op::Layernorm, &rows, &made, |norm: &Norm| explain(norm).unwrap_or_default()), "", "of another size");
    }
}
