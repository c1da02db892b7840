//! Scales of lines that are taken from another line, by a rule without a formula: an order that repeats every p lines, or a shift that depends on
//! the other index. Each residue is solved by itself.
//!
//! ```text
//! order:  line n of b takes the scales of line ⌊n/p⌋·p + x(n mod p)          x(r): what all elements of residue r allow
//! apart:  line n takes the scales of line ⌊n/t⌋·f·t + n mod t, f = 2 or 4          tiles of t lines in tiles of f·t; behind the end code 0
//! moved:  element (i, j) takes the scale of row i + d(j mod p) of a          d(r): the same; a and b exchanged too
//! ```

use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Periods of an order, and of the other index.
const ORDERS: [usize; 6] = [8, 16, 32, 64, 128, 256];
const PERIODS: [usize; 5] = [2, 4, 8, 16, 32];
/// Lines that a scale may be moved by, at most.
const FAR: i64 = 64;
/// Elements that decide; of each residue, at least.
const LOOKS: usize = 4096;
const LEAST: usize = 3;
/// Multiply-adds.
const WORK: usize = 1 << 26;

/// Of both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    let sides =
        s.sides().iter().copied().filter(|w| s.given(*w).q.is_some() && s.given(*w).tile.0 == 1 && s.given(*w).rows > 1);
    let moves = |side| [End::Last, End::First].into_iter().filter_map(move |end| moved(s, side, end));
    sides.flat_map(|side| orders(s, side).into_iter().chain(moves(side)).chain(apart(s, side))).collect()
}

/// Tiles of lines whose scales are looked up as if they were larger ones.
fn apart(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let (rows, cols, every) = (g.grid.0, g.grid.1, g.tile.1);
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    // The byte 0.
    let nothing = if g.q.as_ref().is_some_and(|q| q.scale_format() == Format::E8m0) { 2f64.powi(-127) } else { 0.0 };
    let tiles = [8usize, 16, 32, 64, 128].into_iter().filter(|t| *t < rows);
    let ways = tiles.flat_map(|t| [(t, 2), (t, 4)]).filter(|(t, f)| f * t < rows);
    ways.map(|(tile, by)| {
        let scales = scales.clone();
        let words = format!(
            "line n of {name} takes the scales of line ⌊n / {tile}⌋·{} + n mod {tile}: tiles of {tile} lines are looked up in those of {}; behind \
             the end code 0",
            by * tile,
            by * tile
        );
        let mut t = Theory::new(Class::ScaleIndex, name, format!("{name}.apart"), words).bits(4.0 + cost(tile) + cost(by));
        let at = move |i: usize, k: usize| {
            let from = i / tile * by * tile + i % tile;
            if from < rows { scales[from * cols + k / every] } else { nothing }
        };
        t.side(side).scaled(every, Arc::new(at));
        t
    })
    .collect()
}

/// What a side's line of an element sums by group of K, without its scales, and what was written.
struct Look {
    line: usize,
    groups: Vec<(f64, f64)>,
    y: f64,
    half: f64,
}

fn looks(s: &System, side: Which) -> Vec<Look> {
    let g = s.given(side);
    let mut places: Vec<usize> = (0..s.rows * s.cols).collect();
    spread(&mut places, LOOKS.min(WORK / s.k.max(1)));
    let look = |at: usize| -> Option<Look> {
        let (i, j) = (at / s.cols, at % s.cols);
        let (y, half) = s.written(i, j, 0.0)?;
        let (ra, rb, ks) = s.lines(i, j)?;
        let line = if side == Which::A { ra } else { rb };
        let mut groups = vec![(0.0, 0.0); g.grid.1];
        for k in ks {
            let step = g.step(line, k);
            let p = s.a.values[ra * s.k + k] * s.b.values[rb * s.k + k];
            if step != 0.0 {
                let of = &mut groups[k / g.tile.1];
                (of.0, of.1) = (of.0 + p / step, of.1 + (p / step).abs());
            }
        }
        Some(Look { line, groups, y, half })
    };
    places.into_iter().filter_map(look).collect()
}

/// Lines in another order within every so many.
fn orders(s: &System, side: Which) -> Option<Theory> {
    let g = s.given(side);
    // Lines of a group stand behind those of the one before.
    let lines = if side == Which::A { g.rows } else { s.cols };
    let looks = looks(s, side);
    let grid = g.grid.1;
    let scale = |line: usize, c: usize| f64::from(g.scales()[line * grid + c]) * g.global;
    let fits = |l: &Look, from: usize| {
        let (sum, size) = l.groups.iter().enumerate().fold((0.0, 0.0), |m, (c, (p, size))| {
            let by = scale(from, c);
            (m.0 + p * by, m.1 + size * by.abs())
        });
        (sum - l.y).abs() <= l.half + s.relative * size + sum.abs() * 2f64.powi(-22)
    };
    let source = |period: usize, r: usize| -> Option<usize> {
        let mut left: Vec<usize> = std::iter::once(r).chain((0..period).filter(|x| *x != r)).collect();
        let mut n = 0;
        for l in looks.iter().filter(|l| l.line % period == r) {
            left.retain(|x| fits(l, l.line / period * period + x));
            n += 1;
            if left.is_empty() {
                return None;
            }
        }
        // Its own where it may be; of others, one.
        (n >= LEAST && (left[0] == r || left.len() == 1)).then(|| left[0])
    };
    for period in ORDERS.into_iter().filter(|p| *p <= lines && lines.is_multiple_of(*p) && 4 * p <= looks.len()) {
        let Some(from) = (0..period).map(|r| source(period, r)).collect::<Option<Vec<usize>>>() else { continue };
        let moved: Vec<usize> = (0..period).filter(|r| from[*r] != *r).collect();
        let mut served = from.clone();
        served.sort_unstable();
        served.dedup();
        if moved.len() < 2 {
            return None;
        }
        let name = side.name();
        let some: Vec<String> = moved.iter().take(6).map(|r| format!("{r} ← {}", from[*r])).collect();
        let (class, how) = if served.len() == period {
            (Class::ScaleLayout, "stand in another order within")
        } else {
            (Class::ScaleShared, "are those of other rows of")
        };
        let words = format!("scales of {name} {how} every {period} rows: {}", some.join(", "));
        let bits = 8.0 + cost(period) + moved.len() as f64 * (period as f64).log2();
        let mut t = Theory::new(class, name, format!("{name}.order"), words).bits(bits);
        t.freedom = moved.len();
        let (scales, tile): (Vec<f64>, usize) = ((0..g.rows * grid).map(|c| scale(c / grid, c % grid)).collect(), g.tile.1);
        t.side(side).scale = Some(Arc::new(move |i, k| scales[(i / period * period + from[i % period]) * grid + k / tile]));
        return Some(t);
    }
    None
}

/// What stands for a line behind the end: the last, or the first ones again.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Last,
    First,
}

/// A scale of another line, farther by a number that the other index says.
fn moved(s: &System, side: Which, end: End) -> Option<Theory> {
    let g = s.given(side);
    (g.grid.1 == 1 && s.parts.len() == 1).then_some(())?;
    let other = if side == Which::A { s.cols } else { s.rows };
    let lines = g.rows as i64;
    let scales: Arc<Vec<f64>> = Arc::new((0..g.rows).map(|i| g.step(i, 0)).collect());
    let line_at = move |line: usize, d: i64| match end {
        End::Last => (line as i64 + d).clamp(0, lines - 1) as usize,
        End::First => (line as i64 + d).rem_euclid(lines) as usize,
    };
    let mut places: Vec<usize> = (0..s.rows * s.cols).collect();
    spread(&mut places, LOOKS / 4);
    let look = |at: usize| -> Option<(usize, usize, f64, f64, f64)> {
        let (i, j) = (at / s.cols, at % s.cols);
        let (y, half) = s.written(i, j, 0.0)?;
        let (line, across) = if side == Which::A { (i, j) } else { (j, i) };
        Some((line, across, s.ideal[at] - s.bias.at(i, j), y, half + s.certain(at)))
    };
    let looks: Vec<_> = places.into_iter().filter_map(look).collect();
    let fits = |(line, _, v, y, half): &(usize, usize, f64, f64, f64), d: i64| {
        let by = scales[line_at(*line, d)] / scales[*line];
        (v * by - y).abs() <= half * by.abs().max(1.0) + y.abs() * 2f64.powi(-22)
    };
    let source = |period: usize, r: usize| -> Option<i64> {
        let mut left: Vec<i64> = (0..=FAR.min(lines - 1)).flat_map(|d| [d, -d]).collect();
        let mut n = 0;
        for l in looks.iter().filter(|l| l.1 % period == r) {
            left.retain(|d| fits(l, *d));
            n += 1;
            if left.is_empty() {
                return None;
            }
        }
        (n >= 4 * LEAST).then(|| left[0])
    };
    for period in PERIODS.into_iter().filter(|p| 2 * p <= other) {
        let Some(by) = (0..period).map(|r| source(period, r)).collect::<Option<Vec<i64>>>() else { continue };
        // One number for all is an order of rows that others solve.
        if by.iter().all(|d| *d == by[0]) {
            return None;
        }
        let (name, what, index) =
            (side.name(), if side == Which::A { "i" } else { "j" }, if side == Which::A { "j" } else { "i" });
        let behind = if end == End::Last { "the last" } else { "the first" };
        let all: Vec<String> = by.iter().map(ToString::to_string).collect();
        let words = format!(
            "element (i, j) takes the scale of {name} of row {what} + d, {behind} at the end, where d is {} for {index} mod {period} = 0, 1, …",
            all.join(", ")
        );
        let bits = 10.0 + cost(period) + by.iter().map(|d| cost(d.unsigned_abs() as usize)).sum::<f64>();
        let mut t = Theory::new(Class::ScaleIndex, name, format!("{name}.moved"), words).bits(bits);
        t.freedom = period;
        let (scales, bias) = (scales.clone(), s.bias.clone());
        t.finish = Some(Arc::new(move |i, j, v| {
            let (line, across) = if side == Which::A { (i, j) } else { (j, i) };
            v * scales[line_at(line, by[across % period])] / scales[line] + bias.at(i, j)
        }));
        return Some(t);
    }
    None
}
