//! How far a result is from what it should be, how far it may be, and what a pass is worth.
//!
//! `compare` knows arrays, formats and the bounds of arithmetic; it knows no kernel. All of it is deterministic.
//!
//! ```text
//! exact, ideal, actual, OutFormat ──► ErrorStats (three)          metrics: METRICS
//! arithmetic, Σ|a||b|, ideal      ──► Bound ──► Judged            bound, probable
//! amax, scale_inv, dbias, …       ──► Check                       side
//! Bound, actual, scales, zeros    ──► Power, NoPower              power
//! all of it                       ──► Comparison { verdict, … }   verdict: judge
//! reference, actual               ──► what others would say       gates: GATES
//! ```

mod bound;
#[cfg(test)]
mod bound_tests;
mod digest;
pub(crate) mod digits;
pub mod gates;
mod inverse;
mod judged;
pub(crate) mod measured;
pub(crate) mod metrics;
pub(crate) mod out;
pub(crate) mod power;
#[cfg(test)]
mod power_tests;
pub mod probable;
pub(crate) mod quantile;
mod side;
mod verdict;

pub use bound::{Accumulation, Bound, ProductArithmetic, SumError, SumRadius};
pub use digest::{Digest, sha256};
pub use inverse::{inverse, inverses};
pub use judged::Judged;
pub use measured::Measured;
pub use metrics::{ErrorStats, METRICS, Metric, Worse};
pub use out::OutFormat;
pub use power::{NoPower, Power, PowerInput, Scales, Spans, ZeroPoints};
pub use side::{Check, amax_intervals};
pub use verdict::{CaseEvidence, Comparison, ErrorSize, Mismatches, Verdict, judge};
