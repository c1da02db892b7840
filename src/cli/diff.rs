//! `qassay diff`: what differs between two runs.

use super::{print, status};
use crate::baseline::{self, Recording, diff::Differences, diff::compare};
use crate::report::drift;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Compare two runs case by case. Exit status 0 when every case is identical, 1 otherwise.
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
    /// Write a Markdown table, for a pull request.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write one JSON object a case.
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Write an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    let (before, after) = (baseline::of_run(&args.before)?, baseline::of_run(&args.after)?);
    show(&sides(&before, &after), &args.outputs)
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

/// Prints the comparison, writes what `outputs` ask for, and gives the exit status.
pub fn show(comparison: &Differences, outputs: &Outputs) -> Result<u8> {
    let save = |path: &Option<PathBuf>, text: String| match path {
        Some(path) => write(path, &text),
        None => Ok(()),
    };
    save(&outputs.markdown, drift::markdown(comparison))?;
    save(&outputs.junit, drift::junit(comparison))?;
    save(&outputs.jsonl, drift::json_lines(comparison))?;
    save(&outputs.html, drift::page(comparison))?;
    if comparison.drifts.is_empty() {
        bail!("there is no case to compare");
    }
    print(&drift::terminal(comparison));
    Ok(if comparison.fails() { status::FAILED } else { status::PASSED })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .with_context(|| format!("{}: could not be written; name a file in a folder with room", path.display()))
}
