//! Any block step T(W, F, O) with F at least the fraction bits of a product, 32 outputs at a time: terms in 32-bit lanes,
//! sums in 64-bit ones. And fp8 `mma.sync` lowered to two of them ([`crate::model::lowered`]).
//!
//! A product has fewer than 2^(fraction+2) units of its own, a term fewer than 2^(F+2) ≤ 2^27, a sum of at most 33 terms fewer than 2^33: exact in
//! f64, as is its multiplication by the quantum. The result is then rounded in f64's bits.

use super::chain::BlockStep;
use super::{LANES, compiled};
use crate::Format;
use crate::model::lowered;
use crate::model::mma::{Dest, NAN, NAN_F16, Step};
use crate::tensor::round_to;

/// Exponent given to zero factors and to a zero accumulator: below every nonzero term's.
const ZERO: i32 = -1000;

/// Factors taken apart: significand, sign (0 or −1), exponent.
#[derive(Default)]
pub struct Parts {
    significand: Vec<i32>,
    sign: Vec<i32>,
    exponent: Vec<i32>,
}

/// One block step, or the lowered pair of them.
pub struct Wide {
    shape: WideStep,
    formats: (Format, Format),
    a: Parts,
    b: Parts,
}

/// What a block does with its packed factors.
#[derive(Clone, Copy)]
pub struct WideStep {
    step: Step,
    /// Fraction bits of a product.
    fraction: u32,
    lowered: bool,
}

impl Wide {
    pub fn new(step: Step, fa: Format, fb: Format) -> Self {
        let fraction = fa.spec().mantissa + fb.spec().mantissa;
        let shape = WideStep { step, fraction, lowered: false };
        Self { shape, formats: (fa, fb), a: Parts::default(), b: Parts::default() }
    }
    /// fp8 factors as the f16 unit reads them.
    pub fn lowered(half: Step) -> Self {
        let mut wide = Self::new(half, Format::F16, Format::F16);
        wide.shape.lowered = true;
        wide
    }
}

impl Parts {
    fn reserve(&mut self, n: usize) {
        (self.significand, self.sign, self.exponent) = (vec![0; n], vec![0; n], vec![ZERO; n]);
    }
    fn clear(&mut self) {
        self.significand.fill(0);
        self.exponent.fill(ZERO);
    }
    fn put(&mut self, at: usize, x: f32, format: Format) {
        let bits = x.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        self.sign[at] = (bits as i32) >> 31;
        if magnitude == 0 || magnitude >= 0x7f80_0000 {
            (self.significand[at], self.exponent[at]) = (0, ZERO);
            return;
        }
        let (own, significand) = match magnitude >> 23 {
            0 => (-126, magnitude),
            e => (e as i32 - 127, magnitude & 0x7f_ffff | 0x80_0000),
        };
        let exponent = own.max(format.min_exponent());
        self.significand[at] = (significand >> (23 - format.spec().mantissa as i32 + exponent - own)) as i32;
        self.exponent[at] = exponent;
    }
}

impl BlockStep for Wide {
    fn width(&self) -> usize {
        if self.shape.lowered { lowered::K } else { self.shape.step.w }
    }
    fn slot(&self, l: usize) -> usize {
        // Bytes 0 and 1 of every four come first.
        if self.shape.lowered { l / 4 * 2 + l % 2 + if l % 4 < 2 { 0 } else { lowered::K / 2 } } else { l }
    }
    fn reserve(&mut self, rows: usize) {
        self.a.reserve(rows * self.width());
        self.b.reserve(self.width() * LANES);
    }
    fn clear_a(&mut self) {
        self.a.clear();
    }
    fn clear_b(&mut self) {
        self.b.clear();
    }
    fn put_a(&mut self, at: usize, x: f32) {
        self.a.put(at, x, self.formats.0);
    }
    fn put_b(&mut self, at: usize, x: f32) {
        self.b.put(at, x, self.formats.1);
    }
    fn run(&self, stride: usize, chain: &mut [f32]) {
        block(self.shape, self.width(), &self.a, &self.b, stride, chain);
    }
}

compiled! {
    /// One block of every row of `a` with the 32 columns of `b`; `chain` starts at the tile's first column, its rows `stride` apart.
    pub fn block(shape: WideStep, w: usize, a: &Parts, b: &Parts, stride: usize, chain: &mut [f32]) => block_body;
}

#[inline(always)]
fn block_body(shape: WideStep, w: usize, a: &Parts, b: &Parts, stride: usize, chain: &mut [f32]) {
    for (i, c) in chain.chunks_mut(stride).enumerate().take(a.significand.len() / w) {
        let c: &mut [f32; LANES] = (&mut c[..LANES]).try_into().expect("a tile is LANES wide");
        let first = i * w;
        if !shape.lowered {
            step(shape, a, first..first + w, b, 0, c);
            continue;
        }
        let (mut t, half) = ([0.0f32; LANES], w / 2);
        step(shape, a, first..first + half, b, 0, &mut t);
        step(shape, a, first + half..first + w, b, half, &mut t);
        let f16 = shape.step.dest == Dest::F16;
        for l in 0..LANES {
            let sum = if f16 { round_to(Format::F16, c[l] + t[l]) } else { c[l] + t[l] };
            c[l] = if sum.is_nan() { if f16 { NAN_F16 } else { NAN } } else { sum };
        }
    }
}

/// A step of A's factors `row` with B's from slot `from` on.
#[inline(always)]
fn step(shape: WideStep, a: &Parts, row: std::ops::Range<usize>, b: &Parts, from: usize, c: &mut [f32; LANES]) {
    let WideStep { step, fraction, .. } = shape;
    let lanes = |v: &[i32], k: usize| -> [i32; LANES] { v[k * LANES..(k + 1) * LANES].try_into().expect("LANES") };
    let floor = step.floor;
    let (min_c, f) = (if step.dest == Dest::F16 { -14 } else { -126 }, step.f as i32);
    let (mut c_exponent, mut c_significand) = ([0i32; LANES], [0i64; LANES]);
    for l in 0..LANES {
        let bits = c[l].to_bits();
        let field = (bits >> 23 & 0xff) as i32;
        let own = field.max(1) - 127;
        let significand = (bits & 0x7f_ffff) as i64 | i64::from(field != 0) << 23;
        let exponent = own.max(min_c);
        c_exponent[l] = if significand == 0 { ZERO } else { exponent };
        c_significand[l] = significand >> (exponent - own).min(31);
    }
    let mut emax = c_exponent;
    for (i, k) in row.clone().zip(from..) {
        let (e, other) = (a.exponent[i], lanes(&b.exponent, k));
        for l in 0..LANES {
            emax[l] = emax[l].max(e + other[l]);
        }
    }
    let mut sum = [0i64; LANES];
    for l in 0..LANES {
        emax[l] = emax[l].max(floor);
        // 23 fraction bits to F, then down to the quantum.
        let shift = (25 + 23 - f + emax[l] - c_exponent[l]).clamp(0, 63);
        let term = (c_significand[l] << 25) >> shift;
        sum[l] = if c[l].to_bits() >> 31 == 1 { -term } else { term };
    }
    let up = step.f - fraction;
    for (i, k) in row.zip(from..) {
        let (s, g, e) = (a.significand[i], a.sign[i], a.exponent[i]);
        let (other, other_sign, other_exponent) = (lanes(&b.significand, k), lanes(&b.sign, k), lanes(&b.exponent, k));
        let mut term = [0i32; LANES];
        for l in 0..LANES {
            let magnitude = (s * other[l]) << up;
            let sign = g ^ other_sign[l];
            term[l] = ((magnitude >> (emax[l] - e - other_exponent[l]).clamp(0, 31)) ^ sign) - sign;
        }
        for l in 0..LANES {
            sum[l] += i64::from(term[l]);
        }
    }
    for l in 0..LANES {
        // An accumulator that overflowed stays Inf: factors that are not finite do not come here.
        let value = sum[l] as f64 * f64::from_bits(((emax[l] - f + 1023) as u64) << 52);
        let rounded = match step.dest {
            Dest::F32 { fraction } => toward_zero(value, fraction),
            Dest::F16 => to_f16(value),
        };
        c[l] = if c[l].is_finite() { rounded } else { c[l] };
    }
}

/// `x` with `fraction` fraction bits, toward zero, in f32's range; Inf from 2^128 on.
#[inline(always)]
fn toward_zero(x: f64, fraction: u32) -> f32 {
    let normal = f64::from_bits(x.to_bits() & (!0u64 << (52 - fraction)));
    // Below 2^-126 the quantum is 2^(−126−fraction).
    let (down, up) = (2f64.powi(-126 - fraction as i32), 2f64.powi(126 + fraction as i32));
    let subnormal = (x * up).trunc() * down;
    let kept = if x.abs() < 2f64.powi(-126) { subnormal } else { normal };
    // +0 for every zero.
    (kept + 0.0) as f32
}

/// `x` rounded to f16 (nearest even; Inf from 65520 on), held as f32.
#[inline(always)]
fn to_f16(x: f64) -> f32 {
    let bits = x.to_bits();
    let normal = f64::from_bits((bits + ((1 << 41) - 1 + (bits >> 42 & 1))) & !((1 << 42) - 1));
    let subnormal = (x * 2f64.powi(24)).round_ties_even() * 2f64.powi(-24);
    let kept = if x.abs() < 2f64.powi(-14) { subnormal } else { normal };
    let kept = if kept.abs() >= 65536.0 { f64::INFINITY.copysign(kept) } else { kept };
    (kept + 0.0) as f32
}
