//! FP8 (and MX, NVFP4) GEMM with per-tensor, per-row, group and block scales, bias, high-precision or FP8 output.

use super::product;
use crate::job::{Job, Output};
use crate::kernel::{Backend, Held, Kernel, KernelSpec};
use crate::model::gemm::predict;
use crate::model::product::{Kind, Plan};
use crate::op::Op;
use crate::{Error, Result};

pub struct Fp8Gemm;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/fp8_gemm",
    backend: Backend::Cpu,
    ops: &[Op::Gemm],
    help: "narrow float × narrow float, tensor, row, group and block scales, bias, FP8 output",
    source: "TransformerEngine blockwise_fp8_gemm_reference.py, cublaslt_gemm.cu; DeepGEMM sm90_fp8_gemm_1d2d.cuh",
};

/// Refuses what is not a multiple of `of`, with the rule's reason.
pub fn multiple(kernel: &str, what: &str, n: usize, of: usize, why: &str) -> Result<()> {
    match n % of {
        0 => Ok(()),
        _ => Err(Error::unsupported(kernel, format!("{what} = {n} is not a multiple of {of}: {why}"))),
    }
}

/// The plan of a job for a kernel of this kind, without the values of dequantized weights. Errors: an op or operands that are not the kernel's.
pub fn plan<'a>(spec: &KernelSpec, kind: Kind, job: &'a Job) -> Result<Plan<'a>> {
    if !spec.ops.contains(&job.op) {
        return Err(Error::unsupported(spec.name, format!("it has no {}", job.op.name())));
    }
    let plan = Plan::without_weights(job)?;
    if plan.kind != kind {
        return Err(Error::unsupported(spec.name, format!("its operands are {kind:?}, these are {:?}", plan.kind)));
    }
    Ok(plan)
}

impl Kernel for Fp8Gemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        let plan = plan(&SPEC, Kind::Scaled, job)?;
        let k = plan.problems().next().map_or(0, |p| p.a.k);
        multiple(SPEC.name, "K", k, 16, "rows of FP8 codes start at 16-byte boundaries")
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        product::run(job)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        plan(&SPEC, Kind::Scaled, job)?;
        predict(job).map(Some)
    }
    fn hold(&self, job: &Job, output: &Output) -> Result<Held> {
        product::hold(job, output)
    }
}
