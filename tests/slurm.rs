//! `qassay submit` and `status` on a real Slurm of one node, with a shard that is killed.

mod common;

use common::qassay;
use predicates::str::contains;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A cluster that stops when it is dropped.
struct Cluster {
    dir: PathBuf,
    conf: String,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm_cluster.sh")
}

/// Installs Slurm where apt can; `None`, with a word, where it cannot.
fn cluster(dir: &Path) -> Option<Cluster> {
    let there = || Command::new("slurmctld").arg("-V").output().is_ok();
    if !there() {
        let packages = ["slurmctld", "slurmd", "slurm-client", "munge"];
        let install = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends";
        let _ = Command::new("sh").args(["-c", &format!("{install} {}", packages.join(" "))]).output();
    }
    if !there() {
        eprintln!("skipped: apt-get could not install slurmctld, slurmd, slurm-client and munge");
        return None;
    }
    let made = Command::new(script()).arg("start").arg(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(Cluster { dir: dir.to_path_buf(), conf: String::from_utf8(made.stdout).unwrap().trim().to_string() })
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(&self.dir).status();
    }
}

impl Cluster {
    fn qassay(&self) -> assert_cmd::Command {
        let mut command = qassay();
        command.env("SLURM_CONF", &self.conf);
        command
    }
    /// Waits until `done`.
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            let log = |name: &str| std::fs::read_to_string(self.dir.join(name)).unwrap_or_default();
            assert!(
                begun.elapsed() < Duration::from_secs(240),
                "{what} did not come:\n{}\n{}",
                log("slurmctld.log"),
                log("slurmd.log")
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

#[test]
fn a_killed_shard_is_queued_again_and_the_merge_is_the_single_run() {
    let dir = tempfile::tempdir().unwrap();
    let Some(cluster) = cluster(&dir.path().join("slurm")) else { return };
    let out = dir.path().join("run");
    let submit = |cluster: &Cluster, out: &Path| {
        let mut command = cluster.qassay();
        command.args(["submit", "--slurm", "origins", "--array", "3", "--out"]).arg(out).args(["--", "--filter", "cast"]);
        command.assert()
    };
    submit(&cluster, &out).success().stdout(contains("3 shards: job array"));
    submit(&cluster, &out).code(2).stderr(contains("holds a submission already"));

    // The first shard that has rows dies the hard way.
    let rows = |i: usize| std::fs::read_to_string(out.join(format!("shard-{i}/rows.csv"))).map_or(0, |t| t.lines().count());
    cluster.until("a row", || (1..=3).any(|i| rows(i) > 1) || out.join("merged/index.html").exists());
    let running = (1..=3).find(|i| rows(*i) > 1).expect("a shard with rows");
    let pattern = format!("--shard {running}/3 --out {}", out.display());
    let killed = Command::new("pkill").args(["-9", "-f", "--", &pattern]).status().unwrap().success();

    cluster.until("the merge", || {
        let made = cluster.qassay().arg("status").arg(&out).output().unwrap();
        assert!(matches!(made.status.code(), Some(0 | 4)), "{}", String::from_utf8_lossy(&made.stdout));
        made.status.code() == Some(0)
    });
    cluster
        .qassay()
        .arg("status")
        .arg(&out)
        .assert()
        .success()
        .stdout(contains("3 of 3 shards complete"))
        .stdout(contains("report: "));
    let log = std::fs::read_to_string(out.join(format!("logs/shard-{running}.log"))).unwrap_or_default();
    assert!(!killed || log.contains("ended with status 137"), "the killed shard says nothing of it: {log}");

    let single = dir.path().join("single");
    qassay().args(["run", "origins", "--filter", "cast", "--quiet", "--out"]).arg(&single).assert().success();
    let read = |folder: &Path| std::fs::read_to_string(folder.join("rows.csv")).unwrap();
    assert!(read(&out.join("merged")) == read(&single), "the merged run differs from the single one");
}

#[test]
fn what_is_no_submission_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    qassay().arg("status").arg(dir.path()).assert().code(2).stderr(contains("name the folder of a `qassay submit`"));
    std::fs::write(dir.path().join("submit.json"), "{}").unwrap();
    qassay().arg("status").arg(dir.path()).assert().code(2).stderr(contains("no record of a submission"));
    qassay()
        .args(["submit", "--slurm", "no_such", "--array", "2", "--out"])
        .arg(dir.path().join("a"))
        .assert()
        .code(2)
        .stderr(contains("unknown sweep"));
    qassay()
        .args(["submit", "smoke", "--array", "2", "--out"])
        .arg(dir.path().join("a"))
        .assert()
        .code(2)
        .stderr(contains("--slurm"));
    // Where there is no Slurm.
    let mut command = qassay();
    command.env("PATH", "").args(["submit", "--slurm", "smoke", "--array", "2", "--out"]).arg(dir.path().join("b"));
    command.assert().code(2).stderr(contains("sbatch could not be started"));
}
