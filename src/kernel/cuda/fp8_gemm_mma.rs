//! FP8 GEMM by mma.sync: `kernels/fp8_gemm_mma.cu` (contract there). How it accumulates depends on the device.

use super::contract::{Contract, Pointer, arguments};
use super::fp8_gemm::{Options, Uploaded, options};
use super::launch::{Gpu, LaunchShape, gpu};
use super::model;
use crate::job::{Job, Output};
use crate::kernel::{Backend, Kernel, KernelSpec, Modelled};
use crate::model::{Accumulator, Inner};
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
const BAND: usize = 8;

arguments! {
    /// Contract fp8_gemm_mma.
    Arguments = "fp8_gemm_mma.cu" "fp8_gemm_mma" {
        a: Pointer, b: Pointer, d: Pointer, scale_a: Pointer, scale_b: Pointer, bias: Pointer, scale_d: Pointer,
        amax_d: Pointer, scale_inv_d: Pointer, m: usize, n: usize, k: usize, lda: usize, ldb: usize, ldd: usize, sa_k: usize,
        sb_row: usize, sb_k: usize, band: usize,
    }
}

fn check(job: &Job) -> Result<Options> {
    let names: Vec<&str> = INSTRUCTIONS.iter().map(|i| i.1).collect();
    options(&SPEC, job, &names)
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
        check(job).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        let defines = check(job)?.dense();
        let gpu = gpu()?;
        fits_device(gpu, job.accumulator)?;
        let on = Uploaded::of(gpu, &SPEC, job)?;
        let ([m, n, k], [sa_k, sb_row, sb_k]) = (on.sizes, on.strides);
        let ([scale_a, scale_b], [scale_d, amax_d, scale_inv_d]) = (on.scales(), on.side());
        let arguments = Arguments {
            a: (&on.a).into(),
            b: (&on.b).into(),
            d: (&on.d).into(),
            scale_a,
            scale_b,
            bias: on.bias(),
            scale_d,
            amax_d,
            scale_inv_d,
            m,
            n,
            k,
            lda: k,
            ldb: k,
            ldd: n,
            sa_k,
            sb_row,
            sb_k,
            band: BAND,
        };
        let shape = LaunchShape::new(m.div_ceil(TILE) * n.div_ceil(TILE), 256).shared(98_304);
        // SAFETY: buffers have the sizes of m, n, k and are aligned to 256.
        unsafe { gpu.launch(arguments.launch(&defines, shape))? };
        on.download(gpu, job)
    }
    fn modelled<'a>(&self, job: &'a Job) -> Result<Option<Modelled<'a>>> {
        Ok(Some(Modelled::of(job)))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        model::predicted(job).map(Some)
    }
}
