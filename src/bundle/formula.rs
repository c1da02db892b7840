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

/// A smaller eps than frameworks take for values of about 1.
const SMALL_EPS: f32 = 1e-7;

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
            // A small eps beside the root is a larger one under it where the mean squares are alike.
            let beside = other.meta.params.eps != bundle.meta.params.eps
                && formulas::explain(bundle, found).is_some_and(|f| f.ends_with(formulas::EPS_BESIDE));
            let words = without_eps(bundle, &other, words)?;
            return Ok(Some(if beside { format!("{words}; or {}", formulas::EPS_BESIDE) } else { words }));
        }
    }
    Ok(formulas::explain(bundle, found))
}

/// What is said of the result of another eps: one so small that none gives the same result has no effect.
fn without_eps(bundle: &Bundle, other: &Bundle, words: String) -> Result<String> {
    let (given, eps) = (bundle.meta.params.eps, other.meta.params.eps);
    if !(bundle.meta.op.is_norm() && eps < SMALL_EPS && eps < given) {
        return Ok(words);
    }
    let mut none = other.clone();
    none.meta.params.eps = 0.0;
    let is = eps == 0.0 || assay::verdict_alone(&none)? != Verdict::Fail;
    let none = format!(
        "`eps` = {given:e} has no effect: it is left out, or added where it is nothing (beside the number of columns, to the reciprocal of the root)"
    );
    Ok(if is { none } else { words })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Writer;
    use crate::bundle::settle::emulated::read;
    use crate::{Format, op::Params};

    /// A norm of 3 rows of 4 by this epsilon, or a gated activation.
    fn bundle(op: &str, eps: &str) -> Bundle {
        let mut w = Writer::new(if op == "gated" { "activation" } else { op });
        let x: Vec<f32> = (0..12).map(|at| at as f32 - 4.5).collect();
        w.f32s("a", &[3, 4], &x);
        match op {
            "gated" => w.meta("fn", "swiglu").f32s("out", &[3, 2], &[0.0; 6]),
            "layernorm" => {
                w.meta("eps", eps).f32s("gamma", &[4], &[1.0; 4]).f32s("beta", &[4], &[0.5; 4]).f32s("out", &[3, 4], &x)
            }
            _ => w.meta("eps", eps).f32s("gamma", &[4], &[1.0; 4]).f32s("out", &[3, 4], &x),
        };
        read(&w)
    }

    /// Rows of one mean square, 0.05²: an eps of 1e-5 beside the root is one of 1e-6 under it.
    #[test]
    fn an_eps_beside_the_root_is_told_beside_the_one_that_gives_the_same() {
        let x: Vec<f32> = (0..24 * 32)
            .map(|at| if at % 2 == 0 { 0.03f32 } else { 0.004_1f32.sqrt() } * if at * 7 % 5 < 2 { -1.0 } else { 1.0 })
            .collect();
        let found = |out: &dyn Fn(f64) -> f64| {
            let mut w = Writer::new("rmsnorm");
            w.f32s("a", &[24, 32], &x).meta("eps", "1e-5").f32s("gamma", &[32], &[1.0; 32]);
            let y = x.iter().map(|x| out(f64::from(*x)) as f32).collect();
            w.values("out", &[24, 32], &Tensor::rounded(Format::Bf16, 24, 32, y).unwrap());
            assay::assay(&read(&w)).unwrap().reason
        };
        let beside = found(&|x| x / (0.05 + 1e-5));
        assert!(
            beside.starts_with("it is the result of `eps` = 1e-6, not 1e-5; or eps is added to the root, not under it"),
            "{beside}"
        );
        let far = found(&|x| x / (0.0025f64 + 1e-3).sqrt());
        assert!(far.starts_with("it is the result of `eps` = 1e-3, not 1e-5;") && !far.contains("root"), "{far}");
    }

    #[test]
    fn neighbours_of_a_formula_differ_from_it_in_one_thing() {
        for op in ["layernorm", "rmsnorm"] {
            let given = bundle(op, "1e-6");
            let all = others(&given).unwrap();
            let eps: Vec<f32> = all.iter().map(|(_, b)| b.meta.params.eps).collect();
            assert_eq!(eps, [1e-5, 1e-4, 1e-7, 1e-8, 1e-12, 1e-3, 1e-2, 0.0, 1e-6]);
            for (words, other) in &all[..8] {
                assert_eq!(*words, format!("it is the result of `eps` = {:e}, not 1e-6", other.meta.params.eps));
                let same = Params { eps: 1e-6, ..other.meta.params };
                assert!(same == given.meta.params && other.a.high == given.a.high);
            }
            assert_eq!(all[8].0, "it is the result of `zero_centered_gamma` = true");
            assert!(all[8].1.meta.params.zero_centered_gamma);
        }
        assert_eq!(others(&bundle("layernorm", "0.25")).unwrap().len(), EPS.len() + 1);
        let (words, other) = others(&bundle("gated", "")).unwrap().remove(0);
        assert!(words.contains("[gate | x]"), "{words}");
        let turned = other.a.high.unwrap();
        assert_eq!(turned.data(), [-2.5, -1.5, -4.5, -3.5, 1.5, 2.5, -0.5, 0.5, 5.5, 6.5, 3.5, 4.5]);
    }

    #[test]
    fn some_rows_of_a_bundle_are_those_of_its_values_and_its_result() {
        let few = rows_of(&bundle("rmsnorm", "1e-6"), &[0, 2]).unwrap();
        let Data::High(out) = &few.out.d else { panic!("values") };
        let x = few.a.high.as_ref().unwrap();
        assert_eq!((x.rows(), out.rows()), (2, 2));
        assert_eq!(x.data(), [-4.5, -3.5, -2.5, -1.5, 3.5, 4.5, 5.5, 6.5]);
        assert_eq!(out.data(), x.data());
        assert_eq!(x.dtype(), Format::F32);
    }

    /// 1,100 rows of 240 are more than are judged at once: of the wrong ones sixteen, and every 69th.
    #[test]
    fn a_formula_is_tried_on_wrong_rows_and_some_all_over() {
        let (rows, cols) = (1100, 240);
        let x: Vec<f32> = (0..rows * cols).map(|at| ((at * 7919 + at / 77) % 1009) as f32 / 100.0 - 5.0).collect();
        let wrong = |i: usize| i >= 500 && i % 2 == 1;
        let made = |i: usize| {
            let x = &x[i * cols..(i + 1) * cols];
            let square = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / cols as f64;
            let root = (square + 1e-6).sqrt() * if wrong(i) { 1.01 } else { 1.0 };
            x.iter().map(move |x| (f64::from(*x) / root) as f32).collect::<Vec<f32>>()
        };
        let mut w = Writer::new("rmsnorm");
        w.meta("eps", "1e-6").f32s("a", &[rows, cols], &x).f32s("gamma", &[cols], &vec![1.0; cols]);
        w.f32s("out", &[rows, cols], &(0..rows).flat_map(made).collect::<Vec<_>>());
        let bundle = read(&w);
        let found = assay::assay_by(&bundle, std::time::Duration::ZERO, None).unwrap();
        let some = some_rows(&bundle, &found).unwrap();
        let mut hand: Vec<usize> = (0..16).map(|n| 501 + 2 * n).chain((0..rows).step_by(69)).collect();
        hand.sort_unstable();
        hand.dedup();
        assert_eq!(some, hand);
        let small = rows_of(&bundle, &(0..1000).collect::<Vec<_>>()).unwrap();
        let found = assay::assay_by(&small, std::time::Duration::ZERO, None).unwrap();
        assert_eq!(some_rows(&small, &found), None, "it is judged whole");
    }
}
