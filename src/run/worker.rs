//! Cases in processes of their own, so that what ends a process (an illegal address, a hang, no memory left) ends one case.
//!
//! The run starts `qassay worker`, which says `[]` when it is ready, and asks it for one case at a time: a line `["sweep","case"]` on
//! its standard input, answered by the row as a JSON array of the columns' values, the map of the error, empty where none was made, and the
//! seconds of its stages. A
//! worker that dies, or is late and is killed with its process group, costs the row
//! of that case, which says why; the next case gets a fresh one. On a GPU a worker that answered with an error is replaced too: a
//! context does not recover from a fault inside a kernel.

use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::assay::table::Line;
use crate::compare::Verdict;
use crate::external::process::{Process, Why};
use crate::kernel::{Backend, Kernel};
use crate::sweep::assay::{self, Ran};
use crate::sweep::{Case, Sweep};
use crate::{Error, Result};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How workers are started, and what they may use.
pub struct Workers {
    /// The program, and the arguments that make it a worker of this run.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// `CUDA_VISIBLE_DEVICES` of worker i is entry i modulo their number; none leaves it as it is.
    pub devices: Vec<String>,
    /// A case that takes longer is an `error` row.
    pub timeout: Option<Duration>,
}

/// The place of one worker: holds the process while it is sound.
pub struct Seat<'a> {
    workers: &'a Workers,
    index: usize,
    /// Threads for each worker's own parallel loops.
    threads: usize,
    process: Option<Process>,
}

impl<'a> Seat<'a> {
    pub fn new(workers: &'a Workers, index: usize, threads: usize) -> Self {
        Self { workers, index, threads, process: None }
    }

    /// The row of a case; an `error` row with the reason when the worker did not answer.
    pub fn ran(&mut self, case: &Case, backend: Backend, seed: u64) -> Ran {
        let answer = self.ask(case);
        let lasting = backend == Backend::Cpu;
        if !answer.as_ref().is_ok_and(|ran| lasting || ran.row.verdict != Verdict::Error) {
            self.process = None;
        }
        answer.unwrap_or_else(|reason| assay::unfinished(case, backend, seed, reason).into())
    }

    fn ask(&mut self, case: &Case) -> std::result::Result<Ran, String> {
        if self.process.is_none() {
            let mut process = self.workers.start(self.index, self.threads).map_err(|e| e.to_string())?;
            fields(process.answer(Some(STARTUP))?, &mut process, Some(STARTUP), 0)?;
            self.process = Some(process);
        }
        let process = self.process.as_mut().expect("started above");
        let request = serde_json::to_string(&[&*case.sweep, &case.id()]).expect("texts are JSON");
        let answer = process.ask(&request, self.workers.timeout)?;
        let mut cells = fields(answer, process, self.workers.timeout, Row::columns().len() + 2)?;
        let stages = cells.pop().expect("counted");
        let stages =
            stages.split(';').filter_map(|s| s.split_once('=')).filter_map(|(name, s)| Some((name.into(), s.parse().ok()?)));
        let stages = stages.collect();
        let map = ErrorMap::parse(case.id(), &cells.pop().expect("counted"));
        let row = Row::read(&cells.iter().map(String::as_str).collect::<Vec<_>>()).map_err(|e| e.to_string())?;
        Ok(Ran { row, map, stages })
    }
}

/// The first line from `line` on that is an array of so many texts: what a library prints between is logged.
fn fields(
    mut line: String,
    process: &mut Process,
    limit: Option<Duration>,
    count: usize,
) -> std::result::Result<Vec<String>, String> {
    loop {
        match serde_json::from_str::<Vec<String>>(&line) {
            Ok(values) if values.len() == count => return Ok(values),
            _ => tracing::warn!("worker: {line}"),
        }
        line = process.answer(limit)?;
    }
}

/// A worker that is not ready by then never will be: it loads the program and opens the GPU.
const STARTUP: Duration = Duration::from_secs(60);

impl Workers {
    fn start(&self, index: usize, threads: usize) -> Result<Process> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if !self.devices.is_empty() {
            command.env("CUDA_VISIBLE_DEVICES", &self.devices[index % self.devices.len()]);
        }
        if std::env::var_os("GLIBC_TUNABLES").is_none() {
            // Large arrays in large pages: their first use is a fault a 2 MiB, not a 4 KiB.
            command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        }
        if std::env::var_os("RAYON_NUM_THREADS").is_none() {
            command.env("RAYON_NUM_THREADS", threads.max(1).to_string());
        }
        Process::start(&mut command, Why::First)
            .map_err(|e| Error::io(&self.program, e, "a worker process could not be started"))
    }
}

/// The worker's side: answers until its input ends. `device` is written into the rows of kernels that are not the CPU's. Errors: a
/// request that is none, or for a case that `sweeps` does not hold; the answer cannot be written.
pub fn serve(
    sweeps: &[Sweep],
    kernels: &[&'static dyn Kernel],
    backend: Backend,
    device: &str,
    seed: u64,
    requests: impl BufRead,
    mut answers: impl Write,
) -> Result<()> {
    let cases: HashMap<(String, String), &Case> =
        sweeps.iter().flat_map(|s| &s.cases).map(|c| ((c.sweep.to_string(), c.id()), c)).collect();
    let io = |e| Error::io("standard input and output", e, "a worker talks with the run that started it");
    answers.write_all(b"[]\n").and_then(|()| answers.flush()).map_err(io)?;
    for line in requests.lines() {
        let line = line.map_err(io)?;
        let case = serde_json::from_str(&line).ok().and_then(|key: (String, String)| cases.get(&key));
        let case = case.ok_or_else(|| Error::value("request", &line, "[\"sweep\",\"case\"] of the worker's sweeps"))?;
        injected_fault(&case.id());
        let Ran { row, map, stages } = assay::assay_on(device, case, kernels, backend, seed);
        let mut cells = row.cells();
        cells.push(map.map_or(String::new(), |map| map.text()));
        cells.push(stages.iter().map(|(name, seconds)| format!("{name}={seconds:.6}")).collect::<Vec<_>>().join(";"));
        let answer = serde_json::to_string(&cells).expect("texts are JSON") + "\n";
        answers.write_all(answer.as_bytes()).and_then(|()| answers.flush()).map_err(io)?;
    }
    Ok(())
}

/// Makes this process end with the run that started it, however that ends, and lets it have `memory` bytes of address space. Errors:
/// the system refuses the limit.
pub fn confine(memory: Option<u64>) -> Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: a plain system call that takes a signal number.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
    };
    let Some(bytes) = memory else { return Ok(()) };
    let limit = libc::rlimit { rlim_cur: bytes as libc::rlim_t, rlim_max: bytes as libc::rlim_t };
    // SAFETY: reads the struct during the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } != 0 {
        return Err(Error::io("--memory", std::io::Error::last_os_error(), "name a limit below the system's own"));
    }
    Ok(())
}

/// What tests use to see that a run survives: `QASSAY_FAULT=crash:TEXT` (or `exit:`, `hang:`) befalls cases whose name contains TEXT.
fn injected_fault(id: &str) {
    let Ok(fault) = std::env::var("QASSAY_FAULT") else { return };
    match fault.split_once(':') {
        Some(("crash", text)) if id.contains(text) => std::process::abort(),
        Some(("exit", text)) if id.contains(text) => std::process::exit(7),
        Some(("hang", text)) if id.contains(text) => loop {
            std::thread::park();
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu::KERNELS;
    use crate::run::plan::Selection;

    #[test]
    fn a_worker_answers_with_the_row_of_the_case() {
        let sweeps = Selection { sweeps: vec!["smoke".into()], ..Selection::default() }.load().unwrap();
        let case = &sweeps[0].cases[0];
        let request = serde_json::to_string(&[&*case.sweep, &case.id()]).unwrap();
        let mut answer = Vec::new();
        serve(&sweeps, KERNELS, Backend::Cpu, "", 0, request.as_bytes(), &mut answer).unwrap();
        let row = String::from_utf8(answer).unwrap().strip_prefix("[]\n").map(String::from).unwrap();
        let mut values: Vec<String> = serde_json::from_str(&row).unwrap();
        assert!(values.pop().unwrap().contains(";kernel=0."), "the stages");
        assert_eq!(values.pop().as_deref(), Some(""), "a small case has no map");
        assert_eq!(values, assay::assay(case, KERNELS, Backend::Cpu, 0).cells());
    }

    #[test]
    fn a_request_for_what_is_not_there_is_refused() {
        for request in ["", "smoke", "[\"smoke\"]", "[\"smoke\",\"cast/none\"]"] {
            let error = serve(&[], KERNELS, Backend::Cpu, "", 0, format!("{request}\n").as_bytes(), Vec::new()).unwrap_err();
            assert!(error.to_string().contains("request"), "{error}");
        }
    }
}
