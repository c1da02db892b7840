//! The replay of scenarios into the folder of a run.

use super::facts::{self, Facts};
use super::journal::Journal;
use super::provenance;
use crate::scenario::record::Record;
use crate::scenario::run::{Replay, With, replay_all};
use crate::scenario::{Act, Policy, Scenario};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

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
        let bytes = crate::data::read(file)?.bytes;
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
    let places: Vec<(&str, Policy)> =
        jobs.iter().flat_map(|(s, p)| std::iter::repeat_n((s.name.as_str(), *p), rows_of(s))).collect();
    let is = |i: usize, r: &Record| (r.scenario.as_str(), r.policy) == places[i];
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
    lines.push(format!("date: {}", provenance::now()));
    lines.push(format!("command: {}", provenance::command()));
    lines.push(format!("rows: {at}"));
    lines.push(format!("seconds: {:.1}", started.elapsed().as_secs_f64()));
    let path = out.join("provenance.txt");
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|e| Error::io(&path, e, "make room; the rows are complete"))?;
    Ok(replays)
}
