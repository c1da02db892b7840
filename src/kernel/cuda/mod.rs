//! Our CUDA kernels: `kernels/*.cu`, embedded, compiled by NVRTC for the GPU at hand, launched through the driver.
//!
//! Everything is loaded at run time: the same binary runs where there is no GPU and no CUDA, and says what is missing.

pub mod device;
pub mod nvrtc;
pub mod source;
