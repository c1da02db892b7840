//! Means that lack some lanes of their row, and variances that are joined of parts in a wrong way.
//!
//! ```text
//! parts p of a row:  Σ(x − μ)² = Σ_p Σ(x − μ_p)² + Σ_p n_p·(μ_p − μ)²  =  W + B          a merge that is wrong:  W + f·B, with one f in all rows
//! ```

use super::{Line, NEAR, Norm, digits, mean, moments};
use crate::fault::solve::output::roundest;

/// Columns of a lane, or of a run of lanes, and how many parts take turns.
const RUNS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const TURNS: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];
/// The largest number of parts of which one may be missing.
const MISSING: usize = 32;
/// Rows that a factor is solved from, at least, and how far it may be known, relative to itself or to 1.
const LEAST: usize = 8;
const TIGHT: f64 = 0.02;

/// What is said of columns (j / `w`) mod `of`.
fn slice(which: usize, of: usize, w: usize) -> String {
    format!("slice {which} of every {of}, {w} wide")
}

/// Takes words, and a number of every row.
type Add<'x> = dyn FnMut(String, &dyn Fn(usize) -> f64) + 'x;

/// Means that lack a slice of the row, or hold it alone.
pub fn means(norm: &Norm, add: &mut Add) {
    let n = norm.cols();
    for (w, of) in RUNS.into_iter().flat_map(|w| TURNS.map(|of| (w, of))).filter(|(w, of)| *of <= MISSING && (of - 1) * w < n) {
        for which in 0..of {
            let sum = |i: usize| {
                let x = &norm.rows[i];
                (which * w..n).step_by(of * w).map(|from| x[from..(from + w).min(n)].iter().sum::<f64>()).sum::<f64>()
            };
            let words = slice(which, of, w);
            add(format!("the mean lacks {words}, of the row"), &|i| mean(&norm.rows[i], |x| x) - sum(i) / n as f64);
            if of > 2 {
                add(format!("the mean sums {words}, of the row alone, divided by all {n} columns"), &|i| sum(i) / n as f64);
            }
        }
    }
}

/// A mean that counts some columns another number of times, or whose sum is made in few bits: words, and that of every row. `open`: no other mean
/// is known.
pub fn counted(norm: &Norm, known: &[(usize, Line)], prefix: &[Vec<f64>], open: bool) -> Option<(String, Vec<f64>)> {
    let n = norm.cols() as f64;
    let bounds: Vec<(usize, (f64, f64))> = known
        .iter()
        .map(|(i, l)| {
            let off = l.off_mean + NEAR * (l.mean.abs() + 1.0 / l.p);
            (*i, (n * (l.mean - off), n * (l.mean + off)))
        })
        .collect();
    match if open { moments::runs::find(prefix, &bounds) } else { None } {
        Some((words, of)) => Some((format!("the mean {words}"), of.into_iter().map(|sum| sum / n).collect())),
        None => moments::narrow::means(norm.rows, &bounds),
    }
}

/// Sums of squares that lack the same slices as the mean, where the square of that mean is taken off once.
pub fn one_pass(norm: &Norm, centers: &[f64], add: &mut Add) {
    let n = norm.cols();
    for (w, of) in RUNS.into_iter().flat_map(|w| TURNS.map(|of| (w, of))).filter(|(w, of)| *of <= MISSING && (of - 1) * w < n) {
        for which in 0..of {
            let part = |i: usize| {
                let x = &norm.rows[i];
                let kept = x.iter().enumerate().filter(|(j, _)| j / w % of != which);
                kept.map(|(_, x)| x * x).sum::<f64>() / n as f64
            };
            add(format!("E[x²] of E[x²] − μ² lacks {}, of the row", slice(which, of, w)), &|i| {
                (part(i) - centers[i].powi(2) + norm.eps).max(0.0).sqrt()
            });
        }
    }
}

/// Parts of a row: how column `j` of `n` falls into one, their number, and words.
fn partitions(n: usize) -> Vec<(usize, usize, String)> {
    let mut all = Vec::new();
    for parts in TURNS.into_iter().chain([3, 6, 12]).filter(|p| 2 * p <= n) {
        let w = n.div_ceil(parts);
        if w * (parts - 1) < n {
            all.push((w, parts, format!("{parts} parts of {w} columns")));
        }
    }
    for w in RUNS {
        for of in TURNS.into_iter().filter(|of| of * w < n) {
            all.push((w, of, format!("{of} lanes (column j in lane (j / {w}) mod {of})")));
        }
    }
    all
}

/// Variances of parts that are merged by a wrong term of their means.
pub fn merged(norm: &Norm, known: &[(usize, Line)], add: &mut Add) {
    let n = norm.cols();
    if known.len() < LEAST {
        return;
    }
    for (w, of, words) in partitions(n) {
        // W and B of a row, over its columns.
        let split = |i: usize| {
            let x = &norm.rows[i];
            let m = mean(x, |x| x);
            let (mut sums, mut counts) = (vec![0.0; of], vec![0usize; of]);
            x.iter().enumerate().for_each(|(j, x)| {
                sums[j / w % of] += x;
                counts[j / w % of] += 1;
            });
            let between = |p: usize| counts[p] as f64 * (sums[p] / (counts[p].max(1)) as f64 - m).powi(2);
            let between = (0..of).map(between).sum::<f64>() / n as f64;
            (mean(x, |x| (x - m).powi(2)) - between, between)
        };
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for (i, l) in known {
            let (within, between) = split(*i);
            let off = 2.0 * l.off_p / l.p;
            let square = |by: f64| (1.0 + by * off) / (l.p * l.p) - norm.eps;
            (low, high) = (low.max((square(-1.0) - within) / between), high.min((square(1.0) - within) / between));
            if low > high {
                break;
            }
        }
        let tight = high - low <= TIGHT * low.abs().max(high.abs()).max(1.0);
        if low > high || !tight || (low <= 1.0 && 1.0 <= high) {
            continue;
        }
        let f = if low <= 0.0 && 0.0 <= high { 0.0 } else { roundest(low, high) };
        let what = match f {
            0.0 => "without the term δ²·n₁·n₂/n of their means".to_string(),
            f => format!("with {} times the term δ²·n₁·n₂/n of their means", digits::apart([f])[0]),
        };
        add(format!("the variances of {words} are merged {what}"), &|i| {
            let (within, between) = split(i);
            (within + f * between + norm.eps).max(0.0).sqrt()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, square, with};
    use super::partitions;
    use crate::op::Op;

    /// What is said of a layernorm whose rows have this mean and this variance.
    fn said(by: &dyn Fn(&[f64]) -> (f64, f64)) -> String {
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let (m, v) = by(&rows[i]);
            (rows[i][j] - m) / (v + EPS).sqrt() * gamma(j) + beta(j)
        };
        with(Op::Layernorm, &rows(), &made, |norm| norm.explain().unwrap_or_default())
    }

    #[test]
    fn lanes_that_both_sums_lack_are_named() {
        let kept = |x: &[f64]| -> Vec<f64> { x.iter().enumerate().filter(|(j, _)| j / 8 % 2 == 0).map(|(_, x)| *x).collect() };
        let n = COLS as f64;
        let words = said(&|x| {
            let some = kept(x);
            let m = some.iter().sum::<f64>() / n;
            (m, some.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n)
        });
        assert!(words.contains("the mean lacks slice 1 of every 2, 8 wide"), "{words}");
        assert!(words.contains("the variance lacks slice 1 of every 2, 8 wide"), "{words}");
        let words = said(&|x| {
            let some = kept(x);
            let m = some.iter().sum::<f64>() / n;
            (m, some.iter().map(|x| x * x).sum::<f64>() / n - m * m)
        });
        assert!(words.contains("E[x²] of E[x²] − μ² lacks slice 1 of every 2, 8 wide"), "{words}");
    }

    #[test]
    fn merges_of_parts_are_named() {
        let halves = |x: &[f64]| 0.5 * (square(&x[..48], average(&x[..48])) + square(&x[48..], average(&x[48..])));
        let words = said(&|x| (average(x), halves(x)));
        assert!(words.contains("of 2 parts of 48 columns are merged without the term"), "{words}");
        let words = said(&|x| (average(x), 2.0 * square(x, average(x)) - halves(x)));
        assert!(words.contains("of 2 parts of 48 columns are merged with 2 times the term"), "{words}");
        let lanes = |x: &[f64]| {
            let lane = |l: usize| x.iter().copied().skip(l).step_by(4).collect::<Vec<f64>>();
            (0..4).map(lane).map(|x| square(&x, average(&x))).sum::<f64>() / 4.0
        };
        let words = said(&|x| (average(x), lanes(x)));
        assert!(words.contains("of 4 lanes (column j in lane (j / 1) mod 4) are merged without the term"), "{words}");
        assert_eq!(said(&|x| (average(x), square(x, average(x)))), "");
    }

    /// 20 columns in eight parts are seven of three: the eighth would have none.
    #[test]
    fn no_part_of_a_row_is_empty() {
        let parts = |n: usize| partitions(n).into_iter().filter(|p| p.2.contains(" parts of ")).map(|p| (p.0, p.1));
        assert!(!parts(20).any(|p| p.1 == 8) && parts(24).any(|p| p == (3, 8)));
        for n in 2..200 {
            assert!(parts(n).all(|(width, count)| n.div_ceil(width) == count), "{n}");
        }
    }
}
