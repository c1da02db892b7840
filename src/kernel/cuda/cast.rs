//! Casts by one scale a tensor, given or chosen from the tensor's amax: `kernels/cast.cu` (contract there).

use super::elements::{dtype, f32s, fp8, upload};
use super::launch::{Arg, Buffer, Gpu, Launch, gpu};
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::kernel::cpu::cast::check_for;
use crate::kernel::{Backend, Kernel, KernelSpec, cpu};
use crate::model::elementwise;
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::recipe::{DeviceRule, RecipeSpec};
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};

/// Eights a thread, and elements a block, of `cast.cu`.
const EACH: usize = 4;
const BLOCK: usize = 8 * EACH * 256;

pub struct Cast;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/cast",
    backend: Backend::Cuda,
    ops: &[Op::Cast],
    help: "f16, bf16, f32 to e4m3, e5m2 by one scale: given, or the tensor's own (TransformerEngine, torchao)",
    source: "kernels/cast.cu",
};

/// How the scale of a tensor comes about: RULE and POW2 of `common/scale_rule.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub rule: i32,
    pub pow2: i32,
}

/// The rule of an output with one scale a tensor, and its format. Errors: an output that has other scales.
pub fn tensor_rule(kernel: &str, out: &OutSpec) -> Result<(Rule, Format)> {
    let (rule, pow2, format) = match out {
        OutSpec::Scaled { format, .. } => (0, 0, *format),
        OutSpec::Recipe(recipe) => match (recipe.granularity()?, recipe.spec()?) {
            (Granularity::Tensor, RecipeSpec { device: Some(DeviceRule::Scale { rule, pow2 }), .. }) => {
                (*rule, i32::from(*pow2), recipe.format)
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
    Ok((Rule { rule, pow2 }, format))
}

/// The numbers beside the codes of one tensor.
pub struct Side {
    scale: Option<Buffer>,
    amax: Buffer,
    scale_inv: Buffer,
}

impl Side {
    /// The scale of part `i` where one is given; amax 0; scale_inv unwritten.
    pub fn new(gpu: &Gpu, out: &OutSpec, i: usize) -> Result<Self> {
        let given = if let OutSpec::Scaled { scale, .. } = out { scale[i] } else { None };
        let scale = given.map(|s| gpu.upload_f32(&[s])).transpose()?;
        Ok(Side { scale, amax: gpu.upload_f32(&[0.0])?, scale_inv: gpu.output(4)? })
    }
    /// scale, amax, scale_inv.
    pub fn args(&self) -> [Arg; 3] {
        let scale = Arg::Pointer(self.scale.as_ref().map_or(0, Buffer::pointer));
        [scale, self.amax.arg(), self.scale_inv.arg()]
    }
    /// global_scale_inv, which stands in the place of scale_inv.
    pub fn global(&self, gpu: &Gpu) -> Result<f32> {
        Ok(f32s(gpu, "global_scale_inv", &self.scale_inv)?[0])
    }
    /// What the kernel wrote: amax (a NaN is not reported: 0), scale_inv.
    pub fn download(&self, gpu: &Gpu) -> Result<(f32, f32)> {
        let amax = elementwise::amax(&f32s(gpu, "amax", &self.amax)?);
        Ok((amax, f32s(gpu, "scale_inv", &self.scale_inv)?[0]))
    }
}

/// Options of a source for elements of `x`, codes of `format`, and a rule. Errors: a format that is no FP8 of the hardware.
pub fn defines(kernel: &str, x: Format, format: Format, rule: Rule) -> Result<Vec<String>> {
    Ok(vec![
        format!("-DIN={}", dtype(x)),
        format!("-DFORMAT={}", fp8(kernel, format)?),
        format!("-DRULE={}", rule.rule),
        format!("-DPOW2={}", rule.pow2),
    ])
}

/// Raises `amax` to that of `n` elements: the first launch of current scaling.
pub fn tensor_amax(gpu: &Gpu, defines: &[String], x: &Buffer, side: &Side, n: usize) -> Result<()> {
    let launch = Launch {
        source: "cast.cu",
        defines,
        entry: "tensor_amax",
        grid: (n.div_ceil(BLOCK).max(1) as u32, 1, 1),
        block: (256, 1, 1),
        shared: 0,
    };
    let mut args = [x.arg(), side.amax.arg(), Arg::Long(n as i64)];
    // SAFETY: the arguments are contract tensor_amax's; x has n elements.
    unsafe { gpu.launch(&launch, &mut args) }
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
        let x: &Tensor = elementwise::high(&job.operands.a[0], SPEC.name)?;
        let (rule, format) = tensor_rule(SPEC.name, &job.out)?;
        let (rows, cols, n) = (x.rows(), x.cols(), x.rows() * x.cols());
        let defines = defines(SPEC.name, x.dtype(), format, rule)?;
        let (elements, codes, side) = (upload(gpu, x)?, gpu.output(n)?, Side::new(gpu, &job.out, 0)?);
        if rule.rule != 0 {
            tensor_amax(gpu, &defines, &elements, &side, n)?;
        }
        let launch = Launch {
            source: "cast.cu",
            defines: &defines,
            entry: "cast",
            grid: (n.div_ceil(BLOCK).max(1) as u32, 1, 1),
            block: (256, 1, 1),
            shared: 0,
        };
        let [scale, amax, scale_inv] = side.args();
        let mut args = [elements.arg(), codes.arg(), scale, amax, scale_inv, Arg::Pointer(0), Arg::Long(n as i64)];
        // SAFETY: the arguments are contract cast's; x and codes have n elements.
        unsafe { gpu.launch(&launch, &mut args)? };
        let (amax, scale_inv) = side.download(gpu)?;
        let d = Data::Quantized(by_tensor(format, rows, cols, gpu.download("codes", &codes, 1)?, scale_inv)?);
        let part = Part { d, transpose: None, amax: Some(amax) };
        Ok(Output::of(part))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        cpu::cast::Cast.run(job).map(Some)
    }
}
