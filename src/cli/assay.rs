//! `qassay assay`: bundles of kernels from anywhere.

use super::outputs::ForCi;
use super::run::size;
use super::{print, status};
use crate::Error;
use crate::bundle::{Bundle, Sample, answer, assay};
use crate::compare::Verdict;
use crate::fault::DIAGNOSIS;
use crate::kernel;
use crate::report::{self, ci};
use crate::sweep::bar::doing;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a bundle from which a GPU of this machine does the work, if it has one.
const LARGE: u64 = 1 << 24;

/// Judge bundles: safetensors files that hold what went into a kernel and what came out.
///
/// The operands are checked against the recipe, where one is named. The result is checked against the device model, or a bound derived from
/// its arithmetic. `qassay helper --format` prints the format; `qassay helper` prints a Python file that writes it.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 every bundle passes; 1 one fails; 2 usage or unreadable input; 3 none fails, but one has no power or is suspect.\n\n\
Examples:\n  qassay assay out.safetensors\n  qassay assay runs/*.safetensors --json\n  qassay assay out.safetensors --html out.html\n  \
qassay assay large.safetensors --memory 2G"
)]
pub struct Args {
    /// Safetensors files.
    #[arg(required = true, value_name = "BUNDLE")]
    bundles: Vec<PathBuf>,
    /// One JSON object a line instead of text.
    #[arg(long)]
    json: bool,
    /// Also write a page with the error maps and every number.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Judge only N drawn rows and columns of a large product (gemm); the rest is never read.
    #[arg(long, value_name = "N", conflicts_with = "memory", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// Where a product (gemm) needs more memory than this (800M, 4G), judge as many drawn rows and columns as fit.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Print where the time of each bundle went.
    #[arg(long)]
    timings: bool,
    #[command(flatten)]
    ci: ForCi,
}

pub fn run(args: Args) -> Result<u8> {
    let (mut verdicts, mut unreadable) = (Vec::new(), Vec::new());
    let (mut rows, mut maps, mut locations) = (Vec::new(), Vec::new(), Vec::new());
    let mut seconds = HashMap::new();
    let sample = args.sample.map(|n| Sample::Each(n as usize)).or(args.memory.map(Sample::Memory));
    for path in &args.bundles {
        let begun = Instant::now();
        match guarded(path, || judge(path, sample)) {
            Ok((bundle, found)) => {
                match args.json {
                    true => print(&format!("{}\n", answer::json(&bundle, &found))),
                    false => print(&answer::text(&bundle, &found, super::width())),
                }
                if args.html.is_some() || args.ci.wanted() {
                    rows.push(answer::row(&bundle, &found));
                    seconds.insert(path.display().to_string(), begun.elapsed().as_secs_f64());
                }
                if args.html.is_some() {
                    maps.push(answer::map(&bundle, &found)?);
                    locations.extend(found.diagnosis.as_ref().map(|d| (path.display().to_string(), d.location.clone())));
                }
                if args.timings {
                    eprint!("{}", timings(begun.elapsed().as_secs_f64()));
                }
                // A suspect result is a pass by the contract of the JSON line, and not by the status.
                verdicts.push(found.verdict);
            }
            // The others are still judged.
            Err(e) => {
                super::complain(&format!("qassay: {e}\n"));
                unreadable.push((path.display().to_string(), e.to_string()));
            }
        }
    }
    // What could not be read is no pass.
    let unread = |(path, why): &(String, String)| ci::Test {
        suite: "bundles".into(),
        name: path.clone(),
        class: "bundle".into(),
        seconds: 0.0,
        ended: ci::Ended::Error { message: why.clone(), text: why.clone() },
    };
    let cause =
        |(_, why): &(String, String)| ci::Cause { title: "qassay: not read".into(), text: why.clone(), like: String::new() };
    args.ci.write(
        || ci::junit(&ci::tests(&rows, &seconds).into_iter().chain(unreadable.iter().map(unread)).collect::<Vec<_>>()),
        || ci::comment(ci::markdown(&rows), &unreadable.iter().map(|u| format!("\nnot read: {}\n", u.1)).collect::<Vec<_>>()),
        || ci::causes(&rows).into_iter().chain(unreadable.iter().map(cause)).collect(),
        args.json,
    )?;
    if let Some(path) = &args.html {
        let page = report::page(rows, &maps, &locations, &provenance());
        std::fs::write(path, page).with_context(|| format!("{}: name a file that can be written", path.display()))?;
    }
    Ok(if !unreadable.is_empty() {
        status::USAGE
    } else if verdicts.contains(&Verdict::Fail) {
        status::FAILED
    } else if verdicts.iter().any(|v| matches!(v, Verdict::NoPower | Verdict::Suspect)) {
        status::NO_POWER
    } else {
        status::PASSED
    })
}

/// Seconds of each stage of the last bundle, in the order in which they began; what is in none; all.
fn timings(all: f64) -> String {
    let stages = crate::stage::take();
    let inside: f64 = stages.iter().map(|s| s.1).sum();
    let lines = stages.into_iter().chain([("other", all - inside), ("all", all)]);
    lines.map(|(name, seconds)| format!("{name:<16}{seconds:>10.3} s\n")).collect()
}

/// What judged, when, and the command.
fn provenance() -> String {
    use crate::run::provenance::{command, now, revision};
    let (revision, date, command) = (revision(), now(), command());
    format!("qassay: {}\nrevision: {revision}\ndate: {date}\ncommand: {command}\n", env!("CARGO_PKG_VERSION"))
}

/// A panic is a fault of the judge and that of one bundle: the others are still judged.
fn guarded<T>(path: &Path, judge: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let why = format!("the judge itself failed ({})", text.unwrap_or("no words"));
        Err(Error::Process { what: path.display().to_string(), why, expected: "a verdict; please report it with this bundle" })
    })
}

fn judge(path: &Path, sample: Option<Sample>) -> crate::Result<(Bundle, assay::Answer)> {
    let _doing = doing(format!("judging {}", path.display()));
    let bundle = sample.map_or_else(|| Bundle::read(path), |s| Bundle::read_sample(path, s))?;
    // A GPU takes a second to open.
    let large = bundle.meta.op.is_product() && std::fs::metadata(path).is_ok_and(|m| m.len() >= LARGE);
    let mut found = assay::assay_by(&bundle, DIAGNOSIS, if large { kernel::of_this_machine() } else { None })?;
    crate::scenario::audited::beside(&bundle, &mut found);
    Ok((bundle, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_error_of_its_bundle() {
        let path = Path::new("a.safetensors");
        assert_eq!(guarded(path, || Ok(1)).unwrap(), 1);
        let zero = std::hint::black_box(0);
        let said = guarded(path, || Ok(1 / zero)).unwrap_err().to_string();
        assert!(
            said.starts_with("a.safetensors: the judge itself failed (attempt to divide by zero); expected a verdict"),
            "{said}"
        );
    }
}
