//! Faults of side outputs, and of arguments that are ignored.

use super::edit::{Which, edit, operand, replaced};
use super::scale::gains;
use super::{Class, Fault, How, On, Setting, plain};
use crate::format::{Overflow, Rounding};
use crate::job::{Data, Job, Operand, OutSpec, Output, Part};
use crate::model::elementwise::DBIAS_BAND;
use crate::op::{Act, Op};
use crate::quant::QTensorParts;
use crate::{Format, QTensor, Tensor};

macro_rules! beside {
    ($class:ident, $variant:literal, $help:literal, $change:expr) => {
        Fault { class: Class::$class, on: On::Out, variant: $variant, help: $help, how: How::Beside($change), settings: plain }
    };
}
macro_rules! ignores {
    ($class:ident, $variant:literal, $help:literal, $change:expr) => {
        Fault { class: Class::$class, on: On::Out, variant: $variant, help: $help, how: How::Reads($change), settings: plain }
    };
}

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    beside!(ScaleOmitted, "out.scale_inv", "scale_inv is written as 1", |_, o, _| scale_inv(o, |_| 1.0)),
    beside!(ScaleDoubledInverted, "out.scale_inv", "scale is written where scale_inv belongs", |job, o, _| match &job.out {
        OutSpec::Scaled { scale, .. } if scale.len() == 1 => scale_inv(o, |s| scale[0].unwrap_or(1.0 / s)),
        _ => scale_inv(o, |s| 1.0 / s),
    }),
    Fault { settings: gains, ..beside!(StaleState, "out.scale_inv", "scale_inv is of an earlier step", |_, o, s| scale_inv(o, |x| x * s.by as f32)) },
    Fault { settings: gains, ..beside!(StaleState, "amax", "amax is of an earlier step", |_, o, s| amax(o, |a| a * s.by as f32)) },
    beside!(StaleState, "transpose", "the transposed copy is of an earlier step", |_, o, _| transpose(o, |p| {
        let n = p.codes.len();
        (n > 1).then(|| p.codes.reverse())
    })),
    beside!(PackPermute, "transpose.pairs", "pairs of codes of the transposed copy are exchanged", |_, o, _| transpose(o, |p| {
        p.codes.chunks_exact_mut(2).for_each(|c| c.swap(0, 1));
        Some(())
    })),
    beside!(Addressing, "transpose.not_transposed", "the transposed copy is a plain copy", |_, o, _| plain_copy(o)),
    beside!(SilentSkip, "transpose.zeros", "the transposed copy is never written", |_, o, _| transpose(o, |p| {
        p.codes.fill(0);
        Some(())
    })),
    beside!(AmaxScope, "not_written", "amax is never written", |_, o, _| amax(o, |_| 0.0)),
    beside!(AmaxScope, "bf16", "amax is rounded to bf16", |_, o, _| amax(o, |a| Format::Bf16.decode(Format::Bf16.encode(f64::from(a), Rounding::NearestEven, Overflow::Saturate)) as f32)),
    beside!(AmaxScope, "after_scaling", "amax is that of the scaled values", after_scaling),
    beside!(AmaxScope, "of_codes", "amax is that of the rounded result", of_codes),
    beside!(AmaxScope, "first_half", "amax of the first half of the rows only", |job, o, _| of_rows(job, o, |i, n| i < n.div_ceil(2))),
    beside!(AmaxScope, "without_last_row", "amax without the last row", |job, o, _| of_rows(job, o, |i, n| i + 1 < n)),
    beside!(AmaxScope, "signed", "the maximum instead of the largest magnitude", signed),
    beside!(MnEdge, "dbias.last_band", "column sums without the last band of rows", last_band),
    beside!(SilentSkip, "dbias.zero", "column sums are never written", |_, o, _| {
        let t = o.dbias.as_ref()?;
        o.dbias = Some(Tensor::new(t.dtype(), t.rows(), t.cols(), vec![0.0; t.data().len()]).ok()?);
        Some(())
    }),
    beside!(RoundOrder, "rsigma.bf16", "rsigma is rounded to bf16 before it is written", |_, o, _| {
        let v = o.rsigma.as_mut()?;
        v.iter_mut().for_each(|x| *x = Format::Bf16.decode(Format::Bf16.encode(f64::from(*x), Rounding::NearestEven, Overflow::Saturate)) as f32);
        Some(())
    }),
    beside!(SilentSkip, "mean.zero", "row means are never written", |_, o, _| {
        o.mean.as_mut()?.fill(0.0);
        Some(())
    }),
    ignores!(SilentSkip, "bias", "the bias is ignored", |job, _| {
        job.operands.bias.as_ref()?;
        let mut job = job.clone();
        job.operands.bias = None;
        Some(job)
    }),
    ignores!(SilentSkip, "gamma", "the norm's weight is ignored", |job, _| {
        let t = job.operands.gamma.as_ref()?;
        let one = if job.params.zero_centered_gamma { 0.0 } else { 1.0 };
        let mut job = job.clone();
        job.operands.gamma = Some(Tensor::new(t.dtype(), 1, t.cols(), vec![one; t.cols()]).ok()?);
        Some(job)
    }),
    ignores!(SilentSkip, "beta", "the norm's beta is ignored", |job, _| {
        let t = job.operands.beta.as_ref()?;
        let mut job = job.clone();
        job.operands.beta = Some(Tensor::new(t.dtype(), 1, t.cols(), vec![0.0; t.cols()]).ok()?);
        Some(job)
    }),
    ignores!(SilentSkip, "zero_centered", "1 is not added to gamma, which is stored minus one", |job, _| {
        job.params.zero_centered_gamma.then_some(())?;
        let mut job = job.clone();
        job.params.zero_centered_gamma = false;
        Some(job)
    }),
    ignores!(OtherFormula, "activation", "another activation than the one asked for: silu, or gelu where that is silu", |job, _| {
        let act = job.params.act?;
        let mut job = job.clone();
        job.params.act = Some(if matches!(act, Act::Silu | Act::SwigluLimit(_)) { Act::Gelu } else { Act::Silu });
        Some(job)
    }),
    ignores!(SilentSkip, "gate", "the gate is read from the first half of the row again", |job, _| {
        let (Op::Gated, Some(Operand::High(t))) = (job.op, operand(job, Which::A)) else { return None };
        let (cols, half) = (t.cols(), t.cols() / 2);
        let data = t.data().iter().enumerate().map(|(i, x)| if i % cols < half { *x } else { t.data()[i - half] }).collect();
        Some(replaced(job, Which::A, Operand::High(Tensor::new(t.dtype(), t.rows(), cols, data).ok()?)))
    }),
    ignores!(SilentSkip, "zeros_of_a", "operand a is never loaded: zeros", |job, _| edit(job, Which::A, |p| {
        matches!(p.zero, crate::Zero::None).then_some(())?;
        p.codes.fill(0);
        Some(())
    })),
    Fault { on: On::A, ..ignores!(RoundOrder, "a.bf16", "f32 or f16 inputs are rounded to bf16 first", |job, _| round_input(job, Format::Bf16)) },
    ignores!(RoundOrder, "gamma.bf16", "the norm's weight is rounded to bf16", |job, _| {
        let t = job.operands.gamma.as_ref().filter(|t| t.dtype() == Format::F32)?;
        let mut job = job.clone();
        let data = t.data().iter().map(|x| Format::Bf16.decode(Format::Bf16.encode(f64::from(*x), Rounding::NearestEven, Overflow::Native)) as f32);
        job.operands.gamma = Some(Tensor::new(Format::F32, 1, t.cols(), data.collect()).ok()?);
        Some(job)
    }),
    ignores!(LowprecAcc, "no_promotion", "the accumulator is never promoted to f32", |job, _| {
        let mut acc = job.accumulator.filter(|a| a.promote_every.is_some())?;
        acc.promote_every = None;
        let mut job = job.clone();
        job.accumulator = Some(acc);
        Some(job)
    }),
];

/// Parts with a given scale: whose scale_inv and amax stand beside them.
fn scaled_parts(o: &mut Output) -> impl Iterator<Item = &mut Part> {
    o.parts.iter_mut().filter(|p| matches!(p.d, Data::Quantized(_)))
}
fn scale_inv(o: &mut Output, f: impl Fn(f32) -> f32) -> Option<()> {
    let mut changed = None;
    for part in scaled_parts(o) {
        let Data::Quantized(q) = &part.d else { continue };
        let mut parts = q.clone().into_parts();
        let before = parts.scale_inv.clone();
        let format = parts.scale_format;
        for s in &mut parts.scale_inv {
            let x = f(*s);
            *s = if format == Format::F32 {
                x
            } else {
                format.decode(format.encode(f64::from(x), Rounding::NearestEven, Overflow::Saturate)) as f32
            };
        }
        if before != parts.scale_inv {
            changed = Some(());
        }
        part.d = Data::Quantized(QTensor::new(parts).ok()?);
    }
    changed
}
fn amax(o: &mut Output, f: impl Fn(f32) -> f32) -> Option<()> {
    let mut changed = None;
    for part in &mut o.parts {
        if let Some(a) = &mut part.amax {
            let before = *a;
            *a = f(before);
            if before.to_bits() != a.to_bits() {
                changed = Some(());
            }
        }
    }
    changed
}
fn transpose(o: &mut Output, f: impl Fn(&mut QTensorParts) -> Option<()>) -> Option<()> {
    let mut changed = None;
    for part in &mut o.parts {
        if let Some(t) = &part.transpose {
            let mut parts = t.clone().into_parts();
            f(&mut parts)?;
            if parts.codes != t.codes() {
                changed = Some(());
            }
            part.transpose = Some(QTensor::new(parts).ok()?);
        }
    }
    changed
}
fn plain_copy(o: &mut Output) -> Option<()> {
    let mut changed = None;
    for part in &mut o.parts {
        if let (Some(t), Data::Quantized(q)) = (&part.transpose, &part.d) {
            let parts = QTensorParts { codes: q.codes().to_vec(), ..t.clone().into_parts() };
            if parts.codes != t.codes() {
                changed = Some(());
            }
            part.transpose = Some(QTensor::new(parts).ok()?);
        }
    }
    changed
}
fn after_scaling(job: &Job, o: &mut Output, _: Setting) -> Option<()> {
    let OutSpec::Scaled { scale, .. } = &job.out else { return None };
    let by: Vec<f32> = scale.iter().map(|s| s.unwrap_or(1.0)).collect();
    let mut changed = None;
    for (part, s) in o.parts.iter_mut().zip(by) {
        if let Some(a) = &mut part.amax.filter(|a| *a * s != *a) {
            part.amax = Some(*a * s);
            changed = Some(());
        }
    }
    changed
}
/// The values of a result by row.
fn values(part: &Part) -> Vec<Vec<f64>> {
    match &part.d {
        Data::High(t) => (0..t.rows()).map(|i| t.row(i).iter().map(|x| f64::from(*x)).collect()).collect(),
        Data::Quantized(q) => (0..q.rows()).map(|i| (0..q.cols()).map(|j| q.value(i, j)).collect()).collect(),
    }
}
fn of_codes(_: &Job, o: &mut Output, _: Setting) -> Option<()> {
    let mut changed = None;
    for part in &mut o.parts {
        let a = part.amax?;
        let rounded = values(part).iter().flatten().fold(0.0f64, |m, x| m.max(x.abs())) as f32;
        if rounded != a {
            part.amax = Some(rounded);
            changed = Some(());
        }
    }
    changed
}
/// amax of v over the rows that `keep(row, rows)` keeps.
fn of_rows(job: &Job, o: &mut Output, keep: fn(usize, usize) -> bool) -> Option<()> {
    let before = super::inject::unrounded(job).ok().flatten()?;
    let mut changed = None;
    for (part, v) in o.parts.iter_mut().zip(before) {
        let (a, (rows, cols)) = (part.amax?, part.d.shape());
        let kept = v.iter().enumerate().filter(|(i, _)| keep(i / cols.max(1), rows)).fold(0.0f32, |m, (_, x)| m.max(x.abs()));
        if kept != a {
            part.amax = Some(kept);
            changed = Some(());
        }
    }
    changed
}
fn signed(job: &Job, o: &mut Output, _: Setting) -> Option<()> {
    let before = super::inject::unrounded(job).ok().flatten()?;
    let mut changed = None;
    for (part, v) in o.parts.iter_mut().zip(before) {
        let a = part.amax?;
        let largest = v.iter().fold(0.0f32, |m, x| m.max(*x));
        if largest != a {
            part.amax = Some(largest);
            changed = Some(());
        }
    }
    changed
}
fn last_band(job: &Job, o: &mut Output, _: Setting) -> Option<()> {
    o.dbias.as_ref()?;
    let rows = operand(job, Which::A)?.rows();
    let last = (rows.checked_sub(1)?) / DBIAS_BAND * DBIAS_BAND;
    (last > 0).then_some(())?;
    let v = super::inject::unrounded(job).ok().flatten()?.pop()?;
    let t = o.dbias.as_ref()?;
    let sums = crate::model::elementwise::column_sums(&v[..last * t.cols()], last, t.cols());
    o.dbias = Some(Tensor::rounded(t.dtype(), 1, t.cols(), sums).ok()?);
    Some(())
}
fn round_input(job: &Job, to: Format) -> Option<Job> {
    let Operand::High(t) = operand(job, Which::A)? else { return None };
    (t.dtype() != to).then_some(())?;
    let through = |x: &f32| to.decode(to.encode(f64::from(*x), Rounding::NearestEven, Overflow::Native)) as f32;
    let rounded = Tensor::rounded(t.dtype(), t.rows(), t.cols(), t.data().iter().map(through).collect()).ok()?;
    (rounded != *t).then(|| replaced(job, Which::A, Operand::High(rounded)))
}
