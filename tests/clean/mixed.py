"""f16 and bf16 activations with narrow weights: int4, uint4, int8 in groups with zero points, e4m3, MXFP4 and NVFP4. A kernel makes the weights of
the activations' type (rounded once) or of f32, or sums each group of codes and scales the sum."""

import numpy as np

import arith
import data
import orders
import tensorcore
from arith import F, fma, to
from bundle import Results
from epilogue import finish, told, with_bias
from grids import Grid, Nvfp4, spread, stored
from integers import affine


def weights(rng, y, fmt, act):
    """Tensors, metadata, values of codes less their zero, spread scales, spread additive zeros or None, group, f32 global scale."""
    b, n, k = y.shape
    if fmt == "nvfp4":
        q = Nvfp4(y)
        t, m = q.of("b", rng)
        return t, m, q.values, q.wide, None, 16, q.top.transpose(0, 2, 1)
    if fmt in ("mxfp4", "e4m3"):
        q = Grid(y, "e2m1", 1, 32, "e8m0") if fmt == "mxfp4" else Grid(y, "e4m3", *((128, 128) if rng.integers(2) else (1, 128)), "f32")
        t, m = q.of("b", rng)
        return t, m, q.values, q.wide, None, q.tile[1], None
    g = int(rng.choice([32, 64, 128, k]))
    low, high = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-127, 127)}[fmt]
    zero = str(rng.choice(["none", "integer", "additive"], p=[0.45, 0.4, 0.15])) if fmt != "uint4" else str(rng.choice(["integer", "additive"]))
    q, s, z = affine(rng, y, low, high, g, zero != "none")
    s = to(s, str(rng.choice(["f32", act])))
    codes, more = stored(q.astype(np.uint8 if fmt == "uint4" else np.int8), fmt, "b", rng)
    flat = (lambda v: v[:, :, 0]) if g == k else (lambda v: v)
    t, m = {"b.codes": codes, "b.scale_inv": flat(s)}, {"b.format": fmt, "b.granularity": "row" if g == k else f"group:{g}"} | more
    values, add = q.astype(F), None
    if zero == "integer":
        m["b.zero"], t["b.zero_point"] = "integer", flat(z).astype([np.int32, np.int8, F][int(rng.choice(3, p=[0.5, 0.3, 0.2]))])
        values = (q - spread(z, 1, g, q.shape)).astype(F)
    elif zero == "additive":
        real = to(-z.astype(F) * s.astype(F), "f32" if s.dtype == F else act)
        m["b.zero"], t["b.zero_point"] = "additive", flat(real)
        add = spread(real.astype(F), 1, g, q.shape)
    return t, m, values, spread(s.astype(F), 1, g, q.shape), add, g, None


def dequantized(rng, values, wide, add, top, act):
    """(name, weights, scale of the result or None)."""
    after = None
    if top is not None:
        if rng.integers(2):
            after = top
        else:
            wide = wide * top.transpose(0, 2, 1)
    late = " late_global" if after is not None else ""
    if rng.random() < 0.35:
        return "f32" + late, values * wide if add is None else fma(values, wide, add), after
    if add is None:
        return "rounded" + late, to(values * wide, act).astype(F), after
    if rng.integers(2):
        return "rounded_fma", to(fma(values, wide, add), act).astype(F), after
    # CUTLASS: a multiplication and an addition of 16 bits.
    return "rounded_twice", to(to(values * wide, act).astype(F) + add, act).astype(F), after


def batches(rng):
    act = str(rng.choice(["f16", "bf16"]))
    fmt = str(rng.choice(["int4", "uint4", "int8", "e4m3", "mxfp4", "nvfp4"], p=[0.25, 0.15, 0.1, 0.1, 0.2, 0.2]))
    kind = str(rng.choice([k for k in data.KINDS if k not in ("subnormal", "huge")]))
    b, m, n, k = data.shape(rng)
    x, y = data.pair(rng, kind, b, m, n, k)
    x, y = np.clip(x, -2.0**7, 2.0**7), np.clip(y, -2.0**7, 2.0**7)
    x = to(x.astype(F), act)
    large = fmt in ("mxfp4", "e4m3") and act == "f16" and rng.random() < 0.1  # some weights leave f16 when they are rounded
    held, meta, values, wide, add, g, top = weights(rng, y * 2.0 ** (14 if large else int(rng.integers(-6, 1))), fmt, act)
    held["a"] = x
    # Weights first in some kernels: D = W·Xᵀ.
    turned = bool(rng.random() < 0.25)
    if turned:
        names = {"a": "b", "b": "a"}
        held = {names[t[0]] + t[1:]: v for t, v in held.items()}
        meta = {names[t[0]] + t[1:]: v for t, v in meta.items()}
    a = x.astype(F)
    for _ in range(5):
        bias, device = with_bias(rng, b, n), None
        if add is None and rng.random() < 0.25:  # sums of codes, scaled by group
            inner, run = orders.cuda_core(rng, min(k, g))
            c = np.zeros((b, m, n), F)
            for at in range(0, k, g):
                p = run(a[..., at:at + g], values[..., at:at + g])
                c = fma(p, wide[:, None, :, at], c) if rng.integers(2) else c + p * wide[:, None, :, at]
            v, name = c if top is None else c * top, f"{inner} groups"
        else:
            made, w, after = dequantized(rng, values, wide, add, top, act)
            if made[0] == "r" and not large and rng.random() < 0.7:
                device = str(rng.choice([d for d in tensorcore.UNITS_16 if not (d == "V100" and act == "bf16")]))
                unit = tensorcore.UNITS_16[device]
                order = orders.Order(rng, k, (f"T{unit}", lambda p, q: tensorcore.chain(p, q, (act, act), unit)), 64)
            else:
                order = orders.Order(rng, k, orders.cuda_core(rng, k), int(rng.choice([1, 16, 64])))
                device = str(rng.choice(["A100", "H100", "H200", "B200"])) if rng.random() < 0.4 else None
            v = order.join(order.parts(a, w))
            v, name = v if after is None else v * after, f"{made} {order.name}"
        if turned:
            v, bias = v.transpose(0, 2, 1), None
        if bias is not None:
            v = v + bias[:, None, :].astype(F)
        out, result, more = finish(rng, v)
        tensors = held | ({"bias": bias} if bias is not None else {})
        zero = meta.get("b.zero", meta.get("a.zero", "none"))
        yield Results(f"mixed {act}x{fmt}:{g}{' turned' if turned else ''}{' large' if large else ''} zero={zero} {name} {device} {kind} {out}", "gemm", tensors | result, meta | more | {"device": told(rng, device)})
