//! Pictures of rows and numbers, drawn by the report's own drawing.

use super::{Show, figure};
use crate::assay::row::short;
use crate::report::Figure;
use crate::report::cells;
use crate::report::heat;
use crate::report::plot::{self, Axis, Room, Scale, Series};
use maud::html;

/// One or several charts with what to see in them.
pub struct Chart {
    pub title: String,
    /// What to see.
    pub see: String,
    /// Subtitle and SVG.
    charts: Vec<(String, String)>,
    /// What is drawn: the plain form.
    data: String,
}

impl Chart {
    /// Lines of named points. An axis is linear, or logarithmic with base 2 or 10.
    pub fn lines(title: &str, x: (&str, Scale), y: (&str, Scale), series: Vec<(String, Vec<(f64, f64)>)>) -> Chart {
        Chart::xy(title, x, y, series, true, None)
    }
    /// Named points; `diagonal` names the line of equal values.
    pub fn points(
        title: &str,
        x: (&str, Scale),
        y: (&str, Scale),
        series: Vec<(String, Vec<(f64, f64)>)>,
        diagonal: Option<&str>,
    ) -> Chart {
        Chart::xy(title, x, y, series, false, diagonal)
    }
    fn xy(
        title: &str,
        x: (&str, Scale),
        y: (&str, Scale),
        series: Vec<(String, Vec<(f64, f64)>)>,
        joined: bool,
        diagonal: Option<&str>,
    ) -> Chart {
        let series: Vec<Series> = series.into_iter().map(|(name, points)| Series::new(name, points)).collect();
        let data = series.iter().map(|s| {
            let points: Vec<String> = s.points.iter().map(|(a, b)| format!("({}, {})", short(*a), short(*b))).collect();
            format!("{}: {}", s.name, points.join(" "))
        });
        let data = format!("{} against {}\n{}", y.0, x.0, data.collect::<Vec<_>>().join("\n"));
        let (x, y) = (Axis { label: x.0, scale: x.1 }, Axis { label: y.0, scale: y.1 });
        let svg = plot::xy(&x, &y, &series, joined, diagonal, Room::Wide);
        Chart { title: title.into(), see: String::new(), charts: vec![(String::new(), svg)], data }
    }
    /// A map of `cells[row][column]`, `0 … most` dark to light, above and NaN red, `None` empty.
    pub fn map(title: &str, x: &str, y: &str, unit: &str, most: f64, cells: &[Vec<Option<f64>>]) -> Chart {
        // More labels than these would touch.
        let every = |n: usize, i: usize| (n <= 20 || i.is_multiple_of(n.div_ceil(16))).then(|| i.to_string());
        let cols = cells.first().map_or(0, Vec::len);
        let map = heat::Map {
            x: (x, &|j| every(cols, j)),
            y: (y, &|i| every(cells.len(), i)),
            unit,
            most,
            least: None,
            cell: (520 / cols.max(cells.len()).max(1)).clamp(4, 24) as i32,
            mark: &|_, _| None,
        };
        let number = |v: &Option<f64>| v.map_or("·".to_string(), short);
        let data: Vec<String> = cells.iter().map(|r| r.iter().map(number).collect::<Vec<_>>().join(" ")).collect();
        let charts = vec![(String::new(), heat::map(cells, &map))];
        Chart {
            title: title.into(),
            see: format!("colour: {unit}, 0 to {}; red is above it", short(most)),
            charts,
            data: data.join("\n"),
        }
    }
    /// A table whose cells are `(number, change)`: the number is written, the change colours, full at ±`most`.
    pub fn table(
        title: &str,
        columns: &[String],
        rows: &[String],
        cells: &[Vec<Option<(f64, f64)>>],
        most: f64,
        unit: &str,
    ) -> Chart {
        let heads = vec![false; rows.len()];
        let line = |(name, row): (&String, &Vec<Option<(f64, f64)>>)| {
            let cells: Vec<String> = row.iter().map(|c| c.map_or("·".to_string(), |c| short(c.0))).collect();
            format!("{name}: {}", cells.join(" "))
        };
        let data = format!("{}\n{}", columns.join(" "), rows.iter().zip(cells).map(line).collect::<Vec<_>>().join("\n"));
        let ends = [&*format!("−{most}"), &*format!("+{most}  {unit}")];
        let scale = cells::Colours { from: -most, to: most, ends };
        let svg = cells::Table { columns, rows, heads: &heads, cells, scale, cases: &[] }.draw();
        Chart { title: title.into(), see: String::new(), charts: vec![(String::new(), svg)], data }
    }
    /// A drawing of its own, with what it draws.
    pub(super) fn drawn(title: &str, svg: String, data: String) -> Chart {
        Chart { title: title.into(), see: String::new(), charts: vec![(String::new(), svg)], data }
    }
    /// What to see in it.
    pub fn see(mut self, words: impl Into<String>) -> Chart {
        self.see = words.into();
        self
    }
    /// Whether something is drawn: at least one mark beyond axes.
    pub fn is_empty(&self) -> bool {
        self.charts.is_empty() || self.data.lines().skip(1).all(|l| l.ends_with(": "))
    }
}

impl From<Figure> for Chart {
    fn from(f: Figure) -> Chart {
        Chart { title: f.title.into(), see: f.see, charts: f.charts, data: f.data }
    }
}

impl Show for Chart {
    fn html(&self) -> String {
        let page = html! {
            p.title { (self.title) }
            @if !self.see.is_empty() { p.see { (self.see) } }
            div.charts { @for (title, svg) in &self.charts {
                figure style="margin:0" { @if !title.is_empty() { figcaption { (title) } } (figure(&self.title, svg)) }
            } }
        };
        page.into_string()
    }
    fn plain(&self) -> String {
        format!("{}\n{}\n{}", self.title, self.see, self.data).replace("\n\n", "\n")
    }
}
