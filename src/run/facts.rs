//! What decides the bits of a run, as named facts in `run.json`: a run is continued, joined or compared only where they agree, and
//! a drift is attributed to those that differ.

use super::plan::Selection;
use super::provenance;
use crate::kernel::Backend;
use crate::sweep::Sweep;
use crate::{Error, Result};
use sha2::Digest;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Name and value. Names: `qassay`, `program`, `revision`, `backend`, `device`, `kernels`, `compiler`, `driver`, `seed`, `filter`, `case`,
/// `shard`, `sweeps`, `sweep <name>`, `input <name>`, `cases`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(pub BTreeMap<String, String>);

/// A commit that leaves the program as it is changes no bit.
const NOT_COMPARED: &str = "revision";

impl Facts {
    /// The facts of running `sweeps`, which `selection` chose, on `backend` of `device`. Errors: the program or the real data cannot be
    /// read.
    pub fn of(selection: &Selection, sweeps: &[Sweep], backend: Backend, device: &str) -> Result<Facts> {
        let mut facts = BTreeMap::new();
        let mut set = |name: &str, value: String| drop(facts.insert(name.to_string(), value));
        set("qassay", env!("CARGO_PKG_VERSION").into());
        set("program", program()?);
        set("revision", provenance::revision());
        set("backend", backend.name().into());
        set("device", device.into());
        crate::kernel::made_of(backend).into_iter().for_each(|(name, value)| set(name, value));
        set("seed", selection.seed.to_string());
        set("filter", list(&selection.filter));
        set("case", selection.case.clone().unwrap_or_default());
        set("shard", selection.shard.map_or(String::new(), |s| s.to_string()));
        set("sweeps", list(&selection.sweeps));
        for (name, sweep) in selection.sweeps.iter().zip(sweeps) {
            set(&format!("sweep {name}"), sweep.digest.clone());
        }
        for (name, file, _) in crate::input::real::COLLECTIONS {
            let bytes = crate::data::read(file)?.bytes;
            set(&format!("input {name}"), crate::compare::sha256(&bytes));
        }
        let (mut names, mut count) = (sha2::Sha256::new(), 0);
        for case in sweeps.iter().flat_map(|s| &s.cases) {
            names.update(format!("{}\t{}\n", case.sweep, case.id()));
            count += 1;
        }
        set("cases", format!("{count} sha256 {:x}", names.finalize()));
        Ok(Facts(facts))
    }

    /// The value of a fact; empty where it is not there.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A fact that is a list.
    pub fn list(&self, name: &str) -> Vec<String> {
        serde_json::from_str(self.get(name)).unwrap_or_default()
    }

    /// The facts that differ, as (name, here, there), but `revision` and those in `except`.
    pub fn differences<'a>(&'a self, other: &'a Facts, except: &[&str]) -> Vec<(&'a str, &'a str, &'a str)> {
        let mut names: Vec<&str> = self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|n| *n != NOT_COMPARED && !except.contains(n) && self.get(n) != other.get(n));
        names.into_iter().map(|n| (n, self.get(n), other.get(n))).collect()
    }

    /// Reads `<run>/run.json`. Errors: it is missing, or no map from names to texts.
    pub fn read(run: &Path) -> Result<Facts> {
        Facts::read_file(&run.join("run.json"))
    }

    /// [`Facts::read`] of a file by its own name.
    pub fn read_file(path: &Path) -> Result<Facts> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e, "name the folder of a run"))?;
        Facts::parse(path, &text)
    }

    /// The facts in the text of a file; `path` names it in errors.
    pub fn parse(path: &Path, text: &str) -> Result<Facts> {
        let parsed = serde_json::from_str(text).map_err(|e| Error::BadFile {
            path: path.to_path_buf(),
            found: e.to_string(),
            expected: "one JSON object whose values are texts".into(),
        })?;
        Ok(Facts(parsed))
    }

    /// Writes the file whole or not at all: beside it, synced, then renamed.
    pub fn write_file(&self, path: &Path) -> Result<()> {
        let io = |e| Error::io(path, e, "make room, or name another folder");
        let text = serde_json::to_string_pretty(&self.0).expect("texts are JSON") + "\n";
        let beside = path.with_extension("json.part");
        let mut file = std::fs::File::create(&beside).map_err(io)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        std::fs::rename(&beside, path).map_err(io)
    }
}

/// `name: here, there` for each, as an error shows them.
pub fn show(differences: &[(&str, &str, &str)], here: &str, there: &str) -> String {
    let short = |s: &str| if s.is_empty() { "nothing".to_string() } else { s.chars().take(100).collect() };
    let lines: Vec<String> =
        differences.iter().map(|(n, a, b)| format!("{n} ({here} {}, {there} {})", short(a), short(b))).collect();
    lines.join("; ")
}

fn list(words: &[String]) -> String {
    serde_json::to_string(words).expect("texts are JSON")
}

/// SHA-256 of the program that runs: its kernels, references and recipes are compiled into it.
pub(crate) fn program() -> Result<String> {
    let path = std::env::current_exe().map_err(|e| Error::io("qassay", e, "the program's own file is read"))?;
    let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e, "the program's own file is read"))?;
    Ok(crate::compare::sha256(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_and_the_revision_is_not_compared() {
        let facts = |seed: &str, revision: &str| {
            Facts([("seed", seed), ("revision", revision)].map(|(a, b)| (a.to_string(), b.to_string())).into())
        };
        assert_eq!(facts("1", "a").differences(&facts("1", "b"), &[]), []);
        assert_eq!(facts("1", "a").differences(&facts("2", "b"), &[]), [("seed", "1", "2")]);
        assert_eq!(facts("1", "a").differences(&facts("2", "b"), &["seed"]), []);
        assert_eq!(facts("1", "a").differences(&Facts::default(), &[]), [("seed", "1", "")]);
    }

    #[test]
    fn a_file_reads_back_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let facts = Facts([("filter".to_string(), "[\"a \\\"b\\\"\"]".to_string())].into());
        facts.write_file(&dir.path().join("run.json")).unwrap();
        assert_eq!(Facts::read(dir.path()).unwrap(), facts);
        assert_eq!(facts.list("filter"), ["a \"b\""]);
        for text in ["", "[]", "{\"a\": 1}", "{\"a\": \"b\"", "\u{0}"] {
            std::fs::write(dir.path().join("run.json"), text).unwrap();
            assert!(Facts::read(dir.path()).is_err(), "{text:?}");
        }
    }
}
