//! Faults of how scales meet the sum (products): operands that are dequantized to 16 bits first, terms summed in f16 one after the other,
//! a bias that is added before the scales.

use super::edit::{Which, quantized};
use super::inject::right;
use super::rule::{AB, On, OperandRule, rule};
use super::sums::biased;
use super::{Class, Fault, How, plain};
use crate::job::{Data, Job, OutSpec};
use crate::model::product::{FactorRows, Kind, Plan};
use crate::op::Op;
use crate::op::bias::expert;
use crate::quant::{QTensorParts, Zero};
use crate::tensor::round_to;
use crate::{Format, Granularity, QTensor, Result};

macro_rules! rounded {
    ($variant:literal, $format:ident, $help:literal) => {
        Fault {
            class: Class::RoundOrder,
            on: On::Both,
            variant: $variant,
            help: $help,
            how: How::Operand(|_, p, _| round_values(p, Format::$format)),
            settings: plain,
        }
    };
}
macro_rules! sums {
    ($class:ident, $variant:literal, $help:literal, $values:expr, $ulp:expr) => {
        Fault {
            class: Class::$class,
            on: On::Out,
            variant: $variant,
            help: $help,
            how: How::Sums { values: $values, ulp: $ulp },
            settings: plain,
        }
    };
}

/// The relative step of f16.
const F16: f64 = 4.9e-4;

#[rustfmt::skip]
pub const RULES: &[OperandRule] = &[
    rule(Class::RoundOrder, "dequantized.bf16", AB, "{} is dequantized to bf16 before it is multiplied", |_, p, _| round_values(p, Format::Bf16)),
    rule(Class::RoundOrder, "dequantized.f16", AB, "{} is dequantized to f16 before it is multiplied", |_, p, _| round_values(p, Format::F16)),
];

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    rounded!("dequantized.bf16", Bf16, "both operands are dequantized to bf16 before they are multiplied"),
    rounded!("dequantized.f16", F16, "both operands are dequantized to f16 before they are multiplied"),
    sums!(LowprecAcc, "f16.fma", "dequantized values in f32, their products added to an f16 accumulator one after the other", |j, _| sequential(j, false, FUSED), F16),
    sums!(LowprecAcc, "f16.add", "dequantized values in f32, their products rounded to f16 and added in f16 one after the other", |j, _| sequential(j, false, ADDED), F16),
    sums!(LowprecAcc, "f16.operands.fma", "dequantized values in f16, their products added to an f16 accumulator one after the other", |j, _| sequential(j, true, FUSED), F16),
    sums!(LowprecAcc, "f16.operands.add", "dequantized values in f16, their products rounded to f16 and added in f16 one after the other", |j, _| sequential(j, true, ADDED), F16),
    sums!(LowprecAcc, "f16.stored", "dequantized values in f32, the sum so far stored in f16 after every product", |j, _| sequential(j, false, STORED), F16),
    sums!(LowprecAcc, "f16.operands.stored", "dequantized values in f16, the sum so far stored in f16 after every product", |j, _| sequential(j, true, STORED), F16),
    sums!(ScaleDoubledInverted, "bias", "the bias is added before the scales, which multiply it too", |j, _| scaled_bias(j, true, true), 0.0),
    sums!(ScaleDoubledInverted, "bias.a", "the bias is added before the scales of a, which multiply it too", |j, _| scaled_bias(j, true, false), 0.0),
    sums!(ScaleDoubledInverted, "bias.b", "the bias is added before the scales of b, which multiply it too", |j, _| scaled_bias(j, false, true), 0.0),
];

/// An operand whose values are those of `format`: each code with a scale of its own. `None`: nothing changes.
fn round_values(p: &mut QTensorParts, format: Format) -> Option<()> {
    let q = QTensor::new(p.clone()).ok()?;
    if matches!(q.zero(), Zero::Additive { .. }) {
        return None;
    }
    let decoded: Vec<f64> = (0..1u32 << q.format().bits()).map(|c| q.format().decode(c)).collect();
    let (tile_rows, tile_cols) = q.granularity().tile(q.rows(), q.cols());
    let (_, grid_cols) = q.granularity().grid(q.rows(), q.cols());
    // The scale of a code under scale `at`, and whether its value changes.
    let one = |code: usize, at: usize| {
        let (v, s) = (q.affine(at).value(decoded[code]) as f32, q.steps(at).0);
        let r = round_to(format, v);
        // A value of zero has no scale of its own.
        (if v == 0.0 { s } else { (f64::from(r) / (f64::from(v) / f64::from(s))) as f32 }, r != v)
    };
    let (mut scales, mut zeros, mut changed) = (Vec::with_capacity(q.codes().len()), Vec::new(), false);
    for (i, row) in q.codes().chunks(q.cols().max(1)).enumerate() {
        for (tile, codes) in row.chunks(tile_cols).enumerate() {
            let at = i / tile_rows * grid_cols + tile;
            // Under one scale a code has one.
            let known: Vec<(f32, bool)> =
                if codes.len() > decoded.len() { (0..decoded.len()).map(|c| one(c, at)).collect() } else { Vec::new() };
            for code in codes.iter().map(|c| usize::from(*c)) {
                let (scale, other) = known.get(code).copied().unwrap_or_else(|| one(code, at));
                scales.push(scale);
                changed |= other;
            }
            if let Zero::Integer(z) = q.zero() {
                zeros.extend(std::iter::repeat_n(z[at], codes.len()));
            }
        }
    }
    p.scale_inv = scales;
    if let Zero::Integer(_) = q.zero() {
        p.zero = Zero::Integer(zeros);
    }
    (p.granularity, p.scale_format, p.level) = (Granularity::Group(1), Format::F32, None);
    changed.then_some(())
}

/// x to nearest even in f16, overflowing to Inf.
fn half(x: f64) -> f64 {
    let magnitude = x.abs();
    if !(magnitude < 65520.0) {
        return x * f64::INFINITY;
    }
    // 2^⌊log2 |x|⌋, but for subnormals, has 10 bits behind it.
    let binade = f64::from_bits(magnitude.max(2f64.powi(-14)).to_bits() & 0x7ff0_0000_0000_0000);
    let unit = binade / 1024.0;
    (x / unit).round_ties_even() * unit
}

/// Values of a row as a kernel has them that dequantizes first.
fn values(s: &FactorRows, row: usize, in_f16: bool) -> Vec<f64> {
    let global = s.scales().and_then(QTensor::global_scale_inv).unwrap_or(1.0);
    let one = |(k, x): (usize, f32)| x * s.scale_inv(row, k) * global;
    let round = |x: f32| f64::from(if in_f16 { round_to(Format::F16, x) } else { x });
    s.factors(row, 0..s.k).into_iter().enumerate().map(one).map(round).collect()
}

/// What an f16 accumulator becomes by one product: `RN16(acc + a·b)`, `RN16(acc + RN16(RN32(a·b)))`, or `RN16(RN32(acc + RN32(a·b)))` where the sum is
/// made in f32 and stored.
type Step = fn(f64, f64, f64) -> f64;
const FUSED: Step = |acc, x, y| half(acc + x * y);
const ADDED: Step = |acc, x, y| half(acc + half(f64::from((x * y) as f32)));
const STORED: Step = |acc, x, y| half(f64::from((acc + f64::from((x * y) as f32)) as f32));

/// v when every term is added to an f16 accumulator in the order of K.
fn sequential(job: &Job, in_f16: bool, step: Step) -> Result<Option<Vec<f32>>> {
    let Ok(plan) = Plan::of(job) else { return Ok(None) };
    if plan.kind == Kind::Integer || job.op == Op::GroupedGemmWgrad {
        return Ok(None);
    }
    let mut sums = vec![0.0; plan.rows * plan.cols];
    for p in plan.problems() {
        let b: Vec<Vec<f64>> = p.b_rows.clone().map(|row| values(p.b, row, in_f16)).collect();
        for (i, row) in p.a_rows.clone().enumerate() {
            let a = values(p.a, row, in_f16);
            for (j, b) in b.iter().enumerate() {
                sums[(p.out_row + i) * plan.cols + j] = a.iter().zip(b).fold(0.0, |acc, (x, y)| step(acc, *x, *y));
            }
        }
    }
    Ok(Some(biased(job, sums)))
}

/// v when the bias is multiplied by the scales of a, of b, or by all that meet the whole sum.
fn scaled_bias(job: &Job, by_a: bool, by_b: bool) -> Result<Option<Vec<f32>>> {
    // One scale a row, or one: it can stand behind the sum over K. The second level always does.
    let behind = |side| quantized(job, side).filter(|q| matches!(q.granularity(), Granularity::Tensor | Granularity::Row));
    let (a, b) = (behind(Which::A), behind(Which::B));
    let global: f32 = [Which::A, Which::B].iter().filter_map(|s| quantized(job, *s)?.global_scale_inv()).product();
    let (Some(_), Op::Gemm | Op::GroupedGemm) = (&job.operands.bias, job.op) else { return Ok(None) };
    // One of two: else it is all there is.
    if (by_a != by_b && (a.is_none() || b.is_none())) || (a.is_none() && b.is_none() && global == 1.0) {
        return Ok(None);
    }
    let mut plain = job.clone();
    (plain.operands.bias, plain.out) = (None, OutSpec::High(Format::F32));
    let Data::High(t) = &right(&plain)?.parts[0].d else { return Ok(None) };
    let scale = |q: Option<&QTensor>, row: usize| q.map_or(1.0, |q| q.scale_inv()[q.scale_index(row, 0)]);
    let value = |(n, y): (usize, &f32)| {
        let (i, j) = (n / t.cols(), n % t.cols());
        // The row of b: of a grouped product that of the row's expert.
        let e = job.operands.offs.as_ref().map_or(0, |ends| expert(ends, i));
        let row = e * t.cols() + j;
        let b = b.filter(|b| by_b && row < b.rows());
        let s = scale(a.filter(|_| by_a), i) * scale(b, row);
        y + job.bias_at(i, j) as f32 * (if by_a && by_b { s * global } else { s })
    };
    Ok(Some(t.data().iter().enumerate().map(value).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Overflow, Rounding};

    #[test]
    fn an_operand_in_16_bits_has_the_rounded_values_of_every_group() {
        for (granularity, scales) in [(Granularity::Group(64), 4), (Granularity::Group(5), 52), (Granularity::Row, 2)] {
            let parts = || QTensorParts {
                format: Format::Int4,
                rows: 2,
                cols: 128,
                codes: (0..256).map(|n| (n * 5 % 16) as u8).collect(),
                granularity,
                scale_inv: (0..scales).map(|n: i32| 0.31 + n as f32 * 0.173).collect(),
                zero: Zero::Integer((0..scales).map(|n| n % 3 - 1).collect()),
                scale_format: Format::F32,
                level: None,
            };
            let mut changed = parts();
            round_values(&mut changed, Format::Bf16).unwrap();
            let (before, after) = (QTensor::new(parts()).unwrap(), QTensor::new(changed).unwrap());
            for (x, y) in before.dequantize().iter().zip(&after.dequantize()) {
                let right = ::half::bf16::from_f64(*x).to_f64();
                assert!((y - right).abs() <= 1e-6 * right.abs(), "{granularity}: {x} became {y}, not {right}");
            }
        }
    }

    #[test]
    fn half_rounds_as_f16_encodes() {
        let mut x = 1e-9f64;
        while x < 2e5 {
            for y in [x, -x, x.next_up(), (x * 4096.0).round() / 4096.0, (x * 1024.0).round() * 2f64.powi(-25)] {
                let defined = Format::F16.decode(Format::F16.encode(y, Rounding::NearestEven, Overflow::Native));
                assert_eq!(half(y).to_bits(), defined.to_bits(), "{y:e}");
            }
            x *= 1.00037;
        }
        assert_eq!(half(65519.999), 65504.0);
        assert_eq!(half(-65520.0), f64::NEG_INFINITY);
        assert!(half(f64::NAN).is_nan());
    }

    /// 1 + 2⁻¹¹ is a tie in f16, and what is 2⁻³⁰ above it is one in f32 first.
    #[test]
    fn a_sum_that_is_made_in_f32_is_rounded_twice() {
        let (x, y) = (2f64.powi(-11) + 2f64.powi(-30), 1.0);
        assert_eq!([FUSED(1.0, x, y), STORED(1.0, x, y)], [1.0 + 2f64.powi(-10), 1.0]);
        // A product that is rounded to f16 alone.
        let third = f64::from(1.0f32 / 3.0);
        assert_eq!(ADDED(0.0, third, 1.0), half(third));
        assert!(ADDED(1024.0, 2f64.powi(-1) + 2f64.powi(-13), 1.0) < FUSED(1024.0, 2f64.powi(-1) + 2f64.powi(-13), 1.0));
    }
}
