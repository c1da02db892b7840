//! What diagnosis is given.

use crate::Tensor;
use crate::assay::Judgement;
use crate::job::{Job, Output};
use crate::kernel::Backend;

/// Scales that were used at earlier steps, newest first: with them a stale one can be named.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Earlier scale_inv of operand a, one for each step (one scale a tensor).
    pub a: Vec<f32>,
    pub b: Vec<f32>,
    /// Earlier scales of the output.
    pub out: Vec<f32>,
}

/// One launch, what it was given and what it wrote: all that diagnosis looks at. Whoever has it (a sweep, a bundle, a process)
/// can ask [`diagnose`](mod@super::diagnose).
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// Op, parameters, operands, output format; for products the accumulator that the bound is derived from.
    pub job: &'a Job,
    /// What the kernel wrote.
    pub output: &'a Output,
    /// The bits it should have written, where a device model says.
    pub model: Option<&'a Output>,
    /// Who ran it: the CPU kernels sum in a known order, others in any.
    pub backend: Backend,
    /// What [`judge`](crate::assay::evidence::judge) said of each part: its bound and its values.
    pub judged: &'a [Judgement],
    /// The unquantized operands, where they are known: a kernel that skips quantization is recognised by them.
    pub exact_a: Option<&'a Tensor>,
    pub exact_b: Option<&'a Tensor>,
    pub history: Option<&'a History>,
    /// A wrong arithmetic is known that gives every bit: nothing is solved, the catalogue alone may have its name.
    pub proven: bool,
}

impl<'a> Evidence<'a> {
    /// Nothing known but the launch and its judgement.
    pub fn new(job: &'a Job, output: &'a Output, backend: Backend, judged: &'a [Judgement]) -> Self {
        Self { job, output, model: None, backend, judged, exact_a: None, exact_b: None, history: None, proven: false }
    }
}
