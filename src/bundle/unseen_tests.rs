//! Names of mechanisms that no formula says: solved by residue, by what an amax covers, by where a result is right.

use super::Writer;
use super::named_tests::{ROW, dot, found, gemm, is_named, quantized, round, scaled, values};
use crate::compare::Verdict;
use crate::recipe::Recipe;
use crate::{Format, Tensor};

/// A cast of values whose scales are those of changed ones.
fn cast(recipe: &str, x: &Tensor, seen: impl Fn(usize, f32) -> f32) -> Writer {
    let data = x.data().iter().enumerate().map(|(at, v)| seen(at % x.cols(), *v)).collect();
    let seen = Tensor::rounded(Format::F32, x.rows(), x.cols(), data).unwrap();
    let of = |x: &Tensor| recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q;
    let (right, other) = (of(x), of(&seen));
    let mut parts = right.into_parts();
    parts.scale_inv = other.scale_inv().to_vec();
    for (at, code) in parts.codes.iter_mut().enumerate() {
        let y = f64::from(x.data()[at]) / f64::from(parts.scale_inv[other.scale_index(at / x.cols(), at % x.cols())]);
        *code = parts.format.encode(y, crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8;
    }
    let q = crate::QTensor::new(parts).unwrap();
    let mut w = Writer::new("cast");
    w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x).codes("out", &q, None, None).unwrap();
    w
}

#[test]
fn an_amax_over_half_a_block_is_told_from_an_exponent_that_is_rounded() {
    let x = values(Format::Bf16, 24, 256, 31);
    is_named(
        &cast("mx_rceil", &x, |c, v| if c % 32 < 16 { v } else { 0.0 }),
        "amax_scope:out.amax_over",
        &["the first 16 of the 32"],
    );
    is_named(
        &cast("mx_rceil", &x, |c, v| if c % 2 == 1 { v } else { 0.0 }),
        "amax_scope:out.amax_over",
        &["every second", "from element 1"],
    );
    // Exponents of no rule have no name.
    let q = quantized("mx_rceil", 24, 256, 31);
    let other = |g: usize| {
        if g % 5 == 1 {
            0.25
        } else if g % 7 == 2 {
            0.5
        } else {
            1.0
        }
    };
    let mut parts = q.into_parts();
    (0..parts.scale_inv.len()).for_each(|g| parts.scale_inv[g] *= other(g));
    for (at, code) in parts.codes.iter_mut().enumerate() {
        let y = f64::from(x.data()[at]) / f64::from(parts.scale_inv[at / 256 * 8 + at % 256 / 32]);
        *code = Format::E4m3.encode(y, crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8;
    }
    let mut w = Writer::new("cast");
    w.meta("recipe", "mx_rceil").values("a", &[24, 256], &x);
    w.codes("out", &crate::QTensor::new(parts).unwrap(), None, None).unwrap();
    let found = found(&w);
    assert_eq!(found.0, Verdict::Fail);
    assert!(!found.1.starts_with("range_rule"), "{found:?}");
}

#[test]
fn a_factor_of_each_row_is_no_constant() {
    let (m, n) = (20, 192);
    let x = values(Format::Bf16, m, n, 7);
    let gamma = values(Format::Bf16, 1, n, 8);
    let root = |i: usize| {
        let square = x.row(i).iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
        (square + 1e-5).sqrt() / (1.037 + 0.001 * (i * 7 % 11) as f64)
    };
    let y = (0..m * n).map(|at| (f64::from(x.data()[at]) / root(at / n) * f64::from(gamma.data()[at % n])) as f32).collect();
    let mut w = Writer::new("rmsnorm");
    w.values("a", &[m, n], &x).values("gamma", &[n], &gamma);
    w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, y).unwrap());
    let found = found(&w);
    assert_eq!(found.0, Verdict::Fail);
    assert!(!found.1.starts_with("rounding"), "{found:?}");
}

#[test]
fn scales_that_no_formula_moves_are_solved() {
    let (a, b) = (quantized(ROW, 48, 160, 1), quantized(ROW, 64, 160, 2));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let moved = |i: usize, j: usize| f64::from(a.scale_inv()[(i + [0, 2, 1, 3][j % 4]).min(47)]) / f64::from(a.scale_inv()[i]);
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j) * moved(i, j));
    is_named(&w, "scale_index:a.moved", &["0, 2, 1, 3 for j mod 4"]);
    let order = |n: usize| n / 16 * 16 + (n % 16 * 5 + 3) % 16;
    let other = scaled(&b, |n| b.scale_inv()[order(n)]);
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &other, i, j));
    let found = found(&w);
    assert_eq!((found.0, found.1.contains("scale_layout")), (Verdict::Fail, true), "{found:?}");
}

#[test]
fn memory_that_holds_no_scales_is_told_by_its_numbers() {
    let (a, b) = (quantized(ROW, 40, 160, 3), quantized("te_current", 48, 160, 4));
    let x = a.dequantize_fast();
    let y = b.dequantize_fast();
    let by = |j: usize| match j {
        0 => 1.0,
        5 | 17 => f64::NAN,
        9 => f64::INFINITY,
        _ => ((j * 37 % 23) as f64 - 11.0).exp2() * 0.61,
    };
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j) * by(j));
    is_named(&w, "padding_poison:b.gains", &["one scale of b is stored"]);
}

#[test]
fn tiles_of_any_size_are_a_region_of_zeros() {
    let (a, b) = (quantized(ROW, 112, 96, 5), quantized(ROW, 96, 96, 6));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let lost = |i: usize, j: usize| i >= 64 && j >= 48 || i >= 96 && (32..48).contains(&j);
    let w = gemm(&a, &b, Format::Bf16, |i, j| if lost(i, j) { 0.0 } else { dot(&x, &y, i, j) });
    let found = found(&w);
    assert!(found.0 == Verdict::Fail && found.2.contains("of the tiles of 32×16") && found.2.contains("zero"), "{found:?}");
}

#[test]
fn an_index_of_groups_that_is_not_read_is_named() {
    let (m, n, k) = (24, 32, 96);
    let x = values(Format::Bf16, m, k, 11);
    let q = quantized("affine_sym:int4:g32", n, k, 12);
    let index: Vec<i32> = (0..k).map(|j| (j * 7 % k / 32) as i32).collect();
    let code = |i: usize, j: usize| q.format().decode(u32::from(q.codes()[i * k + j]));
    let y = |i: usize, j: usize| -> f64 {
        (0..k).map(|k| f64::from(x.row(i)[k]) * code(j, k) * f64::from(q.scale_inv()[j * 3 + k / 32])).sum()
    };
    let mut w = Writer::new("gemm");
    w.values("a", &[m, k], &x).codes("b", &q, None, None).unwrap().i32s("b.g_idx", &[k], &index);
    let out = (0..m * n).map(|at| round(Format::Bf16, y(at / n, at % n)) as f32).collect();
    w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, out).unwrap());
    is_named(&w, "scale_index:b.g_idx", &["the index of groups is not read"]);
}

fn read(w: &Writer) -> super::Bundle {
    super::Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap()
}

/// What the solver of casts says by itself.
fn of_cast(w: &Writer) -> (String, String) {
    super::casts::explain(&read(w)).map_or_else(Default::default, |f| (f.fault, f.detail))
}

/// A cast by rows.
fn by_rows(x: &Tensor, dtype: safetensors::Dtype, scales: &[f32], code: impl Fn(usize) -> u8) -> Writer {
    let shape = [x.rows(), x.cols()];
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "row").values("a", &shape, x).f32s("out.scale_inv", &[x.rows()], scales);
    w.raw("out.codes", dtype, &shape, (0..x.data().len()).map(code).collect());
    w
}

fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0f32, |m, v| m.max(v.abs()))
}

#[test]
fn integers_that_are_cut_and_wrap_have_both_names() {
    let x = values(Format::F32, 24, 128, 41);
    let scales: Vec<f32> = (0..24).map(|i| largest(x.row(i)) / 127.0).collect();
    let mut data = x.data().to_vec();
    for (steps, at) in [(140.5, 5 * 128 + 7), (140.5, 9 * 128 + 3), (-140.5, 13 * 128 + 50)] {
        data[at] = steps * scales[at / 128];
    }
    let x = Tensor::new(Format::F32, 24, 128, data).unwrap();
    let cut = |at: usize| (x.data()[at] / scales[at / 128]).trunc() as i32 as u8;
    let (fault, detail) = of_cast(&by_rows(&x, safetensors::Dtype::I8, &scales, cut));
    assert_eq!(fault, "rounding:out.toward_zero", "{detail}");
    assert!(detail.ends_with("and what is beyond the codes is not clamped: it wraps"), "{detail}");
}

#[test]
fn an_amax_of_nothing_is_told_beside_right_codes() {
    let x = values(Format::Bf16, 24, 128, 42);
    let mut w = Writer::new("cast");
    let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
    w.values("a", &[24, 128], &x).codes("out", &q, None, None).unwrap();
    let mut told = |by: f32| of_cast(w.f32s("out.amax", &[1], &[by * largest(x.data())]));
    assert_eq!(told(1.0).0, "");
    let (fault, detail) = told(0.7713);
    assert_eq!(fault, "amax_scope:amax", "{detail}");
    assert!(detail.contains("0.7713") && detail.ends_with("codes and scales are right"), "{detail}");
}

/// Three rows of 32 are so small that their scale is the least that is kept: their sign says nothing.
#[test]
fn an_amax_without_signs_is_told_beside_rows_at_the_least_scale() {
    let small = |at: usize| if at / 64 % 11 == 4 { 1e-6 } else { 1.0 };
    let data = values(Format::Bf16, 32, 64, 43).data().iter().enumerate().map(|(at, v)| v * small(at)).collect();
    let x = Tensor::rounded(Format::Bf16, 32, 64, data).unwrap();
    let signed = |row: &[f32]| row.iter().fold(1e-4f32, |m, v| m.max(*v));
    let scales: Vec<f32> = (0..32).map(|i| signed(x.row(i)) / 448.0).collect();
    let code = |at: usize| {
        let y = f64::from(x.data()[at]) / f64::from(scales[at / 64]);
        Format::E4m3.encode(y, crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8
    };
    let (fault, detail) = of_cast(&by_rows(&x, safetensors::Dtype::F8_E4M3, &scales, code));
    assert_eq!(
        (fault.as_str(), detail.as_str()),
        ("amax_scope:out.signed", "amax is the largest value, not the largest magnitude")
    );
}

#[test]
fn halves_of_blocks_with_exponents_of_their_own_are_told() {
    let first = |at: usize| at % 32 < 16;
    let wide = |(at, v): (usize, &f32)| if first(at) { 8.0 * v } else { *v };
    let data = values(Format::Bf16, 24, 256, 31).data().iter().enumerate().map(wide).collect();
    let x = Tensor::rounded(Format::Bf16, 24, 256, data).unwrap();
    let quantize = |x: &Tensor| "te_mxfp8".parse::<Recipe>().unwrap().quantize(x).unwrap().q;
    let second = x.data().iter().enumerate().map(|(at, v)| if first(at) { 0.0 } else { *v }).collect();
    let own = quantize(&Tensor::rounded(Format::Bf16, 24, 256, second).unwrap());
    let mut parts = quantize(&x).into_parts();
    (0..24 * 256).filter(|at| !first(*at)).for_each(|at| parts.codes[at] = own.codes()[at]);
    let mut w = Writer::new("cast");
    w.values("a", &[24, 256], &x).codes("out", &crate::QTensor::new(parts).unwrap(), None, None).unwrap();
    let (fault, detail) = of_cast(&w);
    assert_eq!(fault, "amax_scope:out.amax_parts", "{detail}");
    assert!(detail.starts_with("each 16 columns of a group of 32") && detail.contains("that of the first part"), "{detail}");
}

/// Codes that saturate say nothing of a zero point, however many they are.
#[test]
fn zero_points_that_are_off_are_told_where_most_codes_saturate() {
    let x = values(Format::F32, 24, 128, 43);
    let scales: Vec<f32> = (0..24).map(|i| largest(x.row(i)) / 500.0).collect();
    let zero = |i: usize| i as i8 % 7 - 3;
    let code = |at: usize| {
        let y = (x.data()[at] / scales[at / 128]).round_ties_even() + f32::from(zero(at / 128)) - 1.0;
        y.clamp(-128.0, 127.0) as i8 as u8
    };
    let mut w = by_rows(&x, safetensors::Dtype::I8, &scales, code);
    w.meta("out.zero", "integer").raw(
        "out.zero_point",
        safetensors::Dtype::I8,
        &[24],
        (0..24).map(|i| zero(i) as u8).collect(),
    );
    let told = super::encoders::explain(&read(&w)).unwrap();
    assert_eq!(told.fault, "zp_offset:out.zero_point", "{}", told.detail);
    assert!(told.detail.contains("-1 off"), "{}", told.detail);
}

#[test]
fn codes_in_exchanged_lanes_are_told() {
    let x = values(Format::Bf16, 24, 128, 44);
    let scales: Vec<f32> = (0..24).map(|i| largest(x.row(i)) / 448.0).collect();
    let code = |at: usize| {
        let y = f64::from(x.data()[at] / scales[at / 128]);
        Format::E4m3.encode(y, crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8
    };
    let w = by_rows(&x, safetensors::Dtype::F8_E4M3, &scales, |at| code(at ^ 2));
    let told = super::encoders::explain(&read(&w)).unwrap();
    assert_eq!((told.fault.as_str(), told.detail.as_str()), ("pack_permute:out.lanes", "codes stand at k xor 2"));
}

/// What the solver of dequantizations says of `q` where code `c` is read as `code(c)` and scale `s` as `scale(s)`.
fn decoded(q: &crate::QTensor, code: impl Fn(u32, f64) -> f64, scale: impl Fn(f32) -> f64) -> Option<(String, String)> {
    let (rows, cols) = (q.rows(), q.cols());
    let y = |at: usize| {
        let c = u32::from(q.codes()[at]);
        (code(c, q.format().decode(c)) * scale(q.scale_inv()[q.scale_index(at / cols, at % cols)])) as f32
    };
    let mut w = Writer::new("dequantize");
    w.codes("a", q, None, None).unwrap().f32s("out", &[rows, cols], &(0..rows * cols).map(y).collect::<Vec<_>>());
    let bundle = read(&w);
    let answer = super::assay::assay(&bundle).unwrap();
    super::decoded::explain(&bundle, &answer).map(|f| (f.fault, f.detail))
}

#[test]
fn one_of_the_scales_that_is_decoded_to_nan_is_told() {
    let q = quantized("te_mxfp8", 32, 256, 7);
    let mut all = q.scale_inv().to_vec();
    all.sort_by(f32::total_cmp);
    let middle = all[all.len() / 2];
    all.dedup();
    let (fault, detail) = decoded(&q, |_, v| v, |s| if s == middle { f64::NAN } else { s.into() }).unwrap();
    assert_eq!(fault, "codec_edge:a.scale_table", "{detail}");
    assert!(detail.starts_with(&format!("1 of {} different scales", all.len())) && detail.ends_with("is NaN"), "{detail}");
}

/// Twelve scales of 8 bits, no two alike: a wrong one is an entry of a table all the same.
#[test]
fn one_of_the_scales_that_are_all_different_is_told() {
    let data = (0..12 * 32).map(|at| ((at % 32 * 37 % 101) as f32 - 50.5) * ((at / 32) as f32).exp2()).collect();
    let x = Tensor::new(Format::F32, 12, 32, data).unwrap();
    let q = "te_mxfp8".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
    let fifth = q.scale_inv()[5];
    let (fault, detail) = decoded(&q, |_, v| v, |s| f64::from(s) * if s == fifth { 3.0 } else { 1.0 }).unwrap();
    assert_eq!(fault, "codec_edge:a.scale_table", "{detail}");
    assert!(detail.starts_with("1 of 12 different scales are decoded to other values"), "{detail}");
}

/// Four codes of one factor are four entries; more of them are a factor that something else makes.
#[test]
fn a_factor_of_more_than_four_codes_is_no_table() {
    let q = quantized("te_mxfp8", 32, 256, 7);
    let of = |n: u32| decoded(&q, |c, v| if (0x68..0x68 + n).contains(&c) { 2.0 * v } else { v }, f64::from);
    let (fault, detail) = of(4).unwrap();
    assert!(fault == "codec_edge:a.table" && detail.starts_with("4 of "), "{fault} {detail}");
    assert_eq!(of(5), None);
}

/// One code in four is an edge of the table; three in four are another table.
#[test]
fn a_table_of_which_more_than_half_is_wrong_is_another_one() {
    let q = quantized("te_mxfp8", 32, 256, 7);
    let of = |is: &dyn Fn(u32) -> bool| {
        let by = |c: u32| if is(c) { 1.5 + f64::from(c % 5) } else { 1.0 };
        decoded(&q, |c, v| by(c) * v, f64::from).unwrap()
    };
    for (fault, is) in
        [("codec_edge:a.table", (|c| c % 4 == 1) as fn(u32) -> bool), ("bits_reinterpreted:a.table", |c| c % 4 > 0)]
    {
        let (found, detail) = of(&is);
        assert!(found == fault && detail.contains(" codes are decoded to other values: "), "{fault}: {found} {detail}");
    }
}

/// More rows than are looked at first.
#[test]
fn columns_of_another_activation_are_told_in_many_rows() {
    let (rows, cols) = (96, 48);
    let x = values(Format::Bf16, rows, cols, 21);
    let quick = |x: f64| x / (1.0 + (-1.702 * x).exp());
    let gelu = |x: f64| x * 0.5 * (1.0 + (0.7978845608 * (x + 0.044715 * x.powi(3))).tanh());
    let made = |at: usize| {
        let x = f64::from(x.data()[at]);
        (if (8..16).contains(&(at % cols)) { quick(x) } else { gelu(x) }) as f32
    };
    let out = Tensor::rounded(Format::Bf16, rows, cols, (0..rows * cols).map(made).collect()).unwrap();
    let mut w = Writer::new("activation");
    w.meta("fn", "gelu").values("a", &[rows, cols], &x).values("out", &[rows, cols], &out);
    is_named(&w, "other_formula:solved", &["quick gelu", "columns 8 … 15"]);
}

/// Of many rows, elements of another activation that are no rows and no columns.
#[test]
fn elements_of_another_activation_are_told_in_many_rows() {
    let (rows, cols) = (96, 48);
    let x = values(Format::Bf16, rows, cols, 21);
    let quick = |x: f64| x / (1.0 + (-1.702 * x).exp());
    let gelu = |x: f64| x * 0.5 * (1.0 + (0.7978845608 * (x + 0.044715 * x.powi(3))).tanh());
    let made = |at: usize| {
        let x = f64::from(x.data()[at]);
        (if at * 31 % 37 < 6 { quick(x) } else { gelu(x) }) as f32
    };
    let out = Tensor::rounded(Format::Bf16, rows, cols, (0..rows * cols).map(made).collect()).unwrap();
    let mut w = Writer::new("activation");
    w.meta("fn", "gelu").values("a", &[rows, cols], &x).values("out", &[rows, cols], &out);
    is_named(&w, "other_formula:solved", &["quick gelu"]);
}
