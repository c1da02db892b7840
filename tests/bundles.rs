//! Bundles as people write them from Python (tests/bundles.py): what `qassay assay` says of healthy ones of every kind and edge, and of the
//! same with a bug. No false alarm on what is right is the first law.

mod common;

use common::qassay;
use predicates::str::contains;
use std::path::Path;
use std::process::Command;

struct Expected {
    file: String,
    verdicts: Vec<String>,
    /// Classes, or faults, that the first diagnosis may have; empty: any, or none.
    faults: Vec<String>,
}

fn written(folder: &Path) -> Vec<Expected> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join(".venv/bin/python");
    assert!(python.exists(), "{} is not there: run scripts/setup.sh", python.display());
    let made = Command::new(python).arg(root.join("tests/bundles.py")).arg(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let one = |line: &str| {
        let e: serde_json::Value = serde_json::from_str(line).unwrap();
        let words = |k: &str| e[k].as_str().unwrap().split('|').filter(|w| !w.is_empty()).map(String::from).collect();
        Expected { file: e["file"].as_str().unwrap().into(), verdicts: words("verdict"), faults: words("fault") }
    };
    String::from_utf8(made.stdout).unwrap().lines().map(one).collect()
}

#[test]
fn what_is_right_passes_and_what_is_wrong_fails_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let expected = written(folder.path());
    let healthy = expected.iter().filter(|e| !e.verdicts.contains(&"fail".into())).count();
    assert!(healthy >= 80 && expected.len() - healthy >= 30, "{healthy} of {}", expected.len());
    let output =
        qassay().args(["assay", "--json"]).args(expected.iter().map(|e| &e.file)).assert().code(1).get_output().clone();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), expected.len(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut wrong = Vec::new();
    for (e, found) in expected.iter().zip(&lines) {
        assert_eq!(found["file"], e.file.as_str());
        let verdict = found["verdict"].as_str().unwrap().to_string();
        let fault = found["diagnosis"][0]["fault"].as_str().unwrap_or_default().to_string();
        let whole = found["diagnosis"][0]["variant"].as_str().unwrap_or_default().to_string();
        // Of a solved index map the class is asked: its variant is a formula.
        let class = |f: &String| f.split(':').next() == whole.split(':').next() && whole.ends_with(".index");
        let named = e.faults.is_empty() || e.faults.contains(&fault) || e.faults.contains(&whole) || e.faults.iter().any(class);
        // Smaller than what the coarsest tensor core may truncate (13 bits kept of FP8 products): nobody can tell without a device.
        let coarse = [
            "bug_weights_to_f16",
            "bug_truncated_out",
            "bug_dequantized_to_bf16",
            "bug_f16_accumulation",
            "bug_f16_accumulation_fused",
        ];
        if coarse.iter().any(|f| e.file.contains(f)) {
            assert_eq!((verdict.as_str(), &found["diagnosis"]), ("pass", &serde_json::json!([])), "{}", e.file);
            continue;
        }
        // Without a device nothing but the size of the errors may tell: suspect, with the reason, and not named.
        let doubted = found["reason"].as_str().is_some_and(|r| r.contains("larger than any right arithmetic makes"));
        if !(e.verdicts.contains(&verdict) && named || doubted && e.verdicts.contains(&"fail".into())) {
            wrong
                .push(format!("{}: {verdict}, {whole}: {}; expected {:?} {:?}", e.file, found["reason"], e.verdicts, e.faults));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // Other formulas are named, each with what the metadata should have said.
    let reason = |name: &str| {
        let at = expected.iter().position(|e| e.file.ends_with(&format!("/{name}.safetensors"))).unwrap();
        lines[at]["reason"].as_str().unwrap().to_string()
    };
    for (name, words) in [
        ("bug_gelu_erf", "gelu by the error function"),
        ("bug_gelu_tanh", "gelu by its tanh approximation"),
        ("bug_swiglu_unclamped", "neither x nor the gate is clamped at 7"),
        ("bug_swiglu_limit", "the limit is 7, not 5"),
        ("bug_gate_swapped", "[gate | x]"),
        ("bug_swiglu_rounded_between", "is rounded to bf16 before it meets the gate"),
        ("bug_layernorm_eps", "`eps` = 1e-2, not 1e-5"),
        ("bug_rmsnorm_eps", "`eps` = 1e-6, not 1e-5"),
    ] {
        assert!(reason(name).contains(words), "{name}: {}", reason(name));
    }

    // Exit status.
    let named = |name: &str| folder.path().join(format!("{name}.safetensors"));
    qassay().arg("assay").arg(named("tensor_bf16")).assert().code(0).stdout(contains("PASS"));
    qassay().arg("assay").args([named("tensor_bf16"), named("edge_zeros")]).assert().code(3).stdout(contains("NO_POWER"));
    qassay().arg("assay").args([named("edge_zeros"), named("bug_zeros")]).assert().code(1);
    // A suspect is a pass in its line, and no pass to rely on.
    let doubtful = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/exams/t052.safetensors");
    qassay().arg("assay").arg(&doubtful).assert().code(3).stdout(contains("SUSPECT"));
    qassay().args(["assay", "--json"]).arg(&doubtful).assert().code(3).stdout(contains(r#""verdict":"pass""#));
    let broken = folder.path().join("broken.safetensors");
    std::fs::write(&broken, b"not a bundle").unwrap();
    // The others are judged all the same.
    let both = qassay().arg("assay").args([broken.clone(), named("bug_zeros")]).assert().code(2);
    both.stdout(contains("FAIL")).stderr(contains("broken.safetensors"));
    qassay().arg("assay").assert().code(2);
    let page = folder.path().join("page.html");
    qassay().args(["assay", "--html"]).arg(&page).args([named("bug_zeros"), named("cast")]).assert().code(1);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("bug_zeros") && html.contains("silent_skip"));
}
