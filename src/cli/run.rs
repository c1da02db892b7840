//! `qassay run`: a sweep into a folder, with a progress bar, a summary and a report.

use super::external::Chosen;
use super::outputs::{self, ForCi};
use super::{paint, print, status};
use crate::assay::row::Row;
use crate::compare::Verdict;
use crate::external::process;
use crate::kernel::{Backend, Kernel};
use crate::run::facts::Facts;
use crate::run::plan::Selection;
use crate::run::shard::Shard;
use crate::run::sweeps::{Options, Outcome};
use crate::run::worker::Workers;
use crate::run::{maps, provenance, sweeps as runner};
use crate::stage::{self, traced};
use crate::sweep::bar::counting;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Run sweeps and write reports/<run>/ with rows.csv, provenance.txt, summary.md, figures/ and index.html.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  qassay run\n  qassay run smoke origins --out reports/mine\n  qassay run standard \
--filter gemm --filter 'te_block*'\n  qassay run standard --case 'cast/64x768/normal/bf16>te_current:e4m3/s0'")]
pub struct Args {
    /// Sweeps by name (`qassay list sweeps`) or path to a .toml.
    #[arg(default_value = "standard")]
    sweep: Vec<String>,
    /// Only cases whose name has these whole words; `te_block*` also matches longer words. May be given several times; all must match.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Only the case with exactly this name, as a row's command has it.
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Added to the draw number of every case: other random data.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Whose kernels run: cpu; cuda: ours on a GPU; vendor: cuBLASLt on a GPU. Cases that none of its kernels takes are skipped, with
    /// the reason.
    #[arg(long, value_enum, default_value_t = Who::Cpu)]
    backend: Who,
    #[command(flatten)]
    external: super::external::External,
    /// Who makes the inputs, references and device models of large cases and judges them: the GPU that runs the kernels, or the CPU. The bits are
    /// the same.
    #[arg(long, value_enum, default_value_t = Judge::Gpu)]
    judge: Judge,
    /// Cases at a time; 0 means one a core, and eight a GPU (four where they do not share a process).
    #[arg(long, short, default_value_t = 0)]
    jobs: usize,
    /// Folder to write; refused when it holds a run, unless --resume.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in the folder: nothing complete is computed again. Refused when the sweep, the seed, the selection, the
    /// inputs or the program changed.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Run the i-th of n parts of about equal cost; `qassay merge` joins them.
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Stop after the first case that fails or ends in an error.
    #[arg(long)]
    fail_fast: bool,
    /// Run a case that ended in an error again, up to N times.
    #[arg(long, value_name = "N", default_value_t = 0)]
    retry: u32,
    /// Begin no case after this time (90s, 10m, 2h); exit status 4 when cases are left.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// A case that takes longer (90s, 10m) is an error. Cases then run in processes of their own. On a GPU they always do, and the
    /// limit is 10m unless given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// A case that needs more address space (800M, 4G) is an error: each process may have this much. CPU only.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Check every element of a large product against its definition, not only drawn rows and columns. CPU only
    #[arg(long)]
    definitions: bool,
    /// Run on these GPUs, as `qassay devices` numbers them.
    #[arg(long, value_name = "I,J,…", value_delimiter = ',')]
    devices: Vec<usize>,
    /// Print one JSON object a row on standard output instead of the summary.
    #[arg(long)]
    json: bool,
    /// Say where the time went: the seconds of each stage of judging, over all cases, on standard error.
    #[arg(long)]
    timings: bool,
    /// Write what each thread of each process did, and when, to this file: a trace for Perfetto or a browser's viewer.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// No progress bar.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    ci: ForCi,
}

/// Who does the large work of judging.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Judge {
    Cpu,
    Gpu,
}

impl Judge {
    /// From now on.
    pub fn begin(self) {
        if self == Judge::Cpu {
            crate::kernel::judge_on_cpu();
        }
    }
}

/// The backends that can be chosen.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Who {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda,
    #[cfg(feature = "cuda")]
    Vendor,
}

impl Who {
    /// Which backend that is, whether or not it is here.
    fn kind(self) -> Backend {
        match self {
            Who::Cpu => Backend::Cpu,
            #[cfg(feature = "cuda")]
            Who::Cuda => Backend::Cuda,
            #[cfg(feature = "cuda")]
            Who::Vendor => Backend::Vendor,
        }
    }

    /// Backend, its kernels, and the device's name. Errors: there is no GPU.
    pub fn choose(self) -> crate::Result<(Backend, &'static [&'static dyn Kernel], String)> {
        match self {
            Who::Cpu => Ok((Backend::Cpu, crate::kernel::cpu::KERNELS, provenance::cpu())),
            #[cfg(feature = "cuda")]
            Who::Cuda => {
                let name = device_name()?;
                Ok((Backend::Cuda, crate::kernel::cuda::KERNELS, name))
            }
            #[cfg(feature = "cuda")]
            Who::Vendor => {
                let library = crate::kernel::vendor::lt::library()?.version;
                let name = format!("{}, cuBLASLt {library}", device_name()?);
                Ok((Backend::Vendor, crate::kernel::vendor::KERNELS, name))
            }
        }
    }
}

/// The name of the chosen GPU, which is not opened for it: its workers do that. Errors, as a backend's: what is missing.
#[cfg(feature = "cuda")]
fn device_name() -> crate::Result<String> {
    use crate::kernel::cuda::{device, launch};
    let info = device::info(launch::chosen()).map_err(|e| match e {
        crate::Error::Unsupported { what, why } if what == "this machine" => crate::Error::unsupported("backend cuda", why),
        e => e,
    });
    Ok(info?.name)
}

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

impl Args {
    /// What runs the cases in processes of their own: on a GPU always, on the CPU where a limit of time or memory is given. A candidate is
    /// a process already.
    fn workers(&self, backend: Backend, external: Option<&Chosen>) -> Result<Option<Workers>> {
        let chosen = match external {
            Some(Chosen { worker: None, .. }) => return Ok(None),
            Some(Chosen { worker: Some(words), .. }) => words.clone(),
            None => vec![format!("--backend={}", backend.name())],
        };
        let gpu = backend != Backend::Cpu;
        if gpu && self.memory.is_some() {
            bail!("--memory: found backend {}, expected cpu: CUDA reserves address space that it never uses", backend.name());
        }
        if !gpu && self.timeout.is_none() && self.memory.is_none() {
            return Ok(None);
        }
        let program = std::env::current_exe().context("the program's own path is not known")?;
        let mut arguments = vec!["worker".to_string(), format!("--seed={}", self.seed)];
        arguments.extend(chosen);
        arguments.extend(self.memory.map(|bytes| format!("--memory={bytes}")));
        arguments.extend(self.definitions.then(|| "--definitions".to_string()));
        arguments.extend((self.judge == Judge::Cpu).then(|| "--judge=cpu".to_string()));
        arguments.push("--".into());
        arguments.extend(self.sweep.iter().cloned());
        // Numbers count the GPUs that are visible here.
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        let visible: Vec<&str> = visible.split(',').filter(|d| !d.is_empty()).collect();
        let device = |i: &usize| visible.get(*i).map_or(i.to_string(), |d| d.trim().to_string());
        let devices = self.devices.iter().map(device).collect();
        let timeout = self.timeout.or(gpu.then_some(GPU_TIMEOUT));
        let share = gpu && external.is_none();
        let (trace, ahead) = (self.trace.clone(), Default::default());
        Ok(Some(Workers { program, arguments, devices, timeout, share, trace, ahead }))
    }

    /// Errors: the CPU has no such numbers; a GPU that is not there; GPUs of different kinds, whose rows would not be one device's.
    fn check_devices(&self) -> Result<()> {
        let Some(first) = self.devices.first() else { return Ok(()) };
        if matches!(self.backend, Who::Cpu) && !self.external.on_gpu() {
            bail!("--devices: found backend cpu, expected a backend that runs on GPUs, such as --backend cuda");
        }
        #[cfg(feature = "cuda")]
        Self::take_devices(&self.devices, *first)?;
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn take_devices(devices: &[usize], first: usize) -> Result<()> {
        let all = crate::kernel::cuda::device::devices()?;
        let names = devices.iter().map(|i| all.get(*i).map(|d| &d.name));
        let names = names.collect::<Option<Vec<_>>>().with_context(|| format!("--devices: expected 0 to {}", all.len() - 1))?;
        if let Some(other) = names.iter().find(|n| *n != &names[0]) {
            bail!("--devices: found {} and {other}, expected GPUs of one kind: run each kind by itself", names[0]);
        }
        crate::kernel::cuda::launch::choose(first);
        Ok(())
    }
}

/// Limit of a case on a GPU where none is given: a hang there has no other end.
const GPU_TIMEOUT: Duration = Duration::from_secs(600);

pub fn run(args: Args) -> Result<u8> {
    if let Some(path) = &args.trace {
        stage::trace_to(path).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let foreign = args.external.wanted();
    if foreign {
        args.check_devices()?;
    }
    args.judge.begin();
    if args.definitions {
        crate::kernel::cpu::drawn::by_definition_alone();
    }
    let external = args.external.choose(args.timeout)?;
    let selection = Selection {
        sweeps: args.sweep.clone(),
        filter: args.filter.clone(),
        case: args.case.clone(),
        seed: args.seed,
        shard: args.shard,
    };
    let sweeps = traced("sweeps", || selection.load())?;
    let planned: usize = sweeps.iter().map(|s| s.cases.len()).sum();
    if planned == 0 && args.shard.is_none() {
        bail!("{}", selection.why_empty()?);
    }
    let out = args.out.clone().unwrap_or_else(|| {
        let names: Vec<&str> = sweeps.iter().map(|s| s.name.as_str()).collect();
        default_folder(&names.join("+"))
    });
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            process::kill_all();
            std::process::exit(i32::from(status::INTERRUPTED));
        }
        eprintln!("\nstopping after the cases in progress; Ctrl-C again to stop at once");
    })
    .context("could not install the Ctrl-C handler")?;

    let kind = external.as_ref().map_or(args.backend.kind(), |_| Chosen::BACKEND);
    let mut options = Options {
        out: out.clone(),
        resume: args.resume,
        facts: Facts::default(),
        // A candidate is one process unless asked for more.
        jobs: if external.as_ref().is_some_and(|e| e.worker.is_none()) { args.jobs.max(1) } else { args.jobs },
        backend: kind,
        kernels: &[],
        seed: args.seed,
        stop: &STOP,
        fail_fast: args.fail_fast,
        retry: args.retry,
        budget: args.budget,
        workers: args.workers(kind, external.as_ref())?,
    };
    // A GPU takes a while to open: the processes that will use it do so while this one asks what it is.
    traced("ahead", || options.start_ahead(&sweeps));
    if !foreign {
        traced("devices", || args.check_devices())?;
    }
    let (backend, kernels, device) = match &external {
        Some(e) => (Chosen::BACKEND, e.kernels, e.device.clone()),
        None => traced("backend", || args.backend.choose())?,
    };
    options.facts = traced("facts", || Facts::of(&selection, &sweeps, backend, &device))?;
    options.kernels = kernels;
    let bar = counting(planned, "cases", args.quiet || args.json);
    let (started, shown) = (std::time::Instant::now(), AtomicUsize::new(0));
    let broken = || external.as_ref().and_then(Chosen::broken);
    let step = |row: &Row| {
        bar.step();
        // The first few at once, by name; the summary has a card of each kind.
        if row.verdict.is_failure() && broken().is_none() && shown.fetch_add(1, Ordering::Relaxed) < 5 {
            bar.beside(|| anstream::eprint!("{}", paint(&format!("{:<6}{}\n", row.verdict.as_str().to_uppercase(), row.case))));
        }
        if args.json {
            print(&(crate::report::json_line(row) + "\n"));
        }
        if row.verdict == Verdict::Error && broken().is_some() {
            STOP.store(true, Ordering::Relaxed);
        }
    };
    let outcome = traced("cases", || runner::run(&sweeps, &options, &step))?;
    drop(bar);
    if let Some(e) = broken() {
        external.iter().for_each(Chosen::close);
        if !args.resume {
            // What was begun here says nothing; a folder with nothing else in it goes too.
            ["rows.csv", "run.json"].iter().for_each(|name| drop(std::fs::remove_file(out.join(name))));
            drop(std::fs::remove_dir(&out));
        }
        return Err(e.into());
    }
    let seconds = started.elapsed().as_secs_f64();

    traced("provenance", || -> Result<()> {
        provenance::write_times(&out, &sweeps, &outcome)?;
        Ok(provenance::write(&out, &sweeps, &options, &outcome, seconds)?)
    })?;
    let worst = || maps::worst(&sweeps, outcome.kept.rows(), &outcome.maps, options.kernels, options.backend);
    traced("maps", || maps::write(&out, &worst()))?;
    if let Some(external) = &external {
        external.close();
    }
    let page = traced("report", || crate::report::write(&out, &outcome.kept))?;
    if !args.json {
        print(&crate::report::terminal_summary(&outcome, seconds, super::width()));
    }
    if args.timings {
        eprint!("{}", timings(&outcome));
    }
    if outcome.interrupted {
        let out = out.display();
        eprintln!("stopped: {} of {} cases are complete in {out}; --resume goes on", outcome.kept.totals.rows, outcome.planned);
    }
    let line = format!("report: {}\n", page.display());
    if args.json {
        eprint!("{line}")
    } else {
        print(&line)
    }
    if args.ci.wanted() {
        let (rows, seconds) = outputs::of_run(&out)?;
        args.ci.write_rows(&rows, &seconds, args.json)?;
    }
    Ok(exit(&outcome))
}

/// Seconds of each stage over all cases, in the order of a case; what is in none; all, and those of the slowest case.
fn timings(outcome: &Outcome) -> String {
    let mut sums: Vec<(&str, f64, f64)> = Vec::new();
    let slowest = (0..outcome.times.len()).max_by(|a, b| outcome.times[*a].total_cmp(&outcome.times[*b]));
    for (case, stages) in outcome.stages.iter().enumerate() {
        for (name, seconds) in stages {
            let at = sums.iter().position(|s| s.0 == name).unwrap_or_else(|| {
                sums.push((name, 0.0, 0.0));
                sums.len() - 1
            });
            sums[at].1 += seconds;
            sums[at].2 += if Some(case) == slowest { *seconds } else { 0.0 };
        }
    }
    let (all, one) = (outcome.times.iter().sum::<f64>(), slowest.map_or(0.0, |i| outcome.times[i]));
    let (inside, of_one) = sums.iter().fold((0.0, 0.0), |s, x| (s.0 + x.1, s.1 + x.2));
    sums.extend([("other", all - inside, one - of_one), ("all", all, one)]);
    let line = |(name, all, one): (&str, f64, f64)| format!("{name:<16}{all:>12.4}{one:>12.4}\n");
    format!("{:<16}{:>12}{:>12}\n", "stage", "all, s", "slowest, s") + &sums.into_iter().map(line).collect::<String>()
}

fn exit(outcome: &Outcome) -> u8 {
    match outcome.kept.totals.exit_status() {
        _ if STOP.load(Ordering::Relaxed) => status::INTERRUPTED,
        1 => status::FAILED,
        _ if outcome.interrupted => status::INCOMPLETE,
        3 => status::NO_POWER,
        _ => status::PASSED,
    }
}

/// `reports/<stem>-<n>`, the first n that is free.
pub fn default_folder(stem: &str) -> PathBuf {
    (1..).map(|n| PathBuf::from("reports").join(format!("{stem}-{n}"))).find(|p| !p.exists()).expect("a free number exists")
}

/// `800M`, `4G`; a number alone is bytes.
pub(super) fn size(s: &str) -> Result<u64, String> {
    let (number, unit) = s.split_at(s.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(s.len()));
    let shift = ["", "K", "M", "G", "T"].iter().position(|u| *u == unit).map(|i| 10 * i as u32);
    let bytes = shift.and_then(|shift| number.trim().parse::<u64>().ok()?.checked_mul(1 << shift));
    bytes.filter(|b| *b > 0).ok_or_else(|| "expected a size such as 800M or 4G".into())
}

/// `90s`, `10m`, `2h`; a number alone is seconds.
fn duration(s: &str) -> Result<Duration, String> {
    let (number, unit) = s.split_at(s.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(s.len()));
    let unit = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = number.trim().parse::<f64>().unwrap_or(f64::NAN) * unit;
    if seconds > 0.0 && seconds < 1e9 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("expected a time such as 90s, 10m or 2h".into())
    }
}
