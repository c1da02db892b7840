//! FP8 GEMM by wgmma: `kernels/fp8_gemm.cu` (contract there).

use super::contract::{Contract, Map, Pointer, arguments};
use super::launch::{Buffer, Gpu, Launch, LaunchShape, gpu, tensor_map};
use super::model;
use super::operand::Fp8Side;
use super::options::{ScaleLayout, Type, define};
use super::output::{download, element_bytes};
use crate::job::{Job, Operand, OutSpec, Output};
use crate::kernel::{Backend, Kernel, KernelSpec, Modelled};
use crate::model::product::{Kind, Plan};
use crate::model::{Inner, ScaleOrder};
use crate::op::Op;
use crate::{Error, Format, Granularity, QTensor, Result};

const THREADS: usize = 384;
const SHARED: usize = 232_448;
pub(super) const WGMMA: &[&str] = &["hopper_wgmma"];

pub struct Fp8Gemm;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/fp8_gemm",
    backend: Backend::Cuda,
    ops: &[Op::Gemm],
    help: "e4m3, e5m2 by wgmma: tensor, row, 1x128 and 128x128 scales, bias, FP8 output with amax",
    source: "kernels/fp8_gemm.cu",
};

arguments! {
    /// Contract fp8_gemm.
    Arguments = "fp8_gemm.cu" "fp8_gemm" {
        map_a: Map, map_b: Map, d: Pointer, scale_a: Pointer, scale_b: Pointer, bias: Pointer, scale_d: Pointer,
        amax_d: Pointer, scale_inv_d: Pointer, m: usize, n: usize, k: usize, ldd: usize, sa_k: usize, sb_row: usize,
        sb_k: usize, band: usize,
    }
}

/// The options of `common/fp8_epilogue.cuh`; by default e4m3 to bf16 by one scale each, one chain over K.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub a: Format,
    pub b: Format,
    pub out: Type,
    /// Sums go to f32 registers every 128 of K.
    pub promote: bool,
    pub scales: ScaleLayout,
    pub scales_first: bool,
    pub bias: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            a: Format::E4m3,
            b: Format::E4m3,
            out: Type::Bf16,
            promote: false,
            scales: ScaleLayout::ByTensor,
            scales_first: false,
            bias: false,
        }
    }
}

impl Options {
    /// Of a product by row scales, which have no more.
    pub fn by_rows(&self) -> Vec<String> {
        vec![
            define("A_E5M2", self.a == Format::E5m2),
            define("B_E5M2", self.b == Format::E5m2),
            define("OUT", self.out),
            define("PROMOTE", self.promote),
        ]
    }
    /// Of a dense product.
    pub fn dense(&self) -> Vec<String> {
        let mut all = self.by_rows();
        all.extend([define("SCALES", self.scales), define("SCALES_FIRST", self.scales_first), define("BIAS", self.bias)]);
        all
    }
}

/// How an operand's scales lie, in the words of `common/fp8_epilogue.cuh`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ScaleTile {
    Tensor,
    Row,
    Line,
    Square,
}

pub(super) fn scales(q: &QTensor) -> Result<ScaleTile> {
    if q.level().is_some() {
        return Err(Error::unsupported("cuda FP8 GEMM", "it has one level of scales"));
    }
    match q.granularity() {
        Granularity::Tensor => Ok(ScaleTile::Tensor),
        Granularity::Row => Ok(ScaleTile::Row),
        Granularity::Group(128) | Granularity::Block { rows: 1, cols: 128 } => Ok(ScaleTile::Line),
        Granularity::Block { rows: 128, cols: 128 } => Ok(ScaleTile::Square),
        other => {
            Err(Error::unsupported("cuda FP8 GEMM", format!("it takes tensor, row, 1x128 and 128x128 scales, not {other}")))
        }
    }
}

/// What the FP8 GEMMs refuse, and the options that all of them have. `instructions`: the accumulators of the kernel's tensor-core instruction, by device.
pub(super) fn common(spec: &KernelSpec, job: &Job, instructions: &[&str]) -> Result<Options> {
    let refuse = |why: String| Err(Error::unsupported(spec.name, why));
    let plan = Plan::without_weights(job)?;
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
    let writes = "it writes bf16, f16, f32, e4m3 or e5m2";
    let out = match &job.out {
        OutSpec::High(f) => Type::of(*f).filter(|t| t.is_high()),
        OutSpec::Scaled { scale, .. } if scale[0].is_none() => return refuse("scale_d is null: FP8 outputs need one".into()),
        OutSpec::Scaled { format, .. } => Type::of(*format).filter(|t| t.is_fp8()),
        OutSpec::Recipe(_) => None,
    };
    let out = out.ok_or_else(|| Error::unsupported(spec.name, writes))?;
    Ok(Options { a: p.a.format, b: p.b.format, out, promote, ..Options::default() })
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

/// SCALES of both operands. Errors: a combination that the kernels do not have.
fn layout(a: &QTensor, b: &QTensor) -> Result<ScaleLayout> {
    match (scales(a)?, scales(b)?) {
        (ScaleTile::Tensor, ScaleTile::Tensor) => Ok(ScaleLayout::ByTensor),
        (ScaleTile::Tensor | ScaleTile::Row, ScaleTile::Tensor | ScaleTile::Row) => Ok(ScaleLayout::ByRow),
        (ScaleTile::Line, ScaleTile::Square) => Ok(ScaleLayout::LineSquare),
        (ScaleTile::Line, ScaleTile::Line) => Ok(ScaleLayout::LineLine),
        _ => Err(Error::unsupported("cuda/fp8_gemm", "block scales are 1x128 of A with 1x128 or 128x128 of B")),
    }
}

/// Scales as the kernel reads them, with the strides (row, k); `repeat`: a tensor's one scale for every row.
pub(crate) fn lay_out(q: &QTensor, repeat: bool) -> (Vec<f32>, usize, usize) {
    let s = q.scale_inv();
    let blocks = q.cols().div_ceil(128);
    match q.granularity() {
        Granularity::Tensor if repeat => (vec![s[0]; q.rows()], 0, 0),
        Granularity::Tensor | Granularity::Row => (s.to_vec(), 0, 0),
        Granularity::Block { rows: 128, .. } => {
            let pitch = blocks.next_multiple_of(4);
            let mut out = vec![f32::NAN; q.rows().div_ceil(128) * pitch];
            s.chunks(blocks).enumerate().for_each(|(i, row)| out[i * pitch..i * pitch + blocks].copy_from_slice(row));
            (out, pitch, 1)
        }
        _ => {
            let pitch = q.rows().next_multiple_of(4);
            let mut out = vec![f32::NAN; blocks * pitch];
            for i in 0..q.rows() {
                (0..blocks).for_each(|b| out[b * pitch + i] = s[i * blocks + b]);
            }
            (out, 0, pitch)
        }
    }
}

/// Codes from which those who judge have them on the device, too: one way over the bus is enough then.
const SHARED_CODES: usize = 1 << 20;

/// The codes of a tensor in a buffer of the kernel's own, which it may harm.
pub(super) fn own_codes(gpu: &Gpu, q: &QTensor) -> Result<Buffer> {
    if q.count() < SHARED_CODES {
        return gpu.upload(q.codes());
    }
    gpu.copied(&*q.there().or_make(|| gpu.upload(q.codes()))?)
}

/// A dense job on the device, with room for its result.
pub(super) struct Uploaded {
    pub a: Buffer,
    pub b: Buffer,
    pub d: Buffer,
    scales: [Buffer; 2],
    bias: Option<Buffer>,
    side: Option<Fp8Side>,
    /// sa_k, sb_row, sb_k.
    pub strides: [usize; 3],
    pub sizes: [usize; 3],
}

/// Both operands. Errors: one that is not quantized.
fn operands<'a>(spec: &KernelSpec, job: &'a Job) -> Result<(&'a QTensor, &'a QTensor)> {
    Ok((quantized(spec, job.operands.get(0))?, quantized(spec, job.operands.b())?))
}

/// The options of a dense job. Errors: what the kernel of `spec` refuses.
pub(super) fn options(spec: &KernelSpec, job: &Job, instructions: &[&str]) -> Result<Options> {
    let options = common(spec, job, instructions)?;
    let (a, b) = operands(spec, job)?;
    let scales = layout(a, b)?;
    packed(spec, a.cols())?;
    let blocks = scales >= ScaleLayout::LineSquare;
    let scales_first = blocks && job.accumulator.is_some_and(|a| a.scale_order == ScaleOrder::ScalesFirst);
    Ok(Options { scales, scales_first, bias: job.operands.bias.is_some(), ..options })
}

impl Uploaded {
    pub fn of(gpu: &Gpu, spec: &KernelSpec, job: &Job) -> Result<Self> {
        let (a, b) = operands(spec, job)?;
        let repeat = layout(a, b)? == ScaleLayout::ByRow;
        let ((sa, _, sa_k), (sb, sb_row, sb_k)) = (lay_out(a, repeat), lay_out(b, repeat));
        Ok(Self {
            a: own_codes(gpu, a)?,
            b: own_codes(gpu, b)?,
            d: gpu.output(a.rows() * b.rows() * element_bytes(&job.out))?,
            scales: [gpu.upload_f32(&sa)?, gpu.upload_f32(&sb)?],
            bias: job.operands.bias.as_ref().map(|bias| gpu.upload_f32(bias.data())).transpose()?,
            side: Fp8Side::of(gpu, &job.out)?,
            strides: [sa_k, sb_row, sb_k],
            sizes: [a.rows(), b.rows(), a.cols()],
        })
    }
    pub fn scales(&self) -> [Pointer; 2] {
        [Pointer::from(&self.scales[0]), Pointer::from(&self.scales[1])]
    }
    pub fn bias(&self) -> Pointer {
        Pointer::from(self.bias.as_ref())
    }
    /// scale, amax and scale_inv of an FP8 result.
    pub fn side(&self) -> [Pointer; 3] {
        Fp8Side::args(self.side.as_ref())
    }
    pub fn download(&self, gpu: &Gpu, job: &Job) -> Result<Output> {
        let [m, n, _] = self.sizes;
        download(gpu, job, m, n, &self.d, self.side.as_ref())
    }
}

pub(super) fn needs_hopper(gpu: &Gpu, spec: &KernelSpec) -> Result<()> {
    match gpu.info.capability {
        (9, 0) => Ok(()),
        (major, minor) => {
            Err(Error::unsupported(spec.name, format!("wgmma needs compute capability 9.0, this is {major}.{minor}")))
        }
    }
}

/// Tiles of the dense kernel, as its contract chooses them.
#[derive(Clone, Copy)]
struct Tiles {
    tile_n: usize,
    cluster: bool,
    grid: usize,
}

impl Tiles {
    fn of(m: usize, n: usize, multiprocessors: usize) -> Self {
        let few = m.div_ceil(128) * n.div_ceil(256) < multiprocessors;
        let (tile_n, cluster, blocks) = if few { (128, false, 1) } else { (256, true, 2) };
        let tiles = m.div_ceil(128 * blocks) * n.div_ceil(tile_n);
        let grid = (multiprocessors / blocks * blocks).min(blocks * tiles);
        Self { tile_n, cluster, grid }
    }
    /// Rows of B that one box of its tensor map holds.
    fn box_b(self) -> usize {
        if self.cluster { self.tile_n / 2 } else { self.tile_n }
    }
}

/// The options of `common/fp8_pipeline.cuh`.
pub(super) fn tile_options(tile_n: usize, cluster: bool) -> [String; 2] {
    [define("TILE_N", tile_n), define("CLUSTER", cluster)]
}

/// Blocks of both wgmma kernels.
pub(super) fn blocks(grid: usize) -> LaunchShape {
    LaunchShape::new(grid, THREADS).shared(SHARED)
}

/// A product of one size, compiled once, started by kernel, bench and scenario.
pub(crate) struct Dense {
    sizes: [usize; 3],
    tiles: Tiles,
    defines: Vec<String>,
}

/// What one start of it reads and writes. All pointers stay null where the options have no use for them.
pub(crate) struct Buffers<'a> {
    pub a: &'a Buffer,
    pub b: &'a Buffer,
    pub d: &'a Buffer,
    /// scale_inv of a and b.
    pub scales: [Pointer; 2],
    pub bias: Pointer,
    /// scale, amax and scale_inv of an FP8 result.
    pub side: [Pointer; 3],
    /// sa_k, sb_row, sb_k of block scales.
    pub strides: [usize; 3],
}

impl<'a> Buffers<'a> {
    /// By tensor or row scales, with nothing else.
    pub fn plain(a: &'a Buffer, b: &'a Buffer, d: &'a Buffer, scales: [Pointer; 2]) -> Self {
        Self { a, b, d, scales, bias: Pointer::NULL, side: [Pointer::NULL; 3], strides: [0; 3] }
    }
}

impl Dense {
    /// `D[m,n]` of `A[m,k]`, `B[n,k]`.
    pub fn new(gpu: &Gpu, options: Options, sizes: [usize; 3]) -> Self {
        let tiles = Tiles::of(sizes[0], sizes[1], gpu.info.multiprocessors);
        let mut defines = options.dense();
        defines.extend(tile_options(tiles.tile_n, tiles.cluster));
        Self { sizes, tiles, defines }
    }
    /// Errors: the driver's, for the maps.
    pub fn launch(&self, on: &Buffers) -> Result<Launch<'_>> {
        let [m, n, k] = self.sizes;
        let ([scale_a, scale_b], [scale_d, amax_d, scale_inv_d], [sa_k, sb_row, sb_k]) = (on.scales, on.side, on.strides);
        let arguments = Arguments {
            map_a: tensor_map(on.a, m, k, k, 128)?,
            map_b: tensor_map(on.b, n, k, k, self.tiles.box_b() as u32)?,
            d: on.d.into(),
            scale_a,
            scale_b,
            bias: on.bias,
            scale_d,
            amax_d,
            scale_inv_d,
            m,
            n,
            k,
            ldd: n,
            sa_k,
            sb_row,
            sb_k,
            band: 16,
        };
        Ok(arguments.launch(&self.defines, blocks(self.tiles.grid)))
    }
}

impl Kernel for Fp8Gemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        options(&SPEC, job, WGMMA).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        let options = options(&SPEC, job, WGMMA)?;
        let gpu = gpu()?;
        needs_hopper(gpu, &SPEC)?;
        let on = Uploaded::of(gpu, &SPEC, job)?;
        let dense = Dense::new(gpu, options, on.sizes);
        let buffers = Buffers {
            bias: on.bias(),
            side: on.side(),
            strides: on.strides,
            ..Buffers::plain(&on.a, &on.b, &on.d, on.scales())
        };
        // SAFETY: buffers have the sizes of m, n, k.
        unsafe { gpu.launch(dense.launch(&buffers)?)? };
        on.download(gpu, job)
    }
    fn modelled<'a>(&self, job: &'a Job) -> Result<Option<Modelled<'a>>> {
        Ok(Some(Modelled::of(job)))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        model::predicted(job).map(Some)
    }
}
