"""Norms and activations: formulas, statistics, intermediate roundings."""
import numpy as np

from common import F32, rnd
from problems import Act, Norm, gelu, sig
from registry import bug


def shifted(by):
    """Rows with a mean."""
    return lambda rng, x: x * F32(0.5) + F32(by)


@bug("triton-lang/triton#9838",
     "127 of the 256 lanes of a row are padding: each adds mean squared to the variance",
     "padding_poison other_formula k_tail",
     "all",
     lambda rng: Norm(rng, "layernorm", 48, 129, fix=shifted(1.5)))
@bug("linkedin/Liger-Kernel#519",
     "N = 192 in a block of 256: the masked lanes hold -mean and enter the variance",
     "padding_poison other_formula k_tail",
     "all",
     lambda rng: Norm(rng, "layernorm", 100, 192, af="f16", out="f16", fix=shifted(-2.3)))
@bug("unslothai/unsloth#1867", "N = 320 padded to 512: (0 - mean) squared of the padding is summed", "padding_poison other_formula k_tail", "all",
     lambda rng: Norm(rng, "layernorm", 24, 320, af="f32", out="f32", fix=shifted(0.8)))
def padded_variance(p):
    block = 1 << (p.n - 1).bit_length()
    mu = p.x.mean(1, keepdims=True, dtype=F32)
    var = (((p.x - mu) ** 2).sum(1, keepdims=True, dtype=F32) + (block - p.n) * mu ** 2) / p.n
    return p.apply(mu, (F32(1) / np.sqrt(var + p.eps)).astype(F32))


@bug("nntrainer/nntrainer#4318",
     "epsilon is floored to 1e-4 (half), the data's mean square is about 2e-4",
     "other_formula range_rule degenerate_block",
     "all",
     lambda rng: Norm(rng, "rmsnorm", 64, 256, eps=1e-6, data="plain", fix=lambda r, x: x * F32(0.014)))
@bug("amd/IRON#139 (epsilon)", "epsilon is 1e-5 in the code where 1e-6 is asked for", "other_formula degenerate_block", "all",
     lambda rng: Norm(rng, "rmsnorm", 16, 640, eps=1e-6, data="plain", fix=lambda r, x: x * F32(0.006), af="f32", out="f32"))
def other_eps(p):
    p.eps = F32(1e-4 if p.outf == "bf16" else 1e-5)
    return p.right()


@bug("amd/IRON#139", "the reciprocal root is rounded to bf16 before it multiplies the row", "round_order rounding", "all, one factor a row",
     lambda rng: Norm(rng, "rmsnorm", 60, 512, out="f32", af="f32"))
def inverse_bf16(p):
    mu, rs = p.rs()
    return p.apply(mu, rnd(rs, "bf16"))


@bug("vllm-project/vllm#36016", "the weight is used as it is where Gemma's norm means 1 + weight", "other_formula silent_skip", "all",
     lambda rng: Norm(rng, "rmsnorm", 40, 384, eps=1e-6, zc=True))
def no_plus_one(p):
    return p.apply(*p.rs(), gain=p.g)


def large_gamma(rng):
    """Weights for which 1 + w is no bf16 number."""
    p = Norm(rng, "rmsnorm", 50, 256, out="f32", zc=True)
    p.g = rnd(p.g * 40 + 9.3, "bf16")
    return p


@bug("vllm-project/vllm#29810",
     "1 + weight is added in bf16 instead of f32",
     "round_order rounding",
     "columns where 1 + weight is no bf16 number",
     large_gamma)
def plus_one_bf16(p):
    return p.apply(*p.rs(), gain=rnd(p.g + F32(1), "bf16"))


@bug("PaddlePaddle/Paddle#35480",
     "mean and variance are read by the index of the column instead of the row (0 past the end)",
     "addressing scale_index other_formula",
     "all",
     lambda rng: Norm(rng, "layernorm", 64, 128, af="f32", out="f32"))
def column_stats(p):
    mu, rs = p.rs()
    at = np.arange(p.n) % p.m
    y = (p.x - mu[at, 0]) * rs[at, 0] * p.g
    return (y + p.b).astype(F32)


@bug("ml-explore/mlx#2238", "variance by E[x^2] - E[x]^2 in f32: with a mean of 1449 it cancels", "other_formula rounding lowprec_acc", "all",
     lambda rng: Norm(rng, "layernorm", 32, 256, af="f32", out="f32", data="plain", fix=shifted(1449.0)))
@bug("openvinotoolkit/openvino#36587",
     "variance by E[x^2] - E[x]^2 in f32: with a mean of 5000 it is off or negative",
     "other_formula rounding lowprec_acc",
     "all",
     lambda rng: Norm(rng, "layernorm", 20, 512, af="f32", out="bf16", data="plain", fix=shifted(5000.0)))
def one_pass(p):
    mu = p.x.mean(1, keepdims=True, dtype=F32)
    var = ((p.x * p.x).mean(1, keepdims=True, dtype=F32) - mu * mu).astype(F32)
    with np.errstate(invalid="ignore", divide="ignore"):
        return p.apply(mu, (F32(1) / np.sqrt(var + p.eps)).astype(F32))


@bug("ROCm/aiter#2853", "Gemma's 1 + weight is applied to a plain RMSNorm weight, FP8 result", "other_formula", "all",
     lambda rng: Norm(rng, "rmsnorm", 48, 256, out="e4m3", scale=60.0))
def plus_one(p):
    return p.apply(*p.rs(), gain=p.g + F32(1))


@bug("ml-explore/mlx-lm#767", "silu is taken of the second half and multiplied by the first", "other_formula addressing pack_permute", "all",
     lambda rng: Act(rng, "swiglu", 64, 192))
def halves_exchanged(p):
    return (p.f(p.u) * p.g).astype(F32)


@bug("ROCm/ATOM#885",
     "rows are [gate | up], the kernel takes adjacent elements as pairs of gate and up",
     "pack_permute addressing other_formula",
     "all but column 0",
     lambda rng: Act(rng, "swiglu", 40, 256, out="e4m3", scale=24.0))
@bug("vllm-project/vllm#29273",
     "rows are [x | gate], the kernel takes even elements as x and odd ones as gate",
     "pack_permute addressing other_formula",
     "all but column 0",
     lambda rng: Act(rng, "geglu", 31, 130, af="f16", out="f16"))
def adjacent_pairs(p):
    return (p.f(p.x[:, 0::2]) * p.x[:, 1::2]).astype(F32)


@bug("EricLBuehler/mistral.rs#1867", "GELU by erf where the tanh form is declared", "other_formula", "elements with |x| between 0.5 and 4",
     lambda rng: Act(rng, "gelu", 50, 300, af="f32", out="f32"))
def by_erf(p):
    from math import erf
    e = np.vectorize(erf)(p.x / np.sqrt(2)).astype(F32)
    return (F32(0.5) * p.x * (F32(1) + e)).astype(F32)


@bug("ByteDance-Seed/VeOmni#857",
     "silu(gate) is rounded to bf16 before it multiplies",
     "round_order",
     "all",
     lambda rng: Act(rng, "swiglu", 70, 128, out="f32"))
def round_between(p):
    return (rnd(p.f(p.g), "bf16") * p.u).astype(F32)


@bug("ROCm/aiter#4526",
     "a limit of 7.0 is taken where none is set: gate and up are clamped before silu",
     "other_formula range_rule codec_edge",
     "elements beyond 7",
     lambda rng: Act(rng, "swiglu", 64, 160, amp=4.0))
def clamp_seven(p):
    return (p.f(np.minimum(p.g, F32(7))) * np.clip(p.u, -7, 7)).astype(F32)


@bug("vllm-project/vllm-gaudi#1567",
     "SwiGLU-OAI's alpha 1.702 is used for a plain SwiGLU",
     "other_formula",
     "all",
     lambda rng: Act(rng, "swiglu", 33, 256, af="f16", out="f16"))
def alpha_1702(p):
    return (p.g * sig(F32(1.702) * p.g) * p.u).astype(F32)


@bug("NVIDIA/TransformerEngine#1083 (scale)", "the FP8 result of the activation is stored without its scale", "scale_omitted", "all",
     lambda rng: Act(rng, "silu", 56, 200, out="e4m3", scale=37.0))
def no_scale(p):
    return p.right() / F32(p.scale)
