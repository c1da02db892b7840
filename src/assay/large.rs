//! What bounds a large product of codes whose elements lie elsewhere: what [`super::product`] says of it, without its elements.

use super::product::{arithmetic, codes, first_b, groups, inner, relative, row_scales};
use crate::Result;
use crate::compare::ProductArithmetic;
use crate::job::Job;
use crate::kernel::LargeSums;
use crate::model::{Lines, SumBound, accumulation_bound, runs};
use crate::op::Op;
use crate::stage::timed;

/// Of a product of narrow floats by an accumulator whose bits are known, its result `rows × cols`. `ask` gets the arithmetic without the bias, and the
/// sums. `None`, without having asked: another product, or one whose bound needs the runs of its products. Errors: formats that the accumulator
/// does not take; `ask`'s.
pub(crate) fn of_device_model<T>(
    job: &Job,
    (rows, cols): (usize, usize),
    ask: impl FnOnce(&ProductArithmetic, &LargeSums) -> Result<T>,
) -> Result<Option<T>> {
    let Some(accumulator) = job.accumulator.filter(|a| a.inner.is_model()) else { return Ok(None) };
    let (Some(qa), Some(qb)) = (codes(job.operands.a()), job.operands.b().and_then(codes)) else { return Ok(None) };
    if [&qa, &qb].iter().any(|q| q.is_empty() || !q[0].format().is_float()) {
        return Ok(None);
    }
    let (k, groups, by_tokens) = (inner(job), groups(job), job.op == Op::GroupedGemmWgrad);
    if !by_tokens && rows * cols * k <= runs::MOST {
        return Ok(None);
    }
    let p = arithmetic(&qa, &qb, k, groups, false);
    let ([a], [b], 1, false) = (qa.as_slice(), qb.as_slice(), groups, by_tokens) else {
        let sums = timed("bound", || relative(&accumulator, &qa, &qb, k, groups))?;
        return ask(&p, &LargeSums::Relative(sums)).map(Some);
    };
    let [(lines_a, factors_a), (lines_b, factors_b)] = timed("bound", || [a, b].map(|q| Lines::and_factors(q)));
    let most = accumulation_bound(&accumulator, k, factors_a, factors_b)?;
    let lines = ((a.format(), &lines_a), (b.format(), &lines_b));
    let mut sums = SumBound::new(&accumulator, k, lines.0, lines.1, true)?.and_relative(most);
    (sums.scale_a, sums.scale_b) = (row_scales(a), row_scales(b));
    if job.op != Op::Gemm {
        sums.first_b = first_b(job, (rows, cols));
    }
    ask(&p, &LargeSums::Each(sums)).map(Some)
}
