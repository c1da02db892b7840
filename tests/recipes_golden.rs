//! Every recipe against data/golden/recipes, which numpy and ml_dtypes made from the sources' formulas without this crate.

use qassay::recipe::{RECIPES, Recipe};
use qassay::{Format, Overflow, QTensor, Rounding, Tensor, Zero};
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
        let global = match out.q.level() {
            None => String::new(),
            Some(l) if l.is_whole() => format!("{:08x}", canonical(l.scale_inv[0])),
            Some(l) => digest_f32(&[&l.scale_inv[..], l.zero.as_deref().unwrap_or_default()].concat()),
        };
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

/// The bytes that the source stores: GGUF's block_q4_K, bitsandbytes' pairs of codes, the first in the high nibble.
fn stored(q: &QTensor) -> Vec<u8> {
    let Some(level) = q.level() else {
        return q.codes().chunks(2).map(|c| c[0] << 4 | c[1]).collect();
    };
    let (Zero::Additive { zero, .. }, Some(least)) = (q.zero(), &level.zero) else { panic!("two levels of both") };
    let half = |x: f32| (Format::F16.encode(f64::from(x), Rounding::NearestEven, Overflow::Native) as u16).to_le_bytes();
    let mut bytes = vec![];
    for (i, codes) in q.codes().chunks(256).enumerate() {
        bytes.extend(half(level.scale_inv[i]));
        bytes.extend(half(-least[i]));
        let mut packed = [0u8; 12];
        for j in 0..8 {
            let (s, m) = (q.scale_inv()[8 * i + j] as u8, zero[8 * i + j] as u8);
            if j < 4 {
                (packed[j], packed[j + 4]) = (s, m);
            } else {
                packed[j + 4] = s & 15 | m << 4;
                packed[j - 4] |= s >> 4 << 6;
                packed[j] |= m >> 4 << 6;
            }
        }
        bytes.extend(packed);
        codes.chunks(64).for_each(|c| bytes.extend((0..32).map(|l| c[l] | c[l + 32] << 4)));
    }
    bytes
}

/// What gguf and bitsandbytes read out of these bytes is what `dequantize_f32` says.
#[test]
fn other_libraries_read_the_same_values() {
    let tensors: BTreeMap<_, _> = rows("tensors.csv").into_iter().map(|t| (t[0].clone(), t)).collect();
    let all = rows("elsewhere.csv");
    assert!(["gguf_q4_k", "bnb_nf4"].iter().all(|name| all.iter().any(|r| r[1] == *name)));
    for r in all {
        let t = &tensors[&r[0]];
        let x = generate(&t[1], t[2].parse().unwrap(), t[3].parse().unwrap(), t[4].parse().unwrap(), t[5].parse().unwrap());
        let q = r[1].parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        let found = [digest(stored(&q)), digest_f32(q.dequantize_f32().as_slice().unwrap())];
        assert_eq!(found[..], r[2..4], "{} of {}", r[1], r[0]);
    }
}
