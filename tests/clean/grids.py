"""Operands in groups along K or in tiles: codes, a scale for each tile, and the scale spread over the elements."""

import numpy as np

from arith import DT, TOP, F, saturate


def tiles(x, r, c):
    """Largest magnitude of each r by c tile of [B, R, C]; the last ones may be short."""
    b, rows, cols = x.shape
    wide = np.zeros((b, -(-rows // r) * r, -(-cols // c) * c), F)
    wide[:, :rows, :cols] = np.abs(x)
    return wide.reshape(b, wide.shape[1] // r, r, wide.shape[2] // c, c).max((2, 4))


def spread(s, r, c, shape):
    return np.repeat(np.repeat(s, r, -2), c, -1)[..., :shape[-2], :shape[-1]]


class Grid:
    """Codes of one operand with f32 scale_inv `s` [B, R/r, C/c]; `held` are its tensors, `meta` its metadata under name `x`."""

    def __init__(self, x, fmt, r, c, rule="f32", gain=1.0):
        self.fmt, self.tile, self.rule = fmt, (r, c), rule
        x = x.astype(F)
        amax = np.maximum(tiles(x, r, c), F(2.0**-60))
        self.s = (amax / F(TOP[fmt] * gain)).astype(F)
        if rule in ("power", "e8m0"):
            self.s = np.exp2(np.ceil(np.log2(self.s))).astype(F)
        self.codes = saturate(x / spread(self.s, r, c, x.shape), fmt)
        self.values = self.codes.astype(F)
        self.wide = spread(self.s, r, c, x.shape)
        self.granularity = f"group:{c}" if r == 1 else f"block:{r}x{c}"

    def of(self, x, rng):
        """Tensors and metadata of operand x; 4-bit codes packed or one a byte, e8m0 as their dtype or as bytes."""
        tensors, meta = {}, {f"{x}.granularity": self.granularity, f"{x}.format": self.fmt}
        tensors[f"{x}.codes"], more = stored(self.codes, self.fmt, x, rng)
        s = self.s
        if self.rule == "e8m0":
            s = s.astype(DT["e8m0"])
            if rng.integers(2):
                s, meta[f"{x}.scale_format"] = s.view(np.uint8), "e8m0"
        tensors[f"{x}.scale_inv"] = s
        return tensors, meta | more


def stored(codes, fmt, x, rng):
    """fp8 in its dtype, narrower formats as bytes, pairs of 4 bits in one where K is even."""
    if fmt in ("e4m3", "e5m2"):
        return codes, {}
    raw = codes.view(np.uint8) if fmt.startswith("e") else codes
    if fmt == "int8":
        return raw, {}
    if fmt in ("e2m1", "int4", "uint4"):
        raw = raw.astype(np.int8).view(np.uint8) & 15 if fmt != "e2m1" else raw
        if raw.shape[-1] % 2 == 0 and rng.random() < 0.8:
            low, high = raw[..., 0::2], raw[..., 1::2]
            if rng.integers(2):
                return low | high << 4, {f"{x}.packing": "low_first"}
            return high | low << 4, {f"{x}.packing": "high_first"}
        if fmt == "int4":
            return codes.astype(np.int8), {}
    return raw, {}


class Nvfp4:
    """e2m1 in groups of 16, e4m3 scales, one f32 scale of the tensor above them."""

    def __init__(self, x):
        x = x.astype(F)
        top = np.abs(x).max((1, 2), keepdims=True)
        self.top = (np.where(top > 0, top, 1) / F(448 * 6)).astype(F)
        self.e4m3 = saturate(tiles(x, 1, 16) / F(6) / self.top, "e4m3")
        self.s = self.e4m3.astype(F)
        self.wide = spread(self.s, 1, 16, x.shape)
        live = self.wide > 0
        codes = np.where(live, x / np.where(live, self.wide * self.top, 1), 0)
        self.codes = saturate(codes, "e2m1")
        self.values, self.fmt, self.granularity = self.codes.astype(F), "e2m1", "group:16"

    def of(self, x, rng):
        codes, more = stored(self.codes, "e2m1", x, rng)
        tensors = {f"{x}.codes": codes, f"{x}.scale_inv": self.e4m3, f"{x}.global_scale_inv": self.top[:, :, 0]}
        return tensors, {f"{x}.format": "e2m1", f"{x}.granularity": "group:16"} | more
