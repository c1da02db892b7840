//! The product kernels: bits equal to the obvious definition on every combination, hand cases of the epilogues, refusals.

use super::KERNELS;
use crate::input::{DISTRIBUTIONS, Distribution, generate};
use crate::job::{Data, Dynamic, Job, Operand, Operands, OutSpec, Output};
use crate::kernel::{Backend, Kernel, find};
use crate::op::{Args64, Op, Params, define};
use crate::quant::QTensorParts;
use crate::recipe::Recipe;
use crate::{Format, Granularity, QTensor, Result, Tensor, Zero};
use Format::{Bf16, E4m3, E5m2, F16, F32, Int4, Int8};

fn job(op: Op, a: Operand, b: Operand, accumulator: &str) -> Job {
    let operands = Operands::of(a, Some(b));
    let out = OutSpec::High(F32);
    Job { op, params: Params::default(), operands, out, accumulator: Some(accumulator.parse().unwrap()) }
}
fn kernel(job: &Job) -> Result<&'static dyn Kernel> {
    find(KERNELS, job, Backend::Cpu)
}
fn run(job: &Job) -> Output {
    kernel(job).unwrap().run(job).unwrap()
}
fn high(out: &Output) -> &Tensor {
    match &out.parts[0].d {
        Data::High(t) => t,
        Data::Quantized(q) => panic!("a {} output", q.format()),
    }
}
/// Runs, and holds it against the definition.
fn agree(job: &Job, what: &str) -> Output {
    let k = kernel(job).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (ran, predicted) = (k.run(job).unwrap(), k.predict(job).unwrap().expect("a product is predictable"));
    match (&ran.parts[0].d, &predicted.parts[0].d) {
        (Data::High(a), Data::High(b)) => assert_eq!(a.bits(), b.bits(), "{what}"),
        (a, b) => assert_eq!(a, b, "{what}"),
    }
    assert_eq!(ran.parts[0].amax.map(f32::to_bits), predicted.parts[0].amax.map(f32::to_bits), "{what}");
    ran
}
fn random(dist: Distribution, dtype: Format, rows: usize, cols: usize, stream: u32) -> Tensor {
    generate(dist, dtype, rows, cols, 3, stream).unwrap()
}
fn by(recipe: &str, x: &Tensor) -> QTensor {
    recipe.parse::<Recipe>().unwrap().quantize(x).unwrap_or_else(|e| panic!("{recipe}: {e}")).q
}
fn quantized(recipe: &str, rows: usize, cols: usize, stream: u32) -> Operand {
    Operand::Quantized(by(recipe, &random(Distribution::Normal, Bf16, rows, cols, stream)))
}
/// Codes given as values.
fn made(format: Format, granularity: Granularity, rows: usize, values: &[f64], scale_inv: &[f32], zero: Zero) -> QTensor {
    use crate::{Overflow, Rounding};
    let code = |x: &f64| format.encode(*x, Rounding::NearestEven, Overflow::Saturate) as u8;
    QTensor::new(QTensorParts {
        format,
        rows,
        cols: values.len() / rows,
        codes: values.iter().map(code).collect(),
        granularity,
        scale_format: F32,
        scale_inv: scale_inv.to_vec(),
        zero,
        level: None,
    })
    .unwrap()
}
fn bias(n: usize) -> Option<Tensor> {
    Some(random(Distribution::Normal, Bf16, 1, n, 77))
}
/// Close to the f64 definition: relative to Σ|a||b|.
fn near(job: &Job, out: &Output, within: f64, what: &str) {
    let o = &job.operands;
    let vector = |t: &Tensor| t.data().iter().map(|x| f64::from(*x)).collect();
    let args = Args64 {
        a: o.a().to_f64(),
        b: o.b().map(Operand::to_f64),
        bias: o.bias.as_ref().map(vector),
        offs: o.offs.clone(),
        ..Args64::default()
    };
    let want = define(job.op, &job.params, &args).unwrap();
    let magnitude = want.magnitude.unwrap();
    for ((d, w), m) in high(out).to_f64().iter().zip(&want.d).zip(&magnitude) {
        assert!((d - w).abs() <= within * m, "{what}: {d} for {w}, magnitude {m}");
    }
}

#[test]
fn scaled_products_equal_the_definition() {
    let pairs = [
        ("te_current:e4m3", "te_current:e4m3"),
        ("te_current:e5m2", "te_current:e4m3"),
        ("float8_rowwise:e4m3", "float8_rowwise:e4m3"),
        ("float8_tensorwise:e4m3", "float8_inference_row:e5m2"),
        ("te_block_1x128_fp32:e4m3", "te_block_1x128_fp32:e4m3"),
        ("te_block_1x128_fp32:e4m3", "te_block_128x128_fp32:e4m3"),
        ("te_block_128x128_fp32:e4m3", "deepseek_1x128:e4m3"),
        ("deepseek_128x128:e4m3", "deepseek_128x128:e4m3"),
        ("te_mxfp8:e4m3", "te_mxfp8:e5m2"),
        ("mx_floor:e2m1", "mx_floor:e3m2"),
        ("te_nvfp4", "te_nvfp4_16x16"),
        ("te_block_1x128:e4m3", "te_mxfp8:e4m3"),
    ];
    for (ra, rb) in pairs {
        let fp8 = ["mx_floor:e2m1", "te_nvfp4"].iter().all(|r| *r != ra);
        let accumulators: &[&str] = match fp8 {
            true => {
                &["exact", "f32_sequential", "f32_pairwise@64", "hopper_wgmma", "hopper_wgmma@64+scales_first", "hopper_mma"]
            }
            false => &["exact", "f32_sequential", "blackwell_tcgen05"],
        };
        for acc in accumulators {
            let mut j = job(Op::Gemm, quantized(ra, 37, 304, 1), quantized(rb, 35, 304, 2), acc);
            for (out, b) in [(OutSpec::High(F32), None), (OutSpec::High(Bf16), bias(35))] {
                (j.out, j.operands.bias) = (out, b);
                let what = format!("{ra} × {rb}, {acc}, {:?}", j.out);
                let ran = agree(&j, &what);
                near(&j, &ran, 0.02, &what);
            }
        }
    }
}

#[test]
fn hard_data_equals_the_definition() {
    let dists = DISTRIBUTIONS.iter().map(|d| d.distribution);
    for dist in dists {
        let x = random(dist, F32, 9, 160, 1);
        let (a, b) = (by("float8_rowwise:e4m3", &x), by("te_current:e5m2", &random(dist, F32, 33, 160, 2)));
        for acc in ["hopper_wgmma", "hopper_mma@64", "f32_sequential", "exact"] {
            let j = job(Op::Gemm, Operand::Quantized(a.clone()), Operand::Quantized(b.clone()), acc);
            agree(&j, &format!("{dist}, {acc}"));
        }
    }
}

#[test]
fn every_code_meets_every_code() {
    // NaN and Inf codes too: 256 rows of one code each.
    let all = |f: Format| {
        let codes: Vec<u8> = (0..=255u8).flat_map(|c| [c; 16]).collect();
        let q = made(f, Granularity::Tensor, 256, &[0.0; 4096], &[0.37], Zero::None);
        Operand::Quantized(QTensor::new(QTensorParts { codes, ..q.into_parts() }).unwrap())
    };
    for (fa, fb) in [(E4m3, E4m3), (E5m2, E4m3), (E5m2, E5m2)] {
        for acc in ["hopper_wgmma", "exact", "f32_sequential"] {
            let j = job(Op::Gemm, all(fa), all(fb), acc);
            agree(&j, &format!("{fa}×{fb} {acc}"));
        }
    }
}

#[test]
fn fp8_output_with_amax_and_scale_inv() {
    let mut j = job(Op::Gemm, quantized("te_current:e4m3", 20, 64, 1), quantized("te_current:e4m3", 24, 64, 2), "hopper_wgmma");
    let plain = high(&run(&j)).clone();
    j.operands.bias = bias(24);
    for scale in [Some(13.7), None, Some(1000.0)] {
        j.out = OutSpec::Scaled { format: E4m3, scale: vec![scale] };
        let out = agree(&j, "fp8 output");
        let Data::Quantized(q) = &out.parts[0].d else { panic!() };
        let s = scale.unwrap_or(1.0);
        assert_eq!(q.scale_inv(), [1.0 / s]);
        let b = j.operands.bias.as_ref().unwrap();
        let values: Vec<f32> = plain.data().iter().enumerate().map(|(i, v)| v + b.data()[i % 24]).collect();
        assert_eq!(out.parts[0].amax, Some(values.iter().fold(0.0f32, |m, v| m.max(v.abs()))));
        let code = E4m3.encode(f64::from(values[5] * s), crate::Rounding::NearestEven, crate::Overflow::Saturate);
        assert_eq!(u32::from(q.codes()[5]), code);
    }
}

#[test]
fn orders_of_scales_by_hand() {
    // P = 3, scales that round differently in each order.
    let (sa, sb) = (1.0f32 + f32::EPSILON * 3.0, 1.0f32 + f32::EPSILON * 5.0 + 0.3);
    let mut values = [0.0; 16];
    values[0] = 3.0;
    let mut one = [0.0; 16];
    one[0] = 1.0;
    let result = |ga, gb, acc: &str| {
        let (a, b) = (made(E4m3, ga, 1, &values, &[sa], Zero::None), made(E4m3, gb, 1, &one, &[sb], Zero::None));
        high(&run(&job(Op::Gemm, Operand::Quantized(a), Operand::Quantized(b), acc))).data()[0]
    };
    let block = |rows| Granularity::Block { rows, cols: 128 };
    let (tensor, row) = (Granularity::Tensor, Granularity::Row);
    let (a_first, b_first, both) = (3.0 * sa * sb, 3.0 * sb * sa, 3.0 * (sa * sb));
    assert!(a_first != both && b_first != both || a_first != b_first, "the orders must differ to be told apart");
    assert_eq!(result(tensor, tensor, "exact"), both);
    assert_eq!(result(row, row, "exact"), a_first);
    assert_eq!(result(tensor, row, "exact"), a_first);
    assert_eq!(result(block(1), block(1), "exact"), a_first);
    assert_eq!(result(block(1), block(128), "exact"), a_first);
    assert_eq!(result(block(128), block(1), "exact"), b_first);
    assert_eq!(result(block(128), block(128), "exact"), both);
    assert_eq!(result(block(1), block(128), "exact+scales_first"), both);
    // Two blocks: the second is added by one fma.
    let mut long = [0.0; 32];
    (long[0], long[16]) = (3.0, 7.0);
    let group = Granularity::Group(16);
    let a = made(E4m3, group, 1, &long, &[sa, sb], Zero::None);
    let b = made(E4m3, Granularity::Tensor, 1, &[1.0; 32], &[0.7], Zero::None);
    let d = high(&run(&job(Op::Gemm, Operand::Quantized(a), Operand::Quantized(b), "exact"))).data()[0];
    assert_eq!(d, (7.0 * sb).mul_add(0.7, 3.0 * sa * 0.7));
}

#[test]
fn integer_products_equal_the_definition() {
    let weights =
        ["affine_sym:int4:g32", "affine_asym:int4:g64", "affine_asym:uint4:g128", "affine_symnc:int8", "affine_asym:int4"];
    for w in weights {
        for x in ["int8_token_sym", "int8_token_asym", "int8_token_reduced"] {
            let mut j = job(Op::Gemm, quantized(x, 19, 288, 1), quantized(w, 40, 288, 2), "int32");
            for (out, b) in [(F32, None), (F16, bias(40)), (Bf16, bias(40))] {
                (j.out, j.operands.bias) = (OutSpec::High(out), b);
                let what = format!("{x} × {w} → {out}");
                let ran = agree(&j, &what);
                near(&j, &ran, if out == F32 { 2e-6 } else { 0.004 }, &what);
            }
        }
    }
    // One row, no accumulator named.
    let mut j = job(Op::Gemm, quantized("int8_token_asym", 1, 64, 1), quantized("affine_asym:int4:g32", 8, 64, 2), "int32");
    j.accumulator = None;
    near(&j, &agree(&j, "one row"), 2e-6, "one row");
}

#[test]
fn integer_epilogues_by_hand() {
    let x: Vec<f64> = (0..32).map(|k| f64::from(k * 7 % 11 - 5)).collect();
    let w: Vec<f64> = (0..32).map(|k| f64::from(k * 5 % 13 - 6)).collect();
    let (xs, ws, c) = (0.123_f32, [0.77_f32, 0.31], 0.9_f32);
    let sum = |k: std::ops::Range<usize>| k.map(|k| (x[k] - 3.0) * (w[k] + 2.0)).sum::<f64>() as f32;
    let a = made(Int8, Granularity::Row, 1, &x, &[xs], Zero::Integer(vec![3]));
    let result = |granularity, scales: &[f32], bias: bool| {
        let rows: Vec<f64> = (0..8).flat_map(|_| w.clone()).collect();
        let n = scales.len();
        let scales: Vec<f32> = (0..8).flat_map(|_| scales.to_vec()).collect();
        let b = made(Int4, granularity, 8, &rows, &scales, Zero::Integer(vec![-2; 8 * n]));
        let mut j = job(Op::Gemm, Operand::Quantized(a.clone()), Operand::Quantized(b), "int32");
        j.operands.bias = bias.then(|| Tensor::new(F32, 1, 8, vec![c; 8]).unwrap());
        high(&run(&j)).data()[7]
    };
    assert_eq!(result(Granularity::Row, &ws[..1], true), sum(0..32) * xs * ws[0] + c);
    let groups = ws[1].mul_add(sum(16..32), ws[0] * sum(0..16)) * xs;
    assert_eq!(result(Granularity::Group(16), &ws, false), groups);
    assert_eq!(result(Granularity::Group(16), &ws, true), groups + c);
    // Without bias +0 is added all the same: −0 becomes +0.
    let zero = made(Int8, Granularity::Row, 1, &[0.0; 32], &[-1.0], Zero::None);
    let b = made(Int4, Granularity::Tensor, 8, &[1.0; 256], &[1.0], Zero::None);
    let j = job(Op::Gemm, Operand::Quantized(zero), Operand::Quantized(b), "int32");
    assert_eq!(high(&run(&j)).data()[0].to_bits(), 0);
}

#[test]
fn a_dynamic_activation_is_quantized_inside() {
    let x = random(Distribution::Normal, F16, 5, 64, 1);
    let recipe: Recipe = "int8_token_reduced_cutlass".parse().unwrap();
    let w = || quantized("affine_sym:int4", 16, 64, 2);
    let outside = job(Op::Gemm, Operand::Quantized(recipe.quantize(&x).unwrap().q), w(), "int32");
    let inside = job(Op::Gemm, Operand::Dynamic(Dynamic::new(x, recipe).unwrap()), w(), "int32");
    assert_eq!(kernel(&inside).unwrap().spec().name, "cpu/w4a8");
    assert_eq!(agree(&inside, "dynamic"), run(&outside));
}

#[test]
fn mixed_products_equal_the_definition() {
    for dtype in [F16, Bf16] {
        let (a, b) = (random(Distribution::Normal, dtype, 18, 192, 1), random(Distribution::Normal, dtype, 35, 192, 2));
        let j = job(Op::Gemm, Operand::High(a), Operand::High(b), "hopper_wgmma@64");
        near(&j, &agree(&j, dtype.name()), 2e-3, dtype.name());
    }
    let weights =
        ["affine_sym:int4:g64", "affine_asym:uint4:g32", "tinygemm:uint4:g128", "affine_symnc:int8:g64", "affine_asym:int8"];
    for w in weights {
        for dtype in [F16, Bf16] {
            let b = by(w, &random(Distribution::Normal, dtype, 35, 192, 2));
            for acc in ["exact", "f32_sequential", "f32_pairwise", "hopper_wgmma", "ampere_mma", "hopper_mma@64"] {
                let a = Operand::High(random(Distribution::Normal, dtype, 18, 192, 1));
                let mut j = job(Op::Gemm, a, Operand::Quantized(b.clone()), acc);
                j.operands.bias = bias(35);
                j.out = OutSpec::High(dtype);
                let what = format!("{dtype} × {w}, {acc}");
                let ran = agree(&j, &what);
                near(&j, &ran, if dtype == F16 { 2e-3 } else { 1.6e-2 }, &what);
            }
        }
        let b = Operand::Quantized(by(w, &random(Distribution::Normal, F16, 35, 192, 2)));
        for fp8 in ["float8_rowwise:e4m3", "te_current:e5m2"] {
            let j = job(Op::Gemm, quantized(fp8, 18, 192, 1), b.clone(), "hopper_wgmma");
            assert_eq!(kernel(&j).unwrap().spec().name, "cpu/mixed_gemm");
            near(&j, &agree(&j, fp8), 2e-3, fp8);
        }
    }
}

#[test]
fn weights_are_rounded_as_written() {
    use crate::model::product::dequantized_weights;
    let with = |zero, scale_format, s: f32| {
        let q = made(Int8, Granularity::Tensor, 1, &[77.0], &[s], zero);
        QTensor::new(QTensorParts { scale_format, ..q.into_parts() }).unwrap()
    };
    let s = half::f16::from_f32(0.0123).to_f32();
    let f16 = |x: f64| f64::from(half::f16::from_f64(x).to_f32());
    let w = |zero| f64::from(dequantized_weights(&with(zero, F16, s), F16)[0]);
    assert_eq!(w(Zero::None), f16(77.0 * f64::from(s)));
    assert_eq!(w(Zero::Integer(vec![5])), f16(72.0 * f64::from(s)));
    let z = half::f16::from_f32(-0.94).to_f32();
    let additive = w(Zero::Additive { zero: vec![z], mid: 0 });
    assert_eq!(additive, f16(f16(77.0 * f64::from(s)) + f64::from(z)));
    assert_ne!(additive, f16(77.0 * f64::from(s) + f64::from(z)), "two roundings");
    // f32 scales: product in f32, one more rounding to f16.
    let long = 0.012_345_678_f32;
    assert_eq!(f64::from(dequantized_weights(&with(Zero::None, F32, long), F16)[0]), f16(f64::from(77.0 * long)));
}

#[test]
fn weights_are_those_of_their_own_scale_in_groups_of_any_length() {
    use crate::model::product::dequantized_weights;
    let (rows, cols) = (6, 70);
    let shapes =
        [Granularity::Group(1), Granularity::Group(7), Granularity::Group(32), Granularity::Block { rows: 4, cols: 24 }];
    for (format, codes) in [(Int4, 16), (Int8, 256), (Format::E2m1, 16)] {
        for granularity in shapes {
            let (r, c) = granularity.grid(rows, cols);
            let q = QTensor::new(QTensorParts {
                format,
                rows,
                cols,
                codes: (0..rows * cols).map(|n| ((n * 37 + 11) % codes) as u8).collect(),
                granularity,
                scale_inv: (0..r * c).map(|n| 0.25 + n as f32 * 0.37).collect(),
                zero: Zero::None,
                scale_format: F32,
                level: None,
            })
            .unwrap();
            let (high, wide) = granularity.tile(rows, cols);
            let weights = dequantized_weights(&q, Bf16);
            for (n, found) in weights.iter().enumerate() {
                let (i, j) = (n / cols, n % cols);
                let scale = q.scale_inv()[i / high * c + j / wide];
                let right = half::bf16::from_f32(format.decode(u32::from(q.codes()[n])) as f32 * scale).to_f32();
                assert_eq!(found.to_bits(), right.to_bits(), "{format} {granularity} ({i}, {j})");
            }
        }
    }
}

#[test]
fn the_origin_of_mixed_gemm_gives_4096() {
    // CUTLASS issue: K = 8192, bytes 0x01 are nibbles 1 and 0, all else one.
    let w: Vec<f64> = (0..8192).map(|k| f64::from((k + 1) % 2)).collect();
    let b = made(Int4, Granularity::Group(64), 1, &w, &[1.0; 128], Zero::None);
    let a = Operand::High(Tensor::new(F16, 1, 8192, vec![1.0; 8192]).unwrap());
    let mut j = job(Op::Gemm, a, Operand::Quantized(b), "hopper_wgmma");
    j.out = OutSpec::High(F16);
    assert_eq!(high(&run(&j)).data(), [4096.0]);
}

fn grouped(op: Op, recipe: &str, n: usize, k: usize, offs: &[usize], m: usize, acc: &str) -> Job {
    let e = offs.len();
    let (a, b) = match op {
        Op::GroupedGemmWgrad => {
            let recipe: Recipe = recipe.parse().unwrap();
            let groups = |x: &Tensor| Operand::by_groups(x, offs, &recipe).unwrap();
            let x = |rows, s| random(Distribution::Normal, Bf16, rows, *offs.last().unwrap(), s);
            (groups(&x(n, 1)), groups(&x(k, 2)))
        }
        _ => (quantized(recipe, m, k, 1), quantized(recipe, e * n, k, 2)),
    };
    let mut j = job(op, a, b, acc);
    j.operands.offs = Some(offs.to_vec());
    j.out = OutSpec::High(Bf16);
    j
}

#[test]
fn grouped_products_equal_the_definition() {
    for offs in [vec![7, 7, 20], vec![0, 33], vec![16, 32, 48], vec![0, 0, 1], vec![50]] {
        for op in [Op::GroupedGemm, Op::GroupedGemmDgrad, Op::GroupedGemmWgrad] {
            for acc in ["hopper_wgmma", "f32_sequential", "exact"] {
                let j = grouped(op, "float8_rowwise:e4m3", 32, 48, &offs, 50, acc);
                let what = format!("{} {offs:?} {acc}", op.name());
                let out = agree(&j, &what);
                near(&j, &out, 0.01, &what);
                if op != Op::GroupedGemmWgrad {
                    let unowned = high(&out).rows_range(*offs.last().unwrap(), 50);
                    assert!(unowned.data().iter().all(|x| x.to_bits() == 0), "{what}: rows of no group are not written");
                }
            }
        }
    }
    // One scale a group for each row: the groups of a weight gradient do not share them.
    let j = grouped(Op::GroupedGemmWgrad, "float8_rowwise_gw_hp:e4m3", 16, 16, &[5, 40], 40, "exact");
    let Operand::Groups(groups) = j.operands.a() else { panic!() };
    assert_ne!(groups[0].scale_inv(), groups[1].scale_inv());
}

#[test]
fn refusals_name_the_rule_and_the_reason() {
    let refused = |j: &Job, says: &str| match kernel(j) {
        Ok(k) => panic!("{} takes it, expected: {says}", k.spec().name),
        Err(e) => assert!(e.to_string().contains(says), "{e}"),
    };
    let fp8 = |rows, k, s| quantized("te_current:e4m3", rows, k, s);
    refused(&job(Op::Gemm, fp8(4, 40, 1), fp8(4, 40, 2), "exact"), "K = 40 is not a multiple of 16");
    refused(&job(Op::Gemm, fp8(4, 32, 1), fp8(4, 48, 2), "exact"), "4×48");
    refused(&job(Op::Gemm, fp8(4, 32, 1), fp8(4, 32, 2), "int32"), "not both integers");
    refused(&job(Op::Gemm, fp8(4, 32, 1), fp8(4, 32, 2), "volta_mma"), "no e4m3 × e4m3");
    let mut j = job(Op::Gemm, fp8(4, 32, 1), fp8(4, 32, 2), "exact");
    j.accumulator = None;
    refused(&j, "accumulator");
    j = job(Op::Gemm, fp8(4, 32, 1), fp8(4, 32, 2), "exact");
    j.operands.bias = bias(5);
    refused(&j, "5 values");
    j = job(Op::Gemm, fp8(4, 32, 1), fp8(4, 32, 2), "exact");
    j.out = OutSpec::Recipe("te_current:e4m3".parse().unwrap());
    refused(&j, "writes");
    let int8 = |k| quantized("int8_token_sym", 4, k, 1);
    let int4 = |n, k| quantized("affine_sym:int4", n, k, 2);
    refused(&job(Op::Gemm, int8(48), int4(8, 48), "int32"), "K = 48 is not a multiple of 32");
    refused(&job(Op::Gemm, int8(64), int4(12, 64), "int32"), "N = 12 is not a multiple of 8");
    refused(&job(Op::Gemm, int8(64), int4(8, 64), "exact"), "int32");
    let f16 = |k| Operand::High(random(Distribution::Normal, F16, 4, k, 1));
    refused(&job(Op::Gemm, f16(48), int4(8, 48), "exact"), "K = 48 is not a multiple of 32");
    refused(&job(Op::Gemm, f16(44), f16(44), "exact"), "K = 44 is not a multiple of 8");
    let bf16 = Operand::High(random(Distribution::Normal, Bf16, 4, 64, 1));
    refused(&job(Op::Gemm, f16(64), bf16, "exact"), "no kernel multiplies");
    refused(&job(Op::Gemm, Operand::High(random(Distribution::Normal, F32, 4, 64, 1)), int4(8, 64), "exact"), "f16 or bf16");
    for (offs, says) in [(vec![9, 4], "4 after 9"), (vec![9, 60], "60 after 9"), (vec![], "none"), (vec![1, 2, 3, 4, 5], "5·N")]
    {
        let mut j = grouped(Op::GroupedGemm, "float8_rowwise:e4m3", 16, 32, &[9, 20], 50, "exact");
        j.operands.offs = Some(offs);
        refused(&j, says);
    }
    // A bias is refused, not left out.
    let mut j = grouped(Op::GroupedGemm, "float8_rowwise:e4m3", 16, 32, &[9, 20], 50, "exact");
    j.operands.bias = bias(16);
    refused(&j, "without bias");
    let mut j = grouped(Op::GroupedGemmWgrad, "float8_rowwise:e4m3", 16, 32, &[9, 20], 20, "exact");
    j.operands.offs = Some(vec![8, 20]);
    refused(&j, "[9, 20]");
}

#[test]
fn dynamic_groups_are_quantized_by_themselves() {
    let offs = [7, 7, 20];
    let recipe: Recipe = "float8_rowwise:e4m3".parse().unwrap();
    let outside = grouped(Op::GroupedGemmWgrad, "float8_rowwise:e4m3", 32, 48, &offs, 20, "hopper_wgmma");
    let mut inside = outside.clone();
    let x = |rows, s| random(Distribution::Normal, Bf16, rows, 20, s);
    let dynamic = |x: Tensor| Operand::Dynamic(Dynamic::by_groups(x, &offs, recipe.clone()).unwrap());
    inside.operands.set_tensors(0, vec![dynamic(x(32, 1))]);
    assert_eq!(agree(&inside, "a dynamic"), run(&outside));
    inside.operands.set(1, dynamic(x(48, 2)));
    assert_eq!(agree(&inside, "both dynamic"), run(&outside));
    assert_eq!(inside.operands.a().to_f64(), outside.operands.a().to_f64());
    // Scales of the whole row are not those of its groups.
    inside.operands.set(1, Operand::Dynamic(Dynamic::new(x(48, 2), recipe.clone()).unwrap()));
    assert!(kernel(&inside).err().unwrap().to_string().contains("grouped_gemm_wgrad"));
}
