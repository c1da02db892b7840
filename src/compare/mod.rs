//! How far a result is from what it should be, how far it may be, and what a pass is worth.
//!
//! `compare` knows arrays, formats and the bounds of arithmetic; it knows no kernel. All of it is deterministic.
//!
//! ```text
//! exact, ideal, actual, OutFormat ──► ErrorStats (three)           metrics: METRICS
//! ```

mod bound;
#[cfg(test)]
mod bound_tests;
mod digest;
pub mod gates;
mod metrics;
mod out;
pub mod probable;
mod verdict;

pub use bound::{Accumulation, Bound, Judged, ProductArithmetic, WeightRounding};
pub use digest::Digest;
pub use metrics::{ErrorStats, METRICS, Metric, Worse};
pub use out::OutFormat;
pub use verdict::Verdict;
