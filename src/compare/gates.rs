//! The gates that other projects judge with, so that a report can show what each would have said. None takes part in a
//! verdict here: all but exact equality let a 1 % gain pass.
//!
//! A gate is a function of the reference and the actual values. Which reference the original takes (high precision or
//! dequantized) is the project's matter; reports show both.

use super::metrics::{Sums, tree_sum};

/// One entry of [`GATES`].
pub struct Gate {
    pub name: &'static str,
    /// Where it is used.
    pub source: &'static str,
    /// The rule in one line.
    pub help: &'static str,
    /// Whether `(reference, actual)` pass. A NaN or Inf that the reference does not have fails every gate here (but the one that
    /// forgives a share of the elements), which is kinder to gates than originals that fail only when the error exceeds a tolerance.
    pub passes: fn(&[f64], &[f64]) -> bool,
}

macro_rules! gate {
    ($name:literal, $source:literal, $help:literal, $passes:expr) => {
        Gate { name: $name, source: $source, help: $help, passes: $passes }
    };
}

/// Every gate.
pub const GATES: &[Gate] = &[
    gate!("calc_diff_fp8", "DeepGEMM testing/numeric.py", "1 − 2Σxy/Σ(x²+y²) < 1e-3", |r, a| calc_diff(r, a) < 1e-3),
    gate!("calc_diff_fp8xfp4", "DeepGEMM tests", "1 − 2Σxy/Σ(x²+y²) < 1e-2", |r, a| calc_diff(r, a) < 1e-2),
    gate!("calc_diff_fp4", "DeepGEMM tests", "1 − 2Σxy/Σ(x²+y²) < 2e-2", |r, a| calc_diff(r, a) < 2e-2),
    gate!("sqnr_12", "torchao", "SQNR ≥ 12 dB", |r, a| sqnr(r, a) >= 12.0),
    gate!("sqnr_15", "torchao test_fsdp.py", "SQNR ≥ 15 dB", |r, a| sqnr(r, a) >= 15.0),
    gate!("sqnr_20", "torchao test_numerics_integration.py", "SQNR ≥ 20 dB", |r, a| sqnr(r, a) >= 20.0),
    gate!("sqnr_25", "torchao float8/test_base.py", "SQNR ≥ 25 dB", |r, a| sqnr(r, a) >= 25.0),
    gate!("sqnr_28", "torchao moe_training", "SQNR ≥ 28 dB", |r, a| sqnr(r, a) >= 28.0),
    gate!("sqnr_35", "torchao blockwise fp8, DeepGEMM backend", "SQNR ≥ 35 dB", |r, a| sqnr(r, a) >= 35.0),
    gate!("cosine_99", "many", "cosine > 0.99", |r, a| cosine(r, a) > 0.99),
    gate!("cutlass_profiler", "CUTLASS profiler", "relatively_equal ε 0.05, floor 2^-10", |r, a| relatively_equal(
        r, a, 0.05, FLOOR
    )),
    gate!("cutlass_testbed", "CUTLASS gemm_testbed_3x.hpp, scaled modes", "relatively_equal ε 0.1, floor 2^-126", |r, a| {
        relatively_equal(r, a, 0.1, f64::from(f32::MIN_POSITIVE))
    }),
    gate!("cutlass_mixed", "CUTLASS example 55", "relatively_equal ε 1e-2, floor 1e-4", |r, a| relatively_equal(
        r, a, 1e-2, 1e-4
    )),
    gate!("vllm_fp8", "vLLM FP8 GEMM tests", "allclose rtol 0.5, atol 0.15", |r, a| allclose(r, a, 0.5, 0.15)),
    gate!("te_e4m3", "TransformerEngine tests/pytorch/utils.py", "allclose rtol 0.125, atol 0.0675", |r, a| allclose(
        r, a, 0.125, 0.0675
    )),
    gate!("te_nvfp4", "TransformerEngine tests/pytorch/utils.py", "allclose rtol 0.25, atol 0.125", |r, a| allclose(
        r, a, 0.25, 0.125
    )),
    gate!("te_cpp_fp8", "TransformerEngine tests/cpp", "mismatch only if |e| > 1e-2 and |e| > 1e-2·|r|", |r, a| {
        all(r, a, |r, a| (a - r).abs() <= 1e-2 || (a - r).abs() <= 1e-2 * r.abs())
    }),
    gate!("nmse_llama_cpp", "llama.cpp test-backend-ops", "Σe²/Σr² ≤ 5e-4", |r, a| nmse(r, a) <= 5e-4),
    gate!("s8s4_mean_relative", "torchao test_s8s4_linear_cutlass.py", "mean|e| / mean|r| < 5e-3", |r, a| mean_relative(r, a)
        < 5e-3),
    gate!("allclose_bf16", "torch.testing bf16 default", "allclose rtol 1.6e-2, atol 1e-5", |r, a| allclose(
        r, a, 1.6e-2, 1e-5
    )),
    gate!("allclose_f16", "torch.testing f16 default", "allclose rtol 1e-3, atol 1e-5", |r, a| allclose(r, a, 1e-3, 1e-5)),
    gate!("allclose_0.1", "common", "allclose rtol 0.1, atol 0.1", |r, a| allclose(r, a, 0.1, 0.1)),
    gate!("flashinfer_fp8_attention", "FlashInfer FP8 attention tests", "mean e² < 1.0", |r, a| mse(r, a) < 1.0),
    gate!("flashinfer_moe_fp8", "FlashInfer MoE FP8 block tests", "79 % of elements within atol 0.1 + rtol 0.85", |r, a| {
        share(r, a, |r, a| (a - r).abs() <= 0.1 + 0.85 * r.abs()) >= 0.79
    }),
];

/// The floor under which CUTLASS's profiler compares absolutely.
const FLOOR: f64 = 1.0 / 1024.0;

/// The sums, with what is not finite on one side only turned into NaN: it passes no comparison.
fn sums(r: &[f64], a: &[f64]) -> Sums {
    assert_eq!(r.len(), a.len(), "a gate compares as many actual values as there are references");
    let bad = |r: f64, a: f64| !(r == a || (r.is_nan() && a.is_nan()) || (r.is_finite() && a.is_finite()));
    let poison = r.iter().zip(a).any(|(r, a)| bad(*r, *a));
    let mut s = tree_sum(r.len(), &|i| Sums::of(r[i], a[i]));
    if poison {
        (s.square, s.dot, s.actual, s.abs) = (f64::NAN, f64::NAN, f64::NAN, f64::NAN);
    }
    s
}

/// DeepGEMM's `1 − 2Σxy / Σ(x² + y²)`; 0 when both are all zero, as there.
pub fn calc_diff(r: &[f64], a: &[f64]) -> f64 {
    let s = sums(r, a);
    let size = s.reference + s.actual;
    if size == 0.0 { 0.0 } else { 1.0 - 2.0 * s.dot / size }
}

/// `20·log10(‖r‖/‖r − a‖)` in dB.
pub fn sqnr(r: &[f64], a: &[f64]) -> f64 {
    let s = sums(r, a);
    if s.square == 0.0 { f64::INFINITY } else { 10.0 * (s.reference / s.square).log10() }
}

/// The cosine of the two as vectors.
pub fn cosine(r: &[f64], a: &[f64]) -> f64 {
    let s = sums(r, a);
    s.dot / (s.reference.sqrt() * s.actual.sqrt())
}

/// `Σ(a − r)² / Σr²`.
pub fn nmse(r: &[f64], a: &[f64]) -> f64 {
    let s = sums(r, a);
    if s.square == 0.0 { 0.0 } else { s.square / s.reference }
}

/// `mean (a − r)²`; 0 of nothing.
pub fn mse(r: &[f64], a: &[f64]) -> f64 {
    sums(r, a).square / r.len().max(1) as f64
}

/// `mean|a − r| / mean|r|`.
pub fn mean_relative(r: &[f64], a: &[f64]) -> f64 {
    let s = sums(r, a);
    if s.abs == 0.0 { 0.0 } else { s.abs / tree_sum(r.len(), &|i| Sums::of(0.0, r[i])).abs }
}

fn share(r: &[f64], a: &[f64], close: fn(f64, f64) -> bool) -> f64 {
    let good = r.iter().zip(a).filter(|(r, a)| same(**r, **a) || close(**r, **a)).count();
    good as f64 / r.len().max(1) as f64
}
fn same(r: f64, a: f64) -> bool {
    r == a || (r.is_nan() && a.is_nan())
}
fn all(r: &[f64], a: &[f64], close: impl Fn(f64, f64) -> bool) -> bool {
    assert_eq!(r.len(), a.len(), "a gate compares as many actual values as there are references");
    r.iter().zip(a).all(|(r, a)| same(*r, *a) || (a.is_finite() && close(*r, *a)))
}

/// torch.allclose: `|a − r| ≤ atol + rtol·|r|` everywhere. What is infinite is equal or not close.
pub fn allclose(r: &[f64], a: &[f64], rtol: f64, atol: f64) -> bool {
    all(r, a, |r, a| r.is_finite() && (a - r).abs() <= atol + rtol * r.abs())
}

/// CUTLASS `relatively_equal_float`, everywhere: equal; or, where one is zero or `|a| + |r| < floor`, `|a − r| < ε·floor`; else
/// `|a − r| < ε·(|a| + |r|)`.
pub fn relatively_equal(r: &[f64], a: &[f64], epsilon: f64, floor: f64) -> bool {
    all(r, a, |r, a| {
        let (difference, size) = ((a - r).abs(), a.abs() + r.abs());
        if r == 0.0 || a == 0.0 || size < floor { difference < epsilon * floor } else { difference < epsilon * size }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10,000 values, none near zero, of both signs.
    fn reference() -> Vec<f64> {
        (0..10_000).map(|i| (5.0 + f64::from(i % 97) * 0.3) * if i % 3 == 0 { -1.0 } else { 1.0 }).collect()
    }
    fn gate(name: &str) -> &'static Gate {
        GATES.iter().find(|g| g.name == name).unwrap()
    }
    /// The largest gain ≥ 1 that passes, by bisection up to 10 (∞ when 10 passes).
    fn largest_gain(g: &Gate, r: &[f64]) -> f64 {
        let passes = |gain: f64| (g.passes)(r, &r.iter().map(|x| gain * x).collect::<Vec<_>>());
        assert!(passes(1.0), "{} fails what is right", g.name);
        if passes(10.0) {
            return f64::INFINITY;
        }
        let (mut low, mut high) = (1.0, 10.0);
        for _ in 0..30 {
            let middle = 0.5 * (low + high);
            if passes(middle) { low = middle } else { high = middle }
        }
        low
    }
    /// The largest share of the energy that may be zero.
    fn largest_hole(g: &Gate, r: &[f64]) -> f64 {
        let energy = |r: &[f64]| r.iter().map(|x| x * x).sum::<f64>();
        let holed = |n: usize| r.iter().enumerate().map(|(i, x)| if i < n { 0.0 } else { *x }).collect::<Vec<_>>();
        let (mut low, mut high) = (0, r.len());
        while high - low > 1 {
            let middle = (low + high) / 2;
            if (g.passes)(r, &holed(middle)) { low = middle } else { high = middle }
        }
        energy(&r[..low]) / energy(r)
    }

    #[test]
    fn what_ordinary_gates_let_through() {
        // (gate, largest uniform gain, share of the energy that may be zero): spec table, and by arithmetic.
        let table = [
            ("calc_diff_fp8", 1.046, 0.002),
            ("calc_diff_fp8xfp4", 1.153, 0.020),
            ("calc_diff_fp4", 1.223, 0.039),
            ("sqnr_12", 1.25, 0.063),
            ("sqnr_15", 1.178, 0.032),
            ("sqnr_20", 1.10, 0.010),
            ("sqnr_28", 1.04, 0.0016),
            ("sqnr_35", 1.018, 0.0003),
            ("cosine_99", f64::INFINITY, 0.020),
            ("cutlass_profiler", 1.105, 0.0),
            ("cutlass_testbed", 1.222, 0.0),
            ("nmse_llama_cpp", 1.022, 0.0005),
            // Absolute: 1 + 1/√(mean r²), and 1/mean r².
            ("flashinfer_fp8_attention", 1.0473, 0.0022),
        ];
        let r = reference();
        for (name, gain, hole) in table {
            let (g, h) = (largest_gain(gate(name), &r), largest_hole(gate(name), &r));
            println!("{name}: gain ×{g:.4}, hole {:.3} %", 100.0 * h);
            assert!(g == gain || (g - gain).abs() < 1.5e-3, "{name}: gain {g}, table {gain}");
            assert!((h - hole).abs() < 0.02 * hole + 1.1e-4, "{name}: hole {h}, table {hole}");
        }
        // The allclose gates add their atol to the gain: rtol + atol/max|r| there.
        let large: Vec<f64> = r.iter().map(|x| x * 1e4).collect();
        for (name, gain) in
            [("vllm_fp8", 1.5), ("te_e4m3", 1.125), ("te_nvfp4", 1.25), ("allclose_0.1", 1.1), ("flashinfer_moe_fp8", 1.85)]
        {
            let g = largest_gain(gate(name), &large);
            assert!((g - gain).abs() < 1e-3, "{name}: {g}, table {gain}");
        }
        let spoiled: Vec<f64> = large.iter().enumerate().map(|(i, x)| if i % 5 == 0 { -x } else { *x }).collect();
        assert!((gate("flashinfer_moe_fp8").passes)(&large, &spoiled));
    }

    #[test]
    fn a_nan_passes_no_gate_and_equality_passes_all() {
        let r = reference();
        let mut nan = r.clone();
        nan[5] = f64::NAN;
        let mut inf = r.clone();
        inf[7] = f64::INFINITY;
        for g in GATES {
            assert!((g.passes)(&r, &r), "{}", g.name);
            if g.name != "flashinfer_moe_fp8" {
                assert!(!(g.passes)(&r, &nan) && !(g.passes)(&r, &inf), "{}", g.name);
            }
            assert!(!(g.passes)(&r, &r.iter().map(|x| -x).collect::<Vec<_>>()), "{}: sign", g.name);
        }
    }

    /// Zeros, infinities and NaN that the reference has too are right, whatever an error relative to them would be.
    #[test]
    fn what_equals_the_reference_passes_every_gate_of_elements() {
        let r = [0.0, -0.0, 1.0, -3.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, 5e-324];
        assert!(allclose(&r, &r, 0.0, 0.0) && relatively_equal(&r, &r, 0.0, 0.0));
        assert_eq!(share(&r, &r, |_, _| false), 1.0);
        for (wrong, by) in (0..r.len()).flat_map(|at| [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|by| (at, by))) {
            let mut a = r;
            a[wrong] = by;
            let is_right = by == r[wrong] || by.is_nan() && r[wrong].is_nan();
            assert_eq!(allclose(&r, &a, 1e9, 1e9), is_right, "{by} for {}", r[wrong]);
            assert_eq!(relatively_equal(&r, &a, 1e9, 1e9), is_right, "{by} for {}", r[wrong]);
        }
        for infinite in [f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!allclose(&[infinite], &[1.0], 1e9, 1e9) && !relatively_equal(&[infinite], &[1.0], 1e9, 1e9));
        }
    }

    #[test]
    fn a_mean_error_is_relative_to_the_mean_magnitude() {
        assert_eq!(mean_relative(&[2.0, -2.0, 4.0], &[2.0, -1.0, 4.0]), 0.125);
        assert_eq!(mean_relative(&[0.0, 2.0], &[0.0, 2.0]), 0.0);
    }

    /// Where one of both is zero an error is held against the floor, whatever the other is.
    #[test]
    fn an_error_beside_zero_is_not_relative() {
        assert!(!relatively_equal(&[0.0], &[1.0], 2.0, FLOOR) && !relatively_equal(&[1.0], &[0.0], 2.0, FLOOR));
        assert!(relatively_equal(&[0.0], &[FLOOR], 2.0, FLOOR) && relatively_equal(&[0.5], &[1.0], 2.0, FLOOR));
    }
}
