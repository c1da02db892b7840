//! Fragments of accumulators that go through a staging tile one after the other, without a barrier: a half of each is read before it is stored, and is
//! that of the fragment before. The first one of a subgroup reads 0.
//!
//! ```text
//! out[fragment f, half h] = right[fragment f − 1, half h]          f: row by row or column by column in each subgroup; 0 for f = 0
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Rows or columns of a fragment, and fragments of a subgroup each way.
const SIDES: [usize; 3] = [8, 16, 32];
const COUNTS: [usize; 3] = [1, 2, 4];
/// Wrong elements that are looked at.
const LOOKS: usize = 24;
const LEAST: usize = 8;

/// Which fragments follow each other, and what of each is late.
#[derive(Clone, Copy)]
struct Way {
    high: usize,
    wide: usize,
    /// Fragments of a subgroup.
    down: usize,
    across: usize,
    by_row: bool,
    /// The half is one of columns, and the second.
    cols: bool,
    second: bool,
}

impl Way {
    fn is_late(self, i: usize, j: usize) -> bool {
        if self.cols {
            (j % self.wide >= self.wide / 2) == self.second
        } else {
            (i % self.high >= self.high / 2) == self.second
        }
    }

    /// The element that stands in the place of (i, j), which is late. `None`: nothing was there.
    fn from(self, i: usize, j: usize) -> Option<(usize, usize)> {
        let (r, c) = (i / self.high % self.down, j / self.wide % self.across);
        let (i0, j0) = (i - r * self.high, j - c * self.wide);
        let nth = if self.by_row { r * self.across + c } else { c * self.down + r }.checked_sub(1)?;
        let (r, c) = if self.by_row { (nth / self.across, nth % self.across) } else { (nth % self.down, nth / self.down) };
        Some((i0 + r * self.high, j0 + c * self.wide))
    }
}

fn ways() -> impl Iterator<Item = Way> {
    let fragments = SIDES.into_iter().flat_map(|high| SIDES.map(|wide| (high, wide)));
    let counts = COUNTS.into_iter().flat_map(|down| COUNTS.map(|across| (down, across))).filter(|(d, a)| d * a > 1);
    let sizes = fragments.flat_map(move |f| counts.clone().map(move |n| (f, n)));
    let halves = [(true, true), (true, false), (false, true), (false, false)];
    sizes.flat_map(move |((high, wide), (down, across))| {
        // A single line of fragments has one order.
        let orders: &'static [bool] = if down > 1 && across > 1 { &[true, false] } else { &[true] };
        let one = move |by_row: &bool| {
            let by_row = *by_row;
            halves.map(move |(cols, second)| Way { high, wide, down, across, by_row, cols, second })
        };
        orders.iter().flat_map(one)
    })
}

/// The ways that make the wrong elements; rows are those of their group.
pub fn theories(s: &System) -> Vec<Theory> {
    let looks = s.wrong_probes(LOOKS);
    if s.alone || looks.len() < LEAST {
        return Vec::new();
    }
    let start = |i: usize| s.part[i].map(|p| s.parts[p].rows.clone());
    let made = |way: &Way, (i, j): &(usize, usize)| {
        let Some(rows) = start(*i).filter(|rows| way.is_late(i - rows.start, *j)) else { return false };
        let x = s.actual[i * s.cols + j];
        match way.from(i - rows.start, *j).map(|(r, c)| (rows.start + r, c)).filter(|(r, c)| *r < rows.end && *c < s.cols) {
            Some((r, c)) => s.is_right(r * s.cols + c, x),
            None => x == 0.0,
        }
    };
    let fits = ways().filter(|w| w.high * w.down < 2 * s.rows && w.wide * w.across < 2 * s.cols);
    fits.filter(|way| looks.iter().all(|at| made(way, at))).map(|way| theory(s, way)).collect()
}

fn theory(s: &System, way: Way) -> Theory {
    let which = match (way.cols, way.second) {
        (true, false) => format!("columns 0 … {}", way.wide / 2 - 1),
        (true, true) => format!("columns {} … {}", way.wide / 2, way.wide - 1),
        (false, false) => format!("rows 0 … {}", way.high / 2 - 1),
        (false, true) => format!("rows {} … {}", way.high / 2, way.high - 1),
    };
    let order = if way.by_row { "row by row" } else { "column by column" };
    let words = format!(
        "{which} of each fragment of {}×{} hold those of the fragment before, of {} in every {}×{} {order}; 0 in the first: they are read before they \
         are stored",
        way.high,
        way.wide,
        way.down * way.across,
        way.high * way.down,
        way.wide * way.across
    );
    let bits = 6.0 + cost(way.high) + cost(way.wide) + cost(way.down) + cost(way.across);
    let mut t = Theory::new(Class::Race, "out", "out.fragment_before", words).bits(bits);
    let rows: Vec<_> = (0..s.rows).map(|i| s.part[i].map(|p| s.parts[p].rows.clone())).collect();
    let cols = s.cols;
    t.from = Some(Arc::new(move |i, j| {
        let Some(rows) = rows[i].as_ref().filter(|rows| way.is_late(i - rows.start, j)) else { return Some((i, j)) };
        let (r, c) = way.from(i - rows.start, j)?;
        (rows.start + r < rows.end && c < cols).then_some((rows.start + r, c))
    }));
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, grouped_found, noise, sum, wide};

    const K: usize = 64;

    #[test]
    fn halves_of_fragments_that_are_late_are_told() {
        let (m, n) = (48, 64);
        let (a, b) = (wide(m, K), codes(Format::E4m3, n, K, K, false, 94));
        // Fragments of 8×16, 2×2 of them column by column; rows 0 … 3 of each are late.
        let of = |from: &dyn Fn(usize, usize) -> Option<(usize, usize)>| {
            found(&a, &b, None, Format::F32, |i, j, right| {
                let at = if i % 8 < 4 { from(i, j) } else { Some((i, j)) };
                at.map_or(0.0, |(r, c)| right[r * n + c])
            })
        };
        let got = of(&|i, j| match (i / 8 % 2, j / 16 % 2) {
            (0, 0) => None,
            (1, _) => Some((i - 8, j)),
            _ => Some((i + 8, j - 16)),
        });
        assert_eq!(got.0, "race:out.fragment_before", "{}", got.1);
        let words =
            "rows 0 … 3 of each fragment of 8×16 hold those of the fragment before, of 4 in every 16×32 column by column";
        assert!(got.1.contains(words), "{}", got.1);
        // Those of fragments in no order.
        let one = |i: usize, j: usize| noise(900 + i / 8 * 10 + j / 16);
        let got = of(&|i, j| Some(((6.0 * one(i, j)) as usize * 8 + i % 8, (40.0 * one(i, j)) as usize % 4 * 16 + j % 16)));
        assert!(!got.0.contains("fragment_before"), "{} {}", got.0, got.1);
    }

    #[test]
    fn fragments_of_groups_start_with_their_rows() {
        let (m, n, ends) = (52, 64, [20, 52]);
        let (a, b) = (wide(m, K), codes(Format::Int8, 2 * n, K, K, false, 95));
        let (x, y) = (a.to_f64(), b.dequantize());
        let right = |i: usize, j: usize| sum(K, |k| x[[i, k]] * y[[usize::from(i >= 20) * n + j, k]]);
        let got = grouped_found(&a, &b, &ends, Format::F32, |i, j| {
            let start = if i < 20 { 0 } else { 20 };
            match (j % 16 >= 8, (i - start) / 16 % 2, j / 16 % 2) {
                (false, ..) => right(i, j),
                (_, 0, 0) => 0.0,
                (_, _, 1) => right(i, j - 16),
                _ => right(i - 16, j + 16),
            }
        });
        assert_eq!(got.0, "race:out.fragment_before", "{}", got.1);
        let words =
            "columns 8 … 15 of each fragment of 16×16 hold those of the fragment before, of 4 in every 32×32 row by row";
        assert!(got.1.contains(words), "{}", got.1);
    }
}
