//! Who judges changes no bit: cases that a GPU ran, with inputs, references and device models made by the GPU and made by the CPU, give the same
//! `rows.csv` to the byte. Release builds on a machine with a GPU; elsewhere `devices` says that there is none, and there is nothing to hold.
//! `QASSAY` names another program to run.
#![cfg(all(not(debug_assertions), feature = "cuda"))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Large enough for the GPU: every distribution that it draws and one that it does not; scales of a tensor, of rows, of blocks, the last of them short; a
/// bias; FP8 results; experts, some without rows; tokens; integers.
const PRODUCTS: &str = r#"about = "who judges products"
[[cases]]
name = "tensor and rows"
op = ["gemm"]
shape = ["1100x1000x1104"]
recipe = ["te_current", "float8_rowwise"]
dist = ["normal", "normal_iid", "uniform", "log_normal", "student_t", "outlier_channels", "shifted"]
accumulator = ["hopper_wgmma", "hopper_wgmma@128"]
[[cases]]
name = "blocks"
op = ["gemm"]
shape = ["1100x1000x1104"]
recipe = ["te_block_1x128+te_block_128x128", "te_block_1x128", "te_block_1x128_fp32+te_block_128x128_fp32", "te_block_1x128_fp32"]
dist = ["normal", "student_t"]
accumulator = ["hopper_wgmma@128+scales_first"]
[[cases]]
name = "bias"
op = ["gemm"]
shape = ["1024x768x640"]
recipe = ["te_current", "te_block_1x128_fp32+te_block_128x128_fp32", "te_block_1x128_fp32"]
dist = ["outlier_channels"]
bias = [true]
dtype = ["f16"]
accumulator = ["hopper_wgmma@128", "hopper_wgmma"]
out = ["f32", "f16"]
[[cases]]
name = "codes"
op = ["gemm"]
shape = ["1100x1008x1104"]
recipe = ["te_current", "float8_rowwise", "te_block_1x128_fp32+te_block_128x128_fp32"]
dist = ["normal", "student_t"]
bias = [true, false]
accumulator = ["hopper_wgmma@128"]
out = ["scaled:e4m3", "scaled:e5m2"]
[[cases]]
name = "experts"
op = ["grouped_gemm", "grouped_gemm_dgrad", "grouped_gemm_wgrad"]
shape = ["768x640"]
rows = ["300,0,513,1,210", "512,512"]
recipe = ["float8_rowwise", "te_current"]
dist = ["outlier_channels"]
accumulator = ["hopper_wgmma", "hopper_wgmma@128"]
out = ["bf16"]
[[cases]]
name = "integers"
op = ["gemm"]
shape = ["1000x1032x416"]
dtype = ["f16"]
recipe = [
  "int8_token_sym+affine_sym:int4", "int8_token_sym+affine_sym:int4:g32", "int8_token_asym+affine_asym:int4:g128", "int8_token_sym+affine_asym:uint4:g256",
]
dist = ["normal"]
bias = [false, true]
accumulator = ["int32"]
out = ["f16"]
"#;

/// The same of cuBLASLt: where it splits K too, a bias, FP8 results.
const VENDOR: &str = r#"about = "who judges cuBLASLt"
[[cases]]
name = "vendor"
op = ["gemm"]
shape = ["1024x768x640", "192x256x8192"]
recipe = ["te_current", "float8_rowwise", "te_block_1x128_fp32+te_block_128x128_fp32", "te_block_1x128_fp32"]
dist = ["outlier_channels"]
accumulator = ["hopper_wgmma", "hopper_wgmma@128"]
[[cases]]
name = "vendor, bias and codes"
op = ["gemm"]
shape = ["1024x768x640"]
recipe = ["te_current"]
dist = ["normal"]
accumulator = ["hopper_wgmma", "hopper_wgmma@128"]
bias = [true]
out = ["bf16", "scaled:e4m3"]
[[cases]]
name = "vendor, integers"
op = ["gemm"]
shape = ["1024x768x640"]
recipe = ["int8_token_sym"]
accumulator = ["int32"]
out = ["bf16", "f32"]
"#;

const CASTS: &str = r#"about = "who judges casts"
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

/// The rows of a sweep, and how many of them were judged on the GPU.
fn rows(sweep: &str, backend: &str, judge: &str, folder: &Path) -> (Vec<u8>, usize) {
    let out = folder.join(judge);
    let run = Command::new(program())
        .args(["run", sweep, "--backend", backend, "--quiet", "--judge", judge, "--out"])
        .arg(&out)
        .env("QASSAY_LOG", "debug")
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}{log}", String::from_utf8_lossy(&run.stdout));
    // The draw, the product or the model of the GPU had other bits than the CPU's, or failed.
    assert!(!log.contains("CPU"), "{log}");
    (std::fs::read(out.join("rows.csv")).unwrap(), log.matches("judged where it ran").count())
}

#[test]
fn the_gpu_judges_to_the_bits_of_the_cpu() {
    if !Command::new(program()).arg("devices").output().unwrap().status.success() {
        println!("no GPU here: nothing is held");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sweeps = [
        ("smoke", "", "cuda", 0),
        ("products", PRODUCTS, "cuda", 104),
        ("casts", CASTS, "cuda", 6),
        ("vendor", VENDOR, "vendor", 22),
    ];
    for (name, text, backend, at_least) in sweeps {
        let at = folder.path().join(name);
        let file = folder.path().join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        let sweep = if text.is_empty() { name } else { file.to_str().unwrap() };
        let ((gpu, there), (cpu, none)) = (rows(sweep, backend, "gpu", &at), rows(sweep, backend, "cpu", &at));
        assert!(
            there >= at_least && none == 0,
            "{name}: {there} cases were judged on the GPU, and {none} where none should be"
        );
        assert!(gpu == cpu, "{name}: the rows differ");
    }
}
