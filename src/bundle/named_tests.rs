//! Bugs that a diagnosis has to name: each is made in f64 and held against the first finding.

use super::{Bundle, Writer, answer, assay::assay};
use crate::compare::Verdict;
use crate::format::pack::NibbleOrder;
use crate::quant::QTensorParts;
use crate::recipe::Recipe;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};
use ndarray::Array2;
use safetensors::Dtype;
use std::path::Path;

/// Values of both signs over a few binades, rows of different sizes.
pub fn values(dtype: Format, rows: usize, cols: usize, seed: u32) -> Tensor {
    let mut word = seed;
    let mut next = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(word >> 8) / 8_388_608.0 - 1.0) as f32
    };
    let sizes: Vec<f32> = (0..rows).map(|_| (1.5 * next()).exp2()).collect();
    Tensor::rounded(dtype, rows, cols, (0..rows * cols).map(|at| next() * sizes[at / cols]).collect()).unwrap()
}

pub fn quantized(recipe: &str, rows: usize, cols: usize, seed: u32) -> QTensor {
    recipe.parse::<Recipe>().unwrap().quantize(&values(Format::Bf16, rows, cols, seed)).unwrap().q
}

pub fn found(w: &Writer) -> (Verdict, String, String) {
    let found = assay(&Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    let best = found.diagnosis.as_ref().and_then(|d| d.findings.first()).map(|f| (f.fault.clone(), f.detail.clone()));
    let (fault, detail) = best.unwrap_or_default();
    (answer::verdict(&found), fault, detail)
}

/// Whether the bundle fails by this name, two of them in either order, and these words stand in its detail.
pub fn is_named(w: &Writer, fault: &str, words: &[&str]) {
    let found = found(w);
    let sorted = |names: &str| {
        let mut all: Vec<String> = names.split(" + ").map(String::from).collect();
        all.sort();
        all
    };
    assert_eq!((found.0, sorted(&found.1)), (Verdict::Fail, sorted(fault)), "{}", found.2);
    assert!(words.iter().all(|x| found.2.contains(x)), "{}", found.2);
}

pub fn round(f: Format, x: f64) -> f64 {
    f.decode(f.encode(x, Rounding::NearestEven, Overflow::Native))
}

/// A product of two quantized operands, and what was written.
pub fn gemm(a: &QTensor, b: &QTensor, out: Format, y: impl Fn(usize, usize) -> f64) -> Writer {
    let (m, n) = (a.rows(), b.rows());
    let mut w = Writer::new("gemm");
    let packing = |q: &QTensor| (q.format().bits() == 4).then_some(NibbleOrder::LowFirst);
    w.codes("a", a, None, packing(a)).unwrap().codes("b", b, None, packing(b)).unwrap();
    let data = (0..m * n).map(|at| y(at / n, at % n) as f32).collect();
    w.values("out", &[m, n], &Tensor::rounded(out, m, n, data).unwrap());
    w
}

pub fn dot(a: &Array2<f64>, b: &Array2<f64>, i: usize, j: usize) -> f64 {
    a.row(i).dot(&b.row(j))
}

/// A product of two operands of te_current whose result is FP8, the largest being `largest` scales: `of` makes the code of an element of so many.
/// Without its scale, which is given beside the largest sum.
pub fn coded_product(
    (m, n, k): (usize, usize, usize),
    seed: u32,
    largest: f64,
    of: &dyn Fn(usize, f64) -> u8,
) -> (Writer, f32, f32) {
    let (a, b) = (quantized("te_current", m, k, seed), quantized("te_current", n, k, seed + 1));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let sums: Vec<f64> = (0..m * n).map(|at| dot(&x, &y, at / n, at % n)).collect();
    let most = sums.iter().fold(0.0f64, |m, s| m.max(s.abs()));
    let scale = (largest / most) as f32;
    let codes = sums.iter().enumerate().map(|(at, s)| of(at, s * f64::from(scale))).collect();
    let mut w = Writer::new("gemm");
    w.codes("a", &a, None, None).unwrap().codes("b", &b, None, None).unwrap();
    w.raw("out.codes", Dtype::F8_E4M3, &[m, n], codes);
    (w, scale, most as f32)
}

/// With other scales.
pub fn scaled(q: &QTensor, scale: impl Fn(usize) -> f32) -> Array2<f64> {
    let scale_inv = (0..q.scale_inv().len()).map(scale).collect();
    QTensor::new(QTensorParts { scale_inv, scale_format: Format::F32, ..q.clone().into_parts() }).unwrap().dequantize_fast()
}

pub const ROW: &str = "float8_rowwise_gw_hp";

#[test]
fn two_faults_side_by_side_are_two_names() {
    let (a, b) = (quantized(ROW, 48, 160, 1), quantized(ROW, 64, 160, 2));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let rolled = scaled(&b, |r| b.scale_inv()[(r + 63) % 64]);
    let part = |i: usize, j: usize| (0..128).map(|k| x[(i, k)] * y[(j, k)]).sum::<f64>();
    let w = gemm(&a, &b, Format::Bf16, |i, j| if j < 32 { dot(&x, &rolled, i, j) } else { part(i, j) });
    // One of the two has its place; the other is what all columns but those do.
    is_named(&w, "k_tail:k.dropped + scale_shared:b.index", &["row r − 1, wrapped", "the last 32 of K", "in columns "]);
    let w = gemm(&a, &b, Format::Bf16, |i, j| match (i, j) {
        (_, 48..) => 0.0,
        _ => dot(&x, &rolled, i, j),
    });
    is_named(&w, "scale_shared:b.index + mn_edge:out.edge", &["row r − 1", "columns 48 … 63 are zero"]);
    // Rows 0 … 15 and 32 … 47, right ones between them.
    let w = gemm(&a, &b, Format::Bf16, |i, j| match i {
        0..16 => 2.0 * dot(&x, &y, i, j),
        32..48 => dot(&x, &y, i ^ 8, j),
        _ => dot(&x, &y, i, j),
    });
    is_named(&w, "acc_state:out.sums_again + addressing:out.rows", &["rows 0 … 15", "row i xor 8", "rows 32 … 47"]);
}

#[test]
fn a_range_of_k_beside_another_fault_is_found_where_few_products_are_large() {
    let mut x = values(Format::Bf16, 24, 336, 3).data().to_vec();
    (0..24).for_each(|i| x[i * 336 + 40] *= 200.0);
    let x = Tensor::rounded(Format::Bf16, 24, 336, x).unwrap();
    let (a, b) = (ROW.parse::<Recipe>().unwrap().quantize(&x).unwrap().q, quantized(ROW, 32, 336, 4));
    let (x, rolled) = (a.dequantize_fast(), scaled(&b, |r| b.scale_inv()[(r + 31) % 32]));
    let w = gemm(&a, &b, Format::Bf16, |i, j| (0..312).map(|k| x[(i, k)] * rolled[(j, k)]).sum());
    is_named(&w, "k_tail:k.dropped + scale_shared:b.index", &["row r − 1, wrapped", "the last 24 of K"]);
}

#[test]
fn scales_that_are_clamped_or_of_another_group_are_told_from_other_numbers() {
    let (a, b) = (quantized(ROW, 64, 128, 5), quantized(ROW, 64, 128, 6));
    let y = b.dequantize_fast();
    let mut sorted = a.scale_inv().to_vec();
    sorted.sort_by(f32::total_cmp);
    let clamped = scaled(&a, |r| a.scale_inv()[r].max(sorted[32]));
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&clamped, &y, i, j));
    is_named(&w, "range_rule:a.clamped", &["clamped from below at 0.0018"]);
    // Numbers that nobody stored, in no order: no name.
    let other = scaled(&a, |r| a.scale_inv()[(r * 37 + 11) % 64] * (1.0 + 0.01 * (r % 7) as f32));
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&other, &y, i, j));
    assert_eq!(found(&w).1, "");
    // The last group is the largest of each row.
    let data = values(Format::Bf16, 96, 448, 8)
        .data()
        .iter()
        .enumerate()
        .map(|(at, v)| if at % 448 < 384 { *v } else { 8.0 * v })
        .collect();
    let data = Tensor::rounded(Format::Bf16, 96, 448, data).unwrap();
    let b = "te_block_1x128_fp32".parse::<Recipe>().unwrap().quantize(&data).unwrap().q;
    let late = scaled(&b, |g| if g % 4 == 3 { b.scale_inv()[g - 1] } else { b.scale_inv()[g] });
    let a = quantized("te_block_1x128_fp32", 64, 448, 7);
    let x = a.dequantize_fast();
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &late, i, j));
    let name = found(&w);
    assert!(name.1.starts_with("scale_index:b."), "{name:?}");
}

#[test]
fn partial_sums_in_sixteen_bits_are_named() {
    let (a, b) = (quantized(ROW, 48, 512, 9), quantized(ROW, 64, 512, 10));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let slice = |i: usize, j: usize, k: usize, n: usize| (k..k + n).map(|k| x[(i, k)] * y[(j, k)]).sum::<f64>();
    let unit = |i: usize, j: usize| f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j]);
    let w = gemm(&a, &b, Format::Bf16, |i, j| {
        let u = unit(i, j);
        if j < 32 {
            dot(&x, &y, i, j)
        } else {
            (0..8).fold(0.0, |sum, n| round(Format::Bf16, sum + slice(i, j, 64 * n, 64) / u)) * u
        }
    });
    let mut w = w;
    w.meta("device_model", "f32_sequential");
    is_named(&w, "lowprec_acc:out.partial_sums", &["after every 64 of K", "bf16"]);
    // Integers that saturate on their way.
    let (a, b) = (quantized("int8_token_sym", 48, 256, 11), quantized("int8_token_sym", 48, 256, 12));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let unit = |i: usize, j: usize| f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j]);
    let slice = |i: usize, j: usize, n: usize| (32 * n..32 * n + 32).map(|k| x[(i, k)] * y[(j, k)]).sum::<f64>() / unit(i, j);
    let w = gemm(&a, &b, Format::Bf16, |i, j| {
        (0..8).fold(0.0f64, |sum, n| (sum + slice(i, j, n).round()).clamp(-32768.0, 32767.0)) * unit(i, j)
    });
    is_named(&w, "overflow_wrap:out.partial_sums", &["every 32 of K", "16 bits"]);
}

#[test]
fn scales_and_parts_of_k_in_sixteen_bits_fail_inside_a_wide_bound() {
    let (a, b) = (quantized(ROW, 64, 512, 13), quantized(ROW, 48, 512, 14));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let right = gemm(&a, &b, Format::F32, |i, j| dot(&x, &y, i, j));
    assert_eq!(found(&right).0, Verdict::Pass);
    let cut = scaled(&a, |r| f32::from_bits(a.scale_inv()[r].to_bits() & 0xffff_0000));
    let w = gemm(&a, &b, Format::F32, |i, j| dot(&cut, &y, i, j));
    is_named(&w, "scale_rerounded:a.bf16_truncated", &["cut to bf16"]);
    let part = |i: usize, j: usize, n: usize| (64 * n..64 * n + 64).map(|k| x[(i, k)] * y[(j, k)]).sum::<f64>();
    let w = gemm(&a, &b, Format::F32, |i, j| (0..8).map(|n| round(Format::Bf16, part(i, j, n))).sum());
    let (verdict, name, detail) = found(&w);
    assert_eq!(verdict, Verdict::Fail);
    assert!(name.starts_with("lowprec_acc:"), "{name} {detail}");
}

#[test]
fn orders_of_index_bits_and_signs_of_nibbles_are_named() {
    let (a, b) = (quantized(ROW, 32, 128, 15), quantized("affine_sym:int4:g64", 48, 128, 16));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let order = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];
    let codes: Vec<u8> = (0..48 * 128).map(|at| b.codes()[at / 16 * 16 + order[at % 16]]).collect();
    let mixed = QTensor::new(QTensorParts { codes, ..b.clone().into_parts() }).unwrap().dequantize_fast();
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &mixed, i, j));
    // Groups of 64 have one scale: b in this order, or a in the inverse.
    let (verdict, name, detail) = found(&w);
    assert!(
        verdict == Verdict::Fail && name.starts_with("pack_permute:") && detail.contains("every 16 of K as"),
        "{name} {detail}"
    );
    let raised = |j: usize, k: usize| {
        let negative = b.format().decode(u32::from(b.codes()[j * 128 + k])) < 0.0;
        y[(j, k)] + if negative && k % 2 == 1 { 16.0 * f64::from(b.scale_inv()[j * 2 + k / 64]) } else { 0.0 }
    };
    let w = gemm(&a, &b, Format::Bf16, |i, j| (0..128).map(|k| x[(i, k)] * raised(j, k)).sum());
    is_named(&w, "bits_reinterpreted:b.nibble_sign", &["high nibble"]);
}

#[test]
fn a_limit_and_memory_that_was_not_written_are_named() {
    let (a, b) = (quantized(ROW, 48, 128, 17), quantized(ROW, 64, 128, 18));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let most = (0..48 * 64).map(|at| dot(&x, &y, at / 64, at % 64).abs()).fold(0.0, f64::max);
    let limit = round(Format::Bf16, 0.3 * most);
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j).clamp(-limit, limit));
    is_named(&w, "overflow_wrap:out.limited", &[&format!("±{limit}")]);
    // One row has one size.
    let old = values(Format::Bf16, 1, 48 * 64, 19);
    let w = gemm(&a, &b, Format::Bf16, |i, j| if i < 32 { dot(&x, &y, i, j) } else { f64::from(old.data()[i * 64 + j]) });
    is_named(&w, "mn_edge:out.edge", &["rows 32 … 47", "never written"]);
}

/// A cast to int8 or e4m3 by these scales, and the scale_inv stored beside it.
pub fn cast(x: &Tensor, dtype: Dtype, codes: Vec<u8>, granularity: &str, grid: &[usize], scale_inv: &[f32]) -> Writer {
    let shape = [x.rows(), x.cols()];
    let mut w = Writer::new("cast");
    w.values("a", &shape, x).raw("out.codes", dtype, &shape, codes).f32s("out.scale_inv", grid, scale_inv);
    w.meta("out.granularity", granularity);
    w
}

#[test]
fn casts_are_named_by_what_made_their_codes() {
    let x = values(Format::Bf16, 32, 256, 20);
    let amax = |i: usize, from: usize, to: usize| x.row(i)[from..to].iter().fold(0f32, |m, v| m.max(v.abs()));
    let rows = |max: f32| (0..32).map(|i| amax(i, 0, 256) / max).collect::<Vec<f32>>();
    let int8: Vec<u8> = (0..32 * 256).map(|at| (x.data()[at] / rows(127.0)[at / 256]).trunc() as i8 as u8).collect();
    is_named(&cast(&x, Dtype::I8, int8, "row", &[32], &rows(127.0)), "rounding:out.toward_zero", &["cut"]);
    let e4m3 = |v: f32| Format::E4m3.encode(f64::from(v), Rounding::NearestEven, Overflow::Saturate) as u8;
    let own = rows(448.0);
    let codes = |f: &dyn Fn(f32) -> f32, s: &dyn Fn(usize) -> f32| -> Vec<u8> {
        (0..32 * 256).map(|at| e4m3(f(x.data()[at] / s(at)))).collect()
    };
    let early = codes(&|v| if v.abs() >= 256.0 { 448.0 * v.signum() } else { v }, &|at| own[at / 256]);
    is_named(&cast(&x, Dtype::F8_E4M3, early, "row", &[32], &own), "codec_edge:out.saturated_early", &["saturated too early"]);
    let right = codes(&|v| v, &|at| own[at / 256]);
    let twice: Vec<f32> = own.iter().map(|s| s * 1.06).collect();
    is_named(&cast(&x, Dtype::F8_E4M3, right.clone(), "row", &[32], &twice), "stale_state:out.scale_inv", &["1.06"]);
    let inverse: Vec<f32> = own.iter().map(|s| 1.0 / s).collect();
    is_named(&cast(&x, Dtype::F8_E4M3, right, "row", &[32], &inverse), "scale_doubled_inverted:out.inverted", &[]);
    let groups: Vec<f32> = (0..64).map(|g| amax(g / 2, g % 2 * 128, g % 2 * 128 + 128) / 448.0).collect();
    let of = |at: usize| at / 256 * 2 + at % 256 / 128;
    let late = codes(&|v| v, &|at| groups[of(at) / 2 * 2]);
    is_named(&cast(&x, Dtype::F8_E4M3, late, "group:128", &[32, 2], &groups), "scale_index:out.index", &["were made with"]);
    let turned: Vec<f32> = (0..64).map(|g| groups[g % 32 * 2 + g / 32]).collect();
    let right = codes(&|v| v, &|at| groups[of(at)]);
    is_named(&cast(&x, Dtype::F8_E4M3, right, "group:128", &[32, 2], &turned), "scale_layout:out.index", &["stands at"]);
}

#[test]
fn activations_by_other_formulas_are_named_with_their_place() {
    let x = values(Format::Bf16, 32, 64, 21);
    let quick = |x: f64| x / (1.0 + (-1.702 * x).exp());
    let gelu = |x: f64| x * 0.5 * (1.0 + (0.7978845608 * (x + 0.044715 * x.powi(3))).tanh());
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let made = |f: &dyn Fn(usize, usize, f64) -> f64| {
        let data = (0..32 * 64).map(|at| f(at / 64, at % 64, f64::from(x.data()[at])) as f32).collect();
        let mut w = Writer::new("activation");
        w.meta("fn", "gelu").values("a", &[32, 64], &x);
        w.values("out", &[32, 64], &Tensor::rounded(Format::Bf16, 32, 64, data).unwrap());
        w
    };
    assert_eq!(found(&made(&|_, _, x| gelu(x))).0, Verdict::Pass);
    let part = made(&|_, j, x| if j < 48 { gelu(x) } else { quick(x) });
    is_named(&part, "other_formula:solved", &["quick gelu", "columns 48 … 63"]);
    let two = made(&|i, _, x| if i < 16 { silu(x) } else { quick(x) });
    is_named(&two, "other_formula:solved", &["quick gelu", "silu", "rows 0 … 15", "rows 16 … 31"]);
    // A function that has no name; and what is no function of the value.
    let soft = |x: f64| x * x / (1.0 + x.abs());
    let other = made(&|i, _, x| if i < 20 { soft(x) } else { gelu(x) });
    is_named(&other, "other_formula:solved", &["another function of its value", "instead of", "rows 0 … 19"]);
    let none = found(&made(&|i, j, x| gelu(x) * (1.0 + 0.2 * ((i * 31 + j * 17) % 7) as f64)));
    assert!(none.0 == Verdict::Fail && !none.2.contains("another function"), "{}", none.2);
}

#[test]
fn words_of_packed_codes_and_rounded_operands_are_named() {
    let (a, b) = (quantized(ROW, 32, 128, 22), quantized("affine_sym:int4:g64", 48, 128, 23));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let code = |j: usize, k: usize| b.format().decode(u32::from(b.codes()[j * 128 + k]));
    let step = |j: usize, k: usize| f64::from(b.scale_inv()[j * 2 + k / 64]);
    // Eight nibbles of a word: those of even k are the bytes of one subtraction, those of odd k of another.
    let lends = |j: usize, k: usize| {
        let mut lent = 0.0;
        for at in (k / 8 * 8 + k % 2..k).step_by(2) {
            lent = f64::from(u8::from(code(j, at) - lent < 0.0));
        }
        lent
    };
    let w = gemm(&a, &b, Format::Bf16, |i, j| (0..128).map(|k| x[(i, k)] * (y[(j, k)] - lends(j, k) * step(j, k))).sum());
    is_named(&w, "bits_reinterpreted:b.borrow", &["2 before it", "borrow"]);
    let high = |j: usize, k: usize| if k % 2 == 1 { 8.0 * step(j, k) } else { 0.0 };
    let w = gemm(&a, &b, Format::Bf16, |i, j| (0..128).map(|k| x[(i, k)] * (y[(j, k)] + high(j, k))).sum());
    is_named(&w, "zp_offset:b.lane_offset", &["high nibbles", "8 too large"]);
}

#[test]
fn an_index_that_wraps_and_a_tile_that_overruns_are_named() {
    let (a, b) = (quantized(ROW, 48, 128, 24), quantized(ROW, 96, 128, 25));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let flat = |at: usize| dot(&x, &y, at / 96, at % 96);
    let w = gemm(&a, &b, Format::Bf16, |i, j| {
        let at = i * 96 + j;
        if at >= 4096 { 0.0 } else { flat(if at + 4096 < 48 * 96 { at + 4096 } else { at }) }
    });
    is_named(&w, "overflow_wrap:out.index_wraps", &["4096"]);
    let other = values(Format::F32, 48, 96, 26);
    let w = gemm(&a, &b, Format::Bf16, |i, j| {
        if i > 0 && j < 32 { 0.3 * dot(&x, &y, i - 1, 95 - j) + f64::from(other.data()[j]) } else { dot(&x, &y, i, j) }
    });
    is_named(&w, "mn_edge:out.overrun", &["columns 0 … 31", "of 64"]);
}

#[test]
fn what_reads_twice_is_two_names() {
    let (a, b) = (quantized(ROW, 32, 256, 27), quantized(ROW, 48, 256, 28));
    let y = b.dequantize_fast();
    let x = scaled(&a, |i| a.scale_inv()[(i + 1) % 32]);
    let w = gemm(&a, &b, Format::F32, |i, j| {
        (0..256).map(|k| if (96..176).contains(&k) { 0.0 } else { x[(i, k)] * y[(j, k)] }).sum()
    });
    let (verdict, name, detail) = found(&w);
    assert!(verdict == Verdict::Fail && name.contains(" + ") && name.contains("scale_shared"), "{name} {detail}");
}

#[test]
fn encoders_of_a_cast_are_named() {
    let small = |at: usize| if at.is_multiple_of(3) { 0.5f32.powi(13) } else { 1.0 };
    let x = values(Format::Bf16, 32, 256, 29);
    let x = Tensor::rounded(Format::Bf16, 32, 256, x.data().iter().enumerate().map(|(at, v)| v * small(at)).collect()).unwrap();
    let scale: Vec<f32> = (0..32).map(|i| x.row(i).iter().fold(0f32, |m, v| m.max(v.abs())) / 448.0).collect();
    let y = |at: usize| f64::from(x.data()[at] / scale[at / 256]);
    let code = |v: f64| Format::E4m3.encode(v, Rounding::NearestEven, Overflow::Saturate) as u8;
    let cast = |f: &dyn Fn(usize) -> u8| cast(&x, Dtype::F8_E4M3, (0..32 * 256).map(f).collect(), "row", &[32], &scale);
    let least = 1.0 / 64.0;
    let half = cast(&|at| if y(at).abs() < least { code(0.5 * y(at)) } else { code(y(at)) });
    let (_, name, detail) = found(&half);
    assert!(name.starts_with("codec_edge:out.subnormal"), "{name} {detail}");
    is_named(&cast(&|at| code(y(at)) & !1), "codec_edge:out.odd", &["odd mantissas"]);
    is_named(&cast(&|at| if at / 256 < 8 { code(-y(at)) } else { code(y(at)) }), "silent_skip:out.negated", &["rows 0 … 7"]);
    let dirty = cast(&|at| (at / 4 * 4..=at).fold(0, |bits, k| bits | code(y(k))));
    is_named(&dirty, "pack_permute:out.not_cleared", &["1 apart in every 4"]);
    // Up or down by a hash, up as often as the value is near the upper code.
    let next = |v: f64| (0..126).map(|c| Format::E4m3.decode(c)).find(|x| *x > v).unwrap_or(448.0);
    let draw = |at: usize| ((at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / 2f64.powi(53);
    let drawn = cast(&|at| {
        let (v, sign) = (y(at).abs(), y(at).signum());
        let down = Format::E4m3.decode(Format::E4m3.encode(v, Rounding::TowardZero, Overflow::Saturate));
        code(sign * if draw(at) < (v - down) / (next(v) - down) { next(v) } else { down })
    });
    is_named(&drawn, "sr_broken:out.stochastic", &["by chance"]);
    let mut data = x.data().to_vec();
    (0..data.len()).step_by(97).for_each(|at| data[at] = f32::NAN);
    let holes = Tensor::rounded(Format::Bf16, 32, 256, data).unwrap();
    let codes = |at: usize| if holes.data()[at].is_nan() { code(448.0) } else { code(y(at)) };
    let nan = self::cast(&holes, Dtype::F8_E4M3, (0..32 * 256).map(codes).collect(), "row", &[32], &scale);
    is_named(&nan, "codec_edge:out.special", &["NaN becomes 448"]);
}

#[test]
fn scales_chosen_by_other_rules_are_named() {
    let x = values(Format::Bf16, 32, 64, 41);
    let amax: Vec<f32> = (0..32).map(|i| x.row(i).iter().fold(0f32, |m, v| m.max(v.abs()))).collect();
    let cast = |scale: &dyn Fn(usize) -> f32| {
        let scales: Vec<f32> = (0..32).map(scale).collect();
        let code = |at: usize| {
            let y = f64::from(x.data()[at] * (1.0 / scales[at / 64]));
            Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let mut w = cast(&x, Dtype::F8_E4M3, (0..32 * 64).map(code).collect(), "row", &[32], &scales);
        w.meta("recipe", "float8_rowwise_gw_hp");
        w
    };
    assert_eq!(found(&cast(&|i| 1.0 / (448.0 / amax[i]))), (Verdict::Pass, String::new(), String::new()));
    let mut sorted = amax.clone();
    sorted.sort_by(f32::total_cmp);
    let least = sorted[9] / 448.0;
    is_named(&cast(&|i| (amax[i] / 448.0).max(least)), "range_rule:out.limit", &["at least", "9 of 32"]);
    let before = cast(&|i| amax[i].max(amax[i.saturating_sub(1)]) / 448.0);
    is_named(&before, "amax_scope:out.amax_rows", &["the row before it"]);
}

#[test]
fn zero_points_that_are_off_by_one_are_named() {
    let x = values(Format::F32, 24, 128, 43);
    let ends: Vec<(f32, f32)> =
        (0..24).map(|i| x.row(i).iter().fold((0f32, 0f32), |(low, high), v| (low.min(*v), high.max(*v)))).collect();
    let scale: Vec<f32> = ends.iter().map(|(low, high)| (high - low) / 255.0).collect();
    let zero: Vec<i8> = (0..24).map(|i| (-128.0 - (ends[i].0 / scale[i]).round_ties_even()) as i8).collect();
    let cast = |off: f32| {
        let code = |at: usize| {
            let y = (x.data()[at] / scale[at / 128]).round_ties_even() + f32::from(zero[at / 128]) + off;
            y.clamp(-128.0, 127.0) as i8 as u8
        };
        let mut w = cast(&x, Dtype::I8, (0..24 * 128).map(code).collect(), "row", &[24], &scale);
        w.meta("out.zero", "integer").raw("out.zero_point", Dtype::I8, &[24], zero.iter().map(|z| *z as u8).collect());
        w
    };
    assert_eq!(found(&cast(0.0)).0, Verdict::Pass);
    is_named(&cast(-1.0), "zp_offset:out.zero_point", &["-1 off"]);
}

#[test]
fn sums_of_a_norm_are_named() {
    let x = values(Format::F32, 24, 192, 30);
    let made = |f: &dyn Fn(&[f64], usize) -> f64| {
        let data = (0..24 * 192).map(|at| {
            let row: Vec<f64> = x.row(at / 192).iter().map(|v| f64::from(*v)).collect();
            (row[at % 192] / (f(&row, at / 192) + 1e-5).sqrt()) as f32
        });
        let mut w = Writer::new("rmsnorm");
        w.meta("eps", "1e-5").values("a", &[24, 192], &x).values(
            "gamma",
            &[192],
            &Tensor::rounded(Format::F32, 1, 192, vec![1.0; 192]).unwrap(),
        );
        w.values("out", &[24, 192], &Tensor::rounded(Format::F32, 24, 192, data.collect()).unwrap());
        w
    };
    let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    assert_eq!(found(&made(&|x, _| square(x) / 192.0)).0, Verdict::Pass);
    is_named(
        &made(&|x, _| (square(x) - square(&x[64..128])) / 192.0),
        "other_formula:solved",
        &["mean square lacks", "64 wide"],
    );
    let part = made(&|x, i| if i < 12 { square(x) / 192.0 } else { square(&x[..160]) / 192.0 });
    is_named(&part, "other_formula:solved", &["rows 12 … 23"]);
    let all = (0..24).map(|i| square(&x.row(i).iter().map(|v| f64::from(*v)).collect::<Vec<_>>())).sum::<f64>();
    is_named(&made(&|_, _| all / (24.0 * 192.0)), "other_formula:solved", &["the mean over all 24 rows"]);
    let next = |i: usize| if i < 23 { f64::from(x.row(i + 1)[0]).powi(2) } else { 0.0 };
    is_named(&made(&|x, i| (square(x) + next(i)) / 192.0), "other_formula:solved", &["the first element of the next row"]);
    let noisy = made(&|x, i| square(x) / 192.0 * (1.0 + 0.01 * ((i * 37 % 11) as f64 - 5.0)));
    is_named(&noisy, "other_formula:solved", &["no known choice of elements"]);
    // Of the wrong rows alone: no right one is 1.0000 times the right divisor.
    let third = |i: usize| if i % 3 == 1 { 1.1 + 0.02 * (i % 5) as f64 } else { 1.0 };
    let some = made(&|x, i| square(x) / 192.0 * third(i));
    is_named(&some, "other_formula:solved", &["a divisor that is 1.0488 to 1.0863 times the right one"]);
    let heads = |x: &[f64], j: usize| square(&x[j / 48 * 48..j / 48 * 48 + 48]) / 48.0;
    let data = (0..24 * 192).map(|at| {
        let row: Vec<f64> = x.row(at / 192).iter().map(|v| f64::from(*v)).collect();
        (row[at % 192] / (heads(&row, at % 192) + 1e-5).sqrt()) as f32
    });
    let mut w = made(&|_, _| 1.0);
    w.values("out", &[24, 192], &Tensor::rounded(Format::F32, 24, 192, data.collect()).unwrap());
    is_named(&w, "other_formula:solved", &["each 48 columns of the row"]);
}
