//! A gamma that is read at other places than its own, of which some hold numbers that are not gamma's: a view that is read without its stride, or with one
//! that it has not, or from an offset. The eps may be another, too.
//!
//! ```text
//! y − β = n·g of column j, one g in every row       g[j] = γ[j / s] where s divides j, γ[j·s] or γ[j + d] where that is there; anything elsewhere
//! ```

use super::{NEAR, Norm, SHARE, other_divisors};
use crate::bundle::formula::EPS;
use crate::bundle::weights;
use crate::compare::digits;

/// Rows, columns, those that take another gamma, and those that hold foreign numbers, at least.
const ROWS: usize = 6;
const COLS: usize = 16;
const LEAST: usize = 8;
const FOREIGN: usize = 4;
/// Strides, and columns that an offset may be off by.
const STRIDES: std::ops::RangeInclusive<usize> = 2..=8;
const FAR: isize = 64;
/// Columns that an eps is tried on before all are.
const FEW: usize = 16;

/// What gamma and beta each column takes, in words: those that are solved of every column, or whose gamma it is, where that is only said to be another vector.
pub fn explain(norm: &Norm) -> Option<String> {
    let solved = weights::explain(norm);
    let open = solved.as_ref().is_none_or(|words| words.contains(weights::VECTOR));
    let other = || of_places(norm).or_else(|| other_divisors::explain(norm));
    (if open { other() } else { None }).or(solved)
}

/// Which column takes whose gamma.
fn of_places(norm: &Norm) -> Option<String> {
    let n = norm.gamma.len();
    let wrong = norm.right.iter().filter(|r| !**r).count();
    (norm.sampled.len() >= ROWS && n >= COLS && 3 * wrong >= norm.right.len()).then_some(())?;
    let all = std::iter::once(norm.eps).chain(EPS.map(f64::from)).enumerate();
    // The given eps stands for those near it.
    all.filter(|(k, eps)| *k == 0 || (eps - norm.eps).abs() > 1e-4 * norm.eps).find_map(|(k, eps)| {
        let few: Vec<Option<(f64, f64)>> = gains(norm, eps, (0..n).step_by(n.div_ceil(FEW)));
        (few.iter().filter(|g| g.is_none()).count() <= few.len() / 8).then_some(())?;
        let gains = gains(norm, eps, 0..n);
        (gains.iter().flatten().count() as f64 >= SHARE * n as f64).then_some(())?;
        let words = places(norm, &gains)?;
        let eps = if k == 0 { String::new() } else { format!("; and eps is {:e}", eps as f32) };
        Some(format!("{words}{eps}"))
    })
}

/// What every column was multiplied by in all rows, by this eps. `None` where no one number does.
fn gains(norm: &Norm, eps: f64, columns: impl Iterator<Item = usize>) -> Vec<Option<(f64, f64)>> {
    let n = norm.gamma.len();
    let moments: Vec<(f64, f64)> = norm
        .sampled
        .iter()
        .map(|i| {
            let x = &norm.rows[*i];
            (norm.center(x), (norm.divisor(x).powi(2) - norm.eps + eps).sqrt())
        })
        .collect();
    let one = |j: usize| {
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for (i, (m, d)) in norm.sampled.iter().zip(&moments) {
            let z = (norm.rows[*i][j] - m) / d;
            let (from, to) = (norm.cell)(i * n + j);
            if z.abs() > 1e-6 && from.is_finite() && to.is_finite() {
                let slack = 4.0 * NEAR * (from.abs() + norm.beta[j].abs());
                let ends = [(from - norm.beta[j] - slack) / z, (to - norm.beta[j] + slack) / z];
                (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
            }
        }
        (low <= high && high.is_finite() && low.is_finite()).then_some((low, high))
    };
    columns.map(one).collect()
}

/// Whose gamma they are, where some are nobody's.
fn places(norm: &Norm, gains: &[Option<(f64, f64)>]) -> Option<String> {
    let (n, gain) = (norm.gamma.len(), norm.gain);
    let is = |j: usize, g: f64| gains[j].is_none_or(|(low, high)| low <= g && g <= high);
    let holds = |from: &dyn Fn(usize) -> Option<usize>| {
        let known: Vec<(usize, usize)> = (0..n).filter_map(|j| Some((j, from(j)?))).collect();
        let moved = known.iter().filter(|(j, k)| !is(*j, norm.gamma[*j]) && is(*j, norm.gamma[*k])).count();
        let made = known.iter().filter(|(j, k)| is(*j, norm.gamma[*k])).count();
        let rest: Vec<usize> = (0..n).filter(|j| from(*j).is_none()).collect();
        let foreign = rest.iter().filter(|j| !is(**j, norm.gamma[**j])).count();
        moved >= LEAST && made as f64 >= SHARE * known.len() as f64 && foreign >= FOREIGN && 2 * foreign > rest.len()
    };
    let shown = || {
        let of = |j: usize| Some(digits::apart([0.5 * (gains[j]?.0 + gains[j]?.1)])[0].clone());
        move |from: &dyn Fn(usize) -> Option<usize>| {
            let some: Vec<String> = (0..n).filter(|j| from(*j).is_none()).take(3).filter_map(of).collect();
            format!("the same in every row ({}, …)", some.join(", "))
        }
    };
    for s in STRIDES {
        let apart = |j: usize| j.is_multiple_of(s).then_some(j / s);
        if holds(&apart) {
            return Some(format!(
                "column j takes gamma[j / {s}] where {s} divides j, and between them numbers of {gain} that are nobody's, {}: gamma is read without its \
                 stride",
                shown()(&apart)
            ));
        }
        let times = |j: usize| Some(j * s).filter(|k| *k < n);
        if holds(&times) {
            return Some(format!(
                "column j takes gamma[{s}·j], and behind its end numbers of {gain} that are nobody's, {}: gamma is read at a stride that it has not",
                shown()(&times)
            ));
        }
    }
    (1..=FAR).flat_map(|d| [d, -d]).find_map(|d| {
        let from = |j: usize| j.checked_add_signed(d).filter(|k| *k < n);
        holds(&from).then(|| {
            let (sign, by) = if d > 0 { ('+', d) } else { ('−', -d) };
            format!(
                "column j takes gamma[j {sign} {by}], and outside of it numbers of {gain} that are nobody's, {}",
                shown()(&from)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, square, with};
    use super::*;
    use crate::op::Op;

    fn said(op: Op, eps: f64, g: &dyn Fn(usize, usize) -> f64) -> String {
        let rows = rows();
        let layer = op == Op::Layernorm;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let m = if layer { average(&rows[i]) } else { 0.0 };
            (rows[i][j] - m) / (square(&rows[i], m) + eps).sqrt() * g(i, j) + if layer { beta(j) } else { 0.0 }
        };
        with(op, &rows, &made, |norm: &Norm| of_places(norm).unwrap_or_default())
    }

    #[test]
    fn a_gamma_that_is_read_at_another_stride_is_named() {
        let foreign = |j: usize| 2.0 + (j * 29 % 31) as f64 / 31.0;
        let words = said(Op::Rmsnorm, EPS, &|_, j| if j % 2 == 0 { gamma(j / 2) } else { foreign(j) });
        assert!(
            words.starts_with("column j takes gamma[j / 2] where 2 divides j, and between them numbers of gamma"),
            "{words}"
        );
        assert!(!words.contains("eps"), "{words}");
        let words = said(Op::Layernorm, 1e-3f32.into(), &|_, j| if j % 3 == 0 { gamma(j / 3) } else { foreign(j) });
        assert!(words.contains("gamma[j / 3] where 3 divides j") && words.ends_with("; and eps is 1e-3"), "{words}");
        let words = said(Op::Rmsnorm, EPS, &|_, j| if 2 * j < COLS { gamma(2 * j) } else { foreign(j) });
        assert!(words.starts_with("column j takes gamma[2·j], and behind its end"), "{words}");
        let words = said(Op::Rmsnorm, EPS, &|_, j| if j + 8 < COLS { gamma(j + 8) } else { foreign(j) });
        assert!(words.starts_with("column j takes gamma[j + 8], and outside of it"), "{words}");
        assert_eq!(said(Op::Rmsnorm, EPS, &|_, j| foreign(j)), "", "no gamma at all");
        assert_eq!(said(Op::Rmsnorm, EPS, &|i, j| if j % 2 == 0 { gamma(j / 2) } else { foreign(i + j) }), "", "of each row");
        assert_eq!(
            said(Op::Rmsnorm, 0.013, &|_, j| if j % 2 == 0 { gamma(j / 2) } else { foreign(j) }),
            "",
            "an eps of nobody"
        );
    }
}
