//! The end of K that is left out, as a rule that kernels have: whole tiles alone, of any size that leaves as much, or parts that all have as many tiles.
//!
//! ```text
//! K mod T is lost               a loop of ⌊K / T⌋ steps
//! n = K / T tiles, S parts:     n − S·⌊n / S⌋ tiles are lost: what is left over belongs to no part
//! ```

/// Steps of a main loop that the catalogue asks for.
const STEPS: [usize; 4] = [32, 64, 128, 256];
/// Tiles that parts are counted in, the largest first, and parts of a split at most.
const TILES: [usize; 4] = [128, 64, 32, 16];
const PARTS: usize = 16;

/// The fewest parts of `K` that all have as many whole tiles, and leave out what is from `from` on: parts, tiles in all, their size.
fn parts(k: usize, from: usize) -> Option<(usize, usize, usize)> {
    let whole = |tile: &usize| k.is_multiple_of(*tile) && k > *tile;
    (2..=PARTS).find_map(|parts| {
        TILES.into_iter().filter(whole).map(|tile| (parts, k / tile, tile)).find(|(parts, tiles, tile)| {
            // One tile each is any number of parts.
            let each = tiles / parts;
            let told = each > 1 || each == 1 && parts.is_power_of_two();
            told && !tiles.is_multiple_of(*parts) && each * parts * tile == from
        })
    })
}

/// A split of K that leaves out what is from `from` on, so many tiles at least, in words.
pub fn split(k: usize, from: usize, least: usize) -> Option<String> {
    let (parts, tiles, tile) = parts(k, from).filter(|(_, _, tile)| k - from >= least * tile)?;
    let each = tiles / parts;
    Some(format!(
        "a K that is split in {parts} parts of ⌊{tiles} / {parts}⌋ = {each} tile{} of {tile} leaves out as much",
        if each == 1 { "" } else { "s" }
    ))
}

/// What a loop of whole steps of `step` leaves out of K, and what else leaves out as much.
pub fn words(k: usize, step: usize) -> String {
    let from = k / step * step;
    if from == k {
        return String::from("nothing");
    }
    let same: Vec<String> =
        STEPS.into_iter().filter(|s| *s != step && k / s * s == from).map(|s| format!("K mod {s}")).collect();
    let mut all = vec![format!("{from} … {}", k - 1)];
    all.extend(
        (!same.is_empty()).then(|| format!("{} {} as much", same.join(" and "), if same.len() == 1 { "is" } else { "are" })),
    );
    all.extend(split(k, from, 1));
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_over_of_parts_is_told_by_the_fewest_of_them() {
        assert_eq!(parts(352, 256), Some((4, 11, 32)));
        assert_eq!(parts(352, 288), Some((3, 11, 32)));
        assert_eq!(parts(448, 384), Some((2, 7, 64)));
        // Tiles that divide no K, and ends that no part has.
        assert_eq!(parts(350, 256), None);
        assert_eq!(parts(352, 272), None);
        assert_eq!([parts(512, 496), parts(320, 192)], [None; 2]);
    }

    #[test]
    fn all_that_leaves_as_much_is_in_the_words() {
        assert_eq!(
            words(352, 128),
            "256 … 351; K mod 256 is as much; a K that is split in 4 parts of ⌊11 / 4⌋ = 2 tiles of 32 leaves out as much"
        );
        assert_eq!(words(350, 32), "320 … 349; K mod 64 is as much");
        assert_eq!(words(97, 32), "96 … 96");
        // Whole steps, or none, leave nothing out.
        assert_eq!([words(352, 32), words(0, 64)], ["nothing"; 2]);
        assert!(split(448, 384, 1).is_some() && split(448, 384, 2).is_none() && split(352, 256, 2).is_some());
    }
}
