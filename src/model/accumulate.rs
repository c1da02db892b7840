//! One sum of products in every accumulator: the obvious definition that the fast versions must equal.

use super::mma::{Dest, NAN, NAN_F16, Toward, round, step};
use super::table::{self, Unit};
use super::{Accumulator, Inner, lowered};
use crate::{Format, Result};

/// `Σ a[k]·b[k]` in f32 as `acc` accumulates it, k ascending from +0. `a` and `b` hold values of `fa` and `fb`, equally many; an
/// empty sum is +0. A NaN result is 7fffffff (an f16 accumulator's: 7fff, widened). [`Inner::Int32`] rounds its wrapped integer to f32. Errors: formats that the
/// accumulator does not take ([`Accumulator::check`]); an assumption, which has no bits.
pub fn accumulate(acc: &Accumulator, fa: Format, fb: Format, a: &[f32], b: &[f32]) -> Result<f32> {
    acc.check(fa, fb)?;
    let Some(n) = acc.promote_every else {
        return inner(acc, fa, fb, a, b);
    };
    let mut main = 0.0f32;
    for (a, b) in a.chunks(n).zip(b.chunks(n)) {
        main += inner(acc, fa, fb, a, b)?;
    }
    Ok(canonical(main))
}

/// NaN with the bits the tensor cores and f32 units return.
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { NAN } else { x }
}

fn inner(acc: &Accumulator, fa: Format, fb: Format, a: &[f32], b: &[f32]) -> Result<f32> {
    Ok(match acc.inner {
        Inner::Exact => exact(a, b),
        Inner::F32Sequential => canonical(a.iter().zip(b).fold(0.0, |sum, (a, b)| a.mul_add(*b, sum))),
        Inner::F32Pairwise => canonical(pairwise(a, b)),
        Inner::Int32 => int32(a, b) as f32,
        Inner::AnyOrder | Inner::AnyOf(_) | Inner::AnyUnit => return Err(acc.inner.no_bits()),
        Inner::Mma(m) => match table::find(m.name)?.unit(fa, fb)? {
            Unit::Step(s) => a.chunks(s.w).zip(b.chunks(s.w)).fold(0.0, |c, (a, b)| step(s, fa, fb, a, b, c)),
            Unit::Lowered(half) => {
                let k = lowered::K;
                a.chunks(k).zip(b.chunks(k)).fold(0.0, |c, (a, b)| lowered::instruction(half, fa, fb, a, b, c))
            }
        },
    })
}

/// The NaN that an accumulator returns for these formats.
pub fn nan_of(acc: &Accumulator, fa: Format, fb: Format) -> Result<f32> {
    let f16 = match acc.inner {
        Inner::Mma(m) => match table::find(m.name)?.unit(fa, fb)? {
            Unit::Step(s) | Unit::Lowered(s) => s.dest == Dest::F16,
        },
        _ => false,
    };
    Ok(if f16 && acc.promote_every.is_none() { NAN_F16 } else { NAN })
}

fn pairwise(a: &[f32], b: &[f32]) -> f32 {
    match a.len() {
        0 => 0.0,
        1 => a[0] * b[0],
        n => {
            let half = n.next_power_of_two() / 2;
            pairwise(&a[..half], &b[..half]) + pairwise(&a[half..], &b[half..])
        }
    }
}

/// `Σ a[k]·b[k]` of integers held in f32, modulo 2³² as a two's complement number.
pub fn int32(a: &[f32], b: &[f32]) -> i32 {
    a.iter().zip(b).fold(0i32, |sum, (a, b)| sum.wrapping_add((*a as i32).wrapping_mul(*b as i32)))
}

/// The lowest bit of [`exact`]'s integer is 2^LOWEST: a product of two f32 subnormals is 2^-298, with 52 zero bits below it in f64.
const LOWEST: i32 = -352;
/// 32-bit digits up to 2^(−352 + 32·22) = 2^352, beyond f32's largest product times 2^63 terms.
const DIGITS: usize = 22;

/// The exact sum, rounded once to f32 (nearest even, Inf beyond its range; a sum of zero is +0): a fixed-point integer wide enough
/// for every product of f32 numbers.
pub fn exact(a: &[f32], b: &[f32]) -> f32 {
    // Products of f32 are exact in f64: 48 bits, exponents within its normal range.
    let products = || a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
    if products().any(|p| !p.is_finite()) {
        return canonical(products().sum::<f64>() as f32);
    }
    let mut digits = [0i128; DIGITS];
    for p in products().filter(|p| *p != 0.0) {
        let bits = p.to_bits();
        let significand = i128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let position = ((bits >> 52 & 0x7ff) as i32 - 1023 - 52 - LOWEST) as u32;
        let digit = significand << (position % 32);
        digits[(position / 32) as usize] += if p < 0.0 { -digit } else { digit };
    }
    let negative = carry(&mut digits);
    if negative {
        digits.iter_mut().for_each(|d| *d = -*d);
        carry(&mut digits);
    }
    let Some(top) = digits.iter().rposition(|d| *d != 0) else {
        return 0.0;
    };
    // 64 to 96 leading bits, and one below them that says whether anything lies further down.
    let low = top.saturating_sub(2);
    let leading = digits[low..=top].iter().rev().fold(0i128, |sum, d| sum << 32 | d);
    let sum = leading << 1 | i128::from(digits[..low].iter().any(|d| *d != 0));
    let unit = LOWEST + 32 * low as i32 - 1;
    round(if negative { -sum } else { sum }, unit, 23, -126, Toward::NearestEven)
}

/// Brings every digit into 0..2³², modulo the power of two above the top one; whether the number was negative.
fn carry(digits: &mut [i128; DIGITS]) -> bool {
    let mut over = 0i128;
    for d in digits.iter_mut() {
        let sum = *d + over;
        (*d, over) = (sum & 0xffff_ffff, sum >> 32);
    }
    over < 0
}
