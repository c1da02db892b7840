//! Scales and zero points of a cast that stand at other places of their grid than their own, all over or in some rows and groups: told by which
//! of them could have made the codes of which group.
//!
//! ```text
//! fits(p, g): what is stored at place p could have made the codes of group g           wrong: the p that do not fit themselves
//! a way of the grid:  fits(p, way(p)) of every wrong p: it is stored at the wrong place      fits(way(g), g): it is read from the wrong place
//! ```

use super::casts::{Cast, Named, Range, center, holds};
use super::encoders;
use crate::fault::Class;
use crate::fault::solve::maps::{Kind, Map, cost, shortest_ways};
use crate::fault::solve::segment::lines;
use std::collections::HashSet;
use std::sync::Arc;

/// Bits that the wrong places have to tell, beyond those of the way.
const BITS: f64 = 16.0;
/// Wrong places, and groups that each is held against, to say how much it tells.
const FEW: usize = 256;
/// Entries of a line of the grid that say how alike its entries are.
const LINE: usize = 4;
/// The share of groups that have to be as the rule makes them.
const SHARE: f64 = 0.9;

/// The numbers of a grid, by what codes say of them.
struct Places<'p> {
    /// What they are.
    what: &'p str,
    grid: (usize, usize),
    /// Whether what stands at a place could have made the codes of a group.
    fits: &'p dyn Fn(usize, usize) -> bool,
    /// Whether the codes are those that the rule makes: then it is the places that are wrong.
    right: bool,
}

/// A way that explains all wrong places.
struct Found {
    kind: Kind,
    words: String,
    map: Map,
    /// Whether the number stands where it should not, and not: is taken from where it should not.
    stored: bool,
}

impl Places<'_> {
    fn wrong(&self) -> Vec<usize> {
        (0..self.grid.0 * self.grid.1).filter(|p| !(self.fits)(*p, *p)).collect()
    }
    /// Whether a place fits another one: what is stored there the other's codes, or the other way about.
    fn is(&self, stored: bool, at: usize, other: usize) -> bool {
        if stored { (self.fits)(at, other) } else { (self.fits)(other, at) }
    }

    /// How unlikely it is, in bits, that these places fit those others by chance: as often as all do, or those of the other's row or column, which may
    /// be alike. Each other one tells once.
    fn bits(&self, stored: bool, pairs: impl Iterator<Item = (usize, usize)>) -> f64 {
        let (rows, cols) = self.grid;
        let n = rows * cols;
        let mut seen = HashSet::new();
        let share = |at: usize, all: &mut dyn Iterator<Item = usize>| {
            let (mut count, mut hits) = (0usize, 0usize);
            all.for_each(|x| (count, hits) = (count + 1, hits + usize::from(self.is(stored, at, x))));
            hits.max(1) as f64 / count as f64
        };
        let tells = |(at, other): (usize, usize)| {
            let mut most = share(at, &mut (0..n).step_by(n.div_ceil(FEW)));
            if cols >= LINE {
                most = most.max(share(at, &mut (0..cols).step_by(cols.div_ceil(FEW)).map(|c| other / cols * cols + c)));
            }
            if rows >= LINE {
                most = most.max(share(at, &mut (0..rows).step_by(rows.div_ceil(FEW)).map(|r| r * cols + other % cols)));
            }
            -most.log2()
        };
        pairs.filter(|(_, other)| seen.insert(*other)).map(tells).sum()
    }

    /// The shortest way that all wrong places follow, first of those that the right ones between them follow too.
    fn way(&self, stored: bool, wrong: &[usize]) -> Option<Found> {
        let (rows, cols) = self.grid;
        let few = || wrong.iter().copied().step_by(wrong.len().div_ceil(FEW));
        let (is_row, is_col) = self.region(wrong);
        let inside: Vec<usize> = (0..rows * cols).filter(|p| is_row[p / cols] && is_col[p % cols]).collect();
        let all = shortest_ways(rows, cols).into_iter().filter(|w| {
            let of = |p: usize| (w.map)(p / cols, p % cols);
            wrong.iter().all(|p| self.is(stored, *p, of(*p))) && self.bits(stored, few().map(|p| (p, of(p)))) - w.bits >= BITS
        });
        let mut all: Vec<_> = all.take(8).collect();
        let follows =
            |w: &crate::fault::solve::maps::Way| inside.iter().all(|p| self.is(stored, *p, (w.map)(p / cols, p % cols)));
        let best = all.iter().position(follows).unwrap_or(0);
        let w = (!all.is_empty()).then(|| all.swap_remove(best))?;
        Some(Found { kind: w.kind, words: w.words, map: w.map, stored })
    }

    /// Every place is that of another stride: what lies behind the last one is none of them.
    fn padded(&self, stored: bool, wrong: &[usize]) -> Option<Found> {
        let (rows, cols) = self.grid;
        let n = rows * cols;
        (rows > 1).then_some(())?;
        let most = |line: usize| (2 * line + 16).max(line.next_multiple_of(128)).min(1024);
        let strides = |by_row: bool| (1..=most(if by_row { cols } else { rows })).map(move |s| (by_row, s));
        let ways = strides(true).chain(strides(false)).flat_map(|(by_row, s)| [(by_row, s, true), (by_row, s, false)]);
        ways.filter(|(by_row, s, _)| *s != if *by_row { cols } else { rows }).find_map(|(by_row, s, row_major)| {
            let number = move |r: usize, c: usize| if by_row { r * s + c } else { c * s + r };
            let map: Map = Arc::new(move |r, c| match number(r, c) {
                f if f >= n => n,
                f if row_major => f,
                f => f % rows * cols + f / rows,
            });
            let of = |p: usize| map(p / cols, p % cols);
            if !(0..n).all(|p| of(p) == n || self.is(stored, p, of(p))) {
                return None;
            }
            let pairs = wrong.iter().map(|p| (*p, of(*p))).filter(|(_, other)| *other < n);
            let few = pairs.clone().count().div_ceil(FEW).max(1);
            let line = if by_row { cols } else { rows };
            let bits = self.bits(stored, pairs.step_by(few)) - cost(s.abs_diff(line)) - 2.0;
            let behind = (0..n).filter(|p| of(*p) == n).count();
            let rest = match behind {
                0 => String::new(),
                n => format!("; the {n} places behind the last hold none of them"),
            };
            let formula = if by_row { format!("r·{s} + c") } else { format!("c·{s} + r") };
            let order = if row_major { "row by row" } else { "column by column" };
            let words = format!("number {formula}, counted {order}, as in lines that are {s} apart and not {line}{rest}");
            (bits >= BITS).then(|| Found { kind: Kind::Layout, words, map: map.clone(), stored })
        })
    }

    /// The rows and the columns of some places.
    fn region(&self, of: &[usize]) -> (Vec<bool>, Vec<bool>) {
        let (mut is_row, mut is_col) = (vec![false; self.grid.0], vec![false; self.grid.1]);
        of.iter().for_each(|p| (is_row[p / self.grid.1], is_col[p % self.grid.1]) = (true, true));
        (is_row, is_col)
    }

    /// What is where, in words.
    fn find(&self) -> Option<Named> {
        let (what, (rows, cols), wrong) = (self.what, self.grid, self.wrong());
        (wrong.len() > 1).then_some(())?;
        let found = [self.right, !self.right].into_iter().find_map(|stored| self.way(stored, &wrong));
        let found = found.or_else(|| [self.right, !self.right].into_iter().find_map(|s| self.padded(s, &wrong)))?;
        let (is_row, is_col) = self.region(&wrong);
        let some =
            |name: &str, is: &[bool]| if is.contains(&false) { format!(", in {name} {}", lines(is)) } else { String::new() };
        let place = some("rows", &is_row) + &some("groups", &is_col);
        let words = if found.stored {
            format!(
                "{what} at (r, c) of the {rows}×{cols} grid is that of {}{place}: it made the codes there, and is stored at the wrong place",
                found.words
            )
        } else {
            format!("the codes of group (r, c) of the {rows}×{cols} grid were made with the {what} of {}{place}", found.words)
        };
        // Rows that lost theirs to one that keeps its own share it.
        let keeps = |p: &&usize| {
            let other = (found.map)(**p / cols, **p % cols);
            (self.fits)(other, other)
        };
        let class = match found.kind {
            Kind::Shared if found.stored && 2 * wrong.iter().filter(keeps).count() <= wrong.len() => Class::ScaleIndex,
            kind => kind.class(),
        };
        Some((class, if found.stored { "out.place" } else { "out.index" }, words))
    }
}

impl Cast<'_> {
    /// Scales at places that a way of the grid leads to, in some rows and groups or all over.
    pub fn moved(&self, ranges: &[Range]) -> Option<Named> {
        let max = self.q.format().max_finite();
        let known: Vec<usize> = (0..ranges.len())
            .filter(|g| ranges[*g].0 > 0.0 && ranges[*g].1.is_finite() && !holds(ranges[*g], self.stored[*g]))
            .collect();
        // Scales of few bits are off by their rounding.
        let near = if self.is_pow2() { 2.0 } else { 1.0 + 0.5f64.powi(self.q.scale_format().spec().mantissa.min(9) as i32) };
        let own = |g: &&usize| {
            let by = center(ranges[**g]) * max / self.amax[**g];
            (1.0 / near..=near).contains(&by)
        };
        let right = known.iter().filter(own).count() as f64 >= SHARE * known.len() as f64;
        let fits = |p: usize, g: usize| holds(ranges[g], self.stored[p]);
        Places { what: "scale_inv", grid: self.grid, fits: &fits, right }.find()
    }
}

impl encoders::Cast<'_> {
    /// Zero points that stand at, or are taken from, other places than their own: by which of them make the codes beside the stored scales.
    pub fn zero_places(&self) -> Option<encoders::Named> {
        let f = self.q.format();
        (!self.zero.is_empty() && f.is_integer()).then_some(())?;
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let n = self.zero.len();
        let (mut ranges, mut least): (Vec<Range>, _) = (vec![(f64::NEG_INFINITY, f64::INFINITY); n], vec![0.0f64; n]);
        for at in self.finite() {
            let (g, e, v) = (self.q.scale_index(at / cols, at % cols), self.element(at), self.value(at));
            // A tie, and what a division and a sum are off.
            let (by, near) = (v - e.y(), 0.5 + 1e-5 * (1.0 + e.y().abs()));
            least[g] = least[g].min(e.y());
            let (low, high) = &mut ranges[g];
            if v > f.min_finite() {
                *low = low.max(by - near);
            }
            if v < f.max_finite() {
                *high = high.min(by + near);
            }
        }
        ranges.iter().all(|(low, high)| low <= high).then_some(())?;
        let holds = |g: usize, z: f64| ranges[g].0 <= z && z <= ranges[g].1;
        let fits = |p: usize, g: usize| holds(g, self.zero[p]);
        // By the rule the smallest value is the smallest code.
        let by_rule = |g: &usize| (-1..=1).any(|d| holds(*g, (f.min_finite() - least[*g]).round() + f64::from(d)));
        let share = |all: Vec<usize>| all.iter().filter(|g| by_rule(g)).count() as f64 / all.len().max(1) as f64;
        let (wrong, others): (Vec<usize>, Vec<usize>) = (0..n).partition(|g| !fits(*g, *g));
        let right = 2.0 * share(wrong) >= share(others);
        let grid = self.q.granularity().grid(rows, cols);
        let (class, variant, words) = Places { what: "zero point", grid, fits: &fits, right }.find()?;
        Some((class, format!("{variant}_of_zero"), words))
    }
}
