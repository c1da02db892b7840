//! Products of kernels whose K repeats wrongly, whose accumulators hold too much or too little, or whose last tile is wrong, replayed here by
//! their own formula.

use super::tests::{M, N, codes, found, noise, sum, wide};
use crate::job::Operand;
use crate::{Format, QTensor};

fn scale(q: &QTensor, cell: usize) -> f64 {
    f64::from(q.scale_inv()[cell])
}
fn signed(q: &QTensor, at: usize) -> f64 {
    q.format().decode(u32::from(q.codes()[at]))
}
fn half(x: f64) -> f64 {
    Format::F16.decode(Format::F16.encode(x, crate::Rounding::NearestEven, crate::Overflow::Native))
}

#[test]
fn a_part_of_every_period_that_is_lost_is_told() {
    let (a, b) = (wide(M, 160), codes(Format::E4m3, N, 160, 160, false, 41));
    let (x, y) = (a.to_f64(), b.dequantize());
    let kept = |k: usize| if k % 20 < 14 { 1.0 } else { 0.0 };
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| sum(160, |k| kept(k) * x[[i, k]] * y[[j, k]]));
    assert_eq!(got.0, "k_tail:k.every", "{}", got.1);
    assert!(got.1.contains("the last 6 of every 20 of K are left out"), "{}", got.1);
}

#[test]
fn a_part_of_every_period_that_is_counted_twice_is_told() {
    let (a, b) = (wide(M, 132), codes(Format::Int8, N, 132, 132, false, 42));
    let (x, y) = (a.to_f64(), b.dequantize());
    let by = |k: usize| if (2..5).contains(&(k % 11)) { 2.0 } else { 1.0 };
    let got = found(&a, &b, None, Format::F32, |i, j, _| sum(132, |k| by(k) * x[[i, k]] * y[[j, k]]));
    assert_eq!(got.0, "acc_state:k.every_twice", "{}", got.1);
    assert!(got.1.contains("of every 11 of K 2 … 4 are counted twice"), "{}", got.1);
}

#[test]
fn parts_of_k_that_overlap_are_told() {
    let (a, b) = (wide(M, 96), codes(Format::E4m3, N, 96, 96, false, 43));
    let (x, y) = (a.to_f64(), b.dequantize());
    // Three parts of 32 in tiles of 48; the last one reads the start of the next rows.
    let at = |v: &ndarray::Array2<f64>, i: usize, k: usize| {
        if k < 96 { v[[i, k]] } else { v.get((i + 1, k - 96)).copied().unwrap_or(0.0) }
    };
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        (0..3).map(|p| sum(48, |k| at(&x, i, 32 * p + k) * at(&y, j, 32 * p + k))).sum()
    });
    assert_eq!(got.0, "k_tail:k.overlap", "{}", got.1);
    assert!(got.1.contains("3 parts of K of 32 each are summed in tiles of 48"), "{}", got.1);
}

#[test]
fn tiles_that_lose_ranges_of_their_own_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N, 128, 128, false, 44));
    let (x, y) = (a.to_f64(), b.dequantize());
    let lost = |i: usize, j: usize, k: usize| match (i / 16, j / 16) {
        (0, 1) => (32..56).contains(&k),
        (1, 2) => (88..96).contains(&k),
        _ => false,
    };
    let got = found(&a, &b, None, Format::F32, |i, j, _| sum(128, |k| if lost(i, j, k) { 0.0 } else { x[[i, k]] * y[[j, k]] }));
    assert_eq!(got.0, "acc_state:k.of_tiles", "{}", got.1);
    assert!(got.1.contains("(0, 1) without 32 … 55, (1, 2) without 88 … 95"), "{}", got.1);
}

#[test]
fn sums_of_the_tiles_before_are_told_without_their_scales() {
    let (a, b) = (wide(M, 64), codes(Format::Int4, N, 64, 64, false, 45));
    let x = a.to_f64();
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        let of = |j: usize| sum(64, |k| x[[i, k]] * signed(&b, j * 64 + k));
        (0..=j / 16).map(|t| of(t * 16 + j % 16)).sum::<f64>() * scale(&b, j)
    });
    assert_eq!(got.0, "acc_state:out.carried", "{}", got.1);
    assert!(got.1.contains("(i + 0, j − 16) and all those before, before the scales of columns meet it"), "{}", got.1);
}

#[test]
fn sums_of_the_tile_before_are_told_where_sums_are_kept_in_16_bits() {
    let (a, b) = (wide(M, 96), codes(Format::Int8, N, 96, 96, false, 61));
    let x = a.to_f64();
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        let of = |j: usize| {
            let part = |p: usize| sum(8, |k| x[[i, 8 * p + k]] * signed(&b, j * 96 + 8 * p + k));
            (0..12).fold(0.0, |acc, p| half(acc + part(p)))
        };
        (of(j) + if j < 16 { 0.0 } else { of(j - 16) }) * scale(&b, j)
    });
    assert_eq!(got.0, "acc_state:out.carried + lowprec_acc:out.partial_sums", "{}", got.1);
    assert!(got.1.contains("(i + 0, j − 16) as well") && got.1.contains("after every 8 of K is rounded to f16"), "{}", got.1);
}

#[test]
fn long_sums_that_wrap_are_told() {
    let (a, b) = (codes(Format::Int8, M, 256, 256, false, 46), codes(Format::Int8, N, 256, 256, false, 47));
    let x = a.clone();
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        let part = |p: usize| sum(128, |k| signed(&x, i * 256 + 128 * p + k) * signed(&b, j * 256 + 128 * p + k));
        (0..2).map(|p| (part(p) + 32768.0).rem_euclid(65536.0) - 32768.0).sum::<f64>() * scale(&x, i) * scale(&b, j)
    });
    assert_eq!(got.0, "overflow_wrap:out.pairs_16_bits", "{}", got.1);
    assert!(got.1.contains("sums of 128 neighbouring products wrap"), "{}", got.1);
}

/// Ternary weights are stored one larger, and what that adds is taken away behind the sum.
#[test]
fn lanes_that_wrap_through_all_of_k_are_told() {
    let ternary = |c: u8| f64::from(c % 3) - 1.0;
    let (a, mut parts) =
        (codes(Format::Int8, M, 2048, 2048, false, 71), codes(Format::Int4, N, 2048, 2048, false, 72).into_parts());
    parts.codes.iter_mut().for_each(|c| *c = ternary(*c) as i8 as u8 & 0xf);
    let b = QTensor::new(parts).unwrap();
    let mut parts = a.into_parts();
    // Of one sign.
    parts.codes.iter_mut().for_each(|c| *c = *c & 0x3f | 0x40);
    let x = QTensor::new(parts).unwrap();
    let got = found(&Operand::Quantized(x.clone()), &b, None, Format::F32, |i, j, _| {
        let mut lanes = [0.0f64; 4];
        (0..2048).for_each(|k| lanes[k / 2 % 4] += signed(&x, i * 2048 + k) * (signed(&b, j * 2048 + k) + 1.0));
        let kept: f64 = lanes.iter().map(|s| (s + 32768.0).rem_euclid(65536.0) - 32768.0).sum();
        (kept - sum(2048, |k| signed(&x, i * 2048 + k))) * scale(&x, i) * scale(&b, j)
    });
    assert_eq!(got.0, "overflow_wrap:out.pairs_16_bits", "{}", got.1);
    let words = "sums of 2 neighbouring products in every 8 of all K wrap at 16 bits, the codes of b without a sign, 1 more";
    assert!(got.1.contains(words), "{}", got.1);
}

#[test]
fn the_smallest_code_that_keeps_its_sign_is_told_beside_narrower_codes() {
    let (a, b) = (codes(Format::Int8, M, 192, 192, false, 48), codes(Format::Int4, N, 192, 192, false, 49));
    let x = a.clone();
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        let one = |k: usize| {
            let (p, q) = (signed(&x, i * 192 + k), signed(&b, j * 192 + k));
            if p == -128.0 && q < 0.0 { -p * q } else { p * q }
        };
        sum(192, one) * scale(&x, i) * scale(&b, j)
    });
    assert_eq!(got.0, "codec_edge:a.smallest_sign", "{}", got.1);
}

#[test]
fn scales_that_are_multiplied_in_place_are_told() {
    let (a, b) = (codes(Format::E4m3, M, 128, 64, false, 50), codes(Format::E4m3, N, 128, 128, false, 51));
    let (x, y) = (a.clone(), b.dequantize());
    let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
        sum(128, |k| {
            let by: f64 = (0..=i / 8).map(|w| scale(&x, (w * 8 + i % 8) * 2 + k / 64)).product();
            signed(&x, i * 128 + k) * by * y[[j, k]]
        })
    });
    assert_eq!(got.0, "scale_doubled_inverted:a.in_place", "{}", got.1);
}

#[test]
fn zero_points_that_nobody_subtracts_are_no_saturation() {
    let (a, b) = (codes(Format::Int8, M, 70, 70, true, 52), codes(Format::Int8, N, 70, 70, true, 53));
    let x = a.clone();
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        sum(70, |k| signed(&x, i * 70 + k) * signed(&b, j * 70 + k)) * scale(&x, i) * scale(&b, j)
    });
    assert!(got.0.starts_with("zp_correction:"), "{} {}", got.0, got.1);
}

#[test]
fn sums_that_leave_the_range_of_f16_are_told() {
    let (a, b) = (codes(Format::Int8, M, 192, 192, false, 54), codes(Format::Int8, N, 192, 64, false, 55));
    let x = a.clone();
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        let part = |g: usize| sum(64, |k| signed(&x, i * 192 + 64 * g + k) * signed(&b, j * 192 + 64 * g + k));
        (0..3).map(|g| half(part(g)) * scale(&x, i) * scale(&b, j * 3 + g)).sum()
    });
    assert_eq!(got.0, "overflow_wrap:out.f16_range", "{}", got.1);
    assert!(got.1.contains("sums of products of codes over every 64 of K are kept in f16: beyond 65504"), "{}", got.1);
}

#[test]
fn one_rows_scale_and_codes_of_the_sibling_are_told() {
    let (a, b) = (codes(Format::E4m3, M, 96, 96, false, 56), codes(Format::E4m3, N, 96, 96, false, 57));
    let (x, y) = (a.clone(), b.dequantize());
    let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
        sum(96, |k| 0.5 * signed(&x, i * 96 + k) * scale(&x, 0) * y[[j, k]])
    });
    assert_eq!(got.0, "scale_shared:a.first + bits_reinterpreted:a.sibling", "{}", got.1);
}

#[test]
fn scales_in_another_order_are_a_layout() {
    let (a, b) = (wide(M, 256), codes(Format::E4m3, N, 256, 64, false, 58));
    let x = a.to_f64();
    // Within every 24 rows: no formula of rows has it.
    let from =
        |j: usize| j / 24 * 24 + [7, 2, 19, 0, 11, 23, 5, 14, 1, 17, 9, 3, 20, 12, 6, 22, 15, 4, 10, 18, 8, 21, 13, 16][j % 24];
    let order: std::collections::HashSet<usize> = (0..N).map(from).collect();
    assert_eq!(order.len(), N);
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(256, |k| x[[i, k]] * signed(&b, j * 256 + k) * scale(&b, from(j) * 4 + k / 64))
    });
    assert!(got.0.starts_with("scale_layout:b."), "{} {}", got.0, got.1);
}

#[test]
fn a_last_tile_that_is_not_computed_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, 40, 64, 64, false, 59));
    let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
        if j < 32 { right[i * 40 + j] } else { right[(i * 29 + j * 3) % right.len()] * (3.0 * noise(977 * i + j) - 1.5) }
    });
    assert_eq!(got.0, "mn_edge:out.not_computed", "{}", got.1);
    assert!(got.1.contains("columns 32 … 39") && got.1.contains("partial tile of 16"), "{}", got.1);
}

#[test]
fn a_bias_that_is_stored_over_the_next_row_is_an_overrun() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, 40, 64, 64, false, 60));
    let bias: Vec<f32> = (0..40).map(|j| noise(31 * j + 7) as f32).collect();
    let written = bias.clone();
    let got = found(
        &a,
        &b,
        Some(bias),
        Format::Bf16,
        |i, j, right| {
            if i > 0 && j < 8 { f64::from(written[j]) } else { right[i * 40 + j] }
        },
    );
    assert_eq!(got.0, "mn_edge:out.overrun", "{}", got.1);
    assert!(got.1.contains("the bias alone") && got.1.contains("the last tile of 16 columns"), "{}", got.1);
}
