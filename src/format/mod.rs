//! What a code means: the number formats, their decode and encode.
//!
//! `Format::decode` and `Format::encode` are the slow, obvious definition; the bulk paths beside them must equal them bit
//! for bit. Source of the parameters: the OCP FP8, OCP MX and IEEE 754 formats as tabulated in the crate's README of data.

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
    F16,
    Bf16,
    Tf32,
    F32,
}

/// How a value between two neighbours is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to the even code.
    NearestEven,
    /// Toward zero.
    TowardZero,
    /// Toward +∞.
    Up,
    /// Up in magnitude with probability (distance from the lower neighbour)/(gap), decided by these 32 random bits:
    /// up iff `bits < fraction · 2³²`.
    Stochastic(u32),
}

/// What becomes of a value that rounds beyond the largest finite one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// ±max finite, for Inf too; NaN stays NaN where the format has one.
    Saturate,
    /// The format's own: Inf where it has one, else NaN, else saturation.
    Native,
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
    pub signed: bool,
    pub integer: bool,
    pub special: Special,
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
    FormatSpec { format, name, bits, mantissa, bias, signed: true, integer: false, special, help }
}
const fn integer(format: Format, name: &'static str, bits: u32, signed: bool, help: &'static str) -> FormatSpec {
    FormatSpec { format, name, bits, mantissa: 0, bias: 0, signed, integer: true, special: Special::None, help }
}

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
        help: "OCP MX scale: a power of two 2^-127 … 2^127, NaN; no zero, no sign",
    },
    float(Format::E2m1, "e2m1", 4, 1, 1, Special::None, "OCP FP4: 0, .5, 1, 1.5, 2, 3, 4, 6"),
    float(Format::E2m3, "e2m3", 6, 3, 1, Special::None, "OCP FP6 E2M3: max 7.5"),
    float(Format::E3m2, "e3m2", 6, 2, 3, Special::None, "OCP FP6 E3M2: max 28"),
    integer(Format::Int8, "int8", 8, true, "two's complement −128 … 127"),
    integer(Format::Int4, "int4", 4, true, "two's complement −8 … 7"),
    integer(Format::Uint4, "uint4", 4, false, "0 … 15"),
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
    /// The smallest value: −max for floats, −2^(bits−1) or 0 for integers, 2^-127 for e8m0.
    pub fn min_finite(self) -> f64 {
        let s = self.spec();
        match (s.integer, s.signed) {
            (true, true) => -exp2i(s.bits as i32 - 1),
            (true, false) => 0.0,
            (false, true) => -self.max_finite(),
            (false, false) => self.decode(0),
        }
    }
    /// The distance between neighbouring values of magnitude `x` (the larger gap below a power of two's own binade is not
    /// considered: the binade of `x` counts); the subnormal gap below the smallest normal; 1 for integers.
    pub fn ulp(self, x: f64) -> f64 {
        if self.is_integer() {
            return 1.0;
        }
        let e = exponent(x.abs().min(self.max_finite())).max(self.min_exponent());
        exp2i(e - self.spec().mantissa as i32)
    }
    fn sign_bit(self) -> u32 {
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
    /// The value of a code; bits above the format's width are ignored. Exact.
    pub fn decode(self, code: u32) -> f64 {
        let s = self.spec();
        let code = if s.bits == 32 { code } else { code & ((1 << s.bits) - 1) };
        if s.integer {
            let wrap = if s.signed && code & self.sign_bit() != 0 { exp2i(s.bits as i32) } else { 0.0 };
            return f64::from(code) - wrap;
        }
        if self == Format::E8m0 {
            return if code == 255 { f64::NAN } else { exp2i(code as i32 - 127) };
        }
        let (sign, magnitude) = (code & self.sign_bit(), code & !self.sign_bit());
        if s.special == Special::NegativeZeroNan && code == self.sign_bit() {
            return f64::NAN;
        }
        if magnitude > self.max_code() {
            return match self.inf_code() {
                Some(inf) if inf == magnitude => {
                    if sign != 0 {
                        f64::NEG_INFINITY
                    } else {
                        f64::INFINITY
                    }
                }
                _ => f64::NAN,
            };
        }
        let (exponent, fraction) = (magnitude >> s.mantissa, magnitude & ((1 << s.mantissa) - 1));
        let (significand, e) = if exponent == 0 { (fraction, 1) } else { (fraction | 1 << s.mantissa, exponent as i32) };
        let value = f64::from(significand) * exp2i(e - s.bias - s.mantissa as i32);
        if sign != 0 { -value } else { value }
    }
    /// The code of `x`, rounded once. NaN gives the canonical NaN code, or +max where the format has none (0 for integers).
    /// e8m0 ignores the sign and gives 2^-127 for anything smaller. Integers saturate under both overflow rules.
    pub fn encode(self, x: f64, rounding: Rounding, overflow: Overflow) -> u32 {
        let s = self.spec();
        if x.is_nan() {
            return if s.integer { 0 } else { self.nan_code().unwrap_or(self.max_code()) };
        }
        let negative = x.is_sign_negative() && self != Format::E8m0;
        let magnitude = x.abs();
        if s.integer {
            let n = round_integer(magnitude, negative, rounding);
            let n = if negative { -n } else { n }.clamp(self.min_finite(), self.max_finite());
            return (n as i64 as u32) & ((1u64 << s.bits) - 1) as u32;
        }
        let sign = if negative { self.sign_bit() } else { 0 };
        let code = if magnitude.is_infinite() {
            if overflow == Overflow::Saturate { self.max_code() } else { self.overflow_code() }
        } else {
            let e = exponent(magnitude).max(self.min_exponent());
            let n = round_integer(magnitude / exp2i(e - s.mantissa as i32), negative, rounding) as u64;
            // n counts steps of the binade's quantum; a carry runs into the exponent field by itself.
            let steps = n + ((e - self.min_exponent()) as u64) * (1 << s.mantissa);
            let code = if self == Format::E8m0 { steps.saturating_sub(1) } else { steps };
            let toward_zero = rounding == Rounding::TowardZero || (rounding == Rounding::Up && negative);
            match code > u64::from(self.max_code()) {
                true if overflow == Overflow::Saturate || toward_zero => self.max_code(),
                true => self.overflow_code(),
                false => code as u32,
            }
        };
        if s.special == Special::NegativeZeroNan && (code == 0 || Some(code) == self.nan_code()) { code } else { sign | code }
    }
    fn overflow_code(self) -> u32 {
        self.inf_code().or(self.nan_code()).unwrap_or(self.max_code())
    }
}

/// floor(log2 |x|) of a finite nonzero x; −1075 for zero.
fn exponent(x: f64) -> i32 {
    let bits = x.to_bits() & !(1 << 63);
    match (bits >> 52) as i32 {
        0 => -1011 - bits.leading_zeros() as i32,
        e => e - 1023,
    }
}

/// A magnitude rounded to an integer (exact: the fraction of an f64 is an f64).
fn round_integer(magnitude: f64, negative: bool, rounding: Rounding) -> f64 {
    let (low, fraction) = (magnitude.floor(), magnitude - magnitude.floor());
    let up = match rounding {
        Rounding::NearestEven => fraction > 0.5 || (fraction == 0.5 && low % 2.0 == 1.0),
        Rounding::TowardZero => false,
        Rounding::Up => fraction > 0.0 && !negative,
        Rounding::Stochastic(bits) => f64::from(bits) < fraction * exp2i(32),
    };
    if up { low + 1.0 } else { low }
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

    #[test]
    fn maxima_and_ties_of_the_standard() {
        use {Overflow::*, Rounding::*};
        for (f, max, code) in [
            (Format::E4m3, 448.0, 0x7e),
            (Format::E5m2, 57344.0, 0x7b),
            (Format::E4m3Fnuz, 240.0, 0x7f),
            (Format::E5m2Fnuz, 57344.0, 0x7f),
            (Format::E2m1, 6.0, 7),
            (Format::E2m3, 7.5, 0x1f),
            (Format::E3m2, 28.0, 0x1f),
            (Format::E8m0, exp2i(127), 0xfe),
            (Format::Int4, 7.0, 7),
            (Format::Uint4, 15.0, 15),
            (Format::F16, 65504.0, 0x7bff),
        ] {
            assert_eq!((f.max_finite(), f.max_code()), (max, code), "{f}");
        }
        assert_eq!(Format::E4m3.encode(464.0, NearestEven, Native), 0x7e);
        assert_eq!(Format::E4m3.encode(464.0000001, NearestEven, Native), 0x7f);
        assert_eq!(Format::E5m2.encode(61440.0, NearestEven, Native), 0x7c);
        assert_eq!(Format::E4m3Fnuz.encode(-1e-9, NearestEven, Native), 0);
        assert_eq!(Format::Int4.encode(7.5, NearestEven, Saturate), 7);
        assert_eq!(Format::Int4.encode(-8.5, NearestEven, Saturate), 8);
    }

    #[test]
    fn every_finite_code_of_up_to_16_bits_survives_a_round_trip() {
        for s in FORMATS.iter().filter(|s| s.bits <= 16) {
            for code in 0..1u32 << s.bits {
                let x = s.format.decode(code);
                if x.is_finite() {
                    for rounding in [Rounding::NearestEven, Rounding::TowardZero, Rounding::Up, Rounding::Stochastic(7)] {
                        assert_eq!(s.format.encode(x, rounding, Overflow::Native), code, "{} {code:#x} {rounding:?}", s.name);
                    }
                }
            }
        }
    }
}
