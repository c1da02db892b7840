//! How far a product whose scales change along K may be from its exact value: block by block.
//!
//! Each block of K has one scale a row and one a column, so its sum is one of [`SumBound`], in the units of its own codes: an outlier in one block says
//! nothing of the others. With E_g the bound of block g's sum and σ_g what that sum is multiplied by,
//!
//! ```text
//! |Σ_g σ_g·(P̂_g − P_g)| ≤ Σ_g |σ_g|·E_g          the roundings of scaling and of adding the blocks come on top (Bound::product)
//! ```
//!
//! In a model that keeps to the order of K, no partial sum exceeds the largest sum of a run in the block ([`super::runs`]).
//!
//! Losses of different blocks are of different products: their drifts add, and so do the variances around them.
//!
//! A kernel whose arithmetic is only assumed may also scale its factors first and then add in any order over the whole of K. That arithmetic has a
//! [`SumBound`] of its own over the dequantized factors; the wider of the two bounds holds. The bound relative to Σ|ab| holds as well, so the
//! smaller of that one and the others is taken.

use super::runs::{self, Runs};
use super::sums::Magnitudes;
use super::{Accumulator, Lines, SumBound};
use crate::compare::{Accumulation, SumError, SumRadius};
use crate::parallel;
use crate::{Format, Result};

use std::ops::Range;

/// Multiply-adds, and elements times blocks, up to which every block is read.
const MOST: (usize, usize) = (1 << 28, 1 << 22);

/// One side of such a product: the codes of a part of a row, and what each row of each block is multiplied by.
pub struct Scaled<'a> {
    pub format: Format,
    pub codes: Box<dyn Fn(usize, Range<usize>) -> &'a [u8] + Sync + 'a>,
    pub scale: Box<dyn Fn(usize, usize) -> f64 + Sync + 'a>,
}

/// Rows and columns of the result that a thread takes at a time.
const TILE: (usize, usize) = (128, 64);

/// The bound of every sum of a product whose scales change along K.
#[derive(Debug)]
pub struct BlockSums<'a> {
    tiles: Tiles,
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
        let mut tiles = Tiles::of(first_b, cols);
        let (of_a, of_b) = (Magnitudes::of(a.format), Magnitudes::of(b.format));
        let (across, rows) = (tiles.across(), &tiles.rows);
        // Each tile reads its own codes, all blocks of them: threads wait for one another once.
        let tile = |n: usize, radii: &mut [Vec<SumRadius>]| -> Result<()> {
            let (of, from) = (&rows[n / across], n % across * TILE.1);
            let columns = of.first + from..of.first + cols.min(from + TILE.1);
            for block in blocks {
                let (left, right) = (Part::of(a, &of_a, of.here.clone(), block), Part::of(b, &of_b, columns.clone(), block));
                let mut sums = SumBound::new(acc, block.len(), (a.format, &left.lines), (b.format, &right.lines), assumed)?;
                let width = columns.len();
                let Runs { range, sums: signed, sizes } = runs::runs_of_tile(&left.flat, &right.flat, block.len());
                if !assumed {
                    sums = sums.in_runs(range, width);
                }
                (sums.scale_a, sums.scale_b) = (left.scales.clone(), right.scales.clone());
                for (n, total) in radii[0].iter_mut().enumerate() {
                    let (i, j) = (n / width, n % width);
                    let unit = (left.scales[i] * right.scales[j]).abs();
                    let more = extra((of.here.start + i) * cols + from + j);
                    let size = sizes[n] * (1.0 + 1e-12) * unit;
                    let r = sums.at(i, j, signed[n].abs() * unit + 1e-12 * size + more, size + more);
                    total.certain += r.certain;
                    total.drift += r.drift;
                    total.variance += r.variance;
                }
            }
            Ok(())
        };
        parallel::map_chunks(&mut tiles.radii, 1, tile).into_iter().collect::<Result<()>>()?;
        Ok(Self { tiles, whole: Vec::new(), most })
    }
}

/// One block of some rows of an operand.
struct Part {
    lines: Lines,
    /// What the sums of each row are multiplied by.
    scales: Vec<f64>,
    flat: Vec<f32>,
}

impl Part {
    fn of(x: &Scaled, magnitudes: &Magnitudes, rows: Range<usize>, block: &Range<usize>) -> Self {
        let codes: Vec<&[u8]> = rows.clone().map(|i| (x.codes)(i, block.clone())).collect();
        let flat = codes.iter().copied().flatten().map(|c| magnitudes.values[usize::from(*c)]).collect();
        Self { lines: magnitudes.lines(&codes), scales: rows.map(|i| (x.scale)(i, block.start)).collect(), flat }
    }
}

/// Rows of the result whose column 0 meets row `first` of b.
#[derive(Debug)]
struct Rows {
    here: Range<usize>,
    first: usize,
}

/// The elements of a result, tile by tile.
#[derive(Debug)]
struct Tiles {
    cols: usize,
    rows: Vec<Rows>,
    /// Which of `rows` a row of the result is in.
    of_row: Vec<usize>,
    /// Of each tile, those of its rows one after the other.
    radii: Vec<Vec<SumRadius>>,
}

impl Tiles {
    fn of(first_b: &[usize], cols: usize) -> Self {
        let (mut rows, mut of_row) = (Vec::new(), Vec::new());
        for same in first_b.chunk_by(|x, y| x == y) {
            for some in same.chunks(TILE.0) {
                let from = of_row.len();
                of_row.resize(from + some.len(), rows.len());
                rows.push(Rows { here: from..from + some.len(), first: some[0] });
            }
        }
        let mut tiles = Self { cols, rows, of_row, radii: Vec::new() };
        let tile = |r: &Rows, c: Range<usize>| vec![SumRadius::default(); r.here.len() * c.len()];
        tiles.radii = tiles.rows.iter().flat_map(|r| tiles.columns().map(|c| tile(r, c))).collect();
        tiles
    }

    fn across(&self) -> usize {
        self.cols.div_ceil(TILE.1)
    }

    fn columns(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let cols = self.cols;
        (0..cols).step_by(TILE.1).map(move |c| c..cols.min(c + TILE.1))
    }

    fn at(&self, row: usize, column: usize) -> SumRadius {
        let (down, from) = (self.of_row[row], column / TILE.1 * TILE.1);
        let width = TILE.1.min(self.cols - from);
        self.radii[down * self.across() + column / TILE.1][(row - self.rows[down].here.start) * width + column - from]
    }
}

impl SumError for BlockSums<'_> {
    fn at(&self, row: usize, column: usize, sum: f64, magnitude: f64) -> SumRadius {
        let start = self.tiles.at(row, column);
        let widest = self.whole.iter().map(|w| w.at(row, column, sum, magnitude)).fold(start, SumRadius::or);
        let most = self.most.at(row, column, sum, magnitude).certain;
        // An accumulator that may overflow stays without a bound.
        if !widest.certain.is_finite() {
            return widest;
        }
        SumRadius { certain: widest.certain.min(most), drift: widest.drift.min(most), ..widest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Inner;
    use ndarray::Array2;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// What is said of an element does not depend on the tile it is in, nor on which expert its neighbours have.
    #[test]
    fn every_element_is_bounded_as_it_is_alone() {
        let (rows, cols, k) = (TILE.0 + 9, TILE.1 + 13, 40);
        let mut rng = StdRng::seed_from_u64(3);
        let mut draw = |rows: usize| {
            // Every finite code of either sign.
            Array2::from_shape_fn((rows, k), |_| rng.random_range(0..0x7fu8) | rng.random_range(0..2u8) << 7)
        };
        let (a, b) = (draw(rows), draw(2 * cols));
        // The second expert has the last rows; each row and each block has a scale of its own.
        let first_b: Vec<usize> = (0..rows).map(|i| if i < TILE.0 + 3 { 0 } else { cols }).collect();
        fn scale(i: usize, k: usize) -> f64 {
            0.25 + ((i * 5 + k) % 7) as f64
        }
        let acc = Accumulator::new(Inner::F32Sequential);
        let blocks = [0..16, 16..40];
        let of = |a: &Array2<u8>, b: &Array2<u8>, from: (usize, usize), first_b: &[usize], cols: usize| {
            fn one(x: &Array2<u8>, from: usize) -> Scaled<'_> {
                let (all, k) = (x.as_slice().unwrap(), x.ncols());
                let codes = move |i: usize, ks: Range<usize>| &all[i * k..][ks];
                Scaled { format: Format::E4m3, codes: Box::new(codes), scale: Box::new(move |i, k| scale(from + i, k)) }
            }
            let (a, b) = (one(a, from.0), one(b, from.1));
            let most = Accumulation { relative: f64::INFINITY, ..Accumulation::EXACT };
            BlockSums::new((&acc, false), &blocks, (&a, &b), (first_b, cols), &|_| 0.0, most).unwrap().tiles
        };
        let all = of(&a, &b, (0, 0), &first_b, cols);
        for (i, j) in [
            (0, 0),
            (3, TILE.1),
            (TILE.0 - 1, cols - 1),
            (TILE.0, 5),
            (TILE.0 + 3, 0),
            (rows - 1, TILE.1 - 1),
            (rows - 1, cols - 1),
        ] {
            let at_b = first_b[i] + j;
            let line = |x: &Array2<u8>, i: usize| Array2::from_shape_vec((1, k), x.row(i).to_vec()).unwrap();
            let (row, column) = (line(&a, i), line(&b, at_b));
            let alone = of(&row, &column, (i, at_b), &[0], 1).at(0, 0);
            let here = all.at(i, j);
            assert!(alone.certain > 0.0, "it says something");
            assert_eq!(here, alone, "({i}, {j})");
        }
    }

    /// Both limits count what is multiplied, and every element once a block.
    #[test]
    fn products_of_too_many_elements_or_blocks_are_not_read() {
        assert!(within(2048, 2048, 64, 1));
        assert!(!within(2048, 2048, 65, 1), "more multiply-adds");
        assert!(!within(2048, 2048, 32, 2), "more elements of blocks");
        assert!(within(1024, 2048, 64, 2));
    }
}
