//! Recorded truth, and what differs from it.
//!
//! A baseline is `data/baselines/<backend-device>/<sweep>.csv`, one line a case that a person can read in a diff, and
//! `<sweep>.json` beside it: the facts of the run it was accepted from. [`accept`] is the only writer; [`diff`] compares.

pub mod diff;
pub mod ks;
pub mod order;

use crate::assay::row::{self, Row};
use crate::run::facts::Facts;
use crate::run::{journal, provenance};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The columns of `rows.csv` that a baseline keeps.
pub const COLUMNS: [&str; 13] = [
    "case",
    "op",
    "kernel",
    "device",
    "verdict",
    "sha256",
    "mismatches",
    "bound_ratio",
    "quant_sqnr_db",
    "kernel_rel_frobenius",
    "kernel_max_ulp",
    "total_rel_frobenius",
    "ulp_histogram",
];

/// One case as a baseline keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    values: Vec<String>,
}

impl Record {
    pub fn of(row: &Row) -> Record {
        Record { values: COLUMNS.iter().map(|c| row.get(c).to_string()).collect() }
    }
    /// The text of a column; empty for a name that does not exist.
    pub fn get(&self, name: &str) -> &str {
        COLUMNS.iter().position(|c| *c == name).map_or("", |i| &self.values[i])
    }
    /// The number of a column, where there is one.
    pub fn num(&self, name: &str) -> Option<f64> {
        self.get(name).parse().ok()
    }
    /// Counts of the kernel error in ulps; none where the case did not run or the text is no list of counts.
    pub fn histogram(&self) -> Vec<u64> {
        self.get("ulp_histogram").split('|').map(str::parse).collect::<std::result::Result<_, _>>().unwrap_or_default()
    }
}

/// One side of a comparison: the cases of one sweep and the facts they were made with.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    pub sweep: String,
    pub records: Vec<Record>,
    pub facts: Facts,
}

/// The sweeps of the run in `folder`, one side each. Errors: no run, or one that is not complete.
pub fn of_run(folder: &Path) -> Result<Vec<Side>> {
    let facts = Facts::read(folder)?;
    let rows = row::read(&folder.join("rows.csv"))?;
    let planned = facts.get("cases").split(' ').next().unwrap_or_default();
    if planned != rows.len().to_string() {
        return Err(Error::BadFile {
            path: folder.join("rows.csv"),
            found: format!("{} rows", rows.len()),
            expected: format!("{planned}: a complete run; go on with `qassay run … --resume`"),
        });
    }
    let side = |sweep: String| {
        let of = rows.iter().filter(|r| r.get("sweep") == sweep);
        Side { records: of.map(Record::of).collect(), sweep: name(&sweep), facts: facts.clone() }
    };
    Ok(facts.list("sweeps").into_iter().map(side).collect())
}

/// The name of a sweep that may be a path.
pub fn name(sweep: &str) -> String {
    Path::new(sweep).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
}

/// `<backend>-<device>` of a run, as a folder's name: the CPU kernels give the same bits on every CPU, so they have one folder.
pub fn device_folder(facts: &Facts) -> String {
    match facts.get("backend") {
        "cpu" => "cpu".into(),
        backend => {
            let words: Vec<String> = facts
                .get("device")
                .split(|c: char| !c.is_ascii_alphanumeric())
                .filter(|w| !w.is_empty())
                .map(str::to_lowercase)
                .collect();
            format!("{backend}-{}", words.join("-"))
        }
    }
}

/// `data/baselines`, there or not.
pub fn folder() -> PathBuf {
    crate::data::folder().join("baselines")
}

/// Writes the baseline of each sweep of the run in `run` below `baselines`, and returns the files. Errors: a run that is not
/// complete, is a selection or a shard, or has a case that ended in an error: no truth to record.
pub fn accept(run: &Path, baselines: &Path) -> Result<Vec<PathBuf>> {
    let sides = of_run(run)?;
    let mut written = Vec::new();
    for side in &sides {
        let refuse =
            |found: String, expected: &str| Error::BadFile { path: run.to_path_buf(), found, expected: expected.to_string() };
        let selected = ["case", "shard"].iter().any(|f| !side.facts.get(f).is_empty());
        if selected || !side.facts.list("filter").is_empty() {
            return Err(refuse("a part of a sweep".into(), "a whole one, without --filter, --case and --shard"));
        }
        if let Some(record) = side.records.iter().find(|r| r.get("verdict") == "error") {
            return Err(refuse(format!("an error in {}", record.get("case")), "a run in which every case ran"));
        }
        let folder = baselines.join(device_folder(&side.facts));
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e, "check its permissions"))?;
        let mut text = journal::line(&COLUMNS);
        side.records.iter().for_each(|r| text.extend(journal::line(&r.values)));
        let path = folder.join(format!("{}.csv", side.sweep));
        std::fs::write(&path, text).map_err(|e| Error::io(&path, e, "make room; git has the baseline before"))?;
        let twin = path.with_extension("json");
        let mut facts = side.facts.clone();
        facts.0.insert("accepted at revision".into(), provenance::revision());
        facts.write_file(&twin)?;
        written.extend([path, twin]);
    }
    Ok(written)
}

/// Reads the baseline `<folder>/<sweep>.csv` with its twin.
pub fn read(folder: &Path, sweep: &str) -> Result<Side> {
    let path = folder.join(format!("{sweep}.csv"));
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Error::io(&path, e, "there is no baseline of this sweep; `qassay run` it and `qassay accept` the run"))?;
    let records = parse(&path, &text)?;
    Ok(Side { sweep: sweep.to_string(), records, facts: Facts::read_file(&path.with_extension("json"))? })
}

/// The records in the text of a baseline; `path` names it in errors.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Record>> {
    let bad = |found: String| Error::BadFile {
        path: path.to_path_buf(),
        found,
        expected: format!("the {} columns of a baseline of this version; `qassay accept` a new run", COLUMNS.len()),
    };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| bad(e.to_string()))?;
    if !header.iter().eq(COLUMNS) {
        return Err(bad(format!("the columns {}", header.iter().take(20).collect::<Vec<_>>().join(","))));
    }
    let record = |r: csv::Result<csv::StringRecord>| {
        r.map(|r| Record { values: r.iter().map(String::from).collect() }).map_err(|e| bad(e.to_string()))
    };
    reader.records().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Backend, cpu::KERNELS};
    use crate::sweep::{Sweep, assay};

    /// The baseline is a release build's; this is one with overflow checks and hardly any optimization.
    #[test]
    fn a_debug_build_makes_the_same_bits_and_numbers() {
        let accepted = read(&folder().join("cpu"), "standard").unwrap();
        let sweep = Sweep::load("standard", 0).unwrap();
        let mut compared = 0;
        for case in sweep.cases.iter().step_by(37) {
            let now = Record::of(&assay::assay(case, KERNELS, Backend::Cpu, 0));
            let then = accepted.records.iter().find(|r| r.get("case") == case.id()).unwrap();
            // The device's name is this machine's.
            let differ = COLUMNS.iter().find(|c| **c != "device" && now.get(c) != then.get(c));
            assert_eq!(differ, None, "{}", case.id());
            compared += 1;
        }
        assert!(compared >= 50, "{compared}");
    }
}
