//! Words of packed codes that pass through a type of floats on their way: bits that are no ordinary number come out as others.
//!
//! ```text
//! word' = canonical NaN where word is one; or with its quiet bit; 0 with its sign where it is subnormal; 0 where it is −0
//! ```
//!
//! A word holds neighbouring codes, or, where a block of G codes is packed as its two halves, nibbles of k and k + G / 2 in a byte.

use super::given::Given;
use super::maps::cost;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Blocks that are packed as two halves.
const BLOCKS: [usize; 4] = [32, 64, 128, 256];

/// Which codes of a row are a word, and in which order.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    LowFirst,
    HighFirst,
    /// Byte n of a block of so many has codes n (low) and n + half (high).
    Halves(usize),
    /// Bytes one after the other.
    Bytes,
}

/// What a type of floats is, by its bits.
#[derive(Clone, Copy)]
struct Float {
    format: Format,
    bits: u32,
    exponent: u32,
    quiet: u32,
}

const FLOATS: [Float; 3] = [
    Float { format: Format::F16, bits: 16, exponent: 0x7C00, quiet: 0x0200 },
    Float { format: Format::Bf16, bits: 16, exponent: 0x7F80, quiet: 0x0040 },
    Float { format: Format::F32, bits: 32, exponent: 0x7F80_0000, quiet: 0x0040_0000 },
];

/// What becomes of a word.
#[derive(Clone, Copy, PartialEq)]
enum Passage {
    /// All bits but the sign.
    Ones,
    /// The exponent and the quiet bit.
    Quiet,
    /// The quiet bit is set, all else stays.
    Quieted,
    Flushed,
    NoMinusZero,
}

const PASSAGES: [Passage; 5] = [Passage::Ones, Passage::Quiet, Passage::Quieted, Passage::Flushed, Passage::NoMinusZero];

impl Float {
    fn pass(self, how: Passage, word: u32) -> u32 {
        let sign = 1 << (self.bits - 1);
        let mantissa = word & !(self.exponent | sign);
        let exponent = word & self.exponent;
        let (nan, subnormal) = (exponent == self.exponent && mantissa != 0, exponent == 0 && mantissa != 0);
        match how {
            Passage::Ones if nan => sign - 1,
            Passage::Quiet if nan => self.exponent | self.quiet,
            Passage::Quieted if nan => word | self.quiet,
            Passage::Flushed if subnormal => word & sign,
            Passage::NoMinusZero if word == sign => 0,
            _ => word,
        }
    }

    fn words(self, how: Passage) -> String {
        match how {
            Passage::Ones => format!("NaN becomes 0x{:X}", (1u32 << (self.bits - 1)) - 1),
            Passage::Quiet => format!("NaN becomes 0x{:X}", self.exponent | self.quiet),
            Passage::Quieted => "the quiet bit of NaN is set".into(),
            Passage::Flushed => "subnormal numbers become 0".into(),
            Passage::NoMinusZero => "−0 becomes 0".into(),
        }
    }
}

/// How codes of a row lie in words.
#[derive(Clone, Copy)]
struct Layout {
    order: Order,
    /// Bits of a code, and what is exclusive-ored to it when it is packed.
    width: u32,
    flip: u32,
    lanes: usize,
}

impl Layout {
    /// The k of each lane of the word of `k`, from the lowest bits on, and which of them `k` is. `None`: the word is not whole.
    fn lanes(self, k: usize, k_all: usize) -> Option<(usize, impl Fn(usize) -> usize)> {
        let n = self.lanes;
        let (lane, first, half) = match self.order {
            Order::Halves(block) => {
                let (start, x) = (k / block * block, k % block);
                let (byte, high) = (x % (block / 2), x / (block / 2));
                (byte % (n / 2) * 2 + high, start + byte / (n / 2) * (n / 2), block / 2)
            }
            Order::HighFirst => ((k % n) ^ 1, k / n * n, 0),
            _ => (k % n, k / n * n, 0),
        };
        let order = self.order;
        let at = move |lane: usize| match order {
            Order::Halves(_) => first + lane / 2 + lane % 2 * half,
            Order::HighFirst => first + (lane ^ 1),
            _ => first + lane,
        };
        (at(n - 1) < k_all).then_some((lane, at))
    }

    /// The code of `k` after the passage of its word.
    fn read(self, (float, how): (Float, Passage), codes: &[u8], k: usize) -> u8 {
        let Some((lane, at)) = self.lanes(k, codes.len()) else { return codes[k] };
        let mask = (1u32 << self.width) - 1;
        let packed = |c: u8| (u32::from(c) ^ self.flip) & mask;
        let word = (0..self.lanes).fold(0, |w, x| w | packed(codes[at(x)]) << (x as u32 * self.width));
        let passed = float.pass(how, word);
        if passed == word {
            return codes[k];
        }
        // A code keeps the bits that its format has none of.
        let new = (passed >> (lane as u32 * self.width) & mask) ^ self.flip;
        (new & mask) as u8
    }

    fn words(self) -> String {
        let flip = if self.flip == 0 { String::new() } else { format!(", {} more each", self.flip) };
        match self.order {
            Order::Halves(block) => {
                format!("bytes of the nibbles of k (low) and k + {} of every {block}{flip}", block / 2)
            }
            Order::LowFirst => format!("neighbouring nibbles, the first low{flip}"),
            Order::HighFirst => format!("neighbouring nibbles, the first high{flip}"),
            Order::Bytes => format!("neighbouring bytes{flip}"),
        }
    }

    fn bits(self) -> f64 {
        let order = match self.order {
            Order::LowFirst | Order::Bytes => 0.0,
            Order::HighFirst => 1.0,
            Order::Halves(block) => 1.0 + cost(block),
        };
        order + if self.flip == 0 { 0.0 } else { 1.0 }
    }
}

fn layouts(g: &Given, width: u32, lanes: usize) -> Vec<Layout> {
    let signed = g.format().is_some_and(|f| f.is_integer() && f.min_finite() < 0.0);
    let flips: &[u32] = if signed { &[0, 1] } else { &[0] };
    let orders: Vec<Order> = if width == 4 {
        let halves = BLOCKS.into_iter().filter(|b| g.k.is_multiple_of(*b)).map(Order::Halves);
        [Order::LowFirst, Order::HighFirst].into_iter().chain(halves).collect()
    } else {
        vec![Order::Bytes]
    };
    let one = |order: Order| flips.iter().map(move |f| Layout { order, width, flip: f << (width - 1), lanes });
    orders.into_iter().flat_map(one).collect()
}

/// Of both operands, where a passage changes some words and not most.
pub fn theories(s: &System) -> Vec<Theory> {
    s.sides().iter().flat_map(|side| of(s, *side)).collect()
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let Some(q) = g.q.as_ref().filter(|q| matches!(q.format().bits(), 4 | 8) && g.k > 1) else { return Vec::new() };
    let given = g.clone();
    let width = q.format().bits();
    let mut all = Vec::new();
    for float in FLOATS {
        let lanes = (float.bits / width) as usize;
        for (layout, how) in layouts(g, width, lanes).into_iter().flat_map(|l| PASSAGES.map(|how| (l, how))) {
            let words = format!(
                "words of {} bits of the codes of {name} ({}) pass through {}: {}",
                float.bits,
                layout.words(),
                float.format,
                float.words(how)
            );
            let bits = 5.0 + layout.bits() + if how == Passage::Ones { 0.0 } else { 1.0 };
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.float_words"), words).bits(bits);
            let g = given.clone();
            t.side(side).value = Some(Arc::new(move |i, k| {
                let codes = g.q.as_ref().map_or(&[][..], |q| &q.codes()[i * g.k..(i + 1) * g.k]);
                g.decoded(layout.read((float, how), codes, k), i / g.tile.0 * g.grid.1 + k / g.tile.1)
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

    const K: usize = 128;

    /// What is found where the nibbles of each word of four codes of int4, 8 more each, are read as `to` says.
    fn of_nibbles(
        at: impl Fn(usize, usize) -> usize,
        lane: impl Fn(usize) -> usize,
        to: impl Fn(u32) -> u32,
    ) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Int4, N, K, 64, false, 77));
        let x = a.to_f64();
        let value = |j: usize, k: usize| {
            let word = (0..4).fold(0u32, |w, n| w | u32::from(b.codes()[j * K + at(k, n)] & 15 ^ 8) << (4 * n));
            f64::from(to(word) >> (4 * lane(k)) & 15) - 8.0
        };
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| x[[i, k]] * value(j, k) * f64::from(b.scale_inv()[j * 2 + k / 64]))
        })
    }

    #[test]
    fn words_that_pass_through_floats_are_told() {
        // Halves of 64: byte n has codes n and n + 32.
        let at = |k: usize, n: usize| k / 64 * 64 + k % 32 / 2 * 2 + n / 2 + n % 2 * 32;
        let lane = |k: usize| k % 2 * 2 + k % 64 / 32;
        let nan = |w: u32| w & 0x7C00 == 0x7C00 && w & 0x3FF != 0;
        let got = of_nibbles(at, lane, |w| if nan(w) { 0x7FFF } else { w });
        assert_eq!(got.0, "bits_reinterpreted:b.float_words", "{}", got.1);
        let words =
            "(bytes of the nibbles of k (low) and k + 32 of every 64, 8 more each) pass through f16: NaN becomes 0x7FFF";
        assert!(got.1.contains(words), "{}", got.1);
        // Neighbours, through bf16 without subnormals.
        let got = of_nibbles(|k, n| k / 4 * 4 + n, |k| k % 4, |w| if w & 0x7F80 == 0 { w & 0x8000 } else { w });
        assert_eq!(got.0, "bits_reinterpreted:b.float_words", "{}", got.1);
        assert!(got.1.contains("the first low, 8 more each) pass through bf16: subnormal numbers become 0"), "{}", got.1);
        // Words of another class are no passage.
        let got = of_nibbles(at, lane, |w| if w & 0x7C00 == 0x5400 { 0x7FFF } else { w });
        assert!(!got.0.contains("float_words"), "{} {}", got.0, got.1);
    }

    #[test]
    fn bytes_that_pass_through_floats_are_told() {
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 78));
        let x = a.to_f64();
        let value = |j: usize, k: usize| {
            let code = |k: usize| u32::from(b.codes()[j * K + k]);
            let word = code(k & !1) | code(k | 1) << 8;
            let word = if word & 0x7C00 == 0x7C00 && word & 0x3FF != 0 { word | 0x200 } else { word };
            f64::from((word >> (8 * (k % 2))) as u8 as i8)
        };
        let got = found(&a, &b, None, Format::F32, |i, j, _| sum(K, |k| x[[i, k]] * value(j, k) * f64::from(b.scale_inv()[j])));
        assert_eq!(got.0, "bits_reinterpreted:b.float_words", "{}", got.1);
        assert!(got.1.contains("(neighbouring bytes) pass through f16: the quiet bit of NaN is set"), "{}", got.1);
    }
}
