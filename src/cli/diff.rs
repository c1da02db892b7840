//! `qassay diff`: what differs between two runs.

use super::outputs::{ForCi, of_run, save};
use super::{print, status};
use crate::assay::row::Row;
use crate::baseline::{self, Recording, diff::Change, diff::Differences, diff::compare};
use crate::fault::card::Card;
use crate::report::drift::{self, After};
use crate::report::drift_page;
use crate::run::facts::Facts;
use crate::run::provenance;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Compare two runs case by case. Exit status 0 when every case has the same bits and verdict, 1 otherwise.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the run before.
    before: PathBuf,
    /// Folder of the run after.
    after: PathBuf,
    #[command(flatten)]
    outputs: Outputs,
}

/// Where a comparison goes beside the terminal.
#[derive(clap::Args, Default)]
pub struct Outputs {
    /// Also fail cases whose bits and verdict are the same but whose judgement has other numbers (`rejudged`).
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    ci: ForCi,
    /// Write one JSON object a case.
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Write an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    let (before, after) = (baseline::of_run(&args.before)?, baseline::of_run(&args.after)?);
    show(&sides(&before, &after), &args.outputs, &args.after)
}

/// Compares sweep by sweep; a sweep of one side only is new or missing as a whole.
pub fn sides(before: &[Recording], after: &[Recording]) -> Differences {
    let nothing = |of: &Recording| Recording { records: Vec::new(), ..of.clone() };
    let find = |sides: &[Recording], sweep: &str| sides.iter().find(|s| s.sweep == sweep).cloned();
    let mut all = Differences::default();
    for side in after {
        all.extend(compare(&find(before, &side.sweep).unwrap_or_else(|| nothing(side)), side));
    }
    for side in before.iter().filter(|b| find(after, &b.sweep).is_none()) {
        all.extend(compare(side, &nothing(side)));
    }
    all
}

/// Prints the comparison, writes what `outputs` ask for, and gives the exit status. `run` is the folder of the run after.
pub fn show(comparison: &Differences, outputs: &Outputs, run: &Path) -> Result<u8> {
    if comparison.drifts.is_empty() {
        bail!("there is no case to compare");
    }
    if let Some(path) = &outputs.jsonl {
        save(path, &drift::json_lines(comparison))?;
    }
    let (rows, seconds) = of_run(run)?;
    let known = |row: &Row| {
        let seconds = seconds.get(&row.case).copied().unwrap_or(0.0);
        (row.case.clone(), After { seconds, card: Card::of(row) })
    };
    let after: drift::Run = rows.iter().map(known).collect();
    if let Some(path) = &outputs.html {
        let mut facts = Facts::read(run)?;
        facts.0.extend([("date", provenance::now()), ("command", provenance::command())].map(|(k, v)| (k.to_string(), v)));
        save(path, &drift_page::page(comparison, &after, &facts))?;
    }
    print(&drift::terminal(comparison, &after, super::width()));
    let junit = || drift::junit(comparison, &after);
    outputs.ci.write(junit, || drift::markdown(comparison, &after), || drift::causes(comparison, &after), false)?;
    let rejudged = comparison.count(Change::Rejudged);
    let strict = outputs.strict && rejudged > 0;
    if strict {
        print(&format!("--strict: {rejudged} cases have the same bits but another judgement\n"));
    }
    Ok(if comparison.fails() || strict { status::FAILED } else { status::PASSED })
}
