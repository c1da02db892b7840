//! The options of `qassay run` that choose a kernel from outside.

use crate::external::candidate::{Candidate, TIMEOUT};
use crate::kernel::{Backend, Kernel};
use anyhow::Result;
use std::time::Duration;

/// Kernels as a run takes them.
pub type Kernels = &'static [&'static dyn Kernel];

/// A kernel from outside.
#[derive(clap::Args)]
pub struct External {
    /// Run the cases in a process started by this command, which speaks JSON lines (notebooks/python has a helper and examples). A case that takes
    /// longer than --timeout (60 s unless given) is an error, and the process is killed. One at a time unless --jobs says more.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["backend", "memory", "devices"])]
    #[cfg_attr(feature = "cuda", arg(conflicts_with = "kernel"))]
    candidate: Option<String>,
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    user: UserKernelArgs,
}

/// A kernel from outside as a run takes it.
pub struct Chosen {
    pub kernels: Kernels,
    /// What `run.json` calls the device: whose code decides the bits.
    pub device: String,
    /// A process that is asked from here.
    candidate: Option<&'static Candidate>,
    /// What chooses it in a worker, where it runs in workers: a fault on a GPU ends a process.
    pub worker: Option<Vec<String>>,
}

impl Chosen {
    pub const BACKEND: Backend = Backend::External;

    /// Why it cannot start, once that is known: the run is of no use then.
    pub fn broken(&self) -> Option<crate::Error> {
        self.candidate.and_then(Candidate::broken)
    }

    /// Ends what it started.
    pub fn close(&self) {
        if let Some(candidate) = self.candidate {
            candidate.close();
        }
    }
}

impl External {
    /// Whether a kernel from outside is asked for.
    pub fn wanted(&self) -> bool {
        self.on_gpu() || self.candidate.is_some()
    }

    /// Whether a user's own CUDA kernel is asked for.
    pub fn on_gpu(&self) -> bool {
        #[cfg(feature = "cuda")]
        return self.user.kernel.is_some();
        #[cfg(not(feature = "cuda"))]
        return false;
    }

    /// The kernel, where one is asked for. Errors: no folder for the bundles; a user's kernel that cannot be read, compiled or run here.
    pub fn choose(&self, timeout: Option<Duration>) -> Result<Option<Chosen>> {
        #[cfg(feature = "cuda")]
        if let Some((kernels, device)) = self.user.choose()? {
            return Ok(Some(Chosen { kernels, device, candidate: None, worker: Some(self.user.words()) }));
        }
        let Some(command) = &self.candidate else { return Ok(None) };
        // Kernels are static everywhere; there is one of these in a program.
        let candidate: &'static Candidate = Box::leak(Box::new(Candidate::new(command, timeout.unwrap_or(TIMEOUT))?));
        let kernels: Kernels = Box::leak(Box::new([candidate as &dyn Kernel]));
        Ok(Some(Chosen { kernels, device: command.clone(), candidate: Some(candidate), worker: None }))
    }
}

#[cfg(feature = "cuda")]
pub use user::UserKernelArgs;

#[cfg(feature = "cuda")]
mod user {
    use super::Kernels;
    use crate::external::user::UserKernel;
    use crate::kernel::Kernel;
    use crate::kernel::cuda::launch::gpu;
    use crate::op::Op;
    use anyhow::{Context, Result, bail};
    use std::path::PathBuf;

    /// A user's own CUDA kernel.
    #[derive(clap::Args)]
    pub struct UserKernelArgs {
        /// Run your own CUDA kernel on the GPU: a source, compiled by NVRTC, or a cubin. How it is called is declared in a comment of the
        /// source (examples/my_kernel.cu), or by --signature.
        #[arg(long, value_name = "FILE", requires_all = ["entry", "op"], conflicts_with_all = ["backend", "memory"])]
        pub kernel: Option<PathBuf>,
        /// The extern "C" __global__ function of --kernel.
        #[arg(long, value_name = "NAME", requires = "kernel")]
        entry: Option<String>,
        /// What --kernel computes; cases of other ops are skipped.
        #[arg(long, value_name = "OP", requires = "kernel")]
        op: Option<String>,
        /// How --kernel is called: 'name(a.codes: e4m3, …, out: bf16, m, n, k) grid=n/16,m/16 block=16,16'.
        #[arg(long, value_name = "TEXT", requires = "kernel")]
        signature: Option<String>,
    }

    impl UserKernelArgs {
        /// The kernel and its device, where one is asked for. Errors: it cannot be read, is not declared, does not compile; there is no
        /// GPU, said after what can be known without.
        pub fn choose(&self) -> Result<Option<(Kernels, String)>> {
            let (Some(path), Some(entry), Some(op)) = (&self.kernel, &self.entry, &self.op) else { return Ok(None) };
            let op = op.parse::<Op>().context("--op")?;
            let kernel = UserKernel::new(path, entry, op, self.signature.clone())?;
            let gpu = match gpu() {
                Ok(gpu) => gpu,
                Err(e) => {
                    let arch = kernel.compiles()?;
                    bail!(
                        "{}: {entry} is declared and compiles for {arch}, but there is no GPU to run it on: {e}",
                        path.display()
                    );
                }
            };
            kernel.cubin(&gpu.info.arch())?;
            let device = format!("{}, {}:{entry} {}", gpu.info.name, path.display(), &kernel.sha256()[..12]);
            let kernel: &'static UserKernel = Box::leak(Box::new(kernel));
            Ok(Some((Box::leak(Box::new([kernel as &dyn Kernel])), device)))
        }

        /// The words that choose it again.
        pub fn words(&self) -> Vec<String> {
            let path = self.kernel.as_ref().map(|p| p.display().to_string());
            let options = [("kernel", &path), ("entry", &self.entry), ("op", &self.op), ("signature", &self.signature)];
            options.into_iter().filter_map(|(k, v)| Some(format!("--{k}={}", v.as_ref()?))).collect()
        }
    }
}
