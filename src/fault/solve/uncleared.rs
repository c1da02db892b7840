//! An accumulator of one block of K that still holds the block before: its raw sum meets the next block's scales as well.
//!
//! ```text
//! S(g) = Σ_{k in g} A(i, k)·B(j, k) / s(i, j, g)          the sum of block g in units of codes; s the product of both scales there
//! out  = Σ_g s(g)·S(g) + s(h)·S(h − 1)                    before block h alone;   + Σ_{f < g} s(g)·S(f): before none
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Blocks of K, at most.
const BLOCKS: usize = 256;

/// Raw sums of every element, block by block.
struct Raw {
    a: Arc<Vec<f64>>,
    b: Arc<Vec<f64>>,
    /// The scale of every row and block.
    of_a: Vec<f64>,
    of_b: Vec<f64>,
    k: usize,
    every: usize,
}

impl Raw {
    fn of(s: &System) -> Option<Self> {
        let every = [&s.a, &s.b].into_iter().filter(|g| g.q.is_some() && g.grid.1 > 1).map(|g| g.tile.1).min()?;
        let fits = |g: &Given| g.q.is_none() || g.grid.1 == 1 || g.tile.1.is_multiple_of(every);
        let blocks = s.k.div_ceil(every);
        (fits(&s.a) && fits(&s.b) && (2..=BLOCKS).contains(&blocks) && s.a.zero.is_none() && s.b.zero.is_none())
            .then_some(())?;
        let steps = |g: &Given| -> Vec<f64> {
            (0..g.rows * blocks).map(|x| if g.q.is_some() { g.step(x / blocks, x % blocks * every) } else { 1.0 }).collect()
        };
        let (of_a, of_b) = (steps(&s.a), steps(&s.b));
        Some(Self { a: s.a.values.clone(), b: s.b.values.clone(), of_a, of_b, k: s.k, every })
    }

    fn blocks(&self) -> usize {
        self.k.div_ceil(self.every)
    }

    fn scale(&self, (i, j): (usize, usize), g: usize) -> f64 {
        self.of_a[i * self.blocks() + g] * self.of_b[j * self.blocks() + g]
    }

    /// S of a block and its magnitude.
    fn sum(&self, (i, j): (usize, usize), g: usize) -> (f64, f64) {
        let scale = self.scale((i, j), g);
        if scale == 0.0 {
            return (0.0, 0.0);
        }
        let (from, to) = (g * self.every, self.k.min((g + 1) * self.every));
        let products = self.a[i * self.k + from..i * self.k + to].iter().zip(&self.b[j * self.k + from..j * self.k + to]);
        let (sum, size) = products.fold((0.0, 0.0), |(s, m), (a, b)| (s + a * b, m + (a * b).abs()));
        (sum / scale, size / scale.abs())
    }

    /// The magnitude of a right sum.
    fn size(&self, i: usize, j: usize) -> f64 {
        let row = |x: usize| x * self.k..(x + 1) * self.k;
        self.a[row(i)].iter().zip(&self.b[row(j)]).map(|(a, b)| (a * b).abs()).sum()
    }

    /// What is added too much, before `one` block or before every one, and its magnitude.
    fn more(&self, at: (usize, usize), one: Option<usize>) -> (f64, f64) {
        let by = |(sum, size): (f64, f64), g: usize| (sum * self.scale(at, g), size * self.scale(at, g).abs());
        if let Some(g) = one {
            return by(self.sum(at, g - 1), g);
        }
        let (mut held, mut more) = ((0.0, 0.0), (0.0, 0.0));
        for g in 1..self.blocks() {
            let before = self.sum(at, g - 1);
            held = (held.0 + before.0, held.1 + before.1);
            let next = by(held, g);
            more = (more.0 + next.0, more.1 + next.1);
        }
        more
    }
}

/// Before each block, and before all of them.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let Some(raw) = Raw::of(s).map(Arc::new) else { return Vec::new() };
    let every = raw.every;
    let of = |one: Option<usize>| {
        let (words, bits) = match one {
            Some(g) => (
                format!(
                    "the accumulator is not cleared before K {} … {}: the sum of the {every} of K before is multiplied by its scales as well",
                    g * every,
                    s.k.min((g + 1) * every) - 1
                ),
                8.0 + cost(g),
            ),
            None => (
                format!(
                    "the accumulator of a block of {every} of K is never cleared: every block's scales multiply the sums of those before as well"
                ),
                8.0,
            ),
        };
        let mut t = Theory::new(Class::AccState, "out", "k.uncleared", words).bits(bits);
        let (of_sum, of_size, bias) = (raw.clone(), raw.clone(), s.bias.clone());
        t.finish = Some(Arc::new(move |i, j, v| v + of_sum.more((i, j), one).0 + bias.at(i, j)));
        t.size = Some(Arc::new(move |i, j| of_size.size(i, j) + of_size.more((i, j), one).1));
        t
    };
    std::iter::once(None).chain((1..raw.blocks()).map(Some)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    #[test]
    fn a_block_of_k_that_holds_the_sum_before_is_told() {
        let (n, k_all, every) = (40, 384, 128);
        let (a, b) = (wide(M, k_all), codes(Format::E4m3, n, k_all, every, false, 29));
        let (x, y) = (a.to_f64(), b.dequantize());
        let scale = |j: usize, g: usize| f64::from(b.scale_inv()[j * 3 + g]);
        let raw = |i: usize, j: usize, g: usize| sum(every, |k| x[[i, g * every + k]] * y[[j, g * every + k]]) / scale(j, g);
        let got = found(&a, &b, None, Format::F32, |i, j, right| {
            right[i * n + j] + if i >= 3 { raw(i, j, 1) * scale(j, 2) } else { 0.0 }
        });
        assert!(got.0 == "acc_state:k.uncleared" && got.1.contains("before K 256 … 383"), "{} {}", got.0, got.1);
        let got = found(&a, &b, None, Format::F32, |i, j, right| {
            let held = |g: usize| (0..g).map(|f| raw(i, j, f)).sum::<f64>() * scale(j, g);
            right[i * n + j] + held(1) + held(2)
        });
        assert!(got.0 == "acc_state:k.uncleared" && got.1.contains("never cleared"), "{} {}", got.0, got.1);
    }
}
