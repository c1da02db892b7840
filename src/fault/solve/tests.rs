//! Products with one bug each, replayed here by their own formula: what is found has to be that one.

use super::System;
use crate::assay::{Built, evidence};
use crate::fault::predict::Scene;
use crate::fault::{Evidence, diagnose};
use crate::job::{Data, Job, Operand, Operands, OutSpec, Output, Part};
use crate::kernel::Backend;
use crate::model::{Accumulator, Inner};
use crate::op::{self, Args64, Op, Params};
use crate::quant::QTensorParts;
use crate::tensor::round_to;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor, Zero};
use std::time::Duration;

/// A number in 0 … 1 for every place, the same each time.
pub fn noise(x: usize) -> f64 {
    let mut h = (x as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    h = (h ^ (h >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h = (h ^ (h >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (h >> 11) as f64 / (1u64 << 53) as f64
}

pub fn codes(format: Format, rows: usize, k: usize, group: usize, zeros: bool, seed: usize) -> QTensor {
    let n = rows * k.div_ceil(group);
    let bits = format.bits();
    let code = |at: usize| {
        let c = (noise(seed + 7 * at) * f64::from(1u32 << bits)) as u8;
        // No NaN, no −0 that is hard to tell.
        if format == Format::E4m3 && c & 0x7f == 0x7f { 0x30 } else { c }
    };
    let zero = if zeros { Zero::Integer((0..n).map(|s| (noise(seed + 31 * s) * 15.0) as i32).collect()) } else { Zero::None };
    QTensor::new(QTensorParts {
        format,
        rows,
        cols: k,
        codes: (0..rows * k).map(code).collect(),
        granularity: if group >= k { Granularity::Row } else { Granularity::Group(group) },
        scale_inv: (0..n).map(|s| (0.01 * (1.0 + 3.0 * noise(seed + 13 * s))) as f32).collect(),
        zero,
        scale_format: Format::F32,
        level: None,
    })
    .unwrap()
}

/// What a result in codes is multiplied by.
const OUT_SCALE: f32 = 32.0;

fn coded_by_one_scale(format: Format, rows: usize, cols: usize, values: impl Iterator<Item = f64>) -> QTensor {
    let code = |x: f64| format.encode(x * f64::from(OUT_SCALE), Rounding::NearestEven, Overflow::Saturate) as u8;
    QTensor::new(QTensorParts {
        format,
        rows,
        cols,
        codes: values.map(code).collect(),
        granularity: Granularity::Tensor,
        scale_inv: vec![1.0 / OUT_SCALE],
        zero: Zero::None,
        scale_format: Format::F32,
        level: None,
    })
    .unwrap()
}

/// What is found where a kernel writes `wrong(i, j, right)`, and its parameters.
pub fn found(
    a: &Operand,
    b: &QTensor,
    bias: Option<Vec<f32>>,
    out: Format,
    wrong: impl Fn(usize, usize, &[f64]) -> f64,
) -> (String, String) {
    found_of((Op::Gemm, None), a, b, bias, out, wrong)
}

/// The same of a grouped product whose groups end at these rows.
pub fn grouped_found(
    a: &Operand,
    b: &QTensor,
    offs: &[usize],
    out: Format,
    wrong: impl Fn(usize, usize) -> f64,
) -> (String, String) {
    found_of((Op::GroupedGemm, Some(offs.to_vec())), a, b, None, out, |i, j, _| wrong(i, j))
}

/// The same with a bias of each expert, one after the other.
pub fn grouped_biased_found(
    a: &Operand,
    b: &QTensor,
    offs: &[usize],
    bias: Vec<f32>,
    out: Format,
    wrong: impl Fn(usize, usize) -> f64,
) -> (String, String) {
    found_of((Op::GroupedGemm, Some(offs.to_vec())), a, b, Some(bias), out, |i, j, _| wrong(i, j))
}

/// The same of a gradient of weights whose groups sum the tokens up to these.
pub fn wgrad_found(
    a: &Operand,
    b: &QTensor,
    offs: &[usize],
    out: Format,
    wrong: impl Fn(usize, usize) -> f64,
) -> (String, String) {
    found_of((Op::GroupedGemmWgrad, Some(offs.to_vec())), a, b, None, out, |i, j, _| wrong(i, j))
}

/// The same of operands whose groups were quantized each by itself.
pub fn groups_found(a: &[QTensor], b: &[QTensor], offs: &[usize], wrong: impl Fn(usize, usize) -> f64) -> (String, String) {
    let of = |groups: &[QTensor]| Operand::Groups(groups.to_vec());
    of_evidence(
        (Op::GroupedGemmWgrad, Some(offs.to_vec())),
        (&of(a), &of(b)),
        None,
        Format::F32,
        |i, j, _| wrong(i, j),
        |of| {
            let d = diagnose(of, Duration::from_secs(3600)).unwrap().expect("something is wrong");
            d.findings.first().map_or((d.line(), String::new()), |f| (f.fault.clone(), f.detail.clone()))
        },
    )
}

fn found_of(
    op: (Op, Option<Vec<usize>>),
    a: &Operand,
    b: &QTensor,
    bias: Option<Vec<f32>>,
    out: Format,
    wrong: impl Fn(usize, usize, &[f64]) -> f64,
) -> (String, String) {
    of_evidence(op, (a, &Operand::Quantized(b.clone())), bias, out, wrong, |of| {
        let d = diagnose(of, Duration::from_secs(3600)).unwrap().expect("something is wrong");
        d.findings.first().map_or((d.line(), String::new()), |f| (f.fault.clone(), f.detail.clone()))
    })
}

/// What `of` says of the system of a product that a kernel writes wrong.
pub fn of_system<T>(
    a: &Operand,
    b: &QTensor,
    out: Format,
    wrong: impl Fn(usize, usize, &[f64]) -> f64,
    of: impl FnOnce(&System) -> T,
) -> T {
    of_evidence((Op::Gemm, None), (a, &Operand::Quantized(b.clone())), None, out, wrong, |evidence| {
        let scene = Scene::new(evidence).unwrap();
        of(&System::new(&scene).unwrap().held_to(scene.tight()).unwrap())
    })
}

fn of_evidence<T>(
    (op, offs): (Op, Option<Vec<usize>>),
    (a, b): (&Operand, &Operand),
    bias: Option<Vec<f32>>,
    out: Format,
    wrong: impl Fn(usize, usize, &[f64]) -> f64,
    of: impl FnOnce(Evidence) -> T,
) -> T {
    let wide = bias.as_ref().map(|v| v.iter().map(|x| f64::from(*x)).collect());
    let groups = offs.as_ref().map_or(1, Vec::len);
    let (rows, cols) = match op {
        Op::GroupedGemmWgrad => (groups * a.rows(), b.rows()),
        _ => (a.rows(), b.rows() / groups),
    };
    let args = Args64 { a: a.to_f64(), b: Some(b.to_f64()), bias: wide, offs: offs.clone(), ..Args64::default() };
    let ideal = op::define(op, &Params::default(), &args).unwrap();
    let right: Vec<f64> = ideal.d.iter().copied().collect();
    let bias = bias.map(|v| Tensor::new(Format::F32, v.len() / cols, cols, v).unwrap());
    let operands = Operands { bias, offs, ..Operands::of(a.clone(), Some(b.clone())) };
    let integers = matches!((a, b), (Operand::Quantized(a), Operand::Quantized(b)) if a.format().is_integer() && b.format() == Format::Int8);
    let inner = if integers { Inner::Int32 } else { Inner::F32Sequential };
    // Eight bits by one scale of the tensor.
    let coded = out.bits() == 8;
    let spec = if coded { OutSpec::Scaled { format: out, scale: vec![Some(OUT_SCALE)] } } else { OutSpec::High(out) };
    let job = Job { op, params: Params::default(), operands, out: spec, accumulator: Some(Accumulator::new(inner)) };
    let built = Built::of(job, vec![ideal]);
    let written = (0..rows * cols).map(|at| wrong(at / cols, at % cols, &right));
    let d = match coded {
        true => Data::Quantized(coded_by_one_scale(out, rows, cols, written)),
        false => Data::High(Tensor::new(out, rows, cols, written.map(|x| round_to(out, x as f32)).collect()).unwrap()),
    };
    let output = Output { parts: vec![Part { d, transpose: None, amax: None }], dbias: None, mean: None, rsigma: None };
    let judged = evidence::judge(&built, Backend::External, &output, None).unwrap();
    of(Evidence::new(&built.job, &output, Backend::External, &judged))
}

pub fn wide(rows: usize, k: usize) -> Operand {
    let v = (0..rows * k).map(|x| round_to(Format::Bf16, (2.0 * noise(3 * x + 5) - 1.0) as f32)).collect();
    Operand::High(Tensor::new(Format::Bf16, rows, k, v).unwrap())
}

pub fn sum(k: usize, f: impl Fn(usize) -> f64) -> f64 {
    (0..k).map(f).sum()
}

pub const M: usize = 32;
pub const N: usize = 48;

#[test]
fn a_difference_that_wraps_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::Uint4, N, 64, 32, true, 1));
    let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
    let (x, q) = (a.to_f64(), b.codes());
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(64, |k| {
            let cell = j * 2 + k / 32;
            let d = f64::from(q[j * 64 + k]) - f64::from(z[cell]);
            x[[i, k]] * d.rem_euclid(256.0) * f64::from(b.scale_inv()[cell])
        })
    });
    assert_eq!(got.0, "overflow_wrap:b.difference", "{}", got.1);
}

#[test]
fn words_along_the_other_axis_are_told() {
    let (a, b) = (wide(M, 64), codes(Format::Uint4, N, 64, 64, true, 2));
    let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
    let (x, q) = (a.to_f64(), b.codes());
    // Stored [K][N/8], eight of N a word; read [K/8][N], eight of K a word.
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(64, |k| {
            let word = k / 8 * N + j;
            let code = q[(word % (N / 8) * 8 + k % 8) * 64 + word / (N / 8)];
            x[[i, k]] * (f64::from(code) - f64::from(z[j])) * f64::from(b.scale_inv()[j])
        })
    });
    assert_eq!(got.0, "pack_permute:b.packed_axis", "{}", got.1);
    assert!(got.1.contains("words of 8 as [K][N/8] along N and read as [K/8][N] along K"), "{}", got.1);
}

#[test]
fn tiles_of_another_height_are_told() {
    let (k_all, a, b) = (128, codes(Format::E4m3, M, 128, 128, false, 3), codes(Format::E4m3, 64, 128, 128, false, 4));
    let (x, f) = (a.dequantize(), |c: u8| Format::E4m3.decode(u32::from(c)));
    let got = found(&Operand::Quantized(a), &b, None, Format::Bf16, |i, j, _| {
        sum(k_all, |k| {
            let flat = (j / 32 * (k_all / 16) + k / 16) * 512 + j % 32 * 16 + k % 16;
            let (t, y) = (flat / 256, flat % 256);
            let at = (t / (k_all / 16) * 16 + y / 16) * k_all + t % (k_all / 16) * 16 + y % 16;
            x[[i, k]] * f(b.codes()[at]) * f64::from(b.scale_inv()[j])
        })
    });
    assert_eq!(got.0, "pack_permute:b.tiles", "{}", got.1);
    assert!(got.1.contains("in tiles of 16 rows × 16 of K and read in tiles of 32 rows × 16 of K"), "{}", got.1);
}

#[test]
fn pairs_that_saturate_are_told() {
    let (a, b) = (codes(Format::Int8, M, 64, 64, false, 5), codes(Format::Int8, N, 64, 64, false, 6));
    let (p, q) = (a.codes().to_vec(), b.codes().to_vec());
    let (sa, sb) = (a.scale_inv().to_vec(), b.scale_inv().to_vec());
    let code = |c: u8| f64::from(c as i8);
    let got = found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
        // Without a sign, products eight apart, less what the missing sign adds.
        let unsigned = sum(32, |x| {
            let k = x / 8 * 16 + x % 8;
            let one = |k: usize| (code(p[i * 64 + k]) + 128.0) * code(q[j * 64 + k]);
            (one(k) + one(k + 8)).clamp(-32768.0, 32767.0)
        }) - 128.0 * sum(64, |k| code(q[j * 64 + k]));
        unsigned * f64::from(sa[i]) * f64::from(sb[j])
    });
    assert_eq!(got.0, "overflow_wrap:out.pairs_16_bits", "{}", got.1);
    assert!(got.1.contains("sums of 2 products 8 apart are clamped at 16 bits, the codes of a without a sign"), "{}", got.1);
}

#[test]
fn taps_of_a_window_that_wrap_are_told() {
    const K: usize = 72;
    let (a, b) = (codes(Format::Int8, M, K, K, false, 25), codes(Format::Int8, N, K, K, false, 26));
    let code = |q: &QTensor, x: usize, k: usize| f64::from(q.codes()[x * K + k] as i8);
    let wraps = |x: f64| (x + 32768.0).rem_euclid(65536.0) - 32768.0;
    let of = |tap: &dyn Fn(usize, usize) -> usize| {
        found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
            let sums = sum(8, |c| wraps(sum(9, |t| code(&a, i, tap(c, t)) * code(&b, j, tap(c, t)))));
            sums * f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j])
        })
    };
    let got = of(&|c, t| c * 9 + t);
    assert_eq!(got.0, "overflow_wrap:out.pairs_16_bits", "{}", got.1);
    assert!(got.1.contains("sums of 9 neighbouring products wrap at 16 bits"), "{}", got.1);
    let got = of(&|c, t| t * 8 + c);
    assert!(got.1.contains("sums of every 8th product of all K wrap at 16 bits"), "{} {}", got.0, got.1);
}

#[test]
fn tiles_that_changed_places_are_told() {
    let (a, b) = (wide(64, 64), codes(Format::E4m3, 64, 64, 64, false, 7));
    let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
        let (ti, tj) = (i / 32, j / 32);
        right[(tj * 32 + i % 32) * 64 + ti * 32 + j % 32]
    });
    assert_eq!(got.0, "addressing:out.tiles_moved", "{}", got.1);
    assert!(got.1.contains("32×32, tile (i, j) holds tile (j, i)"), "{}", got.1);
}

#[test]
fn an_order_within_tiles_is_told() {
    let (a, b) = (wide(64, 64), codes(Format::E4m3, 64, 64, 64, false, 8));
    // Halves of the rows of a tile beside each other: no formula of rows or columns alone.
    let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
        let (u, v) = (i % 16, j % 16);
        let x = (u * 16 + v) * 3 % 256;
        right[(i / 16 * 16 + x / 16) * 64 + j / 16 * 16 + x % 16]
    });
    assert_eq!(got.0, "addressing:out.tile_order", "{}", got.1);
}

#[test]
fn a_bias_in_another_order_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 9));
    let bias: Vec<f32> = (0..N).map(|j| round_to(Format::Bf16, 8.0 * (noise(j + 900) - 0.5) as f32)).collect();
    let other = |j: usize| j / 16 * 16 + (j % 16 * 5 + 3) % 16;
    let moved = bias.clone();
    let got = found(&a, &b, Some(bias), Format::Bf16, |i, j, right| {
        right[i * N + j] - f64::from(moved[j]) + f64::from(moved[other(j)])
    });
    assert_eq!(got.0, "addressing:out.bias_moved", "{}", got.1);
}

/// The result was stored without its bias, which another kernel adds.
#[test]
fn a_bias_in_another_order_behind_a_rounding_is_told() {
    let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 9));
    let bias: Vec<f32> = (0..N).map(|j| round_to(Format::Bf16, 8.0 * (noise(j + 900) - 0.5) as f32)).collect();
    let other = |j: usize| j / 16 * 16 + (j % 16 * 5 + 3) % 16;
    let moved = bias.clone();
    let got = found(&a, &b, Some(bias), Format::Bf16, |i, j, right| {
        let stored = round_to(Format::Bf16, (right[i * N + j] - f64::from(moved[j])) as f32);
        f64::from(stored + moved[other(j)])
    });
    assert_eq!(got.0, "addressing:out.bias_moved", "{}", got.1);
    assert!(got.1.contains("within every 16") && got.1.ends_with("rounded to the type of the result before it"), "{}", got.1);
}

#[test]
fn lanes_in_an_order_of_nobody_are_told() {
    let (k_all, order) = (64, [3usize, 6, 0, 7, 5, 1, 4, 2]);
    let (a, b) = (wide(M, k_all), codes(Format::E4m3, N, k_all, k_all, false, 10));
    let (x, y) = (a.to_f64(), b.dequantize());
    let got = found(&a, &b, None, Format::F32, |i, j, _| sum(k_all, |k| x[[i, k]] * y[[j, k / 8 * 8 + order[k % 8]]]));
    assert_eq!(got.0, "pack_permute:b.k_lanes", "{}", got.1);
    assert!(got.1.contains("every 8 of K as 3, 6, 0, 7, 5, 1, 4, 2"), "{}", got.1);
}

#[test]
fn scales_without_their_offset_are_told() {
    let (a, b) = (wide(M, 128), codes(Format::Uint4, N, 128, 32, true, 11));
    let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
    let mean = b.scale_inv().iter().map(|s| f64::from(*s)).sum::<f64>() / b.scale_inv().len() as f64;
    let (x, q) = (a.to_f64(), b.codes());
    let got = found(&a, &b, None, Format::F32, |i, j, _| {
        sum(128, |k| {
            let cell = j * 4 + k / 32;
            x[[i, k]] * (f64::from(q[j * 128 + k]) - f64::from(z[cell])) * (f64::from(b.scale_inv()[cell]) - mean)
        })
    });
    assert_eq!(got.0, "scale_omitted:b.offset", "{}", got.1);
    assert!(got.1.contains("lack their mean"), "{}", got.1);
}
