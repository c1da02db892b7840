//! Gradients of activations and gated activations, cast and transposed: `kernels/dact.cu` (contract there).

use super::activation::check_for;
use super::cast_transpose::total_shape;
use super::contract::{Contract, Pointer, arguments};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::operand::{Fp8Side, one_dtype, out_code, type_code, upload};
use super::options::{Formula, Type, define};
use super::output::{download, tensor};
use super::tile::{NARROW, narrow_tiles, whole};
use super::timed::{Timed, normals, rotation, uploads};
use crate::job::{Data, Job, OutSpec, Output};
use crate::kernel::cpu::activation::is_exact;
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::elementwise::{DBIAS_BAND, activation, predict};
use crate::op::{Act, Op};
use crate::quant::QTensorParts;
use crate::{Error, Format, QTensor, Result};

pub struct Dact;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/dact",
    backend: Backend::Cuda,
    ops: &[Op::CastTransposeDbiasDact, Op::DgatedCastTranspose],
    help: "g·act'(x) with its column sums, and the gradient of a gated activation: FP8 codes and the transposed copy",
    source: "kernels/dact.cu",
};

arguments! {
    /// Contract dact.
    Arguments = "dact.cu" "dact" {
        g: Pointer, x: Pointer, d: Pointer, t: Pointer, scale: Pointer, amax: Pointer, scale_inv: Pointer, sums: Pointer,
        rows: usize, cols: usize,
    }
}

arguments! {
    /// Contract dbias.
    Total = "dact.cu" "dbias" { sums: Pointer, out: Pointer, bands: usize, cols: usize }
}

/// The blocks of a gradient of `rows × cols`, with the shared memory of its inputs and transposed codes.
fn shape(gated: bool, rows: usize, cols: usize) -> LaunchShape {
    narrow_tiles(rows, cols).shared(128 * NARROW * if gated { 6 } else { 5 })
}

fn options(formula: Formula, act: Act, dtype: Format, format: Type, rows: usize, cols: usize) -> Result<[String; 5]> {
    Ok([
        define("OP", formula),
        define("ACT", act),
        define("IN", type_code(SPEC.name, dtype)?),
        define("FORMAT", format),
        whole(rows, cols),
    ])
}

/// Both launches of g·act'(x) with its column sums, or (`gated`) the gradient of act(a)·b, of bf16 to e4m3 and its transposed copy.
/// Errors: out of memory.
pub fn timed(gpu: &'static Gpu, act: Act, gated: bool, rows: usize, cols: usize) -> Result<Timed> {
    let formula = if gated { Formula::GatedGradient } else { Formula::ActivationGradient };
    let defines = options(formula, act, Format::Bf16, Type::E4m3, rows, cols)?;
    let (width, bands) = (if gated { 2 * cols } else { cols }, rows.div_ceil(DBIAS_BAND));
    let bytes = (rows * (2 * cols + 4 * width) + if gated { 0 } else { 2 * cols }) as u64;
    let copies = rotation(gpu, bytes);
    let g = uploads(gpu, &normals(Format::Bf16, rows * cols, 1)?, copies)?;
    let x = uploads(gpu, &normals(Format::Bf16, rows * width, 2)?, copies)?;
    let outputs = || (0..copies).map(|_| gpu.output(rows * width)).collect::<Result<Vec<Buffer>>>();
    let (d, t, sums, dbias) = (outputs()?, outputs()?, gpu.output(4 * bands * cols)?, gpu.output(2 * cols)?);
    let side = Fp8Side::of(gpu, &OutSpec::Scaled { format: Format::E4m3, scale: vec![Some(16.0)] })?;
    let run = move |i: usize| {
        let i = i % copies;
        let [scale, amax, scale_inv] = Fp8Side::args(side.as_ref());
        let (g, x, d, t) = ((&g[i]).into(), (&x[i]).into(), (&d[i]).into(), (&t[i]).into());
        let sums = Pointer::from(&sums);
        let arguments = Arguments { g, x, d, t, scale, amax, scale_inv, sums, rows, cols };
        // SAFETY: the buffers have the sizes of rows and cols, and live in this closure.
        unsafe { gpu.enqueue(arguments.launch(&defines, shape(gated, rows, cols)))? };
        if gated {
            return Ok(());
        }
        let arguments = Total { sums, out: (&dbias).into(), bands, cols };
        // SAFETY: as above.
        unsafe { gpu.enqueue(arguments.launch(&defines, total_shape(cols))) }
    };
    let name = format!("{}{} bf16>e4m3", if gated { "dgated " } else { "dact " }, act.name());
    Ok(Timed { name, shape: format!("{rows}x{cols}"), bytes, ops: 0, copies, launch: Box::new(run) })
}

impl Kernel for Dact {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)?;
        match job.out {
            OutSpec::Scaled { .. } => Ok(()),
            _ => Err(Error::unsupported(SPEC.name, "it writes FP8 by a given scale")),
        }
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let (g, x) = (job.operands.a(), job.operands.b().expect("checked"));
        let (rows, cols, width, gated) = (g.rows(), g.cols(), x.cols(), job.op == Op::DgatedCastTranspose);
        let dtype = one_dtype(SPEC.name, job, &[])?;
        let formula = Formula::of(job.op).expect("checked");
        let defines = options(formula, activation(job)?, dtype, out_code(SPEC.name, &job.out)?, rows, cols)?;
        let side = Fp8Side::of(gpu, &job.out)?.expect("a scaled output");
        let bands = rows.div_ceil(DBIAS_BAND);
        let (g, x) = (upload(gpu, g)?, upload(gpu, x)?);
        let (d, t) = (gpu.output(rows * width)?, gpu.output(rows * width)?);
        let sums = gpu.output(if gated { 0 } else { 4 * bands * cols })?;
        let [scale, amax, scale_inv] = side.pointers();
        let arguments = Arguments {
            g: (&g).into(),
            x: (&x).into(),
            d: (&d).into(),
            t: (&t).into(),
            scale,
            amax,
            scale_inv,
            sums: (&sums).into(),
            rows,
            cols,
        };
        // SAFETY: buffers hold what the contract says of rows and cols.
        unsafe { gpu.launch(arguments.launch(&defines, shape(gated, rows, cols)))? };
        let mut out = download(gpu, job, rows, width, &d, Some(&side))?;
        let part = &mut out.parts[0];
        if let Data::Quantized(q) = &part.d {
            let codes = gpu.download("transposed copy", &t, 1)?;
            let turned = QTensorParts { rows: width, cols: rows, codes, ..q.clone().into_parts() };
            part.transpose = Some(QTensor::new(turned)?);
        }
        if !gated {
            let dbias = gpu.output(cols * dtype.bits() as usize / 8)?;
            let arguments = Total { sums: (&sums).into(), out: (&dbias).into(), bands, cols };
            // SAFETY: as above.
            unsafe { gpu.launch(arguments.launch(&defines, total_shape(cols)))? };
            out.dbias = Some(tensor(dtype, 1, cols, &gpu.download("dbias", &dbias, dtype.bits() as usize / 8)?)?);
        }
        Ok(out)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        is_exact(job.params.act).then(|| predict(job)).transpose()
    }
}
