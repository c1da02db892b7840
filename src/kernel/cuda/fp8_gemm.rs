//! FP8 GEMM and grouped GEMM by wgmma: `kernels/fp8_gemm.cu`, `kernels/grouped_gemm.cu` (contracts there).

use super::group_scales;
use super::launch::{Arg, Buffer, Gpu, Launch, gpu, tensor_map};
use super::model;
use super::operand::{Fp8Side, pointer};
use super::output::{download, element_bytes};
use crate::job::{Job, Operand, OutSpec, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::product::{Kind, Plan};
use crate::model::{Inner, ScaleOrder, gemm};
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::{Error, Format, Granularity, QTensor, Result};
use std::borrow::Cow;

pub(crate) const BLOCK: (u32, u32, u32) = (384, 1, 1);
pub(crate) const SHARED: u32 = 232_448;
const WGMMA: &[&str] = &["hopper_wgmma"];

pub struct Fp8Gemm;
pub struct GroupedGemm;

static DENSE: KernelSpec = KernelSpec {
    name: "cuda/fp8_gemm",
    backend: Backend::Cuda,
    ops: &[Op::Gemm],
    help: "e4m3, e5m2 by wgmma: tensor, row, 1x128 and 128x128 scales, bias, FP8 output with amax",
    source: "kernels/fp8_gemm.cu",
};

static GROUPED: KernelSpec = KernelSpec {
    name: "cuda/grouped_gemm",
    backend: Backend::Cuda,
    ops: &[Op::GroupedGemm, Op::GroupedGemmDgrad, Op::GroupedGemmWgrad],
    help: "e4m3, e5m2 by wgmma: groups of rows or of K from offs on the device, row scales",
    source: "kernels/grouped_gemm.cu",
};

/// How an operand's scales lie, in the words of `common/fp8_epilogue.cuh`.
#[derive(Clone, Copy, PartialEq)]
enum Scales {
    Tensor,
    Row,
    Line,
    Square,
}

fn scales(q: &QTensor) -> Result<Scales> {
    if q.level().is_some() {
        return Err(Error::unsupported("cuda FP8 GEMM", "it has one level of scales"));
    }
    match q.granularity() {
        Granularity::Tensor => Ok(Scales::Tensor),
        Granularity::Row => Ok(Scales::Row),
        Granularity::Group(128) | Granularity::Block { rows: 1, cols: 128 } => Ok(Scales::Line),
        Granularity::Block { rows: 128, cols: 128 } => Ok(Scales::Square),
        other => {
            Err(Error::unsupported("cuda FP8 GEMM", format!("it takes tensor, row, 1x128 and 128x128 scales, not {other}")))
        }
    }
}

/// What the FP8 GEMMs refuse, and their common options. `instructions`: the accumulators of the kernel's tensor-core instruction, by device.
pub(super) fn common(spec: &KernelSpec, job: &Job, instructions: &[&str]) -> Result<Vec<String>> {
    let refuse = |why: String| Err(Error::unsupported(spec.name, why));
    let plan = Plan::of(job)?;
    let p = plan.problems().next().ok_or_else(|| Error::unsupported(spec.name, "no group"))?;
    let narrow = |f: Format| matches!(f, Format::E4m3 | Format::E5m2);
    if plan.kind != Kind::Scaled || !narrow(p.a.format) || !narrow(p.b.format) {
        return refuse("it multiplies e4m3 and e5m2".into());
    }
    let promote = match (plan.accumulator.inner, plan.accumulator.promote_every) {
        (Inner::Mma(m), every @ (None | Some(128))) if instructions.contains(&m.name) => every.is_some(),
        _ => {
            let known = instructions.join(" or ");
            return refuse(format!("it accumulates as {known}, or the same with @128, not {}", plan.accumulator));
        }
    };
    if plan.rows == 0 || plan.cols == 0 {
        return refuse("an empty operand has no tensor map".into());
    }
    let out = match &job.out {
        OutSpec::High(Format::Bf16) => 0,
        OutSpec::High(Format::F16) => 1,
        OutSpec::High(Format::F32) => 2,
        OutSpec::Scaled { scale, .. } if scale[0].is_none() => return refuse("scale_d is null: FP8 outputs need one".into()),
        OutSpec::Scaled { format: Format::E4m3, .. } => 3,
        OutSpec::Scaled { format: Format::E5m2, .. } => 4,
        _ => return refuse("it writes bf16, f16, f32, e4m3 or e5m2".into()),
    };
    let e5m2 = |f| i32::from(f == Format::E5m2);
    Ok(vec![
        format!("-DA_E5M2={}", e5m2(p.a.format)),
        format!("-DB_E5M2={}", e5m2(p.b.format)),
        format!("-DOUT={out}"),
        format!("-DPROMOTE={}", i32::from(promote)),
    ])
}

pub(super) fn packed(spec: &KernelSpec, k: usize) -> Result<()> {
    match k % 16 {
        0 => Ok(()),
        _ => Err(Error::unsupported(
            spec.name,
            format!("K = {k} is not a multiple of 16: TMA reads rows that start at 16 bytes"),
        )),
    }
}

pub(super) fn quantized<'a>(spec: &KernelSpec, o: Option<&'a Operand>) -> Result<&'a QTensor> {
    match o {
        Some(Operand::Quantized(q)) => Ok(q),
        _ => Err(Error::unsupported(spec.name, "operands are quantized tensors")),
    }
}

/// The mode of the scales (SCALE), and for 128x128 blocks which operand has them.
pub(super) fn mode(a: &QTensor, b: &QTensor) -> Result<i32> {
    match (scales(a)?, scales(b)?) {
        (Scales::Tensor, Scales::Tensor) => Ok(0),
        (Scales::Tensor | Scales::Row, Scales::Tensor | Scales::Row) => Ok(1),
        (Scales::Line, Scales::Square) => Ok(2),
        (Scales::Line, Scales::Line) => Ok(3),
        _ => Err(Error::unsupported("cuda/fp8_gemm", "block scales are 1x128 of A with 1x128 or 128x128 of B")),
    }
}

/// The dense kernels' options for scales of this mode and for the bias.
pub(super) fn scale_options(job: &Job, mode: i32) -> [String; 3] {
    let order = i32::from(mode >= 2 && job.accumulator.is_some_and(|a| a.scale_order == ScaleOrder::ScalesFirst));
    let bias = if job.operands.bias.is_some() { 2 } else { 0 };
    [format!("-DSCALE={mode}"), format!("-DORDER={order}"), format!("-DBIAS={bias}")]
}

/// Scales as the kernel reads them, with the strides (row, k).
pub(crate) fn lay_out(q: &QTensor, mode: i32) -> (Vec<f32>, i32, i32) {
    let s = q.scale_inv();
    let blocks = q.cols().div_ceil(128);
    match q.granularity() {
        Granularity::Tensor if mode == 1 => (vec![s[0]; q.rows()], 0, 0),
        Granularity::Tensor | Granularity::Row => (s.to_vec(), 0, 0),
        Granularity::Block { rows: 128, .. } => {
            let pitch = blocks.next_multiple_of(4);
            let mut out = vec![f32::NAN; q.rows().div_ceil(128) * pitch];
            s.chunks(blocks).enumerate().for_each(|(i, row)| out[i * pitch..i * pitch + blocks].copy_from_slice(row));
            (out, pitch as i32, 1)
        }
        _ => {
            let pitch = q.rows().next_multiple_of(4);
            let mut out = vec![f32::NAN; blocks * pitch];
            for i in 0..q.rows() {
                (0..blocks).for_each(|b| out[b * pitch + i] = s[i * blocks + b]);
            }
            (out, 0, pitch as i32)
        }
    }
}

fn needs_hopper(gpu: &Gpu, spec: &KernelSpec) -> Result<()> {
    match gpu.info.capability {
        (9, 0) => Ok(()),
        (major, minor) => {
            Err(Error::unsupported(spec.name, format!("wgmma needs compute capability 9.0, this is {major}.{minor}")))
        }
    }
}

/// What must come back: by the obvious definition, or for large products in bulk, which is tested against it: on the GPU where there is one.
fn predict(job: &Job) -> Result<Option<Output>> {
    let plan = Plan::of(job)?;
    let products: u64 = plan.problems().map(|p| (p.a_rows.len() * p.b_rows.len() * p.a.k) as u64).sum();
    let predicted = match products {
        0..model::LARGE => gemm::predict(job),
        _ if gpu().is_ok() => model::predict(job),
        _ => crate::kernel::cpu::product::run(job),
    };
    predicted.map(Some)
}

/// Tiles of the dense kernel, as its contract chooses them.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    tile_n: u32,
    cluster: u32,
    pub grid: u32,
}

impl Tiles {
    pub fn of(m: usize, n: usize, multiprocessors: usize) -> Self {
        let few = m.div_ceil(128) * n.div_ceil(256) < multiprocessors;
        let (tile_n, cluster, blocks) = if few { (128, 0, 1) } else { (256, 1, 2) };
        let tiles = m.div_ceil(128 * blocks) * n.div_ceil(tile_n);
        let grid = (multiprocessors / blocks * blocks).min(blocks * tiles) as u32;
        Self { tile_n: tile_n as u32, cluster, grid }
    }
    pub fn defines(self) -> [String; 2] {
        [format!("-DTILE_N={}", self.tile_n), format!("-DCLUSTER={}", self.cluster)]
    }
    /// Rows of B that one box of its tensor map holds.
    pub fn box_b(self) -> u32 {
        if self.cluster == 1 { self.tile_n / 2 } else { self.tile_n }
    }
}

/// Columns of a tile of the grouped kernel, as its contract chooses them.
pub(crate) fn grouped_tile(groups: usize, rows: usize, n: usize, multiprocessors: usize) -> u32 {
    let tiles = groups * (rows.div_ceil(groups)).div_ceil(128) * n.div_ceil(256);
    if tiles < multiprocessors { 128 } else { 256 }
}

impl Kernel for Fp8Gemm {
    fn spec(&self) -> &KernelSpec {
        &DENSE
    }
    fn check(&self, job: &Job) -> Result<()> {
        common(&DENSE, job, WGMMA)?;
        let (a, b) = (quantized(&DENSE, job.operands.a.first())?, quantized(&DENSE, job.operands.b.as_ref())?);
        mode(a, b)?;
        packed(&DENSE, a.cols())
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        needs_hopper(gpu, &DENSE)?;
        let (a, b) = (quantized(&DENSE, job.operands.a.first())?, quantized(&DENSE, job.operands.b.as_ref())?);
        let (m, n, k, mode) = (a.rows(), b.rows(), a.cols(), mode(a, b)?);
        let tiles = Tiles::of(m, n, gpu.info.multiprocessors);
        let mut defines = common(&DENSE, job, WGMMA)?;
        defines.extend(scale_options(job, mode));
        defines.extend(tiles.defines());
        let ((sa, _, sa_k), (sb, sb_row, sb_k)) = (lay_out(a, mode), lay_out(b, mode));
        let (codes_a, codes_b) = (gpu.upload(a.codes())?, gpu.upload(b.codes())?);
        let (sa, sb) = (gpu.upload_f32(&sa)?, gpu.upload_f32(&sb)?);
        let bias = job.operands.bias.as_ref().map(|bias| gpu.upload_f32(bias.data())).transpose()?;
        let side = Fp8Side::of(gpu, &job.out)?;
        let [scale_d, amax, scale_inv] = Fp8Side::args(side.as_ref());
        let size = element_bytes(&job.out);
        let d = gpu.output(m * n * size)?;
        let mut args = [
            tensor_map(&codes_a, m, k, k, 128)?,
            tensor_map(&codes_b, n, k, k, tiles.box_b())?,
            d.arg(),
            sa.arg(),
            sb.arg(),
            pointer(bias.as_ref()),
            scale_d,
            amax,
            scale_inv,
            Arg::Int(m as i32),
            Arg::Int(n as i32),
            Arg::Int(k as i32),
            Arg::Int(n as i32),
            Arg::Int(sa_k),
            Arg::Int(sb_row),
            Arg::Int(sb_k),
            Arg::Int(16),
        ];
        let launch = Launch {
            source: "fp8_gemm.cu",
            defines: &defines,
            entry: "fp8_gemm",
            grid: (tiles.grid, 1, 1),
            block: BLOCK,
            shared: SHARED,
        };
        // SAFETY: the arguments are contract fp8_gemm's, in its order; buffers have the sizes of m, n, k.
        unsafe { gpu.launch(&launch, &mut args)? };
        download(gpu, job, m, n, &d, side.as_ref().map(|s| (&s.amax, &s.scale_inv)))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        predict(job)
    }
}

/// Operands of a grouped product side by side, as the kernel reads them.
struct Packed<'a> {
    codes: Cow<'a, [u8]>,
    rows: usize,
    cols: usize,
    pitch: usize,
    scale_inv: Vec<f32>,
}

fn pack<'a>(o: Option<&'a Operand>) -> Result<Packed<'a>> {
    let line = |q: &QTensor| match scales(q)? {
        Scales::Tensor | Scales::Row => Ok(lay_out(q, 1).0),
        _ => Err(Error::unsupported(GROUPED.name, "it takes tensor and row scales")),
    };
    match o {
        Some(Operand::Quantized(q)) => {
            let (rows, cols) = (q.rows(), q.cols());
            Ok(Packed { codes: Cow::Borrowed(q.codes()), rows, cols, pitch: cols, scale_inv: line(q)? })
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
            Ok(Packed { codes: Cow::Owned(codes), rows, cols, pitch, scale_inv })
        }
        Some(Operand::Dynamic(d)) => {
            group_scales::check(d.x(), d.recipe())?;
            pack(Some(d.quantized()))
        }
        _ => Err(Error::unsupported(GROUPED.name, "operands are quantized tensors, or groups of them")),
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
        Some(Operand::Dynamic(d)) if job.operands.a.first().is_some_and(|a| std::ptr::eq(a, o.expect("matched"))) => {
            group_scales::quantize_columns(gpu, &d.x().transposed(), d.recipe(), offs, groups)
        }
        Some(Operand::Dynamic(d)) => group_scales::quantize_rows(gpu, d.x(), d.recipe(), offs, groups),
        _ => {
            let p = pack(o)?;
            let (codes, scale_inv) = (gpu.upload(&p.codes)?, gpu.upload_f32(&p.scale_inv)?);
            Ok(group_scales::Quantized { codes, scale_inv, rows: p.rows, cols: p.cols, pitch: p.pitch })
        }
    }
}

impl Kernel for GroupedGemm {
    fn spec(&self) -> &KernelSpec {
        &GROUPED
    }
    fn check(&self, job: &Job) -> Result<()> {
        common(&GROUPED, job, WGMMA)?;
        let (a, _) = (pack(job.operands.a.first())?, pack(job.operands.b.as_ref())?);
        packed(&GROUPED, a.pitch)?;
        match job.operands.offs.as_ref().map(Vec::len) {
            Some(1..=1024) if a.cols > 0 => Ok(()),
            groups => Err(Error::unsupported(
                GROUPED.name,
                format!("{groups:?} groups, K = {}: it takes 1 to 1024, K of at least 1", a.cols),
            )),
        }
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        needs_hopper(gpu, &GROUPED)?;
        let offs: Vec<i32> = job.operands.offs.iter().flatten().map(|o| *o as i32).collect();
        let (groups, tokens, offs) = (offs.len(), job.op == Op::GroupedGemmWgrad, gpu.upload_i32(&offs)?);
        let a = load(gpu, job, job.operands.a.first(), &offs)?;
        let b = load(gpu, job, job.operands.b.as_ref(), &offs)?;
        let (rows, n) = if tokens { (groups * a.rows, b.rows) } else { (a.rows, b.rows / groups) };
        let tile_n = grouped_tile(groups, rows, n, gpu.info.multiprocessors);
        let mut defines = common(&GROUPED, job, WGMMA)?;
        defines.extend([format!("-DTILE_N={tile_n}"), "-DCLUSTER=0".into()]);
        let d = gpu.output(rows * n * element_bytes(&job.out))?;
        let mut args = [
            tensor_map(&a.codes, a.rows, a.cols, a.pitch, 128)?,
            tensor_map(&b.codes, b.rows, b.cols, b.pitch, tile_n)?,
            d.arg(),
            a.scale_inv.arg(),
            b.scale_inv.arg(),
            offs.arg(),
            Arg::Int(groups as i32),
            Arg::Int(if tokens { a.rows as i32 } else { 0 }),
            Arg::Int(n as i32),
            Arg::Int(if tokens { 0 } else { a.cols as i32 }),
            Arg::Int(8),
        ];
        let launch = Launch {
            source: "grouped_gemm.cu",
            defines: &defines,
            entry: if tokens { "grouped_gemm_tokens" } else { "grouped_gemm_rows" },
            grid: (gpu.info.multiprocessors as u32, 1, 1),
            block: BLOCK,
            shared: SHARED,
        };
        // SAFETY: the arguments are the contract's, in its order; offs end within the rows (tokens), as Plan::of checked.
        unsafe { gpu.launch(&launch, &mut args)? };
        download(gpu, job, rows, n, &d, None)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        gemm::predict(&aligned(job)?).map(Some)
    }
}

/// The job whose groups along K begin where the kernel's do: at the last multiple of 16, with zeros before their first token. Zeros
/// change no sum but move the blocks of 32 that are added at once.
fn aligned(job: &Job) -> Result<Job> {
    let mut job = job.clone();
    let operands = &mut job.operands;
    for o in operands.a.iter_mut().chain(&mut operands.b) {
        *o = o.given().clone();
    }
    if let (Some(Operand::Groups(a)), Some(Operand::Groups(b)), Some(offs)) =
        (operands.a.first_mut(), operands.b.as_mut(), operands.offs.as_mut())
    {
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
