//! Scales of a dequantization in tiles of 128 rows and 4 groups, as block-scaled products want them, that are read in another order.
//!
//! ```text
//! (r, c)  ──►  tile (r / 128, c / 4), place (r mod 32)·16 + (r mod 128) / 32 · 4 + c mod 4        512 places a tile
//! ```

use super::casts::Named;
use crate::QTensor;
use crate::fault::Class;

/// Groups whose own scale does not make them, at least.
const LEAST: usize = 8;

/// Words, and the group whose scale is read; `None`: padding.
type Way<'w> = (String, Box<dyn Fn(usize, usize) -> Option<(usize, usize)> + 'w>);

/// Words, and the row of a tile whose scale is read for a row.
type Order = (&'static str, fn(usize) -> usize);

/// The group that stands at a place of the tiles, `across` of which lie beside each other.
fn at(place: usize, across: usize) -> (usize, usize) {
    let (tile, place) = (place / 512, place % 512);
    (tile / across * 128 + place % 16 / 4 * 32 + place / 16, tile % across * 4 + place % 4)
}

/// The place of a group in the tiles.
fn place((r, c): (usize, usize), across: usize) -> usize {
    (r / 128 * across + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4
}

/// The wrong ways to read the scales of a grid.
fn ways<'w>((rows, cols): (usize, usize)) -> Vec<Way<'w>> {
    let mut all: Vec<Way> = Vec::new();
    let orders: [Order; 2] = [
        ("4 apart (row r at (r / 4)·16 + (r mod 4)·4) where they stand 32 apart", |r| r % 4 * 32 + r / 4),
        ("32 apart (row r at (r mod 32)·16 + (r / 32)·4) where they stand 4 apart", |r| r % 32 * 4 + r / 32),
    ];
    for (words, order) in orders {
        let padding = if rows % 128 > 0 { ", rows of padding have 0" } else { "" };
        let words = format!("scales in tiles of 128 rows and 4 groups are read as if their rows stood {words}{padding}");
        all.push((words, Box::new(move |r, c| Some((r / 128 * 128 + order(r % 128), c)))));
    }
    let across = cols.div_ceil(4);
    let mut pitches = vec![cols, 4 * across, cols.next_multiple_of(8), cols.next_multiple_of(16)];
    pitches.dedup();
    for pitch in pitches {
        let rows_of = format!("row by row, rows {pitch} apart");
        let words =
            format!("scales that stand in tiles of 128 rows and 4 groups are read {rows_of}: group (r, c) at r·{pitch} + c");
        all.push((words, Box::new(move |r, c| Some(at(r * pitch + c, across)))));
        let words = format!("scales that stand {rows_of}, are read as if they stood in tiles of 128 rows and 4 groups");
        let turned = move |r: usize, c: usize| Some(place((r, c), across)).map(|n| (n / pitch, n % pitch));
        all.push((words, Box::new(turned)));
    }
    all
}

/// The order that scales of a grid are read in, with or without the second level. `holds`: whether a group may have had this scale; `known`: groups that
/// say something of theirs.
pub fn explain(q: &QTensor, grid: (usize, usize), known: &[usize], holds: &dyn Fn(usize, f64) -> bool) -> Option<Named> {
    let (rows, cols) = grid;
    (rows > 4 && !known.is_empty()).then_some(())?;
    let few: Vec<usize> = known.iter().copied().step_by(known.len().div_ceil(64)).collect();
    ways(grid).into_iter().find_map(|(words, from)| {
        [true, false].into_iter().find_map(|with_level| {
            let by = |g: usize| if with_level { f64::from(q.over(g).0) } else { 1.0 };
            let own = |g: usize| f64::from(q.scale_inv()[g]) * by(g);
            // Rows of padding have scales of 0; what else pads a row nobody knows.
            let read = |g: usize| match from(g / cols, g % cols)? {
                (r, _) if r >= rows => Some(0.0),
                (_, c) if c >= cols => None,
                (r, c) => Some(f64::from(q.scale_inv()[r * cols + c]) * by(g)),
            };
            let is = |g: &usize| read(*g).is_none_or(|s| holds(*g, s));
            (few.iter().all(is) && known.iter().all(is)).then_some(())?;
            // Scales that are alike are in any order.
            let told = known.iter().filter(|g| read(**g).is_some() && !holds(**g, own(**g))).count();
            let read = known.iter().filter(|g| read(**g).is_some()).count();
            (told >= LEAST && 2 * read >= known.len()).then(|| {
                let level = if with_level { "" } else { "; and the second level, the global scale, is not multiplied" };
                (Class::ScaleLayout, "a.swizzle", format!("{words}{level}"))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{QTensorParts, Zero};
    use crate::{Format, Granularity};

    /// What is said of 160 × 6 scales where these were used.
    fn said(used: &dyn Fn(&QTensor, usize, usize) -> f64) -> Option<String> {
        let (rows, cols) = (160, 6);
        let parts = QTensorParts {
            format: Format::E2m3,
            rows,
            cols: 32 * cols,
            codes: vec![8; 32 * rows * cols],
            granularity: Granularity::Group(32),
            scale_format: Format::E8m0,
            scale_inv: (0..rows * cols).map(|g| ((g * 7919 % 101 % 13) as f32 - 6.0).exp2()).collect(),
            zero: Zero::None,
            level: None,
        };
        let q = QTensor::new(parts).unwrap();
        let known: Vec<usize> = (0..rows * cols).collect();
        explain(&q, (rows, cols), &known, &|g, s| s == used(&q, g / cols, g % cols)).map(|f| f.2)
    }

    #[test]
    fn a_group_stands_where_its_place_says() {
        for group in [(0, 0), (1, 0), (31, 3), (32, 0), (127, 5), (128, 4), (159, 5)] {
            assert_eq!(at(place(group, 2), 2), group);
        }
        assert_eq!([(1, 0), (32, 0), (0, 3), (0, 4), (128, 0)].map(|g| place(g, 2)), [16, 4, 3, 512, 1024]);
    }

    #[test]
    fn tiles_that_are_read_row_by_row_are_told_and_the_other_way_about() {
        let scale =
            |q: &QTensor, (r, c): (usize, usize)| if r < 160 && c < 6 { f64::from(q.scale_inv()[r * 6 + c]) } else { 0.0 };
        let words = said(&|q, r, c| scale(q, at(r * 8 + c, 2))).unwrap();
        assert!(words.contains("tiles of 128 rows and 4 groups are read row by row, rows 8 apart"), "{words}");
        let words = said(&|q, r, c| scale(q, (place((r, c), 2) / 6, place((r, c), 2) % 6))).unwrap();
        assert!(words.starts_with("scales that stand row by row, rows 6 apart, are read as if"), "{words}");
        assert_eq!(said(&|q, r, c| scale(q, (r, c))), None, "what is right has no name");
        assert_eq!(said(&|q, r, c| scale(q, ((r * 7 + 3) % 160, c))), None, "an order of no tile");
    }
}
