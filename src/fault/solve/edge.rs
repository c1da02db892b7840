//! Theories of the last, partial tile: stored whole over what follows, or not computed at all.

use super::segment::lines;
use super::system::{Region, System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Sizes of tiles.
pub const TILES: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Elements that the last tile has to have, for what it holds to say something.
const LEAST: usize = 16;
/// Lines at the end that a mask may leave out.
const FEW: usize = 8;
/// Standard deviations of chance that a correlation may have: one of 2000 has more.
const CHANCE: f64 = 3.5;

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

/// The same of a result that is stored column by column: the tile of rows whose overhang lies over the first rows of all columns but the first.
pub fn overhung_rows(s: &System, r: &Region) -> Option<usize> {
    let height = r.rows.iter().rposition(|x| *x)? + 1;
    let first = r.rows[..height].iter().all(|x| *x) && s.cols > 2 && !r.cols[0] && r.cols[1..].iter().all(|x| *x);
    overhang(s.rows, height).filter(|_| first && r.tiles.is_empty() && 2 * height <= s.rows)
}

/// The same where tiles have several rows of their own: the first of each keeps what its own tile stores last. Tile, height, width.
pub fn overhung_tiles(s: &System, held: &dyn Fn(usize) -> bool) -> Option<(usize, usize, usize)> {
    let is_wrong = |i: usize| (0..s.cols).any(|j| s.is_wrong[i * s.cols + j]);
    let spared: Vec<usize> = (0..s.rows).filter(|i| !is_wrong(*i)).collect();
    let high = TILES.into_iter().find(|h| *h >= LEAST / 2 && spared.iter().copied().eq((0..s.rows).step_by(*h)))?;
    let width = (0..s.cols).rposition(|j| (0..s.rows).any(|i| s.is_wrong[i * s.cols + j]))? + 1;
    let tile = overhang(s.cols, width).filter(|_| 2 * width <= s.cols)?;
    let whole = |i: usize| i.is_multiple_of(high) || (0..width).all(|j| held(i * s.cols + j));
    (spared.len() > 1 && (0..s.rows).all(whole)).then_some((tile, high, width))
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
    // Of few rows all have to be hit, but the first.
    let enough = hit.len() >= 8 || hit.len() >= 3 && hit.len() + 1 == s.rows && dense == hit.len() * width;
    (whole && enough && 2 * width <= s.cols).then_some(())?;
    let words = format!(
        "columns 0 … {} of every row but the first hold something else: the last tile of {tile} columns is stored whole, over the start of the next row",
        width - 1
    );
    Some(held(s, Class::MnEdge, "overrun", words, 50.0))
}

/// The same where experts follow each other: behind the last column lie the weight rows of the next one, so that what is stored over the start of a
/// row is known. A row keeps it where its own tile was stored before.
pub fn spilled(s: &System) -> Option<Theory> {
    if s.alone || s.parts.len() < 2 || s.bias.any() {
        return None;
    }
    let wrong: Vec<usize> = (0..s.rows * s.cols).filter(|at| s.is_wrong[*at]).collect();
    let width = wrong.iter().map(|at| at % s.cols + 1).max()?;
    let tile = overhang(s.cols, width).filter(|_| width < s.cols)?;
    [false, true].into_iter().find_map(|own| {
        // The sum over K, its magnitude. `None`: nobody knows what lies there.
        let behind = |at: usize| -> Option<(f64, f64)> {
            let (i, j) = ((at / s.cols).checked_sub(1)?, at % s.cols);
            let part = &s.parts[s.part[i]?];
            let (ra, rb) = (part.a + i - part.rows.start, part.b + s.cols + j);
            (rb < s.b.rows && !part.k.is_empty()).then_some(())?;
            let plain = Theory::right();
            let (x, y) = (plain.a.row(&s.a, ra, part.k.clone()), plain.b.row(&s.b, rb, part.k.clone()));
            let scale = |k: usize| if own { s.b.step(part.b, k) / s.b.step(rb, k) } else { 1.0 };
            let product = |(n, (x, y)): (usize, (&f64, &f64))| x * y * scale(part.k.start + n);
            let products = || x.iter().zip(y.iter()).enumerate().map(product);
            Some((products().sum(), products().map(f64::abs).sum()))
        };
        let mut held = s.ideal.to_vec();
        let (mut known, mut rows) = (0, vec![false; s.rows]);
        for at in &wrong {
            rows[at / s.cols] = true;
            held[*at] = s.actual[*at];
            if let Some((sum, size)) = behind(*at) {
                s.may(at / s.cols, at % s.cols, sum, size).then_some(())?;
                (held[*at], known) = (sum, known + 1);
            }
        }
        (known >= LEAST && 2 * known > wrong.len()).then_some(())?;
        let scales = if own { ", by its own scales" } else { "" };
        let words = format!(
            "the last tile of {tile} columns is stored whole: columns 0 … {} of rows {} hold the products of the row before with the weight rows behind its own{scales}",
            width - 1,
            lines(&rows)
        );
        let mut t = Theory::new(Class::MnEdge, "out", "out.spilled", words).bits(16.0 + rows.iter().filter(|r| **r).count() as f64);
        let (is_wrong, cols) = (s.is_wrong.clone(), s.cols);
        t.finish = Some(Arc::new(move |i, j, v| if is_wrong[i * cols + j] { held[i * cols + j] } else { v }));
        Some(t)
    })
}

/// The last tile of columns or of rows, or a few of them, of which nothing is right: numbers that have nothing to do with the product, as a grid of
/// tiles that is rounded down leaves them, or a mask.
pub fn not_computed(s: &System) -> Option<Theory> {
    let r = s.region.as_ref().filter(|r| r.tiles.is_empty() && !s.alone)?;
    let run = |v: &[bool]| v.iter().position(|x| *x).filter(|from| v[*from..].iter().all(|x| *x));
    let (rows, cols) = (run(&r.rows)?, run(&r.cols)?);
    let (from, n, what) = match (rows, cols) {
        (0, from) if from > 0 => (from, s.cols, "columns"),
        (from, 0) if from > 0 => (from, s.rows, "rows"),
        _ => return None,
    };
    let tile = TILES.into_iter().find(|t| *t >= LEAST && !n.is_multiple_of(*t) && n / t * t == from);
    (tile.is_some() || n - from <= FEW).then_some(())?;
    let places: Vec<usize> = (0..s.rows * s.cols).filter(|at| r.has(at / s.cols, at % s.cols)).collect();
    let wrong = places.iter().filter(|at| s.is_wrong[**at]).count();
    (places.len() >= LEAST && 10 * wrong >= 9 * places.len()).then_some(())?;
    // Of what is computed wrong something is left of the right result.
    (chance(s, &places)? < CHANCE).then_some(())?;
    let why = match tile {
        Some(tile) => format!("the last, partial tile of {tile} is not computed"),
        None => "a mask that ends early, or a bound that is one too small".into(),
    };
    let words = format!("{what} {from} … {} hold what has nothing to do with the product: {why}", n - 1);
    Some(held(s, Class::MnEdge, "not_computed", words, 55.0))
}

/// How far the numbers of a rectangle are from having nothing to do with the right ones, in standard deviations of chance: each about the mean of its
/// column, whose bias old numbers may have had as well, and over the sizes of its row and column, so that a few large ones decide nothing. `None`:
/// they are too few, or no numbers.
fn chance(s: &System, places: &[usize]) -> Option<f64> {
    let cols = places.iter().take_while(|at| **at / s.cols == places[0] / s.cols).count();
    // A mean of few numbers is these.
    let means = if places.len() >= 4 * cols { cols } else { 0 };
    let even = |of: &[f64]| -> Option<Vec<f64>> {
        let mut x: Vec<f64> = places.iter().map(|at| of[*at]).collect();
        for j in 0..means {
            let n = x.len() / cols;
            let mean = x[j..].iter().step_by(cols).sum::<f64>() / n as f64;
            x[j..].iter_mut().step_by(cols).for_each(|x| *x -= mean);
        }
        super::memory::even(&mut x, cols).then_some(x)
    };
    let (x, y) = (even(s.actual)?, even(&s.ideal)?);
    let free = (x.len() - means) as f64;
    let dot: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    (free >= LEAST as f64 / 2.0).then(|| dot.abs() / x.len() as f64 * free.sqrt())
}

/// A name for what lies there, whatever it is.
fn held(s: &System, class: Class, variant: &str, words: String, bits: f64) -> Theory {
    let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
    t.finish = Some(super::theory::as_written(s));
    t.region.clone_from(&s.region);
    t.fitted = true;
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::fault::solve::tests::{codes, of_system, wide};

    /// A tile of 16 that hangs over the first rows says so where these are no more than half of all.
    #[test]
    fn an_overhang_is_shorter_than_what_it_hangs_over() {
        const N: usize = 32;
        let of = |rows: usize, high: usize| {
            let (a, b) = (wide(rows, 64), codes(Format::Int8, N, 64, 64, false, 17));
            of_system(
                &a,
                &b,
                Format::F32,
                |i, j, right| if j == 0 || i >= high { right[i * N + j] } else { 1e3 },
                |s| {
                    let line = |n: usize, is: &dyn Fn(usize) -> bool| (0..n).map(is).collect();
                    let r = Region {
                        rows: line(rows, &|i| i < high),
                        cols: line(N, &|j| j > 0),
                        tiles: Vec::new(),
                        words: String::new(),
                    };
                    overhung_rows(s, &r)
                },
            )
        };
        assert_eq!([of(24, 8), of(20, 12), of(20, 11)], [Some(16), None, None]);
    }
}
