//! LayerNorm and RMSNorm forward.

use super::cast::check_for;
use super::emit::{RowSource, output};
use crate::Result;
use crate::job::{Job, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::elementwise::high;
use crate::model::norm::{layernorm_stats, layernorm_value, rmsnorm_rsigma, rmsnorm_value, weight};
use crate::op::Op;
use crate::parallel;

pub struct Norm;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/norm",
    backend: Backend::Cpu,
    ops: &[Op::Layernorm, Op::Rmsnorm],
    help: "LayerNorm and RMSNorm forward, zero-centred gamma or not",
    source: "TransformerEngine common/layer_norm/ln_fwd_kernels.cuh, common/rmsnorm/rmsnorm_fwd_kernels.cuh",
};

impl Kernel for Norm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let (x, eps) = (high(job.operands.a(), SPEC.name)?, job.params.eps);
        let gamma = job.operands.gamma.as_ref().expect("checked").data();
        let weights: Vec<f32> = gamma.iter().map(|g| weight(*g, job.params.zero_centered_gamma)).collect();
        let zero = vec![0.0; x.cols()];
        let beta = job.operands.beta.as_ref().map_or(&zero[..], |b| b.data());
        let layernorm = job.op == Op::Layernorm;
        let of = |i: usize| if layernorm { layernorm_stats(x.row(i), eps) } else { (0.0, rmsnorm_rsigma(x.row(i), eps)) };
        let stats: Vec<(f32, f32)> = parallel::collect(x.rows(), of);
        let fill = |i: usize, out: &mut [f32]| {
            let (mean, rsigma) = stats[i];
            for (j, (out, x)) in out.iter_mut().zip(x.row(i)).enumerate() {
                *out = match layernorm {
                    true => layernorm_value(*x, mean, rsigma, weights[j], Some(beta[j])),
                    false => rmsnorm_value(*x, rsigma, weights[j]),
                };
            }
        };
        let mut out = output(job, &[RowSource { rows: x.rows(), cols: x.cols(), fill: Box::new(fill) }])?;
        out.mean = layernorm.then(|| stats.iter().map(|s| s.0).collect());
        out.rsigma = Some(stats.iter().map(|s| s.1).collect());
        Ok(out)
    }
    fn predict(&self, _: &Job) -> Result<Option<Output>> {
        Ok(None)
    }
}
