//! One case to one row: `Case → Built → Output → Comparison → Row`.

use super::build::{self, Built};
use super::case::{Case, OperandRecipe, OutKind};
use super::coverage::Coverage;
use super::evidence::{self, Judgement};
use super::maps::ErrorMap;
use super::row::{ERRORS, Row};
use crate::compare::{Digest, ErrorStats, METRICS, Verdict};
use crate::fault::{self, Diagnosis};
use crate::input::Source;
use crate::kernel::{self, Answer, Backend, Data, Kernel, Output};
use crate::quant::{Granularity, Zero};
use crate::{Error, QTensor, Result, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A case that ran.
pub struct Assayed {
    pub built: Built,
    pub kernel: &'static str,
    /// See [`Kernel::algorithm`].
    pub algorithm: Option<String>,
    pub backend: Backend,
    pub output: Output,
    /// What the device model returns, where there is one.
    pub model: Option<Output>,
    /// One for each part of the output.
    pub judgements: Vec<Judgement>,
}

impl Assayed {
    /// What [`diagnose`](mod@crate::fault::diagnose) makes of a failure; `None` when nothing failed.
    pub fn diagnosis(&self) -> Result<Option<Diagnosis>> {
        if self.judgements.iter().all(|j| j.comparison.verdict != Verdict::Fail) {
            return Ok(None);
        }
        let evidence = fault::Evidence {
            model: self.model.as_ref(),
            ..fault::Evidence::new(&self.built.job, &self.output, self.backend, &self.judgements)
        };
        fault::diagnose(evidence, DIAGNOSIS)
    }
}

/// A diagnosis takes at most about this long.
pub const DIAGNOSIS: Duration = Duration::from_secs(20);

/// Builds the case, runs the kernel of `backend` that takes it, and judges what it returned.
pub fn run(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend) -> Result<Assayed> {
    let mut built = build::build(case)?;
    let kernel = kernel::find(kernels, &built.job, backend)?;
    let Answer { output, model, accumulator, algorithm, doubt } = kernel.answer(&built.job)?;
    built.job.accumulator = accumulator;
    let mut judgements = evidence::judge(&built, backend, &output, model.as_ref())?;
    if let Some(doubt) = doubt {
        judgements.iter_mut().for_each(|j| j.comparison.suspect(&doubt));
    }
    Ok(Assayed { built, kernel: kernel.spec().name, algorithm, backend, output, model, judgements })
}

/// [`assay`] on a device that has a name: the row of what ran there says it.
pub fn assay_on(device: &str, case: &Case, kernels: &[&'static dyn Kernel], backend: Backend, seed: u64) -> Row {
    let mut row = assay(case, kernels, backend, seed);
    if backend != Backend::Cpu && !row.get("kernel").is_empty() {
        row.set("device", device);
    }
    row
}

/// The row of a case. A combination that no kernel takes is `skipped`, an error or a panic is `error`: the sweep goes on.
pub fn assay(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend, seed: u64) -> Row {
    let mut row = coordinates(case, backend, seed);
    if let Some(words) = kernels.iter().find_map(|k| k.words()) {
        let command = row.get("command").replacen(&format!("--backend {}", backend.name()), &words, 1);
        row.set("command", command);
    }
    let ended = |row: &mut Row, verdict: Verdict, reason: String| {
        row.set("verdict", verdict);
        row.set("reason", reason);
    };
    if let Some(reason) = &case.skip {
        ended(&mut row, Verdict::Skipped, reason.to_string());
        return row;
    }
    match catch_unwind(AssertUnwindSafe(|| run(case, kernels, backend))) {
        Ok(Ok(assayed)) => {
            fill(&mut row, &assayed);
            explain(&mut row, &assayed);
        }
        Ok(Err(e @ Error::Unsupported { .. })) => ended(&mut row, Verdict::Skipped, e.to_string()),
        Ok(Err(e)) => ended(&mut row, Verdict::Error, e.to_string()),
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            ended(&mut row, Verdict::Error, format!("panicked: {}", text.unwrap_or_default()));
        }
    }
    row
}

/// The row of a case that was begun and gave no result: `error`, with the reason.
pub fn unfinished(case: &Case, backend: Backend, seed: u64, reason: String) -> Row {
    let mut row = coordinates(case, backend, seed);
    row.set("verdict", Verdict::Error);
    row.set("reason", reason);
    row
}

/// Where the error of a case lives; its part with the largest error over bound.
pub fn error_map(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend, why: String) -> Result<ErrorMap> {
    let assayed = run(case, kernels, backend)?;
    let part = worst(&assayed.judgements);
    let ratios = part.bound.ratios(&part.actual)?;
    Ok(ErrorMap::new(case.id(), why, part.actual.len() / part.cols.max(1), part.cols, &ratios))
}

/// The part whose verdict is the worst, then whose error is nearest to its bound.
pub(crate) fn worst(judgements: &[Judgement]) -> &Judgement {
    let rank = |j: &Judgement| match j.comparison.verdict {
        Verdict::Fail => 3,
        Verdict::Suspect => 2,
        Verdict::Pass => 1,
        _ => 0,
    };
    let key = |j: &Judgement| (rank(j), j.comparison.bound_ratio_certain);
    let better = |a: &&Judgement, b: &&Judgement| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal);
    judgements.iter().max_by(better).expect("every output has a part")
}

fn coordinates(case: &Case, backend: Backend, seed: u64) -> Row {
    let mut row = Row::default();
    let id = case.id();
    row.set("sweep", &case.sweep);
    row.set("family", &case.family);
    row.set("op", case.op.name());
    row.set("act", case.act.map_or("", |a| a.name()));
    row.set("backend", backend.name());
    let recipe = |r: &OperandRecipe| if *r == OperandRecipe::None { String::new() } else { r.to_string() };
    row.set("recipe_a", if let OutKind::Recipe(r) = &*case.out { r.to_string() } else { recipe(&case.a) });
    row.set("recipe_b", recipe(&case.b));
    row.set_number("offset", case.offset);
    row.set("accumulator", case.accumulator.map_or(String::new(), |a| a.to_string()));
    row.set("m", case.total_rows());
    row.set("n", case.n);
    row.set("k", case.k);
    row.set("rows", case.rows.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    row.set("dtype", case.dtype);
    row.set("out", case.out.to_string());
    row.set("dist_a", &case.dist_a);
    row.set("dist_b", &case.dist_b);
    row.set("real", matches!(*case.dist_a, Source::Real(_)));
    row.set("bias", case.bias);
    row.set("seed", case.seed);
    row.set("edge", case.edge);
    let seed = if seed == 0 { String::new() } else { format!(" --seed {seed}") };
    let who = if backend == Backend::Cpu { String::new() } else { format!(" --backend {}", backend.name()) };
    row.set("command", format!("qassay run {}{who}{seed} --case {}", shell_word(&case.sweep), shell_quoted(&id)));
    row.set("case", id);
    row
}

/// `s` in single quotes for a POSIX shell.
fn shell_quoted(s: &str) -> String {
    format!("'{}'", s.replace('\'', r"'\''"))
}

/// Quoted only where a shell would read it otherwise.
pub(crate) fn shell_word(s: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+,:@%".contains(c);
    if !s.is_empty() && s.chars().all(plain) { s.to_string() } else { shell_quoted(s) }
}

/// Appends the diagnosis of a failure to its reason.
fn explain(row: &mut Row, assayed: &Assayed) {
    // A diagnosis that fails, or panics, costs the row nothing.
    let found = catch_unwind(AssertUnwindSafe(|| assayed.diagnosis())).ok().and_then(|d| d.ok()).flatten();
    if let Some(d) = found {
        let reason = format!("{}; diagnosis: {}", row.get("reason"), d.line());
        row.set("reason", reason);
    }
}

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
