//! The columns of a row that a judgement fills.

use super::coverage::Coverage;
use super::row::{ERRORS, Row};
use super::{Assayed, Judgement, evidence, worst};
use crate::compare::{Digest, ErrorStats, METRICS};
use crate::job::{Data, Output};
use crate::kernel::cpu::drawn::Drawn;
use crate::quant::{Granularity, Zero};
use crate::{QTensor, Tensor};

/// Verdict, statistics and coverage of what ran.
pub(crate) fn fill(row: &mut Row, assayed: &Assayed) {
    let part = worst(&assayed.judgements);
    let c = &part.comparison;
    row.set("kernel", assayed.kernel);
    row.set("algorithm", assayed.algorithm.as_deref().unwrap_or_default());
    row.set("device", if assayed.kernel.starts_with("cpu/") { "cpu" } else { "" });
    row.set("verdict", c.verdict);
    let which = assayed.judgements.iter().position(|j| std::ptr::eq(j, part)).unwrap_or(0);
    let place =
        if assayed.judgements.len() > 1 { format!("part {which} of {}: ", assayed.judgements.len()) } else { String::new() };
    row.set("reason", if c.reason.is_empty() { String::new() } else { place + &c.reason });
    let modelled: Option<usize> = assayed.judgements.iter().map(|j| j.comparison.mismatches).sum();
    row.set("mismatches", modelled.map_or(String::new(), |n| n.to_string()));
    let all = || assayed.judgements.iter().map(|j| j.actual.len()).sum();
    let held = modelled.map(|_| assayed.drawn.as_ref().map_or_else(all, Drawn::count));
    row.set("held", held.map_or(String::new(), |n| n.to_string()));
    row.set_number("bound_ratio", c.bound_ratio_certain);
    row.set_number("probable_ratio", c.bound_ratio_probable);
    row.set_number("power_gain", c.power.gain);
    row.set_number("power_group_gain", c.power.group_gain);
    row.set_number("power_flip_rate", c.power.code_flip_rate);
    row.set_number("differing", differing(&assayed.judgements));
    row.set("sha256", digest(&assayed.output));
    row.set("ulp_histogram", evidence::ulp_histogram(part).map(|n| n.to_string()).join("|"));
    narrowest(row, assayed);
    for ((prefix, _), stats) in ERRORS.iter().zip([c.quantization.as_ref(), Some(&c.kernel), c.total.as_ref()]) {
        for metric in METRICS {
            if let Some(stats) = stats {
                row.set_number(&format!("{prefix}_{}", metric.name), (metric.get)(stats as &ErrorStats));
            }
        }
    }
}

/// Format, granularity and coverage of the narrowest quantized tensor: the last operand, or the result of a cast.
fn narrowest(row: &mut Row, assayed: &Assayed) {
    let result = match &assayed.output.parts[0].d {
        Data::Quantized(q) if assayed.built.quantized.is_empty() => assayed.built.source.as_ref().map(|x| (q, x)),
        _ => None,
    };
    let operands = assayed.built.quantized.iter().map(|(q, x)| (q, x));
    let pair: Option<(&QTensor, &Tensor)> = operands.min_by_key(|(q, _)| q.format().bits()).or(result);
    let Some((q, x)) = pair else { return };
    let coverage = Coverage::of(q, x);
    row.set("format", q.format());
    row.set("granularity", q.granularity());
    row.set("group", if let Granularity::Group(g) = q.granularity() { g } else { 0 });
    row.set(
        "zero",
        match q.zero() {
            Zero::None => "none",
            Zero::Integer(_) => "integer",
            Zero::Additive { .. } => "additive",
        },
    );
    row.set("codes", coverage.hex());
    row.set("ties", coverage.ties);
    row.set("subnormals", coverage.subnormals);
    row.set("saturations", coverage.saturations);
}

/// How many of all parts' elements are not the ideal rounded to the output, of all.
fn differing(judgements: &[Judgement]) -> f64 {
    let differ = |j: &Judgement| {
        let pairs = j.bound.rounded_ideal().into_iter().zip(&j.actual);
        pairs.filter(|(d, a)| d != *a && !(d.is_nan() && a.is_nan())).count()
    };
    let all: usize = judgements.iter().map(|j| j.actual.len()).sum();
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
