//! Bounds of sums: nothing right leaves them, also under attack, and they are no wider than said.

use super::accumulate::accumulate;
use super::table::MODELS;
use super::{Accumulator, Factors, Lines, SumBound, accumulation_bound};
use crate::compare::probable::{DELTA, lambda};
use crate::compare::{SumError, SumRadius};
use crate::format::Format::{self, Bf16, E4m3, E5m2, F16, F32};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn acc(name: &str) -> Accumulator {
    name.parse().unwrap()
}

fn exact(a: &[f32], b: &[f32]) -> (f64, f64) {
    let products = || a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
    (products().sum(), products().map(f64::abs).sum())
}

fn bound(by: &Accumulator, f: Format, a: &[f32], b: &[f32]) -> SumRadius {
    let lines = [a, b].map(|x| Lines::of(f, 1, x.len(), |_, row| row.copy_from_slice(x)));
    let (d, s) = exact(a, b);
    SumBound::new(by, a.len(), (f, &lines[0]), (f, &lines[1]), false).unwrap().at(0, 0, d, s)
}

/// Error of `run` over the bound of `by`.
fn ratio(run: &Accumulator, by: &Accumulator, f: Format, a: &[f32], b: &[f32]) -> f64 {
    let (d, s) = exact(a, b);
    let error = (f64::from(accumulate(run, f, f, a, b).unwrap()) - d).abs() - 1e-14 * s;
    if error <= 0.0 { 0.0 } else { error / bound(by, f, a, b).certain }
}

/// What `f` makes of x.
fn rounded(f: Format, x: f64) -> f32 {
    f.decode(f.encode(x, crate::Rounding::NearestEven, crate::Overflow::Saturate)) as f32
}

#[test]
fn a_subnormal_f16_accumulator_truncates_every_term() {
    // A subnormal c has the exponent −14 all the same: everything below 2^(−14−13) of each of 32 terms is lost.
    let (k, run) = (32 * 20, acc("hopper_wgmma_f16"));
    let mut a = vec![2f32.powi(-14); k];
    let b = vec![1.75 * 2f32.powi(-14); k];
    a[0] = 2f32.powi(-10);
    let worst = ratio(&run, &run, E5m2, &a, &b);
    assert!(worst > 0.2 && worst <= 1.0, "{worst}");
    let read = |x: &[f32]| Factors::of(E5m2, x.iter().map(|x| f64::from(*x)));
    let relative = accumulation_bound(&run, k, read(&a), read(&b)).unwrap();
    let (d, s) = exact(&a, &b);
    let error = (f64::from(accumulate(&run, E5m2, E5m2, &a, &b).unwrap()) - d).abs();
    assert!(error <= relative.at(0, 0, d, s).certain);
    assert!(error > 2.0 * (relative.relative * s + 20.0 * 2f64.powi(-25)), "{error:e}: the factor W is not needed here");
    // An f16 accumulator that may overflow is not judged.
    let large = vec![64.0f32; 64];
    assert_eq!(bound(&run, F16, &large, &large).certain, f64::INFINITY);
    assert!(bound(&run, F16, &large[..8], &large[..8]).certain.is_finite());
}

#[test]
fn what_a_unit_does_is_inside_what_may_be_assumed_of_it() {
    let mut rng = StdRng::seed_from_u64(3);
    let mut left = 0;
    for f in [E4m3, E5m2, F16, Bf16] {
        for m in MODELS.iter().filter(|m| m.unit(f, f).is_ok() && !m.name.ends_with("_f16")) {
            for k in [64, 512, 2048] {
                // One sign, and a first product above all others: every truncation leans one way.
                let mut draw = || -> Vec<f32> { (0..k).map(|_| rounded(f, rng.random_range(0.5..1.0))).collect() };
                let (mut a, mut b) = (draw(), draw());
                (a[0], b[0]) = (8.0, 8.0);
                let run = acc(m.name);
                for by in [m.name.to_string(), format!("any_{}", m.name), "any_unit".into()] {
                    let r = ratio(&run, &acc(&by), f, &a, &b);
                    assert!(r <= 1.0, "{} {f} K={k} by {by}: {r}", m.name);
                }
                left += usize::from(ratio(&run, &acc("f32_any_order"), f, &a, &b) > 1.0);
            }
        }
    }
    assert!(left > 3, "{left}: f32 that rounds to nearest is not enough for units that truncate");
}

#[test]
fn exact_sums_and_zeros_have_no_error() {
    let k = 1000;
    let ones = vec![1.0f32; k];
    for name in ["f32_sequential", "f32_any_order", "hopper_wgmma", "any_unit"] {
        // 1000 ones fit 13 bits.
        assert_eq!(bound(&acc(name), E4m3, &ones, &ones), SumRadius::default(), "{name}");
    }
    let mut sparse = vec![0.0f32; k];
    (sparse[3], sparse[800]) = (1.0 + 2f32.powi(-7), 2f32.powi(-20));
    let b: Vec<f32> = (0..k).map(|i| rounded(Bf16, 1.0 + i as f64 / 999.0)).collect();
    let (one, all) = (bound(&acc("f32_sequential"), Bf16, &sparse, &b), bound(&acc("f32_sequential"), Bf16, &b, &b));
    // One addition against 999, of sums a thousand times smaller.
    assert!(one.certain <= 2f64.powi(-23) && all.certain > 999.0 * 2f64.powi(-24) * 500.0, "{one:?} {all:?}");
}

/// Roundings of one magnitude over and over lean the same way; those of many do not.
#[test]
fn the_variance_grows_with_what_is_alike() {
    let (k, by) = (256, acc("f32_sequential"));
    let distinct: Vec<f32> = (0..k).map(|i| 1.0 + ((i * 37) % k) as f32 / k as f32 + 2f32.powi(-20)).collect();
    let (alike, apart) = (bound(&by, F32, &vec![1.4243; k], &vec![1.4243; k]), bound(&by, F32, &distinct, &distinct));
    assert!(alike.variance > 20.0 * apart.variance, "{alike:?} {apart:?}");
}

/// Coordinate ascent on the error of a sum over its bound: a factor is drawn anew, moved by one unit in the last place, negated, exchanged with
/// another, or copied; what does not lower the ratio stays.
fn attack(run: &Accumulator, by: &Accumulator, f: Format, k: usize, rounds: usize, seed: u64) -> f64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let draw = |rng: &mut StdRng| -> f32 {
        let size = 2f64.powi(rng.random_range(-6..5)) * rng.random_range(1.0..2.0);
        rounded(f, if rng.random_bool(0.3) { -size } else { size })
    };
    let mut x: [Vec<f32>; 2] = [0, 1].map(|_| (0..k).map(|_| draw(&mut rng)).collect());
    let mut best = ratio(run, by, f, &x[0], &x[1]);
    for _ in 0..rounds {
        let before = x.clone();
        let (side, i, j) = (rng.random_range(0..2), rng.random_range(0..k), rng.random_range(0..k));
        match rng.random_range(0..5) {
            0 => x[side][i] = draw(&mut rng),
            1 => x[side][i] = rounded(f, f64::from(x[side][i]) * (1.0 + rng.random_range(-1.0..1.0) * f.ulp(1.0) * 1.5)),
            2 => x[side][i] = -x[side][i],
            3 => x.iter_mut().for_each(|x| x.swap(i, j)),
            _ => (x[0][i], x[1][i]) = (x[0][j], x[1][j]),
        }
        let now = ratio(run, by, f, &x[0], &x[1]);
        if now >= best { best = now } else { x = before }
    }
    best
}

#[test]
fn no_search_gets_outside() {
    for (run, by, f, least) in [
        ("f32_sequential", "f32_sequential", Bf16, 0.1),
        ("f32_sequential", "f32_any_order", F16, 0.1),
        ("f32_pairwise", "f32_pairwise", F16, 0.05),
        ("f32_sequential@16", "f32_any_order", F32, 0.05),
        ("hopper_wgmma", "hopper_wgmma", E4m3, 0.3),
        ("hopper_wgmma@32", "any_hopper_wgmma", E5m2, 0.1),
        ("hopper_wgmma", "any_unit", E4m3, 0.1),
        ("ampere_mma", "ampere_mma", Bf16, 0.1),
        ("volta_mma", "any_unit", F16, 0.1),
        ("hopper_mma", "hopper_mma", E4m3, 0.02),
        ("hopper_wgmma_f16", "hopper_wgmma_f16", F16, 0.05),
    ] {
        let worst =
            (0..3).map(|seed| attack(&acc(run), &acc(by), f, [5, 40, 70][seed as usize], 400, seed)).fold(0.0, f64::max);
        println!("{run} {f} by {by}: {worst:.3} of the certain bound at most");
        assert!(worst <= 1.0 && worst > least, "{run} {f} by {by}: {worst}");
    }
}

#[test]
fn equal_products_lose_the_same() {
    // Constant data: K roundings of one direction. √K of them would be far outside.
    let (f, k) = (F16, 4096);
    let mut outside = 0;
    for i in 0..40 {
        let (a, b) = (vec![rounded(f, 1.0 + f64::from(i) / 40.0); k], vec![rounded(f, 1.3 + f64::from(i) / 77.0); k]);
        let (d, s) = exact(&a, &b);
        let run = acc("f32_sequential");
        let error = (f64::from(accumulate(&run, f, f, &a, &b).unwrap()) - d).abs();
        let r = bound(&run, f, &a, &b);
        let probable = (r.drift + lambda(1, DELTA) * r.variance.sqrt()).min(r.certain);
        assert!(error <= probable, "{i}: {error:e} {r:?}");
        outside += usize::from(error > lambda(1, DELTA) * (k as f64).sqrt() * 2f64.powi(-24) * s);
    }
    assert!(outside > 0, "independent roundings would have done");
}

/// Roundings of distinct products lean apart: what they make by chance is less than all of them together.
#[test]
fn what_is_probable_of_distinct_products_is_within_what_is_certain() {
    let factors = |by: usize| (0..64).map(|i| 2f32.powi(-8) * (1.0 + (i * by % 1021) as f32 / 1024.0)).collect::<Vec<f32>>();
    for name in ["hopper_wgmma", "hopper_wgmma_f16", "ampere_mma", "f32_sequential"] {
        let r = bound(&acc(name), F16, &factors(37), &factors(23));
        assert!(r.drift <= r.certain && 0.0 < r.variance && r.variance.sqrt() <= r.certain, "{name}: {r:?}");
    }
}

/// The largest factors never meet: every term is cut far above its size, and no more can be lost than there is.
#[test]
fn a_truncated_sum_loses_no_more_than_it_has() {
    let (mut a, mut b) = (vec![2f32.powi(-6); 64], vec![1.125 * 2f32.powi(-6); 64]);
    (a[0], b[1]) = (256.0, 256.0);
    let ((d, s), r) = (exact(&a, &b), bound(&acc("hopper_wgmma"), E4m3, &a, &b));
    assert!(0.5 * s < r.certain && r.certain <= 1.001 * (s + d), "{s} {r:?}");
}

/// A tree of one product has no addition, and still the rounding of the product.
#[test]
fn the_product_of_a_tree_is_rounded() {
    let tree = acc("f32_pairwise");
    let found = ratio(&tree, &tree, F32, &[1.0 + f32::EPSILON], &[1.5]);
    assert!(found > 0.1 && found <= 1.0, "{found}");
}

/// A sum that is rounded once loses up to half of f32's smallest number where it is that small.
#[test]
fn an_exact_sum_below_normal_numbers_is_rounded() {
    let run = acc("exact");
    let mut lost = 0;
    for i in 1..32 {
        let (a, b) = ([2f32.powi(-75)], [rounded(F32, f64::from(i)) * 2f32.powi(-78)]);
        let (d, _) = exact(&a, &b);
        let error = (f64::from(accumulate(&run, F32, F32, &a, &b).unwrap()) - d).abs();
        let r = bound(&run, F32, &a, &b);
        assert!(error <= r.certain && error <= r.drift, "{i}: {error:e} {r:?}");
        lost += usize::from(error > 0.0);
    }
    assert!(lost > 20, "{lost}");
}

/// Lines of codes, counted, are those of their values.
#[test]
fn lines_of_codes_are_those_of_their_values() {
    use crate::quant::{Granularity, QTensorParts, Zero};
    let mut rng = StdRng::seed_from_u64(5);
    for format in [E4m3, E5m2, Format::E2m1, Format::Int8] {
        let (rows, cols) = (9, 300);
        // The first row is of zeros, the second of one code; the last has every kind.
        let code = |row: usize, c: u8| if row < 2 { [0, 3][row] } else { c };
        let codes: Vec<u8> =
            (0..rows * cols).map(|i| code(i / cols, rng.random_range(0..1u32 << format.bits()) as u8)).collect();
        let parts = QTensorParts {
            format,
            rows,
            cols,
            codes,
            granularity: Granularity::Tensor,
            scale_format: F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        };
        let q = crate::QTensor::new(parts).unwrap();
        let value = |i: usize| format.decode(u32::from(q.codes()[i])) as f32;
        let of_values = Lines::of(format, rows, cols, |i, row| {
            row.iter_mut().enumerate().for_each(|(k, x)| *x = value(i * cols + k));
        });
        assert_eq!(format!("{:?}", Lines::of_codes(&q)), format!("{of_values:?}"), "{format}");
    }
}
