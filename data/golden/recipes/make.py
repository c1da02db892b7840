#!/usr/bin/env python3
"""Writes tensors.csv and recipes.csv beside this file: what each quantization recipe must make of a few small tensors.

Needs numpy and ml_dtypes, nothing of this project: written from the sources' formulas, so that the Rust recipes have a
judge in another language, with other casts (ml_dtypes) and other f16 and bf16 arithmetic (numpy, ml_dtypes).
Usage: python3 make.py
"""

import csv
import hashlib
import os

import ml_dtypes
import numpy as np

np.seterr(all="ignore")
F32, F16, BF16, F64 = np.float32, np.float16, ml_dtypes.bfloat16, np.float64
DTYPES = {"f32": F32, "f16": F16, "bf16": BF16}
CODE = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
MAX = {"e4m3": 448, "e5m2": 57344, "e4m3fnuz": 240, "e5m2fnuz": 57344, "e2m3": 7.5, "e3m2": 28, "e2m1": 6}
NAN = {"e4m3": 0x7F, "e5m2": 0x7F, "e4m3fnuz": 0x80, "e5m2fnuz": 0x80}
# exponent of the maximum, mantissa bits
EMAX = {"e4m3": 8, "e5m2": 15, "e2m3": 2, "e3m2": 4, "e2m1": 2}
MANTISSA = {"e4m3": 3, "e5m2": 2, "e2m3": 3, "e3m2": 2, "e2m1": 1}
FLT_MAX = np.finfo(F32).max


# ---- inputs: a linear congruential generator, the same in tests/recipes_golden.rs ----

def generate(kind, dtype, rows, cols, seed):
    state = seed

    def word():
        nonlocal state
        state = (state * 1664525 + 1013904223) % 2**32
        return state

    def uniform():
        return (float(word() >> 8) - 2.0**23) * 2.0**-23

    out = np.empty(rows * cols, dtype=DTYPES[dtype])
    for i in range(rows * cols):
        if kind == "bits":
            w = word()
            raw = np.uint32(w) if dtype == "f32" else np.uint16(w >> 16)
            out[i] = np.array([raw]).view(DTYPES[dtype])[0]
            continue
        if kind == "sum":
            v = uniform() + uniform() + uniform()
        elif kind == "wide":
            v = uniform() * 2.0 ** float((word() >> 8) % 13) * 2.0**-6
        elif kind == "skewed":
            v = uniform() + 1.5
        elif kind == "zeros":
            v = uniform()
            if (i % cols) // 16 % 3 == 0:
                v = -0.0 if v < 0 else 0.0
        elif kind == "tiny":
            v = uniform() * 2.0**-9 * (2.0**-6 if (i // cols) % 2 else 1.0)
        elif kind == "subnormal":
            v = uniform() * 2.0**-127
        elif kind == "powers":
            # Each block's first and largest: up to 23 ulp above a format's maximum times a power of two.
            if i % 32 == 0:
                w = word()
                top = F32((448.0, 57344.0, 7.5, 28.0, 6.0)[i // 32 % 5] * 2.0 ** float((w >> 8) % 121) * 2.0**-60)
                top = np.array([int(top.view(np.uint32)) + (w >> 16) % 24], np.uint32).view(F32)[0]
                v = top
            else:
                v = uniform() * 0.5 * float(top)
        out[i] = F32(v).astype(DTYPES[dtype])
    return out.reshape(rows, cols)


TENSORS = [
    # name, kind, dtype, rows, cols, seed
    ("sum_f32", "sum", "f32", 5, 300, 1),
    ("sum_f16", "sum", "f16", 4, 256, 2),
    ("wide_bf16", "wide", "bf16", 6, 256, 3),
    ("wide_f16", "wide", "f16", 4, 200, 4),
    ("skewed_f32", "skewed", "f32", 3, 160, 5),
    ("skewed_bf16", "skewed", "bf16", 4, 128, 6),
    ("zeros_bf16", "zeros", "bf16", 4, 320, 7),
    ("zeros_f32", "zeros", "f32", 3, 96, 8),
    ("tiny_f16", "tiny", "f16", 4, 96, 9),
    ("tiny_bf16", "tiny", "bf16", 4, 96, 10),
    ("bits_f32", "bits", "f32", 4, 256, 11),
    ("bits_f16", "bits", "f16", 4, 384, 12),
    ("bits_bf16", "bits", "bf16", 4, 384, 13),
    ("subnormal_f32", "subnormal", "f32", 3, 128, 14),
    ("tall_bf16", "sum", "bf16", 150, 140, 15),
    ("tall_f32", "wide", "f32", 130, 40, 16),
    ("powers_f32", "powers", "f32", 6, 320, 17),
]


# ---- tiles ----

def grid(x, tile):
    r, c = tile
    r, c = r or x.shape[0], c or x.shape[1]
    return [(slice(i, i + r), slice(j, j + c)) for i in range(0, x.shape[0], r) for j in range(0, x.shape[1], c)]


def amax_fmax(t):
    """fmaxf over the tile, from 0: NaN loses."""
    a = np.abs(t.astype(F32))
    return F32(np.nanmax(np.append(a[~np.isnan(a)], F32(0))))


def amax_torch(t):
    """torch.amax: NaN wins."""
    return F32(np.max(np.abs(t.astype(F32))))


def fp8(v, fmt, saturate=True):
    """f32 values to codes by ml_dtypes, after the clamp; canonical NaN."""
    m = F32(MAX[fmt])
    c = (np.clip(v, -m, m) if saturate else v).astype(CODE[fmt])
    codes = c.view(np.uint8).copy()
    codes[np.isnan(c.astype(F32))] = NAN[fmt]
    return codes


def small(v, fmt, nan_code):
    """f32 values to a format without NaN."""
    nan = np.isnan(v)
    m = F32(MAX[fmt])
    codes = np.clip(np.where(nan, F32(0), v), -m, m).astype(CODE[fmt]).view(np.uint8).copy()
    codes[nan] = nan_code
    return codes


def f32_to_small_bits(fmt):
    """torchao's integer path for a NaN of bits 0x7FC00001 in the branch of normal numbers."""
    ebits = {"e2m1": 2, "e2m3": 2, "e3m2": 3}[fmt]
    mbits = MANTISSA[fmt]
    bias = 2 ** (ebits - 1) - 1
    x = 0x7FC00001
    odd = (x >> (23 - mbits)) & 1
    x += ((bias - 127) << 23) + (2 ** (23 - mbits - 1) - 1) + odd
    return (x >> (23 - mbits)) & 0xFF


class Result:
    def __init__(self, x):
        self.codes = np.zeros(x.shape, np.uint8)
        self.scale_inv, self.zero, self.glob = [], None, None


# ---- TransformerEngine ----

def te_scale(amax, m, infinite, pow2):
    if amax == 0 or not np.isfinite(amax):
        return F32(1)
    s = F32(m) / F32(amax)
    if np.isinf(s):
        s = F32(infinite)
    if pow2:
        s = F32(np.ldexp(F32(1), int(np.frexp(s)[1]) - 1))
    return s


def te_tiles(x, fmt, tile, infinite, pow2):
    r = Result(x)
    for t in grid(x, tile):
        s = te_scale(amax_fmax(x[t]), MAX[fmt], infinite, pow2)
        r.codes[t] = fp8(x[t].astype(F32) * s, fmt)
        r.scale_inv.append(F32(1) / s)
    return r


def te_delayed(x, fmt):
    history, s = [], F32(1)
    q = -(-x.shape[0] // 4)
    for step in range(3):
        part = x[step * q:(step + 1) * q]
        if not len(part):
            continue
        a = amax_fmax(part)
        if a != 0:
            history.append(a)
            top = max(history)
            if np.isfinite(top):
                s = F32(MAX[fmt]) / top
                s = FLT_MAX if np.isinf(s) else s
    r = Result(x)
    r.codes = fp8(x.astype(F32) * s, fmt)
    r.scale_inv = [F32(1) / s]
    return r


def dtype_max(x):
    return float(ml_dtypes.finfo(x.dtype).max)


def e8m0_up(v):
    """Smallest byte b with 2^(b-127) ≥ v; Inf 254."""
    if not np.isfinite(v):
        return 254
    if v == 0:
        return 0
    mantissa, e = np.frexp(F64(v))
    e = int(e) - 1 + (1 if mantissa > 0.5 else 0)
    return min(max(e, -127), 127) + 127


def with_bytes(x, fmt, tile, byte, nan_code):
    r = Result(x)
    for t in grid(x, tile):
        b = byte(x[t])
        s = F32(np.nan) if b == 255 else F32(np.ldexp(F64(1), 127 - b))
        v = x[t].astype(F32) * s
        r.codes[t] = fp8(v, fmt) if fmt in NAN else small(v, fmt, nan_code)
        r.scale_inv.append(F32(np.nan) if b == 255 else F32(np.ldexp(F64(1), b - 127)))
    return r


def te_mxfp8(x, fmt, tile):
    return with_bytes(x, fmt, tile, lambda t: e8m0_up(amax_fmax(t) * (F32(1) / F32(MAX[fmt]))), None)


def to_e4m3(v):
    return F32(np.clip(F32(v), F32(-448), F32(448)).astype(ml_dtypes.float8_e4m3fn))


def te_nvfp4(x, tile):
    r = Result(x)
    a = amax_fmax(x)
    s = F32(1) if a == 0 else min(F32(2688) / a, FLT_MAX)
    s = F32(1) if s == 0 else s
    d = F32(1) / s
    for t in grid(x, tile):
        b = to_e4m3(min(amax_fmax(x[t]) * (s * (F32(1) / F32(6))), FLT_MAX))
        e = min(F32(1) / (b * d), FLT_MAX)
        r.codes[t] = small(x[t].astype(F32) * e, "e2m1", 7)
        r.scale_inv.append(b)
    r.glob = d
    return r


# ---- torchao ----

def float8(x, fmt, tile, pow2):
    r = Result(x)
    for t in grid(x, tile):
        a = F64(amax_torch(x[t]))
        s = F32(F64(MAX[fmt]) / np.maximum(a, 1e-12))
        if pow2:
            s = F32(np.exp2(np.floor(F32(np.log2(F64(s))))))
        r.codes[t] = fp8(x[t].astype(F32) * s, fmt)
        r.scale_inv.append(F32(1) / s)
    return r


def float8_inference(x, fmt, tile):
    r = Result(x)
    for t in grid(x, tile):
        a = np.max(np.abs(x[t]))
        s = F32(a / x.dtype.type(MAX[fmt])) if x.dtype == F32 else (F32(a) / F32(MAX[fmt])).astype(x.dtype).astype(F32)
        r.codes[t] = fp8(x[t].astype(F32) / s, fmt)
        r.scale_inv.append(s)
    return r


def mx(x, fmt, mode):
    def byte(t):
        a = amax_torch(t)
        if mode == "rceil":
            v = a * (F32(1) / F32(MAX[fmt]))
            return e8m0_up(v) if np.isfinite(v) else 255
        bits = int(np.array([a]).view(np.uint32)[0])
        if mode == "even" and not np.isnan(a):
            bits = (bits + (1 << (22 - MANTISSA[fmt]))) & 0xFF800000
        if (bits >> 23) & 255 == 255:
            return 255
        p = ((bits >> 23) & 255) - 127 + (1 if mode == "ceil" and bits & 0x7FFFFF else 0)
        return min(max(p - EMAX[fmt], -127), 128) + 127

    nan_code = None if fmt in NAN else f32_to_small_bits(fmt)
    return with_bytes(x, fmt, (1, 32), byte, nan_code)


def mx_v018(x, fmt, mode):
    """As torchao v0.12 to v0.18 has it: a division by the scale, which is at least f32's smallest normal number."""
    nan_code = None if fmt in NAN else f32_to_small_bits(fmt)
    r = Result(x)
    for t in grid(x, (1, 32)):
        a = amax_torch(x[t])
        if mode == "rceil":
            d = a / F32(MAX[fmt])
            b = 255 if np.isnan(d) else int(np.clip(np.ceil(F32(np.log2(F64(d)))), -127, 127)) + 127
            v = x[t].astype(F32) * (F32(np.nan) if b == 255 else F32(1) if b == 0 else F32(np.ldexp(F64(1), 127 - b)))
        else:
            bits = int(np.array([a]).view(np.uint32)[0])
            if mode == "even":
                bits = (bits + (1 << (22 - MANTISSA[fmt]))) & 0xFF800000
            p = ((bits >> 23) & 255) - 127 + (1 if mode == "ceil" and bits & 0x7FFFFF else 0)
            b = 255 if np.isnan(a) else min(max(p - EMAX[fmt], -127), 128) + 127
            divisor = np.maximum(np.array([b << 23], np.uint32).view(F32)[0], F32(2.0**-126))
            v = x[t].astype(F32) / divisor
        r.codes[t] = fp8(v, fmt) if fmt in NAN else small(v, fmt, nan_code)
        r.scale_inv.append(F32(np.nan) if b == 255 else F32(np.ldexp(F64(1), b - 127)))
    return r


def ao_nvfp4(x):
    r = Result(x)
    g = amax_torch(x) / F32(2688)
    for t in grid(x, (1, 16)):
        b = to_e4m3(np.clip(amax_torch(x[t]) / F32(6) / g, F32(2.0**-6), F32(448)))
        r.codes[t] = small(x[t].astype(F32) * ((F32(1) / g) / b), "e2m1", f32_to_small_bits("e2m1"))
        r.scale_inv.append(b)
    r.glob = g
    return r


def deepseek(x, tile, ue8m0):
    r = Result(x)
    for t in grid(x, tile):
        s = np.maximum(amax_torch(x[t]), F32(1e-4)) / F32(448)
        if ue8m0:
            bits = int(np.array([s], F32).view(np.uint32)[0])
            e = min(max((bits >> 23 & 255) + (1 if bits & 0x7FFFFF else 0), 1), 254)
            s = np.array([e << 23], np.uint32).view(F32)[0]
        r.codes[t] = fp8(x[t].astype(F32) * (F32(1) / s), "e4m3", saturate=False)
        r.scale_inv.append(F32(s))
    return r


def to_code(v, bits):
    """NaN is 0."""
    return (np.where(np.isnan(v), 0, v).astype(np.int64) & (2**bits - 1)).astype(np.uint8)


def affine(x, group, mapping, qmin, qmax, bits, eps, scale_dtype, stored_zero):
    """All in the dtype of x: numpy rounds each f16 and bf16 operation."""
    T = x.dtype.type
    r = Result(x)
    zeros = []
    for t in grid(x, (1, group)):
        low, high = np.min(x[t]), np.max(x[t])
        low, high = np.minimum(low, T(0)), np.maximum(high, T(0))
        if mapping == "asym":
            s = T(high - low) / T(qmax - qmin)
        elif mapping == "sym":
            s = np.maximum(-low, high) / T((qmax - qmin) / 2)
        else:
            below, above = low / T(qmin), high / T(qmax)
            s = below if below > above else above
        s = np.maximum(T(s), T(F32(eps)))
        z = T((qmax + qmin + 1) // 2)
        if mapping == "asym":
            z = np.clip(T(qmin) - np.rint(T(low / s)), T(qmin), T(qmax))
        s = scale_dtype(s)
        common = np.result_type(x.dtype, np.dtype(scale_dtype)) if x.dtype != np.dtype(scale_dtype) else x.dtype
        v = x[t].astype(common) * (scale_dtype(1) / s).astype(common)
        v = np.rint(v) + common.type(z)
        r.codes[t] = to_code(np.clip(v, common.type(qmin), common.type(qmax)).astype(F64), bits)
        r.scale_inv.append(F32(s))
        zeros.append(F32(0) if np.isnan(z) else F32(z) + F32(0))
    r.zero = zeros if stored_zero else None
    return r


def tinygemm(x, group):
    T = x.dtype.type
    r = Result(x)
    r.zero = []
    for t in grid(x, (1, group)):
        low, high = np.min(x[t]), np.max(x[t])
        s = np.maximum(T(T(high - low) / T(15)), T(F32(1e-6)))
        z = BF16(T(low + T(s * T(8))))
        s = BF16(s)
        bottom = BF16(z - BF16(s * BF16(8)))
        C = BF16 if x.dtype == BF16 else F32
        v = np.rint((x[t].astype(C) - C(bottom)) / C(s))
        r.codes[t] = to_code(np.clip(v, C(0), C(15)).astype(F64), 4)
        r.scale_inv.append(F32(s))
        r.zero.append(F32(z))
    return r


def awq(x, group):
    """AutoAWQ with unit vectors as calibration inputs: the methods' text in numpy's f16, weights packed as from_linear does it."""

    def pseudo_quantize(w):
        low, high = np.min(w), np.max(w)
        scales = F16(F32(np.maximum(F16(high - low), F16(1e-5))) / F32(15))
        zeros = np.clip(-np.rint(F16(low / scales)), F16(0), F16(15))
        q = np.clip(np.rint(w / scales) + zeros, F16(0), F16(15))
        return (q - zeros) * scales, scales, zeros

    def clip(w, c):
        return w if np.isnan(c) else np.clip(w, -c, c)

    r = Result(x)
    r.zero = []
    for t in grid(x, (1, group)):
        w = x[t].astype(F16)
        org_max = np.max(np.abs(w))
        best, least = org_max, F16(np.inf)
        for i in range(10):
            c = F16(F32(org_max) * F32(1 - i / 20))
            e = pseudo_quantize(clip(w, c))[0] - w
            err = F16((e * e).astype(F64).sum() / w.size)
            if err < least:
                best, least = c, err
        value, scales, zeros = pseudo_quantize(clip(w, best))
        packed = np.rint((value + zeros * scales) / scales)
        r.codes[t] = np.where(np.isnan(packed), 0, packed).astype(np.uint8)
        r.scale_inv.append(F32(scales))
        r.zero.append(F32(0) if np.isnan(zeros) else F32(zeros) + F32(0))
    return r


def nearest_int(f):
    """llama.cpp's: the low mantissa bits of f + 1.5·2^23; 0 for NaN."""
    f = np.asarray(f, F32)
    bits = ((f + F32(12582912)).astype(F32).view(np.int32) & 0x7FFFFF) - 0x400000
    return np.where(np.isnan(f), 0, bits)


def make_qkx2_quants(x):
    """ggml-quants.c's, for 4 bits, with the arguments of quantize_row_q4_K_ref: (L, scale, the_min)."""
    size = F32(0)
    for v in x:
        size = size + v * v
    w = np.sqrt(size / F32(len(x))) + np.abs(x)
    low, high, sum_w, sum_x = x[0], x[0], w[0], w[0] * x[0]
    for v, u in zip(x[1:], w[1:]):
        low = v if v < low else low
        high = v if v > high else high
        sum_w, sum_x = sum_w + u, sum_x + u * v
    low = F32(0) if low > 0 else low
    if high == low:
        return np.zeros(len(x), np.uint8), F32(0), -low

    def codes(inverse):
        return np.clip(nearest_int(inverse * (x - low)), 0, 15).astype(np.uint8)

    def error(L, scale, least):
        total = F32(0)
        for c, v, u in zip(L, x, w):
            d = scale * F32(c) + least - v
            total = total + u * (d * d)
        return total

    inverse = F32(15) / (high - low)
    scale, L = F32(1) / inverse, codes(inverse)
    best = error(L, scale, low)
    for i in range(21):
        trial = codes((F32(-1) + F32(0.1) * F32(i) + F32(15)) / (high - low))
        sum_l, sum_l2, sum_xl = F32(0), F32(0), F32(0)
        for c, v, u in zip(trial.astype(F32), x, w):
            sum_l, sum_l2, sum_xl = sum_l + u * c, sum_l2 + u * c * c, sum_xl + u * c * v
        d = sum_w * sum_l2 - sum_l * sum_l
        if d > 0:
            s, m = (sum_w * sum_xl - sum_x * sum_l) / d, (sum_l2 * sum_x - sum_l * sum_xl) / d
            if m > 0:
                s, m = sum_xl / sum_l2, F32(0)
            e = error(trial, s, m)
            if e < best:
                L, best, scale, low = trial, e, s, m
    return L, scale, -low


def q4_k(x):
    """quantize_row_q4_K_ref of llama.cpp, C without contraction."""
    r = Result(x)
    r.zero, d, dmin = [], [], []
    for t in grid(x, (1, 256)):
        block = x[t][0].astype(F32)
        groups = [block[i:i + 32] for i in range(0, len(block), 32)]
        fits = [make_qkx2_quants(g) for g in groups]

        def six(values):
            largest = F32(0)
            for v in values:
                largest = v if v > largest else largest
            inverse = F32(63) / largest if largest > 0 else F32(0)
            return [min(63, int(nearest_int(inverse * v)) & 255) for v in values], F16(largest / F32(63))

        scales, unit = six([f[1] for f in fits])
        minima, least = six([f[2] for f in fits])
        out = []
        for g, (L, _, _), s, m in zip(groups, fits, scales, minima):
            step = F32(unit) * F32(s)
            if step != 0:
                L = np.clip(nearest_int((g + F32(least) * F32(m)) / step), 0, 15).astype(np.uint8)
            out.append(L)
        r.codes[t] = np.concatenate(out)
        r.scale_inv += [F32(s) for s in scales]
        r.zero += [F32(m) for m in minima]
        d.append(F32(unit))
        dmin.append(-F32(least))
    r.glob = d + dmin
    return r


NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], F32)


def nf4(x, group):
    """bitsandbytes' default quantize_4bit; torch.bucketize is searchsorted, and both put a NaN last."""
    r = Result(x)
    bounds = (NF4[:-1] + NF4[1:]) / F32(2)
    for t in grid(x, (1, group)):
        v = x[t].astype(F32)
        absmax = amax_torch(v)
        divisor = np.maximum(absmax, F32(1e-38))
        short = v.shape[1] < group
        scaled = np.clip(v / divisor if short else v * (F32(1) / divisor), F32(-1), F32(1))
        r.codes[t] = np.searchsorted(bounds, scaled, side="left")
        r.scale_inv.append(divisor if short else absmax)
    return r


INTEGERS = {"int8": (-128, 127, 8), "int4": (-8, 7, 4), "uint4": (0, 15, 4)}
F32_EPS = 2.0**-23


def int8_token(x, name):
    T = x.dtype.type
    if name == "asym":
        eps = float(ml_dtypes.finfo(x.dtype).eps)
        return affine(x, None, "asym", -128, 127, 8, eps, F64, True)
    kept = {"sym": F32, "reduced": F32 if x.dtype == F16 else T, "reduced_cutlass": T}[name]
    return affine(x, None, "sym", -127, 127, 8, 1e-5, kept, False)


def recipes():
    tiles = {"1x128": (1, 128), "128x128": (128, 128)}
    for f in ("e4m3", "e5m2"):
        yield "te_delayed", f, lambda x, f=f: te_delayed(x, f)
        for pow2 in (False, True):
            name = "te_current" + ("_pow2" if pow2 else "")
            yield name, f, lambda x, f=f, p=pow2: te_tiles(x, f, (None, None), FLT_MAX, p)
            for tag, tile in tiles.items():
                name = f"te_block_{tag}" + ("" if pow2 else "_fp32")
                yield name, f, lambda x, f=f, t=tile, p=pow2: te_tiles(x, f, t, dtype_max(x), p)
        yield "te_mxfp8", f, lambda x, f=f: te_mxfp8(x, f, (1, 32))
        yield "te_mxfp8_32x32", f, lambda x, f=f: te_mxfp8(x, f, (32, 32))
    yield "te_nvfp4", "e2m1", lambda x: te_nvfp4(x, (1, 16))
    yield "te_nvfp4_16x16", "e2m1", lambda x: te_nvfp4(x, (16, 16))
    for f in ("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"):
        yield "float8_tensorwise", f, lambda x, f=f: float8(x, f, (None, None), False)
        yield "float8_rowwise", f, lambda x, f=f: float8(x, f, (1, None), True)
        yield "float8_rowwise_gw_hp", f, lambda x, f=f: float8(x, f, (1, None), False)
        yield "float8_inference", f, lambda x, f=f: float8_inference(x, f, (None, None))
        yield "float8_inference_row", f, lambda x, f=f: float8_inference(x, f, (1, None))
    for mode in ("floor", "ceil", "even", "rceil"):
        for f in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"):
            yield f"mx_{mode}", f, lambda x, f=f, m=mode: None if x.dtype == F16 else mx(x, f, m)
            yield f"mx_{mode}_v018", f, lambda x, f=f, m=mode: None if x.dtype == F16 else mx_v018(x, f, m)
    yield "ao_nvfp4", "e2m1", lambda x: None if x.dtype == F16 else ao_nvfp4(x)
    for tag, tile in tiles.items():
        yield f"deepseek_{tag}", "e4m3", lambda x, t=tile: deepseek(x, t, False)
        yield f"deepseek_{tag}_ue8m0", "e4m3", lambda x, t=tile: deepseek(x, t, True)
    for mapping in ("sym", "symnc", "asym"):
        for f, (low, high, bits) in INTEGERS.items():
            for g in (None, 32, 64, 128, 100):
                tag = f + (f":g{g}" if g else "")
                stored = mapping == "asym" or f == "uint4"
                yield f"affine_{mapping}", tag, lambda x, m=mapping, a=low, b=high, n=bits, g=g, s=stored: affine(
                    x, g, m, a, b, n, F32_EPS, x.dtype.type, s)
    for g in (32, 100, 128):
        yield "tinygemm", f"uint4:g{g}", lambda x, g=g: tinygemm(x, g)
    for g in (32, 100, 128):
        yield "awq", f"uint4:g{g}", lambda x, g=g: awq(x, g)
    yield "gguf_q4_k", "uint4", q4_k
    for g in (64, 100, 128):
        yield "bnb_nf4", f"nf4:g{g}", lambda x, g=g: nf4(x, g)
    for name in ("sym", "asym", "reduced", "reduced_cutlass"):
        yield f"int8_token_{name}", "int8", lambda x, n=name: int8_token(x, n)


def digest(data):
    """The first 64 bits of the SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def words(values):
    a = np.array(values, F32)
    a[np.isnan(a)] = np.array([0x7FC00000], np.uint32).view(F32)[0]
    return a.astype("<f4")


def main():
    here = os.path.dirname(os.path.abspath(__file__))

    def table(name, header):
        out = csv.writer(open(os.path.join(here, name), "w", newline=""), lineterminator="\n")
        out.writerow(header.split())
        return out

    tensors = table("tensors.csv", "tensor kind dtype rows cols seed values")
    results = table("recipes.csv", "tensor recipe scale_inv_0 scale_inv zero global codes")
    for name, kind, dtype, rows, cols, seed in TENSORS:
        x = generate(kind, dtype, rows, cols, seed)
        tensors.writerow([name, kind, dtype, rows, cols, seed, digest(words(x.astype(F32).ravel()).tobytes())])
        for recipe, tag, quantize in recipes():
            r = quantize(x)
            if r is None:
                continue
            scale = words(r.scale_inv)
            zero = "" if r.zero is None else digest(words(r.zero).tobytes())
            glob = "" if r.glob is None else digest(words(r.glob).tobytes()) if isinstance(r.glob, list) else f"{words([r.glob]).view('<u4')[0]:08x}"
            first = f"{scale.view('<u4')[0]:08x}"
            results.writerow([name, f"{recipe}:{tag}", first, digest(scale.tobytes()), zero, glob, digest(r.codes.tobytes())])


if __name__ == "__main__":
    main()
