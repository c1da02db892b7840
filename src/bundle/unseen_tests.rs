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
        &["every 2th", "from element 1"],
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
    let moved = |i: usize, j: usize| f64::from(a.scale_inv()[(i + j % 4).min(47)]) / f64::from(a.scale_inv()[i]);
    let w = gemm(&a, &b, Format::Bf16, |i, j| dot(&x, &y, i, j) * moved(i, j));
    is_named(&w, "scale_index:a.moved", &["0, 1, 2, 3 for j mod 4"]);
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
