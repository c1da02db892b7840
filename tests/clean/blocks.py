"""Products with scales along K: blocks of 128 (DeepGEMM, TransformerEngine), MX groups of 32, NVFP4: a sum for each group, scaled and added, or
dequantized first; on Blackwell the tensor core takes the scales itself."""

import numpy as np

import arith
import data
import orders
import tensorcore
from arith import EMIN, F, fma
from bundle import Results
from epilogue import finish, told, with_bias
from grids import Grid, Nvfp4
from tensorcore import FLOOR, NONE, D, cut, exponent, overflow, power


def grouped(rng, x, y, g, unit):
    """A sum for each g of K by `unit`, its scales applied in one of the orders that kernels have, added in f32. x, y: codes' values and scales."""
    (a, sa), (b, sb) = x, y
    how = int(rng.integers(5))
    name = ["fma(sa*sb,P)", "fma(P*sa,sb)", "fma(P*sb,sa)", "(P*sa)*sb", "P*(sa*sb)"][how]
    k = a.shape[-1]

    def part(start, end):
        c = np.zeros((a.shape[0], a.shape[1], b.shape[1]), F)
        for at in range(start, end, g):
            p = unit(a[..., at:min(at + g, end)], b[..., at:min(at + g, end)])
            s, t = sa[:, :, None, at], sb[:, None, :, at]
            c = [lambda: fma(s * t, p, c), lambda: fma(p * s, t, c), lambda: fma(p * t, s, c), lambda: c + p * s * t, lambda: c + p * (s * t)][how]()
        return c

    groups = -(-k // g)
    count = int(rng.choice([2, 3, 4])) if groups >= 4 and rng.random() < 0.25 else 1
    each = -(-groups // count) * g
    parts = [part(s, min(s + each, k)) for s in range(0, k, each)]
    joined = arith.tree(np.stack(parts, -1)) if rng.integers(2) else arith.ascending(np.stack(parts, -1))
    return name + (f"/split_{count}" if count > 1 else ""), joined


def mxf8f6f4(x, y, formats, c=None):
    """Blackwell's block-scaled step: 32 products, the e8m0 exponents are added to theirs before the maximum; F = 25, O = 23."""
    (a, sa), (b, sb) = x, y
    c = np.zeros((a.shape[0], a.shape[1], b.shape[1])) if c is None else c
    ea, eb = exponent(a.astype(D), EMIN[formats[0]]), exponent(b.astype(D), EMIN[formats[1]])
    for k in range(0, a.shape[-1], 32):
        at = slice(k, k + 32)
        scale = sa[:, :, None, k].astype(D) * sb[:, None, :, k].astype(D)
        p = a[:, :, None, at].astype(D) * b[:, None, :, at].astype(D) * scale[..., None]
        rank = np.maximum(ea[:, :, None, at] + eb[:, None, :, at] + exponent(scale, -300)[..., None], NONE)
        c = tensorcore.step(p, np.where(p == 0, NONE, rank), c, 25, 23)
    return overflow(c)


def mxf4(x, y, c=None):
    """Blackwell's step for e2m1 with scales for 16 or 32: 64 of K, exact sums of 16 ranked by the scales' exponents alone; F = 35, O = 23."""
    (a, sa), (b, sb) = x, y
    c = np.zeros((a.shape[0], a.shape[1], b.shape[1])) if c is None else c
    for k in range(0, a.shape[-1], 64):
        terms, ranks = [], []
        for at in range(k, min(k + 64, a.shape[-1]), 16):
            p = a[:, :, None, at:at + 16].astype(D) * b[:, None, :, at:at + 16].astype(D)
            s, t = sa[:, :, None, at].astype(D), sb[:, None, :, at].astype(D)
            terms.append(p.sum(-1) * s * t)
            live = (p != 0).any(-1) & (s * t != 0)
            ranks.append(np.where(live, least(s) + least(t), NONE))
        p, rank, rank_c = np.stack(terms, -1), np.stack(ranks, -1), exponent(c, -126)
        top = np.maximum(np.maximum(rank.max(-1), rank_c), -139)
        # Terms span too much for an integer of f64 only where they are cut to nothing: trunc is exact on each.
        total = np.trunc(p * power(35 - top)[..., None]).sum(-1) + np.trunc(c * power(35 - top))
        c = cut(total * power(top - 35), -126, 23)
    return overflow(c)


def least(s):
    """Raw exponent of a scale: e4m3 subnormals keep −6; e8m0 has none below 2^-127."""
    return np.where(s == 0, NONE, np.frexp(s)[1] - 1)


def batches(rng):
    family = str(rng.choice(["deep", "te", "mx8", "mx6", "mx4", "nv4"], p=[0.25, 0.15, 0.25, 0.1, 0.1, 0.15]))
    kind = str(rng.choice(data.KINDS))
    b, m, n, k = data.shape(rng, lengths=None if family in ("deep", "te") else [x for x in data.LENGTHS if x <= 4096])
    if family in ("deep", "te") and rng.random() < 0.3:
        n = int(rng.choice([130, 140]))
        b, k = max(1, b // 16), min(k, 640)
    x, y = data.pair(rng, kind, b, m, n, k)
    gain = 2.0**-9 if kind == "subnormal" else 1.0
    if family in ("deep", "te"):
        rule = "power" if family == "te" or rng.random() < 0.3 else "f32"
        fa = fb = "e4m3"
        if family == "te" and rng.random() < 0.3:
            fa = "e5m2"
        g, qa = 128, Grid(x, fa, 1, 128, rule, gain)
        qb = Grid(y, fb, *((128, 128) if rng.random() < 0.7 else (1, 128)), rule, gain)
    elif family == "nv4":
        g, qa, qb, fa, fb = 16, Nvfp4(x), Nvfp4(y), "e2m1", "e2m1"
    else:
        fa = fb = {"mx8": str(rng.choice(["e4m3", "e5m2"], p=[0.8, 0.2])), "mx6": str(rng.choice(["e2m3", "e3m2"])), "mx4": "e2m1"}[family]
        if family == "mx6" and rng.integers(2):
            fa = "e4m3"
        g, qa, qb = 32, Grid(x, fa, 1, 32, "e8m0", gain), Grid(y, fb, 1, 32, "e8m0", gain)
    (ta, ma), (tb, mb) = qa.of("a", rng), qb.of("b", rng)
    one = np.ones((b, 1, 1), F)
    top = (qa.top, qb.top.transpose(0, 2, 1)) if family == "nv4" else (one, one)
    for _ in range(5):
        device, draw = None, rng.random()
        bias = with_bias(rng, b, n)
        if draw < 0.3:  # dequantized in f32
            order = orders.Order(rng, k, orders.cuda_core(rng, k), int(rng.choice([16, 64])))
            wide = lambda q: q.values * (q.wide if family != "nv4" else q.wide * q.top if rng.integers(2) else q.wide) if family != "nv4" else q.values * (q.wide * q.top)
            name, v = order.name + " dequantized", order.join(order.parts(wide(qa), wide(qb)))
            device = str(rng.choice(["A100", "H100", "H200", "B200"])) if rng.random() < 0.4 else None
        else:
            if draw < 0.55 and family in ("deep", "te"):
                device = str(rng.choice(["H100", "H200", "L40S"]))
                unit, inner = (lambda p, q: tensorcore.chain(p, q, (fa, fb), tensorcore.UNITS_8[device])), f"T{tensorcore.UNITS_8[device]}"
                name, v = grouped(rng, (qa.values, qa.wide), (qb.values, qb.wide), g, unit)
            elif draw < 0.65 and family in ("mx8", "mx6"):
                device, inner, name = "B200", "mxf8f6f4", ""
                v = mxf8f6f4((qa.values, qa.wide), (qb.values, qb.wide), (fa, fb))
            elif draw < 0.65 and family in ("mx4", "nv4"):
                device, inner, name = "B200", "mxf4", ""
                v = mxf4((qa.values, qa.wide), (qb.values, qb.wide))
            else:
                inner, run = orders.cuda_core(rng, min(k, g))
                device = str(rng.choice(["A100", "H100", "H200", "B200"])) if rng.random() < 0.4 else None
                name, v = grouped(rng, (qa.values, qa.wide), (qb.values, qb.wide), g, run)
            name = f"{inner} {name}"
            if family == "nv4":
                v = v * (top[0] * top[1]) if rng.integers(2) else v * top[0] * top[1]
        if bias is not None:
            v = v + bias[:, None, :].astype(F)
        out, result, meta = finish(rng, v)
        held = ta | tb | ({"bias": bias} if bias is not None else {})
        yield Results(f"blocks {family} {fa}x{fb} {name} {device} {kind} {out}", "gemm", held | result, ma | mb | meta | {"device": told(rng, device)})
