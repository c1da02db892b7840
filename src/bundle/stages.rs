//! An amax of what a kernel has on its way to the result: an activation before its gate, a norm before gamma, a product before its bias.

use super::Bundle;
use super::assay::Answer;
use crate::compare::Verdict;
use crate::fault::{Class, Finding, amax};
use crate::job::Data;
use crate::op::Biases;
use crate::op::activation::act;
use crate::op::{Op, Params};
use crate::{Overflow, Rounding};

/// What a largest magnitude may be off that was taken of values rounded to bf16, relative.
const NEAR: f64 = 1.0 / 256.0;

/// What a scale may be off its amax over the format's maximum, relative.
const SCALED: f64 = 1e-5;

/// Words for what it is, and its largest magnitude.
type Stage = (&'static str, f64);

/// Everything that is computed before the result `ideal`.
fn stages(bundle: &Bundle, ideal: &[f64], cols: usize) -> Option<Vec<Stage>> {
    let each = |of: &dyn Fn(usize) -> f64| (0..ideal.len()).map(of).fold(0.0f64, |m, v| m.max(v.abs()));
    if bundle.meta.op.is_product() {
        let (ends, weights) = (bundle.offs.as_deref(), bundle.a.weights.as_deref());
        let bias = Biases::new(bundle.bias.as_ref()?, ends, weights, ideal.len() / cols);
        return Some(vec![("the product before its bias", each(&|at| ideal[at] - bias.at(at / cols, at % cols)))]);
    }
    let a = bundle.a.high.as_ref()?;
    let x = |at: usize, half: usize| f64::from(a.row(at / cols)[at % cols + half * cols]);
    Some(match (bundle.meta.op, &bundle.meta.params) {
        (Op::Gated, Params { act: Some(own), .. }) => vec![
            ("the activation before its gate", each(&|at| act(*own, x(at, 0)))),
            ("the gate alone", each(&|at| x(at, 1))),
            ("x before its activation", each(&|at| x(at, 0))),
            ("x times the gate without the activation", each(&|at| x(at, 0) * x(at, 1))),
        ],
        (Op::Activation, _) => vec![("the input, before the activation", each(&|at| x(at, 0)))],
        (Op::Layernorm | Op::Rmsnorm, params) => {
            let gamma = bundle.gamma.as_ref()?.data();
            let one = if params.zero_centered_gamma { 1.0 } else { 0.0 };
            let beta = |at: usize| bundle.beta.as_ref().map_or(0.0, |b| f64::from(b.data()[at % cols]));
            let gain = |at: usize| f64::from(gamma[at % cols]) + one;
            let before = |at: usize| if gain(at) == 0.0 { 0.0 } else { (ideal[at] - beta(at)) / gain(at) };
            let mut all = vec![("the input, before the norm", each(&|at| x(at, 0))), ("the norm before gamma", each(&before))];
            // Of a gain that is stored less one, and of one that is not.
            let other = |at: usize| before(at) * (gain(at) + 1.0 - 2.0 * one) + beta(at);
            let words = if one > 0.0 { "the norm times gamma, not 1 + gamma" } else { "the norm times 1 + gamma, not gamma" };
            all.push((words, each(&other)));
            if bundle.beta.is_some() {
                all.push(("the norm before beta", each(&|at| ideal[at] - beta(at))));
            }
            all
        }
        _ => return None,
    })
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}

/// An amax that is 0 or not there beside a result that has values, and the scale of 1 that a kernel takes then; all else is right.
fn missing(bundle: &Bundle, found: &Answer) -> Option<Finding> {
    let judged = found.judgement();
    let Data::Quantized(q) = &bundle.out.d else { return None };
    let alone = judged.comparison.judged.violations == 0 && found.verdict == Verdict::Fail;
    // A recipe by which 1 is wrong, and no amax that says otherwise.
    let is = alone && found.reason.contains("scale_inv[") && bundle.out.amax.is_none_or(|a| a == 0.0);
    let scale = bundle.out.scale.is_none_or(|s| s == 1.0) && q.level().is_none() && *q.scale_inv() == [1.0];
    let words = unscaled(largest(judged.bound.ideal()), q.format().max_finite(), bundle.out.amax.is_some())?;
    (is && scale).then(|| Finding::solved(Class::AmaxScope, "out.amax_missing", words))
}

/// What is said of a scale of 1 that is not the one of values up to `largest`, and whether an amax of 0 stands beside it.
pub(super) fn unscaled(largest: f64, max: f64, zero: bool) -> Option<String> {
    let right = largest / max;
    // Nobody's fault where 1 is nearly the right one.
    (right.is_finite() && right > 0.0 && !(0.75..=1.5).contains(&right)).then(|| {
        let [right] = crate::compare::digits::apart([right]);
        let amax = if zero {
            "amax is never computed: it is 0, and the scale falls back to 1"
        } else {
            "the scale is 1, as of no amax,"
        };
        format!("{amax} where scale_inv is to be {right}; the codes are those of the result without a scale")
    })
}

/// An amax of what is scaled already: of the values times scale, or of the codes that these become.
fn of_codes(bundle: &Bundle, largest: f64, amax: f64) -> Option<Finding> {
    let words = format!("{}: {amax:.5} instead of {largest:.5}; the codes are right", scaled(bundle, largest, amax)?);
    Some(Finding::solved(Class::AmaxScope, "out.amax_stage", words))
}

/// The same in words, of what is wrong beside it too.
pub(super) fn scaled(bundle: &Bundle, largest: f64, amax: f64) -> Option<&'static str> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    let by = q.affine(0).unit;
    // By a scale near 1 there is nothing to tell.
    (q.scale_inv().len() == 1 && by > 0.0 && !(0.99..=1.01).contains(&by)).then_some(())?;
    let scaled = largest / by;
    let f = q.format();
    let code = f.decode(f.encode(scaled, Rounding::NearestEven, Overflow::Saturate)).abs();
    let near = |y: f64| (amax - y).abs() <= SCALED * y;
    match () {
        () if near(scaled) => Some("out.amax is that of the values times scale, before they are rounded to codes"),
        () if near(code) => Some("out.amax is that of the codes, behind the multiplication by scale and the rounding"),
        () => None,
    }
}

/// The stage that an amax is of, where it is all that is wrong.
pub(super) fn explain(bundle: &Bundle, found: &Answer) -> Option<Finding> {
    if let Some(missing) = missing(bundle, found) {
        return Some(missing);
    }
    let judged = found.judgement();
    let (ideal, cols, amax) = (judged.bound.ideal(), judged.cols, f64::from(bundle.out.amax?));
    // By a recipe the scale may be all that is told: it is that of this amax.
    let of_amax = || match &bundle.out.d {
        Data::Quantized(q) if q.scale_inv().len() == 1 => {
            (q.affine(0).unit * q.format().max_finite() / amax - 1.0).abs() < SCALED
        }
        _ => false,
    };
    let told = found.reason.contains("amax[") || found.reason.contains("out.amax");
    let alone = judged.comparison.judged.violations == 0 && (told || found.reason.contains("scale_inv[") && of_amax());
    (found.verdict == Verdict::Fail && alone && !ideal.is_empty()).then_some(())?;
    if told && let Some(found) = of_codes(bundle, largest(ideal), amax) {
        return Some(found);
    }
    let Some((words, _)) = stages(bundle, ideal, cols).into_iter().flatten().find(|(_, y)| (amax - y).abs() <= NEAR * y) else {
        // Of a part of the result.
        found.diagnosis.as_ref().is_none_or(|d| d.findings.is_empty()).then_some(())?;
        let values = amax::as_computed(ideal, judged.bound.certain(), cols, amax as f32)?;
        let part = amax::parts_of(&values, amax as f32).into_iter().next()?;
        return Some(Finding::solved(Class::AmaxScope, part.variant, part.words));
    };
    let words = format!("out.amax is that of {words}: {amax:.5} instead of {:.5}; the codes are right", largest(ideal));
    Some(Finding::solved(Class::AmaxScope, "out.amax_stage", words))
}

#[cfg(test)]
mod tests {
    use super::super::named_tests::found;
    use super::super::{Writer, assay::assay};
    use crate::{Format, Overflow, Rounding, Tensor};

    type Of<'f> = &'f dyn Fn(f64, f64) -> f64;

    fn code(y: f64) -> u8 {
        Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
    }

    /// swiglu of 16 rows: the amax of silu(x), of the gate, of x; and an amax that none of these has.
    #[test]
    fn an_amax_of_what_comes_before_the_result_is_told() {
        let a = Tensor::rounded(Format::Bf16, 16, 64, (0..1024).map(|at| ((at * 37 % 101) as f32 - 50.0) / 16.0).collect())
            .unwrap();
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let pair = |at: usize| (f64::from(a.row(at / 32)[at % 32]), f64::from(a.row(at / 32)[32 + at % 32]));
        let largest = |of: Of| (0..512).map(|at| of(pair(at).0, pair(at).1).abs()).fold(0.0, f64::max);
        let with = |amax: f64| {
            let mut w = Writer::new("activation");
            let codes = (0..512).map(|at| code(silu(pair(at).0) * pair(at).1 * 8.0)).collect();
            w.meta("fn", "swiglu").values("a", &[16, 64], &a).raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 32], codes);
            w.f32s("out.scale", &[1], &[8.0]).f32s("out.amax", &[1], &[amax as f32]);
            w
        };
        let stages: [(Of, &str); 3] = [
            (&|x, _| silu(x), "the activation before its gate"),
            (&|_, u| u, "the gate alone"),
            (&|x, u| x * u, "x times the gate without the activation"),
        ];
        for (of, words) in stages {
            let got = found(&with(largest(of)));
            assert!(got.1 == "amax_scope:out.amax_stage" && got.2.contains(words), "{words}: {} {}", got.1, got.2);
        }
        assert_ne!(found(&with(0.37 * largest(&|x, _| silu(x)))).1, "amax_scope:out.amax_stage");
        let scaled = 8.0 * largest(&|x, u| silu(x) * u);
        let rounded = Format::E4m3.decode(u32::from(code(scaled))).abs();
        let got = found(&with(rounded));
        let words = "the codes, behind the multiplication by scale and the rounding";
        assert!(got.1 == "amax_scope:out.amax_stage" && got.2.contains(words), "{got:?}");
        // relu², a norm and a product.
        let mut squared = Writer::new("activation");
        let relu = |x: f32| f64::from(x.max(0.0));
        let most = a.data().iter().fold(0.0f64, |m, x| m.max(relu(*x)));
        let codes = a.data().iter().map(|x| code(relu(*x).powi(2) * 8.0)).collect();
        squared.meta("fn", "srelu").values("a", &[16, 64], &a).raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 64], codes);
        squared.f32s("out.scale", &[1], &[8.0]).f32s("out.amax", &[1], &[most as f32]);
        assert!(found(&squared).2.contains("the input, before the activation"), "{:?}", found(&squared));
        let gamma: Vec<f32> = (0..64).map(|j| 0.5 + 0.03 * j as f32).collect();
        let root = |i: usize| (a.row(i).iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 64.0 + 1e-5).sqrt();
        let normed = |at: usize| f64::from(a.data()[at]) / root(at / 64);
        let most = (0..1024).map(|at| normed(at).abs()).fold(0.0, f64::max);
        let codes = (0..1024).map(|at| code(normed(at) * f64::from(gamma[at % 64]) * 8.0)).collect();
        let mut norm = Writer::new("rmsnorm");
        norm.values("a", &[16, 64], &a).f32s("gamma", &[64], &gamma);
        norm.raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 64], codes);
        norm.f32s("out.scale", &[1], &[8.0]).f32s("out.amax", &[1], &[most as f32]);
        assert!(found(&norm).2.contains("the norm before gamma"), "{:?}", found(&norm));
        let bias: Vec<f32> = (0..16).map(|j| if j == 3 { 40.0 } else { -0.25 }).collect();
        let dot = |i: usize, j: usize| a.row(i).iter().zip(a.row(j)).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
        let most = (0..256).map(|at| dot(at / 16, at % 16).abs()).fold(0.0, f64::max);
        let codes = (0..256).map(|at| code((dot(at / 16, at % 16) + f64::from(bias[at % 16])) / 4.0)).collect();
        let mut product = Writer::new("gemm");
        product.values("a", &[16, 64], &a).values("b", &[16, 64], &a).f32s("bias", &[16], &bias);
        product.raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 16], codes);
        product.f32s("out.scale", &[1], &[0.25]).f32s("out.amax", &[1], &[most as f32]);
        assert!(found(&product).2.contains("the product before its bias"), "{:?}", found(&product));
        let right = with(largest(&|x, u| silu(x) * u));
        let bundle = super::Bundle::parse(std::path::Path::new("x"), &right.to_bytes().unwrap()).unwrap();
        assert_eq!(super::super::answer::verdict(&assay(&bundle).unwrap()), crate::compare::Verdict::Pass);
    }

    /// A norm of FP8 by current scaling: without an amax its scale is 1. By a scale of its own, or with an amax, it is not that.
    #[test]
    fn an_amax_that_is_never_computed_is_told_by_its_scale_of_one() {
        let a = Tensor::rounded(Format::Bf16, 16, 64, (0..1024).map(|at| ((at * 37 % 101) as f32 - 50.0) / 16.0).collect())
            .unwrap();
        let root = |i: usize| (a.row(i).iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 64.0 + 1e-5).sqrt();
        let normed = |at: usize| f64::from(a.data()[at]) / root(at / 64);
        let with = |scale: f32, amax: f32| {
            let mut norm = Writer::new("rmsnorm");
            norm.values("a", &[16, 64], &a).f32s("gamma", &[64], &[1.0; 64]).meta("recipe", "te_current");
            let codes = (0..1024).map(|at| code(normed(at) * f64::from(scale))).collect();
            norm.raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 64], codes);
            norm.f32s("out.scale", &[1], &[scale]).f32s("out.scale_inv", &[1], &[1.0 / scale]);
            if amax >= 0.0 {
                norm.f32s("out.amax", &[1], &[amax]);
            }
            found(&norm)
        };
        let got = with(1.0, 0.0);
        assert!(got.1 == "amax_scope:out.amax_missing" && got.2.contains("the scale falls back to 1"), "{got:?}");
        let got = with(1.0, -1.0);
        assert!(got.1 == "amax_scope:out.amax_missing" && got.2.starts_with("the scale is 1, as of no amax"), "{got:?}");
        let mut cast = Writer::new("cast");
        let codes = a.data().iter().map(|x| code(f64::from(*x))).collect();
        cast.values("a", &[16, 64], &a).meta("recipe", "te_current");
        cast.raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 64], codes);
        cast.f32s("out.scale", &[1], &[1.0]).f32s("out.scale_inv", &[1], &[1.0]).f32s("out.amax", &[1], &[0.0]);
        let got = found(&cast);
        assert!(got.1 == "amax_scope:out.amax_missing" && got.2.contains("the scale falls back to 1"), "{got:?}");
        let largest = (0..1024).map(|at| normed(at).abs()).fold(0.0, f64::max) as f32;
        for (scale, amax) in [(8.0, 0.0), (1.0, largest), (448.0 / largest, 0.0)] {
            assert_ne!(with(scale, amax).1, "amax_scope:out.amax_missing", "{scale} {amax}");
        }
    }

    /// layernorm with gamma and beta: the amax of what gamma multiplies, without what beta adds.
    #[test]
    fn an_amax_before_gamma_is_without_beta() {
        let a = Tensor::rounded(Format::Bf16, 16, 64, (0..1024).map(|at| ((at * 37 % 101) as f32 - 50.0) / 16.0).collect())
            .unwrap();
        let (gamma, beta) = (vec![0.5f32; 64], (0..64).map(|j| 0.25 + 0.03 * j as f32).collect::<Vec<f32>>());
        let mean = |i: usize, of: &dyn Fn(f64) -> f64| a.row(i).iter().map(|x| of(f64::from(*x))).sum::<f64>() / 64.0;
        let normed = |at: usize| {
            let m = mean(at / 64, &|x| x);
            (f64::from(a.data()[at]) - m) / (mean(at / 64, &|x| (x - m).powi(2)) + 1e-5).sqrt()
        };
        let most = (0..1024).map(|at| normed(at).abs()).fold(0.0, f64::max);
        let codes = (0..1024).map(|at| code((normed(at) * 0.5 + f64::from(beta[at % 64])) * 8.0)).collect();
        let mut w = Writer::new("layernorm");
        w.values("a", &[16, 64], &a).f32s("gamma", &[64], &gamma).f32s("beta", &[64], &beta);
        w.raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 64], codes);
        w.f32s("out.scale", &[1], &[8.0]).f32s("out.amax", &[1], &[most as f32]);
        let found = found(&w);
        assert!(found.1 == "amax_scope:out.amax_stage" && found.2.contains("the norm before gamma"), "{found:?}");
    }

    /// relu has the amax of its input. Beside codes that are wrong, or an amax that is right, nothing is said of it.
    #[test]
    fn an_amax_is_told_where_it_is_all_that_is_wrong() {
        let a = Tensor::rounded(Format::Bf16, 16, 64, (0..1024).map(|at| ((at * 37 % 101) as f32 - 50.0) / 16.0).collect())
            .unwrap();
        let told = |fault: &dyn Fn(usize, f64) -> f64, amax: f32| {
            let mut w = Writer::new("activation");
            let codes = a.data().iter().enumerate().map(|(at, x)| code(fault(at, f64::from(x.max(0.0))) * 8.0)).collect();
            w.meta("fn", "relu").values("a", &[16, 64], &a).raw("out.codes", safetensors::Dtype::F8_E4M3, &[16, 64], codes);
            w.f32s("out.scale", &[1], &[8.0]).f32s("out.amax", &[1], &[amax]);
            let bundle = super::Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap();
            super::explain(&bundle, &assay(&bundle).unwrap())
        };
        let negative = a.data().iter().fold(0.0f32, |m, x| m.max(-x));
        let positive = a.data().iter().fold(0.0f32, |m, x| m.max(*x));
        assert_eq!((negative, positive), (3.125, 3.125));
        assert!(told(&|_, y| y, 3.125).is_none(), "right");
        assert!(told(&|at, y| if at < 64 { 0.5 * y } else { y }, 3.125).is_none(), "half a row");
    }
}
