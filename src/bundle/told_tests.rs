//! What a diagnosis says of the place and the operand of a fault: words that change with the name, the place or the operand.

use super::named_tests::{coded_product, dot, found, gemm, is_named, quantized, scaled, values};
use super::{Bundle, Writer, assay::assay};
use crate::compare::Verdict;
use crate::quant::QTensorParts;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};
use safetensors::Dtype;
use std::path::Path;

fn code(y: f64) -> u8 {
    Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

fn quantized_of(recipe: &str, x: &Tensor) -> QTensor {
    recipe.parse::<crate::recipe::Recipe>().unwrap().quantize(x).unwrap().q
}

fn amax(x: &Tensor, i: usize) -> f32 {
    x.row(i).iter().fold(0f32, |m, v| m.max(v.abs()))
}

/// A cast by rows to e4m3 without a recipe; `made` gives a code from its place and the scaled value.
fn cast(x: &Tensor, scale: &dyn Fn(usize) -> f32, made: &dyn Fn(usize, f64) -> u8) -> Writer {
    let (rows, cols) = (x.rows(), x.cols());
    let scales: Vec<f32> = (0..rows).map(scale).collect();
    let codes = (0..rows * cols).map(|at| made(at, f64::from(x.data()[at] / scales[at / cols]))).collect();
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "row").values("a", &[rows, cols], x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes);
    w.f32s("out.scale_inv", &[rows], &scales);
    w
}

#[test]
fn an_encoder_of_some_rows_or_columns_is_told_with_them_alone() {
    let x = values(Format::Bf16, 32, 64, 17);
    let by = |is: &dyn Fn(usize) -> bool| {
        let cut = |y| Format::E4m3.encode(y, Rounding::TowardZero, Overflow::Saturate) as u8;
        found(&cast(&x, &|i| amax(&x, i) / 448.0, &|at, y| if is(at) { cut(y) } else { code(y) })).2
    };
    let words = |place: &str| format!("codes are cut toward zero, in {place}");
    assert_eq!(by(&|at| (8..16).contains(&(at / 64))), words("rows 8 … 15"));
    assert_eq!(by(&|at| at % 64 >= 48), words("columns 48 … 63"));
    assert_eq!(by(&|at| at / 64 < 8 && at % 64 >= 48), words("rows 0 … 7, columns 48 … 63"));
    // Every third element of those columns is no encoder of the columns.
    assert_ne!(by(&|at| at % 64 >= 48 && at % 3 == 0), words("columns 48 … 63"));
}

#[test]
fn rows_with_the_scales_of_columns_are_named_in_a_square_alone() {
    let column = |x: &Tensor, j: usize| (0..x.rows()).fold(0f32, |m, i| m.max(x.row(i)[j].abs()));
    let turned = |rows: usize, cols: usize| {
        let x = values(Format::Bf16, rows, cols, 19);
        let mut w = cast(&x, &|i| column(&x, i % cols) / 448.0, &|_, y| code(y));
        w.meta("recipe", "float8_rowwise_gw_hp");
        found(&w)
    };
    let square = turned(32, 32);
    assert_eq!((square.1.as_str(), square.2.as_str()), ("amax_scope:out.axis", "amax of row i is that of column i"));
    let tall = turned(48, 16);
    assert!(tall.0 == Verdict::Fail && tall.1 != "amax_scope:out.axis", "{tall:?}");
}

/// A draw leaves each code at one of the two beside the value: codes further off are another fault.
#[test]
fn codes_beyond_their_neighbours_are_not_drawn() {
    let x = values(Format::Bf16, 32, 256, 29);
    let next = |v: f64| (0..126).map(|c| Format::E4m3.decode(c)).find(|x| *x > v).unwrap_or(448.0);
    let draw = |at: usize| ((at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / 2f64.powi(53);
    let by = |beyond: usize| {
        let drawn = |at: usize, y: f64| {
            let v = y.abs();
            let down = Format::E4m3.decode(Format::E4m3.encode(v, Rounding::TowardZero, Overflow::Saturate));
            let c = code(y.signum() * if draw(at) < (v - down) / (next(v) - down) { next(v) } else { down });
            if at % 100 < beyond && (8..120).contains(&(c & 0x7f)) { c - 2 } else { c }
        };
        found(&cast(&x, &|i| amax(&x, i) / 448.0, &drawn)).1
    };
    assert_eq!(by(0), "sr_broken:out.stochastic");
    assert_ne!(by(2), "sr_broken:out.stochastic");
}

/// Scales of 32 bits that are few are a table as those of 8 are.
#[test]
fn a_table_of_few_scales_in_f32_is_solved() {
    let q = quantized("te_mxfp8", 32, 256, 7);
    let q = QTensor::new(QTensorParts { scale_format: Format::F32, ..q.into_parts() }).unwrap();
    let least = q.scale_inv().iter().copied().fold(f32::INFINITY, f32::min);
    let read = scaled(&q, |g| if q.scale_inv()[g] == least { 3.0 * least } else { q.scale_inv()[g] });
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, None).unwrap();
    w.f32s("out", &[32, 256], &read.iter().map(|y| *y as f32).collect::<Vec<_>>());
    is_named(&w, "codec_edge:a.scale_table", &["1 of ", "different scales are decoded to other values"]);
}

/// Where one rounding and two give the same, the answer is that of the kernels that round twice.
#[test]
fn a_dequantization_that_is_right_either_way_is_told_as_the_usual_one() {
    let q = quantized("te_mxfp8", 8, 64, 7);
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, None).unwrap();
    w.f32s("out", &[8, 64], &q.dequantize_f32().into_iter().collect::<Vec<_>>());
    let found = assay(&Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)));
    assert_eq!(found.model, "RN of RN32(code·scale_inv), to the bit");
}

/// Weights that stand first are judged as the second operand: what is wrong with either is told of the one that was given.
#[test]
fn a_fault_of_the_second_operand_is_told_of_it_where_weights_come_first() {
    let (a, b) = (quantized("affine_sym:int4:g64", 32, 128, 15), quantized("int8_token_sym", 24, 128, 16));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let of = |w: &Writer| {
        let found = assay(&Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()).unwrap();
        let best = found.diagnosis.unwrap().findings.remove(0);
        (best.fault, best.operand)
    };
    let rolled = scaled(&b, |r| b.scale_inv()[(r + 23) % 24]);
    assert_eq!(
        of(&gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &rolled, i, j))),
        ("scale_shared:b.previous_row_wrapped".into(), "b")
    );
    let rolled = scaled(&a, |g| a.scale_inv()[(g + 62) % 64]);
    assert_eq!(of(&gemm(&a, &b, Format::Bf16, |i, j| dot(&rolled, &y, i, j))).1, "a");
}

/// The zero point is added before the code is made, in the rows that are right too.
#[test]
fn an_encoder_of_some_rows_is_told_beside_zero_points() {
    let x = values(Format::F32, 24, 128, 43);
    let ends = |i: usize| x.row(i).iter().fold((0f32, 0f32), |(low, high), v| (low.min(*v), high.max(*v)));
    let scale: Vec<f32> = (0..24).map(|i| (ends(i).1 - ends(i).0) / 255.0).collect();
    let zero: Vec<f32> = (0..24).map(|i| -128.0 - (ends(i).0 / scale[i]).round_ties_even()).collect();
    let code = |at: usize| {
        let y = x.data()[at] / scale[at / 128] + zero[at / 128];
        let whole = if (8..16).contains(&(at / 128)) { y.trunc() } else { y.round_ties_even() };
        whole.clamp(-128.0, 127.0) as i8 as u8
    };
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "row").meta("out.zero", "integer").values("a", &[24, 128], &x);
    w.raw("out.codes", Dtype::I8, &[24, 128], (0..24 * 128).map(code).collect()).f32s("out.scale_inv", &[24], &scale);
    w.raw("out.zero_point", Dtype::I8, &[24], zero.iter().map(|z| *z as i8 as u8).collect());
    is_named(&w, "rounding:out.toward_zero", &["in rows 8 … 15"]);
}

/// Scales of a rectangle that nobody wrote; every second one all over is no rectangle.
#[test]
fn scales_that_were_not_written_are_a_rectangle() {
    let x = values(Format::Bf16, 16, 64, 47);
    let by = |unwritten: &dyn Fn(usize, usize) -> bool| {
        let group = |g: usize| &x.data()[g * 16..g * 16 + 16];
        let right = |g: usize| group(g).iter().fold(0f32, |m, v| m.max(v.abs())) / 448.0;
        let codes = (0..16 * 64).map(|at| code(f64::from(x.data()[at] / right(at / 16)))).collect();
        let stored: Vec<f32> = (0..64).map(|g| if unwritten(g / 4, g % 4) { 0.37 } else { right(g) }).collect();
        let mut w = Writer::new("cast");
        w.meta("out.granularity", "group:16").values("a", &[16, 64], &x).raw("out.codes", Dtype::F8_E4M3, &[16, 64], codes);
        w.f32s("out.scale_inv", &[16, 4], &stored);
        found(&w)
    };
    let part = by(&|i, j| i < 8 && j >= 2);
    assert!(part.1.ends_with(":out.scales_unwritten") && part.2.contains("rows 0 … 7, groups 2 … 3"), "{part:?}");
    let board = by(&|i, j| (i + j) % 2 == 0);
    assert!(board.0 == Verdict::Fail && !board.1.ends_with(":out.scales_unwritten"), "{board:?}");
}

/// 168 columns in groups of 128: the last group of a row is 40 wide, and a kernel that reads 128 reads the next row's first 88.
#[test]
fn an_amax_of_a_short_group_that_reads_on_behind_its_row_is_named() {
    let x = values(Format::Bf16, 24, 168, 53);
    let q = quantized_of("te_block_1x128_fp32", &x);
    let over = |from: usize, n: usize| x.data()[from..(from + n).min(24 * 168)].iter().fold(0f32, |m, v| m.max(v.abs()));
    let mut parts = q.into_parts();
    for i in 0..24 {
        parts.scale_inv[i * 2 + 1] = over(i * 168 + 128, 128) / 448.0;
    }
    for at in 0..24 * 168 {
        parts.codes[at] = code(f64::from(x.data()[at] / parts.scale_inv[at / 168 * 2 + at % 168 / 128]));
    }
    let mut w = Writer::new("cast");
    w.meta("recipe", "te_block_1x128_fp32").values("a", &[24, 168], &x);
    w.codes("out", &QTensor::new(parts).unwrap(), None, None).unwrap();
    is_named(&w, "amax_scope:out.amax_behind", &["the 88 elements past the row's end"]);
}

/// What the second level's number was left out of, or taken into twice.
#[test]
fn codes_made_with_another_power_of_the_global_scale_are_named() {
    let x = values(Format::F32, 16, 128, 59);
    // A global scale of 0.4: no power of two.
    let by = 0.4 * 448.0 * 6.0 / x.data().iter().fold(0f32, |m, v| m.max(v.abs()));
    let x = Tensor::new(Format::F32, 16, 128, x.data().iter().map(|v| v * by).collect()).unwrap();
    let q = quantized_of("te_nvfp4", &x);
    let global = f64::from(q.global_scale_inv().unwrap());
    for (power, words) in [(-1, "without the global scale"), (-2, "with the inverse of"), (1, "with the global scale twice")] {
        let mut parts = q.clone().into_parts();
        for at in 0..16 * 128 {
            let y = f64::from(x.data()[at]) / (q.affine(q.scale_index(at / 128, at % 128)).unit * global.powi(power));
            parts.codes[at] = Format::E2m1.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
        }
        let mut w = Writer::new("cast");
        w.meta("recipe", "te_nvfp4").values("a", &[16, 128], &x);
        w.codes("out", &QTensor::new(parts).unwrap(), None, None).unwrap();
        let (_, name, detail) = found(&w);
        assert!(name.ends_with(":out.global") && detail.contains(words), "{power}: {name}: {detail}");
    }
}

/// The reported amax of a part of the rows or columns, beside codes and scales that are right.
#[test]
fn an_amax_of_some_lines_is_told_with_their_number() {
    let by = |x: &dyn Fn(usize, usize) -> f32, amax: f32| {
        let data: Vec<f32> = (0..24 * 64).map(|at| x(at / 64, at % 64)).collect();
        let largest = data.iter().fold(0f32, |m, v| m.max(v.abs()));
        let codes = data.iter().map(|v| code(f64::from(v * (448.0 / largest)))).collect();
        let mut w = Writer::new("cast");
        w.f32s("a", &[24, 64], &data).raw("out.codes", Dtype::F8_E4M3, &[24, 64], codes);
        w.f32s("out.scale", &[1], &[448.0 / largest]).f32s("out.amax", &[1], &[amax]);
        found(&w).2
    };
    let of_rows = |i: usize, j: usize| if j == 5 { i as f32 + 1.0 } else { 0.1 };
    assert!(by(&of_rows, 8.0).contains("that of the first 8 rows"), "{}", by(&of_rows, 8.0));
    let back = |i: usize, j: usize| of_rows(23 - i, j);
    assert!(by(&back, 8.0).contains("that of rows 16 … 23"), "{}", by(&back, 8.0));
    let of_cols = |i: usize, j: usize| if i == 3 { j as f32 + 1.0 } else { 0.1 };
    assert!(by(&of_cols, 5.0).contains("that of the first 5 columns"), "{}", by(&of_cols, 5.0));
}

/// All values are positive: a range from the smallest to the largest has its zero point outside the codes.
#[test]
fn a_range_that_is_taken_without_zero_is_named() {
    let data: Vec<f32> = values(Format::F32, 16, 64, 67).data().iter().map(|v| v.abs() + 2.0).collect();
    let x = Tensor::new(Format::F32, 16, 64, data).unwrap();
    let mut parts = quantized_of("affine_asym:uint4:g16", &x).into_parts();
    let mut zero = vec![0; 64];
    for (g, group) in x.data().chunks(16).enumerate() {
        let (low, high) = group.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        parts.scale_inv[g] = (high - low) / 15.0;
        zero[g] = (-low / parts.scale_inv[g]).round_ties_even().clamp(0.0, 15.0) as i32;
        for (c, v) in parts.codes[g * 16..].iter_mut().zip(group) {
            *c = ((v / parts.scale_inv[g]).round_ties_even() + zero[g] as f32).clamp(0.0, 15.0) as u8;
        }
    }
    parts.zero = crate::Zero::Integer(zero);
    let mut w = Writer::new("cast");
    w.meta("recipe", "affine_asym:uint4:g16").values("a", &[16, 64], &x);
    w.codes("out", &QTensor::new(parts).unwrap(), None, None).unwrap();
    is_named(&w, "range_rule:out.without_zero", &["zero points of 64 groups"]);
}

/// A cast to e4m3 by blocks of 128×128 with powers of two, `seen` of a row and a column of a block.
fn blocks(x: &Tensor, seen: &dyn Fn(usize, usize) -> bool) -> Writer {
    let (rows, cols) = (x.rows(), x.cols());
    let data = (0..rows * cols).map(|at| if seen(at / cols % 128, at % cols % 128) { x.data()[at] } else { 0.0 }).collect();
    let scales = quantized_of("te_block_128x128", &Tensor::new(Format::F32, rows, cols, data).unwrap());
    let by = |at: usize| f64::from(scales.scale_inv()[scales.scale_index(at / cols, at % cols)]);
    let codes = (0..rows * cols).map(|at| code(f64::from(x.data()[at]) / by(at))).collect();
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "block:128x128").meta("recipe", "te_block_128x128").values("a", &[rows, cols], x);
    w.raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes);
    w.f32s("out.scale_inv", &[rows.div_ceil(128), cols.div_ceil(128)], scales.scale_inv());
    w
}

#[test]
fn an_amax_of_some_rows_of_a_block_is_told_where_it_tells() {
    // The largest of the first block stand in the rows that are not seen.
    let mut v = values(Format::Bf16, 256, 128, 21).data().to_vec();
    (0..24).for_each(|n| v[(70 + n) * 128 + 5 * n] = (40.0 + n as f32) * [1.0, -1.0][n % 2]);
    let x = Tensor::rounded(Format::Bf16, 256, 128, v).unwrap();
    let half = found(&blocks(&x, &|r, _| r < 64));
    assert_eq!(half.1, "amax_scope:out.amax_over");
    assert!(half.2.contains("the first 64 of the 128 rows of a block"), "{}", half.2);
    assert_eq!(found(&blocks(&x, &|_, _| true)).0, Verdict::Pass);
    // One scale that is half of what it should be is that of many parts.
    let mut v = values(Format::Bf16, 256, 128, 21).data().to_vec();
    v[70 * 128] = 2.0 * v.iter().fold(0f32, |m, x| m.max(x.abs()));
    let x = Tensor::rounded(Format::Bf16, 256, 128, v).unwrap();
    assert_ne!(found(&blocks(&x, &|r, _| r < 64)).1, "amax_scope:out.amax_over");
}

#[test]
fn codes_that_are_cut_beside_scales_of_another_amax_have_both_names() {
    let x = values(Format::Bf16, 32, 160, 22);
    let q = |seen: usize| {
        let data = (0..32 * 160).map(|at| if at % 32 < seen { x.data()[at] } else { 0.0 }).collect();
        quantized_of("te_mxfp8", &Tensor::new(Format::F32, 32, 160, data).unwrap())
    };
    let made = |seen: usize| {
        let q = q(seen);
        let cut = |y| Format::E4m3.encode(y, Rounding::TowardZero, Overflow::Saturate) as u8;
        let by = |at: usize| f64::from(q.scale_inv()[q.scale_index(at / 160, at % 160)]);
        let codes = (0..32 * 160).map(|at| cut(f64::from(x.data()[at]) / by(at))).collect();
        let bytes = q.scale_inv().iter().map(|s| (s.log2() + 127.0) as u8).collect();
        let mut w = Writer::new("cast");
        w.meta("out.granularity", "group:32").meta("recipe", "te_mxfp8").values("a", &[32, 160], &x);
        w.raw("out.codes", Dtype::F8_E4M3, &[32, 160], codes).raw("out.scale_inv", Dtype::F8_E8M0, &[32, 5], bytes);
        found(&w)
    };
    let both = made(24);
    assert_eq!(both.1, "rounding:out.toward_zero");
    assert!(both.2.ends_with("; and amax is over the first 24 of the 32 elements of a block alone"), "{}", both.2);
    assert!(!made(32).2.contains("; and"), "{}", made(32).2);
}

/// What a test computes in f64 and stores: the exact sum of the values, to the nearest. No order of f32 gives its bits.
#[test]
fn the_exact_product_to_the_nearest_is_right_to_the_bit() {
    let (a, b) = (quantized("te_current", 24, 160, 71), quantized("te_current", 40, 160, 72));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    for out in [Format::F32, Format::F16, Format::Bf16] {
        let told = |w: &Writer| {
            let found = assay(&Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap();
            (found.verdict, found.model)
        };
        let (verdict, model) = told(&gemm(&a, &b, out, |i, j| dot(&x, &y, i, j)));
        // Of 16 bits an order of f32 may have the same.
        assert!(verdict == Verdict::Pass && model.ends_with("to the bit"), "{model}");
        assert!(model.starts_with("exact") || out != Format::F32, "{model}");
        // One element to the next number is no exact product.
        let (_, model) =
            told(&gemm(&a, &b, out, |i, j| dot(&x, &y, i, j) * if (i, j) == (3, 5) { 1.0 + 2f64.powi(-7) } else { 1.0 }));
        assert!(!model.starts_with("exact"), "{model}");
    }
}

/// x·e^x/(1 + e^x) is no number where e^x overflows: of silu that is silu done in another way, though a gelu by exponentials has it at the same places.
#[test]
fn the_right_function_done_in_another_way_comes_before_another_function() {
    let x = Tensor::rounded(Format::F32, 8, 32, (0..256).map(|at| (at * 37 % 256) as f32 - 150.0).collect()).unwrap();
    let silu = |x: f32| if x > 88.8 { f32::NAN } else { x / (1.0 + (-x).exp()) };
    let mut w = Writer::new("activation");
    w.meta("fn", "silu").values("a", &[8, 32], &x);
    w.f32s("out", &[8, 32], &x.data().iter().map(|x| silu(*x)).collect::<Vec<f32>>());
    let got = found(&w);
    assert!(got.0 == Verdict::Fail && got.2.contains("the activation is silu whose σ"), "{got:?}");
}

/// Codes that are not clamped beside an amax that is right: nothing is said of the amax.
#[test]
fn a_right_amax_beside_wrong_codes_is_not_objected_to() {
    let unclamped = |_, y: f64| if y.abs() > 464.0 { 0x7f } else { code(y) };
    let (mut w, scale, most) = coded_product((24, 33, 128), 61, 600.0, &unclamped);
    w.f32s("out.scale", &[1], &[scale]).f32s("out.amax", &[1], &[most]);
    let found = assay(&Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    assert!(found.verdict == Verdict::Fail && !found.reason.contains("amax["), "{}", found.reason);
}

/// Codes that are cut do not explain an amax of nothing: it is told beside them, but where it is near what they stand for.
#[test]
fn an_amax_of_nothing_is_told_beside_another_name() {
    let x = values(Format::Bf16, 24, 64, 63);
    let largest = x.data().iter().fold(0f32, |m, v| m.max(v.abs()));
    let said = |amax: f32| {
        let cut =
            |v: &f32| Format::E4m3.encode(f64::from(v * (448.0 / largest)), Rounding::TowardZero, Overflow::Saturate) as u8;
        let mut w = Writer::new("cast");
        w.values("a", &[24, 64], &x).raw("out.codes", Dtype::F8_E4M3, &[24, 64], x.data().iter().map(cut).collect());
        found(w.f32s("out.scale", &[1], &[448.0 / largest]).f32s("out.amax", &[1], &[amax]))
    };
    for amax in [0.6123 * largest, 1.7 * largest] {
        let (_, fault, detail) = said(amax);
        let words = format!(
            "; this is not all: out.amax is {amax:.5}, which is the largest magnitude neither of the right result nor of this one"
        );
        assert!(fault == "rounding:out.toward_zero" && detail.ends_with(&words), "{fault}: {detail}");
    }
    for amax in [largest, 1.05 * largest] {
        assert!(!said(amax).2.contains("this is not all"), "{}", said(amax).2);
    }
}

/// The variance is the mean square, and one column of 128 has no beta: both are said.
#[test]
fn a_column_without_beta_is_told_beside_the_formula_of_its_row() {
    let a = values(Format::Bf16, 16, 128, 31);
    let a = Tensor::rounded(Format::Bf16, 16, 128, a.data().iter().map(|x| x + 0.75).collect()).unwrap();
    let gamma: Vec<f32> = (0..128).map(|j| 0.5 + 0.01 * j as f32).collect();
    let beta: Vec<f32> = (0..128).map(|j| 0.25 + 0.125 * (j % 7) as f32).collect();
    let mean = |i: usize, of: &dyn Fn(f64) -> f64| a.row(i).iter().map(|x| of(f64::from(*x))).sum::<f64>() / 128.0;
    let y = |i: usize, j: usize| {
        let normal = (f64::from(a.row(i)[j]) - mean(i, &|x| x)) / (mean(i, &|x| x * x) + 1e-5).sqrt();
        (normal * f64::from(gamma[j])) as f32 + if j == 3 { 0.0 } else { beta[j] }
    };
    let mut w = Writer::new("layernorm");
    w.values("a", &[16, 128], &a).f32s("gamma", &[128], &gamma).f32s("beta", &[128], &beta);
    w.f32s("out", &[16, 128], &(0..2048).map(|at| y(at / 128, at % 128)).collect::<Vec<_>>());
    let (verdict, _, detail) = found(&w);
    assert_eq!(verdict, Verdict::Fail);
    assert!(detail.contains("the mean is not subtracted") && detail.contains("; and column 3 has no beta"), "{detail}");
}

/// Elements of pieces of a row that are each off by a factor of their own have none in common.
#[test]
fn noise_in_pieces_of_rows_is_no_factor_of_the_pieces() {
    let a = values(Format::Bf16, 16, 128, 37);
    let mean = |i: usize, of: &dyn Fn(f64) -> f64| a.row(i).iter().map(|x| of(f64::from(*x))).sum::<f64>() / 128.0;
    let y = |i: usize, j: usize| {
        let m = mean(i, &|x| x);
        let normal = (f64::from(a.row(i)[j]) - m) / (mean(i, &|x| (x - m).powi(2)) + 1e-5).sqrt();
        let by =
            if i.is_multiple_of(2) && (32..64).contains(&j) { 0.7 + ((i * 32 + j) * 7919 % 101) as f64 / 200.0 } else { 1.0 };
        (normal * by * (0.5 + 0.01 * j as f64)) as f32
    };
    let (gamma, beta) = ((0..128).map(|j| 0.5 + 0.01 * j as f32).collect::<Vec<_>>(), [0.0; 128]);
    let mut w = Writer::new("layernorm");
    w.values("a", &[16, 128], &a).f32s("gamma", &[128], &gamma).f32s("beta", &[128], &beta);
    w.f32s("out", &[16, 128], &(0..2048).map(|at| y(at / 128, at % 128)).collect::<Vec<_>>());
    let (verdict, _, detail) = found(&w);
    assert!(verdict == Verdict::Fail && !detail.contains("pieces of 32 columns"), "{detail}");
}
