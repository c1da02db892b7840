//! The definition and the fast paths against tables made elsewhere (`data/golden`, ml_dtypes).

use half::{bf16, f16};
use qassay::format::fast::{Decoder, Encoder};
use qassay::{Format, Overflow, Rounding};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

fn golden(name: &str) -> csv::Reader<std::fs::File> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden").join(name);
    csv::Reader::from_path(path).unwrap()
}

#[test]
fn every_code_decodes_as_the_table_says() {
    let mut seen = BTreeMap::<Format, u32>::new();
    for record in golden("decode_tables.csv").records() {
        let record = record.unwrap();
        let format: Format = record[0].parse().unwrap();
        let code: u32 = record[1].parse().unwrap();
        // The table gives a NaN no bits.
        let bits = if &record[2] == "NaN" { f64::NAN.to_bits() } else { u64::from_str_radix(&record[3], 16).unwrap() };
        let want = f64::from_bits(bits);
        for found in [format.decode(code), Decoder::new(format).unwrap().decode_f64(code as u8)] {
            let same = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
            assert!(same, "{format} {code:#x}: {found}, table {want}");
        }
        *seen.entry(format).or_default() += 1;
    }
    let floats = qassay::format::FORMATS.iter().filter(|f| f.bits <= 8 && !f.integer);
    assert_eq!(seen, floats.map(|f| (f.format, 1 << f.bits)).collect());
}

/// The values of all bit patterns of a 16-bit format that the rule feeds in.
fn inputs(source: &str, rule: &str) -> Vec<f32> {
    let decode: fn(u16) -> f32 = match source {
        "f16" => |bits| f16::from_bits(bits).to_f32(),
        "bf16" => |bits| bf16::from_bits(bits).to_f32(),
        other => panic!("source {other}"),
    };
    let keep = |x: &f32| if rule == "rne_saturate" { !x.is_nan() } else { x.is_finite() };
    (0..=u16::MAX).map(decode).filter(keep).collect()
}

#[test]
fn every_16_bit_pattern_encodes_as_the_digests_say() {
    let mut rows = 0;
    for record in golden("encode_digests.csv").records() {
        let record = record.unwrap();
        let (format, rule): (Format, &str) = (record[1].parse().unwrap(), &record[2]);
        let overflow = match rule {
            "rne_saturate" => Overflow::Saturate,
            "rne_no_saturate" => Overflow::Native,
            other => panic!("rule {other}"),
        };
        let values = inputs(&record[0], rule);
        assert_eq!(values.len().to_string(), record[3], "inputs of {record:?}");
        let slow = values.iter().map(|x| format.encode(f64::from(*x), Rounding::NearestEven, overflow) as u8).collect();
        let mut fast = vec![0; values.len()];
        Encoder::new(format, overflow).unwrap().encode_slice(&values, 1.0, &mut fast).unwrap();
        for (path, codes) in [("definition", slow), ("fast", fast)] {
            let digest: String = Sha256::digest(&codes).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(digest, record[4], "{path} {record:?}");
        }
        rows += 1;
    }
    assert_eq!(rows, 28);
}

/// f16 and bf16 themselves against the half crate, which is bit-equal to NVIDIA's host code.
#[test]
fn f16_and_bf16_agree_with_half() {
    let comb = (0..=u32::MAX).step_by(8191).map(f32::from_bits);
    let halves = (0..=u16::MAX).flat_map(|b| {
        let (x, y) = (f16::from_bits(b).to_f32(), bf16::from_bits(b).to_f32());
        [x, x.next_up(), x.next_down(), y, y.next_up(), y.next_down(), (x + f16::from_bits(b.wrapping_add(1)).to_f32()) / 2.0]
    });
    for x in comb.chain(halves).filter(|x| !x.is_nan()) {
        let encode = |f: Format| f.encode(f64::from(x), Rounding::NearestEven, Overflow::Native);
        assert_eq!(encode(Format::F16), u32::from(f16::from_f32(x).to_bits()), "f16 {x:e}");
        assert_eq!(encode(Format::Bf16), u32::from(bf16::from_f32(x).to_bits()), "bf16 {x:e}");
        assert_eq!(encode(Format::F32), x.to_bits(), "f32 {x:e}");
    }
    for code in 0..=u16::MAX {
        let pairs = [(Format::F16, f16::from_bits(code).to_f64()), (Format::Bf16, bf16::from_bits(code).to_f64())];
        for (f, want) in pairs {
            let found = f.decode(code.into());
            assert!(found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan()), "{f} {code:#x}");
        }
    }
}

/// f32 from f64, against the processor.
#[test]
fn f32_agrees_with_the_processor() {
    let mut bits = 1u64;
    for _ in 0..2_000_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Exponents around f32's range, mantissas whose low 29 bits are often at or beside the halfway point.
        let exponent = 1023 - 160 + (bits >> 54) % 320;
        let low = [bits & 0x1fff_ffff, 0x1000_0000, 0x0fff_ffff, 0x1000_0001][(bits >> 50) as usize % 4];
        let x = f64::from_bits((bits >> 63) << 63 | exponent << 52 | (bits & 0x000f_ffff_e000_0000) | low);
        assert_eq!(Format::F32.encode(x, Rounding::NearestEven, Overflow::Native), (x as f32).to_bits(), "{x:e}");
    }
}
