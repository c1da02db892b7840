//! What a quantized result says of itself: scale, scale_inv and amax, each held to the others and to what was read.
//!
//! A dequantized value hides a power of two: codes doubled with scale_inv halved look the same. So the scalars are judged each by itself.
//! What scale_inv may be beside a scale is [`inverses`].

use super::{Bundle, Out};
use crate::compare::digits::apart;
use crate::compare::{inverse, inverses};
use crate::job::{Data, Job, Operand, Output, Part};
use crate::op::Op;
use crate::{Overflow, QTensor, Rounding};

/// Whether the scalars of a result, read from one file, agree.
pub(super) fn agrees(out: &Out) -> bool {
    match (&out.d, out.scale) {
        (Data::Quantized(q), Some(scale)) => whole(q).is_none_or(|inv| inverse(scale, inv, q.scale_format())),
        _ => true,
    }
}

/// The scale_inv of a tensor that has one.
fn whole(q: &QTensor) -> Option<f32> {
    match q.scale_inv() {
        [one] => Some(*one),
        _ => None,
    }
}

/// How far an amax may be from the value whose code is the largest: a rounding to 16 bits, which is judged elsewhere.
const ABOUT: f64 = 1.0 / 256.0;

/// An amax of computed values that their scale takes to another code than the largest there is, where the codes are right: they rise with values, and
/// the largest value has the largest code. `output` has nobody's rows as zeros.
pub(super) fn beside_codes(bundle: &Bundle, output: &Output) -> Option<String> {
    let [Part { d: Data::Quantized(q), .. }] = &output.parts[..] else { return None };
    (!matches!(bundle.meta.op, Op::Cast | Op::CastTranspose)).then_some(())?;
    let scale = bundle.out.scale.or_else(|| whole(q).map(f32::recip))?;
    let (amax, scale) = (f64::from(bundle.out.amax?), f64::from(scale));
    let f = q.format();
    let values: Vec<f64> = (0..1u32 << f.bits()).map(|c| f.decode(c).abs()).collect();
    let seen = || q.codes().iter().map(|c| values[usize::from(*c)]);
    // What is Inf or NaN may be of a value that is beyond all codes.
    seen().all(f64::is_finite).then_some(())?;
    let largest = seen().fold(0.0, f64::max);
    (f.is_float() && (amax * scale).is_finite()).then_some(())?;
    let code = |by: f64| f.decode(f.encode(amax * scale * by, Rounding::NearestEven, Overflow::Saturate));
    (!(code(1.0 - ABOUT) <= largest && largest <= code(1.0 + ABOUT))).then(|| {
        let [amax, scaled] = apart([amax, amax * scale]);
        format!("out.amax {amax} is not that of the codes: times out.scale it is {scaled}, and the largest code is {largest}")
    })
}

/// Scalars that contradict each other or what was read: one sentence each, with what was found and what was expected.
pub(super) fn contradictions(bundle: &Bundle) -> Vec<String> {
    let mut found = Vec::new();
    let Data::Quantized(q) = &bundle.out.d else { return found };
    if let (Some(scale), Some(inv), false) = (bundle.out.scale, whole(q), agrees(&bundle.out)) {
        let (low, high) = inverses(scale, q.scale_format());
        let [inverse, low, high] = apart([inv.into(), low, high]);
        let [product, one] = apart([f64::from(scale) * f64::from(inv), 1.0]);
        let [scale] = apart([scale.into()]);
        found.push(format!(
            "out.scale {scale} and out.scale_inv {inverse} are not inverse: their product is {product}, expected {one} to rounding, \
             scale_inv in [{low}, {high}]"
        ));
    }
    let casts = matches!(bundle.meta.op, Op::Cast | Op::CastTranspose);
    if let (true, Some(amax), Some(x)) = (casts, bundle.out.amax, &bundle.a.high) {
        // NaN loses in fmaxf and wins in torch.amax: over values with a NaN either is right.
        let largest = x.data().iter().fold(0f32, |m, x| m.max(x.abs()));
        let nan = x.data().iter().any(|x| x.is_nan());
        if amax.to_bits() != largest.to_bits() && !(nan && amax.is_nan()) {
            let [amax, largest] = apart([amax.into(), largest.into()]);
            found.push(format!("out.amax: found {amax}, expected {largest}, the largest magnitude of a"));
        }
    }
    found.extend(super::ties::contradiction(bundle));
    found.extend(super::zero_blocks::contradiction(bundle));
    found.extend(super::clipped::contradiction(bundle));
    found
}

/// Whether every dequantized value is the exact product of code and scale_inv rounded once, without f32 between: f64 arithmetic, or a
/// multiplication with a narrow result. The product of 8 and 24 bits is exact in f64.
pub(super) fn rounded_once(job: &Job, output: &Output) -> bool {
    let (Operand::Quantized(q), Data::High(t)) = (job.operands.a(), &output.parts[0].d) else { return false };
    let once = |x: f64| t.dtype().decode(t.dtype().encode(x, Rounding::NearestEven, Overflow::Native)) as f32;
    q.dequantize_fast().iter().zip(t.data()).all(|(x, found)| {
        let right = once(*x);
        right.to_bits() == found.to_bits() || (right.is_nan() && found.is_nan())
    })
}
