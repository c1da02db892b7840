//! The program as people meet it: the main job, wrong arguments, bad files, full and read-only folders, Ctrl-C.

mod common;

use common::qassay;
use predicates::prelude::*;
use predicates::str::contains;
use std::path::Path;

fn sweep(dir: &Path, text: &str) -> std::path::PathBuf {
    let path = dir.join("mine.toml");
    std::fs::write(&path, text).unwrap();
    path
}

const ONE: &str = "about = \"one\"\n[[cases]]\nname = \"one\"\nop = [\"cast\"]\nshape = [\"8x64\"]\nout = [\"te_current\"]\n";

#[test]
fn smoke_passes_and_leaves_a_whole_report() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    qassay().args(["run", "smoke", "--quiet", "--out"]).arg(&out).assert().success().stdout(contains("report: "));
    for file in
        ["rows.csv", "provenance.txt", "summary.md", "index.html", "figures/sqnr_by_recipe.svg", "figures/sqnr_by_recipe.csv"]
    {
        let size = std::fs::metadata(out.join(file)).unwrap_or_else(|e| panic!("{file}: {e}")).len();
        assert!(size > 100, "{file} holds {size} bytes");
    }
    let rows = std::fs::read_to_string(out.join("rows.csv")).unwrap();
    assert!(rows.lines().count() > 20);
    // The report can be made again from the rows alone, and is the same.
    let page = std::fs::read(out.join("index.html")).unwrap();
    qassay().arg("report").arg(&out).assert().success();
    assert!(page == std::fs::read(out.join("index.html")).unwrap(), "`report` made another page than `run`");
}

#[test]
fn the_same_rows_with_one_thread_and_with_two_and_by_each_rows_own_command() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |name: &str, jobs: &str| {
        let out = dir.path().join(name);
        qassay().args(["run", "smoke", "--quiet", "--jobs", jobs, "--seed", "5", "--out"]).arg(&out).assert().success();
        std::fs::read_to_string(out.join("rows.csv")).unwrap()
    };
    let (one, two) = (rows("one", "1"), rows("two", "2"));
    assert!(one == two, "rows.csv depends on the number of threads");
    let mut reader = csv::Reader::from_reader(one.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|h| h == name).unwrap();
    let (command, sha) = (at("command"), at("sha256"));
    for (i, row) in reader.records().map(Result::unwrap).filter(|r| !r[sha].is_empty()).enumerate().step_by(7) {
        let words: Vec<&str> = row[command].split('\'').collect();
        let [head, case, ..] = words[..] else { panic!("{}", &row[command]) };
        let out = dir.path().join(format!("again-{i}"));
        let arguments = head.trim_start_matches("qassay ").split_whitespace();
        qassay().args(arguments).arg(case).args(["--quiet", "--out"]).arg(&out).assert().success();
        let again = std::fs::read_to_string(out.join("rows.csv")).unwrap();
        let mut reader = csv::Reader::from_reader(again.as_bytes());
        let found: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(found, [row], "the row's command made another row");
    }
}

#[test]
fn json_is_one_object_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let out = qassay().args(["run", "smoke", "--json", "--out"]).arg(dir.path().join("run")).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(row["case"].is_string() && row["verdict"].is_string(), "{line}");
    }
    assert!(text.lines().count() > 20);
}

#[test]
fn mistakes_in_a_sweep_name_file_line_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    for (text, line, says) in [
        ("about = 1", "mine.toml:1", "string"),
        ("about = \"x\"\ncases = [", "mine.toml:2", ""),
        (&ONE.replace("shape", "shapes"), "mine.toml:5", "; did you mean `shape`?"),
        (&ONE.replace("\"cast\"", "\"cats\""), "mine.toml:4", "unknown op `cats`; did you mean `cast`? known: cast"),
        (&ONE.replace("8x64", "8by64"), "mine.toml:5", "MxN"),
        (&ONE.replace("cast", "gemm").replace("8x64", "8x64x0"), "mine.toml:5", "a result of nothing is judged from a bundle"),
        (&ONE.replace("te_current", "te_curent"), "mine.toml:6", "unknown recipe `te_curent`; did you mean `te_current`?"),
        (&format!("{ONE}dist = [\"norml\"]\n"), "mine.toml:7", "unknown distribution `norml`"),
        (&format!("{ONE}{}", ONE.strip_prefix("about = \"one\"\n").unwrap()), "mine.toml", "both hold the case"),
    ] {
        let path = sweep(dir.path(), text);
        let out = qassay().arg("run").arg(&path).arg("--out").arg(dir.path().join("never")).assert().code(2);
        out.stderr(contains(line).and(contains(says)));
        assert!(!dir.path().join("never").exists(), "a refused sweep left a folder");
    }
    qassay().args(["run", "standrad"]).assert().code(2).stderr(contains(
        "did you mean `standard`? known: cuda, faults, full, heldout, llm, llm_h200, origins, smoke, standard",
    ));
    // A folder that has a sweep's name, such as the one that a run wrote, is in nobody's way.
    std::fs::create_dir(dir.path().join("smoke")).unwrap();
    let mut beside = qassay();
    beside.current_dir(dir.path()).args(["run", "smoke", "--case", "nothing"]);
    beside.assert().code(2).stderr(contains("no case of smoke is 'nothing'"));
    std::fs::create_dir(dir.path().join("bundles")).unwrap();
    let mut folder = qassay();
    folder.current_dir(dir.path()).args(["run", "bundles"]);
    folder.assert().code(2).stderr(contains("found `bundles`, a folder"));
    qassay().args(["run", "smoke", "--case", "nothing"]).assert().code(2).stderr(contains("no case of smoke is 'nothing'"));
    qassay()
        .args(["run", "smoke", "--filter", "te_curent"])
        .assert()
        .code(2)
        .stderr(contains("did you mean --filter 'te_current'?"));
    let missing = "no/such/file.toml: No such file";
    qassay().args(["run", "no/such/file.toml"]).assert().code(2).stderr(contains(missing).and(contains("unknown sweep").not()));
    qassay().args(["rum"]).assert().code(2);
}

/// What could not be told is no success, whatever was found; a reader that has enough is no error of ours, and no pass.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let wrong = "data/bundles/bug_k_tail.safetensors";
    let verbs: [&[&str]; 9] = [
        &["list", "faults"],
        &["list", "recipes", "--json"],
        &["assay", wrong],
        &["plan", "smoke"],
        &["stale", "--audit", wrong],
        &["helper"],
        &["completions", "bash"],
        &["--help"],
        &["run", "--help"],
    ];
    let program = env!("CARGO_BIN_EXE_qassay");
    for verb in verbs {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = std::process::Command::new(program).args(verb).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains("standard output: No space left"), "{verb:?}: {out:?}");
    }
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let out = std::process::Command::new(program).args(["assay", wrong]).stdout(closed()).output().unwrap();
    assert!(out.status.code() == Some(141) && out.stderr.is_empty(), "{out:?}");
    // Nor does it panic where errors cannot be told either.
    let out = std::process::Command::new(program).args(["run", "smok"]).stderr(closed()).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}

#[test]
fn impossible_combinations_are_listed_as_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = sweep(dir.path(), &ONE.replace("name", "bias = [true]\nname"));
    let out = dir.path().join("run");
    qassay().arg("run").arg(&path).arg("--quiet").arg("--out").arg(&out).assert().code(3);
    assert!(std::fs::read_to_string(out.join("rows.csv")).unwrap().contains("skipped,cast has no bias"));
}

#[test]
fn a_second_run_into_a_folder_is_refused_and_the_first_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = sweep(dir.path(), ONE);
    let run = || {
        let mut command = qassay();
        command.arg("run").arg(&path).arg("--quiet").arg("--out").arg(dir.path().join("run"));
        command
    };
    run().assert().success();
    let before = std::fs::read(dir.path().join("run/rows.csv")).unwrap();
    run().assert().code(2).stderr(contains("found a run, expected a folder without one"));
    assert_eq!(before, std::fs::read(dir.path().join("run/rows.csv")).unwrap());
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    qassay().args(["run", "smoke", "--quiet", "--out"]).arg(file.join("run")).assert().code(2).stderr(contains("--out"));
    // A device without room: every write fails.
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::os::unix::fs::symlink("/dev/full", full.join("provenance.txt")).unwrap();
    qassay().args(["run", "smoke", "--quiet", "--out"]).arg(&full).assert().code(2).stderr(contains("make room"));
    assert!(std::fs::read_to_string(full.join("rows.csv")).unwrap().lines().count() > 20, "the rows were lost");
}

#[test]
fn damaged_rows_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    qassay().arg("report").arg(dir.path()).assert().code(2).stderr(contains("name the folder of a run"));
    std::fs::write(dir.path().join("rows.csv"), "a,b\n1,2\n").unwrap();
    qassay().arg("report").arg(dir.path()).assert().code(2).stderr(contains("found column `a`"));
    std::fs::write(dir.path().join("rows.csv"), [0u8, 159, 146, 150]).unwrap();
    qassay().arg("report").arg(dir.path()).assert().code(2).stderr(contains("rows.csv"));
}

#[test]
fn ctrl_c_leaves_complete_rows_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("qassay"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run", "standard", "--quiet", "--out"])
        .arg(&out)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let rows = out.join("rows.csv");
    while std::fs::read_to_string(&rows).map_or(0, |t| t.lines().count()) < 5 {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be stopped");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&done.stderr).contains("cases are complete in"));
    let text = std::fs::read_to_string(&rows).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    assert!(reader.records().all(|r| r.is_ok()), "a row is not complete");
}

#[test]
fn every_list_is_filled_and_is_json_too() {
    // Without a name it lists the lists.
    let kinds = qassay().arg("list").assert().success().get_output().stdout.clone();
    let kinds = String::from_utf8(kinds).unwrap();
    assert!(kinds.lines().any(|l| l.starts_with("recipes ") && l.contains("How scales")), "{kinds}");
    for what in ["formats", "recipes", "ops", "kernels", "metrics", "distributions", "sweeps", "models", "gates", "columns"] {
        let text = qassay().args(["list", what]).assert().success().get_output().stdout.clone();
        assert!(String::from_utf8(text).unwrap().lines().count() > 3, "{what}");
        let json = qassay().args(["list", what, "--json"]).assert().success().get_output().stdout.clone();
        let all: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
        assert!(all.iter().all(|o| o["name"].is_string()), "{what}");
    }
}

#[test]
fn completions_and_help() {
    qassay().args(["run", "--help"]).assert().success().stdout(contains("Examples:"));
    let groups = qassay().arg("--help").assert().success().get_output().stdout.clone();
    let groups = String::from_utf8(groups).unwrap();
    let places: Vec<_> =
        ["Check a kernel:", "  run ", "Explore:", "CI:", "  check ", "Cluster:", "GPU:", "Options:", "First steps:"]
            .map(|words| groups.find(words).unwrap_or_else(|| panic!("no {words} in {groups}")))
            .into();
    assert!(places.is_sorted(), "{groups}");
    // What a shell is told when the user has typed this much.
    let complete = |words: &str, last: &str| {
        let script = "source <(\"$0\" completions bash); COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                      _qassay qassay \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; echo \"${COMPREPLY[@]}\"";
        let program = assert_cmd::cargo::cargo_bin("qassay");
        let out = std::process::Command::new("bash").args(["-c", script]).arg(program).arg(words).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(said.split_whitespace().any(|w| w == last), "{words}: {said} {}", String::from_utf8_lossy(&out.stderr));
    };
    complete("qassay run sm", "smoke");
    complete("qassay check --inject stale_s", "stale_state:a.scale_inv");
    complete("qassay list recipes te_nv", "te_nvfp4");
}

/// A filter of `list` keeps whole lines, and says what was meant where it keeps none.
#[test]
fn a_list_is_filtered() {
    let lines = |words: &[&str]| {
        let out = qassay().arg("list").args(words).assert().success().get_output().stdout.clone();
        String::from_utf8(out).unwrap().lines().skip(1).map(String::from).collect::<Vec<_>>()
    };
    let all = lines(&["faults"]);
    let some = lines(&["faults", "scale_shared", "EXPERT"]);
    assert!(some.len() >= 2 && some.len() < all.len(), "{some:?}");
    assert!(some.iter().all(|l| l.starts_with("scale_shared:") && l.contains("expert")), "{some:?}");
    qassay().args(["list", "recipes", "te_curent"]).assert().code(2).stderr(contains("did you mean `te_current`?"));
}

/// What a build server reads of a run: each cause once, with the time and the command of every case.
#[test]
fn a_run_writes_junit_markdown_and_annotations() {
    let dir = tempfile::tempdir().unwrap();
    let path = sweep(dir.path(), ONE);
    let file = |name: &str| dir.path().join(name);
    let mut command = qassay();
    command.arg("run").arg(&path).args(["--quiet", "--github", "--out"]).arg(file("run"));
    command.arg("--junit").arg(file("j.xml")).arg("--markdown").arg(file("m.md"));
    command.assert().success().stdout(contains("::error").not());
    let text = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let rows = csv::Reader::from_path(file("run/rows.csv")).unwrap().records().count();
    assert_eq!(text("j.xml").matches("<testcase ").count(), rows);
    assert!(text("j.xml").contains("failures=\"0\"") && text("m.md").starts_with("## qassay: passed"), "{}", text("m.md"));
    // Two bundles of one wrong kernel, and one that cannot be read.
    std::fs::write(file("torn.safetensors"), "x").unwrap();
    let wrong = "data/bundles/bug_scale_inverted.safetensors";
    let mut command = qassay();
    command.arg("assay").args([wrong, wrong]).arg(file("torn.safetensors")).arg("--github");
    command.arg("--junit").arg(file("b.xml")).arg("--markdown").arg(file("b.md"));
    let said = command.assert().code(2).get_output().stdout.clone();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(said.matches("::error title=qassay%3A ").count(), 2, "{said}");
    assert!(said.contains("2 cases like this"), "{said}");
    assert!(text("b.xml").contains("tests=\"3\" failures=\"2\" errors=\"1\""), "{}", text("b.xml"));
    assert!(text("b.md").contains("2 cases like this") && text("b.md").contains("not read: "), "{}", text("b.md"));
}

/// The first figure: what each judge catches, and under it what it fails of right results, of this run and of `--clean`.
#[test]
fn the_page_of_power_has_caught_and_alarms_in_one_figure() {
    let dir = tempfile::tempdir().unwrap();
    let power = |more: &[&str]| {
        let mut command = qassay();
        command.args(["power", "smoke", "--filter", "gemm", "--out"]).arg(dir.path()).args(more);
        command.assert()
    };
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    power(&["--clean", "12"]).success().stdout(contains("failed 0 of 12"));
    let judges = text("clean.csv").lines().count() - 1;
    assert!(judges > 10 && text("clean.csv").starts_with("judge,right,failed\ndevice model,12,0\nbound,12,0\n"));
    power(&["--sample", "3"]).success().stdout(contains("power.html"));
    let page = text("power.html");
    let sections: Vec<&str> = page.split("<section id=\"").skip(1).filter_map(|s| s.split('"').next()).collect();
    assert_eq!(sections, ["kill_matrix", "worth", "numbers"]);
    let first = page.split("<section").nth(1).unwrap();
    assert!(first.contains("\nright results (") && first.contains("--clean: right results (12)"), "{first}");
    let data = text("figures/kill_matrix.csv");
    // The same gates, in both.
    for of in ["right results (", "--clean: right results (12),"] {
        assert_eq!(data.lines().filter(|l| l.starts_with(of)).count(), judges, "{of}");
    }
    std::fs::write(dir.path().join("clean.csv"), "judge,right,failed\nbound,1,0\n").unwrap();
    power(&["--sample", "3"]).code(2).stderr(contains("clean.csv: expected judge,right,failed of every judge"));
}

/// What `cargo install` gives, with its data and without its symbols.
#[test]
fn the_program_has_at_most_sixteen_megabytes_and_a_half() {
    let size = std::fs::metadata(env!("CARGO_BIN_EXE_qassay")).unwrap().len();
    assert!(cfg!(debug_assertions) || size <= 16_500_000, "{size} bytes");
}
