"""Wrong kernels in numpy, one or more for each fault class, written to bundles.

They share no code with qassay and were written from the description of the classes (what real kernels did wrong), not from qassay's own
catalogue: what `qassay assay` says of these bundles tells whether the catalogue recognises kernels it does not know.

    python3 wrong_kernels.py OUTDIR [SEED]

Every bundle's `note` holds the truth, `class:what`. A right kernel of each op is written too (`right:…`): it must pass. What no class
describes is `unknown:…`: the answer has to be "unknown". `score.py` counts the answers.
Conventions of a bundle: data/bundles/README.md.
"""

import json
import os
import struct
import sys

import numpy as np

F = np.float32


# --- formats -------------------------------------------------------------------------------------------------------------


def table(exponent_bits, mantissa_bits, bias, top_is_special):
    """All 256 values of an 8-bit float; NaN where the format has no number."""
    values = np.zeros(256)
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        e, m = (code >> mantissa_bits) & ((1 << exponent_bits) - 1), code & ((1 << mantissa_bits) - 1)
        if e == 0:
            v = m / (1 << mantissa_bits) * 2.0 ** (1 - bias)
        else:
            v = (1 + m / (1 << mantissa_bits)) * 2.0 ** (e - bias)
        if top_is_special and e == (1 << exponent_bits) - 1:
            v = np.inf if m == 0 else np.nan
        if not top_is_special and e == (1 << exponent_bits) - 1 and m == (1 << mantissa_bits) - 1:
            v = np.nan
        values[code] = sign * v
    return values


E4M3 = table(4, 3, 7, False)
E5M2 = table(5, 2, 15, True)


def encode(x, values, mode="nearest"):
    """Codes of x, saturating; nearest with ties to even, or toward zero, or nearest with ties away."""
    half = values[:128]
    finite = np.isfinite(half)
    grid = half[finite]
    mag = np.minimum(np.abs(np.nan_to_num(x, nan=0.0)), grid[-1])
    low = np.searchsorted(grid, mag, side="right") - 1
    high = np.minimum(low + 1, len(grid) - 1)
    below, above = mag - grid[low], grid[high] - mag
    if mode == "zero":
        code = low
    elif mode == "away":
        code = np.where(above <= below, high, low)
    else:
        code = np.where((above < below) | ((above == below) & (low % 2 == 1)), high, low)
    code = np.where(mag == grid[-1], len(grid) - 1, code)
    code = np.where(np.signbit(x), code | 0x80, code)
    return np.where(np.isnan(x), 0x7F, code).astype(np.uint8)


def bf16(x):
    """Nearest even, kept in float32."""
    b = np.asarray(x, F).view(np.uint32).astype(np.uint64)
    r = ((b + 0x7FFF + ((b >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(F)
    return np.where(np.isfinite(x), r, np.asarray(x, F)).astype(F)


def bf16_cut(x):
    return (np.asarray(x, F).view(np.uint32) & np.uint32(0xFFFF0000)).view(F)


class Bf16(np.ndarray):
    """bfloat16 as its bits: numpy has no such type."""


def as_bf16_bits(x):
    return (np.asarray(x, F).view(np.uint32) >> 16).astype(np.uint16).view(Bf16)


# --- operands ------------------------------------------------------------------------------------------------------------


class Operands:
    """A[M,K] and B[N,K] in e4m3 with scale_inv by tensor, row or 1×G groups; scales differ and are no powers of two."""

    def __init__(self, rng, m, n, k, granularity, group=128, wide=0.9):
        self.m, self.n, self.k, self.granularity, self.group = m, n, k, granularity, group
        spread = np.exp(rng.normal(0, wide, size=(1, k)))
        self.a = (rng.standard_normal((m, k)) * spread * np.exp(rng.normal(0, 0.5, (m, 1)))).astype(F)
        self.b = (rng.standard_normal((n, k)) * np.exp(rng.normal(0, 0.5, (n, 1)))).astype(F)
        self.qa, self.sa = self.quantize(self.a)
        self.qb, self.sb = self.quantize(self.b)
        self.bias = rng.standard_normal(n).astype(F) * F(np.abs(self.right()).mean())

    def groups(self):
        return {"tensor": self.k, "row": self.k}.get(self.granularity, self.group)

    def quantize(self, x):
        g = self.groups()
        blocks = -(-x.shape[1] // g)
        scale = np.zeros((x.shape[0], blocks), F)
        for j in range(blocks):
            scale[:, j] = np.abs(x[:, j * g : (j + 1) * g]).max(axis=1) / F(448)
        if self.granularity == "tensor":
            scale[:] = scale.max() * F(1.0371)
        scale = np.maximum(scale, F(1e-20))
        return encode(x / np.repeat(scale, g, axis=1)[:, : x.shape[1]], E4M3), scale

    def values(self, q, s, values=E4M3):
        return values[q] * np.repeat(s.astype(np.float64), self.groups(), axis=1)[:, : q.shape[1]]

    def right(self):
        return self.values(self.qa, self.sa) @ self.values(self.qb, self.sb).T

    def tensors(self):
        shape = {"tensor": lambda s: s[:1, 0], "row": lambda s: s[:, 0]}.get(self.granularity, lambda s: s)
        t = {"a.codes": self.qa, "b.codes": self.qb}
        t["a.scale_inv"], t["b.scale_inv"] = (np.ascontiguousarray(shape(s)) for s in (self.sa, self.sb))
        return t

    def meta(self):
        g = {"tensor": "tensor", "row": "row"}.get(self.granularity, f"group:{self.group}")
        return {"op": "gemm", "a.format": "e4m3", "b.format": "e4m3", "a.granularity": g, "b.granularity": g}


def products(rng, m=70, n=83, k=592):
    """(truth, bundle) of wrong FP8 products."""
    t, r = Operands(rng, m, n, k, "tensor"), Operands(rng, m, n, k, "row")
    g = Operands(rng, m, n, k, "group")
    gemm = lambda o, qa=None, sa=None, qb=None, sb=None, va=E4M3, vb=E4M3: o.values(
        o.qa if qa is None else qa, o.sa if sa is None else sa, va
    ) @ o.values(o.qb if qb is None else qb, o.sb if sb is None else sb, vb).T
    for o in (t, r, g):
        yield f"right:gemm {o.granularity}", o, o.right(), {}
    yield "scale_omitted:a", t, gemm(t, sa=np.ones_like(t.sa)), {}
    yield "scale_omitted:b", g, gemm(g, sb=np.ones_like(g.sb)), {}
    yield "scale_doubled_inverted:a.twice", t, gemm(t, sa=t.sa * t.sa), {}
    yield "scale_doubled_inverted:b.inverted", t, gemm(t, sb=1 / t.sb), {}
    past = (t.sa[0, 0] * np.array([1.41, 0.83, 1.17])).astype(F)
    yield "stale_state:a.scale_inv", t, gemm(t, sa=np.full_like(t.sa, past[1])), {"a.scale_history": past}
    up = 2.0 ** np.ceil(np.log2(g.sb))
    yield "scale_rerounded:b.pow2_up", g, gemm(g, sb=up), {}
    yield "scale_rerounded:a.pow2_down", r, gemm(r, sa=2.0 ** np.floor(np.log2(r.sa))), {}
    yield "scale_rerounded:b.bf16", r, gemm(r, sb=bf16(r.sb)), {}
    yield "scale_shared:a.first_row", r, gemm(r, sa=np.repeat(r.sa[:1], m, axis=0)), {}
    yield "scale_shared:b.first_half", r, gemm(r, sb=r.sb[np.where(np.arange(n) < (n + 1) // 2, np.arange(n), np.arange(n) - (n + 1) // 2)]), {}
    yield "scale_index:a.not_advancing", g, gemm(g, sa=np.repeat(g.sa[:, :1], g.sa.shape[1], axis=1)), {}
    yield "scale_index:b.next", g, gemm(g, sb=np.roll(g.sb, -1, axis=1)), {}
    yield "scale_layout:b.column_major", g, gemm(g, sb=g.sb.flatten().reshape(g.sb.shape[::-1]).T.copy()), {}
    yield "bits_reinterpreted:b.sibling", t, gemm(t, vb=E5M2), {}
    yield "bits_reinterpreted:a.fnuz", t, gemm(t, va=E4M3 * 0.5), {}
    flushed = np.where(np.abs(E4M3) < 2.0**-6, 0, E4M3)
    # Most columns are small beside the largest: subnormal codes, which matter in the columns of the output that are small too.
    w = Operands(rng, m, n, k, "row", wide=4.0)
    w.qb[:, np.abs(w.a).max(axis=0) > 0.02 * np.abs(w.a).max()] = 0
    yield "codec_edge:a.subnormal_flushed", w, gemm(w, va=flushed), {}
    swapped = g.qb.reshape(n, k // 2, 2)[:, :, ::-1].reshape(n, k)
    yield "pack_permute:b.pairs", g, gemm(g, qb=swapped), {}
    cut = np.array(t.qa)
    cut[:, k // 128 * 128 :] = 0
    yield "k_tail:dropped.128", t, gemm(t, qa=cut), {}
    tail = t.values(t.qa, t.sa)[:, k // 64 * 64 :] @ t.values(t.qb, t.sb)[:, k // 64 * 64 :].T
    yield "k_tail:twice.64", t, t.right() + tail, {}
    last = t.values(t.qa, t.sa)[:, k // 64 * 64 :] @ t.values(t.qb, t.sb)[:, k // 64 * 64 :].T
    yield "acc_state:last_slice_only.64", t, last, {}
    lost = np.array(t.qa)
    lost[:, 64:128] = 0
    yield "acc_state:slice_lost.64", t, gemm(t, qa=lost), {}
    acc = np.zeros((m, n), np.float16)
    for i in range(0, k, 64):
        part = t.values(t.qa, t.sa)[:, i : i + 64] @ t.values(t.qb, t.sb)[:, i : i + 64].T
        acc = (acc.astype(np.float64) + part.astype(np.float16).astype(np.float64)).astype(np.float16)
    yield "lowprec_acc:f16.64", t, acc.astype(np.float64), {}
    acc = np.zeros((m, n), F)
    for i in range(0, k, 128):
        part = t.values(t.qa, t.sa)[:, i : i + 128] @ t.values(t.qb, t.sb)[:, i : i + 128].T
        acc = bf16(acc + bf16(part.astype(F)))
    yield "lowprec_acc:bf16.128", t, acc.astype(np.float64), {}
    edge = t.right()
    edge[m // 16 * 16 :] = 0
    yield "mn_edge:rows.16.zero", t, edge, {}
    edge = t.right()
    edge[:, n // 64 * 64 :] = np.nan
    yield "mn_edge:columns.64.unwritten", t, edge, {}
    yield "addressing:rows_in_pairs", t, t.right()[np.arange(m) // 2 * 2], {}
    yield "addressing:transposed", t, t.right().T.reshape(m, n), {}
    patch = t.right()
    patch[16:32, 32:48] = patch[16:32, 48:64]
    yield "race:tile_16x16.neighbour", t, patch, {}
    patch = t.right()
    patch[32:48, 16:32] = 0
    yield "race:tile_16x16.zero", t, patch, {}
    poison = t.right()
    poison[37] = np.nan
    yield "padding_poison:row", t, poison, {}
    yield "silent_skip:zeros", t, np.zeros((m, n)), {}
    yield "silent_skip:bias", t, t.right(), {"bias": t.bias}
    yield "rounding:out.toward_zero", t, bf16_cut(t.right().astype(F)).astype(np.float64), {}
    yield from more_products(rng, t, r, g, gemm)


def more_products(rng, t, r, g, gemm):
    m, n, k = t.m, t.n, t.k
    yield "scale_doubled_inverted:b.twice", r, gemm(r, sb=r.sb * r.sb), {}
    yield "scale_doubled_inverted:a.inverted", g, gemm(g, sa=1 / g.sa), {}
    past = (t.sb[0, 0] * np.array([0.61, 1.93])).astype(F)
    yield "stale_state:b.scale_inv", t, gemm(t, sb=np.full_like(t.sb, past[0])), {"b.scale_history": past}
    down = 2.0 ** np.floor(np.log2(g.sb))
    yield "scale_rerounded:b.pow2_nearest", g, gemm(g, sb=np.where(g.sb / down < np.sqrt(2), down, 2 * down)), {}
    yield "scale_shared:b.pairs", g, gemm(g, sb=g.sb[np.arange(n) // 2 * 2]), {}
    yield "scale_shared:a.last_row", r, gemm(r, sa=np.repeat(r.sa[-1:], m, axis=0)), {}
    groups = g.sb.shape[1]
    yield "scale_index:b.half_speed", g, gemm(g, sb=g.sb[:, np.arange(groups) // 2]), {}
    yield "scale_index:a.reversed", g, gemm(g, sa=g.sa[:, ::-1].copy()), {}
    along = E4M3[r.qb] * r.sb[np.arange(k) % n, 0].astype(np.float64)
    yield "scale_layout:b.other_axis", r, r.values(r.qa, r.sa) @ along.T, {}
    yield "scale_layout:swapped", r, gemm(r, sa=r.sb[np.arange(m) % n], sb=r.sa[np.arange(n) % m]), {}
    yield "scale_layout:a.transposed", g, gemm(g, sa=g.sa.T.reshape(g.sa.shape)), {}
    yield "bits_reinterpreted:b.fnuz", g, gemm(g, vb=E4M3 * 0.5), {}
    first = E4M3.copy()
    for sign in (0, 0x80):
        first[sign | 0x79 : sign | 0x7F] = E4M3[sign | 0x78]
    yield "codec_edge:b.top_binade", g, gemm(g, vb=first), {}
    eights = g.qb.reshape(n, k // 8, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(n, k)
    yield "pack_permute:b.interleaved_8", g, gemm(g, qb=eights), {}
    cut = np.array(t.qb)
    cut[:, -1] = 0
    yield "k_tail:last_element", t, gemm(t, qb=cut), {}
    over = np.array(t.qa)
    over[:, -16:] = np.roll(t.qa, -1, axis=0)[:, :16]
    yield "k_tail:a.overread", t, gemm(t, qa=over), {}
    half = np.array(g.qa)
    half[:, k // 2 :] = 0
    yield "acc_state:half_lost", g, gemm(g, qa=half), {}
    again = np.array(t.qa)
    again[:, :] = t.qa[:, np.arange(k) % 64]
    yield "acc_state:a.reused.64", t, gemm(t, qa=again), {}
    a, b = t.values(t.qa, t.sa), t.values(t.qb, t.sb)
    parts = [bf16((a[:, i : i + k // 2] @ b[:, i : i + k // 2].T).astype(F)).astype(np.float64) for i in (0, k // 2)]
    yield "lowprec_acc:split2.bf16", t, parts[0] + parts[1], {}
    edge = np.where(np.arange(m)[:, None] >= m // 64 * 64, np.nan, t.right())
    yield "mn_edge:rows.64.unwritten", t, edge, {}
    flat = np.full((m, -(-n // 16) * 16), np.nan)
    flat[:, :n] = t.right()
    yield "addressing:padded_stride", t, flat.reshape(-1)[: m * n].reshape(m, n), {}
    yield "addressing:shifted_column", t, np.roll(t.right(), 1, axis=1), {}
    patch = t.right()
    patch[8:16, 32:64] = t.right()[16:24, 32:64]
    yield "race:tile_8x32.neighbour", t, patch, {}
    poison = t.right()
    poison[:, -1] = np.nan
    yield "padding_poison:last_column", t, poison, {}
    yield "silent_skip:second_half", t, np.where(np.arange(m)[:, None] >= (m + 1) // 2, np.nan, t.right()), {}
    yield "silent_skip:unwritten", t, np.full((m, n), np.nan), {}
    rows = np.arange(max(m, n))
    yield "scale_shared:a.next_row", r, gemm(r, sa=r.sa[np.minimum(rows[:m] + 1, m - 1)]), {}
    yield "scale_shared:a.previous_row_wrapped", g, gemm(g, sa=np.roll(g.sa, 1, axis=0)), {}
    yield "scale_shared:b.previous_row", g, gemm(g, sb=g.sb[np.maximum(rows[:n] - 1, 0)]), {}
    yield "scale_shared:b.next_row_wrapped", r, gemm(r, sb=np.roll(r.sb, -1, axis=0)), {}
    acc = np.zeros((m, n), np.float16)
    for i in range(k):
        acc = acc + np.outer(a[:, i].astype(F), b[:, i].astype(F)).astype(np.float16)
    yield "lowprec_acc:f16.add", t, acc.astype(np.float64), {}
    ha, hb = (o.astype(np.float16).astype(np.float64) for o in (g.values(g.qa, g.sa), g.values(g.qb, g.sb)))
    acc = np.zeros((m, n), np.float16)
    for i in range(k):
        acc = (acc + np.outer(ha[:, i], hb[:, i])).astype(np.float16)
    yield "lowprec_acc:f16.operands.fma", g, acc.astype(np.float64), {}
    yield "round_order:dequantized.bf16", g, bf16(g.values(g.qa, g.sa)) @ bf16(g.values(g.qb, g.sb)).T.astype(np.float64), {}
    yield "round_order:b.dequantized.f16", r, r.values(r.qa, r.sa) @ r.values(r.qb, r.sb).astype(np.float16).astype(np.float64).T, {}
    inside = lambda o: E4M3[o.qa] @ E4M3[o.qb].T
    yield "scale_doubled_inverted:bias", r, (inside(r) + r.bias) * r.sa * r.sb.T.astype(np.float64), {"bias": r.bias}
    yield "scale_doubled_inverted:bias.b", t, (inside(t) * t.sa + t.bias) * t.sb.T.astype(np.float64), {"bias": t.bias}
    for granularity, variant in (("row", "b.column_major"), ("group", "b.column_major_with_scales")):
        s = Operands(rng, 40, 256, 256, granularity)
        other = s.values(s.qb.T, s.sb) if granularity == "row" else s.values(s.qb, s.sb).T
        yield f"pack_permute:{variant}", s, s.values(s.qa, s.sa) @ other.T, {}
    # Bugs that no class of the catalogue describes.
    d = t.right()
    yield "unknown:squared in one row", t, np.where(np.arange(m)[:, None] == 11, d * np.abs(d), d), {}
    yield "unknown:noise of 2 %", t, d * (1 + 0.02 * rng.standard_normal((m, n))), {}
    yield "unknown:gain along columns", t, d * (1 + np.arange(n) / n), {}
    yield "unknown:K in 7 pieces, the fourth with the wrong sign", t, d - 2 * a[:, 254:339] @ b[:, 254:339].T, {}
    yield "unknown:offset where positive", t, np.where(d > 0, d + 0.5 * np.abs(d).mean(), d), {}


DTYPES = {"float32": "F32", "float16": "F16", "uint8": "U8", "int8": "I8", "int32": "I32", "float64": "F64"}


def write(path, tensors, meta, truth):
    """A safetensors file: the length of a JSON header, the header, the bytes."""
    fixed = {"qassay.bundle": "1", "note": truth, "kernel": "numpy, wrong on purpose"}
    header, data = {"__metadata__": {**fixed, **meta}}, b""
    for name, x in tensors.items():
        dtype = "BF16" if isinstance(x, Bf16) else DTYPES[x.dtype.name]
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def scaled_casts(rng, rows=53, cols=171):
    """Casts to e4m3 by a given scale, with amax."""
    x = (rng.standard_normal((rows, cols)) * np.exp(rng.normal(0, 1.5, (1, cols)))).astype(F)
    # The largest value in the second half of the rows: an amax of the first half shows.
    x = x if np.abs(x).argmax() // cols >= (rows + 1) // 2 else x[::-1].copy()
    amax = np.abs(x).max()
    scale = F(448) / (amax * F(1.0734))
    y = (x * scale).astype(F)
    inv = F(1) / scale
    right = encode(y, E4M3)
    flush = np.where((right & 0x7F) < 8, right & 0x80, right).astype(np.uint8)
    low = encode(y, E4M3, "zero")
    low_value = E4M3[low]
    up = np.minimum((low & 0x7F) + 1, 126) | (np.signbit(y) * 0x80).astype(np.uint8)
    gap = np.abs(E4M3[up] - low_value)
    fraction = np.divide(np.abs(y - low_value), gap, out=np.zeros(x.shape), where=gap > 0)
    high = np.where(fraction > 0.3125, up, low).astype(np.uint8)
    cases = {
        "right:cast": (right, inv, amax),
        "rounding:out.toward_zero": (low, inv, amax),
        "range_rule:out.clamped_240": (encode(np.clip(y, -240, 240), E4M3), inv, amax),
        "codec_edge:out.subnormal_flushed": (flush, inv, amax),
        "round_order:out.bf16_first": (encode((bf16(x) * scale).astype(F), E4M3), inv, amax),
        "amax_scope:not_written": (right, inv, F(0)),
        "amax_scope:first_half": (right, inv, np.abs(x[: (rows + 1) // 2]).max()),
        "sr_broken:out.same_draw": (high, inv, amax),
        "overflow_wrap:out.native": None,
        "scale_omitted:out": (encode(x, E4M3), inv, amax),
        "scale_doubled_inverted:out.twice": (encode((y * scale).astype(F), E4M3), inv, amax),
        "bits_reinterpreted:out.sibling": (encode(y, E5M2), inv, amax),
        "scale_doubled_inverted:out.scale_inv": (right, scale, amax),
        "stale_state:out.scale": (encode((y * F(0.77)).astype(F), E4M3), inv, amax),
        "amax_scope:of_codes": (right, inv, F(np.abs(E4M3[right]).max() * inv)),
        "amax_scope:bf16": (right, inv, bf16(amax)),
        "rounding:out.up": (np.where(y > 0, np.where(E4M3[low] == y, low, up), low).astype(np.uint8), inv, amax),
        "silent_skip:zeros": (np.zeros_like(right), inv, amax),
        "addressing:transposed": (right.T.reshape(rows, cols).copy(), inv, amax),
        "unknown:two codes too far in columns 40 to 59": (
            np.where((np.arange(cols) // 20 == 2) & ((right & 0x7F) < 120), right + 2, right).astype(np.uint8), inv, amax),
        "stale_state:out.scale_inv": (right, inv * F(1.21), amax),
    }
    # Values beyond the range wrap into NaN where nothing clamps them.
    hot = (scale * F(2.5)).astype(F)
    z = (x * hot).astype(F)
    cases["overflow_wrap:out.native"] = (np.where(np.abs(z) > 464, 0x7F | (np.signbit(z) * 0x80).astype(np.uint8), encode(z, E4M3)).astype(np.uint8), F(1) / hot, amax)
    # Inputs on a coarse grid and a scale that is a power of two: ties.
    coarse = (np.clip(np.rint(x * 4), -400, 400) / 4).astype(F)
    cases["rounding:out.half_away"] = (encode(coarse * F(2), E4M3, "away"), F(0.5), np.abs(coarse).max())
    for truth, (codes, scale_inv, a) in cases.items():
        ties = truth == "rounding:out.half_away"
        s = F(2) if ties else hot if truth == "overflow_wrap:out.native" else scale
        tensors = {
            "a": coarse if ties else x,
            "out.codes": codes,
            "out.scale": np.array([s], F),
            "out.scale_inv": np.array([scale_inv], F),
            "out.amax": np.array([a], F),
        }
        yield truth, tensors, {"op": "cast", "out.format": "e4m3"}


def weight_only(rng, m=33, n=48, k=448, g=64):
    """int8 activations by row (symmetric) times uint4 weights by group with integer zero points: zero-point faults."""
    x = rng.standard_normal((m, k)).astype(F)
    sx = (np.abs(x).max(axis=1, keepdims=True) / 127).astype(F)
    qx = np.clip(np.rint(x / sx), -127, 127).astype(np.int8)
    w = (rng.standard_normal((n, k)) + rng.normal(0, 1.2, (n, 1))).astype(F)
    blocks = w.reshape(n, k // g, g)
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    sw = ((high - low) / 15).astype(F)
    zw = np.clip(np.rint(-low / sw), 0, 15).astype(np.int32)
    qw = np.clip(np.rint(blocks / sw[:, :, None]) + zw[:, :, None], 0, 15).astype(np.uint8)
    xs = qx * sx.astype(np.float64)

    def product(z, q=qw):
        weights = (q.astype(np.float64) - z[:, :, None]) * sw[:, :, None].astype(np.float64)
        return xs @ weights.reshape(n, k).T

    flat = qw.reshape(n, k)
    pairs = flat.reshape(n, k // 2, 2)[:, :, ::-1].reshape(n, k // g, g)
    cases = {
        "right:w4a8": product(zw),
        "zp_offset:b.plus_one": product(zw + 1),
        "zp_offset:b.minus_one": product(zw - 1),
        "zp_correction:b.omitted": product(zw * 0),
        "zp_correction:b.negated": product(-zw),
        "zp_correction:b.first_group": product(np.repeat(zw[:, :1], k // g, axis=1)),
        "zp_offset:b.eight": product(zw - 8),
        "zp_correction:b.default": product(zw * 0 + 8),
        "unknown:zero points doubled in odd groups": product(zw * (1 + np.arange(k // g) % 2)),
        "pack_permute:b.pairs": product(zw, pairs),
    }
    for truth, d in cases.items():
        tensors = {
            "a.codes": qx, "a.scale_inv": sx[:, 0].copy(), "b.codes": flat, "b.scale_inv": sw, "b.zero_point": zw,
            "out": d.astype(np.float16),
        }
        meta = {
            "op": "gemm", "a.format": "int8", "a.granularity": "row", "b.format": "uint4", "b.granularity": f"group:{g}", "b.zero": "integer",
        }
        yield truth, tensors, meta


def grouped(rng, k=112, n=64):
    """Grouped products with row scales: boundaries and experts."""
    ends = [19, 19, 52, 90]
    m, e = ends[-1], len(ends)
    x = (rng.standard_normal((m, k)) * np.exp(rng.normal(0, 0.6, (m, 1)))).astype(F)
    w = (rng.standard_normal((e * n, k)) * np.exp(rng.normal(0, 0.6, (e * n, 1)))).astype(F)
    sx, sw = (np.abs(v).max(axis=1, keepdims=True).astype(F) / F(448) for v in (x, w))
    qx, qw = encode(x / sx, E4M3), encode(w / sw, E4M3)

    def product(offs, order=range(e), scales=None):
        weights = (E4M3[qw] * (sw if scales is None else scales).astype(np.float64)).reshape(e, n, k)
        d, start = np.zeros((m, n)), 0
        for i, end in enumerate(offs):
            d[start:end] = (E4M3[qx[start:end]] * sx[start:end].astype(np.float64)) @ weights[list(order)[i]].T
            start = end
        return d

    first = np.tile(sw[:n], (e, 1))
    cases = {
        "right:grouped_gemm": product(ends),
        "group_boundary:first_end_early": product([ends[0] - 1] + ends[1:]),
        "group_boundary:aligned_up_16": product([min(-(-o // 16) * 16, m) for o in ends[:-1]] + [m]),
        "group_boundary:next_expert": product(ends, [1, 2, 3, 0]),
        "group_boundary:empty_not_counted": product(ends, [0, 1, 1, 2]),
        "scale_shared:b.empty_not_counted": product(ends, scales=np.concatenate([sw[i * n : (i + 1) * n] for i in (0, 1, 1, 2)])),
        "scale_shared:b.first_expert": product(ends, scales=first),
    }
    for truth, d in cases.items():
        tensors = {
            "a.codes": qx, "a.scale_inv": sx[:, 0].copy(), "b.codes": qw.reshape(e, n, k), "b.scale_inv": sw.reshape(e, n),
            "offs": np.array(ends, np.int32), "out": d.astype(F),
        }
        meta = {"op": "grouped_gemm", "a.format": "e4m3", "b.format": "e4m3", "a.granularity": "row", "b.granularity": "row"}
        yield truth, tensors, meta


def block_casts(rng, rows=24, cols=512):
    """Casts that choose their scales themselves, 1×128 f32 scales (recipe te_block_1x128_fp32): wrong range, and blocks of zeros."""
    x = (rng.standard_normal((rows, cols)) * np.exp(rng.normal(0, 1.0, (rows, 1)))).astype(F)
    x[3, 128:256] = 0
    blocks = x.reshape(rows, cols // 128, 128)
    amax = np.abs(blocks).max(axis=2)

    def cast(top, empty=F(1)):
        scale = np.where(amax > 0, F(top) / np.where(amax > 0, amax, 1), F(1)).astype(F)
        codes = encode((blocks * scale[:, :, None]).astype(F), E4M3)
        inv = np.where(amax > 0, F(1) / scale, empty).astype(F)
        codes = np.where(np.isnan(inv)[:, :, None], 0x7F, codes).astype(np.uint8)
        return codes.reshape(rows, cols), inv

    cases = {
        "right:block cast": cast(448),
        "range_rule:recipe.max_240": cast(240),
        "range_rule:recipe.max_half": cast(224),
        "degenerate_block:nan": cast(448, F(np.nan)),
    }
    for truth, (codes, inv) in cases.items():
        tensors = {"a": x, "out.codes": codes, "out.scale_inv": inv}
        yield truth, tensors, {"op": "cast", "out.format": "e4m3", "out.granularity": "group:128", "recipe": "te_block_1x128_fp32"}


def main():
    out = sys.argv[1]
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    os.makedirs(out, exist_ok=True)
    count = 0

    def save(truth, tensors, meta):
        nonlocal count
        name = truth.replace(":", "-").replace(".", "_").replace(" ", "_")
        write(os.path.join(out, f"{count:03}-{name}.safetensors"), tensors, meta, truth)
        count += 1

    for truth, o, d, more in products(rng):
        # Partial sums in 16 bits show in a wide result; the others are stored in bf16, as kernels do.
        result = d.astype(F) if truth.startswith("lowprec") else as_bf16_bits(d if truth.startswith("rounding") else bf16(d.astype(F)))
        save(truth, {**o.tensors(), **more, "out": result}, o.meta())
    for family in (scaled_casts, weight_only, grouped, block_casts):
        for truth, tensors, meta in family(rng):
            save(truth, tensors, meta)
    print(f"{count} bundles in {out}")


if __name__ == "__main__":
    # NaN and Inf on purpose.
    with np.errstate(invalid="ignore", over="ignore"):
        main()
