//! Intervals of values that a computed f32 can have.
//!
//! Every operation returns an interval that holds the exact result and the result rounded to f32, for all arguments in the
//! argument intervals: an f32 evaluation stays inside whether each operation is rounded or contracted into an FMA. The ends
//! are found in f64 and moved outward by one f64 ulp, so that f64's own rounding stays inside too. (Moore, Kearfott, Cloud,
//! *Introduction to Interval Analysis*, 2009, chapter 2.) That nearest-even rounding is monotone makes the ends enough.

use crate::{Format, Overflow, Rounding};

/// Unit roundoff of f32.
pub const U: f64 = 5.960_464_477_539_063e-8;

/// The relative width of `ulps` f32 ulps: one ulp is at most 2u of its value.
const fn ulps(ulps: f64) -> f64 {
    2.0 * ulps * U
}

/// e^x, tanh x and 1/√x of a device: 2 ulp each ("Mathematical Functions" of the CUDA C++ Programming Guide, single
/// precision: expf 2, tanhf 2, rsqrtf 2). 1/sqrtf(x), two correctly rounded steps, is within it.
const LIBM_ULPS: f64 = 2.0;

/// What a computed value can be: between `lo` and `hi`, or NaN if `nan`. Nothing but NaN when `lo > hi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub lo: f64,
    pub hi: f64,
    pub nan: bool,
}

fn rn32(x: f64) -> f64 {
    f64::from(x as f32)
}

impl Interval {
    /// Only NaN.
    pub const NAN: Interval = Interval { lo: f64::INFINITY, hi: f64::NEG_INFINITY, nan: true };
    /// Anything, NaN included: an intermediate result may leave the range of f32.
    pub const ANY: Interval = Interval { lo: f64::NEG_INFINITY, hi: f64::INFINITY, nan: true };

    pub fn point(x: f64) -> Self {
        if x.is_nan() { Self::NAN } else { Self { lo: x, hi: x, nan: false } }
    }
    pub fn new(lo: f64, hi: f64) -> Self {
        Self { lo, hi, nan: false }
    }
    pub fn is_empty(self) -> bool {
        self.lo > self.hi
    }
    #[cfg(test)]
    pub fn is_point(self) -> bool {
        self.lo == self.hi && !self.nan
    }
    #[cfg(test)]
    /// Whether a kernel may return `x`.
    pub fn allows(self, x: f64) -> bool {
        if x.is_nan() { self.nan } else { self.lo <= x && x <= self.hi }
    }
    /// The distance of an allowed `actual` from `ideal` over that of the farther end: at most 1. Infinite outside the
    /// interval; 0 for a NaN that is allowed.
    #[cfg(test)]
    pub fn used(self, ideal: f64, actual: f64) -> f64 {
        if !self.allows(actual) {
            return f64::INFINITY;
        }
        if actual.is_nan() || actual == ideal {
            return 0.0;
        }
        let used = (actual - ideal).abs() / (self.hi - ideal).max(ideal - self.lo);
        if used.is_nan() { 0.0 } else { used }
    }
    /// The smallest interval around both.
    pub fn hull(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi), nan: self.nan || other.nan }
    }
    /// Around the ends of an operation: NaN among them is a possible NaN; the rest outward by an f64 ulp and hulled with
    /// their f32 roundings.
    fn around<const N: usize>(ends: [f64; N], nan: bool) -> Self {
        let mut all = Self { nan, ..Self::NAN };
        for end in ends {
            match end.is_nan() {
                true => all.nan = true,
                false => all = Self { lo: all.lo.min(end), hi: all.hi.max(end), nan: all.nan },
            }
        }
        if all.is_empty() {
            return Self { nan: true, ..all };
        }
        let (lo, hi) = (all.lo.next_down(), all.hi.next_up());
        Self { lo: lo.min(rn32(lo)), hi: hi.max(rn32(hi)), nan: all.nan }
    }
    fn has_zero(self) -> bool {
        self.lo <= 0.0 && 0.0 <= self.hi
    }
    fn has_inf(self) -> bool {
        !self.is_empty() && (self.lo == f64::NEG_INFINITY || self.hi == f64::INFINITY)
    }
    fn has_finite(self) -> bool {
        self.lo < f64::INFINITY && self.hi > f64::NEG_INFINITY
    }
    /// |x|
    pub fn magnitude(self) -> Self {
        if self.is_empty() {
            return self;
        }
        let (lo, hi) = (self.lo.abs().min(self.hi.abs()), self.lo.abs().max(self.hi.abs()));
        Self { lo: if self.has_zero() { 0.0 } else { lo }, hi, nan: self.nan }
    }
    /// x²
    pub fn square(self) -> Self {
        let m = self.magnitude();
        Self::around([m.lo * m.lo, m.hi * m.hi], m.nan)
    }
    /// e^x within `LIBM_ULPS`, or a subnormal quantum of that many.
    pub fn exp(self) -> Self {
        self.function(f64::exp)
    }
    /// tanh x within `LIBM_ULPS` and never beyond ±1; from |x| = 10 on, where 1 − |tanh x| < u/8, ±1 or the exact value.
    pub fn tanh(self) -> Self {
        let t = self.function(f64::tanh);
        if t.is_empty() {
            return t;
        }
        let lo = if self.lo >= 10.0 { self.lo.tanh().next_down() } else { t.lo.max(-1.0) };
        let hi = if self.hi <= -10.0 { self.hi.tanh().next_up() } else { t.hi.min(1.0) };
        Self { lo, hi, nan: t.nan }
    }
    /// erf x within 2 ulp of the nearest f32 (CUDA C++ Programming Guide, `erff`) and never beyond ±1; from |x| = 4.2 on, where
    /// 1 − |erf x| < u/16, ±1 or the exact value.
    pub fn erf(self) -> Self {
        const ULPS: f64 = LIBM_ULPS + 0.5;
        if self.is_empty() {
            return self;
        }
        let off = |y: f64| ULPS * Format::F32.ulp(rn32(y).abs().max(y.abs()));
        let (from, to) = (libm::erf(self.lo), libm::erf(self.hi));
        let all = Self::around([from - off(from), to + off(to)], self.nan);
        let lo = if self.lo >= 4.2 { from.next_down() } else { all.lo.max(-1.0) };
        let hi = if self.hi <= -4.2 { to.next_up() } else { all.hi.min(1.0) };
        Self { lo, hi, nan: self.nan }
    }
    fn function(self, f: impl Fn(f64) -> f64) -> Self {
        if self.is_empty() {
            return self;
        }
        let off = |y: f64| if y.is_infinite() { 0.0 } else { ulps(LIBM_ULPS) * y.abs() + LIBM_ULPS * Format::F32.decode(1) };
        let (lo, hi) = (f(self.lo), f(self.hi));
        Self::around([lo - off(lo), hi + off(hi)], self.nan).not_below(lo.min(0.0))
    }
    /// Keeps a function that is never negative from being below zero.
    fn not_below(self, least: f64) -> Self {
        if least == 0.0 { Self { lo: self.lo.max(0.0), ..self } } else { self }
    }
    /// 1/√x of x ≥ 0 within `LIBM_ULPS`; negative x (a computed sum of squares is none) counts as 0.
    pub fn rsqrt(self) -> Self {
        if self.is_empty() {
            return self;
        }
        let f = |x: f64| 1.0 / x.max(0.0).sqrt();
        Self::around([f(self.hi) * (1.0 - ulps(LIBM_ULPS)), f(self.lo) * (1.0 + ulps(LIBM_ULPS))], self.nan)
    }
    /// max(x, 0) as `fmaxf`: NaN becomes 0.
    pub fn relu(self) -> Self {
        let zero = if self.nan { Self::point(0.0) } else { Self { nan: false, ..Self::NAN } };
        let kept = if self.is_empty() { zero } else { Self::new(self.lo.max(0.0), self.hi.max(0.0)) };
        Self { nan: false, ..kept.hull(zero) }
    }
    /// Rounded to a 16-bit or 32-bit float (nearest even, its own overflow).
    pub fn rounded(self, format: Format) -> Self {
        self.map(|x| format.decode(format.encode(x, Rounding::NearestEven, Overflow::Native)))
    }
    #[cfg(test)]
    /// The dequantized FP8 code of `Q(RN32(x·scale))`, saturating: decode(code)·scale_inv.
    pub fn quantized(self, format: Format, scale: f32, scale_inv: f32) -> Self {
        if self.is_empty() || scale.is_nan() {
            return Self::NAN;
        }
        let s = f64::from(scale);
        let nan = self.nan || (s == 0.0 && self.has_inf()) || (s.is_infinite() && self.has_zero());
        let code = |x: f64| format.decode(format.encode(rn32(x * s), Rounding::NearestEven, Overflow::Saturate));
        let mut all = Self { nan, ..Self::NAN };
        for end in [code(self.lo), code(self.hi)] {
            let value = end * f64::from(scale_inv);
            match value.is_nan() {
                true => all.nan = true,
                false => all = Self { lo: all.lo.min(value), hi: all.hi.max(value), nan: all.nan },
            }
        }
        all
    }
    /// Both ends through a monotone function.
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        if self.is_empty() { self } else { Self { lo: f(self.lo), hi: f(self.hi), nan: self.nan } }
    }
}

impl std::ops::Add for Interval {
    type Output = Self;
    fn add(self, b: Self) -> Self {
        if self.is_empty() || b.is_empty() {
            return Self::NAN;
        }
        let opposite = |a: Self, b: Self| a.hi == f64::INFINITY && b.lo == f64::NEG_INFINITY;
        let nan = self.nan || b.nan || opposite(self, b) || opposite(b, self);
        Self::around([self.lo + b.lo, self.hi + b.hi], nan)
    }
}

impl std::ops::Neg for Interval {
    type Output = Self;
    fn neg(self) -> Self {
        Self { lo: -self.hi, hi: -self.lo, nan: self.nan }
    }
}

impl std::ops::Sub for Interval {
    type Output = Self;
    fn sub(self, b: Self) -> Self {
        self + -b
    }
}

impl std::ops::Mul for Interval {
    type Output = Self;
    fn mul(self, b: Self) -> Self {
        if self.is_empty() || b.is_empty() {
            return Self::NAN;
        }
        let nan = self.nan || b.nan || (self.has_zero() && b.has_inf()) || (self.has_inf() && b.has_zero());
        // Beside an infinite end are numbers of any size, unless it is all there is: zero times them is 0.
        let finite = self.has_finite() && b.has_finite();
        let of = |x: f64, y: f64| if finite && (x == 0.0 || y == 0.0) { 0.0 } else { x * y };
        Self::around([of(self.lo, b.lo), of(self.lo, b.hi), of(self.hi, b.lo), of(self.hi, b.hi)], nan)
    }
}

impl std::ops::Div for Interval {
    type Output = Self;
    /// A divisor that may be zero allows anything.
    fn div(self, b: Self) -> Self {
        if self.is_empty() || b.is_empty() {
            return Self::NAN;
        }
        if b.has_zero() {
            return Self::ANY;
        }
        let nan = self.nan || b.nan || (self.has_inf() && b.has_inf());
        // A number over infinity is 0; beside an infinite end are numbers, unless it is all there is.
        let of = |x: f64, y: f64| if y.is_infinite() && self.has_finite() { 0.0 } else { x / y };
        Self::around([of(self.lo, b.lo), of(self.lo, b.hi), of(self.hi, b.lo), of(self.hi, b.hi)], nan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [f64; 7] = [f64::NEG_INFINITY, -3.0, -0.5, 0.0, 0.25, 2.0, f64::INFINITY];

    fn all() -> impl Iterator<Item = Interval> {
        ENDS.iter().flat_map(|lo| ENDS.iter().filter(move |hi| *hi >= lo).map(|hi| Interval::new(*lo, *hi)))
    }

    /// Numbers of an interval: its ends, and those between.
    fn some(i: Interval) -> impl Iterator<Item = f64> {
        ENDS.into_iter().filter(move |x| i.lo <= *x && *x <= i.hi)
    }

    /// What two numbers of two intervals make is in the interval of the operation, NaN as well; and NaN is there for a reason.
    #[test]
    fn operations_hold_what_their_arguments_make() {
        type Both = (&'static str, fn(f64, f64) -> f64, fn(Interval, Interval) -> Interval);
        let operations: [Both; 4] = [
            ("+", |x, y| x + y, |a, b| a + b),
            ("-", |x, y| x - y, |a, b| a - b),
            ("*", |x, y| x * y, |a, b| a * b),
            ("/", |x, y| x / y, |a, b| a / b),
        ];
        for (name, of, with) in operations {
            for (a, b) in all().flat_map(|a| all().map(move |b| (a, b))) {
                let found = with(a, b);
                let made: Vec<f64> = some(a).flat_map(|x| some(b).map(move |y| of(x, y))).collect();
                assert!(made.iter().all(|z| found.allows(*z)), "{a:?} {name} {b:?} = {found:?}: {made:?}");
                // A divisor that may be zero allows anything.
                let any = name == "/" && some(b).any(|y| y == 0.0);
                assert!(any || found.nan == made.iter().any(|z| z.is_nan()), "{a:?} {name} {b:?} = {found:?}");
            }
        }
    }

    /// What either may be the hull may be, NaN as well.
    #[test]
    fn a_hull_may_be_nan_where_either_may() {
        let (one, none) = (Interval::point(1.0), Interval::NAN);
        for both in [one.hull(none), none.hull(one)] {
            assert!(both.allows(1.0) && both.allows(f64::NAN) && !both.allows(2.0), "{both:?}");
        }
        assert!(!one.hull(Interval::point(2.0)).nan);
    }

    /// Infinity times a number is infinite or, times 0, NaN: no number.
    #[test]
    fn a_product_of_nothing_but_infinity_is_no_number() {
        let (infinity, numbers) = (Interval::point(f64::INFINITY), Interval::new(0.0, 2.0));
        for product in [infinity * numbers, numbers * infinity] {
            assert!(product.allows(f64::INFINITY) && product.allows(f64::NAN) && !product.allows(1.0), "{product:?}");
        }
    }

    #[test]
    fn what_is_nothing_but_nan_makes_nothing_but_nan() {
        for i in all().chain([Interval::NAN]) {
            for made in [i + Interval::NAN, i - Interval::NAN, i * Interval::NAN, i / Interval::NAN] {
                assert!(made.is_empty(), "{i:?}: {made:?}");
            }
            for made in [Interval::NAN + i, Interval::NAN - i, Interval::NAN * i, Interval::NAN / i] {
                assert!(made.is_empty(), "{i:?}: {made:?}");
            }
        }
    }
}
