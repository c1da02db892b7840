//! The casts as they are timed: bf16 to FP8, MX and NVFP4, inputs rotated past the L2.

use crate::kernel::cuda::contract::{Contract, Pointer};
use crate::kernel::cuda::launch::{Buffer, Gpu};
use crate::kernel::cuda::options::{Rule, TokenRule, Type, define};
use crate::kernel::cuda::tile::{narrow_tiles, tiles, whole};
use crate::kernel::cuda::timed::{Timed, normals, rotation, uploads};
use crate::kernel::cuda::{cast, cast_block, cast_mx, cast_transpose, int4_quant};
use crate::{Format, Result};

/// Input and outputs of one rotation.
struct Set {
    x: Buffer,
    outs: Vec<Buffer>,
}

impl Set {
    /// Output `i`, or null where there is none.
    fn at(&self, i: usize) -> Pointer {
        self.outs.get(i).into()
    }
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

/// The same as pointers.
fn pointers(side: &[Buffer; 3]) -> [Pointer; 3] {
    side.each_ref().map(Pointer::from)
}

/// Type and format of every cast here.
fn bf16_to_e4m3() -> Vec<String> {
    vec![define("IN", Type::Bf16), define("FORMAT", Type::E4m3)]
}

/// bf16 to e4m3 by a given scale, with amax and scale_inv. Errors: out of memory, here and below.
pub fn delayed(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let (n, side, defines) = (rows * cols, side(gpu)?, bf16_to_e4m3());
    rotated(gpu, "cast delayed bf16>e4m3", (rows, cols), &[n], 3 * n, move |s| {
        let [scale, amax, scale_inv] = pointers(&side);
        let (x, codes, noop, count) = ((&s.x).into(), s.at(0), Pointer::NULL, n as u64);
        let arguments = cast::Arguments { x, codes, scale, amax, scale_inv, noop, n: count };
        // SAFETY: x and codes have n elements.
        unsafe { gpu.enqueue(arguments.launch(&defines, cast::shape(n))) }
    })
}

/// bf16 to e4m3 by the tensor's own scale: amax, then the cast; the input is read twice.
pub fn current(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let (n, side, mut defines) = (rows * cols, side(gpu)?, bf16_to_e4m3());
    defines.push(define("RULE", Rule::Te));
    rotated(gpu, "cast current bf16>e4m3", (rows, cols), &[n], 5 * n, move |s| {
        let ([_, amax, scale_inv], none) = (pointers(&side), Pointer::NULL);
        let (x, codes, count) = (Pointer::from(&s.x), s.at(0), n as u64);
        let first = cast::Amax { x, amax, n: count };
        let second = cast::Arguments { x, codes, scale: none, amax, scale_inv, noop: none, n: count };
        // SAFETY: x and codes have n elements.
        unsafe {
            gpu.enqueue(first.launch(&defines, cast::shape(n)))?;
            gpu.enqueue(second.launch(&defines, cast::shape(n)))
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
    let (n, side, bands, mut defines) = (rows * cols, side(gpu)?, rows.div_ceil(64), bf16_to_e4m3());
    defines.push(whole(rows, cols));
    let name = if dbias { "cast_transpose_dbias bf16>e4m3" } else { "cast_transpose bf16>e4m3" };
    let outs: &[usize] = if dbias { &[n, n, bands * cols * 4, cols * 2] } else { &[n, n] };
    let bytes = 4 * n + if dbias { 2 * cols } else { 0 };
    rotated(gpu, name, (rows, cols), outs, bytes, move |s| {
        let [scale, amax, scale_inv] = pointers(&side);
        let (x, codes, turned, noop) = ((&s.x).into(), s.at(0), s.at(1), Pointer::NULL);
        let cast = cast_transpose::Arguments { x, codes, turned, scale, amax, scale_inv, noop, rows, cols };
        let shape = narrow_tiles(rows, cols);
        // SAFETY: buffers have the sizes of rows and cols.
        unsafe {
            if !dbias {
                return gpu.enqueue(cast.launch(&defines, shape));
            }
            let total = cast_transpose::Total { sums: s.at(2), dbias: s.at(3), bands, cols };
            gpu.enqueue(cast.with_sums(s.at(2)).launch(&defines, shape))?;
            gpu.enqueue(total.launch(&defines, cast_transpose::total_shape(cols)))
        }
    })
}

/// bf16 to e4m3 with a power-of-two scale a row (torchao rowwise).
pub fn row(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let mut defines = bf16_to_e4m3();
    defines.extend([define("RULE", Rule::Torchao), define("POW2", true), cast_block::chunks(cols)]);
    let bytes = 3 * rows * cols + 4 * rows;
    rotated(gpu, "cast row-wise bf16>e4m3", (rows, cols), &[rows * cols, 4 * rows], bytes, move |s| {
        let arguments = cast_block::Rows { x: (&s.x).into(), codes: s.at(0), scale_inv: s.at(1), rows, cols };
        // SAFETY: buffers have the sizes of rows and cols.
        unsafe { gpu.enqueue(arguments.launch(&defines, cast_block::row_shape(rows))) }
    })
}

/// bf16 to int8 with a bf16 scale a token (int8_token_reduced).
pub fn token(gpu: &'static Gpu, rows: usize, cols: usize) -> Result<Timed> {
    let defines = int4_quant::token_options(Type::Bf16, TokenRule::OwnType);
    let bytes = 3 * rows * cols + 2 * rows;
    rotated(gpu, "cast int8 per token bf16>int8", (rows, cols), &[rows * cols, 2 * rows], bytes, move |s| {
        let (x, zero) = ((&s.x).into(), Pointer::NULL);
        let arguments = int4_quant::Token8 { x, codes: s.at(0), scale: s.at(1), zero, rows, k: cols };
        // SAFETY: buffers have the sizes of rows and cols, and there are no zero points.
        unsafe { gpu.enqueue(arguments.launch(&defines, int4_quant::token_shape(rows))) }
    })
}

/// bf16 to e4m3 with a power-of-two scale for 128×128 or for 1×128 (Transformer Engine), with the transposed copy if asked for.
pub fn block(gpu: &'static Gpu, rows: usize, cols: usize, square: bool, transpose: bool) -> Result<Timed> {
    let (n, down, across) = (rows * cols, rows.div_ceil(128), cols.div_ceil(128));
    let mut defines = bf16_to_e4m3();
    defines.extend([define("RULE", Rule::Te), define("POW2", true)]);
    defines.extend(cast_block::tile_options(square, rows, cols));
    let what = if transpose { "cast_transpose" } else { "cast" };
    let name = format!("{what} {} bf16>e4m3", if square { "128x128" } else { "1x128" });
    let mut outs = vec![n, if square { 4 * down * across } else { 4 * rows * across }];
    outs.extend([n, 4 * cols * down].iter().take(match (transpose, square) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    }));
    rotated(gpu, &name, (rows, cols), &outs, 2 * n + outs.iter().sum::<usize>(), move |s| {
        let (x, codes, turned) = ((&s.x).into(), s.at(0), s.at(2));
        let arguments = cast_block::Tiles { x, codes, turned, scale_inv: s.at(1), turned_inv: s.at(3), rows, cols };
        // SAFETY: buffers have the sizes of rows, cols and their blocks.
        unsafe { gpu.enqueue(arguments.launch(&defines, tiles(rows, cols))) }
    })
}

/// bf16 to MXFP8 (Transformer Engine), with the transposed copy if asked for, or to NVFP4, amax given.
pub fn mx(gpu: &'static Gpu, rows: usize, cols: usize, nvfp4: bool, transpose: bool) -> Result<Timed> {
    let (group, packed) = if nvfp4 { (16, 2) } else { (32, 1) };
    let (rule, format) = if nvfp4 { (Rule::TeNvfp4, Type::E2m1) } else { (Rule::TeMxfp8, Type::E4m3) };
    let defines = [define("IN", Type::Bf16), define("RULE", rule), define("FORMAT", format), whole(rows, cols)];
    let (amax, global) = (gpu.upload_f32(&[4.5])?, gpu.output(4)?);
    let by_groups = cast_mx::by_groups(packed == 2, transpose, cols, group);
    let mut outs = vec![rows * cols.div_ceil(packed), rows * cols.div_ceil(group)];
    if transpose {
        outs.extend([cols * rows.div_ceil(packed), cols * rows.div_ceil(group)]);
    }
    let what = if nvfp4 { "NVFP4" } else { "MXFP8" };
    let name = format!("{} bf16>{what}", if transpose { "cast_transpose" } else { "cast" });
    rotated(gpu, &name, (rows, cols), &outs, 2 * rows * cols + outs.iter().sum::<usize>(), move |s| {
        let (amax, global_scale_inv) = ((&amax).into(), (&global).into());
        if by_groups {
            let groups = rows * cols / group;
            let arguments = cast_mx::Groups {
                x: (&s.x).into(),
                codes: s.at(0),
                scale: s.at(1),
                amax,
                global_scale_inv,
                groups: groups as u64,
            };
            // SAFETY: buffers have the sizes of rows, cols and their groups.
            return unsafe { gpu.enqueue(arguments.launch(&defines, cast_mx::group_shape(groups))) };
        }
        let arguments = cast_mx::Arguments {
            x: (&s.x).into(),
            codes: s.at(0),
            turned: s.at(2),
            scale: s.at(1),
            turned_scale: s.at(3),
            amax,
            global_scale_inv,
            rows,
            cols,
        };
        // SAFETY: as above.
        unsafe { gpu.enqueue(arguments.launch(&defines, cast_mx::shape(nvfp4, rows, cols))) }
    })
}
