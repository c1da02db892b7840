//! Codes of an operand that are packed into words with OR, with a wrong shift or without a mask: everywhere, or in the tail of K alone, whose
//! elements are packed one by one.
//!
//! ```text
//! X(i, k) = decode( lane k mod n of the word of codes ⌊k / n⌋·n … )          0 behind the end of K; the word: see `packing`
//! ```

use super::decoded_ranges::ranges;
use super::packing::{How, Packing};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::ops::Range;
use std::sync::Arc;

/// Of all of K.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let k = s.given(side).k;
    of(s, side, &[(0..k, String::new(), 0.0)])
}

/// Of a part of it, of both operands.
pub fn in_ranges(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    s.sides().iter().flat_map(|side| of(s, *side, &ranges(s.k))).collect()
}

fn of(s: &System, side: Which, places: &[(Range<usize>, String, f64)]) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let Some(q) = g.q.as_ref().filter(|q| matches!(q.format().bits(), 4 | 8) && g.k > 1) else { return Vec::new() };
    let (format, width) = (q.format(), q.format().bits());
    let top = 1u8 << (width - 1);
    let signed = format.min_finite() < 0.0 && (format.is_integer() || width == 8) && q.codes().iter().any(|c| c & top != 0);
    let given = g.clone();
    let mut all = Vec::new();
    for packing in Packing::ways(width, signed) {
        // Nibbles of a byte that are not shifted by four have names of their own.
        if width == 4 && packing.lanes == 2 && !matches!(packing.how, How::Extended { .. }) {
            continue;
        }
        for (range, place, more) in places {
            let place = if place.is_empty() { String::new() } else { format!(" {place}, and right in the rest of K") };
            let words = format!("codes of {name} ({format}) are packed with OR, {}{place}", packing.words());
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.packed_with_or"), words)
                .bits(packing.bits() + more);
            let (g, range) = (given.clone(), range.clone());
            t.side(side).value = Some(Arc::new(move |i, k| {
                let codes = g.q.as_ref().map_or(&[][..], |q| &q.codes()[i * g.k..(i + 1) * g.k]);
                if !range.contains(&k) {
                    return g.values[i * g.k + k];
                }
                let first = k / packing.lanes * packing.lanes;
                let code = packing.lane(k - first, |n| codes.get(first + n).map_or(0, |c| u32::from(*c)));
                g.decoded(code as u8, i / g.tile.0 * g.grid.1 + k / g.tile.1)
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    const K: usize = 104;

    /// What is found where byte `lane` of the word of these four codes is read from `from` on.
    fn of(from: usize, read: impl Fn([u8; 4], usize) -> u8) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 37));
        let x = a.to_f64();
        let value = |j: usize, k: usize| {
            let word = [0, 1, 2, 3].map(|n| b.codes()[j * K + k / 4 * 4 + n]);
            f64::from(if k < from { word[k % 4] } else { read(word, k % 4) } as i8)
        };
        found(&a, &b, None, Format::F32, |i, j, _| sum(K, |k| x[[i, k]] * value(j, k) * f64::from(b.scale_inv()[j])))
    }
    fn extended(word: [u8; 4], lane: usize) -> u8 {
        let of = |n: usize| (i32::from(word[n] as i8)) << (8 * n);
        ((of(0) | of(1) | of(2) | of(3)) >> (8 * lane)) as u8
    }

    #[test]
    fn negative_codes_that_fill_the_lanes_above_them_are_told() {
        let got = of(0, extended);
        assert_eq!(got.0, "bits_reinterpreted:b.packed_with_or", "{}", got.1);
        let words = "codes of b (int8) are packed with OR, 4 to a word of 32 bits: each is extended by its sign and not masked";
        assert!(got.1.starts_with(words) && !got.1.contains("rest of K"), "{}", got.1);
        // In the tail alone.
        let got = of(96, extended);
        assert_eq!(got.0, "bits_reinterpreted:b.packed_with_or", "{}", got.1);
        assert!(got.1.contains("with ones in the last tile of 16 of K, which is short (k ≥ 96)"), "{}", got.1);
    }

    #[test]
    fn lanes_that_meet_are_told_and_other_bytes_are_not() {
        let got = of(0, |w, lane| if lane < 2 { w[lane] | w[lane + 2] } else { 0 });
        assert_eq!(got.0, "bits_reinterpreted:b.packed_with_or", "{}", got.1);
        assert!(got.1.contains("code n is shifted by 8·(n mod 2) and not by 8·n"), "{}", got.1);
        // With AND in place of OR it is none of these.
        let got = of(0, |w, lane| if lane < 2 { w[lane] & w[lane + 2] } else { 0 });
        assert!(!got.0.contains("packed_with_or"), "{} {}", got.0, got.1);
    }
}
