//! What is wrong beside what explains the result: scales and an amax that wrong codes do not make, told behind the name.

use super::assay::{Answer, with_evidence};
use super::{Bundle, copies, stages};
use crate::QTensor;
use crate::compare::Verdict;
use crate::fault::{self, Class};
use crate::job::Data;
use crate::op::Op;

/// Tells it in the first finding's words.
pub fn tell(bundle: &Bundle, found: &mut Answer) {
    // Codes that are encoded wrong do not make wrong scales.
    let encoded = found.diagnosis.as_ref().and_then(|d| d.findings.first()).is_some_and(|f| is_encoding(f.class));
    let scales = || with_evidence(bundle, &found.assayed, fault::chosen::other_scales);
    let scales = if encoded && found.reason.contains("scale_inv[") { scales() } else { None };
    let Some(first) = found.diagnosis.as_ref().and_then(|d| d.findings.first()) else { return };
    // What is named already is not asked for again.
    let of_copy = first.variant.contains("transpose");
    let of_amax = first.class == Class::AmaxScope || first.fault.contains("amax");
    let copy = if of_copy { None } else { other_copy(bundle, found) };
    let amax = || part_amax(bundle, found).or_else(|| scaled_amax(bundle, found)).or_else(|| other_amax(found));
    let amax = if of_amax { None } else { amax() };
    let Some(first) = found.diagnosis.as_mut().and_then(|d| d.findings.first_mut()) else { return };
    first.detail += &scales.unwrap_or_default();
    first.detail += &copy.unwrap_or_default();
    first.detail += &amax.unwrap_or_default();
}

/// How far an amax may be from the largest magnitude that is written, relative: half a step of FP8.
const WRITTEN: f64 = 1.0 / 14.0;

/// An amax that is wrong and not that of the wrong values either: what explains these does not explain it.
fn other_amax(found: &Answer) -> Option<String> {
    let amax = f64::from(found.assayed.output.parts.first()?.amax?);
    let written = found.judgement().actual.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let far = (amax - written).abs() > WRITTEN * written && written.is_finite();
    (found.verdict == Verdict::Fail && far && found.reason.contains("amax[")).then_some(())?;
    let job = &found.assayed.built.job;
    let computes = !job.op.is_product() && !matches!(job.op, Op::Cast | Op::CastTranspose);
    if let (Data::Quantized(q), true) = (&found.assayed.output.parts[0].d, computes) {
        // Codes at their end stand for anything beyond it.
        let top = q.format().max_finite();
        let ends = q.codes().iter().any(|c| q.format().decode(u32::from(*c)).abs() == top);
        if ends && amax > written {
            return None;
        }
        let unit = q.affine(0).unit;
        if q.scale_inv().len() == 1 && (unit - 1.0).abs() > WRITTEN && (amax * unit - written).abs() <= WRITTEN * written {
            return Some("; and out.amax is that of the values times their scale, as codes are made of them".into());
        }
    }
    // Of a part of the right values, which are most of what was written.
    let part = || {
        let judged = found.judgement();
        computes.then_some(())?;
        let values = fault::amax::as_computed(judged.bound.ideal(), judged.bound.certain(), judged.cols, amax as f32)?;
        fault::amax::parts_of(&values, amax as f32).into_iter().next()
    };
    if let Some(part) = part() {
        return Some(format!("; and {}", part.words));
    }
    Some(format!(
        "; this is not all: out.amax is {amax:.5}, which is the largest magnitude neither of the right result nor of this one"
    ))
}

/// The part of the values whose amax is beside a cast that is wrong in another way: codes do not make it.
fn part_amax(bundle: &Bundle, found: &Answer) -> Option<String> {
    let first = found.diagnosis.as_ref()?.findings.first()?;
    let of_codes =
        matches!(first.class, Class::MnEdge | Class::SilentSkip | Class::Race | Class::PackPermute | Class::Addressing)
            || is_encoding(first.class);
    let is_cast = matches!(bundle.meta.op, Op::Cast | Op::CastTranspose) && found.verdict == Verdict::Fail;
    let amax = bundle.out.amax.filter(|_| is_cast && of_codes)?;
    let part = fault::amax::parts_of(bundle.a.high.as_ref()?, amax).into_iter().next()?;
    Some(format!("; and {}", part.words))
}

/// An amax of scaled values beside a transposed copy that is wrong in another way: neither makes the other.
fn scaled_amax(bundle: &Bundle, found: &Answer) -> Option<String> {
    let is_copy = found.diagnosis.as_ref()?.findings.first()?.variant.contains("transpose") && found.verdict == Verdict::Fail;
    let amax = f64::from(bundle.out.amax.filter(|_| is_copy)?);
    let largest = bundle.a.high.as_ref()?.data().iter().fold(0.0f32, |m, x| m.max(x.abs()));
    Some(format!("; and {}", stages::scaled(bundle, f64::from(largest), amax)?))
}

/// Codes of the transposed copy that are neither those beside it nor the right ones: what is wrong with the codes does not make them.
fn other_copy(bundle: &Bundle, found: &Answer) -> Option<String> {
    let (Some(copy), Data::Quantized(q), Some(x)) = (&bundle.out.transpose, &bundle.out.d, bundle.a.high.as_ref()) else {
        return None;
    };
    let is_named = found.diagnosis.as_ref().is_some_and(|d| !d.findings.is_empty());
    let Data::Quantized(right) = &found.assayed.model.as_ref()?.parts.first()?.d else { return None };
    let (rows, cols, n) = (q.rows(), q.cols(), q.codes().len());
    let same = right.scale_inv() == q.scale_inv() && right.codes().len() == n && copy.len() == n && x.data().len() == n;
    (found.verdict == Verdict::Fail && is_named && same && right.codes() != q.codes()).then_some(())?;
    // Of the codes beside it where it is theirs, else of the right ones.
    let mut parts = right.clone().into_parts();
    for (at, code) in parts.codes.iter_mut().enumerate() {
        let own = q.codes()[at];
        if copy[at % cols * rows + at / cols] == own {
            *code = own;
        }
    }
    let of = QTensor::new(parts).ok()?;
    let (_, _, words) = copies::explain(copy, x, &of)?;
    Some(format!("; and {words}"))
}

/// What is wrong with codes by the scales beside them.
fn is_encoding(class: Class) -> bool {
    matches!(class, Class::Rounding | Class::CodecEdge | Class::SrBroken | Class::OverflowWrap | Class::PackPermute)
}
