//! LayerNorm and RMSNorm forward in f64, with exact sums.

use super::{Args64, Defined, Params, elementwise::exact_sum};
use crate::{Error, Result};
use ndarray::Array2;

fn weights(args: &Args64, params: &Params, n: usize) -> Result<Vec<f64>> {
    let gamma = args.gamma.as_ref().ok_or_else(|| Error::shape("gamma", "none", format!("{n} values")))?;
    if gamma.len() != n {
        return Err(Error::shape("gamma", format!("{} values", gamma.len()), format!("{n} values")));
    }
    Ok(gamma.iter().map(|g| if params.zero_centered_gamma { 1.0 + g } else { *g }).collect())
}

/// d = (x−μ)/√(var+ε)·γ + β over each row; μ = Σx/N, var = Σ(x−μ)²/N (biased); γ+1 when zero-centred; no beta is 0.
/// Mean and rsigma = 1/√(var+ε) are given beside d.
pub fn layernorm(params: &Params, args: &Args64) -> Result<Defined> {
    let (m, n) = args.a.dim();
    let gamma = weights(args, params, n)?;
    let beta = args.beta.clone().unwrap_or_else(|| vec![0.0; n]);
    if beta.len() != n {
        return Err(Error::shape("beta", format!("{} values", beta.len()), format!("{n} values")));
    }
    let mean: Vec<f64> = args.a.rows().into_iter().map(|x| exact_sum(x.iter().copied()) / n as f64).collect();
    let rsigma: Vec<f64> = (args.a.rows().into_iter().zip(&mean))
        .map(|(x, mu)| exact_sum(x.iter().map(|x| (x - mu) * (x - mu))) / n as f64)
        .map(|var| 1.0 / (var + f64::from(params.eps)).sqrt())
        .collect();
    let d = Array2::from_shape_fn((m, n), |(i, j)| (args.a[(i, j)] - mean[i]) * rsigma[i] * gamma[j] + beta[j]);
    Ok(Defined { mean: Some(mean), rsigma: Some(rsigma), ..Defined::plain(d) })
}

/// d = x/√(Σx²/N+ε)·γ over each row; γ+1 when zero-centred. rsigma = 1/√(Σx²/N+ε) is given beside d.
pub fn rmsnorm(params: &Params, args: &Args64) -> Result<Defined> {
    let (m, n) = args.a.dim();
    let gamma = weights(args, params, n)?;
    let rsigma: Vec<f64> = (args.a.rows().into_iter())
        .map(|x| exact_sum(x.iter().map(|x| x * x)) / n as f64)
        .map(|square| 1.0 / (square + f64::from(params.eps)).sqrt())
        .collect();
    let d = Array2::from_shape_fn((m, n), |(i, j)| args.a[(i, j)] * rsigma[i] * gamma[j]);
    Ok(Defined { rsigma: Some(rsigma), ..Defined::plain(d) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn layernorm_by_hand() {
        // Mean 2, variance (9+1+1+9)/4 = 5; ε = 4 makes rsigma 1/3.
        let args = Args64 {
            a: array![[-1.0, 1.0, 3.0, 5.0]],
            gamma: Some(vec![3.0, 6.0, 0.0, -3.0]),
            beta: Some(vec![0.5, 0.0, 7.0, 0.0]),
            ..Args64::default()
        };
        let params = Params { eps: 4.0, ..Params::default() };
        let out = layernorm(&params, &args).unwrap();
        assert_eq!((out.mean, out.rsigma), (Some(vec![2.0]), Some(vec![1.0 / 3.0])));
        assert!((out.d - array![[-2.5, -2.0, 7.0, -3.0]]).iter().all(|e| e.abs() < 1e-15));
        let centred = Params { zero_centered_gamma: true, ..params };
        let args = Args64 { gamma: Some(vec![2.0, 5.0, -1.0, -4.0]), ..args };
        assert!((layernorm(&centred, &args).unwrap().d - array![[-2.5, -2.0, 7.0, -3.0]]).iter().all(|e| e.abs() < 1e-15));
        assert!(layernorm(&params, &Args64 { gamma: None, ..args.clone() }).is_err());
        assert!(layernorm(&params, &Args64 { beta: Some(vec![0.0]), ..args }).is_err());
    }

    #[test]
    fn rmsnorm_by_hand() {
        // Mean square (1+49)/2 = 25; ε = 11 makes rsigma 1/6.
        let args = Args64 { a: array![[1.0, -7.0]], gamma: Some(vec![12.0, 6.0]), ..Args64::default() };
        let out = rmsnorm(&Params { eps: 11.0, ..Params::default() }, &args).unwrap();
        assert_eq!(out.rsigma, Some(vec![1.0 / 6.0]));
        assert!((out.d - array![[2.0, -7.0]]).iter().all(|e| e.abs() < 1e-15));
    }

    /// A mean of 2^40 leaves nothing of the variance unless sums are exact.
    #[test]
    fn a_large_mean_cancels_exactly() {
        let base = 2f64.powi(40);
        let args = Args64 { a: array![[base + 1.0, base - 1.0]], gamma: Some(vec![1.0; 2]), ..Args64::default() };
        let out = layernorm(&Params { eps: 0.0, ..Params::default() }, &args).unwrap();
        assert_eq!((out.d, out.rsigma), (array![[1.0, -1.0]], Some(vec![1.0])));
    }
}
