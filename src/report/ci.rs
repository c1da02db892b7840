//! Results as a build server reads them: JUnit XML, a comment of bounded size, annotations. Of rows; [`super::drift`] gives those of a
//! comparison.

use super::short;
use super::summary::{self, Attention};
use crate::assay::row::Row;
use crate::compare::Verdict;
use crate::fault::card::Card;
use crate::op::Op;
use std::collections::{BTreeMap, HashMap};

/// Characters a line of a card in a file.
pub(super) const WIDTH: usize = 110;

/// Bytes of a comment: GitHub refuses more than 64 KiB.
const COMMENT: usize = 60_000;

/// One case as JUnit has it.
pub struct Test {
    pub suite: String,
    pub name: String,
    /// Who computed it.
    pub class: String,
    pub seconds: f64,
    pub ended: Ended,
}

/// How a case ended.
pub enum Ended {
    Passed,
    Skipped {
        why: String,
    },
    /// A verdict, or a drift: its kind, one line, and all there is to say.
    Failed {
        kind: String,
        message: String,
        text: String,
    },
    /// It could not be judged.
    Error {
        message: String,
        text: String,
    },
}

/// One cause of failures: what a pull request is told once.
pub struct Cause {
    pub title: String,
    pub text: String,
    /// How many cases it has; empty of one.
    pub like: String,
}

/// JUnit XML: a suite for each sweep, a test for each case.
pub fn junit(tests: &[Test]) -> String {
    let numbers = |of: &[&Test]| {
        let count = |is: fn(&Ended) -> bool| of.iter().filter(|t| is(&t.ended)).count();
        format!(
            "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\"",
            of.len(),
            count(|e| matches!(e, Ended::Failed { .. })),
            count(|e| matches!(e, Ended::Error { .. })),
            count(|e| matches!(e, Ended::Skipped { .. })),
            of.iter().map(|t| t.seconds).sum::<f64>()
        )
    };
    let mut suites: Vec<(&str, Vec<&Test>)> = Vec::new();
    for test in tests {
        match suites.iter_mut().find(|s| s.0 == test.suite) {
            Some(suite) => suite.1.push(test),
            None => suites.push((&test.suite, vec![test])),
        }
    }
    let all: Vec<&Test> = tests.iter().collect();
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_string();
    text += &format!("<testsuites name=\"qassay\" {}>\n", numbers(&all));
    for (name, of) in suites {
        text += &format!("<testsuite name=\"{}\" {}>\n", xml(name), numbers(&of));
        for t in of {
            let head = format!("<testcase name=\"{}\" classname=\"{}\" time=\"{:.3}\"", xml(&t.name), xml(&t.class), t.seconds);
            text += &match &t.ended {
                Ended::Passed => format!("{head}/>\n"),
                Ended::Skipped { why } if why.is_empty() => format!("{head}><skipped/></testcase>\n"),
                Ended::Skipped { why } => format!("{head}><skipped message=\"{}\"/></testcase>\n", xml(why)),
                Ended::Failed { kind, message, text } => format!(
                    "{head}><failure type=\"{}\" message=\"{}\">{}</failure></testcase>\n",
                    xml(kind),
                    xml(message),
                    xml(text)
                ),
                Ended::Error { message, text } => {
                    format!("{head}><error message=\"{}\">{}</error></testcase>\n", xml(message), xml(text))
                }
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

/// Annotations of a GitHub workflow: one `::error` a cause.
pub fn github(causes: &[Cause]) -> String {
    let escaped = |s: &str| s.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let line = |c: &Cause| {
        let like = if c.like.is_empty() { String::new() } else { format!("\n{}", c.like) };
        let title = escaped(&c.title).replace(':', "%3A").replace(',', "%2C");
        format!("::error title={title}::{}\n", escaped(&(c.text.trim_end().to_string() + &like)))
    };
    causes.iter().map(line).collect()
}

/// `text` and as many of the parts after it as a comment holds; says how many it leaves out.
pub fn comment(mut text: String, parts: &[String]) -> String {
    let note = |left: usize| format!("\n… and {left} more; the report has all of them\n");
    for (i, part) in parts.iter().enumerate() {
        if text.len() + part.len() + note(parts.len()).len() > COMMENT {
            return text + &note(parts.len() - i);
        }
        text += part;
    }
    text
}

/// The tests of rows; `seconds` by the name of the case, 0 where it is not known. The first case of a cause has its card, the others name
/// that case.
pub fn tests(rows: &[Row], seconds: &HashMap<String, f64>) -> Vec<Test> {
    let all = summary::attention(rows);
    let first: HashMap<&str, &Attention> = all.iter().flat_map(|a| a.causes.iter().map(move |c| (c.as_str(), a))).collect();
    let test = |row: &Row| {
        let card = || match summary::cause(row).and_then(|cause| first.get(cause.as_str())) {
            Some(a) if !std::ptr::eq(a.row, row) => format!("the same cause as {}\nagain: {}\n", a.row.case, row.command),
            Some(a) if a.count > 1 => format!("{}{}\n", Card::of(row).text(WIDTH), a.like()),
            _ => Card::of(row).text(WIDTH),
        };
        let ended = match row.verdict {
            Verdict::Pass | Verdict::Suspect => Ended::Passed,
            Verdict::NoPower if row.is_edge() => Ended::Passed,
            Verdict::Skipped => Ended::Skipped { why: row.reason.clone() },
            Verdict::Error => Ended::Error { message: row.reason.clone(), text: card() },
            Verdict::Fail | Verdict::NoPower => {
                let message = if row.finding.is_empty() { &row.reason } else { &row.finding };
                let named = if row.fault.is_empty() { String::new() } else { format!("{}: ", row.fault) };
                Ended::Failed { kind: row.verdict.as_str().into(), message: named + message, text: card() }
            }
        };
        Test {
            suite: row.sweep.to_string(),
            name: row.case.clone(),
            class: class(row.op, &row.kernel).into(),
            seconds: seconds.get(&row.case).copied().unwrap_or(0.0),
            ended,
        }
    };
    rows.iter().map(test).collect()
}

/// The kernel, or the op that no kernel took.
pub(super) fn class(op: Op, kernel: &str) -> &str {
    if kernel.is_empty() { op.name() } else { kernel }
}

/// The causes that rows failed of, each once.
pub fn causes(rows: &[Row]) -> Vec<Cause> {
    let failing = |a: &Attention| a.row.verdict.is_failure();
    let cause = |a: Attention| {
        let card = Card::of(a.row);
        let name = if card.name.is_empty() { a.row.verdict.words() } else { card.name.clone() };
        Cause { title: format!("qassay: {name}"), text: card.text(WIDTH), like: a.like() }
    };
    summary::attention(rows).into_iter().filter(failing).map(cause).collect()
}

/// A comment on a pull request: counts, then each cause once.
pub fn markdown(rows: &[Row]) -> String {
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    rows.iter().for_each(|r| *counts.entry(r.verdict).or_default() += 1);
    let failed = rows.iter().any(|r| r.verdict.is_failure());
    let words: Vec<String> = counts.iter().map(|(v, n)| format!("{n} {}", v.words())).collect();
    let worst = rows.iter().filter_map(|r| r.bound_ratio).filter(|x| x.is_finite()).max_by(f64::total_cmp);
    let worst = worst.map_or_else(String::new, |x| format!("; largest error over its bound {}", short(x)));
    let text = format!(
        "## qassay: {}\n\n{} cases: {}{worst}.\n",
        if failed { "failed" } else { "passed" },
        rows.len(),
        words.join(", ")
    );
    let fenced = |a: &Attention| {
        let card = Card::of(a.row).text(WIDTH);
        // A card may quote what users named: its fence is longer than any of theirs.
        let longest = card.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat((longest + 1).max(3));
        let like = if a.count > 1 { format!("\n{}.\n", a.like()) } else { String::new() };
        format!("\n{fence}text\n{card}{fence}\n{like}")
    };
    comment(text, &summary::attention(rows).iter().map(fenced).collect::<Vec<_>>())
}

#[cfg(test)]
pub(super) mod check {
    /// Tags balance, attributes are quoted, nothing is left bare: what makes XML well-formed, checked by hand. Returns the names
    /// of the elements in their order.
    pub fn elements(text: &str) -> Vec<String> {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Backend;

    fn rows() -> Vec<Row> {
        let of = |case: String, verdict, reason: &str| Row {
            case,
            verdict,
            reason: reason.into(),
            ..Row::new(Op::Gemm, Backend::Cpu)
        };
        let mut rows: Vec<Row> =
            (0..90).map(|i| of(format!("c{i}"), Verdict::Fail, &format!("({i}, 0) got {i}, may be 1"))).collect();
        for row in &mut rows {
            (row.fault, row.finding) = ("scale_shared:b".into(), "each column used the scale of the column before it".into());
            row.command = format!("qassay run x --case '{}'", row.case);
        }
        rows.push(of("<i>".into(), Verdict::Error, "it ended"));
        rows.push(of("s".into(), Verdict::Skipped, "no kernel"));
        rows.push(of("p".into(), Verdict::Pass, ""));
        rows
    }

    #[test]
    fn junit_has_times_cards_and_the_command() {
        let seconds = HashMap::from([("c3".to_string(), 1.5), ("p".to_string(), 0.25)]);
        let text = junit(&tests(&rows(), &seconds));
        let seen = check::elements(&text);
        let count = |n: &str| seen.iter().filter(|s| *s == n).count();
        assert_eq!((count("testcase"), count("failure"), count("error"), count("skipped")), (93, 90, 1, 1));
        assert!(text.contains("tests=\"93\" failures=\"90\" errors=\"1\" skipped=\"1\" time=\"1.750\""), "{}", &text[..300]);
        assert!(text.contains("name=\"c3\" classname=\"gemm\" time=\"1.500\""));
        assert!(
            text.contains("message=\"scale_shared:b: each column used")
                && text.contains("again: qassay run x --case &apos;c3&apos;")
        );
        // One card a cause, with its count; the other cases name the first.
        let cards = text.matches("FAIL  gemm").count();
        assert_eq!(
            (cards, text.matches("90 cases like this").count(), text.matches("the same cause as c0").count()),
            (1, 1, 89)
        );
    }

    #[test]
    fn a_cause_is_told_once() {
        let causes = causes(&rows());
        assert_eq!(causes.iter().map(|c| c.like.as_str()).collect::<Vec<_>>(), ["", "90 cases like this"]);
        let said = github(&causes);
        assert_eq!((said.lines().count(), said.matches("::error title=qassay%3A").count()), (2, 2), "{said}");
        assert!(said.contains("qassay%3A scale_shared%3Ab::FAIL") && said.contains("%0A90 cases like this"), "{said}");
        let text = markdown(&rows());
        assert!(text.contains("90 cases like this") && text.matches("scale_shared:b").count() == 1, "{text}");
    }

    #[test]
    fn a_comment_is_never_too_long() {
        let parts: Vec<String> = (0..3000).map(|i| format!("{i} {}\n", "x".repeat(90))).collect();
        let text = comment("head\n".into(), &parts);
        assert!(text.len() <= COMMENT && text.len() > COMMENT - 200, "{}", text.len());
        assert!(text.contains(" more; the report has all of them"));
        assert_eq!(comment("head\n".into(), &parts[..1]).lines().count(), 2);
    }
}
