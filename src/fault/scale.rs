//! Faults of scales as they are applied: omitted, doubled, inverted, stale, rounded again, taken from elsewhere.

use super::edit::{Which, edit, grid, map_scales, reindex_scales};
use super::rule::{A, AB, B, On, OperandRule, rule};
use super::{Class, Fault, How, Setting, plain};
use crate::format::{Overflow, Rounding};
use crate::job::Job;
use crate::quant::{Level, QTensorParts};
use crate::{Format, Granularity};

/// Every scale of an operand by a rule.
macro_rules! by_scale {
    ($class:ident, $name:literal, $on:expr, $help:literal, $rule:expr) => {
        rule(Class::$class, $name, $on, $help, |_, p, s| map_scales(p, |_, _, x| $rule(x, s)))
    };
}

/// Every scale of an operand from another place.
macro_rules! by_index {
    ($class:ident, $name:literal, $on:expr, $needs:expr, $help:literal, $from:expr) => {
        rule(Class::$class, $name, $on, $help, |_, p, _| {
            let (rows, cols) = grid(p);
            $needs(rows, cols).then_some(())?;
            reindex_scales(p, |r, c| $from(r, c, rows, cols))
        })
    };
}

/// More than one scale along K; along the rows.
fn along_k(_: usize, cols: usize) -> bool {
    cols > 1
}
fn along_rows(rows: usize, _: usize) -> bool {
    rows > 1
}

fn one(_: f32, _: Setting) -> f32 {
    1.0
}
fn twice(x: f32, _: Setting) -> f32 {
    x * x
}
fn inverted(x: f32, _: Setting) -> f32 {
    1.0 / x
}
/// 2^⌈log2 x⌉, 2^⌊log2 x⌋ of a positive scale.
fn pow2(x: f32, up: bool) -> f32 {
    if !(x > 0.0 && x.is_finite()) {
        return x;
    }
    let floor = f64::from(x).log2().floor().exp2() as f32;
    if up && floor < x { floor * 2.0 } else { floor }
}
fn pow2_up(x: f32, _: Setting) -> f32 {
    pow2(x, true)
}
fn pow2_down(x: f32, _: Setting) -> f32 {
    pow2(x, false)
}
fn pow2_nearest(x: f32, _: Setting) -> f32 {
    let (low, high) = (pow2(x, false), pow2(x, true));
    if x / low < std::f32::consts::SQRT_2 { low } else { high }
}
fn as_bf16(x: f32, _: Setting) -> f32 {
    store(Format::Bf16, x, Rounding::NearestEven)
}
fn as_bf16_truncated(x: f32, _: Setting) -> f32 {
    store(Format::Bf16, x, Rounding::TowardZero)
}
fn as_f16(x: f32, _: Setting) -> f32 {
    store(Format::F16, x, Rounding::NearestEven)
}
fn store(format: Format, x: f32, rounding: Rounding) -> f32 {
    format.decode(format.encode(f64::from(x), rounding, Overflow::Saturate)) as f32
}
fn gained(x: f32, s: Setting) -> f32 {
    (f64::from(x) * s.by) as f32
}

/// Gains of scales between steps: no powers of two.
pub fn gains(_: &Job) -> Vec<Setting> {
    [1.3125, 0.7421, 1.0937].into_iter().enumerate().map(|(at, by)| Setting { at, by }).collect()
}

/// The second level of scales of an operand.
fn global(p: &mut QTensorParts, by: fn(f32) -> f32) -> Option<()> {
    let level = p.level.as_mut()?;
    let old = level.scale_inv.clone();
    level.scale_inv.iter_mut().for_each(|s| *s = by(*s));
    (level.scale_inv != old).then_some(())
}

#[rustfmt::skip]
pub const RULES: &[OperandRule] = &[
    by_scale!(ScaleOmitted, "", AB, "the scales of {} are never applied", one),
    rule(Class::ScaleOmitted, "global", AB, "the second-level scale of {} is never applied", |_, p, _| global(p, |_| 1.0)),
    by_scale!(ScaleDoubledInverted, "twice", AB, "the scales of {} are applied twice", twice),
    by_scale!(ScaleDoubledInverted, "inverted", AB, "the reciprocals of {}'s scales are applied", inverted),
    rule(Class::ScaleDoubledInverted, "global_twice", A, "the second-level scale of {} is applied twice", |_, p, _| global(p, |x| x * x)),
    rule(Class::ScaleDoubledInverted, "global_inverted", B, "the reciprocal of {}'s second-level scale is applied", |_, p, _| global(p, |x| 1.0 / x)),
    OperandRule { settings: gains, ..by_scale!(StaleState, "scale_inv", AB, "the scales of {} are of an earlier step", gained) },
    by_scale!(ScaleRerounded, "pow2_up", AB, "the scales of {} are rounded up to powers of two", pow2_up),
    by_scale!(ScaleRerounded, "pow2_down", AB, "the scales of {} are rounded down to powers of two", pow2_down),
    by_scale!(ScaleRerounded, "pow2_nearest", AB, "the scales of {} are rounded to the nearest power of two", pow2_nearest),
    by_scale!(ScaleRerounded, "bf16", AB, "the scales of {} are rounded to bf16", as_bf16),
    by_scale!(ScaleRerounded, "bf16_truncated", B, "the scales of {} are cut to bf16", as_bf16_truncated),
    by_scale!(ScaleRerounded, "f16", B, "the scales of {} are rounded to f16", as_f16),
    by_index!(ScaleShared, "first_row", AB, along_rows, "the scales of {}'s first row are used for every row", |_, c, _, _| (0, c)),
    by_index!(ScaleShared, "last_row", A, along_rows, "the scales of {}'s last row are used for every row", |_, c, rows, _| (rows - 1, c)),
    by_index!(ScaleShared, "first_half", B, along_rows, "the scales of {}'s first half are used for the second (gate and up)", |r: usize, c, rows: usize, _| (if r >= rows.div_ceil(2) { r - rows.div_ceil(2) } else { r }, c)),
    by_index!(ScaleShared, "pairs", B, along_rows, "two neighbouring rows of {} share the first one's scale", |r: usize, c, _, _| (r / 2 * 2, c)),
    by_index!(ScaleShared, "next_row", AB, along_rows, "{}'s scale is that of the next row; the last row keeps its own", |r: usize, c, rows: usize, _| ((r + 1).min(rows - 1), c)),
    by_index!(ScaleShared, "next_row_wrapped", AB, along_rows, "{}'s scale is that of the next row; the last row takes the first's", |r, c, rows, _| ((r + 1) % rows, c)),
    by_index!(ScaleShared, "previous_row", AB, along_rows, "{}'s scale is that of the row before; the first row keeps its own", |r: usize, c, _, _| (r.saturating_sub(1), c)),
    by_index!(ScaleShared, "previous_row_wrapped", AB, along_rows, "{}'s scale is that of the row before; the first row takes the last's", |r: usize, c, rows: usize, _| ((r + rows - 1) % rows, c)),
    by_index!(ScaleIndex, "not_advancing", AB, along_k, "the first K group's scale of {} is used for all", |r, _, _, _| (r, 0)),
    by_index!(ScaleIndex, "next", AB, along_k, "{}'s scale is that of the next K group", |r, c, _, cols| (r, (c + 1) % cols)),
    by_index!(ScaleIndex, "previous", B, along_k, "{}'s scale is that of the K group before", |r, c: usize, _, _| (r, c.saturating_sub(1))),
    by_index!(ScaleIndex, "half_speed", AB, along_k, "{}'s scale index advances at half its speed", |r, c: usize, _, _| (r, c / 2)),
    by_index!(ScaleIndex, "double_speed", B, along_k, "{}'s scale index advances at twice its speed", |r, c: usize, _, cols: usize| (r, (2 * c).min(cols - 1))),
    by_index!(ScaleIndex, "split_restarts", B, along_k, "the second half of K starts again at {}'s first scale", |r, c: usize, _, cols: usize| (r, c % cols.div_ceil(2))),
    by_index!(ScaleIndex, "reversed", A, along_k, "{}'s scales are read from the end of K", |r, c, _, cols| (r, cols - 1 - c)),
    rule(Class::ScaleLayout, "transposed", AB, "the grid of {}'s scales, stored in column-major order, is read in row-major order", |_, p, _| transposed(p)),
    rule(Class::ScaleLayout, "column_major", AB, "the grid of {}'s scales, stored in row-major order, is read in column-major order", |_, p, _| column_major(p)),
    rule(Class::ScaleLayout, "swizzled", AB, "swizzled 128×4 scales of {} are read as if they were not", |_, p, _| swizzled(p)),
    rule(Class::ScaleLayout, "other_axis", B, "{}'s scales are taken by the other index: row scales along K", |_, p, _| other_axis(p)),
    rule(Class::ScaleLayout, "row_padding", A, "rows of {}'s scales are read without the padding to four that they have", |_, p, _| unpadded(p)),
];

pub const FAULTS: &[Fault] = &[Fault {
    class: Class::ScaleLayout,
    on: On::Out,
    variant: "swapped",
    help: "the scales of a and b are exchanged",
    how: How::Reads(swapped),
    settings: plain,
}];

/// Several scales in both directions, as a flat buffer in the other order.
fn transposed(p: &mut QTensorParts) -> Option<()> {
    let (rows, cols) = grid(p);
    (rows > 1 && cols > 1).then_some(())?;
    reindex_scales(p, |r, c| {
        let flat = r * cols + c;
        (flat % rows, flat / rows)
    })
}

/// The other way about.
fn column_major(p: &mut QTensorParts) -> Option<()> {
    let (rows, cols) = grid(p);
    (rows > 1 && cols > 1).then_some(())?;
    reindex_scales(p, |r, c| {
        let flat = c * rows + r;
        (flat / cols, flat % cols)
    })
}

/// The 128×4 tiles of cuBLAS' scale layout: element (r, c) of a tile stands at 16·(r mod 32) + 4·(r div 32) + c.
fn swizzled(p: &mut QTensorParts) -> Option<()> {
    let (rows, cols) = grid(p);
    (rows > 1 && cols > 1).then_some(())?;
    let padded = cols.div_ceil(4) * 4;
    reindex_scales(p, |r, c| {
        let tile = (r / 128) * (padded / 4) + c / 4;
        let flat = tile * 512 + 16 * (r % 32) + 4 * ((r % 128) / 32) + c % 4;
        let flat = flat % (rows * cols);
        (flat / cols, flat % cols)
    })
}

/// One scale a row, taken by the column: scale[k mod rows].
fn other_axis(p: &mut QTensorParts) -> Option<()> {
    let (rows, cols) = grid(p);
    (rows > 1 && cols == 1 && p.cols > 1 && matches!(p.zero, crate::Zero::None)).then_some(())?;
    p.level.as_ref().is_none_or(Level::is_whole).then_some(())?;
    let old = p.scale_inv.clone();
    p.granularity = Granularity::Block { rows: p.rows, cols: 1 };
    p.scale_inv = (0..p.cols).map(|k| old[k % rows]).collect();
    Some(())
}

/// Rows that were padded to a multiple of four scales, read without the padding: row r starts 4·⌈cols/4⌉ − cols too early.
fn unpadded(p: &mut QTensorParts) -> Option<()> {
    let (rows, cols) = grid(p);
    let padded = cols.div_ceil(4) * 4;
    (rows > 1 && padded != cols).then_some(())?;
    reindex_scales(p, |r, c| {
        let flat = r * cols + c;
        (flat / padded, (flat % padded).min(cols - 1))
    })
}

/// a's scales for b and b's for a, each taken modulo what there is.
fn swapped(job: &Job, _: Setting) -> Option<Job> {
    let mut of = Vec::new();
    let first = edit(job, Which::A, |p| {
        of.extend_from_slice(&p.scale_inv);
        Some(())
    })?;
    let mut other = Vec::new();
    edit(&first, Which::B, |p| {
        other.extend_from_slice(&p.scale_inv);
        Some(())
    })?;
    let take = |p: &mut QTensorParts, from: &[f32]| {
        let before = p.scale_inv.clone();
        // One scale beside several: the other way round it would be read past its end.
        (from.len() > 1 && before.len() > 1 || from.len() == before.len()).then_some(())?;
        p.scale_inv.iter_mut().enumerate().for_each(|(i, s)| *s = from[i % from.len()]);
        (before != p.scale_inv).then_some(())
    };
    let a = edit(job, Which::A, |p| take(p, &other))?;
    edit(&a, Which::B, |p| take(p, &of))
}
