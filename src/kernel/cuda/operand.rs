//! Unquantized operands and element types, as `kernels/common/elements.cuh` names the types.

use super::elements;
use super::launch::{Arg, Buffer, Gpu};
use crate::job::{Job, Operand, OutSpec};
use crate::model::elementwise::high;
use crate::{Error, Format, Result, Tensor};

/// IN and OUT of the elementwise kernels. Errors: a format they do not read or write.
pub fn type_code(kernel: &str, format: Format) -> Result<i32> {
    match format {
        Format::F16 => Ok(0),
        Format::Bf16 => Ok(1),
        Format::F32 => Ok(2),
        Format::E4m3 => Ok(3),
        Format::E5m2 => Ok(4),
        other => {
            Err(Error::unsupported(kernel, format!("it reads f16, bf16, f32 and writes those, e4m3 and e5m2, not {other}")))
        }
    }
}

/// The type of the result. Errors: recipes, which choose their own scales.
pub fn out_code(kernel: &str, out: &OutSpec) -> Result<i32> {
    match out {
        OutSpec::High(format) | OutSpec::Scaled { format, .. } => type_code(kernel, *format),
        OutSpec::Recipe(r) => {
            let why = format!("its FP8 output takes a given scale (delayed scaling); {r} needs the result's amax first");
            Err(Error::unsupported(kernel, why))
        }
    }
}

/// The dtype that all unquantized operands share. Errors: they differ.
pub fn one_dtype<'a>(kernel: &str, job: &'a Job, more: &[Option<&'a Tensor>]) -> Result<Format> {
    let o = &job.operands;
    let dtype = high(&o.a[0], kernel)?.dtype();
    let b = o.b.as_ref().map(|b| high(b, kernel)).transpose()?;
    for t in more.iter().copied().chain([b]).flatten() {
        if t.dtype() != dtype {
            let why = format!("its operands share one dtype, found {dtype} and {}", t.dtype());
            return Err(Error::unsupported(kernel, why));
        }
    }
    Ok(dtype)
}

/// An unquantized operand on the device, row-major.
pub fn upload(gpu: &Gpu, operand: &Operand) -> Result<Buffer> {
    elements::upload(gpu, high(operand, "cuda kernel")?)
}

/// The scale, amax and scale_inv of an FP8 output by a given scale: scale may be null, amax starts at 0.
pub struct Fp8Side {
    scale: Option<Buffer>,
    pub amax: Buffer,
    pub scale_inv: Buffer,
}

impl Fp8Side {
    /// Nothing for a high-precision output.
    pub fn of(gpu: &Gpu, out: &OutSpec) -> Result<Option<Self>> {
        let OutSpec::Scaled { scale, .. } = out else { return Ok(None) };
        let scale = scale[0].map(|s| gpu.upload_f32(&[s])).transpose()?;
        Ok(Some(Self { scale, amax: gpu.upload_f32(&[0.0])?, scale_inv: gpu.output(4)? }))
    }
    /// scale, amax, scale_inv; nulls for a high-precision output.
    pub fn args(side: Option<&Self>) -> [Arg; 3] {
        [pointer(side.and_then(|s| s.scale.as_ref())), pointer(side.map(|s| &s.amax)), pointer(side.map(|s| &s.scale_inv))]
    }
}

/// The buffer's address, or null.
pub fn pointer(buffer: Option<&Buffer>) -> Arg {
    Arg::Pointer(buffer.map_or(0, Buffer::pointer))
}
