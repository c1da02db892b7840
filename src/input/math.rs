//! ln, exp and the normal quantile from integer operations and IEEE + − × ÷ √ alone.
//!
//! A library's `ln` differs between machines in the last bit; these do not: every step is correctly rounded by IEEE 754, none
//! is fused, so the same argument gives the same bits on any CPU or GPU that computes f64 without contraction.

use crate::format::exp2i;

/// High part of ln 2 (its low 21 bits are zero, so k·LN2_HIGH is exact for |k| < 2²¹) and what is left.
pub(crate) const LN2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
pub(crate) const LN2_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);

/// Natural logarithm of a positive normal number; error below 2 ulp. x = 2^e·m with m in [√½, √2), s = (m−1)/(m+1),
/// ln m = 2·(s + s³/3 + s⁵/5 + …), |s| < 0.1716.
pub fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut e = (bits >> 52) as i32 - 1023;
    let mut m = f64::from_bits(bits & 0x000F_FFFF_FFFF_FFFF | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        e += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let tail = (1..=11).rev().fold(0.0, |sum, n| (sum + 1.0 / f64::from(2 * n + 1)) * z);
    let e = f64::from(e);
    e * LN2_HIGH + (e * LN2_LOW + (2.0 * s + 2.0 * s * tail))
}

/// e^x for |x| ≤ 700; relative error below 2⁻⁵¹. x = k·ln 2 + r with |r| ≤ ln 2 / 2, Taylor's series to r¹³.
pub fn exp(x: f64) -> f64 {
    let k = (x * std::f64::consts::LOG2_E + 0.5).floor();
    let r = (x - k * LN2_HIGH) - k * LN2_LOW;
    polynomial(&INVERSE_FACTORIALS, r) * exp2i(k as i32)
}

/// 1/n!, n = 0 … 13 (n! is exact in f64, so each is rounded once).
const INVERSE_FACTORIALS: [f64; 14] = {
    let mut c = [1.0; 14];
    let (mut n, mut factorial) = (1, 1.0);
    while n < 14 {
        factorial *= n as f64;
        c[n] = 1.0 / factorial;
        n += 1;
    }
    c
};

/// Σ c\[i\]·x^i by Horner's rule.
fn polynomial(c: &[f64], x: f64) -> f64 {
    c.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// The normal quantile Φ⁻¹(p) for 0 < p < 1; relative error about 1e-15.
/// Source: M. J. Wichura, algorithm AS 241 (PPND16), Applied Statistics 37 (1988) 477–484, with [`ln`] above.
pub fn normal_quantile(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180625 - q * q;
        return q * polynomial(&CENTRE.0, r) / polynomial(&CENTRE.1, r);
    }
    let r = (-ln(if q < 0.0 { p } else { 1.0 - p })).sqrt();
    let z = if r <= 5.0 {
        polynomial(&MIDDLE.0, r - 1.6) / polynomial(&MIDDLE.1, r - 1.6)
    } else {
        polynomial(&TAIL.0, r - 5.0) / polynomial(&TAIL.1, r - 5.0)
    };
    if q < 0.0 { -z } else { z }
}

/// A normal number from 32 random bits: Φ⁻¹((bits + ½)·2⁻³²), so |z| ≤ 6.34.
pub fn normal(bits: u32) -> f64 {
    normal_quantile(unit(bits))
}

/// A number in (0, 1) from 32 random bits: (bits + ½)·2⁻³², exact.
pub fn unit(bits: u32) -> f64 {
    (f64::from(bits) + 0.5) * exp2i(-32)
}

pub(crate) type Rational = ([f64; 8], [f64; 8]);
/// AS 241, |p − ½| ≤ 0.425.
pub(crate) const CENTRE: Rational = (
    [
        3.387_132_872_796_366_5,
        1.331_416_678_917_843_8e2,
        1.971_590_950_306_551_3e3,
        1.373_169_376_550_946e4,
        4.592_195_393_154_987e4,
        6.726_577_092_700_87e4,
        3.343_057_558_358_813e4,
        2.509_080_928_730_122_7e3,
    ],
    [
        1.0,
        4.231_333_070_160_091e1,
        6.871_870_074_920_579e2,
        5.394_196_021_424_751e3,
        2.121_379_430_158_659_7e4,
        3.930_789_580_009_271e4,
        2.872_908_573_572_194_3e4,
        5.226_495_278_852_854e3,
    ],
);
/// AS 241, √(−ln p) ≤ 5.
pub(crate) const MIDDLE: Rational = (
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        2.417_807_251_774_506e-1,
        2.272_384_498_926_918_4e-2,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        6.897_673_349_851e-1,
        1.481_039_764_274_800_8e-1,
        1.519_866_656_361_645_7e-2,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
);
/// AS 241, √(−ln p) > 5.
pub(crate) const TAIL: Rational = (
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        2.965_605_718_285_048_7e-1,
        2.653_218_952_657_612_4e-2,
        1.242_660_947_388_078_4e-3,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        5.998_322_065_558_88e-1,
        1.369_298_809_227_358e-1,
        1.487_536_129_085_061_5e-2,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_7e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::philox::Stream;
    use statrs::distribution::{ContinuousCDF, Normal};

    fn relative(a: f64, b: f64) -> f64 {
        (a - b).abs() / b.abs()
    }

    #[test]
    fn ln_and_exp_agree_with_the_library_to_a_few_ulp() {
        for i in 0..20_000 {
            let [a, b, ..] = Stream::new(5, 0).words(0, i);
            let x = unit(a) * exp2i((b % 200) as i32 - 100);
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1e-3), "ln {x}");
            let y = (unit(a) - 0.5) * 1200.0;
            assert!(relative(exp(y), y.exp()) <= 5e-16, "exp {y}: {} {}", exp(y), y.exp());
        }
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
    }

    /// Against another implementation, at its own accuracy, in all three regions.
    #[test]
    fn quantile_inverts_the_normal_distribution() {
        let n = Normal::standard();
        for e in 1..=33 {
            for k in 0..64 {
                let p = exp2i(-e) * (1.0 - f64::from(k) / 128.0);
                let z = normal_quantile(p);
                assert!(relative(n.cdf(z), p) <= 1e-9, "p {p} z {z} cdf {}", n.cdf(z));
                assert!((z + normal_quantile(1.0 - p)).abs() <= 1e-6, "symmetry at {p}");
            }
        }
        // Tabulated quantiles.
        for (p, z) in [(0.975, 1.959_963_984_540_054), (0.001, -3.090_232_306_167_813_5), (1e-10, -6.361_340_902_404_056)] {
            assert!(relative(normal_quantile(p), z) <= 1e-14, "{p}");
        }
        assert!(normal(0) < -6.33 && normal(u32::MAX) > 6.33);
    }
}
