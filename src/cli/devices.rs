//! `qassay devices`: the GPUs of this machine.

use super::{print, status};
use crate::kernel::cuda::{device, nvrtc};
use anyhow::Result;

/// List GPUs, driver, NVRTC and compute capability; exit status 2 says what is missing.
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args) -> Result<u8> {
    print(&format!(
        "NVRTC: {}\n",
        nvrtc::version().unwrap_or_else(|e| e.to_string().trim_start_matches("NVRTC cannot do this: ").to_string())
    ));
    for d in device::devices()? {
        let (major, minor) = d.capability;
        print(&format!(
            "GPU {}: {}, compute capability {major}.{minor} ({}), {} multiprocessors, {:.0} GiB, L2 {:.0} MiB, driver CUDA {}\n",
            d.ordinal,
            d.name,
            d.arch(),
            d.multiprocessors,
            d.memory as f64 / f64::from(1 << 30),
            d.l2 as f64 / f64::from(1 << 20),
            d.driver
        ));
    }
    Ok(status::PASSED)
}
