//! Scenarios: their events, and what became of the scales.

use super::{Chart, Show, Table, raw};
use crate::assay::row::short;
use crate::compare::gates::GATES;
use crate::kernel::{Backend, cpu};
use crate::report::stale;
use crate::scenario::audit::{Audit, Finding};
use crate::scenario::record::{Record, marks};
use crate::scenario::run::{Replay, With, replay};
use crate::scenario::{Policy, Scenario};
use crate::{Error, Result};
use maud::html;

/// One scenario under some policies.
pub struct Replays {
    scenario: Scenario,
    replays: Vec<Replay>,
}

impl std::ops::Deref for Replays {
    type Target = [Replay];
    fn deref(&self) -> &[Replay] {
        &self.replays
    }
}

impl Scenario {
    /// Runs it on the CPU under these policies. Errors: those of its events, with their lines.
    pub fn replay(&self, policies: &[Policy]) -> Result<Replays> {
        let with = With { seed: 0, backend: Backend::Cpu, kernels: cpu::KERNELS };
        let replays = policies.iter().map(|p| replay(self, *p, with)).collect::<Result<_>>()?;
        Ok(Replays { scenario: self.clone(), replays })
    }
    /// The steps, and the events that move state in each.
    fn events(&self) -> Table {
        let row = |step: usize| vec![step.to_string(), marks(self, step).join(", ")];
        Table::new("", ["step", "events that move state"], (0..self.steps).map(row))
    }
}

/// Its timeline, under all policies.
impl Show for Scenario {
    fn html(&self) -> String {
        let timeline = self.replay(&Policy::ALL).map_or_else(|e| e.html(), |r| r.timeline().html());
        html! { p.title { (self.name) } p { (self.about.trim()) } (raw(&timeline)) }.into_string()
    }
    fn plain(&self) -> String {
        format!("{}\n{}\n{}", self.name, self.about.trim(), self.events().plain())
    }
}

impl Replays {
    /// The rows of all policies.
    fn rows(&self) -> Vec<Record> {
        self.replays.iter().flat_map(|r| r.records.clone()).collect()
    }
    /// The replay under a policy. Errors: it was not run.
    pub fn under(&self, policy: Policy) -> Result<&Replay> {
        let known = || self.replays.iter().map(|r| r.policy.name());
        self.replays
            .iter()
            .find(|r| r.policy == policy)
            .ok_or_else(|| Error::unknown("replayed policy", policy.name(), known()))
    }
    /// The scale_inv of the operand that goes wrong first and the one that was read, the errors of its product, the events.
    pub fn timeline(&self) -> Chart {
        let data: Vec<String> = self.replays.iter().map(|r| format!("{}: {}", r.policy, ratios(r))).collect();
        let svg = stale::drawing(&self.scenario, &self.rows());
        Chart::drawn("scales and errors over the steps", svg, format!("r as read, by step\n{}", data.join("\n")))
    }
    /// One line a policy: when it shows, where, how far, who notices.
    pub fn table(&self) -> Table {
        let line = |r: &Replay| {
            let none = || "·".to_string();
            let worst = |f: &dyn Fn(&Record) -> String| r.worst().map_or_else(none, f);
            vec![
                r.policy.to_string(),
                r.first_shown().map_or_else(none, |s| s.to_string()),
                worst(&|w| format!("{}.{}", w.product, w.operand)),
                worst(&|w| short(w.r_predicted)),
                worst(&|w| short(w.r_measured)),
                share(r.noticed().len(), GATES.len()).to_string(),
                if r.bound_notices() { "fails" } else { "·" }.to_string(),
                if r.holds() { "holds" } else { "BROKEN" }.to_string(),
            ]
        };
        let columns = ["policy", "shows at step", "worst operand", "r predicted", "r measured", "gates notice", "bound", "law"];
        Table::new(&self.scenario.name, columns, self.replays.iter().map(line))
    }
}

/// How many of all notice, in a word that another gate does not change.
fn share(some: usize, all: usize) -> &'static str {
    match some {
        0 => "none",
        n if n == all => "all",
        n if 2 * n > all => "most",
        _ => "some",
    }
}

/// r of the worst operand at each step.
fn ratios(r: &Replay) -> String {
    let Some(worst) = r.worst() else { return "1 throughout".into() };
    let same = |x: &&Record| (&x.product, &x.operand) == (&worst.product, &worst.operand);
    let r = r.records.iter().filter(same).map(|x| short(x.r_measured));
    r.collect::<Vec<_>>().join(" ")
}

impl Show for Replays {
    fn html(&self) -> String {
        format!("{}{}", self.table().html(), self.timeline().html())
    }
    fn plain(&self) -> String {
        format!("{}\n{}", self.table().plain(), self.timeline().plain())
    }
}

/// Whether codes and scale_inv belong together: a word, the sentence, a line a scale where there are few.
impl Show for Audit {
    fn html(&self) -> String {
        let class = if self.finding == Finding::Belongs { "verdict pass" } else { "verdict fail" };
        let tiles = self.tiles.iter().take(MOST_TILES).map(|t| {
            let (low, high) = t.r();
            vec![short(t.scale_inv), t.finding.name().to_string(), short(low), short(high)]
        });
        let table = Table::new("", ["scale_inv", "finding", "r at least", "r at most"], tiles);
        html! { p { span class=(class) { (self.finding.name()) } " " (self.words()) } (raw(&table.html())) }.into_string()
    }
    fn plain(&self) -> String {
        self.words()
    }
}

/// Scales of an audit that are listed.
const MOST_TILES: usize = 8;
