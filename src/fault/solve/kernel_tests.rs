//! Products of kernels whose K repeats wrongly, whose accumulators hold too much or too little, or whose last tile is wrong, replayed here by
//! their own formula.

use super::tests::{M, N, codes, found, grouped_found, noise, sum, wide};
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
    // Of one sign, and large in one lane of four: no sum of neighbours wraps.
    parts.codes.iter_mut().enumerate().for_each(|(at, c)| *c = if at / 2 % 4 == 0 { *c & 0x1f | 0x40 } else { *c & 0xf });
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
    // The result of an earlier call, which had the same bias.
    let bias: Vec<f32> = (0..40).map(|j| 40.0 * noise(13 * j + 3) as f32).collect();
    let old = bias.clone();
    let got = found(&a, &b, Some(bias), Format::Bf16, |i, j, right| {
        let before = |at: usize| right[at] - f64::from(old[at % 40]);
        if j < 32 {
            right[i * 40 + j]
        } else {
            f64::from(old[j]) + before((i * 29 + j * 3) % right.len()) * (3.0 * noise(977 * i + j) - 1.5)
        }
    });
    assert_eq!(got.0, "mn_edge:out.not_computed", "{}", got.1);
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

#[test]
fn a_bias_of_16_bits_that_is_read_as_f32_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 61));
    let half =
        |j: usize| Format::Bf16.encode(2.0 * noise(17 * j + 3) - 1.0, crate::Rounding::NearestEven, crate::Overflow::Native);
    let bias: Vec<f32> = (0..N).map(|j| Format::Bf16.decode(half(j)) as f32).collect();
    let stored = bias.clone();
    let got = found(&a, &b, Some(bias), Format::Bf16, |i, j, right| {
        right[i * N + j] - f64::from(stored[j]) + f64::from(f32::from_bits(half(2 * j) | half(2 * j + 1) << 16))
    });
    assert_eq!(got.0, "bits_reinterpreted:out.bias_width", "{}", got.1);
    assert!(got.1.contains("columns from 24 on read what lies behind it"), "{}", got.1);
}

#[test]
fn a_persistent_block_that_keeps_its_accumulator_is_told() {
    let (a, b) = (codes(Format::E4m3, 64, 96, 96, false, 62), codes(Format::E4m3, 80, 96, 96, false, 63));
    let (x, y) = (a.dequantize(), b.dequantize());
    let raw = |i: usize, j: usize| sum(96, |k| x[[i, k]] * y[[j, k]]) / (scale(&a, i) * scale(&b, j));
    // Tiles of 16×16, five a row, taken by three blocks in turn.
    let got = found(&Operand::Quantized(a.clone()), &b, None, Format::Bf16, |i, j, _| {
        let tile = i / 16 * 5 + j / 16;
        let held = (0..=tile).rev().step_by(3).map(|t| raw(t / 5 * 16 + i % 16, t % 5 * 16 + j % 16));
        held.sum::<f64>() * scale(&a, i) * scale(&b, j)
    });
    assert_eq!(got.0, "acc_state:out.persistent", "{}", got.1);
    assert!(got.1.contains("tiles of 16×16, row after row, also hold the tiles 3, 6, … before them"), "{}", got.1);
}

#[test]
fn pointers_that_step_by_another_size_are_told() {
    let (a, b) = (codes(Format::Int8, M, 256, 256, false, 64), codes(Format::Int4, N, 256, 256, false, 65));
    let at = |j: usize, k: usize| j * 256 + k / 16 * 32 + k % 16;
    let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
        let one = |k: usize| if at(j, k) < N * 256 { signed(&a, i * 256 + k) * signed(&b, at(j, k)) } else { 0.0 };
        sum(256, one) * scale(&a, i) * scale(&b, j)
    });
    assert_eq!(got.0, "addressing:b.k_blocks_apart", "{}", got.1);
    assert!(got.1.contains("blocks of 16 of K that are 2 times as far apart"), "{}", got.1);
}

#[test]
fn pairs_that_are_clamped_before_the_scales_of_groups_are_told() {
    let (a, b) = (codes(Format::Int8, 4, 128, 32, false, 66), codes(Format::Int8, N, 128, 32, false, 67));
    let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
        let pair = |k: usize| {
            let of = |k: usize| signed(&a, i * 128 + k) * (signed(&b, j * 128 + k) + 128.0);
            let lost =
                (of(k) + of(k + 1)).clamp(-32768.0, 32767.0) - 128.0 * (signed(&a, i * 128 + k) + signed(&a, i * 128 + k + 1));
            lost * scale(&a, i * 4 + k / 32) * scale(&b, j * 4 + k / 32)
        };
        (0..128).step_by(2).map(pair).sum()
    });
    assert_eq!(got.0, "overflow_wrap:out.pairs_16_bits", "{}", got.1);
    assert!(got.1.contains("sums of 2 neighbouring products are clamped at 16 bits"), "{}", got.1);
}

#[test]
fn a_last_step_of_k_beside_unknown_memory_is_told() {
    let (a, b) = (wide(20, 120), codes(Format::E4m3, N, 120, 120, false, 68));
    let (x, y) = (a.to_f64(), b.dequantize());
    let behind = |i: usize, t: usize| 2.0 * noise(101 * i + t) - 1.0;
    let next = |j: usize, t: usize| if j + 1 < N { y[[j + 1, t]] / scale(&b, j + 1) * scale(&b, j) } else { 0.0 };
    let got =
        found(&a, &b, None, Format::F32, |i, j, _| sum(120, |k| x[[i, k]] * y[[j, k]]) + sum(8, |t| behind(i, t) * next(j, t)));
    assert_eq!(got.0, "k_tail:k.behind", "{}", got.1);
    assert!(got.1.contains("8 more columns are summed, of b the start of its next row"), "{}", got.1);
}

#[test]
fn what_is_stored_over_the_next_row_is_the_next_experts() {
    let (n, k_all, offs) = (48, 64, [20usize, 32, 48]);
    let (a, b) = (wide(48, k_all), codes(Format::E4m3, 3 * n, k_all, k_all, false, 71));
    let (x, y) = (a.to_f64(), b.dequantize());
    let first = |i: usize| offs.iter().position(|end| i < *end).unwrap() * n;
    let right = |i: usize, row: usize| sum(k_all, |k| x[[i, k]] * y[[row, k]]);
    let stored = |i: usize, j: usize| match (i, j) {
        (8 | 16 | 28, 0..16) => right(i - 1, first(i - 1) + n + j),
        // Behind the last expert nobody knows.
        (40, 0..16) => 3.0 + j as f64,
        _ => right(i, first(i) + j),
    };
    let got = grouped_found(&a, &b, &offs, Format::Bf16, stored);
    assert_eq!(got.0, "mn_edge:out.spilled", "{}", got.1);
    assert!(got.1.contains("columns 0 … 15 of rows 8, 16, 28, 40 hold the products of the row before"), "{}", got.1);
}

#[test]
fn a_bias_in_units_of_the_first_scale_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 72));
    let bias: Vec<f32> = (0..N).map(|j| 4.0 * noise(31 * j + 7) as f32).collect();
    for inverse in [false, true] {
        let own = |j: usize| if inverse { scale(&b, 0) / scale(&b, j) } else { scale(&b, j) / scale(&b, 0) };
        let added = bias.clone();
        let got = found(&a, &b, Some(bias.clone()), Format::Bf16, |i, j, right| {
            right[i * N + j] + f64::from(added[j]) * (own(j) - 1.0)
        });
        assert_eq!(got.0, "scale_index:out.bias_scale", "{}", got.1);
        assert_eq!(got.1.contains("by the first one of the scales of b over its own"), inverse, "{}", got.1);
    }
}

#[test]
fn a_bias_of_whole_numbers_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 76));
    let bias: Vec<f32> = (0..N).map(|j| 8.0 * (noise(31 * j + 7) as f32 - 0.5)).collect();
    for how in ["cut", "rounded", "rounded down"] {
        let round = |x: f64| match how {
            "cut" => x.trunc(),
            "rounded" => x.round_ties_even(),
            _ => x.floor(),
        };
        let added: Vec<f64> = bias.iter().map(|x| round(f64::from(*x)) - f64::from(*x)).collect();
        let got = found(&a, &b, Some(bias.clone()), Format::Bf16, |i, j, right| right[i * N + j] + added[j]);
        assert_eq!(got.0, "round_order:out.bias_rounded", "{}", got.1);
        assert!(got.1.contains(&format!("the bias is {how} to whole numbers")), "{how}: {}", got.1);
    }
}

#[test]
fn a_bias_in_whole_steps_is_told() {
    let one = |format: Format, rows: usize, seed: usize| {
        let mut parts = codes(format, rows, 64, 64, false, seed).into_parts();
        if rows == M {
            (parts.granularity, parts.scale_inv) = (crate::Granularity::Tensor, vec![0.03125]);
        }
        QTensor::new(parts).unwrap()
    };
    let (a, b) = (one(Format::Int8, M, 73), one(Format::Int8, N, 74));
    let bias: Vec<f32> = (0..N).map(|j| 0.01 * noise(31 * j + 7) as f32).collect();
    let step = |j: usize| 0.03125 * scale(&b, j);
    for (first, name) in [(false, "round_order:out.bias_rounded"), (true, "scale_index:out.bias_scale")] {
        let by = |j: usize| step(if first { 0 } else { j });
        let added: Vec<f64> = (0..N).map(|j| (f64::from(bias[j]) / by(j)).round() * step(j) - f64::from(bias[j])).collect();
        let got = found(&Operand::Quantized(a.clone()), &b, Some(bias.clone()), Format::F32, |i, j, right| {
            right[i * N + j] + added[j]
        });
        assert_eq!(got.0, name, "{}", got.1);
        assert!(got.1.contains("whole steps of"), "{}", got.1);
    }
}

#[test]
fn sums_in_units_of_the_last_blocks_scales_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N, 128, 32, false, 75));
    for (cell, twice) in [(3, false), (0, true)] {
        let own = |j: usize| scale(&b, 4 * j + cell);
        let got = found(&a, &b, None, Format::F32, |i, j, right| right[i * N + j] * if twice { own(j) } else { 1.0 / own(j) });
        let name = if twice { "scale_doubled_inverted:out.block_scale" } else { "scale_omitted:out.block_scale" };
        assert_eq!(got.0, name, "{}", got.1);
    }
}

/// A part of a split K clears tiles that others have added to already.
#[test]
fn slices_of_k_that_each_tile_loses_by_itself_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::E4m3, N, 128, 128, false, 47));
    let (x, y) = (a.to_f64(), b.dequantize());
    let lost = |i: usize, j: usize, k: usize| match (i / 16 * 3 + j / 16) % 3 {
        0 => k / 32 == 1,
        1 => k / 32 == 0 || k / 32 == 3,
        _ => i >= 16 && k / 32 == 2,
    };
    for out in [Format::Bf16, Format::F32] {
        let got = found(&a, &b, None, out, |i, j, _| sum(128, |k| if lost(i, j, k) { 0.0 } else { x[[i, k]] * y[[j, k]] }));
        assert_eq!(got.0, "acc_state:out.tile_slices", "{}", got.1);
        let words = "slices of 32 of K are lost, by tile of 16×16 others: tile (0, 0) 32 … 63; tile (0, 1) 0 … 31, 96 … 127;";
        assert!(got.1.contains(words), "{}", got.1);
    }
}

/// Two weight rows a block and an odd number of them: the row that is not there is stored over the start of the next one.
#[test]
fn what_lies_behind_the_weights_of_few_rows_is_an_overrun() {
    let (a, b) = (wide(5, 64), codes(Format::E4m3, 51, 64, 64, false, 48));
    let size = |right: &[f64]| right.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let over = |first: usize| {
        found(&a, &b, None, Format::F32, |i, j, right| {
            if i >= first && j == 0 { size(right) * (noise(i + 77) - 0.5) } else { right[i * 51 + j] }
        })
    };
    let got = over(1);
    assert_eq!(got.0, "mn_edge:out.overrun", "{}", got.1);
    assert!(got.1.contains("the last tile of 2 columns"), "{}", got.1);
    assert_ne!(over(2).0, "mn_edge:out.overrun", "row 1 is spared too");
}
