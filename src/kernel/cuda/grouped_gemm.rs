//! Grouped FP8 GEMM by wgmma: `kernels/grouped_gemm.cu` (contract there).

use super::contract::{Contract, Map, Pointer, arguments};
use super::fp8_gemm::{
    Options, ScaleTile, WGMMA, blocks, common, lay_out, needs_hopper, own_codes, packed, scales, tile_options,
};
use super::group_scales;
use super::launch::{Buffer, Gpu, LaunchShape, gpu, tensor_map};
use super::model;
use super::output::{download, element_bytes};
use crate::job::{Job, Operand, Output};
use crate::kernel::{Backend, Kernel, KernelSpec, Modelled, without_bias};
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::{Error, Granularity, QTensor, Result};
use std::borrow::Cow;

pub struct GroupedGemm;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/grouped_gemm",
    backend: Backend::Cuda,
    ops: &[Op::GroupedGemm, Op::GroupedGemmDgrad, Op::GroupedGemmWgrad],
    help: "e4m3, e5m2 by wgmma: groups of rows or of K from offs on the device, row scales",
    source: "kernels/grouped_gemm.cu",
};

arguments! {
    /// Contract grouped_gemm_rows, grouped_gemm_tokens.
    Arguments = "grouped_gemm.cu" "grouped_gemm_rows" | "grouped_gemm_tokens" {
        map_a: Map, map_b: Map, d: Pointer, scale_a: Pointer, scale_b: Pointer, offs: Pointer, groups: usize, m: usize,
        n: usize, k: usize, band: usize,
    }
}

/// Tiles of rows that follow each other before the columns advance.
pub(crate) const BAND: usize = 8;

/// Columns of a tile, as the contract chooses them.
pub(crate) fn tile_n(groups: usize, rows: usize, n: usize, multiprocessors: usize) -> usize {
    let tiles = groups * (rows.div_ceil(groups)).div_ceil(128) * n.div_ceil(256);
    if tiles < multiprocessors { 128 } else { 256 }
}

pub(crate) fn defines(options: &Options, tile_n: usize) -> Vec<String> {
    options.by_rows().into_iter().chain(tile_options(tile_n, false)).collect()
}

/// Its blocks on `gpu`.
pub(crate) fn shape(gpu: &Gpu) -> LaunchShape {
    blocks(gpu.info.multiprocessors)
}

/// Operands of a grouped product side by side, as the kernel reads them.
struct Packed {
    /// None: those of the tensor, as they are.
    codes: Option<Vec<u8>>,
    rows: usize,
    cols: usize,
    pitch: usize,
    scale_inv: Vec<f32>,
}

fn pack(o: Option<&Operand>) -> Result<Packed> {
    let line = |q: &QTensor| match scales(q)? {
        ScaleTile::Tensor | ScaleTile::Row => Ok(lay_out(q, true).0),
        _ => Err(Error::unsupported(SPEC.name, "it takes tensor and row scales")),
    };
    match o {
        Some(Operand::Quantized(q)) => {
            let (rows, cols) = (q.rows(), q.cols());
            Ok(Packed { codes: None, rows, cols, pitch: cols, scale_inv: line(q)? })
        }
        Some(Operand::Groups(groups)) if !groups.is_empty() => {
            let (rows, cols) = (groups[0].rows(), groups.iter().map(QTensor::cols).sum::<usize>());
            let pitch = cols.next_multiple_of(16);
            let (mut codes, mut at, mut scale_inv) = (vec![0u8; rows * pitch], 0, Vec::new());
            for q in groups {
                for (i, row) in q.codes().chunks(q.cols().max(1)).enumerate() {
                    codes[i * pitch + at..i * pitch + at + q.cols()].copy_from_slice(row);
                }
                at += q.cols();
                scale_inv.extend(line(q)?);
            }
            Ok(Packed { codes: Some(codes), rows, cols, pitch, scale_inv })
        }
        Some(Operand::Dynamic(d)) => {
            group_scales::check(d.x(), d.recipe())?;
            pack(Some(d.quantized()))
        }
        _ => Err(Error::unsupported(SPEC.name, "operands are quantized tensors, or groups of them")),
    }
}

/// An operand on the device. A dynamic one is quantized there: tokens of a group together by `offs` (grad_B: dY from `[tokens, N]` as
/// training has it, Aᵀ from its rows), else whole rows.
fn load(gpu: &Gpu, job: &Job, o: Option<&Operand>, offs: &Buffer) -> Result<group_scales::Quantized> {
    let groups = job.operands.offs.as_ref().map_or(0, Vec::len);
    match o {
        Some(Operand::Dynamic(d)) if job.op != Op::GroupedGemmWgrad => {
            let whole = gpu.upload_i32(&[d.x().cols() as i32])?;
            group_scales::quantize_rows(gpu, d.x(), d.recipe(), &whole, 1)
        }
        Some(Operand::Dynamic(d)) if job.operands.get(0).is_some_and(|a| std::ptr::eq(a, o.expect("matched"))) => {
            group_scales::quantize_columns(gpu, &d.x().transposed(), d.recipe(), offs, groups)
        }
        Some(Operand::Dynamic(d)) => group_scales::quantize_rows(gpu, d.x(), d.recipe(), offs, groups),
        _ => {
            let p = pack(o)?;
            let codes = match (&p.codes, o) {
                (None, Some(Operand::Quantized(q))) => own_codes(gpu, q)?,
                (codes, _) => gpu.upload(codes.as_deref().unwrap_or_default())?,
            };
            let scale_inv = gpu.upload_f32(&p.scale_inv)?;
            Ok(group_scales::Quantized { codes, scale_inv, rows: p.rows, cols: p.cols, pitch: p.pitch })
        }
    }
}

impl Kernel for GroupedGemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        common(&SPEC, job, WGMMA)?;
        without_bias(&SPEC, job)?;
        let (a, _) = (pack(job.operands.get(0))?, pack(job.operands.b())?);
        packed(&SPEC, a.pitch)?;
        match job.operands.offs.as_ref().map(Vec::len) {
            Some(1..=1024) if a.cols > 0 => Ok(()),
            groups => Err(Error::unsupported(
                SPEC.name,
                format!("{groups:?} groups, K = {}: it takes 1 to 1024, K of at least 1", a.cols),
            )),
        }
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        needs_hopper(gpu, &SPEC)?;
        let offs: Vec<i32> = job.operands.offs.iter().flatten().map(|o| *o as i32).collect();
        let (groups, tokens, offs) = (offs.len(), job.op == Op::GroupedGemmWgrad, gpu.upload_i32(&offs)?);
        let a = load(gpu, job, job.operands.get(0), &offs)?;
        let b = load(gpu, job, job.operands.b(), &offs)?;
        let (rows, n) = if tokens { (groups * a.rows, b.rows) } else { (a.rows, b.rows / groups) };
        let tile_n = tile_n(groups, rows, n, gpu.info.multiprocessors);
        let defines = defines(&common(&SPEC, job, WGMMA)?, tile_n);
        let d = gpu.output(rows * n * element_bytes(&job.out))?;
        let arguments = Arguments {
            map_a: tensor_map(&a.codes, a.rows, a.cols, a.pitch, 128)?,
            map_b: tensor_map(&b.codes, b.rows, b.cols, b.pitch, tile_n as u32)?,
            d: (&d).into(),
            scale_a: (&a.scale_inv).into(),
            scale_b: (&b.scale_inv).into(),
            offs: (&offs).into(),
            groups,
            m: if tokens { a.rows } else { 0 },
            n,
            k: if tokens { 0 } else { a.cols },
            band: BAND,
        };
        let entry = if tokens { "grouped_gemm_tokens" } else { "grouped_gemm_rows" };
        // SAFETY: buffers have the contract's sizes; offs end within the rows (tokens), as Plan::of checked.
        unsafe { gpu.launch(arguments.entry(entry, &defines, shape(gpu)))? };
        download(gpu, job, rows, n, &d, None)
    }
    fn modelled<'a>(&self, job: &'a Job) -> Result<Option<Modelled<'a>>> {
        Ok(Some(Modelled { job: Cow::Owned(aligned(job)?), splits: None }))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        model::predicted(&aligned(job)?).map(Some)
    }
}

/// The codes with a scale a row, as the kernel reads those of one scale.
fn by_rows(q: &QTensor) -> Result<QTensor> {
    if q.granularity() != Granularity::Tensor {
        return Ok(q.clone());
    }
    let scale_inv = vec![q.scale_inv()[0]; q.rows()];
    QTensor::new(QTensorParts { granularity: Granularity::Row, scale_inv, ..q.clone().into_parts() })
}

/// The job as the kernel reads it: scales of rows, and groups along K that begin where the kernel's do, at the last multiple of 16, with zeros before
/// their first token. Zeros change no sum but move the blocks of 32 that are added at once.
fn aligned(job: &Job) -> Result<Job> {
    let mut job = job.clone();
    let operands = &mut job.operands;
    for o in operands.all_mut() {
        *o = match o.given() {
            Operand::Quantized(q) => Operand::Quantized(by_rows(q)?),
            Operand::Groups(groups) => Operand::Groups(groups.iter().map(by_rows).collect::<Result<_>>()?),
            other => other.clone(),
        };
    }
    let crate::job::Operands { by_role, offs: Some(offs), .. } = operands else { return Ok(job) };
    let mut groups = by_role.iter_mut().flatten();
    if let (Some(Operand::Groups(a)), Some(Operand::Groups(b))) = (groups.next(), groups.next()) {
        let (mut begin, mut end) = (0, 0);
        for ((a, b), off) in a.iter_mut().zip(b).zip(offs) {
            let head = if *off > begin { begin % 16 } else { 0 };
            begin = *off;
            for q in [&mut *a, b] {
                let (cols, parts) = (q.cols(), q.clone().into_parts());
                let row = |i: usize| std::iter::repeat_n(0, head).chain(q.codes()[i * cols..(i + 1) * cols].iter().copied());
                let codes = (0..q.rows()).flat_map(row).collect();
                *q = QTensor::new(QTensorParts { cols: cols + head, codes, ..parts })?;
            }
            end += a.cols();
            *off = end;
        }
    }
    Ok(job)
}
