//! A kernel of the list with a change, under its own name: what a gate is tried on.

use super::{Fault, inject, power};
use crate::job::{Job, Output};
use crate::kernel::{Kernel, KernelSpec};
use crate::model::Accumulator;
use crate::{Error, Result};

/// What is changed.
#[derive(Clone, Copy)]
pub enum Alteration {
    /// A fault of the catalogue, in its first setting, where it can happen; the kernel is right elsewhere.
    Fault(&'static Fault),
    /// Products accumulate in this way instead of the one they are asked for, where the kernel can.
    Accumulator(Accumulator),
}

/// As it is read.
impl std::fmt::Display for Alteration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Alteration::Fault(fault) => write!(f, "{}", fault.name()),
            Alteration::Accumulator(accumulator) => write!(f, "accumulator={accumulator}"),
        }
    }
}

impl std::str::FromStr for Alteration {
    type Err = Error;
    /// `class:variant` as `qassay list faults` has it, or `accumulator=NAME`.
    fn from_str(s: &str) -> Result<Self> {
        match s.strip_prefix("accumulator=") {
            Some(name) => name.parse().map(Alteration::Accumulator),
            None => super::find(s).map(Alteration::Fault),
        }
    }
}

/// A kernel with an alteration. It answers to the kernel's name and predicts what the right one would return.
struct Injected {
    kernel: &'static dyn Kernel,
    alteration: Alteration,
}

impl Kernel for Injected {
    fn spec(&self) -> &KernelSpec {
        self.kernel.spec()
    }
    fn check(&self, job: &Job) -> Result<()> {
        self.kernel.check(job)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        match self.alteration {
            Alteration::Accumulator(a) if job.accumulator.is_some() => {
                let altered = Job { accumulator: Some(a), ..job.clone() };
                self.kernel.run(if self.kernel.check(&altered).is_ok() { &altered } else { job })
            }
            Alteration::Fault(fault) => {
                let wrong = match power::setting(fault, job, 0) {
                    Some(setting) => inject::inject(job, &[(fault, setting)])?,
                    None => None,
                };
                wrong.map_or_else(|| self.kernel.run(job), Ok)
            }
            Alteration::Accumulator(_) => self.kernel.run(job),
        }
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.kernel.predict(job)
    }
}

/// `kernels` with the alteration, for the life of the program.
pub fn altered(kernels: &[&'static dyn Kernel], alteration: Alteration) -> &'static [&'static dyn Kernel] {
    let one =
        |kernel: &&'static dyn Kernel| -> &'static dyn Kernel { Box::leak(Box::new(Injected { kernel: *kernel, alteration })) };
    Box::leak(kernels.iter().map(one).collect::<Vec<_>>().into_boxed_slice())
}
