"""Kernels in numpy: what a candidate process looks like. qassay run smoke --candidate 'python3 notebooks/python/candidate_numpy.py'"""

import numpy as np
from qassay_bundle import Unsupported, decode, encode, rounded, serve, stored

np.seterr(all="ignore")
F = np.float32


def product(case):
    """FP8 sums of codes in f32, scales afterwards; integers exactly; 16-bit values times dequantized weights."""
    a, b = case.values("a") if "a" in case else None, None
    if "a.codes" in case and case.format("a") not in ("int8",) and "b.codes" in case and "int" not in case.format("b"):
        return scaled(case)
    if "a.codes" in case and case.format("a") == "int8":
        # Scales and zero points are one a row of a; the sums are exact, and are rounded once.
        return case.values("a") @ case.values("b").T
    if a is None or "b.codes" not in case:
        raise Unsupported("a product of these operands")
    weights = rounded(case.values("b"), case.format("a"))
    b = weights.numpy() if hasattr(weights, "bytes") else weights
    return a.astype(F) @ b.astype(F).T


def scaled(case):
    """Block by block of K where scales change along it: RN32(P*s_a)*s_b added in f32."""
    codes = {x: decode(case.codes(x), case.format(x)).astype(F) for x in "ab"}
    scales = {x: case.spread(x, case.scale_inv(x).astype(np.float64)).astype(F) for x in "ab"}
    k = codes["a"].shape[1]
    edges = [0]
    for j in range(1, k):
        if any((scales[x][:, j] != scales[x][:, j - 1]).any() for x in "ab"):
            edges.append(j)
    y = np.zeros((codes["a"].shape[0], codes["b"].shape[0]), F)
    for start, end in zip(edges, edges[1:] + [k]):
        p = codes["a"][:, start:end] @ codes["b"][:, start:end].T
        y += p * scales["a"][:, start : start + 1] * scales["b"][:, start : start + 1].T
    for x in "ab":
        if f"{x}.global_scale_inv" in case:
            y = y * case.vector(f"{x}.global_scale_inv")[0]
    return y


def grouped(case):
    """One product a group of rows, or (weight gradient) of columns."""
    ends = case.vector("offs")
    spans = list(zip(np.concatenate([[0], ends[:-1]]), ends))
    codes = {x: decode(case.codes(x), case.format(x)).astype(F) for x in "ab"}
    s = {x: case.scale_inv(x) for x in "ab"}
    if case.granularity("a") != "row" or case.granularity("b") != "row":
        raise Unsupported("grouped products of row-wise scales only")
    if case.op == "grouped_gemm":
        out = np.zeros((codes["a"].shape[0], codes["b"].shape[1]), F)
        for e, (i, j) in enumerate(spans):
            out[i:j] = codes["a"][i:j] @ codes["b"][e].T * s["a"][i:j, None] * s["b"][e][None, :]
        return out
    out = np.zeros((len(ends), codes["a"].shape[0], codes["b"].shape[0]), F)
    for e, (i, j) in enumerate(spans):
        out[e] = codes["a"][:, i:j] @ codes["b"][:, i:j].T * s["a"][e][:, None] * s["b"][e][None, :]
    return out


ACTS = {
    "relu": lambda x: np.fmax(x, 0.0),
    "srelu": lambda x: np.where(x > 0, x * x, 0.0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "qgelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu": lambda x: x * (0.5 + 0.5 * np.tanh(x * (0.79788456 + 0.03567741 * x * x))),
}
GATED = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu", "qgeglu": "qgelu", "sreglu": "srelu"}


def elementwise(case):
    """In float64, rounded to f32 once: inside what f32 arithmetic may return."""
    x = case.values("a")
    if case.op == "activation":
        fn = case.meta["fn"]
        if fn in ACTS:
            return ACTS[fn](x)
        half = x.shape[1] // 2
        return ACTS[GATED[fn]](x[:, :half]) * x[:, half:]
    gamma, beta = case.vector("gamma").astype(np.float64), case.vector("beta")
    if case.meta.get("zero_centered_gamma") == "true":
        gamma = gamma + 1
    eps = float(F(case.meta.get("eps", "1e-5")))
    if case.op == "rmsnorm":
        return x / np.sqrt((x * x).mean(1, keepdims=True) + eps) * gamma
    d = x - x.mean(1, keepdims=True)
    return d / np.sqrt((d * d).mean(1, keepdims=True) + eps) * gamma + (0 if beta is None else beta.astype(np.float64))


def current(case, x):
    """TransformerEngine's current scaling: one scale M/amax."""
    top = F(decode(encode(np.array([1e30]), case.format("out")), case.format("out"))[0])
    amax = F(np.abs(x).max())
    scale = F(1) if amax == 0 or not np.isfinite(amax) else min(top / amax, np.finfo(F).max)
    codes = encode((x.astype(F) * scale).astype(F), case.format("out"))
    return {"out.codes": stored(codes, case.format("out")), "out.scale_inv": np.array([F(1) / scale], F)}


def kernel(case):
    if case.op == "cast":
        recipe = case.meta.get("recipe", "given").split(":")[0]
        if recipe == "te_current":
            return current(case, case.values("a"))
        if recipe != "given":
            raise Unsupported(f"no recipe {recipe}")
        y = case.values("a")
    elif case.op == "dequantize":
        if case.meta.get("a.zero") == "additive":
            raise Unsupported("additive zero points")
        y = case.values("a")
    elif case.op == "gemm":
        y = product(case)
        y = y if (bias := case.vector("bias")) is None else F(y) + bias.astype(F)
    elif case.op.startswith("grouped"):
        y = grouped(case)
    else:
        y = elementwise(case)
    y = np.asarray(y, F)
    format = case.format("out")
    if "out.scale" not in case:
        return {"out": rounded(y, format)}
    scale = case.vector("out.scale")[0]
    amax = np.fmax.reduce(np.abs(y), axis=None, initial=0)
    return {
        "out.codes": stored(encode(y * scale, format), format),
        "out.scale_inv": np.array([F(1) / scale], F),
        "out.amax": np.array([amax], F),
    }


if __name__ == "__main__":
    serve(kernel, kernel="numpy")
