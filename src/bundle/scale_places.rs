//! Scales of right codes that stand in other places of the grid than their own: at another row stride, in rows in reverse order, or a few rows or
//! groups away.

use super::casts::{Cast, Named, Range, center, holds};
use crate::fault::Class;
use crate::fault::solve::segment::lines;

/// Bits that groups have to tell, for the scale of a neighbour.
const NEIGHBOURS: f64 = 24.0;

/// Scales that stand elsewhere, for another stride.
const STRIDES: usize = 3;

impl Cast<'_> {
    /// Where the scales stand that no short formula of the grid places.
    pub fn elsewhere(&self, ranges: &[Range]) -> Option<Named> {
        self.strides(ranges).or_else(|| self.of_neighbours(ranges)).or_else(|| self.moved(ranges))
    }

    /// Groups whose codes were made with the scale of another one, so many rows or groups before or behind it; all others are right.
    fn of_neighbours(&self, ranges: &[Range]) -> Option<Named> {
        let (rows, cols) = self.grid;
        let wrong: Vec<usize> = (0..ranges.len()).filter(|g| !holds(ranges[*g], self.stored[*g])).collect();
        let far = |n: usize| (0..8).map(|p| 1isize << p).filter(move |d| d.unsigned_abs() < n).flat_map(|d| [-d, d]);
        let offsets = far(rows).map(|d| (d, 0)).chain(far(cols).map(|d| (0, d)));
        let of = |g: usize, (dr, dc): (isize, isize)| {
            let (r, c) = ((g / cols).checked_add_signed(dr)?, (g % cols).checked_add_signed(dc)?);
            (r < rows && c < cols).then(|| r * cols + c)
        };
        // What a range tells, in bits: how narrow it is.
        let told =
            |g: usize| if ranges[g].1.is_finite() { (center(ranges[g]) / (ranges[g].1 - ranges[g].0)).log2() } else { 0.0 };
        let enough = wrong.iter().map(|g| told(*g).clamp(0.0, 12.0)).sum::<f64>() >= NEIGHBOURS;
        let all =
            |d: &(isize, isize)| wrong.iter().all(|g| of(*g, *d).is_some_and(|from| holds(ranges[*g], self.stored[from])));
        if !enough {
            return None;
        }
        let Some(d) = offsets.into_iter().find(all) else { return self.reversed(ranges, &wrong) };
        let (by, what, class) = if d.0 == 0 { (d.1, "group", Class::ScaleIndex) } else { (d.0, "row", Class::ScaleShared) };
        let (mut is_row, n) = (vec![false; rows], by.unsigned_abs());
        wrong.iter().for_each(|g| is_row[g / cols] = true);
        let side = if by < 0 { "before" } else { "behind" };
        let which = if n == 1 { format!("the {what} {side}") } else { format!("{n} {what}s {side}") };
        let words =
            format!("the codes of {} groups, in rows {}, were made with the scale of {which}", wrong.len(), lines(&is_row));
        Some((class, "out.neighbour", words))
    }

    /// Scales that are stored at another row stride of the grid: later rows lie over earlier ones, or places between them are not written.
    fn strides(&self, ranges: &[Range]) -> Option<Named> {
        let (rows, cols) = self.grid;
        let stride = (1..2 * cols).filter(|s| *s != cols).find(|stride| {
            // The last that is stored there.
            let writer = |p: usize| {
                let r = (p / stride).min(rows - 1);
                let c = p - r * stride;
                (c < cols).then_some(r * cols + c)
            };
            let told = |p: &usize| writer(*p).is_some_and(|g| g != *p && ranges[g].1.is_finite() && ranges[g].0 > 0.0);
            (0..ranges.len()).all(|p| writer(p).is_none_or(|g| holds(ranges[g], self.stored[p])))
                && (0..ranges.len()).filter(told).count() >= STRIDES
        })?;
        let words = format!(
            "scales are stored at a row stride of {stride} instead of {cols}: group (r, c) of the grid at r·{stride} + c"
        );
        Some((Class::ScaleLayout, "out.stride", words))
    }

    /// Rows whose scales stand in reverse order, all others right.
    fn reversed(&self, ranges: &[Range], wrong: &[usize]) -> Option<Named> {
        let cols = self.grid.1;
        let (first, last) = (wrong.first()? / cols, wrong.last()? / cols);
        let holds = |g: &usize| holds(ranges[*g], self.stored[(first + last - g / cols) * cols + g % cols]);
        (last >= first + 2 && wrong.iter().all(holds)).then(|| {
            let words = format!("the scales of rows {first} … {last} of the grid are stored in reverse order");
            (Class::ScaleIndex, "out.reversed", words)
        })
    }
}
