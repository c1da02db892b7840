"""The checks people call."""

from __future__ import annotations

import difflib
import os
from numbers import Real
from typing import Any

import numpy as np

from . import _bundle, _cuda, _sample
from ._errors import HIDE, CheckerTimeout, InputError
from ._process import ask
from ._result import Result
from ._tensors import Held, Tagged, device_of, elements, refuse_unknown

PRODUCTS = ("gemm", "grouped_gemm", "grouped_gemm_wgrad")
#: Values of fn that act on the first half of a row and multiply it by the second.
GATED = ("geglu", "swiglu", "reglu", "qgeglu", "sreglu", "geglu_erf", "swiglu_oai", "swiglu_limit")
OPS = (*PRODUCTS, "cast", "dequantize", "activation", "layernorm", "rmsnorm")
#: Called with each Result; the pytest plugin collects them.
LISTENERS: list = []


def _shape(x: Any) -> list[int] | None:
    if hasattr(x, "codes") and hasattr(x, "scale_inv"):
        x = x.codes
    shape = getattr(x, "shape", None)
    return None if shape is None else [int(n) for n in shape]


def _agree_on_k(op: str, t: dict[str, Any], how: dict[str, Any]) -> None:
    """K of b as in a, before scales are looked at: a transposed b has scales that fit nothing either."""
    __tracebackhide__ = HIDE
    a, b = (_shape(t.get(f"{x}.codes", t.get(x))) for x in "ab")
    if not a or not b or how.get("a_packing") != how.get("b_packing") or op not in PRODUCTS:
        return
    narrow = [str(getattr(t.get(f"{x}.codes", t.get(x)), "dtype", "")).endswith("_x2") for x in "ab"]
    if narrow[0] == narrow[1] and a[-1] != b[-1]:
        remedy = "; give b.T" if len(b) == 2 and b[0] == a[-1] else ""
        raise InputError(f"b is {b}, expected K = {a[-1]} as in a{remedy}")


def build(op: str, tensors: dict[str, Any], how: dict[str, Any], shared: bool = False) -> tuple[Held, tuple[int, ...]]:
    """The bundle of these tensors (names of the contract), and M, N, K of a gemm. `shared`: large ones may stay on their GPU."""
    __tracebackhide__ = HIDE
    if op not in OPS:
        near = difflib.get_close_matches(str(op), OPS, 1)
        meant = f'did you mean "{near[0]}"? ' if near else ""
        raise InputError(f'unknown op "{op}"; {meant}known: {", ".join(OPS)}')
    t = {name: x for name, x in tensors.items() if x is not None}
    how = dict(how)
    for x in "ab":
        for key in ("zero_point", "global_scale_inv", "global_zero_point", "scale_history"):
            if f"{x}.{key}" in t:
                how[f"{x}_{key}"] = t.pop(f"{x}.{key}")
        if f"{x}.codes" in t and x in t:
            how[f"{x}_values"] = t.pop(x)
    for key in ("scale", "scale_inv", "amax"):
        if f"out.{key}" in t and op != "cast":
            how[f"out_{key}"] = t.pop(f"out.{key}")
    held = Held(op, how, shared)
    device = how.get("device", "auto")
    if device == "auto":
        device = device_of(*t.values())
    if device:
        held.meta["device"] = str(device)
    _agree_on_k(op, t, how)
    groups = None
    if "offs" in t:
        data, dtype, shape = held.put("offs", t.pop("offs"))
        if dtype not in ("I32", "I64"):
            raise InputError(f"offs has dtype {dtype}, expected int32: the cumulative end row of each group")
        ends = _bundle.Raw(data, dtype, [elements(shape)]).numpy()
        groups = len(ends)
        held.tensors["offs"] = (ends.astype("<i4"), "I32", [groups])
    shapes = {}
    for x in "ab":
        codes, values = t.pop(f"{x}.codes", None), t.pop(x, None)
        scale = t.pop(f"{x}.scale_inv", None)
        if codes is None and values is None:
            continue
        quantized = hasattr(values, "scale_inv") and hasattr(values, "codes")
        if codes is not None and scale is None and not (hasattr(codes, "scale_inv") and hasattr(codes, "codes")):
            raise InputError(f"no {x}_scale_inv: what the codes of {x} are multiplied by")
        operand = codes if codes is not None else values
        lead = groups if op == "grouped_gemm" and x == "b" else None
        inner = groups if op == "grouped_gemm_wgrad" else None
        shapes[x] = held.operand(x, operand, scale if codes is not None or quantized else None, lead, inner)
    for name in ("bias", "gamma", "beta"):
        if name in t:
            held.vector(name, t.pop(name))
    if op in PRODUCTS and len(shapes) == 2:
        m, n, k = shapes["a"][0], shapes["b"][-2], shapes["a"][1]
        if shapes["b"][-1] != k:
            raise InputError(f"b is {list(shapes['b'])}, expected K = {k} as in a")
        want = [groups, m, n] if op == "grouped_gemm_wgrad" else [m, n]
    else:
        m, n, k = 0, 0, 0
        want = None
    out = t.pop("out", t.pop("out.codes", None))
    if out is None:
        raise InputError("no out: what the kernel wrote")
    if want is not None:
        held.result(out, want)
    else:
        _result(held, op, out, t, how)
    for name, x in t.items():
        held.put(name, x)
    return held, (m, n, k)


def _result(held: Held, op: str, out: Any, t: dict[str, Any], how: dict[str, Any]) -> None:
    """The result of an op of one matrix."""
    __tracebackhide__ = HIDE
    rows, cols = held.tensors["a.codes" if "a.codes" in held.tensors else "a"][2]
    if op == "activation" and held.meta.get("fn", "") in GATED:
        cols //= 2
    if op != "cast":
        if op == "dequantize" and held.key("a", "packing") not in (None, "none"):
            cols *= 2
        return held.result(out, [rows, cols])
    scale_inv = t.pop("out.scale_inv", how.pop("out_scale_inv", None))
    zero, glob = t.pop("out.zero_point", None), t.pop("out.global_scale_inv", None)
    inner = {f"out_{k}": v for k, v in (("zero_point", zero), ("global_scale_inv", glob)) if v is not None}
    if scale_inv is not None or hasattr(out, "scale_inv"):
        sub = Held(op, {**how, **inner})
        shape = sub.operand("out", out, scale_inv)
        held.tensors |= sub.tensors
        held.meta |= {k: v for k, v in sub.meta.items() if k.startswith("out.")}
    else:
        held.how = {**how, "out_scale": t.get("out.scale", how.get("out_scale"))}
        held.result(out, [rows, cols])
        shape = (rows, cols)
    if list(shape) != [rows, cols]:
        raise InputError(f"codes are {list(shape)}, expected {[rows, cols]} as x")
    for key in ("scale", "amax"):
        value = t.pop(f"out.{key}", how.get(f"out_{key}"))
        if value is not None:
            held.scalar(f"out.{key}", value, key)


def seconds_of(label: str, timeout: Any) -> float:
    """A time limit that can be met."""
    __tracebackhide__ = HIDE
    if isinstance(timeout, Real) and timeout > 0:
        return float(timeout)
    raise InputError(f"{label}: timeout is {timeout!r}, expected seconds, more than 0")


def run(label: str, op: str, tensors: dict[str, Any], how: dict[str, Any]) -> Result:
    """Judges; never raises for a verdict."""
    __tracebackhide__ = HIDE
    refuse_unknown(label, how)
    timeout = seconds_of(label, how.get("timeout", 60.0))
    gpu = any(getattr(x, "is_cuda", False) for x in tensors.values())
    fields = {"label": label, **({"gpu": True} if gpu else {})}
    sample = how.get("sample", "auto")
    try:
        held, shape = build(op, tensors, how, shared=gpu)
        sampled = op == "gemm" and _sample.wanted(shape, sample)
        whole = there(held, timeout, fields) if sampled and gpu and sample == "auto" else None
        if sampled and whole is None:
            held.fetch()
        note = _sample.gemm(held, shape, sample) if sampled and whole is None else None
    except InputError as e:
        raise InputError(f"{label}: {e}") from None
    except TypeError as e:
        raise TypeError(f"{label}: {e}") from None
    if whole is not None:
        return told(whole)
    seconds = min(20.0, timeout / 2) if how.get("diagnose", True) else 0.0
    parts = _bundle.blob(held.tensors, held.meta)
    try:
        head, _ = ask("assay", parts, timeout, seconds=seconds, **fields)
    except CheckerTimeout:
        if not seconds:
            raise
        # It is the search for a name that takes long: the verdict alone is worth more than none.
        head, _ = ask("assay", parts, timeout, seconds=0.0, **fields)
    return told(Result(head["answer"], label, [_cuda.here(p) for p in parts], note))


def there(held: Held, timeout: float, fields: dict[str, Any]) -> Result | None:
    """All of a large product judged by the GPU, where it has the bits of that GPU's arithmetic; None: it has not, or it cannot be told."""
    __tracebackhide__ = HIDE
    parts = _bundle.blob(held.tensors, held.meta)
    head, _ = ask("assay", parts, timeout, there=True, **fields)
    return Result(head["answer"], fields["label"], [_cuda.here(p) for p in parts]) if head["answer"] is not None else None


def told(result: Result) -> Result:
    for listener in LISTENERS:
        listener(result)
    return result


def assay(op: str, tensors: dict[str, Any], **how: Any) -> Result:
    """Judges one run of one kernel; `tensors` by the names of the bundle contract ("a.codes", "a.scale_inv", "b.codes", …, "out").

    Never raises for a verdict: `result.check()` does.
    """
    __tracebackhide__ = HIDE
    return run("assay", op, tensors, how)


def _assert(label: str, op: str, tensors: dict[str, Any], how: dict[str, Any]) -> Result:
    __tracebackhide__ = HIDE
    return run(label, op, tensors, how).check(how.get("power", "require"), how.get("suspect", "fail"))


def assert_gemm(actual: Any, a: Any, a_scale_inv: Any, b: Any, b_scale_inv: Any, *, bias: Any = None, **how: Any) -> Result:
    """Holds `actual` = A[M,K] · B[N,K]ᵀ (+ bias[N]) to what its arithmetic allows; no tolerance to choose.

    actual:      [M, N] float32, float16, bfloat16; or float8 codes with `out_scale` or `out_scale_inv`
    a, b:        codes [M, K] and [N, K] (float8, int8, packed 4-bit with `a_format`, `a_packing`), or `Quantized`;
                 unquantized values where the scale is None
    *_scale_inv: what the codes are multiplied by: one value, [M], [M, 1]; other shapes with `a_granularity="group:128"`, …
    how:         `a_zero_point`, `recipe`, `device`, `device_model`, `promote_every`, `sample`, `timeout`, `power="ignore"`, …

    Raises KernelFailure with the failure card, NoPower where the data could show nothing, InputError, CheckerError.

    >>> import numpy as np, qassay
    >>> a, b = (np.random.default_rng(i).standard_normal((n, 64)).astype(np.float32) for i, n in enumerate((4, 8)))
    >>> qa, qb = qassay.quantize(a, "te_current"), qassay.quantize(b, "te_current")
    >>> out = qa.dequantize() @ qb.dequantize().T
    >>> (a8, sa), (b8, sb) = qa, qb
    >>> qassay.assert_gemm(out, a8, sa, b8, sb).verdict
    'pass'
    """
    __tracebackhide__ = HIDE
    tensors = {"out": actual, "bias": bias, **_operand("a", a, a_scale_inv), **_operand("b", b, b_scale_inv)}
    return _assert("assert_gemm", "gemm", tensors, how)


def assert_grouped_gemm(
    actual: Any, a: Any, a_scale_inv: Any, b: Any, b_scale_inv: Any, offs: Any, *, kind: str = "forward", **how: Any
) -> Result:
    """Holds a grouped product to what its arithmetic allows. `offs` [E]: the cumulative end row of each group.

    forward: actual [M, N], a [M, K], b [E, N, K], scales of b with a leading axis E
    wgrad:   actual [E, M, N], a [M, tokens], b [N, tokens], scales of both with a leading axis E
    """
    __tracebackhide__ = HIDE
    ops = {"forward": "grouped_gemm", "wgrad": "grouped_gemm_wgrad"}
    if kind not in ops:
        raise TypeError(f'assert_grouped_gemm: kind is {kind!r}, expected "forward" or "wgrad"')
    tensors = {"out": actual, "offs": offs, **_operand("a", a, a_scale_inv), **_operand("b", b, b_scale_inv)}
    return _assert("assert_grouped_gemm", ops[kind], tensors, how)


def assert_cast(
    codes: Any, x: Any, *, scale_inv: Any = None, scale: Any = None, recipe: str | None = None, zero_point: Any = None,
    global_scale_inv: Any = None, amax: Any = None, transpose: Any = None, **how: Any,
) -> Result:
    """Holds the codes of `x` [M, K] to its recipe, or to its scale where no recipe is named.

    codes: [M, K]; scale_inv: what they are multiplied by, or scale: what x was multiplied by; transpose: codes [K, M] of the transpose
    """
    __tracebackhide__ = HIDE
    tensors = {
        "a": x, "out.codes": codes, "out.scale_inv": scale_inv, "out.scale": scale, "out.zero_point": zero_point,
        "out.global_scale_inv": global_scale_inv, "out.amax": amax, "out.transpose": transpose,
    }
    return _assert("assert_cast", "cast", tensors, {**how, **({"recipe": recipe} if recipe else {})})


def assert_norm(
    actual: Any, x: Any, gamma: Any, beta: Any = None, *, kind: str = "rmsnorm", eps: float = 1e-5, zero_centered_gamma: bool = False,
    **how: Any,
) -> Result:
    """Holds a norm of the rows of `x` [M, K] to what its arithmetic allows. kind: "rmsnorm" or "layernorm" (with beta)."""
    __tracebackhide__ = HIDE
    if kind not in ("rmsnorm", "layernorm"):
        raise TypeError(f'assert_norm: kind is {kind!r}, expected "rmsnorm" or "layernorm"')
    how |= {"eps": eps, "zero_centered_gamma": zero_centered_gamma}
    return _assert("assert_norm", kind, {"a": x, "gamma": gamma, "beta": beta, "out": actual}, how)


def assert_activation(actual: Any, x: Any, fn: str, **how: Any) -> Result:
    """Holds an activation of `x` [M, K] to what its arithmetic allows.

    fn: gelu (tanh), gelu_erf (exact), silu, relu, qgelu, srelu, or gated on halves of a row [x | gate]: geglu, geglu_erf, swiglu, reglu, qgeglu, sreglu,
    swiglu_oai (gpt-oss: alpha=1.702, limit=7), swiglu_limit (limit=…)
    """
    __tracebackhide__ = HIDE
    return _assert("assert_activation", "activation", {"a": x, "out": actual}, {**how, "fn": fn})


def _operand(x: str, values: Any, scale_inv: Any) -> dict[str, Any]:
    coded = scale_inv is not None or (hasattr(values, "codes") and hasattr(values, "scale_inv"))
    return {f"{x}.codes": values, f"{x}.scale_inv": scale_inv} if coded else {x: values}


class Quantized:
    """A tensor by a recipe; unpacks to codes and scale_inv.

    codes:            numpy; ml_dtypes' float8 where it is installed, else uint8. Both arrays still know format and granularity
    scale_inv:        what codes are multiplied by, in the shape a bundle has
    zero_point, global_scale_inv, global_zero_point: where the recipe has them, else None
    format, granularity, scale_format, packing, zero, global_granularity: as in the bundle contract
    """

    def __init__(self, bundle: _bundle.Bundle, recipe: str) -> None:
        self._bundle, self.recipe = bundle, recipe
        self.format, self.granularity = bundle.format("x"), bundle.granularity("x")
        self.packing = bundle.meta.get("x.packing", "none")
        self.zero = bundle.meta.get("x.zero", "none")
        self.scale_format = bundle.meta.get("x.scale_format")
        packing = None if self.packing == "none" else self.packing
        self.codes = Tagged.of(native(bundle.tensors["x.codes"]), format=self.format, packing=packing)
        scale_inv = native(bundle.tensors["x.scale_inv"])
        self.scale_inv = Tagged.of(scale_inv, granularity=self.granularity, scale_format=self.scale_format)
        self.zero_point = bundle.vector("x.zero_point")
        self.global_granularity = bundle.meta.get("x.global_granularity")
        self.global_scale_inv = bundle.vector("x.global_scale_inv")
        self.global_zero_point = bundle.vector("x.global_zero_point")

    def __iter__(self):
        return iter((self.codes, self.scale_inv))

    def __repr__(self) -> str:
        return f"<qassay.Quantized {self.recipe}: {list(self.codes.shape)} {self.format}, {self.granularity}>"

    def dequantize(self) -> np.ndarray:
        """The values that the codes stand for, float32 (each the exact value, rounded once)."""
        return self._bundle.values("x").astype(np.float32)

    def torch(self, device: str = "cpu") -> tuple[Any, Any]:
        """Codes and scale_inv as torch tensors in torch's own dtypes."""
        return self._bundle.torch("x.codes", device), self._bundle.torch("x.scale_inv", device)


def native(raw: _bundle.Raw) -> np.ndarray:
    """A stored tensor as numpy holds it; bf16 and float8 in ml_dtypes' dtypes where it is installed."""
    own, name = _bundle.DTYPES[raw.dtype]
    if name.startswith(("float8", "bfloat16")):
        try:
            import ml_dtypes
        except ImportError:
            pass
        else:
            return np.frombuffer(bytearray(raw.bytes), own).view(getattr(ml_dtypes, name)).reshape(raw.shape)
    return np.frombuffer(bytearray(raw.bytes), own).reshape(raw.shape)


def quantize(x: Any, recipe: str) -> Quantized:
    """Quantizes `x` [rows, K] (float32, float16, bfloat16) by a recipe of qassay, groups along K.

    recipe: "float8_rowwise", "te_current", "mx_floor:e2m1", …: `qassay list recipes`

    >>> import numpy as np, qassay
    >>> q = qassay.quantize(np.ones((2, 32), np.float32), "mx_floor:e4m3")
    >>> q.granularity, q.scale_inv.shape
    ('group:32', (2, 1))
    """
    __tracebackhide__ = HIDE
    try:
        data, dtype, shape = _bundle.raw(x, "x")
        if len(shape) != 2:
            raise InputError(f"x is {shape}, expected [rows, K]")
        if 0 in shape:
            # Format, granularity and dtypes are those of zeros.
            rows, cols = shape[0] or 1, shape[1] or 128
            data, dtype = bytes(4 * rows * cols), "F32"
        else:
            rows, cols = shape
        head, body = ask("quantize", _bundle.blob({"x": (data, dtype, [rows, cols])}, {}), recipe=recipe, label="quantize")
    except (InputError, TypeError) as e:
        text = str(e)
        raise type(e)(text if text.startswith("quantize: ") else f"quantize: {text}") from None
    held = Bundle.parse(body)
    if 0 in shape:
        _without_elements(held, shape)
    return Quantized(held, head["recipe"])


def _without_elements(bundle: _bundle.Bundle, shape: list[int]) -> None:
    """Cuts what zeros were quantized to down to the size of 0."""
    whole = bundle.granularity("x") == "tensor"
    for name, raw in bundle.tensors.items():
        if name == "x.codes" or not (whole or name.startswith("x.global")):
            cut = [n and had for had, n in zip(raw.shape, shape)]
            bundle.tensors[name] = _bundle.Raw(b"" if 0 in cut else raw.bytes, raw.dtype, cut)


class Bundle(_bundle.Bundle):
    """One run of one kernel, in memory or of a file.

    `Bundle.load(path)`, or `Bundle(op, tensors, **how)` with the tensors and keywords of `assay`.
    """

    def __init__(self, op: str, tensors: dict[str, Any] | None = None, **how: Any) -> None:
        __tracebackhide__ = HIDE
        if tensors is None:
            return super().__init__(op)
        refuse_unknown("Bundle", how)
        held, _ = build(op, tensors, how)
        self._parse(b"".join(bytes(memoryview(p)) for p in _bundle.blob(held.tensors, held.meta)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Bundle":
        """Reads a file."""
        with open(path, "rb") as f:
            return cls.parse(f.read())

    @classmethod
    def parse(cls, data: bytes) -> "Bundle":
        """Reads bytes."""
        bundle = cls.__new__(cls)
        bundle._parse(data)
        return bundle

    def _parts(self) -> list:
        tensors = {name: (raw.bytes, raw.dtype, raw.shape) for name, raw in self.tensors.items()}
        return _bundle.blob(tensors, self.meta)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that `qassay assay` judges."""
        with open(path, "wb") as f:
            f.writelines(self._parts())

    def assay(self, timeout: float = 60.0, diagnose: bool = True) -> Result:
        """Judges it; never raises for a verdict."""
        __tracebackhide__ = HIDE
        parts = self._parts()
        seconds = min(20.0, timeout / 2) if diagnose else 0.0
        head, _ = ask("assay", parts, timeout, label="bundle", seconds=seconds)
        result = Result(head["answer"], "bundle", parts)
        for listener in LISTENERS:
            listener(result)
        return result
