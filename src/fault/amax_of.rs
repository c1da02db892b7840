//! Blocks whose scale is that of another block's largest magnitude, or of theirs and another's, where the codes follow it: all over or in some rows
//! and groups.
//!
//! ```text
//! written[g] = right[way(g)]                       amax of g is that of way(g)
//! written[g] = max(right[g], right[way(g)])        amax of g also covers way(g)
//! written[g] = max of right over a tile            amax of g is that of the tile
//! written[g] = max(right[g], written[before g])    amax of g is a running maximum: it is not reset
//! ```
//! A rule that makes a scale of an amax alone is monotonic: the largest amax has the largest scale.

use super::moved::Places;
use super::solve::maps::Map;
use crate::order::Order as _;

/// The same number, computed another way.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;
/// Bits that wrong blocks have to tell, beyond those of a tile.
const BITS: f64 = 24.0;
/// Blocks of a tile along a side.
const TILES: [usize; 5] = [1, 2, 4, 8, 16];
/// What is covered too leaves so many times fewer right blocks unexplained than what is taken.
const FEWER: usize = 4;
/// Wrong blocks that say how often chance gives such a number.
const FEW: usize = 256;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * b.abs()
}

/// What the wrong ones of these scales were taken over. `None`: there are fewer than two, or no way of the grid makes all of them.
pub fn elsewhere(grid: (usize, usize), written: &[f64], right: &[f64]) -> Option<String> {
    (written.len() == grid.0 * grid.1 && right.len() == written.len()).then_some(())?;
    let what = "amax";
    let is = |other: usize, g: usize| near(written[g], right[other]);
    let also = |other: usize, g: usize| near(written[g], right[g].max(right[other]));
    let places = Places { what, grid, fits: &is, right: false };
    let wrong = places.wrong();
    (wrong.len() > 1).then_some(())?;
    let said = |verb: &str, words: &str| {
        format!("amax of group (r, c) of the {}×{} grid {verb} that of {words}{}", grid.0, grid.1, places.place(&wrong))
    };
    // Right ones between the wrong ones tell what is taken from what is covered too. A few of them may be no part of it.
    let (rows, cols) = places.rectangle(&wrong);
    let inside: Vec<usize> = rows.flat_map(|r| cols.clone().map(move |c| r * grid.1 + c)).collect();
    let missed = |map: &Map, fits: &dyn Fn(usize, usize) -> bool| -> usize {
        inside.iter().filter(|g| !fits(map(*g / grid.1, *g % grid.1), **g)).count()
    };
    let taken = places.way(false, &wrong).map(|found| (missed(&found.map, &is), said("is", &found.words)));
    if let Some((0, words)) = taken {
        return Some(words);
    }
    let mut all: Vec<(usize, String)> = Vec::new();
    if wrong.iter().all(|g| written[*g] > right[*g]) {
        if let Some(words) = running(grid, written, right, &wrong) {
            return Some(words);
        }
        if let Some(((height, width), missed)) = of_tiles(grid, written, right, &wrong) {
            all.push((missed, said("is", &format!("all {height}×{width} groups of its tile"))));
        }
        let covered = Places { what, grid, fits: &also, right: false }.way(false, &wrong);
        all.extend(covered.map(|found| (missed(&found.map, &also), said("also covers", &found.words))));
        all.retain(|(missed, _)| *missed == 0 || taken.as_ref().is_none_or(|t| *missed * FEWER <= t.0));
    }
    all.into_iter().chain(taken).min_by_key(|(missed, _)| *missed).map(|(_, words)| words)
}

/// Words for blocks that come one after the other, and the one that comes before another.
type Chain = (String, Box<dyn Fn(usize, usize) -> Option<(usize, usize)>>);

/// Blocks in the orders that kernels walk them, with places where they start anew.
fn chains((rows, cols): (usize, usize)) -> Vec<Chain> {
    let mut all: Vec<Chain> = Vec::new();
    let sizes = |n: usize| (1..12).map(|p| 1usize << p).filter(move |s| *s < n);
    if cols > 1 {
        all.push(("the groups before it in its row".into(), Box::new(|r, c| Some((r, c.checked_sub(1)?)))));
        all.push(("the groups behind it in its row".into(), Box::new(move |r, c| (c + 1 < cols).then_some((r, c + 1)))));
        let within = |w: usize| -> Chain {
            (format!("the groups before it of each {w} in its row"), Box::new(move |r, c| (c % w > 0).then(|| (r, c - 1))))
        };
        all.extend(sizes(cols).filter(|w| *w > 2).map(within));
    }
    if rows > 1 {
        let of = if cols > 1 { " of its column of groups" } else { "" };
        all.push((format!("all rows before it{of}"), Box::new(|r, c| Some((r.checked_sub(1)?, c)))));
        all.push((format!("all rows behind it{of}"), Box::new(move |r, c| (r + 1 < rows).then_some((r + 1, c)))));
        let within = |h: usize| -> Chain {
            (format!("the rows before it{of} in a tile of {h} rows"), Box::new(move |r, c| (r % h > 0).then(|| (r - 1, c))))
        };
        all.extend(sizes(rows).filter(|h| *h > 2).map(within));
        let apart = |d: usize| -> Chain {
            (format!("the rows {d}, {}, … before it{of}", 2 * d), Box::new(move |r, c| Some((r.checked_sub(d)?, c))))
        };
        all.extend((2..=rows / 3).map(apart));
    }
    if rows > 1 && cols > 1 {
        let behind = move |r: usize, c: usize| if c > 0 { Some((r, c - 1)) } else { Some((r.checked_sub(1)?, cols - 1)) };
        all.push(("all groups before it, row by row".into(), Box::new(behind)));
        let columns = move |r: usize, c: usize| if r > 0 { Some((r - 1, c)) } else { Some((rows - 1, c.checked_sub(1)?)) };
        all.push(("all groups before it, column by column".into(), Box::new(columns)));
        let within = |h: usize| -> Chain {
            let before = move |r: usize, c: usize| if c == 0 && r.is_multiple_of(h) { None } else { behind(r, c) };
            (format!("the groups before it, row by row, in a tile of {h} rows"), Box::new(before))
        };
        all.extend(sizes(rows).map(within));
    }
    all
}

/// The order of blocks over which the maximum runs on: it makes every scale, right ones too.
fn running((rows, cols): (usize, usize), written: &[f64], right: &[f64], wrong: &[usize]) -> Option<String> {
    (told(written, right, wrong) >= BITS).then_some(())?;
    // By what is written before it each block can be asked alone.
    let is = |chain: &Chain, g: usize| {
        let before = (chain.1)(g / cols, g % cols).map_or(0.0, |(r, c)| written[r * cols + c]);
        near(written[g], right[g].max(before))
    };
    // Of a running maximum some are right where they are the largest so far.
    let (words, _) = chains((rows, cols)).into_iter().find(|chain| (0..written.len()).all(|g| is(chain, g)))?;
    Some(format!(
        "amax of group (r, c) of the {rows}×{cols} grid also covers {words}: the maximum is not reset, {} of {} scales are too large",
        wrong.len(),
        written.len()
    ))
}

/// How unlikely the wrong ones of these scales are by chance, in bits: each as often as it is anywhere.
fn told(written: &[f64], right: &[f64], wrong: &[usize]) -> f64 {
    let tells = |g: &usize| {
        let same = right.iter().filter(|r| near(written[*g], **r)).count();
        (right.len() as f64 / same.max(1) as f64).log2()
    };
    wrong.iter().step_by(wrong.len().div_ceil(FEW).max(1)).map(tells).sum()
}

/// The tile of blocks whose largest amax they all have, and how many right ones in the rows of wrong ones have another: none, or a sixteenth.
fn of_tiles((rows, cols): (usize, usize), written: &[f64], right: &[f64], wrong: &[usize]) -> Option<((usize, usize), usize)> {
    let mut is_row = vec![false; rows];
    wrong.iter().for_each(|g| is_row[g / cols] = true);
    (told(written, right, wrong) >= BITS).then_some(())?;
    let sides = TILES.into_iter().flat_map(|h| TILES.map(|w| (h, w)));
    let mut sides: Vec<(usize, usize)> = sides.filter(|(h, w)| h * w > 1 && *h < 2 * rows && *w < 2 * cols).collect();
    sides.order_by_key(|(h, w)| h * w);
    let of = |(h, w): (usize, usize), g: usize| {
        let (top, left) = (g / cols / h * h, g % cols / w * w);
        let row = |r: usize| right[r * cols + left..r * cols + (left + w).min(cols)].iter().copied();
        (top..(top + h).min(rows)).flat_map(row).fold(0.0, f64::max)
    };
    let inside: Vec<usize> = (0..written.len()).filter(|g| is_row[g / cols]).collect();
    let missed = |side: (usize, usize)| inside.iter().filter(|g| !near(written[**g], of(side, **g))).count();
    let all_wrong = |side: &(usize, usize)| wrong.iter().all(|g| near(written[*g], of(*side, *g)));
    let fitting = sides.into_iter().filter(all_wrong).map(|side| (side, missed(side)));
    fitting.filter(|(_, missed)| missed * 16 <= inside.len() - wrong.len()).min_by_key(|(_, missed)| *missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: (usize, usize) = (24, 6);

    fn scales() -> Vec<f64> {
        (0..GRID.0 * GRID.1).map(|g| f64::from((g * 7919 % 1009) as u32) + 1.0).collect()
    }

    fn said(of: impl Fn(&[f64], usize, usize) -> f64) -> Option<String> {
        let right = scales();
        let written: Vec<f64> = (0..right.len()).map(|g| of(&right, g / GRID.1, g % GRID.1)).collect();
        elsewhere(GRID, &written, &right)
    }

    #[test]
    fn an_amax_of_another_block_is_told_by_its_place() {
        let at = |v: &[f64], r: usize, c: usize| v[r * GRID.1 + c];
        let above = said(|v, r, c| if (9..14).contains(&r) { at(v, r - 1, c) } else { at(v, r, c) }).unwrap();
        assert!(above.contains("is that of row r − 1") && above.ends_with("in rows 9 … 13"), "{above}");
        let both = said(|v, r, c| if r < 8 && c > 0 { at(v, r, c).max(at(v, r, c - 1)) } else { at(v, r, c) }).unwrap();
        assert!(both.contains("also covers that of group c − 1"), "{both}");
        let pairs =
            said(|v, r, c| if (8..20).contains(&r) { at(v, r, c / 2 * 2).max(at(v, r, c / 2 * 2 + 1)) } else { at(v, r, c) });
        assert!(pairs.as_ref().unwrap().contains("all 1×2 groups of its tile, in rows 8"), "{pairs:?}");
        // The first pair is right.
        let pairs =
            said(|v, r, c| if (r, c / 2) != (0, 0) { at(v, r, c / 2 * 2).max(at(v, r, c / 2 * 2 + 1)) } else { at(v, r, c) });
        assert!(pairs.as_ref().unwrap().contains("all 1×2 groups of its tile"), "{pairs:?}");
        // Right; of no block; one block.
        assert_eq!(said(at), None);
        assert_eq!(said(|v, r, c| at(v, r, c) * if r == 3 { 1.37 } else { 1.0 }), None);
        assert_eq!(said(|v, r, c| if (r, c) == (3, 3) { at(v, 2, 3) } else { at(v, r, c) }), None);
    }

    /// A maximum that runs on in each order of the blocks; of numbers of no block, or reset once, it is none.
    #[test]
    fn an_amax_that_is_not_reset_is_told_by_its_order() {
        let (rows, cols) = GRID;
        for (words, before) in chains(GRID) {
            let right = scales();
            let mut written = right.clone();
            // As many rounds as the longest order has blocks.
            for _ in 0..rows * cols {
                for g in 0..rows * cols {
                    let more = before(g / cols, g % cols).map_or(0.0, |(r, c)| written[r * cols + c]);
                    written[g] = right[g].max(more);
                }
            }
            let said = elsewhere(GRID, &written, &right).unwrap();
            assert!(said.contains(&format!("also covers {words}: the maximum is not reset")), "{words}: {said}");
        }
        let reset =
            said(
                |v, r, c| {
                    if r == 9 { v[r * cols + c] } else { v[r * cols..=r * cols + c].iter().fold(0.0, |m: f64, x| m.max(*x)) }
                },
            );
        assert!(reset.is_none_or(|words| !words.contains("not reset")));
    }
}
