//! LayerNorm and RMSNorm forward: `kernels/norm.cu` (contract there).

use super::activation::check_for;
use super::contract::{Contract, Pointer, arguments};
use super::elements::{self, f32s};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::operand::{Fp8Side, one_dtype, out_code, type_code, upload};
use super::options::{Formula, Ragged, Type, define};
use super::output::{download, element_bytes};
use super::timed::{Timed, normals, rotation, uploads};
use crate::job::{Job, OutSpec, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::op::Op;
use crate::{Error, Format, Result};

pub struct Norm;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/norm",
    backend: Backend::Cuda,
    ops: &[Op::Layernorm, Op::Rmsnorm],
    help: "LayerNorm and RMSNorm forward, zero-centred gamma or not; FP8 output with amax and scale_inv, or f16, bf16, f32",
    source: "kernels/norm.cu",
};

arguments! {
    /// Contract norm_forward.
    Arguments = "norm.cu" "norm_forward" {
        x: Pointer, gamma: Pointer, beta: Pointer, d: Pointer, mean_out: Pointer, rsigma_out: Pointer, scale: Pointer,
        amax: Pointer, scale_inv: Pointer, rows: usize, cols: usize, eps: f32,
    }
}

/// How the threads share a row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    /// Threads a row.
    lanes: usize,
    /// Eights of elements a thread holds in registers.
    each: usize,
    prefetch: bool,
    /// Blocks a multiprocessor.
    resident: usize,
    /// Whether `cols` is what the registers hold, a multiple of 8, or any.
    ragged: Ragged,
    /// Rows on their way through shared memory; 0: straight to registers.
    stages: usize,
    /// gamma and beta stay in registers.
    keep: bool,
}

/// Shared memory that all blocks of a multiprocessor divide, bytes. The rest is L1.
const SHARED: usize = 160 << 10;

impl Split {
    /// `copy_engine`: sm_90 or later. A layer norm, which sums a row twice, shares a wide one among fewer threads.
    fn of(op: Op, dtype: Format, cols: usize, copy_engine: bool) -> Self {
        let eights = cols.div_ceil(8);
        let wide = dtype == Format::F32;
        let (lanes, most, resident) = match eights {
            0..=128 => (32, 4, 2),
            129..=512 => (256, 2, if wide { 2 } else { 3 }),
            513..=1024 if op == Op::Layernorm && !wide => (256, 4, 2),
            513..=1024 => (512, 2, if wide { 1 } else { 2 }),
            _ => (1024, if wide { 2 } else { 4 }, 1),
        };
        let each = eights.div_ceil(lanes).clamp(1, most);
        let ragged = match (cols == 8 * lanes * each, cols.is_multiple_of(8)) {
            (true, _) => Ragged::Full,
            (_, true) => Ragged::Eights,
            _ => Ragged::Any,
        };
        let fits = copy_engine && lanes > 32 && ragged != Ragged::Any && cols <= 8 * lanes * each;
        let stages = if fits { (SHARED / resident / Self::row_bytes(dtype, cols)).min(2) } else { 0 };
        let stages = if stages < 2 { 0 } else { stages };
        Self { lanes, each, prefetch: lanes < 1024, resident, ragged, stages, keep: stages > 0 && each * lanes <= 1024 }
    }
    fn row_bytes(dtype: Format, cols: usize) -> usize {
        cols * dtype.bits() as usize / 8
    }
    fn block(self) -> usize {
        self.lanes.max(256)
    }
}

fn options(formula: Formula, dtype: Format, out: Type, zero_centered: bool, split: Split) -> Result<[String; 11]> {
    Ok([
        define("OP", formula),
        define("IN", type_code(SPEC.name, dtype)?),
        define("OUT", out),
        define("ONE", zero_centered),
        define("LANES", split.lanes),
        define("EACH", split.each),
        define("PREFETCH", split.prefetch),
        define("RESIDENT", split.resident),
        define("RAGGED", split.ragged),
        define("STAGES", split.stages),
        define("KEEP", split.keep),
    ])
}

fn shape(gpu: &Gpu, split: Split, rows: usize, row_bytes: usize) -> LaunchShape {
    let blocks = rows.div_ceil(split.block() / split.lanes).clamp(1, split.resident * gpu.info.multiprocessors);
    LaunchShape::new(blocks, split.block()).shared(split.stages * row_bytes)
}

/// LayerNorm or RMSNorm of bf16 to e4m3 by a given scale, with amax, scale_inv and the row statistics. Errors: out of memory.
pub fn timed(gpu: &'static Gpu, op: Op, rows: usize, cols: usize) -> Result<Timed> {
    let split = Split::of(op, Format::Bf16, cols, gpu.info.capability.0 >= 9);
    let formula = Formula::of(op).ok_or_else(|| Error::unsupported(SPEC.name, format!("it has no {}", op.name())))?;
    let defines = options(formula, Format::Bf16, Type::E4m3, false, split)?;
    let bytes = (3 * rows * cols + 8 * rows + 4 * cols) as u64;
    let copies = rotation(gpu, bytes);
    let x = uploads(gpu, &normals(Format::Bf16, rows * cols, 1)?, copies)?;
    let gamma = gpu.upload(&normals(Format::Bf16, cols, 2)?)?;
    let d = (0..copies).map(|_| gpu.output(rows * cols)).collect::<Result<Vec<Buffer>>>()?;
    let (mean, rsigma) = (gpu.output(4 * rows)?, gpu.output(4 * rows)?);
    let side = Fp8Side::of(gpu, &OutSpec::Scaled { format: Format::E4m3, scale: vec![Some(16.0)] })?;
    let run = move |i: usize| {
        let [scale, amax, scale_inv] = Fp8Side::args(side.as_ref());
        let arguments = Arguments {
            x: (&x[i % copies]).into(),
            gamma: (&gamma).into(),
            beta: (&gamma).into(),
            d: (&d[i % copies]).into(),
            mean_out: (&mean).into(),
            rsigma_out: (&rsigma).into(),
            scale,
            amax,
            scale_inv,
            rows,
            cols,
            eps: 1e-5,
        };
        // SAFETY: the buffers have the sizes of rows and cols, and live in this closure.
        unsafe { gpu.enqueue(arguments.launch(&defines, shape(gpu, split, rows, 2 * cols))) }
    };
    let name = format!("{} bf16>e4m3", op.name());
    Ok(Timed { name, shape: format!("{rows}x{cols}"), bytes, ops: 0, copies, launch: Box::new(run) })
}

impl Kernel for Norm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)?;
        match job.operands.a().cols() {
            0 => Err(Error::unsupported(SPEC.name, "rows of no elements have no mean")),
            _ => Ok(()),
        }
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let (a, o) = (job.operands.a(), &job.operands);
        let (rows, cols, layernorm) = (a.rows(), a.cols(), job.op == Op::Layernorm);
        let dtype = one_dtype(SPEC.name, job, &[])?;
        let split = Split::of(job.op, dtype, cols, gpu.info.capability.0 >= 9);
        let formula = Formula::of(job.op).expect("checked");
        let defines = options(formula, dtype, out_code(SPEC.name, &job.out)?, job.params.zero_centered_gamma, split)?;
        let x = upload(gpu, a)?;
        let vector = |t: Option<&crate::Tensor>| t.map(|t| elements::upload(gpu, t)).transpose();
        let (gamma, beta) = (vector(o.gamma.as_ref())?, vector(o.beta.as_ref())?);
        let side = Fp8Side::of(gpu, &job.out)?;
        let d = gpu.output(rows * cols * element_bytes(&job.out))?;
        let (mean, rsigma) = (gpu.output(if layernorm { 4 * rows } else { 0 })?, gpu.output(4 * rows)?);
        let [scale, amax, scale_inv] = Fp8Side::args(side.as_ref());
        let arguments = Arguments {
            x: (&x).into(),
            gamma: gamma.as_ref().into(),
            beta: beta.as_ref().into(),
            d: (&d).into(),
            mean_out: layernorm.then_some(&mean).into(),
            rsigma_out: (&rsigma).into(),
            scale,
            amax,
            scale_inv,
            rows,
            cols,
            eps: job.params.eps,
        };
        // SAFETY: buffers hold rows x cols, rows or cols elements of their types.
        unsafe { gpu.launch(arguments.launch(&defines, shape(gpu, split, rows, Split::row_bytes(dtype, cols))))? };
        let mut out = download(gpu, job, rows, cols, &d, side.as_ref())?;
        out.mean = layernorm.then(|| f32s(gpu, "mean", &mean)).transpose()?;
        out.rsigma = Some(f32s(gpu, "rsigma", &rsigma)?);
        Ok(out)
    }
    /// rsqrtf and the order of the sums are the device's own: the boundary rule judges.
    fn predict(&self, _: &Job) -> Result<Option<Output>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_held_where_they_fit() {
        for cols in [1, 7, 208, 1024, 1025, 2304, 8192, 17389, 32768, 40000, 65536] {
            for (op, dtype) in [
                (Op::Layernorm, Format::Bf16),
                (Op::Layernorm, Format::F32),
                (Op::Rmsnorm, Format::Bf16),
                (Op::Rmsnorm, Format::F32),
            ] {
                let s = Split::of(op, dtype, cols, true);
                let held = 8 * s.lanes * s.each;
                assert!(held >= cols || (s.ragged != Ragged::Full && s.stages == 0), "{cols} {dtype}: {s:?}");
                assert_eq!(s.ragged == Ragged::Full, held == cols, "{cols} {dtype}: {s:?}");
                assert!(s.stages * s.resident * Split::row_bytes(dtype, cols) <= SHARED, "{cols} {dtype}: {s:?}");
                assert!(cols.is_multiple_of(8) || s.stages == 0, "the copy engine copies 16 bytes: {cols} {dtype}: {s:?}");
                assert_eq!(Split::of(op, dtype, cols, false), Split { stages: 0, keep: false, ..s });
            }
        }
        let held = |op| {
            let s = Split::of(op, Format::Bf16, 8192, true);
            (s.lanes, s.each, s.resident, s.ragged, s.stages)
        };
        assert_eq!(held(Op::Layernorm), (256, 4, 2, Ragged::Full, 2));
        assert_eq!(held(Op::Rmsnorm), (512, 2, 2, Ragged::Full, 2));
    }
}
