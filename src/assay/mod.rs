//! One job and one output become one judgement: `Built → Output → Judgement → Row`.
//!
//! [`Built`] is a job with what its result is compared with; [`evidence`] judges each part; [`fill`] writes a row. Who wants to know
//! why a part failed asks [`crate::fault`].

mod blocks;
#[cfg(test)]
mod blocks_tests;
pub(crate) mod command;
pub(crate) mod coverage;
pub mod evidence;
pub(crate) mod fill;
pub(crate) mod large;
pub(crate) mod map;
pub(crate) mod product;
pub mod row;
pub(crate) mod slices;
pub(crate) mod table;
mod weights;
#[cfg(test)]
mod weights_tests;

pub use evidence::Judgement;
pub use slices::{Slices, gemm};

use crate::compare::Verdict;
use crate::job::{Job, Output};
use crate::kernel::Backend;
use crate::kernel::cpu::drawn::Drawn;
use crate::op::Defined;
use crate::{QTensor, Tensor};
use std::sync::Arc;

/// What is handed to the kernel and what it is compared with.
pub struct Built {
    pub job: Job,
    /// The op on the unquantized values, one for each part; empty where those are not known (a bundle of codes).
    pub exact: Vec<Arc<Defined>>,
    /// The op on the values the kernel sees; the same as `exact` where the kernel sees them as they are.
    pub ideal: Vec<Arc<Defined>>,
    /// The quantized operands with the values they came from.
    pub quantized: Vec<(QTensor, Tensor)>,
    /// What a cast is given.
    pub source: Option<Tensor>,
}

impl Built {
    /// A job and what it defines on the values that the kernel sees; nothing is known of what they came from.
    pub fn of(job: Job, ideal: Vec<Defined>) -> Self {
        let ideal = ideal.into_iter().map(Arc::new).collect();
        Self { job, exact: Vec::new(), ideal, quantized: Vec::new(), source: None }
    }
}

/// A case that ran.
pub struct Assayed {
    pub built: Built,
    pub kernel: &'static str,
    /// See [`Kernel::algorithm`](crate::kernel::Kernel::algorithm).
    pub algorithm: Option<String>,
    pub backend: Backend,
    pub output: Output,
    /// What the device model returns, where there is one.
    pub model: Option<Output>,
    /// See [`crate::kernel::KernelAnswer::drawn`].
    pub drawn: Option<Drawn>,
    /// One for each part of the output.
    pub judgements: Vec<Judgement>,
}

/// The part whose verdict is the worst, then whose error is nearest to its bound. A part without power says less than one that passes.
pub(crate) fn worst(judgements: &[Judgement]) -> &Judgement {
    let key = |j: &Judgement| {
        let c = &j.comparison;
        (c.verdict != Verdict::NoPower, c.verdict, c.bound_ratio_certain)
    };
    let better = |a: &&Judgement, b: &&Judgement| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal);
    judgements.iter().max_by(better).expect("every output has a part")
}
