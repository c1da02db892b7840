//! What a person reads first of a result that is not a plain pass: the name of the bug, what it does, one number, where to look.
//!
//! ```text
//! FAIL  gemm te_current 17×33×384 → bf16            scale_shared:b
//!       each column used the scale of the column before it (explains 100 %); every row, columns 1 … 32
//!       (0, 0) got 9, may be 6.80 … 6.83; 5950 of 6144 elements outside
//!       look at: the column index in the address of b's scale
//!       again: qassay run smoke --case '…'
//! ```

use super::Diagnosis;
use crate::assay::row::Row;
use crate::compare::Verdict;
use crate::compare::digits::shortened;

/// Left of every line but the first.
const INDENT: usize = 6;

/// Names of other faults with the same result that a card has; JSON has all.
const ALSO: usize = 3;
/// What a finding says behind these names.
pub(crate) const SAME_HERE: &str = " would give the same result here";

/// The facts of a card, each a few words; empty where there is none.
#[derive(Clone, Debug)]
pub struct Card {
    pub verdict: Verdict,
    pub title: String,
    /// The name of what was found, `class:variant`; `unknown` where nothing explains the error.
    pub name: String,
    /// What it does, and how much of the error that explains; of what is unknown, where the error lives and what is closest.
    pub finding: String,
    /// By which number it shows.
    pub reason: String,
    pub look: String,
    /// The command that does it again.
    pub again: String,
}

impl Card {
    /// Of a judgement's reason and its diagnosis.
    pub fn new(verdict: Verdict, title: impl Into<String>, reason: &str, diagnosis: Option<&Diagnosis>) -> Self {
        let none = String::new;
        let mut card = Self {
            verdict,
            title: title.into(),
            name: none(),
            finding: none(),
            reason: reason.into(),
            look: none(),
            again: none(),
        };
        let Some(d) = diagnosis else { return card };
        let share = |x: f64| if x >= 0.99995 { "100 %".to_string() } else { format!("{:.2} %", 100.0 * x) };
        match d.findings.first() {
            Some(best) => {
                let bits = if best.exact { ", all bits" } else { "" };
                card.name = best.fault.clone();
                card.finding = format!("{} (explains {}{bits})", shortened(&best.detail), share(best.explains));
                if !d.location.place.is_empty() {
                    card.finding += &format!("; {}", d.location.place);
                }
                card.look = best.look.into();
                let also: Vec<&str> = d.findings.iter().skip(1).map(|f| f.fault.as_str()).collect();
                if !also.is_empty() {
                    let more = match also.len().saturating_sub(ALSO) {
                        0 => String::new(),
                        n => format!(" and {n} more"),
                    };
                    let some = also[..also.len().min(ALSO)].join(", ");
                    card.finding += &format!("; {some}{more}{SAME_HERE}");
                }
                card.reason = after(&card.finding, reason).into();
            }
            None => {
                let solved = d.solved.iter().map(|s| format!("solved: {}", shortened(s)));
                let near = d.runner_up.iter().filter(|r| r.explains > 0.5);
                let near = near.map(|r| format!("closest, not it: {} explains {}", r.fault, share(r.explains)));
                card.name = "unknown".into();
                card.finding =
                    std::iter::once(d.location.words.clone()).chain(solved).chain(near).collect::<Vec<_>>().join("; ");
            }
        }
        card
    }

    /// Of a line of a run.
    pub fn of(row: &Row) -> Self {
        let recipes = [&row.recipe_a, &row.recipe_b].into_iter().filter(|r| !r.is_empty()).cloned().collect::<Vec<_>>();
        let sizes = [row.m, row.n, row.k].into_iter().filter(|n| *n > 0).map(|n| n.to_string()).collect::<Vec<_>>().join("×");
        let words = [row.op.name().to_string(), recipes.join(" × "), sizes, format!("→ {}", row.out)];
        Self {
            verdict: row.verdict,
            title: words.into_iter().filter(|w| !w.is_empty() && w != "→ ").collect::<Vec<_>>().join(" "),
            name: row.fault.clone(),
            finding: row.finding.clone(),
            reason: after(&row.finding, &row.reason).into(),
            look: row.look.clone(),
            again: row.command.clone(),
        }
    }

    /// What a diagnosis found, as a line of a run keeps it.
    pub fn into_row(self, row: &mut Row) {
        (row.fault, row.finding, row.look) = (self.name, self.finding, self.look);
    }

    /// The lines below the title.
    pub fn lines(&self) -> Vec<String> {
        let named = |what: &str, text: &str| if text.is_empty() { String::new() } else { format!("{what}: {text}") };
        let lines = [self.finding.clone(), self.reason.clone(), named("look at", &self.look), named("again", &self.again)];
        lines.into_iter().filter(|l| !l.is_empty()).collect()
    }

    /// In plain text, no line wider than `width` where its words allow.
    pub fn text(&self, width: usize) -> String {
        let head = format!("{}  {}", self.verdict.as_str().to_uppercase(), self.title);
        let (name, used) = (self.name.as_str(), head.chars().count());
        let mut text = match name.chars().count() {
            0 => head,
            n if used + 2 + n <= width => format!("{head}{:>1$}", name, width.min(used + 60) - used),
            _ => format!("{head}\n{:INDENT$}{name}", ""),
        };
        text.push('\n');
        for line in self.lines() {
            // A command is copied: it stays one line.
            let width = if line.starts_with("again: ") { usize::MAX } else { width };
            wrapped(&line, width.saturating_sub(INDENT)).iter().for_each(|l| text += &format!("{:INDENT$}{l}\n", ""));
        }
        text
    }
}

/// What a reason says after what the finding says already.
fn after<'a>(finding: &str, reason: &'a str) -> &'a str {
    let known = finding.split(" (explains ").next().filter(|k| !k.is_empty());
    known.and_then(|k| reason.strip_prefix(k)?.strip_prefix("; ")).unwrap_or(reason)
}

/// Words in lines of at most `width` characters, two spaces before all but the first; a longer word stands alone.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("one from the start");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last += " ";
            *last += word;
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::locate::Location;
    use crate::fault::{Class, Finding};

    fn finding() -> Finding {
        Finding {
            fault: "scale_shared:b".into(),
            class: Class::ScaleShared,
            variant: "b".into(),
            operand: "b",
            explains: 1.0,
            detail: "each column used the scale of the column before it".into(),
            look: "the column index in the address of b's scale",
            accepted: true,
            exact: true,
            freedom: 0,
        }
    }

    #[test]
    fn the_name_comes_first_and_nothing_twice() {
        let location = Location { place: "every row, columns 1 … 32".into(), ..Location::default() };
        let d =
            Diagnosis { findings: vec![finding()], runner_up: None, location, complete: true, solved: None, audit: Vec::new() };
        let reason = "(0, 0) got 9, may be 6.80 … 6.83; 5950 of 6144 elements outside";
        let mut card = Card::new(Verdict::Fail, "gemm te_current 17×33×384 → bf16", reason, Some(&d));
        card.again = "qassay run smoke --case 'a b'".into();
        let text = card.text(120);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("FAIL  gemm te_current 17×33×384 → bf16") && lines[0].ends_with("scale_shared:b"),
            "{text}"
        );
        let finding =
            "      each column used the scale of the column before it (explains 100 %, all bits); every row, columns 1 … 32";
        assert_eq!(lines[1..3], [finding.to_string(), format!("      {reason}")]);
        assert_eq!(
            lines[3..],
            ["      look at: the column index in the address of b's scale", "      again: qassay run smoke --case 'a b'"]
        );
        // Narrow: wrapped at words, the command whole.
        let narrow = card.text(50);
        assert!(narrow.lines().filter(|l| !l.contains("again")).all(|l| l.chars().count() <= 50), "{narrow}");
        assert!(narrow.contains("again: qassay run smoke --case 'a b'\n"));
    }

    #[test]
    fn what_was_found_is_not_said_again_in_the_reason() {
        let location = Location::default();
        let d =
            Diagnosis { findings: vec![finding()], runner_up: None, location, complete: true, solved: None, audit: Vec::new() };
        let reason = format!("{}; (0, 0) got 9, may be 6", finding().detail);
        assert_eq!(Card::new(Verdict::Fail, "gemm", &reason, Some(&d)).reason, "(0, 0) got 9, may be 6");
        assert_eq!(Card::new(Verdict::Fail, "gemm", "(0, 0) got 9", Some(&d)).reason, "(0, 0) got 9");
    }

    #[test]
    fn a_card_names_three_others_and_counts_the_rest() {
        let same = |name: &str| Finding { fault: name.into(), ..finding() };
        let said = |n: usize| {
            let findings = std::iter::once(finding()).chain("abcde".chars().take(n).map(|c| same(&format!("x:{c}")))).collect();
            let location = Location::default();
            let d = Diagnosis { findings, runner_up: None, location, complete: true, solved: None, audit: Vec::new() };
            Card::new(Verdict::Fail, "gemm", "", Some(&d)).finding
        };
        assert!(said(3).ends_with("; x:a, x:b, x:c would give the same result here"), "{}", said(3));
        assert!(said(5).ends_with("; x:a, x:b, x:c and 2 more would give the same result here"), "{}", said(5));
    }

    #[test]
    fn what_explains_most_is_closest_and_no_name() {
        let near = Finding { explains: 0.97, accepted: false, exact: false, ..finding() };
        let d = Diagnosis {
            findings: Vec::new(),
            runner_up: Some(near),
            location: Location::default(),
            complete: true,
            solved: None,
            audit: Vec::new(),
        };
        let card = Card::new(Verdict::Fail, "gemm", "(0, 0) got 9, may be 6", Some(&d));
        assert_eq!(card.name, "unknown");
        assert!(card.text(90).contains("closest, not it: scale_shared:b explains 97.00 %"));
    }
}
