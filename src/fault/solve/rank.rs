//! A last tile of K that is not masked, where neither operand's padding is known: what is added to the right sums is a sum of as many products as
//! the tile has behind the end of K.
//!
//! ```text
//! E(i, j) = Σ_{n < by} x(i, n)·y(j, n)          E = what was written − what is right; by = tile − K mod tile: E has rank by
//! ```
//! The rank is counted by elimination: of the rows that are left the largest is taken and projected out of all others, until what is left is what
//! right elements may be off.

use super::system::{System, Theory};
use super::theory::as_written;
use crate::fault::Class;

const TILES: [usize; 7] = [16, 32, 64, 128, 256, 8, 512];
/// Rows that share one padding of A: those of a tile of the result.
const HEIGHTS: [usize; 4] = [256, 128, 64, 32];
/// Columns of a tile that are looked at, at most.
const COLS: usize = 256;
/// The part of their bound that right elements are off, about.
const TIGHT: f64 = 1e-3;
/// How much larger than what right elements may be off the last projected row is, at least, and what is left, at most.
const SHOWS: f64 = 16.0;
const LEFT: f64 = 4.0;

/// Of a whole dense product. `None`: K fills its tiles, or what is added is of another rank.
pub fn padding(s: &System) -> Option<Theory> {
    let plain = !s.alone && s.parts.len() == 1 && s.parts[0].k.len() == s.k;
    (plain && s.actual.iter().all(|x| x.is_finite())).then_some(())?;
    let tiles: Vec<usize> = TILES.into_iter().filter(|t| !s.k.is_multiple_of(*t)).collect();
    let by = |tile: &usize| tile - s.k % tile;
    for height in [s.rows].into_iter().chain(HEIGHTS.into_iter().filter(|h| *h < s.rows)) {
        let mut ranks = Vec::new();
        for from in (0..s.rows).step_by(height) {
            let rows = from..s.rows.min(from + height);
            // What fills half of what is looked at may fill all of it.
            let most = rows.len().min(s.cols).min(COLS) / 2;
            // A short rest tells nothing.
            if most > tiles.iter().map(by).min()? {
                let (left, noise) = more(s, rows);
                let all = fills(&left, noise);
                ranks.push(rank(left, noise, most).filter(|r| *r == 0 || all));
            }
        }
        // A tile that is right has none of it.
        let found: Vec<usize> = ranks.iter().flatten().copied().filter(|r| *r > 0).collect();
        let Some(first) = found.first().copied().filter(|r| *r > 1) else { continue };
        if ranks.contains(&None) || found.iter().any(|r| *r != first) {
            continue;
        }
        let Some(tile) = tiles.iter().find(|t| by(t) == first) else { continue };
        let each = if height == s.rows { String::new() } else { format!("of every {height} rows ") };
        let words = format!(
            "the last tile of {tile} of K is not masked: what is added to the right sums {each}is a sum of {first} products, as many as the tile \
             has behind the end of K, of numbers that nobody knows"
        );
        let mut t = Theory::new(Class::KTail, "out", "k.padding", words).bits(60.0);
        t.finish = Some(as_written(s));
        t.fitted = true;
        return Some(t);
    }
    None
}

/// Whether nearly all rows have something more: what nobody knows is no row of zeros.
fn fills(left: &[Vec<f64>], noise: f64) -> bool {
    let has = |row: &&Vec<f64>| row.iter().map(|x| x * x).sum::<f64>().sqrt() > SHOWS * noise;
    16 * left.iter().filter(has).count() >= 15 * left.len()
}

/// What is added in these rows, and how long a row of what right elements may be off is.
fn more(s: &System, rows: std::ops::Range<usize>) -> (Vec<Vec<f64>>, f64) {
    let cols = s.cols.min(COLS);
    let off = |at: usize| s.certain(at) / s.part_of_bound.max(1e-300) * TIGHT + 0.5 * s.out.spacing(at, s.ideal[at]);
    let places = |i: usize| i * s.cols..i * s.cols + cols;
    let noise = rows.clone().flat_map(places).map(|at| off(at).powi(2)).sum::<f64>() / rows.len() as f64;
    let left = rows.map(|i| places(i).map(|at| s.actual[at] - s.ideal[at]).collect()).collect();
    (left, noise.sqrt())
}

/// The rank of these rows. `None`: more than `most`, or what is left becomes smaller row by row and ends nowhere.
fn rank(mut left: Vec<Vec<f64>>, noise: f64, most: usize) -> Option<usize> {
    let size = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut last = f64::INFINITY;
    for rank in 0..=most {
        let (at, largest) = left.iter().map(|x| size(x)).enumerate().fold((0, 0.0), |m, x| if x.1 > m.1 { x } else { m });
        if largest <= LEFT * noise {
            return (rank == 0 || last >= SHOWS * noise).then_some(rank);
        }
        last = largest;
        let axis: Vec<f64> = left[at].iter().map(|x| x / largest).collect();
        for x in &mut left {
            let by: f64 = x.iter().zip(&axis).map(|(x, a)| x * a).sum();
            x.iter_mut().zip(&axis).for_each(|(x, a)| *x -= by * a);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 rows of 24: sums of so many products of numbers without a rule, and noise.
    fn rows(of: usize, noise: f64) -> Vec<Vec<f64>> {
        let number = |n: usize| {
            let mixed = (n as u32).wrapping_mul(0x9E37_79B9) ^ (n as u32).wrapping_mul(0x85EB_CA6B) >> 13;
            f64::from((mixed ^ mixed >> 15).wrapping_mul(0xC2B2_AE35) >> 8) / 8_388_608.0 - 1.0
        };
        let one = |i: usize, j: usize| {
            let sum: f64 = (0..of).map(|n| number(i * 64 + n + 1) * number(j * 4096 + n * 64 + 7)).sum();
            sum + noise * number(i * 24 + j + 99_991)
        };
        (0..40).map(|i| (0..24).map(|j| one(i, j)).collect()).collect()
    }

    #[test]
    fn as_many_products_as_are_summed_are_counted() {
        for of in [0, 1, 2, 7, 12] {
            assert_eq!(rank(rows(of, 1e-6), 1e-5, 12), Some(of), "{of}");
        }
        // Rows that have nothing more are no garbage.
        let mut some = rows(7, 1e-6);
        assert!(fills(&some, 1e-5));
        some.iter_mut().take(12).for_each(|row| row.fill(0.0));
        assert!(!fills(&some, 1e-5));
        // More than may be asked; nothing but noise that is larger than it may be; what fades away.
        assert_eq!(rank(rows(13, 1e-6), 1e-5, 12), None);
        assert_eq!(rank(rows(0, 1.0), 1e-5, 12), None);
        let fading: Vec<Vec<f64>> =
            (0..40).map(|i| (0..24).map(|j| if i == j { 0.3f64.powi(i) } else { 0.0 }).collect()).collect();
        assert_eq!(rank(fading, 1e-4, 12), None);
    }
}
