"""int8 products: exact in int32, then scales; zero points corrected in several orders; W4A8 with groups; or dequantized and summed in f32."""

import numpy as np

import arith
import data
import orders
from arith import F, fma
from bundle import Results
from epilogue import finish, scaled, told, with_bias
from grids import spread, stored


def affine(rng, x, low, high, g, zero):
    """Codes int8, f32 scale and integer zero points of groups of g along K; short last group."""
    b, rows, k = x.shape
    n = -(-k // g)
    wide = np.zeros((b, rows, n * g))
    wide[..., :k] = x
    t = wide.reshape(b, rows, n, g)
    if zero:
        lo, hi = np.minimum(t.min(-1), 0), np.maximum(t.max(-1), 0)
        s = np.maximum((hi - lo) / (high - low), 1e-9).astype(F)
        z = np.clip(np.rint(low - lo / s), low, high).astype(np.int32)
    else:
        s = np.maximum(np.abs(t).max(-1) / high, 1e-9).astype(F)
        z = np.zeros((b, rows, n), np.int32)
    codes = np.clip(np.rint(t / s[..., None]) + z[..., None], low, high).reshape(b, rows, n * g)[..., :k]
    return codes.astype(np.int64), s, z


def scale_type(rng, s):
    """Scales as stored: f32, f16 or bf16; what is stored is what the kernel reads."""
    return arith.to(s, str(rng.choice(["f32", "f32", "bf16", "f16"])))


def batches(rng):
    kind = str(rng.choice([k for k in data.KINDS if k not in ("subnormal", "huge")]))
    b, m, n, k = data.shape(rng)
    x, y = data.pair(rng, kind, b, m, n, k)
    narrow = rng.random() < 0.45  # W4A8
    g = int(rng.choice([32, 64, 128, k])) if narrow else k
    fmt = str(rng.choice(["int4", "uint4"], p=[0.8, 0.2])) if narrow else "int8"
    za, zb = bool(rng.random() < 0.35), bool(rng.random() < 0.35) or fmt == "uint4"
    qa, sa, za_ = affine(rng, x, -128, 127, k, za)
    qb, sb, zb_ = affine(rng, y, *{"int8": (-127, 127), "int4": (-8, 7), "uint4": (0, 15)}[fmt], g, zb)
    sa, sb = scale_type(rng, sa), scale_type(rng, sb)
    held = {"a.codes": qa.astype(np.int8), "a.scale_inv": sa[:, :, 0]}
    meta = {"a.granularity": "row", "b.granularity": "row" if g == k else f"group:{g}", "b.format": fmt}
    held["b.codes"], more = stored(qb.astype(np.int8) if fmt != "uint4" else qb.astype(np.uint8), fmt, "b", rng)
    held["b.scale_inv"] = sb[:, :, 0] if g == k else sb
    meta |= more
    kinds = [np.int32, np.int8] if fmt != "uint4" else [np.int32, np.uint8]
    if za:
        meta["a.zero"], held["a.zero_point"] = "integer", za_[:, :, 0].astype(kinds[int(rng.integers(2))] if fmt != "uint4" else np.int32)
    if zb:
        meta["b.zero"], held["b.zero_point"] = "integer", (zb_[:, :, 0] if g == k else zb_).astype(kinds[int(rng.integers(2))])
    for x in "ab":  # torch keeps some zero points in floats
        if f"{x}.zero_point" in held and rng.random() < 0.2:
            held[f"{x}.zero_point"] = held[f"{x}.zero_point"].astype(F)
    fa, fb = sa.astype(F), sb.astype(F)
    groups = range(0, k, g)
    for _ in range(5):
        bias, device = with_bias(rng, b, n), str(rng.choice(["A100", "L40S", "H100", "H200", "B200", "RTX 5090"])) if rng.random() < 0.5 else None
        add = bias is not None and bias[:, None, :].astype(F)
        draw = rng.random()
        if draw < 0.2:  # dequantized in f32, summed in f32
            order = orders.Order(rng, k, orders.cuda_core(rng, k), int(rng.choice([1, 16, 64])))
            va = (qa - za_).astype(F) * fa
            vb = (qb - spread(zb_, 1, g, qb.shape)).astype(F) * spread(fb, 1, g, qb.shape)
            name, v = f"f32 {order.name}", order.join(order.parts(va, vb))
            v = v if bias is None else v + add
        else:
            exact = []
            for s in groups:
                p, q = qa[..., s:s + g], qb[..., s:s + g]
                z = zb_[:, :, s // g]
                # Exact in int32 in any order: corrected terms, or zero points taken off before.
                exact.append(np.matmul(p, q.transpose(0, 2, 1)) - p.sum(-1)[:, :, None] * z[:, None, :] - za_ * q.sum(-1)[:, None, :]
                             + p.shape[-1] * za_ * z[:, None, :])
            if g == k:
                one = orders.Order(rng, 1, ("int32", None), 1)
                scales, run, fuse = scaled(rng, one, fa, fb.transpose(0, 2, 1))
                parts = [exact[0].astype(F)]
                if (za or zb) and rng.random() < 0.3:  # the correction is taken off in f32: both are whole numbers below 2^24
                    raw, fix = np.matmul(qa, qb.transpose(0, 2, 1)), 0
                    fix = raw - exact[0]
                    if max(np.abs(raw).max(), np.abs(fix).max()) < 1 << 24:
                        parts, scales = [raw.astype(F) - fix.astype(F)], scales + " corrected_in_f32"
                v = fuse(parts, add) if bias is not None and rng.integers(2) else None
                fused = v is not None
                if v is None:
                    v = run(parts)
                    v = v if bias is None else v + add
                name = f"int32 {scales}{'+fma' if fused else ''}"
            else:
                how = int(rng.integers(3))
                c = np.zeros(exact[0].shape, F)
                for i, e in enumerate(exact):
                    w = fb[:, None, :, i]
                    c = [lambda: fma(e.astype(F), w, c), lambda: c + e.astype(F) * w, lambda: c + e.astype(F) * (fa * w)][how]()
                v = c if how == 2 else c * fa
                v = v if bias is None else v + add
                name = ["groups fma", "groups", "groups P*(sa*sb)"][how]
        out, result, more = finish(rng, v)
        tensors = held | ({"bias": bias} if bias is not None else {})
        yield Results(f"integers int8x{fmt}:{g} {name} {device} {kind} {out}", "gemm", tensors | result, meta | more | {"device": told(rng, device)})
