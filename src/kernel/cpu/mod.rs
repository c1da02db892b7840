//! The CPU kernels: the rounding order of the origins' kernels in f32, parallel over rows, each equal bit for bit to its
//! obvious definition under [`crate::model`] where one exists.

use crate::kernel::Kernel;

/// Every CPU kernel, one entry a line.
pub const KERNELS: &[&dyn Kernel] = &[];
