"""Codecs, quantizers, data and the writing of bundles (one safetensors file each), in numpy and ml_dtypes alone."""
import json
import math
import struct

import ml_dtypes
import numpy as np

F32, F64 = np.float32, np.float64
NP = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
      "e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "e2m1": ml_dtypes.float4_e2m1fn, "e2m3": ml_dtypes.float6_e2m3fn,
      "e3m2": ml_dtypes.float6_e3m2fn, "e8m0": ml_dtypes.float8_e8m0fnu, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
      "f32": np.float32}
TOP = {"e4m3": 448.0, "e5m2": 57344.0, "e4m3fnuz": 240.0, "e5m2fnuz": 57344.0, "e2m1": 6.0, "e2m3": 7.5, "e3m2": 28.0,
       "int8": 127.0, "int4": 7.0, "uint4": 15.0, "nf4": 1.0}
INTS = {"int8": (-127, 127), "int4": (-8, 7), "uint4": (0, 15)}
NF4 = np.array([-1, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0, 0.0795803, 0.1609302,
                0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1], F32)
FP4 = np.array([0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25,
                0, -0.0052083333, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25], F32)


def rnd(x, fmt):
    """x rounded to the nearest number of a wide format (f32, bf16, f16), as f32."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x).astype(F32).astype(NP[fmt]).astype(F32)


def decode(codes, fmt):
    """Codes (uint8 for floats, integers as they are) to f32."""
    if fmt in INTS:
        return codes.astype(F32)
    if fmt == "nf4":
        return NF4[codes]
    return np.ascontiguousarray(codes.astype(np.uint8)).view(NP[fmt]).astype(F32)


def encode(x, fmt):
    """f32 to codes, to nearest even, saturating."""
    x = np.asarray(x, F32)
    if fmt in INTS:
        lo, hi = INTS[fmt]
        return np.clip(np.rint(x), lo, hi).astype(np.int8)
    if fmt == "nf4":
        return np.abs(x[..., None] - NF4).argmin(-1).astype(np.uint8)
    return np.clip(x, -TOP[fmt], TOP[fmt]).astype(NP[fmt]).view(np.uint8)


def grain(gran, rows, cols):
    """The rows and columns that share a scale."""
    if gran == "tensor":
        return rows, cols
    if gran == "row":
        return 1, cols
    kind, size = gran.split(":")
    return (1, int(size)) if kind == "group" else tuple(int(v) for v in size.split("x"))


def spread(grid, shape, r, c):
    """A grid of scales as an array of the shape of the codes."""
    return np.ascontiguousarray(np.repeat(np.repeat(grid, r, -2), c, -1)[..., :shape[-2], :shape[-1]])


def gather(x, r, c, how, fill):
    """One number for each block of r x c elements."""
    pr, pc = -x.shape[-2] % r, -x.shape[-1] % c
    y = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, pr), (0, pc)], constant_values=fill)
    y = y.reshape(*x.shape[:-2], y.shape[-2] // r, r, y.shape[-1] // c, c)
    return how(how(y, -1), -2)


def pow2_up(s):
    """The next power of two that is not below s."""
    m, e = np.frexp(np.asarray(s, F64))
    return np.ldexp(1.0, np.where(m == 0.5, e - 1, e)).astype(F32)


class Op:
    """One operand: codes and scales, or plain values where the format is a wide one."""

    def __init__(self, x, fmt, gran="tensor", sfmt="f32", zero="none", rng=None):
        self.fmt, self.gran, self.sfmt, self.zero, self.glob, self.zp = fmt, gran, sfmt, zero, None, None
        rows, cols = x.shape[-2:]
        self.r, self.c = grain(gran, rows, cols)
        self.pack = "none"
        if fmt in ("bf16", "f16", "f32"):
            self.codes, self.v = None, rnd(x, fmt)
            self.s = np.ones(x.shape, F32)
            self.c = cols
            return
        x = x.astype(F32)
        amax = gather(np.abs(x), self.r, self.c, np.max, 0)
        lo, hi = gather(x, self.r, self.c, np.min, 0), gather(x, self.r, self.c, np.max, 0)
        if zero == "none":
            s = np.where(amax == 0, F32(1), amax) / F32(TOP[fmt])
        else:
            s = np.maximum(hi - lo, 1e-12) / F32(15 if fmt == "uint4" else 254)
        if sfmt == "e8m0":
            s = pow2_up(s)
        elif sfmt == "e4m3":
            g = F32(np.abs(x).max() / (6 * 448))
            self.glob = np.array([g], F32)
            s = decode(encode(np.maximum(s / g, 2.0 ** -6), "e4m3"), "e4m3")
        else:
            s = rnd(s, sfmt)
        self.grid = s.astype(F32)
        self.s = spread(self.grid, x.shape, self.r, self.c)
        full = self.s * (self.glob[0] if self.glob is not None else F32(1))
        if zero == "integer":
            self.zp = np.clip(np.rint((INTS[fmt][0] if fmt != "uint4" else 0) - lo / self.grid), *INTS[fmt]).astype(np.int32)
            z = spread(self.zp, x.shape, self.r, self.c)
            self.codes = np.clip(np.rint(x / full) + z, *INTS[fmt]).astype(np.int8)
            self.v = self.codes.astype(F32) - z
        elif zero == "additive":
            self.zp = rnd(lo, sfmt)
            z = spread(self.zp, x.shape, self.r, self.c)
            self.codes = encode((x - z) / full, fmt)
            self.v = decode(self.codes, fmt)
            self.add = z
        else:
            self.codes = encode(x / full, fmt)
            self.v = decode(self.codes, fmt)
        if fmt in ("e2m1", "uint4", "int4"):
            self.pack = "low_first"
        if fmt == "nf4":
            self.pack = "high_first"

    def deq(self):
        """The values that the codes mean, f32."""
        y = self.v * self.s
        if self.glob is not None:
            y = y * self.glob[0]
        return y + self.add if self.zero == "additive" else y

    def tensors(self, name, t, meta, grouped=False):
        """Puts the operand into the tensors and the metadata of a bundle."""
        if self.codes is None:
            t[name] = (self.fmt, self.v)
            return
        meta[name + ".format"], meta[name + ".granularity"] = self.fmt, self.gran
        t[name + ".codes"] = coded(self.codes, self.fmt, self.pack)
        if self.pack != "none":
            meta[name + ".packing"] = self.pack
        shape = self.grid.shape[:-2] if grouped else ()
        tail = {"tensor": (1,), "row": self.grid.shape[-2:-1]}.get(self.gran, self.grid.shape[-2:])
        if self.sfmt == "e8m0":
            t[name + ".scale_inv"] = ("F8_E8M0", self.grid.astype(NP["e8m0"]).view(np.uint8).reshape(shape + tail))
        elif self.sfmt == "e4m3":
            t[name + ".scale_inv"] = ("F8_E4M3", encode(self.grid, "e4m3").reshape(shape + tail))
        else:
            t[name + ".scale_inv"] = (self.sfmt, self.grid.reshape(shape + tail))
        if self.glob is not None:
            t[name + ".global_scale_inv"] = ("f32", self.glob)
        if self.zero != "none":
            meta[name + ".zero"] = self.zero
            t[name + ".zero_point"] = (("I32" if self.zero == "integer" else self.sfmt), self.zp.reshape(shape + tail))


def pack(codes, order):
    """Two 4-bit codes a byte."""
    u = codes.astype(np.uint8) & 15
    a, b = u[..., 0::2], u[..., 1::2]
    return (a | b << 4) if order == "low_first" else (a << 4 | b)


def coded(codes, fmt, order="none"):
    """Codes as a tensor of a bundle."""
    if order != "none":
        return "U8", pack(codes, order)
    if fmt in ("int8", "int4", "uint4"):
        return "I8", codes.astype(np.int8)
    return {"e4m3": "F8_E4M3", "e5m2": "F8_E5M2"}.get(fmt, "U8"), codes.astype(np.uint8)


WIDE = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
RAW = {"I32": np.int32, "I8": np.int8, "U8": np.uint8, "F8_E4M3": np.uint8, "F8_E5M2": np.uint8, "F8_E8M0": np.uint8}


def save(path, tensors, meta):
    """Writes a safetensors file."""
    head, blobs, at = {"__metadata__": {"qassay.bundle": "1", **{k: str(v) for k, v in meta.items()}}}, [], 0
    for name, (dtype, x) in tensors.items():
        if dtype in WIDE:
            with np.errstate(over="ignore", invalid="ignore"):
                raw, dtype = np.asarray(x).astype(NP[dtype]).tobytes(), WIDE[dtype]
        else:
            raw = np.ascontiguousarray(x, RAW[dtype]).tobytes()
        head[name] = {"dtype": dtype, "shape": list(np.shape(x)), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def net(rng, rows, cols, kind="net"):
    """Data of a network's kind: normal, rows and groups of unequal size, a few outlier channels; or another kind."""
    if kind == "uniform":
        return rng.uniform(-1, 1, (rows, cols)).astype(F32)
    if kind == "zeros":
        return np.zeros((rows, cols), F32)
    if kind == "constant":
        return np.full((rows, cols), 0.75, F32)
    x = rng.standard_normal((rows, cols))
    if kind == "plain":
        return x.astype(F32)
    if kind == "onesided":
        return np.abs(x).astype(F32)
    wide = 2.0 if kind == "wide" else 0.35
    x *= np.exp(wide * rng.standard_normal((rows, 1)))
    g = np.exp(wide * rng.standard_normal((rows, math.ceil(cols / 16))))
    x *= np.repeat(np.repeat(g[:, ::2], 2, 1)[:, :g.shape[1]], 16, 1)[:, :cols]
    x[:, rng.choice(cols, max(1, cols // 64), replace=False)] *= 8
    return x.astype(F32)
