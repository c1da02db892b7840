//! `qassay power --clean`: alarms on right kernels.

use super::{print, status};
use crate::compare::Verdict;
use crate::data;
use crate::fault::tally::{Tallies, judges};
use crate::parallel;
use crate::report::power::Right;
use crate::run::plan::Selection;
use crate::sweep::bar::counting;
use crate::sweep::{Case, build};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Beside the page of the same folder.
const FILE: &str = "clean.csv";

/// `n` right results of numpy kernels, judged by `qassay assay`. Their generator (tests/clean) shares nothing with the judge; it is part of the program.
/// Errors: no Python with numpy.
pub fn generated(n: usize, seed: u64) -> Result<u8> {
    let folder = tempfile::tempdir().context("a folder for the generator")?;
    for file in &data::CLEAN {
        std::fs::write(folder.path().join(file.name), file.whole())
            .with_context(|| format!("{}: no space?", folder.path().display()))?;
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

/// Right results of the cases of sweeps, seed after seed until there are `n`; what each judge failed of them goes to `clean.csv` in `out`.
pub fn cases(n: usize, seed: u64, selection: &dyn Fn(u64) -> Selection, out: &Path) -> Result<u8> {
    let (started, mut judged, mut alarms) = (Instant::now(), 0, Vec::new());
    let mut tallies = Tallies::default();
    let mut fresh = seed.max(1);
    let bar = counting(n, "cases", false);
    while judged < n {
        let sweeps = selection(fresh).load()?;
        let cases: Vec<&Case> = sweeps.iter().flat_map(|s| &s.cases).filter(|c| c.skip.is_none()).take(n - judged).collect();
        let one = |c: &&Case| match build::ground(c) {
            Ok(g) => {
                bar.step();
                Ok(Some((c.id(), g.verdict, g.alarms().with_context(|| c.id())?)))
            }
            Err(crate::Error::Unsupported { .. }) => Ok(None),
            Err(e) => Err(e).with_context(|| c.id()),
        };
        let verdicts = parallel::collect(cases.len(), |n| one(&cases[n])).into_iter();
        let verdicts: Vec<Option<(String, Verdict, Vec<bool>)>> = verdicts.collect::<Result<_>>()?;
        let before = judged;
        for (id, verdict, gates) in verdicts.into_iter().flatten() {
            judged += 1;
            let alarm = matches!(verdict, Verdict::Fail | Verdict::Suspect);
            if alarm {
                tallies.add_alarm(&gates)
            } else {
                tallies.add_right(&gates)
            }
            if alarm {
                alarms.push(format!("{verdict}: seed {fresh}, {id}"));
            }
        }
        if judged == before {
            bail!("no case of the selection can be run");
        }
        fresh += 1;
    }
    drop(bar);
    let mut text = format!(
        "{} alarms in {judged} clean cases over {} seeds, {:.0} s\n",
        alarms.len(),
        fresh - seed.max(1),
        started.elapsed().as_secs_f64()
    );
    alarms.iter().for_each(|a| text += &format!("  {a}\n"));
    std::fs::create_dir_all(out).map_err(|e| crate::Error::io(out, e, "choose a folder that can be written with --out"))?;
    let mut csv = csv::Writer::from_path(out.join(FILE))?;
    csv.write_record(["judge", "right", "failed"])?;
    for (judge, failed) in judges().iter().zip(&tallies.alarms) {
        text += &format!("  {judge:<26}failed {failed} of {judged}\n");
        csv.write_record([judge, &judged.to_string(), &failed.to_string()])?;
    }
    csv.flush()?;
    print(&text);
    Ok(if alarms.is_empty() { status::PASSED } else { status::FAILED })
}

/// What a `--clean` wrote into a folder, for the page. Errors: a file that is none of it.
pub fn read(out: &Path) -> Result<Option<Right>> {
    let path = out.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let expected = || {
        format!("{}: expected judge,right,failed of every judge; write it with `qassay power SWEEP --clean N`", path.display())
    };
    let lines = csv::Reader::from_path(&path)?
        .deserialize()
        .collect::<Result<Vec<(String, usize, usize)>, _>>()
        .with_context(expected)?;
    if !lines.iter().map(|l| &l.0).eq(&judges()) {
        bail!(expected());
    }
    let right = lines[0].1;
    let percent = lines.iter().map(|l| 100.0 * l.2 as f64 / l.1.max(1) as f64).collect();
    Ok(Some(Right { name: format!("--clean: right results ({right})"), percent }))
}
