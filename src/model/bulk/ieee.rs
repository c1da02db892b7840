//! f32 in order, f32 pairwise and exact sums, 32 outputs at a time.

use super::{LANES, Matrix, compiled};

/// K whose 32 columns stay in the first cache: 8 KiB.
const DEPTH: usize = 64;

/// B with a lane a row: `k × 32`, rows beyond `b` zero.
fn turned(b: &Matrix, first: usize) -> Vec<[f32; LANES]> {
    let mut out = vec![[0.0; LANES]; b.k];
    // Some of K at a time: what is written stays in the cache.
    for (part, out) in out.chunks_mut(DEPTH).enumerate() {
        for j in 0..LANES.min(b.rows - first) {
            for (out, x) in out.iter_mut().zip(&b.row(first + j)[part * DEPTH..]) {
                out[j] = *x;
            }
        }
    }
    out
}

/// Runs `kernel(row of A, turned B, sums)` over all tiles of 32 columns, promoted every `promote`.
fn over(promote: usize, a: &Matrix, b: &Matrix, out: &mut [f32], kernel: impl Fn(&[f32], &[[f32; LANES]], &mut [f32; LANES])) {
    for first in (0..b.rows).step_by(LANES) {
        let columns = turned(b, first);
        for i in 0..a.rows {
            let mut main = [0.0f32; LANES];
            let chunks = a.row(i).chunks(promote).zip(columns.chunks(promote)).enumerate();
            for (chunk, (a, b)) in chunks {
                let mut sum = [0.0f32; LANES];
                kernel(a, b, &mut sum);
                // One chunk is the sum itself: a pairwise sum can be −0.
                if chunk == 0 && a.len() == columns.len() {
                    main = sum;
                } else {
                    main.iter_mut().zip(sum).for_each(|(main, sum)| *main += sum);
                }
            }
            let to = b.rows.min(first + LANES);
            out[i * b.rows + first..i * b.rows + to].copy_from_slice(&main[..to - first]);
        }
    }
}

/// A chain of FMA, k ascending from +0.
pub fn sequential(promote: usize, a: &Matrix, b: &Matrix, out: &mut [f32]) {
    over(promote, a, b, out, chain);
}

/// Products rounded to f32, added one after the other, k ascending from +0.
pub fn rounded(a: &Matrix, b: &Matrix, out: &mut [f32]) {
    over(a.k.max(1), a, b, out, products);
}

/// Products rounded to f32, added as a tree that splits after the largest power of two below its size.
pub fn pairwise(promote: usize, a: &Matrix, b: &Matrix, out: &mut [f32]) {
    over(promote, a, b, out, tree);
}

/// Exact sums where f64 holds them: every product a multiple of 2^`unit` and Σ|a||b| below 2^53 of those. Returns whether
/// they do for all elements; if not, `out` is not written.
pub fn exact(promote: usize, a: &Matrix, b: &Matrix, out: &mut [f32]) -> bool {
    let bits = |(low_a, high_a): (i32, i32), (low_b, high_b): (i32, i32)| {
        (high_a + high_b) as f64 + (a.k.max(1) as f64).log2().ceil() - (low_a + low_b) as f64
    };
    let fits = |a: Option<(i32, i32)>, b: Option<(i32, i32)>| a.zip(b).is_some_and(|(a, b)| bits(a, b) <= 53.0);
    // Most formats of 8 bits fit whatever the codes.
    if !fits(widest(a), widest(b)) && !fits(range(a), range(b)) {
        return false;
    }
    over(promote, a, b, out, doubles);
    true
}

/// The [`range`] of all values that a format has up to the largest that there is; `None` where there are others, or none but zeros.
fn widest(m: &Matrix) -> Option<(i32, i32)> {
    let largest = m.values.iter().fold(0u32, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    let lowest = m.format.min_exponent() - m.format.spec().mantissa as i32;
    (m.format.bits() <= 8 && m.format.is_float() && largest.is_normal())
        .then_some((lowest, (largest.to_bits() >> 23) as i32 - 126))
}

/// Exponents: of the lowest set bit of any finite value, and one above the highest.
fn range(m: &Matrix) -> Option<(i32, i32)> {
    let finite = m.values.iter().filter(|x| x.is_finite() && **x != 0.0);
    finite.fold(None, |range, x| {
        let bits = f64::from(x.abs()).to_bits();
        let exponent = (bits >> 52) as i32 - 1023;
        let low = exponent - 52 + (bits | 1 << 52).trailing_zeros() as i32;
        let high = exponent + 1;
        let (l, h) = range.unwrap_or((low, high));
        Some((l.min(low), h.max(high)))
    })
}

compiled! {
    /// sum ← sum + Σ a·b by FMA.
    fn chain(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) => chain_body;
}
#[inline(always)]
fn chain_body(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) {
    let mut s = *sum;
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            s[l] = a.mul_add(b[l], s[l]);
        }
    }
    *sum = s;
}

compiled! {
    /// sum ← sum + Σ RN(a·b).
    fn products(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) => products_body;
}
#[inline(always)]
fn products_body(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) {
    let mut s = *sum;
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            s[l] += a * b[l];
        }
    }
    *sum = s;
}

compiled! {
    /// The tree of products.
    fn tree(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) => tree_body;
}
#[inline(always)]
fn tree_body(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) {
    // Complete trees on a stack, largest first, as the bits of a counter.
    let mut stack = [[0.0f32; LANES]; usize::BITS as usize];
    let mut depth = 0;
    for (k, (a, b)) in a.iter().zip(b).enumerate() {
        let mut node = [0.0f32; LANES];
        for l in 0..LANES {
            node[l] = a * b[l];
        }
        for _ in 0..(k + 1).trailing_zeros() {
            depth -= 1;
            for l in 0..LANES {
                node[l] += stack[depth][l];
            }
        }
        stack[depth] = node;
        depth += 1;
    }
    if depth > 0 {
        let mut node = stack[depth - 1];
        for left in stack[..depth - 1].iter().rev() {
            for l in 0..LANES {
                node[l] += left[l];
            }
        }
        *sum = node;
    }
}

compiled! {
    /// Σ a·b in f64, then one rounding.
    fn doubles(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) => doubles_body;
}
#[inline(always)]
fn doubles_body(a: &[f32], b: &[[f32; LANES]], sum: &mut [f32; LANES]) {
    let mut s = [0.0f64; LANES];
    for (a, b) in a.iter().zip(b) {
        for l in 0..LANES {
            s[l] += f64::from(*a) * f64::from(b[l]);
        }
    }
    for l in 0..LANES {
        // A negative sum that vanishes in f32 is +0, as every exact zero.
        sum[l] = s[l] as f32 + 0.0;
    }
}
