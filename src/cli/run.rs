//! `qassay run`: a sweep into a folder, with a progress bar, a summary and a report.

use super::{print, status};
use crate::kernel::Backend;
use crate::sweep::run::{Options, Outcome};
use crate::sweep::{Sweep, maps, run as runner};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Run sweeps and write reports/<run>/ with rows.csv, provenance.txt, summary.md, figures/ and index.html.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  qassay run\n  qassay run smoke origins --out reports/mine\n  qassay run standard \
--filter gemm/te_block\n  qassay run standard --case 'cast/64x768/normal/bf16>te_current:e4m3/s0'")]
pub struct Args {
    /// Sweeps by name (`qassay list sweeps`) or path to a .toml.
    #[arg(default_value = "standard")]
    sweep: Vec<String>,
    /// Only cases whose name contains this text; may be given several times, all must match.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Only the case with exactly this name: what a row's command uses.
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Added to the draw number of every case: other random data.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Worker threads; 0 is one a core.
    #[arg(long, short, default_value_t = 0)]
    jobs: usize,
    /// Folder to write; refused when it holds a run.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object a row on standard output instead of the summary.
    #[arg(long)]
    json: bool,
    /// No progress bar.
    #[arg(long, short)]
    quiet: bool,
}

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

pub fn run(args: Args) -> Result<u8> {
    let mut sweeps = args.sweep.iter().map(|s| Sweep::load(s, args.seed)).collect::<crate::Result<Vec<_>>>()?;
    for sweep in &mut sweeps {
        sweep.cases.retain(|c| {
            let id = c.id();
            args.filter.iter().all(|f| id.contains(f.as_str()) || c.family.contains(f.as_str()))
                && args.case.as_ref().is_none_or(|c| *c == id)
        });
    }
    let planned: usize = sweeps.iter().map(|s| s.cases.len()).sum();
    if planned == 0 {
        bail!(
            "no case of {} matches; `qassay run {}` without --filter and --case runs all of them",
            args.sweep.join(", "),
            args.sweep[0]
        );
    }
    let out = args.out.clone().unwrap_or_else(|| default_folder(&sweeps));
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(status::INTERRUPTED));
        }
        eprintln!("\nstopping after the cases in progress; Ctrl-C again to stop at once");
    })
    .context("could not install the Ctrl-C handler")?;

    let bar = progress_bar(planned as u64, args.quiet || args.json);
    let (started, shown) = (std::time::Instant::now(), AtomicUsize::new(0));
    let options = Options {
        out: out.clone(),
        jobs: args.jobs,
        backend: Backend::Cpu,
        kernels: crate::kernel::cpu::KERNELS,
        seed: args.seed,
        stop: &STOP,
    };
    let outcome = runner::run(&sweeps, &options, &|row| {
        bar.inc(1);
        // The first few at once; all of them are in the summary and in rows.csv.
        if matches!(row.get("verdict"), "fail" | "error") && shown.fetch_add(1, Ordering::Relaxed) < 5 {
            bar.suspend(|| eprintln!("{:<8} {}\n         {}", row.get("verdict"), row.get("case"), row.get("reason")));
        }
        if args.json {
            print(&(crate::report::json_line(row) + "\n"));
        }
    })?;
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();

    crate::sweep::provenance::write(&out, &sweeps, &options, &outcome, seconds)?;
    maps::write(&out, &maps::worst(&sweeps, &outcome.rows, options.kernels, options.backend))?;
    let page = crate::report::write(&out, &outcome.rows)?;
    if !args.json {
        print(&crate::report::terminal_summary(&outcome, seconds));
    }
    if outcome.interrupted {
        eprintln!("stopped: {} of {} cases are complete in {}", outcome.rows.len(), outcome.planned, out.display());
    }
    let line = format!("report: {}\n", page.display());
    if args.json {
        eprint!("{line}")
    } else {
        print(&line)
    }
    Ok(exit(&outcome))
}

fn exit(outcome: &Outcome) -> u8 {
    match outcome.exit_status() {
        _ if STOP.load(Ordering::Relaxed) => status::INTERRUPTED,
        1 => status::FAILED,
        3 => status::NO_POWER,
        _ => status::PASSED,
    }
}

/// `reports/<sweeps>-<n>`, the first n that is free.
fn default_folder(sweeps: &[Sweep]) -> PathBuf {
    let names: Vec<&str> = sweeps.iter().map(|s| s.name.as_str()).collect();
    let stem = names.join("+");
    (1..).map(|n| PathBuf::from("reports").join(format!("{stem}-{n}"))).find(|p| !p.exists()).expect("a free number exists")
}

fn progress_bar(len: u64, hidden: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some(len),
        if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() },
    );
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} cases  {per_sec}  {eta} left").expect("a valid template");
    bar.with_style(style)
}
