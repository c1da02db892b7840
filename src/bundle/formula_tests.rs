//! Bugs of real norms, activations and casts that an outside exam asked and that had no name, or a wrong one.

use super::Writer;
use super::named_tests::{found, is_named, round};
use crate::compare::Verdict;
use crate::op::activation::{act, gate};
use crate::op::{Act, Clamp};
use crate::{Format, Tensor};
use safetensors::Dtype;

/// A number of [−1, 1) for a place.
fn noise(at: usize) -> f64 {
    let mixed = (at as u32).wrapping_mul(0x9E37_79B9) ^ (at as u32).wrapping_mul(0x85EB_CA6B) >> 13;
    f64::from(mixed.wrapping_mul(0xC2B2_AE35) >> 8) / 8_388_608.0 - 1.0
}

/// Rows of bf16 with means and sizes of their own.
fn rows(count: usize, n: usize) -> Vec<Vec<f64>> {
    let one = |i: usize, j: usize| 0.4 * noise(i + 7000) + (0.5 + i as f64 / count as f64) * noise(i * n + j);
    (0..count).map(|i| (0..n).map(|j| round(Format::Bf16, one(i, j))).collect()).collect()
}

fn tensor(f: Format, rows: usize, cols: usize, of: impl Fn(usize) -> f64) -> Tensor {
    Tensor::rounded(f, rows, cols, (0..rows * cols).map(|at| of(at) as f32).collect()).unwrap()
}

fn gamma(j: usize) -> f64 {
    round(Format::Bf16, 1.0 + 0.3 * noise(j + 3000))
}

/// Mean square about `m`.
fn square(x: &[f64], m: f64) -> f64 {
    x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / x.len() as f64
}

fn average(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// An element of the rows.
type Element<'x> = dyn Fn(&[Vec<f64>], usize, usize) -> f64 + 'x;

/// A norm of 40 rows of 96, eps 1e-5, stored in bf16: this of every element.
fn norm(op: &str, of: &Element) -> Writer {
    let (m, n) = (40, 96);
    let x = rows(m, n);
    let mut w = Writer::new(op);
    w.meta("eps", "1e-5").values("a", &[m, n], &tensor(Format::Bf16, m, n, |at| x[at / n][at % n]));
    w.values("gamma", &[n], &tensor(Format::Bf16, 1, n, gamma));
    if op == "layernorm" {
        w.values("beta", &[n], &tensor(Format::Bf16, 1, n, |j| 0.25 * gamma(j)));
    }
    w.values("out", &[m, n], &tensor(Format::Bf16, m, n, |at| of(&x, at / n, at % n)));
    w
}

/// Mean and variance of a row.
type Moments<'x> = dyn Fn(&[Vec<f64>], usize) -> (f64, f64) + 'x;
/// A column of a row that is read by its columns.
type Made<'x> = dyn Fn(&dyn Fn(usize) -> f64, usize) -> f64 + 'x;

fn rmsnorm(square_of: &dyn Fn(&[Vec<f64>], usize) -> f64) -> Writer {
    norm("rmsnorm", &|x, i, j| x[i][j] / (square_of(x, i) + 1e-5).sqrt() * gamma(j))
}

#[test]
fn sums_of_squares_that_are_not_divided_by_their_number_are_named() {
    let own = |x: &[Vec<f64>], i: usize| square(&x[i], 0.0);
    assert_eq!(found(&rmsnorm(&own)).0, Verdict::Pass);
    is_named(&rmsnorm(&|x, i| 96.0 * own(x, i)), "other_formula:solved", &["not divided by the number of columns, 96"]);
    is_named(
        &rmsnorm(&|x, i| own(x, i) + own(x, i ^ 1)),
        "other_formula:solved",
        &["the mean square is the sum over 2 rows together, divided by the 96 columns of one"],
    );
    let four = |x: &[Vec<f64>], i: usize| (i / 4 * 4..i / 4 * 4 + 4).map(|i| own(x, i)).sum::<f64>();
    is_named(&rmsnorm(&|x, i| four(x, i) / 4.0), "other_formula:solved", &["the mean square is the mean over 4 rows"]);
}

/// The memory of 40 rows of 96, by columns: a transposed view.
#[test]
fn a_pass_that_reads_a_transposed_view_at_other_strides_is_named() {
    let w = norm("rmsnorm", &|x, i, j| x[(i + j) % 40][(i + j) / 40] / (square(&x[i], 0.0) + 1e-5).sqrt() * gamma(j));
    let words = "a transposed view, element (r, c) at r + 40·c in memory, is read at r + c by the pass that normalizes";
    is_named(&w, "other_formula:solved", &[words]);
}

#[test]
fn warps_that_read_statistics_of_others_are_named_as_a_race() {
    let made = |late: &dyn Fn(usize, usize) -> bool, by: &Moments| {
        norm("layernorm", &|x, i, j| {
            let m = average(&x[i]);
            let (m, v) = if late(i, j) { by(x, i) } else { (m, square(&x[i], m)) };
            (x[i][j] - m) / (v + 1e-5).sqrt() * gamma(j) + 0.25 * gamma(j)
        })
    };
    let late = |i: usize, j: usize| matches!((i, j / 32), (3, 1) | (17, 0) | (26, 2));
    let of = |x: &[Vec<f64>], i: usize| (average(&x[i]), square(&x[i], average(&x[i])));
    assert_eq!(found(&made(&|_, _| false, &|x, i| of(x, i))).0, Verdict::Pass);
    is_named(&made(&late, &|x, i| of(x, i + 8)), "race:solved", &["of row i + 8", "row 3, columns 32 … 63"]);
    is_named(&made(&late, &|x, i| (of(x, i).1, of(x, i).1)), "race:solved", &["(the variance of the row)"]);
    is_named(
        &made(&late, &|x, i| (0.4 + of(x, i).0, (2.0 + i as f64 / 20.0) * of(x, i).1)),
        "race:solved",
        &["parts of rows are normalized with another mean and another divisor"],
    );
}

/// Activations of 20 rows of 2 × 96 values of f16, stored in f16: `of` the row and column.
fn activation(name: &str, cols: usize, size: f64, of: &Made) -> Writer {
    let m = 20;
    let gated = name.starts_with("swiglu");
    let wide = if gated { 2 * cols } else { cols };
    let x = |i: usize, j: usize| round(Format::F16, size * noise(i * wide + j));
    let mut w = Writer::new("activation");
    w.meta("fn", name).values("a", &[m, wide], &tensor(Format::F16, m, wide, |at| x(at / wide, at % wide)));
    w.values("out", &[m, cols], &tensor(Format::F16, m, cols, |at| of(&|j| x(at / cols, j), at % cols)));
    w
}

#[test]
fn an_activation_without_its_factor_x_is_named() {
    let inner = |x: f64| 0.797_884_560_8 * (x + 0.044715 * x.powi(3));
    assert_eq!(found(&activation("gelu", 96, 5.0, &|x, j| act(Act::Gelu, x(j)))).0, Verdict::Pass);
    let w = activation("gelu", 96, 5.0, &|x, j| 0.5 * (1.0 + inner(x(j)).tanh()));
    is_named(&w, "other_formula:solved", &["gelu without its factor x: Φ(x) alone, by its tanh approximation"]);
    let w = activation("silu", 96, 5.0, &|x, j| 1.0 / (1.0 + (-x(j)).exp()));
    is_named(&w, "other_formula:solved", &["silu without its factor x: σ(x) alone"]);
}

#[test]
fn a_tanh_whose_exponentials_overflow_is_named() {
    let w = activation("gelu", 96, 17.0, &|x, j| {
        let x = x(j) as f32;
        let z = 0.797_884_6 * (x + 0.044715 * x * x * x);
        f64::from(0.5 * x * (1.0 + (z.exp() - (-z).exp()) / (z.exp() + (-z).exp())))
    });
    is_named(&w, "other_formula:solved", &["gelu whose tanh is (e^z − e^−z)/(e^z + e^−z) in f32"]);
}

#[test]
fn a_limit_of_zero_is_named() {
    let of = |limit: f32| {
        let f = Act::SwigluOai(Clamp::new(1.702, limit));
        let mut w = activation("swiglu_oai", 96, 9.0, &|x, j| act(f, x(j)) * gate(f, x(96 + j)));
        w.meta("alpha", "1.702").meta("limit", "1000000");
        w
    };
    assert_eq!(found(&of(1e6)).0, Verdict::Pass);
    is_named(&of(0.0), "other_formula:solved", &["the limit is 0, not 1000000"]);
    is_named(&of(5.5), "other_formula:solved", &["the limit is 5.5, not 1000000"]);
}

#[test]
fn the_formula_of_gpt_oss_on_interleaved_pairs_is_named() {
    let oai = Act::SwigluOai(Clamp::OAI);
    let w = activation("swiglu", 96, 9.0, &|x, j| act(oai, x(2 * j)) * gate(oai, x(2 * j + 1)));
    let words = "x and gate are read as interleaved, x first; and the formula of gpt-oss with a limit of 7";
    is_named(&w, "other_formula:solved", &[words]);
}

/// One scale and one zero point, −11: the largest code that is written is 116, and the least −128.
#[test]
fn codes_that_are_saturated_before_their_zero_point_is_added_are_named() {
    let (m, n) = (24, 96);
    let (x, s) = (tensor(Format::F32, m, n, |at| 6.0 * noise(at)), 0.02f32);
    let of = |first: bool| {
        let code = |x: f32| {
            let y = f64::from(x / s).round_ties_even();
            if first { (y.clamp(-128.0, 127.0) - 11.0).clamp(-128.0, 127.0) } else { (y - 11.0).clamp(-128.0, 127.0) }
        };
        let mut w = Writer::new("cast");
        w.meta("out.format", "int8").meta("out.granularity", "tensor").meta("out.zero", "integer").values("a", &[m, n], &x);
        w.raw("out.codes", Dtype::I8, &[m, n], x.data().iter().map(|x| code(*x) as i8 as u8).collect());
        w.f32s("out.scale_inv", &[1], &[s]).i32s("out.zero_point", &[1], &[-11]);
        w
    };
    assert_eq!(found(&of(false)).0, Verdict::Pass);
    is_named(&of(true), "overflow_wrap:out.saturated_first", &["before the zero point is added"]);
}

/// Of more elements than formulas are asked of, only some rows are.
#[test]
fn noise_in_a_norm_of_many_elements_has_no_name() {
    let (m, n) = (2100, 512);
    let x = rows(m, n);
    let roots: Vec<f64> = x.iter().map(|x| (square(x, 0.0) + 1e-5).sqrt()).collect();
    let mut w = Writer::new("rmsnorm");
    w.meta("eps", "1e-5").values("a", &[m, n], &tensor(Format::Bf16, m, n, |at| x[at / n][at % n]));
    w.values("gamma", &[n], &tensor(Format::Bf16, 1, n, gamma));
    let one = |at: usize| x[at / n][at % n] / roots[at / n] * gamma(at % n) * (1.0 + 0.05 * noise(at + 77));
    w.values("out", &[m, n], &tensor(Format::Bf16, m, n, one));
    let (verdict, names, words) = found(&w);
    assert!(verdict == Verdict::Fail && names.is_empty(), "{names:?} {words}");
}
