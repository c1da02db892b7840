"""Orders of summation of f32: each function takes operands [B, M, K], [B, N, K] (f32 values) and returns the accumulators [B, M, N]; `Order`
cuts K into parts as split-K and stream-K do and adds them."""

import numpy as np

import arith
import tensorcore
from arith import D, F


def products(a, b):
    return a[:, :, None, :].astype(F) * b[:, None, :, :].astype(F)


def sequential_fma(a, b):
    c = np.zeros((a.shape[0], a.shape[1], b.shape[1]), F)
    for k in range(a.shape[-1]):
        c = arith.fma(a[:, :, None, k].astype(F), b[:, None, :, k].astype(F), c)
    return c


def lanes(count, width, unrolled):
    """As a matrix-vector kernel: lane l reads `width` neighbours at a stride of count·width, then the warp adds by halves."""
    def run(a, b):
        p = arith.padded(products(a, b), count * width)
        p = p.reshape(p.shape[:-1] + (count, width))
        if unrolled:  # the neighbours of one load are added first
            mine = arith.ascending(np.moveaxis(arith.ascending(p), -2, -1))
        else:
            p = np.moveaxis(p, -2, -3)
            mine = arith.ascending(p.reshape(p.shape[:-2] + (-1,)))
        return arith.tree(mine, halves=True)
    return run


def blocked(size, inner):
    def run(a, b):
        p = arith.padded(products(a, b), size)
        return arith.ascending({"ascending": arith.ascending, "tree": arith.tree}[inner](p))
    return run


def permuted(rng):
    def run(a, b):
        order = rng.permutation(a.shape[-1])
        return arith.ascending(products(a, b)[..., order])
    return run


def blas(a, b):
    return np.matmul(a.astype(F), b.astype(F).transpose(0, 2, 1))


def double(a, b):
    return np.matmul(a.astype(D), b.astype(D).transpose(0, 2, 1)).astype(F)


def cuda_core(rng, k):
    """(name, function): one of the orders that ordinary f32 code has."""
    draw = rng.integers(11)
    if draw == 0:
        return "ascending", lambda a, b: arith.ascending(products(a, b))
    if draw == 1:
        return "descending", lambda a, b: arith.ascending(products(a, b)[..., ::-1])
    if draw == 2:
        halves = bool(rng.integers(2))
        return f"tree{'_halves' if halves else ''}", lambda a, b: arith.tree(products(a, b), halves)
    if draw in (3, 4):
        size, inner = int(rng.choice([8, 16, 32, 128])), str(rng.choice(["ascending", "tree"]))
        return f"blocks_{size}_{inner}", blocked(size, inner)
    if draw in (5, 6):
        count, width, unrolled = int(rng.choice([32, 64, 128, 256])), int(rng.choice([1, 2, 4, 8])), bool(rng.integers(2))
        return f"lanes_{count}x{width}{'_unrolled' if unrolled else ''}", lanes(count, width, unrolled)
    if draw == 7:
        return "permuted", permuted(rng)
    if draw == 8 and k <= 1024:
        return ("kahan", lambda a, b: arith.kahan(products(a, b))) if rng.integers(2) else ("ascending_fma", sequential_fma)
    return ("f64", double) if rng.integers(2) else ("sgemm", blas)


def promoted(unit, formats, every):
    """Chains of `every` elements, each added to an f32 accumulator with rounding."""
    def run(a, b):
        c = np.zeros((a.shape[0], a.shape[1], b.shape[1]), F)
        for k in range(0, a.shape[-1], every):
            c = c + tensorcore.chain(a[..., k:k + every], b[..., k:k + every], formats, unit)
        return c
    return run


class Order:
    """An inner order and how K is cut: parts of whole tiles, added ascending, by tree, or in random order (atomics). `model` is the metadata that
    declares it, if a device model is just this."""

    def __init__(self, rng, k, inner, tile, most=8):
        self.name, self.run = inner
        tiles = -(-k // tile)
        self.ends, self.add, self.model = [k], "one", {}
        if tiles >= 2 and rng.random() < 0.4:
            count = int(rng.choice([c for c in (2, 3, 4, 8) if c <= min(tiles, most)]))
            if rng.random() < 0.35:
                cuts = np.sort(rng.choice(np.arange(1, tiles), count - 1, replace=False))
                self.name += f"/stream_{count}"
            else:
                each = -(-tiles // count)
                cuts = [each * i for i in range(1, count) if each * i < tiles]
                self.name += f"/split_{count}"
            self.ends = [int(c) * tile for c in cuts] + [k]
            self.add = str(rng.choice(["ascending", "tree", "atomics", "descending"]))
            self.name += f"_{self.add}"
            self.order = rng.permutation(len(self.ends))

    def declared(self, rng, meta):
        """Seldom, and only where K is not cut: the model's name, whose bits must be met."""
        self.model = dict(meta) if len(self.ends) == 1 and rng.random() < 0.15 else {}
        return self

    def parts(self, a, b):
        starts = [0] + self.ends[:-1]
        return [self.run(a[..., s:e], b[..., s:e]) for s, e in zip(starts, self.ends)]

    def join(self, parts):
        p = np.stack(parts, -1)
        if self.add == "tree":
            return arith.tree(p)
        if self.add == "descending":
            return arith.ascending(p[..., ::-1])
        return arith.ascending(p[..., self.order] if self.add == "atomics" else p)
