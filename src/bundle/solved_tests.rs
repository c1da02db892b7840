//! Element-wise results whose parameters are solved: norms taken apart, tables of decoded codes, lanes of an amax, experts' scales.

use super::{Bundle, Writer, answer, assay::assay};
use crate::compare::Verdict;
use crate::recipe::Recipe;
use crate::{Format, Overflow, Rounding, Tensor};
use safetensors::Dtype;
use std::path::Path;

fn values(rows: usize, cols: usize, seed: u32) -> Tensor {
    let mut word = seed;
    let mut next = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(word >> 8) / 8_388_608.0 - 1.0
    };
    let sizes: Vec<f64> = (0..rows).map(|_| (1.5 * next()).exp2()).collect();
    let data = (0..rows * cols).map(|at| (next() * sizes[at / cols] + 0.1) as f32).collect();
    Tensor::rounded(Format::Bf16, rows, cols, data).unwrap()
}

fn is_named(w: &Writer, fault: &str, words: &[&str]) {
    let found = assay(&Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    let best = found.diagnosis.as_ref().and_then(|d| d.findings.first()).map(|f| (f.fault.clone(), f.detail.clone()));
    let (name, detail) = best.unwrap_or_default();
    assert_eq!((answer::verdict(&found), name.as_str()), (Verdict::Fail, fault), "{detail}");
    assert!(words.iter().all(|x| detail.contains(x)), "{detail}");
}

const ROWS: usize = 24;
const COLS: usize = 320;

/// A layernorm of one tensor; `made` gives its row from the row, gamma and beta.
fn layernorm(made: impl Fn(usize, &[f64], &[f64], &[f64]) -> Vec<f64>) -> Writer {
    let (x, gamma, beta) = (values(ROWS, COLS, 3), values(1, COLS, 4), values(1, COLS, 5));
    let wide = |t: &[f32]| t.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
    let (g, b) = (wide(gamma.data()), wide(beta.data()));
    let out = (0..ROWS).flat_map(|i| made(i, &wide(x.row(i)), &g, &b)).map(|y| y as f32).collect();
    let mut w = Writer::new("layernorm");
    w.meta("eps", "1e-5").values("a", &[ROWS, COLS], &x).values("gamma", &[COLS], &gamma).values("beta", &[COLS], &beta);
    w.values("out", &[ROWS, COLS], &Tensor::rounded(Format::F16, ROWS, COLS, out).unwrap());
    w
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64], m: f64) -> f64 {
    x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / x.len() as f64
}

/// Rows far from 0 whose spread f32 does not hold beside their squares.
#[test]
fn a_difference_of_squares_that_is_cut_to_0_is_told() {
    let (rows, cols) = (12, 96);
    let data = (0..rows * cols).map(|x| 500.0 + 0.06 * (((x * 7919 + x * x % 613) % 1009) as f32 / 504.5 - 1.0)).collect();
    let x = Tensor::rounded(Format::F32, rows, cols, data).unwrap();
    let ones = |v: f32| Tensor::rounded(Format::F32, 1, cols, vec![v; cols]).unwrap();
    let made = |i: usize| {
        let x = x.row(i);
        let sum = |f: fn(f32) -> f32| x.iter().map(|x| f(*x)).sum::<f32>() / cols as f32;
        let m = sum(|x| x);
        let by = ((sum(|x| x * x) - m * m).max(0.0) + 1e-5).sqrt();
        x.iter().map(move |x| (x - m) / by).collect::<Vec<f32>>()
    };
    let out = Tensor::rounded(Format::F32, rows, cols, (0..rows).flat_map(made).collect()).unwrap();
    let mut w = Writer::new("layernorm");
    w.meta("eps", "1e-5").values("a", &[rows, cols], &x).values("gamma", &[cols], &ones(1.0)).values(
        "beta",
        &[cols],
        &ones(0.0),
    );
    w.values("out", &[rows, cols], &out);
    is_named(&w, "other_formula:solved", &["E[x²] − μ² in f32", "wrong rows it is 0"]);
}

#[test]
fn effects_on_one_norm_are_one_combination() {
    let normal = |x: &[f64], m: f64, d: f64| x.iter().map(|x| (x - m) / d).collect::<Vec<f64>>();
    let made = layernorm(|_, x, g, b| {
        let m = mean(x);
        let y = normal(x, m, (variance(x, m) + 3e-2).sqrt());
        (0..COLS).map(|j| y[j] * (g[j] + 1.0) + b[j]).collect()
    });
    is_named(&made, "other_formula:solved", &["1 is added to gamma", "eps is 0.03"]);
    let part = layernorm(|_, x, g, b| {
        let m = mean(&x[..256]);
        let y = normal(x, m, (variance(&x[..256], m) + 1e-5).sqrt());
        (0..COLS).map(|j| if j < 256 { y[j] * g[j] + b[j] } else { 0.0 }).collect()
    });
    is_named(&part, "other_formula:solved", &["the mean is that of the first 256 columns", "columns 256 … 319 are 0"]);
}

#[test]
fn gamma_and_beta_of_other_columns_are_found_wherever_they_are() {
    let with = |gamma: &dyn Fn(&[f64], usize) -> f64, beta: &dyn Fn(&[f64], usize) -> f64| {
        layernorm(|_, x, g, b| {
            let m = mean(x);
            let d = (variance(x, m) + 1e-5).sqrt();
            (0..COLS).map(|j| (x[j] - m) / d * gamma(g, j) + beta(b, j)).collect()
        })
    };
    let both = with(&|g, j| g[(j + 37) % COLS], &|b, j| b[j % 48]);
    is_named(&both, "other_formula:solved", &["column j takes gamma[j + 37]", "beta[j mod 48]"]);
    let other = with(&|g, j| g[j] * (1.0 + 0.1 * ((j * 7919 % 13) as f64)), &|b, j| b[j]);
    is_named(&other, "other_formula:solved", &["gamma is another vector, the same in every row"]);
}

#[test]
fn tables_of_decoded_codes_and_scales_are_solved() {
    let q = "te_mxfp8".parse::<Recipe>().map(|r| r.quantize(&values(32, 256, 7)).unwrap().q).unwrap();
    let made = |code: &dyn Fn(u32) -> f64, scale: &dyn Fn(f64) -> f64| {
        let y = |at: usize| code(u32::from(q.codes()[at])) * scale(q.affine(q.scale_index(at / 256, at % 256)).unit);
        let mut w = Writer::new("dequantize");
        w.codes("a", &q, None, None).unwrap();
        let out = (0..32 * 256).map(|at| y(at) as f32).collect();
        w.values("out", &[32, 256], &Tensor::rounded(Format::F32, 32, 256, out).unwrap());
        w
    };
    let right = |c: u32| Format::E4m3.decode(c);
    let top = |c: u32| if c & 0x78 == 0x78 { f64::INFINITY } else { right(c) };
    is_named(&made(&top, &|s| s), "codec_edge:a.table", &["is Inf instead of 256", "those of the top exponent"]);
    let odd = |c: u32| if c & 7 == 5 { right(c) * 1.125 } else { right(c) };
    is_named(&made(&odd, &|s| s), "codec_edge:a.table", &["otherwise at 22 of 164 codes", "0x75 as 234 instead of 208"]);
    let least = q.scale_inv().iter().copied().fold(f32::INFINITY, f32::min);
    let flushed = made(&right, &|s| if s == f64::from(least) { 3.0 * s } else { s });
    is_named(&flushed, "codec_edge:a.scale_table", &["different scales are decoded to other values"]);
}

#[test]
fn a_cast_whose_codes_or_amax_are_nobodys_is_solved() {
    let x = values(24, 256, 9);
    let code = |y: f64| Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
    let cast = |amax: &dyn Fn(&[f32], usize) -> f32, code: &dyn Fn(usize, f64) -> u8| {
        let scale: Vec<f32> = (0..24).map(|i| amax(x.row(i), i) / 448.0).collect();
        let codes = (0..24 * 256).map(|at| code(at / 256, f64::from(x.data()[at] / scale[at / 256]))).collect();
        let mut w = Writer::new("cast");
        w.meta("out.granularity", "row").meta("recipe", "float8_rowwise_gw_hp").values("a", &[24, 256], &x);
        w.raw("out.codes", Dtype::F8_E4M3, &[24, 256], codes).f32s("out.scale_inv", &[24], &scale);
        w
    };
    let largest = |row: &[f32]| row.iter().fold(0f32, |m, x| m.max(x.abs()));
    let without = |row: &[f32], i: usize| {
        let first = row.iter().position(|x| x.abs() == largest(row)).unwrap();
        if i.is_multiple_of(3) { largest(&[&row[..first], &row[first + 1..]].concat()) } else { largest(row) }
    };
    let w = cast(&without, &|_, y| code(y));
    let found = assay(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    let best = &found.diagnosis.as_ref().unwrap().findings[0];
    assert!(best.variant == "out.amax_lanes" && best.detail.contains("6 of 24 groups"), "{} {}", best.fault, best.detail);
    // Every third binade is a code too low.
    let stepped = |y: f64| {
        let c = code(y);
        if c & 0x7f > 8 && (c >> 3 & 15).is_multiple_of(3) { c - 1 } else { c }
    };
    let steps = |wrong: &dyn Fn(usize) -> bool, words: &[&str]| {
        let w = cast(&|row, _| largest(row), &|i, y| if wrong(i) { stepped(y) } else { code(y) });
        is_named(&w, "rounding:out.steps", words);
    };
    steps(&|_| true, &["another function of the scaled value"]);
    steps(&|i| (8..16).contains(&i), &["another function of the scaled value", "in rows 8 … 15"]);
    // What becomes of some values in one column of each pair, and ties are right either way.
    let w = cast(&|row, _| largest(row), &|_, y| code(y));
    let mut flushed = w.clone();
    let pairs = |at: usize, c: u8| if at % 256 % 2 == 1 && (0x50..0x60).contains(&(c & 0x7f)) { 0 } else { c };
    let codes: Vec<u8> =
        (0..24 * 256).map(|at| pairs(at, code(f64::from(x.data()[at] / (largest(x.row(at / 256)) / 448.0))))).collect();
    flushed.raw("out.codes", Dtype::F8_E4M3, &[24, 256], codes);
    let found = assay(&Bundle::parse(Path::new("x"), &flushed.to_bytes().unwrap()).unwrap()).unwrap();
    let best = &found.diagnosis.as_ref().unwrap().findings[0];
    assert!(best.detail.contains("become 0 instead of") && best.detail.contains(", in columns "), "{}", best.detail);
    let cut = |_: usize, y: f64| Format::E4m3.encode(1.5 * y, Rounding::TowardZero, Overflow::Saturate) as u8;
    is_named(&cast(&|row, _| 1.5 * largest(row), &cut), "stale_state:out.scale_inv", &["1.5", "cut toward zero"]);
}

/// Two experts of NVFP4 with a second-level scale each, on both sides.
fn grouped(of: [usize; 2]) -> Writer {
    let quantize = |seed| "te_nvfp4".parse::<Recipe>().unwrap().quantize(&values(32, 64, seed)).unwrap().q;
    let (a, b) = (quantize(11), [quantize(12), quantize(13)]);
    let globals = [[0.5f32, 3.0], [0.25, 1.75]];
    let mut w = Writer::new("grouped_gemm");
    let bytes = |q: &crate::QTensor| q.codes().chunks(2).map(|c| c[0] | c[1] << 4).collect::<Vec<u8>>();
    let scales = |q: &crate::QTensor| {
        let encode = |s: &f32| Format::E4m3.encode(f64::from(*s), Rounding::NearestEven, Overflow::Saturate) as u8;
        q.scale_inv().iter().map(encode).collect::<Vec<u8>>()
    };
    for x in ["a", "b"] {
        w.meta(&format!("{x}.format"), "e2m1").meta(&format!("{x}.granularity"), "group:16");
        w.meta(&format!("{x}.packing"), "low_first");
    }
    w.raw("a.codes", Dtype::U8, &[32, 32], bytes(&a)).raw("a.scale_inv", Dtype::F8_E4M3, &[32, 4], scales(&a));
    w.raw("b.codes", Dtype::U8, &[2, 32, 32], b.iter().flat_map(bytes).collect());
    w.raw("b.scale_inv", Dtype::F8_E4M3, &[2, 32, 4], b.iter().flat_map(scales).collect());
    w.f32s("a.global_scale_inv", &[2], &globals[0]).f32s("b.global_scale_inv", &[2, 1], &globals[1]);
    w.i32s("offs", &[2], &[20, 32]);
    let plain = |q: &crate::QTensor, i: usize, k: usize| {
        f64::from(q.scale_inv()[q.scale_index(i, k)]) * q.format().decode(u32::from(q.codes()[i * 64 + k]))
    };
    let y = |i: usize, j: usize| {
        let e = usize::from(i >= 20);
        let sum: f64 = (0..64).map(|k| plain(&a, i, k) * plain(&b[e], j, k)).sum();
        (sum as f32 * (globals[0][e] * globals[1][of[e]])) as f64
    };
    let out = (0..32 * 32).map(|at| y(at / 32, at % 32) as f32).collect();
    w.values("out", &[32, 32], &Tensor::rounded(Format::Bf16, 32, 32, out).unwrap());
    w
}

#[test]
fn experts_have_second_level_scales_of_their_own() {
    let judged = |w: &Writer| assay(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    let right = judged(&grouped([0, 1]));
    assert_eq!(right.verdict, Verdict::Pass, "{}", right.reason);
    let wrong = judged(&grouped([0, 0]));
    assert_eq!(wrong.verdict, Verdict::Fail, "{}", wrong.reason);
    assert!(wrong.diagnosis.is_some_and(|d| !d.findings.is_empty()));
    let mut three = grouped([0, 1]);
    three.f32s("b.global_scale_inv", &[3], &[1.0, 1.0, 1.0]);
    let said = Bundle::parse(Path::new("x"), &three.to_bytes().unwrap()).unwrap_err().to_string();
    assert!(said.contains("b.global_scale_inv") && said.contains("[3]"), "{said}");
}

fn said(w: &Writer) -> String {
    Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap_err().to_string()
}

#[test]
fn columns_of_weights_are_of_the_groups_that_an_index_says() {
    let (m, n, k) = (12, 20, 96);
    let x = values(m, k, 21);
    let q = "affine_sym:int4:g32".parse::<Recipe>().unwrap().quantize(&values(n, k, 22)).unwrap().q;
    let group = |j: usize| j * 7 % k / 32;
    let index: Vec<i32> = (0..k).map(|j| group(j) as i32).collect();
    let code = |i: usize, j: usize| q.format().decode(u32::from(q.codes()[i * k + j]));
    let made = |group: &dyn Fn(usize) -> usize| {
        let y = |i: usize, j: usize| -> f64 {
            (0..k).map(|k| f64::from(x.row(i)[k]) * code(j, k) * f64::from(q.scale_inv()[j * 3 + group(k)])).sum()
        };
        let mut w = Writer::new("gemm");
        w.values("a", &[m, k], &x).codes("b", &q, None, None).unwrap().i32s("b.g_idx", &[k], &index);
        let out = (0..m * n).map(|at| y(at / n, at % n) as f32).collect();
        w.values("out", &[m, n], &Tensor::rounded(Format::Bf16, m, n, out).unwrap());
        w
    };
    let judged = |w: &Writer| assay(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap().verdict;
    assert_eq!(judged(&made(&group)), Verdict::Pass);
    assert_eq!(judged(&made(&|j| j / 32)), Verdict::Fail, "the index is ignored");
    let with = |index: &[i32]| {
        let mut w = made(&group);
        w.i32s("b.g_idx", &[index.len()], index);
        said(&w)
    };
    assert!(with(&index[..90]).contains("[96]"));
    assert!(with(&[&[3], &index[1..]].concat()).contains("group 3 of column 0"));
    assert!(with(&[&[(index[0] + 1) % 3], &index[1..]].concat()).contains("columns in group"));
    let mut w = made(&group);
    w.meta("b.granularity", "row").meta("b.scale_format", "f32").f32s("b.scale_inv", &[n], &vec![1.0; n]);
    assert!(said(&w).contains("group:G"));
}

#[test]
fn activations_read_codes_as_f32_values() {
    let q = "te_mxfp8".parse::<Recipe>().unwrap().quantize(&values(16, 96, 25)).unwrap().q;
    let x = q.dequantize_f32();
    let made = |f: &dyn Fn(f32) -> f32| {
        let mut w = Writer::new("activation");
        w.meta("fn", "relu").codes("a", &q, None, None).unwrap();
        w.values("out", &[16, 96], &Tensor::rounded(Format::Bf16, 16, 96, x.iter().map(|x| f(*x)).collect()).unwrap());
        w
    };
    let judged = |w: &Writer| assay(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap().verdict;
    assert_eq!(judged(&made(&|x| x.max(0.0))), Verdict::Pass);
    assert_eq!(judged(&made(&|x| (0.5 * x).max(0.0))), Verdict::Fail);
    let mut both = made(&|x| x.max(0.0));
    both.values("a", &[16, 96], &values(16, 96, 25));
    assert!(said(&both).contains("one of them"));
}

#[test]
fn rows_of_a_grouped_product_have_weights() {
    let quantize = |rows, seed| "float8_rowwise_gw_hp".parse::<Recipe>().unwrap().quantize(&values(rows, 64, seed)).unwrap().q;
    let (a, b) = (quantize(32, 31), quantize(48, 32));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let weights: Vec<f32> = (0..32).map(|i| 0.125 + (i * 11 % 17) as f32 / 16.0).collect();
    let made = |by: &dyn Fn(usize) -> f32| {
        let mut w = Writer::new("grouped_gemm");
        w.codes("a", &a, None, None).unwrap().codes("b", &b, Some(2), None).unwrap().i32s("offs", &[2], &[15, 32]);
        w.f32s("row_weights", &[32], &weights);
        let of = |i: usize, j: usize| x.row(i).dot(&y.row(j + if i >= 15 { 24 } else { 0 })) as f32 * by(i);
        let out = (0..32 * 24).map(|at| of(at / 24, at % 24)).collect();
        w.values("out", &[32, 24], &Tensor::rounded(Format::Bf16, 32, 24, out).unwrap());
        w
    };
    let judged = |w: &Writer| assay(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap().verdict;
    assert_eq!(judged(&made(&|i| weights[i])), Verdict::Pass);
    assert_eq!(judged(&made(&|_| 1.0)), Verdict::Fail, "no weight");
    assert_eq!(judged(&made(&|i| weights[i ^ 1])), Verdict::Fail, "the neighbour's weight");
    let mut w = made(&|i| weights[i]);
    w.f32s("row_weights", &[30], &weights[..30]);
    assert!(said(&w).contains("[32]"));
    w.f32s("row_weights", &[32], &[f32::NAN; 32]);
    assert!(said(&w).contains("finite"));
}

/// Marlin's experts: values times int4, whose result is multiplied in f32 or after it was rounded. Two levels of scales in `a` take a weight too.
#[test]
fn rows_of_values_and_of_two_levels_have_weights() {
    let quantize = |recipe: &str, rows, seed| recipe.parse::<Recipe>().unwrap().quantize(&values(rows, 64, seed)).unwrap().q;
    let weights: Vec<f32> = (0..32).map(|i| 0.13 + (i * 11 % 17) as f32 / 16.0).collect();
    let bf16 = |x: f64| crate::tensor::round_to(Format::Bf16, x as f32);
    let judged = |a: &dyn Fn(&mut Writer) -> ndarray::Array2<f64>, b: &crate::QTensor, of: &dyn Fn(f64, usize) -> f32| {
        let mut w = Writer::new("grouped_gemm");
        // A group of int4 is rounded to the type of the values.
        let weight = |y: f64| if b.level().is_none() { f64::from(bf16(y)) } else { y };
        let (x, y) = (a(&mut w), b.dequantize_fast().mapv(weight));
        w.codes("b", b, Some(2), None).unwrap().i32s("offs", &[2], &[15, 32]).f32s("row_weights", &[32], &weights);
        let one = |i: usize, j: usize| of(x.row(i).dot(&y.row(j + if i >= 15 { 24 } else { 0 })), i);
        let out = (0..32 * 24).map(|at| one(at / 24, at % 24)).collect();
        w.values("out", &[32, 24], &Tensor::rounded(Format::Bf16, 32, 24, out).unwrap());
        assay(&Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap().verdict
    };
    let right = |x: f64, i: usize| (x * f64::from(weights[i])) as f32;
    let twice = |x: f64, i: usize| bf16(x) * weights[i];
    let of_values = |w: &mut Writer| {
        let a = Tensor::rounded(Format::Bf16, 32, 64, values(32, 64, 33).data().to_vec()).unwrap();
        w.values("a", &[32, 64], &a);
        a.to_f64()
    };
    let int4 = quantize("affine_sym:int4:g32", 48, 34);
    for of in [&right as &dyn Fn(f64, usize) -> f32, &twice] {
        assert_eq!(judged(&of_values, &int4, of), Verdict::Pass);
    }
    assert_eq!(judged(&of_values, &int4, &|x, _| x as f32), Verdict::Fail, "no weight");
    assert_eq!(judged(&of_values, &int4, &|x, i| right(x, i ^ 1)), Verdict::Fail, "the neighbour's weight");
    assert_eq!(judged(&of_values, &int4, &|x, i| right(x, i) * weights[i]), Verdict::Fail, "twice");
    let of_levels = |w: &mut Writer| {
        let a = quantize("te_nvfp4", 32, 35);
        w.codes("a", &a, None, None).unwrap();
        a.dequantize_fast()
    };
    let nvfp4 = quantize("te_nvfp4", 48, 36);
    assert_eq!(judged(&of_levels, &nvfp4, &right), Verdict::Pass);
    assert_eq!(judged(&of_levels, &nvfp4, &|x, _| x as f32), Verdict::Fail, "no weight");
}

/// A gradient of weights, 20×48 by 17×48 in four groups of which one is empty: each takes the scales of b of group `from(e)` and sums `tokens(e)`.
fn gradient(from: impl Fn(usize) -> usize, tokens: impl Fn(usize, usize) -> bool) -> Writer {
    let (m, n, k, offs) = (20, 17, 48, [10usize, 10, 27, 48]);
    let code = |seed: usize, at: usize| {
        ((at * 7919 + at * at % 613 + seed * 31) % 1009 % 112) as u8 + if at % 5 < 2 { 128 } else { 0 }
    };
    let codes = |seed: usize, lines: usize| (0..lines * k).map(|at| code(seed, at)).collect::<Vec<u8>>();
    let scales =
        |seed: usize, lines: usize| (0..4 * lines).map(|x| 0.5 + ((x * 613 + seed) % 101) as f32 / 67.0).collect::<Vec<f32>>();
    let (a, b, sa, sb) = (codes(1, m), codes(2, n), scales(3, m), scales(4, n));
    let value = |c: u8| Format::E4m3.decode(u32::from(c));
    let group = |at: usize| offs.iter().position(|end| at < *end).unwrap();
    let one = |x: usize| {
        let (e, i, j) = (x / (m * n), x / n % m, x % n);
        let own = (0..k).filter(|at| group(*at) == e && tokens(e, *at));
        let sum: f64 = own.map(|at| value(a[i * k + at]) * value(b[j * k + at])).sum();
        (sum * f64::from(sa[e * m + i]) * f64::from(sb[from(e) * n + j])) as f32
    };
    let mut w = Writer::new("grouped_gemm_wgrad");
    w.meta("a.granularity", "row").meta("b.granularity", "row").i32s("offs", &[4], &[10, 10, 27, 48]);
    w.raw("a.codes", Dtype::F8_E4M3, &[m, k], a.clone()).raw("b.codes", Dtype::F8_E4M3, &[n, k], b.clone());
    w.f32s("a.scale_inv", &[4, m], &sa).f32s("b.scale_inv", &[4, n], &sb);
    w.values("out", &[4, m, n], &Tensor::rounded(Format::F32, 4 * m, n, (0..4 * m * n).map(one).collect()).unwrap());
    w
}

#[test]
fn groups_along_k_with_the_scales_of_others_are_one_rule() {
    let before = |e: usize| [0, 0, 0, 2][e];
    is_named(
        &gradient(before, |_, _| true),
        "scale_shared:b.group_scale",
        &["the group before that has tokens, the first its own"],
    );
    let behind = |e: usize| [2, 2, 3, 3][e];
    let last = |_: usize, at: usize| ![9, 26, 47].contains(&at);
    is_named(
        &gradient(behind, last),
        "group_boundary:tokens_of_groups + scale_shared:b.group_scale",
        &["the last token of every group that has any is left out", "the next group that has tokens, the last its own"],
    );
    is_named(&gradient(|e| [3, 1, 2, 0][e], |_, _| true), "scale_shared:b.group_scale", &["group 0 are those of group 3"]);
}
