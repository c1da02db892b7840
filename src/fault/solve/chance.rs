//! Whether a theory explains more than chance: what wrong elements tell, in bits, against the choice of one theory of many.
//!
//! An element tells log2(1 + error / width of what the theory allows there), and nothing where that has the right value too. Where the theory says by
//! itself which elements are wrong, each of the n of N that are tells log2(N / n) more; a region was taken from the result, and tells nothing.

use super::system::{System, Theory};

/// Bits that a theory needs, and one in a region.
const NEED: f64 = 10.0;
const IN_REGION: f64 = 16.0;
/// What one element tells at most.
const MOST: f64 = 20.0;

pub fn is_evident(s: &System, t: &Theory) -> bool {
    // Which of its roundings fall the other way is not known: others count how many do not.
    if t.kept.is_some() {
        return true;
    }
    let need = if t.region.is_some() { IN_REGION } else { NEED };
    let wrong = s.is_wrong.iter().filter(|w| **w).count().max(1) as f64;
    let place = if t.region.is_some() { 0.0 } else { (s.is_wrong.len() as f64 / wrong).log2() };
    let mut bits = 0.0;
    for (i, j) in s.probes.iter().copied().filter(|(i, j)| s.is_wrong[i * s.cols + j]) {
        bits += told(s, t, i, j).map_or(0.0, |told| (told + place).min(MOST));
        if bits >= need {
            return true;
        }
    }
    false
}

/// What one wrong element tells. `None`: it does not tell the theory from a right kernel.
fn told(s: &System, t: &Theory, i: usize, j: usize) -> Option<f64> {
    let at = i * s.cols + j;
    let (x, right) = (s.actual[at], s.ideal[at]);
    (!s.is_unknown(t.at(i, j), i, j)).then_some(())?;
    if !x.is_finite() || !right.is_finite() {
        return Some(MOST);
    }
    let step = s.out.spacing(at, x).max(f64::MIN_POSITIVE);
    let (low, high) = s.value(t, i, j).map_or((x, x), |(_, low, high)| (low, high));
    // NaN tells nothing.
    (right < low || high < right).then(|| (1.0 + (x - right).abs() / (high - low).max(step)).log2())
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, wide};

    fn off(half: &dyn Fn(f64) -> f64, step: f64) -> f64 {
        (half(step) / step - 1.0).abs()
    }

    #[test]
    fn one_element_that_is_hardly_wrong_has_no_name() {
        let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 131));
        // What scales rounded to f16 make of one element: so would much else.
        let half = |x: f64| Format::F16.decode(Format::F16.encode(x, crate::Rounding::NearestEven, crate::Overflow::Native));
        let step = |j: usize| f64::from(b.scale_inv()[j]);
        let (i0, j0) = (8, (0..N).max_by(|x, y| off(&half, step(*x)).total_cmp(&off(&half, step(*y)))).unwrap());
        let got = found(&a, &b, None, Format::F32, |i, j, right| {
            right[i * N + j] * if (i, j) == (i0, j0) { half(step(j)) / step(j) } else { 1.0 }
        });
        assert!(got.0.starts_with("unknown"), "{} {}", got.0, got.1);
    }
}
