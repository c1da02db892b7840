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
