//! FP8 GEMM by mma.sync: `kernels/fp8_gemm_mma.cu` (contract there). How it accumulates depends on the device.

use super::fp8_gemm::{common, lay_out, mode, packed, quantized, scale_options};
use super::launch::{Arg, Gpu, Launch, gpu};
use super::operand::{Fp8Side, pointer};
use super::output::{download, element_bytes};
use crate::job::{Job, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::{Accumulator, Inner, gemm};
use crate::op::Op;
use crate::{Error, Result};

pub struct Fp8GemmMma;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/fp8_gemm_mma",
    backend: Backend::Cuda,
    ops: &[Op::Gemm],
    help: "e4m3, e5m2 by mma.sync (sm_89 and later): tensor, row, 1x128 and 128x128 scales, bias, FP8 output with amax",
    source: "kernels/fp8_gemm_mma.cu",
};

/// What mma.sync of FP8 codes is by compute capability.
const INSTRUCTIONS: &[((i32, i32), &str)] =
    &[((8, 9), "ada_mma"), ((9, 0), "hopper_mma"), ((10, 0), "hopper_mma"), ((12, 0), "blackwell_mma")];
const TILE: usize = 128;
/// Tiles of rows that follow each other before the columns advance: their rows of A stay in the L2.
const BAND: i32 = 8;

fn check(job: &Job) -> Result<Vec<String>> {
    let names: Vec<&str> = INSTRUCTIONS.iter().map(|i| i.1).collect();
    common(&SPEC, job, &names)
}

/// Errors: the job's accumulator is that of another device.
fn fits_device(gpu: &Gpu, accumulator: Option<Accumulator>) -> Result<()> {
    let capability = gpu.info.capability;
    let here = INSTRUCTIONS.iter().find(|i| i.0 == capability).map(|i| i.1);
    match (accumulator.map(|a| a.inner), here) {
        (Some(Inner::Mma(m)), Some(here)) if m.name == here => Ok(()),
        _ => Err(Error::unsupported(
            SPEC.name,
            format!("compute capability {}.{} accumulates as {}", capability.0, capability.1, here.unwrap_or("nothing known")),
        )),
    }
}

impl Kernel for Fp8GemmMma {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check(job)?;
        let (a, b) = (quantized(&SPEC, job.operands.a.first())?, quantized(&SPEC, job.operands.b.as_ref())?);
        mode(a, b)?;
        packed(&SPEC, a.cols())
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        fits_device(gpu, job.accumulator)?;
        let (a, b) = (quantized(&SPEC, job.operands.a.first())?, quantized(&SPEC, job.operands.b.as_ref())?);
        let (m, n, k, mode) = (a.rows(), b.rows(), a.cols(), mode(a, b)?);
        let mut defines = check(job)?;
        defines.extend(scale_options(job, mode));
        let ((sa, _, sa_k), (sb, sb_row, sb_k)) = (lay_out(a, mode), lay_out(b, mode));
        let (codes_a, codes_b) = (gpu.upload(a.codes())?, gpu.upload(b.codes())?);
        let (sa, sb) = (gpu.upload_f32(&sa)?, gpu.upload_f32(&sb)?);
        let bias = job.operands.bias.as_ref().map(|bias| gpu.upload_f32(bias.data())).transpose()?;
        let side = Fp8Side::of(gpu, &job.out)?;
        let [scale_d, amax, scale_inv] = Fp8Side::args(side.as_ref());
        let d = gpu.output(m * n * element_bytes(&job.out))?;
        let int = |i: usize| Arg::Int(i as i32);
        let mut args = [
            codes_a.arg(),
            codes_b.arg(),
            d.arg(),
            sa.arg(),
            sb.arg(),
            pointer(bias.as_ref()),
            scale_d,
            amax,
            scale_inv,
            int(m),
            int(n),
            int(k),
            int(k),
            int(k),
            int(n),
            Arg::Int(sa_k),
            Arg::Int(sb_row),
            Arg::Int(sb_k),
            Arg::Int(BAND),
        ];
        let launch = Launch {
            source: "fp8_gemm_mma.cu",
            defines: &defines,
            entry: "fp8_gemm_mma",
            grid: ((m.div_ceil(TILE) * n.div_ceil(TILE)) as u32, 1, 1),
            block: (256, 1, 1),
            shared: 98_304,
        };
        // SAFETY: the arguments are contract fp8_gemm_mma's, in its order; buffers have the sizes of m, n, k and are aligned to 256.
        unsafe { gpu.launch(&launch, &mut args)? };
        download(gpu, job, m, n, &d, side.as_ref().map(|s| (&s.amax, &s.scale_inv)))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        gemm::predict(job).map(Some)
    }
}
