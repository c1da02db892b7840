//! The steps between factors and a stored element: which chains, which promotion, where scales and bias come in, what is rounded.

use super::cuts::Join;
use crate::job::{Job, OutSpec};
use crate::model::Inner;
use crate::model::mma::{Dest, Step};
use crate::tensor::round_to;
use crate::{Format, Overflow, Rounding};

/// How the products of one run of K are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chain {
    Exact,
    Sequential,
    Pairwise,
    /// f32 sums of factors that are scaled first, one product after the other, blocks or not. The product is rounded before it is added, or not.
    Dequantized {
        fused: bool,
    },
    /// The steps of a device model that take e8m0 scales with their products ([`crate::model::table::takes_scales`]).
    Scaled(&'static str),
    Int32,
    /// A device model.
    Unit(&'static str),
    /// A device model that reads its factors, which are narrower, as this format: FP8 widened to f16.
    Widened(&'static str, Format),
    /// Block steps of other parameters: `f` bits below the largest exponent, `fraction` bits of the f32 result.
    Narrowed {
        w: usize,
        f: u32,
        fraction: u32,
    },
    /// One product after the other, the sum rounded to 16 bits (nearest even), the product before that where it is not fused.
    Sixteen {
        format: Format,
        fused: bool,
    },
}

impl Chain {
    /// Of a model. `None`: an assumption.
    pub fn of(inner: Inner) -> Option<Self> {
        Some(match inner {
            Inner::Exact => Chain::Exact,
            Inner::F32Sequential => Chain::Sequential,
            Inner::F32Pairwise => Chain::Pairwise,
            Inner::Int32 => Chain::Int32,
            Inner::Mma(m) => Chain::Unit(m.name),
            _ => return None,
        })
    }

    /// The model, where it is one.
    pub fn inner(self) -> Option<Inner> {
        Some(match self {
            Chain::Exact => Inner::Exact,
            Chain::Sequential => Inner::F32Sequential,
            Chain::Pairwise => Inner::F32Pairwise,
            Chain::Int32 => Inner::Int32,
            Chain::Unit(name) | Chain::Widened(name, _) => Inner::Mma(crate::model::MmaModel { name }),
            Chain::Dequantized { .. } | Chain::Scaled(_) | Chain::Narrowed { .. } | Chain::Sixteen { .. } => return None,
        })
    }

    /// Whether factors meet their scales before they are multiplied.
    pub fn scales_first(self) -> bool {
        matches!(self, Chain::Dequantized { .. } | Chain::Scaled(_))
    }

    pub fn step(self) -> Option<Step> {
        match self {
            // It is no unit that there is: its quantum ends where Hopper's does.
            Chain::Narrowed { w, f, fraction } => Some(Step { w, f, dest: Dest::F32 { fraction }, floor: -133 }),
            _ => None,
        }
    }

    pub fn words(self) -> String {
        match self {
            Chain::Dequantized { fused: true } => "f32 sums of dequantized factors".into(),
            Chain::Dequantized { fused: false } => "f32 sums of rounded products of dequantized factors".into(),
            Chain::Scaled(name) => format!("{name} with the scales in its steps"),
            Chain::Widened(name, format) => format!("{name} of factors widened to {format}"),
            Chain::Narrowed { w, f, fraction } => {
                format!("block steps of {w} products with {f} bits below the largest exponent and {fraction} fraction bits")
            }
            Chain::Sixteen { format, fused: true } => format!("{format} accumulator, fused"),
            Chain::Sixteen { format, fused: false } => format!("{format} accumulator, products rounded to {format}"),
            _ => self.inner().map_or(String::new(), |i| i.to_string()),
        }
    }
}

/// Every so many elements of K the chain is added to a main accumulator and starts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promote {
    pub every: usize,
    /// What the main accumulator is kept in: f32, or by mistake 16 bits.
    pub main: Format,
    pub chunk: Chunk,
}

/// How a chunk meets the main accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chunk {
    /// Summed from zero and added.
    Added,
    /// Summed from zero, rounded to the accumulator's format and added.
    Rounded,
    /// Its sum goes on from the accumulator, which is rounded after it.
    Carried,
}

impl Promote {
    pub fn f32(every: usize) -> Self {
        Self { every, main: Format::F32, chunk: Chunk::Added }
    }
    pub fn words(self) -> String {
        match self.main {
            Format::F32 => format!("@{}", self.every),
            main if self.chunk == Chunk::Carried => format!(", the sum kept in {main} every {} of K", self.every),
            main => format!(" added every {} of K to an accumulator of {main}", self.every),
        }
    }
}

/// The order in which the scale_inv of a and b meet a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalesMeet {
    AFirst,
    BFirst,
    /// Multiplied with each other first.
    Both,
    /// b's with the sum of its block, a's with the sum of all blocks.
    Late,
}

/// How the scaled sum of a block is added to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    pub scales: ScalesMeet,
    /// One rounding for the product and the sum.
    pub fused: bool,
}

impl Blocks {
    pub const ALL: [Blocks; 8] = [
        Blocks { scales: ScalesMeet::AFirst, fused: true },
        Blocks { scales: ScalesMeet::Both, fused: true },
        Blocks { scales: ScalesMeet::BFirst, fused: true },
        Blocks { scales: ScalesMeet::Late, fused: true },
        Blocks { scales: ScalesMeet::AFirst, fused: false },
        Blocks { scales: ScalesMeet::Both, fused: false },
        Blocks { scales: ScalesMeet::BFirst, fused: false },
        Blocks { scales: ScalesMeet::Late, fused: false },
    ];
    /// y after the sum of one more block.
    #[inline]
    pub fn add(self, y: f32, sum: f32, a: f32, b: f32) -> f32 {
        let (factor, times) = match self.scales {
            ScalesMeet::AFirst => (sum * a, b),
            ScalesMeet::BFirst => (sum * b, a),
            ScalesMeet::Both => (sum, a * b),
            ScalesMeet::Late => (sum, b),
        };
        if self.fused { factor.mul_add(times, y) } else { y + factor * times }
    }
}

/// Where the bias comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    None,
    /// Added to the scaled sum.
    Added,
    /// Added in the rounding of the last multiplication.
    Fused,
    /// Added to the first part.
    First,
}

/// Roundings to 16 bits that do not belong there, and a result that is cut off. All absent in a right kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Of every part before it meets its scales; after that, where each has met them; of every sum of parts.
    pub part: Option<Format>,
    pub scaled_part: Option<Format>,
    pub joined: Option<Format>,
    /// Of the sum before its scales; of the scaled sum before the bias; of the value before it is stored.
    pub sum: Option<Format>,
    pub scaled: Option<Format>,
    pub value: Option<Format>,
    /// The result is stored toward zero.
    pub truncated: bool,
}

/// From the sums of the parts to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub scales: ScalesMeet,
    /// Blocks along K, each with its scales.
    pub blocks: Option<Blocks>,
    /// Scales meet every part, not their sum.
    pub each: bool,
    pub bias: Bias,
    /// 0.0 is added last, where there is no bias.
    pub plus_zero: bool,
    pub extra: Extra,
}

/// What an element's sum meets.
#[derive(Clone, Copy, Debug)]
pub struct Meets {
    pub a: f32,
    pub b: f32,
    /// Whether there are scales outside of blocks.
    pub scaled: bool,
    /// Product of the global scales.
    pub global: Option<f32>,
    pub bias: f32,
}

impl Ending {
    /// The value before it is stored.
    #[inline]
    pub fn value(&self, parts: &[f32], join: &Join, m: &Meets) -> f32 {
        let x = &self.extra;
        let round = |f: Option<Format>, v: f32| f.map_or(v, |f| round_to(f, v));
        // (factor, times): their product is the scaled sum.
        let scale = |p: f32| match self.blocks.map_or(self.scales, |b| b.scales) {
            ScalesMeet::Late if self.blocks.is_some() => (p, m.a),
            _ if !m.scaled || self.blocks.is_some() => (p, 1.0),
            ScalesMeet::AFirst => (p * m.a, m.b),
            ScalesMeet::BFirst => (p * m.b, m.a),
            ScalesMeet::Both | ScalesMeet::Late => (p, m.a * m.b),
        };
        let product = |(p, s): (f32, f32)| p * s;
        let joined = |part: &dyn Fn(usize) -> f32| round(x.sum, join.sum(parts.len(), part, |s| round(x.joined, s)));
        let part = |p: usize| round(x.part, parts[p]);
        // With the bias in the first.
        let first = |p: usize, v: f32| if p == 0 { v + m.bias } else { v };
        let biased = self.bias == Bias::First;
        let (factor, times) = if self.each && parts.len() > 1 {
            let scaled = |p: usize| product(scale(part(p)));
            let rounded = |v: f32| round(x.scaled_part, v);
            (if biased { joined(&|p| rounded(first(p, scaled(p)))) } else { joined(&|p| rounded(scaled(p))) }, 1.0)
        } else if biased {
            scale(joined(&|p| first(p, part(p))))
        } else if parts.len() == 1 {
            scale(round(x.sum, part(0)))
        } else {
            scale(joined(&part))
        };
        let (factor, times) = m.global.map_or((factor, times), |g| (factor * times, g));
        let value = match self.bias {
            Bias::Fused => factor.mul_add(times, m.bias),
            Bias::Added => round(x.scaled, factor * times) + m.bias,
            Bias::None | Bias::First => factor * times + if self.plus_zero { 0.0 } else { -0.0 },
        };
        round(x.value, value)
    }

    pub fn words(&self) -> String {
        let mut words = String::new();
        let scales = self.blocks.map_or(self.scales, |b| b.scales);
        words += match scales {
            ScalesMeet::AFirst | ScalesMeet::Late => "",
            ScalesMeet::BFirst => ", b first",
            ScalesMeet::Both => ", scales first",
        };
        if self.blocks.is_some_and(|b| !b.fused) {
            words += ", blocks added without fma";
        }
        if self.each {
            words += ", every part scaled";
        }
        words += match self.bias {
            Bias::Fused => ", bias fused",
            Bias::First => ", bias in the first part",
            _ => "",
        };
        let x = &self.extra;
        let mut extra = |f: Option<Format>, what: &str| {
            if let Some(f) = f {
                words += &format!(", {what} rounded to {f}");
            }
        };
        extra(x.part, "parts");
        extra(x.scaled_part, "scaled parts");
        extra(x.joined, "sums of parts");
        extra(x.sum, "the sum");
        extra(x.scaled, "the scaled sum");
        extra(x.value, "the value");
        if x.truncated {
            words += ", the result truncated";
        }
        words
    }
}

/// How an element is stored, as bits that can be compared; a NaN is `u32::MAX`.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    pub format: Format,
    pub scale: Option<f32>,
}

impl Store {
    pub fn of(job: &Job) -> Option<Self> {
        match &job.out {
            OutSpec::High(format) => Some(Self { format: *format, scale: None }),
            OutSpec::Scaled { format, scale } => Some(Self { format: *format, scale: Some(scale[0].unwrap_or(1.0)) }),
            OutSpec::Recipe(_) => None,
        }
    }

    #[inline]
    pub fn bits(&self, v: f32, truncated: bool) -> u32 {
        let toward = if truncated { Rounding::TowardZero } else { Rounding::NearestEven };
        match self.scale {
            None if truncated && self.format != Format::F32 => {
                self.float(self.format.decode(self.format.encode(f64::from(v), toward, Overflow::Native)) as f32)
            }
            None => self.float(round_to(self.format, v)),
            Some(scale) => self.code(self.format.encode(f64::from(v * scale), toward, Overflow::Saturate)),
        }
    }

    pub fn float(&self, v: f32) -> u32 {
        if v.is_nan() { u32::MAX } else { v.to_bits() }
    }

    pub fn code(&self, code: u32) -> u32 {
        if self.format.decode(code).is_nan() { u32::MAX } else { code }
    }

    /// The value that bits stand for, as the f64 of a code or a number.
    pub fn value(&self, bits: u32) -> f64 {
        match self.scale {
            _ if bits == u32::MAX => f64::NAN,
            None => f64::from(f32::from_bits(bits)),
            Some(scale) => self.format.decode(bits) * f64::from(1.0 / scale),
        }
    }
}

#[cfg(test)]
impl Ending {
    /// Scales meet one after the other, nothing else.
    pub const PLAIN: Self = Self {
        scales: ScalesMeet::AFirst,
        blocks: None,
        each: false,
        bias: Bias::None,
        plus_zero: false,
        extra: Extra { part: None, scaled_part: None, joined: None, sum: None, scaled: None, value: None, truncated: false },
    };
}

#[cfg(test)]
mod tests {
    use super::super::cuts::Join;
    use super::*;

    /// (2·3)·5 + 7; the bias in the first part is scaled with it.
    #[test]
    fn a_sum_meets_its_scales_and_then_its_bias() {
        let meets = Meets { a: 3.0, b: 5.0, scaled: true, global: None, bias: 7.0 };
        for (bias, value) in [(Bias::Added, 37.0), (Bias::Fused, 37.0), (Bias::First, 135.0), (Bias::None, 30.0)] {
            for scales in [ScalesMeet::AFirst, ScalesMeet::BFirst, ScalesMeet::Both, ScalesMeet::Late] {
                let ending = Ending { bias, scales, ..Ending::PLAIN };
                assert_eq!(ending.value(&[2.0], &Join::Tree, &meets), value, "{bias:?}, {scales:?}");
            }
        }
    }

    #[test]
    fn the_words_of_an_ending_say_what_is_unusual() {
        let blocks = |fused: bool| Some(Blocks { scales: ScalesMeet::AFirst, fused });
        assert_eq!(Ending { blocks: blocks(true), ..Ending::PLAIN }.words(), "");
        assert_eq!(Ending { blocks: blocks(false), ..Ending::PLAIN }.words(), ", blocks added without fma");
    }

    /// How a sum in sixteen bits is made says whether its products are rounded first.
    #[test]
    fn sums_in_sixteen_bits_have_words_of_their_own() {
        let words = |fused: bool| Chain::Sixteen { format: Format::F16, fused }.words();
        assert_eq!([words(true), words(false)], ["f16 accumulator, fused", "f16 accumulator, products rounded to f16"]);
    }

    #[test]
    fn a_chain_is_the_accumulator_that_it_is_of() {
        for name in ["exact", "f32_sequential", "f32_pairwise", "int32"]
            .into_iter()
            .chain(crate::model::table::MODELS.iter().map(|m| m.name))
        {
            let inner = name.parse::<crate::model::Accumulator>().unwrap().inner;
            assert_eq!(Chain::of(inner).and_then(Chain::inner), Some(inner), "{name}");
        }
        for name in ["f32_any_order", "any_hopper_wgmma", "any_unit"] {
            assert_eq!(Chain::of(name.parse::<crate::model::Accumulator>().unwrap().inner), None, "{name}");
        }
        let none = [
            Chain::Dequantized { fused: true },
            Chain::Narrowed { w: 8, f: 13, fraction: 13 },
            Chain::Sixteen { format: Format::F16, fused: true },
        ];
        assert!(none.into_iter().all(|chain| chain.inner().is_none()));
    }

    /// NaN is one number, whatever its bits are.
    #[test]
    fn what_is_stored_is_read_back() {
        let plain = |format| Store { format, scale: None };
        for x in [1.0f32, -0.3, 448.0, 70_000.0, f32::INFINITY, 0.0] {
            for format in [Format::F32, Format::Bf16, Format::F16] {
                let store = plain(format);
                assert_eq!(store.value(store.bits(x, false)), f64::from(round_to(format, x)), "{format} {x}");
                let cut = format.decode(format.encode(f64::from(x), Rounding::TowardZero, Overflow::Native));
                assert_eq!(store.value(store.bits(x, true)), cut, "{format} {x}");
            }
            let store = Store { format: Format::E4m3, scale: Some(4.0) };
            let by =
                |rounding| Format::E4m3.decode(Format::E4m3.encode(f64::from(4.0 * x), rounding, Overflow::Saturate)) / 4.0;
            assert_eq!(store.value(store.bits(x, false)), by(Rounding::NearestEven), "{x}");
            assert_eq!(store.value(store.bits(x, true)), by(Rounding::TowardZero), "{x}");
        }
        for store in [
            plain(Format::F32),
            plain(Format::F16),
            Store { format: Format::E4m3, scale: Some(1.0) },
            Store { format: Format::E5m2, scale: Some(1.0) },
        ] {
            for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7fff_ffff)] {
                assert_eq!(store.bits(nan, false), u32::MAX);
            }
            assert!(store.value(u32::MAX).is_nan());
        }
    }

    #[test]
    fn the_words_of_a_main_accumulator_say_what_it_is_kept_in() {
        let of = |main: Format, chunk: Chunk| Promote { every: 128, main, chunk }.words();
        assert_eq!(Promote::f32(128).words(), "@128");
        for chunk in [Chunk::Added, Chunk::Rounded, Chunk::Carried] {
            assert_eq!(of(Format::F32, chunk), "@128");
        }
        assert_eq!(of(Format::Bf16, Chunk::Carried), ", the sum kept in bf16 every 128 of K");
        for chunk in [Chunk::Added, Chunk::Rounded] {
            assert_eq!(of(Format::Bf16, chunk), " added every 128 of K to an accumulator of bf16");
        }
    }
}
