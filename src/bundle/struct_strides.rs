//! A dequantization that reads blocks of scale and codes, one behind the other in memory, at another stride than theirs: a struct that is padded in the
//! kernel and packed in the file.
//!
//! ```text
//! memory: s0 c0…  s1 c1…  s2 c2…        block b is read at b·stride: its scale and its codes slip over those of others
//! ```

use super::readings::Held;
use crate::fault::Class;
use crate::{Format, Granularity, Overflow, QTensor, Rounding};

/// Bytes that a stride may be too large, at most.
const MORE: usize = 32;

/// How the bytes of a block lie: its scale first or last; nibbles of halves of the block, or of pairs.
#[derive(Clone, Copy)]
struct Layout {
    scale_last: bool,
    halves: bool,
}

struct Blocks<'q> {
    q: &'q QTensor,
    size: usize,
    scale: Format,
    layout: Layout,
    bytes: Vec<u8>,
}

/// Integers of four bits are stored with 8 added to them.
fn offset(f: Format) -> u8 {
    if f == Format::Int4 { 8 } else { 0 }
}

impl<'q> Blocks<'q> {
    fn new(q: &'q QTensor, size: usize, layout: Layout) -> Self {
        let mut this = Self { q, size, scale: q.scale_format(), layout, bytes: Vec::new() };
        for (b, s) in q.scale_inv().iter().enumerate() {
            let code = match this.scale {
                Format::F32 => s.to_bits(),
                f => f.encode(f64::from(*s), Rounding::NearestEven, Overflow::Saturate),
            };
            let scale = &code.to_le_bytes()[..this.header()];
            let codes = &q.codes()[b * size..(b + 1) * size];
            let mut body = vec![0u8; this.body()];
            for (k, c) in codes.iter().enumerate() {
                let (byte, shift) = this.place(k);
                body[byte] |= if this.is_nibble() { ((c ^ offset(q.format())) & 15) << shift } else { *c };
            }
            let parts = if layout.scale_last { [&body[..], scale] } else { [scale, &body[..]] };
            parts.iter().for_each(|p| this.bytes.extend_from_slice(p));
        }
        this
    }
    fn is_nibble(&self) -> bool {
        self.q.format().bits() == 4
    }
    fn header(&self) -> usize {
        self.scale.bits() as usize / 8
    }
    fn body(&self) -> usize {
        if self.is_nibble() { self.size / 2 } else { self.size }
    }
    /// The byte of a code in its block, and the bit that it begins at.
    fn place(&self, k: usize) -> (usize, u32) {
        match (self.is_nibble(), self.layout.halves) {
            (false, _) => (k, 0),
            (true, true) => (k % (self.size / 2), if k < self.size / 2 { 0 } else { 4 }),
            (true, false) => (k / 2, if k.is_multiple_of(2) { 0 } else { 4 }),
        }
    }
    /// What element `k` of the block at this byte is; nobody knows what lies behind the end.
    fn value(&self, start: usize, k: usize) -> Option<f64> {
        let (header, body) = if self.layout.scale_last { (self.body(), 0) } else { (0, self.header()) };
        let scale = self.bytes.get(start + header..start + header + self.header())?;
        let code = scale.iter().rev().fold(0u32, |all, b| all << 8 | u32::from(*b));
        let scale = if self.scale == Format::F32 { f64::from(f32::from_bits(code)) } else { self.scale.decode(code) };
        let (byte, shift) = self.place(k);
        let byte = *self.bytes.get(start + body + byte)?;
        let code = if self.is_nibble() { (byte >> shift & 15) ^ offset(self.q.format()) } else { byte };
        Some(self.q.format().decode(u32::from(code)) * scale)
    }
}

/// The stride that blocks are read at, in words. `is`: whether an element is this number.
pub fn explain(q: &QTensor, is: &dyn Fn(usize, f64) -> bool, wrong: &[usize]) -> Option<(Class, &'static str, String)> {
    let Granularity::Group(size) = q.granularity() else { return None };
    let (cols, f, s) = (q.cols(), q.format(), q.scale_format());
    let is_packed = matches!(f.bits(), 4 | 8) && matches!(s.bits(), 8 | 16 | 32);
    let plain = matches!(q.zero(), crate::quant::Zero::None) && q.level().is_none();
    (is_packed && plain && (8..=256).contains(&size) && cols.is_multiple_of(size)).then_some(())?;
    let held = Held::of(wrong, q.codes().len())?;
    let across = cols / size;
    for scale_last in [false, true] {
        for halves in if f.bits() == 4 { vec![true, false] } else { vec![false] } {
            let blocks = Blocks::new(q, size, Layout { scale_last, halves });
            let own = blocks.header() + blocks.body();
            for stride in own + 1..=own + MORE {
                // Flat blocks that are further apart run out of the memory before half of them is read.
                for by_rows in [false, true].into_iter().filter(|by_rows| *by_rows || stride <= 2 * own) {
                    let value = |at: usize| {
                        let (b, k) = (at / size, at % size);
                        let start = if by_rows { b / across * across * own + b % across * stride } else { b * stride };
                        blocks.value(start, k)
                    };
                    if !held.made_by(2, &|at| value(at).map(|y| is(at, y))) {
                        continue;
                    }
                    let place = if by_rows { ", from the start of each row on" } else { "" };
                    let words = format!(
                        "blocks of a scale and {size} codes, {own} bytes, are read {stride} bytes apart{place}: scales and codes slip over those of \
                         other blocks, as of a struct that is padded"
                    );
                    return Some((Class::Addressing, "a.block_stride", words));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{QTensorParts, Zero};

    fn weights(format: Format) -> QTensor {
        let (rows, cols) = (12usize, 160usize);
        let code = |n: usize| ((n * 7919 + 101) % 1009 % (1 << format.bits())) as u8;
        QTensor::new(QTensorParts {
            format,
            rows,
            cols,
            codes: (0..rows * cols).map(code).collect(),
            granularity: Granularity::Group(32),
            scale_format: Format::F16,
            scale_inv: (0..rows * 5).map(|g| 0.25 + (g * 37 % 61) as f32 / 64.0).collect(),
            zero: Zero::None,
            level: None,
        })
        .unwrap()
    }

    #[test]
    fn blocks_that_are_read_further_apart_are_named() {
        for (f, halves) in [(Format::Int8, false), (Format::Int4, true), (Format::Int4, false)] {
            let q = weights(f);
            let blocks = Blocks::new(&q, 32, Layout { scale_last: false, halves });
            let own = blocks.header() + blocks.body();
            let right = |at: usize| q.affine(at / 32).value(f.decode(u32::from(q.codes()[at])));
            assert!((0..12 * 160).all(|at| blocks.value(at / 32 * own, at % 32) == Some(right(at))));
            for (more, words) in [(2usize, "32 codes, "), (6, "are read ")] {
                let y = |at: usize| blocks.value(at / 32 * (own + more), at % 32).unwrap_or(0.0);
                let is = |at: usize, v: f64| v == y(at) || v.is_nan() && y(at).is_nan();
                let wrong: Vec<usize> = (0..12 * 160).filter(|at| !is(*at, right(*at))).collect();
                let found = explain(&q, &is, &wrong).map(|f| f.2).unwrap_or_default();
                assert!(found.contains(words) && found.contains(&format!("{} bytes apart", own + more)), "{found}");
            }
            assert_eq!(explain(&q, &|_, _| false, &(0..12 * 160).collect::<Vec<_>>()), None);
        }
    }
}
