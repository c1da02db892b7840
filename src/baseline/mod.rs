//! Recorded truth, and what differs from it.
//!
//! A baseline is `data/baselines/<backend-device>/<sweep>.csv`, one line a case that a person can read in a diff, and
//! `<sweep>.json` beside it: the facts of the run it was accepted from. [`accept`] is the only writer; [`diff`] compares.

pub mod diff;
pub(crate) mod history;
pub(crate) mod ks;
pub(crate) mod order;

use crate::assay::row::{self, Row};
use crate::assay::table::{Line, table};
use crate::compare::Verdict;
use crate::op::Op;
use crate::run::facts::Facts;
use crate::run::{journal, provenance};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

table! {
    /// One case as a baseline keeps it: the columns of `rows.csv` of these names.
    pub struct Record {
        case: String, "", "name of the case";
        op: Op, "", "what is computed";
        kernel: String, "", "who computed it";
        device: String, "", "device it ran on";
        verdict: Verdict, "", "what it was judged";
        sha256: String, "", "digest of the output bits";
        mismatches: Option<usize>, "elements", "elements whose bits differ from the device model";
        bound_ratio: Option<f64>, "1", "largest error over its certain bound";
        quant_sqnr_db: Option<f64>, "dB", "SQNR of the quantization error";
        kernel_rel_frobenius: Option<f64>, "1", "relative kernel error";
        kernel_max_ulp: Option<f64>, "ulp", "largest kernel error";
        total_rel_frobenius: Option<f64>, "1", "relative total error";
        ulp_histogram: Option<[usize; 9]>, "", "kernel error in output ulps, binned";
        algorithm: String, "", "which of a library's algorithms ran";
    }
}

impl Record {
    pub fn of(row: &Row) -> Record {
        Record {
            case: row.case.clone(),
            op: row.op,
            kernel: row.kernel.clone(),
            device: row.device.clone(),
            verdict: row.verdict,
            sha256: row.sha256.clone(),
            mismatches: row.mismatches,
            bound_ratio: row.bound_ratio,
            quant_sqnr_db: row.errors.quantization(|e| e.sqnr_db),
            kernel_rel_frobenius: row.errors.kernel(|e| e.rel_frobenius),
            kernel_max_ulp: row.errors.kernel(|e| e.max_ulp),
            total_rel_frobenius: row.errors.total(|e| e.rel_frobenius),
            ulp_histogram: row.ulp_histogram,
            algorithm: row.algorithm.clone(),
        }
    }

    /// Whether nothing that was measured differs: another algorithm that returns the same is no change.
    pub fn measures_as(&self, other: &Record) -> bool {
        *self == Record { algorithm: self.algorithm.clone(), ..other.clone() }
    }
}

/// One side of a comparison: the cases of one sweep and the facts they were made with.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub sweep: String,
    pub records: Vec<Record>,
    pub facts: Facts,
}

/// The sweeps of the run in `folder`, one side each. Errors: no run, or one that is not complete.
pub fn of_run(folder: &Path) -> Result<Vec<Recording>> {
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
        let of = rows.iter().filter(|r| r.sweep == sweep);
        Recording { records: of.map(Record::of).collect(), sweep: name(&sweep), facts: facts.clone() }
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
/// complete, is a selection or a shard, or has a case that ended in an error: no truth to record; a sweep without a baseline, unless
/// one is to begin.
pub fn accept(run: &Path, baselines: &Path, new: bool) -> Result<Vec<PathBuf>> {
    let sides = of_run(run)?;
    for side in &sides {
        let refuse =
            |found: String, expected: &str| Error::BadFile { path: run.to_path_buf(), found, expected: expected.to_string() };
        let selected = ["case", "shard"].iter().any(|f| !side.facts.get(f).is_empty());
        if selected || !side.facts.list("filter").is_empty() {
            return Err(refuse("a part of a sweep".into(), "a whole one, without --filter, --case and --shard"));
        }
        if let Some(record) = side.records.iter().find(|r| r.verdict == Verdict::Error) {
            return Err(refuse(format!("an error in {}", record.case), "a run in which every case ran"));
        }
    }
    let path_of = |side: &Recording| baselines.join(device_folder(&side.facts)).join(format!("{}.csv", side.sweep));
    if let Some(first) = sides.iter().find(|s| !new && !path_of(s).exists()) {
        return Err(Error::BadFile {
            path: path_of(first),
            found: format!("no baseline of {} to replace", first.sweep),
            expected: "one; check the sweep and the folder, or begin one with `qassay accept … --new`".into(),
        });
    }
    let mut written = Vec::new();
    for side in &sides {
        let folder = baselines.join(device_folder(&side.facts));
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e, "check its permissions"))?;
        let mut text = journal::line(&Record::names());
        side.records.iter().for_each(|r| text.extend(journal::line(&r.cells())));
        let path = path_of(side);
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
pub fn read(folder: &Path, sweep: &str) -> Result<Recording> {
    let path = folder.join(format!("{sweep}.csv"));
    let text = std::fs::read_to_string(&path).map_err(|e| {
        Error::io(
            &path,
            e,
            "there is no baseline of this sweep; `qassay run` it, read the report, then `qassay accept --new` the run",
        )
    })?;
    let records = parse(&path, &text)?;
    Ok(Recording { sweep: sweep.to_string(), records, facts: Facts::read_file(&path.with_extension("json"))? })
}

/// The records in the text of a baseline, with or without the last column, which the first ones had not; `path` names it in errors.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Record>> {
    let bad = |found: String| Error::BadFile {
        path: path.to_path_buf(),
        found,
        expected: format!("the {} columns of a baseline of this version; `qassay accept` a new run", Record::columns().len()),
    };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| bad(e.to_string()))?;
    let (names, found) = (Record::names(), header.iter().collect::<Vec<_>>());
    let without = found == names[..names.len() - 1];
    if !without && found != names {
        return Err(bad(format!("the columns {}", header.iter().take(20).collect::<Vec<_>>().join(","))));
    }
    let record = |r: csv::Result<csv::StringRecord>| {
        let r = r.map_err(|e| bad(e.to_string()))?;
        let line = r.position().map_or(0, csv::Position::line);
        Record::read(&r.iter().chain(without.then_some("")).collect::<Vec<_>>()).map_err(|e| bad(format!("line {line}: {e}")))
    };
    reader.records().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Backend, cpu::KERNELS};
    use crate::sweep::{Sweep, assay};

    /// Every CPU gives the same bits: one folder for all of them, one for each GPU.
    #[test]
    fn a_folder_is_of_all_cpus_or_of_one_gpu() {
        let folder = |backend: &str, device: &str| {
            device_folder(&Facts([("backend", backend), ("device", device)].map(|(k, v)| (k.into(), v.into())).into()))
        };
        assert_eq!(folder("cpu", "AMD EPYC 9654"), "cpu");
        assert_eq!(folder("cuda", "NVIDIA H200"), "cuda-nvidia-h200");
    }

    #[test]
    fn a_record_is_the_columns_of_its_row() {
        let sweep = Sweep::load("smoke", 0).unwrap();
        for case in sweep.cases.iter().step_by(9) {
            let row = assay::assay(case, KERNELS, Backend::Cpu, 0);
            let record = Record::of(&row);
            for column in Record::columns() {
                assert_eq!(column.text(&record), Row::column(&column.name).unwrap().text(&row), "{}", column.name);
            }
            let cells = record.cells();
            assert_eq!(Record::read(&cells.iter().map(String::as_str).collect::<Vec<_>>()).unwrap(), record);
        }
    }

    /// The baseline is a release build's; this is one with overflow checks and hardly any optimization.
    #[test]
    fn a_debug_build_makes_the_same_bits_and_numbers() {
        let accepted = read(&folder().join("cpu"), "standard").unwrap();
        let sweep = Sweep::load("standard", 0).unwrap();
        let mut compared = 0;
        for case in sweep.cases.iter().step_by(37) {
            let now = Record::of(&assay::assay(case, KERNELS, Backend::Cpu, 0));
            let then = accepted.records.iter().find(|r| r.case == case.id()).unwrap();
            // The device's name is this machine's.
            let differ = Record::columns().iter().find(|c| c.name != "device" && c.text(&now) != c.text(then));
            assert_eq!(differ.map(|c| &c.name), None, "{}", case.id());
            compared += 1;
        }
        assert!(compared >= 50, "{compared}");
    }
}
