//! The orders that are tried, what is made of their errors, and where a limit lies: one step inside, one beyond.

use super::super::super::assay::{assay_by, build, output};
use super::super::emulated::{Emulated, Number, Random, T, read};
use super::super::runnable;
use super::*;
use crate::Format;
use crate::compare::OutFormat;
use safetensors::Dtype;

/// The errors of a result of zeros in f32, whose ideal and certain radii are these.
fn with<R>(o: &Emulated, ideal: Vec<f64>, certain: f64, see: impl FnOnce(&Errors) -> R) -> R {
    let bundle = read(&o.bundle(&vec![0.0; o.m * o.n], Dtype::F32, ""));
    let (built, output) = (build(&bundle).unwrap(), output(&bundle).unwrap());
    let job = runnable(&built.job);
    let case = Case::of(&job, &output).unwrap();
    let bound = Bound::from_radius(ideal, vec![certain; o.m * o.n], &OutFormat::high(Format::F32)).unwrap();
    let endings = case.endings(false);
    see(&Errors { case: &case, bound: &bound, endings, chains: vec![Chain::Sequential], promote_every: usize::MAX })
}

fn singles(order: &[usize]) -> Run {
    order.iter().map(|k| *k..k + 1).collect()
}

#[test]
fn products_are_taken_backwards_in_strides_in_blocks_and_at_random() {
    let named = |k: usize| {
        let all = orders(k);
        assert!(all.iter().filter(|o| o.random).map(|o| (o.every, o.nth)).eq((0..16).map(|nth| (k, nth))), "{k}");
        all.into_iter().filter(|o| !o.random).map(|o| (o.run, o.every, o.nth)).collect::<Vec<_>>()
    };
    assert_eq!(named(1), [(vec![0..1], 1, 1)]);
    assert_eq!(named(2), [(singles(&[1, 0]), 2, 1)]);
    let two = singles(&[0, 2, 4, 1, 3]);
    assert_eq!(named(5), [(singles(&[4, 3, 2, 1, 0]), 5, 1), (two, 5, 0), (singles(&[0, 4, 1, 2, 3]), 5, 1)]);
    let nine = named(9);
    assert_eq!(nine[3], (singles(&[0, 8, 1, 2, 3, 4, 5, 6, 7]), 9, 2));
    assert_eq!(nine[4..], [(vec![0..9], 8, 0)]);
    assert_eq!((named(8).len(), named(64).len(), named(65).len(), named(129).len()), (3, 9, 11, 12));
}

/// Each of the six orders of three products about as often.
#[test]
fn random_orders_are_all_as_likely() {
    let mut counts = std::collections::HashMap::new();
    for nth in 0..600 {
        let run = order(3, nth);
        let mut sorted = run.clone();
        sorted.sort_by_key(|r| r.start);
        assert_eq!(sorted, singles(&[0, 1, 2]));
        *counts.entry(run.iter().map(|r| r.start).collect::<Vec<_>>()).or_insert(0) += 1;
    }
    assert!(counts.len() == 6 && counts.values().all(|n| (60..=140).contains(n)), "{counts:?}");
    assert_eq!(order(1, 0), [0..1]);
}

/// 1.5 has a spacing of 2^-23 in f32: with 1 − 2^-24 certain, an error is what it is.
const CERTAIN: f64 = 1.0 - 1.0 / (1u64 << 24) as f64;

/// What 16 sums say of 1024 elements: variances `w` in turn.
fn looked(w: &[f64], right: f64, diagonal: f64) -> Looked {
    let w: Vec<f64> = (0..1024).map(|i| w[i % w.len()]).collect();
    let mean = w.iter().sum::<f64>() / 1024.0;
    Looked { chain: Chain::Sequential, at: (0..1024).collect(), w, kernel: vec![0.0; 1024], mean, right, single: 0.0, diagonal }
}

#[test]
fn all_errors_together_are_held_to_the_limit_of_laurent_and_massart() {
    let o = Emulated::new(51, (32, 32, 4), false);
    with(&o, vec![1.5; 1024], CERTAIN, |errors| {
        let ln = |tests: f64| (tests * 1e9).ln();
        for (w, right, n, tests, limit) in [
            (&[1.0][..], 1.0, 64.0, 1.0, 1.0 + 2.0 * (ln(1.0) / 64.0).sqrt() + 2.0 * ln(1.0) / 64.0),
            (&[1.0], 4.0, 32.0, 10.0, 4.0 * (1.0 + 2.0 * (ln(10.0) / 32.0).sqrt() + 2.0 * ln(10.0) / 32.0)),
            (&[0.5, 1.5], 1.0, 64.0, 1.0, 1.0 + 2.0 * (1.25 * ln(1.0) / 64.0).sqrt() + 2.0 * 1.5 * ln(1.0) / 64.0),
            (&[1.0, 3.0], 1.0, 64.0, 1.0, 1.0 + 2.0 * (1.25 * ln(1.0) / 64.0).sqrt() + 2.0 * 1.5 * ln(1.0) / 64.0),
        ] {
            let mut l = looked(w, right, n);
            let mean = w.iter().sum::<f64>() / w.len() as f64;
            let mut of = |found: f64| {
                l.kernel.fill((found * mean).sqrt());
                l.size(errors, tests)
            };
            let (inside, beyond) = (of(limit * (1.0 - 1e-9)), of(limit * (1.0 + 1e-9)));
            assert_eq!(inside.larger, None, "{w:?}");
            let words = beyond.larger.unwrap();
            let here = if tests > 1.0 { "in rows 0 … 31, columns 0 … 31 its" } else { "its" };
            assert!(words.starts_with(&format!("{here} errors are {:.2} times", limit.sqrt())), "{words}");
            assert!(words.ends_with(&format!("at most {:.2} once in 1e9 tensors", limit.sqrt())), "{words}");
            // A gain of 1.5 adds its share of 1.5 to an error.
            let gain = 1.0 + ((limit * mean).sqrt() + (0.25 * limit * mean).sqrt()) / 1.5;
            let half = of(0.25 * limit);
            assert!((half.gain / gain - 1.0).abs() < 1e-9, "{} {gain}", half.gain);
            assert_eq!(
                half.words,
                format!(
                    "its errors are {:.2} times those of f32_sequential in any order (root mean square)",
                    (0.25 * limit).sqrt()
                )
            );
        }
        // Nothing is known of a NaN, and it is not small.
        let mut l = looked(&[1.0], 1.0, 64.0);
        l.kernel[5] = f64::NAN;
        assert!(l.size(errors, 1.0).larger.is_some());
    });
    with(&o, vec![0.0; 1024], 1.0, |errors| {
        assert_eq!(looked(&[1.0], 1.0, 64.0).size(errors, 1.0).gain, f64::INFINITY, "a gain of zeros");
    });
}

/// `x² = ν·((N·10⁹)^(2/ν) − 1)`, ν = 16, times the largest R.
#[test]
fn one_error_is_held_to_the_largest_deviation() {
    let o = Emulated::new(52, (32, 64, 4), false);
    with(&o, vec![1.5; 2048], CERTAIN, |errors| {
        let far = |elements: f64, right: f64| (right * 16.0 * ((elements * 1e9).powf(0.125) - 1.0)).sqrt();
        // Of 1024 elements that are looked at first, of all 2048 in one place of many; the largest w is 1.5; σ₁² over R² where that is more.
        for (right, single, tests, sigma, elements) in [
            (1.0, 0.0, 1.0, 1.5, 1024.0),
            (2.0, 1.0, 1.0, 1.5, 1024.0),
            (2.0, 8.0, 1.0, 4.0, 1024.0),
            (1.0, 0.0, 2.0, 1.5, 2048.0),
        ] {
            let mut l = Looked { single, ..looked(&[0.5, 1.5], right, 1024.0) };
            // All together are inside.
            l.mean = 100.0;
            let mut of = |x: f64| {
                l.kernel[70] = -x * f64::sqrt(sigma);
                l.size(errors, tests).larger
            };
            let far = far(elements, right);
            assert_eq!(of(far * (1.0 - 1e-9)), None, "{right} {single}");
            let words = of(far * (1.0 + 1e-9)).unwrap();
            let said = format!(
                "(1, 6): its error is {far:.0} times its deviation, larger than any right arithmetic makes it: at most {far:.0}"
            );
            assert!(words.starts_with(&said), "{words}");
        }
    });
}

#[test]
fn errors_are_shares_of_the_radius_and_half_a_spacing() {
    let o = Emulated::new(53, (2, 3, 4), false);
    with(&o, vec![1.5, 1.5, 3.0, -3.0, f64::INFINITY, 0.25], 2f64.powi(-24), |errors| {
        // Spacings 2^-23, 2^-22 and 2^-25.
        assert_eq!([0, 2, 3, 5].map(|at| errors.over(at, 2f64.powi(-20))), [8.0, 16.0 / 3.0, 16.0 / 3.0, 12.8]);
        assert_eq!([0, 2].map(|at| errors.stored(at)), [1.0 / 12.0, (4.0f64 / 3.0).powi(2) / 12.0]);
        assert_eq!(errors.scaled(0, 2.5f32.to_bits()), 2f64.powi(23));
        assert!(errors.scaled(0, u32::MAX).is_nan());
        assert_eq!(errors.scaled(4, 0), f64::NEG_INFINITY);
        assert!(!errors.whole_weights());
    });
    with(&o, vec![1.5; 6], f64::INFINITY, |errors| assert!(errors.over(0, 1.0).is_nan(), "nothing is known"));
    let spread = Spread { size: ErrorSize { words: String::new(), larger: None, gain: 2.0 }, sigma: 3.0 };
    assert!((spread.apart(100) / (lambda(100, DELTA) * 3.0 * 2f64.sqrt()) - 1.0).abs() < 1e-12);
}

/// Nine tiles of 8 × 8 in 20 × 20: a short rest is the end of a whole tile.
/// Equal products err by the same remainder: their errors add up; partial sums are no smaller than those of random products.
#[test]
fn errors_of_equal_products_drift() {
    let mut o = Emulated::new(54, (2, 1, 4), false);
    // 1, 1, 1, 1 and 2, −2, 2, 1.
    o.a = [0x3c00u16; 4].into_iter().chain([0x4000, 0xc000, 0x4000, 0x3c00]).collect();
    o.b = vec![0x3c00; 4];
    with(&o, vec![4.0, 3.0], 2f64.powi(-24), |errors| {
        let problem = errors.case.problems().remove(0);
        let region = Region::new(&errors.case.plan, problem, 0..2, 0..1);
        // (1 + 4 + 9 + 16)·16/4; of the other 4 + 0 + 4 + 9 is less than half of 4·13, and the products are there 2, 1 and 1 times.
        assert_eq!(region.drifts(), [120.0, 26.0 * 6.0 / 4.0]);
    });
}

#[test]
fn the_worst_tile_and_the_tile_of_the_worst_element_are_found() {
    let o = Emulated::new(54, (20, 20, 4), false);
    let worst = |ideal: &dyn Fn(usize, usize) -> f64, side: usize| {
        with(&o, (0..400).map(|at| ideal(at / 20, at % 20)).collect(), 1.0, |errors| {
            let (count, found) = errors.worst(&errors.case.problems(), side);
            (count, found.into_iter().map(|p| (p.rows, p.cols)).collect::<Vec<_>>())
        })
    };
    let tile = |r: usize, c: usize| r >= 12 && (8..16).contains(&c);
    let alone = |r: usize, c: usize| if (r, c) == (15, 10) { 1.5 } else { f64::from(u8::from(tile(r, c))) };
    let mixed = |r: usize, c: usize| if (r, c) == (3, 4) { 7.0 } else { alone(r, c) };
    assert_eq!(worst(&mixed, 8), (9, vec![(12..20, 8..16), (0..8, 0..8)]));
    assert_eq!(worst(&alone, 8), (9, vec![(12..20, 8..16)]));
    assert_eq!(worst(&mixed, 32), (1, vec![(0..20, 0..20)]));
    // Of what is not known nothing is said.
    let unknown = |r: usize, c: usize| if (r, c) == (3, 4) { f64::INFINITY } else { mixed(r, c) };
    assert_eq!(worst(&unknown, 8).1, [(12..20, 8..16)]);
    with(&o, vec![0.0; 400], 1.0, |errors| {
        let problem = errors.case.problems().remove(0);
        let patch = |rows: Range<usize>, cols: Range<usize>| Patch { problem: problem.clone(), rows, cols };
        let all = patch(2..10, 4..12);
        let inside = [patch(2..10, 4..12), patch(3..9, 5..11)].iter().all(|p| all.holds(p));
        let beside = [patch(1..9, 5..11), patch(3..11, 5..11), patch(3..9, 3..11), patch(3..9, 5..13)];
        assert!(inside && !beside.iter().any(|p| all.holds(p)));
    });
}

/// f32 sums in an order, anew every so many products, over the certain radius.
#[test]
fn a_place_is_summed_in_each_order_that_is_told() {
    let o = Emulated::new(55, (4, 6, 12), false);
    let (a, b) = (o.numbers(&o.a), o.numbers(&o.b));
    // Numbers of f16 as the bundle has them.
    let value = |code: u16| f64::from(half::f16::from_bits(code).to_f32());
    let product = |i: usize, j: usize, k: usize| value(o.a[i * 12 + k]) * value(o.b[j * 12 + k]);
    assert_eq!((a.len(), b.len()), (48, 72));
    let ideal: Vec<f64> = (0..24).map(|at| (0..12).map(|k| product(at / 6, at % 6, k)).sum()).collect();
    let sum = |i: usize, j: usize, order: &[usize], every: usize| {
        order
            .chunks(every)
            .fold(0.0f32, |main, k| main + k.iter().fold(0.0f32, |s, k| (product(i, j, *k) + f64::from(s)) as f32))
    };
    with(&o, ideal.clone(), 1e-6, |errors| {
        let problem = errors.case.problems().remove(0);
        let place = Patch { problem: problem.clone(), rows: 1..3, cols: 2..5 };
        let mut region = Region::new(&errors.case.plan, problem, 1..3, 2..5);
        let expected = |run: &Run, every: usize| -> Vec<f64> {
            let order: Vec<usize> = run.iter().flat_map(Clone::clone).collect();
            let of = |i: usize, j: usize| errors.over(i * 6 + j, f64::from(sum(i, j, &order, every)) - ideal[i * 6 + j]);
            (1..3).flat_map(|i| (2..5).map(move |j| (i, j))).map(|(i, j)| of(i, j)).collect()
        };
        for order in orders(12) {
            let made = errors.in_blocks(&mut region, Chain::Sequential, &order.run, order.every, order.nth).unwrap();
            assert_eq!(made, expected(&order.run, order.every), "{:?}", order.run);
        }
        // From all of them: the natural order, the others, the random ones by themselves.
        let natural = expected(&vec![0..12], 12);
        let all: Vec<(bool, Vec<f64>)> = orders(12).iter().map(|o| (o.random, expected(&o.run, o.every))).collect();
        let squares = |e: &[f64]| e.iter().map(|e| e * e).sum::<f64>();
        let mut w = [0.0; 6];
        all.iter().filter(|a| a.0).for_each(|(_, e)| w.iter_mut().zip(e).for_each(|(w, e)| *w += e * e / 16.0));
        let found = errors.look(&place, 1).unwrap().unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        for (i, w) in w.iter().enumerate() {
            let (row, col) = (1 + i / 3, 2 + i % 3);
            let squares: f64 = (0..12).map(|k| product(row, col, k).powi(2)).sum();
            let one = errors.over(row * 6 + col, 2f64.powi(-24)).powi(2) * squares / 3.0;
            assert!(near(found.w[i], w.max(one)), "{i}: {} {w} {one}", found.w[i]);
        }
        let stored: f64 = found.at.iter().map(|at| errors.stored(*at)).sum();
        assert!(near(found.mean, found.w.iter().sum::<f64>().max(stored) / 6.0));
        let most = all.iter().map(|a| squares(&a.1)).fold(squares(&natural), f64::max);
        assert!(near(found.right, (most / 6.0 / found.mean).max(1.0)), "{}", found.right);
        let largest = all.iter().flat_map(|a| &a.1).chain(&natural).fold(0.0f64, |m, e| m.max(e * e));
        assert!(near(found.single, largest / (2.0 * ((all.len() + 1) as f64 * 6.0).ln())), "{}", found.single);
        assert_eq!((found.at, found.diagonal), (vec![8, 9, 10, 14, 15, 16], 2.0));
        // A result of zeros: its errors are its ideal.
        assert!(found.kernel.iter().zip([8, 9, 10, 14, 15, 16]).all(|(e, at)| *e == errors.over(at, -ideal[at])));
        assert!(errors.look(&place, 2).unwrap().is_some());
    });
    // One of many places whose errors are those of a rounding of the output is not looked at further.
    let small = o.m * o.n;
    with(&o, vec![0.0; small], 1.0, |errors| {
        let problem = errors.case.problems().remove(0);
        let place = Patch { problem, rows: 1..3, cols: 2..5 };
        assert!(errors.look(&place, 2).unwrap().is_none() && errors.look(&place, 1).unwrap().is_some());
    });
}

/// Sixteen random orders, six strides and five blocks of two chains, and each chain in the order of K: 2²⁷ products in all.
#[test]
fn as_many_elements_are_looked_at_as_there_is_time_for() {
    assert_eq!([(1024, 4), (1024, 10), (4096, 2)].map(|(k, chains)| looked_at(k, chains)), [2259, 2048, 585]);
    assert_eq!([looked_at(8, 2), looked_at(1 << 20, 2)], [8192, 64]);
}

/// In an order that no search has, so that sizes of errors decide.
#[test]
fn sums_that_are_never_promoted_are_suspect_where_promotion_is_declared() {
    let o = Emulated::new(35, (32, 48, 2048), true);
    let taken = |x: &[Number]| (0..2048).map(|k| x[(771 * k + 5) % 2048]).collect::<Vec<_>>();
    let every = |n: usize| {
        let sum = |a: &[Number], b: &[Number]| {
            let (a, b) = (taken(a), taken(b));
            a.chunks(n).zip(b.chunks(n)).fold(0.0f32, |main, (a, b)| main + o.chain(T { w: 32, f: 13, o: Some(13) }, a, b))
        };
        o.product(sum, |p, i, j| o.scaled(p, i, j))
    };
    for (n, declared, verdict) in [
        (2048, true, crate::compare::Verdict::Suspect),
        (256, true, crate::compare::Verdict::Pass),
        (128, true, crate::compare::Verdict::Pass),
        (2048, false, crate::compare::Verdict::Pass),
    ] {
        let mut w = o.bundle(&every(n), Dtype::F32, "NVIDIA H200");
        declared.then(|| w.meta("promote_every", "256").clone());
        let found = assay_by(&read(&w), std::time::Duration::ZERO, None).unwrap();
        assert_eq!(found.verdict, verdict, "{n} {declared}: {}", found.model);
    }
}

/// Blackwell's instructions for MX formats align products with their scales. Where K cancels they leave what was cut off on the way.
#[test]
fn block_steps_take_the_scales_with_their_products() {
    let (m, n, k) = (4, 8, 640);
    let mut o = Emulated::new(71, (m, n, k), true);
    for (codes, flip) in [(&mut o.a, 0x80), (&mut o.b, 0)] {
        for row in codes.chunks_mut(k) {
            let (first, second) = row.split_at_mut(k / 2);
            second.iter_mut().zip(first).for_each(|(y, x)| *y = *x ^ flip);
        }
    }
    let blocks = k / 32;
    let scale = |side: u64, row: usize, block: usize| -> i32 {
        (Random(side << 32 | (row * blocks + block % (blocks / 2)) as u64).next() % 9) as i32 - 4
    };
    let shifted = |codes: &[u16], side: u64| -> Vec<Number> {
        let numbers = o.numbers(codes).into_iter().enumerate();
        numbers.map(|(at, x)| x.shifted(scale(side, at / k, at % k / 32))).collect()
    };
    let (a, b) = (shifted(&o.a, 1), shifted(&o.b, 2));
    let t = T { w: 32, f: 25, o: Some(23) };
    let out: Vec<f32> = (0..m * n).map(|at| o.chain(t, &a[at / n * k..][..k], &b[at % n * k..][..k])).collect();
    assert!(out.iter().filter(|x| **x != 0.0).count() > m * n / 2, "{out:?}");
    let mut w = super::super::super::Writer::new("gemm");
    for (side, name, rows, codes) in [(1, "a", m, &o.a), (2, "b", n, &o.b)] {
        w.raw(&format!("{name}.codes"), Dtype::F8_E4M3, &[rows, k], codes.iter().map(|c| *c as u8).collect());
        let scales = (0..rows * blocks).map(|at| (127 + scale(side, at / blocks, at % blocks)) as u8).collect();
        w.raw(&format!("{name}.scale_inv"), Dtype::F8_E8M0, &[rows, blocks], scales);
        w.meta(&format!("{name}.granularity"), "group:32");
    }
    w.f32s("out", &[m, n], &out).meta("device", "NVIDIA B200");
    let bundle = read(&w);
    let (built, output) = (build(&bundle).unwrap(), output(&bundle).unwrap());
    let job = runnable(&built.job);
    let case = Case::of(&job, &output).unwrap();
    assert_eq!(case.values(&Way::plain(Chain::Scaled("blackwell_tcgen05"))).unwrap(), out);
    let found = assay_by(&bundle, std::time::Duration::ZERO, None).unwrap();
    assert!(found.model.contains("blackwell_tcgen05 with the scales in its steps"), "{}", found.model);
}
