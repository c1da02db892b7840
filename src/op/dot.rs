//! Dot products of f64 with their magnitudes, many at a time: Σ a·b and Σ |a·b|.
//!
//! The order of additions is one for every machine and every tiling: lane l holds Σ over k ≡ l mod 16, k ascending, no FMA; the lanes are
//! added pairwise. [`dot`] is that written down; [`tile`] computes 4 × 3 of them at once, so that every factor that is loaded is used three
//! or four times.

use super::elementwise::exact_sum;
use crate::format::simd::best;

/// Partial sums of a dot product.
pub const LANES: usize = 16;
/// Rows of A and of B in a tile.
pub const ROWS: usize = 4;
pub const COLS: usize = 3;

/// Σ a·b and Σ |a·b|.
pub type Sums = (f64, f64);

best! {
    /// Σ a·b and Σ |a·b|, without FMA, each lane in order, the lanes added pairwise.
    pub fn dot(a: &[f64], b: &[f64]) -> Sums => lanes;
}

#[inline(always)]
fn lanes(a: &[f64], b: &[f64]) -> Sums {
    let (mut sum, mut size) = ([0.0f64; LANES], [0.0f64; LANES]);
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (rest_a, rest_b) = (a.remainder(), b.remainder());
    for (a, b) in a.zip(b) {
        for l in 0..LANES {
            let p = a[l] * b[l];
            sum[l] += p;
            size[l] += p.abs();
        }
    }
    for (l, (a, b)) in rest_a.iter().zip(rest_b).enumerate() {
        sum[l] += a * b;
        size[l] += (a * b).abs();
    }
    (pairwise(sum), pairwise(size))
}

#[inline(always)]
fn pairwise(mut v: [f64; LANES]) -> f64 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for l in 0..width {
            v[l] += v[l + width];
        }
    }
    v[0]
}

/// [`dot`] of each of four rows with each of three, bit for bit. Panics unless all are equally long.
pub fn tile(a: [&[f64]; ROWS], b: [&[f64]; COLS], out: &mut [[Sums; COLS]; ROWS]) {
    let k = a[0].len();
    assert!(a.iter().chain(&b).all(|x| x.len() == k), "rows of a tile are equally long");
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the feature, as asked just before; the lengths are equal.
        return unsafe { wide::tile(a, b, out) };
    }
    for (a, out) in a.iter().zip(out) {
        for (b, out) in b.iter().zip(out) {
            *out = dot(a, b);
        }
    }
}

/// The tile in AVX-512 by its own instructions: left to itself the compiler puts rows, not lanes, beside each other and gathers them.
#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{COLS, LANES, ROWS, Sums, pairwise};
    use std::arch::x86_64::{
        __m512d, _mm512_abs_pd, _mm512_add_pd, _mm512_loadu_pd, _mm512_mul_pd, _mm512_setzero_pd, _mm512_storeu_pd,
    };

    /// Lanes of one pass: 24 accumulators stay in registers.
    const HALF: usize = LANES / 2;

    /// # Safety
    /// All of `a` and `b` are equally long.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn tile(a: [&[f64]; ROWS], b: [&[f64]; COLS], out: &mut [[Sums; COLS]; ROWS]) {
        let k = a[0].len();
        let whole = k - k % LANES;
        let mut sums = [[[0.0f64; LANES]; COLS]; ROWS];
        let mut sizes = [[[0.0f64; LANES]; COLS]; ROWS];
        for half in [0, HALF] {
            let (mut sum, mut size) = ([[_mm512_setzero_pd(); COLS]; ROWS], [[_mm512_setzero_pd(); COLS]; ROWS]);
            for at in (half..whole).step_by(LANES) {
                // SAFETY: at + HALF <= whole <= k, the length of every slice.
                let load = |x: &[f64]| -> __m512d { unsafe { _mm512_loadu_pd(x.as_ptr().add(at)) } };
                let x = a.map(load);
                for j in 0..COLS {
                    let y = load(b[j]);
                    for i in 0..ROWS {
                        let p = _mm512_mul_pd(x[i], y);
                        sum[i][j] = _mm512_add_pd(sum[i][j], p);
                        size[i][j] = _mm512_add_pd(size[i][j], _mm512_abs_pd(p));
                    }
                }
            }
            for i in 0..ROWS {
                for j in 0..COLS {
                    // SAFETY: HALF lanes from `half` on are inside LANES.
                    unsafe {
                        _mm512_storeu_pd(sums[i][j][half..].as_mut_ptr(), sum[i][j]);
                        _mm512_storeu_pd(sizes[i][j][half..].as_mut_ptr(), size[i][j]);
                    }
                }
            }
        }
        for i in 0..ROWS {
            for j in 0..COLS {
                for (l, (x, y)) in a[i][whole..].iter().zip(&b[j][whole..]).enumerate() {
                    sums[i][j][l] += x * y;
                    sizes[i][j][l] += (x * y).abs();
                }
                out[i][j] = (pairwise(sums[i][j]), pairwise(sizes[i][j]));
            }
        }
    }
}

/// Σ a·b + bias, rounded once.
///
/// The sums are kept with what every rounding lost; where what those may have lost in turn could change the nearest f64, the terms are
/// summed exactly.
pub fn exact(a: &[f64], b: &[f64], bias: f64) -> f64 {
    compensated(a, b, bias).unwrap_or_else(|| exactly(a, b, bias))
}

/// Σ a·b + bias, every product split into two f64 (`fma` gives what its rounding lost), summed exactly.
pub fn exactly(a: &[f64], b: &[f64], bias: f64) -> f64 {
    let products = a.iter().zip(b).flat_map(|(a, b)| {
        let p = a * b;
        // A product that is not finite has no lost part.
        [p, if p.is_finite() { a.mul_add(*b, -p) } else { 0.0 }]
    });
    exact_sum(products.chain([bias]))
}

/// Sum, sum of what was lost, and sum of the magnitudes of what was lost.
struct Kept {
    sum: [f64; LANES],
    lost: [f64; LANES],
    size: [f64; LANES],
}

/// a + b and what its rounding lost (Knuth).
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let z = sum - a;
    (sum, (a - (sum - z)) + (b - z))
}

best! {
    fn keep(a: &[f64], b: &[f64], kept: &mut Kept) => keep_body;
}

#[inline(always)]
fn keep_body(a: &[f64], b: &[f64], kept: &mut Kept) {
    let (mut sum, mut lost, mut size) = ([0.0f64; LANES], [0.0f64; LANES], [0.0f64; LANES]);
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (mut rest_a, mut rest_b) = ([0.0; LANES], [0.0; LANES]);
    rest_a[..a.remainder().len()].copy_from_slice(a.remainder());
    rest_b[..b.remainder().len()].copy_from_slice(b.remainder());
    for (a, b) in a.zip(b).chain([(&rest_a[..], &rest_b[..])]) {
        for l in 0..LANES {
            let p = a[l] * b[l];
            let of_product = a[l].mul_add(b[l], -p);
            let (s, of_sum) = two_sum(sum[l], p);
            sum[l] = s;
            lost[l] += of_product;
            lost[l] += of_sum;
            size[l] += of_product.abs() + of_sum.abs();
        }
    }
    *kept = Kept { sum, lost, size };
}

/// The nearest f64 of Σ a·b + bias, where it is certain.
///
/// With e the errors of the n products and n additions (exact by `fma` and [`two_sum`]), Σ a·b = Σ sum + Σ e. The computed Σ e is off by
/// at most γ of 2n + 40 additions times Σ|e|, and so is the computed Σ|e|: `reach` is twice that. `high` is the nearest f64 of the exact
/// sum if it is that of both ends of what is left.
fn compensated(a: &[f64], b: &[f64], bias: f64) -> Option<f64> {
    let mut kept = Kept { sum: [0.0; LANES], lost: [0.0; LANES], size: [0.0; LANES] };
    keep(a, b, &mut kept);
    let (mut sum, mut lost, mut size) = (bias, 0.0, 0.0);
    for l in 0..LANES {
        let (s, e) = two_sum(sum, kept.sum[l]);
        sum = s;
        lost += kept.lost[l] + e;
        size += kept.size[l] + e.abs();
    }
    if size == 0.0 {
        // Nothing was lost.
        return Some(sum);
    }
    let (high, low) = two_sum(sum, lost);
    let reach = (2.0 * a.len() as f64 + 100.0) * f64::EPSILON * size;
    (high.is_finite() && high + (low + reach) == high && high + (low - reach) == high).then_some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::philox::Stream;

    fn values(n: usize, seed: u64, spread: i32) -> Vec<f64> {
        let stream = Stream::new(seed, 9);
        let one = |i: usize| {
            let w = stream.words(0, i as u64);
            f64::from(w[0] as i32)
                * 2f64.powi((w[1] % 64) as i32 * spread / 64)
                * if w[2].is_multiple_of(9) { 0.0 } else { 1.0 }
        };
        (0..n).map(one).collect()
    }

    #[test]
    fn compilations_agree() {
        let x: Vec<f64> = (0..1003).map(|i| (f64::from(i) * 0.7).sin()).collect();
        let y: Vec<f64> = (0..1003).map(|i| (f64::from(i) * 0.3).cos()).collect();
        assert_eq!(dot(&x, &y), lanes(&x, &y));
        let exact = exactly(&x, &y, 0.0);
        assert!((dot(&x, &y).0 - exact).abs() < 1007.0 * f64::EPSILON / 2.0 * dot(&x, &y).1);
    }

    #[test]
    fn a_tile_is_its_dots_at_every_length() {
        for k in (0..70).chain([255, 256, 1000]) {
            let a: Vec<Vec<f64>> = (0..ROWS).map(|i| values(k, i as u64, 20)).collect();
            let b: Vec<Vec<f64>> = (0..COLS).map(|j| values(k, 50 + j as u64, 20)).collect();
            let mut best = [[(0.0, 0.0); COLS]; ROWS];
            tile([&a[0], &a[1], &a[2], &a[3]], [&b[0], &b[1], &b[2]], &mut best);
            for i in 0..ROWS {
                for j in 0..COLS {
                    assert_eq!(best[i][j], dot(&a[i], &b[j]), "K = {k}, ({i}, {j})");
                }
            }
        }
    }

    #[test]
    fn compensated_sums_are_the_exact_ones_or_none() {
        let (mut certain, mut all) = (0, 0);
        for seed in 0..400u64 {
            let n = [1, 2, 15, 16, 17, 100, 333][seed as usize % 7];
            let (mut a, mut b) = (values(n, seed, (seed % 60) as i32), values(n, 1000 + seed, 7));
            // Pairs that cancel, all but a rest.
            if seed % 3 == 0 {
                (a, b) = ([&a[..], &a].concat(), [&b[..], &b.iter().map(|x| -x).collect::<Vec<_>>()].concat());
                a.extend(values(3, 77 + seed, 0).iter().map(|x| x * 2f64.powi(-60)));
                b.extend([1.0, 3.0, -1.0]);
            }
            let bias = if seed % 2 == 0 { 0.0 } else { 0.1 };
            let want = exactly(&a, &b, bias);
            all += 1;
            if let Some(got) = compensated(&a, &b, bias) {
                certain += 1;
                assert_eq!(got.to_bits(), want.to_bits(), "seed {seed}");
            }
            assert_eq!(exact(&a, &b, bias).to_bits(), want.to_bits(), "seed {seed}");
        }
        assert!(certain > all / 2, "{certain} of {all}");
    }

    /// A tie that only the exact sum settles: none is certain, and the exact one is taken.
    #[test]
    fn a_tie_is_left_to_the_exact_sum() {
        let tiny = 2f64.powi(-53);
        for below in [0.0, 2f64.powi(-200), -(2f64.powi(-200))] {
            let (a, b) = ([1.0, tiny, below], [1.0, 1.0, 1.0]);
            assert_eq!(exact(&a, &b, 0.0), exactly(&a, &b, 0.0));
        }
        assert_eq!(exact(&[1.0, f64::INFINITY], &[1.0, 1.0], 0.0), f64::INFINITY);
        assert!(exact(&[1.0, f64::NAN], &[1.0, 1.0], 0.0).is_nan());
    }

    /// 1 + 2⁻²⁷ times 1 + 3·2⁻²⁸ is 3·2⁻⁵⁵ more than its f64, and 3·2⁻⁵⁵ beside it is lost in the sum: together they are more than half a step.
    #[test]
    fn what_a_product_and_a_sum_lose_is_added() {
        let (mut a, mut b) = (vec![0.0; LANES + 1], vec![1.0; LANES + 1]);
        (a[0], b[0], a[LANES]) = (1.0 + 2f64.powi(-27), 1.0 + 3.0 * 2f64.powi(-28), 3.0 * 2f64.powi(-55));
        let next = a[0] * b[0] + f64::EPSILON;
        assert_eq!((exactly(&a, &b, 0.0), compensated(&a, &b, 0.0)), (next, Some(next)));
    }
}
