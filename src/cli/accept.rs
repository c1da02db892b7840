//! `qassay accept`: the only act that changes a baseline.

use super::{print, status};
use crate::baseline;
use crate::compare::Verdict;
use anyhow::Result;
use std::path::PathBuf;

/// Record a run as the truth that `qassay check` compares with, in data/baselines/<backend-device>/.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  qassay accept reports/standard-1\n  qassay accept reports/mine-1 --new")]
pub struct Args {
    /// Folder of a complete run of whole sweeps.
    run: PathBuf,
    /// Folder of baselines; data/baselines unless given.
    #[arg(long, value_name = "DIR")]
    baselines: Option<PathBuf>,
    /// Begin the baseline of a sweep that has none.
    #[arg(long)]
    new: bool,
}

pub fn run(args: Args) -> Result<u8> {
    let folder = args.baselines.unwrap_or_else(baseline::folder);
    for path in baseline::accept(&args.run, &folder, args.new)? {
        print(&format!("accepted: {}\n", path.display()));
    }
    for side in baseline::of_run(&args.run)? {
        let failing = side.records.iter().filter(|r| r.verdict == Verdict::Fail).count();
        if failing > 0 {
            eprintln!("{}: {failing} cases that fail are recorded as they are", side.sweep);
        }
    }
    Ok(status::PASSED)
}
