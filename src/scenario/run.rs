//! The replay of scenarios under policies, into the folder of a run.

use super::law::{Law, judge, must_be_exact};
use super::machine::Machine;
use super::record::{Record, records};
use super::{Act, Policy, Scenario};
use crate::kernel::{Backend, Kernel};
use crate::sweep::facts::{self, Facts};
use crate::sweep::journal::Journal;
use crate::sweep::provenance;
use crate::{Error, Result};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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
        self.why.is_none() && self.records.iter().all(|r| r.is("holds"))
    }
    /// The first step at which it shows.
    pub fn first_shown(&self) -> Option<usize> {
        self.records.iter().find(|r| r.is("shows")).and_then(|r| r.get("step").parse().ok())
    }
    /// The row whose r is farthest from 1, if any is.
    pub fn worst(&self) -> Option<&Record> {
        let far = |r: &Record| r.num("r_measured").map_or(0.0, |r| if r > 0.0 { r.ln().abs() } else { f64::INFINITY });
        self.records.iter().filter(|r| r.is("shows")).max_by(|a, b| far(a).total_cmp(&far(b)))
    }
    /// Gates that notice at any step, by a column of names.
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
    } else if scenario.laws.iter().any(predicts) && !rows.iter().any(|r: &Record| r.is("shows")) {
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

/// Rows that a scenario leaves under one policy: two for each product of each step.
fn rows_of(s: &Scenario) -> usize {
    let products = |step| s.events.iter().filter(|e| matches!(e.act, Act::Product(_)) && e.when.holds(step)).count();
    (0..s.steps).map(|step| 2 * products(step)).sum()
}

/// What decides the bits of a run.
pub fn facts(jobs: &[(&Scenario, Policy)], with: With, device: &str) -> Result<Facts> {
    let mut all = BTreeMap::new();
    let mut set = |name: &str, value: String| all.insert(name.to_string(), value);
    set("qassay", env!("CARGO_PKG_VERSION").into());
    set("program", facts::program()?);
    set("revision", provenance::revision());
    set("backend", with.backend.name().into());
    set("device", device.into());
    set("seed", with.seed.to_string());
    for (s, policy) in jobs {
        set(&format!("scenario {} {policy}", s.name), format!("{} {} steps", s.digest, s.steps));
    }
    for (name, file, _) in crate::input::real::COLLECTIONS {
        let path = crate::input::data_path(file)?;
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e, "check its permissions"))?;
        set(&format!("input {name}"), crate::compare::sha256(&bytes));
    }
    Ok(Facts(all))
}

/// Replays into the folder `out`: `rows.csv` as it goes, `run.json`, `provenance.txt`. With `resume`, rows that are there are kept and must
/// come out again as they are. Returns the replays. Errors: those of [`Journal::open`]; a row that differs from the one kept.
pub fn run(
    jobs: &[(&Scenario, Policy)],
    with: With,
    (out, facts, resume): (&Path, &Facts, bool),
    done: &mut dyn FnMut(&Replay),
) -> Result<Vec<Replay>> {
    let started = std::time::Instant::now();
    let places: Vec<(&str, &str)> =
        jobs.iter().flat_map(|(s, p)| std::iter::repeat_n((s.name.as_str(), p.name()), rows_of(s))).collect();
    let is = |i: usize, r: &Record| (r.get("scenario"), r.get("policy")) == places[i] && !r.get("holds").is_empty();
    let mut kept = Vec::new();
    let (mut journal, _) = Journal::open_lines(out, facts, places.len(), &is, resume, |r| kept.push(r))?;
    let (mut replays, mut at) = (Vec::new(), 0);
    replay_all(jobs, with, &mut |replay| {
        for row in &replay.records {
            match kept.get(at) {
                None => journal.append(row)?,
                Some(before) if before == row => {}
                Some(_) => {
                    return Err(Error::BadFile {
                        path: out.join("rows.csv"),
                        found: format!("row {} of other bits than now", at + 1),
                        expected: "the same rows again; begin another run with --out".into(),
                    });
                }
            }
            at += 1;
        }
        done(&replay);
        replays.push(replay);
        Ok(())
    })?;
    journal.sync()?;
    let mut lines: Vec<String> = facts.0.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    lines.push(format!("command: {}", std::env::args().collect::<Vec<_>>().join(" ")));
    lines.push(format!("rows: {at}"));
    lines.push(format!("seconds: {:.1}", started.elapsed().as_secs_f64()));
    let path = out.join("provenance.txt");
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|e| Error::io(&path, e, "make room; the rows are complete"))?;
    Ok(replays)
}
