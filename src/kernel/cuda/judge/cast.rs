//! A large cast judged on the GPU; codes as values there.

use super::super::afar;
use super::super::contract::{Contract, Pointer, arguments};
use super::super::launch::{Buffer, Gpu, gpu};
use super::counted::measured;
use super::elements::{Given, every, widened};
use crate::compare::OutFormat;
use crate::compare::measured::Measured;
use crate::kernel::LargeCast;
use crate::{QTensor, Result, Zero};

arguments! {
    /// Contract judge_codes.
    CodesOf = "judge.cu" "judge_codes" {
        codes: Pointer, table: Pointer, unit: Pointer, values: Pointer, cols: usize, tile_rows: usize, tile_cols: usize, grid_cols: usize,
        count: u64,
    }
}

/// Codes of a narrow float on the device.
pub struct Codes {
    pub codes: Buffer,
    /// The value of each code.
    pub table: Buffer,
}

impl Codes {
    /// `None` of others: no float, a second level, zero points. Errors: the driver's.
    pub fn upload(gpu: &Gpu, q: &QTensor) -> Result<Option<Self>> {
        if !q.format().is_float() || q.level().is_some() || *q.zero() != Zero::None {
            return Ok(None);
        }
        let value = |c: u32| if c >> q.format().bits() == 0 { q.format().decode(c) } else { 0.0 };
        let table: Vec<f64> = (0..256).map(value).collect();
        Ok(Some(Self { codes: gpu.upload(q.codes())?, table: gpu.upload_all(&table)? }))
    }

    /// What they stand for: the codes of `q` times its scale_inv, doubles.
    pub fn values(&self, gpu: &Gpu, q: &QTensor) -> Result<Buffer> {
        let (rows, cols) = (q.rows(), q.cols());
        let unit: Vec<f64> = (0..q.scale_inv().len()).map(|s| q.affine(s).unit).collect();
        let (unit, values) = (gpu.upload_all(&unit)?, gpu.output(rows * cols * 8)?);
        let tile = q.granularity().tile(rows, cols);
        let arguments = CodesOf {
            codes: (&self.codes).into(),
            table: (&self.table).into(),
            unit: (&unit).into(),
            values: (&values).into(),
            cols,
            tile_rows: tile.0,
            tile_cols: tile.1,
            grid_cols: q.granularity().grid(rows, cols).1,
            count: (rows * cols) as u64,
        };
        // SAFETY: codes and values of rows × cols, a unit of every tile.
        unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
        Ok(values)
    }
}

/// [`crate::kernel::CastJudge`] on the GPU. Errors: no GPU; out of device memory.
pub fn cast(of: &LargeCast) -> Result<Option<Measured>> {
    let (gpu, q) = (gpu()?, of.codes);
    let Some(codes) = Codes::upload(gpu, q)? else { return Ok(None) };
    let values = codes.values(gpu, q)?;
    let source = afar::values(gpu, of.source)?;
    let exact = widened(gpu, &source)?;
    // The right codes are those that were written.
    let given = Given {
        exact: &exact,
        ideal: &values,
        certain: None,
        probable: None,
        actual: &values,
        rows: q.rows(),
        cols: q.cols(),
        bit_exact: true,
        map: of.map,
    };
    measured(gpu, &given, &OutFormat::quantized(q, None))
}
