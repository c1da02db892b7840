//! What an amax was taken over where codes are right by the scales stored: rows whose scales are chosen by hand.

use super::*;
use crate::Format;
use crate::Granularity;
use crate::bundle::cast_formats::FP8;
use crate::quant::QTensorParts;

const COLS: usize = 64;

/// Codes of `x` with these scales.
fn codes(format: Format, x: &Tensor, granularity: Granularity, scale_inv: Vec<f32>, code: impl Fn(usize) -> u8) -> QTensor {
    let (rows, cols) = (x.rows(), x.cols());
    let codes = (0..rows * cols).map(code).collect();
    let (zero, level, scale_format) = (Zero::None, None, Format::F32);
    QTensor::new(QTensorParts { format, rows, cols, codes, granularity, scale_format, scale_inv, zero, level }).unwrap()
}

fn nearest(format: Format, y: f64) -> u8 {
    format.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

/// The name of rows of these values, stored with these largest magnitudes.
fn named(x: &Tensor, used: &[f64]) -> Option<Named> {
    let rows = x.rows();
    let q = codes(Format::E4m3, x, Granularity::Row, used.iter().map(|u| (u / 448.0) as f32).collect(), |_| 0);
    let cast = Cast::of(x, &q);
    cast.chosen(&vec![(0.0, f64::INFINITY); rows])
}

/// Rows of both signs; `only` says which have one: 1, −1, or 0 for zeros.
fn values(rows: usize, only: impl Fn(usize) -> Option<f32>) -> Tensor {
    let one = |at: usize| ((at * 7919 + 101) % 1009) as f32 / 250.0 - 2.03;
    let sign = |at: usize| only(at / COLS).map_or(one(at), |s| s * one(at).abs());
    Tensor::new(Format::F32, rows, COLS, (0..rows * COLS).map(sign).collect()).unwrap()
}

/// The largest of what `of` makes of a row, at least `least`.
fn over(x: &Tensor, least: f64, of: fn(f64) -> f64) -> Vec<f64> {
    (0..x.rows()).map(|i| x.row(i).iter().map(|v| of(f64::from(*v))).fold(least, f64::max)).collect()
}

fn signed(x: &Tensor, least: f64) -> String {
    named(x, &over(x, least, |v| v)).map_or(String::new(), |(class, variant, words)| {
        assert!(variant != "out.signed" || class == Class::AmaxScope);
        words
    })
}

const LARGEST: &str = "amax is the largest value, not the largest magnitude";

#[test]
fn an_amax_of_one_sign_is_told() {
    let x = values(12, |_| None);
    assert_eq!(signed(&x, 0.0), LARGEST);
    let negative = named(&x, &over(&x, 0.0, |v| -v)).unwrap();
    assert_eq!((negative.1, negative.2.as_str()), ("out.signed", "amax is that of the negative values alone"));
    assert_eq!(named(&x, &over(&x, 0.0, f64::abs)), None, "right");
}

/// A row of zeros has a scale of its own, of which nothing is known.
#[test]
fn a_row_of_zeros_does_not_hide_an_amax_of_one_sign() {
    let x = values(12, |i| (i == 5).then_some(0.0));
    let mut used = over(&x, 0.0, |v| v);
    used[5] = 448.0;
    assert_eq!(named(&x, &used).unwrap().2, LARGEST);
}

/// Rows of negative numbers alone have the least scale that is kept: one in four may, more say nothing of signs.
#[test]
fn the_least_scale_explains_a_quarter_of_the_rows() {
    let of = |rows: usize, negative: usize| signed(&values(rows, |i| (i < negative).then_some(-1.0)), 1e-3);
    assert_eq!([of(4, 1), of(8, 2)], [LARGEST; 2]);
    assert_ne!(of(8, 3), LARGEST);
    assert_ne!(of(4, 2), LARGEST);
}

/// Of three rows, or one wrong row of many, nothing is told.
#[test]
fn an_amax_of_one_sign_has_to_show_in_rows_enough() {
    assert_eq!(signed(&values(3, |_| None), 0.0), "");
    // The largest is positive in all rows but one.
    let mostly = |negative: usize| values(8, move |i| if i < negative { None } else { Some(1.0) });
    let wrong = |x: &Tensor| {
        let (is, right) = (over(x, 0.0, |v| v), over(x, 0.0, f64::abs));
        is.iter().zip(&right).filter(|(a, b)| (*a - *b).abs() > *b / 1024.0).count()
    };
    let one = (1..8).find(|n| wrong(&mostly(*n)) == 1).unwrap();
    assert_ne!(signed(&mostly(one), 0.0), LARGEST);
    let two = (1..8).find(|n| wrong(&mostly(*n)) == 2).unwrap();
    assert_eq!(signed(&mostly(two), 0.0), LARGEST);
}

/// The scales that make all codes of a row, one step inside of their ends and one outside.
#[test]
fn codes_say_the_scales_that_make_them() {
    for (format, scale) in [(Format::E4m3, 0.013f32), (Format::E5m2, 3e-5), (Format::E2m1, 0.7)] {
        for by in [Rounding::NearestEven, Rounding::TowardZero] {
            let x = values(6, |i| match i {
                1 => Some(1e-3),
                2 => Some(0.0),
                3 => Some(1e4),
                _ => None,
            });
            let code = |y: f64| format.encode(y, by, Overflow::Saturate) as u8;
            let q = codes(format, &x, Granularity::Row, vec![scale; 6], |at| code(f64::from(x.data()[at]) / f64::from(scale)));
            let cast = Cast::of(&x, &q);
            let ranges = cast.codes(by).unwrap();
            assert!(cast.agree(&ranges), "{format}");
            assert_eq!(ranges[2], (0.0, f64::INFINITY), "zeros say nothing");
            for (i, (low, high)) in ranges.iter().enumerate() {
                let made = |s: f64| {
                    (i * COLS..(i + 1) * COLS)
                        .all(|at| format.decode(u32::from(code(f64::from(x.data()[at]) / s))) == cast.value(at))
                };
                let least = if *low > 0.0 { *low } else { 1e-9 };
                let most = if high.is_finite() { *high } else { 1e9 };
                assert!(
                    [least * (1.0 + 1e-9), (least * most).sqrt(), most * (1.0 - 1e-9)].into_iter().all(made),
                    "{format} {by:?} {i}: {low} {high}"
                );
                assert!(*low == 0.0 || !made(low * (1.0 - 1e-6)), "{format} {by:?} {i}: {low}");
                assert!(high.is_infinite() || !made(high * (1.0 + 1e-6)), "{format} {by:?} {i}: {high}");
            }
        }
    }
}

#[test]
fn codes_that_no_scale_makes_say_none() {
    let x = Tensor::new(Format::F32, 2, 4, vec![1.0, 2.0, -3.0, 0.0, 1.0, f32::NAN, 5.0, f32::INFINITY]).unwrap();
    let of = |codes: [u8; 8]| {
        let q = super::by_hand::codes(Format::E4m3, &x, Granularity::Row, vec![1.0; 2], |at| codes[at]);
        Cast::of(&x, &q).codes(Rounding::NearestEven)
    };
    // 1, 2, −3, 0 and 1, anything, 5, anything.
    let right = [0x38, 0x40, 0xc4, 0x00, 0x38, 0x7f, 0x4a, 0x11];
    let ranges = of(right).unwrap();
    // 1 is the code of 0.96875 … 1.0625, 3 of 2.875 … 3.125, 5 of 4.75 … 5.25.
    assert_eq!(ranges, [(3.0 / 3.125, 1.0 / 0.96875), (5.0 / 5.25, 1.0 / 0.96875)]);
    let with = |at: usize, code: u8| {
        let mut codes = right;
        codes[at] = code;
        of(codes).is_some()
    };
    assert!(!with(0, 0x40), "2 for 1 beside 2 for 2");
    assert!(!with(2, 0x44), "the other sign");
    assert!(!with(1, 0x7f), "NaN for a number");
    assert!(with(3, 0x38) && with(5, 0x00) && with(7, 0xc0), "0, NaN and Inf say nothing");
    assert!(!with(6, 0x00), "0 for 5 beside 1 for 1");
}

/// The name of codes by a scale of 1 for all.
fn encoded(format: Format, x: &Tensor, code: impl Fn(usize) -> u8) -> Option<Named> {
    let q = codes(format, x, Granularity::Tensor, vec![1.0], code);
    Cast::of(x, &q).encoded()
}

/// Quarters up to 120 of both signs, and three numbers beyond int8. A tie may be either of two codes.
#[test]
fn roundings_of_integers_are_told_with_what_becomes_of_large_ones() {
    let data: Vec<f32> = (0..960).map(|n| if n < 3 { 140.75 + n as f32 } else { (n - 480) as f32 / 4.0 }).collect();
    let x = Tensor::new(Format::F32, 15, COLS, data).unwrap();
    let y = |at: usize| f64::from(x.data()[at]);
    let found = |code: &dyn Fn(usize) -> u8| encoded(Format::Int8, &x, code);
    // As the code has them: words, variant, how a number becomes whole.
    let ways: [Whole; 4] = [
        ("codes are cut toward zero instead of rounded to nearest", "out.toward_zero", f64::trunc),
        ("codes are rounded toward −∞ instead of rounded to nearest even", "out.down", f64::floor),
        ("codes are rounded toward +∞ instead of rounded to nearest even", "out.up", f64::ceil),
        (
            "codes are cut toward zero after ½ is added, of negative values too, instead of rounded to nearest even",
            "out.half_then_cut",
            |y| (y + 0.5).trunc(),
        ),
    ];
    for (words, variant, whole) in ways {
        let clamped = |at: usize| whole(y(at)).clamp(-128.0, 127.0) as i8 as u8;
        assert_eq!(found(&clamped), Some((Class::Rounding, variant, words.to_string())));
        let and = format!("{words}; and what is beyond the codes is not clamped: it wraps");
        assert_eq!(found(&|at| whole(y(at)) as i32 as u8), Some((Class::Rounding, variant, and)));
        // Two codes, right before, are something else.
        let right = |at: usize| y(at).fract().abs() == 0.5 || clamped(at) == nearest(Format::Int8, y(at));
        let wrong = (0..960).filter(|at| !right(*at)).count();
        let two: Vec<usize> = (500..960).filter(|at| right(*at) && y(*at).fract() == 0.25).take(2).collect();
        let two =
            if two.len() == 2 { two } else { (500..960).filter(|at| right(*at) && y(*at).fract() == 0.75).take(2).collect() };
        let other = |at: usize| if two.contains(&at) { clamped(at) ^ 0x15 } else { clamped(at) };
        let words = format!("{words}; this is not all: 2 of {} wrong codes are others", wrong + 2);
        assert_eq!(found(&other), Some((Class::Rounding, variant, words)));
    }
    let ties: [fn(f64) -> f64; 3] = [f64::round_ties_even, f64::round, |y| (y + 0.5).floor()];
    for whole in ties {
        assert_eq!(found(&|at| whole(y(at)).clamp(-128.0, 127.0) as i8 as u8), None);
    }
}

#[test]
fn codes_of_another_format_are_told_with_where_they_are() {
    let x = values(8, |_| None);
    for (own, f) in FP8.into_iter().flat_map(|own| FP8.map(|f| (own, f))).filter(|(own, f)| own != f) {
        let y = |at: usize| f64::from(x.data()[at]);
        let words = format!("the codes are those of {f}, and are read as {own}");
        assert_eq!(encoded(own, &x, |at| nearest(f, y(at))), Some((Class::BitsReinterpreted, "out.written_as", words.clone())));
        let some = |at: usize| (2..4).contains(&(at / COLS)) && at % COLS >= 16;
        let found = encoded(own, &x, |at| nearest(if some(at) { f } else { own }, y(at))).unwrap();
        assert_eq!((found.1, found.2), ("out.written_as", format!("{words}, in rows 2 … 3, in columns 16 … 63")));
    }
}

#[test]
fn values_that_saturate_early_are_told_from_where_on() {
    let x = Tensor::new(Format::F32, 10, COLS, (0..640).map(|n| (n as f32 - 320.25) / 2.0).collect()).unwrap();
    let y = |at: usize| f64::from(x.data()[at]);
    for (limit, shown) in [(100.0, "100"), (140.0, "140")] {
        let early = |at: usize| if y(at).abs() >= limit { 448.0f64.copysign(y(at)) } else { y(at) };
        let (class, variant, words) = encoded(Format::E4m3, &x, |at| nearest(Format::E4m3, early(at))).unwrap();
        assert_eq!((class, variant), (Class::CodecEdge, "out.saturated_early"));
        assert_eq!(words, format!("values from {shown} scales on become the largest code, 448: saturated too early"));
    }
}

/// Groups of sixteen columns, or blocks of eight rows, whose amax is that of their first or last lines.
#[test]
fn an_amax_of_part_of_every_group_is_told_by_its_lines() {
    let x = values(16, |_| None);
    for (granularity, size, what) in
        [(Granularity::Group(16), 16, "columns"), (Granularity::Block { rows: 8, cols: 16 }, 8, "rows")]
    {
        let grid = granularity.grid(16, COLS);
        let q = codes(Format::E4m3, &x, granularity, vec![1.0; grid.0 * grid.1], |_| 0);
        let cast = Cast::of(&x, &q);
        let line = |at: usize| if what == "columns" { at % 16 } else { at / COLS % 8 };
        let over = |from: usize, to: usize| {
            let mut most = vec![0.0f64; grid.0 * grid.1];
            for at in (0..16 * COLS).filter(|at| (from..to).contains(&line(*at))) {
                most[cast.group(at)] = most[cast.group(at)].max(f64::from(x.data()[at].abs()));
            }
            most
        };
        let known: Vec<usize> = (0..grid.0 * grid.1).collect();
        let mut told = 0;
        for n in 1..size {
            // Only where no other number of lines has all of these.
            for (from, to) in [(0, n), (size - n, size)] {
                let used = over(from, to);
                let same = |m: usize| {
                    let other = over(if from == 0 { 0 } else { size - m }, if from == 0 { m } else { size });
                    other.iter().zip(&used).all(|(a, b)| (a - b).abs() <= SAME / 2.0 * b)
                };
                if (1..=size).filter(|m| same(*m)).count() > 1 {
                    continue;
                }
                told += 1;
                let words = format!("amax is that of {what} {from} … {} of each group alone", to - 1);
                assert_eq!(cast.part_of_groups(&used, &known), Some(words));
            }
        }
        assert!(told >= size, "{told}");
        assert_eq!(cast.part_of_groups(&over(0, size), &known), None, "all of it");
        if what == "columns" {
            assert_eq!(cast.part_of_groups(&over(1, size - 1), &known), None, "neither from the start nor to the end");
        }
    }
}

/// Codes by one scale, of elements that were read elsewhere.
fn read_from(
    rows: usize,
    cols: usize,
    of: impl Fn(&[f32], usize) -> f32,
    see: impl FnOnce(&Cast) -> Option<Named>,
) -> Option<Named> {
    let data: Vec<f32> = (0..rows * cols).map(|at| ((at * 7919 + 101) % 1009) as f32 / 250.0 - 2.0).collect();
    let x = Tensor::new(Format::F32, rows, cols, data).unwrap();
    let q = codes(Format::E4m3, &x, Granularity::Row, vec![0.01; rows], |at| {
        nearest(Format::E4m3, f64::from(of(x.data(), at)) / f64::from(0.01f32))
    });
    see(&Cast::of(&x, &q))
}

#[test]
fn rows_that_are_read_at_another_stride_are_told() {
    let other = |at: usize| ((at * 613 + 7) % 311) as f32 / 100.0 - 1.5;
    for p in 2..=4 {
        let words = format!(
            "row {p}·i of the result is that of row i of a, and what is between is no row of a: a is read without its row stride"
        );
        let strided =
            |x: &[f32], at: usize| if (at / 40).is_multiple_of(p) { x[at / 40 / p * 40 + at % 40] } else { other(at) };
        assert_eq!(read_from(13, 40, strided, |c| c.strided()), Some((Class::Addressing, "a.stride", words)));
        assert_eq!(read_from(7, 40, strided, |c| c.strided()), None, "few rows");
    }
    assert_eq!(read_from(13, 40, |x, at| x[at], |c| c.strided()), None);
    for pitch in [48, 56, 60, 64, 72, 80, 104] {
        let words = format!(
            "element (i, j) of the result is that of i·40 + j in memory whose rows are {pitch} apart: a is read without its row stride"
        );
        let pitched = |x: &[f32], at: usize| if at % pitch < 40 { x[at / pitch * 40 + at % pitch] } else { other(at) };
        assert_eq!(read_from(13, 40, pitched, |c| c.pitched()), Some((Class::Addressing, "a.pitch", words)), "{pitch}");
    }
    assert_eq!(read_from(13, 40, |x, at| x[at], |c| c.pitched()), None);
    let turned = |x: &[f32], at: usize| x[at % 13 * 40 + at / 13];
    let words = "the codes are written column by column: element (i, j) at j·13 + i".to_string();
    assert_eq!(read_from(13, 40, turned, |c| c.transposed()), Some((Class::Addressing, "out.transposed", words)));
    let words = "the codes are those of the transpose, with the scales of the tensor as it is".to_string();
    let square = |x: &[f32], at: usize| x[at % 24 * 24 + at / 24];
    assert_eq!(read_from(24, 24, square, |c| c.transposed()), Some((Class::Addressing, "out.transposed", words)));
    assert_eq!(read_from(24, 24, |x, at| x[at], |c| c.transposed()), None);
}

#[test]
fn scales_that_are_all_off_by_one_factor_are_told() {
    let x = values(12, |_| None);
    let named = |scale: &dyn Fn(usize) -> f32, stored: &dyn Fn(f32) -> f32| {
        let scales: Vec<f32> = (0..12).map(scale).collect();
        let q = codes(Format::E4m3, &x, Granularity::Row, scales.iter().map(|s| stored(*s)).collect(), |at| {
            nearest(Format::E4m3, f64::from(x.data()[at]) / f64::from(scales[at / COLS]))
        });
        let cast = Cast::of(&x, &q);
        cast.scales(&cast.codes(Rounding::NearestEven).unwrap())
    };
    let (any, power) = (|i: usize| 0.01 + 0.001 * i as f32, |i: usize| 2f32.powi(i as i32 % 4 - 8));
    assert_eq!(
        named(&any, &|s| 1.0 / s),
        Some((Class::ScaleDoubledInverted, "out.inverted", "scale is stored where scale_inv belongs".into()))
    );
    for (by, shown) in [(1.5, "1.5000"), (0.75, "0.7500"), (0.25, "0.2500"), (3.0, "3.0000")] {
        let words = format!("the codes were made with other scales: every scale_inv is {shown} times that of its codes");
        assert_eq!(named(&any, &|s| by * s), Some((Class::StaleState, "out.scale_inv", words)));
    }
    for (by, n) in [(2.0, 1), (0.5, -1), (8.0, 3)] {
        let words = format!("every scale_inv is 2^{n} times that of its codes: its exponent is off by {n}");
        assert_eq!(named(&power, &|s| by * s), Some((Class::BitsReinterpreted, "out.exponent", words)));
    }
    assert_eq!(named(&any, &|s| s), None, "right");
}

/// Rows of ten that are twenty apart: no other pitch that is tried is 20.
#[test]
fn rows_twice_as_far_apart_are_told_of_any_width() {
    let words =
        "element (i, j) of the result is that of i·10 + j in memory whose rows are 20 apart: a is read without its row stride";
    let apart = |x: &[f32], at: usize| if at % 20 < 10 { x[at / 20 * 10 + at % 20] } else { 0.5 };
    assert_eq!(read_from(13, 10, apart, |c| c.pitched()), Some((Class::Addressing, "a.pitch", words.into())));
}

/// Two rows of 1, 2, 3, 4 in one group each. An amax of 3 is that of three columns; one of 8 is that of none, whatever others are.
#[test]
fn an_amax_that_a_group_does_not_reach_is_that_of_no_columns() {
    let x = Tensor::new(Format::F32, 2, 4, [1.0, 2.0, 3.0, 4.0].repeat(2)).unwrap();
    let q = codes(Format::E4m3, &x, Granularity::Row, vec![1.0; 2], |_| 0);
    let of = |used: [f64; 2]| Cast::of(&x, &q).part_of_groups(&used, &[0, 1]);
    assert_eq!(of([3.0, 3.0]).unwrap(), "amax is that of columns 0 … 2 of each group alone");
    assert_eq!(of([8.0, 3.0]), None);
    assert_eq!(of([3.0, 8.0]), None);
}

/// e4m3 has 1, 1.125 and 1.25.
#[test]
fn a_tie_lies_half_way_between_two_codes() {
    let x = Tensor::new(Format::F32, 1, 1, vec![1.0]).unwrap();
    let q = codes(Format::E4m3, &x, Granularity::Row, vec![1.0], |_| 0);
    let tied = |y: f64| Cast::of(&x, &q).is_tied(y);
    assert_eq!([1.0625, -1.1875, 1.0, 1.05, -1.125, 1.2].map(tied), [true, true, false, false, false, false]);
}

/// Six groups tell too little for a search of places, and are still those of the other row.
#[test]
fn a_few_groups_of_another_row_are_told() {
    let x = values(2, |_| None);
    let granularity = Granularity::Group(16);
    let amax: Vec<f64> = x.data().chunks(16).map(|g| g.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())))).collect();
    let used = [&amax[4..], &amax[..4]].concat();
    let q = codes(Format::E4m3, &x, granularity, used.iter().map(|u| (u / 448.0) as f32).collect(), |_| 0);
    let (_, variant, words) = Cast::of(&x, &q).chosen(&[(0.0, f64::INFINITY); 8]).unwrap();
    assert_eq!(variant, "out.amax_of");
    assert!(words.starts_with("amax of group (r, c) of the 2×4 grid is that of row r + 1, wrapped"), "{words}");
}
