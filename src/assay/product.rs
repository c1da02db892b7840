//! The allowed error of a product, from the job alone: which roundings its kernel makes, in which order.
//!
//! | operands | reference | sums |
//! |---|---|---|
//! | codes × codes, one scale along K | dequantized, f64 | [`SumBound`] in units of the codes |
//! | codes × codes, scales along K | the same | relative to Σ\|ab\| and to its largest partial sum ([`accumulation_bound`]) |
//! | values × values | f64 | [`SumBound`] |
//! | values × codes | [`super::weights`]: weights rounded to 16 bits in one of several ways, or not | [`SumBound`]; relative |
//!
//! What is only assumed of a kernel (an accumulator without bits) may also scale its factors before it adds: three roundings a product.

use super::{blocks, weights};
use crate::compare::{Accumulation, Bound, OutFormat, ProductArithmetic, Spans, SumError, amax_intervals};
use crate::job::{Job, Operand, OutSpec};
use crate::model::product::FactorRows;
use crate::model::{Accumulator, Factors, Inner, Lines, SumBound, accumulation_bound, runs};
use crate::op::Biases;
use crate::op::{Defined, Op, flat};
use crate::{Error, Format, QTensor, Result, parallel};
use ndarray::Array2;
use std::borrow::Cow;

/// Half the smallest subnormal f32.
const UNDERFLOW: f64 = 0.5 * (f32::MIN_POSITIVE * f32::EPSILON) as f64;

/// The bound of every element of D. Where there are several right references, that of the unrounded weights.
pub fn bound(job: &Job, ideal: &Defined, out: &OutFormat) -> Result<Bound> {
    let p = Product::of(job, ideal, out)?;
    p.unrounded()
}

/// How far a result is from a bound: values and amax outside the certain interval, values outside the probable one, the sum of squared errors.
pub type Misses = (usize, usize, f64);

/// What a result misses of a bound, its amax counted as a value.
pub fn misses(bound: &Bound, actual: &[f64], amax: Option<f32>) -> Result<Misses> {
    let judged = bound.judge(actual)?;
    let is_outside =
        |a: f32| amax_intervals(bound).map(|(low, high)| usize::from(!(low <= f64::from(a) && f64::from(a) <= high)));
    let outside = amax.map_or([0; 2], is_outside);
    let squares = bound.ideal().iter().zip(actual).map(|(d, a)| (a - d).powi(2)).filter(|e| e.is_finite()).sum();
    Ok((judged.violations + outside[0], judged.improbable + outside[1], squares))
}

/// The bound about the reference that a result follows: the one of which it misses least and, of those of which it misses nothing, is nearest to.
/// One reference for all elements and for amax: a kernel rounds its weights, or does not. A kernel that is `known` is held to the first of which
/// it misses nothing.
pub fn nearest(
    job: &Job,
    ideal: &Defined,
    out: &OutFormat,
    known: bool,
    misses: &dyn Fn(&Bound) -> Result<Misses>,
) -> Result<Bound> {
    let p = Product::of(job, ideal, out)?;
    let first = p.unrounded()?;
    let mut others = weights::rounded(&p)?.into_iter().peekable();
    if others.peek().is_none() {
        return Ok(first);
    }
    let holds = |k: Misses| k.0 == 0 && k.1 == 0;
    let mut best = (misses(&first)?, first);
    for weights in others {
        if known && holds(best.0) {
            break;
        }
        let bound = match p.rounded(&weights) {
            // The accumulator's instruction takes no weights of this type: they were not these.
            Err(Error::Unsupported { .. }) => continue,
            bound => bound?,
        };
        let now = misses(&bound)?;
        if now < best.0 {
            best = (now, bound);
        }
    }
    Ok(best.1)
}

/// A product to be bounded.
pub(super) struct Product<'a> {
    pub job: &'a Job,
    pub ideal: &'a Defined,
    out: &'a OutFormat,
    pub b: &'a Operand,
    pub accumulator: Accumulator,
    bias: Option<Biases>,
    pub codes_a: Option<Vec<&'a QTensor>>,
    pub codes_b: Option<Vec<&'a QTensor>>,
    pub k: usize,
    pub groups: usize,
}

impl<'a> Product<'a> {
    fn of(job: &'a Job, ideal: &'a Defined, out: &'a OutFormat) -> Result<Self> {
        let missing = || Error::unsupported(job.op.name(), "a product needs operand b, an accumulator and a magnitude");
        let (b, accumulator) = (job.operands.b().ok_or_else(missing)?, job.accumulator.ok_or_else(missing)?);
        ideal.magnitude.as_ref().ok_or_else(missing)?;
        let bias = job.operands.bias.as_ref().map(|_| Biases::of(job, ideal.d.dim()));
        let (codes_a, codes_b) = (codes(job.operands.a()), codes(b));
        Ok(Self { job, ideal, out, b, accumulator, bias, codes_a, codes_b, k: steps_of(job), groups: groups(job) })
    }

    /// Whether anything is only assumed of the kernel.
    pub(super) fn assumed(&self) -> bool {
        !self.accumulator.inner.is_model()
    }
    fn a(&self) -> &'a Operand {
        self.job.operands.a()
    }
    /// What the sums of each row are multiplied by last.
    fn weights(&self) -> Option<Vec<f64>> {
        match self.a() {
            Operand::Weighted(w) => Some(w.weights().iter().map(|w| f64::from(*w)).collect()),
            _ => None,
        }
    }
    /// The values of a that are multiplied, before any weight of their rows.
    fn values_of_a(&self) -> Array2<f64> {
        match self.a() {
            Operand::Weighted(w) => w.x().to_f64(),
            other => other.to_f64(),
        }
    }
    /// The largest weight of a row, or 1.
    fn largest_weight(&self) -> f64 {
        self.weights().map_or(1.0, |w| w.iter().fold(1.0, |m, w| m.max(w.abs())))
    }

    /// Whether sums have one scale, and rows that are read one by one.
    fn simple(&self) -> bool {
        self.groups == 1 && self.job.op != Op::GroupedGemmWgrad
    }

    /// The row of b that column 0 meets in each row of the result.
    pub(super) fn first_b(&self) -> Vec<usize> {
        first_b(self.job, self.ideal.d.dim())
    }

    /// The bound about a sum of these values, with this arithmetic.
    pub(super) fn judged(&self, p: &ProductArithmetic, d: &Defined) -> Result<Bound> {
        let magnitude = d.magnitude.as_ref().map(flat).unwrap_or_default();
        let mut p = ProductArithmetic { bias: self.bias.as_ref(), ..p.clone() };
        let weights = self.weights();
        if let Some(weights) = &weights {
            let least = weights.iter().map(|w| w.abs()).filter(|w| *w > 0.0).fold(1.0, f64::min);
            // Behind a bias it is no rounding of the sum alone.
            p.scale_roundings += u32::from(self.bias.is_none());
            p.descale = (p.descale.0 * least, p.descale.1 * self.largest_weight());
        }
        let bound = Bound::product(&p, d.d.ncols(), &d.flat(), &magnitude, self.out)?;
        // Marlin multiplies what is already of the result's type.
        Ok(match (weights, &self.job.out) {
            (Some(weights), OutSpec::High(f)) => bound.rounded_before(*f, &weights),
            _ => bound,
        })
    }

    /// About the values as they are dequantized.
    fn unrounded(&self) -> Result<Bound> {
        match (&self.codes_a, &self.codes_b) {
            (Some(a), Some(b)) if a[0].format().is_float() == b[0].format().is_float() => self.of_codes(a, b),
            (_, Some(b)) => self.of_weights(b[0]),
            _ => {
                let (fa, fb) = (dtype(self.a()), dtype(self.b));
                if !self.simple() {
                    let (a, b) = (Factors::of(fa, self.values_of_a()), Factors::of(fb, self.b.to_f64()));
                    let mut sums = accumulation_bound(&self.accumulator, self.k, a, b)?;
                    sums.absolute *= self.largest_weight();
                    return self.judged(&ProductArithmetic::plain(&sums, self.k), self.ideal);
                }
                let (a, b) = (Factored::values(self.a(), fa), Factored::values(self.b, fb));
                let mut sums = self.sums(&a, &b, self.weights().is_some())?;
                sums.scale_a = self.weights().unwrap_or_default();
                self.judged(&ProductArithmetic::plain(&sums, self.k), self.ideal)
            }
        }
    }

    /// Sums over the whole of K, in the units of the factors.
    fn sums<'l>(&self, a: &'l Factored, b: &'l Factored, scaled: bool) -> Result<SumBound<'l>> {
        let mut sums = SumBound::new(&self.accumulator, self.k, (a.format, &a.lines), (b.format, &b.lines), scaled)?;
        let (rows, cols) = self.ideal.d.dim();
        let grouped = experts(self.job);
        if grouped.is_some() {
            sums.first_b = self.first_b();
        }
        if self.assumed() {
            return Ok(sums);
        }
        let read = |x: &Factored| match x.factors {
            Some(factors) => Factors { format: x.format, ..factors },
            None => Factors::of_f32(x.format, &x.data),
        };
        let sums = sums.and_relative(accumulation_bound(&self.accumulator, self.k, read(a), read(b))?);
        if rows * cols * self.k > runs::MOST || !sums.keeps_order() {
            return Ok(sums);
        }
        let all = match grouped {
            None => runs::runs(&a.data, &b.data, self.k).range,
            Some(offs) => {
                let mut all = Vec::with_capacity(rows * cols);
                let mut from = 0;
                for (e, &to) in offs.iter().enumerate() {
                    all.extend(runs::runs(a.rows(from..to), b.rows(e * cols..(e + 1) * cols), self.k).range);
                    from = to;
                }
                all.resize(rows * cols, f64::INFINITY);
                all
            }
        };
        Ok(sums.in_runs(all, cols))
    }

    /// Codes times codes: the scales meet the accumulated sum, of each block where they change along K. int32 sums are exact and rounded
    /// once on their way to f32.
    fn of_codes(&self, qa: &[&QTensor], qb: &[&QTensor]) -> Result<Bound> {
        let integer = qa[0].format().is_integer();
        let p = arithmetic(qa, qb, self.k, self.groups, self.assumed());
        let with = |sums: &dyn SumError| self.judged(&ProductArithmetic { accumulation: sums, ..p.clone() }, self.ideal);
        match (integer, self.assumed()) {
            (true, false) => return with(&Accumulation::EXACT),
            (true, true) => return self.dequantized(),
            _ => {}
        }
        if self.simple() && qa.len() == 1 && qb.len() == 1 {
            let (qa, qb) = (qa[0], qb[0]);
            let (a, b) = (Factored::codes(qa), Factored::codes(qb));
            let mut sums = self.sums(&a, &b, true)?;
            (sums.scale_a, sums.scale_b) = (row_scales(qa), row_scales(qb));
            return with(&sums);
        }
        let mut sums = relative(&self.accumulator, qa, qb, self.k, self.groups)?;
        if self.assumed() {
            let (a, b) = (Factors::of_codes(qa), Factors::of_codes(qb));
            sums = sums.or(accumulation_bound(&Accumulator::new(Inner::AnyOrder), self.k, a, b)?);
        }
        match blocks::of(self, qa, qb, &p, sums)? {
            Some(bound) => Ok(bound),
            None => with(&sums),
        }
    }

    /// Integers of which it is not known how they were summed: exactly, or dequantized first and in f32, zero points apart or not. A factor
    /// `(q − z)·s` is then a sum of `|q|·s` and `|z|·s` with three roundings (difference, scale, global scale) a side, so S is Σ(|q|+|z|)·s of a times that of b,
    /// and each product has 6 roundings of its factors and its own before the additions.
    fn dequantized(&self) -> Result<Bound> {
        let (a, b) = (sizes(self.codes_a.as_deref()), sizes(self.codes_b.as_deref()));
        let read = |x: &Array2<f64>| Factors::of(Format::F32, x.iter().copied());
        let sums = accumulation_bound(&Accumulator::new(Inner::AnyOrder), self.k, read(&a), read(&b))?;
        let magnitude = Some(weights::define(self, a, b, Some(f64::abs))?.d);
        let p = ProductArithmetic { factor_roundings: 7, scale_roundings: 3, ..ProductArithmetic::plain(&sums, self.k) };
        self.judged(&p, &Defined { magnitude, ..Defined::plain(self.ideal.d.clone()) })
    }

    /// Values times codes that are not rounded to the type of the values: dequantized in f32, or codes multiplied and their groups' sums
    /// scaled, zero points apart from them or not.
    fn of_weights(&self, w: &QTensor) -> Result<Bound> {
        let format = weights::types(self).first().copied().unwrap_or(Format::F32);
        let values = self.values_of_a();
        let read = match &self.codes_a {
            Some(q) => Factors { format, ..Factors::of_codes(q) },
            None => Factors::of(format, values.iter().copied()),
        };
        let codes = Factors { format, largest: w.format().max_finite() + weights::largest_zero(w), smallest: f64::INFINITY };
        let mut sums = accumulation_bound(&self.accumulator, self.k, read, codes)?;
        let narrow = self.codes_a.as_ref().map(|q| q[0].format()).filter(|f| f.is_fp8() && self.assumed());
        if let Some(f) = narrow {
            // Weights of four bits are FP8 numbers: a unit may take them as such.
            let narrow = |x: Factors| Factors { format: f, ..x };
            sums = sums.or(accumulation_bound(&self.accumulator, self.k, narrow(read), narrow(codes))?);
        }
        let scale = |q: &QTensor| {
            let units = (0..q.scale_inv().len()).map(|s| q.affine(s).unit.abs());
            units.filter(|s| s.is_finite()).fold(0.0, f64::max)
        };
        let scales_a = self.codes_a.iter().flatten().map(|q| scale(q)).fold(1.0, f64::max);
        sums.absolute *= self.groups as f64 * scale(w).max(1.0) * scales_a * self.largest_weight();
        let unknown = weights::overflows(self, w);
        let p = ProductArithmetic {
            // The scale, its product with the code, the zero point; the product with a, and a's own scales.
            factor_roundings: 4 + 2 * u32::from(self.codes_a.is_some()),
            groups: self.groups,
            scale_roundings: 2,
            unknown_columns: unknown.as_deref(),
            ..ProductArithmetic::plain(&sums, self.k)
        };
        let apart = weights::magnitude_apart(self, w)?;
        let magnitude = apart.as_ref().or(self.ideal.magnitude.as_ref()).cloned();
        Ok(self.judged(&p, &Defined { magnitude, ..Defined::plain(self.ideal.d.clone()) })?.about("weights not rounded"))
    }

    /// About weights that were rounded to 16 bits.
    fn rounded(&self, w: &weights::Rounded) -> Result<Bound> {
        let (d, errors) = w.product(self)?;
        let f = w.format;
        let p = ProductArithmetic {
            factor_errors: errors.as_deref(),
            unknown_columns: w.unknown.as_deref(),
            scale_roundings: 2 * u32::from(self.codes_a.is_some()),
            groups: self.groups_of_a(),
            ..ProductArithmetic::plain(&Accumulation::EXACT, self.k)
        };
        let p = match &self.codes_a {
            Some(q) => p.scaled_by(q[0].format(), f, &[&scales_of(q)]),
            None => p,
        };
        let bound = if self.groups_of_a() == 1 && self.job.op != Op::GroupedGemmWgrad {
            // Codes of FP8 are numbers of the 16-bit type.
            let a = match &self.codes_a {
                Some(q) => Factored { format: f, ..Factored::codes(q[0]) },
                None => Factored::values(self.a(), f),
            };
            let b = Factored::of(&w.values, f);
            let weights = self.weights();
            let mut sums = self.sums(&a, &b, self.codes_a.is_some() || weights.is_some())?;
            sums.scale_a = self.codes_a.as_ref().map(|q| row_scales(q[0])).or(weights).unwrap_or_default();
            self.judged(&ProductArithmetic { accumulation: &sums, ..p }, &d)?
        } else {
            let read = match &self.codes_a {
                Some(q) => Factors { format: f, ..Factors::of_codes(q) },
                None => Factors::of(f, self.values_of_a()),
            };
            let mut sums = accumulation_bound(&self.accumulator, self.k, read, Factors::of(f, w.values.iter().copied()))?;
            sums.absolute *= self.groups as f64 * p.descale.1.max(1.0) * self.largest_weight();
            self.judged(&ProductArithmetic { accumulation: &sums, ..p }, &d)?
        };
        Ok(bound.about(w.name.clone()))
    }

    /// Blocks along K of the scales that meet sums: those of a.
    fn groups_of_a(&self) -> usize {
        let Some(q) = self.codes_a.as_ref().filter(|_| self.job.op != Op::GroupedGemmWgrad) else { return 1 };
        self.k.div_ceil(q[0].granularity().tile(q[0].rows(), q[0].cols()).1.max(1)).max(1)
    }
}

/// What each element of an operand adds at most where zero points are taken apart from its codes; groups along K stand one behind the other.
fn sizes(groups: Option<&[&QTensor]>) -> Array2<f64> {
    let groups = groups.unwrap_or_default();
    let rows = groups.first().map_or(0, |q| q.rows());
    let mut all = Array2::zeros((rows, groups.iter().map(|q| q.cols()).sum()));
    let mut from = 0;
    for q in groups {
        for (i, k) in (0..rows).flat_map(|i| (0..q.cols()).map(move |k| (i, k))) {
            all[(i, from + k)] = weights::size_apart(q, i, k);
        }
        from += q.cols();
    }
    all
}

/// The end rows of experts that have weights of their own.
fn experts(job: &Job) -> Option<&[usize]> {
    match (job.op, &job.operands.offs) {
        (Op::GroupedGemm | Op::GroupedGemmDgrad, Some(offs)) => Some(offs),
        _ => None,
    }
}

/// The row of b that column 0 meets in each row of a result.
pub(super) fn first_b(job: &Job, (rows, cols): (usize, usize)) -> Vec<usize> {
    let expert = |i: usize| experts(job).map_or(0, |e| e.partition_point(|end| *end <= i).min(e.len() - 1));
    (0..rows).map(|i| expert(i) * cols).collect()
}

/// What holds, relative to Σ|ab|, of sums of codes in `groups` blocks along K, each scaled and added by itself. Errors: formats that the accumulator
/// does not take.
pub(super) fn relative(acc: &Accumulator, qa: &[&QTensor], qb: &[&QTensor], k: usize, groups: usize) -> Result<Accumulation> {
    let Scaling { globals, scales } = Scaling::of(qa, qb);
    let chunk = k.div_ceil(groups.max(1)).max(1);
    let (a, b) = (Factors::of_codes(qa), Factors::of_codes(qb));
    let mut sums = accumulation_bound(acc, chunk, a, b)?;
    // In units of codes, of every group. What subnormal codes lose is multiplied by scales as they are; what underflows may do so behind scales below 1.
    let normal = |x: Factors| Factors { smallest: f64::INFINITY, ..x };
    let underflow = accumulation_bound(acc, chunk, normal(a), normal(b))?.absolute;
    let all = || scales.iter().chain(&globals);
    let by = |of: fn(&[f32]) -> f64| groups as f64 * all().map(|s| of(s)).product::<f64>();
    sums.absolute = (sums.absolute - underflow) * by(largest_in) + underflow * by(largest_of);
    // Blocks' sums are sums of their own: each has its own partial sums.
    sums.of_partial *= groups as f64;
    Ok(sums)
}

/// Every scale of a product of codes.
struct Scaling {
    /// Of a second level, where there is one.
    globals: Vec<Vec<f32>>,
    /// Of a, of b.
    scales: [Vec<f32>; 2],
}

impl Scaling {
    /// Of groups that have codes: nobody looks at the scales of the others.
    fn of(qa: &[&QTensor], qb: &[&QTensor]) -> Self {
        let [qa, qb] = [qa, qb].map(|all| all.iter().copied().filter(|q| !q.codes().is_empty()).collect::<Vec<_>>());
        let (qa, qb) = (&qa[..], &qb[..]);
        let globals = [qa, qb]
            .iter()
            .map(|all| {
                let level = |q: &&QTensor| q.over_row(0).and(q.level()).map(|l| l.scale_inv.clone());
                all.iter().filter_map(level).flatten().collect::<Vec<f32>>()
            })
            .filter(|g| !g.is_empty())
            .collect();
        let scales = [qa, qb].map(|all| all.iter().flat_map(|q| q.scale_inv()).copied().collect::<Vec<f32>>());
        Self { globals, scales }
    }
}

/// The largest of scales and 1.
fn largest_of(scales: &[f32]) -> f64 {
    largest_in(scales).max(1.0)
}

/// The largest of scales.
fn largest_in(scales: &[f32]) -> f64 {
    scales.iter().map(|s| f64::from(s.abs())).filter(|s| s.is_finite()).fold(0.0, f64::max)
}

/// Codes times codes, but for their sums.
pub(super) fn arithmetic<'a>(
    qa: &[&QTensor],
    qb: &[&QTensor],
    k: usize,
    groups: usize,
    assumed: bool,
) -> ProductArithmetic<'a> {
    let (fa, fb) = (qa[0].format(), qb[0].format());
    let Scaling { globals, scales } = Scaling::of(qa, qb);
    let every: Vec<&[f32]> = scales.iter().chain(&globals).map(Vec::as_slice).collect();
    let p = ProductArithmetic {
        groups,
        scale_roundings: 2 + u32::from(fa.is_integer()) + globals.len() as u32,
        ..ProductArithmetic::plain(&Accumulation::EXACT, k)
    };
    let p = p.scaled_by(fa, fb, &every);
    match assumed {
        true => ProductArithmetic {
            factor_roundings: 3 + globals.len() as u32,
            factor_underflow: k as f64
                * UNDERFLOW
                * (1.0 + fa.max_finite() * largest_of(&scales[0]) + fb.max_finite() * largest_of(&scales[1]))
                * globals.iter().map(|g| largest_of(g)).product::<f64>(),
            ..p
        },
        false => p,
    }
}

/// One side's factors as the sums read them, row-major.
struct Factored {
    format: Format,
    k: usize,
    data: Vec<f32>,
    lines: Lines,
    /// Of codes: read with their lines.
    factors: Option<Factors>,
}

impl Factored {
    fn new(format: Format, k: usize, data: Vec<f32>) -> Self {
        let rows = data.len() / k.max(1);
        let lines = Lines::of(format, rows, k, |i, row| row.copy_from_slice(&data[i * k..(i + 1) * k]));
        Self { format, k, data, lines, factors: None }
    }
    /// Decoded codes without their scales.
    fn codes(q: &QTensor) -> Self {
        let mut data = vec![0.0; q.codes().len()];
        let side = FactorRows::codes(Cow::Borrowed(q));
        parallel::chunks(&mut data, q.cols(), |i, row| side.fill(i, 0..q.cols(), row));
        let (lines, factors) = Lines::and_factors(q);
        Self { format: q.format(), k: q.cols(), data, lines, factors: Some(factors) }
    }
    /// Values, read as `format`.
    fn values(operand: &Operand, format: Format) -> Self {
        match operand {
            Operand::High(t) => Self::new(format, t.cols(), t.data().to_vec()),
            Operand::Weighted(w) => Self::new(format, w.x().cols(), w.x().data().to_vec()),
            other => Self::of(&other.to_f64(), format),
        }
    }
    fn of(values: &Array2<f64>, format: Format) -> Self {
        Self::new(format, values.ncols(), parallel::map(&flat(values), |x| *x as f32))
    }
    fn rows(&self, rows: std::ops::Range<usize>) -> &[f32] {
        &self.data[rows.start * self.k..rows.end * self.k]
    }
}

/// What the sums of each row are multiplied by.
pub(super) fn row_scales(q: &QTensor) -> Vec<f64> {
    (0..q.rows()).map(|i| q.affine(q.scale_index(i, 0)).unit).collect()
}

/// The factors that one side's scales are to an accumulated sum: every scale_inv, times the second level.
fn scales_of(tensors: &[&QTensor]) -> Vec<f32> {
    tensors.iter().flat_map(|q| (0..q.scale_inv().len()).map(|s| q.steps(s).0)).collect()
}

/// The codes an operand is read as; `None` for values.
pub(super) fn codes(operand: &Operand) -> Option<Vec<&QTensor>> {
    match operand {
        Operand::High(_) | Operand::Weighted(_) => None,
        Operand::Quantized(q) => Some(vec![q]),
        Operand::Groups(groups) => Some(groups.iter().collect()),
        Operand::Dynamic(d) => codes(d.quantized()),
    }
}

pub(super) fn dtype(operand: &Operand) -> Format {
    match operand {
        Operand::High(t) => t.dtype(),
        Operand::Weighted(w) => w.x().dtype(),
        _ => Format::F32,
    }
}

/// Length of the longest sum.
pub fn inner(job: &Job) -> usize {
    match (&job.operands.offs, job.op) {
        (Some(offs), Op::GroupedGemmWgrad) => {
            let starts = std::iter::once(&0).chain(offs);
            offs.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0)
        }
        _ => job.operands.a().cols(),
    }
}

/// The same for a bound: sums over tokens may begin at the last multiple of 16 before a group, where a copy of whole 16 bytes does, with zeros
/// for the tokens that are not the group's. Zeros change no sum, but a tensor core adds it in one step more.
pub(super) fn steps_of(job: &Job) -> usize {
    match (&job.operands.offs, job.op) {
        (Some(offs), Op::GroupedGemmWgrad) => {
            let starts = std::iter::once(&0).chain(offs);
            let groups = offs.iter().zip(starts).filter(|(end, start)| end > start);
            groups.map(|(end, start)| end - start + start % 16).max().unwrap_or(0)
        }
        _ => inner(job),
    }
}

/// Blocks along K inside which every scale is constant.
pub fn groups(job: &Job) -> usize {
    let k = inner(job);
    let width = |o: &Operand| match codes(o) {
        Some(q) if job.op != Op::GroupedGemmWgrad => q[0].granularity().tile(q[0].rows(), q[0].cols()).1,
        _ => k,
    };
    let narrow = job.operands.all().map(width).min().unwrap_or(k);
    k.div_ceil(narrow.max(1)).max(1)
}

/// The scales whose faults a product can have: name, values, and what they span.
pub fn scales(job: &Job) -> Vec<(&'static str, Vec<f32>, Spans)> {
    let mut all = Vec::new();
    let sides = [("a.scale_inv", Some(job.operands.a()), Spans::Rows), ("b.scale_inv", job.operands.b(), Spans::Columns)];
    for (name, operand, along) in sides {
        let Some(q) = operand.and_then(codes) else { continue };
        let by_row = q.len() == 1 && job.op == Op::Gemm && q[0].scale_inv().len() == q[0].rows();
        let values = q.iter().flat_map(|q| q.scale_inv()).copied().collect();
        all.push((name, values, if by_row { along } else { Spans::Other }));
    }
    if let OutSpec::Scaled { scale, .. } = &job.out {
        all.push(("out.scale", scale.iter().map(|s| s.unwrap_or(1.0)).collect(), Spans::Other));
    }
    all
}
