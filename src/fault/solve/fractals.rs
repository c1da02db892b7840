//! Blocks of columns of a tile that are written at one height and read at another: a last tile of few rows is stored as high as it is, or as high as
//! a whole one.
//!
//! ```text
//! column block y, row r of a tile is written at y·h + r and read at y·H + r        h: its rows, rounded up; H: those of a whole tile; or the other way
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::parallel;
use std::sync::Arc;

/// Rows of whole tiles, what their rows are rounded up to, and columns of a block.
const HIGH: [usize; 5] = [16, 32, 64, 128, 256];
const UNITS: [usize; 5] = [1, 4, 8, 16, 32];
const WIDE: [usize; 4] = [8, 16, 32, 64];

/// The rows of the group of each row.
type Spans = Arc<Vec<Option<(usize, usize)>>>;

/// Of every tile of rows of every group: of results, and of sums that have no scales yet.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let span = |i: usize| s.part[i].map(|p| (s.parts[p].rows.start, s.parts[p].rows.end));
    let spans: Spans = Arc::new((0..s.rows).map(span).collect());
    let cols = s.cols;
    let short = |high: usize| s.parts.iter().any(|p| !p.rows.len().is_multiple_of(high));
    if cols <= WIDE[0] || !HIGH.into_iter().any(short) {
        return Vec::new();
    }
    let bare = Bare::of(s).map(Arc::new);
    let mut all = Vec::new();
    for (high, wide) in HIGH.into_iter().flat_map(|h| WIDE.map(|w| (h, w))).filter(|(h, w)| short(*h) && *w < cols) {
        for unit in UNITS.into_iter().filter(|u| *u < high) {
            for (written, scaled) in [(true, true), (true, false), (false, true), (false, false)] {
                if !scaled && bare.is_none() {
                    continue;
                }
                let few = if unit == 1 {
                    "as many rows as it has".into()
                } else {
                    format!("as many rows as it has, rounded up to {unit},")
                };
                let ways = if written { (few, format!("{high} rows")) } else { (format!("{high} rows"), few) };
                let sums = if scaled { "" } else { ", before scales meet the sums" };
                let words = format!(
                    "blocks of {wide} columns of a tile of {high} rows are written {} apart and read {} apart, 0 behind the last{sums}",
                    ways.0, ways.1
                );
                let mut t = Theory::new(Class::Addressing, "out", "out.fractal_stride", words)
                    .bits(5.0 + cost(high) + cost(wide) + cost(unit) + f64::from(u8::from(!written)));
                let spans = spans.clone();
                let from: super::system::From =
                    Arc::new(move |i, j| source(spans[i]?, (i, j), (high, unit, wide), written).filter(|x| x.1 < cols));
                match &bare {
                    Some(bare) if !scaled => {
                        let (bare, bias) = (bare.clone(), s.bias.clone());
                        t.sums(bare.right.clone(), cols, move |i, j| {
                            let (sum, size) = from(i, j).map_or((0.0, 0.0), |source| bare.of_source(source, (i, j)));
                            (sum + bias.at(i, j), size)
                        });
                    }
                    _ => t.from = Some(from),
                }
                all.push(t);
            }
        }
    }
    all
}

/// The sums and what they are made of, where scales meet whole sums alone.
struct Bare {
    /// The right sums, and their magnitudes.
    right: Arc<Vec<f64>>,
    sizes: Vec<f64>,
    cols: usize,
    /// The scale of each row of the result, its first row of b, and the scales of these.
    rows: Vec<(f64, usize)>,
    of_b: Vec<f64>,
}

impl Bare {
    /// `None`: scales go along K, or there are none.
    fn of(s: &System) -> Option<Self> {
        let one = |g: &super::given::Given| g.q.is_none() || g.grid.1 == 1;
        let many = |g: &super::given::Given| g.q.is_some() && g.grid.0 > 1;
        (one(&s.a) && one(&s.b) && (many(&s.a) || many(&s.b))).then_some(())?;
        // A row of no group has no scales.
        let row = |i: usize| s.lines(i, 0).map_or((0.0, 0), |(a, b, _)| (s.a.step(a, 0), b));
        Some(Self {
            right: s.right_sums(),
            sizes: parallel::numbers(s.rows * s.cols, |at| s.magnitude(at)),
            cols: s.cols,
            rows: (0..s.rows).map(row).collect(),
            of_b: (0..s.b.rows).map(|x| s.b.step(x, 0)).collect(),
        })
    }

    fn unit(&self, (i, j): (usize, usize)) -> f64 {
        let (of_a, b) = self.rows[i];
        of_a * self.of_b.get(b + j).copied().unwrap_or(0.0)
    }

    /// The sum of codes of one element by the scales of another, and its magnitude.
    fn of_source(&self, source: (usize, usize), to: (usize, usize)) -> (f64, f64) {
        let (at, unit) = (source.0 * self.cols + source.1, self.unit(source));
        let by = if unit == 0.0 { 0.0 } else { self.unit(to) / unit };
        (self.right[at] * by, self.sizes[at] * by.abs())
    }
}

/// What an element of a group with these rows holds. `None`: what nobody wrote.
fn source(
    (start, end): (usize, usize),
    (i, j): (usize, usize),
    (high, unit, wide): (usize, usize, usize),
    written: bool,
) -> Option<(usize, usize)> {
    let first = start + (i - start) / high * high;
    let valid = high.min(end - first);
    let own = valid.next_multiple_of(unit).min(high);
    let (apart, read) = if written { (own, high) } else { (high, own) };
    let at = j / wide * read + i - first;
    let (y, r) = (at / apart, at % apart);
    (r < valid).then_some((first + r, y * wide + j % wide))
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, wide};

    /// Sums of codes that meet the scales of where they are read.
    #[test]
    fn blocks_of_sums_without_their_scales_are_told() {
        let (k, n, ends) = (64, 64, [20, 62]);
        let (a, b) = (codes(Format::Int8, 62, k, k, false, 60), codes(Format::Int8, 2 * n, k, k, false, 61));
        let (x, y) = (a.dequantize(), b.dequantize());
        let step = |i: usize, j: usize| f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j]);
        let got = grouped_found(&crate::job::Operand::Quantized(a.clone()), &b, &ends, Format::F32, |i, j| {
            let e = usize::from(i >= 20);
            let from = 20 * e + if e == 1 { (i - 20) / 32 * 32 } else { 0 };
            let valid = (ends[e] - from).min(32);
            let high = valid.next_multiple_of(16);
            let at = j / 16 * 32 + i - from;
            let (r, c) = (at % high, at / high * 16 + j % 16);
            if r >= valid || c >= n {
                return 0.0;
            }
            let (row, col) = (from + r, e * n + c);
            (0..k).map(|k| x[[row, k]] * y[[col, k]]).sum::<f64>() / step(row, col) * step(i, e * n + j)
        });
        assert_eq!(got.0, "addressing:out.fractal_stride", "{}", got.1);
        assert!(
            got.1.contains("rounded up to 16, apart and read 32 rows apart") && got.1.contains("before scales"),
            "{}",
            got.1
        );
    }

    #[test]
    fn blocks_of_a_short_tile_that_are_read_as_of_a_whole_one_are_told() {
        let (k, n, ends) = (64, 64, [21, 30, 62]);
        let (a, b) = (wide(62, k), codes(Format::Int8, 3 * n, k, k, false, 58));
        let (x, y) = (a.to_f64(), b.dequantize());
        let right = |i: usize, e: usize, j: usize| (0..k).map(|k| x[[i, k]] * y[[e * n + j, k]]).sum::<f64>();
        let got = grouped_found(&a, &b, &ends, Format::F32, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let from = if e == 0 { 0 } else { ends[e - 1] };
            let valid = ends[e] - from;
            let at = j / 16 * 32 + i - from;
            let (c, r) = (at / valid.next_multiple_of(8), at % valid.next_multiple_of(8));
            if r < valid && c < 4 { right(from + r, e, c * 16 + j % 16) } else { 0.0 }
        });
        assert_eq!(got.0, "addressing:out.fractal_stride", "{}", got.1);
        let words = "a tile of 32 rows are written as many rows as it has, rounded up to 8, apart and read 32 rows apart";
        assert!(got.1.contains(words), "{}", got.1);
    }
}
