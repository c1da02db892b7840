//! A kernel of one's own as a Rust type: implement [`Kernel`], hand it to a sweep, read the verdicts.
//!
//! `cargo run --example my_kernel`

use qassay::kernel::{Backend, Data, Job, Kernel, KernelSpec, Operand, OutSpec, Output, Part};
use qassay::op::Op;
use qassay::sweep::{Sweep, assay};
use qassay::{Error, Result, Tensor};

/// A product of quantized operands, summed in f32 in order; with a bug on demand.
struct MyGemm {
    /// Multiplies by no scale of operand a.
    forgets_scale: bool,
}

static SPEC: KernelSpec = KernelSpec {
    name: "my_gemm",
    backend: Backend::External,
    ops: &[Op::Gemm],
    help: "an example",
    source: "examples/my_kernel.rs",
};

impl Kernel for MyGemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        match (&job.operands.a[0], &job.operands.b, &job.out) {
            (Operand::Quantized(_), Some(Operand::Quantized(_)), OutSpec::High(_)) => Ok(()),
            _ => Err(Error::unsupported(SPEC.name, "it multiplies codes into f16, bf16 or f32")),
        }
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let (Operand::Quantized(a), Some(Operand::Quantized(b)), OutSpec::High(format)) =
            (&job.operands.a[0], &job.operands.b, &job.out)
        else {
            unreachable!("checked");
        };
        let value = |i: usize, k: usize| match self.forgets_scale {
            true => a.value(i, k) / f64::from(a.scale_inv()[a.scale_index(i, k)]),
            false => a.value(i, k),
        };
        let dot = |i: usize, j: usize| (0..a.cols()).fold(0f32, |sum, k| sum + (value(i, k) * b.value(j, k)) as f32);
        let bias = |j: usize| job.operands.bias.as_ref().map_or(0.0, |t| t.data()[j]);
        let d = (0..a.rows()).flat_map(|i| (0..b.rows()).map(move |j| (i, j))).map(|(i, j)| dot(i, j) + bias(j)).collect();
        let d = Data::High(Tensor::rounded(*format, a.rows(), b.rows(), d)?);
        Ok(Output { parts: vec![Part { d, transpose: None, amax: None }], dbias: None, mean: None, rsigma: None })
    }
    /// No model of its bits: it is held to the bound.
    fn predict(&self, _: &Job) -> Result<Option<Output>> {
        Ok(None)
    }
}

fn main() -> Result<()> {
    for kernel in [&MyGemm { forgets_scale: false }, &MyGemm { forgets_scale: true }] {
        for case in Sweep::load("smoke", 0)?.cases.iter().filter(|c| c.op == Op::Gemm) {
            let row = assay::assay(case, &[kernel], Backend::External, 0);
            println!("{:<9}{}  {}", row.get("verdict"), row.get("case"), row.get("reason"));
        }
    }
    Ok(())
}
