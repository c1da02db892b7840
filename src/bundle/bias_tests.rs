//! Grouped products with a bias of each expert: right ones pass, wrong ones are named.

use super::named_tests::{dot, found, is_named, quantized, round, values};
use super::{Bundle, Writer};
use crate::compare::Verdict;
use crate::format::pack::NibbleOrder;
use crate::{Format, QTensor, Tensor};
use ndarray::Array2;
use std::path::Path;

const ROWS: usize = 40;
const K: usize = 96;
const N: usize = 24;
const EXPERTS: usize = 4;
/// Ends of four groups, one of them empty; the last row is nobody's.
const ENDS: [i32; EXPERTS] = [11, 11, 26, 39];

#[derive(Clone, Copy, PartialEq)]
enum Made {
    /// FP8 by rows on both sides.
    Fp8,
    /// bf16 by int4 in groups of 32.
    Int4,
}

/// Operands, a bias and weights of rows.
struct Product {
    made: Made,
    weighted: bool,
    a: (Option<QTensor>, Tensor),
    b: QTensor,
    x: Array2<f64>,
    y: Array2<f64>,
    bias: Vec<f64>,
    weights: Vec<f64>,
}

/// What is known of an element: its row, its expert, its column, and the sum without bias and weight.
#[derive(Clone, Copy)]
struct At {
    i: usize,
    e: usize,
    j: usize,
    sum: f64,
}

impl Product {
    fn new(made: Made, weighted: bool) -> Self {
        let tokens = values(Format::Bf16, ROWS, K, 701);
        let (a, b) = match made {
            Made::Fp8 => (Some(quantized("float8_rowwise_gw_hp", ROWS, K, 701)), "float8_rowwise_gw_hp"),
            Made::Int4 => (None, "affine_sym:int4:g32"),
        };
        let b = quantized(b, EXPERTS * N, K, 702);
        let x = a.as_ref().map_or_else(|| tokens.to_f64(), QTensor::dequantize_fast);
        let y = b.dequantize_fast().mapv(|v| if made == Made::Int4 { round(Format::Bf16, v) } else { v });
        let bias = values(Format::Bf16, 1, EXPERTS * N, 703).data().iter().map(|b| 4.0 * f64::from(*b)).collect();
        let weights = (0..ROWS).map(|i| f64::from(0.11 + (i * 29 % 47) as f32 / 50.0)).collect();
        Self { made, weighted, a: (a, tokens), b, x, y, bias, weights }
    }
    fn weight(&self, i: usize) -> f64 {
        if self.weighted { self.weights[i] } else { 1.0 }
    }
    fn bias(&self, e: usize, j: usize) -> f64 {
        self.bias[e * N + j]
    }
    /// The bundle of a kernel that writes `of` each element, in bf16.
    fn written(&self, of: &dyn Fn(At) -> f64) -> Writer {
        let mut w = Writer::new("grouped_gemm");
        match &self.a {
            (Some(q), _) => w.codes("a", q, None, None).unwrap(),
            (None, t) => w.values("a", &[ROWS, K], t),
        };
        let packing = (self.made == Made::Int4).then_some(NibbleOrder::LowFirst);
        w.codes("b", &self.b, Some(EXPERTS), packing).unwrap().i32s("offs", &[EXPERTS], &ENDS);
        let narrow = |v: &[f64]| v.iter().map(|x| *x as f32).collect::<Vec<f32>>();
        let bias = Tensor::new(Format::Bf16, EXPERTS, N, narrow(&self.bias)).unwrap();
        w.values("bias", &[EXPERTS, N], &bias);
        if self.weighted {
            w.f32s("row_weights", &[ROWS], &narrow(&self.weights));
        }
        let one = |at: usize| {
            let (i, j) = (at / N, at % N);
            let e = ENDS.iter().filter(|end| **end as usize <= i).count();
            let element = || At { i, e, j, sum: dot(&self.x, &self.y, i, e * N + j) };
            if e < EXPERTS { of(element()) as f32 } else { 7.0 }
        };
        let out = Tensor::rounded(Format::Bf16, ROWS, N, (0..ROWS * N).map(one).collect()).unwrap();
        w.values("out", &[ROWS, N], &out);
        w
    }
    /// The bundle of a kernel that adds `bias` of each element, weighted.
    fn adding(&self, bias: &dyn Fn(At) -> f64) -> Writer {
        self.written(&|at| self.weight(at.i) * (at.sum + bias(at)))
    }
}

fn all() -> impl Iterator<Item = Product> {
    itertools::iproduct!([Made::Fp8, Made::Int4], [false, true]).map(|(made, weighted)| Product::new(made, weighted))
}

#[test]
fn a_bias_of_each_expert_is_added_before_the_weights_of_rows() {
    for p in all() {
        let right = p.adding(&|at| p.bias(at.e, at.j));
        assert_eq!(found(&right).0, Verdict::Pass, "{:?}", found(&right));
        let f32s = |w: &mut Writer, shape: &[usize], of: &[f64]| {
            w.f32s("bias", shape, &of.iter().map(|x| *x as f32).collect::<Vec<f32>>());
        };
        // One row for all experts.
        let mut shared = p.adding(&|at| p.bias(2, at.j));
        f32s(&mut shared, &[N], &p.bias[2 * N..3 * N]);
        assert_eq!(found(&shared).0, Verdict::Pass);
        f32s(&mut shared, &[EXPERTS, N], &p.bias);
        assert_eq!(found(&shared).0, Verdict::Fail);
        f32s(&mut shared, &[EXPERTS, N], &p.bias[2 * N..3 * N].repeat(EXPERTS));
        assert_eq!(found(&shared).0, Verdict::Pass);
    }
}

#[test]
fn what_becomes_of_a_bias_of_experts_is_named() {
    for p in all() {
        let named = |w: &Writer, fault: &str, words: &str| is_named(w, fault, &[words]);
        let own = |at: At| p.bias(at.e, at.j);
        named(&p.adding(&|_| 0.0), "silent_skip:out.bias", "the bias is not added");
        named(&p.adding(&|at| 2.0 * own(at)), "silent_skip:out.bias_twice", "the bias is added twice");
        named(&p.adding(&|at| -own(at)), "silent_skip:out.bias_negated", "the bias is subtracted");
        let other = |of: &dyn Fn(At) -> f64, words: &str| named(&p.adding(of), "addressing:out.bias_expert", words);
        other(&|at| p.bias(0, at.j), "from another expert: expert 0's for all");
        other(&|at| p.bias((at.e + 1) % EXPERTS, at.j), "from another expert: expert e + 1's, wrapped");
        // [E, N] read as [N, E].
        other(&|at| p.bias[at.j * EXPERTS + at.e], "in another order: [E, N] read as [N, E]");
        // The second group is empty: those behind it read the row before theirs, as all but the first would that read one too early.
        let filled = |at: At| p.bias(at.e - usize::from(at.e > 1), at.j);
        other(&filled, "the number of the expert among those that have rows");
        // Sixteen elements at once, of a row of 24: counted from the first row of all, or of the group.
        for of_group in [false, true] {
            let vector = |at: At| {
                let first = if of_group && at.e > 0 { ENDS[at.e - 1] as usize } else { 0 };
                let flat = (at.i - first) * N + at.j;
                let start = flat / 16 * 16;
                let e = ENDS.iter().filter(|end| **end as usize <= first + start / N).count();
                p.bias.get(e * N + start % N + flat % 16).copied().unwrap_or(0.0)
            };
            named(&p.adding(&vector), "addressing:out.bias_vector", "the bias of 16 elements at once");
        }
        let wrapped = |at: At| p.bias(at.e, (at.j + 1) % N);
        named(&p.adding(&wrapped), "addressing:out.bias_index", "the bias of column j + 1 (wrapped)");
        // Another expert's weights, with their bias or without.
        let of = |at: At, bias: usize| {
            let e = (at.e + 1) % EXPERTS;
            p.weight(at.i) * (dot(&p.x, &p.y, at.i, e * N + at.j) + p.bias(bias, at.j))
        };
        let both = p.written(&|at| of(at, (at.e + 1) % EXPERTS));
        is_named(&both, "group_boundary:rows_of_experts", &["the next one's weights", "whose bias comes with them"]);
        let alone = p.written(&|at| of(at, at.e));
        named(&alone, "group_boundary:rows_of_experts", "the next one's weights");
        assert!(!found(&alone).2.contains("bias"));
    }
}

#[test]
fn a_bias_by_the_global_number_of_a_local_expert_is_named() {
    for p in all() {
        let behind = p.adding(&|at| if at.e + 1 < EXPERTS { p.bias(at.e + 1, at.j) } else { 0.0 });
        is_named(&behind, "addressing:out.bias_expert", &["that of expert e + 1, 0 behind the last", "global number"]);
    }
}

#[test]
fn a_bias_that_meets_weights_of_rows_otherwise_is_named() {
    for p in all().filter(|p| p.weighted) {
        let unweighted = p.written(&|at| p.weight(at.i) * at.sum + p.bias(at.e, at.j));
        is_named(&unweighted, "round_order:out.bias_unweighted", &["behind row_weights"]);
        let filled = |at: At| p.bias(at.e - usize::from(at.e > 1), at.j);
        let both = p.written(&|at| p.weight(at.i) * at.sum + filled(at));
        let words = ["among those that have rows", "behind row_weights"];
        is_named(&both, "addressing:out.bias_expert + round_order:out.bias_unweighted", &words);
        let twice = p.written(&|at| p.weight(at.i) * (at.sum + p.weight(at.i) * p.bias(at.e, at.j)));
        is_named(&twice, "scale_doubled_inverted:out.bias_weighted", &["row_weights multiply the bias twice"]);
        // Stored in a narrow type before its weight.
        let stored = p.written(&|at| p.weight(at.i) * round(Format::E5m2, at.sum + p.bias(at.e, at.j)));
        is_named(&stored, "round_order:out.rounded_before_weight", &["stored in e5m2 before its row_weight multiplies it"]);
        // Weights that are left out, of sum and bias alike.
        let without = p.written(&|at| at.sum + p.bias(at.e, at.j));
        is_named(&without, "silent_skip:row_weights", &["left out"]);
    }
}

#[test]
fn a_bias_that_is_added_before_the_scales_is_named() {
    for weighted in [false, true] {
        // Scales that are not far from 1, or nothing is left of the bias.
        let mut p = Product::new(Made::Fp8, weighted);
        p.bias.iter_mut().for_each(|b| *b *= 256.0);
        let scale = |q: &QTensor, row: usize| f64::from(q.scale_inv()[row]);
        let of_a = |at: At| scale(p.a.0.as_ref().unwrap(), at.i);
        let of_b = |at: At| scale(&p.b, at.e * N + at.j);
        let raw = p.adding(&|at| of_a(at) * of_b(at) * p.bias(at.e, at.j));
        is_named(&raw, "scale_doubled_inverted:out.bias_scaled", &["the bias is multiplied by both scales"]);
        let by_b = p.adding(&|at| of_b(at) * p.bias(at.e, at.j));
        is_named(&by_b, "scale_doubled_inverted:out.bias_scaled", &["the bias is multiplied by the scale of b"]);
    }
}

/// With a declared arithmetic every bit decides: sums, scales, then the bias, added or fused.
#[test]
fn bits_of_a_bias_of_experts_decide() {
    let p = Product::new(Made::Fp8, false);
    let scale = |q: &QTensor, row: usize| q.scale_inv()[row];
    let raw = |at: At| {
        let a = p.a.0.as_ref().unwrap();
        let code = |q: &QTensor, row: usize, k: usize| q.format().decode(u32::from(q.codes()[row * K + k])) as f32;
        (0..K).fold(0.0f32, |s, k| code(a, at.i, k).mul_add(code(&p.b, at.e * N + at.j, k), s)) * scale(a, at.i)
    };
    let result = |of: &dyn Fn(At) -> f32| {
        let mut w = p.written(&|_| 0.0);
        let one = |at: usize| {
            let (i, j) = (at / N, at % N);
            let e = ENDS.iter().filter(|end| **end as usize <= i).count();
            if e < EXPERTS { of(At { i, e, j, sum: 0.0 }) } else { 0.0 }
        };
        w.f32s("out", &[ROWS, N], &(0..ROWS * N).map(one).collect::<Vec<f32>>()).meta("device_model", "f32_sequential");
        found(&w).0
    };
    let bias = |at: At| p.bias(at.e, at.j) as f32;
    let of_b = |at: At| scale(&p.b, at.e * N + at.j);
    assert_eq!(result(&|at| raw(at) * of_b(at) + bias(at)), Verdict::Pass);
    assert_eq!(result(&|at| raw(at).mul_add(of_b(at), bias(at))), Verdict::Pass);
    let off = |at: At, y: f32| if (at.i, at.j) == (30, 5) { y.next_up().next_up().next_up() } else { y };
    assert_eq!(result(&|at| off(at, raw(at) * of_b(at) + bias(at))), Verdict::Fail);
}

/// The weight of a row meets the bias where nothing is summed, too.
#[test]
fn a_bias_of_experts_is_all_there_is_of_no_k() {
    let result = |of: &dyn Fn(usize, usize) -> f32| {
        let mut w = Writer::new("grouped_gemm");
        w.f32s("a", &[3, 0], &[]).f32s("b", &[2, 2, 0], &[]).i32s("offs", &[2], &[1, 3]);
        w.f32s("bias", &[2, 2], &[1.0, 2.0, 3.0, 4.0]).f32s("row_weights", &[3], &[2.0, 0.5, -1.0]);
        w.f32s("out", &[3, 2], &(0..6).map(|at| of(at / 2, at % 2)).collect::<Vec<f32>>());
        let found = found(&w);
        let bundle = Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap()).unwrap();
        (found.0, bundle.empty.unwrap().why)
    };
    let bias = |i: usize, j: usize| (1 + 2 * usize::from(i > 0) + j) as f32;
    let right = result(&|i, j| bias(i, j) * [2.0, 0.5, -1.0][i]);
    assert_eq!(right, (Verdict::Pass, "K is 0: each element is the bias by the weight of its row".into()));
    assert_eq!(result(&bias).0, Verdict::Fail);
}
