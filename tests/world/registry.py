"""Lists of wrong and right kernels, and short makers of problems with the parameters that real kernels have."""
from problems import Cast, Gemm, Grouped

WRONG, DOUBLE, RIGHT = [], [], []


def bug(thread, what, kinds, place, make):
    """Registers a kernel that is wrong in one way; a kernel may be registered more than once, with other problems."""
    def deco(f):
        WRONG.append((f, thread, what, kinds.split(), place, make))
        return f
    return deco


def two(thread, what, kinds, place, make):
    """Registers a kernel f(p, one, two) with two bugs that can be switched off one by one."""
    def deco(f):
        DOUBLE.append((f, thread, what, kinds.split(), place, make))
        return f
    return deco


def good(what, make):
    """Registers a right kernel."""
    def deco(f):
        RIGHT.append((f, what, make))
        return f
    return deco


def fp8_block(m, n, k, g=128, **kw):
    """FP8, 1 x g activations and g x g weights."""
    return lambda rng: Gemm(rng, m, n, k, ("e4m3", f"group:{g}"), ("e4m3", f"block:{g}x{g}"), **kw)


def fp8_row(m, n, k, **kw):
    """FP8, one scale a row of both operands."""
    return lambda rng: Gemm(rng, m, n, k, ("e4m3", "row"), ("e4m3", "row"), **kw)


def fp8_tensor(m, n, k, **kw):
    """FP8, one scale a tensor."""
    return lambda rng: Gemm(rng, m, n, k, ("e4m3",), ("e4m3",), **kw)


def mx(m, n, k, a="e4m3", b="e4m3", **kw):
    """MX formats, E8M0 scales for 32 elements."""
    return lambda rng: Gemm(rng, m, n, k, (a, "group:32", "e8m0"), (b, "group:32", "e8m0"), **kw)


def nv4(m, n, k, **kw):
    """NVFP4: E4M3 scales for 16 elements, one f32 scale a tensor."""
    return lambda rng: Gemm(rng, m, n, k, ("e2m1", "group:16", "e4m3"), ("e2m1", "group:16", "e4m3"), **kw)


def i8(m, n, k, **kw):
    """int8, a scale a token and a channel."""
    return lambda rng: Gemm(rng, m, n, k, ("int8", "row"), ("int8", "row"), **kw)


def w4(m, n, k, g=128, zero="integer", af="f16", sf="f16", fmt="uint4", **kw):
    """Weights of 4 bits, groups of g, with zero points; 16-bit activations."""
    return lambda rng: Gemm(rng, m, n, k, (af,), (fmt, f"group:{g}", sf, zero), **{"out": af, **kw})


def w4a8(m, n, k, g=64, a="int8", **kw):
    """Weights of 4 bits in groups, 8-bit activations, a scale a token."""
    return lambda rng: Gemm(rng, m, n, k, (a, "row"), ("int4", f"group:{g}", "f32"), **kw)


def moe(sizes, n, k, a=("e4m3", "row"), b=("e4m3", "row"), **kw):
    """A grouped product."""
    return lambda rng: Grouped(rng, sizes, n, k, a, b, **kw)


def cast(m, k, fmt, **kw):
    """A cast."""
    return lambda rng: Cast(rng, m, k, fmt, **kw)
