"""Formats and roundings by numpy and ml_dtypes: casts to nearest even, a fused multiply-add, sums of f32."""

import ml_dtypes as ml
import numpy as np

np.seterr(all="ignore")  # Inf and subnormal results are what kernels return.
F, D = np.float32, np.float64
DT = {"f32": F, "f16": np.float16, "bf16": ml.bfloat16, "e4m3": ml.float8_e4m3fn, "e5m2": ml.float8_e5m2, "e4m3fnuz": ml.float8_e4m3fnuz,
      "e5m2fnuz": ml.float8_e5m2fnuz, "e2m1": ml.float4_e2m1fn, "e2m3": ml.float6_e2m3fn, "e3m2": ml.float6_e3m2fn, "e8m0": ml.float8_e8m0fnu}
TOP = {k: float(ml.finfo(v).max) for k, v in DT.items() if k != "e8m0"}
# Exponent of the smallest normal number: below it a significand keeps its leading zeros.
EMIN = {"f32": -126, "f16": -14, "bf16": -126, "e4m3": -6, "e5m2": -14, "e2m1": 0, "e2m3": 0, "e3m2": -2, "int8": 0}
FP8 = ("e4m3", "e5m2")


def to(x, fmt):
    """f32 to a 16-bit type, or itself; nearest even, overflow is Inf."""
    return x.astype(F).astype(DT[fmt])


def saturate(x, fmt):
    """Codes of f32 as `cvt.rn.satfinite`: clamped, then to nearest even."""
    return np.clip(x.astype(F), F(-TOP[fmt]), F(TOP[fmt])).astype(DT[fmt])


def fma(a, b, c):
    """RN32(a·b + c) of f32: the product is exact in f64, the sum is rounded to odd in f64, then once to f32."""
    p = a.astype(D) * b.astype(D)
    c = np.broadcast_to(c, p.shape).astype(D)
    s = p + c
    t = s - p
    lost = (p - (s - t)) + (c - t)
    bits = s.view(np.int64)
    move = (lost != 0) & np.isfinite(s) & (bits & 1 == 0)
    # Toward what was lost: a magnitude grows by one bit where both have one sign.
    step = np.where((lost > 0) == (s > 0), 1, -1)
    return np.where(move, bits + step, bits).view(D).astype(F)


def ascending(p):
    """f32 sum along the last axis, one after the other."""
    return np.add.accumulate(p, -1, dtype=F)[..., -1]


def tree(p, halves=False):
    """f32 sum along the last axis by neighbours, or by halves as a warp's shuffles do."""
    n = p.shape[-1]
    size = 1 << max(n - 1, 0).bit_length()
    if size != n:
        p = np.concatenate([p, np.zeros(p.shape[:-1] + (size - n,), F)], -1)
    while p.shape[-1] > 1:
        h = p.shape[-1] // 2
        p = p[..., :h] + p[..., h:] if halves else p[..., 0::2] + p[..., 1::2]
    return p[..., 0]


def padded(p, block):
    """Last axis cut into blocks; zeros behind the end, which add nothing."""
    n = p.shape[-1]
    if n % block:
        p = np.concatenate([p, np.zeros(p.shape[:-1] + (block - n % block,), p.dtype)], -1)
    return p.reshape(p.shape[:-1] + (-1, block))


def kahan(p):
    """f32 sum with the lost part carried along."""
    s = np.zeros(p.shape[:-1], F)
    lost = np.zeros_like(s)
    for k in range(p.shape[-1]):
        y = p[..., k] - lost
        t = s + y
        lost = (t - s) - y
        s = t
    return s
