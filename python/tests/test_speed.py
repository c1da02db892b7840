"""What a call costs. The bound is loose, for machines that do other work too."""

import time

import qassay


def test_a_small_product_costs_milliseconds(product):
    out, (a8, sa), (b8, sb) = product("float8_rowwise", 64, 96, 768)
    best = float("inf")
    for _ in range(20):
        started = time.perf_counter()
        qassay.assert_gemm(out, a8, sa, b8, sb)
        best = min(best, time.perf_counter() - started)
    assert best < 0.05
