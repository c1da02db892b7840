"""qassay judges quantized GPU kernels to the last bit, with no tolerance to choose.

    import qassay
    a8, sa = qassay.quantize(A, "float8_rowwise")
    b8, sb = qassay.quantize(B, "float8_rowwise")
    out = my_kernel(a8, sa, b8, sb)
    qassay.assert_gemm(out, a8, sa, b8, sb)

Arrays are numpy (with ml_dtypes), torch tensors on any device, or what has `__dlpack__`. `scale_inv` is what codes are multiplied by.
"""

from ._bundle import Unsupported, serve
from ._checks import (
    Bundle,
    Quantized,
    assay,
    assert_activation,
    assert_cast,
    assert_gemm,
    assert_grouped_gemm,
    assert_norm,
    quantize,
)
from ._errors import CheckerError, CheckerTimeout, InputError, KernelFailure, NoPower
from ._process import program, version
from ._result import Finding, Result

__version__ = version() or "0"

__all__ = [
    "Bundle", "CheckerError", "CheckerTimeout", "Finding", "InputError", "KernelFailure", "NoPower", "Quantized", "Result", "Unsupported",
    "assay", "assert_activation", "assert_cast", "assert_gemm", "assert_grouped_gemm", "assert_norm", "program", "quantize", "serve",
    "version",
]
