//! One case to one row: `Case → Built → Output → Comparison → Row`.

use super::build::{Helpers, Prepared};
use super::case::{Case, OperandRecipe, OutKind};
use super::there::{Asked, ahead, judged};
use crate::assay::command::shell_word;
use crate::assay::fill::fill;
use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::assay::{Assayed, evidence, worst};
use crate::compare::Verdict;
use crate::fault::card::Card;
use crate::input::Source;
use crate::kernel::{self, Backend, Kernel, KernelAnswer};
use crate::stage::{self, timed, traced};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Builds the case, runs the kernel of `backend` that takes it, and judges what it returned.
pub fn run(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend) -> Result<Assayed> {
    let helpers = helpers(backend);
    run_prepared(case, Prepared::of(case, helpers)?, helpers, kernels, backend)
}

fn helpers(backend: Backend) -> Helpers {
    Helpers { product: backend.accelerator(), refer: backend.referrer(), draw: backend.drawer(), keeps: true }
}

fn run_prepared(
    case: &Case,
    prepared: Prepared,
    helpers: Helpers,
    kernels: &[&'static dyn Kernel],
    backend: Backend,
) -> Result<Assayed> {
    let mut built = prepared.define(case, helpers)?;
    let kernel = kernel::find(kernels, &built.job, backend)?;
    let KernelAnswer { output, model, drawn, accumulator, algorithm, size } = kernel.answer(&built.job)?;
    built.job.accumulator = accumulator;
    let mut judgements = evidence::judge_drawn(&built, backend, &output, model.as_ref(), drawn.as_ref())?;
    if let Some(size) = size {
        judgements.iter_mut().for_each(|j| j.comparison.told_by(&size));
    }
    Ok(Assayed { built, kernel: kernel.spec().name, algorithm, backend, output, model, drawn, judgements })
}

/// A row, with the map of its error where running the case again to draw one would cost too much.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    pub row: Row,
    pub map: Option<ErrorMap>,
    /// Seconds that each stage took.
    pub stages: Vec<(String, f64)>,
}

impl From<Row> for Ran {
    fn from(row: Row) -> Self {
        Ran { row, map: None, stages: Vec::new() }
    }
}

/// Multiply-adds of a case from which its map is made while it is at hand; an element of another op counts as [`AN_ELEMENT`] of them.
const LARGE: usize = 1 << 28;
const AN_ELEMENT: usize = 64;

/// [`assay`] on a device that has a name: the row of what ran there says it.
pub fn assay_on(device: &str, case: &Case, kernels: &[&'static dyn Kernel], backend: Backend, seed: u64) -> Ran {
    let of_case = || ran(case, kernels, backend, seed);
    let mut ran = if stage::tracing() { traced(&case.id(), of_case) } else { of_case() };
    if backend != Backend::Cpu && !ran.row.kernel.is_empty() {
        ran.row.device = device.into();
    }
    ran
}

/// The row of a case. A combination that no kernel takes is `skipped`, an error or a panic is `error`: the sweep goes on.
pub fn assay(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend, seed: u64) -> Row {
    ran(case, kernels, backend, seed).row
}

fn ran(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend, seed: u64) -> Ran {
    let mut map = None;
    stage::take();
    let mut row = coordinates(case, backend, seed);
    if let Some(words) = kernels.iter().find_map(|k| k.words()) {
        row.command = row.command.replacen(&format!("--backend {}", backend.name()), &words, 1);
    }
    let ended = |row: &mut Row, verdict: Verdict, reason: String| {
        (row.verdict, row.reason) = (verdict, reason);
    };
    if let Some(reason) = &case.skip {
        ended(&mut row, Verdict::Skipped, reason.to_string());
        return row.into();
    }
    let there = |row: &mut Row| -> Result<std::result::Result<ErrorMap, Box<Assayed>>> {
        let helpers = helpers(backend);
        backend.begin(&ahead(case));
        let prepared = Prepared::of(case, helpers)?;
        match judged(row, Asked { case, prepared: &prepared, kernels, backend })? {
            Some(map) => {
                // Gigabytes go back to the system while the next case begins.
                std::thread::spawn(move || drop(prepared));
                Ok(Ok(map))
            }
            None => run_prepared(case, prepared, helpers, kernels, backend).map(|a| Err(Box::new(a))),
        }
    };
    match catch_unwind(AssertUnwindSafe(|| there(&mut row))) {
        Ok(Ok(Ok(made))) => map = Some(made),
        Ok(Ok(Err(assayed))) => {
            fill(&mut row, &assayed);
            timed("diagnosis", || explain(&mut row, &assayed));
            if case.total_rows() * case.n * if case.k > 0 { case.k } else { AN_ELEMENT } >= LARGE {
                map = timed("map", || map_of(case, &assayed)).ok();
            }
            timed("freed", || drop(assayed));
        }
        Ok(Err(e @ Error::Unsupported { .. })) => ended(&mut row, Verdict::Skipped, e.to_string()),
        Ok(Err(e)) => ended(&mut row, Verdict::Error, e.to_string()),
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            ended(&mut row, Verdict::Error, format!("panicked: {}", text.unwrap_or_default()));
        }
    }
    let stages = stage::take().into_iter().map(|(name, seconds)| (name.to_string(), seconds)).collect();
    Ran { row, map, stages }
}

/// The row of a case that was begun and gave no result: `error`, with the reason.
pub fn unfinished(case: &Case, backend: Backend, seed: u64, reason: String) -> Row {
    Row { verdict: Verdict::Error, reason, ..coordinates(case, backend, seed) }
}

/// Where the error of a case lives, which runs for it; its part with the largest error over bound.
pub fn error_map(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend) -> Result<ErrorMap> {
    map_of(case, &run(case, kernels, backend)?)
}

fn map_of(case: &Case, assayed: &Assayed) -> Result<ErrorMap> {
    let part = worst(&assayed.judgements);
    ErrorMap::of(case.id(), &part.bound, &part.actual, part.cols)
}

fn coordinates(case: &Case, backend: Backend, seed: u64) -> Row {
    let id = case.id();
    let recipe = |r: &OperandRecipe| if *r == OperandRecipe::None { String::new() } else { r.to_string() };
    let drawn = if seed == 0 { String::new() } else { format!(" --seed {seed}") };
    let who = if backend == Backend::Cpu { String::new() } else { format!(" --backend {}", backend.name()) };
    Row {
        command: format!("qassay run {}{who}{drawn} --case {}", shell_word(&case.sweep), shell_word(&id)),
        sweep: case.sweep.to_string(),
        family: case.family.to_string(),
        case: id,
        act: case.act,
        recipe_a: if let OutKind::Recipe(r) = &*case.out { r.to_string() } else { recipe(&case.a) },
        recipe_b: recipe(&case.b),
        offset: Some(case.offset),
        accumulator: case.accumulator,
        m: case.total_rows(),
        n: case.n,
        k: case.k,
        rows: case.rows.to_vec(),
        dtype: Some(case.dtype),
        out: case.out.to_string(),
        dist_a: case.dist_a.to_string(),
        dist_b: case.dist_b.to_string(),
        real: Some(matches!(*case.dist_a, Source::Real(_))),
        bias: case.bias,
        seed: Some(case.seed),
        edge: Some(case.edge),
        ..Row::new(case.op, backend)
    }
}

/// Puts the diagnosis of a failure beside its reason.
fn explain(row: &mut Row, assayed: &Assayed) {
    // A diagnosis that fails, or panics, costs the row nothing.
    let found = catch_unwind(AssertUnwindSafe(|| assayed.diagnosis())).ok().and_then(|d| d.ok()).flatten();
    if let Some(d) = found {
        Card::new(row.verdict, "", "", Some(&d)).into_row(row);
    }
}
