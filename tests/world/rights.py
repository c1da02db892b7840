"""Right kernels: products in every order and arithmetic that a device or a library may use."""
import numpy as np

from common import F32, F64, rnd
from problems import Gemm, Wgrad
from registry import fp8_block, fp8_row, fp8_tensor, good, i8, moe, mx, nv4, w4, w4a8

LOW = {"e4m3": -6, "e5m2": -14, "f16": -14, "bf16": -126, "e2m1": 0}


def block_step(a, b, c, frac, outbits, la, lb):
    """T(W, F, O): terms cut to F bits below the largest exponent, summed exactly, cut to O bits."""
    prod = a[:, None, :].astype(F64) * b[None, :, :]
    ea = np.maximum(np.frexp(a)[1] - 1, la)[:, None, :] + np.maximum(np.frexp(b)[1] - 1, lb)[None, :, :]
    ea = np.where(prod == 0, -999, ea)
    ec = np.where(c == 0, -999, np.maximum(np.frexp(c)[1] - 1, -126))
    top = np.maximum(ea.max(2), ec)
    q = np.ldexp(1.0, np.where(top == -999, 0, top) - frac)
    s = np.trunc(prod / q[:, :, None]).sum(2) * q + np.trunc(c / q) * q
    u = np.ldexp(1.0, np.where(s == 0, 0, np.frexp(s)[1] - 1) - outbits)
    return (np.trunc(s / u) * u + 0.0).astype(F32)


def tensor_core(p, w, frac, outbits, k0=0, k1=None):
    """A chain of block steps over K."""
    c = np.zeros((len(p.av), len(p.bv)), F32)
    la, lb = LOW.get(p.A.fmt, -126), LOW.get(p.B.fmt, -126)
    for k in range(k0, p.k if k1 is None else k1, w):
        hi = min(k + w, p.k)
        c = block_step(p.av[:, k:hi], p.bv[:, k:hi], c, frac, outbits, la, lb)
    return c


@good("FP8 wgmma of an H100, one chain over K, scales of token and channel last", fp8_row(64, 96, 256, device="H100"))
@good("FP8 wgmma of an H100, K = 17", fp8_row(33, 64, 17, device="H100", out="f32"))
@good("FP8 wgmma of an H100, e5m2 gradients", lambda rng: Gemm(rng, 48, 64, 192, ("e5m2",), ("e4m3",), device="H100"))
@good("FP8 wgmma of an H100, bias added after", fp8_row(30, 80, 128, device="H100", bias="bf16"))
def hopper_fp8(p):
    return p.end(tensor_core(p, 32, 13, 13) * p.sa[:, :1] * p.sb[:, 0])


@good("FP8 wgmma of an H100, promoted every 128 of K with f32 scales of 1x128 and 128x128", fp8_block(64, 128, 512, device="H100"))
@good("FP8 wgmma of an H200, promoted every 128, short last block of K", fp8_block(50, 130, 320, device="H200", out="f32"))
def promoted(p):
    acc = np.zeros((p.m, p.n), F32)
    for k in range(0, p.k, 128):
        acc = acc + tensor_core(p, 32, 13, 13, k, min(k + 128, p.k)) * (p.sa[:, k:k + 1] * p.sb[:, k])
    return p.end(acc)


@good("f16 mma of an A100, per-channel int8 weights turned to f16 values exactly",
      lambda rng: Gemm(rng, 32, 64, 128, ("f16",), ("int8", "row"), out="f16", device="A100"))
@good("f16 mma of an A100, M = 1", lambda rng: Gemm(rng, 1, 128, 256, ("f16",), ("int4", "row"), out="f16", device="A100"))
def ampere_f16(p):
    return p.end(tensor_core(p, 8, 24, 23) * p.sb[:, 0])


@good("bf16 wgmma of an H200, FP8 weights", lambda rng: Gemm(rng, 20, 96, 192, ("bf16",), ("e4m3", "row"), device="H200", out="f32"))
def hopper_16(p):
    return p.end(tensor_core(p, 16, 25, 23) * p.sb[:, 0])


@good("f32 by blocks of K, a library's order", fp8_block(150, 200, 384))
@good("short last block of K and of N", fp8_block(77, 300, 450, out="f16"))
@good("one row", fp8_block(1, 256, 512))
@good("large dynamic range of the rows and groups", fp8_block(64, 128, 512, data="wide", out="f32"))
@good("MXFP4, odd sizes", mx(33, 65, 160, a="e2m1", b="e2m1", out="f32"))
@good("MXFP6 e2m3 by e3m2", mx(40, 48, 128, a="e2m3", b="e3m2", out="f16", device="MI350X"))
@good("W4A8 with FP8 activations, groups of 128", w4a8(32, 192, 512, g=128, a="e4m3"))
@good("W4A16 with integer zero points, groups of 128", w4(48, 128, 384, g=128))
@good("W4A16 with additive zero points, groups of 64", w4(16, 160, 256, g=64, zero="additive", af="bf16", sf="bf16"))
@good("NF4, groups of 64", lambda rng: Gemm(rng, 24, 96, 256, ("bf16",), ("nf4", "group:64", "f32")))
@good("one-sided data, constant activations", fp8_row(20, 64, 256, data="constant", bdata="onesided"))
@good("subnormal scales of the activations", fp8_row(20, 64, 256, out="f32", fix=lambda r, a, b: (a * F32(2e-38), b * F32(3e6))))
@good("every third token is zero", mx(48, 80, 192, fix=lambda r, a, b: (a * (np.arange(48) % 3 > 0)[:, None].astype(F32), b)))
def by_blocks(p):
    return p.run()


@good("int8 exact, scales of token and channel", i8(100, 160, 400))
@good("int8 exact, both zero points",
      lambda rng: Gemm(rng, 48, 70, 192, ("int8", "row", "f32", "integer"), ("int8", "row", "f32", "integer"),
      out="f32", device="MI300X"))
@good("int8 exact, one row, K = 17", i8(1, 64, 17, out="f16"))
def exact_int(p):
    acc = p.av.astype(int) @ p.bv.astype(int).T
    return p.end(((acc.astype(F32) * p.sa[:, :1]) * p.sb[:, 0]).astype(F32))


@good("split-K of 4 in f32, ascending, weights in 4 bits", w4(32, 128, 512, g=128, zero="none", fmt="int4"))
def split_k(p):
    parts = [p.run(ks=range(i * p.k // 4, (i + 1) * p.k // 4, p.step), end=False) for i in range(4)]
    return p.end(((parts[0] + parts[1]) + parts[2]) + parts[3])


@good("split-K of 4, partial sums added by atomics in any order, a row and column tile each its own", fp8_block(128, 128, 512, out="f32"))
@good("split-K of 4 by atomics, bf16 weights of 8 bits", lambda rng: Gemm(rng, 64, 64, 512, ("bf16",), ("int8", "row"), bk=128))
def atomics(p):
    parts = np.stack([p.run(ks=[k], end=False) for k in range(0, p.k, 128)])
    out = np.zeros((p.m, p.n), F32)
    for m in range(0, p.m, 32):
        for n in range(0, p.n, 32):
            for i in p.rng.permutation(len(parts)):
                out[m:m + 32, n:n + 32] += parts[i, m:m + 32, n:n + 32]
    return p.end(out)


@good("products added as a binary tree over K in f32", fp8_row(20, 48, 256, out="f32"))
def tree(p):
    t = p.av[:, None, :] * p.bv[None]
    while t.shape[2] > 1:
        t = t[:, :, 0::2] + t[:, :, 1::2]
    return p.end(t[:, :, 0] * p.sa[:, :1] * p.sb[:, 0])


@good("one chain over K with a rounded product and a rounded sum", fp8_row(30, 60, 200, out="f32"))
def no_fma(p):
    acc = np.zeros((p.m, p.n), F32)
    for k in range(p.k):
        acc = acc + p.av[:, k, None] * p.bv[:, k]
    return p.end(acc * p.sa[:, :1] * p.sb[:, 0])


@good("weights dequantized to f32 first, then one chain of fused steps", w4(16, 64, 256, g=64))
def dequantized_first(p):
    w, acc = p.B.deq(), np.zeros((p.m, p.n), F32)
    for k in range(p.k):
        acc = (acc.astype(F64) + p.av[:, k, None].astype(F64) * w[:, k]).astype(F32)
    return p.end(acc)


@good("four experts, one without tokens, FP8", moe([40, 0, 64, 25], 96, 256))
@good("experts of 1 and 130 rows, blocks of 128",
      moe([1, 130, 63], 128, 256, a=("e4m3", "group:128"), b=("e4m3", "block:128x128"), out="f16"))
@good("experts in int8 with the router's weights",
      moe([33, 20, 0, 50], 64, 192, a=("int8", "row"), b=("int8", "row"), weights=True, out="f32"))
def experts(p):
    return p.right()


@good("wgrad with an empty group", lambda rng: Wgrad(rng, [32, 0, 50, 17], 48, 64))
def wgrad(p):
    return p.right()


@good("K from the end to the start", fp8_block(70, 160, 512, out="f32", device="B200"))
def descending(p):
    return p.run(ks=range((p.k - 1) // p.step * p.step, -1, -p.step))


@good("four interleaved parts of K, added as a tree", w4a8(24, 128, 512, g=32, out="f32"))
@good("four interleaved parts of K, added as a tree, NVFP4", nv4(32, 64, 256, out="f16", device="B200"))
def interleaved(p):
    parts = [p.run(ks=range(i * p.step, p.k, 4 * p.step), end=False) for i in range(4)]
    return p.end((parts[0] + parts[1]) + (parts[2] + parts[3]))


@good("both operands dequantized in f32 first", fp8_block(60, 130, 256, out="f32"))
@good("both operands dequantized in f32 first, outlier channels",
      mx(50, 64, 256, b="e2m1", fix=lambda r, a, b: (a * np.where(np.arange(256) % 61 == 5, 40, 1) .astype(F32), b)))
def values_first(p):
    return p.end(p.A.deq() @ p.B.deq().T)


@good("bias fused: one rounding for scale and bias", i8(45, 96, 320, bias="f32", out="f32"))
@good("bias fused: one rounding for scale and bias, FP8", fp8_tensor(64, 80, 256, bias="bf16", out="f16"))
def fused_bias(p):
    acc = p.av.astype(F64) @ p.bv.astype(F64).T
    s = (p.sa[:, :1] * p.sb[:, 0]).astype(F64)
    return (acc.astype(F32) * s + p.bias).astype(F32)


@good("FP8 mma.sync of an H100: pairs of K through f16 units, then an f32 addition", fp8_row(32, 64, 256, device="H100", out="f32"))
def mma_sync(p):
    acc, pos = np.zeros((p.m, p.n), F32), np.arange(32) % 4 < 2
    for k in range(0, p.k, 32):
        a, b = p.av[:, k:k + 32], p.bv[:, k:k + 32]
        t = block_step(a[:, pos], b[:, pos], np.zeros_like(acc), 25, 23, -14, -14)
        acc = acc + block_step(a[:, ~pos], b[:, ~pos], t, 25, 23, -14, -14)
    return p.end(acc * p.sa[:, :1] * p.sb[:, 0])


@good("FP8 of an L40S, steps of 16", fp8_tensor(24, 48, 192, device="L40S"))
def ada(p):
    p.ops["a.scale_history"] = ("f32", np.array([p.A.grid[0, 0] * F32(0.9), p.A.grid[0, 0] * F32(1.3)], F32))
    return p.end(tensor_core(p, 16, 13, 13) * p.sa[:, :1] * p.sb[:, 0])
