//! Parts of a split K that are added to the lines of another block: the fix-up of a block knows its lines from 0 on, or from another block's first.
//!
//! ```text
//! out[l, o] = right − x(b, o)·P(l, o) + Σ_b x(b, o)·P(first(b) + l − to(b), o)          P: the part of the sum from K₀ on, or up to there
//! ```
//!
//! Blocks are the groups of a grouped product, or tiles of rows or columns. For every K₀ the x of each column are unknowns of one linear system: 0 or 1.

use super::linear::Normal;
use super::maps::cost;
use super::segment::{lines, spread};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::ops::Range;
use std::sync::Arc;

/// Lines across that are looked at first; blocks at most, K between cuts, multiply-adds.
const LOOKS: usize = 8;
const BLOCKS: usize = 64;
const STEP: usize = 16;
const PARTS: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 16];
const WORK: usize = 1 << 27;
const TALL: [usize; 5] = [16, 32, 64, 128, 256];
/// How far an unknown may be from 0 or 1.
const NEAR: f64 = 0.1;

/// Where the parts of a block go.
#[derive(Clone, Copy, PartialEq)]
enum To {
    Zero,
    Before,
    Behind,
}

struct Split<'s> {
    s: &'s System<'s>,
    side: Which,
    blocks: Vec<Range<usize>>,
    words: String,
}

/// The first way that makes the result.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let mut all: Vec<Split> = Vec::new();
    if s.parts.len() > 1 {
        let blocks = s.parts.iter().map(|p| p.rows.clone()).filter(|r| !r.is_empty()).collect();
        all.push(Split { s, side: Which::A, blocks, words: "group".into() });
    } else {
        for (side, n, what) in [(Which::A, s.rows, "rows"), (Which::B, s.cols, "columns")] {
            for tall in TALL.into_iter().filter(|t| *t < n) {
                let blocks = (0..n.div_ceil(tall)).map(|b| b * tall..n.min((b + 1) * tall)).collect();
                all.push(Split { s, side, blocks, words: format!("tile of {tall} {what}") });
            }
        }
    }
    all.iter().find_map(Split::theory).into_iter().collect()
}

impl Split<'_> {
    fn at(&self, l: usize, o: usize) -> (usize, usize) {
        if self.side == Which::A { (l, o) } else { (o, l) }
    }

    fn first(&self, b: usize, to: To) -> Option<usize> {
        match to {
            To::Zero => Some(0).filter(|_| b > 0),
            To::Before => b.checked_sub(1).map(|b| self.blocks[b].start),
            To::Behind => self.blocks.get(b + 1).map(|r| r.start),
        }
    }

    /// The partial sums of an element up to each of these K, with all of it last.
    fn prefix(&self, l: usize, o: usize, cuts: &[usize]) -> Option<Vec<f64>> {
        let s = self.s;
        let (i, j) = self.at(l, o);
        let (ra, rb, _) = s.lines(i, j)?;
        let (x, y) = (&s.a.values[ra * s.k..(ra + 1) * s.k], &s.b.values[rb * s.k..(rb + 1) * s.k]);
        let (mut sum, mut from, mut all) = (0.0, 0, Vec::with_capacity(cuts.len() + 1));
        for to in cuts.iter().copied().chain([s.k]) {
            sum += x[from..to].iter().zip(&y[from..to]).map(|(x, y)| x * y).sum::<f64>();
            all.push(sum);
            from = to;
        }
        Some(all)
    }

    /// Which blocks of one line across lose their part, P of every line given. `None`: the elements say something else.
    fn solved(&self, o: usize, to: To, p: &[f64]) -> Option<Vec<bool>> {
        let (s, n) = (self.s, self.blocks.len());
        let mut equations: Vec<(Vec<f64>, f64, f64)> = Vec::new();
        let mut block = vec![n; p.len()];
        self.blocks.iter().enumerate().for_each(|(b, r)| block[r.clone()].fill(b));
        for l in (0..p.len()).filter(|l| block[*l] < n) {
            let mut x = vec![0.0; n];
            for (b, r) in self.blocks.iter().enumerate() {
                let Some(first) = self.first(b, to) else { continue };
                if block[l] == b {
                    x[b] -= p[l];
                }
                if let Some(from) = l.checked_sub(first).filter(|d| *d < r.len()) {
                    x[b] += p[r.start + from];
                }
            }
            let (i, j) = self.at(l, o);
            let at = i * s.cols + j;
            let Some((y, half)) = s.written(i, j, 0.0) else { continue };
            equations.push((x, y - (s.ideal[at] - s.bias.at(i, j)), half + 4.0 * s.certain(at)));
        }
        (equations.len() >= n + 8).then_some(())?;
        let mut system = Normal::new(n);
        equations.iter().for_each(|(x, y, half)| system.add(x, *y, 1.0 / (half * half)));
        let v = system.solve()?;
        v.iter().all(|v| v.abs() < NEAR || (v - 1.0).abs() < NEAR).then_some(())?;
        let strays: Vec<bool> = v.iter().map(|v| *v > 0.5).collect();
        let fits = |(x, y, half): &(Vec<f64>, f64, f64)| {
            let sum: f64 = x.iter().zip(&strays).filter(|(_, on)| **on).map(|(x, _)| x).sum();
            (sum - y).abs() <= 2.0 * half
        };
        equations.iter().all(fits).then_some(strays)
    }

    /// The lines and columns of the result, as this side has them.
    fn shape(&self) -> (usize, usize) {
        if self.side == Which::A { (self.s.rows, self.s.cols) } else { (self.s.cols, self.s.rows) }
    }

    /// Wrong elements of a line across.
    fn wrong(&self, o: usize) -> usize {
        (0..self.shape().0).filter(|l| self.s.is_wrong[self.at(*l, o).0 * self.s.cols + self.at(*l, o).1]).count()
    }

    /// The partial sums of all elements of a line across.
    fn sums(&self, o: usize, cuts: &[usize]) -> Vec<Vec<f64>> {
        (0..self.shape().0).map(|l| self.prefix(l, o, cuts).unwrap_or_else(|| vec![0.0; cuts.len() + 1])).collect()
    }

    /// The first way that makes the result: looks, cuts and their sums are the same for all.
    fn theory(&self) -> Option<Theory> {
        let s = self.s;
        let (n, across) = self.shape();
        ((2..=BLOCKS).contains(&self.blocks.len()) && n * across * s.k <= WORK).then_some(())?;
        let mut looks: Vec<usize> = (0..across).filter(|o| self.wrong(*o) >= 8).collect();
        (looks.len() >= LOOKS).then_some(())?;
        spread(&mut looks, LOOKS);
        let mut cuts: Vec<usize> = (1..s.k.div_ceil(STEP)).map(|c| c * STEP).collect();
        cuts.extend(PARTS.iter().flat_map(|p| (1..*p).map(move |c| (s.k * c).div_ceil(*p))));
        cuts.sort_unstable();
        cuts.dedup();
        cuts.retain(|c| *c < s.k);
        let first: Vec<Vec<Vec<f64>>> = looks.iter().map(|o| self.sums(*o, &cuts)).collect();
        [To::Zero, To::Before, To::Behind].into_iter().find_map(|to| self.strayed(to, &looks, &first, &cuts))
    }

    /// Parts that go there, by these lines across and their sums.
    fn strayed(&self, to: To, looks: &[usize], first: &[Vec<Vec<f64>>], cuts: &[usize]) -> Option<Theory> {
        let s = self.s;
        let (n, across) = self.shape();
        let part = |sums: &[Vec<f64>], c: usize, last: bool| -> Vec<f64> {
            sums.iter().map(|x| if last { x[cuts.len()] - x[c] } else { x[c] }).collect()
        };
        let ways = (0..cuts.len()).flat_map(|c| [(c, true), (c, false)]);
        let (c, last) = ways.into_iter().find(|(c, last)| {
            let solves = |(o, sums): (&usize, &Vec<Vec<f64>>)| self.solved(*o, to, &part(sums, *c, *last));
            looks.iter().zip(first).all(|x| solves(x).is_some_and(|v| v.contains(&true)))
        })?;
        // Every line across, and what it adds to each element.
        let mut more = vec![0.0; s.rows * s.cols];
        let mut strays: Vec<Vec<bool>> = Vec::with_capacity(across);
        for o in 0..across {
            let p = part(&self.sums(o, cuts), c, last);
            let found = if self.wrong(o) == 0 { vec![false; self.blocks.len()] } else { self.solved(o, to, &p)? };
            for (b, r) in self.blocks.iter().enumerate().filter(|(b, _)| found[*b]) {
                let first = self.first(b, to)?;
                for l in r.clone() {
                    let (i, j) = self.at(l, o);
                    more[i * s.cols + j] -= p[l];
                    let line = first + l - r.start;
                    if line < n {
                        let (i, j) = self.at(line, o);
                        more[i * s.cols + j] += p[l];
                    }
                }
            }
            strays.push(found);
        }
        let (what, other) = if self.side == Which::A { ("row", "columns") } else { ("column", "rows") };
        let mut some = Vec::new();
        let mut runs = 0;
        for b in 0..self.blocks.len() {
            let of: Vec<bool> = strays.iter().map(|v| v[b]).collect();
            if of.contains(&true) {
                runs += of.windows(2).filter(|w| w[0] != w[1]).count() + 1;
                some.push(format!("{} {b}, {other} {}", self.words, lines(&of)));
            }
        }
        // Runs as tiles have them, not single lines.
        (4 * runs <= across.max(8) * self.blocks.len()).then_some(())?;
        let k = if last { format!("from k = {} on", cuts[c]) } else { format!("for k < {}", cuts[c]) };
        let base = match to {
            To::Zero => format!("to {what}s from 0 on: the first {what} of the block is left out"),
            To::Before => format!("to {what}s from the first of the block before on"),
            To::Behind => format!("to {what}s from the first of the next block on"),
        };
        some.truncate(4);
        let words = format!("the sums {k} are added not to their own {what}s but {base} ({})", some.join("; "));
        let mut t =
            Theory::new(Class::Addressing, "out", "out.part_rows", words).bits(12.0 + cost(cuts[c]) + 2.0 * runs as f64);
        t.freedom = runs;
        let (cols, bias) = (s.cols, s.bias.clone());
        t.finish = Some(Arc::new(move |i, j, v| v + more[i * cols + j] + bias.at(i, j)));
        Some(t)
    }
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, sum, wide};

    #[test]
    fn parts_of_a_split_k_that_miss_the_first_row_of_their_group_are_told() {
        const K: usize = 128;
        let (n, ends) = (32, [11, 26, 48]);
        let (a, b) = (wide(48, K), codes(Format::Int8, 3 * n, K, K, false, 27));
        let (x, y) = (a.to_f64(), b.dequantize());
        let starts = [0, 11, 26];
        let strays = |e: usize, j: usize| e > 0 && (e == 1) == (j < 16);
        let got = grouped_found(&a, &b, &ends, Format::F32, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let part = |i: usize, e: usize, ks: std::ops::Range<usize>| ks.map(|k| x[[i, k]] * y[[e * n + j, k]]).sum::<f64>();
            let own = if strays(e, j) { part(i, e, 0..80) } else { sum(K, |k| x[[i, k]] * y[[e * n + j, k]]) };
            let of = |e: usize| if strays(e, j) && starts[e] + i < ends[e] { part(starts[e] + i, e, 80..K) } else { 0.0 };
            own + of(1) + of(2)
        });
        assert_eq!(got.0, "addressing:out.part_rows", "{}", got.1);
        assert!(got.1.contains("from k = 80 on are added not to their own rows but to rows from 0 on"), "{}", got.1);
        assert!(got.1.contains("group 1, columns 0 … 15; group 2, columns 16 … 31"), "{}", got.1);
    }
}
