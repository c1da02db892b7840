//! Scales of right codes that stand in other places of the grid than their own: at another row stride, in rows in reverse order, or a few rows or
//! groups away.

use super::casts::{Cast, Named, Range, center, holds};
use crate::fault::Class;
use crate::fault::solve::segment::lines;

/// Bits that groups have to tell, for the scale of a neighbour.
const NEIGHBOURS: f64 = 24.0;

/// Scales that stand elsewhere, for another stride.
const STRIDES: usize = 3;
/// Rows that a column of scales may be padded by, at most.
const PADDED: usize = 128;

impl Cast<'_> {
    /// Where the scales stand that no short formula of the grid places.
    pub fn elsewhere(&self, ranges: &[Range]) -> Option<Named> {
        self.strides(ranges)
            .or_else(|| self.column_strides(ranges).or_else(|| self.tile_strides(ranges)))
            .or_else(|| self.of_neighbours(ranges))
            .or_else(|| self.moved(ranges))
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
            self.written_by(ranges, &writer)
        })?;
        let words = format!(
            "scales are stored at a row stride of {stride} instead of {cols}: group (r, c) of the grid at r·{stride} + c"
        );
        Some((Class::ScaleLayout, "out.stride", words))
    }

    /// Whether each place holds the scale of the group that `writer` says (`None`: nobody's), enough of these groups none of their own.
    pub fn written_by(&self, ranges: &[Range], writer: &dyn Fn(usize) -> Option<usize>) -> bool {
        let told = |p: &usize| {
            writer(*p)
                .is_some_and(|g| g != *p && ranges[g].1.is_finite() && ranges[g].0 > 0.0 && !holds(ranges[g], self.stored[g]))
        };
        (0..ranges.len()).all(|p| writer(p).is_none_or(|g| holds(ranges[g], self.stored[p])))
            && (0..ranges.len()).filter(told).count() >= STRIDES
    }

    /// Scales that are written column by column with the rows padded, and read without the padding: each column is so many rows further off.
    fn column_strides(&self, ranges: &[Range]) -> Option<Named> {
        let (rows, cols) = self.grid;
        (rows > 1 && cols > 1).then_some(())?;
        let is = |stride: &usize| {
            // What is written at the place that group (r, c) is read from.
            let writer = |g: usize| {
                let p = g % cols * rows + g / cols;
                let (r, c) = (p % stride, p / stride);
                (r < rows && c < cols).then_some(r * cols + c)
            };
            self.written_by(ranges, &writer)
        };
        let stride = (rows + 1..=rows + PADDED).chain([2 * rows, rows.next_power_of_two()]).find(is)?;
        let words = format!(
            "scales are written column by column at a stride of {stride} and read at one of {rows}: column c of the grid is {}·c rows off",
            stride - rows
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor, Tensor, Zero};

    const ROWS: usize = 6;
    const COLS: usize = 5;

    /// The scale of a group, a number of its own.
    fn right(g: usize) -> f64 {
        1.0 + g as f64 / 64.0
    }

    /// What codes of a scale say of it.
    fn near(s: f64) -> Range {
        (s * (1.0 - 1e-4), s * (1.0 + 1e-4))
    }

    /// A cast with these scales on a grid of [`ROWS`] × [`COLS`].
    fn with<R>(stored: impl Fn(usize) -> f64, see: impl FnOnce(&Cast) -> R) -> R {
        let n = ROWS * COLS;
        let x = Tensor::new(Format::F32, ROWS, 4 * COLS, vec![1.0; 4 * n]).unwrap();
        let q = QTensor::new(QTensorParts {
            format: Format::E4m3,
            rows: ROWS,
            cols: 4 * COLS,
            codes: vec![0x38; 4 * n],
            granularity: Granularity::Group(4),
            scale_format: Format::F32,
            scale_inv: vec![1.0; n],
            zero: Zero::None,
            level: None,
        });
        let q = q.unwrap();
        let mut cast = Cast::of(&x, &q);
        cast.stored = (0..n).map(stored).collect();
        see(&cast)
    }

    #[test]
    fn every_other_stride_of_the_scales_is_told() {
        let ranges: Vec<Range> = (0..ROWS * COLS).map(|g| near(right(g))).collect();
        for stride in (1..2 * COLS).filter(|s| *s != COLS) {
            let mut stored = [9.0; ROWS * COLS];
            for g in 0..ROWS * COLS {
                if let Some(place) = stored.get_mut(g / COLS * stride + g % COLS) {
                    *place = right(g);
                }
            }
            let (class, variant, words) = with(|p| stored[p], |cast| cast.elsewhere(&ranges)).unwrap();
            assert_eq!((class, variant), (Class::ScaleLayout, "out.stride"), "{stride}");
            let words_of = format!("a row stride of {stride} instead of 5: group (r, c) of the grid at r·{stride} + c");
            assert!(words.ends_with(&words_of), "{words}");
        }
        assert_eq!(with(right, |cast| cast.strides(&ranges)), None, "each at its own place");
    }

    #[test]
    fn columns_of_scales_with_padded_rows_are_told() {
        let ranges: Vec<Range> = (0..ROWS * COLS).map(|g| near(right(g))).collect();
        for stride in [8, 7, 12] {
            // Places between the columns hold 0.
            let of = |g: usize| {
                let p = g % COLS * ROWS + g / COLS;
                if p % stride < ROWS { right(p % stride * COLS + p / stride) } else { 0.0 }
            };
            let (class, variant, words) = with(of, |cast| cast.elsewhere(&ranges)).unwrap();
            assert_eq!((class, variant), (Class::ScaleLayout, "out.stride"), "{words}");
            assert!(words.contains(&format!("column by column at a stride of {stride} and read at one of 6")), "{words}");
        }
        assert_eq!(with(right, |cast| cast.column_strides(&ranges)), None, "each at its own place");
    }

    /// Scales that are all alike stand at any stride, and one that is stale says no more.
    #[test]
    fn one_stale_scale_among_equal_ones_tells_no_stride() {
        for odd in 0..ROWS * COLS {
            let ranges: Vec<Range> = (0..ROWS * COLS).map(|_| near(1.0)).collect();
            let of = |g: usize| if g == odd { 2.0 } else { 1.0 };
            assert_eq!(with(of, |cast| cast.strides(&ranges).or_else(|| cast.column_strides(&ranges))), None, "{odd}");
        }
    }

    /// Scales at their own places are those of any stride in the first row, and groups of zeros say nothing.
    #[test]
    fn three_scales_at_other_places_tell_a_stride() {
        let told = |rows: usize, cols: usize| {
            let known = |g: usize| g / COLS == 0 || g / COLS <= rows && g % COLS < cols;
            let ranges: Vec<Range> =
                (0..ROWS * COLS).map(|g| if known(g) { near(right(g)) } else { (0.0, f64::INFINITY) }).collect();
            // Stride 7: group (r, c) stands at 7·r + c.
            let of = |p: usize| if p % 7 < COLS { right(p / 7 * COLS + p % 7) } else { 9.0 };
            with(of, |cast| cast.strides(&ranges)).is_some()
        };
        assert_eq!([told(0, 0), told(1, 2), told(1, 3), told(2, 1), told(3, 1)], [false, false, true, false, true]);
    }

    #[test]
    fn scales_of_a_neighbour_are_told_with_its_distance() {
        // Rows 2 and 3, or groups 2 and 3 of them, by the scale of another group.
        let of = |inside: &dyn Fn(usize) -> bool, from: &dyn Fn(usize) -> usize| {
            let ranges: Vec<Range> = (0..ROWS * COLS).map(|g| near(right(if inside(g) { from(g) } else { g }))).collect();
            with(right, |cast| cast.elsewhere(&ranges))
        };
        let rows = |g: usize| matches!(g / COLS, 2 | 3);
        let words =
            |n: usize, what: &str| Some(format!("the codes of {n} groups, in rows 2 … 3, were made with the scale of {what}"));
        let named = |found: Option<Named>, class: Class| {
            found.map(|(is, variant, words)| {
                assert_eq!((is, variant), (class, "out.neighbour"), "{words}");
                words
            })
        };
        for (from, what) in [(-5isize, "the row before"), (5, "the row behind"), (-10, "2 rows before"), (10, "2 rows behind")]
        {
            let found = of(&rows, &|g| g.checked_add_signed(from).unwrap());
            assert_eq!(named(found, Class::ScaleShared), words(10, what));
        }
        let both = |g: usize| rows(g) && matches!(g % COLS, 2 | 3);
        for (from, what) in [(-1isize, "the group before"), (-2, "2 groups before")] {
            let found = of(&both, &|g| g.checked_add_signed(from).unwrap());
            assert_eq!(named(found, Class::ScaleIndex), words(4, what));
        }
        let found = of(&|g| rows(g) && g % COLS < 3, &|g| g + 2);
        assert_eq!(named(found, Class::ScaleIndex), words(6, "2 groups behind"));
        // Two groups of twelve bits each say enough, one does not.
        let few = |n: usize| {
            with(right, |cast| {
                let ranges: Vec<Range> = (0..ROWS * COLS)
                    .map(|g| near(right(if g % COLS == 1 && (1..=n).contains(&(g / COLS)) { g - COLS } else { g })))
                    .collect();
                cast.of_neighbours(&ranges).is_some()
            })
        };
        assert_eq!([few(1), few(2)], [false, true]);
    }

    #[test]
    fn rows_of_scales_in_reverse_order_are_told() {
        let of = |first: usize, last: usize| {
            let from =
                |g: usize| if (first..=last).contains(&(g / COLS)) { (first + last - g / COLS) * COLS + g % COLS } else { g };
            let ranges: Vec<Range> = (0..ROWS * COLS).map(|g| near(right(from(g)))).collect();
            with(right, |cast| cast.of_neighbours(&ranges))
        };
        for (first, last) in [(0, 5), (1, 4), (1, 3), (2, 5)] {
            let words = format!("the scales of rows {first} … {last} of the grid are stored in reverse order");
            assert_eq!(of(first, last), Some((Class::ScaleIndex, "out.reversed", words)));
        }
        assert_eq!(of(2, 3), None, "two rows are exchanged");
    }
}
