//! The casts as they are timed: bf16 to FP8, MX and NVFP4, inputs rotated past the L2.

use crate::kernel::cuda::launch::{Arg, Buffer, Gpu, Launch};
use crate::kernel::cuda::timed::{Timed, normals, rotation, uploads};
use crate::{Format, Result};

/// One launch of a call: its source, options, entry and blocks (of 256 threads but where given).
struct Step {
    source: &'static str,
    defines: Vec<String>,
    entry: &'static str,
    grid: usize,
    block: u32,
}

fn step(source: &'static str, entry: &'static str, grid: usize, defines: &[&str]) -> Step {
    Step { source, defines: defines.iter().map(ToString::to_string).collect(), entry, grid, block: 256 }
}

impl Step {
    /// # Safety
    /// As [`Gpu::enqueue`].
    unsafe fn enqueue(&self, gpu: &Gpu, args: &mut [Arg]) -> Result<()> {
        let (grid, block) = ((self.grid as u32, 1, 1), (self.block, 1, 1));
        let launch = Launch { source: self.source, defines: &self.defines, entry: self.entry, grid, block, shared: 0 };
        // SAFETY: this function's own condition.
        unsafe { gpu.enqueue(&launch, args) }
    }
}

/// Input and outputs of one rotation.
struct Set {
    x: Buffer,
    outs: Vec<Buffer>,
}

/// A call on bf16 `rows × cols` that writes outputs of `sizes` bytes and moves `bytes`.
fn rotated(
    gpu: &'static Gpu,
    name: &str,
    (rows, cols): (usize, usize),
    sizes: &[usize],
    bytes: usize,
    run: impl Fn(&Set) -> Result<()> + 'static,
) -> Result<Timed> {
    let copies = rotation(gpu, bytes as u64);
    let inputs = uploads(gpu, &normals(Format::Bf16, rows * cols, 1)?, copies)?;
    let set = |x| Ok(Set { x, outs: sizes.iter().map(|bytes| gpu.output(*bytes)).collect::<Result<_>>()? });
    let sets = inputs.into_iter().map(set).collect::<Result<Vec<Set>>>()?;
    let launch = Box::new(move |i: usize| run(&sets[i % copies]));
    Ok(Timed { name: name.into(), shape: format!("{rows}x{cols}"), bytes: bytes as u64, ops: 0, copies, launch })
}

/// scale, amax, scale_inv on the device.
fn side(gpu: &Gpu) -> Result<[Buffer; 3]> {
    Ok([gpu.upload_f32(&[97.3])?, gpu.upload_f32(&[0.0])?, gpu.output(4)?])
}

fn sizes(rows: usize, cols: usize) -> [Arg; 2] {
    [Arg::Int(rows as i32), Arg::Int(cols as i32)]
}

/// Tiles of 128×128.
fn tiles(rows: usize, cols: usize) -> usize {
    rows.div_ceil(128) * cols.div_ceil(128)
}

/// WHOLE of `common/tile.cuh`.
fn whole(rows: usize, cols: usize) -> &'static str {
    if rows.is_multiple_of(16) && cols.is_multiple_of(8) { "-DWHOLE=1" } else { "-DWHOLE=0" }
}

/// bf16 to e4m3 by a given scale, with amax and scale_inv. Errors: out of memory, here and below.
pub fn delayed(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let (n, [scale, amax, scale_inv]) = (rows * cols, side(gpu)?);
    let cast = step("cast.cu", "cast", n.div_ceil(8192), &[]);
    rotated(gpu, "cast delayed bf16>e4m3", (rows, cols), &[n], 3 * n, move |s| {
        let mut args =
            [s.x.arg(), s.outs[0].arg(), scale.arg(), amax.arg(), scale_inv.arg(), Arg::Pointer(0), Arg::Long(n as i64)];
        // SAFETY: contract cast's arguments; x and codes have n elements.
        unsafe { cast.enqueue(gpu, &mut args) }
    })
}

/// bf16 to e4m3 by the tensor's own scale: amax, then the cast; the input is read twice.
pub fn current(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let (n, [_, amax, scale_inv]) = (rows * cols, side(gpu)?);
    let first = step("cast.cu", "tensor_amax", n.div_ceil(8192), &["-DRULE=1"]);
    let second = step("cast.cu", "cast", n.div_ceil(8192), &["-DRULE=1"]);
    rotated(gpu, "cast current bf16>e4m3", (rows, cols), &[n], 5 * n, move |s| {
        let none = || Arg::Pointer(0);
        let mut args = [s.x.arg(), s.outs[0].arg(), none(), amax.arg(), scale_inv.arg(), none(), Arg::Long(n as i64)];
        // SAFETY: contracts tensor_amax's and cast's arguments; x and codes have n elements.
        unsafe {
            first.enqueue(gpu, &mut [s.x.arg(), amax.arg(), Arg::Long(n as i64)])?;
            second.enqueue(gpu, &mut args)
        }
    })
}

/// bf16 to e4m3 and its transpose by a given scale, with amax and scale_inv.
pub fn transpose(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    transposed(gpu, rows, cols, false)
}

/// The same with the sums of the columns.
pub fn dbias(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    transposed(gpu, rows, cols, true)
}

fn transposed(gpu: &'static Gpu, rows: usize, cols: usize, dbias: bool) -> Result<Timed> {
    let (n, [scale, amax, scale_inv], bands) = (rows * cols, side(gpu)?, rows.div_ceil(64));
    let entry = if dbias { "cast_transpose_dbias" } else { "cast_transpose" };
    let cast = step("cast_transpose.cu", entry, tiles(rows, cols), &[whole(rows, cols)]);
    let total = Step { block: 128, ..step("cast_transpose.cu", "dbias_total", cols.div_ceil(128), &[whole(rows, cols)]) };
    let outs: &[usize] = if dbias { &[n, n, bands * cols * 4, cols * 2] } else { &[n, n] };
    let bytes = 4 * n + if dbias { 2 * cols } else { 0 };
    rotated(gpu, &format!("{entry} bf16>e4m3"), (rows, cols), outs, bytes, move |s| {
        let mut args =
            vec![s.x.arg(), s.outs[0].arg(), s.outs[1].arg(), scale.arg(), amax.arg(), scale_inv.arg(), Arg::Pointer(0)];
        args.extend(sizes(rows, cols));
        args.extend(s.outs.get(2).map(Buffer::arg));
        // SAFETY: contracts cast_transpose's (_dbias's) and dbias_total's arguments; buffers have the sizes of rows and cols.
        unsafe {
            cast.enqueue(gpu, &mut args)?;
            match s.outs.get(2..4) {
                Some([sums, dbias]) => {
                    total.enqueue(gpu, &mut [sums.arg(), dbias.arg(), Arg::Int(bands as i32), Arg::Int(cols as i32)])
                }
                _ => Ok(()),
            }
        }
    })
}

/// bf16 to e4m3 with a power-of-two scale a row (torchao rowwise).
pub fn row(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let chunks = format!("-DCHUNKS={}", cols.div_ceil(2048).next_power_of_two().min(4));
    let cast = step("cast_row.cu", "cast_row", rows, &["-DRULE=2", "-DPOW2=1", &chunks]);
    let bytes = 3 * rows * cols + 4 * rows;
    rotated(gpu, "cast row-wise bf16>e4m3", (rows, cols), &[rows * cols, 4 * rows], bytes, move |s| {
        let [m, n] = sizes(rows, cols);
        // SAFETY: contract cast_row's arguments; buffers have the sizes of rows and cols.
        unsafe { cast.enqueue(gpu, &mut [s.x.arg(), s.outs[0].arg(), s.outs[1].arg(), m, n]) }
    })
}

/// bf16 to int8 with a bf16 scale a token (int8_token_reduced).
pub fn token(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let cast = step("int4_quant.cu", "int8_token", rows, &["-DIN=1", "-DMODE=0"]);
    let bytes = 3 * rows * cols + 2 * rows;
    rotated(gpu, "cast int8 per token bf16>int8", (rows, cols), &[rows * cols, 2 * rows], bytes, move |s| {
        let [m, n] = sizes(rows, cols);
        // SAFETY: contract int8_token's arguments, a block a row; buffers have the sizes of rows and cols, and there are no zero points.
        unsafe { cast.enqueue(gpu, &mut [s.x.arg(), s.outs[0].arg(), s.outs[1].arg(), Arg::Pointer(0), m, n]) }
    })
}

/// bf16 to e4m3 with a power-of-two scale for 128×128 or for 1×128 (Transformer Engine), with the transposed copy if asked for.
pub fn block(gpu: &'static Gpu, rows: usize, cols: usize, square: bool, transpose: bool) -> Result<Timed> {
    let (n, down, across) = (rows * cols, rows.div_ceil(128), cols.div_ceil(128));
    let shape = if square { "-DSQUARE=1" } else { "-DSQUARE=0" };
    let defines = ["-DRULE=1", "-DPOW2=1", "-DBLOCKS=1", shape, whole(rows, cols)];
    let cast = step("cast_block.cu", "cast_block", tiles(rows, cols), &defines);
    let what = if transpose { "cast_transpose" } else { "cast" };
    let name = format!("{what} {} bf16>e4m3", if square { "128x128" } else { "1x128" });
    let mut outs = vec![n, if square { 4 * down * across } else { 4 * rows * across }];
    outs.extend([n, 4 * cols * down].iter().take(if !transpose {
        0
    } else if square {
        1
    } else {
        2
    }));
    rotated(gpu, &name, (rows, cols), &outs, 2 * n + outs.iter().sum::<usize>(), move |s| {
        let [m, n] = sizes(rows, cols);
        let pointer = |i: usize| Arg::Pointer(s.outs.get(i).map_or(0, Buffer::pointer));
        // SAFETY: contract cast_block's arguments; buffers have the sizes of rows, cols and their blocks.
        unsafe { cast.enqueue(gpu, &mut [s.x.arg(), pointer(0), pointer(2), pointer(1), pointer(3), m, n]) }
    })
}

/// bf16 to MXFP8 (Transformer Engine; `format` 0), with the transposed copy if asked for, or to NVFP4 (`format` 2), amax given.
pub fn mx(gpu: &'static Gpu, rows: usize, cols: usize, format: usize, transpose: bool) -> Result<Timed> {
    let (group, mode, packed) = if format == 2 { (16, 5, 2) } else { (32, 0, 1) };
    let defines = [format!("-DMODE={mode}"), format!("-DFORMAT={format}")];
    let cast = step("cast_mx.cu", "cast_mx", tiles(rows, cols), &[&defines[0], &defines[1], whole(rows, cols)]);
    let (amax, global) = (gpu.upload_f32(&[4.5])?, gpu.output(4)?);
    let mut outs = vec![rows * cols.div_ceil(packed), rows * cols.div_ceil(group)];
    if transpose {
        outs.extend([cols * rows.div_ceil(packed), cols * rows.div_ceil(group)]);
    }
    let what = if format == 2 { "NVFP4" } else { "MXFP8" };
    let name = format!("{} bf16>{what}", if transpose { "cast_transpose" } else { "cast" });
    rotated(gpu, &name, (rows, cols), &outs, 2 * rows * cols + outs.iter().sum::<usize>(), move |s| {
        let [m, n] = sizes(rows, cols);
        let pointer = |i: usize| Arg::Pointer(s.outs.get(i).map_or(0, Buffer::pointer));
        let mut args = [s.x.arg(), pointer(0), pointer(2), pointer(1), pointer(3), amax.arg(), global.arg(), m, n];
        // SAFETY: contract cast_mx's arguments; buffers have the sizes of rows, cols and their groups.
        unsafe { cast.enqueue(gpu, &mut args) }
    })
}
