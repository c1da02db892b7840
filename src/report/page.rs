//! `index.html`: one file, no network, everything escaped by maud.

use super::summary::Attention;
use super::{Figure, figures, head, json, plot, summary};
use crate::assay::row::Row;
use crate::assay::table::Line;
use crate::compare::Verdict;
use crate::fault::card::Card;
use crate::run::totals::{Kept, Totals};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::HashMap;

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

/// What ran, for a page's title and first lines: from its rows and its provenance, one `key: value` a line.
struct Ran<'a> {
    /// Sweeps, or bundles.
    what: String,
    device: String,
    provenance: &'a str,
}

impl<'a> Ran<'a> {
    fn of(rows: &[Row], provenance: &'a str) -> Self {
        let mut sweeps: Vec<&str> = Vec::new();
        for row in rows {
            if !sweeps.contains(&row.sweep.as_str()) {
                sweeps.push(&row.sweep);
            }
        }
        let bundles = sweeps == ["bundles"];
        let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
        let what = match rows {
            [] => "no case".into(),
            [row] if bundles => file(&row.case),
            _ if bundles => format!("{} bundles", rows.len()),
            _ => sweeps.join(", "),
        };
        let device = match rows.first() {
            Some(row) if !bundles => {
                let device = fact(provenance, "device").unwrap_or(&row.device);
                let backend = row.backend.name();
                if device == backend { backend.to_string() } else { format!("{backend}, {device}") }
            }
            // Bundles may say where they are from.
            Some(row) if rows.iter().all(|r| r.device == row.device) => row.device.clone(),
            _ => String::new(),
        };
        Self { what, device, provenance }
    }

    fn fact(&self, key: &str) -> Option<&'a str> {
        fact(self.provenance, key)
    }

    /// The heading: what, and on what.
    fn heading(&self) -> String {
        if self.device.is_empty() { self.what.clone() } else { format!("{} on {}", self.what, self.device) }
    }
}

/// The value of a key in a provenance.
pub(super) fn fact<'a>(provenance: &'a str, key: &str) -> Option<&'a str> {
    provenance.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(": "))
}

/// What ran, in the order of its facts, without those that nobody knows; a command as it is typed.
pub(super) fn ran(facts: &[(&str, &str)]) -> Markup {
    html! {
        p.ran {
            @for (key, fact) in facts.iter().filter(|f| !f.1.is_empty()) {
                @if *key == "command" { code { @for word in fact.split(' ') { span { (word) } " " } } } @else { (said(key, fact)) " " }
            }
        }
    }
}

/// The command that does a case again, with a button that copies it. `assets/copy.js` does.
pub(super) fn again(command: &str) -> Markup {
    html! { div.again { pre { (command) } button.copy type="button" { "Copy" } } }
}

/// A fact of the first line. A revision that there is none of is a sentence of its own.
fn said(key: &str, fact: &str) -> Markup {
    let alone = fact.starts_with("built from ");
    html! { span { @if !alone { (key) " " } b { (fact) } } }
}

/// The answer in a few words.
fn answer(totals: &Totals) -> String {
    let only = Verdict::ALL.into_iter().find(|v| totals.count(*v) == 1).filter(|_| totals.rows == 1);
    if let Some(verdict) = only {
        return match verdict {
            Verdict::Pass => "It passes".into(),
            Verdict::Suspect => "It passes, but is suspect".into(),
            Verdict::Fail => "It fails".into(),
            Verdict::NoPower => "It could not have failed: no power".into(),
            Verdict::Error => "It ended in an error".into(),
            Verdict::Skipped => "It was skipped".into(),
        };
    }
    let of = |n: usize, words: &str| format!("{n} of {} cases {words}", totals.rows);
    match (totals.count(Verdict::Fail), totals.count(Verdict::Error)) {
        (0, 0) if totals.count(Verdict::Pass) + totals.count(Verdict::Suspect) == 0 => "No case passed, none failed".into(),
        (0, 0) => of(totals.count(Verdict::Pass) + totals.count(Verdict::Suspect), "pass, none fails"),
        (0, errors) => of(errors, "ended in an error, none fails"),
        (failed, 0) => of(failed, if failed == 1 { "fails" } else { "fail" }),
        (failed, errors) => of(failed, &format!("fail, {errors} ended in an error")),
    }
}

pub fn html(kept: &Kept, figures: &[Figure], provenance: &str) -> String {
    let (rows, totals) = (kept.rows(), &kept.totals);
    let ran = Ran::of(rows, provenance);
    let failed = totals.count(Verdict::Fail) + totals.count(Verdict::Error) > 0;
    let (kernels, studies): (Vec<&Figure>, Vec<&Figure>) = figures.iter().partition(|f| figures::study(f.id).is_none());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{}: {} · qassay", ran.heading(), answer(totals)), ""))
            body {
                header {
                    h1 { (breakable(&ran.heading())) }
                    (self::ran(&["date", "revision", "qassay", "command"].map(|key| (key, ran.fact(key).unwrap_or("")))))
                    p class={ "answer " (if failed { "fail" } else { "pass" }) } { (answer(totals)) "." }
                    @if totals.rows > 1 { (verdicts(totals)) }
                    @if totals.rows > 1 { p { (totals.rows) " cases: " (summary::agreement(totals)) "." } }
                }
                main {
                    (attention(rows))
                    nav aria-label="Parts of the page" {
                        a href="#cases" { (all_cases(totals.rows)) }
                        @for f in kernels.iter().chain(&studies) { a href=(format!("#{}", f.id)) { (f.title) } }
                        a href="#provenance" { "Provenance" }
                    }
                    // One case needs no table to be found in.
                    @if totals.rows > 1 { (cases(kept)) }
                    @for f in kernels { (figure(f, rows)) }
                    @if totals.rows <= 1 { (cases(kept)) }
                    @for f in studies { (figure(f, rows)) }
                    section #provenance {
                        h2 { "Provenance" }
                        p.see { "Every case is computed four times and has three errors: what the format costs (quantization error), what the \
                                 kernel adds (kernel error, judged by a bound that follows from its arithmetic), and what a network sees (total)." }
                        pre { (provenance) }
                    }
                }
                dialog #details aria-label="One case" { form method="dialog" { button { "Close" } } div {} }
                script #data type="application/json" { (PreEscaped(embed(&packed(rows)))) }
                script { (PreEscaped(include_str!("assets/copy.js"))) }
                script { (PreEscaped(include_str!("assets/page.js"))) }
            }
        }
    };
    page.into_string()
}

/// What the table's part is called.
fn all_cases(rows: usize) -> &'static str {
    if rows > 1 { "All cases" } else { "The case" }
}

/// The table, its filter, its columns.
fn cases(kept: &Kept) -> Markup {
    let (rows, all) = (kept.rows().len(), kept.totals.rows);
    html! {
        section #cases {
            h2 { (all_cases(all)) }
            @if all <= 1 { p.see { "Click the row for all its numbers." } }
            @else { p.see { "The worst come first. Click a heading to sort, a row for its details and the command that does it again (or Tab and \
                     Enter). The filter takes words that must occur and conditions on columns, with = != > >= < <= and ~ (contains): "
                code { "gemm int4" } ", " code { "verdict!=pass" } ", " code { "bound_ratio>=0.9 recipe_a~te_" } ". The page's address keeps \
                     what you chose."
                @if !kept.is_whole() { " Here and in the figures are " (rows) " of " (all) " rows, in equal steps and with what is no pass; all are in rows.csv." } } }
            div.tools hidden[all <= 1] {
                input #filter type="search" placeholder="filter, e.g. gemm int4 bound_ratio>0.9" aria-label="filter" aria-describedby="wrong" autocomplete="off" spellcheck="false";
                span #count aria-live="polite" {}
                button #save type="button" { "Save as CSV" }
            }
            p #wrong.fail role="alert" {}
            details.columns hidden[all <= 1] { summary { "Columns" } div #pick {} }
            div.wide tabindex="0" role="region" aria-label="All cases" { table #rows { thead {} tbody {} } }
            button #more type="button" { "Show more" }
            noscript { p { "The table needs JavaScript; the same rows are in rows.csv." } }
        }
    }
}

/// Every column with its values: one value where all rows have the same, each distinct value once where they repeat.
fn packed(rows: &[Row]) -> serde_json::Value {
    // A bundle is known by its file; what its data is drawn from, nobody says.
    let bundles = !rows.is_empty() && rows.iter().all(|r| r.sweep == "bundles");
    let shown = SHOWN.map(|name| if bundles && name == "dist_a" { "case" } else { name });
    let rows: Vec<Vec<serde_json::Value>> = rows.iter().map(compact).collect();
    let column = |(i, c): (usize, &crate::assay::table::Column<Row>)| {
        let mut column = serde_json::json!({"name": c.name, "unit": c.unit, "help": c.help, "shown": shown.iter().position(|s| *s == c.name)});
        let (mut values, mut at) = (Vec::new(), Vec::new());
        let mut seen: HashMap<String, usize> = HashMap::new();
        for row in &rows {
            let place = *seen.entry(row[i].to_string()).or_insert_with(|| {
                values.push(row[i].clone());
                values.len() - 1
            });
            at.push(place);
        }
        match values.len() {
            0 | 1 => column["same"] = values.pop().unwrap_or_default(),
            n if n <= rows.len() / 2 => (column["values"], column["at"]) = (values.into(), at.into()),
            _ => column["each"] = rows.iter().map(|r| r[i].clone()).collect(),
        }
        column
    };
    let mut verdicts = Verdict::ALL;
    verdicts.sort();
    let columns: Vec<_> = Row::columns().iter().enumerate().map(column).collect();
    serde_json::json!({"columns": columns, "count": rows.len(), "verdicts": verdicts.map(Verdict::as_str)})
}

/// A row as an array in the order of the columns: five digits of each number; the case's name left out of its command, K out of an op that
/// has none, the codes out of all.
fn compact(row: &Row) -> Vec<serde_json::Value> {
    let object = json(row);
    let value = |name: &str| match &object[name] {
        _ if name == "codes" || name == "k" && !row.op.is_product() => serde_json::Value::Null,
        serde_json::Value::Number(n) => {
            let x: f64 = n.as_f64().map_or(0.0, |x| format!("{x:.4e}").parse().unwrap_or(x));
            // A whole number needs no `.0`.
            if x.fract() == 0.0 && x.abs() < 1e15 { (x as i64).into() } else { x.into() }
        }
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
                    li { a class=(v) href=(format!("#filter=verdict%3D{v}")) data-filter=(format!("verdict={v}")) { b { (n) } " " (v.words()) } }
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
                @if all.len() > SHOWN { p { (all.len() - SHOWN) " more causes are in summary.md." } }
            }
        }
    }
}

/// One cause of what failed.
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
            @if a.count > 1 { p { (a.like()) } }
            @if !card.again.is_empty() { (again(&card.again)) }
        }
    }
}

/// A name that may break behind the signs that names are made of, and not in a word.
fn breakable(text: &str) -> Markup {
    html! { @for (nth, part) in text.split_inclusive(['/', '_', '+', '>']).enumerate() { @if nth > 0 { wbr; } (part) } }
}

/// A figure; the study of recipes is folded, unless something failed.
fn figure(f: &Figure, rows: &[Row]) -> Markup {
    let seen = format!("{}-see", f.id);
    let charts = html! {
        p.see id=(seen) { (f.see) }
        div.charts {
            @for (title, svg) in &f.charts {
                @let name = if title.is_empty() { f.title } else { title };
                @let case = title.split(": ").next().filter(|t| rows.iter().any(|r| r.case == *t));
                figure.broad[f.slim.is_some()] tabindex="0" {
                    @if let Some(case) = case { figcaption { a href=(format!("#case={case}")) data-case=(case) { (breakable(title)) } } }
                    @else if !title.is_empty() { figcaption { (breakable(title)) } }
                    (PreEscaped(plot::named(svg, name, &seen)))
                }
            }
            @if let Some(svg) = &f.slim { figure.slim { (PreEscaped(plot::named(svg, f.title, &seen))) } }
        }
    };
    let study = figures::study(f.id);
    html! {
        section id=(f.id) {
            @if let Some(family) = study { details open[rows.iter().any(|r| r.family == family && r.verdict.is_failure())] { summary { h2 { (f.title) } } (charts) } }
            @else { h2 { (f.title) } (charts) }
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

    #[test]
    fn bundles_are_told_apart_by_their_files() {
        let shown = |sweep: &str| {
            let row = Row { sweep: sweep.into(), ..Row::new(crate::op::Op::Gemm, crate::kernel::Backend::Cuda) };
            let data = packed(&[row]);
            let columns = data["columns"].as_array().unwrap().iter().filter(|c| !c["shown"].is_null());
            columns.map(|c| c["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        let (bundles, cases) = (shown("bundles"), shown("smoke"));
        assert!(bundles.contains(&"case".into()) && !bundles.contains(&"dist_a".into()), "{bundles:?}");
        assert!(!cases.contains(&"case".into()) && cases.contains(&"dist_a".into()) && cases.len() == bundles.len());
    }

    #[test]
    fn the_title_says_what_ran_and_the_answer() {
        let row = |case: &str, verdict| Row {
            case: case.into(),
            sweep: "smoke".into(),
            device: "a GPU".into(),
            verdict,
            command: format!("qassay run smoke --case '{case}'"),
            ..Row::new(crate::op::Op::Gemm, crate::kernel::Backend::Cuda)
        };
        let page = |rows: Vec<Row>| html(&rows.into_iter().collect(), &[], "date: today\ncommand: qassay run smoke\n");
        let right = page(vec![row("a", Verdict::Pass), row("b", Verdict::Pass)]);
        assert!(right.contains("<title>smoke on cuda, a GPU: 2 of 2 cases pass, none fails · qassay</title>"), "{right}");
        assert!(right.contains("<h1>smoke on cuda, a GPU</h1>") && right.contains("date <b>today</b>"));
        let wrong = page(vec![row("a", Verdict::Pass), row("b", Verdict::Fail)]);
        assert!(wrong.contains("<p class=\"answer fail\">1 of 2 cases fails.</p>"), "{wrong}");
        let bundle = Row { sweep: "bundles".into(), ..row("some/out.safetensors", Verdict::Pass) };
        let single = page(vec![bundle]);
        assert!(single.contains("<h1>out.safetensors on a GPU</h1>") && single.contains("It passes."), "{single}");
    }

    /// A column is unpacked as `page.js` does it.
    #[test]
    fn what_is_packed_is_whole() {
        let row = |i: usize| Row {
            case: format!("c{i}"),
            m: i,
            n: 7,
            k: i % 2,
            bound_ratio: (i > 3).then_some(i as f64 / 3.0),
            ..Row::new(crate::op::Op::Gemm, crate::kernel::Backend::Cpu)
        };
        let rows: Vec<Row> = (0..10).map(row).collect();
        let data = packed(&rows);
        let mut kinds = [0; 3];
        for (c, column) in data["columns"].as_array().unwrap().iter().enumerate() {
            for (i, row) in rows.iter().enumerate() {
                let (value, kind) = match (column.get("same"), column.get("at")) {
                    (Some(same), _) => (same, 0),
                    (None, Some(at)) => (&column["values"][at[i].as_u64().unwrap() as usize], 1),
                    _ => (&column["each"][i], 2),
                };
                assert_eq!(*value, compact(row)[c], "{column}");
                kinds[kind] += 1;
            }
        }
        assert!(kinds.iter().all(|n| *n > 0), "{kinds:?}");
    }
}
