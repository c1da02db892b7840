//! The replay of scenarios under policies.

use super::law::{judge, must_be_exact};
use super::machine::Machine;
use super::record::{Record, records};
use super::{Policy, Scenario};
use crate::Result;
use crate::kernel::{Backend, Kernel};
use rayon::prelude::*;

/// One scenario under one policy.
#[derive(Clone, Debug)]
pub struct Replay {
    pub scenario: String,
    pub row: u32,
    pub class: &'static str,
    pub policy: Policy,
    pub steps: usize,
    pub records: Vec<Record>,
    /// Rows that are not as their law says.
    pub broken: usize,
    /// Why the whole is wrong, where no single row is: a staleness that never shows, a packaged one that does.
    pub why: Option<String>,
}

impl Replay {
    pub fn holds(&self) -> bool {
        self.broken == 0 && self.why.is_none()
    }
    /// The first step at which it shows.
    pub fn first_shown(&self) -> Option<usize> {
        self.records.iter().find(|r| r.is("shows")).and_then(|r| r.get("step").parse().ok())
    }
    /// The row whose r is farthest from 1, if any is.
    pub fn worst(&self) -> Option<&Record> {
        let far = |r: &Record| r.num("r_measured").map_or(0.0, |r| if r > 0.0 { r.ln().abs() } else { f64::INFINITY });
        self.records.iter().filter(|r| r.get("r_measured") != "1").max_by(|a, b| far(a).total_cmp(&far(b)))
    }
    /// Gates (of [`crate::compare::gates::GATES`]) that notice at any step, by a column of names.
    pub fn noticed(&self, column: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self.records.iter().flat_map(|r| r.get(column).split_whitespace()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
    pub fn bound_notices(&self) -> bool {
        self.records.iter().any(|r| r.is("bound_notices"))
    }
}

/// Runs one scenario under one policy. Errors: those of its events, with their lines.
pub fn replay(
    scenario: &Scenario,
    policy: Policy,
    seed: u64,
    backend: Backend,
    kernels: &[&'static dyn Kernel],
) -> Result<Replay> {
    let mut machine = Machine::new(scenario, policy, seed, backend, kernels)?;
    let mut rows = Vec::new();
    let mut differs = 0;
    for _ in 0..scenario.steps {
        machine.step(&mut |machine, outcome| {
            let verdict = judge(machine, &outcome)?;
            differs += usize::from(!outcome.is_healthy());
            rows.extend(records(machine, &outcome, &verdict)?);
            Ok(())
        })?;
    }
    let broken = rows.iter().filter(|r| !r.is("holds")).count();
    let stale = |l: &super::law::Law| l.policies.contains(&policy);
    let shows = rows.iter().any(|r| r.is("shows"));
    let why = if must_be_exact(scenario.class, policy) && differs > 0 {
        Some(format!("{differs} products differ from the healthy ones, although the {policy} policy protects this class"))
    } else if scenario.laws.iter().any(stale) && !shows {
        Some("a law says that something goes wrong, and nothing shows at any step".to_string())
    } else {
        None
    };
    Ok(Replay {
        scenario: scenario.name.clone(),
        row: scenario.row,
        class: scenario.class.name(),
        policy,
        steps: scenario.steps,
        records: rows,
        broken,
        why,
    })
}

/// All scenarios under all `policies`, in order; `done` is told of each.
pub fn replay_all(
    scenarios: &[Scenario],
    policies: &[Policy],
    seed: u64,
    backend: Backend,
    kernels: &[&'static dyn Kernel],
    done: &(dyn Fn(&Replay) + Sync),
) -> Result<Vec<Replay>> {
    let jobs: Vec<(&Scenario, Policy)> = scenarios.iter().flat_map(|s| policies.iter().map(move |p| (s, *p))).collect();
    let one = |(s, p): &(&Scenario, Policy)| {
        let r = replay(s, *p, seed, backend, kernels)?;
        done(&r);
        Ok(r)
    };
    jobs.par_iter().map(one).collect()
}
