"""Kernels with two bugs at once; f(p, one, two) switches them on."""
import numpy as np

from common import F32, encode, pow2_up, rnd, spread
from problems import Act, Cast, Gemm, Norm
from registry import cast, fp8_block, fp8_row, i8, moe, mx, nv4, two, w4, w4a8


@two("NVIDIA/cutlass#3537 + pytorch/pytorch#152665",
     "split-K of 2 restarts the scale index and the bias is not added",
     "scale_index silent_skip",
     "K 256..511; all",
     fp8_block(96, 256, 512, bias="bf16"))
def split_and_bias(p, one, other):
    k = np.arange(p.k) % (p.k // 2 if one else p.k)
    return p.end(p.run(sa=p.sa[:, k], sb=p.sb[:, k], end=False), bias=None if other else p.bias)


@two("triton-lang/triton#5197 + huggingface/transformers#47030",
     "weights are read high nibble first and the activations' scales are rounded up to powers of two",
     "pack_permute scale_rerounded",
     "all",
     lambda rng: Gemm(rng, 64, 96, 256, ("e4m3", "row"), ("e2m1", "group:32", "e8m0")))
def nibble_and_ceil(p, one, other):
    b = p.bv.reshape(p.n, -1, 2)[:, :, ::-1].reshape(p.n, p.k) if one else p.bv
    return p.run(b=b, sa=pow2_up(p.sa) if other else p.sa)


@two("vllm-project/vllm#39705 + casper-hansen/AutoAWQ#101",
     "a tile of 128 of K takes the scale of its first group of 32, and zero points are one too large",
     "scale_index zp_offset",
     "all",
     w4(40, 160, 384, g=32))
def group_and_zero(p, one, other):
    z = spread(p.B.zp, p.B.codes.shape, p.B.r, p.B.c) + (1 if other else 0)
    k = np.arange(p.k) // (128 if one else 1) * (128 if one else 1)
    return p.run(b=p.B.codes.astype(F32) - z, sb=p.sb[:, k], step=32)


@two("tile-ai/tilelang#2381 + Dao-AILab/flash-attention#2789",
     "the last 8 of every 24 of K are dropped and the overhang of column tiles is stored",
     "k_tail mn_edge addressing",
     "all; columns 0..31 of rows from 1 on",
     lambda rng: Gemm(rng, 48, 96, 240, ("f16",), ("int8", "row"), out="f16"))
def tail_and_store(p, one, other):
    out = p.run(ks=range(0, p.k, 24), step=16 if one else 24)
    if other:
        out[1:, :32] = 0
    return out


@two("ROCm/aiter#4102 + vllm-project/vllm#12696",
     "e4m3fnuz activations are read as e4m3fn and token 0's scale serves all rows",
     "bits_reinterpreted scale_shared",
     "all; rows from 1 on",
     lambda rng: Gemm(rng, 60, 128, 256, ("e4m3fnuz", "row"), ("e4m3fnuz", "row"), device="MI300X"))
def fnuz_and_row(p, one, other):
    return p.run(p.av * 2 if one else p.av, sa=np.full_like(p.sa, p.sa[0, 0]) if other else p.sa)


@two("uxlfoundation/oneDNN#518 + ROCm/AMDMIGraphX#2628",
     "pair sums saturate at 16 bits and the activations' zero point is ignored",
     "overflow_wrap zp_correction",
     "all",
     lambda rng: Gemm(rng, 24, 64, 128, ("int8", "row", "f32", "integer"), ("int8", "row"), out="f32", data="uniform", bdata="uniform"))
def pairs_and_zero(p, one, other):
    a, b = p.A.codes.astype(int) + 128, p.B.codes.astype(int)
    z = spread(p.A.zp, a.shape, p.A.r, p.A.c).astype(int)
    acc = np.zeros((p.m, p.n), int)
    for k in range(0, p.k, 2):
        t = a[:, k, None] * b[:, k] + a[:, k + 1, None] * b[:, k + 1]
        acc += np.clip(t, -32768, 32767) if one else t
    acc -= (128 + (0 if other else z[:, :1])) * b.sum(1)
    return p.end(acc.astype(F32) * p.sa[:, :1] * p.sb[:, 0])


@two("deepseek-ai/DeepGEMM#450 + vllm-project/vllm#43694",
     "tiles of 64 rows take the expert of their first row, and the router's weight is applied twice",
     "group_boundary scale_doubled_inverted",
     "rows of the tiles that a border cuts; all",
     moe([50, 90, 60], 96, 256, weights=True))
def tile_and_router(p, one, other):
    acc, owner = np.zeros((p.m, p.n), F32), np.searchsorted(p.offs, np.arange(p.m), "right")
    if one:
        for r in range(0, p.m, 64):
            acc[r:r + 64] = p.tile(owner[r], r, min(r + 64, p.m))
    else:
        for e, r0, r1 in p.spans():
            acc[r0:r1] = p.tile(e, r0, r1)
    return p.finish(acc, p.rw * p.rw if other else p.rw)


@two("NVIDIA/Fuser#4801 + NVIDIA/TransformerEngine#2971",
     "A's linear scales are read as the 128x4 swizzle and alpha has A's global scale twice",
     "scale_layout scale_doubled_inverted",
     "all",
     nv4(128, 96, 256, device="B200", out="f32"))
def swizzle_and_alpha(p, one, other):
    flat = p.A.grid.reshape(-1)
    rows, cols = p.A.grid.shape
    r, c = np.meshgrid(np.arange(rows), np.arange(cols), indexing="ij")
    at = (r // 128 * -(-cols // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
    sa = np.repeat(flat[at % flat.size], 16, 1) if one else p.sa
    return p.end(p.run(sa=sa, end=False), gs=p.gs * p.A.glob[0] if other else p.gs)


@two("tile-ai/tilelang#2617 + openvinotoolkit/openvino#25525",
     "column tiles of 64 start from the sums of the one before, and the sum is kept in f16",
     "acc_state lowprec_acc",
     "columns from 64 on; all",
     lambda rng: Gemm(rng, 33, 128, 1024, ("f16",), ("int8", "row"), out="f32", data="onesided", bdata="onesided"))
def clear_and_half(p, one, other):
    acc = np.zeros((p.m, p.n), np.float16 if other else F32)
    for k in range(0, p.k, 2):
        acc = (acc + p.av[:, k:k + 2] @ p.bv[:, k:k + 2].T / 128).astype(acc.dtype)
    acc = acc.astype(F32) * 128
    if one:
        acc[:, 64:] += acc[:, :64]
    return p.end(acc * p.sb[:, 0])


@two("sgl-project/sglang-jax#1598 + tenstorrent/tt-metal#57073",
     "int8 codes are truncated, and negative ones below -64 come out as their magnitude",
     "rounding overflow_wrap codec_edge",
     "all; elements below -64",
     cast(56, 256, "int8", gran="row"))
def trunc_and_sign(p, one, other):
    y = p.right()
    v = p.x / spread(y["grid"], p.x.shape, p.r, p.c)
    c = np.clip(np.trunc(v) if one else np.rint(v), -127, 127)
    y["codes"] = (np.where(c < -64, -c, c) if other else c).astype(np.int8)
    return y


@two("triton-lang/triton#9838 + amd/IRON#139",
     "the padding's mean squared enters the variance, and the reciprocal root is rounded to bf16",
     "padding_poison other_formula round_order rounding",
     "all",
     lambda rng: Norm(rng, "layernorm", 40, 200, af="f32", out="f32", fix=lambda r, x: x * F32(0.5) + F32(1.2)))
def pad_and_round(p, one, other):
    mu = p.x.mean(1, keepdims=True, dtype=F32)
    var = ((p.x - mu) ** 2).mean(1, keepdims=True, dtype=F32)
    if one:
        var = var + F32(56 / 200) * mu ** 2
    rs = (F32(1) / np.sqrt(var + p.eps)).astype(F32)
    return p.apply(mu, rnd(rs, "bf16") if other else rs)


@two("ml-explore/mlx-lm#767 + ROCm/aiter#4526",
     "the halves are exchanged and both are clamped to 7",
     "other_formula addressing range_rule pack_permute",
     "all; elements beyond 7",
     lambda rng: Act(rng, "swiglu", 50, 128, amp=4.0, out="f16"))
def swap_and_clamp(p, one, other):
    g, u = (p.u, p.g) if one else (p.g, p.u)
    return (p.f(np.minimum(g, F32(7))) * np.clip(u, -7, 7) if other else p.f(g) * u).astype(F32)
