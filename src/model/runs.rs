//! The largest sum of any run of consecutive products: what bounds the partial sums of every order that keeps to that of K.
//!
//! A sum over k in i..j is the difference of two prefixes, so every one is at most `R = max P − min P` over the prefixes `P_0 = 0, …, P_K`. Any tree whose
//! nodes add neighbouring runs (one chain, a tree, promotion, splits in contiguous parts) has partial sums of at most R. For signs at random R grows
//! with √K where Σ|ab| grows with K. Prefixes are f64 sums, off by at most `K·2^-53·Σ|ab|` each.

use super::bulk::compiled;
use crate::parallel;

/// Columns at a time.
const LANES: usize = 16;

/// Multiply-adds up to which the pass is made; it costs about what the f64 reference costs.
pub const MOST: usize = 1 << 28;

compiled! {
    /// max P − min P, ΣP and Σ|P| of one row of a with a panel of b: `LANES` columns, k by k.
    fn range(a: &[f32], panel: &[f32], out: &mut [[f64; LANES]; 3]) => range_body;
}
#[inline(always)]
fn range_body(a: &[f32], panel: &[f32], out: &mut [[f64; LANES]; 3]) {
    let (mut sum, mut high, mut low, mut size) = ([0.0f64; LANES], [0.0f64; LANES], [0.0f64; LANES], [0.0f64; LANES]);
    for (a, b) in a.iter().zip(panel.chunks_exact(LANES)) {
        let a = f64::from(*a);
        for l in 0..LANES {
            let p = a * f64::from(b[l]);
            sum[l] += p;
            size[l] += p.abs();
            high[l] = if sum[l] > high[l] { sum[l] } else { high[l] };
            low[l] = if sum[l] < low[l] { sum[l] } else { low[l] };
        }
    }
    let range = std::array::from_fn(|l| high[l] - low[l]);
    *out = [range, sum, size];
}

/// What the products of every pair of a row of a and a row of b come to, `[rows of a, rows of b]`, in f64 in the order of K.
pub struct Runs {
    /// R.
    pub range: Vec<f64>,
    pub sums: Vec<f64>,
    /// Of the magnitudes.
    pub sizes: Vec<f64>,
}

/// Of row-major a and b with `k` factors a row.
pub fn runs(a: &[f32], b: &[f32], k: usize) -> Runs {
    joined(a, b, k, |panels, panel| parallel::collect(panels, panel))
}

/// The same on one thread, for a small part of a product.
pub fn runs_of_tile(a: &[f32], b: &[f32], k: usize) -> Runs {
    joined(a, b, k, |panels, panel| (0..panels).map(panel).collect())
}

/// What is found of a panel: of each row of a.
type OfPanel = Vec<[[f64; LANES]; 3]>;

fn joined(a: &[f32], b: &[f32], k: usize, all: impl Fn(usize, &(dyn Fn(usize) -> OfPanel + Sync)) -> Vec<OfPanel>) -> Runs {
    let (m, n) = (a.len() / k.max(1), b.len() / k.max(1));
    let panel = |at: usize| {
        let first = at * LANES;
        let mut panel = vec![0.0f32; k * LANES];
        for l in 0..LANES.min(n - first) {
            b[(first + l) * k..(first + l + 1) * k].iter().enumerate().for_each(|(x, b)| panel[x * LANES + l] = *b);
        }
        let mut all = vec![[[0.0; LANES]; 3]; m];
        a.chunks_exact(k).zip(&mut all).for_each(|(row, out)| range(row, &panel, out));
        all
    };
    let panels = all(n.div_ceil(LANES), &panel);
    let all = |what: usize| (0..m * n).map(|at| panels[at % n / LANES][at / n][what][at % n % LANES]).collect();
    Runs { range: all(0), sums: all(1), sizes: all(2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn every_run_is_inside_and_one_is_there() {
        let mut rng = StdRng::seed_from_u64(1);
        for (m, n, k) in [(1, 1, 1), (3, 17, 40), (2, 33, 7)] {
            let mut draw = |len: usize| -> Vec<f32> { (0..len).map(|_| rng.random_range(-8i32..8) as f32 / 4.0).collect() };
            let (a, b) = (draw(m * k), draw(n * k));
            let Runs { range: found, sums, sizes } = runs(&a, &b, k);
            let here = runs_of_tile(&a, &b, k);
            assert_eq!([&here.range, &here.sums, &here.sizes], [&found, &sums, &sizes]);
            for i in 0..m {
                for j in 0..n {
                    let p = |x: usize| f64::from(a[i * k + x]) * f64::from(b[j * k + x]);
                    let mut largest = 0.0f64;
                    for from in 0..k {
                        let mut sum = 0.0;
                        for to in from..k {
                            sum += p(to);
                            largest = largest.max(f64::abs(sum));
                        }
                    }
                    assert_eq!(found[i * n + j], largest, "{m}×{n}×{k} at {i}, {j}");
                    // Whole sixteenths: exact in any order.
                    assert_eq!(sums[i * n + j], (0..k).map(p).sum::<f64>(), "{m}×{n}×{k} at {i}, {j}");
                    assert_eq!(sizes[i * n + j], (0..k).map(|x| p(x).abs()).sum::<f64>(), "{m}×{n}×{k} at {i}, {j}");
                }
            }
        }
    }
}
