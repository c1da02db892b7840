//! Activations, their gradients and the gated forms.

use super::cast::check_for;
use super::emit::{RowSource, output};
use crate::Result;
use crate::job::{Job, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::act::{act, act_slope, gate};
use crate::model::elementwise::{activation, high, predict};
use crate::op::{Act, Op};

pub struct Activation;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/activation",
    backend: Backend::Cpu,
    ops: &[Op::Activation, Op::ActivationGrad, Op::Gated],
    help: "act(x), g·act'(x), act(a)·b for gelu, silu, relu, qgelu, srelu, gelu_erf",
    source: "TransformerEngine common/util/math.h, common/activation; gelu_erf: PyTorch ActivationGeluKernel.cu",
};

/// Whether the bits of an op with this activation follow from IEEE operations alone (no e^x, no tanh).
pub fn is_exact(act: Option<Act>) -> bool {
    matches!(act, Some(Act::Relu | Act::Srelu))
}

/// g·act'(x)
pub fn grad_rows(job: &Job) -> Result<RowSource<'_>> {
    let (f, g) = (activation(job)?, high(job.operands.a(), "activation gradient")?);
    let x = high(job.operands.b().expect("checked"), "activation gradient")?;
    let fill = move |i: usize, out: &mut [f32]| {
        for (out, (g, x)) in out.iter_mut().zip(g.row(i).iter().zip(x.row(i))) {
            *out = act_slope::<f32>(f, *x) * g;
        }
    };
    Ok(RowSource { rows: g.rows(), cols: g.cols(), fill: Box::new(fill) })
}

fn forward_rows(job: &Job) -> Result<RowSource<'_>> {
    let (f, x) = (activation(job)?, high(job.operands.a(), "activation")?);
    let fill = move |i: usize, out: &mut [f32]| out.iter_mut().zip(x.row(i)).for_each(|(out, x)| *out = act(f, *x));
    Ok(RowSource { rows: x.rows(), cols: x.cols(), fill: Box::new(fill) })
}

fn gated_rows(job: &Job) -> Result<RowSource<'_>> {
    let (f, x) = (activation(job)?, high(job.operands.a(), "gated activation")?);
    let fill = move |i: usize, out: &mut [f32]| {
        let (a, b) = x.row(i).split_at(out.len());
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out = act::<f32>(f, *a) * gate::<f32>(f, *b);
        }
    };
    Ok(RowSource { rows: x.rows(), cols: x.cols() / 2, fill: Box::new(fill) })
}

impl Kernel for Activation {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let rows = match job.op {
            Op::Activation => forward_rows(job)?,
            Op::ActivationGrad => grad_rows(job)?,
            _ => gated_rows(job)?,
        };
        output(job, &[rows])
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        is_exact(job.params.act).then(|| predict(job)).transpose()
    }
}
