//! Every recipe against the second formulation in `recipe::check`, over random and edge tensors; and that check itself
//! against broken results.

use qassay::quant::{Level, QTensorParts};
use qassay::recipe::{RECIPES, Recipe, check};
use qassay::{Format, Overflow, QTensor, Rounding, Tensor, Zero};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const DTYPES: [Format; 3] = [Format::F32, Format::Bf16, Format::F16];

fn normal(rng: &mut StdRng) -> f32 {
    (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0
}

/// Tensors of many kinds, of a shape with short last groups and of exact ones.
fn tensors(dtype: Format) -> Vec<(String, Tensor)> {
    let mut rng = StdRng::seed_from_u64(7);
    let mut out = vec![];
    for (rows, cols) in [(3, 300), (130, 9), (1, 128), (3, 1)] {
        let n = rows * cols;
        let mut add = |name: &str, data: Vec<f32>| {
            let x = Tensor::rounded(dtype, rows, cols, data).unwrap();
            out.push((format!("{name} {rows}×{cols} {dtype}"), x));
        };
        let normals: Vec<f32> = (0..n).map(|_| normal(&mut rng)).collect();
        add("normal", normals.clone());
        add("tiny", normals.iter().map(|v| v * 1e-6).collect());
        add("very tiny", normals.iter().map(|v| v * 1e-39).collect());
        add("large", normals.iter().map(|v| v * 1e4).collect());
        add("huge", normals.iter().map(|v| v * 1e37).collect());
        add("positive", normals.iter().map(|v| v.abs() + 3.0).collect());
        add("outliers", normals.iter().enumerate().map(|(i, v)| if i % 37 == 5 { v * 300.0 } else { *v }).collect());
        add("zero rows", normals.iter().enumerate().map(|(i, v)| if (i / cols) % 2 == 0 { 0.0 } else { *v }).collect());
        add("signed zeros", (0..n).map(|i| if i % 2 == 0 { 0.0 } else { -0.0 }).collect());
        add("constant", vec![0.7; n]);
        add("powers of two", (0..n).map(|i| 2f32.powi((i % 41) as i32 - 20) * if i % 3 == 0 { -1.0 } else { 1.0 }).collect());
        add("steps", (0..n).map(|i| (i % 65) as f32 * 0.25 - 8.0).collect());
        add("nan", normals.iter().enumerate().map(|(i, v)| if i % 131 == 7 { f32::NAN } else { *v }).collect());
        add("inf", normals.iter().enumerate().map(|(i, v)| if i % 131 == 7 { f32::NEG_INFINITY } else { *v }).collect());
        // Any pattern the dtype has, non-finite ones included.
        add("patterns", (0..n).map(|_| f32::from_bits(rng.random::<u32>())).collect());
        add("finite patterns", {
            let finite = |rng: &mut StdRng| f32::from_bits(rng.random::<u32>() & 0xbfff_ffff);
            (0..n).map(|_| finite(&mut rng)).collect()
        });
        // Amaxes about the thresholds of each format, one a row.
        for max in [448.0f32, 57344.0, 240.0, 6.0, 7.5, 28.0, 127.0, 7.5e-6] {
            add(
                "thresholds",
                (0..n).map(|i| f32::from_bits((max.to_bits() as i64 + (i / cols) as i64 % 5 - 2) as u32)).collect(),
            );
        }
    }
    out
}

fn recipes() -> Vec<Recipe> {
    let mut out = vec![];
    for spec in RECIPES {
        for &format in spec.formats {
            let groups =
                if spec.free_group() { vec![None, Some(32), Some(64), Some(128), Some(100), Some(7)] } else { vec![None] };
            out.extend(groups.into_iter().map(|group| Recipe { name: spec.name, format, group }));
        }
    }
    out
}

#[test]
fn every_recipe_is_what_the_closed_form_says() {
    let mut cases = 0;
    for dtype in DTYPES {
        let tensors = tensors(dtype);
        for recipe in recipes() {
            for (name, x) in &tensors {
                match recipe.quantize(x) {
                    Ok(out) => {
                        let findings = check::verify(&recipe, x, &out.q);
                        assert!(findings.is_empty(), "{recipe} of {name}: {}", findings[0]);
                        cases += 1;
                    }
                    Err(e) => assert!(dtype == Format::F16 && e.to_string().contains("bf16 and f32 only"), "{recipe}: {e}"),
                }
            }
        }
    }
    assert!(cases > 10_000, "{cases} cases");
}

#[test]
fn a_broken_result_is_found() {
    let x = &tensors(Format::Bf16)[0].1;
    for recipe in recipes() {
        let parts = recipe.quantize(x).unwrap().q.into_parts();
        let expect = |what: &str, p: QTensorParts| {
            let findings = check::verify(&recipe, x, &QTensor::new(p).unwrap());
            assert!(findings.iter().any(|f| f.what == what), "{recipe}: {what} not among {findings:?}");
        };
        // A code off by one.
        let mut p = parts.clone();
        let mask = ((1u32 << p.format.bits()) - 1) as u8;
        p.codes[17] = p.codes[17].wrapping_add(if p.codes[17] & 15 == 15 { mask } else { 1 }) & mask;
        expect("code", p);
        // A scale off by one step of its format.
        let mut p = parts.clone();
        let bits = p.scale_format.encode(f64::from(p.scale_inv[0]), Rounding::NearestEven, Overflow::Native);
        p.scale_inv[0] = p.scale_format.decode(bits + 1) as f32;
        expect("scale_inv", p);
        if !matches!(parts.zero, Zero::None) && recipe.name != "hqq" {
            let mut p = parts.clone();
            p.zero = Zero::None;
            p.level = p.level.map(|l| Level { zero: None, ..l });
            expect("zero", p);
        }
        if let Some(level) = &parts.level {
            let mut p = parts.clone();
            p.level = Some(Level::whole(f32::from_bits(level.scale_inv[0].to_bits() ^ 1)));
            expect("global_scale_inv", p);
        }
    }
}
