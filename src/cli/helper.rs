//! `qassay helper`: the one-file Python helper, for where `pip install qassay` is not wanted.

use super::{print, status};
use anyhow::Result;

/// Print the one-file Python helper: bundles from numpy and torch, and cases of a sweep for a Python kernel.
///
/// It is `qassay_bundle.py` of the notebooks and a part of `pip install qassay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  qassay helper > qassay_bundle.py\n  qassay helper --format")]
pub struct Args {
    /// Print the format of bundles instead: names, dtypes, metadata.
    #[arg(long)]
    format: bool,
}

pub fn run(args: Args) -> Result<u8> {
    let [format, helper] = &crate::data::HELPER;
    let text = if args.format { format } else { helper };
    print(std::str::from_utf8(text.whole())?);
    Ok(status::PASSED)
}
