//! Names for solved numbers: effective scales held against the stored ones, effective zero points against the stored ones.

use super::effective::{Ask, Cells, Grid, solve, thin};
use super::given::Given;
use super::scales;
use super::segment::lines;
use super::system::{System, Theory};
use crate::Zero;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// How far the two numbers of a line through all scales may make a sum be off, relative to its magnitude.
const LINE: f64 = 2e-3;
/// Bits of an index that was found cell by cell, and of a number that was.
const INDEX: f64 = 3.0;
const NUMBER: f64 = 16.0;

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
struct Gains<'s> {
    s: &'s System<'s>,
    g: &'s Given,
    grid: Grid,
    cells: &'s Cells,
    /// Cells that are not right, what they were multiplied by, and the scale that is stored for them.
    changed: Vec<usize>,
    effective: Vec<f64>,
    stored: Vec<f64>,
}

impl Gains<'_> {
    /// How far the effective scale may be off, relative.
    fn within(&self, c: usize) -> f64 {
        (self.cells.within[c] / self.cells.value[c].abs()).max(1e-6)
    }

    /// For every changed cell the place of a stored number that `wanted` is, the cell's own before another. `None`: some have none, or as
    /// many are near as not.
    fn places(&self, numbers: &[f64], wanted: &dyn Fn(usize) -> f64) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
        let mut choices = 0;
        let mut all = Vec::new();
        for c in &self.changed {
            let (x, r) = (wanted(*c), self.within(*c) * wanted(*c).abs());
            let from = order.partition_point(|n| numbers[*n] < x - r);
            let near: Vec<usize> = order[from..].iter().copied().take_while(|n| numbers[*n] <= x + r).collect();
            // Equal numbers are one.
            let mut distinct: Vec<u64> = near.iter().map(|n| numbers[*n].to_bits()).collect();
            distinct.dedup();
            choices += distinct.len();
            let best = |a: &usize, b: &usize| (numbers[*a] - x).abs().total_cmp(&(numbers[*b] - x).abs());
            all.push(near.into_iter().min_by(best)?);
        }
        (choices <= all.len() + all.len() / 2).then_some(all)
    }

    /// The factor between the effective scales of some cells and these numbers, where it is one.
    fn factor_of(&self, numbers: &dyn Fn(usize) -> f64, cells: &[usize]) -> Option<(f64, f64)> {
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
    fn factor(&self, numbers: &dyn Fn(usize) -> f64) -> Option<(f64, f64)> {
        let range = self.factor_of(numbers, &self.changed)?;
        let same = (0..self.stored.len()).filter(|c| !self.changed.contains(c)).all(|c| {
            let x = self.stored[c] / numbers(c);
            let r = self.cells.within[c].min(1e300) * x.abs() + 1e-6 * x.abs();
            x - r <= range.1 && range.0 <= x + r
        });
        same.then_some(range)
    }
}

/// The gains of one grid, as scales: a rule, other places, the other operand's, products with stored numbers; else no name.
fn gain(s: &System, base: &Theory, grid: &Grid, cells: &Cells, thin: bool) -> Option<Theory> {
    let g = s.given(grid.side);
    let who = grid.side.name();
    let at = |cell: usize| (cell / grid.cols * grid.tile.0, cell % grid.cols * grid.tile.1);
    let stored: Vec<f64> = (0..cells.value.len()).map(|c| g.step(at(c).0, at(c).1)).collect();
    let changed: Vec<usize> = (0..stored.len()).filter(|c| cells.value[*c] != 1.0).collect();
    // A number that is known to a quarter says nothing.
    let known = changed.iter().filter(|c| cells.within[**c] <= 0.25 * cells.value[**c].abs()).count();
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
        let t = self.clamped(values).or_else(|| self.rule(values)).or_else(|| self.lines_elsewhere(values));
        t.or_else(|| self.elsewhere(values)).or_else(|| self.product(values))
    }

    /// Whether the effective scales rise with the stored ones in a line, to a share of their spread.
    fn correlates(&self, least: f64) -> bool {
        let n = self.changed.len() as f64;
        let mean = |v: &[f64]| self.changed.iter().map(|c| v[*c]).sum::<f64>() / n;
        let (mx, my) = (mean(&self.stored), mean(&self.effective));
        let sum = |f: &dyn Fn(f64, f64) -> f64| {
            self.changed.iter().map(|c| f(self.stored[*c] - mx, self.effective[*c] - my)).sum::<f64>()
        };
        let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
        xx > n * (0.02 * mx).powi(2) && xy > least * (xx * yy).sqrt()
    }

    /// Whole numbers over one, that follow the stored scales: scales quantized to 8 bits whose own scale and offset are not applied.
    fn whole(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        (self.changed.len() >= 8 && self.correlates(0.98)).then_some(())?;
        for over in [127.0, 128.0, 255.0, 256.0, 1.0, 15.0, 63.0, 7.0] {
            let n = |c: usize| self.effective[c] * over / self.g.global;
            let known: Vec<usize> = self.changed.iter().copied().filter(|c| self.within(*c) * n(*c).abs() < 0.2).collect();
            let is = |c: &usize| {
                let x = n(*c);
                x.abs() <= 256.0 && (x - x.round()).abs() <= self.within(*c) * x.abs() + 1e-4
            };
            // The others are near a whole number by chance.
            if known.len() < 8 || known.len() * 10 < self.changed.len() * 8 || !known.iter().all(is) {
                continue;
            }
            self.changed.iter().for_each(|c| values[*c] = n(*c).round() / over * self.g.global);
            let words = format!(
                "the scales of {who} are whole numbers over {over} that follow the stored ones: 8-bit scales without their own scale and offset"
            );
            return Some(self.theory(Class::ScaleOmitted, "second_level", words, 24.0));
        }
        None
    }

    /// One line through all cells: effective = α·stored + β.
    fn affine(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        (self.changed.len() >= 8 && self.correlates(0.999)).then_some(())?;
        let mut line = super::linear::Normal::new(2);
        for c in &self.changed {
            let r = self.within(*c) * self.effective[*c].abs();
            line.add(&[self.stored[*c], 1.0], self.effective[*c], 1.0 / (r * r).max(1e-300));
        }
        let v = line.solve()?;
        let (mut by, mut plus) = (v[0], v[1]);
        let holds = |by: f64, plus: f64| {
            (0..self.stored.len()).filter(|c| self.cells.within[*c].is_finite()).all(|c| {
                (self.stored[c] * by + plus - self.effective[c]).abs() <= (self.within(c) + 1e-6) * self.effective[c].abs()
            })
        };
        // An offset that is a mean of the stored ones, or none beside a factor.
        let mean = self.stored.iter().sum::<f64>() / self.stored.len() as f64;
        let what = if holds(1.0, -mean) {
            (by, plus) = (1.0, -mean);
            "lack their mean".to_string()
        } else if holds(1.0, plus) {
            by = 1.0;
            format!("have {plus:.6e} added")
        } else if holds(by, plus) && plus != 0.0 {
            format!("are {by:.6} times the stored ones plus {plus:.6e}")
        } else {
            return None;
        };
        // One factor alone is no line.
        (plus.abs() > 0.02 * self.changed.iter().map(|c| self.effective[*c].abs()).fold(0.0, f64::max)).then_some(())?;
        (0..values.len()).for_each(|c| values[c] = by * self.stored[c] + plus);
        let words = format!("the scales of {who} {what}: an offset and a scale of scales that are not those stored");
        let mut t = self.theory(Class::ScaleOmitted, "offset", words, 30.0);
        t.fitted = plus != -mean;
        t.slack = if t.fitted { LINE } else { 0.0 };
        Some(t)
    }

    fn theory(&self, class: Class, variant: &str, detail: String, bits: f64) -> Theory {
        let who = self.grid.side.name();
        Theory::new(class, who, format!("{who}.{variant}"), detail).bits(bits)
    }

    /// One limit for all scales: those beyond it have it, and the others are right.
    fn clamped(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        (self.changed.len() >= 3 && self.changed.len() < self.stored.len()).then_some(())?;
        let (low, high) = self.factor_of(&|_| 1.0, &self.changed)?;
        let limit = super::output::roundest(low, high);
        let spread = self.changed.iter().any(|c| (self.stored[*c] - limit).abs() > 0.1 * limit.abs());
        let near = 2f64.powi(-7) * limit.abs();
        let is_changed = |c: usize| self.cells.value[c] != 1.0;
        let side = |above: bool| {
            (0..self.stored.len()).all(|c| {
                let d = if above { self.stored[c] - limit } else { limit - self.stored[c] };
                if is_changed(c) { d > -near } else { d < near }
            })
        };
        let (above, below) = (side(true), side(false));
        (limit > 0.0 && spread && above != below).then_some(())?;
        let what = if above { "above" } else { "below" };
        for v in values.iter_mut() {
            *v = if above { v.min(limit) } else { v.max(limit) };
        }
        let words = format!("the scales of {who} are clamped from {what} at {}", super::output::short(limit, high - low));
        let mut t = self.theory(Class::RangeRule, "clamped", words, 20.0);
        (t.fitted, t.slack) = (true, (high - low) / limit);
        Some(t)
    }

    /// A rule of all scales, and one factor beside it.
    fn rule(&self, values: &mut [f64]) -> Option<Theory> {
        let who = self.grid.side.name();
        let global = self.g.global;
        for rule in scales::RULES.iter().filter(|r| scales::applies(r, self.g)) {
            let by = |c: usize| (rule.4)(self.stored[c] / global) * global;
            let Some((low, high)) = self.factor(&by) else { continue };
            let one = low <= 1.0 && 1.0 <= high;
            // One factor behind a rule needs numbers that differ.
            let spread = self.changed.iter().any(|c| (by(*c) - by(self.changed[0])).abs() > 0.01 * by(*c).abs());
            let told = spread || self.stored.iter().any(|s| (s - self.stored[0]).abs() > 0.1 * s.abs());
            if !one && (!told || self.changed.len() < 3) {
                continue;
            }
            // A rare rule and a factor beside it are two numbers taken from the result, as is a factor that leaves nothing.
            if !one && (rule.3 >= 3.0 || !(1e-6..1e6).contains(&high.abs()) || high - low > 0.05 * high.abs()) {
                continue;
            }
            let by_all = if one { 1.0 } else { super::output::roundest(low, high) };
            (0..values.len()).for_each(|c| values[c] = by(c) * by_all);
            let mut t = self.theory(rule.0, rule.1, format!("the scales of {who} are {}", rule.2), rule.3 + 4.0);
            if !one {
                t.variant = format!("{} + {}:out.gain", t.variant, Class::StaleState.name());
                t.detail = format!("{}; and all is times {}", t.detail, super::output::short(by_all, high - low));
                (t.fitted, t.slack) = (true, (high - low) / by_all.abs());
                t.bits += 22.0;
            }
            return Some(t);
        }
        None
    }

    /// Every wrong column of the grid has the scales of one other column, or every wrong row those of one other row: lines decide where
    /// single cells do not.
    fn lines_elsewhere(&self, values: &mut [f64]) -> Option<Theory> {
        let (rows, cols) = (self.grid.rows, self.grid.cols);
        (self.g.grid == (rows, cols) && rows > 1 && cols > 1).then_some(())?;
        let who = self.grid.side.name();
        for along_k in [true, false] {
            let (lines, length) = if along_k { (cols, rows) } else { (rows, cols) };
            let cell = |line: usize, x: usize| if along_k { x * cols + line } else { line * cols + x };
            let known = |line: usize| (0..length).filter(move |x| self.cells.within[cell(line, *x)].is_finite());
            let is = |line: usize, from: usize| {
                known(line).all(|x| {
                    let (c, e) = (cell(line, x), self.stored[cell(from, x)]);
                    (self.effective[c] - e).abs() <= (self.within(c) + 1e-6) * self.effective[c].abs()
                })
            };
            let source = |line: usize| -> Option<usize> {
                let wrong = (0..length).filter(|x| self.cells.value[cell(line, *x)] != 1.0).count();
                if wrong == 0 {
                    return Some(line);
                }
                // Two lines that fit say nothing.
                let mut fit = (0..lines).filter(|from| *from != line && is(line, *from));
                let from = fit.next()?;
                (fit.next().is_none() && wrong > 2).then_some(from)
            };
            let Some(from) = (0..lines).map(source).collect::<Option<Vec<usize>>>() else { continue };
            let moved: Vec<usize> = (0..lines).filter(|l| from[*l] != *l).collect();
            for line in &moved {
                (0..length).for_each(|x| values[cell(*line, x)] = self.stored[cell(from[*line], x)]);
            }
            let some: Vec<String> = moved.iter().take(4).map(|l| format!("{l} ← {}", from[*l])).collect();
            let (what, class) = if along_k { ("K group", Class::ScaleIndex) } else { ("row", Class::ScaleShared) };
            let words = format!("scales of {who} are taken from another {what} ({})", some.join(", "));
            let bits = 6.0 + moved.len() as f64 * INDEX.max((lines as f64).log2());
            return Some(self.theory(class, "lines", words, bits));
        }
        None
    }

    /// Stored scales of other places, of this operand or of the other.
    fn elsewhere(&self, values: &mut [f64]) -> Option<Theory> {
        let (who, they) = (self.grid.side.name(), self.grid.side.other().name());
        let own = self.g.grid == (self.grid.rows, self.grid.cols);
        if own
            && self.stored.len() > 1
            && let Some(from) = self.places(&self.stored, &|c| self.effective[c])
        {
            let moved: Vec<(usize, usize)> = self.changed.iter().copied().zip(from).collect();
            let cols = self.grid.cols;
            let same_row = moved.iter().all(|(c, f)| c / cols == f / cols);
            let same_col = moved.iter().all(|(c, f)| c % cols == f % cols);
            let mut sources: Vec<usize> = moved.iter().map(|(_, f)| *f).collect();
            sources.sort_unstable();
            sources.dedup();
            let shared = 4 * sources.len() < 3 * moved.len();
            let class = match (same_row, same_col) {
                _ if sources.len() == 1 && moved.len() > 1 => Class::ScaleShared,
                (true, false) => Class::ScaleIndex,
                (false, true) if shared => Class::ScaleShared,
                _ => Class::ScaleLayout,
            };
            moved.iter().for_each(|(c, f)| values[*c] = self.stored[*f]);
            let place = |c: usize| if cols == 1 { format!("{c}") } else { format!("({}, {})", c / cols, c % cols) };
            let first: Vec<String> = moved.iter().take(4).map(|(c, f)| format!("{} ← {}", place(*c), place(*f))).collect();
            let words = format!("scales of {who} are taken from other places ({})", first.join(", "));
            let bits = 8.0 + moved.len() as f64 * INDEX.max((self.stored.len() as f64).log2());
            return Some(self.theory(class, "index", words, bits));
        }
        let theirs = self.theirs();
        if theirs.len() > 1
            && let Some(from) = self.places(&theirs, &|c| self.effective[c] / self.g.global)
        {
            self.changed.iter().zip(&from).for_each(|(c, f)| values[*c] = theirs[*f] * self.g.global);
            let bits = 8.0 + self.changed.len() as f64 * INDEX.max((theirs.len() as f64).log2());
            let words = format!("scales of {they} are used for {who}");
            return Some(self.theory(Class::ScaleLayout, &format!("of_{they}"), words, bits));
        }
        None
    }

    fn theirs(&self) -> Vec<f64> {
        let other = self.s.given(self.grid.side.other());
        other.scales().iter().map(|x| f64::from(*x)).collect()
    }

    /// The right scale, times or over another stored number.
    fn product(&self, values: &mut [f64]) -> Option<Theory> {
        let (who, they) = (self.grid.side.name(), self.grid.side.other().name());
        let own: Vec<f64> = self.g.scales().iter().map(|x| f64::from(*x)).collect();
        let theirs = self.theirs();
        // What has neither scale: the effective one is the other's reciprocal.
        if self.changed.len() > 1
            && let Some(from) = self.places(&theirs, &|c| 1.0 / self.effective[c])
        {
            self.changed.iter().zip(&from).for_each(|(c, f)| values[*c] = 1.0 / theirs[*f]);
            let bits = 9.0 + self.changed.len() as f64;
            return Some(self.theory(Class::ScaleOmitted, "neither", "neither scale is applied to it".into(), bits));
        }
        for (numbers, whose) in [(&own, who), (&theirs, they)] {
            for (over, word) in [(false, "multiplied by"), (true, "divided by")] {
                let wanted = |c: usize| if over { 1.0 / self.cells.value[c] } else { self.cells.value[c] };
                if numbers.len() < 2 || self.changed.len() < 2 {
                    continue;
                }
                let Some(from) = self.places(numbers, &wanted) else { continue };
                for (c, f) in self.changed.iter().zip(&from) {
                    values[*c] *= if over { 1.0 / numbers[*f] } else { numbers[*f] };
                }
                let words = format!("what has its scale of {who} is {word} a scale of {whose} too");
                let bits = 9.0 + self.changed.len() as f64 * INDEX.max((numbers.len() as f64).log2());
                return Some(self.theory(
                    Class::ScaleDoubledInverted,
                    &format!("{}_{whose}", if over { "over" } else { "times" }),
                    words,
                    bits,
                ));
            }
        }
        None
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

    /// Powers of two where others are stored; else numbers that nothing has: a picture, and a name only where every scale is another, some
    /// larger and some smaller, as those of another step are.
    fn nameless(&self, values: &mut [f64]) -> Theory {
        let who = self.grid.side.name();
        let power = |x: f64| x > 0.0 && (x.log2() - x.log2().round()).abs() < 1e-3;
        let n = self.changed.len() as f64;
        if self.changed.iter().all(|c| power(self.effective[*c])) && !self.stored.iter().all(|s| power(*s)) {
            self.changed.iter().for_each(|c| values[*c] = self.effective[*c].log2().round().exp2());
            let words = format!("the effective scales of {who} are powers of two, the stored ones are not");
            return self.theory(Class::ScaleRerounded, "pow2", words, 8.0 + 3.0 * n);
        }
        self.changed.iter().for_each(|c| values[*c] = self.effective[*c]);
        let is_changed = |c: usize| self.cells.value[c] != 1.0;
        let negative = |c: usize| self.stored[c] < 0.0;
        let signed = (0..self.stored.len()).filter(|c| self.cells.within[*c].is_finite()).all(|c| negative(c) == is_changed(c));
        let mut words = format!("the effective scales of {who} are no stored numbers");
        let gains = || self.changed.iter().map(|c| self.cells.value[*c]);
        let own = self.g.grid == (self.grid.rows, self.grid.cols);
        let every = 20 * self.changed.len() >= 19 * self.cells.within.iter().filter(|w| w.is_finite()).count();
        let stale = own && every && self.s.region.is_none() && gains().any(|g| g > 1.02) && gains().any(|g| g < 0.98);
        let differences = || self.changed.iter().map(|c| self.effective[*c] - self.stored[*c]);
        let first = differences().next().unwrap_or(0.0);
        let constant = self
            .changed
            .iter()
            .zip(differences())
            .all(|(c, d)| (d - first).abs() <= 2.0 * self.within(*c) * self.effective[*c].abs());
        let stale = stale && self.follows();
        let class = if signed && self.stored.iter().any(|s| *s > 0.0) {
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
        t.slack = self.changed.iter().map(|c| self.within(*c)).fold(0.0, f64::max);
        t
    }
}

/// One line for all scales, α·stored + β: two unknowns for the whole result, where single cells say too little.
pub fn line(s: &System, side: Which) -> Option<Theory> {
    let g = s.given(side);
    (!s.alone && g.q.is_some() && g.scales().len() >= 8).then_some(())?;
    // The same with a scale of one: what is added to all of them.
    let mut ones = Theory::right();
    let unit = g.global;
    ones.side(side).scale = Some(Arc::new(move |_, _| unit));
    let right = Theory::right();
    let mut system = super::linear::Normal::new(2);
    let mut n = 0;
    for (i, j) in s.probes.iter().filter(|(i, j)| s.region.as_ref().is_none_or(|r| r.has(*i, *j))) {
        let ((own, size), (one, _)) = (s.sum(&right, *i, *j), s.sum(&ones, *i, *j));
        if let Some((y, half)) = s.written(*i, *j, size) {
            system.add(&[own, one], y, 1.0 / (half * half));
            n += 1;
        }
    }
    (n >= 12).then_some(())?;
    let (v, within) = system.solve_within()?;
    let spread = g.scales().iter().fold((f64::INFINITY, 0.0f64), |m, x| (m.0.min(f64::from(*x)), m.1.max(f64::from(*x))));
    let (mut by, plus) = (v[0], v[1]);
    let mean = g.scales().iter().map(|x| f64::from(*x)).sum::<f64>() / g.scales().len() as f64;
    // A factor alone is no line, and scales that are all the same say none.
    (spread.1 > 1.1 * spread.0
        && plus.abs() > 16.0 * within[1]
        && plus.abs() > 0.01 * mean.abs()
        && by.abs() > 16.0 * within[0])
        .then_some(())?;
    // Numbers that are known no better say whatever they are asked.
    let off = within[0] + within[1] / mean.abs().max(1e-300);
    if (by - 1.0).abs() <= 4.0 * within[0] {
        by = 1.0;
    }
    let natural = by == 1.0 && (plus + mean).abs() <= 4.0 * within[1];
    (natural || off <= LINE).then_some(())?;
    let plus = if natural { -mean } else { plus };
    let who = side.name();
    let how = match (natural, by == 1.0) {
        (true, _) => "lack their mean".to_string(),
        (_, true) => format!("have {plus:.5e} added"),
        _ => format!("are {by:.5} times the stored ones plus {plus:.5e}"),
    };
    let words = format!("the scales of {who} {how}: an offset or a scale of scales that is not applied");
    let mut t = Theory::new(Class::ScaleOmitted, who, format!("{who}.offset"), words).bits(26.0);
    t.fitted = !natural;
    t.freedom = 2;
    t.slack = if natural { 0.0 } else { off };
    let (scales, tile, cols): (Vec<f64>, _, _) = (g.scales().iter().map(|x| f64::from(*x)).collect(), g.tile, g.grid.1);
    t.side(side).scale = Some(Arc::new(move |i, k| (by * scales[i / tile.0 * cols + k / tile.1] + plus) * unit));
    Some(t)
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

/// Theories of the zero points of one side on top of `base`, which has them right.
pub fn offsets(s: &System, base: &Theory, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let mut all = vec![Grid::of(s, side, g.tile)];
    let rows = Grid::of(s, side, (1, g.k));
    if !all.contains(&rows) {
        all.push(rows);
    }
    all.iter()
        .filter_map(|grid| {
            let cells = solve(s, base, grid, Ask::Offset)?;
            cells.value.iter().any(|d| *d != 0.0).then_some(())?;
            offset(s, base, grid, &cells)
        })
        .take(1)
        .collect()
}

fn offset(s: &System, base: &Theory, grid: &Grid, cells: &Cells) -> Option<Theory> {
    let g: &Given = s.given(grid.side);
    let who = grid.side.name();
    g.q.as_ref()?;
    // In steps of the code; whole ones, all but those that nothing says.
    let whole: Vec<f64> = cells.value.iter().map(|d| d.round()).collect();
    let sure = |c: usize| {
        !cells.within[c].is_finite() || (cells.within[c] < 0.3 && (cells.value[c] - whole[c]).abs() <= cells.within[c] + 1e-3)
    };
    (0..whole.len()).all(sure).then_some(())?;
    let changed: Vec<usize> = (0..whole.len()).filter(|c| whole[*c] != 0.0).collect();
    let first = *changed.first()?;
    let own = g.grid == (grid.rows, grid.cols);
    let zero: Option<Vec<f64>> = match (&g.zero, own) {
        (Some((z, None)), true) => Some(z.clone()),
        _ => None,
    };
    let same = changed.iter().all(|c| whole[*c] == whole[first]);
    let every = changed.len() == (0..whole.len()).filter(|c| cells.within[*c].is_finite()).count();
    let size = whole[first].abs();
    let direction = if whole[first] > 0.0 { "large" } else { "small" };
    let which: Vec<bool> = whole.iter().map(|d| *d != 0.0).collect();
    let mut t = Theory::new(Class::ZpOffset, who, format!("{who}.offset"), String::new());
    t.bits = 8.0 + 2.0 * changed.len() as f64;
    t.freedom = changed.len();
    t.detail = match &zero {
        _ if same && every => format!("the zero points of {who} are {size} too {direction}"),
        Some(z) if same && changed.iter().all(|c| z[*c] == z[first]) => {
            format!("the zero points of {who} that are {} are {size} too {direction}", z[first])
        }
        Some(z) if changed.iter().all(|c| whole[*c] + z[*c] == whole[first] + z[first]) => {
            t.class = Class::ZpCorrection;
            format!("{} is used instead of the zero points of {who}", whole[first] + z[first])
        }
        Some(z) if changed.iter().all(|c| z.contains(&(whole[*c] + z[*c]))) && !same => {
            t.class = Class::ZpCorrection;
            t.variant = format!("{who}.zero_index");
            format!("the zero points of {who} are taken from other places: cells {} of the grid", lines(&which))
        }
        _ if same => format!("the zero points of {who} are {size} too {direction} in cells {}", lines(&which)),
        _ => format!(
            "the zero points of {who} are off by whole steps: {} in cell {first}, … (cells {})",
            whole[first],
            lines(&which)
        ),
    };
    if same {
        t.bits = 10.0;
    }
    let (grid, own_tile, own_cols) = (*grid, g.tile, g.grid.1);
    let shift = move |i: usize, k: usize| whole[grid.cell(i, k)];
    match &g.zero {
        Some((z, mid)) => {
            let z = z.clone();
            let additive = mid.is_some();
            let steps: Vec<f64> =
                g.q.as_ref().map_or_else(Vec::new, |q| q.scale_inv().iter().map(|x| f64::from(*x) * g.global).collect());
            t.side(grid.side).zero = Some(Arc::new(move |i, k| {
                let cell = i / own_tile.0 * own_cols + k / own_tile.1;
                let step = if additive { -steps[cell] } else { 1.0 };
                z[cell] + step * shift(i, k)
            }));
        }
        None => {
            matches!(g.q.as_ref()?.zero(), Zero::None).then_some(())?;
            t.detail = format!("{}, where none are stored", t.detail);
            let right = g.values.clone();
            let columns = g.k;
            let steps: Vec<f64> = g.q.as_ref()?.scale_inv().iter().map(|x| f64::from(*x) * g.global).collect();
            t.side(grid.side).value = Some(Arc::new(move |i, k| {
                right[i * columns + k] - shift(i, k) * steps[i / own_tile.0 * own_cols + k / own_tile.1]
            }));
        }
    }
    let t = if base.is_plain() { t } else { base.with(&t)? };
    Some(t)
}
