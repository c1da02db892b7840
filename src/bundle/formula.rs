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
    Ok(roundings(bundle, found).or_else(|| norms(bundle, found)))
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

/// A row of a norm: its elements, what they are multiplied by and what is added, and `eps`.
struct Row<'r> {
    x: &'r [f64],
    gamma: &'r [f64],
    beta: &'r [f64],
    eps: f64,
}

impl Row<'_> {
    fn mean(&self, f: impl Fn(usize) -> f64) -> f64 {
        (0..self.x.len()).map(f).sum::<f64>() / self.x.len() as f64
    }
    /// `(x − shift)/divisor · γ + β`.
    fn made(&self, shift: f64, divisor: f64) -> Vec<f64> {
        (0..self.x.len()).map(|j| (self.x[j] - shift) / divisor * self.gamma[j] + self.beta[j]).collect()
    }
}

type Norm = fn(&Row) -> Vec<f64>;

/// Norms as they are, then as others write them by mistake: op, words, result.
const NORMS: [(Op, &str, Norm); 9] = [
    (Op::Rmsnorm, "", |r| r.made(0.0, (r.mean(|j| r.x[j].powi(2)) + r.eps).sqrt())),
    (Op::Layernorm, "", |r| {
        let m = r.mean(|j| r.x[j]);
        r.made(m, (r.mean(|j| (r.x[j] - m).powi(2)) + r.eps).sqrt())
    }),
    (Op::Rmsnorm, "eps is added to the root, not under it", |r| r.made(0.0, r.mean(|j| r.x[j].powi(2)).sqrt() + r.eps)),
    (Op::Rmsnorm, "the mean square is over the next power of two of columns", |r| {
        let n = r.x.len() as f64 / r.x.len().next_power_of_two() as f64;
        r.made(0.0, (r.mean(|j| r.x[j].powi(2)) * n + r.eps).sqrt())
    }),
    (Op::Rmsnorm, "gamma is applied before the mean square is taken", |r| {
        r.made(0.0, (r.mean(|j| (r.x[j] * r.gamma[j]).powi(2)) + r.eps).sqrt())
    }),
    (Op::Layernorm, "eps is added to the root, not under it", |r| {
        let m = r.mean(|j| r.x[j]);
        r.made(m, r.mean(|j| (r.x[j] - m).powi(2)).sqrt() + r.eps)
    }),
    (Op::Layernorm, "the variance is the mean square: the mean is not taken off", |r| {
        r.made(r.mean(|j| r.x[j]), (r.mean(|j| r.x[j].powi(2)) + r.eps).sqrt())
    }),
    (Op::Layernorm, "the mean is not taken off the values", |r| {
        let m = r.mean(|j| r.x[j]);
        r.made(0.0, (r.mean(|j| (r.x[j] - m).powi(2)) + r.eps).sqrt())
    }),
    (Op::Layernorm, "the variance is over one column less (unbiased)", |r| {
        let (m, n) = (r.mean(|j| r.x[j]), r.x.len() as f64);
        r.made(m, (r.mean(|j| (r.x[j] - m).powi(2)) * n / (n - 1.0) + r.eps).sqrt())
    }),
];

/// The norm that nearly every element is of, where the right one is not: within the interval that a stored element stands for.
fn norms(bundle: &Bundle, found: &Answer) -> Option<String> {
    let (op, params) = (bundle.meta.op, bundle.meta.params);
    let (right, _) = NORMS.iter().map(|n| (n.2, n.0)).find(|n| n.1 == op)?;
    let (t, job, part) = (bundle.a.high.as_ref()?, &found.assayed.built.job, found.judgement());
    let vector =
        |t: Option<&Tensor>, none: f64| t.map_or(vec![none; part.cols], |t| t.data().iter().map(|x| f64::from(*x)).collect());
    let one = if params.zero_centered_gamma { 1.0 } else { 0.0 };
    let gamma: Vec<f64> = vector(job.operands.gamma.as_ref(), 1.0 - one).iter().map(|g| g + one).collect();
    let beta = vector(job.operands.beta.as_ref(), 0.0);
    let eps = f64::from(params.eps);
    (t.cols() == part.cols && part.actual.len() == t.rows() * t.cols()).then_some(())?;
    let out = part.bound.out();
    let share = |norm: Norm| {
        let near = (0..t.rows()).map(|i| {
            let x: Vec<f64> = t.row(i).iter().map(|x| f64::from(*x)).collect();
            let made = norm(&Row { x: &x, gamma: &gamma, beta: &beta, eps });
            let is_near = |(j, y): (usize, &f64)| {
                let at = i * part.cols + j;
                let (low, high) = out.cell(at, part.actual[at]);
                let slack = y.abs() * 2f64.powi(-20);
                low - slack <= *y && *y <= high + slack
            };
            made.iter().enumerate().filter(|y| is_near(*y)).count()
        });
        near.sum::<usize>() as f64 / part.actual.len().max(1) as f64
    };
    let wrong = NORMS.iter().filter(|n| n.0 == op && !n.1.is_empty());
    (share(right) < 0.95).then_some(())?;
    wrong.into_iter().find(|n| share(n.2) > 0.98).map(|n| format!("another formula: {}", n.1))
}

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
