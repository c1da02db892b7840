//! Loops compiled for the vector units that this machine turns out to have, and the encode loop, which is generic. The only unsafe code of
//! the codecs.

use super::fast::{Kind, Lane};

/// Compiles `$name` of `$body` for AVX-512, AVX2 and the plain target, and calls the best the processor has.
macro_rules! best {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? => $body:path;) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,fma")]
                fn wide($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn middle($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                let middle_too = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
                let wide_too = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl");
                // SAFETY: the processor has the features, as asked just before; the bodies are safe Rust.
                if middle_too && wide_too {
                    return unsafe { wide($($arg),*) };
                }
                if middle_too {
                    return unsafe { middle($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}

pub(crate) use best;

/// `codes[i]` = lane(RN32(`src[i]`·`scale`)); the slices are equally long.
pub(super) fn encode(kind: Kind, src: &[f32], scale: f32, codes: &mut [u8]) {
    match kind {
        Kind::Float(lane) => dispatch(lane, src, scale, codes),
        Kind::Integer(lane) => dispatch(lane, src, scale, codes),
        Kind::Exponent(lane) => dispatch(lane, src, scale, codes),
        Kind::Table(lane) => dispatch(lane, src, scale, codes),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FORMATS;
    use crate::format::fast::Encoder;
    use crate::{Format, Overflow};

    /// The loop is one source, compiled up to three times: each compilation this machine can run gives the same codes.
    #[test]
    fn every_vector_unit_gives_the_same_codes() {
        let src: Vec<f32> = (0..=u32::MAX).step_by(100_003).map(f32::from_bits).collect();
        for format in FORMATS.iter().filter(|f| f.bits <= 8).map(|f| f.format) {
            let Encoder(kind) = Encoder::new(format, Overflow::Native).unwrap();
            match kind {
                Kind::Float(lane) => check(lane, format, &src),
                Kind::Integer(lane) => check(lane, format, &src),
                Kind::Exponent(lane) => check(lane, format, &src),
                Kind::Table(lane) => check(lane, format, &src),
            }
        }
    }

    fn check<L: Lane>(lane: L, format: Format, src: &[f32]) {
        let mut want = vec![0; src.len()];
        portable(lane, src, 0.75, &mut want);
        let mut found = vec![0; src.len()];
        dispatch(lane, src, 0.75, &mut found);
        assert_eq!(found, want, "{format}: the widest");
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            found.fill(0);
            // SAFETY: AVX2 was just found.
            unsafe { avx2(lane, src, 0.75, &mut found) };
            assert_eq!(found, want, "{format}: AVX2");
        }
    }

    /// One value at a time or many: the definition's codes. tests/formats_fast.rs asks every f32.
    #[test]
    fn codes_are_the_definitions() {
        let src: Vec<f32> = (0..=u32::MAX).step_by(1_000_003).map(f32::from_bits).collect();
        for format in FORMATS.iter().filter(|f| f.bits <= 8).map(|f| f.format) {
            for overflow in [Overflow::Saturate, Overflow::Native] {
                let encoder = Encoder::new(format, overflow).unwrap();
                let mut codes = vec![0; src.len()];
                encoder.encode_slice(&src, 1.0, &mut codes).unwrap();
                for (x, code) in src.iter().zip(codes) {
                    let want = format.encode(f64::from(*x), crate::Rounding::NearestEven, overflow);
                    assert_eq!(
                        (u32::from(code), u32::from(encoder.encode(*x))),
                        (want, want),
                        "{format} of {x:e}, {overflow:?}"
                    );
                }
            }
        }
    }
}
