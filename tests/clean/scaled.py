"""FP8 products with one scale a tensor or a row: tensor cores of every generation, ordinary cores, five orders of the scales."""

import numpy as np

import arith
import data
import orders
import tensorcore
from arith import F, fma
from bundle import Results
from epilogue import finish, quantized, scaled, told, with_bias


def tensor_core(rng, fa, fb, k):
    """(device, Order): fp8 instructions, the lowered mma.sync, or codes widened to f16 or bf16 first (exact)."""
    device = str(rng.choice(["V100", "A100", "L40S", "H100", "H200", "B200", "RTX 5090"], p=[0.04, 0.1, 0.14, 0.2, 0.3, 0.12, 0.1]))
    tile = int(rng.choice([64, 128]))
    if device not in tensorcore.UNITS_8 or rng.random() < 0.12:
        wide = "f16" if device == "V100" or rng.integers(2) else "bf16"
        unit = tensorcore.UNITS_16[device]
        return device, orders.Order(rng, k, (f"{wide}:T{unit}", lambda a, b: tensorcore.chain(a, b, (wide, wide), unit)), tile)
    if device in ("H100", "H200", "B200") and rng.random() < 0.15:
        return device, orders.Order(rng, k, ("mma.sync", tensorcore.lowered), tile).declared(rng, {"device_model": "hopper_mma"})
    unit = tensorcore.UNITS_8[device]
    draw = rng.random()
    if draw < 0.4 and device in ("H100", "H200", "L40S"):
        every = int(rng.choice([128, 256, 512], p=[0.6, 0.2, 0.2]))
        order = orders.Order(rng, k, (f"T{unit}/promote_{every}", orders.promoted(unit, (fa, fb), every)), max(tile, every))
        return device, order.declared(rng, {"device_model": tensorcore.MODELS_8[device], "promote_every": every})
    order = orders.Order(rng, k, (f"T{unit}", lambda a, b: tensorcore.chain(a, b, (fa, fb), unit)), tile)
    return device, order.declared(rng, {"device_model": tensorcore.MODELS_8[device]})


def factors(rng, ia, ib):
    """Scales of ordinary size, or such that they, or their product, are at an end of f32."""
    draw = rng.random()
    if draw < 0.8:
        return "", ia, ib
    if draw < 0.88:  # the largest product of both is about 2^-133: subnormal, not zero
        down = np.exp2(np.floor((-133 - np.log2(ia.max() * ib.max())) / 2)).astype(F)
        return " product_subnormal", (ia * down).astype(F), (ib * down).astype(F)
    if draw < 0.94:  # results are subnormal
        return " subnormal", (ia * F(2.0**-64)).astype(F), (ib * F(2.0**-60)).astype(F)
    return " large", (ia * F(2.0**30)).astype(F), (ib * F(2.0**30)).astype(F)


def shaped(rng, s, grain):
    """[1] or [M]; seldom [] or [M, 1], as torch code has them."""
    if rng.random() < 0.15:
        return s[:, 0, 0] if grain == "tensor" else s
    return s[:, :, 0]


def batches(rng):
    fa, fb = [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2")][int(rng.choice(4, p=[0.7, 0.12, 0.12, 0.06]))]
    kind, grains = str(rng.choice(data.KINDS)), [str(g) for g in rng.choice(["tensor", "row"], 2)]
    b, m, n, k = data.shape(rng)
    x, y = data.pair(rng, kind, b, m, n, k)
    gain = {"subnormal": 2.0**-13, "huge": 1.0}.get(kind, float(np.exp2(-rng.integers(0, 4))))
    power = bool(rng.random() < 0.25)
    (qa, ia), (qb, ib) = quantized(rng, x, fa, grains[0], gain, power), quantized(rng, y, fb, grains[1], gain, power)
    size, ia, ib = factors(rng, ia, ib)
    # [B, M or 1, 1] and [B, 1, N or 1]
    sa, sb = ia, ib.transpose(0, 2, 1)
    a, w = qa.astype(F), qb.astype(F)
    for _ in range(6):
        bias, fused = with_bias(rng, b, n), bool(rng.integers(2))
        draw, device = rng.random(), None
        if draw < 0.6:
            device, order = tensor_core(rng, fa, fb, k)
        else:
            order = orders.Order(rng, k, orders.cuda_core(rng, k), int(rng.choice([1, 16, 64, 128])))
            device = str(rng.choice(["A100", "H100", "H200", "B200", "L40S", "RTX 5090"])) if rng.random() < 0.4 else None
        if draw > 0.85:  # dequantized in f32 first
            scales, order.model = "dequantized", {}
            v = order.join(order.parts(a * sa, w * ib))
            v = v if bias is None else v + bias[:, None, :].astype(F)
        else:
            scales, run, fuse = scaled(rng, order, sa, sb)
            parts = order.parts(a, w)
            v = fuse(parts, bias[:, None, :].astype(F)) if bias is not None and fused else None
            if v is None:
                v = run(parts)
                v = v if bias is None else v + bias[:, None, :].astype(F)
                fused = False
            scales += "+fma" if fused and bias is not None else ""
        held = {"a.codes": qa, "b.codes": qb, "a.scale_inv": shaped(rng, ia, grains[0]), "b.scale_inv": shaped(rng, ib, grains[1])}
        if bias is not None:
            held["bias"] = bias
        if rng.random() < 0.2:
            held |= {"a": x.astype(F), "b": y.astype(F)}
        out, result, meta = finish(rng, v)
        meta |= {"a.granularity": grains[0], "b.granularity": grains[1], "device": told(rng, device)} | order.model
        yield Results(f"scaled {fa}x{fb} {order.name} {order.model.get('device_model', '')} {scales}{size} {device} {kind} {out}", "gemm", held | result, meta)
