//! The f64 reference product on the GPU (`kernels/gemm_f64.cu`): the same bits as [`crate::op::gemm`], for shapes too large for the CPU.

use super::contract::{Contract, Pointer, arguments};
use super::launch::{LaunchShape, gpu};
use crate::{Error, Result};

arguments! {
    /// Contracts gemm_f64 and gemm_f64_cancelled.
    Arguments = "gemm_f64.cu" "gemm_f64" | "gemm_f64_cancelled" {
        a: Pointer, b: Pointer, bias: Pointer, d: Pointer, magnitude: Pointer, m: usize, n: usize, k: usize,
    }
}

/// Outputs of a block of gemm_f64 along each side, and of gemm_f64_cancelled.
const TILE: usize = 16;
const WIDE: usize = 64;

/// `a·bᵀ + bias` and `|a|·|b|ᵀ + |bias|`, row-major, of `a` (m × k) and `b` (n × k). Errors: sizes that do not fit; no GPU; out of
/// device memory.
pub fn product(a: &[f64], b: &[f64], bias: Option<&[f64]>, (m, n, k): (usize, usize, usize)) -> Result<(Vec<f64>, Vec<f64>)> {
    let largest = i32::MAX as usize - 512;
    let fits = a.len() == m * k && b.len() == n * k && bias.is_none_or(|bias| bias.len() == n);
    if !fits || [m, n, k].iter().any(|x| !(1..=largest).contains(x)) {
        let found = format!("{} and {} values for {m}×{n}×{k}", a.len(), b.len());
        return Err(Error::shape("operands of the f64 product", found, "m×k and n×k values, sizes from 1 to 2^31 - 513"));
    }
    let gpu = gpu()?;
    let upload = |values: &[f64]| gpu.upload_all(values);
    let (a, b, bias) = (upload(a)?, upload(b)?, bias.map(upload).transpose()?);
    let (d, magnitude) = (gpu.output(m * n * 8)?, gpu.output(m * n * 8)?);
    let arguments = Arguments {
        a: (&a).into(),
        b: (&b).into(),
        bias: bias.as_ref().into(),
        d: (&d).into(),
        magnitude: (&magnitude).into(),
        m,
        n,
        k,
    };
    let mended = LaunchShape::of([n.div_ceil(WIDE), m.div_ceil(WIDE)], 256);
    // SAFETY: the buffers are as large as m, n and k say.
    unsafe {
        gpu.launch(arguments.clone().launch(&[], LaunchShape::of([n.div_ceil(TILE), m.div_ceil(TILE)], 256)))?;
        gpu.launch(arguments.entry("gemm_f64_cancelled", &[], mended))?;
    }
    Ok((gpu.download_all("f64 product", &d)?, gpu.download_all("f64 magnitude", &magnitude)?))
}
