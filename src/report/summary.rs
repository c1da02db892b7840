//! The run in words: for the terminal and as Markdown.

use super::{Figure, grouped, short};
use crate::assay::row::Row;
use crate::compare::Verdict;
use crate::fault::card::{Card, SAME_HERE, wrapped};
use crate::order::Order as _;
use crate::run::sweeps::Outcome;
use crate::run::totals::{Kept, OpTotals, Totals};
use std::collections::HashMap;

/// Cases that need somebody's attention, alike ones together.
pub struct Attention<'a> {
    /// The first of them.
    pub row: &'a Row,
    pub count: usize,
    /// The tables of the sweep that have one.
    pub tables: Vec<&'a str>,
    /// The causes that they have by [`cause`]: several where two names may be one bug.
    pub causes: Vec<String>,
}

impl Attention<'_> {
    /// How many cases are like the first, itself among them, and where; empty where it is alone.
    pub fn like(&self) -> String {
        match (self.count, self.tables.as_slice()) {
            (1, _) => String::new(),
            (n, [""]) => format!("{n} cases like this"),
            // Bundles are of no table.
            (n, _) if self.row.sweep == "bundles" => format!("{n} cases like this"),
            (n, [table]) => format!("{n} cases like this, in table {table}"),
            (n, tables) => format!("{n} cases like this, in {} tables", tables.len()),
        }
    }
}

/// What makes cases alike, where one needs attention: the verdict and the name of the bug; without a name the table, the op and the reason
/// but for its numbers.
pub fn cause(row: &Row) -> Option<String> {
    let quiet = row.verdict <= Verdict::Pass || row.verdict == Verdict::NoPower && row.is_edge();
    let words = || row.reason.chars().filter(|c| !c.is_ascii_digit() && !"-+.".contains(*c)).collect::<String>();
    (!quiet).then(|| match row.fault.as_str() {
        "" => format!("{} {} {} {}", row.verdict, row.family, row.op.name(), words()),
        "unknown" => format!("{} {} {} unknown", row.verdict, row.family, row.op.name()),
        fault => format!("{} {fault}", row.verdict),
    })
}

/// Whether a row's finding says that another's fault would give the same result.
fn could_be(row: &Row, other: &Row) -> bool {
    let same = row.finding.strip_suffix(SAME_HERE).and_then(|f| f.rsplit("; ").next());
    !other.fault.is_empty() && same.is_some_and(|names| names.split([',', ' ']).any(|name| name == other.fault))
}

/// What needs attention, each cause once, worst kind first.
pub fn attention(rows: &[Row]) -> Vec<Attention<'_>> {
    let mut found: Vec<Attention> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (row, cause) in rows.iter().filter_map(|r| Some((r, cause(r)?))) {
        let place = *places.entry(cause.clone()).or_insert(found.len());
        match found.get_mut(place) {
            Some(a) => {
                a.count += 1;
                if !a.tables.contains(&row.family.as_str()) {
                    a.tables.push(&row.family);
                }
            }
            None => found.push(Attention { row, count: 1, tables: vec![&row.family], causes: vec![cause] }),
        }
    }
    // Two names that could as well be one bug are one.
    let mut kept: Vec<Attention> = Vec::new();
    for a in found {
        let same = |b: &&mut Attention| b.row.verdict == a.row.verdict && (could_be(a.row, b.row) || could_be(b.row, a.row));
        match kept.iter_mut().find(same) {
            Some(b) => {
                b.count += a.count;
                let more: Vec<&str> = a.tables.into_iter().filter(|t| !b.tables.contains(t)).collect();
                b.tables.extend(more);
                b.causes.extend(a.causes);
            }
            None => kept.push(a),
        }
    }
    let mut found = kept;
    found.order_by_key(|a| std::cmp::Reverse(a.row.verdict));
    found
}

/// `1 case`, `2 cases`.
pub(super) fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// How the kernels and the device models agree, how near the kernels came to their bounds, what no verdict can be had of.
pub fn agreement(t: &Totals) -> String {
    if t.modelled == 0 && t.over == 0 && t.worst().is_none() && t.edges == 0 {
        return "no result was held to a device model or a bound".into();
    }
    let models = match t.modelled {
        0 => "no case has a device model".to_string(),
        n if t.wrong == 0 && t.elements < t.all => format!(
            "all {} elements drawn from {} of {n} modelled cases equal their device model, bit for bit",
            grouped(t.elements as f64),
            grouped(t.all as f64)
        ),
        n if t.wrong == 0 => {
            format!("all {} elements of {n} modelled cases equal their device model, bit for bit", grouped(t.elements as f64))
        }
        n => format!(
            "{} of {} elements in {} of {n} modelled cases differ from their device model",
            grouped(t.wrong as f64),
            grouped(t.elements as f64),
            t.wrong_cases
        ),
    };
    let bounds = match t.worst() {
        None if t.over == 0 => "no case has a bound".to_string(),
        _ if t.over == 1 => "1 case is over its certain bound".to_string(),
        _ if t.over > 0 => format!("{} cases are over their certain bound", t.over),
        worst => format!("no error is over its certain bound (largest error/bound {})", short(worst.unwrap_or(0.0))),
    };
    let edges = t.edges;
    let edges = if edges > 0 { format!("; {edges} edge cases have no power, as the sweep allows") } else { String::new() };
    format!("{models}; {bounds}{edges}")
}

/// Verdicts of every op; columns of verdicts that no case has are left out, so that a terminal of 80 characters holds the rest.
fn counts(totals: &Totals) -> String {
    let of = |v: Verdict| totals.ops.iter().filter_map(move |op| op.verdicts.get(&v));
    let shown: Vec<(Verdict, usize)> = Verdict::ALL
        .into_iter()
        .filter(|v| of(*v).next().is_some())
        .map(|v| (v, of(v).map(|n| n.to_string().len()).chain([v.as_str().len()]).max().unwrap_or(0) + 2))
        .collect();
    let name = totals.ops.iter().map(|op| op.op.name().len()).chain(["op".len()]).max().unwrap_or(0);
    let line = |first: &str, cell: &dyn Fn(Verdict) -> String, last: &str| {
        let cells = shown.iter().map(|(v, width)| format!("{:>width$}", cell(*v))).collect::<String>();
        format!("{first:<name$}{cells}  {last}").trim_end().to_string() + "\n"
    };
    let head = line("op", &|v| v.to_string(), "worst error/bound");
    let row = |op: &OpTotals| {
        let cell = |v: Verdict| op.verdicts.get(&v).map_or("·".into(), ToString::to_string);
        line(op.op.name(), &cell, &op.worst.map_or(String::new(), short))
    };
    head + &totals.ops.iter().map(row).collect::<String>()
}

/// What a kernel engineer needs after a run: counts, how near the bounds, what failed and how to see it again.
pub fn terminal(outcome: &Outcome, seconds: f64, width: usize) -> String {
    let totals = &outcome.kept.totals;
    let mut text = counts(totals);
    let answer = format!("{} in {seconds:.1} s: {}", plural(totals.rows, "case"), agreement(totals));
    text += &format!("\n{}\n", wrapped(&answer, width).join("\n"));
    const SHOWN: usize = 8;
    let all = attention(outcome.kept.rows());
    for a in all.iter().take(SHOWN) {
        text += &format!("\n{}", Card::of(a.row).text(width));
        if a.count > 1 {
            let of = if outcome.kept.is_whole() {
                String::new()
            } else {
                format!(", in the {} rows that were kept", outcome.kept.rows().len())
            };
            text += &format!("{:6}{}{of}\n", "", a.like());
        }
    }
    if all.len() > SHOWN {
        text += &format!("\n… and {} more causes; summary.md lists them\n", all.len() - SHOWN);
    }
    text
}

/// `summary.md`.
pub fn markdown(kept: &Kept, figures: &[Figure], provenance: &str) -> String {
    let mut text = format!(
        "# qassay run\n\n{} cases: {}.\n\n| op | {} | worst error/bound |\n|---|{}---:|\n",
        kept.totals.rows,
        agreement(&kept.totals),
        Verdict::ALL.map(Verdict::as_str).join(" | "),
        "---:|".repeat(Verdict::ALL.len())
    );
    for op in &kept.totals.ops {
        let cells = Verdict::ALL.map(|v| op.verdicts.get(&v).map_or(String::new(), ToString::to_string)).join(" | ");
        text += &format!("| {} | {cells} | {} |\n", op.op.name(), op.worst.map_or(String::new(), short));
    }
    let all = attention(kept.rows());
    if !all.is_empty() {
        text += "\n## To look at\n\n";
    }
    for a in &all {
        let like = if a.count > 1 { format!(" ({})", a.like()) } else { String::new() };
        let card = Card::of(a.row);
        let name = if card.name.is_empty() { String::new() } else { format!(" `{}`", card.name) };
        text += &format!("- **{}** {}{name}{like}\n", card.verdict, card.title);
        let lines = Card { again: String::new(), ..card.clone() }.lines();
        lines.iter().for_each(|line| text += &format!("  - {line}\n"));
        text += &format!("  - `{}`\n", card.again);
    }
    if !kept.totals.skipped.is_empty() {
        text += "\n## Skipped\n\n";
        for (reason, n) in &kept.totals.skipped {
            text += &format!("- {n} × {reason}\n");
        }
    }
    text += "\n## Figures\n";
    if !kept.is_whole() {
        text += &format!("\nOf {} rows, in equal steps; the counts above are of all.\n", kept.rows().len());
    }
    for f in figures {
        text += &format!("\n### {}\n\n{}\n\n", f.title, f.see);
        for (i, (title, _)) in f.charts.iter().enumerate() {
            let part = if f.charts.len() > 1 { format!("-{}", i + 1) } else { String::new() };
            text += &format!("![{}](figures/{}{part}.svg)\n", if title.is_empty() { f.title } else { title }, f.id);
        }
    }
    text + &format!("\n## Provenance\n\n```text\n{provenance}```\n")
}
