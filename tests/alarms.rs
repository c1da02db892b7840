//! How often a right product of values leaves its bounds: sums of many kinds of data, in many orders, in f32 and in tensor cores' block steps,
//! written out here once more.
//!
//! `cargo test --release --test alarms`: 20,000 tensors. `QASSAY_TENSORS=1000000`: as many as that.

use qassay::Format;
use qassay::compare::probable::{DELTA, lambda};
use qassay::compare::{Bound, OutFormat, ProductArithmetic, SumError};
use qassay::model::{Accumulator, Factors, Lines, SumBound, accumulation_bound, runs};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;
use std::collections::BTreeMap;

const DATA: [&str; 10] = [
    "normal",
    "positive",
    "constant",
    "two values",
    "constant times random",
    "sorted",
    "cancelling",
    "alternating",
    "heavy-tailed",
    "heavy-tailed positive",
];

/// Unit: products a step, fraction bits kept, fraction bits of the result; and the model it stands for.
const UNITS: [(&str, usize, i32, i32, &[Format]); 5] = [
    ("volta_mma", 4, 23, 23, &[Format::F16]),
    ("ampere_mma", 8, 24, 23, &[Format::F16, Format::Bf16]),
    ("hopper_wgmma", 16, 25, 23, &[Format::F16, Format::Bf16]),
    ("hopper_wgmma", 32, 13, 13, &[Format::E4m3, Format::E5m2]),
    ("ada_mma", 16, 13, 13, &[Format::E4m3, Format::E5m2]),
];

fn normal(rng: &mut StdRng) -> f64 {
    (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt() * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// One row of factors.
fn row(kind: &str, side: usize, k: usize, rng: &mut StdRng) -> Vec<f64> {
    let fixed = [normal(rng).abs() + 0.1, normal(rng).abs() + 0.1];
    let mut x: Vec<f64> = (0..k)
        .map(|i| match kind {
            "positive" => normal(rng).abs(),
            "constant" => fixed[0],
            "two values" => fixed[usize::from(rng.random_bool(0.5))],
            "constant times random" if side == 0 => fixed[0],
            "constant times random" => rng.random_range(0.1..1.0),
            "alternating" if side == 0 => {
                if i % 2 == 0 {
                    fixed[0]
                } else {
                    -fixed[0]
                }
            }
            "heavy-tailed" => normal(rng) * (3.0 * normal(rng)).exp(),
            "heavy-tailed positive" => (4.0 * normal(rng)).exp(),
            _ => normal(rng),
        })
        .collect();
    match kind {
        "sorted" => x.sort_by(f64::total_cmp),
        // The second half takes the first back.
        "cancelling" => (0..k / 2).for_each(|i| x[k - 1 - i] = if side == 0 { x[i] } else { -x[i] }),
        _ => {}
    }
    x
}

/// In which order k passes.
fn order(kind: usize, k: usize, products: &[f64]) -> Vec<usize> {
    let mut at: Vec<usize> = (0..k).collect();
    match kind {
        1 => at.reverse(),
        2 => at.sort_by_key(|i| i % 2),
        3 => at.sort_by_key(|i| i % 32),
        4 => at.sort_by(|i, j| products[*i].abs().total_cmp(&products[*j].abs())),
        5 => at.sort_by(|i, j| products[*j].abs().total_cmp(&products[*i].abs())),
        6 => at.sort_by(|i, j| products[*j].total_cmp(&products[*i])),
        _ => {}
    }
    at
}

fn pairwise(p: &[f32]) -> f32 {
    if p.len() <= 1 { p.first().copied().unwrap_or(0.0) } else { pairwise(&p[..p.len() / 2]) + pairwise(&p[p.len() / 2..]) }
}

fn in_f32(kind: usize, p: &[f32]) -> f32 {
    let chain = |p: &[f32]| p.iter().fold(0.0f32, |y, p| y + p);
    match kind {
        0 => chain(p),
        1 => pairwise(p),
        2 => chain(&p.chunks(32).map(chain).collect::<Vec<_>>()),
        3 => pairwise(&p.chunks(128).map(chain).collect::<Vec<_>>()),
        _ => (0..4).map(|l| chain(&p.iter().skip(l).step_by(4).copied().collect::<Vec<_>>())).fold(0.0, |y, p| y + p),
    }
}

/// The exponent of a factor as a tensor core has it.
fn exponent(x: f64, f: Format) -> i32 {
    (x.abs().log2().floor() as i32).max(f.min_exponent())
}

fn cut(x: f64, unit: i32) -> f64 {
    let q = 2f64.powi(unit);
    (x / q).trunc() * q
}

/// Block steps over factors that are already in order, `parts` of them added in f32.
fn in_steps((w, f, o): (usize, i32, i32), format: Format, a: &[f64], b: &[f64], parts: usize) -> f32 {
    let each = a.len().div_ceil(parts).max(1);
    let chain = |a: &[f64], b: &[f64]| {
        let mut c = 0.0f64;
        for (a, b) in a.chunks(w).zip(b.chunks(w)) {
            let terms = || a.iter().zip(b).filter(|(a, b)| **a != 0.0 && **b != 0.0);
            let top = terms().map(|(a, b)| exponent(*a, format) + exponent(*b, format)).max();
            let top = top.into_iter().chain((c != 0.0).then(|| exponent(c, Format::F32))).max();
            let Some(top) = top else { continue };
            let sum: f64 = terms().map(|(a, b)| cut(a * b, top - f)).sum::<f64>() + cut(c, top - f);
            c = if sum == 0.0 { 0.0 } else { cut(sum, exponent(sum, Format::F32) - o) };
        }
        c as f32
    };
    a.chunks(each).zip(b.chunks(each)).map(|(a, b)| chain(a, b)).fold(0.0, |y, p| y + p)
}

#[derive(Clone, Copy, Default)]
struct Count {
    tensors: usize,
    outside: usize,
    improbable: usize,
    certain: f64,
    probable: f64,
}

fn tensor(seed: u64) -> (String, Count) {
    let mut rng = StdRng::seed_from_u64(seed);
    let kind = DATA[rng.random_range(0..DATA.len())];
    let format = [Format::F16, Format::Bf16, Format::E4m3, Format::E5m2][rng.random_range(0..4)];
    let k = [1, 2, 7, 33, 128, 257, 512, 1024, 2048][rng.random_range(0..if seed.is_multiple_of(16) { 9 } else { 7 })];
    let (m, n) = (2, 3);
    let side = |side: usize, rows: usize, rng: &mut StdRng| -> Vec<f32> {
        let mut all = Vec::new();
        for _ in 0..rows {
            let x = row(kind, side, k, rng);
            let largest = x.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let scale = if format.is_fp8() { format.max_finite() / largest } else { 1.0 };
            let value =
                |x: f64| format.decode(format.encode(x * scale, qassay::Rounding::NearestEven, qassay::Overflow::Saturate));
            all.extend(x.iter().map(|x| value(*x) as f32));
        }
        all
    };
    let (a, b) = (side(0, m, &mut rng), side(1, n, &mut rng));
    let unit = UNITS.iter().filter(|u| u.4.contains(&format)).nth(rng.random_range(0..4));
    let (f32_order, k_order, parts) = (rng.random_range(0..5), rng.random_range(0..7), rng.random_range(1..5));
    let by = match unit {
        None => "f32_any_order".to_string(),
        Some(u) if seed.is_multiple_of(2) => format!("any_{}", u.0),
        Some(_) => "any_unit".into(),
    };
    let (mut actual, mut ideal, mut magnitude) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..m {
        for j in 0..n {
            let (a, b) = (&a[i * k..(i + 1) * k], &b[j * k..(j + 1) * k]);
            let exact: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).collect();
            let at = order(k_order, k, &exact);
            actual.push(f64::from(match unit {
                None => in_f32(f32_order, &at.iter().map(|i| exact[*i] as f32).collect::<Vec<_>>()),
                Some(u) => {
                    let pick = |x: &[f32]| at.iter().map(|i| f64::from(x[*i])).collect::<Vec<_>>();
                    in_steps((u.1, u.2, u.3), format, &pick(a), &pick(b), parts.min(k.div_ceil(u.1)))
                }
            }));
            ideal.push(exact.iter().sum());
            magnitude.push(exact.iter().map(|x: &f64| x.abs()).sum());
        }
    }
    let lines = |x: &[f32], rows| Lines::of(format, rows, k, |i, row| row.copy_from_slice(&x[i * k..(i + 1) * k]));
    let (la, lb) = (lines(&a, m), lines(&b, n));
    let accumulator: Accumulator = by.parse().unwrap();
    let sums = SumBound::new(&accumulator, k, (format, &la), (format, &lb), false).unwrap();
    let bound =
        Bound::product(&ProductArithmetic::plain(&sums, k), n, &ideal, &magnitude, &OutFormat::high(Format::F32)).unwrap();
    let j = bound.judge(&actual).unwrap();
    if j.violations > 0 || j.improbable > 0 {
        println!("seed {seed}: {kind}, {format}, K = {k}, {by}, order {k_order}/{f32_order}, {parts} parts: {j:?}");
    }
    let count = Count {
        tensors: 1,
        outside: usize::from(j.violations > 0),
        improbable: usize::from(j.improbable > 0),
        certain: j.ratio_certain,
        probable: j.ratio_probable,
    };
    (kind.to_string(), count)
}

#[test]
fn right_sums_are_neither_failed_nor_suspected() {
    let tensors = std::env::var("QASSAY_TENSORS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000u64);
    let all: BTreeMap<String, Count> = (0..tensors)
        .into_par_iter()
        .map(tensor)
        .fold(BTreeMap::new, |mut all: BTreeMap<String, Count>, (kind, c)| {
            join(all.entry(kind).or_default(), c);
            all
        })
        .reduce(BTreeMap::new, |mut all, other| {
            other.into_iter().for_each(|(kind, c)| join(all.entry(kind).or_default(), c));
            all
        });
    for (kind, c) in &all {
        println!(
            "{kind:24} {:8} tensors, {} outside the certain bound (at most {:.3} of it), {} outside the probable one ({:.3})",
            c.tensors, c.outside, c.certain, c.improbable, c.probable
        );
    }
    assert_eq!(all.len(), DATA.len());
    assert_eq!(all.values().map(|c| c.outside + c.improbable).sum::<usize>(), 0);
    assert!(all.values().all(|c| c.certain > 0.1), "a bound that nothing comes near says nothing");
}

fn join(x: &mut Count, y: Count) {
    x.tensors += y.tensors;
    x.outside += y.outside;
    x.improbable += y.improbable;
    x.certain = x.certain.max(y.certain);
    x.probable = x.probable.max(y.probable);
}

/// Largest radius and largest error of right sums of normal data, and the radius relative to Σ|ab| alone.
fn tightness(by: &str, format: Format, k: usize) -> [f64; 4] {
    let mut rng = StdRng::seed_from_u64(k as u64);
    let (m, n) = (16, 32);
    let mut draw = |rows: usize| -> Vec<f32> {
        let scale = if format.is_fp8() { 64.0 } else { 1.0 };
        let value = |x: f64| format.decode(format.encode(x, qassay::Rounding::NearestEven, qassay::Overflow::Saturate));
        (0..rows * k).map(|_| value(normal(&mut rng) * scale) as f32).collect()
    };
    let (a, b) = (draw(m), draw(n));
    let lines = |x: &[f32], rows| Lines::of(format, rows, k, |i, row| row.copy_from_slice(&x[i * k..(i + 1) * k]));
    let (la, lb) = (lines(&a, m), lines(&b, n));
    let accumulator: Accumulator = by.parse().unwrap();
    let sums = SumBound::new(&accumulator, k, (format, &la), (format, &lb), false).unwrap();
    let sums = sums.in_runs(runs::runs(&a, &b, k).range, n);
    let read = |x: &[f32]| Factors::of(format, x.iter().map(|x| f64::from(*x)));
    let before = accumulation_bound(&accumulator, k, read(&a), read(&b)).unwrap().relative;
    let mut largest = [0.0f64; 4];
    for i in 0..m {
        for j in 0..n {
            let (a, b) = (&a[i * k..(i + 1) * k], &b[j * k..(j + 1) * k]);
            let exact: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).collect();
            let (d, s): (f64, f64) = (exact.iter().sum(), exact.iter().map(|x| x.abs()).sum());
            let wide = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let actual = match by.contains("wgmma") {
                true => in_steps((32, 13, 13), format, &wide(a), &wide(b), 1),
                false => in_f32(0, &exact.iter().map(|p| *p as f32).collect::<Vec<_>>()),
            };
            let r = sums.at(i, j, d, s);
            let probable = (r.drift + lambda(m * n, DELTA) * r.variance.sqrt()).min(r.certain);
            let found = [(f64::from(actual) - d).abs(), before * s, r.certain, probable];
            largest.iter_mut().zip(found).for_each(|(l, f)| *l = l.max(f));
        }
    }
    largest
}

#[test]
fn how_wide_the_bounds_are() {
    println!("allowed over the largest error of a right kernel, normal data: relative to Σ|ab|; certain; probable");
    for (by, format, times) in [
        ("f32_sequential", Format::Bf16, 10.0),
        ("f32_any_order", Format::Bf16, 1.4),
        ("hopper_wgmma", Format::E4m3, 5.0),
        ("any_hopper_wgmma", Format::E4m3, 1.4),
    ] {
        for k in [256, 1024, 4096] {
            let [error, before, certain, probable] = tightness(by, format, k);
            println!(
                "{by:18} {format} K = {k:4}: {:8.0} {:8.0} {:8.0}; {:.1} times tighter",
                before / error,
                certain / error,
                probable / error,
                before / certain
            );
            assert!(k != 1024 || before > times * certain, "{by}: {}", before / certain);
        }
    }
}
