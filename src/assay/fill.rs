//! The columns of a row that a judgement fills.

use super::coverage::Coverage;
use super::row::Row;
use super::table::Errors;
use super::{Assayed, Judgement, worst};
use crate::compare::{Comparison, Digest, Measured};
use crate::job::{Data, Output};
use crate::kernel::cpu::drawn::Drawn;
use crate::quant::Granularity;
use crate::stage::timed;
use crate::{QTensor, Tensor};

/// Verdict, statistics and coverage of what ran.
pub(crate) fn fill(row: &mut Row, assayed: &Assayed) {
    let (parts, part) = (&assayed.judgements, worst(&assayed.judgements));
    let c = &part.comparison;
    row.algorithm = assayed.algorithm.clone().unwrap_or_default();
    judged(row, assayed.kernel, c);
    let which = parts.iter().position(|j| std::ptr::eq(j, part)).unwrap_or(0);
    let place = if parts.len() > 1 { format!("part {which} of {}: ", parts.len()) } else { String::new() };
    row.reason = if c.reason.is_empty() { String::new() } else { place + &c.reason };
    row.reference = part.bound.reference().into();
    row.mismatches = parts.iter().map(|j| j.comparison.mismatches).sum();
    let all = || parts.iter().map(|j| j.actual.len()).sum();
    row.held = row.mismatches.map(|_| assayed.drawn.as_ref().map_or_else(all, Drawn::count));
    // One thread hashes while the others count.
    timed("counts", || {
        std::thread::scope(|scope| {
            let hashed = scope.spawn(|| digest(&assayed.output));
            row.differing = Some(differing(parts));
            let histogram = part.bound.ulp_histogram(&part.actual);
            row.ulp_histogram = Some(histogram.expect("judged, so as long as its bound"));
            narrowest(row, &assayed.output, &assayed.built.quantized, assayed.built.source.as_ref());
            row.sha256 = hashed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    });
}

/// Who ran, the verdict, the errors and what is derived from them.
fn judged(row: &mut Row, kernel: &str, c: &Comparison) {
    row.kernel = kernel.into();
    row.device = if kernel.starts_with("cpu/") { "cpu".into() } else { String::new() };
    row.verdict = c.verdict;
    row.bound_ratio = Some(c.bound_ratio_certain);
    row.probable_ratio = Some(c.bound_ratio_probable);
    row.power_gain = Some(c.power.gain);
    row.power_group_gain = Some(c.power.group_gain);
    row.power_flip_rate = Some(c.power.code_flip_rate);
    row.errors = Errors { quantization: c.quantization.clone(), kernel: Some(c.kernel.clone()), total: c.total.clone() };
}

/// The columns of what was judged where it lies: every element has the bits of its model.
pub(crate) fn fill_measured(row: &mut Row, kernel: &str, c: &Comparison, m: &Measured) {
    judged(row, kernel, c);
    let elements = c.kernel.count;
    row.reason = c.reason.clone();
    (row.mismatches, row.held) = (c.mismatches, c.mismatches.map(|_| elements));
    row.differing = Some(m.differing as f64 / elements.max(1) as f64);
    row.ulp_histogram = Some(m.histogram);
}

/// Format, granularity and coverage of the narrowest quantized tensor: the last operand, or the result of a cast.
pub(crate) fn narrowest(row: &mut Row, output: &Output, quantized: &[(QTensor, Tensor)], source: Option<&Tensor>) {
    let result = match &output.parts[0].d {
        Data::Quantized(q) if quantized.is_empty() => source.map(|x| (q, x)),
        _ => None,
    };
    let operands = quantized.iter().map(|(q, x)| (q, x));
    let pair: Option<(&QTensor, &Tensor)> = operands.min_by_key(|(q, _)| q.format().bits()).or(result);
    let Some((q, x)) = pair else { return };
    let coverage = Coverage::of(q, x);
    row.format = Some(q.format());
    row.granularity = Some(q.granularity());
    row.group = Some(if let Granularity::Group(g) = q.granularity() { g } else { 0 });
    row.zero = Some(q.zero().kind());
    row.codes = Some(coverage.codes);
    row.ties = Some(coverage.ties);
    row.subnormals = Some(coverage.subnormals);
    row.saturations = Some(coverage.saturations);
}

/// How many of all parts' elements are not the ideal rounded to the output, of all.
fn differing(judgements: &[Judgement]) -> f64 {
    let all: usize = judgements.iter().map(|j| j.actual.len()).sum();
    let differ = |j: &Judgement| j.bound.differing(&j.actual).expect("judged, so as long as its bound");
    judgements.iter().map(differ).sum::<usize>() as f64 / all.max(1) as f64
}

/// SHA-256 of everything the kernel wrote.
pub fn digest(output: &Output) -> String {
    let mut digest = Digest::new();
    for part in &output.parts {
        digest = match &part.d {
            Data::High(t) => digest.tensor(t),
            Data::Quantized(q) => digest.quantized(q),
        };
        if let Some(t) = &part.transpose {
            digest = digest.quantized(t);
        }
        digest = digest.f32s("amax", part.amax.as_slice());
    }
    if let Some(t) = &output.dbias {
        digest = digest.tensor(t);
    }
    digest
        .f32s("mean", output.mean.as_deref().unwrap_or_default())
        .f32s("rsigma", output.rsigma.as_deref().unwrap_or_default())
        .finish()
}
