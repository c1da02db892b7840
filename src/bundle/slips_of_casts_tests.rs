//! Casts and dequantizations of which an outside exam asked: zero points that wrap, scales and words that are stored where others belong, scales that
//! are made as whole numbers; and norms whose padding or eps is not what it should be.

use super::Writer;
use super::named_tests::{found, is_named, values};
use crate::compare::Verdict;
use crate::format::pack::NibbleOrder;
use crate::quant::{QTensorParts, Zero};
use crate::recipe::Recipe;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor};

const ROWS: usize = 48;
const COLS: usize = 160;
const GROUP: usize = 32;

fn code(f: Format, y: f64) -> u8 {
    f.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

/// ROWS × COLS codes with one level of scales and no zero points.
fn coded(format: Format, granularity: Granularity, scale_format: Format, scale_inv: Vec<f32>, codes: Vec<u8>) -> QTensor {
    let (zero, level) = (Zero::None, None);
    let parts = QTensorParts { format, rows: ROWS, cols: COLS, codes, granularity, scale_format, scale_inv, zero, level };
    QTensor::new(parts).unwrap()
}

/// The largest magnitude of each row.
fn largest(x: &Tensor) -> Vec<f32> {
    x.data().chunks(COLS).map(|row| row.iter().fold(0f32, |m, v| m.max(v.abs()))).collect()
}

fn by_recipe(recipe: &str, x: &Tensor) -> QTensor {
    recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q
}

/// A cast of these values to these codes, without a recipe.
fn cast(x: &Tensor, q: &QTensor) -> Writer {
    let packing = (q.format().bits() == 4).then_some(NibbleOrder::LowFirst);
    let mut w = Writer::new("cast");
    w.values("a", &[x.rows(), x.cols()], x).codes("out", q, None, packing).unwrap();
    w
}

/// An asymmetric cast to int8 by groups of columns; `shift` moves the values of row i. Scales, zero points before they are stored, codes.
fn affine(group: usize, shift: &dyn Fn(usize) -> f32) -> (Tensor, QTensorParts, Vec<i64>) {
    let mut x = values(Format::F32, ROWS, COLS, 901);
    let moved = x.data().iter().enumerate().map(|(at, v)| v + shift(at / COLS)).collect();
    x = Tensor::new(Format::F32, ROWS, COLS, moved).unwrap();
    let groups = COLS / group;
    let (mut scale_inv, mut zero) = (Vec::new(), Vec::new());
    for g in 0..ROWS * groups {
        let some = &x.data()[g * group..][..group];
        let (low, high) = some.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        let s = (high - low) / 255.0;
        scale_inv.push(s);
        zero.push((-128.0 - f64::from(low / s)).round() as i64);
    }
    let y =
        |at: usize| (f64::from(x.data()[at]) / f64::from(scale_inv[at / group])).round_ties_even() + zero[at / group] as f64;
    let codes = (0..ROWS * COLS).map(|at| code(Format::Int8, y(at))).collect();
    let parts = QTensorParts {
        format: Format::Int8,
        rows: ROWS,
        cols: COLS,
        codes,
        granularity: if group == COLS { Granularity::Row } else { Granularity::Group(group) },
        scale_format: Format::F32,
        scale_inv,
        zero: Zero::None,
        level: None,
    };
    (x, parts, zero)
}

fn stored(parts: &QTensorParts, zero: Vec<i32>, scale_inv: Vec<f32>) -> QTensor {
    let codes = parts.codes.clone();
    QTensor::new(QTensorParts { zero: Zero::Integer(zero), scale_inv, codes, ..parts.clone() }).unwrap()
}

#[test]
fn zero_points_that_wrap_are_told_from_codes_that_do() {
    // Rows far from 0, on both sides of it.
    let (x, parts, zero) = affine(COLS, &|i| [0.0, 3.0, -2.0, 6.0][i % 4]);
    let wraps = zero.iter().filter(|z| !(-128..128).contains(*z)).count();
    assert!(wraps > 4 && zero.iter().any(|z| *z > 127) && zero.iter().any(|z| *z < -128));
    let wrapped: Vec<i32> = zero.iter().map(|z| i32::from(*z as i8)).collect();
    let w = cast(&x, &stored(&parts, wrapped, parts.scale_inv.clone()));
    is_named(
        &w,
        "overflow_wrap:out.zero_wrapped",
        &[&format!("{wraps} of 48 zero points wrap in 8 bits when they are stored")],
    );
    // Codes that wrap by themselves, beside a zero point that is none of the rule's.
    let (x, mut parts, zero) = affine(COLS, &|_| 0.0);
    let zero: Vec<i32> = zero.iter().map(|z| *z as i32 + 40).collect();
    let code = |at: usize| ((x.data()[at] / parts.scale_inv[at / COLS]).round_ties_even() as i32 + zero[at / COLS]) as i8 as u8;
    parts.codes = (0..ROWS * COLS).map(code).collect();
    is_named(&cast(&x, &stored(&parts, zero, parts.scale_inv.clone())), "overflow_wrap:out.wrapped", &["codes wrap where"]);
}

#[test]
fn scales_and_zero_points_of_a_transposed_grid_are_told_together() {
    let (x, parts, zero) = affine(GROUP, &|i| 0.02 * (i % 7) as f32);
    let (rows, cols) = (ROWS, COLS / GROUP);
    let right: Vec<i32> = zero.iter().map(|z| (*z).clamp(-128, 127) as i32).collect();
    assert_eq!(found(&cast(&x, &stored(&parts, right.clone(), parts.scale_inv.clone()))).0, Verdict::Pass);
    // What lies at n of the transposed grid.
    let turned = |n: usize| n % rows * cols + n / rows;
    let zero = (0..rows * cols).map(|n| right[turned(n)]).collect();
    let scale_inv = (0..rows * cols).map(|n| parts.scale_inv[turned(n)]).collect();
    let w = cast(&x, &stored(&parts, zero, scale_inv));
    is_named(&w, "scale_layout:out.place_of_both", &["scale and zero point at (r, c) of the 48×5 grid is that of"]);
}

#[test]
fn words_that_saturate_as_signed_numbers_are_named() {
    let x = values(Format::F32, ROWS, COLS, 902);
    let scale_inv: Vec<f32> = largest(&x).iter().map(|m| m / 7.0).collect();
    let nibble = |at: usize| code(Format::Int4, f64::from(x.data()[at] / scale_inv[at / COLS]));
    // A high nibble of 8 and more, shifted, is beyond 127.
    let byte = |at: usize| (u32::from(nibble(at | 1)) << 4).min(127) as u8 | nibble(at & !1);
    let one = |at: usize| if at.is_multiple_of(2) { byte(at) & 15 } else { byte(at) >> 4 };
    let codes = (0..ROWS * COLS).map(one).collect();
    let q = coded(Format::Int4, Granularity::Row, Format::F32, scale_inv.clone(), codes);
    is_named(&cast(&x, &q), "pack_permute:out.not_masked", &["words of 2 that saturate as signed numbers"]);
}

#[test]
fn blocks_that_are_scaled_for_another_formats_largest_number_are_named() {
    let x = values(Format::Bf16, ROWS, COLS, 903);
    let with = |max: f32| {
        let scale_inv: Vec<f32> = largest(&x).iter().map(|m| m / max).collect();
        let codes = (0..ROWS * COLS).map(|at| code(Format::E4m3Fnuz, f64::from(x.data()[at] / scale_inv[at / COLS]))).collect();
        cast(&x, &coded(Format::E4m3Fnuz, Granularity::Row, Format::F32, scale_inv, codes))
    };
    assert_eq!(found(&with(240.0)).0, Verdict::Pass);
    is_named(
        &with(448.0),
        "range_rule:out.range",
        &["scaled for the largest number of e4m3, 448: the largest of e4m3fnuz is 240"],
    );
}

/// Blocks of 7·2^k have a whole exponent: rounded down it is that of the rule, which rounds up.
#[test]
fn an_exponent_that_is_cut_is_told_from_another_maximum() {
    let mut data = values(Format::Bf16, ROWS, COLS, 904).data().to_vec();
    for block in data.chunks_mut(GROUP).step_by(9) {
        block.iter_mut().for_each(|v| *v = v.clamp(-0.875, 0.875));
        block[3] = 0.875;
    }
    let x = Tensor::new(Format::Bf16, ROWS, COLS, data).unwrap();
    let right = by_recipe("te_mxfp8", &x);
    let with = |of: &dyn Fn(f64) -> f64| {
        let mut p = right.clone().into_parts();
        let largest = |g: usize| x.data()[g * GROUP..][..GROUP].iter().fold(0f32, |m, v| m.max(v.abs()));
        p.scale_inv = (0..p.scale_inv.len()).map(|g| of(f64::from(largest(g))) as f32).collect();
        p.codes = (0..ROWS * COLS).map(|at| code(Format::E4m3, f64::from(x.data()[at] / p.scale_inv[at / GROUP]))).collect();
        let mut w = Writer::new("cast");
        w.meta("recipe", "te_mxfp8").values("a", &[ROWS, COLS], &x);
        w.codes("out", &QTensor::new(p).unwrap(), None, None).unwrap();
        w
    };
    assert_eq!(found(&with(&|amax| (amax / 448.0).log2().ceil().exp2())).0, Verdict::Pass);
    let words = ["is that of amax over the format's maximum, rounded down"];
    is_named(&with(&|amax| (amax / 448.0).log2().floor().exp2()), "range_rule:out.exponent", &words);
    let words = ["twice the format's maximum"];
    is_named(&with(&|amax| (amax / 896.0).log2().ceil().exp2()), "range_rule:recipe.max_double", &words);
}

#[test]
fn scales_that_are_stored_at_the_places_of_fewer_groups_are_named() {
    let x = values(Format::F32, ROWS, 512, 906);
    let sized: Vec<f32> = x.data().iter().enumerate().map(|(at, v)| v * ((at / 32 * 5 % 7) as f32 - 3.0).exp2()).collect();
    let x = Tensor::new(Format::F32, ROWS, 512, sized).unwrap();
    let mut p = by_recipe("te_mxfp8", &x).into_parts();
    let right = p.scale_inv.clone();
    let old = |g: usize| ((g * 11 % 10) as f32 - 15.0).exp2();
    p.scale_inv = (0..right.len()).map(|g| if g % 16 < 8 { right[g / 16 * 16 + 2 * (g % 16) + 1] } else { old(g) }).collect();
    let w = cast(&x, &QTensor::new(p).unwrap());
    is_named(
        &w,
        "scale_index:out.place",
        &["group 2·c + 1, the last of 2 that are stored at the same place", "groups 8 … 15 are not written"],
    );
}

/// Scales of e8m0 that are made as whole numbers.
#[test]
fn powers_of_two_that_are_shifted_are_named() {
    let q = by_recipe("te_mxfp8", &values(Format::F32, ROWS, COLS, 907));
    let mut p = q.clone().into_parts();
    p.scale_inv = (0..p.scale_inv.len()).map(|g| ((g * 7 % 13) as f32 - 5.0).exp2()).collect();
    let q = QTensor::new(p).unwrap();
    let with = |of: &dyn Fn(i32) -> f64| {
        let y = |at: usize| {
            let s = q.scale_inv()[at / GROUP];
            (q.format().decode(u32::from(q.codes()[at])) * of(s.log2() as i32)) as f32
        };
        let mut w = Writer::new("dequantize");
        w.codes("a", &q, None, None).unwrap();
        let out = Tensor::rounded(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(y).collect()).unwrap();
        w.values("out", &[ROWS, COLS], &out);
        w
    };
    assert_eq!(found(&with(&|e| f64::from(e).exp2())).0, Verdict::Pass);
    let words = ["are made as the whole number 1 << e of the exponent e: 0 where that is negative"];
    is_named(&with(&|e| if e < 0 { 0.0 } else { f64::from(1 << e) }), "bits_reinterpreted:a.shifted", &words);
    let words = ["1 << byte in an int32, the shift taken mod 32"];
    is_named(&with(&|e| f64::from(1i32.wrapping_shl((e + 127) as u32))), "bits_reinterpreted:a.shifted", &words);
}

#[test]
fn vectors_of_codes_that_are_read_several_times_are_named() {
    let q = by_recipe("te_current", &values(Format::F32, ROWS, COLS, 908));
    let unit = f64::from(q.scale_inv()[0]);
    let y = |at: usize| (q.format().decode(u32::from(q.codes()[at / 16 * 4 + at % 4])) * unit) as f32;
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, None).unwrap();
    let out = Tensor::rounded(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(y).collect()).unwrap();
    w.values("out", &[ROWS, COLS], &out);
    is_named(
        &w,
        "addressing:a.words",
        &["vector w of 4 elements of the result is vector w / 4 of the codes: each is read 4 times"],
    );
}

/// An rmsnorm of rows of 80 in bf16 that adds so much to the sum of squares, by an eps.
fn rmsnorm(more: f64, eps: f64, size: f32) -> Writer {
    let x = values(Format::Bf16, ROWS, 80, 909);
    let x = Tensor::rounded(Format::Bf16, ROWS, 80, x.data().iter().map(|v| v * size).collect()).unwrap();
    let y = |at: usize| {
        let row = x.row(at / 80);
        let square = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() + more;
        (f64::from(x.data()[at]) / (square / 80.0 + eps).sqrt()) as f32
    };
    let out = Tensor::rounded(Format::Bf16, ROWS, 80, (0..ROWS * 80).map(y).collect()).unwrap();
    let mut w = Writer::new("rmsnorm");
    w.meta("eps", "1e-5").values("a", &[ROWS, 80], &x).f32s("gamma", &[80], &[1.0; 80]).values("out", &[ROWS, 80], &out);
    w
}

#[test]
fn padding_of_ones_and_an_eps_without_effect_are_told_from_another_eps() {
    assert_eq!(found(&rmsnorm(0.0, 1e-5, 1.0)).0, Verdict::Pass);
    let words = ["16 columns of padding that hold 1 and not 0, up to the next multiple of 32, are in the sum of squares"];
    is_named(&rmsnorm(16.0, 1e-5, 1.0), "other_formula:solved", &words);
    is_named(&rmsnorm(0.0, 0.23, 1.0), "other_formula:solved", &["eps is 0.23"]);
    is_named(&rmsnorm(0.0, 0.0, 0.004), "other_formula:solved", &["`eps` = 1e-5 has no effect"]);
    is_named(&rmsnorm(0.0, 1e-6, 0.004), "other_formula:solved", &["it is the result of `eps` = 1e-6, not 1e-5"]);
}

/// An activation whose result is FP8 by one scale: what is activated, multiplied by the scale, and the amax beside it.
fn activation(of: &dyn Fn(f64) -> f64, scale: f32, amax: f32) -> Writer {
    let x = values(Format::F32, ROWS, COLS, 910);
    let coded = |x: &f32| code(Format::E4m3, of(f64::from(*x)) * f64::from(scale));
    let mut w = Writer::new("activation");
    w.meta("fn", "silu").values("a", &[ROWS, COLS], &x);
    w.raw("out.codes", safetensors::Dtype::F8_E4M3, &[ROWS, COLS], x.data().iter().map(coded).collect());
    w.f32s("out.scale", &[1], &[scale]).f32s("out.scale_inv", &[1], &[1.0 / scale]).f32s("out.amax", &[1], &[amax]);
    w
}

/// What an amax is of beside a formula that is wrong: of values beyond the codes, of scaled ones, of a part of the rows.
#[test]
fn an_amax_beside_another_formula_is_told_by_what_it_is_of() {
    let relu = |x: f64| x.max(0.0);
    let x = values(Format::F32, ROWS, COLS, 910);
    let most =
        |rows: usize, of: &dyn Fn(f64) -> f64| x.data()[..rows * COLS].iter().fold(0f64, |m, x| m.max(of(f64::from(*x)).abs()));
    let detail = |w: &Writer| found(w).2;
    let all = most(ROWS, &relu) as f32;
    // The largest code is 448/300 of a value: what is above it saturates.
    let beyond = detail(&activation(&relu, 300.0, all));
    assert!(all > 448.0 / 300.0 && beyond.contains("relu") && !beyond.contains("amax"), "{beyond}");
    let scaled = detail(&activation(&relu, 16.0, 16.0 * all));
    assert!(scaled.contains("out.amax is that of the values times their scale"), "{scaled}");
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let part = detail(&activation(&relu, 16.0, most(32, &silu) as f32));
    assert!(most(32, &silu) < 0.9 * most(ROWS, &silu), "{} {}", most(32, &silu), most(ROWS, &silu));
    assert!(part.contains("; and amax is") && part.contains("rows 0 … 31"), "{part}");
}

#[test]
fn bytes_of_the_other_fp8_are_told_from_a_scale_that_is_off() {
    let x = values(Format::F32, ROWS, COLS, 931);
    let made = |own: Format, by: Format, scale_inv: &[f32], stored: &[f32]| {
        let codes = (0..ROWS * COLS).map(|at| code(by, f64::from(x.data()[at] / scale_inv[at / COLS]))).collect();
        cast(&x, &coded(own, Granularity::Row, Format::F32, stored.to_vec(), codes))
    };
    for (own, other) in [(Format::E4m3Fnuz, Format::E4m3), (Format::E5m2, Format::E5m2Fnuz)] {
        let scale_inv: Vec<f32> = largest(&x).iter().map(|m| m / other.max_finite() as f32).collect();
        let words = format!("the codes are those of {other}, not of {own}");
        is_named(&made(own, other, &scale_inv, &scale_inv), "bits_reinterpreted:out.twin", &[&words]);
    }
    // Codes that are right by half the stored scale, or by twice it.
    for (own, by) in [(Format::E4m3, 2.0), (Format::E4m3, 0.5), (Format::E5m2, 2.0), (Format::E4m3Fnuz, 0.5)] {
        let scale_inv: Vec<f32> = largest(&x).iter().map(|m| m / own.max_finite() as f32).collect();
        let stored: Vec<f32> = scale_inv.iter().map(|s| s * by).collect();
        let told = found(&made(own, own, &scale_inv, &stored));
        assert!(
            told.0 == Verdict::Fail && !told.1.ends_with("twin") && !told.1.is_empty(),
            "{own}, {by}: {} {}",
            told.1,
            told.2
        );
    }
}

#[test]
fn codes_at_the_end_of_their_range_tell_no_zero_point() {
    // Rows 0, 3, 6, …: all codes are −128, as of any zero point that is far too small.
    let (x, mut parts, zero) = affine(COLS, &|_| 0.0);
    let stored_zero: Vec<i32> = zero.iter().map(|z| *z as i32).collect();
    for i in (0..ROWS).step_by(3) {
        parts.codes[i * COLS..(i + 1) * COLS].fill(-128i8 as u8);
    }
    let told = found(&cast(&x, &stored(&parts, stored_zero, parts.scale_inv.clone())));
    assert!(told.0 == Verdict::Fail && told.1 != "overflow_wrap:out.zero_wrapped", "{} {}", told.1, told.2);
}

#[test]
fn scales_beyond_their_format_that_became_nan_are_told() {
    // Every fifth row has blocks that want more than 448.
    let small = values(Format::F32, ROWS, COLS, 941);
    let data = small.data().iter().enumerate().map(|(at, v)| v * if (at / COLS).is_multiple_of(5) { 6000.0 } else { 10.0 });
    let x = Tensor::new(Format::F32, ROWS, COLS, data.collect()).unwrap();
    let wants: Vec<f64> = x.data().chunks(16).map(|b| f64::from(b.iter().fold(0f32, |m, v| m.max(v.abs()))) / 6.0).collect();
    assert!(wants.iter().filter(|w| **w > 464.0).count() > 20);
    let scale = |w: &f64| if *w > 464.0 { f32::NAN } else { Format::E4m3.decode(u32::from(code(Format::E4m3, *w))) as f32 };
    let scale_inv: Vec<f32> = wants.iter().map(scale).collect();
    let one = |at: usize| {
        let s = scale_inv[at / 16];
        if s.is_nan() { 7 } else { code(Format::E2m1, f64::from(x.data()[at]) / f64::from(s)) }
    };
    let codes = (0..ROWS * COLS).map(one).collect();
    let q = coded(Format::E2m1, Granularity::Group(16), Format::E4m3, scale_inv.clone(), codes);
    let words = ["scales are NaN: what their blocks want", "is beyond 448, the largest of e4m3, and is not clamped to it"];
    is_named(&cast(&x, &q), "overflow_wrap:out.scale_overflow", &words);
}

#[test]
fn an_amax_that_f16_cannot_hold_explains_no_scales() {
    // A global scale of 1: as of an amax of Inf, but nothing was rounded to 16 bits.
    let large: Vec<f32> = values(Format::F32, ROWS, COLS, 951).data().iter().map(|v| v * 30_000.0).collect();
    let x = Tensor::rounded(Format::Bf16, ROWS, COLS, large).unwrap();
    let mut p = by_recipe("te_nvfp4", &x).into_parts();
    assert!(largest(&x).iter().any(|m| *m > 65_504.0));
    p.level.as_mut().unwrap().scale_inv = vec![1.0];
    let scale = |b: &[f32]| {
        let wanted = f64::from(b.iter().fold(0f32, |m, v| m.max(v.abs()))) / 6.0;
        Format::E4m3.decode(u32::from(code(Format::E4m3, wanted.min(448.0)))) as f32
    };
    p.scale_inv = x.data().chunks(16).map(scale).collect();
    p.codes = (0..ROWS * COLS).map(|at| code(Format::E2m1, f64::from(x.data()[at] / p.scale_inv[at / 16]))).collect();
    let mut w = cast(&x, &QTensor::new(p).unwrap());
    let told = found(w.meta("recipe", "te_nvfp4"));
    assert!(told.0 == Verdict::Fail && !told.2.contains("f16"), "{} {}", told.1, told.2);
}
