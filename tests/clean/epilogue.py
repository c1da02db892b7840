"""What a kernel does behind its sums: scales in one of five orders, a bias fused or not, one rounding to the type of the result."""

import numpy as np

import arith
from arith import DT, TOP, F

DEVICES = {"V100": ["Tesla V100-SXM2-32GB", "Tesla V100-PCIE-16GB"], "A100": ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB"], "L40S": ["NVIDIA L40S"],
           "H100": ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"], "H200": ["NVIDIA H200"], "B200": ["NVIDIA B200"], "RTX 5090": ["NVIDIA GeForce RTX 5090"]}


def told(rng, device):
    """What a user writes as `device`: its whole name on half of the results, else nothing."""
    return str(rng.choice(DEVICES[device])) if device and rng.random() < 0.5 else None


def scaled(rng, order, sa, sb):
    """(name, function of parts): `order` joins the parts; sa [B, M, 1] and sb [B, 1, N] are f32."""
    draw = int(rng.integers(4))
    one = {0: lambda p: p * sa * sb, 1: lambda p: p * sb * sa, 2: lambda p: p * (sa * sb), 3: lambda p: p * sa * sb}[draw]
    name = ["(P*sa)*sb", "(P*sb)*sa", "P*(sa*sb)", "parts:(P*sa)*sb"][draw]
    if draw == 3 and rng.integers(2):
        name, one = "parts:P*(sa*sb)", lambda p: p * (sa * sb)

    def run(parts):
        return order.join([one(p) for p in parts]) if draw == 3 else one(order.join(parts))

    def fused(parts, bias):
        """The last multiplication and the bias in one rounding."""
        if draw == 3:
            return None
        p = order.join(parts)
        return arith.fma(*{0: (p * sa, sb), 1: (p * sb, sa), 2: (p, sa * sb)}[draw], bias)

    return name, run, fused


def with_bias(rng, b, n, kind=None):
    """[B, N] in the result's type or f32, or none for two of three."""
    if rng.random() < 0.67:
        return None
    kind = kind or str(rng.choice(["f32", "bf16", "f16"]))
    return arith.to((rng.standard_normal((b, n)) * np.exp2(rng.integers(-3, 4))).astype(F), kind)


def finish(rng, y, most=True):
    """Tensors and metadata of a result: f32 y in one of the types that products are written in."""
    kinds, weight = ["f32", "bf16", "f16", "e4m3", "e5m2"], [0.4, 0.3, 0.15, 0.1, 0.05]
    out = str(rng.choice(kinds, p=weight)) if most else str(rng.choice(kinds[:3]))
    if out in ("f32", "bf16", "f16"):
        return out, {"out": arith.to(y, out)}, {}
    # A scale that an earlier step's amax gave: some results saturate.
    amax = np.abs(y).reshape(len(y), -1).max(1, keepdims=True)
    amax = np.where((amax > 2.0**-100) & np.isfinite(amax), amax, 1).astype(F)
    s = (F(TOP[out]) / (amax * np.exp2(rng.uniform(-0.2, 1.5, amax.shape)).astype(F))).astype(F)
    codes = arith.saturate(y * s[:, :, None], out)
    tensors = {"out.codes": codes, "out.scale": s, "out.scale_inv": F(1) / s}
    if rng.integers(2):
        tensors["out.amax"] = np.abs(y).reshape(len(y), -1).max(1, keepdims=True)
    return out, tensors, {}


def quantized(rng, x, fmt, granularity, gain=None, power=False):
    """FP8 codes and f32 scale_inv [B, rows, 1] of one scale a tensor or a row; `gain` below 1 leaves the top of the range unused."""
    x = x.astype(F)
    amax = np.abs(x).max((1, 2) if granularity == "tensor" else 2, keepdims=True)
    amax = np.where(amax > 0, amax, 1).astype(F)
    s = (F(TOP[fmt] * (gain or 1.0)) / amax).astype(F)
    if power:
        s = np.exp2(np.floor(np.log2(s))).astype(F)
    return arith.saturate(x * s, fmt), np.broadcast_to((F(1) / s), (len(x), 1 if granularity == "tensor" else x.shape[1], 1)).copy()


def codes_of(x):
    return x.astype(F)
