//! The run in words: for the terminal and as Markdown.

use super::{Figure, short};
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

/// Rows that need somebody's attention, worst kind first.
fn notable(rows: &[Row]) -> Vec<&Row> {
    let kinds = ["fail", "error", "suspect"];
    let mut found: Vec<&Row> = kinds.iter().flat_map(|k| rows.iter().filter(move |r| r.get("verdict") == *k)).collect();
    found.extend(rows.iter().filter(|r| r.get("verdict") == "no_power" && r.get("edge") != "true"));
    found
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
    let mismatches: f64 = rows.iter().filter_map(|r| r.num("mismatches")).sum();
    let modelled = rows.iter().filter(|r| r.num("mismatches").is_some()).count();
    text += &format!(
        "\n{} cases in {seconds:.1} s; {} elements differ from the device model in {modelled} modelled cases\n",
        rows.len(),
        mismatches
    );
    for row in notable(rows).iter().take(10) {
        text += &format!(
            "{:<9}{}\n         {}\n         {}\n",
            row.get("verdict"),
            row.get("case"),
            row.get("reason"),
            row.get("command")
        );
    }
    let more = notable(rows).len().saturating_sub(10);
    if more > 0 {
        text += &format!("… and {more} more in rows.csv\n");
    }
    text
}

/// `summary.md`.
pub fn markdown(rows: &[Row], figures: &[Figure], provenance: &str) -> String {
    let mut text = format!(
        "# qassay run\n\n{} cases\n\n| op | {} | worst error/bound |\n|---|{}---:|\n",
        rows.len(),
        VERDICTS.join(" | "),
        "---:|".repeat(VERDICTS.len())
    );
    for (op, counts) in by_op(rows) {
        let cells = VERDICTS.map(|v| counts.get(v).map_or(String::new(), ToString::to_string)).join(" | ");
        let worst = largest(rows.iter().filter(|r| r.get("op") == op), "bound_ratio").map_or(String::new(), |w| short(w.1));
        text += &format!("| {op} | {cells} | {worst} |\n");
    }
    let notable = notable(rows);
    if !notable.is_empty() {
        text += "\n## To look at\n\n";
        for row in notable.iter().take(50) {
            text += &format!(
                "- **{}** `{}`: {}\n  `{}`\n",
                row.get("verdict"),
                row.get("case"),
                row.get("reason"),
                row.get("command")
            );
        }
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
