//! Tiles of a persistent grouped product that begin with what was fetched for the tile before: the first stage of K, or the scales, of its expert.
//!
//! ```text
//! out[i, j] = Σ_{k < w} a(i, k)·b_f(j, k) + Σ_{k ≥ w} a(i, k)·b_e(j, k)       f: the expert of the tile that the block made before, n tiles earlier
//! ```

use super::maps::cost;
use super::system::{Part, System, Theory};
use super::theory::last_kept;
use crate::fault::Class;
use std::sync::Arc;

/// Stages of K, sides of tiles, and blocks at most.
const STAGES: [usize; 5] = [16, 32, 64, 128, 256];
const SIDES: [usize; 5] = [256, 128, 64, 32, 16];
const BLOCKS: usize = 264;
/// Wrong elements that have to agree, at least and at most.
const LEAST: usize = 8;
const LOOKS: usize = 32;
/// Elements that decide, and multiply-adds for all ways.
const MANY: usize = 4096;
const WORK: usize = 1 << 27;

/// What is another expert's.
#[derive(Clone, Copy, PartialEq)]
enum Old {
    /// Values of the first so many of K, or codes by the right scales.
    Values(usize),
    Codes(usize),
    /// Scales alone, of all of K.
    Scales,
}

/// The first way that makes the wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    let experts = s.parts.len();
    if s.alone || experts < 2 || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let looks = s.wrong_probes(LOOKS);
    if looks.len() < LEAST {
        return Vec::new();
    }
    let one_scale = s.b.q.is_some() && s.b.grid.1 == 1 && s.b.grid.0 > 1;
    let stages = STAGES.into_iter().filter(|w| *w < s.k);
    let mut olds: Vec<Old> =
        stages.flat_map(|w| [Some(Old::Values(w)), one_scale.then_some(Old::Codes(w))]).flatten().collect();
    olds.extend(one_scale.then_some(Old::Scales));
    let (read, mut left) = (Arc::new(Read::of(s)), WORK);
    olds.into_iter().find_map(|old| of(s, &read, old, &looks, &mut left)).into_iter().collect()
}

/// With two experts there is one other, and many ways agree on all looks: `left` are the multiply-adds that may still be spent on telling them apart.
fn of(s: &System, read: &Arc<Read>, old: Old, looks: &[(usize, usize)], left: &mut usize) -> Option<Theory> {
    let spend = |left: &mut usize| *left = left.saturating_sub(read.depth(old));
    let makes = |i: usize, j: usize, f: Option<usize>| {
        let (more, size) = read.more(old, i, j, f);
        let at = i * s.cols + j;
        s.may(i, j, s.ideal[at] - s.bias.at(i, j) + more, s.magnitude(at) + size)
    };
    // The experts that each element may have begun with.
    let mut may: Vec<Vec<bool>> = Vec::with_capacity(looks.len());
    for (i, j) in looks {
        let own = s.part[*i]?;
        let can = |f: usize| {
            let other = f != own && !s.parts[f].rows.is_empty() && *left > 0;
            if other {
                spend(left);
            }
            other && makes(*i, *j, Some(f))
        };
        let which: Vec<bool> = (0..s.parts.len()).map(can).collect();
        which.contains(&true).then_some(())?;
        may.push(which);
    }
    // Another size of tiles makes those that it was found by: elements from all over the result decide.
    let all = super::segment::spread_of(s.rows * s.cols, MANY);
    for (high, wide) in SIDES.iter().flat_map(|h| SIDES.map(|w| (*h, w))) {
        for by_row in [true, false] {
            let tiles = Tiles::of(s, high, wide, by_row);
            let n = tiles.expert.len();
            for blocks in 1..n.min(BLOCKS + 1) {
                let is = |(x, (i, j)): (usize, &(usize, usize))| {
                    tiles.before(&s.parts, s.part[*i], (*i, *j), blocks).is_some_and(|f| may[x][f])
                };
                if !looks.iter().enumerate().all(is) {
                    continue;
                }
                let fits = |at: usize| {
                    let (i, j) = (at / s.cols, at % s.cols);
                    let f = tiles.before(&s.parts, s.part[i], (i, j), blocks);
                    if f.is_some() && f != s.part[i] {
                        spend(left);
                    }
                    *left > 0 && makes(i, j, f)
                };
                if all.iter().copied().all(fits) {
                    return Some(theory(s, read.clone(), old, tiles, blocks));
                }
                (*left > 0).then_some(())?;
            }
        }
    }
    None
}

/// The tiles of all experts, one after the other.
struct Tiles {
    high: usize,
    wide: usize,
    by_row: bool,
    cols: usize,
    /// The first tile of each expert, and the expert of each tile.
    first: Vec<usize>,
    expert: Vec<usize>,
}

impl Tiles {
    fn of(s: &System, high: usize, wide: usize, by_row: bool) -> Self {
        let (mut first, mut expert) = (Vec::new(), Vec::new());
        for (e, p) in s.parts.iter().enumerate() {
            first.push(expert.len());
            expert.resize(expert.len() + p.rows.len().div_ceil(high) * s.cols.div_ceil(wide), e);
        }
        Self { high, wide, by_row, cols: s.cols, first, expert }
    }

    /// The expert of the tile that the block of an element's tile made before it.
    fn before(&self, parts: &[Part], part: Option<usize>, (i, j): (usize, usize), blocks: usize) -> Option<usize> {
        let e = part?;
        let (x, y) = ((i - parts[e].rows.start) / self.high, j / self.wide);
        let (down, across) = (parts[e].rows.len().div_ceil(self.high), self.cols.div_ceil(self.wide));
        let tile = self.first[e] + if self.by_row { x * across + y } else { y * down + x };
        tile.checked_sub(blocks).map(|t| self.expert[t])
    }
}

/// What elements are read from: a theory keeps it, and asks for no more elements than it is held to.
struct Read {
    a: Arc<Vec<f64>>,
    b: Arc<Vec<f64>>,
    /// The scale of each row of b, where it has one.
    steps: Vec<f64>,
    parts: Vec<Part>,
    part: Vec<Option<usize>>,
    k: usize,
}

impl Read {
    fn of(s: &System) -> Self {
        let steps = (0..s.b.rows).map(|x| s.b.step(x, 0)).collect();
        Self { a: s.a.values.clone(), b: s.b.values.clone(), steps, parts: s.parts.clone(), part: s.part.clone(), k: s.k }
    }

    /// How much of K is another expert's.
    fn depth(&self, old: Old) -> usize {
        match old {
            Old::Values(w) | Old::Codes(w) => w,
            Old::Scales => self.k,
        }
    }

    /// What an element has more where it begins with expert f, and how large that may be.
    fn more(&self, old: Old, i: usize, j: usize, f: Option<usize>) -> (f64, f64) {
        let (Some(e), Some(f)) = (self.part[i], f) else { return (0.0, 0.0) };
        if e == f {
            return (0.0, 0.0);
        }
        let part = &self.parts[e];
        let (own, other) = (part.b + j, self.parts[f].b + j);
        let range = |x: usize| x * self.k..x * self.k + self.depth(old);
        let (a, b, x) = (&self.a[range(part.a + i - part.rows.start)], &self.b[range(own)], &self.b[range(other)]);
        let by = self.steps[own] / self.steps[other];
        let (mut sum, mut size) = (0.0, 0.0);
        for ((a, b), x) in a.iter().zip(b).zip(x) {
            let x = match old {
                Old::Values(_) => *x,
                Old::Codes(_) => x * by,
                Old::Scales => b / by,
            };
            sum += a * (x - b);
            size += (a * x).abs();
        }
        (sum, size)
    }

    /// The magnitude of a right sum.
    fn size(&self, i: usize, j: usize) -> f64 {
        let Some(e) = self.part[i] else { return 0.0 };
        let (a, b) = ((self.parts[e].a + i - self.parts[e].rows.start) * self.k, (self.parts[e].b + j) * self.k);
        self.a[a..a + self.k].iter().zip(&self.b[b..b + self.k]).map(|(a, b)| (a * b).abs()).sum()
    }
}

fn theory(s: &System, read: Arc<Read>, old: Old, tiles: Tiles, blocks: usize) -> Theory {
    let (high, wide) = (tiles.high, tiles.wide);
    let order = if tiles.by_row { "row by row" } else { "column by column" };
    let what = match old {
        Old::Values(w) => format!("the first {w} of K of b are"),
        Old::Codes(w) => format!("the codes of b for the first {w} of K, not their scales, are"),
        Old::Scales => "the scales of b, not its codes, are".into(),
    };
    let words = format!(
        "{what} those of the expert whose tile the block made before: fetched ahead, before the next tile's expert is known (tiles of {high}×{wide}, {order}, \
         {blocks} blocks)"
    );
    let mut t = Theory::new(Class::GroupBoundary, "b", "b.prefetched", words)
        .bits(8.0 + cost(high) + cost(wide) + cost(blocks) + f64::from(u8::from(!tiles.by_row)));
    let bias = s.bias.clone();
    let more = last_kept(move |i, j| {
        let f = tiles.before(&read.parts, read.part[i], (i, j), blocks);
        let (more, size) = read.more(old, i, j, f);
        (more, read.size(i, j) + size)
    });
    let sized = more.clone();
    t.size = Some(Arc::new(move |i, j| sized(i, j).1));
    t.finish = Some(Arc::new(move |i, j, v| v + more(i, j).0 + bias.at(i, j)));
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, sum, wide};

    #[test]
    fn a_stage_that_is_fetched_for_the_expert_before_is_told() {
        const K: usize = 96;
        let (n, ends) = (48, [20usize, 37, 64, 80]);
        let (a, b) = (wide(80, K), codes(Format::E4m3, 4 * n, K, K, false, 57));
        let (x, y) = (a.to_f64(), b.dequantize());
        let scale = |e: usize, j: usize| f64::from(b.scale_inv()[e * n + j]);
        // Tiles of 16×32, three blocks.
        let tiles = |e: usize| {
            let from = if e == 0 { 0 } else { ends[e - 1] };
            (ends[e] - from).div_ceil(16) * 2
        };
        let expert = |t: usize| (0..4).find(|e| (0..=*e).map(tiles).sum::<usize>() > t).unwrap();
        let old = |i: usize, j: usize| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let from = if e == 0 { 0 } else { ends[e - 1] };
            let t = (0..e).map(tiles).sum::<usize>() + (i - from) / 16 * 2 + j / 32;
            (e, t.checked_sub(3).map_or(e, expert))
        };
        let got = grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
            let (e, f) = old(i, j);
            let code = |k: usize| if k < 32 { y[[f * n + j, k]] / scale(f, j) } else { y[[e * n + j, k]] / scale(e, j) };
            sum(K, |k| x[[i, k]] * code(k)) * scale(e, j)
        });
        assert_eq!(got.0, "group_boundary:b.prefetched", "{}", got.1);
        assert!(got.1.contains("the codes of b for the first 32 of K") && got.1.contains("16×32"), "{}", got.1);
        assert!(got.1.contains("3 blocks"), "{}", got.1);
    }
}
