//! One point of a sweep.

use crate::input::Source;
use crate::model::Accumulator;
use crate::op::{Act, Op};
use crate::recipe::Recipe;
use crate::{Error, Format, Result};
use std::sync::Arc;

/// How an operand reaches the kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum OperandRecipe {
    /// Unquantized.
    None,
    Quantized(Recipe),
    /// The kernel quantizes it itself (dynamic activation quantization).
    Fused(Recipe),
}

/// What the kernel has to write.
#[derive(Clone, Debug, PartialEq)]
pub enum OutKind {
    High(Format),
    /// FP8 with a scale the harness gives, or a null one.
    Scaled {
        format: Format,
        null: bool,
    },
    Recipe(Recipe),
}

/// Zero points as the recipe has them, or turned into additive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroMode {
    Recipe,
    Additive,
}

/// One point: everything that decides its bits. Its [`id`](Case::id) names it in rows, filters and baselines. What the cases of a
/// table share they share in memory: a sweep may have millions.
#[derive(Clone, Debug)]
pub struct Case {
    /// Position in its sweep.
    pub index: usize,
    /// The sweep as the command line takes it: a name, or a path to a file.
    pub sweep: Arc<str>,
    /// `name` of its table in the sweep file.
    pub family: Arc<str>,
    pub op: Op,
    pub act: Option<Act>,
    /// Rows of A (0 where `rows` says), columns of the result, inner dimension (0 for ops of one matrix).
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Rows of each group or part.
    pub rows: Arc<[usize]>,
    pub a: Arc<OperandRecipe>,
    pub b: Arc<OperandRecipe>,
    pub dtype: Format,
    pub dist_a: Arc<Source>,
    pub dist_b: Arc<Source>,
    pub offset: f64,
    pub bias: bool,
    pub out: Arc<OutKind>,
    pub accumulator: Option<Accumulator>,
    pub zero: ZeroMode,
    pub zero_centered_gamma: bool,
    pub seed: u64,
    pub edge: bool,
    /// Why no kernel can run it, known from the combination alone.
    pub skip: Option<Arc<str>>,
}

impl Case {
    /// The name of the case: its coordinates joined by `/`, defaults left out. Unique within a sweep.
    pub fn id(&self) -> String {
        let mut parts = vec![self.op.name().to_string()];
        parts.extend(self.act.map(|a| a.name().to_string()));
        if self.op.is_product() {
            parts.push(format!("{}+{}", self.a, self.b));
            parts.extend(self.accumulator.as_ref().map(ToString::to_string));
        }
        if self.op == Op::Dequantize {
            parts.push(self.a.to_string());
        }
        parts.push(self.shape());
        if !self.rows.is_empty() {
            let rows: Vec<String> = self.rows.iter().map(ToString::to_string).collect();
            parts.push(format!("rows={}", rows.join(",")));
        }
        parts.push(if self.dist_a == self.dist_b {
            self.dist_a.to_string()
        } else {
            format!("{}+{}", self.dist_a, self.dist_b)
        });
        parts.push(format!("{}>{}", self.dtype, self.out));
        if self.offset != 0.0 {
            parts.push(format!("offset={}", self.offset));
        }
        if self.bias {
            parts.push("bias".into());
        }
        if self.zero == ZeroMode::Additive {
            parts.push("additive".into());
        }
        if self.zero_centered_gamma {
            parts.push("1p".into());
        }
        parts.push(format!("s{}", self.seed));
        parts.join("/")
    }

    /// `MxNxK`, `MxN` or `NxK` as the sweep file has it.
    pub fn shape(&self) -> String {
        match (self.op, self.k) {
            (op, k) if op.is_grouped() => format!("{}x{k}", self.n),
            (_, 0) => format!("{}x{}", self.m, self.n),
            (_, k) => format!("{}x{}x{k}", self.m, self.n),
        }
    }

    /// Rows of A over all groups or parts.
    pub fn total_rows(&self) -> usize {
        if self.rows.is_empty() { self.m } else { self.rows.iter().sum() }
    }

    /// Multiply-adds of a product, elements otherwise: what the cost of a case goes by.
    pub fn operations(&self) -> u64 {
        let n = self.total_rows() as u64 * self.n as u64;
        if self.k > 0 { n * self.k as u64 } else { n }
    }
}

impl std::fmt::Display for OperandRecipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OperandRecipe::None => f.pad("none"),
            OperandRecipe::Quantized(r) => f.pad(&r.to_string()),
            OperandRecipe::Fused(r) => f.pad(&format!("fused:{r}")),
        }
    }
}

impl std::str::FromStr for OperandRecipe {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s.strip_prefix("fused:") {
            Some(r) => Ok(OperandRecipe::Fused(r.parse()?)),
            None if s == "none" => Ok(OperandRecipe::None),
            None => Ok(OperandRecipe::Quantized(s.parse()?)),
        }
    }
}

impl std::fmt::Display for OutKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OutKind::High(format) => f.pad(format.name()),
            OutKind::Scaled { format, null } => f.pad(&format!("scaled:{format}{}", if *null { ":null" } else { "" })),
            OutKind::Recipe(r) => f.pad(&r.to_string()),
        }
    }
}

impl std::str::FromStr for OutKind {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        if let Some(rest) = s.strip_prefix("scaled:") {
            let (name, null) = rest.strip_suffix(":null").map_or((rest, false), |n| (n, true));
            let format: Format = name.parse()?;
            if !format.is_fp8() {
                return Err(Error::value("scaled output", format, "e4m3, e5m2, e4m3fnuz or e5m2fnuz"));
            }
            return Ok(OutKind::Scaled { format, null });
        }
        match s.parse::<Format>() {
            Ok(f) if f.is_high() => Ok(OutKind::High(f)),
            _ => Ok(OutKind::Recipe(s.parse()?)),
        }
    }
}
