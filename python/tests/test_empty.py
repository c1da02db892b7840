"""Results of nothing: kernels are called with no tokens, experts get none, K may be 0."""

import ml_dtypes
import numpy as np
import pytest

import qassay

RECIPES = ["float8_rowwise", "te_current", "te_block_1x128", "te_block_128x128", "mx_floor:e2m1", "te_nvfp4", "affine_asym:uint4:g32"]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("m, n, k", [(0, 24, 128), (24, 0, 128), (8, 24, 0), (0, 0, 0)])
def test_a_product_of_nothing(recipe, m, n, k):
    qa, qb = (qassay.quantize(np.ones((rows, k), np.float32), recipe) for rows in (m, n))
    assert qa.codes.shape == (m, k) and qa.dequantize().shape == (m, k)
    out = np.zeros((m, n), ml_dtypes.bfloat16)
    result = qassay.assert_gemm(out, qa, None, qb, None)
    assert result.verdict == "pass" and result.reason == (f"nothing to judge: the result is {m}×{n}" if m * n == 0 else "K is 0: each element is 0")
    assert f"{m}×{k} by {n}×{k}" in str(result)
    if m * n:
        with pytest.raises(qassay.KernelFailure, match="may be 0"):
            qassay.assert_gemm(out + np.float32(0.5).astype(out.dtype), qa, None, qb, None)


def test_scales_of_every_shape():
    empty, b8 = np.zeros((0, 64), ml_dtypes.float8_e4m3fn), np.ones((16, 64), ml_dtypes.float8_e4m3fn)
    out = np.zeros((0, 16), np.float16)
    for scale in (np.float32(1), np.zeros(0, np.float32), np.zeros((0, 1), np.float32)):
        assert qassay.assert_gemm(out, empty, scale, b8, np.ones(16, np.float32)).verdict == "pass"
    with pytest.raises(qassay.InputError, match=r"out is \[3, 16\], expected \[0, 16\]"):
        qassay.assert_gemm(np.zeros((3, 16), np.float16), empty, np.float32(1), b8, np.ones(16, np.float32))


def test_no_token_for_any_expert():
    b8 = np.ones((3, 16, 64), ml_dtypes.float8_e4m3fn)
    empty, ends = np.zeros((0, 64), ml_dtypes.float8_e4m3fn), np.zeros(3, np.int32)
    result = qassay.assert_grouped_gemm(np.zeros((0, 16), np.float16), empty, np.float32(1), b8, np.ones((3, 16), np.float32), ends)
    assert result.reason == "nothing to judge: the result is 0×16"


def test_a_cast_and_a_norm_of_nothing():
    x, codes = np.zeros((0, 64), np.float32), np.zeros((0, 64), ml_dtypes.float8_e4m3fn)
    assert qassay.assert_cast(codes, x, scale=np.float32(1)).verdict == "pass"
    with pytest.raises(qassay.KernelFailure, match="amax is 3; of no values it is 0"):
        qassay.assert_cast(codes, x, scale=np.float32(1), amax=np.float32(3))
    assert qassay.assert_norm(x, x, np.ones(64, np.float32)).verdict == "pass"
    assert qassay.assert_activation(x, x, "silu").verdict == "pass"
