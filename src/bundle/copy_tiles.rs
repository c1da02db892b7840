//! Parts of the tiles of a transposed copy that still hold another tile: the buffer of a tile is read before all of it is written.
//!
//! ```text
//! copy (c, r) in tile t, place (i, j) of the tile  ──►  code at place (i, j) of tile t − d        tiles by rows or by columns
//! ```

use crate::QTensor;
use crate::fault::Class;
use crate::fault::solve::segment::lines;
use crate::order::Order as _;

/// Sides of tiles, and how many tiles earlier or later.
const SIDES: [usize; 4] = [16, 32, 64, 128];
const FAR: isize = 8;
/// Wrong codes whose source is known, at least, and the share that has to be it.
const LEAST: usize = 64;
const SHARE: f64 = 0.98;

/// Which tile `wrong` places of a copy, `[cols, rows]` of `q`, hold, in words.
pub fn explain(copy: &[u8], q: &QTensor, wrong: &[usize]) -> Option<(Class, &'static str, String)> {
    let (rows, cols, codes) = (q.rows(), q.cols(), q.codes());
    // The part of each tile of a size that is wrong, where that is not all of it.
    let part = |(h, w): (usize, usize)| {
        let (mut is_row, mut is_col) = (vec![false; h], vec![false; w]);
        wrong.iter().for_each(|at| (is_row[at % rows % h], is_col[at / rows % w]) = (true, true));
        (is_row.contains(&false) || is_col.contains(&false)).then_some((h, w, is_row, is_col))
    };
    // The nearest tile first, then square ones.
    let mut sides: Vec<(usize, usize)> = SIDES.into_iter().flat_map(|h| SIDES.map(move |w| (h, w))).collect();
    sides.order_by_key(|(h, w)| h != w);
    let sides: Vec<(usize, usize, Vec<bool>, Vec<bool>)> = sides.into_iter().filter_map(part).collect();
    let ways = (1..=FAR).flat_map(|d| [d, -d]).flat_map(|d| [(d, true), (d, false)]);
    // A part in its own place, or in that of a face of another one: tiles of one shape that go through the transpose of another.
    let all = ways.flat_map(|way| sides.iter().map(move |side| (way, side)));
    let all = [false, true].into_iter().flat_map(|moved| all.clone().map(move |(way, side)| (moved, way, side)));
    all.into_iter().find_map(|(moved, (d, by_rows), (h, w, is_row, is_col))| {
        let (h, w) = (*h, *w);
        // The part is a half, and so is its source.
        let second = |is: &[bool]| is.iter().position(|x| *x).filter(|n| 2 * n == is.len() && is[*n..].iter().all(|x| *x));
        let (off_row, off_col) = match (moved, second(is_row), second(is_col)) {
            (false, _, _) => (0, 0),
            (true, Some(n), None) => (n, 0),
            (true, None, Some(n)) => (0, n),
            _ => return None,
        };
        let (down, across) = (rows.div_ceil(h), cols.div_ceil(w));
        let source = |at: usize| {
            let (c, r) = (at / rows, at % rows);
            let tile = if by_rows { r / h * across + c / w } else { c / w * down + r / h };
            let tile = tile.checked_add_signed(-d).filter(|t| *t < down * across)?;
            let (tile_row, tile_col) = if by_rows { (tile / across, tile % across) } else { (tile % down, tile / down) };
            let (r, c) = (tile_row * h + r % h - off_row, tile_col * w + c % w - off_col);
            (r < rows && c < cols).then(|| codes[r * cols + c])
        };
        let (mut known, mut hit) = (0usize, 0usize);
        // Of every tile, not of the wrong ones alone.
        for at in (0..copy.len()).filter(|at| is_row[at % rows % h] && is_col[at / rows % w]) {
            if let Some(code) = source(at) {
                (known, hit) = (known + 1, hit + usize::from(code == copy[at]));
            }
            if known >= LEAST && 2 * hit < known {
                return None;
            }
        }
        (known >= LEAST && 2 * known >= wrong.len() && hit as f64 >= SHARE * known as f64).then_some(())?;
        let part = match (is_row.contains(&false), is_col.contains(&false)) {
            (true, false) => format!("rows {}", lines(is_row)),
            (false, true) => format!("columns {}", lines(is_col)),
            _ => format!("rows {}, columns {}", lines(is_row), lines(is_col)),
        };
        let which = match d {
            1 => "the tile before".to_string(),
            -1 => "the next tile".to_string(),
            d if d > 0 => format!("the tile {d} before"),
            d => format!("the tile {} later", -d),
        };
        let order = if by_rows { "row by row" } else { "column by column" };
        if moved {
            let first = if off_row > 0 { format!("rows 0 … {}", off_row - 1) } else { format!("columns 0 … {}", off_col - 1) };
            let words = format!(
                "{part} of each tile of {h}×{w} codes are {first} of {which}, tiles {order}: tiles of {h}×{w} go through the transpose of tiles of \
                 another shape"
            );
            return Some((Class::Addressing, "transpose.face", words));
        }
        let when = if d > 0 { "read before it is written" } else { "written again before it is read" };
        let words = format!(
            "{part} of each tile of {h}×{w} codes are those of {which}, tiles {order}: the tile's buffer is {when}, a barrier is missing"
        );
        Some((Class::Race, "transpose.stale_tile", words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Zero};

    /// What is said of the copy of 100 × 136 codes whose places in a tile of 32 × 32 are `other` ones, so many tiles away.
    fn said(part: &dyn Fn(usize, usize) -> bool, d: isize) -> Option<String> {
        shifted(part, d, 0)
    }

    /// The same from a place so many columns before in its tile.
    fn shifted(part: &dyn Fn(usize, usize) -> bool, d: isize, off: isize) -> Option<String> {
        let (rows, cols) = (100usize, 136usize);
        let code = |n: usize| ((n * 7919 + 101) % 1009 % 120) as u8;
        let parts = QTensorParts {
            format: Format::E4m3,
            rows,
            cols,
            codes: (0..rows * cols).map(code).collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        };
        let q = QTensor::new(parts).unwrap();
        let copied = |at: usize| {
            let (c, r) = (at / rows, at % rows);
            if !part(r % 32, c % 32) {
                return code(r * cols + c);
            }
            let tile = (r / 32 * 5 + c / 32) as isize - d;
            let (r, c) = (tile.div_euclid(5) * 32 + (r % 32) as isize, tile.rem_euclid(5) * 32 + (c % 32) as isize - off);
            let inside = (0..rows as isize).contains(&r) && (0..cols as isize).contains(&c);
            if inside { code(r as usize * cols + c as usize) } else { 0 }
        };
        let copy: Vec<u8> = (0..rows * cols).map(copied).collect();
        let wrong: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != code(at % rows * cols + at / rows)).collect();
        explain(&copy, &q, &wrong).map(|f| f.2)
    }

    #[test]
    fn parts_of_tiles_that_are_those_before_are_named() {
        let words = said(&|i, _| i >= 16, 1).unwrap();
        assert!(
            words.starts_with("rows 16 … 31 of each tile of 32×32 codes are those of the tile before, tiles row by row"),
            "{words}"
        );
        let words = said(&|_, j| j < 8, -1).unwrap();
        assert!(words.starts_with("columns 0 … 7 of each tile of 32×32 codes are those of the next tile"), "{words}");
        let words = shifted(&|_, j| j >= 16, -1, 16).unwrap();
        assert!(words.contains("codes are columns 0 … 15 of the next tile, tiles row by row"), "{words}");
        assert_eq!(said(&|_, _| false, 1), None);
    }
}
