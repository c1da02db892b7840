//! Casts by one scale a tensor, given or chosen from the tensor's amax: `kernels/cast.cu` (contract there).

use super::contract::{Contract, Pointer, arguments};
use super::elements::{dtype, f32s, fp8, upload};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::operand::Fp8Side;
use super::options::{Rule, define};
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::kernel::cpu::cast::check_for;
use crate::kernel::{Backend, Kernel, KernelSpec, cpu};
use crate::model::elementwise;
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::recipe::{DeviceRule, RecipeSpec};
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};

/// Threads of a block of `cast.cu`, and its elements: four eights a thread.
const THREADS: usize = 256;
const BLOCK: usize = 8 * 4 * THREADS;

pub struct Cast;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/cast",
    backend: Backend::Cuda,
    ops: &[Op::Cast],
    help: "f16, bf16, f32 to e4m3, e5m2 by one scale: given, or the tensor's own (TransformerEngine, torchao)",
    source: "kernels/cast.cu",
};

arguments! {
    /// Contract cast.
    Arguments = "cast.cu" "cast" {
        x: Pointer, codes: Pointer, scale: Pointer, amax: Pointer, scale_inv: Pointer, noop: Pointer, n: u64,
    }
}

arguments! {
    /// Contract tensor_amax.
    Amax = "cast.cu" "tensor_amax" { x: Pointer, amax: Pointer, n: u64 }
}

/// The blocks of both for `n` elements.
pub(crate) fn shape(n: usize) -> LaunchShape {
    LaunchShape::new(n.div_ceil(BLOCK).max(1), THREADS)
}

/// How the scale of a tensor comes about: RULE and POW2 of `common/scale_rule.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleRule {
    pub rule: Rule,
    pub pow2: bool,
}

/// The rule of an output with one scale a tensor, and its format. Errors: an output that has other scales.
pub fn tensor_rule(kernel: &str, out: &OutSpec) -> Result<(ScaleRule, Format)> {
    let (rule, pow2, format) = match out {
        OutSpec::Scaled { format, .. } => (Rule::Given, false, *format),
        OutSpec::Recipe(recipe) => match (recipe.granularity()?, recipe.spec()?) {
            (Granularity::Tensor, RecipeSpec { device: Some(DeviceRule::Scale { rule, pow2 }), .. }) => {
                (*rule, *pow2, recipe.format)
            }
            (_, RecipeSpec { history: true, .. }) => {
                let why = "the history of delayed scaling is the host's: give the scale it left (out = scaled:e4m3)";
                return Err(Error::unsupported(kernel, why));
            }
            (_, other) => {
                return Err(Error::unsupported(kernel, format!("recipe {} does not have one scale a tensor", other.name)));
            }
        },
        OutSpec::High(format) => return Err(Error::unsupported(kernel, format!("it writes FP8, not {format}"))),
    };
    Ok((ScaleRule { rule, pow2 }, format))
}

/// What the kernel wrote beside the codes: amax (a NaN is not reported: 0), scale_inv.
pub fn download_side(gpu: &Gpu, side: &Fp8Side) -> Result<(f32, f32)> {
    let amax = elementwise::amax(&f32s(gpu, "amax", &side.amax)?);
    Ok((amax, f32s(gpu, "scale_inv", &side.scale_inv)?[0]))
}

/// Options of a source for elements of `x`, codes of `format`, and a rule. Errors: a format that is no FP8 of the hardware.
pub fn defines(kernel: &str, x: &Tensor, format: Format, rule: ScaleRule) -> Result<Vec<String>> {
    Ok(vec![
        define("IN", dtype(x)),
        define("FORMAT", fp8(kernel, format)?),
        define("RULE", rule.rule),
        define("POW2", rule.pow2),
    ])
}

/// Raises `amax` to that of `n` elements: the first launch of current scaling.
pub fn tensor_amax(gpu: &Gpu, defines: &[String], x: &Buffer, side: &Fp8Side, n: usize) -> Result<()> {
    let arguments = Amax { x: x.into(), amax: (&side.amax).into(), n: n as u64 };
    // SAFETY: x has n elements.
    unsafe { gpu.launch(arguments.launch(defines, shape(n))) }
}

/// `rows × cols` codes with one scale.
pub fn by_tensor(format: Format, rows: usize, cols: usize, codes: Vec<u8>, scale_inv: f32) -> Result<QTensor> {
    QTensor::new(QTensorParts {
        format,
        rows,
        cols,
        codes,
        granularity: Granularity::Tensor,
        scale_format: Format::F32,
        scale_inv: vec![scale_inv],
        zero: Zero::None,
        level: None,
    })
}

impl Kernel for Cast {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)?;
        let (_, format) = tensor_rule(SPEC.name, &job.out)?;
        fp8(SPEC.name, format).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let x: &Tensor = elementwise::high(job.operands.a(), SPEC.name)?;
        let (rule, format) = tensor_rule(SPEC.name, &job.out)?;
        let (rows, cols, n) = (x.rows(), x.cols(), x.rows() * x.cols());
        let defines = defines(SPEC.name, x, format, rule)?;
        let (elements, codes, side) = (upload(gpu, x)?, gpu.output(n)?, Fp8Side::new(gpu, &job.out, 0)?);
        if rule.rule != Rule::Given {
            tensor_amax(gpu, &defines, &elements, &side, n)?;
        }
        let [scale, amax, scale_inv] = side.pointers();
        let arguments = Arguments {
            x: (&elements).into(),
            codes: (&codes).into(),
            scale,
            amax,
            scale_inv,
            noop: Pointer::NULL,
            n: n as u64,
        };
        // SAFETY: x and codes have n elements.
        unsafe { gpu.launch(arguments.launch(&defines, shape(n)))? };
        let (amax, scale_inv) = download_side(gpu, &side)?;
        let d = Data::Quantized(by_tensor(format, rows, cols, gpu.download("codes", &codes, 1)?, scale_inv)?);
        let part = Part { d, transpose: None, amax: Some(amax) };
        Ok(Output::of(part))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        cpu::cast::Cast.run(job).map(Some)
    }
}
