"""Products: what passes, what fails and how it says so, what is refused and what it says to type."""

import ml_dtypes
import numpy as np
import pytest

import qassay

RECIPES = ["float8_rowwise", "te_current", "te_block_1x128", "te_block_128x128", "mx_floor:e4m3", "mx_floor:e2m1", "te_nvfp4", "deepseek_1x128"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_right_product_passes_and_a_gain_fails(product, recipe):
    out, qa, qb = product(recipe, 32, 48, 256)
    assert qassay.assert_gemm(out, qa, None, qb, None).verdict == "pass"
    (a8, sa), (b8, sb) = qa, qb
    extra = {f"{x}_global_scale_inv": q.global_scale_inv for x, q in (("a", qa), ("b", qb)) if q.global_scale_inv is not None}
    assert qassay.assert_gemm(out, a8, sa, b8, sb, **extra).verdict == "pass"
    with pytest.raises(qassay.KernelFailure) as e:
        qassay.assert_gemm(out * np.float32(2), a8, sa, b8, sb, **extra)
    assert e.value.result.verdict == "fail"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_type_of_result(product, dtype):
    out, (a8, sa), (b8, sb) = product()
    assert qassay.assert_gemm(out.astype(dtype), a8, sa, b8, sb).verdict == "pass"


def test_the_failure_card(product):
    out, (a8, sa), (b8, sb) = product()
    wrong = out.copy()
    wrong[3] *= np.float32(1.5)
    with pytest.raises(qassay.KernelFailure) as e:
        qassay.assert_gemm(wrong, a8, sa, b8, sb)
    first, *rest = str(e.value).splitlines()
    assert first.startswith("FAIL  ")
    text = " ".join(line.strip() for line in rest)
    assert "(3, " in text and "may be " in text and "40 of 960 elements outside" in text, e.value
    assert any(line.startswith("      held to: ") for line in rest) and any(line.startswith("      again: ") for line in rest)
    assert isinstance(e.value, AssertionError)


def test_a_stale_scale_is_named(product):
    out, (a8, sa), (b8, sb) = product("te_current")
    old = np.float32(1.02) * np.asarray(sa)
    with pytest.raises(qassay.KernelFailure, match="stale_state:") as e:
        qassay.assert_gemm(out * np.float32(1.02), a8, sa, b8, sb, a_scale_history=np.array([sa.item(), old.item()], np.float32))
    assert e.value.result.diagnosis[0].operand == "a"
    assert e.value.result.diagnosis[0].explains > 0.999


def test_bias(product):
    out, (a8, sa), (b8, sb) = product()
    bias = np.linspace(-100, 100, 40, dtype=np.float32)
    assert qassay.assert_gemm(out + bias, a8, sa, b8, sb, bias=bias).verdict == "pass"
    assert qassay.assert_gemm(out + bias, a8, sa, b8, sb, bias=bias[None, :]).verdict == "pass"
    with pytest.raises(qassay.KernelFailure):
        qassay.assert_gemm(out, a8, sa, b8, sb, bias=bias)


def test_zeros_have_no_power(product):
    out, (a8, sa), (b8, sb) = product()
    zero = np.zeros_like(np.asarray(a8))
    with pytest.raises(qassay.NoPower, match='(?s)^NO_POWER  assert_gemm.*every output is zero.*power="ignore"'):
        qassay.assert_gemm(np.zeros_like(out), zero, sa, b8, sb)
    assert qassay.assert_gemm(np.zeros_like(out), zero, sa, b8, sb, power="ignore").verdict == "no_power"


def test_weights_of_four_bits_with_zero_points():
    rng = np.random.default_rng(1)
    w, x = rng.standard_normal((32, 128)).astype(np.float32), rng.standard_normal((16, 128)).astype(np.float32)
    q = qassay.quantize(w, "affine_asym:uint4:g32")
    values = q._bundle.values("x")
    # By hand: (code - zero) * scale.
    by_hand = (np.asarray(q.codes).astype(np.float64) - np.repeat(q.zero_point, 32, 1)) * np.repeat(np.asarray(q.scale_inv, np.float64), 32, 1)
    assert np.array_equal(values, by_hand)
    out = (x.astype(np.float64) @ values.T).astype(np.float32)
    assert qassay.assert_gemm(out, x, None, q, None).verdict == "pass"
    floats = q.zero_point.astype(np.float32)
    how = {"b_format": "uint4", "b_granularity": "group:32"}
    assert qassay.assert_gemm(out, x, None, np.asarray(q.codes), np.asarray(q.scale_inv), b_zero_point=floats, **how).verdict == "pass"
    with pytest.raises(qassay.InputError, match='b_zero_point: found 0.5, expected integers; .*b_zero="additive"'):
        qassay.assert_gemm(out, x, None, np.asarray(q.codes), np.asarray(q.scale_inv), b_zero_point=floats * 0 + 0.5, **how)
    codes = np.asarray(q.codes)
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).astype(np.uint8)
    how |= {"b_packing": "low_first", "b_zero_point": q.zero_point}
    assert qassay.assert_gemm(out, x, None, packed, np.asarray(q.scale_inv), **how).verdict == "pass"


@pytest.mark.parametrize("recipe", ["gguf_q4_k", "bnb_nf4"])
def test_weights_whose_scales_or_values_are_stored_otherwise(recipe):
    rng = np.random.default_rng(2)
    w, x = rng.standard_normal((32, 512)).astype(np.float32), rng.standard_normal((16, 512)).astype(np.float16)
    q = qassay.quantize(w, recipe)
    values, codes, scale = q.dequantize().astype(np.float64), np.asarray(q.codes), np.asarray(q.scale_inv, np.float64)
    if recipe == "bnb_nf4":
        assert q.format == "nf4" and np.array_equal(np.abs(values).reshape(32, 8, 64).max(-1), scale)
    else:
        d, dmin = (np.repeat(np.asarray(v, np.float64), 256, 1) for v in (q.global_scale_inv, q.global_zero_point))
        by_hand = codes * np.repeat(scale, 32, 1) * d + np.repeat(q.zero_point, 32, 1) * dmin
        assert q.global_granularity == "group:8" and np.array_equal(values, by_hand.astype(np.float32))
    assert np.abs(values - w).max() < 0.16 * np.abs(w).max()
    out = (x.astype(np.float64) @ values.T).astype(np.float32)
    assert qassay.assert_gemm(out, x, None, q, None).verdict == "pass"
    wrong = out.copy()
    wrong[:, 5] *= 1.1
    with pytest.raises(qassay.KernelFailure, match="^FAIL  assert_gemm"):
        qassay.assert_gemm(wrong, x, None, q, None)


def test_a_scaled_result(product):
    out, (a8, sa), (b8, sb) = product()
    scale = np.float32(2.0 ** np.floor(np.log2(448 / np.abs(out).max())))
    codes = (out * scale).astype(ml_dtypes.float8_e4m3fn)
    assert qassay.assert_gemm(codes, a8, sa, b8, sb, out_scale=scale).verdict == "pass"
    assert qassay.assert_gemm(codes, a8, sa, b8, sb, out_scale_inv=1 / scale).verdict == "pass"
    with pytest.raises(qassay.InputError, match="out has dtype F8_E4M3, codes; give out_scale_inv="):
        qassay.assert_gemm(codes, a8, sa, b8, sb)


def refusals():
    f = np.float32
    yield "b is \\[96, 40\\], expected K = 96 as in a; give b.T", lambda t: t.update(b=t["b"].T, sb=t["sb"]), qassay.InputError
    yield "out is \\[40, 24\\], expected \\[24, 40\\]; give out.T", lambda t: t.update(out=t["out"].T), qassay.InputError
    yield "b is \\[40, 95\\], expected K = 96 as in a", lambda t: t.update(b=t["b"][:, :-1]), qassay.InputError
    yield "out: found dtype float64, expected one of .*; round it to float32 first", lambda t: t.update(out=t["out"].astype(float)), TypeError
    yield 'a_scale_inv is \\[24, 3\\] .* a_granularity="group:32"', lambda t: t.update(sa=np.ones((24, 3), f)), qassay.InputError
    yield "a_scale_inv is \\[25\\], expected one value, \\[24\\]", lambda t: t.update(sa=np.ones(25, f)), qassay.InputError
    yield 'a has dtype uint8, which may be any code; type a_format="e4m3"', lambda t: t.update(a=t["a"].view(np.uint8)), qassay.InputError
    yield "a has dtype F32 with a_scale_inv, expected codes", lambda t: t.update(a=t["a"].astype(f)), qassay.InputError
    yield "a has dtype F8_E4M3 without a_scale_inv", lambda t: t.update(sa=None), qassay.InputError
    yield "a_scale_inv: found 0.1, which is no float32", lambda t: t.update(sa=0.1), TypeError
    yield "a is \\[24, 2, 48\\], expected \\[rows, K\\]", lambda t: t.update(a=t["a"].reshape(24, 2, 48), b=t["b"][:, :48]), qassay.InputError


@pytest.mark.parametrize("text, change, kind", list(refusals()), ids=lambda x: x if isinstance(x, str) else "")
def test_what_is_refused_says_what_to_type(product, text, change, kind):
    out, (a8, sa), (b8, sb) = product()
    t = {"out": out, "a": np.asarray(a8), "sa": np.asarray(sa), "b": np.asarray(b8), "sb": np.asarray(sb)}
    change(t)
    with pytest.raises(kind, match="^assert_gemm: " + text):
        qassay.assert_gemm(t["out"], t["a"], t["sa"], t["b"], t["sb"])


def test_a_misspelled_op_is_refused_before_its_tensors():
    with pytest.raises(qassay.InputError, match='^assay: unknown op "gem"; did you mean "gemm"\\? known: gemm, '):
        qassay.assay("gem", {})
    with pytest.raises(qassay.InputError, match="^assay: no out: "):
        qassay.assay("gemm", {})


def test_a_misspelled_keyword_is_refused_with_the_nearest(product):
    out, (a8, sa), (b8, sb) = product()
    with pytest.raises(TypeError, match="unknown keyword a_granulrity; did you mean a_granularity?"):
        qassay.assert_gemm(out, a8, sa, b8, sb, a_granulrity="row")


def test_scales_in_every_shape_frameworks_have(product):
    out, (a8, sa), (b8, sb) = product()
    for a_shape in [(24,), (24, 1)]:
        for b_shape in [(40,), (40, 1), (1, 40)]:
            assert qassay.assert_gemm(out, a8, np.asarray(sa).reshape(a_shape), b8, np.asarray(sb).reshape(b_shape)).verdict == "pass"
    out, (a8, sa), (b8, sb) = product("te_current")
    for scale in [np.asarray(sa).reshape(()), np.asarray(sa).reshape(1), np.asarray(sa).reshape(1, 1), sa.item(), np.float32(sa.item())]:
        assert qassay.assert_gemm(out, a8, scale, b8, sb).verdict == "pass"


def test_group_scales_have_to_be_named_or_come_from_quantize(product):
    out, qa, qb = product("te_block_1x128", 8, 8, 512)
    (a8, sa), (b8, sb) = qa, qb
    plain = lambda: qassay.assert_gemm(out, a8, np.asarray(sa), b8, np.asarray(sb))
    with pytest.raises(qassay.InputError, match='a_granularity="group:128"'):
        plain()
    how = {"a_granularity": "group:128", "b_granularity": "group:128"}
    assert qassay.assert_gemm(out, a8, np.asarray(sa), b8, np.asarray(sb), **how).verdict == "pass"
    with pytest.raises(qassay.InputError, match="a_scale_inv is \\[8, 4\\], expected \\[8, 8\\]: granularity group:64 over 8×512"):
        qassay.assert_gemm(out, a8, np.asarray(sa), b8, np.asarray(sb), a_granularity="group:64", b_granularity="group:128")


def test_a_sample_judges_whole_rows_and_columns(product):
    out, qa, qb = product("te_block_128x128", 300, 400, 256, recipe_b="te_block_1x128")
    result = qassay.assert_gemm(out, qa, None, qb, None, sample=160)
    assert result.sample.startswith("172 of 300 rows and 160 of 400 columns") 
    assert "sample" in str(result)
    wrong = out.copy()
    wrong[-1, -1] *= 2
    with pytest.raises(qassay.KernelFailure, match="sample: "):
        qassay.assert_gemm(wrong, qa, None, qb, None, sample=160)
    assert qassay.assert_gemm(out, qa, None, qb, None).sample is None


def test_errors_larger_than_right_arithmetic_makes_them_raise():
    rng = np.random.default_rng(3)
    qa, qb = (qassay.quantize(rng.standard_normal((rows, 2048)).astype(np.float32), "float8_rowwise") for rows in (64, 96))
    values = [np.asarray(q._bundle.values("x")) for q in (qa, qb)]
    out = (values[0] @ values[1].T).astype(np.float32)
    assert qassay.assert_gemm(out, qa, None, qb, None).verdict == "pass"
    # No element of a product that is 2 % too large is outside the bound of a unit that truncates: all of them together are.
    with pytest.raises(qassay.KernelFailure, match="SUSPECT.*\n.*larger than any") as raised:
        qassay.assert_gemm(out * np.float32(1.02), qa, None, qb, None, diagnose=False)
    assert (raised.value.result.verdict, raised.value.result.suspect) == ("pass", True)
    assert qassay.assert_gemm(out * np.float32(1.02), qa, None, qb, None, diagnose=False, suspect="ignore").suspect
    with pytest.raises(TypeError, match='suspect is "no"|suspect is \'no\''):
        qassay.assert_gemm(out, qa, None, qb, None, suspect="no")


def test_a_result_of_many_elements_is_sampled_however_short_its_sums_are(product):
    out, qa, qb = product("float8_rowwise", 4200, 4160, 4)
    result = qassay.assert_gemm(out, qa, None, qb, None, diagnose=False)
    assert result.sample.startswith("4088 of 4200 rows and 4096 of 4160 columns"), result.sample


def test_a_sample_keeps_neighbours_together(product):
    out, (a8, sa), (b8, sb) = product("float8_rowwise", 200, 300, 64)
    wrong = out / np.asarray(sb).reshape(1, -1) * np.roll(np.asarray(sb).reshape(1, -1), 1)
    with pytest.raises(qassay.KernelFailure, match="sample: 104 of 200 rows and 108 of 300 columns") as raised:
        qassay.assert_gemm(wrong.astype(np.float32), a8, sa, b8, sb, sample=112)
    assert raised.value.result.diagnosis[0].fault == "scale_shared"


def test_a_result_is_neither_true_nor_false_and_can_be_kept(product, tmp_path):
    import pickle

    out, (a8, sa), (b8, sb) = product()
    result = qassay.assay("gemm", {"out": out * 2, "a.codes": a8, "a.scale_inv": sa, "b.codes": b8, "b.scale_inv": sb})
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(result)
    assert result.verdict == "fail" and result.bound_ratio > 1 and result.errors["kernel"]["max_ulp"] > 0
    again = qassay.Bundle.load(result.save(tmp_path / "x.safetensors")).assay()
    assert (again.verdict, again.reason, again.bound_ratio) == (result.verdict, result.reason, result.bound_ratio)
    assert "<svg" in result._repr_html_() and result.reason.split(",")[0] in result._repr_html_()
    assert result.html().startswith("<!DOCTYPE html") and "again: qassay assay" in result.card()
    copy = pickle.loads(pickle.dumps(result))
    assert str(copy) == str(result) and copy.diagnosis == result.diagnosis


def test_diagnosis_can_be_left_out(product):
    out, (a8, sa), (b8, sb) = product()
    t = {"out": out * 2, "a.codes": a8, "a.scale_inv": sa, "b.codes": b8, "b.scale_inv": sb}
    assert qassay.assay("gemm", t).diagnosis and not qassay.assay("gemm", t, diagnose=False).diagnosis


def test_a_sample_holds_the_rows_and_columns_that_look_wrong(product):
    out, (a8, sa), (b8, sb) = product("float8_rowwise", 700, 900, 64)
    drawn = qassay.assert_gemm(out, a8, sa, b8, sb, sample=64)
    assert drawn.sample.startswith("60 of 700 rows and 52 of 900 columns") and "checksums" in drawn.sample
    for rows, cols in ((slice(300, 303), slice(None)), (slice(None), slice(500, 501)), (slice(320, 336), slice(480, 512))):
        wrong = out.copy()
        wrong[rows, cols] *= 1.5
        with pytest.raises(qassay.KernelFailure, match="sample: 60 of 700 rows and 52 of 900 columns"):
            qassay.assert_gemm(wrong, a8, sa, b8, sb, sample=64, diagnose=False)
    wrong = out.copy()
    wrong[333, 444] = np.nan
    with pytest.raises(qassay.KernelFailure):
        qassay.assert_gemm(wrong, a8, sa, b8, sb, sample=64, diagnose=False)


def test_a_gpu_is_asked_for_all_of_a_large_product_before_it_is_sampled(product, monkeypatch):
    out, (a8, sa), (b8, sb) = product("float8_rowwise", 200, 300, 64)

    class OnGpu(np.ndarray):
        is_cuda = True

    asked = []

    def there(held, timeout, fields):
        asked.append(held.tensors["out"][2])
        return answer[0]

    monkeypatch.setattr(qassay._sample, "MOST", 1 << 20)
    monkeypatch.setattr(qassay._checks, "there", there)
    monkeypatch.setattr(qassay._checks, "device_of", lambda *tensors: None)
    told = lambda x: qassay.assert_gemm(x, a8, sa, b8, sb, diagnose=False)
    answer = [told(out)]
    assert answer[0].sample and not asked  # nothing is on a GPU
    assert told(out.view(OnGpu)) is answer[0] and asked == [[200, 300]]
    answer[0] = None
    assert told(out.view(OnGpu)).sample and len(asked) == 2
    monkeypatch.setattr(qassay._sample, "MOST", 1 << 34)
    assert told(out.view(OnGpu)).sample is None and len(asked) == 2  # small: judged whole anywhere


def test_a_sample_takes_the_second_level_of_its_rows(product):
    out, qa, qb = product("float8_rowwise", 160, 192, 512, recipe_b="gguf_q4_k")
    assert qassay.assert_gemm(out, qa, None, qb, None, sample=64).sample.startswith("64 of 160 rows and 64 of 192 columns")
    wrong = out.copy()
    wrong[:, 100] *= 1.5
    with pytest.raises(qassay.KernelFailure, match="64 of 192 columns"):
        qassay.assert_gemm(wrong, qa, None, qb, None, sample=64, diagnose=False)
