//! A comparison with a baseline, for people and for machines. Words what the comparison holds; computes no statistic.

use super::ci::{self, Cause, Ended, Test};
use super::{head, short};
use crate::baseline::diff::{Change, Differences, Drift};
use crate::compare::Verdict;
use maud::{DOCTYPE, html};
use std::collections::HashMap;

/// How many drifts a table for people shows.
const SHOWN: usize = 200;

/// Those that need somebody's attention, worst first.
fn notable(c: &Differences) -> Vec<&Drift> {
    use Change::*;
    let order = [Worse, Missing, NowSkipped, New, Better, OtherBits, Rejudged];
    order.iter().flat_map(|k| c.drifts.iter().filter(move |d| d.change == *k)).collect()
}

fn counts(c: &Differences) -> String {
    let some = Change::ALL.iter().filter(|k| c.count(**k) > 0);
    let words: Vec<String> = some.map(|k| format!("{} {}", c.count(*k), k.name().replace('_', " "))).collect();
    if words.is_empty() { "no case".into() } else { words.join(", ") }
}

fn facts(c: &Differences) -> Vec<String> {
    let clip = |s: &str| if s.is_empty() { "nothing".into() } else { s.chars().take(60).collect::<String>() };
    c.facts.iter().map(|(n, a, b)| format!("{n}: {} → {}", clip(a), clip(b))).collect()
}

/// A verdict; empty where the case is not on that side.
fn word(verdict: Option<Verdict>) -> &'static str {
    verdict.map_or("", Verdict::as_str)
}

/// The verdicts before and after.
fn verdicts(d: &Drift) -> String {
    format!("{} → {}", word(d.before), word(d.after))
}

/// For the terminal.
pub fn terminal(c: &Differences) -> String {
    let mut text = String::new();
    let notable = notable(c);
    for d in notable.iter().take(20) {
        text += &format!("{:<12}{}\n            {}\n", d.change.name(), d.case, d.words);
    }
    if notable.len() > 20 {
        text += &format!("… and {} more\n", notable.len() - 20);
    }
    let facts = facts(c);
    if !notable.is_empty() && !facts.is_empty() {
        text += &format!("what changed in the provenance:\n  {}\n", facts.join("\n  "));
    }
    text + &format!("{}: {}\n", if c.fails() { "drift" } else { "no drift" }, counts(c))
}

/// For a pull request: each cause once, and no longer than a comment may be.
pub fn markdown(c: &Differences) -> String {
    let mut text = format!("## qassay: {}\n\n{}\n", if c.fails() { "drift" } else { "no drift" }, counts(c));
    let alike = alike(c);
    if alike.is_empty() {
        return text;
    }
    let facts = facts(c);
    if !facts.is_empty() {
        text += &format!("\nWhat changed in the provenance:\n\n- {}\n", facts.join("\n- "));
    }
    text +=
        "\n| change | cases | the first | verdict | metric | before | after | why |\n|---|---:|---|---|---|---:|---:|---|\n";
    // A bar would end the cell, a backtick the code.
    let cell = |s: &str| s.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;");
    let line = |(d, count): &(&Drift, usize)| {
        let (name, before, after) = moved(d);
        let case = format!("`{}`", d.case.replace('`', "'"));
        let fields = [d.change.name(), &count.to_string(), &case, &verdicts(d), &name, &before, &after, &d.words];
        format!("| {} |\n", fields.map(cell).join(" | "))
    };
    ci::comment(text, &alike.iter().map(line).collect::<Vec<_>>())
}

fn moved(d: &Drift) -> (String, String, String) {
    d.moved.as_ref().map_or_else(Default::default, |m| (m.column.to_string(), short(m.before), short(m.after)))
}

/// One JSON object a case.
pub fn json_lines(c: &Differences) -> String {
    let line = |d: &Drift| {
        let moved = d.moved.as_ref().map(|m| {
            // JSON has no NaN: the text of the number.
            serde_json::json!({"column": m.column, "before": m.before.to_string(), "after": m.after.to_string()})
        });
        let object = serde_json::json!({
            "sweep": d.sweep, "case": d.case, "kernel": d.kernel, "change": d.change.name(), "fails": d.change.fails(),
            "before": word(d.before), "after": word(d.after), "moved": moved, "p": d.p, "beyond_order": d.beyond_order, "words": d.words,
        });
        object.to_string() + "\n"
    };
    c.drifts.iter().map(line).collect()
}

/// The cases as tests; what a case took and its card are in `after`, by the name of the case.
pub fn tests(c: &Differences, after: &HashMap<String, After>) -> Vec<Test> {
    let test = |d: &Drift| {
        let ran = after.get(&d.case);
        let ended = match d.change {
            Change::Identical | Change::Rejudged => Ended::Passed,
            Change::Skipped => Ended::Skipped { why: String::new() },
            kind => Ended::Failed {
                kind: kind.name().into(),
                message: format!("{}; {}", verdicts(d), d.words),
                text: ran.map_or_else(|| d.words.clone(), |a| format!("{}\n{}", d.words, a.card)),
            },
        };
        Test {
            suite: d.sweep.clone(),
            name: d.case.clone(),
            class: ci::class(d.op, &d.kernel).into(),
            seconds: ran.map_or(0.0, |a| a.seconds),
            ended,
        }
    };
    c.drifts.iter().map(test).collect()
}

/// What is known of a case of the run after.
pub struct After {
    pub seconds: f64,
    pub card: String,
}

/// JUnit XML of a comparison.
pub fn junit(c: &Differences, after: &HashMap<String, After>) -> String {
    ci::junit(&tests(c, after))
}

/// What drifted, each cause once.
pub fn causes(c: &Differences) -> Vec<Cause> {
    let cause = |(d, count): (&Drift, usize)| Cause {
        title: format!("qassay: {}", d.change.name().replace('_', " ")),
        text: format!("{}\n{}", d.case, d.words),
        count,
    };
    alike(c).into_iter().filter(|(d, _)| d.change.fails()).map(cause).collect()
}

/// The notable drifts, those of one cause together: the first of each, and how many they are. Alike are the change, the kernel, the
/// metric, and the words but for their numbers.
fn alike(c: &Differences) -> Vec<(&Drift, usize)> {
    let mut found: Vec<(String, &Drift, usize)> = Vec::new();
    for d in notable(c) {
        let words: String = d.words.chars().filter(|c| !c.is_ascii_hexdigit() && !"-+.".contains(*c)).collect();
        let metric = d.moved.as_ref().map_or("", |m| m.column);
        let key = format!("{} {} {metric} {} {words}", d.change.name(), ci::class(d.op, &d.kernel), verdicts(d));
        match found.iter_mut().find(|f| f.0 == key) {
            Some(f) => f.2 += 1,
            None => found.push((key, d, 1)),
        }
    }
    found.into_iter().map(|f| (f.1, f.2)).collect()
}

/// One page, no network.
pub fn page(c: &Differences) -> String {
    let notable = notable(c);
    let mut sweeps: Vec<&str> = c.drifts.iter().map(|d| d.sweep.as_str()).collect();
    sweeps.dedup();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{}: {} · qassay", if c.fails() { "drift" } else { "no drift" }, counts(c)), ""))
            body {
                header {
                    h1 { @if c.fails() { "Drift" } @else { "No drift" } " in " (sweeps.join(", ")) }
                    p { (counts(c)) ". Only a case of the same bits and verdict passes; what is right is accepted by " code { "qassay accept" } "." }
                }
                main {
                    section {
                        h2 { "What changed" }
                        @if notable.is_empty() { p { "Nothing." } }
                        @else {
                            div.wide tabindex="0" role="region" aria-label="What changed" { table {
                                thead { tr { @for h in ["change", "case", "verdict", "metric", "before", "after", "why"] { th { (h) } } } }
                                tbody { @for d in notable.iter().take(SHOWN) {
                                    @let (name, before, after) = moved(d);
                                    tr { td { (d.change.name().replace('_', " ")) } td { code { (d.case) } }
                                         td { (verdicts(d)) } td { (name) } td { (before) } td { (after) } td { (d.words) } }
                                } }
                            } }
                            @if notable.len() > SHOWN { p { "… and " (notable.len() - SHOWN) " more in drift.jsonl" } }
                        }
                    }
                    section { h2 { "Provenance that differs" }
                        @if c.facts.is_empty() { p { "None." } }
                        @else { ul { @for fact in facts(c) { li { (fact) } } } } }
                }
            }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use super::super::ci::check::elements;
    use super::*;
    use crate::op::Op;

    /// Names as hostile as users can make them.
    fn hostile() -> Differences {
        let drift = |change, case: &str| Drift {
            sweep: "a<b>\"&'".into(),
            case: case.into(),
            kernel: "k\u{1}|".into(),
            op: Op::Cast,
            change,
            before: Some(Verdict::Pass),
            after: Some(Verdict::Fail),
            digest: String::new(),
            moved: None,
            p: Some(0.5),
            beyond_order: true,
            words: "]]> </failure> | `x`\n<script>alert(1)</script>".into(),
        };
        let all = Change::ALL.iter().map(|c| drift(*c, "x</testcase>&amp;|`\u{7}")).collect();
        Differences { drifts: all, facts: vec![("<i>".into(), "a".into(), "b".into())] }
    }

    #[test]
    fn junit_is_well_formed_whatever_the_names() {
        let c = hostile();
        let after = After { seconds: 2.0, card: "FAIL <x>".into() };
        let text = junit(&c, &HashMap::from([(c.drifts[0].case.clone(), after)]));
        let seen = elements(&text);
        let count = |n: &str| seen.iter().filter(|s| *s == n).count();
        assert_eq!((count("testsuites"), count("testsuite"), count("testcase")), (1, 1, 9));
        assert_eq!((count("failure"), count("skipped")), (6, 1));
        assert!(text.contains("tests=\"9\" failures=\"6\" errors=\"0\" skipped=\"1\" time=\"18.000\""), "{text}");
        assert!(text.contains("FAIL &lt;x&gt;"));
    }

    #[test]
    fn page_markdown_and_json_hold_no_live_text() {
        let c = hostile();
        assert!(!page(&c).contains("<script>alert") && !page(&c).contains("<i>"));
        assert!(!markdown(&c).contains("<script>"));
        let rows = markdown(&c);
        for row in rows.lines().filter(|l| l.starts_with("| worse") || l.starts_with("| new")) {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 9, "{row}");
        }
        let twice = Differences { drifts: [c.drifts.clone(), c.drifts.clone()].concat(), facts: Vec::new() };
        assert_eq!(markdown(&twice).matches("| worse | 2 |").count(), 1);
        assert_eq!(causes(&twice).len(), causes(&c).len());
        assert!(json_lines(&c).lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()));
        assert!(terminal(&c).contains("drift: 1 identical, 1 rejudged, 1 other bits"));
    }
}
