//! A kernel of one's own: implement [`Kernel`], hand it to a sweep, read the verdicts. `cargo run --example my_kernel`

use qassay::job::{Data, Job, Operand, OutSpec, Output, Part};
use qassay::kernel::{Backend, Kernel, KernelSpec};
use qassay::op::Op;
use qassay::sweep::{Sweep, assay};
use qassay::{Error, Format, QTensor, Result, Tensor};

/// A product of quantized operands, summed in f32 in order; with a bug on demand.
pub struct MyGemm {
    /// Multiplies by no scale of operand a.
    pub forgets_scale: bool,
}

static SPEC: KernelSpec = KernelSpec {
    name: "my_gemm",
    backend: Backend::External,
    ops: &[Op::Gemm],
    help: "an example",
    source: "examples/my_kernel.rs",
};

fn operands(job: &Job) -> Result<(&QTensor, &QTensor, Format)> {
    match (job.operands.a(), job.operands.b(), &job.out) {
        (Operand::Quantized(a), Some(Operand::Quantized(b)), OutSpec::High(format)) => Ok((a, b, *format)),
        _ => Err(Error::unsupported(SPEC.name, "it multiplies codes into f16, bf16 or f32")),
    }
}

impl Kernel for MyGemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        operands(job).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        let (a, b, format) = operands(job)?;
        let unscaled = |i, k| if self.forgets_scale { f64::from(a.scale_inv()[a.scale_index(i, k)]) } else { 1.0 };
        let product = |i, j, k| (a.value(i, k) / unscaled(i, k) * b.value(j, k)) as f32;
        let dot = |i, j| (0..a.cols()).fold(0f32, |sum, k| sum + product(i, j, k));
        let bias = |j: usize| job.operands.bias.as_ref().map_or(0.0, |t| t.data()[j]);
        let d = (0..a.rows()).flat_map(|i| (0..b.rows()).map(move |j| (i, j))).map(|(i, j)| dot(i, j) + bias(j)).collect();
        let d = Data::High(Tensor::rounded(format, a.rows(), b.rows(), d)?);
        Ok(Output::of(Part::plain(d)))
    }
    /// No model of its bits: it is held to the bound.
    fn predict(&self, _: &Job) -> Result<Option<Output>> {
        Ok(None)
    }
}

pub fn main() -> Result<()> {
    for kernel in [&MyGemm { forgets_scale: false }, &MyGemm { forgets_scale: true }] {
        for case in Sweep::load("smoke", 0)?.cases.iter().filter(|c| &*c.family == "accumulators") {
            let row = assay::assay(case, &[kernel], Backend::External, 0);
            println!("{:<9}{}  {}", row.verdict, row.case, row.reason);
        }
    }
    Ok(())
}
