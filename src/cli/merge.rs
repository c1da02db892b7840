//! `qassay merge`: the shards of a run, joined.

use super::{print, status};
use crate::run::{maps, shard};
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Join the runs of all shards into one folder, as one run would have written it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  qassay run standard --shard 1/2 --out a      # here\n  qassay run standard --shard 2/2 \
--out b      # there\n  qassay merge a b --out whole")]
pub struct Args {
    /// The folders of all shards, in any order.
    #[arg(required = true)]
    run: Vec<PathBuf>,
    /// Folder to write; refused when it holds a run.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn run(args: Args) -> Result<u8> {
    let merged = shard::merge(&args.run, &args.out)?;
    let mut provenance = String::new();
    for run in &args.run {
        let path = run.join("provenance.txt");
        let own = std::fs::read_to_string(&path).with_context(|| format!("{}: is the shard complete?", path.display()))?;
        provenance += &format!("shard {}\n{own}\n", run.display());
    }
    let path = args.out.join("provenance.txt");
    std::fs::write(&path, provenance).with_context(|| format!("{}: could not be written", path.display()))?;
    let backend = crate::kernel::Backend::Cpu;
    maps::write(&args.out, &maps::worst(&merged.sweeps, merged.kept.rows(), &[], crate::kernel::cpu::KERNELS, backend))?;
    let page = crate::report::write(&args.out, &merged.kept)?;
    print(&format!("{} rows of {} shards\nreport: {}\n", merged.kept.totals.rows, args.run.len(), page.display()));
    Ok(match merged.kept.totals.exit_status() {
        1 => status::FAILED,
        3 => status::NO_POWER,
        _ => status::PASSED,
    })
}
