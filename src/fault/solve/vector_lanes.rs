//! A vector that is loaded where one element is to be broadcast: each lane multiplies another element of the row.
//!
//! ```text
//! out[i, j] = Σ_k memory_a[i·K + k + j mod w] · B(j, k)            w lanes; right: memory_a[i·K + k]. a and b exchanged too
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{Region, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

const WIDTHS: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// Of both operands, with a tail of columns (or rows) that fills no vector right, or not.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    // A vector is no longer than a row.
    let of = |side| WIDTHS.into_iter().filter(|w| *w <= s.k).flat_map(move |w| [(side, w, true), (side, w, false)]);
    let ways = of(Which::A).chain(of(Which::B));
    let whole = |side: Which, wide: usize| (if side == Which::A { s.cols } else { s.rows }) / wide * wide;
    let shared = Shared {
        given: [Which::A, Which::B].map(|side| s.given(side).clone()),
        lines: Arc::new((0..s.rows).map(|i| s.lines(i, 0).map(|(a, b, _)| (a, b))).collect()),
        right: s.right_sums(),
        last: [
            Arc::new(s.actual[(s.rows - 1) * s.cols..].to_vec()),
            Arc::new((0..s.rows).map(|i| s.actual[(i + 1) * s.cols - 1]).collect()),
        ],
    };
    // Of the last row, whatever lies behind it is read: it says nothing.
    let lines = |side: Which| if side == Which::A { s.rows } else { s.cols };
    ways.filter(|(side, w, tail)| lines(*side) > 1 && whole(*side, *w) > 0 && (*tail || whole(*side, *w) < whole(*side, 1)))
        .map(|(side, wide, tail)| of_lanes(s, &shared, side, wide, if tail { whole(side, wide) } else { usize::MAX }))
        .collect()
}

/// What all theories read, once.
struct Shared {
    given: [Arc<Given>; 2],
    lines: Arc<Vec<Option<(usize, usize)>>>,
    right: Arc<Vec<f64>>,
    /// What is written in the last row, and in the last column.
    last: [Arc<Vec<f64>>; 2],
}

/// Lines of the other operand from `end` on are right.
fn of_lanes(s: &System, shared: &Shared, side: Which, wide: usize, end: usize) -> Theory {
    let (name, they) = (side.name(), side.other().name());
    let g = shared.given[usize::from(side == Which::B)].clone();
    let other = s.given(side.other()).values.clone();
    let n = if side == Which::A { s.cols } else { s.rows };
    let (what, x) = if side == Which::A { ("column", "j") } else { ("row", "i") };
    let tail = if end < n { format!("; {what}s {end} … {}, which fill no vector, are right", n - 1) } else { String::new() };
    let words = format!(
        "of {name} a vector of {wide} along K is multiplied with {wide} {what}s of {they} where one element belongs to all of them: {what} {x} meets \
         {name} at k + {x} mod {wide}, past the end of the row the next one's{tail}"
    );
    let mut t = Theory::new(Class::Addressing, name, format!("{name}.vector_lanes"), words).bits(6.0 + cost(wide));
    // The first lane of each vector is right, as the tail is.
    let is = |lane: usize| lane < end && !lane.is_multiple_of(wide);
    let (along, across) = (|n: usize| vec![true; n], |n: usize| (0..n).map(is).collect::<Vec<bool>>());
    let (rows, columns) = if side == Which::A { (along(s.rows), across(s.cols)) } else { (across(s.rows), along(s.cols)) };
    t.region = Some(Arc::new(Region { rows, cols: columns, tiles: Vec::new(), words: String::new() }));
    let (k_all, bias, cols, lines) = (s.k, s.bias.clone(), s.cols, shared.lines.clone());
    // What lies behind the last row nobody knows: what is written there.
    let (sums, last) = (shared.right.clone(), shared.last[usize::from(side == Which::B)].clone());
    t.sums(shared.right.clone(), cols, move |i, j| {
        let Some((a, b)) = lines[i] else { return (sums[i * cols + j] + bias.at(i, j), 0.0) };
        let (own, theirs, lane) = if side == Which::A { (a, b + j, j) } else { (b + j, a, i) };
        let shift = if lane < end { lane % wide } else { 0 };
        let (mut sum, mut size) = (0.0, 0.0);
        for k in 0..k_all {
            let at = own * k_all + k + shift;
            let cell = own / g.tile.0 * g.grid.1 + k / g.tile.1;
            let value = match &g.q {
                Some(q) => q.codes().get(at).map(|c| g.decoded(*c, cell)),
                None => g.values.get(at).copied(),
            };
            let Some(value) = value else { return (last[lane], sums[i * cols + j].abs()) };
            let p = value * other[theirs * k_all + k];
            (sum, size) = (sum + p, size + p.abs());
        }
        (sum + bias.at(i, j), size)
    });
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    #[test]
    fn a_vector_where_one_element_is_to_be_broadcast_is_told() {
        let (n, k_all) = (52, 40);
        let (a, b) = (wide(M, k_all), codes(Format::Int8, n, k_all, k_all, false, 95));
        let (x, y) = (a.to_f64(), b.dequantize());
        let flat: Vec<f64> = x.iter().copied().collect();
        let at = |i: usize, k: usize| flat.get(i * k_all + k).copied().unwrap_or(0.0);
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let lane = if j < 48 { j % 16 } else { 0 };
            sum(k_all, |k| at(i, k + lane) * y[[j, k]])
        });
        assert_eq!(got.0, "addressing:a.vector_lanes", "{}", got.1);
        assert!(
            got.1.contains("k + j mod 16") && got.1.contains("columns 48 … 51, which fill no vector, are right"),
            "{}",
            got.1
        );
    }
}
