"""What torch wrote on a GPU, as bundles: healthy products and casts, and the same with a bug. make.py FOLDER"""

import sys

import torch
from qassay_bundle import save

out = sys.argv[1]
torch.manual_seed(20261121)
GPU, M, N, K = "cuda", 24, 32, 256
device = torch.cuda.get_device_name()
E4M3, TOP = torch.float8_e4m3fn, 448.0


def draw(rows, cols):
    """Rows of different size, both signs, a few outliers."""
    x = torch.randn(rows, cols, device=GPU) * (0.3 + torch.rand(rows, 1, device=GPU) * 4)
    x[torch.rand(rows, cols, device=GPU) < 0.002] *= 30
    return x.bfloat16()


def quantize(x, dim=None):
    """torchao float8: s = M/max(amax, 1e-12) divided in f64, codes of x*s clamped, scale_inv 1/s."""
    amax = x.abs().amax() if dim is None else x.abs().amax(dim, keepdim=True)
    s = (TOP / amax.double().clamp(min=1e-12)).float()
    return (x.float() * s).clamp(-TOP, TOP).to(E4M3), 1 / s, s


def bundle(name, tensors, op="gemm", note="", **words):
    save(f"{out}/{name}.safetensors", op, tensors, device=device, kernel=f"torch {torch.__version__} {words.pop('by')}", note=note, **words)


a, b = draw(M, K), draw(N, K)
for kind, dim, recipe in [("tensor", None, "float8_tensorwise"), ("row", 1, "float8_rowwise_gw_hp")]:
    (qa, ia, sa), (qb, ib, sb) = quantize(a, dim), quantize(b, dim)
    flat = (lambda s: s.reshape(1)) if dim is None else (lambda s: s.reshape(-1))
    operands = {"a": a, "b": b, "a.codes": qa, "b.codes": qb, "a.scale_inv": flat(ia), "b.scale_inv": flat(ib)}
    words = dict(a_granularity=kind, b_granularity=kind, recipe=recipe)

    def mm(x, w, s, t, fast=False, dtype=torch.bfloat16):
        return torch._scaled_mm(x, w.T, scale_a=s, scale_b=t.reshape(1, -1) if dim else t, out_dtype=dtype, use_fast_accum=fast)

    for fast in (False, True):
        by = f"_scaled_mm use_fast_accum={fast}"
        bundle(f"{kind}{'_fast' if fast else ''}", operands | {"out": mm(qa, qb, ia, ib, fast)}, by=by, **words)
    if kind == "tensor":
        bundle("tensor_f32", operands | {"out": mm(qa, qb, ia, ib, True, torch.float32)}, by="_scaled_mm use_fast_accum=True", **words)
        bundle("bug_scale_inverted", operands | {"out": mm(qa, qb, sa, ib)}, by="_scaled_mm", note="scale_a is the scale, not its inverse", **words)
        history = ia.reshape(1) * torch.tensor([1.0, 0.71, 1.37, 0.93], device=GPU)
        stale = operands | {"a.scale_history": history[1:].contiguous(), "out": mm(qa, qb, history[2].clone().reshape(ia.shape), ib)}
        bundle("bug_scale_stale", stale, by="_scaled_mm", note="scale_a is that of two steps before", **words)
        tail = mm(qa[:, : K - 16].contiguous(), qb[:, : K - 16].contiguous(), ia, ib)
        bundle("bug_k_tail", operands | {"out": tail}, by="_scaled_mm", note="the last 16 of K are dropped", **words)
    else:
        turned = ia.reshape(4, M // 4).T.reshape(M, 1).contiguous()
        bundle("bug_scale_transposed", operands | {"out": mm(qa, qb, turned, ib)}, by="_scaled_mm", note="scale_a read as a 4 by 6 grid, transposed", **words)

# Blocks of 128 along K, summed in f32 by torch: not the FP8 tensor core.
blocks = [quantize(x.reshape(x.shape[0] * 2, 128), 1) for x in (a, b)]
(qa, ia), (qb, ib) = [(q.reshape(-1, K), i.reshape(-1, 2)) for q, i, _ in blocks]
operands = {"a.codes": qa, "b.codes": qb, "a.scale_inv": ia, "b.scale_inv": ib}
grid = lambda q, i: q.float() * i.repeat_interleave(128, 1)
by = "float32 matmul of dequantized codes"
words = dict(a_granularity="group:128", b_granularity="group:128")
bundle("block_f32", operands | {"out": grid(qa, ia) @ grid(qb, ib).T}, by=by, **words)
turned = ia.reshape(2, M).T.contiguous()
bundle("bug_block_scales_transposed", operands | {"out": grid(qa, turned) @ grid(qb, ib).T}, by=by, note="scales of a transposed", **words)

# int8: one scale a row on both sides.
def int8(x):
    s = x.float().abs().amax(1) / 127
    return torch.round(x.float() / s[:, None]).clamp(-127, 127).to(torch.int8), s

(qa, ia), (qb, ib) = int8(a), int8(b)
y = torch._int_mm(qa, qb.T.contiguous()).float() * ia[:, None] * ib[None, :]
words = dict(a_granularity="row", b_granularity="row", device_model="int32")
operands = {"a.codes": qa, "b.codes": qb, "a.scale_inv": ia, "b.scale_inv": ib}
bundle("int8", operands | {"out": y}, by="_int_mm", **words)

# Casts.
q, i, s = quantize(a)
cast = {"a": a, "out.scale": s.reshape(1), "out.scale_inv": i.reshape(1), "out.amax": a.abs().amax().float().reshape(1)}
bundle("cast", cast | {"out.codes": q, "out.transpose": q.T.contiguous()}, op="cast", by="float8 cast")
truncated = (a.float() * s).clamp(-TOP, TOP)
truncated = (truncated.view(torch.int32) & ~0xFFFFF).view(torch.float32).to(E4M3)
bundle("bug_cast_truncated", cast | {"out.codes": truncated}, op="cast", by="float8 cast", note="rounded toward zero")
