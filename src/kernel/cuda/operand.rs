//! Unquantized operands and element types, as `kernels/common/elements.cuh` names the types.

use super::contract::Pointer;
use super::elements;
use super::launch::{Buffer, Gpu};
use super::options::Type;
use crate::job::{Job, Operand, OutSpec};
use crate::model::elementwise::high;
use crate::{Error, Format, Result, Tensor};

/// IN and OUT of the elementwise kernels. Errors: a format they do not read or write.
pub fn type_code(kernel: &str, format: Format) -> Result<Type> {
    const KNOWN: &[Format] = &[Format::F16, Format::Bf16, Format::F32, Format::E4m3, Format::E5m2];
    Type::one_of(KNOWN, format, kernel, || format!("it reads f16, bf16, f32 and writes those, e4m3 and e5m2, not {format}"))
}

/// The type of the result. Errors: recipes, which choose their own scales.
pub fn out_code(kernel: &str, out: &OutSpec) -> Result<Type> {
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
    let dtype = high(o.a(), kernel)?.dtype();
    let b = o.b().map(|b| high(b, kernel)).transpose()?;
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

/// The numbers beside the FP8 codes of one tensor: scale (may be null), amax from 0, scale_inv unwritten.
pub struct Fp8Side {
    pub scale: Option<Buffer>,
    pub amax: Buffer,
    pub scale_inv: Buffer,
}

impl Fp8Side {
    /// With the scale of part `i` where one is given.
    pub fn new(gpu: &Gpu, out: &OutSpec, i: usize) -> Result<Self> {
        let given = if let OutSpec::Scaled { scale, .. } = out { scale[i] } else { None };
        let scale = given.map(|s| gpu.upload_f32(&[s])).transpose()?;
        Ok(Self { scale, amax: gpu.upload_f32(&[0.0])?, scale_inv: gpu.output(4)? })
    }
    /// Nothing but for an output by a given scale.
    pub fn of(gpu: &Gpu, out: &OutSpec) -> Result<Option<Self>> {
        matches!(out, OutSpec::Scaled { .. }).then(|| Self::new(gpu, out, 0)).transpose()
    }
    /// scale, amax, scale_inv.
    pub fn pointers(&self) -> [Pointer; 3] {
        [self.scale.as_ref().into(), (&self.amax).into(), (&self.scale_inv).into()]
    }
    /// The same; nulls for a high-precision output.
    pub fn args(side: Option<&Self>) -> [Pointer; 3] {
        side.map_or([Pointer::NULL; 3], Self::pointers)
    }
    /// global_scale_inv, which stands in the place of scale_inv.
    pub fn global(&self, gpu: &Gpu) -> Result<f32> {
        Ok(elements::f32s(gpu, "global_scale_inv", &self.scale_inv)?[0])
    }
}
