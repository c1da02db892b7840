//! Rows → figures, page, summary. Draws and words what the rows hold; computes no statistic.

mod backends;
#[cfg(feature = "cuda")]
pub mod bench;
pub mod cells;
pub(crate) mod ci;
pub(crate) mod drift;
pub(crate) mod drift_page;
mod figures;
mod grids;
pub(crate) mod heat;
pub(crate) mod history;
mod location;
mod page;
pub(crate) mod plot;
pub(crate) mod power;
#[cfg(feature = "cuda")]
mod roofline;
mod slim;
pub(crate) mod stale;
mod summary;
#[cfg(test)]
mod tests;
mod timeline;

use crate::assay::map::ErrorMap;
use crate::assay::row::{Row, short};
use crate::assay::table::{Column, Line};
use crate::fault::locate::Location;
use crate::run::maps;
use crate::run::totals::Kept;
use crate::{Error, Result};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use figures::Figure;
pub use summary::terminal as terminal_summary;

/// Writes `index.html`, `summary.md` and `figures/` (each figure as SVG and its data as CSV) into the folder of a run, from
/// its rows and what else is there (`maps.csv`, `provenance.txt`). Returns the page's path.
pub fn write(out: &Path, kept: &Kept) -> Result<PathBuf> {
    write_beside(out, kept, &[])
}

/// As [`write()`], with a figure that compares the rows with those of runs by other backends.
pub fn write_beside(out: &Path, kept: &Kept, others: &[Row]) -> Result<PathBuf> {
    let maps: Vec<ErrorMap> = maps::read(out)?;
    let provenance = std::fs::read_to_string(out.join("provenance.txt")).unwrap_or_default();
    let figures = figures::all(kept.rows(), others, &maps);
    let save = |name: &str, text: &str| -> Result<PathBuf> {
        let path = out.join(name);
        std::fs::write(&path, text)
            .map_err(|e| Error::io(&path, e, "make room, then `qassay report` this folder; the rows are complete"))?;
        Ok(path)
    };
    let folder = out.join("figures");
    std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e, "make room, then `qassay report` this folder"))?;
    for figure in &figures {
        for (i, (title, svg)) in figure.charts.iter().enumerate() {
            let part = if figure.charts.len() > 1 { format!("-{}", i + 1) } else { String::new() };
            save(
                &format!("figures/{}{part}.svg", figure.id),
                &plot::standalone(svg, if title.is_empty() { figure.title } else { title }, &figure.see),
            )?;
        }
        save(&format!("figures/{}.csv", figure.id), &figure.data)?;
    }
    save("summary.md", &summary::markdown(kept, &figures, &provenance))?;
    save("index.html", &page::html(kept, &figures, &provenance))
}

/// The head of every page: what a browser needs, the common style, and `css` after it.
fn head(title: &str, css: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) }
            link rel="icon" href="data:,";
            style { (PreEscaped(include_str!("assets/page.css"))) (PreEscaped(css)) }
        }
    }
}

/// Every figure that these rows can fill, without error maps.
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    figures::all(rows, &[], &[])
}

/// A metric over accepted baselines as a file of its own: one line a kernel, one point a commit, oldest first. `columns` are
/// (commit, largest value of each kernel).
pub fn history(metric: &str, columns: &[(String, BTreeMap<String, f64>)]) -> String {
    let mut series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (i, (_, kernels)) in columns.iter().enumerate() {
        kernels.iter().for_each(|(kernel, x)| series.entry(kernel).or_default().push(((i + 1) as f64, *x)));
    }
    let series: Vec<plot::Series> = series.into_iter().map(|(name, points)| plot::Series::new(name, points)).collect();
    let commits: Vec<&str> = columns.iter().map(|c| c.0.as_str()).collect();
    let x = format!("accepted baselines, {} to {}", commits.first().unwrap_or(&""), commits.last().unwrap_or(&""));
    let y = format!("largest {}", metric.replace('_', " "));
    let (x, y) = (plot::Axis { label: &x, scale: plot::Scale::Linear }, plot::Axis { label: &y, scale: plot::Scale::Linear });
    plot::standalone(
        &plot::xy(&x, &y, &series, true, None, plot::Room::Wide),
        &format!("History of {metric}"),
        "Its largest value of each kernel over the accepted baselines",
    )
}

/// The page of rows as one file, with where the error of each failure lives: what `qassay assay --html` writes.
pub fn page(rows: Vec<Row>, maps: &[ErrorMap], locations: &[(String, Location)], provenance: &str) -> String {
    let kept = Kept::from_iter(rows);
    let mut figures = figures::all(kept.rows(), &[], maps);
    figures.splice(0..0, location::figure(locations));
    page::html(&kept, &figures, provenance)
}

/// A row as one JSON object: numbers and booleans as such, empty columns left out, a non-finite number as its name.
pub fn json(row: &Row) -> serde_json::Value {
    let value = |c: &Column<Row>| -> Option<serde_json::Value> {
        let text = c.text(row);
        match (c.unit.is_empty(), text.parse::<f64>()) {
            _ if text.is_empty() => None,
            (false, Ok(x)) if x.is_finite() => Some(serde_json::json!(x)),
            _ => Some(text.parse::<bool>().map_or_else(|_| text.into(), Into::into)),
        }
    };
    serde_json::Value::Object(Row::columns().iter().filter_map(|c| Some((c.name.clone(), value(c)?))).collect())
}

/// [`json`] on one line.
pub fn json_line(row: &Row) -> String {
    json(row).to_string()
}

/// A count with its thousands apart: 1 234 567.
pub(crate) fn grouped(x: f64) -> String {
    let digits = format!("{x:.0}");
    let parts: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|p| std::str::from_utf8(p).expect("digits")).collect();
    parts.join("\u{202f}")
}
