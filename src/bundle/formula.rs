//! Other formulas that a result may have been computed by: what the metadata should have said, or a neighbour with the same name.
//!
//! They are asked after a result failed. A result that another formula explains still fails: the bundle says which one it is of.

use super::assay::{self, Answer};
use super::{Bundle, formulas};
use crate::compare::Verdict;
use crate::job::Data;
use crate::op::Op;
use crate::{Result, Tensor};

/// Elements of a result that is judged whole at once, and rows of one that is not.
const SMALL: usize = 1 << 18;
const ROWS: usize = 16;

/// Values of `eps` that frameworks take.
pub const EPS: [f32; 9] = [1e-5, 1e-6, 1e-4, 1e-7, 1e-8, 1e-12, 1e-3, 1e-2, 0.0];

/// What would have passed, in words. `None`: nothing known would. Errors: those of [`assay::assay`].
pub fn explain(bundle: &Bundle, found: &Answer) -> Result<Option<String>> {
    // Wrong rows, and some all over, refuse most of them.
    let few = some_rows(bundle, found);
    for (words, other) in others(bundle)? {
        if let Some(few) = &few
            && assay::verdict_alone(&rows_of(&other, few)?)? == Verdict::Fail
        {
            continue;
        }
        if assay::verdict_alone(&other)? != Verdict::Fail {
            return Ok(Some(words));
        }
    }
    Ok(formulas::explain(bundle, found))
}

/// Rows that a formula is tried on before all are. `None`: the result is small.
fn some_rows(bundle: &Bundle, found: &Answer) -> Option<Vec<usize>> {
    let Data::High(out) = &bundle.out.d else { return None };
    let (part, n) = (found.judgement(), out.rows());
    (n * out.cols() > SMALL && part.actual.len() == n * out.cols()).then_some(())?;
    let certain = part.bound.certain();
    let wrong = |i: &usize| {
        let at = i * out.cols()..(i + 1) * out.cols();
        at.clone().any(|at| {
            let (low, high) = part.bound.out().cell(at, part.actual[at]);
            let (x, r) = (part.bound.ideal()[at], certain[at]);
            !(low - r <= x && x <= high + r)
        })
    };
    let mut some: Vec<usize> = (0..n).filter(wrong).take(ROWS).chain((0..n).step_by(n.div_ceil(ROWS))).collect();
    some.sort_unstable();
    some.dedup();
    Some(some)
}

/// The bundle of these rows alone.
fn rows_of(bundle: &Bundle, rows: &[usize]) -> Result<Bundle> {
    let cut = |t: &Tensor| {
        let data = rows.iter().flat_map(|i| t.row(*i)).copied().collect();
        Tensor::new(t.dtype(), rows.len(), t.cols(), data)
    };
    let mut few = bundle.clone();
    if let Some(t) = &bundle.a.high {
        few.a.high = Some(cut(t)?);
    }
    if let Data::High(t) = &bundle.out.d {
        few.out.d = Data::High(cut(t)?);
    }
    Ok(few)
}

/// The same bundle with other metadata or other halves.
fn others(bundle: &Bundle) -> Result<Vec<(String, Bundle)>> {
    let mut all = Vec::new();
    let mut with = |words: String, change: &dyn Fn(&mut Bundle)| {
        let mut other = bundle.clone();
        change(&mut other);
        all.push((words, other));
    };
    match bundle.meta.op {
        Op::Layernorm | Op::Rmsnorm => {
            let given = bundle.meta.params;
            for eps in EPS.into_iter().filter(|e| *e != given.eps) {
                with(format!("it is the result of `eps` = {eps:e}, not {:e}", given.eps), &|b| b.meta.params.eps = eps);
            }
            let centered = !given.zero_centered_gamma;
            with(format!("it is the result of `zero_centered_gamma` = {centered}"), &|b| {
                b.meta.params.zero_centered_gamma = centered;
            });
        }
        Op::Gated => {
            if let Some(t) = &bundle.a.high {
                let half = t.cols() / 2;
                let turned = (0..t.rows()).flat_map(|i| [&t.row(i)[half..], &t.row(i)[..half]].concat()).collect();
                let turned = Tensor::new(t.dtype(), t.rows(), t.cols(), turned)?;
                with("it is the result of [gate | x]; the halves of a row are [x | gate]".into(), &|b| {
                    b.a.high = Some(turned.clone());
                });
            }
        }
        _ => {}
    }
    Ok(all)
}
