"""Grouped products: borders of experts, their scales, the router's weights."""
import numpy as np

from common import F32
from registry import bug, moe

BLOCK = dict(a=("e4m3", "group:128"), b=("e4m3", "block:128x128"))


@bug("NVIDIA/TransformerEngine#1128",
     "weights' scale_inv is read one place too far: expert e takes that of e + 1",
     "scale_index scale_shared group_boundary",
     "experts 0..2",
     moe([40, 64, 0, 57], 96, 128, a=("e4m3",), b=("e4m3", "tensor"), device="H100"))
@bug("NVIDIA/TensorRT-LLM#10778", "the dequantization factor of expert 0 serves all experts", "scale_shared", "experts 1..3",
     moe([33, 64, 20, 70], 128, 192, a=("e4m3",), b=("e4m3", "tensor"), out="f16"))
def neighbour_scale(p):
    acc = np.zeros((p.m, p.n), F32)
    for e, r0, r1 in p.spans():
        other = min(e + 1, p.e - 1) if p.outf == "bf16" else 0
        acc[r0:r1] = p.tile(e, r0, r1, sb=p.sb[other])
    return p.finish(acc)


@bug("AI-Hypercomputer/maxtext#5036",
     "the scale of an expert is in the weights and is applied to the result again",
     "scale_doubled_inverted",
     "all",
     moe([24, 56, 48], 80, 256, a=("bf16",), b=("int8", "tensor")))
def expert_scale_twice(p):
    acc = np.zeros((p.m, p.n), F32)
    for e, r0, r1 in p.spans():
        acc[r0:r1] = p.tile(e, r0, r1, sb=p.sb[e] ** 2)
    return p.finish(acc)


@bug("flashinfer-ai/flashinfer#3604",
     "scale rows of later groups are looked up as if every group were padded to 128 rows; the buffer is not",
     "group_boundary scale_layout scale_index",
     "rows of groups 1 and 2",
     moe([100, 90, 66], 96, 256, a=("e4m3", "group:32", "e8m0"), b=("e4m3", "group:32", "e8m0"), device="B200"))
def padded_rows(p):
    acc, at = np.zeros((p.m, p.n), F32), 0
    for e, r0, r1 in p.spans():
        rows = (at + np.arange(r1 - r0)) % p.m
        sa = p.sa.copy()
        sa[r0:r1] = p.sa[rows]
        acc[r0:r1] = p.tile(e, r0, r1, sa=sa)
        at += -(-(r1 - r0) // 128) * 128
    return p.finish(acc)


@bug("deepseek-ai/DeepGEMM#450",
     "a tile of 128 rows takes the expert of its first row: [128, 130, 65] rows are not aligned",
     "group_boundary",
     "rows from 258 on up to the tile's end",
     moe([128, 130, 65], 128, 256, **BLOCK))
@bug("deepseek-ai/DeepGEMM#15",
     "groups of 72 and 40 rows: a tile of 128 rows takes the expert of its first row",
     "group_boundary",
     "rows 72..127, 184..255",
     moe([72, 112, 0, 96], 160, 384, device="H100", **BLOCK))
def first_row_expert(p):
    acc, owner = np.zeros((p.m, p.n), F32), np.searchsorted(p.offs, np.arange(p.m), "right")
    for r in range(0, p.m, 128):
        acc[r:r + 128] = p.tile(owner[r], r, min(r + 128, p.m))
    return p.finish(acc)


@bug("flashinfer-ai/flashinfer#3547",
     "local_expert_offset is subtracted twice: tokens of this shard's experts match none and stay zero",
     "silent_skip group_boundary",
     "all",
     moe([30, 0, 50, 41], 96, 128, a=("e2m1", "group:16", "e4m3"), b=("e4m3", "row")))
def no_expert(p):
    return p.right() * 0


@bug("vllm-project/vllm#43694",
     "the router's weight was applied to the input and is applied to the result as well",
     "scale_doubled_inverted",
     "all",
     moe([21, 64, 43], 112, 256, a=("e4m3", "row"), b=("e4m3", "row"), weights=True))
def router_twice(p):
    return (p.right() * p.rw[:, None]).astype(F32)


@bug("vllm-project/vllm-ascend#15613",
     "the router's weights are cast to int8 with the tokens: 0..1 becomes 0",
     "silent_skip scale_omitted overflow_wrap rounding",
     "all",
     moe([16, 40, 8], 64, 128, a=("int8", "row"), b=("int8", "row"), weights=True))
def router_int8(p):
    return (p.finish(p.right() / p.rw[:, None], rw=None) * p.rw.astype(np.int8)[:, None]).astype(F32)


@bug("vllm-project/vllm-ascend#2348",
     "apply_router_weight_on_input is not set: the router's weight is applied nowhere",
     "scale_omitted silent_skip",
     "all",
     moe([50, 14, 0, 32], 128, 192, a=("e4m3", "row"), b=("int4", "group:64", "f32"), weights=True))
def router_lost(p):
    return (p.right() / p.rw[:, None]).astype(F32)


@bug("huggingface/kernels-community#1153",
     "grouped store without a column mask (N = 96, tile 64): the overhang of a row covers columns 0..31 of the next",
     "mn_edge addressing race",
     "columns 0..31",
     moe([20, 11, 33], 96, 128, a=("e4m3", "row"), b=("e4m3", "row")))
def grouped_overhang(p):
    out = p.right()
    out[1:, :32] = 0
    return out


@bug("ModelTC/LightLLM#1369",
     "expert ids wrap by % 3 in blocks of 4: the last block writes expert 0's row list again, cut by one token",
     "group_boundary race addressing",
     "the rows from each border back",
     moe([45, 38, 29], 72, 128, a=("int8", "row"), b=("int8", "row"), out="f16"))
def shifted_offsets(p):
    acc = np.zeros((p.m, p.n), F32)
    for e, r0, r1 in p.spans([o - 1 for o in p.offs[:-1]] + [p.m]):
        acc[r0:r1] = p.tile(e, r0, r1)
    return p.finish(acc)


@bug("tenstorrent/tt-metal#50669",
     "expert-to-token indices of experts from 1 on are too large by one: a token's row holds its neighbour's product",
     "group_boundary addressing",
     "rows of the experts from 1 on",
     moe([31, 33, 0, 35], 64, 256, a=("bf16",), b=("e2m1", "group:32", "e8m0")))
def token_plus_one(p):
    out = p.right()
    for e, r0, r1 in p.spans()[1:]:
        out[r0:r1 - 1] = out[r0 + 1:r1].copy()
    return out
