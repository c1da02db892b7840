//! The page and figures of `qassay power`: which gate catches which class of faults, what it fails without cause, and what a diagnosis calls
//! them.

use super::figures::{Figure, csv};
use super::page::ran;
use super::{cells, head, plot};
use crate::fault::tally::JUDGES;
use crate::order::Order as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;

/// A share of cases, by row and column: both in their order.
pub struct Matrix {
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    /// `[row][column]`, in percent; `None` where nothing was tried.
    pub percent: Vec<Vec<Option<f64>>>,
}

impl Matrix {
    /// From (row, column, weight) counts and the total of each row. Rows without a total are left out.
    pub fn of(
        rows: &[String],
        columns: &[String],
        counts: &BTreeMap<(String, String), usize>,
        totals: &BTreeMap<String, usize>,
    ) -> Self {
        let rows: Vec<String> = rows.iter().filter(|r| totals.get(*r).is_some_and(|n| *n > 0)).cloned().collect();
        let cell = |r: &String, c: &String| {
            let n = counts.get(&(r.clone(), c.clone())).copied().unwrap_or(0);
            Some(100.0 * n as f64 / totals[r] as f64)
        };
        let percent = rows.iter().map(|r| columns.iter().map(|c| cell(r, c)).collect()).collect();
        Self { rows, columns: columns.to_vec(), percent }
    }

    fn data(&self, header: [&str; 3]) -> String {
        let lines = self.rows.iter().zip(&self.percent).flat_map(|(r, cells)| {
            let cell = |(c, v): (&String, &Option<f64>)| [r.clone(), c.clone(), v.map_or(String::new(), |v| format!("{v:.2}"))];
            self.columns.iter().zip(cells).map(cell)
        });
        csv(header, lines)
    }

    /// Only cells above zero are shown, darker with their share.
    fn sparse(&self, high: &str) -> String {
        let scale = cells::Colours { from: 0.0, to: 50.0, ends: ["0", high] };
        let shown = |v: f64| (v >= 0.05).then_some((v, v / 2.0));
        let cells: Vec<Vec<Option<(f64, f64)>>> =
            self.percent.iter().map(|r| r.iter().map(|v| v.and_then(shown)).collect()).collect();
        let heads = vec![false; self.rows.len()];
        cells::Table { columns: &self.columns, rows: &self.rows, heads: &heads, cells: &cells, scale, cases: &[] }.draw()
    }
}

/// Right results that each judge was asked about, and the percent of them that each failed, in the order of the judges.
pub struct Right {
    pub name: String,
    pub percent: Vec<f64>,
}

/// What a judge is worth.
pub struct Worth {
    pub judge: String,
    /// Percent of the faults that it catches, and of the right results that it fails.
    pub caught: f64,
    pub alarms: f64,
    /// What it takes for one result, beside the f64 reference.
    pub seconds: f64,
}

/// A time as a table has it.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => String::new(),
        s if s < 0.5e-6 => "< 1 µs".into(),
        s if s < 0.9995e-3 => format!("{:.0} µs", s * 1e6),
        s => format!("{:.1} ms", s * 1e3),
    }
}

/// What each judge catches, and which of this many right results it fails.
pub fn worth(judges: &[Worth], right: usize) -> Figure {
    let columns = ["faults caught", "right results failed"].map(String::from);
    let rows: Vec<String> = judges.iter().map(|j| j.judge.clone()).collect();
    let cells: Vec<Vec<Option<(f64, f64)>>> =
        judges.iter().map(|w| vec![Some((w.caught, w.caught - 50.0)), Some((w.alarms, -w.alarms))]).collect();
    let scale = cells::Colours { from: -50.0, to: 50.0, ends: ["missed, or a false alarm", "caught"] };
    let heads = vec![false; rows.len()];
    let table = cells::Table { columns: &columns, rows: &rows, heads: &heads, cells: &cells, scale, cases: &[] };
    Figure {
        id: "worth",
        slim: None,
        title: "What each check catches, and what it fails without cause",
        see: format!(
            "Percent of the injected faults that each judge failed, and percent of {right} right results that it failed as well. A check that \
             also fails right results is worth little. The time is for one right result, beside the f64 reference that all of them need: the \
             median of some of these cases."
        ),
        charts: vec![(String::new(), table.draw())],
        data: csv(
            ["judge", "percent_caught", "percent_of_right_failed"],
            judges.iter().map(|w| [w.judge.clone(), format!("{:.2}", w.caught), format!("{:.2}", w.alarms)]),
        ),
    }
}

/// Kill matrix: the share of injected faults of each class that each judge catches; under it the right results that it fails.
pub fn kills(m: &Matrix, right: &[Right]) -> Figure {
    let rows: Vec<String> = m.rows.iter().chain(right.iter().map(|r| &r.name)).cloned().collect();
    let caught = m.percent.iter().map(|r| r.iter().map(|v| v.map(|v| (v, v - 50.0))).collect());
    let failed = right.iter().map(|r| r.percent.iter().map(|v| Some((*v, -v))).collect());
    let cells: Vec<Vec<Option<(f64, f64)>>> = caught.chain(failed).collect();
    // A line above the first of the right results.
    let heads: Vec<bool> = (0..rows.len()).map(|i| i == m.rows.len()).collect();
    let scale = cells::Colours { from: -50.0, to: 50.0, ends: ["missed, or a false alarm", "caught"] };
    let alarms = right.iter().flat_map(|r| m.columns.iter().zip(&r.percent).map(|(c, v)| format!("{},{c},{v:.2}\n", r.name)));
    let table = cells::Table { columns: &m.columns, rows: &rows, heads: &heads, cells: &cells, scale, cases: &[] };
    Figure {
        id: "kill_matrix",
        slim: None,
        title: "Which judge catches which fault, and which right results it fails",
        see: "Above the line: percent of the injected faults that changed at least one bit and were failed by each judge, on the same outputs. \
              Below it: percent of right results that the same judge failed; anything but 0 is a false alarm. Model and bound are qassay's own \
              (bits of the device model, and the derived bound with the checks beside the result); the rest are the gates of other projects \
              against the f64 result."
            .into(),
        charts: vec![(String::new(), table.draw())],
        data: m.data(["class", "judge", "percent_caught"]) + &alarms.collect::<String>(),
    }
}

/// [`worth`] as a table: qassay's own judges first, then the best of the others.
fn worth_table(judges: &[Worth]) -> Markup {
    let (own, others) = judges.split_at(JUDGES.len().min(judges.len()));
    let mut others: Vec<&Worth> = others.iter().collect();
    others.order_by(|a, b| b.caught.total_cmp(&a.caught));
    let cell = |class: &str, x: f64| html! { td class=(class) style=(format!("--share:{x:.1}%")) { (format!("{x:.1} %")) } };
    html! {
        div.wide tabindex="0" role="region" aria-label="What each check is worth" { table.shares.worth {
            thead { tr { th scope="col" { "check" } th scope="col" { "faults caught" } th scope="col" { "right results failed" } th scope="col" { "time a result" } } }
            tbody {
                @for (i, w) in own.iter().chain(others).enumerate() {
                    tr.own[i < own.len()] {
                        th scope="row" { @if i < own.len() { "qassay: " } (w.judge) }
                        (cell("caught", w.caught)) (cell("alarm", w.alarms)) td { (time(w.seconds)) }
                    }
                }
            }
        } }
    }
}

/// [`kills`] as a table, or [`confusion`] without right results.
fn matrix_table(m: &Matrix, right: Option<&[Right]>) -> Markup {
    // Of a confusion only what occurs is shown.
    let shown = |v: f64| right.is_some() || v >= 0.5;
    html! {
        div.wide tabindex="0" role="region" aria-label=(if right.is_some() { "Faults and judges" } else { "Faults and their names" }) { table.shares.kills {
            thead { tr { td {} @for judge in &m.columns { th scope="col" { (judge) } } } }
            tbody {
                @for (class, cells) in m.rows.iter().zip(&m.percent) {
                    tr { th scope="row" { (class) } @for v in cells { td.low[right.is_some() && v.is_some_and(|v| v < 50.0)] { @if let Some(v) = v.filter(|v| shown(*v)) { (format!("{v:.0}")) } } } }
                }
                @for r in right.unwrap_or_default() {
                    tr.right { th scope="row" { (r.name) } @for v in &r.percent { td.low[*v > 0.0] { (format!("{v:.0}")) } } }
                }
            }
        } }
    }
}

/// Confusion matrix: what the diagnosis calls the faults of each class.
pub fn confusion(m: &Matrix) -> Figure {
    Figure {
        id: "confusion",
        slim: None,
        title: "What a diagnosis calls a fault",
        see: "Rows are injected classes, columns what was named, in percent of the row. What lies off the diagonal is a confusion; unknown \
              is no answer, compound an explanation by two faults."
            .into(),
        charts: vec![(String::new(), m.sparse("100 percent of the row"))],
        data: m.data(["class", "named", "percent"]),
    }
}

/// What `power.html` holds.
pub struct Page<'a> {
    /// The sweeps and the device.
    pub what: &'a str,
    /// The facts of its first line.
    pub ran: &'a [(&'a str, &'a str)],
    pub answer: &'a str,
    pub worth: &'a [Worth],
    pub kills: &'a Matrix,
    pub right: &'a [Right],
    /// What faults were called, where a diagnosis was asked.
    pub named: Option<&'a Matrix>,
    /// The numbers as the terminal has them.
    pub text: &'a str,
    pub figures: &'a [Figure],
}

/// `power.html`: what ran, the answer, what each check is worth, every figure, the numbers as text; one file.
pub fn page(p: &Page) -> String {
    let Page { what, answer, .. } = p;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("power of {what}: {answer} · qassay"), include_str!("assets/power.css")))
            body {
                header {
                    h1 { "What a pass is worth: " (what) }
                    (ran(p.ran))
                    p.answer { (answer) "." }
                    p.see { "Every fault of the catalogue was injected into right kernels; each judge saw the same outputs, right and wrong." }
                }
                main {
                    @for f in p.figures {
                        section id=(f.id) {
                            h2 { (f.title) }
                            @let seen = format!("{}-see", f.id);
                            p.see id=(seen) { (f.see) }
                            // A phone has a table in place of the wide figure.
                            @if f.id == "worth" { (worth_table(p.worth)) }
                            @else { @for (_, svg) in &f.charts { div.charts { figure tabindex="0" { (PreEscaped(plot::named(svg, f.title, &seen))) } } } }
                            @if f.id == "kill_matrix" { div.phone { (matrix_table(p.kills, Some(p.right))) } }
                            @if let ("confusion", Some(named)) = (f.id, p.named) { div.phone { (matrix_table(named, None)) } }
                        }
                    }
                    section #numbers { h2 { "In numbers" } pre tabindex="0" { (p.text) } }
                }
            }
        }
    };
    page.into_string()
}
