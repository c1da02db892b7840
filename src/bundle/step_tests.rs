//! Steps, layouts, sums and stages that a kernel mistakes for others, with one family each: scales that steps of a loop index, atoms of scales with other
//! axes, products of two scales in few bits, a stage of another group.

use super::Writer;
use super::named_tests::{gemm, is_named, round};
use crate::quant::QTensorParts;
use crate::{Format, Granularity, QTensor, Tensor, Zero};
use safetensors::Dtype;

/// A number in 0 … 2^32 for every place, the same each time.
fn hash(seed: usize, at: usize) -> usize {
    let mut x = (seed as u64 * 0x9E37_79B9 + at as u64 + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x >> 32) as usize
}

/// Codes of any value but NaN, and these scales.
fn tensor(
    f: Format,
    (rows, cols): (usize, usize),
    g: Granularity,
    s: Format,
    scale: impl Fn(usize) -> f32,
    seed: usize,
) -> QTensor {
    let (high, wide) = g.grid(rows, cols);
    let code = |at: usize| {
        if f == Format::E4m3 { (hash(seed, at) % 0x78) | ((hash(seed + 9, at) % 2) << 7) } else { hash(seed, at) % 16 }
    };
    let codes = (0..rows * cols).map(|at| code(at) as u8).collect();
    let scale_inv = (0..high * wide).map(scale).collect();
    let parts = QTensorParts {
        format: f,
        rows,
        cols,
        codes,
        granularity: g,
        scale_inv,
        zero: Zero::None,
        scale_format: s,
        level: None,
    };
    QTensor::new(parts).unwrap()
}

/// FP8 with f32 scales.
fn fp8(rows: usize, k: usize, g: Granularity, seed: usize) -> QTensor {
    tensor(Format::E4m3, (rows, k), g, Format::F32, |at| 0.01 * (1 + hash(seed + 1, at) % 997) as f32 / 300.0, seed)
}

/// Codes of four or eight bits with powers of two.
fn mx(f: Format, rows: usize, k: usize, seed: usize) -> QTensor {
    let scale = |at: usize| (hash(seed + 1, at) % 8) as f32 - 3.0;
    tensor(f, (rows, k), Granularity::Group(32), Format::E8m0, |at| scale(at).exp2(), seed)
}

fn decoded(q: &QTensor, i: usize, k: usize) -> f64 {
    q.format().decode(u32::from(q.codes()[i * q.cols() + k]))
}

/// What is written where scales are these, by line and k.
fn by_scales(a: &QTensor, b: &QTensor, scale: impl Fn(usize, usize, usize) -> f64) -> Writer {
    let one = |i: usize, j: usize| (0..a.cols()).map(|k| decoded(a, i, k) * decoded(b, j, k) * scale(i, j, k)).sum();
    gemm(a, b, Format::Bf16, one)
}

fn own(q: &QTensor, i: usize, k: usize) -> f64 {
    f64::from(q.scale_inv()[q.scale_index(i, k)])
}

#[test]
fn steps_that_index_the_scales_of_longer_groups_of_both_operands_are_named() {
    let a = fp8(24, 512, Granularity::Group(128), 1);
    // What lies behind b's scales is far larger: nothing of the right result is left there.
    let small = |at: usize| 1e-4 * (1 + hash(8, at) % 997) as f32 / 300.0;
    let b = tensor(Format::E4m3, (256, 512), Granularity::Block { rows: 128, cols: 128 }, Format::F32, small, 2);
    let (of_a, of_b) = (a.scale_inv(), b.scale_inv());
    // Behind b's scales lie a's, behind a's the first ones again.
    let behind = |at: usize, own: &[f32], then: &[f32]| f64::from(own.get(at).copied().unwrap_or_else(|| then[at - own.len()]));
    for step in [64, 32] {
        let w = by_scales(&a, &b, |i, j, k| behind(i * 4 + k / step, of_a, of_a) * behind(j / 128 * 4 + k / step, of_b, of_a));
        let words = format!("the scale of a at k is that of step k / {step}, and not of group k / 128");
        let more = format!("the scale of b at k is that of step k / {step}, and not of group k / 128");
        let ends = "running on into the next rows, the first again behind the last";
        is_named(&w, "scale_index:a.divisor", &[&words, &more, ends, "the scales of a behind the last"]);
    }
    // One of them stops at the end of its row, or finds nothing there.
    let w = by_scales(&a, &b, |i, j, k| {
        let (x, y) = (of_a[i * 4 + (k / 64).min(3)], of_b.get(j / 128 * 4 + k / 64).copied().unwrap_or(0.0));
        f64::from(x) * f64::from(y)
    });
    is_named(&w, "scale_index:a.divisor", &["the last of its row behind the end of it", "of b at k is", "0 behind the last"]);
    // Groups of their own: each step is half of one.
    let a = fp8(24, 512, Granularity::Group(64), 3);
    let w = by_scales(&a, &b, |i, j, k| {
        let at = i * 8 + k / 32;
        let (x, y) = (a.scale_inv()[at % 192], of_b[(j / 128 * 4 + k / 64) % 8]);
        f64::from(x) * f64::from(y)
    });
    is_named(&w, "scale_index:a.divisor", &["step k / 32, and not of group k / 64", "step k / 64, and not of group k / 128"]);
}

#[test]
fn atoms_of_scales_with_their_axes_in_another_order_are_named() {
    let (a, b) = (mx(Format::E4m3, 256, 512, 11), mx(Format::E4m3, 48, 512, 12));
    let read = |a: &QTensor, from: &dyn Fn(usize, usize) -> usize| {
        by_scales(a, &b, |i, j, k| f64::from(a.scale_inv()[from(i, k / 32)]) * own(&b, j, k))
    };
    // Quarter q, group c of each atom has what is of quarter c, group q.
    let w = read(&a, &|r, c| (r / 128 * 128 + c % 4 * 32 + r % 32) * 16 + c / 4 * 4 + r / 32 % 4);
    is_named(
        &w,
        "scale_layout:a.index",
        &["of the 256×16 grid", "in each atom rows r/32 mod 4 and groups c mod 4 are exchanged"],
    );
    // Stored in atoms, read column by column.
    let atoms = |at: usize, across: usize| {
        let (atom, x) = (at / 512, at % 512);
        (atom / across * 128 + x / 4 % 4 * 32 + x / 16, atom % across * 4 + x % 4)
    };
    let w = read(&a, &|r, c| {
        let (r, c) = atoms(c * 256 + r, 4);
        r * 16 + c
    });
    is_named(&w, "scale_layout:a.index", &["stored in 128×4 atoms", "read in columns of 256"]);
    // One after the other along the rows, and read along the groups.
    let w = read(&a, &|r, c| {
        let (r, c) = atoms((c / 4 * 2 + r / 128) * 512 + r % 32 * 16 + r / 32 % 4 * 4 + c % 4, 4);
        r * 16 + c
    });
    is_named(&w, "scale_layout:a.index", &["4 beside each other and read", "2 below each other"]);
}

#[test]
fn quarters_of_an_atom_of_scales_that_are_exchanged_are_named() {
    // One atom of three; one of a grid of 4×20.
    for (m, n, k) in [(40, 192, 384), (8, 512, 2560)] {
        let (a, b) = (mx(Format::E4m3, m, k, 13), mx(Format::E4m3, n, k, 14));
        let w = by_scales(&a, &b, |i, j, k| {
            let turned = j < 128 && (8..12).contains(&(k / 32)) && (1..3).contains(&(j / 32));
            let row = if turned { j % 32 + (3 - j / 32) * 32 } else { j };
            own(&a, i, k) * own(&b, row, k)
        });
        let words = ["rows 32 … 63 and 64 … 95 of the 128×4 atom of rows 0 … 127, groups 8 … 11 are exchanged"];
        is_named(&w, "scale_layout:b.index", &words);
    }
}

#[test]
fn products_of_scales_that_are_made_in_few_bits_are_named() {
    let (a, b) = (mx(Format::E2m1, 32, 512, 15), mx(Format::E2m1, 48, 512, 16));
    let made = |of: &dyn Fn(f64) -> f64| by_scales(&a, &b, |i, j, k| of((own(&a, i, k) * own(&b, j, k)).log2()).exp2());
    let stops = made(&|e| (e + 254.0).min(255.0) - 254.0);
    is_named(&stops, "range_rule:out.scales_added", &["stop at 255, before their biases are taken off"]);
    let wraps = made(&|e| (e + 254.0) % 256.0 - 254.0);
    is_named(&wraps, "overflow_wrap:out.scales_added", &["8 bits that wrap, before their biases"]);
    // One scale for each block of b.
    let blocks = Granularity::Block { rows: 16, cols: 32 };
    let b = tensor(Format::E4m3, (48, 512), blocks, Format::E8m0, |at| (at as f32 % 7.0 - 3.0).exp2(), 17);
    let a = mx(Format::E4m3, 32, 512, 18);
    let w = by_scales(&a, &b, |i, j, k| (own(&a, i, k) * own(&b, j, k)).min(2.0));
    is_named(&w, "range_rule:out.scales_added", &["no product of scales is above 2"]);
    // Of FP8: an FP8 number again.
    let scale = |seed: usize| move |at: usize| Format::E4m3.decode(0x30 + (hash(seed, at) % 0x18) as u32) as f32;
    let four =
        |rows: usize, seed: usize| tensor(Format::E2m1, (rows, 256), Granularity::Group(16), Format::E4m3, scale(seed), seed);
    let (a, b) = (four(32, 19), four(48, 20));
    let w = by_scales(&a, &b, |i, j, k| round(Format::E4m3, own(&a, i, k) * own(&b, j, k)));
    is_named(&w, "lowprec_acc:out.scales_rounded", &["product of the block scales of a and of b is rounded to e4m3"]);
}

/// Rows of a gradient, columns, tokens, and where groups end.
const GRADIENT: (usize, usize, usize, [usize; 3]) = (32, 24, 288, [96, 224, 288]);

/// A gradient of three experts' weights, whose tokens are read from `from(e, i, j, k)`, of a and of b.
fn gradient(from: impl Fn(usize, usize, usize, usize) -> (usize, usize)) -> Writer {
    let (m, n, k_all, offs) = GRADIENT;
    let (a, b) = (fp8(m, k_all, Granularity::Tensor, 21), fp8(n, k_all, Granularity::Tensor, 22));
    let scales = [[0.5f32, 3.0, 0.75], [0.25, 1.25, 2.0]];
    let mut w = Writer::new("grouped_gemm_wgrad");
    w.raw("a.codes", Dtype::F8_E4M3, &[m, k_all], a.codes().to_vec()).f32s("a.scale_inv", &[3], &scales[0]);
    w.raw("b.codes", Dtype::F8_E4M3, &[n, k_all], b.codes().to_vec()).f32s("b.scale_inv", &[3], &scales[1]);
    w.i32s("offs", &[3], &offs.map(|x| x as i32));
    let one = |at: usize| {
        let (e, i, j) = (at / n / m, at / n % m, at % n);
        let tokens = if e == 0 { 0 } else { offs[e - 1] }..offs[e];
        let product = |k: usize| {
            let (x, y) = from(e, i, j, k);
            decoded(&a, i, x) * decoded(&b, j, y)
        };
        (tokens.map(product).sum::<f64>() * f64::from(scales[0][e]) * f64::from(scales[1][e])) as f32
    };
    w.f32s("out", &[3, m, n], &(0..3 * m * n).map(one).collect::<Vec<f32>>());
    w
}

#[test]
fn a_stage_of_the_next_groups_tokens_is_named() {
    let here = |e: usize, i: usize, k: usize| e == 0 && i >= 16 && k >= 64;
    let w = gradient(|e, i, _, k| (if here(e, i, k) { k + 32 } else { k }, k));
    is_named(
        &w,
        "acc_state:a.stage",
        &["for tokens 64 … 95 of group 0 those of 96 … 127, which are group 1's", "rows 16 … 31"],
    );
    // Of b; a stage of the same group.
    let w = gradient(|e, _, j, k| (k, if e == 1 && j < 8 && (128..160).contains(&k) { k + 64 } else { k }));
    is_named(&w, "acc_state:b.stage", &["for tokens 128 … 159 of group 1 those of 192 … 223"]);
}

#[test]
fn a_stage_of_one_experts_rows_is_named() {
    let (a, b) = (fp8(48, 256, Granularity::Row, 23), fp8(64, 256, Granularity::Row, 24));
    let made = |of_b: bool| {
        let mut w = Writer::new("grouped_gemm");
        w.codes("a", &a, None, None).unwrap().codes("b", &b, Some(2), None).unwrap().i32s("offs", &[2], &[16, 48]);
        let one = |at: usize| {
            let (i, j) = (at / 32, at % 32);
            let (row, wrong) = (j + if i >= 16 { 32 } else { 0 }, (32..40).contains(&i));
            let product = |k: usize| {
                let at = if wrong && k / 32 == 3 { k + 32 } else { k };
                if of_b { decoded(&a, i, k) * decoded(&b, row, at) } else { decoded(&a, i, at) * decoded(&b, row, k) }
            };
            ((0..256).map(product).sum::<f64>() * own(&a, i, 0) * own(&b, row, 0)) as f32
        };
        w.values("out", &[48, 32], &Tensor::rounded(Format::Bf16, 48, 32, (0..48 * 32).map(one).collect()).unwrap());
        w
    };
    is_named(&made(false), "acc_state:a.stage", &["for K 96 … 127 that of 128 … 159", "rows 32 … 39"]);
    is_named(&made(true), "acc_state:b.stage", &["for K 96 … 127 that of 128 … 159", "rows 32 … 39"]);
}
