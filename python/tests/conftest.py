"""What the tests share: operands, and a stand-in for torch where torch is not."""

import numpy as np
import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def product():
    """A gemm 24×40×96 by a recipe: (out, qa, qb), `out` the correctly rounded float32."""
    import qassay

    def make(recipe="float8_rowwise", m=24, n=40, k=96, seed=0, recipe_b=None):
        rng = np.random.default_rng(seed)
        # Rows and blocks of different amax: equal scales could not show a wrong index.
        size = lambda rows: 2.0 ** (np.arange(rows)[:, None] % 5 + np.arange(rows)[:, None] // 128 + np.arange(k)[None, :] // 64)
        a, b = ((rng.standard_normal((rows, k)) * size(rows)).astype(np.float32) for rows in (m, n))
        qa, qb = qassay.quantize(a, recipe), qassay.quantize(b, recipe_b or recipe)
        exact = qa._bundle.values("x") @ qb._bundle.values("x").T
        return exact.astype(np.float32), qa, qb

    return make
