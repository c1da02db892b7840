//! Every recipe against data/golden/recipes, which numpy and ml_dtypes made from the sources' formulas without this crate.

use qassay::recipe::{RECIPES, Recipe};
use qassay::{Format, Tensor, Zero};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

fn rows(file: &str) -> Vec<Vec<String>> {
    let path = format!("{}/data/golden/recipes/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.records().map(|r| r.unwrap().iter().map(String::from).collect()).collect()
}

/// The first 64 bits of the SHA-256.
fn digest(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes)[..8].iter().map(|b| format!("{b:02x}")).collect()
}
fn canonical(v: f32) -> u32 {
    if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() }
}
fn digest_f32(values: &[f32]) -> String {
    digest(values.iter().flat_map(|v| canonical(*v).to_le_bytes()).collect::<Vec<_>>())
}

/// The generator of make.py.
fn generate(kind: &str, dtype: Format, rows: usize, cols: usize, seed: u32) -> Tensor {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let unit = |w: u32| (f64::from(w >> 8) - 8_388_608.0) / 8_388_608.0;
    let mut top = 0f32;
    let value = |i: usize| match kind {
        "bits" if dtype == Format::F32 => f32::from_bits(word()),
        "bits" => dtype.decode(word() >> 16) as f32,
        "sum" => (unit(word()) + unit(word()) + unit(word())) as f32,
        "wide" => {
            let v = unit(word());
            (v * 2f64.powi(((word() >> 8) % 13) as i32 - 6)) as f32
        }
        "skewed" => (unit(word()) + 1.5) as f32,
        "zeros" => match (unit(word()), (i % cols / 16).is_multiple_of(3)) {
            (v, false) => v as f32,
            (v, true) => 0f32.copysign(if v < 0.0 { -1.0 } else { 1.0 }),
        },
        "tiny" => (unit(word()) / 512.0 * if (i / cols) % 2 == 1 { 1.0 / 64.0 } else { 1.0 }) as f32,
        "subnormal" => (unit(word()) * 2f64.powi(-127)) as f32,
        "powers" if i.is_multiple_of(32) => {
            let w = word();
            let largest = [448.0, 57344.0, 7.5, 28.0, 6.0][i / 32 % 5] * 2f64.powi(((w >> 8) % 121) as i32 - 60);
            top = f32::from_bits((largest as f32).to_bits() + (w >> 16) % 24);
            top
        }
        "powers" => (unit(word()) * 0.5 * f64::from(top)) as f32,
        _ => panic!("kind {kind}"),
    };
    Tensor::rounded(dtype, rows, cols, (0..rows * cols).map(value).collect()).unwrap()
}

#[test]
fn every_recipe_is_what_numpy_made() {
    let mut tensors = BTreeMap::new();
    for t in rows("tensors.csv") {
        let x = generate(&t[1], t[2].parse().unwrap(), t[3].parse().unwrap(), t[4].parse().unwrap(), t[5].parse().unwrap());
        assert_eq!(digest_f32(x.data()), t[6], "the generator differs: {}", t[0]);
        tensors.insert(t[0].clone(), x);
    }
    let (mut seen, mut wrong) = (BTreeSet::new(), vec![]);
    let golden = rows("recipes.csv");
    for r in &golden {
        let recipe: Recipe = r[1].parse().unwrap();
        seen.insert(recipe.name);
        let out = recipe.quantize(&tensors[&r[0]]).unwrap();
        let zero = match out.q.zero() {
            Zero::None => String::new(),
            Zero::Integer(z) => digest_f32(&z.iter().map(|z| *z as f32).collect::<Vec<_>>()),
            Zero::Additive { zero, .. } => digest_f32(zero),
        };
        let global = out.q.global_scale_inv().map_or(String::new(), |g| format!("{:08x}", canonical(g)));
        let first = format!("{:08x}", canonical(out.q.scale_inv()[0]));
        let found = [first, digest_f32(out.q.scale_inv()), zero, global, digest(out.q.codes())];
        for (what, (found, want)) in
            ["scale_inv[0]", "scale_inv", "zero", "global", "codes"].iter().zip(found.iter().zip(&r[2..]))
        {
            if found != want {
                wrong.push(format!("{} of {}: {what} {found}, golden {want}", r[1], r[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows differ:\n{}", wrong.len(), golden.len(), wrong.join("\n"));
    // HQQ has no portable bits to compare with.
    let missing: Vec<_> = RECIPES.iter().map(|r| r.name).filter(|n| !seen.contains(n) && *n != "hqq").collect();
    assert!(missing.is_empty(), "no golden vectors for {missing:?}");
}
