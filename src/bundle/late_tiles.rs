//! Parts of the tiles of a transposed copy that are those of a tile before: a barrier is missing, and the tile in shared memory is stored before all of
//! it is there.
//!
//! ```text
//! copy of tile t at place p  =  tile t − d at place p          where p is in the part that is late
//! ```

use crate::QTensor;

/// Codes that a late part must make, and the share of those that are known.
const LEAST: usize = 64;
const SHARE: f64 = 0.98;
/// Tiles that it may be late by.
const FAR: usize = 4;

/// Where the wrong codes of `copy`, `[cols, rows]` of `q`, come from, in words.
pub fn explain(copy: &[u8], q: &QTensor, wrong: &[usize]) -> Option<String> {
    let (rows, cols, codes) = (q.rows(), q.cols(), q.codes());
    let sides = || (3..8).map(|p| 1usize << p);
    (wrong.len() >= LEAST).then_some(())?;
    // By one tile of any size before by two.
    let sizes = move || sides().flat_map(move |h| sides().map(move |w| (h, w))).filter(move |(h, w)| *h <= rows && *w <= cols);
    for (d, (h, w)) in (1..=FAR).flat_map(|d| sizes().map(move |size| (d, size))) {
        let (m, n) = (rows.div_ceil(h), cols.div_ceil(w));
        // The part of a tile that all wrong codes lie in: rows or columns of it, from a multiple of an eighth on.
        let range = |of: &dyn Fn(usize) -> usize, size: usize| {
            let unit = (size / 8).max(1);
            let (low, high) = wrong.iter().fold((size, 0), |(low, high), at| (low.min(of(*at)), high.max(of(*at) + 1)));
            (low / unit * unit, high.next_multiple_of(unit).min(size))
        };
        let in_rows = range(&|at| at % rows % h, h);
        let in_cols = range(&|at| at / rows % w, w);
        let (r0, r1, c0, c1) = (in_rows.0, in_rows.1, in_cols.0, in_cols.1);
        let part = |at: &usize| (r0..r1).contains(&(at % rows % h)) && (c0..c1).contains(&(at / rows % w));
        let late: Vec<usize> = (0..copy.len()).filter(part).collect();
        for by_rows in [true, false] {
            let source = |at: &usize| {
                let (i, j) = (at % rows, at / rows);
                let t = if by_rows { i / h * n + j / w } else { j / w * m + i / h };
                let t = t.checked_sub(d)?;
                let (x, y) = if by_rows { (t / n, t % n) } else { (t % m, t / m) };
                // What a short tile before has not written, nobody knows.
                let (i, j) = (x * h + i % h, y * w + j % w);
                (i < rows && j < cols).then(|| codes[i * cols + j])
            };
            let (mut known, mut hit, mut told) = (0usize, 0usize, 0usize);
            for at in &late {
                if let Some(code) = source(at) {
                    known += 1;
                    hit += usize::from(code == copy[*at]);
                    told += usize::from(code == copy[*at] && code != codes[at % rows * cols + at / rows]);
                }
            }
            // Most of what is wrong is told, by codes that are not the right ones.
            if told >= LEAST && 2 * told >= wrong.len() && hit as f64 >= SHARE * known as f64 {
                let which = match ((r0, r1) == (0, h), (c0, c1) == (0, w)) {
                    (true, true) => "all of each tile".to_string(),
                    (false, true) => format!("rows {r0} … {} of each tile", r1 - 1),
                    (true, false) => format!("columns {c0} … {} of each tile", c1 - 1),
                    _ => format!("rows {r0} … {}, columns {c0} … {} of each tile", r1 - 1, c1 - 1),
                };
                let order = if by_rows { "row by row" } else { "column by column" };
                let before = if d == 1 { "the tile before".to_string() } else { format!("the tile {d} before") };
                return Some(format!(
                    "{which} of {h}×{w} codes are still those of {before}, tiles counted {order}: the tile is stored before it is written"
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::named_tests::is_named;
    use super::super::replayed_tests::copied;

    #[test]
    fn a_part_of_the_tiles_of_a_copy_that_is_late_is_named() {
        // Tiles of 16 × 16 in four columns of tiles; the lower half is that of the tile to the left, nothing in the first.
        let w = copied(&|codes, c, r| match (r % 16 >= 8, (r / 16 * 4 + c / 16).checked_sub(1)) {
            (false, _) => codes[r * 64 + c],
            (true, Some(t)) => codes[(t / 4 * 16 + r % 16) * 64 + t % 4 * 16 + c % 16],
            (true, None) => 0,
        });
        is_named(
            &w,
            "race:transpose.late",
            &["rows 8 … 15 of each tile of 16×16 codes are still those of the tile before", "row by row"],
        );
    }
}
