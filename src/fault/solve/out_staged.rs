//! Tiles of the result that are staged with one leading dimension and read with another: in shared memory, on their way from registers.
//!
//! ```text
//! element (r, c) of a tile of h × w is written at r·W + c and read at r·R + c          or c·W + r and c·R + r; 0 where nothing is written
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Rows and columns of a tile, and what a leading dimension is padded by.
const HIGH: [usize; 6] = [8, 16, 32, 64, 128, 256];
const WIDE: [usize; 6] = [8, 16, 32, 64, 128, 256];
const PADS: [usize; 6] = [8, 4, 1, 2, 16, 32];

/// Every tile whose padding one of the two sides forgets.
pub fn theories(s: &System) -> Vec<Theory> {
    let (rows, cols) = (s.rows, s.cols);
    if s.alone || rows < 2 || cols < 2 {
        return Vec::new();
    }
    let tiles = HIGH.into_iter().flat_map(|h| WIDE.map(|w| (h, w))).filter(|(h, w)| *h < 2 * rows && *w < 2 * cols);
    let ways = tiles.flat_map(|t| PADS.into_iter().flat_map(move |p| [(t, p, true), (t, p, false)]));
    let mut all = Vec::new();
    for (((high, wide), pad, padded_first), by_row) in ways.flat_map(|w| [(w, true), (w, false)]) {
        let own = if by_row { wide } else { high };
        let (written, read) = if padded_first { (own + pad, own) } else { (own, own + pad) };
        let order = if by_row { "row by row" } else { "column by column" };
        let words = format!(
            "tiles of {high}×{wide} of the result are staged {order} with leading dimension {written} and read with {read}, 0 where nothing is written"
        );
        let mut t = Theory::new(Class::Addressing, "out", "out.leading_dimension", words)
            .bits(2.0 + cost(high) + cost(wide) + cost(pad));
        let (long, count) = if by_row { (wide, high) } else { (high, wide) };
        t.from = Some(Arc::new(move |i, j| {
            let (r, c) = (i % high, j % wide);
            let at = if by_row { r * read + c } else { c * read + r };
            let (line, x) = (at / written, at % written);
            // Padding, and what is behind the last line.
            (x < long && line < count).then_some(())?;
            let (r, c) = if by_row { (i - r + line, j - c + x) } else { (i - r + x, j - c + line) };
            (r < rows && c < cols).then_some((r, c))
        }));
        all.push(t);
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, noise, wide};

    #[test]
    fn tiles_that_are_read_with_another_leading_dimension_are_told() {
        let (m, n) = (48, 80);
        let (a, b) = (wide(m, 64), codes(Format::Int8, n, 64, 64, false, 35));
        let bias: Vec<f32> = (0..n).map(|j| 0.02 * (j as f32 - 30.0)).collect();
        // Tiles of 32 × 16 whose rows are 20 apart where they are written, 16 where they are read.
        let with = |nothing: &dyn Fn(usize) -> f64| {
            found(&a, &b, Some(bias.clone()), Format::Bf16, |i, j, right| {
                let at = i % 32 * 16 + j % 16;
                let (r, c) = (i / 32 * 32 + at / 20, j / 16 * 16 + at % 20);
                if at % 20 < 16 && r < m { right[r * n + c] } else { nothing(i * n + j) }
            })
        };
        let got = with(&|_| 0.0);
        assert_eq!(got.0, "addressing:out.leading_dimension", "{}", got.1);
        let words = "tiles of 32×16 of the result are staged row by row with leading dimension 20 and read with 16";
        assert!(got.1.contains(words), "{}", got.1);
        // Numbers in the place of what nobody wrote are nobody's.
        let got = with(&|at| 4.0 * noise(at) - 2.0);
        assert!(!got.0.contains("leading_dimension"), "{} {}", got.0, got.1);
    }
}
