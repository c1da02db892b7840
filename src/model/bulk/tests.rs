//! Bulk sums against the obvious ones, bit for bit.

use super::{Matrix, sums};
use crate::Format;
use crate::input::philox::Stream;
use crate::model::Accumulator;
use crate::model::accumulate::accumulate;
use Format::{E4m3, E5m2};

/// Where random factors come from.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// Every finite code as likely as any other: sums over the whole range of exponents.
    Codes,
    /// Codes of one sign and few exponents: long carries, accumulators that dominate.
    Positive,
    /// Few nonzero factors, many subnormal.
    Sparse,
    /// Pairs that cancel.
    Cancelling,
    /// Every code, NaN and Inf too.
    Special,
}

fn matrix(format: Format, rows: usize, k: usize, data: Data, seed: u64) -> Matrix {
    let stream = Stream::new(seed, 5);
    let mut values: Vec<f32> = Vec::with_capacity(rows * k);
    for i in 0..rows * k {
        let [w, v, ..] = stream.words(0, i as u64);
        let mut code = w >> 5 & ((1 << format.bits().min(16)) - 1);
        let sign = 1 << (format.bits().min(16) - 1);
        match data {
            Data::Positive => code = format.encode(1.0, crate::Rounding::NearestEven, crate::Overflow::Native) & !sign | v & 3,
            Data::Sparse if v % 4 != 0 => code &= sign | ((v >> 8 & 1) * 7),
            Data::Sparse | Data::Codes | Data::Special => {}
            Data::Cancelling if i % 2 == 1 => {
                values.push(-values[i - 1]);
                continue;
            }
            Data::Cancelling => {}
        }
        let x = format.decode(code) as f32;
        let rare = matches!(data, Data::Special) && (v >> 8) % 50 == 0;
        values.push(if x.is_finite() || rare { x } else { 0.0 });
    }
    Matrix { format, rows, k, values }
}

fn agree(acc: &str, fa: Format, fb: Format, (m, n, k): (usize, usize, usize), data: Data, seed: u64) {
    let acc: Accumulator = acc.parse().unwrap();
    let (a, b) = (
        matrix(fa, m, k, data, seed),
        matrix(fb, n, k, if matches!(data, Data::Cancelling) { Data::Positive } else { data }, seed + 1),
    );
    let mut out = vec![f32::NAN; m * n];
    sums(&acc, &a, &b, &mut out).unwrap();
    for i in 0..m {
        for j in 0..n {
            let want = accumulate(&acc, fa, fb, a.row(i), b.row(j)).unwrap();
            let got = out[i * n + j];
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{acc} {fa}×{fb} {data:?} ({i},{j}) of {m}×{n}×{k}: {got:e} not {want:e}"
            );
        }
    }
}

const ALL: [Data; 5] = [Data::Codes, Data::Positive, Data::Sparse, Data::Cancelling, Data::Special];

#[test]
fn fp8_through_13_bits() {
    for (s, data) in ALL.into_iter().enumerate() {
        for (fa, fb) in [(E4m3, E4m3), (E5m2, E4m3), (E5m2, E5m2)] {
            for acc in ["hopper_wgmma", "hopper_wgmma@128", "hopper_wgmma@48", "ada_mma", "ada_mma@32"] {
                agree(acc, fa, fb, (5, 35, 200), data, 10 * s as u64);
            }
        }
        for k in [0, 1, 15, 16, 31, 32, 33, 97, 1024] {
            agree("hopper_wgmma", E4m3, E4m3, (3, 33, k), data, 100 + k as u64);
        }
    }
}

#[test]
fn every_device_model_and_format() {
    use Format::{Bf16, E2m1, E3m2, F16, Tf32};
    for m in crate::model::table::MODELS {
        for (fa, fb) in [(E4m3, E4m3), (E5m2, E4m3), (E5m2, E5m2), (F16, F16), (Bf16, Bf16), (Tf32, Tf32), (E2m1, E3m2)] {
            if m.unit(fa, fb).is_err() {
                continue;
            }
            for (s, data) in ALL.into_iter().enumerate() {
                agree(m.name, fa, fb, (3, 33, 150), data, 200 + s as u64);
                agree(&format!("{}@40", m.name), fa, fb, (2, 5, 100), data, 300 + s as u64);
            }
            for k in [0, 1, 7, 17, 33] {
                agree(m.name, fa, fb, (2, 3, k), Data::Codes, 400 + k as u64);
            }
        }
    }
}

#[test]
fn ieee_and_exact_sums() {
    use Format::{Bf16, F16, F32, Int4, Int8};
    for acc in ["exact", "f32_sequential", "f32_pairwise", "exact@64", "f32_sequential@64", "f32_pairwise@30"] {
        for (fa, fb) in [(E4m3, E5m2), (F16, F16), (Bf16, Bf16), (F32, F32), (Int8, Int4)] {
            for (s, data) in ALL.into_iter().enumerate() {
                agree(acc, fa, fb, (3, 35, 150), data, 500 + s as u64);
            }
            for k in [0, 1, 2, 3, 30, 31, 33, 64, 127] {
                agree(acc, fa, fb, (2, 3, k), Data::Codes, 600 + k as u64);
            }
        }
    }
}

/// Sums in f64 are taken where they are exact and nowhere else; a zero says nothing of the range of its neighbours.
#[test]
fn doubles_are_taken_where_they_hold_every_sum() {
    let row = |values: [f32; 3]| Matrix { format: Format::F32, rows: 1, k: 3, values: values.to_vec() };
    let taken = |a: [f32; 3]| super::ieee::exact(3, &row(a), &row([0.5, 0.0, 1.0]), &mut [0.0]);
    assert!(taken([3.0, 0.0, -7.0]));
    assert!(!taken([1.0, 0.0, 2f32.powi(-60)]));
}

/// 16 products of 2^28 are 2^32, of one bit each: f64 holds them however large they are.
#[test]
fn the_room_that_exact_sums_need_grows_by_the_logarithm_of_k() {
    let of = |x: f32, k: usize| Matrix { format: Format::Bf16, rows: 1, k, values: vec![x; k] };
    let mut out = [0.0];
    assert!(super::ieee::exact(16, &of(16384.0, 16), &of(16384.0, 16), &mut out));
    assert_eq!(out, [4294967296.0]);
}

/// Factors of 1 and 2^e on both sides: their products have 2·e bits between them, their sums one more, and each end a bit of its own.
#[test]
fn large_exponents_of_both_sides_are_added() {
    let of = |x: &[f32]| Matrix { format: Format::F32, rows: 1, k: x.len(), values: x.to_vec() };
    let taken = |e: i32| super::ieee::exact(2, &of(&[2f32.powi(e), 1.0]), &of(&[2f32.powi(e), 1.0]), &mut [0.0]);
    assert_eq!([24, 25, 26, 27, 40].map(taken), [true, true, false, false, false]);
    assert_eq!([-24, -25, -26, -27, -40].map(taken), [true, true, false, false, false]);
}
