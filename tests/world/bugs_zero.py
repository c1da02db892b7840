"""Zero points and formats: what a code means."""
import numpy as np

from common import F32, FP4, decode, spread
from problems import Gemm
from registry import bug, fp8_row, fp8_tensor, mx, nv4, w4, w4a8


def zeros(p):
    """b's zero points, as wide as its codes."""
    return spread(p.B.zp, p.B.codes.shape, p.B.r, p.B.c).astype(F32)


@bug("sgl-project/sglang#37759",
     "a tile of 64 of K spans two groups of 32: only the first group's zero points are loaded, the second's slot holds 0",
     "zp_correction zp_offset stale_state",
     "K 32..63 of every 64",
     w4(32, 256, 512, g=32))
def one_zp_stage(p):
    z = zeros(p)
    z[:, np.arange(p.k) // 32 % 2 == 1] = 0
    return p.run(b=p.B.codes - z)


@bug("ARM-software/ComputeLibrary#1033", "the zero points are added instead of subtracted", "zp_offset zp_correction", "all",
     lambda rng: Gemm(rng, 60, 100, 192, ("int8", "row", "f32", "integer"), ("int8", "row", "f32", "integer"), out="f32"))
def added(p):
    za = spread(p.A.zp, p.A.codes.shape, p.A.r, p.A.c)
    return p.run(p.A.codes.astype(F32) + za, p.B.codes + zeros(p))


@bug("iree-org/iree#24583", "MatMulInteger multiplies the codes: both zero points are ignored", "zp_correction zp_offset", "all",
     lambda rng: Gemm(rng, 33, 15, 70, ("int8", "tensor", "f32", "integer"), ("int8", "tensor", "f32", "integer"), out="f32"))
def ignored(p):
    return p.run(p.A.codes.astype(F32), p.B.codes.astype(F32))


@bug("ROCm/AMDMIGraphX#2628", "asymmetric int8 activations: the term azp * colsum(B) is left out", "zp_correction", "all",
     lambda rng: Gemm(rng, 80, 128, 256, ("int8", "row", "f32", "integer"), ("int8", "row"), out="f16", data="onesided"))
def no_azp(p):
    return p.run(p.A.codes.astype(F32))


def low_zeros(rng, a, b):
    """Some groups with no negative weight: their zero point is 0."""
    b[::3, :64] = np.abs(b[::3, :64])
    b[1::3, 128:192] = np.abs(b[1::3, 128:192])
    return a, b


@bug("ModelCloud/GPTQModel#2350",
     "zero points are packed minus one and read plus one in 4 bits; 0 - 1 becomes 15 and stays 15",
     "zp_offset overflow_wrap",
     "groups with zero point 0",
     w4(30, 192, 256, g=64, fix=low_zeros))
def zp_underflow(p):
    z = zeros(p)
    return p.run(b=p.B.codes - np.where(z == 0, 15, z))


@bug("casper-hansen/AutoAWQ#101",
     "GPTQ stores zero points minus one; the converted kernel adds the one to AWQ's as well",
     "zp_offset",
     "all",
     w4(100, 128, 384, g=128, af="bf16", sf="bf16"))
def zp_plus_one(p):
    return p.run(b=p.B.codes - (zeros(p) + 1))


@bug("tile-ai/tilelang#2947",
     "q - zero is computed in the unsigned storage type (8 bits): what is below the zero point wraps to 256 + q - z",
     "zp_offset overflow_wrap bits_reinterpreted",
     "codes below their zero point",
     w4(64, 128, 256, g=64))
def unsigned_sub(p):
    return p.run(b=((p.B.codes.astype(int) - zeros(p).astype(int)) % 256).astype(F32))


@bug("ROCm/hip-ep#967", "packed uint8 zero points are read as FP16: two of them make one half float", "bits_reinterpreted zp_offset", "all",
     w4(24, 128, 272, g=32, sf="f32"))
def zp_bytes(p):
    raw = p.B.zp.astype(np.uint8)
    raw = raw if raw.size % 2 == 0 else np.append(raw, 0)
    half = np.tile(raw.reshape(-1).view(np.float16), 2)[:p.B.zp.size].reshape(p.B.zp.shape).astype(F32)
    return p.run(b=p.B.codes - spread(half, p.B.codes.shape, p.B.r, p.B.c))


@bug("llvm/torch-mlir#3122", "unsigned codes are sign-extended: 8..15 count as -8..-1", "bits_reinterpreted zp_offset", "codes from 8 on",
     w4(50, 96, 256, g=128, af="bf16", sf="bf16"))
def sign_extended(p):
    return p.run(b=np.where(p.B.codes > 7, p.B.codes - 16, p.B.codes) - zeros(p))


@bug("triton-lang/triton#5197",
     "element 0 of a byte is taken from the high nibble (weights)",
     "pack_permute",
     "all, pairs of K",
     mx(64, 128, 256, b="e2m1"))
@bug("openvinotoolkit/openvino#32144", "u4 is unpacked high nibble first where it was packed low first", "pack_permute", "all, pairs of K",
     w4(45, 160, 320, g=64))
def nibbles(p):
    return p.run(b=(p.bv.reshape(p.n, -1, 2)[:, :, ::-1]).reshape(p.n, p.k) if p.B.zero == "none" else
                 p.B.codes.reshape(p.n, -1, 2)[:, :, ::-1].reshape(p.n, p.k) - zeros(p))


@bug("amd/Quark#30", "weights packed in linear order are read in AWQ's order 0 2 4 6 1 3 5 7", "pack_permute", "all, eights of K",
     w4a8(70, 128, 512, g=128, out="f16"))
def awq_order(p):
    return p.run(b=p.bv.reshape(p.n, -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].reshape(p.n, p.k))


@bug("gittensor-ai-lab/sparkinfer#723",
     "(lo ^ 0x08080808) - 0x08080808 borrows: a negative weight decrements the one in the next byte lane",
     "overflow_wrap bits_reinterpreted codec_edge pack_permute",
     "weights above a negative one in a 32-bit word",
     w4a8(16, 192, 256, g=32))
def borrow(p):
    u = (p.B.codes.astype(np.uint8) & 15).reshape(p.n, -1, 8)
    out = np.zeros(u.shape, np.int8)
    for half in (0, 1):
        b = (u[:, :, half::2] ^ 8).astype(np.uint8).copy().view(np.uint32)
        out[:, :, half::2] = (b - np.uint32(0x08080808)).view(np.int8)
    return p.run(b=out.reshape(p.n, p.k).astype(F32))


@bug("causalflow-ai/petit-kernel#3", "BF8 FNUZ codes are decoded with bias 15 instead of 16", "bits_reinterpreted", "all",
     lambda rng: Gemm(rng, 64, 128, 256, ("bf16",), ("e5m2fnuz", "row"), device="MI300X"))
def bias_15(p):
    return p.run(b=np.where(p.B.codes == 128, 0, decode(p.B.codes, "e5m2fnuz") * 2).astype(F32))


@bug("ROCm/aiter#3807",
     "e4m3fn weights are read as e4m3fnuz: half the value, -0 is NaN",
     "bits_reinterpreted",
     "all; columns with a code 80 are NaN",
     fp8_row(40, 160, 192, device="MI300X"))
def as_fnuz(p):
    return p.run(b=decode(p.B.codes, "e4m3fnuz"))


@bug("ROCm/aiter#4102",
     "e4m3fnuz values are read as e4m3fn: twice the value, in both operands",
     "bits_reinterpreted scale_doubled_inverted",
     "all",
     lambda rng: Gemm(rng, 90, 96, 256, ("e4m3fnuz",), ("e4m3fnuz",), device="MI300X"))
def as_fn(p):
    return p.run(decode(p.A.codes, "e4m3"), decode(p.B.codes, "e4m3"))


@bug("ROCm/rocm-libraries#7439",
     "E4M3 scales are decoded by their exponent alone: the mantissa is left out",
     "bits_reinterpreted scale_rerounded",
     "all",
     nv4(120, 96, 256))
def exponent_only(p):
    def cut(s):
        return np.ldexp(F32(1), np.frexp(s)[1] - 1).astype(F32)
    return p.run(sa=cut(p.sa), sb=cut(p.sb))


@bug("arch-hdl-lang/arch-com#908",
     "an E8M0 scale code is widened as an integer (weights)",
     "bits_reinterpreted",
     "all",
     mx(50, 64, 128, out="f32"))
def integer_scale(p):
    return p.run(sb=(127 + np.log2(p.sb)).astype(F32))


@bug("bitsandbytes-foundation/bitsandbytes#1160",
     "DATA_TYPE is not passed on: NF4 codes are decoded by another 4-bit table (FP4)",
     "bits_reinterpreted",
     "all",
     lambda rng: Gemm(rng, 20, 128, 512, ("bf16",), ("nf4", "group:64", "f32")))
def other_table(p):
    return p.run(b=FP4[p.B.codes])


@bug("zxypro1/algolocal#86",
     "the format argument of the conversion is taken for the saturation mode: e5m2 codes are read as e4m3",
     "bits_reinterpreted",
     "all",
     lambda rng: Gemm(rng, 64, 128, 256, ("e5m2",), ("e4m3",)))
def e5m2_as_e4m3(p):
    codes = np.where((p.A.codes & 127) == 127, p.A.codes ^ 1, p.A.codes)
    return p.run(decode(codes, "e4m3"))


def dead_blocks(rng):
    """Power-of-two scales for 128 elements; every fifth row has a block of zeros whose scale_inv is 2^-128 * 2."""
    p = Gemm(rng, 64, 128, 512, ("e4m3", "group:128"), ("e4m3", "block:128x128"), out="f32")
    p.A.grid = np.ldexp(F32(1), np.frexp(p.A.grid)[1]).astype(F32)
    p.A.codes[::5, 128:256] = 0
    p.A.grid[::5, 1] = np.uint32(0x00400000).view(F32)
    p.A.v = decode(p.A.codes, "e4m3")
    p.A.s = np.repeat(p.A.grid, 128, 1)
    p.refresh()
    return p


@bug("NVIDIA/TransformerEngine#2589",
     "exponents of four f32 scales are packed by shifts that rely on empty mantissas: 00400000 sets the top bit of the byte before, "
     "its own scale becomes 2^-127",
     "scale_rerounded bits_reinterpreted codec_edge",
     "rows whose second block is dead",
     dead_blocks)
def packed_exponents(p):
    bits = p.A.grid.view(np.uint32).reshape(p.m, -1, 4)
    x, y, z, w = (bits[..., i] for i in range(4))
    word = (x >> 23) | (y >> 15) | (z >> 7) | (w << 1)
    codes = np.stack([(word >> (8 * i)) & 255 for i in range(4)], -1).reshape(p.m, -1)
    return p.run(sa=np.repeat(np.ldexp(1.0, codes.astype(int) - 127).astype(F32), 128, 1))


@bug("ROCm/AMDMIGraphX#2533",
     "e4m3fn codes of both operands are used as e4m3fnuz and only one scale is doubled: half the result",
     "bits_reinterpreted scale_omitted scale_doubled_inverted",
     "all",
     fp8_tensor(64, 100, 200, device="MI300X", out="f16"))
def one_scale_doubled(p):
    def fnuz(c):
        return decode(np.where(c == 128, 0, c), "e4m3fnuz")
    return p.run(fnuz(p.A.codes), fnuz(p.B.codes), sb=p.sb * 2)
