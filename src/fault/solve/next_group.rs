//! Gradients of weights whose last (or first) block of tokens is loaded from another group, at the same place of it: the group's descriptor is written
//! over while loads by it are in flight.
//!
//! ```text
//! out[e] = Σ_{k not in the block} a(k)·b(k) + Σ_{k in the block} a(k + d)·b(k + d)     d: from the start of group e to that of the next (or the last)
//!                                                                                     group with tokens; 0 behind its end; of a, of b, or of both
//! ```

use super::experts::Tokens;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::ops::Range;
use std::sync::Arc;

/// Tokens of a block.
const WIDTHS: [usize; 6] = [16, 32, 64, 128, 256, 8];
/// Wrong elements that a way is told by, at least and at most.
const LEAST: usize = 8;
const LOOKS: usize = 32;
/// Ways that are handed on.
const KEPT: usize = 8;

/// One way to load a block.
#[derive(Clone, Copy, Debug)]
struct Way {
    width: usize,
    last: bool,
    next: bool,
    /// Whose tokens are another group's: of a, of b.
    of: [bool; 2],
    /// By the scales of the other group, not of its own.
    scaled: bool,
}

/// Values of both operands, and what each group's are scaled by.
struct Read {
    values: [Vec<f64>; 2],
    scales: Option<[Vec<Vec<f64>>; 2]>,
    k: usize,
    groups: Vec<Range<usize>>,
    per: usize,
}

impl Read {
    fn of(s: &System) -> Self {
        let groups: Vec<Range<usize>> = s.parts.iter().map(|p| p.k.clone()).collect();
        let per = s.rows / groups.len().max(1);
        if let Some(tokens) = Tokens::of(s) {
            let (values, scales) = tokens.apart();
            return Self { values, scales: Some(scales), k: s.k, groups, per };
        }
        // What is not quantized by groups goes with its token.
        let values = [s.a.values.to_vec(), s.b.values.to_vec()];
        Self { values, scales: None, k: s.k, groups, per }
    }

    /// The group whose tokens are loaded for those of group e.
    fn other(&self, e: usize, next: bool) -> Option<usize> {
        let filled = |x: &usize| !self.groups[*x].is_empty();
        if next { (e + 1..self.groups.len()).find(filled) } else { (0..e).rev().find(filled) }
    }

    /// The block of group e.
    fn block(&self, e: usize, way: Way) -> Range<usize> {
        let k = &self.groups[e];
        let from = if way.last { k.start + k.len().saturating_sub(1) / way.width * way.width } else { k.start };
        from..(from + way.width).min(k.end)
    }

    /// The sum of an element, and its magnitude.
    fn sum(&self, way: Way, row: usize, j: usize) -> (f64, f64) {
        let (e, i) = (row / self.per, row % self.per);
        let own = &self.groups[e];
        let other = if own.is_empty() { None } else { self.other(e, way.next) };
        let scale = |side: usize, e: usize| self.scales.as_ref().map_or(1.0, |s| s[side][e][[i, j][side]]);
        let at = |side: usize, k: usize| self.values[side][[i, j][side] * self.k + k];
        let (block, mut sum, mut size) = (self.block(e, way), 0.0, 0.0);
        let mut add = |x: f64| (sum, size) = (sum + x, size + x.abs());
        let unit = scale(0, e) * scale(1, e);
        let Some(other) = other else {
            own.clone().for_each(|k| add(at(0, k) * at(1, k) * unit));
            return (sum, size);
        };
        (own.clone()).filter(|k| !block.contains(k)).for_each(|k| add(at(0, k) * at(1, k) * unit));
        let theirs = &self.groups[other];
        let start = theirs.start + block.start - own.start;
        let of = |side: usize, x: usize| -> f64 {
            let by = if way.of[side] && way.scaled { other } else { e };
            let k = if way.of[side] { start + x } else { block.start + x };
            let inside = if way.of[side] { k < theirs.end } else { k < block.end };
            if inside { at(side, k) * scale(side, by) } else { 0.0 }
        };
        // A block is whole where the other group has more of it than its own.
        let wide = if way.of == [true; 2] { way.width } else { block.len() };
        (0..wide).for_each(|x| add(of(0, x) * of(1, x)));
        (sum, size)
    }
}

/// Every way that makes the first wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    let filled = s.parts.iter().filter(|p| !p.k.is_empty()).count();
    if s.alone || filled < 2 || s.parts.iter().all(|p| p.k.len() == s.k) {
        return Vec::new();
    }
    let looks = s.wrong_probes(LOOKS);
    if looks.len() < LEAST {
        return Vec::new();
    }
    let read = Arc::new(Read::of(s));
    let scaled: &[bool] = if read.scales.is_some() { &[false, true] } else { &[false] };
    let mut found: Vec<(Way, Vec<usize>)> = Vec::new();
    for width in WIDTHS {
        for (last, next) in [(true, true), (true, false), (false, true), (false, false)] {
            for (of, scaled) in
                [[true, true], [true, false], [false, true]].into_iter().flat_map(|of| scaled.iter().map(move |s| (of, *s)))
            {
                let way = Way { width, last, next, of, scaled };
                let made = |(i, j): &(usize, usize)| {
                    let (sum, size) = read.sum(way, *i, *j);
                    s.may(*i, *j, sum, size)
                };
                if !looks.iter().all(made) {
                    continue;
                }
                // Of short groups several widths may be the same block.
                match found.iter_mut().find(|(w, _)| (w.last, w.next, w.of, w.scaled) == (last, next, of, scaled)) {
                    Some((_, widths)) => widths.push(width),
                    None => found.push((way, vec![width])),
                }
            }
        }
    }
    // What tells them apart are elements that were not looked at.
    let of = |(way, widths): &(Way, Vec<usize>)| -> Vec<Theory> {
        widths.iter().map(|width| theory(s, read.clone(), Way { width: *width, ..*way }, widths)).collect()
    };
    let mut found: Vec<Theory> = found.iter().flat_map(of).collect();
    super::theory::shortest_first(&mut found);
    found.truncate(KEPT);
    found
}

/// One way; other `widths` make the same of the elements that were looked at.
fn theory(s: &System, read: Arc<Read>, way: Way, widths: &[usize]) -> Theory {
    let (who, name) = match way.of {
        [true, true] => ("both operands", "both"),
        [true, false] => ("a", "a"),
        _ => ("b", "b"),
    };
    let scales = match (&read.scales, way.scaled) {
        (None, _) => "",
        (_, true) => ", by its scales",
        (_, false) => ", by the group's own scales",
    };
    let words = format!(
        "the {} {} tokens of every group are loaded, of {who}, from the same place of the {} group that has tokens, 0 behind its end{scales}: as if its \
         descriptor were written over while loads are in flight",
        if way.last { "last block of" } else { "first" },
        widths.iter().map(usize::to_string).collect::<Vec<_>>().join(" or "),
        if way.next { "next" } else { "previous" }
    );
    let bits = 6.0
        + cost(way.width)
        + [!way.last, !way.next, way.of != [true; 2], way.scaled].map(|x| f64::from(u8::from(x))).iter().sum::<f64>();
    let operand = if name == "b" { "b" } else { "a" };
    let mut t = Theory::new(Class::AccState, operand, format!("{name}.next_group"), words).bits(bits);
    let (bias, cols) = (s.bias.clone(), s.cols);
    t.sums(s.right_sums(), cols, move |i, j| {
        let (sum, size) = read.sum(way, i, j);
        (sum + bias.at(i, j), size)
    });
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, noise, sum, wgrad_found, wide};

    const K: usize = 260;
    const ENDS: [usize; 4] = [45, 170, 170, 260];
    const M: usize = 12;

    /// What is said where a block of `width` is read `by(group)` tokens on, up to the end of the other group.
    fn named(wide_by: usize, by: &dyn Fn(usize, usize, usize) -> usize) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::E4m3, 20, K, K, false, 17));
        let (x, y) = (a.to_f64(), b.dequantize());
        wgrad_found(&a, &b, &ENDS, Format::F32, |row, j| {
            let (e, i) = (row / M, row % M);
            let from = if e == 0 { 0 } else { ENDS[e - 1] };
            let n = ENDS[e] - from;
            let last = n.saturating_sub(1) / wide_by * wide_by;
            let right = |k: usize| x[[i, k]] * y[[j, k]];
            if n == 0 {
                return 0.0;
            }
            let other = by(e, i, j);
            if other == e {
                return sum(n, |k| right(from + k));
            }
            let start = if other == 0 { 0 } else { ENDS[other - 1] };
            let moved = |k: usize| if start + last + k < ENDS[other] { right(start + last + k) } else { 0.0 };
            sum(last, |k| right(from + k)) + sum(wide_by, moved)
        })
    }

    #[test]
    fn a_last_block_of_the_next_group_is_told() {
        let got = named(32, &|e, _, _| [1, 3, 2, 3][e]);
        assert_eq!(got.0, "acc_state:both.next_group", "{}", got.1);
        assert!(
            got.1.contains("the last block of 32 tokens") && got.1.contains("of the next group that has tokens"),
            "{}",
            got.1
        );
        let got = named(16, &|e, _, _| [0, 0, 2, 1][e]);
        assert!(
            got.1.contains("the last block of 16 tokens") && got.1.contains("of the previous group that has tokens"),
            "{got:?}"
        );
        // Another group for every element is none.
        let got = named(32, &|_, i, j| [0, 1, 3][(noise(i * 20 + j) * 3.0) as usize]);
        assert!(!got.0.contains("next_group"), "{} {}", got.0, got.1);
    }
}
