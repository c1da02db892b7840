//! The device model of integer products on the GPU (`kernels/model_int.cu`), for products too large for the CPU's.

use super::contract::{Contract, Pointer, arguments, by_value};
use super::launch::{Buffer, Gpu, LaunchShape};
use crate::model::product::{FactorRows, Plan, Problem};
use crate::{Error, QTensor, Result, Zero};

by_value! {
    /// One side of a product.
    Integers = "model_int.cu" {
        codes: Pointer, table: Pointer, scale: Pointer, zero: Pointer, rows: i32, k: i32, tile_rows: i32, tile_cols: i32, grid_cols: i32,
        unused: i32,
    }
}

arguments! {
    /// Contract model_int.
    IntegersOf = "model_int.cu" "model_int" {
        a: Integers, b: Integers, ends: Pointer, y: Pointer, runs: usize, blocked: usize, plus_zero: usize,
    }
}

/// Outputs of a block along each side.
const TILE: usize = 64;

/// One side on the device.
struct Side {
    codes: Buffer,
    table: Buffer,
    scale: Buffer,
    zero: Option<Buffer>,
}

impl Side {
    fn of(gpu: &Gpu, q: &QTensor) -> Result<Self> {
        let value = |c: u32| if c >> q.format().bits() == 0 { q.format().decode(c) as i32 } else { 0 };
        let zero = if let Zero::Integer(z) = q.zero() { Some(gpu.upload_i32(z)?) } else { None };
        Ok(Self {
            codes: gpu.upload(q.codes())?,
            table: gpu.upload_i32(&(0..256).map(value).collect::<Vec<_>>())?,
            scale: gpu.upload_f32(q.scale_inv())?,
            zero,
        })
    }

    fn argument(&self, q: &QTensor) -> Integers {
        let (tile, grid) = (q.granularity().tile(q.rows(), q.cols()), q.granularity().grid(q.rows(), q.cols()));
        Integers {
            codes: (&self.codes).into(),
            table: (&self.table).into(),
            scale: (&self.scale).into(),
            zero: self.zero.as_ref().into(),
            rows: q.rows() as i32,
            k: q.cols() as i32,
            tile_rows: tile.0 as i32,
            tile_cols: tile.1 as i32,
            grid_cols: grid.1 as i32,
            unused: 0,
        }
    }
}

/// The values of an integer product before the bias, `[M, N]` at `y`. Errors: sizes that an int does not hold; the driver's.
pub fn values(gpu: &Gpu, plan: &Plan, p: &Problem, y: &Buffer) -> Result<()> {
    let refuse = || {
        Error::unsupported("the model of integers on the GPU", "it multiplies codes of one tensor a side, below 2^31 of them")
    };
    let codes = |side: &FactorRows| side.scales().filter(|q| q.rows().max(q.cols()) < 1 << 30).cloned().ok_or_else(refuse);
    let (a, b) = (codes(p.a)?, codes(p.b)?);
    if y.bytes() != a.rows() * b.rows() * 4 || a.cols() != b.cols() {
        return Err(refuse());
    }
    let blocks = p.blocks();
    let ends = gpu.upload_i32(&blocks.iter().map(|k| k.end as i32).collect::<Vec<_>>())?;
    let (x, w) = (Side::of(gpu, &a)?, Side::of(gpu, &b)?);
    let arguments = IntegersOf {
        a: x.argument(&a),
        b: w.argument(&b),
        ends: (&ends).into(),
        y: y.into(),
        runs: blocks.len(),
        blocked: usize::from(blocks.len() > 1),
        plus_zero: usize::from(plan.bias.is_none()),
    };
    // SAFETY: codes of rows × k, a scale and a zero point of each tile, y of M × N.
    unsafe { gpu.launch(arguments.launch(&[], LaunchShape::of([b.rows().div_ceil(TILE), a.rows().div_ceil(TILE)], 256))) }
}
