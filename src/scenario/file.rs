//! The format of a scenario file, as written; [`super::check`] makes a [`super::Scenario`] of it.
//!
//! ```toml
//! about = "what goes wrong"
//! row = 1                       # of the catalogue in data/scenarios/README.md; 0 for one of your own
//! class = "staleness"           # staleness, bytes, saturation, contract, healthy
//! upstream = "where it happened"
//! steps = 10
//!
//! [[tensor]]                    # data that moves
//! name = "x"
//! source = "minilm:layer0.ffn_in_input"
//! rows = 32
//! cols = 64
//! drift = 1.2                   # amplitude ×1.2 a step
//!
//! [[state]]                     # a recipe's state
//! name = "x"
//! recipe = "te_delayed"
//!
//! [[event]]                     # what happens in every step, in this order
//! do = "quantize"
//! tensor = "x"
//! state = "x"
//! into = "xq"
//!
//! [[law]]                       # what it must do; a use that no law names is exact to the bit
//! policies = ["shared"]
//! product = "wgrad"
//! operand = "b"
//! r = "s(x,n)/s(x,n+1)"
//! ```

use crate::sweep::file::line_of;
use crate::{Error, Result};
use serde::Deserialize;
use std::path::Path;
use toml::Spanned;

/// A name with its place in the file.
pub type Name = Spanned<String>;

/// A scenario file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    pub about: String,
    /// Row of the catalogue; 0 where there is none.
    #[serde(default)]
    pub row: u32,
    pub class: Name,
    /// Where it happened: issues, pull requests, source files.
    pub upstream: String,
    pub steps: Spanned<usize>,
    /// Inner accumulation of the products, as in sweeps.
    pub accumulator: Option<Name>,
    pub tensor: Vec<TensorTable>,
    pub state: Vec<StateTable>,
    pub event: Vec<EventTable>,
    #[serde(default)]
    pub law: Vec<LawTable>,
}

/// Data that moves from step to step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorTable {
    pub name: Name,
    /// A distribution or a real tensor; one of `source` and `from`.
    pub source: Option<Name>,
    /// The values of another tensor, with an amplitude of its own.
    pub from: Option<Name>,
    pub rows: Option<usize>,
    pub cols: Option<usize>,
    /// The values stay but for `optimizer` events; otherwise every step has a batch of its own.
    #[serde(default)]
    pub weight: bool,
    /// Amplitude at step 0, its factor a step, and the standard deviation of the logarithm of a random factor of each step.
    #[serde(default = "one")]
    pub gain: f64,
    #[serde(default = "one")]
    pub drift: f64,
    #[serde(default)]
    pub wobble: f64,
    /// Steps at which the first element is `spike_by` times the largest.
    #[serde(default)]
    pub spike: Vec<usize>,
    #[serde(default = "ten")]
    pub spike_by: f64,
    /// Steps at which the first element is Inf.
    #[serde(default)]
    pub inf: Vec<usize>,
    /// f16, bf16 (default) or f32.
    pub dtype: Option<Name>,
}

/// The state of a recipe: history and scale (delayed scaling), and the slot of the shared scale_inv.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateTable {
    pub name: Name,
    pub recipe: Name,
    /// Delayed scaling: length of the amax history.
    pub history: Option<Spanned<usize>>,
    #[serde(default)]
    pub margin: i32,
    /// Delayed scaling: `max` (default) or `most_recent`.
    pub algo: Option<Name>,
    /// Delayed scaling: the format whose largest value the scale aims at, where it is not the format of the bytes.
    pub aim: Option<Name>,
    /// The shared scale_inv is written by `refresh` events only, as that of an FP8 output.
    #[serde(default)]
    pub late: bool,
}

/// One event; which keys it takes depends on `do`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventTable {
    #[serde(rename = "do")]
    pub what: Name,
    pub tensor: Option<Name>,
    pub state: Option<Name>,
    pub states: Option<Vec<Name>>,
    pub into: Option<Name>,
    pub from: Option<Name>,
    pub sources: Option<Vec<Name>>,
    pub a: Option<Name>,
    pub b: Option<Name>,
    /// How the scale_inv of an operand is read where it is no part of the data.
    pub read_a: Option<Name>,
    pub read_b: Option<Name>,
    /// backward: `input` or `weight`.
    pub grad: Option<Name>,
    /// Name of the product in laws and rows; `forward`, `dgrad`, `wgrad` unless given.
    pub name: Option<Name>,
    /// The product writes FP8 by the scale of this state.
    pub out_state: Option<Name>,
    /// Grouped products: cumulative end rows.
    pub offs: Option<Vec<usize>>,
    /// quantize: of the transposed tensor.
    pub transposed: Option<bool>,
    /// quantize: this many equal groups of columns, each by itself; this many experts below each other, each transposed by itself.
    pub groups: Option<usize>,
    pub experts: Option<usize>,
    /// quantize: the scale pointer is null.
    pub null: Option<bool>,
    /// skip: the new scale_inv buffer holds this.
    pub fresh: Option<f64>,
    /// update: `fused` (default) or `unfused`.
    pub rule: Option<Name>,
    /// update: the buffer of a `reduce`; consumed.
    pub reduced: Option<Name>,
    /// update: `H[0]` is not cleared.
    pub keep: Option<bool>,
    /// optimizer: size of the change, in root mean squares.
    pub rate: Option<f64>,
    /// gather: `rows` (default) or `cols`.
    pub axis: Option<Name>,
    /// restore: which of `scale`, `scale_inv`, `history`, `bytes`.
    pub parts: Option<Vec<Name>>,
    /// restore: length of the history that the state has now.
    pub history: Option<usize>,
    /// Only at these steps; from, to, every.
    pub at: Option<Vec<usize>>,
    pub first: Option<usize>,
    pub last: Option<usize>,
    pub every: Option<usize>,
}

/// What must be seen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LawTable {
    /// Policies it is for; all unless given.
    pub policies: Option<Vec<Name>>,
    pub product: Name,
    /// `a` or `b`.
    pub operand: Name,
    /// `ratio` (default), `clipped`, `flushed`, `twice`.
    pub kind: Option<Name>,
    /// s·scale_inv′ of each element; see [`super::expr`]. 1 unless given.
    pub r: Option<Name>,
    /// The bytes are those that this state made in this version: `w@0`.
    pub codes: Option<Name>,
    /// Only at these steps.
    pub first: Option<usize>,
    pub last: Option<usize>,
}

fn one() -> f64 {
    1.0
}
fn ten() -> f64 {
    10.0
}

impl ScenarioFile {
    /// Parses `text`; errors carry `path`, the line, the key and what is allowed.
    pub fn parse(path: &Path, text: &str) -> Result<ScenarioFile> {
        toml::from_str(text).map_err(|e: toml::de::Error| {
            let line = e.span().map_or(1, |s| line_of(text, s.start));
            Error::BadLine { path: path.to_path_buf(), line, what: crate::error::of_key(e.message()) }
        })
    }
}
