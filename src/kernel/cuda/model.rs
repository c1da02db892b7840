//! The device model in bulk on the GPU (`kernels/model_wgmma.cu`): what a product too large for the CPU's model must return.

use super::contract::{Contract, Pointer, arguments};
use super::launch::{Buffer, Gpu, Launch, LaunchShape, gpu};
use super::model_int;
use super::options::define;
use crate::job::{Job, Output};
use crate::kernel::{Modelled, Splits, judges_on_gpu};
use crate::model::gemm::{Epilogue, store};
use crate::model::product::{FactorRows, Kind, Plan, Problem};
use crate::model::{Accumulator, Inner};
use crate::parallel;
use crate::{Error, Format, QTensor, Result};
use std::ops::Range;
use std::sync::Arc;

/// Warps of a block along M and N: 128 × 128 outputs; stages of shared memory.
const WARPS: (usize, usize) = (4, 4);
const STAGES: usize = 6;
/// Bytes of the planes of 32 lines by 32 k.
const TILE: usize = 4096;
const SHARED: usize = STAGES * (WARPS.0 + WARPS.1) * TILE + 128;

arguments! {
    /// Contract model_planes.
    PlanesOf = "model_wgmma.cu" "model_planes" {
        codes: Pointer, planes: Pointer, special: Pointer, lines: usize, k: usize, pitch: usize,
    }
}

arguments! {
    /// Contract model_wgmma.
    Arguments = "model_wgmma.cu" "model_wgmma" {
        planes_a: Pointer, planes_b: Pointer, special_a: Pointer, special_b: Pointer, a: Pointer, b: Pointer, d: Pointer,
        m: usize, n: usize, k: usize, pitch_a: usize, pitch_b: usize,
    }
}

arguments! {
    /// Contract model_wgmma_naive.
    Naive = "model_wgmma.cu" "model_wgmma_naive" {
        a: Pointer, b: Pointer, d: Pointer, m: usize, n: usize, k: usize, pitch_a: usize, pitch_b: usize,
    }
}

arguments! {
    /// Contract model_scaled.
    Scaled = "model_wgmma.cu" "model_scaled" {
        sums: Pointer, scale_a: Pointer, scale_b: Pointer, y: Pointer, m: usize, n: usize, order: usize,
    }
}

arguments! {
    /// Contract model_added.
    Added = "model_wgmma.cu" "model_added" { part: Pointer, y: Pointer, count: u64 }
}

arguments! {
    /// Contract model_mismatches.
    Mismatches = "model_wgmma.cu" "model_mismatches" { x: Pointer, y: Pointer, count: u64, found: Pointer }
}

/// Products up to which the definition itself computes a case: some milliseconds of a core.
pub const DEFINED: u64 = 1 << 18;
/// Products from which the GPU's model is used instead of the CPU's in bulk.
pub const LARGE: u64 = 1 << 23;

/// What must come back: by the obvious definition; of more products in bulk, which is tested against it; of many on the GPU where it
/// has the accumulator.
pub fn predicted(job: &Job) -> Result<Output> {
    let plan = Plan::of(job)?;
    let products: u64 = plan.problems().map(|p| (p.a_rows.len() * p.b_rows.len() * p.a.k) as u64).sum();
    match products {
        0..=DEFINED => crate::model::gemm::predict(job),
        LARGE.. if on_gpu(&plan) => predict(job),
        _ => crate::kernel::cpu::product::run(job),
    }
}

/// FP8 codes on the device: `rows` rows, `pitch` apart.
pub struct Codes {
    buffer: Arc<Buffer>,
    pub format: Format,
    pub rows: usize,
    pub pitch: usize,
    /// Where the first row begins, and the first code of a row that is read.
    start: usize,
    from: usize,
}

impl Codes {
    /// Errors: a format that is not e4m3 or e5m2; rows that do not fit the pitch; out of memory.
    pub fn upload(gpu: &Gpu, format: Format, codes: &[u8], rows: usize, pitch: usize) -> Result<Codes> {
        Self::check(format)?;
        if rows == 0 || codes.len() != rows * pitch {
            let found = format!("{} codes in {rows} rows of {pitch}", codes.len());
            return Err(Error::shape("codes of the model", found, "rows × pitch codes, at least one row"));
        }
        Ok(Codes { buffer: Arc::new(gpu.upload(codes)?), format, rows, pitch, start: 0, from: 0 })
    }

    /// Some rows of a tensor, whose codes lie on the device once for all who judge. Errors: those of [`Codes::upload`].
    fn of(gpu: &Gpu, q: &QTensor, rows: &Range<usize>) -> Result<Codes> {
        Self::check(q.format())?;
        if rows.is_empty() || rows.end > q.rows() {
            return Err(Error::shape("codes of the model", format!("rows {rows:?}"), format!("some of {}", q.rows())));
        }
        let buffer = q.there().or_make(|| gpu.upload(q.codes()))?;
        Ok(Codes { buffer, format: q.format(), rows: rows.len(), pitch: q.cols(), start: rows.start * q.cols(), from: 0 })
    }

    fn check(format: Format) -> Result<()> {
        if !matches!(format, Format::E4m3 | Format::E5m2) {
            return Err(Error::unsupported(
                "the model of wgmma on the GPU",
                format!("it multiplies e4m3 and e5m2, not {format}"),
            ));
        }
        Ok(())
    }

    fn pointer(&self) -> Pointer {
        Pointer(self.buffer.pointer() + (self.start + self.from) as u64)
    }
}

/// The options of model_wgmma.
fn sums_of(a: Format, b: Format, promoted: bool) -> Vec<String> {
    vec![
        define("A_E5M2", a == Format::E5m2),
        define("B_E5M2", b == Format::E5m2),
        define("WARPS_M", WARPS.0),
        define("WARPS_N", WARPS.1),
        define("STAGES", STAGES),
        define("PROMOTE", promoted),
    ]
}

/// Those of model_planes.
fn side_of(sums: &[String], of_b: bool) -> Vec<String> {
    sums.iter().cloned().chain([define("SIDE_B", of_b)]).collect()
}

/// The options of model_wgmma for e4m3, and of model_planes for each side of it.
pub(super) fn defines(promoted: bool) -> [Vec<String>; 3] {
    let sums = sums_of(Format::E4m3, Format::E4m3, promoted);
    let (a, b) = (side_of(&sums, false), side_of(&sums, true));
    [sums, a, b]
}

/// One side taken apart as the kernel reads it.
struct Planes {
    planes: Buffer,
    special: Buffer,
}

/// The sums of the first `k` codes of every row of `a` and `b`: promoted every 128, or not at all.
pub struct Sums {
    a: Codes,
    b: Codes,
    k: usize,
    planes: [Planes; 2],
    /// f32, `[a.rows, b.rows]`.
    pub d: Buffer,
    defines: Vec<String>,
}

impl Sums {
    /// Takes the operands apart and makes room for the sums. Errors: a K that no row has; the launches'; out of memory.
    pub fn new(gpu: &Gpu, a: Codes, b: Codes, k: usize, promoted: bool) -> Result<Self> {
        if k == 0 || k > a.pitch.min(b.pitch) {
            return Err(Error::value("K of the model", k, format!("1 to {}, the length of a row", a.pitch.min(b.pitch))));
        }
        let defines = sums_of(a.format, b.format, promoted);
        let planes = [Planes::new(gpu, &a, k, WARPS.0)?, Planes::new(gpu, &b, k, WARPS.1)?];
        let d = gpu.output(a.rows * b.rows * 4)?;
        let sums = Sums { a, b, k, planes, d, defines };
        sums.take_apart(gpu)?;
        Ok(sums)
    }

    fn take_apart(&self, gpu: &Gpu) -> Result<()> {
        self.planes[0].fill(gpu, &self.a, self.k, WARPS.0, &self.defines, false)?;
        self.planes[1].fill(gpu, &self.b, self.k, WARPS.1, &self.defines, true)
    }

    /// The same sums over other codes of the rows, no more of them than before.
    fn move_to(&mut self, gpu: &Gpu, k: &Range<usize>) -> Result<()> {
        if k.len() > self.k || k.end > self.a.pitch.min(self.b.pitch) {
            return Err(Error::value("block of the model", format!("{k:?}"), format!("at most {} codes of a row", self.k)));
        }
        (self.a.from, self.b.from, self.k) = (k.start, k.start, k.len());
        self.take_apart(gpu)
    }

    /// Computes the sums, and waits. Errors: the launch's.
    pub fn run(&self, gpu: &Gpu) -> Result<()> {
        // SAFETY: everything was made for these sizes.
        unsafe { gpu.launch(self.launch()) }
    }

    /// Starts the same and does not wait.
    ///
    /// # Safety
    /// This lives until it ran.
    pub unsafe fn enqueue(&self, gpu: &Gpu) -> Result<()> {
        // SAFETY: as in `run`.
        unsafe { gpu.enqueue(self.launch()) }
    }

    fn launch(&self) -> Launch<'_> {
        let ([planes_a, planes_b], n) = (&self.planes, self.naive());
        let arguments = Arguments {
            planes_a: (&planes_a.planes).into(),
            planes_b: (&planes_b.planes).into(),
            special_a: (&planes_a.special).into(),
            special_b: (&planes_b.special).into(),
            a: n.a,
            b: n.b,
            d: n.d,
            m: n.m,
            n: n.n,
            k: n.k,
            pitch_a: n.pitch_a,
            pitch_b: n.pitch_b,
        };
        let blocks = |rows: usize, warps: usize| rows.div_ceil(32 * warps);
        let grid = [blocks(self.b.rows, WARPS.1), blocks(self.a.rows, WARPS.0)];
        arguments.launch(&self.defines, LaunchShape::of(grid, 32 * WARPS.0 * WARPS.1).shared(SHARED))
    }

    fn naive(&self) -> Naive {
        let (a, b) = (&self.a, &self.b);
        let (m, n, k, pitch_a, pitch_b) = (a.rows, b.rows, self.k, a.pitch, b.pitch);
        Naive { a: a.pointer(), b: b.pointer(), d: (&self.d).into(), m, n, k, pitch_a, pitch_b }
    }

    /// Computes the sums by the definition, one thread an output. Errors: the launch's.
    pub fn run_naive(&self, gpu: &Gpu) -> Result<()> {
        let grid = (self.b.rows.div_ceil(32) as u32, self.a.rows.div_ceil(8) as u32, 1);
        let shape = LaunchShape { grid, block: (32, 8, 1), shared: 0, dependent: false };
        // SAFETY: as in `run`.
        unsafe { gpu.launch(self.naive().launch(&self.defines, shape)) }
    }
}

impl Planes {
    /// Room for `k` codes of every row.
    fn new(gpu: &Gpu, side: &Codes, k: usize, warps: usize) -> Result<Self> {
        let tiles = side.rows.div_ceil(32 * warps) * warps;
        let special = gpu.upload(&vec![0u8; side.rows])?;
        Ok(Planes { planes: gpu.output(tiles * k.div_ceil(32) * TILE)?, special })
    }

    /// Of the first `k` codes. Rows that were not finite before stay marked: they go the long way, to the same sums.
    fn fill(&self, gpu: &Gpu, side: &Codes, k: usize, warps: usize, defines: &[String], of_b: bool) -> Result<()> {
        let tiles = side.rows.div_ceil(32 * warps) * warps;
        let defines = side_of(defines, of_b);
        let arguments = PlanesOf {
            codes: side.pointer(),
            planes: (&self.planes).into(),
            special: (&self.special).into(),
            lines: side.rows,
            k,
            pitch: side.pitch,
        };
        // SAFETY: tiles of 32 lines and 32 k, a byte of scratch for each line.
        unsafe { gpu.launch(arguments.launch(&defines, LaunchShape::of([tiles, k.div_ceil(32)], 128))) }
    }
}

/// How many 4-byte elements of two buffers differ. Errors: lengths that differ or no multiple of 4; the launch's.
pub fn mismatches(gpu: &Gpu, x: &Buffer, y: &Buffer) -> Result<u64> {
    if x.bytes() != y.bytes() || !x.bytes().is_multiple_of(4) {
        return Err(Error::shape("buffers to compare", format!("{} and {} bytes", x.bytes(), y.bytes()), "as many, in words"));
    }
    let found = gpu.upload(&[0u8; 8])?;
    let arguments = Mismatches { x: x.into(), y: y.into(), count: (x.bytes() / 4) as u64, found: (&found).into() };
    // SAFETY: both buffers hold this many words.
    unsafe { gpu.launch(arguments.launch(&[], LaunchShape::new(4096, 256)))? };
    let bytes = gpu.download("mismatches", &found, 8)?;
    Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Whether the GPU computes the model of this product.
fn on_gpu(plan: &Plan) -> bool {
    judges_on_gpu() && plan.kind == Kind::Scaled && takes(&plan.accumulator).is_some() && gpu().is_ok()
}

/// Whether the GPU's model has this accumulator: wgmma's, promoted every 128 or never.
pub fn takes(accumulator: &Accumulator) -> Option<bool> {
    match (accumulator.inner, accumulator.promote_every) {
        (Inner::Mma(m), every @ (None | Some(128))) if m.name == "hopper_wgmma" => Some(every.is_some()),
        _ => None,
    }
}

/// Everything a GEMM kernel must write for `job`: [`crate::model::gemm::predict`] with the sums from the GPU. Errors: no GPU; an
/// accumulator or factors that the model on the GPU does not have; out of device memory.
pub fn predict(job: &Job) -> Result<Output> {
    let gpu = gpu()?;
    let plan = Plan::of(job)?;
    let refuse = |why: String| Error::unsupported("the model of wgmma on the GPU", why);
    let promoted = takes(&plan.accumulator).ok_or_else(|| refuse(format!("it has hopper_wgmma, not {}", plan.accumulator)))?;
    if plan.kind != Kind::Scaled {
        return Err(refuse(format!("it multiplies FP8 codes, not {:?}", plan.kind)));
    }
    let mut values = vec![0.0f32; plan.rows * plan.cols];
    for p in plan.problems().filter(|p| p.a.k > 0 && !p.a_rows.is_empty() && !p.b_rows.is_empty()) {
        let from = p.out_row * plan.cols;
        problem(gpu, &plan, &p, promoted, &mut values[from..from + p.a_rows.len() * plan.cols])?;
    }
    store(job, &plan, values)
}

/// The values of one problem before the output rounding, into rows of the result.
fn problem(gpu: &Gpu, plan: &Plan, p: &Problem, promoted: bool, out: &mut [f32]) -> Result<()> {
    let (epilogue, n) = (Epilogue::of(plan, p), p.b_rows.len());
    let y = gpu.filled(p.a_rows.len() * n * 4, 0)?;
    left_there(gpu, p, &Way::of(plan, p, None)?, promoted, (&y).into())?;
    let values: Vec<f32> = gpu.download_whole("values of the model", &y)?;
    let out = &mut out[..p.a_rows.len() * plan.cols];
    parallel::chunks(out, plan.cols, |row, out| {
        let (values, i) = (&values[row * n..(row + 1) * n], p.a_rows.start + row);
        let s_a = p.a.scale_inv(i, 0);
        for (j, (out, y)) in out.iter_mut().zip(values).enumerate() {
            *out = epilogue.finish(*y, s_a, plan.bias.map(|bias| bias[p.b_rows.start + j]));
        }
    });
    Ok(())
}

/// The values of products of codes with one level of scales, or of integers, before bias and output rounding, `[M, N]` on the device; rows of no
/// product are zeros. `None` of other products. Errors: those of [`predict`].
pub fn values(gpu: &Gpu, of: &Modelled) -> Result<Option<Buffer>> {
    let plan = Plan::of(&of.job)?;
    let y = gpu.filled(plan.rows * plan.cols * 4, 0)?;
    if let (Kind::Integer, Some(p)) = (plan.kind, plan.problems().next()) {
        return model_int::values(gpu, &plan, &p, &y).map(|()| Some(y));
    }
    let (Some(promoted), Kind::Scaled) = (takes(&plan.accumulator), plan.kind) else { return Ok(None) };
    for p in plan.problems().filter(|p| p.a.k > 0 && !p.a_rows.is_empty() && !p.b_rows.is_empty()) {
        let to = Pointer(y.pointer() + (p.out_row * plan.cols * 4) as u64);
        left_there(gpu, &p, &Way::of(&plan, &p, of.splits.as_ref())?, promoted, to)?;
    }
    Ok(Some(y))
}

fn refused() -> Error {
    Error::unsupported("the model of wgmma on the GPU", "it multiplies codes")
}

/// How the sums of one problem become its values.
struct Way {
    /// The K of each split: their sums are added one after the other.
    splits: Vec<Range<usize>>,
    /// Where scales change along K: each is scaled and added by itself; none: the whole sum is scaled.
    blocks: Vec<Range<usize>>,
    /// How, as `model_scaled` numbers it.
    order: usize,
}

impl Way {
    /// Errors: a product that is not of codes.
    fn of(plan: &Plan, p: &Problem, splits: Option<&Splits>) -> Result<Self> {
        let order = Epilogue::of(plan, p).number().ok_or_else(refused)?;
        let (whole, order) = (vec![0..p.a.k], splits.map_or(order, |s| s.order));
        let by_blocks = (2..=4).contains(&order);
        Ok(Self {
            splits: splits.map_or(whole, |s| s.of_k.clone()),
            blocks: if by_blocks { p.blocks() } else { Vec::new() },
            order,
        })
    }
}

/// The values of one problem after the last block of K, at `y`, where zeros were.
fn left_there(gpu: &Gpu, p: &Problem, way: &Way, promoted: bool, y: Pointer) -> Result<()> {
    let (m, n) = (p.a_rows.len(), p.b_rows.len());
    let side =
        |side: &FactorRows, rows: &Range<usize>| -> Result<Codes> { Codes::of(gpu, side.scales().ok_or_else(refused)?, rows) };
    let summed = if way.blocks.is_empty() { &way.splits } else { &way.blocks };
    let widest = summed.iter().map(Range::len).max().unwrap_or(0);
    let mut sums = Sums::new(gpu, side(p.a, &p.a_rows)?, side(p.b, &p.b_rows)?, widest, promoted)?;
    let (everything, defines) = (LaunchShape::new(gpu.info.multiprocessors * 8, 256), sums.defines.clone());
    let scaled = |sums: Pointer, k: usize, y: Pointer| -> Result<()> {
        let of = |side: &FactorRows, rows: &Range<usize>| -> Vec<f32> { rows.clone().map(|i| side.scale_inv(i, k)).collect() };
        let (scale_a, scale_b) = (gpu.upload_f32(&of(p.a, &p.a_rows))?, gpu.upload_f32(&of(p.b, &p.b_rows))?);
        let (scale_a, scale_b, order) = ((&scale_a).into(), (&scale_b).into(), way.order);
        // SAFETY: sums and y are m × n, the scales m and n long.
        unsafe { gpu.launch(Scaled { sums, scale_a, scale_b, y, m, n, order }.launch(&defines, everything)) }
    };
    // SAFETY: both are m × n.
    let added = |part: &Buffer| unsafe {
        let arguments = Added { part: part.into(), y, count: (m * n) as u64 };
        gpu.launch(arguments.launch(&defines, everything))
    };
    if !way.blocks.is_empty() {
        for (i, split) in way.splits.iter().enumerate() {
            let part = if i == 0 { None } else { Some(gpu.filled(m * n * 4, 0)?) };
            for k in way.blocks.iter().filter(|k| split.contains(&k.start)) {
                sums.move_to(gpu, k)?;
                sums.run(gpu)?;
                scaled((&sums.d).into(), k.start, part.as_ref().map_or(y, Pointer::from))?;
            }
            part.as_ref().map(&added).transpose()?;
        }
        return Ok(());
    }
    for k in way.splits.iter().filter(|k| !k.is_empty()) {
        sums.move_to(gpu, k)?;
        sums.run(gpu)?;
        // Sums begin with +0 and are never -0: the first is added to zeros.
        if way.splits.len() > 1 {
            added(&sums.d)?;
        }
    }
    scaled(if way.splits.len() > 1 { y } else { (&sums.d).into() }, 0, y)
}
