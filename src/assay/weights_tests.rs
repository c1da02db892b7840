//! Values times codes: weights pass rounded to 16 bits, and they pass unrounded, each with its own bound. Nothing in between passes.

use super::product::{misses, nearest};
use crate::compare::{Judged, OutFormat};
use crate::job::{Job, Operand, Operands, OutSpec};
use crate::op::{self, Args64, Op, Params};
use crate::quant::{Level, QTensorParts};
use crate::recipe::Recipe;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor, Zero};
use ndarray::Array2;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const M: usize = 5;
const N: usize = 7;
const K: usize = 256;

fn round(f: Format, x: f64) -> f64 {
    f.decode(f.encode(x, Rounding::NearestEven, Overflow::Native))
}

/// A product of values of `dtype` with weights of `format`, groups of `group` along K and scales of `scales`.
struct Case {
    job: Job,
    a: Array2<f64>,
    w: QTensor,
}

fn case(dtype: Format, format: Format, group: usize, scales: Format, global: Option<f32>, zeros: bool, seed: u64) -> Case {
    let mut rng = StdRng::seed_from_u64(seed);
    let values = (0..M * K).map(|_| round(dtype, rng.random_range(0.1..1.0)) as f32).collect();
    let codes: Vec<u8> = (0..N * K).map(|_| rng.random_range(0..1u32 << format.bits().min(4)) as u8).collect();
    let scale_inv: Vec<f32> = (0..N * K / group).map(|_| round(scales, rng.random_range(0.6..1.9)) as f32).collect();
    let zero = match zeros {
        true => Zero::Additive { zero: scale_inv.iter().map(|s| round(scales, f64::from(*s) * 0.37) as f32).collect(), mid: 8 },
        false => Zero::None,
    };
    let parts = QTensorParts {
        format,
        rows: N,
        cols: K,
        codes,
        granularity: Granularity::Group(group),
        scale_format: scales,
        scale_inv,
        zero,
        level: global.map(Level::whole),
    };
    with(Tensor::rounded(dtype, M, K, values).unwrap(), QTensor::new(parts).unwrap())
}

/// Weights as a recipe makes them.
fn by_recipe(dtype: Format, recipe: &str, seed: u64) -> Case {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut draw = |n: usize, low: f32| (0..n).map(|_| rng.random_range(low..1.0)).collect::<Vec<f32>>();
    let (a, w) = (Tensor::rounded(dtype, M, K, draw(M * K, 0.1)), Tensor::rounded(dtype, N, K, draw(N * K, -0.6)));
    with(a.unwrap(), recipe.parse::<Recipe>().unwrap().quantize(&w.unwrap()).unwrap().q)
}

fn with(a: Tensor, w: QTensor) -> Case {
    let operands = Operands::of(Operand::High(a.clone()), Some(Operand::Quantized(w.clone())));
    let job = Job {
        op: Op::Gemm,
        params: Params::default(),
        operands,
        out: OutSpec::High(Format::F32),
        accumulator: Some("any_unit".parse().unwrap()),
    };
    Case { job, a: a.to_f64(), w }
}

impl Case {
    /// A right kernel with these weights: f32 in two halves, one term after the other, the halves joined by `join`, the result of type `out`.
    fn run(&self, weight: &dyn Fn(usize, usize) -> f64, join: &dyn Fn(f32, f32) -> f32, out: Format) -> Vec<f64> {
        let half = |i: usize, j: usize, from: usize| {
            (from..from + K / 2).fold(0.0f32, |y, k| (self.a[(i, k)] as f32).mul_add(weight(j, k) as f32, y))
        };
        let element = |i: usize, j: usize| round(out, f64::from(join(half(i, j, 0), half(i, j, K / 2))));
        (0..M).flat_map(|i| (0..N).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect()
    }
    fn judged(&self, actual: &[f64], out: Format) -> (Judged, String) {
        let args = Args64 { a: self.a.clone(), b: Some(self.w.dequantize()), ..Args64::default() };
        let ideal = op::define(Op::Gemm, &Params::default(), &args).unwrap();
        let bound = nearest(&self.job, &ideal, &OutFormat::high(out), false, &|b| misses(b, actual, None)).unwrap();
        (bound.judge(actual).unwrap(), bound.reference().to_string())
    }
}

fn add(x: f32, y: f32) -> f32 {
    x + y
}

fn cases() -> Vec<(Case, Format)> {
    let mut all = Vec::new();
    for dtype in [Format::Bf16, Format::F16] {
        all.push((case(dtype, Format::E2m1, 32, Format::E8m0, None, false, 1), dtype));
        all.push((case(dtype, Format::E2m1, 16, Format::E4m3, None, false, 2), dtype));
        all.push((case(dtype, Format::E2m1, 16, Format::E4m3, Some(0.0137), false, 3), dtype));
        all.push((case(dtype, Format::Int4, 64, Format::F32, None, false, 4), dtype));
        all.push((case(dtype, Format::Uint4, 64, Format::Bf16, None, true, 5), dtype));
        all.push((case(dtype, Format::Uint4, 64, Format::F16, None, true, 6), dtype));
        all.push((by_recipe(dtype, "gguf_q4_k", 7), dtype));
        all.push((by_recipe(dtype, "bnb_nf4", 8), dtype));
    }
    all
}

#[test]
fn both_references_pass_and_are_named() {
    for (c, dtype) in cases() {
        let what = format!("{dtype} × {} by {}", c.w.format(), c.w.scale_format());
        let plain = |j: usize, k: usize| c.w.value(j, k);
        let once = |j: usize, k: usize| round(dtype, c.w.value(j, k));
        let zero = |j: usize, k: usize| match c.w.zero() {
            Zero::Additive { .. } => c.w.affine(c.w.scale_index(j, k)).plus,
            _ => 0.0,
        };
        let twice = |j: usize, k: usize| round(dtype, round(dtype, c.w.value(j, k) - zero(j, k)) + zero(j, k));
        let through = |j: usize, k: usize| {
            let t = if c.w.scale_format().is_high() { c.w.scale_format() } else { Format::F32 };
            round(dtype, round(t, round(t, c.w.value(j, k) - zero(j, k)) + zero(j, k)))
        };
        for (name, weight) in
            [("plain", &plain as &dyn Fn(usize, usize) -> f64), ("once", &once), ("twice", &twice), ("through", &through)]
        {
            for out in [Format::F32, Format::Bf16, Format::F16] {
                let (j, reference) = c.judged(&c.run(weight, &add, out), out);
                assert_eq!((j.violations, j.improbable, j.unjudged), (0, 0, 0), "{what}, {name}, {out}: {reference}: {j:?}");
                let same = (0..N).all(|j| (0..K).all(|k| weight(j, k) == plain(j, k)));
                // What f16 loses is less than what the widest unit may.
                if out == Format::F32 && dtype == Format::Bf16 {
                    assert_eq!(reference == "weights not rounded", same, "{what}, {name}: {reference}");
                }
            }
        }
    }
}

#[test]
fn what_the_type_of_the_scales_let_pass_fails() {
    for (c, dtype) in cases() {
        let what = format!("{dtype} × {} by {}", c.w.format(), c.w.scale_format());
        let right = c.run(&|j, k| round(dtype, c.w.value(j, k)), &add, Format::F32);
        let wrong: [(&str, Vec<f64>); 5] = [
            ("half", right.iter().map(|y| y / 2.0).collect()),
            ("zeros", vec![0.0; right.len()]),
            ("gain 1.1", right.iter().map(|y| y * 1.1).collect()),
            ("gain 1.001", right.iter().map(|y| y * 1.001).collect()),
            // Parts of a split added in f16 (of bf16, in bf16).
            (
                "split",
                c.run(
                    &|j, k| round(dtype, c.w.value(j, k)),
                    &|x, y| round(dtype, round(dtype, x.into()) + round(dtype, y.into())) as f32,
                    Format::F32,
                ),
            ),
        ];
        for (name, y) in wrong {
            for out in [Format::F32, dtype] {
                let actual: Vec<f64> = y.iter().map(|y| round(out, *y)).collect();
                let (j, reference) = c.judged(&actual, out);
                // A result of the parts' own type hides their rounding in its last place, most of it.
                let hidden = out != Format::F32 && (name == "split" || name == "gain 1.001")
                    // So does what zero points taken apart from the codes may cost in f16.
                    || name == "split" && dtype == Format::F16 && matches!(c.w.zero(), Zero::Additive { .. });
                assert!(j.violations > 0 || hidden, "{what}: {name} in {out} passes, {reference}");
            }
        }
        // One reference for all elements: columns of one and columns of the other are neither.
        let once = |j: usize, k: usize| round(dtype, c.w.value(j, k));
        let mixed = c.run(&|j, k| if j % 2 == 0 { c.w.value(j, k) } else { once(j, k) }, &add, Format::F32);
        let rounds = (0..2).map(|p| (0..N).filter(|j| j % 2 == p).any(|j| (0..K).any(|k| once(j, k) != c.w.value(j, k))));
        if rounds.eq([true, true]) && dtype == Format::Bf16 {
            assert!(c.judged(&mixed, Format::F32).0.violations > 0, "{what}: rounded in some columns only");
        }
    }
}

#[test]
fn weights_beyond_f16_are_not_judged() {
    let mut c = case(Format::F16, Format::Int4, 64, Format::F32, None, false, 9);
    let mut parts = c.w.clone().into_parts();
    parts.scale_inv[0] = 30_000.0;
    parts.codes[..64].fill(7);
    c.w = QTensor::new(parts).unwrap();
    c.job.operands.set(1, Operand::Quantized(c.w.clone()));
    // Inf in column 0, or 65,504 of it: the kernel's choice.
    for beyond in [f64::INFINITY, 65504.0] {
        let weight = |j: usize, k: usize| if c.w.value(j, k) > 65504.0 { beyond } else { round(Format::F16, c.w.value(j, k)) };
        let (j, _) = c.judged(&c.run(&weight, &add, Format::F32), Format::F32);
        assert_eq!((j.violations, j.unjudged), (0, M), "{beyond}");
    }
    let wrong: Vec<f64> = c.run(&|j, k| c.w.value(j, k), &add, Format::F32).iter().map(|y| y * 1.01).collect();
    assert!(c.judged(&wrong, Format::F32).0.violations > 0, "the other columns are judged");
}

/// A product rounded to bf16 and a zero point are added in f32, where the sum is a tie: RN_bf16(RN32(2^-30 + 1 + 2^-8)) = 1, and 1 + 2^-7 without that
/// rounding. The other group tells that product and sum were each rounded.
#[test]
fn a_sum_with_a_zero_point_is_rounded_to_f32_before_it_is_to_16_bits() {
    let (s, z) = (vec![2f32.powi(-30), 1.0035], vec![1.0 + 2f32.powi(-8), 0.0005]);
    let q = QTensor::new(QTensorParts {
        format: Format::Uint4,
        rows: 1,
        cols: 64,
        codes: vec![1; 64],
        granularity: Granularity::Group(32),
        scale_format: Format::F32,
        scale_inv: s.clone(),
        zero: Zero::Additive { zero: z.clone(), mid: 0 },
        level: None,
    });
    let mut c = with(Tensor::rounded(Format::Bf16, 1, 64, vec![1.0; 64]).unwrap(), q.unwrap());
    c.job.accumulator = Some(crate::model::Accumulator::new(crate::model::Inner::AnyOrder));
    let bf16 = |x: f32| round(Format::Bf16, f64::from(x)) as f32;
    let sum = |f: &dyn Fn(usize) -> f32| f64::from(32.0 * f(0) + 32.0 * f(1));
    let twice = |g: usize| bf16(bf16(s[g]) + z[g]);
    assert_eq!([twice(0), twice(1)], [1.0, 1.0]);
    let violations = |actual: f64| c.judged(&[actual], Format::F32).0.violations;
    assert_eq!(violations(sum(&twice)), 0);
    // Neither of both.
    assert_eq!([violations(sum(&|_| 1.0 + 2f32.powi(-6))), violations(63.0)], [1, 1]);
}
