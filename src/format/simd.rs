//! The encode loop, compiled for the vector units that this machine turns out to have. The only unsafe code of the codecs.

use super::fast::{Kind, Lane};

/// `codes[i]` = lane(RN32(`src[i]`·`scale`)); the slices are equally long.
pub(super) fn encode(kind: Kind, src: &[f32], scale: f32, codes: &mut [u8]) {
    match kind {
        Kind::Float(lane) => dispatch(lane, src, scale, codes),
        Kind::Integer(lane) => dispatch(lane, src, scale, codes),
        Kind::Exponent(lane) => dispatch(lane, src, scale, codes),
    }
}

#[inline]
fn dispatch<L: Lane>(lane: L, src: &[f32], scale: f32, codes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the features that the function is compiled for were just found on this machine.
            return unsafe { avx512(lane, src, scale, codes) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(lane, src, scale, codes) };
        }
    }
    portable(lane, src, scale, codes);
}

/// The loop itself; the compiler vectorises it for the features of the function it is inlined into.
#[inline(always)]
fn portable<L: Lane>(lane: L, src: &[f32], scale: f32, codes: &mut [u8]) {
    for (c, x) in codes.iter_mut().zip(src) {
        *c = lane.code(*x * scale);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn avx512<L: Lane>(lane: L, src: &[f32], scale: f32, codes: &mut [u8]) {
    portable(lane, src, scale, codes);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Lane>(lane: L, src: &[f32], scale: f32, codes: &mut [u8]) {
    portable(lane, src, scale, codes);
}
