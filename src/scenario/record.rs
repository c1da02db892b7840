//! What a scenario leaves: one row for each step, policy, product and operand.

use super::law::ProductVerdict;
use super::machine::Machine;
use super::product::Outcome;
use super::{Act, Event, Scenario};
use crate::Result;
use crate::assay::row::{Column, ERRORS, Line, metric_columns, number};
use crate::compare::gates::GATES;
use crate::compare::{ErrorStats, METRICS};
use crate::kernel::Backend;
use ndarray::Array2;
use std::sync::LazyLock;

/// The columns before the metrics.
const COORDINATES: &[(&str, &str, &str)] = &[
    ("scenario", "", "scenario by name"),
    ("row", "", "row of the catalogue; 0 where there is none"),
    ("class", "", "staleness, saturation, contract, healthy"),
    ("policy", "", "where the scale_inv lives: packaged, cloned, shared"),
    ("step", "", "step of the sequence"),
    ("product", "", "which product read the operand"),
    ("operand", "", "a or b"),
    ("backend", "", "who computed it"),
    ("events", "", "events of the step that move state, in order"),
    ("buffer", "", "buffer that was read"),
    ("state", "", "recipe state whose scale made its bytes"),
    ("version", "", "version of that state then"),
    ("recipe", "", "recipe of that state"),
    ("format", "", "format of the bytes"),
    ("granularity", "", "which elements share a scale"),
    ("rows", "elements", "rows of the buffer"),
    ("cols", "elements", "columns of the buffer"),
    ("scale_inv_true", "value", "scale_inv that belongs to the bytes, of the tile whose r is farthest from 1"),
    ("scale_inv_used", "value", "scale_inv that the kernel read for that tile"),
    ("r_predicted", "1", "s·scale_inv′ of that tile by the law"),
    ("r_measured", "1", "s·scale_inv′ of that tile as read"),
    ("r_min", "1", "smallest r of any tile"),
    ("r_max", "1", "largest r of any tile"),
    ("gain_predicted", "1", "least-squares gain of the product over the healthy one, by the law in f64"),
    ("gain_measured", "1", "the same of what the kernel returned"),
    ("saturated_share", "1", "codes at the end of the format's range"),
    ("flushed_share", "1", "zeros of values that are not zero"),
    ("law", "", "what was predicted: exact, or kind and r"),
    ("holds", "", "true where operand and product are as the law says"),
    ("why", "", "why not"),
    ("shows", "", "true where the operand was not read as it was meant, or lost something by its law"),
    ("bound_notices", "", "true where qassay's bound around what was meant fails the product"),
    ("gates_notice", "", "gates that fail it against the product of what was meant (and pass the healthy one)"),
    ("gates_notice_exact", "", "gates that fail it against the unquantized product and pass freshly quantized operands"),
];

/// Every column: coordinates, then each metric of each of the three errors of the product.
pub static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| metric_columns(COORDINATES, " of the product"));

/// One line of `rows.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    values: Vec<String>,
}

/// Position of a column.
fn column(name: &str) -> Option<usize> {
    static INDEX: LazyLock<std::collections::HashMap<String, usize>> =
        LazyLock::new(|| COLUMNS.iter().enumerate().map(|(i, c)| (c.name.clone(), i)).collect());
    INDEX.get(name).copied()
}

impl Record {
    fn set(&mut self, name: &str, value: impl ToString) {
        let i = column(name).unwrap_or_else(|| panic!("no column {name}"));
        self.values[i] = value.to_string();
    }
    fn number(&mut self, name: &str, value: f64) {
        self.set(name, number(value));
    }
    /// The text of a column; empty for a name that does not exist.
    pub fn get(&self, name: &str) -> &str {
        column(name).map_or("", |i| &self.values[i])
    }
    /// The number of a column, where there is one.
    pub fn num(&self, name: &str) -> Option<f64> {
        self.get(name).parse().ok()
    }
    pub fn is(&self, name: &str) -> bool {
        self.get(name) == "true"
    }
}

impl Line for Record {
    fn columns() -> Vec<&'static str> {
        COLUMNS.iter().map(|c| c.name.as_str()).collect()
    }
    fn of(values: Vec<String>) -> Self {
        Record { values }
    }
    fn values(&self) -> &[String] {
        &self.values
    }
}

/// The two rows of a product.
pub fn records(machine: &Machine, outcome: &Outcome, verdict: &ProductVerdict) -> Result<[Record; 2]> {
    let scenario = machine.scenario;
    let flat = |x: &Array2<f64>| x.iter().copied().collect::<Vec<f64>>();
    let (exact, ideal) = (flat(&outcome.exact.d), flat(&outcome.ideal.d));
    let statistics = [(&exact, &ideal), (&ideal, &outcome.actual), (&exact, &outcome.actual)]
        .map(|(reference, actual)| ErrorStats::between(reference, actual, &outcome.out));
    let gates = gates(&ideal, &outcome.healthy, &outcome.actual);
    let fresh = flat(&fresh(machine, outcome)?);
    let gates_exact = self::gates(&exact, &fresh, &outcome.actual);
    let mut all = Record { values: vec![String::new(); COLUMNS.len()] };
    all.set("scenario", &scenario.name);
    all.set("row", scenario.row);
    all.set("class", scenario.class.name());
    all.set("policy", machine.policy);
    all.set("step", machine.step);
    all.set("product", &outcome.product);
    all.set("backend", machine.backend().name());
    all.set("events", marks(scenario, machine.step).join("; "));
    all.number("gain_predicted", verdict.gain_predicted);
    all.number("gain_measured", verdict.gain_measured);
    all.set("bound_notices", verdict.bound_notices);
    all.set("gates_notice", gates.join(" "));
    all.set("gates_notice_exact", gates_exact.join(" "));
    for ((prefix, _), stats) in ERRORS.iter().zip(statistics) {
        let stats = stats?;
        METRICS.iter().for_each(|m| all.number(&format!("{prefix}_{}", m.name), (m.get)(&stats)));
    }
    all.set("command", command(machine));
    let mut rows = [all.clone(), all];
    for (i, row) in rows.iter_mut().enumerate() {
        let (side, v) = (&outcome.sides[i], &verdict.sides[i]);
        let q = &side.buffer.q;
        row.set("operand", ["a", "b"][i]);
        row.set("buffer", &side.name);
        row.set("state", &side.buffer.state);
        row.set("version", side.buffer.version);
        row.set("recipe", &machine.slot(&side.buffer.state)?.spec.recipe);
        row.set("format", q.format());
        row.set("granularity", q.granularity());
        row.set("rows", q.rows());
        row.set("cols", q.cols());
        row.number("scale_inv_true", v.scale_inv_true);
        row.number("scale_inv_used", v.scale_inv_used);
        row.number("r_predicted", v.r_predicted);
        row.number("r_measured", v.r_measured);
        row.number("r_min", v.r_min);
        row.number("r_max", v.r_max);
        row.number("saturated_share", v.saturated);
        row.number("flushed_share", v.flushed);
        row.set("law", &v.law);
        row.set("shows", v.shows);
        row.set("holds", v.holds && verdict.holds);
        row.set("why", if v.holds { &verdict.why } else { &v.why });
    }
    Ok(rows)
}

/// What reproduces a row.
fn command(machine: &Machine) -> String {
    let mut text = format!("qassay stale {} --policy {}", machine.scenario.name, machine.policy);
    if machine.backend() != Backend::Cpu {
        text += &format!(" --backend {}", machine.backend().name());
    }
    if machine.seed() > 0 {
        text += &format!(" --seed {}", machine.seed());
    }
    text
}

/// The product in f64 of the same values, each quantized by its recipe for the tensor at hand: what a well-kept scale gives.
fn fresh(machine: &Machine, outcome: &Outcome) -> Result<Array2<f64>> {
    let of = |i: usize| -> Result<Array2<f64>> {
        let buffer = &outcome.sides[i].buffer;
        let spec = &machine.slot(&buffer.state)?.spec;
        let name = if spec.is_delayed() { format!("te_current:{}", spec.recipe.format) } else { spec.recipe.to_string() };
        Ok(name.parse::<crate::recipe::Recipe>()?.quantize(&buffer.x)?.q.dequantize_fast())
    };
    Ok(outcome.define([of(0)?, of(1)?])?.d)
}

/// Gates that fail `actual` and pass `healthy`.
fn gates(reference: &[f64], healthy: &[f64], actual: &[f64]) -> Vec<&'static str> {
    let notices = |g: &&crate::compare::gates::Gate| !(g.passes)(reference, actual) && (g.passes)(reference, healthy);
    GATES.iter().filter(notices).map(|g| g.name).collect()
}

/// Events of a step that move state, in words.
pub fn marks(scenario: &Scenario, step: usize) -> Vec<String> {
    let word = |e: &Event| {
        Some(match &e.act {
            Act::Update { state, .. } => format!("update {state}"),
            Act::Refresh { state } => format!("refresh {state}"),
            Act::Optimizer { tensor, .. } => format!("optimizer {tensor}"),
            Act::Copy { from, into } => format!("copy {from} to {into}"),
            Act::Skip { buffer, .. } => format!("skip {buffer}"),
            Act::Recompute { into, .. } => format!("recompute {into}"),
            Act::Replay { graph, .. } => format!("replay {graph}"),
            Act::Capture { into, .. } => format!("capture {into}"),
            Act::Save { into, .. } => format!("save {into}"),
            Act::Restore { from, .. } => format!("restore {from}"),
            Act::Reduce { into, .. } => format!("reduce {into}"),
            Act::Gather { into, .. } => format!("gather {into}"),
            Act::Transpose { into, .. } => format!("transpose {into}"),
            Act::Requantize { into, .. } => format!("requantize {into}"),
            Act::Swap { a, b } => format!("swap {a} {b}"),
            Act::Quantize { .. } | Act::Product(_) => return None,
        })
    };
    scenario.events.iter().filter(|e| e.when.holds(step)).filter_map(word).collect()
}
