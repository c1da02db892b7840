//! The allowed error of a product, from the job alone: which roundings its kernel makes, in which order.

use crate::compare::{Accumulation, Bound, OutFormat, ProductArithmetic, Spans, WeightRounding};
use crate::job::{Job, Operand, OutSpec};
use crate::model::{Accumulator, Factors, Inner, accumulation_bound};
use crate::op::{Defined, Op};
use crate::{Error, Format, QTensor, Result, Zero};
use ndarray::Array2;

/// The bound of every element of D.
pub fn bound(job: &Job, ideal: &Defined, out: &OutFormat) -> Result<Bound> {
    let missing = || Error::unsupported(job.op.name(), "a product needs operand b, an accumulator and a magnitude");
    let (a, b) = (&job.operands.a[0], job.operands.b.as_ref().ok_or_else(missing)?);
    let accumulator = job.accumulator.as_ref().ok_or_else(missing)?;
    let magnitude: Vec<f64> = ideal.magnitude.as_ref().ok_or_else(missing)?.iter().copied().collect();
    let (k, groups) = (inner(job), groups(job));
    let chunk = k.div_ceil(groups.max(1)).max(1);
    let bias: Option<Vec<f64>> = job.operands.bias.as_ref().map(|t| t.data().iter().map(|x| f64::from(*x)).collect());
    let plain =
        |accumulation: Accumulation| ProductArithmetic { bias: bias.as_deref(), ..ProductArithmetic::plain(accumulation, k) };
    let d: Vec<f64> = ideal.d.iter().copied().collect();
    let cols = ideal.d.ncols();
    match (weights(a), weights(b)) {
        // Codes times codes: the scales meet the accumulated sum, of each block where they change along K. int32 sums are
        // exact and rounded once on their way to f32.
        (Some(qa), Some(qb)) if qa[0].format().is_integer() == qb[0].format().is_integer() => {
            let (fa, fb) = (qa[0].format(), qb[0].format());
            let exact = fa.is_integer();
            if exact && !accumulator.inner.is_model() {
                return dequantized(job, (a, b), k, &d, bias.as_deref(), out);
            }
            let accumulation = match exact {
                true => Accumulation { relative_certain: 0.0, relative_probable_sd: 0.0, absolute: 0.0 },
                false => accumulation_bound(accumulator, chunk, Factors::of_codes(&qa), Factors::of_codes(&qb))?,
            };
            let global = qa.iter().chain(&qb).filter(|q| q.global_scale_inv().is_some()).count() as u32;
            let (scales_a, scales_b) = (factors_on_sums(&qa), factors_on_sums(&qb));
            let p = ProductArithmetic { groups, scale_roundings: 2 + u32::from(exact) + global, ..plain(accumulation) };
            Bound::product(&p.scaled_by(fa, fb, &[&scales_a, &scales_b]), cols, &d, &magnitude, out)
        }
        // Values times codes: the weight is dequantized to the 16-bit type of the values, and that is what is multiplied.
        (codes, Some(qb)) => {
            let format = match a {
                Operand::High(t) => t.dtype(),
                _ => Format::F16,
            };
            let values = a.to_f64();
            let read = match &codes {
                Some(q) => Factors { format, ..Factors::of_codes(q) },
                None => Factors::of(format, values.iter().copied()),
            };
            let accumulation = accumulation_bound(accumulator, k, read, rounded_weights(qb[0], format))?;
            let row_abs: Vec<f64> = values.rows().into_iter().map(|r| r.iter().map(|x| x.abs()).sum()).collect();
            let before_zero = match qb[0].zero() {
                Zero::Additive { .. } => Some(before_zero(&values, qb[0])),
                _ => None,
            };
            let scales = qb[0].scale_format();
            let weight_rounding =
                Some(WeightRounding { scales, format, row_abs: &row_abs, before_zero: before_zero.as_deref() });
            let p =
                ProductArithmetic { weight_rounding, scale_roundings: 2 * u32::from(codes.is_some()), ..plain(accumulation) };
            let p = match &codes {
                Some(q) => p.scaled_by(q[0].format(), format, &[&factors_on_sums(q)]),
                None => p,
            };
            Bound::product(&p, cols, &d, &magnitude, out)
        }
        _ => {
            let read = |o: &Operand| Factors::of(dtype(o), o.to_f64());
            Bound::product(&plain(accumulation_bound(accumulator, k, read(a), read(b))?), cols, &d, &magnitude, out)
        }
    }
}

/// Integers of which it is not known how they were summed: exactly, or dequantized first and in f32, zero points apart or not. A factor
/// `(q − z)·s` is then a sum of `|q|·s` and `|z|·s` with three roundings (difference, scale, global scale) a side, so S is Σ(|q|+|z|)·s of a times that of b,
/// and each product has K + 6 roundings: 6 of its factors, its own, and K − 1 of the additions.
fn dequantized(
    job: &Job,
    (a, b): (&Operand, &Operand),
    k: usize,
    d: &[f64],
    bias: Option<&[f64]>,
    out: &OutFormat,
) -> Result<Bound> {
    let sizes = |o: &Operand| match weights(o).as_deref() {
        Some([q]) => Some(Array2::from_shape_fn((q.rows(), q.cols()), |(i, j)| {
            let (s, code) = (q.scale_index(i, j), q.format().decode(u32::from(q.codes()[i * q.cols() + j])));
            let zero = match q.zero() {
                Zero::None => 0.0,
                Zero::Integer(z) => f64::from(z[s]),
                Zero::Additive { mid, .. } => f64::from(*mid),
            };
            let additive = if let Zero::Additive { zero, .. } = q.zero() { f64::from(zero[s].abs()) } else { 0.0 };
            let scale = f64::from(q.scale_inv()[s]) * f64::from(q.global_scale_inv().unwrap_or(1.0));
            (code.abs() + zero.abs()) * scale.abs() + additive
        })),
        _ => None,
    };
    let (Some(a), Some(b)) = (sizes(a), sizes(b)) else {
        return Err(Error::unsupported(job.op.name(), "grouped products are of narrow floats"));
    };
    let mut magnitude = a.dot(&b.t());
    if let Some(bias) = bias {
        magnitude.rows_mut().into_iter().for_each(|mut row| row.iter_mut().zip(bias).for_each(|(m, b)| *m += b.abs()));
    }
    let cols = magnitude.ncols();
    let read = |x: &Array2<f64>| Factors::of(Format::F32, x.iter().copied());
    let accumulator = Accumulator::new(Inner::AnyOrder);
    let accumulation = accumulation_bound(&accumulator, k + 6, read(&a), read(&b))?;
    let p = ProductArithmetic { bias, scale_roundings: 3, ..ProductArithmetic::plain(accumulation, k) };
    Bound::product(&p, cols, d, &magnitude.into_iter().collect::<Vec<f64>>(), out)
}

/// The codes an operand is read as; `None` for values.
fn weights(operand: &Operand) -> Option<Vec<&QTensor>> {
    match operand {
        Operand::High(_) => None,
        Operand::Quantized(q) => Some(vec![q]),
        Operand::Groups(groups) => Some(groups.iter().collect()),
        Operand::Dynamic(d) => weights(d.quantized()),
    }
}

/// The factors that one side's scales are to an accumulated sum: every scale_inv, times its tensor's global one.
fn factors_on_sums(tensors: &[&QTensor]) -> Vec<f32> {
    tensors.iter().flat_map(|q| q.scale_inv().iter().map(|s| s * q.global_scale_inv().unwrap_or(1.0))).collect()
}

/// What is known of weights after their roundings to `format`: |ŵ| ≤ 2·(max|(q − z)·s| + max|z|), however small where they cancel.
fn rounded_weights(q: &QTensor, format: Format) -> Factors {
    let zero = match q.zero() {
        Zero::Additive { zero, .. } => zero.iter().fold(0.0, |m, z| z.abs().max(m)),
        _ => 0.0,
    };
    let values = Factors::of(format, q.dequantize_fast());
    Factors { largest: 2.0 * (values.largest + 2.0 * f64::from(zero)), smallest: 0.0, ..values }
}

fn dtype(operand: &Operand) -> Format {
    match operand {
        Operand::High(t) => t.dtype(),
        _ => Format::F32,
    }
}

/// `Σ_k |a_ik|·|(q_jk − mid)·s_jk|`: what the first of two weight roundings acts on.
fn before_zero(a: &Array2<f64>, q: &QTensor) -> Vec<f64> {
    let Zero::Additive { zero, .. } = q.zero() else { return Vec::new() };
    let w = Array2::from_shape_fn((q.rows(), q.cols()), |(j, k)| (q.value(j, k) - f64::from(zero[q.scale_index(j, k)])).abs());
    a.mapv(f64::abs).dot(&w.t()).into_iter().collect()
}

/// Length of the longest sum.
pub fn inner(job: &Job) -> usize {
    match (&job.operands.offs, job.op) {
        (Some(offs), Op::GroupedGemmWgrad) => {
            let starts = std::iter::once(&0).chain(offs);
            offs.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0)
        }
        _ => job.operands.a[0].cols(),
    }
}

/// Blocks along K inside which every scale is constant.
pub fn groups(job: &Job) -> usize {
    let k = inner(job);
    let width = |o: &Operand| match weights(o) {
        Some(q) if job.op != Op::GroupedGemmWgrad => q[0].granularity().tile(q[0].rows(), q[0].cols()).1,
        _ => k,
    };
    let narrow = std::iter::once(&job.operands.a[0]).chain(&job.operands.b).map(width).min().unwrap_or(k);
    k.div_ceil(narrow.max(1)).max(1)
}

/// The scales whose faults a product can have: name, values, and what they span.
pub fn scales(job: &Job) -> Vec<(&'static str, Vec<f32>, Spans)> {
    let mut all = Vec::new();
    let sides =
        [("a.scale_inv", Some(&job.operands.a[0]), Spans::Rows), ("b.scale_inv", job.operands.b.as_ref(), Spans::Columns)];
    for (name, operand, along) in sides {
        let Some(q) = operand.and_then(weights) else { continue };
        let by_row = q.len() == 1 && job.op == Op::Gemm && q[0].scale_inv().len() == q[0].rows();
        let values = q.iter().flat_map(|q| q.scale_inv()).copied().collect();
        all.push((name, values, if by_row { along } else { Spans::Other }));
    }
    if let OutSpec::Scaled { scale, .. } = &job.out {
        all.push(("out.scale", scale.iter().map(|s| s.unwrap_or(1.0)).collect(), Spans::Other));
    }
    all
}
