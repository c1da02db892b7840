//! Casts that also write the transposed codes, with the column sums and the activation gradients fused in.

use super::activation::{grad_rows, is_exact};
use super::cast::{check_for, rows_of};
use super::emit::{RowSource, output};
use crate::Result;
use crate::job::{Job, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::act::{act, act_slope};
use crate::model::elementwise::{activation, high, predict};
use crate::op::Op;

pub struct CastTranspose;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/cast_transpose",
    backend: Backend::Cpu,
    ops: &[
        Op::CastTranspose,
        Op::MultiCastTranspose,
        Op::CastTransposeDbias,
        Op::CastTransposeDbiasDact,
        Op::DgatedCastTranspose,
    ],
    help: "codes and transposed codes of one or several tensors; dbias, dact and dgated fused in",
    source: "TransformerEngine common/transpose/{cast_transpose,multi_cast_transpose,cast_transpose_fusion}.cu",
};

/// \[act'(x)·g·gate | g·act(x)\] of a row g `[H]` and its forward input \[x | gate\] `[2H]`.
fn gated_grad_rows(job: &Job) -> Result<RowSource<'_>> {
    let (f, g) = (activation(job)?, high(job.operands.a(), "gated gradient")?);
    let x = high(job.operands.b().expect("checked"), "gated gradient")?;
    let h = g.cols();
    let fill = move |i: usize, out: &mut [f32]| {
        let (g, (x, gate)) = (g.row(i), x.row(i).split_at(h));
        let (d_act, d_gate) = out.split_at_mut(h);
        for j in 0..h {
            d_act[j] = act_slope::<f32>(f, x[j]) * g[j] * gate[j];
            d_gate[j] = g[j] * act::<f32>(f, x[j]);
        }
    };
    Ok(RowSource { rows: g.rows(), cols: 2 * h, fill: Box::new(fill) })
}

impl Kernel for CastTranspose {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let rows = match job.op {
            Op::CastTransposeDbiasDact => vec![grad_rows(job)?],
            Op::DgatedCastTranspose => vec![gated_grad_rows(job)?],
            _ => job.operands.tensors().iter().map(rows_of).collect::<Result<_>>()?,
        };
        output(job, &rows)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        let fused = matches!(job.op, Op::CastTransposeDbiasDact | Op::DgatedCastTranspose);
        (!fused || is_exact(job.params.act)).then(|| predict(job)).transpose()
    }
}
