//! cuBLASLt as a kernel: FP8, f16 and bf16 products with scales, bias and FP8 output, and the int32 sums of int8 products.

use super::lt::{Algorithm, LtScales, Out, Pointers, Problem, library};
use super::model;
use crate::job::{Job, Operand, OutSpec, Output};
use crate::kernel::cuda::fp8_gemm::lay_out;
use crate::kernel::cuda::launch::{Buffer, gpu};
use crate::kernel::cuda::operand::Fp8Side;
use crate::kernel::cuda::output::{download, element_bytes};
use crate::kernel::{Backend, Kernel, KernelSpec, Modelled};
use crate::model::Inner;
use crate::model::gemm::{Epilogue, store};
use crate::model::product::{Kind, Plan};
use crate::op::Op;
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};
use std::borrow::Cow;

pub struct CublasLt;

static SPEC: KernelSpec = KernelSpec {
    name: "vendor/cublaslt",
    backend: Backend::Vendor,
    ops: &[Op::Gemm],
    help: "cuBLASLt: FP8 (tensor, row, 1x128, 128x128 scales, bias, FP8 output with amax), f16, bf16; int32 sums of int8",
    source: "cublasLtMatmul of the CUDA toolkit, column-major: its first operand is our B",
};

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::unsupported(SPEC.name, why))
}

/// Refuses what is not a multiple of `of`, with the library's rule.
fn multiple(what: &str, n: usize, of: usize) -> Result<()> {
    match n % of {
        0 => Ok(()),
        _ => refuse(format!(
            "{what} = {n} is not a multiple of {of}: cuBLASLt's tensor cores read and write rows that start at 16 bytes"
        )),
    }
}

/// The splits asked for by the variable QASSAY_SPLIT_K, so that the split of K is known. Errors: no number.
fn asked_split() -> Result<Option<usize>> {
    match std::env::var("QASSAY_SPLIT_K") {
        Err(_) => Ok(None),
        Ok(s) => match s.parse() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(Error::value("QASSAY_SPLIT_K", s, "a number of splits, at least 1")),
        },
    }
}

fn scales(q: &QTensor) -> Result<LtScales> {
    if q.level().is_some() {
        return refuse("it has one level of scales");
    }
    match q.granularity() {
        Granularity::Tensor => Ok(LtScales::Tensor),
        Granularity::Row => Ok(LtScales::Row),
        Granularity::Group(128) | Granularity::Block { rows: 1, cols: 128 } => Ok(LtScales::Line),
        Granularity::Block { rows: 128, cols: 128 } => Ok(LtScales::Square),
        other => refuse(format!("it takes tensor, row, 1x128 and 128x128 scales, not {other}")),
    }
}

/// The product as the library is asked for it. Errors: what it does not take, with the rule.
pub fn problem(job: &Job) -> Result<Problem> {
    let plan = Plan::without_weights(job)?;
    if job.op != Op::Gemm {
        return refuse(format!("it has no {}", job.op.name()));
    }
    let (Some(p), Some(b)) = (plan.problems().next(), job.operands.b()) else { return refuse("no operands") };
    let a = job.operands.a();
    if plan.rows == 0 || plan.cols == 0 {
        return refuse("an empty matrix has no layout");
    }
    let bias = job.operands.bias.as_ref().map(Tensor::dtype);
    let mut made = Problem {
        m: plan.rows,
        n: plan.cols,
        k: p.a.k,
        a: p.a.format,
        b: p.b.format,
        scales: (LtScales::None, LtScales::None),
        out: Out::Int32,
        fast: false,
        bias,
        amax: false,
        split_k: asked_split()?,
    };
    if plan.kind == Kind::Integer {
        return integers(a, b, made);
    }
    match (plan.accumulator.inner, plan.accumulator.promote_every) {
        (Inner::Mma(m), None) if m.name == "hopper_wgmma" => made.fast = true,
        (Inner::Mma(m), Some(128)) if m.name == "hopper_wgmma" && plan.kind == Kind::Scaled => {}
        _ => return refuse(format!("it accumulates as hopper_wgmma, FP8 also as hopper_wgmma@128, not {}", plan.accumulator)),
    }
    made.out = match &job.out {
        OutSpec::High(f) => Out::Float(*f),
        OutSpec::Scaled { scale, .. } if scale[0].is_none() => return refuse("scale_d is null: FP8 outputs need one"),
        OutSpec::Scaled { format, .. } => Out::Float(*format),
        OutSpec::Recipe(_) => return refuse("it quantizes its output by a given scale only"),
    };
    made.amax = matches!(job.out, OutSpec::Scaled { .. });
    let size = element_bytes(&job.out);
    match (plan.kind, a, b) {
        (Kind::Scaled, Operand::Quantized(x), Operand::Quantized(w)) => {
            let narrow = |f: Format| matches!(f, Format::E4m3 | Format::E5m2);
            if !narrow(made.a) || !narrow(made.b) || (made.a, made.b) == (Format::E5m2, Format::E5m2) {
                return refuse(format!("it multiplies e4m3 with e4m3 or e5m2, not {} × {}", made.a, made.b));
            }
            made.scales = match (scales(x)?, scales(w)?) {
                (LtScales::Tensor, LtScales::Tensor) => (LtScales::Tensor, LtScales::Tensor),
                (LtScales::Tensor | LtScales::Row, LtScales::Tensor | LtScales::Row) => (LtScales::Row, LtScales::Row),
                (LtScales::Square, LtScales::Square) => return refuse("128x128 scales on one side only"),
                pair @ (LtScales::Line | LtScales::Square, LtScales::Line | LtScales::Square) => {
                    // Each block's sum is promoted anyway, and the library has these without fast accumulation only.
                    made.fast = false;
                    pair
                }
                pair => return refuse(format!("it takes no {pair:?} scales together")),
            };
            multiple("K", made.k, 16)?;
        }
        (Kind::Mixed, Operand::High(x), Operand::High(_)) => {
            if !matches!(&job.out, OutSpec::High(f) if *f == x.dtype() || *f == Format::F32) {
                return refuse(format!("{} × {} is written in that format or f32", x.dtype(), x.dtype()));
            }
            multiple("K", made.k, 8)?;
        }
        _ => return refuse("it dequantizes nothing: give FP8, int8, or both operands in f16 or bf16"),
    }
    multiple("N in bytes", made.n * size, 16)?;
    match (bias, &made.out) {
        (None, _) => {}
        (Some(f @ (Format::F16 | Format::Bf16)), Out::Float(d)) if f == *d || (f == Format::Bf16 && d.is_fp8()) => {}
        (Some(f), d) => {
            return refuse(format!("a bias in {f} with output {d:?}: it takes the output's f16 or bf16; bf16 for FP8"));
        }
    }
    Ok(made)
}

fn integers(a: &Operand, b: &Operand, made: Problem) -> Result<Problem> {
    let (Operand::Quantized(x), Operand::Quantized(w)) = (a, b) else { return refuse("int8 operands are quantized tensors") };
    if made.a != Format::Int8 || made.b != Format::Int8 {
        return refuse(format!("integer products are int8 × int8, not {} × {}", made.a, made.b));
    }
    for q in [x, w] {
        if !matches!(q.granularity(), Granularity::Tensor | Granularity::Row) || !matches!(q.zero(), Zero::None) {
            return refuse("int8 has one scale a tensor or row and no zero points: the library returns whole int32 sums");
        }
    }
    multiple("K", made.k, 16)?;
    multiple("N", made.n, 4)?;
    Ok(Problem { bias: None, ..made })
}

/// Bytes of an operand and its scales as the library reads them.
fn data(operand: &Operand, scales: LtScales) -> Result<(Vec<u8>, Vec<f32>)> {
    Ok(match operand {
        Operand::Quantized(q) => (q.codes().to_vec(), lay_out(q, scales == LtScales::Row).0),
        Operand::High(t) => (halves(t), vec![1.0]),
        _ => return refuse("it quantizes nothing itself"),
    })
}

/// The bytes of f16 or bf16 values.
fn halves(t: &Tensor) -> Vec<u8> {
    let half = |x: &f32| match t.dtype() {
        Format::F16 => half::f16::from_f32(*x).to_le_bytes(),
        _ => half::bf16::from_f32(*x).to_le_bytes(),
    };
    t.data().iter().flat_map(half).collect()
}

impl CublasLt {
    /// The algorithm the library takes for a job.
    pub fn chosen(job: &Job) -> Result<Algorithm> {
        Ok(library()?.choose(&problem(job)?)?.algorithm)
    }
}

impl Kernel for CublasLt {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        problem(job).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        let p = problem(job)?;
        let (gpu, library) = (gpu()?, library()?);
        let chosen = library.choose(&p)?;
        let (a, b) = (job.operands.a(), job.operands.b().ok_or_else(|| Error::unsupported(SPEC.name, "no b"))?);
        let ((a, scale_a), (b, scale_b)) = (data(a, p.scales.0)?, data(b, p.scales.1)?);
        let (a, b) = (gpu.upload(&a)?, gpu.upload(&b)?);
        let (scale_a, scale_b) = (gpu.upload_f32(&scale_a)?, gpu.upload_f32(&scale_b)?);
        let bias = job.operands.bias.as_ref().filter(|_| p.bias.is_some()).map(|t| gpu.upload(&halves(t))).transpose()?;
        let scale_d = match &job.out {
            OutSpec::Scaled { scale, .. } => scale[0],
            _ => None,
        };
        // The library has no scale_inv; it is 1/scale by definition.
        let beside = |s: f32| -> Result<Fp8Side> {
            let (scale, amax) = (gpu.upload_f32(&[s])?, gpu.upload_f32(&[0.0])?);
            Ok(Fp8Side { scale: Some(scale), amax, scale_inv: gpu.upload_f32(&[1.0 / s])? })
        };
        let side = scale_d.map(beside).transpose()?;
        let size = if p.out == Out::Int32 { 4 } else { element_bytes(&job.out) };
        let d = gpu.output(p.m * p.n * size)?;
        let pointer = |b: Option<&Buffer>| b.map_or(0, Buffer::pointer);
        let at = Pointers {
            a: a.pointer(),
            b: b.pointer(),
            d: d.pointer(),
            scale_a: scale_a.pointer(),
            scale_b: scale_b.pointer(),
            bias: pointer(bias.as_ref()),
            scale_d: pointer(side.as_ref().and_then(|s| s.scale.as_ref())),
            amax: pointer(side.as_ref().map(|s| &s.amax)),
        };
        // SAFETY: every buffer has the size the problem says.
        unsafe { library.run(gpu, &p, &chosen, &at)? };
        if p.out == Out::Int32 {
            let sums = gpu.download_any("int32 sums", &d)?;
            return scaled(job, sums.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }
        download(gpu, job, p.m, p.n, &d, side.as_ref())
    }
    fn modelled<'a>(&self, job: &'a Job) -> Result<Option<Modelled<'a>>> {
        if Plan::without_weights(job)?.kind == Kind::Integer {
            return Ok(Some(Modelled::of(job)));
        }
        let splits = model::joined(job, &Self::chosen(job)?)?;
        Ok(splits.map(|splits| Modelled { job: Cow::Borrowed(job), splits: Some(splits) }))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        model::predict(job, &Self::chosen(job)?)
    }
    fn algorithm(&self, job: &Job) -> Result<Option<String>> {
        Self::chosen(job).map(|a| Some(a.to_string()))
    }
}

/// The library returns int32; scales and bias are applied here, as [`crate::model::gemm`] says.
fn scaled(job: &Job, sums: impl Iterator<Item = i32>) -> Result<Output> {
    let plan = Plan::of(job)?;
    let Some(p) = plan.problems().next() else { return refuse("no operands") };
    let epilogue = Epilogue::of(&plan, &p);
    let value = |(at, sum): (usize, i32)| {
        let (i, j) = (at / plan.cols, at % plan.cols);
        let y = epilogue.add(0.0, sum as f32, p.a.scale_inv(i, 0), p.b.scale_inv(j, 0));
        epilogue.finish(y, p.a.scale_inv(i, 0), plan.bias.map(|bias| bias[j]))
    };
    let values = sums.enumerate().map(value).collect();
    store(job, &plan, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Distribution, generate};
    use crate::job::Operands;
    use crate::op::Params;
    use crate::recipe::Recipe;

    fn drawn(rows: usize, k: usize, dtype: Format) -> Tensor {
        generate(Distribution::Normal, dtype, rows, k, 1, 0).unwrap()
    }

    /// `recipe` `none` is the values themselves.
    fn operand(recipe: &str, rows: usize, k: usize, dtype: Format) -> Operand {
        match recipe {
            "none" => Operand::High(drawn(rows, k, dtype)),
            r => Operand::Quantized(r.parse::<Recipe>().unwrap().quantize(&drawn(rows, k, dtype)).unwrap().q),
        }
    }

    fn job(a: &str, b: &str, (m, n, k): (usize, usize, usize), accumulator: &str) -> Job {
        let dtype = Format::Bf16;
        let operands = Operands::of(operand(a, m, k, dtype), Some(operand(b, n, k, dtype)));
        let out = OutSpec::High(Format::Bf16);
        Job { op: Op::Gemm, params: Params::default(), operands, out, accumulator: Some(accumulator.parse().unwrap()) }
    }

    fn refused(job: &Job, says: &str) {
        let why = problem(job).unwrap_err().to_string();
        assert!(why.contains(says), "`{why}` does not say `{says}`");
    }

    #[test]
    fn what_the_library_takes_becomes_its_problem() {
        let p = problem(&job("te_current", "te_current", (3, 16, 32), "hopper_wgmma")).unwrap();
        assert_eq!((p.m, p.n, p.k, p.fast, p.scales), (3, 16, 32, true, (LtScales::Tensor, LtScales::Tensor)));
        let p = problem(&job("te_current", "float8_rowwise", (3, 16, 32), "hopper_wgmma@128")).unwrap();
        assert_eq!((p.fast, p.scales), (false, (LtScales::Row, LtScales::Row)));
        let p = problem(&job("te_block_1x128_fp32", "te_block_128x128_fp32", (3, 16, 256), "hopper_wgmma")).unwrap();
        assert_eq!((p.scales, p.fast), ((LtScales::Line, LtScales::Square), false));
        let p = problem(&job("none", "none", (3, 16, 32), "hopper_wgmma")).unwrap();
        assert_eq!((p.a, p.scales, p.out), (Format::Bf16, (LtScales::None, LtScales::None), Out::Float(Format::Bf16)));
        let p = problem(&job("int8_token_sym", "int8_token_sym", (3, 16, 32), "int32")).unwrap();
        assert_eq!((p.a, p.out), (Format::Int8, Out::Int32));
    }

    #[test]
    fn wrong_inputs_are_refused_on_the_host() {
        let (fp8, wgmma) = ("te_current", "hopper_wgmma");
        refused(&job(fp8, fp8, (3, 16, 40), wgmma), "K = 40 is not a multiple of 16");
        refused(&job(fp8, fp8, (3, 12, 32), wgmma), "N in bytes = 24 is not a multiple of 16");
        refused(&job(fp8, fp8, (3, 16, 32), "hopper_mma"), "hopper_wgmma");
        refused(&job(fp8, fp8, (3, 16, 32), "hopper_wgmma@64"), "hopper_wgmma@128");
        refused(&job(fp8, "te_block_128x128_fp32", (3, 16, 256), wgmma), "no (Tensor, Square)");
        refused(&job("te_block_128x128_fp32", "te_block_128x128_fp32", (3, 16, 256), wgmma), "one side");
        refused(&job("te_current:e5m2", "te_current:e5m2", (3, 16, 32), wgmma), "e5m2");
        refused(&job("none", "affine_sym:int4:g32", (3, 16, 64), wgmma), "dequantizes nothing");
        refused(&job("none", "none", (3, 16, 36), wgmma), "K = 36 is not a multiple of 8");
        refused(&job("int8_token_sym", "affine_sym:int8:g32", (3, 16, 64), "int32"), "one scale a tensor or row");
        refused(&job("int8_token_sym", "int8_token_sym", (3, 18, 32), "int32"), "N = 18 is not a multiple of 4");
        let mut j = job(fp8, fp8, (3, 16, 32), wgmma);
        j.out = OutSpec::Scaled { format: Format::E4m3, scale: vec![None] };
        refused(&j, "scale_d is null");
        let mut j = job(fp8, fp8, (3, 16, 32), wgmma);
        j.out = OutSpec::High(Format::F16);
        j.operands.bias = Some(drawn(1, 16, Format::Bf16));
        refused(&j, "a bias in bf16");
        let mut j = job("none", "none", (3, 16, 32), wgmma);
        j.out = OutSpec::High(Format::F16);
        refused(&j, "written in that format or f32");
    }
}
