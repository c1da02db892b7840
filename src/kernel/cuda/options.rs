//! The words of the kernels' options (`-D`): the numbers of `kernels/common/options.cuh`, one numbering for all kernels.

use crate::op::{Act, Op};
use crate::recipe::device::numbered;
use crate::{Error, Format, Result};

pub use crate::recipe::device::{Mapping, Numbered as Value, Rule, TokenRule};

/// `-DNAME=VALUE`.
pub fn define(name: &str, value: impl Value) -> String {
    format!("-D{name}={}", value.number())
}

numbered! {
    /// Types of elements and formats of codes: IN, OUT, SCALE, FORMAT, WEIGHT.
    Type { F16 = 0, Bf16 = 1, F32 = 2, E4m3 = 3, E5m2 = 4, E2m1 = 5, E2m3 = 6, E3m2 = 7, Int4 = 8, Uint4 = 9, Int8 = 10 }

    /// What an elementwise kernel computes: OP.
    Formula { Activation = 0, ActivationGradient = 1, Gated = 2, GatedGradient = 3, Layernorm = 4, Rmsnorm = 5 }

    /// Zero points of integer codes: ZERO.
    ZeroPoint { None = 0, Additive = 1, Integer8 = 2, Integer32 = 3 }

    /// Scales of both operands of an FP8 product: SCALES. A line is 1×128, a square 128×128.
    ScaleLayout { ByTensor = 0, ByRow = 1, LineSquare = 2, LineLine = 3 }

    /// Lengths of a norm's rows: RAGGED.
    Ragged { Full = 0, Eights = 1, Any = 2 }
}

impl Value for bool {
    fn number(&self) -> i64 {
        i64::from(*self)
    }
}
impl Value for i32 {
    fn number(&self) -> i64 {
        i64::from(*self)
    }
}
impl Value for usize {
    fn number(&self) -> i64 {
        *self as i64
    }
}
/// ACT.
impl Value for Act {
    fn number(&self) -> i64 {
        crate::op::ACTS.iter().position(|a| a.0 == *self).map_or(-1, |n| n as i64)
    }
}

/// Whether the kernels compute it: those of TransformerEngine.
pub fn has(act: Act) -> bool {
    match act {
        Act::Gelu | Act::Silu | Act::Relu | Act::Qgelu | Act::Srelu => true,
        Act::GeluErf | Act::SwigluOai(_) | Act::SwigluLimit(_) => false,
    }
}

impl Type {
    /// `None`: no kernel has it.
    pub fn of(format: Format) -> Option<Self> {
        Some(match format {
            Format::F16 => Type::F16,
            Format::Bf16 => Type::Bf16,
            Format::F32 => Type::F32,
            Format::E4m3 => Type::E4m3,
            Format::E5m2 => Type::E5m2,
            Format::E2m1 => Type::E2m1,
            Format::E2m3 => Type::E2m3,
            Format::E3m2 => Type::E3m2,
            Format::Int4 => Type::Int4,
            Format::Uint4 => Type::Uint4,
            Format::Int8 => Type::Int8,
            _ => return None,
        })
    }
    /// Where it is one of `known`. Errors, as `kernel`'s: `why`.
    pub fn one_of(known: &[Format], format: Format, kernel: &str, why: impl FnOnce() -> String) -> Result<Self> {
        let found = known.contains(&format).then(|| Self::of(format)).flatten();
        found.ok_or_else(|| Error::unsupported(kernel, why()))
    }
    /// f16, bf16 or f32.
    pub fn is_high(self) -> bool {
        self <= Type::F32
    }
    pub fn is_fp8(self) -> bool {
        matches!(self, Type::E4m3 | Type::E5m2)
    }
}

impl Formula {
    /// `None`: no elementwise kernel here has it.
    pub fn of(op: Op) -> Option<Self> {
        Some(match op {
            Op::Activation => Formula::Activation,
            Op::ActivationGrad | Op::CastTransposeDbiasDact => Formula::ActivationGradient,
            Op::Gated => Formula::Gated,
            Op::DgatedCastTranspose => Formula::GatedGradient,
            Op::Layernorm => Formula::Layernorm,
            Op::Rmsnorm => Formula::Rmsnorm,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cuda::source::HEADERS;
    use std::collections::BTreeMap;

    type Words = BTreeMap<String, BTreeMap<String, i64>>;

    /// Case and underscores aside.
    fn plain(word: &str) -> String {
        word.replace('_', "").to_lowercase()
    }

    /// Every `enum Name { WORD = 1, … };` of a text.
    fn enums(text: &str) -> Words {
        let mut found = Words::new();
        for part in text.split("\nenum ").skip(1) {
            let (name, rest) = part.split_once('{').expect("a body");
            let (body, _) = rest.split_once('}').expect("its end");
            let word = |w: &str| {
                let (word, number) = w.split_once('=').unwrap_or_else(|| panic!("{w}: a word without its number"));
                (plain(word.trim()), number.trim().parse().unwrap())
            };
            let words: Vec<(String, i64)> = body.split(',').map(str::trim).filter(|w| !w.is_empty()).map(word).collect();
            let count = words.len();
            let words: BTreeMap<_, _> = words.into_iter().collect();
            assert_eq!(words.len(), count, "{name}: a word twice");
            assert!(found.insert(name.trim().to_string(), words).is_none(), "{name} twice");
        }
        found
    }

    #[test]
    fn cuda_has_the_same_words_and_numbers() {
        let text = HEADERS.iter().find(|h| h.name == "common/options.cuh").expect("embedded").text;
        let mut ours: Words = ENUMS
            .iter()
            .chain(crate::recipe::device::ENUMS)
            .map(|(name, words)| (name.to_string(), words.iter().map(|(w, n)| (plain(w), *n)).collect()))
            .collect();
        let acts = crate::op::ACTS.iter().filter(|(act, _)| has(*act));
        ours.insert("Act".into(), acts.map(|(act, name)| (plain(name), act.number())).collect());
        assert_eq!(enums(text), ours);
        let changed = enums(&text.replace("BF16 = 1", "BF16 = 4"));
        assert_ne!(changed, ours, "another number is seen");
    }

    #[test]
    fn a_type_has_its_formats_name() {
        for format in crate::format::FORMATS.iter().map(|f| f.format) {
            if let Some(t) = Type::of(format) {
                assert_eq!(plain(&format!("{t:?}")), plain(&format.to_string()));
            }
        }
    }
}
