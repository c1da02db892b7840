//! What every elementwise kernel does with its f32 values: rows computed in parallel bands, amax, codes, scale_inv, the
//! transposed copy and the column sums in one pass over the data.

use super::bands;
use crate::format::fast::Encoder;
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::model::elementwise::{DBIAS_BAND, amax, input_dtype, shares_codes};
use crate::parallel;
use crate::quant::QTensorParts;
use crate::{Format, Granularity, Overflow, QTensor, Result, Tensor, Zero};

/// Fills a buffer with the values of a row.
pub type RowFn<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// The `rows × cols` values of one part, row by row on demand.
pub struct RowSource<'a> {
    pub rows: usize,
    pub cols: usize,
    pub fill: Box<RowFn<'a>>,
}

/// Splits `out` (row-major, `cols` wide) into bands of [`DBIAS_BAND`] rows and runs `work(first row, band)` on all cores.
fn by_band<T: Send, R: Send>(out: &mut [T], cols: usize, work: impl Fn(usize, &mut [T]) -> R + Sync) -> Vec<R> {
    if out.is_empty() {
        return Vec::new();
    }
    parallel::map_chunks(out, DBIAS_BAND * cols, |band, out| work(band * DBIAS_BAND, out))
}

/// Adds a row to the column sums of its band.
fn add_row(sums: &mut [f32], row: &[f32]) {
    sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += v);
}

/// The column sums of all bands, in order.
fn total(bands: &[Vec<f32>], cols: usize) -> Vec<f32> {
    let mut total = vec![0.0f32; cols];
    bands.iter().for_each(|band| add_row(&mut total, band));
    total
}

/// Codes by a given scale, amax and the column sums of v, without ever holding v.
fn scaled(values: &RowSource, format: Format, scale: f32, transpose: bool) -> Result<(Part, Vec<f32>)> {
    let (rows, cols) = (values.rows, values.cols);
    let encoder = Encoder::new(format, Overflow::Saturate)?;
    let mut codes = vec![0u8; rows * cols];
    let done = by_band(&mut codes, cols, |first, codes| {
        let (mut row, mut sums, mut largest) = (vec![0.0f32; cols], vec![0.0f32; cols], 0.0f32);
        for (i, codes) in codes.chunks_mut(cols).enumerate() {
            (values.fill)(first + i, &mut row);
            largest = largest.max(amax(&row));
            encoder.encode_slice(&row, scale, codes).expect("a row of codes for a row of values");
            add_row(&mut sums, &row);
        }
        (largest, sums)
    });
    let (largest, sums): (Vec<f32>, Vec<Vec<f32>>) = done.into_iter().unzip();
    let parts = QTensorParts {
        format,
        rows,
        cols,
        codes,
        granularity: Granularity::Tensor,
        scale_format: Format::F32,
        scale_inv: vec![1.0 / scale],
        zero: Zero::None,
        level: None,
    };
    let turned = |p: &QTensorParts| QTensorParts { rows: cols, cols: rows, codes: turn(&p.codes, rows, cols), ..p.clone() };
    let transpose = transpose.then(|| QTensor::new(turned(&parts))).transpose()?;
    let d = Data::Quantized(QTensor::new(parts)?);
    Ok((Part { d, transpose, amax: Some(amax(&largest)) }, total(&sums, cols)))
}

/// All of v, and its column sums.
fn whole(values: &RowSource) -> (Vec<f32>, Vec<f32>) {
    let mut v = vec![0.0f32; values.rows * values.cols];
    let sums = by_band(&mut v, values.cols, |first, v| {
        let mut sums = vec![0.0f32; values.cols];
        for (i, row) in v.chunks_mut(values.cols).enumerate() {
            (values.fill)(first + i, row);
            add_row(&mut sums, row);
        }
        sums
    });
    (v, total(&sums, values.cols))
}

/// One part and the column sums of its v.
fn part(job: &Job, index: usize, values: &RowSource, transpose: bool) -> Result<(Part, Vec<f32>)> {
    let (rows, cols) = (values.rows, values.cols);
    match &job.out {
        OutSpec::Scaled { format, scale } => scaled(values, *format, scale[index].unwrap_or(1.0), transpose),
        OutSpec::High(format) => {
            let (v, sums) = whole(values);
            let d = Data::High(Tensor::rounded(*format, rows, cols, v)?);
            Ok((Part::plain(d), sums))
        }
        OutSpec::Recipe(recipe) => {
            let (v, sums) = whole(values);
            let x = Tensor::rounded(input_dtype(job), rows, cols, v)?;
            let quantized = bands::quantize(recipe, &x)?;
            let transpose = match transpose {
                true if shares_codes(&quantized.q) => Some(quantized.q.transposed()?),
                true => Some(bands::quantize(recipe, &x.transposed())?.q),
                false => None,
            };
            let amax = (quantized.q.granularity() == Granularity::Tensor).then(|| amax(&quantized.amax));
            Ok((Part { d: Data::Quantized(quantized.q), transpose, amax }, sums))
        }
    }
}

/// `rows × cols` codes transposed in tiles that stay in the cache.
fn turn(codes: &[u8], rows: usize, cols: usize) -> Vec<u8> {
    const TILE: usize = 64;
    let mut turned = vec![0u8; codes.len()];
    if codes.is_empty() {
        return turned;
    }
    parallel::chunks(&mut turned, TILE * rows, |band, out| {
        for i0 in (0..rows).step_by(TILE) {
            for (j, out) in out.chunks_mut(rows).enumerate() {
                for i in i0..rows.min(i0 + TILE) {
                    out[i] = codes[i * cols + band * TILE + j];
                }
            }
        }
    });
    turned
}

/// The whole output of a job from the rows of each part.
pub fn output(job: &Job, parts: &[RowSource]) -> Result<Output> {
    let spec = job.op.spec();
    let mut out = Output { parts: Vec::new(), dbias: None, mean: None, rsigma: None };
    for (index, values) in parts.iter().enumerate() {
        let (part, sums) = part(job, index, values, spec.transposes)?;
        if spec.dbias {
            out.dbias = Some(Tensor::rounded(input_dtype(job), 1, values.cols, sums)?);
        }
        out.parts.push(part);
    }
    Ok(out)
}
