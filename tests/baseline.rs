//! The drift gate: accept, check, diff, and their outputs.

mod common;
#[path = "common/kept.rs"]
mod kept;

use common::qassay;
use kept::Kept;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use std::path::Path;

fn run(out: &Path, more: &[&str]) {
    qassay().args(["run", "smoke", "--quiet", "--out"]).arg(out).args(more).assert().success();
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else {
            found.push((entry.clone(), std::fs::read(&entry).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn what_was_accepted_passes_and_every_change_of_it_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (run_folder, baselines) = (dir.path().join("run"), dir.path().join("baselines"));
    run(&run_folder, &[]);
    let check = || {
        let mut command = qassay();
        command.args(["check", "smoke", "--quiet", "--baselines"]).arg(&baselines);
        command
    };
    check().assert().code(2).stderr(contains("there is no baseline of this sweep"));
    qassay().args(["check", "smok"]).assert().code(2).stderr(contains("unknown sweep `smok`; did you mean `smoke`?"));
    let accept = |more: &[&str]| {
        let mut command = qassay();
        command.arg("accept").arg(&run_folder).arg("--baselines").arg(&baselines).args(more);
        command.assert()
    };
    accept(&[]).code(2).stderr(contains("no baseline of smoke to replace").and(contains("--new")));
    assert!(!baselines.exists());
    accept(&["--new"]).success();
    accept(&[]).success();
    let csv = baselines.join("cpu/smoke.csv");
    let accepted = std::fs::read_to_string(&csv).unwrap();
    assert!(accepted.lines().next().unwrap().starts_with("case,op,kernel,device,verdict,sha256"));
    let before = files(&baselines);
    check().assert().success().stdout(contains("no drift"));

    // What a changed kernel, a new case, a case that is gone and a damaged file look like from here.
    let mut lines: Vec<String> = accepted.lines().map(String::from).collect();
    let ran = lines.iter().position(|l| l.contains(",pass,")).unwrap();
    let case = lines[ran].split(',').next().unwrap().to_string();
    let whole = lines.clone();
    let expect = |lines: &[String], says: &str| {
        std::fs::write(&csv, lines.join("\n") + "\n").unwrap();
        let held = files(&baselines);
        check().assert().code(1).stdout(contains(says)).stdout(contains(&case));
        assert!(held == files(&baselines), "check wrote to the baseline");
    };
    let fields: Vec<&str> = whole[ran].split(',').collect();
    let sha = fields.iter().find(|f| f.len() == 64 && f.chars().all(|c| c.is_ascii_hexdigit())).unwrap().to_string();
    lines[ran] = whole[ran].replace(&sha, &"0".repeat(64));
    expect(&lines, "other bits");
    lines[ran] = whole[ran].replace(",pass,", ",fail,");
    expect(&lines, "verdict fail → pass");
    lines.remove(ran);
    expect(&lines, "new");
    lines = whole.clone();
    lines.push(whole[ran].replacen(&case, &format!("{case}/gone"), 1));
    expect(&lines, "missing");
    std::fs::write(&csv, "case,sha256\nx,y\n").unwrap();
    check().assert().code(2).stderr(contains("found the columns case,sha256"));
    std::fs::write(&csv, accepted).unwrap();
    assert!(before == files(&baselines));
}

#[test]
fn a_part_of_a_run_is_no_truth() {
    let dir = tempfile::tempdir().unwrap();
    let baselines = dir.path().join("baselines");
    let refused = |out: &str, says: &str| {
        let mut command = qassay();
        command.arg("accept").arg(dir.path().join(out)).arg("--baselines").arg(&baselines);
        command.assert().code(2).stderr(contains(says));
        assert!(!baselines.exists());
    };
    run(&dir.path().join("filtered"), &["--filter", "cast"]);
    refused("filtered", "without --filter");
    run(&dir.path().join("shard"), &["--shard", "1/2"]);
    refused("shard", "without --filter, --case and --shard");
    let whole = dir.path().join("cut");
    run(&whole, &[]);
    let rows = std::fs::read_to_string(whole.join("rows.csv")).unwrap();
    let cut = rows[..rows.len() - 1].rfind('\n').unwrap() + 1;
    std::fs::write(whole.join("rows.csv"), &rows[..cut]).unwrap();
    refused("cut", "a complete run");
    refused("nothing", "name the folder of a run");
}

#[test]
fn two_runs_differ_where_their_data_does_and_every_output_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    run(&path("a"), &[]);
    run(&path("b"), &["--filter", "cast"]);
    qassay().arg("diff").args([path("a"), path("a")]).assert().success().stdout(contains("no drift"));
    let mut command = qassay();
    command.arg("diff").args([path("a"), path("b")]);
    for (flag, file) in [("--markdown", "d.md"), ("--junit", "d.xml"), ("--jsonl", "d.jsonl"), ("--html", "d.html")] {
        command.arg(flag).arg(path(file));
    }
    command.arg("--github");
    let said = contains("missing").and(contains("filter: [] → [\"cast\"]")).and(contains("::error title=qassay%3A missing::"));
    command.assert().code(1).stdout(said);
    let text = |file: &str| std::fs::read_to_string(path(file)).unwrap();
    let rows = |run: &str| csv::Reader::from_path(path(run).join("rows.csv")).unwrap().records().count();
    let (all, some) = (rows("a"), rows("b"));
    assert!(some < all);
    assert_eq!(text("d.jsonl").lines().count(), all);
    assert_eq!(text("d.jsonl").matches("\"change\":\"missing\"").count(), all - some);
    assert!(text("d.xml").contains(&format!("<testsuites name=\"qassay\" tests=\"{all}\" failures=\"{}\"", all - some)));
    assert_eq!(text("d.xml").matches("<failure ").count(), all - some);
    assert!(text("d.md").contains("| missing | ") && text("d.html").contains("<td data-of=\"change\">missing</td>"));
}

/// A product by rows and a cast with a transposed copy: small, as each change is diagnosed in both.
const CHANGED: &str = r#"
about = "What changes of real kernels are tried on."

[[cases]]
name = "linear"
op = ["gemm"]
shape = ["9x20x128"]
recipe = ["float8_rowwise_gw_hp"]
accumulator = ["f32_pairwise"]
out = ["f32"]

[[cases]]
name = "copies"
op = ["cast_transpose"]
shape = ["17x129"]
out = ["scaled:e4m3"]
"#;

/// Five small changes of real kernels, each as one edit would make it: the gate sees every one, and says what it is where it can.
#[test]
fn changes_of_real_kernels_are_caught() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, baselines, sweep) = (dir.path().join("run"), dir.path().join("baselines"), dir.path().join("changes.toml"));
    std::fs::write(&sweep, CHANGED).unwrap();
    qassay().arg("run").arg(&sweep).args(["--quiet", "--out"]).arg(&folder).assert().success();
    qassay().arg("accept").arg("--new").arg(&folder).arg("--baselines").arg(&baselines).assert().success();
    let check = |change: &str| {
        let mut command = qassay();
        command.arg("check").arg(&sweep).args(["--quiet", "--baselines"]).arg(&baselines).args(["--inject", change]);
        command
    };
    let changes = [
        ("accumulator=exact", "the roundings of a sum dropped", "accumulator exact"),
        ("scale_rerounded:b.bf16", "scales kept in bf16", "the scales of b are rounded to bf16"),
        ("accumulator=f32_sequential", "another order of summation", "the new bits are those of accumulator"),
        ("rounding:out.toward_zero", "truncation for round to nearest", "worse"),
        ("stale_state:transpose", "a transposed copy of an earlier step", "a side output did"),
    ];
    for (change, what, says) in changes {
        let made = check(change).output().unwrap();
        // Lines are wrapped.
        let text = String::from_utf8_lossy(&made.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(made.status.code() == Some(1) && text.contains(says), "{what} ({change}): {text}");
    }
    check("rounding:out.sideways").assert().code(2).stderr(contains("unknown fault"));
}

/// The words of a page's cells, one a line.
fn words(page: &str) -> Vec<String> {
    let cells = page.split("<td").skip(1).filter_map(|c| c.split_once('>')?.1.split("</td>").next());
    cells.map(|c| c.split('<').map(|t| t.split_once('>').map_or(t, |t| t.1)).collect::<String>()).collect()
}

#[test]
fn the_history_names_the_cause_of_each_changed_digest() {
    let kept = Kept::new();
    run(&kept.at("first"), &[]);
    kept.accept("first", "the first");
    let page = kept.page();
    assert!(page.contains("No accepted bit has changed") && words(&page)[0].starts_with("first: "), "{:?}", words(&page));

    // A change of real kernels.
    let mut command = qassay();
    command.args(["check", "smoke", "--quiet", "--inject", "accumulator=f32_sequential", "--out"]).arg(kept.at("other"));
    command.arg("--baselines").arg(kept.baselines()).assert().code(1);
    kept.accept("other", "another order of summation");
    let page = kept.page();
    assert!(words(&page)[1].ends_with(": kernel"), "{:?}", words(&page));
    assert!(page.contains("injected fault none → accumulator=f32_sequential") && page.contains("another order of summation"));

    // One case, one fact: as another compiler, another library, another split of K would leave them.
    let rows = std::fs::read_to_string(kept.at("first").join("rows.csv")).unwrap();
    let case =
        rows.lines().filter(|l| l.contains(",pass,")).find_map(|l| l.split(',').find(|c| c.starts_with("gemm/"))).unwrap();
    let (one, two, shown) = ("1".repeat(64), "2".repeat(64), case.replace('>', "&gt;"));
    kept.changed("first", "compiled", &[("compiler", "rustc 9.99.9")], case, &[("sha256", &one)]);
    kept.changed("first", "split_1", &[], case, &[("sha256", &one), ("algorithm", "id=66 split_k=1")]);
    kept.changed("first", "split_4", &[], case, &[("sha256", &two), ("algorithm", "id=66 split_k=4")]);
    kept.changed("first", "odd", &[], case, &[("sha256", &two)]);
    for (before, after, cause, what) in [
        ("first", "compiled", "compiler", "→ rustc 9.99.9"),
        ("split_1", "split_4", "split of K", "split_k=1 → split_k=4"),
        ("first", "odd", "nothing recorded", "does not return the same bits every time"),
    ] {
        kept.accept(before, before);
        let cells = words(&kept.page()).len();
        kept.accept(after, after);
        let page = kept.page();
        let cell = words(&page).into_iter().rfind(|c| c.contains(" of ")).unwrap();
        assert!(cell.starts_with("1 case of ") && cell.ends_with(&format!(": {cause}")), "{after}: {cell}");
        assert!(page.contains(what) && page.contains(&shown) && words(&page).len() > cells, "{after}");
    }

    // Another machine beside it, not committed.
    kept.changed(
        "first",
        "gpu",
        &[("backend", "cuda"), ("device", "NVIDIA H200")],
        case,
        &[("sha256", &one), ("kernel", "cuda/x")],
    );
    kept.accept_alone("gpu");
    let page = kept.page();
    assert!(page.contains("not committed") && page.contains("cuda-nvidia-h200/smoke"));
    assert!(page.contains("→ cuda/x"), "the machines are compared");
    let mut command = qassay();
    command.args(["history", "nothing", "--html"]).arg(kept.at("h.html")).arg("--baselines").arg(kept.baselines());
    command.assert().code(2).stderr(contains("no baseline of nothing"));
    let nowhere = tempfile::tempdir().unwrap();
    qassay().arg("history").current_dir(nowhere.path()).assert().code(2).stderr(contains("no baselines here"));
}
