//! Stale scale_inv that only a device can show: two streams without an order between them, and a graph replayed on moved buffers.
//!
//! ```text
//! D = Q(A·Bᵀ, s)          fp8_gemm, FP8 output; scale_inv of D by the GEMM itself, or by the small kernel after it
//! Y = (D·σ)·(V·σ_v)ᵀ      fp8_gemm, f32 output: what reads D and its scale_inv
//! ```
//!
//! Every Y is compared, bit by bit, with the same product run by itself on known bytes and a known scale_inv.

use crate::kernel::cuda::contract::{Contract, Pointer};
use crate::kernel::cuda::fp8_gemm::{Buffers, Dense, Options};
use crate::kernel::cuda::launch::{Buffer, Gpu, LaunchShape};
use crate::kernel::cuda::options::Type;
use crate::kernel::cuda::scale_inv::{Hold, Inverse};
use crate::kernel::cuda::second::{Second, Stream};
use crate::kernel::cuda::timed::{Graph, normals};
use crate::scenario::device::{DEVICE, Must, Read, Seen};
use crate::{Error, Format, Result};

/// M, N and K of both products.
const SIZE: usize = 256;
/// Repetitions of each way.
const TIMES: usize = 100;
/// How long the small kernel is kept from running, nanoseconds: the reading GEMM takes about 10 µs.
const HOLD: u64 = 300_000;
/// scale_inv of the operands that stay.
const FIXED: f32 = 1.0 / 512.0;

/// Scale of D at step `i`: never the same twice in a row, 20 to 76.
fn scale(i: usize) -> f32 {
    20.0 * 1.25f32.powi((3 * i % 7) as i32)
}

/// One block of one thread: the kernels of `kernels/scale_inv.cu`.
fn one() -> LaunchShape {
    LaunchShape::new(1, 1)
}

/// What both experiments work with.
struct Bench {
    gpu: &'static Gpu,
    make: Dense,
    read: Dense,
    a: Buffer,
    b: Buffer,
    v: Buffer,
    y: Buffer,
    /// scale_inv of a, b and v; amax of D; a place for a scale_inv that nobody reads.
    fixed: Buffer,
    amax: Buffer,
    unread: Buffer,
    /// [`scale`] of every step.
    scales: Buffer,
}

impl Bench {
    fn new(gpu: &'static Gpu) -> Result<Self> {
        if gpu.info.capability != (9, 0) {
            let (major, minor) = gpu.info.capability;
            let why = format!("their GEMM is wgmma's, of compute capability 9.0; this is {major}.{minor}");
            return Err(Error::unsupported("device scenarios", why));
        }
        let dense = |out| Dense::new(gpu, Options { out, ..Options::default() }, [SIZE; 3]);
        let codes = |seed| gpu.upload(&normals(Format::E4m3, SIZE * SIZE, seed)?);
        Ok(Self {
            gpu,
            make: dense(Type::E4m3),
            read: dense(Type::F32),
            a: codes(1)?,
            b: codes(2)?,
            v: codes(3)?,
            y: gpu.output(4 * SIZE * SIZE)?,
            fixed: gpu.upload_f32(&[FIXED])?,
            amax: gpu.upload_f32(&[0.0])?,
            unread: gpu.upload_f32(&[1.0])?,
            scales: gpu.upload_f32(&(0..=TIMES + 1).map(scale).collect::<Vec<f32>>())?,
        })
    }

    /// The scale of step `i`.
    fn scale(&self, i: usize) -> Pointer {
        Pointer(self.scales.pointer() + 4 * i as u64)
    }

    /// Starts D = Q(A·Bᵀ) of step `i`, its scale_inv into `scale_inv`.
    fn make(&self, stream: Stream, i: usize, d: &Buffer, scale_inv: Pointer) -> Result<()> {
        let side = [self.scale(i), (&self.amax).into(), scale_inv];
        let on = Buffers { side, ..Buffers::plain(&self.a, &self.b, d, [Pointer::from(&self.fixed); 2]) };
        // SAFETY: buffers of this struct and the caller's, SIZE² elements each, which live until it has synchronized.
        unsafe { self.gpu.start(self.make.launch(&on)?, stream) }
    }

    /// Starts the product that reads D with the scale_inv at an address.
    fn read(&self, stream: Stream, d: &Buffer, scale_inv: Pointer) -> Result<()> {
        let on = Buffers::plain(d, &self.v, &self.y, [scale_inv, (&self.fixed).into()]);
        // SAFETY: as make.
        unsafe { self.gpu.start(self.read.launch(&on)?, stream) }
    }

    fn inverse(&self, stream: Stream, i: usize, to: Pointer) -> Result<()> {
        let arguments = Inverse { scale: self.scale(i), scale_inv: to };
        // SAFETY: a scale, and a live f32.
        unsafe { self.gpu.start(arguments.launch(&[], one()), stream) }
    }

    fn hold(&self, stream: Stream) -> Result<()> {
        // SAFETY: it reads and writes nothing.
        unsafe { self.gpu.start(Hold { ns: HOLD }.launch(&[], one()), stream) }
    }

    /// What the last read returned.
    fn result(&self) -> Result<Vec<f32>> {
        self.gpu.synchronize("a product of the stale scenarios")?;
        let bytes = self.gpu.download("y", &self.y, 4)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// What a read of `d` returns with this scale_inv, nothing else running.
    fn alone(&self, d: &Buffer, scale_inv: f32) -> Result<Vec<f32>> {
        self.gpu.synchronize("a product of the stale scenarios")?;
        let scale_inv = self.gpu.upload_f32(&[scale_inv])?;
        self.read(self.gpu.stream(), d, Pointer::from(&scale_inv))?;
        self.result()
    }
}

/// How far the reading stream waits.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    Gemm,
    ScaleInv,
    Nothing,
}

/// An FP8 GEMM on one stream, what reads its result on another: with the event after the small scale_inv kernel, with the event before it,
/// with none. Errors: no Hopper; a kernel's.
pub fn streams(gpu: &'static Gpu) -> Result<Vec<Seen>> {
    let bench = Bench::new(gpu)?;
    let second = Second::new()?;
    // By the GEMM itself, held back, waited for, what must come.
    let ways = [
        ("the GEMM writes scale_inv; event after it", true, false, Wait::Gemm, Must::All(Read::Healthy)),
        ("small kernel; event after it", false, false, Wait::ScaleInv, Must::All(Read::Healthy)),
        ("small kernel held 300 us; event after it", false, true, Wait::ScaleInv, Must::All(Read::Healthy)),
        ("small kernel held 300 us; event before it", false, true, Wait::Gemm, Must::All(Read::Stale)),
        ("small kernel; event before it", false, false, Wait::Gemm, Must::Either),
        ("small kernel; no event", false, false, Wait::Nothing, Must::Any),
    ];
    let (first, d, live) = (gpu.stream(), gpu.output(SIZE * SIZE)?, gpu.upload_f32(&[1.0])?);
    let mut all = Vec::new();
    for (way, by_gemm, held, wait, must) in ways {
        let mut seen = Seen::new(DEVICE[0].0, way, must);
        bench.make(first, 0, &d, Pointer::from(&live))?;
        let mut previous = bench.alone(&d, 1.0 / scale(0))?;
        for i in 1..=TIMES {
            bench.make(first, i, &d, if by_gemm { Pointer::from(&live) } else { Pointer::from(&bench.unread) })?;
            second.record(second.made, gpu)?;
            if held {
                bench.hold(first)?;
            }
            if !by_gemm {
                bench.inverse(first, i, Pointer::from(&live))?;
            }
            second.record(second.written, gpu)?;
            match wait {
                Wait::Gemm => second.wait(second.made)?,
                Wait::ScaleInv => second.wait(second.written)?,
                Wait::Nothing => {}
            }
            bench.read(second.stream, &d, Pointer::from(&live))?;
            let got = bench.result()?;
            let (now, before) = (1.0 / scale(i), 1.0 / scale(i - 1));
            let (healthy, stale) = (bench.alone(&d, now)?, bench.alone(&d, before)?);
            seen.count(&got, [&healthy, &stale, &previous], f64::from(scale(i)) * f64::from(before), &healthy);
            previous = healthy;
        }
        all.push(seen);
    }
    Ok(all)
}

/// Bytes with their scale_inv behind them, as packaged data lie.
fn packaged(gpu: &Gpu) -> Result<Buffer> {
    gpu.output(SIZE * SIZE + 16)
}

/// A graph of the reading product, replayed after its buffers changed places, and after the data went to a new buffer. Errors: as
/// [`streams`].
pub fn graphs(gpu: &'static Gpu) -> Result<Vec<Seen>> {
    let bench = Bench::new(gpu)?;
    let [ping, pong, spare] = [packaged(gpu)?, packaged(gpu)?, packaged(gpu)?];
    let behind = |d: &Buffer| Pointer(d.pointer() + (SIZE * SIZE) as u64);
    // The recipe's vector of scale_inv: places of ping and pong.
    let recipe = gpu.upload_f32(&[1.0, 1.0])?;
    let places = [Pointer::from(&recipe), Pointer(recipe.pointer() + 4)];
    let stream = gpu.stream();
    // Bytes of step i into a buffer, its scale_inv behind them and into a place of the recipe.
    let write = |i: usize, d: &Buffer, place: Pointer| -> Result<()> {
        bench.make(stream, i, d, behind(d))?;
        bench.inverse(stream, i, place)
    };
    write(0, &ping, places[0])?;
    write(1, &pong, places[1])?;
    // Compiled and loaded before a capture, which allows neither.
    bench.alone(&ping, 1.0)?;
    let capture = |d: &Buffer, scale_inv: Pointer| Graph::capture(gpu, 1, &mut |_| bench.read(stream, d, scale_inv));
    let (by_recipe, by_data) = (capture(&ping, places[0])?, capture(&ping, behind(&ping))?);
    let replay = |graph: &Graph| {
        graph.replay()?;
        bench.result()
    };
    let mut seen = [
        ("buffers change places; recipe's scale_inv", Must::All(Read::Stale)),
        ("buffers change places; scale_inv behind the bytes", Must::All(Read::Healthy)),
        ("data in a new buffer; recipe's scale_inv", Must::All(Read::Stale)),
        ("data in a new buffer; scale_inv behind the bytes", Must::All(Read::Previous)),
        ("data in a new buffer; captured again", Must::All(Read::Healthy)),
    ]
    .map(|(way, must)| Seen::new(DEVICE[1].0, way, must));
    for i in 0..TIMES / 2 {
        let s = [scale(i), scale(i + 1)];
        let sigma = s.map(|s| 1.0 / s);
        write(i, &ping, places[0])?;
        write(i + 1, &pong, places[1])?;
        let before = bench.alone(&ping, sigma[0])?;
        // Ping's bytes and pong's change places with what is behind them; the recipe's vector does not.
        gpu.enqueue_copy(&spare, &ping)?;
        gpu.enqueue_copy(&ping, &pong)?;
        gpu.enqueue_copy(&pong, &spare)?;
        let r = f64::from(s[1]) * f64::from(sigma[0]);
        let (healthy, stale) = (bench.alone(&ping, sigma[1])?, bench.alone(&ping, sigma[0])?);
        seen[0].count(&replay(&by_recipe)?, [&healthy, &stale, &before], r, &healthy);
        seen[1].count(&replay(&by_data)?, [&healthy, &stale, &before], r, &healthy);
        // Step i in ping; step i + 1 goes into a new buffer, and the recipe's place for it is the same.
        write(i, &ping, places[0])?;
        let moved = packaged(gpu)?;
        write(i + 1, &moved, places[0])?;
        let r = f64::from(s[0]) * f64::from(sigma[1]);
        let (healthy, previous) = (bench.alone(&moved, sigma[1])?, bench.alone(&ping, sigma[0])?);
        // The graph reads the old bytes with the new scale_inv.
        let stale = bench.alone(&ping, sigma[1])?;
        let could: [&[f32]; 3] = [&healthy, &stale, &previous];
        seen[2].count(&replay(&by_recipe)?, could, r, &previous);
        seen[3].count(&replay(&by_data)?, could, r, &previous);
        seen[4].count(&replay(&capture(&moved, places[0])?)?, could, r, &previous);
        gpu.synchronize("replays of graphs")?;
    }
    Ok(seen.into())
}
