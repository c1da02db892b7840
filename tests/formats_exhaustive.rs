//! The fast path over all 2³² f32 patterns against the float8 crate, and the bench. Release builds only: `make test` runs
//! `cargo test --release --test formats_exhaustive`.
#![cfg(not(debug_assertions))]

use float8::{F8E4M3, F8E5M2};
use qassay::format::bench::{bench_codec, table};
use qassay::format::fast::Encoder;
use qassay::{Format, Overflow};
use rayon::prelude::*;

/// Counts patterns whose code differs; NaN inputs need a NaN code, whichever.
fn mismatches(format: Format, reference: fn(f32) -> u8) -> u64 {
    const CHUNK: usize = 1 << 16;
    let encoder = Encoder::new(format, Overflow::Saturate).unwrap();
    (0..(1u64 << 32) / CHUNK as u64)
        .into_par_iter()
        .map_init(
            || (vec![0f32; CHUNK], vec![0u8; CHUNK]),
            |(values, codes), chunk| {
                let first = (chunk * CHUNK as u64) as u32;
                values.iter_mut().zip(first..).for_each(|(x, bits)| *x = f32::from_bits(bits));
                encoder.encode_slice(values, 1.0, codes).unwrap();
                let same = |x: f32, c: u8| match x.is_nan() {
                    true => format.decode(c.into()).is_nan() && format.decode(reference(x).into()).is_nan(),
                    false => c == reference(x),
                };
                values.iter().zip(codes.iter()).filter(|(x, c)| !same(**x, **c)).count() as u64
            },
        )
        .sum()
}

#[test]
fn every_f32_to_e4m3() {
    assert_eq!(mismatches(Format::E4m3, |x| F8E4M3::from_f32(x).to_bits()), 0);
}

#[test]
fn every_f32_to_e5m2() {
    assert_eq!(mismatches(Format::E5m2, |x| F8E5M2::from_f32(x).to_bits()), 0);
}

#[test]
fn the_bench_measures_every_path() {
    let rows = bench_codec().unwrap();
    println!("{}", table(&rows)); // with --nocapture
    assert!(rows.iter().all(|r| r.gelem_per_s > 0.0 && r.gelem_per_s.is_finite() && r.of_copy > 0.0));
    assert_eq!(rows[0].of_copy, 1.0);
    for f in qassay::format::FORMATS.iter().filter(|f| f.bits <= 8) {
        let paths = rows.iter().filter(|r| r.name.split([' ', ',']).any(|word| word == f.name)).count();
        assert!(paths >= 2, "{}: encode and decode", f.name);
    }
}
