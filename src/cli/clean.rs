//! `qassay power --clean`: alarms on right kernels.

use super::{print, status};
use crate::compare::Verdict;
use crate::data;
use crate::run::plan::Selection;
use crate::sweep::{Case, build};
use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// `n` right results of numpy kernels, judged by `qassay assay`. Their generator (tests/clean) shares nothing with the judge; it is part of the program.
/// Errors: no Python with numpy.
pub fn generated(n: usize, seed: u64) -> Result<u8> {
    let folder = tempfile::tempdir().context("a folder for the generator")?;
    for (name, bytes) in data::CLEAN {
        std::fs::write(folder.path().join(name), bytes).with_context(|| format!("{}: no space?", folder.path().display()))?;
    }
    let python = std::env::var_os("QASSAY_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let numpy = Command::new(&python).args(["-c", "import numpy"]).output();
    if !numpy.as_ref().is_ok_and(|o| o.status.success()) {
        let why = match &numpy {
            Ok(o) => String::from_utf8_lossy(&o.stderr).lines().last().unwrap_or("it failed").to_string(),
            Err(e) => e.to_string(),
        };
        bail!("{}: {why}; right results are made by numpy: name a Python that has it in QASSAY_PYTHON", python.display());
    }
    let program = std::env::current_exe().context("the path of this program")?;
    let jobs = rayon::current_num_threads();
    let ended = Command::new(&python)
        .arg(folder.path().join("run.py"))
        .args(["--seed", &seed.to_string(), "--count", &n.to_string(), "--jobs", &jobs.to_string(), "--qassay"])
        .arg(&program)
        .status()
        .with_context(|| format!("{} could not be started", python.display()))?;
    Ok(if ended.success() { status::PASSED } else { status::FAILED })
}

/// Right results of the cases of sweeps, seed after seed until there are `n`.
pub fn cases(n: usize, seed: u64, selection: &dyn Fn(u64) -> Selection) -> Result<u8> {
    let (started, mut judged, mut alarms) = (Instant::now(), 0, Vec::new());
    let mut fresh = seed.max(1);
    while judged < n {
        let sweeps = selection(fresh).load()?;
        let cases: Vec<&Case> = sweeps.iter().flat_map(|s| &s.cases).filter(|c| c.skip.is_none()).take(n - judged).collect();
        let verdicts: Vec<Option<(String, Verdict)>> = cases
            .par_iter()
            .map(|c| match build::ground(c) {
                Ok(g) => Ok(Some((c.id(), g.verdict))),
                Err(crate::Error::Unsupported { .. }) => Ok(None),
                Err(e) => Err(e).with_context(|| c.id()),
            })
            .collect::<Result<_>>()?;
        let before = judged;
        for (id, verdict) in verdicts.into_iter().flatten() {
            judged += 1;
            if matches!(verdict, Verdict::Fail | Verdict::Suspect) {
                alarms.push(format!("{verdict}: seed {fresh}, {id}"));
            }
        }
        if judged == before {
            bail!("no case of the selection can be run");
        }
        fresh += 1;
    }
    let mut text = format!(
        "{} alarms in {judged} clean cases over {} seeds, {:.0} s\n",
        alarms.len(),
        fresh - seed.max(1),
        started.elapsed().as_secs_f64()
    );
    alarms.iter().for_each(|a| text += &format!("  {a}\n"));
    print(&text);
    Ok(if alarms.is_empty() { status::PASSED } else { status::FAILED })
}
