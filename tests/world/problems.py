"""The problems: products, grouped products, casts, norms, activations; each with a right kernel of our own."""
import numpy as np

from common import F32, F64, NP, TOP, Op, coded, decode, encode, gather, grain, net, rnd, spread


class Gemm:
    """One quantized product D = A B' (+ bias). av, bv are the codes' values, sa, sb their scales, as wide as the codes."""

    op = "gemm"

    def __init__(self, rng, m, n, k, a, b, out="bf16", bias=None, device=None, bk=128, data="net", bdata="net", fix=None, meta=None):
        self.rng, self.m, self.n, self.k, self.outf, self.bk, self.device = rng, m, n, k, out, bk, device
        xa, xb = net(rng, m, k, data), net(rng, n, k, bdata) * F32(0.06)
        if fix:
            xa, xb = fix(rng, xa, xb)
        self.A, self.B = Op(xa, *a), Op(xb, *b)
        self.bias = None if bias is None else rnd(rng.standard_normal(n) * 2, bias)
        self.biasf, self.more, self.oscale, self.ops = bias, dict(meta or {}), None, {}
        self.refresh()

    def refresh(self):
        """The operands as the kernel sees them."""
        self.av, self.sa, self.bv, self.sb = self.A.v, self.A.s, self.B.v, self.B.s
        self.gs = F32(1)
        for o in (self.A, self.B):
            if o.glob is not None:
                self.gs = F32(self.gs * o.glob[0])
        self.step = min(self.A.c, self.B.c, self.bk)

    def run(self, a=None, b=None, sa=None, sb=None, ks=None, step=None, end=True):
        """The right main loop, with other operands, scales or K steps where they are given."""
        a, b = self.av if a is None else a, self.bv if b is None else b
        sa, sb = self.sa if sa is None else sa, self.sb if sb is None else sb
        step = step or self.step
        if self.B.zero == "additive":
            b, sb = b * sb + self.B.add, np.ones_like(sb)
        acc = np.zeros((a.shape[0], b.shape[0]), F32)
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(0, self.k, step) if ks is None else ks:
                acc += (a[:, k:k + step] @ b[:, k:k + step].T) * (sa[:, k:k + 1] * sb[:, k][None, :])
            return self.end(acc) if end else acc

    def end(self, acc, bias="own", gs=None):
        """The epilogue: second-level scales, bias."""
        y = acc * (self.gs if gs is None else gs)
        bias = self.bias if isinstance(bias, str) else bias
        return (y if bias is None else y + bias[None, :]).astype(F32)

    def right(self):
        """The right result."""
        return self.run()

    def absdot(self):
        """What bounds the rounding of the sums."""
        return np.abs(self.A.deq()).astype(F64) @ np.abs(self.B.deq()).astype(F64).T

    def store(self, y):
        """The result as the kernel stores it."""
        if self.outf in TOP:
            with np.errstate(over="ignore", invalid="ignore"):
                return encode(y * self.oscale, self.outf)
        return rnd(y, self.outf)

    def ratio(self, wrong, right):
        """How far the wrong result is from the right one, in roundings of a right kernel; and the share of elements beyond."""
        w, r = self.store(wrong), self.store(right)
        if self.outf in TOP:
            w, r = decode(w, self.outf) / self.oscale, decode(r, self.outf) / self.oscale
        ulp = {"bf16": 2.0 ** -8, "f16": 2.0 ** -10, "f32": 2.0 ** -23}.get(self.outf, 2.0 ** -3)
        chip = 2.0 ** -12 if self.A.fmt in ("e4m3", "e5m2") else 0.0
        tol = self.absdot() * (self.k * 2.0 ** -23 + chip) + np.abs(r) * ulp + 1e-38
        with np.errstate(invalid="ignore"):
            q = np.abs(w.astype(F64) - r) / tol
        q = np.where(np.isfinite(w) | ~np.isfinite(r), np.nan_to_num(q, nan=0.0), 1e9)
        return float(q.max()), float((q > 1).mean())

    def bundle(self, y):
        """Tensors and metadata of the bundle with result y."""
        t, meta = {}, {"op": self.op, **self.more}
        self.A.tensors("a", t, meta, self.op.endswith("wgrad"))
        self.B.tensors("b", t, meta, self.op != "gemm")
        t.update(self.ops)
        if self.bias is not None:
            t["bias"] = (self.biasf, self.bias)
        if self.outf in TOP:
            meta["out.format"] = self.outf
            t["out.codes"] = coded(self.store(y), self.outf)
            t["out.scale"] = ("f32", np.array([self.oscale], F32))
        else:
            t["out"] = (self.outf, self.store(y))
        if self.device:
            meta["device"] = self.device
        return t, meta


class Grouped(Gemm):
    """A product with experts: rows up to offs[e] belong to expert e, b is [E, N, K]."""

    op = "grouped_gemm"

    def __init__(self, rng, sizes, n, k, a, b, out="bf16", device=None, bk=128, weights=False, extra=0):
        self.rng, self.n, self.k, self.outf, self.bk, self.device = rng, n, k, out, bk, device
        self.offs = np.cumsum(sizes).astype(np.int32)
        self.m, self.e = int(self.offs[-1]) + extra, len(sizes)
        xb = np.stack([net(rng, n, k) * F32(0.06 * np.exp(0.5 * rng.standard_normal())) for _ in sizes])
        self.A, self.B = Op(net(rng, self.m, k), *a), Op(xb, *b)
        self.bias, self.biasf, self.more, self.oscale = None, None, {}, None
        self.ops = {"offs": ("I32", self.offs)}
        self.rw = None
        if weights:
            self.rw = rng.uniform(0.05, 0.9, self.m).astype(F32)
            self.ops["row_weights"] = ("f32", self.rw)
        self.refresh()

    def spans(self, offs=None):
        """(expert, first row, end row)."""
        o = [0] + list(self.offs if offs is None else offs)
        return [(e, o[e], o[e + 1]) for e in range(self.e)]

    def tile(self, e, r0, r1, sa=None, sb=None, b=None, ks=None):
        """Rows r0..r1 with expert e's weights."""
        sa = self.sa if sa is None else sa
        return self.run(self.av[r0:r1], self.bv[e] if b is None else b, sa[r0:r1], self.sb[e] if sb is None else sb, ks, end=False)

    def finish(self, acc, rw="own"):
        """Second-level scales and the router's weights."""
        rw = self.rw if isinstance(rw, str) else rw
        acc = acc * self.gs
        return acc if rw is None else (acc * rw[:, None]).astype(F32)

    def right(self):
        acc = np.zeros((self.m, self.n), F32)
        for e, r0, r1 in self.spans():
            acc[r0:r1] = self.tile(e, r0, r1)
        return self.finish(acc)

    def absdot(self):
        acc, x, w = np.zeros((self.m, self.n)), np.abs(self.A.deq()).astype(F64), np.abs(self.B.deq()).astype(F64)
        for e, r0, r1 in self.spans():
            acc[r0:r1] = x[r0:r1] @ w[e].T
        return acc


class Wgrad(Gemm):
    """A product with the tokens as K, cut into groups by offs; out is [E, M, N]."""

    op = "grouped_gemm_wgrad"

    def __init__(self, rng, sizes, m, n, out="f32", device=None):
        self.rng, self.m, self.n, self.k, self.outf, self.device, self.bk = rng, m, n, sum(sizes), out, device, 1
        self.offs, self.e = np.cumsum(sizes).astype(np.int32), len(sizes)
        self.A, self.B = Op(net(rng, m, self.k), "bf16"), Op(net(rng, n, self.k), "bf16")
        self.bias, self.biasf, self.more, self.oscale, self.ops = None, None, {}, None, {"offs": ("I32", self.offs)}
        self.refresh()

    def part(self, e):
        """The product of one group."""
        r0, r1 = ([0] + list(self.offs))[e], self.offs[e]
        return self.av[:, r0:r1] @ self.bv[:, r0:r1].T

    def right(self):
        return np.stack([self.part(e) for e in range(self.e)])

    def absdot(self):
        o = [0] + list(self.offs)
        a, b = np.abs(self.av).astype(F64), np.abs(self.bv).astype(F64)
        return np.stack([a[:, o[e]:o[e + 1]] @ b[:, o[e]:o[e + 1]].T for e in range(self.e)])


class Cast:
    """A cast of x to codes with scales; recipe te (one scale, 448/amax), mx_* (group 32, E8M0), or a plain absmax scale."""

    op = "cast"

    def __init__(self, rng, m, k, fmt, gran="tensor", sfmt="f32", af="bf16", recipe=None, rule="absmax", data="net", fix=None,
                 static=None, transpose=False, zero="none", device=None):
        self.rng, self.m, self.k, self.fmt, self.gran, self.sfmt, self.af = rng, m, k, fmt, gran, sfmt, af
        self.recipe, self.rule, self.static, self.tr, self.zero, self.device = recipe, rule, static, transpose, zero, device
        x = net(rng, m, k, data)
        self.x = rnd(fix(rng, x) if fix else x, af)
        self.r, self.c = grain(gran, m, k)

    def scale(self, amax):
        """The scale_inv of the declared rule."""
        if self.static:
            return np.full_like(amax, self.static)
        if self.rule == "te":
            with np.errstate(over="ignore", divide="ignore"):
                return (F32(1) / np.minimum(F32(TOP[self.fmt]) / amax, np.finfo(F32).max)).astype(F32)
        if self.rule in ("floor", "even", "rceil"):
            emax = {"e4m3": 8, "e5m2": 15, "e2m3": 2, "e3m2": 4, "e2m1": 2}[self.fmt]
            mb = {"e4m3": 3, "e5m2": 2, "e2m3": 3, "e3m2": 2, "e2m1": 1}[self.fmt]
            if self.rule == "even":
                amax = ((amax.view(np.uint32) + np.uint32(1 << (22 - mb))) & np.uint32(0x7F800000)).view(F32)
            if self.rule == "rceil":
                s = (amax * (F32(1) / F32(TOP[self.fmt]))).astype(F32)
                m, e = np.frexp(s)
                e = np.where(m == 0.5, e - 1, e)
            else:
                e = np.frexp(amax)[1] - 1 - emax
            return np.ldexp(F32(1), np.clip(e, -127, 127)).astype(F32)
        s = np.maximum(amax, F32(1e-12)) / F32(TOP[self.fmt])
        return rnd(s, self.sfmt)

    def amax(self, x=None):
        """Largest magnitude of each block."""
        return gather(np.abs(self.x if x is None else x), self.r, self.c, np.max, 0).astype(F32)

    def quant(self, grid, x=None):
        """Codes of x by a grid of scale_inv."""
        x = self.x if x is None else x
        s = spread(grid, x.shape, self.r, self.c)
        if self.rule == "te" or self.static:
            with np.errstate(over="ignore"):
                return encode((x * np.minimum(F32(1) / s, np.finfo(F32).max)).astype(F32), self.fmt)
        return encode((x / s).astype(F32), self.fmt)

    def right(self):
        grid = self.scale(self.amax())
        codes = self.quant(grid)
        return {"codes": codes, "grid": grid, "amax": np.abs(self.x).max().astype(F32), "tr": codes.T.copy()}

    def ratio(self, wrong, right):
        """Count of codes, scales and other things that differ, and the share of the codes."""
        n, share = 0, 0.0
        for key, y in right.items():
            if key == "tr" and not self.tr or key == "amax" and not (self.rule == "te"):
                continue
            bad = wrong[key] != y
            n += int(np.sum(bad))
            share = max(share, float(np.mean(bad)))
        return float(n), share

    def bundle(self, y):
        t, meta = {"a": (self.af, self.x)}, {"op": "cast", "out.format": self.fmt, "out.granularity": self.gran}
        order = "low_first" if self.fmt in ("e2m1", "int4", "uint4") else "none"
        t["out.codes"] = coded(y["codes"], self.fmt, order)
        if order != "none":
            meta["out.packing"] = order
        g = y["grid"]
        g = g.reshape({"tensor": (1,), "row": (self.m,)}.get(self.gran, g.shape))
        t["out.scale_inv"] = ("F8_E8M0", g.astype(NP["e8m0"]).view(np.uint8)) if self.sfmt == "e8m0" else (self.sfmt, g)
        if self.rule == "te":
            with np.errstate(over="ignore", divide="ignore"):
                s = np.minimum(F32(TOP[self.fmt]) / self.amax(), np.finfo(F32).max).reshape(1)
            t["out.scale"] = ("f32", y.get("scale", s))
            t["out.amax"] = ("f32", np.array([y["amax"]], F32))
        if self.tr:
            t["out.transpose"] = coded(y["tr"], self.fmt)
        if self.recipe:
            meta["recipe"] = self.recipe
        if self.device:
            meta["device"] = self.device
        return t, meta


class Dense:
    """Common parts of norms, activations and dequantize: a wide result, or FP8 codes by a given scale."""

    def __init__(self, rng, m, n, af, out, scale=None, device=None):
        self.rng, self.m, self.n, self.af, self.outf, self.scale, self.device = rng, m, n, af, out, scale, device
        self.more = {}

    def store(self, y):
        """The result as stored."""
        with np.errstate(over="ignore", invalid="ignore"):
            return encode((y * F32(self.scale)).astype(F32), self.outf) if self.outf in TOP else rnd(y, self.outf)

    def ratio(self, wrong, right):
        w, r = self.store(wrong), self.store(right)
        if self.outf in TOP:
            return float((w != r).sum()), float((w != r).mean())
        ulp = {"bf16": 2.0 ** -8, "f16": 2.0 ** -10, "f32": 2.0 ** -19}[self.outf]
        tol = np.abs(r) * ulp + 1e-6 * (self.outf == "f32" and self.op != "dequantize") + 1e-44
        q = np.nan_to_num(np.abs(w.astype(F64) - r) / tol, nan=1e9, posinf=1e9)
        return float(q.max()), float((q > 1.01).mean())

    def bundle(self, y):
        t, meta = {}, {"op": self.op, **self.more}
        self.inputs(t, meta)
        if self.outf in TOP:
            meta["out.format"] = self.outf
            t["out.codes"] = coded(self.store(y), self.outf)
            t["out.scale"] = ("f32", np.array([self.scale], F32))
            t["out.scale_inv"] = ("f32", np.array([F32(1) / F32(self.scale)], F32))
        else:
            t["out"] = (self.outf, self.store(y))
        if self.device:
            meta["device"] = self.device
        return t, meta


class Norm(Dense):
    """LayerNorm or RMSNorm of rows."""

    def __init__(self, rng, kind, m, n, af="bf16", out="bf16", eps=1e-5, zc=False, scale=None, fix=None, data="net", beta=True,
                 device=None):
        super().__init__(rng, m, n, af, out, scale, device)
        self.op, self.eps, self.zc = kind, F32(eps), zc
        x = net(rng, m, n, data)
        self.x = rnd(fix(rng, x) if fix else x, af)
        self.g = rnd((0 if zc else 1) + 0.2 * rng.standard_normal(n), af)
        self.b = rnd(0.1 * rng.standard_normal(n), af) if kind == "layernorm" and beta else None
        self.more = {"eps": repr(float(eps)), "zero_centered_gamma": "true" if zc else "false"}

    def gain(self):
        """gamma as it multiplies."""
        return self.g + F32(1) if self.zc else self.g

    def rs(self, x=None):
        """Mean and reciprocal deviation of each row."""
        x = self.x if x is None else x
        mu = x.mean(1, keepdims=True, dtype=F32) if self.op == "layernorm" else np.zeros((len(x), 1), F32)
        var = np.mean((x - mu) ** 2, 1, keepdims=True, dtype=F32)
        return mu, (F32(1) / np.sqrt(var + self.eps)).astype(F32)

    def apply(self, mu, rs, gain=None):
        """The normalised rows."""
        y = (self.x - mu) * rs * (self.gain() if gain is None else gain)
        return (y if self.b is None else y + self.b).astype(F32)

    def right(self):
        return self.apply(*self.rs())

    def inputs(self, t, meta):
        t["a"], t["gamma"] = (self.af, self.x), (self.af, self.g)
        if self.b is not None:
            t["beta"] = (self.af, self.b)


def sig(x):
    """Logistic function in f32."""
    with np.errstate(over="ignore"):
        return (F32(1) / (F32(1) + np.exp(-x.astype(F32)))).astype(F32)


def gelu(x):
    """The tanh form."""
    x = x.astype(F32)
    u = F32(0.7978845608) * (x + F32(0.044715) * x * x * x)
    return (F32(0.5) * x * (F32(1) + np.tanh(u))).astype(F32)


class Act(Dense):
    """An activation; the gated ones act on the first half of a row."""

    op = "activation"

    def __init__(self, rng, fn, m, n, af="bf16", out="bf16", scale=None, amp=1.5, data="plain", device=None):
        super().__init__(rng, m, n, af, out, scale, device)
        self.fn, self.gated, self.more = fn, fn.endswith("glu") and fn != "gelu", {"fn": fn}
        self.x = rnd(net(rng, m, n * (2 if self.gated else 1), data) * F32(amp), af)
        self.g, self.u = (self.x[:, :n], self.x[:, n:]) if self.gated else (self.x, None)

    def f(self, x):
        """The function before the gate."""
        base = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "qgeglu": "qgelu", "sreglu": "srelu"}.get(self.fn, self.fn)
        return {"silu": lambda v: v * sig(v), "gelu": gelu, "relu": lambda v: np.maximum(v, 0),
                "qgelu": lambda v: v * sig(F32(1.702) * v), "srelu": lambda v: np.maximum(v, 0) ** 2}[base](x)

    def right(self):
        y = self.f(self.g)
        return (y * self.u if self.gated else y).astype(F32)

    def inputs(self, t, meta):
        t["a"] = (self.af, self.x)


class Deq(Dense):
    """Codes to values."""

    op = "dequantize"

    def __init__(self, rng, m, n, a, out="bf16", fix=None, device=None):
        super().__init__(rng, m, n, None, out, None, device)
        x = net(rng, m, n)
        self.A = Op(fix(rng, x) if fix else x, *a)

    def right(self):
        return self.A.deq()

    def inputs(self, t, meta):
        self.A.tensors("a", t, meta)
