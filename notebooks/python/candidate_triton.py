"""An FP8 product in Triton. qassay run smoke --filter gemm/ --candidate 'python3 notebooks/python/candidate_triton.py'"""

import torch
import triton
import triton.language as tl
from qassay_bundle import Unsupported, serve

FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
FLOATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@triton.jit
def gemm(a, b, d, scale_a, scale_b, bias, M, N, K, by_row_a: tl.constexpr, by_row_b: tl.constexpr, has_bias: tl.constexpr,
         BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """d[M,N] = (sum of a[M,K]*b[N,K]) * scale_a * scale_b + bias: one chain of tensor-core steps over K, scales afterwards."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + at + k[None, :], mask=(m[:, None] < M) & (at + k[None, :] < K), other=0.0)
        w = tl.load(b + n[None, :] * K + at + k[:, None], mask=(n[None, :] < N) & (at + k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc)
    sa = tl.load(scale_a + (m if by_row_a else m * 0), mask=m < M, other=0.0)
    sb = tl.load(scale_b + (n if by_row_b else n * 0), mask=n < N, other=0.0)
    y = acc * sa[:, None] * sb[None, :]
    if has_bias:
        y += tl.load(bias + n, mask=n < N, other=0.0)[None, :].to(tl.float32)
    tl.store(d + m[:, None] * N + n[None, :], y.to(d.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def kernel(case):
    if case.op != "gemm" or "a.codes" not in case or "b.codes" not in case:
        raise Unsupported("products of two FP8 operands only")
    if case.format("a") not in FP8 or case.format("b") not in FP8 or case.meta["out.format"] not in FLOATS:
        raise Unsupported("FP8 operands and f32, f16 or bf16 results only")
    kinds = [case.granularity(x) for x in "ab"]
    if not all(k in ("tensor", "row") for k in kinds):
        raise Unsupported(f"scales {kinds}")
    a, b = case.torch("a.codes", "cuda"), case.torch("b.codes", "cuda")
    sa, sb = (torch.from_numpy(case.scale_inv(x)).cuda() for x in "ab")
    (M, K), N = a.shape, b.shape[0]
    d = torch.empty(M, N, dtype=FLOATS[case.meta["out.format"]], device="cuda")
    bias = case.torch("bias", "cuda") if "bias" in case else d
    gemm[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
        a, b, d, sa, sb, bias, M, N, K, kinds[0] == "row", kinds[1] == "row", "bias" in case, 64, 64, 128)
    return {"out": d}, {"device": torch.cuda.get_device_name(), "kernel": f"triton {triton.__version__}"}


if __name__ == "__main__":
    serve(kernel)
