"""Right casts, norms, activations."""
import numpy as np

from common import F32, F64
from problems import Act, Deq, Norm
from registry import cast, good


@good("FP8 cast, one scale 448 / amax", cast(64, 200, "e4m3", rule="te", recipe="te_current"))
@good("FP8 cast with a transposed copy", cast(48, 112, "e4m3", rule="te", recipe="te_current", transpose=True))
@good("MXFP8 cast, floor", cast(64, 256, "e4m3", gran="group:32", sfmt="e8m0", rule="floor", recipe="mx_floor"))
@good("MXFP4 cast, even", cast(32, 320, "e2m1", gran="group:32", sfmt="e8m0", rule="even", recipe="mx_even"))
@good("int8 cast, a scale a token", cast(70, 300, "int8", gran="row"))
@good("FP8 cast of groups of 128, a zero group in it",
      cast(40, 384, "e4m3", gran="group:128", fix=lambda r, x: np.where(np.arange(384) // 128 == 1, 0, x)))
@good("static scale that saturates", cast(24, 256, "e4m3", static=0.011, fix=lambda r, x: x * F32(9 / np.abs(x).max())))
def casts(p):
    return p.right()


@good("RMSNorm, two passes", lambda rng: Norm(rng, "rmsnorm", 64, 256, eps=1e-6))
@good("LayerNorm with a mean of 3, N no power of two",
      lambda rng: Norm(rng, "layernorm", 30, 193, af="f16", out="f16", fix=lambda r, x: x * F32(0.5) + F32(3)))
@good("RMSNorm with 1 + weight, FP8 result", lambda rng: Norm(rng, "rmsnorm", 40, 384, zc=True, out="e4m3", scale=50.0))
def norms(p):
    return p.right()


@good("LayerNorm with sums in ascending order and a fused last step", lambda rng: Norm(rng, "layernorm", 25, 160, af="f32", out="f32"))
def ascending(p):
    s = np.zeros(p.m, F32)
    for j in range(p.n):
        s = s + p.x[:, j]
    mu = (s / F32(p.n))[:, None]
    v = np.zeros(p.m, F32)
    for j in range(p.n):
        v = v + (p.x[:, j] - mu[:, 0]) ** 2
    rs = (F32(1) / np.sqrt(v / F32(p.n) + p.eps))[:, None].astype(F32)
    return (((p.x - mu) * rs).astype(F64) * p.g + p.b).astype(F32)


@good("SwiGLU in f32, bf16 result", lambda rng: Act(rng, "swiglu", 64, 192))
@good("GELU by tanh, f16", lambda rng: Act(rng, "gelu", 33, 256, af="f16", out="f16"))
@good("SwiGLU, FP8 result", lambda rng: Act(rng, "swiglu", 20, 128, out="e4m3", scale=24.0))
def acts(p):
    return p.right()


@good("SiLU as x / (1 + e^-x)", lambda rng: Act(rng, "silu", 40, 180, af="f32", out="f32"))
def divided(p):
    return (p.x / (F32(1) + np.exp(-p.x))).astype(F32)


@good("int4 in groups of 128 to bf16", lambda rng: Deq(rng, 40, 512, ("int4", "group:128", "f16")))
def dequantized(p):
    return p.right()
