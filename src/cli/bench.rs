//! `qassay bench`: how fast the pieces are on this machine.

use super::run::Who;
use super::{print, status};
use anyhow::Result;

/// Measure the codecs beside a memory copy.
#[derive(clap::Args)]
pub struct Args {
    what: What,
    /// Where the models run: cpu, or cuda for the model of wgmma on the GPU.
    #[arg(long, value_enum, default_value_t = Who::Cpu)]
    backend: Who,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Bulk encode and decode of every format, one core.
    Codec,
    /// Device models in bulk, beside their definition: on all cores, or on a GPU beside what its tensor cores return.
    Model,
}

pub fn run(args: Args) -> Result<u8> {
    match args.what {
        What::Codec => print(&crate::format::bench::table(&crate::format::bench::bench_codec()?)),
        #[cfg(feature = "cuda")]
        What::Model if matches!(args.backend, Who::Cuda) => {
            print(&crate::kernel::cuda::model_bench::table(&crate::kernel::cuda::model_bench::bench_model()?))
        }
        What::Model => print(&crate::model::bench::table(&crate::model::bench::bench_model()?)),
    }
    Ok(status::PASSED)
}
