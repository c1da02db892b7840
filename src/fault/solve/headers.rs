//! Blocks that a file holds as a header, scale and minimum, with the packed codes behind it, read from another byte on: a loader that takes the
//! header of another format.
//!
//! ```text
//! block:  d d m m q q q q …        right: codes from byte 4 on          skips 2: m is decoded as codes, the last two bytes of q are lost
//!                                  skips 6: the header of the next block follows the last codes
//! ```

use super::given::{Given, Side};
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::{Format, Overflow, QTensor, Rounding, Zero};
use std::sync::Arc;

/// Bytes behind the header that codes may be read from.
const BEHIND: usize = 4;

/// Where the codes of 4 bits of a byte stand in their block.
#[derive(Clone, Copy, PartialEq)]
enum Nibbles {
    LowFirst,
    HighFirst,
    /// The low ones make the first half of the block.
    Halves,
}

/// The bytes of all blocks, one behind the other, and the size of one and of its header.
struct Blocks {
    bytes: Vec<u8>,
    header: usize,
    size: usize,
    group: usize,
    wide: bool,
    nibbles: Nibbles,
}

impl Blocks {
    fn of(g: &Given, q: &QTensor, nibbles: Nibbles) -> Option<Self> {
        let (group, wide) = (g.tile.1, q.format().bits() == 8);
        let of = |x: f32| (q.scale_format().encode(f64::from(x), Rounding::NearestEven, Overflow::Native) as u16).to_le_bytes();
        let zeros: &[f32] = match q.zero() {
            Zero::None => &[],
            Zero::Additive { zero, .. } => zero,
            Zero::Integer(_) => return None,
        };
        let header = if zeros.is_empty() { 2 } else { 4 };
        let size = header + if wide { group } else { group / 2 };
        let mut bytes = vec![0u8; g.grid.0 * g.grid.1 * size];
        for (cell, block) in bytes.chunks_mut(size).enumerate() {
            block[..2].copy_from_slice(&of(q.scale_inv()[cell]));
            if let Some(z) = zeros.get(cell) {
                block[2..4].copy_from_slice(&of(*z));
            }
        }
        let mut all = Self { bytes, header, size, group, wide, nibbles };
        for i in 0..g.rows {
            for k in 0..g.k {
                let (byte, shift) = all.place(i * g.grid.1 + k / group, k % group, header);
                all.bytes[byte] |= q.codes()[i * g.k + k] << shift;
            }
        }
        Some(all)
    }

    /// Byte and shift of the code at `u` of a block, where codes start `skip` bytes behind its start.
    fn place(&self, cell: usize, u: usize, skip: usize) -> (usize, u32) {
        let (byte, shift) = match self.nibbles {
            _ if self.wide => (u, 0),
            Nibbles::LowFirst => (u / 2, 4 * (u % 2) as u32),
            Nibbles::HighFirst => (u / 2, 4 - 4 * (u % 2) as u32),
            Nibbles::Halves => (u % (self.group / 2), 4 * (u / (self.group / 2)) as u32),
        };
        (cell * self.size + skip + byte, shift)
    }

    fn code(&self, cell: usize, u: usize, skip: usize) -> u8 {
        let (byte, shift) = self.place(cell, u, skip);
        let byte = self.bytes.get(byte).copied().unwrap_or(0);
        if self.wide { byte } else { byte >> shift & 15 }
    }
}

/// Codes that start at another byte of their block, of every order of nibbles.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side).clone();
    let Some(q) = g.q.as_ref().filter(|q| [4, 8].contains(&q.format().bits()) && g.deep.is_none() && g.global == 1.0) else {
        return Vec::new();
    };
    let halves = matches!(q.scale_format(), Format::F16 | Format::Bf16);
    if !halves || g.tile.0 != 1 || !(16..=256).contains(&g.tile.1) || !g.tile.1.is_multiple_of(2) || g.rounded.is_some() {
        return Vec::new();
    }
    let orders = [
        (Nibbles::LowFirst, "", 0.0),
        (Nibbles::HighFirst, ", high nibbles first", 1.0),
        (Nibbles::Halves, ", low nibbles first", 1.0),
    ];
    let mut all = Vec::new();
    for (nibbles, how, more) in orders.into_iter().take(if q.format().bits() == 8 { 1 } else { 3 }) {
        let Some(blocks) = Blocks::of(&g, q, nibbles).map(Arc::new) else { continue };
        for skip in (0..=blocks.header + BEHIND).filter(|x| *x != blocks.header) {
            let words = format!(
                "in blocks of {} codes behind a header of {} bytes the codes of {} are read from byte {skip} on{how}: {}",
                blocks.group,
                blocks.header,
                side.name(),
                if skip < blocks.header {
                    "part of the header is decoded, and the last codes are lost"
                } else {
                    "the first codes are lost"
                }
            );
            let mut t = Theory::new(Class::Addressing, side.name(), format!("{}.header", side.name()), words);
            t.bits = 5.0 + more + cost(skip.abs_diff(blocks.header));
            let (g, blocks) = (g.clone(), blocks.clone());
            let value = move |i: usize, k: usize| {
                let cell = i * g.grid.1 + k / g.tile.1;
                g.decoded(blocks.code(cell, k % g.tile.1, skip), cell)
            };
            *t.side(side) = Side { value: Some(Arc::new(value)), ..Side::default() };
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::tensor::round_to;
    use crate::{Format, QTensor, Zero};

    #[test]
    fn a_header_that_is_taken_for_a_shorter_one_is_told() {
        let (a, mut parts) = (wide(M, 64), codes(Format::Uint4, N, 64, 32, false, 17).into_parts());
        let half = |x: &f32| round_to(Format::F16, *x);
        parts.scale_inv = parts.scale_inv.iter().map(half).collect();
        parts.scale_format = Format::F16;
        parts.zero = Zero::Additive { zero: parts.scale_inv.iter().map(|x| half(&(-7.3 * x))).collect(), mid: 0 };
        let b = QTensor::new(parts).unwrap();
        let Zero::Additive { zero, .. } = b.zero() else { panic!("minima") };
        let x = a.to_f64();
        let code = |j: usize, k: usize| {
            let (cell, u) = (j * 2 + k / 32, k % 32);
            let header = Format::F16.encode(f64::from(zero[cell]), crate::Rounding::NearestEven, crate::Overflow::Native);
            let c = if u < 4 { header >> (4 * u) & 15 } else { u32::from(b.codes()[j * 64 + k - 4]) };
            f64::from(c) * f64::from(b.scale_inv()[cell]) + f64::from(zero[cell])
        };
        let got = found(&a, &b, None, Format::F32, |i, j, _| sum(64, |k| x[[i, k]] * code(j, k)));
        assert_eq!(got.0, "addressing:b.header", "{}", got.1);
        assert!(got.1.contains("a header of 4 bytes the codes of b are read from byte 2 on"), "{}", got.1);
    }
}
