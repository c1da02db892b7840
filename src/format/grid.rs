//! The values of a format on the line of f64 numbers: nearest value and spacing without going through codes, equal to
//! [`super::definition`] bit for bit.

use super::{Format, Overflow, Rounding, Special};
use std::sync::LazyLock;

/// Nearest value and spacing of one format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueGrid {
    format: Format,
    overflow: Overflow,
    integer: bool,
    table: bool,
    /// A sign, an exponent and a mantissa: [`ValueGrid::nearest_float`] holds.
    float: bool,
    mantissa: i64,
    min_exponent: i64,
    min: f64,
    max: f64,
    /// What a magnitude beyond the largest finite number, and a NaN, become.
    beyond: f64,
    nan: f64,
    /// Whether −0 has a code of its own.
    negative_zero: bool,
}

/// The exponent field of f64's 1. Exponents are as wide as what they are cut from: lanes of one width.
const ONE: i64 = 1023;

/// 2^e of an exponent in f64's normal range.
#[inline(always)]
fn power(e: i64) -> f64 {
    f64::from_bits(((e + ONE) as u64) << 52)
}

/// The exponent of a magnitude; that of a subnormal f64 is below every format's.
#[inline(always)]
fn exponent(magnitude: f64) -> i64 {
    (magnitude.to_bits() >> 52) as i64 - ONE
}

/// The grid of `format` with [`Overflow::Native`], made once.
pub fn native(format: Format) -> &'static ValueGrid {
    static GRIDS: LazyLock<Vec<ValueGrid>> =
        LazyLock::new(|| super::FORMATS.iter().map(|s| ValueGrid::new(s.format, Overflow::Native)).collect());
    &GRIDS[format as usize]
}

impl ValueGrid {
    pub fn new(format: Format, overflow: Overflow) -> Self {
        let s = format.spec();
        let through = |x: f64| format.decode(format.encode(x, Rounding::NearestEven, overflow));
        Self {
            format,
            overflow,
            integer: s.integer,
            table: !s.table.is_empty(),
            float: format.is_float() && format != Format::E8m0,
            mantissa: i64::from(s.mantissa),
            min_exponent: i64::from(format.min_exponent()),
            min: format.min_finite(),
            max: format.max_finite(),
            beyond: through(f64::INFINITY),
            nan: through(f64::NAN),
            negative_zero: s.special != Special::NegativeZeroNan,
        }
    }
    /// What a GPU reads of it: mantissa, smallest exponent, smallest and largest value, what is beyond, NaN, whether −0 has a code, whether it
    /// saturates. `None` unless [`ValueGrid::is_float`].
    pub(crate) fn numbers(&self) -> Option<[f64; 8]> {
        let flag = |x: bool| f64::from(u8::from(x));
        let saturates = flag(self.overflow == Overflow::Saturate);
        let (mantissa, exponent) = (self.mantissa as f64, self.min_exponent as f64);
        self.float.then_some([
            mantissa,
            exponent,
            self.min,
            self.max,
            self.beyond,
            self.nan,
            flag(self.negative_zero),
            saturates,
        ])
    }
    pub fn format(&self) -> Format {
        self.format
    }
    pub fn overflow(&self) -> Overflow {
        self.overflow
    }
    /// Smallest and largest finite value: [`Format::min_finite`], [`Format::max_finite`].
    #[inline(always)]
    pub fn min(&self) -> f64 {
        self.min
    }
    #[inline(always)]
    pub fn max(&self) -> f64 {
        self.max
    }

    #[inline(always)]
    pub fn is_integer(&self) -> bool {
        self.integer
    }
    /// Spacings between a power of two and the next: 2^mantissa.
    #[inline(always)]
    pub fn steps(&self) -> f64 {
        power(self.mantissa)
    }
    /// Whether values are a sign, an exponent and a mantissa.
    pub fn is_float(&self) -> bool {
        self.float
    }
    /// The distances from a value of a table to those below and above it, infinite at its ends; `None` where there is no table.
    pub fn gaps_of_table(&self, value: f64) -> Option<(f64, f64)> {
        let table = self.format.spec().table;
        let at = |i: usize| table.get(i).map(|v| (f64::from(*v) - value).abs()).filter(|d| *d > 0.0).unwrap_or(f64::INFINITY);
        let i = table.partition_point(|v| f64::from(*v) < value);
        self.table.then(|| (i.checked_sub(1).map_or(f64::INFINITY, at), at(i + 1)))
    }
    /// Whether `y` is half-way between two neighbouring finite values: as far from its nearest as half the gap that it lies in.
    #[inline(always)]
    pub fn is_tie(&self, y: f64) -> bool {
        let y = if self.table { y } else { y.abs() };
        let nearest = if self.float { self.nearest_float(y) } else { self.nearest(y) };
        (y < self.max) & ((y - nearest).abs() == 0.5 * self.ulp(y))
    }

    /// [`Format::ulp`].
    #[inline(always)]
    pub fn ulp(&self, x: f64) -> f64 {
        if self.integer {
            return 1.0;
        }
        if self.table {
            return self.format.ulp(x);
        }
        self.ulp_float(x)
    }

    /// [`ValueGrid::ulp`] where [`ValueGrid::is_float`], without a branch.
    #[inline(always)]
    pub fn ulp_float(&self, x: f64) -> f64 {
        // A NaN is the largest magnitude here, as in the definition.
        power(exponent(x.abs().min(self.max)).max(self.min_exponent) - self.mantissa)
    }

    /// `decode(encode(x))`, to nearest even.
    #[inline(always)]
    pub fn nearest(&self, x: f64) -> f64 {
        if self.float { self.nearest_float(x) } else { self.nearest_other(x) }
    }

    /// [`ValueGrid::nearest`] of an integer format, a table or e8m0.
    #[inline(never)]
    fn nearest_other(&self, x: f64) -> f64 {
        if x.is_nan() {
            self.nan
        } else if self.integer {
            // No −0 among integers.
            x.round_ties_even().clamp(self.min, self.max) + 0.0
        } else {
            self.format.decode(self.format.encode(x, Rounding::NearestEven, self.overflow))
        }
    }

    /// [`ValueGrid::nearest`] where [`ValueGrid::is_float`]: choices without branches, so that lanes go through it side by side.
    #[inline(always)]
    pub fn nearest_float(&self, x: f64) -> f64 {
        let magnitude = x.abs();
        // The sum's last bit is the quantum of x: it rounds as the format does, and the difference is exact. What is beyond the range may
        // be anything.
        let e = exponent(magnitude).max(self.min_exponent);
        let magic = 1.5 * power(e + 52 - self.mantissa);
        let rounded = (magnitude + magic) - magic;
        let value = if (rounded > self.max) | (magnitude >= 2.0 * self.max) { self.beyond } else { rounded };
        // The one NaN of fnuz formats has no sign, and neither has their zero.
        let signed = self.negative_zero | ((value != 0.0) & !value.is_nan());
        let value = if x.is_sign_negative() & signed { -value } else { value };
        if x.is_nan() { self.nan } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FORMATS;
    use crate::input::philox::Stream;

    fn agree(grid: &ValueGrid, x: f64) {
        let f = grid.format();
        let want = f.decode(f.encode(x, Rounding::NearestEven, grid.overflow()));
        let got = grid.nearest(x);
        assert!(
            got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
            "{f} {:?} {x:e}: {got:e} not {want:e}",
            grid.overflow()
        );
        assert_eq!(grid.ulp(x).to_bits(), f.ulp(x).to_bits(), "{f} ulp of {x:e}");
    }

    #[test]
    fn values_boundaries_and_random_numbers_are_the_definitions() {
        for s in FORMATS {
            for overflow in [Overflow::Saturate, Overflow::Native] {
                let grid = ValueGrid::new(s.format, overflow);
                // Every code of short formats, some of the others: the value, the way half to the next, and what lies beside.
                let step = if s.bits <= 16 { 1 } else { (1u64 << (s.bits - 16)) - 1 };
                for code in (0..1u64 << s.bits).step_by(step as usize) {
                    let x = s.format.decode(code as u32);
                    let next = s.format.decode((code as u32).wrapping_add(1));
                    for y in [x, 0.5 * (x + next), 0.75 * x + 0.25 * next] {
                        for z in [y, y.next_up(), y.next_down()] {
                            agree(&grid, z);
                            agree(&grid, -z);
                        }
                    }
                }
                let top = s.format.max_finite();
                for x in
                    [0.0, -0.0, f64::INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-320, top, 1.5 * top, 2.0 * top]
                {
                    for z in [x, x.next_up(), x.next_down()] {
                        agree(&grid, z);
                        agree(&grid, -z);
                    }
                }
                let stream = Stream::new(11, 3);
                for i in 0..20_000 {
                    let w = stream.words(s.format as u32, i);
                    let bits = u64::from(w[0]) << 32 | u64::from(w[1]);
                    agree(&grid, f64::from_bits(bits));
                    // Within the range of the format.
                    let e = s.format.min_exponent() - 30 + (w[2] % 300) as i32;
                    agree(&grid, f64::from_bits(bits & !(0x7ff << 52) | ((e.clamp(-1000, 1000) + 1023) as u64) << 52));
                }
            }
        }
    }

    /// Of the values of e2m1 in a table of nf4 the neighbours are as far as they stand apart.
    #[test]
    fn gaps_of_a_table_are_those_to_its_neighbours() {
        let grid = ValueGrid::new(Format::Nf4, Overflow::Saturate);
        let values: Vec<f64> = (0..16).map(|c| Format::Nf4.decode(c)).collect();
        for (i, v) in values.iter().enumerate() {
            let below = i.checked_sub(1).map_or(f64::INFINITY, |i| v - values[i]);
            let above = values.get(i + 1).map_or(f64::INFINITY, |w| w - v);
            assert_eq!(grid.gaps_of_table(*v), Some((below, above)), "{i}");
        }
        assert_eq!(ValueGrid::new(Format::E4m3, Overflow::Saturate).gaps_of_table(1.0), None);
    }

    /// Of each format by its definition: what a GPU is given has no other test without one.
    #[test]
    fn numbers_for_a_gpu_are_those_of_the_formats() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (format, overflow, right) in [
            (Format::E4m3, Overflow::Saturate, [3.0, -6.0, -448.0, 448.0, 448.0, nan, 1.0, 1.0]),
            (Format::E4m3, Overflow::Native, [3.0, -6.0, -448.0, 448.0, nan, nan, 1.0, 0.0]),
            (Format::E5m2, Overflow::Native, [2.0, -14.0, -57344.0, 57344.0, inf, nan, 1.0, 0.0]),
            (Format::E4m3Fnuz, Overflow::Saturate, [3.0, -7.0, -240.0, 240.0, 240.0, nan, 0.0, 1.0]),
        ] {
            let found = ValueGrid::new(format, overflow).numbers().unwrap();
            let same = found.iter().zip(right).all(|(x, y)| *x == y || (x.is_nan() && y.is_nan()));
            assert!(same, "{format} {overflow:?}: {found:?}");
        }
        assert_eq!(ValueGrid::new(Format::Int8, Overflow::Saturate).numbers(), None);
        assert_eq!(ValueGrid::new(Format::E8m0, Overflow::Saturate).numbers(), None);
    }
}
