//! The elementwise kernels against their models (bit for bit), against a search of the code tables, and against f64.

use super::KERNELS;
use crate::input::{Distribution, generate};
use crate::job::{Data, Job, Operand, Operands, OutSpec, Output};
use crate::kernel::{Backend, find};
use crate::model::boundary::gamma;
use crate::model::elementwise::predict;
use crate::model::interval::U;
use crate::op::{ACTS, Act, Args64, Defined, Op, Params, define};
use crate::quant::{Level, QTensorParts};
use crate::{Format, Granularity, QTensor, Tensor, Zero};

const E4M3: Format = Format::E4m3;

pub fn scaled(format: Format, scale: f32) -> OutSpec {
    OutSpec::Scaled { format, scale: vec![Some(scale)] }
}

/// A job of `op` on synthetic operands: x (or g) `m × n`, forward input, gamma and beta as the op needs them.
pub fn job(
    op: Op,
    act: Option<Act>,
    out: OutSpec,
    dist: Distribution,
    dtype: Format,
    (m, n): (usize, usize),
    seed: u64,
) -> Job {
    let tensor = |rows, cols, stream| generate(dist, dtype, rows, cols, seed, stream).unwrap();
    let normal = |cols, stream| generate(Distribution::NormalIid, dtype, 1, cols, seed, stream).unwrap();
    let b = match op {
        Op::ActivationGrad | Op::CastTransposeDbiasDact => Some(tensor(m, n, 1)),
        Op::DgatedCastTranspose => Some(tensor(m, 2 * n, 1)),
        _ => None,
    };
    let norm = matches!(op, Op::Layernorm | Op::Rmsnorm);
    let operands = Operands {
        gamma: norm.then(|| normal(n, 2)),
        beta: (op == Op::Layernorm).then(|| normal(n, 3)),
        ..Operands::of(Operand::High(tensor(m, if op == Op::Gated { 2 * n } else { n }, 0)), b.map(Operand::High))
    };
    Job {
        op,
        params: Params { act, zero_centered_gamma: seed % 2 == 1, ..Params::default() },
        operands,
        out,
        accumulator: None,
    }
}

pub fn run(job: &Job) -> Output {
    find(KERNELS, job, Backend::Cpu).unwrap().run(job).unwrap()
}

/// Every elementwise op with each of its activations.
pub fn ops() -> Vec<(Op, Option<Act>)> {
    let mut all: Vec<(Op, Option<Act>)> =
        [Op::Cast, Op::CastTranspose, Op::MultiCastTranspose, Op::CastTransposeDbias, Op::Layernorm, Op::Rmsnorm]
            .map(|op| (op, None))
            .to_vec();
    for op in [Op::Activation, Op::ActivationGrad, Op::Gated, Op::CastTransposeDbiasDact, Op::DgatedCastTranspose] {
        all.extend(ACTS.iter().map(|a| (op, Some(a.0))));
    }
    all
}

pub const DISTRIBUTIONS: [Distribution; 6] = [
    Distribution::Normal,
    Distribution::Ties(E4M3),
    Distribution::Saturating(E4M3),
    Distribution::SignedZero,
    Distribution::NonFinite,
    Distribution::Zeros,
];

/// NaN codes and NaN values as a class, everything else to the bit.
pub fn same(a: &Output, b: &Output) -> Result<(), String> {
    let f32s = |what: &str, a: &[f32], b: &[f32]| -> Result<(), String> {
        let bad = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()));
        match bad {
            Some(i) => Err(format!("{what}[{i}]: {} and {}", a[i], b[i])),
            None if a.len() != b.len() => Err(format!("{what}: lengths {} and {}", a.len(), b.len())),
            None => Ok(()),
        }
    };
    let codes = |what: &str, a: &QTensor, b: &QTensor| -> Result<(), String> {
        if (a.rows(), a.cols(), a.format(), a.granularity()) != (b.rows(), b.cols(), b.format(), b.granularity()) {
            return Err(format!("{what}: shapes differ"));
        }
        f32s(&format!("{what} scale_inv"), a.scale_inv(), b.scale_inv())?;
        let nan = |c: u8| a.format().decode(u32::from(c)).is_nan();
        match a.codes().iter().zip(b.codes()).position(|(x, y)| x != y && !(nan(*x) && nan(*y))) {
            Some(i) => Err(format!("{what} code[{i}]: {:#x} and {:#x}", a.codes()[i], b.codes()[i])),
            None => Ok(()),
        }
    };
    for (p, q) in a.parts.iter().zip(&b.parts) {
        match (&p.d, &q.d) {
            (Data::High(x), Data::High(y)) if x.dtype() == y.dtype() => f32s("d", x.data(), y.data())?,
            (Data::Quantized(x), Data::Quantized(y)) => codes("d", x, y)?,
            _ => return Err("kinds of output differ".into()),
        }
        match (&p.transpose, &q.transpose) {
            (Some(x), Some(y)) => codes("transpose", x, y)?,
            (None, None) => {}
            _ => return Err("only one has a transposed copy".into()),
        }
        f32s("amax", &p.amax.into_iter().collect::<Vec<_>>(), &q.amax.into_iter().collect::<Vec<_>>())?;
    }
    let dbias = |o: &Output| o.dbias.as_ref().map_or(vec![], |d| d.data().to_vec());
    f32s("dbias", &dbias(a), &dbias(b))?;
    f32s("mean", a.mean.as_deref().unwrap_or(&[]), b.mean.as_deref().unwrap_or(&[]))?;
    f32s("rsigma", a.rsigma.as_deref().unwrap_or(&[]), b.rsigma.as_deref().unwrap_or(&[]))
}

#[test]
fn every_kernel_equals_its_model_bit_for_bit() {
    for (op, act) in ops() {
        for dist in DISTRIBUTIONS {
            for (dtype, out) in [
                (Format::Bf16, scaled(E4M3, 1.7)),
                (Format::F32, scaled(Format::E5m2, 3e-3)),
                (Format::F16, OutSpec::Scaled { format: E4M3, scale: vec![None] }),
                (Format::F16, OutSpec::High(Format::F16)),
                (Format::Bf16, OutSpec::High(Format::F32)),
            ] {
                for (m, n) in [(130, 7), (1, 67), (0, 5), (3, 0)] {
                    let job = job(op, act, out.clone(), dist, dtype, (m, n), 11);
                    let Ok(kernel) = find(KERNELS, &job, Backend::Cpu) else {
                        assert!(matches!(out, OutSpec::High(_)), "{op:?} has no kernel for {out:?}");
                        continue;
                    };
                    let context = || format!("{op:?} {act:?} {dist} {dtype} {out:?} {m}×{n}");
                    let model = predict(&job).unwrap();
                    same(&kernel.run(&job).unwrap(), &model).unwrap_or_else(|e| panic!("{}: {e}", context()));
                    if let Some(predicted) = kernel.predict(&job).unwrap() {
                        same(&predicted, &model).unwrap_or_else(|e| panic!("{}: {e}", context()));
                    }
                }
            }
        }
    }
}

#[test]
fn recipe_outputs_equal_the_model_and_quantize_values_in_the_input_dtype() {
    for (op, act) in ops().into_iter().filter(|o| matches!(o.1, None | Some(Act::Gelu))) {
        for (name, shares) in [
            ("te_current:e5m2", true),
            ("te_delayed", true),
            ("te_mxfp8", false),
            ("te_mxfp8_32x32", true),
            ("te_block_1x128", false),
            ("te_block_128x128_fp32", true),
            ("te_nvfp4", false),
            ("float8_rowwise", false),
            ("int8_token_sym", false),
            ("affine_asym:int4:g32", false),
        ] {
            let out = OutSpec::Recipe(name.parse().unwrap());
            let job = job(op, act, out, Distribution::Normal, Format::Bf16, (140, 70), 6);
            let (got, model) = (run(&job), predict(&job).unwrap());
            same(&got, &model).unwrap_or_else(|e| panic!("{op:?} {act:?} {name}: {e}"));
            let Data::Quantized(q) = &got.parts[0].d else { panic!() };
            let Some(turned) = &got.parts[0].transpose else { continue };
            assert_eq!(turned.transposed().unwrap().codes() == q.codes(), shares, "{op:?} {act:?} {name}");
            if op == Op::CastTranspose {
                let Operand::High(x) = job.operands.a() else { panic!() };
                let again = name.parse::<crate::recipe::Recipe>().unwrap().quantize(&x.transposed()).unwrap();
                assert!(turned.codes() == again.q.codes() || name == "te_delayed", "{name}: the transposed copy");
            }
        }
    }
}

/// The code nearest to `x` by search over all codes: ties to the even code, saturation beyond the largest.
fn nearest_code(format: Format, x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let finite = (0..256u32).filter(|c| format.decode(*c).is_finite());
    let distance = |c: u32| (format.decode(c) - x.clamp(-1e9, 1e9)).abs();
    let best = finite.min_by(|a, b| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1)))).unwrap();
    format.decode(best)
}

#[test]
fn a_cast_is_the_nearest_code_with_amax_and_the_reciprocal_scale() {
    for (format, scale) in
        [(E4M3, 1.0f32), (E4M3, 3.7), (Format::E5m2, 0.11), (Format::E4m3Fnuz, 1.0), (Format::E5m2Fnuz, 19.0)]
    {
        for dist in DISTRIBUTIONS {
            let job = job(Op::CastTranspose, None, scaled(format, scale), dist, Format::F32, (9, 21), 5);
            let out = run(&job);
            let (Data::Quantized(q), Operand::High(x)) = (&out.parts[0].d, job.operands.a()) else { panic!() };
            let turned = out.parts[0].transpose.as_ref().unwrap();
            let mut amax = 0.0;
            for i in 0..9 {
                for j in 0..21 {
                    let v = x.row(i)[j];
                    let want = nearest_code(format, f64::from(v * scale));
                    let got = format.decode(u32::from(q.codes()[i * 21 + j]));
                    assert!(got == want || (got.is_nan() && want.is_nan()), "{format} {dist}: {v}·{scale} → {got}, not {want}");
                    assert_eq!(turned.codes()[j * 9 + i], q.codes()[i * 21 + j], "{format} {dist} ({i},{j})");
                    if v.abs() > amax {
                        amax = v.abs();
                    }
                }
            }
            assert_eq!(out.parts[0].amax, Some(amax));
            assert_eq!((q.scale_inv(), turned.scale_inv()), (&[1.0 / scale][..], &[1.0 / scale][..]));
        }
    }
}

#[test]
fn special_values_of_the_contract() {
    let tensor = |v: &[f32]| Operand::High(Tensor::new(Format::F32, 1, v.len(), v.to_vec()).unwrap());
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let mut job = job(Op::Cast, None, scaled(E4M3, 2.0), Distribution::Zeros, Format::F32, (1, 1), 0);
    job.operands.set_tensors(0, vec![tensor(&[nan, -inf, inf, -0.0, 1e-9, 224.0, 233.0, -1e30])]);
    let out = run(&job);
    let Data::Quantized(q) = &out.parts[0].d else { panic!() };
    assert_eq!(q.codes(), [0x7f, 0xfe, 0x7e, 0x80, 0, 0x7e, 0x7e, 0xfe]);
    assert_eq!((out.parts[0].amax, q.scale_inv()), (Some(inf), &[0.5f32][..]));
    // A NaN alone never reaches amax; FLT_MAX has a subnormal reciprocal.
    job.operands.set_tensors(0, vec![tensor(&[nan])]);
    job.out = scaled(E4M3, f32::MAX);
    let out = run(&job);
    let Data::Quantized(q) = &out.parts[0].d else { panic!() };
    assert_eq!((out.parts[0].amax, q.scale_inv()[0].to_bits()), (Some(0.0), 0x0020_0000));
    // relu and srelu turn NaN into zero.
    for act in [Act::Relu, Act::Srelu] {
        job.op = Op::Activation;
        job.params.act = Some(act);
        job.operands.set_tensors(0, vec![tensor(&[nan, -inf, inf, -2.0, 3.0])]);
        job.out = OutSpec::High(Format::F32);
        let out = run(&job);
        let Data::High(d) = &out.parts[0].d else { panic!() };
        assert_eq!(d.data(), [0.0, 0.0, inf, 0.0, if act == Act::Relu { 3.0 } else { 9.0 }]);
    }
}

#[test]
fn odd_scales_are_taken_as_they_are() {
    for scale in [0.0, -3.0, f32::INFINITY, f32::NAN, f32::MAX, 1e-40, -0.0] {
        for dist in DISTRIBUTIONS {
            let job = job(Op::CastTransposeDbias, None, scaled(E4M3, scale), dist, Format::F32, (9, 33), 4);
            same(&run(&job), &predict(&job).unwrap()).unwrap_or_else(|e| panic!("{scale} {dist}: {e}"));
        }
    }
}

#[test]
fn several_tensors_have_scales_of_their_own() {
    let mut job = job(Op::MultiCastTranspose, None, scaled(E4M3, 1.0), Distribution::Normal, Format::Bf16, (1, 256), 3);
    for (m, n) in [(43, 1), (43, 256), (0, 4)] {
        job.operands.by_role[0].push(Operand::High(generate(Distribution::Normal, Format::Bf16, m, n, 9, 0).unwrap()));
    }
    job.out = OutSpec::Scaled { format: E4M3, scale: vec![Some(1.0), Some(2.0), None, Some(5.0)] };
    let out = run(&job);
    same(&out, &predict(&job).unwrap()).unwrap();
    let inv: Vec<f32> = out.parts.iter().map(|p| p.transpose.as_ref().unwrap().scale_inv()[0]).collect();
    assert_eq!(inv, [1.0, 0.5, 1.0, 0.2]);
    job.out = scaled(E4M3, 1.0);
    assert!(find(KERNELS, &job, Backend::Cpu).is_err(), "one scale for four tensors must be refused");
}

/// The f64 definition of a job's first part.
fn defined(job: &Job) -> Defined {
    let o = &job.operands;
    let args = Args64 { a: o.a().to_f64(), b: o.b().map(Operand::to_f64), ..Args64::default() };
    define(job.op, &job.params, &args).unwrap()
}

/// Column sums against exact ones, within the error of the documented order: 64 additions and one for each band.
#[test]
fn dbias_is_the_column_sum() {
    for (dtype, unit) in [(Format::F32, 0.0), (Format::Bf16, 2f64.powi(-8)), (Format::F16, 2f64.powi(-11))] {
        for (m, n) in [(1, 33), (64, 5), (1000, 17), (2333, 1)] {
            let job = job(Op::CastTransposeDbias, None, scaled(E4M3, 1.0), Distribution::StudentT, dtype, (m, n), 8);
            let (out, want) = (run(&job), defined(&job));
            let dbias = out.dbias.unwrap();
            assert_eq!((dbias.dtype(), dbias.rows(), dbias.cols()), (dtype, 1, n));
            for (j, (got, want_sum)) in dbias.data().iter().zip(want.dbias.unwrap()).enumerate() {
                let total: f64 = want.d.column(j).iter().map(|v| v.abs()).sum();
                let sum = gamma(m.min(64) + m.div_ceil(64)) * total;
                let bound = sum + unit * (want_sum.abs() + sum);
                assert!((f64::from(*got) - want_sum).abs() <= bound, "{dtype} {m}×{n} column {j}: {got}, {want_sum}");
            }
        }
    }
}

/// Ragged shapes of TransformerEngine's tests, and that bands and tiles leave no element out.
#[test]
fn ragged_shapes() {
    for (m, n) in [(1, 3221), (2333, 1), (1481, 677), (64, 64), (65, 63), (129, 257)] {
        let job = job(Op::CastTransposeDbias, None, scaled(Format::E5m2, 0.7), Distribution::Normal, Format::Bf16, (m, n), 2);
        let out = run(&job);
        same(&out, &predict(&job).unwrap()).unwrap_or_else(|e| panic!("{m}×{n}: {e}"));
    }
}

/// Every kind of quantized tensor a dequantize kernel may meet, with distinct scales and zeros.
fn quantized(format: Format, granularity: Granularity, zero: u8, global: Option<f32>) -> QTensor {
    let (rows, cols) = (37, 75);
    let stream = crate::input::philox::Stream::new(1, 0);
    let word = |purpose, i| stream.words(purpose, i as u64)[0];
    let (gr, gc) = granularity.grid(rows, cols);
    let mask = ((1u32 << format.bits()) - 1) as u8;
    QTensor::new(QTensorParts {
        format,
        rows,
        cols,
        codes: (0..rows * cols).map(|i| word(0, i) as u8 & mask).collect(),
        granularity,
        scale_format: Format::F32,
        scale_inv: (0..gr * gc).map(|i| f32::from_bits(0x3d00_0000 + (word(1, i) >> 6))).collect(),
        zero: match zero {
            0 => Zero::None,
            1 => Zero::Integer((0..gr * gc).map(|i| word(2, i) as i32 % 16).collect()),
            _ => Zero::Additive { zero: (0..gr * gc).map(|i| (word(3, i) % 1000) as f32 / 64.0 - 8.0).collect(), mid: 8 },
        },
        level: global.map(Level::whole),
    })
    .unwrap()
}

#[test]
fn dequantize_equals_its_model_and_its_definition() {
    let granularities =
        [Granularity::Tensor, Granularity::Row, Granularity::Group(32), Granularity::Block { rows: 16, cols: 20 }];
    for spec in crate::format::FORMATS.iter().filter(|s| s.bits <= 8) {
        for granularity in granularities {
            for (zero, global) in [(0, None), (0, Some(0.013)), (1, None), (2, None)] {
                if zero > 0 && !spec.integer {
                    continue;
                }
                for out in [Format::F32, Format::Bf16, Format::F16] {
                    let q = quantized(spec.format, granularity, zero, global);
                    let mut job = job(Op::Cast, None, OutSpec::High(out), Distribution::Zeros, Format::F32, (1, 1), 0);
                    job.op = Op::Dequantize;
                    job.operands.set_tensors(0, vec![Operand::Quantized(q.clone())]);
                    let got = run(&job);
                    let context = || format!("{} {granularity} zero {zero} {global:?} → {out}", spec.name);
                    same(&got, &predict(&job).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", context()));
                    let Data::High(d) = &got.parts[0].d else { panic!() };
                    let u = 0.5 * out.ulp(1.0) + 3.0 * U;
                    for (i, (v, want)) in d.data().iter().zip(&defined(&job).d).enumerate() {
                        if want.abs() > out.max_finite() || want.is_nan() {
                            assert!(!v.is_finite(), "{}: {v}, {want}", context());
                            continue;
                        }
                        // Two roundings to the output's format when a zero is added, to the larger of the terms.
                        let size = want.abs() + if zero == 2 { (want.abs() + 16.0) * 1.1 } else { 0.0 };
                        let bound = u * size + out.decode(1);
                        assert!((f64::from(*v) - want).abs() <= bound, "{} element {i}: {v}, {want}", context());
                    }
                }
            }
        }
    }
}

/// Six bits under f16, as GGUF stores them: every product is exact in f32, so the sum's rounding is the only one.
#[test]
fn dequantize_by_two_levels_rounds_once() {
    let mut p = quantized(Format::Uint4, Granularity::Group(5), 2, None).into_parts();
    let f16 = |x: f32| half::f16::from_f32(x).to_f32();
    let n = 37 * 15;
    p.scale_inv = (0..n).map(|i| (i % 64) as f32).collect();
    p.zero = Zero::Additive { zero: (0..n).map(|i| (i * 5 % 64) as f32).collect(), mid: 0 };
    let numbers = |by: f32| (0..37 * 4).map(|i| f16(by * (1.0 + i as f32))).collect::<Vec<f32>>();
    let (scale_inv, zero) = (numbers(0.0137), Some(numbers(-0.0511)));
    p.level = Some(Level { granularity: Granularity::Group(4), format: Format::F16, scale_inv, zero });
    let q = QTensor::new(p).unwrap();
    let mut job = job(Op::Cast, None, OutSpec::High(Format::F32), Distribution::Zeros, Format::F32, (1, 1), 0);
    (job.op, job.operands) = (Op::Dequantize, Operands::of(Operand::Quantized(q.clone()), None));
    let got = run(&job);
    same(&got, &predict(&job).unwrap()).unwrap();
    let Data::High(d) = &got.parts[0].d else { panic!() };
    assert!(d.data().iter().zip(&q.dequantize_f32()).all(|(a, b)| a == b));
}

#[test]
fn impossible_jobs_are_refused_with_a_reason() {
    let good = job(Op::ActivationGrad, Some(Act::Gelu), scaled(E4M3, 1.0), Distribution::Normal, Format::Bf16, (4, 6), 0);
    assert!(find(KERNELS, &good, Backend::Cpu).is_ok());
    let other = Operand::High(generate(Distribution::Normal, Format::Bf16, 4, 5, 0, 0).unwrap());
    let q = Operand::Quantized(quantized(E4M3, Granularity::Tensor, 0, None));
    let by_role = |by_role: Vec<Vec<Operand>>| Job { operands: Operands { by_role, ..good.operands.clone() }, ..good.clone() };
    let (a, b) = (vec![good.operands.a().clone()], vec![good.operands.b().unwrap().clone()]);
    let bad: Vec<(&str, Job)> = vec![
        ("forward input", by_role(vec![a.clone()])),
        ("4×6", by_role(vec![a, vec![other]])),
        ("f16, bf16 or f32", by_role(vec![vec![q], b.clone()])),
        ("1 tensor", by_role(vec![vec![], b])),
        ("activation", Job { params: Params::default(), ..good.clone() }),
        ("fp8", Job { out: scaled(Format::Int8, 1.0), ..good.clone() }),
        ("f16, bf16 or f32", Job { out: OutSpec::High(E4M3), ..good.clone() }),
        ("transposed", Job { op: Op::CastTranspose, out: OutSpec::High(Format::F32), ..good.clone() }),
        ("gamma", Job { op: Op::Layernorm, ..good.clone() }),
        ("not quantized", Job { op: Op::Dequantize, out: OutSpec::High(Format::F32), ..good.clone() }),
        ("even", job(Op::Cast, None, scaled(E4M3, 1.0), Distribution::Normal, Format::F32, (2, 3), 0)),
    ];
    for (reason, mut job) in bad {
        if reason == "even" {
            (job.op, job.params.act) = (Op::Gated, Some(Act::Silu));
        }
        let error = find(KERNELS, &job, Backend::Cpu).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{reason}: {error:?}");
    }
}
