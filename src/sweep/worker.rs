//! Cases in processes of their own, so that what ends a process (an illegal address, a hang, no memory left) ends one case.
//!
//! The run starts `qassay worker`, which says `[]` when it is ready, and asks it for one case at a time: a line `["sweep","case"]` on
//! its standard input, answered by the row as a JSON array of the columns' values. A worker that dies, or is late and is killed with its process group, costs the row
//! of that case, which says why; the next case gets a fresh one. On a GPU a worker that answered with an error is replaced too: a
//! context does not recover from a fault inside a kernel.

use super::row::{COLUMNS, Row};
use super::{Case, Sweep, assay};
use crate::kernel::{Backend, Kernel};
use crate::{Error, Result};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
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
    pub fn row(&mut self, case: &Case, backend: Backend, seed: u64) -> Row {
        let answer = self.ask(case);
        let lasting = backend == Backend::Cpu;
        if !answer.as_ref().is_ok_and(|row| lasting || row.get("verdict") != "error") {
            self.process = None;
        }
        answer.unwrap_or_else(|reason| assay::unfinished(case, backend, seed, reason))
    }

    fn ask(&mut self, case: &Case) -> std::result::Result<Row, String> {
        if self.process.is_none() {
            self.process = Some(Process::start(self.workers, self.index, self.threads).map_err(|e| e.to_string())?);
            let process = self.process.as_mut().expect("started just now");
            process.answers.recv_timeout(STARTUP).map_err(|_| process.ending())?;
        }
        let process = self.process.as_mut().expect("started above");
        process.said.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let line = serde_json::to_string(&[&*case.sweep, &case.id()]).expect("texts are JSON") + "\n";
        // A worker that died before is found out by its answer that never comes.
        let _ = process.requests.write_all(line.as_bytes()).and_then(|()| process.requests.flush());
        let limit = self.workers.timeout;
        let answer = match limit {
            None => process.answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(limit) => process.answers.recv_timeout(limit),
        };
        let answer = answer.map_err(|e| match (e, limit) {
            (RecvTimeoutError::Timeout, Some(limit)) => {
                format!("took longer than --timeout {}s; its process was killed", limit.as_secs_f64())
            }
            _ => process.ending(),
        })?;
        Ok(Row::from_values(answer))
    }
}

/// A worker that is not ready by then never will be: it loads the program and opens the GPU.
const STARTUP: Duration = Duration::from_secs(60);

/// A running worker. Dropped, it is killed with its process group.
struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<Vec<String>>,
    /// The first line on its standard error since it was asked: what an abort says.
    said: Arc<Mutex<String>>,
    listener: Option<std::thread::JoinHandle<()>>,
    /// Waited for: its number may be another process's by now.
    reaped: bool,
}

/// Process groups of the workers that live.
static GROUPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Kills every worker with its process group: for a program that ends at once.
pub fn kill_all() {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    groups.iter().for_each(|group| kill_group(*group));
}

fn kill_group(group: u32) {
    // SAFETY: a plain system call; the group is one that this process made and has not waited for yet.
    unsafe { libc::kill(-(group as libc::pid_t), libc::SIGKILL) };
}

impl Process {
    fn start(workers: &Workers, index: usize, threads: usize) -> Result<Self> {
        let mut command = Command::new(&workers.program);
        command.args(&workers.arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !workers.devices.is_empty() {
            command.env("CUDA_VISIBLE_DEVICES", &workers.devices[index % workers.devices.len()]);
        }
        if std::env::var_os("RAYON_NUM_THREADS").is_none() {
            command.env("RAYON_NUM_THREADS", threads.max(1).to_string());
        }
        let mut child = command.spawn().map_err(|e| Error::io(&workers.program, e, "a worker process could not be started"))?;
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).push(child.id());
        let (requests, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (sender, answers) = mpsc::channel();
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in BufReader::new(output.expect("piped")).lines().map_while(std::io::Result::ok) {
                match serde_json::from_str::<Vec<String>>(&line) {
                    Ok(values) if [0, COLUMNS.len()].contains(&values.len()) => drop(sender.send(values)),
                    _ => tracing::warn!("worker: {line}"),
                }
            }
        });
        let listener = std::thread::spawn(move || {
            for line in BufReader::new(errors.expect("piped")).lines().map_while(std::io::Result::ok) {
                tracing::info!("worker: {line}");
                let mut said = heard.lock().unwrap_or_else(PoisonError::into_inner);
                if said.is_empty() {
                    *said = line;
                }
            }
        });
        Ok(Self { child, requests: requests.expect("piped"), answers, said, listener: Some(listener), reaped: false })
    }

    /// How a worker ended that closed its output.
    fn ending(&mut self) -> String {
        // What closed its output ends soon; what does not is killed when it is dropped.
        let status = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            self.child.try_wait().ok().flatten()
        });
        let Some(status) = status else { return "its process closed its output and lives on".into() };
        self.reaped = true;
        let status = status.to_string();
        if let Some(listener) = self.listener.take() {
            // Ends with the pipe; a panic there has nothing more to say.
            let _ = listener.join();
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let hint = if status.contains("SIGKILL") { " (the system does that when memory runs out)" } else { "" };
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        format!("its process ended, {status}{hint}{said}")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|g| *g != self.child.id());
        if !self.reaped {
            kill_group(self.child.id());
            let _ = self.child.wait();
        }
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
        let mut row = assay::assay(case, kernels, backend, seed);
        if backend != Backend::Cpu && !row.get("kernel").is_empty() {
            row.set("device", device);
        }
        let answer = serde_json::to_string(row.values()).expect("texts are JSON") + "\n";
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
    use crate::sweep::plan::Selection;

    #[test]
    fn a_worker_answers_with_the_row_of_the_case() {
        let sweeps = Selection { sweeps: vec!["smoke".into()], ..Selection::default() }.load().unwrap();
        let case = &sweeps[0].cases[0];
        let request = serde_json::to_string(&[&*case.sweep, &case.id()]).unwrap();
        let mut answer = Vec::new();
        serve(&sweeps, KERNELS, Backend::Cpu, "", 0, request.as_bytes(), &mut answer).unwrap();
        let row = String::from_utf8(answer).unwrap().strip_prefix("[]\n").map(String::from).unwrap();
        let values: Vec<String> = serde_json::from_str(&row).unwrap();
        assert_eq!(Row::from_values(values), assay::assay(case, KERNELS, Backend::Cpu, 0));
    }

    #[test]
    fn a_request_for_what_is_not_there_is_refused() {
        for request in ["", "smoke", "[\"smoke\"]", "[\"smoke\",\"cast/none\"]"] {
            let error = serve(&[], KERNELS, Backend::Cpu, "", 0, format!("{request}\n").as_bytes(), Vec::new()).unwrap_err();
            assert!(error.to_string().contains("request"), "{error}");
        }
    }
}
