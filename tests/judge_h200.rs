//! Who judges changes no bit: cases that a GPU ran, with inputs, references and device models made by the GPU and made by the CPU, give the same
//! `rows.csv` to the byte. Release builds on a machine with a GPU; elsewhere `devices` says that there is none, and there is nothing to hold.
//! `QASSAY` names another program to run.
#![cfg(all(not(debug_assertions), feature = "cuda"))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Large enough for the GPU: every distribution that it draws and one that it does not; scales of a tensor, of rows, of blocks; bias, FP8 output.
const LARGE: &str = r#"about = "who judges"
[[cases]]
name = "tensor and rows"
op = ["gemm"]
shape = ["1024x1536x1152", "1100x1000x1280"]
recipe = ["te_current", "float8_rowwise", "te_block_1x128+te_block_128x128", "te_block_1x128"]
dist = ["normal", "normal_iid", "uniform", "log_normal", "student_t", "outlier_channels", "shifted"]
accumulator = ["hopper_wgmma", "hopper_wgmma@128"]
out = ["bf16"]
[[cases]]
name = "bias and codes"
op = ["gemm"]
shape = ["1024x1024x1024"]
recipe = ["te_current"]
bias = [false, true]
dtype = ["f16", "f32"]
accumulator = ["hopper_wgmma"]
out = ["f32", "f16", "scaled:e4m3"]
[[cases]]
name = "casts"
op = ["cast"]
shape = ["1500x1024"]
out = ["te_current", "te_block_1x128", "scaled:e4m3"]
dist = ["normal", "student_t", "sparse"]
"#;

fn program() -> PathBuf {
    std::env::var_os("QASSAY").map_or_else(|| env!("CARGO_BIN_EXE_qassay").into(), PathBuf::from)
}

fn rows(sweep: &str, judge: &str, folder: &Path) -> Vec<u8> {
    let out = folder.join(judge);
    let run = Command::new(program())
        .args(["run", sweep, "--backend", "cuda", "--quiet", "--judge", judge, "--out"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    // The draw, the product or the model of the GPU had other bits than the CPU's, or failed.
    assert!(!String::from_utf8_lossy(&run.stderr).contains("CPU"), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(out.join("rows.csv")).unwrap()
}

#[test]
fn the_gpu_judges_to_the_bits_of_the_cpu() {
    if !Command::new(program()).arg("devices").output().unwrap().status.success() {
        println!("no GPU here: nothing is held");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.toml");
    std::fs::write(&large, LARGE).unwrap();
    for sweep in ["smoke", large.to_str().unwrap()] {
        let at = folder.path().join(if sweep == "smoke" { "smoke" } else { "large" });
        let (gpu, cpu) = (rows(sweep, "gpu", &at), rows(sweep, "cpu", &at));
        assert!(gpu.iter().filter(|b| **b == b'\n').count() > 50, "{sweep}");
        assert!(gpu == cpu, "{sweep}: the rows differ");
    }
}
