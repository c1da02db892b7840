"""A sample of a large product: whole rows and columns of the result, each an exact part of it."""

from __future__ import annotations

import zlib

import numpy as np

from ._errors import InputError

#: Products of the whole that are judged without a sample; a sample has at most so many.
MOST = 1 << 34
#: Elements of a result that is judged whole: some gigabytes while it is diagnosed, however short its sums are.
MOST_RESULT = 1 << 24
#: Rows and columns are drawn in runs of so many: what is wrong with a tile, or taken from the line before, stays together.
RUN = 16
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "I16": 2}


def size(dtype: str) -> int:
    return SIZES.get(dtype, 1)


def take(part, index: np.ndarray, axis: int = 0):
    """Entries of the first axis, or of the second one."""
    data, dtype, shape = part
    flat = np.frombuffer(memoryview(data), np.uint8).reshape(*shape[: axis + 1], -1)
    return (np.ascontiguousarray(np.take(flat, index, axis)).reshape(-1), dtype, [*shape[:axis], len(index), *shape[axis + 1 :]])


def draw(count: int, most: int, block: int, seed: int) -> np.ndarray:
    """About `most` of `count` indices: whole runs and blocks, the first and the last among them (tails are where kernels err)."""
    block *= -(-RUN // block)
    blocks = -(-count // block)
    wanted = min(blocks, max(2, most // block))
    middle = np.random.Generator(np.random.PCG64(seed)).permutation(np.arange(1, max(blocks - 1, 1)))[: max(wanted - 2, 0)]
    chosen = np.unique(np.concatenate([[0, blocks - 1], middle])).astype(np.int64)
    index = (chosen[:, None] * block + np.arange(block)[None, :]).ravel()
    return index[index < count]


def block_of(meta: dict[str, str], x: str) -> int:
    kind, _, tile = meta.get(f"{x}.granularity", "tensor").partition(":")
    return int(tile.split("x")[0]) if kind == "block" else 1


def gemm(held, shape: tuple[int, int, int], sample) -> str | None:
    """Cuts the operands and the result of a gemm M×N×K in place; what was kept, or None."""
    m, n, k = shape
    if sample is None or (sample == "auto" and m * n * k <= MOST and m * n <= MOST_RESULT):
        return None
    if sample != "auto" and (not isinstance(sample, int) or isinstance(sample, bool) or sample < 1):
        raise InputError(f'sample is {sample!r}, expected "auto", None or a number of rows and of columns')
    each = sample if sample != "auto" else max(16, int(min(MOST / k, MOST_RESULT) ** 0.5))
    seed = zlib.crc32(repr(shape).encode())
    chosen = {x: draw(count, each, block_of(held.meta, x), seed + i) for i, (x, count) in enumerate((("a", m), ("b", n)))}
    if len(chosen["a"]) == m and len(chosen["b"]) == n:
        return None
    for x, rows in chosen.items():
        block = block_of(held.meta, x)
        for name in (x, f"{x}.codes"):
            if name in held.tensors:
                held.tensors[name] = take(held.tensors[name], rows)
        for name in (f"{x}.scale_inv", f"{x}.zero_point"):
            if name in held.tensors and held.meta.get(f"{x}.granularity", "tensor") != "tensor":
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
    return f"{len(chosen['a'])} of {m} rows and {len(chosen['b'])} of {n} columns (seed {seed}); sample=None judges all"
