//! How far a product whose scales change along K may be from its exact value: block by block.
//!
//! Each block of K has one scale a row and one a column, so its sum is one of [`SumBound`], in the units of its own codes: an outlier in one block says
//! nothing of the others. With E_g the bound of block g's sum and σ_g what that sum is multiplied by,
//!
//! ```text
//! |Σ_g σ_g·(P̂_g − P_g)| ≤ Σ_g |σ_g|·E_g          the roundings of scaling and of adding the blocks come on top (Bound::product)
//! ```
//!
//! A model that keeps to the order of K has no partial sum beyond the largest run of the block ([`super::runs`]).
//!
//! Losses of different blocks are of different products: their drifts add, and so do the variances around them.
//!
//! What is only assumed of a kernel may also scale its factors before it adds, in any order over the whole of K: such an arithmetic has a
//! [`SumBound`] of its own over the dequantized factors, and the wider of the two holds. The bound relative to Σ|ab| holds as well, so the smaller of
//! that and the rest is taken.

use super::{Accumulator, Lines, SumBound, runs};
use crate::compare::{Accumulation, SumError, SumRadius};
use crate::{Format, Result};
use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;
use std::ops::Range;

/// Multiply-adds, and elements times blocks, up to which every block is read.
const MOST: (usize, usize) = (1 << 28, 1 << 22);

/// One side of such a product: its codes without their scales, `[rows, k]`, and what each row of each block is multiplied by.
pub struct Scaled<'a> {
    pub format: Format,
    pub codes: &'a Array2<f64>,
    pub scale: Box<dyn Fn(usize, usize) -> f64 + Sync + 'a>,
}

/// The bound of every sum of a product whose scales change along K.
#[derive(Debug)]
pub struct BlockSums<'a> {
    cols: usize,
    radii: Vec<SumRadius>,
    /// Over the whole of K, of factors that were scaled first.
    pub whole: Vec<SumBound<'a>>,
    /// Relative to Σ|ab|, of the same kernels.
    most: Accumulation,
}

/// Whether every block of a product `[rows, cols]` over `k` is to be read.
pub fn within(rows: usize, cols: usize, k: usize, blocks: usize) -> bool {
    rows * cols * k <= MOST.0 && rows * cols * blocks <= MOST.1
}

impl<'a> BlockSums<'a> {
    /// Of sums over `blocks`, each added by `acc`. `first_b` is the row of b that column 0 meets in each row of the result (experts); `extra` is by how much an
    /// element's factors may be off altogether, in units of the result, and counts in every block. Errors: formats that the accumulator does not take.
    pub fn new(
        (acc, assumed): (&Accumulator, bool),
        blocks: &[Range<usize>],
        (a, b): (&Scaled, &Scaled),
        (first_b, cols): (&[usize], usize),
        extra: &(dyn Fn(usize) -> f64 + Sync),
        most: Accumulation,
    ) -> Result<Self> {
        let (rows, a_codes, b_codes) = (first_b.len(), a.codes, b.codes);
        let mut radii = vec![SumRadius::default(); rows * cols];
        for block in blocks {
            let lines = |x: &Scaled| {
                Lines::of(x.format, x.codes.nrows(), block.len(), |i, row| {
                    row.iter_mut().zip(x.codes.slice(s![i, block.clone()])).for_each(|(to, from)| *to = *from as f32);
                })
            };
            let (la, lb) = (lines(a), lines(b));
            let mut sums = SumBound::new(acc, block.len(), (a.format, &la), (b.format, &lb), assumed)?;
            sums.scale_a = (0..a.codes.nrows()).map(|i| (a.scale)(i, block.start)).collect();
            sums.scale_b = (0..b.codes.nrows()).map(|i| (b.scale)(i, block.start)).collect();
            sums.first_b = first_b.to_vec();
            if !assumed {
                let flat = |x: ArrayView2<f64>| x.iter().map(|x| *x as f32).collect::<Vec<_>>();
                let mut from = 0;
                let of_span = |same: &[usize]| {
                    from += same.len();
                    let (a, b) = (s![from - same.len()..from, block.clone()], s![same[0]..same[0] + cols, block.clone()]);
                    runs::runs(&flat(a_codes.slice(a)), &flat(b_codes.slice(b)), block.len())
                };
                sums = sums.in_runs(first_b.chunk_by(|x, y| x == y).flat_map(of_span).collect(), cols);
            }
            let mut from = 0;
            // Rows that meet the same rows of b.
            for rows in first_b.chunk_by(|x, y| x == y) {
                let (here, first) = (from..from + rows.len(), rows[0]);
                from = here.end;
                let a = a_codes.slice(s![here.clone(), block.clone()]);
                let b = b_codes.slice(s![first..first + cols, block.clone()]);
                let (signed, sizes) = (product(a, b), product(a.mapv(f64::abs).view(), b.mapv(f64::abs).view()));
                radii[here.start * cols..here.end * cols].par_iter_mut().enumerate().for_each(|(n, total)| {
                    let (i, j) = (n / cols, n % cols);
                    let row = here.start + i;
                    let unit = (sums.scale_a[row] * sums.scale_b[first + j]).abs();
                    let more = extra(row * cols + j);
                    let size = sizes[[i, j]] * (1.0 + 1e-12) * unit;
                    let r = sums.at(row, j, signed[[i, j]].abs() * unit + 1e-12 * size + more, size + more);
                    total.certain += r.certain;
                    total.drift += r.drift;
                    total.variance += r.variance;
                });
            }
        }
        Ok(Self { cols, radii, whole: Vec::new(), most })
    }
}

fn product(a: ArrayView2<f64>, b: ArrayView2<f64>) -> Array2<f64> {
    a.dot(&b.t())
}

impl SumError for BlockSums<'_> {
    fn at(&self, row: usize, column: usize, sum: f64, magnitude: f64) -> SumRadius {
        let start = self.radii[row * self.cols + column];
        let widest = self.whole.iter().map(|w| w.at(row, column, sum, magnitude)).fold(start, SumRadius::or);
        let most = self.most.at(row, column, sum, magnitude).certain;
        // An accumulator that may overflow stays without a bound.
        if !widest.certain.is_finite() {
            return widest;
        }
        SumRadius { certain: widest.certain.min(most), drift: widest.drift.min(most), ..widest }
    }
}
