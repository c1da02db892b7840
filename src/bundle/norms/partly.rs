//! Rows of a layernorm of which one part was centered about another mean than the rest: it summed the partial sums of the mean too late, and the
//! variance of the whole row is taken about these means.
//!
//! ```text
//! every part of a row: μ_p and 1/d by least squares  ──►  one d in all parts, μ in most of them, others in the rest  ──►  held against partial sums
//! ```

use super::segments::{LEAST, PARTIAL, PARTS, Part, WRONG, mean_is, partial, places};
use super::{NEAR, Norm, SHARE, Weights};

/// Wrong rows that a width of parts is tried on before all are, and that there are, at least.
const FEW: usize = 3;
const ROWS: usize = 4;

/// What is wrong, in words, and whether the other mean is a number that is known.
pub fn explain(norm: &Norm) -> Option<(String, bool)> {
    let n = norm.gamma.len();
    norm.layer().then_some(())?;
    let is_wrong = |s: &usize| norm.right[s * n..(s + 1) * n].iter().filter(|r| !**r).count() >= LEAST;
    let wrong: Vec<usize> = (0..norm.sampled.len()).filter(is_wrong).map(|s| norm.sampled[s]).collect();
    (wrong.len() >= ROWS && wrong.len() * n >= WRONG).then_some(())?;
    let own = Weights { words: Vec::new(), gamma: norm.gamma.to_vec(), beta: norm.beta.to_vec() };
    let widths = (3..=PARTIAL).filter(|k| n.is_multiple_of(*k) && n / k >= LEAST).map(|k| n / k);
    for width in widths {
        let of = |i: &usize| odd(norm, &own, *i, width);
        if wrong.iter().take(FEW).any(|i| of(i).is_none()) {
            continue;
        }
        let Some(parts) = wrong.iter().map(of).collect::<Option<Vec<_>>>() else { continue };
        let parts: Vec<Part> = parts.into_iter().flatten().collect();
        let told = partial(norm, &parts, false, true);
        let words = told.as_ref().map_or(String::new(), |(words, _)| format!(" ({words})"));
        let when = match &told {
            Some((_, true)) => "after it was overwritten",
            Some((_, false)) => "before it was written",
            None => "before it was written, or after it was overwritten",
        };
        let all = format!(
            "{PARTS} with another mean than the rest of their row{words}, and the variance is taken about these means: {}: a buffer of the \
             reduction is read {when}",
            places(norm, &parts)
        );
        return Some((all, told.is_some()));
    }
    None
}

/// The parts of a row that have another mean than most, where all have one divisor: that of squares about their means.
fn odd(norm: &Norm, own: &Weights, i: usize, width: usize) -> Option<Vec<Part>> {
    let (n, x) = (norm.gamma.len(), &norm.rows[i]);
    let mut all = Vec::new();
    for from in (0..n).step_by(width) {
        let columns: Vec<usize> = (from..from + width).collect();
        let line = norm.line(i, &columns, own).filter(|l| l.made.0 >= SHARE)?;
        all.push(Part { row: i, from, to: from + width, line });
    }
    let mean = norm.center(x);
    let other: Vec<bool> = all.iter().map(|p| !mean_is(p, mean)).collect();
    let count = other.iter().filter(|o| **o).count();
    (count > 0 && 2 * count < all.len()).then_some(())?;
    let squares = |(p, other): (&Part, &bool)| {
        let m = if *other { p.line.mean } else { mean };
        x[p.from..p.to].iter().map(|x| (x - m).powi(2)).sum::<f64>()
    };
    let square = all.iter().zip(&other).map(squares).sum::<f64>() / n as f64;
    let r = 1.0 / (square + norm.eps).sqrt();
    // The mean of a part is known as well as its elements are: so is its share of the variance.
    let is = |p: &Part| (r - p.line.p).abs() <= p.line.off_p + 8.0 * NEAR * r;
    all.iter().all(is).then_some(())?;
    Some(all.into_iter().zip(other).filter(|(_, other)| *other).map(|(p, _)| p).collect())
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, with};
    use super::*;
    use crate::op::Op;

    /// Rows i of which part `late` of four takes this mean.
    fn said(is: &dyn Fn(usize) -> bool, of: &dyn Fn(&[f64], usize) -> f64) -> String {
        let rows = rows();
        let width = COLS / 4;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let x = &rows[i];
            let m = average(x);
            let late = i % 3 + 1;
            let of_part = |p: usize| if is(i) && p == late { of(x, i) } else { m };
            let v = (0..COLS).map(|j| (x[j] - of_part(j / width)).powi(2)).sum::<f64>() / COLS as f64;
            (x[j] - of_part(j / width)) / (v + EPS).sqrt() * gamma(j) + beta(j)
        };
        with(Op::Layernorm, &rows, &made, |norm: &Norm| explain(norm).map(|f| f.0).unwrap_or_default())
    }

    #[test]
    fn parts_about_another_mean_are_named() {
        // The first partial sum is already that of the squares.
        let overwritten = |x: &[f64], _: usize| {
            let (m, some) = (average(x), &x[..COLS / 4]);
            m + some.iter().map(|x| (x - m).powi(2) - x).sum::<f64>() / COLS as f64
        };
        let words = said(&|i| i % 2 == 0, &overwritten);
        assert!(words.contains("one of its partial sums over 24 columns is already that of the variance"), "{words}");
        assert!(
            words.contains("the variance is taken about these means: row 0, columns 24 … 47; row 2, columns 72 … 95"),
            "{words}"
        );
        let any = said(&|i| i % 2 == 0, &|x, i| average(x) + 0.1 + 0.01 * (i * i % 7) as f64);
        assert!(any.contains("with another mean than the rest of their row, and"), "{any}");
        assert!(any.ends_with("a buffer of the reduction is read before it was written, or after it was overwritten"), "{any}");
        assert_eq!(said(&|_| false, &overwritten), "");
    }
}
