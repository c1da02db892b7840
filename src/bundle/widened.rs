//! Codes of 8 bits that are widened in words of several: one that is taken from its word without a mask keeps the bits of the code below it.
//!
//! ```text
//! word of two e5m2:  hi << 8 | lo     the odd one as f16: the word itself, lo in its low mantissa bits, where word & 0xff00 belongs
//! word of two e4m3:  sign | (word & 0x7fff) >> 1, times 2^8 as f16; without the mask lo >> 1 is in the low bits
//! ```

use crate::Format;

/// Whether a value made of the own code and the one beside it is what was written: of the value, of the other's column, of the lanes that are so.
type Made<'x> = dyn Fn(&dyn Fn(u8, u8) -> f64, &dyn Fn(usize) -> Option<usize>, &dyn Fn(usize) -> bool) -> bool + 'x;

/// Where the code lies whose bits stay, and in which lanes of four.
type Lane = (&'static str, fn(usize) -> Option<usize>, fn(usize) -> bool);
const LANES: [Lane; 6] = [
    ("odd elements keep the bits of the one before them", |j| j.checked_sub(1), |j| j % 2 == 1),
    ("even elements keep the bits of the one behind them", |j| Some(j + 1), |j| j.is_multiple_of(2)),
    ("elements 2 and 3 of every 4 keep the bits of the one 2 before them", |j| j.checked_sub(2), |j| j % 4 >= 2),
    ("elements 0 and 1 of every 4 keep the bits of the one 2 behind them", |j| Some(j + 2), |j| j % 4 < 2),
    ("all but the first of every 4 keep the bits of the one before them", |j| j.checked_sub(1), |j| j % 4 != 0),
    ("all but the last of every 4 keep the bits of the one behind them", |j| Some(j + 1), |j| j % 4 != 3),
];

fn f16(bits: u16) -> f64 {
    Format::F16.decode(u32::from(bits))
}

/// The f16 or bf16 of a code with another one in the bits below its own.
fn wide(f: Format, own: u8, other: u8) -> Option<f64> {
    let word = u16::from(own) << 8 | u16::from(other);
    match f {
        Format::E5m2 => Some(f16(word)),
        Format::E4m3 => Some(f16(word & 0x8000 | (word & 0x7fff) >> 1) * 256.0),
        _ => None,
    }
}

/// Whether codes of a format are widened in words.
pub fn is_widened(f: Format) -> bool {
    wide(f, 0, 0).is_some()
}

/// The lanes that keep a neighbour's bits, in words.
pub fn explain(f: Format, made: &Made) -> Option<String> {
    is_widened(f).then_some(())?;
    let of = |own: u8, other: u8| wide(f, own, other).unwrap_or(f64::NAN);
    let (words, ..) = LANES.iter().find(|(_, other, lane)| made(&of, other, lane))?;
    Some(format!("codes are widened to f16 in words of several without a mask: {words} in their low mantissa bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_a_neighbour_are_below_the_own_mantissa() {
        // 1 with an ulp of f16 for each bit of the other code; −1.5 · (1 + …).
        assert_eq!(wide(Format::E5m2, 0x3c, 0x01), Some(1.0 + 1.0 / 1024.0));
        assert_eq!(wide(Format::E5m2, 0xbe, 0x80), Some(-1.5 - 0.125));
        assert_eq!(wide(Format::E4m3, 0x38, 0x00), Some(1.0));
        assert_eq!(wide(Format::E4m3, 0xb8, 0x80), Some(-1.0 - 1.0 / 16.0));
        assert_eq!(wide(Format::Int8, 1, 1), None);
        let said = |right: &dyn Fn(u8, u8) -> f64, from: usize| {
            explain(Format::E5m2, &|of, other, lane| {
                (0..64).all(|j| {
                    let shown = other(j).filter(|_| lane(j)).map_or(f16((j as u16) << 8), |o| of(j as u8, o as u8));
                    let other = if j % 2 == from { (j ^ 1) as u8 } else { 0 };
                    shown == if j % 2 == from { right(j as u8, other) } else { f16((j as u16) << 8) }
                })
            })
        };
        let leaks = |own: u8, other: u8| f16(u16::from(own) << 8 | u16::from(other));
        assert!(said(&leaks, 1).unwrap().contains("odd elements keep the bits of the one before"));
        assert!(said(&leaks, 0).unwrap().contains("even elements keep the bits of the one behind"));
        assert_eq!(said(&|own, _| f16(u16::from(own) << 8) * 2.0, 1), None);
    }
}
