//! Tiles of the result that take the scales of other tiles: each source is found by value, and told as a formula of the tile's place
//! where there is one.
//!
//! ```text
//! out[i, j] = Σ_u s_a(p·h + i mod h, u) · s_b(q·w + j mod w, u) · Σ_{k in u} code_a · code_b          p, q of tile (x, y): x and y in a right kernel
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Sizes of tiles, the largest first.
const SIZES: [(usize, usize); 9] =
    [(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32)];
/// The least side of a tile.
const LEAST: usize = 16;
/// Elements of a tile that decide, and tiles at most.
const LOOKS: usize = 10;
const TILES: usize = 1024;
/// Multiply-adds of one size of tiles.
const WORK: usize = 1 << 27;

/// The scales of an operand as they lie in memory, and behind them those of the other.
struct Memory {
    numbers: Vec<f64>,
    tall: usize,
    cols: usize,
    long: usize,
    /// The last row of the operand that is read, in this memory.
    rows: usize,
}

impl Memory {
    fn of(g: &Given, other: &Given) -> Self {
        let scales = |g: &Given| g.scales().iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let (own, more) = (scales(g), scales(other));
        let behind = if other.grid == (1, 1) { Vec::new() } else { more };
        let numbers: Vec<f64> = own.into_iter().chain(behind).collect();
        let rows = (numbers.len() / g.grid.1 * g.tile.0).min(2 * g.rows.next_multiple_of(g.tile.0));
        Self { numbers, tall: g.tile.0, cols: g.grid.1, long: g.tile.1, rows }
    }
    fn at(&self, row: usize, k: usize) -> f64 {
        self.numbers.get(row / self.tall * self.cols + k / self.long).copied().unwrap_or(0.0)
    }
}

/// A term of a formula for a tile's source: of which coordinate, divided or as a remainder by what.
#[derive(Clone, Copy, PartialEq)]
enum Term {
    Whole(bool),
    Over(bool, usize),
    Rest(bool, usize),
}

impl Term {
    fn of(self, x: usize, y: usize) -> usize {
        let take = |row: bool| if row { x } else { y };
        match self {
            Term::Whole(row) => take(row),
            Term::Over(row, n) => take(row) / n,
            Term::Rest(row, n) => take(row) % n,
        }
    }
    fn words(self) -> String {
        let name = |row: bool| if row { "x" } else { "y" };
        match self {
            Term::Whole(row) => name(row).into(),
            Term::Over(row, n) => format!("(y / {n})").replace('y', name(row)),
            Term::Rest(row, n) => format!("(y mod {n})").replace('y', name(row)),
        }
    }
}

/// Tiles whose scales are those of other tiles.
pub fn theories(s: &System) -> Vec<Theory> {
    let blocks = |g: &Given| g.q.is_some() && g.deep.is_none() && g.zero.is_none() && g.rounded.is_none();
    let many = s.a.grid.0 > 1 || s.b.grid.0 > 1;
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k || !blocks(&s.a) || !blocks(&s.b) || !many {
        return Vec::new();
    }
    // Tiles as large as the blocks that have one scale, and twice that, besides.
    let own = |g: &Given, n: usize| [g.tile.0, 2 * g.tile.0].map(|x| x.min(n));
    let blocks = own(&s.a, s.rows).into_iter().flat_map(|h| own(&s.b, s.cols).map(|w| (h, w)));
    let mut sizes: Vec<(usize, usize)> = SIZES.into_iter().chain(blocks.filter(|(h, w)| *h >= LEAST && *w >= LEAST)).collect();
    sizes.order_by_key(|(h, w)| std::cmp::Reverse(h * w));
    sizes.dedup();
    sizes.into_iter().find_map(|(high, wide)| of_size(s, high, wide)).into_iter().collect()
}

fn of_size(s: &System, high: usize, wide: usize) -> Option<Theory> {
    let (m, n) = (s.rows.div_ceil(high), s.cols.div_ceil(wide));
    (m * n >= 2 && m * n <= TILES).then_some(())?;
    let memory = [Memory::of(&s.a, &s.b), Memory::of(&s.b, &s.a)];
    let many = [memory[0].rows.div_ceil(high).max(m), memory[1].rows.div_ceil(wide).max(n)];
    let unit = super::address::gcd(s.a.tile.1, s.b.tile.1);
    let units = s.k.div_ceil(unit);
    (m * n * many[0] * many[1] * units <= WORK).then_some(())?;
    let sources = |t: usize| -> Option<Vec<(usize, usize)>> {
        let (x, y) = (t / n, t % n);
        let looks = looks(s, (x * high, y * wide), (high, wide), unit)?;
        let fits = |(p, q): &(usize, usize)| {
            looks.iter().all(|l| {
                let (mut sum, mut size) = (0.0, 0.0);
                for (u, (v, magnitude)) in l.sums.iter().enumerate() {
                    let by = memory[0].at(p * high + l.i, u * unit) * memory[1].at(q * wide + l.j, u * unit);
                    (sum, size) = (sum + by * v, size + by.abs() * magnitude);
                }
                let by = s.a.global * s.b.global;
                (by * sum - l.y).abs() <= l.half + s.relative * by.abs() * size + (by * sum).abs() * 2f64.powi(-22)
            })
        };
        // Its own first: most tiles may be right.
        if fits(&(x, y)) {
            return Some(vec![(x, y)]);
        }
        let all: Vec<(usize, usize)> = (0..many[0]).flat_map(|p| (0..many[1]).map(move |q| (p, q))).filter(fits).collect();
        (!all.is_empty()).then_some(all)
    };
    // The last tile is rarely right; what has no source there has none.
    sources(m * n - 1)?;
    let found: Vec<Vec<(usize, usize)>> = parallel::every(m * n, sources)?;
    let moved = (0..m * n).filter(|t| found[*t] != [(t / n, t % n)]).count();
    (moved > 0).then_some(())?;
    let p = formula(&found, n, true);
    let q = formula(&found, n, false);
    let (sources, how, bits, freedom): (Vec<(usize, usize)>, String, f64, usize) = match (p, q) {
        (Some(p), Some(q)) if (0..m * n).all(|t| found[t].contains(&(p.0(t / n, t % n), q.0(t / n, t % n)))) => {
            let all = (0..m * n).map(|t| (p.0(t / n, t % n), q.0(t / n, t % n))).collect();
            let how = format!("tile (x, y) takes those of row block {} of a and of column block {} of b", p.1, q.1);
            (all, how, 14.0 + p.2 + q.2, 2)
        }
        _ => {
            let near = |t: usize| {
                let far = |f: &&(usize, usize)| f.0.abs_diff(t / n) + f.1.abs_diff(t % n);
                found[t].iter().min_by_key(far).copied()
            };
            let all: Vec<(usize, usize)> = (0..m * n).map(near).collect::<Option<_>>()?;
            let one = |t: &usize| format!("({}, {}) ← ({}, {})", t / n, t % n, all[*t].0, all[*t].1);
            let some: Vec<String> = (0..m * n).filter(|t| all[*t] != (t / n, t % n)).take(6).map(|t| one(&t)).collect();
            let how = format!("tiles take those of other rows of a and columns of b: {}", some.join(", "));
            (all, how, 16.0 + 8.0 * moved as f64, 2 * moved)
        }
    };
    let words = format!("scales in tiles of {high}×{wide} of the result: {how}");
    let mut t = Theory::new(Class::ScaleIndex, "a", "tile.index", words).bits(bits + cost(high) + cost(wide));
    t.freedom = freedom;
    let raw = |g: &Given| -> Vec<f64> {
        g.q.as_ref().map_or_else(Vec::new, |q| q.codes().iter().map(|c| g.table[usize::from(*c)]).collect())
    };
    let (a, b, k_all, by) = (raw(&s.a), raw(&s.b), s.k, s.a.global * s.b.global);
    let (right, bias, cols): (Vec<f64>, _, _) = (s.ideal.to_vec(), s.bias.clone(), s.cols);
    // Sum and magnitude by the scales that its tile takes.
    let summed = Arc::new(move |i: usize, j: usize| -> (f64, f64) {
        let (p, q) = sources[i / high * n + j / wide];
        let (row, col) = (p * high + i % high, q * wide + j % wide);
        let (mut sum, mut size) = (0.0, 0.0);
        for k in 0..k_all {
            let x = by * memory[0].at(row, k) * memory[1].at(col, k) * a[i * k_all + k] * b[j * k_all + k];
            (sum, size) = (sum + x, size + x.abs());
        }
        (sum, size)
    });
    let of = summed.clone();
    t.size = Some(Arc::new(move |i, j| of(i, j).1));
    t.finish = Some(Arc::new(move |i, j, v| summed(i, j).0 + v - (right[i * cols + j] - bias.at(i, j)) + bias.at(i, j)));
    Some(t)
}

/// One element: its place in the tile, what was written, and the sums of codes of each unit of K.
struct Look {
    i: usize,
    j: usize,
    y: f64,
    half: f64,
    sums: Vec<(f64, f64)>,
}

fn looks(s: &System, (i0, j0): (usize, usize), (high, wide): (usize, usize), unit: usize) -> Option<Vec<Look>> {
    let (h, w) = (high.min(s.rows - i0), wide.min(s.cols - j0));
    let mut places: Vec<usize> = (0..h * w).collect();
    super::segment::spread(&mut places, 2 * LOOKS);
    let mut all = Vec::new();
    for (i, j) in places.into_iter().map(|x| (x / w, x % w)) {
        let Some((y, half)) = s.written(i0 + i, j0 + j, 0.0) else { continue };
        let raw =
            |g: &Given, row: usize, k: usize| g.q.as_ref().map_or(0.0, |q| g.table[usize::from(q.codes()[row * g.k + k])]);
        let mut sums = vec![(0.0, 0.0); s.k.div_ceil(unit)];
        for k in 0..s.k {
            let v = raw(s.given(Which::A), i0 + i, k) * raw(s.given(Which::B), j0 + j, k);
            let of = &mut sums[k / unit];
            (of.0, of.1) = (of.0 + v, of.1 + v.abs());
        }
        all.push(Look { i, j, y, half, sums });
        if all.len() == LOOKS {
            break;
        }
    }
    (all.len() >= 4).then_some(all)
}

type Formula = (Box<dyn Fn(usize, usize) -> usize>, String, f64);

/// A sum of one or two terms that is a source of every tile, of the rows or of the columns.
fn formula(found: &[Vec<(usize, usize)>], n: usize, rows: bool) -> Option<Formula> {
    let is = |value: &dyn Fn(usize, usize) -> usize| {
        found.iter().enumerate().all(|(t, all)| {
            let v = value(t / n, t % n);
            all.iter().any(|f| if rows { f.0 == v } else { f.1 == v })
        })
    };
    let mut terms = vec![Term::Whole(rows), Term::Whole(!rows)];
    for by in [2usize, 4, 8] {
        terms.extend([true, false].iter().flat_map(|row| [Term::Over(*row, by), Term::Rest(*row, by)]));
    }
    let times = |c: usize, t: Term| if c == 1 { t.words() } else { format!("{c}·{}", t.words()) };
    for first in &terms {
        for c in [1usize, 2, 4, 8] {
            let (t, words) = (*first, times(c, *first));
            if is(&|x, y| c * t.of(x, y)) {
                return Some((Box::new(move |x, y| c * t.of(x, y)), words, cost(c)));
            }
        }
    }
    for first in &terms {
        for second in terms.iter().filter(|t| *t != first) {
            for (c, d) in [1usize, 2, 4, 8].into_iter().flat_map(|c| [1usize, 2, 4, 8].map(|d| (c, d))) {
                let (t, u) = (*first, *second);
                if is(&|x, y| c * t.of(x, y) + d * u.of(x, y)) {
                    let words = format!("{} + {}", times(c, t), times(d, u));
                    return Some((Box::new(move |x, y| c * t.of(x, y) + d * u.of(x, y)), words, 3.0 + cost(c) + cost(d)));
                }
            }
        }
    }
    None
}
