//! Kernels from outside: a process that answers cases, a user's own CUDA source.

pub mod candidate;
pub(crate) mod declared;
pub(crate) mod process;
#[cfg(feature = "cuda")]
pub(crate) mod user;

use crate::Result;
use crate::assay::Built;
use crate::bundle::{Meta, assay};
use crate::job::{Job, Output};
use crate::kernel::{Backend, KernelAnswer};

/// What a result is judged by: for a product the arithmetic that `meta` leaves possible and that its bits show, for what leaves no choice
/// the one right answer. Errors: a declared model that does not take the operands' formats.
pub fn judged_by(job: &Job, output: Output, meta: &Meta) -> Result<KernelAnswer> {
    if job.op.is_product() {
        let output = assay::without_nobodys_rows(job.op, job.operands.offs.as_deref(), output)?;
        let ideal = assay::ideal(job, Backend::External.accelerator())?;
        let settled = assay::settle(meta, &mut Built::of(job.clone(), vec![ideal]), &output)?;
        let (accumulator, model, size) = (Some(settled.accumulator), settled.model, settled.size.map(|s| s.size));
        return Ok(KernelAnswer { output, model, drawn: None, accumulator, algorithm: Some(about(meta, &settled.text)), size });
    }
    let model = assay::only_answer(job)?;
    let output = match &model {
        Some(model) => assay::about_the_models_code(&output, model)?,
        None => output,
    };
    Ok(KernelAnswer { output, model, drawn: None, accumulator: job.accumulator, algorithm: Some(about(meta, "")), size: None })
}

/// Kernel and device by their names, and the arithmetic it was held to.
fn about(meta: &Meta, arithmetic: &str) -> String {
    let words = [meta.kernel.as_deref(), meta.device.as_deref(), Some(arithmetic).filter(|a| !a.is_empty())];
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
