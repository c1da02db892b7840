//! The CPU kernels: the rounding order of the origins' kernels in f32, parallel over rows, each equal bit for bit to its
//! obvious definition under [`crate::model`] where one exists.

pub(crate) mod activation;
mod bands;
pub(crate) mod cast;
pub(crate) mod cast_transpose;
pub(crate) mod dequantize;
pub(crate) mod drawn;
mod emit;
pub(crate) mod fp8_gemm;
pub(crate) mod grouped_gemm;
pub(crate) mod mixed_gemm;
pub(crate) mod norm;
pub(crate) mod product;
#[cfg(test)]
mod product_tests;
#[cfg(test)]
mod tests;
pub(crate) mod w4a8;

use crate::kernel::Kernel;

/// Every CPU kernel, one entry a line.
pub const KERNELS: &[&dyn Kernel] = &[
    &cast::Cast,
    &cast_transpose::CastTranspose,
    &activation::Activation,
    &norm::Norm,
    &dequantize::Dequantize,
    &fp8_gemm::Fp8Gemm,
    &w4a8::W4a8,
    &mixed_gemm::MixedGemm,
    &grouped_gemm::GroupedGemm,
];
