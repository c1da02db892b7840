//! Sums of a row that are joined of parts of it in shared memory: a slot that still holds another reduction's part, a halving tree that drops a lane where
//! its width is odd, a plain mean of the means of chunks that are not of one size.
//!
//! ```text
//! Σ of slots, one of which is Σ x where Σ (x − μ)² belongs            width 5 → 2: lanes 0, 1 take 2, 3, and lane 4 is in no sum
//! ```

use super::{Add, Row, remainders};
use crate::op::Op;

/// Columns of a lane, and of a run of lanes.
const VECTORS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const RUNS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const SLOTS: [usize; 5] = [2, 4, 8, 16, 32];
/// Columns of a chunk.
const CHUNKS: [usize; 8] = [1024, 512, 256, 128, 64, 32, 16, 8];
/// Lanes that are no power of two, beside those that vectors of a row make.
const LANES: [usize; 12] = [24, 40, 48, 96, 160, 192, 224, 320, 384, 448, 640, 768];

/// How a row of `n` columns falls into slots: columns of a run, slots.
fn slots(n: usize) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = SLOTS.into_iter().map(|of| (n.div_ceil(of), of)).collect();
    all.extend(RUNS.into_iter().flat_map(|w| SLOTS.map(|of| (w, of))));
    all.retain(|(w, of)| (of - 1) * w < n && n >= 8);
    all.sort_unstable();
    all.dedup();
    all
}

/// Which columns a halving tree over lanes sums, where lanes are dropped: words, and whether a column is in.
pub fn trees(n: usize) -> Vec<(String, Vec<bool>)> {
    let mut all = Vec::new();
    for v in VECTORS.into_iter().filter(|v| v * 3 <= n) {
        let mut lanes = LANES.to_vec();
        lanes.push(n.div_ceil(v));
        lanes.sort_unstable();
        lanes.dedup();
        for lanes in lanes.into_iter().filter(|l| l * v <= n.next_multiple_of(v)) {
            let mut kept: Vec<bool> = vec![true; lanes];
            // The lane that each is summed into so far.
            let mut place: Vec<usize> = (0..lanes).collect();
            let (mut width, mut odd) = (lanes, Vec::new());
            while width > 1 {
                if width % 2 == 1 {
                    // What was summed into the last lane so far goes with it.
                    (0..lanes).filter(|l| place[*l] == width - 1).for_each(|l| kept[l] = false);
                    odd.push(width.to_string());
                }
                width /= 2;
                place.iter_mut().filter(|p| (width..2 * width).contains(*p)).for_each(|p| *p -= width);
            }
            if !kept.contains(&false) {
                continue;
            }
            let words = format!(
                "what a halving tree over {lanes} lanes drops: at {} {} the last lane is in no sum (column j in lane (j / {v}) mod {lanes})",
                if odd.len() > 1 { "widths" } else { "width" },
                odd.join(", ")
            );
            all.push((words, (0..n).map(|j| kept[j / v % lanes]).collect()));
        }
    }
    all
}

/// Sums of squares of such parts.
pub(super) fn sums(op: Op, rows: &[Vec<f64>], table: &[Row], what: &str, add: &mut Add) {
    let n = table[0].squares.len();
    let size = n as f64;
    for (w, of) in slots(n) {
        for which in 0..of {
            let squares = |i: usize| table[i].slice(w, of, which);
            let place = if w * of >= n {
                format!("columns {} … {}", which * w, ((which + 1) * w).min(n) - 1)
            } else {
                format!("slice {which} of every {of}, {w} wide")
            };
            if op == Op::Layernorm {
                let x = |i: usize| {
                    (which * w..n).step_by(of * w).map(|from| rows[i][from..(from + w).min(n)].iter().sum::<f64>()).sum::<f64>()
                };
                add(
                    format!(
                        "the {what} sums x itself over {place}: the slot of these columns still holds their part of the sum that the mean is of"
                    ),
                    &|i| (table[i].total() - squares(i) + x(i)) / size,
                );
            }
            for d in [1usize, 2, 4, 8, 16, 32, 64].into_iter().filter(|d| *d < rows.len()) {
                add(
                    format!("the {what} sums {place} of row i − {d} where its own belong: their slot is still that row's"),
                    &|i| {
                        let before = i.checked_sub(d).map_or(f64::NAN, squares);
                        (table[i].total() - squares(i) + before) / size
                    },
                );
            }
        }
    }
    remainders::sums(table, what, add);
    for (words, kept) in trees(n) {
        add(format!("the {what} lacks {words}"), &|i| {
            table[i].squares.iter().zip(&kept).filter(|(_, k)| **k).map(|(x, _)| x).sum::<f64>() / size
        });
    }
    for w in CHUNKS.into_iter().filter(|w| *w < n && !n.is_multiple_of(*w)) {
        let chunks = n.div_ceil(w);
        add(
            format!(
                "the {what} is the plain mean of those of its {chunks} chunks of {w} columns, the last of which has {}",
                n % w
            ),
            &|i| {
                (0..chunks).map(|c| table[i].range(c * w, (c + 1) * w) / (((c + 1) * w).min(n) - c * w) as f64).sum::<f64>()
                    / chunks as f64
            },
        );
    }
}

/// Means of a row of such parts.
pub fn means(rows: &[Vec<f64>], add: &mut Add) {
    let n = rows[0].len();
    remainders::means(rows, add);
    let part = |i: usize, from: usize, to: usize| rows[i][from..to.min(n)].iter().sum::<f64>() / (to.min(n) - from) as f64;
    for (words, kept) in trees(n) {
        add(format!("the mean lacks {words}"), &|i| {
            rows[i].iter().zip(&kept).filter(|(_, k)| **k).map(|(x, _)| x).sum::<f64>() / n as f64
        });
    }
    for w in CHUNKS.into_iter().filter(|w| *w < n) {
        let chunks = n.div_ceil(w);
        if !n.is_multiple_of(w) {
            let words = format!(
                "the mean is the plain mean of those of its {chunks} chunks of {w} columns, the last of which has {}",
                n % w
            );
            add(words, &|i| (0..chunks).map(|c| part(i, c * w, (c + 1) * w)).sum::<f64>() / chunks as f64);
        }
        // That of two chunks is the plain mean of both, which is right where they are of one size.
        if chunks < 3 {
            continue;
        }
        add(format!("the mean of every chunk of {w} columns is averaged with the one so far, whatever that is of"), &|i| {
            (1..chunks).fold(part(i, 0, w), |m, c| 0.5 * (m + part(i, c * w, (c + 1) * w)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of five lanes lane 4 is dropped, of six none until width 3: lanes 2 and 5.
    #[test]
    fn lanes_that_a_tree_drops() {
        let kept = |n: usize, words: &str| {
            let all = trees(n);
            all.into_iter().find(|(w, _)| w.contains(words)).map(|(_, kept)| (0..n).filter(|j| !kept[*j]).collect::<Vec<_>>())
        };
        assert_eq!(kept(5, "over 5 lanes").unwrap(), [4]);
        assert_eq!(kept(6, "over 6 lanes").unwrap(), [2, 5]);
        assert_eq!(kept(7, "over 7 lanes drops: at widths 7, 3").unwrap(), [2, 5, 6]);
        assert_eq!(
            kept(40, "over 20 lanes drops: at width 5 the last lane is in no sum (column j in lane (j / 2)").unwrap().len(),
            8
        );
        assert!(kept(64, "over 64 lanes").is_none());
        // 320 columns in vectors of 8: lanes 4, 9, …, 39.
        let dropped =
            kept(320, "over 40 lanes drops: at width 5 the last lane is in no sum (column j in lane (j / 8)").unwrap();
        assert!(dropped.iter().all(|j| j / 8 % 5 == 4) && dropped.len() == 64);
    }

    #[test]
    fn slots_of_a_row_and_chunks_of_other_sizes() {
        assert!(slots(64).contains(&(16, 4)) && slots(64).contains(&(32, 2)) && slots(64).contains(&(1, 32)));
        let rows = [(0..12).map(f64::from).collect::<Vec<f64>>()];
        let mut found = Vec::new();
        means(&rows, &mut |words, of| found.push((words, of(0))));
        let of = |words: &str| found.iter().find(|f| f.0.contains(words)).unwrap().1;
        // 0 … 7 and 8 … 11.
        assert_eq!(of("plain mean of those of its 2 chunks of 8"), 0.5 * (3.5 + 9.5));
        // 0 … 7, 8 … 15 and 16 … 19.
        let of = |n: usize| {
            let rows = [(0..n).map(|j| j as f64).collect::<Vec<f64>>()];
            let mut found = None;
            means(&rows, &mut |words, of| {
                if words.contains("every chunk of 8 columns is averaged") {
                    found = Some(of(0));
                }
            });
            found
        };
        assert_eq!(of(20), Some(0.5 * (0.5 * (3.5 + 11.5) + 17.5)));
        assert_eq!([16, 12].map(of), [None, None], "two chunks by the plain mean of theirs");
    }
}
