//! One case to one row: `Case → Built → Output → Comparison → Row`.

use super::build::{Helpers, Prepared};
use super::case::{Case, OperandRecipe, OutKind};
use crate::assay::command::{shell_quoted, shell_word};
use crate::assay::fill::{digest, fill, fill_measured, narrowest};
use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::assay::{Assayed, evidence, product, worst};
use crate::compare::{Comparison, Measured, Scales, Verdict};
use crate::fault::card::Card;
use crate::input::Source;
use crate::job::{Data, Operand, OutSpec, Output, Part};
use crate::kernel::{self, Backend, Held, Kernel, KernelAnswer, LargeCast, LargeProduct};
use crate::op::Op;
use crate::stage::{self, timed};
use crate::{Error, QTensor, Result, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Builds the case, runs the kernel of `backend` that takes it, and judges what it returned.
pub fn run(case: &Case, kernels: &[&'static dyn Kernel], backend: Backend) -> Result<Assayed> {
    let helpers = helpers(backend);
    run_prepared(case, Prepared::of(case, helpers)?, helpers, kernels, backend)
}

fn helpers(backend: Backend) -> Helpers {
    Helpers { product: backend.accelerator(), draw: backend.drawer(), keeps: true }
}

/// A case with its operands, and whose kernels may take it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    case: &'a Case,
    prepared: &'a Prepared,
    kernels: &'a [&'static dyn Kernel],
    backend: Backend,
}

/// What was judged where it lies: by whom it was made, and what of it.
struct There {
    kernel: &'static str,
    measured: Measured,
    comparison: Comparison,
    /// Rows and columns of a tile of the map.
    tile: (usize, usize),
}

/// The map of a case whose elements stay on the device, and its row filled, where nothing is wrong with it; `None`: all is judged on the CPU.
fn judged_there(row: &mut Row, asked: Asked) -> Result<Option<ErrorMap>> {
    let case = asked.case;
    let there = match case.op {
        Op::Gemm => product_there(row, asked)?,
        Op::Cast => cast_there(row, asked)?,
        _ => None,
    };
    Ok(there.map(|there| {
        fill_measured(row, there.kernel, &there.comparison, &there.measured);
        ErrorMap::of_largest(case.id(), there.tile, there.measured.ratios)
    }))
}

fn product_there(row: &mut Row, Asked { case, prepared, kernels, backend }: Asked) -> Result<Option<There>> {
    let Some(judge) = backend.product_judge().filter(|_| case.total_rows() * case.n * case.k >= LARGE_PRODUCT) else {
        return Ok(None);
    };
    let Some(job) = prepared.job(case) else { return Ok(None) };
    let Prepared { x, quantized, .. } = prepared;
    let ([a, b], [source_a], [source_b]) = (quantized.as_slice(), x.a.as_slice(), x.b.as_slice()) else { return Ok(None) };
    let plain = |o: Option<&Operand>| matches!(o, Some(Operand::Quantized(_)));
    if !plain(job.operands.tensors().first()) || !plain(job.operands.b()) || product::groups(&job) != 1 {
        return Ok(None);
    }
    let Some(kernel) = kernel::find(kernels, &job, backend).ok().filter(|k| k.is_modelled()) else { return Ok(None) };
    let output = timed("kernel", || kernel.run(&job))?;
    let (Data::High(actual), [_]) = (&output.parts[0].d, output.parts.as_slice()) else { return Ok(None) };
    let tile = ErrorMap::tile(actual.rows(), actual.cols());
    let measured = beside(row, &output, quantized, None, || {
        product::of_device_model(&job, (&a.0, &b.0), |arithmetic, sums| {
            let (sources, quantized) = ([source_a, source_b], [&a.0, &b.0]);
            judge(&LargeProduct { job: &job, sources, quantized, arithmetic, sums, actual, map: tile })
        })
        .map(Option::flatten)
    });
    let Some(mut measured) = or_here(case, measured) else { return Ok(None) };
    let scales = product::scales(&job);
    let scales: Vec<Scales> = scales.iter().map(|(name, values, spans)| Scales { name, values, spans: *spans }).collect();
    let comparison = measured.comparison(Some(product::inner(&job)), product::groups(&job), &scales);
    Ok(Some(There { kernel: kernel.spec().name, measured, comparison, tile }))
}

fn cast_there(row: &mut Row, Asked { case, prepared, kernels, backend }: Asked) -> Result<Option<There>> {
    let Some(judge) = backend.cast_judge().filter(|_| case.total_rows() * case.n >= LARGE_CAST) else { return Ok(None) };
    let (Some(job), [source]) = (prepared.job(case), prepared.x.a.as_slice()) else { return Ok(None) };
    if !matches!(&job.out, OutSpec::Recipe(recipe) if recipe.format.is_float()) {
        return Ok(None);
    }
    let Ok(kernel) = kernel::find(kernels, &job, backend) else { return Ok(None) };
    let output = timed("kernel", || kernel.run(&job))?;
    let Held { model, drawn: None } = timed("model", || kernel.hold(&job, &output))? else { return Ok(None) };
    let same = || evidence::is_defined(&job, &output, model.as_ref(), backend);
    let ([Part { d: Data::Quantized(codes), .. }], true) = (output.parts.as_slice(), timed("mismatches", same)?) else {
        return Ok(None);
    };
    let tile = ErrorMap::tile(codes.rows(), codes.cols());
    let measured = beside(row, &output, &[], Some(source), || judge(&LargeCast { source, codes, map: tile }));
    let Some(mut measured) = or_here(case, measured) else { return Ok(None) };
    let comparison = measured.comparison(None, 1, &[]);
    Ok(Some(There { kernel: kernel.spec().name, measured, comparison, tile }))
}

/// What `judge` says, while another thread hashes and counts the codes.
fn beside<T>(
    row: &mut Row,
    output: &Output,
    quantized: &[(QTensor, Tensor)],
    source: Option<&Tensor>,
    judge: impl FnOnce() -> T,
) -> T {
    std::thread::scope(|scope| {
        let columns = &mut *row;
        let counting = scope.spawn(move || {
            // The digest needs one core: others read the codes for the bound meanwhile.
            columns.sha256 = digest(output);
            narrowest(columns, output, quantized, source);
        });
        let judged = judge();
        timed("counts", || counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        judged
    })
}

/// What was measured; `None`, with the reason in the log where it is one, where the CPU is to judge.
fn or_here(case: &Case, measured: Result<Option<Measured>>) -> Option<Measured> {
    measured.unwrap_or_else(|e| {
        tracing::warn!("{}: judged on the CPU: {e}", case.id());
        None
    })
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

/// A row, with the map of its error where running the case again for one would be too much.
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
/// Multiply-adds of a product, and elements of a cast, from which the device that ran it judges it.
const LARGE_PRODUCT: usize = 1 << 28;
const LARGE_CAST: usize = 1 << 17;
const AN_ELEMENT: usize = 64;

/// [`assay`] on a device that has a name: the row of what ran there says it.
pub fn assay_on(device: &str, case: &Case, kernels: &[&'static dyn Kernel], backend: Backend, seed: u64) -> Ran {
    let mut ran = ran(case, kernels, backend, seed);
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
        let prepared = Prepared::of(case, helpers)?;
        match judged_there(row, Asked { case, prepared: &prepared, kernels, backend })? {
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
        command: format!("qassay run {}{who}{drawn} --case {}", shell_word(&case.sweep), shell_quoted(&id)),
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
