//! The format of a sweep file.
//!
//! ```toml
//! about = "what this sweep is for"
//!
//! [[cases]]                     # every combination of the lists below
//! name = "fp8-linear"
//! op = ["gemm"]
//! shape = ["48x80x384"]         # MxNxK; MxN for ops of one matrix; NxK for grouped ops
//! recipe = ["te_current", "te_block_1x128+te_block_128x128"]   # one for both operands, or A+B
//! dist = ["normal", "minilm:layer0.ffn_in_input+minilm:layer0.ffn_in_weight"]
//! accumulator = ["hopper_wgmma@128"]
//! ```
//!
//! One name needs no list: `op = "gemm"`. Every key but `name`, `op` and `shape` has a default; an unknown key is an error with its line.

use crate::Error;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use std::fmt::Formatter;
use std::path::Path;
use std::str::FromStr;
use toml::Spanned;

/// A list of names, each with its place in the file; one name alone is a list of one.
pub type Names = Vec<Spanned<String>>;

/// Reads a list, or one that stands alone.
fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Names, D::Error> {
    struct Either;
    enum Found {
        One(String),
        Many(Names),
    }
    impl<'de> Visitor<'de> for Either {
        type Value = Found;
        fn expecting(&self, f: &mut Formatter) -> std::fmt::Result {
            f.write_str("a name or a list of names")
        }
        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Found, E> {
            Ok(Found::One(name.into()))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Found, A::Error> {
            let mut names = Names::new();
            while let Some(name) = list.next_element()? {
                names.push(name);
            }
            Ok(Found::Many(names))
        }
    }
    impl<'de> Deserialize<'de> for Found {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_any(Either)
        }
    }
    let found = Spanned::<Found>::deserialize(from)?;
    let span = found.span();
    Ok(match found.into_inner() {
        Found::One(name) => vec![Spanned::new(span, name)],
        Found::Many(names) => names,
    })
}

/// A sweep file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepFile {
    /// What the sweep is for.
    pub about: String,
    pub cases: Vec<CaseTable>,
}

/// One `[[cases]]` table: the axes of a product.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseTable {
    /// Shown in the report as the family of its cases.
    pub name: Spanned<String>,
    /// Ops by name.
    #[serde(deserialize_with = "names")]
    pub op: Names,
    /// Activations, for ops that have one.
    #[serde(default, deserialize_with = "names")]
    pub act: Names,
    /// `MxNxK` for gemm, `MxN` for ops of one matrix (gated: the result is M×N), `NxK` for grouped ops, whose M is the
    /// sum of the group.
    #[serde(deserialize_with = "names")]
    pub shape: Names,
    /// Rows of each group, comma-separated: grouped ops, and the parts of multi_cast_transpose.
    #[serde(default, deserialize_with = "names")]
    pub rows: Names,
    /// Operand recipes of a product: `R` for both, `A+B`; `none` leaves an operand unquantized, `fused:R` lets the kernel
    /// quantize it.
    #[serde(default, deserialize_with = "names")]
    pub recipe: Names,
    /// Dtype of the unquantized values: f16, bf16, f32.
    #[serde(default, deserialize_with = "names")]
    pub dtype: Names,
    /// Distribution of the operands, or a real tensor: one for both, `A+B`.
    #[serde(default, deserialize_with = "names")]
    pub dist: Names,
    /// Added to B (to x for ops of one matrix), in units of its standard deviation: what zero points are for.
    #[serde(default)]
    pub offset: Vec<f64>,
    /// Products: add a bias.
    #[serde(default)]
    pub bias: Vec<bool>,
    /// Result: f16, bf16, f32; `scaled:e4m3` (FP8 with a given scale), `scaled:e4m3:null` (null scale); or a recipe.
    #[serde(default, deserialize_with = "names")]
    pub out: Names,
    /// Products: how they accumulate.
    #[serde(default, deserialize_with = "names")]
    pub accumulator: Names,
    /// `recipe` as the recipe has it, `additive` to turn integer zero points into −z·scale_inv in f16.
    #[serde(default, deserialize_with = "names")]
    pub zero: Names,
    /// Norms.
    #[serde(default)]
    pub zero_centered_gamma: Vec<bool>,
    /// Draws of each combination.
    #[serde(default = "one")]
    pub seeds: u64,
    /// These cases may lack power (zeros, constants): they do not raise the exit status.
    #[serde(default)]
    pub edge: bool,
}

fn one() -> u64 {
    1
}

impl CaseTable {
    /// Line of its name in `text`, the file it was read from.
    pub fn line(&self, text: &str) -> usize {
        line_of(text, self.name.span().start)
    }
}

impl SweepFile {
    /// Parses `text`; errors carry `path`, the line, the key and what is allowed.
    pub fn parse(path: &Path, text: &str) -> crate::Result<SweepFile> {
        toml::from_str(text).map_err(|e: toml::de::Error| {
            let line = e.span().map_or(1, |s| line_of(text, s.start));
            Error::BadLine { path: path.to_path_buf(), line, what: crate::error::of_key(e.message()) }
        })
    }
}

/// A file being checked: its errors say the line.
pub struct TomlText<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl TomlText<'_> {
    pub fn line(&self, name: &Spanned<String>) -> usize {
        line_of(self.text, name.span().start)
    }
    pub fn bad(&self, line: usize, what: impl ToString) -> Error {
        Error::BadLine { path: self.path.to_path_buf(), line, what: what.to_string() }
    }
    /// Parses a name; its error gets the line.
    pub fn parse<T: FromStr<Err = Error>>(&self, name: &Spanned<String>) -> crate::Result<T> {
        name.get_ref().parse().map_err(|e: Error| self.bad(self.line(name), e))
    }
    /// One of a list of names.
    pub fn one_of<T: Copy>(&self, what: &'static str, name: &Spanned<String>, known: &[(T, &'static str)]) -> crate::Result<T> {
        let found = known.iter().find(|k| k.1 == name.get_ref()).map(|k| k.0);
        let unknown = || Error::unknown(what, name.get_ref(), known.iter().map(|k| k.1));
        found.ok_or_else(|| self.bad(self.line(name), unknown()))
    }
    /// Parses every name of an axis, or the default when the axis is absent.
    pub fn axis<T>(
        &self,
        key: &str,
        names: &Names,
        default: &[&str],
        parse: impl Fn(&str) -> crate::Result<T>,
    ) -> crate::Result<Vec<T>> {
        if names.is_empty() {
            return default.iter().map(|s| parse(s)).collect();
        }
        names.iter().map(|n| parse(n.get_ref()).map_err(|e| self.bad(self.line(n), format!("{key}: {e}")))).collect()
    }
}

/// 1-based line of byte `at`.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_a_list_of_one_with_its_place() {
        let one = "about = \"x\"\n[[cases]]\nname = \"n\"\nop = \"gemm\"\nshape = [\"1x2x3\", \"4x5x6\"]\ndist = \"normal\"\n";
        let file = SweepFile::parse(Path::new("a.toml"), one).unwrap();
        let table = &file.cases[0];
        let said = |names: &Names| names.iter().map(|n| n.get_ref().clone()).collect::<Vec<_>>();
        assert_eq!((said(&table.op), said(&table.dist)), (vec!["gemm".to_string()], vec!["normal".to_string()]));
        assert_eq!(said(&table.shape), ["1x2x3", "4x5x6"]);
        assert_eq!((line_of(one, table.op[0].span().start), line_of(one, table.shape[1].span().start)), (4, 5));
        assert!(table.rows.is_empty());
        let e = SweepFile::parse(Path::new("a.toml"), &one.replace("\"gemm\"", "3")).unwrap_err().to_string();
        assert!(e.contains("a.toml:4") && e.contains("a name or a list of names"), "{e}");
    }
}
