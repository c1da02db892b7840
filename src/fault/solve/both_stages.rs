//! Blocks of K that both operands read from another stage, with the scales of the right one: the index of a stage is counted anew in every tile, while
//! the ring of stages goes on.
//!
//! ```text
//! out[i, j] = Σ_x s_a(i, x)·s_b(j, x) · Σ_u a[i, y(x)·w + u]·b[j, y(x)·w + u]          codes of block y(x), scales of x; y(x) = x in a right kernel
//! out[i, j] = Σ_x Σ_y C[x, y] · P[x, y]                                               C by least squares: one 1 a row
//! ```
//!
//! Where one map does not hold in all of the result, each of its tiles may have one: a persistent kernel enters each at another stage.

use super::address::gcd;
use super::given::Given;
use super::linear::Normal;
use super::maps::cost;
use super::segment::{self, spread_where};
use super::system::{Region, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of K at most, and how far a coefficient may be from a whole number.
const BLOCKS: usize = 12;
const NEAR: f64 = 0.2;
/// Equations beyond three for each unknown; those that decide early, and how far off most of them may be, in half widths.
const MORE: usize = 32;
const FAR: f64 = 16.0;
/// Stages of a ring.
const STAGES: std::ops::RangeInclusive<usize> = 2..=8;

/// Where scales change along K; else blocks are counted wrong, and other theories say so.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let unit = [&s.a, &s.b].into_iter().filter(|g| g.q.is_some() && g.grid.1 > 1).fold(0, |n, g| gcd(n, g.tile.1));
    // Whole blocks of the scales, as many as are not too many.
    let Some(width) = (0..8).map(|n| unit << n).find(|w| *w > 0 && s.k.div_ceil(*w) <= BLOCKS) else { return Vec::new() };
    if !s.k.is_multiple_of(width) || s.k < 2 * width {
        return Vec::new();
    }
    // The tiles of some blocks may leave right ones in the rectangle around them.
    let count = |v: &[bool]| v.iter().filter(|x| **x).count();
    let holes = |t: &Region| t.tiles.iter().map(|(r, c)| r.len() * c.len()).sum::<usize>() < count(&t.rows) * count(&t.cols);
    // Where most is wrong they do not.
    let area = s.region.as_ref().map_or(s.rows * s.cols, |r| count(&r.rows) * count(&r.cols));
    let rectangle = s.region.as_ref().is_none_or(|r| r.tiles.is_empty()) && 10 * count(&s.is_wrong) < 9 * area;
    let tiles = rectangle.then(|| segment::tiled(s)).flatten().filter(holes).map(Arc::new);
    let region = tiles.clone().or_else(|| s.region.clone());
    let is_moved = |m: &Vec<usize>| m.iter().enumerate().any(|(x, y)| x != *y);
    let Some(map) = map(s, width, region.as_deref()).filter(is_moved) else {
        return by_tile(s, width).into_iter().collect();
    };
    let mut t = theory(s, width, map);
    if let Some(region) = tiles {
        t.detail += &format!(", in {}", region.words);
        t.bits += region.bits();
        t.region = Some(region);
    }
    vec![t]
}

/// What block y of both operands sums by the scales of block x, and its magnitude.
fn product((a, ra): (&Given, usize), (b, rb): (&Given, usize), width: usize, (x, y): (usize, usize)) -> (f64, f64) {
    let value = |g: &Given, row: usize, u: usize| match &g.q {
        Some(q) => g.decoded(q.codes()[row * g.k + y * width + u], row / g.tile.0 * g.grid.1 + (x * width + u) / g.tile.1),
        None => g.values[row * g.k + y * width + u],
    };
    (0..width).map(|u| value(a, ra, u) * value(b, rb, u)).fold((0.0, 0.0), |m, p| (m.0 + p, m.1 + p.abs()))
}

/// The block that each block is read from. `None`: what was written is not of this kind.
fn map(s: &System, width: usize, region: Option<&Region>) -> Option<Vec<usize>> {
    let n = s.k / width;
    let inside = |at: &usize| region.is_none_or(|r| r.has(at / s.cols, at % s.cols));
    let places = spread_where(s.rows * s.cols, &|at| s.actual[*at].is_finite() && inside(at), 3 * n * n + MORE);
    (places.len() >= 2 * n * n + MORE).then_some(())?;
    let mut system = Normal::new(n * n);
    let mut checks = Vec::new();
    for (nth, at) in places.iter().enumerate() {
        let (i, j) = (at / s.cols, at % s.cols);
        let (ra, rb, _) = s.lines(i, j)?;
        let row: Vec<f64> = (0..n * n).map(|c| product((&s.a, ra), (&s.b, rb), width, (c / n, c % n)).0).collect();
        let Some((y, half)) = s.written(i, j, s.magnitude(*at)) else { continue };
        system.add(&row, y, 1.0 / (half * half));
        if nth < 24 {
            checks.push((row, y, half));
        }
        // What no coefficients make is not of this kind: a few more equations than unknowns say so.
        if nth + 1 == n * n + MORE / 2 {
            let c = system.clone().solve()?;
            let far = |(row, y, half): &&(Vec<f64>, f64, f64)| {
                (row.iter().zip(&c).map(|(x, c)| x * c).sum::<f64>() - y).abs() > FAR * half
            };
            (2 * checks.iter().filter(far).count() <= checks.len()).then_some(())?;
        }
    }
    let c = system.solve()?;
    let one = |x: usize| -> Option<usize> {
        let mut of = (0..n).filter(|y| c[x * n + y].abs() >= NEAR);
        let y = of.next().filter(|y| (c[x * n + y] - 1.0).abs() < NEAR)?;
        of.next().is_none().then_some(y)
    };
    (0..n).map(one).collect()
}

/// Sides of tiles of the result, the largest first; tiles at most; maps that are told in words.
const SIDES: [(usize, usize); 8] = [(128, 128), (64, 128), (128, 64), (64, 64), (32, 128), (32, 64), (64, 32), (32, 32)];
const TILES: std::ops::RangeInclusive<usize> = 2..=64;
const TOLD: usize = 4;

/// A map of every tile of the result, the right one in some.
fn by_tile(s: &System, width: usize) -> Option<Theory> {
    (s.k / width <= BLOCKS && s.is_wrong.iter().filter(|w| **w).count() * 4 > s.is_wrong.len()).then_some(())?;
    let of = |(high, wide): (usize, usize)| -> Option<(usize, usize, Vec<Vec<usize>>)> {
        let (down, across) = (s.rows.div_ceil(high), s.cols.div_ceil(wide));
        TILES.contains(&(down * across)).then_some(())?;
        let one = |tile: usize| {
            let (r, c) = (tile / across * high, tile % across * wide);
            let (r, c) = (r..(r + high).min(s.rows), c..(c + wide).min(s.cols));
            let line = |n: usize, at: &Range<usize>| (0..n).map(|x| at.contains(&x)).collect();
            let region = Region { rows: line(s.rows, &r), cols: line(s.cols, &c), tiles: Vec::new(), words: String::new() };
            map(s, width, Some(&region))
        };
        Some((high, wide, (0..down * across).map(one).collect::<Option<_>>()?))
    };
    let (high, wide, maps) = SIDES.into_iter().find_map(of)?;
    let across = s.cols.div_ceil(wide);
    let moved: Vec<(usize, usize, usize)> = (0..maps.len())
        .flat_map(|tile| maps[tile].iter().enumerate().map(move |(x, y)| (tile, x, *y)))
        .filter(|(_, x, y)| x != y)
        .collect();
    (!moved.is_empty()).then_some(())?;
    let lines = |x: usize| format!("{} … {}", x * width, (x + 1) * width - 1);
    let one = |(tile, x, y): &(usize, usize, usize)| {
        let (r, c) = (tile / across * high, tile % across * wide);
        format!("at ({r}, {c}) for K {} that of {}", lines(*x), lines(*y))
    };
    let some: Vec<String> = moved.iter().take(TOLD).map(one).collect();
    let back: Vec<usize> = moved.iter().map(|(_, x, y)| x.wrapping_sub(*y)).collect();
    let why = match back[0] {
        d if d < BLOCKS && back.iter().all(|x| *x == d) => format!("; always {} of K before", d * width),
        _ => String::new(),
    };
    let words = format!(
        "both operands are read from another stage (codes, not their scales), in tiles of {high}×{wide} each for itself: {}{}{why}",
        some.join(", "),
        if moved.len() > TOLD { ", …" } else { "" }
    );
    let bits = 16.0 + moved.len() as f64 * (s.k as f64 / width as f64).log2();
    let mut t = Theory::new(Class::AccState, "a", "both.tile_stage", words).bits(bits);
    t.freedom = moved.len();
    let (a, b, bias, cols) = (s.a.clone(), s.b.clone(), s.bias.clone(), s.cols);
    let places: Vec<Option<(usize, usize)>> = (0..s.rows).map(|i| s.lines(i, 0).map(|x| (x.0, x.1))).collect();
    t.sums(s.right_sums(), cols, move |i, j| {
        let Some((ra, rb)) = places[i] else { return (0.0, 0.0) };
        let map = &maps[i / high * across + j / wide];
        let all = map.iter().enumerate().map(|(x, y)| product((&a, ra), (&b, rb + j), width, (x, *y)));
        let (sum, size) = all.fold((0.0, 0.0), |m, x| (m.0 + x.0, m.1 + x.1));
        (sum + bias.at(i, j), size)
    });
    Some(t)
}

fn theory(s: &System, width: usize, map: Vec<usize>) -> Theory {
    let moved: Vec<usize> = (0..map.len()).filter(|x| map[*x] != *x).collect();
    let lines = |x: usize| format!("{} … {}", x * width, (x + 1) * width - 1);
    let some: Vec<String> = moved.iter().take(4).map(|x| format!("for K {} that of {}", lines(*x), lines(map[*x]))).collect();
    let more = if moved.len() > 4 { ", …" } else { "" };
    // The same step for every block, around a ring.
    let by = |x: usize, ring: usize| (map[x] + ring - x % ring) % ring;
    let ring = STAGES.filter(|n| *n <= map.len()).find(|n| by(0, *n) != 0 && (1..map.len()).all(|x| by(x, *n) == by(0, *n)));
    let why = ring.map_or(String::new(), |n| {
        format!(
            "; every block is {} off in a ring of {n} stages: the stage is block mod {n}, and not counted on from tile to tile",
            by(0, n)
        )
    });
    let words = format!("both operands are read from another stage (codes, not their scales): {}{more}{why}", some.join(", "));
    let bits = 8.0 + if ring.is_some() { 3.0 } else { moved.len() as f64 * (map.len() as f64).log2() } + cost(width);
    let mut t = Theory::new(Class::AccState, "a", "both.stage", words).bits(bits);
    t.freedom = if ring.is_some() { 0 } else { moved.len() };
    let (k_all, map) = (s.k, Arc::new(map));
    for side in [Which::A, Which::B] {
        let map = map.clone();
        t.side(side).code = Some(Arc::new(move |i, k| Some(i * k_all + map[k / width] * width + k % width)));
    }
    t
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, found, noise, sum};
    use crate::job::Operand;
    use crate::{Format, QTensor};

    const M: usize = 64;
    const N: usize = 48;
    const K: usize = 256;

    fn of(q: &QTensor, i: usize, k: usize, scale: usize) -> f64 {
        q.format().decode(u32::from(q.codes()[i * K + k])) * f64::from(q.scale_inv()[i * 4 + scale / 64])
    }

    #[test]
    fn stages_that_are_counted_anew_in_every_tile_are_told() {
        let (a, b) = (codes(Format::E4m3, M, K, 64, false, 41), codes(Format::E4m3, N, K, 64, false, 42));
        let found = |read: &dyn Fn(usize, usize, usize) -> usize| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::Bf16, |i, j, _| {
                sum(K, |k| {
                    let from = read(i, j, k / 64) * 64 + k % 64;
                    of(&a, i, from, k) * of(&b, j, from, k)
                })
            })
        };
        // Three stages, one off, in the lower half.
        let map = [1, 2, 0, 1];
        let got = found(&|i, _, x| if i < 32 { x } else { map[x] });
        assert_eq!(got.0, "acc_state:both.stage", "{}", got.1);
        assert!(got.1.contains("for K 0 … 63 that of 64 … 127") && got.1.contains("1 off in a ring of 3 stages"), "{}", got.1);
        assert!(got.1.contains("in rows 32 … 63"), "{}", got.1);
        // The second wave of a persistent grid of two blocks: tiles that leave right ones in their rectangle.
        let got = found(&|i, j, x| if i / 32 * 3 + j / 16 < 2 { x } else { [1, 0, 3, 2][x] });
        assert_eq!(got.0, "acc_state:both.stage", "{}", got.1);
        assert!(got.1.contains("1 off in a ring of 2 stages") && got.1.contains("3 of the tiles of 32×32"), "{}", got.1);
        // Tiles that are entered at another stage each: the second block of some is the first again.
        let again = |tile: usize, x: usize| if tile % 3 != 1 && x == 1 + tile % 2 { x - 1 } else { x };
        let got = found(&|i, j, x| again(i / 32 * 2 + j / 32, x));
        assert_eq!(got.0, "acc_state:both.tile_stage", "{}", got.1);
        assert!(got.1.contains("in tiles of 32×32 each for itself: at (0, 0) for K 64 … 127 that of 0 … 63"), "{}", got.1);
        assert!(got.1.contains("always 64 of K before"), "{}", got.1);
        // Another block for each element is none.
        let got = found(&|i, j, x| (x + (noise(i * N + j) * 4.0) as usize) % 4);
        assert!(!got.0.contains("stage"), "{} {}", got.0, got.1);
    }
}
