//! A part of a product: some rows and columns of its result, computed from the same rows of the operands. What diagnosis tries every
//! fault on when the whole would take too long.

use super::edit::Which;
use crate::job::{Job, Operand};
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::{Granularity, QTensor, Tensor, Zero};

/// Rows and columns of a result, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub rows: Vec<usize>,
    pub cols: Vec<usize>,
    /// Whether that is all of them.
    pub whole: bool,
}

impl Sample {
    /// Everything.
    pub fn whole(rows: usize, cols: usize) -> Self {
        Self { rows: (0..rows).collect(), cols: (0..cols).collect(), whole: true }
    }

    /// At most about `most` lines each way: the edges, lines spread evenly, and those of the elements in `must`.
    pub fn of(rows: usize, cols: usize, most: usize, must: &[(usize, usize)]) -> Self {
        let lines = |n: usize, must: &mut dyn Iterator<Item = usize>| -> Vec<usize> {
            if n <= most {
                return (0..n).collect();
            }
            let quarter = most / 4;
            let spread = (0..quarter).map(|i| i * n / quarter + (i * 7) % (n / quarter).max(1)).filter(|i| *i < n);
            let mut all: Vec<usize> = (0..quarter).chain(n - quarter..n).chain(spread).chain(must.take(quarter)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (r, c) = (lines(rows, &mut must.iter().map(|m| m.0)), lines(cols, &mut must.iter().map(|m| m.1)));
        let whole = r.len() == rows && c.len() == cols;
        Self { rows: r, cols: c, whole }
    }

    /// Row-major indices into a result of `cols` columns.
    pub fn indices(&self, cols: usize) -> impl Iterator<Item = usize> {
        self.rows.iter().flat_map(move |i| self.cols.iter().map(move |j| i * cols + j))
    }
}

/// Some rows of a quantized tensor; blocks that span rows become groups with the same scales.
fn rows_of_codes(q: &QTensor, rows: &[usize]) -> Option<QTensor> {
    let (_, grid_cols) = q.granularity().grid(q.rows(), q.cols());
    let (_, tile_cols) = q.granularity().tile(q.rows(), q.cols());
    let granularity = match q.granularity() {
        Granularity::Block { .. } => Granularity::Group(tile_cols),
        g => g,
    };
    // Columns of the grid that the rows of the new one have.
    let of = |i: usize, c: usize| q.scale_index(i, (c * tile_cols).min(q.cols().saturating_sub(1)));
    let scales: Vec<usize> = match granularity {
        Granularity::Tensor => vec![0],
        _ => rows.iter().flat_map(|i| (0..grid_cols).map(move |c| (*i, c))).map(|(i, c)| of(i, c)).collect(),
    };
    let zero = match q.zero() {
        Zero::None => Zero::None,
        Zero::Integer(z) => Zero::Integer(scales.iter().map(|s| z[*s]).collect()),
        Zero::Additive { zero, mid } => Zero::Additive { zero: scales.iter().map(|s| zero[*s]).collect(), mid: *mid },
    };
    let codes = rows.iter().flat_map(|i| &q.codes()[i * q.cols()..(i + 1) * q.cols()]).copied().collect();
    let scale_inv = scales.iter().map(|s| q.scale_inv()[*s]).collect();
    let parts = QTensorParts { rows: rows.len(), codes, granularity, scale_inv, zero, ..q.clone().into_parts() };
    QTensor::new(parts).ok()
}

fn rows_of(operand: &Operand, rows: &[usize]) -> Option<Operand> {
    Some(match operand.given() {
        Operand::High(t) => {
            let data = rows.iter().flat_map(|i| t.row(*i)).copied().collect();
            Operand::High(Tensor::new(t.dtype(), rows.len(), t.cols(), data).ok()?)
        }
        Operand::Weighted(w) => Operand::Weighted(w.of_rows(rows, |i, k| w.x().row(i)[k]).ok()?),
        Operand::Quantized(q) => Operand::Quantized(rows_of_codes(q, rows)?),
        Operand::Dynamic(_) => return None,
        Operand::Groups(groups) => Operand::Groups(groups.iter().map(|q| rows_of_codes(q, rows)).collect::<Option<_>>()?),
    })
}

/// The product of these rows and columns of the result. `None` for ops that are no products.
pub fn product(job: &Job, sample: &Sample) -> Option<Job> {
    if sample.whole {
        return Some(job.clone());
    }
    let mut part = job.clone();
    let (a, b) = (super::edit::operand(job, Which::A)?, super::edit::operand(job, Which::B)?);
    match job.op {
        Op::Gemm => {
            part.operands.set(0, rows_of(a, &sample.rows)?);
            part.operands.set(1, rows_of(b, &sample.cols)?);
        }
        Op::GroupedGemm | Op::GroupedGemmDgrad => {
            let offs = job.operands.offs.as_ref()?;
            let n = b.rows() / offs.len();
            let columns: Vec<usize> = (0..offs.len()).flat_map(|e| sample.cols.iter().map(move |j| e * n + j)).collect();
            part.operands.set(0, rows_of(a, &sample.rows)?);
            part.operands.set(1, rows_of(b, &columns)?);
            part.operands.offs = Some(offs.iter().map(|o| sample.rows.partition_point(|r| r < o)).collect());
        }
        _ => return None,
    }
    if let Some(t) = &job.operands.bias {
        let data = (0..t.rows()).flat_map(|e| sample.cols.iter().map(move |j| t.row(e)[*j])).collect();
        part.operands.bias = Some(Tensor::new(t.dtype(), t.rows(), sample.cols.len(), data).ok()?);
    }
    if let Some(weights) = &job.operands.row_weights {
        part.operands.row_weights = Some(sample.rows.iter().map(|i| weights[*i]).collect());
    }
    Some(part)
}
