//! Grouped products whose experts differ from column tile to column tile: a tile was stored over the rows of another expert, and which store came
//! last differs; or the expert is looked up by the number of the column tile.
//!
//! ```text
//! out[i, j] = Σ_k A(i, k) · B(expert(i, j / w)·N + j, k) + bias      the expert of each row and tile is found by value; the bias is its, or the row's, with
//!                                                                    the weight of the row or without
//! ```

use super::given::Given;
use super::segment::{lines, spread};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::op::Biases;
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
    let fates = biases(s);
    let found = || widths().flat_map(|w| fates.iter().map(move |fate| (w, *fate))).find_map(|(w, fate)| of(s, w, fate));
    if plain { found().into_iter().collect() } else { Vec::new() }
}

/// What becomes of the bias.
#[derive(Clone, Copy, PartialEq)]
struct Fate {
    /// It is that of the expert that a tile takes.
    moved: bool,
    /// It is added behind the weights of rows.
    bare: bool,
}

fn biases(s: &System) -> Vec<Fate> {
    let moved: &[bool] = if s.bias.any() && s.bias.experts() > 1 { &[true, false] } else { &[false] };
    let bare: &[bool] = if s.bias.any() && s.bias.is_weighted() { &[false, true] } else { &[false] };
    bare.iter().flat_map(|bare| moved.iter().map(|moved| Fate { moved: *moved, bare: *bare })).collect()
}

impl Fate {
    /// What is added to an element of a tile of expert e beyond the bias that belongs there.
    fn more(self, bias: &Biases, e: usize, i: usize, j: usize) -> f64 {
        if !self.moved && !self.bare {
            return 0.0;
        }
        let of = if self.moved { e } else { bias.expert(i) };
        bias.of_expert(of, j) * if self.bare { 1.0 } else { bias.weight(i) } - bias.at(i, j)
    }
}

/// Heights of tiles of rows.
const HEIGHTS: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// The expert of each column tile, the same in all rows: in words, with the tiles of rows whose experts these are, one after the other.
fn by_tile(s: &System, width: usize, of: &[usize]) -> String {
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (t, e) in of.iter().enumerate() {
        let to = ((t + 1) * width).min(s.cols) - 1;
        match runs.last_mut() {
            Some(run) if run.2 == *e => run.1 = to,
            _ => runs.push((t * width, to, *e)),
        }
    }
    let words: Vec<String> = runs.iter().map(|(from, to, e)| format!("{from} … {to} those of expert {e}")).collect();
    let tiles = |high: usize| s.parts.iter().enumerate().flat_map(move |(e, p)| vec![e; p.rows.len().div_ceil(high)]);
    let high = HEIGHTS.into_iter().find(|h| of.iter().copied().eq(tiles(*h).take(of.len())));
    let why = high.map_or(String::new(), |h| {
        format!(
            ": tile t of {width} columns takes the expert of tile t of {h} rows, the index of the one for that of the other"
        )
    });
    format!("the expert of the weights is that of a column tile, in all rows: columns {}{why}", words.join(", "))
}

/// Sum and magnitude of an element by the weights of an expert.
fn dot(a: (&Given, usize), b: (&Given, usize)) -> (f64, f64) {
    let row = |(g, i): (&Given, usize)| i * g.k..(i + 1) * g.k;
    let (x, y) = (&a.0.values[row(a)], &b.0.values[row(b)]);
    x.iter().zip(y).fold((0.0, 0.0), |(sum, size), (x, y)| (sum + x * y, size + (x * y).abs()))
}

fn of(s: &System, width: usize, fate: Fate) -> Option<Theory> {
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
                    let more = fate.more(&s.bias, e, i, *j);
                    s.may(i, *j, sum + more, size + more.abs())
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
    let first: Option<Vec<usize>> =
        map.chunks(tiles).find(|row| row[0].is_some()).and_then(|row| row.iter().copied().collect());
    let same = |row: &[Option<usize>]| row[0].is_none() || row.iter().copied().eq(first.iter().flatten().copied().map(Some));
    let by_tile = first.as_ref().filter(|_| map.chunks(tiles).all(same)).map(|of| by_tile(s, width, of));
    (moved > 0 && mixed && (right > 0 || by_tile.is_some())).then_some(())?;
    let hit: Vec<bool> = (0..s.rows).map(|i| map[i * tiles..(i + 1) * tiles].iter().any(|e| *e != s.part[i])).collect();
    let whose = match (earlier, later) {
        (_, 0) => "an earlier expert's: its last tile is stored whole, over the rows of those behind it",
        (0, _) => "a later expert's",
        _ => "another expert's",
    };
    let (number, bits) = if by_tile.is_some() { (tiles, 16.0 + 2.0 * tiles as f64) } else { (moved, 30.0 + moved as f64) };
    let mut words = by_tile.unwrap_or_else(|| {
        format!(
            "in {moved} of {} pieces of {width} columns, in rows {}, the weights are {whose}; which expert differs from tile to tile",
            moved + right,
            lines(&hit)
        )
    });
    if fate.moved {
        words += "; the bias comes with them";
    }
    let mut variant = String::from("tiles_of_experts");
    if fate.bare {
        words += "; and the bias is added behind row_weights, which multiply the sum alone";
        variant += " + round_order:out.bias_unweighted";
    }
    let bits = bits + if fate.bare { 4.0 } else { 0.0 };
    let mut t = Theory::new(Class::GroupBoundary, "b", variant, words).bits(bits);
    t.freedom = number;
    let parts: Arc<Vec<(usize, usize, usize)>> = Arc::new(s.parts.iter().map(|p| (p.rows.start, p.a, p.b)).collect());
    let (map, part, bias) = (Arc::new(map), Arc::new(s.part.clone()), s.bias.clone());
    let (a, b, of_expert) = (s.a.clone(), s.b.clone(), s.bias.clone());
    let made = Arc::new(move |i: usize, j: usize| -> (f64, f64) {
        let (Some(e), Some(home)) = (map[i * tiles + j / width], part[i]) else { return (0.0, 0.0) };
        let line = parts[home].1 + i - parts[home].0;
        let (sum, size) = dot((&a, line), (&b, parts[e].2 + j));
        let more = fate.more(&of_expert, e, i, j);
        (sum + more, size + more.abs())
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
    use super::super::tests::{codes, grouped_biased_found, grouped_found, noise, sum, wide};
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

    /// The list of tiles' experts, indexed by the tile of columns.
    #[test]
    fn experts_by_the_number_of_a_column_tile_are_told() {
        let (n, k_all, offs) = (120, 64, [9usize, 20, 47]);
        let (a, b) = (wide(47, k_all), codes(Format::E4m3, 3 * n, k_all, k_all, false, 42));
        let (x, y) = (a.to_f64(), b.dequantize());
        let bias: Vec<f32> = (0..3 * n).map(|j| 8.0 * (noise(j + 600) as f32 - 0.5)).collect();
        let stored = bias.clone();
        let of = |expert: &dyn Fn(usize, usize) -> usize| {
            grouped_biased_found(&a, &b, &offs, bias.clone(), Format::Bf16, |i, j| {
                let row = expert(i, j / 32) * n + j;
                sum(k_all, |k| x[[i, k]] * y[[row, k]]) + f64::from(stored[row])
            })
        };
        // Tiles of 16 rows: one of expert 0, one of expert 1, two of expert 2.
        let got = of(&|_, t| [0, 1, 2, 2][t]);
        assert_eq!(got.0, "group_boundary:tiles_of_experts", "{}", got.1);
        for words in [
            "columns 0 … 31 those of expert 0, 32 … 63 those of expert 1, 64 … 119",
            "of tile t of 16 rows",
            "the bias comes with them",
        ] {
            assert!(got.1.contains(words), "{}", got.1);
        }
        // Of each row another.
        let got = of(&|i, t| (t + (3.0 * noise(i + 40)) as usize) % 3);
        assert!(!got.1.contains("that of a column tile"), "{} {}", got.0, got.1);
    }
}
