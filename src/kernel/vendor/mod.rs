//! The vendor's library, cuBLASLt, loaded at run time: what it returns, by which algorithm, and the CPU model of that algorithm.

pub mod gemm;
pub mod lt;
pub mod model;

use crate::kernel::Kernel;

/// Every vendor kernel, one entry a line.
pub const KERNELS: &[&dyn Kernel] = &[&gemm::CublasLt];
