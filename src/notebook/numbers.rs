//! Formats, tensors, error statistics.

use super::{Chart, Show, Table, raw};
use crate::assay::row::short;
use crate::compare::{ErrorStats, METRICS, Power};
use crate::report::plot::Scale;
use crate::{Error, Format, QTensor, Tensor, Zero};
use maud::html;

/// A factor near 1, to where it differs from 1.
pub(super) fn gain(x: f64) -> String {
    if x.is_finite() && x < 2.0 { format!("{x:.5}") } else { short(x) }
}

/// A value of a code as short as it reads.
fn value(f: Format, code: u32) -> String {
    match f.decode(code) {
        v if v.is_nan() => "NaN".into(),
        v if v.is_infinite() => if v > 0.0 { "∞" } else { "−∞" }.into(),
        v if v == 0.0 && v.is_sign_negative() => "−0".into(),
        v => short(v),
    }
}

/// A code table: every value of a format of at most 8 bits; the range of a wider one.
impl Show for Format {
    fn html(&self) -> String {
        let spec = self.spec();
        let codes = 1u32 << spec.bits.min(8);
        let page = html! {
            p.title { (spec.name) } p.see { (spec.help) }
            @if spec.bits <= 8 {
                table.codes {
                    thead { tr { th { "" } @for low in 0..16.min(codes) { th { (format!("{low:X}")) } } } }
                    tbody { @for high in 0..codes.div_ceil(16) { tr {
                        th { (format!("{high:X}_")) }
                        @for low in 0..16.min(codes) { td { (value(*self, high * 16 + low)) } }
                    } } }
                }
            } @else { p { (self.plain()) } }
        };
        page.into_string()
    }
    fn plain(&self) -> String {
        let spec = self.spec();
        let what = format!("{}: {} bits, {}", spec.name, spec.bits, spec.help);
        if spec.bits > 8 {
            return what;
        }
        let row = |high: u32| {
            let cells: Vec<String> = (0..16).map(|low| value(*self, high * 16 + low)).collect();
            format!("{high:X}_ {}", cells.join(" "))
        };
        let rows: Vec<String> = (0..(1u32 << spec.bits) / 16).map(row).collect();
        format!("{what}\n{}", rows.join("\n"))
    }
}

/// Share of elements in each of at most 24 equal bins of log2|x|, with the share of zeros.
fn magnitudes(name: &str, x: impl Iterator<Item = f64>) -> (String, Vec<(f64, f64)>) {
    let all: Vec<f64> = x.collect();
    let logs: Vec<f64> = all.iter().filter(|v| **v != 0.0 && v.is_finite()).map(|v| v.abs().log2().floor()).collect();
    let mut bins = std::collections::BTreeMap::new();
    logs.iter().for_each(|e| *bins.entry(*e as i64).or_insert(0.0) += 100.0 / all.len().max(1) as f64);
    (name.to_string(), bins.into_iter().map(|(e, n)| (e as f64, n)).collect())
}

fn histogram(title: &str, series: Vec<(String, Vec<(f64, f64)>)>) -> Chart {
    Chart::lines(title, ("log2 of the magnitude", Scale::Linear), ("elements, %", Scale::Linear), series)
}

impl Show for Tensor {
    fn html(&self) -> String {
        let chart = histogram("", vec![magnitudes("x", self.data().iter().map(|x| f64::from(*x)))]);
        html! { p.title { (self.plain()) } (raw(&chart.html())) }.into_string()
    }
    fn plain(&self) -> String {
        let x = self.data();
        let amax = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let first: Vec<String> = x.iter().take(6).map(|v| short(f64::from(*v))).collect();
        format!(
            "{} tensor {}×{}, amax {}, begins {} …",
            self.dtype(),
            self.rows(),
            self.cols(),
            short(f64::from(amax)),
            first.join(" ")
        )
    }
}

/// A corner of the codes.
const CORNER: usize = 8;

/// Codes, scales and a histogram.
impl Show for QTensor {
    fn html(&self) -> String {
        let (rows, cols) = (self.rows().min(CORNER), self.cols().min(CORNER));
        let digits = self.format().bits().div_ceil(4) as usize;
        let code = |i: usize, j: usize| u32::from(self.codes()[i * self.cols() + j]);
        let codes = Table::new(
            format!("codes, top left {rows}×{cols} of {}×{}", self.rows(), self.cols()),
            (0..cols).map(|j| j.to_string()),
            (0..rows).map(|i| {
                let cell = |j| format!("{:0digits$x} = {}", code(i, j), short(self.value(i, j)));
                (0..cols).map(cell).collect::<Vec<_>>()
            }),
        );
        let decoded = self.codes().iter().map(|c| self.format().decode(u32::from(*c)));
        let chart = histogram("decoded codes by magnitude", vec![magnitudes(self.format().name(), decoded)]);
        html! { p.title { (self.plain()) } (raw(&codes.html())) (raw(&chart.html())) }.into_string()
    }
    fn plain(&self) -> String {
        let s = self.scale_inv();
        let some: Vec<String> = s.iter().take(4).map(|s| short(f64::from(*s))).collect();
        let zero = match self.zero() {
            Zero::None => "no zero points",
            Zero::Integer(_) => "integer zero points",
            Zero::Additive { .. } => "additive zero points",
        };
        format!(
            "{} {}×{}, {} scales ({} of {}): {}{}; {zero}",
            self.format(),
            self.rows(),
            self.cols(),
            self.granularity(),
            s.len(),
            self.scale_format(),
            some.join(" "),
            if s.len() > 4 { " …" } else { "" }
        )
    }
}

impl Show for ErrorStats {
    fn html(&self) -> String {
        self.table().html()
    }
    fn plain(&self) -> String {
        self.table().plain()
    }
}

impl ErrorStats {
    fn table(&self) -> Table {
        let row =
            |m: &crate::compare::Metric| vec![m.name.to_string(), short((m.get)(self)), m.unit.to_string(), m.help.to_string()];
        Table::new("error", ["metric", "value", "unit", "what it is"], METRICS.iter().map(row))
    }
}

impl Show for Power {
    fn html(&self) -> String {
        self.table().html()
    }
    fn plain(&self) -> String {
        self.table().plain()
    }
}

impl Power {
    fn table(&self) -> Table {
        let maybe = |x: Option<f64>| x.map_or("·".to_string(), short);
        let rows = [
            ("gain of everything", gain(self.gain), "smallest uniform factor that fails"),
            ("gain of a row", gain(self.row_gain), "of one row"),
            ("gain of a column", gain(self.column_gain), "of one column"),
            ("gain of a scale's elements", gain(self.group_gain), "of the elements of one scale"),
            ("dropped share", short(self.dropped_share), "share of the result's energy that may vanish unseen"),
            ("dropped K", maybe(self.dropped_k), "elements of K"),
            ("codes off by one", short(self.code_flip_rate), "share of the elements"),
        ];
        Table::new(
            "what this verdict would have caught",
            ["fault", "from", "meaning"],
            rows.map(|(a, b, c)| vec![a.to_string(), b, c.to_string()]),
        )
    }
}

impl Show for Error {
    fn html(&self) -> String {
        html! { p { span class="verdict error" { "error" } " " (self.to_string()) } }.into_string()
    }
    fn plain(&self) -> String {
        format!("Error: {self}")
    }
}

/// What it holds, or the error: a cell may end in `rows.plot_sqnr()`, for evcxr takes no `?` in what it shows.
impl<T: Show> Show for crate::Result<T> {
    fn html(&self) -> String {
        self.as_ref().map_or_else(Show::html, Show::html)
    }
    fn plain(&self) -> String {
        self.as_ref().map_or_else(Show::plain, Show::plain)
    }
}

impl<T: Show> Show for Option<T> {
    fn html(&self) -> String {
        self.as_ref().map_or_else(|| "<p>none</p>".into(), Show::html)
    }
    fn plain(&self) -> String {
        self.as_ref().map_or_else(|| "none".into(), Show::plain)
    }
}
