//! The replay of scenarios under policies.

use super::law::{Law, judge, must_be_exact};
use super::machine::Machine;
use super::record::{Record, records};
use super::{Act, Policy, Scenario};
use crate::Result;
use crate::kernel::{Backend, Kernel};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// One scenario under one policy.
#[derive(Clone, Debug)]
pub struct Replay {
    pub scenario: String,
    pub row: u32,
    pub class: &'static str,
    pub policy: Policy,
    pub records: Vec<Record>,
    /// Why the whole is wrong, where no single row is: a staleness that never shows, a packaged one that does.
    pub why: Option<String>,
}

impl Replay {
    /// Every row is as its law says, and so is the whole.
    pub fn holds(&self) -> bool {
        self.why.is_none() && self.records.iter().all(|r| r.holds)
    }
    /// The first step at which it shows.
    pub fn first_shown(&self) -> Option<usize> {
        self.records.iter().find(|r| r.shows).map(|r| r.step)
    }
    /// The row whose r is farthest from 1, if any is.
    pub fn worst(&self) -> Option<&Record> {
        let far = |r: &Record| if r.r_measured > 0.0 { r.r_measured.ln().abs() } else { f64::INFINITY };
        self.records.iter().filter(|r| r.shows).max_by(|a, b| far(a).total_cmp(&far(b)))
    }
    /// Gates that notice at any step, against the product of what was meant.
    pub fn noticed(&self) -> BTreeSet<&'static str> {
        self.records.iter().flat_map(|r| r.gates_notice.0.iter().copied()).collect()
    }
    pub fn bound_notices(&self) -> bool {
        self.records.iter().any(|r| r.bound_notices)
    }
}

/// Who computes, and from which draw.
#[derive(Clone, Copy)]
pub struct With<'a> {
    pub seed: u64,
    pub backend: Backend,
    pub kernels: &'a [&'static dyn Kernel],
}

/// Runs one scenario under one policy. Errors: those of its events, with their lines.
pub fn replay(scenario: &Scenario, policy: Policy, with: With) -> Result<Replay> {
    let mut machine = Machine::new(scenario, policy, with)?;
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
    let predicts = |l: &Law| l.policies.contains(&policy);
    let why = if must_be_exact(scenario.class, policy) && differs > 0 {
        Some(format!("{differs} products differ from the healthy ones, although the {policy} policy protects this class"))
    } else if scenario.laws.iter().any(predicts) && !rows.iter().any(|r: &Record| r.shows) {
        Some("a law says that something goes wrong, and nothing shows at any step".to_string())
    } else {
        None
    };
    let (scenario, row, class) = (scenario.name.clone(), scenario.row, scenario.class.name());
    Ok(Replay { scenario, row, class, policy, records: rows, why })
}

/// Every scenario under every policy.
pub fn every<'a>(scenarios: &'a [Scenario], policies: &[Policy]) -> Vec<(&'a Scenario, Policy)> {
    scenarios.iter().flat_map(|s| policies.iter().map(move |p| (s, *p))).collect()
}

/// All `jobs` on all cores; `done` is given each in order.
pub fn replay_all(jobs: &[(&Scenario, Policy)], with: With, done: &mut dyn FnMut(Replay) -> Result<()>) -> Result<()> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            jobs.par_iter().enumerate().for_each_with(tell, |tell, (i, (s, p))| {
                // Nobody listens after an error.
                let _ = tell.send((i, replay(s, *p, with)));
            });
        });
        let (mut held, mut next) = (BTreeMap::new(), 0);
        for (i, replay) in told {
            held.insert(i, replay);
            while let Some(replay) = held.remove(&next) {
                done(replay?)?;
                next += 1;
            }
        }
        Ok(())
    })
}

/// Why no kernel of `with` takes a product of the scenario under a policy, if none does. Products are asked for once each, as operands
/// of the first step that has them.
pub fn refused(scenario: &Scenario, policy: Policy, with: With) -> Result<Option<String>> {
    if with.backend == Backend::Cpu {
        return Ok(None);
    }
    let names: BTreeSet<&str> = scenario
        .events
        .iter()
        .filter_map(|e| if let Act::Product(p) = &e.act { Some(p.name.as_str()) } else { None })
        .collect();
    let cpu = With { backend: Backend::Cpu, kernels: crate::kernel::cpu::KERNELS, ..with };
    let mut machine = Machine::new(scenario, policy, cpu)?;
    let (mut asked, mut why) = (BTreeSet::new(), None);
    while why.is_none() && asked.len() < names.len() && machine.step < scenario.steps {
        machine.step(&mut |_, outcome| {
            if asked.insert(outcome.product.clone()) {
                let find = |job| crate::kernel::find(with.kernels, job, with.backend).err();
                let lacking = find(&outcome.job).or_else(|| find(&outcome.meant));
                why = why.take().or_else(|| lacking.map(|e| format!("{}: {e}", outcome.product)));
            }
            Ok(())
        })?;
    }
    Ok(why)
}
