//! Activations, their gradients and the gated forms: `kernels/activation.cu` (contract there).

use super::contract::{Contract, Pointer, arguments};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::operand::{Fp8Side, one_dtype, out_code, type_code, upload};
use super::options::{Formula, Type, define, has};
use super::output::{download, element_bytes};
use super::timed::{Timed, normals, rotation, uploads};
use crate::job::{Job, OutSpec, Output};
use crate::kernel::cpu::activation::is_exact;
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::elementwise::{activation, check, predict};
use crate::op::{Act, Op};
use crate::{Error, Format, Result};

const THREADS: usize = 256;
/// Eights of elements that a thread takes.
const EACH: usize = 4;

pub struct Activation;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/activation",
    backend: Backend::Cuda,
    ops: &[Op::Activation, Op::ActivationGrad, Op::Gated],
    help: "act(x), g·act'(x), act(a)·b for gelu, silu, relu, qgelu, srelu; FP8 output with amax and scale_inv, or f16, bf16, f32",
    source: "kernels/activation.cu",
};

arguments! {
    /// Contract activation.
    Arguments = "activation.cu" "activation" {
        x: Pointer, g: Pointer, d: Pointer, scale: Pointer, amax: Pointer, scale_inv: Pointer, rows: u64, cols: u64,
    }
}

/// Refuses an op that `spec` does not have, a job that is not whole, and what no elementwise kernel here takes.
pub fn check_for(spec: &KernelSpec, job: &Job) -> Result<()> {
    if !spec.ops.contains(&job.op) {
        return Err(Error::unsupported(spec.name, format!("it has no {}", job.op.name())));
    }
    check(job)?;
    if let Some(act) = job.params.act.filter(|act| !has(*act)) {
        return Err(Error::unsupported(spec.name, format!("it has no {}", act.name())));
    }
    type_code(spec.name, one_dtype(spec.name, job, &[job.operands.gamma.as_ref(), job.operands.beta.as_ref()])?)?;
    out_code(spec.name, &job.out)?;
    let o = &job.operands;
    let largest = o.all().map(|t| t.rows() * t.cols()).max().unwrap_or(0);
    if largest > i32::MAX as usize {
        return Err(Error::unsupported(spec.name, format!("{largest} elements: it counts up to 2^31 - 1")));
    }
    Ok(())
}

/// The options of an op. Errors: a type the kernel does not read.
fn options(formula: Formula, act: Act, dtype: Format, out: Type) -> Result<[String; 5]> {
    Ok([
        define("OP", formula),
        define("ACT", act),
        define("IN", type_code(SPEC.name, dtype)?),
        define("OUT", out),
        define("EACH", EACH),
    ])
}

/// The blocks of an output of `rows × cols`.
fn shape(rows: usize, cols: usize) -> LaunchShape {
    LaunchShape::new((rows * cols.div_ceil(8)).div_ceil(THREADS * EACH).max(1), THREADS)
}

/// act(a)·b of bf16 rows \[a | b\] to e4m3 by a given scale, with amax and scale_inv: `rows × cols` of output. Errors: out of memory.
pub fn timed(gpu: &'static Gpu, act: Act, rows: usize, cols: usize) -> Result<Timed> {
    let defines = options(Formula::Gated, act, Format::Bf16, Type::E4m3)?;
    let bytes = 5 * (rows * cols) as u64;
    let copies = rotation(gpu, bytes);
    let x = uploads(gpu, &normals(Format::Bf16, 2 * rows * cols, 1)?, copies)?;
    let d = (0..copies).map(|_| gpu.output(rows * cols)).collect::<Result<Vec<Buffer>>>()?;
    let side = Fp8Side::of(gpu, &OutSpec::Scaled { format: Format::E4m3, scale: vec![Some(16.0)] })?;
    let run = move |i: usize| {
        let [scale, amax, scale_inv] = Fp8Side::args(side.as_ref());
        let (x, d, g) = ((&x[i % copies]).into(), (&d[i % copies]).into(), Pointer::NULL);
        let arguments = Arguments { x, g, d, scale, amax, scale_inv, rows: rows as u64, cols: cols as u64 };
        // SAFETY: the buffers have the sizes of rows and cols, and live in this closure.
        unsafe { gpu.enqueue(arguments.launch(&defines, shape(rows, cols))) }
    };
    let name = format!("gated {} bf16>e4m3", act.name());
    Ok(Timed { name, shape: format!("{rows}x{cols}"), bytes, ops: 0, copies, launch: Box::new(run) })
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
        let gpu = gpu()?;
        let a = job.operands.a();
        // Without a gate the matrix is one row.
        let (rows, cols, width) = match job.op {
            Op::Gated => (a.rows(), a.cols() / 2, a.cols() / 2),
            _ => (1, a.rows() * a.cols(), a.cols()),
        };
        let formula = Formula::of(job.op).expect("checked");
        let dtype = one_dtype(SPEC.name, job, &[])?;
        let defines = options(formula, activation(job)?, dtype, out_code(SPEC.name, &job.out)?)?;
        let first = upload(gpu, a)?;
        let second = job.operands.b().map(|x| upload(gpu, x)).transpose()?;
        // The forward input is x; a gradient's operand a is g.
        let (x, g) = match &second {
            Some(x) => (x, Some(&first)),
            None => (&first, None),
        };
        let launched = shape(rows, cols);
        let side = Fp8Side::of(gpu, &job.out)?;
        let d = gpu.output(rows * cols * element_bytes(&job.out))?;
        let [scale, amax, scale_inv] = Fp8Side::args(side.as_ref());
        let (rows, cols) = (rows as u64, cols as u64);
        let arguments = Arguments { x: x.into(), g: g.into(), d: (&d).into(), scale, amax, scale_inv, rows, cols };
        // SAFETY: buffers hold rows x cols of their types.
        unsafe { gpu.launch(arguments.launch(&defines, launched))? };
        download(gpu, job, a.rows(), width, &d, side.as_ref())
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        is_exact(job.params.act).then(|| predict(job)).transpose()
    }
}
