//! One product for each mechanism that several bugs of the world share, replayed here by its own formula.

use super::tests::{M, N, codes, found, grouped_found, noise, sum, wide};
use crate::job::Operand;
use crate::quant::QTensorParts;
use crate::{Format, Granularity, QTensor, Zero};

fn scale(q: &QTensor, cell: usize) -> f64 {
    f64::from(q.scale_inv()[cell])
}
fn code(q: &QTensor, at: usize) -> f64 {
    q.format().decode(u32::from(q.codes()[at]))
}
fn half(x: f64) -> f64 {
    Format::F16.decode(Format::F16.encode(x, crate::Rounding::NearestEven, crate::Overflow::Native))
}
fn zeros(q: &QTensor) -> &[i32] {
    let Zero::Integer(z) = q.zero() else { panic!("whole zero points") };
    z
}

#[test]
fn sums_of_16_bits_within_groups_are_told() {
    let (a, b) = (codes(Format::Int8, M, 128, 32, false, 102), codes(Format::Int4, N, 128, 32, false, 103));
    let (x, y) = (a.clone(), b.clone());
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        sum(4, |g| {
            let part = |s: usize| sum(8, |k| code(&x, i * 128 + g * 32 + s * 8 + k) * code(&y, j * 128 + g * 32 + s * 8 + k));
            let held = (0..4).fold(0.0, |held, s| half(held + part(s)));
            held * scale(&x, i * 4 + g) * scale(&y, j * 4 + g)
        })
    });
    assert_eq!(got.0, "lowprec_acc:out.partial_sums", "{}", got.1);
    assert!(got.1.contains("every 8 of K of each 32 by itself, before scales meet it, is rounded to f16"), "{}", got.1);
}

#[test]
fn zero_points_that_are_read_as_floats_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::Uint4, N, 128, 32, true, 104));
    let (x, z) = (a.to_f64(), zeros(&b));
    // Two a byte, each two bytes one f16: half of them lie behind the end.
    let byte = |at: usize| if 2 * at + 1 < z.len() { z[2 * at] as u32 | (z[2 * at + 1] as u32) << 4 } else { 0 };
    let zero = |cell: usize| Some(Format::F16.decode(byte(2 * cell) | byte(2 * cell + 1) << 8)).filter(|x| x.is_finite());
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(128, |k| {
            let cell = j * 4 + k / 32;
            x[[i, k]] * (f64::from(b.codes()[j * 128 + k]) - zero(cell).unwrap_or(0.0)) * scale(&b, cell)
        })
    });
    assert_eq!(got.0, "bits_reinterpreted:b.bytes", "{}", got.1);
    assert!(got.1.contains("packed two a byte, are read as f16"), "{}", got.1);
}

#[test]
fn zero_points_that_wrap_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::Uint4, N, 128, 32, true, 105));
    let (x, z) = (a.to_f64(), zeros(&b));
    // Stored minus one in four bits: 0 is 15, and 16 when one is added.
    let zero = |cell: usize| if z[cell] == 0 { 16.0 } else { f64::from(z[cell]) };
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(128, |k| {
            let cell = j * 4 + k / 32;
            x[[i, k]] * (f64::from(b.codes()[j * 128 + k]) - zero(cell)) * scale(&b, cell)
        })
    });
    assert_eq!(got.0, "zp_offset:b.zero_wraps", "{}", got.1);
}

/// 16 in four bits is 0: no sign is lost.
#[test]
fn zero_points_beyond_their_bits_are_told() {
    let a = wide(M, 128);
    let mut parts = codes(Format::Uint4, N, 128, 32, true, 105).into_parts();
    if let Zero::Integer(z) = &mut parts.zero {
        z.iter_mut().filter(|z| **z > 12).for_each(|z| *z = 16);
    }
    let b = QTensor::new(parts).unwrap();
    let (x, z) = (a.to_f64(), zeros(&b));
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(128, |k| {
            let cell = j * 4 + k / 32;
            x[[i, k]] * (f64::from(b.codes()[j * 128 + k]) - f64::from(z[cell] % 16)) * scale(&b, cell)
        })
    });
    assert_eq!(got.0, "zp_offset:b.beyond_bits", "{}", got.1);
}

#[test]
fn a_product_of_scales_in_16_bits_is_told() {
    let (a, b) = (codes(Format::E4m3, M, 128, 32, false, 107), codes(Format::E4m3, N, 128, 32, false, 108));
    let (x, y) = (a.clone(), b.clone());
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        sum(128, |k| {
            let by = half(scale(&x, i * 4 + k / 32) * scale(&y, j * 4 + k / 32));
            code(&x, i * 128 + k) * code(&y, j * 128 + k) * by
        })
    });
    assert_eq!(got.0, "lowprec_acc:out.scales_rounded", "{}", got.1);
    assert!(got.1.contains("f16"), "{}", got.1);
}

#[test]
fn scales_that_are_rounded_for_codes_less_their_middle_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::Uint4, N, 128, 32, true, 109));
    let (x, z) = (a.to_f64(), zeros(&b));
    let round = |x: f64| Format::Bf16.decode(Format::Bf16.encode(x, crate::Rounding::NearestEven, crate::Overflow::Native));
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(128, |k| {
            let cell = j * 4 + k / 32;
            let s = scale(&b, cell);
            x[[i, k]] * ((f64::from(b.codes()[j * 128 + k]) - 8.0) * round(s) - (f64::from(z[cell]) - 8.0) * s)
        })
    });
    assert_eq!(got.0, "scale_rerounded:b.terms", "{}", got.1);
    assert!(got.1.contains("less the middle of their range are multiplied by scales rounded to bf16"), "{}", got.1);
}

#[test]
fn scales_read_by_a_swizzle_find_1_where_nothing_is_stored() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N, 128, 32, false, 121));
    let x = a.to_f64();
    let read = |r: usize, c: usize| {
        let at = r % 32 * 16 + r / 32 * 4 + c;
        if at < N * 4 { scale(&b, at) } else { 1.0 }
    };
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| sum(128, |k| x[[i, k]] * code(&b, j * 128 + k) * read(j, k / 32)));
    assert_eq!(got.0, "scale_layout:b.padded", "{}", got.1);
    assert!(got.1.contains("128×4 swizzle, padded, and read by it, 1 where nothing is stored"), "{}", got.1);
}

#[test]
fn tiles_of_scales_that_are_transposed_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N, 128, 16, false, 126));
    let x = a.to_f64();
    let read = |r: usize, c: usize| {
        let (top, left) = (r / 4 * 4, c / 4 * 4);
        let inside = top + 4 <= N;
        scale(&b, if inside { (top + c % 4) * 8 + left + r % 4 } else { r * 8 + c })
    };
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| sum(128, |k| x[[i, k]] * code(&b, j * 128 + k) * read(j, k / 16)));
    assert_eq!(got.0, "scale_layout:b.index", "{}", got.1);
    assert!(got.1.contains("after every 4×4 tile of the grid is transposed"), "{}", got.1);
}

/// One scale of powers of two by an exponent more: many places hold that number, and its slice of K is counted twice.
#[test]
fn an_exponent_of_one_scale_is_told() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N, 128, 32, false, 127));
    let mut parts = b.into_parts();
    parts.scale_inv = (0..parts.scale_inv.len()).map(|c| ((c * 7 % 5) as f32 - 2.0).exp2()).collect();
    let b = crate::QTensor::new(parts).unwrap();
    let x = a.to_f64();
    for by in [2.0, 0.125] {
        let read = |r: usize, c: usize| scale(&b, r * 4 + c) * if (r, c) == (5, 2) { by } else { 1.0 };
        let got = found(&a, &b, None, Format::F32, |i, j, _| sum(128, |k| x[[i, k]] * code(&b, j * 128 + k) * read(j, k / 32)));
        assert_eq!(got.0, "scale_rerounded:b.exponent", "{}", got.1);
        let size = if by > 1.0 { "by 1 too large" } else { "by 3 too small" };
        assert!(got.1.contains(&format!("at row 5, group 2 {size}")), "{}", got.1);
    }
}

#[test]
fn a_gain_is_no_table_of_codes() {
    let (a, b) = (codes(Format::E2m1, M, 128, 128, false, 122), codes(Format::E2m1, N, 128, 128, false, 123));
    let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, right| {
        right[i * N + j] * if (9..16).contains(&i) { 1.0813 } else { 1.0 }
    });
    assert_eq!(got.0, "stale_state:out.gain", "{}", got.1);
    // Beside it the smallest codes are 0: what is left of the table.
    let (x, y) = (a.dequantize(), b.dequantize());
    let flushed = |j: usize, k: usize| if b.codes()[j * 128 + k] & 7 == 1 { 0.0 } else { y[[j, k]] };
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| 0.7552 * sum(128, |k| x[[i, k]] * flushed(j, k)));
    assert!(got.0.contains("codec_edge:b.") && got.0.contains("stale_state:out.gain"), "{} {}", got.0, got.1);
}

#[test]
fn slices_of_k_that_are_lost_again_and_again_have_a_period() {
    let (a, b) = (wide(M, 384), codes(Format::E4m3, N, 384, 384, false, 124));
    let (x, y) = (a.to_f64(), b.dequantize());
    let got = found(&a, &b, None, Format::F32, |i, j, _| sum(384, |k| if k % 96 < 64 { x[[i, k]] * y[[j, k]] } else { 0.0 }));
    assert!(got.1.contains("of every 96 of K"), "{} {}", got.0, got.1);
}

#[test]
fn a_map_that_differs_from_a_shorter_one_at_the_edge_alone_is_one_of_a_pair() {
    for seed in [125, 225, 325] {
        let (a, b) = (codes(Format::E4m3, M, 128, 128, false, seed), codes(Format::E4m3, N, 128, 128, false, seed + 1));
        let (x, y) = (a.clone(), b.dequantize());
        // The scale of the row behind, wrapped; and a part of K is lost.
        let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
            sum(128, |k| if (40..72).contains(&k) { 0.0 } else { code(&x, i * 128 + k) * y[[j, k]] }) * scale(&x, (i + 1) % M)
        });
        assert!(got.0.contains("scale_shared:a.index") && got.0.contains("acc_state:k.lost"), "{seed}: {} {}", got.0, got.1);
    }
}

#[test]
fn quarters_of_fragments_that_are_exchanged_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N, 128, 128, false, 111));
    let (x, y) = (a.to_f64(), b.dequantize());
    let row = |i: usize, k: usize| if k % 16 >= 8 { i ^ 8 } else { i };
    let got = found(&a, &b, None, Format::F32, |i, j, _| sum(128, |k| x[[row(i, k), k]] * y[[j, k]]));
    assert_eq!(got.0, "pack_permute:a.fragment_rows", "{}", got.1);
    assert!(got.1.contains("row r xor 8 where k mod 16 ≥ 8"), "{}", got.1);
    let column = |i: usize, k: usize| if i % 16 < 8 { k ^ 8 } else { k };
    let got = found(&a, &b, None, Format::F32, |i, j, _| sum(128, |k| x[[i, column(i, k)]] * y[[j, k]]));
    assert_eq!(got.0, "pack_permute:a.fragment_columns", "{}", got.1);
    assert!(got.1.contains("k xor 8 where r mod 16 < 8"), "{}", got.1);
}

#[test]
fn experts_that_are_read_too_close_together_are_told() {
    // Three experts of N / 3 rows, found N / 6 apart; their scales are right.
    let (a, b) = (wide(M, 128), codes(Format::Uint4, N / 3 * 3, 128, 32, false, 112));
    let (x, per) = (a.to_f64(), N / 3);
    let (first, second) = (M / 3, 2 * M / 3);
    let expert = |i: usize| usize::from(i >= first) + usize::from(i >= second);
    let got = grouped_found(&a, &b, &[first, second, M], Format::F32, |i, j| {
        let own = expert(i) * per + j;
        sum(128, |k| x[[i, k]] * code(&b, (expert(i) * (per / 2) + j) * 128 + k) * scale(&b, own * 4 + k / 32))
    });
    assert_eq!(got.0, "addressing:b.expert_stride", "{}", got.1);
    assert!(got.1.contains(&format!("experts {} rows apart instead of {per}", per / 2)), "{}", got.1);
}

#[test]
fn scales_of_experts_that_are_read_too_close_together_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N / 3 * 3, 128, 32, false, 115));
    let (x, per) = (a.to_f64(), N / 3);
    let expert = |i: usize| i * 3 / M;
    let ends: Vec<usize> = (1..=3).map(|e| (0..M).filter(|i| expert(*i) < e).count()).collect();
    let got = grouped_found(&a, &b, &ends, Format::F32, |i, j| {
        let read = expert(i) * (per - 5) + j;
        sum(128, |k| x[[i, k]] * code(&b, (expert(i) * per + j) * 128 + k) * scale(&b, read * 4 + k / 32))
    });
    assert_eq!(got.0, "scale_shared:b.index", "{}", got.1);
    assert!(got.1.contains(&format!("experts that are {} rows apart instead of {per}", per - 5)), "{}", got.1);
}

#[test]
fn bytes_of_scales_that_are_taken_as_signed_are_told() {
    let with = |q: QTensor| {
        let mut p = q.into_parts();
        p.scale_format = Format::E8m0;
        p.scale_inv.iter_mut().enumerate().for_each(|(n, s)| *s = [0.5f32, 1.0, 2.0, 8.0, 0.25][n * 7 % 5]);
        QTensor::new(p).unwrap()
    };
    let (a, b) = (with(codes(Format::E4m3, M, 128, 32, false, 113)), with(codes(Format::E4m3, N, 128, 32, false, 114)));
    let (x, y) = (a.dequantize(), b.dequantize());
    let read = |cell: usize| if scale(&a, cell) >= 2.0 { 2f64.powi(-256) } else { 1.0 };
    let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
        sum(128, |k| x[[i, k]] * read(i * 4 + k / 32) * y[[j, k]])
    });
    assert_eq!(got.0, "bits_reinterpreted:a.scale_signed", "{}", got.1);
}

/// Codes of one scale for the whole tensor.
fn one_scale(rows: usize, k: usize, scale: f32, seed: usize) -> QTensor {
    let q = codes(Format::E4m3, rows, k, k, false, seed);
    QTensor::new(QTensorParts {
        format: Format::E4m3,
        rows,
        cols: k,
        codes: q.codes().to_vec(),
        granularity: Granularity::Tensor,
        scale_inv: vec![scale],
        zero: Zero::None,
        scale_format: Format::F32,
        level: None,
    })
    .unwrap()
}

#[test]
fn what_became_of_a_tensors_one_scale_is_told_beside_another_bug() {
    let (a, b) = (one_scale(M, 128, 0.037, 211), codes(Format::E4m3, N, 128, 32, false, 212));
    for (by, words) in [(1.0 / 0.037f32, "never applied"), (0.037, "applied twice"), (1.0 / (0.037 * 0.037), "reciprocal")] {
        let x = Operand::Quantized(a.clone()).to_f64();
        let y = b.dequantize();
        let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
            sum(96, |k| x[[i, k]] * y[[j, k]]) * f64::from(by)
        });
        assert!(got.1.contains("of a are") || got.1.contains("of a is"), "{}", got.1);
        assert!(got.1.contains(words) && got.1.contains("96 … 127"), "{} {}", got.0, got.1);
    }
}

#[test]
fn bits_moved_without_another_bias_are_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 32, false, 213));
    let got = found(&a, &b, None, Format::F32, |i, j, right| right[i * N + j] * (-120f64).exp2());
    assert!(got.1.contains("2^-120, the difference of two formats' exponent biases"), "{} {}", got.0, got.1);
}

/// Rows of 96 are summed in tiles of 64: what lies behind has scales of 1, as a padded buffer of scales does.
#[test]
fn what_is_summed_behind_the_end_of_k_by_a_scale_of_1_is_told() {
    let (a, b) = (codes(Format::E4m3, M, 96, 32, false, 141), codes(Format::E4m3, N, 96, 32, false, 142));
    let (x, y) = (a.dequantize(), b.dequantize());
    let behind = |q: &QTensor, i: usize, k: usize| if i + 1 < q.rows() { code(q, (i + 1) * 96 + k) } else { 0.0 };
    let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
        sum(96, |k| x[[i, k]] * y[[j, k]]) + sum(32, |k| behind(&a, i, k) * behind(&b, j, k))
    });
    assert_eq!(got.0, "k_tail:k.unmasked", "{}", got.1);
    assert!(got.1.contains("of a the codes at the start of its next row by a scale of 1"), "{}", got.1);
}

/// Scales and zero points of every k, read 128 further on for every 64: 0 behind the end of their row.
#[test]
fn a_pointer_that_leaves_the_row_of_scales_is_told() {
    let (k_all, n) = (256, 64);
    let q = codes(Format::Uint4, n, k_all, 1, false, 144);
    let grid = |seed: usize| -> Vec<f32> { (0..2 * k_all).map(|c| 0.5 + noise(seed + 5 * c) as f32).collect() };
    let (scales, zero) = (grid(145), grid(146));
    let b = QTensor::new(QTensorParts {
        granularity: Granularity::Block { rows: 32, cols: 1 },
        scale_inv: scales.clone(),
        zero: Zero::Additive { zero: zero.clone(), mid: 0 },
        ..q.into_parts()
    })
    .unwrap();
    let (a, c) = (wide(M, k_all), b.clone());
    let x = a.to_f64();
    let at = |v: &[f32], j: usize, k: usize| {
        let k = k / 64 * 128 + k % 64;
        if k < k_all { f64::from(v[j / 32 * k_all + k]) } else { 0.0 }
    };
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(k_all, |k| x[[i, k]] * (code(&c, j * k_all + k) * at(&scales, j, k) + at(&zero, j, k)))
    });
    assert_eq!(got.0, "scale_index:b.advance", "{}", got.1);
    assert!(got.1.contains("128 on for every 64 of K instead of 64, 0 past the end of the row"), "{}", got.1);
}

/// Groups of 25 and two codes a byte: the second one of a byte that two groups share has the first one's group.
#[test]
fn a_group_that_is_computed_once_a_byte_is_told() {
    let (a, b) = (wide(M, 150), codes(Format::Uint4, N, 150, 25, true, 150));
    let (x, c) = (a.to_f64(), b.clone());
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        let cell = |k: usize| j * 6 + k / 2 * 2 / 25;
        sum(150, |k| x[[i, k]] * (code(&c, j * 150 + k) - f64::from(zeros(&c)[cell(k)])) * scale(&c, cell(k)))
    });
    assert_eq!(got.0, "scale_index:b.word", "{}", got.1);
    assert!(got.1.contains("are taken for 2 codes at once"), "{}", got.1);
}

/// Three experts of 24 rows of scales one below the other, each read from the next whole 32 on.
#[test]
fn scales_of_experts_that_are_read_as_if_they_were_padded_are_told() {
    let (a, b) = (wide(48, 64), codes(Format::E4m3, 3 * 24, 64, 32, false, 151));
    let (x, c) = (a.to_f64(), b.clone());
    let offs = [16, 32, 48];
    let got = grouped_found(&a, &b, &offs, Format::F32, |i, j| {
        let (e, row) = (i / 16, i / 16 * 24 + j);
        let at = |k: usize| if 32 * e + j < 72 { scale(&c, (32 * e + j) * 2 + k / 32) } else { 0.0 };
        sum(64, |k| x[[i, k]] * code(&c, row * 64 + k) * at(k))
    });
    assert_eq!(got.0, "group_boundary:b.scale_rows", "{}", got.1);
    assert!(got.1.contains("from row 32·e on, not 24·e: bytes of 0 past the end"), "{}", got.1);
}

/// The overhang of rows of 40 in tiles of 32 is wider than half a row.
#[test]
fn an_overhang_of_more_than_half_a_row_is_told() {
    let (a, b) = (wide(24, 64), codes(Format::E4m3, 3 * 40, 64, 64, false, 152));
    let (x, y) = (a.to_f64(), b.dequantize());
    let got = grouped_found(&a, &b, &[8, 16, 24], Format::F32, |i, j| {
        let late = [2, 3, 7, 12].contains(&(i.max(1) - 1)) && j < 24;
        let (row, weights) = if late { (i - 1, (i - 1) / 8 * 40 + 40 + j) } else { (i, i / 8 * 40 + j) };
        sum(64, |k| x[[row, k]] * y[[weights, k]])
    });
    assert_eq!(got.0, "mn_edge:out.spilled", "{}", got.1);
}
