//! Two levels of scales, of which some rows were made with another number of the tensor than the one stored: that of an amax that was not complete yet.
//!
//! ```text
//! codes of block b  ──►  its whole scale / its stored scale = g' of its rows          g'/g = amax of so many rows / amax of all
//! ```

use super::casts::{Cast, Named, Range, holds};
use crate::fault::Class;
use crate::fault::solve::segment::lines;
use crate::tensor::round_to;
use crate::{Format, QTensor};

/// Tiles of rows that may have an amax of their own.
const TILES: [usize; 10] = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];
/// Blocks that say a tile's number, at least, and what a ratio of amax may be off, relative.
const LEAST: usize = 8;
const SAME: f64 = 1.0 / 64.0;

/// Words, and the amax of tile `t` by the largest magnitude of every row and the height of tiles.
type Amax = (&'static str, fn(&[f64], usize, usize) -> f64);

fn largest(rows: &[f64]) -> f64 {
    rows.iter().copied().fold(0.0, f64::max)
}

const AMAX: [Amax; 3] = [
    ("their own", |rows, t, h| largest(&rows[t * h..((t + 1) * h).min(rows.len())])),
    ("the rows up to them", |rows, t, h| largest(&rows[..((t + 1) * h).min(rows.len())])),
    ("the rows before them", |rows, t, h| largest(&rows[..t * h])),
];

/// How narrow the interval of a number has to be for its bits to tell where it is from: far below a step of what the low half of an f32 leaves open.
const NARROW: f64 = 1.0 / 2048.0;

/// What one factor of all blocks says of the number of the tensor that they were made with: that of 16 bits, read as 32, or another one.
pub fn another(q: &QTensor, (low, high): Range, by: f64) -> Option<(Class, &'static str, String)> {
    let own = 1.0 / f64::from(q.global_scale_inv()?);
    let (from, to) = (own * low, own * high);
    let short = round_to(Format::Bf16, own as f32);
    // A 16-bit number is the low half of the f32 that is read where it lies; the high half is what lies behind it.
    let low_half = short.to_bits() >> 16;
    let read = |step: u32| f32::from_bits((((from as f32).to_bits() >> 16) + step) << 16 | low_half);
    let is = |x: &f32| from <= f64::from(*x) && f64::from(*x) <= to;
    if (f64::from(short) / own - 1.0).abs() < 1e-6
        && to - from < NARROW * from
        && let Some(x) = [0, 1].map(read).into_iter().find(is)
    {
        let behind = f32::from_bits(x.to_bits() & 0xffff_0000);
        let words = format!(
            "codes and block scales were made with a global scale of {x:.2}, not {short}: a bf16 number is read as an f32, whose low half is {short} \
             and whose high half is what lies behind it, {behind} in bf16"
        );
        return Some((Class::BitsReinterpreted, "out.global", words));
    }
    // Which of the two levels has it does not show.
    let words = format!(
        "the codes were made with other scales: every scale_inv is {by:.4} times that of its codes, the same for all blocks: such as a global scale of \
         another tensor or of another step"
    );
    Some((Class::StaleState, "out.levels", words))
}

impl Cast<'_> {
    /// Rows whose global number is that of part of the tensor.
    pub fn part_global(&self, ranges: &[Range]) -> Option<Named> {
        let (g, (height, _), grid_cols) = (f64::from(self.q.global_scale_inv()?), self.tile, self.grid.1);
        let (rows, cols) = (self.x.rows(), self.x.cols());
        let of_row: Vec<f64> = (0..rows)
            .map(|i| self.x.data()[i * cols..][..cols].iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs()))))
            .collect();
        let all = largest(&of_row);
        for h in TILES.into_iter().filter(|h| *h < rows && h.is_multiple_of(height)) {
            // The number of every tile by all its blocks.
            let mut tiles: Vec<(Range, usize)> = vec![((0.0, f64::INFINITY), 0); rows.div_ceil(h)];
            for (b, (low, high)) in ranges.iter().enumerate().filter(|(b, _)| self.stored[*b] > 0.0) {
                let (tile, s) = (&mut tiles[b / grid_cols * height / h], self.stored[b] / g);
                tile.0 = (tile.0.0.max(low / s), tile.0.1.min(high / s));
                tile.1 += usize::from(high.is_finite() && *low > 0.0);
            }
            if tiles.iter().any(|((low, high), _)| *low > *high * (1.0 + SAME / 16.0)) {
                continue;
            }
            let wrong: Vec<usize> = (0..tiles.len()).filter(|t| !holds(tiles[*t].0, g)).collect();
            let told = wrong.iter().map(|t| tiles[*t].1).sum::<usize>();
            if wrong.is_empty() || told < LEAST.max(2 * wrong.len()) {
                continue;
            }
            let is = |(_, of): &&Amax| {
                wrong.iter().all(|t| {
                    let (by, ((low, high), _)) = (g * of(&of_row, *t, h) / all, tiles[*t]);
                    low * (1.0 - SAME) <= by && by <= high * (1.0 + SAME)
                })
            };
            if let Some((which, _)) = AMAX.iter().find(is) {
                let mut in_rows = vec![false; rows];
                wrong.iter().for_each(|t| in_rows[t * h..((t + 1) * h).min(rows)].fill(true));
                let words = format!(
                    "scales and codes of rows {} are made with the amax of {which}, in tiles of {h} rows, and not with that of the tensor, of which the \
                     stored global scale is: amax is read before all of it is there",
                    lines(&in_rows)
                );
                return Some((Class::AmaxScope, "out.part_global", words));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;
    use crate::{Format, QTensor, Rounding, Tensor};

    /// 96 rows of 64 in tiles of 32 whose largest magnitudes are 1, 2 and 4; those that are `wrong` were made of the tiles `of` them.
    fn said(wrong: &[usize], of: &dyn Fn(usize) -> std::ops::Range<usize>) -> Option<String> {
        let number = |n: usize| ((n * 7919 + 101) % 1009) as f64 / 504.5 - 1.0;
        let values = |rows: std::ops::Range<usize>| -> Vec<f32> {
            rows.flat_map(|i| (0..64).map(move |j| (i, j)))
                .map(|(i, j)| (number(i * 64 + j) * f64::from(1u32 << (i / 32))) as f32)
                .collect()
        };
        let tensor = |rows: std::ops::Range<usize>| Tensor::rounded(Format::Bf16, rows.len(), 64, values(rows)).unwrap();
        let cast = |x: &Tensor| "te_nvfp4".parse::<Recipe>().unwrap().quantize(x).unwrap().q;
        let x = tensor(0..96);
        let mut p = cast(&x).into_parts();
        for t in wrong {
            let tiles = of(*t);
            let first = tiles.start * 32;
            let own = cast(&tensor(first..tiles.end * 32));
            let (codes, scales) = ((t * 32 - first) * 64, (t * 32 - first) * 4);
            p.codes[t * 32 * 64..][..32 * 64].copy_from_slice(&own.codes()[codes..][..32 * 64]);
            p.scale_inv[t * 32 * 4..][..32 * 4].copy_from_slice(&own.scale_inv()[scales..][..32 * 4]);
        }
        let q = QTensor::new(p).unwrap();
        let cast = Cast::of(&x, &q);
        let ranges =
            cast.ranges(0..96 * 64, Rounding::NearestEven, |at| f64::from(x.data()[at]), |at| cast.group(at), 96 * 4)?;
        cast.part_global(&ranges).map(|f| f.2)
    }

    #[test]
    fn rows_by_an_amax_of_their_own_are_named() {
        let words = said(&[0, 1], &|t| t..t + 1).unwrap();
        assert!(words.contains("rows 0 … 63 are made with the amax of their own, in tiles of 32 rows"), "{words}");
        let words = said(&[1], &|_| 0..2).unwrap();
        assert!(words.contains("rows 32 … 63 are made with the amax of"), "{words}");
        assert_eq!(said(&[], &|t| t..t + 1), None);
    }

    /// 2688 over 3.5 is 768; 560 in the high half of an f32 and 768 in the low one is 561.0664.
    #[test]
    fn a_global_scale_that_is_read_in_other_bits_is_told_from_another_one() {
        let x = Tensor::new(Format::F32, 2, 64, vec![3.5; 128]).unwrap();
        let q = "te_nvfp4".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        let told = |by: f64, near: f64| another(&q, (by * (1.0 - near), by * (1.0 + near)), by).unwrap();
        let read = f64::from(f32::from_bits(560f32.to_bits() | 768f32.to_bits() >> 16));
        let (class, _, words) = told(read / 768.0, 1e-5);
        assert!(
            class == Class::BitsReinterpreted && words.contains("561.07, not 768") && words.ends_with("560 in bf16"),
            "{words}"
        );
        // Another number, and one that is not known well enough.
        for (by, near) in [(0.7413, 1e-5), (read / 768.0, 1e-3)] {
            let (class, _, words) = told(by, near);
            assert!(class == Class::StaleState && words.contains("of another tensor or of another step"), "{words}");
            assert!(words.contains(&format!("every scale_inv is {by:.4} times that of its codes")), "{words}");
        }
    }
}
