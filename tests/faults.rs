//! The catalogue against itself: what is injected is caught, and named, on shapes and seeds of its own.

use qassay::Tensor;
use qassay::assay::evidence;
use qassay::compare::Verdict;
use qassay::fault::{self, power};
use qassay::job::Data;
use qassay::kernel::Backend;
use qassay::sweep::{Sweep, build};
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
    let (mut changed, mut class, mut variant, mut alone, mut asked) = (0, 0, 0, 0, 0);
    let mut wrong = Vec::new();
    for case in cases(SWEEP, 4711) {
        let ground = build::ground(&case).unwrap();
        assert_eq!(ground.verdict, Verdict::Pass, "{}", case.id());
        for k in power::kills(&ground, case.index, Some(Duration::from_secs(60))).unwrap() {
            changed += 1;
            assert!(k.by_model, "{}: {} is not caught by the device model's bits", case.id(), k.fault.name());
            let n = k.named.expect("a fault that is caught is diagnosed");
            asked += 1;
            class += usize::from(n.class_right);
            variant += usize::from(n.variant_right);
            alone += usize::from(n.alone);
            if !n.variant_right {
                wrong.push(format!("{}: {} ({:.1} s) -> {}", case.id(), k.fault.name(), n.seconds, n.line));
            }
        }
    }
    let text = wrong.join("\n");
    println!("{changed} changed a bit; of {asked}, {class} named in class, {variant} in variant, {alone} alone\n{text}");
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

/// A product that is too large to be tried whole: every fault is tried on some of its rows and columns.
const LARGE: &str = r#"
[[cases]]
name = "large"
op = ["gemm"]
shape = ["190x170x288"]
recipe = ["deepseek_1x128+deepseek_1x128"]
accumulator = ["f32_pairwise"]
out = ["bf16"]
"#;

#[test]
fn two_faults_at_once_are_taken_apart() {
    for (case, first) in
        [(cases(SWEEP, 99).remove(1), "scale_index:b.next"), (cases(LARGE, 99).remove(0), "scale_rerounded:b.pow2_up")]
    {
        taken_apart(&case, first, "addressing:rows_in_pairs");
    }
}

fn taken_apart(case: &qassay::sweep::Case, first: &str, second: &str) {
    let ground = build::ground(case).unwrap();
    let plain = fault::Setting::default();
    let both = [first, second].map(|name| (fault::find(name).unwrap(), plain));
    let output = fault::inject::inject(&ground.built.job, &both).unwrap().unwrap();
    let judged = evidence::judge(&ground.built, Backend::Cpu, &output, None).unwrap();
    let evidence = fault::Evidence::new(&ground.built.job, &output, Backend::Cpu, &judged);
    let d = fault::diagnose(evidence, Duration::from_secs(60)).unwrap().unwrap();
    let best = &d.findings.first().unwrap_or_else(|| panic!("{}", d.line())).fault;
    // Both classes; the catalogue's words for them, or the formulas that were solved.
    for fault in [first, second] {
        let class = fault.split(':').next().unwrap();
        assert!(best.split(" + ").any(|f| f.split(':').next() == Some(class)), "{fault}: {}", d.line());
    }
}

#[test]
fn what_no_fault_explains_is_unknown_and_located() {
    let case = cases(SWEEP, 99).remove(1);
    let ground = build::ground(&case).unwrap();
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

#[test]
fn a_search_that_was_cut_short_says_so() {
    let case = cases(SWEEP, 99).remove(1);
    let ground = build::ground(&case).unwrap();
    let set = [(fault::find("scale_index:b.next").unwrap(), fault::Setting::default())];
    let output = fault::inject::inject(&ground.built.job, &set).unwrap().unwrap();
    let judged = evidence::judge(&ground.built, Backend::Cpu, &output, None).unwrap();
    let evidence = fault::Evidence::new(&ground.built.job, &output, Backend::Cpu, &judged);
    let d = fault::diagnose(evidence, Duration::ZERO).unwrap().unwrap();
    assert!(!d.complete && d.line().contains("the budget did not reach"), "{}", d.line());
    assert!(fault::diagnose(evidence, Duration::from_secs(60)).unwrap().unwrap().complete);
}

#[test]
fn what_is_wrong_in_whole_tiles_of_one_sign_is_said() {
    let case = cases(LARGE, 7).remove(0);
    let ground = build::ground(&case).unwrap();
    let mut output = ground.right.clone();
    let Data::High(t) = &output.parts[0].d else { panic!("a bf16 result") };
    // Three tiles of 16×16 by a rule nobody has.
    let tile = |i: usize| [(1, 3), (4, 4), (9, 0)].contains(&(i / 170 / 16, i % 170 / 16));
    let data = t.data().iter().enumerate().map(|(i, x)| if tile(i) { -1.7 * x } else { *x });
    output.parts[0].d = Data::High(Tensor::rounded(t.dtype(), t.rows(), t.cols(), data.collect()).unwrap());
    let judged = evidence::judge(&ground.built, Backend::Cpu, &output, None).unwrap();
    let evidence = fault::Evidence::new(&ground.built.job, &output, Backend::Cpu, &judged);
    let d = fault::diagnose(evidence, Duration::from_secs(60)).unwrap().unwrap();
    assert!(d.findings.is_empty(), "{}", d.line());
    assert!(d.line().contains("3 of 132 tiles of 16×16 wrong as a whole"), "{}", d.line());
    assert_eq!(d.location.tiles, Some((16, 16, 3, 132)));
}

#[test]
fn a_right_kernel_has_no_diagnosis() {
    for case in cases(SWEEP, 12).into_iter().chain(cases(LARGE, 12)) {
        let ground = build::ground(&case).unwrap();
        for model in [None, ground.model.as_ref()] {
            let judged = evidence::judge(&ground.built, Backend::Cpu, &ground.right, model).unwrap();
            let evidence =
                fault::Evidence { model, ..fault::Evidence::new(&ground.built.job, &ground.right, Backend::Cpu, &judged) };
            let d = fault::diagnose(evidence, Duration::from_secs(60)).unwrap();
            assert!(d.is_none(), "{}: {}", case.id(), d.unwrap().line());
        }
    }
}

fn assayed(name: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/bundles").join(name).with_extension("safetensors");
    let bundle = qassay::bundle::Bundle::read(&path).unwrap();
    let mut answer = qassay::bundle::assay::assay(&bundle).unwrap();
    qassay::scenario::audited::beside(&bundle, &mut answer);
    qassay::bundle::answer::json(&bundle, &answer)
}

/// What torch's kernels wrote on an H200 with a bug that make.py says: the first answer has its class and its parameters.
#[test]
fn the_samples_of_the_project_are_named_right() {
    for (name, class, words) in [
        ("bug_scale_stale", "stale_state", "of 2 steps ago"),
        ("bug_scale_transposed", "scale_layout", "transposed as a 6×4 grid"),
        ("bug_block_scales_transposed", "scale_layout", "column by column"),
        ("bug_cast_truncated", "rounding", "cut"),
        ("bug_k_tail", "k_tail", "the last 16 of K (240 … 255)"),
        ("bug_scale_inverted", "scale_doubled_inverted", "scales of a are applied as their reciprocals"),
    ] {
        let found = assayed(name);
        let first = &found["diagnosis"][0];
        let detail = first["detail"].as_str().unwrap_or_default();
        assert!(first["fault"] == class && detail.contains(words), "{name}: {found:#}");
    }
    // What the codes and scales say by themselves is part of the answer, and says the same.
    let stale = assayed("bug_scale_stale");
    let audit: Vec<&str> = stale["audit"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    assert!(audit.iter().any(|l| l.starts_with("product: ") && l.contains("of a of 2 steps ago")), "{stale:#}");
}

/// Notebook 1: the result of a right kernel, times 1.01.
#[test]
fn a_result_times_a_number_of_nobody_is_said_to_be_that() {
    for case in [cases(SWEEP, 31).remove(1), cases(LARGE, 31).remove(0)] {
        let ground = power::Ground::of(qassay::sweep::build::build(&case).unwrap()).unwrap();
        let mut output = ground.right.clone();
        let Data::High(t) = &output.parts[0].d else { panic!("values") };
        let data = t.data().iter().map(|x| x * 1.01).collect();
        output.parts[0].d = Data::High(Tensor::rounded(t.dtype(), t.rows(), t.cols(), data).unwrap());
        let judged = evidence::judge(&ground.built, Backend::External, &output, None).unwrap();
        let evidence = fault::Evidence::new(&ground.built.job, &output, Backend::External, &judged);
        let d = fault::diagnose(evidence, Duration::from_secs(60)).unwrap().unwrap();
        let line = d.line();
        assert!(line.contains("multiplied by 1.01") && line.contains("no stored number"), "{line}");
    }
}
