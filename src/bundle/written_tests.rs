//! Casts whose codes are right, but are put into words wrongly, written elsewhere, or have the scales of others. And a norm that keeps its variance
//! in 16 bits.

use super::Writer;
use super::named_tests::{found, is_named, round, values};
use crate::compare::Verdict;
use crate::format::pack::NibbleOrder;
use crate::quant::QTensorParts;
use crate::recipe::Recipe;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor, Zero};

const ROWS: usize = 24;
const COLS: usize = 96;

/// A cast to `format` with groups of `group`, whose codes are `of` the values over their scales.
fn cast(format: Format, group: usize, scale: impl Fn(&[f32]) -> f32, of: impl Fn(&[f64]) -> Vec<u8>) -> Writer {
    let x = values(Format::Bf16, ROWS, COLS, 11);
    let groups: Vec<&[f32]> = x.data().chunks(group).collect();
    let scale_inv: Vec<f32> = groups.iter().map(|g| scale(g)).collect();
    let y: Vec<f64> = x.data().iter().enumerate().map(|(at, v)| f64::from(*v) / f64::from(scale_inv[at / group])).collect();
    let granularity = if group == COLS { Granularity::Row } else { Granularity::Group(group) };
    let q = QTensor::new(QTensorParts {
        format,
        rows: ROWS,
        cols: COLS,
        codes: of(&y),
        granularity,
        scale_inv,
        zero: Zero::None,
        scale_format: Format::F32,
        level: None,
    });
    let mut w = Writer::new("cast");
    w.values("a", &[ROWS, COLS], &x).codes("out", &q.unwrap(), None, None).unwrap();
    w
}

fn amax(x: &[f32]) -> f32 {
    x.iter().fold(0f32, |m, x| m.max(x.abs()))
}

fn code(format: Format, y: f64) -> u8 {
    format.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

#[test]
fn signed_codes_that_are_not_masked_fill_the_lanes_above() {
    let int8 = |y: f64| y.round_ties_even().clamp(-127.0, 127.0) as i32;
    let words = |join: fn(i32, i32) -> i32, y: &[f64]| -> Vec<u8> {
        let word = |y: &[f64]| y.iter().enumerate().fold(0, |w, (lane, y)| join(w, int8(*y) << (8 * lane))).to_le_bytes();
        y.chunks(4).flat_map(word).collect()
    };
    let of = |join: fn(i32, i32) -> i32| cast(Format::Int8, COLS, |x| amax(x) / 127.0, move |y| words(join, y));
    is_named(&of(|w, x| w | x), "pack_permute:out.not_masked", &["or-ed into words of 4"]);
    is_named(&of(|w, x| w.wrapping_add(x)), "pack_permute:out.not_masked", &["added into words of 4"]);
    is_named(&of(|w, x| w ^ x), "pack_permute:out.not_masked", &["xor-ed into words of 4"]);
}

#[test]
fn rows_that_are_written_over_each_other_are_told_by_their_stride() {
    let of = |stride: usize| {
        cast(
            Format::E4m3,
            COLS,
            |x| amax(x) / 448.0,
            move |y| {
                let mut codes = vec![0; ROWS * COLS];
                // Which row comes last differs from place to place.
                for row in (0..ROWS).map(|n| n * 7 % ROWS) {
                    (0..COLS).for_each(|c| codes[row * stride + c] = code(Format::E4m3, y[row * COLS + c]));
                }
                codes
            },
        )
    };
    is_named(&of(1), "addressing:out.stride", &["over each other, 1 elements apart instead of 96"]);
    is_named(&of(40), "addressing:out.stride", &["over each other, 40 elements apart instead of 96"]);
}

#[test]
fn halves_of_groups_with_scales_of_their_own_are_told() {
    let x = values(Format::Bf16, ROWS, COLS, 11);
    let w = |stored: fn(&[f32]) -> f32| {
        cast(
            Format::E4m3,
            48,
            move |x| stored(x) / 448.0,
            |_| {
                let of = |half: &[f32]| {
                    half.iter().map(|v| code(Format::E4m3, f64::from(*v) / f64::from(amax(half) / 448.0))).collect::<Vec<u8>>()
                };
                x.data().chunks(24).flat_map(of).collect()
            },
        )
    };
    let parts = "each 24 columns of a group of 48";
    is_named(&w(|x| amax(&x[..24])), "amax_scope:out.amax_parts", &[parts, "that of the first part"]);
    is_named(&w(|x| amax(&x[24..])), "amax_scope:out.amax_parts", &[parts, "that of the last part"]);
}

#[test]
fn a_variance_in_sixteen_bits_is_told() {
    let (x, gamma) = (values(Format::F16, ROWS, COLS, 12), values(Format::F16, 1, COLS, 13));
    // One row whose variance is 0 there.
    let x: Vec<f32> = x.data().iter().enumerate().map(|(at, v)| if at / COLS == 3 { v / 65536.0 } else { *v }).collect();
    let x = Tensor::rounded(Format::F16, ROWS, COLS, x).unwrap();
    let y: Vec<f32> = (0..ROWS * COLS)
        .map(|at| {
            let row: Vec<f64> = x.row(at / COLS).iter().map(|x| f64::from(*x)).collect();
            let square = row.iter().map(|x| x * x).sum::<f64>() / COLS as f64 + 1e-12;
            (row[at % COLS] / round(Format::F16, square).sqrt() * f64::from(gamma.data()[at % COLS])) as f32
        })
        .collect();
    let mut w = Writer::new("rmsnorm");
    w.meta("eps", "1e-12").values("a", &[ROWS, COLS], &x).values("gamma", &[COLS], &gamma);
    w.values("out", &[ROWS, COLS], &Tensor::rounded(Format::F16, ROWS, COLS, y).unwrap());
    is_named(&w, "round_order:formula", &["what stands under the root is rounded to f16"]);
}

/// A view of every so manieth row of a wider tensor, read as if its rows lay side by side.
#[test]
fn rows_that_are_read_without_their_stride_are_told() {
    let x = values(Format::Bf16, ROWS, COLS, 11);
    for p in [2, 3] {
        let between = values(Format::Bf16, ROWS, COLS, 29);
        let of = |r: usize| if r.is_multiple_of(p) { x.row(r / p) } else { between.row(r) };
        let scale_inv: Vec<f32> = (0..ROWS).map(|r| amax(of(r)) / 448.0).collect();
        let codes = (0..ROWS).flat_map(|r| of(r).iter().map(move |v| (r, v)));
        let codes = codes.map(|(r, v)| code(Format::E4m3, f64::from(*v) / f64::from(scale_inv[r]))).collect();
        let q = QTensor::new(QTensorParts {
            format: Format::E4m3,
            rows: ROWS,
            cols: COLS,
            codes,
            granularity: Granularity::Row,
            scale_inv: scale_inv.clone(),
            zero: Zero::None,
            scale_format: Format::F32,
            level: None,
        });
        let mut w = Writer::new("cast");
        w.values("a", &[ROWS, COLS], &x).codes("out", &q.unwrap(), None, None).unwrap();
        is_named(&w, "addressing:a.stride", &[&format!("row {p}·i of the result is that of row i of a")]);
    }
}

#[test]
fn codes_of_the_other_table_of_four_bits_are_told() {
    // create_fp4_map of bitsandbytes: 0, 0.0625, 8, 12, 4, 6, 2, 3 over 12, then the same with a sign.
    let table = [0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0];
    let nearest = |y: f64| {
        let far = |c: &u8| (y.abs() - table[usize::from(*c)] / 12.0).abs();
        (0..8u8).min_by(|a, b| far(a).total_cmp(&far(b))).unwrap() | if y < 0.0 { 8 } else { 0 }
    };
    let w = cast(Format::Nf4, COLS, amax, |y| y.iter().map(|y| nearest(*y)).collect());
    is_named(&w, "bits_reinterpreted:out.of_fp4", &["the other table of 4 bits"]);
}

#[test]
fn exponents_of_amax_itself_are_told() {
    let x = values(Format::Bf16, ROWS, COLS, 11);
    let right = "mx_rceil".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
    let scales: Vec<f32> = x.data().chunks(32).map(|g| amax(g).log2().floor().exp2()).collect();
    let codes = x.data().iter().enumerate().map(|(at, v)| code(Format::E4m3, f64::from(*v / scales[at / 32]))).collect();
    let q = QTensor::new(QTensorParts { codes, scale_inv: scales, ..right.into_parts() }).unwrap();
    let mut w = Writer::new("cast");
    w.meta("recipe", "mx_rceil").values("a", &[ROWS, COLS], &x).codes("out", &q, None, None).unwrap();
    is_named(&w, "range_rule:out.exponent", &["the power of two not above amax"]);
}

/// The codes of a recipe over `x`, and what its scales and zero points become.
fn placed(recipe: &str, x: &Tensor, by: impl Fn(&QTensor, &mut QTensorParts)) -> Writer {
    let q = recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q;
    let mut parts = q.clone().into_parts();
    by(&q, &mut parts);
    let packing = (q.format().bits() == 4).then_some(NibbleOrder::LowFirst);
    let mut w = Writer::new("cast");
    w.values("a", &[x.rows(), x.cols()], x).codes("out", &QTensor::new(parts).unwrap(), None, packing).unwrap();
    w.meta("recipe", recipe);
    w
}

#[test]
fn scales_at_other_places_are_told_by_the_codes_they_made() {
    let x = values(Format::Bf16, 26, 320, 71);
    // Powers of two say little where nearly all groups have the same.
    let spread = |at: usize| 2f32.powi(((at / 320 * 7 + at % 320 / 32 * 3) % 9) as i32 - 4);
    let wide = x.data().iter().enumerate().map(|(at, v)| v * spread(at)).collect();
    let wide = Tensor::rounded(Format::Bf16, 26, 320, wide).unwrap();
    let of = |recipe: &str, place: fn(usize, usize) -> Option<usize>| {
        placed(recipe, if recipe.starts_with("mx") { &wide } else { &x }, |q, p| {
            let cols = q.granularity().grid(26, 320).1;
            let of = |at: usize| place(at / cols, at % cols).map_or(1.0, |g| q.scale_inv()[g]);
            p.scale_inv = (0..26 * cols).map(of).collect();
        })
    };
    // Stored one row late in the last tile of rows: the first of them has that of the row before, which keeps its own.
    let late = of("te_block_1x128_fp32", |r, c| Some((if r > 16 { r - 1 } else { r }) * 3 + c));
    let words =
        "scale_inv at (r, c) of the 26×3 grid is that of row r − 1, or the first row where there is none, in rows 17 … 25";
    is_named(&late, "scale_index:out.place", &[words]);
    let shared = of("te_nvfp4", |r, c| Some(if c > 15 { r / 2 * 2 } else { r } * 20 + c));
    is_named(&shared, "scale_shared:out.place", &["is that of row r − 1", "in groups 16 … 19"]);
    // Rows of ten that are read as if they were twelve apart, and what lies behind the last.
    let padded = of("mx_floor:e2m1", |r, c| Some(12 * r + c).filter(|f| *f < 260));
    let words = ["is that of number r·12 + c, counted row by row", "the 42 places behind the last hold none of them"];
    is_named(&padded, "scale_layout:out.place", &words);
    assert_eq!(found(&of("mx_floor:e2m1", |r, c| Some(10 * r + c))).0, Verdict::Pass);
    // Of anywhere: no place.
    let any = found(&of("te_nvfp4", |r, c| Some(if c > 15 { (r * 7919 + c * 613 + r * r * c) % 520 } else { r * 20 + c })));
    assert!(any.0 == Verdict::Fail && !any.1.contains("out.place"), "{any:?}");
}

#[test]
fn zero_points_at_other_places_are_told_by_the_codes_they_made() {
    let data = values(Format::F32, 30, 200, 72);
    let data = data
        .data()
        .iter()
        .enumerate()
        .map(|(at, v)| v + 0.3 * ((at / 200 * 5 + at % 200 / 48) * 7 % 11) as f32 - 1.5)
        .collect();
    let x = Tensor::new(Format::F32, 30, 200, data).unwrap();
    let of = |place: fn(usize, usize) -> usize| {
        placed("affine_asym:uint4:g48", &x, |q, p| {
            let Zero::Integer(z) = q.zero() else { panic!("integers") };
            p.zero = Zero::Integer((0..150).map(|at| z[place(at / 5, at % 5)]).collect());
        })
    };
    assert_eq!(found(&of(|r, c| r * 5 + c)).0, Verdict::Pass);
    let words = "zero point at (r, c) of the 30×5 grid is that of group c − 1, wrapped, in rows 23 … 29";
    is_named(&of(|r, c| r * 5 + if r > 22 { (c + 4) % 5 } else { c }), "scale_index:out.place_of_zero", &[words]);
    let transposed = found(&of(|r, c| c * 30 + r));
    assert!(transposed.1 == "scale_layout:out.place_of_zero" && transposed.2.contains("c·R + r"), "{transposed:?}");
}

/// The last block of a row is twelve columns wide, of which its amax covers eight; of one column that is left out nothing is told.
#[test]
fn an_amax_of_a_part_of_short_blocks_is_told_beside_whole_ones() {
    let (rows, cols) = (40, 76);
    let large = |at: usize, v: &f32| if at % cols >= 72 { 8.0 * v } else { *v };
    let data = values(Format::Bf16, rows, cols, 73).data().iter().enumerate().map(|(at, v)| large(at, v)).collect();
    let x = Tensor::rounded(Format::Bf16, rows, cols, data).unwrap();
    let block = |at: usize| at / cols / 16 * 3 + at % cols / 32;
    let of = |seen: fn(usize) -> bool| {
        let mut scale = [0f32; 9];
        (0..rows * cols)
            .filter(|at| seen(at % cols))
            .for_each(|at| scale[block(at)] = scale[block(at)].max(x.data()[at].abs()));
        let scale = scale.map(|s| s / 448.0);
        let codes = (0..rows * cols).map(|at| code(Format::E4m3, f64::from(x.data()[at] / scale[block(at)]))).collect();
        let mut w = Writer::new("cast");
        w.values("a", &[rows, cols], &x).raw("out.codes", safetensors::Dtype::F8_E4M3, &[rows, cols], codes);
        w.f32s("out.scale_inv", &[3, 3], &scale).meta("out.granularity", "block:16x32");
        found(&w)
    };
    let part = of(|c| c < 72);
    assert!((part.0, part.1.as_str()) == (Verdict::Fail, "amax_scope:out.amax_part"), "{part:?}");
    let words = "in rows 0 … 2, groups 2 of the 3×3 grid is that of their first 8 of 12 columns alone";
    assert!(part.2.contains(words), "{part:?}");
    assert_ne!(of(|c| c != 74).1, "amax_scope:out.amax_part");
    assert_eq!(of(|_| true).0, Verdict::Pass);
}

/// Groups whose largest magnitude is among the lanes that are read are right, and tell it too: few of these are wrong.
#[test]
fn an_amax_of_half_of_the_groups_of_some_rows_is_no_race() {
    let x = values(Format::F32, 24, 192, 77);
    let largest = |r: usize, c: usize, n: usize| amax(&x.row(r)[64 * c..64 * c + n]);
    let scale: Vec<f32> =
        (0..72).map(|g| largest(g / 3, g % 3, if (5..11).contains(&(g / 3)) { 32 } else { 64 }) / 448.0).collect();
    let codes = (0..24 * 192).map(|at| code(Format::E4m3, f64::from(x.data()[at] / scale[at / 192 * 3 + at % 192 / 64])));
    let mut w = Writer::new("cast");
    w.values("a", &[24, 192], &x).raw("out.codes", safetensors::Dtype::F8_E4M3, &[24, 192], codes.collect());
    w.f32s("out.scale_inv", &[24, 3], &scale).meta("out.granularity", "group:64");
    is_named(&w, "amax_scope:out.amax_part", &["their first 32 of 64 columns alone"]);
}
