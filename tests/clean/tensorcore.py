"""The tensor core's block step T(W, F, O): W products and the accumulator are cut toward zero to multiples of 2^(emax − F), added exactly,
and the sum is cut to O fraction bits. emax is over the terms that are not zero; exponents are raw: 1.5 · 1.5 keeps exponent 0, a subnormal
input keeps the format's smallest. f64 holds every integer of the step (below 2^33) and every exponent that occurs."""

import numpy as np

from arith import EMIN, D, F

NONE = -(1 << 20)
# device: (W, F, O) of 16-bit operands; of fp8 where the instruction exists.
UNITS_16 = {"V100": (4, 23, 23), "A100": (8, 24, 23), "L40S": (8, 24, 23), "H100": (16, 25, 23), "H200": (16, 25, 23), "B200": (16, 25, 23), "RTX 5090": (16, 25, 23)}
UNITS_8 = {"L40S": (16, 13, 13), "H100": (32, 13, 13), "H200": (32, 13, 13), "B200": (32, 25, 23), "RTX 5090": (32, 25, 23)}
# The name under which a user declares the arithmetic of an unsplit chain.
MODELS_16 = {"V100": "volta_mma", "A100": "ampere_mma", "L40S": "ada_mma", "H100": "hopper_wgmma", "H200": "hopper_wgmma", "B200": "blackwell_tcgen05",
             "RTX 5090": "blackwell_mma"}
MODELS_8 = {"L40S": "ada_mma", "H100": "hopper_wgmma", "H200": "hopper_wgmma", "B200": "blackwell_tcgen05", "RTX 5090": "blackwell_mma"}
# The least exponent that a quantum is taken from: measured on Hopper (F = 25); MMA-Sim 2.1.1's by F.
FLOOR = -133
FLOORS = {23: -131, 24: -132}


def power(e):
    """2^e of integers in the range of normal f64, by bits."""
    return ((e.astype(np.int64) + 1023) << 52).view(D)


def exponent(x, least):
    """Raw exponents; NONE for zero."""
    e = np.frexp(x)[1] - 1
    return np.where(x == 0, NONE, np.maximum(e, least))


def cut(x, least, bits):
    """Toward zero to `bits` fraction bits; never −0."""
    e = np.maximum(np.frexp(x)[1] - 1, least)
    e = np.where(x == 0, 0, e)
    return np.trunc(x * power(bits - e)) * power(e - bits) + 0.0


def step(p, rank, c, kept, out):
    """One block step: products p with ranks [..., W], c of f32 values in f64; f64 values of an f32."""
    rank_c = exponent(c, -126)
    top = np.maximum(np.maximum(rank.max(-1), rank_c), FLOORS.get(kept, FLOOR))
    up, down = power(kept - top), power(top - kept)
    total = np.trunc(p * up[..., None]).sum(-1) + np.trunc(c * up)
    return cut(total * down, -126, out)


def chain(a, b, formats, unit, c=None):
    """f32 accumulators of a [.., M, K] · b [.., N, K]ᵀ, K in blocks of W, ascending."""
    w, kept, out = unit
    a, b = a.astype(D), b.astype(D)
    ea, eb = exponent(a, EMIN[formats[0]]), exponent(b, EMIN[formats[1]])
    shape = a.shape[:-1] + (b.shape[-2],)
    c = np.zeros(shape) if c is None else c
    for k in range(0, a.shape[-1], w):
        p = a[..., :, None, k:k + w] * b[..., None, :, k:k + w]
        rank = ea[..., :, None, k:k + w] + eb[..., None, :, k:k + w]
        c = step(p, np.maximum(rank, NONE), c, kept, out)
    return overflow(c)


def overflow(c):
    """Beyond f32 it is Inf."""
    return np.where(np.abs(c) >= 2.0**128, np.copysign(np.inf, c), c).astype(F)


def lowered(a, b):
    """fp8 mma.sync on sm_90 and sm_100: for each 32 of K, two f16 steps (k mod 4 in {0, 1}, then {2, 3}), then a rounded f32 addition.
    The steps see f16 values: fp8 subnormals are normal there."""
    k = a.shape[-1]
    whole = -(-k // 32) * 32
    grow = lambda x: np.concatenate([x.astype(D), np.zeros(x.shape[:-1] + (whole - k,))], -1)
    a, b = grow(a), grow(b)
    c = np.zeros(a.shape[:-1] + (b.shape[-2],), F)
    lanes = np.arange(32)
    for at in range(0, whole, 32):
        t = None
        for half in (lanes[lanes % 4 < 2], lanes[lanes % 4 >= 2]):
            t = chain(a[..., at + half], b[..., at + half], ("f16", "f16"), (16, 25, 23), t)
            t = t.astype(D)
        c = c + t.astype(F)
    return c
