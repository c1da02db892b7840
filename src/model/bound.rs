//! How far an accumulation may be from the exact sum of its products, derived from its arithmetic.
//!
//! Notation: S = Σ|a_k b_k|, u = 2^-24, n steps or chunks.
//!
//! | accumulator | \|computed − exact\| ≤ | why |
//! |---|---|---|
//! | exact, int32 | u·S; 0 | one rounding; none (an int32 that does not wrap) |
//! | f32 in order | ((1+u)^r − 1)·S, r = K − 1, or K where a product can be inexact in f32 | r roundings touch every product |
//! | f32 pairwise | the same with r = ⌈log2 K⌉ (+ 1) | depth of the tree |
//! | T(W,F,O RZ), n = ⌈K/W⌉ | ((n·W − 1)·2^-F + n·2^-O)·S + n·W·2^-F·τ | below |
//! | T(W,F,10 RNE) | ((n·W − 1)·2^-F·g + ((1+2^-11)^n − 1))·S + …, g = (1+2^-11)^n | partial sums may have grown by roundings |
//! | promoted every p, c = ⌈K/p⌉ | ((1+γ)(1+u)^(c−1) − 1)·S + c·absolute(γ) | γ is the inner bound of p products |
//! | lowered fp8 mma | promoted every 32 | d = RN32(c + t') |
//!
//! **The block step.** Truncation of a term to the quantum q = 2^(emax−F) loses less than q and never enlarges it, so no
//! partial sum exceeds the magnitudes that entered it: |c_t| ≤ S_t ≤ S. If the term with the largest exponent has a
//! significand ≥ 1, 2^emax ≤ |that term| ≤ S. The formats are such that this term itself loses nothing (its fraction bits are
//! at most F, or it is c with at most O ≤ F of them). So a step loses less than W·2^-F·S, the first, which has no c, (W−1)·2^-F·S, and
//! rounding toward zero of a sum ≤ S another 2^-O·S. (Where c has 23 bits and F = 23 or more it fits too.) Nothing is lost twice beyond 2S in all, which caps it.
//!
//! **Significands below 1** come from subnormal factors only: where a has some, 2^emax ≤ 2^emin_a·max(max|b|, 2^emin_b if b has some),
//! and the same with a and b exchanged; τ is the larger, an absolute term. Both are read from the factors ([`Factors`]): τ is 0 where
//! none is subnormal.
//!
//! **Underflow** below f32's subnormals: 2^-150 a rounding, for formats whose products are finer than 2^-149.
//!
//! **Probable.** Roundings to nearest are independent, of mean zero, each at most u·|partial sum| ≤ u·S in magnitude, so
//! sub-Gaussian: √r·u·S in order; √depth·u·S for the tree, whose nodes of one level sum to at most S. Truncations lean: each loses half a
//! quantum on average, with its term's sign, and when the signs agree they add up. So their mean is at most half the certain bound, and around it
//! they deviate by at most half a quantum each: √(n·W)·2^-F/2·S and √n·2^-O/2·S. A probable bound is λ·sd with λ ≥ λ(1); the mean enters the
//! deviation divided by λ(1).

use super::mma::{Dest, Step};
use super::table::{self, Unit};
use super::{Accumulator, Inner, lowered};
use crate::compare::Accumulation;
use crate::compare::probable::{DELTA, U32, lambda};
use crate::format::exp2i;
use crate::{Format, QTensor, Result};

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

    /// The codes of all of `tensors`, which have one format.
    pub fn of_codes(tensors: &[&QTensor]) -> Self {
        let mut present = [false; 256];
        tensors.iter().flat_map(|q| q.codes()).for_each(|c| present[usize::from(*c)] = true);
        let format = tensors[0].format();
        Self::of(format, (0..256).filter(|c| present[*c as usize]).map(|c| format.decode(c)))
    }

    /// What is smaller than a subnormal's exponent says, where some are: 2^emin.
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
    let g = inner.relative_certain;
    let sd = inner.relative_probable_sd.hypot((adds as f64).sqrt() * U32 * (1.0 + g));
    Accumulation {
        relative_certain: g + (1.0 + g) * grown(adds, U32),
        relative_probable_sd: sd,
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
    let nearest = |roundings: usize, sd: f64| Accumulation {
        relative_certain: grown(roundings, U32),
        relative_probable_sd: sd,
        absolute: k as f64 * per_rounding,
    };
    let inexact = usize::from(rounded_products);
    Ok(match acc.inner {
        Inner::Int32 => Accumulation { relative_certain: 0.0, relative_probable_sd: 0.0, absolute: 0.0 },
        Inner::Exact => Accumulation { relative_certain: U32, relative_probable_sd: U32, absolute: per_rounding },
        Inner::F32Sequential | Inner::AnyOrder => {
            let roundings = k.saturating_sub(1) + inexact;
            nearest(roundings, (roundings as f64).sqrt() * U32)
        }
        Inner::F32Pairwise => {
            let depth = k.max(1).next_power_of_two().trailing_zeros() as usize + inexact;
            nearest(depth, (depth as f64).sqrt() * U32)
        }
        Inner::AnyOf(_) | Inner::AnyUnit => {
            let any_order = inner(&Accumulator { inner: Inner::AnyOrder, ..*acc }, k, a, b)?;
            let units = table::MODELS.iter().filter(|m| match acc.inner {
                Inner::AnyOf(one) => m.name == one.name,
                _ => !m.name.ends_with("_f16"),
            });
            units.filter_map(|m| m.unit(fa, fb).ok()).map(|u| in_any_order(u, k, a, b)).fold(any_order, widest)
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
                        let g = one.relative_certain;
                        let u16 = exp2i(-11);
                        Accumulation {
                            relative_certain: g + (1.0 + g) * grown(adds, u16),
                            relative_probable_sd: one.relative_probable_sd.hypot((adds as f64).sqrt() * u16 * (1.0 + g)),
                            absolute: (one.absolute + exp2i(-25)) * adds as f64 * (1.0 + grown(adds, u16)),
                        }
                    }
                }
            }
        },
    })
}

/// What holds of both.
fn widest(x: Accumulation, y: Accumulation) -> Accumulation {
    Accumulation {
        relative_certain: x.relative_certain.max(y.relative_certain),
        relative_probable_sd: x.relative_probable_sd.max(y.relative_probable_sd),
        absolute: x.absolute.max(y.absolute),
    }
}

/// A unit's block steps over the products in any order, cut into parts of at least one step each that are added in f32.
fn in_any_order(unit: Unit, k: usize, a: Factors, b: Factors) -> Accumulation {
    let (step, a, b) = match unit {
        Unit::Step(s) => (s, a, b),
        // Every instruction adds in f32: that many parts are allowed for anyway.
        Unit::Lowered(half) => (half, Factors { format: Format::F16, ..a }, Factors { format: Format::F16, ..b }),
    };
    let one = chain(step, k, a, b);
    let parts = k.div_ceil(step.w);
    // What underflows does so in all parts together as often as in one chain.
    Accumulation { absolute: one.absolute * (1.0 + grown(parts, U32)), ..promoted(one, parts) }
}

/// ⌈k/W⌉ block steps, the first from c = 0.
fn chain(s: Step, k: usize, a: Factors, b: Factors) -> Accumulation {
    let steps = k.div_ceil(s.w) as f64;
    let terms = (steps * s.w as f64 - 1.0).max(0.0);
    let quantum = exp2i(-(s.f as i32));
    let (growth, output, output_sd, output_absolute) = match s.dest {
        Dest::F32 { fraction } => {
            let o = exp2i(-(fraction as i32));
            // Half of it is the mean, the rest deviates by half of it each step; f32's subnormals are 2^-149 apart.
            (1.0, steps * o, steps.sqrt() * o / 2.0, steps * exp2i(-126 - fraction as i32))
        }
        Dest::F16 => {
            let (n, u) = (steps as usize, exp2i(-11));
            (1.0 + grown(n, u), grown(n, u), steps.sqrt() * u, steps * exp2i(-25))
        }
    };
    let truncation = terms * quantum * growth;
    let certain = (truncation + output).min(1.0 + growth);
    let leaning = 0.5 * (truncation + if matches!(s.dest, Dest::F32 { .. }) { output } else { 0.0 });
    let deviation = (terms.sqrt() * quantum / 2.0 * growth).hypot(output_sd);
    let largest_with = |subnormal: Option<f64>, other: Factors| {
        subnormal.map_or(0.0, |normal| normal * other.largest.max(other.subnormal().unwrap_or(0.0)))
    };
    let below_one = largest_with(a.subnormal(), b).max(largest_with(b.subnormal(), a));
    // The clamp of the largest exponent, and f32's or f16's subnormals.
    let tiny = steps * s.w as f64 * quantum * exp2i(super::mma::MIN_EMAX) + output_absolute;
    Accumulation {
        relative_certain: certain,
        relative_probable_sd: (leaning / lambda(1, DELTA) + deviation).min(certain),
        absolute: steps * s.w as f64 * quantum * below_one * growth + tiny,
    }
}
