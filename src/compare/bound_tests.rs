//! Correct chains never leave their bounds, the bounds are not vacuous, wrong kernels leave them.

use super::*;
use crate::Format;
use crate::op::Biases;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const U: f64 = probable::U32;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Data {
    Normal,
    Cancelling,
    Outliers,
    Positive,
}
const DATA: [Data; 4] = [Data::Normal, Data::Cancelling, Data::Outliers, Data::Positive];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Inner {
    Exact,
    Sequential,
    Pairwise,
    /// Blocks of 32 products aligned and truncated with the accumulator to 13 bits below the largest exponent, result truncated
    /// to 13 fraction bits.
    Truncating,
}
const INNER: [Inner; 4] = [Inner::Exact, Inner::Sequential, Inner::Pairwise, Inner::Truncating];

/// One product [m,n] of e4m3 codes with row scales: what a kernel reads.
struct Product {
    m: usize,
    n: usize,
    k: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    scale_a: Vec<f32>,
    scale_b: Vec<f32>,
    bias: Vec<f32>,
}

fn normal(rng: &mut StdRng) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}
fn e4m3(x: f64) -> f32 {
    OutFormat::scaled(Format::E4m3, 1.0, 1.0).round(0, x) as f32
}

impl Product {
    fn new(rng: &mut StdRng, data: Data, k: usize) -> Self {
        let (m, n) = (6, 5);
        let mut draw = |len: usize| -> Vec<f32> {
            (0..len)
                .map(|i| match data {
                    Data::Outliers if i % 17 == 3 => e4m3(normal(rng) * 100.0),
                    Data::Positive => e4m3(1.0 + normal(rng).abs()),
                    _ => e4m3(normal(rng) * 4.0),
                })
                .collect()
        };
        let (mut a, mut b) = (draw(m * k), draw(n * k));
        if data == Data::Cancelling {
            // The second half of every row takes the first half back, but for the last element.
            let half = k / 2;
            for row in 0..m {
                for x in 0..half.saturating_sub(1) {
                    a[row * k + half + x] = a[row * k + x];
                }
            }
            for row in 0..n {
                for x in 0..half.saturating_sub(1) {
                    b[row * k + half + x] = -b[row * k + x];
                }
            }
        }
        let mut scales = |len: usize| -> Vec<f32> { (0..len).map(|_| rng.random_range(0.001f32..0.1)).collect() };
        let (scale_a, scale_b) = (scales(m), scales(n));
        let bias = (0..n).map(|_| normal(rng) as f32 * 0.1).collect();
        Self { m, n, k, a, b, scale_a, scale_b, bias }
    }
    /// (ideal, Σ|a||b| + |bias|), exactly enough.
    fn ideal(&self) -> (Vec<f64>, Vec<f64>) {
        let element = |i: usize, j: usize, f: fn(f64) -> f64| -> f64 {
            let codes = |k| f64::from(self.a[i * self.k + k]) * f64::from(self.b[j * self.k + k]);
            (0..self.k).map(|k| f(codes(k))).sum::<f64>() * f64::from(self.scale_a[i]) * f64::from(self.scale_b[j])
                + f(f64::from(self.bias[j]))
        };
        let grid = || (0..self.m).flat_map(|i| (0..self.n).map(move |j| (i, j)));
        (grid().map(|(i, j)| element(i, j, |x| x)).collect(), grid().map(|(i, j)| element(i, j, f64::abs)).collect())
    }
    fn products(&self, i: usize, j: usize) -> Vec<f32> {
        (0..self.k).map(|k| self.a[i * self.k + k] * self.b[j * self.k + k]).collect()
    }
    /// The kernel's f32 value before output rounding.
    fn run(&self, inner: Inner) -> Vec<f64> {
        let mut y = Vec::new();
        for i in 0..self.m {
            for j in 0..self.n {
                let acc = accumulate(inner, &self.products(i, j));
                y.push(f64::from(acc * self.scale_a[i] * self.scale_b[j] + self.bias[j]));
            }
        }
        y
    }
    fn bound(&self, inner: Inner, out: &OutFormat) -> Bound {
        let (ideal, magnitude) = self.ideal();
        let bias = Biases::columns(self.bias.iter().map(|b| f64::from(*b)).collect());
        let accumulation = accumulation(inner, self.k);
        let p = ProductArithmetic {
            scale_roundings: 2,
            bias: Some(&bias),
            ..ProductArithmetic::plain(&accumulation, self.k).scaled_by(
                Format::E4m3,
                Format::E4m3,
                &[&self.scale_a, &self.scale_b],
            )
        };
        Bound::product(&p, self.n, &ideal, &magnitude, out).unwrap()
    }
}

fn accumulate(inner: Inner, products: &[f32]) -> f32 {
    match inner {
        Inner::Exact => products.iter().map(|p| f64::from(*p)).sum::<f64>() as f32,
        Inner::Sequential => products.iter().sum(),
        Inner::Pairwise if products.len() <= 1 => products.first().copied().unwrap_or(0.0),
        Inner::Pairwise => {
            let (left, right) = products.split_at(products.len() / 2);
            accumulate(inner, left) + accumulate(inner, right)
        }
        Inner::Truncating => products.chunks(32).fold(0.0, |c, block| {
            let terms = || block.iter().chain([&c]).map(|t| f64::from(*t));
            let largest = terms().map(f64::abs).fold(0.0, f64::max);
            if largest == 0.0 {
                return 0.0;
            }
            let truncate = |x: f64, quantum: f64| (x / quantum).trunc() * quantum;
            let quantum = largest.log2().floor().exp2() / 8192.0;
            let sum: f64 = terms().map(|t| truncate(t, quantum)).sum();
            if sum == 0.0 { 0.0 } else { truncate(sum, sum.abs().log2().floor().exp2() / 8192.0) as f32 }
        }),
    }
}

fn accumulation(inner: Inner, k: usize) -> Accumulation {
    let k = k as f64;
    // Truncation: 33 terms a step, each loses less than 2^-13 of the largest, which is at most (1+ε)S; then the sum loses 2^-13.
    let truncated = (k / 32.0).ceil() * 34.0 / 8192.0;
    let relative = match inner {
        Inner::Exact => U,
        Inner::Sequential => probable::gamma(k, U),
        Inner::Pairwise => probable::gamma(k.log2().ceil(), U),
        Inner::Truncating => truncated,
    };
    Accumulation { relative, of_partial: f64::INFINITY, absolute: probable::HALF_MIN_SUBNORMAL }
}

fn outputs() -> [OutFormat; 4] {
    let high = OutFormat::high;
    [high(Format::F32), high(Format::F16), high(Format::Bf16), OutFormat::scaled(Format::E4m3, 3.7, 1.0 / 3.7)]
}

#[test]
fn correct_chains_never_cross_and_the_bound_is_not_vacuous() {
    let mut rng = StdRng::seed_from_u64(20261121);
    for inner in INNER {
        let (mut certain, mut probable) = ([0.0f64; 4], [0.0f64; 4]);
        for data in DATA {
            for k in [1, 2, 3, 7, 32, 33, 100, 333, 1000] {
                for _ in 0..6 {
                    let p = Product::new(&mut rng, data, k);
                    let y = p.run(inner);
                    for (o, out) in outputs().iter().enumerate() {
                        let actual: Vec<f64> = y.iter().enumerate().map(|(i, t)| out.round(i, *t)).collect();
                        let j = p.bound(inner, out).judge(&actual).unwrap();
                        assert_eq!((j.violations, j.improbable, j.unjudged), (0, 0, 0), "{inner:?} {data:?} K {k}: {j:?}");
                        certain[o] = certain[o].max(j.ratio_certain);
                        probable[o] = probable[o].max(j.ratio_probable);
                    }
                }
            }
        }
        println!("{inner:?}: max ratio to certain {certain:.3?}, to probable {probable:.3?} (f32, f16, bf16, e4m3 output)");
        // In f32 nothing but the chain's own error is left to explain.
        assert!(certain[0] > 0.1, "{inner:?}: the certain bound is vacuous: {certain:?}");
        assert!(certain.iter().chain(&probable).all(|r| *r <= 1.0));
    }
}

#[test]
fn wrong_kernels_cross() {
    let mut rng = StdRng::seed_from_u64(7);
    for inner in INNER {
        for data in [Data::Normal, Data::Outliers, Data::Positive] {
            let p = Product::new(&mut rng, data, 320);
            let right = p.run(inner);
            let with = |change: &dyn Fn(&mut Product)| {
                let mut q = Product {
                    a: p.a.clone(),
                    b: p.b.clone(),
                    scale_a: p.scale_a.clone(),
                    scale_b: p.scale_b.clone(),
                    bias: p.bias.clone(),
                    ..p
                };
                change(&mut q);
                q.run(inner)
            };
            let map = |f: fn(f64) -> f64| right.iter().map(|y| f(*y)).collect::<Vec<_>>();
            let wrong = [
                ("gain 1.5", map(|y| y * 1.5)),
                ("zeros", map(|_| 0.0)),
                ("sign", map(|y| -y)),
                ("NaN", map(|_| f64::NAN)),
                ("swapped scales", with(&|q| q.scale_a.swap(0, 1))),
                ("dropped block", with(&|q| (0..q.m).for_each(|i| q.a[i * 320 + 64..i * 320 + 128].fill(0.0)))),
                ("dropped bias", with(&|q| q.bias.fill(0.0))),
            ];
            for (name, y) in wrong {
                for out in outputs() {
                    // A bias under the truncating accumulator's own error cannot be seen.
                    if name == "dropped bias" && inner == Inner::Truncating {
                        continue;
                    }
                    let actual: Vec<f64> = y.iter().enumerate().map(|(i, t)| out.round(i, *t)).collect();
                    let j = p.bound(inner, &out).judge(&actual).unwrap();
                    let seen = j.violations > 0 && j.ratio_certain > 1.0;
                    // A product of large positive values in e4m3 saturates, and bias 0.1 is below its spacing.
                    let coarse = out.format() == Format::E4m3 || (data != Data::Normal && name == "dropped bias");
                    assert!(seen || coarse, "{name} {inner:?} {data:?} {}: {j:?}", out.format());
                }
            }
            // 1 % is seen by every accumulator of f32 precision in every output of at least 8 bits of significand.
            if inner != Inner::Truncating {
                for out in &outputs()[..3] {
                    let actual: Vec<f64> = right.iter().enumerate().map(|(i, t)| out.round(i, *t * 1.01)).collect();
                    assert!(p.bound(inner, out).judge(&actual).unwrap().violations > 0, "{inner:?} {data:?} {}", out.format());
                }
            }
        }
    }
}

#[test]
fn group_scales_stay_inside() {
    let mut rng = StdRng::seed_from_u64(5);
    let mut worst = 0.0f64;
    for trial in 0..200 {
        let (m, n, groups, g) = (3, 4, 1 + trial % 9, 16);
        let k = groups * g;
        let out = &outputs()[trial / 2 % 4];
        let activation: Vec<f32> = (0..m * k).map(|_| half::f16::from_f64(normal(&mut rng)).to_f32()).collect();
        let codes: Vec<f32> = (0..n * k).map(|_| rng.random_range(-8..8) as f32).collect();
        let size = [1e-2, 1e-4, 1e-6][trial % 3];
        let scale: Vec<f32> = (0..n * groups).map(|_| rng.random_range(0.5f32..2.0) * size).collect();
        let grid = || (0..m).flat_map(|i| (0..n).map(move |j| (i, j)));
        let product = |i: usize, j: usize, x: usize| {
            f64::from(activation[i * k + x]) * f64::from(codes[j * k + x]) * f64::from(scale[j * groups + x / g])
        };
        let ideal: Vec<f64> = grid().map(|(i, j)| (0..k).map(|x| product(i, j, x)).sum()).collect();
        let magnitude: Vec<f64> = grid().map(|(i, j)| (0..k).map(|x| product(i, j, x).abs()).sum()).collect();
        // Integer weights with f32 group scales: P_g in f32, y = fma(P_g, s, y).
        let actual: Vec<f64> = grid()
            .map(|(i, j)| {
                let y = (0..groups).fold(0.0f32, |y, group| {
                    let range = group * g..(group + 1) * g;
                    let p: Vec<f32> = range.map(|x| activation[i * k + x] * codes[j * k + x]).collect();
                    accumulate(Inner::Sequential, &p).mul_add(scale[j * groups + group], y)
                });
                out.round(i * n + j, f64::from(y))
            })
            .collect();
        let accumulation = accumulation(Inner::Sequential, g);
        let p = ProductArithmetic { groups, ..ProductArithmetic::plain(&accumulation, k) };
        let bound = Bound::product(&p, n, &ideal, &magnitude, out).unwrap();
        let j = bound.judge(&actual).unwrap();
        assert_eq!((j.violations, j.improbable), (0, 0), "groups {trial}: {j:?}");
        if out.format() == Format::F32 {
            worst = worst.max(j.ratio_certain);
            // Scales of the neighbouring group.
            let wrong: Vec<f64> = actual.iter().zip(&ideal).map(|(a, d)| a + 1e-3 * d).collect();
            assert!(groups == 1 || bound.judge(&wrong).unwrap().violations > 0);
        }
    }
    println!("max ratio to certain, f32 output, groups: {worst:.3}");
    assert!(worst > 0.02, "{worst:?}");
}

#[test]
fn scales_whose_product_underflows() {
    // RN32(s_a·s_b) is subnormal: it loses up to 2^-150, and the sum multiplies that.
    let (sa, sb) = (1.3f32 * 2f32.powi(-73), 1.7f32 * 2f32.powi(-74));
    let sum = 3.0e30f64;
    let ideal = sum * f64::from(sa) * f64::from(sb);
    let actual = f64::from(sum as f32 * (sa * sb));
    assert!((actual - ideal).abs() > 1e-3 * ideal.abs(), "{actual:e} {ideal:e}: nothing was lost");
    let out = OutFormat::high(Format::F32);
    let p = ProductArithmetic { scale_roundings: 2, ..ProductArithmetic::plain(&Accumulation::EXACT, 4) };
    let p = p.scaled_by(Format::Bf16, Format::F32, &[&[sa], &[sb]]);
    let j = Bound::product(&p, 1, &[ideal], &[ideal], &out).unwrap().judge(&[actual]).unwrap();
    assert_eq!(j.violations, 0, "{j:?}");
    // A third scale, which the sum meets after those two, multiplies what they lost.
    let sc = 1024.0f32;
    let (ideal, actual) = (ideal * f64::from(sc), f64::from(sum as f32 * (sa * sb) * sc));
    let three = ProductArithmetic { scale_roundings: 3, ..ProductArithmetic::plain(&Accumulation::EXACT, 4) };
    let three = three.scaled_by(Format::Bf16, Format::F32, &[&[sa], &[sb], &[sc]]);
    let j = Bound::product(&three, 1, &[ideal], &[ideal], &out).unwrap().judge(&[actual]).unwrap();
    assert_eq!(j.violations, 0, "{j:?}");
    // Without underflow the term is not there.
    let p = ProductArithmetic::plain(&Accumulation::EXACT, 4).scaled_by(Format::Bf16, Format::F32, &[&[0.5], &[0.25]]);
    assert_eq!(p.after_underflow, 0.0);
    let tiny = Bound::product(&p, 1, &[1.0], &[1.0], &out).unwrap();
    assert!(tiny.certain()[0] < 1e-14);
}

#[test]
fn scales_may_meet_the_factors_first() {
    // K = 2 and cancellation: what dequantization lost does not cancel.
    let mut rng = StdRng::seed_from_u64(11);
    let out = OutFormat::high(Format::F32);
    let (mut with, mut without) = (0, 0);
    for _ in 0..2000 {
        let (sa, sb) = (rng.random_range(0.5f32..2.0), rng.random_range(0.5f32..2.0));
        let (a, b) = ([1.75f32, 1.5], [1.5f32, -1.75]);
        let deq: Vec<f32> = (0..2).map(|i| (a[i] * sa) * (b[i] * sb)).collect();
        let actual = f64::from(deq[0] + deq[1]);
        let scale = f64::from(sa) * f64::from(sb);
        let ideal: f64 = (0..2).map(|i| f64::from(a[i]) * f64::from(b[i]) * scale).sum();
        let magnitude: f64 = (0..2).map(|i| (f64::from(a[i]) * f64::from(b[i]) * scale).abs()).sum();
        let accumulation = Accumulation { relative: 0.0, of_partial: f64::INFINITY, absolute: 0.0 };
        let judge = |factor_roundings| {
            let p = ProductArithmetic { factor_roundings, scale_roundings: 2, ..ProductArithmetic::plain(&accumulation, 2) };
            Bound::product(&p, 1, &[ideal], &[magnitude], &out).unwrap().judge(&[actual]).unwrap().violations
        };
        with += judge(3);
        without += judge(0);
    }
    assert_eq!(with, 0);
    assert!(without > 100, "{without}: the case is too easy");
}

#[test]
fn a_fused_bias_is_inside() {
    let mut rng = StdRng::seed_from_u64(12);
    let out = OutFormat::high(Format::F32);
    for _ in 0..2000 {
        let (p, s, bias) =
            (rng.random_range(-4096..4096) as f32, rng.random_range(0.5f32..2.0), rng.random_range(-4e3f32..4e3));
        let fused = f64::from(p.mul_add(s, bias));
        let apart = f64::from(p * s + bias);
        let b = Biases::columns(vec![f64::from(bias)]);
        let exact = f64::from(p) * f64::from(s);
        let a = ProductArithmetic { scale_roundings: 1, bias: Some(&b), ..ProductArithmetic::plain(&Accumulation::EXACT, 1) };
        let bound = Bound::product(&a, 1, &[exact + b.at(0, 0)], &[exact.abs() + b.at(0, 0).abs()], &out).unwrap();
        for y in [fused, apart] {
            assert_eq!(bound.judge(&[y]).unwrap().violations, 0, "{p} {s} {bias}");
        }
    }
}

#[test]
fn columns_of_which_nothing_is_known_are_not_judged() {
    let out = OutFormat::high(Format::F16);
    let p = ProductArithmetic { unknown_columns: Some(&[false, true]), ..ProductArithmetic::plain(&Accumulation::EXACT, 1) };
    let bound = Bound::product(&p, 2, &[1.0, 7e4], &[1.0, 7e4], &out).unwrap();
    let j = bound.judge(&[1.0, 3.0]).unwrap();
    assert_eq!((j.violations, j.unjudged), (0, 1));
    assert_eq!(bound.judge(&[2.0, f64::INFINITY]).unwrap().violations, 1);
}

#[test]
fn each_rounding_of_the_chain_is_accounted_for() {
    let exact = &Accumulation::EXACT;
    // Group sums are small integers, exact; only y = fma(P_g, s_g, y) rounds, 64 times.
    let mut rng = StdRng::seed_from_u64(9);
    let (groups, out) = (64, OutFormat::high(Format::F32));
    let mut worst = 0.0f64;
    for _ in 0..300 {
        let terms: Vec<(f32, f32)> =
            (0..groups).map(|_| (rng.random_range(1..4000) as f32, rng.random_range(0.1f32..1.0))).collect();
        let ideal: f64 = terms.iter().map(|(p, s)| f64::from(*p) * f64::from(*s)).sum();
        let y = terms.iter().fold(0.0f32, |y, (p, s)| p.mul_add(*s, y));
        let p = ProductArithmetic { groups, ..ProductArithmetic::plain(exact, 32 * groups) };
        let j = Bound::product(&p, 1, &[ideal], &[ideal], &out).unwrap().judge(&[f64::from(y)]).unwrap();
        assert_eq!((j.violations, j.improbable), (0, 0));
        worst = worst.max(j.ratio_certain);
    }
    println!("64 group additions alone: max ratio to certain {worst:.3}");
    assert!(worst > 0.05);
    // t = 1 + 2^-8 is a tie of bf16; t + 2^-40 is above it, but RN32 of it is the tie again.
    let (t, bias) = (1.0 + 2f64.powi(-8), 2f64.powi(-40));
    let p = ProductArithmetic { bias: Some(&Biases::columns(vec![bias])), ..ProductArithmetic::plain(exact, 1) };
    let bound = Bound::product(&p, 1, &[t + bias], &[t + bias], &OutFormat::high(Format::Bf16)).unwrap();
    assert_eq!(bound.allowed(0), (1.0, 1.0 + 2f64.powi(-7)));
}

#[test]
fn exact_output_allows_one_code_and_nan_is_never_a_number() {
    for out in outputs() {
        let x: Vec<f64> = (0..200).map(|i| f64::from((f64::from(i) * 0.731).sin() as f32) * 90.0).collect();
        let bound = Bound::exact_output(&x, &out);
        let right = bound.rounded_ideal();
        let j = bound.judge(&right).unwrap();
        assert_eq!((j.violations, j.improbable), (0, 0));
        let mut one_off = right.clone();
        one_off[17] += out.spacing(17, right[17]);
        let j = bound.judge(&one_off).unwrap();
        assert_eq!((j.violations, j.first_violation, j.worst), (1, Some(17), Some(17)));
        assert!(j.ratio_certain > 1.0);
        one_off[17] = f64::NAN;
        assert_eq!(bound.judge(&one_off).unwrap().ratio_certain, f64::INFINITY);
        assert!(bound.judge(&right[1..]).is_err());
    }
}

#[test]
fn non_finite_ideals_and_overflow() {
    let out = OutFormat::high(Format::F32);
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let bound = Bound::from_radii(vec![nan, inf, -inf, 1.0], vec![1.0; 4], vec![1.0; 4], &out).unwrap();
    assert_eq!(bound.judge(&[nan, inf, -inf, 1.5]).unwrap().violations, 0);
    assert_eq!(bound.judge(&[1.0, nan, inf, nan]).unwrap().violations, 4);
    let saturating = OutFormat::scaled(Format::E4m3, 1.0, 1.0);
    let bound = Bound::from_radii(vec![1e6, inf, nan], vec![1.0; 3], vec![1.0; 3], &saturating).unwrap();
    assert_eq!(bound.judge(&[448.0, 448.0, nan]).unwrap().violations, 0);
    assert_eq!(bound.judge(&[416.0, -448.0, 448.0]).unwrap().violations, 3);
    assert!(Bound::from_radii(vec![0.0], vec![nan], vec![0.0], &out).is_err());
    // A row of zeros has a tiny scale; formats of 8 bits cannot overflow f32 all the same.
    let accumulation = accumulation(Inner::Sequential, 4);
    let p = ProductArithmetic::plain(&accumulation, 4);
    let tiny = p.clone().scaled_by(Format::E4m3, Format::E4m3, &[&[1e-30, 0.1, 0.0], &[1e-30, 0.1, f32::NAN]]);
    assert!((tiny.descale.0 / 1e-60 - 1.0).abs() < 1e-6 && (tiny.descale.1 / 0.01 - 1.0).abs() < 1e-6);
    assert_eq!(tiny.largest_intermediate, 4.0 * 448.0 * 448.0);
    assert_eq!(Bound::product(&tiny, 1, &[1.0], &[1.0], &out).unwrap().judge(&[1.0]).unwrap().unjudged, 0);
    // Partial sums that may overflow f32: nothing is known, and that is said.
    let bound = Bound::product(&p, 1, &[0.0], &[1e39], &out).unwrap();
    assert_eq!(bound.judge(&[inf]).unwrap().unjudged, 1);
}

/// Scales of 1e-15 on both sides: a sum of 1e8 was 1e38 before them, which f32 holds, one of 1e10 was 1e40.
#[test]
fn a_sum_that_overflows_before_its_scales_is_not_known() {
    let p = ProductArithmetic::plain(&Accumulation::EXACT, 4).scaled_by(Format::Bf16, Format::F32, &[&[1e-15], &[1e-15]]);
    let certain = |d: f64| Bound::product(&p, 1, &[d], &[d], &OutFormat::high(Format::F32)).unwrap().certain()[0];
    assert!(certain(1e8) < 1.0 && certain(1e10).is_infinite(), "{} {}", certain(1e8), certain(1e10));
}

/// What is not the rounded ideal is counted, a NaN for a NaN not.
#[test]
fn elements_that_are_not_the_ideal_are_counted() {
    let ideal = [1.0 / 3.0, -2.5, f64::NAN, 0.0, 1e30];
    let bound = Bound::from_radii(ideal.to_vec(), vec![1.0; 5], vec![1.0; 5], &OutFormat::high(Format::Bf16)).unwrap();
    let mut actual = bound.rounded_ideal();
    assert_eq!(bound.differing(&actual).unwrap(), 0);
    actual[0] = ideal[0];
    actual[1] = 2.5;
    assert_eq!(bound.differing(&actual).unwrap(), 2);
    actual[2] = 0.0;
    actual[4] = f64::NAN;
    assert_eq!(bound.differing(&actual).unwrap(), 4);
    assert!(bound.differing(&actual[1..]).is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let (out, p) = (OutFormat::high(Format::F32), ProductArithmetic::plain(&Accumulation::EXACT, 4));
    let refused = |p: &ProductArithmetic, magnitude: &[f64]| {
        let four = [1.0, 2.0, 3.0, 4.0];
        Bound::product(p, 2, &four, magnitude, &out).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&p, &[1.0; 4]), "");
    assert!(refused(&p, &[1.0; 3]).contains("magnitude of a product"), "{}", refused(&p, &[1.0; 3]));
    let with =
        |p: ProductArithmetic, words: &str| assert!(refused(&p, &[1.0; 4]).contains(words), "{}", refused(&p, &[1.0; 4]));
    with(ProductArithmetic { bias: Some(&Biases::columns(vec![1.0; 3])), ..p.clone() }, "bias");
    with(ProductArithmetic { factor_errors: Some(&[0.0; 3]), ..p.clone() }, "errors of factors");
    with(ProductArithmetic { unknown_columns: Some(&[false; 3]), ..p.clone() }, "columns that overflow");
}
