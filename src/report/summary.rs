//! The run in words: for the terminal and as Markdown.

use super::{Figure, grouped, short};
use crate::sweep::row::Row;
use crate::sweep::run::Outcome;
use std::collections::BTreeMap;

const VERDICTS: [&str; 6] = ["pass", "suspect", "fail", "no_power", "error", "skipped"];

/// Verdicts of each op, in the order of the rows.
fn by_op(rows: &[Row]) -> Vec<(&str, BTreeMap<&str, usize>)> {
    let mut ops: Vec<(&str, BTreeMap<&str, usize>)> = Vec::new();
    for row in rows {
        let op = row.get("op");
        let i = ops.iter().position(|o| o.0 == op).unwrap_or_else(|| {
            ops.push((op, BTreeMap::new()));
            ops.len() - 1
        });
        *ops[i].1.entry(row.get("verdict")).or_default() += 1;
    }
    ops
}

/// Largest value of a column over some rows, with the row.
fn largest<'a>(rows: impl Iterator<Item = &'a Row>, column: &str) -> Option<(&'a Row, f64)> {
    rows.filter_map(|r| Some((r, r.num(column).filter(|x| x.is_finite())?))).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Cases that need somebody's attention, alike ones together.
pub struct Attention<'a> {
    /// The first of them.
    pub row: &'a Row,
    pub count: usize,
}

/// What needs attention, worst kind first. Cases of one table whose reasons differ in numbers only are alike.
pub fn attention(rows: &[Row]) -> Vec<Attention<'_>> {
    let mut found: Vec<(String, Attention)> = Vec::new();
    for kind in ["fail", "error", "suspect", "no_power"] {
        for row in rows.iter().filter(|r| r.get("verdict") == kind && (kind != "no_power" || r.get("edge") != "true")) {
            let reason: String = row.get("reason").chars().filter(|c| !c.is_ascii_digit() && !"-+.".contains(*c)).collect();
            let key = format!("{kind} {} {} {reason}", row.get("family"), row.get("op"));
            match found.iter_mut().find(|f| f.0 == key) {
                Some(f) => f.1.count += 1,
                None => found.push((key, Attention { row, count: 1 })),
            }
        }
    }
    found.into_iter().map(|f| f.1).collect()
}

/// How the kernels and the device models agree, how near the kernels came to their bounds, what no verdict can be had of.
pub fn agreement(rows: &[Row]) -> String {
    let modelled: Vec<&Row> = rows.iter().filter(|r| r.num("mismatches").is_some()).collect();
    let elements: f64 = modelled.iter().filter_map(|r| r.num("kernel_count")).sum();
    let wrong: f64 = modelled.iter().filter_map(|r| r.num("mismatches")).sum();
    let cases = modelled.iter().filter(|r| r.num("mismatches") != Some(0.0)).count();
    let models = match modelled.len() {
        0 => "no case has a device model".to_string(),
        n if wrong == 0.0 => {
            format!("all {} elements of {n} modelled cases are their device model's, bit for bit", grouped(elements))
        }
        n => format!(
            "{} of {} elements in {cases} of {n} modelled cases differ from their device model",
            grouped(wrong),
            grouped(elements)
        ),
    };
    let over = rows.iter().filter(|r| r.num("bound_ratio").is_some_and(|x| !(x <= 1.0))).count();
    let bounds = match largest(rows.iter(), "bound_ratio") {
        None => "no case has a bound".to_string(),
        Some(_) if over > 0 => format!("{over} cases are over their certain bound"),
        Some((_, x)) => format!("no error is over its certain bound (largest error/bound {})", short(x)),
    };
    let edges = rows.iter().filter(|r| r.get("verdict") == "no_power" && r.get("edge") == "true").count();
    let edges = if edges > 0 { format!("; {edges} edge cases have no power, as the sweep allows") } else { String::new() };
    format!("{models}; {bounds}{edges}")
}

/// What a kernel engineer needs after a run: counts, how near the bounds, what failed and how to see it again.
pub fn terminal(outcome: &Outcome, seconds: f64) -> String {
    let rows = &outcome.rows;
    let mut text = format!("{:<28}{}\n", "op", VERDICTS.map(|v| format!("{v:>9}")).concat() + "  worst error/bound");
    for (op, counts) in by_op(rows) {
        let cells = VERDICTS.map(|v| counts.get(v).map_or(format!("{:>9}", "·"), |n| format!("{n:>9}"))).concat();
        let worst = largest(rows.iter().filter(|r| r.get("op") == op), "bound_ratio").map_or(String::new(), |w| short(w.1));
        text += &format!("{op:<28}{cells}  {worst}\n");
    }
    text += &format!("\n{} cases in {seconds:.1} s: {}\n", rows.len(), agreement(rows));
    const SHOWN: usize = 8;
    let all = attention(rows);
    for a in all.iter().take(SHOWN) {
        text += &format!("\n{:<9}{}\n", a.row.get("verdict"), a.row.get("reason"));
        text += &format!("{:9}{}\n", "", a.row.get("command"));
        if a.count > 1 {
            text += &format!("{:9}and {} more like it in table `{}`\n", "", a.count - 1, a.row.get("family"));
        }
    }
    if all.len() > SHOWN {
        text += &format!("\n… and {} more kinds; summary.md lists them\n", all.len() - SHOWN);
    }
    text
}

/// `summary.md`.
pub fn markdown(rows: &[Row], figures: &[Figure], provenance: &str) -> String {
    let mut text = format!(
        "# qassay run\n\n{} cases: {}.\n\n| op | {} | worst error/bound |\n|---|{}---:|\n",
        rows.len(),
        agreement(rows),
        VERDICTS.join(" | "),
        "---:|".repeat(VERDICTS.len())
    );
    for (op, counts) in by_op(rows) {
        let cells = VERDICTS.map(|v| counts.get(v).map_or(String::new(), ToString::to_string)).join(" | ");
        let worst = largest(rows.iter().filter(|r| r.get("op") == op), "bound_ratio").map_or(String::new(), |w| short(w.1));
        text += &format!("| {op} | {cells} | {worst} |\n");
    }
    let all = attention(rows);
    if !all.is_empty() {
        text += "\n## To look at\n\n";
    }
    for a in &all {
        let like = if a.count > 1 {
            format!(" ({} cases like this in table `{}`)", a.count, a.row.get("family"))
        } else {
            String::new()
        };
        text += &format!("- **{}** {}{like}\n  `{}`\n", a.row.get("verdict"), a.row.get("reason"), a.row.get("command"));
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    rows.iter().filter(|r| r.get("verdict") == "skipped").for_each(|r| *reasons.entry(r.get("reason")).or_default() += 1);
    if !reasons.is_empty() {
        text += "\n## Skipped\n\n";
        for (reason, n) in reasons {
            text += &format!("- {n} × {reason}\n");
        }
    }
    text += "\n## Figures\n";
    for f in figures {
        text += &format!("\n### {}\n\n{}\n\n", f.title, f.see);
        for (i, (title, _)) in f.charts.iter().enumerate() {
            let part = if f.charts.len() > 1 { format!("-{}", i + 1) } else { String::new() };
            text += &format!("![{}](figures/{}{part}.svg)\n", if title.is_empty() { f.title } else { title }, f.id);
        }
    }
    text + &format!("\n## Provenance\n\n```text\n{provenance}```\n")
}
