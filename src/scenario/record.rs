//! What a scenario leaves: one row for each step, policy, product and operand.

use super::law::ProductVerdict;
use super::machine::Machine;
use super::product::Outcome;
use super::{Act, Class, Event, Policy, Scenario};
use crate::assay::table::{Cell, Errors, named, table};
use crate::compare::ErrorStats;
use crate::compare::gates::GATES;
use crate::kernel::Backend;
use crate::{Error, Format, Granularity, Result};
use ndarray::Array2;

/// Gates by name, between spaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gates(pub Vec<&'static str>);

impl Cell for Gates {
    fn text(&self) -> String {
        self.0.join(" ")
    }
    fn of(text: &str) -> Result<Self> {
        let known = |name: &str| GATES.iter().find(|g| g.name == name).map(|g| g.name);
        let gate = |name| known(name).ok_or_else(|| Error::unknown("gate", name, GATES.iter().map(|g| g.name)));
        text.split_whitespace().map(gate).collect::<Result<_>>().map(Gates)
    }
}

named! { Class: |class| class.name().into(), Policy: |policy| policy.name().into() }

table! {
    /// One line of the `rows.csv` of scenarios.
    pub struct Record {
        scenario: String, "", "scenario by name";
        row: u32, "", "row of the catalogue; 0 where there is none";
        class: Class, "", "staleness, saturation, contract, healthy";
        policy: Policy, "", "where the scale_inv lives: packaged, cloned, shared";
        step: usize, "", "step of the sequence";
        product: String, "", "which product read the operand";
        operand: String, "", "a or b";
        backend: Backend, "", "who computed it";
        events: String, "", "events of the step that move state, in order";
        buffer: String, "", "buffer that was read";
        state: String, "", "recipe state whose scale made its bytes";
        version: usize, "", "version of that state then";
        recipe: String, "", "recipe of that state";
        format: Format, "", "format of the bytes";
        granularity: Granularity, "", "which elements share a scale";
        rows: usize, "elements", "rows of the buffer";
        cols: usize, "elements", "columns of the buffer";
        scale_inv_true: f64, "value", "scale_inv that belongs to the bytes, of the tile whose r is farthest from 1";
        scale_inv_used: f64, "value", "scale_inv that the kernel read for that tile";
        r_predicted: f64, "1", "s·scale_inv′ of that tile by the law";
        r_measured: f64, "1", "s·scale_inv′ of that tile as read";
        r_min: f64, "1", "smallest r of any tile";
        r_max: f64, "1", "largest r of any tile";
        gain_predicted: f64, "1", "least-squares gain of the product over the healthy one, by the law in f64";
        gain_measured: f64, "1", "the same of what the kernel returned";
        saturated_share: f64, "1", "codes at the end of the format's range";
        flushed_share: f64, "1", "zeros of values that are not zero";
        law: String, "", "what was predicted: exact, or kind and r";
        holds: bool, "", "true where operand and product are as the law says";
        why: String, "", "why not";
        shows: bool, "", "true where the operand was not read as it was meant, or lost something by its law";
        bound_notices: bool, "", "true where qassay's bound around what was meant fails the product";
        gates_notice: Gates, "", "gates that fail it against the product of what was meant (and pass the healthy one)";
        gates_notice_exact: Gates, "", "gates that fail it against the unquantized product and pass freshly quantized operands";
    } errors " of the product"
}

/// The two rows of a product.
pub fn records(machine: &Machine, outcome: &Outcome, verdict: &ProductVerdict) -> Result<[Record; 2]> {
    let scenario = machine.scenario;
    let flat = |x: &Array2<f64>| x.iter().copied().collect::<Vec<f64>>();
    let (exact, ideal) = (flat(&outcome.exact.d), flat(&outcome.ideal.d));
    let between = |reference: &[f64], actual: &[f64]| ErrorStats::between(reference, actual, &outcome.out).map(Some);
    let errors = Errors {
        quantization: between(&exact, &ideal)?,
        kernel: between(&ideal, &outcome.actual)?,
        total: between(&exact, &outcome.actual)?,
    };
    let notice = Gates(gates(&ideal, &outcome.healthy, &outcome.actual));
    let notice_exact = Gates(gates(&exact, &flat(&fresh(machine, outcome)?), &outcome.actual));
    let one = |i: usize| -> Result<Record> {
        let (side, v) = (&outcome.sides[i], &verdict.sides[i]);
        let q = &side.buffer.q;
        Ok(Record {
            scenario: scenario.name.clone(),
            row: scenario.row,
            class: scenario.class,
            policy: machine.policy,
            step: machine.step,
            product: outcome.product.clone(),
            operand: ["a", "b"][i].into(),
            backend: machine.backend(),
            events: marks(scenario, machine.step).join("; "),
            buffer: side.name.clone(),
            state: side.buffer.state.clone(),
            version: side.buffer.version,
            recipe: machine.slot(&side.buffer.state)?.spec.recipe.to_string(),
            format: q.format(),
            granularity: q.granularity(),
            rows: q.rows(),
            cols: q.cols(),
            scale_inv_true: v.scale_inv_true,
            scale_inv_used: v.scale_inv_used,
            r_predicted: v.r_predicted,
            r_measured: v.r_measured,
            r_min: v.r_min,
            r_max: v.r_max,
            gain_predicted: verdict.gain_predicted,
            gain_measured: verdict.gain_measured,
            saturated_share: v.saturated,
            flushed_share: v.flushed,
            law: v.law.clone(),
            holds: v.holds && verdict.holds,
            why: if v.holds { verdict.why.clone() } else { v.why.clone() },
            shows: v.shows,
            bound_notices: verdict.bound_notices,
            gates_notice: notice.clone(),
            gates_notice_exact: notice_exact.clone(),
            errors: errors.clone(),
            command: command(machine),
        })
    };
    Ok([one(0)?, one(1)?])
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
