//! The bound of a product of codes whose scales change along K, or of experts: each block read with its own factors.

use super::product::Product;
use crate::compare::{Accumulation, Bound, ProductArithmetic};
use crate::model::blocks::{BlockSums, Scaled, within};
use crate::model::{Accumulator, Factors, Inner, Lines, SumBound, accumulation_bound};
use crate::op::Op;
use crate::{Format, Overflow, QTensor, Result, Rounding, parallel};
use ndarray::Array2;
use std::ops::Range;

/// The bound of `product`, whose roundings beside those of its sums are `p`; `most` is what holds of its sums relative to Σ|ab|. `None` where blocks are
/// too many to be read, where those of a and b overlap, and where K is rows.
pub fn of(
    product: &Product,
    qa: &[&QTensor],
    qb: &[&QTensor],
    p: &ProductArithmetic,
    most: Accumulation,
) -> Result<Option<Bound>> {
    let Some(blocks) = constant(product, qa, qb) else { return Ok(None) };
    let (a, b) = (Codes::of(qa), Codes::of(qb));
    let first_b = product.first_b();
    let cols = product.ideal.d.ncols();
    let magnitude: Vec<f64> = product.ideal.magnitude.iter().flatten().copied().collect();
    let extra = |at: usize| p.before_sums(magnitude[at]);
    let scaled = (&a.scaled(), &b.scaled());
    let first = if product.assumed() { dequantized_first(product, &a, &b)? } else { Vec::new() };
    let most = first.iter().fold(most, |m, w| m.or(w.relative));
    let mut sums = BlockSums::new((&product.accumulator, product.assumed()), &blocks, scaled, (&first_b, cols), &extra, most)?;
    for w in &first {
        let mut over_k = SumBound::new(&w.accumulator, product.k, (w.format, &w.a), (w.format, &w.b), w.scaled)?;
        over_k.first_b = first_b.clone();
        sums.whole.push(over_k);
    }
    product.judged(&ProductArithmetic { accumulation: &sums, ..p.clone() }, product.ideal).map(Some)
}

/// The runs of K inside which every scale is constant.
fn constant(product: &Product, qa: &[&QTensor], qb: &[&QTensor]) -> Option<Vec<Range<usize>>> {
    let (k, (rows, cols)) = (product.k, product.ideal.d.dim());
    let tile = |q: &QTensor| q.granularity().tile(q.rows(), q.cols()).1.clamp(1, k.max(1));
    let (ta, tb) = (tile(qa[0]), tile(qb[0]));
    let width = ta.min(tb);
    let nested = |t: usize| t == k || t.is_multiple_of(width);
    let read = product.job.op != Op::GroupedGemmWgrad && qa.len() == 1 && k > 0 && nested(ta) && nested(tb);
    (read && within(rows, cols, k, k.div_ceil(width)))
        .then(|| (0..k).step_by(width).map(|from| from..(from + width).min(k)).collect())
}

/// An operand's codes, one tensor a group, below one another.
struct Codes<'a> {
    all: &'a [&'a QTensor],
    /// Of every code.
    values: Vec<f32>,
}

impl<'a> Codes<'a> {
    fn of(all: &'a [&'a QTensor]) -> Self {
        let format = all[0].format();
        let value = |c: u32| if c >> format.bits() == 0 { format.decode(c) as f32 } else { f32::NAN };
        Self { all, values: (0..=0xff).map(value).collect() }
    }
    fn codes(&self, i: usize, ks: Range<usize>) -> &'a [u8] {
        let (n, k) = (self.all[0].rows().max(1), self.all[0].cols());
        &self.all[i / n].codes()[i % n * k..][ks]
    }
    /// The values of row i without their scales.
    fn values(&self, i: usize) -> impl Iterator<Item = f32> {
        self.codes(i, 0..self.all[0].cols()).iter().map(|c| self.values[usize::from(*c)])
    }
    /// What the codes of row i at k are multiplied by.
    fn scale(&self, i: usize, k: usize) -> f64 {
        let n = self.all[0].rows().max(1);
        let q = self.all[i / n];
        q.affine(q.scale_index(i % n, k)).unit
    }
    fn scaled(&self) -> Scaled<'_> {
        let format = self.all[0].format();
        Scaled { format, codes: Box::new(|i, ks| self.codes(i, ks)), scale: Box::new(|i, k| self.scale(i, k)) }
    }
    fn dequantized(&self) -> Array2<f32> {
        let (rows, k) = (self.all.len() * self.all[0].rows(), self.all[0].cols());
        let row = |i: usize| self.values(i).enumerate().map(move |(k, x)| (f64::from(x) * self.scale(i, k)) as f32);
        let all: Vec<Vec<f32>> = parallel::collect(rows, |i| row(i).collect());
        Array2::from_shape_vec((rows, k), all.concat()).expect("k values a row")
    }
}

/// Sums over the whole of K of factors that a kernel scaled before it multiplied.
struct First {
    accumulator: Accumulator,
    format: Format,
    a: Lines,
    b: Lines,
    /// Whether the factors are rounded, so that their lowest bits say nothing.
    scaled: bool,
    relative: Accumulation,
}

/// In f32 in any order, and by the accumulator that is assumed where every factor is a number of a 16-bit type (scales that are powers of two).
fn dequantized_first(product: &Product, a: &Codes, b: &Codes) -> Result<Vec<First>> {
    let (a, b) = (a.dequantized(), b.dequantized());
    let lines = |format: Format, x: &Array2<f32>| {
        Lines::of(format, x.nrows(), x.ncols(), |i, row| row.iter_mut().zip(x.row(i)).for_each(|(to, from)| *to = *from))
    };
    let first = |accumulator: Accumulator, format: Format, scaled: bool| -> Result<First> {
        let factors = |x: &Array2<f32>| Factors::of(format, x.iter().map(|x| f64::from(*x)));
        let relative = accumulation_bound(&accumulator, product.k, factors(&a), factors(&b))?;
        Ok(First { accumulator, format, a: lines(format, &a), b: lines(format, &b), scaled, relative })
    };
    let mut all = vec![first(Accumulator::new(Inner::AnyOrder), Format::F32, true)?];
    for format in [Format::Bf16, Format::F16] {
        let is_one = |x: &f32| {
            let x = f64::from(*x);
            !x.is_finite() || format.decode(format.encode(x, Rounding::NearestEven, Overflow::Native)) == x
        };
        if a.iter().chain(&b).all(is_one) {
            all.push(first(product.accumulator, format, false)?);
        }
    }
    Ok(all)
}
