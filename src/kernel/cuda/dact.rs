//! Gradients of activations and gated activations, cast and transposed: `kernels/dact.cu` (contract there).

use super::activation::check_for;
use super::launch::{Arg, Buffer, Gpu, Launch, gpu};
use super::operand::{Fp8Side, one_dtype, out_code, type_code, upload};
use super::output::{download, tensor};
use super::timed::{Timed, normals, rotation, uploads};
use crate::job::{Data, Job, OutSpec, Output};
use crate::kernel::cpu::activation::is_exact;
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::elementwise::{DBIAS_BAND, activation, predict};
use crate::op::{Act, Op};
use crate::quant::QTensorParts;
use crate::{Error, Format, QTensor, Result};

const TILE: usize = 128;

pub struct Dact;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/dact",
    backend: Backend::Cuda,
    ops: &[Op::CastTransposeDbiasDact, Op::DgatedCastTranspose],
    help: "g·act'(x) with its column sums, and the gradient of a gated activation: FP8 codes and the transposed copy",
    source: "kernels/dact.cu",
};

/// WHOLE of `common/tile.cuh`: whether no piece of a tile is cut.
pub fn whole(rows: usize, cols: usize) -> i32 {
    i32::from(rows.is_multiple_of(16) && cols.is_multiple_of(8))
}

/// Tiles of a matrix, at least one.
pub fn tiles(rows: usize, cols: usize) -> usize {
    (rows.div_ceil(TILE) * cols.div_ceil(TILE)).max(1)
}

fn options(gated: bool, act: Act, dtype: Format, format: i32, rows: usize, cols: usize) -> Result<[String; 5]> {
    Ok([
        format!("-DOP={}", i32::from(gated)),
        format!("-DACT={}", act as i32),
        format!("-DIN={}", type_code(SPEC.name, dtype)?),
        format!("-DFORMAT={format}"),
        format!("-DWHOLE={}", whole(rows, cols)),
    ])
}

fn launch<'a>(defines: &'a [String], entry: &'a str, blocks: usize, threads: usize) -> Launch<'a> {
    let (grid, block) = ((blocks as u32, 1, 1), (threads as u32, 1, 1));
    Launch { source: "dact.cu", defines, entry, grid, block, shared: 0 }
}

/// Both launches of g·act'(x) with its column sums, or (`gated`) the gradient of act(a)·b, of bf16 to e4m3 and its transposed copy.
/// Errors: out of memory.
pub fn timed(gpu: &'static Gpu, act: Act, gated: bool, rows: usize, cols: usize) -> Result<Timed> {
    let defines = options(gated, act, Format::Bf16, 0, rows, cols)?;
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
        let int = |n: usize| Arg::Int(n as i32);
        let mut args =
            [g[i].arg(), x[i].arg(), d[i].arg(), t[i].arg(), scale, amax, scale_inv, sums.arg(), int(rows), int(cols)];
        // SAFETY: the arguments are the contract's, in its order; the buffers live in this closure.
        unsafe { gpu.enqueue(&launch(&defines, "dact", tiles(rows, cols), 2 * TILE), &mut args)? };
        if gated {
            return Ok(());
        }
        let mut args = [sums.arg(), dbias.arg(), int(bands), int(cols)];
        // SAFETY: as above.
        unsafe { gpu.enqueue(&launch(&defines, "dbias", cols.div_ceil(TILE), TILE), &mut args) }
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
        let (g, x) = (&job.operands.a[0], job.operands.b.as_ref().expect("checked"));
        let (rows, cols, width, gated) = (g.rows(), g.cols(), x.cols(), job.op == Op::DgatedCastTranspose);
        let dtype = one_dtype(SPEC.name, job, &[])?;
        let defines = options(gated, activation(job)?, dtype, out_code(SPEC.name, &job.out)? - 3, rows, cols)?;
        let side = Fp8Side::of(gpu, &job.out)?.expect("a scaled output");
        let bands = rows.div_ceil(DBIAS_BAND);
        let (g, x) = (upload(gpu, g)?, upload(gpu, x)?);
        let (d, t) = (gpu.output(rows * width)?, gpu.output(rows * width)?);
        let sums = gpu.output(if gated { 0 } else { 4 * bands * cols })?;
        let [scale, amax, scale_inv] = Fp8Side::args(Some(&side));
        let (m, n) = (Arg::Int(rows as i32), Arg::Int(cols as i32));
        let mut args = [g.arg(), x.arg(), d.arg(), t.arg(), scale, amax, scale_inv, sums.arg(), m, n];
        // SAFETY: the arguments are the contract's, in its order; buffers hold what it says of rows and cols.
        unsafe { gpu.launch(&launch(&defines, "dact", tiles(rows, cols), 2 * TILE), &mut args)? };
        let mut out = download(gpu, job, rows, width, &d, Some((&side.amax, &side.scale_inv)))?;
        let part = &mut out.parts[0];
        if let Data::Quantized(q) = &part.d {
            let codes = gpu.download("transposed copy", &t, 1)?;
            let turned = QTensorParts { rows: width, cols: rows, codes, ..q.clone().into_parts() };
            part.transpose = Some(QTensor::new(turned)?);
        }
        if !gated {
            let dbias = gpu.output(cols * dtype.bits() as usize / 8)?;
            let mut args = [sums.arg(), dbias.arg(), Arg::Int(bands as i32), Arg::Int(cols as i32)];
            // SAFETY: as above.
            unsafe { gpu.launch(&launch(&defines, "dbias", cols.div_ceil(TILE).max(1), TILE), &mut args)? };
            out.dbias = Some(tensor(dtype, 1, cols, &gpu.download("dbias", &dbias, dtype.bits() as usize / 8)?)?);
        }
        Ok(out)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        is_exact(job.params.act).then(|| predict(job)).transpose()
    }
}
