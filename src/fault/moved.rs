//! Numbers of a grid that stand at, or are taken from, other places than their own, all over or in some rows and columns.
//!
//! ```text
//! fits(p, g): what is at place p could be that of g           wrong: the p that do not fit themselves
//! a way of the grid:  fits(p, way(p)) of every wrong p: it is stored at the wrong place      fits(way(g), g): it is read from the wrong place
//! ```

use super::Class;
use super::solve::maps::{Kind, Map, Way, cost, shortest_ways};
use super::solve::segment::where_not_all;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Bits that the wrong places have to tell, beyond those of the way.
const BITS: f64 = 16.0;
/// Wrong places, and groups that each is held against, to say how much it tells.
const FEW: usize = 256;
/// Rows that are stored as a group.
const ROW_GROUPS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Entries of a line of the grid that say how alike its entries are.
const LINE: usize = 4;

/// The numbers of a grid, by what codes say of them.
pub struct Places<'p> {
    /// What they are.
    pub what: &'p str,
    pub grid: (usize, usize),
    /// Whether what stands at a place could have made the codes of a group.
    pub fits: &'p dyn Fn(usize, usize) -> bool,
    /// Whether the codes are those that the rule makes: then it is the places that are wrong.
    pub right: bool,
}

/// A way that explains all wrong places.
pub struct Found {
    kind: Kind,
    pub words: String,
    pub map: Map,
    /// Whether the number stands where it should not, and not: is taken from where it should not.
    stored: bool,
}

impl Places<'_> {
    pub fn wrong(&self) -> Vec<usize> {
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
    pub fn way(&self, stored: bool, wrong: &[usize]) -> Option<Found> {
        let (rows, cols) = self.grid;
        let few = || wrong.iter().copied().step_by(wrong.len().div_ceil(FEW));
        let (is_row, is_col) = self.region(wrong);
        let inside: Vec<usize> = (0..rows * cols).filter(|p| is_row[p / cols] && is_col[p % cols]).collect();
        let all = shortest_ways(rows, cols).into_iter().chain(within((rows, cols), self.rectangle(wrong))).filter(|w| {
            let of = |p: usize| (w.map)(p / cols, p % cols);
            wrong.iter().all(|p| self.is(stored, *p, of(*p))) && self.bits(stored, few().map(|p| (p, of(p)))) - w.bits >= BITS
        });
        let mut all: Vec<_> = all.take(8).collect();
        let follows = |w: &Way| inside.iter().all(|p| self.is(stored, *p, (w.map)(p / cols, p % cols)));
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

    /// Groups of rows are stored at another distance than that of their rows: they overlap, and the later one stays, or leave gaps.
    fn in_row_groups(&self, wrong: &[usize]) -> Option<Found> {
        let (rows, cols) = self.grid;
        let distances = ROW_GROUPS.into_iter().filter(|h| *h < rows).flat_map(|h| (1..=2 * h).map(move |p| (h, p)));
        distances.filter(|(h, p)| h != p).find_map(|(h, p)| {
            let mut from = vec![None; rows];
            (0..rows).filter(|r| r / h * p + r % h < rows).for_each(|r| from[r / h * p + r % h] = Some(r));
            let of = |at: usize| from[at / cols].map(|r| r * cols + at % cols);
            let stored = |at: usize| of(at).is_none_or(|other| self.is(true, at, other));
            (0..rows * cols).all(stored).then_some(())?;
            let pairs = wrong.iter().filter_map(|at| Some((*at, of(*at)?)));
            let few = pairs.clone().count().div_ceil(FEW).max(1);
            let bits = self.bits(true, pairs.step_by(few)) - cost(h) - cost(p);
            let lost = (0..rows).filter(|r| !from.contains(&Some(*r))).count();
            let words = format!(
                "row r' with (r' / {h})·{p} + r' mod {h} = r, the last of several: groups of {h} rows are {p} rows apart, and {lost} rows are lost"
            );
            let map: Map = Arc::new(move |r, c| from[r].unwrap_or(r) * cols + c);
            (bits >= BITS).then_some(Found { kind: Kind::Layout, words, map, stored: true })
        })
    }

    /// Groups of a row that are stored at the place of several of them: the last that is written stays, or the first; other places are not written.
    fn in_fewer_columns(&self, wrong: &[usize]) -> Option<Found> {
        let (rows, cols) = self.grid;
        let ways = [2, 4, 8, 3].into_iter().filter(|d| *d <= cols).flat_map(|d| [true, false].map(|last| (d, last)));
        ways.into_iter().find_map(|(d, last)| {
            let used = cols.div_ceil(d);
            let of = move |c: usize| (c < used).then(|| if last { (c * d + d - 1).min(cols - 1) } else { c * d });
            let there = |at: &usize| of(at % cols).is_some_and(|c| c != at % cols);
            let is = |at: usize| of(at % cols).is_none_or(|c| self.is(true, at, at / cols * cols + c));
            ((0..rows * cols).all(is) && 2 * wrong.iter().filter(|at| there(at)).count() * d >= wrong.len()).then_some(())?;
            let pairs = wrong.iter().filter(|at| there(at)).map(|at| (*at, at / cols * cols + of(at % cols).unwrap_or(0)));
            let few = pairs.clone().count().div_ceil(FEW).max(1);
            let bits = self.bits(true, pairs.step_by(few)) - cost(d) - 2.0;
            let stays = if last { format!("{d}·c + {}, the last", d - 1) } else { format!("{d}·c, the first") };
            let words = format!(
                "group {stays} of {d} that are stored at the same place: group c at c / {d}; groups {used} … {} are not written",
                cols - 1
            );
            let map: Map = Arc::new(move |r, c| r * cols + of(c).unwrap_or(c));
            (bits >= BITS).then_some(Found { kind: Kind::Index, words, map, stored: true })
        })
    }

    /// The rows and the columns of some places.
    fn region(&self, of: &[usize]) -> (Vec<bool>, Vec<bool>) {
        let (mut is_row, mut is_col) = (vec![false; self.grid.0], vec![false; self.grid.1]);
        of.iter().for_each(|p| (is_row[p / self.grid.1], is_col[p % self.grid.1]) = (true, true));
        (is_row, is_col)
    }

    /// The rows and the columns of the smallest rectangle that has some places.
    pub fn rectangle(&self, of: &[usize]) -> (Range<usize>, Range<usize>) {
        let (is_row, is_col) = self.region(of);
        let span =
            |is: &[bool]| is.iter().position(|x| *x).unwrap_or(0)..is.iter().rposition(|x| *x).map_or(0, |last| last + 1);
        (span(&is_row), span(&is_col))
    }

    /// The same in words: nothing where it is all of them.
    pub fn place(&self, of: &[usize]) -> String {
        let (is_row, is_col) = self.region(of);
        where_not_all("rows", &is_row) + &where_not_all("groups", &is_col)
    }

    /// What is where: class, variant, words.
    pub fn find(&self) -> Option<(Class, &'static str, String)> {
        let (what, (rows, cols), wrong) = (self.what, self.grid, self.wrong());
        (wrong.len() > 1).then_some(())?;
        let found = [self.right, !self.right].into_iter().find_map(|stored| self.way(stored, &wrong));
        let found = found.or_else(|| [self.right, !self.right].into_iter().find_map(|s| self.padded(s, &wrong)));
        let found = found.or_else(|| if self.right { self.in_row_groups(&wrong) } else { None });
        let found = found.or_else(|| self.in_fewer_columns(&wrong))?;
        let place = self.place(&wrong);
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

/// Row and column of a tile, and its height and width, to another row and column of it.
type Within = fn((usize, usize), (usize, usize)) -> (usize, usize);

/// Ways of a rectangle of a grid, not all of it: entries change places within it.
fn within((rows, cols): (usize, usize), (is_row, is_col): (Range<usize>, Range<usize>)) -> Vec<Way> {
    let (top, left, height, width) = (is_row.start, is_col.start, is_row.len(), is_col.len());
    if (height, width) == (rows, cols) {
        return Vec::new();
    }
    let tile = format!("the {height}×{width} tile at ({top}, {left})");
    let way = |kind, what: &str, of: Within| {
        let (is_row, is_col) = (is_row.clone(), is_col.clone());
        let map: Map = Arc::new(move |r, c| {
            if !is_row.contains(&r) || !is_col.contains(&c) {
                return r * cols + c;
            }
            let (i, j) = of((r - top, c - left), (height, width));
            (top + i) * cols + left + j
        });
        Way { kind, words: format!("{what} in {tile}"), bits: 8.0, map }
    };
    let mut all = Vec::new();
    if height == width {
        all.push(way(Kind::Layout, "(c, r)", |(i, j), _| (j, i)));
    } else if height > 1 && width > 1 {
        all.push(way(Kind::Layout, "the entry as if it were stored column by column", |(i, j), (h, w)| {
            let n = j * h + i;
            (n / w, n % w)
        }));
        all.push(way(Kind::Layout, "the entry as if columns were counted first", |(i, j), (h, w)| {
            let n = i * w + j;
            (n % h, n / h)
        }));
    }
    all.push(way(Kind::Layout, "the rows in reverse order", |(i, j), (h, _)| (h - 1 - i, j)));
    all.push(way(Kind::Layout, "the groups in reverse order", |(i, j), (_, w)| (i, w - 1 - j)));
    all.push(way(Kind::Shared, "the next row, the first one behind the last,", |(i, j), (h, _)| ((i + 1) % h, j)));
    all.push(way(Kind::Shared, "the row before, the last one before the first,", |(i, j), (h, _)| ((i + h - 1) % h, j)));
    all.push(way(Kind::Index, "the next group, the first one behind the last,", |(i, j), (_, w)| (i, (j + 1) % w)));
    all.push(way(Kind::Index, "the group before, the last one before the first,", |(i, j), (_, w)| (i, (j + w - 1) % w)));
    all
}
