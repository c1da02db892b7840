//! The classes of faults, and the real bugs behind each.

use crate::{Error, Result};

/// A way to be wrong, without saying where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    ScaleOmitted,
    ScaleDoubledInverted,
    StaleState,
    ScaleRerounded,
    ScaleShared,
    ScaleIndex,
    ScaleLayout,
    BitsReinterpreted,
    RangeRule,
    CodecEdge,
    Rounding,
    RoundOrder,
    OverflowWrap,
    ZpOffset,
    ZpCorrection,
    PackPermute,
    KTail,
    MnEdge,
    Addressing,
    GroupBoundary,
    PaddingPoison,
    DegenerateBlock,
    LowprecAcc,
    AccState,
    Race,
    AmaxScope,
    SrBroken,
    SilentSkip,
    OtherFormula,
    VacuousOracle,
}

/// One entry of [`CLASSES`].
pub struct ClassSpec {
    pub class: Class,
    /// As `data/bugs.csv` and reports spell it.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The jobs it can happen to.
    pub applies: &'static str,
    /// What to look at in the kernel when it is found.
    pub look: &'static str,
}

const fn class(class: Class, name: &'static str, what: &'static str, applies: &'static str, look: &'static str) -> ClassSpec {
    ClassSpec { class, name, what, applies, look }
}

/// Every class, in the order of [`Class`].
#[rustfmt::skip]
pub const CLASSES: &[ClassSpec] = &[
    class(Class::ScaleOmitted, "scale_omitted", "a scale factor is never applied",
        "quantized operands, scaled outputs", "the epilogue multiply, and whether the scale's argument reaches it"),
    class(Class::ScaleDoubledInverted, "scale_doubled_inverted", "a scale is applied twice, or as its reciprocal",
        "quantized operands, scaled outputs", "whether the buffer holds scale or scale_inv, and who multiplies it"),
    class(Class::StaleState, "stale_state", "a scale, payload or transposed copy is of an earlier step",
        "quantized operands, scaled outputs", "what is cached between steps, and what updates scale and scale_inv together"),
    class(Class::ScaleRerounded, "scale_rerounded", "scales are rounded after the payload was quantized with them",
        "quantized operands whose scales are not powers of two", "the conversion of the scales: ceil, floor or cast, and the packing"),
    class(Class::ScaleShared, "scale_shared", "the scale of one row, half or expert is used for others",
        "operands with more than one scale over rows", "the row, half or expert in the address of the scale"),
    class(Class::ScaleIndex, "scale_index", "the wrong scale along K: not advancing, a wrong divisor, an offset",
        "operands with more than one scale along K", "the index k / group of the scale, in the main loop and at the start of a split"),
    class(Class::ScaleLayout, "scale_layout", "the scale tensor is read transposed, swizzled, swapped or along the other axis",
        "quantized operands with several scales", "the layout contract of the scales: order, swizzle, padding, which operand"),
    class(Class::BitsReinterpreted, "bits_reinterpreted", "codes, scales or zero points are read as another format",
        "quantized operands, quantized outputs", "the dtype that the pointer is cast to, and the descriptor's format"),
    class(Class::RangeRule, "range_rule", "the wrong format maximum, or the wrong rule for a scale",
        "kernels that quantize", "the constant for the format's maximum and the rounding of the scale's exponent"),
    class(Class::CodecEdge, "codec_edge", "encode or decode is wrong at special codes only",
        "quantized operands, quantized outputs", "zero, subnormals, NaN, the top binade, and the smallest integer in the conversion"),
    class(Class::Rounding, "rounding", "truncation, ties, double rounding or an inexact reciprocal where nearest even was asked",
        "every output", "the conversion instruction and its rounding mode"),
    class(Class::RoundOrder, "round_order", "an intermediate rounding was added or left out by fusion",
        "kernels that compute before they cast", "which dtype a value has between the two operations that were fused"),
    class(Class::OverflowWrap, "overflow_wrap", "an integer wraps, or a 16-bit intermediate overflows",
        "quantized outputs, products", "the clamp before the conversion and the dtype of partial sums"),
    class(Class::ZpOffset, "zp_offset", "zero points are off by one, or of the other sign convention",
        "operands with zero points", "the unpacking of zero points: +1, signedness, 8"),
    class(Class::ZpCorrection, "zp_correction", "the zero-point term is missing, unscaled or of the wrong sign",
        "operands with zero points", "the row-sum and column-sum corrections of the epilogue"),
    class(Class::PackPermute, "pack_permute", "nibbles or codes are read in another order",
        "quantized operands", "nibble order, interleaving and the permutation of the packed copy"),
    class(Class::KTail, "k_tail", "the remainder of K is dropped, counted twice or over-read",
        "products", "the last iteration of the K loop and its predicate"),
    class(Class::MnEdge, "mn_edge", "the last, partial tile of rows or columns is wrong",
        "results whose shape is no multiple of the tile", "the predicate of the last tile's loads and stores"),
    class(Class::Addressing, "addressing", "strides are ignored, writes alias, an index wraps",
        "every result", "the strides in the address and the width of the index"),
    class(Class::GroupBoundary, "group_boundary", "a grouped product takes rows to the wrong group",
        "grouped products", "how offs become tiles, and which group a straddling tile asks for"),
    class(Class::PaddingPoison, "padding_poison", "uninitialised padding reaches valid results",
        "every result", "what fills padded rows, scales and shared memory before the launch"),
    class(Class::DegenerateBlock, "degenerate_block", "a zero or tiny block gives 0/0, an infinite scale or another floor",
        "kernels that choose scales, blocks that are all zero", "the guard and epsilon of the block's amax"),
    class(Class::LowprecAcc, "lowprec_acc", "partial sums are kept in 16 bits or fewer",
        "products of narrow floats", "the accumulator's type and how often it is promoted"),
    class(Class::AccState, "acc_state", "the accumulator is cleared, a partial sum lost or an operand tile reused",
        "products", "where the accumulator is zeroed and which stage the operands are read from"),
    class(Class::Race, "race", "a tile is written before, after or while it is read",
        "every result", "barriers between producer and consumer, and what else writes the tile"),
    class(Class::AmaxScope, "amax_scope", "amax over the wrong elements or precision, or not written",
        "outputs with an amax", "the rows, the dtype and the reduction of amax"),
    class(Class::SrBroken, "sr_broken", "stochastic rounding where none was asked, or biased, or with the same draw everywhere",
        "quantized outputs", "the random draw: seed, lane, and the bits it is compared with"),
    class(Class::SilentSkip, "silent_skip", "nothing is written, or an argument is ignored",
        "every kernel", "whether the launch happened, and every argument's use"),
    class(Class::OtherFormula, "other_formula", "another formula is computed: its function, eps, mean, divisor, gamma or beta",
        "activations, gates, norms", "the formula and its constants, and which elements its sums are over"),
    class(Class::VacuousOracle, "vacuous_oracle", "not a fault of the kernel: the check could not have failed",
        "the verdict no_power", "the data: what it would take is in the reason"),
];

impl Class {
    pub fn spec(self) -> &'static ClassSpec {
        &CLASSES[self as usize]
    }
    pub fn name(self) -> &'static str {
        self.spec().name
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One line of `data/bugs.csv`: its `id`, `url` and `fault_class`.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Bug {
    pub id: String,
    pub url: String,
    pub fault_class: String,
}

/// The real bugs. Errors: `data/bugs.csv` is missing, malformed, or names a class that does not exist.
pub fn bugs() -> Result<Vec<Bug>> {
    let crate::data::DataFile { path, bytes: text } = crate::data::read("bugs.csv")?;
    let mut bugs = Vec::new();
    for bug in csv::Reader::from_reader(&text[..]).deserialize() {
        let bug: Bug = bug.map_err(|e| Error::BadFile {
            path: path.clone(),
            found: e.to_string(),
            expected: "columns id, url, fault_class".into(),
        })?;
        if !CLASSES.iter().any(|c| c.name == bug.fault_class) {
            return Err(Error::unknown("fault class", &bug.fault_class, CLASSES.iter().map(|c| c.name)));
        }
        bugs.push(bug);
    }
    Ok(bugs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_stand_in_the_order_of_the_enum() {
        for (i, c) in CLASSES.iter().enumerate() {
            assert_eq!(c.class as usize, i, "{}", c.name);
        }
    }

    #[test]
    fn every_class_has_real_bugs() {
        let bugs = bugs().unwrap();
        assert!(bugs.len() >= 160);
        for c in CLASSES {
            assert!(bugs.iter().any(|b| b.fault_class == c.name), "{} has no bug in data/bugs.csv", c.name);
        }
    }
}
