"""What goes into a product: pairs of operands [B, M, K], [B, N, K] of unit size, by kind."""

import numpy as np

KINDS = ["normal", "one_sign", "uniform", "constant", "ascending", "descending", "cancelling", "subnormal", "huge", "heavy", "sparse", "integers", "spike", "alternating"]
LENGTHS = [1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 80, 96, 100, 127, 128, 129, 160, 192, 255, 256, 272, 320, 384, 512, 544, 640, 768, 1000, 1024, 2048, 4096, 8192, 16384]


def shape(rng, elements=1 << 20, most=48, lengths=None):
    """(B, M, N, K): short K in small matrices, long K in tiny ones; about one tensor in seven has K of 768 or more."""
    k = int(rng.choice(lengths or LENGTHS))
    side = [1, 2, 3, 4, 5, 7, 8, 9, 12, 16] if k <= 640 else [1, 2, 3, 4]
    m, n = (int(x) for x in rng.choice(side, 2))
    if m * n < 4:
        m, n = m + 1, n + 3
    return max(1, min(most, elements // (m * n * k))), m, n, k


def sizes(rng, b, rows):
    """Rows of different size."""
    return np.exp2(rng.uniform(-3, 3, (b, rows, 1)) * rng.integers(0, 2, (b, 1, 1)))


def pair(rng, kind, b, m, n, k):
    """f64 operands; magnitudes of order one, but for `subnormal` and `huge`, which the caller moves to its format's ends."""
    x, y = (rng.standard_normal(s, np.float32).astype(float) for s in ((b, m, k), (b, n, k)))
    if kind in ("one_sign", "uniform"):
        x, y = (np.abs(x), np.abs(y)) if kind == "one_sign" else (rng.random((b, m, k)), rng.random((b, n, k)))
        if rng.random() < 0.3:
            y = -y
    elif kind == "constant":
        x, y = (np.broadcast_to(rng.uniform(1, 2, (b, 1, 1)), s).copy() for s in ((b, m, k), (b, n, k)))
    elif kind in ("ascending", "descending"):
        x, y = np.sort(np.abs(x), -1), np.sort(np.abs(y), -1)
        if kind == "descending":
            x, y = x[..., ::-1], y[..., ::-1]
        if rng.random() < 0.3:
            y = np.sort(rng.standard_normal((b, n, k)), -1)
    elif kind == "cancelling":
        h = k // 2
        order = rng.permutation(h) if rng.random() < 0.5 else np.arange(h)
        x[..., h:2 * h], y[..., h:2 * h] = -x[..., order], y[..., order]
        if k % 2 and k > 2:
            x[..., -1] *= 2.0**-9
    elif kind == "heavy":
        draw = rng.integers(3)
        if draw == 0:
            x, y = rng.standard_t(1.5, (b, m, k)), rng.standard_t(2.5, (b, n, k))
        else:
            x, y = x * np.exp2(3 * rng.standard_normal((b, m, k))), y * np.exp2(draw * rng.standard_normal((b, n, k)))
    elif kind == "sparse":
        keep = rng.choice([0.02, 0.1, 0.5])
        x, y = x * (rng.random((b, m, k)) < keep), y * (rng.random((b, n, k)) < max(keep, 0.1))
    elif kind == "integers":
        x, y = rng.integers(-8, 9, (b, m, k)).astype(float), rng.integers(-8, 9, (b, n, k)).astype(float)
    elif kind == "spike":
        x = np.abs(x) * 2.0**-8
        y = np.abs(y)
        x[..., int(rng.integers(k))] = 3.7
    elif kind == "alternating":
        x = np.abs(x) * np.where(np.arange(k) % 2, -1.0, 1.0)
        y = 1 + 0.01 * y
    if kind not in ("constant", "integers"):
        x, y = x * sizes(rng, b, m), y * sizes(rng, b, n)
    return x, y
