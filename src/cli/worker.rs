//! `qassay worker`: computes the cases that `qassay run` asks it for, one a line. Not for people.

use super::run::{Judge, Who};
use super::status;
use crate::run::plan::Selection;
use crate::run::worker::{self, Service};
use crate::stage::traced;
use anyhow::Result;

/// Answer requests of a run: a line `["sweep","case"]` on standard input, the row as a JSON array on standard output.
#[derive(clap::Args)]
pub struct Args {
    sweep: Vec<String>,
    #[arg(long, value_enum, default_value_t = Who::Cpu)]
    backend: Who,
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    kernel: super::external::UserKernelArgs,
    #[arg(long)]
    seed: u64,
    /// Bytes of address space.
    #[arg(long)]
    memory: Option<u64>,
    /// Cases at a time.
    #[arg(long, default_value_t = 1)]
    together: usize,
    #[arg(long)]
    definitions: bool,
    #[arg(long, value_enum, default_value_t = Judge::Gpu)]
    judge: Judge,
}

pub fn run(args: Args) -> Result<u8> {
    worker::confine(args.memory)?;
    args.judge.begin();
    if args.definitions {
        crate::kernel::cpu::drawn::by_definition_alone();
    }
    #[cfg(feature = "cuda")]
    let (backend, kernels, device) = match args.kernel.choose()? {
        Some(chosen) => (crate::kernel::Backend::External, chosen.0, chosen.1),
        None => traced("backend", || args.backend.choose())?,
    };
    #[cfg(feature = "cuda")]
    if backend != crate::kernel::Backend::Cpu {
        if args.together > 1 {
            crate::kernel::cuda::buffers::leave_bands();
            // What is kept lies on the GPU too.
            let memory = crate::kernel::cuda::device::info(crate::kernel::cuda::launch::chosen()).map_or(0, |gpu| gpu.memory);
            let free = crate::run::sweeps::free_memory().unwrap_or(0);
            crate::sweep::build::keep((free / 16).min(memory as u64 / 8) as usize);
        }
        // It opens while the run is still asking what it is.
        std::thread::spawn(|| drop(crate::kernel::cuda::launch::gpu()));
    }
    #[cfg(not(feature = "cuda"))]
    let (backend, kernels, device) = args.backend.choose()?;
    let sweeps = Selection { sweeps: args.sweep, seed: args.seed, ..Selection::default() };
    let sweeps = traced("sweeps", || sweeps.load())?;
    let service = Service { kernels, backend, device: &device, seed: args.seed, together: args.together };
    service.serve(&sweeps, std::io::BufReader::new(std::io::stdin()), std::io::stdout())?;
    Ok(status::PASSED)
}
