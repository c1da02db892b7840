//! `qassay stale`: scenarios of stale scales, replayed and judged by their laws; bundles audited.

use super::run::{Who, default_folder};
use super::{print, status};
use crate::compare::gates::GATES;
use crate::report::short;
use crate::scenario::audit::{self, Finding};
use crate::scenario::run::{Replay, With, facts, run as replay};
use crate::scenario::{Policy, Scenario, names};
use anyhow::Result;
use std::path::PathBuf;

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
    /// Where the scale_inv lives; all three unless given.
    #[arg(long, value_name = "POLICY")]
    policy: Vec<Policy>,
    /// Whose kernels run: cpu, or cuda (needs a GPU).
    #[arg(long, value_enum, default_value_t = Who::Cpu)]
    backend: Who,
    /// Added to the draw number of all data.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder to write (rows.csv, run.json, provenance.txt, stale.html); refused when it holds a run, unless --resume.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in the folder.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Instead: whether the codes and the scale_inv of a bundle belong together, and which step of its scale_history they are of.
    #[arg(long, value_name = "BUNDLE", conflicts_with_all = ["scenario", "policy", "out", "resume"])]
    audit: Vec<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    if !args.audit.is_empty() {
        return audit_all(&args.audit);
    }
    let (backend, kernels, device) = args.backend.choose()?;
    let wanted = if args.scenario.is_empty() { names()? } else { args.scenario.clone() };
    let scenarios = wanted.iter().map(|n| Scenario::load(n)).collect::<crate::Result<Vec<_>>>()?;
    let policies = if args.policy.is_empty() { Policy::ALL.to_vec() } else { args.policy.clone() };
    let with = With { seed: args.seed, backend, kernels };
    let facts = facts(&scenarios, &policies, with, &device)?;
    let out = args.out.clone().unwrap_or_else(|| default_folder("stale"));
    let started = std::time::Instant::now();
    print(&heading());
    let replays = replay(&scenarios, &policies, with, (&out, &facts, args.resume), &mut |r| print(&line(r)))?;
    let broken = replays.iter().filter(|r| !r.holds()).count();
    print(&format!(
        "\n{} scenarios under {} policies in {:.1} s: {}\n",
        scenarios.len(),
        policies.len(),
        started.elapsed().as_secs_f64(),
        if broken == 0 { "each as its law says".to_string() } else { format!("{broken} not as their law says") }
    ));
    let provenance = std::fs::read_to_string(out.join("provenance.txt")).unwrap_or_default();
    let rows: Vec<_> = replays.into_iter().flat_map(|r| r.records).collect();
    let page = crate::report::stale::write(&out, &scenarios, &rows, &provenance)?;
    print(&format!("report: {}\n", page.display()));
    Ok(if broken == 0 { status::PASSED } else { status::FAILED })
}

fn audit_all(files: &[PathBuf]) -> Result<u8> {
    let mut belongs = true;
    for file in files {
        for (name, a) in audit::bundle(file)? {
            belongs &= a.finding == Finding::Belongs;
            print(&format!("{}: {name}: {}\n", file.display(), a.words()));
        }
    }
    Ok(if belongs { status::PASSED } else { status::FAILED })
}

fn heading() -> String {
    let head = ["scenario", "policy", "step", "where", "r predicted", "r measured", "gates", "bound", "law"];
    columns(head.map(String::from))
}

fn columns(c: [String; 9]) -> String {
    let [scenario, policy, step, place, predicted, measured, gates, bound, law] = c;
    format!(
        "{scenario:<31} {policy:<9} {step:>4}  {place:<12} {predicted:>11} {measured:>11}  {gates:>6} {bound:>6} {law:>7}\n"
    )
}

/// One scenario under one policy.
fn line(r: &Replay) -> String {
    let shown = r.first_shown();
    let none = || "·".to_string();
    let (place, predicted, measured) = match r.worst() {
        Some(w) => {
            let number = |c: &str| w.num(c).map_or_else(|| w.get(c).to_string(), short);
            (format!("{}.{}", w.get("product"), w.get("operand")), number("r_predicted"), number("r_measured"))
        }
        _ => (none(), none(), none()),
    };
    let mut text = columns([
        r.scenario.clone(),
        r.policy.to_string(),
        shown.map_or_else(none, |s| s.to_string()),
        place,
        predicted,
        measured,
        format!("{}/{}", r.noticed("gates_notice").len(), GATES.len()),
        if r.bound_notices() { "fails".into() } else { none() },
        if r.holds() { "holds".into() } else { "BROKEN".into() },
    ]);
    if let Some(why) = &r.why {
        text += &format!("    {why}\n");
    }
    for bad in r.records.iter().filter(|x| !x.is("holds")).take(2) {
        let place = format!("step {} {}.{}", bad.get("step"), bad.get("product"), bad.get("operand"));
        text += &format!("    {place}: {} ({})\n", bad.get("why"), bad.get("law"));
    }
    text
}
