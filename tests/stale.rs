//! `qassay stale` as a program: what it prints, leaves and returns.

mod common;

use common::qassay;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

/// The columns of a run's rows by name, one map a row.
fn rows(out: &Path) -> Vec<HashMap<String, String>> {
    let mut reader = csv::Reader::from_path(out.join("rows.csv")).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

fn scenario(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/scenarios").join(name).with_extension("toml"))
        .unwrap()
}

fn write(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("mine.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Every scenario under every policy, the long ones cut: the smaller form of `qassay stale`, run once for all tests.
static ALL: LazyLock<(tempfile::TempDir, String)> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let run = qassay().args(["stale", "--steps", "14", "--out"]).arg(dir.path().join("run")).assert().success();
    let said = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    (dir, said)
});

#[test]
fn every_scenario_behaves_as_its_law_says() {
    let (out, said) = (ALL.0.path().join("run"), &ALL.1);
    assert!(said.contains("each as its law says") && !said.contains("BROKEN"), "{said}");
    let rows = rows(&out);
    assert!(rows.len() > 2000, "{} rows", rows.len());
    for r in &rows {
        assert_eq!(r["holds"], "true", "{r:?}");
        if r["class"] == "staleness" && r["policy"] == "packaged" {
            assert_eq!((r["shows"].as_str(), r["bound_notices"].as_str()), ("false", "false"), "{r:?}");
        }
        // Every metric of all three errors is there, of both gradients too.
        assert!(["quant", "kernel", "total"].iter().all(|e| !r[&format!("{e}_sqnr_db")].is_empty()), "{r:?}");
    }
    for (column, value) in [("policy", "packaged"), ("policy", "cloned"), ("product", "dgrad"), ("product", "wgrad")] {
        assert!(rows.iter().any(|r| r[column] == value), "{column} {value}");
    }
    for row in 1..=28 {
        assert!(rows.iter().any(|r| r["row"] == row.to_string()), "row {row}");
    }
    // A stale scale is seen by the bound, and by some ordinary gate somewhere; its first step is where r leaves 1.
    let stale = |name: &str| rows.iter().filter(|r| r["scenario"] == name && r["policy"] == "shared").collect::<Vec<_>>();
    let first = stale("01_update_before_backward");
    assert!(first.iter().any(|r| r["bound_notices"] == "true" && !r["gates_notice"].is_empty()));
    let shown = first.iter().find(|r| r["shows"] == "true").unwrap();
    assert_eq!((shown["step"].as_str(), shown["product"].as_str(), shown["operand"].as_str()), ("0", "wgrad", "b"));
    let page = std::fs::read_to_string(out.join("stale.html")).unwrap();
    assert!(page.contains("Predicted and measured") && page.matches("<svg").count() > 30);
    assert!(!page.contains("http://") && !page.contains("https://"), "the page must not name a host");
    for file in ["run.json", "provenance.txt", "figures/ratios.svg"] {
        assert!(out.join(file).exists(), "{file}");
    }
}

/// What the CUDA kernels returned on an H200 for the same sequences: r, gains, losses and errors of every read have the same digits.
#[test]
fn an_h200_returned_what_the_cpu_returns() {
    const COLUMNS: [&str; 11] = [
        "step",
        "product",
        "operand",
        "scale_inv_true",
        "scale_inv_used",
        "r_measured",
        "gain_measured",
        "saturated_share",
        "flushed_share",
        "kernel_max_abs",
        "kernel_rel_frobenius",
    ];
    let rows = rows(&ALL.0.path().join("run"));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/h200/stale/replays.csv");
    let mut reader = csv::Reader::from_path(golden).unwrap();
    let mut compared = 0;
    for record in reader.deserialize::<HashMap<String, String>>().map(Result::unwrap) {
        let of = rows.iter().filter(|r| r["scenario"] == record["scenario"] && r["policy"] == record["policy"]);
        let lines: Vec<String> = of.map(|r| COLUMNS.map(|c| r[c].as_str()).join(",") + "\n").collect();
        assert_eq!(lines.len().to_string(), record["rows"], "{record:?}");
        assert_eq!(qassay::compare::sha256(lines.concat().as_bytes()), record["sha256"], "{record:?}");
        compared += lines.len();
    }
    assert!(compared > 1500, "{compared} rows");
}

/// One training trace whole: 200 steps, every gate and the bound of each, in all three products.
#[test]
fn a_training_trace_has_two_hundred_steps_under_the_policy_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    qassay().args(["stale", "training_w4a8", "--policy", "shared", "--out"]).arg(&out).assert().success();
    let rows = rows(&out);
    assert_eq!(rows.len(), 200 * 3 * 2);
    assert!(rows.iter().all(|r| r["policy"] == "shared" && !r["r_predicted"].is_empty() && !r["r_measured"].is_empty()));
    for product in ["forward", "dgrad", "wgrad"] {
        assert!(rows.iter().any(|r| r["product"] == product && r["bound_notices"] == "true"), "{product}");
    }
    assert!(rows.iter().any(|r| r["saturated_share"].parse::<f64>().unwrap() > 0.0));
    assert!(rows[0]["command"].starts_with("qassay stale training_w4a8 --policy shared"));
}

#[test]
fn a_law_that_does_not_hold_is_said_and_returned() {
    let dir = tempfile::tempdir().unwrap();
    let good = scenario("01_update_before_backward");
    let law = "r = \"s(x,n)/s(x,n+1)\"";
    assert!(good.contains(law));
    let mine = write(dir.path(), &good);
    let run = |mine: &Path, n: &str| {
        let mut c = qassay();
        c.arg("stale").arg(mine).args(["--policy", "shared", "--out"]).arg(dir.path().join(n));
        c.assert()
    };
    run(&mine, "good").code(0).stdout(contains("holds"));
    std::fs::write(&mine, good.replace(law, "r = \"1.01*s(x,n)/s(x,n+1)\"")).unwrap();
    run(&mine, "wrong").code(1).stdout(contains("BROKEN").and(contains("wgrad.b").and(contains("the law says"))));
}

#[test]
fn bad_files_and_arguments_are_refused_with_place_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let good = scenario("01_update_before_backward");
    for (from, to, want) in [
        (
            "do = \"forward\", a = \"xq\"",
            "do = \"forward\", a = \"xp\"",
            "there is no buffer `xp` yet; quantize into it before",
        ),
        ("source = \"normal\"", "from = \"dy\"", "a cycle: dy from dy; give one of them a `source`"),
        ("do = \"update\", state = \"x\"", "do = \"update\", state = \"z\"", "unknown state `z`"),
        ("steps = 10", "steps = ", "mine.toml:7:"),
    ] {
        let mine = write(dir.path(), &good.replacen(from, to, 1));
        let line = 1 + good[..good.find(from).unwrap()].lines().count()
            - usize::from(!good[..good.find(from).unwrap()].ends_with('\n'));
        let place = format!("mine.toml:{line}:");
        qassay().arg("stale").arg(&mine).assert().code(2).stderr(contains(want).and(contains(place)));
    }
    qassay().args(["stale", "99_nothing"]).assert().code(2).stderr(contains("unknown scenario `99_nothing`"));
    qassay().args(["stale", "--policy", "mine"]).assert().code(2).stderr(contains("unknown policy `mine`"));
    qassay().args(["stale", "device_streams"]).assert().code(2).stderr(contains("--backend cuda"));
    qassay()
        .args(["list", "scenarios"])
        .assert()
        .success()
        .stdout(contains("28_overlap_buffer").and(contains("device_graphs")));
}

/// Where there is no GPU.
#[test]
fn without_a_gpu_cuda_says_what_is_missing() {
    if qassay().arg("devices").output().is_ok_and(|o| o.status.success()) {
        eprintln!("SKIPPED: this machine has a GPU");
        return;
    }
    for name in ["01_update_before_backward", "device_streams"] {
        qassay().args(["stale", name, "--backend", "cuda"]).assert().code(2).stderr(contains("no NVIDIA driver"));
    }
}

/// Killed at many moments, each time taken up again: the rows are those of an unbroken run.
#[test]
fn a_killed_run_resumes_to_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["stale", "01_update_before_backward", "03_weight_cache", "training_fp8", "training_grouped", "--steps", "40"];
    let (whole, killed) = (dir.path().join("whole"), dir.path().join("killed"));
    qassay().args(names).arg("--out").arg(&whole).assert().success();
    let expected = std::fs::read(whole.join("rows.csv")).unwrap();
    let (mut kills, mut pause) = (0, 20);
    while kills < 12 {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("qassay"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(names)
            .arg("--out")
            .arg(&killed)
            .args(killed.join("run.json").exists().then_some("--resume"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        // SIGKILL.
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            break;
        }
        kills += 1;
        pause = pause * 3 / 2;
    }
    assert!(kills >= 3, "{kills} kills");
    qassay().args(names).arg("--out").arg(&killed).arg("--resume").assert().success();
    assert!(std::fs::read(killed.join("rows.csv")).unwrap() == expected, "rows differ after {kills} kills");
    qassay().args(names).arg("--out").arg(&killed).assert().code(2).stderr(contains("found a run"));
    let other = [&names[..], &["--seed", "3"]].concat();
    qassay().args(other).arg("--out").arg(&killed).arg("--resume").assert().code(2).stderr(contains("seed"));
}

#[test]
fn bundles_are_audited() {
    let bundle = |name: &str| format!("data/bundles/{name}.safetensors");
    let audit = |name: &str| qassay().args(["stale", "--audit", &bundle(name)]).assert();
    for healthy in ["tensor", "row", "block_f32", "int8", "cast"] {
        audit(healthy).code(0);
    }
    audit("bug_scale_stale").code(1).stdout(
        contains("a: codes and scale_inv belong together")
            .and(contains("r of the tensor is between 1.3"))
            .and(contains("the scale_inv of a of 2 steps ago").and(contains("makes every bit of the result"))),
    );
    audit("bug_scale_transposed").code(1).stdout(contains("row of a"));
    audit("bug_block_scales_transposed").code(1).stdout(contains("no factor"));
    audit("bug_cast_truncated").code(1).stdout(contains("out: "));
    qassay().args(["stale", "--audit", "data/bundles/nothing.safetensors"]).assert().code(2);
    // What every scale and every element is said to be.
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("audit");
    qassay().args(["stale", "--audit", &bundle("bug_scale_stale"), "--out"]).arg(&out).assert().code(1);
    let scales = std::fs::read_to_string(out.join("audit.csv")).unwrap();
    let lost = std::fs::read_to_string(out.join("lost.csv")).unwrap();
    assert!(
        scales.starts_with("file,what,granularity,part,scale_inv,r_low,r_high,finding\n") && scales.lines().count() >= 4,
        "{scales}"
    );
    // Each element of the result, and of both operands.
    assert_eq!(lost.lines().count(), 1 + 24 * 32 + 24 * 256 + 32 * 256);
    let product = lost.lines().find(|l| l.contains(",product,")).unwrap();
    assert!(product.rsplit(',').next().unwrap().parse::<f64>().unwrap() != 0.0, "{product}");
}
