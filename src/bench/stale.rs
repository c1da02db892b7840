//! Stale scale_inv that only a device can show: two streams without an order between them, and a graph replayed on moved buffers.
//!
//! ```text
//! D = Q(A·Bᵀ, s)          fp8_gemm, FP8 output; scale_inv of D by the GEMM itself, or by the small kernel after it
//! Y = (D·σ)·(V·σ_v)ᵀ      fp8_gemm, f32 output: what reads D and its scale_inv
//! ```
//!
//! Every Y is compared, bit by bit, with the same product run by itself on known bytes and a known scale_inv.

use crate::kernel::cuda::fp8_gemm::{BLOCK, SHARED, Tiles};
use crate::kernel::cuda::launch::{Arg, Buffer, Gpu, Launch, tensor_map};
use crate::kernel::cuda::second::{Second, Stream};
use crate::kernel::cuda::timed::{Graph, normals};
use crate::scenario::device::{DEVICE, Must, Read, Seen};
use crate::{Error, Format, Result};

/// M, N and K of both products.
const SIZE: usize = 256;
/// Repetitions of each way.
const TIMES: usize = 100;
/// How long the small kernel is kept from running, nanoseconds: the reading GEMM takes about 10 µs.
const HOLD: i64 = 300_000;
/// scale_inv of the operands that stay.
const FIXED: f32 = 1.0 / 512.0;

/// Scale of D at step `i`: never the same twice in a row, 20 to 76.
fn scale(i: usize) -> f32 {
    20.0 * 1.25f32.powi((3 * i % 7) as i32)
}

/// An `fp8_gemm` of [`SIZE`]³ by tensor scales.
struct Gemm {
    tiles: Tiles,
    defines: Vec<String>,
}

impl Gemm {
    /// `out`: OUT of `common/fp8_epilogue.cuh`, 2 f32, 3 e4m3.
    fn new(gpu: &Gpu, out: i32) -> Self {
        let tiles = Tiles::of(SIZE, SIZE, gpu.info.multiprocessors);
        let options = ["-DA_E5M2=0", "-DB_E5M2=0", "-DPROMOTE=0", "-DSCALE=0", "-DORDER=0", "-DBIAS=0"];
        let mut defines: Vec<String> = options.map(String::from).into();
        defines.push(format!("-DOUT={out}"));
        defines.extend(tiles.defines());
        Self { tiles, defines }
    }

    /// Starts it on `stream`; `scales`: addresses of scale_inv of a and b; `side`: of scale, amax and scale_inv of an FP8 result.
    ///
    /// # Safety
    /// All addresses are of live f32 of the device until the stream has come past; a, b are SIZE² bytes, d SIZE² elements.
    unsafe fn start(&self, gpu: &Gpu, stream: Stream, [a, b, d]: [&Buffer; 3], scales: [u64; 2], side: [u64; 3]) -> Result<()> {
        let n = SIZE as i32;
        let mut args = vec![
            tensor_map(a, SIZE, SIZE, SIZE, 128)?,
            tensor_map(b, SIZE, SIZE, SIZE, self.tiles.box_b())?,
            d.arg(),
            Arg::Pointer(scales[0]),
            Arg::Pointer(scales[1]),
            Arg::Pointer(0),
        ];
        args.extend(side.map(Arg::Pointer));
        args.extend([n, n, n, n, 0, 0, 0, 16].map(Arg::Int));
        let launch = Launch {
            source: "fp8_gemm.cu",
            defines: &self.defines,
            entry: "fp8_gemm",
            grid: (self.tiles.grid, 1, 1),
            block: BLOCK,
            shared: SHARED,
        };
        // SAFETY: contract fp8_gemm's arguments in its order; sizes by this function's own condition.
        unsafe { gpu.start(&launch, &mut args, stream) }
    }
}

/// Starts a kernel of `kernels/scale_inv.cu`.
///
/// # Safety
/// As [`Gpu::enqueue`].
unsafe fn small(gpu: &Gpu, stream: Stream, entry: &'static str, args: &mut [Arg]) -> Result<()> {
    let launch = Launch { source: "scale_inv.cu", defines: &[], entry, grid: (1, 1, 1), block: (1, 1, 1), shared: 0 };
    // SAFETY: this function's own condition.
    unsafe { gpu.start(&launch, args, stream) }
}

/// What both experiments work with.
struct Bench {
    gpu: &'static Gpu,
    make: Gemm,
    read: Gemm,
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
        let codes = |seed| gpu.upload(&normals(Format::E4m3, SIZE * SIZE, seed)?);
        Ok(Self {
            gpu,
            make: Gemm::new(gpu, 3),
            read: Gemm::new(gpu, 2),
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

    /// Address of the scale of step `i`.
    fn scale(&self, i: usize) -> u64 {
        self.scales.pointer() + 4 * i as u64
    }

    /// Starts D = Q(A·Bᵀ) of step `i`, its scale_inv into `scale_inv`.
    fn make(&self, stream: Stream, i: usize, d: &Buffer, scale_inv: u64) -> Result<()> {
        let side = [self.scale(i), self.amax.pointer(), scale_inv];
        let fixed = self.fixed.pointer();
        // SAFETY: buffers of this struct and the caller's, which live until it has synchronized.
        unsafe { self.make.start(self.gpu, stream, [&self.a, &self.b, d], [fixed; 2], side) }
    }

    /// Starts the product that reads D with the scale_inv at an address.
    fn read(&self, stream: Stream, d: &Buffer, scale_inv: u64) -> Result<()> {
        let scales = [scale_inv, self.fixed.pointer()];
        // SAFETY: as make.
        unsafe { self.read.start(self.gpu, stream, [d, &self.v, &self.y], scales, [0; 3]) }
    }

    fn inverse(&self, stream: Stream, i: usize, to: u64) -> Result<()> {
        // SAFETY: contract scale_inv's arguments: a scale, and a live f32.
        unsafe { small(self.gpu, stream, "scale_inv", &mut [Arg::Pointer(self.scale(i)), Arg::Pointer(to)]) }
    }

    fn hold(&self, stream: Stream) -> Result<()> {
        // SAFETY: contract hold's argument.
        unsafe { small(self.gpu, stream, "hold", &mut [Arg::Long(HOLD)]) }
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
        self.read(self.gpu.stream(), d, scale_inv.pointer())?;
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
        bench.make(first, 0, &d, live.pointer())?;
        let mut previous = bench.alone(&d, 1.0 / scale(0))?;
        for i in 1..=TIMES {
            bench.make(first, i, &d, if by_gemm { live.pointer() } else { bench.unread.pointer() })?;
            second.record(second.made, gpu)?;
            if held {
                bench.hold(first)?;
            }
            if !by_gemm {
                bench.inverse(first, i, live.pointer())?;
            }
            second.record(second.written, gpu)?;
            match wait {
                Wait::Gemm => second.wait(second.made)?,
                Wait::ScaleInv => second.wait(second.written)?,
                Wait::Nothing => {}
            }
            bench.read(second.stream, &d, live.pointer())?;
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
    let behind = |d: &Buffer| d.pointer() + (SIZE * SIZE) as u64;
    // The recipe's vector of scale_inv: places of ping and pong.
    let recipe = gpu.upload_f32(&[1.0, 1.0])?;
    let places = [recipe.pointer(), recipe.pointer() + 4];
    let stream = gpu.stream();
    // Bytes of step i into a buffer, its scale_inv behind them and into a place of the recipe.
    let write = |i: usize, d: &Buffer, place: u64| -> Result<()> {
        bench.make(stream, i, d, behind(d))?;
        bench.inverse(stream, i, place)
    };
    write(0, &ping, places[0])?;
    write(1, &pong, places[1])?;
    // Compiled and loaded before a capture, which allows neither.
    bench.alone(&ping, 1.0)?;
    let capture = |d: &Buffer, scale_inv: u64| Graph::capture(gpu, 1, &mut |_| bench.read(stream, d, scale_inv));
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
