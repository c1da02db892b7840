//! What a command line selects, and what it will cost, before anything runs.

use super::shard::{self, Shard};
use crate::Result;
use crate::error::meant;
use crate::sweep::{Case, Sweep};

/// The words of a command line that select cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names or paths of sweeps.
    pub sweeps: Vec<String>,
    /// Texts that must all occur, as whole words, in the case's name or in the name of its family ([`has`]).
    pub filter: Vec<String>,
    /// The one case of exactly this name.
    pub case: Option<String>,
    /// Added to every case's draw.
    pub seed: u64,
    /// The part of the cases that is run.
    pub shard: Option<Shard>,
}

impl Selection {
    /// The sweeps with the cases that are selected, in their order. Errors: those of [`Sweep::load`].
    pub fn load(&self) -> Result<Vec<Sweep>> {
        let mut sweeps = self.sweeps.iter().map(|s| Sweep::load(s, self.seed)).collect::<Result<Vec<_>>>()?;
        for sweep in &mut sweeps {
            sweep.cases.retain(|c| {
                let id = c.id();
                self.filter.iter().all(|f| has(&id, f) || has(&c.family, f)) && self.case.as_ref().is_none_or(|c| *c == id)
            });
        }
        if let Some(shard) = self.shard {
            let costs: Vec<f64> = sweeps.iter().flat_map(|s| &s.cases).map(seconds).collect();
            let mut parts = shard::split(&costs, shard.count).into_iter();
            for sweep in &mut sweeps {
                sweep.cases.retain(|_| parts.next() == Some(shard.index));
            }
        }
        Ok(sweeps)
    }

    /// Why nothing is selected: the first filter that no case has, or the name that no case has, with what was probably meant. Errors:
    /// those of [`Sweep::load`].
    pub fn why_empty(&self) -> Result<String> {
        let sweeps = Selection { sweeps: self.sweeps.clone(), ..Selection::default() }.load()?;
        let named = self.sweeps.join(", ");
        let ids: Vec<(String, &str)> = sweeps.iter().flat_map(|s| &s.cases).map(|c| (c.id(), &*c.family)).collect();
        if let Some(case) = self.case.as_ref().filter(|c| ids.iter().all(|i| i.0 != **c)) {
            let near = meant(case, ids.iter().map(|i| i.0.as_str())).map_or(NAMES.into(), |m| format!("; did you mean '{m}'?"));
            return Ok(format!("no case of {named} is '{case}'{near}"));
        }
        let Some(filter) = self.filter.iter().find(|f| !ids.iter().any(|i| has(&i.0, f) || has(i.1, f))) else {
            return Ok(format!("no case of {named} has all of these words"));
        };
        // A part of a word, or a word with a slip.
        let open = [format!("{filter}*"), format!("*{filter}*")];
        let part = open.into_iter().find(|f| ids.iter().any(|i| has(&i.0, f)));
        let near = meant(filter, ids.iter().flat_map(|i| words(&i.0).chain(words(i.1)))).map(String::from);
        let near = part.or(near).map_or(NAMES.into(), |m| format!("; did you mean --filter '{m}'?"));
        Ok(format!("no case of {named} has the word '{filter}' in its name{near}"))
    }
}

/// Where the names are, for one that nothing is like.
const NAMES: &str = "; the column `case` of a run's rows.csv has the names";

/// Whether `text` occurs in a name as whole words: `cast` is in `cast/64x768` and not in `cast_transpose/64x768`. A `*` at an end of the
/// text lets its word go on there: `te_block*` is in `te_block_1x128`.
pub fn has(name: &str, text: &str) -> bool {
    let (open_left, open_right) = (text.starts_with('*'), text.ends_with('*'));
    let text = text.trim_matches('*');
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let ends = |inside: Option<char>, beside: Option<char>| !part(inside) || !part(beside);
    name.match_indices(text).any(|(at, _)| {
        let (before, after) = (name[..at].chars().next_back(), name[at + text.len()..].chars().next());
        (open_left || ends(text.chars().next(), before)) && (open_right || ends(text.chars().next_back(), after))
    })
}

/// The words of a name, as [`has`] tells them apart.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

/// Seconds that a case takes one core, about: what shards are balanced by. A fixed cost, one for each element that is drawn,
/// quantized, compared and digested, and for products one for each multiply-add of the reference, the bound and the kernel. The
/// definition costs far more, and a tensor core's block step more than a sum in f32 or int32: it is held to so many of a large product.
pub fn seconds(case: &Case) -> f64 {
    let (m, n, k) = (case.total_rows() as f64, case.n as f64, case.k as f64);
    if case.skip.is_some() {
        return FIXED;
    }
    if !case.op.is_product() {
        return FIXED + m * n * PER_ELEMENT;
    }
    let plain = case.accumulator.is_none_or(|a| ["f32", "int32", "exact"].iter().any(|p| a.to_string().starts_with(p)));
    let operands = (m + case.rows.len().max(1) as f64 * n) * k;
    let each = if plain { PER_PLAIN_STEP } else { PER_BLOCK_STEP };
    let defined = (m * n * k).min(crate::kernel::cpu::drawn::MOST as f64);
    FIXED + operands * PER_OPERAND + m * n * PER_RESULT + m * n * k * PER_PRODUCT + defined * each
}

// Seconds; least squares of the logarithms over `standard` on one core of a server that others used too. `qassay plan
// --measured RUN` holds them against a run.
const FIXED: f64 = 1e-4;
const PER_ELEMENT: f64 = 9e-7;
const PER_OPERAND: f64 = 9e-8;
const PER_RESULT: f64 = 8e-7;
const PER_BLOCK_STEP: f64 = 4.4e-8;
const PER_PLAIN_STEP: f64 = 2.4e-9;
// What an FP8 product 2048³ takes a core, judged.
const PER_PRODUCT: f64 = 6e-10;

/// Bytes that a case holds at most, about: the operands in f32, f64 and codes, the results in f64 several times.
pub fn bytes(case: &Case) -> u64 {
    let (m, n, k) = (case.total_rows() as u64, case.n as u64, case.k.max(1) as u64);
    let experts = case.rows.len().max(1) as u64;
    if case.op.is_product() { 40 * (m * k + experts * n * k) + 120 * m * n.max(1) } else { 160 * m * n }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_whole_words() {
        let name = "cast_transpose/64x768/minilm:layer0.ffn/bf16>te_block_1x128:e4m3/s0";
        for text in
            ["cast_transpose", "cast_transpose/", "64x768/minilm", ">te_block_1x128", "layer0.ffn", "te_block*", "*transpose/"]
        {
            assert!(has(name, text), "{text}");
        }
        for text in ["cast", "transpose/", "te_block", "64", "ffn/bf1", "1x128"] {
            assert!(!has(name, text), "{text}");
        }
    }

    #[test]
    fn a_large_product_is_planned_by_the_part_that_the_definition_computes() {
        let of = |shape: &str| {
            let text = format!(
                "about = \"\"\n[[cases]]\nname = \"a\"\nop = [\"gemm\"]\nshape = [\"{shape}\"]\nrecipe = [\"te_current\"]\naccumulator = [\"hopper_wgmma\"]\n"
            );
            seconds(&Sweep::parse(std::path::Path::new("large.toml"), &text, 0).unwrap().cases[0])
        };
        // Measured: 2.2 s on two cores for 2048³. By the definition alone it would be six minutes.
        assert!((1.0..20.0).contains(&of("2048x2048x2048")), "{}", of("2048x2048x2048"));
        // Twice the size is about eight times the products, not fewer.
        assert!(of("4096x4096x4096") > 3.0 * of("2048x2048x2048"));
        assert!(of("128x128x128") > 40.0 * of("16x16x128"));
    }

    #[test]
    fn what_selects_nothing_says_which_word_and_what_was_meant() {
        let smoke = |filter: &[&str], case: Option<&str>| Selection {
            sweeps: vec!["smoke".into()],
            filter: filter.iter().map(|f| f.to_string()).collect(),
            case: case.map(String::from),
            ..Selection::default()
        };
        let said = |s: Selection| {
            assert!(s.load().unwrap()[0].cases.is_empty());
            s.why_empty().unwrap()
        };
        assert!(said(smoke(&["gemm", "te_curent"], None)).ends_with("did you mean --filter 'te_current'?"));
        assert!(said(smoke(&["te_bloc"], None)).ends_with("did you mean --filter 'te_bloc*'?"));
        assert!(said(smoke(&["block"], None)).ends_with("did you mean --filter '*block*'?"));
        assert!(said(smoke(&["gemm", "cast"], None)).ends_with("has all of these words"));
        let id = Sweep::load("smoke", 0).unwrap().cases[0].id();
        assert!(said(smoke(&[], Some(&id[..id.len() - 1]))).contains(&format!("did you mean '{id}'?")));
    }
}
