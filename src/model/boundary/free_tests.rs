//! What PyTorch, NumPy and Triton write for the same formula is inside; a wrong formula is not.

use super::*;
use crate::job::{Operand, Operands};
use crate::op::{Clamp, Params};
use crate::{Format, Tensor};

/// e^x to 2 ulp, either way, by the parity of a word.
fn exp(x: f32, word: u32) -> f32 {
    let y = f64::from(x).exp() as f32;
    nudge(y, word % 5)
}
/// tanh x to an ulp, either way; ±1 where it has run out, as every library has it.
fn tanh(x: f32, word: u32) -> f32 {
    if x.abs() >= 10.0 {
        return x.signum();
    }
    nudge(f64::from(x).tanh() as f32, 1 + word % 3).clamp(-1.0, 1.0)
}
/// erf x to 2 ulp either way, ±1 where it has run out: CUDA's, Sleef's, XLA's from 3.83 on.
fn erf(x: f32, word: u32) -> f32 {
    if x.abs() >= 4.0 {
        return x.signum();
    }
    nudge(libm::erf(f64::from(x)) as f32, word % 5).clamp(-1.0, 1.0)
}
/// y moved by up to two ulp.
fn nudge(y: f32, by: u32) -> f32 {
    if !y.is_finite() || y == 0.0 {
        return y;
    }
    f32::from_bits((y.to_bits() + by).saturating_sub(2))
}

/// 2^(x·log₂e) as Triton has it.
fn exp_by_two(x: f32) -> f32 {
    f64::from(x * std::f32::consts::LOG2_E).exp2() as f32
}

/// Every way to write an activation, of the same x.
#[allow(clippy::excessive_precision)]
fn ways(f: Act, x: f32, word: u32) -> Vec<f32> {
    let b = (2.0f64 / std::f64::consts::PI).sqrt() as f32;
    match f {
        Act::Gelu => {
            let cube = [x * x * x, f64::from(x).powi(3) as f32, x * (x * x)];
            let inner = cube.iter().flat_map(|c| [b * (x + 0.044715 * c), b * 0.044715f32.mul_add(*c, x)]);
            let inner = inner.chain([x * (0.79788456 + 0.03567741 * x * x), b * x * (1.0 + 0.044715 * x * x)]);
            inner
                .flat_map(|z| {
                    let t = tanh(z, word);
                    [0.5 * x * (1.0 + t), x * (0.5 * (1.0 + t)), x * (0.5 + 0.5 * t), x / (1.0 + exp(-2.0 * z, word))]
                })
                .collect()
        }
        Act::Silu | Act::Qgelu => {
            let z = if f == Act::Silu { x } else { 1.702 * x };
            let stable = if z < 0.0 { exp(z, word) / (1.0 + exp(z, word)) } else { 1.0 / (1.0 + exp(-z, word)) };
            let quick = 1.0 / (1.0 + exp_by_two(-z));
            vec![
                x / (1.0 + exp(-z, word)),
                x * (1.0 / (1.0 + exp(-z, word))),
                x * stable,
                x * quick,
                x * nudge(quick, word % 5),
            ]
        }
        Act::GeluErf => {
            let mut all = Vec::new();
            for z in [x * std::f32::consts::FRAC_1_SQRT_2, x / std::f32::consts::SQRT_2, f64::from(x) as f32 * 0.70710677f32] {
                let e = erf(z, word);
                let c = nudge(libm::erfc(f64::from(-z)) as f32, word % 5).min(2.0);
                all.extend([0.5 * x * (1.0 + e), x * 0.5 * (1.0 + e), x * (0.5 * (1.0 + e)), x * (0.5 + 0.5 * e)]);
                all.extend([(0.5 * x).mul_add(e, 0.5 * x), 0.5 * x + 0.5 * x * e, 0.5 * x * c, x * (0.5 * c)]);
            }
            let exact = 0.5 * libm::erfc(-f64::from(x) / std::f64::consts::SQRT_2);
            all.extend([(f64::from(x) * exact) as f32, x * nudge(exact as f32, word % 5).min(1.0)]);
            all
        }
        Act::Relu => vec![x.max(0.0)],
        // With their gates, below.
        Act::SwigluOai(_) | Act::SwigluLimit(_) => Vec::new(),
        Act::Srelu => vec![x.max(0.0) * x.max(0.0)],
    }
}

const ACTS: [Act; 6] = [Act::Gelu, Act::Silu, Act::Qgelu, Act::Relu, Act::Srelu, Act::GeluErf];

#[test]
fn activations_as_others_write_them_are_inside() {
    let mut word = 3u32;
    for i in 0..300_000 {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Every magnitude, and often those where the functions bend.
        let x = if i % 3 == 0 {
            f32::from_bits(word)
        } else {
            ((f64::from(word) / 2f64.powi(31) - 1.0) * [12.0, 100.0][i % 2]) as f32
        };
        if x.is_nan() {
            continue;
        }
        for f in ACTS {
            let allowed = free::act(f, x);
            for (way, y) in ways(f, x, word >> 8).into_iter().enumerate() {
                assert!(allowed.allows(f64::from(y)), "{f:?}({x:e}), way {way}: {y:e} is outside {allowed:?}");
            }
        }
    }
}

/// Of |x| below 20, so that nothing has run out: a hundred-thousandth off, the error function for tanh and tanh for it, 1.7 for 1.702.
#[test]
fn wrong_activations_are_outside() {
    let of = |f: Act, wrong: &dyn Fn(f64) -> f64| {
        let xs = (1..2000).map(|i| (f64::from(i) / 400.0) as f32);
        xs.filter(|x| !free::act(f, *x).allows(wrong(f64::from(*x)))).count()
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    assert!(of(Act::Silu, &|x| x * sigmoid(x) * 1.00001) > 1900);
    assert!(of(Act::Qgelu, &|x| x * sigmoid(1.7 * x)) > 1800);
    assert!(of(Act::Gelu, &|x| x * 0.5 * (1.0 + statrs::function::erf::erf(x / std::f64::consts::SQRT_2))) > 1200);
    assert!(of(Act::Srelu, &|x| x * x * (1.0 + 3e-7)) > 1900);
    assert!(of(Act::GeluErf, &|x| x * 0.5 * (1.0 + (0.7978845608 * (x + 0.044715 * x.powi(3))).tanh())) > 1200);
    assert!(of(Act::GeluErf, &|x| x * 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2) * 1.00001) > 1900);
}

fn norm(op: Op, x: &[f32], gamma: &[f32], beta: &[f32], eps: f32) -> Job {
    let row = |v: &[f32]| Tensor::new(Format::F32, 1, v.len(), v.to_vec()).unwrap();
    let operands = Operands {
        gamma: Some(row(gamma)),
        beta: (op == Op::Layernorm).then(|| row(beta)),
        ..Operands::of(Operand::High(row(x)), None)
    };
    Job { op, params: Params { eps, ..Params::default() }, operands, out: OutSpec::High(Format::F32), accumulator: None }
}

/// Mean and M₂ as PyTorch's CUDA kernel has them: one update an element.
fn welford(x: &[f32]) -> (f32, f32) {
    let (mut mean, mut m2) = (0f32, 0f32);
    for (k, x) in x.iter().enumerate() {
        let d = x - mean;
        mean += d / (k as f32 + 1.0);
        m2 += d * (x - mean);
    }
    (mean, m2)
}

/// Sums in order, in pairs, backwards.
fn sums(x: &[f32]) -> [f32; 3] {
    fn pairs(x: &[f32]) -> f32 {
        if x.len() < 3 { x.iter().sum() } else { pairs(&x[..x.len() / 2]) + pairs(&x[x.len() / 2..]) }
    }
    [x.iter().sum(), pairs(x), x.iter().rev().sum()]
}

/// The exact sum and what f32 makes of it are inside, one percent more or less is not.
#[test]
fn welfords_sum_is_near_the_exact_one() {
    let sum = free::welford(8.0, 100, 1.0, 0.0);
    assert!(sum.allows(8.0) && sum.allows(8.0 * (1.0 - 3e-5)) && sum.allows(8.0 * (1.0 + 3e-5)));
    assert!(!sum.allows(7.9) && !sum.allows(8.1), "{sum:?}");
}

#[test]
fn norms_as_others_write_them_are_inside() {
    let mut word = 5u32;
    let mut next = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(word) / 2f64.powi(31) - 1.0) as f32
    };
    for trial in 0..400 {
        let n = [1, 2, 7, 64, 333, 1024][trial % 6];
        let (shift, factor) = ([0.0, 3.0, 100.0, -1e4][trial / 6 % 4], [1.0, 1e-3, 1e6][trial % 3]);
        let x: Vec<f32> = (0..n).map(|_| (next() + next() + shift) * factor).collect();
        let gamma: Vec<f32> = (0..n).map(|_| next() * 2.0).collect();
        let beta: Vec<f32> = (0..n).map(|_| next() * 2.0).collect();
        let eps = [1e-5f32, 0.0, 1e-12][trial / 2 % 3];
        let job = norm(Op::Layernorm, &x, &gamma, &beta, eps);
        let bounds = bounds(&job, Depths::any_order(&job)).unwrap();
        let inv = 1.0 / n as f32;
        let mut stats: Vec<(f32, f32)> = Vec::new();
        for sum in sums(&x) {
            for mean in [sum / n as f32, sum * inv] {
                let squares: Vec<f32> = x.iter().map(|x| (x - mean) * (x - mean)).collect();
                stats.extend(sums(&squares).iter().flat_map(|s| [(mean, s / n as f32), (mean, s * inv)]));
            }
        }
        let (mean, m2) = welford(&x);
        stats.push((mean, m2 / n as f32));
        for (mean, variance) in stats {
            for rs in [1.0 / (variance + eps).sqrt(), nudge((1.0 / f64::from(variance + eps).sqrt()) as f32, 4)] {
                for j in 0..n {
                    let (x, g, b) = (x[j], gamma[j], beta[j]);
                    let values = [
                        (x - mean) * rs * g + b,
                        ((x - mean) * (rs * g)) + b,
                        (x * rs + (-mean * rs)) * g + b,
                        x * (rs * g) + (b - mean * (rs * g)),
                        x.mul_add(rs, -mean * rs).mul_add(g, b),
                        (x - mean) / (variance + eps).sqrt() * g + b,
                    ];
                    for (way, y) in values.into_iter().enumerate() {
                        let allowed = bounds.values[0][j];
                        assert!(allowed.allows(f64::from(y)), "trial {trial}, n {n}, way {way}: {y:e} is outside {allowed:?}");
                    }
                }
            }
        }
        let job = norm(Op::Rmsnorm, &x, &gamma, &beta, eps);
        let bounds = self::bounds(&job, Depths::any_order(&job)).unwrap();
        let squares: Vec<f32> = x.iter().map(|x| x * x).collect();
        for square in sums(&squares).iter().flat_map(|s| [s / n as f32, s * inv]) {
            let rs = 1.0 / (square + eps).sqrt();
            for j in 0..n {
                let (x, g) = (x[j], gamma[j]);
                for y in [x * rs * g, x * (rs * g), x / (square + eps).sqrt() * g, x * nudge(rs, 4) * g] {
                    let allowed = bounds.values[0][j];
                    assert!(allowed.allows(f64::from(y)), "rms, trial {trial}, n {n}: {y:e} is outside {allowed:?}");
                }
            }
        }
    }
}

/// The unbiased variance, another eps, a mean left out: of rows of 64 of these data each is outside somewhere.
#[test]
fn wrong_norms_are_outside() {
    let x: Vec<f32> = (0..64).map(|i| ((i * 37 % 61) as f32 - 29.5) / 20.0 + 0.1).collect();
    let ones = vec![1.0; 64];
    let (mean, m2) = welford(&x);
    let values = |mean: f32, variance: f32, eps: f32| -> Vec<f64> {
        x.iter().map(|x| f64::from((x - mean) / (variance + eps).sqrt())).collect()
    };
    let job = norm(Op::Layernorm, &x, &ones, &vec![0.0; 64], 1e-5);
    let bounds = bounds(&job, Depths::any_order(&job)).unwrap();
    let outside = |v: Vec<f64>| bounds.values[0].iter().zip(v).filter(|(b, v)| !b.allows(*v)).count();
    assert_eq!(outside(values(mean, m2 / 64.0, 1e-5)), 0);
    assert!(outside(values(mean, m2 / 63.0, 1e-5)) > 50, "unbiased");
    assert!(outside(values(mean, m2 / 64.0, 1e-3)) > 50, "eps");
    assert!(outside(values(0.0, m2 / 64.0, 1e-5)) > 50, "no mean");
}

/// Squares beyond f32: infinite or not by the order. Variances below it: 1/√0. Nothing is known of such rows.
#[test]
fn rows_whose_squares_leave_the_range_are_open() {
    for (op, factor, eps) in
        [(Op::Layernorm, 1e20, 1e-5), (Op::Rmsnorm, 1e20, 1e-5), (Op::Layernorm, 1e-25, 0.0), (Op::Rmsnorm, 1e-25, 0.0)]
    {
        let x: Vec<f32> = (0..64).map(|i| ((i * 37 % 61) as f32 - 29.5) * factor).collect();
        let job = norm(op, &x, &vec![1.0; 64], &vec![0.5; 64], eps);
        let bounds = bounds(&job, Depths::any_order(&job)).unwrap();
        let ideal = 0.7;
        assert!(bounds.values[0].iter().all(|b| radius(*b, ideal) == f64::INFINITY), "{op:?} {factor}");
    }
}

/// gpt-oss's and vLLM's: σ by any e^x, (u + 1) as a sum, in an FMA, or multiplied out.
#[test]
fn clamped_swiglus_as_others_write_them_are_inside() {
    let mut word = 11u32;
    let mut next = |size: f32| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((f64::from(word) / 2f64.powi(31) - 1.0) as f32 * size, word >> 8)
    };
    for c in [Clamp::OAI, Clamp::new(1.5, 5.5)] {
        for i in 0..50_000 {
            let ((x, word), (gate, _)) = (next([12.0, 100.0][i % 2]), next(12.0));
            let (g, u) = (x.min(c.limit()), gate.clamp(-c.limit(), c.limit()));
            let allowed = free::gated(Act::SwigluOai(c), x, gate);
            for e in [exp(-(c.alpha() * g), word), exp_by_two(-(c.alpha() * g))] {
                for s in [g / (1.0 + e), g * (1.0 / (1.0 + e))] {
                    for y in [s * (u + 1.0), s.mul_add(u, s), s * u + s] {
                        assert!(allowed.allows(f64::from(y)), "oai({x:e}, {gate:e}): {y:e} is outside {allowed:?}");
                    }
                }
            }
            let (allowed, e) = (free::gated(Act::SwigluLimit(c), x, gate), exp(-g, word));
            for y in [g / (1.0 + e) * u, g * (1.0 / (1.0 + e)) * u] {
                assert!(allowed.allows(f64::from(y)), "limit({x:e}, {gate:e}): {y:e} is outside {allowed:?}");
            }
        }
    }
    // One in a hundred thousand more, or no 1, is not.
    let outside = free::gated(Act::SwigluOai(Clamp::OAI), 2.0, 3.0);
    let right = 2.0 / (1.0 + (-1.702f64 * 2.0).exp()) * 4.0;
    assert!(outside.allows(right) && !outside.allows(1.00001 * right) && !outside.allows(0.75 * right));
}

/// A fused kernel quantizes the f32 values of its norm; another rounds them to bf16 first. A scale of neither is outside.
#[test]
fn values_may_be_rounded_to_the_input_before_a_recipe_or_not() {
    let to_bf16 = |x: f32| crate::tensor::round_to(Format::Bf16, x);
    let x: Vec<f32> = (0..256).map(|i| to_bf16(((i * 37 % 251) as f32 - 125.5) / 40.0)).collect();
    let mut job = norm(Op::Rmsnorm, &x, &vec![1.0; 256], &[], 1e-5);
    job.operands.by_role[0][0] = Operand::High(Tensor::new(Format::Bf16, 1, 256, x.clone()).unwrap());
    job.out = OutSpec::Recipe("te_current".parse().unwrap());
    let squares: f32 = x.iter().map(|x| x * x).sum();
    let y = x.iter().map(|x| x / (squares / 256.0 + 1e-5).sqrt());
    let amax = y.fold(0.0f32, |m, y| m.max(y.abs()));
    let allows = |depths: Depths, amax: f32| {
        let bounds = bounds(&job, depths).unwrap();
        let scale_inv = f64::from(1.0 / (448.0 / amax));
        (bounds.amax[0].allows(f64::from(amax)), bounds.scale_inv[0].as_ref().unwrap()[0].allows(scale_inv))
    };
    let rounded = to_bf16(amax);
    assert!((amax - rounded).abs() > 1e-4 * amax, "{amax} is nearly a bf16");
    assert_eq!(allows(Depths::any_order(&job), rounded), (true, true));
    assert_eq!(allows(Depths::any_order(&job), amax), (true, true));
    assert_eq!(allows(Depths::cpu(&job), amax), (false, false));
    for other in [rounded * 1.005, rounded * 0.995] {
        assert_eq!(allows(Depths::any_order(&job), other), (false, false), "{other}");
    }
}
