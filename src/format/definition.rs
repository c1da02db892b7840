//! Decode and encode, slow and obvious: the definition that every fast path has to equal.

use super::{Format, Special, exp2i};

/// How a value between two neighbours is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to the even code (e8m0, whose significand has no even neighbour: ties up).
    NearestEven,
    /// Toward zero.
    TowardZero,
    /// Toward +∞.
    Up,
    /// Up in magnitude with probability (distance from the lower neighbour)/(gap), decided by these 32 random bits:
    /// up iff `bits < fraction · 2³²`.
    Stochastic(u32),
}

/// What becomes of a value that rounds beyond the largest finite one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// ±max finite, for Inf too; NaN stays NaN where the format has one.
    Saturate,
    /// The format's own: Inf where it has one, else NaN, else saturation. A finite value that the rounding direction brings
    /// back to max finite stays there (IEEE 754).
    Native,
}

impl Format {
    /// The value of a code; bits above the format's width are ignored. Exact.
    pub fn decode(self, code: u32) -> f64 {
        let s = self.spec();
        let code = if s.bits == 32 { code } else { code & ((1 << s.bits) - 1) };
        if !s.table.is_empty() {
            return f64::from(s.table[code as usize]);
        }
        if s.integer {
            let wrap = if s.signed && code & self.sign_bit() != 0 { exp2i(s.bits as i32) } else { 0.0 };
            return f64::from(code) - wrap;
        }
        if self == Format::E8m0 {
            return if code == 255 { f64::NAN } else { exp2i(code as i32 - 127) };
        }
        let (sign, magnitude) = (code & self.sign_bit(), code & !self.sign_bit());
        if s.special == Special::NegativeZeroNan && code == self.sign_bit() {
            return f64::NAN;
        }
        let value = if magnitude <= self.max_code() {
            let (exponent, fraction) = (magnitude >> s.mantissa, magnitude & ((1 << s.mantissa) - 1));
            let (significand, e) = if exponent == 0 { (fraction, 1) } else { (fraction | 1 << s.mantissa, exponent as i32) };
            f64::from(significand) * exp2i(e - s.bias - s.mantissa as i32)
        } else if self.inf_code() == Some(magnitude) {
            f64::INFINITY
        } else {
            return f64::NAN;
        };
        if sign != 0 { -value } else { value }
    }

    /// The code of `x`, rounded once (an f32 source: pass it widened, which is exact). NaN gives the canonical NaN code, without
    /// sign, or +max where the format has none (0 for integers). e8m0 ignores the sign and gives 2^-127 for anything smaller.
    /// Integers and tables saturate under both overflow rules.
    pub fn encode(self, x: f64, rounding: Rounding, overflow: Overflow) -> u32 {
        let s = self.spec();
        if x.is_nan() {
            return if s.integer { 0 } else { self.nan_code().unwrap_or(self.max_code()) };
        }
        if !s.table.is_empty() {
            return self.encode_by_table(x, rounding);
        }
        let negative = x.is_sign_negative() && self != Format::E8m0;
        let magnitude = x.abs();
        if s.integer {
            let n = round_integer(magnitude, negative, rounding);
            let n = if negative { -n } else { n }.clamp(self.min_finite(), self.max_finite());
            return (n as i64 as u32) & ((1u64 << s.bits) - 1) as u32;
        }
        let sign = if negative { self.sign_bit() } else { 0 };
        let code = if magnitude.is_infinite() {
            if overflow == Overflow::Saturate { self.max_code() } else { self.overflow_code() }
        } else {
            let e = exponent(magnitude).max(self.min_exponent());
            let n = round_integer(magnitude / exp2i(e - s.mantissa as i32), negative, rounding) as u64;
            // n counts steps of the binade's quantum; a carry runs into the exponent field by itself.
            let steps = n + ((e - self.min_exponent()) as u64) * (1 << s.mantissa);
            let code = if self == Format::E8m0 { steps.saturating_sub(1) } else { steps };
            let toward_zero = rounding == Rounding::TowardZero || (rounding == Rounding::Up && negative);
            match code > u64::from(self.max_code()) {
                true if overflow == Overflow::Saturate || toward_zero => self.max_code(),
                true => self.overflow_code(),
                false => code as u32,
            }
        };
        if s.special == Special::NegativeZeroNan && (code == 0 || Some(code) == self.nan_code()) { code } else { sign | code }
    }

    /// The distance between neighbouring values at the magnitude of `x`: 2^(floor(log2|x|) − mantissa bits), at least the
    /// subnormal gap. At a power of two it is the gap above; the one below is half of it. Beyond the largest finite value, and
    /// for NaN: the largest gap. 1 for integers. In a table the gap that `x` lies in, the one above at a value, the last one beyond it.
    pub fn ulp(self, x: f64) -> f64 {
        if self.is_integer() {
            return 1.0;
        }
        let table = self.spec().table;
        if !table.is_empty() {
            let above = table.partition_point(|v| !(f64::from(*v) > x)).clamp(1, table.len() - 1);
            return f64::from(table[above]) - f64::from(table[above - 1]);
        }
        let e = exponent(x.abs().min(self.max_finite())).max(self.min_exponent());
        exp2i(e - self.spec().mantissa as i32)
    }

    /// [`Format::encode`] of a number by the table of its values.
    fn encode_by_table(self, x: f64, rounding: Rounding) -> u32 {
        let x = x.clamp(self.min_finite(), self.max_finite());
        let table = self.spec().table;
        let high = table.partition_point(|v| f64::from(*v) < x) as u32;
        let (above, below) = (self.decode(high), self.decode(high.saturating_sub(1)));
        if x == above {
            return high;
        }
        let (gap, negative) = (above - below, x < 0.0);
        let fraction = (x - below) / gap;
        let up = match rounding {
            Rounding::NearestEven => fraction > 0.5 || (fraction == 0.5 && high.is_multiple_of(2)),
            Rounding::TowardZero => negative,
            Rounding::Up => true,
            Rounding::Stochastic(bits) => {
                let outward = if negative { (above - x) / gap } else { fraction };
                (f64::from(bits) < outward * exp2i(32)) != negative
            }
        };
        if up { high } else { high - 1 }
    }

    /// The code of a magnitude that overflows: Inf, else NaN, else max.
    fn overflow_code(self) -> u32 {
        self.inf_code().or(self.nan_code()).unwrap_or(self.max_code())
    }
}

/// floor(log2 |x|) of a finite nonzero x; −1075 for zero.
fn exponent(x: f64) -> i32 {
    let bits = x.to_bits() & !(1 << 63);
    match (bits >> 52) as i32 {
        0 => -1011 - bits.leading_zeros() as i32,
        e => e - 1023,
    }
}

/// A magnitude rounded to an integer (exact: the fraction of an f64 is an f64).
fn round_integer(magnitude: f64, negative: bool, rounding: Rounding) -> f64 {
    let (low, fraction) = (magnitude.floor(), magnitude - magnitude.floor());
    let up = match rounding {
        Rounding::NearestEven => fraction > 0.5 || (fraction == 0.5 && 0.5 * low != (0.5 * low).floor()),
        Rounding::TowardZero => false,
        Rounding::Up => fraction > 0.0 && !negative,
        Rounding::Stochastic(bits) => f64::from(bits) < fraction * exp2i(32),
    };
    if up { low + 1.0 } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FORMATS;

    #[test]
    fn maxima_and_ties_of_the_standard() {
        use {Overflow::*, Rounding::*};
        for (f, max, code) in [
            (Format::E4m3, 448.0, 0x7e),
            (Format::E5m2, 57344.0, 0x7b),
            (Format::E4m3Fnuz, 240.0, 0x7f),
            (Format::E5m2Fnuz, 57344.0, 0x7f),
            (Format::E2m1, 6.0, 7),
            (Format::E2m3, 7.5, 0x1f),
            (Format::E3m2, 28.0, 0x1f),
            (Format::E8m0, exp2i(127), 0xfe),
            (Format::Int4, 7.0, 7),
            (Format::Uint4, 15.0, 15),
            (Format::Uint6, 63.0, 63),
            (Format::Nf4, 1.0, 15),
            (Format::F16, 65504.0, 0x7bff),
            (Format::Bf16, 3.389_531_389_251_535_5e38, 0x7f7f),
            (Format::F32, f64::from(f32::MAX), 0x7f7f_ffff),
        ] {
            assert_eq!((f.max_finite(), f.max_code()), (max, code), "{f}");
        }
        assert_eq!(Format::E4m3.encode(464.0, NearestEven, Native), 0x7e);
        assert_eq!(Format::E4m3.encode(464.0000001, NearestEven, Native), 0x7f);
        assert_eq!(Format::E5m2.encode(61440.0, NearestEven, Native), 0x7c);
        assert_eq!(Format::E4m3Fnuz.encode(248.0, NearestEven, Native), 0x80);
        assert_eq!(Format::E5m2Fnuz.encode(-61440.0, NearestEven, Native), 0x80);
        assert_eq!(Format::E4m3Fnuz.encode(-1e-9, NearestEven, Native), 0);
        assert_eq!(Format::Int4.encode(7.5, NearestEven, Saturate), 7);
        assert_eq!(Format::Int4.encode(-8.5, NearestEven, Saturate), 8);
        // e8m0 rounds up to a power of two, as cvt.rp.satfinite.ue8m0x2 does, and has nothing below 2^-127.
        assert_eq!(Format::E8m0.encode(1.000_000_1, Up, Saturate), 128);
        assert_eq!(Format::E8m0.encode(1.5, NearestEven, Saturate), 128);
        assert_eq!((Format::E8m0.encode(0.0, Up, Saturate), Format::E8m0.encode(1e-300, Up, Saturate)), (0, 0));
        assert_eq!(Format::E8m0.encode(f64::INFINITY, Up, Saturate), 0xfe);
    }

    #[test]
    fn exponents_of_f64_reach_down_to_its_subnormals() {
        for e in [-1074, -1073, -1024, -1023, -1022, 0, 1023] {
            assert_eq!(exponent(exp2i(e)), e);
        }
        assert_eq!((exponent(-3.0 * exp2i(-1074)), exponent(0.0)), (-1073, -1075));
    }

    #[test]
    fn every_finite_code_of_up_to_16_bits_survives_a_round_trip() {
        for s in FORMATS.iter().filter(|s| s.bits <= 19) {
            for code in 0..1u32 << s.bits {
                let x = s.format.decode(code);
                if x.is_finite() {
                    for rounding in [Rounding::NearestEven, Rounding::TowardZero, Rounding::Up, Rounding::Stochastic(7)] {
                        assert_eq!(s.format.encode(x, rounding, Overflow::Native), code, "{} {code:#x} {rounding:?}", s.name);
                    }
                }
            }
        }
    }

    #[test]
    fn a_table_rounds_to_its_nearest_value() {
        use {Overflow::*, Rounding::*};
        let f = Format::Nf4;
        assert_eq!((f.min_finite(), f.sign_bit(), f.nan_code()), (-1.0, 0, None));
        let encode = |x: f64, rounding| f.encode(x, rounding, Native);
        assert_eq!((encode(-7.0, NearestEven), encode(7.0, NearestEven), encode(f64::NAN, NearestEven)), (0, 15, 15));
        for code in 0..15 {
            let (low, high) = (f.decode(code), f.decode(code + 1));
            let middle = 0.5 * (low + high);
            assert_eq!(encode(middle, NearestEven), code + code % 2, "a tie goes to the even code");
            assert_eq!((encode(middle.next_down(), NearestEven), encode(middle.next_up(), NearestEven)), (code, code + 1));
            let small = if low < 0.0 { code + 1 } else { code };
            assert_eq!((encode(middle, TowardZero), encode(middle, Up)), (small, code + 1));
            assert_eq!(
                (encode(middle, Stochastic(1 << 31)), encode(middle, Stochastic((1 << 31) - 1))),
                (small, 2 * code + 1 - small)
            );
        }
    }

    #[test]
    fn ulp_is_the_gap_above() {
        for s in FORMATS.iter().filter(|s| s.bits <= 16) {
            let f = s.format;
            for code in 0..f.max_code() {
                let (x, next) = (f.decode(code), f.decode(code + 1));
                assert_eq!(f.ulp(x), next - x, "{f} {code:#x}");
                if f.is_float() || f.is_integer() {
                    assert_eq!(f.ulp(-x), next - x, "{f} −{code:#x}");
                }
            }
            for beyond in [f.max_finite(), f64::INFINITY, f64::NAN] {
                assert_eq!(f.ulp(beyond), f.ulp(f.max_finite()), "{f}");
            }
        }
        assert_eq!(Format::E4m3.ulp(448.0), 32.0);
        assert_eq!(Format::E2m1.ulp(0.0), 0.5);
    }
}
