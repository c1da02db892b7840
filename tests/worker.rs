//! Cases in processes of their own: what ends a process is one row, and the run goes on.

mod common;

use common::qassay;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SWEEP: &str = "about = \"small cases\"
[[cases]]
name = \"casts\"
op = [\"cast\"]
shape = [\"8x64\", \"3x96\", \"16x128\", \"5x32\"]
out = [\"te_current\", \"int8_token_sym\"]
";

/// Runs `SWEEP` in `dir/name` and returns (exit status, rows as verdict, case, reason, command).
fn run(dir: &Path, name: &str, fault: &str, more: &[&str]) -> (i32, Vec<[String; 4]>) {
    let sweep = dir.join("small.toml");
    std::fs::write(&sweep, SWEEP).unwrap();
    let out = dir.join(name);
    let mut command = qassay();
    command.env("QASSAY_FAULT", fault).arg("run").arg(&sweep).args(["--quiet", "--out"]).arg(&out).args(more);
    let status = command.output().unwrap().status.code().unwrap();
    (status, rows(&out))
}

fn rows(out: &Path) -> Vec<[String; 4]> {
    let mut reader = csv::Reader::from_path(out.join("rows.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|h| h == name).unwrap();
    let columns = ["verdict", "case", "reason", "command"].map(at);
    reader.records().map(|r| r.unwrap()).map(|r| columns.map(|c| r[c].to_string())).collect()
}

#[test]
fn processes_give_the_rows_that_threads_give() {
    let dir = tempfile::tempdir().unwrap();
    let (threads, expected) = run(dir.path(), "threads", "", &["--jobs", "1"]);
    assert_eq!((threads, expected.len()), (0, 8));
    for (name, jobs) in [("one", "1"), ("three", "3")] {
        let (status, found) = run(dir.path(), name, "", &["--jobs", jobs, "--timeout", "5m"]);
        assert_eq!((status, &found), (0, &expected));
        let read = |name: &str| std::fs::read(dir.path().join(name).join("rows.csv")).unwrap();
        assert!(read(name) == read("threads"), "every column of every row");
    }
}

#[test]
fn a_crash_an_exit_and_a_hang_are_one_row_each_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (_, sound) = run(dir.path(), "sound", "", &[]);
    for (fault, says) in [("crash", "SIGABRT"), ("exit", "exit status: 7"), ("hang", "took longer than --timeout 3s")] {
        // In the third case of eight, one process at a time: the cases after it need a fresh one.
        let (status, found) = run(dir.path(), fault, &format!("{fault}:/3x96/"), &["--jobs", "1", "--timeout", "3s"]);
        assert_eq!((status, found.len()), (1, 8), "{fault}");
        for (row, sound) in found.iter().zip(&sound) {
            let [verdict, case, reason, command] = row;
            if case.contains("/3x96/") {
                assert_eq!(verdict, "error");
                assert!(reason.contains(says), "{reason}");
                assert!(command.contains("qassay run") && command.contains(case.as_str()), "{command}");
            } else {
                assert_eq!(row, sound);
            }
        }
        assert_eq!(found.iter().filter(|r| r[0] == "error").count(), 2, "{fault}");
    }
}

#[test]
fn a_case_beyond_its_memory_is_a_row_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = dir.path().join("large.toml");
    let text = SWEEP.replace("\"3x96\"", "\"4096x8192\"").replace(", \"int8_token_sym\"", "");
    std::fs::write(&sweep, text).unwrap();
    let out = dir.path().join("run");
    let mut command = qassay();
    command.arg("run").arg(&sweep).args(["--quiet", "--jobs", "1", "--memory", "600M", "--out"]).arg(&out);
    assert_eq!(command.output().unwrap().status.code(), Some(1));
    let found = rows(&out);
    let verdicts: Vec<&str> = found.iter().map(|r| r[0].as_str()).collect();
    assert_eq!(verdicts, ["pass", "error", "pass", "pass"], "{found:?}");
    assert!(found[1][2].contains("memory allocation of"), "{}", found[1][2]);
}

/// The processes whose command line names `mark` and that are workers.
fn workers(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|p| std::fs::read(p.ok()?.path().join("cmdline")).ok());
    processes.map(|c| String::from_utf8_lossy(&c).into_owned()).filter(|c| c.contains("\0worker\0") && c.contains(mark)).count()
}

fn within(limit: Duration, what: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn no_worker_outlives_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = dir.path().join("small.toml");
    std::fs::write(&sweep, SWEEP).unwrap();
    let mark = sweep.display().to_string();
    // Killed with no warning; Ctrl-C twice.
    for (name, signals) in [("killed", &["KILL"][..]), ("stopped", &["INT", "INT"])] {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("qassay"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("QASSAY_FAULT", "hang:cast")
            .args(["run", &mark, "--quiet", "--jobs", "2", "--timeout", "10m", "--out"])
            .arg(dir.path().join(name))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(within(Duration::from_secs(20), || workers(&mark) == 2), "{name}: {} workers", workers(&mark));
        for signal in signals {
            Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
        let status = child.wait().unwrap();
        assert!(name == "killed" || status.code() == Some(130), "{status}");
        assert!(within(Duration::from_secs(10), || workers(&mark) == 0), "{name}: {} workers", workers(&mark));
    }
}

#[test]
fn limits_that_a_backend_does_not_have_are_refused() {
    let refused = |args: &[&str], says: &str| {
        let output = qassay().arg("run").arg("smoke").args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{said}");
    };
    refused(&["--devices", "0,1"], "found backend cpu");
    refused(&["--memory", "4X"], "expected a size such as");
    refused(&["--memory", "0"], "expected a size such as");
}
