//! A comparison with a baseline, for people and for machines. Words what the comparison holds; computes no statistic.

use super::{head, short};
use crate::baseline::diff::{Change, Differences, Drift};
use crate::compare::Verdict;
use maud::{DOCTYPE, html};

/// How many drifts a table for people shows.
const SHOWN: usize = 200;

/// Those that need somebody's attention, worst first.
fn notable(c: &Differences) -> Vec<&Drift> {
    let order = [Change::Worse, Change::Missing, Change::NowSkipped, Change::New, Change::Better, Change::OtherBits];
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

/// For a pull request.
pub fn markdown(c: &Differences) -> String {
    let mut text = format!("## qassay: {}\n\n{}\n", if c.fails() { "drift" } else { "no drift" }, counts(c));
    let notable = notable(c);
    if !notable.is_empty() {
        text += "\n| change | case | verdict | metric | before | after | why |\n|---|---|---|---|---:|---:|---|\n";
        // A bar would end the cell, a backtick the code.
        let cell = |s: &str| s.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;");
        for d in notable.iter().take(SHOWN) {
            let (name, before, after) = moved(d);
            let case = d.case.replace('`', "'");
            let fields = [d.change.name(), &format!("`{case}`"), &verdicts(d), &name, &before, &after, &d.words];
            text += &format!("| {} |\n", fields.map(cell).join(" | "));
        }
        if notable.len() > SHOWN {
            text += &format!("\n… and {} more\n", notable.len() - SHOWN);
        }
        let facts = facts(c);
        if !facts.is_empty() {
            text += &format!("\nWhat changed in the provenance:\n\n- {}\n", facts.join("\n- "));
        }
    }
    text
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

/// JUnit XML: a suite for each sweep, a test for each case, a class for each op and kernel.
pub fn junit(c: &Differences) -> String {
    let mut sweeps: Vec<&str> = c.drifts.iter().map(|d| d.sweep.as_str()).collect();
    sweeps.dedup();
    let tally = |of: &[&Drift]| {
        let skipped = of.iter().filter(|d| d.change == Change::Skipped).count();
        let failures = of.iter().filter(|d| d.change.fails()).count();
        format!("tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"0\"", of.len())
    };
    let all: Vec<&Drift> = c.drifts.iter().collect();
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_string();
    text += &format!(
        "<testsuites name=\"qassay\" tests=\"{}\" failures=\"{}\" errors=\"0\" time=\"0\">\n",
        all.len(),
        all.iter().filter(|d| d.change.fails()).count()
    );
    for sweep in sweeps {
        let of: Vec<&Drift> = c.drifts.iter().filter(|d| d.sweep == sweep).collect();
        text += &format!("<testsuite name=\"{}\" {}>\n", xml(sweep), tally(&of));
        for d in of {
            let class = if d.kernel.is_empty() { d.op.name() } else { &d.kernel };
            text += &format!("<testcase name=\"{}\" classname=\"{}\" time=\"0\"", xml(&d.case), xml(class));
            text += &match d.change {
                Change::Identical => "/>\n".to_string(),
                Change::Skipped => "><skipped/></testcase>\n".to_string(),
                kind => format!(
                    "><failure type=\"{}\" message=\"{}\">{}</failure></testcase>\n",
                    kind.name(),
                    xml(&verdicts(d)),
                    xml(&d.words)
                ),
            };
        }
        text += "</testsuite>\n";
    }
    text + "</testsuites>\n"
}

/// Text as XML 1.0 may hold it: its five characters escaped, those it has no way to spell replaced.
fn xml(s: &str) -> String {
    let escaped = |c: char| match c {
        '&' => "&amp;".to_string(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        '\'' => "&apos;".into(),
        '\t' | '\n' | '\r' => format!("&#{};", c as u32),
        '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => "\u{fffd}".into(),
        c => c.to_string(),
    };
    s.chars().map(escaped).collect()
}

/// One page, no network.
pub fn page(c: &Differences) -> String {
    let notable = notable(c);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head("qassay drift", ""))
            body {
                header {
                    h1 { "qassay: " @if c.fails() { "drift" } @else { "no drift" } }
                    p { (counts(c)) ". Only an identical case passes; what is right is accepted by " code { "qassay accept" } "." }
                }
                main {
                    section {
                        h2 { "What changed" }
                        @if notable.is_empty() { p { "Nothing." } }
                        @else {
                            div.wide { table {
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

    /// Tags balance, attributes are quoted, nothing is left bare: what makes XML well-formed, checked by hand. Returns the names
    /// of the elements in their order.
    fn elements(text: &str) -> Vec<String> {
        let body = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").unwrap();
        let (mut open, mut seen): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
        for piece in body.split('<').skip(1) {
            let (tag, content) = piece.split_once('>').expect("a tag ends");
            assert!(!content.contains('>') && !content.contains('\u{1}'), "{content:?}");
            for text in content.split('&').skip(1).chain(tag.split('&').skip(1)) {
                assert!(text.contains(';'), "a bare & in {piece:?}");
            }
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
                continue;
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.split([' ', '/']).next().unwrap();
            seen.push(name.to_string());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty());
        seen
    }

    #[test]
    fn junit_is_well_formed_whatever_the_names() {
        let c = hostile();
        let text = junit(&c);
        let seen = elements(&text);
        let count = |n: &str| seen.iter().filter(|s| *s == n).count();
        assert_eq!((count("testsuites"), count("testsuite"), count("testcase")), (1, 1, 8));
        assert_eq!((count("failure"), count("skipped")), (6, 1));
        assert!(text.contains("tests=\"8\" failures=\"6\" errors=\"0\" skipped=\"1\""));
    }

    #[test]
    fn page_markdown_and_json_hold_no_live_text() {
        let c = hostile();
        assert!(!page(&c).contains("<script>alert") && !page(&c).contains("<i>"));
        assert!(!markdown(&c).contains("<script>"));
        let rows = markdown(&c);
        for row in rows.lines().filter(|l| l.starts_with("| worse") || l.starts_with("| new")) {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 8, "{row}");
        }
        assert!(json_lines(&c).lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()));
        assert!(terminal(&c).contains("drift: 1 identical, 1 other bits"));
    }
}
