//! Casts by one scale a tensor that also write the transposed codes: `kernels/cast_transpose.cu` (contract there).

use super::cast::{Rule, Side, by_tensor, defines, tensor_amax, tensor_rule};
use super::elements::{fp8, upload};
use super::launch::{Arg, Buffer, Gpu, Launch, gpu};
use super::output::tensor;
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

/// Tiles of a matrix.
fn tiles(x: &Tensor) -> usize {
    x.rows().div_ceil(128) * x.cols().div_ceil(128)
}

/// One tensor of the job on the device.
struct Matrix<'a> {
    x: &'a Tensor,
    elements: Buffer,
    codes: Buffer,
    turned: Buffer,
    side: Side,
}

impl<'a> Matrix<'a> {
    /// Element buffers and outputs of part `i`, with amax computed where the rule asks for it.
    fn new(gpu: &Gpu, job: &'a Job, i: usize, defines: &[String], rule: Rule) -> Result<Self> {
        let x = elementwise::high(&job.operands.a[i], SPEC.name)?;
        let n = x.rows() * x.cols();
        let (elements, side) = (upload(gpu, x)?, Side::new(gpu, &job.out, i)?);
        if rule.rule != 0 {
            tensor_amax(gpu, defines, &elements, &side, n)?;
        }
        Ok(Matrix { x, elements, codes: gpu.output(n)?, turned: gpu.output(n)?, side })
    }
    fn pointers(&self) -> [Arg; 6] {
        let [scale, amax, scale_inv] = self.side.args();
        [self.elements.arg(), self.codes.arg(), self.turned.arg(), scale, amax, scale_inv]
    }
    /// struct Matrix of the contract, little endian.
    fn bytes(&self, first: usize) -> Vec<u8> {
        let pointer = |arg: Arg| if let Arg::Pointer(p) = arg { p } else { 0 };
        let mut bytes: Vec<u8> = self.pointers().into_iter().flat_map(|a| pointer(a).to_le_bytes()).collect();
        bytes.extend([self.x.rows(), self.x.cols(), first, 0].iter().flat_map(|n| (*n as i32).to_le_bytes()));
        bytes
    }
    fn download(&self, gpu: &Gpu, format: Format) -> Result<Part> {
        let (rows, cols, (amax, scale_inv)) = (self.x.rows(), self.x.cols(), self.side.download(gpu)?);
        let d = by_tensor(format, rows, cols, gpu.download("codes", &self.codes, 1)?, scale_inv)?;
        let turned = by_tensor(format, cols, rows, gpu.download("transposed codes", &self.turned, 1)?, scale_inv)?;
        Ok(Part { d: Data::Quantized(d), transpose: Some(turned), amax: Some(amax) })
    }
}

/// Runs one tensor, with the column sums if asked for.
fn one(gpu: &Gpu, m: &Matrix, defines: &[String], dbias: bool) -> Result<Option<Tensor>> {
    let (rows, cols) = (m.x.rows(), m.x.cols());
    let bands = rows.div_ceil(DBIAS_BAND);
    let sums = dbias.then(|| gpu.output(bands * cols * 4)).transpose()?;
    let launch = Launch {
        source: "cast_transpose.cu",
        defines,
        entry: if dbias { "cast_transpose_dbias" } else { "cast_transpose" },
        grid: (tiles(m.x) as u32, 1, 1),
        block: (256, 1, 1),
        shared: 0,
    };
    let mut args = Vec::from(m.pointers());
    args.extend([Arg::Pointer(0), Arg::Int(rows as i32), Arg::Int(cols as i32)]);
    args.extend(sums.as_ref().map(Buffer::arg));
    // SAFETY: the arguments are contract cast_transpose's (or _dbias's), in its order; every buffer has the size of rows and cols.
    unsafe { gpu.launch(&launch, &mut args)? };
    let Some(sums) = sums else { return Ok(None) };
    let dtype = m.x.dtype();
    let size = dtype.bits() as usize / 8;
    let total = gpu.output(cols * size)?;
    let launch = Launch { entry: "dbias_total", grid: (cols.div_ceil(128) as u32, 1, 1), block: (128, 1, 1), ..launch };
    let mut args = [sums.arg(), total.arg(), Arg::Int(bands as i32), Arg::Int(cols as i32)];
    // SAFETY: the arguments are contract dbias_total's; sums holds bands times cols floats, total cols elements.
    unsafe { gpu.launch(&launch, &mut args)? };
    tensor(dtype, 1, cols, &gpu.download("dbias", &total, size)?).map(Some)
}

/// Runs all tensors in one launch.
fn several(gpu: &Gpu, matrices: &[Matrix], defines: &[String]) -> Result<()> {
    let (mut list, mut first) = (Vec::new(), 0);
    for m in matrices {
        list.extend(m.bytes(first));
        first += tiles(m.x);
    }
    let list = gpu.upload(&list)?;
    let launch = Launch {
        source: "cast_transpose.cu",
        defines,
        entry: "multi_cast_transpose",
        grid: (first as u32, 1, 1),
        block: (256, 1, 1),
        shared: 0,
    };
    // SAFETY: the arguments are contract multi_cast_transpose's; each matrix's buffers have the size of its rows and cols.
    unsafe { gpu.launch(&launch, &mut [list.arg(), Arg::Int(matrices.len() as i32)]) }
}

impl Kernel for CastTranspose {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)?;
        let (_, format) = tensor_rule(SPEC.name, &job.out)?;
        fp8(SPEC.name, format)?;
        let dtype = |i: usize| elementwise::high(&job.operands.a[i], SPEC.name).map(Tensor::dtype);
        for (i, a) in job.operands.a.iter().enumerate() {
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
        let x = elementwise::high(&job.operands.a[0], SPEC.name)?;
        let mut defines = defines(SPEC.name, x.dtype(), format, rule)?;
        let whole = job.operands.a.iter().all(|a| a.rows() % 16 == 0 && a.cols() % 8 == 0);
        defines.push(format!("-DWHOLE={}", i32::from(whole)));
        let matrices =
            (0..job.operands.a.len()).map(|i| Matrix::new(gpu, job, i, &defines, rule)).collect::<Result<Vec<_>>>()?;
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
