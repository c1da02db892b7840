//! The fast codecs against the definition.

use half::{bf16, f16};
use proptest::prelude::*;
use qassay::format::fast::{Decoder, Encoder, decode_bf16, decode_f16};
use qassay::format::{FORMATS, FormatSpec};
use qassay::{Format, Overflow, Rounding};

fn small() -> impl Iterator<Item = &'static FormatSpec> {
    FORMATS.iter().filter(|f| f.bits <= 8)
}

fn check(values: &[f32], scale: f32) {
    for f in small().map(|s| s.format) {
        for overflow in [Overflow::Saturate, Overflow::Native] {
            let encoder = Encoder::new(f, overflow).unwrap();
            let mut codes = vec![0; values.len()];
            encoder.encode_slice(values, scale, &mut codes).unwrap();
            for (x, code) in values.iter().zip(codes) {
                let want = f.encode(f64::from(*x * scale), Rounding::NearestEven, overflow);
                assert_eq!(u32::from(code), want, "{f} {overflow:?} {x:e} ({:#x}) · {scale}", x.to_bits());
                assert_eq!(encoder.encode(*x * scale), code, "{f} {overflow:?} {x:e}: one at a time");
            }
        }
    }
}

/// Every boundary of every format, ±2 ulp of f32, and the ends of f32's own ranges; both signs.
#[test]
fn every_boundary() {
    let mut values =
        vec![0.0, f32::INFINITY, f32::NAN, f32::from_bits(0x7f80_0001), f32::MAX, f32::from_bits(1), f32::MIN_POSITIVE];
    for f in small().map(|s| s.format) {
        for code in 0..=f.max_code() {
            let (x, gap) = (f.decode(code), f.ulp(f.decode(code)));
            for y in [x, x + gap / 2.0, x + gap] {
                let bits = (y as f32).to_bits();
                values.extend((bits.saturating_sub(2)..=bits + 2).map(f32::from_bits));
            }
        }
    }
    values.extend(values.clone().iter().map(|x| -x));
    check(&values, 1.0);
    check(&values, 0.75);
}

/// Lengths around the vector width: the tail of the loop is the loop.
#[test]
fn every_short_length() {
    for n in 0..200 {
        check(&(0..n).map(|i| (i as f32 - 70.0) * 3.17).collect::<Vec<_>>(), 1.3);
    }
}

/// One f32 in 4093 of all there are.
#[test]
fn a_comb_over_all_of_f32() {
    let values: Vec<f32> = (0..=u32::MAX).step_by(40_961).map(f32::from_bits).collect();
    check(&values, 1.0);
}

proptest! {
    #[test]
    fn any_bits_at_any_scale(bits in prop::collection::vec(any::<u32>(), 0..100), scale in any::<u32>()) {
        let scale = f32::from_bits(scale);
        check(&bits.into_iter().map(f32::from_bits).collect::<Vec<_>>(), scale);
    }
    #[test]
    fn values_near_one(values in prop::collection::vec(-600f32..600.0, 0..100), scale in 0.001f32..10.0) {
        check(&values, scale);
    }
}

#[test]
fn decoders_equal_the_definition_on_every_code() {
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let codes: Vec<u8> = (0..=255).collect();
    for f in small().map(|s| s.format) {
        let decoder = Decoder::new(f).unwrap();
        let mut values = vec![0.0; 256];
        decoder.decode_slice(&codes, &mut values).unwrap();
        for (code, x) in values.into_iter().enumerate() {
            let want = f.decode(code as u32);
            assert!(same(f64::from(x), want) && same(decoder.decode_f64(code as u8), want), "{f} {code:#x}: {x} {want}");
            assert!(same(f64::from(decoder.decode(code as u8)), want), "{f} {code:#x}");
        }
    }
    let mut values = vec![0.0; 1 << 16];
    decode_f16(&(0..=u16::MAX).map(f16::from_bits).collect::<Vec<_>>(), &mut values).unwrap();
    assert!(values.iter().zip(0..).all(|(x, c)| same(f64::from(*x), Format::F16.decode(c))));
    decode_bf16(&(0..=u16::MAX).map(bf16::from_bits).collect::<Vec<_>>(), &mut values).unwrap();
    assert!(values.iter().zip(0..).all(|(x, c)| same(f64::from(*x), Format::Bf16.decode(c))));
}

#[test]
fn wrong_formats_and_lengths_are_refused() {
    for f in [Format::F16, Format::Bf16, Format::Tf32, Format::F32] {
        assert!(Encoder::new(f, Overflow::Saturate).is_err() && Decoder::new(f).is_err());
    }
    let encoder = Encoder::new(Format::E4m3, Overflow::Saturate).unwrap();
    assert!(encoder.encode_slice(&[1.0; 3], 1.0, &mut [0; 2]).is_err());
    assert!(Decoder::new(Format::E4m3).unwrap().decode_slice(&[0; 3], &mut [0.0; 4]).is_err());
    assert!(decode_f16(&[f16::ONE], &mut []).is_err() && decode_bf16(&[bf16::ONE], &mut []).is_err());
}
