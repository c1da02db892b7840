//! A large case judged where its kernel ran: only the numbers of its row come back.

use super::build::{LARGE as LARGE_REFERENCES, Prepared};
use super::case::{Case, OutKind};
use crate::assay::fill::{digest, fill_measured, narrowest};
use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::assay::{evidence, large};
use crate::compare::{Comparison, Measured};
use crate::job::{Data, Operand, OutSpec, Output, Part};
use crate::kernel::{self, Ahead, Backend, Held, Kernel, LargeCast, LargeOperands};
use crate::op::Op;
use crate::stage::timed;
use crate::{QTensor, Result, Tensor};

/// Multiply-adds of a product, and elements of a cast, from which the device that ran it judges it.
const LARGE_PRODUCT: usize = 1 << 28;
const LARGE_CAST: usize = 1 << 17;

/// What judging the case on its device will launch.
pub fn ahead(case: &Case) -> Vec<Ahead> {
    let (elements, products) = (case.total_rows() * case.n, case.total_rows() * case.n * case.k);
    let mut all = Vec::new();
    if case.op == Op::Cast && elements >= LARGE_CAST {
        all.push(Ahead::Cast);
    }
    if case.op.is_product() && products >= LARGE_REFERENCES {
        all.extend(case.accumulator.map(Ahead::Model));
        all.push(Ahead::References);
        if products >= LARGE_PRODUCT {
            all.push(Ahead::Product);
        }
    }
    if !all.is_empty() {
        all.insert(0, Ahead::Inputs);
    }
    all
}

/// A case with its operands, and whose kernels may take it.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub case: &'a Case,
    pub prepared: &'a Prepared,
    pub kernels: &'a [&'static dyn Kernel],
    pub backend: Backend,
}

/// A result that was judged on its device: the kernel that made it, and the judgement.
struct There {
    kernel: &'static str,
    /// See [`Kernel::algorithm`].
    algorithm: Option<String>,
    measured: Measured,
    comparison: Comparison,
    /// Rows and columns of a tile of the map.
    tile: (usize, usize),
}

/// Judges a case on its device, where its elements stay. If nothing is wrong, it fills the row and returns the map; `None` when the CPU is to judge.
pub fn judged(row: &mut Row, asked: Asked) -> Result<Option<ErrorMap>> {
    let case = asked.case;
    let there = match case.op {
        op if op.is_product() => product_there(row, asked)?,
        Op::Cast => cast_there(row, asked)?,
        _ => None,
    };
    Ok(there.map(|there| {
        tracing::debug!("{}: judged where it ran", case.id());
        row.algorithm = there.algorithm.unwrap_or_default();
        fill_measured(row, there.kernel, &there.comparison, &there.measured);
        ErrorMap::of_largest(case.id(), there.tile, there.measured.ratios)
    }))
}

fn product_there(row: &mut Row, Asked { case, prepared, kernels, backend }: Asked) -> Result<Option<There>> {
    let Some(judge) = backend.product_judge().filter(|_| case.total_rows() * case.n * case.k >= LARGE_PRODUCT) else {
        return Ok(None);
    };
    // A scale that follows from the references comes when they are there; which kernel takes it does not depend on its value.
    let (Some(mut job), [x], [y]) = (prepared.job(case, &[1.0]), prepared.x.a.as_slice(), prepared.x.b.as_slice()) else {
        return Ok(None);
    };
    let codes = |o: Option<&Operand>| matches!(o, Some(Operand::Quantized(_) | Operand::Groups(_)));
    if !codes(job.operands.tensors().first()) || !codes(job.operands.b()) {
        return Ok(None);
    }
    let Ok(kernel) = kernel::find(kernels, &job, backend) else { return Ok(None) };
    if kernel.modelled(&job)?.is_none() {
        return Ok(None);
    }
    let (op, operands, sources) = (case.op, job.operands.clone(), [x, y]);
    let of = LargeOperands { op, operands: &operands, sources: Some(sources) };
    let mut references = None;
    if matches!(&*case.out, OutKind::Scaled { .. }) {
        let Some(made) = or_here(case, (judge.references)(&of).map(Some)) else { return Ok(None) };
        let Some(scaled) = prepared.job(case, &[made.largest]) else { return Ok(None) };
        (job, references) = (scaled, Some(made));
    }
    let (algorithm, Some(model)) = (kernel.algorithm(&job)?, kernel.modelled(&job)?) else { return Ok(None) };
    let output = timed("kernel", || kernel.run(&job))?;
    let [part] = output.parts.as_slice() else { return Ok(None) };
    let measured = beside(row, &output, &prepared.quantized, None, || {
        large::judged(judge, &job, (of, &model), (part, backend), references)
    });
    let Some(mut measured) = or_here(case, measured) else { return Ok(None) };
    let (comparison, (rows, cols)) = (large::comparison(&job, &mut measured), part.d.shape());
    let tile = ErrorMap::tile(rows, cols);
    Ok(Some(There { kernel: kernel.spec().name, algorithm, measured, comparison, tile }))
}

fn cast_there(row: &mut Row, Asked { case, prepared, kernels, backend }: Asked) -> Result<Option<There>> {
    let Some(judge) = backend.cast_judge().filter(|_| case.total_rows() * case.n >= LARGE_CAST) else { return Ok(None) };
    let (Some(job), [source]) = (prepared.job(case, &[]), prepared.x.a.as_slice()) else { return Ok(None) };
    if !matches!(&job.out, OutSpec::Recipe(recipe) if recipe.format.is_float()) {
        return Ok(None);
    }
    let Ok(kernel) = kernel::find(kernels, &job, backend) else { return Ok(None) };
    let output = timed("kernel", || kernel.run(&job))?;
    let Held { model, drawn: None } = timed("model", || kernel.hold(&job, &output))? else { return Ok(None) };
    let same = || evidence::is_defined(&job, &output, model.as_ref(), backend);
    let ([Part { d: Data::Quantized(codes), .. }], true) = (output.parts.as_slice(), timed("mismatches", same)?) else {
        return Ok(None);
    };
    let tile = ErrorMap::tile(codes.rows(), codes.cols());
    let measured = beside(row, &output, &[], Some(source), || judge(&LargeCast { source, codes, map: tile }));
    let Some(mut measured) = or_here(case, measured) else { return Ok(None) };
    let comparison = measured.comparison(None, 1, &[]);
    Ok(Some(There { kernel: kernel.spec().name, algorithm: None, measured, comparison, tile }))
}

/// What `judge` says, while another thread hashes and counts the codes.
fn beside<T>(
    row: &mut Row,
    output: &Output,
    quantized: &[(QTensor, Tensor)],
    source: Option<&Tensor>,
    judge: impl FnOnce() -> T,
) -> T {
    std::thread::scope(|scope| {
        let columns = &mut *row;
        let counting = scope.spawn(move || {
            // The digest needs one core: others read the codes for the bound meanwhile.
            columns.sha256 = digest(output);
            narrowest(columns, output, quantized, source);
        });
        let judged = judge();
        timed("counts", || counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        judged
    })
}

/// The finding; `None` when the CPU is to judge. An error goes to the log.
fn or_here<T>(case: &Case, found: Result<Option<T>>) -> Option<T> {
    found.unwrap_or_else(|e| {
        tracing::warn!("{}: judged on the CPU: {e}", case.id());
        None
    })
}
