//! e^x, tanh x and erf x for f32 in basic IEEE operations on f64 only, so that they have the same bits on every machine.
//!
//! All are evaluated in f64 with a relative error below 2^-36 and rounded once to f32: the result is within 0.51 ulp, and so
//! is one of the answers of a libm that promises 1 or 2 ulp (CUDA's `expf`, `tanhf` and `erff` promise 2, CUDA C++ Programming
//! Guide, "Mathematical Functions", single precision).

/// 1/i! for i = 0 … 11.
const INVERSE_FACTORIAL: [f64; 12] = [
    1.0,
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5040.0,
    1.0 / 40320.0,
    1.0 / 362880.0,
    1.0 / 3628800.0,
    1.0 / 39916800.0,
];

/// e^x to 2^-45 for |x| < 700: x = n·ln2 + r with ln2 in two parts, |r| ≤ ln2/2; the Taylor series of e^r to r^11 (the first
/// term left out is below 2^-47); times 2^n. ([`crate::input`] has one to 2^-51; this one is four times as fast.)
fn exp_f64(x: f64) -> f64 {
    const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000); // ln 2 to 33 bits: n·LN2_HIGH is exact
    const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76); // ln 2 − LN2_HIGH
    let n = (x * std::f64::consts::LOG2_E).round_ties_even();
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let series = INVERSE_FACTORIAL.iter().rev().fold(0.0, |sum, c| sum * r + c);
    series * f64::from_bits(((n as i64 + 1023) as u64) << 52)
}

/// e^x; 0 below the smallest subnormal, Inf above the largest finite, NaN for NaN.
pub fn exp(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    // e^-105 < 2^-151 rounds to 0, e^90 > 2^128 rounds to Inf: the clamp changes no result.
    exp_f64(f64::from(x).clamp(-105.0, 90.0)) as f32
}

/// tanh x: x − x³/3 + 2x⁵/15 for |x| < 2^-6 (the next term is below 2^-40·x), else (e^2|x| − 1)/(e^2|x| + 1) with the sign
/// of x (e^2|x| − 1 > 2^-6 has a relative error below 2^-38); ±1 from 20 on.
pub fn tanh(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    let (x, magnitude) = (f64::from(x), f64::from(x).abs());
    if magnitude < 0.015625 {
        let square = x * x;
        return (x * (1.0 + square * (square * (2.0 / 15.0 - square * (17.0 / 315.0)) - 1.0 / 3.0))) as f32;
    }
    let e = exp_f64(2.0 * magnitude.min(20.0));
    ((e - 1.0) / (e + 1.0)).copysign(x) as f32
}

/// erf x: FreeBSD's `erf` as the `libm` crate has it, within an ulp of f64, rounded to f32.
pub fn erf(x: f32) -> f32 {
    ::libm::erf(f64::from(x)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 61st f32 pattern against the f64 libm of the platform, rounded to f32: within half an f32 ulp and a bit.
    fn check(ours: fn(f32) -> f32, reference: fn(f64) -> f64) -> f64 {
        let mut worst = 0.0f64;
        for bits in (0..=u32::MAX).step_by(61 * 16 + 1) {
            let x = f32::from_bits(bits);
            if x.is_nan() {
                assert!(ours(x).is_nan());
                continue;
            }
            let (got, want) = (ours(x), reference(f64::from(x)));
            if got.is_infinite() || want.abs() > f64::from(f32::MAX) {
                assert_eq!(got, want as f32, "{x}");
                continue;
            }
            let ulp = crate::Format::F32.ulp(want);
            let err = (f64::from(got) - want).abs() / ulp;
            assert!(err <= 0.51, "{x}: {got} is {err} ulp from {want}");
            worst = worst.max(err);
        }
        worst
    }

    #[test]
    fn exp_is_within_half_an_ulp_of_f64() {
        println!("exp: {} ulp", check(exp, f64::exp));
    }

    #[test]
    fn tanh_is_within_half_an_ulp_of_f64() {
        println!("tanh: {} ulp", check(tanh, f64::tanh));
    }

    #[test]
    fn erf_is_within_half_an_ulp_of_f64() {
        println!("erf: {} ulp", check(erf, statrs::function::erf::erf));
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!((exp(0.0), exp(-0.0), exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (1.0, 1.0, f32::INFINITY, 0.0));
        assert_eq!((exp(88.73), exp(-104.0)), (f32::INFINITY, 0.0));
        assert_eq!((tanh(f32::INFINITY), tanh(-9.5), tanh(-0.0).to_bits()), (1.0, -1.0, (-0.0f32).to_bits()));
        // Independent values, by hand from the series: e = 2.718281828459045…, tanh 1 = 0.761594155955764888…
        assert_eq!((exp(1.0), tanh(1.0), tanh(0.5)), (2.718_281_7, 0.761_594_2, 0.462_117_16));
        // erf ½ = 0.520499877813046…, erf 1 = 0.842700792949714…; from 3.92 on 1 is nearest.
        assert_eq!((erf(0.5), erf(-1.0), erf(4.0), erf(-0.0).to_bits()), (0.520_499_9, -0.842_700_8, 1.0, (-0.0f32).to_bits()));
    }

    /// Its polynomial is the nearest f32 nearly everywhere: the next term is below 2^-40.
    #[test]
    fn a_small_tanh_is_rounded_rightly() {
        let xs = || (0..20_000u32).map(|n| f32::from_bits(0x3b80_0000 + n * 800)).filter(|x| *x < 0.015625);
        let far = xs().filter(|x| tanh(*x) != f64::from(*x).tanh() as f32).count();
        assert!(xs().count() > 15_000 && far <= 2, "{far}");
    }
}
