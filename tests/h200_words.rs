//! Words that an H200's 16-bit tensor-core instructions returned for operands made to tell models apart: `data/golden/h200/words.csv`.

use qassay::Format;
use qassay::model::mma::step;
use qassay::model::table::{Unit, find};
use std::path::Path;

/// The values of hex words of `format`.
fn values(format: Format, hex: &str) -> Vec<f32> {
    let digits = format.bits().div_ceil(16) as usize * 4;
    let bits = |w: &[u8]| u32::from_str_radix(std::str::from_utf8(w).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(digits).map(|w| value(format, bits(w))).collect()
}

fn value(format: Format, bits: u32) -> f32 {
    match format {
        Format::F16 => half::f16::from_bits(bits as u16).to_f32(),
        Format::Bf16 => half::bf16::from_bits(bits as u16).to_f32(),
        _ => f32::from_bits(bits),
    }
}

#[test]
fn every_word_is_the_models() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/h200/words.csv");
    let (mut seen, mut wrong) = (0, Vec::new());
    for row in csv::Reader::from_path(path).unwrap().records() {
        let row = row.unwrap();
        let (unit, instruction) = (&row[0], &row[1]);
        let (format, dest) = match unit {
            "f16_f16" => (Format::F16, Format::F16),
            "f16_f32" => (Format::F16, Format::F32),
            "bf16_f32" => (Format::Bf16, Format::F32),
            // A word of tf32 is an f32 whose low 13 bits the instruction does not read.
            "tf32_f32" => (Format::Tf32, Format::F32),
            other => panic!("unit {other}"),
        };
        let model = match (instruction.starts_with("wgmma"), dest) {
            (true, Format::F16) => "hopper_wgmma_f16",
            (false, Format::F16) => "hopper_mma_f16",
            _ => "hopper_mma",
        };
        let Unit::Step(s) = find(model).unwrap().unit(format, format).unwrap() else { panic!("{model} is no single step") };
        let read = |hex: &str| -> Vec<f32> {
            let tf32 = |x: f32| f32::from_bits(x.to_bits() & !0x1fff);
            values(format, hex).into_iter().map(|x| if format == Format::Tf32 { tf32(x) } else { x }).collect()
        };
        let (a, b) = (read(&row[3]), read(&row[4]));
        let word = |hex: &str| value(dest, u32::from_str_radix(hex, 16).unwrap());
        let (model, found) = (step(s, format, format, &a, &b, word(&row[5])), word(&row[6]));
        seen += 1;
        if model.to_bits() != found.to_bits() && !(model.is_nan() && found.is_nan()) {
            wrong.push(format!("{unit} {instruction} {}: the H200 returned {found:e}, the model {model:e}", &row[2]));
        }
    }
    assert!(seen > 1000, "{seen} words");
    assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
}
