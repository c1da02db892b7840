//! Radii of every element of a large product (`kernels/judge_bound.cu`).

use super::super::contract::{Contract, Pointer, arguments};
use super::super::launch::{Buffer, Gpu};
use super::super::reference;
use super::elements::every;
use crate::Result;
use crate::compare::ProductArithmetic;
use crate::compare::probable::{DELTA, U32, gamma, lambda};
use crate::model::SumBound;
use crate::model::mma::Dest;

arguments! {
    /// Contract judge_bound.
    BoundOf = "judge_bound.cu" "judge_bound" {
        ideal: Pointer, magnitude: Pointer, bias: Pointer, numbers: Pointer, lines_a: Pointer, lines_b: Pointer, repeats_a: Pointer,
        repeats_b: Pointer, scales_a: Pointer, scales_b: Pointer, certain: Pointer, probable: Pointer, rows: usize, cols: usize,
    }
}

/// Radii of every element of a product.
pub fn bound(
    gpu: &Gpu,
    ideal: &reference::Product,
    (rows, cols): (usize, usize),
    bias: Option<&Buffer>,
    p: &ProductArithmetic,
    sums: &SumBound,
) -> Result<Option<[Buffer; 2]>> {
    let Some(chain) = sums.chain() else { return Ok(None) };
    let Dest::F32 { fraction } = chain.step.dest else { return Ok(None) };
    if p.groups != 1 || p.factor_errors.is_some() || p.unknown_columns.is_some() {
        return Ok(None);
    }
    let scales = f64::from(p.scale_roundings);
    let half = 2f64.powi(-150);
    // In the order of `enum Arithmetic`.
    let numbers = [
        (p.k as f64 + 4.0) * f64::EPSILON / 2.0,
        p.descale.0,
        p.largest_sum,
        p.after_underflow,
        half * (scales + 1.0) * p.descale.1.abs().max(1.0),
        half * (scales + 1.0),
        gamma(f64::from(p.factor_roundings), U32),
        p.factor_underflow,
        gamma(scales, U32),
        1.0 / p.descale.0.abs(),
        p.largest_intermediate,
        lambda(rows * cols, DELTA),
        chain.steps as f64,
        chain.adds as f64,
        f64::from(chain.step.f),
        f64::from(fraction),
        f64::from(chain.step.floor),
        chain.relative.relative,
        chain.relative.of_partial,
        chain.relative.absolute,
    ];
    let (a, b) = sums.lines();
    let ((lines_a, repeats_a), (lines_b, repeats_b)) = (a.laid_out(), b.laid_out());
    let on_device = [gpu.upload_i32(&lines_a)?, gpu.upload_i32(&lines_b)?];
    let doubles = [&numbers[..], &repeats_a, &repeats_b, &sums.scale_a, &sums.scale_b];
    let doubles = doubles.iter().map(|x| gpu.upload_all(x)).collect::<Result<Vec<_>>>()?;
    let [certain, probable] = [gpu.output(rows * cols * 8)?, gpu.output(rows * cols * 8)?];
    let arguments = BoundOf {
        ideal: (&ideal.d).into(),
        magnitude: (&ideal.magnitude).into(),
        bias: bias.into(),
        numbers: (&doubles[0]).into(),
        lines_a: (&on_device[0]).into(),
        lines_b: (&on_device[1]).into(),
        repeats_a: (&doubles[1]).into(),
        repeats_b: (&doubles[2]).into(),
        scales_a: (&doubles[3]).into(),
        scales_b: (&doubles[4]).into(),
        certain: (&certain).into(),
        probable: (&probable).into(),
        rows,
        cols,
    };
    // SAFETY: matrices of rows × cols, lines and scales of every row and column.
    unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
    Ok(Some([certain, probable]))
}
