//! Faults of what is read: codes, scales and zero points taken for another format, decoded wrongly, or in another order.

use super::Class;
use super::edit::{grid, map_scales};
use super::rule::{A, AB, B, BA, BOTH, OperandRule, rule};
use crate::format::{Overflow, Rounding};
use crate::job::Job;
use crate::op::Op;
use crate::quant::{Level, QTensorParts};
use crate::{Format, Granularity, QTensor, Zero};

#[rustfmt::skip]
pub const RULES: &[OperandRule] = &[
    rule(Class::BitsReinterpreted, "sibling", AB, "codes of {} are read as the sibling format (e4m3 e5m2, int4 uint4, e2m3 e3m2)", |_, p, _| sibling(p)),
    rule(Class::BitsReinterpreted, "fnuz", AB, "FP8 codes of {} are read as fnuz: half of every value", |_, p, _| fnuz(p)),
    rule(Class::BitsReinterpreted, "scale_bytes", AB, "8-bit scales of {} are read as the other 8-bit scale format", |_, p, _| scale_bytes(p)),
    rule(Class::BitsReinterpreted, "scale_halves", BA, "16-bit scales of {} are read as the other 16-bit format", |_, p, _| scale_halves(p)),
    rule(Class::BitsReinterpreted, "zero_unsigned", A, "zero points of {} are read without their sign", |_, p, _| zeros(p, |z, _| if z < 0 { z & 0xff } else { z })),
    rule(Class::BitsReinterpreted, "zero_unsigned", B, "zero points of {} are read without their sign", |_, p, _| zeros(p, |z, f| if z < 0 { z & ((1 << f.bits()) - 1) } else { z })),
    rule(Class::CodecEdge, "subnormal_flushed", AB, "subnormal codes of {} decode to zero", |_, p, _| codes(p, flushed)),
    rule(Class::CodecEdge, "subnormal_as_normal", AB, "subnormal codes of {} decode with a hidden one", |_, p, _| codes(p, as_normal)),
    rule(Class::CodecEdge, "top_binade", AB, "the top binade of {} decodes to its smallest value", |_, p, _| codes(p, top_binade)),
    rule(Class::CodecEdge, "smallest_integer", BA, "the smallest integer code of {} decodes to its neighbour", |_, p, _| codes(p, smallest_integer)),
    rule(Class::PackPermute, "pairs", AB, "the two codes of each pair along K of {} are exchanged (nibble order)", |_, p, _| along_k(p, 2, |k| k ^ 1)),
    rule(Class::PackPermute, "interleaved_8", BA, "codes of {} in eights: evens, then odds", |_, p, _| along_k(p, 8, |k| (k % 4) * 2 + k / 4)),
    rule(Class::PackPermute, "deinterleaved_8", B, "codes of {} in eights: halves alternate", |_, p, _| along_k(p, 8, |k| (k % 2) * 4 + k / 2)),
    rule(Class::PackPermute, "fours_16", B, "codes of {} in sixteens: a 4×4 block transposed", |_, p, _| along_k(p, 16, |k| (k % 4) * 4 + k / 4)),
    rule(Class::PackPermute, "halves_64", B, "the two halves of every 64 codes of {} are exchanged", |_, p, _| along_k(p, 64, |k| k ^ 32)),
    rule(Class::PackPermute, "rows_8", B, "rows of {} in eights: halves alternate", |_, p, _| across_rows(p, 8, |r| (r % 2) * 4 + r / 2)),
    rule(Class::PackPermute, "column_major", B, "codes of {}, stored [N, K], are read as [K, N]", |job, p, _| column_major(p, experts(job), false)),
    rule(Class::PackPermute, "column_major_with_scales", B, "{}, stored [N, K], is read as [K, N], each code with its own scale", |job, p, _| column_major(p, experts(job), true)),
    rule(Class::PackPermute, "stale_bits", B, "the bits of the code before are left in every second code of {}", |_, p, _| stale_bits(p)),
    rule(Class::ZpOffset, "plus_one", AB, "zero points of {} are one too large", |_, p, _| zeros(p, |z, _| z.wrapping_add(1))),
    rule(Class::ZpOffset, "minus_one", AB, "zero points of {} are one too small", |_, p, _| zeros(p, |z, _| z.wrapping_sub(1))),
    rule(Class::ZpOffset, "eight", B, "zero points of {} are of the other sign convention: 8 more or less", |_, p, _| zeros(p, |z, f| if f == Format::Uint4 { z.wrapping_sub(8) } else { z.wrapping_add(8) })),
    rule(Class::ZpOffset, "half_range", A, "zero points of {} are of the other sign convention: 128 more", |_, p, _| zeros(p, |z, f| if f == Format::Int8 { z.wrapping_add(128) } else { z })),
    rule(Class::ZpOffset, "zero_underflows", B, "a zero point of zero, stored minus one, wraps to 15", |_, p, _| zeros(p, |z, f| if z == 0 { (1 << f.bits()) - 1 } else { z })),
    rule(Class::ZpCorrection, "omitted", AB, "the term of {}'s zero points is missing", |_, p, _| zeros(p, |_, _| 0)),
    rule(Class::ZpCorrection, "negated", AB, "the term of {}'s zero points has the wrong sign", |_, p, _| zeros(p, |z, _| z.wrapping_neg())),
    rule(Class::ZpCorrection, "default", B, "the middle of the range instead of {}'s zero points", |_, p, _| zeros(p, |_, f| if f == Format::Uint4 { 8 } else { 0 })),
    rule(Class::ZpCorrection, "first_group", B, "the first group's zero point of {} for all groups of a row", |_, p, _| shared_zero(p)),
    rule(Class::ZpCorrection, "omitted", BOTH, "the terms of both zero points are missing", |_, p, _| zeros(p, |_, _| 0)),
    rule(Class::KTail, "overread", A, "the last 16 of K of {} are those of the next row's start", |_, p, _| overread(p)),
    rule(Class::AccState, "reused.64", A, "the first 64 of K of {} are used again for every 64", |job, p, _| reused(job, p)),
    rule(Class::RoundOrder, "weights_in_f32", B, "weights are dequantized in f32, not in their scales' type", |_, p, _| weights_in_f32(p)),
];

/// The sibling of a format with as many bits.
pub fn sibling_of(f: Format) -> Option<Format> {
    Some(match f {
        Format::E4m3 => Format::E5m2,
        Format::E5m2 => Format::E4m3,
        Format::E4m3Fnuz => Format::E5m2Fnuz,
        Format::E5m2Fnuz => Format::E4m3Fnuz,
        Format::Int4 => Format::Uint4,
        Format::Uint4 => Format::Int4,
        Format::E2m3 => Format::E3m2,
        Format::E3m2 => Format::E2m3,
        _ => return None,
    })
}

fn sibling(p: &mut QTensorParts) -> Option<()> {
    p.format = sibling_of(p.format)?;
    Some(())
}

/// A fnuz exponent bias is one more than that of the OCP format: every finite value is read at half.
fn fnuz(p: &mut QTensorParts) -> Option<()> {
    matches!(p.format, Format::E4m3 | Format::E5m2).then_some(())?;
    map_scales(p, |_, _, s| s * 0.5)
}

fn read_scales_as(p: &mut QTensorParts, from: Format, to: Format) -> Option<()> {
    (p.scale_format == from).then_some(())?;
    p.scale_format = Format::F32;
    map_scales(p, |_, _, s| {
        let x = to.decode(from.encode(f64::from(s), Rounding::NearestEven, Overflow::Saturate));
        if x.is_finite() { x as f32 } else { 0.0 }
    })
}
fn scale_bytes(p: &mut QTensorParts) -> Option<()> {
    match p.scale_format {
        Format::E8m0 => read_scales_as(p, Format::E8m0, Format::E4m3),
        Format::E4m3 => read_scales_as(p, Format::E4m3, Format::E8m0),
        _ => None,
    }
}
fn scale_halves(p: &mut QTensorParts) -> Option<()> {
    match p.scale_format {
        Format::F16 => read_scales_as(p, Format::F16, Format::Bf16),
        Format::Bf16 => read_scales_as(p, Format::Bf16, Format::F16),
        _ => None,
    }
}

/// Replaces codes by `f(format, code)`. Refuses when nothing changes.
fn codes(p: &mut QTensorParts, f: fn(Format, u32) -> u32) -> Option<()> {
    let before = p.codes.clone();
    let format = p.format;
    p.codes.iter_mut().for_each(|c| *c = f(format, u32::from(*c)) as u8);
    (before != p.codes).then_some(())
}
fn is_subnormal(f: Format, code: u32) -> bool {
    let magnitude = code & !f.sign_bit();
    f.is_float() && magnitude > 0 && magnitude < 1 << f.spec().mantissa
}
/// Subnormal codes as zeros of their sign.
pub fn flushed(f: Format, code: u32) -> u32 {
    if is_subnormal(f, code) { code & f.sign_bit() } else { code }
}
fn as_normal(f: Format, code: u32) -> u32 {
    if is_subnormal(f, code) { code | 1 << f.spec().mantissa } else { code }
}
/// Codes of the binade of the largest value as the smallest of it.
pub fn top_binade(f: Format, code: u32) -> u32 {
    if !f.is_float() {
        return code;
    }
    let (sign, magnitude) = (code & f.sign_bit(), code & !f.sign_bit());
    let first = f.max_code() >> f.spec().mantissa << f.spec().mantissa;
    if magnitude > first && magnitude <= f.max_code() { sign | first } else { code }
}
fn smallest_integer(f: Format, code: u32) -> u32 {
    if f.is_integer() && f.decode(code) == f.min_finite() { (code + 1) & ((1 << f.bits()) - 1) } else { code }
}

/// Codes of each row taken within every `period` from `from(place)`; a short last period stays. Refuses when nothing changes.
fn along_k(p: &mut QTensorParts, period: usize, from: fn(usize) -> usize) -> Option<()> {
    let before = p.codes.clone();
    let cols = p.cols;
    (cols >= period).then_some(())?;
    for (row, old) in p.codes.chunks_mut(cols).zip(before.chunks(cols)) {
        for (new, old) in row.chunks_exact_mut(period).zip(old.chunks_exact(period)) {
            (0..period).for_each(|k| new[k] = old[from(k)]);
        }
    }
    (before != p.codes).then_some(())
}
/// Rows of codes taken within every `period` from `from(place)`; scales stay.
fn across_rows(p: &mut QTensorParts, period: usize, from: fn(usize) -> usize) -> Option<()> {
    let before = p.codes.clone();
    let cols = p.cols;
    for r in 0..p.rows / period * period {
        let source = r / period * period + from(r % period);
        p.codes[r * cols..(r + 1) * cols].copy_from_slice(&before[source * cols..(source + 1) * cols]);
    }
    (before != p.codes).then_some(())
}
/// How many matrices stand one below the other in operand b.
fn experts(job: &Job) -> usize {
    match job.op {
        Op::GroupedGemm | Op::GroupedGemmDgrad => job.operands.offs.as_ref().map_or(1, Vec::len).max(1),
        _ => 1,
    }
}
/// Element (n, k) of each of the matrices read from k·N + n of its buffer; `whole` says that it takes its scale and zero point along.
fn column_major(p: &mut QTensorParts, matrices: usize, whole: bool) -> Option<()> {
    let (rows, cols) = (p.rows / matrices, p.cols);
    (rows > 1 && cols > 1).then_some(())?;
    let before = p.clone();
    let from = |i: usize| {
        let (r, k) = (i / cols, i % cols);
        r / rows * rows * cols + k * rows + r % rows
    };
    p.codes.iter_mut().enumerate().for_each(|(i, c)| *c = before.codes[from(i)]);
    if whole {
        // A second level over tiles of scales has none for each code.
        (p.scale_inv.len() > 1 && p.level.as_ref().is_none_or(Level::is_whole)).then_some(())?;
        let q = QTensor::new(before.clone()).ok()?;
        let scale = |i: usize| q.scale_index(from(i) / cols, from(i) % cols);
        let all = 0..p.codes.len();
        p.granularity = Granularity::Group(1);
        p.scale_inv = all.clone().map(|i| before.scale_inv[scale(i)]).collect();
        match &mut p.zero {
            Zero::None => {}
            Zero::Integer(z) => *z = all.map(|i| z[scale(i)]).collect(),
            Zero::Additive { zero, .. } => *zero = all.map(|i| zero[scale(i)]).collect(),
        }
    }
    (before.codes != p.codes).then_some(())
}
fn stale_bits(p: &mut QTensorParts) -> Option<()> {
    (p.format.bits() == 4).then_some(())?;
    let before = p.codes.clone();
    let cols = p.cols.max(1);
    for (i, c) in p.codes.iter_mut().enumerate() {
        if i % cols % 2 == 1 {
            *c |= before[i - 1];
        }
    }
    (before != p.codes).then_some(())
}

/// Replaces each zero point by `f(z, format)`; an additive one as if it were `−z / scale_inv` steps. Refuses when nothing changes.
fn zeros(p: &mut QTensorParts, f: fn(i32, Format) -> i32) -> Option<()> {
    let (before, format) = (p.zero.clone(), p.format);
    match &mut p.zero {
        Zero::None => return None,
        Zero::Integer(z) => z.iter_mut().for_each(|z| *z = f(*z, format)),
        Zero::Additive { zero, .. } => {
            for (z, s) in zero.iter_mut().zip(&p.scale_inv) {
                let steps = f64::from(-*z / *s);
                let whole = steps.round();
                let moved = f64::from(f(whole as i32, format));
                if moved != whole {
                    // Relative to where it was; a term that is gone is gone.
                    let steps = if moved == 0.0 {
                        0.0
                    } else if moved == -whole {
                        -steps
                    } else {
                        steps + moved - whole
                    };
                    let t = if p.scale_format == Format::F32 { Format::F32 } else { p.scale_format };
                    *z = t.decode(t.encode(-steps * f64::from(*s), Rounding::NearestEven, Overflow::Saturate)) as f32;
                }
            }
        }
    }
    (before != p.zero).then_some(())
}
fn shared_zero(p: &mut QTensorParts) -> Option<()> {
    let (_, cols) = grid(p);
    (cols > 1).then_some(())?;
    let before = p.zero.clone();
    match &mut p.zero {
        Zero::None => return None,
        Zero::Integer(z) => (0..z.len()).for_each(|i| z[i] = z[i / cols * cols]),
        Zero::Additive { zero: z, .. } => (0..z.len()).for_each(|i| z[i] = z[i / cols * cols]),
    }
    (before != p.zero).then_some(())
}

fn overread(p: &mut QTensorParts) -> Option<()> {
    (p.cols > 32 && p.rows > 1 && matches!(p.zero, Zero::None)).then_some(())?;
    let before = p.codes.clone();
    for r in 0..p.rows {
        let next = (r + 1) % p.rows * p.cols;
        let tail = (r + 1) * p.cols - 16;
        p.codes[tail..tail + 16].copy_from_slice(&before[next..next + 16]);
    }
    (before != p.codes).then_some(())
}

/// Every K tile reads the codes of the first.
fn reused(job: &Job, p: &mut QTensorParts) -> Option<()> {
    (job.op.is_product() && p.cols > 64).then_some(())?;
    let before = p.codes.clone();
    let cols = p.cols;
    p.codes.iter_mut().enumerate().for_each(|(i, c)| *c = before[i / cols * cols + i % cols % 64]);
    (before != p.codes).then_some(())
}

fn weights_in_f32(p: &mut QTensorParts) -> Option<()> {
    (p.format.is_integer() && matches!(p.scale_format, Format::Bf16 | Format::F16)).then_some(())?;
    p.scale_format = Format::F32;
    Some(())
}
