//! The same formulas as others write them: PyTorch, NumPy, Triton, CUTLASS. What is theirs to choose, and no more: the order of f32
//! operations and whether two are one FMA, how a square root is inverted, which of their documented e^x, tanh and division they take.
//!
//! | choice | allowed | source |
//! |---|---|---|
//! | e^x | 3 + ⌊1.173·\|x\|⌋ ulp | CUDA C++ Programming Guide, intrinsic functions: `__expf` 2 + ⌊\|1.173·x\|⌋, which is 2^(x·log₂e) as Triton's `exp`; NumPy's f32 loops 3 (`test_umath.py`, `test_exp_float32`) |
//! | erf x, erfc x, Φ(x) | 2, 4, 5 ulp of the nearest f32 | CUDA C++ Programming Guide, "Mathematical Functions", single precision: `erff`, `erfcf`, `normcdff` |
//! | a / b | 2 ulp | PTX ISA, `div.full.f32`: 2 ulp (Triton's `/`); IEEE division ½ |
//! | n roundings of a product, or of a sum of terms of one sign | relative γ_n | Higham, *Accuracy and Stability of Numerical Algorithms*, §3.1 |
//!
//! ```text
//! σ(x)   = 1/(1+e^−x), e^x/(1+e^x):    1/(1+e^−x·(1±ε))·(1±γ_6), ε of e^x, γ_6: the sum, the quotient of 2 ulp and one rounding
//! gelu   z = β·(x + κ·x³) in any order: one sign in both terms, x³ as a power (2 ulp) or two products, β, κ or β·κ a rounded literal:
//!        7 roundings and 4 of the power, so z·(1±γ_12); then x·(½+½·tanh z), (½·x)·(1+tanh z) or x·σ(2z)
//! gelu_erf  z = x/√2·(1±γ_5): a rounded literal and a product, or a quotient of 2 ulp; E ∈ erf z within erff's 2 ulp;
//!        then (½·x)·(1+E), x·(½+½·E), ½x + ½x·E, and without cancellation x·½·erfc(−z) (erfcf 4 ulp) or x·Φ(x) (normcdff 5 ulp)
//! silu   x·σ(x), x/(1+e^−x)            qgelu   x·σ(1.702·x·(1±γ_2))
//! swiglu_oai  g = min(x, limit): g·σ(α·g·(1±γ_2)), then s·(u+1) or s·u + s with u = clamp(gate, ±limit); swiglu_limit  silu(g)·u
//! gated  the product with the gate in either order: ·(1±γ_2)
//! RMSNorm  (x·rs)·g, x·(rs·g), (x/√…)·g: ·(1±γ_6)
//! LayerNorm  y = Σ of the terms g·rs·x, −g·rs·μ, β in any order and grouping: a term passes at most three products (one of them a
//!        quotient of 2 ulp), 1+g and two sums, so |Δy| ≤ γ_10·(|g|·rs·(|x|+|μ|) + |β|)
//! ```
//!
//! The variance may be Welford's: M₂ += (x−m_{k−1})·(x−m_k) with running means m̂_k = m_k + e_k. A mean's step
//! m̂ = m̂ + (x−m̂)/k passes e_k = (1−1/k)·e_{k−1} + η, |η| ≤ u·X + 4u·2X/k with X = max|x| (the last addition; difference, quotient of 2 ulp), and
//! Σ_j (j/k)·|η_j| gives
//!
//! ```text
//! |e_k| ≤ E = (1+γ_9)·u·X·((n+1)/2 + 8)
//! Σ_k |x_k−m_{k−1}| ≤ √(2·n·M₂), since M₂ = Σ (x_k−m_{k−1})²·(k−1)/k and (k−1)/k ≥ ½ from k = 2 on; |x_k−m_k| is smaller
//! M̂₂ ∈ (M₂ ± (2·E·√(2·n·M₂) + n·E²))·(1 ± γ_{n+3})
//! ```
//!
//! Parts that are merged (Chan) are shorter chains of the same steps. The one-pass E\[x²\] − μ² is another formula: it is not allowed here.

use super::{exactly, gamma, literal};
use crate::Format;
use crate::model::act::{clamped, gate, limited};
use crate::model::interval::{Interval, U};
use crate::op::Act;
use std::f64::consts::FRAC_1_SQRT_2;

/// Around an interval: each end outward by a relative error and a few subnormal quanta; results below the normal range may be flushed.
fn relative(x: Interval, error: f64) -> Interval {
    if x.is_empty() {
        return x;
    }
    let quanta = 4.0 * Format::F32.decode(1);
    let off = |y: f64| if y.is_infinite() { 0.0 } else { y.abs() * error + quanta };
    let rounded = |y: f64| f64::from(y as f32);
    let (lo, hi) = (x.lo - off(x.lo), x.hi + off(x.hi));
    let flushed = |y: f64| if y.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 } else { y };
    let (lo, hi) = (lo.min(flushed(lo)).min(flushed(x.lo)), hi.max(flushed(hi)).max(flushed(x.hi)));
    Interval { lo: lo.min(rounded(lo)), hi: hi.max(rounded(hi)), nan: x.nan }
}

/// n roundings.
pub(super) fn rounded(x: Interval, n: usize) -> Interval {
    relative(x, gamma(n))
}

/// The relative error of e^x.
fn exp_error(x: f64) -> f64 {
    2.0 * U * (3.0 + (1.173 * x.abs()).floor())
}

/// 1/(1+e^−x); see the module.
fn sigmoid(x: Interval) -> Interval {
    if x.is_empty() {
        return x;
    }
    let largest = f64::from(f32::MAX);
    // e^−x at both ends, with its error; beyond f32 it may be Inf.
    let above = (-x.lo).exp() * (1.0 + exp_error(x.lo));
    let below = (-x.hi).exp() * (1.0 - exp_error(x.hi)).max(0.0);
    let lo = if above >= largest { 0.0 } else { 1.0 / (1.0 + above) };
    let s = relative(Interval { lo, hi: 1.0 / (1.0 + below), nan: x.nan }, gamma(6));
    // A quotient of 2 ulp may be an ulp above 1.
    Interval { lo: s.lo.max(0.0), ..s }
}

/// Φ(x) as ½·erfc(−z), z near x/√2, within 4 ulp of the nearest f32, or by itself within 5; never above 1.
fn normal(z: Interval, x: f64) -> Interval {
    if z.is_empty() {
        return z;
    }
    let (off, phi) = (|y: f64, ulps: f64| (ulps + 0.5) * Format::F32.ulp(y), 0.5 * libm::erfc(-x * FRAC_1_SQRT_2));
    let (lo, hi) = (libm::erfc(-z.lo), libm::erfc(-z.hi));
    let by_erfc = Interval::new(0.5 * (lo - off(lo, 4.0)), 0.5 * (hi + off(hi, 4.0)));
    let all = by_erfc.hull(Interval::new(phi - off(phi, 5.0), phi + off(phi, 5.0)));
    let all = relative(all, 0.0);
    Interval { lo: all.lo.max(0.0), hi: all.hi.min(1.0), nan: z.nan }
}

/// act(x) by whoever writes it.
pub(super) fn act(act: Act, x: f32) -> Interval {
    let (half, one, v) = (Interval::point(0.5), Interval::point(1.0), Interval::point(f64::from(x)));
    match act {
        Act::Gelu => {
            let exact = |c: f64| f64::from(x) * (0.79788456 + c * f64::from(x) * f64::from(x));
            let z = if f64::from(x).is_nan() { Interval::NAN } else { Interval::point(exact(0.03567741)) };
            let z = rounded(z, 12);
            let t = z.tanh();
            let product = rounded(v * (half + half * t), 1).hull(rounded(half * v * (one + t), 1));
            product.hull(rounded(v * sigmoid(Interval::point(2.0) * z), 1))
        }
        Act::Silu => rounded(v * sigmoid(v), 1),
        Act::Qgelu => rounded(v * sigmoid(rounded(literal(1.702) * v, 2)), 1),
        Act::GeluErf => {
            let z = rounded(literal(FRAC_1_SQRT_2) * v, 5);
            let (half_v, e) = (half * v, z.erf());
            let sums = (half_v * (one + e)).hull(half_v + half_v * e);
            rounded(sums, 1).hull(rounded(v * normal(z, f64::from(x)), 1))
        }
        Act::SwigluOai(c) => {
            let g = exactly(limited(act, x));
            rounded(g * sigmoid(rounded(exactly(c.alpha()) * g, 2)), 1)
        }
        Act::SwigluLimit(_) => {
            let g = exactly(limited(act, x));
            rounded(g * sigmoid(g), 1)
        }
        // Comparisons and one product: nothing to choose.
        Act::Relu | Act::Srelu => super::act(act, x),
    }
}

/// The activation times its gate by whoever writes it.
pub(super) fn gated(f: Act, x: f32, u: f32) -> Interval {
    let (s, by) = (act(f, x), gate::<Interval>(f, u));
    let product = rounded(s * by, 2);
    match f {
        Act::SwigluOai(_) => product.hull(rounded(rounded(s * exactly(clamped(f, u)), 1) + s, 1)),
        _ => product,
    }
}

/// Σ(x−μ)² by Welford's updates; see the module. `m2` is the exact one, `largest` max|x|.
pub(super) fn welford(m2: f64, n: usize, largest: f64, underflow: f64) -> Interval {
    let terms = n as f64;
    let e = (1.0 + gamma(9)) * U * largest * ((terms + 1.0) / 2.0 + 8.0);
    let off = 2.0 * e * (2.0 * terms * m2).sqrt() + terms * e * e;
    let g = gamma(n + 3);
    Interval::new((m2 - off).max(0.0) * (1.0 - g) - underflow, (m2 + off) * (1.0 + g) + underflow)
}

/// A LayerNorm's value from its terms, in any order of products and sums: `y` widened by what the terms may lose.
pub(super) fn terms(y: Interval, weight: Interval, rsigma: Interval, x: f32, mean: Interval, beta: f64) -> Interval {
    if y.is_empty() {
        return y;
    }
    let size = weight.magnitude().hi * rsigma.hi * (f64::from(x).abs() + mean.magnitude().hi) + beta.abs();
    let off = gamma(10) * size + 8.0 * Format::F32.decode(1);
    match off.is_finite() {
        true => Interval { lo: y.lo - off, hi: y.hi + off, nan: y.nan },
        false => Interval::ANY,
    }
}

#[cfg(test)]
mod by_hand {
    use super::*;

    /// The two ends outward by a share and four subnormal quanta; what is below the normal range may be 0.
    #[test]
    fn an_interval_grows_by_a_relative_error_and_may_be_flushed() {
        let of = |lo: f64, hi: f64| {
            let r = relative(Interval { lo, hi, nan: false }, 0.5);
            (r.lo, r.hi)
        };
        let quanta = 4.0 * 2f64.powi(-149);
        assert_eq!(of(2.0, 4.0), (f64::from((1.0 - quanta) as f32).min(1.0 - quanta), 6.0 + quanta));
        assert_eq!(of(-4.0, -2.0), (-6.0 - quanta, -1.0 + quanta));
        let least = f64::from(f32::MIN_POSITIVE);
        // At the smallest normal number the low end falls below it, and may be 0; above by enough it is not.
        assert_eq!(of(least, 1.0).0, 0.0);
        assert!(of(3.0 * least, 1.0).0 > least);
        assert_eq!(of(-1.0, -least).1, 0.0);
        let exact = relative(Interval { lo: least, hi: least, nan: false }, 0.0);
        assert!(exact.lo == 0.0 && exact.hi == least + quanta, "{exact:?}");
        // An end at the smallest normal number is one.
        assert_eq!(relative(Interval { lo: least + quanta, hi: 1.0, nan: false }, 0.0).lo, least);
        assert_eq!(of(f64::NEG_INFINITY, f64::INFINITY), (f64::NEG_INFINITY, f64::INFINITY));
    }

    /// m2 = 8 of n = 4 terms up to 3: e = (1 + γ₉)·u·3·(2.5 + 8), off = 2e·√64 + 4e².
    #[test]
    fn welfords_sum_is_off_by_the_errors_of_its_means() {
        let u = 2f64.powi(-24);
        let e = (1.0 + gamma(9)) * u * 3.0 * 10.5;
        let off = 2.0 * e * 8.0 + 4.0 * e * e;
        let found = welford(8.0, 4, 3.0, 1e-9);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-14;
        assert!(near(found.lo, (8.0 - off) * (1.0 - gamma(7)) - 1e-9), "{found:?}");
        assert!(near(found.hi, (8.0 + off) * (1.0 + gamma(7)) + 1e-9), "{found:?}");
        assert_eq!(welford(0.0, 4, 0.0, 0.5), Interval::new(-0.5, 0.5));
    }

    /// 2u·(3 + ⌊1.173·|x|⌋).
    #[test]
    fn the_error_of_an_exponential_grows_with_its_argument() {
        let u = 2f64.powi(-24);
        assert_eq!([0.0, 0.85, -0.86, 10.0].map(exp_error), [6.0 * u, 6.0 * u, 8.0 * u, 28.0 * u]);
    }

    /// |γ| up to 3, 1/σ up to ½, |x| + |μ| up to 4 + 6, |β| = 5: terms up to 3·½·10 + 5 = 20.
    #[test]
    fn a_layernorms_terms_lose_ten_roundings_of_their_size() {
        let y = Interval::new(1.0, 2.0);
        let of = |x: f32| terms(y, Interval::new(-3.0, 2.0), Interval::new(0.25, 0.5), x, Interval::new(-6.0, 1.0), -5.0);
        let off = gamma(10) * 20.0 + 8.0 * 2f64.powi(-149);
        assert_eq!(of(-4.0), Interval::new(1.0 - off, 2.0 + off));
        assert_eq!(of(4.0), of(-4.0));
        assert_eq!(of(f32::INFINITY), Interval::ANY);
    }
}
