//! Products as other people's kernels make them, from the codes on: nothing here is shared with what judges them.

use super::super::{Bundle, Writer};
use safetensors::Dtype;
use std::path::Path;

/// A stream of numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// About a normal distribution: twelve uniform numbers.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
    }
}

/// A number as `±significand · 2^(exponent − fraction)`, not renormalised.
#[derive(Clone, Copy)]
pub struct Number {
    significand: i64,
    exponent: i32,
}

impl Number {
    /// Of e4m3.
    pub fn value(self) -> f64 {
        self.significand as f64 * 2f64.powi(self.exponent - 3)
    }

    /// By a power of two.
    pub fn shifted(self, by: i32) -> Self {
        Self { exponent: self.exponent + by, ..self }
    }
}

/// A block step: `w` products, `f` bits below the largest exponent, the sum cut to `o` fraction bits (f16 = 10 bits to nearest, where `o` is none).
#[derive(Clone, Copy)]
pub struct T {
    pub w: usize,
    pub f: i32,
    pub o: Option<i32>,
}

/// Emulated: 8-bit or 16-bit floats with a scale a row, or one.
pub struct Emulated {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub e4m3: bool,
    pub a: Vec<u16>,
    pub b: Vec<u16>,
    pub sa: Vec<f32>,
    pub sb: Vec<f32>,
    pub bias: Option<Vec<f32>>,
}

/// e4m3: sign, four exponent bits with bias 7, three fraction bits.
fn e4m3(code: u16) -> Number {
    let (field, m) = (i32::from(code >> 3 & 15), i64::from(code & 7));
    let significand = if field == 0 { m } else { 8 + m };
    Number { significand: if code & 0x80 != 0 { -significand } else { significand }, exponent: field.max(1) - 7 }
}

/// f16: five exponent bits with bias 15, ten fraction bits.
fn f16(code: u16) -> Number {
    let (field, m) = (i32::from(code >> 10 & 31), i64::from(code & 0x3ff));
    let significand = if field == 0 { m } else { 1024 + m };
    Number { significand: if code & 0x8000 != 0 { -significand } else { significand }, exponent: field.max(1) - 15 }
}

impl Emulated {
    pub fn new(seed: u64, (m, n, k): (usize, usize, usize), e4m3: bool) -> Self {
        let mut r = Random(seed);
        let mut codes = |count: usize| -> Vec<u16> {
            let one = |r: &mut Random| match e4m3 {
                // The largest is 48.
                true => float8::F8E4M3::from_f64(r.normal() * 8.0).to_bits().into(),
                false => half::f16::from_f64(r.normal()).to_bits(),
            };
            (0..count).map(|_| one(&mut r)).collect()
        };
        let (a, b) = (codes(m * k), codes(n * k));
        let mut scale = |count: usize| (0..count).map(|_| (0.001 * (1.5 + r.normal().abs())) as f32).collect::<Vec<f32>>();
        let (sa, sb) = if e4m3 { (scale(m), scale(n)) } else { (Vec::new(), Vec::new()) };
        Self { m, n, k, e4m3, a, b, sa, sb, bias: None }
    }

    pub fn with_bias(mut self, seed: u64) -> Self {
        let mut r = Random(seed);
        self.bias = Some((0..self.n).map(|_| r.normal() as f32).collect());
        self
    }

    pub fn numbers(&self, codes: &[u16]) -> Vec<Number> {
        codes.iter().map(|c| if self.e4m3 { e4m3(*c) } else { f16(*c) }).collect()
    }

    fn fraction(&self) -> i32 {
        if self.e4m3 { 3 } else { 10 }
    }

    /// Chains of block steps over k, from c = 0.
    pub fn chain(&self, t: T, a: &[Number], b: &[Number]) -> f32 {
        a.chunks(t.w).zip(b.chunks(t.w)).fold(0.0, |c, (a, b)| self.step(t, a, b, c))
    }

    fn step(&self, t: T, a: &[Number], b: &[Number], c: f32) -> f32 {
        let fraction = 2 * self.fraction();
        let bits = c.to_bits();
        let c_fraction = 23;
        let c_exponent = (bits >> 23 & 0xff) as i32 - 127;
        let c_significand = if c == 0.0 { 0 } else { i64::from(bits & 0x7f_ffff | 0x80_0000) };
        let mut emax = if c == 0.0 { i32::MIN } else { c_exponent };
        for (x, y) in a.iter().zip(b).filter(|(x, y)| x.significand != 0 && y.significand != 0) {
            emax = emax.max(x.exponent + y.exponent);
        }
        if emax == i32::MIN {
            return 0.0;
        }
        let quantum = emax - t.f;
        let cut = |significand: i64, exponent: i32, fraction: i32| {
            let shift = exponent - fraction - quantum;
            let size = if shift >= 0 { significand.abs() << shift } else { significand.abs() >> (-shift).min(62) };
            size * significand.signum()
        };
        let mut sum = cut(c_significand, c_exponent, c_fraction) * if c < 0.0 { -1 } else { 1 };
        for (x, y) in a.iter().zip(b) {
            sum += cut(x.significand * y.significand, x.exponent + y.exponent, fraction);
        }
        let exact = sum as f64 * 2f64.powi(quantum);
        match t.o {
            None => half::f16::from_f64(exact).to_f32(),
            Some(_) if sum == 0 => 0.0,
            Some(o) => {
                let top = 63 - sum.unsigned_abs().leading_zeros() as i32;
                let drop = (top - o).max(0);
                let kept = (sum.unsigned_abs() >> drop << drop) as f64;
                (kept * 2f64.powi(quantum) * if sum < 0 { -1.0 } else { 1.0 }) as f32
            }
        }
    }

    /// Every element by `sum(a, b)` of its rows, then `end(sum, i, j)`.
    pub fn product(&self, sum: impl Fn(&[Number], &[Number]) -> f32, end: impl Fn(f32, usize, usize) -> f32) -> Vec<f32> {
        let (a, b) = (self.numbers(&self.a), self.numbers(&self.b));
        let k = self.k;
        let mut out = Vec::with_capacity(self.m * self.n);
        for i in 0..self.m {
            for j in 0..self.n {
                out.push(end(sum(&a[i * k..(i + 1) * k], &b[j * k..(j + 1) * k]), i, j));
            }
        }
        out
    }

    /// Scales of a, then b; the bias after them.
    pub fn scaled(&self, sum: f32, i: usize, j: usize) -> f32 {
        let y = if self.e4m3 { sum * self.sa[i] * self.sb[j] } else { sum };
        self.bias.as_ref().map_or(y, |bias| y + bias[j])
    }

    /// The bundle of a result in f32, f16 or bf16.
    pub fn bundle(&self, out: &[f32], dtype: Dtype, device: &str) -> Writer {
        let mut w = Writer::new("gemm");
        for (x, rows, codes, scales) in [("a", self.m, &self.a, &self.sa), ("b", self.n, &self.b, &self.sb)] {
            if self.e4m3 {
                w.raw(&format!("{x}.codes"), Dtype::F8_E4M3, &[rows, self.k], codes.iter().map(|c| *c as u8).collect());
                w.f32s(&format!("{x}.scale_inv"), &[rows], scales).meta(&format!("{x}.granularity"), "row");
            } else {
                w.raw(x, Dtype::F16, &[rows, self.k], codes.iter().flat_map(|c| c.to_le_bytes()).collect());
            }
        }
        if let Some(bias) = &self.bias {
            w.f32s("bias", &[self.n], bias);
        }
        let bytes = match dtype {
            Dtype::BF16 => out.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
            Dtype::F16 => out.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
            _ => out.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        w.raw("out", dtype, &[self.m, self.n], bytes);
        if !device.is_empty() {
            w.meta("device", device);
        }
        w
    }
}

pub fn read(w: &Writer) -> Bundle {
    Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap()
}
