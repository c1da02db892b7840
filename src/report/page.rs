//! `index.html`: one file, no network, everything escaped by maud.

use super::{Figure, json};
use crate::sweep::row::{COLUMNS, Row};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Columns of the table; the rest is in a row's details.
const SHOWN: [&str; 13] = [
    "verdict",
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
    "bound_ratio",
];

/// More rows than this are left to `rows.csv`: a page has to open.
const MOST: usize = 20_000;

pub fn html(rows: &[Row], figures: &[Figure], provenance: &str) -> String {
    let shown = &rows[..rows.len().min(MOST)];
    let data: Vec<serde_json::Value> = shown.iter().map(json).collect();
    let columns: Vec<_> = COLUMNS
        .iter()
        .map(|c| serde_json::json!({"name": c.name, "unit": c.unit, "help": c.help, "shown": SHOWN.contains(&c.name.as_str())}))
        .collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "qassay report" }
                link rel="icon" href="data:,";
                style { (PreEscaped(include_str!("assets/page.css"))) }
            }
            body {
                header {
                    h1 { "qassay report" }
                    p { "Four results of every case, three errors between them: what the format costs (quantization error), what the \
                         kernel costs (kernel error, judged against a bound derived from its arithmetic), and what a network sees (total)." }
                    (verdicts(rows))
                }
                nav { @for f in figures { a href=(format!("#{}", f.id)) { (f.title) } } a href="#cases" { "All cases" } }
                main {
                    @for f in figures { (figure(f)) }
                    section #cases {
                        h2 { "All cases" }
                        p.see { "Click a heading to sort, a row for its details and the command that reproduces it."
                            @if rows.len() > MOST { " The first " (MOST) " of " (rows.len()) " rows are here; all are in rows.csv." } }
                        div.tools {
                            input #filter type="search" placeholder="filter: words that must occur, e.g. gemm te_block fail" aria-label="filter";
                            span #count {}
                        }
                        div.wide { table #rows { thead {} tbody {} } }
                        button #more type="button" { "Show more" }
                        noscript { p { "The table needs JavaScript; the same rows are in rows.csv." } }
                    }
                    section { h2 { "Provenance" } pre { (provenance) } }
                }
                dialog #details { form method="dialog" { button { "Close" } } div {} }
                script #data type="application/json" { (PreEscaped(embed(&serde_json::json!({"columns": columns, "rows": data})))) }
                script { (PreEscaped(include_str!("assets/page.js"))) }
            }
        }
    };
    page.into_string()
}

/// JSON that cannot close its script element.
fn embed(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn verdicts(rows: &[Row]) -> Markup {
    html! {
        ul.verdicts {
            @for v in ["pass", "suspect", "fail", "no_power", "error", "skipped"] {
                @let n = rows.iter().filter(|r| r.get("verdict") == v).count();
                @if n > 0 { li class=(v) { b { (n) } " " (v.replace('_', " ")) } }
            }
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
