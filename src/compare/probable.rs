//! The constants of rounding-error analysis: unit roundoffs, γ, and the probabilistic multiplier λ.
//!
//! **Certain.** n successive roundings satisfy `Π(1+δ_i) = 1 + θ_n`, `|θ_n| ≤ γ_n = n·u / (1 − n·u)`
//! (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., lemma 3.1).
//!
//! **Probable.** Model the δ_i as independent, of mean zero and bounded by u. A computed value's first-order error is
//! `Σ c_i δ_i`, and by Hoeffding's inequality `P(|Σ c_i δ_i| > λ·√(Σ c_i² u²)) ≤ 2·exp(−λ²/2)`. A tensor of N elements exceeds
//! it anywhere with probability at most δ when `2N·exp(−λ²/2) = δ`, so `λ = √(2·ln(2N/δ))`: the error of a sum of n terms grows
//! with √n·u instead of n·u. (Higham and Mary, *A New Approach to Probabilistic Rounding Error Analysis*, SIAM J. Sci.
//! Comput. 41(5), 2019, theorem 2.4 with the union bound of its section 2.)
//! The independence is a model, which is why a violation makes a case suspect and proves nothing.

/// Unit roundoff of f32, 2^-24.
pub const U32: f64 = 1.0 / (1u64 << 24) as f64;

/// Half the smallest subnormal of f32: what a rounding near zero can lose, 2^-150.
pub(super) const HALF_MIN_SUBNORMAL: f64 = U32 * U32 * U32 * U32 * U32 * U32 / 64.0;

/// The probability, a tensor, that a correct kernel crosses the probable bound.
pub const DELTA: f64 = 1e-9;

/// γ_n = n·u / (1 − n·u); infinite from n·u = 1 on.
pub fn gamma(n: f64, u: f64) -> f64 {
    let nu = n * u;
    if nu < 1.0 { nu / (1.0 - nu) } else { f64::INFINITY }
}

/// λ = √(2·ln(2N/δ)): how many standard deviations (sub-Gaussian) none of N elements exceeds with probability 1 − δ.
pub fn lambda(elements: usize, delta: f64) -> f64 {
    (2.0 * (2.0 * elements.max(1) as f64 / delta).ln()).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants() {
        assert_eq!(HALF_MIN_SUBNORMAL, 0.5 * f64::from(f32::from_bits(1)));
        assert_eq!(U32, 0.5 * f64::from(f32::EPSILON));
        assert!((gamma(1000.0, U32) / (1000.0 * U32) - 1.0).abs() < 1e-4);
        assert_eq!(gamma(2e7, U32), f64::INFINITY);
        // 2N·exp(−λ²/2) = δ.
        let l = lambda(1 << 20, 1e-9);
        assert!((2.0 * (1u64 << 20) as f64 * (-l * l / 2.0).exp() / 1e-9 - 1.0).abs() < 1e-9);
    }
}
