//! `qassay report`: the page, figures and summary of a run, made again from its rows.

use super::{print, status};
use anyhow::Result;
use std::path::PathBuf;

/// Make index.html, summary.md and figures/ of a run again from its rows.csv.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the run.
    run: PathBuf,
}

pub fn run(args: Args) -> Result<u8> {
    let kept = crate::sweep::totals::Kept::read(&args.run.join("rows.csv"))?;
    let page = crate::report::write(&args.run, &kept)?;
    print(&format!("report: {}\n", page.display()));
    Ok(status::PASSED)
}
