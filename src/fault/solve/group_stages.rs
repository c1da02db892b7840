//! One stage of K that holds another, of one operand of a grouped product: of a group's own K, or of tokens that are the next group's.
//!
//! ```text
//! out[e] = Σ_k a(k)·b(k), but for k in one slice: a(k + d)·b(k)          slices of w from the group's first token on, or counted from its last slice
//! ```

use super::experts::group_scales;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::ops::Range;
use std::sync::Arc;

/// Widths of stages.
const WIDTHS: [usize; 5] = [16, 32, 64, 128, 256];
/// Wrong elements that a stage is told by, at least and at most.
const LEAST: usize = 6;
const LOOKS: usize = 24;
/// Multiply-adds of one element, and stages that are handed on.
const WORK: usize = 1 << 26;
const KEPT: usize = 4;

/// A slice that is read for another one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moved {
    width: usize,
    /// The slice of each group that is wrong, counted from the last one or from the first.
    last: bool,
    slice: usize,
    /// How many tokens behind it what is read lies.
    by: isize,
}

impl Moved {
    /// What a slice of a group's K is read from; nothing where it has none, or where that is no token.
    fn place(self, own: &Range<usize>, k: usize) -> Option<(Range<usize>, usize)> {
        let n = own.len().div_ceil(self.width);
        let at = if self.last { (n.checked_sub(1)?).checked_sub(self.slice)? } else { self.slice };
        let from = own.start + at * self.width;
        let slice = from..(from + self.width).min(own.end);
        (at < n && !slice.is_empty()).then_some(())?;
        let source = from.checked_add_signed(self.by)?;
        (source + slice.len() <= k).then_some((slice, source))
    }
}

/// One operand's values, as the kernel reads a token in the place of another.
struct Read<'s> {
    s: &'s System<'s>,
    side: Which,
    /// The codes of a token with the scale of the place where it is read, and not with its own.
    codes: bool,
    /// One number for each group and line, of operands whose groups are quantized by themselves.
    scales: Option<Vec<Vec<f64>>>,
    /// The group of every token.
    group: Vec<Option<usize>>,
}

impl Read<'_> {
    fn value(&self, row: usize, at: usize, from: usize) -> f64 {
        let g = self.s.given(self.side);
        match (&g.q, &self.scales) {
            _ if !self.codes => g.values[row * g.k + from],
            (Some(q), _) => g.decoded(q.codes()[row * g.k + from], row / g.tile.0 * g.grid.1 + at / g.tile.1),
            (None, Some(scales)) => {
                let scale = |k: usize| self.group[k].map_or(1.0, |e| scales[e][row]);
                g.values[row * g.k + from] / scale(from) * scale(at)
            }
            _ => g.values[row * g.k + from],
        }
    }
}

/// All of them, of either operand.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() < 2 {
        return Vec::new();
    }
    let inside = |(i, j): &(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(*i, *j)) && s.is_wrong[i * s.cols + j];
    let probes: Vec<(usize, usize)> = s.probes.iter().copied().filter(inside).take(LOOKS).collect();
    if probes.len() < LEAST {
        return Vec::new();
    }
    let tokens = s.parts.iter().any(|p| p.k.len() != s.k);
    let mut group = vec![None; s.k];
    if tokens {
        s.parts.iter().enumerate().for_each(|(e, p)| group[p.k.clone()].fill(Some(e)));
    }
    // One number of a line is the same for all of its K, of values too.
    let mut all = Vec::new();
    for side in [Which::A, Which::B] {
        let scales = group_scales(s, side);
        let other = s.given(side).q.is_some() && s.given(side).grid.1 > 1 || tokens && scales.is_some();
        for codes in if other { &[false, true][..] } else { &[false] } {
            let read = Read { s, side, codes: *codes, scales: scales.clone(), group: group.clone() };
            for width in WIDTHS {
                all.extend(of(&read, width, &probes, tokens));
            }
        }
    }
    all
}

fn of(read: &Read, width: usize, probes: &[(usize, usize)], tokens: bool) -> Vec<Theory> {
    let s = read.s;
    let groups: Vec<usize> = {
        let mut all: Vec<usize> = probes.iter().filter_map(|(i, _)| s.part[*i]).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let longest = groups.iter().map(|e| s.parts[*e].k.len()).max().unwrap_or(0);
    let (n, far) = (longest.div_ceil(width), s.k.div_ceil(width));
    if n == 0 || far < 2 || 2 * n * far * 2 * width > WORK {
        return Vec::new();
    }
    let same = |moved: &Moved| groups.len() == 1 && moved.last;
    let slices = [false, true].into_iter().flat_map(|last| (0..n).map(move |slice| (last, slice)));
    let mut left: Vec<Moved> = slices
        .flat_map(|(last, slice)| {
            let steps = (1 - far as isize..far as isize).filter(|d| *d != 0);
            steps.map(move |d| Moved { width, last, slice, by: d * width as isize })
        })
        .filter(|moved| !same(moved))
        .collect();
    for (i, j) in probes {
        let Some((ra, rb, own)) = s.lines(*i, *j) else { return Vec::new() };
        let (mine, theirs) = if read.side == Which::A { (ra, rb) } else { (rb, ra) };
        let (g, o) = (s.given(read.side), s.given(read.side.other()));
        let product = |at: usize, x: f64| x * o.values[theirs * o.k + at];
        let right = |k: usize| product(k, g.values[mine * g.k + k]);
        let sums: Vec<(f64, f64)> = std::iter::once((0.0, 0.0))
            .chain(own.clone().scan((0.0, 0.0), |sum, k| {
                let p = right(k);
                *sum = (sum.0 + p, sum.1 + p.abs());
                Some(*sum)
            }))
            .collect();
        let whole = sums[own.len()];
        left.retain(|moved| {
            let Some((slice, source)) = moved.place(&own, s.k) else { return false };
            let (from, to) = (sums[slice.start - own.start], sums[slice.end - own.start]);
            let (mut sum, mut size) = (whole.0 - to.0 + from.0, whole.1 - to.1 + from.1);
            for k in slice.clone() {
                let p = product(k, read.value(mine, k, source + k - slice.start));
                (sum, size) = (sum + p, size + p.abs());
            }
            s.may(*i, *j, sum, size)
        });
        if left.is_empty() {
            return Vec::new();
        }
    }
    left.truncate(KEPT);
    left.into_iter().map(|moved| theory(read, moved, &groups, tokens)).collect()
}

fn theory(read: &Read, moved: Moved, groups: &[usize], tokens: bool) -> Theory {
    let (s, name) = (read.s, read.side.name());
    let lines = |k: &Range<usize>| format!("{} … {}", k.start, k.end - 1);
    let one = |e: &usize| -> Option<String> {
        let (slice, source) = moved.place(&s.parts[*e].k, s.k)?;
        let from = source..source + slice.len();
        if !tokens {
            return Some(format!("for K {} that of {}", lines(&slice), lines(&from)));
        }
        let mut owners: Vec<Option<usize>> = from.clone().map(|k| read.group[k]).collect();
        owners.dedup();
        let whose = match owners[..] {
            [Some(x)] if x == *e => String::new(),
            [Some(x)] => format!(", which are group {x}'s"),
            [None] => ", which are no group's".into(),
            _ => ", which are of several groups".into(),
        };
        Some(format!("for tokens {} of group {e} those of {}{whose}", lines(&slice), lines(&from)))
    };
    let mut some: Vec<String> = groups.iter().take(4).filter_map(one).collect();
    some.dedup();
    let own = if read.codes { " (codes, not their scales)" } else { "" };
    let words = format!("{name} is read from another stage: {}{own}", some.join(", "));
    let bits = 5.0 + cost(moved.slice) + cost(moved.by.unsigned_abs() / moved.width) + f64::from(u8::from(read.codes));
    let mut t = Theory::new(Class::AccState, name, format!("{name}.stage"), words).bits(bits);
    // Where every k is read from: groups of tokens have their own.
    let mut to: Vec<usize> = (0..s.k).collect();
    let of: Vec<usize> = if tokens { groups.to_vec() } else { groups.iter().copied().take(1).collect() };
    for (slice, source) in of.iter().filter_map(|e| moved.place(&s.parts[*e].k, s.k)) {
        slice.clone().for_each(|k| to[k] = source + k - slice.start);
    }
    let g = s.given(read.side);
    let held = Read { s, side: read.side, codes: read.codes, scales: read.scales.clone(), group: read.group.clone() };
    let (rows, k_all) = (g.rows, g.k);
    let mut values = g.values.to_vec();
    for k in (0..k_all).filter(|k| to[*k] != *k) {
        (0..rows).for_each(|row| values[row * k_all + k] = held.value(row, k, to[k]));
    }
    t.side(read.side).value = Some(Arc::new(move |i, k| values[i * k_all + k]));
    t
}
