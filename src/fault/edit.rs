//! Changing what a kernel reads: one operand of a job, checked again after the change.

use crate::job::{Job, Operand};
use crate::quant::QTensorParts;
use crate::{Format, Overflow, QTensor, Rounding};

/// Which operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    A,
    B,
}

impl Which {
    /// As bundles name it.
    pub fn name(self) -> &'static str {
        match self {
            Which::A => "a",
            Which::B => "b",
        }
    }

    pub fn other(self) -> Self {
        match self {
            Which::A => Which::B,
            Which::B => Which::A,
        }
    }
}

/// The operand of a side.
pub fn operand(job: &Job, side: Which) -> Option<&Operand> {
    match side {
        Which::A => job.operands.get(0),
        Which::B => job.operands.b(),
    }
}

/// The quantized tensor of a side; the first group of a grouped one.
pub fn quantized(job: &Job, side: Which) -> Option<&QTensor> {
    match operand(job, side)?.given() {
        Operand::High(_) | Operand::Weighted(_) | Operand::Dynamic(_) => None,
        Operand::Quantized(q) => Some(q),
        Operand::Groups(groups) => groups.first(),
    }
}

/// The job with one operand replaced.
pub fn replaced(job: &Job, side: Which, operand: Operand) -> Job {
    let mut job = job.clone();
    match side {
        Which::A => job.operands.set(0, operand),
        Which::B => job.operands.set(1, operand),
    }
    job
}

/// Changes the quantized tensor of a side, or each group of it. An operand that the kernel quantizes itself is quantized, then
/// changed. `None` when the operand is not quantized, `change` refuses, or nothing that can be stored comes of it.
pub fn edit(job: &Job, side: Which, mut change: impl FnMut(&mut QTensorParts) -> Option<()>) -> Option<Job> {
    let mut one = |q: &QTensor| -> Option<QTensor> {
        let mut parts = q.clone().into_parts();
        change(&mut parts)?;
        store_scales(&mut parts);
        QTensor::new(parts).ok()
    };
    let changed = match operand(job, side)?.given() {
        Operand::High(_) | Operand::Weighted(_) | Operand::Dynamic(_) => return None,
        Operand::Quantized(q) => Operand::Quantized(one(q)?),
        Operand::Groups(groups) => Operand::Groups(groups.iter().map(one).collect::<Option<_>>()?),
    };
    Some(replaced(job, side, changed))
}

/// Scales as their own format holds them: what a kernel reads from memory has been stored in it.
fn store_scales(parts: &mut QTensorParts) {
    let format = parts.scale_format;
    if format == Format::F32 {
        return;
    }
    for s in &mut parts.scale_inv {
        *s = format.decode(format.encode(f64::from(*s), Rounding::NearestEven, Overflow::Saturate)) as f32;
    }
}

/// Rows and columns of the scale grid.
pub fn grid(p: &QTensorParts) -> (usize, usize) {
    p.granularity.grid(p.rows, p.cols)
}

/// Replaces each scale by `f(row, column of the grid, scale)`. Refuses when nothing changes.
pub fn map_scales(p: &mut QTensorParts, f: impl Fn(usize, usize, f32) -> f32) -> Option<()> {
    let (_, cols) = grid(p);
    let before = p.scale_inv.clone();
    for (i, s) in p.scale_inv.iter_mut().enumerate() {
        *s = f(i / cols.max(1), i % cols.max(1), *s);
    }
    (before != p.scale_inv).then_some(())
}

/// Reads scale (r, c) of the grid from where `from` says. Refuses when every scale stays.
pub fn reindex_scales(p: &mut QTensorParts, from: impl Fn(usize, usize) -> (usize, usize)) -> Option<()> {
    let (rows, cols) = grid(p);
    let before = p.scale_inv.clone();
    for r in 0..rows {
        for c in 0..cols {
            let (fr, fc) = from(r, c);
            p.scale_inv[r * cols + c] = before[fr.min(rows - 1) * cols + fc.min(cols - 1)];
        }
    }
    (before != p.scale_inv).then_some(())
}
