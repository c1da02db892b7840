//! A kernel's job as a bundle without a result, and a result as a bundle's: how cases reach kernels that are programs of their own.

use super::Writer;
use super::metadata::FUNCTIONS;
use super::operand::{BundleOperand, Codes};
use super::order::ROW_WEIGHTS;
use crate::format::pack::NibbleOrder;
use crate::job::{Data, Job, Operand, OutSpec, Output};
use crate::op::{Act, Op, Sizes};
use crate::{Error, Granularity, Result};

/// The op as a bundle calls it. Errors: an op that bundles do not hold.
fn op_name(op: Op) -> Result<&'static str> {
    op.spec().bundle.ok_or_else(|| Error::unsupported("a bundle", format!("it has no op {}", op.name())))
}

/// `fn` of an activation.
fn function(act: Act, gated: bool) -> &'static str {
    FUNCTIONS.iter().find(|f| (f.1.name(), f.2) == (act.name(), gated)).map_or("gelu", |f| f.0)
}

/// What a kernel is given: operands, metadata, `out.format`, and `out.scale` where the result is FP8 by a given scale. Errors: a job that
/// a bundle cannot say: an op it does not hold, an operand that the kernel quantizes itself.
pub fn input(job: &Job) -> Result<Writer> {
    packed_input(job, [None, None])
}

/// [`input`] with the codes of a and b packed so. Errors: those of [`input`]; codes of other than four bits, rows of odd length.
pub fn packed_input(job: &Job, packing: [Option<NibbleOrder>; 2]) -> Result<Writer> {
    let mut w = Writer::new(op_name(job.op)?);
    if let Some(act) = job.params.act {
        w.meta("fn", function(act, job.op == Op::Gated));
        if let Act::SwigluOai(c) = act {
            w.meta("alpha", c.alpha());
        }
        if let Some(c) = act.clamp() {
            w.meta("limit", c.limit());
        }
    }
    if job.op.is_norm() {
        w.meta("eps", job.params.eps).meta("zero_centered_gamma", job.params.zero_centered_gamma);
    }
    let experts = match job.op {
        Op::GroupedGemm | Op::GroupedGemmDgrad => job.operands.offs.as_ref().map(Vec::len),
        _ => None,
    };
    let o = &job.operands;
    if o.row_weights.is_some() && !matches!(o.get(0), Some(Operand::Weighted(_))) {
        return Err(Error::unsupported("a bundle", "its weights of rows are in the scales of a already"));
    }
    for (x, operand, experts, packing) in [("a", o.get(0), None, packing[0]), ("b", o.b(), experts, packing[1])] {
        let side = match operand {
            None => continue,
            Some(Operand::High(t)) => BundleOperand { high: Some(t.clone()), ..BundleOperand::default() },
            Some(Operand::Weighted(o)) => {
                w.f32s(ROW_WEIGHTS, &[o.weights().len()], o.weights());
                BundleOperand { high: Some(o.x().clone()), ..BundleOperand::default() }
            }
            Some(Operand::Quantized(q)) => BundleOperand { codes: Some(Codes::Whole(q.clone())), ..BundleOperand::default() },
            Some(Operand::Groups(g)) => BundleOperand { codes: Some(Codes::Groups(g.clone())), ..BundleOperand::default() },
            Some(Operand::Dynamic(d)) => {
                let why = format!("its operand {x} is quantized by the kernel itself ({})", d.recipe());
                return Err(Error::unsupported("a bundle", why));
            }
        };
        w.side(x, &side, experts, packing)?;
    }
    for (name, t) in [("bias", &o.bias), ("gamma", &o.gamma), ("beta", &o.beta)] {
        if let Some(t) = t {
            let shape = [t.rows(), t.cols()];
            w.values(name, if t.rows() == 1 { &shape[1..] } else { &shape }, t);
        }
    }
    if let Some(offs) = &o.offs {
        let ends: Vec<i32> = offs.iter().map(|e| *e as i32).collect();
        w.i32s("offs", &[ends.len()], &ends);
    }
    match &job.out {
        OutSpec::High(f) => w.meta("out.format", f),
        OutSpec::Scaled { format, scale } => w.meta("out.format", format).f32s("out.scale", &[1], &[scale[0].unwrap_or(1.0)]),
        OutSpec::Recipe(r) => w.meta("recipe", r).meta("out.format", r.format),
    };
    Ok(w)
}

/// The shape of the result.
pub fn out_shape(job: &Job) -> Vec<usize> {
    let (spec, o) = (job.op.spec(), &job.operands);
    let shapes: Vec<[usize; 2]> = o.tensors().iter().take(1).chain(o.b()).map(|o| [o.rows(), o.cols()]).collect();
    Sizes::of(spec, &shapes, o.offs.as_ref().map_or(1, Vec::len)).dims(spec.result)
}

/// Adds a result to the bundle of its job. Errors: zero points that do not fold into a bundle's.
pub fn output(w: &mut Writer, job: &Job, output: &Output) -> Result<()> {
    let part = &output.parts[0];
    match &part.d {
        Data::High(t) => {
            w.values("out", &out_shape(job), t);
        }
        Data::Quantized(q) => {
            w.codes("out", q, None, None)?;
            if let (Some(t), Granularity::Tensor) = (&part.transpose, q.granularity()) {
                w.raw("out.transpose", safetensors::Dtype::U8, &[t.rows(), t.cols()], t.codes().to_vec());
            }
            if let Some(amax) = part.amax.filter(|_| matches!(job.out, OutSpec::Scaled { .. })) {
                w.f32s("out.amax", &[1], &[amax]);
            }
        }
    }
    Ok(())
}
