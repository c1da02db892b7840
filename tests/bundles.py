"""Bundles as people write them: healthy ones of every kind and edge, and the same with a bug.  bundles.py FOLDER [SEED]

numpy and ml_dtypes only; the arithmetic shares nothing with qassay. Prints one JSON line a bundle: its file and what must be said of it:
{"file": …, "verdict": "pass|no_power|fail", "fault": "…" (a class, or class:variant, that the first diagnosis may have, joined by |; empty: any)}.
"""

import json
import os
import sys

import ml_dtypes as ml
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../notebooks/python"))
from qassay_bundle import Raw, save  # noqa: E402

F, D = np.float32, np.float64
DT = {"e4m3": ml.float8_e4m3fn, "e5m2": ml.float8_e5m2, "e4m3fnuz": ml.float8_e4m3fnuz, "e5m2fnuz": ml.float8_e5m2fnuz,
      "e2m1": ml.float4_e2m1fn, "e2m3": ml.float6_e2m3fn, "e3m2": ml.float6_e3m2fn, "bf16": ml.bfloat16, "f16": np.float16, "f32": F}
TOP = {k: float(ml.finfo(v).max) for k, v in DT.items() if k not in ("f32", "f16", "bf16")}
folder, rng = sys.argv[1], np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 7)


def emit(name, op, tensors, verdict="pass", fault="", **words):
    path = f"{folder}/{name}.safetensors"
    save(path, op, tensors, **words)
    print(json.dumps({"file": path, "verdict": verdict, "fault": fault}))


def draw(rows, cols, size=1.0):
    """Rows of different size, both signs, a few outliers, in bf16."""
    x = rng.standard_normal((rows, cols)) * (0.2 + rng.random((rows, 1)) * 3) * size
    x[rng.random((rows, cols)) < 0.005] *= 20
    return x.astype(ml.bfloat16)


def tiles(x, r, c):
    """Largest magnitude of each r by c tile."""
    rows, cols = -(-x.shape[0] // r), -(-x.shape[1] // c)
    wide = np.zeros((rows * r, cols * c))
    wide[: x.shape[0], : x.shape[1]] = np.abs(x.astype(D))
    return wide.reshape(rows, r, cols, c).max((1, 3))


def spread(s, r, c, shape):
    return np.repeat(np.repeat(s, r, 0), c, 1)[: shape[0], : shape[1]]


class Q:
    """Codes with scale_inv over r by c tiles."""

    def __init__(self, x, fmt, r, c, rule="f32"):
        x, self.fmt, self.tile, self.x = x.astype(F), fmt, (r, c), x
        amax = np.maximum(tiles(x, r, c), 1e-12)
        if rule == "e8m0":
            self.s = 2.0 ** np.ceil(np.log2(amax / TOP[fmt])).astype(F)
        else:
            self.s = (amax / TOP[fmt]).astype(F)
        self.codes = np.clip(x / spread(self.s, r, c, x.shape), -TOP[fmt], TOP[fmt]).astype(DT[fmt])
        self.granularity = {(x.shape[0], x.shape[1]): "tensor", (1, x.shape[1]): "row"}.get((r, c), f"group:{c}" if r == 1 else f"block:{r}x{c}")

    def bytes(self):
        return self.codes.view(np.uint8)

    def value(self, s=None):
        """f32, as a kernel that dequantizes first has it."""
        return self.codes.astype(F) * spread(self.s if s is None else s, *self.tile, self.codes.shape).astype(F)

    def scales(self):
        flat = self.granularity in ("tensor", "row")
        return self.s.reshape(-1).astype(F) if flat else self.s.astype(F)

    def held(self, x, e8m0=False, packing=None):
        """Tensors and metadata of operand x."""
        codes = self.bytes()
        if packing:
            low, high = codes[:, 0::2], codes[:, 1::2]
            codes = (low | high << 4) if packing == "low_first" else (high | low << 4)
        elif self.fmt.startswith(("e4", "e5")):
            codes = self.codes
        s = self.scales()
        s = s.astype(ml.float8_e8m0fnu) if e8m0 else s
        words = {f"{x}_granularity": self.granularity, f"{x}_format": self.fmt}
        if packing:
            words[f"{x}_packing"] = packing
        return {f"{x}.codes": codes, f"{x}.scale_inv": s}, words


def product(a, b, bias=None, out="bf16"):
    """f32 matmul of dequantized operands, rounded once."""
    with np.errstate(over="ignore", invalid="ignore"):
        y = a.astype(F) @ b.astype(F).T
        y = y if bias is None else y + bias.astype(F)
        return y.astype(DT[out])


def gemm(name, qa, qb, y, verdict="pass", fault="", bias=None, held=({}, {}), high=False, more=None, **words):
    """A product of two Q."""
    ta, wa = qa.held("a", **held[0])
    tb, wb = qb.held("b", **held[1])
    tensors = {**ta, **tb, "out": y, **({"bias": bias} if bias is not None else {}), **(more or {})}
    if high:
        tensors |= {"a": qa.x, "b": qb.x}
    emit(name, "gemm", tensors, verdict, fault, **{**wa, **wb, **words})


def pair(m, n, k, fa="e4m3", fb="e4m3", tile="row", rule="f32"):
    a, b = draw(m, k), draw(n, k)
    of = {"tensor": lambda x: x.shape, "row": lambda x: (1, x.shape[1])}.get(tile, lambda x: tile)
    return Q(a, fa, *of(a), rule), Q(b, fb, *of(b), rule)


def bias_of(n, kind=ml.bfloat16):
    return (rng.standard_normal(n) * 2).astype(kind)


# --- healthy products ----------------------------------------------------------------------------------------------------
for out in ("bf16", "f16", "f32"):
    qa, qb = pair(40, 56, 208, tile="tensor")
    gemm(f"tensor_{out}", qa, qb, product(qa.value(), qb.value(), out=out), high=True)
qa, qb = pair(33, 24, 160, "e5m2", "e4m3")
gemm("row_e5m2_bias", qa, qb, product(qa.value(), qb.value(), bias := bias_of(24, F)), bias=bias)
qa, qb = pair(33, 24, 160)
sums = (qa.codes.astype(F) @ qb.codes.astype(F).T) * qa.s * qb.s.T
gemm("row_scaled_sums", qa, qb, (sums + (bias := bias_of(24)).astype(F)).astype(F), bias=bias, high=True, recipe="none")
gemm("row_f64", qa, qb, (qa.value().astype(D) @ qb.value().astype(D).T).astype(ml.bfloat16))
gemm("row_on_h200_in_f32", qa, qb, sums.astype(ml.bfloat16), device="NVIDIA H200")
gemm("row_history", qa, qb, sums.astype(ml.bfloat16), more={"a.scale_history": qa.s.reshape(-1)[:4] * F(1.3)})
parts = [qa.codes[:, i : i + 40].astype(F) @ qb.codes[:, i : i + 40].astype(F).T for i in range(0, 160, 40)]
gemm("row_split_k", qa, qb, (sum(parts) * qa.s * qb.s.T).astype(ml.bfloat16))
qa, qb = Q(draw(20, 320), "e4m3", 1, 128), Q(draw(200, 320), "e4m3", 128, 128)
gemm("deepseek_k_tail", qa, qb, product(qa.value(), qb.value(), out="f32"))
y = np.zeros((20, 200), F)
for g in range(3):
    k = slice(128 * g, 128 * g + 128)
    y += qa.codes[:, k].astype(F) @ qb.codes[:, k].astype(F).T * qa.s[:, g : g + 1] * np.repeat(qb.s[:, g], 128)[None, :200]
gemm("deepseek_promoted", qa, qb, y.astype(ml.bfloat16), promote_every=128)
gemm("deepseek_on_h100", qa, qb, y.astype(ml.bfloat16), device="NVIDIA H100 80GB HBM3")
for fmt in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"):
    qa, qb = pair(24, 40, 224, fmt, fmt, (1, 32), "e8m0")
    pack = dict(e8m0=True, packing="low_first" if fmt == "e2m1" else None)
    gemm(f"mx_{fmt}", qa, qb, product(qa.value(), qb.value()), held=(pack, pack))
# e8m0 scales as bytes.
ta, wa = qa.held("a", packing="high_first")
tb, wb = qb.held("b", packing="low_first")
e8 = lambda q: q.s.astype(ml.float8_e8m0fnu).view(np.uint8)
emit("mx_scales_as_bytes", "gemm", {**ta, **tb, "a.scale_inv": e8(qa), "b.scale_inv": e8(qb), "out": product(qa.value(), qb.value())},
     **{**wa, **wb, "a_scale_format": "e8m0", "b_scale_format": "e8m0"})


def nvfp4(x):
    """e2m1 in groups of 16 with e4m3 scales under one f32 scale: codes, scales, global, values."""
    x = x.astype(F)
    top = F(np.abs(x).max() / (448 * 6))
    s = (tiles(x, 1, 16) / 6 / top).astype(ml.float8_e4m3fn)
    wide = spread(s.astype(F), 1, 16, x.shape) * top
    codes = np.clip(np.divide(x, wide, out=np.zeros_like(x), where=wide > 0), -6, 6).astype(ml.float4_e2m1fn)
    return codes.view(np.uint8), s, top, codes.astype(F) * spread(s.astype(F), 1, 16, x.shape) * top


def packed(codes, order):
    low, high = codes[..., 0::2], codes[..., 1::2]
    return low | high << 4 if order == "low_first" else high | low << 4


ca, sa, ga, va = nvfp4(draw(24, 176))
cb, sb, gb, vb = nvfp4(draw(32, 176))
nv_b = vb
nv = {"a.scale_inv": sa, "b.scale_inv": sb, "a.global_scale_inv": np.array([ga], F), "b.global_scale_inv": np.array([gb], F)}
for order in ("low_first", "high_first"):
    words = {f"{x}_{k}": v for x in "ab" for k, v in dict(format="e2m1", packing=order, granularity="group:16").items()}
    emit(f"nvfp4_{order}", "gemm", {**nv, "a.codes": packed(ca, order), "b.codes": packed(cb, order), "out": product(va, vb)}, **words)


def int_row(x, bits=8):
    top = 2 ** (bits - 1) - 1
    s = (np.abs(x.astype(F)).max(1) / top).astype(F)
    return np.clip(np.rint(x.astype(F) / s[:, None]), -top, top).astype(np.int8), s


a, b = draw(28, 192), draw(36, 192)
(ia, sa8), (ib, sb8) = int_row(a), int_row(b)
isum = ia.astype(np.int32) @ ib.astype(np.int32).T
rows = dict(a_granularity="row", b_granularity="row")
int8 = {"a.codes": ia, "b.codes": ib, "a.scale_inv": sa8, "b.scale_inv": sb8}
emit("int8", "gemm", {**int8, "out": isum.astype(F) * sa8[:, None] * sb8[None]}, **rows)
emit("int8_scales_first", "gemm", {**int8, "out": isum.astype(F) * (sa8[:, None] * sb8[None])}, device="NVIDIA A100-SXM4-40GB", **rows)
emit("int8_f16", "gemm", {**int8, "out": (isum.astype(F) * sa8[:, None] * sb8[None]).astype(np.float16)}, **rows)
low, high = a.astype(F).min(1), a.astype(F).max(1)
sz = ((high - low) / 255).astype(F)
za = np.clip(-128 - np.rint(low / sz), -128, 127).astype(np.int32)
az = np.clip(np.rint(a.astype(F) / sz[:, None]) + za[:, None], -128, 127).astype(np.int8)
zsum = isum * 0 + (az.astype(np.int64) - za[:, None]) @ ib.astype(np.int64).T
token = {"a.codes": az, "b.codes": ib, "a.scale_inv": sz, "a.zero_point": za, "b.scale_inv": sb8}
emit("int8_token_asym", "gemm", {**token, "out": zsum.astype(F) * sz[:, None] * sb8[None]}, a_zero="integer", **rows)


def int4_groups(w, g, unsigned, zero):
    """Codes, scales, zero points and f32 values of groups of g."""
    w = w.astype(F)
    n, k = w.shape
    t = w.reshape(n, k // g, g)
    if zero:
        lo, hi = np.minimum(t.min(2), 0), np.maximum(t.max(2), 0)
        s = np.maximum((hi - lo) / 15, 1e-6).astype(F)
        z = np.clip(np.rint(-lo / s) + (0 if unsigned else -8), 0 if unsigned else -8, 15 if unsigned else 7).astype(np.int32)
    else:
        s, z = np.maximum(np.abs(t).max(2) / 7, 1e-6).astype(F), np.zeros((n, k // g), np.int32)
    lim = (0, 15) if unsigned else (-8, 7)
    c = np.clip(np.rint(t / s[..., None]) + z[..., None], *lim)
    v = ((c - z[..., None]) * s[..., None]).astype(F)
    return c.reshape(n, k).astype(np.int8), s, z, v.reshape(n, k)


for unsigned, zero, order, high_type in [(True, True, "low_first", "bf16"), (False, False, "high_first", "f16"), (False, True, None, "bf16"), (True, True, None, "f16")]:
    x, w = draw(16, 256).astype(DT[high_type]), draw(40, 256)
    c, s, z, v = int4_groups(w, 64, unsigned, zero)
    bytes4 = (c & 15).astype(np.uint8)
    tensors = {"a": x, "b.codes": packed(bytes4, order) if order else bytes4 if unsigned else c, "b.scale_inv": s}
    words = dict(b_format="uint4" if unsigned else "int4", b_granularity="group:64", b_packing=order or "none")
    if zero:
        tensors["b.zero_point"], words["b_zero"] = z, "integer"
    label = f"int4_{'u' if unsigned else 's'}_{'zero' if zero else 'sym'}_{order}_{high_type}"
    emit(label, "gemm", {**tensors, "out": product(x, v, out=high_type)}, **words)
    # Most kernels make the weights of the activations' type before they multiply.
    emit(label + "_rounded_weights", "gemm", {**tensors, "out": product(x, v.astype(DT[high_type]), out=high_type)}, **words)
# tinygemm: additive zero points, bf16 scales.
x, w = draw(16, 256), draw(40, 256).astype(F)
t = w.reshape(40, 8, 32)
s = ((t.max(2) - t.min(2)) / 15).astype(ml.bfloat16)
z = (t.min(2) + 8 * s.astype(F)).astype(ml.bfloat16)
c = np.clip(np.rint((t - z.astype(F)[..., None]) / s.astype(F)[..., None]) + 8, 0, 15)
zero8 = (z.astype(F) - 8 * s.astype(F)).astype(F)
v = (c * s.astype(F)[..., None] + zero8[..., None]).reshape(40, 256)
tiny = {"a": x, "b.codes": c.reshape(40, 256).astype(np.uint8), "b.scale_inv": s, "b.zero_point": zero8}
words = dict(b_format="uint4", b_granularity="group:32", b_zero="additive")
emit("int4_additive", "gemm", {**tiny, "out": product(x, v)}, **words)
emit("int4_additive_rounded_weights", "gemm", {**tiny, "out": product(x, v.astype(ml.bfloat16))}, **words)
# W4A8.
c4, s4, z4, v4 = int4_groups(draw(36, 192), 32, False, False)
w4a8 = np.zeros((28, 36), F)
for g in range(6):
    k = slice(32 * g, 32 * g + 32)
    w4a8 += (ia[:, k].astype(np.int32) @ c4[:, k].astype(np.int32).T).astype(F) * s4[None, :, g]
w4 = {"a.codes": ia, "a.scale_inv": sa8, "b.codes": packed((c4 & 15).astype(np.uint8), "low_first"), "b.scale_inv": s4}
w4_words = dict(a_granularity="row", b_granularity="group:32", b_format="int4", b_packing="low_first")
emit("w4a8", "gemm", {**w4, "out": (w4a8 * sa8[:, None]).astype(np.float16)}, **w4_words)
# FP8 activations, int4 weights: nobody's first choice, and real.
qa, _ = pair(24, 8, 192)
emit("fp8_int4", "gemm", {**qa.held("a")[0], "b.codes": c4, "b.scale_inv": s4, "out": product(qa.value(), v4)},
     **{**qa.held("a")[1], "b_format": "int4", "b_granularity": "group:32"})
# Unquantized.
x, w = draw(24, 200), draw(32, 200)
emit("bf16", "gemm", {"a": x, "b": w, "out": product(x, w)})
emit("bf16_bias", "gemm", {"a": x, "b": w, "bias": (bias := bias_of(32)), "out": product(x, w, bias)})
# AMD's formats.
qa, qb = pair(24, 32, 144, "e4m3fnuz", "e5m2fnuz", "tensor")
gemm("fnuz", qa, qb, product(qa.value(), qb.value()), device="AMD Instinct MI300X")
# An FP8 result, by its scale and by scale_inv.
qa, qb = pair(40, 24, 176)
y = product(qa.value(), qb.value(), out="f32")
scale = F(448 / np.abs(y).max() * 0.8)
fp8 = lambda v: np.clip(v, -448, 448).astype(ml.float8_e4m3fn)
ta, wa = qa.held("a")
tb, wb = qb.held("b")
of = {**ta, **tb}
emit("fp8_out", "gemm", {**of, "out": fp8(y * scale), "out.scale": np.array([scale]), "out.scale_inv": np.array([F(1) / scale]),
                         "out.amax": np.array([np.abs(y).max()])}, **wa, **wb)
emit("fp8_out_scale_only", "gemm", {**of, "out": fp8(y * scale), "out.scale": np.array([scale])}, **wa, **wb)
emit("fp8_out_inverse_only", "gemm", {**of, "out.codes": fp8(y * scale), "out.scale_inv": np.array([F(1) / scale])}, **wa, **wb)
emit("fp8_out_saturated", "gemm", {**of, "out": fp8(y * scale * 40), "out.scale": np.array([scale * F(40)])}, **wa, **wb)
# Operands that were views: written contiguous.
emit("strided", "gemm", {**of, "a.codes": np.repeat(qa.codes, 2, 1)[:, ::2], "out": y.T.copy().T}, **wa, **wb)

# --- grouped -------------------------------------------------------------------------------------------------------------
offs = np.array([5, 5, 21, 30], np.int32)
qx = Q(draw(30, 144), "e4m3", 1, 144)
qw = [Q(draw(24, 144), "e4m3", 1, 144) for _ in offs]
ends = list(zip([0, *offs[:-1]], offs))
stack = lambda f: np.stack([f(q) for q in qw])
grouped = {"a.codes": qx.codes, "a.scale_inv": qx.scales(), "b.codes": stack(lambda q: q.codes), "b.scale_inv": stack(Q.scales), "offs": offs}


def experts(pick):
    y = np.zeros((30, 24), F)
    for e, (i, j) in enumerate(ends):
        y[i:j] = qx.value()[i:j] @ qw[pick(e)].value().T
    return y.astype(ml.bfloat16)


emit("grouped", "grouped_gemm", {**grouped, "out": experts(lambda e: e)}, **rows)
emit("bug_grouped_neighbour", "grouped_gemm", {**grouped, "out": experts(lambda e: max(e - 1, 0))}, "fail", "group_boundary:previous_expert", **rows)
# Empty groups are not counted: from the third on an expert too early; only the group behind the empty one.
emit("bug_grouped_empty_not_counted", "grouped_gemm", {**grouped, "out": experts([0, 0, 1, 2].__getitem__)}, "fail",
     "group_boundary:empty_not_counted|group_boundary:previous_expert", **rows)
emit("bug_grouped_empty_neighbour", "grouped_gemm", {**grouped, "out": experts([0, 0, 1, 3].__getitem__)}, "fail",
     "group_boundary:empty_neighbour", **rows)
one = lambda q: F(np.abs(q.x.astype(F)).max() / 448)
qt = [Q(draw(24, 144), "e4m3", 24, 144) for _ in offs]
y = np.concatenate([qx.value()[i:j] @ qt[e].value().T for e, (i, j) in enumerate(ends)])
emit("grouped_tensor_scales", "grouped_gemm", {**grouped, "b.codes": np.stack([q.codes for q in qt]), "b.scale_inv": np.stack([q.s.reshape(1) for q in qt]),
                                               "out": y.astype(ml.bfloat16)}, a_granularity="row", b_granularity="tensor")
emit("bug_grouped_first_scale", "grouped_gemm", {**grouped, "b.codes": np.stack([q.codes for q in qt]), "b.scale_inv": np.stack([q.s.reshape(1) for q in qt]),
     "out": np.concatenate([qx.value()[i:j] @ qt[e].value(qt[0].s).T for e, (i, j) in enumerate(ends)]).astype(ml.bfloat16)},
     "fail", "scale_shared|scale_index", a_granularity="row", b_granularity="tensor")
x, w = draw(30, 64), draw(4 * 20, 64).reshape(4, 20, 64)
y = np.concatenate([x[i:j].astype(F) @ w[e].astype(F).T for e, (i, j) in enumerate(ends)])
emit("grouped_bf16", "grouped_gemm", {"a": x, "b": w, "offs": offs, "out": y.astype(ml.bfloat16)})
ga, gb = [Q(draw(20, 30), "e4m3", 1, 30) for _ in range(1)][0], Q(draw(12, 30), "e4m3", 1, 30)
sa_g, sb_g = (rng.random((4, 20)).astype(F) + F(0.3)), (rng.random((4, 12)).astype(F) + F(0.3))
y = np.stack([(ga.codes[:, i:j].astype(F) @ gb.codes[:, i:j].astype(F).T) * sa_g[e][:, None] * sb_g[e][None] for e, (i, j) in enumerate(ends)])
emit("wgrad", "grouped_gemm_wgrad", {"a.codes": ga.codes, "a.scale_inv": sa_g, "b.codes": gb.codes, "b.scale_inv": sb_g, "offs": offs,
                                     "out": y.astype(ml.bfloat16)}, **rows)

# --- casts and the way back ----------------------------------------------------------------------------------------------
x = draw(24, 144)
scale = F(448 / np.abs(x.astype(F)).max())
codes = fp8(x.astype(F) * scale)
cast = {"a": x, "out": codes, "out.scale": np.array([scale]), "out.scale_inv": np.array([F(1) / scale]), "out.amax": np.array([np.abs(x.astype(F)).max()])}
emit("cast", "cast", cast)
emit("cast_transpose", "cast", {**cast, "out.transpose": np.ascontiguousarray(codes.T)})
emit("cast_saturated", "cast", {"a": x, "out": fp8(x.astype(F) * scale * 9), "out.scale": np.array([scale * F(9)])})
for fmt, r, c, rule in [("e5m2", 1, 144, "f32"), ("e4m3", 1, 128, "f32"), ("e4m3", 16, 16, "f32"), ("e3m2", 1, 32, "e8m0"), ("e4m3fnuz", 24, 144, "f32")]:
    q = Q(x, fmt, r, c, rule)
    held, words = q.held("out", e8m0=rule == "e8m0")
    emit(f"cast_{fmt}_{q.granularity.replace(':', '')}", "cast", {"a": x, **held}, **words)
cx, sx, gx, vx = nvfp4(x)
nvc = {"out.codes": packed(cx, "low_first"), "out.scale_inv": sx, "out.global_scale_inv": np.array([gx], F)}
words = dict(out_format="e2m1", out_packing="low_first", out_granularity="group:16")
emit("cast_nvfp4", "cast", {"a": x, **nvc}, **words)
ties = (np.arange(-400, 400).reshape(20, 40) / 8).astype(ml.bfloat16)
inverse = F(0.3)
emit("cast_by_division", "cast", {"a": ties, "out": fp8(ties.astype(F) / inverse), "out.scale": np.array([F(1) / inverse]), "out.scale_inv": np.array([inverse])})
i8, s8 = int_row(x)
emit("cast_int8_token", "cast", {"a": x, "out.codes": i8, "out.scale_inv": s8}, out_granularity="row")
q = Q(x, "e4m3", 1, 48)
held, words = q.held("a")
emit("dequantize_f32", "dequantize", {**held, "out": q.value()}, **words)
emit("dequantize_bf16", "dequantize", {**held, "a": x, "out": q.value().astype(ml.bfloat16)}, **words)
emit("dequantize_nvfp4", "dequantize", {k.replace("out", "a"): v for k, v in nvc.items()} | {"out": vx},
     a_format="e2m1", a_packing="low_first", a_granularity="group:16")
cd, sd, zd, vd = int4_groups(draw(24, 128), 32, True, True)
emit("dequantize_int4", "dequantize", {"a.codes": cd.astype(np.uint8), "a.scale_inv": sd, "a.zero_point": zd, "out": vd},
     a_format="uint4", a_granularity="group:32", a_zero="integer")

# --- activations and norms -----------------------------------------------------------------------------------------------
x = draw(24, 96)
xf = x.astype(F)
sigmoid = lambda v: (1 / (1 + np.exp(-v.astype(D)))).astype(F)
gelu = lambda v: (v * (0.5 + 0.5 * np.tanh(v.astype(D) * (0.79788456 + 0.03567741 * v.astype(D) ** 2)))).astype(F)
acts = {"gelu": gelu, "silu": lambda v: v * sigmoid(v), "relu": lambda v: np.maximum(v, 0), "qgelu": lambda v: v * sigmoid(F(1.702) * v),
        "srelu": lambda v: np.maximum(v, 0) ** 2}
for fn, f in acts.items():
    emit(f"act_{fn}", "activation", {"a": x, "out": f(xf).astype(ml.bfloat16)}, fn=fn)
    gated = {"gelu": "geglu", "silu": "swiglu", "relu": "reglu", "qgelu": "qgeglu", "srelu": "sreglu"}[fn]
    emit(f"act_{gated}", "activation", {"a": xf, "out": f(xf[:, :48]) * xf[:, 48:]}, fn=gated)
erf = np.vectorize(__import__("math").erf)
exact = lambda v: (F(0.5) * v * (F(1) + erf((v * F(0.7071067811865476)).astype(D)).astype(F)))
emit("act_gelu_erf", "activation", {"a": x, "out": exact(xf).astype(ml.bfloat16)}, fn="gelu_erf")
emit("act_geglu_erf", "activation", {"a": xf, "out": exact(xf[:, :48]) * xf[:, 48:]}, fn="geglu_erf")
wide = (xf * 4).astype(ml.bfloat16)
g, u = np.minimum(wide[:, :48].astype(F), F(7)), np.clip(wide[:, 48:].astype(F), F(-7), F(7))
emit("act_swiglu_oai", "activation", {"a": wide, "out": ((u + 1) * (g * sigmoid(F(1.702) * g))).astype(ml.bfloat16)}, fn="swiglu_oai")
emit("act_swiglu_limit", "activation", {"a": wide, "out": (g * sigmoid(g) * u).astype(np.float16)}, fn="swiglu_limit", limit=7)
y = acts["silu"](xf)
scale = F(448 / np.abs(y).max())
emit("act_fp8", "activation", {"a": x, "out": fp8(y * scale), "out.scale": np.array([scale]), "out.scale_inv": np.array([1 / scale], F)}, fn="silu")
gamma, beta = (1 + rng.standard_normal(96) * 0.2).astype(ml.bfloat16), (rng.standard_normal(96) * 0.2).astype(ml.bfloat16)


def layernorm(v, g, b, eps):
    c = v - v.mean(1, keepdims=True, dtype=F)
    return c / np.sqrt((c * c).mean(1, keepdims=True, dtype=F) + F(eps)) * g + b


def rmsnorm(v, g, eps):
    return v / np.sqrt((v * v).mean(1, keepdims=True, dtype=F) + F(eps)) * g


gf, bf = gamma.astype(F), beta.astype(F)
emit("layernorm", "layernorm", {"a": x, "gamma": gamma, "beta": beta, "out": layernorm(xf, gf, bf, 1e-5).astype(ml.bfloat16)})
emit("layernorm_f32", "layernorm", {"a": xf, "gamma": gf, "out": layernorm(xf, gf, 0, 1e-3)}, eps=1e-3)
emit("rmsnorm", "rmsnorm", {"a": x, "gamma": gamma, "out": rmsnorm(xf, gf, 1e-6).astype(ml.bfloat16)}, eps="1e-06")
emit("rmsnorm_zero_centered", "rmsnorm", {"a": x, "gamma": (gf - 1).astype(F), "out": rmsnorm(xf, 1 + (gf - 1), 1e-5).astype(np.float16)}, zero_centered_gamma=True)

# --- edges ---------------------------------------------------------------------------------------------------------------
for m, n, k in [(1, 1, 1), (1, 40, 96), (40, 1, 96), (16, 16, 1), (3, 5, 7)]:
    qa, qb = pair(m, n, k)
    gemm(f"edge_{m}x{n}x{k}", qa, qb, product(qa.value(), qb.value(), out="f32"), verdict="pass|no_power")
qa, qb = pair(24, 32, 128)
zero = Q(np.zeros((24, 128), ml.bfloat16), "e4m3", 1, 128)
gemm("edge_zeros", zero, qb, np.zeros((24, 32), ml.bfloat16), "no_power")
unit = Q(draw(24, 128), "e4m3", 24, 128)
unit.s = np.ones((1, 1), F)
ub = Q(draw(32, 128), "e4m3", 32, 128)
ub.s = np.ones((1, 1), F)
gemm("edge_unit_scales", unit, ub, product(unit.value(), ub.value()), "no_power")
special = qa.bytes().copy()
special[3, 5], special[7, 9] = 0x7F, 0xFF
qn, _ = pair(24, 32, 128)
qn.codes, qn.s = special.view(ml.float8_e4m3fn), qa.s
gemm("edge_nan_codes", qn, qb, product(qn.value(), qb.value()))
q5, q5b = pair(24, 32, 128, "e5m2", "e5m2")
special = q5.bytes().copy()
special[2, 2], special[4, 100] = 0x7C, 0xFC
q5.codes = special.view(ml.float8_e5m2)
gemm("edge_inf_codes", q5, q5b, product(q5.value(), q5b.value()))
big, bigb = Q(draw(24, 128, 3e3), "e4m3", 1, 128), Q(draw(32, 128, 3e2), "e4m3", 1, 128)
gemm("edge_f16_overflow", big, bigb, product(big.value(), bigb.value(), out="f16"))
xs = x.copy()
xs[1, 1], xs[2, 3], xs[4, 4] = np.nan, np.inf, -np.inf
codes = np.clip(xs.astype(F) * F(20), -448, 448).astype(ml.float8_e4m3fn)
emit("edge_cast_specials", "cast", {"a": xs, "out": codes, "out.scale": np.array([20], F)})
emit("edge_act_specials", "activation", {"a": xs, "out": acts["relu"](xs.astype(F)).astype(ml.bfloat16)}, fn="relu")
tiny_a, tiny_b = Q(draw(24, 128, 1e-30), "e4m3", 1, 128), Q(draw(32, 128, 1e-6), "e4m3", 1, 128)
gemm("edge_subnormal", tiny_a, tiny_b, product(tiny_a.value(), tiny_b.value(), out="f32"), "no_power")

# --- bugs ----------------------------------------------------------------------------------------------------------------
qa, qb = pair(40, 56, 288)
va, vb, bias = qa.value(), qb.value(), bias_of(56)
right = product(va, vb, bias)
bug = lambda name, y, fault, **w: gemm(f"bug_{name}", qa, qb, y, "fail", fault, bias=bias, **w)
ca_f, cb_f = qa.codes.astype(F), qb.codes.astype(F)
bug("scale_is_scale", product(ca_f / qa.s, vb, bias), "scale_doubled_inverted|scale_omitted")
bug("scale_omitted_b", product(va, cb_f, bias), "scale_omitted")
bug("scale_twice_a", product(va * qa.s, vb, bias), "scale_doubled_inverted")
bug("scales_swapped_rows", product(qa.value(np.roll(qa.s, 1, 0)), vb, bias), "scale_shared:a.previous_row_wrapped")
bug("scales_one_row_up", product(qa.value(qa.s[np.minimum(np.arange(40) + 1, 39)]), vb, bias), "scale_shared:a.next_row")
bug("scales_one_column_off", product(va, qb.value(np.roll(qb.s, -1, 0)), bias), "scale_shared:b.next_row_wrapped")
bug("dequantized_to_bf16", product(va.astype(ml.bfloat16), vb.astype(ml.bfloat16), bias), "round_order:dequantized.bf16")
bug("weights_to_f16", product(va, vb.astype(np.float16), bias, "f32"), "round_order:b.dequantized.f16")
bug("first_scale_for_all", product(qa.value(np.repeat(qa.s[:1], 40, 0)), vb, bias), "scale_shared|scale_index")
bug("k_tail_dropped", product(va[:, :256], vb[:, :256], bias), "k_tail")
bug("bias_dropped", product(va, vb), "silent_skip")
bug("bias_before_scale", ((ca_f @ cb_f.T + bias.astype(F)) * qa.s * qb.s.T).astype(ml.bfloat16), "scale_doubled_inverted:bias")
bug("bias_before_scale_of_b", ((ca_f @ cb_f.T * qa.s + bias.astype(F)) * qb.s.T).astype(ml.bfloat16), "scale_doubled_inverted:bias.b")
bug("truncated_out", Raw((product(va, vb, bias.astype(F), "f32").view(np.uint32) >> 16).astype(np.uint16).tobytes(), "BF16", [40, 56]), "rounding")
bug("zeros", np.zeros_like(right), "silent_skip")
bug("row_repeated", right[np.r_[0:39, 38]], "")
bug("half_the_columns", np.where(np.arange(56) < 28, right, 0).astype(ml.bfloat16), "")
half = np.zeros((40, 56), np.float16)
for i in range(288):
    half += (va[:, i : i + 1] * vb[:, i][None]).astype(np.float16)
bug("f16_accumulation", (half.astype(F) + bias.astype(F)).astype(ml.bfloat16), "lowprec_acc:f16.add")
half[:] = 0
for i in range(288):
    half = (half + np.outer(va[:, i].astype(D), vb[:, i].astype(D))).astype(np.float16)
bug("f16_accumulation_fused", half.astype(F) + bias.astype(F), "lowprec_acc:f16.fma")
as_fnuz = qa.bytes().view(ml.float8_e4m3fnuz).astype(F) * qa.s
bug("read_as_fnuz", product(as_fnuz, vb, bias), "bits_reinterpreted")
as_e5m2 = qa.bytes().view(ml.float8_e5m2).astype(F) * qa.s
bug("read_as_e5m2", product(as_e5m2, vb, bias), "bits_reinterpreted")
bug("stale_scale", product(qa.value(qa.s * F(1.37)), vb, bias), "")
square, square_b = pair(40, 192, 192)
gemm("bug_square_codes_transposed", square, square_b, product(square.value(), square_b.codes.T.astype(F) * square_b.s), "fail", "pack_permute:b.column_major")
gemm("bug_square_not_transposed", square, square_b, product(square.value(), square_b.value().T), "fail", "pack_permute:b.column_major_with_scales")
ga, gb2 = pair(40, 48, 384, tile=(1, 128))
wrong = lambda s: product(ga.value(s), gb2.value())
gemm("bug_group_scales_first", ga, gb2, wrong(np.repeat(ga.s[:, :1], 3, 1)), "fail", "scale_index|scale_shared")
gemm("bug_group_scales_transposed", ga, gb2, wrong(ga.s.T.reshape(40, 3)), "fail", "scale_layout")
gemm("bug_group_scales_pow2", ga, gb2, wrong(2 ** np.ceil(np.log2(ga.s))), "fail", "scale_rerounded")
words = {f"{x}_{k}": v for x in "ab" for k, v in dict(format="e2m1", packing="low_first", granularity="group:16").items()}
nv |= {"a.codes": packed(ca, "low_first"), "b.codes": packed(cb, "low_first")}
without = ca.view(ml.float4_e2m1fn).astype(F) * spread(sa.astype(F), 1, 16, ca.shape)
emit("bug_nvfp4_no_global", "gemm", {**nv, "out": product(without, nv_b)}, "fail", "scale_omitted", **words)
emit("bug_int8_zero_ignored", "gemm", {**token, "out": ((az.astype(np.int64) @ ib.astype(np.int64).T).astype(F) * sz[:, None] * sb8[None])},
     "fail", "zp_correction|zp_offset", a_zero="integer", **rows)
nib = c4.reshape(36, -1, 2)[:, :, ::-1].reshape(36, 192)
y = np.zeros((28, 36), F)
for g in range(6):
    k = slice(32 * g, 32 * g + 32)
    y += (ia[:, k].astype(np.int32) @ nib[:, k].astype(np.int32).T).astype(F) * s4[None, :, g]
emit("bug_nibbles_swapped", "gemm", {**w4, "out": (y * sa8[:, None]).astype(np.float16)}, "fail", "pack_permute", **w4_words)
x = draw(24, 96)
xf = x.astype(F)
emit("bug_gelu_tanh", "activation", {"a": xf, "out": gelu(xf)}, "fail", "", fn="gelu_erf")
w = wide.astype(F)
emit("bug_swiglu_unclamped", "activation", {"a": wide, "out": ((w[:, 48:] + 1) * (w[:, :48] * sigmoid(F(1.702) * w[:, :48]))).astype(ml.bfloat16)},
     "fail", "", fn="swiglu_oai")
at, up = np.minimum(w[:, :48], F(7)), np.clip(w[:, 48:], F(-7), F(7))
emit("bug_swiglu_limit", "activation", {"a": wide, "out": (at * sigmoid(at) * up).astype(np.float16)}, "fail", "", fn="swiglu_limit", limit=5)
emit("bug_gelu_erf", "activation", {"a": xf, "out": (xf * 0.5 * (1 + erf(xf.astype(D) / np.sqrt(2)))).astype(F)}, "fail", "", fn="gelu")
emit("bug_gate_swapped", "activation", {"a": x, "out": (acts["silu"](xf[:, 48:]) * xf[:, :48]).astype(ml.bfloat16)}, "fail", "", fn="swiglu")
emit("bug_swiglu_rounded_between", "activation", {"a": x, "out": (acts["silu"](xf[:, :48]).astype(ml.bfloat16).astype(F) * xf[:, 48:]).astype(ml.bfloat16)}, "fail", "", fn="swiglu")
emit("bug_rmsnorm_eps", "rmsnorm", {"a": x / 64, "gamma": gamma, "out": rmsnorm((x / 64).astype(F), gf, 1e-6).astype(ml.bfloat16)}, "fail", "")
emit("bug_rmsnorm_gamma", "rmsnorm", {"a": x, "gamma": gamma, "out": rmsnorm(xf, 1, 1e-5).astype(ml.bfloat16)}, "fail", "")
emit("bug_layernorm_eps", "layernorm", {"a": x / 64, "gamma": gamma, "out": layernorm(xf / 64, gf, 0, 1e-2).astype(ml.bfloat16)}, "fail", "")
emit("bug_cast_240", "cast", {"a": x, "out": np.clip(xf * F(60), -240, 240).astype(ml.float8_e4m3fn), "out.scale": np.array([60], F)}, "fail", "range_rule|codec_edge|overflow_wrap|rounding")
emit("bug_cast_wraps_to_nan", "cast", {"a": x, "out": np.where(np.abs(xf * 60) > 464, np.nan, xf * F(60)).astype(ml.float8_e4m3fn), "out.scale": np.array([60], F)}, "fail", "")
emit("bug_amax_stale", "cast", {**cast, "out.amax": cast["out.amax"] * F(0.9)}, "fail", "")
emit("bug_transpose_missing", "cast", {**cast, "out.transpose": np.ascontiguousarray(cast["out"].T)[::-1].copy()}, "fail", "")

# --- numbers of experts, rows and columns ------------------------------------------------------------------------------------
# NVFP4 with a second-level scale for every expert, on both sides.
cx, sx, gx, vx = nvfp4(draw(30, 96))
each = [nvfp4(draw(20, 96)) for _ in offs]
alphas = (F(0.5) + rng.random(4).astype(F)) * gx, np.array([q[2] for q in each], F)
words = {f"{x}_{k}": v for x in "ab" for k, v in dict(format="e2m1", packing="low_first", granularity="group:16").items()}
nv = {"a.codes": packed(cx, "low_first"), "a.scale_inv": sx, "a.global_scale_inv": alphas[0], "offs": offs,
      "b.codes": packed(np.stack([q[0] for q in each]), "low_first"), "b.scale_inv": np.stack([q[1] for q in each]), "b.global_scale_inv": alphas[1]}
alone = lambda pick: np.concatenate([(vx[i:j] / gx * alphas[0][e]) @ (each[e][3] / alphas[1][e] * alphas[1][pick(e)]).T for e, (i, j) in enumerate(ends)])
emit("grouped_nvfp4_experts", "grouped_gemm", {**nv, "out": alone(lambda e: e).astype(ml.bfloat16)}, **words)
emit("bug_grouped_nvfp4_first_expert", "grouped_gemm", {**nv, "out": alone(lambda e: 0).astype(ml.bfloat16)}, "fail", "", **words)
# A router's weight for every row.
weights = (0.1 + rng.random(30)).astype(F)
y = np.concatenate([qx.value()[i:j] @ qw[e].value().T for e, (i, j) in enumerate(ends)])
emit("grouped_row_weights", "grouped_gemm", {**grouped, "row_weights": weights, "out": (y * weights[:, None]).astype(ml.bfloat16)}, **rows)
emit("bug_grouped_row_weights", "grouped_gemm", {**grouped, "row_weights": weights, "out": y.astype(ml.bfloat16)}, "fail", "", **rows)
# Columns of weights in groups by an index (act-order).
x, index = draw(16, 128), rng.permutation(128).astype(np.int32) // 32
codes, scale = rng.integers(-8, 8, (24, 128)).astype(np.int8), (0.01 + 0.05 * rng.random((24, 4))).astype(np.float16)
acted = {"a": x, "b.codes": codes, "b.scale_inv": scale, "b.g_idx": index}
words = dict(b_format="int4", b_granularity="group:32")
emit("gemm_g_idx", "gemm", {**acted, "out": product(x, codes * scale.astype(F)[:, index])}, **words)
emit("bug_gemm_g_idx", "gemm", {**acted, "out": product(x, codes * scale.astype(F)[:, np.arange(128) // 32])}, "fail", "", **words)
# An activation of codes.
q = Q(draw(16, 128), "e4m3", 1, 32, "e8m0")
emit("relu_of_codes", "activation", {**q.held("a", e8m0=True)[0], "out": np.maximum(q.value(), 0).astype(ml.bfloat16)}, fn="relu", a_granularity="group:32")
emit("bug_relu_of_codes", "activation", {**q.held("a", e8m0=True)[0], "out": np.maximum(2 * q.value(), 0).astype(ml.bfloat16)}, "fail", "", fn="relu", a_granularity="group:32")
