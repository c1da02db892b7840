"""Casts by the rules of TransformerEngine, torchao, DeepGEMM and OCP MX as their code states them, with the recipe named or not; ties, edges, zeros."""

import ml_dtypes as ml
import numpy as np

import arith
from arith import DT, D, F, TOP, saturate, to
from bundle import Results
from epilogue import told
from grids import spread, stored, tiles

BIG = F(np.finfo(F).max)


def floor_power(s):
    """Down to a power of two: the mantissa cleared."""
    return (s.view(np.uint32) & np.uint32(0xFF800000)).view(F)


def draw(rng, b, rows, k):
    """Inputs with rows of different size, outliers, zeros, values on ties; f32, bf16 or f16."""
    x = rng.standard_normal((b, rows, k)) * np.exp2(rng.uniform(-6, 6, (b, rows, 1)))
    x[rng.random(x.shape) < 0.01] *= 40
    kind = str(rng.choice(["", "zeros", "ties", "tiny", "large"], p=[0.5, 0.15, 0.15, 0.1, 0.1]))
    if kind == "zeros":
        x[rng.random((b, rows, k)) < 0.7] = 0
        x[:, : int(rng.integers(rows + 1))] = 0
        x[0] = -0.0
    elif kind == "ties":
        x = rng.integers(-64, 65, (b, rows, k)) * 2.0 ** rng.integers(-3, 4, (b, rows, 1))
    fmt = str(rng.choice(["f32", "bf16", "f16"], p=[0.35, 0.45, 0.2]))
    if fmt != "f16":
        x = x * {"tiny": 2.0**-70, "large": 2.0**70}.get(kind, 1)
    return to(np.clip(x, *((-60000, 60000) if fmt == "f16" else (-1e38, 1e38))).astype(F), fmt), fmt, kind


def tensor_scaled(rng, x, fmt):
    """One scale for the tensor: recipes of the current amax, delayed scaling with a scale from before, or x / scale_inv. A NaN stays one, and
    TransformerEngine's amax leaves it out."""
    v = x.astype(F)
    how = str(rng.choice(["te_current", "te_current_pow2", "float8_tensorwise", "delayed", "divided"]))
    if how in ("te_current", "te_current_pow2", "delayed") and rng.random() < 0.1:
        x = np.where(rng.random(x.shape) < 0.02, x.dtype.type(np.nan), x)
        v = x.astype(F)
    amax = np.fmax.reduce(np.abs(v).reshape(len(v), -1), 1)[:, None, None]
    amax = np.where(np.isnan(amax), 0, amax)
    if how in ("delayed", "divided") and rng.random() < 0.15:
        fmt += "fnuz"
    meta, keep = {}, {"a": x}
    if how in ("te_current", "te_current_pow2"):
        s = np.where(amax > 0, np.minimum((F(TOP[fmt]) / amax).astype(F), BIG), 1).astype(F)
        s = floor_power(s) if how.endswith("pow2") else s
    elif how == "float8_tensorwise":
        s = (TOP[fmt] / np.maximum(amax.astype(D), 1e-12)).astype(F)
    else:
        size = np.where(amax > 0, amax, 1) * np.exp2(rng.uniform(-0.5, 2, amax.shape)).astype(F)
        s = np.minimum((F(TOP[fmt]) / size).astype(F), F(2.0**100))
    inv = (F(1) / s).astype(F)
    codes = saturate(v / inv if how == "divided" else v * s, fmt)
    if how in ("te_current", "te_current_pow2", "float8_tensorwise"):
        meta["recipe"] = how
    flat = lambda t: t[:, :, 0]
    keep["out.codes"], keep["out.scale_inv"] = codes, flat(inv)
    if how != "divided" and (how == "delayed" or rng.random() < 0.8):
        keep["out.scale"] = flat(s)
    if rng.integers(2):
        keep["out.amax"] = flat(amax)
    if rng.integers(2):
        keep["out.transpose"] = codes.transpose(0, 2, 1)
    return how, fmt, keep, meta


def blockwise(rng, x, fmt):
    """1×128 and 128×128 of TransformerEngine and DeepGEMM; rows of torchao."""
    v = x.astype(F)
    how = str(rng.choice(["te_block_1x128", "te_block_1x128_fp32", "te_block_128x128", "te_block_128x128_fp32", "deepseek_1x128", "deepseek_1x128_ue8m0",
                          "deepseek_128x128", "deepseek_128x128_ue8m0", "float8_rowwise", "float8_rowwise_gw_hp"]))
    if how.startswith("deepseek"):
        fmt = "e4m3"
    if how.startswith("float8"):
        amax = np.abs(v).max(2, keepdims=True)
        s = (TOP[fmt] / np.maximum(amax.astype(D), 1e-12)).astype(F)
        s = floor_power(s) if how == "float8_rowwise" else s
        inv = (F(1) / s).astype(F)
        return how, fmt, {"out.codes": saturate(v * s, fmt), "out.scale_inv": inv[:, :, 0]}, {"recipe": how, "out.granularity": "row"}
    r = 128 if "128x128" in how else 1
    amax = tiles(v, r, 128)
    if how.startswith("te"):
        most = {"f32": BIG, "bf16": F(ml.finfo(ml.bfloat16).max), "f16": F(65504)}[{np.dtype(F): "f32", np.dtype(np.float16): "f16"}.get(x.dtype, "bf16")]
        s = np.where(amax > 0, F(TOP[fmt]) / amax, 1).astype(F)
        s = np.where(np.isinf(s), most, s).astype(F)
        s = s if how.endswith("fp32") else floor_power(s)
        inv = (F(1) / s).astype(F)
    else:
        inv = (np.maximum(amax, F(1e-4)) / F(448)).astype(F)
        if how.endswith("ue8m0"):
            bits = inv.view(np.uint32)
            inv = ((bits >> 23) + ((bits & 0x7FFFFF) != 0)).astype(np.uint32)
            inv = (inv << np.uint32(23)).view(F)
        s = (F(1) / inv).astype(F)
    codes = saturate(v * spread(s, r, 128, v.shape), fmt)
    meta = {"recipe": how, "out.granularity": "group:128" if r == 1 else "block:128x128"}
    return how, fmt, {"out.codes": codes, "out.scale_inv": inv}, meta


def microscaling(rng, x):
    """Groups of 32 with e8m0 scales: TransformerEngine's MXFP8 and torchao's four modes."""
    v = x.astype(F)
    how = str(rng.choice(["te_mxfp8", "mx_floor", "mx_ceil", "mx_even", "mx_rceil"]))
    fmt = str(rng.choice(["e4m3", "e5m2"] if how == "te_mxfp8" else ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"]))
    amax = tiles(v, 1, 32)
    bits = amax.view(np.uint32)
    p, more = (bits >> 23).astype(np.int64) - 127, (bits & 0x7FFFFF) != 0
    if how in ("te_mxfp8", "mx_rceil"):
        t = (amax * F(1 / TOP[fmt])).astype(F).view(np.uint32)
        e, m = (t >> 23).astype(np.int64), t & 0x7FFFFF
        byte = np.where((e == 0) & (m <= 0x400000), 0, e + (m != 0))
    else:
        if how == "mx_even":  # half a unit of the format's mantissa is added to the bits, the exponent kept
            p = ((bits + np.uint32(1 << (22 - {"e4m3": 3, "e5m2": 2, "e2m3": 3, "e3m2": 2, "e2m1": 1}[fmt]))) >> 23).astype(np.int64) - 127
        byte = np.clip(p + (more & (how == "mx_ceil")) - int(np.floor(np.log2(TOP[fmt]))) + 127, 0, 255)
    s = np.exp2(127.0 - spread(byte, 1, 32, v.shape)).astype(F)
    codes = saturate(v * s, fmt)
    codes, meta = stored(codes, fmt, "out", rng)
    e8 = byte.astype(np.uint8)
    meta |= {"out.granularity": "group:32", "out.format": fmt}
    if how == "te_mxfp8" or x.dtype != np.float16:  # torchao takes no f16
        meta["recipe"] = how
    if rng.integers(2):
        e8 = e8.view(DT["e8m0"])
    else:
        meta["out.scale_format"] = "e8m0"
    return how, fmt, {"out.codes": codes, "out.scale_inv": e8}, meta


def nvfp4(rng, x):
    """TransformerEngine's and torchao's two levels."""
    v = x.astype(F)
    how = str(rng.choice(["te_nvfp4", "ao_nvfp4"]))
    if how == "ao_nvfp4" and rng.random() < 0.1:
        return zeros(rng, x)
    top, amax = np.abs(v).max((1, 2), keepdims=True), tiles(v, 1, 16)
    if how == "te_nvfp4":
        s = np.where(top > 0, np.minimum((F(448 * 6) / top).astype(F), BIG), 1).astype(F)
        down = (F(1) / s).astype(F)
        scale = saturate(np.minimum(amax * (s * (F(1) / F(6))), BIG), "e4m3")
        up = np.minimum((F(1) / (scale.astype(F) * down)).astype(F), BIG)
        q = v * spread(up, 1, 16, v.shape)
    else:
        down = (top / F(448 * 6)).astype(F)
        scale = np.clip((amax / F(6)) / down, F(2.0**-6), F(448)).astype(F).astype(DT["e4m3"])
        q = v * spread((F(1) / down) / scale.astype(F), 1, 16, v.shape)
    codes, meta = stored(saturate(q, "e2m1"), "e2m1", "out", rng)
    meta |= {"recipe": how, "out.granularity": "group:16", "out.format": "e2m1"}
    return how, "e2m1", {"out.codes": codes, "out.scale_inv": scale, "out.global_scale_inv": down[:, :, 0]}, meta


def zeros(rng, x):
    """torchao on zeros: 0/0 is the scale of every block, NaN, and its codes are what a cast of NaN gives on that machine (0xC on x86)."""
    x = np.zeros_like(x)
    groups = -(-x.shape[2] // 16)
    codes = np.full(x.shape, int(rng.choice([0xC, 0x7, 0x4, 0x0])), np.uint8).view(DT["e2m1"])
    codes, meta = stored(codes, "e2m1", "out", rng)
    scale = np.full((*x.shape[:2], groups), 0x7F, np.uint8).view(DT["e4m3"])
    meta |= {"recipe": "ao_nvfp4", "out.granularity": "group:16", "out.format": "e2m1"}
    return "ao_nvfp4 zeros", "e2m1", {"a": x, "out.codes": codes, "out.scale_inv": scale, "out.global_scale_inv": np.zeros((len(x), 1), F)}, meta


def int8(rng, x):
    """A token's scale amax/127, or groups of torchao's affine form, in f32."""
    v = x.astype(F)
    if rng.integers(2) or v.shape[-1] % 32:
        s = np.maximum(np.abs(v).max(2, keepdims=True) / F(127), F(1e-5)).astype(F)
        reciprocal = bool(rng.integers(2))
        q = np.clip(np.rint(v * (F(1) / s)) if reciprocal else np.rint(v / s), -127, 127)
        named = {"recipe": "int8_token_sym"} if reciprocal and x.dtype == F else {}
        return "int8 row", "int8", {"out.codes": q.astype(np.int8), "out.scale_inv": s[:, :, 0]}, {"out.granularity": "row"} | named
    t = v.reshape(v.shape[0], v.shape[1], -1, 32)
    low, high = np.minimum(t.min(-1), 0), np.maximum(t.max(-1), 0)
    s = np.maximum((high - low) / F(255), F(1e-9)).astype(F)
    z = np.clip(-128 - np.rint(low / s), -128, 127)
    q = np.clip(np.rint(t * (F(1) / s)[..., None]) + z[..., None], -128, 127).reshape(v.shape)
    tensors = {"out.codes": q.astype(np.int8), "out.scale_inv": s, "out.zero_point": z.astype(np.int32)}
    return "int8 asym", "int8", tensors, {"out.granularity": "group:32", "out.zero": "integer"}


def batches(rng):
    b, rows, k = 24, int(rng.choice([1, 2, 3, 8, 13])), int(rng.choice([1, 7, 16, 31, 32, 48, 64, 100, 128, 130, 160, 256, 272]))
    x, kind, drawn = draw(rng, b, rows, k)
    for _ in range(4):
        fmt = str(rng.choice(["e4m3", "e5m2"], p=[0.7, 0.3]))
        which = int(rng.choice(5, p=[0.3, 0.25, 0.2, 0.1, 0.15]))
        if which == 0:
            how, fmt, held, meta = tensor_scaled(rng, x, fmt)
        elif which == 1:
            how, fmt, held, meta = blockwise(rng, x, fmt)
        else:
            if which == 3 and (drawn in ("tiny", "large", "zeros") or (kind == "f16")):
                continue
            if which == 4 and drawn in ("tiny", "large"):
                continue
            how, fmt, held, meta = [microscaling, nvfp4, int8][which - 2](rng, x)
        meta.setdefault("out.format", fmt)
        named = meta.get("recipe")
        if rng.random() < 0.4 and "recipe" in meta:
            del meta["recipe"]
        name = f"casts {how}{' (named)' if named in meta.values() else ''} {kind} {drawn} {fmt} {'transposed ' if 'out.transpose' in held else ''}{rows}x{k}"
        yield Results(name, "cast", {"a": x} | held, meta | {"device": told(rng, "H200")})
