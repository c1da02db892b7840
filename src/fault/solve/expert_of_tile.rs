//! Rows of a grouped product whose weights are those of the expert of one row of their tile: its first or its last, tiles being counted over all groups.
//!
//! ```text
//! out[i, j] = Σ_k a(i, k)·b_f(j, k)        f: the expert of row ⌊i / T⌋·T, or of the last row of that tile; the bias is of f, or of row i's own
//! ```

use super::experts::multiplied;
use super::maps::cost;
use super::system::{System, Theory};

/// Rows of a tile.
const TILES: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];

/// Every height of tiles that holds rows of two experts.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() < 2 || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    // Behind the last group there are no rows to ask.
    let rows = s.part.iter().rposition(Option::is_some).map_or(0, |x| x + 1);
    let fates: &[bool] = if s.bias.any() && s.bias.experts() > 1 { &[true, false] } else { &[false] };
    let mut all = Vec::new();
    for tile in TILES {
        for last in [false, true] {
            let of = |i: usize| if last { (i / tile * tile + tile).min(rows) - 1 } else { i / tile * tile };
            let map: Vec<Option<usize>> = (0..s.rows).map(|i| if i < rows { s.part[of(i)] } else { None }).collect();
            if map == s.part {
                continue;
            }
            for biased in fates {
                let which = if last { "last" } else { "first" };
                let mut t = multiplied(s, map.clone(), *biased);
                t.detail = format!(
                    "tiles of {tile} rows, counted over all groups, take the weights{} of the expert of their {which} row",
                    if *biased || fates.len() == 1 { "" } else { ", not the bias," }
                );
                t.bits = 8.0 + cost(tile) + f64::from(u8::from(last)) + f64::from(u8::from(fates.len() > 1 && !*biased));
                all.push(t);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, noise, sum, wide};

    const N: usize = 24;
    const K: usize = 96;
    const ENDS: [usize; 5] = [9, 21, 40, 43, 70];

    /// What is said where row i meets the weights of the expert of row `of(i)`, and codes are nibbles less `off`.
    fn named(of: &dyn Fn(usize) -> usize, off: Option<f64>) -> (String, String) {
        let (a, b) = (wide(70, K), codes(Format::Int4, 5 * N, K, K, false, 23));
        let x = a.to_f64();
        grouped_found(&a, &b, &ENDS, Format::Bf16, |i, j| {
            let row = ENDS.iter().filter(|end| **end <= of(i)).count() * N + j;
            let value = |k: usize| {
                let code = u32::from(b.codes()[row * K + k]);
                off.map_or_else(|| Format::Int4.decode(code), |off| f64::from(code & 15) - off)
            };
            sum(K, |k| x[[i, k]] * value(k)) * f64::from(b.scale_inv()[row])
        })
    }

    #[test]
    fn weights_by_the_first_row_of_a_tile_and_nibbles_with_another_offset_are_told() {
        let got = named(&|i| i / 16 * 16, None);
        assert!(got.0 == "group_boundary:rows_of_experts", "{} {}", got.0, got.1);
        let got = named(&|i| i / 16 * 16, Some(7.0));
        assert!(got.0.contains("group_boundary:rows_of_experts") && got.0.contains("bits_reinterpreted:b.read_as"), "{got:?}");
        assert!(
            got.1.contains("tiles of 16 rows") && got.1.contains("their first row") && got.1.contains("offset by 7"),
            "{}",
            got.1
        );
        let got = named(&|i| (i / 16 * 16 + 16).min(70) - 1, Some(7.0));
        assert!(got.1.contains("tiles of 16 rows") && got.1.contains("their last row"), "{} {}", got.0, got.1);
        // A row of chance is no tile's.
        let got = named(&|i| (noise(i) * 70.0) as usize, Some(7.0));
        assert!(!got.1.contains("tiles of"), "{} {}", got.0, got.1);
    }
}
