//! What a quantized tensor accepts, and that the fast dequantize is the slow one.

use super::*;
use crate::format::FORMATS;
use crate::input::philox::Stream;
use crate::{Overflow, Rounding};

fn parts(format: Format, rows: usize, cols: usize, granularity: Granularity, scale_format: Format, zero: u32) -> QTensorParts {
    let words = |purpose, i: usize| Stream::new(11, 0).words(purpose, i as u64)[0];
    let (gr, gc) = granularity.grid(rows, cols);
    let scale = |i| {
        let x = f64::from(words(1, i) >> 8) * 1e-9 + 1e-4;
        scale_format.decode(scale_format.encode(x, Rounding::NearestEven, Overflow::Saturate)) as f32
    };
    QTensorParts {
        format,
        rows,
        cols,
        codes: (0..rows * cols).map(|i| (words(0, i) & ((1 << format.bits()) - 1)) as u8).collect(),
        granularity,
        scale_format,
        scale_inv: (0..gr * gc).map(scale).collect(),
        zero: match zero {
            0 => Zero::None,
            1 => Zero::Integer((0..gr * gc).map(|i| (words(2, i) % 256) as i32 - 128).collect()),
            _ => Zero::Additive { zero: (0..gr * gc).map(|i| words(2, i) as f32 * 1e-10 - 0.2).collect(), mid: 8 },
        },
        level: (zero == 0).then(|| Level::whole(0.3)),
    }
}

const GRANULARITIES: [Granularity; 7] = [
    Granularity::Tensor,
    Granularity::Row,
    Granularity::Group(1),
    Granularity::Group(16),
    Granularity::Group(1000),
    Granularity::Block { rows: 4, cols: 5 },
    Granularity::Block { rows: 3, cols: 1 },
];

#[test]
fn fast_dequantize_equals_the_definition() {
    for format in FORMATS.iter().filter(|f| f.bits <= 8).map(|f| f.format) {
        for granularity in GRANULARITIES {
            for (rows, cols) in [(7, 37), (1, 16), (5, 1), (0, 4), (4, 0), (0, 0)] {
                for zero in 0..3 {
                    let mut p = parts(format, rows, cols, granularity, Format::F32, zero);
                    if let Some(s) = p.scale_inv.get_mut(1) {
                        *s = f32::NAN;
                    }
                    let q = QTensor::new(p).unwrap();
                    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                    let (slow, fast, single) = (q.dequantize(), q.dequantize_fast(), q.dequantize_f32());
                    assert_eq!((fast.dim(), single.dim()), ((rows, cols), (rows, cols)));
                    let what = || format!("{format} {granularity} {rows}×{cols} zero {zero}");
                    assert!(slow.iter().zip(&fast).all(|(a, b)| same(*a, *b)), "{}", what());
                    assert!(slow.iter().zip(&single).all(|(a, b)| same(f64::from(*a as f32), f64::from(*b))), "{}", what());
                    for (i, columns) in (0..rows).flat_map(|i| [(i, 0..cols), (i, cols / 3..cols - cols / 4)]) {
                        let some = q.values_of_row(i, columns.clone());
                        assert_eq!(some.len(), columns.len());
                        assert!(some.iter().zip(columns).all(|(a, j)| same(*a, slow[(i, j)])), "row {i} of {}", what());
                    }
                }
            }
        }
    }
}

#[test]
fn granularities_of_nothing_are_refused() {
    for granularity in [Granularity::Group(0), Granularity::Block { rows: 0, cols: 4 }, Granularity::Block { rows: 4, cols: 0 }]
    {
        let good = parts(Format::E4m3, 4, 8, Granularity::Tensor, Format::F32, 0);
        let e = QTensor::new(QTensorParts { granularity, ..good }).unwrap_err().to_string();
        assert!(e.contains("at least one row and one column"), "{e}");
    }
}

#[test]
fn scales_have_to_be_values_of_their_format() {
    for scale_format in [Format::F32, Format::F16, Format::Bf16, Format::E8m0, Format::E4m3] {
        let good = parts(Format::Int8, 4, 8, Granularity::Row, scale_format, 0);
        assert!(QTensor::new(good.clone()).is_ok(), "{scale_format}");
        let with = |x: f32| QTensor::new(QTensorParts { scale_inv: vec![1.0, 2.0, x, 4.0], ..good.clone() });
        assert!(with(f32::NAN).is_ok(), "{scale_format}");
        assert_eq!(with(0.1).is_ok(), scale_format == Format::F32, "{scale_format}");
        assert_eq!(with(0.0).is_ok(), scale_format != Format::E8m0, "{scale_format}");
        assert_eq!(with(-2.0).is_ok(), scale_format != Format::E8m0, "{scale_format}");
        assert_eq!(with(f32::INFINITY).is_ok(), !matches!(scale_format, Format::E8m0 | Format::E4m3), "{scale_format}");
    }
    for scale_format in [Format::E5m2, Format::Int8, Format::Tf32] {
        let good = parts(Format::Int8, 4, 8, Granularity::Row, Format::F32, 0);
        assert!(QTensor::new(QTensorParts { scale_format, ..good }).is_err(), "{scale_format}");
    }
}

#[test]
fn lengths_codes_and_formats_are_checked() {
    let good = parts(Format::Int4, 4, 8, Granularity::Group(4), Format::F32, 1);
    assert!(QTensor::new(good.clone()).is_ok());
    let change = |f: &dyn Fn(&mut QTensorParts)| {
        let mut p = good.clone();
        f(&mut p);
        QTensor::new(p).unwrap_err().to_string()
    };
    assert!(change(&|p| p.rows = 5).contains("codes: found shape 32 codes, expected 5×8"));
    assert!(change(&|p| p.rows = usize::MAX).contains("codes"));
    assert!(change(&|p| p.codes[3] = 16).contains("int4 code: found 0x10"));
    assert!(change(&|p| p.scale_inv.truncate(7)).contains("scale_inv: found shape 7 values, expected 4×2"));
    assert!(change(&|p| p.zero = Zero::Integer(vec![0; 3])).contains("zero_point"));
    assert!(change(&|p| p.format = Format::F16).contains("at most 8 bits"));
}

#[test]
fn transposing_twice_gives_the_values_back() {
    for granularity in GRANULARITIES {
        let q = QTensor::new(parts(Format::E4m3, 7, 37, granularity, Format::F32, 2)).unwrap();
        let t = q.transposed().unwrap();
        assert_eq!((t.rows(), t.cols()), (37, 7));
        let same = |a: &Array2<f64>, b: &Array2<f64>| a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan());
        assert!(same(&q.dequantize().reversed_axes().as_standard_layout().into_owned(), &t.dequantize()), "{granularity}");
        assert!(same(&q.dequantize(), &t.transposed().unwrap().dequantize()), "{granularity}");
    }
}

/// Two levels over tiles: 1×4 codes, 1×2 scales under one f16, and zero points under a second.
fn two_levels() -> QTensorParts {
    let mut p = parts(Format::Uint4, 3, 22, Granularity::Group(4), Format::E4m3, 2);
    let (gr, gc) = p.granularity.grid(p.rows, p.cols);
    p.zero = Zero::Additive { zero: (0..gr * gc).map(|i| (i % 64) as f32).collect(), mid: 0 };
    let f16 = |x: f32| half::f16::from_f32(x).to_f32();
    let numbers = |by: f32| (0..gr * gc.div_ceil(2)).map(|i| f16(by * (i as f32 + 1.3))).collect::<Vec<_>>();
    let (scale_inv, zero) = (numbers(0.01), Some(numbers(-0.003)));
    p.level = Some(Level { granularity: Granularity::Group(2), format: Format::F16, scale_inv, zero });
    p
}

#[test]
fn a_tiled_second_level_multiplies_scales_and_zero_points() {
    let p = two_levels();
    let q = QTensor::new(p.clone()).unwrap();
    let (Zero::Additive { zero, .. }, Some(level)) = (&p.zero, &p.level) else { unreachable!() };
    assert_eq!((q.global_scale_inv(), level.scale_inv.len()), (None, 9));
    for (i, j) in (0..3).flat_map(|i| (0..22).map(move |j| (i, j))) {
        // As GGUF has it: d·scale·code + dmin·min, by hand from the layout: six groups a row, three pairs of them.
        let (group, pair) = (i * 6 + j / 4, i * 3 + j / 8);
        let step = f64::from(level.scale_inv[pair]) * f64::from(p.scale_inv[group]);
        let least = f64::from(level.zero.as_ref().unwrap()[pair]) * f64::from(zero[group]);
        assert_eq!(q.value(i, j), f64::from(p.codes[i * 22 + j]) * step + least, "({i}, {j})");
        let found = q.affine(q.scale_index(i, j)).steps(q.value(i, j));
        assert!((found - f64::from(p.codes[i * 22 + j])).abs() < 1e-9, "({i}, {j}): {found}");
    }
    assert_eq!(q.dequantize(), q.dequantize_fast());
    let turned = q.transposed().unwrap();
    assert_eq!(q.dequantize().reversed_axes().as_standard_layout().into_owned(), turned.dequantize());
    assert_eq!(turned.transposed().unwrap().dequantize(), q.dequantize());
}

#[test]
fn a_second_level_is_checked() {
    let change = |f: &dyn Fn(&mut QTensorParts)| {
        let mut p = two_levels();
        f(&mut p);
        QTensor::new(p).unwrap_err().to_string()
    };
    fn level(p: &mut QTensorParts) -> &mut Level {
        p.level.as_mut().unwrap()
    }
    assert!(
        change(&|p| level(p).scale_inv.truncate(8)).contains("found shape 8 values, expected 3×3 for group:2 of 3×6 scales")
    );
    assert!(change(&|p| level(p).zero = Some(vec![1.0])).contains("its zero points: found shape 1 values"));
    assert!(change(&|p| level(p).scale_inv[0] = 0.1).contains("a value that f16 holds exactly"));
    assert!(change(&|p| level(p).granularity = Granularity::Group(0)).contains("at least one row and column"));
    assert!(change(&|p| level(p).format = Format::Int8).contains("one of f32, f16, bf16"));
    assert!(change(&|p| p.zero = Zero::None).contains("none where zero points are not additive"));
}

/// A product that is −0 stays it, with a zero point or without.
#[test]
fn the_sign_of_a_zero_is_kept() {
    let with = |scale: f32, zero: Zero| {
        let p = QTensorParts { codes: vec![3, 5, 7], scale_inv: vec![scale], zero, level: None, ..one_row() };
        let q = QTensor::new(p).unwrap();
        [0, 1, 2].map(|j| q.value(0, j).to_bits())
    };
    let bits = |x: [f64; 3]| x.map(f64::to_bits);
    assert_eq!(with(0.0, Zero::Integer(vec![5])), bits([-0.0, 0.0, 0.0]));
    assert_eq!(with(-2.0, Zero::Integer(vec![5])), bits([4.0, -0.0, -4.0]));
    assert_eq!(with(-0.0, Zero::None), bits([-0.0; 3]));
}

/// Three int8 codes under one scale.
fn one_row() -> QTensorParts {
    parts(Format::Int8, 1, 3, Granularity::Tensor, Format::F32, 1)
}
