//! Radii of every element of a large product (`kernels/judge_bound.cu`).

use super::super::contract::{Contract, Pointer, arguments};
use super::super::launch::{Buffer, Gpu};
use super::super::options::define;
use super::super::reference;
use super::elements::every;
use crate::Result;
use crate::compare::probable::{DELTA, U32, gamma, lambda};
use crate::compare::{Accumulation, ProductArithmetic};
use crate::kernel::LargeSums;
use crate::model::mma::Dest;

arguments! {
    /// Contract judge_bound.
    BoundOf = "judge_bound.cu" "judge_bound" {
        ideal: Pointer, magnitude: Pointer, bias: Pointer, numbers: Pointer, lines_a: Pointer, lines_b: Pointer, repeats_a: Pointer,
        repeats_b: Pointer, scales_a: Pointer, scales_b: Pointer, first_b: Pointer, certain: Pointer, probable: Pointer, rows: usize,
        cols: usize, lines: usize,
    }
}

arguments! {
    /// Contract judge_amax.
    AmaxOf = "judge_bound.cu" "judge_amax" { ideal: Pointer, certain: Pointer, count: u64, found: Pointer }
}

/// What the kernel reads of each row and each row of b; nothing of sums that are bounded relative to Σ|ab|.
#[derive(Default)]
struct Known {
    lines: [Option<Buffer>; 2],
    repeats: [Option<Buffer>; 2],
    scales: [Option<Buffer>; 2],
    first_b: Option<Buffer>,
    /// Rows of b.
    count: usize,
}

/// Radii of every element of a product, certain and probable; `None` of sums that the kernel does not bound. Errors: the driver's.
pub fn bound(
    gpu: &Gpu,
    ideal: &reference::Product,
    (rows, cols): (usize, usize),
    bias: Option<&Buffer>,
    p: &ProductArithmetic,
    sums: &LargeSums,
) -> Result<Option<[Buffer; 2]>> {
    if p.factor_errors.is_some() || p.unknown_columns.is_some() {
        return Ok(None);
    }
    let (relative, steps, known) = match sums {
        LargeSums::Relative(relative) => (*relative, [0.0; 5], Known::default()),
        LargeSums::Each(sums) => {
            let Some(chain) = sums.chain() else { return Ok(None) };
            let Dest::F32 { fraction } = chain.step.dest else { return Ok(None) };
            let (steps, adds) = (chain.steps as f64, chain.adds as f64);
            let (a, b) = sums.lines();
            let ((lines_a, repeats_a), (lines_b, repeats_b)) = (a.laid_out(), b.laid_out());
            let some = |values: &[f64]| gpu.upload_all(values).map(Some);
            let first_b: Vec<i32> = sums.first_b.iter().map(|line| *line as i32).collect();
            let known = Known {
                lines: [Some(gpu.upload_i32(&lines_a)?), Some(gpu.upload_i32(&lines_b)?)],
                count: repeats_b.len(),
                repeats: [some(&repeats_a)?, some(&repeats_b)?],
                scales: [some(&sums.scale_a)?, some(&sums.scale_b)?],
                first_b: if first_b.is_empty() { None } else { Some(gpu.upload_i32(&first_b)?) },
            };
            let step = [steps, adds, f64::from(chain.step.f), f64::from(fraction), f64::from(chain.step.floor)];
            (chain.relative, step, known)
        }
    };
    let numbers = gpu.upload_all(&numbers(p, rows * cols, &relative, &steps))?;
    let [certain, probable] = [gpu.output(rows * cols * 8)?, gpu.output(rows * cols * 8)?];
    let pair = |of: &[Option<Buffer>; 2]| [Pointer::from(of[0].as_ref()), Pointer::from(of[1].as_ref())];
    let ([lines_a, lines_b], [repeats_a, repeats_b]) = (pair(&known.lines), pair(&known.repeats));
    let [scales_a, scales_b] = pair(&known.scales);
    let arguments = BoundOf {
        ideal: (&ideal.d).into(),
        magnitude: (&ideal.magnitude).into(),
        bias: bias.into(),
        numbers: (&numbers).into(),
        lines_a,
        lines_b,
        repeats_a,
        repeats_b,
        scales_a,
        scales_b,
        first_b: known.first_b.as_ref().into(),
        certain: (&certain).into(),
        probable: (&probable).into(),
        rows,
        cols,
        lines: known.count,
    };
    let defines = [define("EACH", matches!(sums, LargeSums::Each(_)))];
    // SAFETY: matrices of rows × cols, lines and scales of every row and every row of b.
    unsafe { gpu.launch(arguments.launch(&defines, every(gpu)))? };
    Ok(Some([certain, probable]))
}

/// In the order of `enum Arithmetic`.
fn numbers(p: &ProductArithmetic, elements: usize, relative: &Accumulation, steps: &[f64; 5]) -> Vec<f64> {
    let (scales, groups) = (f64::from(p.scale_roundings), p.groups.max(1) as f64);
    let half = 2f64.powi(-150);
    let of_product = [
        (p.k as f64 + 4.0) * f64::EPSILON / 2.0,
        p.descale.0,
        p.largest_sum,
        p.after_underflow,
        half * groups * (scales + 1.0) * p.descale.1.abs().max(1.0),
        half * (scales + 1.0),
        gamma(f64::from(p.factor_roundings), U32),
        p.factor_underflow,
        gamma(scales, U32),
        groups,
        gamma(groups, U32),
        1.0 / p.descale.0.abs(),
        p.largest_intermediate,
        lambda(elements, DELTA),
        relative.relative,
        relative.of_partial,
        relative.absolute,
    ];
    [&of_product[..], steps].concat()
}

/// The largest finite magnitude of a reference.
pub fn largest(gpu: &Gpu, ideal: &Buffer) -> Result<f64> {
    Ok(extremes(gpu, ideal, None)?[0])
}

/// What the amax of a result may be where its values are within these radii: as [`crate::compare::amax_intervals`].
pub fn amax_interval(gpu: &Gpu, ideal: &Buffer, radii: &Buffer) -> Result<(f64, f64)> {
    let [_, low, high] = extremes(gpu, ideal, Some(radii))?;
    Ok((f64::from(low as f32), f64::from(high as f32)))
}

fn extremes(gpu: &Gpu, ideal: &Buffer, certain: Option<&Buffer>) -> Result<[f64; 3]> {
    let found = gpu.filled(3 * 8, 0)?;
    let count = (ideal.bytes() / 8) as u64;
    let arguments = AmaxOf { ideal: ideal.into(), certain: certain.into(), count, found: (&found).into() };
    // SAFETY: as many doubles in both; three numbers.
    unsafe { gpu.launch(arguments.launch(&[define("EACH", false)], every(gpu)))? };
    let found: Vec<u64> = gpu.download_whole("largest of a result", &found)?;
    Ok(std::array::from_fn(|i| f64::from_bits(found[i])))
}
