//! A repository of baselines: what is accepted and committed there, and the page of its history.

use super::common::qassay;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

pub struct Kept {
    dir: tempfile::TempDir,
}

impl Kept {
    pub fn new() -> Kept {
        let kept = Kept { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(kept.baselines()).unwrap();
        kept.git(&["init", "-q"]);
        kept
    }
    pub fn baselines(&self) -> PathBuf {
        self.at("kept")
    }
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn git(&self, arguments: &[&str]) {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        let mut command = Command::new("git");
        assert!(command.arg("-C").arg(self.baselines()).args(who).args(arguments).output().unwrap().status.success());
    }
    pub fn accept_alone(&self, run: &str) {
        qassay().arg("accept").arg("--new").arg(self.at(run)).arg("--baselines").arg(self.baselines()).assert().success();
    }
    pub fn accept(&self, run: &str, subject: &str) {
        self.accept_alone(run);
        self.git(&["add", "."]);
        self.git(&["commit", "-q", "-m", subject]);
    }
    pub fn page(&self) -> String {
        qassay().args(["history", "--html"]).arg(self.at("h.html")).arg("--baselines").arg(self.baselines()).assert().success();
        std::fs::read_to_string(self.at("h.html")).unwrap()
    }
    /// A copy of the run `from` as another day's: facts of its run.json and one case's cells, replaced.
    pub fn changed(&self, from: &str, to: &str, facts: &[(&str, &str)], case: &str, cells: &[(&str, &str)]) {
        std::fs::create_dir_all(self.at(to)).unwrap();
        let text = std::fs::read_to_string(self.at(from).join("run.json")).unwrap();
        let mut json: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
        json.extend(facts.iter().map(|(n, v)| (n.to_string(), v.to_string())));
        std::fs::write(self.at(to).join("run.json"), serde_json::to_string(&json).unwrap()).unwrap();
        let mut reader = csv::Reader::from_path(self.at(from).join("rows.csv")).unwrap();
        let header = reader.headers().unwrap().clone();
        let mut writer = csv::Writer::from_path(self.at(to).join("rows.csv")).unwrap();
        writer.write_record(&header).unwrap();
        for row in reader.records().map(Result::unwrap) {
            let set = |name: &str| cells.iter().find(|c| c.0 == name && row.iter().any(|v| v == case)).map(|c| c.1);
            writer.write_record(header.iter().zip(&row).map(|(name, v)| set(name).unwrap_or(v))).unwrap();
        }
    }
}
