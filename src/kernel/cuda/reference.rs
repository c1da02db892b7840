//! The f64 references of large products on the GPU (`kernels/reference.cu`), from operands as they lie there: the bits of [`crate::op`]'s.

use super::contract::{Contract, Pointer, arguments, by_value};
use super::launch::{Buffer, Gpu, LaunchShape};
use crate::{Error, Granularity, QTensor, Result, Tensor, Zero, parallel};

arguments! {
    /// Contract reference_width.
    Width = "reference.cu" "reference_width" { values: Pointer, count: u64, found: Pointer }
}

by_value! {
    /// One side of a product.
    Factors = "reference.cu" { values: Pointer, codes: Pointer, table: Pointer, unit: Pointer, rows: i32, k: i32 }
}

arguments! {
    /// Contract reference_lanes.
    LanesOf = "reference.cu" "reference_lanes" { of: Factors, lanes: Pointer, padded: usize, depth: usize, step: usize }
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
        a: Pointer, b: Pointer, high: Pointer, low: Pointer, m: usize, n: usize, pitch: usize, exponent: i32, first: usize,
    }
}

arguments! {
    /// Contract reference_mend.
    Mend = "reference.cu" "reference_mend" {
        high: Pointer, low: Pointer, magnitude: Pointer, unit_a: Pointer, unit_b: Pointer, bias: Pointer, d: Pointer, m: usize, n: usize,
        k: usize, step_a: usize, step_b: usize,
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

/// One side's factors on the device.
pub struct Side {
    rows: usize,
    k: usize,
    values: Option<Buffer>,
    codes: Option<Buffer>,
    table: Option<Buffer>,
    unit: Option<Buffer>,
    /// 1: a unit a row; 0: one.
    step: usize,
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
        let values = gpu.upload_f32(x.data())?;
        let found = gpu.upload_i32(&[-100_000, -100_000, 0])?;
        let arguments = Width { values: (&values).into(), count: x.data().len() as u64, found: (&found).into() };
        // SAFETY: so many values; three ints.
        unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
        let found: Vec<i32> = gpu.download_whole("width of values", &found)?;
        if found[2] != 0 {
            return Err(refuse("values that are not finite are added on the CPU"));
        }
        let (low, bits) = if found[0] < -1000 { (0, 1) } else { (-found[1], (found[0] + found[1] + 1) as usize) };
        let none = || None;
        let (rows, k) = (x.rows(), x.cols());
        Ok(Self { rows, k, values: Some(values), codes: none(), table: none(), unit: none(), step: 0, low, bits })
    }

    /// Codes of a narrow float with a scale a tensor or a row. Errors: others; one is not finite; the driver's.
    pub fn codes(gpu: &Gpu, q: &QTensor) -> Result<Self> {
        let step = match q.granularity() {
            Granularity::Tensor => 0,
            Granularity::Row => 1,
            other => return Err(refuse(format!("codes have a scale a tensor or a row, not {other}"))),
        };
        let table: Vec<f64> = (0..256).map(|c| if c >> q.format().bits() == 0 { q.format().decode(c) } else { 0.0 }).collect();
        let unit: Vec<f64> = (0..q.scale_inv().len()).map(|s| q.affine(s).unit).collect();
        let special = parallel::first(q.codes(), |c| !table[usize::from(*c)].is_finite()).is_some();
        if special || q.level().is_some() || *q.zero() != Zero::None || !unit.iter().all(|u| u.is_finite()) {
            return Err(refuse("codes are finite, with one level of finite scales and without zero points"));
        }
        let numbers = || table.iter().filter(|x| x.is_finite() && **x != 0.0).map(|x| x.abs().to_bits());
        let exponent = |bits: u64| (bits >> 52) as i32 - 1023;
        let lowest = |bits: u64| exponent(bits) - 52 + (bits & ((1 << 52) - 1) | 1 << 52).trailing_zeros() as i32;
        let (low, top) = (numbers().map(lowest).min().unwrap_or(0), numbers().map(exponent).max().unwrap_or(0));
        Ok(Self {
            rows: q.rows(),
            k: q.cols(),
            values: None,
            codes: Some(gpu.upload(q.codes())?),
            table: Some(gpu.upload_all(&table)?),
            unit: Some(gpu.upload_all(&unit)?),
            step,
            low,
            bits: (top - low + 1) as usize,
        })
    }

    fn padded(&self) -> usize {
        self.rows.next_multiple_of(EXACT)
    }

    /// Sizes that [`product`] looked at.
    fn factors(&self) -> Factors {
        Factors {
            values: self.values.as_ref().into(),
            codes: self.codes.as_ref().into(),
            table: self.table.as_ref().into(),
            unit: self.unit.as_ref().into(),
            rows: self.rows as i32,
            k: self.k as i32,
        }
    }

    /// The factors, lane by lane.
    fn lanes(&self, gpu: &Gpu) -> Result<(Buffer, usize)> {
        let (padded, depth) = (self.padded(), self.k.div_ceil(LANES).next_multiple_of(DEPTH));
        let lanes = gpu.filled(LANES * depth * padded * 8, 0)?;
        let arguments = LanesOf { of: self.factors(), lanes: (&lanes).into(), padded, depth, step: self.step };
        // SAFETY: the factors are rows × k, the lanes LANES × depth × padded.
        unsafe { gpu.launch(arguments.launch(&[], LaunchShape::of([self.k.div_ceil(128), padded / 32], 256)))? };
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

/// Errors: factors whose exact sums need too many parts; sizes that do not fit; the driver's.
pub fn product(gpu: &Gpu, a: &Side, b: &Side, bias: Option<&Buffer>) -> Result<Product> {
    let (m, n, k) = (a.rows, b.rows, a.k);
    let largest = i32::MAX as usize / 2;
    if b.k != k || [m, n, k].iter().any(|x| !(1..=largest).contains(x)) {
        return Err(Error::shape(
            "operands of the f64 product",
            format!("{m}×{k} and {n}×{}", b.k),
            "M×K and N×K, of 1 to 2^30",
        ));
    }
    // Sums of k products of two parts are integers that f64 holds.
    let width = (53 - k.next_power_of_two().trailing_zeros() as usize) / 2;
    let (parts_a, parts_b) = (a.bits.div_ceil(width), b.bits.div_ceil(width));
    if parts_a * parts_b > PASSES || a.bits.max(b.bits) > 62 {
        return Err(refuse(format!("factors of {} and {} bits from the largest to the lowest", a.bits, b.bits)));
    }
    let (d, magnitude) = (gpu.output(m * n * 8)?, gpu.output(m * n * 8)?);
    {
        let ((lanes_a, depth), (lanes_b, _)) = (a.lanes(gpu)?, b.lanes(gpu)?);
        let arguments = SumsOf {
            a: (&lanes_a).into(),
            b: (&lanes_b).into(),
            bias: bias.into(),
            d: (&d).into(),
            magnitude: (&magnitude).into(),
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
        passes.sort_by_key(|(p, q)| p + q);
        for (i, (p, q)) in passes.into_iter().enumerate() {
            let arguments = ExactOf {
                a: (&digits_a[p]).into(),
                b: (&digits_b[q]).into(),
                high: (&high).into(),
                low: (&low).into(),
                m,
                n,
                pitch,
                exponent: a.low + b.low + ((p + q) * width) as i32,
                first: usize::from(i == 0),
            };
            let shape = LaunchShape::of([n.div_ceil(EXACT), m.div_ceil(EXACT)], 256).shared(EXACT_SHARED);
            // SAFETY: digits padded to whole blocks; results of m × n.
            unsafe { gpu.launch(arguments.launch(&[], shape))? };
        }
    }
    let arguments = Mend {
        high: (&high).into(),
        low: (&low).into(),
        magnitude: (&magnitude).into(),
        unit_a: a.unit.as_ref().into(),
        unit_b: b.unit.as_ref().into(),
        bias: bias.into(),
        d: (&d).into(),
        m,
        n,
        k,
        step_a: a.step,
        step_b: b.step,
    };
    // SAFETY: matrices of m × n, units of as many rows as their steps reach.
    unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
    Ok(Product { d, magnitude })
}
