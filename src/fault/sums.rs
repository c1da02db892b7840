//! Faults of sums over K (products): slices that are lost, counted twice or summed in 16 bits. Slices are taken by masking: outside
//! a slice operand a is zero.

use super::edit::{Which, operand, replaced};
use super::inject::right;
use super::{Class, Fault, How, On, Setting, plain};
use crate::assay::product::inner;
use crate::format::{Overflow, Rounding};
use crate::job::{Data, Job, Operand, OutSpec};
use crate::model::product::dequantized_weights;
use crate::op::Op;
use crate::quant::{QTensorParts, Zero};
use crate::{Format, QTensor, Result, Tensor};
use std::ops::Range;

/// The job with operand a zero outside `k` (columns of a; of all groups one after the other). `None`: no code of a stands for zero.
pub fn masked(job: &Job, k: &Range<usize>) -> Option<Job> {
    let a = match operand(job, Which::A)?.given() {
        Operand::High(t) => {
            let cols = t.cols();
            let data = t.data().iter().enumerate().map(|(i, x)| if k.contains(&(i % cols)) { *x } else { 0.0 }).collect();
            Operand::High(Tensor::new(t.dtype(), t.rows(), cols, data).ok()?)
        }
        Operand::Weighted(w) => {
            let rows: Vec<usize> = (0..w.x().rows()).collect();
            Operand::Weighted(w.of_rows(&rows, |i, at| if k.contains(&at) { w.x().row(i)[at] } else { 0.0 }).ok()?)
        }
        Operand::Quantized(q) => Operand::Quantized(mask(q, k, 0)?),
        Operand::Dynamic(_) => return None,
        Operand::Groups(groups) => {
            let mut from = 0;
            let mut all = Vec::new();
            for q in groups {
                all.push(mask(q, k, from)?);
                from += q.cols();
            }
            Operand::Groups(all)
        }
    };
    Some(replaced(job, Which::A, a))
}

/// Codes outside the slice stand for zero. The first column of `q` is column `from` of the operand.
fn mask(q: &QTensor, k: &Range<usize>, from: usize) -> Option<QTensor> {
    let mut codes = q.codes().to_vec();
    let cols = q.cols().max(1);
    for (i, c) in codes.iter_mut().enumerate() {
        if !k.contains(&(from + i % cols)) {
            *c = match q.zero() {
                Zero::None => 0,
                Zero::Integer(z) => {
                    let z = f64::from(z[q.scale_index(i / cols, i % cols)]);
                    let code = q.format().encode(z, Rounding::NearestEven, Overflow::Saturate);
                    (q.format().decode(code) == z).then_some(code as u8)?
                }
                Zero::Additive { .. } => return None,
            };
        }
    }
    QTensor::new(QTensorParts { codes, ..q.clone().into_parts() }).ok()
}

/// Weights that a kernel dequantizes beside 16-bit activations as the numbers that it multiplies: once for all slices.
fn decode_weights(job: &mut Job) -> Result<()> {
    let (Some(Operand::High(x)), Some(Operand::Quantized(w))) = (operand(job, Which::A), operand(job, Which::B)) else {
        return Ok(());
    };
    if job.op == Op::Gemm && matches!(x.dtype(), Format::F16 | Format::Bf16) {
        let decoded = Tensor::new(x.dtype(), w.rows(), w.cols(), dequantized_weights(w, x.dtype()))?;
        *job = replaced(job, Which::B, Operand::High(decoded));
    }
    Ok(())
}

/// v of every element in f32 when the sums of these slices are joined in order, from 0, and the bias added. `None`: a slice cannot be taken.
pub fn joined(job: &Job, pieces: &[Range<usize>], join: &dyn Fn(f64, f64) -> f64) -> Result<Option<Vec<f32>>> {
    let mut plain = job.clone();
    plain.operands.bias = None;
    plain.out = OutSpec::High(Format::F32);
    decode_weights(&mut plain)?;
    let mut values: Vec<f64> = Vec::new();
    for piece in pieces {
        let Some(part) = masked(&plain, piece) else { return Ok(None) };
        let Data::High(t) = &right(&part)?.parts[0].d else { return Ok(None) };
        values.resize(t.data().len(), 0.0);
        values.iter_mut().zip(t.data()).for_each(|(acc, x)| *acc = join(*acc, f64::from(*x)));
    }
    Ok(Some(biased(job, values)))
}

/// Sums in f32, the bias added.
pub fn biased(job: &Job, sums: Vec<f64>) -> Vec<f32> {
    let cols = job.operands.bias.as_ref().map_or(1, Tensor::cols);
    sums.iter().enumerate().map(|(i, v)| *v as f32 + job.bias_at(i / cols, i % cols) as f32).collect()
}

fn add(acc: f64, x: f64, _: Setting) -> f64 {
    f64::from((acc + x) as f32)
}
fn last(_: f64, x: f64, _: Setting) -> f64 {
    x
}
/// In `format`, rounded to nearest even, overflowing to Inf.
fn round(format: Format, x: f64) -> f64 {
    format.decode(format.encode(x, Rounding::NearestEven, Overflow::Native))
}
fn add_f16(acc: f64, x: f64, _: Setting) -> f64 {
    round(Format::F16, acc + round(Format::F16, x))
}
fn add_bf16(acc: f64, x: f64, _: Setting) -> f64 {
    round(Format::Bf16, acc + round(Format::Bf16, x))
}
/// Partial sums in f16, added in f32.
fn part_f16(acc: f64, x: f64, _: Setting) -> f64 {
    f64::from((acc + round(Format::F16, x)) as f32)
}
fn part_bf16(acc: f64, x: f64, _: Setting) -> f64 {
    f64::from((acc + round(Format::Bf16, x)) as f32)
}
/// 14 bits of significand, cut.
fn add_14(acc: f64, x: f64, _: Setting) -> f64 {
    let y = acc + x;
    if y == 0.0 || !y.is_finite() {
        return y;
    }
    let unit = (y.abs().log2().floor() - 13.0).exp2();
    (y / unit).trunc() * unit
}
fn clamp_f16(acc: f64, x: f64, _: Setting) -> f64 {
    f64::from((acc + x) as f32).clamp(-65504.0, 65504.0)
}
fn inf_f16(acc: f64, x: f64, _: Setting) -> f64 {
    let y = acc + x;
    if y.abs() >= 65520.0 { y.signum() * f64::INFINITY } else { f64::from(y as f32) }
}

/// K of a product with one K for all groups.
fn k_of(job: &Job) -> Option<usize> {
    (job.op.is_product() && job.op != Op::GroupedGemmWgrad && inner(job) > 0).then(|| inner(job))
}

/// One slice.
fn only(k: Range<usize>) -> Vec<Range<usize>> {
    std::iter::once(k).collect()
}
/// Everything but the last `K mod tile`, where there is such a rest and something before it.
fn without_tail(job: &Job, tile: usize) -> Option<Vec<Range<usize>>> {
    let k = k_of(job)?;
    let rest = k % tile;
    (rest > 0 && k > tile).then(|| only(0..k - rest))
}
/// All of K, then the last `K mod tile` again.
fn tail_twice(job: &Job, tile: usize) -> Option<Vec<Range<usize>>> {
    let k = k_of(job)?;
    let rest = k % tile;
    (rest > 0 && k > tile).then(|| vec![0..k, k - rest..k])
}
/// Slices of `width`.
fn slices(job: &Job, width: usize) -> Option<Vec<Range<usize>>> {
    let k = if job.op == Op::GroupedGemmWgrad { operand(job, Which::A)?.cols() } else { k_of(job)? };
    (k > width).then(|| (0..k).step_by(width).map(|from| from..k.min(from + width)).collect())
}
/// All of K but slice `at` of `width`.
fn without(job: &Job, width: usize, at: usize) -> Option<Vec<Range<usize>>> {
    let k = k_of(job).filter(|k| (at + 1) * width <= *k && *k > width)?;
    Some([0..at * width, (at + 1) * width..k].into_iter().filter(|r| !r.is_empty()).collect())
}
/// All of K, and slice `at` of `width` once more.
fn repeated(job: &Job, width: usize, at: usize) -> Option<Vec<Range<usize>>> {
    let k = k_of(job).filter(|k| (at + 1) * width <= *k && *k > width)?;
    Some(vec![0..k, at * width..(at + 1) * width])
}
/// Which slice of `width`: at most sixteen of them, evenly.
fn which(job: &Job, width: usize) -> Vec<Setting> {
    let n = k_of(job).map_or(0, |k| k.div_ceil(width));
    let step = n.div_ceil(16).max(1);
    // The last, short slice is a tail: k_tail's.
    let whole = k_of(job).map_or(0, |k| k / width);
    (0..whole).step_by(step).map(|at| Setting { at, by: 1.0 }).collect()
}
/// How many equal parts K may have been split into.
fn splits(job: &Job) -> Vec<Setting> {
    let k = k_of(job).unwrap_or(0);
    (2..=16).filter(|n| k > 16 * n && k.is_multiple_of(*n)).map(|at| Setting { at, by: 1.0 }).collect()
}
fn split(job: &Job, n: usize) -> Option<Vec<Range<usize>>> {
    let k = k_of(job).filter(|k| n > 1 && k.is_multiple_of(n))?;
    Some((0..n).map(|i| i * k / n..(i + 1) * k / n).collect())
}
/// Halves of K that no tile divides into a tail.
fn halves(job: &Job) -> Option<Vec<Range<usize>>> {
    let k = k_of(job)?;
    (k >= 32).then(|| vec![0..k / 2, k / 2..k])
}

macro_rules! sums {
    ($class:ident, $variant:literal, $help:literal, $pieces:expr, $join:expr, $ulp:expr, $settings:expr) => {
        Fault {
            class: Class::$class,
            on: On::Out,
            variant: $variant,
            help: $help,
            how: How::Sums {
                values: |job, s| {
                    let pieces: fn(&Job, Setting) -> Option<Vec<Range<usize>>> = $pieces;
                    pieces(job, s).map_or(Ok(None), |pieces| joined(job, &pieces, &|acc, x| $join(acc, x, s)))
                },
                ulp: $ulp,
            },
            settings: $settings,
        }
    };
}

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    sums!(KTail, "dropped.32", "the last K mod 32 are left out", |j, _| without_tail(j, 32), add, 0.0, plain),
    sums!(KTail, "dropped.64", "the last K mod 64 are left out", |j, _| without_tail(j, 64), add, 0.0, plain),
    sums!(KTail, "dropped.128", "the last K mod 128 are left out", |j, _| without_tail(j, 128), add, 0.0, plain),
    sums!(KTail, "dropped.256", "the last K mod 256 are left out", |j, _| without_tail(j, 256), add, 0.0, plain),
    sums!(KTail, "twice.64", "the last K mod 64 are counted twice", |j, _| tail_twice(j, 64), add, 0.0, plain),
    sums!(KTail, "twice.128", "the last K mod 128 are counted twice", |j, _| tail_twice(j, 128), add, 0.0, plain),
    sums!(KTail, "last_element", "the last element of K is left out", |j, _| k_of(j).filter(|k| *k > 1).map(|k| only(0..k - 1)), add, 0.0, plain),
    sums!(KTail, "last_16", "the last 16 of K are left out", |j, _| k_of(j).filter(|k| *k > 16).map(|k| only(0..k - 16)), add, 0.0, plain),
    sums!(AccState, "last_slice_only.32", "the accumulator is cleared every 32 of K: the last slice is left", |j, _| slices(j, 32).filter(|_| k_of(j).is_some()), last, 0.0, plain),
    sums!(AccState, "last_slice_only.64", "the accumulator is cleared every 64 of K: the last slice is left", |j, _| slices(j, 64).filter(|_| k_of(j).is_some()), last, 0.0, plain),
    sums!(AccState, "last_slice_only.128", "the accumulator is cleared every 128 of K: the last slice is left", |j, _| slices(j, 128).filter(|_| k_of(j).is_some()), last, 0.0, plain),
    sums!(AccState, "first_slice_only.64", "only the first 64 of K are summed", |j, _| k_of(j).filter(|k| *k > 64).map(|_| only(0..64)), add, 0.0, plain),
    sums!(AccState, "first_slice_only.128", "only the first 128 of K are summed", |j, _| k_of(j).filter(|k| *k > 128).map(|_| only(0..128)), add, 0.0, plain),
    sums!(AccState, "half_lost", "the second half of K, a split's partial sum, is lost", |j, _| halves(j).map(|h| only(h[0].clone())), add, 0.0, plain),
    sums!(AccState, "slice_lost.64", "one slice of 64 of K is lost", |j, s| without(j, 64, s.at), add, 0.0, |j| which(j, 64)),
    sums!(AccState, "slice_twice.64", "one slice of 64 of K is counted twice", |j, s| repeated(j, 64, s.at), add, 0.0, |j| which(j, 64)),
    sums!(AccState, "slice_lost.16", "one slice of 16 of K is lost", |j, s| without(j, 16, s.at), add, 0.0, |j| which(j, 16)),
    sums!(LowprecAcc, "f16.64", "the accumulator is rounded to f16 every 64 of K", |j, _| slices(j, 64), add_f16, 4.9e-4, plain),
    sums!(LowprecAcc, "f16.128", "the accumulator is rounded to f16 every 128 of K", |j, _| slices(j, 128), add_f16, 4.9e-4, plain),
    sums!(LowprecAcc, "bf16.64", "the accumulator is rounded to bf16 every 64 of K", |j, _| slices(j, 64), add_bf16, 3.9e-3, plain),
    sums!(LowprecAcc, "bf16.128", "the accumulator is rounded to bf16 every 128 of K", |j, _| slices(j, 128), add_bf16, 3.9e-3, plain),
    sums!(LowprecAcc, "bits14.32", "the accumulator keeps 14 bits, cut every 32 of K", |j, _| slices(j, 32), add_14, 1.3e-4, plain),
    sums!(LowprecAcc, "split2.bf16", "two halves of K are summed by themselves and stored in bf16", |j, _| halves(j), part_bf16, 3.9e-3, plain),
    sums!(LowprecAcc, "split2.f16", "two halves of K are summed by themselves and stored in f16", |j, _| halves(j), part_f16, 4.9e-4, plain),
    sums!(LowprecAcc, "splits.f16", "parts of K are stored and added in f16", |j, s| split(j, s.at), add_f16, 4.9e-4, splits),
    sums!(LowprecAcc, "splits.bf16", "parts of K are stored and added in bf16", |j, s| split(j, s.at), add_bf16, 3.9e-3, splits),
    sums!(OverflowWrap, "sum.f16_inf", "the accumulated sum overflows f16 to Inf", |j, _| slices(j, 128), inf_f16, 0.0, plain),
    sums!(OverflowWrap, "sum.f16_clamped", "the accumulated sum is clamped to f16's range", |j, _| slices(j, 128), clamp_f16, 0.0, plain),
];
