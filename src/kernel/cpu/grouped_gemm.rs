//! Grouped FP8 GEMM: forward, grad_A and grad_B by `offs`, scales by row (of each group's tokens in grad_B).

use super::fp8_gemm::{multiple, plan};
use super::product;
use crate::Result;
use crate::job::{Job, Output};
use crate::kernel::{Backend, Held, Kernel, KernelSpec, without_bias};
use crate::model::gemm::predict;
use crate::model::product::Kind;
use crate::op::Op;

pub struct GroupedGemm;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/grouped_gemm",
    backend: Backend::Cpu,
    ops: &[Op::GroupedGemm, Op::GroupedGemmDgrad, Op::GroupedGemmWgrad],
    help: "one product a group of rows (forward, grad_A) or of columns (grad_B); empty and odd groups; unowned rows are zero",
    source: "torchao scaled_grouped_mm.py; PyTorch ScaledGroupMM.cu",
};

impl Kernel for GroupedGemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    /// K and N of the forward product are multiples of 16; the sizes of the groups are free.
    fn check(&self, job: &Job) -> Result<()> {
        without_bias(&SPEC, job)?;
        let plan = plan(&SPEC, Kind::Scaled, job)?;
        let why = "rows of FP8 codes start at 16-byte boundaries";
        if job.op == Op::GroupedGemmWgrad {
            let rows = plan.problems().next().map_or(0, |p| p.a.rows);
            multiple(SPEC.name, "N", rows, 16, why)?;
            return multiple(SPEC.name, "K", plan.cols, 16, why);
        }
        let k = plan.problems().next().map_or(0, |p| p.a.k);
        multiple(SPEC.name, "the inner dimension", k, 16, why)?;
        multiple(SPEC.name, "columns of the output", plan.cols, 16, why)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        product::run(job)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        without_bias(&SPEC, job)?;
        plan(&SPEC, Kind::Scaled, job)?;
        predict(job).map(Some)
    }
    fn hold(&self, job: &Job, output: &Output) -> Result<Held> {
        product::hold(job, output)
    }
}
