//! Directed facts of the tensor cores (an H200's answers), by hand, and the accumulators against each other.

use super::accumulate::{accumulate, exact};
use super::mma::{Dest, NAN, Step, step};
use super::table::{self, Unit};
use super::*;
use crate::input::{Distribution, generate};
use crate::{Overflow, Rounding};
use Format::{Bf16, E4m3, E5m2, F16, F32, Tf32};

fn acc(name: &str) -> Accumulator {
    name.parse().unwrap()
}
fn unit(name: &str, f: Format) -> Step {
    match table::find(name).unwrap().unit(f, f).unwrap() {
        Unit::Step(s) | Unit::Lowered(s) => s,
    }
}
fn p2(e: i32) -> f32 {
    (e as f64).exp2() as f32
}
/// c + Σ a·b in one step of Hopper's wgmma for operands of `f`.
fn hopper(f: Format, a: &[f32], b: &[f32], c: f32) -> u32 {
    step(unit("hopper_wgmma", f), f, f, a, b, c).to_bits()
}
/// `dist` values quantized to `f` by rounding.
pub fn values(f: Format, n: usize, spread: f32, stream: u32) -> Vec<f32> {
    let x = generate(Distribution::Normal, F32, 1, n, 11, stream).unwrap();
    let to = |x: &f32| f.decode(f.encode(f64::from(x * spread), Rounding::NearestEven, Overflow::Saturate)) as f32;
    x.data().iter().map(to).collect()
}

#[test]
fn zero_results_are_positive() {
    assert_eq!(hopper(E4m3, &[-0.0], &[1.0], -0.0), 0);
    assert_eq!(hopper(E4m3, &[1.0, 1.0], &[1.0, -1.0], 0.0), 0);
    // −2^-14 below 1's quantum: 1 − 1 − 2^-14 with everything truncated to 2^-13 is zero, and positive.
    assert_eq!(hopper(F16, &[1.0, 1.0, -p2(-14)], &[1.0, -1.0, p2(-14)], 0.0), 0);
    let s = unit("hopper_wgmma_f16", F16);
    assert_eq!(step(s, F16, F16, &[-p2(-24)], &[p2(-10)], 0.0).to_bits(), 0, "rounds to zero in f16");
}

#[test]
fn nan_is_canonical_and_inf_keeps_its_sign() {
    let inf = f32::INFINITY;
    for (a, b, c) in [(f32::NAN, 1.0, 0.0), (-f32::NAN, 0.0, 1.0), (1.0, 1.0, f32::NAN), (inf, 0.0, 0.0), (inf, 1.0, -inf)] {
        assert_eq!(hopper(F16, &[a], &[b], c), 0x7fff_ffff, "{a} {b} {c}");
    }
    assert_eq!(hopper(F16, &[inf, -inf], &[1.0, 1.0], 0.0), 0x7fff_ffff);
    assert_eq!(hopper(E5m2, &[-inf, 3.0], &[2.0, 1.0], 7.0), 0xff80_0000);
    let f16 = step(unit("hopper_mma_f16", F16), F16, F16, &[inf], &[0.0], 0.0);
    assert_eq!(half::f16::from_f32(f16).to_bits(), 0x7fff);
}

#[test]
fn fp8_accumulators_keep_13_fraction_bits() {
    // c = 1.1…1b passes through with its 10 low bits gone.
    assert_eq!(hopper(E4m3, &[0.0], &[0.0], f32::from_bits(0x3fff_ffff)), 0x3fff_fc00);
    // Below a product of 1, c = 2^-14 is less than the quantum 2^-13.
    assert_eq!(hopper(E4m3, &[1.0], &[1.0], p2(-14)), 1f32.to_bits());
    assert_eq!(hopper(E4m3, &[1.0], &[1.0], p2(-13)), (1.0 + p2(-13)).to_bits());
    // 1 + 2^-14 + 2^-14: truncated one by one.
    assert_eq!(hopper(E4m3, &[1.0, p2(-7), p2(-7)], &[1.0, p2(-7), p2(-7)], 0.0), 1f32.to_bits());
    assert_eq!(hopper(F16, &[1.0, p2(-7), p2(-7)], &[1.0, p2(-7), p2(-7)], 0.0), (1.0 + p2(-13)).to_bits());
    // The largest f32 plus 1: no carry, no Inf.
    assert_eq!(hopper(E4m3, &[1.0], &[1.0], f32::MAX), 0x7f7f_fc00);
}

#[test]
fn products_beyond_f32_and_its_overflow() {
    // 2^130 − 2^130 + 2^120.
    let a = [p2(65), -p2(65), p2(60)];
    assert_eq!(hopper(Bf16, &a, &[p2(65), p2(65), p2(60)], 0.0), p2(120).to_bits());
    assert_eq!(hopper(Bf16, &[p2(64)], &[p2(64)], 0.0), f32::INFINITY.to_bits());
    assert_eq!(hopper(Bf16, &[-p2(127), -p2(127)], &[1.0, 1.0], 0.0), f32::NEG_INFINITY.to_bits());
}

#[test]
fn zero_terms_do_not_raise_the_exponent() {
    // 0·2^127 + 2^-120.
    assert_eq!(hopper(Bf16, &[0.0, p2(-60)], &[p2(127), p2(-60)], 0.0), p2(-120).to_bits());
}

#[test]
fn the_largest_exponent_is_at_least_minus_133() {
    // 2047·2^-160 + 2^-160 = 2^-149, f32's smallest number. With emax = −150 the quantum would be 2^-175 and the sum exact; at
    // −133 it is 2^-158, and both terms lose their low bits.
    let (a, b) = ([23.0 * p2(-80), p2(-80)], [89.0 * p2(-80), p2(-80)]);
    assert_eq!(hopper(Bf16, &a, &b, 0.0), 0);
    assert_eq!(exact(&a, &b).to_bits(), 1);
    assert_eq!(hopper(Bf16, &[p2(-75), p2(-75)], &[p2(-75), p2(-75)], 0.0), 1, "two of 2^-150");
}

#[test]
fn subnormal_factors_and_products_are_not_renormalised() {
    // e4m3: 2^-9 is 0.001b·2^-6, so 2^-9·448 has exponent −6 + 8 = 2 and the quantum is 2^-11 where 2^(−1−13) would be renormalised.
    // Beside it 2^-12 is lost.
    assert_eq!(hopper(E4m3, &[p2(-9), p2(-6)], &[256.0, p2(-6)], 0.0), p2(-1).to_bits());
    assert_eq!(hopper(E4m3, &[p2(-1), p2(-6)], &[1.0, p2(-6)], 0.0), (p2(-1) + p2(-12)).to_bits());
    // 1.5·1.5 = 2.25 keeps exponent 0: the quantum is 2^-13, and two of those are not lost.
    assert_eq!(hopper(E4m3, &[1.5, p2(-6), p2(-6)], &[1.5, p2(-7), p2(-7)], 0.0), (2.25 + p2(-12)).to_bits());
}

#[test]
fn f32_results_truncate_and_f16_results_round_to_even() {
    // 1 + 2^-24 + 2^-24 with F = 25: kept until the end.
    let h = p2(-12);
    assert_eq!(hopper(F16, &[1.0, h, h], &[1.0, h, h], 0.0), (1.0 + p2(-23)).to_bits());
    assert_eq!(hopper(F16, &[1.0, h], &[1.0, h], 0.0), 1f32.to_bits());
    assert_eq!(hopper(F16, &[-1.0, -h], &[1.0, h], 0.0), (-1f32).to_bits());
    let f16 = |a: &[f32], b: &[f32]| step(unit("hopper_wgmma_f16", F16), F16, F16, a, b, 0.0);
    assert_eq!(f16(&[1.0, p2(-11)], &[1.0, 1.0]), 1.0, "a tie goes to even");
    assert_eq!(f16(&[1.0, 3.0 * p2(-11)], &[1.0, 1.0]), 1.0 + p2(-9));
    assert_eq!(f16(&[1.0, p2(-11), p2(-12)], &[1.0, 1.0, p2(-12)]), 1.0 + p2(-10), "rounded once, from the exact block sum");
    assert_eq!(f16(&[65504.0, 16.0], &[1.0, 1.0]), f32::INFINITY);
    assert_eq!(f16(&[65504.0, 15.0], &[1.0, 1.0]), 65504.0);
    // Subnormals of both accumulators are made.
    assert_eq!(f16(&[p2(-12)], &[p2(-12)]), p2(-24));
    assert_eq!(hopper(Bf16, &[p2(-74)], &[p2(-75)], 0.0), 1);
}

#[test]
fn volta_ampere_and_hopper_differ_as_published() {
    // FTTN's kind of probe: 2^25 − 2^25 with small terms between; how many low bits survive tells F.
    let probe = |name: &str, e: i32| {
        let s = unit(name, F16);
        step(s, F16, F16, &[p2(13), -p2(13), p2(e - 5)], &[p2(12), p2(12), p2(5)], 0.0)
    };
    for (name, f) in [("volta_mma", 23), ("turing_mma", 24), ("ampere_mma", 24), ("ada_mma", 24), ("hopper_mma", 25)] {
        assert_eq!(probe(name, 25 - f), p2(25 - f), "{name}");
        assert_eq!(probe(name, 24 - f), 0.0, "{name}");
    }
    // W: the fifth product of a row meets Volta's accumulator only after it was rounded.
    let mut a = vec![0.0; 8];
    (a[0], a[4], a[5]) = (p2(12), p2(-12), p2(-12));
    let b: Vec<f32> = a.iter().map(|x| if *x > 1.0 { *x } else { 1.0 }).collect();
    let run = |name: &str| accumulate(&acc(name), F16, F16, &a, &b).unwrap();
    assert_eq!(run("volta_mma"), p2(24), "2^-12 is below 2^24's bits");
    assert_eq!(run("blackwell_tcgen05"), p2(24));
    assert!(table::find("volta_mma").unwrap().unit(Bf16, Bf16).unwrap_err().to_string().contains("f16"));
}

#[test]
fn a_chain_is_the_step_applied_again() {
    let (a, b) = (values(E4m3, 128, 30.0, 1), values(E4m3, 128, 30.0, 2));
    let s = unit("hopper_wgmma", E4m3);
    let mut c = 0.0;
    for k in 0..4 {
        c = step(s, E4m3, E4m3, &a[32 * k..][..32], &b[32 * k..][..32], c);
    }
    assert_eq!(accumulate(&acc("hopper_wgmma"), E4m3, E4m3, &a, &b).unwrap().to_bits(), c.to_bits());
    // Promotion restarts the chain and adds in f32.
    let promoted = accumulate(&acc("hopper_wgmma@64"), E4m3, E4m3, &a, &b).unwrap();
    let half = |h: usize| accumulate(&acc("hopper_wgmma"), E4m3, E4m3, &a[64 * h..][..64], &b[64 * h..][..64]).unwrap();
    assert_eq!(promoted, half(0) + half(1));
    // A chain is not the exact sum: the model would be idle.
    assert_ne!(c, exact(&a, &b));
}

#[test]
fn order_inside_a_block_is_irrelevant_and_outside_it_is_not() {
    let (mut a, mut b) = (values(E4m3, 64, 30.0, 3), values(E4m3, 64, 30.0, 4));
    let run = |a: &[f32], b: &[f32]| accumulate(&acc("hopper_wgmma"), E4m3, E4m3, a, b).unwrap();
    let before = run(&a, &b);
    a[..32].reverse();
    b[..32].reverse();
    assert_eq!(run(&a, &b), before);
    let differ = (0..20).any(|i| {
        let (mut a, mut b) = (values(E4m3, 256, 30.0, 100 + i), values(E4m3, 256, 30.0, 200 + i));
        let before = run(&a, &b);
        a.reverse();
        b.reverse();
        run(&a, &b) != before
    });
    assert!(differ);
}

#[test]
fn lowered_fp8_takes_bytes_0_and_1_first() {
    // k = 0, 1 in the first HMMA, 2 in the second: 2^24 is seen by the f32 rounding of the first before k = 2 comes.
    let mut a = vec![0.0f32; 32];
    let mut b = vec![0.0f32; 32];
    (a[0], b[0]) = (256.0, 256.0); // 2^16
    (a[1], b[1]) = (p2(-9), p2(-1)); // 2^-10: below 2^16's 23 bits (2^-7), and 2^-9 is F's reach
    (a[5], b[5]) = (-256.0, 256.0); // with k = 1 in the first half: cancels before anything is rounded
    let lowered = accumulate(&acc("hopper_mma"), E4m3, E4m3, &a, &b).unwrap();
    assert_eq!(lowered, 0.0, "2^-10 is below the quantum 2^(16−25) = 2^-9");
    (a[1], b[1]) = (p2(-9), 1.0);
    assert_eq!(accumulate(&acc("hopper_mma"), E4m3, E4m3, &a, &b).unwrap(), p2(-9));
    // The same −2^16 at k = 2 comes after t was rounded to 24 bits, which loses 2^-9.
    (a[5], a[2], b[2]) = (0.0, -256.0, 256.0);
    assert_eq!(accumulate(&acc("hopper_mma"), E4m3, E4m3, &a, &b).unwrap(), 0.0);
    // Contiguous k through the f16 unit would differ on random data too.
    let half = unit("hopper_mma", F16);
    let differ = (0..200).any(|i| {
        let code = |k: u32| E5m2.decode(((k + i * 64).wrapping_mul(2_654_435_761) >> 16) & 0xfb) as f32;
        let (a, b): (Vec<f32>, Vec<f32>) = (0..32).map(|k| (code(k), code(k + 32))).unzip();
        let contiguous = step(half, F16, F16, &a[16..], &b[16..], step(half, F16, F16, &a[..16], &b[..16], 0.0));
        contiguous != accumulate(&acc("hopper_mma"), E5m2, E5m2, &a, &b).unwrap()
    });
    assert!(differ);
    // FADD rounds to nearest: c = 2^24 plus 3 is 2^24 + 4.
    let (mut a, mut b) = (vec![0.0f32; 64], vec![0.0f32; 64]);
    a[..4].fill(256.0);
    b[..4].fill(256.0);
    a[4..32].fill(0.0);
    (a[32], b[32]) = (3.0, 1.0);
    let wide = accumulate(&acc("hopper_mma"), E4m3, E4m3, &a, &b).unwrap();
    assert_eq!(wide, p2(18) + 3.0);
}

#[test]
fn exact_sums_are_rounded_once() {
    let x = |a: &[f32], b: &[f32]| exact(a, b);
    assert_eq!(x(&[], &[]), 0.0);
    assert_eq!(x(&[1.0, p2(-12), p2(-70)], &[1.0, p2(-12), p2(-70)]), 1.0 + p2(-23), "above the tie by 2^-140");
    assert_eq!(x(&[1.0, p2(-12)], &[1.0, p2(-12)]), 1.0, "a tie goes to even");
    assert_eq!(x(&[1.0, p2(-12), p2(-70)], &[-1.0, -p2(-12), p2(-70)]), -1.0);
    assert_eq!(x(&[f32::MAX, -f32::MAX, 1.0], &[f32::MAX, f32::MAX, p2(-149)]), p2(-149), "512 bits between them");
    assert_eq!(x(&[p2(-75), p2(-75)], &[p2(-75), p2(-76)]), p2(-149), "0.75·2^-149 to nearest");
    assert_eq!(x(&[f32::MAX, f32::MAX], &[1.0, 1.0]), f32::INFINITY);
    assert_eq!(x(&[f32::INFINITY], &[0.0]).to_bits(), NAN.to_bits());
    let (a, b) = (values(F32, 1000, 1.0, 7), values(F32, 1000, 1.0, 8));
    let products: Vec<f64> = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).collect();
    use accurate::traits::*;
    let other: f64 = accurate::sum::OnlineExactSum::zero().absorb(products).sum();
    assert_eq!(x(&a, &b), other as f32, "the accurate crate's exact sum");
}

#[test]
fn f32_orders_and_integers() {
    let big = p2(24);
    assert_eq!(accumulate(&acc("f32_sequential"), F32, F32, &[big, 1.0, 1.0], &[1.0; 3]).unwrap(), big);
    assert_eq!(accumulate(&acc("f32_pairwise"), F32, F32, &[big, 0.0, 1.0, 1.0], &[1.0; 4]).unwrap(), big + 2.0);
    assert_eq!(accumulate(&acc("f32_pairwise"), F32, F32, &[1.0, 1.0, big], &[1.0; 3]).unwrap(), big + 2.0, "(1+1)+big");
    assert_eq!(accumulate(&acc("f32_sequential@2"), F32, F32, &[big, 0.0, 1.0, 1.0], &[1.0; 4]).unwrap(), big + 2.0);
    // FMA: the product is not rounded by itself.
    let x = 1.0 + p2(-23);
    assert_eq!(accumulate(&acc("f32_sequential"), F32, F32, &[-1.0, x], &[1.0 + p2(-22), x]).unwrap(), p2(-46));
    let i8 = Format::Int8;
    assert_eq!(accumulate(&acc("int32"), i8, i8, &[-128.0, 127.0], &[-128.0, -3.0]).unwrap(), 16384.0 - 381.0);
    let many = vec![-128.0f32; 1 << 17];
    assert_eq!(super::accumulate::int32(&many, &many), i32::MIN, "2^31 wraps");
    assert!(accumulate(&acc("int32"), i8, F16, &[1.0], &[1.0]).is_err());
}

#[test]
fn names_survive_a_round_trip_and_bad_ones_are_explained() {
    for name in Accumulator::names() {
        for tail in ["", "@128", "+scales_first", "@32+scales_first"] {
            let name = format!("{name}{tail}");
            match name.parse::<Accumulator>() {
                Ok(a) => assert_eq!(a.to_string(), name),
                Err(e) => assert!(name.starts_with("int32@"), "{e}"),
            }
        }
    }
    for (bad, says) in [("hopper", "hopper_wgmma"), ("exact@0", "N > 0"), ("exact@x", "N > 0"), ("int32@64", "promote")] {
        let e = bad.parse::<Accumulator>().unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    }
}

#[test]
fn f16_tf32_and_other_units() {
    // tf32: W = 8, F = 25.
    let h = p2(-12);
    assert_eq!(hopper(Tf32, &[1.0, h, h], &[1.0, h, h], 0.0), (1.0 + p2(-23)).to_bits());
    // tcgen05's fp8 keeps 25 bits where wgmma keeps 13, Ada takes 16 products a step.
    let a = [1.0, p2(-7), p2(-7)];
    assert_eq!(accumulate(&acc("blackwell_tcgen05"), E4m3, E4m3, &a, &a).unwrap(), 1.0 + p2(-13));
    let s = unit("ada_mma", E4m3);
    assert_eq!((s.w, s.f, s.dest), (16, 13, Dest::F32 { fraction: 13 }));
}
