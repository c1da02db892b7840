"""A sample of a large product: whole rows and columns of the result, each an exact part of it."""

from __future__ import annotations

import zlib

import numpy as np

from . import _checksum
from ._errors import InputError

#: Products of the whole that are judged without a sample; a sample has at most so many.
MOST = 1 << 34
#: Elements of a result that is judged whole: some gigabytes while it is diagnosed, however short its sums are.
MOST_RESULT = 1 << 24
#: Rows and columns are drawn in runs of so many: what is wrong with a tile, or taken from the line before, stays together.
RUN = 16
#: A line stands out where its checksum is so many times as far off as that of most.
OUT = 8.0
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "I16": 2}


def size(dtype: str) -> int:
    return SIZES.get(dtype, 1)


def take(part, index: np.ndarray, axis: int = 0):
    """Entries of the first axis, or of the second one."""
    data, dtype, shape = part
    flat = np.frombuffer(memoryview(data), np.uint8).reshape(*shape[: axis + 1], -1)
    return (np.ascontiguousarray(np.take(flat, index, axis)).reshape(-1), dtype, [*shape[:axis], len(index), *shape[axis + 1 :]])


def draw(count: int, most: int, block: int, seed: int, far: np.ndarray | None = None) -> np.ndarray:
    """About `most` of `count` indices: whole runs and blocks, the first and the last among them (tails are where kernels err), and those with
    the lines that are furthest off, where that is known: the furthest, and up to a half of the runs that stand out."""
    block *= -(-RUN // block)
    blocks = -(-count // block)
    wanted = min(blocks, max(2, most // block))
    middle = np.random.Generator(np.random.PCG64(seed)).permutation(np.arange(1, max(blocks - 1, 1)))
    if far is not None and wanted > 2:
        of_run = np.maximum.reduceat(far, np.arange(0, count, block))
        furthest = np.argsort(-of_run, kind="stable")[: max(1, wanted // 2)]
        out = furthest[: max(1, int((of_run[furthest] > OUT * np.median(far)).sum()))]
        middle = np.concatenate([out, middle])[np.sort(np.unique(np.concatenate([out, middle]), return_index=True)[1])]
        middle = middle[(middle != 0) & (middle != blocks - 1)]
    chosen = np.unique(np.concatenate([[0, blocks - 1], middle[: max(wanted - 2, 0)]])).astype(np.int64)
    index = (chosen[:, None] * block + np.arange(block)[None, :]).ravel()
    return index[index < count]


def block_of(meta: dict[str, str], x: str) -> int:
    kind, _, tile = meta.get(f"{x}.granularity", "tensor").partition(":")
    return int(tile.split("x")[0]) if kind == "block" else 1


def wanted(shape: tuple[int, int, int], sample) -> bool:
    """Whether not all of a product is judged."""
    m, n, k = shape
    return sample is not None and (sample != "auto" or m * n * k > MOST or m * n > MOST_RESULT)


def gemm(held, shape: tuple[int, int, int], sample) -> str | None:
    """Cuts the operands and the result of a gemm M×N×K in place; what was kept, or None."""
    m, n, k = shape
    if not wanted(shape, sample):
        return None
    if sample != "auto" and (not isinstance(sample, int) or isinstance(sample, bool) or sample < 1):
        raise InputError(f'sample is {sample!r}, expected "auto", None or a number of rows and of columns')
    each = sample if sample != "auto" else max(16, int(min(MOST / k, MOST_RESULT) ** 0.5))
    seed = zlib.crc32(repr(shape).encode())
    blocks = block_of(held.meta, "a"), block_of(held.meta, "b")
    far = _checksum.lines(held, shape, blocks) or (None, None)
    chosen = {x: draw(count, each, blocks[i], seed + i, far[i]) for i, (x, count) in enumerate((("a", m), ("b", n)))}
    if len(chosen["a"]) == m and len(chosen["b"]) == n:
        return None
    drawn = f"seed {seed}" if far[0] is None else f"seed {seed}, and those whose checksums are furthest off"
    for x, rows in chosen.items():
        block = block_of(held.meta, x)
        for name in (x, f"{x}.codes"):
            if name in held.tensors:
                held.tensors[name] = take(held.tensors[name], rows)
        for name in (f"{x}.scale_inv", f"{x}.zero_point"):
            if name in held.tensors and held.meta.get(f"{x}.granularity", "tensor") != "tensor":
                held.tensors[name] = take(held.tensors[name], np.unique(rows // block))
        # A second level has as many rows as the scales that it is of, where it changes along them.
        for name in (f"{x}.global_scale_inv", f"{x}.global_zero_point"):
            if name in held.tensors and held.meta.get(f"{x}.global_granularity", "tensor").partition(":")[0] in ("row", "group"):
                held.tensors[name] = take(held.tensors[name], np.unique(rows // block))
    if "bias" in held.tensors:
        held.tensors["bias"] = take(held.tensors["bias"], chosen["b"])
    name = "out" if "out" in held.tensors else "out.codes"
    data, dtype, whole = take(held.tensors[name], chosen["a"])
    cells = np.asarray(data).reshape(whole[0], n, size(dtype))
    cut = np.ascontiguousarray(cells[:, chosen["b"], :]).reshape(-1)
    held.tensors[name] = (cut, dtype, [whole[0], len(chosen["b"])])
    # Of all rows: the largest magnitude, and what a recipe makes of it.
    held.tensors.pop("out.amax", None)
    held.meta.pop("recipe", None)
    return f"{len(chosen['a'])} of {m} rows and {len(chosen['b'])} of {n} columns ({drawn}); sample=None judges all"
