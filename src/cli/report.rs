//! `qassay report`: the page, figures and summary of a run, made again from its rows.

use super::{print, status};
use anyhow::Result;
use std::path::PathBuf;

/// Write the pages of a run again from its rows.csv: index.html, summary.md, figures/; or the page of a bench from its bench.csv.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the run, or of a bench.
    run: PathBuf,
    /// Folder of a run by another backend: adds a figure that compares the bits; may be given several times.
    #[arg(long, value_name = "DIR")]
    with: Vec<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    #[cfg(feature = "cuda")]
    if args.with.is_empty() && args.run.join("bench.csv").exists() {
        let page = crate::report::bench::draw(&args.run, &crate::bench::read(&args.run)?)?;
        print(&format!("report: {}\n", page.display()));
        return Ok(status::PASSED);
    }
    let read = |run: &PathBuf| crate::run::totals::Kept::read(&run.join("rows.csv"));
    let kept = read(&args.run)?;
    let others = args.with.iter().map(|run| Ok(read(run)?.rows().to_vec())).collect::<crate::Result<Vec<_>>>()?.concat();
    let page = crate::report::write_beside(&args.run, &kept, &others)?;
    print(&format!("report: {}\n", page.display()));
    Ok(status::PASSED)
}
