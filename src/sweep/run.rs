//! One execution of sweeps into a folder: `rows.csv` written as it goes, in the order of the cases.

use super::row::{COLUMNS, Row};
use super::{Case, Sweep, assay};
use crate::kernel::{Backend, Kernel};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

/// How to run.
pub struct Options<'a> {
    /// Folder to write; must not hold a run already.
    pub out: PathBuf,
    /// Worker threads; 0 is one a core.
    pub jobs: usize,
    pub backend: Backend,
    pub kernels: &'a [&'static dyn Kernel],
    /// Words of the command line that select what runs: reproduced in each row's command.
    pub seed: u64,
    /// Set to stop after the cases in progress.
    pub stop: &'a AtomicBool,
}

/// What came of a run.
pub struct Outcome {
    pub rows: Vec<Row>,
    /// Cases that were to be run.
    pub planned: usize,
    /// Stopped before the end.
    pub interrupted: bool,
}

impl Outcome {
    pub fn count(&self, verdict: &str) -> usize {
        self.rows.iter().filter(|r| r.get("verdict") == verdict).count()
    }
    /// 0 all passed, 1 a verdict failed (or a case ended in an error), 3 nothing failed but a case that is no edge case had
    /// no power.
    pub fn exit_status(&self) -> i32 {
        if self.count("fail") + self.count("error") > 0 {
            1
        } else if self.rows.iter().any(|r| r.get("verdict") == "no_power" && r.get("edge") != "true") {
            3
        } else {
            0
        }
    }
}

/// Runs every case and appends its row to `<out>/rows.csv` in case order, each line complete before it is written.
/// `progress` is called with each finished row. Errors: the folder holds a run already, or cannot be written. A case that
/// fails to run is a row with verdict `error`, and the rest goes on.
pub fn run(sweeps: &[Sweep], options: &Options, progress: &(dyn Fn(&Row) + Sync)) -> Result<Outcome> {
    let cases: Vec<&Case> = sweeps.iter().flat_map(|s| &s.cases).collect();
    let mut file = Rows::create(&options.out)?;
    let jobs = if options.jobs == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { options.jobs };
    let (next, halted) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::sync_channel::<(usize, Row)>(jobs);
    let gate = Gate::new(MEMORY_IN_FLIGHT);
    let mut rows = Vec::with_capacity(cases.len());
    let result: Result<()> = std::thread::scope(|scope| {
        for _ in 0..jobs {
            let sender = sender.clone();
            scope.spawn(|| {
                let sender = sender;
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= cases.len() || options.stop.load(Ordering::Relaxed) || halted.load(Ordering::Relaxed) {
                        return;
                    }
                    let weight = gate.enter(bytes(cases[i]));
                    let row = assay::assay(cases[i], options.kernels, options.backend, options.seed);
                    gate.leave(weight);
                    if sender.send((i, row)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Cases finish in any order; rows are written in theirs.
        let (mut waiting, mut written) = (BTreeMap::new(), 0);
        for (i, row) in receiver {
            waiting.insert(i, row);
            while let Some(row) = waiting.remove(&written) {
                if let Err(e) = file.append(&row) {
                    halted.store(true, Ordering::Relaxed);
                    return Err(e);
                }
                progress(&row);
                rows.push(row);
                written += 1;
            }
        }
        Ok(())
    });
    file.finish()?;
    result?;
    Ok(Outcome { interrupted: rows.len() < cases.len(), planned: cases.len(), rows })
}

/// Cases together may hold this much; a larger one runs alone.
const MEMORY_IN_FLIGHT: u64 = 4 << 30;

/// An upper estimate of what a case holds: the operands in f32, f64 and codes, the results in f64 several times.
fn bytes(case: &Case) -> u64 {
    let (m, n, k) = (case.total_rows() as u64, case.n as u64, case.k.max(1) as u64);
    let experts = case.rows.len().max(1) as u64;
    if case.is_product() { 40 * (m * k + experts * n * k) + 120 * m * n.max(1) } else { 160 * m * n }
}

/// Lets cases in while their memory fits.
struct Gate {
    limit: u64,
    held: Mutex<u64>,
    freed: std::sync::Condvar,
}

impl Gate {
    fn new(limit: u64) -> Self {
        Self { limit, held: Mutex::new(0), freed: std::sync::Condvar::new() }
    }
    fn enter(&self, weight: u64) -> u64 {
        let weight = weight.min(self.limit);
        let mut held = self.held.lock().expect("no panic while held");
        while *held + weight > self.limit {
            held = self.freed.wait(held).expect("no panic while held");
        }
        *held += weight;
        weight
    }
    fn leave(&self, weight: u64) {
        *self.held.lock().expect("no panic while held") -= weight;
        self.freed.notify_all();
    }
}

/// `rows.csv` being written.
struct Rows {
    path: PathBuf,
    file: BufWriter<File>,
}

const REMEDY: &str = "choose a folder that can be written and has room with --out; complete rows are kept";

impl Rows {
    fn create(out: &Path) -> Result<Rows> {
        std::fs::create_dir_all(out).map_err(|e| Error::io(out, e, REMEDY))?;
        let path = out.join("rows.csv");
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::io(&path, e, "the folder holds a run; name another with --out, or remove it")
            }
            _ => Error::io(&path, e, REMEDY),
        })?;
        let mut rows = Rows { path, file: BufWriter::new(file) };
        let header: Vec<&str> = COLUMNS.iter().map(|c| c.name.as_str()).collect();
        rows.line(&header)?;
        Ok(rows)
    }
    fn append(&mut self, row: &Row) -> Result<()> {
        self.line(row.values())
    }
    fn line<S: AsRef<[u8]>>(&mut self, fields: &[S]) -> Result<()> {
        let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
        let io = |e: csv::Error| Error::io(&self.path, e.into(), REMEDY);
        writer.write_record(fields).map_err(io)?;
        let line = writer.into_inner().map_err(|e| Error::io(&self.path, e.into_error(), REMEDY))?;
        self.file.write_all(&line).and_then(|()| self.file.flush()).map_err(|e| Error::io(&self.path, e, REMEDY))
    }
    fn finish(&mut self) -> Result<()> {
        self.file.flush().and_then(|()| self.file.get_ref().sync_all()).map_err(|e| Error::io(&self.path, e, REMEDY))
    }
}
