//! Zero points of other places or of damaged words: those that an index made of other numbers gives, and those that are packed by OR although one of them
//! is below 0.
//!
//! ```text
//! word of p zero points:  OR of (z − 1) << bits·lane          z = 0 is −1: all bits from its lane on are ones, so that later ones are 2^bits − 1, + 1
//! ```

use super::casts::Named;
use crate::fault::Class;

/// Groups that have another zero point, at least.
const LEAST: usize = 8;
/// The share of the solved ones that has to be so before all elements are asked.
const SHARE: f64 = 0.98;

/// The zero points of a tensor: stored, and those that were used where they are whole numbers.
pub struct Zeros<'z> {
    pub grid: (usize, usize),
    pub stored: &'z [f64],
    pub scales: &'z [f64],
    pub used: &'z [Option<f64>],
    /// Whether these zero points make the result.
    pub made: &'z dyn Fn(&[f64]) -> bool,
}

/// What made the zero points that were used.
pub fn explain(z: &Zeros) -> Option<Named> {
    let told: Vec<usize> = (0..z.stored.len()).filter(|g| z.used[*g].is_some()).collect();
    let other = told.iter().filter(|g| z.used[**g] != Some(z.stored[**g])).count();
    (other >= LEAST && 2 * told.len() > z.stored.len()).then_some(())?;
    let fits = |zero: &[f64]| {
        let is = |g: &&usize| z.used[**g] == Some(zero[**g]);
        let few = told.iter().step_by(told.len().div_ceil(32));
        few.clone().filter(is).count() as f64 >= 0.9 * few.count() as f64
            && told.iter().filter(is).count() as f64 >= SHARE * told.len() as f64
            && (z.made)(zero)
    };
    packed(z, &fits).or_else(|| one(z, told[0], &fits)).or_else(|| indexed(z, &fits)).or_else(|| strided(z, &fits))
}

/// Zero points in rows of whole words that are read at another row stride: the groups over those of a word, rounded the other way, or none left out.
fn strided(z: &Zeros, fits: &dyn Fn(&[f64]) -> bool) -> Option<Named> {
    let (rows, cols) = z.grid;
    (rows > 1 && cols > 1).then_some(())?;
    [2usize, 4, 8].into_iter().find_map(|lanes| {
        let (down, up) = (cols / lanes * lanes, cols.next_multiple_of(lanes));
        let ways = [(up, down), (up, cols), (cols, up), (cols, down)].into_iter().filter(|(stored, read)| stored != read);
        ways.into_iter().find_map(|(stored, read)| {
            let own = |g: usize| {
                let place = g / cols * read + g % cols;
                let (r, c) = (place / stored, place % stored);
                (r < rows && c < cols).then(|| z.stored[r * cols + c])
            };
            // What pads a row, and what lies behind the last, nobody knows.
            let zero: Vec<f64> = (0..z.stored.len()).map(|g| own(g).or(z.used[g]).unwrap_or(z.stored[g])).collect();
            let told = (0..zero.len()).filter(|g| own(*g).is_some_and(|zero| zero != z.stored[*g])).count();
            let known = (0..zero.len()).filter(|g| own(*g).is_some()).count();
            (told >= LEAST && 2 * known >= zero.len() && fits(&zero)).then(|| {
                let words = format!(
                    "zero points lie in rows {stored} apart and are read as if they were {read} apart: group (r, c) of {cols} in a row at r·{read} + c, as of \
                     words of {lanes}"
                );
                (Class::ZpCorrection, "a.zero_stride", words)
            })
        })
    })
}

/// Words of zero points less an offset, put together by OR, along the rows or the groups of the grid.
fn packed(z: &Zeros, fits: &dyn Fn(&[f64]) -> bool) -> Option<Named> {
    let (rows, cols) = z.grid;
    let most = z.stored.iter().copied().fold(0.0, f64::max);
    for bits in [4u32, 2, 8].into_iter().filter(|b| most <= f64::from(1u32 << b)) {
        for (word, by_row) in [(32u32, true), (32, false), (8, true), (8, false), (64, true), (64, false)] {
            let lanes = (word / bits) as usize;
            if lanes < 2 {
                continue;
            }
            for less in [1i64, 0] {
                let put = |line: &mut Vec<i64>| {
                    for of in line.chunks_mut(lanes) {
                        let parts = of.iter().enumerate().map(|(n, v)| ((v - less) as u64).wrapping_shl(bits * n as u32));
                        let joined = parts.fold(0u64, |a, b| a | b);
                        let lane = |n: usize| (joined >> (bits * n as u32) & ((1 << bits) - 1)) as i64 + less;
                        (0..of.len()).for_each(|n| of[n] = lane(n));
                    }
                };
                let mut zero = z.stored.to_vec();
                for line in 0..if by_row { cols } else { rows } {
                    let place = |n: usize| if by_row { n * cols + line } else { line * cols + n };
                    let length = if by_row { rows } else { cols };
                    let mut own: Vec<i64> = (0..length).map(|n| z.stored[place(n)] as i64).collect();
                    put(&mut own);
                    own.iter().enumerate().for_each(|(n, v)| zero[place(n)] = *v as f64);
                }
                if zero[..] == *z.stored || !fits(&zero) {
                    continue;
                }
                let along = if by_row { "rows" } else { "groups" };
                let (of, stored) = if less == 1 { (0, "zero − 1") } else { (-1, "zero") };
                let words = format!(
                    "zero points are packed as {stored}, {lanes} {along} a word of {word} bits, and ORed into it with their sign: one of {of} sets the bits of \
                         all {along} behind it in its word, which are read as {}",
                    (1i64 << bits) - 1 + less
                );
                return Some((Class::PackPermute, "a.zero_packed", words));
            }
        }
    }
    None
}

/// One zero point for every group, of those stored: which place it was read from it does not say.
fn one(z: &Zeros, group: usize, fits: &dyn Fn(&[f64]) -> bool) -> Option<Named> {
    let zero = z.used[group].filter(|zero| z.stored.contains(zero))?;
    fits(&vec![zero; z.stored.len()]).then(|| {
        let words = format!("every group is given the zero point {zero}, whatever its own is");
        (Class::ZpCorrection, "a.zero_index", words)
    })
}

/// Words, and the index of a group's zero point from its scale, its number and its own zero point.
type Index = (&'static str, fn(f64, usize, f64) -> f64);
const INDEXES: [Index; 5] = [
    ("the value of its scale, cut to a whole number", |s, _, _| s.trunc()),
    ("the value of its scale, rounded to a whole number", |s, _, _| s.round_ties_even()),
    ("the value of its zero point", |_, _, z| z),
    ("its number plus the value of its scale, cut to a whole number", |s, g, _| g as f64 + s.trunc()),
    ("the bits of its scale in f32, modulo how many there are", |s, _, _| f64::from((s as f32).to_bits())),
];

fn indexed(z: &Zeros, fits: &dyn Fn(&[f64]) -> bool) -> Option<Named> {
    let n = z.stored.len();
    INDEXES.iter().find_map(|(words, of)| {
        let index = |g: usize| of(z.scales[g], g, z.stored[g]);
        let read = |g: usize| {
            let at = index(g);
            let at = if words.contains("modulo") { at % n as f64 } else { at };
            if at >= 0.0 && at < n as f64 { z.stored[at as usize] } else { 0.0 }
        };
        let zero: Vec<f64> = (0..n).map(read).collect();
        // An index of one place, or of none, is no index.
        (zero.windows(2).any(|w| w[0] != w[1]) && fits(&zero)).then(|| {
            let words = format!(
                "the zero point of a group is the one at {words}, of all {n} in a row: another number is taken for its place"
            );
            (Class::ZpCorrection, "a.zero_index", words)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of 40 × 5 zero points of 4 bits where these are used.
    fn said(of: &dyn Fn(&[f64], usize) -> f64) -> Option<String> {
        with_scales(&|g| 0.25 + f64::from(g as u32 * 31 % 64) / 20.0, of)
    }

    fn with_scales(scale: &dyn Fn(usize) -> f64, of: &dyn Fn(&[f64], usize) -> f64) -> Option<String> {
        let stored: Vec<f64> = (0..200).map(|g| f64::from((g * 7919 % 101) as u32 % 16)).collect();
        let scales: Vec<f64> = (0..200).map(scale).collect();
        let used: Vec<f64> = (0..200).map(|g| of(&stored, g)).collect();
        let solved: Vec<Option<f64>> = used.iter().map(|z| Some(*z)).collect();
        let made = |zero: &[f64]| zero == used;
        explain(&Zeros { grid: (40, 5), stored: &stored, scales: &scales, used: &solved, made: &made }).map(|f| f.2)
    }

    #[test]
    fn zero_points_of_words_and_indexes_are_told() {
        let first = |z: &[f64], g: usize| (g / 5 / 8 * 8..=g / 5).any(|r| z[r * 5 + g % 5] == 0.0);
        let words = said(&|z, g| if first(z, g) { 16.0 } else { z[g] }).unwrap();
        assert!(words.starts_with("zero points are packed as zero − 1, 8 rows a word of 32 bits, and ORed into it"), "{words}");
        assert!(words.ends_with("which are read as 16"), "{words}");
        let words = said(&|z, g| z[(0.25 + f64::from(g as u32 * 31 % 64) / 20.0).trunc() as usize]).unwrap();
        assert!(words.contains("is the one at the value of its scale, cut to a whole number"), "{words}");
        assert_eq!(said(&|z, g| z[g]), None);
        assert_eq!(said(&|z, g| z[g] + f64::from(g as u32 % 3)), None);
    }

    /// Five in a row, three bytes of two.
    #[test]
    fn zero_points_at_another_row_stride_are_told() {
        let at = |stored: usize, read: usize| {
            move |z: &[f64], g: usize| {
                let place = g / 5 * read + g % 5;
                let (r, c) = (place / stored, place % stored);
                if r < 40 && c < 5 { z[r * 5 + c] } else { 0.0 }
            }
        };
        let words = said(&at(6, 4)).unwrap();
        assert!(words.contains("in rows 6 apart and are read as if they were 4 apart: group (r, c) of 5 in a row"), "{words}");
        assert!(said(&at(6, 5)).unwrap().contains("read as if they were 5 apart"));
        assert!(said(&at(5, 6)).unwrap().contains("in rows 5 apart and are read as if they were 6 apart"));
        assert_eq!(said(&at(5, 7)), None, "a stride of no word");
    }

    /// Scales below 1 are all 0 where they are cut: what is said names no place.
    #[test]
    fn one_zero_point_for_all_groups_is_no_index() {
        for scale in [0.01, 0.9] {
            for place in [0, 7] {
                let words = with_scales(&|g| scale + g as f64 * 1e-5, &|z, _| z[place]).unwrap();
                let number = (place * 7919 % 101) % 16;
                assert_eq!(words, format!("every group is given the zero point {number}, whatever its own is"));
            }
        }
        assert_eq!(said(&|_, _| 77.0), None, "a number that is not stored");
    }

    /// A borrow into the lane behind a zero point of 0 sets other bits than OR does.
    #[test]
    fn zero_points_that_are_added_into_words_are_not_those_of_or() {
        let lane = |z: &[f64], g: usize| {
            let word = (g / 5 / 8 * 8..g / 5 / 8 * 8 + 8).enumerate();
            let sum = word.fold(0i64, |sum, (n, row)| sum + ((z[row * 5 + g % 5] as i64 - 1) << (4 * n)));
            ((sum >> (4 * (g / 5 % 8)) & 15) + 1) as f64
        };
        assert_eq!(said(&lane), None);
    }
}
