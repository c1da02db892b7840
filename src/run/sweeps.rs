//! One execution of sweeps into a folder: `rows.csv` written as it goes, in the order of the cases.

use super::facts::Facts;
use super::journal::Journal;
use super::plan;
use super::queue::Queue;
use super::shared::Shared;
use super::totals::Kept;
use super::worker::{Seat, Workers};
use crate::Result;
use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::compare::Verdict;
use crate::kernel::{Backend, Kernel};
use crate::stage::traced;
use crate::sweep::assay::{self, Ran};
use crate::sweep::{Case, Sweep};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// How to run.
pub struct Options<'a> {
    /// Folder to write; must not hold a run already, unless `resume`.
    pub out: PathBuf,
    /// Go on with the run that is in the folder.
    pub resume: bool,
    /// What decides the bits of the run.
    pub facts: Facts,
    /// Cases at a time; 0 is one a core, on GPUs a few each, and at least one for each GPU of `workers`.
    pub jobs: usize,
    pub backend: Backend,
    pub kernels: &'static [&'static dyn Kernel],
    /// Words of the command line that select what runs: reproduced in each row's command.
    pub seed: u64,
    /// Set to stop after the cases in progress.
    pub stop: &'a AtomicBool,
    /// Stop after the first row that is `fail` or `error`.
    pub fail_fast: bool,
    /// How often a case that ended in an error is run again.
    pub retry: u32,
    /// Begin no case after this much time.
    pub budget: Option<Duration>,
    /// Run the cases in processes of their own, `jobs` of them; in threads of this one otherwise.
    pub workers: Option<Workers>,
}

impl Options<'_> {
    /// Cases that run at a time.
    pub fn jobs(&self) -> usize {
        let devices = self.workers.as_ref().map_or(0, |w| w.devices.len());
        let shared = self.workers.as_ref().is_some_and(|w| w.share);
        let on_a_gpu = if shared { TOGETHER_ON_A_GPU } else { ON_A_GPU };
        let most = if self.backend == Backend::Cpu { usize::MAX } else { on_a_gpu * devices.max(1) };
        let jobs = if self.jobs == 0 { cores().min(most) } else { self.jobs };
        jobs.max(devices)
    }
    /// How many of these cases run at a time: at most as many as there are, and as fit into memory together. When fewer run, each process has more
    /// threads for its own loops. Cases that share a process share its threads.
    fn jobs_of(&self, cases: &[&Case]) -> usize {
        if self.workers.as_ref().is_some_and(|w| w.share) {
            return self.jobs().min(cases.len()).max(1);
        }
        let devices = self.workers.as_ref().map_or(1, |w| w.devices.len().max(1));
        let largest = cases.iter().map(|c| plan::bytes(c)).max().unwrap_or(0).max(1);
        let together = ((self.in_flight() / largest) as usize).max(devices);
        self.jobs().min(cases.len()).min(if self.jobs == 0 { together } else { usize::MAX }).max(1)
    }
    /// A process for each GPU, where cases may share it and more than one runs there at a time.
    fn shared(&self, jobs: usize) -> Vec<Shared<'_>> {
        let Some(workers) = self.workers.as_ref().filter(|w| w.share) else { return Vec::new() };
        let devices = workers.devices.len().max(1);
        let processes = if jobs > devices { devices } else { 0 };
        (0..processes).map(|index| Shared::new(workers, index, cores() / devices, jobs.div_ceil(devices))).collect()
    }
    /// Starts what these cases will share, before it is known what else decides the run.
    pub fn start_ahead(&self, sweeps: &[Sweep]) {
        let cases: Vec<&Case> = sweeps.iter().flat_map(|s| &s.cases).collect();
        self.shared(self.jobs_of(&cases)).iter().for_each(Shared::start_ahead);
    }
    /// Bytes that cases may hold together; a larger one runs alone. Half of what this machine has free, and what a GPU holds beside the judge's
    /// own: a fixed few GiB would let one large case in at a time, however many GPUs wait.
    fn in_flight(&self) -> u64 {
        let free = free_memory().unwrap_or(0) / 2;
        let devices = self.workers.as_ref().map_or(1, |w| w.devices.len().max(1)) as u64;
        let most = if self.backend == Backend::Cpu { u64::MAX } else { devices * IN_A_GPU };
        free.min(most).max(LEAST_IN_FLIGHT)
    }
}

/// Bytes that programs can have without swapping, as Linux counts them.
pub(crate) fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// What came of a run.
pub struct Outcome {
    /// Rows there were already, and those of now.
    pub kept: Kept,
    /// Cases that were to be run.
    pub planned: usize,
    /// Stopped before the end.
    pub interrupted: bool,
    /// Rows that were there already.
    pub resumed: usize,
    /// Seconds that each case took that was run now: those after the first `resumed`.
    pub times: Vec<f64>,
    /// Seconds of the stages of the same cases.
    pub stages: Vec<Vec<(String, f64)>>,
    /// Maps that were made while cases ran.
    pub maps: Vec<ErrorMap>,
}

/// Runs every case that has no row in `<out>/rows.csv` yet and appends its row, in case order. `progress` is called with each
/// finished row, first with those that were there. Errors: those of [`Journal::open`], or the folder cannot be written. A case
/// that fails to run is a row with verdict `error`, and the rest goes on.
pub fn run(sweeps: &[Sweep], options: &Options, progress: &(dyn Fn(&Row) + Sync)) -> Result<Outcome> {
    let cases: Vec<&Case> = sweeps.iter().flat_map(|s| &s.cases).collect();
    let (mut kept, mut halt) = (Kept::new(cases.len()), false);
    let (mut journal, resumed) = Journal::open(&options.out, &options.facts, &cases, options.resume, |row| {
        progress(&row);
        halt = stops(options, &row);
        kept.add(row);
    })?;
    let started = Instant::now();
    let spent = || options.budget.is_some_and(|b| started.elapsed() >= b);
    let halted = AtomicBool::new(halt);
    let jobs = options.jobs_of(&cases[resumed..]);
    let (sender, receiver) = mpsc::sync_channel::<(usize, Ran, f64)>(jobs);
    let gate = Gate::new(options.in_flight());
    let shared = options.shared(jobs);
    let queue = Queue::new(&cases, resumed, if shared.is_empty() { 1 } else { AHEAD * jobs });
    let (mut times, mut stages, mut maps) = (Vec::new(), Vec::new(), Vec::new());
    let result: Result<()> = std::thread::scope(|scope| {
        for index in 0..jobs {
            let sender = sender.clone();
            let (queue, halted, gate, cases, spent, shared) = (&queue, &halted, &gate, &cases, &spent, &shared);
            scope.spawn(move || {
                let device = index % shared.len().max(1);
                let shared = shared.get(device);
                let mut seat = options.workers.as_ref().map(|w| Seat::new(w, index, cores() / jobs, shared));
                while !options.stop.load(Ordering::Relaxed) && !halted.load(Ordering::Relaxed) && !spent() {
                    let Some(i) = queue.next(device) else { return };
                    let weight = traced("gate", || gate.enter(plan::bytes(cases[i])));
                    let begun = Instant::now();
                    let ran = one(cases[i], options, seat.as_mut());
                    gate.leave(weight);
                    if sender.send((i, ran, begun.elapsed().as_secs_f64())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Cases finish in any order; rows are written in theirs.
        let mut waiting = BTreeMap::new();
        for (i, ran, seconds) in receiver {
            maps.extend(ran.map);
            waiting.insert(i, (ran.row, seconds, ran.stages));
            while let Some((row, seconds, spent)) = waiting.remove(&kept.totals.rows) {
                if let Err(e) = journal.append(&row) {
                    halted.store(true, Ordering::Relaxed);
                    return Err(e);
                }
                progress(&row);
                times.push(seconds);
                stages.push(spent);
                let last = stops(options, &row);
                kept.add(row);
                if last {
                    halted.store(true, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        Ok(())
    });
    journal.sync()?;
    result?;
    Ok(Outcome { interrupted: kept.totals.rows < cases.len(), planned: cases.len(), kept, resumed, times, stages, maps })
}

/// Whether the run ends with this row.
fn stops(options: &Options, last: &Row) -> bool {
    options.fail_fast && last.verdict.is_failure()
}

/// The row of a case, run again while it ends in an error and may be.
fn one(case: &Case, options: &Options, mut seat: Option<&mut Seat>) -> Ran {
    let mut attempt = || match &mut seat {
        None => assay::assay_on(options.facts.get("device"), case, options.kernels, options.backend, options.seed),
        Some(seat) => seat.ran(case, options.backend, options.seed),
    };
    let mut ran = attempt();
    for n in 0..options.retry {
        let row = &ran.row;
        if row.verdict != Verdict::Error {
            break;
        }
        tracing::warn!("{}: {}; attempt {} of {}", row.case, row.reason, n + 2, options.retry + 1);
        ran = attempt();
    }
    ran
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processes on one GPU, unless asked for more or fewer: they take turns on it, and more than a few wait for one another. Cases in one process.
const ON_A_GPU: usize = 4;
const TOGETHER_ON_A_GPU: usize = 8;

/// Cases of a job among which the dearest is taken first.
const AHEAD: usize = 8;

/// Cases together may always hold this much, by [`plan::bytes`].
const LEAST_IN_FLIGHT: u64 = 4 << 30;
/// Cases on one GPU.
const IN_A_GPU: u64 = 40 << 30;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, Output};
    use crate::kernel::{KernelSpec, cpu};
    use crate::op::Op;
    use std::path::Path;

    /// A cast that says it ran on a GPU.
    struct Elsewhere;

    static SPEC: KernelSpec =
        KernelSpec { name: "test/cast", backend: Backend::Cuda, ops: &[Op::Cast], help: "a cast", source: "this test" };

    impl Kernel for Elsewhere {
        fn spec(&self) -> &KernelSpec {
            &SPEC
        }
        fn check(&self, job: &Job) -> Result<()> {
            cpu::cast::Cast.check(job)
        }
        fn run(&self, job: &Job) -> Result<Output> {
            cpu::cast::Cast.run(job)
        }
        fn predict(&self, job: &Job) -> Result<Option<Output>> {
            cpu::cast::Cast.predict(job)
        }
    }

    #[test]
    fn linux_says_what_memory_is_free() {
        assert!((1 << 26..1 << 50).contains(&free_memory().expect("/proc/meminfo has MemAvailable")));
    }

    #[test]
    fn rows_name_the_device_of_the_run_without_workers_too() {
        let text = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"cast\"]\nshape = [\"4x8\"]\nout = [\"te_current\"]\n";
        let sweeps = [Sweep::parse(Path::new("x.toml"), text, 0).unwrap()];
        let dir = tempfile::tempdir().unwrap();
        let run_of = |backend: Backend, kernels: &'static [&'static dyn Kernel]| {
            let options = Options {
                out: dir.path().join(backend.name()),
                resume: false,
                facts: Facts([("device".to_string(), "NVIDIA X1".to_string())].into()),
                jobs: 1,
                backend,
                kernels,
                seed: 0,
                stop: &AtomicBool::new(false),
                fail_fast: false,
                retry: 0,
                budget: None,
                workers: None,
            };
            let device = Mutex::new(String::new());
            run(&sweeps, &options, &|row| *device.lock().unwrap() = row.device.clone()).unwrap();
            device.into_inner().unwrap()
        };
        assert_eq!(run_of(Backend::Cuda, &[&Elsewhere]), "NVIDIA X1");
        assert_eq!(run_of(Backend::Cpu, cpu::KERNELS), "cpu");
    }
}
