//! Grids that are stored for a padded shape and read without it, or the other way about; what nobody stored is 0, or 1.

use super::maps::cost;
use super::system::At;
use std::sync::Arc;

/// A grid that is stored for a padded shape and read without it, or the other way about.
pub struct Padded {
    pub words: String,
    pub bits: f64,
    /// What nobody stored: 0, or 1.
    pub blank: f64,
    /// What is read for row r, group c: asked for, as tables of all would fill the memory.
    pub read: At,
}

/// The cell that is read for another one.
type Place = Arc<dyn Fn(usize, usize) -> Option<(usize, usize)> + Send + Sync>;

/// All ways to pad a grid.
pub fn padded(rows: usize, cols: usize, scales: &Arc<Vec<f64>>) -> Vec<Padded> {
    let mut all = Vec::new();
    if rows < 2 || cols < 2 {
        return all;
    }
    let mut add = |words: String, bits: f64, from: Place| {
        let read = |blank: f64| -> At {
            let (from, scales) = (from.clone(), scales.clone());
            Arc::new(move |r, c| from(r, c).map_or(blank, |(r, c)| scales[r * cols + c]))
        };
        let (zeros, cells) = (read(0.0), || (0..rows * cols).map(|f| (f / cols, f % cols)));
        if cells().any(|(r, c)| from(r, c).is_none()) {
            let words = format!("{words}, 1 where nothing is stored");
            all.push(Padded { words, bits: bits + 1.0, blank: 1.0, read: read(1.0) });
        }
        if cells().any(|(r, c)| zeros(r, c) != scales[r * cols + c]) {
            all.push(Padded { words, bits, blank: 0.0, read: zeros });
        }
    };
    for unit in [2usize, 4, 8, 16, 32, 64, 128] {
        let tall = rows.next_multiple_of(unit);
        if tall != rows {
            add(
                format!("stored column by column, read at a stride of {tall} rows instead of {rows}"),
                cost(unit),
                Arc::new(move |r, c| {
                    let f = c * tall + r;
                    (f < rows * cols).then_some((f % rows, f / rows))
                }),
            );
            add(
                format!("stored column by column at a stride of {tall} rows, read at {rows}"),
                cost(unit),
                Arc::new(move |r, c| {
                    let f = c * rows + r;
                    (f % tall < rows).then_some((f % tall, f / tall))
                }),
            );
        }
        let wide = cols.next_multiple_of(unit);
        if wide != cols {
            add(
                format!("read at a row stride of {wide} groups instead of {cols}"),
                cost(unit),
                Arc::new(move |r, c| {
                    let f = r * wide + c;
                    (f < rows * cols).then_some((f / cols, f % cols))
                }),
            );
            add(
                format!("stored at a row stride of {wide} groups, read at {cols}"),
                cost(unit),
                Arc::new(move |r, c| {
                    let f = r * cols + c;
                    (f % wide < cols).then_some((f / wide, f % wide))
                }),
            );
        }
    }
    // Block scales in tiles of 128 × 4 for rows and groups that fill none.
    let (tall, wide) = (rows.next_multiple_of(128), cols.next_multiple_of(4));
    if (tall, wide) != (rows, cols) {
        let to = move |r: usize, c: usize| (r / 128 * (wide / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
        let mut back = vec![(0, 0); tall * wide];
        (0..tall * wide).for_each(|f| back[to(f / wide, f % wide)] = (f / wide, f % wide));
        let inside = move |(r, c): (usize, usize)| (r < rows && c < cols).then_some((r, c));
        add("in the 128×4 swizzle, padded, and read without it".into(), 2.5, Arc::new(move |r, c| inside(back[r * wide + c])));
        add(
            "not in the 128×4 swizzle, padded, and read by it".into(),
            2.5,
            Arc::new(move |r, c| {
                let f = to(r, c);
                inside((f / wide, f % wide))
            }),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_stored_or_padding() {
        for (rows, cols) in [(6, 5), (130, 3), (33, 10)] {
            let scales = Arc::new((0..rows * cols).map(|f| 2.0 + f as f64).collect::<Vec<f64>>());
            for p in padded(rows, cols, &scales) {
                let read: Vec<f64> = (0..rows * cols).map(|f| (p.read)(f / cols, f % cols)).collect();
                assert!(read.iter().all(|x| scales.contains(x) || *x == p.blank), "{}", p.words);
                assert!(read != *scales && (p.blank == 0.0 || read.contains(&1.0)), "{}", p.words);
                assert_eq!(p.blank == 1.0, p.words.ends_with(", 1 where nothing is stored"), "{}", p.words);
            }
        }
    }
}
