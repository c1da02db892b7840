//! The catalogue against itself: what is injected is caught, and named, on shapes and seeds of its own.

use qassay::Tensor;
use qassay::compare::Verdict;
use qassay::fault::{self, power};
use qassay::kernel::{Backend, Data};
use qassay::sweep::{Sweep, evidence};
use std::path::Path;
use std::time::Duration;

fn cases(table: &str, seed: u64) -> Vec<qassay::sweep::Case> {
    let text = format!("about = \"faults\"\n{table}\n");
    Sweep::parse(Path::new("faults.toml"), &text, seed).unwrap_or_else(|e| panic!("{table}: {e}")).cases
}

/// Shapes, seeds and recipes that nobody looked at while the catalogue was written.
const SWEEP: &str = r#"
[[cases]]
name = "fp8"
op = ["gemm"]
shape = ["19x22x208"]
recipe = ["float8_inference_row"]
accumulator = ["f32_sequential"]
bias = [true]
out = ["scaled:e4m3"]

[[cases]]
name = "blocks"
op = ["gemm"]
shape = ["18x21x288"]
recipe = ["deepseek_1x128+deepseek_1x128"]
accumulator = ["f32_pairwise"]
out = ["f32"]

[[cases]]
name = "w4a8"
op = ["gemm"]
shape = ["18x24x160"]
dtype = ["f16"]
recipe = ["int8_token_asym+affine_asym:int4:g32"]
accumulator = ["int32"]
out = ["f16"]

[[cases]]
name = "grouped"
op = ["grouped_gemm"]
shape = ["32x48"]
rows = ["17,0,9"]
recipe = ["float8_rowwise_gw_hp"]
accumulator = ["f32_sequential"]

[[cases]]
name = "cast"
op = ["cast_transpose"]
shape = ["29x70"]
out = ["scaled:e5m2"]

[[cases]]
name = "recipes"
op = ["cast"]
shape = ["19x256"]
out = ["te_block_1x128_fp32", "affine_symnc:int4:g32"]

[[cases]]
name = "norms"
op = ["layernorm"]
shape = ["19x100"]
dtype = ["f32"]
out = ["scaled:e4m3"]
"#;

#[test]
fn injected_faults_are_caught_and_named() {
    let (mut changed, mut class, mut variant, mut asked) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for case in cases(SWEEP, 4711) {
        let ground = power::Ground::of(&case).unwrap();
        assert_eq!(ground.verdict, Verdict::Pass, "{}", case.id());
        for k in power::kills(&ground, case.index, Some(Duration::from_secs(60))).unwrap() {
            changed += 1;
            assert!(k.by_model, "{}: {} is not caught by the device model's bits", case.id(), k.fault.name());
            let n = k.named.expect("a fault that is caught is diagnosed");
            asked += 1;
            class += usize::from(n.class_right);
            variant += usize::from(n.variant_right);
            if !n.variant_right {
                wrong.push(format!("{}: {} ({:.1} s) -> {}", case.id(), k.fault.name(), n.seconds, n.line));
            }
        }
    }
    let text = wrong.join("\n");
    println!("{changed} changed a bit; of {asked}, {class} named in class, {variant} in variant\n{text}");
    assert!(changed > 300, "only {changed} faults changed a bit");
    assert!(class * 100 >= 95 * asked, "{class} of {asked} named in class:\n{text}");
    assert!(variant * 100 >= 90 * asked, "{variant} of {asked} named in variant:\n{text}");
}

#[test]
fn the_catalogue_is_whole() {
    let names: Vec<String> = fault::faults().map(fault::Fault::name).collect();
    assert!(names.len() >= 120, "{} faults", names.len());
    let unique: std::collections::HashSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "a name twice");
    for class in fault::CLASSES.iter().filter(|c| c.name != "vacuous_oracle") {
        assert!(fault::faults().any(|f| f.class == class.class), "{} has no fault", class.name);
    }
    for name in &names {
        assert_eq!(fault::find(name).unwrap().name(), *name);
    }
    assert!(fault::find("scale_omited:a").is_err());
}

#[test]
fn two_faults_at_once_are_taken_apart() {
    let case = cases(SWEEP, 99).remove(1);
    let ground = power::Ground::of(&case).unwrap();
    let plain = fault::Setting::default();
    let both = [(fault::find("scale_index:b.next").unwrap(), plain), (fault::find("addressing:rows_in_pairs").unwrap(), plain)];
    let output = fault::inject::inject(&ground.built.job, &both).unwrap().unwrap();
    let judged = evidence::judge(&ground.built, Backend::Cpu, &output, None).unwrap();
    let evidence = fault::Evidence::new(&ground.built.job, &output, Backend::Cpu, &judged);
    let d = fault::diagnose(evidence, Duration::from_secs(60)).unwrap().unwrap();
    let best = &d.findings.first().unwrap_or_else(|| panic!("{}", d.line())).fault;
    assert!(best.contains("scale_index:b.next") && best.contains("addressing:rows_in_pairs"), "{}", d.line());
}

#[test]
fn what_no_fault_explains_is_unknown_and_located() {
    let case = cases(SWEEP, 99).remove(1);
    let ground = power::Ground::of(&case).unwrap();
    let mut output = ground.right.clone();
    let Data::High(t) = &output.parts[0].d else { panic!("an f32 result") };
    // Rows 5…8 by a rule nobody has.
    let data = t.data().iter().enumerate().map(|(i, x)| if (5..9).contains(&(i / 21)) { x * x + 0.37 * i as f32 } else { *x });
    let changed = Tensor::new(t.dtype(), t.rows(), t.cols(), data.collect()).unwrap();
    output.parts[0].d = Data::High(changed);
    let judged = evidence::judge(&ground.built, Backend::Cpu, &output, None).unwrap();
    let evidence = fault::Evidence::new(&ground.built.job, &output, Backend::Cpu, &judged);
    let d = fault::diagnose(evidence, Duration::from_secs(60)).unwrap().unwrap();
    assert!(d.findings.is_empty(), "{}", d.line());
    assert!(d.line().starts_with("unknown") && d.line().contains("rows 5…8"), "{}", d.line());
}
