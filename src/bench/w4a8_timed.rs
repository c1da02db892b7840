//! W4A8 as it is timed, by the kernel that a case of the shape takes: f16 scales and output, inputs rotated past the L2.

use crate::kernel::cuda::contract::Pointer;
use crate::kernel::cuda::launch::{Buffer, Gpu, Launch};
use crate::kernel::cuda::options::Type;
use crate::kernel::cuda::timed::{Timed, normals, rotation, uploads};
use crate::kernel::cuda::w4a8::{Formats, ProductBuffers, Tile, W4a8Sizes};
use crate::kernel::cuda::w4a8_wide::Wide;
use crate::{Format, Result};

/// Which kernel takes the shape, with its options.
enum By {
    Wide(Wide, Vec<String>),
    Tile(Tile, Vec<String>),
}

impl By {
    fn of(gpu: &Gpu, s: &W4a8Sizes) -> Result<Self> {
        let (scale, out) = (Type::F16, Type::F16);
        if let Some(wide) = Wide::of(s, Format::F16, gpu.info.capability) {
            return Ok(By::Wide(wide, wide.options(scale, out)));
        }
        let tile = s.tile()?;
        let formats = Formats { unsigned: false, fused: false, xzero: false, wzero: false, scale, out };
        Ok(By::Tile(tile, tile.options(s, formats)))
    }
    fn launch(&self, s: &W4a8Sizes, set: &Set) -> Result<Launch<'_>> {
        let none = Pointer::NULL;
        let (x, w, xs, ws, d) = (&set.x, &set.w, Pointer::from(&set.xs), &set.ws, &set.d);
        let on = ProductBuffers { x, w, xs, ws, xz: none, wz: none, bias: none, d, xs_out: none };
        match self {
            By::Wide(wide, defines) => wide.launch(s, defines, &on),
            By::Tile(tile, defines) => Ok(tile.launch(s, defines, &on)),
        }
    }
}

/// Buffers of one call.
struct Set {
    x: Buffer,
    w: Buffer,
    xs: Buffer,
    ws: Buffer,
    d: Buffer,
}

/// int8 `tokens × k` times int4 `features × k`, scales a token and a channel, or a group of `group` (a power of two from 128). Errors: a
/// shape that neither kernel takes; out of memory.
pub fn timed(gpu: &'static Gpu, tokens: usize, features: usize, k: usize, group: Option<usize>) -> Result<Timed> {
    let groups = group.map_or(1, |g| k.div_ceil(g));
    let group_shift = group.map_or(30, |g| g.trailing_zeros() as usize);
    let s = W4a8Sizes { m: tokens, n: features, k, grouped: groups > 1, group_shift, groups, weight_zero: false };
    let by = By::of(gpu, &s)?;
    let [x, w, xs, ws, d] = [s.m * k, s.n * k / 2, 2 * s.m, 2 * s.n * groups, 2 * s.m * s.n];
    let bytes = (x + w + xs + ws + d) as u64;
    let copies = rotation(gpu, bytes);
    let mut sets = Vec::with_capacity(copies);
    // Any byte holds two codes.
    let xs_w = uploads(gpu, &normals(Format::Int8, x, 1)?, copies)?.into_iter().zip(uploads(
        gpu,
        &normals(Format::Int8, w, 2)?,
        copies,
    )?);
    let (of_tokens, of_features) = (normals(Format::F16, s.m, 3)?, normals(Format::F16, s.n * groups, 4)?);
    for (x, w) in xs_w {
        sets.push(Set { x, w, xs: gpu.upload(&of_tokens)?, ws: gpu.upload(&of_features)?, d: gpu.output(d)? });
    }
    let name = match group {
        None => "W4A8, channel".to_string(),
        Some(g) => format!("W4A8, g={g}"),
    };
    let (shape, ops) = (format!("{tokens}x{features}x{k}"), 2 * (s.m * s.n * k) as u64);
    let launch = move |i: usize| {
        // SAFETY: buffers have the sizes of the shape and live in this closure.
        unsafe { gpu.enqueue(by.launch(&s, &sets[i % copies])?) }
    };
    Ok(Timed { name, shape, bytes, ops, copies, launch: Box::new(launch) })
}
