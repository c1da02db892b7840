//! fp8 through T(W, 13, 13 RZ), 32 outputs at a time in 16-bit lanes.
//!
//! A factor is an integer significand s ≤ 15 with 3 fraction bits and an exponent e, so a product is s_a·s_b ≤ 225 with 6 of them. In
//! units of its own quantum 2^(e−13) it is s_a·s_b·2^7 < 2^15: it fits a 16-bit lane, and truncation to the block's quantum is a shift
//! right by emax − e. The accumulator c is always a value the step has made: at most 14 significant bits, exponent from −41, so it is never
//! subnormal. A block's sum is below 33·2^15: exact in f32, whose low 10 bits are then cleared (13 fraction bits, toward
//! zero).

use super::chain::BlockStep;
use super::{LANES, compiled};
use crate::Format;

/// Exponent given to zero factors: with any partner below every product of nonzero ones (−28), so it never is the maximum of
/// a block that has a nonzero term.
const ZERO: i16 = -64;

/// Factors taken apart: significand (A's times 2^7), sign (±1), exponent.
#[derive(Default)]
pub struct Parts {
    significand: Vec<i16>,
    sign: Vec<i16>,
    exponent: Vec<i16>,
}

/// The block step of fp8 formats with W products.
pub struct Narrow {
    w: usize,
    formats: (Format, Format),
    a: Parts,
    b: Parts,
}

impl Narrow {
    pub fn new(w: usize, fa: Format, fb: Format) -> Self {
        Self { w, formats: (fa, fb), a: Parts::default(), b: Parts::default() }
    }
}

fn split(x: f32, format: Format) -> (i16, i16, i16) {
    let bits = x.to_bits();
    let sign = if bits >> 31 == 1 { -1 } else { 1 };
    let magnitude = bits & 0x7fff_ffff;
    if magnitude == 0 || magnitude >= 0x7f80_0000 {
        return (0, sign, ZERO);
    }
    // fp8 values are normal in f32; their subnormals keep the smallest exponent and a significand below 8.
    let own = (magnitude >> 23) as i32 - 127;
    let exponent = own.max(format.min_exponent());
    let significand = (magnitude & 0x7f_ffff | 0x80_0000) >> (20 + exponent - own);
    (significand as i16, sign, exponent as i16)
}

impl Parts {
    fn reserve(&mut self, n: usize) {
        (self.significand, self.sign, self.exponent) = (vec![0; n], vec![1; n], vec![ZERO; n]);
    }
    fn clear(&mut self) {
        self.significand.fill(0);
        self.exponent.fill(ZERO);
    }
    fn put(&mut self, at: usize, x: f32, format: Format, unit: i16) {
        let (significand, sign, exponent) = split(x, format);
        self.significand[at] = significand * unit;
        self.sign[at] = sign;
        self.exponent[at] = exponent;
    }
}

impl BlockStep for Narrow {
    fn width(&self) -> usize {
        self.w
    }
    fn reserve(&mut self, rows: usize) {
        self.a.reserve(rows * self.w);
        self.b.reserve(self.w * LANES);
    }
    fn clear_a(&mut self) {
        self.a.clear();
    }
    fn clear_b(&mut self) {
        self.b.clear();
    }
    fn put_a(&mut self, at: usize, x: f32) {
        self.a.put(at, x, self.formats.0, 1 << 7);
    }
    fn put_b(&mut self, at: usize, x: f32) {
        self.b.put(at, x, self.formats.1, 1);
    }
    fn run(&self, stride: usize, chain: &mut [f32]) {
        block(self.w, &self.a, &self.b, stride, chain);
    }
}

compiled! {
    /// One block step of every row of `left` with the 32 columns of `right`; `chain` starts at the tile's first column, its
    /// rows `stride` apart.
    pub fn block(w: usize, left: &Parts, right: &Parts, stride: usize, chain: &mut [f32]) => block_body;
}

#[inline(always)]
fn block_body(w: usize, left: &Parts, right: &Parts, stride: usize, chain: &mut [f32]) {
    for (i, c) in chain.chunks_mut(stride).enumerate().take(left.significand.len() / w) {
        let row = i * w..(i + 1) * w;
        let c: &mut [f32; LANES] = (&mut c[..LANES]).try_into().expect("a tile is LANES wide");
        step(&left.significand[row.clone()], &left.sign[row.clone()], &left.exponent[row], right, c);
    }
}

#[inline(always)]
fn step(significand: &[i16], sign: &[i16], exponent: &[i16], right: &Parts, c: &mut [f32; LANES]) {
    let lanes = |v: &[i16], k: usize| -> [i16; LANES] { v[k * LANES..(k + 1) * LANES].try_into().expect("LANES") };
    // The accumulator as a term: sign, 14-bit significand with 13 fraction bits, exponent (zero: −127, significand 0).
    let mut emax = [0i16; LANES];
    for l in 0..LANES {
        emax[l] = ((c[l].to_bits() >> 23 & 0xff) as i16) - 127;
    }
    let c_exponent = emax;
    for (k, e) in exponent.iter().enumerate() {
        let other = lanes(&right.exponent, k);
        for l in 0..LANES {
            emax[l] = emax[l].max(e + other[l]);
        }
    }
    let mut sum = [0i32; LANES];
    for l in 0..LANES {
        let bits = c[l].to_bits();
        let nonzero = i32::from(bits & 0x7f80_0000 != 0);
        let magnitude = ((bits & 0x7f_ffff | 0x80_0000) >> 10) as i32 * nonzero;
        let shifted = magnitude >> (emax[l] - c_exponent[l]).clamp(0, 31);
        sum[l] = if bits >> 31 == 1 { -shifted } else { shifted };
    }
    for (k, ((s, g), e)) in significand.iter().zip(sign).zip(exponent).enumerate() {
        let (other, other_sign, other_exponent) =
            (lanes(&right.significand, k), lanes(&right.sign, k), lanes(&right.exponent, k));
        let mut term = [0i16; LANES];
        for l in 0..LANES {
            let magnitude = (s * other[l]) as u16;
            let shift = ((emax[l] - e - other_exponent[l]) as u16).min(15);
            term[l] = (magnitude >> shift) as i16 * (g * other_sign[l]);
        }
        for l in 0..LANES {
            sum[l] += i32::from(term[l]);
        }
    }
    for l in 0..LANES {
        // |sum| < 2^21 is exact in f32; clearing 10 bits leaves 13 fraction bits. A real emax is at least −41; below, the sum is 0.
        let kept = f32::from_bits((sum[l] as f32).to_bits() & !0x3ff);
        let unit = f32::from_bits(((i32::from(emax[l]).max(-100) - 13 + 127) as u32) << 23);
        c[l] = kept * unit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other compilations are tested through the definition; this one runs where neither AVX2 nor AVX-512 is.
    #[test]
    fn the_plain_compilation_gives_the_same_bits() {
        let mut step = Narrow::new(32, Format::E4m3, Format::E5m2);
        step.reserve(7);
        for i in 0..7 * 32u32 {
            step.put_a(i as usize, Format::E4m3.decode((i * 37 % 127) | ((i & 1) << 7)) as f32);
        }
        for i in 0..32 * LANES as u32 {
            step.put_b(i as usize, Format::E5m2.decode((i * 53 % 124) | ((i & 2) << 6)) as f32);
        }
        let (mut best, mut plain) = (vec![0.0f32; 7 * LANES], vec![0.0f32; 7 * LANES]);
        for _ in 0..4 {
            step.run(LANES, &mut best);
            block_body(32, &step.a, &step.b, LANES, &mut plain);
        }
        assert_eq!(best, plain);
        assert!(best.iter().any(|x| *x != 0.0));
    }
}
