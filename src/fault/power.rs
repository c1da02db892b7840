//! The power of verdicts, measured: every fault that applies injected into every case, and what catches it.

use super::inject::{Set, inject};
use super::{Class, Evidence, Fault, History, diagnose, faults};
use crate::Result;
use crate::assay::{Built, evidence};
use crate::compare::Verdict;
use crate::compare::gates::GATES;
use crate::job::{Data, Job, OutSpec, Output};
use crate::kernel::{self, Backend, cpu::KERNELS};
use std::time::Duration;

/// What the right kernel made of a case: the evidence that is kept while faults are injected.
pub struct Ground {
    pub built: Built,
    /// What the right kernel writes.
    pub right: Output,
    /// What the device model says it must write.
    pub model: Option<Output>,
    /// The verdict of the right kernel, judged by the model's bits and by the bound alone.
    pub verdict: Verdict,
}

impl Ground {
    /// Runs what was built with the right kernel. Errors: unsupported when no kernel takes it; the kernel's.
    pub fn of(built: Built) -> Result<Self> {
        let kernel = kernel::find(KERNELS, &built.job, Backend::Cpu)?;
        let (right, model) = (kernel.run(&built.job)?, kernel.predict(&built.job)?);
        let verdict = worst(&evidence::judge(&built, Backend::Cpu, &right, model.as_ref())?);
        Ok(Self { built, right, model, verdict })
    }

    /// Which gates fail the right kernel, in the order of [`GATES`].
    pub fn alarms(&self) -> Result<Vec<bool>> {
        Ok(failed(&evidence::judge(&self.built, Backend::Cpu, &self.right, None)?))
    }
}

/// Which gates fail these results, in the order of [`GATES`].
fn failed(judged: &[evidence::Judgement]) -> Vec<bool> {
    let passes = |gate: &crate::compare::gates::Gate| judged.iter().all(|j| (gate.passes)(j.bound.ideal(), &j.actual));
    GATES.iter().map(|g| !passes(g)).collect()
}

fn worst(judgements: &[evidence::Judgement]) -> Verdict {
    judgements.iter().map(|j| j.comparison.verdict).max().unwrap_or(Verdict::Error)
}

/// What came of one fault in one case.
pub struct Kill {
    pub fault: &'static Fault,
    /// Failed when judged by the model's bits; by the bound and the side checks alone.
    pub by_model: bool,
    pub by_bound: bool,
    /// Which gates failed it, in the order of [`GATES`].
    pub gates: Vec<bool>,
    /// Class and variant that the diagnosis named, and its line; absent where none was asked for or nothing seemed wrong.
    pub named: Option<Named>,
}

/// What a diagnosis said of an injected fault.
pub struct Named {
    pub class: Option<Class>,
    pub fault: String,
    /// Whether the injected fault is named, or among those that would have written the same.
    pub class_right: bool,
    pub variant_right: bool,
    /// Whether it is named alone: nothing else in the catalogue would have written the same.
    pub alone: bool,
    pub line: String,
    pub seconds: f64,
}

/// The setting a fault is injected with in a case: one of those it can have, by `number`.
pub fn setting(fault: &Fault, job: &Job, number: usize) -> Option<super::Setting> {
    let all = (fault.settings)(job);
    (!all.is_empty()).then(|| all[number % all.len()])
}

/// Scales of three earlier steps, of which the fault used one; those of the other operand never were what it used.
fn history(job: &Job, (fault, _): Set) -> Option<History> {
    (fault.class == Class::StaleState).then_some(())?;
    let past = |now: f32, mine: bool| -> Vec<f32> {
        let other = if mine { 1.0 } else { 0.9173 };
        super::scale::gains(job).iter().map(|g| (f64::from(now) * g.by * other) as f32).collect()
    };
    let of = |side| match super::edit::quantized(job, side).map(crate::QTensor::scale_inv) {
        Some([one]) => past(*one, fault.on.sides() == [side]),
        _ => Vec::new(),
    };
    let out = match &job.out {
        OutSpec::Scaled { scale, .. } => {
            scale.first().copied().flatten().map_or(Vec::new(), |s| past(s, fault.variant.starts_with("out")))
        }
        _ => Vec::new(),
    };
    Some(History { a: of(super::edit::Which::A), b: of(super::edit::Which::B), out })
}

/// Whether every bit of two outputs is the same, NaNs as a class.
pub fn same(a: &Output, b: &Output) -> bool {
    let floats = |a: &[f32], b: &[f32]| {
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()))
    };
    let codes = |a: &crate::QTensor, b: &crate::QTensor| a.codes() == b.codes() && floats(a.scale_inv(), b.scale_inv());
    let option = |a: &Option<Vec<f32>>, b: &Option<Vec<f32>>| match (a, b) {
        (Some(a), Some(b)) => floats(a, b),
        (a, b) => a.is_none() == b.is_none(),
    };
    a.parts.len() == b.parts.len()
        && a.parts.iter().zip(&b.parts).all(|(a, b)| {
            (match (&a.d, &b.d) {
                (Data::High(a), Data::High(b)) => floats(a.data(), b.data()),
                (Data::Quantized(a), Data::Quantized(b)) => codes(a, b),
                _ => false,
            }) && floats(a.amax.as_slice(), b.amax.as_slice())
                && match (&a.transpose, &b.transpose) {
                    (Some(a), Some(b)) => codes(a, b),
                    (a, b) => a.is_none() == b.is_none(),
                }
        })
        && option(&a.mean, &b.mean)
        && option(&a.rsigma, &b.rsigma)
        && match (&a.dbias, &b.dbias) {
            (Some(a), Some(b)) => floats(a.data(), b.data()),
            (a, b) => a.is_none() == b.is_none(),
        }
}

/// Injects one fault into a case and asks everybody. `None`: it does not apply, or changes no bit.
pub fn kill(ground: &Ground, fault: &'static Fault, number: usize, limit: Option<Duration>) -> Result<Option<Kill>> {
    let job = &ground.built.job;
    let Some(s) = setting(fault, job, number) else { return Ok(None) };
    let Some(output) = inject(job, &[(fault, s)])? else { return Ok(None) };
    if same(&output, &ground.right) {
        return Ok(None);
    }
    let judged = evidence::judge(&ground.built, Backend::Cpu, &output, None)?;
    let by_bound = worst(&judged) == Verdict::Fail;
    let by_model = match &ground.model {
        Some(m) => worst(&evidence::judge(&ground.built, Backend::Cpu, &output, Some(m))?) == Verdict::Fail,
        None => by_bound,
    };
    let gates = failed(&judged);
    let named = limit.filter(|_| by_bound || by_model).map(|limit| {
        let history = history(job, (fault, s));
        let model = ground.model.as_ref().filter(|_| !by_bound);
        let evidence = Evidence { model, history: history.as_ref(), ..Evidence::new(job, &output, Backend::Cpu, &judged) };
        name(evidence, fault, limit)
    });
    Ok(Some(Kill { fault, by_model, by_bound, gates, named: named.transpose()? }))
}

fn name(evidence: Evidence, fault: &Fault, limit: Duration) -> Result<Named> {
    let started = std::time::Instant::now();
    let found = diagnose(evidence, limit)?;
    let seconds = started.elapsed().as_secs_f64();
    let Some(d) = found else {
        let line = "nothing to explain".to_string();
        return Ok(Named {
            class: None,
            fault: String::new(),
            class_right: false,
            variant_right: false,
            alone: false,
            line,
            seconds,
        });
    };
    let best = d.findings.first();
    let truth = fault.name();
    let named = |what: &dyn Fn(&str) -> bool| d.findings.iter().any(|f| what(&f.fault));
    let prefix = format!("{}:", fault.class.name());
    Ok(Named {
        class: best.filter(|b| !b.fault.contains(" + ")).map(|b| b.class),
        fault: best.map_or_else(|| "unknown".to_string(), |b| b.fault.clone()),
        class_right: named(&|n| n.starts_with(&prefix) && !n.contains(" + ")),
        variant_right: named(&|n| n == truth),
        alone: d.findings.len() == 1 && named(&|n| n == truth),
        line: d.line(),
        seconds,
    })
}

/// Every fault that applies to a case. `numbers` decides the settings.
pub fn kills(ground: &Ground, numbers: usize, limit: Option<Duration>) -> Result<Vec<Kill>> {
    let mut all = Vec::new();
    for (i, fault) in faults().enumerate() {
        all.extend(kill(ground, fault, numbers.wrapping_mul(31).wrapping_add(i * 7), limit)?);
    }
    Ok(all)
}
