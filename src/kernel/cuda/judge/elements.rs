//! The elements of a result on the device, and how its kernels take them.

use super::super::contract::{Contract, Pointer, arguments, by_value};
use super::super::launch::{Buffer, Gpu, LaunchShape};
use super::super::options::define;
use crate::Result;
use crate::compare::out::LaidOut;

by_value! {
    /// A result and how it is stored.
    Elements = "judge.cu" {
        exact: Pointer, ideal: Pointer, actual: Pointer, numbers: Pointer, scale: Pointer, unit: Pointer, cols: i32, tile_rows: i32,
        tile_cols: i32, grid_cols: i32, count: u64,
    }
}

arguments! {
    /// Contract judge_widen.
    Widen = "judge.cu" "judge_widen" { from: Pointer, to: Pointer, count: u64 }
}

/// Of a result: its references and radii, and what was written; doubles.
pub struct Given<'a> {
    pub exact: &'a Buffer,
    pub ideal: &'a Buffer,
    /// `None`: 0.
    pub certain: Option<&'a Buffer>,
    /// `None`: the certain ones.
    pub probable: Option<&'a Buffer>,
    pub actual: &'a Buffer,
    pub rows: usize,
    pub cols: usize,
    /// Judged bit for bit.
    pub bit_exact: bool,
    /// Rows and columns of a tile of the map.
    pub map: (usize, usize),
}

/// How the elements are stored, on the device.
pub struct Stored {
    numbers: Buffer,
    scale: Option<Buffer>,
    unit: Option<Buffer>,
    tile: (usize, usize),
    grid_cols: usize,
    pub defines: Vec<String>,
}

impl Stored {
    pub fn new(gpu: &Gpu, of: &LaidOut) -> Result<Self> {
        let scaled = !of.unit.is_empty();
        let some = |v: &[f64]| scaled.then(|| gpu.upload_all(v)).transpose();
        let most = i32::MAX as usize;
        Ok(Self {
            numbers: gpu.upload_all(&of.numbers)?,
            scale: some(of.scale)?,
            unit: some(of.unit)?,
            tile: (of.tile.0.min(most), of.tile.1.min(most)),
            grid_cols: of.grid_cols,
            defines: vec![define("SCALED", scaled)],
        })
    }

    /// A result of less than 2^31 elements.
    pub fn elements(&self, of: &Given) -> Elements {
        Elements {
            exact: of.exact.into(),
            ideal: of.ideal.into(),
            actual: of.actual.into(),
            numbers: (&self.numbers).into(),
            scale: self.scale.as_ref().into(),
            unit: self.unit.as_ref().into(),
            cols: of.cols as i32,
            tile_rows: self.tile.0 as i32,
            tile_cols: self.tile.1 as i32,
            grid_cols: self.grid_cols as i32,
            count: (of.rows * of.cols) as u64,
        }
    }
}

/// Blocks of a loop over all elements.
pub fn every(gpu: &Gpu) -> LaunchShape {
    LaunchShape::new(gpu.info.multiprocessors * 8, 256)
}

/// f32 values as doubles on the device.
pub fn widened(gpu: &Gpu, values: &Buffer) -> Result<Buffer> {
    let count = values.bytes() / 4;
    let wide = gpu.output(count * 8)?;
    let arguments = Widen { from: values.into(), to: (&wide).into(), count: count as u64 };
    // SAFETY: as many doubles as floats.
    unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
    Ok(wide)
}
