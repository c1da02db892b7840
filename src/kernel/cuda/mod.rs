//! Our CUDA kernels: `kernels/*.cu`, embedded, compiled by NVRTC for the GPU at hand, launched through the driver.
//!
//! What each must return to the bit is the CPU's to say ([`Kernel::predict`]), which shares no code with it. Everything is loaded at run time: the same binary runs where there is no GPU and no CUDA, and says what is missing.

pub mod activation;
pub mod cast;
pub mod cast_block;
pub mod cast_mx;
pub mod cast_transpose;
pub mod contract;
pub mod dact;
pub mod device;
pub mod elements;
pub mod fp8_gemm;
pub mod fp8_gemm_mma;
pub mod gemm_f64;
pub mod group_scales;
pub mod grouped_gemm;
pub mod int4_quant;
pub mod launch;
pub mod mixed_gemm;
pub mod mixed_stream;
pub mod model;
pub mod norm;
pub mod nvrtc;
pub mod operand;
pub mod options;
pub mod output;
pub mod scale_inv;
pub mod second;
pub mod source;
pub mod tile;
pub mod timed;
pub mod w4a8;
pub mod w4a8_wide;

use crate::kernel::Kernel;

/// Every CUDA kernel, one entry a line.
pub const KERNELS: &[&dyn Kernel] = &[
    &activation::Activation,
    &cast::Cast,
    &cast_block::CastBlock,
    &cast_mx::CastMx,
    &cast_transpose::CastTranspose,
    &dact::Dact,
    &fp8_gemm::Fp8Gemm,
    &grouped_gemm::GroupedGemm,
    &fp8_gemm_mma::Fp8GemmMma,
    &int4_quant::Int4Quant,
    &mixed_gemm::MixedGemm,
    &norm::Norm,
    &w4a8::W4a8,
];
