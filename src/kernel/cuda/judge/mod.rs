//! A large result judged on the GPU (`kernels/judge.cu`), where its references and bounds lie: what comes back are counts, extremes and
//! sums, to the bits of [`crate::compare`]'s.

pub(crate) mod bound;
pub(crate) mod counted;
pub(crate) mod elements;

use super::contract::{Contract, Pointer, arguments};
use super::launch::{Buffer, Gpu, gpu};
use super::{model, reference};
use crate::compare::OutFormat;
use crate::compare::measured::Measured;
use crate::kernel::{LargeCast, LargeProduct};
use crate::op::gemm::{looked_at, row_agrees};
use crate::stage::timed;
use crate::{Error, Format, QTensor, Result, Tensor, Zero};
use bound::bound;
use counted::measured;
use elements::{Given, every, widened};

arguments! {
    /// Contract judge_codes.
    CodesOf = "judge.cu" "judge_codes" {
        codes: Pointer, table: Pointer, unit: Pointer, values: Pointer, cols: usize, tile_rows: usize, tile_cols: usize, grid_cols: usize,
        count: u64,
    }
}

arguments! {
    /// Contract judge_model.
    ModelOf = "judge.cu" "judge_model" {
        model: Pointer, actual: Pointer, bias: Pointer, cols: usize, dtype: usize, count: u64, found: Pointer,
    }
}

/// A row of factors of one side.
type Factors<'a> = &'a (dyn Fn(usize) -> Vec<f64> + Sync);

/// Errors: a product that has not the CPU's bits where it is looked at.
fn held(gpu: &Gpu, of: &LargeProduct, product: &reference::Product, a: Factors, b: Factors) -> Result<()> {
    let bias = of.job.operands.bias.as_ref().map(|t| t.data().iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    let n = of.actual.cols();
    for (r, i) in looked_at(of.actual.rows()).into_iter().enumerate() {
        let row = |from: &Buffer| gpu.download_some::<f64>("row of a reference", from, i * n, n);
        let found = (row(&product.d)?, row(&product.magnitude)?);
        if !row_agrees(r, &a(i), &|j| b(j).into(), bias.as_deref(), (&found.0, &found.1)) {
            return Err(Error::value("f64 product of the GPU", format!("row {i} with other bits"), "the CPU's"));
        }
    }
    Ok(())
}

/// [`crate::kernel::ProductJudge`] on the GPU. Errors: no GPU; operands that are not for it; out of device memory.
pub fn product(of: &LargeProduct) -> Result<Option<Measured>> {
    let gpu = gpu()?;
    let (rows, cols) = (of.actual.rows(), of.actual.cols());
    let dtype = match of.actual.dtype() {
        Format::Bf16 => 1,
        Format::F16 => 2,
        _ => 0,
    };
    let actual = timed("model", || gpu.upload_f32(of.actual.data()))?;
    let bias = of.job.operands.bias.as_ref();
    // The kernel's bits first: what is wrong, the CPU says.
    let same = timed("model", || -> Result<bool> {
        let Some(model) = model::values(gpu, of.job)? else { return Ok(false) };
        let (bias, found) = (bias.map(|b| gpu.upload_f32(b.data())).transpose()?, gpu.filled(16, 0)?);
        let arguments = ModelOf {
            model: (&model).into(),
            actual: (&actual).into(),
            bias: bias.as_ref().into(),
            cols,
            dtype,
            count: (rows * cols) as u64,
            found: (&found).into(),
        };
        // SAFETY: both of rows × cols floats.
        unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
        Ok(gpu.download_whole::<u64>("mismatches", &found)? == [0, 0])
    })?;
    if !same {
        return Ok(None);
    }
    let bias = bias.map(|b| gpu.upload_all(&b.data().iter().map(|x| f64::from(*x)).collect::<Vec<_>>())).transpose()?;
    let (exact, ideal) = timed("references", || -> Result<_> {
        let product = |a: reference::Side, b: reference::Side| reference::product(gpu, &a, &b, bias.as_ref());
        let ([x, y], [a, b]) = (of.sources, of.quantized);
        let exact = product(reference::Side::values(gpu, x)?, reference::Side::values(gpu, y)?)?;
        let wide = |t: &Tensor, i: usize| t.row(i).iter().map(|x| f64::from(*x)).collect();
        held(gpu, of, &exact, &|i| wide(x, i), &|j| wide(y, j))?;
        let ideal = product(reference::Side::codes(gpu, a)?, reference::Side::codes(gpu, b)?)?;
        let decoded = |q: &QTensor, i: usize| (0..q.cols()).map(|k| q.value(i, k)).collect();
        held(gpu, of, &ideal, &|i| decoded(a, i), &|j| decoded(b, j))?;
        Ok((exact.d, ideal))
    })?;
    let radii = timed("bound", || bound(gpu, &ideal, (rows, cols), bias.as_ref(), of.arithmetic, of.sums))?;
    let Some([certain, probable]) = radii else { return Ok(None) };
    let actual = timed("judged", || widened(gpu, &actual))?;
    let given = Given {
        exact: &exact,
        ideal: &ideal.d,
        certain: Some(&certain),
        probable: Some(&probable),
        actual: &actual,
        rows,
        cols,
        bit_exact: true,
        map: of.map,
    };
    measured(gpu, &given, &OutFormat::high(of.actual.dtype()))
}

/// [`crate::kernel::CastJudge`] on the GPU. Errors: no GPU; out of device memory.
pub fn cast(of: &LargeCast) -> Result<Option<Measured>> {
    let (gpu, q) = (gpu()?, of.codes);
    let (rows, cols) = (q.rows(), q.cols());
    if !q.format().is_float() || q.level().is_some() || *q.zero() != Zero::None {
        return Ok(None);
    }
    let table: Vec<f64> = (0..256).map(|c| if c >> q.format().bits() == 0 { q.format().decode(c) } else { 0.0 }).collect();
    let unit: Vec<f64> = (0..q.scale_inv().len()).map(|s| q.affine(s).unit).collect();
    let (codes, table, unit) = (gpu.upload(q.codes())?, gpu.upload_all(&table)?, gpu.upload_all(&unit)?);
    let tile = q.granularity().tile(rows, cols);
    let values = gpu.output(rows * cols * 8)?;
    let arguments = CodesOf {
        codes: (&codes).into(),
        table: (&table).into(),
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
    let exact = widened(gpu, &gpu.upload_f32(of.source.data())?)?;
    // The right codes are those that were written.
    let given = Given {
        exact: &exact,
        ideal: &values,
        certain: None,
        probable: None,
        actual: &values,
        rows,
        cols,
        bit_exact: true,
        map: of.map,
    };
    measured(gpu, &given, &OutFormat::quantized(q, None))
}
