//! Activations, their derivatives and the gated forms in f64.
//!
//! The formulas are those of TransformerEngine's `common/util/math.h` with its decimal literals: gelu is the tanh
//! approximation whose forward and derivative use differently rounded constants, so the derivative is that of the source,
//! not the exact derivative of the forward.

use super::{Act, Args64, Defined, Params, elementwise::column_sums};
use crate::{Error, Result};
use ndarray::{Array2, Zip, s};

/// σ(x) = 1/(1+e^−x)
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// σ'(x) = σ(x)·(1−σ(x)), the second factor as σ(−x): no cancellation.
fn sigmoid_slope(x: f64) -> f64 {
    sigmoid(x) * sigmoid(-x)
}

/// act(x).
///
/// | act | formula |
/// |---|---|
/// | gelu | x·(0.5 + 0.5·tanh(x·(0.79788456 + 0.03567741·x²))) = x·σ(2·x·(…)) |
/// | silu | x·σ(x) |
/// | qgelu | x·σ(1.702·x) |
/// | relu | max(x, 0), NaN → 0 |
/// | srelu | x² for x > 0, else 0; NaN → 0 |
pub fn act(act: Act, x: f64) -> f64 {
    match act {
        Act::Gelu => x * sigmoid(2.0 * x * (0.79788456 + 0.03567741 * x * x)),
        Act::Silu => x * sigmoid(x),
        Act::Qgelu => x * sigmoid(1.702 * x),
        Act::Relu => x.max(0.0),
        Act::Srelu => {
            if x > 0.0 {
                x * x
            } else {
                0.0
            }
        }
    }
}

/// act'(x) as the source defines it.
///
/// | act | formula |
/// |---|---|
/// | gelu | t = tanh(0.79788456·x·(1 + 0.044715·x²)); 0.5·x·(1−t²)·(0.79788456 + 0.1070322243·x²) + 0.5·(1+t) |
/// | silu | x·σ'(x) + σ(x) |
/// | qgelu | 1.702·x·σ'(1.702·x) + σ(1.702·x) |
/// | relu | 1 for x > 0, else 0 |
/// | srelu | max(2x, 0), NaN → 0 |
pub fn act_slope(act: Act, x: f64) -> f64 {
    match act {
        Act::Gelu => {
            // 1−t² = 4·σ(2z)·σ(−2z) and (1+t)/2 = σ(2z): the same without cancellation.
            let z = 2.0 * (0.79788456 * x * (1.0 + 0.044715 * x * x));
            2.0 * x * sigmoid_slope(z) * (0.79788456 + 0.1070322243 * x * x) + sigmoid(z)
        }
        Act::Silu => x * sigmoid_slope(x) + sigmoid(x),
        Act::Qgelu => 1.702 * x * sigmoid_slope(1.702 * x) + sigmoid(1.702 * x),
        Act::Relu => f64::from(x > 0.0),
        Act::Srelu => (2.0 * x).max(0.0),
    }
}

fn which(params: &Params) -> Result<Act> {
    params.act.ok_or_else(|| Error::value("activation", "none", "one of gelu, silu, relu, qgelu, srelu"))
}

fn second<'a>(args: &'a Args64, what: &str, rows: usize, cols: usize) -> Result<&'a Array2<f64>> {
    let b = args.b.as_ref().ok_or_else(|| Error::shape(what, "no operand b", format!("{rows}×{cols}")))?;
    if b.dim() != (rows, cols) {
        return Err(Error::shape(what, format!("{:?}", b.dim()), format!("{rows}×{cols}")));
    }
    Ok(b)
}

/// d = act(a).
pub fn forward(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    Ok(Defined::plain(args.a.mapv(|x| act(f, x))))
}

/// d = a·act'(b): a is the gradient, b the forward input.
pub fn grad(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    let x = second(args, "forward input", args.a.nrows(), args.a.ncols())?;
    Ok(Defined::plain(Zip::from(&args.a).and(x).map_collect(|g, x| g * act_slope(f, *x))))
}

/// As [`grad`], with dbias\[j\] = Σ_i d\[i,j\].
pub fn grad_dbias(params: &Params, args: &Args64) -> Result<Defined> {
    let v = grad(params, args)?;
    Ok(Defined { dbias: Some(column_sums(&v.d)), ..v })
}

/// d\[i,j\] = act(a\[i,j\])·a\[i,H+j\]: `[M,2H] → [M,H]`.
pub fn gated(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    let h = args.a.ncols() / 2;
    if args.a.ncols() != 2 * h {
        return Err(Error::shape("gated input", format!("{} columns", args.a.ncols()), "an even number of columns [a | b]"));
    }
    let (a, b) = (args.a.slice(s![.., ..h]), args.a.slice(s![.., h..]));
    Ok(Defined::plain(Zip::from(a).and(b).map_collect(|a, b| act(f, *a) * b)))
}

/// d\[i,j\] = act'(x\[i,j\])·g\[i,j\]·x\[i,H+j\] and d\[i,H+j\] = g\[i,j\]·act(x\[i,j\]) with g = a `[M,H]`, x = b `[M,2H]`.
pub fn gated_grad(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    let (m, h) = args.a.dim();
    let x = second(args, "forward input of the gated gradient", m, 2 * h)?;
    let d = Array2::from_shape_fn((m, 2 * h), |(i, j)| match j < h {
        true => act_slope(f, x[(i, j)]) * args.a[(i, j)] * x[(i, h + j)],
        false => args.a[(i, j - h)] * act(f, x[(i, j - h)]),
    });
    Ok(Defined::plain(d))
}
