//! Rows as a sortable table, and the pictures people ask of them.

use super::numbers::gain;
use super::{Chart, Show, Table, badge};
use crate::assay::row::{Row, short};
use crate::assay::table::{Column, Line};
use crate::baseline::diff::{self, Change, Differences, Drift};
use crate::compare::Verdict;
use crate::report;
use crate::report::plot::Scale;
use crate::sweep::builder::Rows;
use crate::{Error, Result};
use maud::html;

/// Columns shown where they differ between rows, after the verdict.
const SHOWN: [&str; 21] = [
    "op",
    "act",
    "recipe_a",
    "recipe_b",
    "group",
    "granularity",
    "accumulator",
    "m",
    "n",
    "k",
    "rows",
    "dtype",
    "out",
    "dist_a",
    "offset",
    "bias",
    "quant_sqnr_db",
    "kernel_sqnr_db",
    "bound_ratio",
    "mismatches",
    "power_gain",
];

/// Rows of a table before it is cut.
const MOST: usize = 60;

fn cell(row: &Row, column: &Column<Row>) -> String {
    match column.number(row) {
        Some(x) if column.name == "power_gain" => gain(x),
        Some(x) => short(x),
        None => column.text(row),
    }
}

/// What a reader calls a column, and the unit of its numbers.
fn words(c: &'static Column<Row>) -> (String, &'static str) {
    const WORDS: [(&str, &str, &str); 16] = [
        ("m", "M", "rows"),
        ("n", "N", "columns"),
        ("k", "K", "elements"),
        ("group", "group size", "elements along K"),
        ("offset", "offset", "multiples of the data's root mean square"),
        ("recipe_a", "recipe of A", ""),
        ("recipe_b", "recipe of B", ""),
        ("dist_a", "data of A", ""),
        ("dist_b", "data of B", ""),
        ("act", "activation", ""),
        ("out", "output", ""),
        ("bound_ratio", "largest error / certain bound", ""),
        ("probable_ratio", "largest error / probable bound", ""),
        ("power_gain", "smallest gain that would fail", ""),
        ("power_group_gain", "smallest gain of one scale that would fail", ""),
        ("power_flip_rate", "smallest share of wrong codes that would fail", ""),
    ];
    if let Some((_, words, unit)) = WORDS.iter().find(|w| w.0 == c.name) {
        return (words.to_string(), unit);
    }
    let errors = [("quant_", "quantization error"), ("kernel_", "kernel error"), ("total_", "total error")];
    let unit = if c.unit == "1" { "" } else { c.unit };
    match errors.iter().find_map(|(prefix, error)| Some((c.name.strip_prefix(prefix)?, *error))) {
        Some(("sqnr_db", error)) => (format!("SQNR of the {error}"), unit),
        Some(("rel_frobenius", error)) => (format!("{error}, relative Frobenius"), unit),
        Some((metric, error)) => (format!("{error}, {}", metric.replace('_', " ")), unit),
        None => (c.name.replace('_', " "), unit),
    }
}

/// The columns of these names. Errors: one does not exist.
fn named(names: &[&str]) -> Result<Vec<&'static Column<Row>>> {
    names.iter().map(|n| Row::column(n)).collect()
}

impl Rows {
    /// The columns that say something: measurements, and coordinates that differ.
    fn columns(&self) -> Vec<&'static Column<Row>> {
        let measured = |n: &str| n.contains("sqnr") || ["bound_ratio", "mismatches", "power_gain"].contains(&n);
        let differs = |c: &Column<Row>| self.iter().any(|r| c.text(r) != c.text(&self[0]));
        let some = |c: &Column<Row>| self.iter().any(|r| !c.text(r).is_empty());
        let shown = named(&SHOWN).expect("columns of ours");
        shown.into_iter().filter(|c| if measured(&c.name) { some(c) } else { differs(c) }).collect()
    }
    /// A table of these columns. Errors: a column that does not exist.
    pub fn table(&self, columns: &[&str]) -> Result<Table> {
        let named = named(columns)?;
        let rows = self.iter().map(|r| named.iter().map(|c| cell(r, c)).collect::<Vec<_>>());
        Ok(Table::new("", columns.iter().map(|c| c.replace('_', " ")), rows))
    }
    /// `y` over `x`, a line for each value of `name`. A logarithmic axis for counts, decibels linear. Errors: an unknown column; no
    /// row has both numbers.
    pub fn plot(&self, x: &str, y: &str, name: &str) -> Result<Chart> {
        let (over, of, by) = (Row::column(x)?, Row::column(y)?, Row::column(name)?);
        let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for row in self.iter() {
            let (Some(px), Some(py)) = (over.number(row), of.number(row)) else { continue };
            if !py.is_finite() {
                continue;
            }
            let label = by.text(row);
            match series.iter_mut().find(|s| s.0 == label) {
                Some(s) => s.1.push((px, py)),
                None => series.push((label, vec![(px, py)])),
            }
        }
        if series.is_empty() {
            return Err(Error::value(
                format!("plot of {y} over {x}"),
                "no row with both",
                "rows that were judged; look at the reasons",
            ));
        }
        series.iter_mut().for_each(|s| s.1.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let scale = |c: &str| match c {
            "m" | "n" | "k" | "group" => Scale::Log2,
            c if c.ends_with("_db") || c == "offset" || c.ends_with("cosine") => Scale::Linear,
            _ => Scale::Log10,
        };
        let [(over, over_unit), (of, of_unit), (by, _)] = [over, of, by].map(words);
        let axis = |words: &str, unit: &str| if unit.is_empty() { words.to_string() } else { format!("{words}, {unit}") };
        let title = format!("{of} against {over}, by {by}");
        Ok(Chart::lines(&title, (&axis(&over, over_unit), scale(x)), (&axis(&of, of_unit), scale(y)), series))
    }
    /// What the recipes cost: SQNR of the quantization error of every recipe on every source, as a map in dB.
    pub fn plot_sqnr(&self) -> Result<Chart> {
        let recipe = |r: &Row| match (&r.recipe_a, &r.recipe_b) {
            (a, b) if b.is_empty() || a == b => a.clone(),
            (a, b) => format!("{}+{b}", if a.is_empty() { "none" } else { a }),
        };
        let (mut names, mut sources): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut at = std::collections::BTreeMap::new();
        for row in self.iter() {
            let Some(db) = row.errors.quantization(|e| e.sqnr_db).filter(|x| x.is_finite()) else { continue };
            let (name, source) = (recipe(row), row.dist_a.clone());
            if !names.contains(&name) {
                names.push(name.clone());
            }
            if !sources.contains(&source) {
                sources.push(source.clone());
            }
            let cell: &mut Vec<f64> = at.entry((name, source)).or_default();
            cell.push(db);
        }
        if names.is_empty() {
            return Err(Error::value(
                "plot of SQNR",
                "no row with a quantization error",
                "rows that were judged; look at the reasons",
            ));
        }
        let mean = |v: &Vec<f64>| v.iter().sum::<f64>() / v.len() as f64;
        let cells: Vec<Vec<Option<(f64, f64)>>> = names
            .iter()
            .map(|n| {
                let first = at.get(&(n.clone(), sources[0].clone())).map(mean);
                let cell = |s: &String| at.get(&(n.clone(), s.clone())).map(|v| (mean(v), mean(v) - first.unwrap_or(mean(v))));
                sources.iter().map(cell).collect()
            })
            .collect();
        let unit = format!("dB against {}", sources[0]);
        Ok(Chart::table(
            "SQNR of the quantized values, dB: higher is better, 6 dB is half the error",
            &sources,
            &names,
            &cells,
            6.0,
            &unit,
        ))
    }
    /// The figures of the report that these rows can fill.
    pub fn figures(&self) -> Vec<Chart> {
        report::figures(self).into_iter().map(Chart::from).collect()
    }
    /// What the worst row says: verdict, reason, power, and the command that shows it again.
    pub fn explain(&self) -> Result<String> {
        let worst = self.worst(1);
        let row = worst.first().ok_or_else(|| Error::value("rows", "none", "at least one row to explain"))?;
        let words = match row.verdict {
            Verdict::Error | Verdict::Skipped => format!("{}: {}", row.verdict, row.reason),
            _ => worst.detail(0)?.explain(),
        };
        Ok(format!("{}\n{words}", row.case))
    }
}

/// What changed between two runs of the same cases.
impl Show for Differences {
    fn html(&self) -> String {
        self.table().html()
    }
    fn plain(&self) -> String {
        self.table().plain()
    }
}

impl Differences {
    fn table(&self) -> Table {
        let counts: Vec<String> = Change::ALL
            .iter()
            .filter(|c| self.count(**c) > 0)
            .map(|c| format!("{} {}", self.count(*c), c.name().replace('_', " ")))
            .collect();
        let changed = self.drifts.iter().filter(|d| d.change != Change::Identical);
        let row = |d: &Drift| vec![d.case.clone(), d.change.name().replace('_', " "), d.words.clone()];
        Table::new(counts.join(", "), ["case", "change", "what"], changed.map(row))
    }
}

impl Rows {
    /// These rows against earlier ones of the same cases.
    pub fn drift(&self, before: &Rows) -> Differences {
        diff::of_rows("notebook", before, self)
    }
}

impl Show for Rows {
    fn html(&self) -> String {
        if self.is_empty() {
            return "<p>no rows</p>".into();
        }
        let columns = self.columns();
        let troubled = self.iter().any(|r| !r.reason.is_empty());
        let page = html! {
            p.title { @for v in Verdict::ALL {
                @let n = self.with(v).len();
                @if n > 0 { (badge(v.as_str())) " " (n) " " }
            } }
            table.sortable {
                thead { tr {
                    th tabindex="0" onclick=(super::SORT) { "verdict" }
                    @for c in &columns { th tabindex="0" onclick=(super::SORT) { (c.name.replace('_', " ")) } }
                    @if troubled { th { "reason" } }
                } }
                tbody { @for row in self.iter().take(MOST) { tr title=(row.case) {
                    td { (badge(row.verdict.as_str())) }
                    @for c in &columns { td.number[c.number(row).is_some()] { (cell(row, c)) } }
                    @if troubled { td.reason { (row.reason) } }
                } } }
            }
            @if self.len() > MOST { p.see { "the first " (MOST) " of " (self.len()) " rows; filter or worst(n) for others" } }
        };
        page.into_string()
    }
    fn plain(&self) -> String {
        if self.is_empty() {
            return "no rows".into();
        }
        let columns: Vec<&str> = ["verdict"].into_iter().chain(self.columns().into_iter().map(|c| c.name.as_str())).collect();
        self.table(&columns).expect("columns of ours").plain()
    }
}
