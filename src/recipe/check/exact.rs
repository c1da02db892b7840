//! Rounding to a binary floating-point type, in f64. One basic operation on operands of f32 (or f16, bf16) in f64, then one
//! rounding here, is the correctly rounded operation: 53 ≥ 2·24 + 2 bits make the first rounding harmless.

/// A binary floating-point type: significand bits, exponents of the smallest and largest normal numbers.
#[derive(Clone, Copy)]
pub(super) struct Binary {
    bits: i32,
    min: i32,
    max: i32,
}

pub(super) const F32: Binary = Binary { bits: 24, min: -126, max: 127 };
pub(super) const BF16: Binary = Binary { bits: 8, min: -126, max: 127 };
pub(super) const F16: Binary = Binary { bits: 11, min: -14, max: 15 };
/// No further rounding.
pub(super) const F64: Binary = Binary { bits: 53, min: -1022, max: 1023 };

impl Binary {
    pub(super) fn of(format: crate::Format) -> Binary {
        match format {
            crate::Format::F16 => F16,
            crate::Format::Bf16 => BF16,
            _ => F32,
        }
    }
    pub(super) fn bits(self) -> i32 {
        self.bits
    }
    /// The wider of two as PyTorch promotes: f16 with bf16 is f32.
    pub(super) fn with(self, other: Binary) -> Binary {
        if self.bits == other.bits {
            self
        } else if self.bits == 53 || other.bits == 53 {
            F64
        } else {
            F32
        }
    }
    /// Nearest, ties to even, IEEE overflow.
    pub(super) fn rn(self, x: f64) -> f64 {
        if self.bits == 53 || x == 0.0 || !x.is_finite() {
            return x;
        }
        let quantum = pow2(log2_floor(x.abs()).max(self.min) - self.bits + 1);
        let steps = x / quantum;
        let low = steps.floor();
        let up = steps - low > 0.5 || (steps - low == 0.5 && (low / 2.0).floor() * 2.0 != low);
        let rounded = (if up { low + 1.0 } else { low }) * quantum;
        if rounded.abs() >= pow2(self.max + 1) { f64::INFINITY.copysign(x) } else { rounded.abs().copysign(x) }
    }
    /// The largest finite value.
    pub(super) fn largest(self) -> f64 {
        pow2(self.max) * (2.0 - pow2(1 - self.bits))
    }
    /// The distance from 1 to the next value (`finfo.eps`).
    pub(super) fn eps(self) -> f64 {
        pow2(1 - self.bits)
    }
}

/// 2^e by repeated products, exact within f64's normal range.
pub(super) fn pow2(e: i32) -> f64 {
    let factor = if e < 0 { 0.5f64 } else { 2.0 };
    factor.powi(e.abs())
}

/// floor(log2 x) of a positive finite x, by search.
pub(super) fn log2_floor(x: f64) -> i32 {
    let mut e = x.log2().floor() as i32;
    while pow2(e) > x {
        e -= 1;
    }
    while pow2(e + 1) <= x {
        e += 1;
    }
    e
}

/// ceil(log2 x) of a positive finite x.
pub(super) fn log2_ceil(x: f64) -> i32 {
    let e = log2_floor(x);
    if pow2(e) == x { e } else { e + 1 }
}

/// Equal, NaN as a class; zeros by sign.
pub(super) fn same(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Just below a power of two, whose logarithm rounds to it, at it, and above it.
    #[test]
    fn the_exponent_is_found_beside_powers_of_two() {
        for e in [-1000, -126, -2, 0, 1, 100, 1000] {
            let x = pow2(e);
            assert_eq!([x.next_down(), x, x.next_up()].map(log2_floor), [e - 1, e, e]);
            assert_eq!([x.next_down(), x, x.next_up()].map(log2_ceil), [e, e, e + 1]);
        }
    }

    #[test]
    fn eps_is_the_step_above_one() {
        for (ours, eps) in [(F32, f64::from(f32::EPSILON)), (F16, f64::from(half::f16::EPSILON)), (F64, f64::EPSILON)] {
            assert_eq!(ours.eps(), eps);
        }
    }
}
