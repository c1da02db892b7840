//! Casts that are wrong in some lanes, rows, groups or in a tile only: by an earlier tensor's values, by another rounding of ties, by scales whose
//! exponent is rounded otherwise; and −0 that is NaN.

use super::Writer;
use super::named_tests::{found, is_named, values};
use crate::compare::Verdict;
use crate::quant::QTensorParts;
use crate::recipe::Recipe;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};
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
    let others: [(&str, &dyn Fn(usize) -> u8); 5] =
        [("", &step), ("", &bit), ("sr_broken:out.stochastic", &drawn), ("", &by_row), ("rounding:", &down)];
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
    let places: [(Is, &str); 5] = [
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

/// Groups of 32, some of whose scales are the power of two below what the rule takes one above of, with codes that follow them.
fn below(recipe: &str, x: &Tensor, is: &dyn Fn(usize, usize) -> bool) -> Writer {
    let right = by_recipe(recipe, x);
    let groups = x.cols() / 32;
    let down = |g: usize| {
        let group = &x.row(g / groups)[g % groups * 32..][..32];
        (group.iter().fold(0f32, |m, v| m.max(v.abs())) / 448.0).log2().floor().exp2()
    };
    let scale_inv: Vec<f32> =
        (0..x.rows() * groups).map(|g| if is(g / groups, g % groups) { down(g) } else { right.scale_inv()[g] }).collect();
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
        is_named(&below("te_mxfp8", &x, is), "range_rule:out.exponent", &words);
    }
    let some = found(&below("te_mxfp8", &x, &|i, g| noise(i * 9 + g) > 0.6));
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
