//! Codes of a cast whose groups fall into parts with scales of their own: a reduction that stays within a warp, half a group, a vector.
//!
//! ```text
//! group of G columns  ──►  parts of G/n columns: the scale that each part's codes were made with  ──►  its own largest magnitude, or which other's
//! ```

use super::casts::{Cast, Named, holds};
use crate::Rounding;
use crate::fault::Class;
use crate::fault::solve::segment;

/// Parts of a group.
const PARTS: [usize; 7] = [2, 3, 4, 6, 8, 16, 32];
/// The fewest columns of a part, and the fewest groups whose parts differ.
const NARROW: usize = 4;
const LEAST: usize = 4;
/// The share of parts that have to follow.
const SHARE: f64 = 0.98;
/// How far an amax may be from the largest magnitude that it is said to be, relative.
const NEAR: f64 = 1.0 / 1024.0;
/// Bits that lines left out have to tell beyond those of where they are.
const BITS: f64 = 8.0;

impl Cast<'_> {
    /// Parts of groups by their own scales.
    pub fn in_parts(&self) -> Option<Named> {
        let (cols, (height, width)) = (self.q.cols(), self.tile);
        PARTS.into_iter().filter(|n| width.is_multiple_of(*n) && width / n >= NARROW).find_map(|n| {
            let part = width / n;
            let of = |at: usize| self.group(at) * n + at % cols % width / part;
            let count = self.stored.len() * n;
            let x = |at: usize| f64::from(self.x.data()[at]);
            let ranges = self.ranges(0..self.q.codes().len(), Rounding::NearestEven, x, of, count)?;
            let mut amax = vec![0.0f64; count];
            (0..self.q.codes().len()).for_each(|at| amax[of(at)] = amax[of(at)].max(x(at).abs()));
            let max = self.q.format().max_finite();
            let told: Vec<usize> = (0..count).filter(|p| amax[*p] > 0.0 && ranges[*p].1.is_finite()).collect();
            // By its own amax, or by a power of two that it gives.
            let own = |p: &&usize| {
                let s = amax[**p] / max;
                let (low, high) = ranges[**p];
                holds(ranges[**p], s) || self.is_pow2() && low <= 2.0 * s && high >= 0.5 * s
            };
            let parts = told.iter().filter(own).count();
            let differs = |g: &usize| (0..n).any(|p| amax[g * n + p] > 0.0 && !holds(ranges[g * n + p], self.stored[*g]));
            let differ = (0..self.stored.len()).filter(differs).count();
            (parts as f64 >= SHARE * told.len() as f64 && differ >= LEAST).then_some(())?;
            // Whose scale is stored.
            let groups = || (0..self.stored.len()).filter(|g| (0..n).all(|p| amax[g * n + p] > 0.0));
            let is = |p: usize| groups().filter(|g| holds(ranges[g * n + p], self.stored[*g])).count() as f64 >= SHARE * groups().count() as f64;
            let stored = match (is(0), is(n - 1)) {
                (true, _) => "; the scale stored is that of the first part",
                (_, true) => "; the scale stored is that of the last part",
                _ => "",
            };
            let of = if height > 1 { format!("{height}×{width}") } else { width.to_string() };
            let words = format!("each {part} columns of a group of {of} are coded by the largest magnitude of their own{stored}: the reduction does not reach the whole group");
            Some((Class::AmaxScope, "out.amax_parts", words))
        })
    }

    /// Groups that are counted over the flat tensor, although every row starts one of its own: codes by the scales of these.
    pub fn flat(&self) -> Option<Named> {
        let (cols, (height, width)) = (self.q.cols(), self.tile);
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

    /// The first or the last columns or rows that the amax of some blocks covers alone, where that of others covers all: `used` for every block, the
    /// `wrong` ones. All blocks of their rows and groups follow.
    pub fn part_of_some(&self, used: &[f64], wrong: &[usize]) -> Option<String> {
        let (rows, cols, (height, width), (grid_rows, grid_cols)) = (self.x.rows(), self.x.cols(), self.tile, self.grid);
        let (mut is_row, mut is_col) = (vec![false; grid_rows], vec![false; grid_cols]);
        wrong.iter().for_each(|g| (is_row[g / grid_cols], is_col[g % grid_cols]) = (true, true));
        let inside: Vec<usize> =
            (0..used.len()).filter(|g| is_row[g / grid_cols] && is_col[g % grid_cols] && self.amax[*g] > 0.0).collect();
        for by_cols in [true, false] {
            let length = |g: usize| match by_cols {
                true => width.min(cols - g % grid_cols * width),
                false => height.min(rows - g / grid_cols * height),
            };
            let mut largest: Vec<Vec<f64>> = (0..used.len()).map(|g| vec![0.0; length(g)]).collect();
            for (at, v) in self.x.data().iter().enumerate() {
                let line = if by_cols { at % cols % width } else { at / cols % height };
                let l = &mut largest[self.group(at)][line];
                *l = l.max(f64::from(v.abs()));
            }
            for last in [false, true] {
                // So many lines of each block, at least and at most.
                let (mut least, mut most) = (1, usize::MAX);
                for g in &inside {
                    let l = &largest[*g];
                    let line = |n: usize| if last { l[l.len() - 1 - n] } else { l[n] };
                    let (low, high) = (used[*g] * (1.0 - NEAR), used[*g] * (1.0 + NEAR));
                    least = least.max((0..l.len()).find(|n| line(*n) >= low).map_or(usize::MAX, |n| n + 1));
                    most = most.min((0..l.len()).find(|n| line(*n) > high).unwrap_or(usize::MAX));
                }
                if least > most || most == usize::MAX {
                    continue;
                }
                // Lines with larger ones would be anywhere: all of them are behind the first `most`.
                let tells = |g: &usize| {
                    let (l, n) = (&largest[*g], largest[*g].len() as f64);
                    let missed = l.iter().filter(|x| **x > used[*g] * (1.0 + NEAR)).count() as f64;
                    missed * (n / (n - most as f64)).log2()
                };
                let longest = inside.iter().map(|g| largest[*g].len()).max()?;
                if wrong.iter().map(tells).sum::<f64>() - (4.0 * longest as f64).log2() < BITS {
                    continue;
                }
                // Of all that fit, the roundest.
                let n = (least..=most).max_by_key(|n| n.trailing_zeros())?;
                let (side, lines) = (if last { "last" } else { "first" }, if by_cols { "columns" } else { "rows" });
                return Some(format!(
                    "amax of the blocks in rows {}, groups {} of the {grid_rows}×{grid_cols} grid is that of their {side} {n} of {longest} {lines} alone; \
                     the other blocks have theirs",
                    segment::lines(&is_row),
                    segment::lines(&is_col)
                ));
            }
        }
        None
    }
}
