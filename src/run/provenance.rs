//! What a run was: enough to make it again.

use super::sweeps::{Options, Outcome};
use crate::assay::command::shell_word;
use crate::sweep::Sweep;
use crate::{Error, Result};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes `provenance.txt`, one `key: value` a line.
pub fn write(out: &Path, sweeps: &[Sweep], options: &Options, outcome: &Outcome, seconds: f64) -> Result<()> {
    let mut lines = vec![
        format!("qassay: {}", env!("CARGO_PKG_VERSION")),
        format!("revision: {}", revision()),
        format!("date: {}", now()),
        format!("command: {}", command()),
        format!("backend: {}", options.backend.name()),
        format!("device: {}", options.facts.get("device")),
        format!("{}: {}", if options.workers.is_some() { "processes" } else { "threads" }, options.jobs()),
        format!("seed: {}", options.seed),
    ];
    for sweep in sweeps {
        lines.push(format!("sweep: {} sha256 {} ({} cases)", sweep.name, sweep.digest, sweep.cases.len()));
    }
    for (name, file, _) in crate::input::real::COLLECTIONS {
        let bytes = crate::data::read(file)?.bytes;
        lines.push(format!("real data: {name} sha256 {}", crate::compare::sha256(&bytes)));
    }
    lines.push(format!(
        "cases: {} of {}{}",
        outcome.kept.totals.rows,
        outcome.planned,
        if outcome.interrupted { " (stopped)" } else { "" }
    ));
    lines.push(format!("seconds: {seconds:.1}"));
    if outcome.resumed > 0 {
        lines.push(format!("resumed: after {} cases", outcome.resumed));
    }
    let path = out.join("provenance.txt");
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|e| Error::io(&path, e, "make room; the rows are complete"))
}

/// The command that runs, as a reader types it: without the folder of the program, quoted for a shell.
pub fn command() -> String {
    let words = std::env::args().skip(1).map(|word| shell_word(&word));
    std::iter::once("qassay".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The time now, as every provenance has it: to the second, in UTC.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

/// Writes `times.csv`: the seconds of each case that was run now, one thread beside `threads` others.
pub fn write_times(out: &Path, sweeps: &[Sweep], outcome: &Outcome) -> Result<()> {
    let path = out.join("times.csv");
    let io = |e| Error::io(&path, e, "make room; the rows are complete");
    let mut file = BufWriter::new(File::create(&path).map_err(io)?);
    file.write_all(&super::journal::line(&["case", "seconds"])).map_err(io)?;
    let cases = sweeps.iter().flat_map(|s| &s.cases).skip(outcome.resumed);
    for (case, seconds) in cases.zip(&outcome.times) {
        file.write_all(&super::journal::line(&[case.id(), format!("{seconds:.6}")])).map_err(io)?;
    }
    file.flush().map_err(io)
}

/// What each case of a run took, in seconds. Errors: the run has no `times.csv` of this version.
pub fn read_times(run: &Path) -> Result<HashMap<String, f64>> {
    let path = run.join("times.csv");
    let bad =
        |found: String| Error::BadFile { path: path.clone(), found, expected: "case,seconds: a run of this version".into() };
    let mut reader = csv::Reader::from_path(&path).map_err(|e| bad(e.to_string()))?;
    reader.deserialize().collect::<csv::Result<_>>().map_err(|e| bad(e.to_string()))
}

/// The git revision of the program's source when it was built, with `+` when it had changes: what the builder says in `QASSAY_REVISION`,
/// else what the build found. A program of no revision says which crate it was built from.
pub fn revision() -> String {
    let found = option_env!("QASSAY_REVISION").or_else(crate::data::revision);
    found.map_or_else(|| format!("built from crate {}", env!("CARGO_PKG_VERSION")), String::from)
}

/// The processor's name, where the system tells it.
pub fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(": ").nth(1));
    model.map_or_else(|| std::env::consts::ARCH.to_string(), |m| format!("{m} ({})", std::env::consts::ARCH))
}
