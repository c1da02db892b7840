"""Grouped products, FP8 by rows or tensors and bf16: experts with no rows, rows behind the last group left as they were; weight gradients."""

import numpy as np

import arith
import data
import orders
import tensorcore
from arith import F, to
from bundle import Results
from epilogue import finish, quantized, told
from scaled import tensor_core


def ends(rng, b, e, rows):
    """Cumulative ends of e groups, some empty; in half of the batches the last is before the last row."""
    last = rows if rng.random() < 0.5 else rng.integers(0, rows + 1, (b, 1))
    cuts = np.sort(rng.integers(0, rows + 1, (b, e)), -1)
    cuts = np.minimum(cuts, last)
    cuts[:, -1:] = last
    return cuts.astype(np.int32)


def unit(rng, k, fp8):
    if fp8 and rng.random() < 0.6:
        return tensor_core(rng, "e4m3", "e4m3", k)
    if not fp8 and rng.random() < 0.6:
        device = str(rng.choice(["A100", "H100", "H200", "B200"]))
        u = tensorcore.UNITS_16[device]
        return device, orders.Order(rng, k, (f"T{u}", lambda a, b: tensorcore.chain(a, b, ("bf16", "bf16"), u)), 64)
    return None, orders.Order(rng, k, orders.cuda_core(rng, k), 64)


def forward(rng, kind):
    b, m, n, k = data.shape(rng, lengths=[x for x in data.LENGTHS if x <= 4096])
    e, fp8 = int(rng.choice([1, 2, 3, 4, 8])), bool(rng.random() < 0.75)
    b = max(1, b // e)
    x, y = data.pair(rng, kind, b, m, e * n, k)
    grain = str(rng.choice(["row", "tensor"], p=[0.8, 0.2]))
    if fp8:
        power = bool(rng.integers(2))
        qa, sa = quantized(rng, x, "e4m3", grain, 0.9, power)
        qb, sb = quantized(rng, y.reshape(b * e, n, k), "e4m3", grain, 0.9, power)
        qb, sb = qb.reshape(b, e, n, k), sb.reshape(b, e, -1)
        held, meta = {"a.codes": qa, "b.codes": qb, "a.scale_inv": sa[:, :, 0], "b.scale_inv": sb}, {"a.granularity": grain, "b.granularity": grain}
    else:
        qa, qb = to(x.astype(F), "bf16"), to(y.astype(F), "bf16").reshape(b, e, n, k)
        held, meta, grain = {"a": qa, "b": qb}, {}, "none"
    held["offs"] = offs = ends(rng, b, e, m)
    owner = (np.arange(m)[None, :, None] >= offs[:, None, :]).sum(-1)  # e: nobody's
    for _ in range(4):
        device, order = unit(rng, k, fp8)
        every = order.join(order.parts(qa.astype(F), qb.reshape(b, e * n, k).astype(F))).reshape(b, m, e, n)
        if fp8:
            s, t = sa[:, :, None, :], sb[:, None, :, :]  # [B, M or 1, 1, 1], [B, 1, E, N or 1]
            every = [lambda: every * s * t, lambda: every * t * s, lambda: every * (s * t)][int(rng.integers(3))]()
        v = np.take_along_axis(every, np.minimum(owner, e - 1)[:, :, None, None], 2)[:, :, 0]
        out = str(rng.choice(["bf16", "f32", "f16"]))
        left = {0: np.zeros_like(v), 1: np.full_like(v, 1e30), 2: np.full_like(v, np.nan)}[int(rng.integers(3))]
        v = np.where((owner == e)[:, :, None], left, v)
        yield Results(f"grouped {grain} e={e} {order.name} {device} {kind} {out}", "grouped_gemm", held | {"out": to(v, out)}, meta | {"device": told(rng, device)})


def wgrad(rng, kind):
    b, m, n, k = data.shape(rng, lengths=[x for x in data.LENGTHS if x <= 1024])
    e, fp8 = int(rng.choice([1, 2, 3, 4])), bool(rng.random() < 0.75)
    x, y = data.pair(rng, kind, b, m, n, k)
    offs = np.repeat(ends(rng, 1, e, k), b, 0)
    starts = [0, *offs[0, :-1]]
    groups = [slice(int(s), int(t)) for s, t in zip(starts, offs[0])]
    if fp8:
        grain = "row" if rng.random() < 0.8 else "tensor"
        qa, qb = np.zeros((b, m, k), arith.DT["e4m3"]), np.zeros((b, n, k), arith.DT["e4m3"])
        sa, sb = np.ones((b, e, m if grain == "row" else 1), F), np.ones((b, e, n if grain == "row" else 1), F)
        for i, g in enumerate(groups):
            if g.start < g.stop:
                qa[..., g], s = quantized(rng, x[..., g], "e4m3", grain, 1.0, True)
                qb[..., g], t = quantized(rng, y[..., g], "e4m3", grain, 1.0, True)
                sa[:, i], sb[:, i] = s[:, :, 0], t[:, :, 0]
        held, meta = {"a.codes": qa, "b.codes": qb, "a.scale_inv": sa, "b.scale_inv": sb}, {"a.granularity": grain, "b.granularity": grain}
    else:
        qa, qb = to(x.astype(F), "bf16"), to(y.astype(F), "bf16")
        held, meta, grain = {"a": qa, "b": qb}, {}, "none"
    for _ in range(4):
        device, v = None, np.zeros((b, e, m, n), F)
        name = "empty"
        for i, g in enumerate(groups):
            if g.start < g.stop:
                device, order = unit(rng, g.stop - g.start, fp8) if name == "empty" else (device, order)
                name, order.ends, order.add = order.name, [g.stop - g.start], "one"
                p = order.join(order.parts(qa[..., g].astype(F), qb[..., g].astype(F)))
                v[:, i] = p * sa[:, i, :, None] * sb[:, i, None, :] if fp8 else p
        out = str(rng.choice(["bf16", "f32"]))
        yield Results(f"wgrad {grain} e={e} {name} {device} {kind} {out}", "grouped_gemm_wgrad", held | {"offs": offs, "out": to(v, out)}, meta | {"device": told(rng, device)})


def batches(rng):
    kind = str(rng.choice([k for k in data.KINDS if k not in ("subnormal", "huge")]))
    return forward(rng, kind) if rng.random() < 0.6 else wgrad(rng, kind)
