//! A large product of codes whose references a GPU makes: judged there, where it has every bit of its device's model.
//!
//! The first elements say which arithmetic it was ([`of_first`]); the GPU computes that one for all of them, the f64 references, the bounds and
//! what is counted of the errors, to the bits of the CPU's. What has another bit anywhere, or needs anything that is not there, is judged on the
//! CPU as if nobody had asked.

use super::assay::{Answer, job, output, quantized};
use super::settle::ways::{Bias, Ending, ScalesMeet};
use super::settle::{First, of_first};
use super::{Bundle, cast, exchange, recipes};
use crate::assay::{Assayed, Built, Judgement, evidence, large};
use crate::compare::Bound;
use crate::job::{Data, Job, Operand, Operands, Output};
use crate::kernel::{Backend, LargeOperands, Modelled, Splits};
use crate::model::Inner;
use crate::model::gemm::Epilogue;
use crate::model::product::{Kind, Plan};
use crate::op::Op;
use crate::stage::timed;
use crate::{QTensor, Result};
use std::borrow::Cow;

/// Multiply-adds from which it is worth the way there.
const LARGE: usize = 1 << 28;

/// What the GPU found; `None`: the CPU is to judge.
pub(super) fn judged(bundle: &Bundle) -> Option<Answer> {
    found(bundle).unwrap_or_else(|e| {
        tracing::warn!("{}: judged on the CPU: {e}", bundle.path.display());
        None
    })
}

fn found(bundle: &Bundle) -> Result<Option<Answer>> {
    let Some(judge) = Backend::Cuda.product_judge().filter(|_| is_asked(bundle)) else { return Ok(None) };
    let mut job = job(bundle)?;
    let output = output(bundle)?;
    let contradicts = !cast::contradictions(bundle).is_empty() || cast::beside_codes(bundle, &output).is_some();
    // Kernels there add one bias to all rows.
    let of_experts = job.op != Op::Gemm && job.operands.bias.is_some();
    if !takes(&job.operands) || of_experts || contradicts || exchange::turned(bundle)?.is_some() {
        return Ok(None);
    }
    let [part] = output.parts.as_slice() else { return Ok(None) };
    // What is wrong with an operand is said by the CPU.
    if !timed("operands", || recipes::operands(bundle))?.is_empty() {
        return Ok(None);
    }
    let sources = bundle.a.high.as_ref().zip(bundle.b.high.as_ref()).map(|(a, b)| [a, b]);
    let mut found = None;
    for first in of_first(&bundle.meta, &job, &output)? {
        job.accumulator = Some(first.accumulator);
        let Some(model) = modelled(&job, &first)? else { continue };
        let of = LargeOperands { op: job.op, operands: &job.operands, sources };
        if let Some(measured) = large::judged(judge, &job, (of, &model), (part, Backend::External), None)? {
            found = Some((first, measured));
            break;
        }
    }
    let Some((first, mut measured)) = found else { return Ok(None) };
    let mut comparison = large::comparison(&job, &mut measured);
    if sources.is_none() {
        (comparison.quantization, comparison.total) = (None, None);
    }
    let (verdict, reason) = (comparison.verdict, comparison.reason.clone());
    let out = evidence::out_format(&job, 0, part, Backend::External);
    let bound = Bound::from_radius(Vec::new(), Vec::new(), &out)?;
    let judgement = Judgement { cols: part.d.shape().1, bound, actual: Vec::new(), comparison };
    let built = Built { job, exact: Vec::new(), ideal: Vec::new(), quantized: quantized(bundle), source: None };
    let assayed = assayed(built, first.text.clone(), output, judgement);
    Ok(Some(Answer { verdict, reason, model: first.text, assayed, diagnosis: None, measured: Some(measured) }))
}

/// Whether a bundle is a large product of which all that was written is looked at there: values, or codes of one scale with their amax.
fn is_asked(bundle: &Bundle) -> bool {
    let out = match &bundle.out.d {
        Data::High(t) => t.data().len(),
        Data::Quantized(q) if bundle.out.amax.is_some() => q.codes().len(),
        _ => return false,
    };
    let k = bundle.a.shape().map_or(0, |(_, k)| k);
    bundle.meta.op.is_product() && bundle.empty.is_none() && out.saturating_mul(k) >= LARGE
}

fn assayed(built: Built, algorithm: String, output: Output, judgement: Judgement) -> Assayed {
    let (kernel, backend) = ("external", Backend::External);
    Assayed {
        built,
        kernel,
        algorithm: Some(algorithm),
        backend,
        output,
        model: None,
        drawn: None,
        judgements: vec![judgement],
    }
}

/// Codes of one level of scales on both sides.
fn takes(operands: &Operands) -> bool {
    let one_level = |q: &QTensor| q.level().is_none() && !q.codes().is_empty();
    let side = |o: &Operand| match o {
        Operand::Quantized(q) => one_level(q),
        Operand::Groups(all) => !all.is_empty() && all.iter().all(one_level),
        _ => false,
    };
    operands.get(0).is_some_and(side) && operands.b().is_some_and(side)
}

/// What the GPU's model computes for it; `None` of an arithmetic that it does not have.
fn modelled<'a>(job: &'a Job, first: &First) -> Result<Option<Modelled<'a>>> {
    let plan = Plan::of(job)?;
    let Some(p) = plan.problems().next() else { return Ok(None) };
    let epilogue = Epilogue::of(&plan, &p);
    let Ending { scales, blocks, bias, .. } = first.ending;
    if bias == Bias::Fused || !matches!(job.accumulator.map(|a| a.inner), Some(Inner::Mma(_) | Inner::Int32)) {
        return Ok(None);
    }
    let order = match (plan.kind, blocks.map(|b| b.fused), scales) {
        (Kind::Integer, ..) => return Ok(Some(Modelled::of(job))),
        (Kind::Scaled, None, ScalesMeet::Both) => 0,
        (Kind::Scaled, None, ScalesMeet::AFirst) => 1,
        (Kind::Scaled, None, ScalesMeet::BFirst) => 5,
        (Kind::Scaled, Some(true), ScalesMeet::AFirst) => 2,
        (Kind::Scaled, Some(true), ScalesMeet::BFirst) => 3,
        (Kind::Scaled, Some(true), ScalesMeet::Both) => 4,
        _ => return Ok(None),
    };
    let splits = (epilogue.number() != Some(order)).then(|| Splits { of_k: vec![0..p.a.k], order });
    // Groups of tokens have each their own K.
    if splits.is_some() && job.op == Op::GroupedGemmWgrad {
        return Ok(None);
    }
    Ok(Some(Modelled { job: Cow::Borrowed(job), splits }))
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::super::assay::assay_by;
    use super::super::settle::emulated::{Emulated, T, read};
    use super::*;
    use safetensors::Dtype;
    use std::time::Duration;

    const WGMMA: T = T { w: 32, f: 13, o: Some(13) };

    /// What the first elements say is what all elements say to [`super::super::settle::settle`], and what the GPU is asked for is that.
    #[test]
    fn the_first_elements_say_what_all_say() {
        let o = Emulated::new(3, (4, 48, 300), true);
        type End = (fn(f32, f32, f32) -> f32, Option<usize>);
        let ends: [End; 3] = [(|p, a, b| p * a * b, None), (|p, a, b| p * b * a, Some(5)), (|p, a, b| p * (a * b), Some(0))];
        for promoted in [false, true] {
            for (end, order) in &ends {
                let sum = |a: &[_], b: &[_]| match promoted {
                    false => o.chain(WGMMA, a, b),
                    true => a.chunks(128).zip(b.chunks(128)).fold(0.0f32, |main, (a, b)| main + o.chain(WGMMA, a, b)),
                };
                let bundle = read(&o.bundle(&o.product(sum, |p, i, j| end(p, o.sa[i], o.sb[j])), Dtype::F32, "NVIDIA H200"));
                let all = assay_by(&bundle, Duration::ZERO, None).unwrap();
                let mut job = job(&bundle).unwrap();
                let [first] = &of_first(&bundle.meta, &job, &output(&bundle).unwrap()).unwrap()[..] else { panic!("not one") };
                assert_eq!((&first.text, Some(first.accumulator)), (&all.model, all.assayed.built.job.accumulator));
                assert_eq!(first.accumulator.promote_every, promoted.then_some(128));
                job.accumulator = Some(first.accumulator);
                assert!(takes(&job.operands));
                let asked = modelled(&job, first).unwrap().unwrap();
                assert_eq!(asked.splits.map(|s| (s.of_k, s.order)), order.map(|order| (vec![0..300], order)), "{}", first.text);
            }
        }
    }

    /// Codes are counted there with their amax; a small product is not worth the way.
    #[test]
    fn what_is_not_looked_at_there_is_not_asked() {
        let k = 1 << 12;
        let (rows, cols) = (256, LARGE / k / 256);
        let bundle = |rows: usize, more: &dyn Fn(&mut Writer)| {
            let mut w = Writer::new("gemm");
            for (x, lines) in [("a", rows), ("b", cols)] {
                w.raw(&format!("{x}.codes"), Dtype::F8_E4M3, &[lines, k], vec![0x38; lines * k]);
                w.f32s(&format!("{x}.scale_inv"), &[1], &[1.0]);
            }
            more(&mut w);
            is_asked(&read(&w))
        };
        let values = |rows: usize| {
            move |w: &mut Writer| {
                w.f32s("out", &[rows, cols], &vec![k as f32; rows * cols]);
            }
        };
        assert!(bundle(rows, &values(rows)));
        assert!(!bundle(rows - 1, &values(rows - 1)));
        let codes = |w: &mut Writer| {
            w.raw("out.codes", Dtype::F8_E4M3, &[rows, cols], vec![0x38; rows * cols]).f32s("out.scale_inv", &[1], &[k as f32]);
        };
        assert!(!bundle(rows, &codes));
        assert!(bundle(rows, &|w| {
            codes(w);
            w.f32s("out.amax", &[1], &[k as f32]);
        }));
    }

    #[test]
    fn nothing_is_asked_of_what_the_gpu_has_not() {
        // A bias in the rounding of the last multiplication; sums in f32; values.
        let mut o = Emulated::new(4, (4, 48, 64), true).with_bias(1);
        // As large as the products, so that their rounding shows.
        let bias: Vec<f32> = o.bias.take().unwrap().iter().map(|b| b * 1e-3).collect();
        o.bias = Some(bias.clone());
        let fused = o.product(|a, b| o.chain(WGMMA, a, b), |p, i, j| (p * o.sa[i]).mul_add(o.sb[j], bias[j]));
        let plain = Emulated::new(4, (4, 48, 900), true);
        let exact = plain.product(
            |a, b| a.iter().zip(b).map(|(a, b)| a.value() * b.value()).sum::<f64>() as f32,
            |p, i, j| p * plain.sa[i] * plain.sb[j],
        );
        for bundle in [o.bundle(&fused, Dtype::F32, "NVIDIA H200"), plain.bundle(&exact, Dtype::F32, "NVIDIA H200")] {
            let bundle = read(&bundle);
            let mut job = job(&bundle).unwrap();
            let all = of_first(&bundle.meta, &job, &output(&bundle).unwrap()).unwrap();
            assert!(!all.is_empty());
            for first in all {
                job.accumulator = Some(first.accumulator);
                assert!(modelled(&job, &first).unwrap().is_none(), "{}", first.text);
            }
        }
        let values = Emulated::new(5, (4, 48, 64), false);
        let out = values.product(|a, b| values.chain(WGMMA, a, b), |p, _, _| p);
        assert!(!takes(&job(&read(&values.bundle(&out, Dtype::F32, "NVIDIA H200"))).unwrap().operands));
    }
}
