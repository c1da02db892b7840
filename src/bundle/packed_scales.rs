//! Integer scales of sub-blocks that are packed in bytes beside one number of their super-block, and are read from other places of that pack.
//!
//! ```text
//! scale of sub-block p = d·I(p)          solved scale of p ──► that of one sub-block m(p) in every super-block ──► which byte, which nibble
//! past the end of the pack ──► other integers of the same family times d
//! ```

use super::casts::Named;
use crate::fault::Class;
use crate::fault::solve::segment::lines;

/// Sub-blocks of a super-block.
const SIZES: [usize; 3] = [8, 16, 4];
/// Super-blocks, and different ratios of the scales of a sub-block to its own, at least.
const LEAST: usize = 8;
/// What a product in f32 may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 18) as f64;

/// Integers that a few bits stand for.
type Family = (&'static str, f64, fn(f64) -> f64);
const FAMILIES: [Family; 2] = [("2·k + 1", 15.0, |k| 2.0 * k + 1.0), ("k", 63.0, |k| k)];

/// Where a nibble is read: of sub-block p, its number in the pack, of so many.
type Read = (&'static str, fn(usize, usize) -> usize);
const READS: [Read; 6] = [
    ("nibble (p mod 2) of byte p, and not of byte p / 2", |p, _| 2 * p + p % 2),
    ("the low nibble of byte p, and not nibble (p mod 2) of byte p / 2", |p, _| 2 * p),
    ("the high nibble of byte p, and not nibble (p mod 2) of byte p / 2", |p, _| 2 * p + 1),
    ("the low nibble of byte p / 2 for both", |p, _| p / 2 * 2),
    ("the other nibble of its byte", |p, _| p ^ 1),
    ("nibble (p / n) of byte (p mod n), n the half of them, and not nibble (p mod 2) of byte p / 2", |p, n| {
        p % (n / 2) * 2 + p / (n / 2)
    }),
];

/// The number of a super-block whose scales these are, by the family that has them all.
fn unit(scales: &[f64], (_, most, of): &Family) -> Option<f64> {
    let least = scales.iter().copied().fold(f64::INFINITY, f64::min);
    (least > 0.0).then_some(())?;
    let is = |d: f64| scales.iter().all(|s| integer(s / d, *most, *of));
    (0..=*most as usize).map(|k| least / of(k as f64)).filter(|d| d.is_finite()).find(|d| is(*d))
}

fn integer(ratio: f64, most: f64, of: fn(f64) -> f64) -> bool {
    let step = of(1.0) - of(0.0);
    let k = ((ratio - of(0.0)) / step).round();
    (0.0..=most).contains(&k) && (ratio - of(k)).abs() <= NEAR * ratio.abs()
}

/// What is said of solved scales, low and high of every group of a grid of `cols` columns, beside those stored. `None`: no such pack.
pub fn explain(solved: &[Option<(f64, f64)>], stored: &[f64], cols: usize) -> Option<Named> {
    let is = |g: usize, s: f64| solved[g].is_none_or(|(low, high)| low - NEAR * s <= s && s <= high + NEAR * s);
    SIZES.into_iter().filter(|n| cols.is_multiple_of(*n)).find_map(|n| {
        let blocks = stored.len() / n;
        (blocks >= LEAST && stored.iter().all(|s| *s > 0.0 && s.is_finite())).then_some(())?;
        // The sub-block whose scale each has, where that says something.
        let all = |p: usize, m: usize| (0..blocks).all(|b| is(b * n + p, stored[b * n + m]));
        let told = |p: usize| (0..blocks).filter(|b| !is(b * n + p, stored[b * n + p])).count() >= LEAST / 2;
        let of: Vec<Option<usize>> = (0..n).map(|p| if all(p, p) { Some(p) } else { (0..n).find(|m| all(p, *m)) }).collect();
        let moved: Vec<usize> = (0..n).filter(|p| of[*p].is_some_and(|m| m != *p) && told(*p)).collect();
        let outside: Vec<usize> = (0..n).filter(|p| of[*p].is_none()).collect();
        (moved.len() >= 2).then_some(())?;
        let read = READS.into_iter().find(|(_, at)| (0..n).all(|p| of[p].map_or(at(p, n) >= n, |m| at(p, n) == m)));
        // What is read behind the pack is still an integer of the family times the number of the super-block.
        let family = FAMILIES.iter().find(|family| {
            (0..blocks).all(|b| {
                let Some(d) = unit(&stored[b * n..][..n], family) else { return false };
                let of_family =
                    |p: &usize| solved[b * n + p].is_none_or(|(low, high)| integer(0.5 * (low + high) / d, family.1, family.2));
                outside.iter().all(of_family)
            })
        });
        (outside.is_empty() || family.is_some() && read.is_some()).then_some(())?;
        let places: Vec<String> = moved.iter().filter_map(|p| Some(format!("{p} has that of {}", of[*p]?))).collect();
        let how = read.map_or(String::new(), |(how, _)| format!(": the integer of sub-block p is read from {how}"));
        let mut is_outside = vec![false; n];
        outside.iter().for_each(|p| is_outside[*p] = true);
        let behind = match (outside.is_empty(), family) {
            (false, Some((name, ..))) => format!(
                "; sub-blocks {} have other integers {name} times their super-block's number, which are read behind the pack",
                lines(&is_outside)
            ),
            _ => String::new(),
        };
        let words = format!("scales of every {n} sub-blocks: {}{how}{behind}", places.join(", "));
        Some((Class::ScaleIndex, "a.packed", words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer_of(g: usize) -> usize {
        (g * 7919 + 101) % 1009 % 16
    }

    /// What is said of 16 super-blocks of 8 that were given these integers.
    fn said(of: &dyn Fn(usize, usize) -> usize) -> String {
        let d = |b: usize| f64::from(0.002f32 * (1.0 + b as f32 / 7.0));
        let scale = |b: usize, k: usize| f64::from((d(b) * (2 * k + 1) as f64) as f32);
        let stored: Vec<f64> = (0..128).map(|g| scale(g / 8, integer_of(g))).collect();
        let near = |s: f64| Some((s * (1.0 - 1e-7), s * (1.0 + 1e-7)));
        let solved: Vec<Option<(f64, f64)>> = (0..128).map(|g| near(scale(g / 8, of(g / 8, g % 8)))).collect();
        explain(&solved, &stored, 16).map_or_else(String::new, |f| f.2)
    }

    #[test]
    fn integers_of_other_sub_blocks_are_told() {
        let behind = |b: usize, i: usize| if i < 8 { integer_of(8 * b + i) } else { (b * 5 + i * 3) % 16 };
        let words = said(&|b, p| behind(b, 2 * p + p % 2));
        assert!(words.contains("1 has that of 3, 2 has that of 4, 3 has that of 7: the integer of sub-block p is read from nibble (p mod 2) of byte p"), "{words}");
        assert!(
            words.ends_with(
                "sub-blocks 4 … 7 have other integers 2·k + 1 times their super-block's number, which are read behind the pack"
            ),
            "{words}"
        );
        let words = said(&|b, p| integer_of(8 * b + (p ^ 1)));
        assert!(words.ends_with("is read from the other nibble of its byte"), "{words}");
        let words = said(&|b, p| integer_of(8 * b + [0, 1, 2, 3, 6, 7, 4, 5][p]));
        assert!(words.ends_with("4 has that of 6, 5 has that of 7, 6 has that of 4, 7 has that of 5"), "{words}");
        assert_eq!(said(&|b, p| integer_of(8 * b + p)), "");
        assert_eq!(said(&|b, p| if p < 4 { integer_of(8 * b + p) } else { (b * 5 + p * 3) % 16 }), "", "of no rule");
    }
}
