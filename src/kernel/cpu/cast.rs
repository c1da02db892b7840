//! Quantization of one tensor: by a given scale, or by a recipe.

use super::emit::{RowSource, output};
use crate::job::{Job, Operand, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::elementwise::{check, high, predict};
use crate::op::Op;
use crate::{Error, Result};

pub struct Cast;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/cast",
    backend: Backend::Cpu,
    ops: &[Op::Cast],
    help: "quantize one tensor, by a given scale or by a recipe",
    source: "TransformerEngine common/util/cast.cu, vectorized_pointwise.h",
};

/// Refuses an op that `spec` does not have, then a job that is not whole.
pub fn check_for(spec: &KernelSpec, job: &Job) -> Result<()> {
    if !spec.ops.contains(&job.op) {
        return Err(Error::unsupported(spec.name, format!("it has no {}", job.op.name())));
    }
    check(job)
}

/// The rows of an operand as they are.
pub fn rows_of(operand: &Operand) -> Result<RowSource<'_>> {
    let x = high(operand, "cast")?;
    Ok(RowSource { rows: x.rows(), cols: x.cols(), fill: Box::new(|i, out| out.copy_from_slice(x.row(i))) })
}

impl Kernel for Cast {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        output(job, &[rows_of(job.operands.a())?])
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        predict(job).map(Some)
    }
}
