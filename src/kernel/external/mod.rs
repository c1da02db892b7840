//! Kernels from outside: a process that answers cases.

pub mod candidate;
pub mod process;
