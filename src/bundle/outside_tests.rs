//! Bugs that outside exams asked and that had no name: an amax or scales of other blocks, codes of another format in some columns, another index of
//! groups, an input by an older scale.

use super::Writer;
use super::named_tests::{coded_product, dot, is_named, quantized, round, values};
use crate::compare::Verdict;
use crate::recipe::Recipe;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};
use safetensors::Dtype;

const ROWS: usize = 24;
const COLS: usize = 96;

fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0f32, |m, v| m.max(v.abs()))
}

fn code(f: Format, y: f64) -> u8 {
    f.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

fn by_recipe(recipe: &str, x: &Tensor) -> QTensor {
    recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q
}

/// A cast by a recipe with other scales beside its codes.
fn with_scales(recipe: &str, x: &Tensor, scale: impl Fn(&QTensor, usize) -> f32) -> Writer {
    let q = by_recipe(recipe, x);
    let scale_inv = (0..q.scale_inv().len()).map(|g| scale(&q, g)).collect();
    let other = QTensor::new(crate::quant::QTensorParts { scale_inv, ..q.into_parts() }).unwrap();
    let mut w = Writer::new("cast");
    w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x).codes("out", &other, None, None).unwrap();
    w
}

/// A cast by rows whose scales are of what `of` gives for a row, with codes that follow them.
fn by_rows(recipe: &str, x: &Tensor, of: &dyn Fn(usize) -> f32) -> Writer {
    let scales: Vec<f32> = (0..x.rows()).map(|i| of(i) / 448.0).collect();
    let codes = x.data().iter().enumerate().map(|(at, v)| code(Format::E4m3, f64::from(*v / scales[at / x.cols()]))).collect();
    let mut w = Writer::new("cast");
    w.meta("recipe", recipe).meta("out.granularity", "row").values("a", &[x.rows(), x.cols()], x);
    w.f32s("out.scale_inv", &[x.rows()], &scales).raw("out.codes", Dtype::F8_E4M3, &[x.rows(), x.cols()], codes);
    w
}

#[test]
fn rows_scaled_for_another_rows_amax_are_named() {
    let x = values(Format::Bf16, ROWS, COLS, 101);
    let own = |i: usize| largest(x.row(i));
    let by = |of: &dyn Fn(usize) -> f32| by_rows("float8_rowwise_gw_hp", &x, of);
    let above = by(&|i| own(if (9..14).contains(&i) { i - 1 } else { i }));
    is_named(&above, "amax_scope:out.amax_of", &["that of row r − 1", "in rows 9 … 13"]);
    let both = by(&|i| if i < 12 { own(i).max(own(i + 2)) } else { own(i) });
    is_named(&both, "amax_scope:out.amax_of", &["also covers that of row r + 2"]);
}

#[test]
fn scales_of_groups_of_rows_that_overlap_are_named() {
    let size = |at: usize| f32::from(1u16 << ((at / 128 * 5 + at % 128 / 32 * 3) % 7));
    let data = values(Format::Bf16, 72, 128, 102).data().iter().enumerate().map(|(at, v)| v * size(at)).collect();
    let x = Tensor::rounded(Format::Bf16, 72, 128, data).unwrap();
    // Groups of 8 rows, 6 apart: the last that is stored at a row stays.
    let from = |row: usize| (0..72).rev().find(|r| r / 8 * 6 + r % 8 == row);
    let w = with_scales("mx_floor:e4m3", &x, |q, g| from(g / 4).map_or(1.0, |r| q.scale_inv()[r * 4 + g % 4]));
    is_named(&w, "scale_layout:out.place", &["groups of 8 rows are 6 rows apart", "16 rows are lost"]);
}

#[test]
fn scales_that_are_zero_or_transposed_in_a_tile_are_named_beside_a_recipe() {
    let x = values(Format::F32, ROWS, 768, 103);
    let recipe = "deepseek_1x128";
    let zero = with_scales(recipe, &x, |q, g| if (9..15).contains(&(g / 6)) { 0.0 } else { q.scale_inv()[g] });
    is_named(&zero, "silent_skip:out.scales_unwritten", &["rows 9 … 14", "is 0: it is not written"]);
    let turned = with_scales(recipe, &x, |q, g| {
        let (r, c) = (g / 6, g % 6);
        let inside = (5..9).contains(&r) && (1..5).contains(&c);
        q.scale_inv()[if inside { (5 + c - 1) * 6 + 1 + r - 5 } else { g }]
    });
    is_named(&turned, "scale_layout:out.place", &["(c, r) in the 4×4 tile at (5, 1)"]);
}

#[test]
fn codes_of_another_format_in_some_columns_are_named() {
    let x = values(Format::Bf16, ROWS, COLS, 104);
    let scales: Vec<f32> = (0..ROWS).map(|i| largest(x.row(i)) / 240.0).collect();
    let made = |at: usize| {
        let f = if at % COLS >= 91 { Format::E4m3 } else { Format::E4m3Fnuz };
        code(f, f64::from(x.data()[at] / scales[at / COLS]))
    };
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "row").values("a", &[ROWS, COLS], &x).f32s("out.scale_inv", &[ROWS], &scales);
    w.raw("out.codes", Dtype::F8_E4M3FNUZ, &[ROWS, COLS], (0..ROWS * COLS).map(made).collect());
    is_named(&w, "bits_reinterpreted:out.written_as", &["those of e4m3, and are read as e4m3fnuz", "in columns 91 … 95"]);
}

#[test]
fn integers_that_are_rounded_by_half_and_a_cut_are_named() {
    let x = values(Format::F32, ROWS, COLS, 105);
    let scales: Vec<f32> = (0..ROWS).map(|i| largest(x.row(i)) / 127.0).collect();
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "row").values("a", &[ROWS, COLS], &x).f32s("out.scale_inv", &[ROWS], &scales);
    let codes = x.data().iter().enumerate().map(|(at, v)| (v / scales[at / COLS] + 0.5).trunc() as i8 as u8).collect();
    w.raw("out.codes", Dtype::I8, &[ROWS, COLS], codes);
    is_named(&w, "rounding:out.half_then_cut", &["cut toward zero after ½ is added"]);
}

#[test]
fn a_global_scale_of_some_rows_is_named() {
    let mut data = values(Format::F32, 48, COLS, 106).data().to_vec();
    data[40 * COLS + 7] = 61.0;
    let x = Tensor::new(Format::F32, 48, COLS, data).unwrap();
    let mut seen = x.data()[..32 * COLS].to_vec();
    seen.extend(vec![0.0; 16 * COLS]);
    let global = by_recipe("te_nvfp4", &Tensor::new(Format::F32, 48, COLS, seen).unwrap()).global_scale_inv().unwrap();
    let (mut scales, mut codes) = (Vec::new(), vec![0u8; 48 * COLS]);
    for (g, block) in x.data().chunks(16).enumerate() {
        let unit = round(Format::E4m3, f64::from(largest(block) / 6.0 / global).min(448.0));
        scales.push(unit as f32);
        let y = |v: f32| if unit > 0.0 { f64::from(v) / (unit * f64::from(global)) } else { 0.0 };
        block.iter().enumerate().for_each(|(n, v)| codes[g * 16 + n] = code(Format::E2m1, y(*v)));
    }
    let q = by_recipe("te_nvfp4", &x);
    let level = q.level().cloned().map(|l| crate::quant::Level { scale_inv: vec![global], ..l });
    let q = QTensor::new(crate::quant::QTensorParts { codes, scale_inv: scales, level, ..q.into_parts() }).unwrap();
    let mut w = Writer::new("cast");
    let packing = Some(crate::format::pack::NibbleOrder::LowFirst);
    w.meta("recipe", "te_nvfp4").values("a", &[48, COLS], &x).codes("out", &q, None, packing).unwrap();
    is_named(&w, "amax_scope:out.amax_global", &["the global scale is of another amax", "rows"]);
}

#[test]
fn an_amax_of_a_product_that_leaves_out_the_last_row_is_named() {
    // Row 36 has the largest.
    let data = values(Format::Bf16, 37, 128, 107);
    let data = data.data().iter().enumerate().map(|(at, v)| if at / 128 == 36 { 64.0 * v } else { *v });
    let a = by_recipe("te_current", &Tensor::rounded(Format::Bf16, 37, 128, data.collect()).unwrap());
    let b = quantized("te_current", 24, 128, 108);
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let right: Vec<f64> = (0..37 * 24).map(|n| dot(&x, &y, n / 24, n % 24)).collect();
    let most = |rows: usize| right[..rows * 24].iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert!(most(32) < most(37), "the largest is in the last row");
    let scale = (400.0 / most(37)) as f32;
    let mut w = Writer::new("gemm");
    w.codes("a", &a, None, None).unwrap().codes("b", &b, None, None).unwrap();
    let codes = right.iter().map(|s| code(Format::E4m3, s * f64::from(scale))).collect();
    w.raw("out.codes", Dtype::F8_E4M3, &[37, 24], codes).f32s("out.scale", &[1], &[scale]);
    w.f32s("out.amax", &[1], &[most(32) as f32]);
    let got = super::named_tests::found(&w);
    assert!(
        got.0 == Verdict::Fail && got.1.starts_with("amax_scope:") && got.2.contains("all rows but the last alone"),
        "{got:?}"
    );
}

/// Sums of column 3 are near to 64, which its bias takes back: where there is no row, the bias stands alone.
#[test]
fn an_amax_that_covers_rows_behind_the_last_is_named() {
    let (m, n, k) = (44, 40, 64);
    let near_one = values(Format::Bf16, m, k, 111).data().iter().map(|v| 1.0 + 0.1 * v.signum()).collect();
    let a = by_recipe("te_current", &Tensor::rounded(Format::Bf16, m, k, near_one).unwrap());
    let signs = values(Format::Bf16, n, k, 112);
    let signs = signs.data().iter().enumerate().map(|(at, v)| if at / k == 3 { 1.0 } else { v.signum() }).collect();
    let b = by_recipe("te_current", &Tensor::rounded(Format::Bf16, n, k, signs).unwrap());
    let bias: Vec<f32> = (0..n).map(|j| if j == 3 { -64.25 } else { 0.25 * (j % 5) as f32 }).collect();
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let right: Vec<f64> = (0..m * n).map(|at| dot(&x, &y, at / n, at % n) + f64::from(bias[at % n])).collect();
    let most = right.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert!(most < 60.0, "{most}");
    let scale = (400.0 / most) as f32;
    let with = |amax: f32| {
        let mut w = Writer::new("gemm");
        w.codes("a", &a, None, None).unwrap().codes("b", &b, None, None).unwrap();
        let codes = right.iter().map(|s| code(Format::E4m3, s * f64::from(scale))).collect();
        w.raw("out.codes", Dtype::F8_E4M3, &[m, n], codes).f32s("out.scale", &[1], &[scale]).f32s("bias", &[n], &bias);
        w.f32s("out.amax", &[1], &[amax]);
        w
    };
    is_named(&with(64.25), "amax_scope:rows_behind", &["max |bias|, that of column 3", "rows behind the last"]);
    assert_ne!(super::named_tests::found(&with(63.5)).1, "amax_scope:rows_behind", "of no column");
}

#[test]
fn an_input_by_an_older_scale_is_named() {
    let x = values(Format::Bf16, ROWS, COLS, 109);
    let (now, before) = (largest(x.data()) / 448.0, largest(x.data()) / 500.0);
    let codes: Vec<u8> = x.data().iter().map(|v| code(Format::E4m3, f64::from(v / now))).collect();
    let value = |c: u8, s: f32| f64::from((Format::E4m3.decode(u32::from(c)) * f64::from(s)) as f32);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let by = |history: Option<[f32; 3]>| {
        let mut w = Writer::new("activation");
        w.meta("fn", "silu").raw("a.codes", Dtype::F8_E4M3, &[ROWS, COLS], codes.clone()).f32s("a.scale_inv", &[1], &[now]);
        let out = codes.iter().map(|c| silu(value(*c, before)) as f32).collect();
        w.values("out", &[ROWS, COLS], &Tensor::rounded(Format::Bf16, ROWS, COLS, out).unwrap());
        history.into_iter().for_each(|h| _ = w.f32s("a.scale_history", &[3], &h));
        w
    };
    is_named(&by(Some([now, before, 2.0 * now])), "stale_state:solved", &["the scale of a is scale_history[1]"]);
    is_named(&by(None), "stale_state:solved", &["times what it is: the scale of a is another"]);
}

#[test]
fn an_index_of_groups_that_serves_many_columns_is_named() {
    let (m, n, k) = (24, 32, 96);
    let x = values(Format::Bf16, m, k, 110);
    let q = quantized("affine_sym:int4:g32", n, k, 111);
    let index: Vec<usize> = (0..k).map(|j| j * 5 % k / 32).collect();
    let code = |i: usize, j: usize| q.format().decode(u32::from(q.codes()[i * k + j]));
    let written = |read: &dyn Fn(usize) -> usize| {
        let y = |i: usize, j: usize| -> f64 {
            (0..k).map(|k| f64::from(x.row(i)[k]) * code(j, k) * f64::from(q.scale_inv()[j * 3 + read(k)])).sum()
        };
        let mut w = Writer::new("gemm");
        w.values("a", &[m, k], &x).codes("b", &q, None, None).unwrap();
        w.i32s("b.g_idx", &[k], &index.iter().map(|g| *g as i32).collect::<Vec<_>>());
        let out = (0..m * n).map(|at| round(Format::Bf16, y(at / n, at % n)) as f32).collect();
        w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, out).unwrap());
        w
    };
    is_named(&written(&|k| index[k / 16 * 16]), "scale_index:b.g_idx", &["once for 16 columns"]);
    is_named(&written(&|j| index[(j + 1).min(k - 1)]), "scale_index:b.g_idx", &["the group of column k + 1"]);
    let halves = written(&|j| index[if j % 8 >= 4 { j - 4 } else { j }]);
    is_named(&halves, "scale_index:b.g_idx", &["for the first 4 of 8 columns alone", "column k − 4 where k mod 8 ≥ 4"]);
    assert_eq!(super::named_tests::found(&written(&|k| index[k])).0, Verdict::Pass);
}

/// Act-order by its inverse: of the values, or of the codes alone.
#[test]
fn columns_that_are_gathered_by_the_inverse_order_are_named() {
    let (m, n, k) = (24, 32, 96);
    let x = values(Format::Bf16, m, k, 114);
    let q = quantized("affine_sym:int4:g32", n, k, 115);
    let index: Vec<usize> = (0..k).map(|j| j * 5 % k / 32).collect();
    let mut order: Vec<usize> = (0..k).collect();
    order.sort_by_key(|j| (index[*j], *j));
    let mut inverse = vec![0; k];
    order.iter().enumerate().for_each(|(at, j)| inverse[*j] = at);
    for of_a in [true, false] {
        let (a, b) = if of_a { (&inverse, &order) } else { (&order, &inverse) };
        let y = |i: usize, j: usize| -> f64 {
            let code = |p: usize| q.format().decode(u32::from(q.codes()[j * k + b[p]]));
            (0..k)
                .map(|p| f64::from(x.row(i)[a[p]]) * round(Format::Bf16, code(p) * f64::from(q.scale_inv()[j * 3 + p / 32])))
                .sum()
        };
        let mut w = Writer::new("gemm");
        w.values("a", &[m, k], &x).codes("b", &q, None, None).unwrap();
        w.i32s("b.g_idx", &[k], &index.iter().map(|g| *g as i32).collect::<Vec<_>>());
        let out = (0..m * n).map(|at| round(Format::Bf16, y(at / n, at % n)) as f32).collect();
        w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, out).unwrap());
        let words =
            format!("columns of {} are gathered by the inverse of the order of their groups", if of_a { "a" } else { "b" });
        is_named(&w, "addressing:b.g_idx", &[&words]);
    }
}

/// Act-order that is not read, or read for one column in 16, and zero points that are one more.
#[test]
fn an_index_of_groups_beside_shifted_zero_points_is_named() {
    let (m, n, k) = (24, 32, 96);
    let x = values(Format::Bf16, m, k, 112);
    let q = quantized("affine_asym:int4:g32", n, k, 113);
    let crate::quant::Zero::Integer(zeros) = q.zero() else { panic!("whole zero points") };
    let index: Vec<usize> = (0..k).map(|j| j * 5 % k / 32).collect();
    for (group, by, words) in [
        (&(|k: usize| k / 32) as &dyn Fn(usize) -> usize, 1, "the index of groups is not read"),
        (&|k| index[k / 16 * 16], -1, "once for 16 columns"),
    ] {
        let y = |j: usize, k: usize| {
            let g = j * 3 + group(k);
            let code = q.format().decode(u32::from(q.codes()[j * 96 + k]));
            (code - f64::from(zeros[g] + by)) * f64::from(q.scale_inv()[g])
        };
        let mut w = Writer::new("gemm");
        w.values("a", &[m, k], &x).codes("b", &q, None, None).unwrap();
        w.i32s("b.g_idx", &[k], &index.iter().map(|g| *g as i32).collect::<Vec<_>>());
        let sum = |at: usize| (0..k).map(|k| f64::from(x.row(at / n)[k]) * y(at % n, k)).sum::<f64>();
        let out = (0..m * n).map(|at| round(Format::Bf16, sum(at)) as f32).collect();
        w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, out).unwrap());
        let size = if by > 0 { "read one too large" } else { "read one too small" };
        is_named(&w, "scale_index:b.g_idx + zp_offset:b.offset", &[words, size]);
    }
}

/// Inside what a unit that nobody names may err by, and another code than there is.
#[test]
fn an_amax_that_is_not_that_of_the_largest_code_fails() {
    let by = |factor: f32, scaled: bool| {
        let (mut w, scale, most) = coded_product((24, 24, 1024), 112, 300.0, &|_, y| code(Format::E4m3, y));
        w.f32s("out.amax", &[1], &[most * factor]);
        if scaled {
            w.f32s("out.scale", &[1], &[scale])
        } else {
            w.f32s("out.scale_inv", &[1], &[1.0 / scale])
        };
        let bundle = super::Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        let found = super::assay::assay_by(&bundle, std::time::Duration::ZERO, None).unwrap();
        (found.verdict, found.reason)
    };
    for scaled in [true, false] {
        assert_eq!(by(1.0, scaled).0, Verdict::Pass);
        for factor in [0.87, 1.2] {
            let (verdict, reason) = by(factor, scaled);
            assert!(verdict == Verdict::Fail && reason.contains("amax"), "{factor}: {reason}");
        }
    }
}

/// What is beyond all codes has no largest one.
#[test]
fn an_amax_that_is_no_number_is_not_held_against_codes() {
    let said = |amax: &dyn Fn(f32) -> f32| {
        let (mut w, scale, most) = coded_product((24, 24, 64), 112, 300.0, &|_, y| code(Format::E4m3, y));
        w.f32s("out.amax", &[1], &[amax(most)]).f32s("out.scale", &[1], &[scale]);
        let bundle = super::Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        super::cast::beside_codes(&bundle, &super::assay::output(&bundle).unwrap())
    };
    assert_eq!([said(&|m| m), said(&|_| f32::INFINITY), said(&|_| f32::NAN)], [const { None }; 3]);
    assert!(said(&|m| 1.2 * m).is_some_and(|words| words.contains("is not that of the codes")));
}
