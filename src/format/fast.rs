//! Bulk encode and decode, equal to [`super::definition`] bit for bit (tested on every code, at every boundary, and over all 2³²
//! f32 patterns for e4m3 and e5m2).

use super::simd;
use super::{Format, Overflow, Rounding, exp2i};
use crate::{Error, Result};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Encodes f32 to one format of at most 8 bits, to nearest even, by integer arithmetic without branches.
#[derive(Clone, Copy, Debug)]
pub struct Encoder(pub(super) Kind);

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Float(FloatLane),
    Integer(IntegerLane),
    Exponent(ExponentLane),
    Table(TableLane),
}

/// Constants of a small float format beside an f32 word. With m mantissa bits and bias b, a code's fields, shifted left by
/// `shift` = 23 − m, are those of an f32 whose exponent field is larger by 127 − b.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatLane {
    /// Bits of the f32 that a larger magnitude is brought down to: max finite, or (native overflow) the value that the next
    /// code would have, which is where Inf or NaN stands.
    cap: u32,
    shift: u32,
    /// Just below half a unit of the code, less the difference of the biases.
    bias: u32,
    /// Bits of the smallest normal value.
    min_normal: u32,
    /// A power of two whose unit in the last place is the subnormal gap: adding it rounds to that gap.
    magic: f32,
    /// From the f32's sign bit to the code's.
    sign_shift: u32,
    /// The sign that a zero keeps: 0 where there is no −0.
    zero_sign: u32,
    nan: u8,
}

/// Integers: clamp, then round by adding 1.5·2²³.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntegerLane {
    low: f32,
    high: f32,
    mask: u32,
}

/// e8m0: bits of the f32 at which a larger magnitude is capped.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExponentLane {
    cap: u32,
}

/// A table: by the definition.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableLane(Format);

/// One f32 to one code.
pub(super) trait Lane: Copy {
    fn code(self, x: f32) -> u8;
}

const MAGNITUDE: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;

impl Lane for FloatLane {
    #[inline(always)]
    fn code(self, x: f32) -> u8 {
        let bits = x.to_bits();
        let magnitude = bits & MAGNITUDE;
        let a = magnitude.min(self.cap);
        let odd = (a >> self.shift) & 1;
        let normal = a.wrapping_add(self.bias).wrapping_add(odd) >> self.shift;
        let subnormal = (f32::from_bits(a) + self.magic).to_bits().wrapping_sub(self.magic.to_bits());
        let code = if a < self.min_normal { subnormal } else { normal };
        let sign = ((bits & !MAGNITUDE) >> self.sign_shift) & if code == 0 { self.zero_sign } else { u32::MAX };
        if magnitude > INFINITY { self.nan } else { (code | sign) as u8 }
    }
}

impl Lane for IntegerLane {
    #[inline(always)]
    fn code(self, x: f32) -> u8 {
        // max and min drop a NaN for the bound, so it is told apart.
        let clamped = x.max(self.low).min(self.high);
        let rounded = (clamped + 12_582_912.0).to_bits() & self.mask;
        if x.is_nan() { 0 } else { rounded as u8 }
    }
}

impl Lane for ExponentLane {
    #[inline(always)]
    fn code(self, x: f32) -> u8 {
        let magnitude = x.to_bits() & MAGNITUDE;
        let a = magnitude.min(self.cap);
        // Half a binade up, ties up; below 2^-126 the f32 is subnormal and the halfway point is 1.5·2^-127.
        let code = if a < 0x0080_0000 { u32::from(a >= 0x0060_0000) } else { (a + 0x0040_0000) >> 23 };
        if magnitude > INFINITY { 255 } else { code as u8 }
    }
}

impl Lane for TableLane {
    fn code(self, x: f32) -> u8 {
        self.0.encode(f64::from(x), Rounding::NearestEven, Overflow::Saturate) as u8
    }
}

impl Encoder {
    /// Errors: a format of more than 8 bits.
    pub fn new(format: Format, overflow: Overflow) -> Result<Self> {
        let s = format.spec();
        if s.bits > 8 {
            return Err(Error::value("format of the bulk encoder", format, "a format of at most 8 bits"));
        }
        if !s.table.is_empty() {
            return Ok(Encoder(Kind::Table(TableLane(format))));
        }
        if s.integer {
            let (low, high) = (format.min_finite() as f32, format.max_finite() as f32);
            return Ok(Encoder(Kind::Integer(IntegerLane { low, high, mask: (1 << s.bits) - 1 })));
        }
        // The code of a capped magnitude: one past max is where Inf or NaN stands.
        let native = overflow == Overflow::Native && (format.inf_code().is_some() || format.nan_code().is_some());
        let top = format.max_code() + u32::from(native);
        if format == Format::E8m0 {
            return Ok(Encoder(Kind::Exponent(ExponentLane { cap: top << 23 })));
        }
        let shift = 23 - s.mantissa;
        let rebias = ((127 - s.bias) as u32) << 23;
        Ok(Encoder(Kind::Float(FloatLane {
            cap: (top << shift) + rebias,
            shift,
            bias: ((1u32 << (shift - 1)) - 1).wrapping_sub(rebias),
            min_normal: (exp2i(format.min_exponent()) as f32).to_bits(),
            magic: exp2i(format.min_exponent() - s.mantissa as i32 + 23) as f32,
            sign_shift: 32 - s.bits,
            zero_sign: if format.nan_code() == Some(format.sign_bit()) { 0 } else { u32::MAX },
            nan: format.nan_code().unwrap_or(format.max_code()) as u8,
        })))
    }
    /// The code of one value: `format.encode(x, NearestEven, overflow)`.
    #[inline]
    pub fn encode(&self, x: f32) -> u8 {
        match self.0 {
            Kind::Float(lane) => lane.code(x),
            Kind::Integer(lane) => lane.code(x),
            Kind::Exponent(lane) => lane.code(x),
            Kind::Table(lane) => lane.code(x),
        }
    }
    /// `codes[i]` = encode(RN32(`src[i]` · `scale`)); a scale of 1 changes nothing. Errors: lengths that differ.
    pub fn encode_slice(&self, src: &[f32], scale: f32, codes: &mut [u8]) -> Result<()> {
        same_length("codes", src.len(), codes.len())?;
        simd::encode(self.0, src, scale, codes);
        Ok(())
    }
}

fn same_length(what: &str, want: usize, found: usize) -> Result<()> {
    if want != found {
        return Err(Error::shape(what, format!("{found} elements"), format!("{want}, as many as the source")));
    }
    Ok(())
}

/// Decodes one format of at most 8 bits by a table of its 256 codes; bits above the format's width are ignored.
#[derive(Clone, Debug)]
pub struct Decoder {
    single: [f32; 256],
    double: [f64; 256],
}

impl Decoder {
    /// Errors: a format of more than 8 bits.
    pub fn new(format: Format) -> Result<Self> {
        if format.bits() > 8 {
            return Err(Error::value("format of the bulk decoder", format, "a format of at most 8 bits"));
        }
        let double = std::array::from_fn(|code| format.decode(code as u32));
        // Every such value is an f32: at most 8 significant bits, exponents −127 … 127, or one of a table.
        Ok(Self { single: double.map(|x| x as f32), double })
    }
    #[inline]
    pub fn decode(&self, code: u8) -> f32 {
        self.single[usize::from(code)]
    }
    #[inline]
    pub fn decode_f64(&self, code: u8) -> f64 {
        self.double[usize::from(code)]
    }
    /// Exact. Errors: lengths that differ.
    pub fn decode_slice(&self, codes: &[u8], values: &mut [f32]) -> Result<()> {
        same_length("values", codes.len(), values.len())?;
        values.iter_mut().zip(codes).for_each(|(x, c)| *x = self.single[usize::from(*c)]);
        Ok(())
    }
}

/// f16 words to f32, exact; NaN stays NaN. Errors: lengths that differ.
pub fn decode_f16(words: &[f16], values: &mut [f32]) -> Result<()> {
    same_length("values", words.len(), values.len())?;
    words.convert_to_f32_slice(values);
    Ok(())
}

/// bf16 words to f32, exact; NaN stays NaN. Errors: lengths that differ.
pub fn decode_bf16(words: &[bf16], values: &mut [f32]) -> Result<()> {
    same_length("values", words.len(), values.len())?;
    values.iter_mut().zip(words).for_each(|(x, w)| *x = f32::from_bits(u32::from(w.to_bits()) << 16));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_sixteen_bits_are_their_values() {
        let words: Vec<u16> = (0..=u16::MAX).collect();
        let (mut f16s, mut bf16s) = (vec![7.0f32; words.len()], vec![7.0f32; words.len()]);
        decode_f16(&words.iter().map(|w| f16::from_bits(*w)).collect::<Vec<_>>(), &mut f16s).unwrap();
        decode_bf16(&words.iter().map(|w| bf16::from_bits(*w)).collect::<Vec<_>>(), &mut bf16s).unwrap();
        for (found, format) in [(&f16s, Format::F16), (&bf16s, Format::Bf16)] {
            let same = |(w, x): (&u16, &f32)| {
                let value = format.decode(u32::from(*w)) as f32;
                value.to_bits() == x.to_bits() || (value.is_nan() && x.is_nan())
            };
            assert!(words.iter().zip(found).all(same), "{format}");
        }
        assert!(decode_f16(&[f16::ZERO], &mut []).is_err() && decode_bf16(&[bf16::ZERO], &mut []).is_err());
    }
}
