//! The f64 references of large products on the GPU (`kernels/reference.cu`), from operands as they lie there: the bits of [`crate::op`]'s.

use super::afar;
use super::contract::{Contract, Pointer, arguments, by_value};
use super::launch::{Buffer, Gpu, LaunchShape};
use crate::order::Order as _;
use crate::{Error, QTensor, Result, Tensor, Zero, parallel};
use std::ops::Range;
use std::sync::Arc;

arguments! {
    /// Contract reference_width.
    Width = "reference.cu" "reference_width" { values: Pointer, count: u64, found: Pointer }
}

by_value! {
    /// One side of a product.
    Factors = "reference.cu" {
        values: Pointer, codes: Pointer, table: Pointer, unit: Pointer, minus: Pointer, rows: i32, k: i32, first_row: i32, first_k: i32, pitch: i32,
        tile_rows: i32, tile_cols: i32, grid_cols: i32,
    }
}

arguments! {
    /// Contract reference_lanes.
    LanesOf = "reference.cu" "reference_lanes" { of: Factors, lanes: Pointer, padded: usize, depth: usize }
}

arguments! {
    /// Contract reference_digits.
    DigitsOf = "reference.cu" "reference_digits" {
        of: Factors, digits: Pointer, pitch: usize, low: i32, shift: usize, width: usize,
    }
}

arguments! {
    /// Contract reference_sums.
    SumsOf = "reference.cu" "reference_sums" {
        a: Pointer, b: Pointer, bias: Pointer, d: Pointer, magnitude: Pointer, m: usize, n: usize, depth: usize, padded_a: usize,
        padded_b: usize,
    }
}

arguments! {
    /// Contract reference_exact.
    ExactOf = "reference.cu" "reference_exact" {
        of_a: Factors, of_b: Factors, a: Pointer, b: Pointer, high: Pointer, low: Pointer, pitch: usize, begin: usize, length: usize,
        exponent: i32, first: usize,
    }
}

arguments! {
    /// Contract reference_mend.
    Mend = "reference.cu" "reference_mend" {
        high: Pointer, low: Pointer, magnitude: Pointer, bias: Pointer, d: Pointer, m: usize, n: usize, k: usize,
    }
}

/// Rows and columns of a block of reference_sums and of reference_exact, and their shared memory.
const SUMS: (usize, usize) = (128, 64);
const SUMS_SHARED: usize = 4 * 8 * (128 + 64) * 8;
const EXACT: usize = 128;
const EXACT_SHARED: usize = 4 * 2 * 128 * 12 * 8;
/// Lanes of a sum, and what their lengths are a multiple of.
const LANES: usize = 16;
const DEPTH: usize = 8;
/// Products of parts at most: more cost more than adding every product in pairs.
const PASSES: usize = 12;

/// One side's factors on the device, or a part of them.
#[derive(Clone)]
pub struct Side {
    values: Option<Arc<Buffer>>,
    codes: Option<Arc<Buffer>>,
    table: Option<Arc<Buffer>>,
    unit: Option<Arc<Buffer>>,
    /// Zero points.
    minus: Option<Arc<Buffer>>,
    /// What is multiplied, of rows of `pitch` factors.
    rows: Range<usize>,
    k: Range<usize>,
    pitch: usize,
    /// Rows and columns that share a unit, and units a row of them.
    tile: (usize, usize),
    grid_cols: usize,
    /// The exponent of the lowest bit that any factor has, and how many bits they have from there.
    low: i32,
    bits: usize,
}

fn refuse(why: impl Into<String>) -> Error {
    Error::unsupported("the f64 reference on the GPU", why.into())
}

fn every(gpu: &Gpu) -> LaunchShape {
    LaunchShape::new(gpu.info.multiprocessors * 16, 256)
}

impl Side {
    /// Values as they are. Errors: one is not finite; the driver's.
    pub fn values(gpu: &Gpu, x: &Tensor) -> Result<Self> {
        let values = afar::values(gpu, x)?;
        let found = gpu.upload_i32(&[-100_000, -100_000, 0])?;
        let arguments = Width { values: (&*values).into(), count: x.count() as u64, found: (&found).into() };
        // SAFETY: so many values; three ints.
        unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
        let found: Vec<i32> = gpu.download_whole("width of values", &found)?;
        if found[2] != 0 {
            return Err(refuse("values that are not finite are added on the CPU"));
        }
        let (low, bits) = if found[0] < -1000 { (0, 1) } else { (-found[1], (found[0] + found[1] + 1) as usize) };
        let none = || None;
        Ok(Self {
            values: Some(values),
            codes: none(),
            table: none(),
            unit: none(),
            minus: none(),
            rows: 0..x.rows(),
            k: 0..x.cols(),
            pitch: x.cols(),
            tile: (x.rows().max(1), x.cols().max(1)),
            grid_cols: 1,
            low,
            bits,
        })
    }

    /// Codes with a scale a tile, integers also with a zero point. Errors: others; one is not finite; the driver's.
    pub fn codes(gpu: &Gpu, q: &QTensor) -> Result<Self> {
        let table: Vec<f64> = (0..256).map(|c| if c >> q.format().bits() == 0 { q.format().decode(c) } else { 0.0 }).collect();
        let unit: Vec<f64> = (0..q.scale_inv().len()).map(|s| q.affine(s).unit).collect();
        let not_finite: [u32; 256] = std::array::from_fn(|c| u32::from(!table[c].is_finite()));
        let special = match q.seen() {
            Some(seen) => seen.present().iter().zip(not_finite).any(|(present, not)| *present && not != 0),
            None => parallel::or(q.codes(), |c| not_finite[usize::from(*c)]) != 0,
        };
        let zeros: Vec<f64> =
            if let Zero::Integer(z) = q.zero() { z.iter().map(|z| f64::from(*z)).collect() } else { Vec::new() };
        let zeros_fit = zeros.is_empty() || q.format().is_integer();
        let additive = matches!(q.zero(), Zero::Additive { .. });
        if special || q.level().is_some() || additive || !zeros_fit || !unit.iter().all(|u| u.is_finite()) {
            return Err(refuse("codes are finite, with one level of finite scales and at most whole zero points"));
        }
        let ends = |x: &[f64]| x.iter().fold((0.0f64, 0.0f64), |(low, high), x| (low.min(*x), high.max(*x)));
        let (codes, minus) = (ends(&table), ends(&zeros));
        // The largest numbers that a code less a zero point can be, beside the codes themselves.
        let widest = [codes.0 - minus.1, codes.1 - minus.0];
        let numbers = || {
            table
                .iter()
                .chain(if zeros.is_empty() { &[] } else { &widest[..] })
                .filter(|x| x.is_finite() && **x != 0.0)
                .map(|x| x.abs().to_bits())
        };
        let exponent = |bits: u64| (bits >> 52) as i32 - 1023;
        let lowest = |bits: u64| exponent(bits) - 52 + (bits & ((1 << 52) - 1) | 1 << 52).trailing_zeros() as i32;
        let (low, top) = (numbers().map(lowest).min().unwrap_or(0), numbers().map(exponent).max().unwrap_or(0));
        let some = |buffer: Buffer| Some(Arc::new(buffer));
        Ok(Self {
            values: None,
            codes: Some(q.there().or_make(|| gpu.upload(q.codes()))?),
            table: some(gpu.upload_all(&table)?),
            unit: some(gpu.upload_all(&unit)?),
            minus: if zeros.is_empty() { None } else { some(gpu.upload_all(&zeros)?) },
            rows: 0..q.rows(),
            k: 0..q.cols(),
            pitch: q.cols(),
            tile: q.granularity().tile(q.rows(), q.cols()),
            grid_cols: q.granularity().grid(q.rows(), q.cols()).1,
            low,
            bits: (top - low + 1) as usize,
        })
    }

    /// Some rows, and some of their factors. Panics where they are not there.
    pub fn part(&self, rows: &Range<usize>, k: &Range<usize>) -> Self {
        assert!(
            rows.end <= self.rows.len() && k.end <= self.k.len(),
            "rows {rows:?} of {:?}, k {k:?} of {:?}",
            self.rows,
            self.k
        );
        let within = |of: &Range<usize>, some: &Range<usize>| of.start + some.start..of.start + some.end;
        Self { rows: within(&self.rows, rows), k: within(&self.k, k), ..self.clone() }
    }

    fn padded(&self) -> usize {
        self.rows.len().next_multiple_of(EXACT)
    }

    /// The ends of the runs of K inside which no unit changes.
    fn ends(&self) -> Vec<usize> {
        let inner = (self.k.start / self.tile.1 + 1..).map(|tile| tile * self.tile.1).take_while(|end| *end < self.k.end);
        inner.chain([self.k.end]).map(|end| end - self.k.start).collect()
    }

    /// Sizes that [`product`] looked at.
    fn factors(&self) -> Factors {
        let pointer = |buffer: &Option<Arc<Buffer>>| Pointer::from(buffer.as_deref());
        Factors {
            values: pointer(&self.values),
            codes: pointer(&self.codes),
            table: pointer(&self.table),
            unit: pointer(&self.unit),
            minus: pointer(&self.minus),
            rows: self.rows.len() as i32,
            k: self.k.len() as i32,
            first_row: self.rows.start as i32,
            first_k: self.k.start as i32,
            pitch: self.pitch as i32,
            tile_rows: self.tile.0 as i32,
            tile_cols: self.tile.1 as i32,
            grid_cols: self.grid_cols as i32,
        }
    }

    /// The factors, lane by lane.
    fn lanes(&self, gpu: &Gpu) -> Result<(Buffer, usize)> {
        let (padded, depth) = (self.padded(), self.k.len().div_ceil(LANES).next_multiple_of(DEPTH));
        let lanes = gpu.filled(LANES * depth * padded * 8, 0)?;
        let arguments = LanesOf { of: self.factors(), lanes: (&lanes).into(), padded, depth };
        // SAFETY: the factors are rows × k, the lanes LANES × depth × padded.
        unsafe { gpu.launch(arguments.launch(&[], LaunchShape::of([self.k.len().div_ceil(128), padded / 32], 256)))? };
        Ok((lanes, depth))
    }

    /// `width` bits of every factor from bit `shift` on.
    fn digits(&self, gpu: &Gpu, pitch: usize, shift: usize, width: usize) -> Result<Buffer> {
        let padded = self.padded();
        let digits = gpu.filled(padded * pitch * 8, 0)?;
        let arguments = DigitsOf { of: self.factors(), digits: (&digits).into(), pitch, low: self.low, shift, width };
        // SAFETY: as above, the digits padded × pitch.
        unsafe { gpu.launch(arguments.launch(&[], LaunchShape::of([padded, pitch.div_ceil(256)], 256)))? };
        Ok(digits)
    }
}

/// a·bᵀ + bias and |a|·|b|ᵀ + |bias|, `[M, N]` on the device: the bits of [`crate::op::gemm`]'s.
pub struct Product {
    pub d: Buffer,
    pub magnitude: Buffer,
}

impl Product {
    /// Zeros.
    pub fn zeros(gpu: &Gpu, elements: usize) -> Result<Self> {
        Ok(Self { d: gpu.filled(elements * 8, 0)?, magnitude: gpu.filled(elements * 8, 0)? })
    }
}

/// The runs of K inside which no scale of either side changes. Errors: one that the kernel does not cut out.
fn runs(a: &Side, b: &Side) -> Result<Vec<Range<usize>>> {
    let mut ends = [a.ends(), b.ends()].concat();
    ends.sort_unstable();
    ends.dedup();
    let begins = std::iter::once(0).chain(ends.iter().copied());
    let runs: Vec<Range<usize>> = begins.zip(&ends).map(|(begin, end)| begin..*end).collect();
    match runs.iter().all(|run| run.start.is_multiple_of(DEPTH)) {
        true => Ok(runs),
        false => Err(refuse(format!("scales change along K at multiples of {DEPTH}"))),
    }
}

/// The product of `a` and `b` into rows of `into` from `first` on. Errors: factors whose exact sums need too many parts; sizes that do not fit;
/// the driver's.
pub fn product(gpu: &Gpu, a: &Side, b: &Side, bias: Option<&Buffer>, into: &Product, first: usize) -> Result<()> {
    let (m, n, k) = (a.rows.len(), b.rows.len(), a.k.len());
    let largest = i32::MAX as usize / 2;
    if b.k.len() != k || [m, n, k].iter().any(|x| !(1..=largest).contains(x)) || (first + m) * n * 8 > into.d.bytes() {
        let found = format!("{m}×{k} and {n}×{}, from row {first} on", b.k.len());
        return Err(Error::shape("operands of the f64 product", found, "M×K and N×K, of 1 to 2^30, whose result is there"));
    }
    let runs = runs(a, b)?;
    // Sums of the products of two parts in a run are integers that f64 holds.
    let longest = runs.iter().map(Range::len).max().unwrap_or(1);
    let width = (53 - longest.next_power_of_two().trailing_zeros() as usize) / 2;
    let (parts_a, parts_b) = (a.bits.div_ceil(width), b.bits.div_ceil(width));
    if parts_a * parts_b > PASSES || a.bits.max(b.bits) > 62 {
        return Err(refuse(format!("factors of {} and {} bits from the largest to the lowest", a.bits, b.bits)));
    }
    let from_first = |buffer: &Buffer| Pointer(buffer.pointer() + (first * n * 8) as u64);
    let (d, magnitude) = (from_first(&into.d), from_first(&into.magnitude));
    {
        let ((lanes_a, depth), (lanes_b, _)) = (a.lanes(gpu)?, b.lanes(gpu)?);
        let arguments = SumsOf {
            a: (&lanes_a).into(),
            b: (&lanes_b).into(),
            bias: bias.into(),
            d,
            magnitude,
            m,
            n,
            depth,
            padded_a: a.padded(),
            padded_b: b.padded(),
        };
        let shape = LaunchShape::of([n.div_ceil(SUMS.1), m.div_ceil(SUMS.0)], 256).shared(SUMS_SHARED);
        // SAFETY: lanes of both sides, padded to whole blocks; results of m × n.
        unsafe { gpu.launch(arguments.launch(&[], shape))? };
    }
    let (high, low) = (gpu.output(m * n * 8)?, gpu.output(m * n * 8)?);
    let pitch = k.next_multiple_of(DEPTH);
    let cut = |side: &Side, parts: usize| -> Result<Vec<Buffer>> {
        (0..parts).map(|p| side.digits(gpu, pitch, p * width, width)).collect()
    };
    {
        let (digits_a, digits_b) = (cut(a, parts_a)?, cut(b, parts_b)?);
        let mut passes: Vec<(usize, usize)> = (0..parts_a).flat_map(|p| (0..parts_b).map(move |q| (p, q))).collect();
        passes.order_by_key(|(p, q)| p + q);
        let all = passes.iter().flat_map(|pass| runs.iter().map(move |run| (pass, run)));
        for (i, ((p, q), run)) in all.enumerate() {
            let arguments = ExactOf {
                of_a: a.factors(),
                of_b: b.factors(),
                a: (&digits_a[*p]).into(),
                b: (&digits_b[*q]).into(),
                high: (&high).into(),
                low: (&low).into(),
                pitch,
                begin: run.start,
                length: run.len().next_multiple_of(DEPTH),
                exponent: a.low + b.low + ((p + q) * width) as i32,
                first: usize::from(i == 0),
            };
            let shape = LaunchShape::of([n.div_ceil(EXACT), m.div_ceil(EXACT)], 256).shared(EXACT_SHARED);
            // SAFETY: digits padded to whole blocks; results of m × n.
            unsafe { gpu.launch(arguments.launch(&[], shape))? };
        }
    }
    let arguments = Mend { high: (&high).into(), low: (&low).into(), magnitude, bias: bias.into(), d, m, n, k };
    // SAFETY: matrices of m × n.
    unsafe { gpu.launch(arguments.launch(&[], every(gpu))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(k: Range<usize>, tile: usize) -> Side {
        let none = || None;
        let (values, codes, table, unit, minus) = (none(), none(), none(), none(), none());
        Side { values, codes, table, unit, minus, rows: 0..4, k, pitch: 4096, tile: (1, tile), grid_cols: 32, low: 0, bits: 18 }
    }

    #[test]
    fn scales_change_where_those_of_one_side_do() {
        assert_eq!(runs(&side(0..300, 128), &side(0..300, 4096)).unwrap(), [0..128, 128..256, 256..300]);
        assert_eq!(runs(&side(0..128, 32), &side(0..128, 64)).unwrap(), [0..32, 32..64, 64..96, 96..128]);
        assert_eq!(runs(&side(0..256, 4096), &side(0..256, 4096)).unwrap(), [0..256]);
        // Part of a row: its units are those of the whole.
        assert_eq!(runs(&side(64..300, 128), &side(64..300, 128)).unwrap(), [0..64, 64..192, 192..236]);
        assert!(runs(&side(0..20, 10), &side(0..20, 20)).unwrap_err().to_string().contains("multiples of 8"));
    }
}
