//! Casts by one scale a tensor that also write the transposed codes: `kernels/cast_transpose.cu` (contract there).

use super::cast::{ScaleRule, by_tensor, defines, download_side, tensor_amax, tensor_rule};
use super::contract::{Contract, Pointer, arguments};
use super::elements::{fp8, upload};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::operand::Fp8Side;
use super::options::{Rule, define};
use super::output::tensor;
use super::tile::{NARROW, is_whole, narrow_tiles};
use crate::job::{Data, Job, Output, Part};
use crate::kernel::cpu::cast::check_for;
use crate::kernel::{Backend, Kernel, KernelSpec, cpu};
use crate::model::elementwise::{self, DBIAS_BAND};
use crate::op::Op;
use crate::{Error, Format, Result, Tensor};

pub struct CastTranspose;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/cast_transpose",
    backend: Backend::Cuda,
    ops: &[Op::CastTranspose, Op::MultiCastTranspose, Op::CastTransposeDbias],
    help: "codes and transposed codes of one or several tensors by one scale each; dbias",
    source: "kernels/cast_transpose.cu",
};

arguments! {
    /// Contract cast_transpose.
    Arguments = "cast_transpose.cu" "cast_transpose" {
        x: Pointer, codes: Pointer, turned: Pointer, scale: Pointer, amax: Pointer, scale_inv: Pointer, noop: Pointer,
        rows: usize, cols: usize,
    }
}

arguments! {
    /// Contract cast_transpose_dbias.
    WithSums = "cast_transpose.cu" "cast_transpose_dbias" {
        x: Pointer, codes: Pointer, turned: Pointer, scale: Pointer, amax: Pointer, scale_inv: Pointer, noop: Pointer,
        rows: usize, cols: usize, sums: Pointer,
    }
}

impl Arguments {
    pub fn with_sums(self, sums: Pointer) -> WithSums {
        let Arguments { x, codes, turned, scale, amax, scale_inv, noop, rows, cols } = self;
        WithSums { x, codes, turned, scale, amax, scale_inv, noop, rows, cols, sums }
    }
}

arguments! {
    /// Contract multi_cast_transpose.
    Several = "cast_transpose.cu" "multi_cast_transpose" { list: Pointer, count: usize }
}

arguments! {
    /// Contract dbias_total.
    Total = "cast_transpose.cu" "dbias_total" { sums: Pointer, dbias: Pointer, bands: usize, cols: usize }
}

/// The blocks of a sum over bands of `cols` columns.
pub(crate) fn total_shape(cols: usize) -> LaunchShape {
    LaunchShape::new(cols.div_ceil(32).max(1), 256)
}

/// One tensor of the job on the device.
struct Matrix<'a> {
    x: &'a Tensor,
    elements: Buffer,
    codes: Buffer,
    turned: Buffer,
    side: Fp8Side,
}

impl<'a> Matrix<'a> {
    /// Element buffers and outputs of part `i`, with amax computed where the rule asks for it.
    fn new(gpu: &Gpu, job: &'a Job, i: usize, defines: &[String], rule: ScaleRule) -> Result<Self> {
        let x = elementwise::high(&job.operands.tensors()[i], SPEC.name)?;
        let n = x.rows() * x.cols();
        let (elements, side) = (upload(gpu, x)?, Fp8Side::new(gpu, &job.out, i)?);
        if rule.rule != Rule::Given {
            tensor_amax(gpu, defines, &elements, &side, n)?;
        }
        Ok(Matrix { x, elements, codes: gpu.output(n)?, turned: gpu.output(n)?, side })
    }
    fn arguments(&self) -> Arguments {
        let [scale, amax, scale_inv] = self.side.pointers();
        let (x, codes, turned) = ((&self.elements).into(), (&self.codes).into(), (&self.turned).into());
        let (noop, rows, cols) = (Pointer::NULL, self.x.rows(), self.x.cols());
        Arguments { x, codes, turned, scale, amax, scale_inv, noop, rows, cols }
    }
    /// struct Matrix of the contract, little endian.
    fn bytes(&self, first: usize) -> Vec<u8> {
        let a = self.arguments();
        let pointers = [a.x, a.codes, a.turned, a.scale, a.amax, a.scale_inv];
        let mut bytes: Vec<u8> = pointers.iter().flat_map(|p| p.0.to_le_bytes()).collect();
        bytes.extend([self.x.rows(), self.x.cols(), first, 0].iter().flat_map(|n| (*n as i32).to_le_bytes()));
        bytes
    }
    fn download(&self, gpu: &Gpu, format: Format) -> Result<Part> {
        let (rows, cols, (amax, scale_inv)) = (self.x.rows(), self.x.cols(), download_side(gpu, &self.side)?);
        let d = by_tensor(format, rows, cols, gpu.download("codes", &self.codes, 1)?, scale_inv)?;
        let turned = by_tensor(format, cols, rows, gpu.download("transposed codes", &self.turned, 1)?, scale_inv)?;
        Ok(Part { d: Data::Quantized(d), transpose: Some(turned), amax: Some(amax) })
    }
}

/// Runs one tensor, with the column sums if asked for.
fn one(gpu: &Gpu, m: &Matrix, defines: &[String], dbias: bool) -> Result<Option<Tensor>> {
    let (rows, cols) = (m.x.rows(), m.x.cols());
    let shape = narrow_tiles(rows, cols);
    if !dbias {
        // SAFETY: every buffer has the size of rows and cols.
        return unsafe { gpu.launch(m.arguments().launch(defines, shape)) }.map(|()| None);
    }
    let (bands, dtype) = (rows.div_ceil(DBIAS_BAND), m.x.dtype());
    let size = dtype.bits() as usize / 8;
    let (sums, total) = (gpu.output(bands * cols * 4)?, gpu.output(cols * size)?);
    let arguments = m.arguments().with_sums((&sums).into());
    // SAFETY: as above; sums holds bands times cols floats.
    unsafe { gpu.launch(arguments.launch(defines, shape))? };
    let arguments = Total { sums: (&sums).into(), dbias: (&total).into(), bands, cols };
    // SAFETY: sums holds bands times cols floats, total cols elements.
    unsafe { gpu.launch(arguments.launch(defines, total_shape(cols)))? };
    tensor(dtype, 1, cols, &gpu.download("dbias", &total, size)?).map(Some)
}

/// Runs all tensors in one launch.
fn several(gpu: &Gpu, matrices: &[Matrix], defines: &[String]) -> Result<()> {
    let (mut list, mut first) = (Vec::new(), 0);
    for m in matrices {
        list.extend(m.bytes(first));
        first += narrow_tiles(m.x.rows(), m.x.cols()).grid.0 as usize;
    }
    let list = gpu.upload(&list)?;
    let arguments = Several { list: (&list).into(), count: matrices.len() };
    // SAFETY: each matrix's buffers have the size of its rows and cols.
    unsafe { gpu.launch(arguments.launch(defines, LaunchShape::new(first, 2 * NARROW))) }
}

impl Kernel for CastTranspose {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)?;
        let (_, format) = tensor_rule(SPEC.name, &job.out)?;
        fp8(SPEC.name, format)?;
        let dtype = |i: usize| elementwise::high(&job.operands.tensors()[i], SPEC.name).map(Tensor::dtype);
        for (i, a) in job.operands.tensors().iter().enumerate() {
            if a.rows() == 0 || a.cols() == 0 {
                let why = "an empty tensor has no tile, so nothing would write its scale_inv";
                return Err(Error::unsupported(SPEC.name, format!("tensor {i} is {}×{}: {why}", a.rows(), a.cols())));
            }
            if dtype(i)? != dtype(0)? {
                return Err(Error::unsupported(SPEC.name, "all tensors of a launch have one dtype"));
            }
        }
        Ok(())
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let (rule, format) = tensor_rule(SPEC.name, &job.out)?;
        let x = elementwise::high(job.operands.a(), SPEC.name)?;
        let mut defines = defines(SPEC.name, x, format, rule)?;
        let matrices =
            (0..job.operands.tensors().len()).map(|i| Matrix::new(gpu, job, i, &defines, rule)).collect::<Result<Vec<_>>>()?;
        // An option of the casts alone, not of the amax before them.
        let whole = job.operands.tensors().iter().all(|a| is_whole(a.rows(), a.cols()));
        defines.push(define("WHOLE", whole));
        let dbias = match job.op {
            Op::MultiCastTranspose => several(gpu, &matrices, &defines).map(|()| None)?,
            op => one(gpu, &matrices[0], &defines, op == Op::CastTransposeDbias)?,
        };
        let parts = matrices.iter().map(|m| m.download(gpu, format)).collect::<Result<_>>()?;
        Ok(Output { parts, dbias, mean: None, rsigma: None })
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        cpu::cast_transpose::CastTranspose.run(job).map(Some)
    }
}
