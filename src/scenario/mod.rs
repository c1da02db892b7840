//! Replayable sequences of events on quantized state: every way in which a scale and its data go out of step.
//!
//! ```text
//! data/scenarios/*.toml → Scenario ─(policy)→ Machine: events on state → uses of operands in products → laws → rows
//! ```
//!
//! [`file`](mod@file) is the format of the file, [`check`] and [`events`] what may be wrong with it, [`data`] the tensors that move, [`state`] what the
//! events act on, [`machine`] the events, [`product`] the products, [`expr`] and [`law`] what is predicted, [`record`] what is
//! written, [`run`] the replay of many; [`audit`] asks of any codes and scale_inv whether they belong together,
//! [`reading`] of a product which scale_inv was read, [`audited`] both of a bundle; [`device`] names what only a GPU shows.

pub mod audit;
pub mod audited;
pub(crate) mod check;
pub(crate) mod data;
pub(crate) mod device;
pub(crate) mod events;
pub(crate) mod expr;
pub(crate) mod file;
pub(crate) mod law;
pub(crate) mod machine;
pub(crate) mod product;
pub(crate) mod reading;
pub mod record;
pub(crate) mod run;
pub(crate) mod state;

#[cfg(test)]
mod tests;

use crate::compare::sha256;
use crate::model::Accumulator;
use crate::recipe::Recipe;
use crate::recipe::delayed::UpdateRule;
use crate::{Error, Result};
use std::path::Path;

/// Where the scale_inv of quantized data lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// With the data (TransformerEngine from pull request 1083 on).
    Packaged,
    /// In the recipe, cloned by every forward for its backward (before it).
    Cloned,
    /// In the recipe, read when it is used.
    Shared,
}

impl Policy {
    pub const ALL: [Policy; 3] = [Policy::Packaged, Policy::Cloned, Policy::Shared];
    pub fn name(self) -> &'static str {
        ["packaged", "cloned", "shared"][self as usize]
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Policy {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let known = || Policy::ALL.map(Policy::name);
        Policy::ALL.into_iter().find(|p| p.name() == s).ok_or_else(|| Error::unknown("policy", s, known()))
    }
}

/// What kind of story it is. Under [`Policy::Packaged`] every staleness scenario is exact to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// scale_inv and bytes are of different times or owners.
    Staleness,
    /// The bytes are of another time; their scale_inv may be right.
    Bytes,
    /// scale_inv belongs to the bytes, the scale does not fit the data.
    Saturation,
    /// What a call promises: null pointers, no-ops, formats.
    Contract,
    /// Nothing goes wrong under any policy.
    Healthy,
}

impl Class {
    pub const ALL: [(Class, &'static str); 5] = [
        (Class::Staleness, "staleness"),
        (Class::Bytes, "bytes"),
        (Class::Saturation, "saturation"),
        (Class::Contract, "contract"),
        (Class::Healthy, "healthy"),
    ];
    pub fn name(self) -> &'static str {
        Class::ALL[self as usize].1
    }
}

impl std::str::FromStr for Class {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let found = Class::ALL.into_iter().find(|c| c.1 == s).map(|c| c.0);
        found.ok_or_else(|| Error::unknown("class", s, Class::ALL.map(|c| c.1)))
    }
}

/// A scenario, checked: every name in it exists.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// File stem: the name on the command line.
    pub name: String,
    pub about: String,
    /// Row of the catalogue; 0 where there is none.
    pub row: u32,
    pub class: Class,
    pub upstream: String,
    /// SHA-256 of the file.
    pub digest: String,
    pub steps: usize,
    pub accumulator: Accumulator,
    pub tensors: Vec<data::Moving>,
    pub states: Vec<StateSpec>,
    pub events: Vec<Event>,
    pub laws: Vec<law::Law>,
}

/// A recipe's state as declared.
#[derive(Clone, Debug)]
pub struct StateSpec {
    pub name: String,
    pub recipe: Recipe,
    pub history: usize,
    pub rule: UpdateRule,
    pub late: bool,
}

impl StateSpec {
    /// Whether updates move its scale.
    pub fn is_delayed(&self) -> bool {
        self.recipe.spec().is_ok_and(|s| s.history)
    }
}

/// One event and when it happens.
#[derive(Clone, Debug)]
pub struct Event {
    pub line: usize,
    pub when: When,
    pub act: Act,
}

/// The steps at which an event happens.
#[derive(Clone, Debug)]
pub struct When {
    pub at: Option<Vec<usize>>,
    pub first: usize,
    pub last: usize,
    pub every: usize,
}

impl When {
    pub fn holds(&self, step: usize) -> bool {
        self.at.as_ref().is_none_or(|at| at.contains(&step))
            && (self.first..=self.last).contains(&step)
            && (step - self.first).is_multiple_of(self.every)
    }
}

/// What happens. Names are of tensors, states, buffers (quantized tensors), amax buffers, checkpoints and graphs.
#[derive(Clone, Debug)]
pub enum Act {
    /// Bytes of `tensor` by the scale of `state`; its amax is observed. Equal groups of columns each by itself where `groups` > 1;
    /// transposed expert by expert where `experts` > 1.
    Quantize {
        tensor: String,
        state: String,
        into: String,
        transposed: bool,
        groups: usize,
        experts: usize,
        null: bool,
    },
    /// The same again in the backward pass: new bytes, but what the first pass stashed stays.
    Recompute {
        tensor: String,
        state: String,
        into: String,
    },
    /// A captured graph quantizes with the scale that it captured.
    Replay {
        graph: String,
        tensor: String,
        state: String,
        into: String,
    },
    /// The no-op flag is set: data, amax and scale_inv stay; a new scale_inv buffer is not written.
    Skip {
        buffer: String,
        fresh: Option<f32>,
    },
    /// Dequantized, then quantized again.
    Requantize {
        from: String,
        state: String,
        into: String,
        transposed: bool,
    },
    Product(Product),
    /// The recipe's scale and shared scale_inv move.
    Update {
        state: String,
        fused: bool,
        reduced: Option<String>,
        keep: bool,
    },
    /// The small kernel that writes the shared scale_inv of an FP8 output.
    Refresh {
        state: String,
    },
    /// Maximum of the amaxes of several ranks.
    Reduce {
        states: Vec<String>,
        into: String,
    },
    /// Cache a weight, or take it from the cache.
    Copy {
        from: String,
        into: String,
    },
    Optimizer {
        tensor: String,
        rate: f64,
    },
    /// Bytes of several ranks together; with `state`, the recipe that holds their scale_inv for the reader.
    Gather {
        sources: Vec<String>,
        into: String,
        state: String,
        cols: bool,
    },
    Save {
        state: Option<String>,
        buffer: Option<String>,
        into: String,
    },
    Restore {
        from: String,
        parts: Vec<Part>,
        history: Option<usize>,
    },
    Transpose {
        from: String,
        into: String,
    },
    /// Keeps the scale of a state, or that of a tensor's current amax, by value.
    Capture {
        state: String,
        tensor: Option<String>,
        into: String,
    },
    Swap {
        a: String,
        b: String,
    },
}

/// What a checkpoint brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Scale,
    ScaleInv,
    History,
    Bytes,
}

/// A product of two buffers.
#[derive(Clone, Debug)]
pub struct Product {
    pub name: String,
    pub kind: ProductKind,
    pub a: Read,
    pub b: Read,
    pub into: Option<String>,
    pub out_state: Option<String>,
    pub offs: Vec<usize>,
}

/// Which of the three products of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductKind {
    /// `Y[M,N] = X[M,K]·W[N,K]ᵀ`.
    Forward,
    /// `dX[M,K] = dY[M,N]·W[N,K]`.
    GradInput,
    /// `dW[N,K] = dY[M,N]ᵀ·X[M,K]`.
    GradWeight,
}

/// An operand of a product: a buffer, and how its scale_inv is found where it is no part of the data.
#[derive(Clone, Debug)]
pub struct Read {
    pub buffer: String,
    pub how: How,
}

/// How a bare vector of scale_inv is read.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// As it was written.
    Own,
    /// The vector of another state: a wrong index.
    State(String),
    /// Each tile reads the scale this many places on.
    Roll(usize),
    /// Written as rows × cols, read as its transpose.
    Turn(usize, usize),
    /// The scale itself, where scale_inv is meant.
    Scale,
    /// As one scale a row of the operand.
    Rows,
}

impl Scenario {
    /// Reads `data/scenarios/NAME.toml`, or the file at `name` when it ends in `.toml`.
    pub fn load(name: &str) -> Result<Scenario> {
        let Some((path, text)) = crate::data::text_of("scenarios", name)? else {
            let known = names()?;
            return Err(Error::unknown("scenario", name, known.iter().map(String::as_str)));
        };
        let mut scenario = Scenario::parse(&path, &text)?;
        if name.ends_with(".toml") {
            scenario.name = name.to_string();
        }
        Ok(scenario)
    }

    /// Checks a scenario's text; `path` names it in errors.
    pub fn parse(path: &Path, text: &str) -> Result<Scenario> {
        let file = file::ScenarioFile::parse(path, text)?;
        let mut scenario = check::check(path, text, file)?;
        scenario.name = path.file_stem().map_or_else(|| "scenario".into(), |s| s.to_string_lossy().into_owned());
        scenario.digest = sha256(text.as_bytes());
        Ok(scenario)
    }
}

/// The scenarios in `data/scenarios`, sorted.
pub fn names() -> Result<Vec<String>> {
    crate::data::names("scenarios", "toml")
}
