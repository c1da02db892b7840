//! Gradients of groups without tokens: what nobody wrote there stands beside another fault of the groups that have some, and is told apart from it.

use super::memory::OLD;
use super::segment::lines;
use super::system::{Region, System, Theory};
use super::theory::as_written;
use super::{holds, one, single};
use crate::fault::Class;
use crate::parallel;
use std::sync::Arc;

/// One fault of the groups that have tokens, where those that have none are wrong as well; with the system that it was found in.
pub fn beside<'s>(s: &System<'s>, all: &[Theory]) -> Option<(System<'s>, Vec<Theory>)> {
    let is_empty = |i: usize| s.part[i].is_some_and(|p| s.parts[p].k.is_empty());
    let rows: Vec<bool> = (0..s.rows).map(is_empty).collect();
    let is_wrong = |at: usize| s.is_wrong[at];
    let of = |empty: bool| (0..s.is_wrong.len()).filter(|at| rows[at / s.cols] == empty).any(is_wrong);
    (!s.alone && of(true) && of(false)).then_some(())?;
    // A sum of nothing is 0: where some of it is, it was written.
    let zeros = (0..s.is_wrong.len()).filter(|at| rows[at / s.cols]).any(|at| s.actual[at] == 0.0);
    (!zeros).then_some(())?;
    let rest = (0..s.is_wrong.len()).map(|at| is_wrong(at) && !rows[at / s.cols]).collect();
    let mut other = s.of_wrong(rest)?;
    // What nobody wrote is right by no theory.
    other.probes.retain(|(i, _)| !rows[*i]);
    let may: Vec<Theory> = parallel::flat(all, |t| other.may_explain(t).then(|| t.clone()));
    let (mut found, _) = single(&other, &may, false);
    // What is looked for last is held to all elements, the unwritten ones among them: here those that decide are enough.
    if found.is_empty() {
        (found, _) = one(&other, &may, false, true);
    }
    let groups: Vec<bool> = s.parts.iter().map(|p| p.k.is_empty() && !p.rows.is_empty()).collect();
    let region = Region { rows, cols: vec![true; s.cols], tiles: Vec::new(), words: format!("groups {}", lines(&groups)) };
    let words = format!("the rows of groups {}, which have no tokens, hold {OLD}: they are not written", lines(&groups));
    let mut old = Theory::new(Class::SilentSkip, "out", "out.group_skipped", words).bits(10.0);
    old.finish = Some(as_written(s));
    let region = Arc::new(region);
    old.region = Some(region.clone());
    let both = |t: Theory| {
        let mut both = t.clone();
        both.variant = format!("{} + {}", t.variant, old.name());
        both.detail = format!("{}; and {}", t.detail, old.detail);
        both.bits += old.bits;
        both.patch = Some(Arc::new((region.clone(), old.clone())));
        both
    };
    let found: Vec<Theory> = found.into_iter().filter(|t| t.patch.is_none()).map(both).filter(|t| holds(s, t)).collect();
    (!found.is_empty()).then(|| (s.clone(), found))
}
