"""The audit's known answers: gates that are in use, and what they are known to let pass."""

import json
import math

import pytest

GATES = """
import unittest
import numpy as np
from numpy import allclose as near
from numpy.testing import assert_allclose

RNG = np.random.default_rng(1)

def data(size=1.0):
    ref = (RNG.standard_normal((64, 96)) * size).astype(np.float32)
    return (ref * (1 + 1e-3 * RNG.standard_normal(ref.shape))).astype(np.float32), ref

def calc_diff(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    return 1 - 2 * (x * y).sum() / (x * x + y * y).sum()

def test_flashinfer():
    out, ref = data(0.1)
    mse = np.mean((out - ref) ** 2)
    assert mse < 1.0

def test_qutlass():
    out, ref = data(30)
    assert_allclose(out, ref, rtol=0.34, atol=100)

def test_deepgemm():
    out, ref = data()
    diff = calc_diff(out, ref)
    assert diff < 1e-3, f"{diff}"

def test_cosine():
    out, ref = data()
    cosine = (out * ref).sum() / np.sqrt((out**2).sum() * (ref**2).sum())
    for name in ["a", "b"]:
        assert cosine > 0.99

def test_vllm():
    out, ref = data(1000)
    assert near(out, ref, rtol=0.5, atol=0.15)

def test_te_attention():
    out, ref = data()
    rmse = np.sqrt(((out - ref) ** 2).mean())
    rmse_range = max(out.max(), ref.max()) - min(out.min(), ref.min())
    assert rmse < 0.15 * rmse_range

class Case(unittest.TestCase):
    def test_less(self):
        out, ref = data()
        with np.errstate(all="ignore"):
            err = np.abs(out - ref).max()
        self.assertLess(err, 0.5)
"""


def audit(pytester, text, *more):
    pytester.makepyfile(text)
    outcome = pytester.runpytest("--qassay-audit", "--qassay-audit-budget", "5", "--qassay-audit-report", "a.json", *more)
    found = json.loads((pytester.path / "a.json").read_text())["assertions"]
    return outcome, found


@pytest.mark.parametrize("more", [(), ("-n", "2")])
def test_known_answers(pytester, more):
    outcome, found = audit(pytester, GATES, *more)
    outcome.assert_outcomes(passed=7)
    by = {f["test"].split("test_")[-1]: f for f in found}
    assert len(by) == 7, [f["source"] for f in found]
    assert "zeros" in by["flashinfer"]["passes"] and 5.5 < by["flashinfer"]["gain_up"] < 22
    assert "zeros" in by["qutlass"]["passes"] and by["qutlass"]["gain_up"] > 1.34
    # (1 - g)² / (1 + g²) = 1e-3
    assert by["deepgemm"]["gain_up"] == pytest.approx(1.0457, abs=2e-3) and "zeros" not in by["deepgemm"]["passes"]
    assert by["cosine"]["gain_up"] is None and by["cosine"]["gain_down"] == 0 and "sign" in by["cosine"]["caught"]
    assert by["vllm"]["gain_up"] == pytest.approx(1.5, abs=0.01) and "zeros" in by["vllm"]["caught"]
    assert "zeros" in by["te_attention"]["passes"]
    # The largest of 6144 normal numbers is about 4, so 0.5 is a gain of about an eighth.
    assert 1.08 < by["less"]["gain_up"] < 1.2
    assert "zeros" in found[0]["passes"], "worst first"
    assert "one NaN" not in {p for f in found for p in f["passes"]}


def test_what_a_test_loads_itself_is_asked_too(pytester):
    """numpy loads np.testing at its first use, which here is inside of a test; and torch may come as late."""
    pytester.makepyfile(torch_late="""
        import sys, types
        torch, testing = types.ModuleType("torch"), types.ModuleType("torch.testing")
        def assert_close(actual, expected, rtol, atol):
            assert (abs(actual - expected) <= atol + rtol * abs(expected)).all()
        testing.assert_close, torch.testing = assert_close, testing
        sys.modules.update({"torch": torch, "torch.testing": testing})
    """)
    pytester.makepyfile("""
        import numpy as np
        X = np.linspace(1, 2, 64).reshape(8, 8)
        def test_numpy():
            np.testing.assert_allclose(X, X + 1e-4, rtol=0.5, atol=0.15)
        def test_loads():
            import torch_late
        def test_torch():
            import torch
            torch.testing.assert_close(X, X + 1e-4, rtol=0.5, atol=0.15)
    """)
    outcome = pytester.runpytest_subprocess("--qassay-audit", "--qassay-audit-report", "a.json")
    outcome.assert_outcomes(passed=3)
    found = json.loads((pytester.path / "a.json").read_text())["assertions"]
    assert sorted(f["test"].split("::")[1] for f in found) == ["test_numpy", "test_torch"]
    assert all(1.5 < f["gain_up"] < 2 for f in found), [f["gain_up"] for f in found]


def test_outcomes_and_warnings_do_not_change(pytester):
    text = """
        import warnings
        import numpy as np, pytest
        from numpy.testing import assert_allclose
        X = np.linspace(1, 2, 64).reshape(8, 8)
        def test_fails():
            assert_allclose(X, X * 1.1, rtol=1e-3)
        def test_raises():
            with pytest.raises(AssertionError, match="Not equal to tolerance"):
                assert_allclose(X, 2 * X)
        def test_value():
            assert np.allclose(X, X) is True and np.allclose(X, 2 * X) is False
        def test_plain_fails():
            assert np.abs(X - 2 * X).max() < 1e-3
        def test_no_warning():
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                assert_allclose(np.log(X + 1), np.log(X + 1))
            assert not seen
        def test_random_state():
            np.random.seed(3)
            first = np.random.rand()
            np.random.seed(3)
            assert_allclose(X, X)
            assert np.random.rand() == first
    """
    pytester.makepyfile(text)
    plain = pytester.runpytest().parseoutcomes()
    outcome, found = audit(pytester, text)
    assert outcome.parseoutcomes() == plain == {"passed": 4, "failed": 2}
    assert {f["test"].split("::")[1] for f in found} == {"test_value", "test_no_warning", "test_random_state"}


def test_what_compares_no_arrays_is_left_out(pytester):
    _, found = audit(pytester, """
        import numpy as np
        X = np.linspace(1, 2, 64).reshape(8, 8)
        def kernel(x): return x + 1e-9
        CALLS = []
        def launch(x):
            CALLS.append(1)
            return x
        def test_small():
            assert len(X) < 100
            info = 3
            assert info > 0
            assert np.abs(X).max() < 100
            assert np.allclose(np.zeros(4), np.zeros(4))
        def test_launches_are_not_repeated():
            out, ref = launch(X), X.copy()
            assert np.abs(launch(out) - ref).max() < 1.0
            assert len(CALLS) == 2
        def test_loop():
            for _ in range(10):
                assert np.allclose(kernel(X), X)
    """)
    assert [(f["test"].split("::")[1], f["calls"]) for f in found] == [("test_loop", 3)]
    assert found[0]["gain_up"] < 1.0003 and found[0]["gain_up"] != math.inf


def test_the_page(pytester):
    pytester.makepyfile(GATES)
    pytester.runpytest("--qassay-audit", "--qassay-audit-report", "a.html")
    text = (pytester.path / "a.html").read_text()
    assert "<p class=ran>" in text and "7 tests, 7 numeric assertions: an all-zero output passes" in text and "zeros pass" in text and "assert mse &lt; 1.0" in text
