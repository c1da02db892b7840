//! Codes of a cast that are put together into words wrongly: bits of other lanes in them, codes in another order; with every encoder before it.
//!
//! ```text
//! word = code₀ | code₁ << b | code₂ << 2b …      code signed and not masked: its sign fills all lanes above; added: a borrow reaches the next
//! ```

use super::encoders::{Cast, ENCODERS, Encoder, LEAST, Named, SHARE};
use crate::fault::Class;
use crate::parallel;
use crate::{Overflow, Rounding};

/// Wrong codes that a way is tried on before all are.
const FEW: usize = 64;

/// How the codes of a word are joined.
#[derive(Clone, Copy, PartialEq)]
enum Join {
    /// Signed numbers, shifted and or-ed.
    Or,
    /// Signed numbers, shifted and added.
    Add,
    /// Signed numbers, shifted and xor-ed.
    Xor,
    /// Masked, shifted, and narrowed to a signed word that saturates.
    Narrow,
}

const JOINS: [(Join, &str); 4] = [
    (Join::Or, "are or-ed into words of {n} without a mask: the sign of a negative one fills the lanes above it"),
    (Join::Add, "are added into words of {n} without a mask: a negative one takes 1 from the lane above it"),
    (Join::Xor, "are xor-ed into words of {n} without a mask: the sign of a negative one turns the lanes above it"),
    (
        Join::Narrow,
        "are narrowed into words of {n} that saturate as signed numbers: one whose sign is the word's becomes the largest, all bits below set",
    ),
];

/// The code at a place, by the codes of all places.
type Way<'w> = Box<dyn Fn(&dyn Fn(usize) -> u32, usize) -> u32 + 'w>;

impl Cast<'_> {
    /// Right codes in wrong words.
    pub fn packed(&self) -> Option<Named> {
        let (words, variant) = self.way(|e| e.code(e.y() + e.zero), &self.wrong()?)?;
        Some((Class::PackPermute, variant.into(), words))
    }

    /// Codes of a wrong encoder in wrong words.
    pub fn packed_after(&self) -> Option<Named> {
        let wrong = self.wrong()?;
        ENCODERS.iter().find_map(|(class, variant, words, encoder)| {
            let (second, packed) = self.way(*encoder, &wrong)?;
            Some((*class, format!("out.{variant} + {}:{packed}", Class::PackPermute.name()), format!("{words}; and {second}")))
        })
    }

    /// Where codes are others than the right ones. `None`: hardly anywhere.
    fn wrong(&self) -> Option<Vec<usize>> {
        let (f, codes) = (self.q.format(), self.q.codes());
        let is_right = |at: usize| {
            let e = self.element(at);
            let right = f.encode(e.y() + e.zero, Rounding::NearestEven, Overflow::Saturate);
            right == u32::from(codes[at]) || f.decode(right) == f.decode(u32::from(codes[at]))
        };
        let is: Vec<bool> = parallel::numbers(codes.len(), is_right);
        let wrong: Vec<usize> = (0..codes.len()).filter(|at| !is[*at]).collect();
        (wrong.len() >= LEAST).then_some(wrong)
    }

    /// The way that makes all codes of an encoder's, in words, and its variant.
    fn way(&self, encoder: Encoder, wrong: &[usize]) -> Option<(String, &'static str)> {
        let (f, n) = (self.q.format(), self.q.codes().len());
        let codes = self.q.codes();
        let code = |at: usize| {
            let e = self.element(at);
            encoder(&e).map_or(0, |y| f.encode(y, Rounding::NearestEven, Overflow::Saturate))
        };
        let same = |a: u32, b: u32| a == b || f.decode(a) == f.decode(b);
        let few: Vec<usize> = wrong.iter().copied().step_by(wrong.len().div_ceil(FEW)).collect();
        // Of an encoder that says nothing here, and of one code everywhere, no words tell.
        let tells = encoder(&self.element(*few.first()?)).is_some() && codes.iter().any(|c| *c != codes[0]);
        tells.then_some(())?;
        let ways = self.ways();
        let made = |way: &Way, code: &dyn Fn(usize) -> u32, all: &mut dyn Iterator<Item = usize>| {
            let (n, hit) = all
                .fold((0usize, 0usize), |(n, hit), at| (n + 1, hit + usize::from(same(u32::from(codes[at]), way(code, at)))));
            hit as f64 >= SHARE * n as f64
        };
        let mut some = ways.iter().filter(|w| made(&w.2, &code, &mut few.iter().copied())).peekable();
        some.peek()?;
        let all: Vec<u32> = (0..n).map(code).collect();
        let all = |at: usize| all[at];
        let found = some.find(|w| made(&w.2, &all, &mut wrong.iter().copied()) && made(&w.2, &all, &mut (0..n)))?;
        Some((found.0.clone(), found.1))
    }

    /// Every way to put codes into words, and to mix them up there.
    fn ways(&self) -> Vec<(String, &'static str, Way<'_>)> {
        let (f, cols) = (self.q.format(), self.q.cols());
        let bits = f.bits();
        let mask = (1u32 << bits) - 1;
        let mut all: Vec<(String, &'static str, Way)> = Vec::new();
        for word in [2usize, 4, 8, 16, 32] {
            for step in [1usize, 2, 4].into_iter().filter(|s| *s < word) {
                let words = format!(
                    "codes also have the bits of earlier ones, {step} apart in every {word}: the word they are packed into is not cleared"
                );
                let way: Way =
                    Box::new(move |code, at| (0..=at % cols % word / step).fold(0, |bits, back| bits | code(at - back * step)));
                all.push((words, "out.not_cleared", way));
            }
            for by in (1..word).filter(|by| by.is_power_of_two() || *by == word - 1) {
                let way: Way = Box::new(move |code, at| code(at - at % cols + ((at % cols) ^ by).min(cols - 1)));
                all.push((format!("codes stand at k xor {by}"), "out.lanes", way));
            }
            if word as u32 * bits > 64 || !f.is_integer() {
                continue;
            }
            // The lowest lane is the first of a word, or the last.
            for (up, (join, text)) in [true, false].into_iter().flat_map(|up| JOINS.map(|j| (up, j))) {
                let order = if up { "" } else { ", the last of them lowest" };
                let words = format!("codes {}{order}", text.replace("{n}", &word.to_string()));
                let signed = move |code: u32| -> i64 {
                    let x = f.decode(code) as i64;
                    if x < 0 { x } else { i64::from(code & mask) }
                };
                let way: Way = Box::new(move |code, at| {
                    let (k, row) = (at % cols, at - at % cols);
                    let from = k / word * word;
                    let n = word.min(cols - from);
                    let shift = |lane: usize| bits * (if up { lane } else { n - 1 - lane }) as u32;
                    let largest = (1i128 << (bits * word as u32 - 1)) - 1;
                    let joined = (0..n).fold(0i64, |w, lane| {
                        let code = code(row + from + lane);
                        let x = signed(code).wrapping_shl(shift(lane));
                        match join {
                            Join::Narrow => w | (i128::from(code & mask) << shift(lane)).min(largest) as i64,
                            Join::Or => w | x,
                            Join::Add => w.wrapping_add(x),
                            Join::Xor => w ^ x,
                        }
                    });
                    (joined >> shift(k - from)) as u32 & mask
                });
                all.push((words, "out.not_masked", way));
            }
        }
        for (p, part) in [2usize, 4, 8, 16, 32, 64].into_iter().flat_map(|p| [4usize, 8, 16, 32, 64, 128].map(|n| (p, n))) {
            if p < part && cols.is_multiple_of(part) {
                let q = part / p;
                let way: Way = Box::new(move |code, at| {
                    let (row, k) = (at - at % cols, at % cols);
                    code(row + k / part * part + k % part % q * p + k % part / q)
                });
                all.push((format!("codes stand in another order: every {part} as {p}×{q}, transposed"), "out.order", way));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::by_hand::pattern;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor, Tensor, Zero};

    const COLS: usize = 40;

    fn code(at: usize) -> u32 {
        (at * 7 + at / COLS * 3 + at * at / 11) as u32 % 16
    }

    fn number(code: u32) -> i128 {
        if code < 8 { code.into() } else { i128::from(code) - 16 }
    }

    /// The code of column k of a row that starts at `row`, from the lanes of its word below it.
    fn unmasked(kind: &str, row: usize, k: usize, word: usize, first_lowest: bool) -> u32 {
        let from = k - k % word;
        let lanes: Vec<usize> = (from..COLS.min(from + word)).collect();
        let below: Vec<usize> = lanes.iter().copied().filter(|l| if first_lowest { *l < k } else { *l > k }).collect();
        // The sign of a whole word is that of its highest lane.
        let highest = if first_lowest { from + word - 1 } else { from };
        let fills = lanes.len() == word && number(code(row + highest)) < 0;
        let negative = below.iter().filter(|l| number(code(row + **l)) < 0).count();
        let own = code(row + k);
        match kind {
            "or-ed" => {
                if negative > 0 {
                    15
                } else {
                    own
                }
            }
            "narrowed" if !fills => own,
            "narrowed" => {
                if k == highest {
                    7
                } else {
                    15
                }
            }
            "xor-ed" => {
                if negative % 2 == 1 {
                    15 - own
                } else {
                    own
                }
            }
            _ => {
                // From the highest of them down: the last that is not 0 has the sign of all.
                let mut high = below;
                high.sort_unstable();
                if first_lowest {
                    high.reverse();
                }
                let sign = high.into_iter().map(|l| number(code(row + l))).find(|x| *x != 0).unwrap_or(0);
                if sign < 0 { (own + 15) % 16 } else { own }
            }
        }
    }

    #[test]
    fn every_way_to_put_codes_into_words_by_hand() {
        let x = Tensor::new(Format::F32, 2, COLS, vec![1.0; 2 * COLS]).unwrap();
        let of = |format: Format, see: &mut dyn FnMut(&str, &str, &Way)| {
            let parts = QTensorParts {
                format,
                rows: 2,
                cols: COLS,
                codes: vec![0; 2 * COLS],
                granularity: Granularity::Tensor,
                scale_format: Format::F32,
                scale_inv: vec![1.0],
                zero: Zero::None,
                level: None,
            };
            let q = QTensor::new(parts).unwrap();
            let cast = Cast::of(&x, &q).unwrap();
            let ways = cast.ways();
            ways.iter().for_each(|(words, variant, way)| see(words, variant, way));
            ways.len()
        };
        let made = |way: &Way| (0..2 * COLS).map(|at| way(&code, at)).collect::<Vec<u32>>();
        let all = of(Format::Int4, &mut |words, variant, way| {
            let n: Vec<usize> = pattern(words).1.into_iter().map(|x| x as usize).collect();
            let hand = |at: usize| {
                let (row, k) = (at - at % COLS, at % COLS);
                if variant == "out.not_cleared" {
                    let (step, word) = (n[0], n[1]);
                    (k - k % word..=k).filter(|l| (k - l) % step == 0).fold(0, |bits, l| bits | code(row + l))
                } else if variant == "out.lanes" {
                    code(row + (k ^ n[0]).min(COLS - 1))
                } else if variant == "out.order" {
                    let (part, p, q) = (n[0], n[1], n[2]);
                    assert_eq!(p * q, part);
                    let (i, j) = (k % part / q, k % part % q);
                    code(row + k - k % part + j * p + i)
                } else {
                    let kind = words.split(' ').nth(2).unwrap();
                    unmasked(kind, row, k, n[0], !words.ends_with("the last of them lowest"))
                }
            };
            assert_eq!(made(way), (0..2 * COLS).map(hand).collect::<Vec<u32>>(), "{words}");
        });
        // Bits that stay, exchanged lanes, words of up to 64 bits by four joins and two orders, three transpositions.
        assert_eq!(all, 12 + 19 + 4 * 8 + 3);
        assert_eq!(of(Format::Int8, &mut |_, _, _| ()), 12 + 19 + 3 * 8 + 3);
        assert_eq!(of(Format::E4m3, &mut |_, variant, _| assert_ne!(variant, "out.not_masked")), 12 + 19 + 3);
    }
}
