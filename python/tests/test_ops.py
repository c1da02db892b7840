"""The other ops, against numpy."""

import math

import ml_dtypes
import numpy as np
import pytest

import qassay

RNG = np.random.default_rng(5)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["rmsnorm", "layernorm"])
def test_norms(kind):
    x, gamma, beta = draw(12, 64), draw(64), draw(64)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True) if kind == "layernorm" else wide
    y = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * gamma
    y = (y + beta if kind == "layernorm" else y).astype(np.float32)
    args = (x, gamma, beta) if kind == "layernorm" else (x, gamma)
    assert qassay.assert_norm(y, *args, kind=kind).verdict == "pass"
    with pytest.raises(qassay.KernelFailure):
        qassay.assert_norm(y * np.float32(1.001), *args, kind=kind)
    with pytest.raises(TypeError, match="kind is 'batchnorm'"):
        qassay.assert_norm(y, *args, kind="batchnorm")


def test_activations():
    x = draw(8, 64)
    wide = x.astype(np.float64)
    silu = (wide / (1 + np.exp(-wide))).astype(np.float32)
    assert qassay.assert_activation(silu, x, "silu").verdict == "pass"
    with pytest.raises(qassay.KernelFailure):
        qassay.assert_activation(silu, x, "gelu")
    gated = (silu[:, :32].astype(np.float64) * wide[:, 32:]).astype(np.float32)
    assert qassay.assert_activation(gated, x, "swiglu").verdict == "pass"
    with pytest.raises(qassay.InputError, match="out is \\[8, 64\\], expected \\[8, 32\\]"):
        qassay.assert_activation(silu, x, "swiglu")
    with pytest.raises(qassay.InputError, match="gelu, silu"):
        qassay.assert_activation(silu, x, "tanh")


def test_exact_gelu_and_clamped_swiglus():
    x = np.random.default_rng(6).standard_normal((8, 64)).astype(np.float32) * 6
    wide, h = x.astype(np.float64), 32
    exact = (wide / 2 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))).astype(np.float32)
    assert qassay.assert_activation(exact, x, "gelu_erf").verdict == "pass"
    with pytest.raises(qassay.KernelFailure, match="error function"):
        qassay.assert_activation(exact, x, "gelu")
    assert qassay.assert_activation(exact[:, :h] * x[:, h:], x, "geglu_erf").verdict == "pass"

    def clamped(alpha, limit, plus):
        g, u = np.minimum(wide[:, :h], limit), np.clip(wide[:, h:], -limit, limit)
        return (g / (1 + np.exp(-alpha * g)) * (u + plus)).astype(np.float32)

    assert qassay.assert_activation(clamped(1.702, 7, 1), x, "swiglu_oai").verdict == "pass"
    assert qassay.assert_activation(clamped(1.5, 6, 1), x, "swiglu_oai", alpha=1.5, limit=6).verdict == "pass"
    assert qassay.assert_activation(clamped(1, 10, 0), x, "swiglu_limit", limit=10).verdict == "pass"
    with pytest.raises(qassay.InputError, match="limit"):
        qassay.assert_activation(clamped(1, 10, 0), x, "swiglu_limit")
    with pytest.raises(qassay.KernelFailure, match="the limit is 7, not 6"):
        qassay.assert_activation(clamped(1.702, 7, 1), x, "swiglu_oai", limit=6)


def test_casts():
    x = draw(16, 32)
    scale = np.float32(8.0)
    codes = (x * scale).astype(ml_dtypes.float8_e4m3fn)
    amax = np.abs(x).max()
    assert qassay.assert_cast(codes, x, scale=scale, amax=amax).verdict == "pass"
    assert qassay.assert_cast(codes, x, scale_inv=1 / scale).verdict == "pass"
    assert qassay.assert_cast(codes, x, scale=scale, transpose=np.ascontiguousarray(codes.T)).verdict == "pass"
    q = qassay.quantize(x, "float8_rowwise")
    assert qassay.assert_cast(q.codes, x, scale_inv=q.scale_inv, recipe="float8_rowwise").verdict == "pass"
    assert qassay.assert_cast(q, x, recipe="float8_rowwise").verdict == "pass"
    wrong = np.asarray(q.codes).copy().view(np.uint8)
    wrong[2, 3] ^= 1
    with pytest.raises(qassay.KernelFailure, match="\\(2, 3\\)"):
        qassay.assert_cast(wrong.view(ml_dtypes.float8_e4m3fn), x, scale_inv=q.scale_inv, recipe="float8_rowwise")
    with pytest.raises(qassay.InputError, match="codes are \\[16, 31\\], expected \\[16, 32\\]|out is \\[16, 31\\]"):
        qassay.assert_cast(codes[:, :-1], x, scale=scale)


def test_grouped_products():
    a, b = (draw(n, 64) * (2.0 ** (np.arange(n)[:, None] % 5)).astype(np.float32) for n in (20, 3 * 8))
    offs = np.array([5, 5, 20])
    qa = qassay.quantize(a, "float8_rowwise")
    qb = qassay.quantize(b, "float8_rowwise")
    va, vb = qa._bundle.values("x"), qb._bundle.values("x").reshape(3, 8, 64)
    out, start = np.zeros((20, 8), np.float32), 0
    for e, end in enumerate(offs):
        out[start:end] = va[start:end] @ vb[e].T
        start = end
    b8, sb = np.asarray(qb.codes).reshape(3, 8, 64), np.asarray(qb.scale_inv).reshape(3, 8)
    assert qassay.assert_grouped_gemm(out, *qa, b8, sb, offs).verdict == "pass"
    assert qassay.assert_grouped_gemm(out, *qa, b8, sb[..., None], offs.astype(np.int32)).verdict == "pass"
    with pytest.raises(qassay.KernelFailure):
        qassay.assert_grouped_gemm(out, *qa, b8, sb, np.array([6, 6, 20]))
    with pytest.raises(qassay.InputError, match="b_scale_inv is \\[2, 8\\], expected a leading axis of 3 groups"):
        qassay.assert_grouped_gemm(out, *qa, b8, sb[:2], offs)


def test_dequantize_and_unknown_ops():
    q = qassay.quantize(draw(8, 64), "mx_floor:e4m3")
    out = q.dequantize()
    assert qassay.assay("dequantize", {"a.codes": q.codes, "a.scale_inv": q.scale_inv, "out": out}).verdict == "pass"
    with pytest.raises(qassay.InputError, match="gemm"):
        qassay.assay("matmul", {"a": out, "out": out})
    with pytest.raises(qassay.InputError, match="no tensor `gamma`"):
        qassay.assay("rmsnorm", {"a": out, "out": out})
    with pytest.raises(qassay.InputError, match="tensor `gama`"):
        qassay.assay("rmsnorm", {"a": out, "out": out, "gamma": out[0], "gama": out[0]})
