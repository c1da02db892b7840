//! Codes of a cast whose groups fall into parts with scales of their own: a reduction that stays within a warp, half a group, a vector, or leaves a step
//! of its exchange out.
//!
//! ```text
//! column k of a group of G: part (k / w) mod n      n·w = G: runs of G/n columns      else every nth run of w columns
//! part  ──►  the scale that its codes were made with  ──►  its own largest magnitude
//! ```

use super::casts::{Cast, Named, Range, holds};
use crate::Rounding;
use crate::fault::Class;
use crate::fault::solve::segment;
use std::collections::HashSet;

/// Parts of a group.
const PARTS: [usize; 7] = [2, 3, 4, 6, 8, 16, 32];
/// Columns of a lane, or of a run of lanes, and how many take turns.
const RUNS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const TURNS: [usize; 4] = [2, 4, 8, 16];
/// The fewest columns of a part, and the fewest groups whose parts differ.
const NARROW: usize = 4;
const LEAST: usize = 4;
/// The share of parts that have to follow.
const SHARE: f64 = 0.98;
/// Parts that refuse a rule before all are asked.
const FIRST: usize = 64;
/// Rules of `Cast::exponent`.
const RULES: usize = 6;
/// How far an amax may be from the largest magnitude that it is said to be, relative.
const NEAR: f64 = 1.0 / 1024.0;
/// Bits that lines left out have to tell beyond those of where they are.
const BITS: f64 = 8.0;

/// The scales that the codes of each part say, and the part's largest magnitude.
pub type Parts = (Vec<Range>, Vec<f64>);

impl Cast<'_> {
    /// Parts of groups by their own scales.
    pub fn in_parts(&self) -> Option<Named> {
        let (cols, (height, width)) = (self.q.cols(), self.tile);
        let ways = PARTS.into_iter().map(|n| (n, width / n)).chain(RUNS.into_iter().flat_map(|w| TURNS.map(|n| (n, w))));
        let fits = |(n, w): &(usize, usize)| width.is_multiple_of(n * w) && width / n >= NARROW && *w > 0;
        let mut seen = HashSet::new();
        ways.filter(fits).filter(|way| seen.insert(*way)).find_map(|(n, run)| {
            let part = width / n;
            let of = |at: usize| self.group(at) * n + at % cols % width / run % n;
            let count = self.stored.len() * n;
            let parts = self.parts(of, count)?;
            let (ranges, amax) = (&parts.0, &parts.1);
            let differs = |g: &usize| (0..n).any(|p| amax[g * n + p] > 0.0 && !holds(ranges[g * n + p], self.stored[*g]));
            let differ = (0..self.stored.len()).filter(differs).count();
            (differ >= LEAST && self.follow(n, &parts, amax)).then_some(())?;
            // Whose scale is stored.
            let groups = || (0..self.stored.len()).filter(|g| (0..n).all(|p| amax[g * n + p] > 0.0));
            let is = |p: usize| groups().filter(|g| holds(ranges[g * n + p], self.stored[*g])).count() as f64 >= SHARE * groups().count() as f64;
            let stored = match (is(0), is(n - 1)) {
                (true, _) => "; the scale stored is that of the first part",
                (_, true) => "; the scale stored is that of the last part",
                _ => "",
            };
            let of = if height > 1 { format!("{height}×{width}") } else { width.to_string() };
            let words = if n * run == width {
                format!("each {part} columns of a group of {of} are coded by the largest magnitude of their own{stored}: the reduction does not reach the whole group")
            } else {
                format!(
                    "of a group of {of}, columns k of equal (k / {run}) mod {n} are coded by the largest magnitude of their own{stored}: the exchange \
                     between lanes of {run} leaves a step out"
                )
            };
            Some((Class::AmaxScope, "out.amax_parts", words))
        })
    }

    /// The scales that the codes of each of `count` parts say, and its largest magnitude. `None`: codes of one contradict each other.
    pub fn parts(&self, of: impl Fn(usize) -> usize, count: usize) -> Option<Parts> {
        let n = self.q.codes().len();
        let x = |at: usize| f64::from(self.x.data()[at]);
        let ranges = self.ranges(0..n, Rounding::NearestEven, x, &of, count)?;
        let mut amax = vec![0.0f64; count];
        (0..n).for_each(|at| amax[of(at)] = amax[of(at)].max(x(at).abs()));
        Some((ranges, amax))
    }

    /// Whether parts, `n` of each group, are coded by the amax that each sees: nearly all of those that the stored scale does not code, and nearly all.
    /// By all alone, a fault of a few parts lies within what is left.
    pub fn follow(&self, n: usize, (ranges, amax): &Parts, seen: &[f64]) -> bool {
        let (max, power) = (self.q.format().max_finite(), self.is_pow2());
        let told = (0..ranges.len()).filter(|p| amax[*p] > 0.0 && ranges[*p].1.is_finite());
        let (differ, same): (Vec<usize>, Vec<usize>) = told.partition(|p| !holds(ranges[*p], self.stored[p / n]));
        let enough = |hit: usize, all: usize| hit as f64 >= SHARE * all as f64;
        let few = &differ[..differ.len().min(FIRST)];
        let all_are = |is: &dyn Fn(&usize) -> bool| {
            enough(few.iter().filter(|p| is(p)).count() + 1, few.len())
                && enough(differ.iter().filter(|p| is(p)).count(), differ.len())
                && enough(same.iter().filter(|p| is(p)).count() + differ.len(), same.len() + differ.len())
        };
        if !power {
            return all_are(&|p| holds(ranges[*p], seen[*p] / max));
        }
        // One rule for all parts. The stored scale is of the whole group, or of a part at its end.
        let stored = |p: usize| [self.amax[p / n], amax[p / n * n], amax[p / n * n + n - 1]];
        let rules = (0..RULES).flat_map(|rule| (0..3).map(move |of| (rule, of)));
        rules.into_iter().any(|(rule, of)| {
            all_are(&|p| {
                let by = self.exponent(rule, seen[*p]) - self.exponent(rule, stored(*p)[of]);
                holds(ranges[*p], self.stored[p / n] * by.exp2())
            })
        })
    }

    /// The exponent of the power of two of an amax by one of the rules that recipes have, but for what is the same for all.
    fn exponent(&self, rule: usize, amax: f64) -> f64 {
        let f = self.q.format();
        let even = 2.0 - (-f64::from(f.spec().mantissa) - 1.0).exp2();
        let e = (amax / [1.0, even, f.max_finite()][rule / 2]).log2();
        if rule.is_multiple_of(2) { e.floor() } else { e.ceil() }
    }

    /// Groups that are counted over the flat tensor, although every row starts one of its own: codes by the scales of these.
    pub fn flat(&self) -> Option<Named> {
        let (cols, (height, width)) = (self.q.cols(), self.tile);
        if height > 1 && height != width {
            return self.exchanged_sides();
        }
        (height == 1 && width < cols && !cols.is_multiple_of(width)).then_some(())?;
        let n = self.q.codes().len();
        let last = self.stored.len() - 1;
        let of = |at: usize| (at / width).min(last);
        let x = |at: usize| f64::from(self.x.data()[at]);
        let ranges = self.ranges(0..n, Rounding::NearestEven, x, of, self.stored.len())?;
        let told = (0..ranges.len()).filter(|g| ranges[*g].1.is_finite() && ranges[*g].0 > 0.0).count();
        let right = (0..ranges.len()).all(|g| holds(ranges[g], self.stored[g]));
        (right && told >= LEAST).then(|| {
            let words = format!(
                "codes are made with the scale of group (row·{cols} + column) / {width}, counted over the flat tensor, although every row starts a \
                 group of its own"
            );
            (Class::ScaleIndex, "out.flat", words)
        })
    }

    /// Codes by the scale of the block that an index with height and width exchanged gives.
    fn exchanged_sides(&self) -> Option<Named> {
        let (cols, (height, width), grid_cols) = (self.q.cols(), self.tile, self.grid.1);
        let (n, last) = (self.q.codes().len(), self.stored.len() - 1);
        let index = |at: usize| (at / cols / width * grid_cols + at % cols / height).min(last);
        let x = |at: usize| f64::from(self.x.data()[at]);
        let ranges = self.ranges(0..n, Rounding::NearestEven, x, index, self.stored.len())?;
        let told = (0..ranges.len()).filter(|g| ranges[*g].1.is_finite() && ranges[*g].0 > 0.0).count();
        let right = (0..ranges.len()).all(|g| holds(ranges[g], self.stored[g]));
        (right && told >= LEAST).then(|| {
            let words = format!(
                "codes of element (i, j) are made with scale (i / {width})·{grid_cols} + j / {height}: the sides of the {height}×{width} blocks are \
                 exchanged"
            );
            (Class::ScaleIndex, "out.sides", words)
        })
    }

    /// The first or the last columns or rows that the amax of some blocks covers alone, where that of others covers all: `used` for every block, the
    /// `wrong` ones. All blocks of their rows and groups follow, or all of their rows, or of their groups.
    pub fn part_of_some(&self, used: &[f64], wrong: &[usize]) -> Option<String> {
        let (rows, cols) = self.grid;
        let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
        wrong.iter().for_each(|g| (is_row[g / cols], is_col[g % cols]) = (true, true));
        let (any_row, any_col) = (vec![true; rows], vec![true; cols]);
        let regions = [(&is_row, &is_col), (&any_row, &is_col), (&is_row, &any_col)];
        let ways = [(true, false), (true, true), (false, false), (false, true)];
        ways.into_iter().find_map(|(by_cols, last)| {
            let lines = self.lines_of_blocks(by_cols, last);
            let of = |(is_row, is_col): &(&Vec<bool>, &Vec<bool>)| {
                let inside = |g: &usize| is_row[g / cols] && is_col[g % cols] && self.amax[*g] > 0.0;
                let inside: Vec<usize> = (0..used.len()).filter(inside).collect();
                let n = covered(&lines, used, &inside)?;
                Some((n, inside.iter().map(|g| lines[*g].len()).max()?, segment::lines(is_row), segment::lines(is_col)))
            };
            let (n, longest, of_rows, of_groups) = regions.iter().find_map(of)?;
            let (side, what) = (if last { "last" } else { "first" }, if by_cols { "columns" } else { "rows" });
            Some(format!(
                "amax of the blocks in rows {of_rows}, groups {of_groups} of the {rows}×{cols} grid is that of their {side} {n} of {longest} \
                 {what} alone; the other blocks have theirs"
            ))
        })
    }

    /// The largest magnitude of every column or row of each block, from the first or from the last on.
    fn lines_of_blocks(&self, by_cols: bool, from_last: bool) -> Vec<Vec<f64>> {
        let (rows, cols, (height, width), grid_cols) = (self.x.rows(), self.x.cols(), self.tile, self.grid.1);
        let length = |g: usize| match by_cols {
            true => width.min(cols - g % grid_cols * width),
            false => height.min(rows - g / grid_cols * height),
        };
        let mut all: Vec<Vec<f64>> = (0..self.stored.len()).map(|g| vec![0.0; length(g)]).collect();
        for (at, v) in self.x.data().iter().enumerate() {
            let line = if by_cols { at % cols % width } else { at / cols % height };
            let of = &mut all[self.group(at)];
            let line = if from_last { of.len() - 1 - line } else { line };
            of[line] = of[line].max(f64::from(v.abs()));
        }
        all
    }
}

/// How many lines of every block of `inside` its amax covers; `None`: no number of them, or what shows it may be chance. That of a wrong block misses
/// lines, all of which are behind those; that of a right one has its largest among those.
fn covered(lines: &[Vec<f64>], used: &[f64], inside: &[usize]) -> Option<usize> {
    let (mut least, mut most) = (1, usize::MAX);
    for g in inside {
        let first = |is: &dyn Fn(f64) -> bool| lines[*g].iter().position(|x| is(*x));
        least = least.max(first(&|x| x >= used[*g] * (1.0 - NEAR))? + 1);
        most = most.min(first(&|x| x > used[*g] * (1.0 + NEAR)).unwrap_or(usize::MAX));
    }
    (least <= most && most < usize::MAX).then_some(())?;
    let longest = inside.iter().map(|g| lines[*g].len()).max()?;
    let tells = |g: &usize| {
        let n = lines[*g].len() as f64;
        let behind = lines[*g].iter().filter(|x| **x > used[*g] * (1.0 + NEAR)).count() as f64;
        let before = most as f64 / n;
        if behind > 0.0 { -behind * (1.0 - before).log2() } else { -before.min(1.0).log2() }
    };
    let bits = inside.iter().map(tells).sum::<f64>() - (4.0 * longest as f64).log2();
    // Of all that fit, the roundest.
    if bits >= BITS { (least..=most).max_by_key(|n| n.trailing_zeros()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor, Tensor, Zero};

    /// A cast of 5 × 6 numbers in blocks of 2 × 4: three by two, the last ones short.
    #[test]
    fn lines_of_a_block_are_counted_from_either_end() {
        let (rows, cols) = (5, 6);
        let data: Vec<f32> =
            (0..rows * cols).map(|at| ((at * 7 % 31) as f32 + 1.0) * if at % 3 == 0 { -1.0 } else { 1.0 }).collect();
        let x = Tensor::new(Format::F32, rows, cols, data).unwrap();
        let parts = QTensorParts {
            format: Format::E4m3,
            rows,
            cols,
            codes: vec![0; rows * cols],
            granularity: Granularity::Block { rows: 2, cols: 4 },
            scale_format: Format::F32,
            scale_inv: vec![1.0; 6],
            zero: Zero::None,
            level: None,
        };
        let q = QTensor::new(parts).unwrap();
        let cast = Cast::of(&x, &q);
        let at = |i: usize, j: usize| f64::from(x.row(i)[j].abs());
        let most = |of: &mut dyn Iterator<Item = f64>| of.fold(0.0, f64::max);
        for g in 0..6 {
            let (i, j) = (g / 2 * 2..(g / 2 * 2 + 2).min(rows), g % 2 * 4..(g % 2 * 4 + 4).min(cols));
            let mut of_cols: Vec<f64> = j.clone().map(|j| most(&mut i.clone().map(|i| at(i, j)))).collect();
            let mut of_rows: Vec<f64> = i.map(|i| most(&mut j.clone().map(|j| at(i, j)))).collect();
            assert_eq!(
                [cast.lines_of_blocks(true, false)[g].clone(), cast.lines_of_blocks(false, false)[g].clone()],
                [of_cols.clone(), of_rows.clone()],
                "{g}"
            );
            of_cols.reverse();
            of_rows.reverse();
            assert_eq!(
                [cast.lines_of_blocks(true, true)[g].clone(), cast.lines_of_blocks(false, true)[g].clone()],
                [of_cols, of_rows],
                "{g}"
            );
        }
    }

    /// Sixteen blocks of eight lines, whose largest magnitudes stand anywhere.
    #[test]
    fn an_amax_covers_as_many_lines_as_all_blocks_allow() {
        let lines: Vec<Vec<f64>> = (0..16).map(|g| (0..8).map(|l| ((g * 13 + l * 29) % 53) as f64 + 1.0).collect()).collect();
        let first = |g: usize, n: usize| lines[g][..n].iter().copied().fold(0.0, f64::max);
        let all: Vec<usize> = (0..16).collect();
        for n in 1..7 {
            let used: Vec<f64> = (0..16).map(|g| first(g, n)).collect();
            // Any number of lines that makes no block another amax.
            let same: Vec<usize> = (1..=8).filter(|m| (0..16).all(|g| first(g, *m) == used[g])).collect();
            assert_eq!(same, [n]);
            assert_eq!(covered(&lines, &used, &all), Some(n));
            // A little less or more is the same amax.
            let near: Vec<f64> = used.iter().map(|u| u * (1.0 + 0.9 * NEAR)).collect();
            assert_eq!(covered(&lines, &near, &all), Some(n));
        }
        let used: Vec<f64> = (0..16).map(|g| first(g, 8)).collect();
        assert_eq!(covered(&lines, &used, &all), None, "all lines are covered");
        let used: Vec<f64> = (0..16).map(|g| 0.5 * first(g, 3)).collect();
        assert_eq!(covered(&lines, &used, &all), None, "an amax that no number of lines has");
        let used: Vec<f64> = (0..16).map(|g| 1.5 * first(g, 8)).collect();
        assert_eq!(covered(&lines, &used, &all), None, "an amax above all lines");
    }

    /// Each right block whose largest is among the first half tells a bit; a choice among 4·8 numbers costs five, chance eight more.
    #[test]
    fn blocks_have_to_tell_more_than_chance() {
        let told = |right: usize| {
            // Line 4 of the first block is missed: one of four behind it is larger.
            let mut lines = vec![vec![3.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0]];
            lines.extend((0..right).map(|_| vec![1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0]));
            let used: Vec<f64> = std::iter::once(3.0).chain(std::iter::repeat_n(5.0, right)).collect();
            covered(&lines, &used, &(0..=right).collect::<Vec<_>>())
        };
        // −log2(1 − ½) of the wrong one and −log2(½) of every right one: thirteen in all.
        assert_eq!([told(11), told(12)], [None, Some(4)]);
    }
}
