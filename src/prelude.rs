//! What a notebook needs: `use qassay::prelude::*;`

pub use crate::assay::Assayed;
pub use crate::assay::row::Row;
pub use crate::baseline::diff::Change;
pub use crate::bundle::{Bundle, assay::assay};
pub use crate::compare::gates::GATES;
pub use crate::compare::{ErrorStats, METRICS, Power, Verdict};
pub use crate::fault::{self, CLASSES, Diagnosis, Fault};
pub use crate::input::{self, DISTRIBUTIONS, Source, generate};
pub use crate::job::{Data, Job, Operand, OutSpec, Output, Part};
pub use crate::kernel::{self, Backend, Kernel, KernelSpec};
pub use crate::model::Accumulator;
pub use crate::op::{self, Act, Op};
pub use crate::recipe::{RECIPES, Recipe};
pub use crate::scenario::{Policy, Scenario, audit};
pub use crate::sweep::Sweep;
pub use crate::sweep::builder::{Builder, Rows};
pub use crate::{Error, Format, Granularity, Overflow, QTensor, Result, Rounding, Tensor, Zero};

#[cfg(feature = "notebook")]
pub use crate::notebook::{Chart, Claims, Replays, Show, Stack, Table, stack};
#[cfg(feature = "notebook")]
pub use crate::report::plot::Scale;
/// A second `:dep` of a notebook would resolve every version anew.
#[cfg(feature = "notebook")]
pub use csv;
