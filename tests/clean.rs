//! Right results made by numpy (tests/clean/, which shares nothing with the judge): none fails, none is refused.

use std::path::Path;
use std::process::Command;

/// 20,000 results of fixed seeds. Suspects: one of a million would be many for a sentence that says one of 10⁹.
#[test]
fn no_right_result_fails() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join(".venv/bin/python");
    assert!(python.exists(), "{} is not there: run scripts/setup.sh", python.display());
    let run = Command::new(python)
        .arg(root.join("tests/clean/run.py"))
        .args(["--seed", "20261122", "--count", "20000", "--jobs", "2", "--seconds", "170", "--qassay"])
        .arg(env!("CARGO_BIN_EXE_qassay"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    println!("{said}");
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    let judged: usize = said.lines().last().and_then(|l| l.split(' ').next()).and_then(|n| n.parse().ok()).unwrap();
    assert!(judged >= 20_000, "{judged} results in the time there was");
}
