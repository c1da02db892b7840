//! `index.html`: one file, no network, everything escaped by maud.

use super::summary::Attention;
use super::{Figure, head, json, summary};
use crate::assay::row::Row;
use crate::assay::table::Line;
use crate::compare::Verdict;
use crate::fault::card::Card;
use crate::run::totals::{Kept, Totals};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Columns of the table, in this order; the rest is in a row's details.
const SHOWN: [&str; 13] = [
    "verdict",
    "bound_ratio",
    "op",
    "recipe_a",
    "recipe_b",
    "accumulator",
    "m",
    "n",
    "k",
    "dist_a",
    "out",
    "quant_sqnr_db",
    "kernel_max_ulp",
];

pub fn html(kept: &Kept, figures: &[Figure], provenance: &str) -> String {
    let (rows, totals) = (kept.rows(), &kept.totals);
    let data: Vec<serde_json::Value> = rows.iter().map(compact).collect();
    let columns: Vec<_> = Row::columns()
        .iter()
        .map(|c| serde_json::json!({"name": c.name, "unit": c.unit, "help": c.help, "shown": SHOWN.iter().position(|s| *s == c.name)}))
        .collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head("qassay report", ""))
            body {
                header {
                    h1 { "qassay report" }
                    p { "Every case is computed four times and has three errors: what the format costs (quantization error), what the \
                         kernel adds (kernel error, judged against a bound derived from its arithmetic), and what a network sees (total)." }
                    (verdicts(totals))
                    p { (totals.rows) " cases: " (summary::agreement(totals)) "." }
                }
                (attention(rows))
                nav { @for f in figures { a href=(format!("#{}", f.id)) { (f.title) } } a href="#cases" { "All cases" } a href="#provenance" { "Provenance" } }
                main {
                    @for f in figures { (figure(f)) }
                    section #cases {
                        h2 { "All cases" }
                        p.see { "Click a heading to sort, a row for its details and the command that reproduces it (or Tab and Enter). The \
                                 filter takes words that must occur, and conditions on columns: " code { "gemm int4" } ", "
                            code { "verdict=fail" } ", " code { "bound_ratio>0.9 out=f16" } "."
                            @if !kept.is_whole() { " Here and in the figures are " (rows.len()) " of " (totals.rows) " rows, in equal steps and with what is no pass; all are in rows.csv." } }
                        div.tools {
                            input #filter type="search" placeholder="filter, e.g. gemm int4 bound_ratio>0.9" aria-label="filter";
                            span #count aria-live="polite" {}
                        }
                        div.wide { table #rows { thead {} tbody {} } }
                        button #more type="button" { "Show more" }
                        noscript { p { "The table needs JavaScript; the same rows are in rows.csv." } }
                    }
                    section #provenance { h2 { "Provenance" } pre { (provenance) } }
                }
                dialog #details { form method="dialog" { button { "Close" } } div {} }
                script #data type="application/json" { (PreEscaped(embed(&serde_json::json!({"columns": columns, "rows": data})))) }
                script { (PreEscaped(include_str!("assets/page.js"))) }
            }
        }
    };
    page.into_string()
}

/// A row as an array in the order of the columns: five digits of each number; the case's name left out of its command, the
/// codes out of all.
fn compact(row: &Row) -> serde_json::Value {
    let object = json(row);
    let value = |name: &str| match &object[name] {
        _ if name == "codes" => serde_json::Value::Null,
        serde_json::Value::Number(n) => n.as_f64().map_or(0.0, |x| format!("{x:.4e}").parse().unwrap_or(x)).into(),
        serde_json::Value::String(s) if name == "command" => s.replace(&row.case, "\u{1}").into(),
        other => other.clone(),
    };
    Row::columns().iter().map(|c| value(&c.name)).collect()
}

/// JSON that cannot close its script element.
fn embed(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn verdicts(totals: &Totals) -> Markup {
    html! {
        ul.verdicts {
            @for v in Verdict::ALL {
                @let n = totals.count(v);
                @if n > 0 {
                    li { a class=(v) href="#cases" data-filter=(format!("verdict={v}")) { b { (n) } " " (v.words()) } }
                }
            }
        }
    }
}

/// What failed or says little, with the command that shows it again.
fn attention(rows: &[Row]) -> Markup {
    const SHOWN: usize = 12;
    let all = summary::attention(rows);
    html! {
        @if !all.is_empty() {
            section #attention {
                h2 { "To look at" }
                @for a in all.iter().take(SHOWN) { (card(a)) }
                @if all.len() > SHOWN { p { (all.len() - SHOWN) " more kinds are in summary.md." } }
            }
        }
    }
}

/// One kind of what failed.
fn card(a: &Attention) -> Markup {
    let card = Card::of(a.row);
    html! {
        article class={ "card " (card.verdict) } {
            h3 {
                b class=(card.verdict) { (a.row.verdict.words()) } " " (card.title)
                @if !card.name.is_empty() { code.name { (card.name) } }
            }
            @if !card.finding.is_empty() { p.finding { (card.finding) } }
            @if !card.reason.is_empty() { p { (card.reason) } }
            @if !card.look.is_empty() { p { "look at: " (card.look) } }
            @if a.count > 1 { p { (a.count) " cases like this in table " code { (a.row.family) } } }
            pre { (card.again) }
        }
    }
}

fn figure(f: &Figure) -> Markup {
    html! {
        section id=(f.id) {
            h2 { (f.title) }
            p.see { (f.see) }
            div.charts {
                @for (title, svg) in &f.charts {
                    figure { @if !title.is_empty() { figcaption { (title) } } (PreEscaped(svg)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_are_columns() {
        assert!(SHOWN.iter().all(|name| Row::column(name).is_ok()));
    }
}
