//! Mixed-input GEMM: integer weights dequantized to f16 or bf16 in registers. `kernels/mixed_stream.cu` takes at most 16 tokens, 4-bit weights
//! and slices of 512, `kernels/mixed_gemm.cu` the rest (contracts there).
//!
//! The accumulator says how K is cut: `hopper_mma` is one chain over K, `hopper_mma@N` (N a multiple of 128) a chain for every N of K,
//! added in f32 in ascending order. Inside a block of 128 the kernel takes k in the order of [`step_order`], which the prediction
//! follows.

use super::contract::{Contract, Pointer, arguments};
use super::elements::upload as upload_tensor;
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::mixed_stream::Stream;
use super::options::{Type, ZeroPoint, define};
use super::output::{download, elements, type_option};
use crate::format::pack::{NibbleOrder, pack4};
use crate::job::{Job, Operand, OutSpec, Output};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::accumulate::{accumulate, canonical};
use crate::model::product::{FactorRows, Kind, Plan};
use crate::model::{Accumulator, Inner, gemm};
use crate::op::Op;
use crate::parallel;
use crate::{Error, Format, Granularity, QTensor, Result, Zero};

pub struct MixedGemm;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/mixed_gemm",
    backend: Backend::Cuda,
    ops: &[Op::Gemm],
    help: "int4, uint4 and int8 weights × f16 or bf16 by mma.sync: group scales, additive or integer zero points, split K",
    source: "kernels/mixed_gemm.cu",
};

arguments! {
    /// Contract mixed_gemm.
    Arguments = "mixed_gemm.cu" "mixed_gemm" {
        w: Pointer, scale: Pointer, zero: Pointer, x: Pointer, bias: Pointer, d: Pointer, m: usize, n: usize, k: usize,
        group_shift: usize, scale_row: u64, scale_group: u64, d_row: u64, d_col: u64,
    }
}

arguments! {
    /// Contract mixed_reorder.
    Reorder = "mixed_gemm.cu" "mixed_reorder" { w: Pointer, out: Pointer, m: usize, k: usize }
}

/// k of a block.
const BLOCK: usize = 128;
const SHARED_LIMIT: usize = 232_448;

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::unsupported(SPEC.name, why))
}

/// In which order a block's 128 k are multiplied, 16 a tensor-core step: what a lane finds in one word of codes. `neighbours`: int8 codes, and
/// weights that were reordered to be streamed.
fn step_order(neighbours: bool) -> Vec<usize> {
    let k = |j: usize, t: usize, i: usize| match neighbours {
        true => 32 * t + 4 * j + i,
        false => 32 * t + 8 * (j / 2) + 2 * (j % 2) + (i & 1) + 4 * (i >> 1),
    };
    (0..8).flat_map(|j| (0..4).flat_map(move |t| (0..4).map(move |i| k(j, t, i)))).collect()
}

/// The sizes of a job and how its K is cut.
pub(super) struct MixedSizes {
    /// Features: rows of W.
    pub m: usize,
    /// Tokens: rows of X.
    pub n: usize,
    pub k: usize,
    /// Blocks of K in a slice.
    pub per_slice: usize,
    /// log2 of the group size, 30 for one group a row.
    pub group_shift: usize,
    pub groups: usize,
    pub zero: ZeroPoint,
}

/// How one CTA is cut (words of the contract).
#[derive(Clone, Copy, Debug)]
struct Tile {
    nt: usize,
    mt: usize,
    warps_m: usize,
    warps_k: usize,
    split: usize,
    depth: usize,
}

impl Tile {
    fn rows(&self) -> usize {
        16 * self.mt * self.warps_m
    }
    /// The scales of four blocks by one load.
    fn direct(&self, s: &MixedSizes) -> bool {
        s.zero == ZeroPoint::None
            && s.per_slice == 4
            && self.depth == 4
            && s.k.is_multiple_of(512)
            && matches!(s.group_shift, 6 | 7)
    }
    fn shared(&self, s: &MixedSizes) -> usize {
        let scale = if self.direct(s) { 0 } else { self.rows() * if s.zero == ZeroPoint::None { 8 } else { 16 } };
        self.warps_k * self.depth * (self.nt * 2048 + scale)
            + self.split * self.warps_k * self.rows().div_ceil(self.split) * self.nt * 32
    }
}

impl MixedSizes {
    pub fn blocks(&self) -> usize {
        self.k.div_ceil(BLOCK)
    }
    /// A tile that cuts K as the accumulator says. Errors: none does.
    fn tile(&self, weight: Format) -> Result<Tile> {
        let depth = if weight == Format::Int8 { 2 } else { 4 };
        let nt = [1, 2, 4, 8].into_iter().find(|nt| 8 * nt >= self.n).unwrap_or(8);
        let cuts = [2, 1, 4, 3].into_iter().flat_map(|warps_k| [8, 4, 2, 1].map(|split| (warps_k, split)));
        let tiles = cuts.flat_map(|(warps_k, split)| {
            let warps_m = if warps_k > 2 { 4 } else { 8 };
            [nt, nt.min(4), 1].map(|nt| Tile { nt, mt: 2, warps_m, warps_k, split, depth })
        });
        let cut = |t: &Tile| self.blocks().div_ceil(t.split * t.warps_k) == self.per_slice;
        tiles.filter(cut).find(|t| t.shared(self) <= SHARED_LIMIT).ok_or_else(|| {
            let (n, blocks) = (self.per_slice * BLOCK, self.blocks());
            Error::unsupported(
                SPEC.name,
                format!("{blocks} blocks of K in slices of {n}: at most 32 slices, none of them empty"),
            )
        })
    }
}

fn weights(job: &Job) -> Result<&QTensor> {
    match job.operands.b() {
        Some(Operand::Quantized(w)) => Ok(w),
        _ => refuse("weights are a quantized tensor"),
    }
}

fn zero_option(w: &QTensor, act: Format) -> Result<ZeroPoint> {
    match w.zero() {
        Zero::None => Ok(ZeroPoint::None),
        Zero::Additive { .. } => Ok(ZeroPoint::Additive),
        Zero::Integer(z) => {
            let most = if act == Format::Bf16 && w.format().bits() == 4 { 100 } else { 127 };
            match z.iter().find(|z| z.abs() > most) {
                Some(z) => refuse(format!("zero point {z}: codes minus zero points of up to {most} are exact in {act}")),
                None => Ok(ZeroPoint::Integer8),
            }
        }
    }
}

fn shape(job: &Job) -> Result<MixedSizes> {
    let plan = Plan::without_weights(job)?;
    let Operand::High(x) = job.operands.a() else {
        return refuse("activations are f16 or bf16, not quantized");
    };
    if plan.kind != Kind::Mixed {
        return refuse(format!("its operands are f16 or bf16 and integer weights, these are {:?}", plan.kind));
    }
    let (w, act) = (weights(job)?, x.dtype());
    if !matches!(w.format(), Format::Int4 | Format::Uint4 | Format::Int8) {
        return refuse(format!("weights are int4, uint4 or int8, not {}", w.format()));
    }
    if w.scale_format() != act || w.level().is_some() {
        return refuse(format!("scales in {} beside activations in {act}: they share a type, one level", w.scale_format()));
    }
    if !matches!(job.out, OutSpec::High(f) if f == act) || job.operands.bias.as_ref().is_some_and(|b| b.dtype() != act) {
        return refuse(format!("output and bias have the activations' type, {act}"));
    }
    let (m, n, k) = (w.rows(), x.rows(), x.cols());
    if m == 0 || n == 0 {
        return refuse("an empty operand starts no block");
    }
    if !k.is_multiple_of(32) {
        return refuse(format!("K = {k} is not a multiple of 32: packed rows are read in pieces of 16 bytes"));
    }
    let group_shift = match w.granularity() {
        Granularity::Row => 30,
        Granularity::Group(g) if g >= k => 30,
        Granularity::Group(g) if g.is_power_of_two() && g >= 32 => g.trailing_zeros() as usize,
        other => return refuse(format!("weight scales by {other}: it takes rows and groups of a power of two from 32")),
    };
    let blocks = k.div_ceil(BLOCK);
    let per_slice = match (plan.accumulator.inner, plan.accumulator.promote_every) {
        (Inner::Mma(m), None) if m.name == "hopper_mma" => blocks,
        (Inner::Mma(m), Some(n)) if m.name == "hopper_mma" && n.is_multiple_of(BLOCK) => (n / BLOCK).min(blocks),
        _ => {
            let found = plan.accumulator;
            return refuse(format!("it accumulates as hopper_mma, or hopper_mma@N with N a multiple of 128, not {found}"));
        }
    };
    let groups = if group_shift == 30 { 1 } else { k.div_ceil(1 << group_shift) };
    Ok(MixedSizes { m, n, k, per_slice, group_shift, groups, zero: zero_option(w, act)? })
}

/// The operands on the device, the weights packed and as they are.
pub(super) struct Inputs {
    pub w: Buffer,
    pub scale: Buffer,
    pub zero: Buffer,
    pub x: Buffer,
    bias: Option<Buffer>,
}

impl Inputs {
    pub fn bias(&self) -> Pointer {
        self.bias.as_ref().into()
    }
}

pub(super) fn upload(gpu: &Gpu, job: &Job) -> Result<Inputs> {
    let (w, Operand::High(x)) = (weights(job)?, job.operands.a()) else {
        return refuse("activations are f16 or bf16, not quantized");
    };
    let packed = if w.format() == Format::Int8 { w.codes().to_vec() } else { pack4(w.codes(), NibbleOrder::LowFirst)? };
    let zero = match w.zero() {
        Zero::None => Vec::new(),
        Zero::Integer(z) => z.iter().map(|z| *z as i8 as u8).collect(),
        Zero::Additive { zero, .. } => elements(SPEC.name, "additive zero points", x.dtype(), zero)?,
    };
    let bias = match &job.operands.bias {
        Some(bias) => Some(upload_tensor(gpu, bias)?),
        None => None,
    };
    let scale = gpu.upload(&elements(SPEC.name, "scales", x.dtype(), w.scale_inv())?)?;
    Ok(Inputs { w: gpu.upload(&packed)?, scale, zero: gpu.upload(&zero)?, x: upload_tensor(gpu, x)?, bias })
}

/// The weights as mixed_gemm's TILED reads them.
fn tile(gpu: &Gpu, job: &Job, s: &MixedSizes, inputs: &Inputs) -> Result<Buffer> {
    let pieces = s.m.div_ceil(16) * s.blocks() * if weights(job)?.format() == Format::Int8 { 128 } else { 64 };
    let (tiled, defines) = (gpu.output(pieces * 16)?, formats(job, s)?);
    let arguments = Reorder { w: (&inputs.w).into(), out: (&tiled).into(), m: s.m, k: s.k };
    // SAFETY: `tiled` has 16 bytes a piece.
    unsafe { gpu.launch(arguments.launch(&defines, LaunchShape::new(pieces.div_ceil(256), 256)))? };
    Ok(tiled)
}

/// Options that say what the operands are.
pub(super) fn formats(job: &Job, s: &MixedSizes) -> Result<Vec<String>> {
    let w = weights(job)?;
    let mid = if let Zero::Additive { mid, .. } = w.zero() { *mid } else { 0 };
    let weight = Type::of(w.format()).expect("shape() knows it");
    Ok(format_options(weight, type_option(SPEC.name, "activations", w.scale_format())?, s.zero, mid))
}

/// Options of `common/mixed.cuh`.
pub(super) fn format_options(weight: Type, input: Type, zero: ZeroPoint, mid: i32) -> Vec<String> {
    vec![define("WEIGHT", weight), define("IN", input), define("ZERO", zero), define("MID", mid)]
}

/// Options of the contract but TILED.
fn options(job: &Job, s: &MixedSizes, t: &Tile) -> Result<Vec<String>> {
    let group = if t.direct(s) { 1 << s.group_shift } else { 0 };
    let cut = [
        ("NT", t.nt),
        ("MT", t.mt),
        ("WARPS_M", t.warps_m),
        ("WARPS_K", t.warps_k),
        ("SPLIT", t.split),
        ("DEPTH", t.depth),
        ("ONE_STAGE", usize::from(s.per_slice <= t.depth)),
        ("GROUP", group),
        ("UNROLL", 4),
    ];
    Ok(formats(job, s)?.into_iter().chain(cut.map(|(name, value)| define(name, value))).collect())
}

impl Kernel for MixedGemm {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        shape(job)?.tile(weights(job)?.format()).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        if gpu.info.capability.0 != 9 {
            let (major, minor) = gpu.info.capability;
            return refuse(format!("hopper_mma is compute capability 9.x, this is {major}.{minor}"));
        }
        let (s, weight) = (shape(job)?, weights(job)?.format());
        let inputs = upload(gpu, job)?;
        if let Some(stream) = Stream::of(&s, weight) {
            return stream.run(gpu, job, &s, &inputs);
        }
        let (t, reordered) = (s.tile(weight)?, tile(gpu, job, &s, &inputs)?);
        let plain = whole(gpu, job, &s, &t, &inputs, None)?;
        let tiled = whole(gpu, job, &s, &t, &inputs, Some(&reordered))?;
        match plain == tiled {
            true => Ok(plain),
            false => Err(Error::value(SPEC.name, "other bits from tiled weights", "the same from both layouts")),
        }
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        let plan = Plan::of(job)?;
        let s = shape(job)?;
        let p = plan.problems().next().ok_or_else(|| Error::unsupported(SPEC.name, "nothing to multiply"))?;
        let weight = weights(job)?.format();
        let order = step_order(weight == Format::Int8 || Stream::of(&s, weight).is_some());
        let accumulator = Accumulator { promote_every: Some(s.per_slice * BLOCK), ..plan.accumulator };
        let (x, w) = (in_step_order(p.a, &order), in_step_order(p.b, &order));
        let k = s.blocks() * BLOCK;
        let (rows, columns): (Vec<_>, Vec<_>) = (x.chunks(k).collect(), w.chunks(k).collect());
        let one = |at: usize| {
            let (x, w) = (rows[at / columns.len()], columns[at % columns.len()]);
            accumulate(&accumulator, p.a.format, p.b.format, x, w)
        };
        let values: Vec<f32> = parallel::collect(rows.len() * columns.len(), one).into_iter().collect::<Result<_>>()?;
        let biased = values.iter().enumerate().map(|(i, v)| canonical(plan.bias.map_or(*v, |bias| v + bias[i % s.m])));
        gemm::store(job, &plan, biased.collect()).map(Some)
    }
}

/// One launch of mixed_gemm, with the weights as they are or tiled.
fn whole(gpu: &Gpu, job: &Job, s: &MixedSizes, t: &Tile, inputs: &Inputs, tiled: Option<&Buffer>) -> Result<Output> {
    let mut defines = options(job, s, t)?;
    defines.push(define("TILED", tiled.is_some()));
    let d = gpu.output(s.m * s.n * 2)?;
    let arguments = Arguments {
        w: tiled.unwrap_or(&inputs.w).into(),
        scale: (&inputs.scale).into(),
        zero: (&inputs.zero).into(),
        x: (&inputs.x).into(),
        bias: inputs.bias(),
        d: (&d).into(),
        m: s.m,
        n: s.n,
        k: s.k,
        group_shift: s.group_shift,
        scale_row: s.groups as u64,
        scale_group: 1,
        d_row: 1,
        d_col: s.m as u64,
    };
    let grid = [t.split * s.m.div_ceil(t.rows()), s.n.div_ceil(8 * t.nt)];
    let blocks = LaunchShape::of(grid, 32 * t.warps_m * t.warps_k).shared(t.shared(s));
    // SAFETY: buffers have the sizes of m, n, k and groups; check() refused what the contract says the host refuses, buffers are aligned
    // to 256 bytes.
    unsafe { gpu.launch(arguments.launch(&defines, blocks))? };
    download(gpu, job, s.n, s.m, &d, None)
}

/// The rows of a side, each padded with zeros to whole blocks, the k of a block in the order they are multiplied in.
fn in_step_order(side: &FactorRows, order: &[usize]) -> Vec<f32> {
    let padded = side.k.next_multiple_of(BLOCK);
    let mut row = vec![0.0; padded];
    let mut out = Vec::with_capacity(side.rows * padded);
    for i in 0..side.rows {
        side.fill(i, 0..side.k, &mut row[..side.k]);
        out.extend(row.chunks(BLOCK).flat_map(|block| order.iter().map(|k| block[*k])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_k_of_a_block_is_multiplied_once() {
        for neighbours in [false, true] {
            let mut order = step_order(neighbours);
            assert_ne!(order, (0..BLOCK).collect::<Vec<_>>());
            order.sort_unstable();
            assert_eq!(order, (0..BLOCK).collect::<Vec<_>>(), "{neighbours}");
        }
        assert_eq!(step_order(false)[..8], [0, 1, 4, 5, 32, 33, 36, 37]);
        assert_eq!(step_order(true)[..8], [0, 1, 2, 3, 32, 33, 34, 35]);
    }

    #[test]
    fn tiles_cut_k_as_the_accumulator_says() {
        for n in [1, 16, 33, 64] {
            for k in [32usize, 384, 1024, 8192] {
                for slice in [1, 2, 4, 8, usize::MAX] {
                    for (zero, weight) in [
                        (ZeroPoint::None, Format::Int4),
                        (ZeroPoint::Additive, Format::Int4),
                        (ZeroPoint::Integer8, Format::Int8),
                    ] {
                        let per_slice = slice.min(k.div_ceil(BLOCK));
                        let s = MixedSizes { m: 100, n, k, per_slice, group_shift: 6, groups: k / 64, zero };
                        let slices = s.blocks().div_ceil(per_slice);
                        match s.tile(weight) {
                            Ok(t) => {
                                assert_eq!(s.blocks().div_ceil(t.split * t.warps_k), per_slice, "{t:?}");
                                assert!(t.shared(&s) <= SHARED_LIMIT, "{t:?}");
                                assert_eq!(8 * t.warps_m % t.depth, 0, "{t:?}");
                            }
                            Err(e) => assert!(slices > 16, "{slices} slices: {e}"),
                        }
                    }
                }
            }
        }
    }
}
