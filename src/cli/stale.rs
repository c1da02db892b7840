//! `qassay stale`: scenarios of stale scales, replayed and judged by their laws; bundles audited.

use super::run::{Who, default_folder};
use super::{print, status};
use crate::assay::row::short;
use crate::compare::gates::GATES;
use crate::kernel::Backend;
use crate::run::scenarios::{facts, run as replay};
use crate::scenario::audited;
use crate::scenario::device::{COSTS, DEVICE, SEEN, Seen, Shown};
use crate::scenario::run::{Replay, With, every, refused};
use crate::scenario::{Policy, Scenario, names};
use crate::sweep::bar::counting;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Replay the ways in which a scale and its data go out of step, and check each against its law; or audit a bundle.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 every scenario, healthy or stale, behaves as its law says (--audit: codes and scale_inv belong \
together); 1 one does not; 2 usage or input.\n\nExamples:\n  qassay stale\n  qassay stale 01_update_before_backward --policy shared\n  \
qassay stale mine.toml\n  qassay stale --audit kernel.safetensors\n  qassay list scenarios"
)]
pub struct Args {
    /// Scenarios by name (`qassay list scenarios`) or path to a .toml; all of data/scenarios unless given.
    scenario: Vec<String>,
    /// Where the scale_inv is kept; all three policies unless given.
    #[arg(long, value_name = "POLICY")]
    policy: Vec<Policy>,
    /// Whose kernels run: cpu, or cuda (needs a GPU).
    #[arg(long, value_enum, default_value_t = Who::Cpu)]
    backend: Who,
    /// At most N steps of each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Added to the draw number of all data.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder to write (rows.csv, run.json, provenance.txt, stale.html; with --audit audit.csv, lost.csv); refused when it holds a run, unless --resume.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in the folder.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Audit a bundle instead: do its codes and scale_inv belong together, which scale_inv did its kernel read, and which step of the
    /// scale_history is that? With --out, write every scale (audit.csv) and every element (lost.csv).
    #[arg(long, value_name = "BUNDLE", conflicts_with_all = ["scenario", "policy", "steps", "resume"])]
    audit: Vec<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    if !args.audit.is_empty() {
        return audit_all(&args.audit, args.out.as_deref());
    }
    let (backend, kernels, device) = args.backend.choose()?;
    let named = |all: &[(&'static str, &str)]| -> Vec<&'static str> {
        all.iter().map(|d| d.0).filter(|d| args.scenario.is_empty() || args.scenario.iter().any(|s| s == d)).collect()
    };
    let on_device = if matches!(backend, Backend::Cuda) { named(&DEVICE) } else { Vec::new() };
    let mut wanted = if args.scenario.is_empty() { names()? } else { args.scenario.clone() };
    wanted.retain(|n| !on_device.contains(&n.as_str()));
    if let Some((name, what)) = DEVICE.iter().find(|d| wanted.iter().any(|n| n == d.0)) {
        bail!(
            "scenario {name}: {what}; found backend {}, expected cuda: add --backend cuda where there is a GPU",
            backend.name()
        );
    }
    let mut scenarios = wanted.iter().map(|n| Scenario::load(n)).collect::<crate::Result<Vec<_>>>()?;
    scenarios.iter_mut().for_each(|s| s.steps = s.steps.min(args.steps.map_or(usize::MAX, |n| n as usize)));
    let policies = if args.policy.is_empty() { Policy::ALL.to_vec() } else { args.policy.clone() };
    let with = With { seed: args.seed, backend, kernels };
    let (mut jobs, mut not) = (Vec::new(), Vec::new());
    for (scenario, policy) in every(&scenarios, &policies) {
        match refused(scenario, policy, with)? {
            None => jobs.push((scenario, policy)),
            Some(why) => not.push(format!("{} {policy}: not run: {why}\n", scenario.name)),
        }
    }
    if jobs.is_empty() && on_device.is_empty() {
        bail!("no scenario can run here\n{}", not.concat());
    }
    let facts = facts(&jobs, with, &device)?;
    let out = args.out.clone().unwrap_or_else(|| default_folder("stale"));
    let started = std::time::Instant::now();
    print(&heading());
    let bar = counting(jobs.len(), "replays", false);
    let replays = replay(&jobs, with, (&out, &facts, args.resume), &mut |r| {
        bar.step();
        bar.beside(|| print(&line(r)));
    })?;
    drop(bar);
    print(&not.concat());
    let shown = show(&on_device)?;
    shown.write(&out)?;
    print(&words(&shown));
    let broken = replays.iter().filter(|r| !r.holds()).count() + shown.seen.iter().filter(|s| !s.holds()).count();
    print(&format!(
        "\n{} replays of {} scenario{} in {:.1} s: {}{}\n",
        jobs.len(),
        scenarios.len(),
        if scenarios.len() == 1 { "" } else { "s" },
        started.elapsed().as_secs_f64(),
        if broken == 0 { "each as its law says".to_string() } else { format!("{broken} not as their law says") },
        if not.is_empty() { String::new() } else { format!("; {} that no kernel takes were not run", not.len()) }
    ));
    let provenance = std::fs::read_to_string(out.join("provenance.txt")).unwrap_or_default();
    let rows: Vec<_> = replays.into_iter().flat_map(|r| r.records).collect();
    let page = crate::report::stale::write(&out, &scenarios, &rows, &shown, &provenance)?;
    print(&format!("report: {}\n", page.display()));
    Ok(if broken == 0 { status::PASSED } else { status::FAILED })
}

/// Runs what only a device can show.
#[cfg(feature = "cuda")]
fn show(names: &[&str]) -> Result<Shown> {
    use crate::bench::{policies, stale};
    use crate::kernel::cuda::launch::gpu;
    let mut shown = Shown::default();
    for name in names {
        match *name {
            "device_streams" => shown.seen.extend(stale::streams(gpu()?)?),
            "device_graphs" => shown.seen.extend(stale::graphs(gpu()?)?),
            _ => shown.costs = policies::costs(gpu()?)?,
        }
    }
    Ok(shown)
}

#[cfg(not(feature = "cuda"))]
fn show(_: &[&str]) -> Result<Shown> {
    Ok(Shown::default())
}

/// What a device showed, as text.
fn words(shown: &Shown) -> String {
    let table = |head: &[&str], rows: Vec<Vec<String>>| -> String {
        if rows.is_empty() { String::new() } else { "\n".to_string() + &super::table::text(head, &rows) }
    };
    table(&SEEN, shown.seen.iter().map(Seen::cells).collect())
        + &table(&COSTS, shown.costs.iter().map(|c| c.cells(&shown.costs)).collect())
}

fn audit_all(files: &[PathBuf], out: Option<&Path>) -> Result<u8> {
    let mut all = Vec::new();
    for file in files {
        let of = audited::bundle(file)?;
        of.lines().iter().for_each(|line| print(&format!("{}: {line}\n", file.display())));
        all.push((file.clone(), of));
    }
    if let Some(out) = out {
        audited::write(out, &all)?;
        print(&format!(
            "every scale: {}; every element: {}\n",
            out.join("audit.csv").display(),
            out.join("lost.csv").display()
        ));
    }
    Ok(if all.iter().all(|a| a.1.belongs()) { status::PASSED } else { status::FAILED })
}

/// Characters of a line with every column.
const WIDE: u16 = 107;

fn heading() -> String {
    let head = ["scenario", "policy", "step", "where", "r predicted", "r measured", "gates", "bound", "law"];
    columns(head.map(String::from))
}

fn columns(c: [String; 9]) -> String {
    let [scenario, policy, step, place, predicted, measured, gates, bound, law] = c;
    if terminal_size::terminal_size().is_some_and(|(w, _)| w.0 < WIDE) {
        // What was predicted, and who noticed, stand in the report.
        return format!("{scenario:<31} {policy:<9} {step:>4}  {measured:>11}  {bound:>6} {law:>7}\n");
    }
    format!(
        "{scenario:<31} {policy:<9} {step:>4}  {place:<12} {predicted:>11} {measured:>11}  {gates:>6} {bound:>6} {law:>7}\n"
    )
}

/// One scenario under one policy.
fn line(r: &Replay) -> String {
    let shown = r.first_shown();
    let none = || "·".to_string();
    let (place, predicted, measured) = match r.worst() {
        Some(w) => (format!("{}.{}", w.product, w.operand), short(w.r_predicted), short(w.r_measured)),
        _ => (none(), none(), none()),
    };
    let mut text = columns([
        r.scenario.clone(),
        r.policy.to_string(),
        shown.map_or_else(none, |s| s.to_string()),
        place,
        predicted,
        measured,
        format!("{}/{}", r.noticed().len(), GATES.len()),
        if r.bound_notices() { "fails".into() } else { none() },
        if r.holds() { "holds".into() } else { "BROKEN".into() },
    ]);
    if let Some(why) = &r.why {
        text += &format!("    {why}\n");
    }
    for bad in r.records.iter().filter(|x| !x.holds).take(2) {
        text += &format!("    step {} {}.{}: {} ({})\n", bad.step, bad.product, bad.operand, bad.why, bad.law);
    }
    text
}
