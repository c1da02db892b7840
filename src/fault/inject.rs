//! What a kernel with faults writes: the right CPU kernel on a changed job, with its sums joined, its result encoded and its
//! elements placed as the faults say.

use super::{Element, Fault, How, Moves, Origin, Setting, Shape};
use crate::job::{Data, Job, OutSpec, Output};
use crate::kernel::cpu::{KERNELS, product};
use crate::kernel::{self, Backend, Kernel, KernelSpec};
use crate::model::elementwise::{input_dtype, shares_codes};
use crate::model::gemm::store;
use crate::model::product::Plan;
use crate::op::Op;
use crate::tensor::round_to;
use crate::{Format, Overflow, QTensor, Result, Rounding, Tensor};

/// A fault in one of its settings.
pub type Set = (&'static Fault, Setting);

/// What the right CPU kernel writes; of a product in a shape that no kernel takes (rows that are not aligned) what they would. Errors: no
/// kernel takes the job.
pub fn right(job: &Job) -> Result<Output> {
    match kernel::find(KERNELS, job, Backend::Cpu) {
        Ok(kernel) => kernel.run(job),
        Err(_) if job.op.is_product() => product::run(job),
        Err(e) => Err(e),
    }
}

/// Whether [`right`] has a result.
fn can(job: &Job) -> bool {
    kernel::find(KERNELS, job, Backend::Cpu).is_ok() || (job.op.is_product() && Plan::without_weights(job).is_ok())
}

/// The job as faulty kernels read it. `None`: one of the faults does not apply.
pub fn read(job: &Job, faults: &[Set]) -> Option<Job> {
    let mut job = job.clone();
    for (fault, setting) in faults {
        if fault.how.is_read() {
            job = fault.how.read(&job, fault.on, *setting)?;
        }
    }
    Some(job)
}

/// What a kernel with these faults writes for the job; with none, the right result. `Ok(None)` when a fault does not apply: the
/// job has nothing it could go wrong with. Errors: the right kernel's.
pub fn inject(job: &Job, faults: &[Set]) -> Result<Option<Output>> {
    match read(job, faults) {
        // A changed job that no kernel takes is one that the fault cannot happen to.
        Some(changed) if can(&changed) => written(&changed, faults),
        _ => Ok(None),
    }
}

/// What is written by a kernel that reads `changed`: [`inject`] after [`read`].
pub fn written(changed: &Job, faults: &[Set]) -> Result<Option<Output>> {
    let mut joined = None;
    for (fault, setting) in faults {
        if let How::Sums { values, .. } = fault.how {
            joined = values(changed, *setting)?;
            if joined.is_none() {
                return Ok(None);
            }
        }
    }
    let mut output = match &joined {
        Some(values) => store(changed, &Plan::without_weights(changed)?, values.clone())?,
        None => right(changed)?,
    };
    for (fault, setting) in faults {
        let applied = match fault.how {
            How::Encodes(code) => {
                let before = match &joined {
                    Some(values) => Some(vec![values.clone()]),
                    None => unrounded(changed)?,
                };
                before.and_then(|v| recode(changed, &mut output, &v, &|e| code(changed, e, *setting)))
            }
            _ => Some(()),
        };
        if applied.is_none() {
            return Ok(None);
        }
    }
    for (fault, setting) in faults {
        if let How::Places(places) = fault.how {
            for part in &mut output.parts {
                let (rows, cols) = part.d.shape();
                let Some(moves) = places(changed, Shape { rows, cols }, *setting) else { return Ok(None) };
                part.d = moved(&part.d, &moves)?;
            }
        }
    }
    for (fault, setting) in faults {
        if let How::Beside(change) = fault.how
            && change(changed, &mut output, *setting).is_none()
        {
            return Ok(None);
        }
    }
    Ok(Some(output))
}

/// v of every part in f32: the same job with an f32 result. `None` where that cannot be asked for.
pub fn unrounded(job: &Job) -> Result<Option<Vec<Vec<f32>>>> {
    let op = match job.op {
        Op::CastTranspose | Op::MultiCastTranspose | Op::CastTransposeDbias => Op::Cast,
        Op::CastTransposeDbiasDact => Op::ActivationGrad,
        Op::Dequantize => return Ok(None),
        op => op,
    };
    let mut parts = Vec::new();
    for a in job.operands.tensors() {
        let mut one = job.clone();
        (one.op, one.out) = (op, OutSpec::High(Format::F32));
        one.operands.set_tensors(0, vec![a.clone()]);
        if !can(&one) {
            return Ok(None);
        }
        for part in right(&one)?.parts {
            match part.d {
                Data::High(t) => parts.push(t.data().to_vec()),
                Data::Quantized(_) => return Ok(None),
            }
        }
    }
    Ok(Some(parts))
}

/// How an output encodes: what its v is multiplied by, added to, and how it overflows.
pub struct Encoding<'a> {
    pub format: Format,
    pub overflow: Overflow,
    out: &'a OutSpec,
    q: Option<&'a QTensor>,
    part: usize,
    input: Format,
}

impl<'a> Encoding<'a> {
    /// Of one part of a job's output, whose scales are those of `d`.
    pub fn of(job: &'a Job, part: usize, d: &'a Data) -> Self {
        let (format, overflow, q) = match d {
            Data::High(t) => (t.dtype(), Overflow::Native, None),
            Data::Quantized(q) => (q.format(), Overflow::Saturate, Some(q)),
        };
        let input = if job.op.is_product() { Format::F32 } else { input_dtype(job) };
        Self { format, overflow, out: &job.out, q, part, input }
    }

    /// The element on its way: v and what is rounded.
    pub fn element(&self, v: f64, row: usize, col: usize) -> Element {
        let y = match (self.out, self.q) {
            (OutSpec::Scaled { scale, .. }, _) => f64::from(v as f32 * scale[self.part].unwrap_or(1.0)),
            (OutSpec::Recipe(_), Some(q)) => q.affine(q.scale_index(row, col)).steps(f64::from(round_to(self.input, v as f32))),
            _ => v,
        };
        Element { v, y, format: self.format, row, col, scaled: self.q.is_some() }
    }

    /// The code of a right kernel.
    pub fn right(&self, e: &Element) -> u32 {
        self.format.encode(e.y, Rounding::NearestEven, self.overflow)
    }

    /// The value that a code of element (row, col) stands for.
    pub fn value(&self, code: u32, row: usize, col: usize) -> f64 {
        match self.q {
            None => self.format.decode(code),
            Some(q) => q.affine(q.scale_index(row, col)).value(self.format.decode(code)),
        }
    }
}

/// Encodes every element again; where the fault's code is the right one the element stays. `None` when the fault has no code for
/// the format.
fn recode(job: &Job, output: &mut Output, before: &[Vec<f32>], code: &dyn Fn(&Element) -> Option<u32>) -> Option<()> {
    for (i, (part, v)) in output.parts.iter_mut().zip(before).enumerate() {
        let (_, cols) = part.d.shape();
        let cols = cols.max(1);
        let encoding = Encoding::of(job, i, &part.d);
        let mut codes = Vec::with_capacity(v.len());
        for (index, v) in v.iter().enumerate() {
            let e = encoding.element(f64::from(*v), index / cols, index % cols);
            let (wrong, right) = (code(&e)?, encoding.right(&e));
            codes.push((wrong != right).then_some(wrong));
        }
        let d = match &part.d {
            Data::High(t) => {
                let dtype = t.dtype();
                let kept = t.data().iter().zip(&codes).map(|(x, c)| c.map_or(*x, |c| dtype.decode(c) as f32)).collect();
                Data::High(Tensor::new(dtype, t.rows(), t.cols(), kept).ok()?)
            }
            Data::Quantized(q) => {
                let mut parts = q.clone().into_parts();
                parts.codes.iter_mut().zip(&codes).for_each(|(x, c)| *x = c.map_or(*x, |c| c as u8));
                Data::Quantized(QTensor::new(parts).ok()?)
            }
        };
        part.d = d;
        if let (Some(_), Data::Quantized(q)) = (&part.transpose, &part.d)
            && shares_codes(q)
        {
            part.transpose = Some(q.transposed().ok()?);
        }
    }
    Some(())
}

/// What a buffer holds that nobody wrote: a NaN where the format has one, else all ones.
pub fn canary(format: Format) -> u32 {
    format.nan_code().unwrap_or_else(|| u32::MAX >> (32 - format.bits()))
}

/// A result with its elements taken from where `moves` says. Scales stay where they are.
pub fn moved(d: &Data, moves: &Moves) -> Result<Data> {
    let (rows, cols) = d.shape();
    let sources = || (0..rows * cols).map(|i| moves(i / cols, i % cols));
    Ok(match d {
        Data::High(t) => {
            let data = sources().map(|s| match s {
                Origin::From(i, j) => t.data()[i * cols + j],
                Origin::Zero => 0.0,
                Origin::Unwritten => f32::NAN,
            });
            Data::High(Tensor::new(t.dtype(), rows, cols, data.collect())?)
        }
        Data::Quantized(q) => {
            let codes = sources().map(|s| match s {
                Origin::From(i, j) => q.codes()[i * cols + j],
                Origin::Zero => 0,
                Origin::Unwritten => canary(q.format()) as u8,
            });
            let codes = codes.collect();
            Data::Quantized(QTensor::new(crate::quant::QTensorParts { codes, ..q.clone().into_parts() })?)
        }
    })
}

/// A CPU kernel with faults: what the power of verdicts is measured on.
pub struct Faulty {
    faults: Vec<Set>,
    /// Whether its caller may know the right bits.
    modelled: bool,
}

impl Faulty {
    /// Any CPU kernel with these faults; `modelled` says whether `predict` tells the right bits.
    pub fn new(faults: Vec<Set>, modelled: bool) -> Self {
        Self { faults, modelled }
    }
}

const OPS: &[Op] = &[
    Op::Cast,
    Op::CastTranspose,
    Op::MultiCastTranspose,
    Op::Dequantize,
    Op::CastTransposeDbias,
    Op::CastTransposeDbiasDact,
    Op::DgatedCastTranspose,
    Op::Activation,
    Op::ActivationGrad,
    Op::Gated,
    Op::Layernorm,
    Op::Rmsnorm,
    Op::Gemm,
    Op::GroupedGemm,
    Op::GroupedGemmDgrad,
    Op::GroupedGemmWgrad,
];

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/faulty",
    backend: Backend::Cpu,
    ops: OPS,
    help: "a CPU kernel with faults of the catalogue",
    source: "src/fault",
};

impl Kernel for Faulty {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        kernel::find(KERNELS, job, Backend::Cpu)?.check(job)
    }
    /// Errors: those of the right kernel; unsupported when a fault does not apply to the job.
    fn run(&self, job: &Job) -> Result<Output> {
        let name = || self.faults.iter().map(|(f, _)| f.name()).collect::<Vec<_>>().join(" + ");
        inject(job, &self.faults)?
            .ok_or_else(|| crate::Error::unsupported(format!("fault {}", name()), "the job has nothing it could happen to"))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        if self.modelled { kernel::find(KERNELS, job, Backend::Cpu)?.predict(job) } else { Ok(None) }
    }
}
