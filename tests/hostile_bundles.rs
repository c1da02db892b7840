//! The bundle reader and the candidates' protocol take hostile input: no panic, no unbounded memory. `QASSAY_FUZZ` is how many inputs each
//! gets; a few thousand unless it says otherwise.

#[path = "common/hostile.rs"]
mod common;

use common::{Counting, Dice, FEARED, count, spoiled};
use qassay::bundle::{Bundle, Writer, assay, case};
use qassay::external::candidate::understood;
use qassay::kernel::{Backend, cpu, find};
use qassay::sweep::{Sweep, build};
use safetensors::Dtype;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SWEEP: &str = r#"
about = "small bundles of every kind"
[[cases]]
name = "gemm"
op = ["gemm"]
shape = ["3x5x32"]
recipe = ["te_current", "float8_rowwise", "te_block_1x128", "te_nvfp4"]
bias = [true]
out = ["bf16", "scaled:e4m3"]
accumulator = ["f32_sequential"]
[[cases]]
name = "w4"
op = ["gemm"]
shape = ["3x8x64"]
dtype = ["f16"]
recipe = ["int8_token_asym+affine_asym:int4:g32", "none+affine_asym:uint4:g32"]
accumulator = ["int32", "f32_sequential"]
out = ["f16"]
[[cases]]
name = "grouped"
op = ["grouped_gemm", "grouped_gemm_wgrad"]
shape = ["16x8"]
rows = ["2,0,3"]
recipe = ["float8_rowwise"]
accumulator = ["hopper_wgmma"]
[[cases]]
name = "rest"
op = ["cast", "layernorm", "activation", "gated"]
act = ["silu"]
shape = ["4x34"]
out = ["scaled:e4m3"]
[[cases]]
name = "back"
op = ["dequantize"]
shape = ["4x32"]
recipe = ["te_nvfp4", "affine_asym:int8:g16"]
out = ["f32"]
"#;

/// Bundles with their results.
fn bundles() -> Vec<Writer> {
    let sweep = Sweep::parse(Path::new("x.toml"), SWEEP, 0).unwrap();
    let made = |c: &qassay::sweep::Case| {
        let job = build::build(c).ok()?.job;
        let mut w = case::input(&job).ok()?;
        let kernel = find(cpu::KERNELS, &job, Backend::Cpu).ok()?;
        case::output(&mut w, &job, &kernel.run(&job).ok()?).ok()?;
        Some(w)
    };
    let all: Vec<Writer> = sweep.cases.iter().filter(|c| c.skip.is_none()).filter_map(made).collect();
    assert!(all.len() >= 14, "{}", all.len());
    all
}

fn read(bytes: &[u8]) -> bool {
    Bundle::parse(Path::new("x.safetensors"), bytes).is_ok()
}

/// Runs `f` on an input; a panic names it.
fn unharmed<T>(what: &str, i: usize, shown: impl Fn() -> String, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| panic!("{what}: input {i} panicked its reader: {}", shown()))
}

/// Bytes of whole bundles cut, flipped, spliced.
#[test]
fn bytes_of_bundles() {
    let whole: Vec<Vec<u8>> = bundles().iter().map(|w| w.to_bytes().unwrap()).collect();
    whole.iter().for_each(|b| assert!(read(b), "a bundle as it was is refused"));
    let (mut dice, mut accepted, n) = (Dice(1), 0, count());
    for i in 0..n {
        let bytes = spoiled(&whole[i % whole.len()], &mut dice);
        accepted += usize::from(unharmed("bytes", i, || String::from_utf8_lossy(&bytes).into(), || read(&bytes)));
    }
    eprintln!("bytes of bundles: {n} inputs, {accepted} accepted");
}

const DTYPES: [(Dtype, usize); 12] = [
    (Dtype::F64, 8),
    (Dtype::F32, 4),
    (Dtype::F16, 2),
    (Dtype::BF16, 2),
    (Dtype::F8_E4M3, 1),
    (Dtype::F8_E5M2, 1),
    (Dtype::F8_E8M0, 1),
    (Dtype::I32, 4),
    (Dtype::I64, 8),
    (Dtype::I8, 1),
    (Dtype::U8, 1),
    (Dtype::BOOL, 1),
];
const NAMES: [&str; 26] = [
    "a",
    "b",
    "a.codes",
    "b.codes",
    "a.scale_inv",
    "b.scale_inv",
    "a.zero_point",
    "b.zero_point",
    "a.global_scale_inv",
    "a.scale_history",
    "bias",
    "gamma",
    "beta",
    "offs",
    "out",
    "out.codes",
    "out.scale",
    "out.scale_inv",
    "out.zero_point",
    "out.global_scale_inv",
    "out.amax",
    "out.transpose",
    "a.scale",
    "c",
    "",
    "out.codes.",
];
const KEYS: [&str; 22] = [
    "qassay.bundle",
    "op",
    "recipe",
    "fn",
    "eps",
    "zero_centered_gamma",
    "device_model",
    "promote_every",
    "kernel",
    "device",
    "a.format",
    "b.format",
    "out.format",
    "a.granularity",
    "b.granularity",
    "out.granularity",
    "a.scale_format",
    "b.packing",
    "out.packing",
    "a.zero",
    "b.zero",
    "out.zero",
];
const VALUES: [&str; 48] = [
    "1",
    "0",
    "-1",
    "2",
    "cast",
    "dequantize",
    "activation",
    "layernorm",
    "rmsnorm",
    "gemm",
    "grouped_gemm",
    "grouped_gemm_wgrad",
    "f32",
    "bf16",
    "e4m3",
    "e5m2",
    "e4m3fnuz",
    "e2m1",
    "e3m2",
    "int8",
    "int4",
    "uint4",
    "e8m0",
    "tensor",
    "row",
    "group:1",
    "group:16",
    "group:18446744073709551615",
    "group:0",
    "block:1x1",
    "block:3x16",
    "block:4294967296x4294967296",
    "none",
    "low_first",
    "high_first",
    "integer",
    "additive",
    "te_current",
    "te_nvfp4",
    "affine_sym:int4:g18446744073709551615",
    "none+tinygemm",
    "silu",
    "swiglu",
    "1e-5",
    "nan",
    "hopper_wgmma",
    "exact",
    "NVIDIA H200",
];

/// A bundle with one to four well-formed changes: other names, dtypes, shapes, values, words.
fn twisted(whole: &Writer, dice: &mut Dice) -> Writer {
    let mut w = whole.clone();
    for _ in 0..=dice.below(3) {
        let names: Vec<String> = w.tensors().keys().cloned().collect();
        let name = names.get(dice.below(names.len())).cloned().unwrap_or_default();
        let Some((dtype, shape, mut bytes)) = w.tensors().get(&name).cloned() else { continue };
        match dice.below(7) {
            0 => drop(w.without(&name)),
            1 => drop(w.without(KEYS[dice.below(KEYS.len())])),
            2 => drop(w.meta(KEYS[dice.below(KEYS.len())], VALUES[dice.below(VALUES.len())])),
            3 => {
                // Its elements in another shape.
                let count: usize = shape.iter().product();
                let rows = dice.below(count.max(1)).max(1);
                let shape = match dice.below(5) {
                    0 => shape.iter().rev().copied().collect(),
                    1 => vec![count],
                    2 => [&[1], &shape[..]].concat(),
                    3 if count.is_multiple_of(rows) => vec![rows, count / rows],
                    _ => vec![0, usize::MAX >> dice.below(64)],
                };
                let bytes = if shape.contains(&0) { Vec::new() } else { bytes };
                w.raw(&name, dtype, &shape, bytes);
            }
            4 => {
                let (dtype, size) = DTYPES[dice.below(DTYPES.len())];
                bytes.resize(shape.iter().product::<usize>() * size, 0x40);
                w.raw(&name, dtype, &shape, bytes);
            }
            5 => {
                for _ in 0..=dice.below(16) {
                    let at = dice.below(bytes.len());
                    if let Some(b) = bytes.get_mut(at) {
                        *b = [0, 0xff, 0x7f, 0x80, dice.below(256) as u8][dice.below(5)];
                    }
                }
                w.raw(&name, dtype, &shape, bytes);
            }
            _ => drop(w.raw(NAMES[dice.below(NAMES.len())], dtype, &shape, bytes)),
        }
    }
    w
}

/// Whole files that contradict themselves. Some of those that are read are judged.
#[test]
fn bundles_that_contradict_themselves() {
    let whole = bundles();
    let (mut dice, mut accepted, mut judged, n) = (Dice(2), 0, 0, count());
    for i in 0..n {
        let w = twisted(&whole[i % whole.len()], &mut dice);
        let Ok(bytes) = w.to_bytes() else { continue };
        let shown = || format!("{:?} {:?}", w.metadata(), w.tensors().iter().map(|(n, t)| (n, t.0, &t.1)).collect::<Vec<_>>());
        let Some(bundle) = unharmed("twisted", i, shown, || Bundle::parse(Path::new("x"), &bytes).ok()) else { continue };
        accepted += 1;
        if accepted % 5 == 0 && judged < 2000 {
            judged += 1;
            let _ = unharmed("judged", i, shown, || assay::assay(&bundle).is_ok());
        }
    }
    eprintln!("bundles that contradict themselves: {n} inputs, {accepted} read, {judged} judged");
    assert!(accepted > n / 50 && accepted < n, "{accepted} of {n}");
}

/// Lines that a candidate might say.
#[test]
fn answers_of_candidates() {
    let said: [&[u8]; 4] = [
        br#"{"status":"done"}"#,
        br#"{"status":"unsupported","reason":"no kernel for it"}"#,
        br#"{"status":"error","reason":"a\u0000b"}"#,
        br#"Traceback (most recent call last):"#,
    ];
    let (mut dice, mut done, n) = (Dice(3), 0, count());
    for i in 0..n {
        let mut bytes = spoiled(said[i % said.len()], &mut dice);
        if dice.below(50) == 0 {
            bytes = FEARED[dice.below(FEARED.len())].repeat(1 + dice.below(4000));
        }
        let line = String::from_utf8_lossy(&bytes);
        let shown = || line.chars().take(200).collect::<String>();
        match unharmed("answer", i, shown, || understood("x", &line)) {
            Ok(()) => done += 1,
            Err(e) => assert!(
                e.to_string().len() < 8 << 10,
                "an answer of {} bytes makes an error of {}",
                line.len(),
                e.to_string().len()
            ),
        }
    }
    eprintln!("answers of candidates: {n} lines, {done} mean done");
}
