//! What is wrong with the scales of a cast, where the codes fit the scales but the scales do not follow the rule.

use super::diagnose::Finding;
use super::predict::Scene;
use super::{Class, Evidence};
use crate::compare::digits;
use crate::job::{Data, Operand};
use crate::op::Op;
use crate::{Format, Overflow, QTensor, Rounding, Tensor, Zero};

/// The share of codes that have to be those of the scales beside them: a kernel may divide or multiply by a reciprocal.
const CONSISTENT: f64 = 0.98;
/// A number computed in another order in f32, relative.
const NEAR: f64 = 1.0 / (1u64 << 21) as f64;

/// Whether the codes are the values over the stored scales, rounded to nearest and saturated.
fn consistent(e: &Evidence, q: &QTensor) -> Option<f64> {
    let Operand::High(x) = e.job.operands.get(0)? else { return None };
    (matches!(e.job.op, Op::Cast | Op::CastTranspose) && matches!(q.zero(), Zero::None)).then_some(())?;
    (x.rows() == q.rows() && x.cols() == q.cols()).then_some(())?;
    let global = q.global_scale_inv().map_or(1.0, f64::from);
    let same = |at: &usize| {
        let s = f64::from(q.scale_inv()[q.scale_index(at / q.cols(), at % q.cols())]) * global;
        let y = f64::from(x.data()[*at]) / s;
        let code = q.format().encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
        code == q.codes()[*at] || q.format().decode(u32::from(code)) == q.format().decode(u32::from(q.codes()[*at]))
    };
    let n = q.codes().len();
    (n > 0).then(|| (0..n).filter(same).count() as f64 / n as f64)
}

/// What chose the scales otherwise. `None`: the codes are wrong too, or nothing known chooses so.
pub fn scales(scene: &Scene) -> Option<Finding> {
    let e = scene.evidence;
    let Data::Quantized(q) = &e.output.parts.first()?.d else { return None };
    let (actual, right) = scene.beside("scale_inv")?;
    let inverse = actual.iter().zip(right).all(|(a, r)| (a * r - 1.0).abs() <= 1e-6);
    if inverse && !right.is_empty() && right.iter().any(|r| (r - 1.0).abs() > 1e-3) {
        let class = Class::ScaleDoubledInverted;
        return Some(found(class, "out.inverted", "scale is stored where scale_inv belongs".into(), 1.0));
    }
    if let Some(words) = of_global(scene, q) {
        return Some(found(Class::AmaxScope, "out.amax_global", words, 1.0));
    }
    let share = consistent(&e, q)?;
    (share >= CONSISTENT).then_some(())?;
    let blocks = largest(&e, q)?;
    let ratios: Vec<f64> =
        actual.iter().zip(right).filter(|(a, r)| a != r && **r != 0.0).map(|(a, r)| a / r).filter(|x| x.is_finite()).collect();
    let first = *ratios.first()?;
    let power = |x: &f64| *x > 0.0 && x.log2().fract() == 0.0;
    let same = ratios.iter().all(|x| (x - first).abs() <= 1e-6 * first.abs());
    let amax = scene.beside("amax").and_then(|(a, r)| Some(a.first()? / r.first()?)).filter(|x| (x - 1.0).abs() > 1e-6);
    let bf16 =
        |x: f64| Format::Bf16.decode(Format::Bf16.encode(x, Rounding::NearestEven, Overflow::Saturate)) as f32 == x as f32;
    let (class, variant, detail) = if amax.is_some_and(|a| ratios.iter().all(|x| (x - a).abs() <= 1e-5 * a)) {
        (
            Class::AmaxScope,
            "out.amax",
            format!("amax is {:.6} times what it should be, and the scale with it", amax.unwrap_or(first)),
        )
    } else if ratios.iter().all(|x| (x - 1.0).abs() < 2f64.powi(-7)) && actual.iter().all(|s| bf16(*s) || bf16(1.0 / s)) {
        (Class::RoundOrder, "out.scale_in_bf16", "the scales are computed in bf16".to_string())
    } else if let Some(words) = not_pow2(&blocks, actual, right, q) {
        (Class::ScaleRerounded, "out.not_pow2", words)
    } else if same && first == 0.0 {
        let largest = actual.iter().zip(right).filter(|(a, _)| **a == 0.0).fold(0.0f64, |m, (_, r)| m.max(*r));
        let words = format!(
            "scale_inv is 0 in {} of {} groups where the rule's is up to {largest:.3e}: its reciprocal overflows for so small an amax",
            ratios.len(),
            right.len()
        );
        (Class::DegenerateBlock, "out.scale_zero", words)
    } else if let (true, Some(words)) = (right.len() == 1, of_part(&e, &blocks, first)) {
        (Class::AmaxScope, "out.amax_over", format!("the scale is of another amax: {words}"))
    } else if let Some(words) = down(&blocks, q, actual, right).or_else(|| up(&blocks, q, actual, right)) {
        (Class::RangeRule, "out.exponent", words)
    } else if same && ratios.len() * 10 > right.len() * 9 {
        let other = q.format().max_finite() / first;
        let why = match (right.len() > 1, is_maximum(other)) {
            (_, true) => format!(": the kernel uses another maximum for the format, {}", digits::apart([other])[0]),
            (true, false) => ": the kernel uses another maximum for the format".into(),
            (false, false) => String::new(),
        };
        (Class::RangeRule, "out.range", format!("every scale_inv is {first} times the rule's{why}"))
    } else if let Some(words) = super::scale_limits::explain(&blocks, (actual, right), q.scale_format()) {
        (Class::RangeRule, "out.limit", words)
    } else if let Some(words) = super::amax::over(scene) {
        (Class::AmaxScope, "out.amax_over", words)
    } else if let Some(words) = earlier_rows(&e, q, &blocks, (actual, right)) {
        (Class::AmaxScope, "out.amax_rows", words)
    } else if let Some(words) = super::amax_of::elsewhere(q.granularity().grid(q.rows(), q.cols()), actual, right) {
        (Class::AmaxScope, "out.amax_of", words)
    } else if let Some(words) = of_amax_alone(&blocks, actual) {
        (Class::RangeRule, "out.exponent", words)
    } else if ratios.iter().all(power) {
        let every: Vec<f64> = actual.iter().zip(right).map(|(a, r)| a / r).collect();
        if !super::amax::is_rounded_otherwise(&blocks, &every) {
            let words = super::exponents::of_some(q, &blocks, actual, right)?;
            return Some(found(Class::RangeRule, "out.exponent", words, share));
        }
        let (low, high) = ratios.iter().fold((f64::INFINITY, 0.0f64), |m, x| (m.0.min(*x), m.1.max(*x)));
        let words = if low == high { format!("{low}") } else { format!("{low} … {high}") };
        (
            Class::RangeRule,
            "out.exponent",
            format!(
                "{} of {} scale_inv are {words} times the rule's: their exponent is rounded another way",
                ratios.len(),
                right.len()
            ),
        )
    } else if let Some(words) = part_of_row(&e, q, actual, right) {
        (Class::AmaxScope, "out.amax_part", words)
    } else if let Some(words) = beside_groups(&e, q, &blocks, (actual, right)) {
        (Class::AmaxScope, "out.amax_over", words)
    } else {
        return None;
    };
    Some(found(class, variant, detail, share))
}

/// What is wrong with the scales beside codes that are wrong by themselves, as the end of a sentence. `None`: they follow the rule.
pub fn other_scales(evidence: Evidence) -> Option<String> {
    let scene = Scene::new(evidence).ok()?;
    matches!(evidence.job.op, Op::Cast | Op::CastTranspose).then_some(())?;
    let (actual, right) = scene.beside("scale_inv")?;
    let wrong = actual.iter().zip(right).filter(|(a, r)| a != r).count();
    let global = || match &evidence.output.parts.first()?.d {
        Data::Quantized(q) => of_global(&scene, q),
        Data::High(_) => None,
    };
    (wrong > 0).then(|| match super::amax::over(&scene).or_else(global) {
        Some(words) => format!("; and {words}"),
        None => format!("; this is not all: {wrong} of {} scale_inv are not the rule's", right.len()),
    })
}

/// Scales that are amax over the format's maximum where the rule's are powers of two.
fn not_pow2(amax: &[f64], actual: &[f64], right: &[f64], q: &QTensor) -> Option<String> {
    let power = |x: f64| x > 0.0 && x.log2().fract() == 0.0;
    let max = q.format().max_finite();
    (amax.len() == actual.len() && right.len() == actual.len() && q.global_scale_inv().is_none()).then_some(())?;
    let wrong: Vec<usize> = (0..actual.len()).filter(|g| actual[*g] != right[*g]).collect();
    let near = |x: f64, y: f64| (x - y).abs() <= 1e-6 * y.abs();
    let raw = |g: &usize| near(actual[*g], amax[*g] / max);
    let is = right.iter().all(|r| power(*r)) && wrong.iter().all(raw) && !wrong.iter().all(|g| power(actual[*g]));
    is.then(|| format!("scale_inv is amax over {max}, not rounded to a power of two"))
}

/// The part of the values whose largest magnitude the second level's own scale is of.
fn of_global(scene: &Scene, q: &QTensor) -> Option<String> {
    let Operand::High(x) = scene.evidence.job.operands.get(0)? else { return None };
    let Data::Quantized(model) = &scene.evidence.model?.parts.first()?.d else { return None };
    let (actual, right) = (f64::from(q.global_scale_inv()?), f64::from(model.global_scale_inv()?));
    let largest = largest(&scene.evidence, q)?.into_iter().fold(0.0, f64::max);
    Some(format!("the global scale is of another amax: {}", of_amax(x, largest, actual / right)?))
}

/// The part of the values whose largest magnitude the scale of the whole tensor is of, `by` what it is of the right one.
fn of_part(e: &Evidence, amax: &[f64], by: f64) -> Option<String> {
    let Operand::High(x) = e.job.operands.get(0)? else { return None };
    of_amax(x, amax.iter().copied().fold(0.0, f64::max), by)
}

/// The part of the values whose largest magnitude is `by` of that of all, to rounding.
fn of_amax(x: &Tensor, largest: f64, by: f64) -> Option<String> {
    let amax = largest * by;
    (amax > 0.0 && amax < largest * (1.0 - NEAR)).then_some(())?;
    let near = |v: &&f32| (f64::from(v.abs()) - amax).abs() <= NEAR * amax;
    let part = super::amax::parts_of(x, x.data().iter().find(near)?.abs()).into_iter().next()?;
    Some(format!("{}; it is {by:.6} of the largest magnitude", part.words))
}

/// What some format reaches.
fn is_maximum(x: f64) -> bool {
    let all = [448.0, 480.0, 240.0, 224.0, 57344.0, 6.0, 7.0, 7.5, 8.0, 15.0, 28.0, 127.0, 127.5, 128.0, 255.0, 256.0, 512.0];
    all.into_iter().any(|y| (x / y - 1.0).abs() < 1e-6)
}

/// Powers of two next to amax itself: nothing of the format is in them.
fn of_amax_alone(amax: &[f64], actual: &[f64]) -> Option<String> {
    let blocks: Vec<(f64, f64)> = amax.iter().copied().zip(actual.iter().copied()).filter(|(a, _)| *a > 0.0).collect();
    let all = |of: fn(f64) -> f64| blocks.len() >= 4 && blocks.iter().all(|(a, s)| *s == of(a.log2()).exp2());
    let ways = [(f64::floor as fn(f64) -> f64, "not above"), (f64::ceil, "not below")];
    let (_, side) = ways.into_iter().find(|(of, _)| all(*of))?;
    Some(format!("every scale_inv is the power of two {side} amax: the format's largest exponent is not taken off"))
}

/// Exponents that are cut where the rule rounds them up: a whole one stays, where another maximum would halve its scale too.
fn down(amax: &[f64], q: &QTensor, actual: &[f64], right: &[f64]) -> Option<String> {
    let max = q.format().max_finite();
    let whole = |g: &usize| (amax[*g] / max).log2().fract() == 0.0;
    let known: Vec<usize> = (0..amax.len().min(actual.len())).filter(|g| amax[*g] > 0.0).collect();
    let cut = |g: &usize| actual[*g] == (amax[*g] / max).log2().floor().exp2() && (actual[*g] == right[*g]) == whole(g);
    (known.iter().any(whole) && known.iter().all(cut)).then_some(())?;
    super::exponents::of_some(q, amax, actual, right)
}

/// Exponents of amax that are rounded up where the rule cuts them: that of a power of two stays, where another number in its place would double it too.
fn up(amax: &[f64], q: &QTensor, actual: &[f64], right: &[f64]) -> Option<String> {
    let unit = q.format().max_finite().log2().floor().exp2();
    let whole = |g: &usize| amax[*g].log2().fract() == 0.0;
    let known: Vec<usize> = (0..amax.len().min(actual.len())).filter(|g| amax[*g] > 0.0).collect();
    let raised = |g: &usize| actual[*g] == amax[*g].log2().ceil().exp2() / unit && (actual[*g] == right[*g]) == whole(g);
    (known.iter().any(whole) && known.iter().all(raised)).then_some(())?;
    super::exponents::of_some(q, amax, actual, right)
}

/// The largest magnitude of every block of a cast. What other ops quantize is not their operand.
fn largest(e: &Evidence, q: &QTensor) -> Option<Vec<f64>> {
    let Operand::High(x) = e.job.operands.get(0)? else { return None };
    (matches!(e.job.op, Op::Cast | Op::CastTranspose) && (x.rows(), x.cols()) == (q.rows(), q.cols())).then_some(())?;
    let mut all = vec![0.0f64; q.scale_inv().len()];
    for (at, v) in x.data().iter().enumerate() {
        let of = &mut all[q.scale_index(at / q.cols(), at % q.cols())];
        *of = of.max(f64::from(v.abs()));
    }
    Some(all)
}

/// Columns of an earlier row that the amax of a group also covers.
fn earlier_rows(e: &Evidence, q: &QTensor, amax: &[f64], (actual, right): (&[f64], &[f64])) -> Option<String> {
    let Operand::High(x) = e.job.operands.get(0)? else { return None };
    let used: Vec<f64> = amax.iter().zip(actual.iter().zip(right)).map(|(m, (a, r))| m * a / r).collect();
    super::amax_rows::earlier(x, q.granularity().tile(x.rows(), x.cols()), &used, amax)
}

/// Elements beside each group that its amax also covers.
fn beside_groups(e: &Evidence, q: &QTensor, amax: &[f64], (actual, right): (&[f64], &[f64])) -> Option<String> {
    let Operand::High(x) = e.job.operands.get(0)? else { return None };
    let used: Vec<f64> =
        amax.iter().zip(actual.iter().zip(right)).map(|(m, (a, r))| if a == r { *m } else { m * a / r }).collect();
    super::amax_ahead::explain(x, q.granularity().tile(x.rows(), x.cols()), &used, amax)
}

/// The columns whose amax the scales of rows are of, where it is not all of them.
fn part_of_row(e: &Evidence, q: &QTensor, actual: &[f64], right: &[f64]) -> Option<String> {
    let Operand::High(x) = e.job.operands.get(0)? else { return None };
    let (rows, cols) = (x.rows(), x.cols());
    (q.granularity().grid(rows, cols) == (rows, 1) && actual.len() == rows && right.len() == rows).then_some(())?;
    // A rounding of the scale is no other amax.
    actual.iter().zip(right).any(|(a, r)| (a - r).abs() > 1e-5 * r).then_some(())?;
    let amax = |i: usize, from: usize, to: usize| x.row(i)[from..to].iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let of = |from: usize, to: usize| {
        (0..rows).all(|i| {
            let expected = right[i] * f64::from(amax(i, from, to)) / f64::from(amax(i, 0, cols));
            (actual[i] - expected).abs() <= 1e-5 * expected
        })
    };
    let range = (1..cols).flat_map(|c| [(0, c), (c, cols)]).find(|(from, to)| of(*from, *to))?;
    Some(format!("amax is that of columns {} … {} alone", range.0, range.1 - 1))
}

fn found(class: Class, variant: &str, detail: String, share: f64) -> Finding {
    Finding {
        fault: format!("{}:{variant}", class.name()),
        class,
        variant: variant.into(),
        operand: "out",
        explains: share,
        detail,
        look: class.spec().look,
        accepted: true,
        exact: share == 1.0,
        freedom: 1,
    }
}
