//! Results of nothing, as frameworks call for them.

use super::answer::{json, row, text};
use super::assay::{Answer, assay};
use super::*;
use crate::compare::Verdict;
use crate::recipe::Recipe;

fn judged(w: &Writer) -> (Bundle, Answer) {
    let bundle = Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap();
    let found = assay(&bundle).unwrap();
    (bundle, found)
}

fn refused(w: &Writer) -> String {
    Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap_err().to_string()
}

/// FP8 codes by rows, bf16 result of this value.
fn gemm(m: usize, n: usize, k: usize, value: u16) -> Writer {
    let mut w = Writer::new("gemm");
    for (x, rows) in [("a", m), ("b", n)] {
        w.raw(&format!("{x}.codes"), Dtype::F8_E4M3, &[rows, k], vec![0x38; rows * k]);
        w.meta(&format!("{x}.granularity"), "row").f32s(&format!("{x}.scale_inv"), &[rows], &vec![0.5; rows]);
    }
    w.raw("out", Dtype::BF16, &[m, n], value.to_le_bytes().repeat(m * n));
    w.meta("device", "NVIDIA H200").meta("recipe", "float8_rowwise").meta("device_model", "hopper_wgmma");
    w
}

#[test]
fn a_result_without_elements_passes_and_says_so() {
    for (m, n, k) in [(0, 64, 128), (64, 0, 128), (0, 64, 0), (0, 0, 0)] {
        let (bundle, found) = judged(&gemm(m, n, k, 0));
        assert_eq!((found.verdict, &found.reason), (Verdict::Pass, &format!("nothing to judge: the result is {m}×{n}")));
        let line = json(&bundle, &found);
        assert_eq!(
            (line["verdict"].as_str(), line["empty"].as_str()),
            (Some("pass"), Some(&*format!("gemm {m}×{k} by {n}×{k}")))
        );
        assert!(text(&bundle, &found, 100).contains(&format!("gemm {m}×{k} by {n}×{k}")));
        let row = row(&bundle, &found);
        assert_eq!((row.op, row.m, row.n, row.k), (Op::Gemm, m, n, k));
    }
}

/// Two codes a byte: K of the weights is twice what is stored.
#[test]
fn packed_weights_fit_activations_without_rows() {
    let b = crate::Tensor::rounded(Format::F16, 8, 32, (0..256).map(|i| i as f32 - 100.0).collect()).unwrap();
    let q = "affine_sym:int4:g16".parse::<Recipe>().unwrap().quantize(&b).unwrap().q;
    let mut w = Writer::new("gemm");
    w.raw("a", Dtype::F16, &[0, 32], Vec::new()).raw("out", Dtype::F16, &[0, 8], Vec::new());
    w.codes("b", &q, None, Some(crate::format::pack::NibbleOrder::LowFirst)).unwrap();
    let (bundle, found) = judged(&w);
    assert_eq!((found.verdict, &*found.reason), (Verdict::Pass, "nothing to judge: the result is 0×8"));
    assert_eq!(row(&bundle, &found).k, 32);
}

#[test]
fn an_empty_sum_is_zero_or_the_bias_to_the_bit() {
    let (_, right) = judged(&gemm(3, 5, 0, 0));
    assert_eq!((right.verdict, &*right.reason), (Verdict::Pass, "K is 0: each element is 0"));
    // Memory that nobody wrote; the smallest subnormal number.
    for wrong in [0x4049, 1] {
        assert_eq!(judged(&gemm(3, 5, 0, wrong)).1.verdict, Verdict::Fail, "{wrong:#x}");
    }
    // 1.5 is the bias of each column.
    let biased = |value| {
        let mut w = gemm(3, 5, 0, value);
        w.f32s("bias", &[5], &[1.5; 5]);
        judged(&w).1
    };
    assert_eq!((biased(0x3fc0).verdict, &*biased(0x3fc0).reason), (Verdict::Pass, "K is 0: each element is the bias"));
    assert_eq!(biased(0).verdict, Verdict::Fail);
    // FP8 results by their scale.
    let mut coded = gemm(3, 5, 0, 0);
    coded.without("out").raw("out.codes", Dtype::F8_E4M3, &[3, 5], vec![0; 15]).f32s("out.scale", &[1], &[2.0]);
    assert_eq!(judged(&coded).1.verdict, Verdict::Pass);
    coded.raw("out.codes", Dtype::F8_E4M3, &[3, 5], vec![0x38; 15]);
    assert_eq!(judged(&coded).1.verdict, Verdict::Fail);
}

#[test]
fn grouped_products_of_nothing() {
    // No token for any of three experts; experts of no columns; sums over nothing.
    let grouped = |m: usize, n: usize, k: usize, value: u16| {
        let mut w = Writer::new("grouped_gemm");
        w.raw("a.codes", Dtype::F8_E4M3, &[m, k], vec![0x38; m * k]).f32s("a.scale_inv", &[1], &[1.0]);
        w.raw("b.codes", Dtype::F8_E4M3, &[3, n, k], vec![0x38; 3 * n * k]).f32s("b.scale_inv", &[3, 1], &[1.0; 3]);
        w.i32s("offs", &[3], &[0, 0, m as i32]).raw("out", Dtype::BF16, &[m, n], value.to_le_bytes().repeat(m * n));
        w
    };
    for (m, n, k) in [(0, 8, 16), (4, 0, 16), (4, 8, 0)] {
        assert_eq!(judged(&grouped(m, n, k, 0)).1.verdict, Verdict::Pass, "{m}×{n}×{k}");
    }
    assert_eq!(judged(&grouped(4, 8, 0, 0x3f80)).1.verdict, Verdict::Fail);
    // The gradient of weights without a token is 0 for each expert.
    let wgrad = |value: u16| {
        let mut w = Writer::new("grouped_gemm_wgrad");
        for (x, rows) in [("a", 4), ("b", 6)] {
            w.raw(&format!("{x}.codes"), Dtype::F8_E4M3, &[rows, 0], Vec::new()).f32s(
                &format!("{x}.scale_inv"),
                &[3, 1],
                &[1.0; 3],
            );
        }
        w.i32s("offs", &[3], &[0, 0, 0]).raw("out", Dtype::BF16, &[3, 4, 6], value.to_le_bytes().repeat(72));
        w
    };
    assert_eq!(judged(&wgrad(0)).1.verdict, Verdict::Pass);
    assert_eq!(judged(&wgrad(0x3f80)).1.verdict, Verdict::Fail);
}

/// An expert without tokens beside others: its gradient is 0, whatever scale is stored for it, and however few bits a unit may keep.
#[test]
fn the_gradient_of_an_expert_without_tokens_is_zero_beside_others() {
    let wgrad = |value: f32| {
        let mut w = Writer::new("grouped_gemm_wgrad");
        let small = 2f32.powi(-10);
        for (x, f, rows) in [("a", Dtype::F8_E5M2, 4), ("b", Dtype::F8_E4M3, 6)] {
            // 1, 2, 4 … 128 of either format, over and over.
            let step = if x == "a" { 4 } else { 8 };
            let codes = (0..rows * 32).map(|at| (if x == "a" { 0x3c } else { 0x38 } + at % 8 * step) as u8).collect();
            w.raw(&format!("{x}.codes"), f, &[rows, 32], codes).meta(&format!("{x}.granularity"), "row");
            let scales = (0..3 * rows).map(|s| if s / rows == 1 { 1.0 } else { small }).collect::<Vec<f32>>();
            w.f32s(&format!("{x}.scale_inv"), &[3, rows], &scales);
        }
        let sum = 2.0 * (0..8).map(|e| 4f32.powi(e)).sum::<f32>() * small * small;
        let out = (0..72).map(|at| if at / 24 == 1 { value } else { sum }).collect::<Vec<f32>>();
        w.i32s("offs", &[3], &[16, 16, 32]).f32s("out", &[3, 4, 6], &out);
        w
    };
    assert_ne!(judged(&wgrad(0.0)).1.verdict, Verdict::Fail);
    for value in [1e-3, 0.5, 2.0, f32::NAN] {
        assert_eq!(judged(&wgrad(value)).1.verdict, Verdict::Fail, "{value}");
    }
}

#[test]
fn casts_and_norms_of_nothing() {
    let cast = |amax: f32| {
        let mut w = Writer::new("cast");
        w.f32s("a", &[0, 64], &[]).raw("out.codes", Dtype::F8_E4M3, &[0, 64], Vec::new());
        w.f32s("out.scale", &[1], &[1.0]).f32s("out.amax", &[1], &[amax]);
        judged(&w)
    };
    assert_eq!(cast(0.0).1.verdict, Verdict::Pass);
    let (bundle, wrong) = cast(3.0);
    assert_eq!((wrong.verdict, &*wrong.reason), (Verdict::Fail, "amax is 3; of no values it is 0"));
    assert_eq!(row(&bundle, &wrong).op, Op::Cast);
    let mut norm = Writer::new("rmsnorm");
    norm.f32s("a", &[0, 8], &[]).f32s("gamma", &[8], &[1.0; 8]).f32s("out", &[0, 8], &[]);
    assert_eq!(judged(&norm).1.verdict, Verdict::Pass);
}

#[test]
fn shapes_that_contradict_each_other_are_errors() {
    let mut other = gemm(0, 5, 16, 0);
    other.raw("out", Dtype::BF16, &[3, 5], vec![0; 30]);
    assert!(refused(&other).contains("tensor `out` of shape [3, 5], expected [0, 5]"), "{}", refused(&other));
    let mut k = gemm(0, 5, 16, 0);
    k.raw("b.codes", Dtype::F8_E4M3, &[5, 8], vec![0; 40]);
    assert!(refused(&k).contains("expected [N, 16] with K as in a"), "{}", refused(&k));
    // Experts of another K, and fewer experts than groups.
    for b in [[3, 8, 12], [2, 8, 16]] {
        let mut w = Writer::new("grouped_gemm");
        w.raw("a.codes", Dtype::F8_E4M3, &[0, 16], Vec::new()).f32s("a.scale_inv", &[1], &[1.0]);
        w.raw("b.codes", Dtype::F8_E4M3, &b, vec![0x38; b.iter().product()]).f32s("b.scale_inv", &[b[0], 1], &vec![1.0; b[0]]);
        w.i32s("offs", &[3], &[0, 0, 0]).raw("out", Dtype::BF16, &[0, 8], Vec::new());
        assert!(refused(&w).contains("expected [3, N, 16] with K as in a"), "{}", refused(&w));
    }
    assert!(refused(gemm(0, 5, 16, 0).without("out")).contains("no tensor `out`"));
    assert!(refused(gemm(0, 5, 16, 0).f32s("a.scale", &[1], &[1.0])).contains("tensor `a.scale`"));
}
