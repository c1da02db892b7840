//! What is written is read; each rule's message is in `rules`.

mod rules;

use super::*;
use crate::format::pack::NibbleOrder;
use crate::quant::{Level, QTensorParts};
use crate::recipe::Recipe;

/// A tensor of `rows × cols` small values, no two rows alike.
fn values(dtype: Format, rows: usize, cols: usize) -> Tensor {
    let data = (0..rows * cols).map(|i| ((i * 37 % 61) as f32 - 29.5) * (1.0 + (i / cols.max(1)) as f32)).collect();
    Tensor::rounded(dtype, rows, cols, data).unwrap()
}

fn quantize(recipe: &str, t: &Tensor) -> QTensor {
    recipe.parse::<Recipe>().unwrap().quantize(t).unwrap().q
}

fn read(w: &Writer) -> Result<Bundle> {
    Bundle::parse(Path::new("x.safetensors"), &w.to_bytes().unwrap())
}

/// A gemm 3×5×32 with row-wise FP8 operands.
fn gemm() -> Writer {
    let (a, b) = (values(Format::Bf16, 3, 32), values(Format::Bf16, 5, 32));
    let mut w = Writer::new("gemm");
    w.values("a", &[3, 32], &a).values("b", &[5, 32], &b);
    w.codes("a", &quantize("float8_rowwise", &a), None, None).unwrap();
    w.codes("b", &quantize("float8_rowwise", &b), None, None).unwrap();
    w.values("out", &[3, 5], &values(Format::Bf16, 3, 5));
    w
}

/// Three experts, 7 rows of a, 4 of each of b, K = 16.
fn grouped() -> Writer {
    let (a, b) = (values(Format::Bf16, 7, 16), values(Format::Bf16, 12, 16));
    let mut w = Writer::new("grouped_gemm");
    w.codes("a", &quantize("float8_rowwise", &a), None, None).unwrap();
    w.codes("b", &quantize("float8_rowwise", &b), Some(3), None).unwrap();
    w.i32s("offs", &[3], &[2, 2, 7]).values("out", &[7, 4], &values(Format::Bf16, 7, 4));
    w
}

/// 3×32 cast per tensor with its transposed codes.
fn cast() -> Writer {
    let a = values(Format::Bf16, 3, 32);
    let q = quantize("te_current", &a);
    let mut w = Writer::new("cast");
    w.values("a", &[3, 32], &a).codes("out", &q, None, None).unwrap();
    w.raw("out.transpose", Dtype::F8_E4M3, &[32, 3], q.transposed().unwrap().codes().to_vec());
    w.f32s("out.scale", &[1], &[1.0 / q.scale_inv()[0]]).f32s("out.amax", &[1], &[7.0]);
    w
}

fn int4(packing: Option<NibbleOrder>) -> Writer {
    let b = values(Format::F16, 5, 32);
    let mut w = Writer::new("gemm");
    w.values("a", &[3, 32], &values(Format::F16, 3, 32)).values("out", &[3, 5], &values(Format::F16, 3, 5));
    w.codes("b", &quantize("affine_asym:int4:g16", &b), None, packing).unwrap();
    w
}

fn norm() -> Writer {
    let mut w = Writer::new("layernorm");
    w.values("a", &[3, 8], &values(Format::F32, 3, 8)).values("out", &[3, 8], &values(Format::F32, 3, 8));
    w.values("gamma", &[8], &values(Format::F32, 1, 8)).values("beta", &[8], &values(Format::F32, 1, 8));
    w
}

fn activation(f: &str) -> Writer {
    let mut w = Writer::new("activation");
    w.meta("fn", f).values("a", &[3, 8], &values(Format::F16, 3, 8));
    if f == "swiglu_limit" {
        w.meta("limit", "7");
    }
    let cols = if f.contains("glu") { 4 } else { 8 };
    w.values("out", &[3, cols], &values(Format::F16, 3, cols));
    w
}

fn dequantize() -> Writer {
    let mut w = Writer::new("dequantize");
    w.codes("a", &quantize("te_nvfp4", &values(Format::F32, 3, 32)), None, Some(NibbleOrder::LowFirst)).unwrap();
    w.values("out", &[3, 32], &values(Format::F32, 3, 32));
    w
}

/// 3×22 codes in groups of 4, whose 1×2 scales share one f16, and zero points another.
fn two_levels() -> QTensor {
    let exact = |n: usize| (0..n).map(|i| 0.25 * (i + 1) as f32).collect::<Vec<_>>();
    QTensor::new(QTensorParts {
        format: Format::Uint4,
        rows: 3,
        cols: 22,
        codes: (0..66).map(|i| (i * 7 % 16) as u8).collect(),
        granularity: Granularity::Group(4),
        scale_format: Format::E4m3,
        scale_inv: (0..18).map(|i| [0.5, 1.25, 3.0][i % 3]).collect(),
        zero: Zero::Additive { zero: (0..18).map(|i| i as f32).collect(), mid: 0 },
        level: Some(Level {
            granularity: Granularity::Group(2),
            format: Format::F16,
            scale_inv: exact(9),
            zero: Some(exact(9)),
        }),
    })
    .unwrap()
}

fn dequantize_two() -> Writer {
    let q = two_levels();
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, Some(NibbleOrder::LowFirst)).unwrap();
    let right = Tensor::new(Format::F32, 3, 22, q.dequantize_f32().into_raw_vec_and_offset().0).unwrap();
    w.values("out", &[3, 22], &right);
    w
}

fn wgrad() -> Writer {
    let offs = [4usize, 4, 9];
    let mut w = Writer::new("grouped_gemm_wgrad");
    for (x, rows) in [("a", 3), ("b", 5)] {
        let t = values(Format::Bf16, rows, 9);
        let recipe: Recipe = "float8_rowwise".parse().unwrap();
        let crate::job::Operand::Groups(groups) = crate::job::Operand::by_groups(&t, &offs, &recipe).unwrap() else {
            unreachable!()
        };
        let side = BundleOperand {
            high: Some(t),
            codes: Some(Codes::Groups(groups)),
            history: vec![0.5, 0.25],
            dequantized_by: None,
            weights: None,
        };
        w.side(x, &side, None, None).unwrap();
    }
    w.i32s("offs", &[3], &[4, 4, 9]).values("out", &[3, 3, 5], &values(Format::F32, 9, 5));
    w
}

#[test]
fn what_is_written_is_read() {
    let b = read(&gemm()).unwrap();
    let a = values(Format::Bf16, 3, 32);
    assert_eq!((b.meta.op, b.a.high.as_ref(), b.a.whole()), (Op::Gemm, Some(&a), Some(&quantize("float8_rowwise", &a))));
    assert!(matches!(&b.out.d, Data::High(t) if *t == values(Format::Bf16, 3, 5)));

    let b = read(&cast()).unwrap();
    let q = quantize("te_current", &a);
    assert_eq!((b.meta.op, b.out.amax, &b.out.d), (Op::CastTranspose, Some(7.0), &Data::Quantized(q.clone())));
    assert_eq!(b.out.transpose, Some(q.transposed().unwrap().codes().to_vec()));

    for order in [None, Some(NibbleOrder::LowFirst), Some(NibbleOrder::HighFirst)] {
        let b = read(&int4(order)).unwrap();
        assert_eq!(b.b.whole(), Some(&quantize("affine_asym:int4:g16", &values(Format::F16, 5, 32))));
        assert!(b.a.codes.is_none());
    }
    let q = quantize("te_nvfp4", &values(Format::F32, 3, 32));
    assert!(q.global_scale_inv().is_some() && read(&dequantize()).unwrap().a.whole() == Some(&q));

    assert_eq!(read(&dequantize_two()).unwrap().a.whole(), Some(&two_levels()));

    let b = read(&grouped()).unwrap();
    assert_eq!((b.offs.as_deref(), b.b.whole().unwrap().rows()), (Some(&[2, 2, 7][..]), 12));

    let b = read(&wgrad()).unwrap();
    let Some(Codes::Groups(groups)) = &b.b.codes else { panic!("groups") };
    assert_eq!(groups.iter().map(QTensor::cols).collect::<Vec<_>>(), [4, 0, 5]);
    assert_eq!(b.a.history, [0.5, 0.25]);

    assert_eq!(read(&activation("geglu")).unwrap().meta.op, Op::Gated);
    let b = read(&norm()).unwrap();
    assert_eq!((b.meta.params.eps, b.meta.params.zero_centered_gamma), (1e-5, false));
}

#[test]
fn experts_have_a_leading_axis_on_every_granularity() {
    let b = values(Format::Bf16, 12, 256);
    for (recipe, shape) in [
        ("te_current", vec![3, 1]),
        ("float8_rowwise", vec![3, 4]),
        ("te_block_1x128_fp32", vec![3, 4, 2]),
        ("te_mxfp8", vec![3, 4, 8]),
    ] {
        let mut w = Writer::new("grouped_gemm");
        w.values("a", &[7, 256], &values(Format::Bf16, 7, 256)).i32s("offs", &[3], &[2, 2, 7]);
        w.values("out", &[7, 4], &values(Format::Bf16, 7, 4));
        w.codes("b", &quantize(recipe, &b), Some(3), None).unwrap();
        let read = read(&w).unwrap_or_else(|e| panic!("{recipe}: {e}"));
        assert_eq!(read.b.whole().unwrap().dequantize(), quantize(recipe, &b).dequantize(), "{recipe} {shape:?}");
        let file = File::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        assert_eq!(file.get("b.scale_inv").unwrap().shape, shape, "{recipe}");
    }
}

#[test]
fn tinygemm_zero_points_are_folded_about_code_zero() {
    let b = values(Format::Bf16, 4, 128);
    let q = quantize("tinygemm", &b);
    let mut w = Writer::new("dequantize");
    w.codes("a", &q, None, Some(NibbleOrder::HighFirst)).unwrap();
    w.values("out", &[4, 128], &b);
    assert_eq!(read(&w).unwrap().a.whole().unwrap().dequantize(), q.dequantize());
}

#[test]
fn files_that_are_no_bundle() {
    let e = Bundle::read(Path::new("/nowhere/x.safetensors")).unwrap_err().to_string();
    assert!(e.contains("/nowhere/x.safetensors") && e.contains("give the path of a bundle"), "{e}");
    for bytes in [&b""[..], b"abc", &[0xff; 64], &[&(1u64 << 62).to_le_bytes()[..], b"{}"].concat()] {
        let e = Bundle::parse(Path::new("x"), bytes).unwrap_err().to_string();
        assert!(e.contains("expected a whole safetensors file"), "{e}");
    }
}

#[test]
fn a_product_with_an_fp8_result_takes_its_scale_either_way() {
    let mut w = gemm();
    w.without("out").raw("out", Dtype::F8_E4M3, &[3, 5], vec![0x38; 15]).f32s("out.scale", &[1], &[4.0]);
    let out = read(&w).unwrap().out;
    assert!(matches!(&out.d, Data::Quantized(q) if q.scale_inv() == [0.25] && q.value(0, 0) == 0.25));
    w.f32s("out.scale_inv", &[1], &[0.5]);
    assert!(matches!(read(&w).unwrap().out.d, Data::Quantized(q) if q.scale_inv() == [0.5]));
}

/// A dequantization by two levels passes, and one by the next pair's second-level scale does not.
#[test]
fn two_levels_are_assayed() {
    let verdict = |w: &Writer| crate::bundle::assay::assay(&read(w).unwrap()).unwrap().verdict;
    assert_eq!(verdict(&dequantize_two()), crate::compare::Verdict::Pass);
    let mut p = two_levels().into_parts();
    p.level.as_mut().unwrap().scale_inv.rotate_left(1);
    let wrong = QTensor::new(p).unwrap().dequantize_f32().into_raw_vec_and_offset().0;
    let mut w = dequantize_two();
    w.values("out", &[3, 22], &Tensor::new(Format::F32, 3, 22, wrong).unwrap());
    assert_eq!(verdict(&w), crate::compare::Verdict::Fail);
}

/// Blocks of 3 of an expert's 4 rows: the second block of each has one row, and the next expert begins with a block of its own.
#[test]
fn a_short_last_block_of_an_expert_ends_with_it() {
    let mut w = grouped();
    let scales = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
    w.meta("b.granularity", "block:3x16").f32s("b.scale_inv", &[3, 2, 1], &scales);
    let b = read(&w).unwrap();
    let q = b.b.whole().unwrap();
    let of_row = |row: usize| scales[row / 4 * 2 + row % 4 / 3];
    for row in 0..12 {
        assert_eq!(q.affine(q.scale_index(row, 7)).unit, f64::from(of_row(row)), "row {row}");
    }
}

/// Groups of columns and experts were quantized by themselves, and are held to the recipe by themselves.
#[test]
fn groups_and_experts_are_held_to_the_recipe_one_by_one() {
    let found = |w: &Writer| -> Vec<String> {
        recipes::operands(&read(w).unwrap()).unwrap().into_iter().map(|wrong| wrong.text).collect()
    };
    let mut experts = grouped();
    experts.values("a", &[7, 16], &values(Format::Bf16, 7, 16)).values("b", &[3, 4, 16], &values(Format::Bf16, 12, 16));
    for (mut w, place) in [(wgrad(), "b[group 0]"), (experts, "b[0]")] {
        w.meta("recipe", "float8_rowwise");
        assert_eq!(found(&w), Vec::<String>::new());
        let file = File::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        let raw = file.get("b.codes").unwrap();
        let mut bytes = raw.bytes.to_vec();
        bytes[1] ^= 1;
        w.raw("b.codes", raw.dtype, &raw.shape, bytes);
        let found = found(&w);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{place} is not float8_rowwise")), "{found:?}");
    }
}

/// A recipe names its format of scales for bytes alone: scales that are stored in f32 are read as f32.
#[test]
fn a_recipes_format_of_scales_is_that_of_bytes() {
    let b = values(Format::Bf16, 5, 32);
    let q = quantize("mx_floor", &b);
    let with = |dtype: Dtype, bytes: Vec<u8>| {
        let mut w = gemm();
        w.meta("recipe", "mx_floor").without("b.scale_format").without("b.granularity");
        w.raw("b.codes", Dtype::F8_E4M3, &[5, 32], q.codes().to_vec()).raw("b.scale_inv", dtype, &[5, 1], bytes);
        let bundle = Bundle::parse(Path::new("x"), &w.to_bytes().unwrap()).unwrap();
        let Some(Codes::Whole(q)) = bundle.b.codes else { panic!("codes") };
        (q.scale_format(), q.scale_inv().to_vec())
    };
    let words = q.scale_inv().iter().flat_map(|s| s.to_le_bytes()).collect();
    let bytes = q.scale_inv().iter().map(|s| (s.log2() + 127.0) as u8).collect();
    assert_eq!(with(Dtype::F32, words), (Format::F32, q.scale_inv().to_vec()));
    assert_eq!(with(Dtype::U8, bytes), (Format::E8m0, q.scale_inv().to_vec()));
}
