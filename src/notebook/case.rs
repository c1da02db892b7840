//! A case that ran: verdict, power, error map.

use super::numbers::gain;
use super::{Chart, Show, Table, badge, raw};
use crate::assay::Assayed;
use crate::assay::Judgement;
use crate::assay::map::ErrorMap;
use crate::assay::row::short;
use crate::compare::Verdict;
use maud::html;

/// The metrics of the table of errors, in words.
const WORDS: [(&str, &str); 8] = [
    ("max_abs", "largest error"),
    ("rmse", "root of the mean square"),
    ("mean_z", "mean, in its standard errors"),
    ("rel_frobenius", "relative, Frobenius"),
    ("sqnr_db", "SQNR, dB"),
    ("max_ulp", "largest error, ulp"),
    ("saturated", "elements at an end of the range"),
    ("flushed", "elements that became zero"),
];

impl Assayed {
    /// The three errors beside each other.
    pub fn errors(&self) -> Table {
        let c = &self.judgements[0].comparison;
        let row = |m: &crate::compare::Metric| {
            let of = |s: Option<&crate::compare::ErrorStats>| s.map_or("·".to_string(), |s| short((m.get)(s)));
            let words = WORDS.iter().find(|w| w.0 == m.name)?.1;
            Some(vec![words.to_string(), of(c.quantization.as_ref()), of(Some(&c.kernel)), of(c.total.as_ref())])
        };
        let rows = crate::compare::METRICS.iter().filter_map(row);
        Table::new("three errors", ["", "quantization", "kernel", "total"], rows)
    }
    /// Largest error over its bound in each tile of the result's first part.
    pub fn map(&self) -> Chart {
        let j = &self.judgements[0];
        let map = ErrorMap::of(String::new(), &j.bound, &j.actual, j.cols).expect("judged, so as long as its bound");
        let cells: Vec<Vec<Option<f64>>> = map.cells.iter().map(|r| r.iter().map(|v| Some(*v)).collect()).collect();
        let name = |what: &str, each: usize| if each == 1 { what.to_string() } else { format!("{what}, in tiles of {each}") };
        let (x, y) = (name("column", map.tile_cols), name("row", map.tile_rows));
        // What is within its bound is drawn to its own largest value, so that rounding can be seen.
        let all = || map.cells.iter().flatten();
        let worst = all().fold(0.0, |m: f64, r| m.max(*r));
        let most = if worst > 0.0 && all().all(|r| *r <= 1.0) { worst } else { 1.0 };
        Chart::map("kernel error over its bound", &x, &y, "error / bound", most, &cells)
    }
    /// The verdict in words.
    pub fn explain(&self) -> String {
        let j = &self.judgements[0];
        let c = &j.comparison;
        let model = match c.mismatches {
            Some(0) => format!("all {} elements equal the device model's bits", j.actual.len()),
            Some(n) => format!("{n} of {} elements differ from the device model", j.actual.len()),
            None => "no device model: judged by the bound alone".into(),
        };
        let why = if c.reason.is_empty() { String::new() } else { format!(" {}.", c.reason) };
        let power = match (&c.power.no_power, c.verdict) {
            (Some(p), _) => format!("It could not have failed: {}; would need {}.", p.reason, p.remedy),
            (None, Verdict::Fail) => String::new(),
            _ => format!(
                "It would have caught a gain of {} and {} of the codes off by one.",
                gain(c.power.gain),
                short(c.power.code_flip_rate)
            ),
        };
        format!("{}: {}; largest error / certain bound {}.{why} {power}", c.verdict, model, short(c.bound_ratio_certain))
    }
}

impl Show for Assayed {
    fn html(&self) -> String {
        let j = &self.judgements[0];
        let page = html! {
            p.title { (badge(j.comparison.verdict.as_str())) " " (self.kernel) }
            p { (self.explain()) }
            (raw(&self.errors().html())) (raw(&j.comparison.power.html())) (raw(&self.map().html()))
        };
        page.into_string()
    }
    fn plain(&self) -> String {
        format!(
            "{}\n{}\n{}\n{}",
            self.kernel,
            self.explain(),
            self.errors().plain(),
            self.judgements[0].comparison.power.plain()
        )
    }
}

impl Show for Judgement {
    fn html(&self) -> String {
        let c = &self.comparison;
        html! { p { (badge(c.verdict.as_str())) " " (c.reason) } (raw(&c.kernel.html())) (raw(&c.power.html())) }.into_string()
    }
    fn plain(&self) -> String {
        format!("{} {}\n{}", self.comparison.verdict, self.comparison.reason, self.comparison.kernel.plain())
    }
}
