//! A large result judged on the GPU (`kernels/judge.cu`), where its references and bounds lie: what comes back are counts, extremes and
//! sums, to the bits of [`crate::compare`]'s.

use super::contract::{Contract, Pointer, arguments};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::options::define;
use super::{model, reference};
use crate::compare::measured::{Measured, line};
use crate::compare::metrics::{self, Counts, Sums};
use crate::compare::out::LaidOut;
use crate::compare::power::{self, Facts, Seen};
use crate::compare::probable::{DELTA, U32, gamma, lambda};
use crate::compare::quantile::{Between, FEW, Search};
use crate::compare::{ErrorStats, Judged, OutFormat, ProductArithmetic};
use crate::kernel::{LargeCast, LargeProduct};
use crate::model::SumBound;
use crate::model::mma::Dest;
use crate::op::gemm::{looked_at, row_agrees};
use crate::stage::timed;
use crate::{Error, Format, QTensor, Result, Tensor, Zero};
use rayon::prelude::*;

arguments! {
    /// Contract judge_bound.
    BoundOf = "judge.cu" "judge_bound" {
        ideal: Pointer, magnitude: Pointer, bias: Pointer, numbers: Pointer, lines_a: Pointer, lines_b: Pointer, repeats_a: Pointer,
        repeats_b: Pointer, scales_a: Pointer, scales_b: Pointer, certain: Pointer, probable: Pointer, rows: usize, cols: usize,
    }
}

arguments! {
    /// Contract judge_codes.
    CodesOf = "judge.cu" "judge_codes" {
        codes: Pointer, table: Pointer, unit: Pointer, values: Pointer, cols: usize, tile_rows: usize, tile_cols: usize, grid_cols: usize,
        count: u64,
    }
}

arguments! {
    /// Contract judge_widen.
    Widen = "judge.cu" "judge_widen" { from: Pointer, to: Pointer, count: u64 }
}

arguments! {
    /// Contract judge_model.
    ModelOf = "judge.cu" "judge_model" {
        model: Pointer, actual: Pointer, bias: Pointer, cols: usize, dtype: usize, count: u64, found: Pointer,
    }
}

arguments! {
    /// Contract judge_elements.
    ElementsOf = "judge.cu" "judge_elements" {
        exact: Pointer, ideal: Pointer, certain: Pointer, probable: Pointer, actual: Pointer, numbers: Pointer, scale: Pointer, unit: Pointer,
        tally: Pointer, largest: Pointer, cols: usize, tile_rows: usize, tile_cols: usize, grid_cols: usize, map_rows: usize,
        map_cols: usize, map_width: usize, count: u64,
    }
}

arguments! {
    /// Contract judge_sums.
    SumsOf = "judge.cu" "judge_sums" {
        exact: Pointer, ideal: Pointer, actual: Pointer, numbers: Pointer, scale: Pointer, unit: Pointer, starts: Pointer, means: Pointer,
        sums: Pointer, leaves: usize, cols: usize, tile_rows: usize, tile_cols: usize, grid_cols: usize,
    }
}

arguments! {
    /// Contract judge_drawn.
    DrawnOf = "judge.cu" "judge_drawn" {
        exact: Pointer, ideal: Pointer, actual: Pointer, numbers: Pointer, scale: Pointer, unit: Pointer, drawn: Pointer, cols: usize,
        tile_rows: usize, tile_cols: usize, grid_cols: usize, count: u64,
    }
}

arguments! {
    /// Contract judge_ranks.
    RanksOf = "judge.cu" "judge_ranks" {
        exact: Pointer, ideal: Pointer, actual: Pointer, numbers: Pointer, scale: Pointer, unit: Pointer, between: Pointer, tally: Pointer,
        inside: Pointer, cols: usize, tile_rows: usize, tile_cols: usize, grid_cols: usize, count: u64, room: u64,
    }
}

arguments! {
    /// Contract judge_power.
    PowerOf = "judge.cu" "judge_power" {
        ideal: Pointer, certain: Pointer, actual: Pointer, numbers: Pointer, scale: Pointer, unit: Pointer, tally: Pointer,
        row_gains: Pointer, column_gains: Pointer, sums: Pointer, cols: usize, tile_rows: usize, tile_cols: usize, grid_cols: usize,
        bit_exact: usize, count: u64, block: u64,
    }
}

/// What judge_elements counts, in its order.
mod tally {
    pub const VIOLATIONS: usize = 0;
    pub const IMPROBABLE: usize = 1;
    pub const UNJUDGED: usize = 2;
    pub const DIFFERING: usize = 3;
    pub const UP_TO: usize = 4;
    pub const IDEAL_FINITE: usize = 13;
    pub const IDEAL_NONZERO: usize = 14;
    pub const JUDGED: usize = 15;
    pub const UNCLIPPED: usize = 16;
    pub const OF_ERRORS: usize = 17;
    pub const OF_ERROR: usize = 5;
    pub const RATIO_CERTAIN: usize = OF_ERRORS + 3 * OF_ERROR;
    pub const RATIO_PROBABLE: usize = RATIO_CERTAIN + 1;
    pub const LARGEST_ERROR: usize = RATIO_PROBABLE + 1;
    pub const ALL: usize = LARGEST_ERROR + 3;
}

/// The elements of a result on the device, doubles.
pub struct Elements<'a> {
    pub exact: &'a Buffer,
    pub ideal: &'a Buffer,
    /// `None`: 0.
    pub certain: Option<&'a Buffer>,
    /// `None`: the certain ones.
    pub probable: Option<&'a Buffer>,
    pub actual: &'a Buffer,
    pub rows: usize,
    pub cols: usize,
    /// Judged bit for bit.
    pub bit_exact: bool,
    /// Rows and columns of a tile of the map.
    pub map: (usize, usize),
}

/// How the elements are stored, on the device.
struct Stored {
    numbers: Buffer,
    scale: Option<Buffer>,
    unit: Option<Buffer>,
    tile: (usize, usize),
    grid_cols: usize,
    defines: Vec<String>,
}

impl Stored {
    fn new(gpu: &Gpu, of: &LaidOut) -> Result<Self> {
        let scaled = !of.unit.is_empty();
        let some = |v: &[f64]| scaled.then(|| gpu.upload_all(v)).transpose();
        let most = i32::MAX as usize;
        Ok(Self {
            numbers: gpu.upload_all(&of.numbers)?,
            scale: some(of.scale)?,
            unit: some(of.unit)?,
            tile: (of.tile.0.min(most), of.tile.1.min(most)),
            grid_cols: of.grid_cols,
            defines: vec![define("SCALED", scaled)],
        })
    }
}

/// Blocks of a loop over all elements.
fn every(gpu: &Gpu) -> LaunchShape {
    LaunchShape::new(gpu.info.multiprocessors * 8, 256)
}

/// What is counted of a result of which nothing is wrong; `None` where something is, or cannot be told here: the CPU says what. Errors: the
/// driver's.
pub fn measured(gpu: &Gpu, e: &Elements, out: &OutFormat) -> Result<Option<Measured>> {
    let n = e.rows * e.cols;
    let Some(laid_out) = out.laid_out() else { return Ok(None) };
    if !(FEW + 1..i32::MAX as usize).contains(&n) {
        return Ok(None);
    }
    let by = Judge { gpu, e, n, stored: Stored::new(gpu, &laid_out)? };
    let Some((counted, ratios)) = timed("judged", || by.elements())? else { return Ok(None) };
    let Some(errors) = timed("statistics", || by.errors(&counted))? else { return Ok(None) };
    let Some(seen) = timed("power", || by.power())? else { return Ok(None) };
    let [quantization, kernel, total] = errors;
    let is = |at: usize| counted[at] > 0;
    Ok(Some(Measured {
        judged: Judged {
            ratio_certain: f64::from_bits(counted[tally::RATIO_CERTAIN]),
            ratio_probable: f64::from_bits(counted[tally::RATIO_PROBABLE]),
            ..Judged::default()
        },
        quantization,
        kernel,
        total,
        seen,
        facts: Facts {
            elements: n,
            finite: is(tally::IDEAL_FINITE),
            nonzero: is(tally::IDEAL_NONZERO),
            bounded: is(tally::JUDGED),
            unclipped: is(tally::UNCLIPPED),
        },
        differing: counted[tally::DIFFERING] as usize,
        histogram: std::array::from_fn(|bin| {
            let up_to = |bin: usize| counted[tally::UP_TO + bin] as usize;
            up_to(bin) - if bin > 0 { up_to(bin - 1) } else { 0 }
        }),
        ratios,
    }))
}

/// Counts, and the largest ratio of every tile of the map.
type Tallied = (Vec<u64>, Vec<Vec<f64>>);

struct Judge<'a> {
    gpu: &'a Gpu,
    e: &'a Elements<'a>,
    n: usize,
    stored: Stored,
}

impl Judge<'_> {
    /// Counts and extremes, and the map.
    fn elements(&self) -> Result<Option<Tallied>> {
        let (gpu, e, s) = (self.gpu, self.e, &self.stored);
        let (tiles, width) = (e.rows.div_ceil(e.map.0), e.cols.div_ceil(e.map.1));
        let (counts, largest) = (gpu.filled(tally::ALL * 8, 0)?, gpu.filled(tiles * width * 8, 0)?);
        let arguments = ElementsOf {
            exact: e.exact.into(),
            ideal: e.ideal.into(),
            certain: e.certain.into(),
            probable: e.probable.into(),
            actual: e.actual.into(),
            numbers: (&s.numbers).into(),
            scale: s.scale.as_ref().into(),
            unit: s.unit.as_ref().into(),
            tally: (&counts).into(),
            largest: (&largest).into(),
            cols: e.cols,
            tile_rows: s.tile.0,
            tile_cols: s.tile.1,
            grid_cols: s.grid_cols,
            map_rows: e.map.0,
            map_cols: e.map.1,
            map_width: width,
            count: self.n as u64,
        };
        // SAFETY: matrices of n doubles, scales of every tile, counts and a map of these sizes.
        unsafe { gpu.launch(arguments.launch(&s.defines, every(gpu)))? };
        let counts: Vec<u64> = gpu.download_whole("counts of a result", &counts)?;
        let n = self.n as u64;
        let wrong = [tally::VIOLATIONS, tally::IMPROBABLE, tally::UNJUDGED].iter().any(|at| counts[*at] > 0);
        let numbers =
            (0..3).all(|error| counts[tally::OF_ERRORS + error * tally::OF_ERROR] == n) && counts[tally::IDEAL_FINITE] == n;
        if wrong || !numbers {
            return Ok(None);
        }
        let largest: Vec<f64> = gpu.download_whole("map of a result", &largest)?;
        Ok(Some((counts, largest.chunks(width).map(<[f64]>::to_vec).collect())))
    }

    /// The statistics of the three errors.
    fn errors(&self, counted: &[u64]) -> Result<Option<[ErrorStats; 3]>> {
        let starts = metrics::leaves(self.n);
        let on_device: Vec<i32> = starts.iter().map(|at| *at as i32).collect();
        let starts = (starts.as_slice(), &self.gpu.upload_i32(&on_device)?);
        let sums = self.sums::<18>(starts, [0.0; 3])?;
        let counts: [Counts; 3] = std::array::from_fn(|error| {
            let of = |at: usize| counted[tally::OF_ERRORS + error * tally::OF_ERROR + at] as usize;
            Counts {
                finite: of(0),
                mismatches: of(1),
                saturated: of(2),
                flushed: of(3),
                relative: of(4),
                max_abs: f64::from_bits(counted[tally::LARGEST_ERROR + error]),
                ..Counts::default()
            }
        });
        let sums: [Sums; 3] = std::array::from_fn(|error| Sums::from_array(std::array::from_fn(|i| sums[error * 6 + i])));
        let spreads = self.sums::<3>(starts, std::array::from_fn(|i| counts[i].mean(sums[i].signed)))?;
        let samples = counts.iter().flat_map(|c| [c.relative, c.finite]).collect::<Vec<_>>();
        let Some(quantiles) = self.quantiles(&samples)? else { return Ok(None) };
        Ok(Some(std::array::from_fn(|i| {
            ErrorStats::of_parts(self.n, &sums[i], &counts[i], spreads[i], (quantiles[2 * i], quantiles[2 * i + 1]))
        })))
    }

    /// Sums over the leaves of the CPU's tree, joined as it does.
    fn sums<const EACH: usize>(&self, (starts, there): (&[usize], &Buffer), means: [f64; 3]) -> Result<[f64; EACH]> {
        let (gpu, e, s, leaves) = (self.gpu, self.e, &self.stored, starts.len() - 1);
        let (means, sums) = (gpu.upload_all(&means)?, gpu.output(leaves * EACH * 8)?);
        let arguments = SumsOf {
            exact: e.exact.into(),
            ideal: e.ideal.into(),
            actual: e.actual.into(),
            numbers: (&s.numbers).into(),
            scale: s.scale.as_ref().into(),
            unit: s.unit.as_ref().into(),
            starts: there.into(),
            means: (&means).into(),
            sums: (&sums).into(),
            leaves,
            cols: e.cols,
            tile_rows: s.tile.0,
            tile_cols: s.tile.1,
            grid_cols: s.grid_cols,
        };
        let mut defines = s.defines.clone();
        defines.push(define("PASS", usize::from(EACH == 3)));
        // SAFETY: as above; EACH sums a leaf.
        unsafe { gpu.launch(arguments.launch(&defines, LaunchShape::new(leaves.div_ceil(32), 32)))? };
        let sums: Vec<f64> = gpu.download_whole("sums of errors", &sums)?;
        let added = |a: [f64; EACH], b: [f64; EACH]| std::array::from_fn(|i| a[i] + b[i]);
        Ok(metrics::joined(starts, sums.as_chunks::<EACH>().0, &added))
    }

    /// Quantiles and largest of the six samples, of so many numbers each.
    fn quantiles(&self, counts: &[usize]) -> Result<Option<Vec<[f64; 4]>>> {
        let (gpu, e, s) = (self.gpu, self.e, &self.stored);
        let drawn = gpu.filled(6 * FEW * 8, 0)?;
        let arguments = DrawnOf {
            exact: e.exact.into(),
            ideal: e.ideal.into(),
            actual: e.actual.into(),
            numbers: (&s.numbers).into(),
            scale: s.scale.as_ref().into(),
            unit: s.unit.as_ref().into(),
            drawn: (&drawn).into(),
            cols: e.cols,
            tile_rows: s.tile.0,
            tile_cols: s.tile.1,
            grid_cols: s.grid_cols,
            count: self.n as u64,
        };
        // SAFETY: as above; six samples of FEW.
        unsafe { gpu.launch(arguments.launch(&s.defines, LaunchShape::new(FEW / 256, 256)))? };
        let drawn: Vec<f64> = gpu.download_whole("drawn errors", &drawn)?;
        let mut searches: Vec<Search> =
            drawn.par_chunks(FEW).zip(counts).map(|(drawn, count)| Search::drawn(*count, drawn.to_vec())).collect();
        let room = self.n / 8 + FEW;
        let inside = gpu.filled(18 * room * 8, 0)?;
        while searches.iter().any(|s| s.answer().is_none()) {
            let ends: Vec<[(f64, f64); 3]> = searches.iter().map(Search::between).collect();
            let between: Vec<f64> = ends.iter().flatten().flat_map(|(low, high)| [*low, *high]).collect();
            let (between, counted) = (gpu.upload_all(&between)?, gpu.filled(6 * 13 * 8, 0)?);
            let arguments = RanksOf {
                exact: e.exact.into(),
                ideal: e.ideal.into(),
                actual: e.actual.into(),
                numbers: (&s.numbers).into(),
                scale: s.scale.as_ref().into(),
                unit: s.unit.as_ref().into(),
                between: (&between).into(),
                tally: (&counted).into(),
                inside: (&inside).into(),
                cols: e.cols,
                tile_rows: s.tile.0,
                tile_cols: s.tile.1,
                grid_cols: s.grid_cols,
                count: self.n as u64,
                room: room as u64,
            };
            // SAFETY: as above; room for 18 lists.
            unsafe { gpu.launch(arguments.launch(&s.defines, every(gpu)))? };
            let counted: Vec<u64> = gpu.download_whole("ranks of errors", &counted)?;
            let mut seen = Vec::new();
            for (i, (of, ends)) in counted.chunks(13).zip(&ends).enumerate() {
                let mut between: [Between; 3] = Default::default();
                for (j, (to, (low, high))) in between.iter_mut().zip(ends).enumerate() {
                    let [below, at_low, at_high, count] = std::array::from_fn(|k| of[1 + j * 4 + k] as usize);
                    if count > room {
                        return Ok(None);
                    }
                    let inside = gpu.download_some("errors between two", &inside, (i * 3 + j) * room, count)?;
                    *to = Between { low: *low, high: *high, below, at_low, at_high, inside };
                }
                seen.push((f64::from_bits(of[0]), between));
            }
            searches.par_iter_mut().zip(seen).for_each(|(search, seen)| search.take(seen));
        }
        Ok(Some(searches.iter().map(|s| s.answer().expect("all are found")).collect()))
    }

    fn power(&self) -> Result<Option<Seen>> {
        let (gpu, e, s) = (self.gpu, self.e, &self.stored);
        let block = power::block(e.cols.max(1));
        let blocks = self.n.div_ceil(block);
        let mut began = [0u64; 4];
        began[0] = u64::MAX;
        let (counted, sums) = (gpu.upload_all(&began)?, gpu.output(blocks * 16)?);
        let (rows, columns) = (gpu.filled(e.rows * 8, 0xff)?, gpu.filled(e.cols * 8, 0xff)?);
        let arguments = PowerOf {
            ideal: e.ideal.into(),
            certain: e.certain.into(),
            actual: e.actual.into(),
            numbers: (&s.numbers).into(),
            scale: s.scale.as_ref().into(),
            unit: s.unit.as_ref().into(),
            tally: (&counted).into(),
            row_gains: (&rows).into(),
            column_gains: (&columns).into(),
            sums: (&sums).into(),
            cols: e.cols,
            tile_rows: s.tile.0,
            tile_cols: s.tile.1,
            grid_cols: s.grid_cols,
            bit_exact: usize::from(e.bit_exact),
            count: self.n as u64,
            block: block as u64,
        };
        // SAFETY: as above; gains of every row and column, two sums a block.
        unsafe { gpu.launch(arguments.launch(&s.defines, LaunchShape::new(blocks, 512)))? };
        let counted: Vec<u64> = gpu.download_whole("power of a result", &counted)?;
        // A gain that is negative or NaN has no order among bits.
        if counted[3] > 0 {
            return Ok(None);
        }
        let lines = |what: &str, gains: &Buffer| -> Result<Vec<_>> {
            Ok(gpu.download_whole::<u64>(what, gains)?.into_iter().map(line).collect())
        };
        let sums: Vec<f64> = gpu.download_whole("sums of needs", &sums)?;
        let added = |at: usize| sums.iter().skip(at).step_by(2).copied().reduce(|a, b| a + b).unwrap_or(0.0);
        Ok(Some(Seen {
            gain: f64::from_bits(counted[0]),
            rows: lines("gains of rows", &rows)?,
            columns: lines("gains of columns", &columns)?,
            hidden: counted[1] as usize,
            zeros_caught: counted[2] > 0,
            needed: added(0),
            energy: added(1),
        }))
    }
}

/// f32 values as doubles on the device.
fn widened(gpu: &Gpu, values: &Buffer) -> Result<Buffer> {
    let count = values.bytes() / 4;
    let wide = gpu.output(count * 8)?;
    let arguments = Widen { from: values.into(), to: (&wide).into(), count: count as u64 };
    // SAFETY: as many doubles as floats.
    unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
    Ok(wide)
}

/// Radii of every element of a product.
fn bound(
    gpu: &Gpu,
    ideal: &reference::Product,
    (rows, cols): (usize, usize),
    bias: Option<&Buffer>,
    p: &ProductArithmetic,
    sums: &SumBound,
) -> Result<Option<[Buffer; 2]>> {
    let Some(chain) = sums.chain() else { return Ok(None) };
    let Dest::F32 { fraction } = chain.step.dest else { return Ok(None) };
    if p.groups != 1 || p.factor_errors.is_some() || p.unknown_columns.is_some() {
        return Ok(None);
    }
    let scales = f64::from(p.scale_roundings);
    let half = 2f64.powi(-150);
    // In the order of `enum Arithmetic`.
    let numbers = [
        (p.k as f64 + 4.0) * f64::EPSILON / 2.0,
        p.descale.0,
        p.largest_sum,
        p.after_underflow,
        half * (scales + 1.0) * p.descale.1.abs().max(1.0),
        half * (scales + 1.0),
        gamma(f64::from(p.factor_roundings), U32),
        p.factor_underflow,
        gamma(scales, U32),
        1.0 / p.descale.0.abs(),
        p.largest_intermediate,
        lambda(rows * cols, DELTA),
        chain.steps as f64,
        chain.adds as f64,
        f64::from(chain.step.f),
        f64::from(fraction),
        f64::from(chain.step.floor),
        chain.relative.relative,
        chain.relative.of_partial,
        chain.relative.absolute,
    ];
    let (a, b) = sums.lines();
    let ((lines_a, repeats_a), (lines_b, repeats_b)) = (a.laid_out(), b.laid_out());
    let on_device = [gpu.upload_i32(&lines_a)?, gpu.upload_i32(&lines_b)?];
    let doubles = [&numbers[..], &repeats_a, &repeats_b, &sums.scale_a, &sums.scale_b];
    let doubles = doubles.iter().map(|x| gpu.upload_all(x)).collect::<Result<Vec<_>>>()?;
    let [certain, probable] = [gpu.output(rows * cols * 8)?, gpu.output(rows * cols * 8)?];
    let arguments = BoundOf {
        ideal: (&ideal.d).into(),
        magnitude: (&ideal.magnitude).into(),
        bias: bias.into(),
        numbers: (&doubles[0]).into(),
        lines_a: (&on_device[0]).into(),
        lines_b: (&on_device[1]).into(),
        repeats_a: (&doubles[1]).into(),
        repeats_b: (&doubles[2]).into(),
        scales_a: (&doubles[3]).into(),
        scales_b: (&doubles[4]).into(),
        certain: (&certain).into(),
        probable: (&probable).into(),
        rows,
        cols,
    };
    // SAFETY: matrices of rows × cols, lines and scales of every row and column.
    unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
    Ok(Some([certain, probable]))
}

/// A row of factors of one side.
type Factors<'a> = &'a (dyn Fn(usize) -> Vec<f64> + Sync);

/// Errors: a product that has not the CPU's bits where it is looked at.
fn held(gpu: &Gpu, of: &LargeProduct, product: &reference::Product, a: Factors, b: Factors) -> Result<()> {
    let bias = of.job.operands.bias.as_ref().map(|t| t.data().iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    let n = of.actual.cols();
    for (r, i) in looked_at(of.actual.rows()).into_iter().enumerate() {
        let row = |from: &Buffer| gpu.download_some::<f64>("row of a reference", from, i * n, n);
        let found = (row(&product.d)?, row(&product.magnitude)?);
        if !row_agrees(r, &a(i), &|j| b(j).into(), bias.as_deref(), (&found.0, &found.1)) {
            return Err(Error::value("f64 product of the GPU", format!("row {i} with other bits"), "the CPU's"));
        }
    }
    Ok(())
}

/// [`crate::kernel::ProductJudge`] on the GPU. Errors: no GPU; operands that are not for it; out of device memory.
pub fn product(of: &LargeProduct) -> Result<Option<Measured>> {
    let gpu = gpu()?;
    let (rows, cols) = (of.actual.rows(), of.actual.cols());
    let dtype = match of.actual.dtype() {
        Format::Bf16 => 1,
        Format::F16 => 2,
        _ => 0,
    };
    let actual = timed("model", || gpu.upload_f32(of.actual.data()))?;
    let bias = of.job.operands.bias.as_ref();
    // The kernel's bits first: what is wrong, the CPU says.
    let same = timed("model", || -> Result<bool> {
        let Some(model) = model::values(gpu, of.job)? else { return Ok(false) };
        let (bias, found) = (bias.map(|b| gpu.upload_f32(b.data())).transpose()?, gpu.filled(16, 0)?);
        let arguments = ModelOf {
            model: (&model).into(),
            actual: (&actual).into(),
            bias: bias.as_ref().into(),
            cols,
            dtype,
            count: (rows * cols) as u64,
            found: (&found).into(),
        };
        // SAFETY: both of rows × cols floats.
        unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
        Ok(gpu.download_whole::<u64>("mismatches", &found)? == [0, 0])
    })?;
    if !same {
        return Ok(None);
    }
    let bias = bias.map(|b| gpu.upload_all(&b.data().iter().map(|x| f64::from(*x)).collect::<Vec<_>>())).transpose()?;
    let (exact, ideal) = timed("references", || -> Result<_> {
        let product = |a: reference::Side, b: reference::Side| reference::product(gpu, &a, &b, bias.as_ref());
        let ([x, y], [a, b]) = (of.sources, of.quantized);
        let exact = product(reference::Side::values(gpu, x)?, reference::Side::values(gpu, y)?)?;
        let wide = |t: &Tensor, i: usize| t.row(i).iter().map(|x| f64::from(*x)).collect();
        held(gpu, of, &exact, &|i| wide(x, i), &|j| wide(y, j))?;
        let ideal = product(reference::Side::codes(gpu, a)?, reference::Side::codes(gpu, b)?)?;
        let decoded = |q: &QTensor, i: usize| (0..q.cols()).map(|k| q.value(i, k)).collect();
        held(gpu, of, &ideal, &|i| decoded(a, i), &|j| decoded(b, j))?;
        Ok((exact.d, ideal))
    })?;
    let radii = timed("bound", || bound(gpu, &ideal, (rows, cols), bias.as_ref(), of.arithmetic, of.sums))?;
    let Some([certain, probable]) = radii else { return Ok(None) };
    let actual = timed("judged", || widened(gpu, &actual))?;
    let elements = Elements {
        exact: &exact,
        ideal: &ideal.d,
        certain: Some(&certain),
        probable: Some(&probable),
        actual: &actual,
        rows,
        cols,
        bit_exact: true,
        map: of.map,
    };
    measured(gpu, &elements, &OutFormat::high(of.actual.dtype()))
}

/// [`crate::kernel::CastJudge`] on the GPU. Errors: no GPU; out of device memory.
pub fn cast(of: &LargeCast) -> Result<Option<Measured>> {
    let (gpu, q) = (gpu()?, of.codes);
    let (rows, cols) = (q.rows(), q.cols());
    if !q.format().is_float() || q.level().is_some() || *q.zero() != Zero::None {
        return Ok(None);
    }
    let table: Vec<f64> = (0..256).map(|c| if c >> q.format().bits() == 0 { q.format().decode(c) } else { 0.0 }).collect();
    let unit: Vec<f64> = (0..q.scale_inv().len()).map(|s| q.affine(s).unit).collect();
    let (codes, table, unit) = (gpu.upload(q.codes())?, gpu.upload_all(&table)?, gpu.upload_all(&unit)?);
    let tile = q.granularity().tile(rows, cols);
    let values = gpu.output(rows * cols * 8)?;
    let arguments = CodesOf {
        codes: (&codes).into(),
        table: (&table).into(),
        unit: (&unit).into(),
        values: (&values).into(),
        cols,
        tile_rows: tile.0,
        tile_cols: tile.1,
        grid_cols: q.granularity().grid(rows, cols).1,
        count: (rows * cols) as u64,
    };
    // SAFETY: codes and values of rows × cols, a unit of every tile.
    unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
    let exact = widened(gpu, &gpu.upload_f32(of.source.data())?)?;
    // The right codes are those that were written.
    let elements = Elements {
        exact: &exact,
        ideal: &values,
        certain: None,
        probable: None,
        actual: &values,
        rows,
        cols,
        bit_exact: true,
        map: of.map,
    };
    measured(gpu, &elements, &OutFormat::quantized(q, None))
}
