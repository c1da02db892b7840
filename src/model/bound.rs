//! How far an accumulation may be from the exact sum of its products, relative to S = Σ|a_k b_k|. It follows from the arithmetic. It is for
//! products whose scales change along K: of their blocks' sums only `Σ_g S_g ≤ S` is known. [`super::sums`] bounds the others.
//!
//! Notation: u = 2^-24, n steps or chunks.
//!
//! | accumulator | \|computed − exact\| ≤ | why |
//! |---|---|---|
//! | exact, int32 | u·S; 0 | one rounding; none (an int32 that does not wrap) |
//! | f32 in order, or in any | ((1+u)^r − 1)·S, r = K − 1, or K where a product can be inexact in f32 | r roundings touch every product |
//! | f32 pairwise | the same with r = ⌈log2 K⌉ (+ 1) | depth of the tree |
//! | T(W,F,O RZ), n = ⌈K/W⌉ | ((n·W − 1)·2^-F + n·2^-O)·S + n·W·2^-F·τ | below |
//! | T(W,F,10 RNE) | ((n·W − 1)·2^-F·g + ((1+2^-11)^n − 1))·S + …, g = (1+2^-11)^n | partial sums may have grown by roundings |
//! | promoted every p, c = ⌈K/p⌉ | ((1+γ)(1+u)^(c−1) − 1)·S + c·absolute(γ) | γ is the inner bound of p products |
//! | lowered fp8 mma | promoted every 32 | d = RN32(c + t') |
//! | any_M, any_unit | T(W,F,O) with 2n steps and n f32 additions; f32 in any order; the largest | parts of a split, in any order |
//!
//! **The block step.** Truncation of a term to the quantum q = 2^(emax−F) loses less than q and never enlarges it, so no
//! partial sum exceeds the magnitudes that entered it: |c_t| ≤ S_t ≤ S. If the term with the largest exponent has a
//! significand ≥ 1, 2^emax ≤ |that term| ≤ S. The formats are such that this term itself loses nothing (its fraction bits are
//! at most F, or it is c with at most O ≤ F of them). So a step loses less than W·2^-F·S, the first, which has no c, (W−1)·2^-F·S, and
//! rounding toward zero of a sum ≤ S another 2^-O·S. Nothing is lost twice beyond 2S in all, which caps it.
//!
//! **Partial sums.** Every sum of some of the products is at most P = max(S⁺, S⁻) = (S + |d|)/2, in any order, and so is every product; the
//! computed one is at most P + E with E the error in all. Where ρ·S above bounds the errors by sums that are at most S, so does ρ·(P + E), hence
//! `E ≤ ρ/(1−ρ)·P`; for f32 to nearest, with n = K − 1 additions in any tree (K more where products round), `E ≤ ((1+u)^n − 1)·P`. Chunks that are promoted
//! each have partial sums of at most P. The smaller of the two bounds holds ([`crate::compare::Accumulation`]).
//!
//! **Significands below 1.** Of factors: where a has subnormal ones, 2^emax ≤ 2^emin_a·max(max|b|, 2^emin_b if b has some),
//! and the same with a and b exchanged; τ is the larger. It is 0 where no factor is subnormal. Of the accumulator, which is not renormalised
//! either: 2^emax is 2^-126 (f32) or 2^-14 (f16) at least, so every one of a step's W terms can lose `2^(−126−F)`, `2^(−14−F)`: an absolute
//! `n·W·2^(−126−F)` (f16: −14).
//!
//! **Underflow** below f32's subnormals: 2^-150 a rounding, for formats whose products are finer than 2^-149.

use super::mma::{Dest, Step};
use super::table::{self, Unit};
use super::{Accumulator, Inner, lowered};
use crate::compare::Accumulation;
use crate::compare::probable::U32;
use crate::format::exp2i;
use crate::{Format, QTensor, Result, parallel};

/// One side's factors as the sum reads them (codes without their scales, or values), as far as the bound depends on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    pub format: Format,
    /// Of the finite magnitudes; 0 where there are none.
    pub largest: f64,
    /// Of the nonzero finite magnitudes; ∞ where there are none.
    pub smallest: f64,
}

impl Factors {
    /// Reads every value; zeros and what is not finite do not count (a sum with the latter has no error).
    pub fn of(format: Format, values: impl IntoIterator<Item = f64>) -> Self {
        let none = Self { format, largest: 0.0, smallest: f64::INFINITY };
        values.into_iter().map(f64::abs).filter(|x| x.is_finite() && *x > 0.0).fold(none, |f, x| Self {
            largest: f.largest.max(x),
            smallest: f.smallest.min(x),
            ..f
        })
    }

    /// Of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self { largest: self.largest.max(other.largest), smallest: self.smallest.min(other.smallest), ..self }
    }

    /// [`Factors::of`] of many.
    pub fn of_f32(format: Format, values: &[f32]) -> Self {
        let of = |some: &[f32]| Self::of(format, some.iter().map(|x| f64::from(*x)));
        parallel::bands(values, of, of(&[]), Self::and)
    }

    /// The codes of all of `tensors`, which have one format.
    pub fn of_codes(tensors: &[&QTensor]) -> Self {
        let see = |some: &[u8]| {
            let mut present = [false; 256];
            some.iter().for_each(|c| present[usize::from(*c)] = true);
            present
        };
        let both = |a: [bool; 256], b: [bool; 256]| std::array::from_fn(|c| a[c] | b[c]);
        let of = |q: &&QTensor| match q.seen() {
            Some(seen) => seen.present(),
            None => parallel::bands(q.codes(), see, [false; 256], both),
        };
        let present = tensors.iter().map(of).fold([false; 256], both);
        let format = tensors[0].format();
        Self::of(format, (0..256).filter(|c| present[*c as usize]).map(|c| format.decode(c)))
    }

    /// 2^emin, where a factor is subnormal: the exponent of such a factor stands for a larger number than it is.
    fn subnormal(self) -> Option<f64> {
        let normal = exp2i(self.format.min_exponent());
        (self.smallest < normal).then_some(normal)
    }
}

/// The bound of a sum of `k` products of `a` and `b`; see the module. For operands whose scales change along K it is the bound
/// of the sum inside one group of `k` products. Errors: formats that the accumulator does not take.
pub fn accumulation_bound(acc: &Accumulator, k: usize, a: Factors, b: Factors) -> Result<Accumulation> {
    acc.check(a.format, b.format)?;
    match acc.promote_every {
        Some(p) if p < k => Ok(promoted(inner(acc, p, a, b)?, k.div_ceil(p))),
        _ => inner(acc, k, a, b),
    }
}

/// (1+u)^n − 1 without cancellation.
fn grown(n: usize, u: f64) -> f64 {
    (n as f64 * u.ln_1p()).exp_m1()
}

/// `chunks` sums added one after the other in f32.
fn promoted(inner: Accumulation, chunks: usize) -> Accumulation {
    let adds = chunks.saturating_sub(1);
    let joined = |g: f64| g + (1.0 + g) * grown(adds, U32);
    Accumulation {
        relative: joined(inner.relative),
        of_partial: joined(chunks as f64 * inner.of_partial),
        absolute: chunks as f64 * inner.absolute * (1.0 + grown(adds, U32)),
    }
}

fn inner(acc: &Accumulator, k: usize, a: Factors, b: Factors) -> Result<Accumulation> {
    let (fa, fb) = (a.format, b.format);
    // The lowest bit of a product, and how many bits it has.
    let lowest = |f: Format| f.min_exponent() - f.spec().mantissa as i32;
    let integer = |f: Format| if f.is_integer() { 0 } else { lowest(f) };
    let underflows = integer(fa) + integer(fb) < -149;
    let rounded_products = underflows || fa.spec().mantissa + fb.spec().mantissa + 2 > 24;
    let per_rounding = if underflows { exp2i(-150) } else { 0.0 };
    let inexact = usize::from(rounded_products);
    let nearest = |roundings: usize| Accumulation {
        relative: grown(roundings, U32),
        of_partial: grown(k.saturating_sub(1) + inexact * k, U32),
        absolute: k as f64 * per_rounding,
    };
    Ok(match acc.inner {
        Inner::Int32 => Accumulation::EXACT,
        Inner::Exact => Accumulation { relative: U32, of_partial: U32, absolute: per_rounding },
        Inner::F32Sequential | Inner::AnyOrder => nearest(k.saturating_sub(1) + inexact),
        Inner::F32Pairwise => nearest(k.max(1).next_power_of_two().trailing_zeros() as usize + inexact),
        Inner::AnyOf(_) | Inner::AnyUnit => {
            let any_order = inner(&Accumulator { inner: Inner::AnyOrder, ..*acc }, k, a, b)?;
            let units = table::MODELS.iter().filter(|m| match acc.inner {
                Inner::AnyOf(one) => m.name == one.name,
                _ => !m.name.ends_with("_f16"),
            });
            units.filter_map(|m| m.unit(fa, fb).ok()).map(|u| in_any_order(u, k, a, b)).fold(any_order, Accumulation::or)
        }
        Inner::Mma(m) => match table::find(m.name)?.unit(fa, fb)? {
            Unit::Step(s) => chain(s, k, a, b),
            Unit::Lowered(half) => {
                // Two steps on the halves of 32 products, read as f16; then f32 (or f16) additions.
                let [a, b] = [a, b].map(|f| Factors { format: Format::F16, ..f });
                let one = chain(half, lowered::K.min(k.next_multiple_of(half.w)), a, b);
                let adds = k.div_ceil(lowered::K);
                match half.dest {
                    Dest::F32 { .. } => promoted(one, adds),
                    Dest::F16 => {
                        let g = one.relative;
                        let u16 = exp2i(-11);
                        Accumulation {
                            relative: g + (1.0 + g) * grown(adds, u16),
                            of_partial: f64::INFINITY,
                            absolute: (one.absolute + exp2i(-25)) * adds as f64 * (1.0 + grown(adds, u16)),
                        }
                    }
                }
            }
        },
    })
}

/// A unit's block steps over the products in any order, cut into as many parts at most as they would be steps. The parts' ends are as
/// many steps again; the parts are added in f32.
fn in_any_order(unit: Unit, k: usize, a: Factors, b: Factors) -> Accumulation {
    let (step, a, b) = match unit {
        Unit::Step(s) => (s, a, b),
        // Every instruction adds in f32: that many parts are allowed for anyway.
        Unit::Lowered(half) => (half, Factors { format: Format::F16, ..a }, Factors { format: Format::F16, ..b }),
    };
    let parts = k.div_ceil(step.w);
    let one = chain(step, 2 * parts * step.w, a, b);
    // What underflows does so in all parts together as often as in one chain.
    let joined = |g: f64| g + (1.0 + g) * grown(parts, U32);
    Accumulation {
        relative: joined(one.relative),
        of_partial: joined(one.of_partial),
        absolute: one.absolute * (1.0 + grown(parts, U32)),
    }
}

/// ⌈k/W⌉ block steps, the first from c = 0.
fn chain(s: Step, k: usize, a: Factors, b: Factors) -> Accumulation {
    let steps = k.div_ceil(s.w) as f64;
    let terms = (steps * s.w as f64 - 1.0).max(0.0);
    let quantum = exp2i(-(s.f as i32));
    // Growth of partial sums, what the rounded sums lose relative to S and of subnormals, and the exponent of a subnormal accumulator.
    let (growth, output, output_absolute, least) = match s.dest {
        Dest::F32 { fraction } => {
            let o = exp2i(-(fraction as i32));
            (1.0, steps * o, steps * exp2i(-126 - fraction as i32), -126)
        }
        Dest::F16 => {
            let (n, u) = (steps as usize, exp2i(-11));
            (1.0 + grown(n, u), grown(n, u), steps * exp2i(-25), -14)
        }
    };
    let largest_with = |subnormal: Option<f64>, other: Factors| {
        subnormal.map_or(0.0, |normal| normal * other.largest.max(other.subnormal().unwrap_or(0.0)))
    };
    let below_one = largest_with(a.subnormal(), b).max(largest_with(b.subnormal(), a)) + exp2i(s.floor.max(least));
    let relative = terms * quantum * growth + output;
    Accumulation {
        relative: relative.min(1.0 + growth),
        of_partial: if relative < 1.0 { relative / (1.0 - relative) } else { f64::INFINITY },
        absolute: (steps * s.w as f64 * quantum * below_one + output_absolute) * growth,
    }
}

#[cfg(test)]
mod by_hand;
