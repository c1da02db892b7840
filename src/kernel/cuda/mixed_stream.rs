//! The weights of few tokens streamed at once: `kernels/mixed_stream.cu` (contract there), launched by [`super::mixed_gemm`].

use super::contract::{Contract, Pointer, arguments};
use super::launch::{Buffer, Gpu, Launch, LaunchShape};
use super::mixed_gemm::{Inputs, MixedSizes, format_options, formats};
use super::options::{Type, ZeroPoint, define};
use super::output::download;
use super::timed::{Timed, normals, rotation, uploads};
use crate::job::{Job, Output};
use crate::{Error, Format, Result};

arguments! {
    /// Contract mixed_stream.
    Arguments = "mixed_stream.cu" "mixed_stream" {
        w: Pointer, x: Pointer, bias: Pointer, d: Pointer, m: usize, n: usize, k: usize, d_row: u64, d_col: u64,
    }
}

arguments! {
    /// Contract mixed_stream_reorder.
    Reorder = "mixed_stream.cu" "mixed_stream_reorder" {
        w: Pointer, scale: Pointer, zero: Pointer, out: Pointer, m: usize, k: usize, group_shift: usize, scale_row: u64,
    }
}

/// Bytes of the codes of 32 rows of a slice.
const CODES: usize = 8192;

/// How a cluster is cut (words of the contract).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    split: usize,
    /// log2 of the group size, 5 to 9.
    shift: usize,
    /// Whether there are zero points.
    zero: bool,
}

impl Stream {
    const WARPS_M: usize = 8;
    const WARPS_K: usize = 2;

    /// Where it cuts K as the accumulator says: 4-bit weights, at most 16 tokens, slices of four blocks, 16 at most.
    pub fn of(s: &MixedSizes, weight: Format) -> Option<Self> {
        let slices = s.blocks().div_ceil(4);
        let cut = s.per_slice == 4 || s.blocks() <= s.per_slice.min(4);
        let split = slices.div_ceil(Self::WARPS_K).next_power_of_two();
        let stream = Self { split, shift: s.group_shift.clamp(5, 9), zero: s.zero != ZeroPoint::None };
        (weight.bits() == 4 && s.n <= 16 && cut && split <= 8).then_some(stream)
    }
    /// Bytes of the scales, zero points and codes of 32 rows of a slice.
    fn chunk(&self) -> usize {
        CODES + if self.zero { 128 } else { 64 } * (512 >> self.shift)
    }
    /// Bytes of the reordered weights.
    fn bytes(&self, s: &MixedSizes) -> usize {
        s.m.div_ceil(32) * s.blocks().div_ceil(4) * self.chunk()
    }
    fn options(&self, formats: Vec<String>) -> Vec<String> {
        let cut = [("SPLIT", self.split), ("SHIFT", self.shift), ("WARPS_M", Self::WARPS_M), ("WARPS_K", Self::WARPS_K)];
        formats.into_iter().chain(cut.map(|(name, value)| define(name, value))).collect()
    }
    fn blocks(&self, s: &MixedSizes) -> LaunchShape {
        let (rows, warps) = (32 * Self::WARPS_M, Self::WARPS_M * Self::WARPS_K);
        let shared = Self::WARPS_K * 32768 + warps * (self.chunk() + 8) + 16;
        LaunchShape::new(self.split * s.m.div_ceil(rows), 32 * warps).shared(shared)
    }
    fn launch<'a>(&self, s: &MixedSizes, defines: &'a [String], [w, x, d]: [&Buffer; 3], bias: Pointer) -> Launch<'a> {
        let (w, x, d) = (w.into(), x.into(), d.into());
        let arguments = Arguments { w, x, bias, d, m: s.m, n: s.n, k: s.k, d_row: 1, d_col: s.m as u64 };
        arguments.launch(defines, self.blocks(s))
    }
    /// Reorders the weights and multiplies.
    pub fn run(&self, gpu: &Gpu, job: &Job, s: &MixedSizes, inputs: &Inputs) -> Result<Output> {
        let defines = self.options(formats(job, s)?);
        // Packed codes may be any byte: zeros first, all of it is written.
        let w = gpu.filled(self.bytes(s), 0)?;
        let arguments = Reorder {
            w: (&inputs.w).into(),
            scale: (&inputs.scale).into(),
            zero: (&inputs.zero).into(),
            out: (&w).into(),
            m: s.m,
            k: s.k,
            group_shift: s.group_shift,
            scale_row: s.groups as u64,
        };
        let threads = self.bytes(s) / 16;
        // SAFETY: `w` has the bytes of all chunks.
        unsafe { gpu.launch(arguments.launch(&defines, LaunchShape::new(threads.div_ceil(256), 256)))? };
        let d = gpu.output(s.m * s.n * 2)?;
        // SAFETY: buffers have the sizes of m, n, k and groups; check() refused what the contract says the host refuses, buffers are
        // aligned to 256 bytes.
        unsafe { gpu.launch(self.launch(s, &defines, [&w, &inputs.x, &d], inputs.bias()))? };
        download(gpu, job, s.n, s.m, &d, None)
    }
}

/// int4 × f16 with groups of 64, `tokens` (at most 16) × `features` × `k` (a multiple of 512, at most 8192), weights reordered before;
/// `dependent`: every launch may begin while the one before it ends. Errors: out of memory.
pub fn timed(gpu: &'static Gpu, tokens: usize, features: usize, k: usize, dependent: bool) -> Result<Timed> {
    let s =
        MixedSizes { m: features, n: tokens, k, per_slice: 4, group_shift: 6, groups: k.div_ceil(64), zero: ZeroPoint::None };
    let stream =
        Stream::of(&s, Format::Int4).ok_or_else(|| Error::value("shape to time", k, "at most 16 tokens and K of 8192"))?;
    let defines = stream.options(format_options(Type::Int4, Type::F16, s.zero, 0));
    let [w_bytes, x_bytes, d_bytes] = [stream.bytes(&s), 2 * s.n * s.k, 2 * s.m * s.n];
    let bytes = (s.m * s.k / 2 + 2 * s.m * s.groups + x_bytes + d_bytes) as u64;
    let copies = rotation(gpu, bytes);
    // Codes are the bytes of f16 numbers. So are scales, with the exponents of 2^-7 and 2^-6: the kernel is faster where all are below 2^-5, as groups
    // of a model's weights have them.
    let mut weights = normals(Format::F16, w_bytes / 2, 1)?;
    for chunk in weights.chunks_mut(stream.chunk()) {
        let scales = chunk.len() - CODES;
        chunk[..scales].chunks_exact_mut(2).for_each(|s| s[1] = (s[1] & 0x07) | 0x20);
    }
    let w = uploads(gpu, &weights, copies)?;
    let x = uploads(gpu, &normals(Format::F16, s.n * s.k, 3)?, copies)?;
    let d = (0..copies).map(|_| gpu.output(d_bytes)).collect::<Result<Vec<Buffer>>>()?;
    let (shape, ops) = (format!("{features}x{tokens}x{k}"), 2 * (s.m * s.n * s.k) as u64);
    let run = move |i: usize| {
        let i = i % copies;
        let mut launch = stream.launch(&s, &defines, [&w[i], &x[i], &d[i]], Pointer::NULL);
        launch.shape.dependent = dependent;
        // SAFETY: as in run(); the buffers live in this closure, and the kernel waits (griddepcontrol) before it reads or writes.
        unsafe { gpu.enqueue(launch) }
    };
    let name = if dependent { "mixed int4 x f16 g64 dependent" } else { "mixed int4 x f16 g64" };
    Ok(Timed { name: name.into(), shape, bytes, ops, copies, launch: Box::new(run) })
}
