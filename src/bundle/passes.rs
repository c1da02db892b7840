//! Codes of a cast that goes over each block in passes: those of a pass are made with the largest magnitude so far, or with that of the pass alone.
//!
//! ```text
//! pass p of a block: so many rows or columns of it  ──►  the scale of its codes  ──►  amax of passes 0 … p, of p … last, or of p alone
//! ```

use super::casts::{Cast, Named, holds};
use crate::fault::Class;

/// Passes that are coded by another scale than the stored one, at least.
const LEAST: usize = 3;
/// Rows or columns of a pass.
const SIZES: [usize; 8] = [64, 32, 16, 8, 4, 2, 1, 128];

/// Words, and the amax that each pass of a block sees, made of its own.
type Sees = (&'static str, fn(&mut [f64]));
const SEES: [Sees; 3] = [
    ("so far, of these and those before them", |own| (1..own.len()).for_each(|p| own[p] = own[p].max(own[p - 1]))),
    ("of these and those behind them", |own| (1..own.len()).rev().for_each(|p| own[p - 1] = own[p - 1].max(own[p]))),
    ("of their own alone", |_| ()),
];

impl Cast<'_> {
    /// Passes over each block, by rows or by columns of it.
    pub fn in_passes(&self) -> Option<Named> {
        let (height, width) = self.tile;
        let by_rows = SIZES.into_iter().filter(|s| height.is_multiple_of(*s) && *s < height).map(|s| (true, s));
        let by_cols = SIZES.into_iter().filter(|s| width.is_multiple_of(*s) && *s < width && *s > 1).map(|s| (false, s));
        by_rows.chain(by_cols).find_map(|(by_row, size)| self.passes(by_row, size))
    }

    fn passes(&self, by_row: bool, size: usize) -> Option<Named> {
        let (cols, (height, width)) = (self.q.cols(), self.tile);
        let n = if by_row { height / size } else { width / size };
        let of = |at: usize| {
            let line = if by_row { at / cols % height } else { at % cols % width };
            self.group(at) * n + line / size
        };
        let count = self.stored.len() * n;
        let parts = self.parts(of, count)?;
        let (ranges, amax) = (&parts.0, &parts.1);
        let max = self.q.format().max_finite();
        let differs = |p: &usize| amax[*p] > 0.0 && ranges[*p].1.is_finite() && !holds(ranges[*p], self.stored[*p / n]);
        (0..count).filter(differs).nth(LEAST - 1)?;
        let (words, _) = SEES.iter().find(|(_, sees)| {
            let mut seen = amax.clone();
            seen.chunks_mut(n).for_each(sees);
            self.follow(n, &parts, &seen)
        })?;
        let lines = if by_row { "rows" } else { "columns" };
        let own = (0..self.stored.len()).filter(|g| self.amax[*g] > 0.0);
        let final_one = own.clone().filter(|g| (self.stored[*g] * max / self.amax[*g] - 1.0).abs() < 1e-3).count();
        let stored = if final_one == own.count() { "; the scale stored is that of the whole block" } else { "" };
        let words = format!(
            "the codes of each {size} {lines} of a block of {height}×{width} are made with the largest magnitude {words}: they are written before the \
             block's is known{stored}"
        );
        Some((Class::AmaxScope, "out.amax_passes", words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{QTensorParts, Zero};
    use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor};

    /// What is said of 48 × 32 codes in blocks of 16 × 16, where each element is coded by the largest magnitude of the lines of its block that it sees.
    fn said(sees: &dyn Fn((usize, usize), (usize, usize)) -> bool) -> Option<String> {
        let (rows, cols) = (48, 32);
        let x: Vec<f32> = (0..rows * cols).map(|n| ((n * 7919 + n / 7 * 101) % 2003) as f32 / 1009.0 - 0.9).collect();
        let amax = |at: usize| {
            let (i, j) = (at / cols, at % cols);
            let same = |p: usize| p / cols / 16 == i / 16 && p % cols / 16 == j / 16;
            let seen = (0..rows * cols).filter(|p| same(*p) && sees((i % 16, j % 16), (p / cols % 16, p % cols % 16)));
            seen.fold(0f32, |m, p| m.max(x[p].abs()))
        };
        let whole = |r: usize, c: usize| {
            let of = |p: &usize| p / cols / 16 == r && p % cols / 16 == c;
            (0..rows * cols).filter(of).fold(0f32, |m, p| m.max(x[p].abs())) / 448.0
        };
        let code = |at: usize| {
            let y = f64::from(x[at] / (amax(at) / 448.0));
            Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let parts = QTensorParts {
            format: Format::E4m3,
            rows,
            cols,
            codes: (0..rows * cols).map(code).collect(),
            granularity: Granularity::Block { rows: 16, cols: 16 },
            scale_format: Format::F32,
            scale_inv: (0..6).map(|g| whole(g / 2, g % 2)).collect(),
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, rows, cols, x.clone()).unwrap(), QTensor::new(parts).unwrap());
        Cast::of(&x, &q).in_passes().map(|f| f.2)
    }

    #[test]
    fn codes_of_a_running_amax_are_told_by_their_passes() {
        let words = said(&|(i, _), (r, _)| r / 4 <= i / 4).unwrap();
        assert!(
            words.starts_with("the codes of each 4 rows of a block of 16×16 are made with the largest magnitude so far"),
            "{words}"
        );
        assert!(words.ends_with("the scale stored is that of the whole block"), "{words}");
        let words = said(&|(_, j), (_, c)| c / 8 >= j / 8).unwrap();
        assert!(words.starts_with("the codes of each 8 columns") && words.contains("and those behind them"), "{words}");
        let words = said(&|(i, _), (r, _)| r / 8 == i / 8).unwrap();
        assert!(words.starts_with("the codes of each 8 rows") && words.contains("of their own alone"), "{words}");
        assert_eq!(said(&|_, _| true), None, "what is right has no name");
    }

    /// 256 × 64 codes in groups of 32, of which the first halves of these groups are coded by another scale.
    fn stale(groups: &[usize], power: bool) -> Option<String> {
        let (rows, cols) = (256, 64);
        // The largest of each group is its last.
        let x: Vec<f32> = (0..rows * cols)
            .map(|n| if n % 32 == 31 { 1.3 } else { ((n * 7919 + n / 7 * 101) % 2003) as f32 / 1009.0 - 0.9 })
            .collect();
        let right: f32 = if power { 2f32.powi(-7) } else { 1.3 / 448.0 };
        let code = |at: usize| {
            let s = if groups.contains(&(at / 32)) && at % 32 < 16 { right * if power { 0.5 } else { 0.613 } } else { right };
            Format::E4m3.encode(f64::from(x[at] / s), Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let parts = QTensorParts {
            format: Format::E4m3,
            rows,
            cols,
            codes: (0..rows * cols).map(code).collect(),
            granularity: Granularity::Group(32),
            scale_format: Format::F32,
            scale_inv: vec![right; rows * cols / 32],
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, rows, cols, x.clone()).unwrap(), QTensor::new(parts).unwrap());
        let cast = Cast::of(&x, &q);
        cast.in_parts().or_else(|| cast.in_passes()).map(|f| f.2)
    }

    #[test]
    fn a_few_stale_scales_among_many_right_ones_are_no_passes() {
        for power in [false, true] {
            assert_eq!(stale(&[3, 77, 200], power), None);
            assert_eq!(stale(&[3, 77, 200, 250, 251], power), None);
        }
    }
}
