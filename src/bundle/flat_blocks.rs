//! Blocks of a cast that are cut from the flat tensor although every row starts a block of its own, with scales of their own.
//!
//! ```text
//! element (i, j) of rows of C ──► block (i·C + j) / G          scale of (i, b): that of the block in which it starts, or the next of the list
//! ```

use super::casts::{Cast, Named, holds};
use crate::Rounding;
use crate::fault::Class;

/// Blocks that lie over the end of a row and say their scale, at least.
const LEAST: usize = 4;
/// The share of blocks that have to be scaled by their own largest magnitude.
const SHARE: f64 = 0.98;

impl Cast<'_> {
    /// Codes and scales of blocks that go on over the ends of rows.
    pub fn flat_blocks(&self) -> Option<Named> {
        let (cols, (height, width), grid_cols) = (self.q.cols(), self.tile, self.grid.1);
        (height == 1 && width < cols && !cols.is_multiple_of(width)).then_some(())?;
        let n = self.q.codes().len();
        let count = n.div_ceil(width);
        let x = |at: usize| f64::from(self.x.data()[at]);
        let ranges = self.ranges(0..n, Rounding::NearestEven, x, |at| at / width, count)?;
        let mut amax = vec![0.0f64; count];
        (0..n).for_each(|at| amax[at / width] = amax[at / width].max(x(at).abs()));
        let max = self.q.format().max_finite();
        let told: Vec<usize> =
            (0..count).filter(|b| amax[*b] > 0.0 && ranges[*b].1.is_finite() && ranges[*b].0 > 0.0).collect();
        let own = |b: &&usize| {
            let (s, (low, high)) = (amax[**b] / max, ranges[**b]);
            holds(ranges[**b], s) || self.is_pow2() && low <= 2.0 * s && high >= 0.5 * s
        };
        let over = told.iter().filter(|b| *b * width / cols != (*b * width + width - 1) / cols).count();
        (over >= LEAST && told.iter().filter(own).count() as f64 >= SHARE * told.len() as f64).then_some(())?;
        let by = |block: &dyn Fn(usize) -> usize| {
            let all = 0..self.stored.len();
            all.filter(|g| block(*g) < count).all(|g| holds(ranges[block(g)], self.stored[g]))
        };
        let start = |g: usize| (g / grid_cols * cols + g % grid_cols * width) / width;
        let stored = match (by(&start), by(&|g| g)) {
            (true, _) => "the scale stored for a block of a row is that of the block in which it starts",
            (_, true) => "their scales are stored one behind the other",
            _ => return None,
        };
        let words = format!(
            "blocks of {width} are cut from the flat tensor, element (i, j) in block (i·{cols} + j) / {width}, although every row starts a block of \
             its own: they go on over the ends of rows; {stored}"
        );
        Some((Class::ScaleIndex, "out.flat_blocks", words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Overflow, QTensor, Tensor, Zero};

    /// What is said of 24 rows of 80 in blocks of 32, codes by block `of` an element, scales by `stored` of a group.
    fn said(of: &dyn Fn(usize) -> usize, stored: &dyn Fn(usize) -> usize) -> Option<Named> {
        said_by(of, stored, &|_| 1.0)
    }

    /// The same with the scale of each block times `more`.
    fn said_by(of: &dyn Fn(usize) -> usize, stored: &dyn Fn(usize) -> usize, more: &dyn Fn(usize) -> f64) -> Option<Named> {
        let number = |n: usize| ((n * 7919 + 101) % 1009) as f64 / 1009.0 - 0.4;
        let values: Vec<f32> = (0..24 * 80).map(|n| (number(n) * (1.0 + (n / 32 % 7) as f64)) as f32).collect();
        let mut amax = vec![0.0f64; 24 * 3];
        values.iter().enumerate().for_each(|(at, v)| amax[of(at)] = amax[of(at)].max(f64::from(v.abs())));
        let scale = |b: usize| (amax[b] / 448.0 * more(b)) as f32;
        let code = |at: usize| {
            let y = f64::from(values[at]) / f64::from(scale(of(at)));
            Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let parts = QTensorParts {
            format: Format::E4m3,
            rows: 24,
            cols: 80,
            codes: (0..24 * 80).map(code).collect(),
            granularity: Granularity::Group(32),
            scale_format: Format::F32,
            scale_inv: (0..72).map(|g| scale(stored(g)).max(1e-6)).collect(),
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, 24, 80, values.clone()).unwrap(), QTensor::new(parts).unwrap());
        Cast::of(&x, &q).flat_blocks()
    }

    /// Two blocks of sixty whose codes are all 0 tell no scale, and are none of those that are scaled by another magnitude.
    #[test]
    fn blocks_of_zeros_tell_nothing() {
        let scale = |block: usize| if matches!(block, 7 | 31) { 1e9 } else { 1.0 };
        let found = said_by(&|at| at / 32, &|g| (g / 3 * 80 + g % 3 * 32) / 32, &scale).unwrap();
        assert!(found.2.ends_with("that of the block in which it starts"), "{}", found.2);
    }

    #[test]
    fn blocks_over_the_ends_of_rows_are_named() {
        let flat = |at: usize| at / 32;
        let found = said(&flat, &|g| (g / 3 * 80 + g % 3 * 32) / 32).unwrap();
        assert!(found.1 == "out.flat_blocks" && found.2.contains("(i·80 + j) / 32"), "{}", found.2);
        assert!(found.2.ends_with("that of the block in which it starts"), "{}", found.2);
        assert!(said(&flat, &|g| g).unwrap().2.ends_with("stored one behind the other"));
        assert_eq!(said(&flat, &|g| 59 - g.min(59)), None, "scales of no order");
        let right = |at: usize| at / 80 * 3 + at % 80 / 32;
        assert_eq!(said(&right, &|g| g), None, "blocks of rows");
    }
}
