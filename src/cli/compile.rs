//! `qassay compile`: every CUDA kernel to machine code, with no GPU.

use super::{print, status};
use crate::kernel::cuda::{nvrtc, source::SOURCES};
use anyhow::{Result, bail};

/// Compile all CUDA kernels and print registers, shared memory and spills; needs NVRTC, no GPU.
#[derive(clap::Args)]
pub struct Args {
    /// Architectures, comma-separated.
    #[arg(long, default_value = "sm_89,sm_90a,sm_100a", value_delimiter = ',')]
    arch: Vec<String>,
    /// Only sources whose name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
}

pub fn run(args: Args) -> Result<u8> {
    let mut failed = false;
    print(&format!(
        "NVRTC {}\n{:<34}{:<9}{:>10}{:>10}{:>10}\n",
        nvrtc::version()?,
        "kernel",
        "arch",
        "registers",
        "smem, B",
        "spills, B"
    ));
    for source in SOURCES.iter().filter(|s| s.name.contains(&args.filter)) {
        for arch in &args.arch {
            match nvrtc::compile(source, None, arch, &[]) {
                Ok(compiled) => {
                    print(&format!(
                        "{} for {arch}: {} bytes{}\n",
                        source.name,
                        compiled.cubin.len(),
                        if compiled.cached { ", cached" } else { "" }
                    ));
                    for r in nvrtc::resources(&compiled.log) {
                        print(&format!("  {:<32}{arch:<9}{:>10}{:>10}{:>10}\n", r.kernel, r.registers, r.shared, r.spills));
                    }
                }
                // Every other source would say the same.
                Err(e) if e.to_string().contains("--gpu-architecture") => {
                    bail!(
                        "unknown architecture `{arch}`; expected one that this NVRTC compiles for, such as sm_89, sm_90a or sm_100a"
                    )
                }
                Err(e) => {
                    failed = true;
                    super::complain(&format!("qassay: {e}\n"));
                }
            }
        }
    }
    Ok(if failed { status::FAILED } else { status::PASSED })
}
