//! Casts in f64: the identity, and exact column sums.

use super::{Args64, Defined};
use accurate::sum::OnlineExactSum;
use accurate::traits::SumAccumulator;
use ndarray::Array2;

/// The sum of `values`, exact until one rounding to f64 when all are finite; with NaN or Inf among them, what IEEE addition
/// gives (NaN, or the Inf).
pub fn exact_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    if values.clone().all(f64::is_finite) {
        values.fold(OnlineExactSum::zero(), |sum, v| sum + v).sum()
    } else {
        values.filter(|v| !v.is_finite()).sum()
    }
}

/// Σ over the rows of each column, exact. `[M,N] → [N]`
pub fn column_sums(x: &Array2<f64>) -> Vec<f64> {
    x.columns().into_iter().map(|c| exact_sum(c.iter().copied())).collect()
}

/// d = a.
pub fn identity(args: &Args64) -> Defined {
    Defined::plain(args.a.clone())
}

/// d = a, dbias\[j\] = Σ_i a\[i,j\].
pub fn identity_dbias(args: &Args64) -> Defined {
    Defined { dbias: Some(column_sums(&args.a)), ..identity(args) }
}
