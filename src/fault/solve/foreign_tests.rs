//! Results that no fault of the vocabulary makes: noise of several kinds, every element somewhere else, another network's weights. None has a name.

use super::tests::{M, N, codes, found, noise, sum, wide};
use crate::job::Operand;
use crate::{Format, QTensor};

const K: usize = 64;

/// About normal, the same each time.
fn normal(x: usize) -> f64 {
    (0..12).map(|n| noise(12 * x + n + 7_000_000)).sum::<f64>() - 6.0
}

fn weights(seed: usize) -> QTensor {
    codes(Format::E4m3, N, K, 32, false, seed)
}

fn is_unknown(what: &str, out: Format, wrong: impl Fn(usize, usize, &[f64]) -> f64) {
    let rows = codes(Format::E4m3, M, K, K, false, 61);
    for a in [wide(M, K), Operand::Quantized(rows)] {
        let got = found(&a, &weights(62), None, out, &wrong);
        assert!(got.0.starts_with("unknown"), "{what}: {} ({})", got.0, got.1);
    }
}

/// One number everywhere is what constant data make: it is not unwritten.
#[test]
fn a_constant_result_of_constant_data_is_not_unwritten() {
    let ones = Operand::High(crate::Tensor::new(Format::Bf16, M, K, vec![1.0; M * K]).unwrap());
    let mut parts = weights(62).into_parts();
    parts.codes.fill(0x38);
    parts.scale_inv.fill(0.5);
    let b = QTensor::new(parts).unwrap();
    let got = found(&ones, &b, None, Format::F32, |i, j, right| right[i * N + j] * 1.003);
    assert!(!got.0.contains("unwritten"), "{} {}", got.0, got.1);
    // Of other data it is.
    let got = found(&wide(M, K), &weights(62), None, Format::F32, |_, _, _| 5.125);
    assert_eq!(got.0, "silent_skip:out.unwritten", "{}", got.1);
}

fn size(right: &[f64]) -> f64 {
    (right.iter().map(|x| x * x).sum::<f64>() / right.len() as f64).sqrt()
}

#[test]
fn noise_that_grows_with_the_result_has_no_name() {
    is_unknown("relative", Format::Bf16, |i, j, right| right[i * N + j] * (1.0 + 0.3 * normal(i * N + j)));
}

#[test]
fn noise_of_one_size_has_no_name() {
    for (by, out) in [(0.5, Format::Bf16), (0.01, Format::F32), (3.0, Format::F16)] {
        is_unknown("absolute", out, |i, j, right| right[i * N + j] + by * size(right) * normal(i * N + j));
    }
}

#[test]
fn noise_of_a_few_elements_has_no_name() {
    for share in [0.02, 0.3] {
        is_unknown("sparse", Format::Bf16, |i, j, right| {
            let at = i * N + j;
            right[at] + if noise(at + 500_000) < share { size(right) * normal(at) } else { 0.0 }
        });
    }
}

#[test]
fn bits_that_flip_have_no_name() {
    is_unknown("flipped", Format::F32, |i, j, right| {
        let at = i * N + j;
        let flip = if noise(at + 900_000) < 0.4 { 1u32 << (8 + (noise(at + 800_000) * 20.0) as u32) } else { 0 };
        f64::from(f32::from_bits((right[at] as f32).to_bits() ^ flip))
    });
}

#[test]
fn elements_that_are_all_elsewhere_have_no_name() {
    let mut order: Vec<usize> = (0..M * N).collect();
    order.sort_by(|x, y| noise(*x + 300_000).total_cmp(&noise(*y + 300_000)));
    is_unknown("permuted", Format::Bf16, |i, j, right| right[order[i * N + j]]);
}

#[test]
fn another_network_has_no_name() {
    let other = weights(9_999_999).dequantize();
    let x = wide(M, K).to_f64();
    is_unknown("other weights", Format::Bf16, |i, j, _| sum(K, |k| x[[i, k]] * other[[j, k]]));
}

#[test]
fn what_an_earlier_product_left_in_some_columns_is_told() {
    let (a, b) = (wide(M, K), weights(62));
    let before = codes(Format::E4m3, M, K, K, false, 4_444_444).dequantize();
    let y = b.dequantize();
    let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
        right[i * N + j] + if j >= 24 { sum(K, |k| 0.3 * before[[i, k]] * y[[j, k]]) } else { 0.0 }
    });
    assert_eq!(got.0, "acc_state:out.old_content", "{}", got.1);
    assert!(got.1.contains("in columns 24 … 47 are added to the right result"), "{}", got.1);
}

#[test]
fn other_zero_points_in_some_columns_are_no_old_content() {
    let (a, b) = (wide(M, K), weights(62));
    let x = a.to_f64();
    let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
        right[i * N + j] + if j >= 24 { normal(j) * sum(K, |k| x[[i, k]]) } else { 0.0 }
    });
    assert!(!got.0.contains("old_content"), "{} {}", got.0, got.1);
}

#[test]
fn noise_that_grows_with_the_result_in_some_columns_is_no_old_content() {
    let (a, b) = (wide(M, K), weights(62));
    let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
        right[i * N + j] * if j >= 24 { 1.0 + 0.8 * normal(i * N + j) } else { 1.0 }
    });
    assert!(!got.0.contains("old_content"), "{} {}", got.0, got.1);
}
