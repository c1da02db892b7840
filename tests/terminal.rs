//! What a terminal shows and a pipe does not: colours, and how far a run is.

mod common;

use common::qassay;
use std::process::{Command, Stdio};

const WRONG: &str = "assay data/bundles/bug_scale_inverted.safetensors";

/// What the program writes to a terminal; `None` where there is no `script` to make one.
fn in_terminal(arguments: &str, environment: &[(&str, &str)]) -> Option<String> {
    let program = format!("{} {arguments}", env!("CARGO_BIN_EXE_qassay"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &program, "/dev/null"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color").envs(environment.iter().copied()).stdin(Stdio::null());
    let Ok(out) = command.output() else {
        eprintln!("SKIPPED: no `script` on this machine to make a terminal with");
        return None;
    };
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Both streams of the program in pipes: no letter that moves a cursor or colours.
fn in_pipes(arguments: &str, status: i32) -> String {
    let out = qassay().args(arguments.split(' ')).env_remove("NO_COLOR").env("TERM", "xterm-256color").output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(status), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    text
}

#[test]
fn verdicts_have_a_colour_where_it_can_be_seen_and_is_wanted() {
    assert!(in_pipes(WRONG, 1).starts_with("FAIL  "));
    if let Some(text) = in_terminal(WRONG, &[]) {
        assert!(text.contains("\u{1b}[31m") && text.contains("FAIL"), "{text:?}");
    }
    if let Some(text) = in_terminal(WRONG, &[("NO_COLOR", "1")]) {
        assert!(text.starts_with("FAIL  ") && !text.contains('\u{1b}'), "{text:?}");
    }
}

/// Sentences too: only a command, which is copied, and the name of a case may be longer.
#[test]
fn a_run_fits_a_terminal_of_eighty_characters() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // `script` gives its own size to the program: a shell sets that of 80 columns first.
    let program = env!("CARGO_BIN_EXE_qassay");
    let command = format!("stty cols 80 rows 40; {program} run smoke --quiet --out {}", out.display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let Ok(done) = script.env("TERM", "xterm-256color").stdin(Stdio::null()).output() else {
        eprintln!("SKIPPED: no `script` on this machine to make a terminal with");
        return;
    };
    let text = String::from_utf8_lossy(&done.stdout).replace('\r', "");
    let long: Vec<&str> = text.lines().filter(|l| !l.starts_with("report: ") && l.chars().count() > 80).collect();
    assert!(text.contains("94 cases in") && long.is_empty(), "{long:?} in {text}");
}

#[test]
fn a_log_in_a_pipe_has_no_colour() {
    let dir = tempfile::tempdir().unwrap();
    let run = format!("run smoke --filter cast --quiet --out {}", dir.path().join("run").display());
    in_pipes(&run, 0);
    let rows = dir.path().join("run/rows.csv");
    let text = std::fs::read_to_string(&rows).unwrap();
    std::fs::write(&rows, &text[..text.len() - 9]).unwrap();
    let said = in_pipes(&format!("{run} --resume"), 0);
    assert!(said.contains("a torn one after them"), "{said}");
}

#[test]
fn what_takes_longer_than_two_seconds_says_how_far_it_is_in_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str| format!("run standard --jobs 1 --budget 4s --out {}", dir.path().join(name).display());
    in_pipes(&run("pipe"), 4);
    let Some(text) = in_terminal(&run("terminal"), &[]) else { return };
    assert!(text.contains("/2145 cases") && text.contains(" left"), "{text:?}");
    let Some(text) = in_terminal(&format!("{} --quiet", run("quiet")), &[]) else { return };
    assert!(!text.contains("/2145 cases"), "{text:?}");
}
