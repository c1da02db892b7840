//! `qassay helper`: the one-file Python helper, for where `pip install qassay` is not wanted.

use super::{print, status};
use anyhow::Result;

/// Print the one-file Python helper: bundles from numpy and torch, and cases of a sweep for a Python kernel.
///
/// It is `qassay_bundle.py` of the notebooks and a part of `pip install qassay`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  qassay helper > qassay_bundle.py")]
pub struct Args {}

pub fn run(_: Args) -> Result<u8> {
    print(include_str!("../../python/qassay/_bundle.py"));
    Ok(status::PASSED)
}
