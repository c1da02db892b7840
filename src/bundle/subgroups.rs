//! Codes of a cast whose groups fall into parts with scales of their own: a reduction that stays within a warp, half a group, a vector.
//!
//! ```text
//! group of G columns  ──►  parts of G/n columns: the scale that each part's codes were made with  ──►  its own largest magnitude, or which other's
//! ```

use super::casts::{Cast, Named, holds};
use crate::Rounding;
use crate::fault::Class;

/// Parts of a group.
const PARTS: [usize; 7] = [2, 3, 4, 6, 8, 16, 32];
/// The fewest columns of a part, and the fewest groups whose parts differ.
const NARROW: usize = 4;
const LEAST: usize = 4;
/// The share of parts that have to follow.
const SHARE: f64 = 0.98;

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
}
