//! Products whose scales, zero points, fragments or partial sums are those of another place, replayed here by their own formula.

use super::tests::{M, N, codes, found, noise, sum, wide};
use crate::job::Operand;
use crate::{Format, QTensor, Zero};

fn scale(q: &QTensor, cell: usize) -> f64 {
    f64::from(q.scale_inv()[cell])
}

#[test]
fn a_loop_counter_of_half_groups_is_told_for_both_operands() {
    let (k_all, a, b) = (256, codes(Format::E4m3, M, 256, 64, false, 21), codes(Format::E4m3, N, 256, 64, false, 22));
    let f = |q: &QTensor, at: usize| Format::E4m3.decode(u32::from(q.codes()[at]));
    let read = |q: &QTensor, row: usize, k: usize| scale(q, (row * 4 + k / 32).min(q.scale_inv().len() - 1));
    let (x, y) = (a.clone(), b.clone());
    let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
        sum(k_all, |k| f(&x, i * k_all + k) * f(&y, j * k_all + k) * read(&x, i, k) * read(&y, j, k))
    });
    assert_eq!(got.0, "scale_index:a.divisor", "{}", got.1);
    assert!(got.1.contains("the scale of a at k is that of step k / 32, and not of group k / 64"), "{}", got.1);
    assert!(got.1.contains("the last behind the last; of b as well"), "{}", got.1);
}

/// Scales in a shuffle of 32 rows, padded to so many columns of 1, written at a stride of `stored` and read at that of the padding.
fn shuffled(stored: usize, chance: bool) -> (String, String) {
    const K: usize = 288;
    let (m, wide) = (72, 16);
    let (a, b) = (codes(Format::E4m3, m, K, 32, false, 34), codes(Format::E4m3, N, K, K, false, 35));
    let at = |r: usize, c: usize, row: usize| {
        r % 32 / 16 + c % 8 / 4 * 2 + r % 16 * 4 + c % 4 * 64 + c / 8 * 256 + r / 32 * 32 * row
    };
    let mut memory = vec![1.0; 96 * wide + 512];
    for (r, c) in (0..96).flat_map(|r| (0..wide).map(move |c| (r, c))) {
        memory[at(r, c, stored)] = if r < m && c < 9 { scale(&a, r * 9 + c) } else { 1.0 };
    }
    let y = b.dequantize();
    let x = a.clone();
    let read = |i: usize, c: usize| {
        if chance { scale(&x, (noise(i * 9 + c) * (m * 9) as f64) as usize) } else { memory[at(i, c, wide)] }
    };
    found(&Operand::Quantized(a.clone()), &b, None, Format::Bf16, |i, j, _| {
        sum(K, |k| Format::E4m3.decode(u32::from(x.codes()[i * K + k])) * read(i, k / 32) * y[[j, k]])
    })
}

#[test]
fn padding_of_a_shuffle_that_lies_over_the_next_rows_is_told() {
    let got = shuffled(9, false);
    assert_eq!(got.0, "scale_layout:a.address", "{}", got.1);
    assert!(got.1.contains("written at a row stride of 9, with padding of 1 to 16 columns"), "{}", got.1);
    let got = shuffled(9, true);
    assert_ne!(got.0, "scale_layout:a.address", "{}", got.1);
}

#[test]
fn a_stride_that_holds_within_tiles_of_rows_is_told() {
    let (k_all, a, b) = (192, codes(Format::E4m3, M, 192, 32, false, 28), codes(Format::E4m3, N, 192, 192, false, 29));
    let (x, y) = (a.clone(), b.dequantize());
    // From row 8 on 6 scales of a row lie 8 apart, each tile of 8 rows starts where it is stored; behind the end 1.
    let read = |i: usize, c: usize| {
        let at = if i < 8 { i * 6 + c } else { i / 8 * 48 + i % 8 * 8 + c };
        if at < M * 6 { scale(&x, at) } else { 1.0 }
    };
    let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
        sum(k_all, |k| Format::E4m3.decode(u32::from(x.codes()[i * k_all + k])) * read(i, k / 32) * y[[j, k]])
    });
    assert_eq!(got.0, "scale_layout:a.address", "{}", got.1);
    assert!(
        got.1.contains("at a row stride of 8 instead of 6 from the start of every 8 rows, 1 where nothing is stored"),
        "{}",
        got.1
    );
}

#[test]
fn a_gather_without_its_second_stride_is_told() {
    let (k_all, a, b) = (256, codes(Format::E4m3, M, 256, 64, false, 23), codes(Format::E4m3, N, 256, 256, false, 24));
    let y = b.dequantize();
    let x = a.clone();
    // Stored column by column: cell (r, c) at c·M + r; read at r + c.
    let memory = |at: usize| scale(&x, at % M * 4 + at / M);
    let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
        sum(k_all, |k| Format::E4m3.decode(u32::from(x.codes()[i * k_all + k])) * memory(i + k / 64) * y[[j, k]])
    });
    assert_eq!(got.0, "scale_layout:a.address", "{}", got.1);
    assert!(got.1.contains("stored column by column at a stride of 32, are read at r·1 + c·1"), "{}", got.1);
}

#[test]
fn zero_points_that_are_not_loaded_are_told() {
    // Fewer rows than two for each group: single cells cannot be solved.
    let (a, b) = (wide(6, 256), codes(Format::Uint4, N, 256, 32, true, 25));
    let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
    let x = a.to_f64();
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(256, |k| {
            let (cell, c) = (j * 8 + k / 32, k / 32);
            let zero = if c % 4 == 0 { f64::from(z[cell]) } else { 0.0 };
            x[[i, k]] * (f64::from(b.codes()[j * 256 + k]) - zero) * scale(&b, cell)
        })
    });
    assert_eq!(got.0, "zp_correction:b.zero_address", "{}", got.1);
    assert!(got.1.contains("loaded where the group mod 4 is 0"), "{}", got.1);
}

#[test]
fn tiles_that_take_the_scales_of_others_are_told() {
    let (k_all, a, b) = (128, codes(Format::E4m3, 128, 128, 64, false, 26), codes(Format::E4m3, 128, 128, 64, false, 27));
    let f = |q: &QTensor, at: usize| Format::E4m3.decode(u32::from(q.codes()[at]));
    let (x, y) = (a.clone(), b.clone());
    let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
        // Tile (p, q) of 64 × 64 takes rows of tile p xor q, columns of tile p.
        let (row, col) = (((i / 64) ^ (j / 64)) * 64 + i % 64, i / 64 * 64 + j % 64);
        sum(k_all, |k| f(&x, i * k_all + k) * f(&y, j * k_all + k) * scale(&x, row * 2 + k / 64) * scale(&y, col * 2 + k / 64))
    });
    assert_eq!(got.0, "scale_index:tile.index", "{}", got.1);
    assert!(got.1.contains("(0, 1) ← (1, 0)") && got.1.contains("(1, 1) ← (0, 1)"), "{}", got.1);
}

#[test]
fn fragments_of_another_step_are_told() {
    let (k_all, a, b) = (256, wide(M, 256), codes(Format::E4m3, 64, 256, 256, false, 28));
    let (x, y) = (a.to_f64(), b.dequantize());
    let stale = |j: usize, k: usize| matches!((j / 32, k / 16), (0, 5) | (0, 11) | (1, 7));
    let got =
        found(&a, &b, None, Format::Bf16, |i, j, _| sum(k_all, |k| x[[i, k]] * y[[j, if stale(j, k) { k - 32 } else { k }]]));
    assert_eq!(got.0, "race:b.fragments", "{}", got.1);
    assert!(got.1.contains("3 of 32 fragments of b (16 of K by 32 columns) are those of 2 steps before"), "{}", got.1);
}

#[test]
fn batches_with_the_registers_of_one_are_told() {
    let (k_all, a, b) = (256, wide(64, 256), codes(Format::E4m3, N, 256, 256, false, 29));
    let (x, y) = (a.to_f64(), b.dequantize());
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
        let first = i / 32 * 32 + i % 8;
        sum(k_all, |k| x[[if k >= 160 { first } else { i }, k]] * y[[j, k]])
    });
    assert_eq!(got.0, "acc_state:out.batch_repeated", "{}", got.1);
    assert!(got.1.contains("K 160 … 255") && got.1.contains("batches of 8 rows"), "{}", got.1);
}

/// The last tile has no row that a batch could repeat: there is nothing to read, and the rest is told.
#[test]
fn batches_of_a_result_that_ends_within_a_tile_are_told() {
    let (k_all, rows, a, b) = (256, 66, wide(66, 256), codes(Format::E4m3, N, 256, 256, false, 29));
    let (x, y) = (a.to_f64(), b.dequantize());
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
        let last = i / 32 * 32 + 24 + i % 8;
        sum(k_all, |k| x[[if k >= 160 && last < rows { last } else { i }, k]] * y[[j, k]])
    });
    assert_eq!(got.0, "acc_state:out.batch_repeated", "{}", got.1);
}

#[test]
fn a_compensation_with_one_groups_scale_is_told() {
    let (k_all, a, b) = (128, codes(Format::Int8, M, 128, 32, false, 30), codes(Format::Int8, N, 128, 128, false, 31));
    let code = |q: &QTensor, at: usize| f64::from(q.codes()[at] as i8);
    let (x, y) = (a.clone(), b.clone());
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        let last = scale(&x, i * 4 + 3);
        scale(&y, j)
            * sum(k_all, |k| {
                let q = code(&y, j * k_all + k);
                (code(&x, i * k_all + k) + 128.0) * q * scale(&x, i * 4 + k / 32) - 128.0 * q * last
            })
    });
    assert_eq!(got.0, "zp_correction:a.compensation", "{}", got.1);
    assert!(got.1.contains("with the scale of the last group"), "{}", got.1);
}

#[test]
fn tiles_that_were_not_computed_are_told() {
    let (a, b) = (wide(128, 64), codes(Format::E4m3, 160, 64, 64, false, 32));
    // A diagonal of tiles: no range of rows and columns.
    let got =
        found(&a, &b, None, Format::Bf16, |i, j, right| if (i / 32 + j / 32) % 3 == 1 { 0.0 } else { right[i * 160 + j] });
    assert_eq!(got.0, "race:out.tile", "{}", got.1);
    assert!(got.1.contains("of the tiles of 32×32"), "{}", got.1);
}

#[test]
fn one_warps_share_of_k_is_told() {
    let (k_all, a, b) = (256, wide(M, 256), codes(Format::E4m3, N, 256, 256, false, 33));
    let (x, y) = (a.to_f64(), b.dequantize());
    let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
        let only = sum(k_all, |k| if k / 32 % 4 == 0 { x[[i, k]] * y[[j, k]] } else { 0.0 });
        if j % 16 >= 12 { only } else { right[i * N + j] }
    });
    assert_eq!(got.0, "acc_state:k.part_only", "{}", got.1);
    assert!(got.1.contains("slice 0 of 4, 32 wide"), "{}", got.1);
}

#[test]
fn lanes_that_hold_other_columns_are_told() {
    let (k_all, a, b) = (64, wide(M, 64), codes(Format::E4m3, 64, 64, 64, false, 34));
    let (x, y) = (a.to_f64(), b.dequantize());
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| sum(k_all, |k| x[[i, k]] * y[[j / 32 * 32 + k % 32, k]]));
    assert_eq!(got.0, "acc_state:b.strips", "{}", got.1);
}

#[test]
fn rows_that_are_never_loaded_are_told() {
    let (k_all, a, b) = (128, wide(M, 128), codes(Format::E4m3, 96, 128, 128, false, 35));
    let (x, y) = (a.to_f64(), b.dequantize());
    // Whatever lay there: the same 16 numbers a row for every tile of K.
    let old = |i: usize, u: usize| 2.0 * super::tests::noise(7000 + 16 * i + u) - 1.0;
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
        sum(k_all, |k| if i % 16 >= 12 { old(i, k % 16) } else { x[[i, k]] } * y[[j, k]])
    });
    assert_eq!(got.0, "silent_skip:a.not_loaded", "{}", got.1);
    assert!(got.1.contains("the same 16 numbers are multiplied for every tile of 16 of K"), "{}", got.1);
}

#[test]
fn scales_behind_a_buffer_that_is_too_short_are_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 91));
    let (x, y) = (a.to_f64(), b.dequantize());
    let by = |j: usize| match j {
        0 => 1.0,
        1..20 => 0.0,
        _ => 0.4 + 1.3 * noise(17 * j),
    };
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| by(j) * sum(64, |k| x[[i, k]] * y[[j, k]]));
    assert_eq!(got.0, "padding_poison:b.gains", "{}", got.1);
    assert!(got.1.contains("right up to 0") && got.1.contains("19 zeros"), "{}", got.1);
}

#[test]
fn padding_of_rows_that_stands_for_zero_is_told_from_code_zero() {
    let k_all = 80;
    let (a, b) = (wide(M, k_all), codes(Format::Uint4, N, k_all, 16, true, 92));
    let x = a.to_f64();
    let Zero::Integer(zero) = b.zero().clone() else { panic!("zero points") };
    // Rows of 96 in memory.
    let value = |j: usize, k: usize| {
        let (n, c) = ((j * k_all + k) / 96, (j * k_all + k) % 96);
        let cell = j * 5 + k / 16;
        let code = |c: usize| f64::from(b.codes()[n * k_all + c]) - f64::from(zero[cell]);
        if c < k_all { code(c) * f64::from(b.scale_inv()[cell]) } else { 0.0 }
    };
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| sum(k_all, |k| x[[i, k]] * value(j, k)));
    assert_eq!(got.0, "addressing:b.stride", "{}", got.1);
    assert!(got.1.contains("rows of 96") && got.1.contains("stands for 0"), "{}", got.1);
}

/// A last tile of 32 of 80 columns, in tiles of 16 rows: zeros over the first 16 columns of the next row, but for those that are stored later.
#[test]
fn a_last_tile_that_is_stored_whole_over_rows_of_its_own_tile_is_told() {
    let (m, n) = (48, 80);
    let (a, b) = (wide(m, 64), codes(Format::Int8, n, 64, 64, false, 84));
    let got = found(&a, &b, None, Format::F32, |i, j, right| if j < 16 && i % 16 > 0 { 0.0 } else { right[i * n + j] });
    assert_eq!(got.0, "mn_edge:out.overrun", "{}", got.1);
    assert!(got.1.contains("the last tile of 32 columns is stored whole") && got.1.contains("tiles of 16 rows"), "{}", got.1);
}

/// A row stride of 0, and a grid that ends early.
#[test]
fn one_row_for_all_beside_columns_that_are_not_written_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::Int8, N, 64, 64, false, 85));
    let (x, y) = (a.to_f64(), b.dequantize());
    let scale = |j: usize| f64::from(b.scale_inv()[j]);
    let row = |i: usize, j: usize| sum(64, |k| x[[i, k]] * y[[0, k]] / scale(0) * scale(j));
    let got = found(&a, &b, None, Format::F32, |i, j, _| if j < 11 { row(i, j) } else { 0.0 });
    assert!(got.1.contains("read from row 0 for all: a row stride of 0") && got.1.contains("are zero"), "{} {}", got.0, got.1);
}

/// Another index beside a gain: what lies behind is 0.
#[test]
fn scales_further_on_times_a_gain_are_no_garbage() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 23));
    let x = a.to_f64();
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        let scale = match j {
            0..8 => b.scale_inv()[j],
            _ => 1.3f32 * b.scale_inv().get(j + 20).copied().unwrap_or(0.0),
        };
        sum(64, |k| x[[i, k]] * Format::E4m3.decode(u32::from(b.codes()[j * 64 + k]))) * f64::from(scale)
    });
    assert!(!got.0.contains("padding_poison"), "{} {}", got.0, got.1);
}

#[test]
fn one_row_s_scale_for_all_is_told_by_its_row() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 24));
    let x = a.to_f64();
    let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
        sum(64, |k| x[[i, k]] * Format::E4m3.decode(u32::from(b.codes()[j * 64 + k]))) * f64::from(b.scale_inv()[37])
    });
    // No scale that is lost, and a factor.
    assert!(got.0.starts_with("scale_shared:b.") && got.1.contains("37"), "{} {}", got.0, got.1);
}
