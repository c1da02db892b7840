//! Our CUDA kernels: `kernels/*.cu`, embedded, compiled by NVRTC for the GPU at hand, launched through the driver.
//!
//! The CPU says what each must return, to the bit ([`Kernel::predict`]). It shares no code with them. Everything is loaded at run time: the same
//! binary runs where there is no GPU and no CUDA, and says what is missing.

pub(crate) mod activation;
pub(crate) mod afar;
pub(crate) mod ahead;
pub(crate) mod buffers;
pub(crate) mod cast;
pub(crate) mod cast_block;
pub(crate) mod cast_mx;
pub(crate) mod cast_transpose;
pub(crate) mod contract;
pub(crate) mod dact;
pub mod device;
pub(crate) mod elements;
pub(crate) mod fp8_gemm;
pub(crate) mod fp8_gemm_mma;
pub(crate) mod gemm_f64;
pub(crate) mod group_scales;
pub(crate) mod grouped_gemm;
pub(crate) mod inputs;
pub(crate) mod int4_quant;
pub(crate) mod ipc;
pub(crate) mod judge;
pub(crate) mod launch;
pub(crate) mod mixed_gemm;
pub(crate) mod mixed_stream;
pub(crate) mod model;
pub(crate) mod model_int;
pub(crate) mod norm;
pub(crate) mod nvrtc;
pub(crate) mod operand;
pub(crate) mod options;
pub(crate) mod output;
mod pool;
pub(crate) mod reference;
pub(crate) mod scale_inv;
pub(crate) mod second;
pub(crate) mod source;
mod staging;
pub(crate) mod tile;
pub mod timed;
pub(crate) mod w4a8;
pub(crate) mod w4a8_wide;

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
