//! Kernels in a process of their own, in any language: `qassay run --candidate 'python3 my_kernel.py'`.
//!
//! The process is kept alive between cases and speaks JSON lines:
//!
//! ```text
//! → {"input":"/…/0.in.safetensors","output":"/…/0.out.safetensors"}
//! ← {"status":"done"}                      the output bundle is written
//! ← {"status":"unsupported","reason":"…"}  the case is skipped
//! ← {"status":"error","reason":"…"}        the case is an error; the next one goes on
//! ```
//!
//! The input is a bundle without a result (`data/bundles/README.md`); `out.format` says what is to be written, `out.scale` by which scale,
//! `recipe` by which recipe. The output is a bundle of `out…` tensors alone, with `qassay.bundle` and the keys of `out`; `kernel`, `device`,
//! `device_model` and `promote_every` say how a product was accumulated. A process that ends, is late, or answers anything else is an
//! error of that case, and a new one is started for the next. One that never starts ends the run.

use super::process::{Process, Why};
use crate::bundle::{Bundle, File, Meta};
use crate::bundle::{assay, case};
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::kernel::{Backend, Kernel, KernelAnswer, KernelSpec};
use crate::op::{OPS, Op};
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Limit of a case where none is given.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A command that answers cases.
pub struct Candidate {
    command: String,
    timeout: Duration,
    /// Where bundles are exchanged.
    folder: PathBuf,
    spec: KernelSpec,
    /// Processes that wait for a case.
    idle: Mutex<Vec<Process>>,
    /// One of them has answered a case.
    answered: AtomicBool,
    /// Why none of them starts.
    broken: OnceLock<String>,
    next: AtomicU64,
}

#[derive(serde::Deserialize)]
struct Said {
    status: String,
    #[serde(default)]
    reason: String,
}

/// What a line of a candidate means: `Ok` that its output is written. Errors: the case is not one of its own, its error, or no answer; they
/// show the start of what it said.
pub fn understood(name: &str, line: &str) -> Result<()> {
    let shown: String = line.chars().take(200).collect();
    let bad = || {
        Error::value(
            format!("answer of {name}"),
            format!("`{shown}`"),
            "{\"status\":\"done\"}, \"unsupported\" or \"error\" with a reason",
        )
    };
    let said: Said = serde_json::from_str(line).map_err(|_| bad())?;
    let reason: String = said.reason.chars().take(1000).collect();
    match said.status.as_str() {
        "done" => Ok(()),
        "unsupported" => Err(Error::unsupported(name, reason)),
        "error" => Err(Error::value(format!("answer of {name}"), reason, "a result")),
        _ => Err(bad()),
    }
}

impl Candidate {
    /// Errors: no folder for the bundles can be made.
    pub fn new(command: &str, timeout: Duration) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let own = format!("qassay-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(own);
        std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e, "set TMPDIR to a folder that can be written"))?;
        // The registry's kernels have names that live as long as the program; a candidate's does too.
        let name: &'static str = Box::leak(format!("external/{}", stem(command)).into_boxed_str());
        static ALL: std::sync::LazyLock<Vec<Op>> = std::sync::LazyLock::new(|| OPS.iter().map(|o| o.op).collect());
        let spec = KernelSpec {
            name,
            backend: Backend::External,
            ops: &ALL,
            help: "a process that answers cases",
            source: "the user's",
        };
        Ok(Self {
            command: command.into(),
            timeout,
            folder,
            spec,
            idle: Mutex::new(Vec::new()),
            answered: AtomicBool::new(false),
            broken: OnceLock::new(),
            next: AtomicU64::new(0),
        })
    }

    /// Asks a process that is idle, or a new one; it waits for the next case when it answered.
    fn ask(&self, input: &Path, output: &Path) -> Result<()> {
        let waiting = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut process = match waiting {
            Some(p) => p,
            None => Process::start(Command::new("sh").args(["-c", &self.command]), Why::Last)
                .map_err(|e| Error::io("sh", e, "the candidate could not be started"))?,
        };
        let request = serde_json::json!({"input": input, "output": output}).to_string();
        let name = self.spec.name;
        let line = process.ask(&request, Some(self.timeout)).map_err(|why| {
            self.look_whether_it_starts(&why);
            Error::Process { what: format!("candidate `{}`", self.command), why, expected: "one JSON line for the case" }
        })?;
        self.answered.store(true, Ordering::Relaxed);
        let understood = understood(name, &line);
        // One that said something else may be out of step.
        if !matches!(&understood, Err(Error::Value { found, .. }) if found.starts_with('`')) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        }
        understood
    }

    /// Where none has answered yet and one ended by itself: starts it with nothing to do. What ends in an error then too cannot start.
    fn look_whether_it_starts(&self, why: &str) {
        if self.answered.load(Ordering::Relaxed) || !why.contains("exit status") {
            return;
        }
        let mut idle = Command::new("sh");
        idle.args(["-c", &self.command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if idle.status().is_ok_and(|s| !s.success()) {
            // The first reason stays.
            let _ = self.broken.set(why.to_string());
        }
    }

    /// Why it cannot start, once that is known: it ended before it answered any case, and ends so without one too.
    pub fn broken(&self) -> Option<Error> {
        let why = self.broken.get()?;
        Some(Error::Process {
            what: format!("candidate `{}` does not start", self.command),
            why: why.clone(),
            expected: "a process that answers cases; run the command by hand, then again",
        })
    }

    /// What it wrote, and what it said of itself.
    fn result(&self, job: &Job) -> Result<(Output, Meta)> {
        let input = case::input(job)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (from, to) =
            (self.folder.join(format!("{number}.in.safetensors")), self.folder.join(format!("{number}.out.safetensors")));
        input.save(&from)?;
        let asked = self.ask(&from, &to);
        let read = asked.and_then(|()| read(&to, job));
        for path in [&from, &to] {
            // The folder goes with the candidate; a file that was never written is no loss.
            let _ = std::fs::remove_file(path);
        }
        read
    }
}

/// Reads the output of a job.
fn read(path: &Path, job: &Job) -> Result<(Output, Meta)> {
    let (out, mut file) = Bundle::read_out(path, job.op, &case::out_shape(job))?;
    let meta = said(&mut file, job)?;
    let expected = match &job.out {
        OutSpec::High(f) => *f,
        OutSpec::Scaled { format, .. } => *format,
        OutSpec::Recipe(r) => r.format,
    };
    let found = match &out.d {
        Data::High(t) => t.dtype(),
        Data::Quantized(q) => q.format(),
    };
    if found != expected {
        return Err(Error::value(
            format!("format of {}'s out", path.display()),
            found,
            format!("{expected}, the `out.format` of its input"),
        ));
    }
    let part = Part { d: out.d, transpose: None, amax: out.amax };
    Ok((Output::of(part), meta))
}

/// The metadata of an output, as if they were its input's too.
fn said(file: &mut File, job: &Job) -> Result<Meta> {
    for (key, value) in case::input(job)?.metadata() {
        if matches!(key.as_str(), "op" | "fn") {
            file.metadata.insert(key.clone(), value.clone());
        }
    }
    Meta::of(file)
}

/// The word of a command that says most: its last that names a file, else its first.
fn stem(command: &str) -> String {
    let words = || command.split_whitespace();
    let file = words().rfind(|w| w.contains('.') && !w.starts_with('-')).or_else(|| words().next());
    let path = Path::new(file.unwrap_or("candidate"));
    path.file_stem().map_or_else(|| "candidate".into(), |s| s.to_string_lossy().into_owned())
}

impl Candidate {
    /// Ends its processes and removes its folder.
    pub fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        // Left behind in the system's temporary folder at worst.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Kernel for Candidate {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }
    fn check(&self, job: &Job) -> Result<()> {
        case::input(job).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.result(job).map(|r| r.0)
    }
    /// Of what has one right answer whoever computes it.
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        assay::only_answer(job)
    }
    fn answer(&self, job: &Job) -> Result<KernelAnswer> {
        let (output, meta) = self.result(job)?;
        super::judged_by(job, output, &meta)
    }
    fn words(&self) -> Option<String> {
        Some(format!("--candidate {}", crate::assay::command::shell_word(&self.command)))
    }
}
