//! The page and figures of `qassay power`: which gate catches which class of faults, what it fails without cause, and what a diagnosis calls
//! them.

use super::figures::{Figure, csv};
use super::page::said;
use super::{head, plot};
use maud::{DOCTYPE, PreEscaped, html};
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
        let scale = plot::Colours { from: 0.0, to: 50.0, ends: ["0", high] };
        let shown = |v: f64| (v >= 0.05).then_some((v, v / 2.0));
        let cells: Vec<Vec<Option<(f64, f64)>>> =
            self.percent.iter().map(|r| r.iter().map(|v| v.and_then(shown)).collect()).collect();
        plot::table(&self.columns, &self.rows, &vec![false; self.rows.len()], &cells, &scale, &[])
    }
}

/// Right results that each judge was asked about, and the percent of them that each failed, in the order of the judges.
pub struct Right {
    pub name: String,
    pub percent: Vec<f64>,
}

/// What each judge catches, and which right results it fails: (judge, percent caught, percent of right results failed), of this many.
pub fn worth(judges: &[(String, f64, f64)], right: usize) -> Figure {
    let columns = ["faults caught", "right results failed"].map(String::from);
    let rows: Vec<String> = judges.iter().map(|j| j.0.clone()).collect();
    let cells: Vec<Vec<Option<(f64, f64)>>> =
        judges.iter().map(|(_, caught, alarms)| vec![Some((*caught, caught - 50.0)), Some((*alarms, -alarms))]).collect();
    let scale = plot::Colours { from: -50.0, to: 50.0, ends: ["missed, or a false alarm", "caught"] };
    Figure {
        id: "worth",
        title: "What each check catches, and what it fails without cause",
        see: format!(
            "Percent of the injected faults that each judge failed, and percent of {right} right results that it failed as well. A check that \
             also fails right results is worth little."
        ),
        charts: vec![(String::new(), plot::table(&columns, &rows, &vec![false; rows.len()], &cells, &scale, &[]))],
        data: csv(
            ["judge", "percent_caught", "percent_of_right_failed"],
            judges.iter().map(|(j, caught, alarms)| [j.clone(), format!("{caught:.2}"), format!("{alarms:.2}")]),
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
    let scale = plot::Colours { from: -50.0, to: 50.0, ends: ["missed, or a false alarm", "caught"] };
    let alarms = right.iter().flat_map(|r| m.columns.iter().zip(&r.percent).map(|(c, v)| format!("{},{c},{v:.2}\n", r.name)));
    Figure {
        id: "kill_matrix",
        title: "Which judge catches which fault, and which right results it fails",
        see: "Above the line: percent of the injected faults that changed at least one bit and were failed by each judge, on the same outputs. \
              Below it: percent of right results that the same judge failed; anything but 0 is a false alarm. Model and bound are qassay's own \
              (bits of the device model, and the derived bound with the checks beside the result); the rest are the gates of other projects \
              against the f64 result."
            .into(),
        charts: vec![(String::new(), plot::table(&m.columns, &rows, &heads, &cells, &scale, &[]))],
        data: m.data(["class", "judge", "percent_caught"]) + &alarms.collect::<String>(),
    }
}

/// Confusion matrix: what the diagnosis calls the faults of each class.
pub fn confusion(m: &Matrix) -> Figure {
    Figure {
        id: "confusion",
        title: "What a diagnosis calls a fault",
        see: "Rows are injected classes, columns what was named, in percent of the row. What lies off the diagonal is a confusion; `unknown` \
              is no answer, `compound` an explanation by two faults."
            .into(),
        charts: vec![(String::new(), m.sparse("100 percent of the row"))],
        data: m.data(["class", "named", "percent"]),
    }
}

/// `power.html`: what ran, the answer, every figure, the numbers as text; one file.
pub fn page(ran: &[(&str, String)], answer: &str, text: &str, figures: &[Figure]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("power: {answer} · qassay"), "#numbers pre { white-space: pre; }"))
            body {
                header {
                    h1 { "What a pass is worth" }
                    p.ran { @for (key, fact) in ran { (said(key, fact)) " " } }
                    p.answer { (answer) "." }
                    p.see { "Every fault of the catalogue was injected into right kernels; each judge saw the same outputs, right and wrong." }
                }
                main {
                    @for f in figures {
                        section id=(f.id) {
                            h2 { (f.title) }
                            @let seen = format!("{}-see", f.id);
                            p.see id=(seen) { (f.see) }
                            @for (_, svg) in &f.charts { div.charts { figure tabindex="0" { (PreEscaped(plot::named(svg, f.title, &seen))) } } }
                        }
                    }
                    section #numbers { h2 { "In numbers" } pre tabindex="0" { (text) } }
                }
            }
        }
    };
    page.into_string()
}
