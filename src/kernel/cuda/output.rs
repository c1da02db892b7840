//! From device bytes to outputs.

use super::launch::{Buffer, Gpu};
use super::operand::Fp8Side;
use super::options::Type;
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::quant::QTensorParts;
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero, parallel};

/// Bytes of an element of the result.
pub fn element_bytes(out: &OutSpec) -> usize {
    match out {
        OutSpec::High(f) => f.bits() as usize / 8,
        _ => 1,
    }
}

/// Bytes of f16, bf16 or f32 elements as a tensor.
pub fn tensor(dtype: Format, rows: usize, cols: usize, bytes: &[u8]) -> Result<Tensor> {
    let half = |f: fn(u16) -> f32| parallel::map(bytes.as_chunks::<2>().0, |b| f(u16::from_le_bytes(*b)));
    let data: Vec<f32> = match dtype {
        Format::F16 => half(|b| half::f16::from_bits(b).to_f32()),
        Format::Bf16 => half(|b| half::bf16::from_bits(b).to_f32()),
        _ => floats(bytes),
    };
    Tensor::new(dtype, rows, cols, data)
}

/// f16, bf16 or f32 as an option. Errors: any other.
pub fn type_option(kernel: &str, what: &str, f: Format) -> Result<Type> {
    let known = &[Format::F16, Format::Bf16, Format::F32];
    Type::one_of(known, f, kernel, || format!("{what} in {f}: it takes f16, bf16 and f32"))
}

/// Values as elements of `dtype` (f16, bf16, f32). Errors: a value that this type does not have, by the name of `what`.
pub fn elements(kernel: &str, what: &str, dtype: Format, values: &[f32]) -> Result<Vec<u8>> {
    let t = Tensor::rounded(dtype, 1, values.len(), values.to_vec())?;
    let changed = |(a, b): &(&f32, &f32)| a.to_bits() != b.to_bits() && !a.is_nan();
    match values.iter().zip(t.data()).find(changed) {
        Some((v, _)) => Err(Error::unsupported(kernel, format!("{what} in {dtype}: {v} is not a number of this type"))),
        None => Ok(t.bits()),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    parallel::map(bytes.as_chunks::<4>().0, |b| f32::from_le_bytes(*b))
}

/// The result of a product, `rows × cols`; for FP8 with what is beside its codes.
pub fn download(gpu: &Gpu, job: &Job, rows: usize, cols: usize, d: &Buffer, side: Option<&Fp8Side>) -> Result<Output> {
    let bytes = gpu.download("output d", d, element_bytes(&job.out))?;
    let part = match (&job.out, side) {
        (OutSpec::High(format), _) => Part::plain(Data::High(tensor(*format, rows, cols, &bytes)?)),
        (OutSpec::Scaled { format, .. }, Some(side)) => {
            let amax = floats(&gpu.download("amax", &side.amax, 4)?)[0];
            let q = QTensor::new(QTensorParts {
                format: *format,
                rows,
                cols,
                codes: bytes,
                granularity: Granularity::Tensor,
                scale_format: Format::F32,
                scale_inv: floats(&gpu.download("scale_inv", &side.scale_inv, 4)?),
                zero: Zero::None,
                level: None,
            })?;
            Part { d: Data::Quantized(q), transpose: None, amax: Some(amax) }
        }
        _ => return Err(Error::unsupported("cuda product", "it writes f16, bf16, f32 or FP8 by a given scale")),
    };
    Ok(Output::of(part))
}
