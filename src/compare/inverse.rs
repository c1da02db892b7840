//! scale · scale_inv = 1: what a scale_inv may be beside the scale that codes were made by.
//!
//! Both come from one quotient r = M/amax: `scale = RN32(r)`, and scale_inv is `RN(1/scale)`, `RN(amax/M)` or `RN(amax·RN(1/M))`. With δ one
//! rounding to f32 (|δ| ≤ u = 2⁻²⁴, and half a subnormal quantum h = 2⁻¹⁵⁰ below 2⁻¹²⁶) and δ' one of scale_inv's own format (u', h'),
//!
//! ```text
//! scale = r(1 + δ₁) ± h      scale_inv = (1/r)(1 + δ₂)(1 + δ₃') ± h'
//! r ∈ [(scale − h)/(1 + u), (scale + h)/(1 − u)]
//! scale_inv ∈ [(1 − u)(1 − u')/r_high − h', (1 + u)(1 + u')/r_low + h']
//! ```
//!
//! Nothing further from 1/scale is the scale that the codes were made by. A scale of 0, Inf or NaN has the inverse Inf, 0 or NaN.

use crate::Format;

/// What scale_inv may be beside this scale; see the module. Both NaN where it has to be NaN.
pub fn inverses(scale: f32, format: Format) -> (f64, f64) {
    let exact = f64::from(1.0 / scale);
    if scale == 0.0 || !scale.is_finite() {
        return (exact, exact);
    }
    let (u, h) = (2f64.powi(-24), 2f64.powi(-150));
    let own = |f: Format| (0.5 * f.ulp(1.0), 0.5 * f.ulp(0.0));
    // A scale_inv of 8 bits is a power of two or a short number by its recipe: no more than f32's rounding is known of it.
    let (u2, h2) = if matches!(format, Format::F16 | Format::Bf16) { own(format) } else { own(Format::F32) };
    let s = f64::from(scale.abs());
    let (low, high) = ((s - h) / (1.0 + u), (s + h) / (1.0 - u));
    let near = ((1.0 - u) * (1.0 - u2) / high - h2, (1.0 + u) * (1.0 + u2) / low + h2);
    // The ends are f64: outward by an ulp each. A value beyond the range of f32 is Inf there.
    let end = |x: f64| if x > f64::from(f32::MAX) { f64::INFINITY } else { x };
    let (low, high) = (near.0.next_down(), end(near.1.next_up()));
    if scale > 0.0 { (low, high) } else { (-high, -low) }
}

/// Whether a scale and a scale_inv that is kept in `format` are inverse to each other to rounding.
pub fn inverse(scale: f32, scale_inv: f32, format: Format) -> bool {
    let (low, high) = inverses(scale, format);
    let found = f64::from(scale_inv);
    (low.is_nan() && found.is_nan()) || (low <= found && found <= high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way in which kernels take the inverse is inside, at every magnitude; an ulp more than those is not.
    #[test]
    fn each_way_to_the_inverse_is_right_and_nothing_else() {
        let mut word = 1u32;
        for i in 0..200_000u32 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let amax = f32::from_bits(word & 0x7fff_ffff);
            let m = [448.0f32, 57344.0, 127.0, 6.0][(i % 4) as usize];
            let scale = m / amax;
            if !amax.is_finite() || scale == 0.0 || !scale.is_finite() {
                continue;
            }
            for inv in [1.0 / scale, amax / m, amax * (1.0 / m)] {
                assert!(inverse(scale, inv, Format::F32), "{amax:e}: {scale:e} and {inv:e}");
                assert!(inverse(-scale, -inv, Format::F32) && !inverse(scale, -inv, Format::F32) || inv == 0.0);
            }
            let half = crate::tensor::round_to(Format::Bf16, amax / m);
            assert!(inverse(scale, half, Format::Bf16), "{amax:e}: {scale:e} and {half:e}");
            if amax / m > 1e-30 && amax / m < 1e30 {
                for wrong in [0.5, 2.0, 1.0 + 5.0 * f32::EPSILON, 1.0 - 5.0 * f32::EPSILON] {
                    assert!(!inverse(scale, wrong / scale, Format::F32), "{wrong}: {scale:e}");
                }
            }
        }
        assert!(inverse(0.0, f32::INFINITY, Format::F32) && inverse(f32::NAN, f32::NAN, Format::F32));
        assert!(
            !inverse(1.0, f32::NAN, Format::F32) && !inverse(f32::NAN, 1.0, Format::F32) && !inverse(0.0, 1.0, Format::F32)
        );
        // The reciprocal of f32's largest number is subnormal.
        assert!(inverse(f32::MAX, f32::from_bits(0x0020_0000), Format::F32));
    }

    /// A scale that is subnormal is off by up to half of the smallest number, which is more than a rounding.
    #[test]
    fn the_inverse_of_a_subnormal_scale_may_be_far() {
        let mut word = 7u32;
        let mut subnormal = 0;
        for _ in 0..20_000 {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let amax = 1e38 * (1.0 + 2.3 * (word as f32 / u32::MAX as f32));
            for m in [1.0f32, 0.5] {
                let scale = m / amax;
                subnormal += usize::from(scale < f32::MIN_POSITIVE);
                for inv in [1.0 / scale, amax / m].into_iter().filter(|x| x.is_finite()) {
                    assert!(inverse(scale, inv, Format::F32), "{amax:e} {m}: {scale:e} and {inv:e}");
                }
            }
        }
        assert!(subnormal > 20_000);
    }
}
