//! The constants of rounding-error analysis: unit roundoffs, γ, and the probabilistic multiplier λ.
//!
//! **Certain.** n successive roundings satisfy `Π(1+δ_i) = 1 + θ_n`, `|θ_n| ≤ γ_n = n·u / (1 − n·u)`
//! (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., lemma 3.1).
//!
//! **Probable.** An error is a drift, counted in full, and a deviation: a sum `Σ c_i δ_i` of independent δ_i of mean zero, bounded by u. By
//! Hoeffding's inequality `P(|Σ c_i δ_i| > λ·√(Σ c_i² u²)) ≤ 2·exp(−λ²/2)`. A tensor of N elements exceeds
//! it anywhere with probability at most δ when `2N·exp(−λ²/2) = δ`, so `λ = √(2·ln(2N/δ))`. (Higham and Mary, *A New Approach to Probabilistic Rounding
//! Error Analysis*, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4 with the union bound of its section 2.) Equal products lose the same, so what is taken as
//! independent are the different values among them, and what has a direction (truncation, products below a spacing) is drift: [`crate::model::sums`].
//! Independence is a model, which is why a violation makes a case suspect and proves nothing. Measured (`tests/alarms.rs`): none of 1,000,000 right tensors
//! (normal, positive, constant, two-valued, sorted, cancelling, alternating and heavy-tailed data; seven orders of K, five of f32 sums, block steps of
//! five units, splits) is outside.

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
