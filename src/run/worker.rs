//! Cases in processes of their own, so that what ends a process (an illegal address, a hang, no memory left) ends one case.
//!
//! The run starts `qassay worker`, which says `[]` when it is ready, and asks it for cases: a line `["sweep","case"]` on its standard input,
//! answered by a JSON array of texts: that line, the row's columns, the map of the error (empty where none was made), and the seconds of its
//! stages. A worker that dies, or is late and is killed with its process group, costs the row of that case, which says why; the next case gets a
//! fresh one. On a GPU a worker that answered with an error is replaced too: a context does not recover from a fault inside a kernel.

use super::shared::Shared;
use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::assay::table::Line;
use crate::compare::Verdict;
use crate::external::process::{Process, Why};
use crate::kernel::{Backend, Kernel};
use crate::stage;
use crate::sweep::assay::{self, Ran};
use crate::sweep::{Case, Sweep};
use crate::{Error, Result};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
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
    /// Whether cases that pass may share the process of their GPU: those of kernels that are trusted not to write beside their buffers.
    pub share: bool,
    /// What they add their spans to ([`stage::TRACE`]).
    pub trace: Option<PathBuf>,
    /// Those that were started before they were needed, by number.
    pub ahead: Mutex<HashMap<usize, Process>>,
}

/// The place of one worker: holds the process while it is sound.
pub struct Seat<'a> {
    workers: &'a Workers,
    index: usize,
    /// Threads for each worker's own parallel loops.
    threads: usize,
    process: Option<Process>,
    shared: Option<&'a Shared<'a>>,
}

impl<'a> Seat<'a> {
    /// Cases are tried in `shared` first, where there is one.
    pub fn new(workers: &'a Workers, index: usize, threads: usize, shared: Option<&'a Shared<'a>>) -> Self {
        Self { workers, index, threads, process: None, shared }
    }

    /// The row of a case; an `error` row with the reason when the worker did not answer.
    pub fn ran(&mut self, case: &Case, backend: Backend, seed: u64) -> Ran {
        if let Some(ran) = self.shared.and_then(|shared| shared.ran(case)) {
            return ran;
        }
        let answer = self.ask(case);
        let lasting = backend == Backend::Cpu;
        if !answer.as_ref().is_ok_and(|ran| lasting || ran.row.verdict != Verdict::Error) {
            self.process = None;
        }
        answer.unwrap_or_else(|reason| assay::unfinished(case, backend, seed, reason).into())
    }

    fn ask(&mut self, case: &Case) -> std::result::Result<Ran, String> {
        if self.process.is_none() {
            let mut process = self.workers.start(self.index, self.threads, 1).map_err(|e| e.to_string())?;
            ready(&mut process, STARTUP)?;
            self.process = Some(process);
        }
        let process = self.process.as_mut().expect("started above");
        let mut line = process.ask(&request(case), self.workers.timeout)?;
        loop {
            match cells(&line) {
                Some(cells) => return read(case, cells),
                None => tracing::warn!("worker: {line}"),
            }
            line = process.answer(self.workers.timeout)?;
        }
    }
}

/// What is asked.
pub(super) fn request(case: &Case) -> String {
    serde_json::to_string(&[&*case.sweep, &case.id()]).expect("texts are JSON")
}

/// A line that is an answer. What a library prints between is none.
pub(super) fn cells(line: &str) -> Option<Vec<String>> {
    serde_json::from_str(line).ok().filter(|cells: &Vec<String>| cells.len() == Row::columns().len() + 3)
}

/// The answer of a case. Errors: a cell that cannot be read.
pub(super) fn read(case: &Case, mut cells: Vec<String>) -> std::result::Result<Ran, String> {
    let stages = cells.pop().expect("counted");
    let stages =
        stages.split(';').filter_map(|s| s.split_once('=')).filter_map(|(name, s)| Some((name.into(), s.parse().ok()?)));
    let stages = stages.collect();
    let map = ErrorMap::parse(case.id(), &cells.pop().expect("counted"));
    let row = Row::read(&cells[1..].iter().map(String::as_str).collect::<Vec<_>>()).map_err(|e| e.to_string())?;
    Ok(Ran { row, map, stages })
}

/// Waits until a worker can be asked. Errors: it ended, or is late.
pub(super) fn ready(process: &mut Process, limit: Duration) -> std::result::Result<(), String> {
    loop {
        let line = process.answer(Some(limit))?;
        if line == READY {
            return Ok(());
        }
        tracing::warn!("worker: {line}");
    }
}

/// What a worker says first.
const READY: &str = "[]";

/// A worker that is not ready by then never will be: it loads the program and opens the GPU.
pub(super) const STARTUP: Duration = Duration::from_secs(60);

impl Workers {
    /// A worker that takes `together` cases at a time.
    pub(super) fn start(&self, index: usize, threads: usize, together: usize) -> Result<Process> {
        let mut command = Command::new(&self.program);
        let (verb, arguments) = self.arguments.split_at(self.arguments.len().min(1));
        command.args(verb).arg(format!("--together={together}")).args(arguments);
        if !self.devices.is_empty() {
            command.env("CUDA_VISIBLE_DEVICES", &self.devices[index % self.devices.len()]);
        }
        if let Some(trace) = &self.trace {
            command.env(stage::TRACE, trace);
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

/// How a worker answers.
pub struct Service<'a> {
    pub kernels: &'a [&'static dyn Kernel],
    pub backend: Backend,
    /// Written into the rows of kernels that are not the CPU's.
    pub device: &'a str,
    pub seed: u64,
    /// Cases at a time.
    pub together: usize,
}

impl Service<'_> {
    /// Answers until its input ends, cases that run together in the order in which they end. Errors: a request that is none, or for a case that
    /// `sweeps` does not hold; the answer cannot be written.
    pub fn serve(&self, sweeps: &[Sweep], requests: impl BufRead + Send, mut answers: impl Write + Send) -> Result<()> {
        let cases: HashMap<(String, String), &Case> =
            sweeps.iter().flat_map(|s| &s.cases).map(|c| ((c.sweep.to_string(), c.id()), c)).collect();
        answers.write_all(format!("{READY}\n").as_bytes()).and_then(|()| answers.flush()).map_err(talk)?;
        let (lines, answers) = (Mutex::new(requests.lines()), Mutex::new(answers));
        let next = || lines.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || -> Result<()> {
            while let Some(line) = next() {
                let line = line.map_err(talk)?;
                let case = serde_json::from_str(&line).ok().and_then(|key: (String, String)| cases.get(&key));
                let case = case.ok_or_else(|| Error::value("request", &line, "[\"sweep\",\"case\"] of the worker's sweeps"))?;
                let answer = self.answer(line, case);
                let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                answers.write_all(answer.as_bytes()).and_then(|()| answers.flush()).map_err(talk)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (1..self.together.max(1)).map(|_| scope.spawn(work)).collect();
            let first = work();
            all.into_iter().fold(first, |sum, one| sum.and(one.join().expect("a case's panic is its row")))
        })
    }

    fn answer(&self, request: String, case: &Case) -> String {
        injected_fault(&case.id());
        let Ran { row, map, stages } = assay::assay_on(self.device, case, self.kernels, self.backend, self.seed);
        let mut cells = vec![request];
        cells.extend(row.cells());
        cells.push(map.map_or(String::new(), |map| map.text()));
        cells.push(stages.iter().map(|(name, seconds)| format!("{name}={seconds:.6}")).collect::<Vec<_>>().join(";"));
        serde_json::to_string(&cells).expect("texts are JSON") + "\n"
    }
}

fn talk(e: std::io::Error) -> Error {
    Error::io("standard input and output", e, "a worker talks with the run that started it")
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

    const SERVICE: Service<'static> = Service { kernels: KERNELS, backend: Backend::Cpu, device: "", seed: 0, together: 1 };

    #[test]
    fn a_worker_answers_with_the_row_of_the_case() {
        let sweeps = Selection { sweeps: vec!["smoke".into()], ..Selection::default() }.load().unwrap();
        let case = &sweeps[0].cases[0];
        let request = request(case);
        let mut answer = Vec::new();
        SERVICE.serve(&sweeps, request.as_bytes(), &mut answer).unwrap();
        let row = String::from_utf8(answer).unwrap().strip_prefix("[]\n").map(String::from).unwrap();
        let mut values = cells(row.trim()).unwrap();
        assert!(values.pop().unwrap().contains(";kernel=0."), "the stages");
        assert_eq!(values.pop().as_deref(), Some(""), "a small case has no map");
        assert_eq!(values.remove(0), request);
        assert_eq!(values, assay::assay(case, KERNELS, Backend::Cpu, 0).cells());
    }

    #[test]
    fn cases_together_are_each_answered_once() {
        let sweeps = Selection { sweeps: vec!["smoke".into()], ..Selection::default() }.load().unwrap();
        let asked: Vec<&Case> = sweeps[0].cases.iter().take(12).collect();
        let text: String = asked.iter().map(|case| request(case) + "\n").collect();
        let mut answers = Vec::new();
        Service { together: 3, ..SERVICE }.serve(&sweeps, text.as_bytes(), &mut answers).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let mut found: Vec<Vec<String>> = answers.lines().filter_map(cells).collect();
        assert_eq!(found.len(), asked.len());
        found.sort_by_key(|cells| asked.iter().position(|case| request(case) == cells[0]));
        for (cells, case) in found.into_iter().zip(asked) {
            assert_eq!(read(case, cells).unwrap().row.cells(), assay::assay(case, KERNELS, Backend::Cpu, 0).cells());
        }
    }

    #[test]
    fn a_request_for_what_is_not_there_is_refused() {
        for request in ["", "smoke", "[\"smoke\"]", "[\"smoke\",\"cast/none\"]"] {
            let error = SERVICE.serve(&[], format!("{request}\n").as_bytes(), Vec::new()).unwrap_err();
            assert!(error.to_string().contains("request"), "{error}");
        }
    }
}
