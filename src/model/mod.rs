//! Device models: the arithmetic of the hardware, bit for bit, each as the obvious sequence of rounded operations.

pub mod accumulate;
pub mod act;
pub mod bench;
pub mod bound;
#[cfg(test)]
mod bound_tests;
pub mod boundary;
pub mod bulk;
pub mod elementwise;
pub mod gemm;
pub mod interval;
pub mod libm;
pub mod lowered;
pub mod mma;
pub mod norm;
pub mod product;
#[cfg(test)]
mod products_tests;
pub mod table;

pub use bound::{Factors, accumulation_bound};

use crate::{Error, Format, Result};

/// The inner accumulation of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inner {
    /// Exact sum, rounded once to f32 (nearest even).
    Exact,
    /// f32, k ascending from +0, one product (exact) added at a time with nearest-even: a chain of FMA.
    F32Sequential,
    /// f32 tree: products rounded to f32, a node of n leaves split after the largest power of two below n.
    F32Pairwise,
    /// The tensor core's block step T(W, F, O), chained over k from +0.
    Mma(MmaModel),
    /// Integer products, exact, wrapping in 32 bits.
    Int32,
    /// An assumption, no model: f32 sums that round to nearest, in any order, split and joined in any way.
    AnyOrder,
    /// An assumption: [`Inner::AnyOrder`], or block steps of this instruction over the products in any order, split in any way, the parts
    /// added in f32. Where the instruction does not take the formats, [`Inner::AnyOrder`].
    AnyOf(MmaModel),
    /// An assumption: [`Inner::AnyOf`] any instruction of the table with an f32 accumulator.
    AnyUnit,
}

impl Inner {
    /// Whether it has bits. What is only assumed of a kernel has a bound and no bits: running it is [`Error::Unsupported`].
    pub fn is_model(self) -> bool {
        !matches!(self, Inner::AnyOrder | Inner::AnyOf(_) | Inner::AnyUnit)
    }
    /// What running an assumption says.
    pub(crate) fn no_bits(self) -> Error {
        Error::unsupported(format!("accumulator {self}"), "it is an assumption with a bound, no model with bits: name a model")
    }
}

/// Which tensor-core instruction is modelled; the parameters are in [`table::MODELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MmaModel {
    /// Entry in the table of device models.
    pub name: &'static str,
}

/// In which order the scales of K groups or blocks meet the f32 partial sum P of their block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScaleOrder {
    /// `y = fma(RN32(P·s_a), s_b, y)` (TransformerEngine's reference; b first when only A has two-dimensional blocks; the scales are
    /// multiplied first when both have).
    #[default]
    SumFirst,
    /// `y = fma(RN32(s_a·s_b), P, y)` (DeepGEMM on Hopper).
    ScalesFirst,
}

/// How a product is accumulated, written `inner[@promote_every][+scales_first]`: `exact`, `f32_sequential`, `f32_pairwise`, `int32`
/// or a device model's name, such as `hopper_wgmma@128`; or what is assumed of it: `f32_any_order`, `any_unit`, `any_hopper_wgmma`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accumulator {
    pub inner: Inner,
    /// Every this many elements of K the inner sum is added (f32, nearest even) to a main f32 accumulator and restarted.
    pub promote_every: Option<usize>,
    pub scale_order: ScaleOrder,
}

impl Accumulator {
    /// Without promotion, in TransformerEngine's order of scales.
    pub fn new(inner: Inner) -> Self {
        Self { inner, promote_every: None, scale_order: ScaleOrder::SumFirst }
    }
    /// One arithmetic that this one allows: itself where it is a model, f32 in order where it is an assumption. For where something has
    /// to be run.
    pub fn runnable(self) -> Self {
        if self.inner.is_model() { self } else { Self { inner: Inner::F32Sequential, ..self } }
    }
    /// The names `FromStr` takes, but for `any_` before a device model's.
    pub fn names() -> impl Iterator<Item = &'static str> {
        INNER.iter().map(|i| i.0).chain(table::MODELS.iter().map(|m| m.name))
    }
    /// Whether products of these formats can be accumulated so; [`Error::Unsupported`] if not.
    pub fn check(&self, a: Format, b: Format) -> Result<()> {
        match self.inner {
            Inner::Mma(m) => table::find(m.name)?.unit(a, b).map(drop),
            Inner::Int32 if !(a.is_integer() && b.is_integer()) => {
                Err(Error::unsupported("int32 accumulation", format!("{a} × {b} are not both integers")))
            }
            _ => Ok(()),
        }
    }
}

const INNER: &[(&str, Inner)] = &[
    ("exact", Inner::Exact),
    ("f32_sequential", Inner::F32Sequential),
    ("f32_pairwise", Inner::F32Pairwise),
    ("int32", Inner::Int32),
    ("f32_any_order", Inner::AnyOrder),
    ("any_unit", Inner::AnyUnit),
];

/// Before a device model's name: [`Inner::AnyOf`].
const ANY: &str = "any_";

impl std::fmt::Display for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Inner::Mma(m) => f.pad(m.name),
            Inner::AnyOf(m) => f.pad(&format!("{ANY}{}", m.name)),
            _ => f.pad(INNER.iter().find(|i| i.1 == *self).expect("every other inner has a name").0),
        }
    }
}

impl std::fmt::Display for Accumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let promote = self.promote_every.map_or(String::new(), |n| format!("@{n}"));
        let order = if self.scale_order == ScaleOrder::ScalesFirst { "+scales_first" } else { "" };
        f.pad(&format!("{}{promote}{order}", self.inner))
    }
}

impl std::str::FromStr for Accumulator {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let (rest, scale_order) = match s.strip_suffix("+scales_first") {
            Some(rest) => (rest, ScaleOrder::ScalesFirst),
            None => (s, ScaleOrder::SumFirst),
        };
        let (name, promote_every) = match rest.split_once('@') {
            None => (rest, None),
            Some((name, n)) => {
                let n = n.parse().ok().filter(|n: &usize| *n > 0);
                let bad = || Error::value(format!("promotion interval of {s}"), rest, "NAME@N with N > 0 elements of K");
                (name, Some(n.ok_or_else(bad)?))
            }
        };
        let model = |name| table::find(name).ok().map(|m| MmaModel { name: m.name });
        let inner = match (INNER.iter().find(|i| i.0 == name), model(name), name.strip_prefix(ANY).and_then(model)) {
            (Some(i), ..) => i.1,
            (_, Some(m), _) => Inner::Mma(m),
            (.., Some(m)) => Inner::AnyOf(m),
            _ => return Err(Error::unknown("accumulator", name, Self::names())),
        };
        if inner == Inner::Int32 && promote_every.is_some() {
            return Err(Error::unsupported("int32 accumulation", "it is exact: there is nothing to promote"));
        }
        Ok(Self { inner, promote_every, scale_order })
    }
}
