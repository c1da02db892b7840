//! Memory that a kernel did not write, or did not clear before it added to it: numbers that the inputs cannot give, in a part of the result beside
//! right elements.
//!
//! If the whole result is such numbers, nothing tells them from noise or from a product of other operands. In a part, the right elements around it
//! do.

use super::contents::place;
use super::system::{Region, System, Theory};
use super::theory::as_written;
use crate::fault::Class;

pub const OLD: &str = "numbers that the inputs cannot give, such as memory that was never written";
/// Elements that tell it, and lines of them.
const LEAST: usize = 256;
const LINES: usize = 8;
/// How far a correlation may be from none, in standard deviations of chance.
const CHANCE: f64 = 3.0;
/// What is added, over the right result, at least and at most.
const SIZE: std::ops::Range<f64> = 0.3..30.0;

/// Old memory, for what no theory explains. Instead of the result in a region, or added to it.
pub fn old(s: &System) -> Option<Theory> {
    let r = s.region.clone()?;
    let places: Vec<(usize, usize)> =
        (0..s.rows * s.cols).map(|at| (at / s.cols, at % s.cols)).filter(|(i, j)| r.has(*i, *j)).collect();
    let wrong = places.iter().filter(|(i, j)| s.is_wrong[i * s.cols + j]).count();
    (!s.alone && wrong >= LEAST && 10 * wrong >= 9 * places.len()).then_some(())?;
    let added = |at: usize| s.actual[at] - s.ideal[at];
    let (class, variant, words) = if is_unlike(s, &places, &|at| s.actual[at]) {
        place(s, &r, OLD)
    } else if is_unlike(s, &places, &added) || is_added(s, &r, &places) {
        (Class::AccState, "old_content", format!("{OLD}, in {} are added to the right result", r.words))
    } else {
        return None;
    };
    let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(60.0);
    t.finish = Some(as_written(s));
    t.region = Some(r);
    t.fitted = true;
    Some(t)
}

/// Numbers whose rows and columns are all of one size, where the right ones' are not: a product of wrong rows, of wrong columns or in a wrong
/// order keeps the sizes of one of them.
fn is_unlike(s: &System, places: &[(usize, usize)], of: &dyn Fn(usize) -> f64) -> bool {
    // How much more the sizes of lines differ than those of as many independent normal numbers do, for rows and for columns.
    let structure = |of: &dyn Fn(usize) -> f64| -> Option<[f64; 2]> {
        let one = |n: usize, line: &dyn Fn(&(usize, usize)) -> usize| -> Option<f64> {
            let (mut sums, mut counts) = (vec![0.0; n], vec![0usize; n]);
            for p in places {
                let x = of(p.0 * s.cols + p.1);
                (sums[line(p)], counts[line(p)]) = (sums[line(p)] + x * x, counts[line(p)] + 1);
            }
            let lines: Vec<(f64, f64)> = (0..n).filter(|l| counts[*l] > 0).map(|l| (sums[l], counts[l] as f64)).collect();
            (lines.len() >= LINES && lines.iter().all(|(x, n)| *n >= 8.0 && x.is_finite() && *x > 0.0)).then_some(())?;
            let logs: Vec<f64> = lines.iter().map(|(x, n)| (x / n).ln()).collect();
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (logs.len() - 1) as f64;
            Some(variance / lines.iter().map(|(_, n)| 2.0 / n).sum::<f64>() * lines.len() as f64)
        };
        Some([one(s.rows, &|p| p.0)?, one(s.cols, &|p| p.1)?])
    };
    let Some(right) = structure(&|at| s.ideal[at]) else { return false };
    structure(of).is_some_and(|x| x.iter().all(|x| *x < 2.0) && x.iter().zip(right).any(|(x, right)| right > 8.0 * x.max(1.0)))
}

/// Whether something of the size of the result is added to it in one block of lines, such as the product before: it has nothing to do with the
/// right numbers, so that no part of these is missing or counted twice; and no few numbers a line make it, as another zero point or bias would.
pub fn is_added(s: &System, r: &Region, places: &[(usize, usize)]) -> bool {
    let run = |v: &[bool]| v.windows(2).filter(|w| w[0] != w[1]).count() <= 2;
    if !run(&r.rows) || !run(&r.cols) || !r.tiles.is_empty() {
        return false;
    }
    let lines = |v: &[bool]| (0..v.len()).filter(|x| v[*x]).collect::<Vec<usize>>();
    let (rows, cols) = (lines(&r.rows), lines(&r.cols));
    if rows.len() < LINES || cols.len() < LINES {
        return false;
    }
    let take = |of: &dyn Fn(usize) -> f64| -> Vec<f64> { places.iter().map(|(i, j)| of(i * s.cols + j)).collect() };
    let (mut x, mut y) =
        (take(&|at| s.actual[at] - s.ideal[at]), take(&|at| s.ideal[at] - s.bias.at(at / s.cols, at % s.cols)));
    let size = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let ratio = size(&x) / size(&y);
    // NaN fails.
    if !SIZE.contains(&ratio) || !even(&mut x, cols.len()) || !even(&mut y, cols.len()) {
        return false;
    }
    let dot: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    dot.abs() <= CHANCE * (x.len() as f64).sqrt() && !follows(&x, &y) && spread(&x, cols.len()) >= 0.5
}

/// Whether numbers are large where others are, as noise in proportion to them is: the correlation of their magnitudes is beyond chance.
pub fn follows(x: &[f64], y: &[f64]) -> bool {
    let n = x.len() as f64;
    let magnitudes = |v: &[f64]| -> Vec<f64> {
        let mean = v.iter().map(|x| x.abs()).sum::<f64>() / n;
        v.iter().map(|x| x.abs() - mean).collect()
    };
    let (x, y) = (magnitudes(x), magnitudes(y));
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    dot(&x, &y) > CHANCE / n.sqrt() * (dot(&x, &x) * dot(&y, &y)).sqrt()
}

/// Divides every row and every column by its size. `false`: one has none.
pub fn even(x: &mut [f64], cols: usize) -> bool {
    let rows = x.len() / cols;
    for _ in 0..3 {
        for i in 0..rows {
            let size = (x[i * cols..(i + 1) * cols].iter().map(|x| x * x).sum::<f64>() / cols as f64).sqrt();
            x[i * cols..(i + 1) * cols].iter_mut().for_each(|x| *x /= size);
        }
        for j in 0..cols {
            let size = ((0..rows).map(|i| x[i * cols + j].powi(2)).sum::<f64>() / rows as f64).sqrt();
            (0..rows).for_each(|i| x[i * cols + j] /= size);
        }
    }
    x.iter().all(|x| x.is_finite())
}

/// Over how many directions the energy of a block goes, over that of independent numbers: tr(X·Xᵀ)² / tr((X·Xᵀ)²).
pub fn spread(x: &[f64], cols: usize) -> f64 {
    const ROWS: usize = 64;
    let rows = (x.len() / cols).min(ROWS);
    let row = |i: usize| &x[i * cols..(i + 1) * cols];
    let (mut trace, mut squares) = (0.0, 0.0);
    for i in 0..rows {
        for h in 0..rows {
            let dot: f64 = row(i).iter().zip(row(h)).map(|(x, y)| x * y).sum();
            trace += if i == h { dot } else { 0.0 };
            squares += dot * dot;
        }
    }
    let independent = 1.0 / (1.0 / rows as f64 + 1.0 / cols as f64);
    trace * trace / squares / independent
}
