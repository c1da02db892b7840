//! Scales in tiles of 128 rows and 4 groups, as block-scaled products want them: read in another order by a dequantization, or stored by a cast where rows of
//! tiles stand too near or too far.
//!
//! ```text
//! (r, c)  ──►  tile (r / 128, c / 4), place (r mod 32)·16 + (r mod 128) / 32 · 4 + c mod 4        512 places a tile
//! ```

use super::casts::{Cast, Named, Range};
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

/// The place of a group in tiles whose rows are so many apart.
fn place((r, c): (usize, usize), pitch: usize) -> usize {
    (r / 128 * pitch + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4
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
    for pitch in tile_pitches(across).filter(|_| rows > 128) {
        let words = format!(
            "scales in tiles of 128 rows and 4 groups are read as if a row of tiles began {pitch} tiles behind the one before, not {across}"
        );
        all.push((words, Box::new(move |r, c| Some(at(place((r, c), pitch), across)))));
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

/// The pitches, in tiles, that rows of tiles may have by mistake where `across` lie beside each other.
fn tile_pitches(across: usize) -> impl Iterator<Item = usize> {
    (1..=2 * across + 1).filter(move |p| *p != across)
}

impl Cast<'_> {
    /// Scales that are stored in tiles whose rows are so many tiles apart, and read where they are as many as there are: those of a row of tiles lie over
    /// the last of the row before, or leave places between.
    pub(super) fn tile_strides(&self, ranges: &[Range]) -> Option<Named> {
        let (rows, cols) = self.grid;
        let (down, across) = (rows.div_ceil(128), cols.div_ceil(4));
        (down > 1).then_some(())?;
        let written = |pitch: usize| {
            // Padding is written, too: of no group.
            let mut of: Vec<Option<usize>> = vec![None; down * across.max(pitch) * 512 + across * 512];
            for (r, c) in (0..128 * down).flat_map(|r| (0..4 * across).map(move |c| (r, c))) {
                of[place((r, c), pitch)] = (r < rows && c < cols).then_some(r * cols + c);
            }
            of
        };
        let pitch = tile_pitches(across).find(|pitch| {
            let of = written(*pitch);
            self.written_by(ranges, &|p| of.get(place((p / cols, p % cols), across)).copied().flatten())
        })?;
        let words = format!(
            "scales are stored in tiles of 128 rows and 4 groups, and a row of tiles begins {pitch} tiles behind the one before instead of {across}: {}",
            if pitch < across { "it overwrites the last ones of that" } else { "tiles between them are not written" }
        );
        Some((Class::ScaleLayout, "out.stride", words))
    }
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

    #[test]
    fn tiles_that_are_read_at_another_pitch_are_told() {
        let scale =
            |q: &QTensor, (r, c): (usize, usize)| if r < 160 && c < 6 { f64::from(q.scale_inv()[r * 6 + c]) } else { 0.0 };
        let words = said(&|q, r, c| scale(q, at((r / 128 + c / 4) * 512 + place((r, c), 2) % 512, 2))).unwrap();
        assert!(words.ends_with("as if a row of tiles began 1 tiles behind the one before, not 2"), "{words}");
    }

    /// What is said of a cast whose 300 × 9 scales, three tiles by three, are stored like this.
    fn stored(of: &dyn Fn(usize, usize) -> f64, codes: &dyn Fn(usize, usize) -> f64) -> Option<Named> {
        let (rows, cols) = (300, 9);
        let x = crate::Tensor::new(Format::F32, rows, 4 * cols, vec![1.0; 4 * rows * cols]).unwrap();
        let parts = QTensorParts {
            format: Format::E4m3,
            rows,
            cols: 4 * cols,
            codes: vec![0x38; 4 * rows * cols],
            granularity: Granularity::Group(4),
            scale_format: Format::F32,
            scale_inv: vec![1.0; rows * cols],
            zero: Zero::None,
            level: None,
        };
        let q = QTensor::new(parts).unwrap();
        let mut cast = Cast::of(&x, &q);
        cast.stored = (0..rows * cols).map(|g| of(g / cols, g % cols)).collect();
        let near = |s: f64| (s * (1.0 - 1e-3), s * (1.0 + 1e-3));
        let ranges: Vec<Range> = (0..rows * cols).map(|g| near(codes(g / cols, g % cols))).collect();
        cast.tile_strides(&ranges)
    }

    #[test]
    fn tiles_that_are_stored_at_another_pitch_are_told() {
        let right = |r: usize, c: usize| 1.0 + ((r * 9 + c) * 31 % 2711) as f64 / 100.0;
        for pitch in [2usize, 4] {
            let mut memory = vec![0.0; 6 * 4 * 512];
            for (r, c) in (0..384).flat_map(|r| (0..12).map(move |c| (r, c))) {
                memory[place((r, c), pitch)] = if r < 300 && c < 9 { right(r, c) } else { 0.0 };
            }
            let (_, variant, words) = stored(&|r, c| memory[place((r, c), 3)], &right).unwrap();
            assert_eq!(variant, "out.stride");
            assert!(words.contains(&format!("begins {pitch} tiles behind the one before instead of 3")), "{words}");
        }
        assert_eq!(stored(&right, &right), None, "each at its own place");
        assert_eq!(stored(&|r, c| right((r + 128) % 300, c), &right), None, "no pitch of tiles");
    }
}
