//! Theories of the last, partial tile: stored whole over what follows, or not computed at all.

use super::system::{Region, System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Sizes of tiles.
const TILES: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Elements that the last tile has to have, for what it holds to say something.
const LEAST: usize = 16;

/// How many columns the last tile hangs over, where the wrong columns are as many: tile, width.
fn overhang(cols: usize, width: usize) -> Option<usize> {
    TILES.into_iter().find(|t| cols.next_multiple_of(*t) - cols == width)
}

/// The tile whose overhang lies over the first columns of all rows but the first, where a region is just that.
pub fn overhung(s: &System, r: &Region) -> Option<usize> {
    let width = r.cols.iter().rposition(|x| *x)? + 1;
    let first = r.cols[..width].iter().all(|x| *x) && s.rows > 2 && !r.rows[0] && r.rows[1..].iter().all(|x| *x);
    overhang(s.cols, width).filter(|_| first && r.tiles.is_empty() && 2 * width <= s.cols)
}

/// The last tile of columns, stored whole: what it holds behind the last column lies over the start of the next row. What that is nobody knows;
/// that the first row is spared and the width is what the columns lack to whole tiles says so.
pub fn overrun(s: &System) -> Option<Theory> {
    let wrong = |i: usize, j: usize| s.is_wrong[i * s.cols + j];
    let width = (0..s.cols).rposition(|j| (0..s.rows).any(|i| wrong(i, j)))? + 1;
    let tile = overhang(s.cols, width)?;
    let hit: Vec<usize> = (0..s.rows).filter(|i| (0..width).any(|j| wrong(*i, j))).collect();
    let dense = hit.iter().map(|i| (0..width).filter(|j| wrong(*i, *j)).count()).sum::<usize>();
    let whole = dense * 10 > 9 * hit.len() * width && 2 * hit.len() > s.rows && hit[0] > 0;
    (whole && hit.len() >= 8 && 2 * width <= s.cols).then_some(())?;
    let words = format!(
        "columns 0 … {} of every row but the first hold something else: the last tile of {tile} columns is stored whole, over the start of the next row",
        width - 1
    );
    Some(as_written(s, Class::MnEdge, "overrun", words, 50.0))
}

/// The last tile of columns or of rows, of which nothing is right: numbers that have nothing to do with the product, as a grid of tiles that is
/// rounded down leaves them.
pub fn not_computed(s: &System) -> Option<Theory> {
    let r = s.region.as_ref().filter(|r| r.tiles.is_empty() && !s.alone)?;
    let run = |v: &[bool]| v.iter().position(|x| *x).filter(|from| v[*from..].iter().all(|x| *x));
    let (rows, cols) = (run(&r.rows)?, run(&r.cols)?);
    let (from, n, what) = match (rows, cols) {
        (0, from) if from > 0 => (from, s.cols, "columns"),
        (from, 0) if from > 0 => (from, s.rows, "rows"),
        _ => return None,
    };
    let tile = TILES.into_iter().find(|t| *t >= LEAST && !n.is_multiple_of(*t) && n / t * t == from)?;
    let places: Vec<usize> = (0..s.rows * s.cols).filter(|at| r.has(at / s.cols, at % s.cols)).collect();
    let wrong = places.iter().filter(|at| s.is_wrong[**at]).count();
    (places.len() >= LEAST && 10 * wrong >= 9 * places.len()).then_some(())?;
    // Of what is computed wrong something is left of the right result: twice the least correlation that chance has in one of forty.
    let sum = |f: &dyn Fn(usize) -> f64| places.iter().map(|at| f(*at)).sum::<f64>();
    let count = places.len() as f64;
    let (x, y) = (sum(&|at| s.actual[at]) / count, sum(&|at| s.ideal[at]) / count);
    let (dx, dy) = (|at: usize| s.actual[at] - x, |at: usize| s.ideal[at] - y);
    let r2 = sum(&|at| dx(at) * dy(at)).powi(2) / (sum(&|at| dx(at).powi(2)) * sum(&|at| dy(at).powi(2)));
    (r2.is_finite() && r2 * count < 4.0).then_some(())?;
    let words = format!(
        "{what} {from} … {} hold what has nothing to do with the product: the last, partial tile of {tile} is not computed",
        n - 1
    );
    Some(as_written(s, Class::MnEdge, "not_computed", words, 55.0))
}

/// A name for what lies there, whatever it is.
fn as_written(s: &System, class: Class, variant: &str, words: String, bits: f64) -> Theory {
    let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
    let (actual, cols) = (s.actual.to_vec(), s.cols);
    t.finish = Some(Arc::new(move |i, j, _| actual[i * cols + j]));
    t.region.clone_from(&s.region);
    t.fitted = true;
    t
}
