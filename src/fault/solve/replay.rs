//! A theory replayed on the sampled elements: by the kernel's own arithmetic where a job says the same, and in f64 to the right bound.

use super::given::{Given, Side};
use super::system::{System, Theory};
use crate::fault::edit::{Which, operand, replaced};
use crate::fault::predict::{Fit, Prediction};
use crate::job::{Job, Operand, OutSpec};
use crate::model::{Accumulator, Inner};
use crate::quant::{QTensorParts, Zero};
use crate::{Format, Overflow, QTensor, Rounding};

/// How well a theory fits, and what it predicts.
pub fn replay(s: &System, t: &Theory) -> Option<(Fit, Prediction)> {
    let scene = s.scene;
    let places: Vec<(usize, usize)> = scene.sample.indices(s.cols).map(|at| (at / s.cols, at % s.cols)).collect();
    let inside = |i: usize, j: usize| t.at(i, j).region.as_ref().is_none_or(|r| r.has(i, j));
    let mut known = false;
    // A kernel of ours that rounds its operands, or sums what others summed, is not asked for: f64 says it.
    let jobs = if s.is_rounded() || s.part_of_bound > 1.0 || t.size.is_some() { None } else { job(s, t) };
    for job in jobs.iter().flat_map(accumulators) {
        let Some(values) = stored(s, t, &job, &places) else { break };
        known = true;
        let values =
            values.iter().zip(&places).enumerate().map(|(n, (v, (i, j)))| if inside(*i, *j) { *v } else { scene.clean()[n] });
        let (fit, prediction) = scene.fit_values(values.collect(), t.fitted);
        if fit.accepted() {
            return Some((fit, prediction));
        }
    }
    // In f64: every element to the bound of the right arithmetic; to that of sums in f32 where a device's bits are known and refused it.
    // Bits that right elements have none of are of another arithmetic, whose device it is: a split of K, say.
    let tight = if known && scene.bits_tell() { (scene.tight() / s.part_of_bound).min(1.0) } else { 1.0 };
    let mut outside = 0;
    let values: Vec<f64> = places
        .iter()
        .enumerate()
        .map(|(n, (i, j))| {
            let at = i * s.cols + j;
            let x = s.actual[at];
            if !inside(*i, *j) {
                outside += usize::from(s.is_wrong[at]);
                return scene.clean()[n];
            }
            if s.is_unknown(t.at(*i, *j), *i, *j) {
                return x;
            }
            let Some((v, low, high)) = s.within(t, *i, *j, tight) else {
                outside += usize::from(!(x == 0.0 || x.is_nan()));
                return if x.is_nan() { f64::NAN } else { 0.0 };
            };
            outside += usize::from(!s.holds(at, x, (v, low, high)));
            if v.is_finite() {
                s.out.round(at, v)
            } else if x.is_finite() {
                v
            } else {
                x
            }
        })
        .collect();
    let of_wrong = share(s, &places, &values);
    let (mut fit, prediction) = scene.fit_values(values, t.fitted);
    fit.outside = outside;
    // Where the right bits are not known, right elements differ from ours too: what is to be explained are the wrong ones.
    if outside == 0 {
        fit.share = fit.share.max(of_wrong);
    }
    // The bound decides here: how many roundings fall the other way is not known.
    fit.allowed = fit.allowed.max(if outside == 0 { fit.misses } else { 0.0 });
    Some((fit, prediction))
}

/// The share of the error of the wrong elements that these values explain.
fn share(s: &System, places: &[(usize, usize)], values: &[f64]) -> f64 {
    let (mut left, mut all) = (0.0, 0.0);
    for ((i, j), v) in places.iter().zip(values) {
        let at = i * s.cols + j;
        let right = s.out.round(at, s.ideal[at]);
        let unit = s.out.spacing(at, right);
        if s.is_wrong[at] && unit > 0.0 && [s.actual[at], right, *v].iter().all(|x| x.is_finite()) {
            all += ((s.actual[at] - right) / unit).powi(2).min(1e8);
            left += ((s.actual[at] - v) / unit).powi(2).min(1e8);
        }
    }
    if all > 0.0 { 1.0 - left / all } else { 0.0 }
}

/// The job in every way its device's unit may have been used: with the promotion to f32 that is assumed, and the others.
fn accumulators(job: &Job) -> Vec<Job> {
    let mut all = vec![job.clone()];
    if let Some(a) = job.accumulator.filter(|a| matches!(a.inner, Inner::Mma(_))) {
        for promote_every in [None, Some(128)].into_iter().filter(|p| *p != a.promote_every) {
            all.push(Job { accumulator: Some(Accumulator { promote_every, ..a }), ..job.clone() });
        }
    }
    all
}

/// What the job's kernel writes for the sampled elements, finished as the theory says.
fn stored(s: &System, t: &Theory, job: &Job, places: &[(usize, usize)]) -> Option<Vec<f64>> {
    let Some(finish) = &t.finish else { return s.scene.replayed(job).filter(|v| v.len() == places.len()) };
    let mut sums = job.clone();
    (sums.out, sums.operands.bias) = (OutSpec::High(Format::F32), None);
    let v = s.scene.replayed(&sums).filter(|v| v.len() == places.len())?;
    let one = |(v, (i, j)): (&f64, &(usize, usize))| {
        let y = finish(*i, *j, *v);
        if y.is_finite() { s.out.round(i * s.cols + j, y) } else { y }
    };
    Some(v.iter().zip(places).map(one).collect())
}

/// The job that a theory amounts to, for kernels that sum in their own order. `None`: no job says the same.
fn job(s: &System, t: &Theory) -> Option<Job> {
    if t.patch.is_some() || t.from.is_some() || t.expert.is_some() || t.cut.is_some() || t.over.is_some() || t.product.is_some()
    {
        return None;
    }
    let mut job = s.scene.evidence.job.clone();
    for (which, side, given) in [(Which::A, &t.a, &s.a), (Which::B, &t.b, &s.b)] {
        let mask = t.k.as_ref().filter(|_| which == Which::A);
        if side.is_given() && mask.is_none() {
            continue;
        }
        if mask.is_some_and(|m| m.iter().any(|c| *c != 0.0 && *c != 1.0)) {
            return None;
        }
        match operand(&job, which)?.given().clone() {
            Operand::Quantized(q) => {
                let q = edited(&q, side, given, mask.map(|m| &m[..]))?;
                job = replaced(&job, which, Operand::Quantized(q));
            }
            Operand::High(x) if side.is_given() => {
                let m = mask?;
                let data = x.data().iter().enumerate().map(|(at, v)| if m[at % x.cols()] == 0.0 { 0.0 } else { *v }).collect();
                job = replaced(&job, which, Operand::High(crate::Tensor::new(x.dtype(), x.rows(), x.cols(), data).ok()?));
            }
            _ => return None,
        }
    }
    Some(job)
}

/// The tensor a kernel would have been given to read this: the same tiles, other codes, scales and zero points.
pub fn edited(q: &QTensor, side: &Side, g: &Given, mask: Option<&[f64]>) -> Option<QTensor> {
    if side.table.is_some() || side.value.is_some() {
        return None;
    }
    let mut p = super::given::flat(q).into_owned().into_parts();
    let (rows, cols) = g.grid;
    let tile = |f: &dyn Fn(usize, usize) -> f64| -> Option<Vec<f64>> {
        let mut all = Vec::with_capacity(rows * cols);
        for r in 0..rows {
            for c in 0..cols {
                let (i0, k0) = (r * g.tile.0, c * g.tile.1);
                let (i1, k1) = ((i0 + g.tile.0).min(g.rows), (k0 + g.tile.1).min(g.k));
                let first = f(i0, k0);
                // Other tiles than the tensor's: no job.
                let corners = [(i1 - 1, k1 - 1), (i0, k1 - 1), (i1 - 1, k0), ((i0 + i1) / 2, (k0 + k1) / 2)];
                let same = corners.iter().all(|(i, k)| f(*i, *k) == first)
                    && (k0..k1).step_by(((k1 - k0) / 16).max(1)).all(|k| f(i0, k) == first);
                same.then_some(())?;
                all.push(first);
            }
        }
        Some(all)
    };
    if let Some(scale) = &side.scale {
        p.scale_inv = tile(&|i, k| scale(i, k))?.iter().map(|x| (x / g.global) as f32).collect();
        let f = p.scale_format;
        let held =
            |x: &f32| x.is_nan() || f.decode(f.encode(f64::from(*x), Rounding::NearestEven, Overflow::Native)) == f64::from(*x);
        if f != Format::F32 && !p.scale_inv.iter().all(held) {
            p.scale_format = Format::F32;
        }
    }
    if let Some(zero) = &side.zero {
        let new = tile(&|i, k| zero(i, k))?;
        match &mut p.zero {
            Zero::Integer(z) if new.iter().all(|x| x.fract() == 0.0) => *z = new.iter().map(|x| *x as i32).collect(),
            Zero::Additive { zero: z, .. } => *z = new.iter().map(|x| *x as f32).collect(),
            _ => return None,
        }
    }
    if let Some(code) = &side.code {
        let old = p.codes.clone();
        for (at, c) in p.codes.iter_mut().enumerate() {
            *c = match code(at / g.k, at % g.k) {
                Some(from) => old[from],
                None if matches!(p.zero, Zero::None) => 0,
                None => return None,
            };
        }
    }
    if let Some(mask) = mask {
        matches!(p.zero, Zero::None).then_some(())?;
        p.codes.iter_mut().enumerate().for_each(|(at, c)| {
            if mask[at % g.k] == 0.0 {
                *c = 0;
            }
        });
    }
    QTensor::new(QTensorParts { ..p }).ok()
}
