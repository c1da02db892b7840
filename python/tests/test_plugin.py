"""The plugin: cases as tests, the session's report, xdist."""

import csv

import pytest


def rows_of(pytester):
    with open(pytester.path / "r/assays.csv") as f:
        return list(csv.DictReader(f))


def test_each_case_is_a_test_with_the_same_id(pytester):
    pytester.makepyfile("""
        import pytest

        @pytest.mark.qassay("smoke", op="cast", match="te_")
        def test_shapes(qassay_case):
            assert qassay_case.meta["op"] == "cast" and qassay_case.numpy("a").shape == qassay_case.out_shape
    """)
    alone, shared = pytester.runpytest("-v"), pytester.runpytest("-v", "-n", "2")
    assert alone.parseoutcomes()["passed"] == shared.parseoutcomes()["passed"] >= 2
    assert any("test_shapes[cast" in line and "PASSED" in line for line in alone.outlines), alone.outlines


def test_right_kernels_pass_the_sweep(pytester):
    pytester.makepyfile(RIGHT)
    outcome = pytester.runpytest("-q", "-p", "no:cacheprovider", "--qassay-report", "r", "--qassay-keep", "--junit-xml", "j.xml")
    counts = outcome.parseoutcomes()
    assert counts.get("passed", 0) >= 12 and not counts.get("failed"), outcome.outlines[-40:]
    rows = rows_of(pytester)
    assert len(rows) >= 12 and {r["verdict"] for r in rows} <= {"pass", "no_power"}
    assert (pytester.path / "r/index.html").read_text().startswith("<!DOCTYPE html>")
    assert 'name="qassay" value="pass"' in (pytester.path / "j.xml").read_text()


RIGHT = """
import numpy as np, pytest, qassay
from qassay import _bundle

@pytest.mark.qassay("smoke", op="cast", match="minilm")
def test_casts(qassay_case):
    qassay_case.check(qassay.quantize(qassay_case.numpy("a"), qassay_case.meta["recipe"]), power="ignore")

@pytest.mark.qassay("smoke", op="gemm", match="12x20")
def test_products(qassay_case):
    case = qassay_case
    out = _bundle.rounded(case.values("a") @ case.values("b").T, case.meta["out.format"])
    assert case.out_dtype == {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[case.meta["out.format"]]
    case.check(out, power="ignore")
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_failure_shows_the_card_and_leaves_its_bundle(pytester, workers):
    pytester.makepyfile("""
        import numpy as np, qassay
        X = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
        def test_wrong(qassay):
            (a, sa), (b, sb) = qassay.quantize(X, "te_current"), qassay.quantize(X, "te_current")
            out = (qassay.quantize(X, "te_current").dequantize() @ X.T).astype(np.float32)
            try:
                qassay.assert_gemm(out, a, sa, b, sb)
            finally:
                assert len(qassay.results) == 1 and qassay.results[0].verdict == "fail"
        def test_right():
            y = (X.astype(np.float64) * (X > 0)).astype(np.float32)
            qassay.assert_activation(y, X, "relu")
    """)
    outcome = pytester.runpytest("-n", workers, "--qassay-report", "r")
    outcome.assert_outcomes(passed=1, failed=1)
    text = "\n".join(outcome.outlines)
    assert "KernelFailure: FAIL  " in text
    assert "again: qassay assay r/bundles/" in text
    # Our own frames are hidden.
    assert "_process.py" not in text and "_checks.py" not in text
    rows = {r["test"].split("::")[1]: r for r in rows_of(pytester)}
    assert rows["test_wrong"]["verdict"] == "fail" and rows["test_right"]["verdict"] == "pass"
    assert (pytester.path / rows["test_wrong"]["bundle"]).exists() and not rows["test_right"]["bundle"]
    assert "fail" in (pytester.path / "r/index.html").read_text()
    assert not list((pytester.path / "r").glob("assays-*"))


@pytest.mark.parametrize("mark, arg, text", [
    ('"no_such"', "qassay_case", "unknown sweep `no_such`"),
    ('"smoke", op="nothing"', "qassay_case", "no case of smoke has op='nothing'"),
    ('"smoke"', "tmp_path", "mark qassay without an argument qassay_case"),
    ('"smoke", color=1', "qassay_case", "expected qassay("),
])
def test_what_is_wrong_with_a_mark_is_said_at_collection(pytester, mark, arg, text):
    pytester.makepyfile(f"import pytest\n@pytest.mark.qassay({mark})\ndef test_x({arg}): pass\n")
    outcome = pytester.runpytest()
    assert outcome.ret != 0 and text in "\n".join(outcome.outlines + outcome.errlines)


def test_an_argument_without_a_mark(pytester):
    pytester.makepyfile("def test_x(qassay_case): pass\n")
    outcome = pytester.runpytest()
    assert outcome.ret != 0 and 'argument qassay_case without @pytest.mark.qassay("sweep")' in "\n".join(outcome.outlines + outcome.errlines)
