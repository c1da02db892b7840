//! A run that was killed, had no room or was refused goes on as if nothing had happened.

mod common;

use common::qassay;
use predicates::str::contains;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A few hundred small cases of casts and activations.
const SWEEP: &str = "about = \"many small cases\"
[[cases]]
name = \"casts\"
op = [\"cast\"]
shape = [\"8x64\", \"3x96\", \"16x128\"]
out = [\"te_current\", \"te_mxfp8\", \"te_nvfp4\", \"int8_token_sym\"]
seeds = 10
[[cases]]
name = \"gelu\"
op = [\"activation\"]
act = [\"gelu\", \"silu\"]
shape = [\"16x96\"]
out = [\"f16\", \"bf16\"]
seeds = 10
";

fn write_sweep(dir: &Path) -> PathBuf {
    let path = dir.join("many.toml");
    std::fs::write(&path, SWEEP).unwrap();
    path
}

fn run(sweep: &Path, out: &Path, more: &[&str]) -> assert_cmd::Command {
    let mut command = qassay();
    command.arg("run").arg(sweep).args(["--quiet", "--out"]).arg(out).args(more);
    command
}

fn lines(out: &Path) -> usize {
    std::fs::read_to_string(out.join("rows.csv")).map_or(0, |t| t.lines().count())
}

/// What a run leaves, but for what says when it was made: by name.
fn files(out: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for folder in ["", "figures"] {
        for entry in std::fs::read_dir(out.join(folder)).unwrap().map(Result::unwrap) {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            // These three hold the seconds the run took.
            let timed = ["/provenance.txt", "/summary.md", "/index.html", "/times.csv"].contains(&name.as_str());
            if entry.path().is_file() && !timed {
                found.push((name, std::fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn killed_at_a_hundred_moments_the_run_ends_with_the_files_of_an_unbroken_one() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = write_sweep(dir.path());
    let whole = dir.path().join("whole");
    let begun = Instant::now();
    run(&sweep, &whole, &["--jobs", "1"]).assert().success();
    let unbroken = begun.elapsed();
    let expected = files(&whole);
    assert!(lines(&whole) > 100, "{} rows", lines(&whole));

    // Moments from a fixed sequence over a little more than a whole run; each kill is followed by a resume into the same folder, so
    // that one run is killed many times.
    let out = dir.path().join("killed");
    let (mut random, mut kills, mut finished, mut torn) = (1u64, 0, 0, 0);
    while kills < 100 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let share = (random >> 40) as f64 / (1u64 << 24) as f64;
        let before = lines(&out);
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("qassay"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .arg("run")
            .arg(&sweep)
            .args(["--quiet", "--jobs", "1", "--resume", "--out"])
            .arg(&out)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(unbroken.mul_f64(share * 0.25).min(Duration::from_millis(400)));
        let ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        let said = child.wait_with_output().unwrap();
        torn += usize::from(String::from_utf8_lossy(&said.stderr).contains("is dropped"));
        assert!(lines(&out) + 1 >= before, "complete rows were lost");
        kills += usize::from(!ended);
        // A finished run is compared, and another is begun.
        if ended || kills == 100 {
            run(&sweep, &out, &["--resume", "--jobs", "2"]).assert().success();
            let found = files(&out);
            let names = |f: &[(String, Vec<u8>)]| f.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
            assert_eq!(names(&found), names(&expected));
            let other = found.iter().zip(&expected).find(|(a, b)| a != b).map(|(a, _)| &a.0);
            assert_eq!(other, None, "differs from the unbroken run");
            std::fs::remove_dir_all(&out).unwrap();
            finished += 1;
        }
    }
    eprintln!("{kills} kills, {finished} runs ended, {torn} torn rows dropped, a run takes {unbroken:?}");
    assert!(finished >= 1);
}

#[test]
fn a_torn_row_is_dropped_with_a_word_and_nothing_complete_is_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = write_sweep(dir.path());
    let out = dir.path().join("run");
    run(&sweep, &out, &[]).assert().success();
    let whole = std::fs::read_to_string(out.join("rows.csv")).unwrap();
    // A mark in a complete row, which computing it again would remove.
    let marked: Vec<String> = whole.split_inclusive('\n').take(20).map(|l| l.replacen(",pass,", ",suspect,", 1)).collect();
    std::fs::write(out.join("rows.csv"), marked.concat() + "many.toml,casts,cast/8x").unwrap();
    run(&sweep, &out, &[]).assert().code(2).stderr(contains("--resume"));
    // 3: a suspect is no pass to rely on.
    run(&sweep, &out, &["--resume"]).assert().code(3).stderr(contains("19 rows are complete; a torn one"));
    let again = std::fs::read_to_string(out.join("rows.csv")).unwrap();
    assert!(again.starts_with(&marked.concat()), "a complete row was computed again");
    assert_eq!(again.matches(",suspect,").count(), marked.concat().matches(",suspect,").count());
    assert_eq!(again.replace(",suspect,", ",pass,"), whole);
}

#[test]
fn what_changed_since_the_run_began_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = write_sweep(dir.path());
    let out = dir.path().join("run");
    run(&sweep, &out, &["--filter", "gelu"]).assert().success();
    run(&sweep, &out, &["--resume", "--filter", "gelu"]).assert().success();
    let refused = |more: &[&str], says: &str| {
        let mut command = run(&sweep, &out, &["--resume"]);
        command.args(more).assert().code(2).stderr(contains(says));
    };
    refused(&["--filter", "gelu", "--seed", "1"], "seed (the run has 0, now it is 1)");
    refused(&["--filter", "silu"], "filter (the run has [\"gelu\"], now it is [\"silu\"])");
    refused(&["--filter", "gelu", "--shard", "1/2"], "shard (the run has nothing, now it is 1/2)");
    std::fs::write(&sweep, SWEEP.replace("many small", "few small")).unwrap();
    refused(&["--filter", "gelu"], "many.toml (the run has");
    std::fs::write(&sweep, SWEEP).unwrap();
    // Another program than the one that began it.
    let header = std::fs::read_to_string(out.join("run.json")).unwrap();
    let at = header.find("\"program\": \"").unwrap() + 12;
    std::fs::write(out.join("run.json"), format!("{}0000{}", &header[..at], &header[at + 4..])).unwrap();
    refused(&["--filter", "gelu"], "program (the run has 0000");
}

#[test]
fn a_second_run_into_one_folder_is_refused_and_a_dead_ones_lock_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = write_sweep(dir.path());
    let out = dir.path().join("run");
    let mut first = Command::new(assert_cmd::cargo::cargo_bin("qassay"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run", "standard", "--quiet", "--jobs", "1", "--out"])
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while lines(&out) < 3 {
        assert!(first.try_wait().unwrap().is_none(), "the run ended before the second began");
        std::thread::sleep(Duration::from_millis(10));
    }
    let holder = format!("process {} runs into this folder", first.id());
    run(&sweep, &out, &["--resume"]).assert().code(2).stderr(contains(holder));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(out.join("lock").exists());
    let gone = format!("process {} is gone", first.id());
    run(&sweep, &out, &["--resume"]).assert().code(2).stderr(contains(gone)).stderr(contains("what the run was begun with"));
}

#[test]
fn a_disk_without_room_keeps_the_complete_rows_and_the_run_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = write_sweep(dir.path());
    let (out, whole) = (dir.path().join("run"), dir.path().join("whole"));
    run(&sweep, &whole, &[]).assert().success();
    // A file may hold 16 blocks of 512 bytes; past that a write ends short, then fails.
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" run \"$1\" --quiet --out \"$2\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(assert_cmd::cargo::cargo_bin("qassay"))
        .args([&sweep, &out])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("complete rows are kept"), "{said}");
    let kept = std::fs::read(out.join("rows.csv")).unwrap();
    let all = std::fs::read(whole.join("rows.csv")).unwrap();
    assert!(kept.ends_with(b"\n") && all.starts_with(&kept) && kept.len() > 4096, "{} bytes were kept", kept.len());
    run(&sweep, &out, &["--resume"]).assert().success();
    assert!(files(&out) == files(&whole));
}

#[test]
fn fail_fast_time_out_and_budget_stop_where_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = dir.path().join("slow.toml");
    let case = |name: &str, shape: &str| {
        format!("[[cases]]\nname = \"{name}\"\nop = [\"cast\"]\nshape = [\"{shape}\"]\nout = [\"te_current\"]\n")
    };
    let text = ["about = \"slow\"\n".to_string(), case("a", "8x64"), case("b", "3x96"), case("c", "8x32")].concat();
    std::fs::write(&sweep, text).unwrap();
    let out = |name: &str| dir.path().join(name);
    // The middle case never ends, however fast the machine is; the time is long enough for the others on a slow one.
    let hangs = |name: &str, args: &[&str]| {
        let mut command = run(&sweep, &out(name), args);
        command.env("QASSAY_FAULT", "hang:/3x96/");
        command
    };
    hangs("all", &["--jobs", "1", "--timeout", "3s", "--retry", "1"])
        .assert()
        .code(1)
        .stderr(contains("attempt 2 of 2"))
        .stderr(contains("took longer than --timeout 3s"));
    assert_eq!(lines(&out("all")), 4);
    hangs("fast", &["--jobs", "2", "--timeout", "3s", "--fail-fast"]).assert().code(1);
    assert_eq!(lines(&out("fast")), 3, "the row that failed is the last");
    // Without processes of its own a run looks at its budget between cases: the first uses it up, on a machine of any speed.
    run(&sweep, &out("budget"), &["--jobs", "1", "--budget", "0.000001ms"])
        .assert()
        .code(4)
        .stderr(contains("--resume goes on"));
    assert!(lines(&out("budget")) < 4);
    run(&sweep, &out("budget"), &["--jobs", "1", "--resume"]).assert().success();
    assert_eq!(lines(&out("budget")), 4);
}
