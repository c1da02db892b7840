//! Casts, dequantizations, activations and norms whose numbers are right and stand at, or come from, other places: signs of other lanes, an amax of what
//! lies beside a group, fields of bytes at another distance, a second level along the other axis, columns of an earlier call. Whole bundles.

use super::Writer;
use super::named_tests::{found, is_named, values};
use crate::compare::Verdict;
use crate::op::Act;
use crate::op::activation::act;
use crate::quant::{Level, QTensorParts, Zero};
use crate::recipe::Recipe;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor};
use safetensors::Dtype;

/// The detail of a failure.
fn said(w: &Writer) -> String {
    let (verdict, _, detail) = found(w);
    assert_eq!(verdict, Verdict::Fail, "{detail}");
    detail
}

fn quantized(recipe: &str, x: &Tensor) -> QTensorParts {
    recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q.into_parts()
}

fn cast(recipe: &str, x: &Tensor, p: QTensorParts) -> Writer {
    let mut w = Writer::new("cast");
    w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x);
    w.codes("out", &QTensor::new(p).unwrap(), None, None).unwrap();
    w
}

#[test]
fn signs_of_another_lane_are_named() {
    let x = values(Format::Bf16, 32, 128, 11);
    let mut p = quantized("te_mxfp8", &x);
    let own = p.codes.clone();
    assert_eq!(found(&cast("te_mxfp8", &x, p.clone())).0, Verdict::Pass);
    p.codes.iter_mut().enumerate().for_each(|(at, c)| *c = *c & 0x7f | own[at / 4 * 4] & 0x80);
    let words = ["of every 4 elements of a row all have that of element 0"];
    is_named(&cast("te_mxfp8", &x, p), "pack_permute:out.signs", &words);
}

#[test]
fn an_amax_that_also_covers_the_next_group_is_named() {
    let x = values(Format::F32, 24, 160, 12);
    let mut p = quantized("affine_sym:int4:g40", &x);
    let (own, n) = (p.clone(), 24 * 160);
    let most = |from: usize, to: usize| x.data()[from..to.min(n)].iter().fold(0f32, |m, v| m.max(v.abs()));
    for g in 0..n / 40 {
        p.scale_inv[g] = own.scale_inv[g] * (most(40 * g, 40 * g + 64) / most(40 * g, 40 * g + 40));
        for at in 40 * g..40 * g + 40 {
            let y = f64::from(x.data()[at]) / f64::from(p.scale_inv[g]);
            p.codes[at] = Format::Int4.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
        }
    }
    let words =
        ["covers the first 24 elements behind it, behind the last of a row those of the next row: 64 lanes read a group of 40"];
    is_named(&cast("affine_sym:int4:g40", &x, p), "amax_scope:out.amax_over", &words);
}

#[test]
fn an_amax_of_the_least_tile_and_what_a_guess_may_be_are_told() {
    let x = values(Format::F32, 48, 96, 13);
    let with = |amax: f32| {
        let scale = 448.0 / x.data().iter().fold(0f32, |m, v| m.max(v.abs()));
        let code = |v: &f32| Format::E4m3.encode(f64::from(v * scale), Rounding::NearestEven, Overflow::Saturate) as u8;
        let mut w = Writer::new("cast");
        w.values("a", &[48, 96], &x).raw("out.codes", Dtype::F8_E4M3, &[48, 96], x.data().iter().map(code).collect());
        w.f32s("out.scale", &[1], &[scale]).f32s("out.scale_inv", &[1], &[1.0 / scale]).f32s("out.amax", &[1], &[amax]);
        said(&w)
    };
    let tile = |t: usize| {
        let inside = |at: &usize| at / 96 / 16 == t / 3 && at % 96 / 32 == t % 3;
        (0..48 * 96).filter(inside).fold(0f32, |m, at| m.max(x.data()[at].abs()))
    };
    let least = (0..9).map(tile).fold(f32::INFINITY, f32::min);
    let words = with(least);
    assert!(words.contains("amax is the least of the largest magnitudes of tiles of 16×32"), "{words}");
    // One larger element is outside of many parts: all of them are told.
    let mut all: Vec<f32> = x.data().iter().map(|v| v.abs()).collect();
    all.sort_by(f32::total_cmp);
    let words = with(all[all.len() - 2]);
    assert!(words.contains("; perhaps ") && words.contains(", or "), "{words}");
}

#[test]
fn exchanged_bytes_of_a_transposed_copy_are_named() {
    let (rows, cols) = (32usize, 64usize);
    let x = values(Format::Bf16, rows, cols, 52);
    let scale = x.data().iter().fold(0f32, |m, v| m.max(v.abs())) / 448.0;
    let code = |v: &f32| Format::E4m3.encode(f64::from(v / scale), Rounding::NearestEven, Overflow::Saturate) as u8;
    let codes: Vec<u8> = x.data().iter().map(code).collect();
    let from = |r: usize| if (r / 4).is_multiple_of(2) && matches!(r % 4, 1 | 2) { r ^ 3 } else { r };
    let copy = (0..rows * cols).map(|at| codes[from(at % rows) * cols + at / rows]).collect();
    let mut w = Writer::new("cast");
    w.values("a", &[rows, cols], &x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes);
    w.f32s("out.scale_inv", &[], &[scale]).raw("out.transpose", Dtype::F8_E4M3, &[cols, rows], copy);
    is_named(
        &w,
        "pack_permute:transpose.bytes",
        &["in every second 32-bit word, from word 0 on,", "bytes 1 and 2 are exchanged"],
    );
}

/// 8 rows of 256 codes in groups of 16 with integers for scales, a number for each 16 groups; and the result by other integers, numbers and codes.
fn dequantized(part: &dyn Fn(i64) -> i64, over: &dyn Fn(usize) -> usize, code: &dyn Fn(usize) -> usize) -> Writer {
    let (rows, cols, size) = (8usize, 256usize, 16usize);
    let groups = rows * cols / size;
    let integer = |g: usize| ((g * 7919 + 101) % 1009 % 64) as i64 - 32;
    let own = |n: usize| ((n * 7919 + n / 13) % 1009 % 32) as u8;
    let numbers: Vec<f32> = (0..rows).map(|b| (3 + b * 5 % 8) as f32 / 256.0).collect();
    let q = QTensor::new(QTensorParts {
        format: Format::Int8,
        rows,
        cols,
        codes: (0..rows * cols).map(own).collect(),
        granularity: Granularity::Group(size),
        scale_format: Format::F16,
        scale_inv: (0..groups).map(|g| integer(g) as f32).collect(),
        zero: Zero::None,
        level: Some(Level { granularity: Granularity::Group(16), format: Format::F16, scale_inv: numbers.clone(), zero: None }),
    })
    .unwrap();
    let y = |at: usize| {
        let g = at / size;
        (f64::from(own(code(at))) * part(integer(g)) as f64 * f64::from(numbers[over(g)])) as f32
    };
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, None).unwrap();
    w.f32s("out", &[rows, cols], &(0..rows * cols).map(y).collect::<Vec<_>>());
    w
}

#[test]
fn dequantizations_by_other_bits_and_places_are_named() {
    let (same, row, here) = (|k: i64| k, |g: usize| g / 16, |at: usize| at);
    assert_eq!(found(&dequantized(&same, &row, &here)).0, Verdict::Pass);
    let words = said(&dequantized(&|k| (k + 32) % 16 - 8, &row, &here));
    assert!(words.contains("the lower 4 bits alone are used, less 8 where they are stored with 32 more"), "{words}");
    let words = said(&dequantized(&same, &|g| g % 16 % 8, &here));
    assert!(words.contains("has number c mod 8 and not r: it is multiplied along the other axis"), "{words}");
    // Nibbles and fifth bits one after the other, where both are 32 apart.
    let planes = |at: usize| {
        let (base, i) = (at - at % 256, at % 256);
        (base + i / 64 * 64 + i % 2 * 32 + i / 2 % 32, base + i % 8 * 32 + i / 8)
    };
    let own = |n: usize| (n * 7919 + n / 13) % 1009 % 32;
    let mixed: Vec<usize> = (0..8 * 256).map(|at| own(planes(at).0) & 15 | own(planes(at).1) & 16).collect();
    // A place that holds each code.
    let holds = |code: usize| (0..8 * 256).find(|n| own(*n) == code).unwrap();
    let words = said(&dequantized(&same, &row, &|at| holds(mixed[at])));
    assert!(words.contains("codes are read in another layout: bits 0 … 3") && words.contains("; bit 4 of codes is"), "{words}");
}

#[test]
fn activations_of_other_values_are_named() {
    // Codes whose factor in front was not quantized.
    let x = values(Format::F32, 24, 96, 21);
    let s = x.data().iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
    let codes: Vec<u8> = x
        .data()
        .iter()
        .map(|v| Format::Int8.encode(f64::from(v / s), Rounding::NearestEven, Overflow::Saturate) as u8)
        .collect();
    let value = |at: usize| f64::from(codes[at] as i8) * f64::from(s);
    let with = |y: &dyn Fn(usize) -> f64| {
        let mut w = Writer::new("activation");
        w.meta("fn", "silu").meta("a.granularity", "tensor").raw("a.codes", Dtype::I8, &[24, 96], codes.clone());
        w.f32s("a.scale_inv", &[1], &[s]).f32s("out", &[24, 96], &(0..24 * 96).map(|at| y(at) as f32).collect::<Vec<_>>());
        w
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    assert_eq!(found(&with(&|at| value(at) * sigmoid(value(at)))).0, Verdict::Pass);
    let words = said(&with(&|at| f64::from(x.data()[at]) * sigmoid(value(at))));
    assert!(words.contains("the factor in front of the gate is the value before it is quantized"), "{words}");
    // The exact GELU instead of its approximation, beside columns of an earlier call.
    let (g, old) = (values(Format::F32, 40, 64, 22), values(Format::F32, 40, 64, 23));
    let y = |at: usize| if at % 64 < 48 { act(Act::GeluErf, f64::from(g.data()[at])) as f32 } else { old.data()[at] };
    let mut w = Writer::new("activation");
    w.meta("fn", "gelu").values("a", &[40, 64], &g).f32s("out", &[40, 64], &(0..40 * 64).map(y).collect::<Vec<_>>());
    let words = said(&w);
    assert!(words.contains(", in columns 0 … 47; and columns 48 … 63 hold numbers that have nothing to do"), "{words}");
}

/// Of an element at a row and a column, by the mean and divisor of any row.
type OfMoments<'a> = &'a dyn Fn(&dyn Fn(usize) -> (f64, f64), usize, usize) -> f64;

/// A norm of 36 rows of 95 by its mean and divisor of row i, gamma and beta; in bf16 values.
fn norm(op: &str, eps: &str, y: OfMoments) -> Writer {
    let (rows, cols) = (36usize, 95usize);
    let (x, gamma, beta) = norm_values();
    let by: f64 = eps.parse().unwrap();
    let moments = |i: usize| {
        let n = cols as f64;
        let m = if op == "layernorm" { x.row(i).iter().map(|v| f64::from(*v)).sum::<f64>() / n } else { 0.0 };
        (m, x.row(i).iter().map(|v| (f64::from(*v) - m).powi(2)).sum::<f64>() / n + by)
    };
    let mut w = Writer::new(op);
    w.meta("eps", eps).values("a", &[rows, cols], &x).f32s("gamma", &[cols], &gamma);
    if op == "layernorm" {
        w.f32s("beta", &[cols], &beta);
    }
    w.f32s("out", &[rows, cols], &(0..rows * cols).map(|at| y(&moments, at / cols, at % cols) as f32).collect::<Vec<_>>());
    w
}

fn norm_values() -> (Tensor, Vec<f32>, Vec<f32>) {
    let vector = |seed: u32| values(Format::F32, 1, 95, seed).data().to_vec();
    (values(Format::Bf16, 36, 95, 31), vector(32), vector(33))
}

#[test]
fn norms_with_numbers_of_other_rows_and_places_are_named() {
    let (x, gamma, beta) = norm_values();
    let x = |i: usize, j: usize| f64::from(x.row(i)[j]);
    let (g, b) = (|j: usize| f64::from(gamma[j]), |j: usize| f64::from(beta[j]));
    let right = norm("layernorm", "1e-3", &|of, i, j| (x(i, j) - of(i).0) / of(i).1.sqrt() * g(j) + b(j));
    assert_eq!(found(&right).0, Verdict::Pass);
    let turned = |i: usize, j: usize| (j / 32 * 32 + i % 32).min(94);
    let w = norm("layernorm", "1e-3", &|of, i, j| {
        let at = if j < 64 { turned(i, j) } else { j };
        (x(i, j) - of(i).0) / of(i).1.sqrt() * g(at) + b(at)
    });
    assert!(
        said(&w).contains("column j of row i takes gamma[32·(j / 32) + i mod 32] and beta[32·(j / 32) + i mod 32]"),
        "{}",
        said(&w)
    );
    // Rows behind the 24th are not written, and eps is added elsewhere.
    let w =
        norm("rmsnorm", "1e-2", &|of, i, j| if i < 24 { x(i, j) * (1.0 / (of(i).1 - 1e-2).sqrt() + 1e-2) * g(j) } else { 0.0 });
    let words = said(&w);
    assert!(words.contains("eps is added to the reciprocal of the root, not under it"), "{words}");
    assert!(words.contains("rows 24 … 35 hold 0 in all of it: they are not written"), "{words}");
    // Every third row's column 0 is by the row before.
    let w = norm("rmsnorm", "1e-3", &|of, i, j| match i % 3 == 1 && j == 0 {
        true => x(i, j) / of(i - 1).1.sqrt() * 0.75,
        false => x(i, j) / of(i).1.sqrt() * g(j),
    });
    assert!(said(&w).contains("column 0 is written again by the row before, whose vectors of 2 run on"), "{}", said(&w));
    // A gamma without its stride, and another eps.
    let w = norm("rmsnorm", "1e-3", &|of, i, j| {
        x(i, j) / (of(i).1 - 1e-3 + 1e-5).sqrt() * if j % 2 == 0 { g(j / 2) } else { 3.0 + (j * 29 % 31) as f64 / 31.0 }
    });
    let words = said(&w);
    assert!(words.contains("column j takes gamma[j / 2] where 2 divides j") && words.contains("; and eps is 1e-5"), "{words}");
    // The last columns take a partial sum of the variance for their mean.
    let partial = |of: &dyn Fn(usize) -> (f64, f64), i: usize| (0..19).map(|j| (x(i, j) - of(i).0).powi(2)).sum::<f64>() / 19.0;
    let w = norm("layernorm", "1e-3", &|of, i, j| {
        (x(i, j) - if j >= 60 { partial(of, i) } else { of(i).0 }) / of(i).1.sqrt() * g(j) + b(j)
    });
    let words = said(&w);
    assert!(
        words.contains("(the mean of the squares of columns 0 … 18 about the mean): columns 60 … 94 of every row"),
        "{words}"
    );
}
