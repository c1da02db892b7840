//! Half-quadratic quantization (HQQ): uint4 with a zero point fitted by a proximal iteration.
//!
//! Source: torchao, `torchao/quantization/quant_primitives.py` (`_choose_qparams_and_quantize_affine_hqq`), from
//! dropbox/hqq. **Not bit-portable there**: CUDA runs the iteration in f16, and `pow` and the order of `mean` differ by
//! device. Here it is f32 with f64 sums in row order and a power function of basic operations: the same bits everywhere, the
//! same algorithm, not the same bits as any torchao build.

use super::tiles;
use super::{Quantized, Recipe, affine};
use crate::{Result, Tensor, Zero};

/// Iterations at most.
pub const ITERATIONS: usize = 20;

/// ```text
/// s = min(15/(max − min), 2e4), z = round(−min·s)                       per group
/// ≤ 20 times: Wq = clamp(round(W·s + z), 0, 15); Wr = (Wq − z)/s
///             We = shrink(W − Wr, β), β = 10·1.01^i; z = mean(Wq − (W − We)·s) of the group
///             stop unless mean|W − Wr| of the tensor fell
/// q = clamp(round(W·s + z), 0, 15); scale_inv = 1/s; zero = (8 − z)·scale_inv, mid 8
/// ```
pub fn hqq(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let granularity = recipe.granularity()?;
    let (_, group) = granularity.tile(x.rows(), x.cols());
    let groups: Vec<&[f32]> = (0..x.rows()).flat_map(|i| x.row(i).chunks(group)).collect();
    let (scale, mut zero): (Vec<f32>, Vec<f32>) = tiles::min_max(x, granularity)
        .into_iter()
        .map(|(min, max)| {
            let scale = 15.0 / (max - min);
            // torch.clamp(max=2e4): NaN stays.
            let scale = if scale > 2e4 { 2e4 } else { scale };
            (scale, (-min * scale).round_ties_even())
        })
        .unzip();
    let (mut beta, mut best) = (10f32, 1e4f64);
    for _ in 0..ITERATIONS {
        let mut error = 0f64;
        for (tile, group) in groups.iter().enumerate() {
            let (s, z) = (scale[tile], zero[tile]);
            let mut sum = 0f64;
            for w in *group {
                let q = code(*w, s, z);
                let residual = w - (q - z) / s;
                sum += f64::from(q - (w - shrink(residual, beta)) * s);
                error += f64::from(residual.abs());
            }
            zero[tile] = (sum / group.len() as f64) as f32;
        }
        let error = error / (x.rows() * x.cols()) as f64;
        beta *= 1.01;
        if !(error < best) {
            break;
        }
        best = error;
    }
    let codes = tiles::encode(x, granularity, |tile, part, codes| {
        for (c, w) in codes.iter_mut().zip(part) {
            *c = code(*w, scale[tile], zero[tile]) as u8;
        }
    });
    let scale_inv: Vec<f32> = scale.iter().map(|s| 1.0 / s).collect();
    let zero = zero.iter().zip(&scale_inv).map(|(z, s)| (8.0 - z) * s).collect();
    affine::finish(recipe, x, codes, scale_inv, Zero::Additive { zero, mid: recipe.spec()?.mid })
}

fn code(w: f32, s: f32, z: f32) -> f32 {
    (w * s + z).round_ties_even().clamp(0.0, 15.0)
}

/// `sign(x)·max(|x| − |x|^(p−1)/β, 0)` with p = 0.7; 0 at 0.
fn shrink(x: f32, beta: f32) -> f32 {
    let threshold = 1.0 / beta;
    // Also without the power, which is at least 1 below 1: most residuals end here.
    if x.abs() <= threshold.min(1.0) {
        return 0.0;
    }
    let kept = x.abs() - threshold * pow_minus_3_tenths(x.abs());
    if kept > 0.0 { kept.copysign(x) } else { 0.0 }
}

/// 2^(n/10), n = 0 … 9.
#[allow(clippy::approx_constant)]
const TENTHS: [f64; 10] = [
    1.0,
    1.0717734625362931,
    1.148698354997035,
    1.2311444133449163,
    1.3195079107728942,
    1.4142135623730951,
    1.5157165665103982,
    1.6245047927124712,
    1.7411011265922482,
    1.8660659830736148,
];

/// x^-0.3 of a positive x by +, −, ×, ÷ only: x = m·2^e; m^-0.3 by Newton's method on y^-10 = m³, 2^(−0.3e) by a table.
/// Accurate to f32; Inf gives 0, NaN stays.
fn pow_minus_3_tenths(x: f32) -> f32 {
    if !x.is_finite() {
        return 1.0 / x;
    }
    let bits = f64::from(x).to_bits();
    let e = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let m = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    let cube = m * m * m;
    let mut y = 0.9f64;
    for _ in 0..8 {
        let y2 = y * y;
        let y5 = y2 * y2 * y;
        y += y * (1.0 - cube * (y5 * y5)) / 10.0;
    }
    let tenths = -3 * e;
    (y * TENTHS[tenths.rem_euclid(10) as usize] * crate::format::exp2i(tenths.div_euclid(10))) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_is_the_standard_librarys_to_f32() {
        for x in [1e-38f32, 1e-20, 3e-5, 0.1, 0.5, 0.99, 1.0, 1.7, 2.0, 5.0, 1e6, 3e38] {
            let want = f64::from(x).powf(-0.3);
            let got = f64::from(pow_minus_3_tenths(x));
            assert!((got / want - 1.0).abs() <= 1e-7, "{x}: {got} {want}");
        }
    }

    /// The iteration as it is documented, one group after the other, on weights of all sizes: it ends where the mean error of the tensor rises.
    #[test]
    fn zero_points_are_those_of_the_iteration_at_any_size() {
        // Of 384 weights of these sizes the errors add up to a little more than 384 at first, or five times that, and to a little less at last.
        for size in [0.01f32, 1.0, 8.62, 42.97, 3000.0] {
            let data = (0..6 * 64)
                .map(|at| size * (((at * 7919 + 31 * (at / 64)) % 1009) as f32 / 500.0 - 1.0) * (1.0 + (at / 64) as f32))
                .collect();
            let x = Tensor::rounded(crate::Format::F32, 6, 64, data).unwrap();
            let found = "hqq:uint4:g32".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
            let groups: Vec<&[f32]> = x.data().chunks(32).collect();
            let scale: Vec<f32> = groups
                .iter()
                .map(|g| {
                    (15.0 / (g.iter().fold(f32::MIN, |m, w| m.max(*w)) - g.iter().fold(f32::MAX, |m, w| m.min(*w)))).min(2e4)
                })
                .collect();
            let least = |g: &[f32]| g.iter().fold(f32::MAX, |m, w| m.min(*w));
            let mut zero: Vec<f32> = groups.iter().zip(&scale).map(|(g, s)| (-least(g) * s).round_ties_even()).collect();
            let mut errors: Vec<f64> = Vec::new();
            for i in 0..ITERATIONS {
                let mut beta = 10f32;
                (0..i).for_each(|_| beta *= 1.01);
                let mut off = Vec::new();
                for ((g, s), z) in groups.iter().zip(&scale).zip(&mut zero) {
                    let codes: Vec<f32> = g.iter().map(|w| (w * s + *z).round_ties_even().clamp(0.0, 15.0)).collect();
                    let rest: Vec<f32> = g.iter().zip(&codes).map(|(w, q)| w - (q - *z) / s).collect();
                    let kept = g.iter().zip(&codes).zip(&rest).map(|((w, q), r)| f64::from(q - (w - shrink(*r, beta)) * s));
                    *z = (kept.sum::<f64>() / 32.0) as f32;
                    off.extend(rest.iter().map(|r| f64::from(r.abs())));
                }
                errors.push(off.iter().sum::<f64>() / off.len() as f64);
                if errors[i] >= if i == 0 { 1e4 } else { errors[i - 1] } {
                    break;
                }
            }
            let Zero::Additive { zero: made, .. } = found.zero() else { panic!("zero points of values") };
            let right: Vec<f32> = zero.iter().zip(&scale).map(|(z, s)| (8.0 - z) * (1.0 / s)).collect();
            assert_eq!(*made, right, "{size}: {errors:?}");
        }
    }
}
