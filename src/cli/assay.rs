//! `qassay assay`: bundles of kernels from anywhere.

use super::doing::doing;
use super::{print, status};
use crate::bundle::{Bundle, answer, assay};
use crate::compare::Verdict;
use crate::report;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Judge bundles: safetensors files that hold what went into a kernel and what came out.
///
/// The operands are held to the recipe where one is named, the result to the device model or to a bound derived from its arithmetic.
/// The format is in data/bundles/README.md; notebooks/python/qassay_bundle.py writes it.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status: 0 all pass; 1 any fail; 2 usage or unreadable input; 3 no failure but some without power.\n\n\
Examples:\n  qassay assay out.safetensors\n  qassay assay runs/*.safetensors --json\n  qassay assay out.safetensors --html out.html"
)]
pub struct Args {
    /// Bundles.
    #[arg(required = true, value_name = "BUNDLE")]
    bundles: Vec<PathBuf>,
    /// One JSON object a line instead of text.
    #[arg(long)]
    json: bool,
    /// Also write a page with the error maps and every number.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    let (mut verdicts, mut unreadable) = (Vec::new(), false);
    let (mut rows, mut maps, mut locations) = (Vec::new(), Vec::new(), Vec::new());
    for path in &args.bundles {
        match judge(path) {
            Ok((bundle, found)) => {
                match args.json {
                    true => print(&format!("{}\n", answer::json(&bundle, &found))),
                    false => print(&answer::text(&bundle, &found, super::width())),
                }
                if args.html.is_some() {
                    rows.push(answer::row(&bundle, &found));
                    maps.push(answer::map(&bundle, &found)?);
                    locations.extend(found.diagnosis.as_ref().map(|d| (path.display().to_string(), d.location.clone())));
                }
                verdicts.push(answer::verdict(&found));
            }
            // The others are still judged.
            Err(e) => {
                eprintln!("qassay: {e}");
                unreadable = true;
            }
        }
    }
    if let Some(path) = &args.html {
        let page = report::page(rows, &maps, &locations, &format!("qassay {}\n", env!("CARGO_PKG_VERSION")));
        std::fs::write(path, page).with_context(|| format!("{}: name a file that can be written", path.display()))?;
    }
    Ok(if unreadable {
        status::USAGE
    } else if verdicts.contains(&Verdict::Fail) {
        status::FAILED
    } else if verdicts.contains(&Verdict::NoPower) {
        status::NO_POWER
    } else {
        status::PASSED
    })
}

fn judge(path: &Path) -> crate::Result<(Bundle, assay::Answer)> {
    let _doing = doing(format!("judging {}", path.display()));
    let bundle = Bundle::read(path)?;
    let mut found = assay::assay(&bundle)?;
    crate::scenario::audited::beside(&bundle, &mut found);
    Ok((bundle, found))
}
