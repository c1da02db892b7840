//! An amax of a tensor that is the least of its tiles' largest magnitudes: partial results are combined by a minimum.
//!
//! ```text
//! amax = min over tiles of max |x|        every shape of tiles of powers of two, and of whole rows and columns
//! ```

use crate::Tensor;

/// Tiles of which one is the least, at least: fewer are parts of the tensor that may have been seen alone. Of that many it is no guess.
const TILES: usize = 4;
const MANY: usize = 8;

/// The shapes of tiles that give this amax, in words, and how often chance gives one.
pub fn least(x: &Tensor, amax: f32) -> Option<(String, f64)> {
    let (rows, cols) = (x.rows(), x.cols());
    // An amax is somebody's magnitude.
    let same = x.data().iter().filter(|v| v.abs() == amax).count();
    (same > 0 && amax > 0.0).then_some(())?;
    let halves = |n: usize| 1 + n.next_power_of_two().trailing_zeros() as usize;
    let shapes = halves(rows) * halves(cols);
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    let mut wide: Vec<f32> = x.data().iter().map(|v| v.abs()).collect();
    let (mut across, mut width) = (cols, 1);
    loop {
        let (mut tall, mut down, mut height) = (wide.clone(), rows, 1);
        loop {
            let tiles = down * across;
            if width * height > 1 && tiles >= TILES && tall.iter().copied().fold(f32::INFINITY, f32::min) == amax {
                found.push((tiles, height.min(rows), width.min(cols)));
            }
            if down == 1 {
                break;
            }
            tall = halved(&tall, across, |r, n| (r / 2, n), (down.div_ceil(2), across));
            (down, height) = (down.div_ceil(2), 2 * height);
        }
        if across == 1 {
            break;
        }
        wide = halved(&wide, across, |r, n| (r, n / 2), (rows, across.div_ceil(2)));
        (across, width) = (across.div_ceil(2), 2 * width);
    }
    let tiles = found.iter().map(|f| f.0).max()?;
    let chance = if tiles < MANY { 1.0 / tiles as f64 } else { (shapes * same) as f64 / x.data().len() as f64 };
    let all: Vec<String> = found.iter().map(|(_, r, c)| format!("{r}×{c}")).collect();
    let words = format!(
        "the least of the largest magnitudes of tiles of {}: they are combined by a minimum where it should be a maximum",
        all.join(" or ")
    );
    Some((words, chance))
}

/// The maxima of a grid `across` wide over places that become one.
fn halved(of: &[f32], across: usize, to: fn(usize, usize) -> (usize, usize), (rows, cols): (usize, usize)) -> Vec<f32> {
    let mut all = vec![0.0f32; rows * cols];
    for (at, v) in of.iter().enumerate() {
        let (r, c) = to(at / across, at % across);
        all[r * cols + c] = all[r * cols + c].max(*v);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn the_least_amax_of_tiles_is_told() {
        let (rows, cols) = (48usize, 100usize);
        let v: Vec<f32> = (0..rows * cols).map(|n| ((n * 7919 + n / 7) % 4801) as f32 / 4801.0 - 0.4).collect();
        let x = Tensor::new(Format::F32, rows, cols, v).unwrap();
        let tile = |r: usize, c: usize| {
            let all = (r * 8..(r + 1) * 8).flat_map(|i| (c * 32..(c * 32 + 32).min(cols)).map(move |j| (i, j)));
            all.fold(0f32, |m, (i, j)| m.max(x.row(i)[j].abs()))
        };
        let all: Vec<f32> = (0..6).flat_map(|r| (0..4).map(move |c| (r, c))).map(|(r, c)| tile(r, c)).collect();
        let amax = all.iter().copied().fold(f32::INFINITY, f32::min);
        let (words, chance) = least(&x, amax).unwrap();
        assert!(words.contains("8×32") && chance < 0.05, "{words} {chance}");
        let second = all.iter().copied().filter(|v| *v > amax).fold(f32::INFINITY, f32::min);
        assert!(least(&x, second).is_none_or(|(words, _)| !words.contains("8×32")), "it is not the least");
        assert_eq!(least(&x, 0.123), None, "nobody's magnitude");
        // The less of two parts may be the only one that was seen.
        let part = |c: std::ops::Range<usize>| (0..rows).flat_map(|i| &x.row(i)[c.clone()]).fold(0f32, |m, v| m.max(v.abs()));
        assert!(least(&x, part(0..64).min(part(64..cols))).is_none_or(|(words, _)| !words.contains("48×64")));
    }
}
