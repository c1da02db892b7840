//! The first rows of a large product: enough to tell which of several arithmetics its bits are of.

use crate::job::{Data, Job, Operand, Output, Part};
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::{Granularity, QTensor, Result, Zero};

/// Products of fewer terms are computed whole, as often as there are arithmetics.
const LARGE: usize = 1 << 26;
/// Rows that are enough, where blocks do not need more.
const ROWS: usize = 64;

/// The job and the result of the first rows of a large product of codes. `None`: it is small, or has no part that is a product by itself.
pub fn first_rows(job: &Job, output: &Output) -> Result<Option<(Job, Output)>> {
    let (Op::Gemm, Some(Operand::Quantized(a)), Some(b)) = (job.op, job.operands.a.first(), &job.operands.b) else {
        return Ok(None);
    };
    let block = if let Granularity::Block { rows, .. } = a.granularity() { rows } else { 1 };
    let rows = ROWS.div_ceil(block).saturating_mul(block);
    if a.rows().saturating_mul(a.cols()).saturating_mul(b.rows()) < LARGE || rows > a.rows() / 2 || *a.zero() != Zero::None {
        return Ok(None);
    }
    let mut first = job.clone();
    first.operands.a = vec![Operand::Quantized(cut(a, rows)?)];
    let d = match &output.parts[0].d {
        Data::High(t) => Data::High(t.rows_range(0, rows)),
        Data::Quantized(q) => Data::Quantized(cut(q, rows)?),
    };
    // The largest magnitude is one of all rows.
    let part = Part { d, transpose: None, amax: None };
    Ok(Some((first, Output { parts: vec![part], dbias: None, mean: None, rsigma: None })))
}

/// The first rows of a tensor: a whole number of its tiles.
fn cut(q: &QTensor, rows: usize) -> Result<QTensor> {
    let mut parts = q.clone().into_parts();
    let (grid_rows, grid_cols) = q.granularity().grid(rows, q.cols());
    parts.codes.truncate(rows * q.cols());
    parts.scale_inv.truncate(grid_rows * grid_cols);
    QTensor::new(QTensorParts { rows, ..parts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu::product;
    use crate::sweep::{Sweep, build};
    use std::path::Path;

    #[test]
    fn the_first_rows_are_the_whole_products_first_rows() {
        let text = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nshape = [\"300x512x512\"]\nbias = [true]\n\
                    recipe = [\"te_current\", \"float8_rowwise\", \"te_block_1x128\", \"te_block_128x128+te_block_128x128\"]\n\
                    accumulator = [\"f32_sequential\"]\nout = [\"bf16\", \"scaled:e4m3\"]\n";
        let sweep = Sweep::parse(Path::new("x.toml"), text, 0).unwrap();
        assert_eq!(sweep.cases.len(), 8);
        for case in &sweep.cases {
            let job = build::build(case).unwrap().job;
            let whole = product::run(&job).unwrap();
            let (first, result) = first_rows(&job, &whole).unwrap().unwrap();
            assert!(matches!(first.operands.a[0].rows(), 64 | 128));
            let again = product::run(&first).unwrap();
            assert!(again.parts[0].d == result.parts[0].d, "{}", case.id());
        }
    }
}
