//! Faults of grouped products: rows, scales and weights of the wrong group.

use super::edit::{Which, edit, grid};
use super::{Class, Fault, How, On, plain};
use crate::job::{Job, Operand};
use crate::op::Op;
use crate::quant::QTensorParts;

macro_rules! group {
    ($class:ident, $variant:literal, $help:literal, $change:expr) => {
        Fault { class: Class::$class, on: On::Out, variant: $variant, help: $help, how: How::Reads($change), settings: plain }
    };
}

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    group!(GroupBoundary, "first_end_early", "the first group ends one row early", |job, _| offs(job, |e, o| if e == 0 { o.saturating_sub(1) } else { o })),
    group!(GroupBoundary, "ends_early", "every group but the last ends one row early", |job, _| offs(job, |_, o| o.saturating_sub(1))),
    group!(GroupBoundary, "first_end_late", "the first group ends one row late", |job, _| offs(job, |e, o| if e == 0 { o + 1 } else { o })),
    group!(GroupBoundary, "aligned_up_16", "ends of groups are rounded up to 16 rows", |job, _| offs(job, |_, o| o.div_ceil(16) * 16)),
    group!(GroupBoundary, "aligned_down_16", "ends of groups are rounded down to 16 rows", |job, _| offs(job, |_, o| o / 16 * 16)),
    group!(GroupBoundary, "aligned_up_32", "ends of groups are rounded up to 32 rows", |job, _| offs(job, |_, o| o.div_ceil(32) * 32)),
    group!(GroupBoundary, "next_expert", "every group is multiplied by the next one's weights", |job, _| experts(job, |e, offs| (e + 1) % offs.len(), true)),
    group!(GroupBoundary, "previous_expert", "every group but the first is multiplied by the weights of the one before", |job, _| experts(job, |e, _| e.saturating_sub(1), true)),
    group!(GroupBoundary, "first_expert", "every group is multiplied by the first one's weights", |job, _| experts(job, |_, _| 0, true)),
    group!(GroupBoundary, "empty_neighbour", "a group after an empty one is multiplied by the empty one's weights", |job, _| experts(job, empty_before, true)),
    group!(GroupBoundary, "empty_not_counted", "experts are counted without the empty groups before them", |job, _| experts(job, filled_before, true)),
    Fault { on: On::B, ..group!(ScaleShared, "b.first_expert", "the first expert's scales of b are used for all", |job, _| experts(job, |_, _| 0, false)) },
    Fault { on: On::B, ..group!(ScaleShared, "b.next_expert", "every expert's scales of b are the next one's", |job, _| experts(job, |e, offs| (e + 1) % offs.len(), false)) },
    Fault { on: On::B, ..group!(ScaleShared, "b.previous_expert", "the scales of b of every expert but the first are those of the one before", |job, _| experts(job, |e, _| e.saturating_sub(1), false)) },
    Fault { on: On::B, ..group!(ScaleShared, "b.empty_not_counted", "the experts' scales of b are counted without the empty groups before them", |job, _| experts(job, filled_before, false)) },
    Fault { on: On::A, ..group!(ScaleShared, "a.first_group", "the scales of a's first group are used for all groups", |job, _| shared(job, Which::A)) },
    Fault { on: On::B, ..group!(ScaleShared, "b.first_group", "the scales of b's first group are used for all groups", |job, _| shared(job, Which::B)) },
];

/// Ends of all groups but the last by a rule, kept ascending. Refuses when nothing changes.
fn offs(job: &Job, f: impl Fn(usize, usize) -> usize) -> Option<Job> {
    matches!(job.op, Op::GroupedGemm | Op::GroupedGemmDgrad).then_some(())?;
    let old = job.operands.offs.as_ref()?;
    let last = *old.last()?;
    let mut new = Vec::with_capacity(old.len());
    let mut least = 0;
    for (e, o) in old.iter().enumerate() {
        let end = if e + 1 == old.len() { last } else { f(e, *o).clamp(least, last) };
        new.push(end);
        least = end;
    }
    (new != *old).then(|| {
        let mut job = job.clone();
        job.operands.offs = Some(new);
        job
    })
}

fn is_empty(e: usize, offs: &[usize]) -> bool {
    offs[e] == if e > 0 { offs[e - 1] } else { 0 }
}

/// How many groups before group e have rows.
fn filled_before(e: usize, offs: &[usize]) -> usize {
    (0..e).filter(|g| !is_empty(*g, offs)).count()
}

/// The group before where that is empty, else e.
fn empty_before(e: usize, offs: &[usize]) -> usize {
    if e > 0 && is_empty(e - 1, offs) { e - 1 } else { e }
}

/// Weights (or only their scales) of expert e from expert `from(e, offs)`.
fn experts(job: &Job, from: fn(usize, &[usize]) -> usize, codes: bool) -> Option<Job> {
    matches!(job.op, Op::GroupedGemm | Op::GroupedGemmDgrad).then_some(())?;
    let offs = job.operands.offs.as_ref()?;
    let n = offs.len();
    edit(job, Which::B, |p| {
        (n > 1).then_some(())?;
        let (rows, cols) = grid(p);
        let before = p.clone();
        if rows.is_multiple_of(n) && rows > 1 {
            take(&mut p.scale_inv, &before.scale_inv, rows / n * cols, offs, from);
        }
        if codes {
            take(&mut p.codes, &before.codes, p.rows / n * p.cols, offs, from);
        }
        (before.codes != p.codes || before.scale_inv != p.scale_inv).then_some(())
    })
}
fn take<T: Copy>(to: &mut [T], old: &[T], size: usize, offs: &[usize], from: fn(usize, &[usize]) -> usize) {
    for e in 0..offs.len() {
        let source = from(e, offs);
        to[e * size..(e + 1) * size].copy_from_slice(&old[source * size..(source + 1) * size]);
    }
}

/// Scales of the first group of a grouped operand that has tokens.
fn shared(job: &Job, side: Which) -> Option<Job> {
    let Operand::Groups(groups) = super::edit::operand(job, side)? else { return None };
    let first = groups.iter().find(|q| q.cols() > 0)?.scale_inv().to_vec();
    let mut changed = false;
    let set = |p: &mut QTensorParts, changed: &mut bool| {
        if p.cols > 0 && p.scale_inv.len() == first.len() && p.scale_inv != first {
            p.scale_inv.clone_from(&first);
            *changed = true;
        }
        Some(())
    };
    let new = edit(job, side, |p| set(p, &mut changed))?;
    changed.then_some(new)
}
