//! Casts whose lines meet others: an amax that covers another row's columns, one vector for all rows, passes over a block, numbers that are cut after
//! they chose the codes; and the amax of a result that another part, or another gain, made.

use super::Writer;
use super::named_tests::{found, is_named, values};
use crate::format::pack::NibbleOrder;
use crate::quant::{QTensorParts, Zero};
use crate::recipe::Recipe;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor};

const ROWS: usize = 48;

fn code(f: Format, y: f64) -> u8 {
    f.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

/// A cast of these values to these codes.
fn cast(x: &Tensor, parts: QTensorParts) -> Writer {
    let packing = (parts.format.bits() == 4).then_some(NibbleOrder::LowFirst);
    let mut w = Writer::new("cast");
    w.values("a", &[x.rows(), x.cols()], x).codes("out", &QTensor::new(parts).unwrap(), None, packing).unwrap();
    w
}

/// Parts of one level without zero points.
fn parts(format: Format, x: &Tensor, granularity: Granularity, scale_inv: Vec<f32>, codes: Vec<u8>) -> QTensorParts {
    let (rows, cols, zero, level) = (x.rows(), x.cols(), Zero::None, None);
    QTensorParts { format, rows, cols, codes, granularity, scale_format: Format::F32, scale_inv, zero, level }
}

fn most(x: &[f32]) -> f32 {
    x.iter().fold(0f32, |m, v| m.max(v.abs()))
}

#[test]
fn columns_of_an_earlier_row_in_an_amax_are_named() {
    let x = values(Format::F32, ROWS, 128, 971);
    let right = "te_block_1x128_fp32".parse::<Recipe>().unwrap().quantize(&x).unwrap().q.into_parts();
    let with = |of: &dyn Fn(usize) -> f32| {
        let mut p = right.clone();
        for i in 0..ROWS {
            p.scale_inv[i] = most(x.row(i)).max(of(i)) / 448.0;
            for (j, v) in x.row(i).iter().enumerate() {
                p.codes[i * 128 + j] = code(Format::E4m3, f64::from(v / p.scale_inv[i]));
            }
        }
        let mut w = cast(&x, p);
        w.meta("recipe", "te_block_1x128_fp32");
        w
    };
    let words = ["amax of a group of row i also covers columns 64 … 95 of row i − 3"];
    is_named(&with(&|i| if i < 3 { 0.0 } else { most(&x.row(i - 3)[64..96]) }), "amax_scope:out.amax_rows", &words);
    let other = found(&with(&|i| most(x.row(i)) * (1.0 + (i % 4) as f32 * 0.3)));
    assert_ne!(other.1, "amax_scope:out.amax_rows", "of no row: {}", other.2);
}

#[test]
fn rows_that_hold_one_vector_are_named() {
    let x = values(Format::F32, ROWS, 80, 972);
    let scale_inv: Vec<f32> = (0..ROWS).map(|i| most(x.row(i)) / 127.0).collect();
    let with = |of: &dyn Fn(usize, usize) -> f32| {
        let codes = (0..ROWS * 80).map(|at| code(Format::Int8, f64::from(of(at / 80, at % 80) / scale_inv[at / 80])));
        cast(&x, parts(Format::Int8, &x, Granularity::Row, scale_inv.clone(), codes.collect()))
    };
    let factor = |j: usize| 0.1 + (j * 13 % 29) as f32 / 200.0;
    let words = ["every row holds the codes of one and the same vector, a number a column"];
    is_named(&with(&|_, j| factor(j)), "addressing:out.one_vector", &words);
    is_named(&with(&|_, j| x.row(5)[j]), "addressing:out.one_line", &["every row holds the codes of row 5 of a"]);
}

#[test]
fn passes_over_a_block_are_named() {
    let x = values(Format::F32, ROWS, 64, 973);
    // The largest magnitude of the rows from the block's first to before this one.
    let of =
        |i: usize, j: usize, to: usize| (i / 16 * 16..to).map(|r| most(&x.row(r)[j / 16 * 16..][..16])).fold(0.0, f32::max);
    let with = |size: usize| {
        let scale_inv = (0..3 * 4).map(|g| of(g / 4 * 16, g % 4 * 16, g / 4 * 16 + 16) / 448.0).collect();
        let one = |at: usize| {
            let (i, j) = (at / 64, at % 64);
            code(Format::E4m3, f64::from(x.data()[at] / (of(i, j, i / size * size + size) / 448.0)))
        };
        let codes = (0..ROWS * 64).map(one).collect();
        cast(&x, parts(Format::E4m3, &x, Granularity::Block { rows: 16, cols: 16 }, scale_inv, codes))
    };
    let words = ["the codes of each 4 rows of a block of 16×16 are made with the largest magnitude so far"];
    is_named(&with(4), "amax_scope:out.amax_passes", &words);
    assert_eq!(found(&with(16)).1, "", "the whole block's");
}

#[test]
fn affine_numbers_that_are_cut_after_they_chose_the_codes_are_named() {
    let x = values(Format::F32, ROWS, 64, 974);
    let lines: Vec<(f32, f32)> = (x.data().chunks(32))
        .map(|c| {
            let (low, high) = c.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
            ((high - low) / 15.0, low)
        })
        .collect();
    let with = |store: &dyn Fn(f32) -> f32| {
        let codes = (0..ROWS * 64).map(|at| {
            let (s, z) = lines[at / 32];
            code(Format::Uint4, f64::from((x.data()[at] - z) / s))
        });
        let scale_inv = lines.iter().map(|l| store(l.0)).collect();
        let mut p = parts(Format::Uint4, &x, Granularity::Group(32), scale_inv, codes.collect());
        p.zero = Zero::Additive { zero: lines.iter().map(|l| store(l.1)).collect(), mid: 0 };
        cast(&x, p)
    };
    let words = ["codes are chosen with the scales and zero points as they are computed in f32", "cut to bf16"];
    let cut = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
    is_named(&with(&cut), "scale_rerounded:out.exact_scale", &words);
    assert_eq!(found(&with(&|x| x)).1, "", "stored as they are");
}

/// A number of every element.
type Of<'f> = &'f dyn Fn(usize) -> f64;

/// An rmsnorm in FP8 by current scaling, whose scale is of this amax.
fn rmsnorm(x: &Tensor, gamma: &[f32], amax: &dyn Fn(Of) -> f64) -> Writer {
    let cols = x.cols();
    let root: Vec<f64> = (0..x.rows())
        .map(|i| (x.row(i).iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / cols as f64 + 1e-5).sqrt())
        .collect();
    let normed = |at: usize| f64::from(x.data()[at]) / root[at / cols];
    let amax = amax(&normed) as f32;
    let scale = 448.0 / amax;
    let codes = (0..x.data().len())
        .map(|at| code(Format::E4m3, normed(at) * (1.0 + f64::from(gamma[at % cols])) * f64::from(scale)))
        .collect();
    let mut w = Writer::new("rmsnorm");
    w.meta("recipe", "te_current").meta("eps", "1e-5").meta("zero_centered_gamma", "true");
    w.values("a", &[x.rows(), cols], x).f32s("gamma", &[cols], gamma);
    w.raw("out.codes", safetensors::Dtype::F8_E4M3, &[x.rows(), cols], codes);
    w.f32s("out.scale", &[1], &[scale]).f32s("out.scale_inv", &[1], &[1.0 / scale]).f32s("out.amax", &[1], &[amax]);
    w
}

#[test]
fn a_scale_of_another_gains_amax_and_of_the_last_rows_are_named() {
    let x = values(Format::Bf16, 56, 96, 975);
    let gamma: Vec<f32> = (0..96).map(|j| 0.3 + (j * 37 % 41) as f32 / 50.0).collect();
    let over = |from: usize, of: &dyn Fn(usize) -> f64| (from * 96..56 * 96).map(|at| of(at).abs()).fold(0.0, f64::max);
    let gain = |at: usize| f64::from(gamma[at % 96]);
    let right = rmsnorm(&x, &gamma, &|n| over(0, &|at| n(at) * (1.0 + gain(at))));
    assert_eq!(found(&right).1, "");
    let words = ["out.amax is that of the norm times gamma, not 1 + gamma"];
    is_named(&rmsnorm(&x, &gamma, &|n| over(0, &|at| n(at) * gain(at))), "amax_scope:out.amax_stage", &words);
    let last = found(&rmsnorm(&x, &gamma, &|n| over(48, &|at| n(at) * (1.0 + gain(at)))));
    assert!(last.1.starts_with("amax_scope:") && last.2.contains("rows 48 … 55"), "{last:?}");
    let none = found(&rmsnorm(&x, &gamma, &|n| 0.317 * over(0, &|at| n(at) * gain(at))));
    assert!(!none.1.starts_with("amax_scope:"), "{none:?}");
}
