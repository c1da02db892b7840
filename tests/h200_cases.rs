//! What an H200 returned for the cases of sweeps, replayed on the CPU: `data/golden/h200/cases-*.csv`, written by `qassay record`, against
//! what each kernel must return, bit for bit; where libm is in the result, the kept output against its boundaries. Release builds only, and
//! the cases that take a core a blink: the others are compared when the sweep runs on a GPU.
#![cfg(all(not(debug_assertions), feature = "cuda"))]

use qassay::compare::Verdict;
use qassay::kernel::{Backend, Kernel, cuda, vendor};
use qassay::run::plan;
use qassay::run::record::{Replay, replay};
use qassay::sweep::Case;
use std::collections::BTreeMap;
use std::path::Path;

/// Replays the cases of a record that are planned to take a core `seconds` at most: how many were predicted, judged, kept as a digest alone, by
/// kernel. Not those whose data holds NaN: its sign and payload are the hardware's own, and a digest is of every bit.
fn replayed(backend: Backend, kernels: &[&'static dyn Kernel], seconds: f64) -> BTreeMap<String, [usize; 3]> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/h200");
    let mut sums: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut odd = Vec::new();
    let wanted = |case: &Case| plan::seconds(case) < seconds && !case.id().contains("/non_finite/");
    for (case, kernel, outcome) in replay(&folder, backend, kernels, wanted).unwrap() {
        let sum = sums.entry(kernel).or_default();
        match outcome {
            Replay::Predicted => sum[0] += 1,
            Replay::Judged(Verdict::Pass | Verdict::NoPower) => sum[1] += 1,
            Replay::DigestOnly => sum[2] += 1,
            outcome => odd.push(format!("{outcome:?}: {case}")),
        }
    }
    println!("{sums:#?}");
    assert!(odd.is_empty(), "{} cases: {odd:#?}", odd.len());
    sums
}

#[test]
fn our_kernels_returned_what_their_models_predict() {
    let sums = replayed(Backend::Cuda, cuda::KERNELS, 0.012);
    for kernel in cuda::KERNELS {
        let [predicted, judged, _] = sums.get(kernel.spec().name).copied().unwrap_or_default();
        assert!(predicted + judged > 0, "{}: nothing of it is replayed", kernel.spec().name);
    }
}

#[test]
fn cublaslt_returned_what_the_model_of_its_algorithm_predicts() {
    let sums = replayed(Backend::Vendor, vendor::KERNELS, 0.5);
    assert!(sums.values().map(|s| s[0]).sum::<usize>() >= 20, "{sums:?}");
}
