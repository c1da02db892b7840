//! Blocks of zeros that a cast turns into something else: a scale of 0 divides 0 by 0, and NaN is read back.
//!
//! In every other block the stored scale decides what the codes are. In a block of zeros it does not: 0 / 0 just is NaN. So the values that are
//! read back decide: they have to be numbers. A recipe says what its blocks of zeros become.

use super::Bundle;
use crate::fault::{Class, Finding};
use crate::job::Data;
use crate::op::Op;
use crate::quant::Zero;
use crate::{QTensor, Tensor, parallel};

/// Row and column of its first element, its scale_inv, and what is read there, of each block of zeros that is read back as NaN or Inf.
fn blocks(x: &Tensor, q: &QTensor) -> Vec<(usize, usize, f64, f64)> {
    let (rows, cols) = (q.rows(), q.cols());
    if !matches!(q.zero(), Zero::None) || (x.rows(), x.cols()) != (rows, cols) {
        return Vec::new();
    }
    let (mut zeros, mut bad) = (vec![true; q.scale_inv().len()], vec![None; q.scale_inv().len()]);
    let values: Vec<f64> = (0..1u32 << q.format().bits()).map(|c| q.format().decode(c)).collect();
    let (grid, tile) = (q.granularity().grid(rows, cols), q.granularity().tile(rows, cols));
    for (i, (x, codes)) in x.data().chunks(cols.max(1)).zip(q.codes().chunks(cols.max(1))).enumerate() {
        for (first, (x, codes)) in x.chunks(tile.1).zip(codes.chunks(tile.1)).enumerate() {
            let s = i / tile.0 * grid.1 + first;
            if !zeros[s] {
                continue;
            }
            zeros[s] = x.iter().all(|x| *x == 0.0);
            if !zeros[s] {
                continue;
            }
            let unit = q.affine(s).unit;
            let read = codes.iter().map(|c| values[usize::from(*c)] * unit).enumerate().find(|(_, v)| !v.is_finite());
            if let (None, Some((j, v))) = (bad[s], read) {
                bad[s] = Some((i, first * tile.1 + j, unit, v));
            }
        }
    }
    bad.into_iter().zip(zeros).filter_map(|(b, zeros)| b.filter(|_| zeros)).collect()
}

fn of(bundle: &Bundle, may_be_nan: impl Fn(usize) -> bool) -> Option<String> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    matches!(bundle.meta.op, Op::Cast | Op::CastTranspose).then_some(())?;
    let x = bundle.a.high.as_ref()?;
    // A tensor of zeros alone has no scale of its second level either: NaN in all of it is what torchao's NVFP4 makes of one.
    parallel::first(x.data(), |x| *x != 0.0)?;
    let mut found = blocks(x, q);
    found.retain(|(row, col, ..)| !may_be_nan(row * q.cols() + col));
    let (row, col, unit, value) = found.first()?;
    let count = if found.len() == 1 { "a block of zeros is".into() } else { format!("{} blocks of zeros are", found.len()) };
    Some(format!("{count} not read back as zeros: ({row}, {col}) is {value} with scale_inv {unit:e}"))
}

/// What is wrong with the blocks of zeros of a cast without a recipe.
pub(super) fn contradiction(bundle: &Bundle) -> Option<String> {
    of(bundle, |_| bundle.meta.recipe.is_some())
}

/// The same as a finding, of a recipe as well: where `ideal`, the right values, is a number.
pub(super) fn explain(bundle: &Bundle, ideal: &[f64]) -> Option<Finding> {
    let words = of(bundle, |at| ideal.get(at).is_none_or(|d| !d.is_finite()))?;
    Some(Finding::solved(Class::DegenerateBlock, "out.zeros", words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity};

    #[test]
    fn zeros_are_read_back_as_numbers() {
        let of = |scale_inv: [f32; 2], code: u8| {
            let data = (0..64).map(|at| if at % 32 < 16 { 0.0 } else { 1.0 }).collect();
            let codes = (0..64).map(|at| if at % 32 < 16 { code } else { 0x38 }).collect();
            let q = QTensor::new(QTensorParts {
                format: Format::E4m3,
                rows: 2,
                cols: 32,
                codes,
                granularity: Granularity::Block { rows: 2, cols: 16 },
                scale_format: Format::F32,
                scale_inv: scale_inv.to_vec(),
                zero: Zero::None,
                level: None,
            });
            blocks(&Tensor::new(Format::F32, 2, 32, data).unwrap(), &q.unwrap()).len()
        };
        assert_eq!(of([0.0, 1.0], 0), 0, "a scale of 0 is no harm where its codes are numbers");
        assert_eq!(of([0.0, 1.0], 0x7f), 1, "NaN codes");
        assert_eq!(of([f32::NAN, 1.0], 0), 1, "a NaN scale");
        assert_eq!(of([1.0, f32::NAN], 0), 0, "the other block is not of zeros");
    }

    /// Of a tensor of zeros alone nothing is said: it has no scale of its own.
    #[test]
    fn a_block_of_zeros_is_one_of_a_tensor_that_has_numbers() {
        let said = |second: f32, at: usize| {
            let mut w = super::super::Writer::new("cast");
            let data: Vec<f32> = (0..64).map(|i| if i < 32 { 0.0 } else { second }).collect();
            let codes = (0..64).map(|i| if i == at { 0x7f } else { 0 }).collect();
            w.f32s("a", &[2, 32], &data).raw("out.codes", safetensors::Dtype::F8_E4M3, &[2, 32], codes);
            w.f32s("out.scale_inv", &[2], &[1.0; 2]).meta("out.granularity", "row");
            contradiction(&super::super::settle::emulated::read(&w))
        };
        assert!(said(1.0, 5).unwrap().starts_with("a block of zeros is not read back as zeros: (0, 5) is NaN"));
        assert_eq!([said(1.0, 40), said(0.0, 5)], [None, None]);
    }
}
