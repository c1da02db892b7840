"""Which rows and columns of a large product look wrong: checksums of all of it, for a sample that is judged whole.

With signs r and c drawn at random, D = A·Bᵀ has column sums rᵀD = (rᵀA)·Bᵀ and row sums D·c = A·(Bᵀc): K(M + N) + MN work instead of MNK.
What a line's sum differs by, over the length of that line, is about a rounding of the result in a right line, and as much as the error in a
wrong one. Nothing is judged here: the lines with the largest differences are only looked at first.
"""

from __future__ import annotations

import numpy as np

from . import _bundle
from ._bundle import Bundle

#: Elements of an operand that are decoded at once.
AT_ONCE = 1 << 22


class _Part:
    """Rows of a stored tensor, as `_bundle.Raw`, without a copy."""

    def __init__(self, part, rows: slice) -> None:
        data, self.dtype, shape = part
        flat = np.frombuffer(memoryview(data), _bundle.DTYPES[self.dtype][0]).reshape(shape)
        self.cut = flat[rows]

    def numpy(self) -> np.ndarray:
        x = self.cut
        return (x.astype(np.uint32) << 16).view(np.float32) if self.dtype == "BF16" else x


def _values(held, x: str, rows: slice, block: int) -> np.ndarray:
    """Rows of operand x as float32."""
    bundle = Bundle.__new__(Bundle)
    bundle.meta, bundle.op = held.meta, "gemm"
    tiles = slice(rows.start // block, -(-rows.stop // block))
    bundle.tensors = {}
    for name, part in held.tensors.items():
        if name in (x, f"{x}.codes"):
            bundle.tensors[name] = _Part(part, rows)
        elif name.startswith(f"{x}.") and name.split(".")[1] in ("scale_inv", "zero_point"):
            whole = held.meta.get(f"{x}.granularity", "tensor") == "tensor"
            bundle.tensors[name] = _Part(part, slice(None) if whole else tiles)
        elif name.startswith(f"{x}.global"):
            whole = held.meta.get(f"{x}.global_granularity", "tensor") == "tensor"
            bundle.tensors[name] = _Part(part, slice(None) if whole else tiles)
    return bundle.values(x).astype(np.float32)


def _result(held, rows: slice) -> np.ndarray:
    if "out" in held.tensors:
        return _Part(held.tensors["out"], rows).numpy().astype(np.float32)
    part = held.tensors["out.codes"]
    bundle = Bundle.__new__(Bundle)
    bundle.meta, bundle.op, bundle.tensors = held.meta, "gemm", {"out.codes": _Part(part, rows)}
    values = _bundle.decode(bundle.codes("out"), bundle.format("out")).astype(np.float32)
    scale = held.tensors.get("out.scale_inv")
    if scale is not None:
        return values * np.frombuffer(memoryview(scale[0]), np.float32)[0]
    return values / np.frombuffer(memoryview(held.tensors["out.scale"][0]), np.float32)[0]


def lines(held, shape: tuple[int, int, int], blocks: tuple[int, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """How far the checksum of each row, and of each column, of the result is from that of the operands; None where they are not followed
    (blocks of scales with a second level, over rows of them)."""
    m, n, k = shape
    if any(held.meta.get(f"{x}.global_granularity", "tensor").startswith("block") for x in "ab"):
        return None
    rng = np.random.Generator(np.random.PCG64(1))
    r, c = (rng.choice(np.float32([-1, 1]), count) for count in (m, n))

    def parts(count: int, width: int, block: int):
        step = max(block, AT_ONCE // max(width, 1) // block * block)
        return (slice(i, min(i + step, count)) for i in range(0, count, step))

    with np.errstate(all="ignore"):
        a = np.empty((m, k), np.float32)
        for rows in parts(m, k, blocks[0]):
            a[rows] = _values(held, "a", rows, blocks[0])
        of_a, of_b = r @ a, np.zeros(k, np.float32)
        columns, across = np.empty(n, np.float32), np.zeros(n, np.float32)
        for rows in parts(n, k, blocks[1]):
            b = _values(held, "b", rows, blocks[1])
            columns[rows], of_b = b @ of_a, of_b + c[rows] @ b
        down, squares_down = a @ of_b, np.empty(m, np.float32)
        squares_across, found = np.zeros(n, np.float32), np.empty(m, np.float32)
        bias = held.tensors.get("bias")
        bias = 0.0 if bias is None else _Part(bias, slice(None)).numpy().astype(np.float32).reshape(1, -1)
        for rows in parts(m, n, 1):
            out = _result(held, rows) - bias
            found[rows], across = out @ c, across + r[rows] @ out
            squares_down[rows], squares_across = (out * out).sum(1), squares_across + (out * out).sum(0)
        far = lambda sum, of_operands, squares: np.nan_to_num(np.abs(sum - of_operands) / np.sqrt(squares), nan=np.inf, posinf=np.inf)
        return far(found, down, squares_down), far(across, columns, squares_across)
