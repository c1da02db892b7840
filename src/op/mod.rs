//! What is computed, defined in f64. An op knows no kernel; its definition is the obvious loop, with exact sums where f64
//! could round visibly.

pub(crate) mod activation;
pub(crate) mod bias;
pub(crate) mod dot;
pub(crate) mod elementwise;
pub(crate) mod gemm;
pub(crate) mod grouped;
pub(crate) mod norm;
mod spec;

pub use bias::Biases;
pub use gemm::{Accelerator, accelerated};
pub use spec::{ACTS, Dim, Kind, OPS, OpSpec, Role, Sizes};

use crate::{Result, parallel};
use ndarray::Array2;
use std::borrow::Cow;

/// What is computed; what each op is stands in [`OPS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Cast,
    CastTranspose,
    MultiCastTranspose,
    Dequantize,
    CastTransposeDbias,
    /// v = g · act'(x), and dbias = Σ_rows v.
    CastTransposeDbiasDact,
    /// Gradient of a gated activation, both halves, cast and transposed.
    DgatedCastTranspose,
    Activation,
    ActivationGrad,
    /// act(a) · b with the input row [a | b].
    Gated,
    Layernorm,
    Rmsnorm,
    /// `D[M,N] = A[M,K] · B[N,K]ᵀ (+ bias[N])`; FP8, W4A8 and mixed-input products alike.
    Gemm,
    /// Row group e of `A[M,K]` times `B[e][N,K]ᵀ`; `offs` are cumulative end rows.
    GroupedGemm,
    /// grad_A: row group e of `dY[M,N]` times `B[e]`: the grouped product with `B[e]` as `[K,N]`.
    GroupedGemmDgrad,
    /// grad_B: for each group Σ over its tokens, `dY[tokens,N]ᵀ · A[tokens,K] → [E·N, K]`.
    GroupedGemmWgrad,
}

/// The activation of an op that has one; formulas in [`activation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Gelu,
    Silu,
    Relu,
    Qgelu,
    Srelu,
    GeluErf,
    /// g·σ(α·g) with g = min(x, limit), times clamp(gate, ±limit) + 1. Gated only.
    SwigluOai(Clamp),
    /// silu(min(x, limit)) times clamp(gate, ±limit). Gated only.
    SwigluLimit(Clamp),
}

/// The constants of a clamped activation: two f32, kept as their bits so that they can be told apart and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clamp {
    alpha: u32,
    limit: u32,
}

impl Clamp {
    /// Those of gpt-oss.
    pub const OAI: Clamp = Clamp::new(1.702, 7.0);

    pub const fn new(alpha: f32, limit: f32) -> Self {
        Self { alpha: alpha.to_bits(), limit: limit.to_bits() }
    }
    pub const fn alpha(self) -> f32 {
        f32::from_bits(self.alpha)
    }
    pub const fn limit(self) -> f32 {
        f32::from_bits(self.limit)
    }
}

impl Act {
    /// The constants of a clamped one.
    pub fn clamp(self) -> Option<Clamp> {
        match self {
            Act::SwigluOai(c) | Act::SwigluLimit(c) => Some(c),
            _ => None,
        }
    }
    /// The same function with other constants; one that has none stays as it is.
    pub fn with(self, c: Clamp) -> Act {
        match self {
            Act::SwigluOai(_) => Act::SwigluOai(c),
            Act::SwigluLimit(_) => Act::SwigluLimit(c),
            other => other,
        }
    }
}

/// The scalars of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    pub act: Option<Act>,
    /// Norms: added to the variance.
    pub eps: f32,
    /// Norms: gamma is stored minus one.
    pub zero_centered_gamma: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self { act: None, eps: 1e-5, zero_centered_gamma: false }
    }
}

/// The arguments of an op in f64: unquantized for `exact`, dequantized for `ideal`.
///
/// | op | a | b |
/// |---|---|---|
/// | cast … dequantize | x `[M,N]` | – |
/// | activation_grad, cast_transpose_dbias_dact | gradient g `[M,N]` | forward input x `[M,N]` |
/// | dgated_cast_transpose | gradient g `[M,H]` | forward input `[M,2H]` |
/// | activation; gated | x `[M,N]`; `[M,2H]` | – |
/// | norms | x `[M,N]` | – (gamma, beta `[N]`) |
/// | gemm | A `[M,K]` | B `[N,K]` |
/// | grouped_gemm | A `[M,K]` | B `[E·N,K]` |
/// | grouped_gemm_dgrad | dY `[M,N]` | B transposed per expert, `[E·K,N]` |
/// | grouped_gemm_wgrad | dYᵀ `[N,M]` | Aᵀ `[K,M]` |
#[derive(Clone, Debug, Default)]
pub struct Args64 {
    pub a: Array2<f64>,
    pub b: Option<Array2<f64>>,
    /// `[N]`; of grouped_gemm `[E,N]`.
    pub bias: Option<Vec<f64>>,
    /// grouped_gemm with a bias: what each row of it is multiplied by. Rows of `a` have been already.
    pub row_weights: Option<Vec<f64>>,
    pub gamma: Option<Vec<f64>>,
    pub beta: Option<Vec<f64>>,
    /// Cumulative end rows of the groups (grouped ops).
    pub offs: Option<Vec<usize>>,
    /// What computes large products in place of the CPU.
    pub accelerator: Option<Accelerator>,
}

/// What an op defines, in f64. Rows a grouped op does not write (≥ the last of `offs`) are zero.
#[derive(Clone, Debug)]
pub struct Defined {
    pub d: Array2<f64>,
    /// Σ_k |a||b| of each element of a product (with |bias|): what error bounds are scaled by.
    pub magnitude: Option<Array2<f64>>,
    pub dbias: Option<Vec<f64>>,
    /// Norms: row means and reciprocal standard deviations.
    pub mean: Option<Vec<f64>>,
    pub rsigma: Option<Vec<f64>>,
    /// What its products were offered to, for further products that belong to it.
    pub accelerator: Option<Accelerator>,
}

impl Defined {
    /// A result with nothing beside it.
    pub fn plain(d: Array2<f64>) -> Self {
        Self { d, magnitude: None, dbias: None, mean: None, rsigma: None, accelerator: None }
    }
    /// The result, row-major.
    pub fn flat(&self) -> Cow<'_, [f64]> {
        flat(&self.d)
    }
}

/// A copy, made on all cores.
pub(crate) fn copied(x: &Array2<f64>) -> Array2<f64> {
    let copy = |all: &[f64]| Array2::from_shape_vec(x.dim(), parallel::copy(all)).expect("as many elements");
    x.as_slice().map_or_else(|| x.clone(), copy)
}

/// The elements of a matrix, row-major: borrowed where they lie so.
pub fn flat(x: &Array2<f64>) -> Cow<'_, [f64]> {
    x.as_slice().map_or_else(|| Cow::Owned(x.iter().copied().collect()), Cow::Borrowed)
}

/// What `op` defines for `args` in f64: each arm calls the op's own definition. A multi_cast_transpose is defined tensor by
/// tensor. Errors: a missing operand, shapes that do not fit, an activation op without an activation.
pub fn define(op: Op, params: &Params, args: &Args64) -> Result<Defined> {
    match op {
        Op::Cast | Op::CastTranspose | Op::MultiCastTranspose | Op::Dequantize => Ok(elementwise::identity(args)),
        Op::CastTransposeDbias => Ok(elementwise::identity_dbias(args)),
        Op::CastTransposeDbiasDact => activation::grad_dbias(params, args),
        Op::DgatedCastTranspose => activation::gated_grad(params, args),
        Op::Activation => activation::forward(params, args),
        Op::ActivationGrad => activation::grad(params, args),
        Op::Gated => activation::gated(params, args),
        Op::Layernorm => norm::layernorm(params, args),
        Op::Rmsnorm => norm::rmsnorm(params, args),
        Op::Gemm => gemm::gemm(args),
        Op::GroupedGemm | Op::GroupedGemmDgrad => grouped::by_rows(args),
        Op::GroupedGemmWgrad => grouped::by_columns(args),
    }
}
