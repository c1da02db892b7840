//! A comparison with a baseline, for people and for machines. Words what the comparison holds; computes no statistic.

use super::ci::{self, Cause, Ended, Test};
use super::short;
use crate::baseline::diff::{Change, Differences, Drift};
use crate::compare::Verdict;
use crate::fault::card::{Card, wrapped};
use std::collections::HashMap;

/// What is known of a case of the run after.
pub struct After {
    pub seconds: f64,
    pub card: Card,
}

/// The cases of the run after, by name.
pub type Run = HashMap<String, After>;

/// Those that need somebody's attention, worst first.
pub(super) fn notable(c: &Differences) -> Vec<&Drift> {
    use Change::*;
    let order = [Worse, Missing, NowSkipped, New, Better, OtherBits, Rejudged];
    order.iter().flat_map(|k| c.drifts.iter().filter(move |d| d.change == *k)).collect()
}

pub(super) fn counts(c: &Differences) -> String {
    let some = Change::ALL.iter().filter(|k| c.count(**k) > 0);
    let words: Vec<String> = some.map(|k| format!("{} {}", c.count(*k), k.name().replace('_', " "))).collect();
    if words.is_empty() { "no case".into() } else { words.join(", ") }
}

pub(super) fn facts(c: &Differences) -> Vec<String> {
    let clip = |s: &str| if s.is_empty() { "nothing".into() } else { s.chars().take(60).collect::<String>() };
    c.facts.iter().map(|(n, a, b)| format!("{n}: {} → {}", clip(a), clip(b))).collect()
}

/// A verdict; empty where the case is not on that side.
fn word(verdict: Option<Verdict>) -> &'static str {
    verdict.map_or("", Verdict::as_str)
}

/// The verdicts before and after, or the only one.
pub(super) fn verdicts(d: &Drift) -> String {
    match (word(d.before), word(d.after)) {
        (before, "") => before.into(),
        ("", after) => after.into(),
        (before, after) => format!("{before} → {after}"),
    }
}

/// For the terminal, lines of at most `width` characters: each cause once.
pub fn terminal(c: &Differences, after: &Run, width: usize) -> String {
    const SHOWN: usize = 12;
    let mut text = String::new();
    let alike = alike(c, after);
    for group in alike.iter().take(SHOWN) {
        text += &group.title(width);
        for line in group.lines().iter().chain(group.again()) {
            let width = if Some(line) == group.again() { usize::MAX } else { width.saturating_sub(6) };
            wrapped(line, width).iter().for_each(|l| text += &format!("      {l}\n"));
        }
    }
    if alike.len() > SHOWN {
        text += &format!("… and {} more causes\n", alike.len() - SHOWN);
    }
    let facts = facts(c);
    if !alike.is_empty() && !facts.is_empty() {
        text += &format!("what changed in the provenance:\n  {}\n", facts.join("\n  "));
    }
    text + &format!("{}: {}\n", if c.fails() { "drift" } else { "no drift" }, counts(c))
}

/// For a pull request: each cause once, and no longer than a comment may be.
pub fn markdown(c: &Differences, after: &Run) -> String {
    let mut text = format!("## qassay: {}\n\n{}\n", if c.fails() { "drift" } else { "no drift" }, counts(c));
    let alike = alike(c, after);
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
    let line = |group: &Group| {
        let d = group.first;
        let (name, before, after) = moved(d);
        let case = format!("`{}`", d.case.replace('`', "'"));
        let why = group.lines().join("; ");
        let fields = [d.change.name(), &group.count.to_string(), &case, &verdicts(d), &name, &before, &after, &why];
        format!("| {} |\n", fields.map(cell).join(" | "))
    };
    ci::comment(text, &alike.iter().map(line).collect::<Vec<_>>())
}

pub(super) fn moved(d: &Drift) -> (String, String, String) {
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

/// The cases as tests; what a case took and its card are in `after`, by the name of the case. The first case of a cause has its card, the
/// others name that case.
pub fn tests(c: &Differences, after: &Run) -> Vec<Test> {
    let first: HashMap<String, Group> = alike(c, after).into_iter().map(|g| (cause(g.first, g.card), g)).collect();
    let text = |d: &Drift, ran: &After| match first.get(&cause(d, failed(ran))) {
        Some(g) if g.first.case != d.case => format!("the same cause as {}\nagain: {}\n", g.first.case, ran.card.again),
        Some(g) if g.count > 1 => format!("{}{} cases like this\n", ran.card.text(ci::WIDTH), g.count),
        _ => ran.card.text(ci::WIDTH),
    };
    let test = |d: &Drift| {
        let ran = after.get(&d.case);
        let ended = match d.change {
            Change::Identical | Change::Rejudged => Ended::Passed,
            Change::Skipped => Ended::Skipped { why: String::new() },
            kind => Ended::Failed {
                kind: kind.name().into(),
                message: format!("{}; {}", verdicts(d), d.words),
                text: ran.map_or_else(|| d.words.clone(), |a| format!("{}\n{}", d.words, text(d, a))),
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

/// JUnit XML of a comparison.
pub fn junit(c: &Differences, after: &Run) -> String {
    ci::junit(&tests(c, after))
}

/// What drifted, each cause once.
pub fn causes(c: &Differences, after: &Run) -> Vec<Cause> {
    let told = |group: Group| Cause {
        title: format!("qassay: {}", group.first.change.name().replace('_', " ")),
        text: format!("{}\n{}", group.first.case, group.lines().join("\n")),
        like: if group.count > 1 { format!("{} cases like this", group.count) } else { String::new() },
    };
    alike(c, after).into_iter().filter(|g| g.first.change.fails()).map(told).collect()
}

/// Drifts of one cause.
pub(super) struct Group<'a> {
    pub first: &'a Drift,
    pub count: usize,
    /// Of the first, where the run after judged it.
    pub card: Option<&'a Card>,
}

impl Group<'_> {
    /// The name of the bug, where there is one.
    pub fn name(&self) -> &str {
        self.card.map_or("", |c| &c.name)
    }

    /// The change, the first case, how many are like it, the name of the bug: on one line where they fit.
    fn title(&self, width: usize) -> String {
        let like = if self.count == 1 { String::new() } else { format!("{} cases like this", self.count) };
        let head = format!("{:<12}{}", self.first.change.name(), self.first.case);
        let whole = [head.clone(), like.clone()].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(", ");
        let whole = [whole, self.name().to_string()].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join("  ");
        if whole.chars().count() <= width {
            return whole + "\n";
        }
        let below = [self.name().to_string(), like].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join("; ");
        if below.is_empty() { head + "\n" } else { format!("{head}\n      {below}\n") }
    }

    /// What was found, and what changed.
    pub fn lines(&self) -> Vec<String> {
        let found = self.card.map(|c| c.finding.clone()).filter(|f| !f.is_empty());
        let look = self.card.filter(|c| !c.look.is_empty()).map(|c| format!("look at: {}", c.look));
        found.into_iter().chain([self.first.words.clone()]).chain(look).collect()
    }

    /// The command that runs the first again.
    pub fn again(&self) -> Option<&String> {
        self.card.map(|c| &c.again).filter(|a| !a.is_empty())
    }
}

/// The card of a case that failed.
fn failed(after: &After) -> Option<&Card> {
    Some(&after.card).filter(|c| c.verdict.is_failure())
}

/// What makes drifts alike: the change and the name of the bug; where there is no name, the change, the kernel, the metric, and the words
/// but for their numbers. Of cases that one side alone has, the change and the words.
fn cause(d: &Drift, card: Option<&Card>) -> String {
    let words: String = d.words.chars().filter(|c| !c.is_ascii_hexdigit() && !"-+.".contains(*c)).collect();
    let metric = d.moved.as_ref().map_or("", |m| m.column);
    let change = d.change.name();
    match card.filter(|c| !c.name.is_empty() && c.name != "unknown") {
        None if matches!(d.change, Change::New | Change::Missing) => format!("{change} {words}"),
        Some(card) => format!("{change} {}", card.name),
        None => format!("{change} {} {metric} {} {words}", ci::class(d.op, &d.kernel), verdicts(d)),
    }
}

/// The notable drifts, those of one cause together: the first of each, and how many they are.
pub(super) fn alike<'a>(c: &'a Differences, after: &'a Run) -> Vec<Group<'a>> {
    let mut found: Vec<(String, Group)> = Vec::new();
    for d in notable(c) {
        let card = after.get(&d.case).and_then(failed);
        let key = cause(d, card);
        match found.iter_mut().find(|f| f.0 == key) {
            Some(f) => f.1.count += 1,
            None => found.push((key, Group { first: d, count: 1, card })),
        }
    }
    found.into_iter().map(|f| f.1).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ci::check::elements;
    use super::*;
    use crate::op::Op;
    use crate::run::facts::Facts;

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
        let after = After { seconds: 2.0, card: Card::new(Verdict::Fail, "<x>", "", None) };
        let text = junit(&c, &HashMap::from([(c.drifts[0].case.clone(), after)]));
        let seen = elements(&text);
        let count = |n: &str| seen.iter().filter(|s| *s == n).count();
        assert_eq!((count("testsuites"), count("testsuite"), count("testcase")), (1, 1, 9));
        assert_eq!((count("failure"), count("skipped")), (6, 1));
        assert!(text.contains("tests=\"9\" failures=\"6\" errors=\"0\" skipped=\"1\" time=\"18.000\""), "{text}");
        assert!(text.contains("FAIL  &lt;x&gt;"));
    }

    #[test]
    fn page_markdown_and_json_hold_no_live_text() {
        let c = hostile();
        let none = Run::new();
        let page = super::super::drift_page::page(&c, &none, &Facts::default());
        assert!(!page.contains("<script>alert") && !page.contains("<i>"));
        assert!(!markdown(&c, &none).contains("<script>"));
        let rows = markdown(&c, &none);
        for row in rows.lines().filter(|l| l.starts_with("| worse") || l.starts_with("| new")) {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 9, "{row}");
        }
        let twice = Differences { drifts: [c.drifts.clone(), c.drifts.clone()].concat(), facts: Vec::new() };
        assert_eq!(markdown(&twice, &none).matches("| worse | 2 |").count(), 1);
        assert_eq!(causes(&twice, &none).len(), causes(&c, &none).len());
        assert!(json_lines(&c).lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()));
        assert!(terminal(&c, &none, 100).contains("drift: 1 identical, 1 rejudged, 1 other bits"));
    }
    #[test]
    fn drifts_of_one_bug_are_one_cause() {
        let mut c = hostile();
        let worse = c.drifts.iter().find(|d| d.change == Change::Worse).unwrap().clone();
        let drift = |case: &str, words: &str| Drift { case: case.into(), words: words.into(), ..worse.clone() };
        c.drifts = vec![drift("first", "one metric"), drift("second", "another one"), drift("third", "another one")];
        let card = |name: &str| {
            let mut card = Card::new(Verdict::Fail, "title", "reason", None);
            (card.name, card.finding) = (name.into(), format!("what {name} does"));
            After { seconds: 0.0, card }
        };
        let after = Run::from([("first".into(), card("scale_shared:b")), ("second".into(), card("scale_shared:b"))]);
        let groups = alike(&c, &after);
        assert_eq!(groups.iter().map(|g| (g.name(), g.count)).collect::<Vec<_>>(), [("scale_shared:b", 2), ("", 1)]);
        let text = terminal(&c, &after, 60);
        assert!(
            text.starts_with("worse       first, 2 cases like this  scale_shared:b\n      what scale_shared:b does\n"),
            "{text}"
        );
        // Where they do not fit on a line the name of the bug stands below that of the case.
        let text = terminal(&c, &after, 40);
        assert!(text.starts_with("worse       first\n      scale_shared:b; 2 cases like this\n      what scale"), "{text}");
        assert!(markdown(&c, &after).contains("what scale_shared:b does; one metric"));
        let mut ran = Facts::default();
        ran.0.insert("revision".into(), "abc".into());
        let page = super::super::drift_page::page(&c, &after, &ran);
        assert!(page.contains("2 cases like this") && page.contains("abc"), "{page}");
    }
}
