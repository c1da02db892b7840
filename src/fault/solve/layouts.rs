//! Theories of the layout of codes: packed along the other axis, in tiles of another shape, in rows of another padded length.

use super::maps::cost;
use super::system::{System, Theory, To};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// The order of the lanes of a word: which element of eight lies in lane l.
const LANES: [(&str, [usize; 8]); 4] = [
    ("", [0, 1, 2, 3, 4, 5, 6, 7]),
    (", in the order 0 2 4 6 1 3 5 7", [0, 2, 4, 6, 1, 3, 5, 7]),
    (", in the order 0 4 1 5 2 6 3 7", [0, 4, 1, 5, 2, 6, 3, 7]),
    (", backwards", [7, 6, 5, 4, 3, 2, 1, 0]),
];

/// Rows of tiles that are no longer small.
const SMALL: usize = 8;

/// Where words of several codes lie: along K or along the rows, and which index of words runs fastest.
#[derive(Clone, Copy, PartialEq)]
struct Packed {
    along_k: bool,
    rows_fastest: bool,
}

impl Packed {
    fn words(self, per: usize) -> String {
        let (fast, slow) = if self.rows_fastest { ("N", "K") } else { ("K", "N") };
        let axis = if self.along_k { "K" } else { "N" };
        let of = |x: &str| if x == axis { format!("{x}/{per}") } else { x.to_string() };
        format!("[{}][{}] along {axis}", of(slow), of(fast))
    }
    /// The word and the place in it of element (n, k).
    fn place(self, (n, k): (usize, usize), (rows, cols): (usize, usize), per: usize) -> (usize, usize) {
        let (wide, high) = if self.along_k { (cols / per, rows) } else { (cols, rows / per) };
        let (x, y, lane) = if self.along_k { (k / per, n, k % per) } else { (k, n / per, n % per) };
        (if self.rows_fastest { x * high + y } else { y * wide + x }, lane)
    }
    fn back(self, word: usize, lane: usize, (rows, cols): (usize, usize), per: usize) -> (usize, usize) {
        let (wide, high) = if self.along_k { (cols / per, rows) } else { (cols, rows / per) };
        let (x, y) = if self.rows_fastest { (word / high, word % high) } else { (word % wide, word / wide) };
        if self.along_k { (y, x * per + lane) } else { (y * per + lane, x) }
    }
}

/// All of them, of the codes of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let Some(q) = g.q.as_ref().filter(|_| !s.alone && g.rows > 1 && g.k > 1) else { return Vec::new() };
    let name = side.name();
    let experts = s.experts(side);
    let (per, cols) = (g.rows / experts, g.k);
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, words: String, bits: f64, to: To| {
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), format!("codes of {name} are {words}")).bits(bits);
        t.side(side).code = Some(to);
        all.push(t);
    };
    let bits = q.format().bits() as usize;
    // Words of 8, 16 and 32 bits.
    let ways: Vec<Packed> = [(true, false), (true, true), (false, true), (false, false)]
        .map(|(k, r)| Packed { along_k: k, rows_fastest: r })
        .into();
    for word in [2usize, 4, 8].into_iter().filter(|w| w * bits <= 32 && (bits < 8 || *w == 4)) {
        if !per.is_multiple_of(word) || !cols.is_multiple_of(word) {
            continue;
        }
        let orders = if word == 8 { &LANES[..] } else { &LANES[..1] };
        for (stored, read) in ways.iter().flat_map(|a| ways.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b) {
            for ((was, order), (is, other)) in orders.iter().flat_map(|a| orders.iter().map(move |b| (a, b))) {
                let (order, other) = (*order, *other);
                let words =
                    format!("stored in words of {word} as {}{was} and read as {}{is}", stored.words(word), read.words(word));
                let more = f64::from(u8::from(!was.is_empty())) + f64::from(u8::from(!is.is_empty()));
                let lane_of = move |order: [usize; 8], x: usize| {
                    if word == 8 { (0..8).find(|l| order[*l] == x).unwrap_or(x) } else { x }
                };
                let to: To = Arc::new(move |i, k| {
                    let shape = (per, cols);
                    // Where the kernel looks for (n, k), and what was put there.
                    let (at, x) = read.place((i % per, k), shape, word);
                    let lane = lane_of(other, x);
                    let element = if word == 8 { order[lane] } else { lane };
                    let (n, k) = stored.back(at, element, shape, word);
                    Some((i / per * per + n) * cols + k)
                });
                add(Class::PackPermute, "packed_axis", words, 3.0 + cost(word) + more, to);
            }
        }
    }
    // Tiles of rows × K, tile after tile along K, then along the rows; or along the rows first.
    let highs = [2usize, 4, 8, 16, 32, 64, 128];
    let deeps = [8usize, 16, 32, 64, 128];
    let fits = |(h, d): &(usize, usize)| per.is_multiple_of(*h) && cols.is_multiple_of(*d) && *h <= per && *d <= cols;
    let mut tiles: Vec<(usize, usize)> = highs.into_iter().flat_map(|h| deeps.map(|d| (h, d))).filter(fits).collect();
    tiles.insert(0, (1, cols));
    // The small ones of a vector's instruction lie in panels of as many rows.
    let apart = |a: usize, b: usize| a != b && a.min(b) > 1 && a.min(b) < SMALL;
    let pairs = tiles.iter().flat_map(|a| tiles.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b && !apart(a.0, b.0));
    for (stored, read) in pairs {
        let of = |(h, d): (usize, usize)| {
            if h == 1 { "row by row".to_string() } else { format!("in tiles of {h} rows × {d} of K") }
        };
        let words = format!("stored {} and read {}", of(stored), of(read));
        let tile = |x: (usize, usize)| if x.0 == 1 { 0.0 } else { cost(x.0) + cost(x.1) - 4.0 };
        let to: To = Arc::new(move |i, k| {
            let n = i % per;
            let (h, d) = read;
            let flat = (n / h * (cols / d) + k / d) * h * d + n % h * d + k % d;
            let (h, d) = stored;
            let (t, x) = (flat / (h * d), flat % (h * d));
            let (n, k) = (t / (cols / d) * h + x / d, t % (cols / d) * d + x % d);
            Some((i / per * per + n) * cols + k)
        });
        add(Class::PackPermute, "tiles", words, 3.0 + tile(stored) + tile(read), to);
    }
    let given = g.clone();
    let mut rows = Vec::new();
    // Rows that are padded in memory, and a kernel that steps by their own length.
    let mut lengths: Vec<usize> = [g.tile.1, 8, 16, 32, 64, 128, 256].into_iter().map(|u| cols.next_multiple_of(u)).collect();
    // Views of wider tensors.
    lengths.extend([cols / 2, cols].map(|more| cols + more));
    lengths.extend([16usize, 32, 64, 128, 256, 512, 1024].map(|more| cols + more));
    lengths.sort_unstable();
    lengths.dedup();
    for long in lengths.into_iter().filter(|l| *l != cols) {
        let words = format!("in rows of {long}, padded, and read at a row stride of {cols}");
        let from = move |i: usize, k: usize| {
            let flat = i % per * cols + k;
            let (n, k) = (flat / long, flat % long);
            (k < cols).then_some((i / per * per + n) * cols + k)
        };
        let theory = |words: &str| {
            Theory::new(Class::Addressing, name, format!("{name}.stride"), format!("codes of {name} are {words}"))
                .bits(3.0 + cost(long))
        };
        let mut t = theory(&words);
        if g.zero.is_some() {
            // The padding is code 0, which is not the value 0; or it is what stands for 0.
            for blank in [false, true] {
                let mut t = theory(&if blank { format!("{words}; the padding stands for 0") } else { words.clone() });
                let g = given.clone();
                t.side(side).value = Some(Arc::new(move |i, k| {
                    let code = from(i, k).and_then(|at| g.q.as_ref().map(|q| q.codes()[at]));
                    match code {
                        None if blank => 0.0,
                        code => g.decoded(code.unwrap_or(0), i / g.tile.0 * g.grid.1 + k / g.tile.1),
                    }
                }));
                rows.push(t);
            }
            continue;
        }
        t.side(side).code = Some(Arc::new(from));
        rows.push(t);
    }
    all.extend(rows);
    all
}

/// Tiles of rows × K, one after the other, that are stored column by column and read row by row, or the other way about. What no whole tile has lies as
/// it should.
pub fn turned(s: &System) -> Vec<Theory> {
    const HIGH: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
    const WIDE: [usize; 10] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    let mut all = Vec::new();
    for side in s.sides().iter().copied() {
        let g = s.given(side);
        let experts = s.experts(side);
        let (per, cols, name) = (g.rows / experts, g.k, side.name());
        if g.q.is_none() || s.alone {
            continue;
        }
        // A square one is the same both ways.
        let tiles = HIGH.into_iter().flat_map(|h| WIDE.map(|w| (h, w))).filter(|(h, w)| *h <= per && *w <= cols && h != w);
        for ((high, wide), stored_by_column) in tiles.flat_map(|t| [(t, true), (t, false)]) {
            let (was, is) = if stored_by_column { ("column", "row") } else { ("row", "column") };
            let words = format!(
                "codes of {name} lie in tiles of {high} rows × {wide} of K, stored {was} by {was} in each tile and read {is} by {is}"
            );
            let to: To = Arc::new(move |i, k| {
                let (r, c) = (i % per % high, k % wide);
                let (top, left) = (i - r, k - c);
                if i % per - r + high > per || left + wide > cols {
                    return Some(i * cols + k);
                }
                let (r, c) = match stored_by_column {
                    true => ((r * wide + c) % high, (r * wide + c) / high),
                    false => ((c * high + r) / wide, (c * high + r) % wide),
                };
                Some((top + r) * cols + left + c)
            });
            let bits = 4.0 + cost(high) + cost(wide);
            let mut t = Theory::new(Class::PackPermute, name, format!("{name}.tiles"), words).bits(bits);
            t.side(side).code = Some(to);
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn tiles_that_are_stored_by_columns_and_read_by_rows_are_told() {
        const K: usize = 160;
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, 32, false, 71));
        let x = a.to_f64();
        // Tiles of 16 × 64; the last 32 of K have none.
        let with = |from: &dyn Fn(usize, usize) -> (usize, usize)| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                sum(K, |k| {
                    let (r, c) = if k < 128 { from(j % 16, k % 64) } else { (j % 16, k % 64) };
                    let code = b.codes()[(j / 16 * 16 + r) * K + k / 64 * 64 + c] as i8;
                    x[[i, k]] * f64::from(code) * f64::from(b.scale_inv()[j * 5 + k / 32])
                })
            })
        };
        let got = with(&|r, c| ((r * 64 + c) % 16, (r * 64 + c) / 16));
        assert_eq!(got.0, "pack_permute:b.tiles", "{}", got.1);
        assert!(got.1.contains("16 rows × 64 of K, stored column by column in each tile and read row by row"), "{}", got.1);
        let got = with(&|r, c| ((c * 16 + r) / 64, (c * 16 + r) % 64));
        assert!(got.1.contains("16 rows × 64 of K, stored row by row in each tile and read column by column"), "{}", got.1);
    }

    #[test]
    fn panels_that_are_read_in_small_tiles_are_told() {
        const K: usize = 160;
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 73));
        let x = a.to_f64();
        // In panels of 4 rows × 32 of K.
        let with = |from: &dyn Fn(usize, usize) -> (usize, usize)| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                sum(K, |k| {
                    let (r, c) = from(j % 4, k % 32);
                    let code = b.codes()[(j / 4 * 4 + r) * K + k / 32 * 32 + c] as i8;
                    x[[i, k]] * f64::from(code) * f64::from(b.scale_inv()[j])
                })
            })
        };
        // Tiles of 4 × 16, which hold as much as two rows of the panel.
        let got = with(&|r, c| ((c / 16 * 64 + r * 16 + c % 16) / 32, (c / 16 * 64 + r * 16 + c % 16) % 32));
        assert_eq!(got.0, "pack_permute:b.tiles", "{}", got.1);
        let words = "stored in tiles of 4 rows × 32 of K and read in tiles of 4 rows × 16 of K";
        assert!(got.1.contains(words), "{}", got.1);
        let got = with(&|r, c| ((r * 32 + c) % 64 / 16, (r * 32 + c) / 64 * 16 + c % 16));
        let words = "stored in tiles of 4 rows × 16 of K and read in tiles of 4 rows × 32 of K";
        assert!(got.1.contains(words), "{}", got.1);
        // No order of small tiles.
        let got = with(&|r, c| ((r * 3 + c) % 4, (c * 7 + r) % 32));
        assert_ne!(got.0, "pack_permute:b.tiles", "{}", got.1);
    }
}
