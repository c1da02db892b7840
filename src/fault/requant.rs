//! Faults of kernels that choose scales themselves (outputs by a recipe): the range, the block's amax, blocks of zeros. The codes fit the wrong
//! scale, so only the recipe shows the mistake.

use super::inject::unrounded;
use super::{Class, Fault, How, On, Setting, plain};
use crate::format::{Overflow, Rounding};
use crate::job::{Data, Job, OutSpec, Output};
use crate::model::elementwise::{input_dtype, shares_codes};
use crate::tensor::round_to;
use crate::{Format, QTensor, Zero};

/// A block of the result: what its scale is chosen from.
pub struct Block {
    /// The right scale_inv.
    pub unit: f64,
    pub amax: f64,
    /// The largest magnitude of bf16 values; without the block's last element.
    pub amax_bf16: f64,
    pub amax_short: f64,
    pub format: Format,
    pub pow2: bool,
}

macro_rules! requant {
    ($class:ident, $variant:literal, $help:literal, $unit:expr) => {
        Fault {
            class: Class::$class,
            on: On::Out,
            variant: $variant,
            help: $help,
            how: How::Beside(|job, o, _: Setting| again(job, o, $unit)),
            settings: plain,
        }
    };
}

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    requant!(RangeRule, "recipe.max_240", "scales are chosen for the maximum of e4m3fnuz, 240, instead of 448", |b| (b.format == Format::E4m3 && !b.pow2 && b.amax > 0.0).then(|| b.unit * 448.0 / 240.0)),
    requant!(RangeRule, "recipe.max_half", "scales are chosen for half the format's maximum", |b| (b.amax > 0.0).then_some(b.unit * 2.0)),
    requant!(RangeRule, "recipe.max_double", "scales are chosen for twice the format's maximum: the largest values clip", |b| (b.amax > 0.0).then_some(b.unit * 0.5)),
    requant!(RangeRule, "recipe.not_divided", "scale_inv is amax, without the division by the format's maximum", |b| (b.amax > 0.0).then_some(b.amax)),
    requant!(RangeRule, "recipe.full_range", "integer scales are chosen for 2^(bits−1) instead of 2^(bits−1) − 1", |b| (b.format.is_integer() && b.amax > 0.0).then(|| b.unit * b.format.max_finite() / (b.format.max_finite() + 1.0))),
    requant!(RangeRule, "recipe.pow2_up", "scales are rounded up to powers of two", |b| (!b.pow2 && b.unit > 0.0).then(|| b.unit.log2().ceil().exp2())),
    requant!(AmaxScope, "recipe.bf16", "the block's amax is rounded to bf16", |b| (b.amax > 0.0).then(|| b.unit * (b.amax_bf16 / b.amax))),
    requant!(AmaxScope, "recipe.short", "the block's amax leaves out its last eighth", |b| (b.amax > 0.0 && b.amax_short > 0.0).then(|| b.unit * (b.amax_short / b.amax))),
    requant!(DegenerateBlock, "nan", "a block of zeros gives 0/0: NaN", |b| (b.amax == 0.0).then_some(f64::NAN)),
    requant!(DegenerateBlock, "infinite", "a block of zeros gives an infinite scale", |b| (b.amax == 0.0).then_some(0.0)),
    requant!(DegenerateBlock, "tiny_floor", "the amax of tiny blocks is floored at 1e-12 where the recipe has no such floor", |b| (b.amax < 1e-12).then_some(1e-12 / b.format.max_finite())),
    requant!(DegenerateBlock, "unit", "a block of zeros gets the scale 1", |b| (b.amax == 0.0).then_some(1.0)),
];

/// Chooses each block's scale_inv anew and encodes with it; `None` from `unit` keeps the block. Refuses when nothing changes.
fn again(job: &Job, o: &mut Output, unit: fn(&Block) -> Option<f64>) -> Option<()> {
    matches!(job.out, OutSpec::Recipe(_)).then_some(())?;
    let before = unrounded(job).ok().flatten()?;
    let input = input_dtype(job);
    let mut changed = None;
    for (part, v) in o.parts.iter_mut().zip(before) {
        let Data::Quantized(q) = &part.d else { return None };
        let (_, cols) = part.d.shape();
        let new = block_scales(q, &v, input, unit)?;
        let mut parts = q.clone().into_parts();
        for (i, code) in parts.codes.iter_mut().enumerate() {
            let s = q.scale_index(i / cols, i % cols);
            if q.scale_inv()[s].to_bits() == new[s].to_bits() {
                continue;
            }
            let by = f64::from(new[s]) * f64::from(q.over(s).0);
            let x = f64::from(round_to(input, v[i]));
            let y = match q.zero() {
                Zero::None => x / by,
                Zero::Integer(z) => (x / by).round_ties_even() + f64::from(z[s]),
                Zero::Additive { zero, mid } => (x - f64::from(zero[s])) / by + f64::from(*mid),
            };
            *code = q.format().encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
        }
        parts.scale_inv = new;
        let new = QTensor::new(parts).ok()?;
        if new.codes() != q.codes() || new.scale_inv().iter().zip(q.scale_inv()).any(|(a, b)| a.to_bits() != b.to_bits()) {
            changed = Some(());
        }
        if part.transpose.is_some() && shares_codes(&new) {
            part.transpose = Some(new.transposed().ok()?);
        }
        part.d = Data::Quantized(new);
    }
    changed
}

/// The scale_inv of every block by the wrong rule, as the scales' format holds it.
fn block_scales(q: &QTensor, v: &[f32], input: Format, unit: fn(&Block) -> Option<f64>) -> Option<Vec<f32>> {
    let cols = q.cols();
    let n = q.scale_inv().len();
    let (mut amax, mut bf16, mut short) = (vec![0.0f64; n], vec![0.0f64; n], vec![0.0f64; n]);
    let (tile_rows, tile_cols) = q.granularity().tile(q.rows(), cols);
    for (i, x) in v.iter().enumerate() {
        let (row, col) = (i / cols, i % cols);
        let s = q.scale_index(row, col);
        let x = f64::from(round_to(input, *x)).abs();
        // NaN loses.
        amax[s] = amax[s].max(x);
        let rounded = Format::Bf16.encode(x, Rounding::NearestEven, Overflow::Native);
        bf16[s] = bf16[s].max(Format::Bf16.decode(rounded));
        let late =
            if tile_cols > 1 { col % tile_cols >= tile_cols - tile_cols.div_ceil(8) } else { row % tile_rows + 1 == tile_rows };
        if !late {
            short[s] = short[s].max(x);
        }
    }
    let format = q.scale_format();
    let pow2 = q.scale_inv().iter().all(|s| s.to_bits() & 0x007f_ffff == 0);
    let scales = (0..n).map(|s| {
        let right = q.scale_inv()[s];
        let block =
            Block { unit: f64::from(right), amax: amax[s], amax_bf16: bf16[s], amax_short: short[s], format: q.format(), pow2 };
        let Some(new) = unit(&block) else { return right };
        match format {
            Format::F32 => new as f32,
            f => f.decode(f.encode(new, Rounding::NearestEven, Overflow::Saturate)) as f32,
        }
    });
    Some(scales.collect())
}
