//! fp8 `mma.sync` on Hopper and B200: not a tensor-core fp8 instruction but f16 ones.
//!
//! ptxas turns `mma.sync.m16n8k32` with e4m3 or e5m2 operands into F2FP (exact fp8 → f16), two HMMA.16816 and four FADD. The
//! first HMMA takes bytes 0 and 1 of every 32-bit fragment register, the second bytes 2 and 3:
//!
//! ```text
//! t  = T(16,25,23)( products with k mod 4 in {0,1}, 0 )
//! t' = T(16,25,23)( products with k mod 4 in {2,3}, t )
//! d  = RN32( c + t' )                                       f16 accumulators: T(16,25,10 RNE) and HADD2
//! ```
//!
//! Source: SASS of ptxas 13.0; NVIDIA/cutlass issue 1986; outputs of an H200.

use super::mma::{Dest, NAN, NAN_F16, Step, step};
use crate::{Format, tensor::round_to};

/// k of one instruction.
pub const K: usize = 32;

/// One m16n8k32: `c + Σ a[k]·b[k]` over at most 32 products (fewer are padded with zeros), with `half` for the two HMMA.
pub fn instruction(half: Step, fa: Format, fb: Format, a: &[f32], b: &[f32], c: f32) -> f32 {
    assert!(a.len() == b.len() && a.len() <= K, "{} and {} factors in an instruction of {K}", a.len(), b.len());
    // The f16 unit reads the fp8 values widened to f16: subnormal fp8 numbers are normal there.
    let of = |x: &[f32], pick: [usize; 2]| -> Vec<f32> {
        x.iter().enumerate().filter(|(k, _)| pick.contains(&(k % 4))).map(|(_, x)| *x).collect()
    };
    debug_assert!([fa, fb].iter().all(|f| f.bits() == 8));
    let low = step(half, Format::F16, Format::F16, &of(a, [0, 1]), &of(b, [0, 1]), 0.0);
    let high = step(half, Format::F16, Format::F16, &of(a, [2, 3]), &of(b, [2, 3]), low);
    let (sum, nan) = match half.dest {
        Dest::F32 { .. } => (c + high, NAN),
        Dest::F16 => (round_to(Format::F16, c + high), NAN_F16),
    };
    if sum.is_nan() { nan } else { sum }
}
