//! W4A8 on the int8 tensor cores: `kernels/w4a8.cu` and `kernels/w4a8_wide.cu` (contracts there). An activation in high precision is quantized on the device first,
//! inside the product where its scale has its own type, else by `kernels/int4_quant.cu`.

use super::contract::{Contract, Pointer, arguments};
use super::elements::upload as upload_tensor;
use super::int4_quant::{Token, quantize_tokens};
use super::launch::{Buffer, Gpu, Launch, LaunchShape, gpu};
use super::model;
use super::options::{Type, define};
use super::output::{download, element_bytes, elements, type_option};
use super::w4a8_wide::Wide;
use crate::format::pack::{NibbleOrder, pack4};
use crate::job::{Job, Operand, OutSpec, Output};
use crate::kernel::{Backend, Kernel, KernelSpec, Modelled};
use crate::model::product::{Kind, Plan};
use crate::op::Op;
use crate::{Error, Format, Granularity, QTensor, Result, Zero};

pub struct W4a8;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/w4a8",
    backend: Backend::Cuda,
    ops: &[Op::Gemm],
    help: "int8 × int4 or uint4 on integer tensor cores: row and channel or group scales, zero points, dynamic quantization",
    source: "kernels/w4a8.cu",
};

pub(super) const SHARED_LIMIT: usize = 232_448;

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::unsupported(SPEC.name, why))
}

arguments! {
    /// Contract w4a8.
    Arguments = "w4a8.cu" "w4a8" {
        x: Pointer, w: Pointer, xs: Pointer, ws: Pointer, xz: Pointer, wz: Pointer, bias: Pointer, d: Pointer,
        xs_out: Pointer, m: usize, n: usize, k: usize, group_shift: usize, groups: usize,
    }
}

/// Buffers of one product: activations, weights, their scales and zero points; null what its options have no use for.
pub(crate) struct ProductBuffers<'a> {
    pub x: &'a Buffer,
    pub w: &'a Buffer,
    pub xs: Pointer,
    pub ws: &'a Buffer,
    pub xz: Pointer,
    pub wz: Pointer,
    pub bias: Pointer,
    pub d: &'a Buffer,
    /// Scales of tokens that are quantized on the way.
    pub xs_out: Pointer,
}

/// The options that say what the operands are.
#[derive(Clone, Copy)]
pub(crate) struct Formats {
    pub unsigned: bool,
    pub fused: bool,
    pub xzero: bool,
    pub wzero: bool,
    /// Of both operands' scales.
    pub scale: Type,
    pub out: Type,
}

/// How one CTA is cut (words of the contract).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tile {
    mt: usize,
    nt: usize,
    warps_f: usize,
    warps_t: usize,
    warps_k: usize,
    depth: usize,
    stage: usize,
}

impl Tile {
    const fn new(mt: usize, nt: usize, warps: [usize; 3], depth: usize, stage: usize) -> Self {
        let [warps_f, warps_t, warps_k] = warps;
        Self { mt, nt, warps_f, warps_t, warps_k, depth, stage }
    }
    fn features(&self) -> usize {
        16 * self.mt * self.warps_f
    }
    fn tokens(&self) -> usize {
        8 * self.nt * self.warps_t
    }
    fn shared(&self, s: &W4a8Sizes) -> usize {
        let parts = if s.grouped && self.warps_k > 1 { s.groups } else { self.warps_k };
        self.warps_k * self.tokens() * (128 * self.stage + 16)
            + 4 * (self.features() + 4) * self.tokens() * parts
            + self.features() * s.groups * (if s.weight_zero { 8 } else { 4 })
            + 8 * self.tokens()
            + 4 * self.features()
    }
    pub fn options(&self, s: &W4a8Sizes, f: Formats) -> Vec<String> {
        vec![
            define("UNSIGNED", f.unsigned),
            define("FUSED", f.fused),
            define("XZERO", f.xzero),
            define("WZERO", f.wzero),
            define("SCALE", f.scale),
            define("OUT", f.out),
            define("GROUPED", s.grouped),
            define("SMALL", s.small()),
            define("MT", self.mt),
            define("NT", self.nt),
            define("WARPS_F", self.warps_f),
            define("WARPS_T", self.warps_t),
            define("WARPS_K", self.warps_k),
            define("DEPTH", self.depth),
            define("STAGE", self.stage),
        ]
    }
    pub fn launch<'a>(&self, s: &W4a8Sizes, defines: &'a [String], on: &ProductBuffers) -> Launch<'a> {
        let arguments = Arguments {
            x: on.x.into(),
            w: on.w.into(),
            xs: on.xs,
            ws: on.ws.into(),
            xz: on.xz,
            wz: on.wz,
            bias: on.bias,
            d: on.d.into(),
            xs_out: on.xs_out,
            m: s.m,
            n: s.n,
            k: s.k,
            group_shift: s.group_shift,
            groups: s.groups,
        };
        let grid = [s.n.div_ceil(self.features()), s.m.div_ceil(self.tokens())];
        let blocks = LaunchShape::of(grid, 32 * self.warps_f * self.warps_t * self.warps_k).shared(self.shared(s));
        arguments.launch(defines, blocks)
    }
    /// Whether the contract allows it.
    fn fits(&self, s: &W4a8Sizes) -> bool {
        let slice = s.k.div_ceil(128).div_ceil(self.warps_k) * 128;
        let whole = !s.grouped || self.warps_k == 1 || (!s.small() && slice.is_multiple_of(1 << s.group_shift));
        whole && self.shared(s) <= SHARED_LIMIT
    }
}

/// The sizes a tile is chosen by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct W4a8Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub grouped: bool,
    pub group_shift: usize,
    pub groups: usize,
    pub weight_zero: bool,
}

impl W4a8Sizes {
    pub fn small(&self) -> bool {
        self.grouped && self.group_shift < 7
    }
    /// The fastest tile measured for such a shape (docs/tuning/mixed.md) that the contract allows.
    pub fn tile(&self) -> Result<Tile> {
        let fast = match (self.m, self.n, self.grouped) {
            (..=8, _, false) => Tile::new(2, 1, [1, 1, 8], 2, 8),
            (..=8, _, true) => Tile::new(2, 1, [2, 1, 8], 4, 8),
            (_, ..=512, false) => Tile::new(1, 2, [1, 1, 8], 2, 2),
            (_, ..=512, true) => Tile::new(1, 2, [1, 1, 16], 1, 1),
            (_, _, false) => Tile::new(2, 4, [2, 1, 4], 2, 2),
            (_, _, true) => Tile::new(1, 4, [4, 2, 1], 4, 8),
        };
        let nt = if self.m <= 8 { 1 } else { 4 };
        let plain = [Tile::new(1, nt, [4, 1, 1], 4, 8), Tile::new(1, 1, [4, 1, 1], 2, 2)];
        std::iter::once(fast).chain(plain).find(|t| t.fits(self)).ok_or_else(|| {
            let why = format!("{} groups along K = {}: their scales do not fit shared memory", self.groups, self.k);
            Error::unsupported(SPEC.name, why)
        })
    }
}

fn weights(job: &Job) -> Result<&QTensor> {
    match job.operands.b() {
        Some(Operand::Quantized(w)) => Ok(w),
        _ => refuse("weights are a quantized tensor"),
    }
}

/// Whether the numbers are quantized inside the product: scale and reciprocal in the numbers' own type.
fn fused(job: &Job) -> Result<bool> {
    match job.operands.a() {
        Operand::Dynamic(d) => {
            let out = matches!(job.out, OutSpec::High(f) if f == d.x().dtype());
            Ok(Token::of(d.recipe(), d.x().dtype())?.scale == d.x().dtype() && d.x().dtype() != Format::F32 && out)
        }
        _ => Ok(false),
    }
}

fn shape(job: &Job) -> Result<W4a8Sizes> {
    let plan = Plan::without_weights(job)?;
    if plan.kind != Kind::Integer {
        return refuse(format!("its operands are int8 and int4 or uint4, these are {:?}", plan.kind));
    }
    let p = plan.problems().next().ok_or_else(|| Error::unsupported(SPEC.name, "nothing to multiply"))?;
    let w = weights(job)?;
    if !matches!(w.format(), Format::Int4 | Format::Uint4) {
        return refuse(format!("weights are int4 or uint4, not {}", w.format()));
    }
    let (m, n, k) = (plan.rows, plan.cols, p.a.k);
    if m == 0 || n == 0 {
        return refuse("an empty operand starts no block");
    }
    if !k.is_multiple_of(32) {
        return refuse(format!("K = {k} is not a multiple of 32: packed rows are read in pieces of 16 bytes"));
    }
    if k > 131_040 {
        return refuse(format!("K = {k} is more than 131040: 128 · 16·8 · K, the largest sum, leaves int32"));
    }
    let zeros = |q: &QTensor| match q.zero() {
        Zero::Integer(z) => z.iter().fold((0, 0), |(low, high), z| (low.min(*z), high.max(*z))),
        _ => (0, 0),
    };
    let (low, high) = zeros(w);
    let (least, most) = if w.format() == Format::Int4 { (-8, 7) } else { (0, 15) };
    if low < least || high > most {
        return refuse(format!("weight zero points {low}..{high}: w − z is an int8 for {least}..{most}"));
    }
    if let Operand::Quantized(x) = job.operands.a() {
        let (low, high) = zeros(x);
        if low < -128 || high > 128 {
            return refuse(format!("activation zero points {low}..{high}: z times the weights' sum stays in int32 for ±128"));
        }
    }
    let grouped = p.blocks().len() > 1;
    let group_shift = match (w.granularity(), grouped) {
        (Granularity::Group(g), true) if g.is_power_of_two() && g >= 32 => g.trailing_zeros() as usize,
        (Granularity::Group(_) | Granularity::Row, false) => 30,
        (other, _) => {
            return refuse(format!("weight scales by {other}: it takes channels and groups of a power of two from 32"));
        }
    };
    let groups = if grouped { k.div_ceil(1 << group_shift) } else { 1 };
    Ok(W4a8Sizes { m, n, k, grouped, group_shift, groups, weight_zero: matches!(w.zero(), Zero::Integer(_)) })
}

/// The type of output and bias. Errors: a bias that it cannot hold.
fn out_format(job: &Job) -> Result<Format> {
    match (&job.out, &job.operands.bias) {
        (OutSpec::High(f), Some(bias)) if *f != Format::F32 && bias.dtype() != *f => {
            refuse(format!("a bias in {} with an output in {f}: they share a type, or the output is f32", bias.dtype()))
        }
        (OutSpec::High(f), _) => Ok(*f),
        _ => refuse("it writes f16, bf16 or f32"),
    }
}

/// The activation as the product reads it.
struct Activation {
    x: Buffer,
    scale: Option<Buffer>,
    zero: Option<Buffer>,
    /// Of the scales of both operands.
    scale_format: Format,
}

fn activation(gpu: &Gpu, job: &Job, w: &QTensor) -> Result<Activation> {
    // One type for both sides' scales: their own where they agree, else f32, which has every number of both.
    let common = |f: Format| if f == w.scale_format() { f } else { Format::F32 };
    match job.operands.a() {
        Operand::Dynamic(d) if fused(job)? => {
            let x = upload_tensor(gpu, d.x())?;
            Ok(Activation { x, scale: None, zero: None, scale_format: d.x().dtype() })
        }
        Operand::Dynamic(d) => {
            let t = quantize_tokens(gpu, d.recipe(), d.x())?;
            Ok(Activation { x: t.codes, scale: Some(t.scale), zero: t.zero, scale_format: t.scale_format })
        }
        Operand::Quantized(q) => {
            let scale_format = common(q.scale_format());
            let scale: Vec<f32> = (0..q.rows()).map(|i| q.scale_inv()[q.scale_index(i, 0)]).collect();
            let zero = match q.zero() {
                Zero::Integer(z) => {
                    let by_row: Vec<i32> = (0..q.rows()).map(|i| z[q.scale_index(i, 0)]).collect();
                    Some(gpu.upload_i32(&by_row)?)
                }
                _ => None,
            };
            let scale = gpu.upload(&elements(SPEC.name, "activation scales", scale_format, &scale)?)?;
            Ok(Activation { x: gpu.upload(q.codes())?, scale: Some(scale), zero, scale_format })
        }
        _ => refuse("activations are int8 codes, or numbers to be quantized by token"),
    }
}

impl Kernel for W4a8 {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        let s = shape(job)?;
        s.tile()?;
        out_format(job)?;
        let w = weights(job)?;
        if let Operand::Dynamic(d) = job.operands.a() {
            let scale = Token::of(d.recipe(), d.x().dtype())?.scale;
            if scale != Format::F32 && scale != w.scale_format() {
                return refuse(format!("activation scales in {scale} beside weight scales in {}", w.scale_format()));
            }
        }
        Ok(())
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let (s, w, out) = (shape(job)?, weights(job)?, out_format(job)?);
        let (t, fused) = (s.tile()?, fused(job)?);
        let a = activation(gpu, job, w)?;
        let codes = gpu.upload(&pack4(w.codes(), NibbleOrder::LowFirst)?)?;
        let scale = gpu.upload(&elements(SPEC.name, "weight scales", a.scale_format, w.scale_inv())?)?;
        let zero = match w.zero() {
            Zero::Integer(z) => Some(gpu.upload(&z.iter().map(|z| *z as i8 as u8).collect::<Vec<_>>())?),
            _ => None,
        };
        let bias = match &job.operands.bias {
            Some(bias) => Some(gpu.upload(&elements(SPEC.name, "bias", out, bias.data())?)?),
            None => None,
        };
        let d = gpu.output(s.m * s.n * element_bytes(&job.out))?;
        let scale_out = if fused { Some(gpu.output(4 * s.m)?) } else { None };
        let (scale_type, out_type) =
            (type_option(SPEC.name, "scales", a.scale_format)?, type_option(SPEC.name, "output", out)?);
        let on = ProductBuffers {
            x: &a.x,
            w: &codes,
            xs: a.scale.as_ref().into(),
            ws: &scale,
            xz: a.zero.as_ref().into(),
            wz: zero.as_ref().into(),
            bias: bias.as_ref().into(),
            d: &d,
            xs_out: scale_out.as_ref().into(),
        };
        let given = !fused && a.zero.is_none() && w.format() == Format::Int4;
        if let Some(wide) = Wide::of(&s, out, gpu.info.capability).filter(|_| given) {
            let defines = wide.options(scale_type, out_type);
            // SAFETY: buffers have the sizes of m, n, k and groups; Wide::of() and check() refused what the contract says, buffers are
            // aligned to 256 bytes.
            unsafe { gpu.launch(wide.launch(&s, &defines, &on)?)? };
            return download(gpu, job, s.m, s.n, &d, None);
        }
        let formats = Formats {
            unsigned: w.format() == Format::Uint4,
            fused,
            xzero: a.zero.is_some(),
            wzero: zero.is_some(),
            scale: scale_type,
            out: out_type,
        };
        let defines = t.options(&s, formats);
        // SAFETY: buffers have the sizes of m, n, k and groups; check() refused what the contract says the host refuses, buffers are
        // aligned to 256 bytes.
        unsafe { gpu.launch(t.launch(&s, &defines, &on))? };
        if let (Some(scale), Operand::Quantized(q)) = (&scale_out, job.operands.a().given()) {
            same_scales(&gpu.download("xs_out", scale, 4)?, q.scale_inv())?;
        }
        download(gpu, job, s.m, s.n, &d, None)
    }
    fn modelled<'a>(&self, job: &'a Job) -> Result<Option<Modelled<'a>>> {
        Ok(Some(Modelled::of(job)))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        model::predicted(job).map(Some)
    }
}

/// The scales that the product wrote beside its result are no part of [`Output`]: they are checked here. Errors: one differs.
fn same_scales(written: &[u8], expected: &[f32]) -> Result<()> {
    for (i, (found, expected)) in written.chunks_exact(4).zip(expected).enumerate() {
        let found = f32::from_le_bytes([found[0], found[1], found[2], found[3]]);
        if found.to_bits() != expected.to_bits() && !(found.is_nan() && expected.is_nan()) {
            return Err(Error::value(format!("token scale {i} written by {}", SPEC.name), found, format!("{expected}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(m: usize, n: usize, k: usize, group: Option<usize>) -> W4a8Sizes {
        let groups = group.map_or(1, |g| k.div_ceil(g));
        let group_shift = group.map_or(30, |g| g.trailing_zeros() as usize);
        W4a8Sizes { m, n, k, grouped: groups > 1, group_shift, groups, weight_zero: true }
    }

    #[test]
    fn every_tile_keeps_the_contract() {
        for m in [1, 8, 9, 33, 256] {
            for n in [1, 40, 512, 513, 8192] {
                for k in [32, 96, 384, 1024, 8192] {
                    for group in [None, Some(32), Some(64), Some(128), Some(256), Some(4096)] {
                        let s = shape(m, n, k, group);
                        let t = s.tile().unwrap();
                        assert!(t.shared(&s) <= SHARED_LIMIT, "{s:?} {t:?}");
                        assert_eq!(t.stage % t.depth, 0, "{t:?}");
                        if s.grouped && t.warps_k > 1 {
                            assert!(s.group_shift >= 7, "small groups want one slice of K: {s:?} {t:?}");
                            let slice = k.div_ceil(128).div_ceil(t.warps_k) * 128;
                            assert_eq!(slice % (1 << s.group_shift), 0, "{s:?} {t:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_scale_that_differs_is_named() {
        let bytes = [1.5f32, 2.0].map(f32::to_le_bytes).concat();
        same_scales(&bytes, &[1.5, 2.0]).unwrap();
        let why = same_scales(&bytes, &[1.5, 2.5]).unwrap_err().to_string();
        assert!(why.contains("token scale 1") && why.contains("2.5"), "{why}");
    }
}
