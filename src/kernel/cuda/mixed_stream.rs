//! The weights of few tokens streamed at once: `kernels/mixed_stream.cu` (contract there), launched by [`super::mixed_gemm`].

use super::launch::{Arg, Buffer, Gpu, Launch};
use super::mixed_gemm::{Inputs, Shape, formats};
use super::output::download;
use super::timed::{Timed, normals, rotation, uploads};
use crate::job::{Job, Output};
use crate::{Error, Format, Result};

/// How a cluster is cut (words of the contract).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    nt: usize,
    split: usize,
    /// log2 of the group size, 5 to 9.
    shift: u32,
    /// Whether there are zero points.
    zero: bool,
}

impl Stream {
    const WARPS_M: usize = 8;
    const WARPS_K: usize = 2;
    const UNIT: usize = 1;

    /// Where it cuts K as the accumulator says: 4-bit weights, at most 16 tokens, slices of four blocks, 16 at most.
    pub fn of(s: &Shape, weight: Format) -> Option<Self> {
        let slices = s.blocks().div_ceil(4);
        let cut = s.per_slice == 4 || s.blocks() <= s.per_slice.min(4);
        let split = slices.div_ceil(Self::WARPS_K).next_power_of_two();
        let nt = if s.n <= 8 { 1 } else { 2 };
        let stream = Self { nt, split, shift: s.group_shift.clamp(5, 9), zero: s.zero != 0 };
        (weight.bits() == 4 && s.n <= 16 && cut && split <= 8).then_some(stream)
    }
    /// Bytes of the scales, zero points and codes of 32 rows of a slice.
    fn chunk(&self) -> usize {
        8192 + if self.zero { 128 } else { 64 } * (512 >> self.shift)
    }
    /// Bytes of the reordered weights.
    fn bytes(&self, s: &Shape) -> usize {
        s.m.div_ceil(32 * Self::UNIT) * s.blocks().div_ceil(4) * Self::UNIT * self.chunk()
    }
    fn options(&self, formats: Vec<String>) -> Vec<String> {
        let cut = [
            ("NT", self.nt),
            ("SPLIT", self.split),
            ("SHIFT", self.shift as usize),
            ("WARPS_M", Self::WARPS_M),
            ("WARPS_K", Self::WARPS_K),
            ("UNIT", Self::UNIT),
        ];
        formats.into_iter().chain(cut.map(|(name, value)| format!("-D{name}={value}"))).collect()
    }
    fn launch<'a>(&self, s: &Shape, defines: &'a [String]) -> Launch<'a> {
        let (rows, warps) = (32 * Self::WARPS_M, Self::WARPS_M * Self::WARPS_K);
        let shared = warps * self.chunk() + Self::WARPS_K * self.nt * (8192 + rows * 32) + 16 * warps / Self::UNIT + 8;
        Launch {
            source: "mixed_stream.cu",
            defines,
            entry: "mixed_stream",
            grid: ((self.split * s.m.div_ceil(rows)) as u32, 1, 1),
            block: ((32 * (warps + 1)) as u32, 1, 1),
            shared: shared as u32,
        }
    }
    /// Reorders the weights and multiplies.
    pub fn run(&self, gpu: &Gpu, job: &Job, s: &Shape, inputs: &Inputs) -> Result<Output> {
        let defines = self.options(formats(job, s)?);
        // Packed codes may be any byte: zeros first, all of it is written.
        let w = gpu.filled(self.bytes(s), 0)?;
        let mut args = [
            inputs.w.arg(),
            inputs.scale.arg(),
            inputs.zero.arg(),
            w.arg(),
            Arg::Int(s.m as i32),
            Arg::Int(s.k as i32),
            Arg::Int(s.group_shift as i32),
            Arg::Long(s.groups as i64),
        ];
        let threads = self.bytes(s) / 16;
        let reorder = Launch {
            source: "mixed_stream.cu",
            defines: &defines,
            entry: "mixed_stream_reorder",
            grid: (threads.div_ceil(256) as u32, 1, 1),
            block: (256, 1, 1),
            shared: 0,
        };
        // SAFETY: the arguments are contract mixed_stream_reorder's, in its order; `w` has the bytes of all chunks.
        unsafe { gpu.launch(&reorder, &mut args)? };
        let d = gpu.output(s.m * s.n * 2)?;
        let mut args = arguments(s, &w, &inputs.x, inputs.bias(), &d);
        // SAFETY: the arguments are contract mixed_stream's, in its order; buffers have the sizes of m, n, k and groups; check() refused
        // what the contract says the host refuses, buffers are aligned to 256 bytes.
        unsafe { gpu.launch(&self.launch(s, &defines), &mut args)? };
        download(gpu, job, s.n, s.m, &d, None)
    }
}

fn arguments(s: &Shape, w: &Buffer, x: &Buffer, bias: Arg, d: &Buffer) -> [Arg; 9] {
    [
        w.arg(),
        x.arg(),
        bias,
        d.arg(),
        Arg::Int(s.m as i32),
        Arg::Int(s.n as i32),
        Arg::Int(s.k as i32),
        Arg::Long(1),
        Arg::Long(s.m as i64),
    ]
}

/// int4 × f16 with groups of 64, `tokens` (at most 16) × `features` × `k` (a multiple of 512, at most 8192), weights reordered before.
/// Errors: out of memory.
pub fn timed(gpu: &'static Gpu, tokens: usize, features: usize, k: usize) -> Result<Timed> {
    let s = Shape { m: features, n: tokens, k, per_slice: 4, group_shift: 6, groups: k.div_ceil(64), zero: 0 };
    let stream =
        Stream::of(&s, Format::Int4).ok_or_else(|| Error::value("shape to time", k, "at most 16 tokens and K of 8192"))?;
    let defines = stream.options(["-DWEIGHT=0", "-DACT=0", "-DZERO=0"].map(String::from).to_vec());
    let [w_bytes, x_bytes, d_bytes] = [stream.bytes(&s), 2 * s.n * s.k, 2 * s.m * s.n];
    let bytes = (s.m * s.k / 2 + 2 * s.m * s.groups + x_bytes + d_bytes) as u64;
    let copies = rotation(gpu, bytes);
    // Codes and scales are the bytes of f16 numbers of moderate size: what they are worth does not matter, but no scale is NaN.
    let w = uploads(gpu, &normals(Format::F16, w_bytes / 2, 1)?, copies)?;
    let x = uploads(gpu, &normals(Format::F16, s.n * s.k, 3)?, copies)?;
    let d = (0..copies).map(|_| gpu.output(d_bytes)).collect::<Result<Vec<Buffer>>>()?;
    let (shape, ops) = (format!("{features}x{tokens}x{k}"), 2 * (s.m * s.n * s.k) as u64);
    let run = move |i: usize| {
        let i = i % copies;
        let mut args = arguments(&s, &w[i], &x[i], Arg::Pointer(0), &d[i]);
        // SAFETY: as in run(); the buffers live in this closure.
        unsafe { gpu.enqueue(&stream.launch(&s, &defines), &mut args) }
    };
    Ok(Timed { name: "mixed int4 x f16 g64".into(), shape, bytes, ops, copies, launch: Box::new(run) })
}
