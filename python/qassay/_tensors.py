"""What frameworks hand over, as the tensors and metadata of a bundle.

A scale tells its granularity by its shape where only one is possible; what is ambiguous is an error that lists what it could mean.
"""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from . import _bundle, _cuda
from ._errors import HIDE, InputError

Stored = tuple  # (bytes-like, safetensors dtype, shape)


class Tagged(np.ndarray):
    """An array that knows what its dtype and shape do not say (`tags`: format, packing, granularity, scale_format). A view, slice or
    result of it is a plain array's: it knows nothing."""

    tags: dict[str, str] = {}

    @classmethod
    def of(cls, x: np.ndarray, **tags: str | None) -> "Tagged":
        tagged = x.view(cls)
        tagged.tags = {k: v for k, v in tags.items() if v is not None}
        return tagged

    def __array_wrap__(self, x, context=None, return_scalar=False):
        x = np.asarray(x)
        return x[()] if return_scalar else x

OPERAND = ("format", "granularity", "scale_format", "packing", "zero", "global_granularity")
META = ("recipe", "device_model", "promote_every", "kernel", "note", "device", "fn", "alpha", "limit", "eps", "zero_centered_gamma")
# What lies beside scales: of an operand, or of a Quantized.
BESIDE = ("zero_point", "global_scale_inv", "global_zero_point")
EXTRA = tuple(f"{x}_{part}" for x in "ab" for part in ("values", *BESIDE, "scale_history")) + (
    "out_scale", "out_scale_inv", "out_amax",
)
RUN = ("sample", "diagnose", "timeout", "power", "suspect")
KNOWN = (*(f"{x}_{k}" for x in ("a", "b", "out") for k in OPERAND), *META, *EXTRA, *RUN)
# What may be large, and is read by nobody before it is sent.
LARGE = ("a", "b", "a.codes", "b.codes", "out", "out.codes")
# dtypes of one element: what a code's format follows from.
CODES = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8"}


def refuse_unknown(where: str, how: dict[str, Any]) -> None:
    """A misspelled keyword is an error, with the nearest known one."""
    __tracebackhide__ = HIDE
    for name in how:
        if name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, 1)
            raise TypeError(f"{where}: unknown keyword {name}; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(KNOWN)}"))


def device_of(*tensors: Any) -> str | None:
    """The name of the GPU that the first CUDA tensor is on."""
    for x in tensors:
        if getattr(x, "is_cuda", False):
            import sys

            return sys.modules["torch"].cuda.get_device_name(x.device)
    return None


def stored(name: str, x: Any, shared: bool = False) -> tuple[Stored, dict[str, str]]:
    """A tensor as it lies in a file, and the metadata that only its dtype knows (`format`, `packing`). `shared`: a large one may stay on its
    GPU."""
    __tracebackhide__ = HIDE
    if isinstance(x, _bundle.Raw):
        return (x.bytes, x.dtype, x.shape), {}
    if isinstance(x, (bool, int, float)):
        as_f32 = np.float32(x)
        if float(as_f32) != float(x) and x == x:
            raise TypeError(f"{name}: found {x!r}, which is no float32, expected what the kernel read: np.float32({x!r})")
        x = as_f32.reshape(1)
    there = _cuda.share(x) if shared else None
    data, dtype, shape = there or _bundle.array(x, name)
    implied = dict(getattr(x, "tags", {})) if isinstance(x, Tagged) else {}
    if dtype in _bundle.NARROW:
        form, packing = _bundle.NARROW[dtype]
        implied["format"] = form
        if packing:
            implied["packing"] = packing
    return (data, _bundle.kept_as(dtype, name), shape), implied


def integral(name: str, part: Stored) -> Stored:
    """Zero points as I32 where they are integers in floats."""
    __tracebackhide__ = HIDE
    data, dtype, shape = part
    if dtype not in ("F32", "F16", "BF16"):
        return part
    values = _bundle.Raw(data, dtype, shape).numpy().astype(np.float64)
    if not (np.isfinite(values).all() and (values == np.rint(values)).all()):
        odd = values.ravel()[np.argmax(~(np.isfinite(values) & (values == np.rint(values))).ravel())]
        raise InputError(f"{name}: found {odd:g}, expected integers; additive zero points are {name.split('_')[0]}_zero=\"additive\"")
    return (values.astype("<i4"), "I32", shape)


def elements(shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


def granularity(where: str, shape, rows: int, cols: int, given: str | None, lead: int | None = None) -> tuple[str, list[int]]:
    """The granularity that a scale of `shape` has over `rows × cols`, and the shape a bundle stores it in. With `lead`, one set of scales
    for each of so many groups, under a leading axis. Errors: a shape that fits the given one not, or more than one."""
    __tracebackhide__ = HIDE
    x = where.split("_")[0]
    if rows * cols == 0:  # nothing is scaled
        return given or "tensor", list(shape)
    inner = list(shape)
    first = [] if lead is None else [lead]
    if lead is not None:
        if lead == 1 and (not inner or inner[0] != 1):
            inner = [1, *inner]
        if not inner or inner[0] != lead:
            raise InputError(f"{where} is {list(shape)}, expected a leading axis of {lead} groups")
        inner = inner[1:]
    count = elements(inner)
    grid = tiles(given, rows, cols) if given else None
    if given:
        if grid is None:
            raise InputError(f"{x}_granularity is {given!r}, expected tensor, row, group:G or block:RxC")
        if count != elements(grid) or (squeeze(inner) != squeeze(grid)):
            raise InputError(f"{where} is {list(shape)}, expected {[*first, *grid]}: granularity {given} over {rows}×{cols}")
        return given, [*first, *grid]
    if count == 1:
        return "tensor", [*first, 1]
    if squeeze(inner) == [rows] and (len(inner) == 1 or inner in ([rows, 1], [1, rows])):
        return "row", [*first, rows]
    possible = fitting(inner, rows, cols)
    if len(possible) == 1:
        return possible[0], [*first, *tiles(possible[0], rows, cols)]
    if possible:
        likely = [g for g in possible if all(n & (n - 1) == 0 for n in numbers(g))] or possible
        words = ", or ".join(f'{x}_granularity="{g}"' for g in likely[:4])
        raise InputError(f"{where} is {list(shape)} for {rows}×{cols} elements, which may mean several things; type {words}")
    raise InputError(
        f"{where} is {list(shape)}, expected one value, [{rows}] (one a row), [{rows}, K/G] (groups along K) or [{rows}/R, {cols}/C] (blocks)"
    )


def squeeze(shape) -> list[int]:
    return [n for n in shape if n != 1]


def numbers(given: str) -> list[int]:
    return [int(n) for n in given.partition(":")[2].split("x") if n]


def tiles(given: str, rows: int, cols: int) -> list[int] | None:
    """The shape of the scales of a granularity; None for what is none."""
    kind, _, size = given.partition(":")
    try:
        if kind in ("tensor", "row") and not size:
            return [1] if kind == "tensor" else [rows]
        r, c = (1, int(size)) if kind == "group" else map(int, size.split("x"))
    except ValueError:
        return None
    if kind not in ("group", "block") or r < 1 or c < 1:
        return None
    return [-(-rows // r), -(-cols // c)]


def fitting(shape, rows: int, cols: int) -> list[str]:
    """Every granularity whose scales have this shape (two axes)."""
    if len(shape) != 2 or shape[0] > rows or shape[1] > cols:
        return []
    of = lambda n, size: [g for g in range(1, size + 1) if -(-size // g) == n] if n > 1 else [size]
    r, c = of(shape[0], rows), of(shape[1], cols)
    if shape[0] == rows:
        return [f"group:{g}" for g in c]
    return [f"block:{i}x{j}" for i in r for j in c][:4096]


class Held:
    """The tensors and metadata of one bundle, being put together."""

    def __init__(self, op: str, how: dict[str, Any], shared: bool = False) -> None:
        self.op, self.how, self.shared = op, how, shared
        self.tensors: dict[str, Stored] = {}
        self.meta: dict[str, str] = {"qassay.bundle": "1", "op": op}
        for key in META:
            if how.get(key) is not None and key != "device":
                self.meta[key] = _bundle._word(how[key])

    def key(self, x: str, key: str) -> str | None:
        return self.how.get(f"{x}_{key}") or self.meta.get(f"{x}.{key}")

    def put(self, name: str, x: Any, label: str | None = None) -> Stored:
        __tracebackhide__ = HIDE
        part, implied = stored(label or name, x, self.shared and name in LARGE)
        self.tensors[name] = part
        for key, value in implied.items():
            self.meta[f"{name.split('.')[0]}.{key}"] = value
        return part

    def fetch(self) -> None:
        """Everything here, in the memory of this process."""
        self.tensors = {name: (_cuda.here(data), dtype, shape) for name, (data, dtype, shape) in self.tensors.items()}

    def vector(self, name: str, x: Any) -> None:
        """bias, gamma, beta: [N] or [1, N]."""
        __tracebackhide__ = HIDE
        data, dtype, shape = self.put(name, x)
        self.tensors[name] = (data, dtype, [elements(shape)] if len(squeeze(shape)) <= 1 else shape)

    def scalar(self, name: str, x: Any, label: str) -> None:
        __tracebackhide__ = HIDE
        data, dtype, shape = self.put(name, x, label)
        if elements(shape) != 1:
            raise InputError(f"{label} is {list(shape)}, expected one value")
        self.tensors[name] = (data, dtype, [1])

    def operand(self, x: str, values: Any, scale_inv: Any, lead: int | None = None, groups: int | None = None) -> tuple[int, ...]:
        """Operand `x`: codes with their scale, or unquantized values with none. Its shape in elements. `lead`: a leading axis of experts,
        of the codes too; `groups`: of the scales only."""
        __tracebackhide__ = HIDE
        how = self.how
        if hasattr(values, "scale_inv") and hasattr(values, "codes"):  # Quantized
            q = values
            if scale_inv is None:
                values, scale_inv = q.codes, q.scale_inv
                for key in OPERAND:
                    if getattr(q, key, None) is not None and how.get(f"{x}_{key}") is None:
                        self.meta[f"{x}.{key}"] = getattr(q, key)
                for part in BESIDE:
                    if getattr(q, part, None) is not None and how.get(f"{x}_{part}") is None:
                        how = {**how, f"{x}_{part}": getattr(q, part)}
        coded = scale_inv is not None
        data, dtype, shape = self.put(f"{x}.codes" if coded else x, values, x)
        for key in OPERAND:
            if how.get(f"{x}_{key}") is not None:
                self.meta[f"{x}.{key}"] = _bundle._word(how[f"{x}_{key}"])
        axes = 2 if lead is None else 3
        if len(shape) != axes:
            want = "[rows, K]" if lead is None else "[E, N, K]"
            raise InputError(f"{x} is {list(shape)}, expected {want}")
        if not coded:
            if dtype in CODES and dtype != "U8":
                raise InputError(f"{x} has dtype {dtype} without {x}_scale_inv: codes; give their scale")
            return tuple(shape)
        if dtype in ("F32", "F16", "BF16"):
            raise InputError(f"{x} has dtype {dtype} with {x}_scale_inv, expected codes; for unquantized values {x}_scale_inv is None")
        if dtype == "U8" and self.key(x, "format") is None:
            raise InputError(f'{x} has dtype uint8, which may be any code; type {x}_format="e4m3" (or e5m2, e2m1, int4, uint4, …)')
        packed = self.key(x, "packing") not in (None, "none")
        shape = [*shape[:-1], shape[-1] * (2 if packed else 1)]
        rows, cols = shape[-2], shape[-1]
        part = self.put(f"{x}.scale_inv", scale_inv, f"{x}_scale_inv")
        if how.get(f"{x}_scale_format") is not None:
            self.meta[f"{x}.scale_format"] = how[f"{x}_scale_format"]
        kind, wanted = granularity(f"{x}_scale_inv", part[2], rows, cols, self.key(x, "granularity"), groups or lead)
        self.tensors[f"{x}.scale_inv"] = (part[0], part[1], wanted)
        if kind != "tensor" or self.key(x, "granularity"):
            self.meta[f"{x}.granularity"] = kind
        zero = how.get(f"{x}_zero_point")
        if zero is not None:
            z = self.put(f"{x}.zero_point", zero, f"{x}_zero_point")
            if self.key(x, "zero") in (None, "integer"):
                z = integral(f"{x}_zero_point", z)
                self.meta[f"{x}.zero"] = "integer"
            if squeeze(z[2]) != squeeze(wanted):
                raise InputError(f"{x}_zero_point is {list(z[2])}, expected {wanted} as {x}_scale_inv")
            self.tensors[f"{x}.zero_point"] = (z[0], z[1], wanted)
        for part in ("global_scale_inv", "global_zero_point"):
            if how.get(f"{x}_{part}") is not None:
                one = self.key(x, "global_granularity") in (None, "tensor")
                (self.scalar if one else self.put)(f"{x}.{part}", how[f"{x}_{part}"], f"{x}_{part}")
        if how.get(f"{x}_values") is not None:
            self.put(x, how[f"{x}_values"], f"{x}_values")
        history = how.get(f"{x}_scale_history")
        if history is not None:
            part = self.put(f"{x}.scale_history", history, f"{x}_scale_history")
            self.tensors[f"{x}.scale_history"] = (part[0], part[1], [elements(part[2])])
        return tuple(shape)

    def result(self, x: Any, shape) -> None:
        """What the kernel wrote: values, or float8 codes with `out_scale` or `out_scale_inv`."""
        __tracebackhide__ = HIDE
        for key in OPERAND:
            if self.how.get(f"out_{key}") is not None:
                self.meta[f"out.{key}"] = _bundle._word(self.how[f"out_{key}"])
        part = self.put("out", x, "out")
        if part[1] in CODES:
            del self.tensors["out"]
            self.tensors["out.codes"] = part
            if self.how.get("out_scale") is None and self.how.get("out_scale_inv") is None:
                raise InputError(f"out has dtype {part[1]}, codes; give out_scale_inv= (what they are multiplied by) or out_scale=")
        packed = self.key("out", "packing") not in (None, "none")
        found = [*part[2][:-1], part[2][-1] * (2 if packed else 1)] if part[2] else []
        if found != list(shape):
            remedy = "; give out.T" if found == list(shape)[::-1] else ""
            raise InputError(f"out is {found}, expected {list(shape)}{remedy}")
        for name in ("scale", "scale_inv", "amax"):
            value = self.how.get(f"out_{name}")
            if value is not None:
                self.scalar(f"out.{name}", value, f"out_{name}")
