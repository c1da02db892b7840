//! Right kernels pass however they split K, and wrong ones that hide in the bound do not.

use super::super::Writer;
use super::super::assay::{Answer, assay_by, build, output};
use super::Arithmetic;
use super::cuts::{Cut, Join};
use super::emulated::{Emulated, Number, Random, T, read};
use super::search::{Case, Way, Ways};
use super::ways::{Bias, Chain};
use crate::compare::Verdict;
use crate::model::Inner;
use crate::{Format, Tensor, tensor::round_to};
use safetensors::Dtype;
use std::ops::Range;
use std::time::{Duration, Instant};

const H200: &str = "NVIDIA H200";
const WGMMA: T = T { w: 32, f: 13, o: Some(13) };
const HALF: T = T { w: 16, f: 25, o: Some(23) };

fn said(o: &Emulated, out: &[f32], dtype: Dtype, device: &str) -> Answer {
    let start = Instant::now();
    let answer = assay(&o.bundle(out, dtype, device));
    println!("{:?} {} {}: {} {}", start.elapsed(), answer.verdict, device, answer.model, answer.reason);
    answer
}

/// Without a diagnosis: what is judged here is the verdict.
fn assay(w: &Writer) -> Answer {
    assay_by(&read(w), Duration::ZERO, None).unwrap()
}

/// The product with K cut into these parts, which are added one after the other.
fn split(o: &Emulated, t: T, parts: &[Range<usize>]) -> Vec<f32> {
    let sum = |a: &[Number], b: &[Number]| {
        let of = |r: &Range<usize>| o.chain(t, &a[r.clone()], &b[r.clone()]);
        parts[1..].iter().fold(of(&parts[0]), |sum, r| sum + of(r))
    };
    o.product(sum, |p, i, j| o.scaled(p, i, j))
}

/// `count` parts of ⌈tiles/count⌉ tiles of 128.
fn parts(k: usize, count: usize) -> Vec<Range<usize>> {
    let each = k.div_ceil(128).div_ceil(count) * 128;
    (0..count).map(|s| (s * each).min(k)..((s + 1) * each).min(k)).filter(|r| !r.is_empty()).collect()
}

#[test]
fn splits_of_an_h200_pass_to_the_bit() {
    let o = Emulated::new(1, (4, 48, 5760), true);
    for (count, dtype) in [(2, Dtype::F32), (3, Dtype::BF16), (4, Dtype::F32)] {
        let found = said(&o, &split(&o, WGMMA, &parts(o.k, count)), dtype, H200);
        assert_eq!(found.verdict, Verdict::Pass, "{count}: {}", found.reason);
        assert_eq!(found.comparison().mismatches, Some(0), "{count}: {}", found.model);
        assert!(found.model.contains(&format!("split in {count}")), "{}", found.model);
    }
    // Promoted every 256.
    let promoted =
        |a: &[Number], b: &[Number]| a.chunks(256).zip(b.chunks(256)).fold(0.0f32, |main, (a, b)| main + o.chain(WGMMA, a, b));
    let found = said(&o, &o.product(promoted, |p, i, j| o.scaled(p, i, j)), Dtype::F32, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
    assert!(found.model.contains("hopper_wgmma@256"), "{}", found.model);
    // Five parts as a tree; every other tile of 64 by another group of warps.
    let five = |a: &[Number], b: &[Number]| {
        let p: Vec<f32> = parts(o.k, 5).into_iter().map(|r| o.chain(WGMMA, &a[r.clone()], &b[r])).collect();
        ((p[0] + p[1]) + (p[2] + p[3])) + p[4]
    };
    let found = said(&o, &o.product(five, |p, i, j| o.scaled(p, i, j)), Dtype::F32, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
    let sliced = |a: &[Number], b: &[Number]| {
        let of = |s: usize| {
            let every = |x: &[Number]| x.chunks(64).skip(s).step_by(2).flatten().copied().collect::<Vec<_>>();
            o.chain(WGMMA, &every(a), &every(b))
        };
        of(0) + of(1)
    };
    let found = said(&o, &o.product(sliced, |p, i, j| o.scaled(p, i, j)), Dtype::BF16, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
}

#[test]
fn codes_of_a_split_product_pass_to_the_bit() {
    let o = Emulated::new(3, (16, 64, 768), true);
    let values = split(&o, WGMMA, &parts(o.k, 2));
    let scale = 300.0 / values.iter().fold(0f32, |m, v| m.max(v.abs()));
    let codes: Vec<u8> = values.iter().map(|v| float8::F8E4M3::from_f32(v * scale).to_bits()).collect();
    let mut w = o.bundle(&values, Dtype::F32, H200);
    w.without("out").raw("out.codes", Dtype::F8_E4M3, &[o.m, o.n], codes).f32s("out.scale", &[1], &[scale]);
    let found = assay(&w);
    assert!(found.verdict == Verdict::Pass && found.model.contains("split in 2"), "{}: {}", found.model, found.reason);
}

/// One element is looked at first, then a few, then those that refuted others: the first way that has every bit is found, as if all were
/// looked at whole.
#[test]
fn no_look_drops_a_way_that_has_every_bit() {
    for (seed, dtype, count, wrong) in
        [(21, Dtype::F32, 1, None), (22, Dtype::BF16, 1, None), (23, Dtype::BF16, 2, None), (24, Dtype::BF16, 1, Some(77))]
    {
        let o = Emulated::new(seed, (5, 40, 768), true);
        let mut out = split(&o, WGMMA, &parts(o.k, count));
        wrong.iter().for_each(|at: &usize| out[*at] *= 1.02);
        let bundle = read(&o.bundle(&out, dtype, H200));
        let built = build(&bundle).unwrap();
        let (job, output) = (super::runnable(&built.job), output(&bundle).unwrap());
        let case = Case::of(&job, &output).unwrap().telling(&built.ideal[0]);
        let chains = Arithmetic::of(&bundle.meta, &job).unwrap().promoted(o.k);
        let ways = Ways { chains, cuts: vec![Cut::Whole, Cut::Even { tile: 128, parts: 2 }], endings: case.endings(true) };
        let mut first = None;
        for cut in &ways.cuts {
            let count = cut.parts(o.k).len();
            for (chain, promote) in &ways.chains {
                for ending in ways.endings.iter().filter(|e| count > 1 || !(e.each || e.bias == Bias::First)) {
                    for join in Join::all(count) {
                        let way = Way { chain: *chain, promote: *promote, cut: *cut, join, ending: *ending };
                        let values = case.values(&way).unwrap();
                        if first.is_none() && values.iter().zip(&case.bits).all(|(v, b)| case.store.bits(*v, false) == *b) {
                            first = Some(way);
                        }
                    }
                }
            }
        }
        assert_eq!(first.is_none(), wrong.is_some(), "{seed}: {first:?}");
        assert_eq!(case.find(&ways, usize::MAX).unwrap(), first, "{seed}");
    }
}

#[test]
fn a_bias_may_be_fused_and_scales_meet_parts_or_sums() {
    let o = Emulated::new(2, (6, 40, 768), true).with_bias(3);
    let bias = o.bias.clone().unwrap();
    let chain = |a: &[Number], b: &[Number]| o.chain(WGMMA, a, b);
    let fused = o.product(chain, |p, i, j| (p * o.sa[i]).mul_add(o.sb[j], bias[j]));
    let found = said(&o, &fused, Dtype::F32, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
    // Also where the model is declared.
    let mut w = o.bundle(&fused, Dtype::F32, "");
    w.meta("device_model", "hopper_wgmma");
    let found = assay(&w);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
    // Each of two parts scaled, the bias in the first.
    let halves = o.product(
        |_, _| 0.0,
        |_, i, j| {
            let (a, b) = (o.numbers(&o.a[i * o.k..(i + 1) * o.k]), o.numbers(&o.b[j * o.k..(j + 1) * o.k]));
            let half = |r: Range<usize>| o.chain(WGMMA, &a[r.clone()], &b[r]) * (o.sa[i] * o.sb[j]);
            (half(0..384) + bias[j]) + half(384..768)
        },
    );
    let found = said(&o, &halves, Dtype::F32, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
}

#[test]
fn f16_products_of_known_and_unknown_devices_pass() {
    let o = Emulated::new(4, (5, 40, 1024), false);
    for (device, t) in [
        ("Tesla V100-SXM2-16GB", T { w: 4, f: 23, o: Some(23) }),
        ("NVIDIA A100-SXM4-40GB", T { w: 8, f: 24, o: Some(23) }),
        ("NVIDIA L40S", T { w: 8, f: 24, o: Some(23) }),
        (H200, HALF),
        ("NVIDIA B200", HALF),
        ("", T { w: 8, f: 24, o: Some(23) }),
    ] {
        for out in [split(&o, t, &parts(o.k, 1)), split(&o, t, &parts(o.k, 4))] {
            let found = said(&o, &out, Dtype::F32, device);
            assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{device}: {}", found.model);
        }
    }
}

/// Orders that nobody has a model of: products taken at random, in parts of random length. By the bound, and the answer says so.
#[test]
fn an_order_without_a_model_passes_by_the_bound() {
    for (seed, e4m3, t) in [(5, true, WGMMA), (6, false, HALF)] {
        let o = Emulated::new(seed, (24, 64, 768), e4m3);
        let mut order: Vec<usize> = (0..o.k).collect();
        let mut r = Random(seed);
        for i in (1..o.k).rev() {
            order.swap(i, (r.next() % (i as u64 + 1)) as usize);
        }
        let shuffled = |a: &[Number], b: &[Number]| {
            let of = |x: &[Number]| order.iter().map(|k| x[*k]).collect::<Vec<_>>();
            o.chain(t, &of(a), &of(b))
        };
        let out = o.product(shuffled, |p, i, j| o.scaled(p, i, j));
        let found = said(&o, &out, Dtype::F32, H200);
        assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, None), "{}: {}", found.model, found.reason);
        assert!(found.model.contains("bound") && found.model.contains("its errors are"), "{}", found.model);
        assert!(!found.model.contains("wrong arithmetic"), "{}", found.model);
        // Few elements in bf16 may have the bits of another order.
        let found = said(&o, &out, Dtype::BF16, H200);
        assert_eq!(found.verdict, Verdict::Pass, "{}: {}", found.model, found.reason);
    }
}

#[test]
fn wrong_arithmetics_that_hide_in_the_bound_fail() {
    let o = Emulated::new(7, (16, 64, 768), true);
    let of = |t: T| o.product(|a, b| o.chain(t, a, b), |p, i, j| o.scaled(p, i, j));
    let ended = |parts: &[Range<usize>], end: &dyn Fn(f32) -> f32| {
        let sum = |a: &[Number], b: &[Number]| {
            let p = |r: &Range<usize>| end(o.chain(WGMMA, &a[r.clone()], &b[r.clone()]));
            parts[1..].iter().fold(p(&parts[0]), |sum, r| sum + p(r))
        };
        o.product(sum, |p, i, j| o.scaled(p, i, j))
    };
    // Two parts of whole tiles of 128; eight of 96; twelve of 64.
    let (halves, [eighths, twelfths]) =
        (parts(o.k, 2), [96, 64].map(|n| (0..768 / n).map(|p| n * p..n * (p + 1)).collect::<Vec<_>>()));
    let bf16 = |x: f32| round_to(Format::Bf16, x);
    let f16 = |x: f32| round_to(Format::F16, x);
    let cases: [(&str, Vec<f32>, Dtype, &str); 9] = [
        ("hopper_wgmma_f16", of(T { w: 32, f: 13, o: None }), Dtype::F32, H200),
        ("10 fraction bits", of(T { w: 32, f: 13, o: Some(10) }), Dtype::F32, H200),
        ("10 bits below", of(T { w: 32, f: 10, o: Some(13) }), Dtype::F32, H200),
        (
            "accumulator of bf16",
            o.product(
                |a, b| a.chunks(128).zip(b.chunks(128)).fold(0.0, |m, (a, b)| bf16(m + o.chain(WGMMA, a, b))),
                |p, i, j| o.scaled(p, i, j),
            ),
            Dtype::F32,
            H200,
        ),
        ("the sum rounded to f16", o.product(|a, b| o.chain(WGMMA, a, b), |p, i, j| o.scaled(f16(p), i, j)), Dtype::F32, H200),
        (
            "the result truncated",
            of(WGMMA).iter().map(|x| f32::from_bits(x.to_bits() & 0xffff_0000)).collect(),
            Dtype::BF16,
            H200,
        ),
        ("parts rounded to bf16", ended(&halves, &bf16), Dtype::F32, H200),
        ("parts rounded to bf16", ended(&eighths, &bf16), Dtype::F32, H200),
        ("parts rounded to bf16", ended(&twelfths, &bf16), Dtype::F32, H200),
    ];
    for (name, out, dtype, device) in &cases {
        let found = said(&o, out, *dtype, device);
        assert_eq!(found.verdict, Verdict::Fail, "{name}: {}", found.model);
        assert!(found.reason.contains(name) || found.comparison().bound_ratio_certain > 1.0, "{name}: {}", found.reason);
    }
    // Without a device the bound of f32 is tight, and what is in it is found all the same.
    for (name, out, dtype, _) in &cases {
        assert_eq!(said(&o, out, *dtype, "").verdict, Verdict::Fail, "{name}");
    }
    // f16 operands with f16 accumulators.
    let o = Emulated::new(8, (16, 64, 768), false);
    let out = o.product(|a, b| o.chain(T { o: None, ..HALF }, a, b), |p, i, j| o.scaled(p, i, j));
    assert_eq!(said(&o, &out, Dtype::F32, H200).verdict, Verdict::Fail);
}

/// An accumulator of bf16 between promotions, behind a result of bf16: its error is of the size of the result's own rounding.
#[test]
fn an_accumulator_of_bf16_fails_behind_a_result_of_bf16() {
    let o = Emulated::new(17, (24, 40, 2048), true);
    let exact = T { w: 128, f: 40, o: Some(23) };
    let every = |step: usize, kept: fn(f32) -> f32| {
        let sum = |a: &[Number], b: &[Number]| {
            a.chunks(step).zip(b.chunks(step)).fold(0.0, |main, (a, b)| kept(main + o.chain(exact, a, b)))
        };
        o.product(sum, |p, i, j| o.scaled(p, i, j))
    };
    for step in [128, 256] {
        let wrong = said(&o, &every(step, |x| round_to(Format::Bf16, x)), Dtype::BF16, "");
        assert_eq!(wrong.verdict, Verdict::Fail, "{step}: {}", wrong.model);
        let right = said(&o, &every(step, |x| x), Dtype::BF16, "");
        assert_eq!(right.verdict, Verdict::Pass, "{step}: {}", right.reason);
    }
}

/// One element off by 10 %, one column by 3 %: inside the bound of 13 fraction bits, and all around is to the bit.
#[test]
fn one_wrong_element_fails_in_the_wide_bound() {
    let o = Emulated::new(9, (16, 64, 768), true);
    let right = split(&o, WGMMA, &parts(o.k, 1));
    let mut one = right.clone();
    one[77] *= 1.1;
    assert_eq!(said(&o, &one, Dtype::F32, H200).verdict, Verdict::Fail);
    let mut column = right;
    column.iter_mut().skip(5).step_by(64).for_each(|x| *x *= 1.03);
    assert_eq!(said(&o, &column, Dtype::F32, H200).verdict, Verdict::Fail);
}

/// A gain of all elements has nobody's bits; it is larger than any error of the device.
#[test]
fn a_gain_inside_the_wide_bound_is_suspect() {
    let o = Emulated::new(10, (32, 64, 768), true);
    let gain: Vec<f32> = split(&o, WGMMA, &parts(o.k, 1)).iter().map(|x| x * 1.02).collect();
    let found = said(&o, &gain, Dtype::F32, H200);
    assert_eq!(found.verdict, Verdict::Suspect, "{}", found.model);
    assert!(found.reason.contains("larger than"), "{}", found.reason);
}

/// Sums of positive products that a unit cuts lie below the right ones, here by about as much as these scales would if they were cut to bf16.
#[test]
fn sums_that_are_cut_are_not_scales_that_are_cut() {
    let mut o = Emulated::new(13, (16, 32, 512), true);
    o.a.iter_mut().chain(&mut o.b).for_each(|code| *code &= 0x7f);
    o.sa.fill(1.0 / 1024.0);
    // Steps of eight products from the last to the first: no order that is modelled.
    let back = |x: &[Number]| x.iter().rev().copied().collect::<Vec<_>>();
    let of = |o: &Emulated, t: T| o.product(|a, b| o.chain(t, &back(a), &back(b)), |p, i, j| o.scaled(p, i, j));
    let unit = T { w: 8, f: 14, o: Some(13) };
    let (cut, whole) = (of(&o, unit), of(&o, T { w: 8, f: 30, o: Some(23) }));
    let drift = cut.iter().zip(&whole).map(|(c, w)| 1.0 - c / w).sum::<f32>() / cut.len() as f32;
    // Below the step of bf16 above a power of two: cut, each of these scales becomes the power.
    assert!((0.0005..0.0075).contains(&drift), "{drift}");
    for (i, scale) in o.sa.iter_mut().enumerate() {
        *scale *= 1.0 + drift * (0.95 + i as f32 / 150.0);
    }
    for device in ["NVIDIA L40S", ""] {
        let found = said(&o, &of(&o, unit), Dtype::F32, device);
        assert_ne!(found.verdict, Verdict::Fail, "{device}: {}", found.model);
    }
}

/// Weights kept in f32 whose products cancel: sums of weights rounded to bf16 are exact in every order, and say nothing of this kernel's errors.
#[test]
fn weights_that_are_not_rounded_may_err_where_rounded_ones_do_not() {
    let (m, n, k) = (7, 5, 64);
    let mut r = Random(14);
    // Of one binade: their products and sums by weights of four bits, rounded to bf16, are exact in f32.
    let mut one = || {
        let x = r.normal() as f32;
        round_to(Format::Bf16, (1.0 + x.abs() % 0.75).copysign(x))
    };
    let mut rows = |count: usize, sign: f32| -> Vec<f32> {
        let mut row = || {
            let half: Vec<f32> = (0..k / 2).map(|_| one()).collect();
            half.iter().copied().chain(half.iter().map(|x| sign * x)).collect::<Vec<_>>()
        };
        (0..count).flat_map(|_| row()).collect()
    };
    let a = Tensor::rounded(Format::Bf16, m, k, rows(m, -1.0)).unwrap();
    let b = Tensor::rounded(Format::F32, n, k, rows(n, 1.0)).unwrap();
    let b = "affine_sym:int4:g64".parse::<crate::recipe::Recipe>().unwrap().quantize(&b).unwrap().q;
    let weights = b.dequantize_f32();
    // Every thirteenth product, round and round: no order that is modelled.
    let ks = || (0..k).map(|l| l * 13 % k);
    let sum = |at: usize| ks().fold(0.0f32, |s, l| s + a.data()[at / n * k + l] * weights[[at % n, l]]);
    let out: Vec<f32> = (0..m * n).map(sum).collect();
    assert!(out.iter().any(|x| *x != 0.0));
    let mut w = Writer::new("gemm");
    w.values("a", &[m, k], &a).codes("b", &b, None, None).unwrap();
    w.values("out", &[m, n], &Tensor::new(Format::F32, m, n, out).unwrap());
    let found = assay(&w);
    assert!(!matches!(found.verdict, Verdict::Suspect | Verdict::Fail), "{}: {}", found.verdict, found.reason);
}

/// K is so long that the certain bound of a unit of 13 bits is wider than the result: the size of the errors decides, everywhere.
#[test]
fn where_the_bound_is_wider_than_the_result_the_size_of_the_errors_decides() {
    let o = Emulated::new(12, (48, 40, 4096), true);
    // Eight parts, each in steps of eight products from the last to the first: no order that is modelled.
    let strange = |a: &[Number], b: &[Number]| {
        let of = |x: &[Number], part: usize| x.iter().rev().skip(part).step_by(8).copied().collect::<Vec<_>>();
        (0..8).fold(0.0f32, |sum, part| sum + o.chain(T { w: 8, f: 14, o: Some(13) }, &of(a, part), &of(b, part)))
    };
    let right = o.product(strange, |p, i, j| o.scaled(p, i, j));
    let found = said(&o, &right, Dtype::F32, "NVIDIA L40S");
    assert_eq!(found.verdict, Verdict::Pass, "{}: {}", found.model, found.reason);
    let zeros = said(&o, &vec![0.0; right.len()], Dtype::F32, "NVIDIA L40S");
    assert_eq!(zeros.verdict, Verdict::Suspect, "{}", zeros.reason);
    // Eight rows and columns away from the first place that is looked at.
    let mut tile = right.clone();
    (40..48).for_each(|i| tile[i * 40 + 32..i * 40 + 40].iter_mut().for_each(|x| *x *= 1.5));
    let found = said(&o, &tile, Dtype::F32, "NVIDIA L40S");
    assert_eq!(found.verdict, Verdict::Suspect, "{}: {}", found.model, found.reason);
    assert!(found.reason.contains("larger than"), "{}", found.reason);
    // A diagnosis that gives exactly these errors makes it a failure.
    let gain: Vec<f32> = right.iter().map(|x| x * 1.5).collect();
    let found = super::super::assay::assay(&read(&o.bundle(&gain, Dtype::F32, "NVIDIA L40S"))).unwrap();
    let named = found.diagnosis.iter().flat_map(|d| &d.findings).map(|f| f.detail.as_str()).collect::<String>();
    assert_eq!(found.verdict, Verdict::Fail, "{}; {:?}", found.reason, found.diagnosis);
    assert!(named.contains("1.5"), "{named}");
}

/// What a kernel leaves behind the last group is not judged.
#[test]
fn rows_behind_the_last_group_are_nobodys() {
    let o = Emulated::new(11, (12, 40, 256), true);
    // Two experts of 20 columns; rows 9, 10 and 11 belong to none.
    let mut out = Vec::new();
    let whole = split(&o, WGMMA, &parts(o.k, 1));
    for i in 0..o.m {
        let expert = usize::from(i >= 4);
        out.extend((0..20).map(|j| if i < 9 { whole[i * 40 + expert * 20 + j] } else { [f32::NAN, 7e37, -1.0][i - 9] }));
    }
    let mut w = o.bundle(&whole, Dtype::F32, H200);
    let b: Vec<u8> = o.b.iter().map(|c| *c as u8).collect();
    w.raw("b.codes", Dtype::F8_E4M3, &[2, 20, o.k], b).f32s("b.scale_inv", &[2, 20], &o.sb).i32s("offs", &[2], &[4, 9]);
    w.meta("op", "grouped_gemm").f32s("out", &[12, 20], &out);
    let found = assay(&w);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}: {}", found.model, found.reason);
    out[5 * 20] *= 1.5;
    w.f32s("out", &[12, 20], &out);
    assert_eq!(assay(&w).verdict, Verdict::Fail);
}

/// int8 codes dequantized first and summed in f32: inside what the contract says of integers without `device_model`.
#[test]
fn an_int8_product_may_be_dequantized_first() {
    let (m, n, k) = (9, 24, 512);
    let mut r = Random(12);
    let mut codes = |count: usize| (0..count).map(|_| (r.normal() * 30.0) as i8).collect::<Vec<_>>();
    let (a, b) = (codes(m * k), codes(n * k));
    let zeros: Vec<i32> = (0..m as i32).map(|i| 3 * i - 7).collect();
    let mut scale = |count: usize| (0..count).map(|_| (0.01 * (1.2 + r.normal().abs())) as f32).collect::<Vec<f32>>();
    let (sa, sb) = (scale(m), scale(n));
    let bytes = |codes: &[i8]| codes.iter().map(|c| *c as u8).collect::<Vec<_>>();
    let bundle = |out: &[f32]| {
        let mut w = Writer::new("gemm");
        w.raw("a.codes", Dtype::I8, &[m, k], bytes(&a)).f32s("a.scale_inv", &[m], &sa).meta("a.granularity", "row");
        w.raw("b.codes", Dtype::I8, &[n, k], bytes(&b)).f32s("b.scale_inv", &[n], &sb).meta("b.granularity", "row");
        w.i32s("a.zero_point", &[m], &zeros).meta("a.zero", "integer").f32s("out", &[m, n], out);
        assay(&w)
    };
    let element = |f: &dyn Fn(usize, usize) -> f32| (0..m * n).map(|i| f(i / n, i % n)).collect::<Vec<f32>>();
    let row = |x: &[i8], i: usize| x[i * k..(i + 1) * k].iter().map(|c| f32::from(*c)).collect::<Vec<f32>>();
    let dequantized = element(&|i, j| {
        row(&a, i).iter().zip(row(&b, j)).fold(0.0f32, |s, (x, w)| s + ((x - zeros[i] as f32) * sa[i]) * (w * sb[j]))
    });
    let found = bundle(&dequantized);
    assert_eq!(found.verdict, Verdict::Pass, "{}: {}", found.model, found.reason);
    // Sums that no scale meets are of no right arithmetic.
    let unscaled = element(&|i, j| row(&a, i).iter().zip(row(&b, j)).map(|(x, w)| (x - zeros[i] as f32) * w).sum());
    let found = bundle(&unscaled);
    assert!(found.verdict == Verdict::Fail && found.comparison().mismatches != Some(0), "{}", found.model);
    // The zero point's correction apart, in f32.
    let apart = element(&|i, j| {
        let (x, w) = (row(&a, i), row(&b, j));
        let sum = x.iter().zip(&w).fold(0.0f32, |s, (x, w)| s + x * w) * (sa[i] * sb[j]);
        sum - w.iter().sum::<f32>() * (zeros[i] as f32 * sa[i] * sb[j])
    });
    let found = bundle(&apart);
    assert_eq!(found.verdict, Verdict::Pass, "{}: {}", found.model, found.reason);
    // The exact sum rounded to f16 before its scales is not.
    let rounded = element(&|i, j| {
        let sum = row(&a, i).iter().zip(row(&b, j)).fold(0.0f32, |s, (x, w)| s + (x - zeros[i] as f32) * w);
        round_to(Format::F16, sum) * sa[i] * sb[j]
    });
    assert_eq!(bundle(&rounded).verdict, Verdict::Fail);
}

#[test]
fn parts_may_be_added_from_the_last() {
    // f16 products leave every part 24 bits, so that the order of the additions shows.
    let o = Emulated::new(7, (4, 48, 768), false);
    let backwards = |a: &[Number], b: &[Number]| {
        let of = |r: Range<usize>| o.chain(HALF, &a[r.clone()], &b[r]);
        parts(o.k, 3).into_iter().rev().map(of).reduce(|sum, part| sum + part).unwrap()
    };
    let found = said(&o, &o.product(backwards, |p, i, j| o.scaled(p, i, j)), Dtype::F32, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
    assert!(found.model.contains("parts added in the order [1, 2, 0]"), "{}", found.model);
}

/// K of five tiles, two of them in the first part and three in the second: as no usual split cuts it.
#[test]
fn a_rare_split_passes_to_the_bit() {
    let o = Emulated::new(12, (4, 48, 640), true);
    let found = said(&o, &split(&o, WGMMA, &[0..256, 256..640]), Dtype::F32, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
    assert!(found.model.contains("split in 2"), "{}", found.model);
}

/// Blocks of 32 products that keep 25 bits are another device's: nobody's bits here, more exact than this device's, and not wrong.
#[test]
fn the_arithmetic_of_a_better_device_passes() {
    let o = Emulated::new(13, (16, 64, 768), true);
    let better = T { w: 32, f: 25, o: Some(23) };
    let out = o.product(|a, b| o.chain(better, a, b), |p, i, j| o.scaled(p, i, j));
    let found = said(&o, &out, Dtype::F32, "NVIDIA B200");
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
    let found = said(&o, &out, Dtype::F32, H200);
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, None), "{}", found.model);
}

/// Integers have nothing to promote, whatever a kernel of another type does; sums that round have.
#[test]
fn exact_sums_are_not_promoted() {
    let promoted = |chain: Chain, promote_every: Option<usize>| {
        let (chains, bound) = (vec![chain], Inner::AnyOrder);
        Arithmetic { declared: None, chains, promote_every, bound, why: String::new() }.promoted(4096)
    };
    for every in [None, Some(64)] {
        for chain in [Chain::Int32, Chain::Exact] {
            assert_eq!(promoted(chain, every), [(chain, None)]);
        }
        assert!(promoted(Chain::Sequential, every).iter().any(|c| c.1.is_some()));
    }
}

/// Codes whose sums are exact in f32 nearly everywhere have the bits of any order there: they say nothing of the order of the others.
#[test]
fn sums_that_are_nearly_all_exact_may_be_in_any_order() {
    let value = |code: &u16| Format::E4m3.decode(u32::from(*code)) as f32;
    for seed in [3, 13, 47, 63, 95] {
        let mut o = Emulated::new(seed, (32, 24, 160), true).with_bias(seed);
        // Outliers make most codes of a row small: some sums need more bits than f32 has.
        let mut r = Random(1000 + seed);
        for row in o.a.chunks_mut(160).chain(o.b.chunks_mut(160)) {
            let x: Vec<f64> = row.iter().map(|_| r.normal() * if r.next().is_multiple_of(200) { 20.0 } else { 1.0 }).collect();
            let most = x.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            row.iter_mut().zip(&x).for_each(|(c, x)| *c = float8::F8E4M3::from_f64(x * 448.0 / most).to_bits().into());
        }
        o.sa.iter_mut().chain(o.sb.iter_mut()).for_each(|s| *s *= 10.0);
        let lanes = |i: usize, j: usize| {
            let mut sums = [0.0f32; 8];
            let products = o.a[i * o.k..][..o.k].iter().map(value).zip(o.b[j * o.k..][..o.k].iter().map(value));
            products.enumerate().for_each(|(k, (x, y))| sums[k % 8] += x * y);
            ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
        };
        let bias = o.bias.clone().unwrap();
        let scaled = |i: usize, j: usize| lanes(i, j) * o.sa[i] * o.sb[j] + bias[j];
        let out: Vec<f32> = (0..o.m * o.n).map(|at| scaled(at / o.n, at % o.n)).collect();
        let found = said(&o, &out, Dtype::F32, "");
        assert_eq!(found.verdict, Verdict::Pass, "{seed}: {}", found.reason);
    }
}

/// As numpy multiplies factors that it dequantized in f32: exactly but for one rounding, or by OpenBLAS.
#[test]
fn products_of_dequantized_factors_pass_to_the_bit() {
    let o = Emulated::new(29, (6, 20, 1000), true);
    let factors = |codes: &[u16], scales: &[f32]| -> Vec<f32> {
        o.numbers(codes).iter().enumerate().map(|(i, c)| c.value() as f32 * scales[i / o.k]).collect()
    };
    let (a, b) = (factors(&o.a, &o.sa), factors(&o.b, &o.sb));
    let rows = |at: usize| (&a[at / o.n * o.k..][..o.k], &b[at % o.n * o.k..][..o.k]);
    let every =
        |sum: &dyn Fn(&[f32], &[f32]) -> f32| -> Vec<f32> { (0..o.m * o.n).map(rows).map(|(a, b)| sum(a, b)).collect() };
    let in_f64 = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32;
    let chain = |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0.0f32, |s, (x, y)| x.mul_add(*y, s));
    let blocks = |a: &[f32], b: &[f32]| {
        let of = |k: Range<usize>| chain(&a[k.clone()], &b[k]);
        of(0..448) + of(448..724) + of(724..1000)
    };
    for (out, words) in [(every(&in_f64), "exact of factors dequantized to f32"), (every(&blocks), "blocks of at most 448")] {
        let found = said(&o, &out, Dtype::F32, "");
        assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
        assert!(found.model.contains(words), "{}", found.model);
    }
}

/// An accumulator of f16 leaves sums of 11 bits in any order, far inside the bound of units that keep 13.
#[test]
fn sums_of_eleven_bits_are_those_of_an_accumulator_in_f16() {
    let mut o = Emulated::new(5, (24, 24, 256), true);
    // Of one sign.
    o.a.iter_mut().chain(o.b.iter_mut()).for_each(|c| *c &= 0x7f);
    let value = |code: &u16| Format::E4m3.decode(u32::from(*code));
    let sum = |i: usize, j: usize, by: &dyn Fn(f64) -> f64| {
        (0..o.k).rev().fold(0.0, |sum, k| by(sum + value(&o.a[i * o.k + k]) * value(&o.b[j * o.k + k]) / 32.0)) * 32.0
    };
    let out = |by: &dyn Fn(f64) -> f64| -> Vec<f32> {
        (0..o.m * o.n).map(|at| sum(at / o.n, at % o.n, by) as f32 * o.sa[at / o.n] * o.sb[at % o.n]).collect()
    };
    let half = out(&|x| f64::from(half::f16::from_f64(x)));
    let found = said(&o, &half, Dtype::F32, "");
    assert!(found.verdict == Verdict::Fail && found.reason.contains("number of f16"), "{} {}", found.verdict, found.reason);
    let named = assay_by(&read(&o.bundle(&half, Dtype::F32, "")), crate::fault::DIAGNOSIS, None).unwrap();
    let first = named.diagnosis.and_then(|d| d.findings.into_iter().next());
    assert_eq!(first.map(|f| f.class), Some(crate::fault::Class::LowprecAcc));
    assert_eq!(said(&o, &out(&|x| x), Dtype::F32, "").verdict, Verdict::Pass);
}

/// Two products of 2^16 cancel: beside them a unit keeps few bits of all others, and what is left was never kept in f16.
#[test]
fn sums_that_are_small_beside_their_products_show_no_accumulator() {
    let mut o = Emulated::new(6, (24, 24, 32), true);
    o.b.iter_mut().for_each(|c| *c += 16);
    for i in 0..o.m {
        (o.a[i * o.k], o.a[i * o.k + 1]) = (0x7e, 0xfe);
        (o.b[i * o.k], o.b[i * o.k + 1]) = (0x7e, 0x7e);
    }
    let unit = T { w: 32, f: 14, o: Some(23) };
    let found = said(&o, &o.product(|a, b| o.chain(unit, a, b), |p, i, j| o.scaled(p, i, j)), Dtype::F32, "");
    assert_eq!(found.verdict, Verdict::Pass, "{}", found.reason);
}

/// A large result is asked at a few places first whether it has the bits of an arithmetic: one element apart from them is still seen.
#[test]
fn one_element_apart_from_its_neighbours_bits_fails_in_a_large_result() {
    let o = Emulated::new(11, (512, 512, 64), true);
    let right = o.product(|a, b| o.chain(WGMMA, a, b), |p, i, j| o.scaled(p, i, j));
    assert_eq!(said(&o, &right, Dtype::F32, H200).verdict, Verdict::Pass);
    let at = 301 * o.n + 77;
    let rms = (right.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / right.len() as f64).sqrt() as f32;
    // From far inside the certain bound to its end.
    let fails = (0..12).map(|n| {
        let mut out = right.clone();
        out[at] += rms * 2f32.powi(n - 20);
        said(&o, &out, Dtype::F32, H200)
    });
    let first = fails.into_iter().find(|f| f.verdict == Verdict::Fail).expect("an error of the size of the result fails");
    assert!(first.reason.contains("its neighbours have the bits of"), "{}", first.reason);
    assert!(first.reason.contains("(301, 77)"), "{}", first.reason);
}
