//! Which part of a format's code space a quantized tensor reaches.

use crate::format::{Format, Overflow, Rounding};
use crate::{QTensor, Tensor};

/// What occurs among the codes of one format.
#[derive(Clone, Debug)]
pub struct Coverage {
    pub format: Format,
    /// One flag a code.
    pub codes: Vec<bool>,
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
                let subnormal = !format.is_integer() && v != 0.0 && v.abs() < normal;
                (subnormal, v == format.max_finite() || v == format.min_finite())
            })
            .collect();
        let mut c = Coverage { format, codes: vec![false; kind.len()], ties: 0, subnormals: 0, saturations: 0 };
        let same_shape = (q.rows(), q.cols()) == (x.rows(), x.cols());
        for i in 0..q.rows() {
            for j in 0..q.cols() {
                let code = usize::from(q.codes()[i * q.cols() + j]);
                c.codes[code] = true;
                c.subnormals += usize::from(kind[code].0);
                c.saturations += usize::from(kind[code].1);
                if same_shape {
                    let scale_inv = f64::from(q.scale_inv()[q.scale_index(i, j)]) * q.global_scale_inv().map_or(1.0, f64::from);
                    c.ties += usize::from(is_tie(format, f64::from(x.row(i)[j]) / scale_inv));
                }
            }
        }
        c
    }

    /// The codes as hexadecimal, code 0 in the highest bit of the first digit.
    pub fn hex(&self) -> String {
        let digit = |four: &[bool]| four.iter().fold(0, |n, b| n * 2 + u32::from(*b));
        self.codes.chunks(4).map(|four| char::from_digit(digit(four), 16).expect("below 16")).collect()
    }
}

/// `y` is exactly half-way between two neighbouring finite values.
fn is_tie(format: Format, y: f64) -> bool {
    let y = y.abs();
    if !(y < format.max_finite()) {
        return false;
    }
    let low = format.decode(format.encode(y, Rounding::TowardZero, Overflow::Saturate));
    let gap = format.ulp(y);
    y - low == 0.5 * gap
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{Granularity, QTensorParts, Zero};

    #[test]
    fn codes_ties_subnormals_and_saturations_are_counted() {
        let x = Tensor::new(Format::F32, 1, 5, vec![1.0, 1.0625, 448.0, 0.001953125, -0.0]).unwrap();
        let codes =
            x.data().iter().map(|v| Format::E4m3.encode(f64::from(*v), Rounding::NearestEven, Overflow::Saturate) as u8);
        let q = QTensor::new(QTensorParts {
            format: Format::E4m3,
            rows: 1,
            cols: 5,
            codes: codes.collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            global_scale_inv: None,
        })
        .unwrap();
        let c = Coverage::of(&q, &x);
        assert_eq!((c.ties, c.subnormals, c.saturations), (1, 1, 1));
        let seen: Vec<usize> = (0..256).filter(|i| c.codes[*i]).collect();
        assert_eq!(seen, [0x01, 0x38, 0x7e, 0x80]);
        assert_eq!(&c.hex()[..2], "40");
    }
}
