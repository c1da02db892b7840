//! Casts are judged in codes, scale_inv, zero points, amax and the transposed copy, each by itself; what is stored in other shapes or
//! dtypes is read.

use super::{Bundle, Codes, Writer, answer, assay::assay};
use crate::compare::Verdict;
use crate::format::pack::{NibbleOrder, pack4};
use crate::op::Op;
use crate::recipe::Recipe;
use crate::{Format, QTensor, Tensor, Zero};
use safetensors::Dtype;
use std::path::Path;

fn read(w: &Writer) -> crate::Result<Bundle> {
    Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap())
}

fn verdict(w: &Writer) -> (Verdict, String) {
    let found = assay(&read(w).unwrap()).unwrap();
    (answer::verdict(&found), found.reason)
}

/// Values of both signs over a few binades.
fn values(dtype: Format, rows: usize, cols: usize, factor: f32) -> Tensor {
    let mut word = 7u32;
    let mut next = || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(word >> 8) / 8_388_608.0 - 1.0) as f32
    };
    let data = (0..rows * cols).map(|_| next() * next() * factor).collect();
    Tensor::rounded(dtype, rows, cols, data).unwrap()
}

fn quantize(recipe: &str, x: &Tensor) -> QTensor {
    recipe.parse::<Recipe>().unwrap().quantize(x).unwrap().q
}

fn amax(x: &Tensor) -> f32 {
    x.data().iter().fold(0f32, |m, x| m.max(x.abs()))
}

/// A cast to e4m3 by `scale`, with the transposed copy and amax; its scale_inv is left out.
fn scaled(x: &Tensor, scale: f32) -> Writer {
    let code =
        |v: &f32| Format::E4m3.encode(f64::from(v * scale), crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8;
    let codes: Vec<u8> = x.data().iter().map(code).collect();
    let turned = (0..x.cols()).flat_map(|j| (0..x.rows()).map(move |i| (i, j))).map(|(i, j)| codes[i * x.cols() + j]).collect();
    let mut w = Writer::new("cast");
    w.values("a", &[x.rows(), x.cols()], x).raw("out.codes", Dtype::F8_E4M3, &[x.rows(), x.cols()], codes);
    w.raw("out.transpose", Dtype::F8_E4M3, &[x.cols(), x.rows()], turned);
    w.f32s("out.scale", &[1], &[scale]).f32s("out.amax", &[1], &[amax(x)]);
    w
}

/// Without a recipe both ranges of int8 are right, but not both in one tensor, and not a range that stops elsewhere.
#[test]
fn a_symmetric_cast_may_stop_above_the_least_code() {
    let x = values(Format::F32, 9, 64, 200.0);
    let cast = |low: f32, high: f32, change: &dyn Fn(&mut Vec<u8>)| {
        let codes = x.data().iter().map(|v| v.round_ties_even().clamp(low, high) as i8 as u8);
        let mut codes: Vec<u8> = codes.collect();
        change(&mut codes);
        let with = |scale: bool| {
            let mut w = Writer::new("cast");
            w.values("a", &[9, 64], &x).raw("out.codes", Dtype::I8, &[9, 64], codes.clone());
            w.f32s("out.scale_inv", &[1], &[1.0]);
            if scale {
                w.f32s("out.scale", &[1], &[1.0]);
            }
            verdict(&w).0
        };
        [with(false), with(true)]
    };
    let least = x.data().iter().position(|v| *v < -130.0).unwrap();
    assert_eq!(cast(-128.0, 127.0, &|_| ()), [Verdict::Pass; 2]);
    assert_eq!(cast(-127.0, 127.0, &|_| ()), [Verdict::Pass; 2]);
    assert_eq!(cast(-127.0, 127.0, &|c| c[least] = -128i8 as u8), [Verdict::Fail; 2]);
    assert_eq!(cast(-128.0, 127.0, &|c| c[least] = -127i8 as u8), [Verdict::Fail; 2]);
    assert_eq!(cast(-126.0, 127.0, &|_| ()), [Verdict::Fail; 2]);
    assert_eq!(cast(-127.0, 126.0, &|_| ()), [Verdict::Fail; 2]);
}

#[test]
fn a_power_of_two_does_not_hide_in_the_scale() {
    let x = values(Format::Bf16, 9, 64, 3.0);
    let scale = 448.0 / amax(&x);
    let mut right = scaled(&x, scale);
    assert_eq!(verdict(&right), (Verdict::Pass, String::new()));
    right.f32s("out.scale_inv", &[1], &[1.0 / scale]);
    assert_eq!(verdict(&right), (Verdict::Pass, String::new()));
    // Codes of half the scale with twice the scale_inv dequantize to the same values; out.scale says otherwise.
    let half = 0.5 * scale;
    let mut w = scaled(&x, half);
    w.f32s("out.scale", &[1], &[scale]).f32s("out.scale_inv", &[1], &[1.0 / half]);
    let (v, reason) = verdict(&w);
    assert!(v == Verdict::Fail && reason.contains("not inverse: their product is 2,"), "{reason}");
    // The same with a recipe, whose scale_inv and codes are right and whose out.scale is not.
    let mut w = Writer::new("cast");
    w.meta("recipe", "te_current").values("a", &[9, 64], &x).codes("out", &quantize("te_current", &x), None, None).unwrap();
    w.f32s("out.scale", &[1], &[448.0 / amax(&x)]);
    assert_eq!(verdict(&w), (Verdict::Pass, String::new()));
    w.f32s("out.scale", &[1], &[224.0 / amax(&x)]);
    let (v, reason) = verdict(&w);
    assert!(v == Verdict::Fail && reason.contains("not inverse: their product is 0.5,"), "{reason}");
}

#[test]
fn an_inverse_that_is_rounded_otherwise_is_right() {
    for factor in [3.0, 0.01, 1e20, 1e-30] {
        for seed in 0..5 {
            let x = values(Format::F32, 5, 32 + seed, factor);
            let scale = 448.0 / amax(&x);
            for inverse in [1.0 / scale, amax(&x) / 448.0, amax(&x) * (1.0 / 448.0)] {
                let mut w = scaled(&x, scale);
                w.f32s("out.scale_inv", &[1], &[inverse]);
                assert_eq!(verdict(&w), (Verdict::Pass, String::new()), "{factor} {seed}: {scale:e} {inverse:e}");
            }
        }
        let x = values(Format::F32, 5, 32, factor);
        let mut w = scaled(&x, 448.0 / amax(&x));
        w.f32s("out.scale_inv", &[1], &[amax(&x) / 448.0 * (1.0 + 1e-6)]);
        let (v, reason) = verdict(&w);
        assert!(v == Verdict::Fail && reason.contains("are not inverse"), "{reason}");
    }
}

/// a·scale rounded once, where the product rounded to f32 is a tie of the codes and goes the other way.
#[test]
fn a_product_that_is_not_rounded_to_f32_is_right() {
    let scale = 1.1f32;
    let ties = (17..32).step_by(2).flat_map(|tie| {
        let near = (tie as f32 / scale).to_bits();
        (near - 2..near + 3).map(f32::from_bits)
    });
    let x = Tensor::new(Format::F32, 5, 8, ties.collect()).unwrap();
    let code = |v: f64| Format::E4m3.encode(v, crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8;
    let once: Vec<u8> = x.data().iter().map(|v| code(f64::from(*v) * f64::from(scale))).collect();
    let twice: Vec<u8> = x.data().iter().map(|v| code(f64::from(v * scale))).collect();
    assert!(once.iter().zip(&twice).filter(|(a, b)| a != b).count() > 3, "{once:?}");
    let with = |codes: &[u8]| {
        let mut w = scaled(&x, scale);
        w.without("out.transpose").raw("out.codes", Dtype::F8_E4M3, &[5, 8], codes.to_vec());
        let found = assay(&read(&w).unwrap()).unwrap();
        (answer::verdict(&found), found.model)
    };
    let (v, model) = with(&once);
    assert!(v == Verdict::Pass && model.starts_with("codes of a·scale,"), "{model}");
    let (v, model) = with(&twice);
    assert!(v == Verdict::Pass && model.starts_with("codes of RN32(a·scale),"), "{model}");
    let mut wrong = once;
    wrong[7] ^= 2;
    assert_eq!(with(&wrong).0, Verdict::Fail);
}

#[test]
fn an_amax_is_the_casts_own_with_or_without_a_recipe() {
    let x = values(Format::Bf16, 9, 64, 3.0);
    for recipe in [None, Some("te_current"), Some("float8_rowwise"), Some("te_delayed")] {
        let mut w = Writer::new("cast");
        let q = quantize(recipe.unwrap_or("te_current"), &x);
        w.values("a", &[9, 64], &x).codes("out", &q, None, None).unwrap();
        recipe.map(|r| w.meta("recipe", r).clone());
        for (shape, found) in [(&[1][..], Verdict::Pass), (&[], Verdict::Pass), (&[1, 1], Verdict::Pass)] {
            w.f32s("out.amax", shape, &[amax(&x)]);
            assert_eq!(verdict(&w), (found, String::new()), "{recipe:?}");
        }
        w.f32s("out.amax", &[1], &[2.0 * amax(&x)]);
        let (v, reason) = verdict(&w);
        assert!(v == Verdict::Fail && reason.contains("amax"), "{recipe:?}: {reason}");
        // In the dtype of a.
        let half = half::bf16::from_f32(amax(&x)).to_le_bytes().to_vec();
        w.raw("out.amax", Dtype::BF16, &[], half);
        assert_eq!(verdict(&w), (Verdict::Pass, String::new()), "{recipe:?}");
    }
}

/// The scale is f32's largest number, its inverse the subnormal 2^-128, whose own inverse is beyond f32.
#[test]
fn a_scale_inv_whose_inverse_overflows_is_judged() {
    let x = values(Format::F32, 16, 128, 1e-37);
    for recipe in ["te_current", "te_block_1x128_fp32", "float8_inference", "deepseek_1x128"] {
        let q = quantize(recipe, &x);
        let mut w = Writer::new("cast");
        w.meta("recipe", recipe).values("a", &[16, 128], &x).codes("out", &q, None, None).unwrap();
        let (v, reason) = verdict(&w);
        assert!(v != Verdict::Fail, "{recipe}: {reason}");
        w.without("recipe");
        let (v, reason) = verdict(&w);
        assert!(v != Verdict::Fail, "{recipe}, given: {reason}");
        let Some(at) = q.codes().iter().position(|c| c & 0x7f > 8) else { continue };
        let mut codes = q.codes().to_vec();
        codes[at] ^= 1;
        w.raw("out.codes", Dtype::F8_E4M3, &[16, 128], codes);
        assert_eq!(verdict(&w).0, Verdict::Fail, "{recipe}");
    }
}

#[test]
fn a_nan_scale_makes_every_code_of_its_block_equal() {
    let zeros = Tensor::new(Format::F32, 2, 32, vec![0.0; 64]).unwrap();
    let mut one_nan = values(Format::F32, 2, 64, 3.0).data().to_vec();
    one_nan[5] = f32::NAN;
    let one_nan = Tensor::new(Format::F32, 2, 64, one_nan).unwrap();
    for (recipe, x, in_block) in
        [("ao_nvfp4", &zeros, 0..64), ("mx_floor:e2m1", &one_nan, 0..32), ("mx_rceil", &one_nan, 0..32)]
    {
        let q = quantize(recipe, x);
        assert!(q.value(0, 0).is_nan(), "{recipe}");
        let other = |at: std::ops::Range<usize>| {
            let mut parts = q.clone().into_parts();
            parts.codes[at].iter_mut().for_each(|c| *c = if q.format() == Format::E2m1 { 0xc } else { 0x31 });
            QTensor::new(parts).unwrap()
        };
        let cast = |q: &QTensor| {
            let mut w = Writer::new("cast");
            w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x).codes("out", q, None, None).unwrap();
            verdict(&w)
        };
        assert_ne!(cast(&q).0, Verdict::Fail, "{recipe}");
        let (v, reason) = cast(&other(in_block.clone()));
        assert!(v != Verdict::Fail, "{recipe}: {reason}");
        // As an operand, whose recipe is checked.
        let mut w = Writer::new("dequantize");
        w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x).codes("a", &other(in_block), None, None).unwrap();
        let values: Vec<f32> = q.dequantize_f32().into_iter().collect();
        w.f32s("out", &[x.rows(), x.cols()], &values);
        let (v, reason) = verdict(&w);
        assert!(v != Verdict::Fail, "{recipe}: {reason}");
        if x.cols() == 64 {
            let (v, reason) = cast(&other(32..64));
            assert_eq!(v, Verdict::Fail, "{recipe}: outside the block: {reason}");
        }
    }
}

#[test]
fn scales_in_other_shapes_are_read() {
    let (x, w4) = (values(Format::Bf16, 6, 64, 3.0), values(Format::Bf16, 10, 64, 1.0));
    let gemm = |a: &str| {
        let mut w = Writer::new("gemm");
        w.codes("a", &quantize(a, &x), None, None).unwrap().codes("b", &quantize(a, &w4), None, None).unwrap();
        w.f32s("out", &[6, 10], &[0.0; 60]);
        w
    };
    for (recipe, shapes) in [
        ("te_current", &[&[][..], &[1], &[1, 1]][..]),
        ("float8_rowwise", &[&[6], &[6, 1], &[1, 6], &[6, 1, 1]]),
        ("mx_floor", &[&[6, 2], &[6, 2, 1], &[6, 1, 2]]),
    ] {
        let mut w = gemm(recipe);
        let plain = read(&w).unwrap().a;
        let bytes: Vec<u8> = match recipe {
            "mx_floor" => quantize(recipe, &x).scale_inv().iter().map(|s| (s.to_bits() >> 23) as u8).collect(),
            _ => quantize(recipe, &x).scale_inv().iter().flat_map(|s| s.to_le_bytes()).collect(),
        };
        let dtype = if recipe == "mx_floor" { Dtype::F8_E8M0 } else { Dtype::F32 };
        for shape in shapes {
            w.raw("a.scale_inv", dtype, shape, bytes.clone());
            assert_eq!(read(&w).unwrap().a.whole(), plain.whole(), "{recipe} {shape:?}");
        }
    }
    // Axes that were exchanged are not.
    let mut w = gemm("mx_floor");
    w.raw("a.scale_inv", Dtype::F8_E8M0, &[2, 6], vec![127; 12]);
    assert!(read(&w).is_err());
}

#[test]
fn integer_zero_points_in_floats_are_read() {
    let x = values(Format::F16, 5, 32, 3.0);
    let q = quantize("affine_asym:uint4:g16", &x);
    let Zero::Integer(z) = q.zero() else { panic!("integers") };
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, None).unwrap().f32s("out", &[5, 32], &[0.0; 160]);
    let float: Vec<f32> = z.iter().map(|z| *z as f32).collect();
    let store = |w: &mut Writer, dtype: Dtype, float: &[f32]| {
        let bytes = match dtype {
            Dtype::F32 => float.iter().flat_map(|z| z.to_le_bytes()).collect(),
            Dtype::F16 => float.iter().flat_map(|z| half::f16::from_f32(*z).to_le_bytes()).collect(),
            _ => float.iter().flat_map(|z| half::bf16::from_f32(*z).to_le_bytes()).collect::<Vec<u8>>(),
        };
        w.raw("a.zero_point", dtype, &[5, 2], bytes);
    };
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        store(&mut w, dtype, &float);
        assert_eq!(read(&w).unwrap().a.whole(), Some(&q), "{dtype:?}");
        for (bad, words) in [(1.5, "value 1.5"), (f32::NAN, "value NaN"), (f32::INFINITY, "value inf")] {
            let mut broken = float.clone();
            broken[3] = bad;
            store(&mut w, dtype, &broken);
            let e = read(&w).err().unwrap().to_string();
            assert!(e.contains("`a.zero_point`") && e.contains(words) && e.contains("integers of 32 bits"), "{e}");
        }
    }
}

#[test]
fn the_dtype_of_four_bits_is_read() {
    let x = values(Format::F32, 5, 48, 3.0);
    let q = quantize("te_nvfp4", &x);
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, None).unwrap().values("out", &[5, 48], &x).without("a.format").without("a.packing");
    w.raw("a.codes", Dtype::F4, &[5, 48], pack4(q.codes(), NibbleOrder::LowFirst).unwrap());
    assert_eq!(read(&w).unwrap().a.whole(), Some(&q));
    w.meta("a.packing", "high_first").raw("a.codes", Dtype::F4, &[5, 48], pack4(q.codes(), NibbleOrder::HighFirst).unwrap());
    assert_eq!(read(&w).unwrap().a.whole(), Some(&q));
    w.meta("a.format", "int4");
    let e = read(&w).err().unwrap().to_string();
    assert!(e.contains("F4 holds e2m1"), "{e}");
}

/// Frameworks without a type of four bits keep int4 as bytes from −8 to 7.
#[test]
fn int4_in_signed_bytes_is_read() {
    let x = values(Format::F32, 5, 48, 3.0);
    let q = quantize("affine_sym:int4:g16", &x);
    let signed: Vec<u8> = q.codes().iter().map(|c| ((c << 4) as i8 >> 4) as u8).collect();
    assert!(signed.iter().any(|c| (*c as i8) < 0) && signed.iter().any(|c| (*c as i8) > 0));
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, None).unwrap().raw("a.codes", Dtype::I8, &[5, 48], signed);
    w.f32s("out", &[5, 48], &q.dequantize_f32().into_iter().collect::<Vec<_>>());
    assert_eq!(read(&w).unwrap().a.whole(), Some(&q));
    assert_eq!(verdict(&w).0, Verdict::Pass);
}

#[test]
fn rows_behind_the_last_group_are_read() {
    let (a, b) = (values(Format::Bf16, 9, 64, 1.0), values(Format::Bf16, 8, 64, 1.0));
    let mut w = Writer::new("grouped_gemm");
    w.codes("a", &quantize("float8_rowwise", &a), None, None).unwrap();
    w.codes("b", &quantize("float8_rowwise", &b), Some(2), None).unwrap();
    w.i32s("offs", &[2], &[2, 7]).f32s("out", &[9, 4], &[0.0; 36]);
    let read = read(&w).unwrap();
    assert_eq!((read.meta.op, read.offs.as_deref()), (Op::GroupedGemm, Some(&[2, 7][..])));
    assert!(matches!(read.a.codes, Some(Codes::Whole(_))));
}

/// A name alone takes the format and the group of the codes; what it states has to be so.
#[test]
fn a_recipe_takes_the_format_and_the_group_that_are_stored() {
    let x = values(Format::Bf16, 6, 64, 3.0);
    for (made, named, right) in [
        ("mx_ceil:e2m3", "mx_ceil", true),
        ("mx_ceil:e2m3", "mx_ceil:e2m3", true),
        ("mx_ceil:e2m3", "mx_floor", false),
        ("te_current:e5m2", "te_current", true),
        ("affine_sym:int4:g32", "affine_sym", true),
        ("affine_sym:int4:g32", "affine_sym:int4", true),
        ("affine_sym:int4:g32", "affine_symnc", false),
    ] {
        let mut w = Writer::new("cast");
        w.meta("recipe", named).values("a", &[6, 64], &x).codes("out", &quantize(made, &x), None, None).unwrap();
        let (v, reason) = verdict(&w);
        assert_eq!(v != Verdict::Fail, right, "{made} as {named}: {reason}");
        let q = quantize(made, &x);
        let mut w = Writer::new("dequantize");
        w.meta("recipe", named).values("a", &[6, 64], &x).codes("a", &q, None, None).unwrap();
        w.f32s("out", &[6, 64], &q.dequantize_f32().into_iter().collect::<Vec<_>>());
        let (v, reason) = verdict(&w);
        assert_eq!(v != Verdict::Fail, right, "{made} as {named}, read: {reason}");
    }
}

/// Codes of `x` by the largest magnitude of each row, and its scales; where that is zero the scale is 0.
fn by_rows(x: &Tensor) -> (Vec<u8>, Vec<f32>) {
    let scales: Vec<f32> = (0..x.rows()).map(|i| x.row(i).iter().fold(0f32, |m, x| m.max(x.abs())) / 448.0).collect();
    let code = |(at, v): (usize, &f32)| {
        Format::E4m3.encode(f64::from(v / scales[at / x.cols()]), crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8
    };
    (x.data().iter().enumerate().map(code).collect(), scales)
}

#[test]
fn a_cast_that_is_written_by_the_strides_of_its_transpose_is_named() {
    for (rows, cols) in [(48, 48), (24, 96)] {
        let x = values(Format::Bf16, rows, cols, 3.0);
        let (codes, scales) = by_rows(&x);
        let mut turned = codes.clone();
        (0..rows * cols).for_each(|at| turned[at % cols * rows + at / cols] = codes[at]);
        let of = |codes: Vec<u8>| {
            let mut w = Writer::new("cast");
            w.meta("out.granularity", "row").values("a", &[rows, cols], &x).raw(
                "out.codes",
                Dtype::F8_E4M3,
                &[rows, cols],
                codes,
            );
            w.f32s("out.scale_inv", &[rows], &scales);
            assay(&read(&w).unwrap()).unwrap()
        };
        assert_eq!(answer::verdict(&of(codes)), Verdict::Pass);
        let found = of(turned);
        let name = found.diagnosis.and_then(|d| d.findings.into_iter().next()).map(|f| f.fault);
        assert_eq!(name.as_deref(), Some("addressing:out.transposed"), "{rows}×{cols}: {}", found.reason);
    }
}

#[test]
fn rows_that_are_coded_with_the_scale_of_the_row_before_are_named() {
    let (rows, cols) = (31, 96);
    let mut x = values(Format::Bf16, rows, cols, 3.0).data().to_vec();
    x.iter_mut().enumerate().for_each(|(at, v)| *v *= 1.0 + (at / cols * 7 % 11) as f32 / 4.0);
    let x = Tensor::rounded(Format::Bf16, rows, cols, x).unwrap();
    let (mut codes, scales) = by_rows(&x);
    for i in (3..rows).step_by(4) {
        for j in 0..cols {
            let y = f64::from(x.row(i)[j] / scales[i - 1]);
            codes[i * cols + j] = Format::E4m3.encode(y, crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8;
        }
    }
    let mut w = Writer::new("cast");
    w.meta("out.granularity", "row").values("a", &[rows, cols], &x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes);
    w.f32s("out.scale_inv", &[rows], &scales);
    let found = assay(&read(&w).unwrap()).unwrap();
    let first = found.diagnosis.and_then(|d| d.findings.into_iter().next()).unwrap();
    assert_eq!(first.fault, "scale_shared:out.neighbour");
    assert!(
        first.detail.contains("rows 3, 7, … 27 (every 4th)") && first.detail.ends_with("the row before"),
        "{}",
        first.detail
    );
}

/// The first finding of a cast of `x` with these codes and scales.
fn named(x: &Tensor, granularity: &str, codes: Vec<u8>, (shape, scales): (&[usize], &[f32])) -> (String, String) {
    let mut w = Writer::new("cast");
    w.meta("out.granularity", granularity).values("a", &[x.rows(), x.cols()], x);
    w.raw("out.codes", Dtype::F8_E4M3, &[x.rows(), x.cols()], codes).f32s("out.scale_inv", shape, scales);
    let found = assay(&read(&w).unwrap()).unwrap();
    found.diagnosis.and_then(|d| d.findings.into_iter().next()).map_or_else(Default::default, |f| (f.fault, f.detail))
}

fn e4m3(y: f32) -> u8 {
    Format::E4m3.encode(f64::from(y), crate::Rounding::NearestEven, crate::Overflow::Saturate) as u8
}

/// Codes up to 200, and codes that are cut off: the largest of them beside right ones, or what they were before.
#[test]
fn an_amax_of_scaled_values_is_told() {
    let x = values(Format::Bf16, 9, 64, 3.0);
    for largest in [200.0, 900.0] {
        let told = |reported: f32| {
            let scale = largest / amax(&x);
            let mut w = scaled(&x, scale);
            w.f32s("out.scale_inv", &[1], &[1.0 / scale]).f32s("out.amax", &[1], &[reported]);
            super::casts::explain(&read(&w).unwrap()).map_or_else(Default::default, |f| (f.fault, f.detail))
        };
        for reported in [largest, f32::min(largest, 448.0)] {
            let (fault, detail) = told(reported);
            let words = "amax is taken of the values that are already scaled: it is the largest code";
            assert!(fault == "amax_scope:amax" && detail.starts_with(words), "{largest} {reported}: {fault} {detail}");
        }
        let (fault, detail) = told(0.9 * largest);
        assert!(fault == "amax_scope:amax" && detail.starts_with("amax is the magnitude of no part"), "{largest}: {detail}");
    }
}

#[test]
fn groups_that_are_counted_over_the_flat_tensor_are_named() {
    let (rows, cols, width) = (18, 160, 64);
    let mut x = values(Format::F32, rows, cols, 3.0).data().to_vec();
    x.iter_mut().enumerate().for_each(|(at, v)| *v *= 1.0 + (at / 32 * 7 % 11) as f32 / 4.0);
    let x = Tensor::rounded(Format::F32, rows, cols, x).unwrap();
    let group = |at: usize| at / cols * 3 + at % cols / width;
    let mut scales = vec![0f32; rows * 3];
    x.data().iter().enumerate().for_each(|(at, v)| scales[group(at)] = scales[group(at)].max(v.abs() / 448.0));
    let codes = (0..rows * cols).map(|at| e4m3(x.data()[at] / scales[at / width])).collect();
    let (fault, detail) = named(&x, "group:64", codes, (&[rows, 3], &scales));
    assert_eq!(fault, "scale_index:out.flat", "{detail}");
}

#[test]
fn columns_that_are_not_written_do_not_hide_what_is_wrong_beside_them() {
    let (rows, cols) = (40, 66);
    let x = values(Format::Bf16, rows, cols, 3.0);
    let (_, scales) = by_rows(&x);
    let cut = |y: f32| Format::E4m3.encode(f64::from(y), crate::Rounding::TowardZero, crate::Overflow::Saturate) as u8;
    let code = |at: usize| if at % cols < 64 { cut(x.data()[at] / scales[at / cols]) } else { 0 };
    let (fault, detail) = named(&x, "row", (0..rows * cols).map(code).collect(), (&[rows], &scales));
    assert_eq!(fault, "rounding:out.toward_zero", "{detail}");
    assert!(detail.ends_with("the last 2 of 66 columns are not written: their codes are 0"), "{detail}");
}

#[test]
fn a_cast_that_saturates_early_and_rounds_ties_away_has_both() {
    let (rows, cols) = (40, 96);
    let x = values(Format::Bf16, rows, cols, 448.0);
    let away = |y: f32| if f64::from(y).abs() >= 256.0 { e4m3(448f32.copysign(y)) } else { tied(y) };
    let (fault, detail) = named(&x, "tensor", x.data().iter().map(|y| away(*y)).collect(), (&[1], &[1.0]));
    assert_eq!(fault, "codec_edge:out.saturated_early", "{detail}");
    assert!(detail.ends_with("and ties are rounded away from zero"), "{detail}");
}

/// Nearest, ties away from zero.
fn tied(y: f32) -> u8 {
    let near = e4m3(y);
    let up = e4m3(f32::from_bits(y.to_bits() + 1));
    if up != near && Format::E4m3.decode(u32::from(up)).abs() > Format::E4m3.decode(u32::from(near)).abs() { up } else { near }
}

/// By a scale that is NaN every code is as right as any: that zeros are not read back as zeros is what fails.
#[test]
fn a_nan_scale_of_a_row_of_zeros_fails() {
    let mut data = values(Format::F32, 6, 64, 3.0).data().to_vec();
    data[2 * 64..3 * 64].fill(0.0);
    let x = Tensor::new(Format::F32, 6, 64, data).unwrap();
    let (mut codes, mut scales) = by_rows(&x);
    codes[2 * 64..3 * 64].fill(0);
    let of = |scales: &[f32]| {
        let mut w = Writer::new("cast");
        w.meta("out.granularity", "row").values("a", &[6, 64], &x).raw("out.codes", Dtype::F8_E4M3, &[6, 64], codes.clone());
        verdict(w.f32s("out.scale_inv", &[6], scales))
    };
    assert_eq!(of(&scales).0, Verdict::Pass);
    scales[2] = f32::NAN;
    let (v, reason) = of(&scales);
    assert!(v == Verdict::Fail && reason.contains("a block of zeros is not read back as zeros: (2, 0)"), "{v}: {reason}");
}

/// 0 / 0 is NaN, and NaN codes are just what a scale of 0 gives: what is read back decides.
#[test]
fn zeros_that_become_nan_fail() {
    let mut data = values(Format::F32, 6, 64, 3.0).data().to_vec();
    data[2 * 64..3 * 64].fill(0.0);
    let x = Tensor::new(Format::F32, 6, 64, data).unwrap();
    let (mut codes, scales) = by_rows(&x);
    let of = |codes: &[u8]| {
        let mut w = Writer::new("cast");
        w.meta("out.granularity", "row").values("a", &[6, 64], &x).raw("out.codes", Dtype::F8_E4M3, &[6, 64], codes.to_vec());
        w.f32s("out.scale_inv", &[6], &scales);
        let found = assay(&read(&w).unwrap()).unwrap();
        (answer::verdict(&found), found.diagnosis.and_then(|d| d.findings.into_iter().next()).map(|f| f.fault))
    };
    codes[2 * 64..3 * 64].fill(0x7f);
    assert_eq!(of(&codes), (Verdict::Fail, Some("degenerate_block:out.zeros".into())));
    codes[2 * 64..3 * 64].fill(0);
    assert_eq!(of(&codes).0, Verdict::Pass);
}

/// Without a format in the metadata the dtype says it.
#[test]
fn every_dtype_of_eight_bits_is_written_and_read() {
    for (format, dtype) in [
        (Format::E4m3, Dtype::F8_E4M3),
        (Format::E5m2, Dtype::F8_E5M2),
        (Format::E4m3Fnuz, Dtype::F8_E4M3FNUZ),
        (Format::E5m2Fnuz, Dtype::F8_E5M2FNUZ),
    ] {
        let parts = crate::quant::QTensorParts {
            format,
            rows: 4,
            cols: 16,
            codes: (0..64).collect(),
            granularity: crate::Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![0.5],
            zero: Zero::None,
            level: None,
        };
        let q = QTensor::new(parts).unwrap();
        let mut w = Writer::new("dequantize");
        w.codes("a", &q, None, None).unwrap().f32s("out", &[4, 16], &[0.0; 64]).without("a.format");
        assert_eq!(w.tensors()["a.codes"].0, dtype, "{format}");
        assert_eq!(read(&w).unwrap().a.whole(), Some(&q), "{format}");
    }
}
