//! Bugs of real threads that an outside exam asked and that had no name, or a wrong one: products.

use super::Writer;
use super::named_tests::{ROW, dot, found, gemm, is_named, quantized, round, scaled, values};
use crate::compare::Verdict;
use crate::{Format, QTensor};

/// A number of [−1, 1) for a place.
fn noise(at: usize) -> f64 {
    let mixed = (at as u32).wrapping_mul(0x9E37_79B9) ^ (at as u32).wrapping_mul(0x85EB_CA6B) >> 13;
    f64::from(mixed.wrapping_mul(0xC2B2_AE35) >> 8) / 8_388_608.0 - 1.0
}

/// FP8 on a Hopper GPU whose sums are of no arithmetic that is known: off by up to 2⁻¹⁴ of what is summed, inside the bound of its unit.
fn on_hopper(of: &dyn Fn(&[f64], &[f64]) -> f64) -> Writer {
    let (a, b) = (quantized("te_current", 24, 640, 501), quantized("te_current", 40, 640, 502));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let rows = |m: &ndarray::Array2<f64>, i: usize| m.row(i).to_vec();
    let size = |i: usize, j: usize| x.row(i).iter().zip(y.row(j)).map(|(x, y)| (x * y).abs()).sum::<f64>();
    let mut w =
        gemm(&a, &b, Format::F32, |i, j| of(&rows(&x, i), &rows(&y, j)) + size(i, j) * noise(i * 40 + j) * 2f64.powi(-14));
    w.meta("device", "NVIDIA H100 80GB HBM3");
    w
}

/// No right element has a bit of the arithmetic that was assumed, so that its bits refuse nothing.
#[test]
fn what_a_unit_by_another_order_did_is_named_within_its_bound() {
    let sum = |x: &[f64], y: &[f64], k: std::ops::Range<usize>| x[k.clone()].iter().zip(&y[k]).map(|(x, y)| x * y).sum::<f64>();
    assert_eq!(found(&on_hopper(&|x, y| sum(x, y, 0..640))).0, Verdict::Pass);
    is_named(&on_hopper(&|x, y| sum(x, y, 0..576)), "k_tail:k.dropped", &["the last 64 of K (576 … 639)"]);
    is_named(&on_hopper(&|x, y| 1.37 * sum(x, y, 0..640)), "stale_state:out.gain", &["multiplied by 1."]);
    // A ratio of two other formats' maxima is no constant of this one.
    is_named(&on_hopper(&|x, y| 0.4 * sum(x, y, 0..640)), "stale_state:out.gain", &["multiplied by 0.4"]);
}

#[test]
fn a_sum_of_int8_that_is_kept_in_8_bits_is_named() {
    let (a, b) = (quantized("int8_token_sym", 24, 96, 503), quantized("int8_token_sym", 32, 96, 504));
    let code = |q: &QTensor, i: usize, k: usize| i64::from(q.codes()[i * 96 + k] as i8);
    let sum = |i: usize, j: usize| (0..96).map(|k| code(&a, i, k) * code(&b, j, k)).sum::<i64>();
    let by = |of: &dyn Fn(i64) -> i64| {
        gemm(&a, &b, Format::F32, |i, j| of(sum(i, j)) as f64 * f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j]))
    };
    assert_eq!(found(&by(&|x| x)).0, Verdict::Pass);
    is_named(&by(&|x| i64::from(x as i8)), "overflow_wrap:out.accumulator_i8_wrapped", &["wraps at 8 bits"]);
    is_named(&by(&|x| x.clamp(-128, 127)), "overflow_wrap:out.accumulator_i8_clamped", &["clamped to 8 bits"]);
}

#[test]
fn numbers_that_are_fp8_on_their_way_are_named() {
    let (a, b) = (quantized("te_current", 24, 96, 505), quantized("te_current", 32, 96, 506));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let unit = f64::from(a.scale_inv()[0]) * f64::from(b.scale_inv()[0]);
    for f in [Format::E4m3, Format::E5m2] {
        let saturated = |v: f64| f.decode(f.encode(v, crate::Rounding::NearestEven, crate::Overflow::Saturate));
        let products = |i: usize, j: usize| (0..96).map(|k| saturated(x[(i, k)] * y[(j, k)] / unit) * unit).sum();
        let words = format!("every product of codes is rounded to {f}");
        is_named(&gemm(&a, &b, Format::F32, products), "lowprec_acc:out.product_rounded", &[&words]);
    }
    // Those of the sums that are large enough are NaN.
    let sums = gemm(&a, &b, Format::Bf16, |i, j| round(Format::E4m3Fnuz, dot(&x, &y, i, j)));
    is_named(&sums, "round_order:out.rounded_before_bias", &["the sum is rounded to e4m3fnuz"]);
}

#[test]
fn weights_in_rows_of_another_length_are_named() {
    let (a, b) = (quantized(ROW, 24, 256, 507), quantized(ROW, 48, 256, 508));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    // A view of 256 columns of rows of 384, the rest of which is 0.
    let raw = |f: usize| if f % 384 < 256 { y[(f / 384, f % 384)] / f64::from(b.scale_inv()[f / 384]) } else { 0.0 };
    let view = |i: usize, j: usize| (0..256).map(|k| x[(i, k)] * raw(j * 256 + k) * f64::from(b.scale_inv()[j])).sum();
    is_named(
        &gemm(&a, &b, Format::Bf16, view),
        "addressing:b.stride",
        &["in rows of 384, padded, and read at a row stride of 256"],
    );
    // Codes and groups of scales by a length of K that is compiled in.
    let b = quantized("affine_sym:int8:g32", 48, 256, 509);
    let y = b.dequantize_fast();
    let flat = |f: usize| if f < 48 * 256 { y[(f / 256, f % 256)] } else { 0.0 };
    let baked = |i: usize, j: usize| (0..256).map(|k| x[(i, k)] * flat(j * 384 + k)).sum();
    let words = ["codes and scales of b are read at a row stride of 384 instead of 256"];
    is_named(&gemm(&a, &b, Format::Bf16, baked), "addressing:b.stride", &words);
}

/// Three experts of int4 by groups of 32, whose values are `of` an expert, its row and k.
fn experts(k: usize, scale: &dyn Fn(usize) -> f64, past: usize) -> Writer {
    const ENDS: [i32; 3] = [9, 20, 31];
    let (x, b) = (values(Format::Bf16, 31, k, 510), quantized("affine_sym:int4:g32", 3 * 32, k, 511));
    let y = b.dequantize_fast();
    let value = |e: usize, j: usize, k_at: usize| match k_at < k {
        true => scale(e) * y[(e * 32 + j, k_at)],
        false if e < 2 => y[((e + 1) * 32 + j, k_at - k)],
        false => 0.0,
    };
    let left = |i: usize, k_at: usize| x.data().get(i * k + k_at).map_or(0.0, |v| f64::from(*v));
    let expert = |i: usize| ENDS.iter().filter(|end| **end as usize <= i).count();
    let one = |i: usize, j: usize| (0..k + past).map(|at| left(i, at) * value(expert(i), j, at)).sum::<f64>() as f32;
    let mut w = Writer::new("grouped_gemm");
    w.values("a", &[31, k], &x).codes("b", &b, Some(3), None).unwrap().i32s("offs", &[3], &ENDS);
    let out = (0..31 * 32).map(|at| one(at / 32, at % 32)).collect();
    w.values("out", &[31, 32], &crate::Tensor::rounded(Format::Bf16, 31, 32, out).unwrap());
    w
}

#[test]
fn what_lies_behind_an_experts_k_is_named() {
    assert_eq!(found(&experts(96, &|_| 1.0, 0)).0, Verdict::Pass);
    let words = ["the last tile of 64 of K is not masked", "of b the start of the same row of the next group"];
    is_named(&experts(96, &|_| 1.0, 32), "k_tail:k.unmasked", &words);
}

/// Four scales that are all smaller, by factors of their own.
#[test]
fn scales_of_other_experts_are_a_name_and_one_factor_is_none() {
    let (a, b) = (quantized(ROW, 40, 128, 512), quantized("te_block_128x128", 4 * 128, 128, 513));
    let x = a.dequantize_fast();
    let by = |factors: [f32; 4]| {
        let y = scaled(&b, |r| b.scale_inv()[r] * factors[r]);
        gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j))
    };
    is_named(&by([0.6, 0.66, 0.55, 0.87]), "stale_state:b.gains", &["are not among the stored ones"]);
    assert!(!found(&by([0.6, 0.61, 0.6, 0.62])).1.contains("b.gains"));
}

/// A gain that is the ratio of no maxima of this format: 2.5 of int4, which is 15/6.
#[test]
fn a_factor_of_the_whole_is_no_ratio_of_other_formats() {
    let (a, b) = (values(Format::Bf16, 24, 96, 514), quantized("affine_sym:int4:g32", 32, 96, 515));
    let (x, y) = (a.to_f64(), b.dequantize_fast());
    let mut w = Writer::new("gemm");
    w.values("a", &[24, 96], &a).codes("b", &b, None, None).unwrap();
    let out = (0..24 * 32).map(|at| (2.5 * dot(&x, &y, at / 32, at % 32)) as f32).collect();
    w.values("out", &[24, 32], &crate::Tensor::rounded(Format::F32, 24, 32, out).unwrap());
    is_named(&w, "stale_state:out.gain", &["multiplied by 2.5"]);
}

#[test]
fn a_bias_that_is_added_to_what_is_stored_twice_is_named() {
    let (a, b) = (quantized(ROW, 24, 96, 516), quantized(ROW, 32, 96, 517));
    let (x, y) = (a.dequantize_fast(), b.dequantize_fast());
    let bias: Vec<f32> = (0..32).map(|j| round(Format::F16, 3.0 * noise(j)) as f32).collect();
    let half = |x: f64| round(Format::F16, x);
    let one = |i: usize, j: usize| half(half(half(dot(&x, &y, i, j)) + f64::from(bias[j])) + f64::from(bias[j]));
    let mut w = gemm(&a, &b, Format::F16, one);
    w.values("bias", &[32], &crate::Tensor::new(Format::F16, 1, 32, bias.clone()).unwrap());
    is_named(&w, "silent_skip:out.bias_again", &["added twice, each time to a result that is stored"]);
}

/// Every third row is smaller and its variance, which is still larger than eps, is taken for 0.
#[test]
fn a_variance_that_is_taken_for_zero_is_named() {
    let spread = |i: usize| if i.is_multiple_of(3) { 0.1 } else { 1.0 };
    let x: Vec<f32> = (0..24 * 64).map(|at| (spread(at / 64) * noise(at)) as f32).collect();
    let row = |i: usize| -> Vec<f64> { x[i * 64..(i + 1) * 64].iter().map(|v| f64::from(*v)).collect() };
    let one = |i: usize, j: usize| {
        let row = row(i);
        let mean = row.iter().sum::<f64>() / 64.0;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 64.0;
        (row[j] - mean) / (if spread(i) < 1.0 { 0.0 } else { variance } + 1e-5).sqrt()
    };
    let mut w = Writer::new("layernorm");
    w.meta("eps", "1e-5").f32s("a", &[24, 64], &x).f32s("gamma", &[64], &[1.0; 64]).f32s("beta", &[64], &[0.0; 64]);
    w.f32s("out", &[24, 64], &(0..24 * 64).map(|at| one(at / 64, at % 64) as f32).collect::<Vec<_>>());
    is_named(&w, "other_formula:solved", &["the variance is not there: values are divided by the root of eps, in rows 0, 3"]);
}
