//! What all chains of block steps share: factors of one step packed for all rows and 32 columns, promotion, the f32 sums.

use super::{LANES, Matrix};

/// A block step that computes 32 outputs a row at once.
pub trait BlockStep {
    /// Products a step.
    fn width(&self) -> usize;
    /// Where in the packed block the step's product `l` stands.
    fn slot(&self, l: usize) -> usize {
        l
    }
    /// Makes room for `rows × width` factors of A and `width × 32` of B.
    fn reserve(&mut self, rows: usize);
    /// All factors of A are zero from here on; those of B.
    fn clear_a(&mut self);
    fn clear_b(&mut self);
    /// A factor of A at `row · width + slot`; of B at `slot · 32 + column`.
    fn put_a(&mut self, at: usize, x: f32);
    fn put_b(&mut self, at: usize, x: f32);
    /// `chain[row · stride + column] ← step` for every row.
    fn run(&self, stride: usize, chain: &mut [f32]);
}

/// The sums of all rows of `a` with all rows of `b`, promoted every `promote` (K for none).
pub fn sums(step: &mut impl BlockStep, promote: usize, a: &Matrix, b: &Matrix, out: &mut [f32]) {
    // A step never crosses a promotion: the steps of one chunk, the last padded with zeros.
    let w = step.width();
    let mut steps = Vec::new();
    for from in (0..a.k).step_by(promote) {
        let to = a.k.min(from + promote);
        steps.extend((from..to).step_by(w).map(|k| (k..to.min(k + w), k == from)));
    }
    step.reserve(a.rows);
    let (padded, tiles) = (b.rows.next_multiple_of(LANES), b.rows.div_ceil(LANES));
    let mut chain = vec![0.0f32; a.rows * padded];
    let mut main = vec![0.0f32; a.rows * padded];
    for (k, first) in steps {
        if first {
            main.iter_mut().zip(&chain).for_each(|(main, c)| *main += c);
            chain.fill(0.0);
        }
        step.clear_a();
        for i in 0..a.rows {
            for (l, x) in a.row(i)[k.clone()].iter().enumerate() {
                step.put_a(i * w + step.slot(l), *x);
            }
        }
        for t in 0..tiles {
            step.clear_b();
            for j in 0..LANES.min(b.rows - t * LANES) {
                for (l, x) in b.row(t * LANES + j)[k.clone()].iter().enumerate() {
                    step.put_b(step.slot(l) * LANES + j, *x);
                }
            }
            step.run(padded, &mut chain[t * LANES..]);
        }
    }
    for (i, out) in out.chunks_mut(b.rows.max(1)).enumerate() {
        for (j, out) in out.iter_mut().enumerate() {
            // Without promotion main is +0, and so is a chain's zero.
            *out = main[i * padded + j] + chain[i * padded + j];
        }
    }
}
