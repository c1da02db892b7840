//! Codes of a cast that are made of the value beside them, of some lanes of a vector: a register of the element before is taken where small values have
//! a path of their own.
//!
//! ```text
//! |y| below the least normal code:  bits of (|y'| + magic) − bits of magic = |y'| / least subnormal, lower 7 bits, and the own sign          y': the neighbour's
//! ```

use super::casts::{Cast, Named};
use crate::Rounding;
use crate::fault::Class;
use crate::fault::solve::segment::lines;
use crate::{Format, Overflow};

/// Wrong elements, at least, and different codes among them.
const LEAST: usize = 16;
const CODES: usize = 8;
/// The share of wrong elements that a neighbour has to make.
const SHARE: f64 = 0.98;
/// How far the neighbour may be, and lanes of a vector.
const FAR: isize = 8;
const LANES: usize = 16;
/// Wrong elements that refuse a way before all are asked.
const FEW: usize = 512;

/// How a code is made of a value y' and of the sign of its own.
type Made = (&'static str, fn(Format, f64, f64) -> u32);

const MADE: [Made; 3] = [
    ("multiples of the least subnormal, of which the lower bits are kept with the own sign", |f, other, own| {
        let steps = (other.abs() / least(f)).round_ties_even();
        let bits = (steps % f64::from(1u32 << f.bits())) as u32;
        bits | u32::from(own < 0.0) << (f.bits() - 1)
    }),
    ("codes of their own", |f, other, _| f.encode(other, Rounding::NearestEven, Overflow::Saturate)),
    ("magnitudes with the own sign", |f, other, own| {
        f.encode(other.abs().copysign(own), Rounding::NearestEven, Overflow::Saturate)
    }),
];

/// The least magnitude that is not 0.
fn least(f: Format) -> f64 {
    f.decode(1)
}

impl Cast<'_> {
    /// Codes that a neighbour's value made, in some lanes.
    pub fn of_neighbours_values(&self) -> Option<Named> {
        let (f, cols, n) = (self.q.format(), self.q.cols(), self.q.codes().len());
        (!f.is_integer() && self.stored.iter().all(|s| *s > 0.0)).then_some(())?;
        let y = |at: usize| f64::from(self.x.data()[at]) / self.stored[self.group(at)];
        let wrong: Vec<usize> = (0..n).filter(|at| y(*at).is_finite() && !self.is_code(*at, y(*at))).collect();
        let mut codes: Vec<u8> = wrong.iter().map(|at| self.q.codes()[*at]).collect();
        codes.sort_unstable();
        codes.dedup();
        (wrong.len() >= LEAST && codes.len() >= CODES).then_some(())?;
        let from = |at: usize, d: isize| {
            let j = (at % cols).checked_add_signed(d).filter(|j| *j < cols)?;
            Some(at / cols * cols + j)
        };
        let offsets = (1..=FAR).flat_map(|d| [-d, d]);
        let ways = offsets.flat_map(|d| MADE.into_iter().map(move |m| (d, m)));
        let (d, (how, _)) = ways.into_iter().find(|(d, (_, made))| {
            let is =
                |at: &&usize| from(**at, *d).is_some_and(|other| made(f, y(other), y(**at)) == u32::from(self.q.codes()[**at]));
            let of_all = |step: usize| {
                let some = || wrong.iter().step_by(step);
                some().filter(is).count() as f64 >= SHARE * some().count() as f64
            };
            of_all(wrong.len().div_ceil(FEW)) && of_all(1)
        })?;
        // Small values alone, and which lanes of a vector.
        let normal = f.decode(1 << f.spec().mantissa);
        let small = wrong.iter().all(|at| y(*at).abs() < normal);
        let of_every = |k: usize| {
            let mut is = vec![false; k];
            wrong.iter().for_each(|at| is[at % cols % k] = true);
            is
        };
        // The shortest period that leaves the fewest lanes.
        let left = |k: &usize| LANES / k * of_every(*k).iter().filter(|l| **l).count();
        let every = (0..=4).map(|k| 1usize << k).filter(|k| *k <= LANES && wrong.len() >= 4 * k).min_by_key(left);
        let lanes = every.filter(|k| *k > 1).map(|k| format!(" at columns {} of every {k}", lines(&of_every(k))));
        let what = if small { "values below the least normal code" } else { "values" };
        let side = if d < 0 { "before" } else { "behind" };
        let words = format!(
            "{what}{} get the code of the element {} {side} them, {how}: a register of another element is taken there",
            lanes.unwrap_or_default(),
            d.abs()
        );
        Some((Class::Addressing, "out.neighbour_value", words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Granularity, QTensor, Tensor, Zero};

    /// What is said of a cast of 40 × 64 values by a scale of 1, of which some have other codes.
    fn said(other: &dyn Fn(&[f32], usize) -> Option<u8>) -> String {
        let number = |n: usize| ((n * 7919 + 101) % 1009) as f32 / 1009.0 - 0.4;
        let values: Vec<f32> = (0..40 * 64).map(|n| number(n) * if n % 3 == 1 { 0.02 } else { 3.0 }).collect();
        let own = |at: usize| Format::E4m3.encode(f64::from(values[at]), Rounding::NearestEven, Overflow::Saturate) as u8;
        let parts = QTensorParts {
            format: Format::E4m3,
            rows: 40,
            cols: 64,
            codes: (0..40 * 64).map(|at| other(&values, at).unwrap_or(own(at))).collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, 40, 64, values.clone()).unwrap(), QTensor::new(parts).unwrap());
        Cast::of(&x, &q).of_neighbours_values().map_or_else(String::new, |f| f.2)
    }

    #[test]
    fn codes_of_the_value_before_are_named() {
        let small = |v: f32| v.abs() < 1.0 / 64.0;
        let words = said(&|v, at| {
            let steps = (v[at - usize::from(at % 2 == 1)].abs() * 512.0).round_ties_even() as u32;
            (at % 2 == 1 && small(v[at])).then(|| (steps % 256) as u8 | if v[at] < 0.0 { 0x80 } else { 0 })
        });
        assert!(
            words.contains("below the least normal code at columns 1 of every 2 get the code of the element 1 before"),
            "{words}"
        );
        assert!(words.contains("multiples of the least subnormal"), "{words}");
        let words = said(&|v, at| {
            let encode = |v: f32| Format::E4m3.encode(f64::from(v), Rounding::NearestEven, Overflow::Saturate) as u8;
            (at % 4 == 0).then(|| encode(v[at + 2]))
        });
        assert!(
            words.starts_with("values at columns 0 of every 4 get the code of the element 2 behind them, codes of their own"),
            "{words}"
        );
        // 24 of them say every fourth column; every sixteenth takes 64.
        let words = said(&|v, at| {
            let encode = |v: f32| Format::E4m3.encode(f64::from(v), Rounding::NearestEven, Overflow::Saturate) as u8;
            (at % 16 == 1 && at < 6 * 64).then(|| encode(v[at + 2]))
        });
        assert!(words.starts_with("values at columns 1 of every 4 get the code of the element 2 behind them"), "{words}");
        assert_eq!(said(&|_, _| None), "");
        assert_eq!(said(&|_, at| (at % 5 == 1).then_some((at % 100) as u8)), "");
    }
}
