//! The small kernels beside an FP8 GEMM: `kernels/scale_inv.cu` (contract there).

use super::contract::{Pointer, arguments};

arguments! {
    /// Contract scale_inv.
    Inverse = "scale_inv.cu" "scale_inv" { scale: Pointer, scale_inv: Pointer }
}

arguments! {
    /// Contract hold.
    Hold = "scale_inv.cu" "hold" { ns: u64 }
}
