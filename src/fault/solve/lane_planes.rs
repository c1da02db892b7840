//! Codes whose bits are stored in two parts by lane, for fragments of tensor cores: one part is read by another lane than it was written for.
//!
//! ```text
//! lane 4·g + t of 16 × 16:  rows g, g + 8;  k 2t, 2t + 1, 2t + 8, 2t + 9            of 8 × 16: row g alone
//! bits of (row, k)       :  those of the same slot of lane π(l); the other bits are its own
//! ```

use super::bit_planes::{Packed, bits_in_words, parts_of};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

const LANES: usize = 32;
const WIDE: usize = 16;

/// Of both operands of a product that sums all of K.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    s.sides().iter().flat_map(|side| of(s, *side)).collect()
}

/// Lanes that are another's: words, bits, lane for lane.
fn lanes() -> Vec<(String, f64, [usize; LANES])> {
    let mut all = Vec::new();
    let order = |f: &dyn Fn(usize) -> usize| std::array::from_fn(f);
    for by in 1..5usize {
        let words = format!("whose number is its own, turned right by {by} of 5 bits");
        all.push((words, 2.0, order(&|l| (l >> by | l << (5 - by)) & 31)));
    }
    for by in [1usize, 2, 4, 8, 16, 3, 7, 15, 31] {
        all.push((format!("its own xor {by}"), if by.is_power_of_two() { 2.0 } else { 3.0 }, order(&|l| l ^ by)));
    }
    for by in [1usize, 2, 4, 8] {
        all.push((format!("{by} further on, of 32"), 3.0, order(&|l| (l + by) % 32)));
        all.push((format!("{by} before it, of 32"), 3.0, order(&|l| (l + 32 - by) % 32)));
    }
    all
}

/// Row and k of a place of a fragment whose lane is another.
fn moved(order: &[usize; LANES], row: usize, k: usize) -> (usize, usize) {
    let lane = order[row % 8 * 4 + k % 8 / 2];
    (row / 8 * 8 + lane / 4, k / 8 * 8 + lane % 4 * 2 + k % 2)
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let Some(p) = Packed::of(g).filter(|p| (2..=7).contains(&p.bits) && g.k >= WIDE) else { return Vec::new() };
    let most = p.bits;
    let p = Arc::new(p);
    let mut all = Vec::new();
    for (words, bits, order) in lanes() {
        for mask in parts_of(most) {
            let which: Vec<u32> = (0..most).filter(|x| mask >> x & 1 == 1).collect();
            let words = format!(
                "of the codes of {name}, {} of each are those of the same place of another lane of a fragment (lane 4·g + t: row g of 8, k 2t and 2t + 1 of 8): \
                 of the lane {words}; the other bits are its own",
                bits_in_words(&which)
            );
            let mut t = Theory::new(Class::PackPermute, name, format!("{name}.lane_plane"), words);
            t.bits = 7.0 + bits + f64::from(which.len().min(most as usize - which.len()) as u32);
            let (p, g) = (p.clone(), g.clone());
            t.side(side).value = Some(Arc::new(move |i, k| {
                let from = moved(&order, i, k);
                let at = i * g.k + k;
                let other = if from.0 < g.rows && from.1 < g.k { from.0 * g.k + from.1 } else { at };
                p.value(&g, p.codes[at] & !mask | p.codes[other] & mask, i, k)
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    #[test]
    fn a_part_of_the_bits_that_another_lane_wrote_is_told() {
        let (n, k_all) = (40, 96);
        let (a, b) = (wide(M, k_all), codes(Format::E2m3, n, k_all, k_all, false, 97));
        let x = a.to_f64();
        let of = |lane: &dyn Fn(usize) -> usize, mask: u8| {
            let code = |j: usize, k: usize| {
                let l = lane(j % 8 * 4 + k % 8 / 2);
                let from = (j / 8 * 8 + l / 4) * k_all + k / 8 * 8 + l % 4 * 2 + k % 2;
                b.codes()[j * k_all + k] & !mask | b.codes()[from] & mask
            };
            found(&a, &b, None, Format::F32, |i, j, _| {
                sum(k_all, |k| x[[i, k]] * Format::E2m3.decode(u32::from(code(j, k))) * f64::from(b.scale_inv()[j]))
            })
        };
        let got = of(&|l| (l >> 2 | l << 3) & 31, 0x30);
        assert_eq!(got.0, "pack_permute:b.lane_plane", "{}", got.1);
        let words = "bits 4 … 5 of each are those of the same place of another lane";
        assert!(got.1.contains(words) && got.1.contains("turned right by 2 of 5 bits"), "{}", got.1);
        let got = of(&|l| l ^ 8, 0x0f);
        assert!(got.1.contains("bits 0 … 3 of each") && got.1.contains("its own xor 8"), "{got:?}");
        // A lane by no rule.
        let got = of(&|l| l * 13 % 29, 0x30);
        assert!(!got.0.contains("lane_plane"), "{got:?}");
    }
}
