//! Sums of a row in which something of rows before it is left: an accumulator that is not cleared, slots of shared memory that are read too early.
//!
//! ```text
//! a block takes rows i, i + 1, …:  S_i = Σ rows of the block so far          slots of some warps:  S_i = own part + the other part of row i − d
//! ```

use super::{Add, Row};

/// Rows that a block takes one after the other, and how far apart they are, at most.
const ROWS: usize = 64;
/// Columns of the run of a warp and how many slots there are.
const RUNS: [usize; 6] = [32, 64, 128, 256, 512, 1024];
const SLOTS: [usize; 3] = [2, 4, 8];
/// How far the row is whose part is in a slot, at most.
const FAR: usize = 32;

/// Sums that hold earlier rows, or a part of one.
pub(super) fn sums(table: &[Row], what: &str, add: &mut Add) {
    let (count, n) = (table.len(), table[0].squares.len());
    let size = n as f64;
    let total = |i: usize| table[i].total() / size;
    // Rows that follow each other in a block; all of them, too.
    let mut before = vec![0.0];
    (0..count).fold(0.0, |sum, i| {
        before.push(sum + total(i));
        sum + total(i)
    });
    for d in (2..=ROWS.min(count)).chain([count]).filter(|d| *d > 1) {
        let these = if d == count { "the rows".to_string() } else { format!("each {d} rows") };
        let words = format!(
            "the {what} also holds the rows before it of {these} that a block takes one after the other: the sum is not cleared"
        );
        add(words, &|i| before[i + 1] - before[i / d * d]);
    }
    // Rows of a block that are so far apart, as many as there are blocks.
    for d in (2..=ROWS).filter(|d| 2 * d <= count) {
        let mut sums: Vec<f64> = (0..count).map(total).collect();
        (d..count).for_each(|i| sums[i] += sums[i - d]);
        let words = format!("the {what} also holds rows i − {d}, i − {}, … of the same block: the sum is not cleared", 2 * d);
        add(words, &|i| sums[i]);
    }
    for width in RUNS.into_iter().filter(|w| *w < n) {
        for of in SLOTS.into_iter().filter(|of| (of - 1) * width < n) {
            for which in 0..of {
                let part: Vec<f64> = (0..count).map(|i| table[i].slice(width, of, which) / size).collect();
                for d in 1..=FAR.min(count - 1) {
                    // Shared memory holds nothing before the first row of a block.
                    let far = |i: usize, of: &dyn Fn(usize) -> f64| i.checked_sub(d).map_or(0.0, of);
                    let slot = format!("slice {which} of every {of}, {width} wide,");
                    let end = "slots are read before they are written, a barrier is missing";
                    let words =
                        format!("the {what} takes {slot} of row i − {d}, 0 in the first, and the others of its own row: {end}");
                    add(words, &|i| total(i) - part[i] + far(i, &|o| part[o]));
                    if of > 2 {
                        let words = format!(
                            "the {what} takes {slot} of its own row and the others of row i − {d}, 0 in the first: {end}"
                        );
                        add(words, &|i| part[i] + far(i, &|o| total(o) - part[o]));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Solved, formulas};
    use crate::op::Op;

    /// The sum of squares of a row between two columns.
    type Squares<'a> = &'a dyn Fn(usize, usize, usize) -> f64;

    /// What is said of 40 rows of 256 whose mean squares are these, by the sum of squares of columns of a row.
    fn said(of: &dyn Fn(usize, Squares) -> f64) -> Vec<String> {
        let value = |i: usize, j: usize| ((i * 7919 + j * 131 + i * j * 17) % 1009) as f64 / 300.0 - 1.5;
        let rows: Vec<Vec<f64>> =
            (0..40).map(|i| (0..256).map(|j| value(i, j) * (1.0 + (i * 5 % 7) as f64)).collect()).collect();
        let sum = |i: usize, from: usize, to: usize| rows[i][from..to].iter().map(|x| x * x).sum::<f64>() / 256.0;
        let one = |i: usize| of(i, &sum);
        let solved: Vec<(usize, Solved)> = (0..40).map(|i| (i, Some((one(i) * (1.0 - 1e-6), one(i) * (1.0 + 1e-6))))).collect();
        formulas(Op::Rmsnorm, &rows, &solved).into_iter().map(|f| f.words).collect()
    }

    #[test]
    fn sums_that_are_not_cleared_are_named() {
        let all = said(&|i, s| (i / 4 * 4..=i).map(|r| s(r, 0, 256)).sum());
        assert!(all[0].contains("also holds the rows before it of each 4 rows that a block takes"), "{all:?}");
        let all = said(&|i, s| (0..=i).map(|r| s(r, 0, 256)).sum());
        assert!(all[0].contains("the rows before it of the rows that a block takes"), "{all:?}");
        let all = said(&|i, s| (i % 6..=i).step_by(6).map(|r| s(r, 0, 256)).sum());
        assert!(all[0].contains("also holds rows i − 6, i − 12, …"), "{all:?}");
        assert!(said(&|i, s| s(i, 0, 256)).is_empty());
    }

    #[test]
    fn slots_of_an_earlier_row_are_named() {
        let early = |i: usize, s: &dyn Fn(usize, usize, usize) -> f64, from: usize, to: usize| {
            if i < 12 { 0.0 } else { s(i - 12, from, to) }
        };
        let all = said(&|i, s| s(i, 0, 64) + s(i, 128, 192) + early(i, s, 64, 128) + early(i, s, 192, 256));
        assert!(all[0].contains("takes slice 1 of every 2, 64 wide, of row i − 12, 0 in the first"), "{all:?}");
        let all = said(&|i, s| s(i, 0, 64) + early(i, s, 64, 256));
        assert!(all[0].contains("takes slice 0 of every 4, 64 wide, of its own row and the others of row i − 12"), "{all:?}");
    }
}
