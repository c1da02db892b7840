//! `qassay record`: keep what a GPU returned, so that a machine without one can replay it.

use super::run::Who;
use super::{print, status};
use crate::run::record;
use anyhow::Result;
use std::path::PathBuf;

/// Keep what a GPU returned, for `make test` to replay on the CPU: digests of all cases, outputs of some small ones.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  qassay run cuda --backend cuda --out reports/h200 && qassay record reports/h200\n\nSmall cases \
are run again for their outputs, so it takes the same GPU. What failed or ended in an error is not recorded: exit status 1."
)]
pub struct Args {
    /// Folder of a complete run.
    run: PathBuf,
    /// The backend of the run.
    #[arg(long, value_enum, default_value = "cuda")]
    backend: Who,
    /// Folder to write; data/golden/h200 unless given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    let (backend, kernels, _) = args.backend.choose()?;
    let out = args.out.unwrap_or_else(|| crate::data::folder().join("golden/h200"));
    let recorded = record::record(&args.run, &out, kernels, backend)?;
    print(&format!("recorded: {} digests, {} outputs in {}\n", recorded.digests, recorded.outputs, out.display()));
    for case in &recorded.refused {
        eprintln!("not recorded: {case}");
    }
    Ok(if recorded.refused.is_empty() { status::PASSED } else { status::FAILED })
}
