//! What a scenario predicts of every use of an operand, and whether it is so.
//!
//! Bytes made with scale s and read with scale_inv σ′ stand for r·x̂ with r = s·σ′ (spec: 1 when they belong together). A law
//! gives r, and perhaps which bytes are there, as a function of the recipes' scales; the product's result is then predicted in
//! f64 and must be inside the bound of its arithmetic around that. An operand that no law names is exact, and a product of
//! two such operands returns the bits of the healthy one.

use super::expr::{Expr, Index, ScaleVersions, Vector};
use super::machine::Machine;
use super::product::Outcome;
use super::state::Buffer;
use super::{Class, Policy};
use crate::assay::product::bound;
use crate::compare::Bound;
use crate::compare::digits::apart;
use crate::{Error, QTensor, Result};
use ndarray::Array2;

/// One `[[law]]`.
#[derive(Clone, Debug)]
pub struct Law {
    pub line: usize,
    pub policies: Vec<Policy>,
    pub product: String,
    /// 0 is a, 1 is b.
    pub operand: usize,
    pub kind: LawKind,
    pub r: Expr,
    pub text: String,
    /// The bytes are those of this state in this version.
    pub codes: Option<(String, usize)>,
    pub first: usize,
    pub last: usize,
}

impl Law {
    fn is_of(&self, policy: Policy, step: usize, product: &str, operand: usize) -> bool {
        self.operand == operand
            && self.product == product
            && self.policies.contains(&policy)
            && (self.first..=self.last).contains(&step)
    }
}

/// What is predicted besides r.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LawKind {
    Ratio,
    /// Elements with |x|·s beyond the format's range are ±M/s; how many.
    Clipped,
    /// Elements with |x|·s of at most half the smallest subnormal are zero; how many.
    Flushed,
    /// Quantized twice: off by at most half a spacing of each grid.
    Twice,
}

impl LawKind {
    pub const ALL: [(LawKind, &'static str); 4] =
        [(LawKind::Ratio, "ratio"), (LawKind::Clipped, "clipped"), (LawKind::Flushed, "flushed"), (LawKind::Twice, "twice")];
    pub fn name(self) -> &'static str {
        LawKind::ALL[self as usize].1
    }
}

/// How far s·σ′ may be from the predicted r: σ′ = RN32(1/s′), and 1/σ where a recipe keeps no s, one rounding each.
const ROUNDING: f64 = 3.0 / 16_777_216.0;

/// What was predicted of one operand and what was found.
#[derive(Clone, Debug)]
pub struct SideVerdict {
    /// The law's kind and expression; `exact` where none names the operand.
    pub law: String,
    /// Of the tile whose r is farthest from 1: predicted, and s·σ′ as read.
    pub r_predicted: f64,
    pub r_measured: f64,
    /// Over all tiles.
    pub r_min: f64,
    pub r_max: f64,
    /// scale_inv that belongs to that tile's bytes, and the one read.
    pub scale_inv_true: f64,
    pub scale_inv_used: f64,
    /// Shares of elements at the end of the range, and of zeros that were not zero.
    pub saturated: f64,
    pub flushed: f64,
    pub holds: bool,
    /// Where it does not hold, why.
    pub why: String,
    /// It was not read as it was meant, or lost something by the law's kind.
    pub shows: bool,
}

/// What was predicted of a product and what was found.
#[derive(Clone, Debug)]
pub struct ProductVerdict {
    pub sides: [SideVerdict; 2],
    /// Least-squares gain of the result over the healthy one: predicted in f64, and as returned.
    pub gain_predicted: f64,
    pub gain_measured: f64,
    /// The result is as predicted: inside the bound around the prediction, or the healthy bits.
    pub holds: bool,
    pub why: String,
    /// qassay's own bound around what was meant would have failed it.
    pub bound_notices: bool,
}

struct At<'a> {
    machine: &'a Machine<'a>,
    buffer: &'a Buffer,
}

impl ScaleVersions for At<'_> {
    fn scale(&self, state: &str, index: Index) -> Option<Vec<f64>> {
        let slot = self.machine.slot(state).ok()?;
        let version = match index {
            Index::Version(v) => v,
            Index::Now(k) => (slot.begin as i64 + k).max(0) as usize,
        };
        slot.log.get(version).cloned()
    }
    fn made(&self) -> Vec<f64> {
        self.buffer.made.clone()
    }
}

/// Judges a product by the laws of its scenario.
pub fn judge(machine: &Machine, outcome: &Outcome) -> Result<ProductVerdict> {
    let law = |i: usize| {
        let mut laws = machine.scenario.laws.iter();
        laws.find(|l| l.is_of(machine.policy, machine.step, &outcome.product, i))
    };
    let (a, values_a) = side(machine, outcome, 0, law(0))?;
    let (b, values_b) = side(machine, outcome, 1, law(1))?;
    let trivial = |l: Option<&Law>| l.is_none_or(|l| l.r == Expr::Number(1.0) && l.codes.is_none());
    let predicted = outcome.define([values_a, values_b])?;
    let healthy_bits = outcome.is_healthy();
    let (mut holds, mut why) = (true, String::new());
    if trivial(law(0)) && trivial(law(1)) {
        holds = healthy_bits;
        if !holds {
            why = format!("{} bits differ from the healthy result's", differing(outcome));
        }
    } else {
        // The prediction's r is exact where the kernel reads a rounded scale_inv.
        let around = bound(&outcome.job, &predicted, &outcome.out)?;
        let slack = predicted.magnitude.as_ref().map_or_else(Vec::new, |m| m.iter().map(|m| 2.0 * ROUNDING * m).collect());
        let widen =
            |r: &[f64]| r.iter().zip(&slack).map(|(r, s)| if s.is_finite() { r + s } else { 0.0 }).collect::<Vec<f64>>();
        let around = Bound::from_radii(
            predicted.d.iter().copied().collect(),
            widen(around.certain()),
            widen(around.probable()),
            &outcome.out,
        )?;
        let judged = around.judge(&outcome.actual)?;
        if let Some(i) = judged.first_violation {
            let (low, high) = around.allowed(i);
            holds = false;
            let [is, low, high] = apart([outcome.actual[i], low, high]);
            why = format!("element {i} is {is}; the law allows {low} to {high}");
        }
    }
    let own = bound(&outcome.job, &outcome.ideal, &outcome.out)?.judge(&outcome.actual)?;
    let healthy: Vec<f64> = outcome.ideal.d.iter().copied().collect();
    let predicted: Vec<f64> = predicted.d.iter().copied().collect();
    Ok(ProductVerdict {
        gain_predicted: gain(&healthy, &predicted),
        gain_measured: gain(&healthy, &outcome.actual),
        holds,
        why,
        bound_notices: own.violations > 0,
        sides: [a, b],
    })
}

fn differing(outcome: &Outcome) -> usize {
    outcome.actual.iter().zip(&outcome.healthy).filter(|(a, h)| a.to_bits() != h.to_bits()).count()
}

/// Σ r·a / Σ r²; NaN where an element of `a` is.
pub fn gain(reference: &[f64], actual: &[f64]) -> f64 {
    let dot: f64 = reference.iter().zip(actual).map(|(r, a)| r * a).sum();
    dot / reference.iter().map(|r| r * r).sum::<f64>()
}

/// One operand: its verdict, and the values that the law predicts, in the orientation of its buffer.
fn side(machine: &Machine, outcome: &Outcome, i: usize, law: Option<&Law>) -> Result<(SideVerdict, Array2<f64>)> {
    let side = &outcome.sides[i];
    let buffer = &side.buffer;
    let r = law.map_or(Ok(Vector::Tiles(vec![1.0])), |l| l.r.eval(&At { machine, buffer }))?;
    // Under a law of bytes the codes are those; without one, what was meant (with a law of r: what is there).
    let bytes: QTensor = match law.and_then(|l| l.codes.as_ref()) {
        Some((state, version)) => {
            let missing = || Error::value("law", format!("{state}@{version}"), "a version in which the state made bytes");
            let q = machine.slot(state)?.bytes.get(version).ok_or_else(missing)?;
            if buffer.of.is_some() { q.transposed()? } else { q.clone() }
        }
        None if law.is_none() => side.intended.clone(),
        None => buffer.q.clone(),
    };
    let predicted =
        Array2::from_shape_fn((bytes.rows(), bytes.cols()), |(x, y)| bytes.value(x, y) * r.at(bytes.scale_index(x, y), x));
    let (mut holds, mut why) = (true, String::new());
    let mut fail = |text: String| {
        if holds {
            (holds, why) = (false, text);
        }
    };
    // r of every tile, as read.
    let (cols, used) = (buffer.q.cols(), &side.used);
    let (mut worst, mut range) = ((1.0f64, 1.0f64, f64::NAN, f64::NAN), (f64::INFINITY, f64::NEG_INFINITY));
    let mut distance = -1.0;
    let (tile_rows, tile_cols) = buffer.q.granularity().tile(buffer.q.rows(), cols);
    let (used_rows, used_cols) = used.granularity().tile(used.rows(), used.cols());
    for x in (0..buffer.q.rows()).step_by(tile_rows.min(used_rows).max(1)) {
        for y in (0..cols).step_by(tile_cols.min(used_cols).max(1)) {
            let tile = buffer.q.scale_index(x, y);
            let found = f64::from(used.scale_inv()[used.scale_index(x, y)]);
            let global = f64::from(buffer.q.over(tile).0);
            let (found_r, want) = (buffer.made[tile] * found * global, r.at(tile, x));
            range = (range.0.min(found_r), range.1.max(found_r));
            let close = (found_r / want - 1.0).abs() <= ROUNDING || found_r == want || (found_r.is_nan() && want.is_nan());
            if !close {
                let [found, want] = apart([found_r, want]);
                fail(format!("{}: tile {tile} is read with r = {found}, the law says {want}", side.name));
            }
            let far = if found_r.is_finite() && found_r > 0.0 { found_r.ln().abs() } else { f64::INFINITY };
            if far > distance {
                distance = far;
                worst = (want, found_r, f64::from(buffer.q.scale_inv()[tile]), found);
            }
        }
    }
    let lost = Lost::of(buffer);
    let (is_lost, broken) = lost.under(law.map_or(LawKind::Ratio, |l| l.kind), buffer);
    let shows = side.used != side.intended || is_lost;
    if let Some(text) = broken {
        fail(format!("{}: {text}", side.name));
    }
    let n = buffer.q.codes().len().max(1) as f64;
    let name = law.map_or_else(|| "exact".to_string(), |l| format!("{}: {}", l.kind.name(), l.text));
    let verdict = SideVerdict {
        law: name,
        r_predicted: worst.0,
        r_measured: worst.1,
        r_min: range.0,
        r_max: range.1,
        scale_inv_true: worst.2,
        scale_inv_used: worst.3,
        saturated: lost.saturated as f64 / n,
        flushed: lost.flushed as f64 / n,
        holds,
        why,
        shows,
    };
    Ok((verdict, predicted))
}

/// What the range of a format takes from a tensor.
#[derive(Default)]
struct Lost {
    /// Codes at the end of the range, and how many elements must be there: |RN32(x·s)| rounds to at least M.
    saturated: usize,
    saturated_predicted: usize,
    /// |x|·s beyond M, and those of them that are not ±M/s.
    clipped: usize,
    misclipped: usize,
    /// Zeros of x ≠ 0, and how many must be: |RN32(x·s)| of at most half the smallest subnormal.
    flushed: usize,
    flushed_predicted: usize,
}

impl Lost {
    fn of(buffer: &Buffer) -> Lost {
        let q = &buffer.q;
        let format = q.format();
        let mut lost = Lost::default();
        let max = format.max_finite();
        let smallest = format.ulp(0.0);
        // The last value that rounds below M: half way from its neighbour, the tie to the even code.
        let top = format.max_code();
        let middle = (max + format.decode(top - 1)) / 2.0;
        let float = !format.is_integer();
        for (i, code) in q.codes().iter().enumerate() {
            let (row, col) = (i / q.cols(), i % q.cols());
            let x = buffer.x.data()[i];
            let scaled = f64::from(x * buffer.made[q.scale_index(row, col)] as f32).abs();
            let value = format.decode(u32::from(*code));
            lost.saturated += usize::from(value.abs() >= max);
            lost.saturated_predicted +=
                usize::from(scaled > middle || (scaled == middle && (top.is_multiple_of(2) || !float)) || scaled.is_infinite());
            if scaled > max {
                lost.clipped += 1;
                lost.misclipped += usize::from(value.abs() != max || (value < 0.0) != (x < 0.0));
            }
            lost.flushed += usize::from(value == 0.0 && x != 0.0);
            lost.flushed_predicted += usize::from(scaled <= smallest / 2.0 && x != 0.0);
        }
        lost
    }

    /// Whether something is lost that a law of this kind is about, and in words that it is not what the law says.
    fn under(&self, kind: LawKind, buffer: &Buffer) -> (bool, Option<String>) {
        match kind {
            LawKind::Ratio => (false, None),
            LawKind::Clipped => {
                let broken = self.saturated != self.saturated_predicted || self.misclipped > 0;
                let words = || {
                    format!(
                        "{} codes are at the end of the range, the law says {}; {} of the clipped are not ±M/s",
                        self.saturated, self.saturated_predicted, self.misclipped
                    )
                };
                (self.clipped > 0, broken.then(words))
            }
            LawKind::Flushed => {
                let words = || format!("{} values became zero, the law says {}", self.flushed, self.flushed_predicted);
                (self.flushed > 0, (self.flushed != self.flushed_predicted).then(words))
            }
            LawKind::Twice => {
                let (beyond, more) = twice(buffer);
                let words = || format!("{beyond} elements are off by more than half a spacing of both grids");
                (more > 0, (beyond > 0).then(words))
            }
        }
    }
}

/// Elements off by more than half a spacing of the first grid at x and half a spacing of the second at what the first made of it; and
/// elements that are off by more than the second alone would allow.
fn twice(buffer: &Buffer) -> (usize, usize) {
    let Some(first) = &buffer.first else { return (buffer.q.codes().len(), 0) };
    let q = &buffer.q;
    let half = |b: &Buffer, row: usize, col: usize, x: f64| {
        let unit = 1.0 / b.made[b.q.scale_index(row, col)];
        b.q.format().ulp(x / unit) * unit / 2.0
    };
    let (mut beyond, mut more) = (0, 0);
    for i in 0..q.codes().len() {
        let (row, col) = (i / q.cols(), i % q.cols());
        let (x, once) = (f64::from(buffer.x.data()[i]), first.q.value(row, col));
        let error = (q.value(row, col) - x).abs();
        more += usize::from(!(error <= half(buffer, row, col, x)));
        beyond += usize::from(!(error <= half(first, row, col, x) + half(buffer, row, col, once)));
    }
    (beyond, more)
}

/// Whether a scenario of this class must be exact to the bit under a policy.
pub fn must_be_exact(class: Class, policy: Policy) -> bool {
    class == Class::Healthy || (class == Class::Staleness && policy == Policy::Packaged)
}

#[cfg(test)]
mod tests {
    use super::super::state::Made;
    use super::*;
    use crate::{Format, Tensor};

    /// A row under scales of 1×128, with the scales that made it.
    fn blocks(values: Vec<f32>) -> Buffer {
        let x = Tensor::new(Format::F32, 1, values.len(), values).unwrap();
        let made = "deepseek_1x128".parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap();
        let scale = made.q.scale_inv().iter().map(|s| 1.0 / f64::from(*s)).collect();
        Buffer::new(Made { q: made.q, scale }, x, "x", 0, false)
    }

    /// Half of e4m3's smallest number, 2^-9, is a tie to zero; what is above it is not lost. Each in the scale of its own block.
    #[test]
    fn what_becomes_zero_is_predicted_block_by_block() {
        let half = 2f32.powi(-10);
        let block = [448.0, half, -half, 0.5 * half, 1.5 * half, 2.0 * half, -3.0 * half, 0.0];
        let buffer = blocks((0..512).map(|i| block[i % 8] * [1.0, 2f32.powi(-12)][i / 128 % 2]).collect());
        let lost = Lost::of(&buffer);
        assert_eq!((lost.flushed, lost.flushed_predicted), (512 / 8 * 3, 512 / 8 * 3));
        assert_eq!((lost.saturated, lost.saturated_predicted, lost.clipped), (512 / 8, 512 / 8, 0));
    }

    /// Numbers between 256 and 448 are 32 apart: quantized twice they are off by 32 at most, two codes further they are not.
    #[test]
    fn what_was_quantized_twice_is_off_by_half_a_spacing_of_both() {
        // With scale_inv 3 a spacing is three times as wide.
        for scale_inv in [1.0, 3.0] {
            let value = |i: usize| if i == 0 { 448.0 } else { 256.0 + (i * 7 % 100) as f32 };
            let first = blocks((0..128).map(|i| scale_inv * value(i)).collect());
            let with = |further: u8| {
                let mut parts = first.q.clone().into_parts();
                parts.codes.iter_mut().skip(1).for_each(|c| *c += further);
                Buffer { q: QTensor::new(parts).unwrap(), first: Some(Box::new(first.clone())), ..first.clone() }
            };
            assert_eq!(twice(&with(0)), (0, 0));
            assert_eq!(twice(&with(2)), (127, 127));
            assert_eq!(twice(&first), (128, 0), "nothing was quantized first");
        }
    }

    /// Of each kind: whether something is lost, and whether the law of it is broken.
    #[test]
    fn each_kind_of_law_is_about_its_own_loss() {
        let buffer = blocks(vec![1.0; 128]);
        let of = |lost: Lost| {
            [LawKind::Ratio, LawKind::Clipped, LawKind::Flushed].map(|kind| {
                let (shows, broken) = lost.under(kind, &buffer);
                (shows, broken.is_some())
            })
        };
        let none = (false, false);
        assert_eq!(of(Lost::default()), [none; 3]);
        assert_eq!(
            of(Lost { clipped: 2, saturated: 3, saturated_predicted: 3, ..Lost::default() }),
            [none, (true, false), none]
        );
        assert_eq!(of(Lost { saturated: 3, saturated_predicted: 2, ..Lost::default() }), [none, (false, true), none]);
        assert_eq!(of(Lost { clipped: 2, misclipped: 1, ..Lost::default() }), [none, (true, true), none]);
        assert_eq!(of(Lost { flushed: 4, flushed_predicted: 4, ..Lost::default() }), [none, none, (true, false)]);
        assert_eq!(of(Lost { flushed_predicted: 4, ..Lost::default() }), [none, none, (false, true)]);
    }

    #[test]
    fn healthy_scenarios_are_exact_and_so_are_stale_ones_whose_scales_are_packaged() {
        for policy in Policy::ALL {
            assert!(must_be_exact(Class::Healthy, policy));
            assert_eq!(must_be_exact(Class::Staleness, policy), policy == Policy::Packaged, "{}", policy.name());
            assert!([Class::Bytes, Class::Saturation, Class::Contract].into_iter().all(|c| !must_be_exact(c, policy)));
        }
    }
}
