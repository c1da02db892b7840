//! `qassay stale`: scenarios of stale scales, replayed and judged by their laws.

use super::run::Who;
use super::{print, status};
use crate::compare::gates::GATES;
use crate::report::short;
use crate::scenario::run::{Replay, replay_all};
use crate::scenario::{Policy, Scenario, names};
use anyhow::Result;

/// Replay the ways in which a scale and its data go out of step, and check each against its law.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 every scenario, healthy or stale, behaves as its law says; 1 one does not; 2 usage or input.\n\n\
Examples:\n  qassay stale\n  qassay stale 01_update_before_backward --policy shared\n  qassay stale mine.toml\n  qassay list scenarios"
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
}

pub fn run(args: Args) -> Result<u8> {
    let (backend, kernels, _) = args.backend.choose()?;
    let wanted = if args.scenario.is_empty() { names()? } else { args.scenario.clone() };
    let scenarios = wanted.iter().map(|n| Scenario::load(n)).collect::<crate::Result<Vec<_>>>()?;
    let policies = if args.policy.is_empty() { Policy::ALL.to_vec() } else { args.policy.clone() };
    let started = std::time::Instant::now();
    let replays = replay_all(&scenarios, &policies, args.seed, backend, kernels, &|_| {})?;
    print(&table(&replays));
    let broken = replays.iter().filter(|r| !r.holds()).count();
    print(&format!(
        "\n{} scenarios under {} policies in {:.1} s: {}\n",
        scenarios.len(),
        policies.len(),
        started.elapsed().as_secs_f64(),
        if broken == 0 { "each as its law says".to_string() } else { format!("{broken} not as their law says") }
    ));
    Ok(if broken == 0 { status::PASSED } else { status::FAILED })
}

/// One line a scenario and policy.
fn table(replays: &[Replay]) -> String {
    let mut text = format!(
        "{:<28} {:<9} {:>4}  {:<24} {:>11} {:>11}  {:>6} {:>5} {:>6}\n",
        "scenario", "policy", "step", "where", "r predicted", "r measured", "gates", "bound", "law"
    );
    for r in replays {
        let shown = r.first_shown();
        let (place, predicted, measured) = match r.worst() {
            Some(w) if shown.is_some() => {
                let number = |c: &str| w.num(c).map_or_else(|| w.get(c).to_string(), short);
                (format!("{}.{}", w.get("product"), w.get("operand")), number("r_predicted"), number("r_measured"))
            }
            _ => ("·".into(), "·".into(), "·".into()),
        };
        text += &format!(
            "{:<28} {:<9} {:>4}  {:<24} {:>11} {:>11}  {:>6} {:>5} {:>6}\n",
            r.scenario,
            r.policy,
            shown.map_or("·".into(), |s| s.to_string()),
            place,
            predicted,
            measured,
            format!("{}/{}", r.noticed("gates_notice").len(), GATES.len()),
            if r.bound_notices() { "fails" } else { "·" },
            if r.holds() { "holds" } else { "BROKEN" },
        );
        if let Some(why) = &r.why {
            text += &format!("    {why}\n");
        }
        for bad in r.records.iter().filter(|x| !x.is("holds")).take(2) {
            let place = format!("step {} {}.{}", bad.get("step"), bad.get("product"), bad.get("operand"));
            text += &format!("    {place}: {} ({})\n", bad.get("why"), bad.get("law"));
        }
    }
    text
}
