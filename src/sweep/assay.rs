//! One case to one row: `Case → Built → Output → Comparison → Row`.

use super::build;
use super::case::{Case, OperandRecipe, OutKind};
use crate::assay::command::{shell_quoted, shell_word};
use crate::assay::fill::fill;
use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::assay::{Assayed, evidence, worst};
use crate::compare::Verdict;
use crate::input::Source;
use crate::kernel::{self, Answer, Backend, Kernel};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Builds the case, runs the kernel of `backend` that takes it, and judges what it returned.
pub fn run(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend) -> Result<Assayed> {
    let mut built = build::build(case)?;
    let kernel = kernel::find(kernels, &built.job, backend)?;
    let Answer { output, model, drawn, accumulator, algorithm, doubt } = kernel.answer(&built.job)?;
    built.job.accumulator = accumulator;
    let mut judgements = evidence::judge_drawn(&built, backend, &output, model.as_ref(), drawn.as_ref())?;
    if let Some(doubt) = doubt {
        judgements.iter_mut().for_each(|j| j.comparison.suspect(&doubt));
    }
    Ok(Assayed { built, kernel: kernel.spec().name, algorithm, backend, output, model, drawn, judgements })
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

/// Puts the diagnosis of a failure before its reason.
fn explain(row: &mut Row, assayed: &Assayed) {
    // A diagnosis that fails, or panics, costs the row nothing.
    let found = catch_unwind(AssertUnwindSafe(|| assayed.diagnosis())).ok().and_then(|d| d.ok()).flatten();
    if let Some(d) = found {
        let reason = format!("{}; {}", d.line(), row.get("reason"));
        row.set("reason", reason);
    }
}
