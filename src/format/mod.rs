//! What a code means: the number formats, their decode and encode.
//!
//! [`FORMATS`] is the table; [`definition`] the slow, obvious decode and encode; [`fast`] the bulk paths, which equal them bit
//! for bit; [`pack`] how two 4-bit codes share a byte. Sources: OCP 8-bit Floating Point Specification 1.0 (e4m3, e5m2), OCP
//! Microscaling Formats 1.0 (e8m0, e2m1, e2m3, e3m2), IEEE 754-2019 (f16, f32), arXiv 2206.02915 (fnuz), bitsandbytes 0.50.2 (nf4).
//! Codes are checked against tables made elsewhere, in `data/golden`.

pub mod bench;
pub(crate) mod definition;
pub mod fast;
pub(crate) mod grid;
pub(crate) mod pack;
pub(crate) mod simd;

pub use definition::{Overflow, Rounding};

/// A number format. `name()` spells it as sweeps, bundles and reports do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    E4m3,
    E5m2,
    E4m3Fnuz,
    E5m2Fnuz,
    E8m0,
    E2m1,
    E2m3,
    E3m2,
    Int8,
    Int4,
    Uint4,
    Uint6,
    Nf4,
    F16,
    Bf16,
    Tf32,
    F32,
}

/// What a format does with the codes at the top of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Top exponent: mantissa 0 is ±Inf, the rest NaN (IEEE 754).
    Ieee,
    /// All ones is NaN, no Inf (the OCP `fn` formats and e8m0).
    NanOnly,
    /// Only the code of −0 is NaN; no Inf, no −0 (the `fnuz` formats).
    NegativeZeroNan,
    /// Every code is finite.
    None,
}

/// The parameters of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatSpec {
    pub format: Format,
    pub name: &'static str,
    /// Bits of a code, sign included.
    pub bits: u32,
    /// Explicit mantissa (fraction) bits; 0 for integers.
    pub mantissa: u32,
    /// Exponent bias; 0 for integers.
    pub bias: i32,
    /// Whether codes have a sign bit, or are two's complement.
    pub signed: bool,
    pub integer: bool,
    pub special: Special,
    /// The values of all codes, ascending, where they follow from nothing else; else empty.
    pub table: &'static [f32],
    pub help: &'static str,
}

const fn float(
    format: Format,
    name: &'static str,
    bits: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
    help: &'static str,
) -> FormatSpec {
    FormatSpec { format, name, bits, mantissa, bias, signed: true, integer: false, special, table: &[], help }
}
const fn integer(format: Format, name: &'static str, bits: u32, signed: bool, help: &'static str) -> FormatSpec {
    FormatSpec { format, name, bits, mantissa: 0, bias: 0, signed, integer: true, special: Special::None, table: &[], help }
}
const fn table(format: Format, name: &'static str, table: &'static [f32], help: &'static str) -> FormatSpec {
    FormatSpec { integer: false, table, ..integer(format, name, table.len().ilog2(), false, help) }
}

/// Quantiles of the normal distribution, 0 and ±1 among them: `get_4bit_type("nf4")` of bitsandbytes/functional.py.
#[rustfmt::skip]
const NF4: &[f32] = &[
    -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
    0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
];

/// Every format, in the order of [`Format`].
pub const FORMATS: &[FormatSpec] = &[
    float(Format::E4m3, "e4m3", 8, 3, 7, Special::NanOnly, "OCP FP8 E4M3 (e4m3fn): max 448, NaN, no Inf"),
    float(Format::E5m2, "e5m2", 8, 2, 15, Special::Ieee, "OCP FP8 E5M2: max 57344, Inf and NaN"),
    float(Format::E4m3Fnuz, "e4m3fnuz", 8, 3, 8, Special::NegativeZeroNan, "E4M3 FNUZ (AMD MI300): max 240, one NaN, no −0"),
    float(Format::E5m2Fnuz, "e5m2fnuz", 8, 2, 16, Special::NegativeZeroNan, "E5M2 FNUZ (AMD MI300): max 57344, one NaN, no −0"),
    FormatSpec {
        format: Format::E8m0,
        name: "e8m0",
        bits: 8,
        mantissa: 0,
        bias: 127,
        signed: false,
        integer: false,
        special: Special::NanOnly,
        table: &[],
        help: "OCP MX scale: a power of two 2^-127 … 2^127, NaN; no zero, no sign",
    },
    float(Format::E2m1, "e2m1", 4, 1, 1, Special::None, "OCP FP4: 0, .5, 1, 1.5, 2, 3, 4, 6"),
    float(Format::E2m3, "e2m3", 6, 3, 1, Special::None, "OCP FP6 E2M3: max 7.5"),
    float(Format::E3m2, "e3m2", 6, 2, 3, Special::None, "OCP FP6 E3M2: max 28"),
    integer(Format::Int8, "int8", 8, true, "two's complement −128 … 127"),
    integer(Format::Int4, "int4", 4, true, "two's complement −8 … 7"),
    integer(Format::Uint4, "uint4", 4, false, "0 … 15"),
    integer(Format::Uint6, "uint6", 6, false, "0 … 63: scales of GGUF's K-quants"),
    table(Format::Nf4, "nf4", NF4, "NormalFloat: 16 quantiles of the normal distribution, −1 … 1"),
    float(Format::F16, "f16", 16, 10, 15, Special::Ieee, "IEEE 754 binary16"),
    float(Format::Bf16, "bf16", 16, 7, 127, Special::Ieee, "bfloat16"),
    float(Format::Tf32, "tf32", 19, 10, 127, Special::Ieee, "TensorFloat-32: the top 19 bits of a binary32 word"),
    float(Format::F32, "f32", 32, 23, 127, Special::Ieee, "IEEE 754 binary32"),
];

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Format {
    type Err = crate::Error;
    fn from_str(name: &str) -> crate::Result<Self> {
        let known = || FORMATS.iter().map(|f| f.name);
        FORMATS.iter().find(|f| f.name == name).map(|f| f.format).ok_or_else(|| crate::Error::unknown("format", name, known()))
    }
}

/// 2^e for every e an f64 can hold, subnormals included.
pub(crate) fn exp2i(e: i32) -> f64 {
    if e >= -1022 { f64::from_bits(((e + 1023) as u64) << 52) } else { f64::from_bits(1u64 << (e + 1074)) }
}

impl Format {
    pub fn spec(self) -> &'static FormatSpec {
        &FORMATS[self as usize]
    }
    pub fn name(self) -> &'static str {
        self.spec().name
    }
    pub fn bits(self) -> u32 {
        self.spec().bits
    }
    pub fn is_integer(self) -> bool {
        self.spec().integer
    }
    /// Whether a code is an exponent and a mantissa: neither an integer nor a place in a table.
    pub fn is_float(self) -> bool {
        !self.spec().integer && self.spec().table.is_empty()
    }
    /// e4m3, e5m2 and their fnuz forms.
    pub fn is_fp8(self) -> bool {
        matches!(self, Format::E4m3 | Format::E5m2 | Format::E4m3Fnuz | Format::E5m2Fnuz)
    }
    /// f16, bf16, f32: what [`crate::Tensor`] holds.
    pub fn is_high(self) -> bool {
        matches!(self, Format::F16 | Format::Bf16 | Format::F32)
    }
    /// Exponent of the smallest normal number.
    pub fn min_exponent(self) -> i32 {
        if self == Format::E8m0 { -127 } else { 1 - self.spec().bias }
    }
    /// The code of the largest finite value.
    pub fn max_code(self) -> u32 {
        let s = self.spec();
        match (s.integer, s.special) {
            _ if !s.table.is_empty() => s.table.len() as u32 - 1,
            (true, _) => (1 << (s.bits - s.signed as u32)) - 1,
            (false, Special::Ieee) => (((1 << (s.bits - 1 - s.mantissa)) - 1) << s.mantissa) - 1,
            (false, Special::NanOnly) => (1u32 << (s.bits - s.signed as u32)) - 2,
            (false, _) => (1u32 << (s.bits - 1)) - 1,
        }
    }
    /// The largest finite value.
    pub fn max_finite(self) -> f64 {
        self.decode(self.max_code())
    }
    /// The smallest value: −max for floats, −2^(bits−1) or 0 for integers, 2^-127 for e8m0, the first of a table.
    pub fn min_finite(self) -> f64 {
        let s = self.spec();
        match (s.integer, s.signed) {
            _ if !s.table.is_empty() => f64::from(s.table[0]),
            (true, true) => -exp2i(s.bits as i32 - 1),
            (true, false) => 0.0,
            (false, true) => -self.max_finite(),
            (false, false) => self.decode(0),
        }
    }
    /// The sign's bit, 0 where there is none.
    pub fn sign_bit(self) -> u32 {
        if self.spec().signed { 1 << (self.bits() - 1) } else { 0 }
    }
    /// The canonical NaN code, where there is one.
    pub fn nan_code(self) -> Option<u32> {
        let s = self.spec();
        match s.special {
            Special::Ieee if s.mantissa == 2 => Some(0x7f),
            Special::Ieee => Some((1 << (s.bits - 1)) - (1 << (s.mantissa - 1))),
            Special::NanOnly => Some(self.max_code() + 1),
            Special::NegativeZeroNan => Some(self.sign_bit()),
            Special::None => None,
        }
    }
    /// The code of +Inf, where there is one.
    pub fn inf_code(self) -> Option<u32> {
        (self.spec().special == Special::Ieee).then(|| self.max_code() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_enum() {
        for (i, s) in FORMATS.iter().enumerate() {
            assert_eq!(s.format as usize, i, "{}", s.name);
        }
    }

    /// From the smallest subnormal up, each twice the one before.
    #[test]
    fn powers_of_two_are_all_there() {
        assert_eq!((exp2i(-1074).to_bits(), exp2i(0)), (1, 1.0));
        assert!((-1074..1023).all(|e| 2.0 * exp2i(e) == exp2i(e + 1)));
    }
}
