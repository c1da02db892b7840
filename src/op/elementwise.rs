//! Casts in f64: the identity, and exact column sums.

use super::{Args64, Defined, copied};
use ndarray::Array2;

/// The sum of `values`, exact until one rounding to f64 (nearest even) when all are finite and the sum stays in range; with
/// NaN or Inf among them, what IEEE addition gives (NaN, or the Inf).
///
/// The sum is kept as an expansion: numbers that do not overlap, smallest first, whose exact sum is that of all values so
/// far. J. R. Shewchuk, *Adaptive Precision Floating-Point Arithmetic*, 1997, §2.4 (Grow-Expansion).
pub fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut parts, mut special): (Vec<f64>, f64) = (Vec::new(), 0.0);
    for v in values {
        if !v.is_finite() {
            special += v;
            continue;
        }
        let (mut carry, mut kept) = (v, 0);
        for i in 0..parts.len() {
            let (large, small) = if parts[i].abs() > carry.abs() { (parts[i], carry) } else { (carry, parts[i]) };
            carry = large + small;
            let rest = small - (carry - large);
            if rest != 0.0 {
                parts[kept] = rest;
                kept += 1;
            }
        }
        parts.truncate(kept);
        parts.push(carry);
    }
    if special != 0.0 {
        return special;
    }
    // From the largest down: the first inexact addition rounds, and a tie is settled by the sign of what lies below it.
    let Some(mut sum) = parts.pop() else { return 0.0 };
    while let Some(next) = parts.pop() {
        let larger = sum;
        sum += next;
        let rest = next - (sum - larger);
        if rest != 0.0 {
            if parts.last().is_some_and(|below| (*below < 0.0) == (rest < 0.0) && *below != 0.0) {
                let nudged = sum + 2.0 * rest;
                if nudged - sum == 2.0 * rest {
                    sum = nudged;
                }
            }
            break;
        }
    }
    sum
}

/// Σ over the rows of each column, exact. `[M,N] → [N]`
pub fn column_sums(x: &Array2<f64>) -> Vec<f64> {
    x.columns().into_iter().map(|c| exact_sum(c.iter().copied())).collect()
}

/// d = a.
pub fn identity(args: &Args64) -> Defined {
    Defined::plain(copied(&args.a))
}

/// d = a, dbias\[j\] = Σ_i a\[i,j\].
pub fn identity_dbias(args: &Args64) -> Defined {
    Defined { dbias: Some(column_sums(&args.a)), ..identity(args) }
}

#[cfg(test)]
mod tests {
    use super::exact_sum;

    #[test]
    fn sums_are_exact_until_one_rounding() {
        let sum = |v: &[f64]| exact_sum(v.iter().copied());
        let half = 2f64.powi(-53);
        assert_eq!(sum(&[1e100, 1.0, -1e100]), 1.0);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        // A tie goes to even, and what lies far below the tie decides it.
        assert_eq!(sum(&[1.0, half]), 1.0);
        assert_eq!(sum(&[1.0, half, 2f64.powi(-200)]), 1.0 + 2.0 * half);
        assert_eq!(sum(&[1.0, half, -2f64.powi(-200)]), 1.0);
        assert_eq!((sum(&[]), sum(&[0.0, -0.0]), sum(&[5e-324, -1e-323])), (0.0, 0.0, -5e-324));
        assert_eq!(sum(&[f64::INFINITY, 1.0]), f64::INFINITY);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan() && sum(&[f64::NAN, 1.0]).is_nan());
    }

    /// Sums of multiples of 2^-40 below 2^12 in size, against 128-bit integers.
    #[test]
    fn sums_equal_integer_arithmetic() {
        let stream = crate::input::philox::Stream::new(3, 0);
        for n in [1u64, 2, 3, 100, 5000] {
            let words = (0..n).map(|i| stream.words(0, i));
            let integers: Vec<i64> = words.map(|w| (i64::from(w[0] as i32) << (w[1] % 20)) + i64::from(w[2])).collect();
            let unit = 2f64.powi(-40);
            let total: i128 = integers.iter().map(|i| i128::from(*i)).sum();
            assert_eq!(exact_sum(integers.iter().map(|i| *i as f64 * unit)), total as f64 * unit, "{n} terms");
        }
    }
}
