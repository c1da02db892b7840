//! What a scale means: granularity, the quantized tensor, dequantize; scales that are quantized themselves ([`Level`]).

use crate::format::fast::Decoder;
use crate::tensor::There;
use crate::tensor::afar::{Beside, FarCodes, Numbers, Seen};
use crate::{Error, Format, Result, parallel};
use level::check_scales;
pub use level::{Level, SCALE_FORMATS};
use ndarray::Array2;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Which elements of a `rows × cols` matrix share a scale. Columns run along K. The last tile may be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// One scale for all.
    Tensor,
    /// One scale a row.
    Row,
    /// 1×G along K.
    Group(usize),
    /// R×C tiles; a column-wise copy of a 1×128 recipe is `Block { rows: 128, cols: 1 }`.
    Block { rows: usize, cols: usize },
}

impl Granularity {
    /// Tile size in a `rows × cols` matrix.
    pub fn tile(self, rows: usize, cols: usize) -> (usize, usize) {
        match self {
            Granularity::Tensor => (rows.max(1), cols.max(1)),
            Granularity::Row => (1, cols.max(1)),
            Granularity::Group(g) => (1, g),
            Granularity::Block { rows, cols } => (rows, cols),
        }
    }
    /// Shape of the scale tensor: `(⌈rows/R⌉, ⌈cols/C⌉)`, at least 1×1 for `Tensor`.
    pub fn grid(self, rows: usize, cols: usize) -> (usize, usize) {
        let (r, c) = self.tile(rows, cols);
        match self {
            Granularity::Tensor => (1, 1),
            Granularity::Row => (rows, 1),
            _ => (rows.div_ceil(r), cols.div_ceil(c)),
        }
    }
}

impl std::fmt::Display for Granularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Granularity::Tensor => f.pad("tensor"),
            Granularity::Row => f.pad("row"),
            Granularity::Group(g) => f.pad(&format!("group:{g}")),
            Granularity::Block { rows, cols } => f.pad(&format!("block:{rows}x{cols}")),
        }
    }
}

impl std::str::FromStr for Granularity {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let bad = || Error::value("granularity", s, "tensor, row, group:G or block:RxC with G, R, C > 0");
        let number = |s: &str| s.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(bad);
        match s.split_once(':') {
            None if s == "tensor" => Ok(Granularity::Tensor),
            None if s == "row" => Ok(Granularity::Row),
            Some(("group", g)) => Ok(Granularity::Group(number(g)?)),
            Some(("block", rc)) => {
                let (r, c) = rc.split_once('x').ok_or_else(bad)?;
                Ok(Granularity::Block { rows: number(r)?, cols: number(c)? })
            }
            _ => Err(bad()),
        }
    }
}

/// The zero points of a quantized tensor, one for each scale.
#[derive(Clone, Debug, PartialEq)]
pub enum Zero {
    None,
    /// `x̂ = (code − z) · scale_inv`.
    Integer(Vec<i32>),
    /// `x̂ = (code − mid) · scale_inv + z`, z in real units; mid is 8 for tinygemm's uint4, else 0.
    Additive {
        zero: Vec<f32>,
        mid: i32,
    },
}

/// What zero points mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroKind {
    None,
    Integer,
    Additive,
}

impl ZeroKind {
    pub const ALL: [ZeroKind; 3] = [ZeroKind::None, ZeroKind::Integer, ZeroKind::Additive];
    pub fn name(self) -> &'static str {
        match self {
            ZeroKind::None => "none",
            ZeroKind::Integer => "integer",
            ZeroKind::Additive => "additive",
        }
    }
}

impl std::str::FromStr for ZeroKind {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let found = ZeroKind::ALL.into_iter().find(|z| z.name() == s);
        found.ok_or_else(|| Error::unknown("kind of zero points", s, ZeroKind::ALL.map(ZeroKind::name)))
    }
}

impl Zero {
    pub fn kind(&self) -> ZeroKind {
        match self {
            Zero::None => ZeroKind::None,
            Zero::Integer(_) => ZeroKind::Integer,
            Zero::Additive { .. } => ZeroKind::Additive,
        }
    }
}

/// A quantized `rows × cols` matrix: codes, one a byte (never packed; packing is a storage step of its own), and the scale_inv that
/// belongs to them. Fields are private: what exists has passed the checks of [`QTensor::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct QTensor {
    format: Format,
    rows: usize,
    cols: usize,
    /// Shared by the copies of a tensor.
    codes: Arc<Numbers<u8>>,
    /// The codes on a device, and what was found of them.
    there: There,
    found: There,
    /// What occurs among codes that were made on a device.
    seen: Beside<Seen>,
    granularity: Granularity,
    scale_format: Format,
    scale_inv: Vec<f32>,
    zero: Zero,
    level: Option<Level>,
}

/// What [`QTensor::new`] takes; see there.
#[derive(Clone, Debug)]
pub struct QTensorParts {
    pub format: Format,
    pub rows: usize,
    pub cols: usize,
    /// Row-major, one code a byte, in the low bits (int8 and int4 as two's complement).
    pub codes: Vec<u8>,
    pub granularity: Granularity,
    /// One of [`SCALE_FORMATS`]; `scale_inv` holds values this format has.
    pub scale_format: Format,
    /// Row-major over [`Granularity::grid`].
    pub scale_inv: Vec<f32>,
    pub zero: Zero,
    /// What the scales are multiplied by, where they are quantized themselves.
    pub level: Option<Level>,
}

impl QTensor {
    /// Checks the granularity (no tile of zero rows or columns), lengths against shape and granularity, codes against the width
    /// of the format, scales against their format. Scales may be NaN, Inf (where their format has it), zero or negative: a
    /// kernel may have written them, and comparison has to see them.
    pub fn new(p: QTensorParts) -> Result<Self> {
        let all = |codes| (Numbers::here(codes), There::default(), Beside(None));
        Self::of(p, all)
    }

    /// The parts, without codes, of those that were made elsewhere of the tensor that has `of` made of it. Errors: those of [`QTensor::new`].
    pub(crate) fn elsewhere(p: QTensorParts, made: FarCodes, of: &There) -> Result<Self> {
        let FarCodes { codes, there, rows, ties } = made;
        let seen = Seen { of: of.mark(), rows, ties };
        Self::of(p, |_| (codes, there, Beside(Some(Arc::new(seen)))))
    }

    fn of(p: QTensorParts, codes: impl FnOnce(Vec<u8>) -> (Numbers<u8>, There, Beside<Seen>)) -> Result<Self> {
        let QTensorParts { format, rows, cols, codes: given, granularity, scale_format, scale_inv, zero, level } = p;
        let (codes, there, seen) = codes(given);
        if format.bits() > 8 {
            return Err(Error::value("quantized format", format, "a format of at most 8 bits"));
        }
        if matches!(granularity.tile(rows, cols), (0, _) | (_, 0)) {
            return Err(Error::value("granularity", granularity, "tiles of at least one row and one column"));
        }
        if rows.checked_mul(cols) != Some(codes.count()) {
            return Err(Error::shape("codes", format!("{} codes", codes.count()), format!("{rows}×{cols}")));
        }
        if format.bits() < 8
            && let Some(i) = parallel::first(codes.all(), |c| u32::from(*c) >= 1 << format.bits())
        {
            let found = format!("{:#x}", codes.all()[i]);
            return Err(Error::value(format!("{format} code"), found, format!("a code of {} bits", format.bits())));
        }
        let (gr, gc) = granularity.grid(rows, cols);
        let zeros = match &zero {
            Zero::None => gr * gc,
            Zero::Integer(z) => z.len(),
            Zero::Additive { zero, .. } => zero.len(),
        };
        for (what, len) in [("scale_inv", scale_inv.len()), ("zero_point", zeros)] {
            if len != gr * gc {
                let want = format!("{gr}×{gc} for {granularity} of {rows}×{cols}");
                return Err(Error::shape(what, format!("{len} values"), want));
            }
        }
        check_scales("scale_inv", scale_format, &scale_inv)?;
        if let Some(level) = &level {
            level.check(gr, gc, &zero)?;
        }
        Ok(Self {
            format,
            rows,
            cols,
            codes: Arc::new(codes),
            there,
            found: There::default(),
            seen,
            granularity,
            scale_format,
            scale_inv,
            zero,
            level,
        })
    }
    /// The parts, to be changed and checked again.
    pub fn into_parts(self) -> QTensorParts {
        let Self { format, rows, cols, codes, granularity, scale_format, scale_inv, zero, level, .. } = self;
        let codes = Arc::unwrap_or_clone(codes).into_all();
        QTensorParts { format, rows, cols, codes, granularity, scale_format, scale_inv, zero, level }
    }
    pub fn format(&self) -> Format {
        self.format
    }
    pub fn rows(&self) -> usize {
        self.rows
    }
    pub fn cols(&self) -> usize {
        self.cols
    }
    pub fn codes(&self) -> &[u8] {
        self.codes.all()
    }
    /// How many codes it has.
    pub(crate) fn count(&self) -> usize {
        self.codes.count()
    }
    /// The codes of row `i`; the others may stay where they lie.
    pub(crate) fn some_row(&self, i: usize) -> Cow<'_, [u8]> {
        self.codes.some(i * self.cols..(i + 1) * self.cols)
    }
    /// What occurs among its codes, where a device has counted it.
    pub(crate) fn seen(&self) -> Option<&Seen> {
        self.seen.0.as_deref()
    }
    /// What a device holds of the codes.
    #[cfg(feature = "cuda")]
    pub(crate) fn there(&self) -> &There {
        &self.there
    }
    /// What was found of the codes, by whoever asks for it again.
    pub(crate) fn found(&self) -> &There {
        &self.found
    }
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }
    pub fn scale_format(&self) -> Format {
        self.scale_format
    }
    pub fn scale_inv(&self) -> &[f32] {
        &self.scale_inv
    }
    pub fn zero(&self) -> &Zero {
        &self.zero
    }
    pub fn level(&self) -> Option<&Level> {
        self.level.as_ref()
    }
    /// The second level's scale_inv where it is one number for the whole tensor (NVFP4).
    pub fn global_scale_inv(&self) -> Option<f32> {
        self.level.as_ref().filter(|l| l.is_whole()).map(|l| l.scale_inv[0])
    }
    /// The second level's scale_inv of row `i` where it is one number for all of the row: of the tensor, or of an expert's rows.
    pub fn over_row(&self, i: usize) -> Option<f32> {
        let level = self.level.as_ref().filter(|l| l.zero.is_none())?;
        let grid = self.granularity.grid(self.rows, self.cols);
        (level.granularity.grid(grid.0, grid.1).1 == 1).then(|| level.scale_inv[level.index(self.scale_index(i, 0), grid)])
    }
    /// Index into `scale_inv` of element (i, j).
    pub fn scale_index(&self, i: usize, j: usize) -> usize {
        let (r, c) = self.granularity.tile(self.rows, self.cols);
        let (_, grid_cols) = self.granularity.grid(self.rows, self.cols);
        (i / r) * grid_cols + j / c
    }
    /// What the second level multiplies scale `s` by, and the additive zero point beside it; 1 where there is none.
    pub fn over(&self, s: usize) -> (f32, f32) {
        let Some(level) = &self.level else { return (1.0, 1.0) };
        let t = level.index(s, self.granularity.grid(self.rows, self.cols));
        (level.scale_inv[t], level.zero.as_ref().map_or(1.0, |z| z[t]))
    }
    /// How the codes of tile `s` become values, exact in f64.
    pub fn affine(&self, s: usize) -> Affine {
        let (over, zero_over) = self.over(s);
        let unit = f64::from(self.scale_inv[s]) * f64::from(over);
        let (minus, plus) = match &self.zero {
            // x + −0 is x, −0 included.
            Zero::None => (0.0, -0.0),
            Zero::Integer(z) => (f64::from(z[s]), -0.0),
            Zero::Additive { zero, mid } => (f64::from(*mid), f64::from(zero[s]) * f64::from(zero_over)),
        };
        Affine { unit, minus, plus }
    }
    /// What a kernel in f32 has of tile `s`: `(RN32(scale_inv · second level), RN32(additive zero point · second level))`, the latter 0
    /// where there is none.
    pub fn steps(&self, s: usize) -> (f32, f32) {
        let (over, zero_over) = self.over(s);
        let plus = if let Zero::Additive { zero, .. } = &self.zero { zero[s] * zero_over } else { 0.0 };
        (self.scale_inv[s] * over, plus)
    }
    /// The value of element (i, j) in f64 by [`QTensor::affine`].
    pub fn value(&self, i: usize, j: usize) -> f64 {
        self.affine(self.scale_index(i, j)).value(self.format.decode(u32::from(self.codes()[i * self.cols + j])))
    }
    /// Some values of row `i`, bit for bit [`QTensor::value`]'s, a tile at a time.
    pub fn values_of_row(&self, i: usize, columns: Range<usize>) -> Vec<f64> {
        let decoder = Decoder::new(self.format).expect("at most 8 bits: checked on construction");
        let (tile, codes) = (self.granularity.tile(self.rows, self.cols).1, self.some_row(i));
        let mut values = Vec::with_capacity(columns.len());
        let mut from = columns.start;
        while from < columns.end {
            let to = columns.end.min((from / tile + 1) * tile);
            let affine = self.affine(self.scale_index(i, from));
            values.extend(codes[from..to].iter().map(|c| affine.value(decoder.decode_f64(*c))));
            from = to;
        }
        values
    }
    /// All values in f64, element by element as [`QTensor::value`]: the definition of dequantize.
    pub fn dequantize(&self) -> Array2<f64> {
        Array2::from_shape_fn((self.rows, self.cols), |(i, j)| self.value(i, j))
    }
    /// [`QTensor::dequantize`], bit for bit, a tile's row at a time: what sweeps call.
    pub fn dequantize_fast(&self) -> Array2<f64> {
        self.dequantize_with(|x| x)
    }
    /// Each value of [`QTensor::dequantize`] rounded once to f32. Without zero point and second level that is
    /// RN32(decode(code) · scale_inv).
    pub fn dequantize_f32(&self) -> Array2<f32> {
        self.dequantize_with(|x| x as f32)
    }
    fn dequantize_with<T: Copy + Default + Send>(&self, finish: impl Fn(f64) -> T + Sync) -> Array2<T> {
        let decoder = Decoder::new(self.format).expect("at most 8 bits: checked on construction");
        let (tile_rows, tile_cols) = self.granularity.tile(self.rows, self.cols);
        let (_, grid_cols) = self.granularity.grid(self.rows, self.cols);
        let (all, mut values) = (self.codes(), vec![T::default(); self.count()]);
        let cols = self.cols.max(1);
        let row = |i: usize, values: &mut [T]| {
            let codes = &all[i * cols..(i + 1) * cols];
            for (tile, (values, codes)) in values.chunks_mut(tile_cols).zip(codes.chunks(tile_cols)).enumerate() {
                let affine = self.affine((i / tile_rows) * grid_cols + tile);
                values.iter_mut().zip(codes).for_each(|(v, c)| *v = finish(affine.value(decoder.decode_f64(*c))));
            }
        };
        let high = parallel::BAND / cols + 1;
        parallel::chunks(&mut values, high * cols, |band, some| {
            some.chunks_mut(cols).enumerate().for_each(|(i, values)| row(band * high + i, values));
        });
        Array2::from_shape_vec((self.rows, self.cols), values).expect("one value a code")
    }
    /// `cols × rows` with code (i,j) at (j,i) and the scale grid transposed with it.
    pub fn transposed(&self) -> Result<QTensor> {
        fn turn<T: Copy>(v: &[T], rows: usize, cols: usize) -> Vec<T> {
            (0..cols).flat_map(|j| (0..rows).map(move |i| v[i * cols + j])).collect()
        }
        let (r, c) = self.granularity.tile(self.rows, self.cols);
        let (gr, gc) = self.granularity.grid(self.rows, self.cols);
        QTensor::new(QTensorParts {
            rows: self.cols,
            cols: self.rows,
            codes: turn(self.codes(), self.rows, self.cols),
            granularity: match self.granularity {
                Granularity::Tensor => Granularity::Tensor,
                _ => Granularity::Block { rows: c, cols: r },
            },
            scale_inv: turn(&self.scale_inv, gr, gc),
            zero: match &self.zero {
                Zero::None => Zero::None,
                Zero::Integer(z) => Zero::Integer(turn(z, gr, gc)),
                Zero::Additive { zero, mid } => Zero::Additive { zero: turn(zero, gr, gc), mid: *mid },
            },
            level: self.level.clone().map(|l| l.transposed(gr, gc)),
            ..self.clone().into_parts()
        })
    }
}

/// How codes become values: `(decode(code) − minus) · unit + plus`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// scale_inv, times that of the second level.
    pub unit: f64,
    /// The integer zero point, or the code about which the additive one is.
    pub minus: f64,
    /// The additive zero point in real units, −0 where there is none.
    pub plus: f64,
}

impl Affine {
    #[inline(always)]
    pub fn value(&self, code: f64) -> f64 {
        (code - self.minus) * self.unit + self.plus
    }
    /// The number that is rounded to the code of `x`: the inverse.
    pub fn steps(&self, x: f64) -> f64 {
        // Adding nothing would take a zero's sign.
        let y = if self.plus == 0.0 { x } else { x - self.plus } / self.unit;
        if self.minus == 0.0 { y } else { y + self.minus }
    }
}

mod level;
#[cfg(test)]
mod tests;
