"""Casts: ranges, roundings, special codes, amax, scales, transposed copies; and dequantize."""
import numpy as np

from common import F32, F64, NP, TOP, decode, encode, rnd, spread
from problems import Cast, Deq
from registry import bug, cast


def over(x_top):
    """Data that goes beyond the range of the given scale."""
    return lambda rng, x: x * F32(x_top / np.abs(x).max())


@bug("pytorch/pytorch#160957",
     "values beyond 448 after scaling are not clamped: the cast gives NaN",
     "codec_edge range_rule overflow_wrap",
     "elements beyond 464",
     cast(96, 200, "e4m3", static=0.011, fix=over(9.0)))
@bug("dropbox/gemlite#38",
     "tensor / scale is not clamped to the range before the cast: NaN codes",
     "codec_edge range_rule overflow_wrap",
     "elements beyond 464",
     cast(40, 512, "e4m3", static=0.004, fix=over(6.0), af="f16"))
def no_clamp(p):
    y, s = p.right(), F32(p.static)
    v = (p.x * (F32(1) / s)).astype(F32)
    y["codes"] = np.where(np.abs(v) > 464, np.where(v < 0, 255, 127), y["codes"]).astype(np.uint8)
    return y


@bug("sgl-project/sglang#40581",
     "the software cast saturates from exponent 8 on: 256..448 all become 448",
     "codec_edge range_rule",
     "elements of 256 and more",
     cast(64, 256, "e4m3", gran="group:128"))
def early_top(p):
    y = p.right()
    mag = y["codes"] & 127
    y["codes"] = np.where(mag >= encode(256.0, "e4m3"), y["codes"] & 128 | 0x7E, y["codes"]).astype(np.uint8)
    return y


@bug("sgl-project/sglang#40581 (rounding)", "the mantissa is rounded half up in magnitude, not to even", "rounding", "ties",
     cast(128, 192, "e4m3", gran="group:64", sfmt="e8m0", data="plain"))
def half_up(p):
    y = p.right()
    v = np.abs(p.x / spread(y["grid"], p.x.shape, p.r, p.c)).astype(F64)
    step = np.ldexp(1.0, np.maximum(np.frexp(v)[1] - 1, -6) - 3)
    codes = encode((np.floor(v / step + 0.5) * step).astype(F32), "e4m3")
    y["codes"] = (codes | np.where(p.x < 0, 128, 0)).astype(np.uint8)
    return y


@bug("FlashML-org/FreeToken#85",
     "f32 is truncated to f16 and then rounded to e4m3: what lies just above a midpoint goes down",
     "rounding round_order",
     "elements just above a midpoint",
     cast(256, 512, "e4m3", af="f32", static=0.02, data="uniform", fix=over(8.9)))
def via_f16(p):
    y = p.right()
    v = (p.x * (F32(1) / F32(p.static))).astype(F32)
    h = v.astype(np.float16)
    h = np.where(np.abs(h.astype(F32)) > np.abs(v), np.nextafter(h, np.float16(0)), h)
    y["codes"] = encode(h.astype(F32), "e4m3")
    return y


@bug("sgl-project/sglang-jax#1598",
     "x / scale is cast to int8 without rounding: truncated toward zero",
     "rounding",
     "all",
     cast(64, 300, "int8", gran="row"))
@bug("microsoft/onnxruntime#32452",
     "float16 x / scale is truncated by static_cast",
     "rounding",
     "all",
     cast(33, 256, "int8", gran="group:64", af="f16"))
@bug("vllm-project/vllm#45361",
     "the store to int8 truncates the scaled values (one scale a head of 128)",
     "rounding",
     "all",
     cast(48, 512, "int8", gran="group:128"))
def truncated(p):
    y = p.right()
    y["codes"] = np.clip(np.trunc(p.x / spread(y["grid"], p.x.shape, p.r, p.c)), -127, 127).astype(np.int8)
    return y


@bug("tenstorrent/tt-metal#57073",
     "negative values come out as their magnitude",
     "overflow_wrap codec_edge bits_reinterpreted",
     "negative elements",
     cast(40, 128, "int8", static=0.05))
def magnitude(p):
    y = p.right()
    y["codes"] = np.abs(y["codes"])
    return y


@bug("vllm-project/vllm#43557",
     "the MXFP4 scale is the exponent of amax / 6, one too small for most blocks: their largest elements saturate",
     "range_rule",
     "blocks whose amax has a mantissa below 1.5",
     cast(64, 256, "e2m1", gran="group:32", sfmt="e8m0", rule="floor", recipe="mx_floor"))
def exponent_of_sixth(p):
    y = p.right()
    y["grid"] = np.ldexp(F32(1), np.frexp((p.amax() / F32(6)).astype(F32))[1] - 1 - 0).astype(F32)
    y["codes"] = p.quant(y["grid"])
    return y


@bug("ROCm/FlyDSL#590",
     "the E2M3 scale is amax / 7.5 rounded to the nearest power of two: one step low for two thirds of the blocks",
     "range_rule",
     "two thirds of the blocks",
     cast(50, 320, "e2m3", gran="group:32", sfmt="e8m0", rule="even", recipe="mx_even"))
@bug("lablup/mlxcel#1769",
     "the MXFP8 scale is round(log2(amax / 448)): half of the block maxima saturate",
     "range_rule",
     "half of the blocks",
     cast(64, 256, "e4m3", gran="group:32", sfmt="e8m0", rule="rceil", recipe="mx_rceil"))
def nearest_power(p):
    y = p.right()
    y["grid"] = np.exp2(np.rint(np.log2(p.amax() / F32(TOP[p.fmt])))).astype(F32)
    y["codes"] = p.quant(y["grid"])
    return y


def below_power(rng, x):
    """A third of the blocks of 32 with an amax just below a power of two."""
    for r in range(0, len(x), 3):
        for c in range(0, x.shape[1], 32):
            b = x[r, c:c + 32]
            i = np.abs(b).argmax()
            b[i] = np.ldexp(0.9995, np.frexp(b[i])[1]) * np.sign(b[i])
    return x


@bug("pytorch/ao#4725",
     "amax is rounded to bf16 before its exponent is taken: just below a power of two the floor is one too high",
     "range_rule round_order",
     "blocks with an amax just below a power of two",
     cast(60, 256, "e4m3", gran="group:32", sfmt="e8m0", af="f32", rule="floor", recipe="mx_floor", fix=below_power))
def amax_bf16(p):
    y = p.right()
    y["grid"] = p.scale(rnd(p.amax(), "bf16"))
    y["codes"] = p.quant(y["grid"])
    return y


@bug("ROCm/aiter#3212",
     "the E8M0 scale is rounded up where the recipe floors",
     "range_rule scale_rerounded",
     "blocks whose amax is no power of two",
     cast(32, 512, "e4m3", gran="group:32", sfmt="e8m0", rule="floor", recipe="mx_floor"))
def rounded_up(p):
    y = p.right()
    y["grid"] = (y["grid"] * 2).astype(F32)
    y["codes"] = p.quant(y["grid"])
    return y


def late_top(rng, x):
    """The largest element behind the first 8192."""
    x.reshape(-1)[9000] = F32(3.1) * np.abs(x).max()
    return x


@bug("AMD-AGI/Primus-Turbo#306",
     "the reduction of amax returns that of the first tile of 8192 elements",
     "amax_scope",
     "elements beyond that amax saturate",
     cast(64, 256, "e4m3", rule="te", recipe="te_current", fix=late_top))
@bug("NVIDIA/Megatron-LM#442", "amax is reduced over the wrong group: only the first rows count", "amax_scope", "rows from 32 on saturate",
     cast(128, 256, "e4m3", rule="te", recipe="te_current", fix=late_top))
def first_tile(p):
    amax = np.abs(p.x.reshape(-1)[:8192]).max().reshape(1, 1)
    grid = p.scale(amax)
    codes, scale = p.quant(grid), (F32(448) / amax).reshape(1).astype(F32)
    return {"codes": codes, "grid": grid, "amax": amax[0, 0], "tr": codes.T, "scale": scale}


@bug("sgl-project/sglang#30900",
     "the scale is amax / 224 where the format reaches 448",
     "range_rule",
     "all",
     cast(96, 160, "e4m3", rule="te", recipe="te_current"))
def bound_224(p):
    amax = p.amax()
    grid = (F32(1) / (F32(224) / amax)).astype(F32)
    return {**p.right(), "codes": p.quant(grid), "grid": grid, "scale": (F32(224) / amax).reshape(1)}


@bug("NVIDIA/TransformerEngine#786",
     "a tiny amax makes the scale infinite: every nonzero element saturates and scale_inv is 0",
     "degenerate_block range_rule",
     "all",
     cast(16, 128, "e4m3", rule="te", recipe="te_current", af="f32", fix=lambda r, x: (x * F32(2e-39)).astype(F32)))
def infinite_scale(p):
    y = p.right()
    return {**y, "codes": encode(np.where(p.x == 0, 0, np.sign(p.x) * F32(448)), "e4m3"), "grid": np.zeros((1, 1), F32),
            "scale": np.array([np.inf], F32)}


@bug("mlc-ai/pith-train#74",
     "the transposed FP8 tile is corrupted: in a quarter of the 16x16 tiles, byte pairs of a row stay exchanged",
     "pack_permute addressing",
     "out.transpose only",
     cast(128, 96, "e4m3", rule="te", recipe="te_current", transpose=True))
def bad_trans(p):
    y = p.right()
    t = y["tr"]
    for i, (r, c) in enumerate((r, c) for r in range(0, t.shape[0], 16) for c in range(0, t.shape[1], 16)):
        if i % 4 == 2:
            t[r:r + 16, c:c + 16] = t[r:r + 16, c:c + 16].reshape(16, 8, 2)[:, :, ::-1].reshape(16, 16)
    return y


@bug("pytorch/ao#1471",
     "the transposed copy is stored with the strides of the row-major output",
     "addressing pack_permute",
     "out.transpose only",
     cast(80, 112, "e4m3", rule="te", recipe="te_current", transpose=True))
def wrong_strides(p):
    y = p.right()
    return {**y, "tr": y["codes"].reshape(y["tr"].shape)}


@bug("NVIDIA/TransformerEngine#1648", "the transposed copy is that of the tensor before the update", "stale_state", "out.transpose only",
     cast(64, 128, "e4m3", rule="te", recipe="te_current", transpose=True, data="plain"))
def old_transpose(p):
    y = p.right()
    before = rnd(p.x + 0.1 * p.rng.standard_normal(p.x.shape), "bf16")
    return {**y, "tr": p.quant(y["grid"], before).T.copy()}


@bug("vllm-project/vllm#46676",
     "the E8M0 scale is added to the bits of the bf16 value: what leaves the exponent range wraps into the sign (byte 0: 0.5 is -Inf)",
     "codec_edge overflow_wrap bits_reinterpreted",
     "blocks with extreme scales",
     lambda rng: Deq(rng, 32, 128, ("e2m1", "group:32", "e8m0"), fix=lambda r, x: x * np.exp2(np.where(np.arange(32) % 4 == 0, -124.0,
     0))[:, None].astype(F32)))
def exponent_add(p):
    bits = p.A.v.astype(NP["bf16"]).view(np.uint16).astype(int)
    e = np.log2(p.A.s.astype(F64)).astype(int)
    return np.where(p.A.v == 0, 0, ((bits + (e << 7)) & 0xFFFF).astype(np.uint16).view(NP["bf16"]).astype(F32))


@bug("JustVugg/colibri#225",
     "a row of int4 codes is dequantized by the scale of its first group of 128",
     "scale_index scale_shared",
     "columns from 128 on",
     lambda rng: Deq(rng, 40, 512, ("int4", "group:128", "f32"), out="f32"))
def first_scale(p):
    return p.A.v * p.A.s[:, :1]
