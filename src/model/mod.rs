//! Device models: the arithmetic of the hardware, bit for bit, each as the obvious sequence of rounded operations.

pub mod accumulate;
pub(crate) mod act;
pub(crate) mod bench;
pub mod blocks;
pub(crate) mod bound;
#[cfg(test)]
mod bound_tests;
pub(crate) mod boundary;
pub(crate) mod bulk;
pub(crate) mod elementwise;
pub(crate) mod gemm;
pub(crate) mod interval;
pub(crate) mod libm;
pub(crate) mod lowered;
pub mod mma;
pub(crate) mod norm;
pub(crate) mod product;
#[cfg(test)]
mod products_tests;
pub mod runs;
pub mod sums;
#[cfg(test)]
mod sums_tests;
pub mod table;

pub use crate::job::{Accumulator, Inner, MmaModel, ScaleOrder};
use crate::{Error, Format, Result};
pub use blocks::BlockSums;
pub use bound::{Factors, accumulation_bound};
pub use sums::{Lines, SumBound};

impl Inner {
    /// The error of running an assumption.
    pub(crate) fn no_bits(self) -> Error {
        Error::unsupported(format!("accumulator {self}"), "it is an assumption with a bound, no model with bits: name a model")
    }
}

impl Accumulator {
    /// An arithmetic to run in the place of this one: a model runs as itself, an assumption as f32 in the order of K.
    pub fn runnable(self) -> Self {
        if self.inner.is_model() { self } else { Self { inner: Inner::F32Sequential, ..self } }
    }
    /// The names `FromStr` takes, but for `any_` before a device model's.
    pub fn names() -> impl Iterator<Item = &'static str> {
        INNER.iter().map(|i| i.0).chain(table::MODELS.iter().map(|m| m.name))
    }
    /// Checks that products of these formats can be accumulated like this. Errors: [`Error::Unsupported`].
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
