//! The exact GELU and the clamped SwiGLUs: what right f32 kernels write passes in every format, and what is another formula is named.

use super::named_tests::found;
use super::{Bundle, Writer, answer, assay::assay};
use crate::compare::Verdict;
use crate::{Format, Overflow, Rounding, Tensor};

const ROWS: usize = 24;
const COLS: usize = 64;

/// Rows of both signs, up to 6 or `wide` times that.
fn values(dtype: Format, cols: usize, wide: f32) -> Tensor {
    let one = |at: usize| ((at * 7919 % 4001) as f32 / 4001.0 - 0.45) * 12.0 * wide;
    Tensor::rounded(dtype, ROWS, cols, (0..ROWS * cols).map(one).collect()).unwrap()
}

/// A bundle of `y` of x, or of x and its gate, written in `out`.
fn written(f: &str, more: &[(&str, &str)], a: &Tensor, out: Format, y: &dyn Fn(f32, f32) -> f32) -> Writer {
    let gated = a.cols() == 2 * COLS;
    let mut w = Writer::new("activation");
    w.meta("fn", f).values("a", &[ROWS, a.cols()], a);
    for (key, value) in more {
        w.meta(key, value);
    }
    let made = |at: usize| {
        let row = a.row(at / COLS);
        y(row[at % COLS], if gated { row[COLS + at % COLS] } else { 1.0 })
    };
    let made: Vec<f32> = (0..ROWS * COLS).map(made).collect();
    if out != Format::E4m3 {
        w.values("out", &[ROWS, COLS], &Tensor::rounded(out, ROWS, COLS, made).unwrap());
        return w;
    }
    let amax = made.iter().fold(0.0f32, |m, y| m.max(y.abs()));
    let scale = 448.0 / amax;
    let code = |y: &f32| out.encode(f64::from(y * scale), Rounding::NearestEven, Overflow::Saturate) as u8;
    w.raw("out.codes", safetensors::Dtype::F8_E4M3, &[ROWS, COLS], made.iter().map(code).collect());
    w.f32s("out.scale", &[1], &[scale]).f32s("out.amax", &[1], &[amax]);
    w
}

fn verdict(w: &Writer) -> (Verdict, String) {
    let found = assay(&Bundle::parse(std::path::Path::new("x"), &w.to_bytes().unwrap()).unwrap()).unwrap();
    (answer::verdict(&found), found.reason.clone())
}

const OUTPUTS: [Format; 4] = [Format::F32, Format::Bf16, Format::F16, Format::E4m3];

fn erf(x: f32) -> f32 {
    libm::erf(f64::from(x)) as f32
}
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// PyTorch's, one with the sum inside, JAX's by erfc, and that of f64.
const GELUS: [fn(f32) -> f32; 4] = [
    |x| x * 0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
    |x| x * (0.5 + 0.5 * erf(x / std::f32::consts::SQRT_2)),
    |x| 0.5 * x * libm::erfc(f64::from(-x * std::f32::consts::FRAC_1_SQRT_2)) as f32,
    |x| (0.5 * f64::from(x) * (1.0 + libm::erf(f64::from(x) / std::f64::consts::SQRT_2))) as f32,
];

#[test]
fn exact_gelu_as_others_write_it_passes_in_every_format() {
    for (dtype, out) in [Format::F32, Format::Bf16].into_iter().flat_map(|d| OUTPUTS.map(|o| (d, o))) {
        for (n, gelu) in GELUS.into_iter().enumerate() {
            let plain = verdict(&written("gelu_erf", &[], &values(dtype, COLS, 1.0), out, &|x, _| gelu(x)));
            assert_eq!(plain.0, Verdict::Pass, "way {n}, {dtype} to {out}: {}", plain.1);
            let gated = verdict(&written("geglu_erf", &[], &values(dtype, 2 * COLS, 1.0), out, &|x, u| gelu(x) * u));
            assert_eq!(gated.0, Verdict::Pass, "gated way {n}, {dtype} to {out}: {}", gated.1);
        }
    }
}

/// Each is another formula of the other's name, in words.
#[test]
fn tanh_for_the_error_function_is_named_and_the_reverse() {
    let tanh = |x: f32| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh());
    for out in [Format::F32, Format::Bf16, Format::F16] {
        let a = values(Format::F32, COLS, 1.0);
        let wrong = verdict(&written("gelu_erf", &[], &a, out, &|x, _| tanh(x)));
        assert!(wrong.0 == Verdict::Fail && wrong.1.contains("gelu by its tanh approximation"), "{out}: {}", wrong.1);
        let wrong = verdict(&written("gelu", &[], &a, out, &|x, _| GELUS[0](x)));
        assert!(wrong.0 == Verdict::Fail && wrong.1.contains("gelu by the error function"), "{out}: {}", wrong.1);
        let wrong = verdict(&written("geglu_erf", &[], &values(Format::F32, 2 * COLS, 1.0), out, &|x, u| tanh(x) * u));
        assert!(wrong.0 == Verdict::Fail && wrong.1.contains("gelu by its tanh approximation"), "{out}: {}", wrong.1);
    }
}

#[test]
fn wrong_error_functions_are_named() {
    let a = values(Format::F32, COLS, 1.0);
    let reason = |y: &dyn Fn(f32, f32) -> f32| verdict(&written("gelu_erf", &[], &a, Format::F32, y));
    let wrong = reason(&|x, _| 0.5 * x * (1.0 + erf(x)));
    assert!(wrong.0 == Verdict::Fail && wrong.1.contains("of x, not of x/√2"), "{}", wrong.1);
    let bf16 = |x: f32| crate::tensor::round_to(Format::Bf16, x);
    let wrong = reason(&|x, _| 0.5 * x * (1.0 + bf16(erf(x * std::f32::consts::FRAC_1_SQRT_2))));
    assert!(wrong.0 == Verdict::Fail && wrong.1.contains("erf is rounded to bf16"), "{}", wrong.1);
}

#[test]
fn clamped_swiglus_as_others_write_them_pass_in_every_format() {
    let sides = |x: f32, u: f32, limit: f32| (x.min(limit), u.clamp(-limit, limit));
    for (dtype, out) in [Format::F32, Format::Bf16].into_iter().flat_map(|d| OUTPUTS.map(|o| (d, o))) {
        let a = values(dtype, 2 * COLS, 3.0);
        let oai: [&dyn Fn(f32, f32) -> f32; 3] = [
            &|x, u| sides(x, u, 7.0).0 * sigmoid(1.702 * sides(x, u, 7.0).0) * (sides(x, u, 7.0).1 + 1.0),
            // Triton's: s = g/(1 + e^−αg), fma(s, u, s).
            &|x, u| {
                let (g, u) = sides(x, u, 7.0);
                let s = g / (1.0 + (-1.702 * g).exp());
                s.mul_add(u, s)
            },
            &|x, u| {
                let (g, u) = sides(x, u, 7.0);
                let s = g / (1.0 + (-1.702 * g).exp());
                s * u + s
            },
        ];
        for (n, y) in oai.into_iter().enumerate() {
            let right = verdict(&written("swiglu_oai", &[], &a, out, y));
            assert_eq!(right.0, Verdict::Pass, "way {n}, {dtype} to {out}: {}", right.1);
        }
        let other = |x: f32, u: f32| {
            let (g, u) = sides(x, u, 5.5);
            g * sigmoid(1.5 * g) * (u + 1.0)
        };
        let right = verdict(&written("swiglu_oai", &[("alpha", "1.5"), ("limit", "5.5")], &a, out, &other));
        assert_eq!(right.0, Verdict::Pass, "{dtype} to {out}: {}", right.1);
        let limited = |x: f32, u: f32| {
            let (g, u) = sides(x, u, 10.0);
            g * sigmoid(g) * u
        };
        let right = verdict(&written("swiglu_limit", &[("limit", "10")], &a, out, &limited));
        assert_eq!(right.0, Verdict::Pass, "{dtype} to {out}: {}", right.1);
    }
}

#[test]
fn a_clamp_left_out_is_named() {
    let a = values(Format::Bf16, 2 * COLS, 3.0);
    let oai = |x: f32, u: f32| x * sigmoid(1.702 * x) * (u + 1.0);
    let (x7, u7) = (|x: f32| x.min(7.0), |u: f32| u.clamp(-7.0, 7.0));
    type Wrong<'w> = (&'w str, &'w [(&'w str, &'w str)], &'w dyn Fn(f32, f32) -> f32);
    let limit: &[(&str, &str)] = &[("limit", "7")];
    let all: [Wrong; 7] = [
        ("neither x nor the gate is clamped at 7", &[], &oai),
        ("x is not clamped at 7", &[], &|x, u| oai(x, u7(u))),
        ("the gate is not clamped at ±7", &[], &|x, u| oai(x7(x), u)),
        ("1 is not added to the gate", &[], &|x, u| oai(x7(x), u7(u) - 1.0)),
        ("the limit is 10, not 7", &[], &|x, u| oai(x.min(10.0), u.clamp(-10.0, 10.0))),
        ("neither x nor the gate is clamped at 7", limit, &|x, u| x * sigmoid(x) * u),
        ("x·σ(1.702·x)", limit, &|x, u| x7(x) * sigmoid(1.702 * x7(x)) * u7(u)),
    ];
    for (words, more, y) in all {
        let wrong = written(if more.is_empty() { "swiglu_oai" } else { "swiglu_limit" }, more, &a, Format::Bf16, y);
        let (verdict, _, detail) = found(&wrong);
        assert!(verdict == Verdict::Fail && detail.contains(words), "{words}: {detail}");
    }
}

/// swiglu by another constant and with 1 added to its gate.
#[test]
fn constants_of_a_gated_activation_are_named_beside_its_gate() {
    let a = values(Format::Bf16, 2 * COLS, 1.0);
    let y = |x: f32, u: f32| x * sigmoid(1.55 * x) * (u + 1.0);
    let (verdict, _, detail) = found(&written("swiglu", &[], &a, Format::Bf16, &y));
    assert!(verdict == Verdict::Fail && detail.contains("x·σ(1.55·x); and 1 is added to the gate"), "{detail}");
}
