//! Tiles of the result that are stored further down the further to the right they are: an index of the whole block where that within a warp belongs.
//!
//! ```text
//! out[i, j] = right[i − h·⌊(j mod p) / w⌋, j]          and rows and columns exchanged; up in the place of down; 0 where nobody stores
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// What a step moves by, how wide one is, and how many of them there are.
const BY: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const WIDE: [usize; 5] = [8, 16, 32, 64, 128];
const STEPS: [usize; 4] = [2, 4, 8, 16];
/// Wrong elements that are looked at.
const LOOKS: usize = 24;
const LEAST: usize = 8;

#[derive(Clone, Copy)]
struct Way {
    by: usize,
    wide: usize,
    steps: usize,
    /// Rows move by columns.
    rows: bool,
    down: bool,
}

impl Way {
    /// The element that stands at (i, j). `None`: it would be before the first.
    fn from(self, i: usize, j: usize) -> Option<(usize, usize)> {
        let (line, along) = if self.rows { (i, j) } else { (j, i) };
        let off = along / self.wide % self.steps * self.by;
        let line = if self.down { line.checked_sub(off)? } else { line + off };
        Some(if self.rows { (line, j) } else { (i, line) })
    }
}

/// The skews that make the wrong elements of a single product.
pub fn theories(s: &System) -> Vec<Theory> {
    let looks = s.wrong_probes(LOOKS);
    if s.alone || s.parts.len() != 1 || looks.len() < LEAST {
        return Vec::new();
    }
    let made = |way: &Way, (i, j): &(usize, usize)| {
        let x = s.actual[i * s.cols + j];
        match way.from(*i, *j).filter(|(r, c)| *r < s.rows && *c < s.cols) {
            Some((r, c)) => s.is_right(r * s.cols + c, x),
            None => x == 0.0,
        }
    };
    let mut all = Vec::new();
    for (rows, down) in [(true, true), (true, false), (false, true), (false, false)] {
        let (lines, along) = if rows { (s.rows, s.cols) } else { (s.cols, s.rows) };
        for (by, wide) in
            BY.into_iter().flat_map(|by| WIDE.map(|wide| (by, wide))).filter(|(by, wide)| *by < lines && *wide < along)
        {
            // More steps than the result has are one and the same.
            let steps = STEPS.into_iter().filter(|n| n / 2 * wide < along);
            let ways = steps.map(|steps| Way { by, wide, steps, rows, down });
            let fits =
                |way: &Way| looks.iter().all(|at| made(way, at)) && looks.iter().any(|(i, j)| way.from(*i, *j).is_some());
            all.extend(ways.filter(fits).map(|way| theory(s, way)));
        }
    }
    all
}

fn theory(s: &System, way: Way) -> Theory {
    let (line, along, letter, other) = if way.rows { ("rows", "columns", "i", "j") } else { ("columns", "rows", "j", "i") };
    let (sign, end) = if way.down { ("−", "before the first") } else { ("+", "behind the last") };
    let words = format!(
        "{line} of the result are moved by {along}: {letter} holds {letter} {sign} {}·⌊({other} mod {}) / {}⌋; what would come from {end} is 0",
        way.by,
        way.wide * way.steps,
        way.wide
    );
    let bits = 4.0 + cost(way.by) + cost(way.wide) + cost(way.steps);
    let mut t = Theory::new(Class::Addressing, "out", "out.skewed", words).bits(bits);
    let (rows, cols) = (s.rows, s.cols);
    t.from = Some(Arc::new(move |i, j| way.from(i, j).filter(|(r, c)| *r < rows && *c < cols)));
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, wide};

    #[test]
    fn rows_that_are_lower_the_further_right_are_told() {
        let (m, n) = (56, 160);
        let (a, b) = (wide(m, 64), codes(Format::Int8, n, 64, 64, false, 96));
        let of = |off: &dyn Fn(usize) -> usize| {
            found(&a, &b, None, Format::F32, |i, j, right| i.checked_sub(off(j)).map_or(0.0, |from| right[from * n + j]))
        };
        let got = of(&|j| j % 64 / 16 * 8);
        assert_eq!(got.0, "addressing:out.skewed", "{}", got.1);
        assert!(got.1.starts_with("rows of the result are moved by columns: i holds i − 8·⌊(j mod 64) / 16⌋;"), "{}", got.1);
        // Offsets in another order are no skew.
        let got = of(&|j| [0, 24, 8, 16][j % 64 / 16]);
        assert!(!got.0.contains("skewed"), "{} {}", got.0, got.1);
    }
}
