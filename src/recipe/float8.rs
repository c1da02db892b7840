//! torchao float8: training casts (tensorwise, rowwise) and inference.
//!
//! Sources: torchao, `torchao/float8/float8_utils.py`, `torchao/float8/config.py` (recipes),
//! `torchao/quantization/quant_primitives.py` (`_choose_scale_float8`, `_quantize_affine_float8`).

use super::tiles::{self, Nan};
use super::{Quantized, Recipe};
use crate::format::fast::Encoder;
use crate::tensor::round_to;
use crate::{Format, Overflow, QTensor, Result, Tensor};

/// `s = RN32(M / max(f64(amax), 1e-12))`; the division is in f64, a NaN stays NaN. `amax_to_scale` of torchao.
pub fn scale_of_amax(amax: f32, format: Format, pow2: bool) -> f32 {
    let amax = f64::from(amax);
    let clamped = if amax < 1e-12 { 1e-12 } else { amax };
    let scale = (format.max_finite() / clamped) as f32;
    if pow2 { round_down_to_power_of_two(scale) } else { scale }
}

/// `exp2(floor(log2(s)))` in f32 with a correctly rounded log2: 0 stays 0, NaN stays NaN. For the last few f32 below 2^k
/// (the more the larger |k|) log2 rounds to k itself, so the result is 2^k, above s, as in the source.
pub fn round_down_to_power_of_two(s: f32) -> f32 {
    // NaN fails both comparisons with itself and 0.
    if s == 0.0 || !s.is_finite() {
        return s;
    }
    let s = f64::from(s);
    let floor = ((s.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let above = floor + 1;
    // s = 2^above · (1 − u); log2 s = above − u·log2(e)·(1 + u/2 + …), where only a tiny u can reach `above`.
    let u = 1.0 - s / crate::format::exp2i(above);
    let log2 = f64::from(above) - u * std::f64::consts::LOG2_E * (1.0 + u / 2.0);
    let reaches = u < 1e-4 && log2 as f32 == above as f32;
    tiles::exp2(if reaches { above } else { floor })
}

fn quantize(recipe: &Recipe, x: &Tensor, pow2: bool) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let amax = tiles::amax(x, recipe.granularity()?, Nan::Propagates);
    let scale: Vec<f32> = amax.iter().map(|a| scale_of_amax(*a, recipe.format, pow2)).collect();
    let q = tiles::quantized(recipe, x, &scale, scale.iter().map(|s| 1.0 / s).collect())?;
    Ok(Quantized { q, scale: Some(scale), amax })
}

/// f32 scales, `q = saturated(RN32(x·s))`, scale_inv = RN32(1/s). A scale a row is `rowwise_with_gw_hp` as of v0.11 (later versions
/// round to powers of two: [`float8_pow2`]).
pub fn float8(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    quantize(recipe, x, false)
}
/// The same with scales rounded down to powers of two.
pub fn float8_pow2(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    quantize(recipe, x, true)
}

/// `scale_inv = RN_dtype(amax / M)`, no eps; `q = saturated(RN32(f32(x) / scale_inv))`, a division. Zero amax gives 0/0, NaN.
pub fn inference(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let granularity = recipe.granularity()?;
    let amax = tiles::amax(x, granularity, Nan::Propagates);
    let max = recipe.format.max_finite() as f32;
    let scale_inv: Vec<f32> = amax.iter().map(|a| round_to(x.dtype(), a / max)).collect();
    let encoder = Encoder::new(recipe.format, Overflow::Saturate)?;
    let codes = tiles::encode(x, granularity, |tile, part, codes| {
        codes.iter_mut().zip(part).for_each(|(code, v)| *code = encoder.encode(v / scale_inv[tile]));
    });
    let q = QTensor::new(tiles::parts(recipe, x, codes, scale_inv)?)?;
    Ok(Quantized { q, scale: None, amax })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers n ulps below 2^k: log2 is k − 1.4427·n·2⁻²⁴, and f32 are 2⁻²⁴ apart below 1, 2⁻²³ below 2, 2⁻²² below 4. It rounds to k where it lies
    /// nearer to k than to the number before it.
    #[test]
    fn a_few_numbers_below_a_power_of_two_are_rounded_up_to_it() {
        let below = |k: i32, n: u32| round_down_to_power_of_two(f32::from_bits(2f32.powi(k).to_bits() - n));
        for (k, most) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (9, 5)] {
            for n in 0..10 {
                let want = if n <= most { 2f32.powi(k) } else { 2f32.powi(k - 1) };
                assert_eq!(below(k, n), want, "{n} ulps below 2^{k}");
            }
        }
        assert_eq!([0.0, 1.0, 1.5, 3.0, f32::INFINITY].map(round_down_to_power_of_two), [0.0, 1.0, 1.0, 2.0, f32::INFINITY]);
        assert!(round_down_to_power_of_two(f32::NAN).is_nan());
    }
}
