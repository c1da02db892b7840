//! `qassay check`: run the sweeps of the baselines again and compare. Never writes to the baselines.

use super::diff::{self, Outputs};
use super::run::Who;
use crate::baseline;
use crate::baseline::diff::{Change, Differences, Drift};
use crate::fault::injected::{self, Alteration};
use crate::run::facts::Facts;
use crate::run::plan::Selection;
use crate::run::provenance;
use crate::run::sweeps::{self as runner, Options};
use crate::sweep::Sweep;
use crate::sweep::bar::counting;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Run sweeps again and compare with their accepted baselines. Exit status 0 when every case has the same bits and verdict, 1 otherwise.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  qassay check\n  qassay check standard --junit drift.xml --markdown drift.md\n\nA case that is \
new, missing, better or has other bits does not pass either. When it is right, `qassay accept` the run."
)]
pub struct Args {
    /// Sweeps by name or path; without any, every sweep that has a baseline.
    sweep: Vec<String>,
    /// Folder of baselines; data/baselines unless given.
    #[arg(long, value_name = "DIR")]
    baselines: Option<PathBuf>,
    /// Keep the run in this folder; otherwise it is removed.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Whose kernels run; a GPU's results are compared with the baseline of its own kind.
    #[arg(long, value_enum, default_value_t = Who::Cpu)]
    backend: Who,
    /// Worker threads; 0 means one a core.
    #[arg(long, short, default_value_t = 0)]
    jobs: usize,
    /// Try the gate: run with this fault in every kernel it can happen to (`qassay list faults`), or with `accumulator=NAME`. Every case
    /// that the fault changes should then drift.
    #[arg(long, value_name = "FAULT")]
    inject: Option<Alteration>,
    /// No progress bar.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    outputs: Outputs,
}

static NEVER: AtomicBool = AtomicBool::new(false);

pub fn run(args: Args) -> Result<u8> {
    let (backend, kernels, device) = args.backend.choose()?;
    let mut facts = Facts::default();
    facts.0.insert("backend".into(), backend.name().into());
    facts.0.insert("device".into(), device.clone());
    let folder = args.baselines.unwrap_or_else(baseline::folder).join(baseline::device_folder(&facts));
    let names = if args.sweep.is_empty() { accepted(&folder)? } else { args.sweep };
    let selection = Selection { sweeps: names, ..Selection::default() };
    // First: of a name that no sweep has there is no baseline either.
    let sweeps = selection.load()?;
    let before =
        selection.sweeps.iter().map(|n| baseline::read(&folder, &baseline::name(n))).collect::<crate::Result<Vec<_>>>()?;
    let planned: usize = sweeps.iter().map(|s| s.cases.len()).sum();
    let kept = args.out.is_some();
    let out = args.out.unwrap_or_else(|| std::env::temp_dir().join(format!("qassay-check-{}", std::process::id())));
    let bar = counting(planned, "cases", args.quiet);
    let mut facts = Facts::of(&selection, &sweeps, backend, &device)?;
    if let Some(altered) = &args.inject {
        facts.0.insert("injected".into(), altered.to_string());
    }
    let options = Options {
        out: out.clone(),
        resume: false,
        facts,
        jobs: args.jobs,
        backend,
        kernels: args.inject.map_or(kernels, |a| injected::altered(kernels, a)),
        seed: 0,
        stop: &NEVER,
        fail_fast: false,
        retry: 0,
        budget: None,
        workers: None,
    };
    let begun = Instant::now();
    let done = runner::run(&sweeps, &options, &|_| bar.step()).map_err(anyhow::Error::from);
    drop(bar);
    let shown = done.and_then(|outcome| {
        provenance::write_times(&out, &sweeps, &outcome)?;
        provenance::write(&out, &sweeps, &options, &outcome, begun.elapsed().as_secs_f64())?;
        let mut comparison = diff::sides(&before, &baseline::of_run(&out)?);
        name_orders(&mut comparison, &sweeps, &before);
        diff::show(&comparison, &args.outputs, &out)
    });
    if !kept {
        std::fs::remove_dir_all(&out).with_context(|| format!("{}: could not be removed", out.display()))?;
    }
    shown
}

/// Drifts whose order of summation is looked for: each takes some twenty runs of its case.
const NAMED: usize = 8;

/// Says which accumulator would have made the new bits, where one does.
fn name_orders(comparison: &mut Differences, sweeps: &[Sweep], before: &[baseline::Recording]) {
    let changed =
        |d: &&mut Drift| matches!(d.change, Change::OtherBits | Change::Better | Change::Worse) && !d.digest.is_empty();
    for drift in comparison.drifts.iter_mut().filter(changed).take(NAMED) {
        let case =
            sweeps.iter().flat_map(|s| &s.cases).find(|c| baseline::name(&c.sweep) == drift.sweep && c.id() == drift.case);
        let records = before.iter().filter(|s| s.sweep == drift.sweep).flat_map(|s| &s.records);
        let old = records.into_iter().find(|r| r.case == drift.case).map_or("", |r| &r.sha256);
        if let Some(words) = case.and_then(|c| baseline::order::explain(c, old, &drift.digest)) {
            drift.words += &format!("; {words}");
        }
    }
}

/// How a baseline begins.
pub(super) const BEGIN: &str = "`qassay run` a sweep, read the report, then `qassay accept --new` the run";

/// The sweeps that have a baseline in `folder`.
fn accepted(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}: no baseline here; {BEGIN}", folder.display()))?;
    let paths = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>()?;
    let stems = paths.iter().filter(|p| p.extension().is_some_and(|e| e == "csv")).filter_map(|p| p.file_stem());
    let mut names: Vec<String> = stems.map(|s| s.to_string_lossy().into_owned()).collect();
    names.sort();
    if names.is_empty() {
        bail!("{}: no baseline here; {BEGIN}", folder.display());
    }
    Ok(names)
}
