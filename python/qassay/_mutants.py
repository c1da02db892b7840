"""Wrong results: what an output looks like when the kernel that made it is wrong. Copies only; no global random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: Gains are looked for up to this and down to its reciprocal.
FAR = 2.0**20
STEPS = 11


class Actual:
    """An array or tensor of floats: `values` as numpy (float64 or complex128), and `like`, which makes one of its own kind."""

    def __init__(self, x: Any) -> None:
        self.torch = hasattr(x, "detach")
        if self.torch:
            self.own = x.detach()
            wide = self.own.cpu()
            self.complex = wide.is_complex()
            wide = wide.to(_torch().complex128 if self.complex else _torch().float64)
            self.values = wide.numpy()
        else:
            self.own = np.asarray(x)
            self.complex = self.own.dtype.kind == "c"
            self.values = self.own.astype(np.complex128 if self.complex else np.float64)

    def like(self, values: np.ndarray) -> Any:
        if self.torch:
            return _torch().from_numpy(np.ascontiguousarray(values)).to(dtype=self.own.dtype, device=self.own.device)
        return values.astype(self.own.dtype)

    def seen(self, values: np.ndarray) -> np.ndarray:
        """`values` after rounding to the dtype."""
        return Actual(self.like(values)).values


def _torch() -> Any:
    import sys

    return sys.modules["torch"]


def is_float(x: Any) -> bool:
    """An array of at least two floats that can be changed."""
    if hasattr(x, "detach") and hasattr(x, "is_floating_point"):
        usual = str(getattr(x, "layout", "")) == "torch.strided" and str(x.device) != "meta"
        return usual and (x.is_floating_point() or x.is_complex()) and x.numel() >= 2
    if isinstance(x, (list, tuple)):
        try:
            x = np.asarray(x)
        except (ValueError, TypeError):
            return False
    if not isinstance(x, np.ndarray) or x.size < 2 or type(x).__module__.startswith("numpy.ma"):
        return False
    return x.dtype.kind in "fc" or x.dtype.name.startswith(("bfloat16", "float8"))


def mutants(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(name, changed copy) of every output-level fault but the gains."""
    yield "zeros", np.zeros_like(x)
    yield "sign", -x
    flat = x.reshape(-1, x.shape[-1]) if x.ndim >= 2 else x.reshape(1, -1)
    size = np.abs(np.where(np.isfinite(flat), flat, 0.0))
    rows, cols = flat.shape

    def changed(f: Callable[[np.ndarray], None]) -> np.ndarray:
        copy = flat.copy()
        f(copy)
        return copy.reshape(x.shape)

    # A typical row and column, not the weakest.
    middle = lambda energy: int(np.argsort(energy, kind="stable")[len(energy) // 2])
    i, j = middle((size**2).sum(1)), middle((size**2).sum(0))
    if rows > 1:
        other = (i + 1) % rows

        def repeated(c):
            c[i] = flat[other]

        def swapped(c):
            c[[i, other]] = flat[[other, i]]

        yield "a row of zeros", changed(lambda c: c.__setitem__(i, 0.0))
        yield "a row twice", changed(repeated)
        yield "two rows swapped", changed(swapped)
        yield "a row ×2", changed(lambda c: c.__setitem__(i, 2.0 * flat[i]))
    if cols > 1:
        near = (j + 1) % cols

        def columns(c):
            c[:, [j, near]] = flat[:, [near, j]]

        if rows > 1:
            yield "a column of zeros", changed(lambda c: c.__setitem__((slice(None), j), 0.0))
            yield "two columns swapped", changed(columns)
            yield "a column ×2", changed(lambda c: c.__setitem__((slice(None), j), 2.0 * flat[:, j]))
    if rows >= 4 and cols >= 4:
        tile = (slice(rows // 2, rows // 2 + max(1, min(16, rows // 4))), slice(cols // 2, cols // 2 + max(1, min(16, cols // 4))))
        yield "a tile of zeros", changed(lambda c: c.__setitem__(tile, 0.0))
    elif rows == 1 and cols >= 8:
        yield "an eighth of zeros", changed(lambda c: c.__setitem__((0, slice(0, cols // 8)), 0.0))
    largest = size.max(initial=0.0)
    rms = float(np.sqrt((size**2).mean())) if size.size else 0.0
    if not np.iscomplexobj(x):
        bits = np.ascontiguousarray(flat, np.float32).view(np.uint32)
        yield "bits cut to bf16", changed(lambda c: c.__setitem__(..., (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)))
        up = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        yield "rounded to bf16", changed(lambda c: c.__setitem__(..., up.astype(np.uint32).view(np.float32)))
        yield "saturated at half", changed(lambda c: c.__setitem__(..., np.clip(flat, -largest / 2, largest / 2)))
    yield "small ones flushed", changed(lambda c: c.__setitem__(size < rms / 16, 0.0))
    if np.isnan(flat).any():
        yield "NaN to 0", changed(lambda c: c.__setitem__(np.isnan(flat), 0.0))

    def one_nan(c):
        c[i, j] = np.nan

    yield "one NaN", changed(one_nan)


def share(x: np.ndarray, y: np.ndarray) -> float:
    """Energy of the change over the value's: 1 for zeros, 4 for the sign."""
    fine = np.isfinite(x) & np.isfinite(y)
    whole = float((np.abs(x[fine]) ** 2).sum())
    return float((np.abs(y[fine] - x[fine]) ** 2).sum()) / whole if whole > 0 else 0.0


def largest_gain(passes: Callable[[float], bool | None]) -> float:
    """The largest gain that passes, by doubling and bisection; inf where none is caught. `passes` returns None when the time is up."""
    good, bad = 1.0, 2.0
    while bad <= FAR and passes(bad):
        good, bad = bad, bad * 2.0
    if bad > FAR:
        return float("inf")
    for _ in range(STEPS):
        middle = (good * bad) ** 0.5
        verdict = passes(middle)
        if verdict is None:
            break
        good, bad = (middle, bad) if verdict else (good, middle)
    return good


def smallest_gain(passes: Callable[[float], bool | None]) -> float:
    """The smallest gain that passes; 0 where none is caught."""
    inverse = largest_gain(lambda g: passes(1.0 / g))
    return 1.0 / inverse if inverse != float("inf") else 0.0
