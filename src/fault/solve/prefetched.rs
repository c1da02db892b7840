//! Tiles of a persistent grouped product that begin with what was fetched for the tile before: the first stage of K, or the scales, of its expert.
//!
//! ```text
//! out[i, j] = Σ_{k < w} a(i, k)·b_f(j, k) + Σ_{k ≥ w} a(i, k)·b_e(j, k)       f: the expert of the tile that the block made before, n tiles earlier
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Stages of K, sides of tiles, and blocks at most.
const STAGES: [usize; 5] = [16, 32, 64, 128, 256];
const SIDES: [usize; 5] = [256, 128, 64, 32, 16];
const BLOCKS: usize = 264;
/// Wrong elements that have to agree, at least and at most.
const LEAST: usize = 8;
const LOOKS: usize = 32;

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
    let wrong = |(i, j): &&(usize, usize)| s.is_wrong[i * s.cols + j] && s.actual[i * s.cols + j].is_finite();
    let looks: Vec<(usize, usize)> = s.probes.iter().filter(wrong).take(LOOKS).copied().collect();
    if looks.len() < LEAST {
        return Vec::new();
    }
    let one_scale = s.b.q.is_some() && s.b.grid.1 == 1 && s.b.grid.0 > 1;
    let stages = STAGES.into_iter().filter(|w| *w < s.k);
    let mut olds: Vec<Old> =
        stages.flat_map(|w| [Some(Old::Values(w)), one_scale.then_some(Old::Codes(w))]).flatten().collect();
    olds.extend(one_scale.then_some(Old::Scales));
    olds.into_iter().find_map(|old| of(s, old, &looks)).into_iter().collect()
}

fn of(s: &System, old: Old, looks: &[(usize, usize)]) -> Option<Theory> {
    // The experts that each element may have begun with.
    let mut may: Vec<Vec<bool>> = Vec::with_capacity(looks.len());
    for (i, j) in looks {
        let own = s.part[*i]?;
        let makes = |f: usize| {
            let (more, size) = difference(s, old, *i, *j, f);
            let at = i * s.cols + j;
            s.may(*i, *j, s.ideal[at] - s.bias.at(*i, *j) + more, s.magnitude(at) + size)
        };
        let which: Vec<bool> = (0..s.parts.len()).map(|f| f != own && !s.parts[f].rows.is_empty() && makes(f)).collect();
        which.contains(&true).then_some(())?;
        may.push(which);
    }
    for (high, wide) in SIDES.iter().flat_map(|h| SIDES.map(|w| (*h, w))) {
        for by_row in [true, false] {
            let tiles = Tiles::of(s, high, wide, by_row);
            let n = tiles.expert.len();
            for blocks in 1..n.min(BLOCKS + 1) {
                let is = |(x, (i, j)): (usize, &(usize, usize))| tiles.before(s, *i, *j, blocks).is_some_and(|f| may[x][f]);
                if looks.iter().enumerate().all(is)
                    && let Some(t) = Some(theory(s, old, &tiles, blocks)).filter(|t| all_fit(s, t))
                {
                    return Some(t);
                }
            }
        }
    }
    None
}

/// Whether a theory makes elements from all over the result: another size of tiles makes those that it was found by.
fn all_fit(s: &System, t: &Theory) -> bool {
    const MANY: usize = 4096;
    let all = super::segment::spread_of(s.rows * s.cols, MANY);
    all.into_iter().all(|at| s.fits(t, at / s.cols, at % s.cols))
}

/// The tiles of all experts, one after the other.
struct Tiles {
    high: usize,
    wide: usize,
    by_row: bool,
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
        Self { high, wide, by_row, first, expert }
    }

    /// The expert of the tile that the block of an element's tile made before it.
    fn before(&self, s: &System, i: usize, j: usize, blocks: usize) -> Option<usize> {
        let e = s.part[i]?;
        let (x, y) = ((i - s.parts[e].rows.start) / self.high, j / self.wide);
        let (down, across) = (s.parts[e].rows.len().div_ceil(self.high), s.cols.div_ceil(self.wide));
        let tile = self.first[e] + if self.by_row { x * across + y } else { y * down + x };
        tile.checked_sub(blocks).map(|t| self.expert[t])
    }
}

/// What an element has more where it begins with expert f, and how large that may be.
fn difference(s: &System, old: Old, i: usize, j: usize, f: usize) -> (f64, f64) {
    let Some((ra, rb, ks)) = s.lines(i, j) else { return (0.0, 0.0) };
    let other = s.parts[f].b + j;
    let end = match old {
        Old::Values(w) | Old::Codes(w) => ks.start + w,
        Old::Scales => ks.end,
    };
    let (own, theirs) = (s.b.step(rb, 0), s.b.step(other, 0));
    let (mut sum, mut size) = (0.0, 0.0);
    for k in ks.start..end {
        let (a, b) = (s.a.values[ra * s.k + k], s.b.values[rb * s.k + k]);
        let x = match old {
            Old::Values(_) => s.b.values[other * s.k + k],
            Old::Codes(_) => s.b.values[other * s.k + k] / theirs * own,
            Old::Scales => b / own * theirs,
        };
        sum += a * (x - b);
        size += (a * x).abs();
    }
    (sum, size)
}

fn theory(s: &System, old: Old, tiles: &Tiles, blocks: usize) -> Theory {
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
    // What is more than the right sum, of every element.
    let one = |at: usize| {
        let (i, j) = (at / s.cols, at % s.cols);
        match tiles.before(s, i, j, blocks).filter(|f| Some(*f) != s.part[i]) {
            Some(f) => difference(s, old, i, j, f),
            None => (0.0, 0.0),
        }
    };
    let more: Vec<(f64, f64)> = (0..s.rows * s.cols).map(one).collect();
    let more = Arc::new(more);
    let sizes: Vec<f64> = (0..more.len()).map(|at| s.magnitude(at) + more[at].1).collect();
    let (cols, bias) = (s.cols, s.bias.clone());
    t.size = Some(Arc::new(move |i, j| sizes[i * cols + j]));
    t.finish = Some(Arc::new(move |i, j, v| v + more[i * cols + j].0 + bias.at(i, j)));
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
