//! Codes whose rows lie in another order of blocks of rows, their scales in the right one: gate and up interleaved by blocks on one side, in halves
//! on the other.
//!
//! ```text
//! row x·w + r of the R rows of an expert is read from row (x mod q·p + ⌊x / q⌋)·w + r          R = p·q·w; q = 2 or p = 2: two halves, interleaved
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Rows of a block.
const BLOCKS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Every grid of blocks of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    // Rows of a are those of tokens, in no such order.
    let experts = s.experts(Which::B);
    if s.alone || g.q.is_none() || side == Which::A && experts > 1 {
        return Vec::new();
    }
    let (rows, k_all) = (g.rows / experts, g.k);
    let mut all = Vec::new();
    for wide in BLOCKS.into_iter().filter(|w| *w < rows && rows.is_multiple_of(*w)) {
        let n = rows / wide;
        for p in (2..n).filter(|p| n.is_multiple_of(*p)) {
            let q = n / p;
            let halves = match (p, q) {
                (_, 2) => ", as two halves where blocks of both are interleaved",
                (2, _) => ", as blocks of both halves where the halves stand one behind the other",
                _ => "",
            };
            let words = format!(
                "blocks of {wide} rows of the codes of {name} are read in another order: every {rows} rows as {p}×{q} blocks, transposed{halves}; scales are \
                 those of the right rows"
            );
            let grid = if p == 2 || q == 2 { 1.0 } else { cost(p) };
            let mut t =
                Theory::new(Class::PackPermute, name, format!("{name}.row_blocks"), words).bits(4.0 + cost(wide) + grid);
            t.side(side).code = Some(Arc::new(move |i, k| {
                let (x, r) = (i % rows / wide, i % wide);
                Some((i / rows * rows + (x % q * p + x / q) * wide + r) * k_all + k)
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, grouped_found, noise, sum, wide};

    #[test]
    fn interleaved_halves_of_codes_beside_their_right_scales_are_told() {
        const K: usize = 64;
        let n = 48;
        let ends = [11usize, 25];
        let (a, b) = (wide(25, K), codes(Format::E4m3, 2 * n, K, 32, false, 91));
        let x = a.to_f64();
        let value = |code: usize, row: usize, k: usize| {
            Format::E4m3.decode(u32::from(b.codes()[code * K + k])) * f64::from(b.scale_inv()[row * 2 + k / 32])
        };
        let of = |from: &dyn Fn(usize) -> usize| {
            grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
                let e = usize::from(i >= 11) * n;
                sum(K, |k| x[[i, k]] * value(e + from(j), e + j, k))
            })
        };
        // Blocks of 4: x of gate and x of up side by side, as two halves.
        let got = of(&|j| j / 4 % 2 * (n / 2) + j / 8 * 4 + j % 4);
        assert_eq!(got.0, "pack_permute:b.row_blocks", "{}", got.1);
        assert!(
            got.1.contains("blocks of 4 rows of the codes of b") && got.1.contains("every 48 rows as 6×2 blocks"),
            "{}",
            got.1
        );
        assert!(got.1.contains("two halves where blocks of both are interleaved"), "{}", got.1);
        // Blocks in an order of chance.
        let order: Vec<usize> = {
            let mut all: Vec<usize> = (0..n / 4).collect();
            all.sort_by(|x, y| noise(*x + 5).total_cmp(&noise(*y + 5)));
            all
        };
        let got = of(&|j| order[j / 4] * 4 + j % 4);
        assert_ne!(got.0, "pack_permute:b.row_blocks", "{}", got.1);
    }

    #[test]
    fn a_grid_of_blocks_of_a_plain_product_is_told() {
        const K: usize = 64;
        let (m, n) = (20, 72);
        let (a, b) = (wide(m, K), codes(Format::Int8, n, K, K, false, 92));
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let block = j / 8;
            let from = (block % 3 * 3 + block / 3) * 8 + j % 8;
            sum(K, |k| x[[i, k]] * Format::Int8.decode(u32::from(b.codes()[from * K + k])) * f64::from(b.scale_inv()[j]))
        });
        assert_eq!(got.0, "pack_permute:b.row_blocks", "{}", got.1);
        assert!(got.1.contains("every 72 rows as 3×3 blocks"), "{}", got.1);
    }
}
