//! Panels of a few rows that lie row by row and are read in small tiles, or the other way about: a vector instruction wants tiles of its own shape,
//! one after the other along K.
//!
//! ```text
//! read(r, k) = memory[(k / w)·h·w + r·w + k mod w]          r < h, k < d: the place in a panel of h rows × d of K;   memory[r·d + k] = stored(r, k)
//! ```

use super::maps::cost;
use super::system::{System, Theory, To};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Rows and K of a small tile, and K of a panel.
const HIGH: [usize; 6] = [2, 4, 8, 16, 32, 64];
const WIDE: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
const DEEP: [usize; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// Both operands. What no whole panel has lies as it should.
pub fn theories(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    for side in s.sides().iter().copied().filter(|_| !s.alone) {
        let (g, name) = (s.given(side), side.name());
        let experts = if side == Which::B && s.parts.len() > 1 { s.parts.len() } else { 1 };
        let (per, cols) = (g.rows / experts, g.k);
        let (what, more) = if g.q.is_some() { ("codes", 0.0) } else { ("values", 4.0) };
        let tiles = HIGH.into_iter().flat_map(|h| WIDE.map(|w| (h, w)));
        let panels = tiles.flat_map(|(h, w)| DEEP.map(|d| (h, w, d))).filter(|(h, w, d)| *h <= per && w < d && *d <= cols);
        for ((high, wide, deep), by_row) in panels.flat_map(|p| [(p, true), (p, false)]) {
            let tile = format!("small tiles of {high} rows × {wide} of K");
            let (was, is) = if by_row { ("row by row", &tile[..]) } else { (&tile[..], "row by row") };
            let was = if by_row { was.into() } else { format!("in {was}") };
            let is = if by_row { format!("in {is}") } else { is.into() };
            let words = format!("{what} of {name} lie {was} in panels of {high} rows × {deep} of K and are read {is}");
            let to: To = Arc::new(move |i, k| {
                let (r, c) = (i % per % high, k % deep);
                let (top, left) = (i - r, k - c);
                if i % per - r + high > per || left + deep > cols {
                    return Some(i * cols + k);
                }
                let (r, c) = match by_row {
                    true => {
                        let at = c / wide * (high * wide) + r * wide + c % wide;
                        (at / deep, at % deep)
                    }
                    false => {
                        let at = r * deep + c;
                        (at % (high * wide) / wide, at / (high * wide) * wide + at % wide)
                    }
                };
                Some((top + r) * cols + left + c)
            });
            let bits = 4.0 + cost(high) + cost(wide) + cost(deep) - 2.0 + more;
            let mut t = Theory::new(Class::PackPermute, name, format!("{name}.micro_tiles"), words).bits(bits);
            t.side(side).code = Some(to);
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn panels_that_are_read_in_small_tiles_are_told() {
        const K: usize = 160;
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 73));
        let x = a.to_f64();
        // Panels of 8 rows × 32 of K, and tiles of 8 × 4.
        let with = |from: &dyn Fn(usize, usize) -> (usize, usize)| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                sum(K, |k| {
                    let (r, c) = from(j % 8, k % 32);
                    let code = b.codes()[(j / 8 * 8 + r) * K + k / 32 * 32 + c] as i8;
                    x[[i, k]] * f64::from(code) * f64::from(b.scale_inv()[j])
                })
            })
        };
        let got = with(&|r, c| ((c / 4 * 32 + r * 4 + c % 4) / 32, (c / 4 * 32 + r * 4 + c % 4) % 32));
        assert_eq!(got.0, "pack_permute:b.micro_tiles", "{}", got.1);
        let words = "lie row by row in panels of 8 rows × 32 of K and are read in small tiles of 8 rows × 4 of K";
        assert!(got.1.contains(words), "{}", got.1);
        // Tiles of 8 × 8: of 8 × 4, which hold as much as a row of the panel, both ways are one.
        let got = with(&|r, c| ((r * 32 + c) % 64 / 8, (r * 32 + c) / 64 * 8 + c % 8));
        assert!(got.0.starts_with("pack_permute:b") && got.1.contains("in tiles of 8 rows × 8 of K"), "{} {}", got.0, got.1);
        // No order of small tiles.
        let got = with(&|r, c| ((r * 5 + c) % 8, (c * 7 + r) % 32));
        assert!(!got.0.contains("micro_tiles"), "{} {}", got.0, got.1);
    }
}
