//! Other formulas that a result may have been computed by: what the metadata should have said, or a neighbour with the same name.
//!
//! They are asked after a result failed. A result that another formula explains still fails: the bundle says which one it is of.

use super::assay::{self, Answer};
use super::{Bundle, formulas};
use crate::compare::Verdict;
use crate::op::Op;
use crate::{Result, Tensor};

/// Values of `eps` that frameworks take.
pub const EPS: [f32; 9] = [1e-5, 1e-6, 1e-4, 1e-7, 1e-8, 1e-12, 1e-3, 1e-2, 0.0];

/// What would have passed, in words. `None`: nothing known would. Errors: those of [`assay::assay`].
pub fn explain(bundle: &Bundle, found: &Answer) -> Result<Option<String>> {
    for (words, other) in others(bundle)? {
        if assay::verdict_alone(&other)? != Verdict::Fail {
            return Ok(Some(words));
        }
    }
    Ok(formulas::explain(bundle, found))
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
