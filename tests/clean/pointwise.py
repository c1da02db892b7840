"""Activations, gated ones and dequantization in f32, one rounding to the result's type."""

import numpy as np

import arith
from arith import DT, D, F, fma, saturate, to
from bundle import Results
from epilogue import finish, told
from grids import Grid, Nvfp4, spread, stored
from integers import affine, scale_type


def exp(x):
    """expf, tanhf of a library: within one unit; here the nearest."""
    return np.exp(x.astype(D)).astype(F)


def tanh(x):
    return np.tanh(x.astype(D)).astype(F)


def function(rng, fn, x):
    """f32 of f32, as CUDA and PyTorch write it."""
    draw = int(rng.integers(2))
    if fn == "relu":
        return np.maximum(x, 0)
    if fn == "srelu":
        return np.square(np.maximum(x, 0))
    if fn == "gelu":
        if draw:
            return x * (F(0.5) + F(0.5) * tanh(x * (F(0.79788456) + F(0.03567741) * x * x)))
        return F(0.5) * x * (F(1) + tanh(F(0.7978845608028654) * (x + F(0.044715) * x * x * x)))
    z = x if fn == "silu" else F(1.702) * x
    return x / (F(1) + exp(-z)) if draw else x * (F(1) / (F(1) + exp(-z)))


GATED = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu", "qgeglu": "qgelu", "sreglu": "srelu"}


def activation(rng):
    fn = str(rng.choice(["gelu", "silu", "relu", "qgelu", "srelu", *GATED]))
    rows, n = int(rng.choice([1, 3, 8, 16])), int(rng.choice([2, 8, 30, 64, 130]))
    b, fmt = 32, str(rng.choice(["f32", "bf16", "f16"]))
    x = rng.standard_normal((b, rows, n)) * np.exp2(rng.uniform(-6, 4, (b, 1, 1)))
    x = to(x.astype(F), fmt)
    for _ in range(3):
        if fn in GATED:
            h = n // 2
            v = function(rng, GATED[fn], x[..., :h].astype(F)) * x[..., h:].astype(F)
        else:
            v = function(rng, fn, x.astype(F))
        out, result, more = finish(rng, v)
        yield Results(f"activation {fn} {fmt} {out}", "activation", {"a": x} | result, {"fn": fn, "device": told(rng, "H200")} | more)


def dequantize(rng):
    kind = str(rng.choice(["fp8", "mx", "nvfp4", "int", "additive"]))
    b, rows, k = 24, int(rng.choice([1, 3, 8])), int(rng.choice([1, 16, 31, 64, 100, 256, 300]))
    x = rng.standard_normal((b, rows, k)) * np.exp2(rng.uniform(-10, 10, (b, rows, 1)))
    if kind in ("fp8", "mx"):
        fmt = str(rng.choice(["e4m3", "e5m2"] if kind == "fp8" else ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"]))
        tile = {"fp8": [(1, 128), (128, 128)], "mx": [(1, 32)]}[kind]
        q = Grid(x, fmt, *tile[int(rng.integers(len(tile)))], "e8m0" if kind == "mx" else "f32")
        if kind == "mx" and rng.random() < 0.1:  # a block of NaN
            q.s[:, 0, 0] = np.nan
            q.wide = spread(q.s, 1, 32, x.shape)
        held, meta = q.of("a", rng)
        ways = [q.values * q.wide]
    elif kind == "nvfp4":
        q = Nvfp4(x)
        held, meta = q.of("a", rng)
        ways = [q.values * q.wide * q.top, q.values * (q.wide * q.top)]
    else:
        fmt, g = str(rng.choice(["int8", "int4", "uint4"])), int(rng.choice([32, 128]))
        zero = bool(rng.integers(2)) or fmt == "uint4" or kind == "additive"
        c, s, z = affine(rng, x, *{"int8": (-128, 127), "int4": (-8, 7), "uint4": (0, 15)}[fmt], g, zero)
        s = scale_type(rng, s)
        codes, more = stored(c.astype(np.uint8 if fmt == "uint4" else np.int8), fmt, "a", rng)
        held, meta = {"a.codes": codes, "a.scale_inv": s}, {"a.format": fmt, "a.granularity": f"group:{g}"} | more
        wide, zw = spread(s.astype(F), 1, g, c.shape), spread(z, 1, g, c.shape)
        if kind == "additive":
            real = (-z.astype(F) * s.astype(F)).astype(F)
            meta["a.zero"], held["a.zero_point"] = "additive", real
            add, v = spread(real, 1, g, c.shape), c.astype(F)
            ways = [fma(v, wide, add), v * wide + add]
        else:
            if zero:
                meta["a.zero"], held["a.zero_point"] = "integer", z
            ways = [(c - zw).astype(F) * wide]
    for v in ways:
        out = str(rng.choice(["f32", "bf16", "f16"]))
        yield Results(f"dequantize {kind} {meta['a.format']} {out}", "dequantize", held | {"out": to(v, out)}, meta)


def batches(rng):
    return activation(rng) if rng.random() < 0.6 else dequantize(rng)
