//! What a kernel effectively multiplied and subtracted: gains of the cells of a grid over one operand, and offsets of its codes, solved.
//!
//! ```text
//! gain:    out[i, j] − bias = Σ_c g(r, c) · Σ_{k in c} A(i, k)·B(j, k)            r, c: the cell of the grid that (j, k) lies in
//! offset:  out[i, j] − right = − Σ_c d(r, c) · s(r, c) · Σ_{k in c} A(i, k)
//! ```
//!
//! Each row of the grid is a system by itself: as many unknowns as it has columns, an equation for each element of the result that it makes.

use super::linear::Normal;
use super::system::{Part, Region, System, Theory};
use crate::fault::edit::Which;

/// A grid over an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    pub side: Which,
    pub tile: (usize, usize),
    pub rows: usize,
    pub cols: usize,
}

impl Grid {
    pub fn of(s: &System, side: Which, tile: (usize, usize)) -> Self {
        let g = s.given(side);
        Self { side, tile, rows: g.rows.div_ceil(tile.0), cols: g.k.div_ceil(tile.1) }
    }
    pub fn cell(&self, i: usize, k: usize) -> usize {
        i / self.tile.0 * self.cols + k / self.tile.1
    }
}

/// One number for each cell, and how far it may be from the true one; ∞ where nothing says.
pub struct Cells {
    pub value: Vec<f64>,
    pub within: Vec<f64>,
}

/// Standard errors that a solved number may be off.
const SIGMAS: f64 = 4.0;
/// Multiply-adds of one grid.
const WORK: usize = 1 << 28;

/// Rows of a grid that have to tell a number to this part of it, where gains are solved on top of another theory.
const FIRST_ROWS: usize = 1;
const KNOWN: f64 = 0.25;

/// What is asked of the cells.
#[derive(Clone, Copy, PartialEq)]
pub enum Ask {
    Gain,
    Offset,
}

/// Solves a grid on top of what a theory says already. `None`: too few equations, or they contradict each other.
pub fn solve(s: &System, base: &Theory, grid: &Grid, ask: Ask) -> Option<Cells> {
    solved(s, base, grid, ask, 2.0)
}

/// The gains of a grid with hardly more equations than unknowns: numbers that say little one by one.
pub fn thin(s: &System, base: &Theory, grid: &Grid) -> Option<Cells> {
    solved(s, base, grid, Ask::Gain, 1.1)
}

/// With so many times the equations at least.
fn solved(s: &System, base: &Theory, grid: &Grid, ask: Ask, least: f64) -> Option<Cells> {
    let n = grid.rows * grid.cols;
    let most = 8 * grid.cols + 16;
    (grid.rows * most * (s.k + grid.cols * grid.cols / 2) <= WORK).then_some(())?;
    let right = if ask == Ask::Gain { 1.0 } else { 0.0 };
    let (mut value, mut within) = (vec![right; n], vec![f64::INFINITY; n]);
    let mut equations = 0;
    for r in 0..grid.rows {
        let places = places(s, grid, r, most);
        if (places.len() as f64) < least * grid.cols as f64 {
            continue;
        }
        // What is NaN or infinite all along was multiplied by that.
        if let Some(by) = beyond(s, &places).filter(|_| ask == Ask::Gain && grid.cols == 1) {
            (value[r], within[r]) = (by, 0.0);
            continue;
        }
        // What does not fit a few equations more than unknowns fits no more of them.
        let first = (grid.cols + 4).min(places.len());
        let of = |places: &[(usize, usize)]| -> Vec<Equation> {
            places.iter().filter_map(|(i, j)| equation(s, base, grid, ask, *i, *j)).collect()
        };
        let mut row = of(&places[..first]);
        if row.len() > grid.cols && first < places.len() {
            if grid.cols == 1 {
                interval(&row).map(|_| ())?
            } else {
                squares(&row, grid.cols).map(|_| ())?
            };
        }
        row.extend(of(&places[first..]));
        if (row.len() as f64) < least * grid.cols as f64 {
            continue;
        }
        equations += row.len();
        let (v, e) = if grid.cols == 1 { interval(&row)? } else { squares(&row, grid.cols)? };
        for c in 0..grid.cols {
            (value[r * grid.cols + c], within[r * grid.cols + c]) = (v[c], e[c]);
        }
        // A bound as wide as the result tells no gains: what first rows do not say, the others do not.
        let known = || (0..(r + 1) * grid.cols).any(|c| within[c] <= KNOWN * value[c].abs() || value[c].is_nan());
        (ask != Ask::Gain || base.is_plain() || r != FIRST_ROWS || known()).then_some(())?;
    }
    // What cannot be told from right is right.
    for (v, e) in value.iter_mut().zip(&within) {
        if (*v - right).abs() <= *e {
            *v = right;
        }
    }
    let known = within.iter().filter(|w| w.is_finite()).count() as f64;
    let enough = if least < 2.0 { least } else { 3.0 };
    (equations as f64 >= enough * known && known > 0.0).then_some(Cells { value, within })
}

/// NaN where all of these elements are, more than any sum where all are infinite.
fn beyond(s: &System, places: &[(usize, usize)]) -> Option<f64> {
    const HUGE: f64 = 1e200;
    let all = |is: fn(f64) -> bool| places.len() >= 4 && places.iter().all(|(i, j)| is(s.actual[i * s.cols + j]));
    if all(f64::is_nan) {
        return Some(f64::NAN);
    }
    all(|x| x.is_infinite() || x.is_nan()).then_some(HUGE)
}

struct Equation {
    x: Vec<f64>,
    y: f64,
    half: f64,
}

/// Elements of the result that row `r` of the grid makes, in the wrong region where there is one; at most so many, over all of them.
fn places(s: &System, grid: &Grid, r: usize, most: usize) -> Vec<(usize, usize)> {
    let lines = r * grid.tile.0..((r + 1) * grid.tile.0).min(s.given(grid.side).rows);
    // Lines of the result, and what each has: written down only where a region leaves some out.
    let mut runs: Vec<(usize, usize, &Part)> = Vec::new();
    for p in &s.parts {
        for line in lines.clone() {
            match grid.side {
                Which::A if line >= p.a && line - p.a < p.rows.len() => runs.push((p.rows.start + line - p.a, s.cols, p)),
                Which::B if line >= p.b && line - p.b < s.cols => runs.push((line - p.b, p.rows.len(), p)),
                _ => {}
            }
        }
    }
    let place = |(line, _, p): &(usize, usize, &Part), n: usize| match grid.side {
        Which::A => (*line, n),
        Which::B => (p.rows.start + n, *line),
    };
    if let Some(region) = s.region.as_ref().filter(|r| r.tiles.is_empty()) {
        return of_lines(region, &runs, grid.side, most);
    }
    if let Some(region) = &s.region {
        let mut all: Vec<(usize, usize)> = runs.iter().flat_map(|x| (0..x.1).map(move |n| place(x, n))).collect();
        all.retain(|(i, j)| region.has(*i, *j));
        super::segment::spread(&mut all, most);
        return all;
    }
    let ends: Vec<usize> = runs
        .iter()
        .scan(0, |n, x| {
            *n += x.1;
            Some(*n)
        })
        .collect();
    let at = |n: usize| {
        let run = ends.partition_point(|end| *end <= n);
        place(&runs[run], n + runs[run].1 - ends[run])
    };
    super::segment::spread_of(ends.last().copied().unwrap_or(0), most).into_iter().map(at).collect()
}

/// The same in a region of whole lines, with nothing written down that is not asked for.
fn of_lines(region: &Region, runs: &[(usize, usize, &Part)], side: Which, most: usize) -> Vec<(usize, usize)> {
    let (own, across) = if side == Which::A { (&region.rows, &region.cols) } else { (&region.cols, &region.rows) };
    // Of each line of the region: what of it is in the region.
    let first = |p: &Part| if side == Which::A { 0 } else { p.rows.start };
    let mut held: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    let mut ends: Vec<(usize, usize, usize)> = Vec::new();
    for (line, n, p) in runs.iter().filter(|r| own[r.0]) {
        let from = first(p);
        let which = held.iter().position(|h| (h.0, h.1) == (from, *n)).unwrap_or_else(|| {
            held.push((from, *n, (from..from + n).filter(|x| across[*x]).collect()));
            held.len() - 1
        });
        ends.push((ends.last().map_or(0, |e| e.0) + held[which].2.len(), which, *line));
    }
    let at = |n: usize| {
        let (end, which, line) = ends[ends.partition_point(|e| e.0 <= n)];
        let of = &held[which].2;
        let x = of[n + of.len() - end];
        if side == Which::A { (line, x) } else { (x, line) }
    };
    super::segment::spread_of(ends.last().map_or(0, |e| e.0), most).into_iter().map(at).collect()
}

fn equation(s: &System, base: &Theory, grid: &Grid, ask: Ask, i: usize, j: usize) -> Option<Equation> {
    let mut x = vec![0.0; grid.cols];
    let (mut size, mut sum) = (0.0, 0.0);
    let part = &s.parts[s.part[i]?];
    let (ra, rb) = (part.a + i - part.rows.start, part.b + j);
    s.products(base, i, j, |k, p| {
        size += p.abs();
        sum += p;
        if ask == Ask::Gain {
            x[k / grid.tile.1] += p;
        }
    })?;
    let (mut y, half) = s.written(i, j, size)?;
    if ask == Ask::Offset {
        let (given, line) = match grid.side {
            Which::A => (&s.a, ra),
            Which::B => (&s.b, rb),
        };
        for k in if s.alone { j..j + 1 } else { part.k.clone() } {
            let other = match grid.side {
                _ if s.alone => 1.0,
                Which::A => base.b.at(&s.b, rb, k),
                Which::B => base.a.at(&s.a, ra, k),
            };
            x[k / grid.tile.1] -= other * given.step(line, k);
        }
        y -= sum;
    }
    Some(Equation { x, y, half })
}

/// One unknown: what every equation allows.
fn interval(row: &[Equation]) -> Option<(Vec<f64>, Vec<f64>)> {
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    for e in row.iter().filter(|e| e.x[0] != 0.0) {
        let ends = [(e.y - e.half) / e.x[0], (e.y + e.half) / e.x[0]];
        (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
    }
    (low <= high).then_some(())?;
    if !(low.is_finite() && high.is_finite()) {
        return Some((vec![1.0], vec![f64::INFINITY]));
    }
    Some((vec![0.5 * (low + high)], vec![0.5 * (high - low)]))
}

/// Least squares; refused where an equation is farther off than its noise and the errors of the solution let it be.
fn squares(row: &[Equation], cols: usize) -> Option<(Vec<f64>, Vec<f64>)> {
    let mut system = Normal::new(cols);
    for e in row {
        system.add(&e.x, e.y, 1.0 / (e.half * e.half));
    }
    let (v, e) = system.solve_within()?;
    let fits = |q: &Equation| {
        let y: f64 = q.x.iter().zip(&v).map(|(x, v)| x * v).sum();
        (q.y - y).abs() <= 2.0 * q.half
    };
    row.iter().all(fits).then(|| (v, e.into_iter().map(|e| SIGMAS * e).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_region_of_lines_are_those_that_are_written_down() {
        let (rows, cols) = (9, 7);
        let region = Region {
            rows: (0..rows).map(|i| i % 3 != 1).collect(),
            cols: (0..cols).map(|j| j > 2).collect(),
            tiles: Vec::new(),
            words: String::new(),
        };
        let parts = [Part { rows: 0..4, a: 0, b: 0, k: 0..1 }, Part { rows: 4..9, a: 4, b: 7, k: 0..1 }];
        for side in [Which::A, Which::B] {
            let mut runs: Vec<(usize, usize, &Part)> = Vec::new();
            for p in &parts {
                match side {
                    Which::A => runs.extend(p.rows.clone().map(|i| (i, cols, p))),
                    Which::B => runs.extend((0..cols).map(|j| (j, p.rows.len(), p))),
                }
            }
            let place = |(line, n, p): &(usize, usize, &Part)| -> Vec<(usize, usize)> {
                match side {
                    Which::A => (0..*n).map(|j| (*line, j)).collect(),
                    Which::B => (0..*n).map(|i| (p.rows.start + i, *line)).collect(),
                }
            };
            for most in [5, 1000] {
                let mut slow: Vec<(usize, usize)> = runs.iter().flat_map(place).filter(|(i, j)| region.has(*i, *j)).collect();
                super::super::segment::spread(&mut slow, most);
                assert_eq!(of_lines(&region, &runs, side, most), slow);
            }
        }
    }
}
