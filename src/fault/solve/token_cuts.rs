//! The tokens that groups of a gradient of weights sum, as rules of where they start and where they end.

use std::ops::Range;

/// Sides of tiles of tokens, the largest first. Smaller ones end anywhere.
const UNITS: [usize; 6] = [256, 128, 64, 32, 16, 8];

/// What moved the ends, in words, and whether the last tokens are lost by it.
#[derive(Debug, PartialEq)]
pub struct Ends {
    pub words: String,
    pub lost: bool,
}

/// What moved the starts, and what the ends; nothing where all are right. `None`: no rule does.
pub fn rules(cut: &[Range<usize>], right: &[Range<usize>]) -> Option<(Option<String>, Option<Ends>)> {
    let full: Vec<usize> = (0..right.len()).filter(|e| !right[*e].is_empty()).collect();
    let moved =
        |end: bool| full.iter().any(|e| if end { cut[*e].end != right[*e].end } else { cut[*e].start != right[*e].start });
    let starts = if moved(false) { Some(start(cut, right, &full)?) } else { None };
    let ends = if moved(true) { Some(end(cut, right, &full)?) } else { None };
    (starts.is_some() || ends.is_some()).then_some((starts, ends))
}

/// The units that say the same, in words: the largest, and the others behind it.
fn units(fit: &dyn Fn(usize) -> bool) -> Option<String> {
    let all: Vec<usize> = UNITS.into_iter().filter(|u| fit(*u)).collect();
    let first = all.first()?.to_string();
    let rest: Vec<String> = all[1..].iter().map(usize::to_string).collect();
    Some(if rest.is_empty() { first } else { format!("{first} (or {})", rest.join(", ")) })
}

fn start(cut: &[Range<usize>], right: &[Range<usize>], full: &[usize]) -> Option<String> {
    let all = |of: &dyn Fn(usize) -> usize| full.iter().all(|e| cut[*e].start == of(right[*e].start));
    if let Some(unit) = units(&|u| all(&|x| x / u * u)) {
        return Some(format!(
            "every group starts at its first token rounded down to a multiple of {unit}: tokens of the group before are summed again"
        ));
    }
    let unit = units(&|u| all(&|x| x.next_multiple_of(u)))?;
    Some(format!("every group starts at its first token rounded up to a multiple of {unit}: its first tokens are lost"))
}

fn end(cut: &[Range<usize>], right: &[Range<usize>], full: &[usize]) -> Option<Ends> {
    let last = *full.last()?;
    let others = full.iter().all(|e| *e == last || cut[*e].end == right[*e].end);
    // All of them, or the last group alone.
    let mut candidates = vec![("every group", full)];
    if others && full.len() > 1 {
        candidates.push(("the last group", std::slice::from_ref(&last)));
    }
    let ends = |words: String, lost: bool| Some(Ends { words, lost });
    for (which, some) in candidates {
        let all = |of: &dyn Fn(usize) -> usize| some.iter().all(|e| cut[*e].end == of(*e));
        let own = |e: usize| right[e].len();
        // No fault of its own: where it starts elsewhere, it ends as far off.
        if all(&|e| cut[e].start + own(e)) {
            return ends(format!("{which} sums as many tokens as it has, from there on"), false);
        }
        if let Some(unit) = units(&|u| all(&|e| cut[e].start + own(e) / u * u)) {
            return ends(format!("{which} sums whole tiles of {unit} of its tokens only: its tail is lost"), true);
        }
        if let Some(unit) = units(&|u| all(&|e| right[e].end / u * u)) {
            return ends(format!("{which} ends at a multiple of {unit}, rounded down: its tail is lost"), true);
        }
        if let Some(unit) = units(&|u| all(&|e| cut[e].start + own(e).next_multiple_of(u))) {
            let words =
                format!("{which} sums its last tile of {unit} whole: tokens of the next group, or behind the end, with it");
            return ends(words, false);
        }
        if let Some(unit) = units(&|u| all(&|e| right[e].end.next_multiple_of(u))) {
            let words =
                format!("{which} ends at a multiple of {unit}, rounded up: tokens of the next group are summed with it");
            return ends(words, false);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_and_ends_have_a_rule_each() {
        let right = [0..37, 37..37, 37..101, 101..190];
        let (starts, ends) = rules(&[0..37, 37..37, 32..101, 96..160], &right).unwrap();
        assert!(starts.unwrap().contains("rounded down to a multiple of 32 (or 16, 8)"));
        let ends = ends.unwrap();
        assert!(ends.words.starts_with("the last group sums whole tiles of 64 (or 32) of its tokens only") && ends.lost);
        let (starts, ends) = rules(&[0..32, 37..37, 37..101, 101..165], &right).unwrap();
        assert!(starts.is_none() && ends.unwrap().words.starts_with("every group sums whole tiles of 32 of its tokens only"));
        // Groups that start early and have all their tokens.
        let (_, ends) = rules(&[0..37, 37..37, 32..96, 96..185], &right).unwrap();
        let ends = ends.unwrap();
        assert!(ends.words.starts_with("every group sums as many tokens as it has") && !ends.lost);
        // Every fourth end is a multiple of 4.
        assert_eq!(rules(&[0..37, 37..37, 37..101, 101..188], &right), None);
        assert_eq!(rules(&[0..36, 37..37, 38..101, 102..189], &right), None);
        assert_eq!(rules(&right.clone(), &right), None);
    }
}
