//! Effective scales of the cells of a grid, held against the stored ones: what they are, as a name.

use super::effective::{Ask, Cells, Grid, solve, thin};
use super::gain_places::BESIDE;
use super::given::Given;
use super::scale_runs;
use super::segment::lines;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// How far the two numbers of a line through all scales may make a sum be off, relative to its magnitude.
pub const LINE: f64 = 2e-3;
/// How far apart numbers are that no scales are.
const WILD: f64 = 64.0;
/// The share of changed numbers that are stored somewhere, where all are.
const STORED: f64 = 0.9;
/// How far a scale that is rounded again may be from the right one, relative.
const ROUNDED: f64 = 0.05;
/// A gain that is 0, at most.
const ZERO: f64 = 1e-2;
/// Scales of another tensor that are all larger, or all smaller: so many of them, and so far apart in what they are of the right ones.
const MANY: usize = 4;
const APART: f64 = 1.2;
/// Bits of an index that was found cell by cell, and of a number that was.
pub const INDEX: f64 = 3.0;
const NUMBER: f64 = 16.0;
/// Numbers that one factor and one shift explain, at least.
const FURTHER: usize = 8;

/// The grids that a kernel may have scaled by: the operand's own, one number a row, one for each of the other's groups of K.
fn grids(s: &System, side: Which) -> Vec<Grid> {
    let g = s.given(side);
    let other = s.given(side.other());
    let mut all = Vec::new();
    for tile in [g.tile, (1, g.k), (1, g.tile.1), (g.rows.max(1), other.tile.1)] {
        let grid = Grid::of(s, side, tile);
        if grid.rows * grid.cols > 1 && !all.contains(&grid) {
            all.push(grid);
        }
    }
    all
}

/// Theories of the scales of one side on top of `base`, which reads them right.
pub fn gains(s: &System, base: &Theory, side: Which) -> Vec<Theory> {
    if !s.sides().contains(&side) {
        return Vec::new();
    }
    grids(s, side)
        .iter()
        .filter_map(|grid| {
            let (cells, thin) = match solve(s, base, grid, Ask::Gain) {
                Some(cells) => (cells, false),
                None if base.is_plain() => (thin(s, base, grid)?, true),
                None => return None,
            };
            cells.value.iter().any(|g| *g != 1.0).then_some(())?;
            gain(s, base, grid, &cells, thin)
        })
        .take(1)
        .collect()
}

/// A grid's gains, and what is known beside them.
pub struct Gains<'s> {
    pub s: &'s System<'s>,
    pub g: &'s Given,
    pub grid: Grid,
    pub cells: &'s Cells,
    /// Cells that are not right, what they were multiplied by, and the scale that is stored for them.
    pub changed: Vec<usize>,
    pub effective: Vec<f64>,
    pub stored: Vec<f64>,
}

impl Gains<'_> {
    /// How far the effective scale may be off, relative.
    pub fn within(&self, c: usize) -> f64 {
        (self.cells.within[c] / self.cells.value[c].abs()).max(1e-6)
    }

    /// The factor between the effective scales of some cells and these numbers, where it is one.
    pub fn factor_of(&self, numbers: &dyn Fn(usize) -> f64, cells: &[usize]) -> Option<(f64, f64)> {
        let mut range = (f64::NEG_INFINITY, f64::INFINITY);
        for c in cells {
            let x = self.effective[*c] / numbers(*c);
            let r = self.within(*c) * x.abs();
            range = (range.0.max(x - r), range.1.min(x + r));
            if !(range.0 <= range.1) {
                return None;
            }
        }
        Some(range)
    }

    /// The factor between the effective scales and these, where it is one for all changed cells, and whether the others have it.
    pub fn factor(&self, numbers: &dyn Fn(usize) -> f64) -> Option<(f64, f64)> {
        let range = self.factor_of(numbers, &self.changed)?;
        let same = (0..self.stored.len()).filter(|c| !self.changed.contains(c)).all(|c| {
            let x = self.stored[c] / numbers(c);
            let r = self.cells.within[c].min(1e300) * x.abs() + 1e-6 * x.abs();
            x - r <= range.1 && range.0 <= x + r
        });
        same.then_some(range)
    }
}

/// Whether a gain is 0 as far as anything says: small, and less than it may be off.
fn zero(cells: &Cells, c: usize) -> bool {
    let (value, within) = (cells.value[c].abs(), cells.within[c]);
    value + within <= ZERO && value <= within
}

/// The gains of one grid, as scales: a rule, other places, the other operand's, products with stored numbers; else no name.
fn gain(s: &System, base: &Theory, grid: &Grid, cells: &Cells, thin: bool) -> Option<Theory> {
    let g = s.given(grid.side);
    let who = grid.side.name();
    let at = |cell: usize| (cell / grid.cols * grid.tile.0, cell % grid.cols * grid.tile.1);
    let stored: Vec<f64> = (0..cells.value.len()).map(|c| g.step(at(c).0, at(c).1)).collect();
    let changed: Vec<usize> = (0..stored.len()).filter(|c| cells.value[*c] != 1.0).collect();
    // A number that is known to a quarter says nothing.
    let is_zero = |c: usize| zero(cells, c);
    let is_known = |c: &&usize| cells.within[**c] <= 0.25 * cells.value[**c].abs() || cells.value[**c].is_nan() || is_zero(**c);
    let known = changed.iter().filter(is_known).count();
    (known * 10 >= changed.len() * 9).then_some(())?;
    let effective: Vec<f64> = stored.iter().zip(&cells.value).map(|(s, v)| s * v).collect();
    let x = Gains { s, g, grid: *grid, cells, changed, effective, stored };
    let mut values = x.stored.clone();
    // Few equations say only what all cells have in common.
    let mut t = if thin { None } else { x.named(&mut values) };
    t = t.or_else(|| x.whole(&mut values)).or_else(|| x.affine(&mut values));
    if t.is_none() && !thin {
        t = Some(x.nameless(&mut values));
    }
    let mut t = t?;
    let which: Vec<bool> = x.cells.value.iter().map(|v| *v != 1.0).collect();
    let place = if grid.cols == 1 && grid.tile.0 == 1 { "rows" } else { "cells of its grid" };
    let some = |c: &usize| format!("{c}: {:.5e} instead of {:.5e}", values[*c], x.stored[*c]);
    let first: Vec<String> = x.changed.iter().take(4).map(some).collect();
    t.freedom = x.changed.len();
    t.detail = format!("{}: {place} of {who} {} ({})", t.detail, lines(&which), first.join(", "));
    read(&mut t, s, grid, Arc::new(values))?;
    if base.is_plain() { Some(t) } else { base.with(&t) }
}

impl Gains<'_> {
    fn named(&self, values: &mut [f64]) -> Option<Theory> {
        let t = self
            .clamped(values)
            .or_else(|| self.shared_by_sibling(values))
            .or_else(|| self.rule(values))
            .or_else(|| self.exponents(values))
            .or_else(|| self.lines_elsewhere(values));
        t.or_else(|| self.elsewhere(values)).or_else(|| self.product(values)).or_else(|| scale_runs::of(self, values))
    }

    pub fn theory(&self, class: Class, variant: &str, detail: String, bits: f64) -> Theory {
        let who = self.grid.side.name();
        Theory::new(class, who, format!("{who}.{variant}"), detail).bits(bits)
    }

    /// Whether the effective scales are large where the stored ones are, as those of another step are; scales from elsewhere are not. True
    /// where the stored ones do not differ.
    fn follows(&self) -> bool {
        let log = |v: &[f64]| -> Vec<f64> { self.changed.iter().map(|c| v[*c].abs().max(1e-300).ln()).collect() };
        let (x, y) = (log(&self.stored), log(&self.effective));
        let n = x.len() as f64;
        let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
        let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(&y).map(|(a, b)| f(a - mx, b - my)).sum::<f64>();
        let (xx, yy, xy) = (sum(&|a, _| a * a), sum(&|_, b| b * b), sum(&|a, b| a * b));
        xx < n * 0.05f64.powi(2) || xy > 0.5 * (xx * yy).sqrt()
    }

    /// Numbers of all sizes, or none, beside right scales: memory that holds no scales. In words.
    fn garbage(&self) -> Option<String> {
        let who = self.grid.side.name();
        let gains: Vec<f64> = self.changed.iter().map(|c| self.cells.value[*c].abs()).collect();
        // What is solved as 0 has a size of its own, by chance.
        let zeros = self.changed.iter().filter(|c| zero(self.cells, **c)).count();
        let is_number = |(g, c): &(&f64, &usize)| g.is_finite() && **g > 0.0 && !zero(self.cells, **c);
        let numbers: Vec<f64> = gains.iter().zip(&self.changed).filter(is_number).map(|x| *x.0).collect();
        let (least, most) = numbers.iter().fold((f64::INFINITY, 0.0f64), |m, g| (m.0.min(*g), m.1.max(*g)));
        let wild = most > WILD * least || numbers.len() * 20 < gains.len() * 19 && most > 0.0;
        (wild && gains.len() >= 4 && self.changed.len() < self.stored.len() && !self.are_further_on()).then_some(())?;
        // One number is stored where lines have one each: all but the first lie behind it.
        let behind = self.g.grid == (1, 1) && self.cells.value[0] == 1.0;
        let few = 2 * self.changed.len() <= self.stored.len() && self.g.grid == (self.grid.rows, self.grid.cols);
        if behind {
            return Some(format!(
                "one scale of {who} is stored, and each line takes one of its own: numbers of all sizes that lie behind it"
            ));
        }
        // Right up to some line, and then none of those stored.
        let first = self.changed[0];
        let end = (0..self.stored.len()).rev().find(|c| self.cells.within[*c].is_finite())? + 1;
        if first > 0 && 20 * self.changed.len() >= 19 * (end - first) && self.g.grid.1 == 1 {
            return Some(format!(
                "the scales of {who} are right up to {}, and those behind are {zeros} zeros and numbers that are stored nowhere: what lies \
                 behind a buffer that is too short",
                first - 1
            ));
        }
        (few && !self.are_stored()).then(|| {
            format!("some scales of {who} are numbers of all sizes that are stored nowhere: memory that holds no scales")
        })
    }

    /// Whether the changed numbers are those that are stored some places further on, or before, times one factor, and 0 where there is none: another
    /// index beside a gain, and no memory that nobody wrote.
    fn are_further_on(&self) -> bool {
        let known: Vec<usize> = self.changed.iter().copied().filter(|c| !zero(self.cells, *c)).collect();
        let Some(head) = known.first().copied().filter(|_| known.len() >= FURTHER) else { return false };
        let is = |from: &dyn Fn(usize) -> Option<usize>| {
            let ratio = |c: usize| from(c).and_then(|f| self.stored.get(f)).map(|x| self.effective[c] / x);
            let Some(first) = ratio(head).filter(|r| r.is_finite() && *r != 0.0) else { return false };
            known.iter().all(|c| ratio(*c).is_some_and(|r| (r / first - 1.0).abs() <= self.within(*c) + self.within(head)))
        };
        (1..self.stored.len()).any(|d| is(&|c| c.checked_add(d)) || is(&|c| c.checked_sub(d)))
    }

    /// Whether nearly all changed numbers are stored at some place, far more of them than would be by chance: of numbers a little larger or smaller.
    /// Of scales in 8 bits none of those is stored: there nearly all are enough, and no name is given by it.
    fn are_stored(&self) -> bool {
        let mut stored = self.stored.clone();
        stored.sort_by(f64::total_cmp);
        let found = |by: f64| {
            let is = |c: &&usize| {
                let (y, r) = (by * self.effective[**c], self.cells.within[**c] * self.stored[**c].abs());
                stored.get(stored.partition_point(|s| *s < y - r)).is_some_and(|s| *s <= y + r)
            };
            self.changed.iter().filter(is).count() as f64 / self.changed.len() as f64
        };
        let chance = BESIDE.map(found).iter().sum::<f64>() / BESIDE.len() as f64;
        found(1.0) >= STORED && chance <= 0.75 * STORED
    }

    /// Powers of two where others are stored; else numbers that nothing has: a picture, and a name only where every scale is another, by factors
    /// that are far apart, as those of another step or of other experts are.
    fn nameless(&self, values: &mut [f64]) -> Theory {
        let who = self.grid.side.name();
        let power = |x: f64| x > 0.0 && (x.log2() - x.log2().round()).abs() < 1e-3;
        let n = self.changed.len() as f64;
        if self.changed.iter().all(|c| power(self.effective[*c])) && !self.stored.iter().all(|s| power(*s)) {
            self.changed.iter().for_each(|c| values[*c] = self.effective[*c].log2().round().exp2());
            let words = format!("the effective scales of {who} are powers of two, the stored ones are not");
            return self.theory(Class::ScaleRerounded, "pow2", words, 8.0 + 3.0 * n);
        }
        // A gain of 0 is that: what is left of it is noise.
        let is_zero = |c: usize| zero(self.cells, c);
        self.changed.iter().for_each(|c| values[*c] = if is_zero(*c) { 0.0 } else { self.effective[*c] });
        let is_changed = |c: usize| self.cells.value[c] != 1.0;
        let negative = |c: usize| self.stored[c] < 0.0;
        // Beside them, numbers that were rounded again are right.
        let is_right = |c: usize| !is_changed(c) || (self.cells.value[c] - 1.0).abs() <= ROUNDED;
        let signed = (0..self.stored.len()).filter(|c| self.cells.within[*c].is_finite()).all(|c| negative(c) != is_right(c));
        let mut words = format!("the effective scales of {who} are not among the stored ones");
        let gains = || self.changed.iter().map(|c| self.cells.value[*c]);
        let own = self.g.grid == (self.grid.rows, self.grid.cols);
        let every = 20 * self.changed.len() >= 19 * self.cells.within.iter().filter(|w| w.is_finite()).count();
        let both = gains().any(|g| g > 1.02) && gains().any(|g| g < 0.98);
        let (low, high) = gains().fold((f64::INFINITY, 0.0f64), |m, g| (m.0.min(g), m.1.max(g)));
        let stale = own && every && self.s.region.is_none() && (both || self.changed.len() >= MANY && high > APART * low);
        let differences = || self.changed.iter().map(|c| self.effective[*c] - self.stored[*c]);
        let first = self.changed.iter().zip(differences()).find(|(c, _)| !is_right(**c)).map_or(0.0, |x| x.1);
        let constant = self
            .changed
            .iter()
            .zip(differences())
            .filter(|(c, _)| !is_right(**c))
            .all(|(c, d)| (d - first).abs() <= 2.0 * self.within(*c) * self.effective[*c].abs());
        let stale = stale && self.follows();
        let class = if let Some(what) = self.garbage() {
            words = what;
            Class::PaddingPoison
        } else if signed && self.stored.iter().any(|s| *s > 0.0) && self.stored.iter().any(|s| *s < 0.0) {
            words = format!("the negative scales of {who} are read as others, the positive ones are right");
            if constant {
                words += &format!(": {first:.6e} is added");
            }
            Class::BitsReinterpreted
        } else if stale && gains().all(|g| g > 0.0) {
            Class::StaleState
        } else {
            NAMELESS
        };
        let mut t = self.theory(class, "gains", words, 8.0 + NUMBER * n);
        t.fitted = true;
        t.slack = self.changed.iter().filter(|c| !is_zero(**c)).map(|c| self.within(*c)).fold(0.0, f64::max);
        t
    }
}

/// The class of what is solved and has no name.
pub const NAMELESS: Class = Class::VacuousOracle;

/// The theory that reads these scales.
fn read(t: &mut Theory, s: &System, grid: &Grid, values: Arc<Vec<f64>>) -> Option<()> {
    let grid = *grid;
    let g = s.given(grid.side);
    if g.q.is_some() {
        t.side(grid.side).scale = Some(Arc::new(move |i, k| values[grid.cell(i, k)]));
        return Some(());
    }
    let right: Arc<Vec<f64>> = g.values.clone();
    let columns = g.k;
    t.side(grid.side).value = Some(Arc::new(move |i, k| right[i * columns + k] * values[grid.cell(i, k)]));
    Some(())
}
