//! Two slips of a norm: gamma or beta of some columns is another, and so is the mean or the divisor of all rows.
//!
//! ```text
//! y = γ'_j·(x − m') / d' + β'_j       m', d' of one known formula in all rows, γ' and β' of every column solved:  γ'_j is γ_j², γ_{j+1}, 1, …
//! ```
//!
//! A vector of numbers that no place or function gives says nothing of the divisor: it is not named here.

use super::rounded::through;
use super::{Norm, mean};
use crate::Format;
use crate::bundle::formula::EPS;
use crate::bundle::{moments, weights};
use crate::op::Op;

/// Mean and divisor of a row.
type Moments<'m> = Box<dyn Fn(&[f64]) -> (f64, f64) + Sync + 'm>;

/// Every other mean and divisor, in words.
fn ways<'m>(norm: &'m Norm) -> Vec<(String, Moments<'m>)> {
    let (op, eps, n) = (norm.op, norm.eps, norm.gamma.len());
    let center = move |x: &[f64]| if op == Op::Layernorm { mean(x, |x| x) } else { 0.0 };
    let square = |x: &[f64], m: f64| mean(x, |x| (x - m).powi(2));
    let what = if op == Op::Layernorm { "variance" } else { "mean square" };
    let less = n as f64 / (n - 1).max(1) as f64;
    let mut all: Vec<(String, Moments)> = Vec::new();
    let of = move |by: f64, eps: f64| -> Moments<'m> {
        Box::new(move |x| {
            let m = center(x);
            (m, (by * square(x, m) + eps).sqrt())
        })
    };
    all.push((moments::divided(what, n - 1, n), of(less, eps)));
    // The given eps stands for those near it.
    for other in EPS.map(f64::from).into_iter().filter(|e| (e - eps).abs() > 1e-4 * eps) {
        all.push((format!("eps is {:e}", other as f32), of(1.0, other)));
    }
    for (by, words) in [
        (1.0, "eps is added to the root, not under it".to_string()),
        (less, format!("{}, and eps is added to the root", moments::divided(what, n - 1, n))),
    ] {
        all.push((
            words,
            Box::new(move |x| {
                let m = center(x);
                (m, (by * square(x, m)).sqrt() + eps)
            }),
        ));
    }
    if op == Op::Layernorm {
        all.push(("the mean is not subtracted from the values".into(), Box::new(|x| (0.0, norm.divisor(x)))));
        let words = "mean and variance are taken as 0 and the mean square";
        all.push((words.into(), Box::new(move |x| (0.0, (square(x, 0.0) + eps).sqrt()))));
        for f in [Format::Bf16, Format::F16] {
            let rounded = move |x: &[f64]| through(Some(f), center(x));
            let about = move |x: &[f64]| (rounded(x), (square(x, rounded(x)) + eps).sqrt());
            all.push((format!("the mean is rounded to {f}, and the variance is about that"), Box::new(about)));
            all.push((format!("the mean is rounded to {f}"), Box::new(move |x| (rounded(x), norm.divisor(x)))));
        }
    }
    all
}

/// Both, in words.
pub fn explain(norm: &Norm) -> Option<String> {
    ways(norm).into_iter().find_map(|(words, of)| {
        let found = weights::explain_by(norm, &*of)?;
        let named = ![weights::VECTOR, "right divisor", "the variance is divided"].iter().any(|w| found.contains(w));
        named.then(|| format!("{found}; and {words}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, square, with};
    use super::*;
    use crate::bundle::by_hand::bf16;

    fn said(op: Op, by: f64, g: &dyn Fn(usize) -> f64) -> String {
        let rows = rows();
        let layer = op == Op::Layernorm;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let m = if layer { average(&rows[i]) } else { 0.0 };
            (rows[i][j] - m) / (by * square(&rows[i], m) + EPS).sqrt() * g(j) + if layer { beta(j) } else { 0.0 }
        };
        with(op, &rows, &made, |norm: &Norm| super::super::strided_gains::explain(norm).unwrap_or_default())
    }

    #[test]
    fn another_gamma_of_some_columns_beside_another_divisor_is_named() {
        let head = |j: usize| if j < 64 { gamma(j) * gamma(j) } else { gamma(j) };
        let unbiased = COLS as f64 / (COLS - 1) as f64;
        let words = said(Op::Layernorm, unbiased, &head);
        assert_eq!(words, "gamma is squared, in columns 0 … 63; and the variance is divided by 95 instead of 96");
        let words = said(Op::Rmsnorm, unbiased, &|j| if j < 64 { gamma(j) } else { gamma(j - 64) });
        assert!(words.starts_with("column j takes gamma[") && words.contains("in columns 64 … 95"), "{words}");
        assert!(words.ends_with("; and the mean square is divided by 95 instead of 96"), "{words}");
        let rounded = with(
            Op::Layernorm,
            &rows(),
            &|rows, i, j| {
                let m = bf16(average(&rows[i]));
                let lane = |j: usize| j / 32 * 32 + j % 4 * 8 + j % 32 / 4;
                (rows[i][j] - m) / (square(&rows[i], m) + EPS).sqrt() * gamma(lane(j)) + beta(j)
            },
            |norm: &Norm| super::super::strided_gains::explain(norm).unwrap_or_default(),
        );
        assert!(rounded.starts_with("column j of each 32 takes gamma[j mod 4 · 8 + j / 4] of them"), "{rounded}");
        assert!(rounded.ends_with("; and the mean is rounded to bf16, and the variance is about that"), "{rounded}");
        // By the right divisor nothing is said of it; a gamma of nobody's hides any.
        assert_eq!(said(Op::Layernorm, 1.0, &head), "gamma is squared, in columns 0 … 63");
        let any = said(Op::Layernorm, unbiased, &|j| 0.7 + (j * j * 31 % 97) as f64 / 60.0);
        assert!(!any.contains("is divided by 95"), "{any}");
    }
}
