//! Tiles of a grouped product whose last (or first) slice of K holds rows of another group, at the same place of it: the group's descriptor of a is written
//! over while loads by it are in flight, in the tiles that a block makes last.
//!
//! ```text
//! out[i, j] = Σ_{k ∉ slice} a(i, k)·b(j, k) + Σ_{k ∈ slice} a(i', k)·b(j, k)         i' = start of the other group + i − start of its own
//! ```
//! Scales of rows stay their own where the codes alone are loaded so. Rows behind the other group's last are those that follow in memory, or nothing.

use super::maps::cost;
use super::segment::places;
use super::system::{Region, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::ops::Range;
use std::sync::Arc;

/// Widths of slices, and of tiles of columns.
const WIDTHS: [usize; 6] = [16, 32, 64, 128, 256, 512];
const SIDES: [usize; 6] = [256, 192, 128, 64, 32, 16];
/// Wrong elements that are asked, at least and at most.
const LEAST: usize = 8;
const LOOKS: usize = 24;
/// Ways that are kept: all elements decide between those that a few allow.
const KEPT: usize = 8;
/// The share of a tile that has to be wrong, where it is not all right.
const DENSE: f64 = 0.7;

/// What is read in the place of the slice.
#[derive(Clone, Copy, PartialEq)]
struct Way {
    /// The next group that has rows, or the one before.
    next: bool,
    last: bool,
    width: usize,
    codes: bool,
    /// Rows behind the other group's last are 0.
    ends: bool,
}

/// The slice and the group, in all that is wrong of some tiles.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() < 2 || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let looks = s.wrong_probes(LOOKS);
    if looks.len() < LEAST {
        return Vec::new();
    }
    let codes: &[bool] = if s.a.q.is_some() && s.a.zero.is_none() { &[true, false] } else { &[false] };
    let mut ways = Vec::new();
    for width in WIDTHS.into_iter().filter(|w| *w < s.k) {
        for (next, last) in [(true, true), (false, true), (true, false), (false, false)] {
            for codes in codes {
                ways.extend([false, true].map(|ends| Way { next, last, width, codes: *codes, ends }));
            }
        }
    }
    let made = |way: Way| looks.iter().all(|(i, j)| makes(s, way, *i, *j));
    let Some(region) = region(s) else { return Vec::new() };
    ways.into_iter().filter(|way| made(*way)).filter_map(|way| theory(s, way, region.clone())).take(KEPT).collect()
}

/// The slice of K.
fn slice(s: &System, way: Way) -> Range<usize> {
    match way.last {
        true => (s.k - 1) / way.width * way.width..s.k,
        false => 0..way.width,
    }
}

/// The row of a that stands in the place of the row of element row i. `None`: there is no other group; and no row, where there is nothing.
fn other(s: &System, way: Way, i: usize) -> Option<Option<usize>> {
    let e = s.part[i]?;
    let filled = |e: &usize| !s.parts[*e].rows.is_empty();
    let f = if way.next { (e + 1..s.parts.len()).find(filled) } else { (0..e).rfind(filled) }?;
    let row = s.parts[f].a + i - s.parts[e].rows.start;
    let end = if way.ends { s.parts[f].a + s.parts[f].rows.len() } else { s.a.rows };
    Some(Some(row).filter(|row| *row < end))
}

/// A value of a as it is read for row `own` from row `from`.
fn read(s: &System, way: Way, own: usize, from: Option<usize>, k: usize) -> f64 {
    let Some(from) = from else { return 0.0 };
    match (&s.a.q, way.codes) {
        (Some(q), true) => s.a.decoded(q.codes()[from * s.a.k + k], own / s.a.tile.0 * s.a.grid.1 + k / s.a.tile.1),
        _ => s.a.values[from * s.a.k + k],
    }
}

/// Whether an element is what a way makes.
fn makes(s: &System, way: Way, i: usize, j: usize) -> bool {
    let (Some(from), Some((own, b, _))) = (other(s, way, i), s.lines(i, j)) else { return false };
    let (mut more, mut size) = (0.0, 0.0);
    for k in slice(s, way) {
        let (x, y) = (read(s, way, own, from, k), s.b.values[b * s.b.k + k]);
        more += (x - s.a.values[own * s.a.k + k]) * y;
        size += (x * y).abs();
    }
    let at = i * s.cols + j;
    s.may(i, j, s.ideal[at] - s.bias.at(i, j) + more, s.magnitude(at) + size)
}

/// The tiles that are wrong: of all rows of a group and some columns, each wrong as a whole beside others that are right.
fn region(s: &System) -> Option<Region> {
    SIDES.into_iter().filter(|w| *w < s.cols).chain([s.cols]).find_map(|wide| {
        let across = s.cols.div_ceil(wide);
        let mut tiles = Vec::new();
        for p in s.parts.iter().filter(|p| !p.rows.is_empty()) {
            for x in 0..across {
                let cols = x * wide..((x + 1) * wide).min(s.cols);
                let all = p.rows.len() * cols.len();
                let of_row = |i: usize| cols.clone().filter(|j| s.is_wrong[i * s.cols + j]).count();
                let count: usize = p.rows.clone().map(of_row).sum();
                // What is right by chance is so all over.
                if count > 0 {
                    (count as f64 >= DENSE * all as f64).then_some(())?;
                    tiles.push((p.rows.clone(), cols));
                }
            }
        }
        let is_row = |i: usize| tiles.iter().any(|t: &(Range<usize>, Range<usize>)| t.0.contains(&i));
        let is_col = |j: usize| tiles.iter().any(|t| t.1.contains(&j));
        let words = format!("tiles of a group's rows and {wide} columns: {}", places(&tiles));
        Some(Region { rows: (0..s.rows).map(is_row).collect(), cols: (0..s.cols).map(is_col).collect(), tiles, words })
    })
}

fn theory(s: &System, way: Way, region: Region) -> Option<Theory> {
    let k = slice(s, way);
    // Rows of a as they are read; those of the right ones are asked for outside of the slice.
    let mut from: Vec<Option<usize>> = vec![None; s.a.rows];
    for i in (0..s.rows).filter(|i| region.rows[*i]) {
        let part = &s.parts[s.part[i]?];
        from[part.a + i - part.rows.start] = other(s, way, i)?;
    }
    let width = k.len();
    let held: Vec<f64> = (0..s.a.rows * width).map(|x| read(s, way, x / width, from[x / width], k.start + x % width)).collect();
    let (values, all, start) = (s.a.values.clone(), s.a.k, k.start);
    let which = if way.next { "the next group that has rows" } else { "the group before that has rows" };
    let what = if way.codes { " (codes, not their scales)" } else { "" };
    let behind = if way.ends { ", 0 behind its last" } else { "" };
    let words = format!(
        "a is read from another group for K {} … {}{what}: the rows of {which}, at the same place in it{behind}, as by a descriptor that is written over \
         while loads by it are in flight, in {}",
        k.start,
        k.end - 1,
        region.words
    );
    let bits = 12.0 + cost(way.width) + [!way.next, !way.last, way.ends].iter().map(|x| f64::from(u8::from(*x))).sum::<f64>();
    let mut t = Theory::new(Class::Race, "a", "a.other_group", words).bits(bits + 2.0 * region.tiles.len() as f64);
    t.side(Which::A).value = Some(Arc::new(move |i, k| match k.checked_sub(start).filter(|x| *x < width) {
        Some(x) => held[i * width + x],
        None => values[i * all + k],
    }));
    t.region = Some(Arc::new(region));
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, noise, sum};
    use crate::job::Operand;

    const N: usize = 80;
    const K: usize = 144;
    const ENDS: [usize; 4] = [20, 32, 57, 75];

    /// What is said where row i of the tiles that are `hit` reads K `from` … from row `of(e, i)`, nothing where there is none, by the row's own scale.
    fn named(hit: &dyn Fn(usize, usize) -> bool, from: usize, of: &dyn Fn(usize, usize) -> Option<usize>) -> (String, String) {
        let (a, b) = (codes(Format::E4m3, 75, K, K, false, 5), codes(Format::E4m3, 4 * N, K, K, false, 23));
        let (q, y) = (a.clone(), b.dequantize());
        grouped_found(&Operand::Quantized(a), &b, &ENDS, Format::Bf16, |i, j| {
            let e = ENDS.iter().filter(|end| **end <= i).count();
            let code = |row: usize, k: usize| Format::E4m3.decode(u32::from(q.codes()[row * K + k]));
            let read = |k: usize| {
                let row = if hit(e, j / 32) && k >= from { of(e, i) } else { Some(i) };
                row.map_or(0.0, |row| code(row, k))
            };
            sum(K, |k| read(k) * y[[e * N + j, k]]) * f64::from(q.scale_inv()[i])
        })
    }

    #[test]
    fn rows_of_the_next_group_in_the_last_slice_are_told() {
        let start = |e: usize| if e == 0 { 0 } else { ENDS[e - 1] };
        let hit = |e: usize, x: usize| (e == 0 && x == 1) || (e == 2 && x != 1);
        let got = named(&hit, 128, &|e, i| Some(ENDS[e] + i - start(e)).filter(|row| *row < 75));
        assert_eq!(got.0, "race:a.other_group", "{}", got.1);
        assert!(got.1.contains("for K 128 … 143 (codes, not their scales): the rows of the next group"), "{}", got.1);
        assert!(got.1.contains("32 columns: rows 0 … 19 × columns 32 … 63, rows 32 … 56 × columns 0 … 31"), "{}", got.1);
        let got = named(&hit, 128, &|e, i| Some(ENDS[e] + i - start(e)).filter(|row| *row < ENDS[e + 1]));
        assert!(got.1.contains("at the same place in it, 0 behind its last"), "{} {}", got.0, got.1);
        // Rows of chance are no group's.
        let got = named(&hit, 128, &|_, i| Some((noise(i) * 75.0) as usize));
        assert!(!got.0.contains("other_group"), "{} {}", got.0, got.1);
    }
}
