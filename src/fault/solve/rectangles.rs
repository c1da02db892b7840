//! Where a result holds nothing, as a few rectangles: the tiles of groups that nobody scheduled.

use super::segment::places;
use super::system::Region;
use std::ops::Range;

/// The rectangles of what is `held`, where they are a few: runs of columns that a run of rows has.
pub fn of(rows: usize, cols: usize, held: &dyn Fn(usize) -> bool) -> Option<Region> {
    /// Rectangles, at most, and elements of one, at least.
    const MOST: usize = 16;
    const LEAST: usize = 16;
    let runs = |i: usize| -> Vec<Range<usize>> {
        let mut all: Vec<Range<usize>> = Vec::new();
        for j in (0..cols).filter(|j| held(i * cols + j)) {
            match all.last_mut() {
                Some(run) if run.end == j => run.end += 1,
                _ => all.push(j..j + 1),
            }
        }
        all
    };
    let mut tiles: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    let (mut from, mut before) = (0, runs(0));
    for i in 1..=rows {
        let here = if i < rows { runs(i) } else { Vec::new() };
        if here != before || i == rows {
            tiles.extend(before.into_iter().map(|run| (from..i, run)));
            (from, before) = (i, here);
        }
        (tiles.len() <= MOST).then_some(())?;
    }
    // A few right results are 0 too: then these are no rectangles.
    let small = |(r, c): &&(Range<usize>, Range<usize>)| r.len() * c.len() < LEAST;
    (tiles.len() > 1 && !tiles.iter().any(|t| small(&t))).then_some(())?;
    let (mut of_rows, mut of_cols) = (vec![false; rows], vec![false; cols]);
    for (r, c) in &tiles {
        of_rows[r.clone()].fill(true);
        of_cols[c.clone()].fill(true);
    }
    let words = format!("{} rectangles: {}", tiles.len(), places(&tiles));
    Some(Region { rows: of_rows, cols: of_cols, tiles, words })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_two_rectangles_and_a_diagonal_is_none() {
        let (rows, cols) = (40, 64);
        let step = |at: usize| match at / cols {
            10..20 => at % cols >= 32,
            20..40 => true,
            _ => false,
        };
        let region = of(rows, cols, &step).unwrap();
        assert_eq!(region.tiles, [(10..20, 32..64), (20..40, 0..64)]);
        assert!((0..rows * cols).all(|at| region.has(at / cols, at % cols) == step(at)), "{}", region.words);
        assert!(region.words.contains("rows 10 … 19 × columns 32 … 63"), "{}", region.words);
        assert!(of(rows, cols, &|at| at / cols == at % cols).is_none());
        // A single result that is 0 by chance.
        assert!(of(rows, cols, &|at| step(at) || at == 3).is_none());
    }
}
