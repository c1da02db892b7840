//! Two-sample Kolmogorov–Smirnov test on histograms.

/// Probability, under the hypothesis that both counts are of one distribution, of a distance at least as large as theirs; `None` where
/// a side is empty or the bins differ in number.
///
/// `D = max_x |F₁(x) − F₂(x)|` over the bins' edges, which is at most the distance of the samples themselves, and
/// `p = 2 Σ_{j≥1} (−1)^{j−1} exp(−2 j² λ²)` with `λ = (√n + 0.12 + 0.11/√n) · D`, `n = n₁n₂/(n₁+n₂)` (Stephens 1970). Binning
/// only makes D smaller: a small p is evidence, a large one is none.
pub fn p_value(a: &[u64], b: &[u64]) -> Option<f64> {
    let (na, nb) = (total(a), total(b));
    if a.len() != b.len() || na == 0.0 || nb == 0.0 {
        return None;
    }
    let (mut fa, mut fb, mut distance) = (0.0, 0.0, 0.0f64);
    for (x, y) in a.iter().zip(b) {
        fa += *x as f64 / na;
        fb += *y as f64 / nb;
        distance = distance.max((fa - fb).abs());
    }
    let root = (na * nb / (na + nb)).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * distance;
    // The series converges slowly where the answer is 1 to every digit.
    if lambda < 0.2 {
        return Some(1.0);
    }
    let term = |j: i32| (if j % 2 == 1 { 2.0 } else { -2.0 }) * (-2.0 * f64::from(j * j) * lambda * lambda).exp();
    Some((1..=100).map(term).sum::<f64>().clamp(0.0, 1.0))
}

fn total(counts: &[u64]) -> f64 {
    counts.iter().map(|c| *c as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_counts_are_certain_and_disjoint_ones_impossible() {
        assert_eq!(p_value(&[5, 9, 1], &[5, 9, 1]), Some(1.0));
        assert!(p_value(&[1000, 0], &[0, 1000]).unwrap() < 1e-300);
        assert_eq!(p_value(&[0, 0], &[1, 1]), None);
        assert_eq!(p_value(&[1], &[1, 1]), None);
        assert_eq!(p_value(&[], &[]), None);
    }

    #[test]
    fn quantiles_of_the_kolmogorov_distribution() {
        // λ = 1.3581 is its 95th percentile, 1.6276 its 99th; with many samples λ → √n · D.
        let n = 2_000_000u64;
        for (lambda, p) in [(1.3581, 0.05), (1.6276, 0.01), (0.8276, 0.5)] {
            let d = lambda / ((n as f64 / 2.0).sqrt() + 0.12);
            let shift = (d * n as f64) as u64;
            let found = p_value(&[n / 2, n / 2], &[n / 2 - shift, n / 2 + shift]).unwrap();
            assert!((found - p).abs() < 0.01 * p + 1e-4, "{lambda}: {found}");
        }
    }
}
