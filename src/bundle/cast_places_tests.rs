//! Casts that are wrong in some lanes, rows, groups or in a tile only: by an earlier tensor's values, by another rounding of ties, by scales whose
//! exponent is rounded otherwise; and −0 that is NaN.

use super::Writer;
use super::named_tests::{found, is_named, values};
use crate::compare::Verdict;
use crate::quant::{QTensorParts, Zero};
use crate::recipe::Recipe;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor};
use safetensors::Dtype;

fn code(f: Format, y: f64) -> u8 {
    f.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

fn by_recipe(recipe: &str, x: &Tensor) -> QTensor {
    recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q
}

/// A number of [−1, 1) for a place.
fn noise(at: usize) -> f64 {
    let mixed = (at as u32).wrapping_mul(0x9E37_79B9) ^ (at as u32).wrapping_mul(0x85EB_CA6B) >> 13;
    f64::from(mixed.wrapping_mul(0xC2B2_AE35) >> 8) / 8_388_608.0 - 1.0
}

/// About normal, of deviation 1.
fn normal(at: usize) -> f64 {
    (0..3).map(|n| noise(3 * at + n)).sum()
}

const ROWS: usize = 96;
const COLS: usize = 128;

/// A cast of these values with these codes and scales.
fn cast(recipe: &str, x: &Tensor, q: &QTensor) -> Writer {
    let mut w = Writer::new("cast");
    w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x).codes("out", q, None, None).unwrap();
    w
}

/// `q` with these codes where there is another than the right one.
fn with_codes(q: &QTensor, other: &dyn Fn(usize, usize) -> Option<u8>) -> QTensor {
    let (cols, mut p) = (q.cols(), q.clone().into_parts());
    p.codes.iter_mut().enumerate().for_each(|(at, c)| *c = other(at / cols, at % cols).unwrap_or(*c));
    QTensor::new(p).unwrap()
}

/// A cast by te_current whose codes, and whose transposed copy, have `other` ones in rows 17 … 40, columns 41 … 70 of the codes.
fn tiles(x: &Tensor, other: &dyn Fn(usize) -> u8) -> [Writer; 2] {
    let right = by_recipe("te_current", x);
    let tile = |i: usize, j: usize| (17..41).contains(&i) && (41..71).contains(&j);
    let wrong = with_codes(&right, &|i, j| tile(i, j).then(|| other(i * COLS + j)));
    let mut beside = cast("te_current", x, &right);
    beside.raw("out.transpose", Dtype::F8_E4M3, &[COLS, ROWS], wrong.transposed().unwrap().codes().to_vec());
    [cast("te_current", x, &wrong), beside]
}

#[test]
fn a_tile_of_an_earlier_step_is_told_in_codes_and_in_the_copy() {
    let x = values(Format::Bf16, ROWS, COLS, 301);
    let unit = by_recipe("te_current", &x).affine(0).unit;
    let y = |at: usize| f64::from(x.data()[at]) / unit;
    // Of each value, and of a step of one size for all.
    for update in
        [&(|at| 0.01 * y(at) * normal(at)) as &dyn Fn(usize) -> f64, &|at| 0.03 * y(at) * normal(at), &|at| 2.0 * normal(at)]
    {
        let [codes, copy] = tiles(&x, &|at| code(Format::E4m3, y(at) + update(at)));
        let words = ["of the tensor before an update", "in rows 17 … 40, in columns 41 … 70"];
        is_named(&codes, "stale_state:out.values", &words);
        let words = ["of the tensor before an update", "in rows 41 … 70, columns 17 … 40 of the transposed copy"];
        is_named(&copy, "stale_state:transpose.values", &words);
    }
}

/// A code more or less, a bit, or the other end of the gap by chance are no values of another step; nor is what values alone decide.
#[test]
fn codes_beside_the_right_ones_are_of_no_earlier_step() {
    let x = values(Format::Bf16, ROWS, COLS, 302);
    let q = by_recipe("te_current", &x);
    let (right, unit, f) = (q.codes(), q.affine(0).unit, Format::E4m3);
    let y = |at: usize| f64::from(x.data()[at]) / unit;
    let down = |at: usize| f.encode(y(at), Rounding::TowardZero, Overflow::Saturate) as u8;
    let step = |at: usize| match right[at] & 0x7f {
        1..0x7e if noise(at) < -0.4 => right[at] - 1,
        1..0x7e if noise(at) > 0.4 => right[at] + 1,
        _ => right[at],
    };
    let bit = |at: usize| if noise(at) < -0.5 { right[at] ^ 1 << (at % 3) } else { right[at] };
    let drawn = |at: usize| {
        let low = f.decode(u32::from(down(at)));
        let part = (y(at) - low) / (f.decode(u32::from(down(at) + 1)) - low);
        down(at) + u8::from(0.5 * noise(at) + 0.5 < part)
    };
    let by_row = |at: usize| code(f, y(at) * (1.0 + 0.02 * normal(at / COLS)));
    let elsewhere = |at: usize| if noise(at) < -0.4 { right[(at * 7919 + 613) % right.len()] } else { right[at] };
    let others: [(&str, &dyn Fn(usize) -> u8); 6] =
        [("", &step), ("", &bit), ("sr_broken:out.stochastic", &drawn), ("", &by_row), ("", &elsewhere), ("rounding:", &down)];
    for (n, (name, other)) in others.into_iter().enumerate() {
        for w in tiles(&x, other) {
            let got = found(&w);
            assert!(got.0 == Verdict::Fail && !got.1.contains("stale_state"), "{n}: {got:?}");
            assert!(!name.starts_with("rounding") || got.1.starts_with(name), "{n}: {got:?}");
        }
    }
}

/// Sixteenths below 8 beside one 448 of each row: the scale of each row is 1, and odd sixteenths above 1 are ties.
fn sixteenths(rows: usize, cols: usize) -> Tensor {
    let one = |at: usize| if at.is_multiple_of(cols) { 448.0 } else { (noise(at) * 128.0).round() as f32 / 16.0 };
    Tensor::new(Format::F32, rows, cols, (0..rows * cols).map(one).collect()).unwrap()
}

#[test]
fn ties_of_some_lanes_rows_or_a_tile_are_told_with_their_place() {
    let x = sixteenths(ROWS, COLS);
    let away = |at: usize| {
        let v = f64::from(x.data()[at]);
        code(Format::E4m3, v * (1.0 + 2f64.powi(-30)))
    };
    let toward = |at: usize| code(Format::E4m3, f64::from(x.data()[at]) * (1.0 - 2f64.powi(-30)));
    type Is<'i> = &'i dyn Fn(usize, usize) -> bool;
    let places: [(Is, &str); 6] = [
        (
            &|i, j| (32..64).contains(&i) && (32..112).contains(&j) && j % 2 == 0,
            "away from zero, in rows 32 … 63, columns 0 of every 2 from 32 to 111:",
        ),
        (&|_, j| j % 2 == 1, "away from zero, in columns 1 of every 2:"),
        (&|_, j| j % 8 == 5, "away from zero, in columns 5 of every 8:"),
        (&|i, _| i % 4 == 3, "away from zero, in rows 3 of every 4:"),
        (&|_, j| j % 16 >= 8, "away from zero, in columns 8 … 15 of every 16:"),
        (&|i, j| (32..64).contains(&i) && (48..80).contains(&j), "away from zero, in rows 32 … 63, columns 48 … 79:"),
    ];
    let right = by_recipe("float8_rowwise", &x);
    assert!(right.scale_inv().iter().all(|s| *s == 1.0));
    for (is, words) in places {
        let q = with_codes(&right, &|i, j| is(i, j).then(|| away(i * COLS + j)));
        is_named(&cast("float8_rowwise", &x, &q), "rounding:out.half_away", &[words, "all other codes are right"]);
    }
    let q = with_codes(&right, &|i, j| (j % 2 == 0).then(|| toward(i * COLS + j)));
    is_named(&cast("float8_rowwise", &x, &q), "rounding:out.half_to_zero", &["in columns 0 of every 2"]);
    // Here and there, or beside a code that is no tie's.
    let q = with_codes(&right, &|i, j| (noise(i * COLS + j) > 0.2).then(|| away(i * COLS + j)));
    assert!(!found(&cast("float8_rowwise", &x, &q)).1.contains("half_away"));
    let q = with_codes(&right, &|i, j| if (i, j) == (5, 4) { Some(0x33) } else { (j % 2 == 1).then(|| away(i * COLS + j)) });
    assert!(!found(&cast("float8_rowwise", &x, &q)).1.contains("half_away"));
    // Of the copy: a row of it is a column of the codes.
    let right = by_recipe("te_current", &x);
    let q = with_codes(&right, &|i, j| (j % 2 == 1).then(|| away(i * COLS + j)));
    let mut w = cast("te_current", &x, &right);
    w.raw("out.transpose", Dtype::F8_E4M3, &[COLS, ROWS], q.transposed().unwrap().codes().to_vec());
    is_named(&w, "rounding:transpose.rounding", &["in the transposed copy", "in columns 1 of every 2"]);
}

/// Groups of 32, some of whose exponents are these of log2(amax / 448), with codes that follow them.
fn with_exponents(recipe: &str, x: &Tensor, exponent: fn(f32) -> f32, is: &dyn Fn(usize, usize) -> bool) -> Writer {
    let right = by_recipe(recipe, x);
    let groups = x.cols() / 32;
    let other = |g: usize| {
        let group = &x.row(g / groups)[g % groups * 32..][..32];
        exponent((group.iter().fold(0f32, |m, v| m.max(v.abs())) / 448.0).log2()).exp2()
    };
    let scale_inv: Vec<f32> =
        (0..x.rows() * groups).map(|g| if is(g / groups, g % groups) { other(g) } else { right.scale_inv()[g] }).collect();
    let codes = (0..x.rows() * x.cols()).map(|at| {
        let g = at / x.cols() * groups + at % x.cols() / 32;
        code(right.format(), f64::from(x.data()[at]) / f64::from(scale_inv[g]))
    });
    let codes = codes.collect();
    cast(recipe, x, &QTensor::new(QTensorParts { codes, scale_inv, ..right.into_parts() }).unwrap())
}

#[test]
fn exponents_of_some_groups_that_are_rounded_down_are_told_with_their_place() {
    let x = values(Format::Bf16, 48, 288, 303);
    let down = "that of amax over the format's maximum, rounded down";
    type Is<'i> = &'i dyn Fn(usize, usize) -> bool;
    let places: [(Is, &str); 4] = [
        (&|_, g| g == 8, ", in groups 8 of the grid"),
        (&|_, g| g % 2 == 1, ", in groups 1 of every 2 of the grid"),
        (&|i, _| i >= 32, ", in rows 32 … 47 of the grid"),
        (&|i, g| i < 16 && g >= 4, ", in rows 0 … 15, groups 4 … 8 of the grid"),
    ];
    for (is, place) in places {
        let words = [down, place, "the codes are those of these scales", "448: saturated"];
        is_named(&with_exponents("te_mxfp8", &x, f32::floor, is), "range_rule:out.exponent", &words);
    }
    // Up from halfway between two powers of two on.
    let near = with_exponents("te_mxfp8", &x, |e| (e.exp2() * 1.333_333_4).log2().floor(), &|i, g| i >= 16 && g < 4);
    let words = ["of the power of two nearest to amax over the format's maximum, in rows 16 … 47, groups 0 … 3 of the grid"];
    is_named(&near, "range_rule:out.exponent", &words);
    let some = found(&with_exponents("te_mxfp8", &x, f32::floor, &|i, g| noise(i * 9 + g) > 0.6));
    assert!(some.0 == Verdict::Fail && some.1 != "range_rule:out.exponent", "{some:?}");
}

#[test]
fn negative_zeros_that_are_nan_are_told_where_all_else_is_right() {
    let mut data = values(Format::Bf16, 24, 64, 304).data().to_vec();
    (0..40).for_each(|n| data[n * 37] = if n % 2 == 0 { -1e-6 } else { 1e-6 });
    let x = Tensor::rounded(Format::Bf16, 24, 64, data).unwrap();
    let largest = x.data().iter().fold(0f32, |m, v| m.max(v.abs()));
    let scale = largest / 240.0;
    let of = |of: Format| {
        let zero = |y: f64| y < 0.0 && code(Format::E4m3Fnuz, y) == 0;
        let made = |v: &f32| {
            let y = f64::from(*v / scale);
            if zero(y) { 0x80 } else { code(of, y) }
        };
        let mut w = Writer::new("cast");
        w.values("a", &[24, 64], &x).f32s("out.scale_inv", &[1], &[scale]);
        w.raw("out.codes", Dtype::F8_E4M3FNUZ, &[24, 64], x.data().iter().map(made).collect());
        w
    };
    let words = ["20 negative values that round to 0 are written as 0x80", "NaN in e4m3fnuz; all other codes are right"];
    is_named(&of(Format::E4m3Fnuz), "codec_edge:out.negative_zero", &words);
    assert!(!found(&of(Format::E4m3)).1.contains("negative_zero"));
}

/// Codes of these values, by a scale of 1.
fn by_one(f: Format, x: &Tensor, zero: Option<i32>, code: &dyn Fn(usize) -> u8) -> Writer {
    let (rows, cols) = (x.rows(), x.cols());
    let parts = QTensorParts {
        format: f,
        rows,
        cols,
        codes: (0..rows * cols).map(code).collect(),
        granularity: Granularity::Tensor,
        scale_format: Format::F32,
        scale_inv: vec![1.0],
        zero: zero.map_or(Zero::None, |z| Zero::Integer(vec![z])),
        level: None,
    };
    let mut w = Writer::new("cast");
    w.values("a", &[rows, cols], x).codes("out", &QTensor::new(parts).unwrap(), None, None).unwrap();
    w
}

#[test]
fn a_clamp_and_a_lost_nan_of_a_tile_are_told_with_their_place() {
    let tile = |at: usize| (20..36).contains(&(at / COLS)) && (32..96).contains(&(at % COLS));
    // Halves from −10 to 10: from −7.5 on the least code.
    let halves: Vec<f32> = (0..ROWS * COLS).map(|at| (noise(at) * 20.0).round() as f32 / 2.0).collect();
    let x = Tensor::new(Format::F32, ROWS, COLS, halves).unwrap();
    let y = |at: usize| f64::from(x.data()[at]);
    let clamped = by_one(Format::Int4, &x, None, &|at| code(Format::Int4, if tile(at) { y(at).max(-7.0) } else { y(at) }));
    is_named(&clamped, "overflow_wrap:out.clamped", &["clamped to 7 (±7), in rows 20 … 35"]);
    let holes: Vec<f32> = (0..ROWS * COLS).map(|at| if noise(at) > 0.9 { f32::NAN } else { normal(at) as f32 }).collect();
    let x = Tensor::new(Format::F32, ROWS, COLS, holes).unwrap();
    let right = |at: usize| if x.data()[at].is_nan() { 0x7f } else { code(Format::E4m3, f64::from(x.data()[at])) };
    let lost = by_one(Format::E4m3, &x, None, &|at| if tile(at) && right(at) == 0x7f { 0x7e } else { right(at) });
    is_named(&lost, "codec_edge:out.special", &["NaN becomes 448, in rows 20 … 35, columns 32 … 95"]);
}

/// So many codes are wrong that a rounding's bias is seen in their count.
#[test]
fn a_large_tile_of_an_earlier_step_is_told() {
    let (rows, cols) = (512, 1024);
    let x = Tensor::new(Format::F32, rows, cols, (0..rows * cols).map(|at| normal(at) as f32).collect()).unwrap();
    let right = by_recipe("te_current", &x);
    let (tile, unit) = (|i: usize, j: usize| i >= 64 && j < 896, right.affine(0).unit);
    let y = |at: usize| f64::from(x.data()[at]) / unit;
    let q = with_codes(&right, &|i, j| {
        tile(i, j).then(|| code(Format::E4m3, y(i * cols + j) * (1.0 + 0.015 * normal(i + j * rows))))
    });
    let wrong = q.codes().iter().zip(right.codes()).filter(|(a, b)| a != b).count();
    assert!(wrong > 40_000, "{wrong}");
    let words = ["of the tensor before an update", "in rows 64 … 511, in columns 0 … 895"];
    is_named(&cast("te_current", &x, &q), "stale_state:out.values", &words);
}

#[test]
fn what_becomes_of_values_beyond_the_largest_is_told_by_where_it_begins() {
    let x = Tensor::new(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(|at| (700.0 * noise(at)) as f32).collect()).unwrap();
    let y = |at: usize| f64::from(x.data()[at]);
    let lost = by_one(Format::E4m3, &x, None, &|at| if y(at).abs() >= 512.0 { 0x7f } else { code(Format::E4m3, y(at)) });
    is_named(&lost, "overflow_wrap:out.native_beyond", &["become NaN or Inf; smaller ones are saturated"]);
    // Codes of another format do not leave right ones between them.
    let some = by_one(Format::E4m3, &x, None, &|at| if at % 7 == 0 { 0x7f } else { code(Format::E4m3, y(at)) });
    assert!(!found(&some).1.contains("written_as"), "{:?}", found(&some));
    let huge = |at: usize| if at.is_multiple_of(9) { 5e9f64.copysign(noise(at)) } else { 60.0 * noise(at) };
    let x = Tensor::new(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(|at| huge(at) as f32).collect()).unwrap();
    let wrapped = |at: usize| (f64::from(x.data()[at]).round_ties_even() as i32).wrapping_add(7).clamp(-128, 127) as i8 as u8;
    is_named(
        &by_one(Format::Int8, &x, Some(7), &wrapped),
        "overflow_wrap:out.zero_wraps",
        &["integers of 32 bits", "wrap when the zero point is added"],
    );
}

/// Two columns far below the range of 16 bits: by a zero point below 0 they become the largest code.
#[test]
fn quotients_of_16_bits_that_wrap_with_their_zero_point_are_told() {
    let huge = |at: usize| if [5, 70].contains(&(at % COLS)) { -9e4 * (0.1 + noise(at).abs()) } else { 60.0 * noise(at) };
    let x = Tensor::new(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(|at| huge(at) as f32).collect()).unwrap();
    let y = |at: usize| f64::from(x.data()[at]).round_ties_even();
    let wrapped = |at: usize| (y(at) as i16).wrapping_add(-21).clamp(-128, 127) as i8 as u8;
    let words = ["quotients are saturated to 16 bits, and wrap there when the zero point is added"];
    is_named(&by_one(Format::Int8, &x, Some(-21), &wrapped), "overflow_wrap:out.zero_wraps", &words);
    // Here and there the right code: no encoder.
    let right = |at: usize| (y(at) - 21.0).clamp(-128.0, 127.0) as i8 as u8;
    let either = |at: usize| if noise(at + 7) < 0.3 { wrapped(at) } else { right(at) };
    let got = found(&by_one(Format::Int8, &x, Some(-21), &either));
    assert!(!got.1.contains("saturated to 16 bits"), "{got:?}");
    assert!(!got.1.contains("further on"), "one number is not moved: {got:?}");
}

#[test]
fn one_code_everywhere_and_a_copy_of_corners_are_told() {
    let x = values(Format::F32, ROWS, COLS, 305);
    let nf4 = by_one(Format::Nf4, &x, None, &|_| 0);
    is_named(&nf4, "silent_skip:out.codes_unwritten", &["every code is 0x0, which is -1"]);
    let q = by_recipe("te_current", &x);
    let mut copy = q.transposed().unwrap().codes().to_vec();
    copy.iter_mut().enumerate().filter(|(at, _)| at / ROWS % 32 >= 8 || at % ROWS % 32 >= 8).for_each(|(_, c)| *c = 0);
    let mut w = cast("te_current", &x, &q);
    w.raw("out.transpose", Dtype::F8_E4M3, &[COLS, ROWS], copy);
    is_named(&w, "silent_skip:transpose.part", &["but for what is in rows 0 … 7 of every 32, columns 0 … 7 of every 32"]);
}

/// Without a recipe, and with scales that are too small for their format beside them.
#[test]
fn a_second_level_the_wrong_way_around_is_told_before_scales_of_0() {
    let sized = |at: usize| (100.0 * normal(at)) as f32 * if at % COLS < 16 { 1e-6 } else { 1.0 };
    let x = Tensor::new(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(sized).collect()).unwrap();
    let q = by_recipe("te_nvfp4", &x);
    let over = f64::from(q.global_scale_inv().unwrap());
    let largest = |g: usize| x.data()[g * 16..][..16].iter().fold(0f32, |m, v| m.max(v.abs()));
    let stored = |g: usize| Format::E4m3.decode(u32::from(code(Format::E4m3, f64::from(largest(g)) / 6.0 * over)));
    let scale_inv: Vec<f32> = (0..ROWS * COLS / 16).map(|g| stored(g) as f32).collect();
    assert!(scale_inv.contains(&0.0) && scale_inv.iter().any(|s| *s > 0.01));
    let coded = |at: usize| match stored(at / 16) {
        0.0 => 0,
        s => code(Format::E2m1, f64::from(x.data()[at]) * over / s),
    };
    let codes = (0..ROWS * COLS).map(coded).collect();
    let q = QTensor::new(QTensorParts { codes, scale_inv, ..q.into_parts() }).unwrap();
    let mut w = Writer::new("cast");
    let low_first = Some(crate::format::pack::NibbleOrder::LowFirst);
    w.values("a", &[ROWS, COLS], &x).codes("out", &q, None, low_first).unwrap();
    is_named(&w, "scale_doubled_inverted:out.global", &["with the inverse of"]);
}

/// Scales of 6 × 5 groups that are stored 4 apart: later rows lie over the last of each, and the end stays 0.
#[test]
fn a_row_stride_of_scales_is_told_before_the_zeros_that_it_leaves() {
    let sized = |at: usize| (normal(at) * (1.0 + (at / 128 % 7) as f64)) as f32;
    let x = Tensor::new(Format::F32, 6, 640, (0..6 * 640).map(sized).collect()).unwrap();
    let q = by_recipe("te_block_1x128_fp32", &x);
    let mut scale_inv = vec![0.0; 30];
    (0..30).for_each(|g| scale_inv[g / 5 * 4 + g % 5] = q.scale_inv()[g]);
    assert!(scale_inv[25..].iter().all(|s| *s == 0.0));
    let q = QTensor::new(QTensorParts { scale_inv, ..q.into_parts() }).unwrap();
    let mut w = Writer::new("cast");
    w.values("a", &[6, 640], &x).codes("out", &q, None, None).unwrap();
    is_named(&w, "scale_layout:out.stride", &["at a row stride of 4 instead of 5"]);
}
