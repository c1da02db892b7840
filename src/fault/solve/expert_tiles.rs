//! Grouped products whose experts differ from column tile to column tile: a tile was stored over the rows of another expert, and which store came
//! last differs.
//!
//! ```text
//! out[i, j] = Σ_k A(i, k) · B(expert(i, j / w)·N + j, k)            the expert of each row and tile is found by value
//! ```

use super::given::Given;
use super::segment::{lines, spread};
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Widths of tiles of columns, the widest first.
const WIDTHS: [usize; 5] = [128, 64, 32, 16, 8];
/// Elements of a tile that tell its expert.
const LOOKS: usize = 6;
/// Multiply-adds of one width.
const WORK: usize = 1 << 28;

/// The widest tiles that have one expert each.
pub fn theories(s: &System) -> Vec<Theory> {
    let plain = !s.alone && s.parts.len() > 1 && s.parts.iter().all(|p| p.k.len() == s.k);
    let cost = |w: usize| s.rows * s.cols.div_ceil(w) * LOOKS * s.k * 2;
    let widths = || WIDTHS.into_iter().filter(|w| 2 * w <= s.cols && cost(*w) <= WORK);
    if plain { widths().find_map(|w| of(s, w)).into_iter().collect() } else { Vec::new() }
}

/// Sum and magnitude of an element by the weights of an expert.
fn dot(a: (&Given, usize), b: (&Given, usize)) -> (f64, f64) {
    let row = |(g, i): (&Given, usize)| i * g.k..(i + 1) * g.k;
    let (x, y) = (&a.0.values[row(a)], &b.0.values[row(b)]);
    x.iter().zip(y).fold((0.0, 0.0), |(sum, size), (x, y)| (sum + x * y, size + (x * y).abs()))
}

fn of(s: &System, width: usize) -> Option<Theory> {
    let tiles = s.cols.div_ceil(width);
    let mut map: Vec<Option<usize>> = Vec::with_capacity(s.rows * tiles);
    let (mut moved, mut earlier, mut later, mut right) = (0usize, 0usize, 0usize, 0usize);
    for i in 0..s.rows {
        let Some(home) = s.part[i] else {
            map.extend(std::iter::repeat_n(None, tiles));
            continue;
        };
        let line = s.parts[home].a + i - s.parts[home].rows.start;
        for t in 0..tiles {
            let mut places: Vec<usize> = (t * width..((t + 1) * width).min(s.cols)).collect();
            spread(&mut places, LOOKS);
            let by = |e: usize| {
                places.iter().all(|j| {
                    let (sum, size) = dot((&s.a, line), (&s.b, s.parts[e].b + j));
                    s.may(i, *j, sum, size)
                })
            };
            // The one before it first: rows side by side have one.
            let last = i.checked_sub(1).and_then(|i| map[i * tiles + t]);
            let others = last.into_iter().chain(0..s.parts.len());
            let found = std::iter::once(home).chain(others).find(|e| by(*e))?;
            moved += usize::from(found != home);
            earlier += usize::from(found < home);
            later += usize::from(found > home);
            right += usize::from(found == home);
            map.push(Some(found));
        }
    }
    // Whole rows of another expert have their own theory.
    let mixed = (0..s.rows).any(|i| map[i * tiles..(i + 1) * tiles].windows(2).any(|w| w[0] != w[1]));
    (moved > 0 && right > 0 && mixed).then_some(())?;
    let hit: Vec<bool> = (0..s.rows).map(|i| map[i * tiles..(i + 1) * tiles].iter().any(|e| *e != s.part[i])).collect();
    let whose = match (earlier, later) {
        (_, 0) => "an earlier expert's: its last tile is stored whole, over the rows of those behind it",
        (0, _) => "a later expert's",
        _ => "another expert's",
    };
    let words = format!(
        "in {moved} of {} pieces of {width} columns, in rows {}, the weights are {whose}; which expert differs from tile to tile",
        moved + right,
        lines(&hit)
    );
    let mut t = Theory::new(Class::GroupBoundary, "b", "tiles_of_experts", words).bits(30.0 + moved as f64);
    t.freedom = moved;
    let parts: Arc<Vec<(usize, usize, usize)>> = Arc::new(s.parts.iter().map(|p| (p.rows.start, p.a, p.b)).collect());
    let (map, part, bias) = (Arc::new(map), Arc::new(s.part.clone()), s.bias.clone());
    let (a, b) = (s.a.clone(), s.b.clone());
    let made = Arc::new(move |i: usize, j: usize| -> (f64, f64) {
        let (Some(e), Some(home)) = (map[i * tiles + j / width], part[i]) else { return (0.0, 0.0) };
        let line = parts[home].1 + i - parts[home].0;
        dot((&a, line), (&b, parts[e].2 + j))
    });
    let size = made.clone();
    t.size = Some(Arc::new(move |i, j| size(i, j).1));
    // The right sum comes in with what it may be off.
    let ideal: Arc<Vec<f64>> = Arc::new(s.ideal.to_vec());
    let (cols, own) = (s.cols, s.bias.clone());
    t.finish = Some(Arc::new(move |i, j, v| made(i, j).0 + v - (ideal[i * cols + j] - own.at(i, j)) + bias.at(i, j)));
    Some(t)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{codes, grouped_found, sum, wide};
    use crate::Format;

    #[test]
    fn tiles_of_an_earlier_expert_are_told() {
        let (n, k_all, offs) = (64, 64, [9usize, 20, 32]);
        let (a, b) = (wide(32, k_all), codes(Format::E4m3, 3 * n, k_all, k_all, false, 41));
        let (x, y) = (a.to_f64(), b.dequantize());
        let home = |i: usize| offs.iter().position(|end| i < *end).unwrap();
        // The first expert's tile reaches to row 22 in columns 32 … 63, but not in rows that the second wrote; the second's to row 24 in columns 0 … 31.
        let expert = |i: usize, j: usize| match (i, j) {
            (9..16 | 20..23, 32..64) => 0,
            (20..25, 0..32) => 1,
            _ => home(i),
        };
        let got = grouped_found(&a, &b, &offs, Format::Bf16, |i, j| sum(k_all, |k| x[[i, k]] * y[[expert(i, j) * n + j, k]]));
        assert_eq!(got.0, "group_boundary:tiles_of_experts", "{}", got.1);
        assert!(got.1.contains("pieces of 32 columns") && got.1.contains("an earlier expert's"), "{}", got.1);
    }
}
