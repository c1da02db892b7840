//! The f64 reference product on the GPU (`kernels/gemm_f64.cu`): the same bits as [`crate::op::gemm`], for shapes too large for the CPU.

use super::launch::{Arg, Buffer, Gpu, Launch, gpu};
use crate::{Error, Result};

/// Outputs of a block along each side.
const TILE: usize = 16;

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
    let upload = |values: &[f64]| gpu.upload(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    let (a, b, bias) = (upload(a)?, upload(b)?, bias.map(upload).transpose()?);
    let (d, magnitude) = (gpu.output(m * n * 8)?, gpu.output(m * n * 8)?);
    let launch = Launch {
        source: "gemm_f64.cu",
        defines: &[],
        entry: "gemm_f64",
        grid: (n.div_ceil(TILE) as u32, m.div_ceil(TILE) as u32, 1),
        block: (256, 1, 1),
        shared: 0,
    };
    let bias = Arg::Pointer(bias.as_ref().map_or(0, Buffer::pointer));
    let int = |n: usize| Arg::Int(n as i32);
    let mut args = [a.arg(), b.arg(), bias, d.arg(), magnitude.arg(), int(m), int(n), int(k)];
    let mended = Launch { entry: "gemm_f64_cancelled", grid: (gpu.info.multiprocessors as u32 * 8, 1, 1), ..launch };
    // SAFETY: the arguments are both contracts', the buffers as large as m, n and k say.
    unsafe {
        gpu.launch(&launch, &mut args)?;
        gpu.launch(&mended, &mut args)?;
    }
    Ok((read(gpu, "f64 product", &d)?, read(gpu, "f64 magnitude", &magnitude)?))
}

fn read(gpu: &Gpu, what: &str, buffer: &Buffer) -> Result<Vec<f64>> {
    let bytes = gpu.download(what, buffer, 8)?;
    Ok(bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes"))).collect())
}
