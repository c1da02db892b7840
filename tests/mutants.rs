//! The verdict can fail: known wrong kernels, each made of a right one by one change, all fail with a reason that names a place. Several
//! of them pass `allclose(rtol = 0.1, atol = 0.1)`, which is what a gate like that is worth.

use qassay::compare::Verdict;
use qassay::compare::gates::GATES;
use qassay::job::{Data, Job, Operand, OutSpec, Output};
use qassay::kernel::{self, Backend, Kernel, KernelSpec, cpu::KERNELS};
use qassay::op::Op;
use qassay::quant::QTensorParts;
use qassay::sweep::{Case, Sweep, assay};
use qassay::{Overflow, QTensor, Result, Rounding, Tensor, Zero};
use std::path::Path;

/// A CPU kernel that reads a changed job or returns a changed output.
struct Mutant {
    spec: KernelSpec,
    job: fn(&mut Job),
    output: fn(&Job, &mut Output),
    /// Whether the right kernel's bits are known; else bounds and side checks alone judge.
    modelled: bool,
}

impl Kernel for Mutant {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }
    fn check(&self, job: &Job) -> Result<()> {
        kernel::find(KERNELS, job, Backend::Cpu)?.check(job)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        let mut changed = job.clone();
        (self.job)(&mut changed);
        let mut output = kernel::find(KERNELS, &changed, Backend::Cpu)?.run(&changed)?;
        (self.output)(job, &mut output);
        Ok(output)
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        if self.modelled { kernel::find(KERNELS, job, Backend::Cpu)?.predict(job) } else { Ok(None) }
    }
}

fn mutant(name: &'static str, modelled: bool, job: fn(&mut Job), output: fn(&Job, &mut Output)) -> [&'static dyn Kernel; 1] {
    const OPS: &[Op] = &[Op::Cast, Op::CastTranspose, Op::Rmsnorm, Op::Gemm, Op::GroupedGemm];
    let spec = KernelSpec { name, backend: Backend::Cpu, ops: OPS, help: "wrong on purpose", source: "tests/mutants.rs" };
    [Box::leak(Box::new(Mutant { spec, job, output, modelled }))]
}

/// The one case of a table.
fn case(table: &str) -> Case {
    let text = format!("about = \"mutants\"\n[[cases]]\nname = \"one\"\n{table}\n");
    let mut cases = Sweep::parse(Path::new("mutants.toml"), &text, 0).unwrap_or_else(|e| panic!("{table}: {e}")).cases;
    assert_eq!(cases.len(), 1, "{table}");
    cases.remove(0)
}

const BLOCKS: &str = r#"op = ["gemm"]
shape = ["17x33x384"]
recipe = ["te_block_1x128_fp32+te_block_128x128_fp32"]
accumulator = ["hopper_wgmma@128"]
bias = [true]
out = ["bf16"]"#;
const TENSOR: &str = r#"op = ["gemm"]
shape = ["17x33x384"]
recipe = ["te_current"]
accumulator = ["hopper_wgmma@128"]
out = ["scaled:e4m3"]"#;
const W4A8: &str = r#"op = ["gemm"]
shape = ["17x24x256"]
dtype = ["f16"]
recipe = ["int8_token_asym+affine_asym:int4:g64"]
accumulator = ["int32"]
out = ["f16"]"#;
const GROUPED: &str = r#"op = ["grouped_gemm"]
shape = ["32x48"]
rows = ["16,0,33"]
recipe = ["float8_rowwise"]
accumulator = ["hopper_wgmma"]"#;
const CAST: &str = r#"op = ["cast_transpose"]
shape = ["17x129"]
out = ["scaled:e4m3"]"#;
const CURRENT: &str = r#"op = ["cast"]
shape = ["24x384"]
out = ["te_current"]"#;
const NORM: &str = r#"op = ["rmsnorm"]
shape = ["17x129"]
out = ["bf16"]"#;

fn nothing(_: &mut Job) {}
fn kept(_: &Job, _: &mut Output) {}

fn change(q: &mut QTensor, f: impl FnOnce(&mut QTensorParts)) {
    let mut parts = q.clone().into_parts();
    f(&mut parts);
    *q = QTensor::new(parts).unwrap();
}
fn quantized(operand: &mut Operand) -> &mut QTensor {
    match operand {
        Operand::Quantized(q) => q,
        other => panic!("not quantized: {other:?}"),
    }
}
fn codes(output: &mut Output) -> &mut QTensor {
    match &mut output.parts[0].d {
        Data::Quantized(q) => q,
        Data::High(_) => panic!("a high-precision output"),
    }
}
/// Maps every high-precision result by (index, value), rounded to the output's dtype.
fn map(output: &mut Output, f: impl Fn(usize, f32) -> f32) {
    let Data::High(t) = &output.parts[0].d else { panic!("a quantized output") };
    let data = t.data().iter().enumerate().map(|(i, x)| f(i, *x)).collect();
    output.parts[0].d = Data::High(Tensor::rounded(t.dtype(), t.rows(), t.cols(), data).unwrap());
}

/// What the mutant is, where it is wrong, on which case; judged with the right bits known and without.
type Row = (&'static str, &'static str, fn(&mut Job), fn(&Job, &mut Output));

const MUTANTS: &[Row] = &[
    ("sign flipped", BLOCKS, nothing, |_, o| map(o, |_, x| -x)),
    ("gain 1.01", BLOCKS, nothing, |_, o| map(o, |_, x| x * 1.01)),
    ("gain 1.01 of one element", BLOCKS, nothing, |_, o| map(o, |i, x| if i == 40 { x * 1.01 } else { x })),
    (
        "one K block dropped",
        BLOCKS,
        |j| {
            change(quantized(j.operands.get_mut(0).unwrap()), |p| {
                let k = p.cols;
                p.codes.iter_mut().enumerate().filter(|(i, _)| i % k / 128 == 1).for_each(|(_, c)| *c = 0);
            })
        },
        kept,
    ),
    (
        "scales of two groups swapped",
        BLOCKS,
        |j| change(quantized(j.operands.get_mut(0).unwrap()), |p| p.scale_inv.swap(0, 1)),
        kept,
    ),
    ("scale omitted", BLOCKS, |j| change(quantized(j.operands.get_mut(0).unwrap()), |p| p.scale_inv.fill(1.0)), kept),
    ("bias omitted", BLOCKS, |j| j.operands.bias = None, kept),
    ("NaN inserted", BLOCKS, nothing, |_, o| map(o, |i, x| if i == 7 { f32::NAN } else { x })),
    (
        "scale of an operand stale",
        TENSOR,
        |j| change(quantized(j.operands.get_mut(0).unwrap()), |p| p.scale_inv[0] *= 1.03),
        kept,
    ),
    ("scale_inv of D stale", TENSOR, nothing, |_, o| change(codes(o), |p| p.scale_inv[0] *= 1.03)),
    ("amax of D halved", TENSOR, nothing, |_, o| {
        let amax = &mut o.parts[0].amax;
        *amax = amax.map(|a| a * 0.5);
    }),
    (
        "zero points omitted",
        W4A8,
        |j| change(quantized(j.operands.get_mut(1).unwrap()), |p| p.zero = Zero::Integer(vec![0; p.scale_inv.len()])),
        kept,
    ),
    ("a group's end one row off", GROUPED, |j| j.operands.offs.as_mut().unwrap()[0] -= 1, kept),
    ("amax halved", CAST, nothing, |_, o| {
        let amax = &mut o.parts[0].amax;
        *amax = amax.map(|a| a * 0.5);
    }),
    ("scale_inv stale", CAST, nothing, |_, o| change(codes(o), |p| p.scale_inv[0] *= 1.03)),
    ("toward zero instead of to nearest", CAST, nothing, |j, o| {
        let (Operand::High(x), OutSpec::Scaled { scale, .. }) = (j.operands.a(), &j.out) else { panic!("a scaled cast") };
        let scale = scale[0].unwrap();
        let truncated = |p: &mut QTensorParts| {
            let code = |x: &f32| p.format.encode(f64::from(x * scale), Rounding::TowardZero, Overflow::Saturate) as u8;
            p.codes = x.data().iter().map(code).collect();
        };
        change(codes(o), truncated);
        let again = codes(o).transposed().unwrap();
        o.parts[0].transpose = Some(again);
    }),
    ("one code off by one", CAST, nothing, |_, o| {
        change(codes(o), |p| p.codes[5] ^= 1);
        let again = codes(o).transposed().unwrap();
        o.parts[0].transpose = Some(again);
    }),
    ("transposed copy stale", CAST, nothing, |_, o| {
        change(o.parts[0].transpose.as_mut().unwrap(), |p| p.codes.rotate_right(1))
    }),
    ("one code of a recipe off by one", CURRENT, nothing, |_, o| change(codes(o), |p| p.codes[100] ^= 1)),
    ("scale_inv of a recipe stale", CURRENT, nothing, |_, o| change(codes(o), |p| p.scale_inv[0] *= 1.03)),
    ("gain 1.01 of a norm", NORM, nothing, |_, o| map(o, |_, x| x * 1.01)),
    ("rsigma of one row wrong", NORM, nothing, |_, o| o.rsigma.as_mut().unwrap()[3] *= 1.0001),
];

#[test]
fn right_kernels_pass() {
    for table in [BLOCKS, TENSOR, W4A8, GROUPED, CAST, CURRENT, NORM] {
        for modelled in [true, false] {
            let row = assay::assay(&case(table), &mutant("cpu/right", modelled, nothing, kept), Backend::Cpu, 0);
            assert_eq!(row.verdict, Verdict::Pass, "{table}\nmodelled {modelled}: {}", row.reason);
        }
    }
}

#[test]
fn wrong_kernels_fail_and_the_reason_says_where() {
    for (name, table, job, output) in MUTANTS {
        for modelled in [true, false] {
            // The bound of a tensor core's truncated sums is wide: without its bits, 1 % is visible in f32 sums only.
            let table = if modelled { table.to_string() } else { table.replace("hopper_wgmma@128", "f32_sequential") };
            let row = assay::assay(&case(&table), &mutant(name, modelled, *job, *output), Backend::Cpu, 0);
            let (reason, gain) = (&row.reason, row.power_gain);
            assert_eq!(row.verdict, Verdict::Fail, "{name}, modelled {modelled}: {reason}; power: gain {gain:?}");
            assert!(reason.contains("got ") && (reason.contains('(') || reason.contains('[')), "{name}: no place in: {reason}");
        }
    }
}

#[test]
fn an_ordinary_gate_passes_half_of_them() {
    let gate = GATES.iter().find(|g| g.name == "allclose_0.1").unwrap();
    let passes = |(name, table, job, output): &&Row| {
        let assayed = assay::run(&case(table), &mutant(name, true, *job, *output), Backend::Cpu).unwrap();
        let judgement = &assayed.judgements[0];
        (gate.passes)(judgement.bound.ideal(), &judgement.actual)
    };
    let passed: Vec<&str> = MUTANTS.iter().filter(passes).map(|m| m.0).collect();
    println!("allclose(rtol 0.1, atol 0.1) passes {} of {}: {passed:?}", passed.len(), MUTANTS.len());
    for name in [
        "gain 1.01",
        "gain 1.01 of one element",
        "amax halved",
        "scale_inv stale",
        "transposed copy stale",
        "gain 1.01 of a norm",
    ] {
        assert!(passed.contains(&name), "{name} does not pass: {passed:?}");
    }
    assert!(!passed.contains(&"sign flipped") && !passed.contains(&"NaN inserted"));
}
