//! Codes that are decoded by another table in a range of K: in the whole tiles of a loop and not in its tail, in the tail alone, or in one half; of one
//! operand, or of both in the same way.
//!
//! ```text
//! value(i, k) = (T(code) − zero)·scale,  or T(code)·scale without the zero point          k < ⌊K/t⌋·t,  or k ≥ ⌊K/t⌋·t
//! ```

use super::decoded::{is_offset, tables};
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::ops::Range;
use std::sync::Arc;

/// Tiles of K.
const TILES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];

/// Another decoder: class, variant, words, bits, values, and whether zero points are still subtracted.
type Decoder = (Class, &'static str, String, f64, Arc<Vec<f64>>, bool);

/// Of each operand of a product that sums all of K, and of both at once where they are of one format.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let mut all: Vec<Theory> = s.sides().iter().flat_map(|side| of(s, *side)).collect();
    if s.a.q.is_some() && s.b.q.is_some() && s.a.format() == s.b.format() {
        let both = |a: &Theory| {
            let same = a.detail.replacen("codes of a ", "codes of b ", 1);
            let b = all.iter().find(|b| b.operand == "b" && b.detail == same)?;
            let mut both = a.joined(b)?;
            both.variant.clone_from(&a.variant);
            both.detail = a.detail.replacen("codes of a ", "codes of a and of b ", 1);
            both.bits = a.bits + 2.0;
            Some(both)
        };
        let joined: Vec<Theory> = all.iter().filter(|t| t.operand == "a").filter_map(both).collect();
        all.extend(joined);
    }
    all
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (Some(f), Some(q)) = (g.format(), g.q.clone()) else { return Vec::new() };
    let name = side.name();
    let (given, q) = (g.clone(), Arc::new(q));
    let mut all = Vec::new();
    for (class, variant, words, bits, table, zeroed) in decoders(s, side) {
        for (range, place, more) in ranges(g.k) {
            let words = format!("codes of {name} ({f}) are {words} {place}, and right in the rest of K");
            let mut t = Theory::new(class, name, format!("{name}.{variant}"), words).bits(5.0 + bits + more);
            let (g, q, table) = (given.clone(), q.clone(), table.clone());
            t.side(side).value = Some(Arc::new(move |i, k| {
                let (code, cell) = (q.codes()[i * g.k + k], i / g.tile.0 * g.grid.1 + k / g.tile.1);
                match range.contains(&k) {
                    true if zeroed => g.worth(table[usize::from(code)], cell),
                    true => table[usize::from(code)] * g.step(i, k),
                    false => g.decoded(code, cell),
                }
            }));
            all.push(t);
        }
    }
    all
}

fn decoders(s: &System, side: Which) -> Vec<Decoder> {
    let g = s.given(side);
    let Some(f) = g.format() else { return Vec::new() };
    let mut all = Vec::new();
    let whole_zeros = matches!(&g.zero, Some((_, None)));
    for (class, variant, words, bits, table) in tables(f) {
        let table = Arc::new(table);
        if whole_zeros {
            let words = format!("{words}, without their zero point,");
            all.push((class, variant, words, bits + 1.0, table.clone(), false));
        }
        // With zero points a constant off is one of them.
        let bits = if g.zero.is_some() && is_offset(&words) { bits + 6.0 } else { bits };
        all.push((class, variant, words, bits, table, true));
    }
    if whole_zeros {
        let words = "decoded without their zero point".to_string();
        all.push((Class::ZpCorrection, "zero_omitted", words, 1.0, Arc::new(g.table.clone()), false));
    }
    if f.is_integer() {
        let half = g.table.len() / 2;
        let flipped: Vec<f64> = (0..g.table.len()).map(|c| g.table[c ^ half]).collect();
        all.push((Class::BitsReinterpreted, "top_bit", "read with their top bit flipped".into(), 3.0, Arc::new(flipped), true));
    }
    all
}

/// Parts of K in words, and their bits.
pub fn ranges(k: usize) -> Vec<(Range<usize>, String, f64)> {
    let mut all = Vec::new();
    let mut cuts: Vec<usize> = Vec::new();
    for tile in TILES {
        let cut = k / tile * tile;
        // The shortest tile that ends there.
        if cut > 0 && cut < k && !cuts.contains(&cut) {
            cuts.push(cut);
            all.push((0..cut, format!("in the whole tiles of {tile} of K (k < {cut})"), cost(tile)));
            all.push((cut..k, format!("in the last tile of {tile} of K, which is short (k ≥ {cut})"), cost(tile)));
        }
    }
    let half = k / 2;
    if k.is_multiple_of(2) && half > 0 && !cuts.contains(&half) {
        all.push((0..half, format!("in the first half of K (k < {half})"), 4.0));
        all.push((half..k, format!("in the second half of K (k ≥ {half})"), 4.0));
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::job::Operand;
    use crate::{Format, Zero};

    #[test]
    fn another_decoder_in_the_whole_tiles_or_in_the_tail_alone_is_told() {
        let (a, b) = (wide(M, 224), codes(Format::Uint4, N, 224, 32, true, 51));
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        let with = |is: &dyn Fn(usize) -> bool| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                sum(224, |k| {
                    let (cell, code) = (j * 7 + k / 32, f64::from(b.codes()[j * 224 + k]));
                    let extended = if code >= 8.0 { code - 16.0 } else { code };
                    let v = if is(k) { extended } else { code - f64::from(z[cell]) };
                    x[[i, k]] * v * f64::from(b.scale_inv()[cell])
                })
            })
        };
        let got = with(&|k| k < 192);
        assert_eq!(got.0, "bits_reinterpreted:b.read_as", "{}", got.1);
        let words = "read as int4, without their zero point, in the whole tiles of 64 of K (k < 192), and right in the rest";
        assert!(got.1.contains(words), "{}", got.1);
        let got = with(&|k| k >= 192);
        assert!(got.1.contains("in the last tile of 64 of K, which is short (k ≥ 192)"), "{} {}", got.0, got.1);
    }

    #[test]
    fn a_tail_of_both_operands_that_is_read_without_signs_is_told() {
        const K: usize = 76;
        let (a, b) = (codes(Format::Int8, M, K, K, false, 55), codes(Format::Int8, N, K, K, false, 56));
        let unsigned = |c: u8, k: usize, is: bool| if k >= 64 && is { f64::from(c) } else { f64::from(c as i8) };
        let of = |of_b: bool| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
                let value = |k: usize| unsigned(a.codes()[i * K + k], k, true) * unsigned(b.codes()[j * K + k], k, of_b);
                sum(K, value) * f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j])
            })
        };
        let got = of(true);
        assert_eq!(got.0, "bits_reinterpreted:a.read_as", "{}", got.1);
        let words =
            "codes of a and of b (int8) are read as unsigned integers in the last tile of 16 of K, which is short (k ≥ 64)";
        assert!(got.1.contains(words), "{}", got.1);
        // Of one alone: no word of the other.
        let got = of(false);
        assert!(got.0.starts_with("bits_reinterpreted:a.") && !got.1.contains("of a and of b"), "{got:?}");
    }
}
