//! A part of a run for each of several machines, and the parts joined again.

use super::facts::{self, Facts};
use super::journal;
use super::plan::Selection;
use super::totals::Kept;
use crate::assay::row::{Reader, Row};
use crate::assay::table::Line;
use crate::order::Order as _;
use crate::sweep::Sweep;
use crate::{Error, Result};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Part `index` (from 1) of `count`; spelled `index/count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub index: usize,
    pub count: usize,
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl std::str::FromStr for Shard {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let parsed = s.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((index, count)) if 1 <= index && index <= count && count <= 1_000_000 => Ok(Shard { index, count }),
            _ => Err(Error::value("shard", s, "i/n with 1 ≤ i ≤ n, such as 2/4")),
        }
    }
}

/// The shard (from 1) of each case: the dearest first, each to the shard that has the least so far, the lowest of equals. Depends on
/// nothing but the costs and their order.
pub fn split(costs: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.order_by(|a, b| costs[*b].total_cmp(&costs[*a]).then(a.cmp(b)));
    let mut shards = vec![0; costs.len()];
    // Least load first; `to_bits` orders loads, which are not negative.
    let mut loads: std::collections::BTreeSet<(u64, usize)> = (1..=count).map(|i| (0, i)).collect();
    for i in order {
        let (load, shard) = loads.pop_first().expect("count is at least 1");
        shards[i] = shard;
        loads.insert(((f64::from_bits(load) + costs[i]).to_bits(), shard));
    }
    shards
}

/// A merged run.
pub struct Merged {
    pub kept: Kept,
    pub sweeps: Vec<Sweep>,
}

/// Joins the runs of all shards into the folder `out`: `rows.csv` and `run.json` as one run would have written them. Errors name what
/// is wrong: facts that differ, a shard that is missing or is there twice, a case that has no row or two, a sweep file that changed.
pub fn merge(runs: &[PathBuf], out: &Path) -> Result<Merged> {
    let bad = |path: &Path, found: String, expected: &str| Error::BadFile {
        path: path.to_path_buf(),
        found,
        expected: expected.to_string(),
    };
    let Some(first) = runs.first() else { return Err(Error::value("merge", "no run", "the folders of all shards")) };
    let facts = Facts::read(first)?;
    let mut shards: HashMap<usize, &Path> = HashMap::new();
    let mut count = 0;
    for run in runs {
        let own = Facts::read(run)?;
        let differ = facts.differences(&own, &["shard", "cases"]);
        if !differ.is_empty() {
            let names = format!("{} has, ", first.display());
            return Err(bad(run, facts::show(&differ, &names, "here"), "shards of one run, made by one program on one device"));
        }
        let shard: Shard = own.get("shard").parse().map_err(|_| bad(run, "a run without --shard".into(), "a shard"))?;
        if count != 0 && shard.count != count {
            return Err(bad(run, format!("shard {shard}"), &format!("one of {count}, as in {}", first.display())));
        }
        count = shard.count;
        if let Some(other) = shards.insert(shard.index, run) {
            return Err(bad(run, format!("shard {shard}, which is also in {}", other.display()), "each shard once"));
        }
    }
    let gaps: Vec<String> = (1..=count).filter(|i| !shards.contains_key(i)).take(20).map(|i| format!("{i}/{count}")).collect();
    if !gaps.is_empty() {
        return Err(Error::value("merge", format!("no run of shard {}", gaps.join(", ")), format!("all {count} shards")));
    }

    let selection = Selection {
        sweeps: facts.list("sweeps"),
        filter: facts.list("filter"),
        case: Some(facts.get("case").to_string()).filter(|c| !c.is_empty()),
        seed: facts.get("seed").parse().unwrap_or_default(),
        shard: None,
    };
    let sweeps = selection.load()?;
    for (name, sweep) in selection.sweeps.iter().zip(&sweeps) {
        if facts.get(&format!("sweep {name}")) != sweep.digest {
            return Err(bad(first, format!("another text of sweep {name}"), "the sweep as it is now; run the shards again"));
        }
    }

    // Each shard has its rows in the order of the cases: the next row of a case's shard is the case's.
    let costs: Vec<f64> = sweeps.iter().flat_map(|s| &s.cases).map(super::plan::seconds).collect();
    let parts = split(&costs, count);
    let mut readers: Vec<(&Path, Reader)> = Vec::with_capacity(count);
    for i in 1..=count {
        let run = shards[&i];
        readers.push((run, Reader::open(&run.join("rows.csv"))?));
    }
    let made = !out.exists();
    std::fs::create_dir_all(out).map_err(|e| Error::io(out, e, "choose a folder that can be written with --out"))?;
    let path = out.join("rows.csv");
    let part = out.join("rows.csv.part");
    if path.exists() {
        let expected = "a folder without one; name a new folder with --out".into();
        return Err(Error::BadFile { path, found: "a run".into(), expected });
    }
    let joined = join(&sweeps, &parts, &mut readers, &part);
    if joined.is_err() {
        // What is incomplete is no run.
        let _ = std::fs::remove_file(&part);
        let _ = made && std::fs::remove_dir(out).is_ok();
    }
    let kept = joined?;
    std::fs::rename(&part, &path).map_err(|e| Error::io(&path, e, "name a new folder with --out"))?;

    let mut facts = facts;
    facts.0.insert("shard".into(), String::new());
    let whole = Facts::of(&selection, &sweeps, crate::kernel::Backend::Cpu, "")?;
    facts.0.insert("cases".into(), whole.get("cases").into());
    facts.write_file(&out.join("run.json"))?;
    Ok(Merged { kept, sweeps })
}

/// Writes the rows of all cases to `part`, each from the shard in `parts`. Errors: a shard whose next row is of another case, or that has
/// a row too many.
fn join(sweeps: &[Sweep], parts: &[usize], readers: &mut [(&Path, Reader)], part: &Path) -> Result<Kept> {
    let bad = |path: &Path, found: String, expected: &str| Error::BadFile {
        path: path.to_path_buf(),
        found,
        expected: expected.to_string(),
    };
    let io = |e| Error::io(part, e, "make room, or name another folder with --out");
    let mut file = std::io::BufWriter::new(std::fs::File::create(part).map_err(io)?);
    file.write_all(&journal::line(&Row::names())).map_err(io)?;
    let mut kept = Kept::new(parts.len());
    for (case, shard) in sweeps.iter().flat_map(|s| &s.cases).zip(parts) {
        let (run, rows) = &mut readers[shard - 1];
        let Some(row) = rows.next()? else {
            return Err(bad(run, format!("no row of case {}", case.id()), "a complete shard; go on with --resume"));
        };
        if *row.sweep != *case.sweep || row.case != case.id() {
            let found = format!("case {}", row.case);
            return Err(bad(run, found, &format!("the row of case {}: each case of its shard once, in order", case.id())));
        }
        file.write_all(&journal::line(&row.cells())).map_err(io)?;
        kept.add(row);
    }
    for (run, rows) in readers {
        if let Some(row) = rows.next()? {
            return Err(bad(run, format!("case {}", row.case), "each case in one shard"));
        }
    }
    file.into_inner().map_err(|e| io(e.into_error()))?.sync_all().map_err(io)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_shard_has_more_than_its_share_and_one_case(costs in prop::collection::vec(0.001f64..100.0, 0..60), n in 1usize..9) {
            let shards = split(&costs, n);
            prop_assert_eq!(&shards, &split(&costs, n));
            prop_assert!(shards.iter().all(|s| (1..=n).contains(s)));
            let total: f64 = costs.iter().sum();
            let most = costs.iter().copied().fold(0.0, f64::max);
            for s in 1..=n {
                let load: f64 = costs.iter().zip(&shards).filter(|(_, t)| **t == s).map(|(c, _)| c).sum();
                prop_assert!(load <= total / n as f64 + most + 1e-9);
            }
        }
    }

    #[test]
    fn spelled_from_one_to_count() {
        assert_eq!("2/4".parse::<Shard>().unwrap(), Shard { index: 2, count: 4 });
        for s in ["0/4", "5/4", "4", "/", "a/b", "-1/2", "1/0", "1/99999999999999999999"] {
            assert!(s.parse::<Shard>().is_err(), "{s}");
        }
    }
}
