//! Bundles of the CPU kernels' results pass, and the same results with a bug fail, with the words that say what.

use super::assay::{assay, assay_by, without_nobodys_rows};
use super::case::{input, output};
use super::{Bundle, Writer, answer};
use crate::compare::Verdict;
use crate::job::{Data, OutSpec, Output, Part};
use crate::kernel::{Backend, cpu, find};
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::recipe::Recipe;
use crate::sweep::{Sweep, build};
use crate::{Format, Granularity, QTensor, Result, Tensor, Zero};
use std::path::Path;
use std::time::Duration;

fn read(w: &Writer) -> Result<Bundle> {
    Bundle::parse(Path::new("x.safetensors"), &w.to_bytes()?)
}

/// The bundles of a sweep's cases with what the CPU kernels return, declared as they are; with their names.
fn bundles(sweep: &str) -> Vec<(String, Writer)> {
    let text = format!("about = \"x\"\n{sweep}");
    let sweep = Sweep::parse(Path::new("x.toml"), &text, 0).unwrap();
    let mut made = Vec::new();
    for case in sweep.cases.iter().filter(|c| c.skip.is_none()) {
        let built = build::build(case).unwrap();
        let Ok(mut w) = input(&built.job) else { continue };
        let Ok(kernel) = find(cpu::KERNELS, &built.job, Backend::Cpu) else { continue };
        output(&mut w, &built.job, &kernel.run(&built.job).unwrap()).unwrap();
        if let Some(a) = built.job.accumulator {
            w.meta("device_model", a.inner);
            a.promote_every.map(|n| w.meta("promote_every", n).clone());
        }
        // Which code its zero points are about is the recipe's.
        if case.a.to_string() == "tinygemm" {
            w.meta("recipe", "tinygemm");
        } else if case.b.to_string() == "tinygemm" {
            w.meta("recipe", "none+tinygemm");
        }
        if let OutSpec::Recipe(_) = built.job.out {
            w.without("out.amax");
        }
        made.push((case.id(), w));
    }
    made
}

/// Verdict and reason, without a diagnosis.
fn verdict(w: &Writer) -> (Verdict, String) {
    let found = assay_by(&read(w).unwrap(), Duration::ZERO, None).unwrap();
    (answer::verdict(&found), found.reason)
}

const EVERY_OP: &str = r#"
[[cases]]
name = "casts"
op = ["cast"]
shape = ["9x160"]
out = ["te_current", "te_block_1x128", "te_mxfp8", "te_nvfp4", "mx_floor:e2m1", "affine_asym:int4:g32", "int8_token_asym", "tinygemm", "scaled:e5m2"]
[[cases]]
name = "dequantize"
op = ["dequantize"]
shape = ["9x160"]
recipe = ["te_nvfp4", "affine_asym:int8:g64", "tinygemm", "te_block_128x128_fp32"]
out = ["bf16", "f32"]
[[cases]]
name = "elementwise"
op = ["activation", "gated", "layernorm", "rmsnorm"]
act = ["gelu", "srelu"]
shape = ["9x66"]
out = ["scaled:e4m3", "bf16"]
[[cases]]
name = "gemm"
op = ["gemm"]
shape = ["9x17x288"]
recipe = ["te_current", "float8_rowwise", "te_block_1x128_fp32+te_block_128x128_fp32", "te_mxfp8", "te_nvfp4"]
accumulator = ["f32_sequential", "hopper_wgmma@128"]
bias = [false, true]
out = ["bf16", "scaled:e4m3"]
[[cases]]
name = "w4a8"
op = ["gemm"]
shape = ["9x24x256"]
dtype = ["f16"]
recipe = ["int8_token_sym+affine_sym:int4", "int8_token_asym+affine_asym:int4:g64"]
accumulator = ["int32"]
out = ["f16"]
[[cases]]
name = "mixed"
op = ["gemm"]
shape = ["9x24x256"]
dtype = ["bf16"]
recipe = ["none+affine_asym:uint4:g64", "none+tinygemm"]
accumulator = ["f32_sequential"]
out = ["bf16"]
[[cases]]
name = "grouped"
op = ["grouped_gemm", "grouped_gemm_dgrad", "grouped_gemm_wgrad"]
shape = ["32x48"]
rows = ["16,0,33"]
recipe = ["float8_rowwise"]
accumulator = ["hopper_wgmma"]
"#;

#[test]
fn healthy_results_of_every_op_pass() {
    let made = bundles(EVERY_OP);
    assert!(made.len() >= 50, "{}", made.len());
    let wrong: Vec<String> = (made.iter().map(|(id, w)| (id, verdict(w))))
        .filter(|(id, v)| v.0 != Verdict::Pass && !(v.0 == Verdict::NoPower && v.1.contains("zero point")) || id.is_empty())
        .map(|(id, v)| format!("{id}: {}: {}", v.0, v.1))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One element of the result changed by a factor of two, or its code by one: every op notices.
#[test]
fn one_wrong_element_fails_every_op() {
    for (id, mut w) in bundles(EVERY_OP) {
        let file = super::File::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        let name = if file.has("out") { "out" } else { "out.codes" };
        let raw = file.get(name).unwrap().clone();
        let mut bytes = raw.bytes.to_vec();
        // The last byte of the largest value, so that no bound hides it: the exponent.
        let at = bytes.len() / 3 / 4 * 4;
        let width = bytes.len() / raw.shape.iter().product::<usize>();
        let at = (at / width + 1) * width - 1;
        bytes[at] ^= if width == 1 { 1 } else { 0x40 };
        w.raw(name, raw.dtype, &raw.shape, bytes);
        let (found, reason) = verdict(&w);
        assert!(found == Verdict::Fail && !reason.is_empty(), "{id}: {found}: {reason}");
    }
}

fn gemm(accumulator: &str, out: &str) -> Writer {
    let text = format!(
        "[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nshape = [\"17x33x512\"]\nrecipe = [\"float8_rowwise_gw_hp\"]\naccumulator = [\"{accumulator}\"]\nout = [\"{out}\"]\n"
    );
    bundles(&text).remove(0).1
}

#[test]
fn the_model_is_the_declared_one_or_the_devices_and_the_answer_says_which() {
    let said = |w: &Writer| {
        let found = assay(&read(w).unwrap()).unwrap();
        (answer::verdict(&found), found.model.clone(), found.comparison().mismatches)
    };
    let mut w = gemm("hopper_wgmma@128", "f32");
    let (v, model, n) = said(&w);
    assert_eq!((v, n), (Verdict::Pass, Some(0)));
    assert!(model.contains("hopper_wgmma@128") && model.contains("declared"), "{model}");
    // Promotion is not declared: a chain without it has other bits.
    w.without("promote_every");
    assert_eq!(said(&w).0, Verdict::Fail);
    // From the device: with promotion or without, whichever it was.
    w.without("device_model").meta("device", "NVIDIA H200");
    let (v, model, n) = said(&w);
    assert_eq!((v, n), (Verdict::Pass, Some(0)));
    assert!(model.starts_with("hopper_wgmma@128") && model.contains("assumed from the device `NVIDIA H200`"), "{model}");
    // On an unknown device: every instruction that takes the formats.
    w.meta("device", "a device");
    let (v, model, n) = said(&w);
    assert_eq!((v, n), (Verdict::Pass, Some(0)));
    assert!(model.starts_with("hopper_wgmma@128") && model.contains("device `a device`"), "{model}");
    let mut w = gemm("f32_pairwise", "f32");
    w.without("device_model");
    let (v, model, n) = said(&w);
    assert_eq!((v, n), (Verdict::Pass, Some(0)), "{model}");
    assert!(model.contains("f32_pairwise") && model.contains("no `device`"), "{model}");
    // A kernel on that device may sum in f32 and leave its FP8 unit alone: more exact, and no error.
    w.meta("device", "NVIDIA H200");
    let (v, model, n) = said(&w);
    assert_eq!((v, n), (Verdict::Pass, Some(0)));
    assert!(model.contains("f32_pairwise") && model.contains("assumed from the device `NVIDIA H200`"), "{model}");
    // What neither has done is nobody's: one result a thousandth off.
    let file = super::File::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap();
    let raw = file.get("out").unwrap();
    let mut values: Vec<f32> = raw.bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    values[40] *= 1.001;
    w.f32s("out", &[17, 33], &values);
    assert_eq!(said(&w).0, Verdict::Fail);
}

#[test]
fn a_model_that_does_not_take_the_formats_is_an_error() {
    let mut w = gemm("f32_sequential", "f32");
    w.meta("device_model", "volta_mma");
    let e = assay(&read(&w).unwrap()).err().unwrap().to_string();
    assert!(e.contains("volta_mma") && e.contains("e4m3"), "{e}");
}

#[test]
fn operands_are_held_to_the_recipe() {
    let text = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nshape = [\"17x33x512\"]\nrecipe = [\"te_block_1x128_fp32\"]\n\
                accumulator = [\"f32_sequential\"]\nout = [\"f32\"]\n";
    let sweep = Sweep::parse(Path::new("x.toml"), text, 0).unwrap();
    let built = build::build(&sweep.cases[0]).unwrap();
    let made = |change: &dyn Fn(&mut crate::quant::QTensorParts)| {
        let mut job = built.job.clone();
        let crate::job::Operand::Quantized(q) = job.operands.a() else { unreachable!() };
        let mut parts = q.clone().into_parts();
        change(&mut parts);
        job.operands.set(0, crate::job::Operand::Quantized(crate::QTensor::new(parts).unwrap()));
        let mut w = input(&job).unwrap();
        w.values("a", &[17, 512], &built.quantized[0].1).values("b", &[33, 512], &built.quantized[1].1);
        output(&mut w, &job, &find(cpu::KERNELS, &job, Backend::Cpu).unwrap().run(&job).unwrap()).unwrap();
        w.meta("recipe", "te_block_1x128_fp32").meta("device_model", "f32_sequential");
        verdict(&w)
    };
    assert_eq!(made(&|_| {}), (Verdict::Pass, String::new()));
    // The product is right for what it read; what it read is not what the recipe makes.
    let (v, reason) = made(&|p| p.codes[600] ^= 1);
    assert!(v == Verdict::Fail && reason.contains("a is not te_block_1x128_fp32: code at (1, 88)"), "{reason}");
    let (v, reason) = made(&|p| p.scale_inv[5] *= 1.5);
    assert!(v == Verdict::Fail && reason.contains("a is not te_block_1x128_fp32: scale_inv at (1, 1)"), "{reason}");
}

#[test]
fn a_cast_by_scales_that_are_given_is_judged_by_them() {
    let mut w = bundles(
        "[[cases]]\nname = \"x\"\nop = [\"cast\"]\nshape = [\"9x160\"]\nout = [\"te_block_1x128_fp32\", \"scaled:e4m3\"]\n",
    );
    for (id, w) in &mut w {
        w.without("recipe").without("out.scale");
        assert_eq!(verdict(w).0, Verdict::Pass, "{id}");
        let file = super::File::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        let raw = file.get("out.codes").unwrap();
        let mut bytes = raw.bytes.to_vec();
        bytes[77] ^= 1;
        w.raw("out.codes", raw.dtype, &raw.shape, bytes);
        let (v, reason) = verdict(w);
        assert!(v == Verdict::Fail && reason.contains("(0, 77)"), "{id}: {reason}");
    }
}

/// What a recipe says of codes need not be said again: granularity, and the formats of bytes.
#[test]
fn a_recipe_says_what_codes_are() {
    let keys = |x: &str| ["granularity", "format", "scale_format"].map(|k| format!("{x}.{k}"));
    let casts = bundles(
        "[[cases]]\nname = \"x\"\nop = [\"cast\"]\nshape = [\"9x160\"]\nout = [\"te_mxfp8\", \"deepseek_1x128\", \"float8_rowwise\", \
         \"te_nvfp4\", \"mx_floor:e2m1\", \"affine_asym:int4:g32\", \"te_block_128x128\"]\n",
    );
    assert_eq!(casts.len(), 7);
    for (id, mut w) in casts {
        for key in keys("out") {
            w.without(&key);
        }
        assert_eq!(verdict(&w).0, Verdict::Pass, "{id}");
    }
    let one = |recipe: &str, accumulator: &str| {
        let sweep = format!(
            "[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nshape = [\"9x24x128\"]\nrecipe = [\"{recipe}\"]\naccumulator = [\"{accumulator}\"]\n"
        );
        bundles(&sweep).remove(0)
    };
    for (recipe, accumulator) in [
        ("te_mxfp8", "f32_sequential"),
        ("te_nvfp4", "f32_sequential"),
        ("float8_rowwise", "f32_sequential"),
        ("int8_token_sym+affine_sym:int4:g32", "int32"),
    ] {
        let (id, mut w) = one(recipe, accumulator);
        w.meta("recipe", recipe);
        for key in keys("a").into_iter().chain(keys("b")) {
            w.without(&key);
        }
        let (v, reason) = verdict(&w);
        assert!(v == Verdict::Pass, "{id}: {reason}");
    }
}

#[test]
fn the_json_line_is_the_contracts() {
    let w = gemm("f32_sequential", "f32");
    let bundle = read(&w).unwrap();
    let line = answer::json(&bundle, &assay(&bundle).unwrap());
    let keys: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    for key in ["file", "verdict", "diagnosis", "errors", "bound_ratio", "power"] {
        assert!(keys.contains(&key), "{keys:?}");
    }
    assert_eq!((line["verdict"].as_str(), line["file"].as_str()), (Some("pass"), Some("x.safetensors")));
    assert!(line["errors"]["kernel"]["max_abs"].is_number() && line["errors"]["quantization"].is_null());
    assert!(line["power"]["gain"].as_f64().unwrap() > 1.0 && line["bound_ratio"].as_f64().unwrap() <= 1.0);
    assert!(!line.to_string().contains('\n'));
}

/// The error of the format is that of both operands, from the values that were quantized; weights of rows multiply those too.
#[test]
fn errors_of_quantization_are_of_both_operands() {
    let values = |rows: usize, seed: usize| {
        let data =
            (0..rows * 64).map(|at| (((at * 613 + seed * 71) % 1009) as f32 / 509.0 - 1.0) * (1 + at / 64) as f32).collect();
        Tensor::new(Format::F32, rows, 64, data).unwrap()
    };
    let (x, y) = (values(32, 1), values(24, 2));
    let codes = |t: &Tensor| "float8_rowwise".parse::<Recipe>().unwrap().quantize(t).unwrap().q;
    let (a, b) = (codes(&x), codes(&y));
    let (exact, ideal) = (x.to_f64().dot(&y.to_f64().t()), a.dequantize_fast().dot(&b.dequantize_fast().t()));
    for weighted in [false, true] {
        let weight = |i: usize| if weighted { (1 << (i % 5)) as f32 } else { 1.0 };
        let mut w = Writer::new("grouped_gemm");
        w.codes("a", &a, None, None).unwrap().values("a", &[32, 64], &x);
        w.codes("b", &b, Some(1), None).unwrap().values("b", &[1, 24, 64], &y).i32s("offs", &[1], &[32]);
        if weighted {
            w.f32s("row_weights", &[32], &(0..32).map(weight).collect::<Vec<f32>>());
        }
        let out: Vec<f32> = ideal.indexed_iter().map(|((i, _), s)| *s as f32 * weight(i)).collect();
        w.f32s("out", &[32, 24], &out);
        let bundle = read(&w).unwrap();
        let line = answer::json(&bundle, &assay(&bundle).unwrap());
        let square = |of: &dyn Fn(usize, usize) -> f64| {
            (0..32 * 24).map(|at| (of(at / 24, at % 24) * f64::from(weight(at / 24))).powi(2)).sum::<f64>()
        };
        let relative = (square(&|i, j| ideal[[i, j]] - exact[[i, j]]) / square(&|i, j| exact[[i, j]])).sqrt();
        let told = line["errors"]["quantization"]["rel_frobenius"].as_f64().unwrap();
        assert!((told / relative - 1.0).abs() < 1e-6, "{weighted}: {told}, by hand {relative}");
        assert!(line["verdict"] == "pass", "{line}");
    }
}

#[test]
fn data_that_hide_faults_have_no_power() {
    let mut w = gemm("f32_sequential", "f32");
    w.raw("a.codes", safetensors::Dtype::F8_E4M3, &[17, 512], vec![0; 17 * 512]).f32s("out", &[17, 33], &[0.0; 17 * 33]);
    let (v, reason) = verdict(&w);
    assert!(v == Verdict::NoPower && reason.contains("every output is zero"), "{reason}");
    let mut w = gemm("f32_sequential", "f32");
    w.f32s("a.scale_inv", &[17], &[1.0; 17]);
    assert!(matches!(verdict(&w).0, Verdict::Fail), "the result belongs to other scales");
}

/// A product of activations and weights, and the same with the weights first: one verdict, told in the layout of each.
#[test]
fn products_stand_either_way_round() {
    let made = bundles(
        "[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nshape = [\"9x24x256\"]\ndtype = [\"f16\"]\nrecipe = [\"none+affine_asym:uint4:g64\"]\n\
         accumulator = [\"f32_sequential\"]\nout = [\"f16\"]\n\
         [[cases]]\nname = \"y\"\nop = [\"gemm\"]\nshape = [\"9x24x256\"]\ndtype = [\"f16\"]\n\
         recipe = [\"int8_token_sym+affine_sym:int4:g64\"]\naccumulator = [\"int32\"]\nout = [\"f16\"]\n",
    );
    assert_eq!(made.len(), 2);
    for (id, plain) in made {
        let mut b = read(&plain).unwrap();
        let ideal = super::assay::build(&b).unwrap().ideal.remove(0).d.clone();
        std::mem::swap(&mut b.a, &mut b.b);
        let crate::job::Data::High(d) = &b.out.d else { panic!("values") };
        let d = d.transposed();
        let turned = |d: &[f32]| {
            let mut w = Writer::new("gemm");
            w.side("a", &b.a, None, None).unwrap().side("b", &b.b, None, None).unwrap();
            w.values("out", &[24, 9], &crate::Tensor::rounded(Format::F16, 24, 9, d.to_vec()).unwrap());
            w.meta("device_model", b.meta.model.unwrap().inner);
            w
        };
        assert_eq!(verdict(&turned(d.data())), verdict(&plain), "{id}");
        let mut wrong = d.data().to_vec();
        wrong[5 * 9 + 2] *= 1.5;
        let found = assay(&read(&turned(&wrong)).unwrap()).unwrap();
        assert!(found.verdict == Verdict::Fail && found.reason.contains("(5, 2)"), "{id}: {}", found.reason);
        assert_eq!((found.judgement().cols, found.assayed.built.job.operands.a().rows()), (9, 24), "{id}");
        let location = &found.diagnosis.as_ref().unwrap().location;
        assert!(location.words.contains("all in rows 5…5, columns 2…2"), "{id}: {}", location.words);
        assert_eq!((location.rows.len(), location.cols.len(), location.rows[5] > 0.0), (24, 9, true), "{id}");
        // A bias, one a column of the result as it stands now: added before the only rounding, or after one.
        let bias: Vec<f32> = (0..9).map(|i| (i as f32 - 4.0) * 0.3).collect();
        let with = |d: &dyn Fn(usize) -> f32| {
            let mut w = turned(&(0..24 * 9).map(|i| d(i) + bias[i % 9]).collect::<Vec<_>>());
            w.f32s("bias", &[9], &bias);
            w
        };
        let (v, reason) = verdict(&with(&|i| ideal[(i % 9, i / 9)] as f32));
        assert_eq!((v, reason.as_str()), (Verdict::Pass, ""), "{id}");
        let (v, reason) = verdict(&with(&|i| 1.002 * d.data()[i]));
        assert!(v == Verdict::Fail && reason.contains("outside"), "{id}: {reason}");
    }
}

/// What torch wrote on an H200 (data/bundles/make.py): healthy bundles pass to the bit, those with a bug fail.
#[test]
fn bundles_of_a_gpu_are_told_apart() {
    let folder = crate::data::find("bundles").unwrap();
    let names = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
    let bundles: Vec<_> = names.filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect();
    assert!(bundles.len() >= 14, "{}", bundles.len());
    for path in bundles {
        let bundle = Bundle::read(&path).unwrap();
        let found = assay(&bundle).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (verdict, mismatches) = (answer::verdict(&found), found.comparison().mismatches);
        match name.strip_prefix("bug_") {
            Some(_) => assert_eq!(verdict, Verdict::Fail, "{name}: {}", found.model),
            None => {
                assert_eq!(verdict, Verdict::Pass, "{name}: {}: {}", found.model, found.reason);
                // Blocks summed in f32 by torch have no model of their bits.
                assert_eq!(mismatches, (name != "block_f32").then_some(0), "{name}: {}", found.model);
            }
        }
        println!("{name}: {verdict} {} {:?}", found.model, found.diagnosis.map(|d| d.line()));
    }
}

#[test]
fn the_text_for_a_terminal_says_what_was_computed_by_whom() {
    let mut w = gemm("f32_sequential", "f32");
    let text = |w: &Writer| {
        let bundle = read(w).unwrap();
        answer::text(&bundle, &assay(&bundle).unwrap(), answer::WIDTH)
    };
    assert!(text(&w).contains("op           gemm 17×512 by 33×512\n"), "{}", text(&w));
    let said = text(&w).split_whitespace().collect::<Vec<_>>().join(" ");
    // What a gain adds is told, where "×1.00002" would hide it.
    for words in ["catches a gain of ×(1 + ", " of K dropped; ", " % of codes off by one"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let bundle = read(&w).unwrap();
    let row = answer::row(&bundle, &assay(&bundle).unwrap());
    assert_eq!((row.m, row.n, row.k), (17, 33, 512));
    w.meta("kernel", "mine").meta("device", "NVIDIA H200");
    assert!(text(&w).contains("op           gemm 17×512 by 33×512 by mine on NVIDIA H200\n"), "{}", text(&w));
}

/// The recipe of a product is that of its operands; its FP8 result is scaled by what is stored beside it.
#[test]
fn the_result_of_a_product_is_not_of_the_operands_recipe() {
    let mut w = gemm("hopper_wgmma@128", "scaled:e4m3");
    w.meta("recipe", "float8_rowwise_gw_hp");
    let found = assay(&read(&w).unwrap()).unwrap();
    assert_eq!((found.verdict, found.comparison().mismatches), (Verdict::Pass, Some(0)), "{}", found.model);
}

/// gelu is the tanh formula. That by the error function is another, and the reason says so, of f32 results too.
#[test]
fn gelu_by_the_error_function_is_named() {
    use statrs::function::erf::erf;
    let x: Vec<f32> = (0..9 * 64).map(|i| (i as f32 - 288.0) / 60.0).collect();
    for (dtype, raw) in [(Format::F32, safetensors::Dtype::F32), (Format::Bf16, safetensors::Dtype::BF16)] {
        let by = |f: &dyn Fn(f64) -> f64| {
            let t = crate::Tensor::rounded(dtype, 9, 64, x.clone()).unwrap();
            let made = t.data().iter().map(|x| f(f64::from(*x)) as f32).collect();
            let mut w = Writer::new("activation");
            w.meta("fn", "gelu").values("a", &[9, 64], &t);
            w.values("out", &[9, 64], &crate::Tensor::rounded(dtype, 9, 64, made).unwrap());
            verdict(&w)
        };
        let tanh = |x: f64| x * 0.5 * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh());
        assert_eq!(by(&tanh).0, Verdict::Pass, "{raw:?}");
        let (v, reason) = by(&|x| x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)));
        assert!(
            v == Verdict::Fail && reason.starts_with("another formula: the activation is gelu by the error function"),
            "{raw:?}: {reason}"
        );
    }
}

/// relu of NaN may be NaN or 0, as C and IEEE 754 have it; relu of a number is no NaN.
#[test]
fn relu_of_nan_is_either_and_of_a_number_is_none() {
    let judged = |written: [f32; 2]| {
        let (mut x, mut y): (Vec<f32>, Vec<f32>) = (0..64).map(|at| at as f32 - 20.0).map(|x| (x, x.max(0.0))).unzip();
        x[5] = f32::NAN;
        (y[5], y[40]) = (written[0], written[1]);
        let mut w = Writer::new("activation");
        w.meta("fn", "relu").f32s("a", &[8, 8], &x).f32s("out", &[8, 8], &y);
        verdict(&w).0
    };
    assert_ne!(judged([f32::NAN, 20.0]), Verdict::Fail);
    assert_ne!(judged([0.0, 20.0]), Verdict::Fail);
    assert_eq!(judged([f32::NAN, f32::NAN]), Verdict::Fail);
    assert_eq!(judged([0.0, f32::NAN]), Verdict::Fail);
}

/// One code of 1, whose neighbour is 1.125: a gain of 1.0625 is the least that shows, and is told as it is.
#[test]
fn a_gain_that_is_no_few_parts_of_a_thousand_is_told_whole() {
    let mut w = Writer::new("activation");
    w.meta("fn", "relu").values("a", &[1, 1], &Tensor::new(Format::F32, 1, 1, vec![1.0]).unwrap());
    w.raw("out.codes", safetensors::Dtype::F8_E4M3, &[1, 1], vec![0x38]).f32s("out.scale", &[1], &[1.0]);
    let bundle = read(&w).unwrap();
    let text = answer::text(&bundle, &assay(&bundle).unwrap(), answer::WIDTH);
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("catches a gain of ×1.1") || said.contains("catches a gain of ×1.06"), "{said}");
}

/// Rows behind the last group are nobody's: their codes are read as zeros, of a grouped product alone.
#[test]
fn codes_behind_the_last_group_are_read_as_zeros() {
    let q = QTensor::new(QTensorParts {
        format: Format::E4m3,
        rows: 3,
        cols: 2,
        codes: vec![0x38; 6],
        granularity: Granularity::Tensor,
        scale_format: Format::F32,
        scale_inv: vec![1.0],
        zero: Zero::None,
        level: None,
    });
    let written = Output::of(Part::plain(Data::Quantized(q.unwrap())));
    let codes = |op: Op, offs: Option<&[usize]>| {
        let read = without_nobodys_rows(op, offs, written.clone()).unwrap();
        let Data::Quantized(q) = &read.parts[0].d else { panic!("codes") };
        q.codes().to_vec()
    };
    assert_eq!(codes(Op::GroupedGemm, Some(&[1, 2])), [0x38, 0x38, 0x38, 0x38, 0, 0]);
    assert_eq!(codes(Op::GroupedGemmDgrad, Some(&[1, 1])), [0x38, 0x38, 0, 0, 0, 0]);
    for (op, offs) in [(Op::GroupedGemm, Some(&[1, 3][..])), (Op::GroupedGemm, None), (Op::Gemm, Some(&[1, 2]))] {
        assert_eq!(codes(op, offs), [0x38; 6], "{op:?} {offs:?}");
    }
}
