"""What frameworks hand over: the same bytes, whatever holds them."""

import sys
import types

import ml_dtypes
import numpy as np
import pytest

import qassay
from qassay import _bundle


class Dtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


class Tensor:
    """As much of torch as is asked of a tensor."""

    layout, device, is_cuda = "torch.strided", "cpu", False

    def __init__(self, x, name=None, layout=None, device=None):
        self.x, self.name = x, name or x.dtype.name
        self.layout, self.device = layout or self.layout, device or self.device

    shape = property(lambda self: self.x.shape)
    dtype = property(lambda self: Dtype(self.name))
    resolve_neg = resolve_conj = detach = cpu = lambda self: self
    contiguous = lambda self: Tensor(np.ascontiguousarray(self.x), self.name)

    def reshape(self, size):
        return Tensor(self.x.reshape(size), self.name)

    def view(self, dtype):
        assert dtype.name == "uint8" and self.x.ndim == 1
        return Tensor(self.x.view(np.uint8))

    def numpy(self):
        return self.x


@pytest.fixture
def torch(monkeypatch):
    module = types.ModuleType("torch")
    module.uint8 = Dtype("uint8")
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_tensors_of_torch(torch, product):
    out, (a8, sa), (b8, sb) = product()
    wrapped = lambda x, name=None: Tensor(np.asarray(x), name)
    args = wrapped(a8, "float8_e4m3fn"), wrapped(sa), wrapped(b8, "float8_e4m3fn"), wrapped(np.asarray(sb)[:, None])
    assert qassay.assert_gemm(wrapped(out.astype(ml_dtypes.bfloat16), "bfloat16"), *args).verdict == "pass"
    with pytest.raises(TypeError, match="assert_gemm: out: found layout torch.sparse_coo, expected a dense tensor"):
        qassay.assert_gemm(Tensor(out, layout="torch.sparse_coo"), *args)
    with pytest.raises(TypeError, match="without data"):
        qassay.assert_gemm(Tensor(out, device="meta"), *args)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8", "uint8"])
def test_bytes_are_the_arrays_own(name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    x = np.arange(24, dtype=np.uint8).reshape(2, 12).view(dtype)
    for array in (x, x.T, x[:, ::2], x[:0], x.ravel()[0]):
        data, stored, shape = _bundle.raw(array)
        assert bytes(memoryview(data)) == array.tobytes() and shape == list(array.shape)
        assert _bundle.DTYPES[stored][1] == name


def test_big_endian_arrays_are_turned():
    x = np.array([1.5, -2.0], np.float32)
    assert bytes(_bundle.raw(x.astype(">f4"))[0]) == x.tobytes()


def test_dlpack_of_strangers():
    class Stranger:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **how):
            return self.x.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    data, stored, shape = _bundle.raw(Stranger(x))
    assert (bytes(data), stored, shape) == (x.tobytes(), "F32", [2, 3])


def test_narrow_formats_of_ml_dtypes():
    q = qassay.quantize(np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32), "mx_floor:e2m1")
    narrow = np.asarray(q.codes).view(ml_dtypes.float4_e2m1fn)
    assert np.array_equal(narrow.astype(np.float64), _bundle.decode(np.asarray(q.codes), "e2m1"))
    held = qassay.Bundle("gemm", {"a.codes": narrow, "a.scale_inv": q.scale_inv, "b.codes": narrow, "b.scale_inv": q.scale_inv,
                                  "out": np.zeros((4, 4), np.float32)}, a_granularity="group:32", b_granularity="group:32")
    assert held.meta["a.format"] == "e2m1" and held.format("a") == "e2m1"


def test_decoding_agrees_with_ml_dtypes():
    for name, dtype in (("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2"), ("e4m3fnuz", "float8_e4m3fnuz"), ("e5m2fnuz", "float8_e5m2fnuz"),
                        ("e2m1", "float4_e2m1fn"), ("e2m3", "float6_e2m3fn"), ("e3m2", "float6_e3m2fn")):
        codes = np.arange(1 << _bundle.FLOATS[name][3], dtype=np.uint8)
        assert np.array_equal(_bundle.decode(codes, name), codes.view(getattr(ml_dtypes, dtype)).astype(np.float64), equal_nan=True), name


def test_a_view_of_a_tagged_array_knows_nothing():
    a8, sa = qassay.quantize(np.ones((2, 64), np.float32), "mx_floor:e4m3")
    assert sa.tags["granularity"] == "group:32" and not sa[:1].tags and not np.asarray(a8).__class__.__name__ == "Tagged"


def test_bundles_go_through_files(product, tmp_path):
    out, (a8, sa), (b8, sb) = product()
    bundle = qassay.Bundle("gemm", {"a.codes": a8, "a.scale_inv": sa, "b.codes": b8, "b.scale_inv": sb, "out": out}, kernel="mine")
    bundle.save(tmp_path / "x.safetensors")
    again = qassay.Bundle.load(tmp_path / "x.safetensors")
    assert again.meta == bundle.meta and again.meta["kernel"] == "mine"
    assert {n: r.bytes for n, r in again.tensors.items()} == {n: r.bytes for n, r in bundle.tensors.items()}
    assert again.assay().verdict == "pass"
    # The one-file helper writes the same contract.
    _bundle.save(tmp_path / "y.safetensors", "gemm", {"a.codes": np.asarray(a8), "a.scale_inv": np.asarray(sa), "b.codes": np.asarray(b8),
                                                      "b.scale_inv": np.asarray(sb), "out": out}, a_granularity="row", b_granularity="row")
    assert qassay.Bundle.load(tmp_path / "y.safetensors").assay().verdict == "pass"


def test_quantized(product):
    _, q, _ = product("mx_floor:e4m3")
    values = np.asarray(q.codes).astype(np.float64) * np.repeat(2.0 ** (np.asarray(q.scale_inv).view(np.uint8).astype(float) - 127), 32, 1)
    assert np.array_equal(q.dequantize(), values.astype(np.float32))
    for bad, text in [("te_delay", "quantize: unknown recipe `te_delay`; did you mean `te_delayed`"), ("mx_floor:g7", "quantize: .*group size is fixed")]:
        with pytest.raises(qassay.InputError, match=text):
            qassay.quantize(np.ones((2, 2), np.float32), bad)
    with pytest.raises(TypeError, match="quantize: x: found dtype float64"):
        qassay.quantize(np.ones((2, 2)), "te_current")
    with pytest.raises(qassay.InputError, match="quantize: x is \\[4\\], expected \\[rows, K\\]"):
        qassay.quantize(np.ones(4, np.float32), "te_current")
