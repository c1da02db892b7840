//! What each op is, once: the roles of its operands with their shapes, the shape of its result, what is written beside it.

use super::{Act, Op};
use crate::{Error, Result};

/// A length by the letters of the op's formula; `E` is the number of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    M,
    N,
    K,
    /// Two halves side by side: `[a | b]`.
    TwoN,
    /// One below the other for each group.
    EN,
    EK,
}

/// An operand: what it is in the op's formula, rows and columns.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    pub what: &'static str,
    pub shape: [Dim; 2],
}

/// What happens to the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Values are quantized as they are.
    Cast,
    Dequantize,
    /// A function of each element, and where it is written quantized, a cast.
    Pointwise,
    /// Rows are scaled by what their elements come to; gamma, and beta where there is one, for each column.
    Norm,
    /// Operands are multiplied along their last dimension.
    Product,
    /// Products of groups, whose ends are `offs`.
    GroupedProduct,
}

/// What an op is.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    pub op: Op,
    /// As sweeps and reports spell it.
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    /// Operand a, and b where there is one.
    pub operands: &'static [Role],
    pub result: [Dim; 2],
    /// Has an activation.
    pub act: bool,
    /// Writes the transposed codes too.
    pub transposes: bool,
    /// Writes the column sums.
    pub dbias: bool,
    /// As bundles spell it; `None` where they do not hold it.
    pub bundle: Option<&'static str>,
}

const MN: [Dim; 2] = [Dim::M, Dim::N];
const X: &[Role] = &[Role { what: "x", shape: MN }];
const GRADIENT: &[Role] = &[Role { what: "gradient", shape: MN }, Role { what: "forward input", shape: MN }];

/// An op of one operand x and a result of its shape, with nothing beside it.
const fn plain(op: Op, name: &'static str, kind: Kind, help: &'static str) -> OpSpec {
    OpSpec { op, name, help, kind, operands: X, result: MN, act: false, transposes: false, dbias: false, bundle: None }
}

/// Every op, one entry each, in the order of [`Op`].
pub const OPS: &[OpSpec] = &[
    OpSpec { bundle: Some("cast"), ..plain(Op::Cast, "cast", Kind::Cast, "quantize one tensor") },
    OpSpec { transposes: true, ..plain(Op::CastTranspose, "cast_transpose", Kind::Cast, "quantize, and the transposed codes") },
    OpSpec {
        transposes: true,
        ..plain(Op::MultiCastTranspose, "multi_cast_transpose", Kind::Cast, "cast_transpose of several tensors in one call")
    },
    OpSpec {
        bundle: Some("dequantize"),
        ..plain(Op::Dequantize, "dequantize", Kind::Dequantize, "codes and scale_inv to values")
    },
    OpSpec {
        transposes: true,
        dbias: true,
        ..plain(Op::CastTransposeDbias, "cast_transpose_dbias", Kind::Cast, "cast_transpose with the column sums")
    },
    OpSpec {
        operands: GRADIENT,
        act: true,
        transposes: true,
        dbias: true,
        ..plain(
            Op::CastTransposeDbiasDact,
            "cast_transpose_dbias_dact",
            Kind::Pointwise,
            "g·act'(x), cast_transpose, column sums",
        )
    },
    OpSpec {
        operands: &[Role { what: "gradient", shape: MN }, Role { what: "forward input", shape: [Dim::M, Dim::TwoN] }],
        result: [Dim::M, Dim::TwoN],
        act: true,
        transposes: true,
        ..plain(
            Op::DgatedCastTranspose,
            "dgated_cast_transpose",
            Kind::Pointwise,
            "gradient of a gated activation, cast_transpose",
        )
    },
    OpSpec { act: true, bundle: Some("activation"), ..plain(Op::Activation, "activation", Kind::Pointwise, "act(x)") },
    OpSpec { operands: GRADIENT, act: true, ..plain(Op::ActivationGrad, "activation_grad", Kind::Pointwise, "g·act'(x)") },
    OpSpec {
        operands: &[Role { what: "gated input", shape: [Dim::M, Dim::TwoN] }],
        act: true,
        bundle: Some("activation"),
        ..plain(Op::Gated, "gated", Kind::Pointwise, "act(a)·b")
    },
    OpSpec { bundle: Some("layernorm"), ..plain(Op::Layernorm, "layernorm", Kind::Norm, "LayerNorm forward") },
    OpSpec { bundle: Some("rmsnorm"), ..plain(Op::Rmsnorm, "rmsnorm", Kind::Norm, "RMSNorm forward") },
    OpSpec {
        operands: &[Role { what: "A", shape: [Dim::M, Dim::K] }, Role { what: "B", shape: [Dim::N, Dim::K] }],
        bundle: Some("gemm"),
        ..plain(Op::Gemm, "gemm", Kind::Product, "A·Bᵀ + bias: FP8, W4A8, mixed input")
    },
    OpSpec {
        operands: &[Role { what: "A", shape: [Dim::M, Dim::K] }, Role { what: "B", shape: [Dim::EN, Dim::K] }],
        bundle: Some("grouped_gemm"),
        ..plain(Op::GroupedGemm, "grouped_gemm", Kind::GroupedProduct, "per-group A·B[e]ᵀ by offs")
    },
    OpSpec {
        operands: &[Role { what: "dY", shape: MN }, Role { what: "B", shape: [Dim::EK, Dim::N] }],
        result: [Dim::M, Dim::K],
        // dY[M,N] times B[e][K,N]: the same product with other names.
        bundle: Some("grouped_gemm"),
        ..plain(Op::GroupedGemmDgrad, "grouped_gemm_dgrad", Kind::GroupedProduct, "grad_A of the grouped product")
    },
    OpSpec {
        operands: &[Role { what: "dYᵀ", shape: [Dim::N, Dim::M] }, Role { what: "Aᵀ", shape: [Dim::K, Dim::M] }],
        result: [Dim::EN, Dim::K],
        bundle: Some("grouped_gemm_wgrad"),
        ..plain(Op::GroupedGemmWgrad, "grouped_gemm_wgrad", Kind::GroupedProduct, "grad_B of the grouped product")
    },
];

/// Names of the activations that have no constants, in the order of [`Act`].
pub const ACTS: &[(Act, &str)] = &[
    (Act::Gelu, "gelu"),
    (Act::Silu, "silu"),
    (Act::Relu, "relu"),
    (Act::Qgelu, "qgelu"),
    (Act::Srelu, "srelu"),
    (Act::GeluErf, "gelu_erf"),
];

impl Op {
    /// Its entry in [`OPS`].
    pub fn spec(self) -> &'static OpSpec {
        &OPS[self as usize]
    }
    pub fn name(self) -> &'static str {
        self.spec().name
    }
    /// Multiplies two operands, in groups or not.
    pub fn is_product(self) -> bool {
        matches!(self.spec().kind, Kind::Product | Kind::GroupedProduct)
    }
    /// Has groups of rows or of K, whose ends are `offs`.
    pub fn is_grouped(self) -> bool {
        self.spec().kind == Kind::GroupedProduct
    }
    /// Operands may be codes; where they may not, a recipe is the result's.
    pub fn reads_codes(self) -> bool {
        self.is_product() || self.spec().kind == Kind::Dequantize
    }
    pub fn is_norm(self) -> bool {
        self.spec().kind == Kind::Norm
    }
}

impl std::str::FromStr for Op {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let found = OPS.iter().find(|o| o.name == s).map(|o| o.op);
        found.ok_or_else(|| Error::unknown("op", s, OPS.iter().map(|o| o.name)))
    }
}

impl Act {
    pub fn name(self) -> &'static str {
        match self {
            Act::SwigluOai(_) => "swiglu_oai",
            Act::SwigluLimit(_) => "swiglu_limit",
            plain => ACTS.iter().find(|a| a.0 == plain).map_or("", |a| a.1),
        }
    }
}

impl std::str::FromStr for Act {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let found = ACTS.iter().find(|o| o.1 == s).map(|o| o.0);
        found.ok_or_else(|| Error::unknown("activation", s, ACTS.iter().map(|o| o.1)))
    }
}

/// The lengths of one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Groups; 1 where there are none.
    pub groups: usize,
}

impl Sizes {
    /// Of operands that have these shapes, `[rows, columns]` in the order of the roles. An operand that is not there is left out; what
    /// only it would have told is 0.
    pub fn of(spec: &OpSpec, shapes: &[[usize; 2]], groups: usize) -> Sizes {
        let mut s = Sizes { groups: groups.max(1), ..Sizes::default() };
        for (dim, n) in spec.operands.iter().zip(shapes).flat_map(|(role, shape)| role.shape.into_iter().zip(*shape)) {
            match dim {
                Dim::M => s.m = n,
                Dim::N => s.n = n,
                Dim::K => s.k = n,
                Dim::TwoN => s.n = n / 2,
                Dim::EN => s.n = n / s.groups,
                Dim::EK => s.k = n / s.groups,
            }
        }
        s
    }
    pub fn dim(&self, dim: Dim) -> usize {
        match dim {
            Dim::M => self.m,
            Dim::N => self.n,
            Dim::K => self.k,
            Dim::TwoN => 2 * self.n,
            Dim::EN => self.groups * self.n,
            Dim::EK => self.groups * self.k,
        }
    }
    /// Rows and columns.
    pub fn shape(&self, shape: [Dim; 2]) -> [usize; 2] {
        shape.map(|d| self.dim(d))
    }
    /// The dimensions of an array: groups that lie one below the other are a dimension of their own.
    pub fn dims(&self, shape: [Dim; 2]) -> Vec<usize> {
        match shape {
            [Dim::EN, columns] => vec![self.groups, self.n, self.dim(columns)],
            [Dim::EK, columns] => vec![self.groups, self.k, self.dim(columns)],
            plain => self.shape(plain).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_the_order_of_the_enums() {
        for (i, spec) in OPS.iter().enumerate() {
            assert_eq!(spec.op as usize, i, "{}", spec.name);
            assert_eq!(spec.name.parse::<Op>().unwrap(), spec.op);
        }
        for (act, name) in ACTS {
            assert_eq!((act.name(), name.parse::<Act>().unwrap()), (*name, *act));
        }
    }

    /// What the f64 definitions return has the shape of the table, for lengths that are all different.
    #[test]
    fn results_of_the_definitions_have_the_shape_of_the_table() {
        use crate::op::{Args64, Params, define};
        let sizes = Sizes { m: 7, n: 4, k: 5, groups: 3 };
        for spec in OPS {
            let zeros = |i: usize| spec.operands.get(i).map(|r| ndarray::Array2::zeros(sizes.shape(r.shape)));
            let args = Args64 {
                a: zeros(0).unwrap(),
                b: zeros(1),
                gamma: spec.op.is_norm().then(|| vec![1.0; 4]),
                offs: spec.op.is_grouped().then(|| vec![2, 2, 7]),
                ..Args64::default()
            };
            let params = Params { act: spec.act.then_some(Act::Silu), ..Params::default() };
            let defined = define(spec.op, &params, &args).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
            assert_eq!(defined.d.shape(), sizes.shape(spec.result), "{}", spec.name);
            assert_eq!(defined.dbias.is_some(), spec.dbias, "{}", spec.name);
            assert_eq!(defined.magnitude.is_some(), spec.op.is_product(), "{}", spec.name);
            assert_eq!(defined.rsigma.is_some(), spec.op.is_norm(), "{}", spec.name);
            let shapes: Vec<_> = spec.operands.iter().map(|r| sizes.shape(r.shape)).collect();
            let again = Sizes::of(spec, &shapes, 3);
            assert_eq!(again.shape(spec.result), sizes.shape(spec.result), "{}", spec.name);
            // Without its activation an op that has one is refused, and no other is.
            assert_eq!(define(spec.op, &Params::default(), &args).is_err(), spec.act, "{}", spec.name);
        }
    }
}
