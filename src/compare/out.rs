//! How the elements of a result are stored: the grid of values, its spacing, its rounding.

use crate::format::grid::ValueGrid;
use crate::format::{Format, Overflow};
use crate::quant::{Affine, QTensor, Zero};
use std::ops::Range;

/// The storage of a result, as errors are measured in it and as values are rounded into it.
///
/// An element is `value = (code − mid) · unit + zero`. High-precision results have unit 1, mid and zero 0; a quantized one has
/// `unit = scale_inv · second level` of its tile, an integer zero point as mid, an additive one as zero. Elements are addressed by
/// their row-major index.
#[derive(Clone, Debug, PartialEq)]
pub struct OutFormat {
    values: ValueGrid,
    /// None: unit 1, scale 1, mid and zero 0.
    grid: Option<Grid>,
}

#[derive(Clone, Debug, PartialEq)]
struct Grid {
    /// Elements a row of the result.
    cols: usize,
    /// Rows and columns of a tile, and tiles a row of the grid.
    tile: (usize, usize),
    grid_cols: usize,
    /// What a value is multiplied by (in f32) before encoding; one a tile.
    scale: Vec<f64>,
    /// scale_inv, times the second level; one a tile.
    unit: Vec<f64>,
    /// The integer zero point; one a tile, or empty.
    mid: Vec<f64>,
    /// The additive zero point; one a tile, or empty.
    zero: Vec<f64>,
}

/// See [`OutFormat::laid_out`].
pub(crate) struct LaidOut<'a> {
    pub numbers: [f64; 8],
    /// One a tile; none where there is no scale.
    pub scale: &'a [f64],
    pub unit: &'a [f64],
    /// Rows and columns of a tile, and tiles a row of them.
    pub tile: (usize, usize),
    pub grid_cols: usize,
}

impl OutFormat {
    /// Stored as it is, in f16, bf16, f32 (or any other format) with its own overflow (Inf or NaN).
    pub fn high(format: Format) -> Self {
        Self { values: ValueGrid::new(format, Overflow::Native), grid: None }
    }

    /// `q = Q(RN32(v · scale))`, saturating, read as `decode(q) · scale_inv`: one scale for the whole tensor.
    pub fn scaled(format: Format, scale: f32, scale_inv: f32) -> Self {
        let whole = (usize::MAX, usize::MAX);
        let grid = Grid {
            cols: usize::MAX,
            tile: whole,
            grid_cols: 1,
            scale: vec![f64::from(scale)],
            unit: vec![f64::from(scale_inv)],
            mid: Vec::new(),
            zero: Vec::new(),
        };
        Self { values: ValueGrid::new(format, Overflow::Saturate), grid: Some(grid) }
    }

    /// The storage of `q`, with the quantization scales that made it; without them, RN32(1/scale_inv) is taken, or 1/scale_inv itself
    /// where scale_inv is a subnormal number whose inverse is beyond f32: no kernel multiplies by Inf there. 0 where scale_inv is.
    pub fn quantized(q: &QTensor, scale: Option<&[f32]>) -> Self {
        let all: Vec<Affine> = (0..q.scale_inv().len()).map(|s| q.affine(s)).collect();
        let unit: Vec<f64> = all.iter().map(|a| a.unit).collect();
        let inverse = |u: &f64| match f64::from((1.0 / u) as f32) {
            // Whatever the code, 0 is read back: of a block of zeros that is right.
            _ if *u == 0.0 => 0.0,
            s if s.is_infinite() && *u != 0.0 => 1.0 / u,
            s => s,
        };
        let given = |s: &[f32]| s.iter().map(|s| f64::from(*s)).collect();
        let scale = scale.map_or_else(|| unit.iter().map(inverse).collect(), given);
        let (mid, zero) = match q.zero() {
            Zero::None => (Vec::new(), Vec::new()),
            Zero::Integer(_) => (all.iter().map(|a| a.minus).collect(), Vec::new()),
            Zero::Additive { .. } => (all.iter().map(|a| a.minus).collect(), all.iter().map(|a| a.plus).collect()),
        };
        let grid = Grid {
            cols: q.cols().max(1),
            tile: q.granularity().tile(q.rows(), q.cols()),
            grid_cols: q.granularity().grid(q.rows(), q.cols()).1,
            scale,
            unit,
            mid,
            zero,
        };
        Self { values: ValueGrid::new(q.format(), Overflow::Saturate), grid: Some(grid) }
    }

    pub fn format(&self) -> Format {
        self.values.format()
    }

    /// As a GPU reads it; `None` where there are zero points, or values are of no float format.
    pub(crate) fn laid_out(&self) -> Option<LaidOut<'_>> {
        let numbers = self.values.numbers()?;
        let whole = (usize::MAX, usize::MAX);
        Some(match &self.grid {
            None => LaidOut { numbers, scale: &[], unit: &[], tile: whole, grid_cols: 1 },
            Some(g) if g.mid.is_empty() && g.zero.is_empty() => {
                LaidOut { numbers, scale: &g.scale, unit: &g.unit, tile: g.tile, grid_cols: g.grid_cols }
            }
            Some(_) => return None,
        })
    }

    /// Whether the output is codes with scales.
    pub fn is_quantized(&self) -> bool {
        self.grid.is_some()
    }

    /// The tile of an element, among scales.
    fn tile(&self, g: &Grid, index: usize) -> usize {
        if g.unit.len() == 1 {
            return 0;
        }
        let (i, j) = (index / g.cols, index % g.cols);
        (i / g.tile.0) * g.grid_cols + j / g.tile.1
    }

    /// How an element is stored.
    #[inline(always)]
    pub(super) fn cells(&self, index: usize) -> Cells<'_> {
        let plain = Cells::plain(&self.values);
        match &self.grid {
            None => plain,
            Some(g) => {
                let t = self.tile(g, index);
                let of = |v: &[f64]| v.get(t).copied().unwrap_or(0.0);
                Cells { scaled: true, scale: g.scale[t], unit: g.unit[t], mid: of(&g.mid), zero: of(&g.zero), ..plain }
            }
        }
    }

    /// Consecutive elements of `range`, at most `most`, that are stored alike.
    pub(super) fn runs(&self, range: Range<usize>, most: usize) -> impl Iterator<Item = (Range<usize>, Cells<'_>)> {
        let mut from = range.start;
        std::iter::from_fn(move || {
            let left = range.end.checked_sub(from).filter(|left| *left > 0)?.min(most);
            let alike = match &self.grid {
                Some(g) if g.unit.len() > 1 => (g.tile.1 - from % g.cols % g.tile.1).min(g.cols - from % g.cols),
                _ => left,
            };
            let run = from..from + left.min(alike);
            from = run.end;
            Some((run.clone(), self.cells(run.start)))
        })
    }

    /// The distance between neighbouring values of the grid at `x`: `Format::ulp(x / unit) · |unit|`.
    pub fn spacing(&self, index: usize, x: f64) -> f64 {
        self.cells(index).spacing(x)
    }

    /// Smallest and largest finite value of an element, where overflow saturates; (−∞, ∞) where it does not.
    pub fn range(&self, index: usize) -> (f64, f64) {
        self.cells(index).range()
    }

    /// Whether `value` lies at an end of the format's range, or beyond it (Inf).
    pub fn is_saturated(&self, index: usize, value: f64) -> bool {
        self.cells(index).is_saturated(value)
    }

    /// `x` rounded into the storage and read back. High precision: `RN(x)`. Quantized: `decode(Q(RN32(x·scale)))·unit`,
    /// saturating. Every step is monotone, so the image of an interval is bounded by the images of its ends, also where
    /// the f64 product `x·scale` rounds.
    pub fn round(&self, index: usize, x: f64) -> f64 {
        self.cells(index).round(x)
    }

    /// The open interval of reals that round to `value`, a value of the grid: the half-way points to its neighbours, ±∞
    /// beyond the ends when overflow saturates. To a relative 2^-23: `RN32(x·scale)` moves the edges by that much.
    pub fn cell(&self, index: usize, value: f64) -> (f64, f64) {
        self.cells(index).cell(value)
    }
}

/// How the elements of one tile are stored: what [`OutFormat`] says of each, without branches on values, for loops over lanes.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    values: &'a ValueGrid,
    float: bool,
    /// Whether there is a scale at all.
    scaled: bool,
    scale: f64,
    unit: f64,
    mid: f64,
    zero: f64,
}

impl<'a> Cells<'a> {
    #[inline(always)]
    fn plain(values: &'a ValueGrid) -> Self {
        Cells { values, float: values.is_float(), scaled: false, scale: 1.0, unit: 1.0, mid: 0.0, zero: 0.0 }
    }
    /// Whether these are values of a float format without a scale.
    pub(super) fn is_plain(&self) -> bool {
        self.float && !self.scaled
    }
    /// The same where [`Cells::is_plain`]; what is constant then, the compiler sees.
    #[inline(always)]
    pub(super) fn as_plain(self) -> Self {
        Cells { float: true, ..Cells::plain(self.values) }
    }
    /// Whether these are codes of a float format with a scale.
    pub(super) fn is_float(&self) -> bool {
        self.float && self.scaled
    }
    /// The same where [`Cells::is_float`].
    #[inline(always)]
    pub(super) fn as_float(self) -> Self {
        Cells { float: true, scaled: true, ..self }
    }

    #[inline(always)]
    fn ulp(&self, code: f64) -> f64 {
        if self.float { self.values.ulp_float(code) } else { self.values.ulp(code) }
    }
    /// See [`OutFormat::spacing`].
    #[inline(always)]
    pub(super) fn spacing(&self, x: f64) -> f64 {
        self.ulp(x / self.unit) * self.unit.abs()
    }
    /// See [`OutFormat::range`].
    pub(super) fn range(&self) -> (f64, f64) {
        if self.values.overflow() == Overflow::Native {
            return (f64::NEG_INFINITY, f64::INFINITY);
        }
        ((self.values.min() - self.mid) * self.unit + self.zero, (self.values.max() - self.mid) * self.unit + self.zero)
    }
    /// See [`OutFormat::is_saturated`].
    #[inline(always)]
    pub(super) fn is_saturated(&self, value: f64) -> bool {
        let code = (value - self.zero) / self.unit + self.mid;
        // Half a step of tolerance: value / unit is rounded.
        let slack = 0.25 * self.ulp(self.values.max());
        (code >= self.values.max() - slack) | (code <= self.values.min() + slack.min(0.25))
    }
    /// See [`OutFormat::round`].
    #[inline(always)]
    pub(super) fn round(&self, x: f64) -> f64 {
        let y = if self.scaled { f64::from(((x - self.zero) * self.scale) as f32) } else { x };
        let y = if self.mid == 0.0 { y } else { y + self.mid };
        let nearest = if self.float { self.values.nearest_float(y) } else { self.values.nearest(y) };
        (nearest - self.mid) * self.unit + self.zero
    }
    /// See [`OutFormat::cell`].
    #[inline(always)]
    pub(super) fn cell(&self, value: f64) -> (f64, f64) {
        let code = (value - self.zero) / self.unit + self.mid;
        let back = |y: f64| if self.scaled { (y - self.mid) / self.scale + self.zero } else { y };
        let table = if self.float { None } else { self.values.gaps_of_table(code) };
        let (below, above) = match table {
            Some(gaps) => gaps,
            None => (self.gap(-code), self.gap(code)),
        };
        let (low, high) = (back(code - 0.5 * below), back(code + 0.5 * above));
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let finite = code.is_finite();
        (if finite { low } else { value }, if finite { high } else { value })
    }
    /// Distance from `code` to the next value above it; infinite at the top when overflow saturates.
    #[inline(always)]
    fn gap(&self, code: f64) -> f64 {
        let v = self.values;
        let ulp = self.ulp(code);
        let integer = !self.float & v.is_integer();
        // Below a power of two the neighbours toward zero are half as far apart.
        let power = (code < 0.0) & (ulp > self.ulp(0.0)) & (code.abs() == ulp * v.steps());
        let gap = if power & !integer { 0.5 * ulp } else { ulp };
        if (code >= v.max()) & ((v.overflow() == Overflow::Saturate) | integer) { f64::INFINITY } else { gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_and_spacing_of_scaled_fp8() {
        let out = OutFormat::scaled(Format::E4m3, 4.0, 0.25);
        assert_eq!(out.round(7, 1.0), 1.0);
        assert_eq!(out.round(7, 1.0 + 0.05), 1.0);
        assert_eq!(out.round(7, 1e9), 112.0);
        assert_eq!(out.spacing(0, 1.0), 0.125);
        assert_eq!(out.cell(0, 1.0), (1.0 - 0.03125, 1.0625));
        assert_eq!(out.cell(0, -1.0), (-1.0625, -1.0 + 0.03125));
        assert_eq!(out.cell(0, 112.0).1, f64::INFINITY);
        assert!(out.is_saturated(0, -112.0) && !out.is_saturated(0, 104.0));
        assert!(!out.is_saturated(0, -104.0) && !out.is_saturated(0, -1.0) && out.is_saturated(0, 112.0));
    }

    #[test]
    fn cells_of_high_precision_are_the_half_way_points() {
        for f in [Format::F16, Format::Bf16, Format::F32] {
            let out = OutFormat::high(f);
            for x in [1.0, -1.0, 1.5, -3.0, 0.0, f.ulp(0.0), -7.0 * f.ulp(0.0), 0.25, f.max_finite()] {
                let (low, high) = out.cell(0, x);
                let inside = |t: f64| x + (t - x) * 0.999;
                let outside = |t: f64| x + (t - x) * 1.001;
                assert_eq!((out.round(0, inside(low)), out.round(0, inside(high))), (x, x), "{f} {x}");
                assert!(out.round(0, outside(low)) < x && out.round(0, outside(high)) > x, "{f} {x}");
            }
        }
    }

    #[test]
    fn quantized_grid_addresses_tiles() {
        use crate::quant::{Granularity, QTensorParts};
        let q = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows: 2,
            cols: 5,
            codes: vec![0; 10],
            granularity: Granularity::Group(2),
            scale_format: Format::F32,
            scale_inv: vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            zero: Zero::Integer(vec![0, 0, 0, 0, 0, 3]),
            level: None,
        })
        .unwrap();
        let out = OutFormat::quantized(&q, None);
        assert_eq!((out.spacing(3, 0.0), out.spacing(9, 0.0)), (2.0, 32.0));
        assert_eq!(out.round(9, 1e9), (127.0 - 3.0) * 32.0);
        assert!(out.is_saturated(9, (127.0 - 3.0) * 32.0) && !out.is_saturated(9, (126.0 - 3.0) * 32.0));
        // Codes about 8 by steps of 2, and 100 added: from 84 to 114.
        let additive = QTensorParts {
            format: Format::Uint4,
            rows: 1,
            cols: 2,
            codes: vec![0; 2],
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![2.0],
            zero: Zero::Additive { mid: 8, zero: vec![100.0] },
            level: None,
        };
        let out = OutFormat::quantized(&QTensor::new(additive).unwrap(), None);
        assert_eq!([84.0, 86.0, 100.0, 112.0, 114.0].map(|x| out.is_saturated(0, x)), [true, false, false, false, true]);
        assert_eq!((out.range(0), out.round(0, 101.5), out.cell(0, 100.0)), ((84.0, 114.0), 102.0, (99.0, 101.0)));
    }

    /// Half way to the neighbours: toward zero half as far below a power of two, none beyond the end.
    #[test]
    fn cells_end_half_way_to_their_neighbours() {
        let out = OutFormat::high(Format::E4m3);
        assert_eq!([1.0, 1.125, 0.875].map(|x| out.cell(0, x)), [(0.96875, 1.0625), (1.0625, 1.1875), (0.84375, 0.90625)]);
        assert_eq!(out.cell(0, -1.0), (-1.0625, -0.96875));
        // Subnormals are as far apart as the smallest normal ones.
        let ulp = 2f64.powi(-9);
        assert_eq!(
            [0.0, ulp, 8.0 * ulp, 16.0 * ulp].map(|x| out.cell(0, x)),
            [(-0.5 * ulp, 0.5 * ulp), (0.5 * ulp, 1.5 * ulp), (7.5 * ulp, 8.5 * ulp), (15.5 * ulp, 17.0 * ulp)]
        );
        let integer = OutFormat::scaled(Format::Int8, 2.0, 0.5);
        assert_eq!([0.0, 4.0, -4.0].map(|x| integer.cell(0, x)), [(-0.25, 0.25), (3.75, 4.25), (-4.25, -3.75)]);
        assert_eq!((integer.cell(0, 63.5).1, integer.cell(0, -64.0).0), (f64::INFINITY, f64::NEG_INFINITY));
        assert_eq!((integer.range(0), integer.spacing(0, 3.0)), ((-64.0, 63.5), 0.5));
        // Not a number has no cell around it; a negative scale turns the ends.
        assert_eq!(out.cell(0, f64::INFINITY), (f64::INFINITY, f64::INFINITY));
        let turned = OutFormat::scaled(Format::Int8, -2.0, -0.5);
        assert_eq!((turned.cell(0, 4.0), turned.spacing(0, 4.0)), ((3.75, 4.25), 0.5));
    }
}
