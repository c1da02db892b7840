//! Theories of tiles along K that are written to shared memory at one pitch and read at another: every row but the first reads shifted data.
//!
//! ```text
//! row i, column c of a tile of w:   stored at i·p + c,   read from i·q + c        p ≠ q; between w and p nothing
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Widths of tiles along K, and heights of tiles of rows.
const WIDTHS: [usize; 5] = [16, 32, 64, 128, 256];
const HEIGHTS: [usize; 5] = [16, 32, 64, 128, 256];

/// A tile: what of K it holds, how it is stored and read, of how many rows.
#[derive(Clone, Copy, PartialEq)]
struct Staged {
    from: usize,
    wide: usize,
    /// Whether all tiles of K are such, or only what is left of K behind `from`.
    all: bool,
    stored: usize,
    read: usize,
    high: usize,
}

impl Staged {
    /// Where row i, column k comes from; `None`: nothing lies there.
    fn place(&self, i: usize, k: usize, rows: usize) -> Option<(usize, usize)> {
        if k < self.from {
            return Some((i, k));
        }
        let (first, start) = (i / self.high * self.high, if self.all { k / self.wide * self.wide } else { self.from });
        let flat = (i - first) * self.read + k - start;
        let (row, col) = (first + flat / self.stored, flat % self.stored);
        (col < self.wide && row < rows.min(first + self.high)).then_some((row, start + col))
    }
}

/// Pitches that do not agree, of either operand.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    [Which::A, Which::B].into_iter().flat_map(|side| of(s, side)).collect()
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let (rows, k_all) = (s.given(side).rows, s.k);
    let mut ways: Vec<Staged> = Vec::new();
    for tile in WIDTHS.into_iter().filter(|t| *t < k_all) {
        for (from, wide, all) in [(k_all / tile * tile, k_all % tile, false), (0, tile, true)] {
            if wide == 0 || all && !k_all.is_multiple_of(tile) {
                continue;
            }
            let padded = [8usize, 16, 32, 64].into_iter().flat_map(|p| [wide + p, wide.next_multiple_of(p), tile + p, tile]);
            for other in padded.filter(|p| *p > wide) {
                for high in HEIGHTS.into_iter().filter(|h| *h < rows).chain([rows]) {
                    let way = Staged { from, wide, all, stored: other, read: wide, high };
                    for way in [way, Staged { stored: wide, read: other, ..way }] {
                        if !ways.contains(&way) {
                            ways.push(way);
                        }
                    }
                }
            }
        }
    }
    let name = side.name();
    let theory = |way: Staged| {
        let tiles = if way.all { format!("every {} of K", way.wide) } else { format!("K {} … {}", way.from, k_all - 1) };
        let high = if way.high < rows { format!(", {} rows at a time", way.high) } else { String::new() };
        let words = format!(
            "{tiles} of {name} is staged at a row pitch of {} and read at a pitch of {}{high}: every row but the first reads shifted data",
            way.stored, way.read
        );
        let bits = 6.0 + cost(way.stored) + cost(way.read) + if way.high < rows { cost(way.high) } else { 0.0 };
        let mut t = Theory::new(Class::Addressing, name, format!("{name}.pitch"), words).bits(bits);
        t.side(side).code = Some(Arc::new(move |i, k| way.place(i, k, rows).map(|(i, k)| i * k_all + k)));
        t
    };
    ways.into_iter().map(theory).collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn a_last_tile_that_is_read_at_another_pitch_is_told() {
        let k_all = 88;
        let (a, b) = (wide(M, k_all), codes(Format::E4m3, N, k_all, k_all, false, 91));
        let (x, y) = (a.to_f64(), b.dequantize());
        // 24 of K behind the first 64, staged at a pitch of 32.
        let read = |i: usize, k: usize| {
            let flat = i * 24 + k - 64;
            if flat % 32 < 24 { x[[flat / 32, 64 + flat % 32]] } else { 0.0 }
        };
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            sum(k_all, |k| if k < 64 { x[[i, k]] } else { read(i, k) } * y[[j, k]])
        });
        assert_eq!(got.0, "addressing:a.pitch", "{}", got.1);
        assert!(got.1.contains("K 64 … 87 of a is staged at a row pitch of 32 and read at a pitch of 24"), "{}", got.1);
    }
}
