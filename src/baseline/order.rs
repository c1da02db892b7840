//! Which order of summation gives the bits that a digest stands for.

use crate::assay::fill::digest;
use crate::job::{Data, Output};
use crate::kernel::{self, Backend};
use crate::model::Accumulator;
use crate::sweep::build;
use crate::sweep::case::Case;

/// Multiply-adds of the largest product that is tried: some twenty accumulators take seconds of it.
const MOST_OPERATIONS: u64 = 1 << 27;

/// Every accumulator that is tried: each name alone, and promoted every 32 … 512 elements of K, in both orders of the scales.
fn candidates() -> impl Iterator<Item = Accumulator> {
    let promotions = ["", "@32", "@64", "@128", "@256", "@512"];
    let names = Accumulator::names().flat_map(move |n| promotions.map(|p| format!("{n}{p}")));
    names.flat_map(|n| [n.clone(), format!("{n}+scales_first")]).filter_map(|n| n.parse().ok())
}

/// What the case's CPU kernel returns with each accumulator that it takes, until one is `sha256`.
fn made_by(case: &Case, sha256: &str) -> Option<(Accumulator, Output)> {
    let mut job = build::build(case).ok()?.job;
    candidates().find_map(|a| {
        job.accumulator = Some(a);
        let output = kernel::find(kernel::cpu::KERNELS, &job, Backend::Cpu).ok()?.run(&job).ok()?;
        (digest(&output) == sha256).then_some((a, output))
    })
}

/// Elements of the results that differ in bits.
fn differing(a: &Output, b: &Output) -> (usize, usize) {
    let bits = |o: &Output| -> Vec<u32> {
        let part = |d: &Data| match d {
            Data::High(t) => t.data().iter().map(|x| x.to_bits()).collect::<Vec<u32>>(),
            Data::Quantized(q) => q.codes().iter().map(|c| u32::from(*c)).collect(),
        };
        o.parts.iter().flat_map(|p| part(&p.d)).collect()
    };
    let (a, b) = (bits(a), bits(b));
    (a.iter().zip(&b).filter(|(x, y)| x != y).count(), a.len())
}

/// Names the order of summation behind the bits that changed from digest `before` to `after`, and how many elements differ where
/// both are known. `None` for what is no product, is too large to try, or was made by no order that is known.
pub fn explain(case: &Case, before: &str, after: &str) -> Option<String> {
    if !case.op.is_product() || case.operations() > MOST_OPERATIONS {
        return None;
    }
    let (accumulator, now) = made_by(case, after)?;
    let was = made_by(case, before);
    let count = was.map_or(String::new(), |(from, output)| {
        let (n, all) = differing(&output, &now);
        format!(", {n} of {all} elements from those of {from}")
    });
    Some(format!("the new bits are those of accumulator {accumulator}{count}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::sweep::Sweep;

    #[test]
    fn the_order_is_named_and_a_strange_digest_is_not() {
        let rows = |a: &str| {
            Sweep::new(Op::Gemm).shapes(["8x16x256"]).accumulators([a.to_string()]).outs(["f32"]).quiet().run().unwrap()
        };
        let (before, after) = (rows("f32_sequential"), rows("hopper_wgmma@128"));
        let case = before.case(0).unwrap();
        let words = explain(case, &before[0].sha256, &after[0].sha256).unwrap();
        assert!(
            words.contains("accumulator hopper_wgmma@128, ") && words.contains("of 128 elements from those of f32_sequential"),
            "{words}"
        );
        assert_eq!(explain(case, &before[0].sha256, "00"), None);
    }
}
