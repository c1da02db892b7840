//! Faults of the last step: how a value becomes a code of the output.

use super::codes::{flushed, sibling_of, top_binade};
use super::scale::gains;
use super::{Class, Element, Fault, How, On, Setting, plain};
use crate::Format;
use crate::format::{Overflow, Rounding};
use crate::input::philox::Stream;
use crate::job::{Job, OutSpec};

macro_rules! encodes {
    ($class:ident, $variant:literal, $help:literal, $code:expr) => {
        Fault { class: Class::$class, on: On::Out, variant: $variant, help: $help, how: How::Encodes($code), settings: plain }
    };
}

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    encodes!(ScaleOmitted, "out", "the output's scale is never applied; scale_inv says it was", |_, e, _| scaled(e).map(|e| nearest(e, e.v))),
    encodes!(ScaleDoubledInverted, "out.twice", "the output's scale is applied twice", |_, e, _| scaled(e).map(|e| nearest(e, ratio(e).mul_add(e.y, 0.0)))),
    encodes!(ScaleDoubledInverted, "out.inverted", "the output is divided by its scale", |_, e, _| scaled(e).map(|e| nearest(e, if e.y == 0.0 { e.y } else { e.v / ratio(e) }))),
    Fault { settings: gains, ..encodes!(StaleState, "out.scale", "the output is scaled by an earlier step's scale; scale_inv is this step's",
        |job, e, s| scaled(e).filter(|_| matches!(job.out, OutSpec::Scaled { .. })).map(|e| nearest(e, e.y * s.by))) },
    encodes!(ScaleRerounded, "out.pow2_down", "the output's scale is cut to a power of two after scale_inv was written",
        |_, e, _| scaled(e).map(|e| nearest(e, if e.v == 0.0 || !e.v.is_finite() { e.y } else { e.v * ratio(e).log2().floor().exp2() }))),
    encodes!(BitsReinterpreted, "out.sibling", "the result is encoded in the sibling format",
        |_, e, _| sibling_of(e.format).filter(|f| f.is_float()).map(|f| f.encode(e.y, Rounding::NearestEven, Overflow::Saturate))),
    encodes!(Rounding, "out.toward_zero", "the result is cut instead of rounded to nearest", |_, e, _| narrow(e).map(|e| with(e, Rounding::TowardZero))),
    encodes!(Rounding, "out.fraction_cut", "the fraction is cut to the format's bits, then converted to nearest: only subnormals are rounded",
        |_, e, _| narrow(e).filter(|e| e.format.is_float()).map(|e| nearest(e, cut_fraction(e.y, e.format.spec().mantissa)))),
    encodes!(Rounding, "out.up", "the result is rounded toward +∞", |_, e, _| narrow(e).map(|e| with(e, Rounding::Up))),
    encodes!(Rounding, "out.half_away", "ties are rounded away from zero", |_, e, _| narrow(e).map(|e| by_fraction(e, |f, _| f >= 0.5))),
    encodes!(Rounding, "out.half_down", "ties are rounded toward zero", |_, e, _| narrow(e).map(|e| by_fraction(e, |f, _| f > 0.5))),
    encodes!(Rounding, "out.away", "the result is rounded away from zero", |_, e, _| narrow(e).map(|e| by_fraction(e, |f, _| f > 0.0))),
    encodes!(Rounding, "out.carry_lost", "rounding up sets the last bit instead of adding to it: a carry is lost",
        |_, e, _| narrow(e).map(|e| by_fraction(e, |f, e| f >= 0.5 && with(e, Rounding::TowardZero) & 1 == 0))),
    encodes!(Rounding, "out.via_f16", "the scaled value is rounded to f16 first", |_, e, _| scaled(e).map(|e| nearest(e, through(Format::F16, e.y)))),
    encodes!(Rounding, "out.via_bf16", "the scaled value is rounded to bf16 first", |_, e, _| scaled(e).map(|e| nearest(e, through(Format::Bf16, e.y)))),
    encodes!(Rounding, "out.reciprocal", "the scale is an approximate reciprocal, 2^-22 too large", |_, e, _| scaled(e).map(|e| nearest(e, e.y * (1.0 + 2f64.powi(-22))))),
    Fault { settings: near_one, ..encodes!(Rounding, "out.gain", "every result is multiplied by a constant that is nearly 1", |_, e, s| Some(nearest(e, e.y * s.by))) },
    encodes!(RoundOrder, "out.bf16_first", "v is rounded to bf16 before it is scaled", |_, e, _| scaled(e).map(|e| nearest(e, ratio(e) * through(Format::Bf16, e.v)))),
    encodes!(RoundOrder, "out.f16_first", "v is rounded to f16 before it is scaled", |_, e, _| scaled(e).map(|e| nearest(e, ratio(e) * through(Format::F16, e.v)))),
    encodes!(RoundOrder, "out.bias_last", "the sum is rounded to the output's type before the bias is added", bias_last),
    encodes!(OverflowWrap, "out.wrap", "integers are not clamped: they wrap", wrap),
    encodes!(OverflowWrap, "out.native", "the conversion does not saturate: NaN or Inf", |_, e, _| scaled(e).filter(|e| e.format.is_float())
        .map(|e| e.format.encode(e.y, Rounding::NearestEven, Overflow::Native))),
    encodes!(CodecEdge, "out.subnormal_flushed", "subnormal results are written as zero", |_, e, _| narrow(e).filter(|e| e.format.is_float()).map(|e| flushed(e.format, right(e)))),
    encodes!(CodecEdge, "out.top_binade", "results in the top binade are written as its smallest value", |_, e, _| scaled(e).filter(|e| e.format.is_float()).map(|e| top_binade(e.format, right(e)))),
    encodes!(CodecEdge, "out.negative_zero", "zeros lose their sign", |_, e, _| narrow(e).filter(|e| e.format.is_float()).map(|e| {
        let code = right(e);
        if code == e.format.sign_bit() { 0 } else { code }
    })),
    encodes!(CodecEdge, "out.nan_as_max", "a NaN is written as the largest value", |_, e, _| scaled(e).map(|e| if e.y.is_nan() { e.format.max_code() } else { right(e) })),
    encodes!(CodecEdge, "out.underflow_kept", "a value that is too small becomes the smallest one, not zero", |_, e, _| scaled(e).filter(|e| e.format.is_float()).map(|e| {
        let code = right(e);
        if e.y != 0.0 && code & !e.format.sign_bit() == 0 { code | 1 } else { code }
    })),
    encodes!(RangeRule, "out.clamped_240", "e4m3 results are clamped to 240, the largest of fnuz", |_, e, _| clamped(e, 240.0)),
    encodes!(RangeRule, "out.clamped_half", "results are clamped to half the format's range", |_, e, _| scaled(e).and_then(|e| clamped(e, e.format.max_finite() / 2.0))),
    encodes!(RangeRule, "out.minimum_lost", "integers are clamped to −max instead of their minimum",
        |_, e, _| scaled(e).filter(|e| e.format.is_integer()).map(|e| nearest(e, e.y.max(-e.format.max_finite())))),
    encodes!(SrBroken, "out.stochastic", "stochastic rounding where nearest was asked",
        |_, e, _| scaled(e).map(|e| by_fraction(e, |f, e| f > draw(e.row as u64, e.col as u64)))),
    encodes!(SrBroken, "out.same_draw", "stochastic rounding with one draw for all elements", |_, e, _| scaled(e).map(|e| by_fraction(e, |f, _| f > 0.3125))),
    encodes!(SrBroken, "out.lanes_alike", "stochastic rounding with one draw for four lanes",
        |_, e, _| scaled(e).map(|e| by_fraction(e, |f, e| f > draw(e.row as u64, e.col as u64 / 4)))),
    encodes!(SrBroken, "out.biased", "stochastic rounding whose draw is never above one half",
        |_, e, _| scaled(e).map(|e| by_fraction(e, |f, e| f > 0.5 * draw(e.row as u64, e.col as u64)))),
];

/// 1 ± δ: no powers of two, as an inexact constant or a fast division leaves them.
fn near_one(_: &Job) -> Vec<Setting> {
    [1.031_25, 0.984_375, 1.007_812_5].into_iter().enumerate().map(|(at, by)| Setting { at, by }).collect()
}

/// Only outputs with a scale; only outputs narrower than f32.
fn scaled(e: &Element) -> Option<&Element> {
    e.scaled.then_some(e)
}
fn narrow(e: &Element) -> Option<&Element> {
    (e.format != Format::F32).then_some(e)
}
/// What v is multiplied by.
fn ratio(e: &Element) -> f64 {
    if e.v == 0.0 || !e.v.is_finite() { 1.0 } else { e.y / e.v }
}
fn overflow(e: &Element) -> Overflow {
    if e.scaled { Overflow::Saturate } else { Overflow::Native }
}
fn nearest(e: &Element, y: f64) -> u32 {
    e.format.encode(f64::from(y as f32), Rounding::NearestEven, overflow(e))
}
fn right(e: &Element) -> u32 {
    e.format.encode(e.y, Rounding::NearestEven, overflow(e))
}
fn with(e: &Element, rounding: Rounding) -> u32 {
    e.format.encode(e.y, rounding, overflow(e))
}
fn through(format: Format, x: f64) -> f64 {
    format.decode(format.encode(x, Rounding::NearestEven, Overflow::Native))
}

/// x with `bits` of fraction, the rest cut.
fn cut_fraction(x: f64, bits: u32) -> f64 {
    f64::from_bits(x.to_bits() >> (52 - bits) << (52 - bits))
}

/// The neighbour farther from zero when `up(how far y is between the two, element)`, else the nearer one.
fn by_fraction(e: &Element, up: impl Fn(f64, &Element) -> bool) -> u32 {
    let low = with(e, Rounding::TowardZero);
    let below = e.format.decode(low);
    if !(e.y.is_finite() && below.is_finite()) || below == e.y {
        return right(e);
    }
    let high = match e.format.is_integer() {
        true => e.format.encode(below + e.y.signum(), Rounding::NearestEven, Overflow::Saturate),
        false if !e.format.is_float() => low.saturating_add_signed(if e.y < 0.0 { -1 } else { 1 }).min(e.format.max_code()),
        false => {
            let sign = if e.y < 0.0 { e.format.sign_bit() } else { 0 };
            ((low & !e.format.sign_bit()).min(e.format.max_code() - 1) + 1) | sign
        }
    };
    let above = e.format.decode(high);
    let fraction = (e.y - below) / (above - below);
    if above != below && up(fraction, e) { high } else { low }
}

/// A number in [0, 1) for a place.
fn draw(row: u64, col: u64) -> f64 {
    f64::from(Stream::new(0x5eed, 77).words(9, row << 32 | col)[0]) / 4_294_967_296.0
}

fn wrap(_: &Job, e: &Element, _: Setting) -> Option<u32> {
    (e.scaled && e.format.is_integer()).then_some(())?;
    if !e.y.is_finite() {
        return Some(right(e));
    }
    Some((e.y.round_ties_even() as i64 as u32) & ((1 << e.format.bits()) - 1))
}

fn clamped(e: &Element, max: f64) -> Option<u32> {
    (e.scaled && (e.format == Format::E4m3 || max != 240.0) && e.format.is_float()).then_some(())?;
    Some(if e.y.is_nan() { right(e) } else { nearest(e, e.y.clamp(-max, max)) })
}

fn bias_last(job: &Job, e: &Element, _: Setting) -> Option<u32> {
    (job.operands.bias.is_some() && !e.scaled && e.format != Format::F32).then_some(())?;
    let b = job.bias_at(e.row, e.col);
    let sum = through(e.format, f64::from((e.v - b) as f32));
    Some(nearest(e, f64::from((sum + b) as f32)))
}
