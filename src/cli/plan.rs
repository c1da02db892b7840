//! `qassay plan`: what a run would cost.

use super::{print, status};
use crate::run::plan::{self, Selection};
use crate::run::{provenance, shard};
use anyhow::{Result, bail};
use std::path::PathBuf;

/// Print what sweeps cost, and run nothing: cases, operations, memory and time on one core, of each shard.
#[derive(clap::Args)]
pub struct Args {
    /// Sweeps by name or path.
    #[arg(default_value = "standard")]
    sweep: Vec<String>,
    /// Only cases whose name has these whole words; `te_block*` also matches longer words. All must match.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Number of shards.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    shards: u32,
    /// Compare the estimates with the times of a run with --jobs 1.
    #[arg(long, value_name = "RUN")]
    measured: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    let selection = Selection { sweeps: args.sweep, filter: args.filter, ..Selection::default() };
    let sweeps = selection.load()?;
    if sweeps.iter().all(|s| s.cases.is_empty()) {
        bail!("{}", selection.why_empty()?);
    }
    let cases: Vec<_> = sweeps.iter().flat_map(|s| &s.cases).collect();
    let costs: Vec<f64> = cases.iter().map(|c| plan::seconds(c)).collect();
    let shards = shard::split(&costs, args.shards as usize);
    let mut text =
        format!("{:<10}{:>8}{:>9}{:>14}{:>12}{:>12}\n", "shard", "cases", "skipped", "operations", "memory", "seconds");
    for s in 1..=args.shards as usize {
        let of: Vec<usize> = (0..cases.len()).filter(|i| shards[*i] == s).collect();
        let skipped = of.iter().filter(|i| cases[**i].skip.is_some()).count();
        let operations: f64 = of.iter().map(|i| cases[*i].operations() as f64).sum();
        let memory = of.iter().map(|i| plan::bytes(cases[*i])).max().unwrap_or(0) as f64 / f64::from(1 << 20);
        let seconds: f64 = of.iter().map(|i| costs[*i]).sum();
        let name = format!("{s}/{}", args.shards);
        text += &format!("{name:<10}{:>8}{skipped:>9}{operations:>14.3e}{memory:>8.0} MiB{seconds:>12.1}\n", of.len());
    }
    text += "memory is that of the largest case; seconds are estimated for one core\n";
    if let Some(run) = args.measured {
        let times = provenance::read_times(&run)?;
        let pairs: Vec<(f64, f64)> =
            cases.iter().zip(&costs).filter_map(|(c, cost)| Some((*cost, *times.get(&c.id())?))).collect();
        if pairs.is_empty() {
            bail!("{}: none of the selected cases was timed there", run.display());
        }
        let close = pairs.iter().filter(|(e, m)| *e <= 2.0 * m && *m <= 2.0 * e).count();
        let (estimated, measured) = pairs.iter().fold((0.0, 0.0), |(a, b), (e, m)| (a + e, b + m));
        text += &format!(
            "{close} of {} cases within 2× of their measured time; {estimated:.1} s estimated, {measured:.1} s measured\n",
            pairs.len()
        );
    }
    print(&text);
    Ok(status::PASSED)
}
