//! Mixed-input GEMM: f16, bf16 or FP8 activations × int4, uint4 or int8 weights, dequantized to 16 bits before they are multiplied.

use super::fp8_gemm::{multiple, plan};
use super::product;
use crate::Result;
use crate::job::{Job, Operand, Output};
use crate::kernel::{Backend, Held, Kernel, KernelSpec};
use crate::model::gemm::predict;
use crate::model::product::Kind;
use crate::op::Op;

pub struct MixedGemm;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/mixed_gemm",
    backend: Backend::Cpu,
    ops: &[Op::Gemm],
    help: "f16, bf16 or FP8 activations × integer weights with group scales, additive or integer zero points",
    source: "CUTLASS include/cutlass/detail/collective/mixed_input_utils.hpp",
};

impl Kernel for MixedGemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        let plan = plan(&SPEC, Kind::Mixed, job)?;
        let k = plan.problems().next().map_or(0, |p| p.a.k);
        // 16 bytes of the narrower operand.
        let bits = |o: &Operand| match o {
            Operand::Quantized(q) => q.format().bits(),
            _ => 16,
        };
        let narrowest = job.operands.all().map(bits).min().unwrap_or(16);
        multiple(SPEC.name, "K", k, 128 / narrowest as usize, "rows of both operands start at 16-byte boundaries")
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        product::run(job)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        plan(&SPEC, Kind::Mixed, job)?;
        predict(job).map(Some)
    }
    fn hold(&self, job: &Job, output: &Output) -> Result<Held> {
        product::hold(job, output)
    }
}
