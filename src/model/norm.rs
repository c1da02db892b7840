//! LayerNorm and RMSNorm of one row in f32, in the order of TransformerEngine's forward kernels with one warp a row: 32 lanes
//! each sum every 32nd element in order, then the lanes are added as a binary tree.

use super::act::Real;

/// Lanes of a row sum.
pub const LANES: usize = 32;

/// Length of the longest chain of additions of [`lane_sum`] over `n` elements: ⌈n/32⌉ in a lane and 5 in the tree.
pub fn depth(n: usize) -> usize {
    n.div_ceil(LANES) + 5
}

/// Σ in f32: lane l adds elements l, l+32, …; then lane l takes lane l+16, then l+8, l+4, l+2, l+1.
pub fn lane_sum(values: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (i, v) in values.enumerate() {
        lanes[i % LANES] += v;
    }
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// gamma as it multiplies: plus one, in f32, when zero-centred.
pub fn weight<R: Real>(gamma: R, zero_centered: bool) -> R {
    if zero_centered { gamma + R::exact(1.0) } else { gamma }
}

/// Mean and rsigma of a LayerNorm row: μ = Σx·rn, var = Σ(x−μ)²·rn (two passes), rs = 1/√(var+ε), with rn = RN32(1/N).
pub fn layernorm_stats(x: &[f32], eps: f32) -> (f32, f32) {
    let rn = 1.0 / x.len() as f32;
    let mean = lane_sum(x.iter().copied()) * rn;
    let var = lane_sum(x.iter().map(|x| (x - mean) * (x - mean))) * rn;
    (mean, 1.0 / (var + eps).sqrt())
}

/// g·(rs·(x−μ)) + β
pub fn layernorm_value<R: Real>(x: f32, mean: R, rsigma: R, weight: R, beta: Option<R>) -> R {
    let y = weight * (rsigma * (R::exact(x) - mean));
    beta.map_or(y, |beta| y + beta)
}

/// rsigma of an RMSNorm row: rs = 1/√(rn·m2 + μ² + ε) with μ = Σx·rn and m2 = Σ(x−μ)²: the mean square by mean and variance.
pub fn rmsnorm_rsigma(x: &[f32], eps: f32) -> f32 {
    let rn = 1.0 / x.len() as f32;
    let mean = lane_sum(x.iter().copied()) * rn;
    let m2 = lane_sum(x.iter().map(|x| (x - mean) * (x - mean)));
    1.0 / (rn * m2 + mean * mean + eps).sqrt()
}

/// g·(rs·x)
pub fn rmsnorm_value<R: Real>(x: f32, rsigma: R, weight: R) -> R {
    weight * (rsigma * R::exact(x))
}
