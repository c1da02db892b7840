//! W4A8: int8 activations × int4, uint4 or int8 weights in integers; scales by row and by channel or group, zero points on both sides,
//! bias. A [`crate::job::Operand::Dynamic`] activation is quantized here first.

use super::fp8_gemm::{multiple, plan};
use super::product;
use crate::Result;
use crate::job::{Job, Output};
use crate::kernel::{Backend, Held, Kernel, KernelSpec};
use crate::model::gemm::predict;
use crate::model::product::Kind;
use crate::op::Op;

pub struct W4a8;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/w4a8",
    backend: Backend::Cpu,
    ops: &[Op::Gemm],
    help: "int8 activations × int4 weights, row and channel or group scales, zero points, dynamic quantization",
    source: "torchao s8s4_linear_cutlass.cu",
};

impl Kernel for W4a8 {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        let plan = plan(&SPEC, Kind::Integer, job)?;
        let k = plan.problems().next().map_or(0, |p| p.a.k);
        multiple(SPEC.name, "K", k, 32, "rows of packed int4 weights start at 16-byte boundaries")?;
        multiple(SPEC.name, "N", plan.cols, 8, "rows of 16-bit outputs start at 16-byte boundaries")
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        product::run(job)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        plan(&SPEC, Kind::Integer, job)?;
        predict(job).map(Some)
    }
    fn hold(&self, job: &Job, output: &Output) -> Result<Held> {
        product::hold(job, output)
    }
}
