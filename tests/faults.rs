//! The catalogue against itself: what is injected is caught, and named, on shapes and seeds of its own.

use qassay::fault::{self, power};
use qassay::sweep::Sweep;
use std::path::Path;
use std::time::Duration;

fn cases(table: &str, seed: u64) -> Vec<qassay::sweep::Case> {
    let text = format!("about = \"faults\"\n{table}\n");
    Sweep::parse(Path::new("faults.toml"), &text, seed).unwrap_or_else(|e| panic!("{table}: {e}")).cases
}

const SWEEP: &str = r#"
[[cases]]
name = "fp8"
op = ["gemm"]
shape = ["35x42x400"]
recipe = ["te_current", "te_block_1x128_fp32+te_block_128x128_fp32", "float8_inference_row"]
accumulator = ["f32_sequential"]
bias = [true]
out = ["bf16", "scaled:e4m3"]

[[cases]]
name = "w4a8"
op = ["gemm"]
shape = ["21x40x416"]
dtype = ["f16"]
recipe = ["int8_token_asym+affine_asym:int4:g64"]
accumulator = ["int32"]
out = ["f16"]

[[cases]]
name = "mixed"
op = ["gemm"]
shape = ["21x40x416"]
dtype = ["f16"]
recipe = ["none+affine_asym:uint4:g64"]
accumulator = ["f32_sequential"]
out = ["f16"]

[[cases]]
name = "grouped"
op = ["grouped_gemm"]
shape = ["48x80"]
rows = ["16,0,33,15"]
recipe = ["float8_rowwise"]
accumulator = ["f32_sequential"]

[[cases]]
name = "cast"
op = ["cast", "cast_transpose"]
shape = ["37x130"]
out = ["scaled:e4m3"]

[[cases]]
name = "recipes"
op = ["cast"]
shape = ["37x384"]
out = ["te_current", "te_block_1x128_fp32", "affine_sym:int4:g32", "mx_floor:e4m3"]

[[cases]]
name = "norms"
op = ["layernorm"]
shape = ["19x300"]
dtype = ["f32"]
out = ["bf16", "scaled:e4m3"]

[[cases]]
name = "dequantize"
op = ["dequantize"]
shape = ["33x384"]
recipe = ["affine_asym:int4:g64", "te_block_1x128"]
out = ["bf16"]

[[cases]]
name = "activations"
op = ["gated"]
shape = ["33x129"]
dtype = ["bf16"]
out = ["scaled:e4m3", "bf16"]
"#;

#[test]
fn report() {
    let (mut caught, mut bound, mut all, mut class, mut variant, mut asked) = (0, 0, 0, 0, 0, 0);
    for case in cases(SWEEP, 1) {
        let ground = power::Ground::of(&case).unwrap();
        println!("== {} {}", case.id(), ground.verdict);
        let started = std::time::Instant::now();
        for k in power::kills(&ground, case.index, Some(Duration::from_secs(20))).unwrap() {
            all += 1;
            caught += usize::from(k.by_model);
            bound += usize::from(k.by_bound);
            if !k.by_model {
                println!("MISSED {}", k.fault.name());
            }
            if let Some(n) = k.named {
                asked += 1;
                class += usize::from(n.class_right);
                variant += usize::from(n.variant_right);
                if !n.variant_right {
                    println!(
                        "{} {} [{:.1}s bound {}] -> {}",
                        if n.class_right { "variant" } else { "CLASS" },
                        k.fault.name(),
                        n.seconds,
                        k.by_bound,
                        n.line
                    );
                }
            }
        }
        println!("{:.1} s", started.elapsed().as_secs_f64());
    }
    println!("{all} changed; {caught} by model, {bound} by bound; of {asked}: class {class}, variant {variant}");
    assert!(fault::faults().count() >= 120);
}
