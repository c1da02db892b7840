//! Accumulation bounds: never crossed by the models, and not idle.

use super::accumulate::accumulate;
use super::mma::Dest;
use super::products_tests::values;
use super::table::{DeviceModel, MODELS, Unit};
use super::{Accumulator, Inner, MmaModel};
use super::{Factors, Lines, SumBound, accumulation_bound};
use crate::compare::SumError;
use crate::compare::probable::{DELTA, lambda};
use crate::format::Format::{self, Bf16, E4m3, E5m2, F16, F32};

fn read(f: Format, values: &[f32]) -> Factors {
    Factors::of(f, values.iter().map(|x| f64::from(*x)))
}

/// Largest error over the bound, of sums of k products: over the one that is relative, over the one of the sum, over its probable one.
fn ratios(acc: &Accumulator, f: Format, k: usize, data: impl Fn(u32) -> (Vec<f32>, Vec<f32>)) -> [f64; 3] {
    let mut worst = [0.0f64; 3];
    for seed in 0..12 {
        let (a, b) = data(seed);
        let relative = accumulation_bound(acc, k, read(f, &a), read(f, &b)).unwrap();
        let lines = [&a, &b].map(|x| Lines::of(f, 1, k, |_, row| row.copy_from_slice(x)));
        let sum = SumBound::new(acc, k, (f, &lines[0]), (f, &lines[1]), false).unwrap();
        // The exact sum in f64: near enough where bounds start at 2^-24.
        let products = || a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        let (d, s): (f64, f64) = (products().sum(), products().map(f64::abs).sum());
        let error = (f64::from(accumulate(acc, f, f, &a, &b).unwrap()) - d).abs() - 1e-14 * s;
        let r = sum.at(0, 0, d, s);
        let probable = (r.drift + lambda(12, DELTA) * r.variance.sqrt()).min(r.certain);
        for (worst, bound) in worst.iter_mut().zip([relative.at(0, 0, d, s).certain, r.certain, probable]) {
            *worst = worst.max(if error <= 0.0 { 0.0 } else { error / bound });
        }
    }
    worst
}

fn all() -> Vec<(Accumulator, Format)> {
    let mut all = Vec::new();
    for f in [E4m3, E5m2, F16, Bf16] {
        for inner in [Inner::Exact, Inner::F32Sequential, Inner::F32Pairwise] {
            all.push((Accumulator::new(inner), f));
        }
        for m in MODELS.iter().filter(|m| m.unit(f, f).is_ok()) {
            all.push((Accumulator::new(Inner::Mma(MmaModel { name: m.name })), f));
        }
    }
    let promoted: Vec<_> = all.iter().map(|(a, f)| (Accumulator { promote_every: Some(128), ..*a }, *f)).collect();
    all.into_iter().chain(promoted).collect()
}

#[test]
fn random_and_adverse_sums_stay_inside() {
    for (acc, f) in all() {
        for k in [16, 100, 512] {
            let normal = |s: u32| (values(f, k, 4.0, 2 * s), values(f, k, 4.0, 2 * s + 1));
            // One sign: every truncation leans the same way.
            let positive = |s: u32| -> (Vec<f32>, Vec<f32>) {
                let (a, b) = normal(s);
                (a.iter().map(|x| x.abs()).collect(), b.iter().map(|x| x.abs()).collect())
            };
            // A large first product, then small ones that fall below its quantum.
            let dominated = |s: u32| {
                let (mut a, mut b) = positive(s);
                a.iter_mut().zip(&mut b).for_each(|(a, b)| (*a, *b) = (0.25, 0.0625));
                (a[0], b[0]) = (14.0, 12.0);
                (a, b)
            };
            // Factors on both sides of the smallest normal number, against some that are large.
            let fine = |s: u32| -> (Vec<f32>, Vec<f32>) {
                let a = values(f, k, 2f32.powi(f.min_exponent()), 2 * s);
                let b = values(f, k, 1.0, 2 * s + 1).into_iter().enumerate();
                (a, b.map(|(i, x)| if i % 7 == 3 { 64.0 * x } else { x }).collect())
            };
            let mut best = 0.0f64;
            for data in [&normal as &dyn Fn(u32) -> _, &positive, &dominated, &fine] {
                let found = ratios(&acc, f, k, data);
                assert!(found.iter().all(|r| *r <= 1.0), "{acc} {f} K={k}: {found:?} of the relative, the sum's, the probable");
                best = best.max(found[1]);
            }
            // fp8 sums of this length are exact in 24 bits or more; elsewhere something has to be lost.
            let loses = acc.to_string().contains("wgmma") || acc.to_string().contains("ada") || !f.is_fp8();
            assert!(best > 0.002 || !loses || k == 16, "{acc} {f} K={k}: {best}: the bound says nothing");
            if k == 512 {
                println!("{acc} {f}: largest error {best:.3} of the certain bound");
            }
        }
    }
}

#[test]
fn the_certain_bound_of_wgmma_is_nearly_reached() {
    // One product of exponent 13, then products just below its quantum 2^0: each is lost.
    let k = 320;
    let (mut a, mut b) = (vec![0.5f32; k], vec![1.875f32; k]);
    (a[0], b[0]) = (128.0, 64.0);
    let acc: Accumulator = "hopper_wgmma".parse().unwrap();
    let bound = accumulation_bound(&acc, k, read(E4m3, &a), read(E4m3, &b)).unwrap();
    let s: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a * b)).sum();
    let lost = s - f64::from(accumulate(&acc, E4m3, E4m3, &a, &b).unwrap());
    let ratio = lost / (bound.relative * s + bound.absolute);
    assert!(lost == 319.0 * 0.9375 && ratio > 0.8 && ratio <= 1.0, "lost {lost}, ratio {ratio}");
}

#[test]
fn closed_forms() {
    let b = |acc: &str, k, f| accumulation_bound(&acc.parse().unwrap(), k, read(f, &[1.0]), read(f, &[1.0])).unwrap();
    let u = 2f64.powi(-24);
    assert_eq!(b("exact", 1000, E4m3).relative, u);
    assert!((b("f32_sequential", 1001, E4m3).relative / (1000.0 * u) - 1.0).abs() < 1e-4);
    assert!((b("f32_sequential", 1001, F32).relative / (1001.0 * u) - 1.0).abs() < 1e-4);
    assert!((b("f32_pairwise", 1000, E4m3).relative / (10.0 * u) - 1.0).abs() < 1e-4);
    let (one, chunk) = (b("hopper_wgmma", 1024, E4m3), b("hopper_wgmma", 128, E4m3));
    assert!((one.relative - (1023.0 + 32.0) / 8192.0).abs() < 1e-12);
    let promoted = b("hopper_wgmma@128", 1024, E4m3);
    assert!(promoted.relative > chunk.relative && promoted.relative < chunk.relative + 8.0 * u);
    assert_eq!(b("int32", 1000, Format::Int8).relative, 0.0);
    assert!(b("hopper_wgmma", 1 << 20, E4m3).relative <= 2.0, "nothing is lost twice");
}

#[test]
fn subnormal_factors_enter_by_what_they_meet() {
    // 2^-9 is 0.125·2^-6: its product with 448 is 0.875 and has the exponent of 2^2, so all below 2^-11 is lost.
    let (mut a, mut b) = (vec![2f32.powi(-6); 32], vec![1.75 * 2f32.powi(-6); 32]);
    (a[0], b[0]) = (2f32.powi(-9), 448.0);
    let acc: Accumulator = "hopper_wgmma".parse().unwrap();
    let bound = accumulation_bound(&acc, 32, read(E4m3, &a), read(E4m3, &b)).unwrap();
    let s: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a * b)).sum();
    let lost = s - f64::from(accumulate(&acc, E4m3, E4m3, &a, &b).unwrap());
    assert!(lost > 3.0 * bound.relative * s, "lost {lost}: without the absolute term this would be a violation");
    assert!(lost <= bound.relative * s + bound.absolute);
    // 32·2^-13 times the largest such product's 2^emax, 2^-6·448: nothing larger.
    assert!(bound.absolute <= 32.0 / 8192.0 * 7.0 * (1.0 + 1e-12) + 1e-35, "{}", bound.absolute);

    // Where no factor is subnormal nothing of it is left, however small or large the factors; and zeros are none.
    for (f, values) in
        [(E4m3, [2f32.powi(-6), 448.0, 0.0]), (E5m2, [2f32.powi(-14), 57344.0, 0.0]), (Bf16, [2f32.powi(-126), 3e38, 0.0])]
    {
        let acc = Accumulator {
            inner: Inner::Mma(MmaModel { name: MODELS.iter().find(|m| m.unit(f, f).is_ok()).unwrap().name }),
            ..acc
        };
        let b = accumulation_bound(&acc, 64, read(f, &values), read(f, &values)).unwrap();
        assert!(b.absolute < 1e-33, "{f}: {}", b.absolute);
        let b = accumulation_bound(&acc, 64, read(f, &[values[0] / 2.0]), read(f, &values)).unwrap();
        let expected = 2f64.powi(f.min_exponent()) * f64::from(values[1]);
        assert!(b.absolute > expected * 2f64.powi(-26), "{f}: {}", b.absolute);
    }
}

#[test]
fn assumptions_have_a_bound_and_no_bits() {
    let of = |name: &str, f| {
        let acc: Accumulator = name.parse().unwrap();
        accumulation_bound(&acc, 1024, read(f, &[1.0]), read(f, &[1.0])).unwrap().relative
    };
    for f in [E4m3, F16, Bf16, F32] {
        let any_order = of("f32_any_order", f);
        assert!(any_order >= of("f32_sequential", f) && any_order >= of("f32_pairwise", f));
        for m in MODELS.iter().filter(|m| !m.name.ends_with("_f16")) {
            let one = of(&format!("any_{}", m.name), f);
            assert!(any_order <= one && one <= of("any_unit", f), "{} {f}", m.name);
            if m.unit(f, f).is_ok() {
                assert!(of(m.name, f) < one, "{} {f}: splits cost something", m.name);
            } else {
                assert_eq!(one, any_order, "{} {f}: sums in f32 are all that is left", m.name);
            }
        }
    }
    for name in ["f32_any_order", "any_unit", "any_hopper_wgmma@128", "any_volta_mma_f16"] {
        let acc: Accumulator = name.parse().unwrap();
        assert_eq!(acc.to_string(), name);
        assert!(!acc.inner.is_model() && acc.runnable().inner == Inner::F32Sequential);
        assert!(accumulate(&acc, F16, F16, &[1.0], &[1.0]).unwrap_err().to_string().contains("no model with bits"));
        acc.check(E4m3, F16).unwrap();
    }
    assert!("any_hopper".parse::<Accumulator>().unwrap_err().to_string().contains("any_hopper"));
}

/// Sixteen products are half of f16's smallest number and a tie to zero: each of the two steps of an instruction loses them.
#[test]
fn what_f16_accumulators_lose_below_their_smallest_number_is_inside() {
    let lowered = |m: &&DeviceModel| matches!(m.unit(E5m2, E5m2), Ok(Unit::Lowered(s)) if s.dest == Dest::F16);
    let models: Vec<_> = MODELS.iter().filter(lowered).collect();
    assert!(!models.is_empty());
    for model in models {
        let acc = Accumulator::new(Inner::Mma(MmaModel { name: model.name }));
        for k in [32, 96] {
            let (a, b) = (vec![2f32.powi(-14); k], vec![2f32.powi(-15); k]);
            assert_eq!(accumulate(&acc, E5m2, E5m2, &a, &b).unwrap(), 0.0);
            let lost = k as f64 * 2f64.powi(-29);
            let bound = accumulation_bound(&acc, k, read(E5m2, &a), read(E5m2, &b)).unwrap();
            assert!(lost <= bound.relative * lost + bound.absolute, "{} K={k}: {bound:?}", model.name);
        }
    }
}
