//! Other formulas that a result may have been computed by: what the metadata should have said, or a neighbour with the same name.
//!
//! They are asked after a result failed. A result that another formula explains still fails: the bundle says which one it is of.

use super::Bundle;
use super::assay::{self, Answer};
use crate::compare::Verdict;
use crate::op::activation::act;
use crate::op::{Act, Op};
use crate::tensor::round_to;
use crate::{Format, Result, Tensor};
use statrs::function::erf::erf;

/// Values of `eps` that frameworks take.
const EPS: [f32; 7] = [1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 1e-2, 0.0];

/// What would have passed, in words. `None`: nothing known would. Errors: those of [`assay::assay`].
pub fn explain(bundle: &Bundle, found: &Answer) -> Result<Option<String>> {
    for (words, other) in others(bundle)? {
        if assay::verdict_alone(&other)? != Verdict::Fail {
            return Ok(Some(words));
        }
    }
    Ok(roundings(bundle, found))
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

/// Value of an element of the result: activation, x, gate, type of a.
type Formula = fn(Act, f64, f64, Format) -> f64;

fn plain(f: Act, x: f64, gate: f64, _: Format) -> f64 {
    act(f, x) * gate
}

const FORMULAS: [(&str, Formula); 2] = [
    ("it is gelu by the error function, x·Φ(x); `fn` = gelu is the tanh approximation", |f, x, gate, _| {
        if f == Act::Gelu { x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)) * gate } else { f64::NAN }
    }),
    (
        "the activation is rounded to the type of a before it meets the gate: one rounding more than of the formula",
        |f, x, gate, t| f64::from(round_to(t, act(f, x) as f32)) * gate,
    ),
];

/// Formulas that no metadata name: one that gives nearly every element where the right one does not.
fn roundings(bundle: &Bundle, found: &Answer) -> Option<String> {
    let (t, f) = (bundle.a.high.as_ref()?, bundle.meta.params.act?);
    let part = found.judgement();
    let gated = bundle.meta.op == Op::Gated;
    let format = part.bound.out().format();
    let share = |formula: Formula| {
        let near = |(i, a): &(usize, &f64)| {
            let row = t.row(i / part.cols);
            let x = f64::from(row[i % part.cols]);
            let gate = if gated { f64::from(row[part.cols + i % part.cols]) } else { 1.0 };
            let y = formula(f, x, gate, t.dtype());
            match format {
                // A libm's error, and that of a sum that cancels.
                Format::F32 => (y - **a).abs() <= 2f64.powi(-20) * y.abs() + 2f64.powi(-22) * (x * gate).abs(),
                format => f64::from(round_to(format, y as f32)) == **a,
            }
        };
        part.actual.iter().enumerate().filter(near).count() as f64 / part.actual.len().max(1) as f64
    };
    let right = share(plain);
    FORMULAS.iter().find(|other| right < 0.95 && share(other.1) > 0.98).map(|other| other.0.to_string())
}
