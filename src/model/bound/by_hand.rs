//! What each accumulator may lose of Σ|ab|, with the numbers worked out beside it.

use super::*;

const U: f64 = U32;

/// Factors between these magnitudes.
fn factors(format: Format, smallest: f64, largest: f64) -> Factors {
    Factors { format, largest, smallest }
}

fn of(name: &str, k: usize, a: Factors, b: Factors) -> Accumulation {
    accumulation_bound(&name.parse().unwrap(), k, a, b).unwrap()
}

fn assert_near(found: Accumulation, relative: f64, of_partial: f64, absolute: f64) {
    let near = |a: f64, b: f64| a == b || (a / b - 1.0).abs() < 1e-12;
    let right = near(found.relative, relative) && near(found.of_partial, of_partial) && near(found.absolute, absolute);
    assert!(right, "{found:?}: {relative:e} {of_partial:e} {absolute:e}");
}

fn times(n: u32) -> f64 {
    (f64::from(n) * U.ln_1p()).exp_m1()
}

#[test]
fn f32_sums_round_once_an_addition_and_once_a_product_that_is_not_exact() {
    let (e4m3, f32s) = (factors(Format::E4m3, 1.0, 2.0), factors(Format::F32, 1.0, 2.0));
    assert_near(of("f32_sequential", 100, e4m3, e4m3), times(99), times(99), 0.0);
    assert_near(of("f32_any_order", 100, e4m3, e4m3), times(99), times(99), 0.0);
    assert_near(of("f32_pairwise", 100, e4m3, e4m3), times(7), times(99), 0.0);
    // Products of f32 are rounded, and may lose 2^-150 each.
    assert_near(of("f32_sequential", 100, f32s, f32s), times(100), times(199), 100.0 * 2f64.powi(-150));
    assert_near(of("f32_pairwise", 128, f32s, f32s), times(8), times(255), 128.0 * 2f64.powi(-150));
    assert_near(of("exact", 100, f32s, f32s), U, U, 2f64.powi(-150));
    assert_near(of("exact", 100, e4m3, e4m3), U, U, 0.0);
    // Two of f16 have 22 bits, of bf16 16: exact, but those of bf16 may be finer than 2^-149.
    assert_eq!(of("exact", 9, factors(Format::F16, 1.0, 2.0), e4m3).absolute, 0.0);
    let bf16 = factors(Format::Bf16, 1.0, 2.0);
    assert_near(of("f32_sequential", 9, bf16, bf16), times(9), times(17), 9.0 * 2f64.powi(-150));
    // Chunks of 64 are added twice: one more addition.
    let joined = |g: f64, adds: u32| g + (1.0 + g) * times(adds);
    assert_near(of("f32_sequential@64", 100, e4m3, e4m3), joined(times(63), 1), joined(2.0 * times(63), 1), 0.0);
    assert_near(of("f32_sequential@100", 100, e4m3, e4m3), times(99), times(99), 0.0);
    let promoted = of("f32_sequential@30", 100, f32s, f32s);
    let lost = 4.0 * 30.0 * 2f64.powi(-150) * (1.0 + times(3));
    assert_near(promoted, joined(times(30), 3), joined(4.0 * times(59), 3), lost);
    assert_eq!(of("int32", 100, factors(Format::Int8, 1.0, 2.0), factors(Format::Int8, 1.0, 2.0)), Accumulation::EXACT);
}

/// Three steps of 32 products that keep 13 bits: 95 of 96 terms lose 2^-13, and every sum as much.
#[test]
fn block_steps_lose_a_quantum_a_term_and_an_output_a_step() {
    let normal = factors(Format::E4m3, 2f64.powi(-6), 448.0);
    let q = 2f64.powi(-13);
    let relative = 95.0 * q + 3.0 * q;
    let tiny = 96.0 * q * 2f64.powi(-126) + 3.0 * 2f64.powi(-139);
    assert_near(of("hopper_wgmma", 96, normal, normal), relative, relative / (1.0 - relative), tiny);
    // Subnormal factors have the exponent −6: what they meet is as large as the largest of the other side, or 2^-6.
    let small = factors(Format::E4m3, 2f64.powi(-9), 8.0);
    let below = |largest: f64| 96.0 * q * (2f64.powi(-6) * largest + 2f64.powi(-126)) + 3.0 * 2f64.powi(-139);
    assert_near(of("hopper_wgmma", 96, small, normal), relative, relative / (1.0 - relative), below(448.0));
    assert_near(of("hopper_wgmma", 96, normal, small), relative, relative / (1.0 - relative), below(448.0));
    let smallest = factors(Format::E4m3, 2f64.powi(-9), 2f64.powi(-8));
    assert_near(of("hopper_wgmma", 96, smallest, smallest), relative, relative / (1.0 - relative), below(2f64.powi(-6)));
    // No more than twice the sum is lost.
    let long = of("hopper_wgmma", 32 * 600, normal, normal);
    assert_eq!((long.relative, long.of_partial), (2.0, f64::INFINITY));
    // An accumulator of f16 rounds to nearest, and its errors grow.
    let u = 2f64.powi(-11);
    let grow = (3.0 * u.ln_1p()).exp_m1();
    let relative = 95.0 * q * (1.0 + grow) + grow;
    let absolute = (96.0 * q * 2f64.powi(-14) + 3.0 * 2f64.powi(-25)) * (1.0 + grow);
    assert_near(of("hopper_wgmma_f16", 96, normal, normal), relative, relative / (1.0 - relative), absolute);
    // In any order: as many steps again, and as many additions in f32 as steps.
    let any = of("any_hopper_wgmma", 96, normal, normal);
    let (one, adds) = (191.0 * q + 6.0 * q, times(3));
    let joined = |g: f64| g + (1.0 + g) * adds;
    let tiny = (192.0 * q * 2f64.powi(-126) + 6.0 * 2f64.powi(-139)) * (1.0 + adds);
    assert_near(any, joined(one), joined(one / (1.0 - one)), tiny);
}

#[test]
fn factors_are_the_extremes_of_what_is_a_number_and_not_zero() {
    let values = [0.0f32, -3.0, 0.5, f32::NAN, f32::INFINITY];
    let found = Factors::of_f32(Format::F32, &values);
    assert_eq!(found, factors(Format::F32, 0.5, 3.0));
    assert_eq!(found.and(factors(Format::F32, 1.0, 8.0)), factors(Format::F32, 0.5, 8.0));
    assert_eq!(Factors::of(Format::F32, []), factors(Format::F32, f64::INFINITY, 0.0));
    let q = |codes: &[u8]| {
        let parts = crate::quant::QTensorParts {
            format: Format::E4m3,
            rows: 1,
            cols: codes.len(),
            codes: codes.to_vec(),
            granularity: crate::Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: crate::Zero::None,
            level: None,
        };
        QTensor::new(parts).unwrap()
    };
    // 1 in both, 4 in one, ½ in the other.
    let (a, b) = (q(&[0x38, 0x48, 0x38, 0]), q(&[0x30, 0x38]));
    assert_eq!(Factors::of_codes(&[&a, &b]), factors(Format::E4m3, 0.5, 4.0));
    assert_eq!(Factors::of_codes(&[&a, &a]), factors(Format::E4m3, 1.0, 4.0));
}

/// The lowest bit of a product is the sum of its factors' lowest: 2^-133 of bf16 with 2^-24 of f16 is below 2^-149, with 2^-9 of e4m3 it is not.
#[test]
fn products_of_two_formats_underflow_by_the_lowest_bits_of_both() {
    let (bf16, f16) = (factors(Format::Bf16, 1.0, 2.0), factors(Format::F16, 1.0, 2.0));
    let e4m3 = factors(Format::E4m3, 1.0, 2.0);
    assert_near(of("exact", 9, bf16, f16), U, U, 2f64.powi(-150));
    assert_near(of("exact", 9, f16, bf16), U, U, 2f64.powi(-150));
    assert_near(of("exact", 9, bf16, e4m3), U, U, 0.0);
}
