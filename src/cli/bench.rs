//! `qassay bench`: how fast the pieces are on this machine.

use super::{print, status};
use anyhow::Result;

/// Measure the codecs beside a memory copy.
#[derive(clap::Args)]
pub struct Args {
    what: What,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Bulk encode and decode of every format, one core.
    Codec,
    /// Device models in bulk on all cores, beside their definition.
    Model,
}

pub fn run(args: Args) -> Result<u8> {
    match args.what {
        What::Codec => print(&crate::format::bench::table(&crate::format::bench::bench_codec()?)),
        What::Model => print(&crate::model::bench::table(&crate::model::bench::bench_model()?)),
    }
    Ok(status::PASSED)
}
