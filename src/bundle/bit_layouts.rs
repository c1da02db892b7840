//! Codes of a few bits that are read by another layout than theirs: the fields of a byte belong to codes that lie so far apart, and are taken for those
//! of codes at another distance. The upper bits of a code may be packed by themselves.
//!
//! ```text
//! code i of a block lies in byte (i / (H·f))·H + i mod H, field (i / H) mod f        f fields a byte, H: how far apart its codes are
//! read by H' it is the code whose byte and field these are                              H' = 1: one after the other
//! ```

use super::casts::Named;
use crate::fault::Class;

/// Codes of a block.
const BLOCKS: [usize; 5] = [256, 128, 64, 32, 16];
/// Wrong codes, and moved ones that say another number than their own, at least.
const LEAST: usize = 64;
const MOVED: usize = 24;
/// Codes that a layout is tried on before all are.
const FEW: usize = 64;
/// Bits of the lower part of a code, where the upper ones are packed by themselves.
const SPLITS: [u32; 2] = [4, 2];

/// Some bits of every code that are packed together.
#[derive(Clone, Copy)]
struct Plane {
    from: u32,
    bits: u32,
}

/// A layout that was read, and the one that is right.
#[derive(Clone, Copy, PartialEq)]
struct Layouts {
    right: usize,
    read: usize,
}

impl Plane {
    fn fields(self) -> usize {
        8 / self.bits as usize
    }
    fn of(self, code: i64) -> i64 {
        code >> self.from & ((1 << self.bits) - 1)
    }
    /// The code of a block that stands where code `i` is read.
    fn source(self, Layouts { right, read }: Layouts, i: usize) -> usize {
        let f = self.fields();
        let (byte, field) = (i / (read * f) * read + i % read, i / read % f);
        byte / right * right * f + field * right + byte % right
    }
    fn words(self, Layouts { right, read }: Layouts) -> String {
        let (f, end) = (self.fields(), self.from + self.bits - 1);
        let what = if self.bits == 1 {
            format!("bit {end} of codes is")
        } else {
            format!("bits {} … {end} of codes are", self.from)
        };
        let apart = |h: usize| match h {
            1 => "follow each other".to_string(),
            _ => format!("are {h} apart"),
        };
        format!(
            "{what} read as if the {f} codes of a byte {}, and they {}",
            apart(read).replace("are", "were").replace("follow", "followed"),
            apart(right)
        )
    }
}

/// A dequantization as it is seen.
pub struct Seen<'s> {
    /// Codes, and codes of a row.
    pub count: usize,
    pub cols: usize,
    /// Those that are wrong.
    pub wrong: &'s [usize],
    /// A code as it is stored, and as the result has it, where it says one.
    pub own: &'s dyn Fn(usize) -> i64,
    pub shown: &'s dyn Fn(usize) -> Option<i64>,
}

/// How codes are read, in words. `None`: by no such layout.
pub fn explain(seen: &Seen) -> Option<Named> {
    let Seen { count, cols, wrong, own, shown } = *seen;
    let few: Vec<usize> =
        wrong.iter().copied().step_by(wrong.len().div_ceil(FEW).max(1)).filter(|at| shown(*at).is_some()).collect();
    (wrong.len() >= LEAST && 2 * few.len() >= FEW / 2).then_some(())?;
    let (least, largest) = (0..count).map(own).fold((i64::MAX, i64::MIN), |m, c| (m.0.min(c), m.1.max(c)));
    // As they are packed: from 0 on.
    let bias = if least < 0 { (0..6).map(|b| 1i64 << b).find(|b| least + b >= 0)? } else { 0 };
    let most = largest + bias;
    (3..64).contains(&most).then_some(())?;
    let bits = i64::BITS - most.leading_zeros();
    let splits = SPLITS.into_iter().filter(|low| *low < bits && matches!(bits - low, 1 | 2)).map(Some);
    let splits: Vec<Option<u32>> = matches!(bits, 2 | 4).then_some(None).into_iter().chain(splits).collect();
    for block in BLOCKS.into_iter().filter(|b| cols.is_multiple_of(*b)) {
        for split in &splits {
            let low = Plane { from: 0, bits: split.unwrap_or(bits) };
            let high = split.map(|low| Plane { from: low, bits: bits - low });
            let of = |plane: Plane| {
                let is = |layouts: Layouts, at: usize| {
                    let (base, i) = (at - at % block, at % block);
                    let c = plane.of(own(base + plane.source(layouts, i)) + bias);
                    shown(at).is_none_or(|s| (s + bias) >> bits == 0 && plane.of(s + bias) == c)
                };
                let distances = || (0..).map(|k| 1usize << k).take_while(|h| h * plane.fields() <= block);
                let pairs = distances().flat_map(|right| distances().map(move |read| Layouts { right, read }));
                let moved = pairs.filter(|l| l.right != l.read);
                let found = std::iter::once(Layouts { right: 1, read: 1 })
                    .chain(moved)
                    .find(|l| few.iter().all(|at| is(*l, *at)) && (0..count).all(|at| is(*l, at)))?;
                let differs = |at: &&usize| shown(**at).is_some_and(|s| plane.of(s + bias) != plane.of(own(**at) + bias));
                Some((plane, found, wrong.iter().filter(differs).take(MOVED).count()))
            };
            let Some(first) = of(low) else { continue };
            let second = match high {
                Some(plane) => match of(plane) {
                    Some(found) => Some(found),
                    None => continue,
                },
                None => None,
            };
            let planes: Vec<_> = std::iter::once(first).chain(second).filter(|p| p.1.read != p.1.right).collect();
            if planes.is_empty() || planes.iter().any(|p| p.2 < MOVED) {
                continue;
            }
            let words: Vec<String> = planes.iter().map(|(plane, layouts, _)| plane.words(*layouts)).collect();
            let words = format!("codes are read in another layout: {}; scales are those of their places", words.join("; "));
            return Some((Class::PackPermute, "a.bit_layout", words));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLS: usize = 512;

    /// Codes of so many bits, and what is said where code i of each block of `block` is made of those of two places: of its lower 4 bits, and the rest.
    fn said(bits: u32, less: i64, block: usize, from: &dyn Fn(usize) -> (usize, usize)) -> String {
        let own: Vec<i64> = (0..4 * COLS).map(|n| ((n * 7919 + n / 13) % 1009 % (1 << bits)) as i64 - less).collect();
        let shown = |at: usize| {
            let (base, (low, high)) = (at - at % block, from(at % block));
            let (low, high) = (own[base + low] + less, own[base + high] + less);
            (at % 11 != 3).then_some((low & 15 | high & !15) - less)
        };
        let wrong: Vec<usize> = (0..own.len()).filter(|at| shown(*at).is_some_and(|c| c != own[*at])).collect();
        let seen = Seen { count: own.len(), cols: COLS, wrong: &wrong, own: &|at| own[at], shown: &shown };
        explain(&seen).map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn fields_of_bytes_at_another_distance_are_named() {
        // Code i from nibble i mod 2 of byte i / 2, and bit i mod 8 of byte i / 8, where both are 32 apart.
        let walked = |i: usize| (i / 64 * 64 + i % 2 * 32 + i / 2 % 32, i % 8 * 32 + i / 8);
        let words = said(5, 0, 256, &walked);
        assert!(
            words.contains(
                "layout: bits 0 … 3 of codes are read as if the 2 codes of a byte followed each other, and they are 32 apart"
            ),
            "{words}"
        );
        assert!(
            words.contains("; bit 4 of codes is read as if the 8 codes of a byte followed each other, and they are 32 apart"),
            "{words}"
        );
        // Halves of a block for neighbours, in codes with a sign, and the upper bits alone.
        let words = said(4, 8, 32, &|i| (i % 16 * 2 + i / 16, i));
        assert!(
            words.contains(
                "layout: bits 0 … 3 of codes are read as if the 2 codes of a byte were 16 apart, and they follow each other"
            ),
            "{words}"
        );
        let words = said(6, 32, 128, &|i| (i, i % 4 * 32 + i / 4));
        assert!(
            words.contains("layout: bits 4 … 5 of codes are read as if the 4 codes of a byte followed each other"),
            "{words}"
        );
        assert_eq!(said(5, 0, 256, &|i| (i, i)), "", "they are right");
        assert_eq!(said(5, 0, 256, &|i| ((i * 5 + 3) % 256, (i * 7 + 1) % 256)), "", "of no layout");
    }
}
