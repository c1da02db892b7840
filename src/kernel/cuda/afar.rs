//! Tensors whose values stay on the GPU: their amax and codes there (`kernels/afar.cu`), and their numbers on the way here.

use super::contract::{Contract, Pointer, arguments};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use crate::tensor::There;
use crate::tensor::afar::{Afar, FarCodes, Fetch, Numbers};
use crate::{Format, Result, Tensor};
use std::ops::Range;
use std::sync::Arc;

arguments! {
    /// Contract far_halves.
    Halves = "afar.cu" "far_halves" { values: Pointer, halves: Pointer, count: u64 }
}

arguments! {
    /// Contract far_amax.
    AmaxOf = "afar.cu" "far_amax" {
        values: Pointer, found: Pointer, special: Pointer, rows: usize, cols: usize, tile_rows: usize, tile_cols: usize,
    }
}

arguments! {
    /// Contract far_codes.
    CodesOf = "afar.cu" "far_codes" {
        values: Pointer, scale: Pointer, scale_inv: Pointer, codes: Pointer, counts: Pointer, ties: Pointer, rows: usize, cols: usize,
        tile_rows: usize, tile_cols: usize, mantissa: usize, bias: usize, largest: usize,
    }
}

fn shape(gpu: &Gpu) -> LaunchShape {
    LaunchShape::new(gpu.info.multiprocessors * 8, 256)
}

/// The values of a tensor on the device, f32; brought there where they are not.
pub fn values(gpu: &Gpu, x: &Tensor) -> Result<Arc<Buffer>> {
    x.there().or_make(|| gpu.upload_f32(x.data()))
}

/// Values of bf16 that were drawn on the device, and stay there.
struct Drawn {
    values: Arc<Buffer>,
    rows: usize,
    cols: usize,
}

/// The tensor of bf16 values that lie on the device as f32. Errors: none of its own.
pub fn tensor(values: Buffer, (rows, cols): (usize, usize)) -> Result<Tensor> {
    let values = Arc::new(values);
    let held = Arc::clone(&values);
    let count = rows * cols;
    let fetch: Fetch<f32> = Box::new(move |some: Range<usize>| {
        let gpu = gpu()?;
        if some.len() < count {
            return gpu.download_some("inputs", &held, some.start, some.len());
        }
        // What bf16 holds has nothing in the low half of an f32.
        let halves = gpu.filled(count * 2, 0)?;
        let arguments = Halves { values: (&*held).into(), halves: (&halves).into(), count: count as u64 };
        // SAFETY: as many halves as values.
        unsafe { gpu.launch(arguments.launch(&[], shape(gpu)))? };
        gpu.download_halves("inputs", &halves)
    });
    let there = There::with(Arc::clone(&values));
    let afar = Arc::new(Drawn { values, rows, cols });
    Ok(Tensor::elsewhere(Format::Bf16, (rows, cols), Numbers::elsewhere(count, fetch), afar)?.held(there))
}

impl Afar for Drawn {
    fn amax(&self, tile: (usize, usize)) -> Result<Option<Vec<u32>>> {
        let gpu = gpu()?;
        let tiles = self.rows.div_ceil(tile.0) * self.cols.div_ceil(tile.1);
        let (found, special) = (gpu.filled(tiles * 4, 0)?, gpu.filled(4, 0)?);
        let arguments = AmaxOf {
            values: (&*self.values).into(),
            found: (&found).into(),
            special: (&special).into(),
            rows: self.rows,
            cols: self.cols,
            tile_rows: tile.0,
            tile_cols: tile.1,
        };
        // SAFETY: values of rows × cols, one number a tile.
        unsafe { gpu.launch(arguments.launch(&[], shape(gpu)))? };
        if gpu.download_whole::<i32>("whether values are finite", &special)? != [0] {
            return Ok(None);
        }
        let found: Vec<f32> = gpu.download_whole("amax", &found)?;
        Ok(Some(found.into_iter().map(f32::to_bits).collect()))
    }

    fn encode(&self, format: Format, tile: (usize, usize), scale: &[f32], scale_inv: &[f32]) -> Result<Option<FarCodes>> {
        let (mantissa, bias) = match format {
            Format::E4m3 => (3, 7),
            Format::E5m2 => (2, 15),
            _ => return Ok(None),
        };
        let gpu = gpu()?;
        let (codes, counts, ties) = (gpu.output(self.rows * self.cols)?, gpu.filled(self.rows * 1024, 0)?, gpu.filled(8, 0)?);
        let (scale, scale_inv) = (gpu.upload_f32(scale)?, gpu.upload_f32(scale_inv)?);
        let arguments = CodesOf {
            values: (&*self.values).into(),
            scale: (&scale).into(),
            scale_inv: (&scale_inv).into(),
            codes: (&codes).into(),
            counts: (&counts).into(),
            ties: (&ties).into(),
            rows: self.rows,
            cols: self.cols,
            tile_rows: tile.0,
            tile_cols: tile.1,
            mantissa,
            bias,
            largest: format.max_code() as usize,
        };
        // SAFETY: values and codes of rows × cols, a scale a tile, 256 counts a row.
        unsafe { gpu.launch(arguments.launch(&[], shape(gpu)))? };
        let rows: Vec<[u32; 256]> = gpu.download_whole("counts of codes", &counts)?;
        let ties = gpu.download_whole::<u64>("ties", &ties)?[0];
        let codes = Arc::new(codes);
        let held = Arc::clone(&codes);
        let fetch: Fetch<u8> = Box::new(move |some: Range<usize>| match some.len() == held.bytes() {
            true => gpu.download_any("codes", &held),
            false => gpu.download_some("codes", &held, some.start, some.len()),
        });
        let numbers = Numbers::elsewhere(self.rows * self.cols, fetch);
        Ok(Some(FarCodes { codes: numbers, there: There::with(codes), rows, ties }))
    }
}
