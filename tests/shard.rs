//! A run in parts, on one machine or many, joined to the run it would have been.

mod common;

use common::qassay;
use predicates::str::contains;
use std::path::{Path, PathBuf};

fn run(sweeps: &[&str], out: &Path, more: &[&str]) {
    qassay().arg("run").args(sweeps).args(["--quiet", "--out"]).arg(out).args(more).assert().success();
}

fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

#[test]
fn three_shards_joined_are_the_single_run_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let sweeps = ["smoke", "origins"];
    let selection = ["--filter", "cast/", "--seed", "3"];
    run(&sweeps, &path("single"), &selection);
    let shards: Vec<PathBuf> = (1..=3).map(|i| path(&format!("shard{i}"))).collect();
    for (i, out) in shards.iter().enumerate() {
        run(&sweeps, out, &[&selection[..], &["--shard", &format!("{}/3", i + 1)]].concat());
        assert!(read(out, "rows.csv").lines().count() > 2, "a shard is empty");
    }
    let merge = |runs: &[&PathBuf], out: &str| {
        let mut command = qassay();
        command.arg("merge").args(runs).arg("--out").arg(path(out));
        command.assert()
    };
    merge(&[&shards[2], &shards[0], &shards[1]], "whole").success().stdout(contains("rows of 3 shards"));
    for file in ["rows.csv", "run.json", "maps.csv", "figures/sqnr_by_recipe.csv"] {
        assert!(read(&path("whole"), file) == read(&path("single"), file), "{file} differs from the single run's");
    }
    // A merged folder is a run: it compares with the single one.
    qassay().arg("diff").args([path("single"), path("whole")]).assert().success().stdout(contains("no drift"));

    merge(&[&shards[0], &shards[2]], "never").code(2).stderr(contains("no run of shard 2/3"));
    merge(&[&shards[0], &shards[1], &shards[2], &shards[1]], "never").code(2).stderr(contains("shard 2/3, which is also in"));
    merge(&[&shards[0], &path("single")], "never").code(2).stderr(contains("a run without --shard"));
    merge(&[&shards[0], &shards[1], &shards[2]], "whole").code(2).stderr(contains("name a new folder"));

    // Another device, another program.
    let header = read(&shards[1], "run.json");
    for (fact, value) in [("device", "Another CPU"), ("program", "00ff")] {
        let mut facts: serde_json::Value = serde_json::from_str(&header).unwrap();
        facts[fact] = value.into();
        std::fs::write(shards[1].join("run.json"), facts.to_string()).unwrap();
        let refused = merge(&[&shards[0], &shards[1], &shards[2]], "never").code(2);
        refused.stderr(contains(fact)).stderr(contains(value)).stderr(contains("shard2"));
    }
    std::fs::write(shards[1].join("run.json"), &header).unwrap();

    // A shard that lacks a row, and one with a row of another.
    let rows = read(&shards[1], "rows.csv");
    let cut = rows[..rows.len() - 1].rfind('\n').unwrap() + 1;
    std::fs::write(shards[1].join("rows.csv"), &rows[..cut]).unwrap();
    merge(&[&shards[0], &shards[1], &shards[2]], "never").code(2).stderr(contains("no row of case")).stderr(contains("shard2"));
    let stranger = read(&shards[0], "rows.csv").lines().nth(1).unwrap().to_string() + "\n";
    std::fs::write(shards[1].join("rows.csv"), rows.clone() + &stranger).unwrap();
    merge(&[&shards[0], &shards[1], &shards[2]], "never").code(2).stderr(contains("each case in one shard"));
    assert!(!path("never").exists(), "a refused merge left a folder");
}

#[test]
fn a_plan_tells_every_shard_without_running() {
    let text = qassay().args(["plan", "standard", "--shards", "4"]).assert().success().get_output().stdout.clone();
    let text = String::from_utf8(text).unwrap();
    let column = |line: &str, i: usize| line.split_whitespace().nth(i).unwrap().parse::<f64>().unwrap();
    let shards: Vec<&str> = text.lines().filter(|l| l.contains("/4")).collect();
    assert_eq!(shards.len(), 4);
    let whole = qassay().args(["plan", "standard"]).assert().success().get_output().stdout.clone();
    let whole = String::from_utf8(whole).unwrap();
    let all = whole.lines().find(|l| l.starts_with("1/1")).unwrap();
    assert_eq!(shards.iter().map(|l| column(l, 1)).sum::<f64>(), column(all, 1));
    // Equal cost within a tenth.
    let seconds = |l: &str| column(l, 6);
    let (least, most) = (seconds(shards[0]), shards.iter().map(|l| seconds(l)).fold(0.0, f64::max));
    assert!(most <= 1.1 * least + 0.2, "{text}");
    qassay().args(["run", "smoke", "--shard", "3/2"]).assert().code(2).stderr(contains("such as 2/4"));
}
