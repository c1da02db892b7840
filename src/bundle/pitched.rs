//! Element-wise results and norms of rows that are read at another stride than they stand at: the parent's of a slice, a wider or a narrower one, or an
//! address that is aligned down to whole vectors.
//!
//! ```text
//! element (r, c) is read at S·r + c of memory whose rows of W stand P apart          S = W, P > W: a slice taken as if it were contiguous
//! ```
//!
//! What stands between the rows of a slice, and behind the last, nobody knows: of what is known, all has to follow.

use super::formulas::{At, Formula, formula};
use crate::op::activation::{act, gate};
use crate::op::{Act, Op};

/// The share of known elements that have to be made.
const SHARE: f64 = 0.98;
/// Known wrong elements, at least, and one in so many of all elements.
const LEAST: usize = 64;
const TOLD: usize = 8;
/// Elements that rows may stand apart beyond their own, in steps.
const MORE: usize = 64;

/// A result as it was judged.
pub struct Seen<'r> {
    /// The row as it stands, and everything that its formula reads besides.
    pub at: &'r dyn Fn(usize) -> At<'r>,
    pub own: &'r Formula,
    /// Whether an element may be this number.
    pub is_made: &'r (dyn Fn(usize, f64) -> bool + Sync),
    pub right: &'r [bool],
    pub norm: bool,
}

/// Strides between rows of so many columns: where they stand in memory, and where they are read.
fn strides(width: usize) -> Vec<(usize, usize)> {
    let mut wider: Vec<usize> = (2..=6).map(|n| n * width).chain([width * 3 / 2, width * 4 / 3, width * 5 / 4]).collect();
    wider.extend([8usize, 16, 32, 64, 128, 256, 512].iter().flat_map(|p| [width + p, width.next_multiple_of(*p)]));
    wider.extend([8usize, 16].iter().flat_map(|unit| (1..=MORE / unit).map(move |n| width + unit * n)));
    wider.retain(|w| *w > width);
    let narrower = [width / 2, width / 4].into_iter().filter(|w| *w > 0);
    let mut all: Vec<(usize, usize)> = wider.iter().map(|p| (*p, width)).collect();
    all.extend(wider.iter().map(|s| (width, *s)).chain(narrower.map(|s| (width, s))));
    let mut seen = Vec::new();
    all.into_iter().for_each(|pair| {
        if !seen.contains(&pair) {
            seen.push(pair)
        }
    });
    seen
}

/// At which strides the rows were read, in words. `None`: at none of these.
pub fn explain(seen: &Seen) -> Option<String> {
    let first = (seen.at)(0);
    let (rows, width, cols) = (first.rows, first.rows[0].len(), first.cols);
    let wrong = seen.right.iter().filter(|r| !**r).count();
    (rows.len() > 2 && wrong >= LEAST).then_some(())?;
    let at = |source: &[Vec<f64>], pitch: usize, from: usize| -> Option<f64> {
        source.get(from / pitch).and_then(|row| row.get(from % pitch)).copied()
    };
    let says = |read: &dyn Fn(usize, usize) -> Option<f64>| {
        let (mut known, mut made, mut told) = (0usize, 0usize, 0usize);
        for (i, right) in rows.iter().enumerate() {
            let row: Vec<Option<f64>> = (0..width).map(|c| read(i, c)).collect();
            if row.iter().all(Option::is_none) || seen.norm && row.iter().any(Option::is_none) {
                continue;
            }
            // A row that is read where it stands says nothing.
            if row.iter().zip(right).all(|(x, y)| *x == Some(*y)) {
                continue;
            }
            let moved: Vec<f64> = row.iter().map(|x| x.unwrap_or(0.0)).collect();
            let own = seen.own.row(&At { rows: std::slice::from_ref(&moved), i: 0, ..(seen.at)(i) });
            for (j, y) in own.into_iter().enumerate() {
                let gate = width == cols || row[cols + j].is_some();
                if row[j].is_none() || !gate {
                    continue;
                }
                let is = (seen.is_made)(i * cols + j, y);
                (known, made) = (known + 1, made + usize::from(is));
                told += usize::from(is && !seen.right[i * cols + j]);
            }
            // A few rows refuse most.
            if known >= LEAST && (made as f64) < 0.5 * known as f64 {
                return false;
            }
        }
        made as f64 >= SHARE * known as f64 && told >= LEAST && TOLD * told >= wrong
    };
    for unit in [2usize, 4, 8, 16, 32, 64, 128] {
        // Vectors of so many elements, from an address that is no multiple of one.
        if !width.is_multiple_of(unit) && says(&|i, c| at(rows, width, i * width / unit * unit + c)) {
            return Some(format!(
                "the start of a row, at r·{width}, is aligned down to a multiple of {unit} elements: rows that start between are read too early"
            ));
        }
    }
    strides(width).into_iter().find(|(pitch, stride)| says(&|i, c| at(rows, *pitch, i * stride + c))).map(|(pitch, stride)| {
        let why = match pitch > width {
            true => "the row stride of the tensor that a is a slice of is left out",
            false => "it is the row stride of another tensor",
        };
        format!("element (r, c) of a, at r·{pitch} + c in memory, is read at r·{stride} + c: {why}")
    })
}

/// Gates that are read from an address that is aligned down to whole vectors, or a little before where they start.
pub fn gates(op: Op, own: Act, cols: usize) -> Vec<Formula> {
    if op != Op::Gated {
        return Vec::new();
    }
    // The second half starts at this place of all memory.
    let start = move |r: &At| r.i * 2 * r.cols + r.cols;
    let flat = |r: &At, at: usize| r.rows.get(at / (2 * r.cols)).map_or(0.0, |row| row[at % (2 * r.cols)]);
    let mut all: Vec<Formula> = Vec::new();
    let units = [2usize, 4, 8, 16, 32, 64, 128, 256];
    for unit in units.into_iter().filter(|unit| !cols.is_multiple_of(*unit) && cols > *unit) {
        let words = format!(
            "the address of the gate is aligned down to a multiple of {unit} elements, {} columns before it",
            cols % unit
        );
        all.push(formula(words, move |r: &At| {
            let from = start(r) / unit * unit;
            (0..r.cols).map(|j| act(own, r.x()[j]) * gate(own, flat(r, from + j))).collect()
        }));
        let words = format!("the address of the gate is aligned up to a multiple of {unit} elements");
        all.push(formula(words, move |r: &At| {
            let from = start(r).next_multiple_of(unit);
            (0..r.cols).map(|j| act(own, r.x()[j]) * gate(own, flat(r, from + j))).collect()
        }));
    }
    for d in super::formulas::SHIFTS.into_iter().filter(|d| *d < cols) {
        all.push(formula(format!("the second half of a row is read {d} elements before where it starts"), move |r: &At| {
            (0..r.cols).map(|j| act(own, r.x()[j]) * gate(own, flat(r, start(r) - d + j))).collect()
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::by_hand::rows;
    use crate::bundle::gates::activations;

    /// What is said of silu of rows of 24 that are read so.
    fn said(read: &dyn Fn(usize, usize) -> f64) -> Option<String> {
        let rows = rows(20, 24);
        let own = &activations(Op::Activation, Act::Silu)[0];
        let at = |i: usize| At { rows: &rows, i, gamma: &[], beta: &[], eps: 0.0, cols: 24 };
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let actual: Vec<f64> = (0..480).map(|n| silu(read(n / 24, n % 24))).collect();
        let is_made = |n: usize, y: f64| (actual[n] - y).abs() <= 1e-9;
        let right: Vec<bool> = (0..480).map(|n| is_made(n, silu(rows[n / 24][n % 24]))).collect();
        explain(&Seen { at: &at, own, is_made: &is_made, right: &right, norm: false })
    }

    #[test]
    fn rows_of_a_slice_that_are_read_as_contiguous() {
        let all = rows(20, 24);
        let other = |n: usize| (n * 7 % 13) as f64 - 5.5;
        let memory = |pitch: usize, n: usize| all.get(n / pitch).and_then(|r| r.get(n % pitch)).copied().unwrap_or(other(n));
        let words = said(&|i, j| memory(48, 24 * i + j)).unwrap();
        assert!(words.contains("at r·48 + c in memory, is read at r·24 + c") && words.contains("slice"), "{words}");
        let words = said(&|i, j| memory(32, 24 * i + j)).unwrap();
        assert!(words.contains("at r·32 + c in memory, is read at r·24 + c"), "{words}");
        let words = said(&|i, j| memory(24, 48 * i + j)).unwrap();
        assert!(words.contains("at r·24 + c in memory, is read at r·48 + c") && words.contains("another tensor"), "{words}");
        let words = said(&|i, j| memory(24, 24 * i / 16 * 16 + j)).unwrap();
        assert!(words.contains("at r·24, is aligned down to a multiple of 16 elements"), "{words}");
        assert_eq!(said(&|i, j| memory(24, 24 * i + j)), None);
        assert_eq!(said(&|i, j| other(24 * i + j)), None);
    }

    /// Halves of 6 behind each other: the second of row 1 starts at 18.
    #[test]
    fn gates_from_a_whole_vector() {
        let rows: Vec<Vec<f64>> = (0..2).map(|i| (0..12).map(|j| f64::from(12 * i + j)).collect()).collect();
        let at = At { rows: &rows, i: 1, gamma: &[], beta: &[], eps: 0.0, cols: 6 };
        let all = gates(Op::Gated, Act::Relu, 6);
        let of = |words: &str| all.iter().find(|f| f.words.contains(words)).unwrap_or_else(|| panic!("{words}")).row(&at);
        assert_eq!(of("aligned down to a multiple of 4")[..2], [12.0 * 16.0, 13.0 * 17.0]);
        assert_eq!(of("aligned up to a multiple of 4")[..2], [12.0 * 20.0, 13.0 * 21.0]);
        assert_eq!(of("read 2 elements before")[..2], [12.0 * 16.0, 13.0 * 17.0]);
        assert!(!all.iter().any(|f| f.words.contains("multiple of 2 ")), "6 is one");
    }

    /// Rows of 12 beside rows of 15: 15 is no multiple of 8 more.
    #[test]
    fn strides_are_a_quarter_wider_too() {
        let all = strides(12);
        assert!(all.contains(&(15, 12)) && all.contains(&(12, 15)), "{all:?}");
    }
}
