"""PyTorch's own kernels on a GPU: _scaled_mm, _scaled_grouped_mm, _int_mm, float8 casts, activations and norms.

qassay run smoke --candidate 'python3 notebooks/python/candidate_torch.py'        FAST=1: fast accumulation in _scaled_mm
"""

import os

import torch
import torch.nn.functional as nn
from qassay_bundle import Unsupported, serve

GPU = "cuda"
FAST = os.environ.get("FAST") == "1"
FLOATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def need(ok, why):
    if not ok:
        raise Unsupported(why)


def codes(case, x):
    return case.torch(f"{x}.codes", GPU)


def scales(case, x):
    return torch.from_numpy(case.scale_inv(x)).to(GPU)


def padded(x, rows, to, value=0):
    """With rows of zeros, up to a multiple of `to` or to `rows` of them: what callers of these kernels do."""
    more = max(-len(x) % to, rows - len(x))
    if more == 0:
        return x
    bits = x.view(torch.uint8) if x.dtype in FP8.values() else x
    return torch.cat([bits, bits.new_full((more, *x.shape[1:]), value)]).view(x.dtype)


def gemm(case):
    a_codes, b_codes = "a.codes" in case, "b.codes" in case
    need(b_codes, "products of unquantized operands")
    if not a_codes:
        a = case.torch("a", GPU)
        need(a.dtype in (torch.float16, torch.bfloat16), "mixed products of f32")
        weights = torch.from_numpy(case.values("b")).to(GPU, a.dtype)
        need(case.meta["out.format"] == case.format("a"), "mixed products into another type")
        y = a @ weights.T
        return y if (bias := case.vector("bias")) is None else y + torch.as_tensor(bias).to(y)
    if case.format("a") == "int8":
        return integers(case)
    need(case.format("a") in FP8 and case.format("b") in FP8, "products of other than FP8")
    return scaled_mm(case)


def scaled_mm(case):
    a, b, sa, sb = codes(case, "a"), codes(case, "b"), scales(case, "a"), scales(case, "b")
    kinds = (case.granularity("a"), case.granularity("b"))
    need(kinds in (("tensor", "tensor"), ("row", "row")), f"scales {kinds}")
    need(a.shape[1] % 16 == 0, "_scaled_mm takes K in multiples of 16")
    n, b = b.shape[0], padded(b, 0, 16)
    if kinds[0] == "row":
        sa, sb = sa[:, None], padded(sb, 0, 16, 1)[None, :]
    out = case.meta["out.format"]
    dtype = FLOATS.get(out) or FP8[out]
    bias = case.torch("bias", GPU) if "bias" in case else None
    need(bias is None or (bias.dtype == dtype or (out in FP8 and bias.dtype == torch.bfloat16)), "a bias of another type than out")
    need(kinds[0] != "row" or out == "bf16", "row-wise _scaled_mm writes bf16")
    more = {"scale_result": case.torch("out.scale", GPU)} if out in FP8 else {}
    bias = None if bias is None else padded(bias, 0, 16)
    y = torch._scaled_mm(a, b.T, scale_a=sa, scale_b=sb, bias=bias, out_dtype=dtype, use_fast_accum=FAST, **more)
    return y[:, :n].contiguous()


def integers(case):
    need(case.meta.get("a.zero", "none") == "none" and case.meta.get("b.zero", "none") == "none", "zero points")
    need(case.granularity("a") in ("tensor", "row") and case.granularity("b") in ("tensor", "row"), "scales along K")
    a = torch.from_numpy(case.codes("a").astype("int8")).to(GPU)
    from qassay_bundle import decode

    b = torch.from_numpy(decode(case.codes("b"), case.format("b")).astype("int8")).to(GPU)
    need(a.shape[1] % 8 == 0, "_int_mm takes K in multiples of 8")
    (m, n), a, b = (len(a), len(b)), padded(a, 24, 8), padded(b, 0, 8)
    y = torch._int_mm(a, b.T)[:m, :n].float() * scales(case, "a").reshape(-1, 1) * scales(case, "b").reshape(1, -1)
    return y if (bias := case.vector("bias")) is None else y + torch.as_tensor(bias).to(y)


def grouped(case):
    need((case.granularity("a"), case.granularity("b")) == ("row", "row"), "grouped products of row-wise scales only")
    a, b, sa, sb = codes(case, "a"), codes(case, "b"), scales(case, "a"), scales(case, "b")
    need(case.meta["out.format"] == "bf16", "_scaled_grouped_mm writes bf16")
    offs = case.torch("offs", GPU)
    if case.op == "grouped_gemm":
        need(b.shape[1] % 16 == 0 and b.shape[2] % 16 == 0, "_scaled_grouped_mm takes K and N in multiples of 16")
        y = torch._scaled_grouped_mm(a, b.transpose(-2, -1), sa, sb, offs=offs, out_dtype=torch.bfloat16, use_fast_accum=True)
        y[offs[-1] :] = 0
        return y
    ends = case.vector("offs")
    need(a.shape[1] % 16 == 0 and all(e % 16 == 0 for e in ends), "_scaled_grouped_mm takes groups of columns in multiples of 16")
    return torch._scaled_grouped_mm(a, b.T, sa.reshape(-1), sb.reshape(-1), offs=offs, out_dtype=torch.bfloat16, use_fast_accum=True)


def gelu(x):
    return x * (0.5 + 0.5 * torch.tanh(x * (0.79788456 + 0.03567741 * x * x)))


ACTS = {
    "gelu": gelu, "silu": nn.silu, "relu": torch.relu, "qgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "srelu": lambda x: torch.relu(x) * torch.relu(x),
}
GATED = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu", "qgeglu": "qgelu", "sreglu": "srelu"}


def elementwise(case):
    x = case.torch("a", GPU).float()
    if case.op == "activation":
        fn = case.meta["fn"]
        if fn in ACTS:
            return ACTS[fn](x)
        act, gate = x.chunk(2, -1)
        return ACTS[GATED[fn]](act) * gate
    gamma, eps = case.torch("gamma", GPU).float(), float(case.meta.get("eps", "1e-5"))
    if case.meta.get("zero_centered_gamma") == "true":
        gamma = 1 + gamma
    if case.op == "rmsnorm":
        return nn.rms_norm(x, x.shape[-1:], gamma, eps)
    return nn.layer_norm(x, x.shape[-1:], gamma, case.torch("beta", GPU).float() if "beta" in case else None, eps)


def quantized(y, format, scale):
    """Codes of RN32(y*scale), saturating."""
    dtype = FP8[format]
    top = torch.finfo(dtype).max
    return {
        "out.codes": (y.float() * scale).clamp(-top, top).to(dtype),
        "out.scale_inv": (1 / scale).reshape(1),
        "out.amax": y.float().abs().max().reshape(1),
    }


def kernel(case):
    meta = {"device": torch.cuda.get_device_name(), "kernel": f"torch {torch.__version__}"}
    out = case.meta["out.format"]
    if case.op == "cast":
        recipe = case.meta.get("recipe", "given").split(":")[0]
        need(recipe in ("given", "te_current") and out in FP8, f"no recipe {recipe} into {out}")
        y = case.torch("a", GPU)
        if recipe == "te_current":
            found = quantized(y, out, torch.finfo(FP8[out]).max / y.abs().max().float())
            del found["out.amax"]
            return found, meta
    elif case.op == "dequantize":
        need(case.format("a") in FP8 and "a.global_scale_inv" not in case, "dequantize of other than FP8")
        y = codes(case, "a").float() * torch.from_numpy(case.spread("a", case.scale_inv("a")).copy()).to(GPU)
    elif case.op == "gemm":
        y = gemm(case)
    elif case.op.startswith("grouped"):
        y = grouped(case)
    else:
        y = elementwise(case)
    if y.dtype in FP8.values():
        return {"out.codes": y, "out.scale_inv": 1 / case.torch("out.scale")}, meta
    if out in FP8:
        return quantized(y, out, case.torch("out.scale", GPU)), meta
    return {"out": y.to(FLOATS[out])}, meta


if __name__ == "__main__":
    need(torch.cuda.is_available(), "torch sees no GPU")
    serve(kernel)
