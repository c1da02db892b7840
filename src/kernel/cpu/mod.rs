//! The CPU kernels: the rounding order of the origins' kernels in f32, parallel over rows, each equal bit for bit to its
//! obvious definition under [`crate::model`] where one exists.

pub mod activation;
mod bands;
pub mod cast;
pub mod cast_transpose;
pub mod dequantize;
mod emit;
pub mod norm;
#[cfg(test)]
mod tests;

use crate::kernel::Kernel;

/// Every CPU kernel, one entry a line.
pub const KERNELS: &[&dyn Kernel] =
    &[&cast::Cast, &cast_transpose::CastTranspose, &activation::Activation, &norm::Norm, &dequantize::Dequantize];
