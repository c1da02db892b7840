//! Each rule of the contract, broken once: one line a rule.

use super::*;

/// A rule: the bundle, what breaks it, the words of the message.
type Broken = (&'static str, fn() -> Writer, fn(&mut Writer) -> &mut Writer, &'static [&'static str]);

#[rustfmt::skip]
const RULES: &[Broken] = &[
    // Keys.
    ("version missing", gemm, |w| w.without("qassay.bundle"), &["no metadata key `qassay.bundle`", "expected `1`"]),
    ("version unknown", gemm, |w| w.meta("qassay.bundle", "2"), &["`qassay.bundle` = `2`", "expected 1"]),
    ("op missing", gemm, |w| w.without("op"), &["no metadata key `op`", "cast", "grouped_gemm_wgrad"]),
    ("op unknown", gemm, |w| w.meta("op", "matmul"), &["`op` = `matmul`", "one of cast", "gemm"]),
    ("op of sweeps only", gemm, |w| w.meta("op", "activation_grad"), &["`op` = `activation_grad`", "one of cast"]),
    ("unknown key", gemm, |w| w.meta("scale", "x"), &["metadata key `scale`", "one of qassay.bundle, op", "X.granularity"]),
    ("unknown operand key", gemm, |w| w.meta("a.scales", "x"), &["metadata key `a.scales`", "X.scale_format"]),
    ("key of no operand", gemm, |w| w.meta("c.format", "e4m3"), &["metadata key `c.format`", "a, b, out"]),
    ("format", gemm, |w| w.meta("a.format", "fp8"), &["`a.format` = `fp8`", "one of e4m3, e5m2", "uint4"]),
    ("granularity", gemm, |w| w.meta("b.granularity", "channel"), &["`b.granularity` = `channel`", "tensor, row, group:G"]),
    ("granularity of zero", gemm, |w| w.meta("b.granularity", "group:0"), &["`b.granularity` = `group:0`", "at least 1"]),
    ("scale format", gemm, |w| w.meta("a.scale_format", "e5m2"), &["`a.scale_format` = `e5m2`", "f32, f16, bf16, e8m0, e4m3"]),
    ("second level's tiles", dequantize_two, |w| w.meta("a.global_granularity", "pairs"), &["`a.global_granularity` = `pairs`", "group:G"]),
    ("second level's shape", dequantize_two, |w| w.f32s("a.global_scale_inv", &[3, 2], &[1.0; 6]), &["tensor `a.global_scale_inv` of shape [3, 2]", "group:2 of 3×6 scales"]),
    ("second level missing", dequantize_two, |w| w.without("a.global_scale_inv"), &["no tensor `a.global_scale_inv`", "shape [3, 3]"]),
    ("second level's zero dtype", dequantize_two, |w| w.f32s("a.global_zero_point", &[3, 3], &[1.0; 9]), &["`a.global_zero_point` in f32", "f16, as"]),
    ("second level's zero of none", dequantize, |w| w.f32s("a.global_zero_point", &[1], &[1.0]), &["tensor `a.global_zero_point`", "additive only"]),
    ("packing", gemm, |w| w.meta("a.packing", "low"), &["`a.packing` = `low`", "none, low_first, high_first"]),
    ("zero", gemm, |w| w.meta("a.zero", "float"), &["`a.zero` = `float`", "none, integer, additive"]),
    ("recipe", gemm, |w| w.meta("recipe", "te_later"), &["`recipe` = `te_later`", "known: te_delayed"]),
    ("recipe parameter", gemm, |w| w.meta("recipe", "affine_sym:int4:g0"), &["`recipe` = `affine_sym:int4:g0`", "gN"]),
    ("fn unknown", || activation("gelu"), |w| w.meta("fn", "mish"), &["`fn` = `mish`", "gelu", "sreglu"]),
    ("fn missing", || activation("gelu"), |w| w.without("fn"), &["no metadata key `fn`", "one of gelu"]),
    ("constants of another fn", || activation("silu"), |w| w.meta("limit", "7"), &["metadata key `limit`", "swiglu_oai, swiglu_limit only"]),
    ("alpha of another fn", || activation("swiglu_limit"), |w| w.meta("alpha", "1"), &["metadata key `alpha`", "swiglu_oai only"]),
    ("limit missing", || activation("swiglu_limit"), |w| w.without("limit"), &["no metadata key `limit`", "swiglu_limit needs"]),
    ("limit of no size", || activation("swiglu_oai"), |w| w.meta("limit", "0"), &["`limit` = `0`", "above 0"]),
    ("alpha of no number", || activation("swiglu_oai"), |w| w.meta("alpha", "nan"), &["`alpha` = `nan`", "not 0"]),
    ("constants of a norm", norm, |w| w.meta("limit", "7"), &["metadata key `limit`", "swiglu_oai, swiglu_limit only"]),
    ("fn elsewhere", gemm, |w| w.meta("fn", "gelu"), &["`fn` for op gemm", "activation only"]),
    ("eps", norm, |w| w.meta("eps", "tiny"), &["`eps` = `tiny`", "a number"]),
    ("eps negative", norm, |w| w.meta("eps", "-1"), &["`eps` = `-1`", "at least 0"]),
    ("eps not finite", norm, |w| w.meta("eps", "nan"), &["`eps` = `nan`", "a number"]),
    ("gamma flag", norm, |w| w.meta("zero_centered_gamma", "1"), &["`zero_centered_gamma` = `1`", "true, false"]),
    ("device model", gemm, |w| w.meta("device_model", "h100"), &["`device_model` = `h100`", "exact", "hopper_wgmma"]),
    ("device model with promotion", gemm, |w| w.meta("device_model", "hopper_wgmma@128"), &["`device_model` = `hopper_wgmma@128`", "promote_every"]),
    ("promotion", gemm, |w| w.meta("promote_every", "0"), &["`promote_every` = `0`", "at least 1"]),
    // Tensors that are missing or there for nothing.
    ("a missing", gemm, |w| w.without("a").without("a.codes").without("a.scale_inv"), &["no tensor `a`", "op gemm needs it"]),
    ("b missing", gemm, |w| w.without("b").without("b.codes").without("b.scale_inv").without("b.granularity").without("b.scale_format"), &["no tensor `b` or `b.codes`", "op gemm needs it"]),
    ("scales missing", gemm, |w| w.without("b.scale_inv"), &["no tensor `b.scale_inv`", "shape [5]"]),
    ("codes missing", gemm, |w| w.without("b.codes"), &["tensor `b.scale_inv` without `b.codes`"]),
    ("keys of codes without them", norm, |w| w.meta("a.granularity", "row"), &["metadata `a.granularity` without `a.codes`"]),
    ("out missing", gemm, |w| w.without("out"), &["no tensor `out` or `out.codes`", "what the kernel wrote"]),
    ("out twice", cast, |w| w.values("out", &[3, 32], &values(Format::F32, 3, 32)), &["`out` and `out.codes`", "one of them"]),
    ("gamma missing", norm, |w| w.without("gamma"), &["no tensor `gamma`", "op layernorm needs it"]),
    ("offs missing", grouped, |w| w.without("offs"), &["no tensor `offs`", "op grouped_gemm needs it"]),
    ("codes of dequantize missing", dequantize, |w| w.without("a.codes").without("a.scale_inv").without("a.global_scale_inv").without("a.granularity").without("a.scale_format").without("a.packing").values("a", &[3, 32], &values(Format::F32, 3, 32)).without("a.format"), &["no tensor `a.codes`", "op dequantize needs it"]),
    ("unknown tensor", gemm, |w| w.f32s("a.scale", &[1], &[1.0]), &["tensor `a.scale`", "the tensors of op gemm", "a.scale_inv"]),
    ("tensor of another op", norm, |w| w.f32s("bias", &[8], &[1.0; 8]), &["tensor `bias`", "the tensors of op layernorm"]),
    ("bias of a gradient", wgrad, |w| w.f32s("bias", &[5], &[1.0; 5]), &["tensor `bias`", "op grouped_gemm_wgrad"]),
    ("bias of experts turned", grouped, |w| w.f32s("bias", &[4, 3], &[1.0; 12]), &["tensor `bias` of shape [4, 3]", "[3, 4], a row for each expert, or [4], the same for all"]),
    ("bias of experts in one row", grouped, |w| w.f32s("bias", &[12], &[1.0; 12]), &["tensor `bias` of shape [12]", "[3, 4], a row for each expert"]),
    ("dtype of a bias of experts", grouped, |w| w.raw("bias", Dtype::F64, &[3, 4], vec![0; 96]), &["tensor `bias` of dtype F64", "F16, BF16 or F32"]),
    ("zero points unannounced", gemm, |w| w.i32s("a.zero_point", &[3], &[1, 2, 3]), &["tensor `a.zero_point` with `a.zero` = none", "`integer` or `additive`"]),
    ("zero points missing", || int4(None), |w| w.without("b.zero_point"), &["no tensor `b.zero_point`", "[5, 2]"]),
    // Shapes.
    ("rank", gemm, |w| w.f32s("a", &[3, 32, 1], &[1.0; 96]), &["tensor `a` of shape [3, 32, 1]", "[rows, K]"]),
    ("size zero", gemm, |w| w.f32s("a", &[0, 32], &[]), &["tensor `a` of shape [0, 32]", "no size 0"]),
    ("values and codes differ", gemm, |w| w.f32s("a", &[3, 16], &[1.0; 48]), &["tensor `a.codes` of 3×32 elements", "3×16 as `a` has"]),
    ("scales of another shape", gemm, |w| w.f32s("a.scale_inv", &[3, 2], &[1.0; 6]), &["tensor `a.scale_inv` of shape [3, 2]", "expected [3]: granularity row over 3×32"]),
    ("scales of no axis", gemm, |w| w.f32s("a.scale_inv", &[], &[1.0]), &["tensor `a.scale_inv` of shape []", "expected [3]"]),
    ("scales of another granularity", gemm, |w| w.meta("a.granularity", "group:16"), &["tensor `a.scale_inv` of shape [3]", "[3, 2]: granularity group:16 over 3×32"]),
    ("K differs", gemm, |w| w.without("b").codes("b", &quantize("float8_rowwise", &values(Format::Bf16, 5, 16)), None, None).unwrap(), &["tensor `b.codes` of K = 16", "K = 32 as in a"]),
    ("zero points of another shape", || int4(None), |w| w.i32s("b.zero_point", &[5], &[1; 5]), &["tensor `b.zero_point` of shape [5]", "[5, 2]: as scale_inv"]),
    ("global scale", dequantize, |w| w.f32s("a.global_scale_inv", &[2], &[1.0; 2]), &["tensor `a.global_scale_inv` of shape [2]", "[1]: one value"]),
    ("history", gemm, |w| w.f32s("a.scale_history", &[2, 1], &[1.0; 2]), &["tensor `a.scale_history` of shape [2, 1]", "[T], newest first"]),
    ("bias length", gemm, |w| w.f32s("bias", &[3], &[1.0; 3]), &["tensor `bias` of shape [3]", "[5]: one a column"]),
    ("gamma length", norm, |w| w.f32s("gamma", &[3], &[1.0; 3]), &["tensor `gamma` of shape [3]", "[8]: one a column"]),
    ("beta length", norm, |w| w.f32s("beta", &[1, 8], &[1.0; 8]), &["tensor `beta` of shape [1, 8]", "[8]: one a column"]),
    ("out shape", gemm, |w| w.f32s("out", &[5, 3], &[1.0; 15]), &["tensor `out` of shape [5, 3]", "[3, 5]: the result of op gemm"]),
    ("out of wgrad", wgrad, |w| w.f32s("out", &[9, 5], &[1.0; 45]), &["tensor `out` of shape [9, 5]", "[3, 3, 5]"]),
    ("transpose shape", cast, |w| w.raw("out.transpose", Dtype::F8_E4M3, &[3, 32], vec![0; 96]), &["tensor `out.transpose` of shape [3, 32]", "[32, 3]"]),
    ("gated columns", || activation("geglu"), |w| w.f32s("a", &[3, 7], &[1.0; 21]), &["tensor `a` of 7 columns", "even number"]),
    ("experts of b", grouped, |w| w.i32s("offs", &[2], &[2, 7]), &["tensor `b.codes` of shape [3, 4, 16]", "[2, N, K]"]),
    ("experts of scales", grouped, |w| w.f32s("b.scale_inv", &[12], &[1.0; 12]), &["tensor `b.scale_inv` of shape [12]", "[3, 4]", "leading axis"]),
    ("blocks of experts", grouped, |w| w.meta("b.granularity", "block:3x16"), &["tensor `b.scale_inv` of shape [3, 4]", "[3, 2, 1]", "leading axis"]),
    ("offs descend", grouped, |w| w.i32s("offs", &[3], &[2, 1, 7]), &["tensor `offs` of values 2, 1", "ascending"]),
    ("offs negative", grouped, |w| w.i32s("offs", &[3], &[-1, 1, 7]), &["tensor `offs`", "ascending from 0"]),
    ("offs beyond", grouped, |w| w.i32s("offs", &[3], &[2, 2, 8]), &["offs[2]: 8 after 2", "at most 7"]),
    ("offs beyond the tokens", wgrad, |w| w.i32s("offs", &[3], &[4, 4, 10]), &["offs[2]: 10 after 4", "at most 9"]),
    ("offs of rank 2", grouped, |w| w.i32s("offs", &[1, 3], &[2, 2, 7]), &["tensor `offs` of shape [1, 3]", "[E] of dtype I32"]),
    ("groups of wgrad", wgrad, |w| w.meta("a.granularity", "group:4"), &["`a.granularity` = `group:4`", "tensor or row"]),
    // Dtypes.
    ("dtype of values", gemm, |w| w.raw("a", Dtype::F64, &[3, 32], vec![0; 768]), &["tensor `a` of dtype F64", "F16, BF16 or F32"]),
    ("dtype against format", gemm, |w| w.meta("a.format", "e5m2"), &["tensor `a.codes` of dtype F8_E4M3", "F8_E5M2 or U8"]),
    ("values against format", norm, |w| w.meta("a.format", "bf16"), &["tensor `a` of dtype F32", "`a.format` = bf16"]),
    ("bytes without a format", || int4(None), |w| w.without("b.format"), &["tensor `b.codes` of dtype U8", "metadata `b.format`"]),
    ("wide codes", gemm, |w| w.meta("a.format", "bf16"), &["tensor `a.codes` of format bf16", "at most 8 bits"]),
    ("packed codes of one byte", || int4(Some(NibbleOrder::LowFirst)), |w| w.meta("b.format", "int8"), &["format int8 with packing low_first", "4-bit"]),
    ("packed dtype", || int4(Some(NibbleOrder::LowFirst)), |w| w.raw("b.codes", Dtype::I8, &[5, 16], vec![0; 80]), &["tensor `b.codes` of dtype I8", "U8: two 4-bit codes a byte"]),
    ("code too wide", || int4(None), |w| w.raw("b.codes", Dtype::U8, &[5, 32], vec![16; 160]), &["tensor `b.codes` of code 0x10", "4 bits"]),
    ("int4 out of range", || int4(None), |w| w.raw("b.codes", Dtype::I8, &[5, 32], vec![8; 160]), &["int4 code 8", "-8 to 7"]),
    ("scale dtype", gemm, |w| w.raw("a.scale_inv", Dtype::F64, &[3], vec![0; 24]), &["tensor `a.scale_inv` of dtype F64", "F32"]),
    ("scale dtype against format", gemm, |w| w.meta("a.scale_format", "e8m0"), &["tensor `a.scale_inv` of dtype F32", "F8_E8M0 or U8"]),
    ("scale dtype against e4m3", gemm, |w| w.meta("a.scale_format", "e4m3"), &["tensor `a.scale_inv` of dtype F32", "F8_E4M3 or U8"]),
    ("bytes as scales", gemm, |w| w.without("a.scale_format").raw("a.scale_inv", Dtype::U8, &[3], vec![1; 3]), &["tensor `a.scale_inv` of dtype U8", "scale_format"]),
    ("offs dtype", grouped, |w| w.raw("offs", Dtype::I64, &[3], vec![0; 24]), &["tensor `offs` of dtype I64", "I32"]),
    ("zero dtype", || int4(None), |w| w.f32s("b.zero_point", &[5, 2], &[1.5; 10]), &["tensor `b.zero_point` of value 1.5", "integers"]),
    ("zero too large", || int4(None), |w| w.raw("b.zero_point", Dtype::I64, &[5, 2], vec![0x7f; 80]), &["tensor `b.zero_point` of value", "32 bits"]),
    ("global dtype", dequantize, |w| w.raw("a.global_scale_inv", Dtype::F64, &[1], vec![0; 8]), &["tensor `a.global_scale_inv` of dtype F64", "F32"]),
    ("out dtype against format", gemm, |w| w.meta("out.format", "f16"), &["tensor `out` of dtype BF16", "`out.format` = f16"]),
    // Results.
    ("codes without scale", cast, |w| w.without("out.scale").without("out.scale_inv").without("out.scale_format"), &["no tensor `out.scale_inv` or `out.scale`"]),
    ("codes with zero points and a scale alone", cast, |w| w.without("out.scale_inv").without("out.scale_format").without("out.transpose").meta("out.zero", "integer"), &["no tensor `out.scale_inv` or `out.scale`"]),
    ("values of a cast", cast, |w| w.without("out.codes").values("out", &[3, 32], &values(Format::F32, 3, 32)), &["tensor `out` of dtype F32", "a cast quantizes"]),
    ("codes of dequantize", dequantize, |w| w.without("out").raw("out.codes", Dtype::F8_E4M3, &[3, 32], vec![0; 96]).f32s("out.scale", &[1], &[1.0]), &["tensor `out.codes`", "dequantize writes values"]),
    ("amax of values", gemm, |w| w.f32s("out.amax", &[1], &[1.0]), &["tensor `out.amax` beside an unquantized `out`"]),
    ("scale of values", gemm, |w| w.f32s("out.scale_inv", &[1], &[1.0]), &["tensor `out.scale_inv` without `out.codes`"]),
    ("integer result of a product", gemm, |w| w.without("out").raw("out.codes", Dtype::I8, &[3, 5], vec![0; 15]).f32s("out.scale", &[1], &[1.0]), &["tensor `out.codes` of format int8", "FP8 codes from op gemm"]),
    ("row scales of a product", gemm, |w| w.without("out").meta("out.granularity", "row").raw("out.codes", Dtype::F8_E4M3, &[3, 5], vec![0; 15]).f32s("out.scale_inv",&[3],&[1.0; 3],), &["`out.granularity` = `row`", "the FP8 output of op gemm"]),
    ("transpose of a product", gemm, |w| w.without("out").raw("out.codes", Dtype::F8_E4M3, &[3, 5], vec![0; 15]).f32s("out.scale", &[1], &[1.0]).raw("out.transpose",Dtype::F8_E4M3,&[5, 3],vec![0; 15],), &["tensor `out.transpose` of op gemm", "from op cast only"]),
    ("transpose with row scales", cast, |w| w.without("out.scale").meta("out.granularity", "row").f32s("out.scale_inv", &[3], &[1.0; 3]), &["`out.granularity` = `row`", "out.transpose"]),
    ("scale with row scales", cast, |w| w.without("out.transpose").meta("out.granularity", "row").f32s("out.scale_inv", &[3], &[1.0; 3]), &["`out.granularity` = `row`", "`out.scale`"]),
    ("out.scale shape", cast, |w| w.f32s("out.scale", &[2], &[1.0; 2]), &["tensor `out.scale` of shape [2]", "[1]"]),
    ("out.scale dtype", cast, |w| w.raw("out.scale", Dtype::BF16, &[1], vec![0x80, 0x3f]), &["tensor `out.scale` of dtype BF16", "dtype F32"]),
];

#[test]
fn every_rule_names_file_place_found_and_expected() {
    let mut wrong = Vec::new();
    for (what, base, breaks, words) in RULES {
        let mut w = base();
        read(&w).unwrap_or_else(|e| panic!("{what}: the whole bundle: {e}"));
        breaks(&mut w);
        let message = match read(&w) {
            Ok(_) => "accepted".to_string(),
            Err(e) => e.to_string(),
        };
        let placed = message.starts_with("x.safetensors: found ") && message.contains(", expected ");
        if !placed || words.iter().any(|word| !message.contains(word)) {
            wrong.push(format!("{what}: {message}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}",
        wrong.join(
            "
"
        )
    );
}
