//! First blocks of K that a ring of stages still holds from the tile before: they are used before their copy has come.
//!
//! ```text
//! b(n, x·w + u) of column n ≥ d  =  b(n − d, y(x)·w + u)      for some x < S; d: how far the tile before is; S stages of w; T blocks of K
//! y(x):  the last block of slot x mod S,  or x + T − S where the ring goes on from tile to tile          rows of a the same
//! ```

use super::given::Given;
use super::linear::Normal;
use super::maps::cost;
use super::segment::spread_where;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of K, stages, and how far tiles are apart at least.
const BLOCKS: [usize; 5] = [64, 32, 128, 16, 256];
const STAGES: Range<usize> = 2..9;
const APART: [usize; 5] = [128, 64, 32, 16, 8];
const DISTANCES: usize = 40;
/// Elements that say which blocks are held, and how near 0 or 1 each has to be.
const LOOKS: usize = 96;
const LEAST: usize = 24;
const NEAR: f64 = 0.1;
/// Multiply-adds of all ways.
const WORK: usize = 1 << 27;

/// Where blocks of one operand come from.
#[derive(Clone)]
struct Held {
    wide: usize,
    /// Lines that the tile before is away.
    far: usize,
    stages: usize,
    goes_on: bool,
    /// Codes alone: scales are the right ones.
    codes: bool,
    /// Block that each of the first holds.
    from: Vec<usize>,
}

impl Held {
    fn at(&self, g: &Given, line: usize, k: usize) -> f64 {
        let (from, at) = (line - self.far, self.from[k / self.wide] * self.wide + k % self.wide);
        if at >= g.k {
            return 0.0;
        }
        let x = g.values[from * g.k + at];
        if self.codes { x / g.step(from, at) * g.step(line, k) } else { x }
    }
}

/// The first way that makes the wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    [Which::B, Which::A].into_iter().find_map(|side| of(s, side)).into_iter().collect()
}

fn of(s: &System, side: Which) -> Option<Theory> {
    let g = s.given(side);
    let line = |at: usize| if side == Which::A { at / s.cols } else { at % s.cols };
    let first = (0..s.rows * s.cols).filter(|at| s.is_wrong[*at]).map(line).min().filter(|x| *x >= APART[4])?;
    let is = |at: &usize| {
        let inside = s.region.as_ref().is_none_or(|r| r.has(at / s.cols, at % s.cols));
        inside && line(*at) >= first && s.actual[*at].is_finite()
    };
    let looks = spread_where(s.rows * s.cols, &is, LOOKS);
    (looks.len() >= LEAST).then_some(())?;
    let mut distances: Vec<usize> = vec![first];
    for u in APART {
        distances.push(first / u * u);
        distances.extend((1..=first / u).map(|n| n * u));
    }
    let mut seen = std::collections::HashSet::new();
    distances.retain(|d| *d >= APART[4] && seen.insert(*d));
    distances.truncate(DISTANCES);
    let scaled = g.q.is_some() && g.zero.is_none() && g.scales().iter().any(|x| *x != g.scales()[0]);
    let mut left = WORK;
    for far in distances {
        for wide in BLOCKS.into_iter().filter(|w| 2 * w <= s.k) {
            let blocks = s.k.div_ceil(wide);
            for (goes_on, stages) in
                [false, true].into_iter().flat_map(|on| STAGES.filter(|n| *n <= blocks).map(move |n| (on, n)))
            {
                let last = |x: usize| x + (blocks - 1 - x) / stages * stages;
                let from: Vec<usize> = (0..stages).map(|x| if goes_on { x + blocks - stages } else { last(x) }).collect();
                // Where the ring ends with its last stage both are one.
                if goes_on && (0..stages).all(|x| from[x] == last(x)) {
                    continue;
                }
                for codes in if scaled { &[false, true][..] } else { &[false] } {
                    left = left.checked_sub(looks.len() * stages * wide * 2)?;
                    let held = Held { wide, far, stages, goes_on, codes: *codes, from: from.clone() };
                    if let Some(found) = solve(s, side, &held, &looks).filter(|t| s.explains(t)) {
                        return Some(found);
                    }
                }
            }
        }
    }
    None
}

/// Which of the first blocks are held. `None`: none, or a part of one.
fn solve(s: &System, side: Which, held: &Held, looks: &[usize]) -> Option<Theory> {
    let (g, o) = (s.given(side), s.given(side.other()));
    let mut system = Normal::new(held.stages);
    let mut rows: Vec<(Vec<f64>, f64, f64)> = Vec::new();
    for at in looks {
        let (i, j) = (at / s.cols, at % s.cols);
        let (line, across) = if side == Which::A { (i, j) } else { (j, i) };
        let Some((written, half)) = s.written(i, j, s.magnitude(*at)) else { continue };
        let one = |x: usize| -> f64 {
            let ks = x * held.wide..((x + 1) * held.wide).min(s.k);
            ks.map(|k| (held.at(g, line, k) - g.values[line * g.k + k]) * o.values[across * o.k + k]).sum()
        };
        let x: Vec<f64> = (0..held.stages).map(one).collect();
        let y = written - (s.ideal[*at] - s.bias.at(i, j));
        system.add(&x, y, 1.0 / (half * half));
        rows.push((x, y, half));
        // A few refuse most: what one more than the unknowns contradicts.
        if rows.len() == 2 * held.stages + 8 {
            binary(&system, &rows)?;
        }
    }
    (rows.len() >= LEAST).then_some(())?;
    let stale = binary(&system, &rows)?;
    Some(theory(s, side, held, &stale))
}

/// The solved blocks, each 0 or 1, where all equations hold.
fn binary(system: &Normal, rows: &[(Vec<f64>, f64, f64)]) -> Option<Vec<usize>> {
    let v = system.clone().solve()?;
    v.iter().all(|x| x.abs() <= NEAR || (x - 1.0).abs() <= NEAR).then_some(())?;
    let stale: Vec<usize> = (0..v.len()).filter(|x| v[*x] > 0.5).collect();
    let fits = |(x, y, half): &(Vec<f64>, f64, f64)| (stale.iter().map(|n| x[*n]).sum::<f64>() - y).abs() <= 2.0 * half;
    (!stale.is_empty() && rows.iter().all(fits)).then_some(stale)
}

fn theory(s: &System, side: Which, held: &Held, stale: &[usize]) -> Theory {
    let (name, line) = (side.name(), if side == Which::A { "row" } else { "column" });
    let list = |v: Vec<String>| v.join(", ");
    let own = list(stale.iter().map(|x| x.to_string()).collect());
    let from = list(stale.iter().map(|x| held.from[*x].to_string()).collect());
    let what = if held.codes { "codes, not the scales," } else { "values" };
    let ring = if held.goes_on { ", which goes on from tile to tile," } else { "" };
    let words = format!(
        "from {line} {} on, {what} of {name} in block{} {own} of {} of K are those that {line} n − {} has in block {from}: a ring of {} stages{ring} still holds the tile before, and its copy is not waited for",
        held.far,
        if stale.len() == 1 { "" } else { "s" },
        held.wide,
        held.far,
        held.stages
    );
    let bits =
        8.0 + cost(held.far) + cost(held.wide) + cost(held.stages) + stale.len() as f64 + f64::from(u8::from(held.codes));
    let mut t = Theory::new(Class::Race, name, format!("{name}.stage_before"), words).bits(bits);
    let (g, held, stale) = (s.given(side).clone(), held.clone(), stale.to_vec());
    t.side(side).value = Some(Arc::new(move |i, k| {
        if i >= held.far && stale.contains(&(k / held.wide)) { held.at(&g, i, k) } else { g.values[i * g.k + k] }
    }));
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::job::Operand;

    const K: usize = 224;

    #[test]
    fn blocks_that_the_tile_before_left_in_a_ring_are_told() {
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, 16, false, 91));
        let (x, y) = (a.to_f64(), b.dequantize());
        // 7 blocks of 32 in 3 stages: slot 0 ends with block 6, slot 1 with block 4.
        let with = |from: &dyn Fn(usize, usize) -> (usize, usize)| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                sum(K, |k| {
                    let (r, c) = from(j, k);
                    x[[i, k]] * y[[r, c]]
                })
            })
        };
        let got = with(&|j, k| match k / 32 {
            0 if j >= 32 => (j - 32, 6 * 32 + k % 32),
            1 if j >= 32 => (j - 32, 4 * 32 + k % 32),
            _ => (j, k),
        });
        assert_eq!(got.0, "race:b.stage_before", "{}", got.1);
        let words = "from column 32 on, values of b in blocks 0, 1 of 32 of K are those that column n − 32 has in block 6, 4: a ring of 3 stages";
        assert!(got.1.contains(words), "{}", got.1);
        // Of a block that no ring holds there.
        let got = with(&|j, k| if j >= 32 && k / 32 == 1 { ((j * 7 + 5) % 31, k) } else { (j, k) });
        assert!(!got.0.contains("stage_before"), "{} {}", got.0, got.1);
    }

    #[test]
    fn rows_of_a_whose_ring_goes_on_are_told() {
        let (a, b) = (codes(Format::E4m3, M, K, K, false, 92), codes(Format::E4m3, N, K, K, false, 93));
        let (x, y) = (a.dequantize(), b.dequantize());
        let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
            let value = |k: usize| if i >= 16 && k / 32 == 1 { x[[i - 16, 3 * 32 + k % 32]] } else { x[[i, k]] };
            sum(K, |k| value(k) * y[[j, k]])
        });
        assert_eq!(got.0, "race:a.stage_before", "{}", got.1);
        let words = "has in block 3: a ring of 5 stages, which goes on from tile to tile, still holds";
        assert!(got.1.contains("from row 16 on") && got.1.contains(words), "{}", got.1);
    }
}
