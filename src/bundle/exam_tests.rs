//! Bugs of later outside exams: weights of rows from other places, an exchange between lanes that is not complete, a conversion that does not saturate, an
//! amax that is not written, a scale before the activation.

use super::Writer;
use super::named_tests::{coded_product, dot, found, is_named, quantized, round, values};
use crate::compare::Verdict;
use crate::{Format, Overflow, Rounding, Tensor};
use safetensors::Dtype;

const ROWS: usize = 48;
const K: usize = 96;
const N: usize = 20;
/// Ends of three groups, one of them empty; the last two rows are nobody's.
const ENDS: [i32; 3] = [17, 17, 46];

fn code(f: Format, y: f64, overflow: Overflow) -> u8 {
    f.encode(y, Rounding::NearestEven, overflow) as u8
}

/// A grouped product of `a` and NVFP4, or of values and int4, whose rows are multiplied by `by` of their number and their weight.
fn routed(narrow: bool, by: &dyn Fn(usize, &[f32]) -> f64) -> Writer {
    routed_by(narrow, (0..ROWS).map(|i| 0.11 + (i * 29 % 47) as f32 / 50.0).collect(), by)
}

fn routed_by(narrow: bool, weights: Vec<f32>, by: &dyn Fn(usize, &[f32]) -> f64) -> Writer {
    let mut w = Writer::new("grouped_gemm");
    let b = quantized(if narrow { "te_nvfp4" } else { "affine_sym:int4:g32" }, 3 * N, K, 121);
    let x = if narrow {
        let a = quantized("te_nvfp4", ROWS, K, 122);
        w.codes("a", &a, None, None).unwrap();
        a.dequantize_fast()
    } else {
        let a = values(Format::Bf16, ROWS, K, 122);
        w.values("a", &[ROWS, K], &a);
        a.to_f64()
    };
    let y = b.dequantize_fast().mapv(|v| if narrow { v } else { round(Format::Bf16, v) });
    w.codes("b", &b, Some(3), None).unwrap().i32s("offs", &[3], &ENDS).f32s("row_weights", &[ROWS], &weights);
    let expert = |i: usize| ENDS.iter().filter(|end| **end as usize <= i).count();
    let one = |i: usize, j: usize| if i >= 46 { 7.0 } else { (dot(&x, &y, i, expert(i) * N + j) * by(i, &weights)) as f32 };
    let out = (0..ROWS * N).map(|at| one(at / N, at % N)).collect();
    w.values("out", &[ROWS, N], &Tensor::rounded(Format::Bf16, ROWS, N, out).unwrap());
    w
}

#[test]
fn weights_of_rows_from_other_places_are_named() {
    for narrow in [true, false] {
        let named = |by: &dyn Fn(usize, &[f32]) -> f64, fault: &str, words: &[&str]| {
            is_named(&routed(narrow, by), &format!("{fault}:row_weights"), words);
        };
        let at = |w: &[f32], i: usize| f64::from(w[i]);
        assert_eq!(found(&routed(narrow, &|i, w| at(w, i))).0, Verdict::Pass);
        let within = |i: usize, w: &[f32]| at(w, if i < 17 { i } else { i - 17 });
        let tiled = |i: usize, w: &[f32]| at(w, if i < 17 { i } else { i - 17 } % 8);
        // Half of them in each type of result.
        if narrow {
            named(&|_, _| 1.0, "silent_skip", &["left out"]);
            named(&|i, w| at(w, i).powi(2), "scale_doubled_inverted", &["twice"]);
            named(&|i, w| at(w, i / 2), "scale_index", &["that of row r / 2"]);
            named(&tiled, "scale_index", &["the row's number within its tile of 8 rows of its group"]);
            let in_fp8 = |i: usize, w: &[f32]| round(Format::E4m3, at(w, i));
            named(&in_fp8, "round_order", &["row_weights are rounded to e4m3"]);
        } else {
            named(&|i, w| if i < 9 { 1.0 } else { at(w, i) }, "silent_skip", &["left out, in rows 0 … 8"]);
            named(&|i, w| 1.0 / at(w, i), "scale_doubled_inverted", &["divided"]);
            named(&within, "scale_index", &["the row's number within its group"]);
            named(&|i, w| at(w, i * i * 5 % 47), "scale_index", &["those of other rows", "1 ← 5"]);
        }
    }
    // What no weight makes has no such name.
    let noise = |i: usize, w: &[f32]| f64::from(w[i]) * (1.0 + 0.1 * (i as f64 * 7.3).sin());
    assert!(!found(&routed(true, &noise)).1.contains("row_weights"));
}

/// Two neighbours make one number of 32 bits, and the second half of the rows reads what lies behind all of them.
#[test]
fn weights_of_16_bits_that_are_read_as_32_are_named() {
    let weights = || (0..ROWS).map(|i| round(Format::Bf16, 0.11 + (i * 29 % 47) as f64 / 50.0) as f32).collect();
    let behind = |i: usize| 0.3 + 0.2 * (i as f64 * 5.1).sin();
    let two = |w: &[f32], i: usize| f32::from_bits(w[2 * i].to_bits() >> 16 | w[2 * i + 1].to_bits());
    for narrow in [true, false] {
        let wide = routed_by(narrow, weights(), &|i, w| if 2 * i < ROWS { f64::from(two(w, i)) } else { behind(i) });
        let words = ["row_weights are bf16 read as f32", "rows from 24 on read what lies behind them"];
        is_named(&wide, "bits_reinterpreted:row_weights", &words);
        // One row that no such pair makes.
        let none = routed_by(narrow, weights(), &|i, w| match i {
            5 => 0.7 * f64::from(two(w, i)),
            i if 2 * i < ROWS => f64::from(two(w, i)),
            i => behind(i),
        });
        assert!(!found(&none).1.contains("row_weights"), "{:?}", found(&none));
    }
}

/// Groups of 64 by rows of `scale_of(group, column)`, with the scale of column 0 stored.
fn cast(x: &Tensor, scale_of: &dyn Fn(&[f32], usize) -> f32) -> Writer {
    let (rows, cols) = (x.rows(), x.cols());
    let scale = |at: usize| {
        let from = at / 64 * 64;
        scale_of(&x.data()[from..from + 64], at % 64)
    };
    let codes =
        (0..rows * cols).map(|at| code(Format::E4m3, f64::from(x.data()[at] / scale(at)), Overflow::Saturate)).collect();
    let stored: Vec<f32> = (0..rows * cols).step_by(64).map(scale).collect();
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "group:64").values("a", &[rows, cols], x);
    w.f32s("out.scale_inv", &[rows, cols / 64], &stored).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes);
    w
}

#[test]
fn lanes_that_do_not_exchange_their_amax_are_named() {
    let x = values(Format::Bf16, 24, 256, 123);
    let by = |run: usize, n: usize| {
        move |group: &[f32], k: usize| {
            let own = group.iter().enumerate().filter(|(c, _)| c / run % n == k / run % n);
            own.fold(0f32, |m, (_, v)| m.max(v.abs())) / 448.0
        }
    };
    is_named(&cast(&x, &by(4, 2)), "amax_scope:out.amax_parts", &["equal (k / 4) mod 2", "scale stored is that of the first"]);
    is_named(&cast(&x, &by(1, 4)), "amax_scope:out.amax_parts", &["equal (k / 1) mod 4"]);
    is_named(&cast(&x, &by(16, 4)), "amax_scope:out.amax_parts", &["each 16 columns of a group of 64"]);
}

#[test]
fn a_conversion_that_does_not_saturate_is_named_beside_an_amax_of_a_part() {
    let (rows, cols, scale) = (64, 80, 40.0f32);
    let mut data = values(Format::Bf16, rows, cols, 124).data().to_vec();
    (0..9).for_each(|n| data[n * 501 + 3] = 16.0 + n as f32);
    let x = Tensor::rounded(Format::Bf16, rows, cols, data).unwrap();
    let codes = x.data().iter().map(|v| code(Format::E4m3, f64::from(v * scale), Overflow::Native)).collect();
    let last = x.data()[32 * cols..].iter().fold(0f32, |m, v| m.max(v.abs()));
    let first = x.data()[..32 * cols].iter().fold(0f32, |m, v| m.max(v.abs()));
    let mut w = Writer::new("cast");
    w.values("a", &[rows, cols], &x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes).f32s("out.scale", &[1], &[scale]);
    w.f32s("out.scale_inv", &[1], &[1.0 / scale]).f32s("out.amax", &[1], &[first.min(last)]);
    is_named(&w, "overflow_wrap:out.native", &["does not saturate", "amax is"]);
}

#[test]
fn a_scale_of_the_amax_of_a_part_is_named_where_no_amax_is_written() {
    let (rows, cols) = (64, 96);
    let mut data = values(Format::Bf16, rows, cols, 125).data().to_vec();
    data[40 * cols + 7] = 31.0;
    let x = Tensor::rounded(Format::Bf16, rows, cols, data).unwrap();
    let named = |part: std::ops::Range<usize>, factor: f32, words: &[&str], fault: &str| {
        let amax = x.data()[part.start * cols..part.end * cols].iter().fold(0f32, |m, v| m.max(v.abs())) * factor;
        let scale = 448.0 / amax;
        let codes = x.data().iter().map(|v| code(Format::E4m3, f64::from(v * scale), Overflow::Saturate)).collect();
        let mut w = Writer::new("cast");
        w.meta("recipe", "te_current").values("a", &[rows, cols], &x);
        w.raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes).f32s("out.scale_inv", &[1], &[1.0 / scale]);
        is_named(&w, fault, words);
    };
    named(0..16, 1.0, &["of another amax", "the first 16 rows"], "amax_scope:out.amax_over");
    named(0..rows, 448.0 / 240.0, &["maximum of e4m3fnuz, 240"], "range_rule:recipe.max_240");
}

#[test]
fn a_scale_before_the_activation_is_named() {
    let (rows, cols, scale) = (32, 120, 28.0f32);
    let x = values(Format::Bf16, rows, cols, 126);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let codes = x.data().iter().map(|v| code(Format::E4m3, silu(f64::from(v * scale)), Overflow::Saturate)).collect();
    let mut w = Writer::new("activation");
    w.meta("fn", "silu").values("a", &[rows, cols], &x);
    w.raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes).f32s("out.scale", &[1], &[scale]);
    w.f32s("out.scale_inv", &[1], &[1.0 / scale]);
    is_named(&w, "other_formula:solved", &["out.scale multiplies x before the activation"]);
}

#[test]
fn computed_codes_that_stop_early_or_run_on_are_named() {
    let made = |of: &dyn Fn(usize, f64) -> u8| {
        let (mut w, scale, _) = coded_product((32, 24, 64), 129, 1000.0, of);
        w.f32s("out.scale", &[1], &[scale]);
        w
    };
    let saturated = |y: f64| code(Format::E4m3, y, Overflow::Saturate);
    assert_eq!(found(&made(&|_, y| saturated(y))).0, Verdict::Pass);
    let early = made(&|at, y| saturated(if at % 24 >= 12 { y.clamp(-240.0, 240.0) } else { y }));
    is_named(&early, "codec_edge:out.saturated_early", &["codes beyond 240 become it", "in columns 13 … 23"]);
    // 480 is 0x7f, the next binade 0x80 and so on.
    let wrapped = |y: f64| {
        let (e, m) = (y.abs().log2().floor(), y.abs());
        let run = ((e + 7.0) * 8.0 + (m / (e - 3.0).exp2()).round_ties_even() - 8.0) as u32;
        if m > 448.0 { (run as u8).wrapping_add(if y < 0.0 { 0x80 } else { 0 }) } else { saturated(y) }
    };
    is_named(&made(&|_, y| wrapped(y)), "overflow_wrap:out.wrapped", &["run on past the largest"]);
}

#[test]
fn codes_by_a_scale_index_with_exchanged_sides_or_of_a_padded_view_are_named() {
    let (rows, cols) = (64, 192);
    let x = values(Format::Bf16, rows, cols, 131);
    let amax = |g: usize| {
        let of = |r: usize| x.row(g / 4 * 16 + r)[g % 4 * 48..g % 4 * 48 + 48].iter().fold(0f32, |m, v| m.max(v.abs()));
        (0..16).map(of).fold(0f32, f32::max)
    };
    let scales: Vec<f32> = (0..16).map(|g| amax(g) / 448.0).collect();
    let by = |at: usize| scales[(at / cols / 48 * 4 + at % cols / 16).min(15)];
    let codes = (0..rows * cols).map(|at| code(Format::E4m3, f64::from(x.data()[at] / by(at)), Overflow::Saturate)).collect();
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "block:16x48").values("a", &[rows, cols], &x);
    w.f32s("out.scale_inv", &[4, 4], &scales).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes);
    is_named(&w, "scale_index:out.sides", &["(i / 48)·4 + j / 16"]);
}
