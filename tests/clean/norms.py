"""LayerNorm and RMSNorm in f32: variance by two passes or by Welford, rsqrt or 1/sqrt, sums in several orders; one rounding to the result's type."""

import numpy as np

import arith
from arith import D, F, fma, to
from bundle import Results
from epilogue import finish, told


def total(rng, x):
    draw = int(rng.integers(3))
    return [arith.ascending, arith.tree, lambda v: arith.tree(arith.ascending(np.moveaxis(arith.padded(v, 32), -2, -1)), True)][draw](x)


def root(rng, v):
    """rsqrt of the hardware is within two units: the exact one, or one unit beside it; or a division by a root, each rounded."""
    draw = int(rng.integers(3))
    if draw == 0:
        return "rsqrt", (1 / np.sqrt(v.astype(D))).astype(F)
    if draw == 1:
        return "1/sqrt", F(1) / np.sqrt(v)
    return "rsqrt+1", np.nextafter((1 / np.sqrt(v.astype(D))).astype(F), F(np.inf))


def welford(x):
    mean, m2 = np.zeros(x.shape[:-1], F), np.zeros(x.shape[:-1], F)
    for k in range(x.shape[-1]):
        d = x[..., k] - mean
        mean = mean + d / F(k + 1)
        m2 = fma(d, x[..., k] - mean, m2)
    return mean, m2 / F(x.shape[-1])


def batches(rng):
    op = str(rng.choice(["layernorm", "rmsnorm"]))
    rows, n = int(rng.choice([1, 2, 3, 5, 8, 17])), int(rng.choice([1, 2, 3, 7, 16, 31, 64, 100, 128, 257, 512, 768, 1024, 2048, 4096]))
    b = max(1, min(40, (1 << 17) // (rows * n)))
    shift = float(rng.choice([0, 0, 0, 1, 10, -100]))
    spread = np.exp2(rng.uniform(-8, 8, (b, rows, 1)))
    kind = str(rng.choice(["normal", "positive", "heavy", "small"]))
    x = rng.standard_normal((b, rows, n))
    x = {"normal": x, "positive": np.abs(x), "heavy": x * np.exp2(2 * rng.standard_normal(x.shape)), "small": x * 2.0**-14}[kind]
    fmt = str(rng.choice(["f32", "bf16", "f16"]))
    x = to(np.clip((x + shift) * spread, -30000, 30000).astype(F), fmt)
    eps, centered = float(rng.choice([1e-5, 1e-6, 1e-3])), bool(rng.random() < 0.3)
    weight = str(rng.choice(["f32", fmt]))
    gamma = to((rng.standard_normal((b, n)) * 0.3 + (0 if centered else 1)).astype(F), weight)
    beta = to(rng.standard_normal((b, n)).astype(F), weight) if op == "layernorm" else None
    held = {"a": x, "gamma": gamma} | ({"beta": beta} if beta is not None else {})
    a, one = x.astype(F), F(1) / F(n)
    meta = {"eps": repr(eps), "zero_centered_gamma": "true"} if centered else {"eps": repr(eps)}
    for _ in range(4):
        if op == "layernorm":
            if rng.integers(2) and n <= 1024:
                name, (mean, var) = "welford", welford(a)
            else:
                name, mean = "two_pass", total(rng, a) * one
                d = a - mean[..., None]
                var = total(rng, d * d) * one
            y = a - mean[..., None]
        else:
            name, y, draw = "squares", a, int(rng.integers(3))
            if draw == 2:  # TransformerEngine's tuned kernel: the mean square from mean and variance
                mean = total(rng, a) * one
                d = a - mean[..., None]
                name, var = "mean_and_variance", total(rng, d * d) * one + mean * mean
            else:
                var = total(rng, a * a) * one if draw else total(rng, a * a) / F(n)
        how, r = root(rng, var + F(eps))
        g = gamma.astype(F)[:, None] + F(1) if centered else gamma.astype(F)[:, None]
        y = y * r[..., None]
        if beta is None:
            v = y * g
        else:
            v = fma(y, g, beta.astype(F)[:, None]) if rng.integers(2) else y * g + beta.astype(F)[:, None]
        out, result, more = finish(rng, v)
        device = str(rng.choice(["A100", "H200"]))
        yield Results(f"norms {op} {name} {how} {fmt} {kind} shift={shift} n={n} {out}", op, held | result, meta | more | {"device": told(rng, device)})
