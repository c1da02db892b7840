//! What an H200 returned for the cases of the sweeps, replayed on the CPU: `data/golden/h200/cases-*.csv`, made by `qassay record`.
//! Release builds only: the models compute billions of products.
#![cfg(all(not(debug_assertions), feature = "cuda"))]

use qassay::compare::Verdict;
use qassay::kernel::{Backend, cuda, vendor};
use qassay::sweep::record::{Replay, replay};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/h200")
}

#[test]
fn every_case_of_our_kernels_is_predicted_to_the_bit_or_within_the_boundary_rule() {
    all_sound(replay(&folder(), Backend::Cuda, cuda::KERNELS).unwrap(), 300);
}

#[test]
fn every_case_of_cublaslt_is_predicted_to_the_bit() {
    all_sound(replay(&folder(), Backend::Vendor, vendor::KERNELS).unwrap(), 50);
}

/// At least `least` cases to the bit, no other bits, no output out of bounds.
fn all_sound(replayed: Vec<(String, String, Replay)>, least: usize) {
    let count = |what: fn(&Replay) -> bool| replayed.iter().filter(|(.., r)| what(r)).count();
    let predicted = count(|r| *r == Replay::Predicted);
    let judged = count(|r| matches!(r, Replay::Judged(_)));
    let digests = count(|r| *r == Replay::DigestOnly);
    println!("{predicted} cases predicted to the bit, {judged} kept outputs judged, {digests} with a digest only");
    let sound = |r: &Replay| match r {
        Replay::Differs => false,
        Replay::Judged(v) => matches!(v, Verdict::Pass | Verdict::NoPower | Verdict::Suspect),
        _ => true,
    };
    let odd: Vec<_> = replayed.iter().filter(|(.., r)| !sound(r)).collect();
    assert!(odd.is_empty(), "{odd:#?}");
    assert!(predicted >= least, "{predicted}");
}

#[test]
fn another_digest_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["cases-cuda.csv", "cases-cuda.safetensors", "cases-cuda.json"] {
        std::fs::copy(folder().join(file), dir.path().join(file)).unwrap();
    }
    let path = dir.path().join("cases-cuda.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    let few: Vec<&str> = text.lines().take(3).collect();
    // One hexadecimal digit of the second case.
    let last = few[2].chars().last().unwrap();
    let other = few[2][..few[2].len() - 1].to_string() + if last == '0' { "1" } else { "0" };
    std::fs::write(&path, [few[0], few[1], other.as_str(), ""].join("\n")).unwrap();
    let replayed: Vec<Replay> = replay(dir.path(), Backend::Cuda, cuda::KERNELS).unwrap().into_iter().map(|(.., r)| r).collect();
    assert_eq!(replayed, [Replay::Predicted, Replay::Differs]);
}
