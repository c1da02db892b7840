//! A grammar of faults, for an exam that no list can pass: effect × region × parameters × formats × shapes, drawn from a seed.
//!
//! ```text
//! draw ──► Question: operands and what the kernel does wrong, in words and numbers
//! replay ──► what such a kernel writes: obvious loops over codes, scales and zero points
//! exam ──► judged, diagnosed, and held against the question
//! ```
//!
//! The replays know nothing of the diagnosis or of the catalogue: they are written as one writes a reference in numpy.

pub mod draw;
pub(crate) mod exam;
pub(crate) mod replay;

pub use draw::{Effect, Question, Reach, Which};
pub use exam::{Score, ask};
