//! A tile of whole sums that is stored over a stage of an operand in shared memory while other warps still read it: no barrier stands before the store.
//!
//! ```text
//! stage:   code (r, t) of the tile at byte r·w + t                       r: row of a tile of h rows; t of w of K
//! sums:    byte y of the sum of (p, q) at byte (p·n + q)·4 + y           int32, tiles of h × n
//! out[i, j] = Σ a(i, k)·b(j, k), in the last w of K code (r, t) is the byte of the sum that lies there, where its warp had stored it
//! ```
//!
//! Which elements read late is taken from the result: what they read has no number of its own.

use super::maps::cost;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Sides of tiles, of what a warp stores, and of a block of K in bytes.
const SIDES: [usize; 4] = [32, 64, 128, 16];
const WARPS: [usize; 4] = [16, 32, 64, 8];
const BLOCKS: [usize; 4] = [64, 32, 128, 16];
/// Wrong elements that have to agree, at least and at most.
const LEAST: usize = 12;
const LOOKS: usize = 32;

/// How a tile of sums lies over a stage.
#[derive(Clone, Copy)]
struct Over {
    /// Rows of the tile that share the stage, and columns of the tile: of the operand's own side and of the other.
    high: usize,
    wide: usize,
    block: usize,
    /// What was stored: this many rows and columns of the tile from its first, or all of it.
    rows: usize,
    cols: usize,
    side: Which,
}

/// Codes of eight bits whose sums are whole: (line, K) as they are, the right sums with scales, and a unit of each line.
struct Codes {
    a: Vec<i8>,
    b: Vec<i8>,
    k: usize,
    right: Arc<Vec<f64>>,
    units: [Vec<f64>; 2],
}

impl Codes {
    fn of(s: &System) -> Option<Self> {
        let codes = |g: &super::given::Given| -> Option<Vec<i8>> {
            let plain = g.format() == Some(Format::Int8) && g.grid.1 == 1 && g.zero.is_none();
            g.q.as_ref().filter(|_| plain).map(|q| q.codes().iter().map(|c| *c as i8).collect())
        };
        let (a, b) = (codes(&s.a)?, codes(&s.b)?);
        let units = [(&s.a, s.rows), (&s.b, s.cols)].map(|(g, n)| (0..n).map(|i| g.step(i, 0)).collect::<Vec<f64>>());
        units.iter().flatten().all(|u| u.is_finite() && *u != 0.0).then_some(())?;
        Some(Self { a, b, k: s.k, right: s.right_sums(), units })
    }

    fn unit(&self, i: usize, j: usize) -> f64 {
        self.units[0][i] * self.units[1][j]
    }

    /// The whole sum: the right one, without its scales.
    fn sum(&self, i: usize, j: usize) -> i32 {
        (self.right[i * self.units[1].len() + j] / self.unit(i, j)).round() as i32
    }

    /// What is added to the whole sum of an element.
    fn more(&self, o: Over, (rows, cols): (usize, usize), i: usize, j: usize) -> i64 {
        // The tile of the result, and the row of the stage.
        let (i0, j0) = match o.side {
            Which::A => (i / o.high * o.high, j / o.wide * o.wide),
            Which::B => (i / o.wide * o.wide, j / o.high * o.high),
        };
        let r = if o.side == Which::A { i - i0 } else { j - j0 };
        // A tile of the result is stored row by row, whichever operand it lies over.
        let n = if o.side == Which::A { o.wide } else { o.high };
        let first = self.k - o.block;
        let (mut more, mut known) = (0i64, None);
        for t in 0..o.block {
            let at = r * o.block + t;
            let (p, q, y) = (at / (4 * n), at % (4 * n) / 4, at % 4);
            if p >= o.rows || q >= o.cols || i0 + p >= rows || j0 + q >= cols {
                continue;
            }
            let sum = match known {
                Some((at, sum)) if at == (p, q) => sum,
                _ => self.sum(i0 + p, j0 + q),
            };
            known = Some(((p, q), sum));
            let byte = (sum >> (8 * y)) as i8;
            let (own, other) = match o.side {
                Which::A => (self.a[i * self.k + first + t], self.b[j * self.k + first + t]),
                Which::B => (self.b[j * self.k + first + t], self.a[i * self.k + first + t]),
            };
            more += i64::from(i32::from(byte) - i32::from(own)) * i64::from(other);
        }
        more
    }
}

/// The first way that makes the wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let looks = s.wrong_probes(LOOKS);
    // What reads in time is right.
    if looks.len() < LEAST || !s.is_wrong.contains(&false) {
        return Vec::new();
    }
    let Some(codes) = Codes::of(s).map(Arc::new) else { return Vec::new() };
    let makes = |o: Over, (i, j): (usize, usize)| {
        let (at, more) = (i * s.cols + j, codes.more(o, (s.rows, s.cols), i, j) as f64 * codes.unit(i, j));
        more != 0.0 && s.may(i, j, s.ideal[at] - s.bias.at(i, j) + more, s.magnitude(at) + more.abs())
    };
    let sizes = SIDES.into_iter().flat_map(|h| SIDES.map(|w| (h, w)));
    let blocks = sizes.flat_map(|(h, w)| BLOCKS.map(|b| (h, w, b))).filter(|(_, _, b)| b < &s.k && s.k.is_multiple_of(*b));
    for (high, wide, block) in blocks {
        for side in [Which::A, Which::B] {
            // A tile's rows and columns.
            let (tall, broad) = if side == Which::A { (high, wide) } else { (wide, high) };
            let of = |n: usize| WARPS.into_iter().filter(move |w| *w < n).chain([n]);
            for (rows, cols) in of(tall).flat_map(|r| of(broad).map(move |c| (r, c))) {
                let o = Over { high, wide, block, rows, cols, side };
                if looks.iter().all(|p| makes(o, *p)) {
                    return vec![theory(s, &codes, o)];
                }
            }
        }
    }
    Vec::new()
}

fn theory(s: &System, codes: &Arc<Codes>, o: Over) -> Theory {
    let name = o.side.name();
    let (tall, broad) = if o.side == Which::A { (o.high, o.wide) } else { (o.wide, o.high) };
    let stored = if (o.rows, o.cols) == (tall, broad) {
        "the tile".to_string()
    } else {
        format!("rows 0 … {} and columns 0 … {} of the tile", o.rows - 1, o.cols - 1)
    };
    let words = format!(
        "codes of {name} in the last {} of K are bytes of int32 sums: tiles of {tall}×{broad} of the result are stored in shared memory over a stage of {} rows × {} of {name} while others still read it, {stored} as far as they are there: no barrier before the store",
        o.block, o.high, o.block
    );
    let bits = 12.0 + cost(tall) + cost(broad) + cost(o.block);
    let mut t = Theory::new(Class::Race, name, format!("{name}.sums_over_stage"), words).bits(bits);
    let (rows, cols) = (s.rows, s.cols);
    let (codes, bias, right) = (codes.clone(), s.bias.clone(), s.right_sums());
    let sizes: Arc<Vec<f64>> = Arc::new((0..rows * cols).map(|at| s.magnitude(at)).collect());
    t.sums(right.clone(), cols, move |i, j| {
        let more = codes.more(o, (rows, cols), i, j) as f64 * codes.unit(i, j);
        (right[i * cols + j] + more + bias.at(i, j), sizes[i * cols + j] + more.abs())
    });
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found};
    use crate::job::Operand;

    const M: usize = 64;
    const N: usize = 96;
    const K: usize = 160;

    /// Elements of rows 16 … 31 and columns 8 … 15 of every tile of 32 × 16 read what the warp of rows and columns 0 … 15 stored; each byte `other`
    /// bytes further on.
    fn of(other: usize) -> (String, String) {
        let (a, b) = (codes(Format::Int8, M, K, K, false, 11), codes(Format::Int8, N, K, K, false, 12));
        let (x, y) = (a.clone(), b.clone());
        let code = |q: &crate::QTensor, r: usize, k: usize| i32::from(q.codes()[r * K + k] as i8);
        let sum = |i: usize, j: usize| (0..K).map(|k| code(&x, i, k) * code(&y, j, k)).sum::<i32>();
        found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
            let mut whole = sum(i, j);
            let (r, c) = (i % 32, j % 16);
            if r >= 16 && c >= 8 {
                for t in 0..32 {
                    let at = (r * 32 + t + other) % 1024;
                    let (p, q, byte) = (at / 64, at % 64 / 4, at % 4);
                    if q < 8 {
                        let held = (sum(i - r + p, j - c + q) >> (8 * byte)) as i8;
                        whole += (i32::from(held) - code(&x, i, K - 32 + t)) * code(&y, j, K - 32 + t);
                    }
                }
            }
            f64::from(whole) * f64::from(x.scale_inv()[i]) * f64::from(y.scale_inv()[j])
        })
    }

    #[test]
    fn bytes_of_sums_that_lie_over_a_stage_are_told() {
        let got = of(0);
        assert_eq!(got.0, "race:a.sums_over_stage", "{}", got.1);
        assert!(
            got.1.contains("tiles of 32×16 of the result are stored in shared memory over a stage of 32 rows × 32 of a"),
            "{}",
            got.1
        );
    }

    #[test]
    fn bytes_of_sums_elsewhere_are_not_called_so() {
        let got = of(132);
        assert!(!got.0.contains("sums_over_stage"), "{} {}", got.0, got.1);
    }
}
