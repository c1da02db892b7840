//! The options of `qassay run` that choose a kernel from outside.

use crate::kernel::external::candidate::{Candidate, TIMEOUT};
use crate::kernel::{Backend, Kernel};
use anyhow::Result;
use std::time::Duration;

/// A kernel from outside.
#[derive(clap::Args)]
pub struct External {
    /// Run the cases in a process of this command, which speaks JSON lines (notebooks/python has a helper and examples). A case that takes
    /// longer than --timeout (60 s unless given) is an error, and the process is killed. One at a time unless --jobs says more.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["backend", "memory", "devices"])]
    candidate: Option<String>,
}

/// A kernel from outside as a run takes it.
pub struct Chosen {
    pub kernels: &'static [&'static dyn Kernel],
    /// What `run.json` calls the device: the command, whose code decides the bits.
    pub device: String,
    candidate: &'static Candidate,
}

impl Chosen {
    pub const BACKEND: Backend = Backend::External;

    /// Ends what it started.
    pub fn close(&self) {
        self.candidate.close();
    }
}

impl External {
    /// The kernel, where one is asked for. Errors: no folder for the bundles.
    pub fn choose(&self, timeout: Option<Duration>) -> Result<Option<Chosen>> {
        let Some(command) = &self.candidate else { return Ok(None) };
        // Kernels are static everywhere; there is one of these in a program.
        let candidate: &'static Candidate = Box::leak(Box::new(Candidate::new(command, timeout.unwrap_or(TIMEOUT))?));
        let kernels: &'static [&'static dyn Kernel] = Box::leak(Box::new([candidate as &dyn Kernel]));
        Ok(Some(Chosen { kernels, device: command.clone(), candidate }))
    }
}
