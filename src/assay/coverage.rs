//! Which part of a format's code space a quantized tensor reaches.

use super::table::Cell;
use crate::format::Overflow;
use crate::format::grid::ValueGrid;
use crate::format::simd::best;
use crate::parallel;
use crate::{Error, QTensor, Result, Tensor};

/// Which codes of a format occur, one flag a code. Written in hexadecimal, code 0 in the highest bit of the first digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes(pub Vec<bool>);

impl Cell for Codes {
    fn text(&self) -> String {
        let digit = |four: &[bool]| four.iter().fold(0, |n, b| n * 2 + u32::from(*b));
        self.0.chunks(4).map(|four| char::from_digit(digit(four), 16).expect("below 16")).collect()
    }
    fn of(text: &str) -> Result<Self> {
        let bad = || Error::value("codes", format!("`{text}`"), "hexadecimal digits in small letters");
        let digit = |c: char| c.to_digit(16).filter(|_| !c.is_ascii_uppercase()).ok_or_else(bad);
        let digits: Vec<u32> = text.chars().map(digit).collect::<Result<_>>()?;
        Ok(Codes(digits.iter().flat_map(|d| (0..4).map(move |bit| d >> (3 - bit) & 1 == 1)).collect()))
    }
}

/// What occurs among the codes of one format.
#[derive(Clone, Debug)]
pub struct Coverage {
    pub codes: Codes,
    /// Elements that were exactly between two codes before rounding, by `value / scale_inv` in f64.
    pub ties: usize,
    /// Nonzero codes below the smallest normal number.
    pub subnormals: usize,
    /// Codes of the largest finite magnitude.
    pub saturations: usize,
}

impl Coverage {
    /// Of `q`, made from `x` of the same shape.
    pub fn of(q: &QTensor, x: &Tensor) -> Coverage {
        let format = q.format();
        let normal = 2f64.powi(format.min_exponent());
        let kind: Vec<(bool, bool)> = (0..1u32 << format.bits())
            .map(|c| {
                let v = format.decode(c);
                let subnormal = format.is_float() && v != 0.0 && v.abs() < normal;
                (subnormal, v == format.max_finite() || v == format.min_finite())
            })
            .collect();
        let none = || Coverage { codes: Codes(vec![false; kind.len()]), ties: 0, subnormals: 0, saturations: 0 };
        let same_shape = (q.rows(), q.cols()) == (x.rows(), x.cols());
        let add_codes = |c: &mut Coverage, code: usize, n: usize| {
            c.codes.0[code] |= n > 0;
            c.subnormals += if kind[code].0 { n } else { 0 };
            c.saturations += if kind[code].1 { n } else { 0 };
        };
        // A device that made the codes of `x` has counted them.
        if let Some(seen) = q.seen().filter(|seen| x.made().has(&seen.of)) {
            let mut all = Coverage { ties: seen.ties as usize, ..none() };
            let rows = seen.rows.iter().flat_map(|counts| counts.iter().enumerate().take(kind.len()));
            rows.for_each(|(code, n)| add_codes(&mut all, code, *n as usize));
            return all;
        }
        let values = ValueGrid::new(format, Overflow::Saturate);
        let (tile_rows, tile_cols) = q.granularity().tile(q.rows(), q.cols());
        let (_, grid_cols) = q.granularity().grid(q.rows(), q.cols());
        let add = |mut c: Coverage, i: usize| {
            let row = &q.codes()[i * q.cols()..(i + 1) * q.cols()];
            for (tile, codes) in row.chunks(tile_cols).enumerate() {
                codes.iter().for_each(|code| add_codes(&mut c, usize::from(*code), 1));
                if same_shape {
                    let scale_inv = q.affine((i / tile_rows) * grid_cols + tile).unit;
                    let x = &x.row(i)[tile * tile_cols..][..codes.len()];
                    c.ties += ties(&values, x, scale_inv) as usize;
                }
            }
            c
        };
        // Bands of rows: what is counted is as long as there are codes.
        let high = parallel::BAND / q.cols().max(1) + 1;
        let of_band = |n: usize| (n * high..q.rows().min((n + 1) * high)).fold(none(), add);
        parallel::collect(q.rows().div_ceil(high), of_band).into_iter().fold(none(), Coverage::and)
    }

    fn and(mut self, other: Coverage) -> Coverage {
        self.codes.0.iter_mut().zip(other.codes.0).for_each(|(a, b)| *a |= b);
        self.ties += other.ties;
        self.subnormals += other.subnormals;
        self.saturations += other.saturations;
        self
    }
}

best! {
    /// How many of these values are ties once they are divided by their scale_inv.
    fn ties(values: &ValueGrid, x: &[f32], scale_inv: f64) -> u64 => count_ties;
}

#[inline(always)]
fn count_ties(values: &ValueGrid, x: &[f32], scale_inv: f64) -> u64 {
    x.iter().map(|x| u64::from(values.is_tie(f64::from(*x) / scale_inv))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::quant::{Granularity, QTensorParts, Zero};
    use crate::tensor::There;
    use crate::tensor::afar::{FarCodes, Numbers, counts};

    #[test]
    fn codes_ties_subnormals_and_saturations_are_counted() {
        let x = Tensor::new(Format::F32, 1, 5, vec![1.0, 1.0625, 448.0, 0.001953125, -0.0]).unwrap();
        let codes =
            x.data().iter().map(|v| Format::E4m3.encode(f64::from(*v), crate::Rounding::NearestEven, Overflow::Saturate) as u8);
        let q = QTensor::new(QTensorParts {
            format: Format::E4m3,
            rows: 1,
            cols: 5,
            codes: codes.collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        })
        .unwrap();
        let c = Coverage::of(&q, &x);
        assert_eq!((c.ties, c.subnormals, c.saturations), (1, 1, 1));
        let seen: Vec<usize> = (0..256).filter(|i| c.codes.0[*i]).collect();
        assert_eq!(seen, [0x01, 0x38, 0x7e, 0x80]);
        assert_eq!(&c.codes.text()[..2], "40");
    }

    #[test]
    fn what_a_device_counted_is_taken_for_its_own_source_alone() {
        let x = Tensor::new(Format::F32, 2, 3, vec![1.0, 448.0, 0.001953125, -0.0, 1.0, 2.0]).unwrap();
        let codes: Vec<u8> = vec![0x38, 0x7e, 0x01, 0x80, 0x38, 0x40];
        let parts = QTensorParts {
            format: Format::E4m3,
            rows: 2,
            cols: 3,
            codes: Vec::new(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        };
        let here = QTensor::new(QTensorParts { codes: codes.clone(), ..parts.clone() }).unwrap();
        let made = FarCodes {
            rows: codes.chunks(3).map(counts).collect(),
            ties: 5,
            codes: Numbers::here(codes),
            there: There::default(),
        };
        let far = QTensor::elsewhere(parts, made, x.made()).unwrap();
        let (counted, found) = (Coverage::of(&far, &x), Coverage::of(&here, &x));
        assert_eq!((counted.subnormals, counted.saturations, counted.ties), (1, 1, 5));
        assert_eq!((found.subnormals, found.saturations, found.ties), (1, 1, 0));
        assert_eq!(counted.codes, found.codes);
        let other = Tensor::new(Format::F32, 2, 3, x.data().to_vec()).unwrap();
        assert_eq!(Coverage::of(&far, &other).ties, 0, "of another tensor it says nothing");
    }

    #[test]
    fn ties_are_the_half_way_points() {
        for s in crate::format::FORMATS.iter().filter(|s| s.bits <= 8) {
            let values = ValueGrid::new(s.format, Overflow::Saturate);
            for code in 0..s.format.max_code() {
                let (x, next) = (s.format.decode(code), s.format.decode(code + 1));
                let half = 0.5 * (x + next);
                assert!(values.is_tie(half) && (values.is_tie(-half) || !s.table.is_empty()), "{} {half:e}", s.name);
                for y in [x, half.next_up(), half.next_down(), 0.75 * x + 0.25 * next, f64::NAN, f64::INFINITY] {
                    assert!(!values.is_tie(y), "{} {y:e}", s.name);
                }
            }
        }
    }
}
