//! The block step T(W, F, O): what one step of a tensor core computes from W products and an accumulator.
//!
//! 1. The significand of a normal number is 1.m, of a subnormal 0.m with the smallest exponent: it is not renormalised. A
//!    product has significand sa·sb in [0, 4) and exponent ea + eb, and is not renormalised either. The accumulator c takes part
//!    like a product.
//! 2. emax is the largest exponent of the nonzero terms, at least [`Step::floor`]; the quantum is q = 2^(emax − F).
//! 3. Every term is truncated toward zero to a multiple of q.
//! 4. The truncated terms are added exactly.
//! 5. The sum is rounded to the accumulator: f32 toward zero with O fraction bits, f16 to nearest even. Zero is +0. Overflow is
//!    Inf.
//! 6. A NaN, Inf·0 or Inf − Inf gives the canonical NaN 7fffffff (f16: 7fff); else an Inf keeps its sign.
//!
//! Sources: MMA-Sim (arXiv 2511.10909); Khattak and Mikaitis (arXiv 2512.07004); outputs of an H200.

use crate::Format;
use crate::format::exp2i;

/// The accumulator's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// f32 with this many fraction bits kept (23, or 13 in fp8 units), rounded toward zero.
    F32 { fraction: u32 },
    /// f16, rounded to nearest even.
    F16,
}

/// The parameters of a block step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Products a step.
    pub w: usize,
    /// Fraction bits kept below the largest exponent.
    pub f: u32,
    pub dest: Dest,
    /// The smallest exponent that a quantum is taken from.
    pub floor: i32,
}

/// The canonical NaN of the tensor cores in f32.
pub const NAN: f32 = f32::from_bits(0x7fff_ffff);

/// The canonical NaN of an f16 accumulator: 7fff, widened.
pub const NAN_F16: f32 = f32::from_bits(0x7fff_e000);

/// A finite number as `(−1)^negative · significand · 2^(exponent − fraction)`, not renormalised.
#[derive(Clone, Copy, Debug)]
struct Term {
    negative: bool,
    significand: u64,
    exponent: i32,
    /// Fraction bits of the significand.
    fraction: u32,
}

const ZERO: Term = Term { negative: false, significand: 0, exponent: 0, fraction: 0 };

/// The terms of the widest step: 32 products and the accumulator.
const MOST_TERMS: usize = 33;

/// Splits a finite value that `format` holds exactly.
fn split(x: f32, format: Format) -> Term {
    let fraction = format.spec().mantissa;
    let magnitude = f64::from(x.abs());
    // Every f32 is normal in f64; zero has a field of 0 and ends at the smallest exponent.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(format.min_exponent());
    // Exact: the scaled value is an integer below 2^(fraction + 1).
    let significand = magnitude * exp2i(fraction as i32 - exponent);
    debug_assert!(significand.fract() == 0.0, "{x} is not a value of {format}");
    Term { negative: x.is_sign_negative(), significand: significand as u64, exponent, fraction }
}

/// One step: `c + Σ a[k]·b[k]`. `a` and `b` hold values of `fa` and `fb`, at most `w` of them; fewer are padded with zeros, which do not
/// take part. `c` is a value of the accumulator's format.
pub fn step(s: Step, fa: Format, fb: Format, a: &[f32], b: &[f32], c: f32) -> f32 {
    assert!(a.len() == b.len() && a.len() <= s.w, "{} and {} factors in a step of {}", a.len(), b.len(), s.w);
    let (fc, nan) = match s.dest {
        Dest::F32 { .. } => (Format::F32, NAN),
        Dest::F16 => (Format::F16, NAN_F16),
    };
    // In f64 products of these formats neither round nor overflow, so the IEEE rules for NaN and Inf are those of rule 6.
    let special: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() + f64::from(c);
    if special.is_nan() {
        return nan;
    }
    if special.is_infinite() {
        return special as f32;
    }
    let (mut terms, mut count) = ([ZERO; MOST_TERMS], 0);
    let products = a.iter().zip(b).map(|(&a, &b)| product(split(a, fa), split(b, fb)));
    for term in products.chain([split(c, fc)]).filter(|t| t.significand != 0) {
        terms[count] = term;
        count += 1;
    }
    let terms = &terms[..count];
    let Some(emax) = terms.iter().map(|t| t.exponent).max() else {
        return 0.0;
    };
    let emax = emax.max(s.floor);
    let sum: i128 = terms.iter().map(|t| truncated(t, emax - s.f as i32)).sum();
    match s.dest {
        Dest::F32 { fraction } => round(sum, emax - s.f as i32, fraction, -126, Toward::Zero),
        Dest::F16 => round(sum, emax - s.f as i32, 10, -14, Toward::NearestEven),
    }
}

fn product(a: Term, b: Term) -> Term {
    Term {
        negative: a.negative != b.negative,
        significand: a.significand * b.significand,
        exponent: a.exponent.saturating_add(b.exponent),
        fraction: a.fraction + b.fraction,
    }
}

/// The term in units of 2^quantum, truncated toward zero.
fn truncated(t: &Term, quantum: i32) -> i128 {
    let shift = t.exponent - t.fraction as i32 - quantum;
    let magnitude = match shift {
        0.. => i128::from(t.significand) << shift,
        -63..0 => i128::from(t.significand >> -shift),
        _ => 0,
    };
    if t.negative { -magnitude } else { magnitude }
}

/// How a sum is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    Zero,
    NearestEven,
}

/// `sum · 2^unit` rounded once to `fraction` fraction bits with smallest normal exponent `emin` (f32: 23 and −126, f16: 10 and −14),
/// held as f32. Zero is +0, also when a sum is rounded to it. Beyond the format's largest number: Inf.
pub fn round(sum: i128, unit: i32, fraction: u32, emin: i32, toward: Toward) -> f32 {
    let magnitude = sum.unsigned_abs();
    if magnitude == 0 {
        return 0.0;
    }
    let exponent = (127 - magnitude.leading_zeros() as i32 + unit).max(emin);
    let quantum = exponent - fraction as i32;
    let drop = quantum - unit;
    let steps = match (drop, toward) {
        (..=0, _) => magnitude << -drop,
        (1..128, Toward::Zero) => magnitude >> drop,
        (1..128, Toward::NearestEven) => {
            let (kept, rest, half) = (magnitude >> drop, magnitude & ((1 << drop) - 1), 1 << (drop - 1));
            kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
        }
        _ => 0,
    };
    // Exact in f64: at most 25 bits, exponent within f64's normal range.
    let value = steps as f64 * exp2i(quantum);
    let largest_exponent = 1 - emin;
    let value = if value >= exp2i(largest_exponent + 1) { f64::INFINITY } else { value };
    if value == 0.0 {
        0.0
    } else if sum < 0 {
        -(value as f32)
    } else {
        value as f32
    }
}
