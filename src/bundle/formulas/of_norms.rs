//! Formulas of norms that kernels use by mistake.

use super::{At, Change, EPS_BESIDE, Formula, formula, mean};
use crate::Format;
use crate::bundle::moments;
use crate::op::Op;
use crate::tensor::round_to;

/// Heads of a row, at most.
const HEADS: usize = 128;

/// 1/√x in f32 by the integer trick with this magic number and so many steps of Newton's.
fn trick(x: f64, magic: u32, steps: usize) -> f64 {
    let x = x as f32;
    let mut y = f32::from_bits(magic.wrapping_sub(x.to_bits() >> 1));
    for _ in 0..steps {
        y *= 1.5 - 0.5 * x * y * y;
    }
    f64::from(y)
}

/// Reciprocal roots that kernels take.
const ROOTS: [Change; 4] = [
    ("the reciprocal root is taken by the integer trick 0x5f3759df without a step of Newton's", |x| trick(x, 0x5f37_59df, 0)),
    ("the reciprocal root is taken by the integer trick 0x5f3759df and one step of Newton's", |x| trick(x, 0x5f37_59df, 1)),
    ("the reciprocal root is taken by the integer trick 0x5f375a86 and one step of Newton's", |x| trick(x, 0x5f37_5a86, 1)),
    ("the reciprocal root is taken by the integer trick 0x5f3759df and two steps of Newton's", |x| trick(x, 0x5f37_59df, 2)),
];

/// A row in heads: each has its own mean and variance.
pub fn heads(op: Op, n: usize) -> Vec<Formula> {
    let widths = (2..=n / 2).rev().filter(|w| n.is_multiple_of(*w) && n / w <= HEADS && *w >= 8);
    let one = |w: usize| {
        formula(format!("each {w} columns of the row are normalized by themselves"), move |r: &At| {
            let mut y = Vec::with_capacity(r.cols);
            for (h, x) in r.x().chunks(w).enumerate() {
                let m = if op == Op::Layernorm { mean(x, |x| x) } else { 0.0 };
                let d = (mean(x, |x| (x - m).powi(2)) + r.eps).sqrt();
                y.extend(x.iter().enumerate().map(|(j, x)| (x - m) / d * r.gamma[h * w + j] + r.beta[h * w + j]));
            }
            y
        })
    };
    widths.map(one).collect()
}

/// Partial results of `w` columns merged as Chan has it, where the short last one is counted as if it had as many: in the merge, in its own
/// mean, in what the sum is divided by.
pub fn merged(op: Op, n: usize) -> Vec<Formula> {
    let mut all = Vec::new();
    for w in [32usize, 64, 128, 256, 512, 1024].into_iter().filter(|w| *w < n && !n.is_multiple_of(*w)) {
        for (own_mean, all_n) in [(true, true), (true, false), (false, true), (false, false)] {
            let words = format!(
                "partial results of {w} columns are merged as if the short last one had {w} too{}{}",
                if own_mean { "" } else { ", also in its own mean" },
                if all_n { ", and the variance is divided by as many" } else { "" }
            );
            all.push(formula(words, move |r: &At| {
                let (mut count, mut m, mut m2) = (0.0, 0.0, 0.0);
                for x in r.x().chunks(w) {
                    let by = if own_mean { x.len() as f64 } else { w as f64 };
                    let own = if op == Op::Layernorm { x.iter().sum::<f64>() / by } else { 0.0 };
                    let square: f64 = x.iter().map(|x| (x - own).powi(2)).sum();
                    let (with, delta) = (count + w as f64, own - m);
                    m += delta * w as f64 / with;
                    m2 += square + delta * delta * count * w as f64 / with;
                    count = with;
                }
                r.norm(m, (m2 / if all_n { count } else { r.n() } + r.eps).sqrt())
            }));
        }
    }
    all
}

/// Numbers of columns or elements that an address may be off by.
pub const SHIFTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Formulas of a whole row of so many columns, the right one first.
pub fn norms(op: Op, gain: &str, cols: usize) -> Vec<Formula> {
    let layer = op == Op::Layernorm;
    let center = move |x: &[f64]| if layer { mean(x, |x| x) } else { 0.0 };
    let variance = move |x: &[f64]| {
        let m = center(x);
        mean(x, |x| (x - m).powi(2))
    };
    let mut all = vec![formula("", move |r| {
        let (m, d) = r.moments(op);
        r.norm(m, d)
    })];
    all.push(formula(EPS_BESIDE, move |r| r.norm(center(r.x()), variance(r.x()).sqrt() + r.eps)));
    for eps in super::super::formula::EPS {
        let made = move |r: &At| r.norm(center(r.x()), (variance(r.x()) + f64::from(eps)).sqrt());
        all.push(formula(format!("eps is {eps:e}"), made));
    }
    let added = "eps is added to the reciprocal of the root, not under it";
    all.push(formula(added, move |r| r.norm(center(r.x()), 1.0 / (1.0 / variance(r.x()).sqrt() + r.eps))));
    all.push(formula("gamma is applied before the mean square is computed", move |r| {
        let y: Vec<f64> = r.x().iter().zip(r.gamma).map(|(x, g)| x * g).collect();
        r.norm(center(r.x()), (variance(&y) + r.eps).sqrt())
    }));
    all.push(formula("the mean is over the next power of two of columns", move |r| {
        let n = r.x().len();
        let part = n as f64 / n.next_power_of_two() as f64;
        let m = center(r.x()) * part;
        r.norm(m, (mean(r.x(), |x| (x - m).powi(2)) * part + r.eps).sqrt())
    }));
    let what = if layer { "variance" } else { "mean square" };
    for by in [1usize, 8, 16, 32, 64].into_iter().filter_map(|less| cols.checked_sub(less)).filter(|by| *by > 0) {
        all.push(formula(moments::divided(what, by, cols), move |r| {
            r.norm(center(r.x()), (variance(r.x()) * r.n() / by as f64 + r.eps).sqrt())
        }));
    }
    for parts in [2usize, 4, 8] {
        for (last, which) in [(false, "first"), (true, "last")] {
            all.push(formula(format!("mean and variance are those of the {which} 1/{parts} of the row"), move |r| {
                let n = (r.x().len() / parts).max(1);
                let x = if last { &r.x()[r.x().len() - n..] } else { &r.x()[..n] };
                r.norm(center(x), (variance(x) + r.eps).sqrt())
            }));
        }
    }
    for (d, which) in [(-1, "i − 1"), (1, "i + 1")] {
        all.push(formula(format!("mean and variance are those of row {which}"), move |r| {
            r.norm(center(r.row(d)), (variance(r.row(d)) + r.eps).sqrt())
        }));
    }
    for (words, root) in ROOTS {
        all.push(formula(words, move |r| {
            let m = center(r.x());
            r.norm(m, 1.0 / root(variance(r.x()) + r.eps))
        }));
    }
    if layer {
        all.push(formula("the variance is the mean square: the mean is not subtracted", move |r| {
            r.norm(center(r.x()), (mean(r.x(), |x| x * x) + r.eps).sqrt())
        }));
        all.push(formula("the mean is not subtracted from the values", move |r| r.norm(0.0, r.moments(op).1)));
        all.push(formula("mean and variance are taken as 0 and the mean square", move |r| {
            r.norm(0.0, (mean(r.x(), |x| x * x) + r.eps).sqrt())
        }));
        all.push(formula("beta is not added", move |r| {
            let (m, d) = r.moments(op);
            r.with(m, d, |j| r.gamma[j], |_| 0.0)
        }));
        all.push(formula("beta is multiplied by gamma too", move |r| {
            let (m, d) = r.moments(op);
            r.with(m, d, |j| r.gamma[j], |j| r.beta[j] * r.gamma[j])
        }));
    }
    let rounded = format!("{gain} is rounded to bf16");
    let own: [Change; 4] = [
        ("gamma is not applied", |_| 1.0),
        ("1 is added to gamma, which already contains it", |g| g + 1.0),
        ("1 is not added to gamma, which is stored minus one", |g| g - 1.0),
        (&rounded, |g| f64::from(round_to(Format::Bf16, g as f32))),
    ];
    for (words, change) in own {
        all.push(formula(words, move |r| {
            let (m, d) = r.moments(op);
            r.with(m, d, |j| change(r.gamma[j]), |j| r.beta[j])
        }));
    }
    for f in [Format::Bf16, Format::F16] {
        let round = move |x: f64| f64::from(round_to(f, x as f32));
        all.push(formula(format!("the normalized value is rounded to {f} before gamma multiplies it"), move |r| {
            let (m, d) = r.moments(op);
            r.x().iter().enumerate().map(|(j, x)| round((x - m) / d) * r.gamma[j] + r.beta[j]).collect()
        }));
        all.push(formula(format!("the reciprocal of the root is rounded to {f}"), move |r| {
            let (m, d) = r.moments(op);
            r.norm(m, 1.0 / round(1.0 / d))
        }));
        all.push(formula(format!("values are rounded to {f} before anything else"), move |r| {
            let x: Vec<f64> = r.x().iter().map(|x| round(*x)).collect();
            let (m, d) = (center(&x), (variance(&x) + r.eps).sqrt());
            x.iter().enumerate().map(|(j, x)| (x - m) / d * r.gamma[j] + r.beta[j]).collect()
        }));
        all.push(formula(format!("the result is rounded to {f} before it is stored"), move |r| {
            let (m, d) = r.moments(op);
            r.norm(m, d).into_iter().map(round).collect()
        }));
        if layer {
            all.push(formula(format!("the mean is rounded to {f}"), move |r| r.norm(round(center(r.x())), r.moments(op).1)));
            // A large mean is off by more than the row varies, and the variance has the square of that.
            all.push(formula(format!("the mean is rounded to {f}, and the variance is about that"), move |r| {
                let m = round(center(r.x()));
                r.norm(m, (mean(r.x(), |x| (x - m).powi(2)) + r.eps).sqrt())
            }));
            all.push(formula(format!("the sum is rounded to {f} before beta is added"), move |r| {
                let (m, d) = r.moments(op);
                r.x().iter().enumerate().map(|(j, x)| round((x - m) / d * r.gamma[j]) + r.beta[j]).collect()
            }));
        }
    }
    for (d, which) in [(-1, "i − 1"), (1, "i + 1")] {
        all.push(formula(format!("row i holds row {which}, wrapped"), move |r| {
            let x = r.row(d);
            let (m, d) = (center(x), (variance(x) + r.eps).sqrt());
            x.iter().enumerate().map(|(j, x)| (x - m) / d * r.gamma[j] + r.beta[j]).collect()
        }));
    }
    // A pointer that does not go on with the loop over steps of the row.
    for step in (3..13).map(|p| 1usize << p).filter(|s| *s < cols) {
        all.push(formula(format!("column j takes gamma[j mod {step}]"), move |r| {
            let (m, d) = r.moments(op);
            r.with(m, d, |j| r.gamma[j % step], |j| r.beta[j])
        }));
        if layer {
            all.push(formula(format!("column j takes beta[j mod {step}]"), move |r| {
                let (m, d) = r.moments(op);
                r.with(m, d, |j| r.gamma[j], |j| r.beta[j % step])
            }));
            all.push(formula(format!("column j takes gamma[j mod {step}] and beta[j mod {step}]"), move |r| {
                let (m, d) = r.moments(op);
                r.with(m, d, |j| r.gamma[j % step], |j| r.beta[j % step])
            }));
        }
    }
    for shift in SHIFTS {
        for (before, sign) in [(false, '+'), (true, '−')] {
            let of = move |j: usize, n: usize| if before { (j + n - shift % n) % n } else { (j + shift) % n };
            all.push(formula(format!("column j takes gamma[j {sign} {shift}], wrapped"), move |r| {
                let (m, d) = r.moments(op);
                r.with(m, d, |j| r.gamma[of(j, r.gamma.len())], |j| r.beta[j])
            }));
            if layer {
                all.push(formula(format!("column j takes beta[j {sign} {shift}], wrapped"), move |r| {
                    let (m, d) = r.moments(op);
                    r.with(m, d, |j| r.gamma[j], |j| r.beta[of(j, r.beta.len())])
                }));
            }
        }
    }
    all
}
