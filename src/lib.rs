//! **qassay** assays quantized GPU kernels: it runs a kernel against f64 references and says how much of the error is the
//! format's, how much is the kernel's, whether the kernel's share is within what its arithmetic allows, and what the
//! hardware must return, to the bit.
//!
//! # Words (one meaning each)
//!
//! | word | meaning |
//! |---|---|
//! | code | the stored integer of an element |
//! | scale | what a value is multiplied by before encoding |
//! | scale_inv | what a decoded code is multiplied by to give the value; part of the data, never of the recipe |
//! | granularity | which elements share a scale: tensor, row, 1×G group along K, R×C block |
//! | recipe | how scales (and zero points) are chosen: format, granularity, scale format, rule, state |
//! | op | what is computed, defined in f64 |
//! | kernel | who computes it: `cpu`, `cuda`, `vendor` (cuBLASLt), `external` (a bundle, a process, a user's .cu) |
//! | device model | the hardware's arithmetic, bit for bit (accumulator width, truncation, promotion, rounding order) |
//! | case / sweep / run | one point / a TOML file that expands to many / one execution with its provenance |
//! | scenario | a replayable sequence of events on quantized state (the stale-scale stories) |
//! | fault | a known way for a kernel to be wrong; the same object injects it and recognises it |
//! | baseline / drift / accept | recorded truth / difference from it / the only act that changes it |
//!
//! # Four results, three errors
//!
//! ```text
//! exact  = op(x)                  f64 on the unquantized inputs
//! ideal  = op(dequantize(q))      f64 on the same bits the kernel saw
//! model  = device model(q)        what this hardware must return, to the bit (where a model exists)
//! actual = kernel(q)
//!
//! quantization error = ideal  − exact      the recipe's
//! kernel error       = actual − ideal      the kernel's: judged against a derived bound
//! total error        = actual − exact      what a network sees
//! mismatches         = count(actual bits ≠ model bits)
//! ```
//!
//! Where the op's result is itself a quantized tensor (an FP8 output), the output format is part of the recipe: `ideal` is
//! the value of the correctly rounded code, so that the format's share and the kernel's share stay apart there too.
//!
//! # The straight line
//!
//! ```text
//! sweep (TOML) ┐
//! bundle (file)├─► Job ─► kernel, or what came from elsewhere ─► Output ┐
//! scenario     ┘    └───► references: exact, ideal, model ──────────────┴─► assay ─► Judgement (verdict, power)
//!                                                                                     └─► Diagnosis, row, report, baseline
//! ```
//!
//! One function an arrow; nothing later in the line reaches back. Rooms import only from their left, or beside them in the same
//! braces, and nowhere in a circle; `tests/house.rs` reads this line and holds every `use` to it:
//!
//! ```text
//! order: {error, stage, parallel, order} ← data ← format ← tensor ← quant ← {recipe, input, op, compare} ← job ← model ← kernel ← assay ← fault
//!        ← {sweep, bundle, scenario} ← {run, external, baseline} ← {bench, report} ← {cli, notebook, prelude}
//! ```
//!
//! # Conventions
//!
//! Matrices are row-major. Products are `nt`: `D[M,N] = A[M,K] · B[N,K]ᵀ (+ bias[N])`. A quantized value is
//! `decode(code) · scale_inv`, `(code − zero_point) · scale_inv` (integer zero) or `code · scale_inv + zero_point`
//! (additive zero). Sizes are elements unless a name says bytes or bits.

// What is not the crate's face is used by some feature: a build without one has code that nobody calls.
#![cfg_attr(not(all(feature = "cli", feature = "cuda", feature = "notebook")), allow(dead_code))]

pub mod assay;
pub mod baseline;
#[cfg(feature = "cuda")]
pub mod bench;
pub mod bundle;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod data;
pub mod error;
pub mod external;
pub mod fault;
pub mod format;
pub mod input;
pub mod job;
pub mod kernel;
pub mod model;
#[cfg(feature = "notebook")]
pub mod notebook;
pub mod op;
pub(crate) mod order;
pub(crate) mod parallel;
pub mod prelude;
pub mod quant;
pub mod recipe;
pub mod report;
pub mod run;
pub mod scenario;
pub(crate) mod stage;
pub mod sweep;
pub mod tensor;

pub use error::{Error, Result};
pub use format::{Format, Overflow, Rounding};
pub use quant::{Granularity, QTensor, Zero};
pub use tensor::Tensor;
