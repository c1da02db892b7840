//! Slips of kernels that an outside exam asked: what is read beside or behind where it should be, and what overflows on its way.

use super::Writer;
use super::named_tests::{ROW, cast, dot, found, gemm, is_named, quantized, scaled, values};
use crate::compare::Verdict;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};
use ndarray::Array2;
use safetensors::Dtype;

/// A grouped product of FP8 by rows: `of` makes element (row, column) from the values of a and of all experts.
type Element<'e> = &'e dyn Fn(&Array2<f64>, &Array2<f64>, usize, usize) -> f64;

fn grouped(k: usize, n: usize, ends: &[i32], of: Element) -> Writer {
    let (rows, experts) = (ends[ends.len() - 1] as usize, ends.len());
    let (a, b) = (quantized(ROW, rows, k, 601), quantized(ROW, experts * n, k, 602));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let mut w = Writer::new("grouped_gemm");
    w.codes("a", &a, None, None).unwrap().codes("b", &b, Some(experts), None).unwrap().i32s("offs", &[experts], ends);
    let out = (0..rows * n).map(|at| of(&x, &y, at / n, at % n) as f32).collect();
    w.values("out", &[rows, n], &Tensor::rounded(Format::Bf16, rows, n, out).unwrap());
    w
}

fn expert(ends: &[i32], i: usize) -> usize {
    ends.iter().filter(|end| **end as usize <= i).count()
}

#[test]
fn rows_of_a_that_are_read_as_of_equal_groups_are_named() {
    const ENDS: [i32; 4] = [10, 40, 90, 96];
    let starts = [0, 10, 40, 90];
    let by = |source: &dyn Fn(usize, usize) -> usize| {
        grouped(96, 48, &ENDS, &|x, y, i, j| {
            let e = expert(&ENDS, i);
            let from = source(e, i - starts[e]);
            let lost = 3.0 * ((i * 48 + j) % 7) as f64;
            if from < 96 { dot(x, y, from, e * 48 + j) } else { lost }
        })
    };
    assert_eq!(found(&by(&|e, i| starts[e] + i)).0, Verdict::Pass);
    // Rows 48 and 49 of group 2 are behind the end.
    let words =
        ["rows of a are read from other places", "2 of them behind the last", "+14 in group 1, +8 in group 2, -18 in group 3"];
    is_named(&by(&|e, i| e * 24 + i), "group_boundary:a.gathered", &words);
}

#[test]
fn tiles_that_belong_to_the_group_of_their_first_row_leave_rows_out() {
    const ENDS: [i32; 4] = [20, 70, 88, 130];
    let by = |skips: &dyn Fn(usize) -> bool| {
        grouped(64, 48, &ENDS, &|x, y, i, j| if skips(i) { 0.0 } else { dot(x, y, i, expert(&ENDS, i) * 48 + j) })
    };
    let first = by(&|i| expert(&ENDS, i) != expert(&ENDS, i / 32 * 32));
    is_named(&first, "group_boundary:rows_of_experts", &["tiles of 32 rows", "belongs to the group of its first row"]);
    // Some rows of no rule are not written.
    is_named(&by(&|i| (25..36).contains(&i)), "silent_skip:out.part", &["rows 25 … 35 are zero"]);
}

/// The next vector and the next row of the matrix are summed as well: a loop of four stages over K of two.
#[test]
fn a_loop_that_is_as_long_as_two_rows_is_named() {
    const ENDS: [i32; 3] = [1, 2, 3];
    let by = |past: bool| {
        grouped(512, 48, &ENDS, &move |x, y, i, j| {
            let next = if past && i < 2 { dot(x, y, i + 1, i * 48 + j + 1) } else { 0.0 };
            dot(x, y, i, i * 48 + j) + next
        })
    };
    assert_eq!(found(&by(false)).0, Verdict::Pass);
    is_named(&by(true), "k_tail:k.unmasked", &["tile of 1024 of K is not masked: 512 elements past the end"]);
}

/// Ten products of numbers that nobody knows, as a tile of 16 has behind a K of 54; another number of them is not that tile's.
#[test]
fn padding_of_both_operands_is_told_by_the_rank_of_what_it_adds() {
    let (a, b) = (quantized(ROW, 24, 54, 603), quantized(ROW, 40, 54, 604));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let by = |n: usize| {
        let (p, q) = (values(Format::F32, 24, n, 605).to_f64(), values(Format::F32, 40, n, 606).to_f64());
        gemm(&a, &b, Format::F32, |i, j| dot(&x, &y, i, j) + 0.1 * dot(&p, &q, i, j))
    };
    is_named(&by(10), "k_tail:k.padding", &["tile of 16 of K is not masked", "a sum of 10 products"]);
    let other = found(&by(7));
    assert!(other.0 == Verdict::Fail && !other.1.contains("padding"), "{} {}", other.1, other.2);
}

#[test]
fn a_scale_whose_reciprocal_overflows_is_named() {
    let (a, b) = (quantized("te_block_1x128_fp32", 8, 256, 607), quantized("te_block_128x128_fp32", 256, 256, 608));
    let mut parts = b.clone().into_parts();
    parts.scale_inv[3] = 2e-39;
    let b = QTensor::new(parts).unwrap();
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    assert_eq!(found(&gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j))).0, Verdict::Pass);
    let inf = |i: usize, j: usize| match j {
        128.. if (i + j).is_multiple_of(3) => f64::NAN,
        128.. => f64::INFINITY,
        _ => dot(&x, &y, i, j),
    };
    is_named(
        &gemm(&a, &b, Format::Bf16, inf),
        "degenerate_block:b.reciprocal",
        &["whose reciprocal overflows in f32: 2", "in row 1, group 1 of the grid"],
    );
    let some = |i: usize, j: usize| if j >= 140 { f64::INFINITY } else { dot(&x, &y, i, j) };
    assert!(!found(&gemm(&a, &b, Format::Bf16, some)).1.contains("reciprocal"));
}

/// Parts of a weight that has one scale, each dequantized by its own.
#[test]
fn parts_of_a_weight_that_take_scales_of_their_own_are_named() {
    let a = quantized("te_current", 24, 96, 609);
    let b = quantized("te_current", 96, 96, 610);
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let by = |part: [f64; 3]| gemm(&a, &b, Format::F32, move |i, j| part[j / 32] * dot(&x, &y, i, j));
    let words = ["0.314", "in rows 32 … 63", "0.511", "in rows 64 … 95"];
    is_named(&by([1.0, 0.314, 0.511]), "stale_state:b.parts", &words);
}

#[test]
fn scales_of_tiles_that_are_looked_up_twice_as_far_apart_are_named() {
    let (a, b) = (quantized("mx_floor", 64, 128, 611), quantized("mx_floor", 48, 128, 612));
    let (codes, y) = (scaled(&a, |_| 1.0), b.dequantize_fast());
    let scale = |i: usize, k: usize| {
        let from = i / 16 * 32 + i % 16;
        if from < 64 { f64::from(a.scale_inv()[from * 4 + k / 32]) } else { 2f64.powi(-127) }
    };
    let one = |i: usize, j: usize| (0..128).map(|k| codes[(i, k)] * scale(i, k) * y[(j, k)]).sum();
    is_named(&gemm(&a, &b, Format::Bf16, one), "scale_index:a.apart", &["tiles of 16 lines are looked up in those of 32"]);
}

#[test]
fn weights_of_rows_whose_bytes_are_of_another_type_are_named() {
    const ENDS: [i32; 2] = [20, 44];
    let weights = |f: Format| {
        let all = (0..44).map(|i| (7 + (i * 29) % 41) as f32 / 64.0).collect::<Vec<f32>>();
        Tensor::rounded(f, 1, 44, all).unwrap()
    };
    let by = |f: Format, read: &dyn Fn(&Tensor, usize) -> f32| {
        let w = weights(f);
        let mut bundle = grouped(64, 48, &ENDS, &|x, y, i, j| f64::from(read(&w, i)) * dot(x, y, i, expert(&ENDS, i) * 48 + j));
        bundle.values("row_weights", &[44], &w);
        bundle
    };
    assert_eq!(found(&by(Format::Bf16, &|w, i| w.data()[i])).0, Verdict::Pass);
    let bytes = |w: &Tensor, from: usize| -> [u8; 4] { std::array::from_fn(|n| w.bits().get(from + n).copied().unwrap_or(0)) };
    let wide = by(Format::Bf16, &|w, i| f32::from_le_bytes(bytes(w, 4 * i)));
    is_named(&wide, "bits_reinterpreted:row_weights", &["bf16 read as f32"]);
    let narrow =
        by(Format::F32, &|w, i| f32::from_bits(u32::from(u16::from_le_bytes([bytes(w, 2 * i)[0], bytes(w, 2 * i)[1]])) << 16));
    is_named(&narrow, "bits_reinterpreted:row_weights", &["f32 read as bf16"]);
}

#[test]
fn a_scale_that_is_not_rounded_to_a_power_of_two_is_named() {
    let x = values(Format::Bf16, 32, 256, 613);
    let amax = |g: usize| x.row(g / 2)[g % 2 * 128..g % 2 * 128 + 128].iter().fold(0f32, |m, v| m.max(v.abs()));
    let by = |recipe: &str, rule: &dyn Fn(f32) -> f32| {
        let scales: Vec<f32> = (0..64).map(|g| rule(amax(g) / 448.0)).collect();
        let code = |at: usize| {
            let y = f64::from(x.data()[at] / scales[at / 256 * 2 + at % 256 / 128]);
            Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let mut w = cast(&x, Dtype::F8_E4M3, (0..32 * 256).map(code).collect(), "group:128", &[32, 2], &scales);
        w.without("out.granularity").meta("recipe", recipe);
        w
    };
    assert_eq!(found(&by("te_block_1x128", &|s| s.log2().ceil().exp2())).0, Verdict::Pass);
    is_named(&by("te_block_1x128", &|s| s), "scale_rerounded:out.not_pow2", &["amax over 448, not rounded to a power of two"]);
}

#[test]
fn magnitudes_of_values_below_the_least_code_are_named() {
    let x = values(Format::F32, 24, 64, 614);
    let largest = x.data().iter().fold(0f32, |m, v| m.max(v.abs()));
    let (scale, zero) = (largest / 160.0, -30.0f32);
    let by = |of: &dyn Fn(f32) -> f32| {
        let codes = x.data().iter().map(|v| of((v / scale).round_ties_even() + zero) as i8 as u8).collect();
        let mut w = cast(&x, Dtype::I8, codes, "tensor", &[1], &[scale]);
        w.i32s("out.zero_point", &[1], &[-30]).meta("out.zero", "integer").meta("out.format", "int8");
        w
    };
    assert_eq!(found(&by(&|y| y.clamp(-128.0, 127.0))).0, Verdict::Pass);
    let turned = by(&|y| if y < -128.0 { -256.0 - y } else { y }.min(127.0));
    is_named(&turned, "overflow_wrap:out.below_turned", &["their magnitude is stored"]);
}

/// 6 rows of 70: of a stride beyond them all nothing but the first row would be there.
#[test]
fn rows_that_are_not_written_are_no_stride() {
    let (a, b) = (quantized(ROW, 6, 96, 615), quantized(ROW, 70, 96, 616));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let first = gemm(&a, &b, Format::Bf16, |i, j| if i > 0 { 0.0 } else { dot(&x, &y, i, j) });
    is_named(&first, "silent_skip:out.part", &["rows 1 … 5 are zero: not written"]);
}

/// Blocks of so small an amax that the format's maximum over it overflows: f16 would overflow far earlier.
#[test]
fn a_multiplier_that_overflows_in_f32_is_named() {
    let x = values(Format::F32, 24, 64, 617);
    let small = |at: usize| at / 64 < 9 && at % 64 < 32;
    let x: Vec<f32> = x.data().iter().enumerate().map(|(at, v)| if small(at) { v * 1e-37 } else { *v * 1e-3 }).collect();
    let x = Tensor::new(Format::F32, 24, 64, x).unwrap();
    let amax = |g: usize| x.row(g / 2)[g % 2 * 32..g % 2 * 32 + 32].iter().fold(0f32, |m, v| m.max(v.abs()));
    let exponent = |g: usize| (amax(g).log2().floor() as i32 - 8).max(-127);
    let code = |at: usize| {
        let g = at / 64 * 2 + at % 64 / 32;
        let y =
            if small(at) { f64::from(x.data()[at]) * f64::INFINITY } else { f64::from(x.data()[at]) / 2f64.powi(exponent(g)) };
        Format::E4m3.encode(y.clamp(-448.0, 448.0), Rounding::NearestEven, Overflow::Saturate) as u8
    };
    let mut w = Writer::new("cast");
    w.values("a", &[24, 64], &x).raw("out.codes", Dtype::F8_E4M3, &[24, 64], (0..24 * 64).map(code).collect());
    w.raw("out.scale_inv", Dtype::U8, &[24, 2], (0..48).map(|g| (exponent(g) + 127) as u8).collect());
    w.meta("recipe", "mx_floor");
    is_named(&w, "overflow_wrap:out.multiplier_f32", &["the format's maximum over amax is Inf in f32"]);
}

/// A part of all columns is twice as large, as where K is accumulated again; all of them are rather off by an exponent's bias.
#[test]
fn sums_that_are_there_twice_in_some_columns_are_named() {
    let (a, b) = (quantized(ROW, 24, 96, 618), quantized(ROW, 96, 96, 619));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let by = |from: usize, n: f64| gemm(&a, &b, Format::Bf16, |i, j| if j < from { 1.0 } else { n } * dot(&x, &y, i, j));
    is_named(&by(48, 2.0), "acc_state:out.sums_again", &["every sum is there twice", "columns 48 … 95"]);
    is_named(&by(48, 3.0), "acc_state:out.sums_again", &["every sum is there three times"]);
    assert!(!found(&by(0, 2.0)).1.contains("sums_again"));
}

/// Every third column of a matrix times a vector: the upper lanes' sums are those of the next column, of its codes or with its scale.
#[test]
fn partial_sums_of_the_next_column_are_a_race() {
    let (a, b) = (quantized(ROW, 1, 256, 620), quantized(ROW, 96, 256, 621));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let scale = |j: usize| f64::from(b.scale_inv()[j]);
    for own in [false, true] {
        let value = |j: usize, k: usize| match j.is_multiple_of(3) && k % 32 >= 16 {
            true => y[(j + 1, k)] * if own { scale(j) / scale(j + 1) } else { 1.0 },
            false => y[(j, k)],
        };
        let w = gemm(&a, &b, Format::Bf16, |_, j| (0..256).map(|k| x[(0, k)] * value(j, k)).sum());
        is_named(&w, "race:out.partial_sums", &["the upper half of every 32 of K are those of row r + 1 of b", "columns 0, 3"]);
    }
}

/// The mask of a store ends one column early: what was in memory is left there.
#[test]
fn a_last_column_that_is_left_out_is_named() {
    let (a, b) = (quantized(ROW, 80, 96, 622), quantized(ROW, 47, 96, 623));
    let (other, x, y) = (quantized(ROW, 80, 96, 624), a.dequantize_fast(), b.dequantize_fast());
    let z = other.dequantize_fast();
    let by = |first: usize| gemm(&a, &b, Format::Bf16, |i, j| dot(if j >= first { &z } else { &x }, &y, i, j));
    is_named(&by(46), "mn_edge:out.not_computed", &["columns 46 … 46", "a mask that ends early"]);
    // Of more columns nobody knows whether they are another product.
    assert!(!found(&by(35)).1.contains("not_computed"));
}

/// The tail of a loop reads the buffer of the step before: eight of K are counted twice and the last eight never.
#[test]
fn steps_of_eight_of_k_that_are_exchanged_are_named() {
    let (a, b) = (quantized(ROW, 24, 72, 625), quantized(ROW, 40, 72, 626));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let times = |k: usize| match k {
        56..64 => 2.0,
        64.. => 0.0,
        _ => 1.0,
    };
    let one = |i: usize, j: usize| (0..72).map(|k| times(k) * x[(i, k)] * y[(j, k)]).sum();
    is_named(&gemm(&a, &b, Format::F32, one), "k_tail:k.pattern", &["56 … 63 ×2", "64 … 71 ×0"]);
}

/// From column 64 on the values of `a` are let through, without activation and gate.
#[test]
fn columns_that_no_activation_is_applied_to_are_named() {
    let x = values(Format::F32, 24, 192, 627);
    let silu = |v: f32| v / (1.0 + (-v).exp());
    let by = |from: usize| {
        let one = |i: usize, j: usize| match j < from {
            true => silu(x.row(i)[j]) * x.row(i)[96 + j],
            false => x.row(i)[j],
        };
        let mut w = Writer::new("activation");
        w.meta("fn", "swiglu").values("a", &[24, 192], &x);
        w.f32s("out", &[24, 96], &(0..24 * 96).map(|at| one(at / 96, at % 96)).collect::<Vec<_>>());
        w
    };
    assert_eq!(found(&by(96)).0, Verdict::Pass);
    is_named(&by(64), "silent_skip:out.let_through", &["columns 64 … 95", "nothing is applied to them"]);
}

/// Three parts of a weight, each with one scale, that a kernel takes for thirds: two pairs of numbers are in a line, and no offset.
#[test]
fn scales_of_parts_whose_ends_are_elsewhere_are_no_line() {
    let (a, b) = (quantized(ROW, 50, 192, 628), quantized("te_current", 96, 192, 629));
    let scale = |n: usize| [4.15e-4f32, 1.094e-3, 1.778e-3][n];
    let mut parts = b.clone().into_parts();
    parts.granularity = crate::Granularity::Row;
    parts.scale_inv = (0..96).map(|j| scale(if j < 64 { 0 } else { 1 + (j - 64) / 16 })).collect();
    let b = QTensor::new(parts).unwrap();
    let (x, y) = (a.dequantize_fast(), scaled(&b, |j| scale(j / 32)));
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j));
    is_named(&w, "scale_shared:b.index", &["taken from other places (32 ← 6"]);
}

#[test]
fn a_bias_of_the_other_sixteen_bits_is_named() {
    let (a, b) = (quantized(ROW, 24, 96, 630), quantized(ROW, 48, 96, 631));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let bias = values(Format::Bf16, 1, 48, 632);
    let read = |j: usize| {
        let code = Format::Bf16.encode(f64::from(bias.data()[j]), Rounding::NearestEven, Overflow::Native);
        Format::F16.decode(code)
    };
    let mut w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j) + read(j));
    w.values("bias", &[48], &bias);
    is_named(&w, "bits_reinterpreted:out.bias_width", &["the bias is bf16 read as f16"]);
}

/// Zero points of five groups a row, four bits each: rows of whole bytes have room for six, where padding holds 0.
#[test]
fn zero_points_that_are_read_without_the_padding_of_their_rows_are_named() {
    const ROWS: usize = 48;
    let zero = |r: usize, g: usize| ((r * 7 + g * 5 + r * g % 3) % 13) as i32 + 1;
    let by = |read: &dyn Fn(usize, usize) -> i32| {
        let mut w = Writer::new("dequantize");
        let scale: Vec<f32> = (0..ROWS * 5).map(|at| 0.25 + (at * 29 % 31) as f32 / 64.0).collect();
        let code = |at: usize| ((at * 7 + at / 160 * 3) % 16) as u8;
        w.meta("a.format", "uint4").meta("a.granularity", "group:32").meta("a.zero", "integer").meta("a.packing", "low_first");
        w.raw("a.codes", Dtype::U8, &[ROWS, 80], (0..ROWS * 80).map(|n| code(2 * n) | code(2 * n + 1) << 4).collect());
        w.f32s("a.scale_inv", &[ROWS, 5], &scale);
        w.i32s("a.zero_point", &[ROWS, 5], &(0..ROWS * 5).map(|at| zero(at / 5, at % 5)).collect::<Vec<_>>());
        let value = |at: usize| {
            let (r, g) = (at / 160, at % 160 / 32);
            (f32::from(code(at)) - read(r, g) as f32) * scale[r * 5 + g]
        };
        w.f32s("out", &[ROWS, 160], &(0..ROWS * 160).map(value).collect::<Vec<_>>());
        w
    };
    assert_eq!(found(&by(&zero)).0, Verdict::Pass);
    let flat = |place: usize| if place % 6 < 5 { zero(place / 6, place % 6) } else { 0 };
    let words = ["zero points of a are stored at a row stride of 6 groups, read at 5", "padding is 0"];
    is_named(&by(&|r, g| flat(r * 5 + g)), "pack_permute:a.zero_padded", &words);
}
